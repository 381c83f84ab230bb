//! An array of cells, each a hash and an entry's number, for the open-addressing designs.

use core::ops::{Deref, DerefMut};

use crate::memory::{Filling, Region};
use locality::prefetch;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct HashCell {
    /// 32 bits of the hash; the design chooses which.
    pub(super) hash: u32,
    /// The entry's number plus 1; 0 in a free cell.
    pub(super) entry: u32,
}

/// An array of cells, all free at first.
pub(super) struct HashCells {
    region: Region,
    count: usize,
}

impl HashCells {
    pub(super) fn free(count: usize) -> Self {
        Self { region: Region::zeroed(count * size_of::<HashCell>(), Filling::Whole), count }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.region.bytes()
    }

    /// Prefetches a cell.
    #[inline(always)]
    pub(super) fn prefetch(&self, at: usize) {
        prefetch::address(self.region.base().as_ptr().wrapping_add(at * size_of::<HashCell>()));
    }
}

impl Deref for HashCells {
    type Target = [HashCell];

    #[inline(always)]
    fn deref(&self) -> &[HashCell] {
        // SAFETY: the region holds that many cells, and zeros are a cell.
        unsafe { core::slice::from_raw_parts(self.region.base().cast::<HashCell>().as_ptr(), self.count) }
    }
}

impl DerefMut for HashCells {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [HashCell] {
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { core::slice::from_raw_parts_mut(self.region.base().cast::<HashCell>().as_ptr(), self.count) }
    }
}
