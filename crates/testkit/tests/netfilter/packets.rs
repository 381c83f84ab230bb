//! Compares with the kernel what its connection tracker thinks of checksums, and rewrites of fields, byte for byte.

use std::net::IpAddr;
use std::num::NonZeroU16;

use packet::{LinkType, Rewrite, parse};

use crate::craft::{self, Segment};
use crate::kernel::Kernel;
use crate::player::Router;
use crate::script::Side;

const SCTP: u8 = 132;

#[test]
fn checksums_hold_where_the_kernel_tracks() {
    let Some(mut kernel) = crate::kernel("sums", include_str!("packets.nft")) else { return };
    for (name, packet) in packets() {
        let headers = parse(LinkType::RawIp, &packet, 0, 0).expect("a well-formed packet");
        let passes = !inject(&mut kernel, &packet).is_empty();
        assert_eq!(headers.checksums_hold(&packet), passes, "{name}");
    }
}

#[test]
fn fields_are_rewritten_as_the_kernel_does() {
    let Some(mut kernel) = crate::kernel("fields", include_str!("packets.nft")) else { return };
    for (src, dst) in [ends(4), ends(6)] {
        let hop = Rewrite { decrement_ttl: true, ..Rewrite::NONE };
        let syn = |scale| Segment { flags: 2, seq: 7, window: 100, window_scale: scale, ..Segment::default() };
        // The scripts' SYNs offer 1460 bytes.
        let offers = |mss: u16| {
            let mut packet = craft::tcp((src, 1), (dst, 80), &syn(Some(7)), 0);
            let at = craft::view(&packet).transport + 22;
            packet[at..at + 2].copy_from_slice(&mss.to_be_bytes());
            craft::finish(&mut packet);
            packet
        };
        let clamped = Rewrite { mss_max: NonZeroU16::new(1000), ..hop };
        let ecn = |packet: Vec<u8>, bits: u8| {
            let mut packet = packet;
            packet[1] |= if packet[0] >> 4 == 4 { bits } else { bits << 4 };
            craft::finish(&mut packet);
            packet
        };
        for (name, packet, rewrite) in [
            ("a large MSS", offers(1460), clamped),
            ("a small MSS", offers(900), clamped),
            ("the same MSS", offers(1000), clamped),
            ("a class", craft::udp((src, 1), (dst, 5), 10), Rewrite { tos: Some(0xb8), ..hop }),
            ("a class with ECN", ecn(craft::udp((src, 2), (dst, 5), 9), 2), Rewrite { tos: Some(0xba), ..hop }),
            ("a time to live", craft::udp((src, 1), (dst, 6), 10), Rewrite { ttl: Some(9), ..hop }),
        ] {
            let headers = parse(LinkType::RawIp, &packet, 0, 0).expect("a well-formed packet");
            let mut ours = packet.clone();
            rewrite.apply(&mut ours, &headers);
            assert_eq!(inject(&mut kernel, &packet), [ours], "{name} from {src}");
        }
    }
}

/// Sends a packet from inside. Returns what comes out outside.
fn inject(kernel: &mut Kernel, packet: &[u8]) -> Vec<Vec<u8>> {
    let out = kernel.inject(Side::Inside, packet, 0);
    let dst = craft::view(packet).dst.0;
    out.into_iter().filter(|(_, out)| craft::view(out).dst.0 == dst).map(|(_, packet)| packet).collect()
}

/// A host inside and one outside.
fn ends(version: u8) -> (IpAddr, IpAddr) {
    let (src, dst) =
        if version == 4 { ("192.168.10.11", "203.0.113.10") } else { ("2001:db8:1::11", "2001:db8:2::10") };
    (src.parse().expect("an address"), dst.parse().expect("an address"))
}

fn packets() -> Vec<(String, Vec<u8>)> {
    let mut packets = Vec::new();
    for version in [4, 6] {
        let (src, dst) = ends(version);
        let syn = Segment { flags: 2, seq: 7, window: 100, ..Segment::default() };
        let kinds = [
            ("TCP", craft::tcp((src, 1000), (dst, 80), &syn, 5)),
            ("UDP", craft::udp((src, 1000), (dst, 53), 5)),
            ("ping", craft::query(src, dst, 77, if version == 4 { 8 } else { 128 }, 1)),
            ("SCTP", sctp(src, dst)),
        ];
        for (name, packet) in kinds {
            let spoilt = |at: usize| {
                let mut packet = packet.clone();
                packet[at] ^= 0x10;
                packet
            };
            let name = |what| format!("IPv{version} {name}{what}");
            let sum = craft::view(&packet).transport + if packet.ends_with(&[0xa5; 4]) { 8 } else { 2 };
            packets.push((name(" with a spoilt end"), spoilt(packet.len() - 1)));
            packets.push((name(" with a spoilt word"), spoilt(sum)));
            packets.push((name(""), packet));
        }
        let mut unsummed = craft::udp((src, 1001), (dst, 53), 5);
        craft::unsummed(&mut unsummed);
        packets.push((format!("IPv{version} UDP without"), unsummed));
        // Two bytes behind UDP's end: the option checksum that makes up for their length, or something else (RFC 9868).
        for (what, surplus) in [("options", [0xff, 0xfd]), ("something", [0xff, 0xfe])] {
            let mut packet = craft::udp((src, 1002), (dst, 53), 4);
            packet.extend(surplus);
            craft::relength(&mut packet);
            packets.push((format!("IPv{version} UDP and {what} behind it"), packet));
        }
    }
    // A routing header with a stop left. The checksum covers the last stop, or wrongly the next.
    let (src, next) = ends(6);
    let last: IpAddr = "2001:db8:2::20".parse().expect("an address");
    for (what, covered) in [("last", last), ("next", next)] {
        let plain = craft::udp((src, 1003), (covered, 53), 4);
        let header = [&[craft::UDP, 2, 0, 1, 0, 0, 0, 0][..], &plain[24..40]].concat();
        let mut packet = [&plain[..40], &header, &plain[40..]].concat();
        packet[4..6].copy_from_slice(&(24 + 12_u16).to_be_bytes());
        packet[6] = 43;
        if let IpAddr::V6(next) = next {
            packet[24..40].copy_from_slice(&next.octets());
        }
        packets.push((format!("a checksum over the {what} stop"), packet));
    }
    packets
}

/// An SCTP packet that opens an association.
fn sctp(src: IpAddr, dst: IpAddr) -> Vec<u8> {
    let mut message = vec![0x03, 0xe8, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend([1, 0, 0, 20, 0, 0, 0, 9, 0, 0, 0xff, 0xff, 0, 1, 0, 1, 0xa5, 0xa5, 0xa5, 0xa5]);
    let crc = !message.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    });
    message[8..12].copy_from_slice(&crc.to_le_bytes());
    craft::ip(src, dst, SCTP, &message)
}
