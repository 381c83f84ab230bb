//! Hopscotch hashing (Herlihy, Shavit, Tzafrir: DISC '08): every entry lies within 32 cells of its home, and a bitmap at the home says in
//! which. An insertion that finds a free cell farther away moves it nearer by moving other entries within their own neighbourhoods.
//!
//! A look-up reads the bitmap and the cells that it names, which mostly lie on one line. An insertion searches [`RANGE`] cells for a free
//! one and then refuses; in a nearly full table it may also find no entry to move. A cell holds 32 bits of the hash and the entry's number.
//! Probing doesn't wrap: there are [`RANGE`] more cells at the end.

use crate::index::cells::{HashCell, HashCells};
use crate::index::{Index, scale, upper};
use crate::memory::{Filling, Region};
use locality::prefetch;

/// How many cells a neighbourhood has.
const NEIGHBOURHOOD: usize = u32::BITS as usize;
/// How far an insertion searches for a free cell.
const RANGE: usize = 1024;

/// The index.
pub struct Hopscotch {
    /// For each home a bitmap of the cells of its neighbourhood that hold its entries.
    bitmaps: Region,
    /// One cell for each home, and [`RANGE`] more.
    cells: HashCells,
    count: usize,
}

impl Hopscotch {
    #[inline(always)]
    const fn home(&self, hash: u64) -> usize {
        scale(upper(hash), self.count)
    }

    #[inline(always)]
    fn bitmaps(&self) -> &[u32] {
        // SAFETY: the region holds that many words.
        unsafe { core::slice::from_raw_parts(self.bitmaps.base().cast::<u32>().as_ptr(), self.count) }
    }

    #[inline(always)]
    fn bitmaps_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { core::slice::from_raw_parts_mut(self.bitmaps.base().cast::<u32>().as_ptr(), self.count) }
    }

    /// The first entry with this hash that `is_it` accepts.
    #[inline(always)]
    fn search(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let home = self.home(hash);
        let mut bitmap = self.bitmaps()[home];
        while bitmap != 0 {
            let cell = self.cells[home + bitmap.trailing_zeros() as usize];
            if cell.hash == hash as u32 && is_it(cell.entry - 1) {
                return Some(cell.entry - 1);
            }
            bitmap &= bitmap - 1;
        }
        None
    }

    /// Moves an entry from a cell nearer to home to the free cell. Returns the cell that this frees, or `None` if no entry can move.
    fn hop(&mut self, vacant: usize) -> Option<usize> {
        for home in vacant + 1 - NEIGHBOURHOOD..vacant {
            // Homes are fewer than cells.
            let Some(bitmap) = self.bitmaps().get(home).copied().filter(|bitmap| *bitmap != 0) else { continue };
            let first = home + bitmap.trailing_zeros() as usize;
            if first < vacant {
                let cells = &mut self.cells;
                cells[vacant] = cells[first];
                cells[first].entry = 0;
                self.bitmaps_mut()[home] = bitmap & (bitmap - 1) | 1 << (vacant - home);
                return Some(first);
            }
        }
        None
    }
}

impl Index for Hopscotch {
    type Choice = ();

    /// At 75 % one insertion in twenty thousand finds no entry to move.
    fn load_percent((): ()) -> usize {
        66
    }

    fn new((): (), places: usize) -> Self {
        let count = places.max(1);
        Self {
            bitmaps: Region::zeroed(count * size_of::<u32>(), Filling::Whole),
            cells: HashCells::free(count + RANGE),
            count,
        }
    }

    #[inline(always)]
    fn assigns(&self) -> bool {
        false
    }

    fn places(&self) -> usize {
        self.count
    }

    fn bytes(&self) -> usize {
        self.bitmaps.bytes() + self.cells.bytes()
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        let home = self.home(hash);
        prefetch::address(self.bitmaps.base().as_ptr().wrapping_add(home * size_of::<u32>()));
        self.cells.prefetch(home);
    }

    #[inline(always)]
    fn guess(&self, hash: u64, mut prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        self.search(hash, |entry| {
            prefetch_slot(entry);
            true
        })
    }

    #[inline(always)]
    fn find(&self, hash: u64, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.search(hash, is_it)
    }

    #[inline]
    fn insert(&mut self, hash: u64, free: u32) -> Option<u32> {
        let home = self.home(hash);
        let distance = self.cells[home..].iter().take(RANGE).position(|cell| cell.entry == 0)?;
        let mut vacant = home + distance;
        while vacant >= home + NEIGHBOURHOOD {
            vacant = self.hop(vacant)?;
        }
        self.cells[vacant] = HashCell { hash: hash as u32, entry: free + 1 };
        self.bitmaps_mut()[home] |= 1 << (vacant - home);
        Some(free)
    }

    #[inline]
    fn remove(&mut self, hash: u64, slot: u32) -> bool {
        let home = self.home(hash);
        let mut bitmap = self.bitmaps()[home];
        while bitmap != 0 {
            let distance = bitmap.trailing_zeros();
            let cell = home + distance as usize;
            if self.cells[cell].entry == slot + 1 {
                self.cells[cell].entry = 0;
                self.bitmaps_mut()[home] &= !(1 << distance);
                return true;
            }
            bitmap &= bitmap - 1;
        }
        false
    }

    fn neighbours(&self, hash: u64, mut see: impl FnMut(u32)) {
        let home = self.home(hash);
        for cell in self.cells[home..].iter().take(NEIGHBOURHOOD).filter(|cell| cell.entry != 0) {
            see(cell.entry - 1);
        }
    }
}
