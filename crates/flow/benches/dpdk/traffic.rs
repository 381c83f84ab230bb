//! The keys of both sides, and the order of look-ups.

use std::net::Ipv4Addr;

use packet::{FiveTuple, FiveTuple4};

/// Five-tuples in both layouts, each with the first word of its state.
#[derive(Default)]
pub(crate) struct Keys {
    tuples: Vec<FiveTuple4>,
    bytes: Vec<[u8; 16]>,
    words: Vec<u64>,
}

/// A slice of the keys.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) tuples: &'a [FiveTuple4],
    /// The thirteen bytes of each key, and three zeros.
    pub(crate) bytes: &'a [[u8; 16]],
    pub(crate) words: &'a [u64],
}

impl Keys {
    /// The keys of these numbers, which are below 2^44. Different numbers have different keys.
    pub(crate) fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut keys = Self::default();
        for number in numbers {
            let (tuple, bytes) = key(number);
            keys.tuples.push(tuple);
            keys.bytes.push(bytes);
            keys.words.push(number + 1);
        }
        keys
    }

    /// A range of the keys.
    pub(crate) fn part(&self, from: usize, to: usize) -> Part<'_> {
        Part { tuples: &self.tuples[from..to], bytes: &self.bytes[from..to], words: &self.words[from..to] }
    }

    /// All keys.
    pub(crate) fn all(&self) -> Part<'_> {
        self.part(0, self.words.len())
    }
}

impl Part<'_> {
    pub(crate) const fn len(&self) -> usize {
        self.words.len()
    }
}

/// A network of 65536 hosts that talk to 4096 servers.
fn key(number: u64) -> (FiveTuple4, [u8; 16]) {
    const MASK: u64 = (1 << 44) - 1;
    // Multiplication by an odd number and a shift by half the bits or more are bijective.
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & MASK;
    mixed ^= mixed >> 23;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) & MASK;
    mixed ^= mixed >> 22;
    let (client, server, src_port) = (mixed as u16, (mixed >> 16) as u32 & 0xfff, (mixed >> 28) as u16);
    let src = 0x0a00_0000 | u32::from(client);
    let dst = 0x1700_0000 + server.wrapping_mul(0x0001_3c6f);
    let (dst_port, protocol) = if server.is_multiple_of(8) { (53, 17) } else { (443, 6) };
    let tuple = FiveTuple::v4(Ipv4Addr::from_bits(src), Ipv4Addr::from_bits(dst), src_port, dst_port, protocol);
    let FiveTuple::V4(tuple) = tuple else { unreachable!("made of IPv4 addresses") };
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&src.to_be_bytes());
    bytes[4..8].copy_from_slice(&dst.to_be_bytes());
    bytes[8..10].copy_from_slice(&src_port.to_be_bytes());
    bytes[10..12].copy_from_slice(&dst_port.to_be_bytes());
    bytes[12] = protocol;
    (tuple, bytes)
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// The numbers below `count` in a random order.
    pub(crate) fn order(&mut self, count: usize) -> Vec<u64> {
        let mut order: Vec<u64> = (0..count as u64).collect();
        for at in (1..count).rev() {
            order.swap(at, self.below(at + 1));
        }
        order
    }

    /// Numbers below `flows`, distributed by Zipf's law with exponent 1. The frequencies are assigned at random, since frequent flows that
    /// were inserted first would lie side by side.
    pub(crate) fn zipf(&mut self, flows: usize, count: usize) -> Vec<u64> {
        let by_rank = self.order(flows);
        let mut total = 0.0;
        let sums: Vec<f64> = (1..=flows)
            .map(|rank| {
                total += 1.0 / rank as f64;
                total
            })
            .collect();
        let unit = total / (1u64 << 53) as f64;
        let mut draw = || {
            let point = (self.next() >> 11) as f64 * unit;
            by_rank[sums.partition_point(|sum| *sum <= point).min(flows - 1)]
        };
        (0..count).map(|_| draw()).collect()
    }
}
