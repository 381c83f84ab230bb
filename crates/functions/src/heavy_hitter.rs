//! Counts packets and bytes of every five-tuple and reports the largest flows (the heavy hitter monitor of state-compute replication,
//! table 1). It drops only packets without a flow: later fragments and malformed packets. Behaviour and choices:
//! `docs/heavy-hitter.md`.

use alloc::string::{String, ToString};
use alloc::vec;
use core::hint::cold_path;

use memory::Memory;
use nf::{
    ConfigKey, Context, Description, Flow, FlowList, IcmpErrors, Meta, NetworkFunction, Opened, PacketSet,
    RecordReader, RecordWriter, Report, Sharing, Sizing, Speed, Step, Sum, TUPLE_BYTES, Verdict,
};
use packet::{FiveTuple, Headers, Host, Nanos, protocol};
use serde::Deserialize;

use crate::config::{Count, ErrorFlow, FlowCount, Timeout};
use crate::list::Catalogued;
use crate::top::heaviest;

/// The `heavy-hitter` function.
#[derive(Clone, Debug)]
pub struct HeavyHitter {
    sizing: Sizing,
    heavy_bytes: u64,
    idle: Nanos,
    top: usize,
    errors: ErrorFlow,
}

/// The configuration of [`HeavyHitter`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bytes from which a flow is heavy. Heavy flows are not evicted from a full table.
    pub heavy_bytes: Count<1, { i64::MAX as u64 }>,
    /// Silence after which a flow is forgotten.
    pub idle_timeout: Timeout,
    /// The five-tuple of an ICMP error.
    pub icmp_errors: ErrorFlow,
    /// Maximum number of IPv4 flows.
    pub flows: FlowCount,
    /// Maximum number of IPv6 flows.
    pub flows_v6: FlowCount,
    /// Number of flows in the report.
    pub top: Count<0, 10_000>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            heavy_bytes: Count::new(1_000_000),
            idle_timeout: Timeout::from_secs(3_600),
            icmp_errors: ErrorFlow::Own,
            flows: Count::new(1_048_576),
            flows_v6: Count::new(65_536),
            top: Count::new(10),
        }
    }
}

/// The metadata of a packet: its flow and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    tuple: FiveTuple,
    bytes: u32,
}

impl Meta for Carried {
    type Key = FiveTuple;

    const RECORD_BYTES: usize = TUPLE_BYTES + 4;

    const TELLS_SOURCE: bool = true;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.tuple
    }

    fn source(&self) -> Option<Host> {
        Some(Host::from(self.tuple.source().address))
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        RecordWriter::new(record).tuple(&self.tuple).u32(self.bytes).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let carried = Self { tuple: fields.tuple()?, bytes: fields.u32()? };
        fields.end().map(|()| carried)
    }
}

/// The state of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    packets: u64,
    /// Bytes of the frames on the wire, without the frame check sequence.
    bytes: u64,
}

impl Flow for Volume {
    nf::in_words!();
}

packet::words! {
    Volume: [2], volume => [volume.packets, volume.bytes], words => Self { packets: words[0], bytes: words[1] };
}

impl HeavyHitter {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            sizing: Sizing { flows: config.flows.get() as usize, flows_v6: config.flows_v6.get() as usize },
            heavy_bytes: config.heavy_bytes.get(),
            idle: config.idle_timeout.nanos(),
            top: config.top.get() as usize,
            errors: config.icmp_errors,
        }
    }

    /// Returns true if the last `last` bytes made the flow heavy. That happens once in a flow, so the branch is predictable.
    #[inline(always)]
    const fn became_heavy(&self, flow: &Volume, last: u64) -> bool {
        flow.bytes.wrapping_sub(self.heavy_bytes) < last
    }
}

impl Catalogued for HeavyHitter {
    type Config = Config;

    const CRAMPED: &'static str = r#"
heavy_bytes = 200
idle_timeout = 2
"#;

    fn from_config(config: Config) -> Self {
        Self::new(&config)
    }
}

impl NetworkFunction for HeavyHitter {
    type Meta = Carried;
    type Flow = Volume;
    type Shared<M: Memory> = ();
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "heavy-hitter",
        summary: "counts packets and bytes of every flow and reports the largest flows; drops only packets without a flow (later fragments, malformed packets)",
        state: "the flow's packets and bytes",
        sharing: Sharing::Nothing,
        keys: &[
            ConfigKey {
                name: "heavy_bytes",
                default: "1000000",
                help: "bytes from which a flow is heavy; heavy flows are not evicted from a full table",
            },
            ConfigKey {
                name: "idle_timeout",
                default: "3600",
                help: "seconds of silence after which a flow is forgotten",
            },
            ConfigKey {
                name: "icmp_errors",
                default: "\"own\"",
                help: "flow of an ICMP error: own (its own addresses) or quoted (the flow whose packet it quotes)",
            },
            ConfigKey { name: "flows", default: "1048576", help: "maximum number of IPv4 flows" },
            ConfigKey { name: "flows_v6", default: "65536", help: "maximum number of IPv6 flows" },
            ConfigKey { name: "top", default: "10", help: "number of flows in the report; 0 to 10000" },
        ],
        drop_reasons: &[],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::FiveTuple
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
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Carried> {
        self.errors.tuple_of(headers).map(|tuple| Carried { tuple, bytes: headers.wire_len })
    }

