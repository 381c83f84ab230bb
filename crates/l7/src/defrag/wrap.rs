//! Ports whose fragments are gathered: [`Defragmented`].

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use packet::{Nanos, Seq};
use port::{
    Batch, Opened, Packet, Port, PortError, Queue, Receive, ReceiveLosses, Received, Sides, Stream, Transmit,
    TransmitCounts, Work,
};

use super::{Counts, Defragmenter, Limits, Policy, Taken, cut};

/// A port that hands on whole datagrams in place of fragments, and cuts them again when they leave.
///
/// Packets that a queue hands on are numbered without gaps, if it is the only one: each number is lower by the number of packets that were
/// held back before. On transmit packets have the port's own numbers again. Several queues keep their numbers, and each gathers by itself:
/// all fragments of a datagram must come by the same one.
#[derive(Debug)]
pub struct Defragmented<P> {
    inner: P,
    policy: Policy,
    limits: Limits,
    totals: Totals,
}

/// Counts of all queues of a port, which can be read while they are in use and afterwards.
#[derive(Clone, Debug, Default)]
pub struct Totals(Arc<Mutex<Counts>>);

impl Totals {
    /// The counts so far. Queues add theirs when they hand on packets, and at the end of the input.
    #[must_use]
    pub fn get(&self) -> Counts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<P: Port> Defragmented<P> {
    /// Gathers fragments in front of `inner`.
    #[must_use]
    pub fn new(inner: P, policy: Policy, limits: Limits) -> Self {
        Self { inner, policy, limits, totals: Totals::default() }
    }

    /// The port inside.
    #[must_use]
    pub const fn inner(&self) -> &P {
        &self.inner
    }

    /// The counts of all queues.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals.clone()
    }
}

impl<P: Port> Port for Defragmented<P> {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        let Self { inner, policy, limits, totals } = self;
        let store = || Defragmenter::new(*policy, *limits);
        Ok(match inner.open(cores)? {
            Opened::Stream(Stream { input, output, order }) => Opened::Stream(Stream {
                input: Box::new(Gathering::new(input, store(), true, totals.clone())),
                output: Box::new(Cutting::new(output)),
                order,
            }),
            Opened::Queues(queues) => {
                let is_only = queues.len() == 1;
                let queue = |queue| {
                    let store = store();
                    Box::new(DefragmentedQueue {
                        gathering: Gathering::new(queue, store, is_only, totals.clone()),
                        cutting: Cutter::default(),
                    }) as Box<dyn Queue>
                };
                Opened::Queues(queues.into_iter().map(queue).collect())
            }
            Opened::Sequenced(_) => {
                let text = "a sequencer has numbered the fragments already, so that they can't be put together ahead of the engine";
                return Err(PortError::Unfit(text.into()));
            }
        })
    }

    fn sides(&self) -> Sides {
        self.inner.sides()
    }
}

/// A queue that hands on whole datagrams in place of fragments, and cuts them again when they leave.
#[derive(Debug)]
pub struct DefragmentedQueue<Q> {
    gathering: Gathering<Q>,
    cutting: Cutter,
}

impl<Q: Queue> DefragmentedQueue<Q> {
    /// Gathers fragments in front of `inner`, which is the only queue of its port.
    #[must_use]
    pub fn new(inner: Q, policy: Policy, limits: Limits) -> Self {
        let store = Defragmenter::new(policy, limits);
        Self { gathering: Gathering::new(inner, store, true, Totals::default()), cutting: Cutter::default() }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.gathering.totals.get()
    }
}

impl<Q: Queue> Receive for DefragmentedQueue<Q> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        self.gathering.receive(batch)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        self.gathering.wait(at_most)
    }

    fn now(&self) -> Option<Nanos> {
        self.gathering.now()
    }

    fn lost(&self) -> ReceiveLosses {
        self.gathering.lost()
    }
}

