//! Rewrites of packets as data: what to change in a packet. They are applied to its bytes after the step has committed.
//!
//! Checksums are updated incrementally (RFC 1624), never recomputed. So a truncated packet keeps a checksum that is right for the whole
//! packet, and a wrong checksum stays wrong.

use core::net::IpAddr;
use core::num::NonZeroU16;

use crate::checksum::Checksum;
use crate::crc32c;
use crate::headers::{Embedded, Fragment, Headers, Mac, Network, Tcp, TcpFlags, Transport, protocol};
use crate::key::{Endpoint, FiveTuple};
use crate::link::LinkType;
use crate::parse::{ORDINARY, array, behind_ipv6, parse, parse_ordinary};

mod view;

/// Changes to a packet. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// New source address and port (for ICMP queries: identifier).
    pub src: Option<Endpoint>,
    /// New destination address and port (for ICMP queries: identifier).
    pub dst: Option<Endpoint>,
    /// True for an ICMP error: `src` and `dst` set only the outer addresses, and also the quoted packet's endpoints in reverse (`src` its
    /// destination, `dst` its source, with ports), so that the sender recognises its packet.
    pub embedded: bool,
    /// New Ethernet addresses.
    pub macs: Option<Macs>,
    /// True to decrement the time to live or hop limit, not below 0.
    pub decrement_ttl: bool,
    /// New time to live or hop limit. `decrement_ttl` then has no effect.
    pub ttl: Option<u8>,
    /// New type of service or traffic class: the whole byte, DSCP and ECN.
    pub tos: Option<u8>,
    /// Upper limit of the maximum segment size (MSS) that a TCP SYN offers. A SYN without the option is not changed; Linux's `TCPMSS`
    /// adds the option to it.
    pub mss_max: Option<NonZeroU16>,
}

/// New Ethernet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Macs {
    /// Source and destination change places.
    Swap,
    /// Source, then destination.
    Set(Mac, Mac),
}

impl Rewrite {
    /// Changes nothing.
    pub const NONE: Self = Self {
        src: None,
        dst: None,
        embedded: false,
        macs: None,
        decrement_ttl: false,
        ttl: None,
        tos: None,
        mss_max: None,
    };

    /// What a router does to every packet: decrements the time to live or hop limit.
    pub const ROUTED: Self = Self { decrement_ttl: true, ..Self::NONE };

    /// Applies the changes to the frame that `headers` was parsed from, and updates checksums.
    ///
    /// - An address of the other family than the packet's is not written, nor its port.
    /// - Later fragments have addresses only. In first fragments the checksum, which covers the datagram, is kept right, but for SCTP's:
    ///   how a CRC changes depends on the length of the datagram, which a first fragment doesn't tell.
    /// - A checksum of zero, which says that there is none (UDP, RFC 9653 for SCTP), stays zero.
    /// - Where `src` and `dst` give an ICMP query different identifiers, the one that differs from the packet's is written, `dst`'s
    ///   before `src`'s.
    /// - Of an ICMP error's quote what came back is changed. The CRC of a quoted SCTP packet is left as it is.
    /// - Authentication headers (AH) are not made anew, nor checksums of transports that are not read. An IPv6 home address option (RFC
    ///   6275), which checksums cover in the source's place, is not followed; a routing header is.
    #[inline]
    pub fn apply(&self, bytes: &mut [u8], headers: &Headers) {
        if let Some(macs) = self.macs
            && headers.macs.is_some()
        {
            macs.write(bytes);
        }
        if self.src.is_some() || self.dst.is_some() || self.decrement_ttl || self.has_rare_field() {
            self.apply_to_ip(bytes, headers);
        }
    }

    /// Parses the frame, as [`parse`](crate::parse()) does, and applies the changes. A malformed frame is not changed.
    #[inline]
    pub fn apply_to_frame(&self, link: LinkType, bytes: &mut [u8], wire_len: u32, interface: u16) {
        let protocol = parse_ordinary(link, bytes, wire_len, interface, |headers| headers.protocol);
        if !self.has_rare_field()
            && let Some(protocol) = protocol
            && let Some(head) = bytes.first_chunk_mut()
        {
            return self.apply_to_ordinary(head, protocol == protocol::UDP);
        }
        self.apply_to_odd(link, bytes, wire_len, interface);
    }

    /// True if a field is set that [`apply_to_ordinary`](Self::apply_to_ordinary) doesn't handle.
    #[inline(always)]
    const fn has_rare_field(&self) -> bool {
        self.ttl.is_some() || self.tos.is_some() || self.mss_max.is_some()
    }

