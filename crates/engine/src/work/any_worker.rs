//! A worker without its placement's type, called once for each batch.
//!
//! The worker's loop is compiled for every function under every placement. The code around it (threads, queues, links) is compiled once for
//! each function and calls the loop through this trait.

use nf::{NetworkFunction, Reason};
use packet::{Nanos, Seq};
use port::{Batch, Packet, Sides};

use crate::counters::{Counters, FlowCounters};
use crate::error::FailedPacket;
use crate::history::log::Log;
use crate::history::moves::Moves;
use crate::placement::Placement;
use crate::work::worker::Worker;

/// A [`Worker`] of any placement. The methods are those of `Worker`.
pub trait AnyWorker<N: NetworkFunction>: Send {
    /// See [`Worker::process`].
    fn process(&mut self, batch: &mut Batch);

    /// See [`Worker::process_with`].
    fn process_with(&mut self, batch: &mut Batch, log: &mut Log<'_, N::Meta>, end: Seq);

    /// See [`Worker::release`].
    fn release(&mut self, moves: &Moves<'_, N::Meta>);

    /// See [`Worker::is_ready`].
    #[must_use]
    fn is_ready(&self, moves: &Moves<'_, N::Meta>) -> bool;

    /// See [`Worker::acquire`].
    fn acquire(&mut self, moves: &Moves<'_, N::Meta>);

    /// See [`Worker::hand_over`].
    #[must_use]
    fn hand_over(&mut self, moves: &Moves<'_, N::Meta>) -> bool;

    /// Counts a packet as dropped that never reached this core, or came too late.
    fn drop_unseen(&mut self, packet: &Packet, reason: Reason);

    /// Decides the packets that are still undecided and come before the one at which the function panicked.
    fn decide_unfinished(&mut self, batch: &mut Batch);

    /// See [`Worker::fail`].
    fn fail(&mut self);

    /// The hash seed.
    fn seed(&self) -> u64;

    /// See [`Worker::counters`].
    fn counters(&self) -> Counters;

    /// The flow counters of all cores, if they share the flows.
    fn common_flow_counters(&self) -> Option<FlowCounters>;

    /// Numbers of this core's transactions that have committed, and of attempts that were aborted; `None` without transactions.
    fn commits_and_aborts(&self) -> Option<(u64, u64)>;

    /// See [`Worker::recall`].
    fn recall(&mut self);

    /// See [`Worker::face`].
    fn face(&mut self, sides: Sides);

    /// See [`Worker::tally`].
    fn tally(&self) -> &Counters;

    /// See [`Worker::age`].
    fn age(&mut self, now: Nanos, last: Seq) -> bool;

    /// See [`Worker::position`].
    fn position(&self) -> Seq;

    /// See [`Worker::next`].
    fn next(&self) -> Seq;

    /// See [`Worker::failed_packet`].
    fn failed_packet(&self, batch: &Batch) -> Option<FailedPacket>;
}

impl<N: NetworkFunction, P: Placement<N>> AnyWorker<N> for Worker<N, P> {
    fn process(&mut self, batch: &mut Batch) {
        Self::process(self, batch);
    }

    fn process_with(&mut self, batch: &mut Batch, log: &mut Log<'_, N::Meta>, end: Seq) {
        Self::process_with(self, batch, log, end);
    }

    fn release(&mut self, moves: &Moves<'_, N::Meta>) {
        Self::release(self, moves);
    }

    fn is_ready(&self, moves: &Moves<'_, N::Meta>) -> bool {
        Self::is_ready(self, moves)
    }

    fn acquire(&mut self, moves: &Moves<'_, N::Meta>) {
        Self::acquire(self, moves);
    }

    fn hand_over(&mut self, moves: &Moves<'_, N::Meta>) -> bool {
        Self::hand_over(self, moves)
    }

    fn drop_unseen(&mut self, packet: &Packet, reason: Reason) {
        Self::drop_unseen(self, packet, reason);
    }

    fn decide_unfinished(&mut self, batch: &mut Batch) {
        Self::decide_unfinished(self, batch);
    }

    fn fail(&mut self) {
        Self::fail(self);
    }

    fn seed(&self) -> u64 {
        self.place().seed()
    }

    fn counters(&self) -> Counters {
        Self::counters(self)
    }

    fn common_flow_counters(&self) -> Option<FlowCounters> {
        self.place().common_flow_counters()
    }

    fn commits_and_aborts(&self) -> Option<(u64, u64)> {
        self.place().commits_and_aborts()
    }

    fn recall(&mut self) {
        Self::recall(self);
    }

    fn face(&mut self, sides: Sides) {
        Self::face(self, sides);
    }

    fn tally(&self) -> &Counters {
        Self::tally(self)
    }

    fn age(&mut self, now: Nanos, last: Seq) -> bool {
        Self::age(self, now, last)
    }

    fn position(&self) -> Seq {
        Self::position(self)
    }

    fn next(&self) -> Seq {
        Self::next(self)
    }

    fn failed_packet(&self, batch: &Batch) -> Option<FailedPacket> {
        Self::failed_packet(self, batch)
    }
}
