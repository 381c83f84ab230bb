//! Sources of dropped packets, by reason.

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
    /// Number of sources, all reasons together.
    known: usize,
}

/// Maximum number of sources, so spoofed ones can't fill the memory. Packets of further ones are not counted.
const SOURCES_MAX: usize = 1 << 18;

/// Sources of one drop reason, most packets first.
pub(crate) struct Dropped {
    pub(crate) reason: Reason,
    /// Packets of all these sources.
    pub(crate) packets: u64,
    pub(crate) sources: Vec<(IpAddr, u64)>,
}

impl Sources {
    /// Counts a dropped packet.
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

    /// Returns the reasons, most packets first.
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

/// JSON with the ten sources of most packets for each reason.
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
