//! Indexes: hash tables from a key's hash to the slot of its entry, by the designs of the literature.
//!
//! An index knows hashes and slots, never keys. It proposes slots, and the caller compares the keys. Most designs store slot numbers, and
//! the slab chooses the slots; [`Tagged`] assigns the slots itself. An entry never moves in either case, so engines, ageing and functions
//! can keep its slot.

mod any;
mod cells;
mod chaining;
mod cuckoo;
mod hopscotch;
mod robin_hood;
mod tagged;

pub use any::{AnyIndex, IndexKind};
pub use chaining::Chaining;
pub use cuckoo::{Cuckoo, CuckooPp};
pub use hopscotch::Hopscotch;
pub use robin_hood::RobinHood;
pub use tagged::Tagged;

use core::fmt;

/// An index of a bounded number of entries. It uses the upper half and the lowest byte of the hashes, which must be well mixed.
pub trait Index: Send + Sync + 'static {
    /// Which design: `()` if the type says it.
    type Choice: Copy + Default + fmt::Debug + Send + Sync;

    /// The load factor of a full table in percent, unless the caller sets another.
    fn load_percent(choice: Self::Choice) -> usize;

    /// An empty index of at least so many places.
    fn new(choice: Self::Choice, places: usize) -> Self;

    /// True if the index assigns the slots of entries. Otherwise it stores the slot that it is given.
    fn assigns(&self) -> bool;

    /// The number of places.
    fn places(&self) -> usize;

    /// Its memory in bytes.
    fn bytes(&self) -> usize;

    /// Prefetches what a look-up reads first.
    fn prefetch(&self, hash: u64);

    /// The slot that probably has this hash; `None` if no entry has. Calls `prefetch_slot` for this slot and all others with the same tag.
    fn guess(&self, hash: u64, prefetch_slot: impl FnMut(u32)) -> Option<u32>;

    /// Like [`guess`](Self::guess), for hashes that are as likely to be absent as present: without a branch on that, if the design can. It
    /// may call `prefetch_slot` for one slot more. If most hashes are present, it is slower.
    #[inline(always)]
    fn guess_any(&self, hash: u64, prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        self.guess(hash, prefetch_slot)
    }

    /// The slot with this hash that `is_it` accepts.
    fn find(&self, hash: u64, is_it: impl FnMut(u32) -> bool) -> Option<u32>;

    /// Inserts an entry that is not in the index, at the slot `free` unless the index [assigns](Self::assigns) slots. Returns the slot, or
    /// `None` if there is no place.
    fn insert(&mut self, hash: u64, free: u32) -> Option<u32>;

    /// Prefetches what [`remove`](Self::remove) of this entry needs besides what [`prefetch`](Self::prefetch) has brought.
    fn prefetch_removal(&self, _hash: u64, _slot: u32) {}

    /// Removes an entry; `false` if it isn't in the index under this hash.
    fn remove(&mut self, hash: u64, slot: u32) -> bool;

    /// Puts a part of the index on a huge page that has begun on small ones; `false` if there is no such part. See
    /// [`Zeroed::collapse`](locality::pages::Zeroed::collapse).
    fn collapse(&self, _piece: usize) -> bool {
        false
    }

    /// Calls `see` for each entry of the neighbourhood in which a new one with this hash would lie: a few dozen at most.
    fn neighbours(&self, hash: u64, see: impl FnMut(u32));
}

/// Scales a fraction of 2^32 to a number below `count` (Lemire, "Fast random integer generation in an interval").
#[inline(always)]
pub(crate) const fn scale(fraction: u32, count: usize) -> usize {
    ((fraction as u64 * count as u64) >> 32) as usize
}

/// The upper half of a hash: where a look-up begins.
#[inline(always)]
pub(crate) const fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// A hash's tag: its lowest byte, or 1 if that is 0, which marks a free place.
#[inline(always)]
pub(crate) const fn tag_of(hash: u64) -> u8 {
    let tag = hash as u8;
    if tag == 0 { 1 } else { tag }
}

#[cfg(test)]
mod tests;
