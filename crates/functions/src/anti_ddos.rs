//! Detects SYN floods by the share of TCP flows with one packet, and drops new flows meanwhile: listing 2 of NFork, adapted from NFF-Go.
//! Behaviour and choices: `docs/anti-ddos.md`.

mod keys;

use alloc::string::String;
use alloc::vec;

use memory::{Distributed, Memory, Portion};
use nf::{
    Context, Description, Fingerprint, Flow, FlowList, IcmpErrors, Kept, Meta, NetworkFunction, Opened, PacketSet,
    Reason, RecordReader, RecordWriter, Report, Sharing, Sizing, Speed, Step, TUPLE_BYTES, Verdict,
};
use packet::{FiveTuple, Headers, Host, Nanos, Network, Transport, protocol};
use serde::Deserialize;

use crate::config::{Count, FlowCount, Share, Timeout};
use crate::list::Catalogued;

/// The `anti-ddos` function.
#[derive(Clone, Debug)]
pub struct AntiDdos {
    sizing: Sizing,
    /// Share in millionths.
    threshold: u128,
    minimum: i64,
    staleness: Nanos,
    idle: Nanos,
}

/// The configuration of [`AntiDdos`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Share of one-packet flows above which there is an attack.
    pub threshold: Share,
    /// Number of flows from which the share counts.
    pub minimum: Count<0, { u32::MAX as u64 }>,
    /// Microseconds for which a core may use counts that it has read before.
    pub staleness_us: Count<0, 1_000_000>,
    /// Silence after which a flow is forgotten.
    pub idle_timeout: Timeout,
    /// Maximum number of IPv4 flows.
    pub flows: FlowCount,
    /// Maximum number of IPv6 flows.
    pub flows_v6: FlowCount,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threshold: Share::new(0.8),
            minimum: Count::new(1_000),
            staleness_us: Count::new(0),
            idle_timeout: Timeout::from_secs(60),
            flows: Count::new(1_048_576),
            flows_v6: Count::new(65_536),
        }
    }
}

/// The metadata of a packet: its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment(FiveTuple);

impl Meta for Segment {
    type Key = FiveTuple;

    const RECORD_BYTES: usize = TUPLE_BYTES;
    const TELLS_SOURCE: bool = true;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.0
    }

    fn source(&self) -> Option<Host> {
        Some(Host::from(self.0.source().address))
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).tuple(&self.0).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let tuple = fields.tuple()?;
        fields.end()?;
        (tuple.protocol() == protocol::TCP).then_some(Self(tuple))
    }
}

/// How many packets a flow has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packets {
    /// None yet; the flow isn't counted.
    None,
    /// One.
    One,
    /// More than one.
    More,
}

impl Flow for Packets {
    nf::in_words!();
}

/// A core's portion of the counts. It may be negative, because a flow may end on another core than it began on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    flows: i64,
    one_packet: i64,
}

packet::words! {
    Packets: [1], packets => [packets as u64], words => match words[0] {
        0 => Self::None,
        1 => Self::One,
        _ => Self::More,
    };
    Counts: [2], counts => [counts.flows as u64, counts.one_packet as u64],
        words => Self { flows: words[0] as i64, one_packet: words[1] as i64 };
}

impl Portion for Counts {
    fn merge(&mut self, other: &Self) {
        self.flows += other.flows;
        self.one_packet += other.one_packet;
    }
}

const ATTACK: Reason = Reason::own(0);

impl AntiDdos {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            sizing: Sizing { flows: config.flows.get() as usize, flows_v6: config.flows_v6.get() as usize },
            threshold: config.threshold.millionths().into(),
            minimum: config.minimum.get() as i64,
            staleness: Nanos::from_micros(config.staleness_us.get()),
            idle: config.idle_timeout.nanos(),
        }
    }

    fn is_attack(&self, Counts { flows, one_packet }: Counts) -> bool {
        // Stale counts may be inconsistent.
        let [flows, one_packet] = [flows.max(0), one_packet.max(0)];
        flows >= self.minimum
            && u128::from(one_packet.unsigned_abs()) * 1_000_000 > u128::from(flows.unsigned_abs()) * self.threshold
    }
}

impl Catalogued for AntiDdos {
    type Config = Config;

    const CRAMPED: &'static str = r#"
minimum = 2
idle_timeout = 2
"#;
    const SMALL: &'static str = r#"
minimum = 10
idle_timeout = 5
"#;

    fn from_config(config: Config) -> Self {
        Self::new(&config)
    }
}

