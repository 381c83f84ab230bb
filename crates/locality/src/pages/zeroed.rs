//! Zeroed memory that costs nothing until it is used: the address space is reserved at the start, and the kernel gives a page when it
//! is first touched.
//!
//! A huge page takes 2 MiB at the first byte that is written, and zeroing it takes longer than a hundred packets. So a region begins on
//! small pages, and lies on huge ones once much of it is in use.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use core::ptr::NonNull;

use super::HUGE_PAGE;
use crate::CACHE_LINE;

/// Bytes at the start of a region that stay on small pages if it is [filled in order](Filling::InOrder).
pub const HEAD: usize = 128 << 10;

/// Number of new entries in a [scattered](Filling::Scattered) region after which its owner should [collapse](Zeroed::collapse) one more
/// huge page.
pub const STEP: usize = 128;

/// Smaller regions use the allocator.
const MAPPED_MIN: usize = 128 << 10;

/// Order in which a region is written; it decides when huge pages are used. A region smaller than a huge page has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// From the first byte on. Everything after the [`HEAD`] is on huge pages.
    InOrder,
    /// In random order. Each piece is on small pages until its owner [collapses](Zeroed::collapse) it. On kernels without that (before
    /// Linux 6.1), huge pages are used from the start.
    Scattered,
    /// All of it soon; huge pages from the start.
    Whole,
}

/// Zeroed memory. It starts at a cache line, or at a huge page if it is large enough and not filled in order.
pub struct Zeroed {
    base: NonNull<u8>,
    bytes: usize,
    filling: Filling,
    source: Source,
}

/// Source of the memory.
enum Source {
    Nothing,
    /// The allocator.
    Allocated(Layout),
    /// The kernel: first byte and length of the mapping.
    #[cfg(all(target_os = "linux", not(miri)))]
    Mapped(NonNull<u8>, usize),
}

// SAFETY: plain owned memory; who reads and writes it is the business of its owner's references.
unsafe impl Send for Zeroed {}
// SAFETY: as above; a shared one hands out nothing but its address.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// A region of `bytes` zeros.
    ///
    /// # Panics
    /// The size overflows an address, or memory runs out.
    #[must_use]
    pub fn new(bytes: usize, filling: Filling) -> Self {
        let layout = Layout::from_size_align(bytes, CACHE_LINE).expect("a region is smaller than the address space");
        if bytes == 0 {
            return Self { base: layout.dangling_ptr(), bytes, filling, source: Source::Nothing };
        }
        #[cfg(all(target_os = "linux", not(miri)))]
        if bytes >= MAPPED_MIN {
            return Self::mapped(bytes, filling).unwrap_or_else(|| handle_alloc_error(layout));
        }
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE };
        let layout = layout.align_to(align).expect("a region is smaller than the address space");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, bytes, filling, source: Source::Allocated(layout) }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn mapped(bytes: usize, filling: Filling) -> Option<Self> {
        use core::ptr::null_mut;
        // Room to begin where the huge pages should, and for the last of them. What isn't touched costs nothing.
        let length = if bytes >= HUGE_PAGE { bytes.checked_add(2 * HUGE_PAGE)? } else { bytes };
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice replaces no other.
        let whole = unsafe { libc::mmap(null_mut(), length, protection, kind, -1, 0) };
        if whole == libc::MAP_FAILED {
            return None;
        }
        let whole = NonNull::new(whole.cast::<u8>())?;
        let mut offset = 0;
        if bytes >= HUGE_PAGE {
            let head = if filling == Filling::InOrder { HEAD } else { 0 };
            let behind_head = whole.addr().get() + head;
            offset = behind_head.next_multiple_of(HUGE_PAGE) - behind_head;
        }
        // SAFETY: the offset is less than a huge page, and the mapping is longer by two where there is one.
        let base = unsafe { whole.add(offset) };
        let region = Self { base, bytes, filling, source: Source::Mapped(whole, length) };
        if bytes >= HUGE_PAGE {
            let small = match filling {
                Filling::InOrder => HEAD,
                Filling::Scattered if can_collapse() => bytes,
                Filling::Scattered | Filling::Whole => 0,
            };
            // Where the kernel gives huge pages unasked, too.
            region.advise(0, small, libc::MADV_NOHUGEPAGE);
            region.advise(small, pieces(bytes - small) * HUGE_PAGE, libc::MADV_HUGEPAGE);
        }
        Some(region)
    }

    /// Its first byte.
    #[inline(always)]
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length in bytes.
    #[inline(always)]
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Moves piece number `piece` of a [scattered](Filling::Scattered) region to a huge page. The owner calls it for one piece after the
    /// other, once for each [`STEP`] entries. Returns `false` if there is no such piece. The content stays the same.
    #[cold]
    pub fn collapse(&self, piece: usize) -> bool {
        let is_there = self.filling == Filling::Scattered && self.bytes >= HUGE_PAGE && piece < pieces(self.bytes);
        #[cfg(all(target_os = "linux", not(miri)))]
        if is_there {
            let first = piece * HUGE_PAGE;
            self.advise(first, HUGE_PAGE, libc::MADV_HUGEPAGE);
            self.advise(first, HUGE_PAGE, libc::MADV_COLLAPSE);
        }
        is_there
    }

    /// Advises the kernel about a part. Without free huge pages, small ones are used.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn advise(&self, first: usize, bytes: usize, advice: libc::c_int) {
        if bytes > 0 {
            let first = self.base.as_ptr().wrapping_add(first).cast();
            // SAFETY: the three pieces of advice that are given here change no content.
            let _ = unsafe { libc::madvise(first, bytes, advice) };
        }
    }
}

