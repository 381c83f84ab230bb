//! Compares all tags of a bucket at once: by SSE2 on x86-64, elsewhere by a word-parallel test for equal bytes (Mycroft's zero-byte test in
//! the form without false positives; Warren, "Hacker's Delight", 6-1).

/// The first sixteen bytes of a bucket: its tags, and bytes that the caller masks away.
#[repr(C, align(16))]
#[derive(Clone, Copy, Default)]
pub(crate) struct Tags(pub(crate) [u8; 16]);

impl Tags {
    /// A bit mask of the bytes that equal `tag`; bit 0 is the first byte.
    #[inline(always)]
    pub(crate) fn matches(&self, tag: u8) -> u32 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            self.matches_sse2(tag)
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        {
            self.matches_portable(tag)
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    fn matches_sse2(&self, tag: u8) -> u32 {
        use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: SSE2 is part of x86-64; the type is sixteen bytes long and as aligned.
        unsafe {
            let tags = _mm_load_si128(self.0.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8(tag.cast_signed()))).cast_unsigned()
        }
    }

    #[cfg(any(test, not(target_arch = "x86_64"), miri))]
    fn matches_portable(&self, tag: u8) -> u32 {
        let word = u128::from_le_bytes(self.0);
        equal_bytes(word as u64, tag) | equal_bytes((word >> 64) as u64, tag) << 8
    }
}

/// A bit mask of the bytes of `word` that equal `tag`.
#[inline(always)]
pub(crate) const fn equal_bytes(word: u64, tag: u8) -> u32 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f * ONES;
    let differing = word ^ (tag as u64 * ONES);
    let zero = !(((differing & LOW) + LOW) | differing | LOW);
    // Gathers the eight top bits into the top byte.
    ((zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_agree_with_a_plain_loop() {
        let mut state = 1u64;
        for _ in 0..if cfg!(miri) { 100 } else { 100_000 } {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Few different bytes, so that most of them occur.
            let bytes = core::array::from_fn(|at| ((state >> (at * 4)) as u8 & 3).wrapping_sub(1));
            let tags = Tags(bytes);
            for tag in [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff] {
                let plain = (0..16).filter(|at| bytes[*at] == tag).fold(0, |mask, at| mask | 1 << at);
                assert_eq!(tags.matches(tag), plain);
                assert_eq!(tags.matches_portable(tag), plain);
            }
        }
    }
}
