//! Replay at a given rate: packets arrive whether or not a core is ready.
//!
//! No thread plays the wire. Each queue computes from the clock how many packets have arrived, and which of them got a descriptor of its
//! receive ring ([`Ring`]). The others are lost and counted. Packet `n` arrives `n / rate` after the start, whatever its queue, so a
//! queue sees the bursts of the trace.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use packet::Seq;

use super::ring::Ring;
use super::{BURST, ReplayQueue};
use crate::batch::Batch;
use crate::error::PortError;
use crate::queue::{Receive, Received, Transmit};

/// An offered load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Packets a second, over all queues.
    pub rate_pps: f64,
    /// Duration before packets count.
    pub warm_up: Duration,
    /// Duration of the part that counts.
    pub duration: Duration,
    /// Descriptors of each queue's receive ring.
    pub descriptors: usize,
}

/// Default descriptors of a receive ring, as in the evaluation of state-compute replication.
pub const DESCRIPTORS: usize = 256;

impl Load {
    /// Packets in the warm-up, and in all.
    pub(super) fn packets(&self) -> (u64, u64) {
        let within = |span: Duration| (span.as_secs_f64() * self.rate_pps) as u64;
        (within(self.warm_up), within(self.warm_up + self.duration))
    }

    /// Packets that have arrived this long after the start.
    fn arrived(&self, elapsed: Duration) -> u64 {
        (elapsed.as_nanos() as f64 * (self.rate_pps / 1e9)) as u64
    }
}

/// Packets of a load at one queue, without the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Packets that arrived: `received + lost`.
    pub offered: u64,
    /// Packets that got a descriptor; all of them were delivered.
    pub received: u64,
    /// Packets that got none.
    pub lost: u64,
}

impl Offered {
    /// Adds another queue's.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            received: self.received + other.received,
            lost: self.lost + other.lost,
        }
    }

    /// Share of packets lost; 0 if there were no packets.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.lost as f64 / self.offered.max(1) as f64
    }
}

/// Number of packets waiting in a receive ring, without the warm-up. It is sampled at each receive, and weighted with the time since the
/// previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Depth {
    /// Mean over time.
    pub mean: f64,
    /// Median over time.
    pub median: usize,
    /// 99th percentile over time.
    pub p99: usize,
    /// Maximum.
    pub max: usize,
}

/// For each number of waiting packets: the time in nanoseconds.
#[derive(Debug)]
struct Depths {
    by_depth: Box<[u64]>,
    last: Duration,
}

impl Depths {
    fn new(descriptors: usize) -> Self {
        Self { by_depth: vec![0; descriptors + 1].into(), last: Duration::ZERO }
    }

    /// Counts a sample of `depth` packets, `elapsed` after the start.
    #[inline]
    fn found(&mut self, depth: u64, elapsed: Duration, counts: bool) {
        if counts {
            self.by_depth[depth as usize] += elapsed.saturating_sub(self.last).as_nanos() as u64;
        }
        self.last = elapsed;
    }

    fn depth(&self) -> Depth {
        let total: u64 = self.by_depth.iter().sum();
        // The smallest depth that was not exceeded for this share of the time.
        let within = |share: f64| {
            let mut so_far = 0;
            let at = self.by_depth.iter().position(|time| {
                so_far += time;
                so_far > 0 && so_far as f64 >= total as f64 * share
            });
            at.unwrap_or(0)
        };
        let weighted: f64 = (0_u64..).zip(&self.by_depth).map(|(depth, time)| depth as f64 * *time as f64).sum();
        Depth {
            mean: weighted / total.max(1) as f64,
            median: within(0.5),
            p99: within(0.99),
            max: self.by_depth.iter().rposition(|time| *time > 0).unwrap_or(0),
        }
    }
}

/// State common to all queues of an opening.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) load: Load,
    /// Time of the first packet, set by the first queue that receives.
    pub(super) start: OnceLock<Instant>,
    /// Number of the first packet, and of the packet after the last, in arrival order.
    pub(super) first: u64,
    pub(super) end: u64,
}

/// When the packets of a load arrive, whether or not a core is ready.
#[derive(Clone, Debug)]
pub struct Arrivals(pub(super) Arc<Wire>);

impl Arrivals {
    /// When this packet arrives. `None` for packets of the warm-up, and before the first receive.
    #[inline]
    #[must_use]
    pub fn of(&self, seq: Seq) -> Option<Instant> {
        let Wire { load, start, first, .. } = &*self.0;
        let number = seq.0.checked_sub(*first)?;
        let after = Duration::from_nanos((number as f64 * (1e9 / load.rate_pps)) as u64);
        start.get().map(|start| *start + after).filter(|_| after >= load.warm_up)
    }
}

/// Counters of a queue, written once when it has ended.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Count {
    offered: AtomicU64,
    lost: AtomicU64,
    depth: OnceLock<Depth>,
}

