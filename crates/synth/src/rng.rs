//! A small random number generator that gives the same numbers from the same seed on every platform.

/// SplitMix64 (Steele, Lea, Flood: OOPSLA '14): one word of state, every seed good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `bound` (0 for a bound of 0), by Lemire's multiplication; the bias is below `bound` / 2^64.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from 0 up to, but not including, 1.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True this often.
    #[inline]
    pub const fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    /// The first numbers of seed 1234567 in the test vectors that Java's `SplittableRandom` and the reference C code share.
    #[test]
    fn known_sequence() {
        let mut rng = Rng::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([rng.bits(), rng.bits(), rng.bits()], expected);
    }

    #[test]
    fn stays_in_range() {
        let mut rng = Rng::new(1);
        assert_eq!(rng.below(0), 0);
        assert!((0..10_000).all(|_| rng.below(7) < 7 && (0.0..1.0).contains(&rng.unit())));
    }
}
