//! Forwards TCP packets of sources that have knocked at the configured ports in order (the port-knocking firewall of state-compute
//! replication, figure 12). Behaviour and choices: `docs/port-knock.md`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use memory::Memory;
use nf::{
    ADDRESS_BYTES, ConfigKey, Context, Description, Flow, IPV6 as IS_IPV6, Meta, NetworkFunction, Opened, PacketSet,
    Reason, RecordReader, RecordWriter, Sharing, Sizing, Speed, Step, Verdict, family_of,
};
use packet::{Fragment, Headers, Host, Nanos, Network, Transport, protocol};
use serde::Deserialize;

use crate::config::{Count, FlowCount, Timeout};
use crate::list::Catalogued;

/// The `port-knock` function.
#[derive(Clone, Debug)]
pub struct PortKnock {
    sizing: Sizing,
    knocks: Knocks,
    ipv6: bool,
    knock_timeout: Nanos,
    idle: Nanos,
}

/// The configuration of [`PortKnock`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The ports to knock at, in order.
    pub ports: Knocks,
    /// IPv6 sources may knock too; if false, IPv6 is dropped.
    pub ipv6: bool,
    /// The time that a source has for its next knock.
    pub knock_timeout: Timeout,
    /// Silence after which an open source is closed.
    pub idle_timeout: Timeout,
    /// Maximum number of IPv4 sources.
    pub flows: FlowCount,
    /// Maximum number of IPv6 sources.
    pub flows_v6: FlowCount,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ports: Knocks { ports: [7000, 8000, 9000, 0, 0, 0, 0, 0], len: 3 },
            ipv6: true,
            knock_timeout: Timeout::from_secs(60),
            idle_timeout: Timeout::from_secs(86_400),
            flows: Count::new(1_048_576),
            flows_v6: Count::new(65_536),
        }
    }
}

/// The ports to knock at, in order: one to eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<u16>")]
pub struct Knocks {
    ports: [u16; 8],
    len: u8,
}

impl Knocks {
    /// Returns true if `port` is the next port after `done` correct knocks.
    #[inline]
    fn is_next(&self, done: u8, port: u16) -> bool {
        done < self.len && self.ports[usize::from(done & 7)] == port
    }
}

impl TryFrom<Vec<u16>> for Knocks {
    type Error = String;

    fn try_from(list: Vec<u16>) -> Result<Self, String> {
        let mut ports = [0; 8];
        match ports.get_mut(..list.len()) {
            Some(room) if !list.is_empty() => room.copy_from_slice(&list),
            _ => return Err(format!("{} ports to knock at: one to eight are allowed", list.len())),
        }
        if list.contains(&0) {
            return Err(String::from("nobody can knock at port 0"));
        }
        Ok(Self { ports, len: list.len() as u8 })
    }
}

/// The metadata of a packet: its source, and the port that it knocks at. Later fragments have no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knock {
    source: Host,
    port: Option<u16>,
}

impl Meta for Knock {
    type Key = Host;

    /// Address family and presence of a port in one byte; the address; the port.
    const RECORD_BYTES: usize = 1 + ADDRESS_BYTES + 2;

    #[inline]
    fn key(&self) -> Host {
        self.source
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        let (address, knocks) = (self.source.address(), if self.port.is_some() { KNOCKS } else { 0 });
        RecordWriter::new(record).u8(family_of(address) | knocks).address(address).u16(self.port.unwrap_or(0)).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let bits = fields.u8()?;
        let source = Host::from(fields.address(bits & IS_IPV6 != 0)?);
        let port = match (bits & !IS_IPV6, fields.u16()?) {
            (0, 0) => None,
            (KNOCKS, port) => Some(port),
            _ => return None,
        };
        fields.end().map(|()| Self { source, port })
    }
}

/// In a record's first byte: there is a port.
const KNOCKS: u8 = 2;

/// The state of a source: the number of correct knocks. A source without a correct knock has no state; a source with as many knocks as
/// there are ports is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress(u8);

impl Flow for Progress {
    nf::in_words!();
}

packet::words! {
    Progress: [1], progress => [progress.0.into()], words => Self(words[0] as u8);
}

const CLOSED: Verdict = Verdict::Drop(Reason::own(0));
const NOT_TCP: Verdict = Verdict::Drop(Reason::own(1));
const IPV6: Verdict = Verdict::Drop(Reason::own(2));

impl PortKnock {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            sizing: Sizing { flows: config.flows.get() as usize, flows_v6: config.flows_v6.get() as usize },
            knocks: config.ports,
            ipv6: config.ipv6,
            knock_timeout: config.knock_timeout.nanos(),
            idle: config.idle_timeout.nanos(),
        }
    }

    fn refuses_ipv6(&self, headers: &Headers) -> bool {
        !self.ipv6 && matches!(headers.network, Network::V6(_))
    }
}

impl Catalogued for PortKnock {
    type Config = Config;

    const CRAMPED: &'static str = "";

    fn from_config(config: Config) -> Self {
        Self::new(&config)
    }
}

