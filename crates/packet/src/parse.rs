//! Checked parsing of a frame to [`Headers`].
//!
//! Most packets are Ethernet, IPv4 without options, unfragmented, TCP or UDP. [`ordinary`] recognises these in straight-line code that is
//! inlined into the caller's loop. TCP segments with options, which start connections, have their own fast path. All other packets go to
//! [`parse_odd`], which parses layer by layer. A property test checks that all paths give the same result.

mod icmp;
mod ip;
mod link;
mod transport;
mod tunnel;

use core::net::Ipv4Addr;

use crate::headers::{
    Fragment, Headers, Ipv4, Mac, Malformed, Network, Tcp, TcpFlags, TcpOptions, Transport, Vlans, protocol,
};
use crate::link::LinkType;

pub(crate) use icmp::is_query;
pub(crate) use ip::{FRAGMENT_BITS, behind_ipv6};
pub(crate) use link::{IPV4, IPV6, LENGTH_MAX, is_vlan_tag};

/// Parses a frame.
///
/// `bytes` are the captured bytes. `wire_len` is the length of the frame on the wire; it is raised to `bytes.len()`. A truncated frame
/// parses if its headers are whole; TCP options may be cut. Payload lengths come from the IP header, and for UDP from the UDP header.
///
/// An IPv4 total length or IPv6 payload length of zero, as in captures with segmentation offload, means the rest of the frame. Bytes
/// after the IP length (Ethernet padding) are ignored.
///
/// # Errors
/// The frame's headers are malformed.
#[inline]
pub fn parse(link: LinkType, bytes: &[u8], wire_len: u32, interface: u16) -> Result<Headers, Malformed> {
    match parse_ordinary(link, bytes, wire_len, interface, |headers| *headers) {
        Some(headers) => Ok(headers),
        None => odd(link, bytes, wire_len, interface),
    }
}

#[inline(never)]
fn odd(link: LinkType, bytes: &[u8], wire_len: u32, interface: u16) -> Result<Headers, Malformed> {
    match parse_segment(link, bytes, wire_len, interface, |headers| *headers) {
        Some(headers) => Ok(headers),
        None => parse_odd(link, bytes, wire_len, interface),
    }
}

/// Calls `look` with the headers that [`parse`] would return, if the frame is ordinary: Ethernet, IPv4 without options, TCP or UDP.
/// `None` means only that the frame is not ordinary.
///
/// Use it to read a few fields. `look` is inlined, so only the fields it reads are computed; building the whole value would cost more
/// than the checks (`cargo bench -p millrace-packet`).
#[inline(always)]
pub fn parse_ordinary<R>(
    link: LinkType,
    bytes: &[u8],
    wire_len: u32,
    interface: u16,
    look: impl FnOnce(&Headers) -> R,
) -> Option<R> {
    if link != LinkType::Ethernet {
        return None;
    }
    let head = bytes.first_chunk()?;
    let wire_len = wire_len.max(bytes.len() as u32);
    // Each transport has its own look: joining the two in one place would send every field over the stack.
    match ordinary(head, bytes, wire_len) {
        Ordinary::Tcp { header_len } => {
            let payload_len = be16(head, 16) - 20 - header_len;
            let segment = Transport::Tcp(tcp(head));
            Some(look(&headers_of(head, wire_len, interface, segment, 34 + header_len, payload_len)))
        }
        Ordinary::Udp => {
            let (src_port, dst_port) = (be16(head, 34), be16(head, 36));
            let datagram = Transport::Udp { src_port, dst_port };
            Some(look(&headers_of(head, wire_len, interface, datagram, 34 + 8, be16(head, 38) - 8)))
        }
        Ordinary::No => None,
    }
}

/// The same as [`parse_ordinary`] for a TCP segment with options other than a single timestamp, in an otherwise ordinary frame: every
/// connection begins with one.
#[inline(always)]
pub fn parse_segment<R>(
    link: LinkType,
    bytes: &[u8],
    wire_len: u32,
    interface: u16,
    look: impl FnOnce(&Headers) -> R,
) -> Option<R> {
    let head: &[u8; ORDINARY] = bytes.first_chunk()?;
    let wire_len = wire_len.max(bytes.len() as u32);
    let header_len = u16::from(head[46] >> 4) * 4;
    let is_segment = link == LinkType::Ethernet
        && is_ordinary_datagram(head, wire_len)
        && head[23] == protocol::TCP
        && header_len >= 20
        && be16(head, 16) >= 20 + header_len;
    if !is_segment {
        return None;
    }
    let options = bytes.get(ORDINARY..34 + usize::from(header_len))?;
    let options = transport::read_options(options, be32(head, 42), TcpFlags(head[47]).contains(TcpFlags::SYN));
    let segment = Transport::Tcp(Tcp { options, ..tcp(head) });
    let payload_len = be16(head, 16) - 20 - header_len;
    Some(look(&headers_of(head, wire_len, interface, segment, 34 + header_len, payload_len)))
}

