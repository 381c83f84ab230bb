//! The model of `heavy-hitter`.

use std::collections::HashMap;

use packet::{Headers, Nanos, Seq};

use super::{Fate, Model, Tuple};

/// Stores time and length of all packets of every flow.
#[derive(Clone, Debug)]
pub struct HeavyHitterModel {
    idle_secs: u64,
    flows: HashMap<Tuple, Vec<(u64, u64)>>,
}

impl HeavyHitterModel {
    /// Creates a model that forgets flows after this many idle seconds.
    #[must_use]
    pub fn new(idle_secs: u64) -> Self {
        Self { idle_secs, flows: HashMap::new() }
    }

    /// Returns the flows alive at `now` with their packets and bytes, most bytes first.
    #[must_use]
    pub fn largest(&self, now: Nanos) -> Vec<(Tuple, u64, u64)> {
        let alive = self.flows.iter().filter(|(_, packets)| self.is_alive(packets, now.0));
        let totals = alive.map(|(tuple, packets)| {
            (*tuple, packets.len() as u64, packets.iter().map(|(_, bytes)| bytes).sum::<u64>())
        });
        let mut largest: Vec<_> = totals.collect();
        largest.sort_by_key(|(tuple, _, bytes)| (u64::MAX - bytes, *tuple));
        largest
    }

    fn is_alive(&self, packets: &[(u64, u64)], now: u64) -> bool {
        packets.last().is_some_and(|(last, _)| now - last < 1_000_000_000 * self.idle_secs)
    }
}

impl Model for HeavyHitterModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        if let Some((src, dst)) = headers.addresses() {
            let (src_port, dst_port) = headers.ports();
            let tuple = (src, src_port, dst, dst_port, headers.protocol);
            let mut packets = self.flows.remove(&tuple).unwrap_or_default();
            if !self.is_alive(&packets, now.0) {
                packets.clear();
            }
            packets.push((now.0, u64::from(headers.wire_len)));
            self.flows.insert(tuple, packets);
        }
        Fate::FORWARD
    }
}
