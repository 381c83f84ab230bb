//! Packets in memory: a [`Trace`], and queues that deliver one and keep the packets sent.

use std::sync::{Arc, Mutex, PoisonError};

use packet::{Nanos, Seq};

use crate::batch::{Batch, Packet};
use crate::error::PortError;
use crate::pcap::Reader;
use crate::queue::{Opened, Order, Port, Queue, Receive, Received, Stream, Transmit};

/// A capture in memory: packets in arrival order, with their bytes stored back to back.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    packets: Vec<Packet>,
    bytes: Vec<u8>,
}

impl Trace {
    /// An empty trace.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the rest of a capture: at most `packets_max` packets and at most 4 GiB.
    ///
    /// # Errors
    /// The capture can't be read to its end; [`PortError::TraceTooLarge`].
    pub fn load(reader: &mut Reader, packets_max: usize) -> Result<Self, PortError> {
        let mut trace = Self::new();
        trace.fill(reader, packets_max).map(|()| trace)
    }

    /// Reads more packets until there are `packets_max`, as [`load`](Self::load) does. Packets read before an error are kept.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn fill(&mut self, reader: &mut Reader, packets_max: usize) -> Result<(), PortError> {
        let mut batch = Batch::default();
        while self.len() < packets_max && reader.read(&mut batch)? != Received::End {
            let room = packets_max - self.len();
            for (index, packet) in batch.packets().iter().enumerate().take(room) {
                if self.bytes.len() + packet.len as usize > BYTES_MAX {
                    return Err(PortError::TraceTooLarge { path: reader.path().to_owned(), packets: self.len() });
                }
                self.push(*packet, batch.bytes(index));
            }
        }
        Ok(())
    }

    /// Adds a packet and copies its bytes; sets `packet.offset` and `packet.len`.
    ///
    /// # Panics
    /// The trace would exceed 4 GiB.
    pub fn push(&mut self, packet: Packet, bytes: &[u8]) {
        let offset = u32::try_from(self.bytes.len()).expect("a trace is below 4 GiB");
        self.bytes.extend_from_slice(bytes);
        self.packets.push(Packet { offset, len: bytes.len() as u32, ..packet });
    }

    /// Number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The packets' descriptors; offsets count in the trace.
    #[must_use]
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// The bytes of packet number `index`.
    ///
    /// # Panics
    /// When there is no such packet.
    #[must_use]
    pub fn bytes(&self, index: usize) -> &[u8] {
        let packet = &self.packets[index];
        &self.bytes[packet.offset as usize..][..packet.len as usize]
    }

    /// Each packet with its bytes, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Packet, &[u8])> {
        self.packets.iter().enumerate().map(|(index, packet)| (packet, self.bytes(index)))
    }

    /// The first `len` packets, or all if there are fewer.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        self.iter().take(len).collect()
    }

    /// The packets for which `keep` returns true, given index and descriptor. They keep their numbers.
    #[must_use]
    pub fn select(&self, mut keep: impl FnMut(usize, &Packet) -> bool) -> Self {
        self.iter().enumerate().filter(|(index, (packet, _))| keep(*index, packet)).map(|(_, pair)| pair).collect()
    }

    /// Numbers the packets from 0.
    #[must_use]
    pub fn renumbered(mut self) -> Self {
        for (number, packet) in self.packets.iter_mut().enumerate() {
            packet.seq = Seq(number as u64);
        }
        self
    }

    /// Time from the first packet to the last.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        match (self.packets.first(), self.packets.last()) {
            (Some(first), Some(last)) => last.time.since(first.time),
            _ => Nanos(0),
        }
    }
}

/// Offsets count in 32 bits.
const BYTES_MAX: usize = u32::MAX as usize;

impl<'a> FromIterator<(&'a Packet, &'a [u8])> for Trace {
    fn from_iter<I: IntoIterator<Item = (&'a Packet, &'a [u8])>>(pairs: I) -> Self {
        let mut trace = Self::new();
        pairs.into_iter().for_each(|(packet, bytes)| trace.push(*packet, bytes));
        trace
    }
}

/// A packet that was sent, kept by a [`MemoryQueue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number.
    pub seq: Seq,
    /// Arrival time.
    pub time: Nanos,
    /// Output port.
    pub port: u16,
    /// Length on the wire, in bytes.
    pub wire_len: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Packets sent by queues; readable while the queues are in use elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Outbox(Arc<Mutex<Vec<Sent>>>);

impl Outbox {
    /// Removes and returns the packets sent so far, in order of sending.
    #[must_use]
    pub fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, batch: &Batch) {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, packet) in batch.packets().iter().enumerate() {
            for port in packet.fate.ports() {
                let Packet { seq, time, wire_len, .. } = *packet;
                sent.push(Sent { seq, time, port, wire_len, bytes: batch.bytes(index).to_vec() });
            }
        }
    }
}

/// A queue that delivers a trace once, in bursts, and keeps the packets sent.
#[derive(Clone, Debug)]
pub struct MemoryQueue {
    trace: Arc<Trace>,
    next: usize,
    burst: usize,
    outbox: Outbox,
}

impl MemoryQueue {
    /// Delivers `trace`, `burst` packets at a time.
    ///
    /// # Panics
    /// `burst` is 0.
    #[must_use]
    pub fn new(trace: Arc<Trace>, burst: usize) -> Self {
        assert!(burst > 0, "a burst has packets");
        Self { trace, next: 0, burst, outbox: Outbox::default() }
    }

