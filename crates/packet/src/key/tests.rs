//! What keys keep, and how well their hashes spread.

use super::*;
use std::collections::BTreeMap;
use std::format;
use std::vec::Vec;

use proptest::prelude::*;

fn tuple(src: IpAddr, src_port: u16, dst: IpAddr, dst_port: u16, protocol: u8) -> FiveTuple {
    FiveTuple::between(Endpoint::new(src, src_port), Endpoint::new(dst, dst_port), protocol).unwrap()
}

fn hash_of(tuple: FiveTuple, seed: u64) -> u64 {
    match tuple.family() {
        Family::V4(key) => Key::hash(&key, seed),
        Family::V6(key) => Key::hash(&key, seed),
    }
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
    ]
}

proptest! {
    #[test]
    fn tuples_keep_their_fields((src, dst) in addresses(), ports in any::<(u16, u16)>(), protocol in any::<u8>()) {
        let tuple = tuple(src, ports.0, dst, ports.1, protocol);
        prop_assert_eq!(tuple.source(), Endpoint::new(src, ports.0));
        prop_assert_eq!(tuple.destination(), Endpoint::new(dst, ports.1));
        prop_assert_eq!(tuple.protocol(), protocol);
        prop_assert_eq!(tuple.reversed().reversed(), tuple);
        prop_assert_eq!(tuple.reversed().source(), tuple.destination());
        let again = match tuple.family() {
            Family::V4(key) => FiveTuple::from_v4(key),
            Family::V6(key) => FiveTuple::from_v6(key),
        };
        prop_assert_eq!(again, tuple);
    }

    #[test]
    fn symmetric_form_is_one_for_both_directions((src, dst) in addresses(), ports in any::<(u16, u16)>()) {
        let tuple = tuple(src, ports.0, dst, ports.1, 6);
        let ((form, forward), (other, backward)) = (tuple.symmetric(), tuple.reversed().symmetric());
        prop_assert_eq!(form, other);
        prop_assert!(forward != backward || tuple == tuple.reversed());
        prop_assert_eq!(form, if forward { tuple } else { tuple.reversed() });
        prop_assert!((src, ports.0) <= (dst, ports.1) || !forward);
    }

    #[test]
    fn inputs_of_receive_side_scaling_are_addresses_then_ports((src, dst) in addresses(), ports in any::<(u16, u16)>()) {
        let bytes = |address| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let pair = [bytes(src), bytes(dst)].concat();
        let all = [&pair[..], &ports.0.to_be_bytes(), &ports.1.to_be_bytes()].concat();
        let mut out = [0; 36];
        let len = tuple(src, ports.0, dst, ports.1, 17).rss_input(&mut out);
        prop_assert_eq!(&out[..len], &all[..]);
        let hosts = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => HostPair::v4(src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => HostPair::v6(src, dst),
            _ => unreachable!("addresses are of one family"),
        };
        let len = hosts.rss_input(&mut out);
        prop_assert_eq!(&out[..len], &pair[..]);
        prop_assert_eq!((hosts.source(), hosts.destination()), (src, dst));
        let again = match hosts.family() {
            Family::V4(key) => HostPair::from_v4(key),
            Family::V6(key) => HostPair::from_v6(key),
        };
        prop_assert_eq!(again, hosts);
        let len = Host::from(src).rss_input(&mut out);
        prop_assert_eq!(&out[..len], &bytes(src)[..]);
        prop_assert_eq!(Host::from(src).address(), src);
    }
}

#[test]
fn keys_are_small_and_print_well() {
    assert_eq!([size_of::<FiveTuple4>(), align_of::<FiveTuple4>()], [16, 8]);
    assert_eq!([size_of::<FiveTuple6>(), align_of::<FiveTuple6>()], [40, 8]);
    assert_eq!([size_of::<HostPair4>(), size_of::<HostPair6>()], [8, 32]);
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!(format!("{}", HostPair::v4(a, b)), "10.0.0.1 > 10.0.0.2");
    assert_eq!(format!("{}", FiveTuple::v4(a, b, 1, 2, 6)), "10.0.0.1:1 > 10.0.0.2:2 tcp");
    assert_eq!(format!("{}", FiveTuple::v4(a, b, 0, 0, 253)), "10.0.0.1:0 > 10.0.0.2:0 protocol 253");
    assert_eq!(FiveTuple::between(Endpoint::new(a.into(), 1), Endpoint::new(Ipv6Addr::LOCALHOST.into(), 1), 6), None);
}

/// Sets of keys as traffic has them: runs of addresses, runs of ports, a scan, and IPv6 within one prefix.
fn sequential() -> Vec<(&'static str, Vec<FiveTuple>)> {
    let v4 = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(n));
    let v6 = |n: u32| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(n)));
    let server = v4(0xc000_0201);
    vec_of([
        ("client addresses", &|n| tuple(v4(0x0a00_0000 + n), 40_000, server, 443, 6)),
        ("client ports", &|n| tuple(v4(0x0a00_0001 + (n >> 16)), n as u16, server, 443, 6)),
        ("a scan of hosts", &|n| tuple(server, 40_000, v4(0x0a00_0000 + n), 80, 6)),
        ("a scan of ports", &|n| tuple(server, 40_000, v4(0x0a00_0000 + (n >> 16)), n as u16, 6)),
        ("strides", &|n| tuple(v4(n << 8), (n << 4) as u16, server, 53, 17)),
        ("IPv6 hosts", &|n| tuple(v6(n), 40_000, v6(0), 443, 6)),
        ("IPv6 ports", &|n| tuple(v6(1 + (n >> 16)), n as u16, v6(0), 443, 6)),
    ])
}

