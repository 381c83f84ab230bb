//! Builds packets byte by byte and computes every checksum in full, independently of the code under test.

use std::net::IpAddr;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// The TTL of all packets that are sent or compared.
pub(crate) const TTL: u8 = 64;

/// An address and a port (for ICMP queries: the identifier).
pub(crate) type End = (IpAddr, u16);

/// The offsets of an IP packet's parts, and its endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) src: End,
    pub(crate) dst: End,
    pub(crate) protocol: u8,
    /// Offset of the transport header.
    pub(crate) transport: usize,
    /// Offset of the packet that an ICMP error quotes.
    pub(crate) quoted: Option<usize>,
    pub(crate) later_fragment: bool,
    pub(crate) fragment: bool,
}

/// A TCP segment, without endpoints and length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    /// More options; none if all bytes are zero.
    pub(crate) more_options: [u8; 4],
    /// Left and right edge of a SACK block.
    pub(crate) sack: Option<(u32, u32)>,
}

/// An IP packet around a finished payload. IPv4 has "don't fragment" set.
pub(crate) fn ip(src: IpAddr, dst: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = vec![0x45, 0];
            header.extend((20 + payload.len() as u16).to_be_bytes());
            header.extend([0x12, 0x34, 0x40, 0, TTL, protocol, 0, 0]);
            header.extend(src.octets());
            header.extend(dst.octets());
            header
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut header = vec![0x60, 0, 0, 0];
            header.extend((payload.len() as u16).to_be_bytes());
            header.extend([protocol, TTL]);
            header.extend(src.octets());
            header.extend(dst.octets());
            header
        }
        _ => panic!("{src} and {dst} are of different families"),
    };
    packet.extend(payload);
    finish(&mut packet);
    packet
}

pub(crate) fn tcp(src: End, dst: End, segment: &Segment, len: usize) -> Vec<u8> {
    let mut options = Vec::new();
    if segment.flags & 2 != 0 {
        options.extend([2, 4, 0x05, 0xb4]);
        if segment.sack_permitted {
            options.extend([1, 1, 4, 2]);
        }
        if let Some(scale) = segment.window_scale {
            options.extend([1, 3, 3, scale]);
        }
    }
    if let Some((left, right)) = segment.sack {
        options.extend([1, 1, 5, 10]);
        options.extend(left.to_be_bytes());
        options.extend(right.to_be_bytes());
    }
    if segment.more_options != [0; 4] {
        options.extend(segment.more_options);
    }
    let mut payload = ports(src, dst);
    payload.extend(segment.seq.to_be_bytes());
    payload.extend(segment.ack.to_be_bytes());
    payload.extend([((20 + options.len()) * 4) as u8, segment.flags]);
    payload.extend(segment.window.to_be_bytes());
    payload.extend([0; 4]);
    payload.extend(options);
    payload.extend(filler(len));
    ip(src.0, dst.0, TCP, &payload)
}

pub(crate) fn udp(src: End, dst: End, len: usize) -> Vec<u8> {
    let mut payload = ports(src, dst);
    payload.extend((8 + len as u16).to_be_bytes());
    payload.extend([0; 2]);
    payload.extend(filler(len));
    ip(src.0, dst.0, UDP, &payload)
}

/// Builds an ICMP query, such as an echo request, or its reply. The identifier is the port of the asking endpoint.
pub(crate) fn query(src: IpAddr, dst: IpAddr, identifier: u16, kind: u8, sequence: u16) -> Vec<u8> {
    let protocol = if src.is_ipv4() { ICMP } else { ICMPV6 };
    let mut payload = vec![kind, 0, 0, 0];
    payload.extend(identifier.to_be_bytes());
    payload.extend(sequence.to_be_bytes());
    payload.extend(filler(32));
    ip(src, dst, protocol, &payload)
}

/// Builds an ICMP error that quotes the first `quote` bytes after `about`'s IP header.
pub(crate) fn error(src: IpAddr, dst: IpAddr, (kind, code): (u8, u8), mtu: u16, about: &[u8], quote: usize) -> Vec<u8> {
    let mut payload = vec![kind, code, 0, 0, 0, 0];
    payload.extend(mtu.to_be_bytes());
    payload.extend(&about[..about.len().min(view(about).transport + quote)]);
    ip(src, dst, if src.is_ipv4() { ICMP } else { ICMPV6 }, &payload)
}

