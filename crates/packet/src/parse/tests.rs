//! What parsing decides where the formats leave a choice, and what holds for any bytes at all.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU16;
use std::vec;
use std::vec::Vec;

use etherparse::{IpFragOffset, Ipv4Extensions, Ipv4Header, PacketBuilder, TcpOptionElement};

use super::*;
use crate::headers::{TunnelKind, protocol};
use crate::key::{Endpoint, FiveTuple};
use crate::reply::{ICMP_ERROR_MAX, IcmpError, icmp_error, tcp_reset};
use crate::rewrite::{Macs, Rewrite};

const SRC: [u8; 4] = [192, 0, 2, 1];
const DST: [u8; 4] = [198, 51, 100, 2];
const SRC6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const DST6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

fn of(link: LinkType, bytes: &[u8]) -> Result<Headers, Malformed> {
    parse(link, bytes, bytes.len() as u32, 0)
}

fn ethernet(bytes: &[u8]) -> Result<Headers, Malformed> {
    of(LinkType::Ethernet, bytes)
}

fn ports_v4(headers: Headers) -> (IpAddr, IpAddr, (u16, u16)) {
    let (src, dst) = headers.addresses().unwrap();
    (src, dst, headers.ports())
}

/// An IPv4 packet by hand: whatever the arguments say.
fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0];
    packet[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet.extend([SRC, DST].concat());
    packet.extend(payload);
    packet
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend([SRC6, DST6].concat());
    packet.extend(payload);
    packet
}

fn udp(dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x30, 0x39, 0, 0, 0, 0, 0, 0];
    segment[2..4].copy_from_slice(&dst_port.to_be_bytes());
    segment[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    segment.extend(payload);
    segment
}

fn tcp(flags: u8, options: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 3, 0xe8, 0, flags, 1, 0, 0, 0, 0, 0];
    segment[12] = ((20 + options.len() as u8) / 4) << 4;
    segment.extend(options);
    segment
}

fn framed(tags: &[u8], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(tags);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

#[test]
fn tags_are_counted_and_two_kept() {
    let tags = [0x88, 0xa8, 0x20, 100, 0x81, 0, 0, 200, 0x91, 0, 0x0f, 0xff];
    let headers = ethernet(&framed(&tags, 0x0800, &ipv4(17, 0, &udp(53, b"x")))).unwrap();
    assert_eq!(headers.vlans, Vlans { count: 3, ids: [100, 200] });
    assert_eq!((headers.ethertype, headers.network_offset), (0x0800, 26));
    assert_eq!(headers.macs, Some((Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]))));
    assert_eq!(ethernet(&framed(&tags, 0x0800, &[])[..24]), Err(Malformed::LinkTruncated));
}

#[test]
fn no_number_of_tags_hides_a_packet() {
    for (tags, count) in [(254, 254), (255, 255), (256, 255), (3000, 255)] {
        let headers = ethernet(&framed(&[0x81, 0, 0, 7].repeat(tags), 0x0800, &ipv4(17, 0, &udp(53, b"x")))).unwrap();
        assert_eq!((headers.vlans.count, headers.ports().1), (count, 53), "{tags}");
    }
    let headers = ethernet(&framed(&[0x81, 0, 0, 7].repeat(5000), 0x0800, &ipv4(17, 0, &udp(53, b"x")))).unwrap();
    assert_eq!(headers.network, Network::Unreadable, "more than are looked through");
}

/// IP in LLC and SNAP, on the links that have IEEE 802.3 frames.
#[test]
fn frames_with_a_length_are_read() {
    let snap = |oui: [u8; 3], ethertype: u16| [&[0xaa, 0xaa, 3][..], &oui, &ethertype.to_be_bytes()].concat();
    let sll = [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0, 4];
    let sll2 = [0, 4].into_iter().chain([0; 18]).collect::<Vec<u8>>();
    let tag = [0x81, 0, 0, 7];
    let (v4, v6) = (ipv4(17, 0, &udp(53, b"x")), ipv6(17, &udp(53, b"x")));
    for oui in [[0, 0, 0], [0, 0, 0xf8]] {
        for (ethertype, packet) in [(0x0800, &v4), (0x86dd, &v6)] {
            let llc = [&snap(oui, ethertype)[..], packet].concat();
            let tagged = [&snap(oui, 0x8100)[..], &[0, 7], &ethertype.to_be_bytes(), packet].concat();
            for (link, frame) in [
                (LinkType::Ethernet, framed(&[], llc.len() as u16, &llc)),
                (LinkType::Ethernet, framed(&tag, llc.len() as u16, &llc)),
                (LinkType::Ethernet, framed(&[], tagged.len() as u16, &tagged)),
                (LinkType::LinuxSll, [&sll[..], &llc].concat()),
                (LinkType::LinuxSll2, [&sll2[..], &llc].concat()),
            ] {
                let headers = of(link, &frame).unwrap();
                assert_eq!((headers.ports(), headers.ethertype), ((12345, 53), ethertype), "{link:?} {frame:?}");
            }
        }
    }
    assert_eq!(ethernet(&[0; 13]), Err(Malformed::LinkTruncated));
}

