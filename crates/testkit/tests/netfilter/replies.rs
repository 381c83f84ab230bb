//! Compares ICMP errors with those of the kernel, byte for byte but for the identification, which the kernel draws.

use std::net::IpAddr;

use packet::{ICMP_ERROR_MAX, IcmpError, LinkType, icmp_error, parse};

use crate::craft::{self, Segment};
use crate::player::Router;
use crate::script::Side;

const ROUTER: [&str; 2] = ["192.168.10.1", "2001:db8:1::1"];

/// The packet to send, and the type and code of the error about it.
type Case = (&'static str, Vec<u8>, [u8; 2]);

#[test]
fn icmp_errors_are_as_the_kernel_sends_them() {
    let Some(mut kernel) = crate::kernel("replies", include_str!("replies.nft")) else { return };
    kernel.answer_all().expect("root may change its own namespace");
    for (name, packet, kind) in cases() {
        let ours = error(&packet, kind).map(|error| vec![(Side::Inside, error)]).unwrap_or_default();
        let mut theirs = kernel.inject(Side::Inside, &packet, 0);
        // The router also reports its own groups (MLD).
        theirs.retain(|(_, error)| craft::view(error).dst.0 == craft::view(&packet).src.0);
        for (_, error) in &mut theirs {
            assert_eq!(craft::complaint(error), None, "{name}");
            if error[0] >> 4 == 4 {
                error[4..6].fill(0);
                craft::finish_ip(error);
            }
        }
        assert_eq!(ours, theirs, "{name}");
    }
}

/// Our error about the packet, from the router's address.
fn error(packet: &[u8], [kind, code]: [u8; 2]) -> Option<Vec<u8>> {
    let headers = parse(LinkType::RawIp, packet, 0, 0).expect("a well-formed packet");
    let router = ROUTER[usize::from(packet[0] >> 4 == 6)].parse().expect("an address");
    let mut error = vec![0; ICMP_ERROR_MAX];
    let len = icmp_error(packet, &headers, IcmpError { kind, code, from: Some(router), ttl: None }, &mut error)?;
    error.truncate(len);
    Some(error)
}

fn cases() -> Vec<Case> {
    let address = |text: &str| -> IpAddr { text.parse().expect("an address") };
    let (a, x) = (address("192.168.10.11"), address("203.0.113.10"));
    let (a6, x6) = (address("2001:db8:1::11"), address("2001:db8:2::10"));
    let udp = |port, len| craft::udp((a, 1000), (x, port), len);
    let udp6 = |port, len| craft::udp((a6, 1000), (x6, port), len);
    let syn = Segment { flags: 2, seq: 7, window: 100, window_scale: Some(7), ..Segment::default() };
    let changed = |mut packet: Vec<u8>, at: usize, byte: u8| {
        packet[at] = byte;
        if packet[0] >> 4 == 4 {
            craft::finish_ip(&mut packet);
        }
        packet
    };
    let mut cases: Vec<Case> = vec![
        ("network unreachable", udp(1, 10), [3, 0]),
        ("host unreachable", udp(2, 10), [3, 1]),
        ("port unreachable", udp(3, 10), [3, 3]),
        ("prohibited", udp(4, 10), [3, 13]),
        ("no payload", udp(3, 0), [3, 3]),
        ("just whole", udp(3, 520), [3, 3]),
        ("just cut", udp(3, 521), [3, 3]),
        ("long", udp(3, 1400), [3, 3]),
        ("IP options", craft::with_options(&udp(3, 10)), [3, 3]),
        ("TCP", craft::tcp((a, 1000), (x, 80), &syn, 3), [3, 3]),
        ("ping", craft::query(a, x, 77, 8, 1), [3, 3]),
        ("answer to a ping", craft::query(a, x, 77, 0, 1), [3, 3]),
        ("timestamp", craft::query(a, x, 77, 13, 1), [3, 3]),
        ("unknown ICMP", craft::query(a, x, 77, 42, 1), [3, 3]),
        ("about an error", craft::error(a, x, (3, 3), 0, &udp(3, 10), 8), [3, 3]),
        // netfilter rejects no packet whose checksum is wrong, which it is in a fragment. The router itself answers them.
        ("first fragment", changed(craft::fragment(&udp(3, 100), 0, 40), 8, 1), [11, 0]),
        ("later fragment", changed(craft::fragment(&udp(3, 100), 40, 80), 8, 1), [11, 0]),
        ("unknown protocol", changed(craft::ip(a, x, 99, &[1, 2, 3]), 8, 1), [11, 0]),
        ("time exceeded", changed(udp(3, 10), 8, 1), [11, 0]),
        ("IPv6 no route", udp6(11, 10), [1, 0]),
        ("IPv6 prohibited", udp6(12, 10), [1, 1]),
        ("IPv6 address unreachable", udp6(13, 10), [1, 3]),
        ("IPv6 port unreachable", udp6(3, 10), [1, 4]),
        ("IPv6 just whole", udp6(3, 1184), [1, 4]),
        ("IPv6 just cut", udp6(3, 1185), [1, 4]),
        ("IPv6 TCP", craft::tcp((a6, 1000), (x6, 80), &syn, 3), [1, 4]),
        ("IPv6 ping", craft::query(a6, x6, 77, 128, 1), [1, 4]),
        ("IPv6 answer to a ping", craft::query(a6, x6, 77, 129, 1), [1, 4]),
        ("IPv6 about an error", craft::error(a6, x6, (1, 4), 0, &udp6(3, 10), 8), [1, 4]),
        ("IPv6 time exceeded", changed(udp6(3, 10), 7, 1), [3, 0]),
        ("IPv6 traffic class", changed(udp6(3, 10), 1, 0xf0), [1, 4]),
        ("IPv6 group", craft::udp((a6, 1000), (address("ff0e::9"), 3), 10), [1, 4]),
    ];
    for tos in [0x04, 0x10, 0x1f, 0x20, 0xb8, 0xff] {
        cases.push(("type of service", changed(udp(3, 10), 1, tos), [3, 3]));
    }
    cases
}
