//! Placement: where the state lives that a step reads and writes.

mod adding;
mod entries;
pub(crate) mod exchange;
mod lifecycle;
mod owned;
pub(crate) mod private;
pub(crate) mod replay_order;
pub(crate) mod sharded;
pub(crate) mod shared;
pub(crate) mod striped;
pub(crate) mod tables;
pub(crate) mod transacted;

use core::ops::Deref;

use flow::Hint;
use nf::{Flow, KeyOf, NetworkFunction, Verdict};
use packet::{Decided, Family, FlowKey, Key, Nanos, Seq, Taken};

use crate::counters::FlowCounters;
use crate::history::moves::Moves;

/// For placements whose history records concern all of their state.
macro_rules! records_are_of_all {
    () => {
        type Replica = Self;

        #[inline(always)]
        fn recorded(&self) -> &Self {
            self
        }

        #[inline(always)]
        fn recorded_mut(&mut self) -> &mut Self {
            self
        }
    };
}
pub(crate) use lifecycle::RECLAIM_PER_PACKET;
pub(crate) use records_are_of_all;

/// A packet's step: its metadata, its [`Ticket`] and its bytes, all by reference.
#[derive(Debug)]
pub struct Lane<'a, M> {
    /// The metadata.
    pub meta: &'a M,
    /// The captured bytes of the frame, if the function [reads them](NetworkFunction::READS_FRAMES).
    pub frame: &'a [u8],
    /// The packet's hash, number, time, hint and bucket.
    pub ticket: &'a Ticket,
}

/// What a step needs of its packet besides the metadata.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// The hash of the packet set's key ([`hash_of`]).
    pub hash: u64,
    /// The packet's number.
    pub seq: Seq,
    /// The packet's time.
    pub now: Nanos,
    /// Where the flow's table entry probably is ([`Placement::prefetch_entry`]).
    pub hint: Hint,
    /// The bucket that the packet was steered by.
    pub bucket: u16,
    /// True for a replayed record: another core gives the verdict.
    pub replayed: bool,
}

impl<M> Lane<'_, M> {
    /// Copies the ticket to memory for a rare call. On the common path the original can then stay in registers.
    #[inline(always)]
    pub fn spill_to_memory<R>(self, call: impl FnOnce(Lane<'_, M>) -> R) -> R {
        let ticket = *self.ticket;
        call(Lane { ticket: &ticket, ..self })
    }
}

impl<M> Clone for Lane<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Lane<'_, M> {}

impl<M> Deref for Lane<'_, M> {
    type Target = Ticket;

    #[inline(always)]
    fn deref(&self) -> &Ticket {
        self.ticket
    }
}

/// The steps of a burst. Enough to overlap memory latencies, few enough for the L1 cache.
pub const BURST: usize = 32;

/// A flow that is alive.
#[derive(Debug)]
pub struct FlowState<N: NetworkFunction> {
    /// The key of the packet set.
    pub key: KeyOf<N>,
    /// The flow.
    pub flow: N::Flow,
    /// When it expires unless another packet comes.
    pub deadline: Nanos,
}

/// A flow that goes from one run to another.
#[derive(Clone, Copy, Debug)]
pub struct SavedFlow<N: NetworkFunction> {
    /// The key of the packet set.
    pub key: KeyOf<N>,
    /// The flow.
    pub flow: N::Flow,
    /// When it expires unless another packet comes.
    pub deadline: Nanos,
    /// True if a full table must not evict it.
    pub assured: bool,
}

/// The time behind which a flow's deadline lies if the flow is saved at `now`. Where packet sets share state, flows past their deadline are
/// saved too, unless they have ended: their end gives back what they have of that state, and the next run has to call it.
pub(crate) fn saved_behind<N: NetworkFunction>(nf: &N, now: Nanos) -> Nanos {
    if nf.description().sharing.is_any() { Nanos(0) } else { now }
}

/// The hash of a key in all tables of a run, seeded by the run. 0 for functions without flow tables.
#[inline(always)]
pub fn hash_of<N: NetworkFunction>(key: &KeyOf<N>, seed: u64) -> u64 {
    if !N::Flow::STORED {
        return 0;
    }
    match key.family() {
        Family::V4(key) => key.hash(seed),
        Family::V6(key) => key.hash(seed),
    }
}

/// Where the state lives that a step reads and writes. The worker hashes and prefetches a whole burst before the first step.
pub trait Placement<N: NetworkFunction>: Send {
    /// True if cores replay history records or move state between each other. If false, no code for that is compiled.
    const REPLAYS: bool = false;

    /// True if some packet sets are replicated and others have one owner (`hybrid`): a core can then also get the records of its own
    /// packets. If false, no code for that is compiled.
    const MIXED: bool = false;

    /// The type of the state that history records apply to: all of the state, or each core's replica.
    type Replica: Placement<N>;

    /// The state that history records apply to. Call it once for many records.
    ///
    /// # Panics
    /// If the placement has no such state.
    fn recorded(&self) -> &Self::Replica;

    /// The state that history records apply to, mutable.
    ///
    /// # Panics
    /// If the placement has no such state.
    fn recorded_mut(&mut self) -> &mut Self::Replica;

    /// The hash seed of the tables.
    fn seed(&self) -> u64;

