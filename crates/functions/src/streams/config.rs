//! The settings that all functions over streams share.

use nf::{ConfigKey, Sizing};
use serde::Deserialize;
use stream::{Limits, Policy};

use crate::config::{Count, FlowCount};
use crate::tracking::Rules;
use crate::tracking::rules::{Retransmissions, TIMEOUT_KEYS, Timeouts, join_keys};

/// The table `[streams]` of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamConfig {
    /// Which copy counts where segments overlap.
    overlap: Overlap,
    /// Memory for early segments of all sessions, in mebibytes.
    memory: Count<1, 65_536>,
    /// Early bytes of one side, in kibibytes.
    early: Count<1, 1_048_576>,
    /// Early segments of one side.
    early_segments: Count<1, 65_535>,
    /// Maximum number of IPv4 sessions.
    flows: FlowCount,
    /// Maximum number of IPv6 sessions.
    flows_v6: FlowCount,
    /// Idle timeouts.
    timeouts: Timeouts,
}

/// [`Policy`] in a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Overlap {
    Linux,
    OldLinux,
    Bsd,
    First,
    Last,
    Solaris,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            overlap: Overlap::Linux,
            memory: Count::new(64),
            early: Count::new(1024),
            early_segments: Count::new(1024),
            flows: FlowCount::new(262_144),
            flows_v6: FlowCount::new(65_536),
            timeouts: Timeouts::default(),
        }
    }
}

impl StreamConfig {
    /// The defaults, but for overlaps, which are resolved by the policy of this name; an unknown name stands for the default.
    #[must_use]
    pub fn resolving(policy: &str) -> Self {
        let overlap = match Policy::from_name(policy).unwrap_or_default() {
            Policy::Linux => Overlap::Linux,
            Policy::OldLinux => Overlap::OldLinux,
            Policy::Bsd => Overlap::Bsd,
            Policy::First => Overlap::First,
            Policy::Last => Overlap::Last,
            Policy::Solaris => Overlap::Solaris,
        };
        Self { overlap, ..Self::default() }
    }

    /// The same, but the first copy counts where segments overlap.
    #[must_use]
    pub(crate) const fn taking_first(self) -> Self {
        Self { overlap: Overlap::First, ..self }
    }

    pub(super) const fn policy(&self) -> Policy {
        match self.overlap {
            Overlap::Linux => Policy::Linux,
            Overlap::OldLinux => Policy::OldLinux,
            Overlap::Bsd => Policy::Bsd,
            Overlap::First => Policy::First,
            Overlap::Last => Policy::Last,
            Overlap::Solaris => Policy::Solaris,
        }
    }

    pub(super) const fn limits(&self) -> Limits {
        Limits { early_bytes: (self.early.get() << 10) as u32, early_blocks: self.early_segments.get() as u16 }
    }

    pub(super) const fn memory(&self) -> usize {
        (self.memory.get() as usize) << 20
    }

    pub(super) const fn sizing(&self) -> Sizing {
        Sizing { flows: self.flows.get() as usize, flows_v6: self.flows_v6.get() as usize }
    }

    /// Connections may be picked up midstream. Segments outside the windows are not heard.
    pub(super) fn rules(&self) -> Rules {
        let mut rules = Rules::strict(&self.timeouts, Retransmissions::new(3));
        rules.tcp.loose = true;
        rules
    }
}

/// The number of keys that all functions over streams share.
const KEYS: usize = 6;

/// The keys of [`StreamConfig`], for a function's description.
pub const STREAM_KEYS: StreamKeys = {
    let keys = [
        key(
            "streams.overlap",
            "\"linux\"",
            "whose copy counts where segments overlap: \"linux\", \"old-linux\", \"bsd\", \"first\" (Windows), \"last\", \"solaris\"",
        ),
        key("streams.memory", "64", "memory for early segments of all sessions, in MiB, 1 to 65536"),
        key("streams.early", "1024", "early bytes of one side, in KiB, 1 to 1048576"),
        key("streams.early_segments", "1024", "early segments of one side, 1 to 65535"),
        key("streams.flows", "262144", "maximum number of IPv4 sessions, 1 to 268435456"),
        key("streams.flows_v6", "65536", "maximum number of IPv6 sessions, 1 to 268435456"),
    ];
    let mut timeouts = TIMEOUT_KEYS;
    let mut index = 0;
    while index < timeouts.len() {
        timeouts[index].name = NAMES[index];
        index += 1;
    }
    join_keys(&keys, &timeouts)
};

/// The type of [`STREAM_KEYS`].
pub type StreamKeys = [ConfigKey; KEYS + TIMEOUT_KEYS.len()];

/// The timeouts' names below the table `[streams]`.
const NAMES: [&str; TIMEOUT_KEYS.len()] = [
    "streams.timeouts.tcp_syn_sent",
    "streams.timeouts.tcp_syn_recv",
    "streams.timeouts.tcp_established",
    "streams.timeouts.tcp_fin_wait",
    "streams.timeouts.tcp_close_wait",
    "streams.timeouts.tcp_last_ack",
    "streams.timeouts.tcp_time_wait",
    "streams.timeouts.tcp_close",
    "streams.timeouts.tcp_syn_sent2",
    "streams.timeouts.tcp_retransmitted",
    "streams.timeouts.tcp_unacknowledged",
    "streams.timeouts.udp",
    "streams.timeouts.udp_stream",
    "streams.timeouts.icmp",
    "streams.timeouts.other",
];

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_keep_their_names() {
        for (name, key) in NAMES.iter().zip(&TIMEOUT_KEYS) {
            assert_eq!(name.strip_prefix("streams."), Some(key.name));
        }
    }
}
