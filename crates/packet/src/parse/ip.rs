//! The network layer: IPv4 (RFC 791), IPv6 and its extension headers (RFC 8200, RFC 4302).

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{array, be16, be32};
use crate::headers::{Fragment, Ipv4, Ipv6, Malformed, Network, protocol};

/// The more-fragments bit and the offset of an IPv4 header's fragment field.
pub(crate) const FRAGMENT_BITS: u16 = 0x3fff;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Maximum number of extension headers. Eight is already more than all kinds that exist.
const EXTENSIONS_MAX: usize = 16;

/// An IP datagram, its extent and what it carries.
pub(super) struct Datagram {
    pub(super) network: Network,
    pub(super) protocol: u8,
    pub(super) fragment: Fragment,
    pub(super) offset: usize,
    pub(super) transport_offset: usize,
    /// Where the datagram ended on the wire, in bytes from the start of the frame. A capture may end before.
    pub(super) end: usize,
}

/// Reads the IPv4 header at `offset` of a frame of `wire_len` bytes.
pub(super) fn read_ipv4(bytes: &[u8], offset: usize, wire_len: usize) -> Result<Datagram, Malformed> {
    let head: &[u8; 20] = array(bytes, offset).ok_or(Malformed::IpTruncated)?;
    if head[0] >> 4 != 4 {
        return Err(Malformed::IpVersion);
    }
    let header_len = usize::from(head[0] & 0x0f) * 4;
    let len = match be16(head, 2) {
        0 => wire_len - offset,
        len => usize::from(len),
    };
    if header_len < 20 || header_len > len {
        return Err(Malformed::IpHeaderLength);
    }
    if offset + len > wire_len {
        return Err(Malformed::IpLength);
    }
    if offset + header_len > bytes.len() {
        return Err(Malformed::IpTruncated);
    }
    Ok(Datagram {
        network: Network::V4(Ipv4 {
            src: Ipv4Addr::from_bits(be32(head, 12)),
            dst: Ipv4Addr::from_bits(be32(head, 16)),
            ttl: head[8],
            tos: head[1],
            id: be16(head, 4),
            total_len: u16::try_from(len).unwrap_or(u16::MAX),
            header_len: header_len as u8,
        }),
        protocol: head[9],
        fragment: ipv4_fragment(be16(head, 6)),
        offset,
        transport_offset: offset + header_len,
        end: offset + len,
    })
}

const fn ipv4_fragment(field: u16) -> Fragment {
    match field & FRAGMENT_BITS {
        0 => Fragment::Whole,
        MORE_FRAGMENTS => Fragment::First,
        _ => Fragment::Later,
    }
}

/// Reads the IPv6 header at `offset` of a frame of `wire_len` bytes, and the extension headers behind it.
pub(super) fn read_ipv6(bytes: &[u8], offset: usize, wire_len: usize) -> Result<Datagram, Malformed> {
    let head: &[u8; 40] = array(bytes, offset).ok_or(Malformed::IpTruncated)?;
    if head[0] >> 4 != 6 {
        return Err(Malformed::IpVersion);
    }
    let start = offset + 40;
    let payload_len = match be16(head, 4) {
        0 if head[6] != protocol::NO_NEXT => wire_len - start,
        len => usize::from(len),
    };
    if start + payload_len > wire_len {
        return Err(Malformed::IpLength);
    }
    let end = start + payload_len;
    let behind = behind_ipv6(&bytes[..bytes.len().min(end)], head[6], start)?;
    Ok(Datagram {
        network: Network::V6(Ipv6 {
            src: ipv6_address(head, 8),
            dst: ipv6_address(head, 24),
            hop_limit: head[7],
            traffic_class: (be16(head, 0) >> 4) as u8,
            payload_len: u16::try_from(payload_len).unwrap_or(u16::MAX),
            header_len: (behind.transport_offset - offset) as u16,
        }),
        protocol: behind.protocol,
        fragment: behind.fragment,
        offset,
        transport_offset: behind.transport_offset,
        end,
    })
}

/// End of a chain of extension headers.
pub(crate) struct Behind {
    pub(crate) protocol: u8,
    pub(crate) fragment: Fragment,
    pub(crate) transport_offset: usize,
    /// True if a routing header has stops left: the destination address is not the final one, which checksums use.
    pub(crate) has_stops_left: bool,
}

/// Walks the extension headers that begin at `at` with one of kind `next`. An atomic fragment (RFC 6946) counts as whole.
pub(crate) fn behind_ipv6(bytes: &[u8], mut next: u8, mut at: usize) -> Result<Behind, Malformed> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION_OPTIONS: u8 = 60;

    let mut fragment = Fragment::Whole;
    let mut has_stops_left = false;
    for _ in 0..EXTENSIONS_MAX {
        let len = match next {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | protocol::AH | FRAGMENT => {
                let head: &[u8; 8] = array(bytes, at).ok_or(Malformed::IpTruncated)?;
                let len = match next {
                    FRAGMENT => 8,
                    protocol::AH => usize::from(head[1]) * 4 + 8,
                    _ => usize::from(head[1]) * 8 + 8,
                };
                has_stops_left |= next == ROUTING && head[3] > 0;
                if next == FRAGMENT {
                    fragment = ipv6_fragment(fragment, be16(head, 2));
                }
                next = head[0];
                len
            }
            _ => 0,
        };
        at += len;
        if at > bytes.len() {
            return Err(Malformed::IpTruncated);
        }
        if len == 0 || fragment == Fragment::Later {
            return Ok(Behind { protocol: next, fragment, transport_offset: at, has_stops_left });
        }
    }
    Err(Malformed::IpExtensions)
}

const fn ipv6_fragment(so_far: Fragment, field: u16) -> Fragment {
    match (field >> 3, field & 1) {
        (0, 0) => so_far,
        (0, _) => Fragment::First,
        _ => Fragment::Later,
    }
}

pub(super) fn ipv6_address<const N: usize>(head: &[u8; N], at: usize) -> Ipv6Addr {
    let (high, low) = (be32(head, at), be32(head, at + 4));
    let (third, last) = (be32(head, at + 8), be32(head, at + 12));
    Ipv6Addr::from_bits((high as u128) << 96 | (low as u128) << 64 | (third as u128) << 32 | last as u128)
}
