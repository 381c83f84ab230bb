//! Memory that is there before the first packet: aligned, zeroed, faulted in, on huge pages where the kernel gives them.

use alloc::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use alloc::sync::Arc;
use core::cell::Cell;
use core::ptr::NonNull;

use locality::CACHE_LINE;
use locality::pages::{self, HUGE_PAGE};

/// A stretch of zeroed memory, every page of it touched. It begins on a cache line, and on a huge page when it is as
/// long as one.
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// What it lies in; nothing if it is empty.
    _chunk: Option<Arc<Chunk>>,
}

/// What was allocated in one piece, for one region or for several small ones.
struct Chunk {
    base: NonNull<u8>,
    layout: Layout,
}

std::thread_local! {
    /// A chunk of this thread's that has room left, and how much of it is taken. Who builds an engine's tables is one thread.
    static OPEN: Cell<Option<(Arc<Chunk>, usize)>> = const { Cell::new(None) };
}

/// Regions of at most so many bytes lie together on huge pages. By itself each would have small ones, and an engine that gives every bucket
/// of its packets tables of their own has more of those than the processor keeps translations of. What is left over of a page is less.
const TOGETHER_MAX: usize = HUGE_PAGE / 4;

impl Region {
    /// `bytes` of zeros.
    ///
    /// # Panics
    /// When the size overflows an address. When memory runs out, as all allocation does.
    pub(crate) fn zeroed(bytes: usize) -> Self {
        if bytes == 0 {
            let layout = Layout::from_size_align(0, CACHE_LINE).expect("nothing fits anywhere");
            return Self { base: layout.dangling_ptr(), bytes, _chunk: None };
        }
        let (chunk, start) = if bytes <= TOGETHER_MAX { Chunk::with_others(bytes) } else { (Chunk::of(bytes), 0) };
        // SAFETY: the chunk has room for `bytes` bytes from there on.
        let base = unsafe { chunk.base.add(start) };
        // Zeroed by hand after the advice: `alloc_zeroed` would touch the pages first, and get small ones.
        // SAFETY: these bytes of the chunk were given to nobody else.
        unsafe { base.write_bytes(0, bytes) };
        Self { base, bytes, _chunk: Some(chunk) }
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
}

impl Chunk {
    /// A chunk of at least a byte, and of no content yet.
    fn of(bytes: usize) -> Arc<Self> {
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE };
        let layout = Layout::from_size_align(bytes, align).expect("a table is smaller than the address space");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        pages::advise(base.as_ptr(), bytes);
        Arc::new(Self { base, layout })
    }

    /// Room for so many bytes, behind what others have; where it begins.
    fn with_others(bytes: usize) -> (Arc<Self>, usize) {
        // A thread that is at its end has none any more, and every region a chunk to itself.
        let open = OPEN.try_with(Cell::take).ok().flatten();
        let (chunk, start) = match open.filter(|(chunk, taken)| chunk.layout.size() - taken >= bytes) {
            Some(open) => open,
            None => (Self::of(HUGE_PAGE), 0),
        };
        let taken = (start + bytes).next_multiple_of(CACHE_LINE);
        let rest = (Arc::clone(&chunk), taken);
        let _ = OPEN.try_with(|open| open.set(Some(rest)));
        (chunk, start)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated in `of` with this very layout, and no region lies in it any more.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

// SAFETY: a region is plain owned memory; who reads and writes it is the business of its owner's references.
unsafe impl Send for Region {}
// SAFETY: as above; a shared region hands out nothing but its address.
unsafe impl Sync for Region {}
// SAFETY: a chunk is looked at only for where it lies, and given back by whoever holds it last.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zeroed_and_aligned() {
        for bytes in [0, 1, 64, 4096, TOGETHER_MAX, TOGETHER_MAX + 1, HUGE_PAGE, HUGE_PAGE + 1] {
            let region = Region::zeroed(bytes);
            let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE };
            assert_eq!(region.base().addr().get() % align, 0);
            assert_eq!(region.bytes(), bytes);
            // SAFETY: the region is that long and was written whole.
            let content = unsafe { core::slice::from_raw_parts(region.base().as_ptr(), bytes) };
            let step = if cfg!(miri) { 4095 } else { 1 };
            assert!(content.iter().step_by(step).all(|byte| *byte == 0));
        }
    }

    #[test]
    fn regions_that_lie_together_keep_apart() {
        // More than a chunk holds, given back in another order than they came.
        let mut regions: alloc::vec::Vec<Region> =
            (0..40).map(|at| Region::zeroed(1 + at * TOGETHER_MAX / 40)).collect();
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
