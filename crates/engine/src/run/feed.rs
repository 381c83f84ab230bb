//! What a core works on.

use std::time::Duration;

use nf::{NetworkFunction, PortId};
use packet::Nanos;
use port::{Batch, Fate, PortError, Queue, Received, Sides};

use crate::error::EngineError;
use crate::work::any_worker::AnyWorker;
use crate::work::emit::out;

/// What a core works on: where its packets come from, what its worker goes by besides them, and where they go. The run's loop asks
/// for one thing after the other; each feed is a way to run, none is a loop of its own.
pub trait Feed<N: NetworkFunction>: Send {
    /// Takes in the core's next packets, in place of what the batch held. `Packets` may be none at all where the worker has something
    /// else to go by. Waits for nothing.
    ///
    /// # Errors
    /// The port's.
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, EngineError>;

    /// Has the worker decide what was taken in. A panic of the function goes through here.
    ///
    /// # Errors
    /// That the worker can't go on.
    fn process(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError>;

    /// Hands on what was decided.
    ///
    /// # Errors
    /// The port's.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), EngineError>;

    /// Waits until there may be something to take in, at most so long.
    ///
    /// # Errors
    /// The port's.
    fn wait(&mut self, at_most: Duration) -> Result<(), EngineError>;

    /// Ages the worker's state by the port's time, if the port tells one. No packet has come behind one of time `last`. `true` when there is
    /// more to age.
    fn idle(&mut self, _worker: &mut dyn AnyWorker<N>, _last: Nanos) -> bool {
        false
    }

    /// The last time by which state aged because nothing came.
    fn aged(&self) -> Option<Nanos> {
        None
    }

    /// From now on nothing more is taken from the port. What was taken is still handed out.
    fn close(&mut self);

    /// The worker has panicked: it decides nothing any more.
    fn fail(&mut self) {}

    /// The core has gone by a bug of the engine's own: nobody is to wait for what it had.
    fn abandon(&mut self) {}

    /// Nothing more comes: completes what is left.
    ///
    /// # Errors
    /// The port's, or what [`process`](Self::process) may tell.
    fn finish(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError>;
}

/// A queue of the core's own, whose packets it looks at itself.
pub(crate) struct OwnQueue<'a> {
    queue: Box<dyn Queue + 'a>,
    closed: bool,
    aged: Option<Nanos>,
}

impl<'a> OwnQueue<'a> {
    pub(crate) fn new(queue: Box<dyn Queue + 'a>) -> Self {
        Self { queue, closed: false, aged: None }
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        &*self.queue
    }
}

impl<N: NetworkFunction> Feed<N> for OwnQueue<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, EngineError> {
        if self.closed { Ok(Received::End) } else { received(&mut *self.queue, batch) }
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
        Ok(self.queue.finish()?)
    }
}

/// Receives from a queue. One that is down for now is idle.
fn received(queue: &mut dyn Queue, batch: &mut Batch) -> Result<Received, EngineError> {
    match queue.receive(batch) {
        Err(PortError::Down(_)) => {
            batch.clear();
            Ok(Received::Idle)
        }
        received => Ok(received?),
    }
}

/// Gives each packet that goes "across" or "back" the number of its interface, for who runs workers that
/// [know no sides](crate::Worker::face).
pub fn resolve(sides: Sides, batch: &mut Batch) {
    for packet in batch.packets_mut() {
        if let Fate::Transmit(port) = packet.fate {
            packet.fate = out(Some(sides), PortId(port), packet);
        }
    }
}
