//! Resets and ICMP errors, held to checksums computed anew and to another crate's parser.

mod common;

use std::net::IpAddr;

use common::built::{Hosts, Kind, error, hosts, kinds, packet, read};
use common::{checksums, is_deep};
use etherparse::{NetSlice, SlicedPacket};
use millrace_packet::{
    Headers, ICMP_ERROR_GROWTH, ICMP_ERROR_MAX, IcmpError, LinkType, Mac, Network, TcpFlags, Transport, icmp_error,
    parse, tcp_reset,
};
use proptest::prelude::*;

fn is_group(host: IpAddr) -> bool {
    host.is_multicast() || host.is_unspecified() || host == IpAddr::from([255; 4])
}

/// The error of this type and code about a frame.
fn answer(frame: &[u8], headers: &Headers, [kind, code]: [u8; 2], from: Option<IpAddr>) -> Option<Vec<u8>> {
    let mut answer = vec![0xa5; usize::from(headers.network_offset) + ICMP_ERROR_MAX];
    let len = icmp_error(frame, headers, IcmpError { kind, code, from, ttl: None }, &mut answer)?;
    answer.truncate(len);
    Some(answer)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_deep() { 100_000 } else { 2_000 }))]

    #[test]
    fn resets_are_what_a_closed_port_sends(
        (hosts, _) in hosts(),
        ports in any::<(u16, u16)>(),
        (seq, ack) in any::<(u32, u32)>(),
        flags in any::<u8>(),
        payload in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut bytes = packet(hosts, ports, Kind::Tcp, &payload);
        let at = usize::from(read(&bytes).transport_offset);
        bytes[at + 4..at + 8].copy_from_slice(&seq.to_be_bytes());
        bytes[at + 8..at + 12].copy_from_slice(&ack.to_be_bytes());
        bytes[at + 13] = flags;
        let (headers, flags) = (read(&bytes), TcpFlags(flags));
        let untouched = bytes.clone();
        let Some(len) = tcp_reset(&mut bytes, &headers) else {
            prop_assert!(flags.contains(TcpFlags::RST) || is_group(hosts.0) || is_group(hosts.1));
            prop_assert_eq!(bytes, untouched);
            return Ok(());
        };
        prop_assert!(!flags.contains(TcpFlags::RST));
        let reset = read(&bytes[..len]);
        prop_assert!(checksums(&bytes[..len], &reset).all_right());
        prop_assert_eq!(reset.addresses(), Some((hosts.1, hosts.0)));
        prop_assert_eq!((reset.ports(), reset.payload_len), ((ports.1, ports.0), 0));
        let Transport::Tcp(tcp) = reset.transport else { panic!("a TCP segment") };
        let length = payload.len() as u32
            + u32::from(flags.contains(TcpFlags::SYN))
            + u32::from(flags.contains(TcpFlags::FIN));
        if flags.contains(TcpFlags::ACK) {
            prop_assert_eq!((tcp.seq, tcp.ack, tcp.flags), (ack, 0, TcpFlags::RST));
        } else {
            prop_assert_eq!((tcp.seq, tcp.ack), (0, seq.wrapping_add(length)));
            prop_assert_eq!(tcp.flags, TcpFlags::RST.with(TcpFlags::ACK));
        }
    }

    #[test]
    fn errors_quote_the_packet_and_go_back_to_its_sender(
        (hosts, (from, other)) in hosts(),
        is_from_other in any::<bool>(),
        ports in any::<(u16, u16)>(),
        kind in kinds(),
        tos in any::<u8>(),
        code in any::<u8>(),
        payload in prop::collection::vec(any::<u8>(), 0..1400),
        padding in 0_usize..4,
        missing in 0_usize..40,
    ) {
        let mut bytes = packet(hosts, ports, kind, &payload);
        if hosts.0.is_ipv4() {
            bytes[1] = tos;
        }
        let len = bytes.len();
        bytes.resize(len + padding, 0xa5);
        let headers = read(&bytes);
        // A capture may have less.
        let captured = len.saturating_sub(missing).max(headers.payload_offset.into()).min(len);
        let bytes = if captured < len { &bytes[..captured] } else { &bytes[..] };
        let from = is_from_other.then_some(from);
        let error_type = if hosts.0.is_ipv4() { 3 } else { 1 };
        let Some(error) = answer(bytes, &headers, [error_type, code], from) else {
            prop_assert!(is_group(hosts.0) || is_group(hosts.1));
            return Ok(());
        };
        prop_assert!(!is_group(hosts.0) && !is_group(hosts.1));
        prop_assert!(error.len() <= captured + ICMP_ERROR_GROWTH as usize);
        let again = read(&error);
        let verdicts = checksums(&error, &again);
        prop_assert_eq!((verdicts.ip.unwrap_or(true), verdicts.transport), (true, Some(true)));
        prop_assert_eq!(again.addresses(), Some((from.unwrap_or(hosts.1), hosts.0)));
        let (headers_len, len_max) = match again.network {
            Network::V4(ip) => {
                prop_assert_eq!((ip.ttl, ip.tos, ip.id, &error[6..8]), (64, tos & 0x1e | 0xc0, 0, &[0, 0][..]));
                (28, 576)
            }
            Network::V6(ip) => {
                prop_assert_eq!((ip.hop_limit, ip.traffic_class), (64, 0));
                (48, 1280)
            }
            Network::None | Network::Unreadable | Network::Arp => panic!("it is IP"),
        };
        prop_assert_eq!(error.len(), len_max.min(headers_len + captured));
        prop_assert_eq!(&error[headers_len..], &bytes[..error.len() - headers_len]);
        let Transport::Icmp(icmp) = again.transport else { panic!("an ICMP message") };
        prop_assert_eq!((icmp.kind, icmp.code), (error_type, code));
        prop_assert_eq!(icmp.embedded.map(|quoted| quoted.tuple), headers.five_tuple());

        let sliced = SlicedPacket::from_ip(&error).expect("another parser reads it");
        match sliced.net {
            Some(NetSlice::Ipv4(ip)) => prop_assert_eq!(ip.header().to_header().calc_header_checksum(), ip.header().header_checksum()),
            Some(NetSlice::Ipv6(_)) => {}
            other => panic!("{other:?}"),
        }
        // An error answers no error, and a source of the other family answers nothing.
        prop_assert_eq!(answer(&error, &again, [error_type, code], None), None);
        let mismatched: IpAddr = if other.is_ipv4() { [1; 16].into() } else { [1; 4].into() };
        prop_assert_eq!(answer(bytes, &headers, [error_type, code], Some(mismatched)), None);
    }
}