/// Number of huge pages for `bytes` bytes; a last page counts if it is at least half full.
const fn pieces(bytes: usize) -> usize {
    (bytes + HUGE_PAGE / 2) / HUGE_PAGE
}

/// True if the kernel can move used memory to huge pages. It is asked with an empty range, which it refuses for no other reason.
#[cfg(all(target_os = "linux", not(miri)))]
fn can_collapse() -> bool {
    // SAFETY: this is about no memory.
    unsafe { libc::madvise(core::ptr::null_mut(), 0, libc::MADV_COLLAPSE) == 0 }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        match self.source {
            Source::Nothing => {}
            // SAFETY: allocated in `new` with this very layout.
            Source::Allocated(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
            #[cfg(all(target_os = "linux", not(miri)))]
            Source::Mapped(whole, length) => {
                // SAFETY: mapped in `mapped` with this very length, and nobody has it any more.
                let _ = unsafe { libc::munmap(whole.as_ptr().cast(), length) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILLINGS: [Filling; 3] = [Filling::InOrder, Filling::Scattered, Filling::Whole];

    fn content(region: &mut Zeroed) -> &mut [u8] {
        // SAFETY: the region is that long and borrowed uniquely; zeros are bytes.
        unsafe { core::slice::from_raw_parts_mut(region.base().as_ptr(), region.bytes()) }
    }

    #[test]
    fn regions_are_zeroed_aligned_and_writable_to_the_end() {
        for bytes in [0, 1, 64, MAPPED_MIN - 1, MAPPED_MIN, HUGE_PAGE - 1, HUGE_PAGE, 3 * HUGE_PAGE + 1] {
            for filling in FILLINGS {
                let mut region = Zeroed::new(bytes, filling);
                let align = if bytes >= HUGE_PAGE && filling != Filling::InOrder { HUGE_PAGE } else { CACHE_LINE };
                assert_eq!((region.base().addr().get() % align, region.bytes()), (0, bytes));
                let step = if cfg!(miri) { 4095 } else { 1 };
                assert!(content(&mut region).iter().step_by(step).all(|byte| *byte == 0));
                if let Some(last) = content(&mut region).last_mut() {
                    *last = 1;
                }
            }
        }
    }

    #[test]
    fn pieces_collapse_and_keep_their_content() {
        let mut region = Zeroed::new(2 * HUGE_PAGE + HUGE_PAGE / 2, Filling::Scattered);
        for (at, byte) in content(&mut region).iter_mut().enumerate().step_by(4099) {
            *byte = at as u8;
        }
        let pieces = (0..).take_while(|piece| region.collapse(*piece)).count();
        assert_eq!(pieces, 3);
        assert!(content(&mut region).iter().enumerate().step_by(4099).all(|(at, byte)| *byte == at as u8));
        assert!(FILLINGS.iter().all(|filling| !Zeroed::new(HUGE_PAGE - 1, *filling).collapse(0)));
        assert!(!Zeroed::new(HUGE_PAGE, Filling::InOrder).collapse(0));
    }
}