/// Long enough for TCP. Ethernet pads shorter UDP to 60 bytes, so few frames are shorter.
pub(crate) const ORDINARY: usize = 54;

/// What kind of ordinary packet a frame holds.
enum Ordinary {
    Tcp { header_len: u16 },
    Udp,
    No,
}

/// Ethernet, IPv4 without options, unfragmented TCP (no options, or the timestamp alone) or UDP: nothing odd at all.
#[inline(always)]
fn ordinary(head: &[u8; ORDINARY], bytes: &[u8], wire_len: u32) -> Ordinary {
    let total_len = be16(head, 16);
    if !is_ordinary_datagram(head, wire_len) {
        return Ordinary::No;
    }
    match head[23] {
        protocol::TCP => {
            let header_len = match head[46] >> 4 {
                5 => 20,
                8 if bytes.get(54..58) == Some(&transport::TIMESTAMP_ALONE) && bytes.len() >= 66 => 32,
                _ => return Ordinary::No,
            };
            if total_len < 20 + header_len {
                return Ordinary::No;
            }
            Ordinary::Tcp { header_len }
        }
        protocol::UDP => {
            let len = be16(head, 38);
            if len < 8 || u32::from(len) + 20 > u32::from(total_len) || tunnel::is_port(be16(head, 36)) {
                return Ordinary::No;
            }
            Ordinary::Udp
        }
        _ => Ordinary::No,
    }
}

/// Ethernet, and a whole IPv4 datagram without options, as long as it says.
#[inline(always)]
fn is_ordinary_datagram(head: &[u8; ORDINARY], wire_len: u32) -> bool {
    be16(head, 12) == IPV4
        && head[14] == 0x45
        && be16(head, 20) & FRAGMENT_BITS == 0
        && 14 + u32::from(be16(head, 16)) <= wire_len
}

/// The TCP header of an ordinary packet. A timestamp is not among the options that are kept.
#[inline(always)]
fn tcp(head: &[u8; ORDINARY]) -> Tcp {
    Tcp {
        src_port: be16(head, 34),
        dst_port: be16(head, 36),
        seq: be32(head, 38),
        ack: be32(head, 42),
        flags: TcpFlags(head[47]),
        window: be16(head, 48),
        options: TcpOptions::default(),
    }
}

/// The headers of an ordinary packet.
#[inline(always)]
fn headers_of(
    head: &[u8; ORDINARY],
    wire_len: u32,
    interface: u16,
    transport: Transport,
    payload_offset: u16,
    payload_len: u16,
) -> Headers {
    Headers {
        link: LinkType::Ethernet,
        interface,
        macs: Some(macs(head)),
        vlans: Vlans::default(),
        ethertype: IPV4,
        network: Network::V4(Ipv4 {
            src: Ipv4Addr::from_bits(be32(head, 26)),
            dst: Ipv4Addr::from_bits(be32(head, 30)),
            ttl: head[22],
            tos: head[15],
            id: be16(head, 18),
            total_len: be16(head, 16),
            header_len: 20,
        }),
        protocol: head[23],
        fragment: Fragment::Whole,
        transport,
        tunnel: None,
        network_offset: 14,
        transport_offset: 34,
        payload_offset,
        payload_len: payload_len.into(),
        wire_len,
    }
}

/// Parses any frame layer by layer, like [`parse`] without its fast paths: for frames known not to be ordinary.
///
/// # Errors
/// What is wrong with the frame's headers.
#[inline(never)]
pub fn parse_odd(link: LinkType, bytes: &[u8], wire_len: u32, interface: u16) -> Result<Headers, Malformed> {
    let (mut headers, inside) = outside(link, bytes, wire_len, interface)?;
    let (offset, wire_len) = (usize::from(headers.network_offset), headers.wire_len as usize);
    match inside {
        link::Inside::Arp | link::Inside::Other | link::Inside::Unreadable => {}
        link::Inside::V4 => datagram(&mut headers, bytes, ip::read_ipv4(bytes, offset, wire_len))?,
        link::Inside::V6 => datagram(&mut headers, bytes, ip::read_ipv6(bytes, offset, wire_len))?,
        // What is behind MPLS labels is told by its first nibble alone. What doesn't hold up as IP may be a pseudowire's frame.
        link::Inside::Guess(offset) => {
            let guess = match bytes[offset] >> 4 {
                4 => ip::read_ipv4(bytes, offset, wire_len),
                _ => ip::read_ipv6(bytes, offset, wire_len),
            };
            let _ = datagram(&mut headers, bytes, guess);
        }
    }
    Ok(headers)
}