impl Count {
    /// All zero as long as the queue has not ended.
    pub(super) fn depth(&self) -> Depth {
        self.depth.get().copied().unwrap_or_default()
    }

    pub(super) fn read(&self) -> Offered {
        // ORDERING: Relaxed; pairs with the stores in `OfferedQueue::tell`. Final once the queue's thread was joined.
        let (offered, lost) = (self.offered.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed));
        Offered { offered, received: offered - lost, lost }
    }
}

/// One core's share of the load.
pub(super) struct OfferedQueue {
    queue: ReplayQueue,
    wire: Arc<Wire>,
    count: Arc<Count>,
    ring: Ring,
    depths: Depths,
    /// Packets of all queues before this one have been processed.
    seen: u64,
    /// The current loop: its first packet, and the number of the queue's own packets before it.
    loop_first: u64,
    loop_own: u64,
    /// The queue's part of all packets.
    part: f64,
    is_over: bool,
}

/// Up to this many packets are counted by walking; more are looked up.
const WALK: u64 = 1024;

impl OfferedQueue {
    pub(super) fn new(queue: ReplayQueue, wire: Arc<Wire>, count: Arc<Count>) -> Self {
        let (warm_up, _) = wire.load.packets();
        let first = queue.own_before(wire.first);
        let depths = Depths::new(wire.load.descriptors);
        let ring = Ring::new(wire.load.descriptors as u64, first, queue.own_before(wire.first + warm_up));
        let share = queue.arena.slots().len();
        let part = share as f64 / queue.packets.max(1) as f64;
        let looped = wire.first / queue.packets.max(1);
        let (loop_first, loop_own) = (looped * queue.packets, looped * share as u64);
        let (seen, is_over) = (wire.first, share == 0);
        Self { queue, seen, loop_first, loop_own, part, wire, ring, depths, count, is_over }
    }

    /// Number of the queue's own packets before packet `end`, which is not before packets already seen.
    ///
    /// It is called for every burst, so it doesn't divide, and doesn't look at packets far away.
    #[inline]
    fn own_before(&mut self, end: u64) -> u64 {
        let new = end - self.seen;
        if new > WALK || end >= self.loop_first + self.queue.packets {
            let own = self.queue.own_before(end);
            let looped = end / self.queue.packets;
            self.loop_first = looped * self.queue.packets;
            self.loop_own = looped * self.queue.arena.slots().len() as u64;
            return own;
        }
        let slots = self.queue.arena.slots();
        let index = end - self.loop_first;
        let known = (self.ring.next() - self.loop_own) as usize;
        let mut own = (known + (new as f64 * self.part) as usize).min(slots.len());
        while own > known && u64::from(slots[own - 1].index) >= index {
            own -= 1;
        }
        while own < slots.len() && u64::from(slots[own].index) < index {
            own += 1;
        }
        self.loop_own + own as u64
    }

    /// Result of a receive, `elapsed` after the start.
    fn deliver(&mut self, elapsed: Duration, batch: &mut Batch) -> Received {
        if !self.is_over {
            let end = self.wire.first.saturating_add(self.wire.load.arrived(elapsed)).min(self.wire.end);
            let own = self.own_before(end);
            self.ring.arrive(own);
            self.seen = end;
            self.is_over = end == self.wire.end;
            self.depths.found(self.ring.waiting(), elapsed, self.ring.counts());
        }
        let Some(run) = self.ring.front() else {
            batch.clear_packets();
            if self.is_over {
                self.tell();
                return Received::End;
            }
            return Received::Idle;
        };
        self.queue.seek(run.first);
        self.queue.next_burst(batch, run.len.min(BURST as u64) as usize);
        self.ring.take(batch.len() as u64);
        Received::Packets
    }

    fn tell(&self) {
        // ORDERING: Relaxed, as there is one writer; pairs with the loads in `Count::read`.
        self.count.offered.store(self.ring.arrived(), Ordering::Relaxed);
        self.count.lost.store(self.ring.lost(), Ordering::Relaxed);
        // A queue may be called again after its end; nothing has changed.
        let _ = self.count.depth.set(self.depths.depth());
    }
}

impl Receive for OfferedQueue {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let start = *self.wire.start.get_or_init(Instant::now);
        // After a stop, arrived packets are still delivered, but no more arrive.
        self.is_over |= self.queue.is_stopped();
        Ok(self.deliver(start.elapsed(), batch))
    }

    /// Returns at once, because the wire follows the clock.
    fn wait(&mut self, _at_most: Duration) -> Result<(), PortError> {
        hint::spin_loop();
        Ok(())
    }
}

impl Transmit for OfferedQueue {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        self.queue.transmit(batch)
    }
}

#[cfg(test)]
mod tests;
