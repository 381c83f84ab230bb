//! The configuration of `load-balancer`, checked while it is read.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use packet::{Endpoint, protocol};
use serde::Deserialize;

use super::maglev::is_prime;
use crate::config::{Count, FlowCount, Timeout};
use crate::tracking::rules::Retransmissions;
use crate::tracking::{Rules, Timeouts};

/// The configuration of [`LoadBalancer`](super::LoadBalancer).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Config {
    pub(super) fields: Fields,
}

/// The keys of the configuration file. Defaults and meanings: `docs/load-balancer.md`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Fields {
    pub(super) services: Vec<Service>,
    pub(super) table_size: Prime,
    pub(super) seed: Count<0, { i64::MAX as u64 }>,
    pub(super) down_after: Count<0, 255>,
    pub(super) answer_timeout: Timeout,
    pub(super) retry_after: Timeout,
    pub(super) transitory_timeout: Timeout,
    pub(super) idle_timeout: Timeout,
    pub(super) flows: FlowCount,
    pub(super) flows_v6: FlowCount,
}

impl Config {
    /// The tracking rules: connections may be picked up midstream, and an open one always gets `idle_timeout`.
    pub(super) fn rules(&self) -> Rules {
        let Fields { down_after, answer_timeout, transitory_timeout, idle_timeout, .. } = self.fields;
        let timeouts = Timeouts {
            tcp_syn_sent: if down_after.get() > 0 { answer_timeout } else { transitory_timeout },
            tcp_syn_recv: transitory_timeout,
            tcp_established: idle_timeout,
            tcp_fin_wait: transitory_timeout,
            tcp_close_wait: transitory_timeout,
            tcp_last_ack: transitory_timeout,
            tcp_time_wait: transitory_timeout,
            tcp_close: transitory_timeout,
            tcp_syn_sent2: transitory_timeout,
            tcp_retransmitted: idle_timeout,
            tcp_unacknowledged: idle_timeout,
            udp: idle_timeout,
            udp_stream: idle_timeout,
            icmp: idle_timeout,
            other: idle_timeout,
        };
        let mut rules = Rules::strict(&timeouts, Retransmissions::new(255));
        rules.tcp.loose = true;
        rules
    }
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            services: Vec::new(),
            table_size: Prime(65_537),
            seed: Count::new(0),
            down_after: Count::new(3),
            answer_timeout: Timeout::from_secs(3),
            retry_after: Timeout::from_secs(10),
            transitory_timeout: Timeout::from_secs(60),
            idle_timeout: Timeout::from_secs(900),
            flows: FlowCount::new(1_048_576),
            flows_v6: FlowCount::new(65_536),
        }
    }
}

/// A service: its address and its backends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    pub(super) address: Address,
    #[serde(default)]
    pub(super) protocol: Protocol,
    pub(super) backends: Vec<Address>,
}

impl Service {
    pub(super) fn endpoints(&self) -> impl Iterator<Item = Endpoint> + '_ {
        self.backends.iter().map(|address| address.0)
    }
}

/// The transport protocol of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Protocol {
    #[default]
    Tcp,
    Udp,
}

impl Protocol {
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
        }
    }
}

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Address(pub(super) Endpoint);

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() > 0 => Ok(Self(Endpoint::new(address.ip(), address.port()))),
            _ => Err(format!("`{text}` is not an address and port: write 192.0.2.1:80 or [2001:db8::1]:80")),
        }
    }
}

/// The size of a look-up table, a prime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub(super) struct Prime(pub(super) u32);

/// Minimum number of entries for each backend. Shares then differ by at most a hundredth (Maglev, section 3.4).
const ENTRIES_MIN: u32 = 100;
const TABLE_MIN: u32 = 101;
const TABLE_MAX: u32 = 1_048_573;

/// Returns the smallest prime that is at least `number`.
fn prime_from(number: u32) -> u32 {
    (number..).find(|number| is_prime((*number).into())).unwrap_or(TABLE_MAX)
}

impl TryFrom<i64> for Prime {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        match u32::try_from(number) {
            Ok(number @ TABLE_MIN..=TABLE_MAX) if is_prime(number.into()) => Ok(Self(number)),
            Ok(number @ TABLE_MIN..=TABLE_MAX) => Err(format!("{number} is not a prime: {} is", prime_from(number))),
            _ => Err(format!(
                "{number} is out of range: a prime from {TABLE_MIN} to {TABLE_MAX}, at least a hundred times the number of backends"
            )),
        }
    }
}

