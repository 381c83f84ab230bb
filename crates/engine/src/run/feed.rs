//! Feeds: what a core works on.

use std::time::Duration;

use nf::{NetworkFunction, PortId};
use packet::Nanos;
use port::{Batch, Fate, PortError, Queue, Receive, Received, Sides};

use crate::error::EngineError;
use crate::work::any_worker::AnyWorker;
use crate::work::emit;

/// What a core works on: where its packets come from, what its worker needs besides them, and where they go. The run's loop calls these
/// methods; a new way to run is a new feed, not a new loop.
pub trait Feed<N: NetworkFunction>: Send {
    /// Replaces the batch's packets by the core's next ones. Never waits. `Packets` may come with an empty batch, if the worker has other
    /// work to do.
    ///
    /// # Errors
    /// Errors of the port.
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, EngineError>;

    /// Lets the worker decide the packets. A panic of the function unwinds through here.
    ///
    /// # Errors
    /// If the worker can't go on.
    fn process(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError>;

    /// Sends the decided packets on.
    ///
    /// # Errors
    /// Errors of the port.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), EngineError>;

    /// Waits for input, at most `at_most`.
    ///
    /// # Errors
    /// Errors of the port.
    fn wait(&mut self, at_most: Duration) -> Result<(), EngineError>;

    /// Ages the worker's state by the port's time, if the port has a clock. `last` is the time of the last packet. Returns true if there is
    /// more to age.
    fn idle(&mut self, _worker: &mut dyn AnyWorker<N>, _last: Nanos) -> bool {
        false
    }

    /// The last time by which state aged without a packet.
    fn aged(&self) -> Option<Nanos> {
        None
    }

    /// Takes nothing more from the port. Packets taken before are still processed.
    fn close(&mut self);

    /// The worker has panicked and decides nothing more.
    fn fail(&mut self) {}

    /// The core has ended by a bug in the engine: the others must not wait for its packets.
    fn abandon(&mut self) {}

    /// Completes the work after the last packet.
    ///
    /// # Errors
    /// Errors of the port, and those of [`process`](Self::process).
    fn finish(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError>;
}

/// A feed from a queue that belongs to one core.
pub(crate) struct OwnQueue<'a> {
    queue: Box<dyn Queue + 'a>,
    closed: bool,
    /// True if the queue has no more packets.
    ended: bool,
    /// True if the output is complete.
    completed: bool,
    aged: Option<Nanos>,
}

impl<'a> OwnQueue<'a> {
    pub(crate) fn new(queue: Box<dyn Queue + 'a>) -> Self {
        Self { queue, closed: false, ended: false, completed: false, aged: None }
    }

    /// Takes packets again, if it was closed.
    pub(crate) const fn resume(&mut self) {
        self.closed = false;
    }

    /// Completes the output, once.
    pub(crate) fn complete(&mut self) -> Result<(), PortError> {
        if std::mem::replace(&mut self.completed, true) { Ok(()) } else { self.queue.finish() }
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        &*self.queue
    }
}

impl<N: NetworkFunction> Feed<N> for OwnQueue<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, EngineError> {
        if self.closed || self.ended {
            return Ok(Received::End);
        }
        let received = received(&mut *self.queue, batch)?;
        self.ended = received == Received::End;
        Ok(received)
    }

    fn process(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError> {
        worker.process(batch);
        Ok(())
    }

    fn transmit(&mut self, batch: &mut Batch) -> Result<(), EngineError> {
        Ok(self.queue.transmit(batch)?)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), EngineError> {
        self.queue.flush()?;
        match self.queue.wait(at_most) {
            Err(PortError::Down(_)) => Ok(()),
            result => Ok(result?),
        }
    }

    fn idle(&mut self, worker: &mut dyn AnyWorker<N>, last: Nanos) -> bool {
        let Some(now) = self.queue.now().map(|now| now.max(last)) else { return false };
        self.aged = Some(now);
        worker.age(now, worker.position())
    }

    fn aged(&self) -> Option<Nanos> {
        self.aged
    }

    fn close(&mut self) {
        self.closed = true;
    }

    fn finish(&mut self, _: &mut dyn AnyWorker<N>, _: &mut Batch) -> Result<(), EngineError> {
        Ok(self.complete()?)
    }
}

/// Receives from a queue. A queue that is down counts as idle.
pub(super) fn received<Q: Receive + ?Sized>(queue: &mut Q, batch: &mut Batch) -> Result<Received, EngineError> {
    match queue.receive(batch) {
        Err(PortError::Down(_)) => {
            batch.clear();
            Ok(Received::Idle)
        }
        received => Ok(received?),
    }
}

/// Replaces "across" and "back" by interface numbers, for workers that [don't know the interfaces](crate::Worker::face).
pub fn resolve(sides: Sides, batch: &mut Batch) {
    for packet in batch.packets_mut() {
        let named = |port| emit::resolve(Some(sides), PortId(port), packet);
        packet.fate = match packet.fate {
            Fate::Transmit(port) => Fate::Transmit(named(port)),
            Fate::Both(port, copy) => Fate::Both(named(port), named(copy)),
            fate @ (Fate::Pending | Fate::Drop(_)) => fate,
        };
    }
}
