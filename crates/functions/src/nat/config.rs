//! The configuration of `nat`, checked while it is read.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use serde::Deserialize;

use super::fixed::{Fixed, Forward, Host};
use crate::config::{Count, Prefix, Timeout};

/// The configuration of [`Nat`](super::Nat).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Config {
    fields: Fields,
    fixed: Fixed,
}

impl Config {
    /// The inside prefixes, as bits and mask.
    pub(super) fn inside(&self) -> Box<[(u32, u32)]> {
        self.fields.inside.iter().map(|&Prefix4 { bits, mask }| (bits, mask)).collect()
    }

    /// The addresses of `external`, sorted.
    pub(super) fn external(&self) -> Box<[u32]> {
        addresses(&self.fields.external).collect()
    }

    /// All external addresses, those of `static` too, sorted.
    pub(super) fn known_outside(&self) -> Box<[u32]> {
        let mut all: Vec<u32> = addresses(&self.fields.external).chain(self.fixed.addresses()).collect();
        all.sort_unstable();
        all.into()
    }

    /// The fixed mappings.
    pub(super) const fn fixed(&self) -> &Fixed {
        &self.fixed
    }

    pub(super) fn settings(&self) -> &Fields {
        &self.fields
    }

    /// Maximum number of mappings, with `pool.overprovision`.
    pub(super) fn mappings(&self) -> usize {
        self.fields.pool.overprovision.over(self.fields.mappings.get())
    }

    /// Maximum number of sessions, with `pool.overprovision`.
    pub(super) fn sessions(&self) -> usize {
        self.fields.pool.overprovision.over(self.fields.sessions.get())
    }

    /// The external ports: the range `ports`, extended by `pool.overprovision` up to 65535.
    pub(super) fn ports(&self) -> PortRange {
        let PortRange { first, last } = self.fields.ports;
        let count = self.fields.pool.overprovision.over(u64::from(last - first) + 1);
        PortRange { first, last: u16::try_from(usize::from(first) + count - 1).unwrap_or(u16::MAX) }
    }
}

impl TryFrom<Fields> for Config {
    type Error = String;

    fn try_from(mut fields: Fields) -> Result<Self, String> {
        let count: u64 = fields.external.iter().map(|prefix| u64::from(!prefix.mask) + 1).sum();
        if count == 0 || count > EXTERNAL_MAX {
            return Err(format!("`external` names {count} addresses: from 1 to {EXTERNAL_MAX}"));
        }
        fields.external.sort_by_key(|prefix| prefix.bits);
        let mut last = None;
        for address in addresses(&fields.external) {
            if last >= Some(address) {
                return Err(format!("`external` names {} twice", Ipv4Addr::from_bits(address)));
            }
            if let Some(prefix) = fields.inside.iter().find(|prefix| address & prefix.mask == prefix.bits) {
                return Err(format!(
                    "{} can't be `external`, because {}/{} is `inside`",
                    Ipv4Addr::from_bits(address),
                    Ipv4Addr::from_bits(prefix.bits),
                    prefix.mask.leading_ones()
                ));
            }
            last = Some(address);
        }
        let is_inside = |address: u32| fields.inside.iter().any(|prefix| address & prefix.mask == prefix.bits);
        let is_external = |address: u32| addresses(&fields.external).any(|external| external == address);
        let pooled = fields.ports.first..=fields.ports.last;
        let fixed = Fixed::new(&fields.forward, &fields.hosts, pooled, is_inside, is_external)?;
        Ok(Self { fields, fixed })
    }
}

/// Maximum number of external addresses. The port pools of each take about 5 MB.
const EXTERNAL_MAX: u64 = 256;

/// The keys of the configuration file. Defaults and meanings: `docs/nat.md`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fields {
    inside: Vec<Prefix4>,
    external: Vec<Prefix4>,
    forward: Vec<Forward>,
    #[serde(rename = "static")]
    hosts: Vec<Host>,
    pub(super) ports: PortRange,
    mapping: Mapping,
    pub(super) filtering: Filtering,
    pub(super) pooling: Pooling,
    pub(super) hairpinning: bool,
    pub(super) port_parity: bool,
    pub(super) port_preservation: bool,
    pub(super) inbound_refresh: bool,
    pub(super) loose: bool,
    pub(super) mappings: Entries,
    pub(super) sessions: Entries,
    pub(super) list: Count<0, 1_000_000>,
    pub(super) pool: Pool,
    pub(super) timeouts: Timeouts,
}

/// Number of mappings or sessions. Maps have two slots for each, and their indices fit 32 bits.
pub(super) type Entries = Count<1, 67_108_864>;

