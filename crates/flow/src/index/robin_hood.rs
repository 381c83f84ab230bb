//! Robin Hood hashing (Celis, Larson, Munro: SFCS '85): linear probing in which an entry far from its home displaces one that is nearer to
//! its own. All probe lengths become about equal, and a miss knows where to stop.
//!
//! With linear probing this means that cells are in the order of their homes, here even of their hashes. An insertion shifts the cells up
//! to the next free one by one, and a removal shifts them back. As a table fills up, the next free cell moves away without limit, so
//! insertion gives up after [`REACH`] cells. A cell holds 32 bits of the hash and the entry's number. Probing doesn't wrap: there are
//! [`REACH`] more cells at the end.

use crate::index::cells::{HashCell, HashCells};
use crate::index::{Index, scale, upper};

/// How far an entry may lie from its home, and how far insertion searches for a free cell.
const REACH: usize = 1024;
/// How many cells count as neighbours: two cache lines.
const NEIGHBOURS: usize = 16;

/// The index.
pub struct RobinHood {
    /// One cell for each home, and [`REACH`] more. `hash` is the upper half, which gives the home.
    cells: HashCells,
    /// The number of homes.
    count: usize,
}

impl RobinHood {
    #[inline(always)]
    const fn home(&self, hash: u32) -> usize {
        scale(hash, self.count)
    }

    /// The first entry with this hash that `is_it` accepts.
    #[inline(always)]
    fn search(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let home = self.home(upper(hash));
        for cell in &self.cells[home..][..REACH] {
            // Cells are in hash order, so this one would have come before.
            if cell.entry == 0 || cell.hash > upper(hash) {
                return None;
            }
            if cell.hash == upper(hash) && is_it(cell.entry - 1) {
                return Some(cell.entry - 1);
            }
        }
        None
    }
}

impl Index for RobinHood {
    type Choice = ();

    fn load_percent((): ()) -> usize {
        75
    }

    fn new((): (), places: usize) -> Self {
        let count = places.max(1);
        Self { cells: HashCells::free(count + REACH), count }
    }

    #[inline(always)]
    fn assigns(&self) -> bool {
        false
    }

    fn places(&self) -> usize {
        self.count
    }

    fn bytes(&self) -> usize {
        self.cells.bytes()
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        self.cells.prefetch(self.home(upper(hash)));
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
        let home = self.home(upper(hash));
        let reach = &self.cells[home..][..REACH];
        let vacant = home + reach.iter().position(|cell| cell.entry == 0)?;
        // The homes of shifted cells are not before this one, so none is shifted out of its reach.
        let place = home + reach[..vacant - home].partition_point(|cell| cell.hash <= upper(hash));
        let cells = &mut self.cells;
        cells.copy_within(place..vacant, place + 1);
        cells[place] = HashCell { hash: upper(hash), entry: free + 1 };
        Some(free)
    }

    #[inline]
    fn remove(&mut self, hash: u64, slot: u32) -> bool {
        let home = self.home(upper(hash));
        let reach = &self.cells[home..][..REACH];
        let Some(distance) = reach.iter().take_while(|cell| cell.entry != 0).position(|cell| cell.entry == slot + 1)
        else {
            return false;
        };
        let place = home + distance;
        let mut end = place + 1;
        // The cells behind move back, up to one that is free or at home.
        while end < self.count + REACH && self.cells[end].entry != 0 && self.home(self.cells[end].hash) < end {
            end += 1;
        }
        let cells = &mut self.cells;
        cells.copy_within(place + 1..end, place);
        cells[end - 1].entry = 0;
        true
    }

    fn neighbours(&self, hash: u64, mut see: impl FnMut(u32)) {
        let home = self.home(upper(hash));
        for cell in self.cells[home..].iter().take(NEIGHBOURS).take_while(|cell| cell.entry != 0) {
            see(cell.entry - 1);
        }
    }
}
