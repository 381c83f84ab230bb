//! The anti-replay window (RFC 4303, section 3.4.3).

/// Maximum size of the window.
pub(super) const LONGEST: u32 = 256;

/// The highest sequence number, and the ones below it that were received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// The highest number received; for an outbound association, the last number sent.
    pub(super) top: u32,
    /// Bit `n` over all words: `top - n` was received.
    seen: [u64; LONGEST as usize / 64],
}

impl Window {
    /// Records a number. Returns false if it was received before, or is older than the latest `width` ones. Numbers begin at 1.
    #[must_use]
    pub(super) fn take(&mut self, number: u32, width: u32) -> bool {
        if number == 0 {
            return false;
        }
        if number > self.top {
            self.shift(number - self.top);
            self.top = number;
        }
        let behind = self.top - number;
        if behind >= width {
            return false;
        }
        let (word, bit) = ((behind / 64) as usize, 1 << (behind % 64));
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }

    fn shift(&mut self, by: u32) {
        let (words, bits) = ((by / 64) as usize, by % 64);
        let word = |at: Option<usize>| at.map_or(0, |at| self.seen[at]);
        self.seen = core::array::from_fn(|at| {
            let high = word(at.checked_sub(words)) << bits;
            // Carry from the next word; two shifts, because a shift by 64 is not allowed.
            high | word(at.checked_sub(words + 1)) >> (63 - bits) >> 1
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn takes_what_a_set_of_numbers_would(
            width in prop_oneof![Just(1), Just(32), Just(64), 1..=LONGEST],
            start in prop_oneof![Just(1_u32), Just(u32::MAX - 600), 1..1000_u32],
            steps in vec(prop_oneof![4 => -5..6_i64, 2 => -300..300_i64, 1 => -70..1_i64], 1..200),
        ) {
            let (mut window, mut come) = (Window::default(), BTreeSet::new());
            let mut at = i64::from(start);
            for step in steps {
                at = (at + step).clamp(0, u32::MAX.into());
                let number = at as u32;
                let top = come.last().copied().unwrap_or(0).max(number);
                let expected = number > 0 && top - number < width && come.insert(number);
                prop_assert_eq!(window.take(number, width), expected, "{}", number);
            }
        }
    }
}
