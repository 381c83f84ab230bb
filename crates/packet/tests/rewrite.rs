//! Rewrites, held to checksums computed anew.

mod common;

use std::net::IpAddr;
use std::num::NonZeroU16;

use common::built::{Kind, error, hosts, kinds, packet, read, v4_hosts};
use common::{checksums, internet_checksum, is_deep};
use etherparse::{PacketBuilder, TcpOptionElement, TcpSlice};
use millrace_packet::{
    Endpoint, Headers, LinkType, Mac, Macs, Network, OrdinaryHeaders, Rewrite, Transport, parse, protocol,
};
use proptest::prelude::*;

fn ttl(headers: &Headers) -> u8 {
    match headers.network {
        Network::V4(ip) => ip.ttl,
        Network::V6(ip) => ip.hop_limit,
        Network::None | Network::Unreadable | Network::Arp => 0,
    }
}

fn tos(headers: &Headers) -> u8 {
    match headers.network {
        Network::V4(ip) => ip.tos,
        Network::V6(ip) => ip.traffic_class,
        Network::None | Network::Unreadable | Network::Arp => 0,
    }
}

/// TCP options of a SYN, of which the MSS may be at any offset, or none.
fn options() -> impl Strategy<Value = Vec<TcpOptionElement>> {
    let option = prop_oneof![
        any::<u16>().prop_map(TcpOptionElement::MaximumSegmentSize),
        (0_u8..15).prop_map(TcpOptionElement::WindowScale),
        Just(TcpOptionElement::Noop),
        Just(TcpOptionElement::SelectiveAcknowledgementPermitted),
    ];
    prop::collection::vec(option, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_deep() { 100_000 } else { 2_000 }))]

    #[test]
    fn addresses_and_ports_change_and_checksums_stay_right(
        (before, after) in hosts(),
        ports in any::<(u16, u16)>(),
        new_ports in any::<(u16, u16)>(),
        (rewrites_src, rewrites_dst, decrement_ttl) in any::<(bool, bool, bool)>(),
        (new_ttl, new_tos) in any::<(Option<u8>, Option<u8>)>(),
        kind in kinds(),
        payload in prop::collection::vec(any::<u8>(), 0..80),
        padding in 0_usize..4,
    ) {
        let mut bytes = packet(before, ports, kind, &payload);
        let headers = read(&bytes);
        prop_assert!(checksums(&bytes, &headers).all_right(), "{:?}", checksums(&bytes, &headers));
        let rewrite = Rewrite {
            src: rewrites_src.then_some(Endpoint::new(after.0, new_ports.0)),
            dst: rewrites_dst.then_some(Endpoint::new(after.1, new_ports.1)),
            decrement_ttl,
            ttl: new_ttl,
            tos: new_tos,
            ..Rewrite::NONE
        };
        // The same packet cut by a snap length goes out as the beginning of the whole one does.
        let header_len = usize::from(headers.payload_offset);
        let mut cut = bytes[..header_len + payload.len() / 2].to_vec();
        let cut_headers = parse(LinkType::RawIp, &cut, bytes.len() as u32, 0).expect("headers are whole");
        rewrite.apply(&mut cut, &cut_headers);

        bytes.resize(bytes.len() + padding, 0xa5);
        rewrite.apply(&mut bytes, &headers);
        prop_assert_eq!(&cut[..], &bytes[..cut.len()]);
        let again = read(&bytes);
        prop_assert!(checksums(&bytes, &again).all_right(), "{:?}", checksums(&bytes, &again));
        let (src, dst) = again.addresses().expect("an IP packet");
        prop_assert_eq!(src, if rewrites_src { after.0 } else { before.0 });
        prop_assert_eq!(dst, if rewrites_dst { after.1 } else { before.1 });
        prop_assert_eq!(ttl(&again), new_ttl.unwrap_or(if decrement_ttl { 63 } else { 64 }));
        prop_assert_eq!(tos(&again), new_tos.unwrap_or(0));
        if before.0.is_ipv6() {
            prop_assert_eq!(&bytes[..4], [0x60 | tos(&again) >> 4, tos(&again) << 4, 0, 0], "no flow label");
        }
        match kind {
            Kind::Ping => {
                let old = ports.0;
                let new = [rewrite.dst, rewrite.src].into_iter().flatten().map(|end| end.port).find(|id| *id != old);
                prop_assert_eq!(again.ports().0, new.unwrap_or(old));
            }
            Kind::Tcp | Kind::Udp | Kind::Sctp => {
                prop_assert_eq!(again.ports().0, if rewrites_src { new_ports.0 } else { ports.0 });
                prop_assert_eq!(again.ports().1, if rewrites_dst { new_ports.1 } else { ports.1 });
            }
        }
        prop_assert_eq!(&bytes[header_len..][..payload.len()], &payload[..]);
    }

    #[test]
    fn the_mss_of_a_syn_is_lowered(
        (hosts, _) in hosts(),
        options in options(),
        is_syn in any::<bool>(),
        max in 1_u16..,
        payload in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let mut bytes = Vec::new();
        let builder = match hosts {
            (IpAddr::V4(src), IpAddr::V4(dst)) => PacketBuilder::ipv4(src.octets(), dst.octets(), 64),
            (IpAddr::V6(src), IpAddr::V6(dst)) => PacketBuilder::ipv6(src.octets(), dst.octets(), 64),
            _ => unreachable!("hosts are of one family"),
        };
        let builder = builder.tcp(1, 2, 1000, 64000);
        let builder = if is_syn { builder.syn() } else { builder.ack(77) };
        builder.options(&options).expect("there is room").write(&mut bytes, &payload).expect("writing to memory");
        let (headers, before) = (read(&bytes), bytes.clone());
        Rewrite { mss_max: NonZeroU16::new(max), ..Rewrite::NONE }.apply(&mut bytes, &headers);
        prop_assert!(checksums(&bytes, &headers).all_right());

        let mut expected = options;
        for option in &mut expected {
            if let (TcpOptionElement::MaximumSegmentSize(mss), true) = (option, is_syn) {
                *mss = max.min(*mss);
            }
        }
        let is_at = usize::from(headers.transport_offset);
        let segment = TcpSlice::from_slice(&bytes[is_at..]).expect("a segment");
        let found: Vec<_> = segment.options_iterator().map(|option| option.expect("well-formed")).collect();
        prop_assert_eq!(found, expected);
        // Nothing else changes but the checksum.
        let mut same = bytes.clone();
        let range = is_at + 16..usize::from(headers.payload_offset);
        same[range.clone()].copy_from_slice(&before[range]);
        prop_assert_eq!(same, before);
    }

    #[test]
    fn quotes_are_rewritten_the_other_way_round(
        (flow, after) in hosts(),
        ports in any::<(u16, u16)>(),
        new_ports in any::<(u16, u16)>(),
        (rewrites_src, rewrites_dst) in any::<(bool, bool)>(),
        kind in kinds(),
        payload in prop::collection::vec(any::<u8>(), 0..40),
        missing in 0_usize..60,
        has_padding in any::<bool>(),
    ) {
        let quoted = packet(flow, ports, kind, &payload);
        let least = usize::from(read(&quoted).transport_offset) + 8;
        let quoted = &quoted[..quoted.len().saturating_sub(missing).max(least)];
        // The error goes back to the flow's source, from its destination.
        let mut bytes = error((flow.1, flow.0), quoted);
        if has_padding {
            bytes.resize(bytes.len() + 20, 0);
        }
        let headers = read(&bytes);
        prop_assert!(checksums(&bytes, &headers).all_right(), "{:?}", checksums(&bytes, &headers));
        let rewrite = Rewrite {
            src: rewrites_src.then_some(Endpoint::new(after.0, new_ports.0)),
            dst: rewrites_dst.then_some(Endpoint::new(after.1, new_ports.1)),
            embedded: true,
            ..Rewrite::NONE
        };
        rewrite.apply(&mut bytes, &headers);
        let again = read(&bytes);
        let mut verdicts = checksums(&bytes, &again);
        if matches!(kind, Kind::Sctp) {
            verdicts.quoted_transport = None;
        }
        prop_assert!(verdicts.all_right(), "{:?}", verdicts);
        let Transport::Icmp(icmp) = again.transport else { panic!("an ICMP packet") };
        let (quoted_src, quoted_dst) = icmp.embedded.expect("the quote is long enough").endpoints();
        let (src, dst) = again.addresses().expect("an IP packet");
        prop_assert_eq!((quoted_src.address, quoted_dst.address), (dst, src));
        prop_assert_eq!(src, if rewrites_src { after.0 } else { flow.1 });
        prop_assert_eq!(dst, if rewrites_dst { after.1 } else { flow.0 });
        if !matches!(kind, Kind::Ping) {
            prop_assert_eq!(quoted_dst.port, if rewrites_src { new_ports.0 } else { ports.1 });
            prop_assert_eq!(quoted_src.port, if rewrites_dst { new_ports.1 } else { ports.0 });
        }
    }

    #[test]
    fn headers_are_known_without_the_bytes_and_two_rewrites_are_one(
        (flow, after) in hosts(),
        (_, again) in hosts(),
        ports in any::<(u16, u16)>(),
        new_ports in any::<[(u16, u16); 2]>(),
        kind in kinds(),
        is_error in any::<bool>(),
        has_ethernet in any::<bool>(),
        (rewritten, wanted) in any::<([bool; 4], [(bool, Option<u8>, Option<u8>, u8, u16); 2])>(),
    ) {
        let identifiers = [ports.0, new_ports[0].0, new_ports[0].1, new_ports[1].0, new_ports[1].1];
        prop_assume!(!is_error || !matches!(kind, Kind::Ping) || !identifiers.contains(&0));
        let mut bytes = packet(flow, ports, kind, &[7; 40]);
        if is_error {
            bytes = error((flow.1, flow.0), &bytes);
        }
        let link = if has_ethernet {
            let ethertype = if flow.0.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
            bytes = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &ethertype, &bytes].concat();
            LinkType::Ethernet
        } else {
            LinkType::RawIp
        };
        let seen = |bytes: &[u8]| parse(link, bytes, bytes.len() as u32, 0).expect("a well-formed packet");
        let rewrite = |number: usize, hosts: common::built::Hosts| {
            let (decrement_ttl, ttl, tos, macs, mss) = wanted[number];
            let (src, dst) = new_ports[number];
            let macs = [None, Some(Macs::Swap), Some(Macs::Set(Mac([6; 6]), Mac([8; 6])))][usize::from(macs % 3)];
            Rewrite {
                src: rewritten[2 * number].then_some(Endpoint::new(hosts.0, src)),
                dst: rewritten[2 * number + 1].then_some(Endpoint::new(hosts.1, dst)),
                embedded: is_error,
                macs,
                decrement_ttl,
                ttl,
                tos,
                mss_max: NonZeroU16::new(mss),
            }
        };
        let (first, second) = (rewrite(0, after), rewrite(1, again));
        let (headers, mut at_once) = (seen(&bytes), bytes.clone());
        first.apply(&mut bytes, &headers);
        prop_assert_eq!(first.seen_in(&headers), seen(&bytes));
        let mut ordinary = OrdinaryHeaders::of(&headers);
        let is_ordinary = has_ethernet && flow.0.is_ipv4() && !is_error && matches!(kind, Kind::Tcp | Kind::Udp);
        prop_assert_eq!(ordinary.is_some(), is_ordinary && headers.tunnel.is_none());
        if let Some(ordinary) = &mut ordinary {
            prop_assert_eq!(ordinary.look(|headers| *headers), headers);
            ordinary.rewrite(&first);
            prop_assert_eq!(ordinary.look(|headers| *headers), seen(&bytes));
        }
        let between = seen(&bytes);
        second.apply(&mut bytes, &between);
        prop_assert_eq!(second.seen_in(&between), seen(&bytes));
        first.then(&second, &headers).apply(&mut at_once, &headers);
        prop_assert_eq!(at_once, bytes);
    }

    #[test]
    fn fragments_reassemble_to_a_right_checksum(
        before in v4_hosts(),
        after in v4_hosts(),
        ports in any::<(u16, u16)>(),
        new_ports in any::<(u16, u16)>(),
        kind in prop_oneof![Just(Kind::Tcp), Just(Kind::Udp), Just(Kind::Ping)],
        payload in prop::collection::vec(any::<u8>(), 60..200),
    ) {
        let whole = packet(before, ports, kind, &payload);
        let rewrite = Rewrite {
            src: Some(Endpoint::new(after.0, new_ports.0)),
            dst: Some(Endpoint::new(after.1, new_ports.0)),
            ..Rewrite::NONE
        };
        let mut segment = Vec::new();
        let mut front = Vec::new();
        for (index, part) in whole[20..].chunks(40).enumerate() {
            let is_last = (index + 1) * 40 >= whole.len() - 20;
            let mut fragment = whole[..20].to_vec();
            fragment[2..4].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
            let field = (index as u16 * 5) | if is_last { 0 } else { 0x2000 };
            fragment[6..8].copy_from_slice(&field.to_be_bytes());
            fragment[10..12].fill(0);
            let checksum = internet_checksum(&[&fragment]);
            fragment[10..12].copy_from_slice(&checksum.to_be_bytes());
            fragment.extend(part);
            let headers = read(&fragment);
            rewrite.apply(&mut fragment, &headers);
            prop_assert_eq!(checksums(&fragment, &read(&fragment)).ip, Some(true));
            segment.extend_from_slice(&fragment[20..]);
            front = fragment[..20].to_vec();
        }
        front[2..4].copy_from_slice(&(whole.len() as u16).to_be_bytes());
        front[6..8].fill(0);
        front[10..12].fill(0);
        let checksum = internet_checksum(&[&front]);
        front[10..12].copy_from_slice(&checksum.to_be_bytes());
        front.extend(segment);
        let again = read(&front);
        prop_assert!(checksums(&front, &again).all_right());
        prop_assert_eq!(again.addresses(), Some(after));
        prop_assert_eq!(again.ports().0, new_ports.0);
    }
}

