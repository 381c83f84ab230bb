//! Ports, their queues, and what crosses between a port and an engine.

use std::thread;
use std::time::Duration;

use packet::Nanos;

use crate::batch::Batch;
use crate::error::PortError;

/// A source and sink of packets: a network interface, a capture, memory.
pub trait Port {
    /// Opens the port for so many cores. A port that can steer opens a queue for each; one that has a single order opens a stream,
    /// whatever the number.
    ///
    /// # Errors
    /// Why it can't: [`PortError::Queues`] when it has fewer queues.
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError>;

    /// How many sides it has.
    fn sides(&self) -> Sides {
        Sides::One
    }
}

/// How a port's interfaces lie to each other: where a packet goes that a function sends across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sides {
    /// It has one order of packets, in which they stay where they came in: a capture's packets keep their interface.
    #[default]
    One,
    /// Interfaces are pairs of two sides: 0 and 1, 2 and 3, and so on.
    Pairs,
}

impl Sides {
    /// The interface across from this one.
    #[inline]
    #[must_use]
    pub const fn across(self, interface: u16) -> u16 {
        match self {
            Self::One => interface,
            Self::Pairs => interface ^ 1,
        }
    }
}

/// What a port opens for a number of cores.
pub enum Opened<'a> {
    /// A queue for each core: the port itself, in hardware or as it was told when it was made, decides which packet comes by which.
    Queues(Vec<Box<dyn Queue + 'a>>),
    /// One stream, which cores read in turn and write in order.
    Stream(Stream<'a>),
}

/// A port with a single order of packets.
pub struct Stream<'a> {
    /// Where packets come from, numbered from 0 on without a gap.
    pub input: Box<dyn Receive + 'a>,
    /// Where they go, in the order in which they came.
    pub output: Box<dyn Transmit + 'a>,
    /// The packets that the output needs.
    pub order: Order,
}

/// The packets that the output of a shared stream needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Packets to transmit, in any order.
    Any,
    /// Packets to transmit, in input order.
    #[default]
    Sent,
    /// Packets to transmit and dropped ones, in input order.
    All,
}

/// Receives bursts of packets.
pub trait Receive: Send {
    /// Clears `batch` and fills it with the packets that have arrived, at most as many as it finds handy; waits for none. Numbers
    /// ([`Packet::seq`](crate::Packet::seq)) rise from packet to packet, by one where the port has a single queue; times
    /// never fall. What lies in the batch's memory beside its packets is no matter of the caller.
    ///
    /// # Errors
    /// When the input can't be read on, or not for now ([`PortError::Down`]). Packets received before stay valid.
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError>;

    /// Waits until something may have arrived, at most so long. It may return earlier, as when a signal comes.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        thread::sleep(at_most.min(SHORT_WAIT));
        Ok(())
    }

    /// The port's time, where it has one that goes on when no packet comes. Asked when nothing has arrived: whatever
    /// [`receive`](Self::receive) brings later is stamped no earlier.
    fn now(&self) -> Option<Nanos> {
        None
    }

    /// Packets that never reached the queue.
    fn lost(&self) -> ReceiveLosses {
        ReceiveLosses::default()
    }
}

/// Transmits bursts of packets, and takes back those that don't go out.
pub trait Transmit: Send {
    /// Takes back all packets of `batch`: sends those whose fate says so, in order, and reuses the memory of all that it lent. The
    /// port that a packet [goes out by](crate::Fate::Transmit) is one of the port's own numbers. Of a stream that several cores share
    /// only those come here that it [wants](Order), and packets may have been copied; [buffers](Batch::lend_buffers) come back to who lent them
    /// when no core needs them any more, whatever became of their packets.
    ///
    /// # Errors
    /// When the output can't be written. What was written before stays valid.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError>;

    /// Lets go of what was gathered to be sent together: nothing more may come for long.
    ///
    /// # Errors
    /// As [`Transmit::transmit`].
    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Completes the output: nothing comes after this.
    ///
    /// # Errors
    /// As [`Transmit::transmit`].
    fn finish(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// What became of the packets that were to go out; `None` where nobody counts.
    fn sent(&self) -> Option<TransmitCounts> {
        None
    }
}

/// Burst receive and transmit, for one core.
pub trait Queue: Receive + Transmit {}

impl<Q: Receive + Transmit + ?Sized> Queue for Q {}

/// How long a queue sleeps that can't wait for packets themselves.
const SHORT_WAIT: Duration = Duration::from_micros(200);

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

/// Packets that a port lost ahead of its queue, by where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveLosses {
    /// The receive ring was full.
    pub ring_full: u64,
    /// They came where no queue was open.
    pub unclaimed: u64,
}

/// What became of the packets that were to go out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitCounts {
    /// They went out.
    pub sent: u64,
    /// They found the transmit ring full, or no way out.
    pub lost: u64,
}

impl ReceiveLosses {
    /// Adds another queue's.
    pub const fn add(&mut self, other: &Self) {
        self.ring_full += other.ring_full;
        self.unclaimed += other.unclaimed;
    }
}

impl TransmitCounts {
    /// Adds another queue's.
    pub const fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.lost += other.lost;
    }
}

/// A stream as a queue, for one core.
impl Receive for Stream<'_> {
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

impl Transmit for Stream<'_> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        self.output.transmit(batch)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.output.flush()
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.output.finish()
    }

    fn sent(&self) -> Option<TransmitCounts> {
        self.output.sent()
    }
}

impl<Q: Receive + ?Sized> Receive for Box<Q> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        (**self).receive(batch)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        (**self).wait(at_most)
    }

    fn now(&self) -> Option<Nanos> {
        (**self).now()
    }

    fn lost(&self) -> ReceiveLosses {
        (**self).lost()
    }
}

impl<Q: Transmit + ?Sized> Transmit for Box<Q> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        (**self).transmit(batch)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        (**self).flush()
    }

    fn finish(&mut self) -> Result<(), PortError> {
        (**self).finish()
    }

    fn sent(&self) -> Option<TransmitCounts> {
        (**self).sent()
    }
}

/// Forwards the receiving half of a queue that wraps another, but for `receive`.
#[macro_export]
macro_rules! forward_receive {
    ($inner:ident) => {
        fn wait(&mut self, at_most: ::std::time::Duration) -> Result<(), $crate::PortError> {
            self.$inner.wait(at_most)
        }

        fn now(&self) -> Option<::packet::Nanos> {
            self.$inner.now()
        }

        fn lost(&self) -> $crate::ReceiveLosses {
            self.$inner.lost()
        }
    };
}

/// Forwards the transmitting half of a queue that wraps another.
#[macro_export]
macro_rules! forward_transmit {
    ($inner:ident) => {
        fn transmit(&mut self, batch: &mut $crate::Batch) -> Result<(), $crate::PortError> {
            self.$inner.transmit(batch)
        }

        fn flush(&mut self) -> Result<(), $crate::PortError> {
            self.$inner.flush()
        }

        fn finish(&mut self) -> Result<(), $crate::PortError> {
            self.$inner.finish()
        }

        fn sent(&self) -> Option<$crate::TransmitCounts> {
            self.$inner.sent()
        }
    };
}
