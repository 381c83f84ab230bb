//! Limits each flow or host to a rate with a token bucket (the token bucket policer of state-compute replication, table 1).
//! Behaviour and choices: `docs/policer.md`.
//!
//! All arithmetic is in whole numbers. A token is 10^-9 bit, so a rate of `n` bits per second adds `n` tokens each nanosecond, and a
//! byte takes 8 * 10^9 tokens. Nothing is rounded, so nothing drifts.

use alloc::string::String;
use core::net::{Ipv4Addr, Ipv6Addr};

use memory::Memory;
use nf::{
    ConfigKey, Context, Description, Flow, IcmpErrors, Meta, NetworkFunction, Opened, PacketSet, Plain, Reason,
    RecordReader, RecordWriter, Sharing, Sizing, Step, TUPLE_BYTES, Verdict,
};
use packet::{FiveTuple, Headers, Nanos, Network};
use serde::Deserialize;

use crate::config::{Count, ErrorFlow, FlowCount, Timeout};
use crate::list::Catalogued;
use crate::rate::Rate;

/// The `policer` function.
#[derive(Clone, Debug)]
pub struct Policer {
    sizing: Sizing,
    per: Per,
    /// Tokens for each nanosecond.
    rate: u64,
    /// Tokens in a full bucket.
    full: u64,
    idle: Nanos,
    errors: ErrorFlow,
}

/// The configuration of [`Policer`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What has its own bucket.
    pub per: Per,
    /// The rate that is allowed in the long run.
    pub rate: Rate,
    /// Bucket size in bytes.
    pub burst: Count<1, 1_000_000_000>,
    /// Time after which an idle bucket is forgotten, but not before it is full.
    pub idle_timeout: Timeout,
    /// The five-tuple of an ICMP error.
    pub icmp_errors: ErrorFlow,
    /// Maximum number of IPv4 buckets.
    pub flows: FlowCount,
    /// Maximum number of IPv6 buckets.
    pub flows_v6: FlowCount,
}

/// What has its own bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// Each five-tuple, by direction.
    FiveTuple,
    /// Each source address.
    Source,
    /// Each destination address.
    Destination,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            per: Per::FiveTuple,
            rate: Rate::from_bits(100_000_000),
            burst: Count::new(125_000),
            idle_timeout: Timeout::from_secs(60),
            icmp_errors: ErrorFlow::Own,
            flows: Count::new(1_048_576),
            flows_v6: Count::new(65_536),
        }
    }
}

/// The metadata of a packet: the key of its bucket, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// If buckets belong to hosts, everything but the host is zero.
    key: FiveTuple,
    bytes: u32,
}

impl Meta for Demand {
    type Key = FiveTuple;

    const RECORD_BYTES: usize = TUPLE_BYTES + 4;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.key
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).tuple(&self.key).u32(self.bytes).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let demand = Self { key: fields.tuple()?, bytes: fields.u32()? };
        fields.end().map(|()| demand)
    }
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    tokens: u64,
    /// Time at which `tokens` was counted.
    counted_at: Nanos,
}

impl Flow for Bucket {
    nf::in_words!();
}

packet::words! {
    Bucket: [2], bucket => [bucket.tokens, bucket.counted_at.0], words => Self {
        tokens: words[0], counted_at: Nanos(words[1])
    };
}

/// Tokens that a byte takes.
const BYTE: u64 = 8 * 1_000_000_000;

const RATE: Reason = Reason::own(0);

impl Policer {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let rate = config.rate.bits();
        let full = config.burst.get() * BYTE;
        Self {
            sizing: Sizing { flows: config.flows.get() as usize, flows_v6: config.flows_v6.get() as usize },
            per: config.per,
            rate,
            full,
            // A forgotten bucket restarts full, so it is forgotten only when it is full.
            idle: config.idle_timeout.nanos().max(Nanos(full.div_ceil(rate))),
            errors: config.icmp_errors,
        }
    }
}

impl Catalogued for Policer {
    type Config = Config;

    const CRAMPED: &'static str = r#"
rate = 1000
burst = 400
idle_timeout = 1
"#;

    fn from_config(config: Config) -> Self {
        Self::new(&config)
    }
}

