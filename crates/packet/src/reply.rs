//! Builds replies from the packet that they answer.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::Checksum;
use crate::headers::{Fragment, Headers, Mac, Network, TcpFlags, Transport, protocol};
use crate::link::LinkType;
use crate::parse::{LENGTH_MAX, array, is_query, is_vlan_tag};
use crate::rewrite::Macs;

const TCP_LEN: u16 = 20;
const TTL: u8 = 64;
const DONT_FRAGMENT: u8 = 0x40;
const MPLS: [u16; 2] = [0x8847, 0x8848];
const PPPOE_SESSION: u16 = 0x8864;

/// Maximum length of an ICMP error with its IP header: the minimum MTU of IPv6 (RFC 4443, section 2.4).
pub const ICMP_ERROR_MAX: usize = 1280;
/// By how many bytes an ICMP error is longer than the packet that it answers, at most: by an IPv6 and an ICMPv6 header.
pub const ICMP_ERROR_GROWTH: u32 = 40 + 8;
/// The same as [`ICMP_ERROR_MAX`] for IPv4 (RFC 1812, section 4.3.2.3).
const ICMP_ERROR_V4_MAX: usize = 576;

/// Turns a TCP segment in place into the reset that a closed port answers with (RFC 9293, section 3.10.7.1), addressed back to its
/// sender, without IP options or extension headers. Returns the length of the new frame.
///
/// Returns `None` and leaves the bytes unchanged for packets that must not be answered with a reset: resets, fragments, packets that
/// aren't TCP, segments from or to a group, broadcast or unspecified address (RFC 1122, section 4.2.3.10), and packets with MPLS labels,
/// which work in one direction only.
pub fn tcp_reset(bytes: &mut [u8], headers: &Headers) -> Option<usize> {
    let Transport::Tcp(tcp) = headers.transport else { return None };
    let is_answerable = headers.fragment == Fragment::Whole
        && !tcp.flags.contains(TcpFlags::RST)
        && has_way_back(headers)
        && bytes.len() >= usize::from(headers.payload_offset);
    if !is_answerable {
        return None;
    }
    let control = u32::from(tcp.flags.contains(TcpFlags::SYN)) + u32::from(tcp.flags.contains(TcpFlags::FIN));
    let (seq, ack, flags) = if tcp.flags.contains(TcpFlags::ACK) {
        (tcp.ack, 0, TcpFlags::RST)
    } else {
        let segment_len = headers.payload_len.wrapping_add(control);
        (0, tcp.seq.wrapping_add(segment_len), TcpFlags::RST.with(TcpFlags::ACK))
    };
    let mut segment = [0; TCP_LEN as usize];
    segment[..2].copy_from_slice(&tcp.dst_port.to_be_bytes());
    segment[2..4].copy_from_slice(&tcp.src_port.to_be_bytes());
    segment[4..8].copy_from_slice(&seq.to_be_bytes());
    segment[8..12].copy_from_slice(&ack.to_be_bytes());
    segment[12] = (TCP_LEN as u8 / 4) << 4;
    segment[13] = flags.0;

    let at = usize::from(headers.network_offset);
    let packet = &mut bytes[at..];
    let len = match headers.network {
        Network::V4(ip) if is_host_v4(ip.src) && is_host_v4(ip.dst) => {
            let header = ipv4_header(ip.dst, ip.src, protocol::TCP, TCP_LEN, [0, DONT_FRAGMENT]);
            set_checksum(&mut segment, 16, pseudo_header(&header[12..], protocol::TCP, TCP_LEN));
            packet[..20].copy_from_slice(&header);
            packet[20..40].copy_from_slice(&segment);
            40
        }
        Network::V6(ip) if is_host_v6(ip.src) && is_host_v6(ip.dst) => {
            let header = ipv6_header(ip.dst, ip.src, protocol::TCP, TCP_LEN);
            set_checksum(&mut segment, 16, pseudo_header(&header[8..], protocol::TCP, TCP_LEN));
            packet[..40].copy_from_slice(&header);
            packet[40..60].copy_from_slice(&segment);
            60
        }
        Network::V4(_) | Network::V6(_) | Network::None | Network::Unreadable | Network::Arp => return None,
    };
    turn_link_header(&mut bytes[..at + len], headers);
    Some(at + len)
}

