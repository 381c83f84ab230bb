//! The timeouts and options that functions with connections share.

use nf::ConfigKey;
use packet::Nanos;
use serde::Deserialize;

use super::tcp::{LONG, State};
use crate::config::{Count, Timeout};

/// The `[timeouts]` table of a configuration file: idle timeouts in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// TCP, SYN sent.
    pub tcp_syn_sent: Timeout,
    /// TCP, SYN answered.
    pub tcp_syn_recv: Timeout,
    /// TCP, open.
    pub tcp_established: Timeout,
    /// TCP, FIN sent by one side.
    pub tcp_fin_wait: Timeout,
    /// TCP, that FIN acknowledged.
    pub tcp_close_wait: Timeout,
    /// TCP, FIN sent by both sides.
    pub tcp_last_ack: Timeout,
    /// TCP, both FINs acknowledged.
    pub tcp_time_wait: Timeout,
    /// TCP, reset.
    pub tcp_close: Timeout,
    /// TCP, SYN sent by both sides.
    pub tcp_syn_sent2: Timeout,
    /// TCP, upper limit while the same segment is retransmitted, or a window is closed.
    pub tcp_retransmitted: Timeout,
    /// TCP, upper limit while data is not acknowledged.
    pub tcp_unacknowledged: Timeout,
    /// UDP, one direction only, or younger than two seconds.
    pub udp: Timeout,
    /// UDP, both directions.
    pub udp_stream: Timeout,
    /// ICMP queries.
    pub icmp: Timeout,
    /// Any other protocol.
    pub other: Timeout,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_syn_sent: Timeout::from_secs(120),
            tcp_syn_recv: Timeout::from_secs(60),
            tcp_established: Timeout::from_secs(432_000),
            tcp_fin_wait: Timeout::from_secs(120),
            tcp_close_wait: Timeout::from_secs(60),
            tcp_last_ack: Timeout::from_secs(30),
            tcp_time_wait: Timeout::from_secs(120),
            tcp_close: Timeout::from_secs(10),
            tcp_syn_sent2: Timeout::from_secs(120),
            tcp_retransmitted: Timeout::from_secs(300),
            tcp_unacknowledged: Timeout::from_secs(300),
            udp: Timeout::from_secs(30),
            udp_stream: Timeout::from_secs(120),
            icmp: Timeout::from_secs(30),
            other: Timeout::from_secs(600),
        }
    }
}

/// Number of repetitions of one segment without an answer.
pub type Retransmissions = Count<1, 255>;

/// The timeouts and options, prepared for the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Rules for TCP.
    pub tcp: TcpRules,
    /// Idle timeout of UDP in one direction, or while young.
    pub udp: Nanos,
    /// Idle timeout of a UDP stream.
    pub udp_stream: Nanos,
    /// Idle timeout of ICMP queries.
    pub icmp: Nanos,
    /// Idle timeout of other protocols.
    pub other: Nanos,
}

/// The timeouts and options for TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpRules {
    /// Idle timeout by [`State`]; the second of each pair is limited to `idle_unacknowledged`.
    pub idle: [[Nanos; 2]; State::COUNT],
    /// The status bit [`LONG`] if the timeout of an open connection exceeds `idle_unacknowledged`, else 0.
    pub(super) long_if_open: u8,
    /// Upper limit of `idle` while one side retransmits the same segment, or has closed its window.
    pub idle_retransmitted: Nanos,
    /// Upper limit of `idle` while data is not acknowledged.
    pub idle_unacknowledged: Nanos,
    /// Number of repetitions of a segment from which `idle_retransmitted` applies.
    pub retransmissions_max: u8,
    /// Connections may be picked up midstream.
    pub loose: bool,
    /// Forward segments outside the windows, except resets before the window.
    pub liberal: bool,
    /// Forward resets before the window, too.
    pub ignore_invalid_rst: bool,
}

impl Rules {
    /// Creates strict rules with these timeouts: no midstream pick-up, no segment outside the windows.
    #[must_use]
    pub fn strict(timeouts: &Timeouts, retransmissions_max: Retransmissions) -> Self {
        let t = timeouts;
        let idle = [
            // No connection stays in State::None.
            t.tcp_syn_sent.nanos(),
            t.tcp_syn_sent.nanos(),
            t.tcp_syn_recv.nanos(),
            t.tcp_established.nanos(),
            t.tcp_fin_wait.nanos(),
            t.tcp_close_wait.nanos(),
            t.tcp_last_ack.nanos(),
            t.tcp_time_wait.nanos(),
            t.tcp_close.nanos(),
            t.tcp_syn_sent2.nanos(),
        ];
        let long = if t.tcp_established > t.tcp_unacknowledged { LONG } else { 0 };
        Self {
            tcp: TcpRules {
                idle: idle.map(|idle| [idle, idle.min(t.tcp_unacknowledged.nanos())]),
                long_if_open: long,
                idle_retransmitted: t.tcp_retransmitted.nanos(),
                idle_unacknowledged: t.tcp_unacknowledged.nanos(),
                retransmissions_max: retransmissions_max.get() as u8,
                loose: false,
                liberal: false,
                ignore_invalid_rst: false,
            },
            udp: t.udp.nanos(),
            udp_stream: t.udp_stream.nanos(),
            icmp: t.icmp.nanos(),
            other: t.other.nanos(),
        }
    }
}

/// The configuration keys of [`Timeouts`].
pub const TIMEOUT_KEYS: [ConfigKey; 15] = [
    timeout("timeouts.tcp_syn_sent", "120", "idle seconds of a TCP connection after the SYN"),
    timeout("timeouts.tcp_syn_recv", "60", "idle seconds after the SYN+ACK"),
    timeout("timeouts.tcp_established", "432000", "idle seconds of an open TCP connection (five days)"),
    timeout("timeouts.tcp_fin_wait", "120", "idle seconds after one side's FIN"),
    timeout("timeouts.tcp_close_wait", "60", "idle seconds after that FIN is acknowledged"),
    timeout("timeouts.tcp_last_ack", "30", "idle seconds after both sides' FIN"),
    timeout("timeouts.tcp_time_wait", "120", "idle seconds after both FINs are acknowledged"),
    timeout("timeouts.tcp_close", "10", "idle seconds after a reset"),
    timeout("timeouts.tcp_syn_sent2", "120", "idle seconds after both sides' SYN (simultaneous open)"),
    timeout(
        "timeouts.tcp_retransmitted",
        "300",
        "upper limit of idle seconds while a segment is retransmitted again and again, or a window is closed",
    ),
    timeout("timeouts.tcp_unacknowledged", "300", "upper limit of idle seconds while data is not acknowledged"),
    timeout("timeouts.udp", "30", "idle seconds of UDP in one direction only, or younger than two seconds"),
    timeout("timeouts.udp_stream", "120", "idle seconds of UDP in both directions"),
    timeout("timeouts.icmp", "30", "idle seconds of an ICMP query"),
    timeout("timeouts.other", "600", "idle seconds of any other protocol"),
];

const fn timeout(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

/// Joins two lists of keys.
///
/// # Panics
/// If `N` is not the sum of both lengths; at compile time in a constant.
#[must_use]
pub const fn join_keys<const N: usize>(first: &[ConfigKey], second: &[ConfigKey]) -> [ConfigKey; N] {
    assert!(first.len() + second.len() == N);
    let mut keys = [ConfigKey { name: "", default: "", help: "" }; N];
    let mut index = 0;
    while index < N {
        keys[index] = if index < first.len() { first[index] } else { second[index - first.len()] };
        index += 1;
    }
    keys
}
