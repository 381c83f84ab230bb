//! Zeroed, cache-line aligned memory that is reserved at the start. The kernel provides pages at their first use, and huge pages if it has
//! any and a table has grown into its room.

use alloc::sync::Arc;
use core::cell::Cell;
use core::ptr::NonNull;

use locality::CACHE_LINE;
pub(crate) use locality::pages::Filling;
use locality::pages::{HEAD, HUGE_PAGE, Zeroed};

/// A piece of zeroed memory. It begins on a cache line.
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// The allocation that it lies in, which small regions share.
    chunk: Arc<Zeroed>,
}

std::thread_local! {
    /// This thread's chunk with room left, and how many bytes of it are taken. One thread builds the tables of an engine.
    static OPEN: Cell<Option<(Arc<Zeroed>, usize)>> = const { Cell::new(None) };
}

/// Regions up to this size share huge pages. Alone, each would have small pages, and an engine with tables for every bucket of packets
/// would have more pages than the processor has TLB entries.
const TOGETHER_MAX: usize = HUGE_PAGE / 4;

impl Region {
    /// `bytes` zero bytes, which will be written in the order of `filling`.
    ///
    /// # Panics
    /// If the size overflows an address, and if memory runs out.
    pub(crate) fn zeroed(bytes: usize, filling: Filling) -> Self {
        let (chunk, start) = match bytes {
            1..=TOGETHER_MAX => with_others(bytes),
            _ => (Arc::new(Zeroed::new(bytes, filling)), 0),
        };
        // SAFETY: the chunk has room for `bytes` bytes from there on.
        let base = unsafe { chunk.base().add(start) };
        Self { base, bytes, chunk }
    }

    /// The address of the first byte.
    #[inline]
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The size in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// See [`Zeroed::collapse`].
    pub(crate) fn collapse(&self, piece: usize) -> bool {
        self.chunk.collapse(piece)
    }
}

/// Allocates so many bytes from the thread's chunk; returns the chunk and the offset.
fn with_others(bytes: usize) -> (Arc<Zeroed>, usize) {
    // In a thread that is ending there is no chunk; each region gets its own.
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
