//! The configuration of `dns-tunnel`, and its keys as the catalogue prints them.

use alloc::vec::Vec;

use memory::transactional::Cause;
use nf::{ConfigKey, Recipe};
use packet::Nanos;
use serde::Deserialize;

use crate::config::{Count, Prefix, Timeout};
use crate::streams::{STREAM_KEYS, StreamConfig, StreamKeys};
use crate::tracking::rules::join_keys;

/// The configuration of [`DnsTunnel`](super::DnsTunnel). Defaults and meanings: `docs/dns-tunnel.md`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Orphans in a window from which a client is suspected to be a tunnel's end.
    pub threshold: Count<1, 1_000_000>,
    /// Length of a window; also how long an answer waits for its use.
    pub window: Timeout,
    /// Count answers that hold no address.
    pub without_address: bool,
    /// What is dropped for a suspected client.
    pub block: Block,
    /// Time without an answer after which a client is forgotten.
    pub idle_timeout: Timeout,
    /// Time after its last answer for which a suspected client stays in the report.
    pub remember: Timeout,
    /// Maximum number of unused answers.
    pub answers: Count<1, 1_048_576>,
    /// Maximum number of clients.
    pub clients: Count<1, 1_048_576>,
    /// Clients that aren't judged.
    pub ignore: Vec<Prefix>,
    /// Number of clients in the report.
    pub top: Count<0, 10_000>,
    /// Reassembly and tracking of DNS over TCP.
    pub streams: StreamConfig,
}

/// What is dropped for a suspected client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Block {
    /// Nothing: tunnels are only reported.
    Nothing,
    /// The client's queries, and the answers to it.
    Dns,
    /// All that the client sends, and the answers to it.
    All,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threshold: Count::new(50),
            window: Timeout::from_secs(300),
            without_address: true,
            block: Block::Nothing,
            idle_timeout: Timeout::from_secs(1_800),
            remember: Timeout::from_secs(86_400),
            answers: Count::new(16_384),
            clients: Count::new(16_384),
            ignore: Vec::new(),
            top: Count::new(10),
            streams: StreamConfig::default(),
        }
    }
}

impl Config {
    /// Time after its last answer for which a client is remembered. At least a window.
    pub(super) fn keep(&self) -> Nanos {
        self.idle_timeout.max(self.window).nanos()
    }

    /// Time after its last answer for which a suspected client stays in the report.
    pub(super) fn remembered(&self) -> Nanos {
        self.remember.nanos().max(self.keep())
    }
}

const fn key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

pub(super) const KEYS: [ConfigKey; 10 + size_of::<StreamKeys>() / size_of::<ConfigKey>()] = join_keys(
    &[
        key(
            "threshold",
            "50",
            "unused answers (orphans) in a window from which a client is suspected to be a tunnel's end; 1 to 1000000",
        ),
        key("window", "300", "length of a window in seconds; also how long an answer waits for its use"),
        key("without_address", "true", "count answers that hold no address, as for TXT, NULL, CNAME and MX"),
        key("block", "\"nothing\"", "what is dropped for a suspected client: nothing, dns or all"),
        key("idle_timeout", "1800", "seconds without an answer after which a client is forgotten"),
        key("remember", "86400", "seconds without an answer after which a suspected client leaves the report"),
        key("answers", "16384", "maximum number of unused answers; 1 to 1048576"),
        key("clients", "16384", "maximum number of clients; 1 to 1048576"),
        key("ignore", "[]", "prefixes of clients that aren't judged: resolvers and mail servers"),
        key("top", "10", "number of clients in the report, most orphans first; 0 to 10000"),
    ],
    &STREAM_KEYS,
);

pub(super) const RECIPES: &[Recipe] = &[
    Recipe { cause: Cause::SameBucket, key: "answers", help: "larger: the map has more buckets" },
    Recipe {
        cause: Cause::MapRoomExhausted,
        key: "answers",
        help: "larger than needed: a core then doesn't use up its share",
    },
    Recipe {
        cause: Cause::PoolExhausted,
        key: "answers",
        help: "larger than needed: a core then doesn't use up its share",
    },
];
