//! Limits how many TCP connections a source may open in a second, with a token bucket of SYNs for each source. Behaviour and choices:
//! `docs/syn-limit.md`.
//!
//! All arithmetic is in whole numbers. A token is 10^-9 SYN, so a rate of `n` SYNs a second adds `n` tokens each nanosecond.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use memory::Memory;
use nf::{
    ConfigKey, Context, Description, Flow, FlowList, HOST_BYTES, Meta, NetworkFunction, Opened, PacketSet, Plain,
    Reason, RecordReader, RecordWriter, Report, Sharing, Sizing, Step, Verdict,
};
use packet::{Headers, Host, Nanos, TcpFlags, Transport};
use serde::Deserialize;

use crate::config::{Count, FlowCount, Prefix, Timeout};
use crate::list::Catalogued;
use crate::top::heaviest;

/// The `syn-limit` function.
#[derive(Clone, Debug)]
pub struct SynLimit {
    config: Config,
    /// Tokens in a full bucket.
    full: u64,
    idle: Nanos,
}

/// The configuration of [`SynLimit`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// SYNs a second that a source may send in the long run.
    pub rate: Count<1, 10_000_000>,
    /// SYNs that may come at once.
    pub burst: Count<1, 1_000_000>,
    /// Sources that are not limited.
    pub allow: Vec<Prefix>,
    /// Silence after which a source is forgotten, but not before its bucket is full.
    pub idle_timeout: Timeout,
    /// Maximum number of IPv4 sources.
    pub flows: FlowCount,
    /// Maximum number of IPv6 sources.
    pub flows_v6: FlowCount,
    /// Number of sources in the report.
    pub top: Count<0, 10_000>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rate: Count::new(50),
            burst: Count::new(100),
            allow: Vec::new(),
            idle_timeout: Timeout::from_secs(60),
            flows: Count::new(1_048_576),
            flows_v6: Count::new(65_536),
            top: Count::new(10),
        }
    }
}

/// The metadata of a SYN: its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening(Host);

impl Meta for Opening {
    type Key = Host;

    const RECORD_BYTES: usize = HOST_BYTES;

    #[inline]
    fn key(&self) -> Host {
        self.0
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).host(&self.0).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let opening = Self(fields.host()?);
        fields.end().map(|()| opening)
    }
}

/// The state of a source: its token bucket and its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    tokens: u64,
    /// Time at which `tokens` was counted.
    counted_at: Nanos,
    /// SYNs since the source became known, dropped ones included.
    syns: u64,
    dropped: u64,
}

impl Flow for Source {
    nf::in_words!();
}

packet::words! {
    Source: [4], source => [source.tokens, source.counted_at.0, source.syns, source.dropped], words => Self {
        tokens: words[0], counted_at: Nanos(words[1]), syns: words[2], dropped: words[3]
    };
}

/// Tokens that a SYN takes.
const SYN: u64 = 1_000_000_000;

const SYN_RATE: Reason = Reason::own(0);

impl SynLimit {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let full = config.burst.get() * SYN;
        // A forgotten bucket restarts full, so it is forgotten only when it is full.
        let idle = config.idle_timeout.nanos().max(Nanos(full.div_ceil(config.rate.get())));
        Self { config, full, idle }
    }
}

impl Catalogued for SynLimit {
    type Config = Config;

    const CRAMPED: &'static str = r#"
rate = 1
burst = 2
allow = ["192.0.2.0/24"]
idle_timeout = 1
"#;
    const SMALL: &'static str = r#"
rate = 2
burst = 3
allow = ["192.168.0.0/24", "2001:db8::/32"]
idle_timeout = 2
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for SynLimit {
    type Meta = Opening;
    type Flow = Source;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "syn-limit",
        summary: "limits how many TCP connections a source may open in a second, and drops the SYNs that exceed it",
        state: "the source's token bucket, its number of SYNs and of dropped SYNs",
        sharing: Sharing::Nothing,
        keys: &[
            ConfigKey {
                name: "rate",
                default: "50",
                help: "SYNs a second that a source may send in the long run; 1 to 10000000",
            },
            ConfigKey { name: "burst", default: "100", help: "SYNs that may come at once; 1 to 1000000" },
            ConfigKey { name: "allow", default: "[]", help: "sources that are not limited: a list of prefixes" },
            ConfigKey {
                name: "idle_timeout",
                default: "60",
                help: "seconds of silence after which a source is forgotten, but not before its bucket is full",
            },
            ConfigKey { name: "flows", default: "1048576", help: "maximum number of IPv4 sources" },
            ConfigKey { name: "flows_v6", default: "65536", help: "maximum number of IPv6 sources" },
            ConfigKey { name: "top", default: "10", help: "number of sources in the report; 0 to 10000" },
        ],
        drop_reasons: &["syn-rate"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn readdresses(&self) -> bool {
        false
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: self.config.flows.get() as usize, flows_v6: self.config.flows_v6.get() as usize }
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    #[inline(always)]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Opening> {
        let Transport::Tcp(tcp) = headers.transport else { return None };
        if !tcp.flags.contains(TcpFlags::SYN) || tcp.flags.contains(TcpFlags::ACK) {
            return None;
        }
        let (source, _) = headers.addresses()?;
        let is_allowed = self.config.allow.iter().any(|prefix| prefix.contains(source));
        if is_allowed { None } else { headers.source().map(Opening) }
    }

    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _meta: &Opening) -> Step<Opened<Source>, M> {
        Ok(Opened::Flow(Source { tokens: self.full, counted_at: cx.now(), syns: 0, dropped: 0 }))
    }

    #[inline]
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        source: &mut Source,
        _meta: &Opening,
    ) -> Step<Verdict, M> {
        cx.expire_after(self.idle);
        // A product or sum that saturates is far above a full bucket.
        let gained = cx.now().since(source.counted_at).0.saturating_mul(self.config.rate.get());
        source.tokens = source.tokens.saturating_add(gained).min(self.full);
        source.counted_at = cx.now();
        source.syns += 1;
        let Some(remaining) = source.tokens.checked_sub(SYN) else {
            source.dropped += 1;
            // A flood of spoofed sources must not evict sources that are known to exceed their rate.
            cx.assure();
            return Ok(Verdict::Drop(SYN_RATE));
        };
        source.tokens = remaining;
        Ok(Verdict::forward())
    }

    fn report<M: Memory>(&self, _: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let row =
            |(host, source): (Host, Source)| vec![host.to_string().into(), source.syns.into(), source.dropped.into()];
        Ok(Some(Report {
            title: String::from("sources that exceeded the rate"),
            columns: vec!["source", "SYNs", "dropped"],
            rows: heaviest(&mut flows.alive(), self.config.top.get() as usize, |source| source.dropped)
                .into_iter()
                .map(row)
                .collect(),
        }))
    }
}
