//! The transmitting half as a port's, and both halves as a queue.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use packet::Nanos;
use port::{Batch, PortError, Receive, ReceiveLosses, Received, Transmit, TransmitCounts};

use crate::input::Input;
use crate::outlets::{Outlets, lock};

/// Transmits to all interfaces of one core.
pub(crate) struct Output(pub(crate) Arc<Mutex<Outlets>>);

/// How long the end of a run waits for packets to go out.
const DRAIN: Duration = Duration::from_millis(500);

impl Transmit for Output {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        lock(&self.0).transmit(batch);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let mut outlets = lock(&self.0);
        outlets.push();
        outlets.reap();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PortError> {
        lock(&self.0).drain(DRAIN);
        Ok(())
    }

    fn sent(&self) -> Option<TransmitCounts> {
        Some(lock(&self.0).counts())
    }
}

/// Both halves, for one core.
pub(crate) struct XdpQueue {
    pub(crate) input: Input,
    pub(crate) output: Output,
}

impl Receive for XdpQueue {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        self.input.receive(batch)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        self.input.wait(at_most)
    }

    fn now(&self) -> Option<Nanos> {
        self.input.now()
    }

    fn lost(&self) -> ReceiveLosses {
        self.input.lost()
    }
}

impl Transmit for XdpQueue {
    port::forward_transmit!(output);
}
