//! The model of `firewall`.

use std::net::IpAddr;

use nf::Reply;
use packet::{Headers, Nanos, Seq, TcpFlags, Transport, protocol};
use serde::Deserialize;

use super::tracking::tcp::has_impossible_flags;
use super::tracking::{Judgement, Settings, Tracked, Tracking};
use super::{Fate, Model};

/// The tracker of [`tracking`](super::tracking), and who may open.
#[derive(Clone, Debug)]
pub struct FirewallModel {
    policy: Policy,
    inside: Vec<(IpAddr, u32)>,
    tracking: Tracking,
}

/// The keys of the configuration file that tracking itself has no use for.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
struct Policy {
    inside: Vec<String>,
    inside_interfaces: Vec<u16>,
    allow: Vec<Service>,
    reject: bool,
    icmp_errors: bool,
    non_ip: String,
    loose: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct Service {
    proto: String,
    port: Option<u16>,
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
            loose: false,
        }
    }
}

impl FirewallModel {
    /// A model of this configuration file.
    ///
    /// # Panics
    /// When it isn't one.
    #[must_use]
    pub fn new(config: &str) -> Self {
        let policy: Policy = toml::from_str(config).expect("a configuration of firewall");
        let settings: Settings = toml::from_str(config).expect("a configuration of firewall");
        let prefix = |text: &String| {
            let (address, len) = text.split_once('/').expect("prefixes have a length");
            (address.parse().expect("an address"), len.parse().expect("a length"))
        };
        let inside = policy.inside.iter().map(prefix).collect();
        let settings = Settings { loose: policy.loose, ..settings };
        Self { policy, inside, tracking: Tracking::new(settings) }
    }

    fn is_inside(&self, address: IpAddr) -> bool {
        self.inside.iter().any(|(network, len)| match (network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= *len
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= *len
            }
            _ => false,
        })
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
            headers.protocol == number && service.port.is_none_or(|port| port == headers.ports().1)
        };
        from_inside || (self.is_inside(dst) && self.policy.allow.iter().any(serves))
    }

    /// A TCP segment that opens no connection, or may not.
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

    /// The connections that are alive, ordered by their names.
    #[must_use]
    pub fn connections(&self, now: Nanos) -> Vec<Tracked> {
        self.tracking.connections(now)
    }
}

impl Model for FirewallModel {
    fn packet(&mut self, _seq: Seq, now: Nanos, headers: &Headers, _payload: &[u8]) -> Fate {
        let may_open = self.may_open(headers);
        match self.tracking.packet(now, headers, may_open) {
            Judgement::NonIp if self.policy.non_ip == "drop" => Fate::Drop("non-ip"),
            Judgement::Related if !self.policy.icmp_errors => Fate::Drop("icmp-error"),
            Judgement::NonIp | Judgement::Exempt | Judgement::Passes | Judgement::Related => Fate::FORWARD,
            Judgement::Invalid { cause, known: true } => Fate::Drop(cause),
            Judgement::Invalid { cause, known: false } => self.refuse(headers, cause),
            Judgement::Refused => self.refuse(headers, "not-allowed"),
            Judgement::Full => Fate::Drop("table-full"),
        }
    }
}