impl Default for Fields {
    fn default() -> Self {
        let v4 = |a, b, len| Prefix4 { bits: Ipv4Addr::new(a, b, 0, 0).to_bits(), mask: u32::MAX << (32 - len) };
        Self {
            inside: vec![v4(10, 0, 8), v4(172, 16, 12), v4(192, 168, 16)],
            external: vec![Prefix4 { bits: Ipv4Addr::new(203, 0, 113, 1).to_bits(), mask: u32::MAX }],
            forward: Vec::new(),
            hosts: Vec::new(),
            ports: PortRange { first: 1024, last: 65_535 },
            mapping: Mapping::EndpointIndependent,
            filtering: Filtering::EndpointIndependent,
            pooling: Pooling::Paired,
            hairpinning: true,
            port_parity: true,
            port_preservation: true,
            inbound_refresh: false,
            loose: true,
            mappings: Entries::new(65_536),
            sessions: Entries::new(65_536),
            list: Count::new(0),
            pool: Pool::default(),
            timeouts: Timeouts::default(),
        }
    }
}

/// The `[pool]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pool {
    overprovision: Surplus,
}

/// An extra share in millionths; 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
struct Surplus(u32);

impl Surplus {
    /// Returns `count` plus the share, rounded up.
    const fn over(self, count: u64) -> usize {
        (count + (count * self.0 as u64).div_ceil(1_000_000)) as usize
    }
}

impl TryFrom<f64> for Surplus {
    type Error = String;

    fn try_from(surplus: f64) -> Result<Self, String> {
        // Also refuses NaN.
        if (0.0..=1.0).contains(&surplus) {
            Ok(Self((surplus * 1e6 + 0.5) as u32))
        } else {
            Err(format!("{surplus} is out of range: from 0 to 1, for example 0.05 for 5 % more"))
        }
    }
}

/// The `[timeouts]` table: idle timeouts of sessions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Timeouts {
    pub(super) udp: Timeout,
    pub(super) tcp_established: Timeout,
    pub(super) tcp_transitory: Timeout,
    pub(super) icmp: Timeout,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            udp: Timeout::from_secs(300),
            tcp_established: Timeout::from_secs(7440),
            tcp_transitory: Timeout::from_secs(240),
            icmp: Timeout::from_secs(60),
        }
    }
}

/// Whether a mapping depends on the destination. RFC 4787 REQ-1 allows one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mapping {
    EndpointIndependent,
}

/// Which outside hosts may send to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Filtering {
    /// Anyone.
    EndpointIndependent,
    /// Hosts that the inside endpoint has sent to.
    AddressDependent,
    /// Endpoints that the inside endpoint has sent to.
    AddressAndPortDependent,
}

/// Which external address an inside host gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Pooling {
    /// Always the same.
    Paired,
    /// The same one while it has free ports, then the next.
    Arbitrary,
}

/// An IPv4 prefix or address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Prefix")]
struct Prefix4 {
    bits: u32,
    mask: u32,
}

impl TryFrom<Prefix> for Prefix4 {
    type Error = String;

    fn try_from(prefix: Prefix) -> Result<Self, String> {
        match prefix {
            Prefix::V4 { bits, mask } => Ok(Self { bits, mask }),
            Prefix::V6 { .. } => Err(format!("`{prefix}` is IPv6: only IPv4 is translated")),
        }
    }
}

fn addresses(prefixes: &[Prefix4]) -> impl Iterator<Item = u32> {
    prefixes.iter().flat_map(|&Prefix4 { bits, mask }| bits..=bits | !mask)
}

/// Ports from `first` to `last`, written `1024-65535`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct PortRange {
    pub(super) first: u16,
    pub(super) last: u16,
}

impl TryFrom<String> for PortRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bounds = text
            .split_once('-')
            .and_then(|(first, last)| Some((first.trim().parse::<u16>().ok()?, last.trim().parse::<u16>().ok()?)));
        match bounds {
            Some((first, last)) if first >= 1 && first <= last => Ok(Self { first, last }),
            _ => Err(format!("`{text}` is not a range of ports: write 1024-65535, from 1 to 65535")),
        }
    }
}

