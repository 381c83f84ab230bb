//! Fixed mappings of the configuration: forwarded ports, and addresses of one host.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::RangeInclusive;

use serde::Deserialize;

use super::config::is_unicast;
use super::state::{Endpoint4, Protocol};

/// The fixed mappings of the configuration. They have no state: packets are rewritten by this list only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fixed {
    /// False if both lists are empty, as in most configurations.
    any: bool,
    forwards: Box<[Forward]>,
    hosts: Box<[Host]>,
}

/// Maximum length of each list. A packet searches both.
const FIXED_MAX: usize = 256;
/// Maximum number of pool ports that may be forwarded. The first packet that meets them removes them one by one.
const POOLED_MAX: u32 = 1_024;

/// A `forward` entry: external ports of an inside host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ForwardFields")]
pub(super) struct Forward {
    protocol: Protocol,
    /// First external and first inside port, with their addresses.
    external: Endpoint4,
    internal: Endpoint4,
    /// Number of ports after the first.
    more: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForwardFields {
    external: String,
    internal: String,
    protocol: String,
}

/// A `static` entry: an external address of one inside host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Host {
    external: Ipv4Addr,
    internal: Ipv4Addr,
}

impl TryFrom<ForwardFields> for Forward {
    type Error = String;

    fn try_from(fields: ForwardFields) -> Result<Self, String> {
        let ForwardFields { external, internal, protocol } = &fields;
        let protocol = match &**protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            other => return Err(format!("`{other}` has no ports to forward: write tcp or udp")),
        };
        let ((external, more), (internal, others)) = (ends(external)?, ends(internal)?);
        if more != others {
            return Err(format!("`{}` and `{}` have different numbers of ports", fields.external, fields.internal));
        }
        Ok(Self { protocol, external, internal, more })
    }
}

/// Reads an address with a port or a range of ports: `203.0.113.1:80`, `203.0.113.1:8000-8010`.
fn ends(text: &str) -> Result<(Endpoint4, u16), String> {
    let wrong = || format!("`{text}` is not an address with a port: write 203.0.113.1:80 or 203.0.113.1:8000-8010");
    let (address, ports) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
    let (first, last) = (port(first)?, port(last)?);
    let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
    Ok((Endpoint4::new(address, first), last.checked_sub(first).ok_or_else(wrong)?))
}

/// Returns true if two ranges of ports overlap at one address.
const fn meet(a: (Endpoint4, u16), b: (Endpoint4, u16)) -> bool {
    let ((a, more_a), (b, more_b)) = (a, b);
    let (end_a, end_b) = (a.port as u32 + more_a as u32, b.port as u32 + more_b as u32);
    a.address == b.address && a.port as u32 <= end_b && b.port as u32 <= end_a
}

/// Translates `end` from the range that begins at `from` to the one at `to`, if it is in the range.
fn shifted(end: Endpoint4, from: Endpoint4, to: Endpoint4, more: u16) -> Option<Endpoint4> {
    let behind = end.port.checked_sub(from.port).filter(|behind| end.address == from.address && *behind <= more)?;
    Some(Endpoint4 { address: to.address, port: to.port + behind })
}

fn shown(end: Endpoint4) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from_bits(end.address), end.port)
}

