//! A key of any length, and the hash under it.

use std::fmt;

use packet::toeplitz::{INPUT_LEN_MAX, Toeplitz};

use crate::gf2::Bits;

/// A Toeplitz key, as it is counted in the hash: bit 0 is the highest bit of the first byte.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// A key of these bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The key's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Bit `bit` of the key; beyond its end there are zeros.
    #[must_use]
    pub fn bit(&self, bit: usize) -> bool {
        self.0.get(bit / 8).is_some_and(|byte| byte >> (7 - bit % 8) & 1 == 1)
    }

    /// The bits `first..first + len` of `bits` as a key.
    pub(crate) fn from_bits(bits: &Bits, first: usize, len: usize) -> Self {
        let mut bytes = vec![0; len.div_ceil(8)];
        for bit in (0..len).filter(|bit| bits.get(first + bit)) {
            bytes[bit / 8] |= 0x80 >> (bit % 8);
        }
        Self(bytes)
    }

    /// The hash of `input`, by the tables of [`packet::toeplitz`] as long as the input fits them.
    #[must_use]
    pub fn hash(&self, input: &[u8]) -> u32 {
        if input.len() > INPUT_LEN_MAX {
            return self.hash_by_bits(input);
        }
        self.toeplitz().hash(input)
    }

    /// The key for the tables, which read no further than 40 bytes.
    pub(crate) fn toeplitz(&self) -> Toeplitz {
        let mut key = [0; 40];
        let len = key.len().min(self.0.len());
        key[..len].copy_from_slice(&self.0[..len]);
        Toeplitz::new(&key)
    }

    /// The specification, bit by bit: for inputs beyond what the tables hold, and to hold them against.
    pub(crate) fn hash_by_bits(&self, input: &[u8]) -> u32 {
        let mut hash = 0;
        for bit in (0..input.len() * 8).filter(|bit| input[bit / 8] >> (7 - bit % 8) & 1 == 1) {
            for place in 0..32 {
                hash ^= u32::from(self.bit(bit + place)) << (31 - place);
            }
        }
        hash
    }
}

impl fmt::Display for Key {
    /// As `ethtool` takes it: `6d:5a:56`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if index == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use packet::toeplitz::MICROSOFT_KEY;
    use proptest::prelude::*;

    use super::*;

    type Vector = ([u8; 4], [u8; 4], u16, u16, u32, u32);

    /// Microsoft, "Verifying the RSS Hash Calculation": source, destination, source port, destination port, hash of
    /// addresses, hash with ports.
    const VECTORS: [Vector; 5] = [
        ([66, 9, 149, 187], [161, 142, 100, 80], 2794, 1766, 0x323e_8fc2, 0x51cc_c178),
        ([199, 92, 111, 2], [65, 69, 140, 83], 14230, 4739, 0xd718_262a, 0xc626_b0ea),
        ([24, 19, 198, 95], [12, 22, 207, 184], 12898, 38024, 0xd2d0_a5de, 0x5c2b_394a),
        ([38, 27, 205, 30], [209, 142, 163, 6], 48228, 2217, 0x8298_9176, 0xafc7_327f),
        ([153, 39, 163, 191], [202, 188, 127, 2], 44251, 1303, 0x5d18_09c5, 0x10e8_28a2),
    ];

    #[test]
    fn microsoft_vectors() {
        let key = Key::new(MICROSOFT_KEY);
        for (src, dst, sport, dport, addresses, all) in VECTORS {
            let input = [src.as_slice(), &dst, &sport.to_be_bytes(), &dport.to_be_bytes()].concat();
            assert_eq!((key.hash(&input[..8]), key.hash(&input)), (addresses, all));
            assert_eq!((key.hash_by_bits(&input[..8]), key.hash_by_bits(&input)), (addresses, all));
        }
    }

    proptest! {
        #[test]
        fn tables_and_bits_agree(key in prop::collection::vec(any::<u8>(), 40..=52), input in prop::collection::vec(any::<u8>(), 0..=36)) {
            let key = Key::new(key);
            prop_assert_eq!(key.hash(&input), key.hash_by_bits(&input));
        }
    }
}
