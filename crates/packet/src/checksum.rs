//! The Internet checksum, whole (RFC 1071) and incremental (RFC 1624, equation 3).

/// A one's complement sum that is still being added up.
///
/// ```
/// # use millrace_packet::Checksum;
/// let mut header = [0x45, 0, 0, 0x1c, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
/// let mut sum = Checksum::default();
/// sum.add(&header);
/// let checksum = sum.value();
/// header[10..12].copy_from_slice(&checksum.to_be_bytes());
///
/// let mut change = Checksum::default();
/// change.replace(&header[12..16], &[192, 0, 2, 1]);
/// header[12..16].copy_from_slice(&[192, 0, 2, 1]);
/// header[10..12].copy_from_slice(&change.adjust(checksum).to_be_bytes());
/// let mut check = Checksum::default();
/// check.add(&header);
/// assert_eq!(check.value(), 0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum(u64);

impl Checksum {
    /// Adds bytes that begin at an even offset of what is summed. An odd last byte counts as if a zero followed.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<4>();
        for word in words {
            self.0 += u64::from(u32::from_be_bytes(*word));
        }
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        self.0 += u64::from(u32::from_be_bytes(last));
    }

    /// Adds a 16-bit word.
    #[inline]
    pub const fn add_word(&mut self, word: u16) {
        self.0 += word as u64;
    }

    /// Adds the change from `old` to `new`, equally long and at an even offset.
    #[inline]
    pub fn replace(&mut self, old: &[u8], new: &[u8]) {
        debug_assert_eq!(old.len(), new.len());
        let ((old_words, old_rest), (new_words, new_rest)) = (old.as_chunks::<4>(), new.as_chunks::<4>());
        for (old, new) in old_words.iter().zip(new_words) {
            self.0 += u64::from(!u32::from_be_bytes(*old)) + u64::from(u32::from_be_bytes(*new));
        }
        let (mut gone, mut come) = ([0xff; 4], [0; 4]);
        gone[..old_rest.len()].copy_from_slice(old_rest);
        come[..new_rest.len()].copy_from_slice(new_rest);
        self.0 += u64::from(!u32::from_be_bytes(gone)) + u64::from(u32::from_be_bytes(come));
    }

    /// Adds the change from `old` to `new`.
    #[inline]
    pub const fn replace_word(&mut self, old: u16, new: u16) {
        self.0 += (!old) as u64 + new as u64;
    }

    /// Adds all that was added to `other`.
    #[inline]
    pub const fn merge(&mut self, other: Self) {
        self.0 += other.0;
    }

    /// The same changes to bytes at an odd offset, which are the other half of their words (RFC 1071, section 2 B).
    #[inline]
    #[must_use]
    pub const fn at_odd_offset(self) -> Self {
        Self((!self.value()).swap_bytes() as u64)
    }

    /// The checksum: the complement of the sum. Over data that includes its own right checksum it is 0.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u16 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        !(sum as u16)
    }

    /// What `checksum` becomes by the changes added here: `~(~checksum + changes)`. A wrong checksum stays as wrong.
    #[inline]
    #[must_use]
    pub const fn adjust(mut self, checksum: u16) -> u16 {
        self.add_word(!checksum);
        self.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    use proptest::prelude::*;

    /// The sum as RFC 1071 section 4.1 spells it out.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            while sum >> 16 != 0 {
                sum = (sum & 0xffff) + (sum >> 16);
            }
        }
        !(sum as u16)
    }

    fn whole(bytes: &[u8]) -> u16 {
        let mut sum = Checksum::default();
        sum.add(bytes);
        sum.value()
    }

    #[test]
    fn rfc_1071_example() {
        // Section 3: the sum of these bytes is ddf2.
        assert_eq!(whole(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn rfc_1624_example() {
        // Section 4: the case that equation 2 of RFC 1141 gets wrong.
        let mut change = Checksum::default();
        change.replace_word(0x5555, 0x3285);
        assert_eq!(change.adjust(0xdd2f), 0x0000);
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(whole(&bytes), naive(&bytes));
        }

        #[test]
        fn incremental_is_as_good_as_whole(
            bytes in prop::collection::vec(any::<u8>(), 24..100),
            new in any::<[u8; 16]>(),
            at in 0_usize..4,
        ) {
            let mut bytes: Vec<u8> = bytes;
            let checksum = whole(&bytes);
            let mut change = Checksum::default();
            change.replace(&bytes[at * 2..][..16], &new);
            bytes[at * 2..][..16].copy_from_slice(&new);
            // Both zeros of one's complement stand for the same sum; what counts is that the receiver's check passes.
            let mut check = Checksum::default();
            check.add(&bytes);
            check.add_word(change.adjust(checksum));
            prop_assert_eq!(check.value(), 0);
        }
    }
}