/// What surely is something else is told from what may be IP that isn't found.
#[test]
fn three_answers() {
    let network = |link, frame: &[u8]| of(link, frame).unwrap().network;
    let (v4, zeros) = (ipv4(17, 0, &udp(53, b"x")), [0; 46]);
    for ethertype in [0x8035, 0x8808, 0x8809, 0x8863, 0x888e, 0x88cc, 0x88e5 - 2, 0x88f7, 0x8902, 0x9000] {
        assert_eq!(network(LinkType::Ethernet, &framed(&[], ethertype, &zeros)), Network::None, "{ethertype:x}");
        assert_eq!(network(LinkType::Ethernet, &framed(&[0x81, 0, 0, 1], ethertype, &zeros)), Network::None);
    }
    assert_eq!(network(LinkType::Ethernet, &framed(&[], 0x0806, &zeros)), Network::Arp);
    // Unassigned; experimental; MACsec; transparent bridging; PPP; provider backbone; service headers; VLAN tags that nobody sends.
    for ethertype in [0x1234, 0x88b5, 0x88e5, 0x6558, 0x880b, 0x88e7, 0x894f, 0x9200, 1501] {
        assert_eq!(network(LinkType::Ethernet, &framed(&[], ethertype, &v4)), Network::Unreadable, "{ethertype:x}");
    }
    let llc = |head: &[u8]| network(LinkType::Ethernet, &framed(&[], 46, &[head, &zeros[..]].concat()));
    for head in [
        &[0x42, 0x42, 3][..],
        &[0xe0, 0xe0, 3],
        &[0xff, 0xff, 0],
        &[0xf0, 0xf1, 3],
        &[0xfe, 0xfe, 3, 0x83],
        &[0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0xcc],
        &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0],
    ] {
        assert_eq!(llc(head), Network::None, "{head:x?}");
    }
    // IP's own service access point; IP under OSI's; SNAP that isn't whole, is numbered, of another organisation.
    for head in [
        &[6, 6, 3][..],
        &[0xfe, 0xfe, 3, 0xcc],
        &[0xaa, 0xaa, 0, 0, 0, 0, 0, 8, 0],
        &[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7],
        &[0xaa, 0xaa, 3, 0, 0, 0, 0, 40],
        &[0xaa, 0xab, 3],
        &[0x42, 0x43 ^ 6, 3],
    ] {
        assert_eq!(llc(head), Network::Unreadable, "{head:x?}");
    }
    assert_eq!(network(LinkType::Ethernet, &framed(&[], 7, &[0xaa, 0xaa, 3, 0, 0, 0, 8])), Network::Unreadable);
    assert_eq!(network(LinkType::Ethernet, &framed(&[], 2, &[0xaa, 0xaa])), Network::Unreadable);
    // Behind MPLS: IP that contradicts itself, pseudowires with a control word and without, too many labels.
    let mut broken = v4.clone();
    broken[0] = 0x44;
    for behind in [&broken[..], &[0, 0, 0, 0], &[0x10, 0, 0, 0x21], &[0x22; 14], &[]] {
        let frame = framed(&[], 0x8847, &[&[0, 1, 1, 64], behind].concat());
        assert_eq!(network(LinkType::Ethernet, &frame), Network::Unreadable, "{behind:x?}");
    }
    let labels = [[0, 1, 0, 64].repeat(16), vec![0, 1, 1, 64]].concat();
    assert_eq!(network(LinkType::Ethernet, &framed(&[], 0x8847, &[labels, v4.clone()].concat())), Network::Unreadable);
    // PPPoE: link control; set-up of IP; a packet compressed, and a session's packet of a code that there isn't.
    let pppoe = |head: [u8; 8]| network(LinkType::Ethernet, &framed(&[], 0x8864, &[&head[..], &v4].concat()));
    assert_eq!(
        [pppoe([0x11, 0, 0, 1, 0, 4, 0xc0, 0x21]), pppoe([0x11, 0, 0, 1, 0, 4, 0x80, 0x21])],
        [Network::None; 2]
    );
    for head in [[0x11, 0, 0, 1, 0, 4, 0, 0xfd], [0x11, 7, 0, 1, 0, 4, 0, 0x21], [0x21, 0, 0, 1, 0, 4, 0, 0x21]] {
        assert_eq!(pppoe(head), Network::Unreadable, "{head:x?}");
    }
    let sll = |number: u8| [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0][..], &[number], &v4].concat();
    assert_eq!([1, 12, 13].map(|number| network(LinkType::LinuxSll, &sll(number))), [Network::None; 3]);
    assert_eq!(network(LinkType::LinuxSll, &sll(0x11)), Network::Unreadable);
    assert_eq!(network(LinkType::Null, &[&[0, 0, 0, 99][..], &v4].concat()), Network::Unreadable);
    assert_eq!(network(LinkType::Other(147), &v4), Network::Unreadable);
}

