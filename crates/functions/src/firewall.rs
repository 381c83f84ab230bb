//! A stateful firewall: inside may open connections, outside may only answer, apart from services that are named.
//!
//! Connections are judged as `conntrack` judges them, see [`tracking`](crate::tracking); README: `docs/firewall.md`.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use memory::Memory;
use nf::{
    ConfigKey, Context, Description, NetworkFunction, Opened, PacketSet, Reason, Reply, Report, Sharing, Sizing, Step,
    Verdict,
};
use packet::{FiveTuple, Headers, protocol};
use serde::Deserialize;

use crate::config::{Count, Flows, Prefix};
use crate::conntrack::count_by_state;
use crate::tracking::rules::{Retransmissions, TIMEOUT_KEYS, join_keys};
use crate::tracking::{Cause, Connection, Direction, Event, Observation, Outcome, Rules, Timeouts, Unobserved, tcp};

/// Lets inside open connections and outside answer them.
#[derive(Clone, Debug)]
pub struct Firewall {
    rules: Rules,
    inside: Vec<Prefix>,
    inside_interfaces: Vec<u16>,
    allow: Vec<Service>,
    reject: bool,
    icmp_errors: bool,
    non_ip: NonIp,
    sizing: Sizing,
}

/// The configuration of [`Firewall`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The addresses that are inside.
    pub inside: Vec<Prefix>,
    /// The interfaces that inside is behind. Where there are any, a packet is from inside by its interface alone.
    pub inside_interfaces: Vec<u16>,
    /// The services inside that outside may use.
    pub allow: Vec<Service>,
    /// Whether TCP segments that may not open a connection are answered by a reset.
    pub reject: bool,
    /// Whether ICMP errors about known connections pass.
    pub icmp_errors: bool,
    /// What becomes of packets that are neither IPv4 nor IPv6.
    pub non_ip: NonIp,
    /// Whether inside may pick up TCP connections half-way.
    pub loose: bool,
    /// From how many repetitions of a TCP segment on `timeouts.tcp_retransmitted` counts.
    pub max_retransmissions: Retransmissions,
    /// IPv4 connections.
    pub flows: Flows,
    /// IPv6 connections.
    pub flows_v6: Flows,
    /// How long connections may idle.
    pub timeouts: Timeouts,
}

/// What becomes of packets that are neither IPv4 nor IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonIp {
    /// They pass: address resolution must, where the firewall is a bridge.
    Forward,
    /// They are dropped.
    Drop,
}

/// A service inside that outside may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ServiceEntry")]
pub struct Service {
    protocol: ServiceProtocol,
    /// Any port where there is none.
    port: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ServiceProtocol {
    Tcp,
    Udp,
    Sctp,
    /// ICMP and ICMPv6 queries.
    Icmp,
}

/// A service as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceEntry {
    proto: ServiceProtocol,
    port: Option<Count<1, 65_535>>,
}

impl TryFrom<ServiceEntry> for Service {
    type Error = String;

    fn try_from(entry: ServiceEntry) -> Result<Self, String> {
        match (entry.proto, entry.port) {
            (ServiceProtocol::Icmp, Some(_)) => Err("icmp has no ports: leave `port` out".into()),
            (protocol, port) => Ok(Self { protocol, port: port.map(|port| port.get() as u16) }),
        }
    }
}

impl Service {
    fn takes(self, event: &Event, tuple: &FiveTuple) -> bool {
        let protocol = match self.protocol {
            ServiceProtocol::Tcp => matches!(event, Event::Tcp(_)),
            ServiceProtocol::Udp => matches!(event, Event::Udp),
            ServiceProtocol::Sctp => matches!(event, Event::Other) && tuple.protocol() == protocol::SCTP,
            ServiceProtocol::Icmp => matches!(event, Event::Query(_)),
        };
        protocol && self.port.is_none_or(|port| port == tuple.destination().port)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            inside: [
                Prefix::v4(Ipv4Addr::new(10, 0, 0, 0), 8),
                Prefix::v4(Ipv4Addr::new(172, 16, 0, 0), 12),
                Prefix::v4(Ipv4Addr::new(192, 168, 0, 0), 16),
                Prefix::v6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
                Prefix::v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
            ]
            .into(),
            inside_interfaces: Vec::new(),
            allow: Vec::new(),
            reject: false,
            icmp_errors: true,
            non_ip: NonIp::Forward,
            loose: false,
            max_retransmissions: Retransmissions::new(3),
            flows: Flows::new(1_048_576),
            flows_v6: Flows::new(65_536),
            timeouts: Timeouts::default(),
        }
    }
}

