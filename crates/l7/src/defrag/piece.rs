//! A packet read as a fragment: [`Piece`].

use std::ops::Range;

use packet::{Fragment, Headers, LinkType, Network, protocol};
use port::Packet;

/// The datagram that a fragment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) source: Source,
    dst: [u8; 16],
    id: u32,
    /// 0 for IPv6, where the fragments of a datagram may name different ones.
    protocol: u8,
    link: LinkType,
}

/// A source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source {
    address: [u8; 16],
    pub(super) is_v6: bool,
}

/// A fragment.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) key: Key,
    /// Where its bytes belong in the datagram.
    pub(super) offset: u32,
    pub(super) end: u32,
    /// True if it is not the last.
    pub(super) more: bool,
    /// Its bytes in the frame. The capture may have fewer.
    pub(super) payload: Range<usize>,
    /// Where its IP header begins in the frame.
    pub(super) network_offset: usize,
    /// The two bits of congestion notification.
    pub(super) ecn: u8,
    /// Its fragment header, if it has IPv6.
    pub(super) v6: Option<FragmentHeader>,
}

/// A fragment header of IPv6.
#[derive(Clone, Copy, Debug)]
pub(super) struct FragmentHeader {
    /// Where it begins, in bytes from the start of the IP header.
    pub(super) at: usize,
    /// Where the byte is that names it, in bytes from the start of the IP header.
    pub(super) named_at: usize,
    /// What it names.
    pub(super) next: u8,
    pub(super) id: u32,
}

const ETHERTYPE_V4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_V6: [u8; 2] = [0x86, 0xdd];
const EXTENSION_FRAGMENT: u8 = 44;

/// The fixed header of IPv6.
pub(super) const V6_LEN: usize = 40;

/// Quickly false for most packets that are no fragments.
#[inline]
pub(super) fn may_be_fragment(link: LinkType, bytes: &[u8]) -> bool {
    let (LinkType::Ethernet, Some(head)) = (link, bytes.first_chunk::<34>()) else { return true };
    match [head[12], head[13]] {
        ETHERTYPE_V4 => u16::from_be_bytes([head[20], head[21]]) & 0x3fff != 0,
        ETHERTYPE_V6 => !matches!(head[20], protocol::TCP | protocol::UDP | protocol::ICMPV6 | protocol::ESP),
        _ => true,
    }
}

impl Piece {
    /// Reads a packet; `None` if it is no fragment, or malformed.
    pub(super) fn read(packet: &Packet, bytes: &[u8]) -> Option<Self> {
        let headers = packet::parse_what_is_whole(packet.link, bytes, packet.wire_len, packet.interface)?;
        if headers.fragment == Fragment::Whole {
            return None;
        }
        let at = usize::from(headers.network_offset);
        match headers.network {
            Network::V4(ip) => {
                let field = u16::from_be_bytes([*bytes.get(at + 6)?, *bytes.get(at + 7)?]);
                let (start, end) = (at + usize::from(ip.header_len), at + usize::from(ip.total_len));
                let source = Source { address: padded(ip.src.octets()), is_v6: false };
                let dst = padded(ip.dst.octets());
                let key = Key { source, dst, id: ip.id.into(), protocol: headers.protocol, link: headers.link };
                let offset = u32::from(field & 0x1fff) * 8;
                Some(Self::new(key, offset, field & 0x2000 != 0, start..end, &headers, ip.tos & 3, None))
            }
            Network::V6(ip) => {
                let header = fragment_header(bytes.get(at..)?)?;
                let fields: &[u8; 8] = bytes.get(at + header.at..)?.first_chunk()?;
                let field = u16::from_be_bytes([fields[2], fields[3]]);
                let (start, end) = (at + header.at + 8, at + V6_LEN + usize::from(ip.payload_len));
                let source = Source { address: ip.src.octets(), is_v6: true };
                let key = Key { source, dst: ip.dst.octets(), id: header.id, protocol: 0, link: headers.link };
                let (offset, more) = (u32::from(field & !7), field & 1 != 0);
                Some(Self::new(key, offset, more, start..end, &headers, ip.traffic_class & 3, Some(header)))
            }
            Network::None | Network::Unreadable | Network::Arp => None,
        }
    }

    fn new(
        key: Key,
        offset: u32,
        more: bool,
        payload: Range<usize>,
        headers: &Headers,
        ecn: u8,
        v6: Option<FragmentHeader>,
    ) -> Self {
        let end = offset + payload.len() as u32;
        Self { key, offset, end, more, payload, network_offset: headers.network_offset.into(), ecn, v6 }
    }
}

fn padded(address: [u8; 4]) -> [u8; 16] {
    let mut padded = [0; 16];
    padded[..4].copy_from_slice(&address);
    padded
}

/// Finds the fragment header behind an IPv6 header; one of an atomic fragment does not count.
fn fragment_header(packet: &[u8]) -> Option<FragmentHeader> {
    const EXTENSIONS: [u8; 4] = [0, 43, 60, protocol::AH];
    let (mut named_at, mut at) = (6, V6_LEN);
    loop {
        let kind = *packet.get(named_at)?;
        let head: &[u8; 8] = packet.get(at..)?.first_chunk()?;
        let field = u16::from_be_bytes([head[2], head[3]]);
        let len = match kind {
            EXTENSION_FRAGMENT if field & 0xfff9 != 0 => {
                let id = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
                return Some(FragmentHeader { at, named_at, next: head[0], id });
            }
            EXTENSION_FRAGMENT => 8,
            protocol::AH => usize::from(head[1]) * 4 + 8,
            kind if EXTENSIONS.contains(&kind) => usize::from(head[1]) * 8 + 8,
            _ => return None,
        };
        (named_at, at) = (at, at + len);
    }
}