/// A datagram ends where UDP says, in the short way and in the long.
#[test]
fn surplus_is_not_payload() {
    let mut segment = udp(53, b"query");
    segment.extend(b"surplus of more than twenty bytes");
    let plain = ipv4(17, 0, &segment);
    let v6 = ipv6(17, &segment);
    for (link, frame) in [
        (LinkType::Ethernet, framed(&[], 0x0800, &plain)),
        (LinkType::Ethernet, framed(&[0x81, 0, 0, 1], 0x0800, &plain)),
        (LinkType::Ethernet, framed(&[], 0x86dd, &v6)),
        (LinkType::Ipv4, plain),
        (LinkType::Ipv6, v6),
    ] {
        let headers = of(link, &frame).unwrap();
        assert_eq!((headers.payload_len, headers.payload(&frame)), (5, &b"query"[..]), "{link:?}");
    }
    // A first fragment has less than its datagram.
    let mut segment = udp(53, b"query");
    segment[5] = 200;
    let first = ipv4(17, 0x2000, &segment);
    assert_eq!(of(LinkType::Ipv4, &first).unwrap().payload(&first), b"query");
    // What a tunnel carries ends there, too.
    let inner = framed(&[], 0x0800, &ipv4(17, 0, &udp(7, b"inside")));
    let mut segment = udp(4789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &inner].concat());
    segment.extend([0; 30]);
    let outer = ipv4(17, 0, &segment);
    let inside = of(LinkType::Ipv4, &outer).unwrap().inner(&outer).unwrap().unwrap();
    assert_eq!(inside.wire_len as usize, inner.len());
    let mut segment = udp(6081, &[8, 0, 0x65, 0x58, 0, 0, 1, 0]);
    segment.extend([0; 60]);
    let outer = ipv4(17, 0, &segment);
    assert!(of(LinkType::Ipv4, &outer).unwrap().tunnel.is_none(), "its options lie in the surplus");
}

#[test]
fn every_link_type_leads_to_the_same_packet() {
    let (v4, v6) = (ipv4(17, 0, &udp(53, b"query")), ipv6(17, &udp(53, b"query")));
    let of_v4 = ports_v4(of(LinkType::Ipv4, &v4).unwrap());
    assert_eq!(of_v4, (IpAddr::from(SRC), IpAddr::from(DST), (12345, 53)));
    let of_v6 = ports_v4(of(LinkType::Ipv6, &v6).unwrap());
    assert_eq!(of_v6, (IpAddr::from(SRC6), IpAddr::from(DST6), (12345, 53)));

    let sll = |ethertype: u16| [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &ethertype.to_be_bytes()].concat();
    let sll2 = |ethertype: u16| [&ethertype.to_be_bytes()[..], &[0; 18]].concat();
    let pppoe = |protocol: u8| vec![0x11, 0, 0, 1, 0, 0, 0, protocol];
    let compressed = |protocol: u8| vec![0x11, 0, 0, 1, 0, 0, protocol];
    let labels = vec![0, 1, 0, 64, 0, 2, 1, 64];
    let mut fronts = vec![
        (LinkType::RawIp, vec![], vec![]),
        (LinkType::LinuxSll, sll(0x0800), sll(0x86dd)),
        (LinkType::LinuxSll2, sll2(0x0800), sll2(0x86dd)),
        (LinkType::Ethernet, framed(&[], 0x8864, &pppoe(0x21)), framed(&[], 0x8864, &pppoe(0x57))),
        (LinkType::Ethernet, framed(&[], 0x8864, &compressed(0x21)), framed(&[], 0x8864, &compressed(0x57))),
        (LinkType::Ethernet, framed(&[], 0x8847, &labels), framed(&[], 0x8847, &labels)),
    ];
    for link in [LinkType::Null, LinkType::Loop] {
        for family in [10, 24, 28, 30_u32] {
            fronts.push((link, 2_u32.to_be_bytes().into(), family.to_be_bytes().into()));
            fronts.push((link, 2_u32.to_le_bytes().into(), family.to_le_bytes().into()));
        }
    }
    for (link, front_v4, front_v6) in fronts {
        for (front, packet, expected) in [(front_v4, &v4, of_v4), (front_v6, &v6, of_v6)] {
            let headers = of(link, &[&front, &packet[..]].concat()).unwrap();
            assert_eq!(ports_v4(headers), expected, "{link}");
            assert_eq!(usize::from(headers.network_offset), front.len(), "{link}");
            assert_eq!(headers.payload_len, 5, "{link}");
        }
    }
    assert_eq!(of(LinkType::Ipv4, &v6), Err(Malformed::IpVersion));
    assert_eq!(of(LinkType::RawIp, &[0x55; 60]), Err(Malformed::IpVersion));
    assert_eq!(of(LinkType::RawIp, &[]), Err(Malformed::IpTruncated));
    assert_eq!(of(LinkType::Other(105), &v4).unwrap().network, Network::Unreadable);
}

#[test]
fn what_a_label_stack_guesses_is_never_malformed() {
    // A pseudowire: an Ethernet address that happens to begin with 4.
    let headers = ethernet(&framed(&[], 0x8847, &[0, 1, 1, 64, 0x40, 0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3])).unwrap();
    assert_eq!((headers.network, headers.network_offset), (Network::Unreadable, 14));
}

#[test]
fn lengths_decide_where_a_packet_ends() {
    let packet = ipv4(17, 0, &udp(53, b"abc"));
    let mut padded = framed(&[], 0x0800, &packet);
    padded.resize(60, 0xff);
    assert_eq!(ethernet(&padded).unwrap().payload_len, 3);

    // Segmentation offload: the card was to fill the length in.
    let mut offloaded = ipv4(6, 0, &[&tcp(0x18, &[])[..], &[7; 100]].concat());
    offloaded[2..4].fill(0);
    let headers = of(LinkType::Ipv4, &offloaded).unwrap();
    assert_eq!(headers.payload_len, 100);
    assert!(matches!(headers.network, Network::V4(ip) if ip.total_len == 140));
    let mut offloaded = ipv6(6, &[&tcp(0x18, &[])[..], &[7; 100]].concat());
    offloaded[4..6].fill(0);
    assert_eq!(of(LinkType::Ipv6, &offloaded).unwrap().payload_len, 100);
    let nothing = ipv6(59, &[]);
    assert_eq!(of(LinkType::Ipv6, &[&nothing[..], &[0; 6]].concat()).unwrap().payload_len, 0);

    // Cut by the snap length: the wire length is what counts.
    assert_eq!(parse(LinkType::Ipv4, &packet[..28], 31, 0).unwrap().payload_len, 3);
    assert_eq!(parse(LinkType::Ipv4, &packet[..27], 31, 0), Err(Malformed::TransportTruncated));
    assert_eq!(parse(LinkType::Ipv4, &packet[..19], 31, 0), Err(Malformed::IpTruncated));
    assert_eq!(of(LinkType::Ipv4, &packet[..30]), Err(Malformed::IpLength));
}