impl NetworkFunction for PortKnock {
    type Meta = Knock;
    type Flow = Progress;
    type Shared<M: Memory> = ();
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "port-knock",
        summary: "forwards TCP packets of sources that have knocked at the configured ports in order, and drops all other packets",
        state: "how many correct knocks the source has made",
        sharing: Sharing::Nothing,
        keys: &[
            ConfigKey {
                name: "ports",
                default: "[7000, 8000, 9000]",
                help: "the ports to knock at, in order; one to eight",
            },
            ConfigKey { name: "ipv6", default: "true", help: "IPv6 sources may knock too; if false, IPv6 is dropped" },
            ConfigKey { name: "knock_timeout", default: "60", help: "seconds that a source has for its next knock" },
            ConfigKey {
                name: "idle_timeout",
                default: "86400",
                help: "seconds of silence after which an open source is closed",
            },
            ConfigKey { name: "flows", default: "1048576", help: "maximum number of IPv4 sources" },
            ConfigKey { name: "flows_v6", default: "65536", help: "maximum number of IPv6 sources" },
        ],
        drop_reasons: &["closed", "not-tcp", "ipv6"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn readdresses(&self) -> bool {
        false
    }

    fn sizing(&self) -> Sizing {
        self.sizing
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    #[inline(always)]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Knock> {
        if self.refuses_ipv6(headers) {
            return None;
        }
        let port = match headers.transport {
            Transport::Tcp(tcp) => Some(tcp.dst_port),
            _ if headers.protocol == protocol::TCP && headers.fragment == Fragment::Later => None,
            _ => return None,
        };
        Some(Knock { source: headers.source()?, port })
    }

    #[inline(always)]
    fn other(&self, headers: &Headers) -> Verdict {
        if self.refuses_ipv6(headers) { IPV6 } else { NOT_TCP }
    }

    /// Creates state only for a correct first knock, so a scan doesn't fill the table.
    #[inline]
    fn open<M: Memory>(&self, _cx: &mut Context<'_, Self, M>, meta: &Knock) -> Step<Opened<Progress>, M> {
        Ok(if Self::refuses(self, meta) { Opened::Refused(CLOSED) } else { Opened::Flow(Progress(0)) })
    }

    #[inline]
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        progress: &mut Progress,
        meta: &Knock,
    ) -> Step<Verdict, M> {
        let is_open = progress.0 == self.knocks.len;
        if !is_open {
            let Some(port) = meta.port else { return Ok(CLOSED) };
            if !self.knocks.is_next(progress.0, port) {
                cx.close();
                return Ok(CLOSED);
            }
            progress.0 += 1;
            if progress.0 < self.knocks.len {
                cx.expire_after(self.knock_timeout);
                return Ok(CLOSED);
            }
            cx.assure();
        }
        cx.expire_after(self.idle);
        Ok(Verdict::forward())
    }
}

impl Speed<Self> for PortKnock {
    const SELECTIVE: bool = true;

    #[inline]
    fn refuses(nf: &Self, meta: &Knock) -> bool {
        !meta.port.is_some_and(|port| nf.knocks.is_next(0, port))
    }

    const FOLDS: bool = true;

    /// An open source stays open.
    #[inline]
    fn fold<M: Memory>(
        nf: &Self,
        cx: &mut Context<'_, Self, M>,
        progress: &mut Progress,
        _meta: &Knock,
        _count: u32,
        _first: Nanos,
    ) -> Step<bool, M> {
        let is_open = progress.0 == nf.knocks.len;
        if is_open {
            cx.expire_after(nf.idle);
        }
        Ok(is_open)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use memory::{Local, LocalTx};
    use nf::Effects;
    use packet::Seq;

    use super::*;

    /// Figure 12: a source's packets to these ports, and whether each passes.
    fn check(ports: &[u16], passes: &[bool]) {
        let function = PortKnock::new(&Config::default());
        let mut state = None;
        for (port, passes) in ports.iter().zip(passes) {
            let meta = Knock { source: Host::v4(Ipv4Addr::LOCALHOST), port: (*port != 0).then_some(*port) };
            let mut cx = Context::<PortKnock, Local>::new(&(), LocalTx::default(), Nanos(0), Seq(0));
            if state.is_none() {
                let Ok(opened) = function.open(&mut cx, &meta);
                match opened {
                    Opened::Flow(progress) => state = Some(progress),
                    Opened::Refused(verdict) => assert_eq!(verdict, CLOSED),
                }
            }
            let verdict = match &mut state {
                Some(progress) => function.packet(&mut cx, progress, &meta).unwrap(),
                None => CLOSED,
            };
            assert_eq!(verdict == Verdict::FORWARD, *passes, "{ports:?} at {port}");
            if cx.effects().close {
                state = None;
            }
        }
    }

    #[test]
    fn figure_12() {
        check(&[7000, 8000, 9000, 22, 7000, 1], &[false, false, true, true, true, true]);
        check(&[8000, 7000, 8000, 9000], &[false, false, false, true]);
        check(&[7000, 7000, 8000, 9000], &[false, false, false, false]);
        check(&[7000, 8000, 22, 9000, 7000, 8000, 9000], &[false, false, false, false, false, false, true]);
        check(&[22, 9000, 8000, 7000], &[false; 4]);
    }

    #[test]
    fn later_fragments_change_nothing() {
        check(&[0, 7000, 0, 8000, 0, 0, 9000, 0], &[false, false, false, false, false, false, true, true]);
    }

    #[test]
    fn an_open_source_is_not_evicted() {
        let function = PortKnock::new(&Config::default());
        let mut progress = Progress(2);
        let meta = Knock { source: Host::v4(Ipv4Addr::LOCALHOST), port: Some(9000) };
        let mut cx = Context::<PortKnock, Local>::new(&(), LocalTx::default(), Nanos(9), Seq(0));
        assert_eq!(function.packet(&mut cx, &mut progress, &meta), Ok(Verdict::FORWARD));
        let deadline = Some(Nanos(9) + Nanos::from_secs(86_400));
        assert_eq!(cx.effects(), Effects { deadline, close: false, assured: true });
    }
}