impl<Q: Queue> Transmit for DefragmentedQueue<Q> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        self.cutting.transmit(&mut self.gathering.inner, batch)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.gathering.inner.flush()
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.gathering.inner.finish()
    }

    fn sent(&self) -> Option<TransmitCounts> {
        self.gathering.inner.sent().map(|sent| self.cutting.packets(sent))
    }
}

/// The receiving half.
#[derive(Debug)]
struct Gathering<R> {
    inner: R,
    /// `None` once another core does it.
    gatherer: Option<Gatherer>,
    totals: Totals,
}

impl<R: Receive> Gathering<R> {
    fn new(inner: R, store: Defragmenter, renumbers: bool, totals: Totals) -> Self {
        let (told, holes) = (Counts::default(), Vec::new());
        let gatherer = Gatherer { store, totals: totals.clone(), told, renumbers, held: 0, holes };
        Self { inner, gatherer: Some(gatherer), totals }
    }
}

impl<R: Receive> Receive for Gathering<R> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        loop {
            match (self.inner.receive(batch)?, &mut self.gatherer) {
                (Received::Packets, Some(gatherer)) => gatherer.gather(batch),
                (Received::Packets, None) => return Ok(Received::Packets),
                (Received::Idle, _) => return Ok(Received::Idle),
                (Received::End, gatherer) => {
                    gatherer.iter_mut().for_each(Gatherer::end);
                    return Ok(Received::End);
                }
            }
            // All packets of a burst may be held back.
            if !batch.is_empty() {
                return Ok(Received::Packets);
            }
        }
    }

    port::forward_receive!(inner);

    /// Gathering.
    fn take_work(&mut self) -> Option<Work> {
        let mut gatherer = self.gatherer.take()?;
        Some(Box::new(move |batch| gatherer.gather(batch)))
    }
}

/// The work of gathering, without a port: packets are numbered without gaps.
#[must_use]
pub fn gathering(policy: Policy, limits: Limits) -> Work {
    let (store, totals, told) = (Defragmenter::new(policy, limits), Totals::default(), Counts::default());
    let mut gatherer = Gatherer { store, totals, told, renumbers: true, held: 0, holes: Vec::new() };
    Box::new(move |batch| gatherer.gather(batch))
}

/// Gathers the fragments of batches that come in order.
#[derive(Debug)]
struct Gatherer {
    store: Defragmenter,
    totals: Totals,
    /// What of the store's counts is in `totals`.
    told: Counts,
    /// True if packets are to be numbered without gaps.
    renumbers: bool,
    /// Packets held back so far.
    held: u64,
    /// The packets of a batch that are held back, by index.
    holes: Vec<usize>,
}

impl Gatherer {
    /// Replaces fragments by the datagrams that they complete, and takes the others out of the batch.
    fn gather(&mut self, batch: &mut Batch) {
        batch.gathered_mut().clear();
        let Some(first) = batch.packets().first().map(|packet| packet.seq.0) else { return };
        self.holes.clear();
        if self.renumbers && self.held > 0 {
            batch.gathered_mut().lower(Seq(first - self.held), self.held);
        }
        for index in 0..batch.len() {
            let (packet, bytes) = batch.packet(index);
            let seq = packet.seq.0;
            match self.store.take(packet, bytes) {
                Taken::Whole => {}
                Taken::Held(_) => {
                    self.held += 1;
                    self.holes.push(index);
                    if self.renumbers {
                        // The packet behind it has this number.
                        batch.gathered_mut().lower(Seq(seq + 1 - self.held), self.held);
                    }
                    continue;
                }
                Taken::Gathered(frame, words) => {
                    batch.replace(index, frame);
                    batch.gathered_mut().push(Seq(if self.renumbers { seq - self.held } else { seq }), words);
                }
            }
            if self.renumbers && self.held > 0 {
                batch.packets_mut()[index].seq = Seq(seq - self.held);
            }
        }
        if !self.holes.is_empty() {
            let (mut index, mut holes) = (0, self.holes.iter().copied().peekable());
            batch.retain(|_| {
                index += 1;
                holes.next_if_eq(&(index - 1)).is_none()
            });
        }
        self.tell();
    }
}

