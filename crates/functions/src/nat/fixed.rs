//! Mappings that the configuration fixes: ports that are forwarded, and addresses that are one host's.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::net::{Ipv4Addr, SocketAddrV4};

use serde::Deserialize;

use super::config::is_unicast;
use super::state::{Endpoint4, Protocol};

/// What the configuration fixes. Looked through whole, and only for what has no session yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fixed {
    forwards: Box<[Forward]>,
    hosts: Box<[Host]>,
}

/// How many there may be of each.
const FIXED_MAX: usize = 256;

/// External ports that are an inside host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ForwardFields")]
pub(super) struct Forward {
    protocol: Protocol,
    /// The first of the external ports, and the first of the inside ones.
    external: Endpoint4,
    internal: Endpoint4,
    /// How many there are behind them.
    more: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForwardFields {
    external: String,
    internal: String,
    protocol: String,
}

/// An external address that is an inside host's.
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
            return Err(format!("`{}` and `{}` are not as many ports", fields.external, fields.internal));
        }
        Ok(Self { protocol, external, internal, more })
    }
}

/// An address and a port, or as many ports: `203.0.113.1:80`, `203.0.113.1:8000-8010`.
fn ends(text: &str) -> Result<(Endpoint4, u16), String> {
    let wrong = || format!("`{text}` is no address with a port: write 203.0.113.1:80 or 203.0.113.1:8000-8010");
    let (address, ports) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
    let (first, last) = (port(first)?, port(last)?);
    let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
    Ok((Endpoint4::new(address, first), last.checked_sub(first).ok_or_else(wrong)?))
}

/// Whether two stretches of ports at one address have a port in common.
const fn meet(a: (Endpoint4, u16), b: (Endpoint4, u16)) -> bool {
    let ((a, more_a), (b, more_b)) = (a, b);
    let (end_a, end_b) = (a.port as u32 + more_a as u32, b.port as u32 + more_b as u32);
    a.address == b.address && a.port as u32 <= end_b && b.port as u32 <= end_a
}

/// The endpoint as far behind `to` as `end` is behind `from`, if that is at most `more`.
fn shifted(end: Endpoint4, from: Endpoint4, to: Endpoint4, more: u16) -> Option<Endpoint4> {
    let behind = end.port.checked_sub(from.port).filter(|behind| end.address == from.address && *behind <= more)?;
    Some(Endpoint4 { address: to.address, port: to.port + behind })
}

fn shown(end: Endpoint4) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from_bits(end.address), end.port)
}

impl Fixed {
    /// These, unless they can't all be: `is_inside` tells of an address, `is_external` whether its ports are given out.
    pub(super) fn new(
        forwards: &[Forward],
        hosts: &[Host],
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
                return Err(format!("`static` maps {external}, whose ports are given out: take it out of `external`"));
            }
            let is_hosts = is_unicast(external.to_bits()) && !external.is_unspecified() && !external.is_loopback();
            if is_inside(external.to_bits()) || !is_hosts {
                return Err(format!("`static` maps {external}, which is no address of outside"));
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
                return Err(format!("`forward` has {ends}, and `static` gives that host an address of its own"));
            }
            let meets = |other: &&Forward| {
                other.protocol == protocol
                    && (meet((other.external, other.more), (external, more))
                        || meet((other.internal, other.more), (internal, more)))
            };
            if let Some(other) = forwards[..at].iter().find(meets) {
                let other = format!("{} to {}", shown(other.external), shown(other.internal));
                return Err(format!("`forward` has {ends} besides {other}: a port of either end would be two"));
            }
        }
        Ok(Self { forwards: forwards.into(), hosts: hosts.into() })
    }

    /// The external addresses that are one host's.
    pub(super) fn addresses(&self) -> impl Iterator<Item = u32> + '_ {
        self.hosts.iter().map(|host| host.external.to_bits())
    }

    /// Under which external endpoint an inside one is known, if that is fixed.
    pub(super) fn external_of(&self, protocol: Protocol, internal: Endpoint4) -> Option<Endpoint4> {
        let host = self.hosts.iter().find(|host| host.internal.to_bits() == internal.address);
        if let Some(host) = host {
            return Some(Endpoint4 { address: host.external.to_bits(), ..internal });
        }
        let of = |one: &Forward| shifted(internal, one.internal, one.external, one.more);
        self.of_protocol(protocol).find_map(of)
    }

    /// Whom an external endpoint is, if that is fixed.
    pub(super) fn internal_of(&self, protocol: Protocol, external: Endpoint4) -> Option<Endpoint4> {
        let host = self.hosts.iter().find(|host| host.external.to_bits() == external.address);
        if let Some(host) = host {
            return Some(Endpoint4 { address: host.internal.to_bits(), ..external });
        }
        let of = |one: &Forward| shifted(external, one.external, one.internal, one.more);
        self.of_protocol(protocol).find_map(of)
    }

    /// What fixes an external endpoint, in a word.
    pub(super) fn by(&self, protocol: Protocol, external: Endpoint4) -> &'static str {
        match self.internal_of(protocol, external) {
            Some(_) if self.addresses().any(|address| address == external.address) => "static",
            Some(_) => "forward",
            None => "packets",
        }
    }

    fn of_protocol(&self, protocol: Protocol) -> impl Iterator<Item = &Forward> {
        self.forwards.iter().filter(move |forward| forward.protocol == protocol)
    }
}
