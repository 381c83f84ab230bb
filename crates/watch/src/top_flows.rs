//! The flows with the most bytes, by a sample of packets.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use packet::{FiveTuple, parse};
use port::{Batch, Watch};

/// The flows with the most bytes since the last look, by a sample at random distances; both directions count as one flow.
///
/// The distances follow the rate, so that a queue looks at some 2,000 packets in the time between two looks: at each where few come. While
/// nobody looks it samples hardly anything.
#[derive(Debug)]
pub struct TopFlows {
    queues: Box<[Mutex<Sample>]>,
    last: Mutex<Instant>,
}

#[derive(Debug)]
struct Sample {
    /// Packets until the next one that is looked at.
    skip: u64,
    /// Mean distance of packets that are looked at.
    every: u64,
    /// Packets since the last look.
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
            Mutex::new(Sample { skip: 0, every: EVERY_MAX, seen: 0, looked: None, random, flows })
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
            let flows = queue.lock().unwrap_or_else(PoisonError::into_inner).look(now);
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

impl Sample {
    /// The sample since the last look, each packet with its weight.
    fn look(&mut self, now: Instant) -> HashMap<FiveTuple, (u64, u64)> {
        self.every = (self.seen / LOOKED_AT).clamp(1, EVERY_MAX);
        // The next distance may be one of a slower time.
        self.skip = self.skip.min(self.every);
        (self.seen, self.looked) = (0, Some(now));
        std::mem::take(&mut self.flows)
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
        let mut sample = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let packets = batch.len() as u64;
        sample.seen += packets;
        while sample.skip < packets {
            if sample.looked.is_none_or(|looked| looked.elapsed() > PATIENCE) {
                sample.every = EVERY_MAX;
            }
            let weight = sample.every;
            let (packet, bytes) = batch.packet(sample.skip as usize);
            let headers = parse(packet.link, bytes, packet.wire_len, packet.interface).ok();
            if let Some(tuple) = headers.and_then(|headers| headers.five_tuple()) {
                let (flow, _) = tuple.symmetric();
                if sample.flows.len() < FLOWS_MAX || sample.flows.contains_key(&flow) {
                    let sum = sample.flows.entry(flow).or_default();
                    *sum = (sum.0 + weight, sum.1 + weight * u64::from(packet.wire_len));
                }
            }
            sample.skip += sample.distance();
        }
        sample.skip -= packets;
    }

    fn decided(&self, _: usize, _: &Batch) {}
}