/// The valid layers of a frame that [`parse`] refuses: those before the malformed header. If that is the IP header, the network is
/// [`Network::Unreadable`], and the EtherType is kept. If it is the transport header, the transport is `None`. Returns `None` if the link
/// header itself is malformed.
#[must_use]
pub fn parse_what_is_whole(link: LinkType, bytes: &[u8], wire_len: u32, interface: u16) -> Option<Headers> {
    let (mut headers, inside) = outside(link, bytes, wire_len, interface).ok()?;
    let (offset, wire_len) = (headers.network_offset.into(), headers.wire_len as usize);
    let ip = match inside {
        link::Inside::V4 => ip::read_ipv4(bytes, offset, wire_len),
        link::Inside::V6 => ip::read_ipv6(bytes, offset, wire_len),
        link::Inside::Arp | link::Inside::Other | link::Inside::Unreadable | link::Inside::Guess(_) => {
            return Some(headers);
        }
    };
    if let Ok(ip) = ip {
        headers.network = ip.network;
        headers.protocol = ip.protocol;
        headers.fragment = ip.fragment;
        headers.transport_offset = ip.transport_offset as u16;
        headers.payload_offset = ip.transport_offset as u16;
        headers.payload_len = (ip.end - ip.transport_offset) as u32;
    }
    Some(headers)
}

/// The headers of the link layer, and its payload.
#[inline]
fn outside(link: LinkType, bytes: &[u8], wire_len: u32, interface: u16) -> Result<(Headers, link::Inside), Malformed> {
    let wire_len = wire_len.max(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    let outside = link::read(link, bytes)?;
    let headers = Headers {
        link,
        interface,
        macs: outside.macs,
        vlans: outside.vlans,
        ethertype: outside.ethertype,
        network: match outside.inside {
            link::Inside::Arp => Network::Arp,
            link::Inside::Other => Network::None,
            // Unless it turns out to be IP.
            _ => Network::Unreadable,
        },
        protocol: 0,
        fragment: Fragment::Whole,
        transport: Transport::None,
        tunnel: None,
        network_offset: outside.len as u16,
        transport_offset: outside.len as u16,
        payload_offset: outside.len as u16,
        payload_len: wire_len - outside.len as u32,
        wire_len,
    };
    Ok((headers, outside.inside))
}

/// Fills in the fields of an IP datagram, all or none. Bytes after its end are not accessible to later layers.
#[inline]
fn datagram(headers: &mut Headers, bytes: &[u8], ip: Result<ip::Datagram, Malformed>) -> Result<(), Malformed> {
    let ip = ip?;
    let bytes = &bytes[..bytes.len().min(ip.end)];
    let layer = transport::read(bytes, &ip)?;
    headers.network = ip.network;
    headers.protocol = ip.protocol;
    headers.fragment = ip.fragment;
    headers.transport = layer.transport;
    headers.tunnel = layer.tunnel;
    // Link headers, extension headers and transport header together stay under 64 KiB: each chain is bounded.
    headers.network_offset = ip.offset as u16;
    headers.transport_offset = ip.transport_offset as u16;
    headers.payload_offset = layer.payload_offset as u16;
    headers.payload_len = layer.payload_len as u32;
    Ok(())
}

impl Headers {
    /// Parses the inner packet of a tunnel; `None` if this is not the outer packet of a tunnel. `bytes` is the frame that these headers
    /// were parsed from.
    ///
    /// All offsets in the result are relative to the inner packet, `bytes[tunnel.inner_offset..]`; pass that slice to
    /// [`Rewrite::apply`](crate::Rewrite::apply).
    #[must_use]
    pub fn inner(&self, bytes: &[u8]) -> Option<Result<Self, Malformed>> {
        let tunnel = self.tunnel?;
        let end = u32::from(self.payload_offset) + self.payload_len;
        let wire_len = end.checked_sub(u32::from(tunnel.inner_offset))?;
        let inner = bytes.get(usize::from(tunnel.inner_offset)..)?;
        let inner = &inner[..inner.len().min(wire_len as usize)];
        Some(parse(tunnel.inner_link, inner, wire_len, self.interface))
    }
}

/// Source and destination, the other way round than they stand in the frame.
#[inline(always)]
fn macs<const N: usize>(head: &[u8; N]) -> (Mac, Mac) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *head.first_chunk().unwrap_or(&[0; 12]);
    (Mac([g, h, i, j, k, l]), Mac([a, b, c, d, e, f]))
}

/// The `N` bytes at `at`, if they were captured.
#[inline(always)]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

#[inline(always)]
pub(crate) const fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
pub(crate) const fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests;