#[test]
fn no_udp_checksum_stays_none_and_zero_becomes_all_ones() {
    let hosts = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let mut bytes = packet(hosts, (1000, 2000), Kind::Udp, b"data");
    let rewrite = |port| Rewrite { src: Some(Endpoint::new([10, 0, 0, 9].into(), port)), ..Rewrite::NONE };
    for port in 0..=u16::MAX {
        let headers = read(&bytes);
        rewrite(port).apply(&mut bytes, &headers);
        assert_ne!(bytes[26..28], [0, 0]);
        assert!(checksums(&bytes, &headers).all_right());
    }
    bytes[26..28].fill(0);
    let headers = read(&bytes);
    rewrite(5).apply(&mut bytes, &headers);
    assert_eq!(bytes[26..28], [0, 0]);
}

/// Senders that count the payload alone, or nothing, quote a length in which there is no room for the ports that came back.
#[test]
fn a_quoted_length_that_is_too_small_is_not_believed() {
    let hosts = (IpAddr::from([198, 51, 100, 7]), IpAddr::from([203, 0, 113, 1]));
    let (inside, outside) = ("192.168.1.5", "203.0.113.1");
    for (length, len) in [(28, 8), (20, 8), (27, 8), (8, 8), (1, 8), (0, 8), (28, 20), (48, 20)] {
        let mut quoted = packet((outside.parse().unwrap(), hosts.0), (5000, 33434), Kind::Udp, &[7; 12]);
        quoted.truncate(20 + len);
        quoted[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        let mut bytes = packet(hosts, (0, 0), Kind::Udp, &quoted);
        bytes[9] = protocol::ICMP;
        bytes[20..28].copy_from_slice(&[11, 0, 0, 0, 0, 0, 0, 0]);
        let headers = read(&bytes);
        let before = bytes.clone();
        let dst = Some(Endpoint::new(inside.parse().unwrap(), 4000));
        Rewrite { dst, embedded: true, ..Rewrite::NONE }.apply(&mut bytes, &headers);
        let Transport::Icmp(icmp) = read(&bytes).transport else { panic!("{headers:?}") };
        let source = icmp.embedded.expect("it quotes a packet").tuple.source();
        assert_eq!(source, Endpoint::new(inside.parse().unwrap(), 4000), "{length} {len}");
        // The quoted UDP checksum covers the pseudo-header: it changes with the address and the port.
        assert_ne!(before[54..56], bytes[54..56], "{length} {len}");
        let sum = |bytes: &[u8]| {
            let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
            words.sum::<u32>() % 0xffff
        };
        assert_eq!(
            sum(&before[20..]),
            sum(&bytes[20..]),
            "all that the ICMP checksum covers sums up as before: {length} {len}"
        );
    }
}

#[test]
fn a_routing_header_hides_the_destination_from_the_checksum() {
    // Two stops: the header's destination is the next, the checksum covers the last, which the routing header holds.
    let (src, next, last) = ([0x20; 16], [0x21; 16], [0x22; 16]);
    let plain = packet((src.into(), last.into()), (1, 2), Kind::Udp, b"data");
    let mut bytes = plain[..40].to_vec();
    bytes[4..6].copy_from_slice(&(24 + 12_u16).to_be_bytes());
    bytes[6] = 43;
    bytes[24..40].copy_from_slice(&next);
    bytes.extend([protocol::UDP, 2, 0, 1, 0, 0, 0, 0]);
    bytes.extend(last);
    bytes.extend(&plain[40..]);
    let before = bytes[64..].to_vec();
    let headers = read(&bytes);
    let rewrite = Rewrite { dst: Some(Endpoint::new([0x23; 16].into(), 2)), ..Rewrite::NONE };
    rewrite.apply(&mut bytes, &headers);
    assert_eq!((&bytes[24..40], &bytes[64..]), (&[0x23; 16][..], &before[..]));
}

#[test]
fn ethernet_addresses_and_the_last_hop() {
    let hosts = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let mut ip = packet(hosts, (1, 2), Kind::Tcp, b"");
    ip[8] = 0;
    let mut bytes = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip].concat();
    let headers = parse(LinkType::Ethernet, &bytes, 0, 0).expect("a well-formed packet");
    let swap = Rewrite { macs: Some(Macs::Swap), decrement_ttl: true, ..Rewrite::NONE };
    swap.apply(&mut bytes, &headers);
    assert_eq!(bytes[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    assert_eq!(bytes[14..], ip);
    let set = Rewrite { macs: Some(Macs::Set(Mac([6; 6]), Mac([8; 6]))), ..Rewrite::NONE };
    set.apply(&mut bytes, &headers);
    assert_eq!(bytes[..12], [8, 8, 8, 8, 8, 8, 6, 6, 6, 6, 6, 6]);
    // Other links have no addresses to set.
    let headers = read(&ip);
    let before = ip.clone();
    set.apply(&mut ip, &headers);
    assert_eq!(ip, before);
}
