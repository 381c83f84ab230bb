//! The firewall's configuration file, checked while it is read, and its keys as the catalogue shows them.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use nf::ConfigKey;
use packet::{FiveTuple, protocol};
use serde::Deserialize;

use crate::config::{FlowCount, Ports, Prefix, Prefixes};
use crate::conntrack::Listed;
use crate::tracking::rules::{Retransmissions, TIMEOUT_KEYS, join_keys};
use crate::tracking::{Event, Timeouts};

/// The configuration of [`Firewall`](super::Firewall).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The prefixes of the inside hosts.
    pub inside: Vec<Prefix>,
    /// The interfaces on the inside. If there are any, only the interface decides whether a packet comes from inside.
    pub inside_interfaces: Vec<u16>,
    /// The inside services that outside may open.
    pub allow: Vec<Service>,
    /// Answer a TCP segment that may not open a connection with a reset.
    pub reject: bool,
    /// Forward ICMP errors about known connections.
    pub icmp_errors: bool,
    /// What to do with frames that certainly hold no IP.
    pub non_ip: NonIp,
    /// What to do with frames that may hold IP that the parser can't find.
    pub unreadable: NonIp,
    /// Hosts that may open a TCP connection may also pick it up midstream.
    pub loose: bool,
    /// Number of repetitions of one TCP segment from which `timeouts.tcp_retransmitted` applies.
    pub max_retransmissions: Retransmissions,
    /// IPv4 connections.
    pub flows: FlowCount,
    /// IPv6 connections.
    pub flows_v6: FlowCount,
    /// Number of connections that the report lists one by one; 0 counts them by state instead.
    pub(crate) list: Listed,
    /// Idle timeouts.
    pub timeouts: Timeouts,
}

/// What to do with frames that have no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonIp {
    /// Forward them. If the firewall is a bridge, address resolution needs it.
    Forward,
    /// Drop them.
    Drop,
}

/// An inside service that outside may open.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ServiceEntry")]
pub struct Service {
    protocol: ServiceProtocol,
    /// `None` is any port.
    port: Option<Ports>,
    /// Clients; `None` is any address.
    from: Option<Prefixes>,
    /// Inside addresses of the service; `None` is any.
    to: Option<Prefixes>,
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

/// A service in the configuration file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceEntry {
    proto: ServiceProtocol,
    port: Option<Ports>,
    from: Option<Prefixes>,
    to: Option<Prefixes>,
}

impl TryFrom<ServiceEntry> for Service {
    type Error = String;

    fn try_from(entry: ServiceEntry) -> Result<Self, String> {
        match entry {
            ServiceEntry { proto: ServiceProtocol::Icmp, port: Some(_), .. } => {
                Err("icmp has no ports: leave `port` out".into())
            }
            ServiceEntry { proto: protocol, port, from, to } => Ok(Self { protocol, port, from, to }),
        }
    }
}

impl Service {
    pub(super) fn takes(&self, event: &Event, tuple: &FiveTuple) -> bool {
        let protocol = match self.protocol {
            ServiceProtocol::Tcp => matches!(event, Event::Tcp(_)),
            ServiceProtocol::Udp => matches!(event, Event::Udp),
            ServiceProtocol::Sctp => matches!(event, Event::Other) && tuple.protocol() == protocol::SCTP,
            ServiceProtocol::Icmp => matches!(event, Event::Query(_)),
        };
        let is_of = |prefixes: &Option<Prefixes>, address| prefixes.as_ref().is_none_or(|of| of.contain(address));
        protocol
            && self.port.is_none_or(|ports| ports.contain(tuple.destination().port))
            && is_of(&self.from, tuple.source().address)
            && is_of(&self.to, tuple.destination().address)
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
            unreadable: NonIp::Drop,
            loose: false,
            max_retransmissions: Retransmissions::new(3),
            flows: FlowCount::new(1_048_576),
            flows_v6: FlowCount::new(65_536),
            list: Listed::new(0),
            timeouts: Timeouts::default(),
        }
    }
}

pub(super) const KEYS: [ConfigKey; 27] = join_keys(
    &[
        ConfigKey {
            name: "inside",
            default: r#"["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10"]"#,
            help: "prefixes of the inside hosts",
        },
        ConfigKey {
            name: "inside_interfaces",
            default: "[]",
            help: "numbers of the interfaces on the inside; if there are any, only the interface decides whether a packet comes from inside",
        },
        ConfigKey {
            name: "allow",
            default: "[]",
            help: "inside services that outside may open: { proto = \"tcp\", port = 22 }; proto tcp, udp, sctp or icmp; port a number or \"8000-8100\", without it any; from and to are prefixes of clients and of inside addresses",
        },
        ConfigKey {
            name: "reject",
            default: "false",
            help: "answer a TCP segment that may not open a connection with a reset",
        },
        ConfigKey { name: "icmp_errors", default: "true", help: "forward ICMP errors about known connections" },
        ConfigKey {
            name: "non_ip",
            default: "\"forward\"",
            help: "frames that certainly hold no IP, such as ARP, LLDP and spanning tree: \"forward\" or \"drop\"",
        },
        ConfigKey {
            name: "unreadable",
            default: "\"drop\"",
            help: "frames that may hold IP that the parser can't find, such as unknown EtherTypes: \"forward\" or \"drop\"",
        },
        ConfigKey {
            name: "loose",
            default: "false",
            help: "hosts that may open a TCP connection may also pick it up midstream",
        },
        ConfigKey {
            name: "max_retransmissions",
            default: "3",
            help: "number of repetitions of one TCP segment from which timeouts.tcp_retransmitted applies, 1 to 255",
        },
        ConfigKey { name: "flows", default: "1048576", help: "maximum number of IPv4 connections, 1 to 268435456" },
        ConfigKey { name: "flows_v6", default: "65536", help: "maximum number of IPv6 connections, 1 to 268435456" },
        ConfigKey {
            name: "list",
            default: "0",
            help: "number of connections that the report lists one by one, instead of counts by state; 0 to 1000000",
        },
    ],
    &TIMEOUT_KEYS,
);
