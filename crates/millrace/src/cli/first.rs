//! Limits a port to its first packets.

use std::time::Duration;

use packet::Nanos;
use port::{Batch, Opened, Port, PortError, Receive, ReceiveLosses, Received, Sides, Stream};

/// A port that ends after `packets` packets of its stream.
pub(super) struct First<'a, P> {
    pub(super) port: &'a mut P,
    pub(super) packets: u64,
}

impl<P: Port> Port for First<'_, P> {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        let left = self.packets;
        Ok(match self.port.open(cores)? {
            Opened::Stream(Stream { input, output, order }) => {
                Opened::Stream(Stream { input: Box::new(Limited { input, left }), output, order })
            }
            queues @ Opened::Queues(_) => queues,
        })
    }

    fn sides(&self) -> Sides {
        self.port.sides()
    }
}

struct Limited<'a> {
    input: Box<dyn Receive + 'a>,
    left: u64,
}

impl Receive for Limited<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        if self.left == 0 {
            batch.clear();
            return Ok(Received::End);
        }
        let received = self.input.receive(batch)?;
        batch.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= batch.len() as u64;
        Ok(received)
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
