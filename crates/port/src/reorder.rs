//! Brings the packets of a connection together, by holding them for a short time: [`Reordered`], after Reframer (Ghasemirahni et al.:
//! "Packet Order Matters! Improving Application Performance by Deliberately Delaying Packets", NSDI '22).
//!
//! The first packet of a connection passes at once, and so does one that follows it directly. Further ones that come within the delay are
//! held, and leave in one burst: when the first of them was held for the delay, when they are as many as a burst may have, or when a packet
//! of the connection comes that must not wait. A function behind it finds the connection's state in its cache for all packets of the burst but the first.
//!
//! **A connection** is what has the same five-tuple in either direction. Packets of both directions are held together, so that their order
//! within the connection is the one of arrival: a function that keeps state by connection, or by one of its directions, sees what it
//! would have seen, only later. Packets of *different* connections are interleaved otherwise. A function that keeps state by something
//! wider (by source, or one state for all) may therefore decide otherwise; so may one that compares times which the delay changes.
//!
//! **Not held** are the packets that [`Unheld`] lists. Packets of their connection that are held leave before them. IP fragments and ICMP
//! errors have no five-tuple of their own: before them, all held packets between the same two hosts leave (of an error: the hosts of the
//! packet that it quotes).
//!
//! **Time** is that of the packets, and, while none come, the port's clock. A packet that was held has the time at which it left: at most
//! the delay after that of its arrival. So times never fall, and a capture gives the same output each time.

mod counts;
mod frames;
mod holding;
mod judge;
mod lists;
#[cfg(test)]
mod tests;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use packet::{Nanos, Seq};

use crate::batch::{Batch, Packet};
use crate::error::PortError;
use crate::pcap::{Interfaces, Restamped};
use crate::queue::{Opened, Port, Queue, Receive, ReceiveLosses, Received, Sides, Stream, Transmit};

pub use counts::{Release, ReorderCounts, ReorderTotals, Unheld};
use frames::PIECE;
use holding::{Holding, Taken};

/// Limits of the packets that a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReorderLimits {
    /// Packets; from 1 to 2^24.
    pub packets: usize,
    /// Bytes of their frames, each rounded up to a multiple of 256; up to 2^32.
    pub bytes: usize,
    /// Active connections; from 1 to 2^24.
    pub connections: usize,
    /// Packets of a burst; at least 1.
    pub burst: usize,
}

impl Default for ReorderLimits {
    /// What 10 million packets a second bring in a delay of 1 ms, and bursts of 32 packets: as many as an engine takes at a time.
    fn default() -> Self {
        Self { packets: 16_384, bytes: 16 << 20, connections: 65_536, burst: 32 }
    }
}

impl ReorderLimits {
    /// The most packets and connections.
    const NUMBER_MAX: usize = 1 << 24;

    /// The nearest limits that can be kept.
    fn within_bounds(self) -> Self {
        Self {
            packets: self.packets.clamp(1, Self::NUMBER_MAX),
            bytes: self.bytes.clamp(PIECE, 1 << 32),
            connections: self.connections.clamp(1, Self::NUMBER_MAX),
            burst: self.burst.max(1),
        }
    }
}

/// A port whose queues bring the packets of a connection together.
///
/// Each queue does so by itself; both directions of a connection must come by the same one, as they must for the engines. Packets are
/// numbered as they leave, without gaps if there is one queue. A delay of 0 changes nothing, not even numbers.
///
/// A packet that was held is copied twice: into memory of the queue, and into the batch. Others stay where the port has put them.
#[derive(Debug)]
pub struct Reordered<P> {
    inner: P,
    delay: Nanos,
    limits: ReorderLimits,
    totals: ReorderTotals,
}

impl<P: Port> Reordered<P> {
    /// Holds packets of `inner` for `delay` nanoseconds at most.
    #[must_use]
    pub fn new(inner: P, delay: Nanos, limits: ReorderLimits) -> Self {
        Self { inner, delay, limits, totals: ReorderTotals::default() }
    }

    /// The port inside.
    #[must_use]
    pub const fn inner(&self) -> &P {
        &self.inner
    }

    /// The counts of all queues.
    #[must_use]
    pub fn totals(&self) -> ReorderTotals {
        self.totals.clone()
    }
}