    /// The packets sent.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        self.outbox.clone()
    }
}

impl Receive for MemoryQueue {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        batch.clear();
        let end = self.trace.len().min(self.next + self.burst);
        for index in self.next..end {
            batch.push(self.trace.packets[index], self.trace.bytes(index));
        }
        self.next = end;
        Ok(if batch.is_empty() { Received::End } else { Received::Packets })
    }
}

impl Transmit for MemoryQueue {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        self.outbox.put(batch);
        Ok(())
    }
}

/// As a port it opens one stream, starting at the current position of the queue.
impl Port for MemoryQueue {
    fn open(&mut self, _cores: usize) -> Result<Opened<'_>, PortError> {
        let (input, output) = (Box::new(self.clone()), Box::new(self.clone()));
        Ok(Opened::Stream(Stream { input, output, order: Order::Sent }))
    }
}

/// A port of memory queues. Each packet of a trace is delivered by one of them.
#[derive(Clone, Debug)]
pub struct MemoryPort {
    trace: Arc<Trace>,
    cores: Option<Vec<u16>>,
    burst: usize,
    outbox: Outbox,
}

impl MemoryPort {
    /// Delivers `trace`, `burst` packets at a time; with several queues round robin, packet by packet.
    ///
    /// # Panics
    /// `burst` is 0.
    #[must_use]
    pub fn new(trace: Arc<Trace>, burst: usize) -> Self {
        assert!(burst > 0, "a burst has packets");
        Self { trace, cores: None, burst, outbox: Outbox::default() }
    }

    /// Assigns each packet to a queue.
    ///
    /// # Panics
    /// The length of `cores` differs from the number of packets.
    #[must_use]
    pub fn steered(mut self, cores: Vec<u16>) -> Self {
        assert_eq!(cores.len(), self.trace.len(), "a queue for each packet");
        self.cores = Some(cores);
        self
    }

    /// The packets sent by all queues.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        self.outbox.clone()
    }
}

impl MemoryPort {
    /// Opens a queue for each core.
    #[must_use]
    pub fn queues(&mut self, cores: usize) -> Vec<Box<dyn Queue>> {
        let queue = |core: usize| {
            let comes = |index: usize| {
                self.cores.as_ref().map_or(index % cores, |assigned| usize::from(assigned[index])) == core
            };
            let trace = Arc::new(self.trace.select(|index, _| comes(index)));
            let queue = MemoryQueue { trace, next: 0, burst: self.burst, outbox: self.outbox.clone() };
            Box::new(queue) as Box<dyn Queue>
        };
        (0..cores).map(queue).collect()
    }
}

impl Port for MemoryPort {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        Ok(Opened::Queues(self.queues(cores)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Fate;
    use packet::LinkType;

    fn trace(len: u64) -> Trace {
        let mut trace = Trace::new();
        for number in 0..len {
            let (seq, time, fate) = (Seq(number), Nanos(number * 10), Fate::Pending);
            let packet = Packet {
                seq,
                time,
                offset: 0,
                len: 0,
                wire_len: 100,
                interface: 0,
                link: LinkType::Ethernet,
                bucket: 0,
                fate,
            };
            trace.push(packet, &vec![number as u8; number as usize]);
        }
        trace
    }

    #[test]
    fn parts_of_a_trace() {
        let trace = trace(10);
        assert_eq!(trace.duration(), Nanos(90));
        let prefix = trace.prefix(4);
        assert_eq!((prefix.len(), prefix.bytes(3)), (4, &[3u8; 3][..]));
        let odd = trace.select(|index, _| index % 2 == 1);
        assert_eq!(odd.iter().map(|(packet, _)| packet.seq.0).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
        assert_eq!(odd.bytes(4), [9; 9]);
        assert_eq!(odd.renumbered().packets()[4].seq, Seq(4));
        assert_eq!(trace.prefix(100).len(), 10);
    }

    #[test]
    fn bursts_out_and_what_is_sent_back() {
        let mut queue = MemoryQueue::new(Arc::new(trace(10)), 4);
        let outbox = queue.outbox();
        let mut batch = Batch::default();
        let mut bursts = Vec::new();
        while queue.receive(&mut batch).expect("memory is there") == Received::Packets {
            bursts.push(batch.len());
            batch.packets_mut()[1].fate = Fate::Transmit(7);
            batch.bytes_mut(1)[0] = 0xff;
            queue.transmit(&mut batch).expect("memory is there");
        }
        assert_eq!(bursts, [4, 4, 2]);
        let sent: Vec<_> = outbox.take().into_iter().map(|sent| (sent.seq.0, sent.port, sent.bytes[0])).collect();
        assert_eq!(sent, [(1, 7, 0xff), (5, 7, 0xff), (9, 7, 0xff)]);
        assert!(outbox.take().is_empty());
    }

    #[test]
    fn a_port_spreads_packets() {
        let mut port = MemoryPort::new(Arc::new(trace(6)), 32).steered(vec![0, 2, 0, 0, 2, 0]);
        let mut batch = Batch::default();
        let of = |queue: &mut Box<dyn Queue>, batch: &mut Batch| {
            queue.receive(batch).expect("memory is there");
            batch.packets().iter().map(|packet| packet.seq.0).collect::<Vec<_>>()
        };
        let queues = port.queues(3);
        let seqs: Vec<_> = queues.into_iter().map(|mut queue| of(&mut queue, &mut batch)).collect();
        assert_eq!(seqs, [vec![0, 2, 3, 5], vec![], vec![1, 4]]);
    }
}
