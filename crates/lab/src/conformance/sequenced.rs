//! A port over a trace with a sequencer: each core has a queue of its own, which gets every so-manieth packet, and the history of all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use packet::Seq;
use port::{
    Batch, HEAD_BYTES, History, Mark, Opened, Packet, Past, Port, PortError, Receive, Received, Sequenced, Sides,
    Trace, Transmit,
};
use synth::Rng;

use super::{Observation, SIDES, at, fill_from, observe};

/// The port. It notes what becomes of each packet.
pub(super) struct SequencedTrace<'a> {
    trace: &'a Trace,
    packets: Mutex<Vec<Option<Observation>>>,
}

/// True if the history has the headers of all packets. To replicas, longer ones are malformed.
pub(super) fn has_all_headers(trace: &Trace) -> bool {
    (0..trace.len()).all(|index| {
        let (packet, bytes) = at(trace, index);
        let parse = |bytes| packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
        bytes.len() <= HEAD_BYTES || parse(&bytes[..HEAD_BYTES]).is_ok() == parse(bytes).is_ok()
    })
}

impl<'a> SequencedTrace<'a> {
    pub(super) fn new(trace: &'a Trace, len: usize) -> Self {
        Self { trace, packets: Mutex::new(vec![None; len]) }
    }

    /// Returns the outcome of each packet.
    pub(super) fn observed(self) -> Vec<Option<Observation>> {
        self.packets.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> usize {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Port for SequencedTrace<'_> {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        let len = self.len();
        let (trace, packets) = (self.trace, &self.packets);
        let core = |core: usize| {
            let known = Arc::new(AtomicU64::new(0));
            let random = Rng::new(core as u64);
            let queue = Own { trace, packets, len, next: core, cores, random, known: Arc::clone(&known) };
            Sequenced { queue: Box::new(queue), history: Box::new(HistoryView { trace, next: 0, known }) }
        };
        Ok(Opened::Sequenced((0..cores).map(core).collect()))
    }

    fn sides(&self) -> Sides {
        SIDES
    }
}

/// The queue of one core.
struct Own<'a> {
    trace: &'a Trace,
    packets: &'a Mutex<Vec<Option<Observation>>>,
    len: usize,
    next: usize,
    cores: usize,
    random: Rng,
    /// The packet before which all of this core's have come.
    known: Arc<AtomicU64>,
}

impl Receive for Own<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let burst = 1 + self.random.below(100) as usize;
        let numbers = (self.next..self.len).step_by(self.cores).take(burst);
        fill_from(batch, self.trace, numbers.clone());
        self.next += numbers.len() * self.cores;
        let known = self.next.min(self.len) as u64;
        // ORDERING: Relaxed. The core's history is read by the same thread.
        let before = self.known.swap(known, Ordering::Relaxed);
        Ok(match batch.is_empty() {
            false => Received::Packets,
            // A core without packets has the history, too.
            true if before < known => Received::Idle,
            true => Received::End,
        })
    }
}

impl Transmit for Own<'_> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        observe(batch, self.trace, &mut self.packets.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

/// The history, as one core reads it.
struct HistoryView<'a> {
    trace: &'a Trace,
    next: u64,
    known: Arc<AtomicU64>,
}

impl History for HistoryView<'_> {
    fn has_more(&self) -> bool {
        // ORDERING: Relaxed. As in `Own`.
        self.next < self.known.load(Ordering::Relaxed)
    }

    fn read(&mut self, take: &mut dyn FnMut(&Packet, &[u8])) -> Past {
        while self.has_more() {
            let (packet, bytes) = at(self.trace, self.next as usize);
            let head = &bytes[..bytes.len().min(HEAD_BYTES)];
            take(&Packet { seq: Seq(self.next), len: head.len() as u32, ..*packet }, head);
            self.next += 1;
        }
        Past { end: Seq(self.next), mark: None }
    }

    fn mark(&mut self, _: Mark) {}
}