const KEYS: [ConfigKey; 25] = join_keys(
    &[
        ConfigKey {
            name: "inside",
            default: r#"["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10"]"#,
            help: "the addresses that are inside, as prefixes",
        },
        ConfigKey {
            name: "inside_interfaces",
            default: "[]",
            help: "the interfaces that inside is behind, by number; where there are any, sources are judged by them alone",
        },
        ConfigKey {
            name: "allow",
            default: "[]",
            help: "services inside that outside may use: { proto = \"tcp\", port = 22 }, proto tcp, udp, sctp or icmp, no port for any",
        },
        ConfigKey {
            name: "reject",
            default: "false",
            help: "whether TCP segments that may not open a connection are answered by a reset",
        },
        ConfigKey { name: "icmp_errors", default: "true", help: "whether ICMP errors about known connections pass" },
        ConfigKey {
            name: "non_ip",
            default: "\"forward\"",
            help: "what becomes of packets that are neither IPv4 nor IPv6: \"forward\" or \"drop\"",
        },
        ConfigKey {
            name: "loose",
            default: "false",
            help: "whether TCP connections may be picked up half-way, by who may open them",
        },
        ConfigKey {
            name: "max_retransmissions",
            default: "3",
            help: "repetitions of a TCP segment before timeouts.tcp_retransmitted counts, 1 to 255",
        },
        ConfigKey { name: "flows", default: "1048576", help: "IPv4 connections that are remembered, 1 to 268435456" },
        ConfigKey { name: "flows_v6", default: "65536", help: "IPv6 connections that are remembered, 1 to 268435456" },
    ],
    &TIMEOUT_KEYS,
);

/// The tracker's causes, then the firewall's own.
const DROP_REASONS: [&str; Cause::NAMES.len() + 3] = {
    let mut names = [""; Cause::NAMES.len() + 3];
    let mut index = 0;
    while index < Cause::NAMES.len() {
        names[index] = Cause::NAMES[index];
        index += 1;
    }
    names[index] = "not-allowed";
    names[index + 1] = "icmp-error";
    names[index + 2] = "non-ip";
    names
};

const NOT_ALLOWED: Reason = Reason::own(Cause::NAMES.len() as u8);
const ICMP_ERROR: Reason = Reason::own(Cause::NAMES.len() as u8 + 1);
const NON_IP: Reason = Reason::own(Cause::NAMES.len() as u8 + 2);

