//! Placement: where the state lives that a step reads and writes.

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
use packet::{Family, FlowKey, Key, Nanos, Seq};

use crate::counters::FlowCounters;
use crate::history::moves::Moves;

/// For a placement whose records are of all its state.
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
pub(crate) use records_are_of_all;

/// A packet at its step. Two references, as calls pass them in registers; what they lead to stays where the worker wrote it.
#[derive(Debug)]
pub struct Lane<'a, M> {
    /// What the packet contributes.
    pub meta: &'a M,
    /// What else its step goes by.
    pub ticket: &'a Ticket,
}

/// What a packet's step goes by besides what the packet contributes.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// The hash of its packet set ([`hash_of`]).
    pub hash: u64,
    /// The packet's number.
    pub seq: Seq,
    /// The packet's time.
    pub now: Nanos,
    /// Where the packet set's entry is likely to be ([`Placement::prefetch_entry`]).
    pub hint: Hint,
    /// The bucket that it was steered by.
    pub bucket: u16,
    /// Whether it is a record of a packet that another core decides.
    pub replayed: bool,
}

impl<M> Lane<'_, M> {
    /// The lane for a call that not every step makes: its ticket is copied to memory for this call, so that on all other ways it may
    /// stay in registers.
    #[inline(always)]
    pub fn spill_to_memory<R>(self, call: impl FnOnce(Lane<'_, M>) -> R) -> R {
        let ticket = *self.ticket;
        call(Lane { meta: self.meta, ticket: &ticket })
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

/// How many steps are looked ahead: enough for the memory's latencies to overlap, few enough for the first-level cache.
pub const BURST: usize = 32;

/// A flow that is alive.
#[derive(Debug)]
pub struct FlowState<N: NetworkFunction> {
    /// The packet set.
    pub key: KeyOf<N>,
    /// Its state.
    pub flow: N::Flow,
    /// When it expires if nothing more comes.
    pub deadline: Nanos,
}

/// The hash that all tables of a run go by, keyed by the run's seed; 0 for a function that has no flow tables.
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

/// Where the state lives that a step reads and writes. The worker hashes and prefetches a whole burst before it steps.
pub trait Placement<N: NetworkFunction>: Send {
    /// Whether cores replay what others' packets contributed, or hand state to each other. Where they don't, nothing of that is compiled.
    const REPLAYS: bool = false;

    /// Whether there are packet sets that one core has alone although records of others come to all (`hybrid`), so that it may be handed
    /// the records of its own. Where there are none, nothing of that is compiled.
    const MIXED: bool = false;

    /// The state that records are of: all of it, or the part of it that each core has.
    type Replica: Placement<N>;

    /// That state. Asked for once for a stretch of records: what is looked up for each costs each.
    ///
    /// # Panics
    /// Where records come and there is no such state.
    fn recorded(&self) -> &Self::Replica;

    /// The same, to be changed.
    ///
    /// # Panics
    /// As [`recorded`](Self::recorded) does.
    fn recorded_mut(&mut self) -> &mut Self::Replica;

    /// What the hashes of its tables are keyed by.
    fn seed(&self) -> u64;

    /// Brings near what leads to the state of a packet set of this bucket.
    fn prefetch(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16);

    /// Whether the state is so small, as it is now, that it stays near by itself: then [`prefetch`](Self::prefetch) costs more than it
    /// saves, and [`locate`](Self::locate) does for [`prefetch_entry`](Self::prefetch_entry).
    fn fits_l2(&self) -> bool {
        false
    }

    /// Brings near the state itself, once what leads to it is near, and says where it is likely to be.
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) -> Hint;

    /// Says the same of state that [is near](Self::fits_l2), and need not ask for it.
    #[inline(always)]
    fn locate(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) -> Hint {
        self.prefetch_entry(nf, meta, hash, bucket)
    }

    /// Takes one step and hands its verdict to `decided`. A verdict is large: what decides it and what carries it out are
    /// compiled into one place, where most of its fields are known and none is stored.
    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict));

    /// Whether it may take the steps of a burst together, of functions whose packet sets have no state of their own.
    const BATCHES: bool = false;

    /// Takes the steps of `count` lanes in order and settles each.
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

    /// Takes `count` steps at once that contribute the same, the first at `first`, the last being the lane's, and settles none;
    /// `false`, and nothing done, where they have to be taken one by one.
    fn fold(&mut self, _nf: &N, _last: Lane<'_, N::Meta>, _count: u32, _first: Nanos) -> bool {
        false
    }

    /// The burst's steps have been taken.
    #[inline(always)]
    fn rest(&mut self) {}

    /// Ends flows whose deadline has passed by `now`, the port's time, a bounded number at once; `true` when there are more. No packet has
    /// come behind `last`. Replicas end the same flows when they are told the same.
    fn age(&mut self, _nf: &N, _now: Nanos, _last: Seq) -> bool {
        false
    }

    /// What happened to flows here, where this placement belongs to one core.
    fn flow_counters(&self) -> FlowCounters;

    /// Lets go of what leaves this core. Waits for nobody.
    fn release(&mut self, _moves: &Moves<'_, N::Meta>) {}

    /// Whether all that comes to this core has been released.
    fn is_ready(&self, _moves: &Moves<'_, N::Meta>) -> bool {
        true
    }

    /// Waits until [`is_ready`](Self::is_ready); `false` when another core has failed meanwhile.
    fn wait(&self, _moves: &Moves<'_, N::Meta>) -> bool {
        true
    }

    /// Takes what comes to this core, which has to be ready.
    fn acquire(&mut self, _moves: &Moves<'_, N::Meta>) {}

    /// This core has failed and will release nothing more.
    fn fail(&mut self) {}
}