    #[inline]
    fn open<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, _meta: &Carried) -> Step<Opened<Volume>, M> {
        Ok(Opened::Flow(Volume::default()))
    }

    #[inline]
    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &mut Volume, meta: &Carried) -> Step<Verdict, M> {
        cx.expire_after(self.idle);
        flow.packets += 1;
        flow.bytes += u64::from(meta.bytes);
        if self.became_heavy(flow, meta.bytes.into()) {
            cold_path();
            cx.assure();
        }
        Ok(Verdict::forward())
    }

    /// Forwards packets without room for their flow: a full monitor doesn't stop the traffic.
    fn orphan<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, _meta: &Carried) -> Step<Verdict, M> {
        Ok(Verdict::forward())
    }

    fn report<M: Memory>(&self, _: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let row = |(tuple, flow): (FiveTuple, Volume)| {
            vec![
                tuple.source().to_string().into(),
                tuple.destination().to_string().into(),
                protocol_name(tuple.protocol()).into(),
                flow.packets.into(),
                flow.bytes.into(),
            ]
        };
        Ok(Some(Report {
            title: String::from("largest flows"),
            columns: vec!["source", "destination", "protocol", "packets", "bytes"],
            rows: heaviest(&mut flows.alive(), self.top, |flow| flow.bytes).into_iter().map(row).collect(),
        }))
    }
}

impl Speed<Self> for HeavyHitter {
    const FOLDS: bool = true;

    #[inline]
    fn fold<M: Memory>(
        nf: &Self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Volume,
        meta: &Carried,
        count: u32,
        _first: Nanos,
    ) -> Step<bool, M> {
        cx.expire_after(nf.idle);
        let amount = u64::from(meta.bytes) * u64::from(count);
        Self::add(nf, flow, &Sum { count, amount, last: cx.now() });
        if nf.became_heavy(flow, amount) {
            cx.assure();
        }
        Ok(true)
    }

    const ADDS: bool = true;

    #[inline]
    fn amount(meta: &Carried) -> u32 {
        meta.bytes
    }

    #[inline]
    fn add(_: &Self, flow: &mut Volume, sum: &Sum) -> bool {
        flow.packets += u64::from(sum.count);
        flow.bytes += sum.amount;
        true
    }
}

fn protocol_name(number: u8) -> String {
    protocol::name(number).map_or_else(|| number.to_string(), String::from)
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use memory::{Local, LocalTx};
    use packet::Seq;

    use super::*;
    use crate::testing::report_of;

    fn tuple(last: u8) -> FiveTuple {
        FiveTuple::v4(Ipv4Addr::new(10, 0, 0, last), Ipv4Addr::new(10, 9, 9, 9), 1000, 53, protocol::UDP)
    }

    #[test]
    fn counts_and_keeps_the_heavy() {
        let function = HeavyHitter::new(&Config { heavy_bytes: Count::new(150), ..Config::default() });
        let mut flow = Volume::default();
        for (bytes, assured) in [(100, false), (49, false), (1, true), (60, false)] {
            let mut cx = Context::<HeavyHitter, Local>::new(&(), LocalTx::default(), Nanos(5), Seq(0));
            let Ok(verdict) = function.packet(&mut cx, &mut flow, &Carried { tuple: tuple(1), bytes });
            assert_eq!(verdict, Verdict::FORWARD);
            assert_eq!(cx.effects().assured, assured);
            assert_eq!(cx.effects().deadline, Some(Nanos(5) + Nanos::from_secs(3600)));
        }
        assert_eq!(flow, Volume { packets: 4, bytes: 210 });
    }

    #[test]
    fn a_full_table_stops_no_traffic() {
        let function = HeavyHitter::new(&Config::default());
        let mut cx = Context::<HeavyHitter, Local>::new(&(), LocalTx::default(), Nanos(0), Seq(0));
        assert_eq!(function.orphan(&mut cx, &Carried { tuple: tuple(1), bytes: 60 }), Ok(Verdict::FORWARD));
    }

    #[test]
    fn the_report_is_ordered_by_bytes() {
        let function = HeavyHitter::new(&Config { top: Count::new(2), ..Config::default() });
        let volume = |bytes| Volume { packets: 2, bytes };
        let flows = [(tuple(1), volume(7)), (tuple(2), volume(9)), (tuple(3), volume(8))].into_iter();
        let report = report_of(&function, flows).unwrap();
        assert_eq!(report.rows[0], ["10.0.0.2:1000", "10.9.9.9:53", "udp", "2", "9"]);
        assert_eq!(report.rows.len(), 2);
    }
}
