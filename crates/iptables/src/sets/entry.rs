//! Entries of sets.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Dimension;
use crate::error::Fault;
use crate::matches::MacAddress;
use crate::names::{icmp, protocols};
use crate::options::Value;
use crate::value::{Counters, Family, Interface, Interval};

/// An entry of a set.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The first dimension.
    pub first: EntryPart,
    /// The other dimensions.
    pub rest: Vec<EntryPart>,
    /// `timeout`, in seconds; that of the set if not given.
    pub timeout_s: Option<u32>,
    /// `nomatch`: what falls into it does not match, even if a larger network of the set has it.
    pub no_match: bool,
    /// Counters and a comment, if it has any.
    pub extra: Option<Box<EntryExtra>>,
    /// The line that adds it.
    pub line: u32,
}

/// Counters and the comment of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryExtra {
    /// The counters.
    pub counters: Counters,
    /// The comment. May be empty.
    pub comment: String,
}

/// A dimension of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryPart {
    /// Addresses: one, a network, or a range.
    Addresses(Interval<IpAddr>),
    /// Ports of a protocol. For ICMP, type times 256 plus code.
    Ports(u8, Interval<u16>),
    /// Ports of any protocol.
    AnyPorts(Interval<u16>),
    /// An Ethernet address.
    Mac(MacAddress),
    /// An interface; true if it is a port of a bridge.
    Interface(Interface, bool),
    /// Another set.
    Set(String),
}

/// Entries are compared by their parts: a set has none twice.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.first, &self.rest).cmp(&(&other.first, &other.rest))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl Entry {
    /// All dimensions.
    pub fn parts(&self) -> impl Iterator<Item = &EntryPart> {
        core::iter::once(&self.first).chain(&self.rest)
    }

    pub(super) fn read(
        value: Value<'_>,
        dimensions: &[Dimension],
        family: Family,
        netmask: Option<u8>,
        line: u32,
    ) -> Result<Self, Fault> {
        let mut given = value.parts(',');
        let mut parts = dimensions.iter().map(|dimension| match given.next() {
            Some(part) => EntryPart::read(part, *dimension, family, netmask),
            None => {
                let what = format!("`{}` has too few parts: {} belong to the set's type", value.text, dimensions.len());
                Err(value.fault(what))
            }
        });
        let first = parts.next().unwrap_or_else(|| Err(value.fault("the set's type has no parts")))?;
        let rest = parts.collect::<Result<Vec<_>, _>>()?;
        if let Some(part) = given.next() {
            return Err(part.fault(format!("`{}` is too much for the set's type", part.text)));
        }
        Ok(Self { first, rest, timeout_s: None, no_match: false, extra: None, line })
    }

    /// The number of elements that the kernel makes of it.
    pub(super) fn elements(&self) -> u64 {
        self.parts().map(EntryPart::elements).fold(1, u64::saturating_mul)
    }
}

impl EntryPart {
    fn read(value: Value<'_>, dimension: Dimension, family: Family, netmask: Option<u8>) -> Result<Self, Fault> {
        match dimension {
            Dimension::Ip | Dimension::Net | Dimension::AnyNet => {
                let addresses = addresses(value, family)?;
                let whole = prefix(addresses) == Some(0);
                if dimension == Dimension::Net && whole {
                    let fault = value.fault("a set of this type can't have the network of all addresses");
                    return Err(fault.instead("write two halves, as `0.0.0.0/1` and `128.0.0.0/1`"));
                }
                Ok(Self::Addresses(match netmask {
                    Some(bits) => masked(addresses, family.mask(bits)),
                    None => addresses,
                }))
            }
            Dimension::Port => {
                let (protocol, ports) = match value.split_once(':') {
                    Some((protocol, ports)) => (protocol.protocol()?, ports),
                    None => (protocols::TCP, value),
                };
                let names = match protocol {
                    protocols::ICMP => Some(icmp::V4),
                    protocols::ICMP_V6 => Some(icmp::V6),
                    _ => None,
                };
                match names {
                    Some(names) => icmp_ports(ports, names).map(|ports| Self::Ports(protocol, ports)),
                    None => port_range(ports, Some(protocol)).map(|ports| Self::Ports(protocol, ports)),
                }
            }
            Dimension::BarePort => {
                let ports = value.split_once(':').map_or(value, |(_, ports)| ports);
                port_range(ports, None).map(Self::AnyPorts)
            }
            Dimension::Mac => {
                let address = MacAddress::parse(value.text);
                let fault = || value.fault(format!("`{}` is not an Ethernet address", value.text));
                address.map(Self::Mac).ok_or_else(fault)
            }
            Dimension::Interface if !super::read::is_plain(value.text) => {
                Err(value.fault("the name of an interface can't have spaces, quotes or a dash at the beginning"))
            }
            Dimension::Interface => match value.text.strip_prefix("physdev:") {
                Some(name) => value.part(name).interface().map(|interface| Self::Interface(interface, true)),
                None => value.interface().map(|interface| Self::Interface(interface, false)),
            },
            Dimension::Set => match value.text {
                "" => Err(value.fault("the name of a set is missing")),
                name => Ok(Self::Set(name.to_owned())),
            },
        }
    }

