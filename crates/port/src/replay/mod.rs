//! Replays a trace from memory, again and again, at maximum rate or at a given rate.
//!
//! The trace is packed in memory in advance, on huge pages if the kernel provides them, with each queue's share stored separately and in
//! order. A burst is lent to the batch in place, as a card hands over filled buffers, so a packet costs only what the function reads of
//! it. A packet that is written is copied first, so the trace stays unchanged. If most packets are written, or addresses change from loop
//! to loop, whole bursts are copied, which is cheaper. Nothing is allocated after the first batch.

mod arena;
mod offered;
mod renumber;
mod ring;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use packet::{LinkType, Nanos, Seq};

use crate::batch::{Batch, Fate, Packet};
use crate::error::PortError;
use crate::memory::Trace;
use crate::queue::{Opened, Port, Queue, Receive, Received, Transmit, TransmitCounts};
pub use arena::HugePages;
use arena::{Arena, Slot};
pub use offered::{Arrivals, DESCRIPTORS, Depth, Load, Offered};
use offered::{Count, OfferedQueue, Wire};
pub use renumber::Renumber;

/// Packets that are delivered at a time.
pub const BURST: usize = 32;
/// Room for a burst in a batch; a burst has fewer packets if they are long.
const ROOM_BYTES: usize = 64 << 10;

/// A port that replays a trace. Sent packets are counted and dropped.
///
/// ```
/// # use millrace_port::{Batch, Loops, Received, Replay, Trace};
/// # use packet::{LinkType, Nanos, Seq};
/// # use millrace_port::{Fate, Packet};
/// # let mut trace = Trace::new();
/// # let packet = Packet { seq: Seq(0), time: Nanos(0), offset: 0, len: 0, wire_len: 60, interface: 0,
/// #     link: LinkType::Ethernet, bucket: 0, fate: Fate::Pending };
/// # trace.push(packet, &[0; 60]);
/// let mut replay = Replay::new(trace.into()).looped(Loops::Times(3)); let mut queues = replay.queues(1); let mut batch = Batch::default(); let mut count = 0; while queues[0].receive(&mut batch)? == Received::Packets { count += batch.len(); } assert_eq!(count, 3);
/// # Ok::<(), millrace_port::PortError>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    trace: Arc<Trace>,
    cores: Option<Vec<u16>>,
    /// Each packet's bucket; empty to leave the trace's.
    buckets: Vec<u16>,
    loops: Loops,
    stop: Arc<AtomicBool>,
    renumber: Option<Renumber>,
    /// Packets of earlier openings, if this one continues after them.
    begun: u64,
    continued: bool,
    /// Packets that are delivered at a time.
    burst: usize,
    arenas: Vec<Arc<Arena>>,
    tallies: Vec<Arc<Tally>>,
    counts: Vec<Arc<Count>>,
    wire: Option<Arc<Wire>>,
}

/// Number of passes over a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    /// This many passes, or until stopped.
    Times(u64),
    /// Until stopped.
    UntilStopped,
}

impl Replay {
    /// Replays `trace` once.
    #[must_use]
    pub fn new(trace: Arc<Trace>) -> Self {
        Self {
            trace,
            cores: None,
            buckets: Vec::new(),
            loops: Loops::Times(1),
            stop: Arc::default(),
            renumber: None,
            begun: 0,
            continued: false,
            burst: BURST,
            arenas: Vec::new(),
            tallies: Vec::new(),
            counts: Vec::new(),
            wire: None,
        }
    }

    /// Sets the number of passes.
    #[must_use]
    pub const fn looped(mut self, loops: Loops) -> Self {
        self.loops = loops;
        self
    }

    /// Each opening continues, in numbers and time, where the previous one ended: for measurements in rounds. After whole loops it starts
    /// with the next loop.
    #[must_use]
    pub const fn continued(mut self) -> Self {
        self.continued = true;
        self
    }

    /// Delivers up to `burst` packets at a time instead of [`BURST`].
    ///
    /// # Panics
    /// `burst` is 0.
    #[must_use]
    pub const fn bursts_of(mut self, burst: usize) -> Self {
        assert!(burst > 0, "a burst has packets");
        self.burst = burst;
        self
    }

