//! The context of a step: packet time, shared state, timers.

use memory::Memory;
use packet::{Nanos, Seq};

use crate::counts::PacketCounts;
use crate::function::NetworkFunction;
use crate::verdict::Verdict;

/// What a handler gets besides the packet and the flow: packet time, shared state with its transaction, and the packet set's timers.
///
/// Example of an access to shared state: `cx.shared.ports.read(&mut cx.tx, index)?`.
pub struct Context<'a, N: NetworkFunction, M: Memory> {
    /// The state that all packet sets share.
    pub shared: &'a N::Shared<M>,
    /// The transaction of this step. Every access to shared state takes it.
    pub tx: M::Tx<'a>,
    now: Nanos,
    seq: Seq,
    effects: Effects,
    counts: Option<&'a PacketCounts>,
    /// The function's first counter among those of `counts`.
    first_counter: usize,
    frame: &'a [u8],
    /// A verdict that [`open`](NetworkFunction::open) has reached already, for the call of [`packet`](NetworkFunction::packet) behind it.
    reached: Option<Verdict>,
}

/// What a step requests for its own packet set. The engine carries it out after the step has committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// When the packet set expires unless another packet comes. `None` keeps the old deadline.
    pub deadline: Option<Nanos>,
    /// True if the packet set ends with this packet.
    pub close: bool,
    /// True if the packet set has been answered: it is no longer evicted to make room for new flows.
    pub assured: bool,
}

impl<'a, N: NetworkFunction, M: Memory> Context<'a, N, M> {
    /// Creates the context of one step. For engines.
    #[inline]
    #[must_use]
    pub fn new(shared: &'a N::Shared<M>, tx: M::Tx<'a>, now: Nanos, seq: Seq) -> Self {
        Self {
            shared,
            tx,
            now,
            seq,
            effects: Effects::default(),
            counts: None,
            first_counter: 0,
            frame: &[],
            reached: None,
        }
    }

    /// Calls `call` in the context of a function that is a part of this one: with shared state of its own, counters from `first_counter` on,
    /// and effects of its own. The transaction is the same.
    #[inline(always)]
    pub(crate) fn part<P: NetworkFunction, T>(
        &mut self,
        shared: &'a P::Shared<M>,
        first_counter: usize,
        call: impl FnOnce(&mut Context<'a, P, M>) -> T,
    ) -> T {
        let mut part = Context {
            shared,
            tx: M::take(&mut self.tx),
            now: self.now,
            seq: self.seq,
            effects: Effects::default(),
            counts: self.counts,
            first_counter: self.first_counter + first_counter,
            frame: self.frame,
            reached: None,
        };
        let outcome = call(&mut part);
        self.tx = part.tx;
        outcome
    }

    /// Leaves a verdict for the call of [`packet`](NetworkFunction::packet) behind this one of [`open`](NetworkFunction::open).
    pub(crate) const fn leave(&mut self, verdict: Verdict) {
        self.reached = Some(verdict);
    }

    /// Takes the verdict that was left.
    #[inline]
    pub(crate) const fn take_left(&mut self) -> Option<Verdict> {
        // Looked at first, since `take` copies.
        if self.reached.is_none() { None } else { self.reached.take() }
    }

    /// The same, with the counters that [`count`](Self::count) adds to; `None` for a replayed packet, which another core counts. For
    /// engines.
    #[inline]
    #[must_use]
    pub fn counting(self, counts: Option<&'a PacketCounts>) -> Self {
        Self { counts, ..self }
    }

    /// The same, with the captured bytes of the packet's frame. For engines.
    #[inline]
    #[must_use]
    pub fn reading(self, frame: &'a [u8]) -> Self {
        Self { frame, ..self }
    }

    /// The captured bytes of the packet's frame, for functions that [read them](crate::Sharing::reads_frames). Empty for others, and where
    /// a flow ends without a packet of its own.
    #[inline]
    #[must_use]
    pub const fn frame(&self) -> &'a [u8] {
        self.frame
    }

    /// Counts the packet, of `bytes` bytes, under one of the function's [counters](NetworkFunction::counters).
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn count(&self, number: usize, bytes: u32) {
        if let Some(counts) = self.counts {
            counts.count(self.first_counter + number, bytes);
        }
    }

    /// What all cores have counted, for the [report](NetworkFunction::report). In a step, what this core has counted, which must not
    /// decide anything.
    #[must_use]
    pub const fn counts(&self) -> Option<&'a PacketCounts> {
        self.counts
    }

    /// The packet's time. It never goes back.
    #[inline]
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// A random number, seeded by the packet's sequence number: the same in every engine and every run.
    #[must_use]
    pub const fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood: OOPSLA '14), one draw for each sequence number.
        let mut z = self.seq.0.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Sets the deadline: the packet set expires after `idle` without a packet, from now on. Without a call, the old deadline stays. A
    /// packet set that never got a deadline never expires.
    #[inline]
    pub fn expire_after(&mut self, idle: Nanos) {
        self.effects.deadline = Some(self.now + idle);
    }

    /// Ends the packet set with this packet. The engine calls [`NetworkFunction::expire`] for it.
    #[inline]
    pub fn close(&mut self) {
        self.effects.close = true;
    }

    /// Protects the packet set from eviction, because it was answered or has otherwise proved itself. When the table is full, unprotected
    /// flows make room. One call is enough for the lifetime of the flow.
    #[inline]
    pub fn assure(&mut self) {
        self.effects.assured = true;
    }

    /// What the step has requested so far. For engines.
    #[inline]
    #[must_use]
    pub const fn effects(&self) -> Effects {
        self.effects
    }

    /// Takes what the handler requested and clears it, so the next handler of the same step starts with no requests. For engines.
    #[inline]
    pub const fn next(&mut self) -> Effects {
        core::mem::replace(&mut self.effects, Effects { deadline: None, close: false, assured: false })
    }
}