/// Builds the fragment of an IPv4 packet with `len` bytes of its payload from `offset` on.
pub(crate) fn fragment(packet: &[u8], offset: usize, len: usize) -> Vec<u8> {
    let payload = &packet[20..];
    let end = (offset + len).min(payload.len());
    let mut fragment = packet[..20].to_vec();
    fragment.extend(&payload[offset..end]);
    let field = (offset / 8) as u16 | if end < payload.len() { 0x2000 } else { 0 };
    fragment[2..4].copy_from_slice(&((20 + end - offset) as u16).to_be_bytes());
    fragment[6..8].copy_from_slice(&field.to_be_bytes());
    finish_ip(&mut fragment);
    fragment
}

/// Adds four bytes of IP options without effect to an IPv4 packet.
pub(crate) fn with_options(packet: &[u8]) -> Vec<u8> {
    let mut longer = [&packet[..20], &[1, 1, 1, 0], &packet[20..]].concat();
    longer[0] = 0x46;
    relength(&mut longer);
    longer
}

/// Cuts the packet after `len` bytes of IP payload. Lengths and checksums of the transport don't change.
pub(crate) fn cut(packet: &mut Vec<u8>, len: usize) {
    packet.truncate(view(packet).transport + len);
    relength(packet);
}

pub(crate) fn relength(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        let len = packet.len() as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        finish_ip(packet);
    } else {
        let len = packet.len() as u16 - 40;
        packet[4..6].copy_from_slice(&len.to_be_bytes());
    }
}

/// Sets the last two bytes of a UDP payload so that its checksum becomes zero, written 0xffff, once `source` is its source.
pub(crate) fn edge(packet: &mut [u8], source: End) {
    let from = view(packet).src;
    let end = packet.len();
    for word in 0..=u16::MAX {
        packet[end - 2..].copy_from_slice(&word.to_be_bytes());
        let mut translated = packet.to_vec();
        if let IpAddr::V4(address) = source.0 {
            translated[12..16].copy_from_slice(&address.octets());
        }
        finish(&mut translated);
        if translated[26..28] == [0xff, 0xff] {
            return finish(packet);
        }
    }
    panic!("no last word makes {from:?} and {source:?} so");
}

/// Returns a packet's parts and endpoints. A quoted packet may be cut after its ports.
pub(crate) fn view(packet: &[u8]) -> View {
    let (src, dst, protocol, transport, offset, more) = if packet[0] >> 4 == 4 {
        let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).expect("four bytes"));
        let field = word(packet, 6);
        (address(12), address(16), packet[9], usize::from(packet[0] & 15) * 4, field & 0x1fff, field & 0x2000 != 0)
    } else {
        let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).expect("sixteen bytes"));
        (address(8), address(24), packet[6], 40, 0, false)
    };
    let (mut ports, mut quoted) = ((0, 0), None);
    if offset == 0 && packet.len() >= transport + 4 {
        match (protocol, packet[transport]) {
            (TCP | UDP, _) => ports = (word(packet, transport), word(packet, transport + 2)),
            (ICMP, 0 | 8 | 13 | 14) | (ICMPV6, 128 | 129) if packet.len() >= transport + 6 => {
                ports = (word(packet, transport + 4), word(packet, transport + 4))
            }
            (ICMP, 3 | 4 | 5 | 11 | 12) | (ICMPV6, 1..=4) => quoted = Some(transport + 8),
            _ => {}
        }
    }
    View {
        src: (src, ports.0),
        dst: (dst, ports.1),
        protocol,
        transport,
        quoted,
        later_fragment: offset != 0,
        fragment: more || offset != 0,
    }
}

