//! Ports, their queues, and the types that pass between a port and an engine.

use std::thread;
use std::time::Duration;

use packet::{Nanos, Seq};

use crate::batch::{Batch, Packet};
use crate::card::Card;
use crate::error::PortError;

/// A source and sink of packets: a network interface, a capture, or memory.
pub trait Port {
    /// Opens the port for `cores` cores. A port that can steer opens a queue for each core. A port with a single order of packets opens a
    /// stream, whatever the number.
    ///
    /// # Errors
    /// The port can't be opened; [`PortError::Queues`] if it has too few queues.
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError>;

    /// How its interfaces are paired.
    fn sides(&self) -> Sides {
        Sides::One
    }
}

impl<P: Port + ?Sized> Port for &mut P {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        (**self).open(cores)
    }

    fn sides(&self) -> Sides {
        (**self).sides()
    }
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        (**self).open(cores)
    }

    fn sides(&self) -> Sides {
        (**self).sides()
    }
}

/// How the interfaces of a port are paired: the output of a packet that a function sends across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sides {
    /// No pairs: a packet stays at its interface, as in a capture.
    #[default]
    One,
    /// Pairs of interfaces: 0 and 1, 2 and 3, and so on.
    Pairs,
}

impl Sides {
    /// The sides of a port of so many interfaces: pairs if each has another one.
    #[must_use]
    pub const fn of(interfaces: usize) -> Self {
        if interfaces.is_multiple_of(2) { Self::Pairs } else { Self::One }
    }

    /// The interface on the other side.
    #[inline]
    #[must_use]
    pub const fn across(self, interface: u16) -> u16 {
        match self {
            Self::One => interface,
            Self::Pairs => interface ^ 1,
        }
    }
}

/// Result of opening a port.
pub enum Opened<'a> {
    /// A queue for each core. The port decides which packet comes through which queue, in hardware or by its configuration.
    Queues(Vec<Box<dyn Queue + 'a>>),
    /// One stream, which cores read in turn and write in order.
    Stream(Stream<'a>),
    /// A queue for each core behind a sequencer, which hands packets to cores in turn, and the history that it keeps for all cores.
    Sequenced(Vec<Sequenced<'a>>),
}

/// A core's queue behind a sequencer, and the core's view of the history.
pub struct Sequenced<'a> {
    /// Packets of this core, with the sequencer's numbers. A packet may be missing: it was lost behind the sequencer.
    pub queue: Box<dyn Queue + 'a>,
    /// What the sequencer tells of all packets.
    pub history: Box<dyn History + 'a>,
}

/// Bytes of a packet that a [`History`] has, at most: enough for the headers.
pub const HEAD_BYTES: usize = 224;

/// What a sequencer tells every core of the packets of all cores: the first [bytes](HEAD_BYTES) of each, in the order of their numbers.
///
/// The queue and the history of a core go together: what the queue has received last is what the history reads up to.
pub trait History: Send {
    /// True if there is something to read.
    fn has_more(&self) -> bool;

    /// Calls `take` for each packet that was not read yet, in the order of numbers. It reads at least up to the last packet that the core's
    /// queue has received. It never reads past a mark, or past a packet that the queue may still give.
    fn read(&mut self, take: &mut dyn FnMut(&Packet, &[u8])) -> Past;

    /// Puts a mark behind the packets so far. A [`Mark::Stop`] is put once, even if several cores ask for it, until all cores have come to
    /// it. A [`Mark::Quiet`] is left out where there is no room for it.
    fn mark(&mut self, mark: Mark);
}

/// How far a core has read in a [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// The number after the last packet.
    pub end: Seq,
    /// The mark that comes next, at the same place for all cores.
    pub mark: Option<Mark>,
}

/// A place between two packets of a [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// No packet had come for a while at this time.
    Quiet(Nanos),
    /// All cores stop here.
    Stop,
}

impl<'a> Opened<'a> {
    /// Opens the halves of each core as its queue; those of the only core as a stream that all share, if `single`.
    ///
    /// # Panics
    /// `single`, and there are not the halves of one core.
    pub fn from_halves<I: Receive + 'a, O: Transmit + 'a>(mut halves: Vec<Halves<I, O>>, single: bool) -> Self {
        if !single {
            return Self::Queues(halves.into_iter().map(|queue| Box::new(queue) as Box<dyn Queue>).collect());
        }
        assert_eq!(halves.len(), 1, "a stream has one input and one output");
        let Halves { input, output } = halves.remove(0);
        Self::Stream(Stream { input: Box::new(input), output: Box::new(output), order: Order::Sent })
    }
}

/// The receiving and the transmitting half of a core's queue, as one.
#[derive(Debug)]
pub struct Halves<I, O> {
    /// Receives.
    pub input: I,
    /// Transmits.
    pub output: O,
}

/// An input and an output with a single order of packets.
pub struct Stream<'a> {
    /// Packet source; packets are numbered from 0 without gaps.
    pub input: Box<dyn Receive + 'a>,
    /// Packet sink; packets arrive in input order.
    pub output: Box<dyn Transmit + 'a>,
    /// Packets that the output needs, and in which order.
    pub order: Order,
}