#[test]
fn contradictions_have_names() {
    let whole = ipv4(6, 0, &tcp(2, &[]));
    let with = |at: usize, byte: u8| {
        let mut packet = whole.clone();
        packet[at] = byte;
        of(LinkType::Ipv4, &packet)
    };
    assert_eq!(with(0, 0x44), Err(Malformed::IpHeaderLength));
    assert_eq!(with(3, 19), Err(Malformed::IpHeaderLength));
    assert_eq!(with(3, 39), Err(Malformed::TransportTruncated));
    assert_eq!(with(3, 41), Err(Malformed::IpLength));
    assert_eq!(with(32, 0x40), Err(Malformed::TransportLength));
    assert_eq!(with(32, 0x60), Err(Malformed::TransportLength));
    let mut long = udp(53, &[]);
    long[5] = 9;
    assert_eq!(of(LinkType::Ipv4, &ipv4(17, 0, &long)), Err(Malformed::TransportLength));
    // In a first fragment the length is the whole datagram's.
    assert!(of(LinkType::Ipv4, &ipv4(17, 0x2000, &long)).is_ok());
    // The header itself must be whole, in a first fragment as well.
    let mut packet = ipv4(6, 0x2000, &tcp(2, &[2, 4, 5, 0xb4]));
    packet.truncate(43);
    packet[3] = 43;
    assert_eq!(of(LinkType::Ipv4, &packet), Err(Malformed::TransportTruncated));
    let chain = [60, 0, 0, 0, 0, 0, 0, 0].repeat(16);
    assert_eq!(of(LinkType::Ipv6, &ipv6(60, &chain)), Err(Malformed::IpExtensions));
}

/// Reading stops at an option without an end, and the segment counts.
#[test]
fn options_that_end_nowhere() {
    let mss = [2, 4, 5, 0xb4];
    for odd in [[254, 0, 0, 0], [2, 0, 0, 0], [2, 1, 0, 0], [3, 5, 1, 1], [1, 1, 1, 5], [5, 255, 0, 0]] {
        let (front, back) = ([&mss[..], &odd].concat(), [&odd[..], &mss].concat());
        for (options, expected) in [(front, Some(1460)), (back, None)] {
            let packet = ipv4(6, 0, &tcp(2, &options));
            let frame = framed(&[], 0x0800, &packet);
            let (one, other) = (of(LinkType::Ipv4, &packet).unwrap(), ethernet(&frame).unwrap());
            assert_eq!(one.transport, other.transport);
            let Transport::Tcp(tcp) = one.transport else { panic!("{one:?}") };
            assert_eq!(tcp.options, TcpOptions { mss: expected, ..TcpOptions::default() }, "{options:?}");
        }
    }
}

/// Of options that the capture cut those in front of the cut count, and the payload is where it was.
#[test]
fn options_that_were_cut() {
    let options = [2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 1, 1];
    let frame = framed(&[], 0x0800, &ipv4(6, 0, &[&tcp(2, &options)[..], b"data"].concat()));
    let whole = ethernet(&frame).unwrap();
    for len in 54..frame.len() {
        let cut = parse(LinkType::Ethernet, &frame[..len], frame.len() as u32, 0).unwrap();
        let Transport::Tcp(tcp) = cut.transport else { panic!("{cut:?}") };
        assert_eq!(tcp.options.mss, (len >= 58).then_some(1460), "{len}");
        assert_eq!(tcp.options.window_scale, (len >= 62).then_some(7), "{len}");
        assert_eq!((cut.payload_offset, cut.payload_len), (whole.payload_offset, 4));
        assert_eq!(cut.payload(&frame[..len]), &b"data"[..len.saturating_sub(66)]);
        let mut changed = frame[..len].to_vec();
        let rewrite = Rewrite { src: Some(Endpoint { address: [9, 9, 9, 9].into(), port: 9 }), ..Rewrite::NONE };
        rewrite.apply(&mut changed, &cut);
        let mut expected = frame.clone();
        rewrite.apply(&mut expected, &whole);
        assert_eq!(changed, expected[..len]);
    }
    let cut = parse(LinkType::Ethernet, &frame[..53], frame.len() as u32, 0);
    assert_eq!(cut, Err(Malformed::TransportTruncated));
}

