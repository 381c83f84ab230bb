//! Builds packets from templates: IP packets whose open fields are filled from the packet that they answer.

use crate::checksum::Checksum;
use crate::headers::{Fragment, Headers, Network, TcpFlags, Transport, protocol};
use crate::reply::{has_way_back, pseudo_header, set_checksum, turn_link_header};

/// The most bytes of a template.
pub const TEMPLATE_MAX: usize = 1500;

const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;

/// Says what is wrong with a template: an IPv4 packet without options, or an IPv6 packet without extension headers, not a fragment.
///
/// # Errors
/// A sentence about the first thing that is wrong.
pub fn check_template(template: &[u8]) -> Result<(), &'static str> {
    if template.len() > TEMPLATE_MAX {
        return Err("a template has at most 1500 bytes");
    }
    let (header, protocol) = match template.first().map_or(0, |first| first >> 4) {
        4 if template.len() >= V4_HEADER => {
            if template[0] != 0x45 {
                return Err("an IPv4 header without options begins with 45");
            }
            if template[6] & 0x3f != 0 || template[7] != 0 {
                return Err("a template is no fragment: bytes 6 and 7 of the IPv4 header are 0000 or 4000");
            }
            (V4_HEADER, template[9])
        }
        6 if template.len() >= V6_HEADER => (V6_HEADER, template[6]),
        _ => {
            return Err(
                "a template begins with an IPv4 header of 20 bytes (45...) or an IPv6 header of 40 bytes (60...)",
            );
        }
    };
    let payload = &template[header..];
    match protocol {
        protocol::TCP
            if payload.len() < 20 || usize::from(payload[12] >> 4) * 4 > payload.len() || payload[12] < 0x50 =>
        {
            Err("the TCP header is incomplete, or its length (the first digit of its byte 12) is wrong")
        }
        protocol::UDP if payload.len() < 8 => Err("a UDP header has 8 bytes"),
        protocol::ICMP | protocol::ICMPV6 if payload.len() < 8 => Err("an ICMP header has 8 bytes"),
        _ => Ok(()),
    }
}