impl<P: Port> Port for Reordered<P> {
    /// # Errors
    /// Those of the port inside; [`PortError::Unfit`] if that has a sequencer.
    fn open<'a>(&'a mut self, cores: usize) -> Result<Opened<'a>, PortError> {
        let Self { inner, delay, limits, totals } = self;
        let opened = inner.open(cores)?;
        if *delay == Nanos(0) {
            return Ok(opened);
        }
        let reordering = |numbers| Reordering::new(*delay, *limits, numbers, Some((totals.clone(), totals.join())));
        Ok(match opened {
            Opened::Stream(Stream { input, output, order }) => {
                let input = ReorderedQueue { inner: input, reordering: reordering(Numbers { next: 0, step: 1 }) };
                Opened::Stream(Stream { input: Box::new(input), output, order })
            }
            Opened::Queues(queues) => {
                let step = queues.len() as u64;
                let reordered = |(core, queue): (usize, Box<dyn Queue + 'a>)| {
                    let reordering = reordering(Numbers { next: core as u64, step });
                    Box::new(ReorderedQueue { inner: queue, reordering }) as Box<dyn Queue + 'a>
                };
                Opened::Queues(queues.into_iter().enumerate().map(reordered).collect())
            }
            Opened::Sequenced(_) => {
                let text =
                    "a sequencer has numbered the packets already, so that they can't be reordered ahead of the engine";
                return Err(PortError::Unfit(text.into()));
            }
        })
    }

    fn sides(&self) -> Sides {
        self.inner.sides()
    }
}

/// A queue that brings the packets of a connection together. Transmit is unchanged.
#[derive(Debug)]
pub struct ReorderedQueue<Q> {
    inner: Q,
    reordering: Reordering,
}

impl<Q: Receive> ReorderedQueue<Q> {
    /// Holds packets of `inner`, the only queue of its port, for `delay` nanoseconds at most. With a delay of 0 none is held, but packets
    /// are numbered anew.
    #[must_use]
    pub fn new(inner: Q, delay: Nanos, limits: ReorderLimits) -> Self {
        Self { inner, reordering: Reordering::new(delay, limits, Numbers { next: 0, step: 1 }, None) }
    }

    /// The queue inside.
    #[must_use]
    pub const fn inner(&self) -> &Q {
        &self.inner
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> ReorderCounts {
        self.reordering.holding.counts()
    }

    /// Receives from the queue inside, and releases what is due if nothing has come.
    fn next(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let Self { inner, reordering } = self;
        loop {
            if reordering.holding.has_released() {
                reordering.continue_with(batch);
                return Ok(Received::Packets);
            }
            if let Some(end) = mem::take(&mut reordering.end) {
                batch.clear();
                reordering.end = Some(End::Reached);
                return match end {
                    End::Reached => Ok(Received::End),
                    End::Failed(error) => Err(error),
                };
            }
            match inner.receive(batch) {
                Ok(Received::Packets) => {
                    reordering.pass(batch);
                    // All packets of a burst may be held.
                    if !batch.is_empty() {
                        return Ok(Received::Packets);
                    }
                }
                Ok(Received::Idle) => {
                    if !reordering.idle(inner.now()) {
                        return Ok(Received::Idle);
                    }
                }
                Ok(Received::End) => reordering.end(batch, End::Reached),
                Err(error @ PortError::Down(_)) => {
                    if !reordering.idle(inner.now()) {
                        return Err(error);
                    }
                }
                Err(error) => reordering.end(batch, End::Failed(error)),
            }
        }
    }
}

impl<Q: Receive> Receive for ReorderedQueue<Q> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let received = self.next(batch);
        self.reordering.tell();
        received
    }

    /// Waits no longer than until held packets are due.
    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        let left = match (self.reordering.holding.due(), self.inner.now()) {
            (Some(due), Some(now)) => Duration::from_nanos(due.since(now).0),
            _ => at_most,
        };
        if left.is_zero() { Ok(()) } else { self.inner.wait(at_most.min(left)) }
    }

    /// The time of the port, but not past the time at which held packets are due: they come with that time.
    fn now(&self) -> Option<Nanos> {
        let now = self.inner.now()?;
        Some(self.reordering.holding.due().map_or(now, |due| due.min(now)))
    }

    fn lost(&self) -> ReceiveLosses {
        self.inner.lost()
    }
}

impl<Q: Transmit> Transmit for ReorderedQueue<Q> {
    crate::forward_transmit!(inner);
}

/// Numbers of the packets of one queue among several; no two queues give the same.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    next: u64,
    step: u64,
}

/// Released packets that a batch has beside as many packets as came: a port may have room for so many more.
const RELEASED_MAX: usize = 256;

/// The end of the input.
#[derive(Debug)]
enum End {
    Reached,
    /// It can't be read further. The error is told once.
    Failed(PortError),
}

/// The work on the packets of a queue.
#[derive(Debug)]
struct Reordering {
    holding: Holding,
    numbers: Numbers,
    totals: Option<(ReorderTotals, usize)>,
    /// The packets that came, while their batch is filled anew.
    came: Vec<Packet>,
    /// Those of them whose time is not their stamp.
    restamped: Vec<Restamped>,
    /// Interfaces of the capture so far.
    interfaces: Option<Arc<Interfaces>>,
    /// The last time.
    now: Nanos,
    end: Option<End>,
}