/// Returns an error message if a checksum of the packet is wrong.
pub(crate) fn complaint(packet: &[u8]) -> Option<String> {
    let seen = view(packet);
    if packet[0] >> 4 == 4 && sum(&packet[..seen.transport]) != 0xffff {
        return Some("the IP header's checksum is wrong".to_owned());
    }
    if seen.fragment || (seen.protocol == UDP && word(packet, seen.transport + 6) == 0) {
        return None;
    }
    let transport = match seen.protocol {
        TCP | UDP | ICMPV6 => fold(pseudo(packet, &seen) + u32::from(sum(&packet[seen.transport..]))),
        ICMP => sum(&packet[seen.transport..]),
        _ => 0xffff,
    };
    if transport != 0xffff {
        return Some(format!("protocol {}'s checksum is wrong", seen.protocol));
    }
    let quoted = &packet[seen.quoted?..];
    (quoted[0] >> 4 == 4 && sum(&quoted[..usize::from(quoted[0] & 15) * 4]) != 0xffff)
        .then(|| "the quoted IP header's checksum is wrong".to_owned())
}

/// Sets the TTL for comparison, because routers decrement it.
pub(crate) fn normalise(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        packet[8] = TTL;
        finish_ip(packet);
    } else {
        packet[7] = TTL;
    }
}

/// Replaces the endpoint `from` by `to` in the packet and in a quoted packet.
pub(crate) fn substitute(packet: &mut [u8], from: End, to: End) {
    let seen = view(packet);
    if let Some(at) = seen.quoted {
        substitute_ends(&mut packet[at..], from, to);
    }
    substitute_ends(packet, from, to);
    finish(packet);
}

fn substitute_ends(packet: &mut [u8], from: End, to: End) {
    let seen = view(packet);
    let at = match seen.protocol {
        TCP | UDP => [seen.transport, seen.transport + 2],
        _ => [seen.transport + 4; 2],
    };
    for (end, port_at) in [(seen.src, at[0]), (seen.dst, at[1])] {
        if end == from {
            packet[port_at..port_at + 2].copy_from_slice(&to.1.to_be_bytes());
        }
    }
}

/// Makes a TCP, UDP or ICMP checksum wrong.
pub(crate) fn spoil(packet: &mut [u8]) {
    let at = checksum_at(&view(packet)).expect("a protocol with a checksum");
    packet[at] ^= 0x55;
}

/// Clears a UDP checksum, as RFC 768 allows.
pub(crate) fn unsummed(packet: &mut [u8]) {
    let at = checksum_at(&view(packet)).expect("UDP has a checksum");
    packet[at..at + 2].fill(0);
}

fn checksum_at(seen: &View) -> Option<usize> {
    match seen.protocol {
        TCP => Some(seen.transport + 16),
        UDP => Some(seen.transport + 6),
        ICMP | ICMPV6 => Some(seen.transport + 2),
        _ => None,
    }
}

/// Computes all checksums again. That of a datagram in fragments stays.
pub(crate) fn finish(packet: &mut [u8]) {
    let seen = view(packet);
    if let Some(at) = checksum_at(&seen).filter(|_| !seen.fragment) {
        packet[at..at + 2].fill(0);
        let start = if seen.protocol == ICMP { 0 } else { pseudo(packet, &seen) };
        let value = !fold(start + u32::from(sum(&packet[seen.transport..])));
        let value = if value == 0 && seen.protocol == UDP { 0xffff } else { value };
        packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
    if packet[0] >> 4 == 4 {
        finish_ip(packet);
    }
}

pub(crate) fn finish_ip(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let value = !sum(&packet[..usize::from(packet[0] & 15) * 4]);
    packet[10..12].copy_from_slice(&value.to_be_bytes());
}

fn pseudo(packet: &[u8], seen: &View) -> u32 {
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    u32::from(sum(addresses)) + u32::from(seen.protocol) + (packet.len() - seen.transport) as u32
}

fn sum(bytes: &[u8]) -> u16 {
    fold(bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum())
}

const fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn ports(src: End, dst: End) -> Vec<u8> {
    [src.1.to_be_bytes(), dst.1.to_be_bytes()].concat()
}

fn filler(len: usize) -> impl Iterator<Item = u8> {
    (0..len).map(|index| (index % 251) as u8)
}

fn word(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}
