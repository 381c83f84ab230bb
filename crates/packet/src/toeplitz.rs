//! The Toeplitz hash of receive-side scaling (Microsoft, "RSS Hashing Functions"; Krawczyk, CRYPTO '94).
//!
//! Each set bit of the input contributes the 32 bits of the key that begin at its position. The contribution of each value of each byte
//! is computed in advance, in tables of 36 KiB; an IPv4 five-tuple uses a third of them (`cargo bench -p millrace-packet`).

use core::fmt;

/// The longest input: two IPv6 addresses and two ports.
pub const INPUT_LEN_MAX: usize = 36;

/// A key: long enough that every bit of the longest input has 32 bits to begin at.
pub type Key = [u8; 40];

/// The key of Microsoft's verification suite, which most network cards come with.
pub const MICROSOFT_KEY: Key = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// A key that repeats itself every 16 bits, so that both directions of a flow hash alike (Woo and Park, "Scalable TCP
/// Session Monitoring with Symmetric Receive-side Scaling", 2012). It spreads worse: five-tuples that differ by the same
/// bits in both ports collide.
pub const SYMMETRIC_KEY: Key = {
    let mut key = [0x6d; 40];
    let mut index = 1;
    while index < key.len() {
        key[index] = 0x5a;
        index += 2;
    }
    key
};

/// The hash under one key.
#[derive(Clone)]
pub struct Toeplitz {
    /// For each byte of the input, what each of its values contributes.
    contributions: [[u32; 256]; INPUT_LEN_MAX],
}

impl Toeplitz {
    /// The hash under `key`.
    #[must_use]
    pub const fn new(key: &Key) -> Self {
        let mut contributions = [[0; 256]; INPUT_LEN_MAX];
        let mut byte = 0;
        while byte < INPUT_LEN_MAX {
            let mut value = 1_usize;
            while value < 256 {
                // The lowest bit that is set, and what was summed up for the rest.
                let rest = contributions[byte][value & (value - 1)];
                contributions[byte][value] = rest ^ window(key, byte * 8 + 7 - value.trailing_zeros() as usize);
                value += 1;
            }
            byte += 1;
        }
        Self { contributions }
    }

    /// The hash of `input`, as [`FlowKey::rss_input`](crate::FlowKey::rss_input) writes it. Bytes beyond
    /// [`INPUT_LEN_MAX`] don't count.
    #[inline]
    #[must_use]
    pub fn hash(&self, input: &[u8]) -> u32 {
        let mut hash = 0;
        let (words, rest) = input.as_chunks::<4>();
        let (tables, _) = self.contributions.as_chunks::<4>();
        for ([a, b, c, d], word) in tables.iter().zip(words) {
            hash ^=
                a[usize::from(word[0])] ^ b[usize::from(word[1])] ^ c[usize::from(word[2])] ^ d[usize::from(word[3])];
        }
        for (table, byte) in self.contributions.iter().skip(words.len() * 4).zip(rest) {
            hash ^= table[usize::from(*byte)];
        }
        hash
    }
}

/// The hash under [`SYMMETRIC_KEY`]. As that key repeats itself every 16 bits, all words of 16 bits contribute alike: what they are
/// together, by exclusive or, contributes what all of them do, so that two look-ups take the place of one for each byte.
#[derive(Clone, Debug)]
pub struct SymmetricToeplitz {
    whole: Toeplitz,
}

impl SymmetricToeplitz {
    /// The hash.
    #[must_use]
    pub const fn new() -> Self {
        Self { whole: Toeplitz::new(&SYMMETRIC_KEY) }
    }

    /// The hash of an input whose words of four bytes are folded into one, as [`RssFields::folded`](crate::RssFields::folded) does
    /// it: what [`Toeplitz::hash`] gives for the input.
    #[inline]
    #[must_use]
    pub fn hash(&self, folded: u32) -> u32 {
        let [high, low] = ((folded >> 16 ^ folded) as u16).to_be_bytes();
        self.whole.contributions[0][usize::from(high)] ^ self.whole.contributions[1][usize::from(low)]
    }
}

impl Default for SymmetricToeplitz {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toeplitz").finish_non_exhaustive()
    }
}