#[test]
fn options_of_a_handshake() {
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 15];
    let of_flags = |flags| match of(LinkType::Ipv4, &ipv4(6, 0, &tcp(flags, &options))).unwrap().transport {
        Transport::Tcp(tcp) => tcp.options,
        other => panic!("{other:?}"),
    };
    let syn = of_flags(0x02);
    assert_eq!((syn.mss, syn.window_scale, syn.sack_permitted), (Some(1460), Some(14), true));
    assert!(syn.sack_first);
    assert_eq!(of_flags(0x10), TcpOptions::default());
    let other = [2, 4, 5, 0xb4, 1, 3, 3, 6, 4, 2, 0, 0];
    let Transport::Tcp(other) = of(LinkType::Ipv4, &ipv4(6, 0, &tcp(0x02, &other))).unwrap().transport else {
        unreachable!("it is TCP")
    };
    assert!(other.options.sack_permitted && !other.options.sack_first);
}

#[test]
fn selective_acknowledgements_wrap_around() {
    // The acknowledgement number is 1000; the second block ends beyond the wrap, so it is the highest.
    let mut options = vec![1, 1, 5, 26];
    for (left, right) in [(2000_u32, 3000_u32), (0x7000_0000, 0x7000_0100), (5, 900)] {
        options.extend([left.to_be_bytes(), right.to_be_bytes()].concat());
    }
    let edge = |options: &[u8]| match of(LinkType::Ipv4, &ipv4(6, 0, &tcp(0x10, options))).unwrap().transport {
        Transport::Tcp(tcp) => tcp.options.sack_edge,
        other => panic!("{other:?}"),
    };
    assert_eq!(edge(&options), Some(0x7000_0100));
    assert_eq!(edge(&[1, 1, 1, 1]), None);
}

#[test]
fn fragments_are_marked() {
    let fragment_of = |packet: &[u8]| {
        let headers = of(LinkType::RawIp, packet).unwrap();
        (headers.fragment, headers.transport != Transport::None, headers.protocol)
    };
    let segment = udp(53, &[0; 16]);
    assert_eq!(fragment_of(&ipv4(17, 0x4000, &segment)), (Fragment::Whole, true, 17));
    assert_eq!(fragment_of(&ipv4(17, 0x2000, &segment)), (Fragment::First, true, 17));
    assert_eq!(fragment_of(&ipv4(17, 0x2003, &segment)), (Fragment::Later, false, 17));
    assert_eq!(fragment_of(&ipv4(17, 0x0003, &segment)), (Fragment::Later, false, 17));
    let v6 = |field: [u8; 2]| ipv6(44, &[&[17, 0, field[0], field[1], 0, 0, 0, 1][..], &segment].concat());
    assert_eq!(fragment_of(&v6([0, 0])), (Fragment::Whole, true, 17));
    assert_eq!(fragment_of(&v6([0, 1])), (Fragment::First, true, 17));
    assert_eq!(fragment_of(&v6([0, 8])), (Fragment::Later, false, 17));
    assert_eq!(fragment_of(&v6([0, 9])), (Fragment::Later, false, 17));
}

#[test]
fn extension_headers_are_walked() {
    let mut chain = vec![43, 0, 1, 4, 0, 0, 0, 0];
    chain.extend([60, 2, 0, 1, 0, 0, 0, 0].iter().chain(&[0; 16]));
    chain.extend([51, 0, 1, 4, 0, 0, 0, 0]);
    chain.extend([6, 4, 0, 0, 0, 0, 0, 1].iter().chain(&[0; 16]));
    chain.extend(tcp(2, &[]));
    let headers = of(LinkType::Ipv6, &ipv6(0, &chain)).unwrap();
    assert_eq!((headers.protocol, headers.transport_offset, headers.payload_len), (6, 40 + 64, 0));
    assert!(
        matches!(headers.network, Network::V6(ip) if ip.header_len == 104 && usize::from(ip.payload_len) == chain.len())
    );
    let sealed = of(LinkType::Ipv6, &ipv6(60, &[50, 0, 1, 4, 0, 0, 0, 0, 1, 2, 3, 4])).unwrap();
    assert_eq!((sealed.protocol, sealed.transport, sealed.payload_len), (protocol::ESP, Transport::None, 4));
}

