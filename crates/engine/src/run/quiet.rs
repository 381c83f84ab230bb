//! Time without packets on a shared stream.

use nf::NetworkFunction;
use packet::{Nanos, Seq};

use crate::work::any_worker::AnyWorker;

/// The shortest time, by the port's clock, between two times at which state ages without packets.
const BETWEEN: Nanos = Nanos::from_millis(10);

/// The most rounds of ageing that a core does for one such time.
const ROUNDS: usize = 16;

/// A time without new packets. It travels as a piece of the stream without packets.
#[derive(Clone, Copy)]
pub(super) struct Quiet {
    /// The port's time.
    pub(super) now: Nanos,
    /// The last packet before it.
    pub(super) last: Seq,
}

impl Quiet {
    /// True if state may age at `now`, when it aged at `before` the last time.
    pub(super) fn is_due(now: Nanos, before: Option<Nanos>) -> bool {
        before.is_none_or(|before| now >= before + BETWEEN)
    }

    /// Ages a worker's state. All replicas do the same number of rounds; the next such time continues.
    pub(super) fn age<N: NetworkFunction>(self, worker: &mut dyn AnyWorker<N>) {
        (0..ROUNDS).any(|_| !worker.age(self.now, self.last));
    }
}
