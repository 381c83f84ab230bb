//! Builds replies from the packet that they answer.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::Checksum;
use crate::headers::{Fragment, Headers, Mac, Network, TcpFlags, Transport, protocol};
use crate::link::LinkType;
use crate::rewrite::{Macs, Rewrite};

const TCP_LEN: u16 = 20;
const TTL: u8 = 64;
const DONT_FRAGMENT: u8 = 0x40;
const MPLS: [u16; 2] = [0x8847, 0x8848];
const PPPOE_SESSION: u16 = 0x8864;

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
        && !MPLS.contains(&headers.ethertype)
        && headers.macs.is_none_or(|(src, dst)| !is_group(src) && !is_group(dst))
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
        Network::V4(ip) if is_host_v4(ip.src) && is_host_v4(ip.dst) => write_v4(packet, ip.dst, ip.src, segment),
        Network::V6(ip) if is_host_v6(ip.src) && is_host_v6(ip.dst) => write_v6(packet, ip.dst, ip.src, segment),
        Network::V4(_) | Network::V6(_) | Network::None | Network::Unreadable | Network::Arp => return None,
    };
    if headers.ethertype == PPPOE_SESSION {
        // The session header, six bytes, ends with the length of what follows: PPP's protocol field and the packet.
        let session = link_len(headers.link) + 4 * usize::from(headers.vlans.count);
        let session_len = (at + len - session - 6) as u16;
        bytes[session + 4..session + 6].copy_from_slice(&session_len.to_be_bytes());
    }
    Rewrite { macs: Some(Macs::Swap), ..Rewrite::NONE }.apply(bytes, headers);
    Some(at + len)
}

/// The bytes in front of the first tag, on links that say what they carry by an EtherType.
const fn link_len(link: LinkType) -> usize {
    match link {
        LinkType::Ethernet => 14,
        LinkType::LinuxSll => 16,
        LinkType::LinuxSll2 => 20,
        LinkType::Null | LinkType::Loop => 4,
        LinkType::RawIp | LinkType::Ipv4 | LinkType::Ipv6 | LinkType::Other(_) => 0,
    }
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

/// Writes an IPv4 packet that carries `segment`, its checksum still open. Returns its length.
fn write_v4(packet: &mut [u8], src: Ipv4Addr, dst: Ipv4Addr, segment: [u8; TCP_LEN as usize]) -> usize {
    let mut ip = [0; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(20 + TCP_LEN).to_be_bytes());
    ip[6] = DONT_FRAGMENT;
    ip[8] = TTL;
    ip[9] = protocol::TCP;
    ip[12..16].copy_from_slice(&src.octets());
    ip[16..].copy_from_slice(&dst.octets());
    let mut sum = Checksum::default();
    sum.add(&ip);
    ip[10..12].copy_from_slice(&sum.value().to_be_bytes());
    let segment = with_checksum(segment, &ip[12..]);
    packet[..20].copy_from_slice(&ip);
    packet[20..40].copy_from_slice(&segment);
    40
}

/// Writes an IPv6 packet that carries `segment`, its checksum still open. Returns its length.
fn write_v6(packet: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr, segment: [u8; TCP_LEN as usize]) -> usize {
    let mut ip = [0; 40];
    ip[0] = 0x60;
    ip[4..6].copy_from_slice(&TCP_LEN.to_be_bytes());
    ip[6] = protocol::TCP;
    ip[7] = TTL;
    ip[8..24].copy_from_slice(&src.octets());
    ip[24..].copy_from_slice(&dst.octets());
    let segment = with_checksum(segment, &ip[8..]);
    packet[..40].copy_from_slice(&ip);
    packet[40..60].copy_from_slice(&segment);
    60
}

fn with_checksum(mut segment: [u8; TCP_LEN as usize], addresses: &[u8]) -> [u8; TCP_LEN as usize] {
    let mut sum = Checksum::default();
    sum.add(addresses);
    sum.add_word(u16::from(protocol::TCP));
    sum.add_word(TCP_LEN);
    sum.add(&segment);
    segment[16..18].copy_from_slice(&sum.value().to_be_bytes());
    segment
}