/// Returns true for an address of one host, neither multicast nor broadcast.
pub(super) fn is_unicast(address: u32) -> bool {
    let address = Ipv4Addr::from_bits(address);
    !IpAddr::V4(address).is_multicast() && address != Ipv4Addr::BROADCAST
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
    }

    #[test]
    fn the_catalogue_prints_the_defaults() {
        let keys = <super::super::Nat as nf::NetworkFunction>::DESCRIPTION.keys;
        let lines: Vec<String> = keys.iter().map(|key| format!("{} = {}\n", key.name, key.default)).collect();
        assert_eq!(toml::from_str::<Config>(&lines.concat()).unwrap(), Config::default());
    }

    #[test]
    fn errors_say_what_is_wrong_and_where() {
        for (text, says) in [
            ("ports = \"0-80\"", "line 1, column 9"),
            ("ports = \"2000-1000\"", "not a range of ports"),
            ("external = []", "names 0 addresses"),
            ("external = [\"198.51.0.0/16\"]", "names 65536 addresses: from 1 to 256"),
            ("external = [\"198.51.100.0/30\", \"198.51.100.2\"]", "names 198.51.100.2 twice"),
            ("external = [\"10.1.2.3\"]", "10.1.2.3 can't be `external`, because 10.0.0.0/8 is `inside`"),
            ("external = [\"2001:db8::1\"]", "only IPv4"),
            ("mapping = \"symmetric\"", "unknown variant `symmetric`"),
            ("\nfiltering = \"none\"", "line 2, column 13"),
            ("sessions = 0", "out of range"),
            ("[timeouts]\nudp = 0", "line 2, column 7"),
            ("pool.overprovision = 5", "5 is out of range: from 0 to 1, for example 0.05 for 5 % more"),
            ("pool.overprovision = -0.1", "out of range"),
            ("pool.overprovision = nan", "out of range"),
            ("pool.size = 5", "unknown field `size`"),
            ("hairpin = true", "unknown field"),
            (
                "forward = [{ external = \"203.0.113.1\", internal = \"10.0.0.1:80\", protocol = \"tcp\" }]",
                "not an address with a port",
            ),
            (
                "forward = [{ external = \"203.0.113.1:80-70\", internal = \"10.0.0.1:80\", protocol = \"tcp\" }]",
                "not an address with a port",
            ),
            (
                "forward = [{ external = \"203.0.113.1:80-81\", internal = \"10.0.0.1:80\", protocol = \"tcp\" }]",
                "different numbers of ports",
            ),
            (
                "forward = [{ external = \"203.0.113.1:80\", internal = \"10.0.0.1:80\", protocol = \"icmp\" }]",
                "`icmp` has no ports to forward: write tcp or udp",
            ),
            (
                "forward = [{ external = \"203.0.113.9:80\", internal = \"10.0.0.1:80\", protocol = \"tcp\" }]",
                "203.0.113.9 is not `external`",
            ),
            (
                "forward = [{ external = \"203.0.113.1:80\", internal = \"8.8.8.8:80\", protocol = \"tcp\" }]",
                "8.8.8.8 is not `inside`",
            ),
            (
                "forward = [{ external = \"203.0.113.1:80\", internal = \"10.0.0.1:80\", protocol = \"tcp\" },\n\
                 { external = \"203.0.113.1:70-90\", internal = \"10.0.0.2:70-90\", protocol = \"tcp\" }]",
                "203.0.113.1:70 to 10.0.0.2:70 and 203.0.113.1:80 to 10.0.0.1:80",
            ),
            (
                "forward = [{ external = \"203.0.113.1:80\", internal = \"10.0.0.1:80\", protocol = \"tcp\" },\n\
                 { external = \"203.0.113.1:81\", internal = \"10.0.0.1:80\", protocol = \"tcp\" }]",
                "a port at one end would have two at the other",
            ),
            ("static = [{ external = \"203.0.113.1\", internal = \"10.0.0.1\" }]", "which is `external` too"),
            ("static = [{ external = \"203.0.113.2\", internal = \"8.8.8.8\" }]", "8.8.8.8, which is not `inside`"),
            ("static = [{ external = \"10.0.0.9\", internal = \"10.0.0.1\" }]", "not an outside address"),
            (
                "forward = [{ external = \"203.0.113.1:900-3000\", internal = \"10.0.0.1:900-3000\", protocol = \"udp\" }]",
                "`forward` takes 1977 of `ports`: at most 1024",
            ),
            ("static = [{ external = \"0.0.0.0\", internal = \"10.0.0.1\" }]", "not an outside address"),
            (
                "static = [{ external = \"203.0.113.2\", internal = \"10.0.0.1\" },\n\
                 { external = \"203.0.113.3\", internal = \"10.0.0.1\" }]",
                "twice",
            ),
            (
                "static = [{ external = \"203.0.113.2\", internal = \"10.0.0.1\" }]\n\
                 forward = [{ external = \"203.0.113.1:80\", internal = \"10.0.0.1:80\", protocol = \"tcp\" }]",
                "`static` gives that host its own address",
            ),
        ] {
            let error = toml::from_str::<Config>(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn there_is_more_of_everything_as_far_as_there_is_any() {
        let of = |text: &str| {
            let config: Config = toml::from_str(text).unwrap();
            (config.mappings(), config.sessions(), config.ports().first, config.ports().last)
        };
        assert_eq!(of("mappings = 100\nsessions = 7\nports = \"10-29\""), (100, 7, 10, 29));
        let some = "mappings = 100\nsessions = 7\nports = \"10-29\"\npool.overprovision = ";
        assert_eq!(of(&format!("{some}0.05")), (105, 8, 10, 30));
        assert_eq!(of(&format!("{some}1")), (200, 14, 10, 49));
        assert_eq!(of("pool.overprovision = 0.05"), (68_813, 68_813, 1024, 65_535));
        assert_eq!(of("ports = \"1-65535\"\npool.overprovision = 1.0").3, 65_535);
    }

    #[test]
    fn external_addresses_come_in_order() {
        let config: Config = toml::from_str("external = [\"198.51.100.4/31\", \"192.0.2.9\"]").unwrap();
        let expected = ["192.0.2.9", "198.51.100.4", "198.51.100.5"];
        let expected: Vec<u32> = expected.iter().map(|text| text.parse::<Ipv4Addr>().unwrap().to_bits()).collect();
        assert_eq!(*config.external(), *expected);
    }
}