#[test]
fn errors_quote_the_packet_that_they_are_about() {
    let embedded = |packet: &[u8]| match of(LinkType::RawIp, packet).unwrap().transport {
        Transport::Icmp(icmp) => icmp.embedded,
        other => panic!("{other:?}"),
    };
    let error = |kind: u8, quoted: &[u8]| [&[kind, 1, 0, 0, 0, 0, 0, 0][..], quoted].concat();
    let quoted = ipv4(17, 0, &udp(53, b"long gone"));
    let (src, dst) = (Ipv4Addr::from(SRC), Ipv4Addr::from(DST));
    for kind in [3, 4, 5, 11, 12] {
        let found = embedded(&ipv4(1, 0, &error(kind, &quoted[..28]))).unwrap();
        assert_eq!(found.tuple, FiveTuple::v4(src, dst, 12345, 53, 17));
        assert_eq!((found.network_offset, found.transport_offset), (28, 48));
    }
    assert_eq!(embedded(&ipv4(1, 0, &error(3, &quoted[..27]))), None);
    assert_eq!(embedded(&ipv4(1, 0, &error(8, &quoted))), None);
    assert_eq!(embedded(&ipv4(1, 0, &error(3, &ipv4(17, 5, &udp(53, b"x"))))), None);
    let ping = embedded(&ipv4(1, 0, &error(3, &ipv4(1, 0, &[8, 0, 0, 0, 0xab, 0xcd, 0, 1])))).unwrap();
    assert_eq!(ping.tuple, FiveTuple::v4(src, dst, 0xabcd, 0xabcd, 1));

    let (src, dst) = (Ipv6Addr::from(SRC6), Ipv6Addr::from(DST6));
    // Errors that nobody has assigned quote a packet, too (RFC 4443, section 2.4, c).
    for kind in [0, 1, 2, 3, 4, 5, 99, 127] {
        let quoted = ipv6(60, &[&[6, 0, 1, 4, 0, 0, 0, 0][..], &tcp(2, &[])].concat());
        let found = embedded(&ipv6(58, &error(kind, &quoted))).unwrap();
        assert_eq!(found.tuple, FiveTuple::v6(src, dst, 12345, 80, 6));
        assert_eq!((found.network_offset, found.transport_offset), (48, 96));
    }
    let query = of(LinkType::Ipv6, &ipv6(58, &[129, 0, 0, 0, 0x12, 0x34, 0, 1])).unwrap();
    assert_eq!(query.ports(), (0x1234, 0x1234));
    for kind in [139, 140] {
        let node = of(LinkType::Ipv6, &ipv6(58, &[kind, 0, 0, 0, 0, 3, 0, 1])).unwrap();
        assert_eq!(node.ports(), (3, 3), "the question's kind");
    }
    for kind in [130, 135, 137, 138, 141, 200, 255] {
        let other = of(LinkType::Ipv6, &ipv6(58, &error(kind, &ipv6(17, &udp(53, b"x"))))).unwrap();
        assert!(
            matches!(other.transport, Transport::Icmp(crate::Icmp { identifier: None, embedded: None, .. })),
            "{kind}"
        );
    }
    // ICMP of the other family is some protocol that nobody reads.
    assert_eq!(of(LinkType::Ipv6, &ipv6(1, &[8; 8])).unwrap().transport, Transport::None);
}

#[test]
fn tunnels_show_their_inside() {
    let inner = ipv4(17, 0, &udp(53, b"inside"));
    let framed = framed(&[0x81, 0, 0, 9], 0x0800, &inner);
    let vxlan = [&[8, 0, 0, 0, 0x12, 0x34, 0x56, 0][..], &framed].concat();
    let geneve = [&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 0x80, 0][..], &framed].concat();
    let cases = [
        (TunnelKind::Ip, 0, ipv4(4, 0, &inner)),
        (TunnelKind::Ip, 0, ipv6(4, &inner)),
        (TunnelKind::Gre, 0, ipv4(47, 0, &[&[0, 0, 8, 0][..], &inner].concat())),
        (TunnelKind::Gre, 9, ipv6(47, &[&[0xb0, 0, 8, 0, 1, 2, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1][..], &inner].concat())),
        (TunnelKind::Gre, 0, ipv4(47, 0, &[&[0, 0, 0x65, 0x58][..], &framed].concat())),
        (TunnelKind::Vxlan, 0x12_3456, ipv4(17, 0, &udp(4789, &vxlan))),
        (TunnelKind::Geneve, 7, ipv6(17, &udp(6081, &geneve))),
    ];
    for (kind, id, packet) in cases {
        // Padding of the outer frame is none of the inner packet's.
        let packet = [&packet[..], &[0xee; 9]].concat();
        let headers = of(LinkType::RawIp, &packet).unwrap();
        let tunnel = headers.tunnel.unwrap();
        assert_eq!((tunnel.kind, tunnel.id), (kind, id));
        let inner = headers.inner(&packet).unwrap().unwrap();
        assert_eq!((inner.ports(), inner.payload_len, inner.link), ((12345, 53), 6, tunnel.inner_link));
        let payload = usize::from(tunnel.inner_offset + inner.payload_offset);
        assert_eq!(&packet[payload..payload + 6], b"inside");
    }
    let pptp = of(LinkType::Ipv4, &ipv4(47, 0, &[0x30, 1, 0x88, 0x0b, 0, 0, 0, 0])).unwrap();
    assert_eq!(pptp.tunnel, None);
}

