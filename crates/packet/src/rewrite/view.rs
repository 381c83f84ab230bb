//! Rewrites without a packet's bytes: what its headers are afterwards, and several rewrites as one.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Macs, Rewrite, of_family};
use crate::headers::{Embedded, Headers, Network, TcpFlags, Transport, protocol};
use crate::key::{Endpoint, FiveTuple};

impl Rewrite {
    /// The headers of the packet once these changes are [applied](Self::apply). An ICMP error that quotes an ICMP
    /// message with identifier 0 is taken to quote one without identifier.
    #[must_use]
    pub fn seen_in(&self, headers: &Headers) -> Headers {
        let mut seen = *headers;
        if let (Some(macs), Some((src, dst))) = (self.macs, headers.macs) {
            seen.macs = Some(match macs {
                Macs::Swap => (dst, src),
                Macs::Set(src, dst) => (src, dst),
            });
        }
        let new_ttl = |old: u8| match self.ttl {
            Some(ttl) => ttl,
            None => old.saturating_sub(u8::from(self.decrement_ttl)),
        };
        let (src, dst) = match &mut seen.network {
            Network::V4(ip) => {
                let (src, dst) = (of_family(self.src, true), of_family(self.dst, true));
                (ip.src, ip.dst) = (v4(src).unwrap_or(ip.src), v4(dst).unwrap_or(ip.dst));
                (ip.ttl, ip.tos) = (new_ttl(ip.ttl), self.tos.unwrap_or(ip.tos));
                (src, dst)
            }
            Network::V6(ip) => {
                let (src, dst) = (of_family(self.src, false), of_family(self.dst, false));
                (ip.src, ip.dst) = (v6(src).unwrap_or(ip.src), v6(dst).unwrap_or(ip.dst));
                (ip.hop_limit, ip.traffic_class) = (new_ttl(ip.hop_limit), self.tos.unwrap_or(ip.traffic_class));
                (src, dst)
            }
            Network::None | Network::Unreadable | Network::Arp => return seen,
        };
        let write = |port: &mut u16, end: Option<Endpoint>| {
            if let Some(end) = end {
                *port = end.port;
            }
        };
        match &mut seen.transport {
            Transport::Tcp(tcp) => {
                write(&mut tcp.src_port, src);
                write(&mut tcp.dst_port, dst);
                if let (Some(max), true) = (self.mss_max, tcp.flags.contains(TcpFlags::SYN)) {
                    tcp.options.mss = tcp.options.mss.map(|mss| mss.min(max.get()));
                }
            }
            Transport::Udp { src_port, dst_port } | Transport::Sctp { src_port, dst_port } => {
                write(src_port, src);
                write(dst_port, dst);
            }
            Transport::Icmp(icmp) => match (&mut icmp.embedded, icmp.identifier) {
                (Some(quoted), _) if self.embedded => quote(quoted, dst, src),
                (_, Some(identifier)) => icmp.identifier = Some(other_identifier(identifier, src, dst)),
                _ => {}
            },
            Transport::None => {}
        }
        seen
    }

    /// These changes and then `later` as one rewrite of the packet with these headers, which are those before both.
    #[must_use]
    pub fn then(&self, later: &Self, headers: &Headers) -> Self {
        let is_v4 = matches!(headers.network, Network::V4(_));
        let seen = later.seen_in(&self.seen_in(headers));
        // An identifier stands for both ends, so both get the one that comes out.
        let identifier = match seen.transport {
            Transport::Icmp(icmp) => {
                let quoted = icmp.embedded.filter(|quoted| is_icmp(quoted.tuple.protocol()));
                quoted.map(|quoted| quoted.tuple.source().port).or(icmp.identifier)
            }
            Transport::None | Transport::Tcp(_) | Transport::Udp { .. } | Transport::Sctp { .. } => None,
        };
        let last = |first: Option<Endpoint>, second| {
            let end = of_family(second, is_v4).or(of_family(first, is_v4))?;
            Some(Endpoint::new(end.address, identifier.unwrap_or(end.port)))
        };
        let macs = match (self.macs, later.macs) {
            (Some(Macs::Swap), Some(Macs::Swap)) => None,
            (Some(Macs::Set(src, dst)), Some(Macs::Swap)) => Some(Macs::Set(dst, src)),
            (first, second) => second.or(first),
        };
        let changes_ttl = |rewrite: &Self| rewrite.decrement_ttl || rewrite.ttl.is_some();
        let ttl = (changes_ttl(self) && changes_ttl(later)).then_some(match seen.network {
            Network::V4(ip) => ip.ttl,
            Network::V6(ip) => ip.hop_limit,
            Network::None | Network::Unreadable | Network::Arp => 0,
        });
        Self {
            src: last(self.src, later.src),
            dst: last(self.dst, later.dst),
            embedded: self.embedded || later.embedded,
            macs,
            decrement_ttl: self.decrement_ttl || later.decrement_ttl,
            ttl: ttl.or(later.ttl).or(self.ttl),
            tos: later.tos.or(self.tos),
            mss_max: match (self.mss_max, later.mss_max) {
                (Some(first), Some(second)) => Some(first.min(second)),
                (first, second) => second.or(first),
            },
        }
    }
}

fn v4(end: Option<Endpoint>) -> Option<Ipv4Addr> {
    match end?.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn v6(end: Option<Endpoint>) -> Option<Ipv6Addr> {
    match end?.address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address),
    }
}

/// An ICMP query has one identifier for both ends: the new one is the one that differs.
fn other_identifier(current: u16, src: Option<Endpoint>, dst: Option<Endpoint>) -> u16 {
    let other = |end: Option<Endpoint>| end.map(|end| end.port).filter(|port| *port != current);
    other(dst).or(other(src)).unwrap_or(current)
}

const fn is_icmp(number: u8) -> bool {
    matches!(number, protocol::ICMP | protocol::ICMPV6)
}

/// Changes the endpoints of a quoted packet.
fn quote(quoted: &mut Embedded, src: Option<Endpoint>, dst: Option<Endpoint>) {
    let is_v4 = matches!(quoted.tuple, FiveTuple::V4(_));
    let (src, dst) = (of_family(src, is_v4), of_family(dst, is_v4));
    let (source, destination, number) = (quoted.tuple.source(), quoted.tuple.destination(), quoted.tuple.protocol());
    let mut ports = (source.port, destination.port);
    match number {
        protocol::TCP | protocol::UDP | protocol::SCTP => {
            let new = |old: u16, end: Option<Endpoint>| end.map_or(old, |end| end.port);
            ports = (new(ports.0, src), new(ports.1, dst));
        }
        _ if is_icmp(number) && ports != (0, 0) => {
            let identifier = other_identifier(ports.0, src, dst);
            ports = (identifier, identifier);
        }
        _ => {}
    }
    let address = |old: Endpoint, end: Option<Endpoint>| end.map_or(old.address, |end| end.address);
    let source = Endpoint::new(address(source, src), ports.0);
    let destination = Endpoint::new(address(destination, dst), ports.1);
    if let Some(tuple) = FiveTuple::between(source, destination, number) {
        quoted.tuple = tuple;
    }
}