    #[inline(never)]
    fn apply_to_odd(&self, link: LinkType, bytes: &mut [u8], wire_len: u32, interface: u16) {
        if let Ok(headers) = parse(link, bytes, wire_len, interface) {
            self.apply(bytes, &headers);
        }
    }

    /// As [`apply`](Self::apply), on a frame that [`parse_ordinary`] takes: every field is where it mostly is, and captured. Without
    /// [rare fields](Self::has_rare_field).
    #[inline]
    fn apply_to_ordinary(&self, head: &mut [u8; ORDINARY], is_udp: bool) {
        if let Some(macs) = self.macs {
            macs.write(head);
        }
        let (src, dst) = (of_family(self.src, true), of_family(self.dst, true));
        let mut change = Checksum::default();
        for (endpoint, at) in [(src, 26), (dst, 30)] {
            if let Some(Endpoint { address: IpAddr::V4(address), .. }) = endpoint {
                write(head, at, address.octets(), &mut change);
            }
        }
        let mut covered = change;
        for (endpoint, at) in [(src, 34), (dst, 36)] {
            write_port(head, at, endpoint.map(|endpoint| endpoint.port), &mut covered);
        }
        if self.decrement_ttl {
            let lower = [head[22].saturating_sub(1), head[23]];
            write(head, 22, lower, &mut change);
        }
        adjust(head, 24, change);
        if is_udp {
            adjust_udp(head, 40, covered);
        } else {
            adjust(head, 50, covered);
        }
    }

    fn apply_to_ip(&self, bytes: &mut [u8], headers: &Headers) {
        let end = headers.payload_offset as usize + headers.payload_len as usize;
        let captured = bytes.len().min(end);
        let bytes = &mut bytes[..captured];
        let at = usize::from(headers.network_offset);
        let (is_v4, header_len) = match headers.network {
            Network::V4(ip) => (true, usize::from(ip.header_len)),
            Network::V6(ip) => (false, usize::from(ip.header_len)),
            Network::None | Network::Unreadable | Network::Arp => return,
        };
        let (src, dst) = (of_family(self.src, is_v4), of_family(self.dst, is_v4));
        self.write_ttl_and_tos(bytes, at, is_v4);
        let (pseudo, _) = write_network(bytes, at, header_len, addresses(src, dst));
        let at = usize::from(headers.transport_offset);
        match headers.transport {
            Transport::None => {}
            Transport::Tcp(tcp) => {
                write_transport(bytes, at, headers.protocol, ports(src, dst), pseudo);
                self.lower_mss(bytes, at, usize::from(headers.payload_offset), &tcp);
            }
            Transport::Udp { .. } => {
                write_transport(bytes, at, headers.protocol, ports(src, dst), pseudo);
            }
            Transport::Sctp { .. } => write_sctp(bytes, at, ports(src, dst), headers),
            Transport::Icmp(icmp) => match icmp.embedded {
                Some(quoted) if self.embedded => {
                    let mut change = write_quoted(bytes, &quoted, dst, src);
                    if !is_v4 {
                        change.merge(pseudo);
                    }
                    adjust(bytes, at + 2, change);
                }
                _ if icmp.identifier.is_some() => {
                    write_transport(bytes, at, headers.protocol, ports(src, dst), pseudo);
                }
                _ if !is_v4 => {
                    adjust(bytes, at + 2, pseudo);
                }
                _ => {}
            },
        }
    }

    /// Writes time to live and type of service into the IP header at `at`, and its checksum.
    fn write_ttl_and_tos(&self, bytes: &mut [u8], at: usize, is_v4: bool) {
        let mut change = Checksum::default();
        if let (Some(tos), Some(&[first, second])) = (self.tos, array(bytes, at)) {
            // The traffic class is four bits behind the start of its word.
            let new = if is_v4 { [first, tos] } else { [first & 0xf0 | tos >> 4, tos << 4 | second & 0x0f] };
            write(bytes, at, new, &mut change);
        }
        let ttl_at = at + if is_v4 { 8 } else { 6 };
        if let (true, Some(&[high, low])) = (self.decrement_ttl || self.ttl.is_some(), array(bytes, ttl_at)) {
            let new = |old: u8| self.ttl.unwrap_or(old.saturating_sub(1));
            // The hop limit is the second byte of its word.
            write(bytes, ttl_at, if is_v4 { [new(high), low] } else { [high, new(low)] }, &mut change);
        }
        // No checksum covers them in IPv6.
        if is_v4 {
            adjust(bytes, at + 10, change);
        }
    }