    /// Ends within one burst after `stop` is set.
    #[must_use]
    pub fn stopped_by(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    /// Changes the addresses in each loop, so that flows end and new ones begin.
    #[must_use]
    pub fn renumbered(mut self, renumber: Renumber) -> Self {
        self.renumber = Some(renumber);
        self.arenas.clear();
        self
    }

    /// Assigns each packet to a queue. Without it, packets are distributed round robin.
    ///
    /// # Panics
    /// The length of `cores` differs from the number of packets.
    #[must_use]
    pub fn steered(mut self, cores: Vec<u16>) -> Self {
        assert_eq!(cores.len(), self.trace.len(), "a queue for each packet");
        self.cores = Some(cores);
        self.arenas.clear();
        self
    }

    /// Sets the indirection table entry of each packet, as a card does.
    ///
    /// # Panics
    /// The length of `buckets` differs from the number of packets.
    #[must_use]
    pub fn bucketed(mut self, buckets: Vec<u16>) -> Self {
        assert_eq!(buckets.len(), self.trace.len(), "a bucket for each packet");
        self.buckets = buckets;
        self.arenas.clear();
        self
    }

    /// The trace that is replayed.
    #[must_use]
    pub const fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    /// Time from the start of one loop to the start of the next: the duration of the trace plus a mean gap.
    #[must_use]
    pub fn span(&self) -> Nanos {
        let (duration, gaps) = (self.trace.duration(), self.trace.len().saturating_sub(1).max(1));
        duration + Nanos((duration.0 / gaps as u64).max(1))
    }

    /// How much of the opened queues' memory is on huge pages, as the kernel reports.
    #[must_use]
    pub fn huge_pages(&self) -> HugePages {
        arena::huge_pages(&self.arenas)
    }

    /// For each queue opened last: packets sent, and their bytes on the wire.
    #[must_use]
    pub fn sent(&self) -> Vec<(u64, u64)> {
        // ORDERING: Relaxed; pairs with the stores in `Tally::add`. Counts are final once the queue's thread was joined.
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.tallies.iter().map(|tally| (load(&tally.packets), load(&tally.bytes))).collect()
    }

    /// Opens queues that receive the trace at a given rate, again and again, from their first receive on. Packets for which a core is too
    /// slow are lost and counted. A queue ends when the load has ended and its ring is empty.
    ///
    /// # Panics
    /// As [`Port::open`]; the rate is not above 0, or there are no descriptors.
    pub fn offer(&mut self, cores: usize, load: Load) -> Vec<Box<dyn Queue>> {
        assert!(load.rate_pps.is_finite() && load.rate_pps > 0.0, "a wire has a rate");
        assert!(load.descriptors > 0, "a ring has descriptors");
        self.prepare(cores);
        self.counts = (0..cores).map(|_| Arc::default()).collect();
        let (first, (_, packets)) = (self.begun, load.packets());
        let wire = Arc::new(Wire { load, start: OnceLock::new(), first, end: first + packets });
        self.wire = Some(Arc::clone(&wire));
        if self.continued {
            self.begun = wire.end;
        }
        let queues = (0..cores).map(|core| {
            let queue = self.queue(core, 0, Loops::UntilStopped);
            let queue = OfferedQueue::new(queue, Arc::clone(&wire), Arc::clone(&self.counts[core]));
            Box::new(queue) as Box<dyn Queue>
        });
        queues.collect()
    }

    /// Number after the last packet of all openings so far, if each continues after the previous one.
    #[must_use]
    pub const fn end(&self) -> Seq {
        Seq(self.begun)
    }

    /// When the packets of the last load arrive. `None` before the first.
    #[must_use]
    pub fn arrivals(&self) -> Option<Arrivals> {
        self.wire.clone().map(Arrivals)
    }

    /// Received and lost packets of the last load, by queue. Final once the queues have ended.
    #[must_use]
    pub fn offered(&self) -> Vec<Offered> {
        self.counts.iter().map(|count| count.read()).collect()
    }

    /// Number of packets of the last load that waited in each queue's ring; all 0 for queues that have not ended.
    #[must_use]
    pub fn depths(&self) -> Vec<Depth> {
        self.counts.iter().map(|count| count.depth()).collect()
    }

    /// Prepares the memory of the queues.
    fn prepare(&mut self, cores: usize) {
        assert!(cores > 0, "a port has queues");
        let steered_to = self.cores.iter().flatten().max();
        assert!(steered_to.is_none_or(|core| usize::from(*core) < cores), "packets go to queues that there are");
        if self.arenas.len() != cores {
            self.arenas = self.load(cores);
        }
        self.tallies = (0..cores).map(|_| Arc::default()).collect();
    }

    fn queue(&self, core: usize, looped: u64, loops: Loops) -> ReplayQueue {
        let arena = &self.arenas[core];
        ReplayQueue {
            arena: Arc::clone(arena),
            tally: Arc::clone(&self.tallies[core]),
            stop: Arc::clone(&self.stop),
            loops,
            renumber: self.renumber,
            copies: false,
            burst: self.burst,
            room: (ROOM_BYTES * self.burst.div_ceil(BURST)).max(arena.longest()),
            span: self.span(),
            packets: self.trace.len() as u64,
            looped,
            next: 0,
        }
    }

    fn load(&self, queues: usize) -> Vec<Arc<Arena>> {
        let mut shares: Vec<Vec<u32>> = vec![Vec::new(); queues];
        for index in 0..self.trace.len() {
            let core = self.cores.as_ref().map_or(index % queues, |cores| usize::from(cores[index]));
            shares[core].push(index as u32);
        }
        let load = |share: Vec<u32>| Arena::load(&self.trace, &share, &self.buckets, self.renumber.is_some());
        shares.into_iter().map(|share| Arc::new(load(share))).collect()
    }
}

impl Replay {
    /// Opens a queue for each core, at the start of the trace. The memory is built at the first call; later calls for the same number of
    /// cores share it.
    ///
    /// # Panics
    /// `cores` is 0, or packets are assigned to more queues.
    pub fn queues(&mut self, cores: usize) -> Vec<Box<dyn Queue>> {
        self.prepare(cores);
        let packets = self.trace.len() as u64;
        let begun = if packets == 0 { 0 } else { self.begun.div_ceil(packets) };
        let loops = match self.loops {
            Loops::Times(times) => Loops::Times(begun + times),
            Loops::UntilStopped => Loops::UntilStopped,
        };
        if let (true, Loops::Times(end)) = (self.continued, loops) {
            self.begun = end * packets;
        }
        (0..cores).map(|core| Box::new(self.queue(core, begun, loops)) as Box<dyn Queue>).collect()
    }
}

impl Port for Replay {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        Ok(Opened::Queues(self.queues(cores)))
    }
}

