//! Extension headers of IPv6: `ah`, `frag`, `hbh`, `dst`, `rt`, `ipv6header`.

use core::net::IpAddr;

use iptables::matches::{Ah, Frag, FragPlace, HeaderOptions, Ipv6Header, Rt};
use packet::protocol;

use super::{Packet, holds};

pub(super) const HOP_BY_HOP: u8 = 0;
pub(super) const DESTINATION: u8 = 60;
pub(super) const FRAGMENT: u8 = 44;
const ROUTING: u8 = 43;

/// Length of the fixed header.
const FIXED: usize = 40;

/// Where the first extension header of this kind begins, as `ipv6_find_hdr` of the kernel finds it: not behind the fragment header of a
/// later fragment.
pub(super) fn find(packet: &Packet<'_>, wanted: u8) -> Option<usize> {
    let (mut kind, mut at) = (packet.byte(6).filter(|_| packet.is_v6)?, FIXED);
    loop {
        let is_extension = matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION | protocol::AH);
        if !is_extension {
            return None;
        }
        let [next, len] = packet.array(at)?;
        if kind == wanted {
            return Some(at);
        }
        if kind == FRAGMENT && packet.array(at + 2).is_none_or(|offset| u16::from_be_bytes(offset) & !7 != 0) {
            return None;
        }
        at += header_len(kind, len);
        kind = next;
    }
}

fn header_len(kind: u8, len: u8) -> usize {
    match kind {
        FRAGMENT => 8,
        protocol::AH => (usize::from(len) + 2) * 4,
        _ => (usize::from(len) + 1) * 8,
    }
}

/// net/ipv6/netfilter/ip6t_ah.c. With `--ahres` the reserved field must be zero.
pub(super) fn ah(packet: &Packet<'_>, test: &Ah) -> bool {
    let header: Option<[u8; 12]> = find(packet, protocol::AH).and_then(|at| packet.array(at));
    header.is_some_and(|[_, len, high, low, a, b, c, d, ..]| {
        let bytes = header_len(protocol::AH, len) as u32;
        // The kernel does not compare with a length of 0.
        let length = test.length.filter(|length| length.value != 0);
        holds(test.spi, u32::from_be_bytes([a, b, c, d]))
            && length.is_none_or(|length| length.holds(length.value == bytes))
            && !(test.reserved && (high, low) != (0, 0))
    })
}

/// net/ipv6/netfilter/ip6t_frag.c. With `--fragres` the reserved fields must be zero.
pub(super) fn frag(packet: &Packet<'_>, test: &Frag) -> bool {
    let header = find(packet, FRAGMENT).and_then(|at| packet.array(at));
    header.is_some_and(|[_, reserved, high, low, a, b, c, d]| {
        let field = u16::from_be_bytes([high, low]);
        let is_last = field & 1 == 0;
        holds(test.id, u32::from_be_bytes([a, b, c, d]))
            && !(test.reserved && (reserved != 0 || field & 6 != 0))
            && !(test.first && field & !7 != 0)
            && test.place.is_none_or(|place| is_last == (place == FragPlace::Last))
    })
}

/// net/ipv6/netfilter/ip6t_hbh.c, for options of both kinds: the header begins with the options of the list.
pub(super) fn options(packet: &Packet<'_>, kind: u8, test: &HeaderOptions) -> bool {
    /// A length in a rule that is not compared.
    const ANY: u8 = 255;
    let look = || {
        let at = find(packet, kind)?;
        let bytes = header_len(kind, packet.byte(at + 1)?);
        if packet.len - at < bytes {
            return None;
        }
        let (mut at, end) = (at + 2, at + bytes);
        for (nth, (wanted, length)) in test.options.iter().enumerate() {
            if at >= end || packet.byte(at)? != *wanted {
                return None;
            }
            let len = match *wanted {
                0 => 1,
                _ if end - at < 2 => return None,
                _ => {
                    let given = packet.byte(at + 1)?;
                    if length.is_some_and(|length| length != ANY && length != given) {
                        return None;
                    }
                    usize::from(given) + 2
                }
            };
            if end - at < len && nth + 1 < test.options.len() {
                return None;
            }
            at += len;
        }
        Some(test.length.is_none_or(|length| length.holds(length.value as usize == bytes)))
    };
    look().unwrap_or(false)
}

/// net/ipv6/netfilter/ip6t_rt.c. With `--rt-0-res` the reserved field must be zero.
pub(super) fn routing(packet: &Packet<'_>, test: &Rt) -> bool {
    let look = || {
        let at = find(packet, ROUTING)?;
        let [_, len, kind, segments_left] = packet.array(at)?;
        let bytes = header_len(ROUTING, len);
        let fits = packet.len - at >= bytes
            && holds(test.segments_left, segments_left.into())
            && test.length.is_none_or(|length| length.holds(length.value as usize == bytes))
            && test.kind.is_none_or(|wanted| wanted.holds(wanted.value == u32::from(kind)));
        if !fits || test.reserved && packet.word(at + 4)? != 0 {
            return None;
        }
        if test.addresses.is_empty() {
            return Some(true);
        }
        let count = (bytes - 8) / 16;
        let is = |nth: usize, address: &IpAddr| match address {
            IpAddr::V6(address) => packet.array(at + 8 + nth * 16) == Some(address.octets()),
            IpAddr::V4(_) => false,
        };
        let wanted = &test.addresses;
        if !test.not_strict {
            return Some(count == wanted.len() && wanted.iter().enumerate().all(|(nth, address)| is(nth, address)));
        }
        let found =
            (0..count).fold(0, |found, nth| found + usize::from(wanted.get(found).is_some_and(|next| is(nth, next))));
        Some(found == wanted.len())
    };
    look().unwrap_or(false)
}

/// net/ipv6/netfilter/ip6t_ipv6header.c: the set of headers.
pub(super) fn headers(packet: &Packet<'_>, test: &Ipv6Header) -> bool {
    let Some(given) = header_bits(packet) else { return false };
    let wanted = test.headers.value.0;
    match test.soft {
        true if test.headers.negated => given & wanted == 0,
        true => given & wanted == wanted,
        false => test.headers.holds(given == wanted),
    }
}

/// A bit for each kind of header that the packet has, as [`ExtensionHeaders`](iptables::matches::ExtensionHeaders) has them.
fn header_bits(packet: &Packet<'_>) -> Option<u8> {
    const NO_NEXT: u8 = 1 << 1;
    const ESP: u8 = 1 << 2;
    const UPPER: u8 = 1;
    let (mut kind, mut at, mut bits) = (packet.byte(6).filter(|_| packet.is_v6)?, FIXED, 0);
    loop {
        bits |= match kind {
            HOP_BY_HOP => 1 << 7,
            DESTINATION => 1 << 6,
            ROUTING => 1 << 5,
            FRAGMENT => 1 << 4,
            protocol::AH => 1 << 3,
            protocol::NO_NEXT => return Some(bits | NO_NEXT),
            protocol::ESP if packet.len < at + 2 => return None,
            protocol::ESP => return Some(bits | ESP),
            _ => return Some(bits | UPPER),
        };
        let [next, len] = packet.array(at)?;
        at += header_len(kind, len);
        kind = next;
        if at > packet.len {
            return Some(if matches!(kind, protocol::NO_NEXT | protocol::ESP) { bits } else { bits | UPPER });
        }
    }
}
