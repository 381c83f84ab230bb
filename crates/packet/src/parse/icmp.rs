//! ICMP (RFC 792, RFC 950) and ICMPv6 (RFC 4443): queries by their identifier, errors by the packet that they quote.

use core::net::Ipv4Addr;

use super::ip::{Datagram, behind_ipv6, ipv6_address};
use super::{array, be16, be32};
use crate::headers::{Embedded, Fragment, Icmp, Malformed, Network, protocol};
use crate::key::FiveTuple;

/// Reads the ICMP header of `ip`; `bytes` ends where the datagram does, or before.
pub(super) fn read(bytes: &[u8], ip: &Datagram) -> Result<Icmp, Malformed> {
    let head: &[u8; 8] = array(bytes, ip.transport_offset).ok_or(Malformed::TransportTruncated)?;
    let quote = ip.transport_offset + 8;
    let embedded = match (ip.network, head[0]) {
        (Network::V4(_), 3 | 4 | 5 | 11 | 12) => quoted_ipv4(bytes, quote),
        (Network::V6(_), 0..=127) => quoted_ipv6(bytes, quote),
        _ => None,
    };
    let identifier = is_query(ip.protocol, head[0]).then(|| be16(head, 4));
    Ok(Icmp { kind: head[0], code: head[1], identifier, embedded })
}

/// True if messages of this type carry an identifier.
pub(crate) const fn is_query(protocol: u8, kind: u8) -> bool {
    match protocol {
        // Echo, timestamp, information, address mask.
        protocol::ICMP => matches!(kind, 0 | 8 | 13..=18),
        // Echo; node information (RFC 4620), whose question's kind stands there, in the reply too.
        protocol::ICMPV6 => matches!(kind, 128 | 129 | 139 | 140),
        _ => false,
    }
}

fn quoted_ipv4(bytes: &[u8], at: usize) -> Option<Embedded> {
    let head: &[u8; 20] = array(bytes, at)?;
    let header_len = usize::from(head[0] & 0x0f) * 4;
    // A later fragment has no ports, so it names no flow.
    if head[0] >> 4 != 4 || header_len < 20 || be16(head, 6) & 0x1fff != 0 {
        return None;
    }
    let (src, dst) = (Ipv4Addr::from_bits(be32(head, 12)), Ipv4Addr::from_bits(be32(head, 16)));
    let (src_port, dst_port) = quoted_ports(bytes, at + header_len, head[9])?;
    Some(Embedded {
        tuple: FiveTuple::v4(src, dst, src_port, dst_port, head[9]),
        network_offset: u16::try_from(at).ok()?,
        transport_offset: u16::try_from(at + header_len).ok()?,
    })
}

fn quoted_ipv6(bytes: &[u8], at: usize) -> Option<Embedded> {
    let head: &[u8; 40] = array(bytes, at)?;
    if head[0] >> 4 != 6 {
        return None;
    }
    let behind = behind_ipv6(bytes, head[6], at + 40).ok()?;
    if behind.fragment == Fragment::Later {
        return None;
    }
    let (src, dst) = (ipv6_address(head, 8), ipv6_address(head, 24));
    let (src_port, dst_port) = quoted_ports(bytes, behind.transport_offset, behind.protocol)?;
    Some(Embedded {
        tuple: FiveTuple::v6(src, dst, src_port, dst_port, behind.protocol),
        network_offset: u16::try_from(at).ok()?,
        transport_offset: u16::try_from(behind.transport_offset).ok()?,
    })
}

/// The quoted packet's ports as [`Headers::ports`](crate::Headers::ports) would count them. Eight bytes of its transport
/// header must have come back with the error, as RFC 792 promises.
fn quoted_ports(bytes: &[u8], at: usize, protocol: u8) -> Option<(u16, u16)> {
    let head: &[u8; 8] = array(bytes, at)?;
    Some(match protocol {
        protocol::TCP | protocol::UDP | protocol::SCTP => (be16(head, 0), be16(head, 2)),
        _ if is_query(protocol, head[0]) => (be16(head, 4), be16(head, 4)),
        _ => (0, 0),
    })
}