impl NetworkFunction for AntiDdos {
    type Meta = Segment;
    type Flow = Packets;
    type Shared<M: Memory> = M::Distributed<Counts>;
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "anti-ddos",
        summary: "detects SYN floods by the share of TCP flows with one packet, and drops new flows meanwhile (NFork, listing 2)",
        state: "whether the flow has had one packet or more",
        sharing: Sharing::Shares("the number of flows, and of flows with one packet"),
        keys: keys::KEYS,
        drop_reasons: &["attack"],
        recipes: keys::RECIPES,
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::FiveTuple
    }

    fn icmp_errors(&self) -> IcmpErrors {
        IcmpErrors::None
    }

    fn readdresses(&self) -> bool {
        false
    }

    fn sizing(&self) -> Sizing {
        self.sizing
    }

    fn shared<M: Memory>(&self, memory: &M) -> M::Distributed<Counts> {
        memory.distributed(Counts::default(), self.staleness)
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a M::Distributed<Counts>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        // `Nanos::NEVER` forces a merge.
        let Counts { flows, one_packet } = shared.read(tx, Nanos::NEVER)?;
        fingerprint.add(flows as u64);
        fingerprint.add(one_packet as u64);
        Ok(())
    }

    const KEEPS: bool = true;

    fn keep<'a, M: Memory>(
        &self,
        shared: &'a M::Distributed<Counts>,
        tx: &mut M::Tx<'a>,
        kept: &mut Kept<'_>,
    ) -> Step<(), M> {
        kept.distributed::<M, _>(tx, shared)
    }

    #[inline]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Segment> {
        match headers.transport {
            Transport::Tcp(_) => headers.five_tuple().map(Segment),
            Transport::None | Transport::Udp { .. } | Transport::Icmp(_) | Transport::Sctp { .. } => None,
        }
    }

    #[inline(always)]
    fn other(&self, headers: &Headers) -> Verdict {
        // A host may read it as a SYN.
        match headers.network {
            Network::Unreadable => Verdict::Drop(Reason::UNREADABLE),
            Network::None | Network::Arp | Network::V4(_) | Network::V6(_) => Verdict::FORWARD,
        }
    }

    /// Counts nothing, so a flow without room need not be subtracted again.
    #[inline]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Segment) -> Step<Opened<Packets>, M> {
        Ok(Opened::Flow(Packets::None))
    }

    #[inline]
    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, packets: &mut Packets, _: &Segment) -> Step<Verdict, M> {
        cx.expire_after(self.idle);
        let (counts, now) = (cx.shared, cx.now());
        match packets {
            Packets::None => {
                *packets = Packets::One;
                counts.update(&mut cx.tx, |counts| {
                    counts.flows += 1;
                    counts.one_packet += 1;
                })?;
                if self.is_attack(counts.read(&mut cx.tx, now)?) {
                    return Ok(Verdict::Drop(ATTACK));
                }
            }
            Packets::One => {
                *packets = Packets::More;
                counts.update(&mut cx.tx, |counts| counts.one_packet -= 1)?;
                cx.assure();
            }
            Packets::More => cx.assure(),
        }
        Ok(Verdict::forward())
    }

    fn expire<M: Memory>(&self, cx: &mut Context<'_, Self, M>, packets: &Packets) -> Step<(), M> {
        let (flows, one_packet) = match packets {
            Packets::None => return Ok(()),
            Packets::One => (1, 1),
            Packets::More => (1, 0),
        };
        cx.shared.update(&mut cx.tx, |counts| {
            counts.flows -= flows;
            counts.one_packet -= one_packet;
        })
    }

    fn report<M: Memory>(&self, _: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let (mut one, mut more) = (0_u64, 0_u64);
        for (_, packets) in flows.alive() {
            match packets {
                Packets::None => {}
                Packets::One => one += 1,
                Packets::More => more += 1,
            }
        }
        Ok(Some(Report {
            title: String::from("flows alive, by packets"),
            columns: vec!["packets", "flows"],
            rows: vec![vec!["one".into(), one.into()], vec!["more".into(), more.into()]],
        }))
    }
}

impl Speed<Self> for AntiDdos {
    const FOLDS: bool = true;

    /// From the second packet on only the deadline changes.
    #[inline]
    fn fold<M: Memory>(
        nf: &Self,
        cx: &mut Context<'_, Self, M>,
        packets: &mut Packets,
        _: &Segment,
        _count: u32,
        _first: Nanos,
    ) -> Step<bool, M> {
        if *packets != Packets::More {
            return Ok(false);
        }
        cx.expire_after(nf.idle);
        cx.assure();
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