impl Fixed {
    /// Checks both lists. `is_inside` and `is_external` say if an address is in `inside` or `external`; `pooled` is the range `ports`.
    ///
    /// # Errors
    /// A message about the first invalid entry.
    pub(super) fn new(
        forwards: &[Forward],
        hosts: &[Host],
        pooled: RangeInclusive<u16>,
        is_inside: impl Fn(u32) -> bool,
        is_external: impl Fn(u32) -> bool,
    ) -> Result<Self, String> {
        for (name, count) in [("forward", forwards.len()), ("static", hosts.len())] {
            if count > FIXED_MAX {
                return Err(format!("`{name}` has {count} entries: at most {FIXED_MAX}"));
            }
        }
        for (at, host) in hosts.iter().enumerate() {
            let Host { external, internal } = *host;
            if !is_inside(internal.to_bits()) {
                return Err(format!("`static` maps {external} to {internal}, which is not `inside`"));
            }
            if is_external(external.to_bits()) {
                return Err(format!("`static` maps {external}, which is `external` too: remove it there"));
            }
            let is_hosts = is_unicast(external.to_bits()) && !external.is_unspecified() && !external.is_loopback();
            if is_inside(external.to_bits()) || !is_hosts {
                return Err(format!("`static` maps {external}, which is not an outside address"));
            }
            if hosts[..at].iter().any(|other| other.external == external || other.internal == internal) {
                return Err(format!("`static` maps {external} or {internal} twice"));
            }
        }
        for (at, forward) in forwards.iter().enumerate() {
            let Forward { protocol, external, internal, more } = *forward;
            let ends = format!("{} to {}", shown(external), shown(internal));
            if !is_external(external.address) {
                return Err(format!("`forward` has {ends}, and {} is not `external`", shown(external).ip()));
            }
            if !is_inside(internal.address) {
                return Err(format!("`forward` has {ends}, and {} is not `inside`", shown(internal).ip()));
            }
            if hosts.iter().any(|host| host.internal.to_bits() == internal.address) {
                return Err(format!("`forward` has {ends}, and `static` gives that host its own address"));
            }
            let meets = |other: &&Forward| {
                other.protocol == protocol
                    && (meet((other.external, other.more), (external, more))
                        || meet((other.internal, other.more), (internal, more)))
            };
            if let Some(other) = forwards[..at].iter().find(meets) {
                let other = format!("{} to {}", shown(other.external), shown(other.internal));
                return Err(format!("`forward` has {ends} and {other}: a port at one end would have two at the other"));
            }
        }
        let of_pool = |forward: &Forward| {
            let (first, last) = (u32::from(forward.external.port), u32::from(forward.external.port + forward.more));
            (last.min((*pooled.end()).into()) + 1).saturating_sub(first.max((*pooled.start()).into()))
        };
        let taken: u32 = forwards.iter().map(of_pool).sum();
        if taken > POOLED_MAX {
            return Err(format!("`forward` takes {taken} of `ports`: at most {POOLED_MAX}; choose other `ports`"));
        }
        let any = !forwards.is_empty() || !hosts.is_empty();
        Ok(Self { any, forwards: forwards.into(), hosts: hosts.into() })
    }

    /// The external addresses of static mappings.
    pub(super) fn addresses(&self) -> impl Iterator<Item = u32> + '_ {
        self.hosts.iter().map(|host| host.external.to_bits())
    }

    /// The forwarded ports of an external address.
    pub(super) fn forwards_of(&self, address: u32) -> impl Iterator<Item = &Forward> {
        self.forwards.iter().filter(move |forward| forward.external.address == address)
    }

    /// Lists the mappings: protocol, inside endpoint, external endpoint.
    pub(super) fn each(&self) -> impl Iterator<Item = [String; 3]> + '_ {
        let hosts = self.hosts.iter().map(|host| ["any".into(), host.internal.to_string(), host.external.to_string()]);
        let ports = |end: Endpoint4, more: u16| match more {
            0 => shown(end).to_string(),
            more => format!("{}-{}", shown(end), end.port + more),
        };
        let forwards = self.forwards.iter().map(move |&Forward { protocol, external, internal, more }| {
            [protocol.name().into(), ports(internal, more), ports(external, more)]
        });
        hosts.chain(forwards)
    }

    /// Returns the external endpoint of an inside endpoint with a fixed mapping.
    #[inline(always)]
    pub(super) fn external_of(&self, protocol: Protocol, internal: Endpoint4) -> Option<Endpoint4> {
        if self.any { self.other_end(protocol, internal, true) } else { None }
    }

    /// Returns the inside endpoint of an external endpoint with a fixed mapping.
    #[inline(always)]
    pub(super) fn internal_of(&self, protocol: Protocol, external: Endpoint4) -> Option<Endpoint4> {
        if self.any { self.other_end(protocol, external, false) } else { None }
    }

    /// Returns the other end of a fixed mapping. A `static` host keeps the port; a forwarded port keeps its distance from the first.
    #[inline(never)]
    fn other_end(&self, protocol: Protocol, end: Endpoint4, is_internal: bool) -> Option<Endpoint4> {
        let host = self.hosts.iter().find_map(|&Host { external, internal }| {
            let [external, internal] = [external.to_bits(), internal.to_bits()];
            let (from, to) = if is_internal { (internal, external) } else { (external, internal) };
            (from == end.address).then_some(Endpoint4 { address: to, ..end })
        });
        let mut forwards = self.forwards.iter().filter(|forward| forward.protocol == protocol);
        host.or_else(|| {
            forwards.find_map(|&Forward { external, internal, more, .. }| match is_internal {
                true => shifted(end, internal, external, more),
                false => shifted(end, external, internal, more),
            })
        })
    }
}
