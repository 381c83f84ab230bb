//! The model of `firewall`.

use std::net::IpAddr;

use nf::Reply;
use packet::{Headers, Nanos, Seq, TcpFlags, Transport, protocol};
use serde::Deserialize;

use super::tracking::tcp::has_impossible_flags;
use super::tracking::{Judgement, Settings, Tracked, Tracking};
use super::{Fate, Model};

/// The tracker of `tracking`, and the rules for opening connections.
#[derive(Clone, Debug)]
pub struct FirewallModel {
    policy: Policy,
    inside: Vec<(IpAddr, u32)>,
    tracking: Tracking,
}

/// The keys of the configuration file that the tracker doesn't use.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
struct Policy {
    inside: Vec<String>,
    inside_interfaces: Vec<u16>,
    allow: Vec<Service>,
    reject: bool,
    icmp_errors: bool,
    non_ip: String,
    unreadable: String,
    loose: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct Service {
    proto: String,
    port: Option<toml::Value>,
    from: Option<toml::Value>,
    to: Option<toml::Value>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            inside: ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10"]
                .map(String::from)
                .to_vec(),
            inside_interfaces: Vec::new(),
            allow: Vec::new(),
            reject: false,
            icmp_errors: true,
            non_ip: String::from("forward"),
            unreadable: String::from("drop"),
            loose: false,
        }
    }
}

impl FirewallModel {
    /// Creates a model from the text of a configuration file.
    ///
    /// # Panics
    /// If the text is invalid.
    #[must_use]
    pub fn new(config: &str) -> Self {
        let policy: Policy = toml::from_str(config).expect("a configuration of firewall");
        let settings: Settings = toml::from_str(config).expect("a configuration of firewall");
        let inside = policy.inside.iter().map(|text| prefix(text)).collect();
        let settings = Settings { loose: policy.loose, ..settings };
        Self { policy, inside, tracking: Tracking::new(settings) }
    }

    fn is_inside(&self, address: IpAddr) -> bool {
        self.inside.iter().any(|prefix| is_of(*prefix, address))
    }

    fn may_open(&self, headers: &Headers) -> bool {
        let Some((src, dst)) = headers.addresses() else { return false };
        let from_inside = if self.policy.inside_interfaces.is_empty() {
            self.is_inside(src)
        } else {
            self.policy.inside_interfaces.contains(&headers.interface)
        };
        let serves = |service: &Service| {
            let number = match (service.proto.as_str(), dst) {
                ("tcp", _) => protocol::TCP,
                ("udp", _) => protocol::UDP,
                ("sctp", _) => protocol::SCTP,
                ("icmp", IpAddr::V4(_)) => protocol::ICMP,
                ("icmp", IpAddr::V6(_)) => protocol::ICMPV6,
                (other, _) => panic!("{other} offers no services"),
            };
            let in_range = |ports: &toml::Value| match ports {
                toml::Value::Integer(port) => *port == headers.ports().1.into(),
                range => {
                    let (first, last) = range.as_str().and_then(|range| range.split_once('-')).expect("a range");
                    (first.parse().unwrap()..=last.parse().unwrap()).contains(&headers.ports().1)
                }
            };
            let lists = |prefixes: &toml::Value, address| match prefixes {
                toml::Value::Array(list) => list.iter().any(|one| is_of(prefix(one.as_str().unwrap()), address)),
                one => is_of(prefix(one.as_str().unwrap()), address),
            };
            headers.protocol == number
                && service.port.as_ref().is_none_or(in_range)
                && service.from.as_ref().is_none_or(|from| lists(from, src))
                && service.to.as_ref().is_none_or(|to| lists(to, dst))
        };
        from_inside || (self.is_inside(dst) && self.policy.allow.iter().any(serves))
    }

    /// Refuses a TCP segment that opens no connection, or may not.
    fn refuse(&self, headers: &Headers, reason: &'static str) -> Fate {
        match headers.transport {
            Transport::Tcp(tcp)
                if self.policy.reject && !tcp.flags.contains(TcpFlags::RST) && !has_impossible_flags(&tcp) =>
            {
                Fate::Reply(Reply::TcpReset)
            }
            _ => Fate::Drop(reason),
        }
    }

    /// Returns the live connections, sorted by key.
    #[must_use]
    pub fn connections(&self, now: Nanos) -> Vec<Tracked> {
        self.tracking.connections(now)
    }
}

fn prefix(text: &str) -> (IpAddr, u32) {
    let (address, len) = text.split_once('/').expect("prefixes have a length");
    (address.parse().expect("an address"), len.parse().expect("a length"))
}

fn is_of((network, len): (IpAddr, u32), address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => (network.to_bits() ^ address.to_bits()).leading_zeros() >= len,
        (IpAddr::V6(network), IpAddr::V6(address)) => (network.to_bits() ^ address.to_bits()).leading_zeros() >= len,
        _ => false,
    }
}

impl Model for FirewallModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        let may_open = self.may_open(headers);
        match self.tracking.packet(now, headers, may_open) {
            Judgement::NonIp if self.policy.non_ip == "drop" => Fate::Drop("non-ip"),
            Judgement::Related if !self.policy.icmp_errors => Fate::Drop("icmp-error"),
            Judgement::Unreadable if self.policy.unreadable == "drop" => Fate::Drop("unreadable"),
            Judgement::NonIp | Judgement::Unreadable => Fate::FORWARD,
            Judgement::Exempt | Judgement::Passes | Judgement::Related => Fate::FORWARD,
            Judgement::Invalid { cause, known: true } => Fate::Drop(cause),
            Judgement::Invalid { cause, known: false } => self.refuse(headers, cause),
            Judgement::Refused => self.refuse(headers, "not-allowed"),
            Judgement::Full => Fate::Drop("table-full"),
        }
    }
}