impl NetworkFunction for Policer {
    type Meta = Demand;
    type Flow = Bucket;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "policer",
        summary: "limits each flow or host to a rate with a token bucket, and drops the packets that exceed it",
        state: "the bucket's tokens and when they were counted",
        sharing: Sharing::Nothing,
        keys: &[
            ConfigKey {
                name: "per",
                default: "\"five-tuple\"",
                help: "what has its own bucket: five-tuple, source or destination",
            },
            ConfigKey {
                name: "rate",
                default: "\"100Mbit\"",
                help: "bytes per second, or text with a unit: 10Mbit, 2.5Gbit, 1.25MB; 1 byte to 10 terabits per second",
            },
            ConfigKey { name: "burst", default: "125000", help: "bucket size in bytes; 1 to 1000000000" },
            ConfigKey {
                name: "idle_timeout",
                default: "60",
                help: "seconds after which an idle bucket is forgotten, but not before it is full",
            },
            ConfigKey {
                name: "icmp_errors",
                default: "\"own\"",
                help: "flow of an ICMP error: own (its own addresses) or quoted (the flow whose packet it quotes)",
            },
            ConfigKey { name: "flows", default: "1048576", help: "maximum number of IPv4 buckets" },
            ConfigKey { name: "flows_v6", default: "65536", help: "maximum number of IPv6 buckets" },
        ],
        drop_reasons: &["rate"],
        recipes: &[],
    };
    /// Buckets keep their tokens, as far as they hold them.
    fn succeed(self, _old: &Self) -> Result<Self, String> {
        Ok(self)
    }

    fn packet_set(&self) -> PacketSet {
        match self.per {
            Per::FiveTuple => PacketSet::FiveTuple,
            Per::Source => PacketSet::Source,
            Per::Destination => PacketSet::Destination,
        }
    }

    fn icmp_errors(&self) -> IcmpErrors {
        self.errors.into()
    }

    fn readdresses(&self) -> bool {
        false
    }

    fn sizing(&self) -> Sizing {
        self.sizing
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    #[inline(always)]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Demand> {
        let (none4, none6) = (Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED);
        let key = match (self.per, headers.network) {
            (Per::FiveTuple, Network::V4(_) | Network::V6(_)) => self.errors.tuple_of(headers)?,
            (Per::Source, Network::V4(ip)) => FiveTuple::v4(ip.src, none4, 0, 0, 0),
            (Per::Source, Network::V6(ip)) => FiveTuple::v6(ip.src, none6, 0, 0, 0),
            (Per::Destination, Network::V4(ip)) => FiveTuple::v4(none4, ip.dst, 0, 0, 0),
            (Per::Destination, Network::V6(ip)) => FiveTuple::v6(none6, ip.dst, 0, 0, 0),
            (_, Network::None | Network::Unreadable | Network::Arp) => return None,
        };
        Some(Demand { key, bytes: headers.wire_len })
    }

    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _meta: &Demand) -> Step<Opened<Bucket>, M> {
        Ok(Opened::Flow(Bucket { tokens: self.full, counted_at: cx.now() }))
    }

    #[inline]
    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, bucket: &mut Bucket, meta: &Demand) -> Step<Verdict, M> {
        cx.expire_after(self.idle);
        // A product or sum that saturates is far above a full bucket.
        let gained = cx.now().since(bucket.counted_at).0.saturating_mul(self.rate);
        bucket.tokens = bucket.tokens.saturating_add(gained).min(self.full);
        bucket.counted_at = cx.now();
        let remaining = bucket.tokens.checked_sub(u64::from(meta.bytes).saturating_mul(BYTE));
        // Without an unpredictable branch: a replica that only replays needs no verdict.
        bucket.tokens = remaining.unwrap_or(bucket.tokens);
        Ok(if remaining.is_some() { Verdict::forward() } else { Verdict::Drop(RATE) })
    }
}

#[cfg(test)]
mod tests {
    use memory::{Local, LocalTx};
    use packet::Seq;

    use super::*;

    struct Meter {
        policer: Policer,
        bucket: Bucket,
    }

    impl Meter {
        fn new(rate_bits: u64, burst: u64) -> Self {
            let config = Config { rate: Rate::from_bits(rate_bits), burst: Count::new(burst), ..Config::default() };
            let policer = Policer::new(&config);
            Self { bucket: Bucket { tokens: policer.full, counted_at: Nanos(0) }, policer }
        }

        fn passes(&mut self, now: u64, bytes: u32) -> bool {
            let key = FiveTuple::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED, 0, 0, 0);
            let mut cx = Context::<Policer, Local>::new(&(), LocalTx::default(), Nanos(now), Seq(0));
            let Ok(verdict) = self.policer.packet(&mut cx, &mut self.bucket, &Demand { key, bytes });
            verdict == Verdict::FORWARD
        }
    }

    #[test]
    fn a_byte_comes_back_at_its_nanosecond_and_not_before() {
        // Three bytes a second: one is due every 333,333,333.33 ns.
        let mut meter = Meter::new(24, 3);
        assert!(meter.passes(0, 3));
        assert!(!meter.passes(333_333_333, 1));
        assert!(meter.passes(333_333_334, 1));
        assert!(!meter.passes(666_666_666, 1), "the rest of a nanosecond counts");
        assert!(meter.passes(666_666_667, 1));
        assert!(meter.passes(1_000_000_000, 1));
        assert_eq!(meter.bucket.tokens, 0, "exactly three bytes in a second");
    }

    #[test]
    fn the_long_run_is_exact() {
        // A packet of 100 bytes every 1001 ns is 799.2 Mbit/s; 333,333,333 bit/s of that are allowed.
        let (rate, burst, packets) = (333_333_333, 1_000, 1_000_000_u64);
        let mut meter = Meter::new(rate, burst);
        let passed = (0..packets).filter(|number| meter.passes(number * 1001, 100)).count() as u128;
        let earned = u128::from(packets - 1) * 1001 * u128::from(rate) + u128::from(burst * BYTE);
        let spent = passed * 100 * u128::from(BYTE);
        assert_eq!(earned - spent, u128::from(meter.bucket.tokens));
    }

    #[test]
    fn what_is_dropped_costs_nothing_and_what_exceeds_the_burst_never_passes() {
        let mut meter = Meter::new(8_000, 1_000);
        assert!(!meter.passes(0, 1_001));
        assert!(!meter.passes(0, u32::MAX));
        assert!(meter.passes(0, 1_000));
        assert!(!meter.passes(u64::MAX, 1_001));
        assert!(meter.passes(u64::MAX, 1_000));
    }

    #[test]
    fn a_bucket_is_not_forgotten_before_it_is_full() {
        assert_eq!(Meter::new(8, 3_600).policer.idle, Nanos::from_secs(3_600));
        assert_eq!(Meter::new(8_000, 3_600).policer.idle, Nanos::from_secs(60));
    }
}