/// The 32 bits of the key that begin at `bit`.
const fn window(key: &Key, bit: usize) -> u32 {
    let mut bytes = 0_u64;
    let mut index = 0;
    while index < 5 {
        let at = bit / 8 + index;
        bytes = bytes << 8 | if at < key.len() { key[at] as u64 } else { 0 };
        index += 1;
    }
    (bytes >> (8 - bit % 8)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Endpoint, FiveTuple, FlowKey, Host, HostPair};
    use core::net::IpAddr;

    use proptest::prelude::*;

    /// Microsoft, "Verifying the RSS Hash Calculation": destination, source, hash of addresses, hash with TCP ports.
    const VECTORS: [(&str, u16, &str, u16, u32, u32); 8] = [
        ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
        ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
        ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
        ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
        ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
        ("fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4b61_e985, 0x02d1_feef),
    ];

    fn hash_of(toeplitz: &Toeplitz, key: impl FlowKey) -> u32 {
        let mut input = [0; INPUT_LEN_MAX];
        let len = key.rss_input(&mut input);
        toeplitz.hash(&input[..len])
    }

    fn tuple(src: IpAddr, src_port: u16, dst: IpAddr, dst_port: u16) -> FiveTuple {
        FiveTuple::between(Endpoint::new(src, src_port), Endpoint::new(dst, dst_port), 6).unwrap()
    }

    #[test]
    fn microsoft_vectors() {
        let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
        for (dst, dst_port, src, src_port, addresses, with_ports) in VECTORS {
            let (src, dst): (IpAddr, IpAddr) = (src.parse().unwrap(), dst.parse().unwrap());
            let pair = match (src, dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => HostPair::v4(src, dst),
                (IpAddr::V6(src), IpAddr::V6(dst)) => HostPair::v6(src, dst),
                _ => unreachable!("vectors are of one family"),
            };
            assert_eq!(hash_of(&toeplitz, pair), addresses, "{src} > {dst}");
            assert_eq!(hash_of(&toeplitz, tuple(src, src_port, dst, dst_port)), with_ports, "{src} > {dst} with ports");
        }
    }

    /// The algorithm as the specification has it, bit by bit over a key that shifts left.
    fn naive(key: &Key, input: &[u8]) -> u32 {
        let mut key = key.to_vec();
        let mut result = 0;
        for bit in input.iter().flat_map(|byte| (0..8).rev().map(move |shift| byte >> shift & 1)) {
            if bit == 1 {
                result ^= u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
            }
            let mut carry = 0;
            for byte in key.iter_mut().rev() {
                (*byte, carry) = (*byte << 1 | carry, *byte >> 7);
            }
        }
        result
    }

    proptest! {
        #[test]
        fn a_symmetric_key_needs_two_look_ups(words in prop::collection::vec(any::<u32>(), 0..=9)) {
            let input: std::vec::Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let folded = words.iter().fold(0, |folded, word| folded ^ word);
            prop_assert_eq!(SymmetricToeplitz::new().hash(folded), Toeplitz::new(&SYMMETRIC_KEY).hash(&input));
        }

        #[test]
        fn agrees_with_the_specification(
            key in prop::array::uniform32(any::<u8>()),
            tail in any::<[u8; 8]>(),
            input in prop::collection::vec(any::<u8>(), 0..=INPUT_LEN_MAX),
        ) {
            let mut whole = [0; 40];
            whole[..32].copy_from_slice(&key);
            whole[32..].copy_from_slice(&tail);
            prop_assert_eq!(Toeplitz::new(&whole).hash(&input), naive(&whole, &input));
        }

        #[test]
        fn symmetric_key_ignores_direction(
            v4 in any::<([u8; 4], [u8; 4])>(),
            v6 in any::<([u8; 16], [u8; 16])>(),
            ports in any::<(u16, u16)>(),
        ) {
            let toeplitz = Toeplitz::new(&SYMMETRIC_KEY);
            let folded = SymmetricToeplitz::new();
            for tuple in [
                tuple(v4.0.into(), ports.0, v4.1.into(), ports.1),
                tuple(v6.0.into(), ports.0, v6.1.into(), ports.1),
            ] {
                prop_assert_eq!(hash_of(&toeplitz, tuple), hash_of(&toeplitz, tuple.reversed()));
                prop_assert_eq!(folded.hash(tuple.rss_fields().folded()), hash_of(&toeplitz, tuple));
                let host = Host::from(tuple.source().address);
                prop_assert_eq!(folded.hash(host.rss_fields().folded()), hash_of(&toeplitz, host));
            }
        }
    }
}