/// An ICMP error in answer to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// The type, in the numbers of ICMP or ICMPv6, whichever the packet's address family needs.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// The source address of the error; `None` for the packet's destination.
    pub from: Option<IpAddr>,
    /// The time to live, or hop limit, that the quoted packet shows; `None` for that of the packet. A router that has counted the packet's hop
    /// quotes it so.
    pub ttl: Option<u8>,
}

/// Writes to `answer` the ICMP error that a router or host answers a packet with, addressed back to its sender.
/// Returns the length of the new frame. `frame` is the frame that `headers` was parsed from.
///
/// It is as Linux sends it, but IPv4's identification and IPv6's flow
/// label are 0: time to live 64; in IPv4 no DF, and the packet's type of service with the precedence "internetwork control". It quotes
/// what was captured of the packet, up to 576 bytes in all, in IPv6 up to 1280.
///
/// Returns `None` for packets that must not be answered with an error (RFC 1122, section 3.2.2; RFC 4443, section 2.4): ICMP errors and
/// redirects, later fragments, packets from or to a group, broadcast or unspecified address. Also for packets that aren't IP or have MPLS
/// labels, and if `from` is of the other address family.
///
/// # Panics
/// If `answer` has no room for the link header and [`ICMP_ERROR_MAX`] bytes.
pub fn icmp_error(frame: &[u8], headers: &Headers, error: IcmpError, answer: &mut [u8]) -> Option<usize> {
    let IcmpError { kind, code, from, ttl } = error;
    let is_about_error =
        matches!(headers.transport, Transport::Icmp(icmp) if is_unanswerable(headers.protocol, icmp.kind));
    if is_about_error || headers.fragment == Fragment::Later || !has_way_back(headers) {
        return None;
    }
    let at = usize::from(headers.network_offset);
    let (link_header, packet) = frame.split_at_checked(at)?;
    let (copy, error) = answer[..at + ICMP_ERROR_MAX].split_at_mut(at);
    let len = match (headers.network, from) {
        (Network::V4(ip), None | Some(IpAddr::V4(_))) if is_host_v4(ip.src) && is_host_v4(ip.dst) => {
            let from = if let Some(IpAddr::V4(from)) = from { from } else { ip.dst };
            let quote = &packet[..packet.len().min(ip.total_len.into()).min(ICMP_ERROR_V4_MAX - 28)];
            let (header, message) = error[..28 + quote.len()].split_at_mut(20);
            let precedence = ip.tos & 0x1e | 0xc0;
            let len = message.len() as u16;
            header.copy_from_slice(&ipv4_header(from, ip.src, protocol::ICMP, len, [precedence, 0]));
            write_icmp(message, [kind, code], quote);
            if let Some(ttl) = ttl {
                set_ttl_v4(&mut message[8..], ttl);
            }
            set_checksum(message, 2, Checksum::default());
            20 + message.len()
        }
        (Network::V6(ip), None | Some(IpAddr::V6(_))) if is_host_v6(ip.src) && is_host_v6(ip.dst) => {
            let from = if let Some(IpAddr::V6(from)) = from { from } else { ip.dst };
            let packet_len = 40 + usize::from(ip.payload_len);
            let quote = &packet[..packet.len().min(packet_len).min(ICMP_ERROR_MAX - 48)];
            let (header, message) = error[..48 + quote.len()].split_at_mut(40);
            let len = message.len() as u16;
            header.copy_from_slice(&ipv6_header(from, ip.src, protocol::ICMPV6, len));
            let pseudo = pseudo_header(&header[8..], protocol::ICMPV6, len);
            write_icmp(message, [kind, code], quote);
            if let (Some(ttl), Some(field)) = (ttl, message.get_mut(8 + 7)) {
                *field = ttl;
            }
            set_checksum(message, 2, pseudo);
            40 + message.len()
        }
        (Network::V4(_) | Network::V6(_) | Network::None | Network::Unreadable | Network::Arp, _) => return None,
    };
    copy.copy_from_slice(link_header);
    turn_link_header(&mut answer[..at + len], headers);
    Some(at + len)
}

/// True for ICMP messages that no error may answer: errors, redirects, and, as in Linux, all of IPv4's that aren't queries or replies.
const fn is_unanswerable(protocol: u8, kind: u8) -> bool {
    const REDIRECT_V6: u8 = 137;
    if protocol == protocol::ICMP { !is_query(protocol, kind) } else { kind < 128 || kind == REDIRECT_V6 }
}

