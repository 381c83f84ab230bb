//! The hash is keyed. An attacker who knows the seed can fill one part of a table, and a linear checksum ignores the seed.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use millrace_flow::index::{AnyIndex, IndexKind};
use millrace_flow::{Ageing, Plan, Table};
use packet::{FiveTuple, FiveTuple4, Host, Host4, Key, Nanos};

/// How many keys an attacker picks; the same number is random.
const CHOSEN: usize = if cfg!(miri) { 20 } else { 1_500 };
/// How many leading bits the hashes of chosen keys share.
const BITS: u32 = if cfg!(miri) { 4 } else { 12 };
const CAPACITY: usize = if cfg!(miri) { 200 } else { 10_000 };
const KNOWN: u64 = 0;
const SECRET: u64 = 0x6b8f_2a11_93d4_0c5e;

fn tuple(number: u64) -> FiveTuple4 {
    let src = Ipv4Addr::from_bits(0x0a00_0000 | (number >> 16) as u32);
    match FiveTuple::v4(src, Ipv4Addr::new(192, 0, 2, 1), number as u16, 443, 6) {
        FiveTuple::V4(key) => key,
        FiveTuple::V6(_) => unreachable!("made of IPv4 addresses"),
    }
}

/// Keys that an attacker finds by trying tuples until their hashes under `seed` share leading bits.
fn chosen(seed: u64) -> Vec<FiveTuple4> {
    keys_like(seed, !0 << (64 - BITS), 5 << (64 - BITS), CHOSEN)
}

fn keys_like(seed: u64, mask: u64, hash: u64, count: usize) -> Vec<FiveTuple4> {
    (0..).map(tuple).filter(|key| key.hash(seed) & mask == hash).take(count).collect()
}

/// Inserts the keys into a table with this seed. Returns how many fit, and the largest number of neighbours of one.
fn crowding(kind: IndexKind, seed: u64, keys: &[FiveTuple4]) -> (usize, usize) {
    let plan = Plan { index: kind, capacity: CAPACITY, ageing: Ageing::None, seed, load_percent: None };
    let mut table = Table::<FiveTuple4, u32, AnyIndex>::planned(plan);
    for (number, key) in keys.iter().enumerate() {
        let _ = table.insert(*key, table.hash(key), number as u32, Nanos::NEVER, Nanos(0));
    }
    let longest = keys.iter().map(|key| table.crowd(table.hash(key))).max();
    (table.len(), longest.unwrap_or(0))
}

/// The chosen keys all go to one in 4096 of the chains under the known seed; under a secret one they spread like others.
#[test]
fn chosen_collisions_work_against_the_known_key_alone() {
    let keys = chosen(KNOWN);
    let (_, known) = crowding(IndexKind::Chaining, KNOWN, &keys);
    let (_, secret) = crowding(IndexKind::Chaining, SECRET, &keys);
    assert!(known > secret * 3, "the longest chain: {known} under the known key, {secret} under a secret one");
    if !cfg!(miri) {
        assert!(known >= 400 && secret <= 8, "{known} and {secret}");
        // Indexes with bounded insertion refuse keys that don't fit there; those with two buckets a key need keys with equal tags too.
        let same_tag = keys_like(KNOWN, 0xff00_0000_0000_00ff, 0x0500_0000_0000_0007, 400);
        for (kind, keys) in
            [(IndexKind::Hopscotch, &keys), (IndexKind::Cuckoo, &same_tag), (IndexKind::CuckooPp, &same_tag)]
        {
            let (known, _) = crowding(kind, KNOWN, keys);
            let (secret, _) = crowding(kind, SECRET, keys);
            assert!(known < keys.len() && secret == keys.len(), "{kind}: {known} and {secret} of {} fit", keys.len());
        }
    }
}

/// CRC32C, the usual hash of DPDK's tables, computed bit by bit (RFC 3720) from a secret initial value.
fn crc32c(bytes: &[u8], secret: u32) -> u32 {
    bytes.iter().fold(secret, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

/// Two keys that collide under a checksum collide under every initial value: the secret cancels out.
#[test]
fn a_checksum_has_no_key() {
    let bytes = |number: u64| number.to_le_bytes();
    let limit = if cfg!(miri) { 0 } else { 300_000u64 };
    let mut seen = std::collections::HashMap::new();
    let mut pairs = Vec::new();
    for number in (0..limit).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
        if let Some(other) = seen.insert(crc32c(&bytes(number), 0), number) {
            pairs.push((other, number));
        }
    }
    assert!(cfg!(miri) || pairs.len() >= 3, "three hundred thousand of four billion meet ten times");
    for (a, b) in pairs {
        for secret in [1, 0xdead_beef, u32::MAX] {
            assert_eq!(crc32c(&bytes(a), secret), crc32c(&bytes(b), secret));
        }
    }
}

/// Keys that collide under one seed don't under another, except by chance.
#[test]
fn another_key_tells_apart_what_one_confused() {
    let keys = chosen(KNOWN);
    let under = |seed: u64| keys.iter().map(|key| key.hash(seed) >> (64 - BITS)).collect::<HashSet<_>>().len();
    assert_eq!(under(KNOWN), 1);
    // 1500 balls in 4096 bins occupy about 1257.
    assert!(cfg!(miri) || (1_150..1_360).contains(&under(SECRET)), "{}", under(SECRET));
}

/// Keys as in networks, with consecutive addresses and ports, fill a table's bins as random ones do: by the leading bits of the upper half,
/// by the lowest byte and by the bits between.
#[test]
fn keys_in_a_row_spread_evenly() {
    if cfg!(miri) {
        return;
    }
    let host = |number: u64| match Host::v4(Ipv4Addr::from_bits(0x0a00_0000 + number as u32)) {
        Host::V4(key) => key,
        Host::V6(_) => unreachable!("made of an IPv4 address"),
    };
    let hosts: Vec<Host4> = (0..1 << 16).map(host).collect();
    let tuples: Vec<FiveTuple4> = (0..1 << 16).map(tuple).collect();
    for seed in 0..20 {
        for shift in [0, 8, 24, 28, 40, 56] {
            let spread = |hashes: &mut dyn Iterator<Item = u64>| {
                let mut bins = [0u32; 256];
                hashes.for_each(|hash| bins[(hash >> shift) as usize & 255] += 1);
                bins.iter().map(|count| (f64::from(*count) - 256.0).powi(2) / 256.0).sum::<f64>()
            };
            // Chi-square with 255 degrees of freedom: mean 255, deviation 22.6. Over twelve hundred tests none should be seven deviations
            // off.
            for chi in [
                spread(&mut hosts.iter().map(|key| key.hash(seed))),
                spread(&mut tuples.iter().map(|key| key.hash(seed))),
            ] {
                assert!((130.0..415.0).contains(&chi), "seed {seed}, shift {shift}: {chi}");
            }
        }
    }
}