    /// Networks count as one; addresses and ports are counted one by one.
    fn elements(&self) -> u64 {
        match self {
            Self::Addresses(addresses) if prefix(*addresses).is_none() => size(*addresses),
            Self::Ports(_, ports) | Self::AnyPorts(ports) => u64::from(ports.last - ports.first) + 1,
            Self::Addresses(_) | Self::Mac(_) | Self::Interface(..) | Self::Set(_) => 1,
        }
    }
}

/// `10.0.0.1`, `10.0.0.0/8` or `10.0.0.1-10.0.0.9`.
pub(super) fn addresses(value: Value<'_>, family: Family) -> Result<Interval<IpAddr>, Fault> {
    if let Some((first, last)) = value.split_once('-') {
        let addresses = Interval { first: first.address(family)?, last: last.address(family)? };
        return match addresses.first <= addresses.last {
            true => Ok(addresses),
            false => Err(value.fault("the range ends before it begins")),
        };
    }
    let network = value.network(family)?;
    match network.prefix_len() {
        Some(_) => Ok(Interval { first: network.address, last: last_of(network.address, network.mask) }),
        None => Err(value.fault("the mask has gaps")),
    }
}

fn last_of(address: IpAddr, mask: IpAddr) -> IpAddr {
    match (address, mask) {
        (IpAddr::V4(address), IpAddr::V4(mask)) => Ipv4Addr::from_bits(address.to_bits() | !mask.to_bits()).into(),
        (IpAddr::V6(address), IpAddr::V6(mask)) => Ipv6Addr::from_bits(address.to_bits() | !mask.to_bits()).into(),
        (address, _) => address,
    }
}

fn masked(addresses: Interval<IpAddr>, mask: IpAddr) -> Interval<IpAddr> {
    let first = crate::value::Network::new(addresses.first, mask).address;
    let last = crate::value::Network::new(addresses.last, mask).address;
    Interval { first, last }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn size(addresses: Interval<IpAddr>) -> u64 {
    let more = bits(addresses.last).saturating_sub(bits(addresses.first));
    u64::try_from(more).unwrap_or(u64::MAX).saturating_add(1)
}

/// The length of the prefix, if a range is a network.
fn prefix(addresses: Interval<IpAddr>) -> Option<u8> {
    let family = Family::of(addresses.first);
    let (first, last) = (bits(addresses.first), bits(addresses.last));
    let host = first ^ last;
    let is_network = host & host.wrapping_add(1) == 0 && first & host == 0;
    is_network.then(|| family.bits() - host.count_ones() as u8)
}

fn port_range(value: Value<'_>, protocol: Option<u8>) -> Result<Interval<u16>, Fault> {
    if let Ok(port) = value.port(protocol) {
        return Ok(Interval { first: port, last: port });
    }
    let Some((first, last)) = value.split_once('-') else {
        return value.port(protocol).map(|port| Interval { first: port, last: port });
    };
    let ports = Interval { first: first.port(protocol)?, last: last.port(protocol)? };
    match ports.first <= ports.last {
        true => Ok(ports),
        false => Err(value.fault("the range ends before it begins")),
    }
}

/// A type and a code, by name or as `8/0`.
fn icmp_ports(value: Value<'_>, names: &[(&str, u8, Interval<u8>)]) -> Result<Interval<u16>, Fault> {
    let port = |kind: u8, code: u8| u16::from(kind) << 8 | u16::from(code);
    let named = names.iter().find(|(name, ..)| *name == value.text).map(|(_, kind, codes)| port(*kind, codes.first));
    let number = match (named, value.split_once('/')) {
        (Some(number), _) => number,
        (None, Some((kind, code))) => port(kind.u8()?, code.u8()?),
        (None, None) => value.u16()?,
    };
    Ok(Interval { first: number, last: number })
}

impl fmt::Display for EntryPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addresses(addresses @ Interval { first, last }) => match prefix(*addresses) {
                _ if first == last => write!(f, "{first}"),
                Some(bits) => write!(f, "{first}/{bits}"),
                None => write!(f, "{first}-{last}"),
            },
            Self::Ports(protocol, Interval { first, last }) => {
                match protocols::name(*protocol) {
                    Some("ipv6-icmp") => f.write_str("icmpv6:")?,
                    Some(name) => write!(f, "{name}:")?,
                    None => write!(f, "{protocol}:")?,
                }
                match *protocol {
                    protocols::ICMP | protocols::ICMP_V6 => write!(f, "{}/{}", first >> 8, first & 0xff),
                    _ if first == last => write!(f, "{first}"),
                    _ => write!(f, "{first}-{last}"),
                }
            }
            Self::AnyPorts(Interval { first, last }) if first == last => write!(f, "{first}"),
            Self::AnyPorts(Interval { first, last }) => write!(f, "{first}-{last}"),
            Self::Mac(address) => write!(f, "{address}"),
            Self::Interface(interface, true) => write!(f, "physdev:{}", interface.as_str()),
            Self::Interface(interface, false) => f.write_str(interface.as_str()),
            Self::Set(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, part) in self.parts().enumerate() {
            write!(f, "{}{part}", if nth > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}
