//! The model of `anti-ddos`.

use std::collections::HashMap;

use packet::{Headers, Nanos, Network, Seq, protocol};

use super::{Fate, Model, Tuple};

/// Stores the times of every flow's packets and recounts all flows for each decision.
#[derive(Clone, Debug)]
pub struct AntiDdosModel {
    threshold_percent: usize,
    minimum: usize,
    idle_secs: u64,
    /// Each flow's packets since it was last forgotten.
    flows: HashMap<Tuple, Vec<u64>>,
}

impl AntiDdosModel {
    /// Creates a model with these parameters; the threshold is in percent.
    #[must_use]
    pub fn new(threshold_percent: usize, minimum: usize, idle_secs: u64) -> Self {
        Self { threshold_percent, minimum, idle_secs, flows: HashMap::new() }
    }
}

impl Model for AntiDdosModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        if headers.network == Network::Unreadable {
            return Fate::Drop("unreadable");
        }
        let Some((src, dst)) = headers.addresses().filter(|_| headers.protocol == protocol::TCP) else {
            return Fate::FORWARD;
        };
        let idle = 1_000_000_000 * self.idle_secs;
        let alive = |times: &[u64]| times.last().is_some_and(|last| last + idle > now.0);
        let (src_port, dst_port) = headers.ports();
        let own = self.flows.entry((src, src_port, dst, dst_port, headers.protocol)).or_default();
        if !alive(own) {
            own.clear();
        }
        own.push(now.0);
        let is_first = own.len() == 1;
        let all: Vec<_> = self.flows.values().filter(|times| alive(times)).collect();
        let one = all.iter().filter(|times| times.len() == 1).count();
        let attack = all.len() >= self.minimum && one * 100 > all.len() * self.threshold_percent;
        if is_first && attack { Fate::Drop("attack") } else { Fate::FORWARD }
    }
}