/// Packets that the output of a shared stream needs, and in which order.
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
    /// Clears `batch` and fills it with packets that have arrived; never waits. Packet numbers ([`Packet::seq`](crate::Packet::seq)) rise
    /// from packet to packet, by one if the port has a single queue. Times never fall. The batch's memory outside packets may hold
    /// anything.
    ///
    /// # Errors
    /// The input can't be read further, or not for now ([`PortError::Down`]). Packets received before stay valid.
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError>;

    /// Waits until packets may have arrived, for at most `at_most`. It may return earlier, for example because of a signal.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        thread::sleep(at_most.min(SHORT_WAIT));
        Ok(())
    }

    /// The port's time, if it has a clock that advances without packets. Called when nothing has arrived: later packets never have an
    /// earlier time.
    fn now(&self) -> Option<Nanos> {
        None
    }

    /// Packets lost before the queue.
    fn lost(&self) -> ReceiveLosses {
        ReceiveLosses::default()
    }

    /// Gives away the work that this queue does on packets after it has received them, for another core. From then on the queue hands on
    /// packets as they arrive, and the caller applies the work to each batch, in order. `None` if there is no such work.
    fn take_work(&mut self) -> Option<Work> {
        None
    }

    /// Gives away the cards that take packets ahead of this queue: one for each of `cores` cores, which share its packets. `None` if there is
    /// nothing ahead of the queue that can take packets.
    fn take_cards(&mut self, _cores: usize) -> Option<Vec<Box<dyn Card>>> {
        None
    }
}

/// Work on received packets that a core other than the receiving one may do. It may take packets out of the batch, even all of them.
pub type Work = Box<dyn FnMut(&mut Batch) + Send>;

/// Transmits bursts of packets, and takes back the memory of dropped ones.
pub trait Transmit: Send {
    /// Takes back all packets of `batch`: sends those with fate [`Transmit`](crate::Fate::Transmit), in order, those with fate
    /// [`Both`](crate::Fate::Both) twice in a row, and reuses all lent memory. The number in that fate is one of the port's own. If several cores share a stream, only the packets that its
    /// [order](Order) needs come here, and they may be copies; [buffers](Batch::lend_buffers) return to their owner when no core needs
    /// them any more.
    ///
    /// # Errors
    /// The output can't be written. Packets written before stay valid.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError>;

    /// Sends packets that were gathered, because no more may come for a while.
    ///
    /// # Errors
    /// As [`Transmit::transmit`].
    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Completes the output; no packets come after this.
    ///
    /// # Errors
    /// As [`Transmit::transmit`].
    fn finish(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Counts of transmitted packets; `None` if the queue doesn't count.
    fn sent(&self) -> Option<TransmitCounts> {
        None
    }
}

/// Burst receive and transmit, for one core.
pub trait Queue: Receive + Transmit {}

impl<Q: Receive + Transmit + ?Sized> Queue for Q {}

/// Sleep time of a queue that can't wait for packets.
const SHORT_WAIT: Duration = Duration::from_micros(200);

/// Result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The batch has packets.
    Packets,
    /// No packets have arrived.
    Idle,
    /// No more packets will arrive.
    End,
}

/// Packets that a port lost before its queue, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveLosses {
    /// The receive ring was full.
    pub ring_full: u64,
    /// They arrived where no queue was open.
    pub unclaimed: u64,
    /// A sequencer could not number them.
    pub unsequenced: u64,
}

/// Counts of transmitted packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitCounts {
    /// Packets sent.
    pub sent: u64,
    /// Packets lost because the transmit ring was full or there was no output.
    pub lost: u64,
}

impl ReceiveLosses {
    /// Adds another queue's.
    pub const fn add(&mut self, other: &Self) {
        self.ring_full += other.ring_full;
        self.unclaimed += other.unclaimed;
        self.unsequenced += other.unsequenced;
    }
}

impl TransmitCounts {
    /// Adds another queue's.
    pub const fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.lost += other.lost;
    }
}

impl<I: Receive, O: Send> Receive for Halves<I, O> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        self.input.receive(batch)
    }

    crate::forward_receive!(input);

    fn take_work(&mut self) -> Option<Work> {
        self.input.take_work()
    }
}

impl<I: Send, O: Transmit> Transmit for Halves<I, O> {
    crate::forward_transmit!(output);
}

/// A stream is also a queue, for one core.
impl Receive for Stream<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        self.input.receive(batch)
    }

    crate::forward_receive!(input);
}

impl Transmit for Stream<'_> {
    crate::forward_transmit!(output);
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

    fn take_work(&mut self) -> Option<Work> {
        (**self).take_work()
    }

    fn take_cards(&mut self, cores: usize) -> Option<Vec<Box<dyn Card>>> {
        (**self).take_cards(cores)
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

        fn take_cards(&mut self, cores: usize) -> Option<Vec<Box<dyn $crate::Card>>> {
            self.$inner.take_cards(cores)
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

        $crate::forward_sending!($inner);
    };
}

/// Forwards the transmitting half of a queue that wraps another, but for `transmit`.
#[macro_export]
macro_rules! forward_sending {
    ($inner:ident) => {
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