impl Gatherer {
    /// Adds what is new to the counts of all queues.
    fn tell(&mut self) {
        let counts = *self.store.counts();
        if counts == self.told {
            return;
        }
        self.totals.change(|totals| {
            totals.fragments += counts.fragments - self.told.fragments;
            totals.gathered += counts.gathered - self.told.gathered;
            totals.datagrams += counts.datagrams - self.told.datagrams;
            for (total, (now, told)) in totals.dropped.iter_mut().zip(counts.dropped.iter().zip(self.told.dropped)) {
                *total += now - told;
            }
        });
        self.told = counts;
    }

    /// Drops what is stored: no more will come.
    fn end(&mut self) {
        self.store.end();
        self.tell();
    }
}

/// A run that is stopped reads no further.
impl Drop for Gatherer {
    fn drop(&mut self) {
        self.end();
    }
}

/// The transmitting half of a stream.
struct Cutting<T> {
    inner: T,
    cutter: Cutter,
}

impl<T: Transmit> Cutting<T> {
    fn new(inner: T) -> Self {
        Self { inner, cutter: Cutter::default() }
    }
}

impl<T: Transmit> Transmit for Cutting<T> {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        self.cutter.transmit(&mut self.inner, batch)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.inner.flush()
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.inner.finish()
    }

    fn sent(&self) -> Option<TransmitCounts> {
        self.inner.sent().map(|sent| self.cutter.packets(sent))
    }
}

/// Cuts gathered packets into fragments, and gives packets the port's own numbers again.
#[derive(Debug, Default)]
struct Cutter {
    out: Batch,
    scratch: Vec<u8>,
    /// Fragments sent, less the packets that they were cut from.
    more: u64,
}

impl Cutter {
    fn transmit(&mut self, inner: &mut dyn Transmit, batch: &mut Batch) -> Result<(), PortError> {
        if batch.gathered().is_empty() {
            return inner.transmit(batch);
        }
        let gathered = mem::take(batch.gathered_mut());
        let is_cut = |packet: &Packet| packet.fate.is_sent() && gathered.words(packet.seq).is_some();
        let result = if gathered.has_no_packets() || !batch.packets().iter().any(is_cut) {
            batch.packets_mut().iter_mut().for_each(|packet| packet.seq = gathered.own_number(packet.seq));
            inner.transmit(batch)
        } else {
            self.out.clear_beside(batch, 0);
            for index in 0..batch.len() {
                let (packet, bytes) = batch.packet(index);
                let (own, words) = (gathered.own_number(packet.seq), gathered.words(packet.seq));
                let before = self.out.len();
                let out = &mut self.out;
                let emit = |frame: &[u8]| {
                    out.push(Packet { seq: own, wire_len: frame.len() as u32, ..*packet }, frame);
                };
                match words.filter(|_| packet.fate.is_sent()) {
                    Some(words) if cut(packet.link, bytes, words, &mut self.scratch, emit) => {
                        // A packet that is also copied leaves as often.
                        self.more += ((self.out.len() - before - 1) * packet.fate.ports().count()) as u64;
                    }
                    Some(_) | None => {
                        self.out.push_of(batch, index, packet.bucket);
                        if let Some(packet) = self.out.packets_mut().last_mut() {
                            packet.seq = own;
                        }
                    }
                }
            }
            let result = inner.transmit(&mut self.out);
            self.out.clear();
            result
        };
        *batch.gathered_mut() = gathered;
        batch.gathered_mut().clear();
        result
    }

    /// Counts of packets, from those of fragments. Where some were lost, which packets these belong to is not known.
    fn packets(&self, sent: TransmitCounts) -> TransmitCounts {
        let less = self.more.min(sent.sent);
        TransmitCounts { sent: sent.sent - less, lost: sent.lost.saturating_sub(self.more - less) }
    }
}