/// True if the link header can be turned: it names no group, and has no MPLS labels.
pub(crate) fn has_way_back(headers: &Headers) -> bool {
    !MPLS.contains(&headers.ethertype) && headers.macs.is_none_or(|(src, dst)| !is_group(src) && !is_group(dst))
}

/// Turns the link header of a packet into that of its answer: swaps the addresses, and sets the length fields to the new length.
pub(crate) fn turn_link_header(answer: &mut [u8], headers: &Headers) {
    let at = usize::from(headers.network_offset);
    if headers.link == LinkType::Ethernet {
        let mut field = 12;
        while array(answer, field).is_some_and(|kind| is_vlan_tag(u16::from_be_bytes(*kind))) {
            field += 4;
        }
        // An IEEE 802.3 frame has its length there.
        if array(answer, field).is_some_and(|kind| u16::from_be_bytes(*kind) <= LENGTH_MAX) {
            set_length(answer, field, field + 2);
        }
    }
    if headers.ethertype == PPPOE_SESSION {
        // The session header, 0x11 first, ends with the length of what follows: PPP's protocol field, of one byte or two, and the packet.
        let ppp = if answer[at - 7] == 0x11 { at - 1 } else { at - 2 };
        set_length(answer, ppp - 2, ppp);
    }
    if headers.macs.is_some() {
        Macs::Swap.write(answer);
    }
}

/// Writes the length of what begins at `start`.
fn set_length(answer: &mut [u8], field: usize, start: usize) {
    let len = (answer.len() - start) as u16;
    answer[field..field + 2].copy_from_slice(&len.to_be_bytes());
}

const fn is_group(mac: Mac) -> bool {
    mac.0[0] & 1 == 1
}

const fn is_host_v4(address: Ipv4Addr) -> bool {
    !address.is_multicast() && !address.is_broadcast() && !address.is_unspecified()
}

const fn is_host_v6(address: Ipv6Addr) -> bool {
    !address.is_multicast() && !address.is_unspecified()
}

fn ipv4_header(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload_len: u16, [tos, flags]: [u8; 2]) -> [u8; 20] {
    let mut ip = [0; 20];
    (ip[0], ip[1]) = (0x45, tos);
    ip[2..4].copy_from_slice(&(20 + payload_len).to_be_bytes());
    (ip[6], ip[8], ip[9]) = (flags, TTL, protocol);
    ip[12..16].copy_from_slice(&src.octets());
    ip[16..].copy_from_slice(&dst.octets());
    set_checksum(&mut ip, 10, Checksum::default());
    ip
}

fn ipv6_header(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, payload_len: u16) -> [u8; 40] {
    let mut ip = [0; 40];
    ip[0] = 0x60;
    ip[4..6].copy_from_slice(&payload_len.to_be_bytes());
    (ip[6], ip[7]) = (protocol, TTL);
    ip[8..24].copy_from_slice(&src.octets());
    ip[24..].copy_from_slice(&dst.octets());
    ip
}

/// Writes an ICMP message, its checksum still open.
fn write_icmp(message: &mut [u8], kind_and_code: [u8; 2], quote: &[u8]) {
    message[..2].copy_from_slice(&kind_and_code);
    message[2..8].fill(0);
    message[8..].copy_from_slice(quote);
}

/// Sets the time to live of an IPv4 packet, and the checksum that covers it.
fn set_ttl_v4(packet: &mut [u8], ttl: u8) {
    let Some([old, protocol, high, low]) = packet.get_mut(8..).and_then(|rest| rest.first_chunk_mut::<4>()) else {
        return;
    };
    let mut change = Checksum::default();
    change.replace_word(u16::from_be_bytes([*old, *protocol]), u16::from_be_bytes([ttl, *protocol]));
    *old = ttl;
    [*high, *low] = change.adjust(u16::from_be_bytes([*high, *low])).to_be_bytes();
}

pub(crate) fn pseudo_header(addresses: &[u8], protocol: u8, len: u16) -> Checksum {
    let mut sum = Checksum::default();
    sum.add(addresses);
    sum.add_word(u16::from(protocol));
    sum.add_word(len);
    sum
}

/// Sets the checksum at `at`, which is still 0, of these bytes and the pseudo-header.
pub(crate) fn set_checksum(bytes: &mut [u8], at: usize, mut sum: Checksum) {
    sum.add(bytes);
    bytes[at..at + 2].copy_from_slice(&sum.value().to_be_bytes());
}