type Maker<'a> = (&'static str, &'a dyn Fn(u32) -> FiveTuple);

fn vec_of<const N: usize>(makers: [Maker<'_>; N]) -> Vec<(&'static str, Vec<FiveTuple>)> {
    makers.into_iter().map(|(name, make)| (name, (0..1 << 17).map(make).collect())).collect()
}

/// Pearson's statistic of how evenly `bits` of the hashes spread, in standard deviations from what chance gives.
fn unevenness(hashes: &[u64], bits: impl Fn(u64) -> usize, buckets: usize) -> f64 {
    let mut counts = std::vec![0_u32; buckets];
    for hash in hashes {
        counts[bits(*hash)] += 1;
    }
    let expected = hashes.len() as f64 / buckets as f64;
    let chi: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    let freedom = (buckets - 1) as f64;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

/// Which bits of a hash are looked at, how, and how many values they have.
type Look<'a> = (&'a str, &'a dyn Fn(u64) -> usize, usize);

#[test]
fn sequential_keys_spread_like_chance() {
    for (name, tuples) in sequential() {
        for seed in [0, 1, 0x1234_5678_9abc_def0, u64::MAX] {
            let hashes: Vec<u64> = tuples.iter().map(|tuple| hash_of(*tuple, seed)).collect();
            // Tags come from the top bits, buckets from the low ones; tables of other shapes take the middle.
            let looks: [Look<'_>; 4] = [
                ("top 8", &|hash| (hash >> 56) as usize, 1 << 8),
                ("top 14", &|hash| (hash >> 50) as usize, 1 << 14),
                ("low 14", &|hash| hash as usize & 0x3fff, 1 << 14),
                ("middle 12", &|hash| (hash >> 26) as usize & 0xfff, 1 << 12),
            ];
            for (bits, take, buckets) in looks {
                let sigma = unevenness(&hashes, take, buckets);
                assert!(sigma.abs() < 6.0, "{name}, {bits} bits, seed {seed:#x}: {sigma:.1} sigma");
            }
            // Tag and bucket together must be independent, too: 8 top bits beside 6 low ones.
            let sigma = unevenness(&hashes, |hash| (hash >> 56 << 6) as usize | hash as usize & 0x3f, 1 << 14);
            assert!(sigma.abs() < 6.0, "{name}, tag and bucket, seed {seed:#x}: {sigma:.1} sigma");
            let distinct: BTreeMap<u64, ()> = hashes.iter().map(|hash| (*hash, ())).collect();
            assert_eq!(distinct.len(), tuples.len(), "{name}: collisions of all 64 bits");
        }
    }
}

/// Each bit of the key and of the seed turns each bit of the hash in about half of all cases.
#[test]
fn every_bit_counts() {
    const CASES: u32 = 2048;
    let base = |n: u32| {
        let spread = n.wrapping_mul(0x9e37_79b9);
        (spread, spread.rotate_left(11), spread as u16, (spread >> 7) as u16)
    };
    let mut flips = std::vec![[0_u32; 64]; 96 + 64];
    for n in 0..CASES {
        let (src, dst, src_port, dst_port) = base(n);
        let make = |src: u32, dst: u32, ports: u32| {
            FiveTuple::v4(Ipv4Addr::from_bits(src), Ipv4Addr::from_bits(dst), (ports >> 16) as u16, ports as u16, 6)
        };
        let ports = u32::from(src_port) << 16 | u32::from(dst_port);
        let hash = hash_of(make(src, dst, ports), 7);
        for bit in 0..32 {
            let mask = 1 << bit;
            let changed = [make(src ^ mask, dst, ports), make(src, dst ^ mask, ports), make(src, dst, ports ^ mask)];
            for (field, tuple) in changed.into_iter().enumerate() {
                count_flips(hash ^ hash_of(tuple, 7), &mut flips[field * 32 + bit]);
            }
        }
        for bit in 0..64 {
            count_flips(hash ^ hash_of(make(src, dst, ports), 7 ^ 1 << bit), &mut flips[96 + bit]);
        }
    }
    for (input, counts) in flips.iter().enumerate() {
        for (output, count) in counts.iter().enumerate() {
            let share = f64::from(*count) / f64::from(CASES);
            // Six standard deviations around one half.
            assert!((share - 0.5).abs() < 0.067, "input bit {input}, hash bit {output}: flips in {share:.3}");
        }
    }
}

fn count_flips(difference: u64, counts: &mut [u32; 64]) {
    for (bit, count) in counts.iter_mut().enumerate() {
        *count += (difference >> bit & 1) as u32;
    }
}
