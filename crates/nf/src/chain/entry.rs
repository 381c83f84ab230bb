//! The flow of a chain: what several functions keep of one packet set, in one [`Entry`].

use crate::function::Flow;

/// The state of one packet set for all functions of a [chain](crate::Chain) that have it: `W` words, of which each function has some at a
/// fixed place.
///
/// The first word says which places are in use. A place has the deadline of the function's flow, and then the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<const W: usize>(pub(super) [u64; W]);

impl<const W: usize> Entry<W> {
    /// An entry without any flow.
    pub(super) const EMPTY: Self = Self([0; W]);

    /// True if no function has a flow.
    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        self.0[0] == 0
    }
}

impl<const W: usize> Flow for Entry<W> {
    const WORDS: Option<usize> = Some(W);

    #[inline]
    fn write_words(&self, words: &mut [u64]) {
        words.copy_from_slice(&self.0);
    }

    #[inline]
    fn read_words(words: &[u64]) -> Option<Self> {
        words.try_into().ok().map(Self)
    }
}