    /// Lowers the MSS options of a SYN whose header is from `at` to `end`.
    fn lower_mss(&self, bytes: &mut [u8], at: usize, end: usize, tcp: &Tcp) {
        let Some(max) = self.mss_max.map(NonZeroU16::get).filter(|_| tcp.flags.contains(TcpFlags::SYN)) else { return };
        let end = end.min(bytes.len());
        let (mut change, mut option) = (Checksum::default(), at + 20);
        while option < end {
            let len = match bytes[option..end] {
                [0, ..] => break,
                [1, ..] => 1,
                [_, len, ..] if len >= 2 => usize::from(len),
                _ => break,
            };
            if let [2, 4, high, low] = bytes[option..end.min(option + len)]
                && u16::from_be_bytes([high, low]) > max
            {
                let mut mss = Checksum::default();
                write(bytes, option + 2, max.to_be_bytes(), &mut mss);
                change.merge(if (option - at).is_multiple_of(2) { mss } else { mss.at_odd_offset() });
            }
            option += len;
        }
        adjust(bytes, at + 16, change);
    }
}

impl Macs {
    pub(crate) fn write(self, bytes: &mut [u8]) {
        let Some(field) = bytes.first_chunk_mut::<12>() else { return };
        match self {
            Self::Swap => field.rotate_left(6),
            Self::Set(src, dst) => {
                field[..6].copy_from_slice(&dst.0);
                field[6..].copy_from_slice(&src.0);
            }
        }
    }
}

#[inline(always)]
fn of_family(endpoint: Option<Endpoint>, is_v4: bool) -> Option<Endpoint> {
    endpoint.filter(|endpoint| endpoint.address.is_ipv4() == is_v4)
}

fn addresses(src: Option<Endpoint>, dst: Option<Endpoint>) -> [Option<IpAddr>; 2] {
    [src, dst].map(|endpoint| endpoint.map(|endpoint| endpoint.address))
}

fn ports(src: Option<Endpoint>, dst: Option<Endpoint>) -> [Option<u16>; 2] {
    [src, dst].map(|endpoint| endpoint.map(|endpoint| endpoint.port))
}

/// Writes addresses into the IP header at `at`. Returns how the pseudo-header of transport checksums changed, and how all
/// that was written did.
fn write_network(
    bytes: &mut [u8],
    at: usize,
    header_len: usize,
    [src, dst]: [Option<IpAddr>; 2],
) -> (Checksum, Checksum) {
    let is_v4 = bytes.get(at).is_some_and(|first| first >> 4 == 4);
    let (src_offset, dst_offset) = if is_v4 { (12, 16) } else { (8, 24) };
    let (mut change, mut dst_change) = (Checksum::default(), Checksum::default());
    write_address(bytes, at + src_offset, src, &mut change);
    write_address(bytes, at + dst_offset, dst, &mut dst_change);
    let mut pseudo = change;
    // With a routing header under way checksums cover the last stop, not the next.
    if is_v4 || header_len == 40 || !has_stops_left(bytes, at) {
        pseudo.merge(dst_change);
    }
    change.merge(dst_change);
    if is_v4 {
        change.merge(adjust(bytes, at + 10, change));
    }
    (pseudo, change)
}

fn has_stops_left(bytes: &[u8], at: usize) -> bool {
    let next = bytes.get(at + 6).copied().unwrap_or(protocol::NO_NEXT);
    behind_ipv6(bytes, next, at + 40).is_ok_and(|behind| behind.has_stops_left)
}

/// Writes ports or an identifier into the transport header at `at`, and its checksum. Returns how all that was written
/// changed.
fn write_transport(
    bytes: &mut [u8],
    at: usize,
    protocol: u8,
    [src, dst]: [Option<u16>; 2],
    pseudo: Checksum,
) -> Checksum {
    let mut change = Checksum::default();
    let checksum_offset = match protocol {
        protocol::TCP | protocol::UDP => {
            write_port(bytes, at, src, &mut change);
            write_port(bytes, at + 2, dst, &mut change);
            if protocol == protocol::TCP { 16 } else { 6 }
        }
        protocol::SCTP => {
            write_port(bytes, at, src, &mut change);
            write_port(bytes, at + 2, dst, &mut change);
            return change;
        }
        protocol::ICMP | protocol::ICMPV6 => {
            write_identifier(bytes, at + 4, [src, dst], &mut change);
            2
        }
        _ => return change,
    };
    let mut covered = change;
    if protocol != protocol::ICMP {
        covered.merge(pseudo);
    }
    change.merge(if protocol == protocol::UDP {
        adjust_udp(bytes, at + checksum_offset, covered)
    } else {
        adjust(bytes, at + checksum_offset, covered)
    });
    change
}

