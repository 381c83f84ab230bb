//! Ports and their queues.

use crate::batch::Batch;
use crate::error::PortError;

/// A source and sink of packets that opens one queue for each core.
pub trait Port {
    /// Opens `cores` queues; the port decides (in hardware, or as it was told when it was made) which packet comes by which.
    ///
    /// # Errors
    /// Why it can't: [`PortError::Queues`] when it has fewer.
    fn open(&mut self, cores: usize) -> Result<Vec<Box<dyn Queue>>, PortError>;
}

/// Burst receive and transmit, for one core.
pub trait Queue: Send {
    /// Clears `batch` and fills it with the packets that have arrived, at most as many as it finds handy. Numbers
    /// ([`Packet::seq`](crate::Packet::seq)) rise from packet to packet, by one where the port has a single queue; times
    /// never fall. What lies in the batch's memory beside its packets is no matter of the caller.
    ///
    /// # Errors
    /// When the input can't be read on. Packets received before stay valid.
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError>;

    /// Sends those packets of `batch` whose fate says so, in order.
    ///
    /// # Errors
    /// When the output can't be written. What was written before stays valid.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError>;

    /// Completes the output: nothing comes after this.
    ///
    /// # Errors
    /// As [`Queue::transmit`].
    fn finish(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}

/// How a receive went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The batch holds packets.
    Packets,
    /// Nothing has arrived just now.
    Idle,
    /// Nothing will arrive any more.
    End,
}

impl<Q: Queue + ?Sized> Queue for Box<Q> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        (**self).receive(batch)
    }

    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        (**self).transmit(batch)
    }

    fn finish(&mut self) -> Result<(), PortError> {
        (**self).finish()
    }
}
