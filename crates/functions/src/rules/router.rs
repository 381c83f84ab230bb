//! The configuration of the router that runs a rule set: interfaces, addresses, routes, neighbours.
//!
//! ```toml
//! [[interface]]
//! name = "eth0"
//! port = 0
//! addresses = ["192.0.2.1/24", "2001:db8::1/64"]
//!
//! [[route]]
//! to = "default"
//! via = "192.0.2.254"
//! interface = "eth0"
//!
//! [[route]]
//! to = "198.51.100.0/24"
//! kind = "blackhole"
//! ```

mod paths;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use packet::Mac;
use serde::Deserialize;

use super::ranges::ones;

pub use paths::{AddressKind, Paths, ReverseTest, Route};

/// The configuration of a router. Routes to the networks of its own addresses follow from the addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Router {
    /// The interfaces, at most 63.
    #[serde(rename = "interface")]
    pub interfaces: Vec<RouterInterface>,
    /// The routes besides those that follow from addresses.
    #[serde(rename = "route")]
    pub routes: Vec<RouteEntry>,
    /// Link addresses of neighbours.
    #[serde(rename = "neighbour")]
    pub neighbours: Vec<Neighbour>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterInterface {
    /// Its name, of 1 to 15 bytes, as rules have it.
    pub name: String,
    /// The number of its port: [`Headers::interface`](packet::Headers::interface).
    pub port: u16,
    /// Its addresses with the lengths of their networks. The first one of a network is the one that the router sends from.
    #[serde(default)]
    pub addresses: Vec<Prefixed>,
    /// Its link address.
    #[serde(default)]
    pub mac: Option<LinkAddress>,
    /// The longest packet, in bytes from the IP header on.
    #[serde(default = "mtu")]
    pub mtu: u16,
}

const fn mtu() -> u16 {
    1_500
}

/// A route: over an interface, or to nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteEntry {
    /// The network that it leads to.
    pub to: Destination,
    /// The next router; without, the network is on the link.
    #[serde(default)]
    pub via: Option<IpAddr>,
    /// The name of the interface.
    #[serde(default)]
    pub interface: Option<String>,
    /// What happens to packets without an interface.
    #[serde(default)]
    pub kind: Option<Nowhere>,
    /// The address that the router itself sends from.
    #[serde(default)]
    pub source: Option<IpAddr>,
}

/// The kind of a route without an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nowhere {
    /// Packets are dropped.
    Blackhole,
    /// Packets are answered: host unreachable.
    Unreachable,
    /// Packets are answered: communication prohibited.
    Prohibit,
}

/// The link address of a neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// The name of the interface that it is reached by.
    pub interface: String,
    /// Its link address.
    pub mac: LinkAddress,
}

/// An address and the length of its network's prefix: `192.0.2.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefixed {
    /// The address.
    pub address: IpAddr,
    /// The length of the prefix.
    pub len: u8,
}

/// A network that a route leads to: `192.0.2.0/24`, `192.0.2.1` or `default`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum Destination {
    /// All addresses of the family that the route's other addresses have; IPv4 if it has none.
    Default,
    /// A network. Bits behind the prefix are zero.
    Network(Prefixed),
}

/// An Ethernet address: `02:00:00:00:01:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct LinkAddress(pub Mac);

impl Router {
    /// A router with the interfaces that rules name, each with an address of its own.
    pub(super) fn of_names(rules: &iptables::RuleSet) -> Self {
        let all = rules.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
        let named = all.flat_map(|rule| [&rule.input, &rule.output]).flatten();
        let names = named.map(|name| match name.value.value.prefix() {
            Some(prefix) => alloc::format!("{prefix}0"),
            None => name.value.value.as_str().into(),
        });
        let mut names: alloc::collections::BTreeSet<String> =
            names.filter(|name| name != "lo" && name.len() <= 15).collect();
        names.insert("if0".into());
        let interface = |(port, name): (u16, String)| RouterInterface {
            name,
            port,
            addresses: Vec::from([
                Prefixed { address: IpAddr::from([192, 0, 2, port as u8 + 1]), len: 32 },
                Prefixed { address: IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, port + 1]), len: 128 },
            ]),
            mac: None,
            mtu: mtu(),
        };
        Self { interfaces: (0..63).zip(names).map(interface).collect(), ..Self::default() }
    }
}

impl Prefixed {
    /// True for IPv6.
    #[must_use]
    pub const fn is_v6(&self) -> bool {
        self.address.is_ipv6()
    }

    /// The number of bits behind the prefix.
    const fn host_bits(&self) -> u32 {
        let bits = if self.is_v6() { 128 } else { 32 };
        bits - self.len as u32
    }

    /// The first and the last address of the network.
    pub(super) const fn range(&self) -> (u128, u128) {
        let host = ones(self.host_bits());
        let address = number(self.address);
        (address & !host, address | host)
    }

    fn read(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an address with the length of a prefix, as `192.0.2.1/24`");
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if address.is_ipv6() { 128 } else { 32 };
        let len = match len {
            Some(len) if len.bytes().all(|byte| byte.is_ascii_digit()) => len.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
            None => bits,
        };
        if len > bits { Err(wrong()) } else { Ok(Self { address, len }) }
    }
}

impl TryFrom<String> for Prefixed {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::read(&text)
    }
}

impl fmt::Display for Prefixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl TryFrom<String> for Destination {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "default" {
            return Ok(Self::Default);
        }
        let network = Prefixed::read(&text)?;
        let first = network.range().0;
        match first == number(network.address) {
            true => Ok(Self::Network(network)),
            false => {
                let network = Prefixed { address: address(network.is_v6(), first), len: network.len };
                Err(format!("`{text}` has bits behind its prefix; write `{network}`"))
            }
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Network(network) => network.fmt(f),
        }
    }
}

impl FromStr for LinkAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        let mut read = || {
            for byte in &mut bytes {
                let part = parts.next()?;
                let is_plain = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
                *byte = if is_plain { u8::from_str_radix(part, 16).ok()? } else { return None };
            }
            parts.next().is_none().then_some(())
        };
        match read() {
            Some(()) => Ok(Self(Mac(bytes))),
            None => Err(format!("`{text}` is not an Ethernet address, as `02:00:00:00:01:01`")),
        }
    }
}

impl TryFrom<String> for LinkAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// An address as a number; IPv4 in the low 32 bits.
pub(super) const fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits() as u128,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address of a number.
pub(super) const fn address(is_v6: bool, number: u128) -> IpAddr {
    match is_v6 {
        true => IpAddr::V6(Ipv6Addr::from_bits(number)),
        false => IpAddr::V4(Ipv4Addr::from_bits(number as u32)),
    }
}