/// Frames of every kind that is read, to be damaged.
fn specimens() -> Vec<(LinkType, Vec<u8>)> {
    let builder = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut frames = Vec::new();
    let mut keep = |link: LinkType, write: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        write(&mut frame);
        frames.push((link, frame));
    };
    let stamp = [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(1, 2)];
    for payload in [0, 40] {
        let payload = vec![7; payload];
        let plain = || builder().ipv4(SRC, DST, 64);
        keep(LinkType::Ethernet, &|out| plain().tcp(1, 2, 3, 4).ack(5).write(out, &payload).unwrap());
        keep(LinkType::Ethernet, &|out| plain().udp(1, 2).write(out, &payload).unwrap());
        keep(LinkType::Ethernet, &|out| {
            plain().tcp(1, 2, 3, 4).options(&stamp).unwrap().write(out, &payload).unwrap();
        });
    }
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let sack = [1, 1, 5, 18, 0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0];
    let inner = framed(&[], 0x0800, &ipv4(6, 0, &tcp(2, &options)));
    let error = |quoted: &[u8]| [&[3, 1, 0, 0, 0, 0, 0, 0][..], quoted].concat();
    let v4 = [
        ipv4(6, 0, &tcp(0x10, &sack)),
        ipv4(17, 0x2000, &udp(53, &[0; 16])),
        ipv4(17, 7, &udp(53, &[0; 16])),
        ipv4(1, 0, &[8, 0, 1, 2, 3, 4, 5, 6]),
        ipv4(1, 0, &error(&ipv4(6, 0, &tcp(2, &options)))),
        ipv4(1, 0, &error(&ipv4(17, 0, &udp(53, &[0; 16])))),
        ipv4(132, 0, &[0; 40]),
        ipv4(4, 0, &ipv4(17, 0, &udp(53, b"x"))),
        ipv4(41, 0, &ipv6(17, &udp(53, b"x"))),
        ipv4(47, 0, &[&[0xb0, 0, 0x65, 0x58, 1, 2, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1][..], &inner].concat()),
        ipv4(17, 0, &udp(4789, &[&[8, 0, 0, 0, 1, 2, 3, 0][..], &inner].concat())),
        ipv4(17, 0, &udp(6081, &[&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 0x80, 0][..], &inner].concat())),
    ];
    let v6 = [
        ipv6(6, &tcp(2, &options)),
        ipv6(0, &[&[43, 0, 1, 4, 0, 0, 0, 0, 6, 2, 0, 1, 0, 0, 0, 0][..], &[0; 16], &tcp(0x10, &sack)].concat()),
        ipv6(44, &[&[17, 0, 0, 1, 0, 0, 0, 1][..], &udp(53, &[0; 16])].concat()),
        ipv6(51, &[&[6, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1][..], &tcp(2, &[])].concat()),
        ipv6(58, &error(&ipv6(60, &[&[6, 0, 1, 4, 0, 0, 0, 0][..], &tcp(2, &options)].concat()))),
        ipv6(58, &[128, 0, 1, 2, 3, 4, 5, 6]),
    ];
    for (ethertype, front, packets) in [(0x0800, 2_u32, &v4[..]), (0x86dd, 30, &v6[..])] {
        for packet in packets {
            frames.push((LinkType::Ethernet, framed(&[], ethertype, packet)));
            frames.push((LinkType::Ethernet, framed(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2], ethertype, packet)));
            frames.push((LinkType::Ethernet, framed(&[], 0x8847, &[&[0, 1, 1, 64][..], packet].concat())));
            let pppoe = [0x11, 0, 0, 1, 0, 0, if ethertype == 0x0800 { 0x21 } else { 0x57 }];
            frames.push((LinkType::Ethernet, framed(&[], 0x8864, &[&pppoe[..], packet].concat())));
            frames.push((LinkType::Null, [&front.to_le_bytes()[..], packet].concat()));
            frames.push((LinkType::RawIp, packet.clone()));
        }
    }
    // IPv4 with options, by a builder of someone else's.
    let mut header = Ipv4Header::new(8, 64, etherparse::IpNumber::UDP, SRC, DST).unwrap();
    header.options = [1, 1, 1, 0].into();
    header.fragment_offset = IpFragOffset::ZERO;
    header.set_payload_len(8).unwrap();
    let mut packet = header.to_bytes().to_vec();
    packet.extend(udp(53, &[]));
    assert_eq!(Ipv4Extensions::default().header_len(), 0);
    frames.push((LinkType::Ipv4, packet));
    frames
}

/// Xorshift64* (Vigna): every failure is found again by its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }
}

fn damage(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.below(4) {
        // Most fields that matter stand in front.
        let reach = if random.below(4) == 0 { frame.len() } else { frame.len().min(64) };
        let at = random.below(reach.max(1)).min(frame.len().saturating_sub(1));
        let Some(byte) = frame.get_mut(at) else { continue };
        *byte = match random.below(4) {
            0 => random.next() as u8,
            1 => *byte ^ 1 << random.below(8),
            2 => [0, 1, 4, 6, 17, 44, 0x45, 0x60, 0x7f, 0x80, 0xff][random.below(11)],
            _ => byte.wrapping_add(1),
        };
    }
    match random.below(8) {
        0 => frame.truncate(random.below(frame.len() + 1)),
        1 => frame.extend_from_within(..random.below(frame.len() + 1)),
        _ => {}
    }
}

/// Everything that a user of `Headers` relies on.
fn check(headers: &Headers, bytes: &[u8], wire_len: u32) {
    let offsets = [headers.network_offset, headers.transport_offset, headers.payload_offset].map(usize::from);
    // A capture may cut the options of a TCP header.
    let is_segment = matches!(headers.transport, Transport::Tcp(_));
    let header_end = if is_segment { offsets[2].min(offsets[1] + 20) } else { offsets[2] };
    assert!(offsets.is_sorted() && header_end <= bytes.len());
    assert_eq!(headers.wire_len, wire_len.max(bytes.len() as u32));
    assert!(u32::from(headers.payload_offset) + headers.payload_len <= headers.wire_len);
    match headers.network {
        Network::V4(ip) => assert_eq!(offsets[1] - offsets[0], usize::from(ip.header_len)),
        Network::V6(ip) => assert_eq!(offsets[1] - offsets[0], usize::from(ip.header_len)),
        Network::None | Network::Unreadable | Network::Arp => assert_eq!(headers.transport, Transport::None),
    }
    assert!(headers.fragment != Fragment::Later || headers.transport == Transport::None);
    if let Transport::Icmp(icmp) = headers.transport
        && let Some(embedded) = icmp.embedded
    {
        assert!(usize::from(embedded.transport_offset) + 8 <= bytes.len());
        assert!(headers.payload_offset <= embedded.network_offset);
        assert!(embedded.network_offset + 20 <= embedded.transport_offset);
    }
    if let Some(tunnel) = headers.tunnel {
        let inner_offset = usize::from(tunnel.inner_offset);
        assert!((offsets[1]..=bytes.len()).contains(&inner_offset));
        if let Ok(inner) = headers.inner(bytes).expect("it is a tunnel") {
            let end = bytes.len().min(offsets[2] + headers.payload_len as usize);
            check(&inner, &bytes[inner_offset..end], inner.wire_len);
        }
    }
}