impl Reordering {
    fn new(delay: Nanos, limits: ReorderLimits, numbers: Numbers, totals: Option<(ReorderTotals, usize)>) -> Self {
        Self {
            holding: Holding::new(delay, limits),
            numbers,
            totals,
            came: Vec::new(),
            restamped: Vec::new(),
            interfaces: None,
            now: Nanos(0),
            end: None,
        }
    }

    /// Replaces the packets of a batch by those that leave now.
    fn pass(&mut self, batch: &mut Batch) {
        self.interfaces.clone_from(&batch.origin().interfaces);
        self.came.clear();
        batch.swap_packets(&mut self.came);
        self.restamped.clear();
        let origin = batch.origin_mut();
        mem::swap(&mut self.restamped, &mut origin.restamped);
        origin.reordered.clear();
        let came = mem::take(&mut self.came);
        let most = came.len() + RELEASED_MAX;
        for packet in &came {
            self.now = packet.time;
            self.holding.advance(packet.time);
            let stamp = stamp(&self.restamped, packet);
            let taken = loop {
                match self.holding.take(packet, stamp, batch.bytes_of(packet)) {
                    Taken::NoRoom => {
                        if !self.holding.has_released() {
                            self.holding.release_oldest(packet.time);
                        }
                        self.drain(batch, batch.len() + 1);
                    }
                    taken => break taken,
                }
            };
            self.drain(batch, most);
            if taken == Taken::Held {
                continue;
            }
            // A batch that is long enough leaves released packets for the next one, and this one behind them.
            while self.holding.has_released() {
                if self.holding.push_released(packet, stamp, batch.bytes_of(packet)) {
                    break;
                }
                self.drain(batch, batch.len() + 1);
            }
            if !self.holding.has_released() {
                let packet = self.numbered(batch, *packet, stamp);
                batch.push_in_place(packet);
            }
        }
        self.came = came;
        self.finish(batch);
    }

    /// Releases what is due by the port's time, while no packets come. Returns false if that is nothing.
    fn idle(&mut self, now: Option<Nanos>) -> bool {
        if let Some(now) = now.filter(|now| *now >= self.now) {
            self.now = now;
            self.holding.advance(now);
        }
        self.holding.has_released()
    }

    /// Releases everything: no more packets come.
    fn end(&mut self, batch: &Batch, end: End) {
        self.interfaces.clone_from(&batch.origin().interfaces);
        self.end = Some(end);
        self.holding.end(self.now);
    }

    /// Fills a batch with released packets alone.
    fn continue_with(&mut self, batch: &mut Batch) {
        batch.clear();
        batch.origin_mut().interfaces.clone_from(&self.interfaces);
        self.drain(batch, RELEASED_MAX);
        self.finish(batch);
    }

    /// Says in a batch which packets of a capture may still come behind it.
    fn finish(&self, batch: &mut Batch) {
        let lowest = self.interfaces.as_ref().and_then(|_| self.holding.lowest());
        batch.origin_mut().reordered.held_from = lowest;
    }

    /// Moves released packets into a batch, until it has `most` packets.
    fn drain(&mut self, batch: &mut Batch, most: usize) {
        while batch.len() < most && self.holding.has_released() {
            let numbers = &mut self.numbers;
            self.holding.pop(|held, bytes| {
                let packet = numbered(numbers, batch, held.packet, held.stamp);
                batch.push_parts(packet, bytes);
            });
        }
    }

    fn numbered(&mut self, batch: &mut Batch, packet: Packet, stamp: Nanos) -> Packet {
        numbered(&mut self.numbers, batch, packet, stamp)
    }

    /// Tells the counts.
    fn tell(&self) {
        if let Some((totals, number)) = &self.totals {
            totals.set(*number, &self.holding.counts());
        }
    }
}

/// Gives a packet that goes into `batch` its number. Of one from a capture, the batch also learns its number and its stamp there.
fn numbered(numbers: &mut Numbers, batch: &mut Batch, packet: Packet, stamp: Nanos) -> Packet {
    let seq = Seq(numbers.next);
    numbers.next += numbers.step;
    let origin = batch.origin_mut();
    if origin.interfaces.is_some() {
        if stamp != packet.time {
            origin.restamped.push(Restamped { seq, time: packet.time, stamp });
        }
        if seq != packet.seq {
            origin.reordered.numbers.push((seq, packet.seq));
        }
    }
    Packet { seq, ..packet }
}

/// The time stamp of a packet in its capture.
fn stamp(restamped: &[Restamped], packet: &Packet) -> Nanos {
    match restamped.binary_search_by_key(&packet.seq, |one| one.seq) {
        Ok(at) if restamped[at].time == packet.time => restamped[at].stamp,
        Ok(_) | Err(_) => packet.time,
    }
}