    /// Fits the state of all cores to `nf`, which [succeeds](NetworkFunction::succeed) `old`. No core takes a step meanwhile.
    fn succeed(places: Vec<Self>, nf: &N, old: &N) -> Vec<Self>
    where
        Self: Sized;

    /// Prefetches the index for the flow of a packet set in this bucket.
    fn prefetch(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16);

    /// True if the state is currently small enough to stay in the L2 cache. Then [`prefetch`](Self::prefetch) costs more than it saves, and
    /// [`locate`](Self::locate) replaces [`prefetch_entry`](Self::prefetch_entry).
    fn fits_l2(&self) -> bool {
        false
    }

    /// Prefetches the flow's entry after [`prefetch`](Self::prefetch), and returns where the entry probably is.
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) -> Hint;

    /// Returns the same hint for state that [fits L2](Self::fits_l2), without a prefetch where the placement can do without.
    #[inline(always)]
    fn locate(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) -> Hint {
        self.prefetch_entry(nf, meta, hash, bucket)
    }

    /// Takes one step and calls `decided` with its verdict. A callback, so that verdict and effect are compiled together: a verdict is
    /// large, and most of it then never goes through memory.
    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict));

    /// True if the placement can take the steps of a burst together, for functions without flows.
    const BATCHES: bool = false;

    /// Takes the steps of `count` lanes in order and calls `decided` for each.
    fn steps<'l>(
        &mut self,
        nf: &N,
        count: usize,
        mut lane: impl FnMut(usize) -> Lane<'l, N::Meta>,
        mut decided: impl FnMut(usize, &Verdict),
    ) where
        N::Meta: 'l,
    {
        (0..count).for_each(|at| self.step(nf, lane(at), |verdict| decided(at, verdict)));
    }

    /// Takes `count` steps with equal metadata at once, without verdicts: the first at time `first`, the last is `last`. Returns `false`,
    /// and changes nothing, if the steps must be taken one by one.
    fn fold(&mut self, _nf: &N, _last: Lane<'_, N::Meta>, _count: u32, _first: Nanos) -> bool {
        false
    }

    /// Called when a burst's steps are done.
    #[inline(always)]
    fn rest(&mut self) {}

    /// Ends flows whose deadline has passed by `now`, the port's time: a bounded number for each call. Returns true if there are more.
    /// `last` is the last packet so far. Replicas that get the same arguments end the same flows.
    fn age(&mut self, _nf: &N, _now: Nanos, _last: Seq) -> bool {
        false
    }

    /// Returns the function's decision about the coming packets of a flow that is alive at `now`, and the flow's deadline.
    fn decided(&self, _nf: &N, _key: &KeyOf<N>, _hash: u64, _now: Nanos) -> Option<(Decided, Nanos)> {
        None
    }

    /// Leaves a flow's deadline to a card: it doesn't expire here until it is [taken back](Self::take_back).
    fn leave_to_card(&mut self, _key: &KeyOf<N>, _hash: u64) {}

    /// Brings a flow up to date by what a card has taken of its packets. Returns false if there is no such flow.
    fn take_back(&mut self, _nf: &N, _key: &KeyOf<N>, _hash: u64, _taken: &Taken) -> bool {
        false
    }

    /// True if the table of IPv4 flows, and that of IPv6 flows, has room for more new flows than come in a burst, so that none is evicted or
    /// refused.
    fn has_room(&self) -> [bool; 2] {
        [false; 2]
    }

    /// Does as many units of ageing by `now` as packets that a card has taken would have done. `last` is the last packet.
    fn catch_up(&mut self, _nf: &N, _now: Nanos, _last: Seq, _units: usize) {}

    /// The flow counters of this core. Zero if the placement is shared by all cores.
    fn flow_counters(&self) -> FlowCounters;

    /// The flows to be saved at `now`: those that are alive, and those [that `expire` has yet to be called for](saved_behind).
    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>>;

    /// Puts in a saved flow before the first packet, as of `now`, and counts it as opened. `hash` is that of its key, `bucket` its entry in
    /// the indirection table. If there is no room it ends, as evicted, and the answer is false.
    fn restore(&mut self, nf: &N, saved: &SavedFlow<N>, hash: u64, bucket: u16, now: Nanos) -> bool;

    /// The flow counters of all cores, if they share the flows. Other cores may step meanwhile.
    fn common_flow_counters(&self) -> Option<FlowCounters> {
        None
    }

    /// Numbers of this core's transactions that have committed, and of attempts that were aborted; `None` without transactions.
    fn commits_and_aborts(&self) -> Option<(u64, u64)> {
        None
    }

    /// Releases the state that leaves this core. Never waits.
    fn release(&mut self, _moves: &Moves<'_, N::Meta>) {}

    /// True if all state that comes to this core was released.
    fn is_ready(&self, _moves: &Moves<'_, N::Meta>) -> bool {
        true
    }

    /// Waits until [`is_ready`](Self::is_ready). Returns false if another core has failed meanwhile.
    fn wait(&self, _moves: &Moves<'_, N::Meta>) -> bool {
        true
    }

    /// Takes the state that comes to this core. It must be ready.
    fn acquire(&mut self, _moves: &Moves<'_, N::Meta>) {}

    /// This core has failed and releases nothing more.
    fn fail(&mut self) {}
}