/// Packets and bytes sent by a queue. Only its core writes them, on a separate cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Tally {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    fn add(&self, packets: u64, bytes: u64) {
        // ORDERING: Relaxed, as there is one writer; pairs with the loads in `Replay::sent`.
        self.packets.store(self.packets.load(Ordering::Relaxed) + packets, Ordering::Relaxed);
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }
}

/// One core's share of the trace.
struct ReplayQueue {
    arena: Arc<Arena>,
    tally: Arc<Tally>,
    stop: Arc<AtomicBool>,
    loops: Loops,
    renumber: Option<Renumber>,
    /// True if bursts are copied as a whole, because most packets of a burst were written.
    copies: bool,
    /// Packets that are delivered at a time, and the bytes that they may take.
    burst: usize,
    room: usize,
    span: Nanos,
    /// Packets of the whole trace.
    packets: u64,
    looped: u64,
    next: usize,
}

impl Receive for ReplayQueue {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        if self.is_over() || self.is_stopped() {
            batch.clear_packets();
            return Ok(Received::End);
        }
        self.next_burst(batch, self.burst);
        Ok(Received::Packets)
    }
}

impl Transmit for ReplayQueue {
    /// Counts what would go out.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let (mut packets, mut bytes) = (0, 0);
        for packet in batch.packets() {
            let copies = match packet.fate {
                Fate::Transmit(_) => 1,
                Fate::Both(..) => 2,
                Fate::Pending | Fate::Drop(_) => continue,
            };
            packets += copies;
            bytes += copies * u64::from(packet.wire_len);
        }
        self.tally.add(packets, bytes);
        self.copies = self.copies || batch.is_copied();
        Ok(())
    }

    fn sent(&self) -> Option<TransmitCounts> {
        // ORDERING: Relaxed, as this queue is the only writer.
        Some(TransmitCounts { sent: self.tally.packets.load(Ordering::Relaxed), lost: 0 })
    }
}