/// Writes to `answer` the frame that a template makes for a packet, and returns its length. `frame` is the frame that `headers` was parsed
/// from; the template was [checked](check_template).
///
/// The link header is the packet's, with source and destination exchanged. What is 0 in the template is filled: addresses and ports with
/// the packet's, exchanged; TCP's sequence number with the packet's acknowledgement number; with the flag ACK, the acknowledgement number
/// with the number after the packet; identifier and sequence number of ICMP with the packet's. Lengths and checksums are calculated.
///
/// Returns `None` if the packet can't fill what is open: it is of the other address family, lacks ports, is a later fragment, or its link
/// header can't be turned.
///
/// # Panics
/// If `answer` has no room for the link header and the template.
pub fn from_template(frame: &[u8], headers: &Headers, template: &[u8], answer: &mut [u8]) -> Option<usize> {
    if headers.fragment == Fragment::Later || !has_way_back(headers) {
        return None;
    }
    let at = usize::from(headers.network_offset);
    let (copy, packet) = answer[..at + template.len()].split_at_mut(at);
    copy.copy_from_slice(frame.get(..at)?);
    packet.copy_from_slice(template);
    match (headers.network, template[0] >> 4) {
        (Network::V4(ip), 4) => {
            let (header, payload) = packet.split_at_mut(V4_HEADER);
            fill(&mut header[12..16], &ip.dst.octets());
            fill(&mut header[16..20], &ip.src.octets());
            header[2..4].copy_from_slice(&(template.len() as u16).to_be_bytes());
            header[10..12].fill(0);
            set_checksum(header, 10, Checksum::default());
            let pseudo = pseudo_header(&header[12..], header[9], payload.len() as u16);
            fill_payload(frame, headers, header[9], payload, pseudo)?;
        }
        (Network::V6(ip), 6) => {
            let (header, payload) = packet.split_at_mut(V6_HEADER);
            fill(&mut header[8..24], &ip.dst.octets());
            fill(&mut header[24..40], &ip.src.octets());
            header[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
            let pseudo = pseudo_header(&header[8..], header[6], payload.len() as u16);
            fill_payload(frame, headers, header[6], payload, pseudo)?;
        }
        _ => return None,
    }
    turn_link_header(&mut answer[..at + template.len()], headers);
    Some(at + template.len())
}

/// Fills what is open in the transport header, and sets its checksum.
fn fill_payload(frame: &[u8], headers: &Headers, protocol: u8, payload: &mut [u8], pseudo: Checksum) -> Option<()> {
    let (src_port, dst_port) = headers.ports();
    match protocol {
        protocol::TCP | protocol::UDP => {
            let is_open = payload[..2] == [0; 2] || payload[2..4] == [0; 2];
            if is_open
                && !matches!(headers.transport, Transport::Tcp(_) | Transport::Udp { .. } | Transport::Sctp { .. })
            {
                return None;
            }
            fill(&mut payload[..2], &dst_port.to_be_bytes());
            fill(&mut payload[2..4], &src_port.to_be_bytes());
        }
        _ => {}
    }
    match (protocol, headers.transport) {
        (protocol::TCP, transport) => {
            if let Transport::Tcp(tcp) = transport {
                let control =
                    u32::from(tcp.flags.contains(TcpFlags::SYN)) + u32::from(tcp.flags.contains(TcpFlags::FIN));
                let next = tcp.seq.wrapping_add(headers.payload_len).wrapping_add(control);
                fill(&mut payload[4..8], &tcp.ack.to_be_bytes());
                if TcpFlags(payload[13]).contains(TcpFlags::ACK) {
                    fill(&mut payload[8..12], &next.to_be_bytes());
                }
            }
            payload[16..18].fill(0);
            set_checksum(payload, 16, pseudo);
        }
        (protocol::UDP, _) => {
            let len = payload.len() as u16;
            payload[4..6].copy_from_slice(&len.to_be_bytes());
            payload[6..8].fill(0);
            set_checksum(payload, 6, pseudo);
            // In UDP 0 means that there is no checksum.
            if payload[6..8] == [0; 2] {
                payload[6..8].fill(0xff);
            }
        }
        (protocol::ICMP | protocol::ICMPV6, transport) => {
            if let Transport::Icmp(_) = transport {
                let start = usize::from(headers.transport_offset) + 4;
                fill(&mut payload[4..8], frame.get(start..start + 4)?);
            }
            payload[2..4].fill(0);
            let pseudo = if protocol == protocol::ICMP { Checksum::default() } else { pseudo };
            set_checksum(payload, 2, pseudo);
        }
        _ => {}
    }
    Some(())
}

/// Writes the value if the field is 0.
fn fill(field: &mut [u8], value: &[u8]) {
    if field.iter().all(|byte| *byte == 0) {
        field.copy_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::{LinkType, parse};

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    /// 10.0.0.1:4660 to 10.0.0.2:80, SYN, sequence number 100.
    const SYN: &str = "02aaaaaaaaaa 02bbbbbbbbbb 0800 4500002800000000 40060000 0a000001 0a000002 1234 0050 00000064 00000000 5002 0400 0000 0000";
    const SYN_ACK: &str =
        "45000000 00004000 40060000 00000000 00000000 0000 0000 00000007 00000000 5012 ffff 0000 0000";

    #[test]
    fn a_template_fills_what_is_open() {
        let (frame, template) = (bytes(SYN), bytes(SYN_ACK));
        check_template(&template).expect("it is one");
        let headers = parse(LinkType::Ethernet, &frame, frame.len() as u32, 0).expect("it parses");
        let mut answer = vec![0; 2000];
        let len = from_template(&frame, &headers, &template, &mut answer).expect("it can be answered");
        let answer = &answer[..len];
        let made = parse(LinkType::Ethernet, answer, len as u32, 0).expect("it parses");
        assert!(made.checksums_hold(answer));
        assert_eq!(made.ports(), (80, 4660));
        assert_eq!(made.addresses().map(|(src, dst)| (dst, src)), headers.addresses());
        let Transport::Tcp(tcp) = made.transport else { panic!("{made:?}") };
        assert_eq!((tcp.seq, tcp.ack, tcp.flags.0), (7, 101, 0x12));
        assert_eq!(made.macs.map(|(src, dst)| (dst, src)), headers.macs);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let frame = bytes(SYN);
        let headers = parse(LinkType::Ethernet, &frame, frame.len() as u32, 0).expect("it parses");
        let v6 = bytes(
            "6000000000001140 00000000000000000000000000000000 00000000000000000000000000000000 0000000000000000",
        );
        check_template(&v6).expect("it is one");
        assert_eq!(from_template(&frame, &headers, &v6, &mut [0; 2000]), None);
        for wrong in [
            "",
            "45",
            "46000000 00000000 40060000 00000000 00000000 00000000",
            "45000000 00002000 40110000 00000000 00000000",
        ] {
            check_template(&bytes(wrong)).expect_err(wrong);
        }
        check_template(&bytes("45000000 00000000 40110000 00000000 00000000 00000000"))
            .expect_err("a short UDP header");
        check_template(&[0x45; TEMPLATE_MAX + 1]).expect_err("too long");
    }
}
