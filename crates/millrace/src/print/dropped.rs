//! Which packets were dropped: from whom, by reason.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use nf::{Description, Reason};
use port::Packet;
use serde_json::{Value, json};

use super::number::{count, counted};

/// Counts the sources of dropped packets, by reason.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    by_reason: HashMap<Reason, HashMap<IpAddr, u64>>,
    /// How many there are in all.
    known: usize,
}

/// Sources that are told apart, so that a flood of made-up ones doesn't fill the memory.
const SOURCES_MAX: usize = 1 << 18;

/// Who was dropped for one reason, those with most packets first.
pub(crate) struct Dropped {
    pub(crate) reason: Reason,
    /// Packets that came from a source.
    pub(crate) packets: u64,
    pub(crate) sources: Vec<(IpAddr, u64)>,
}

impl Sources {
    /// Adds a packet, as it came in.
    pub(crate) fn add(&mut self, reason: Reason, packet: &Packet, bytes: &[u8]) {
        let parsed = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
        let Some((source, _)) = parsed.ok().and_then(|headers| headers.addresses()) else { return };
        let sources = self.by_reason.entry(reason).or_default();
        if let Some(packets) = sources.get_mut(&source) {
            *packets += 1;
        } else if self.known < SOURCES_MAX {
            sources.insert(source, 1);
            self.known += 1;
        }
    }

    /// The reasons with most packets first.
    pub(crate) fn into_dropped(self) -> Vec<Dropped> {
        let of = |(reason, sources): (Reason, HashMap<IpAddr, u64>)| {
            let mut sources: Vec<(IpAddr, u64)> = sources.into_iter().collect();
            sources.sort_by_key(|(source, packets)| (Reverse(*packets), *source));
            Dropped { reason, packets: sources.iter().map(|(_, packets)| packets).sum(), sources }
        };
        let mut dropped: Vec<Dropped> = self.by_reason.into_iter().map(of).collect();
        dropped.sort_by_key(|dropped| (Reverse(dropped.packets), dropped.reason));
        dropped
    }
}

/// `from 203.0.113.66 (1,000), 203.0.113.129 (40) and 121 others`.
pub(crate) fn from(sources: &[(IpAddr, u64)]) -> String {
    const SHOWN: usize = 2;
    let shown: Vec<String> =
        sources.iter().take(SHOWN).map(|(source, packets)| format!("{source} ({})", count(*packets))).collect();
    match sources.len().saturating_sub(SHOWN) {
        0 => format!("from {}", shown.join(", ")),
        more => format!("from {} and {}", shown.join(", "), counted(more as u64, "other", "others")),
    }
}

/// The same for programs, with the ten sources of each reason that have most packets.
pub(crate) fn json(dropped: &[Dropped], description: &Description) -> Vec<Value> {
    let of = |Dropped { reason, packets, sources }: &Dropped| {
        let top: Vec<Value> = sources
            .iter()
            .take(10)
            .map(|(source, packets)| json!({ "source": source.to_string(), "packets": packets }))
            .collect();
        json!({
            "reason": reason.name(description.drop_reasons), "packets": packets, "sources": sources.len(), "top": top,
        })
    };
    dropped.iter().map(of).collect()
}