impl Firewall {
    /// A firewall of this configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut rules = Rules::strict(&config.timeouts, config.max_retransmissions);
        rules.tcp.loose = config.loose;
        Self {
            rules,
            inside: config.inside,
            inside_interfaces: config.inside_interfaces,
            allow: config.allow,
            reject: config.reject,
            icmp_errors: config.icmp_errors,
            non_ip: config.non_ip,
            sizing: Sizing { flows: config.flows.get() as usize, flows_v6: config.flows_v6.get() as usize },
        }
    }

    /// What becomes of a packet that is not plainly of an open connection.
    #[inline(never)]
    fn judge<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &mut Connection, meta: &Observation) -> Verdict {
        // A query by the answering side asks anew: it shares the identifier alone.
        let asks = matches!(meta.event, Event::Query(_)) && flow.direction(meta) == Direction::Reply;
        if asks && !self.may_open(meta) {
            return self.refuse(meta, NOT_ALLOWED);
        }
        let mut outcome = flow.step(meta, &self.rules, cx.now());
        if outcome == Outcome::Reopens {
            if !self.may_open(meta) {
                return self.refuse(meta, NOT_ALLOWED);
            }
            match Connection::open(meta, &self.rules, cx.now()) {
                Ok(connection) => *flow = connection,
                Err(cause) => return Verdict::Drop(invalid(cause)),
            }
            outcome = flow.step(meta, &self.rules, cx.now());
        }
        if outcome == Outcome::Related && !self.icmp_errors {
            return Verdict::Drop(ICMP_ERROR);
        }
        match outcome.carry_out(flow, cx) {
            Ok(()) => Verdict::forward(),
            Err(cause) => Verdict::Drop(invalid(cause)),
        }
    }

    /// Whether the packet may open a connection.
    fn may_open(&self, meta: &Observation) -> bool {
        let tuple = meta.tuple();
        let from_inside = if self.inside_interfaces.is_empty() {
            self.is_inside(tuple.source().address)
        } else {
            self.inside_interfaces.contains(&meta.interface)
        };
        from_inside
            || (self.is_inside(tuple.destination().address)
                && self.allow.iter().any(|service| service.takes(&meta.event, &tuple)))
    }

    fn is_inside(&self, address: IpAddr) -> bool {
        self.inside.iter().any(|prefix| prefix.contains(address))
    }

    /// The refusal of a packet that opens no connection. A reset is never answered by a reset.
    fn refuse(&self, meta: &Observation, reason: Reason) -> Verdict {
        match meta.event {
            Event::Tcp(segment) if self.reject && segment.event != tcp::Event::Rst => Verdict::Reply(Reply::TcpReset),
            Event::Tcp(_) | Event::Udp | Event::Query(_) | Event::Reply(_) | Event::Error | Event::Other => {
                Verdict::Drop(reason)
            }
        }
    }
}

const fn invalid(cause: Cause) -> Reason {
    Reason::own(cause as u8)
}

impl NetworkFunction for Firewall {
    type Meta = Observation;
    type Flow = Connection;
    type Shared<M: Memory> = ();

    const DESCRIPTION: Description = Description {
        name: "firewall",
        summary: "lets inside open connections and outside answer them; named services may be opened from outside",
        state: "the connection, as conntrack keeps it",
        sharing: Sharing::Nothing,
        keys: &KEYS,
        drop_reasons: &DROP_REASONS,
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::SymmetricFiveTuple
    }

    fn sizing(&self) -> Sizing {
        self.sizing
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    #[inline]
    fn meta(&self, headers: &Headers, _payload: &[u8]) -> Option<Observation> {
        Observation::of(headers)
    }

    #[inline(always)]
    fn other(&self, headers: &Headers) -> Verdict {
        match Unobserved::of(headers) {
            Unobserved::NotIp => match self.non_ip {
                NonIp::Forward => Verdict::FORWARD,
                NonIp::Drop => Verdict::Drop(NON_IP),
            },
            Unobserved::Untracked => Verdict::FORWARD,
            Unobserved::Fragment => Verdict::Drop(Reason::FRAGMENT),
            Unobserved::Invalid(cause) => Verdict::Drop(invalid(cause)),
        }
    }

    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Observation) -> Step<Opened<Connection>, M> {
        Ok(match Connection::open(meta, &self.rules, cx.now()) {
            Err(cause) => Opened::Refused(self.refuse(meta, invalid(cause))),
            Ok(_) if !self.may_open(meta) => Opened::Refused(self.refuse(meta, NOT_ALLOWED)),
            Ok(connection) => Opened::Flow(connection),
        })
    }

    #[inline]
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Observation,
    ) -> Step<Verdict, M> {
        if let Some(idle) = flow.flow(meta, &self.rules) {
            cx.expire_after(idle);
            if flow.assured() {
                cx.assure();
            }
            return Ok(Verdict::forward());
        }
        Ok(self.judge(cx, flow, meta))
    }

    fn report(&self, flows: &mut dyn Iterator<Item = (FiveTuple, Connection)>) -> Option<Report> {
        Some(count_by_state(flows))
    }
}

#[cfg(test)]
mod tests;
