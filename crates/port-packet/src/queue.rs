//! Both halves of a core as a queue.

use std::time::Duration;

use packet::Nanos;
use port::{Batch, PortError, Receive, ReceiveLosses, Received, Transmit};

use crate::input::Input;
use crate::output::Output;

/// Both halves, for one core.
pub(crate) struct PacketQueue {
    pub(crate) input: Input,
    pub(crate) output: Output,
}

impl Receive for PacketQueue {
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

impl Transmit for PacketQueue {
    port::forward_transmit!(output);
}
