//! `Headers::checksums_hold`, held to checksums computed anew.

mod common;

use std::net::IpAddr;

use common::built::{Kind, hosts, kinds, packet, read, v4_hosts};
use common::{checksums, has_surplus, internet_checksum, is_deep};
use millrace_packet::{LinkType, parse};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_deep() { 100_000 } else { 2_000 }))]

    #[test]
    fn right_packets_hold_and_flipped_bits_show(
        (hosts, _) in hosts(),
        ports in any::<(u16, u16)>(),
        kind in kinds(),
        payload in prop::collection::vec(any::<u8>(), 1..80),
        padding in 0_usize..4,
        flipped in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let mut bytes = packet(hosts, ports, kind, &payload);
        let len = bytes.len();
        bytes.resize(len + padding, 0xa5);
        let headers = read(&bytes);
        prop_assert!(headers.checksums_hold(&bytes));

        // Of a packet that is cut the IPv4 header alone can be verified.
        let mut cut = bytes[..len - 1].to_vec();
        let cut_headers = parse(LinkType::RawIp, &cut, len as u32, 0).expect("headers are whole");
        if let Some(last) = cut.last_mut() {
            *last ^= 1;
        }
        prop_assert!(payload.len() == 1 || cut_headers.checksums_hold(&cut));

        let flipped = flipped.index(len);
        bytes[flipped] ^= 1 << bit;
        if flipped >= usize::from(headers.payload_offset) {
            prop_assert!(!headers.checksums_hold(&bytes));
        }
        // A flipped bit may make it another packet: then the definition says whether it is right.
        if let Ok(headers) = parse(LinkType::RawIp, &bytes, 0, 0) {
            let expected = checksums(&bytes, &headers);
            if expected.ip == Some(false) {
                prop_assert!(!headers.checksums_hold(&bytes));
            } else if let Some(is_right) = expected.transport.filter(|_| !has_surplus(&headers)) {
                prop_assert_eq!(headers.checksums_hold(&bytes), is_right);
            }
        }
    }

    #[test]
    fn fragments_are_verified_up_to_their_header(
        hosts in v4_hosts(),
        offset in 0_u16..100,
        payload in prop::collection::vec(any::<u8>(), 16..80),
    ) {
        let mut bytes = packet(hosts, (1, 2), Kind::Udp, &payload);
        bytes[6..8].copy_from_slice(&(0x2000 | offset).to_be_bytes());
        prop_assert!(!read(&bytes).checksums_hold(&bytes));
        bytes[10..12].fill(0);
        let checksum = internet_checksum(&[&bytes[..20]]);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes[30] ^= 1;
        prop_assert!(read(&bytes).checksums_hold(&bytes));
    }
}

#[test]
fn udp_without_a_checksum_holds() {
    let families: [(IpAddr, IpAddr); 2] =
        [([10, 0, 0, 1].into(), [10, 0, 0, 2].into()), ([1; 16].into(), [2; 16].into())];
    for (src, dst) in families {
        let mut bytes = packet((src, dst), (1000, 2000), Kind::Udp, b"data");
        let at = usize::from(read(&bytes).transport_offset) + 6;
        bytes[at..at + 2].fill(0);
        assert!(read(&bytes).checksums_hold(&bytes));
        bytes[at + 1] = 1;
        assert!(!read(&bytes).checksums_hold(&bytes));
    }
}

/// Options behind UDP's own length make up for it (RFC 9868, section 9).
#[test]
fn surplus_behind_udp_is_covered() {
    let hosts = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut bytes = packet(hosts, (1000, 2000), Kind::Udp, b"data");
    // The option checksum covers the surplus and its length; here the surplus is it alone.
    let option_checksum = internet_checksum(&[&2_u16.to_be_bytes()]);
    bytes.extend(option_checksum.to_be_bytes());
    let len = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    bytes[10..12].fill(0);
    let checksum = internet_checksum(&[&bytes[..20]]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    assert!(read(&bytes).checksums_hold(&bytes));
    bytes[len as usize - 1] ^= 1;
    assert!(!read(&bytes).checksums_hold(&bytes));
}
