//! Memory that is sized before the first packet: aligned and zeroed. The kernel gives its pages when they are first touched, huge ones
//! where it has them and a table has grown into its room.

use alloc::sync::Arc;
use core::cell::Cell;
use core::ptr::NonNull;

use locality::CACHE_LINE;
pub(crate) use locality::pages::Filling;
use locality::pages::{HEAD, HUGE_PAGE, Zeroed};

/// A stretch of zeroed memory. It begins on a cache line.
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// What it lies in: alone, or together with other small ones.
    chunk: Arc<Zeroed>,
}

std::thread_local! {
    /// A chunk of this thread's that has room left, and how much of it is taken. Who builds an engine's tables is one thread.
    static OPEN: Cell<Option<(Arc<Zeroed>, usize)>> = const { Cell::new(None) };
}

/// Regions of at most so many bytes lie together on huge pages. By itself each would have small ones, and an engine that gives every bucket
/// of its packets tables of their own has more of those than the processor keeps translations of. What is left over of a page is less.
const TOGETHER_MAX: usize = HUGE_PAGE / 4;

impl Region {
    /// `bytes` of zeros, which will be written in that order.
    ///
    /// # Panics
    /// When the size overflows an address. When memory runs out, as all allocation does.
    pub(crate) fn zeroed(bytes: usize, filling: Filling) -> Self {
        let (chunk, start) = match bytes {
            1..=TOGETHER_MAX => with_others(bytes),
            _ => (Arc::new(Zeroed::new(bytes, filling)), 0),
        };
        // SAFETY: the chunk has room for `bytes` bytes from there on.
        let base = unsafe { chunk.base().add(start) };
        Self { base, bytes, chunk }
    }

    /// Where it begins.
    #[inline]
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How long it is.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// See [`Zeroed::collapse`].
    pub(crate) fn collapse(&self, piece: usize) -> bool {
        self.chunk.collapse(piece)
    }
}

/// Room for so many bytes, behind what others have; where it begins.
fn with_others(bytes: usize) -> (Arc<Zeroed>, usize) {
    // A thread that is at its end has none any more, and every region a chunk to itself.
    let open = OPEN.try_with(Cell::take).ok().flatten();
    let (chunk, start) = match open.filter(|(chunk, taken)| chunk.bytes() - taken >= bytes) {
        Some(open) => open,
        None => (Arc::new(Zeroed::new(HEAD + HUGE_PAGE, Filling::InOrder)), 0),
    };
    let taken = (start + bytes).next_multiple_of(CACHE_LINE);
    let rest = (Arc::clone(&chunk), taken);
    let _ = OPEN.try_with(|open| open.set(Some(rest)));
    (chunk, start)
}

// SAFETY: a region is plain owned memory; who reads and writes it is the business of its owner's references.
unsafe impl Send for Region {}
// SAFETY: as above; a shared region hands out nothing but its address.
unsafe impl Sync for Region {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zeroed_and_aligned() {
        for bytes in [0, 1, 64, 4096, TOGETHER_MAX, TOGETHER_MAX + 1, HUGE_PAGE, HUGE_PAGE + 1] {
            let region = Region::zeroed(bytes, Filling::InOrder);
            assert_eq!(region.base().addr().get() % CACHE_LINE, 0);
            assert_eq!(region.bytes(), bytes);
            // SAFETY: the region is that long, and zeros are bytes.
            let content = unsafe { core::slice::from_raw_parts(region.base().as_ptr(), bytes) };
            let step = if cfg!(miri) { 4095 } else { 1 };
            assert!(content.iter().step_by(step).all(|byte| *byte == 0));
        }
    }

    #[test]
    fn regions_that_lie_together_keep_apart() {
        // More than a chunk holds, given back in another order than they came.
        let mut regions: alloc::vec::Vec<Region> =
            (0..40).map(|at| Region::zeroed(1 + at * TOGETHER_MAX / 40, Filling::Whole)).collect();
        for (at, region) in regions.iter().enumerate() {
            // SAFETY: the region is that long, and nobody else looks at it.
            unsafe { region.base().write_bytes(at as u8, region.bytes()) };
        }
        while !regions.is_empty() {
            for region in &regions {
                // SAFETY: as above.
                let content = unsafe { core::slice::from_raw_parts(region.base().as_ptr(), region.bytes()) };
                let step = if cfg!(miri) { 4095 } else { 1 };
                assert!(content.iter().step_by(step).all(|byte| *byte == content[0]));
            }
            regions.swap_remove(regions.len() / 2);
        }
    }
}
