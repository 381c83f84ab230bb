//! How long connections live and what is taken on trust: the configuration that functions with connections share.

use nf::ConfigKey;
use packet::Nanos;
use serde::Deserialize;

use super::tcp::{LONG, State};
use crate::config::{Count, Timeout};

/// The `[timeouts]` table of a configuration file: how long a connection may idle, in seconds.
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
    /// TCP, the same segment sent again and again, or a closed window.
    pub tcp_retransmitted: Timeout,
    /// TCP, data not acknowledged.
    pub tcp_unacknowledged: Timeout,
    /// UDP, one way only or shorter than two seconds.
    pub udp: Timeout,
    /// UDP, both ways.
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

/// How many times a segment may come again unanswered.
pub type Retransmissions = Count<1, 255>;

/// What connections are judged by, made ready for the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// TCP's part.
    pub tcp: TcpRules,
    /// How long UDP may idle one way, and while young.
    pub udp: Nanos,
    /// How long UDP may idle once it has proved to be a stream.
    pub udp_stream: Nanos,
    /// How long an ICMP query may idle.
    pub icmp: Nanos,
    /// How long other protocols may idle.
    pub other: Nanos,
}

/// What TCP connections are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpRules {
    /// How long a connection may idle: by its [`State`], and by whether that is `idle_unacknowledged` at most.
    pub idle: [[Nanos; 2]; State::COUNT],
    /// Whether an open connection's idle time is longer than `idle_unacknowledged`: as its status tells it.
    pub(super) long_if_open: u8,
    /// The same as `idle`, when one side keeps sending the same segment, or has closed its window.
    pub idle_retransmitted: Nanos,
    /// The same, while data is not acknowledged.
    pub idle_unacknowledged: Nanos,
    /// From how many repetitions of a segment on `idle_retransmitted` counts.
    pub retransmissions_max: u8,
    /// Whether connections may be picked up half-way.
    pub loose: bool,
    /// Whether segments outside the windows pass, resets apart.
    pub liberal: bool,
    /// Whether resets before the window pass.
    pub ignore_invalid_rst: bool,
}

impl Rules {
    /// Strict rules with these timeouts: no connection is picked up half-way, no segment passes outside the windows.
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

/// The catalogue's entries for [`Timeouts`].
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

/// Two lists of keys as one.
///
/// # Panics
/// When `N` is not the length of both together; at compile time where it is used for a constant.
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
