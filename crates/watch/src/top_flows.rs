//! The flows with the most bytes, by a sample of packets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use packet::{FiveTuple, parse};
use port::{Batch, Watch};

/// The flows with the most bytes since the last look, by a sample at random distances; both directions count as one flow.
///
/// The distances follow the rate, so that a queue looks at some 2,000 packets in the time between two looks: at each where few come. While
/// nobody looks it samples hardly anything.
#[derive(Debug)]
pub struct TopFlows {
    queues: Box<[Queue]>,
    last: Mutex<Instant>,
}

#[derive(Debug)]
struct Queue {
    /// Packets until the next one that is looked at. Most bursts change nothing else.
    skip: AtomicU64,
    sample: Mutex<Sample>,
}

#[derive(Debug)]
struct Sample {
    /// Mean distance of packets that are looked at.
    every: u64,
    /// Packets between those that were looked at since the last look.
    seen: u64,
    /// When somebody looked last.
    looked: Option<Instant>,
    /// State of the random numbers.
    random: u64,
    /// Packets and bytes of the flows in the sample, times the distance at which they were met.
    flows: HashMap<FiveTuple, (u64, u64)>,
}

/// A flow with its rates, estimated from a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopFlow {
    /// Addresses, ports and protocol.
    pub flow: FiveTuple,
    /// Packets per second, both directions.
    pub packets: f64,
    /// Bytes per second on the wire, both directions.
    pub bytes: f64,
}

/// The most flows that a queue keeps between two looks: a large flow is among the first of a sample.
const FLOWS_MAX: usize = 8192;
/// Packets that a queue looks at between two looks, about.
const LOOKED_AT: u64 = 2000;
/// The largest mean distance, also while nobody looks.
const EVERY_MAX: u64 = 4096;
/// Nobody looks if nobody has for so long.
const PATIENCE: Duration = Duration::from_secs(30);

impl TopFlows {
    /// A sample of `queues` queues.
    #[must_use]
    pub fn new(queues: usize) -> Self {
        let queue = |number| {
            let random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1);
            let flows = HashMap::new();
            let sample = Sample { every: EVERY_MAX, seen: 0, looked: None, random, flows };
            Queue { skip: AtomicU64::new(0), sample: Mutex::new(sample) }
        };
        Self { queues: (0..queues).map(queue).collect(), last: Mutex::new(Instant::now()) }
    }

    /// The `most` largest flows since the last call, the largest first.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<TopFlow> {
        let now = Instant::now();
        let before = std::mem::replace(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner), now);
        let seconds = now.saturating_duration_since(before).as_secs_f64().max(0.001);
        let mut all: HashMap<FiveTuple, (u64, u64)> = HashMap::new();
        for queue in &self.queues {
            let flows = queue.look(now);
            for (flow, (packets, bytes)) in flows {
                let sum = all.entry(flow).or_default();
                *sum = (sum.0 + packets, sum.1 + bytes);
            }
        }
        let mut flows: Vec<_> = all.into_iter().collect();
        // Equal ones in an order that stays.
        flows.sort_unstable_by_key(|(flow, (_, bytes))| (std::cmp::Reverse(*bytes), *flow));
        let rate = |number: u64| number as f64 / seconds;
        let top = |(flow, (packets, bytes))| TopFlow { flow, packets: rate(packets), bytes: rate(bytes) };
        flows.into_iter().take(most).map(top).collect()
    }
}

impl Queue {
    fn sample(&self) -> MutexGuard<'_, Sample> {
        self.sample.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sample since the last look, each packet with its weight.
    fn look(&self, now: Instant) -> HashMap<FiveTuple, (u64, u64)> {
        let mut sample = self.sample();
        sample.every = (sample.seen / LOOKED_AT).clamp(1, EVERY_MAX);
        // The next distance may be one of a slower time.
        // ORDERING: Relaxed. A burst at this moment may undo it (`received`), and then the next look does it.
        self.skip.fetch_min(sample.every, Ordering::Relaxed);
        (sample.seen, sample.looked) = (0, Some(now));
        std::mem::take(&mut sample.flows)
    }
}

impl Sample {
    /// Adds a packet. Returns the distance to the next one.
    fn add(&mut self, batch: &Batch, index: usize) -> u64 {
        if self.looked.is_none_or(|looked| looked.elapsed() > PATIENCE) {
            self.every = EVERY_MAX;
        }
        let weight = self.every;
        let (packet, bytes) = batch.packet(index);
        let headers = parse(packet.link, bytes, packet.wire_len, packet.interface).ok();
        if let Some(tuple) = headers.and_then(|headers| headers.five_tuple()) {
            let (flow, _) = tuple.symmetric();
            if self.flows.len() < FLOWS_MAX || self.flows.contains_key(&flow) {
                let sum = self.flows.entry(flow).or_default();
                *sum = (sum.0 + weight, sum.1 + weight * u64::from(packet.wire_len));
            }
        }
        let distance = self.distance();
        self.seen += distance;
        distance
    }

    /// The distance to the next packet: uniform, `every` on average.
    fn distance(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        1 + self.random % (2 * self.every - 1)
    }
}

impl Watch for TopFlows {
    fn received(&self, queue: usize, batch: &Batch) {
        let Some(queue) = self.queues.get(queue) else { return };
        let packets = batch.len() as u64;
        // ORDERING: Relaxed. One core at a time receives from a queue; pairs with `look`.
        let mut skip = queue.skip.load(Ordering::Relaxed);
        if skip < packets {
            let mut sample = queue.sample();
            while skip < packets {
                skip += sample.add(batch, skip as usize);
            }
        }
        queue.skip.store(skip - packets, Ordering::Relaxed);
    }

    fn decided(&self, _: usize, _: &Batch) {}
}