fn arbitrary_rewrite(random: &mut Random) -> Rewrite {
    let mut endpoint = || {
        let address = [IpAddr::from(SRC), IpAddr::from(SRC6)][random.below(2)];
        (random.below(3) > 0).then(|| Endpoint::new(address, random.next() as u16))
    };
    let (src, dst) = (endpoint(), endpoint());
    let macs = [None, Some(Macs::Swap), Some(Macs::Set(Mac([1; 6]), Mac([2; 6])))][random.below(3)];
    let rewrite = Rewrite {
        src,
        dst,
        embedded: random.below(2) == 0,
        macs,
        decrement_ttl: random.below(2) == 0,
        ..Rewrite::NONE
    };
    if random.below(4) > 0 {
        return rewrite;
    }
    let mss_max = NonZeroU16::new(random.next() as u16);
    let mut byte = || (random.below(2) == 0).then(|| random.next() as u8);
    Rewrite { ttl: byte(), tos: byte(), mss_max, ..rewrite }
}

/// 300,000 damaged frames, ten million under MILLRACE_DEEP=1: nothing panics, offsets stay within the frame, what
/// is ordinary or takes the other short way reads as the walk reads it, a rewrite
/// leaves the frame one that parses to the same shape, and does the same whether the frame was parsed before or not.
#[test]
fn any_bytes_at_all() {
    let rounds = if std::env::var_os("MILLRACE_DEEP").is_some() { 10_000_000 } else { 300_000 };
    let specimens = specimens();
    for (link, frame) in &specimens {
        let headers = of(*link, frame).unwrap();
        check(&headers, frame, 0);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut frame, mut answer) = (Vec::new(), Vec::new());
    let (mut sound, mut taken, mut short) = (0_u32, 0_u32, 0_u32);
    for _ in 0..rounds {
        let (link, specimen) = &specimens[random.below(specimens.len())];
        frame.clear();
        frame.extend_from_slice(specimen);
        let seed = random.0;
        damage(&mut frame, &mut random);
        let wire_len = if random.below(2) == 0 { 0 } else { (frame.len() + random.below(2000)) as u32 };

        let walked = parse_odd(*link, &frame, wire_len, 3);
        assert_eq!(parse(*link, &frame, wire_len, 3), walked, "seed {seed:#x}");
        let head = frame.first_chunk().filter(|_| *link == LinkType::Ethernet);
        let kind = head.map(|head| ordinary(head, &frame, wire_len.max(frame.len() as u32)));
        taken += u32::from(matches!(kind, Some(Ordinary::Tcp { .. } | Ordinary::Udp)));
        short += u32::from(parse_segment(*link, &frame, wire_len, 3, |headers| *headers).is_some());
        let Ok(headers) = walked else {
            let whole = parse_what_is_whole(*link, &frame, wire_len, 3);
            assert!(whole.is_some() || walked == Err(Malformed::LinkTruncated) || *link == LinkType::RawIp);
            if let Some(headers) = whole {
                check(&headers, &frame, wire_len);
                let is_transport = matches!(walked, Err(Malformed::TransportTruncated | Malformed::TransportLength));
                assert_eq!(headers.addresses().is_some(), is_transport, "seed {seed:#x}");
            }
            continue;
        };
        sound += 1;
        check(&headers, &frame, wire_len);
        let rewrite = arbitrary_rewrite(&mut random);
        let mut at_once = frame.clone();
        rewrite.apply_to_frame(*link, &mut at_once, wire_len, 3);
        rewrite.apply(&mut frame, &headers);
        assert_eq!(at_once, frame, "seed {seed:#x}");
        let again = parse_odd(*link, &frame, wire_len, 3).expect("rewriting breaks nothing");
        assert_eq!(again.payload_offset, headers.payload_offset, "seed {seed:#x}");
        answer.resize(usize::from(headers.network_offset) + ICMP_ERROR_MAX, 0);
        if let Some(len) =
            icmp_error(&frame, &headers, IcmpError { kind: 3, code: 1, from: None, ttl: None }, &mut answer)
        {
            let error = of(*link, &answer[..len]).expect("an error is well formed");
            assert!(matches!(error.transport, Transport::Icmp(_)), "seed {seed:#x}");
            assert_eq!(error.network_offset, headers.network_offset, "seed {seed:#x}");
            assert!(error.checksums_hold(&answer[..len]), "seed {seed:#x}");
        }
        if let Some(len) = tcp_reset(&mut frame, &headers) {
            let reset = of(*link, &frame[..len]).expect("a reset is well formed");
            assert_eq!((reset.payload_len, reset.network_offset), (0, headers.network_offset), "seed {seed:#x}");
        }
    }
    // The damage leaves most frames readable, or the test would test little.
    assert!(sound > rounds / 3 && taken.min(short) > rounds / 100, "{sound} {taken} {short} of {rounds}");
}