/// The frame of an IP packet between two stations, behind this link header.
fn framed(link_header: &[u8], ip: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], link_header, ip].concat()
}

#[test]
fn link_headers_come_back_turned() {
    let hosts: Hosts = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    for kind in [Kind::Udp, Kind::Tcp] {
        let ip = packet(hosts, (1, 2), kind, &[7; 100]);
        let pppoe = |len: usize, ppp: &[u8]| [&[0x88, 0x64, 0x11, 0, 0, 9, 0, len as u8], ppp].concat();
        let snap = |len: usize| [&[0, len as u8, 0xaa, 0xaa, 3, 0, 0, 0], &[8, 0][..]].concat();
        let tagged = |rest: Vec<u8>| [&[0x81, 0, 0x20, 5], &rest[..]].concat();
        // What stands before the IP packet, if that is of this length.
        let link_headers: [&dyn Fn(usize) -> Vec<u8>; 8] = [
            &|_| vec![8, 0],
            &|_| tagged(vec![8, 0]),
            &|_| [&[0x88, 0xa8, 0, 1], &tagged(vec![8, 0])[..]].concat(),
            &|len| pppoe(len + 2, &[0, 0x21]),
            &|len| pppoe(len + 1, &[0x21]),
            &|len| tagged(pppoe(len + 2, &[0, 0x21])),
            &|len| snap(len + 8),
            &|len| tagged(snap(len + 8)),
        ];
        for link_header in link_headers {
            let frame = framed(&link_header(ip.len()), &ip);
            let headers = parse(LinkType::Ethernet, &frame, 0, 0).expect("a well-formed packet");
            let error = answer(&frame, &headers, [3, 13], None).expect("it can be answered");
            let mut expected = framed(&link_header(ip.len() + 28), &error[usize::from(headers.network_offset)..]);
            expected[..12].rotate_left(6);
            assert_eq!(error, expected);
            let again = parse(LinkType::Ethernet, &error, 0, 0).expect("a well-formed packet");
            assert_eq!(again.macs, Some((Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))));

            let mut reset = frame.clone();
            let Some(len) = tcp_reset(&mut reset, &headers) else { continue };
            reset.truncate(len);
            let mut expected = framed(&link_header(40), &reset[usize::from(headers.network_offset)..]);
            expected[..12].rotate_left(6);
            assert_eq!(reset, expected);
        }
    }
}

#[test]
fn some_packets_are_never_answered() {
    let hosts: Hosts = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let hosts_v6: Hosts = ([0x20; 16].into(), [0x21; 16].into());
    let refused = |ip: &[u8]| answer(ip, &read(ip), [3, 3], None).is_none();
    let udp = packet(hosts, (1, 2), Kind::Udp, &[7; 100]);
    assert!(!refused(&udp));
    assert!(refused(&error(hosts, &udp)) && refused(&error(hosts_v6, &udp)));

    // Fragments but the first.
    let fragment = |field: u16| [&udp[..6], &field.to_be_bytes(), &udp[8..]].concat();
    assert!(!refused(&fragment(0x2000)));
    assert!(refused(&fragment(0x2001)) && refused(&fragment(1)));

    // ICMP that asks or answers is answered, other ICMP is not.
    let of_type = |hosts, kind| {
        let mut ping = packet(hosts, (1, 2), Kind::Ping, &[7; 100]);
        let at = usize::from(read(&ping).transport_offset);
        ping[at] = kind;
        ping
    };
    let answered = |hosts| (0..=255).filter(|kind| !refused(&of_type(hosts, *kind))).collect::<Vec<u8>>();
    assert_eq!(answered(hosts), [0, 8, 13, 14, 15, 16, 17, 18]);
    assert_eq!(answered(hosts_v6), (128..=255).filter(|kind| *kind != 137).collect::<Vec<u8>>());

    // Ethernet's groups, and labels.
    let mut frame = framed(&[8, 0], &udp);
    let headers = parse(LinkType::Ethernet, &frame, 0, 0).expect("a well-formed packet");
    assert!(answer(&frame, &headers, [3, 3], None).is_some());
    frame[0] = 1;
    let headers = parse(LinkType::Ethernet, &frame, 0, 0).expect("a well-formed packet");
    assert_eq!(answer(&frame, &headers, [3, 3], None), None);
    let frame = framed(&[0x88, 0x47, 0, 1, 0x01, 64], &udp);
    let headers = parse(LinkType::Ethernet, &frame, 0, 0).expect("a well-formed packet");
    assert!(headers.addresses().is_some());
    assert_eq!(answer(&frame, &headers, [3, 3], None), None);
    let arp = framed(&[8, 6], &[0; 28]);
    let headers = parse(LinkType::Ethernet, &arp, 0, 0).expect("a well-formed packet");
    assert_eq!(answer(&arp, &headers, [3, 3], None), None);
}
