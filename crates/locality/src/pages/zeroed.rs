//! Zeroed memory that costs nothing until it is used: the address space is reserved at the start, and the kernel gives a page when it
//! is first touched.
//!
//! A huge page takes 2 MiB at the first byte that is written, and zeroing it takes longer than a hundred packets. So a region begins on
//! small pages, and lies on huge ones once much of it is in use.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use core::ptr::NonNull;

use super::HUGE_PAGE;
use crate::CACHE_LINE;

/// Bytes at the beginning of a region that stay on small pages if it is [filled in order](Filling::InOrder).
pub const HEAD: usize = 128 << 10;

/// How many entries come to a [scattered](Filling::Scattered) region for each huge page that its owner then
/// [asks for](Zeroed::collapse).
pub const STEP: usize = 128;

/// Smaller regions come from the allocator.
const MAPPED_MIN: usize = 128 << 10;

/// In which order a region is written, which says when it lies on huge pages. One that is smaller than a huge page has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// From the first byte on. All behind the [`HEAD`] lies on huge pages.
    InOrder,
    /// Here and there. Each piece lies on small pages until its owner [collapses](Zeroed::collapse) it. Kernels that can't do that
    /// (before Linux 6.1) are asked for huge pages at once.
    Scattered,
    /// All of it soon, on huge pages at once.
    Whole,
}

/// Zeroed memory. It begins on a cache line, and on a huge page if it is as long as one and not filled in order.
pub struct Zeroed {
    base: NonNull<u8>,
    bytes: usize,
    filling: Filling,
    source: Source,
}

/// Where the memory comes from.
enum Source {
    Nothing,
    /// The allocator.
    Allocated(Layout),
    /// The kernel: the whole mapping's first byte and length.
    #[cfg(all(target_os = "linux", not(miri)))]
    Mapped(NonNull<u8>, usize),
}

// SAFETY: plain owned memory; who reads and writes it is the business of its owner's references.
unsafe impl Send for Zeroed {}
// SAFETY: as above; a shared one hands out nothing but its address.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// `bytes` zeros.
    ///
    /// # Panics
    /// When the size overflows an address. When memory runs out, as all allocation does.
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

    /// Where it begins.
    #[inline(always)]
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How long it is.
    #[inline(always)]
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts the `piece`th huge page's worth of a [scattered](Filling::Scattered) region on a huge page, for an owner who asks for one
    /// after the other once for each [`STEP`] of entries. `false` if there is no such piece. The kernel copies what is there, and the
    /// content stays the same.
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

    /// Advises the kernel about a part. One that has no huge pages to give says so, and small ones do.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn advise(&self, first: usize, bytes: usize, advice: libc::c_int) {
        if bytes > 0 {
            let first = self.base.as_ptr().wrapping_add(first).cast();
            // SAFETY: the three pieces of advice that are given here change no content.
            let _ = unsafe { libc::madvise(first, bytes, advice) };
        }
    }
}

/// How many huge pages so many bytes are worth: a last one that they fill half counts.
const fn pieces(bytes: usize) -> usize {
    (bytes + HUGE_PAGE / 2) / HUGE_PAGE
}

/// True if the kernel can put used memory on huge pages at once. About no memory at all it has no other objection.
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
