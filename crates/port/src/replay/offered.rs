//! Replay at a given rate: packets arrive whether or not a core is ready for them.
//!
//! No thread plays the wire. Each queue computes from the clock how many packets have arrived by now and which of them
//! found a descriptor in its receive ring ([`Ring`]); the others are lost and counted. Packet `n` of the opening arrives
//! `n / rate` after its start, whichever queue it is steered to, so that a queue sees the trace's own bursts.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::ring::Ring;
use super::{BURST, ReplayQueue};
use crate::batch::Batch;
use crate::error::PortError;
use crate::queue::{Receive, Received, Transmit};

/// The load that a wire offers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Packets a second, all queues together.
    pub rate_pps: f64,
    /// How long packets arrive before counting begins.
    pub warm_up: Duration,
    /// How long packets arrive that count.
    pub duration: Duration,
    /// How many descriptors each queue's receive ring has.
    pub descriptors: usize,
}

/// Descriptors of a receive ring, unless told otherwise: as many as the evaluation of state-compute replication has.
pub const DESCRIPTORS: usize = 256;

impl Load {
    /// Packets that arrive before counting begins, and in all.
    pub(super) fn packets(&self) -> (u64, u64) {
        let within = |span: Duration| (span.as_secs_f64() * self.rate_pps) as u64;
        (within(self.warm_up), within(self.warm_up + self.duration))
    }

    /// Packets that have arrived so long after the start.
    fn arrived(&self, elapsed: Duration) -> u64 {
        (elapsed.as_nanos() as f64 * (self.rate_pps / 1e9)) as u64
    }
}

/// What became of a load at one queue, warm-up left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Packets that arrived: `received + lost`.
    pub offered: u64,
    /// Packets that found a descriptor, all of which were delivered.
    pub received: u64,
    /// Packets that found none.
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

    /// The share of the packets that was lost; 0 where there were none.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.lost as f64 / self.offered.max(1) as f64
    }
}

/// How many packets waited in a receive ring, warm-up left out. Each time a core came for packets it found so many, and what it
/// found counts for the time since it came last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Depth {
    /// The mean over time.
    pub mean: f64,
    /// Half of the time there were no more.
    pub median: usize,
    /// No more in 99 of 100 parts of the time.
    pub p99: usize,
    /// The most that were found.
    pub max: usize,
}

/// For how long so many packets waited, in nanoseconds.
#[derive(Debug)]
struct Depths {
    by_depth: Box<[u64]>,
    last: Duration,
}

impl Depths {
    fn new(descriptors: usize) -> Self {
        Self { by_depth: vec![0; descriptors + 1].into(), last: Duration::ZERO }
    }

    /// So many were found so long after the start.
    #[inline]
    fn found(&mut self, depth: u64, elapsed: Duration, counts: bool) {
        if counts {
            self.by_depth[depth as usize] += elapsed.saturating_sub(self.last).as_nanos() as u64;
        }
        self.last = elapsed;
    }

    fn depth(&self) -> Depth {
        let total: u64 = self.by_depth.iter().sum();
        // The least depth that was not exceeded for such a share of the time.
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

/// What all queues of an opening have in common.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) load: Load,
    /// When the first packet left, set by the first queue that is asked for packets.
    pub(super) start: OnceLock<Instant>,
    /// The first packet, and the one behind the last, by their numbers in arrival order.
    pub(super) first: u64,
    pub(super) end: u64,
}

/// A queue's counts, written once, when it has ended.
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
    /// Packets of all queues ahead of this one have been looked at.
    seen: u64,
    /// The loop that they end in: its first packet, and how many of the queue's own come ahead of it.
    loop_first: u64,
    loop_own: u64,
    /// The queue's part of all packets.
    part: f64,
    is_over: bool,
}

/// So many packets at most are counted by walking from where they should end; more are looked up.
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

    /// How many of the queue's own packets come ahead of packet `end`, which isn't ahead of what was seen.
    ///
    /// Called with every burst, so it neither divides nor looks at packets that aren't near yet.
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

    /// What a receive gives so long after the start.
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
        // A queue may be asked again once it has ended: nothing has changed since.
        let _ = self.count.depth.set(self.depths.depth());
    }
}

impl Receive for OfferedQueue {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let start = *self.wire.start.get_or_init(Instant::now);
        // What has arrived is still delivered after a stop; nothing more arrives.
        self.is_over |= self.queue.is_stopped();
        Ok(self.deliver(start.elapsed(), batch))
    }

    /// Looks again at once: the wire goes by the clock.
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