/// Maximum number of services. Each has its own table.
const SERVICES_MAX: usize = 256;
/// Maximum number of backends of a service. If nearly all are down, a new connection tests each.
const BACKENDS_MAX: usize = 256;

impl TryFrom<Fields> for Config {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        if fields.services.len() > SERVICES_MAX {
            return Err(format!("there are {} services: {SERVICES_MAX} at most", fields.services.len()));
        }
        let mut known = Vec::new();
        for Service { address: Address(address), protocol, backends } in &fields.services {
            if backends.is_empty() || backends.len() > BACKENDS_MAX {
                return Err(format!("{address} has {} `backends`: from 1 to {BACKENDS_MAX}", backends.len()));
            }
            let (size, needed) = (fields.table_size.0, backends.len() as u32 * ENTRIES_MIN);
            if size < needed {
                return Err(format!(
                    "{address} has {} `backends`, too many for a `table_size` of {size}: Maglev's table has {ENTRIES_MIN} \
                     entries for each or more, or their shares are uneven; take {} or a larger prime",
                    backends.len(),
                    prime_from(needed)
                ));
            }
            known.push((*address, *protocol));
            for Address(backend) in backends {
                if backend.address.is_ipv4() != address.address.is_ipv4() {
                    return Err(format!("{backend} can't answer for {address}: both must be IPv4 or both IPv6"));
                }
                known.push((*backend, *protocol));
            }
        }
        known.sort_unstable_by_key(|(endpoint, protocol)| (*endpoint, protocol.number()));
        // The source of an answer must identify its service.
        match known.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("{} occurs twice: an address and port may occur once", pair[0].0)),
            None => Ok(Self { fields }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn errors_say_what_is_wrong() {
        let service =
            |address: &str, backends: &str| format!("[[services]]\naddress = \"{address}\"\nbackends = [{backends}]\n");
        let two = service("192.0.2.1:80", "\"10.0.0.1:80\"") + &service("192.0.2.2:80", "\"10.0.0.1:80\"");
        for (text, says) in [
            ("table_size = 65536".into(), "65536 is not a prime: 65537 is"),
            (
                "table_size = 3".into(),
                "3 is out of range: a prime from 101 to 1048573, at least a hundred times the number of backends",
            ),
            (service("192.0.2.1", "\"10.0.0.1:80\""), "`192.0.2.1` is not an address and port"),
            (service("192.0.2.1:80", "\"10.0.0.1:0\""), "line 3, column 12"),
            (service("192.0.2.1:80", ""), "192.0.2.1:80 has 0 `backends`: from 1 to 256"),
            (service("192.0.2.1:80", "\"[2001:db8::1]:80\""), "both must be IPv4 or both IPv6"),
            (service("192.0.2.1:80", "\"192.0.2.1:80\""), "192.0.2.1:80 occurs twice"),
            (two, "10.0.0.1:80 occurs twice"),
            (
                "table_size = 101\n".to_string() + &service("1.1.1.1:1", "\"1.1.1.1:2\",\"1.1.1.1:3\""),
                "1.1.1.1:1 has 2 `backends`, too many for a `table_size` of 101: Maglev's table has 100 entries for each or \
                 more, or their shares are uneven; take 211 or a larger prime",
            ),
            ("down_after = 256".into(), "from 0 to 255"),
            ("[[services]]\naddress = \"1.1.1.1:1\"\nprotocol = \"sctp\"".into(), "unknown variant `sctp`"),
            ("vips = []".into(), "unknown field"),
        ] {
            let error = toml::from_str::<Config>(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn one_address_may_speak_two_protocols() {
        let text = |protocol: &str| {
            format!(
                "[[services]]\naddress = \"192.0.2.1:53\"\nprotocol = \"{protocol}\"\nbackends = [\"10.0.0.1:53\"]\n"
            )
        };
        assert!(toml::from_str::<Config>(&(text("tcp") + &text("udp"))).is_ok());
        assert!(toml::from_str::<Config>(&(text("udp") + &text("udp"))).is_err());
    }
}
