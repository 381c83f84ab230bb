//! Memory that is there before the first packet: aligned, zeroed, faulted in, on huge pages where the kernel gives them.

use alloc::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use core::ptr::NonNull;

use locality::CACHE_LINE;
use locality::pages::{self, HUGE_PAGE};

/// A stretch of zeroed memory, every page of it touched. It begins on a cache line, and on a huge page when it is as
/// long as one.
pub(crate) struct Region {
    base: NonNull<u8>,
    layout: Layout,
}

impl Region {
    /// `bytes` of zeros.
    ///
    /// # Panics
    /// When the size overflows an address. When memory runs out, as all allocation does.
    pub(crate) fn zeroed(bytes: usize) -> Self {
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE };
        let layout = Layout::from_size_align(bytes, align).expect("a table is smaller than the address space");
        if bytes == 0 {
            return Self { base: layout.dangling_ptr(), layout };
        }
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        pages::advise(base.as_ptr(), bytes);
        // Zeroed by hand after the advice: `alloc_zeroed` would touch the pages first, and get small ones.
        // SAFETY: `bytes` bytes were just allocated at `base`.
        unsafe { base.write_bytes(0, bytes) };
        Self { base, layout }
    }

    /// Where it begins.
    #[inline]
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How long it is.
    pub(crate) const fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: allocated in `zeroed` with this very layout, and owned by nobody else.
            unsafe { dealloc(self.base.as_ptr(), self.layout) };
        }
    }
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
        for bytes in [0, 1, 64, 4096, HUGE_PAGE, HUGE_PAGE + 1] {
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
}
