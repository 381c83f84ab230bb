//! The model of `bridge`.

use std::collections::HashMap;

use nf::{PortId, Reason, Verdict};
use packet::{Headers, Mac, Nanos, Seq};

use super::{Fate, Model};

/// Stores port and time of every station's last write.
#[derive(Clone, Debug)]
pub struct BridgeModel {
    ageing_secs: u64,
    refresh_secs: u64,
    stations: HashMap<Mac, (u16, u64)>,
}

const REASONS: [&str; 4] = ["same-side", "reserved-address", "bad-source", "not-ethernet"];

impl BridgeModel {
    /// Creates a model with these parameters, as in the configuration file, with room for every station.
    #[must_use]
    pub fn new(ageing_secs: u64, refresh_secs: u64) -> Self {
        Self { ageing_secs, refresh_secs, stations: HashMap::new() }
    }

    /// Returns the verdict for a packet, including the egress port.
    pub fn verdict(&mut self, now: Nanos, headers: &Headers) -> Verdict {
        let drop = |why: &str| {
            let index = REASONS.iter().position(|reason| *reason == why).expect("it is one of the reasons");
            Verdict::Drop(Reason::own(index as u8))
        };
        let Some((source, destination)) = headers.macs else { return drop("not-ethernet") };
        if source.0[0] % 2 == 1 || source.0 == [0; 6] {
            return drop("bad-source");
        }
        let secs = |secs: u64| 1_000_000_000 * secs;
        let is_fresh =
            |&(port, written): &(u16, u64)| port == headers.interface && now.0 - written <= secs(self.refresh_secs);
        if !self.stations.get(&source).is_some_and(is_fresh) {
            self.stations.insert(source, (headers.interface, now.0));
        }
        let [first, rest @ ..] = destination.0;
        if first == 1 && rest[..4] == [0x80, 0xc2, 0, 0] && rest[4] < 16 {
            return drop("reserved-address");
        }
        let known = self.stations.get(&destination).filter(|(_, written)| now.0 < written + secs(self.ageing_secs));
        match known {
            _ if first % 2 == 1 => Verdict::FORWARD,
            None => Verdict::FORWARD,
            Some((port, _)) if *port == headers.interface => drop("same-side"),
            Some((port, _)) => Verdict::Forward(PortId(*port)),
        }
    }
}

impl Model for BridgeModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        Fate::of(self.verdict(now, headers), &REASONS)
    }
}