fn write_sctp(bytes: &mut [u8], at: usize, [src, dst]: [Option<u16>; 2], headers: &Headers) {
    let Some(head) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<12>()) else { return };
    let before = [head[0], head[1], head[2], head[3]];
    let mut unused = Checksum::default();
    write_port(head, 0, src, &mut unused);
    write_port(head, 2, dst, &mut unused);
    let crc = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    if headers.fragment == Fragment::Whole && crc != 0 {
        let difference = [before[0] ^ head[0], before[1] ^ head[1], before[2] ^ head[2], before[3] ^ head[3]];
        // The message is the 12 bytes of the header and the payload; all but the 4 bytes of ports come behind them.
        let crc = crc ^ crc32c::change(difference, headers.payload_len + 8);
        head[8..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Writes the endpoints of the packet that an ICMP error quotes. Returns how the quote changed.
fn write_quoted(bytes: &mut [u8], quoted: &Embedded, src: Option<Endpoint>, dst: Option<Endpoint>) -> Checksum {
    let at = usize::from(quoted.network_offset);
    let is_v4 = matches!(quoted.tuple, FiveTuple::V4(_));
    // Behind the quoted packet there may be padding and extensions (RFC 4884). A length that leaves no room for the ports by which the
    // packet is known is not believed: some senders count the payload alone.
    let len_offset = if is_v4 { at + 2 } else { at + 4 };
    let len = bytes.get(len_offset..).and_then(|rest| rest.first_chunk()).map_or(0, |len| u16::from_be_bytes(*len));
    let end = at + usize::from(len) + if is_v4 { 0 } else { 40 };
    let end = if end < usize::from(quoted.transport_offset) + 8 { bytes.len() } else { end.min(bytes.len()) };
    let bytes = &mut bytes[..end];
    let header_len = usize::from(quoted.transport_offset) - at;
    let (pseudo, mut change) = write_network(bytes, at, header_len, addresses(src, dst));
    let at = usize::from(quoted.transport_offset);
    change.merge(write_transport(bytes, at, quoted.tuple.protocol(), ports(src, dst), pseudo));
    change
}

fn write_address(bytes: &mut [u8], at: usize, address: Option<IpAddr>, change: &mut Checksum) {
    match address {
        Some(IpAddr::V4(address)) => write(bytes, at, address.octets(), change),
        Some(IpAddr::V6(address)) => write(bytes, at, address.octets(), change),
        None => {}
    }
}

#[inline(always)]
fn write_port(bytes: &mut [u8], at: usize, port: Option<u16>, change: &mut Checksum) {
    if let Some(port) = port {
        write(bytes, at, port.to_be_bytes(), change);
    }
}

/// An ICMP query has one identifier for both ends: the new one is the one that differs.
fn write_identifier(bytes: &mut [u8], at: usize, [src, dst]: [Option<u16>; 2], change: &mut Checksum) {
    let Some(current) = bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|id| u16::from_be_bytes(*id)) else {
        return;
    };
    let differs = |id: &u16| *id != current;
    write_port(bytes, at, dst.filter(differs).or(src.filter(differs)), change);
}

/// Overwrites a field and adds the change. What was not captured is not written, and has not changed.
#[inline(always)]
fn write<const N: usize>(bytes: &mut [u8], at: usize, new: [u8; N], change: &mut Checksum) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        change.replace(field, &new);
        *field = new;
    }
}

/// Changes the checksum at `at` with what it covers. Returns its own change, for a checksum that covers this one.
#[inline(always)]
fn adjust(bytes: &mut [u8], at: usize, covered: Checksum) -> Checksum {
    let mut change = Checksum::default();
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        let old = u16::from_be_bytes(*field);
        let new = covered.adjust(old);
        change.replace_word(old, new);
        *field = new.to_be_bytes();
    }
    change
}

/// As [`adjust`], for UDP: zero says that there is no checksum, so a sum of zero is sent as its other form.
#[inline(always)]
fn adjust_udp(bytes: &mut [u8], at: usize, covered: Checksum) -> Checksum {
    let mut change = Checksum::default();
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        let old = u16::from_be_bytes(*field);
        if old != 0 {
            let new = match covered.adjust(old) {
                0 => u16::MAX,
                new => new,
            };
            change.replace_word(old, new);
            *field = new.to_be_bytes();
        }
    }
    change
}