impl ReplayQueue {
    fn is_over(&self) -> bool {
        let done = match self.loops {
            Loops::Times(times) => self.looped >= times,
            Loops::UntilStopped => false,
        };
        done || self.arena.slots().is_empty()
    }

    fn is_stopped(&self) -> bool {
        // ORDERING: Relaxed, as a late look does no harm; pairs with whoever asks to stop.
        self.stop.load(Ordering::Relaxed)
    }

    /// Delivers the next packets: at most `most`, as many as fit, at least one.
    #[inline]
    fn next_burst(&mut self, batch: &mut Batch, most: usize) {
        let arena = &*self.arena;
        let rest = &arena.slots()[self.next..];
        let slots = &rest[..rest.len().min(most)];
        let slots = if arena.longest() * self.burst <= self.room { slots } else { fitting(slots, self.room) };
        let (start, behind) = (arena.start(self.next), self.next + slots.len());
        let bytes = arena.start(behind) - start;
        let renumber = self.renumber.filter(|_| self.looped > 0);
        if self.copies || renumber.is_some() {
            let (memory, packets) = batch.parts_mut();
            // Keep old bytes, so that nothing is zeroed for each burst.
            if memory.len() < self.room {
                memory.resize(self.room, 0);
            }
            memory[..bytes].copy_from_slice(&arena.bytes()[start..][..bytes]);
            self.describe(slots, packets);
            if let Some(renumber) = renumber {
                renumber.apply(self.looped, &arena.sites()[self.next..][..slots.len()], packets, memory);
            }
        } else {
            self.describe(slots, batch.lend(arena.memory(), start, bytes, self.room));
        }
        arena.prefetch(behind);
        self.next = behind;
        if behind == arena.slots().len() {
            self.next = 0;
            self.looped += 1;
        }
    }

    /// Moves to the queue's own packet number `own`, counted over all loops.
    #[inline]
    fn seek(&mut self, own: u64) {
        let share = self.arena.slots().len() as u64;
        if own != self.looped * share + self.next as u64 {
            self.looped = own / share;
            self.next = (own % share) as usize;
        }
    }

    /// Number of the queue's own packets before packet `number` of all queues, counted over all loops.
    fn own_before(&self, number: u64) -> u64 {
        let slots = self.arena.slots();
        let (looped, index) = (number / self.packets.max(1), number % self.packets.max(1));
        looped * slots.len() as u64 + slots.partition_point(|slot| u64::from(slot.index) < index) as u64
    }

    /// Writes the descriptors of adjacent packets.
    #[inline]
    fn describe(&self, slots: &[Slot], packets: &mut Vec<Packet>) {
        let first_seq = self.looped * self.packets;
        let later = Nanos(self.span.0.saturating_mul(self.looped));
        let sole = self.arena.sole_source();
        let mut at = 0;
        // Overwrite instead of push: the count is usually the same for each burst.
        packets.resize(slots.len(), NO_PACKET);
        for (slot, packet) in slots.iter().zip(packets) {
            let (interface, link) = sole.unwrap_or_else(|| self.arena.source(slot));
            *packet = Packet {
                seq: Seq(first_seq + u64::from(slot.index)),
                time: slot.time + later,
                offset: at as u32,
                len: slot.len,
                wire_len: slot.wire_len,
                interface,
                link,
                bucket: slot.bucket,
                fate: Fate::Pending,
            };
            at += slot.stride();
        }
    }
}

/// What the descriptors are made of before they are written.
const NO_PACKET: Packet = Packet {
    seq: Seq(0),
    time: Nanos(0),
    offset: 0,
    len: 0,
    wire_len: 0,
    interface: 0,
    link: LinkType::Ethernet,
    bucket: 0,
    fate: Fate::Pending,
};

/// The first packets, as many as there is room for.
fn fitting(slots: &[Slot], room: usize) -> &[Slot] {
    let mut bytes = 0;
    let fits = |slot: &&Slot| {
        bytes += slot.stride();
        bytes <= room
    };
    &slots[..slots.iter().take_while(fits).count()]
}

#[cfg(test)]
mod tests;
