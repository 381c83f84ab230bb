//! How keys are found: from hashes to the slots of entries, by the designs that the literature compares.
//!
//! An index knows hashes and slots, never keys: it proposes slots, and the caller holds them against the key. Most designs
//! point at entries, which the slab then places as it likes; [`Tagged`] says itself where an entry lies. Either way an entry
//! stays where it is until it is removed, so that engines, ageing and functions can hold on to its slot.

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

/// An index of a bounded number of entries. The upper half and the lowest byte of the hashes must be good.
pub trait Index: Send + Sync + 'static {
    /// Which design it is: `()` where the type says it.
    type Choice: Copy + Default + fmt::Debug + Send + Sync;

    /// How many of a hundred places are taken in a full table, unless someone asks for another load.
    fn load_percent(choice: Self::Choice) -> usize;

    /// An index of at least so many places.
    fn new(choice: Self::Choice, places: usize) -> Self;

    /// Whether the index says where an entry lies. Otherwise it takes the slot that it is given.
    fn assigns(&self) -> bool;

    /// How many places it has.
    fn places(&self) -> usize;

    /// Its memory in bytes.
    fn bytes(&self) -> usize;

    /// Brings near what a look-up reads first.
    fn prefetch(&self, hash: u64);

    /// The slot that is probably the one under `hash`; it and all others that may be are shown to `prefetch_slot`. `None` where nobody is
    /// under this hash.
    fn guess(&self, hash: u64, prefetch_slot: impl FnMut(u32)) -> Option<u32>;

    /// The same for hashes of which nothing foretells whether somebody is there: without a branch by that, where the design can. One slot
    /// more may be shown to `prefetch_slot`. Where somebody mostly is, this is slower.
    #[inline(always)]
    fn guess_any(&self, hash: u64, prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        self.guess(hash, prefetch_slot)
    }

    /// The slot under `hash` that `is_it` accepts.
    fn find(&self, hash: u64, is_it: impl FnMut(u32) -> bool) -> Option<u32>;

    /// Enters an entry that is not in, at the slot `free` unless the index [assigns](Self::assigns) them; the slot, or `None` if
    /// there is no place for it.
    fn insert(&mut self, hash: u64, free: u32) -> Option<u32>;

    /// An entry will be taken out in a moment, and what [`prefetch`](Self::prefetch) asked for is near: brings the rest near that
    /// this needs.
    fn prefetch_removal(&self, _hash: u64, _slot: u32) {}

    /// Takes an entry out; `false` if it isn't in under this hash.
    fn remove(&mut self, hash: u64, slot: u32) -> bool;

    /// Puts a piece of the index on a huge page, where it has begun on small ones; `false` if there is no such piece. See
    /// [`Zeroed::collapse`](locality::pages::Zeroed::collapse).
    fn collapse(&self, _piece: usize) -> bool {
        false
    }

    /// Shows the entries that lie where a new one under `hash` would go, a few dozen at most.
    fn neighbours(&self, hash: u64, see: impl FnMut(u32));
}

/// A fraction of 2^32 as a number below `count` (Lemire, "Fast random integer generation in an interval").
#[inline(always)]
pub(crate) const fn scale(fraction: u32, count: usize) -> usize {
    ((fraction as u64 * count as u64) >> 32) as usize
}

/// The part of a hash that says where a look-up begins.
#[inline(always)]
pub(crate) const fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// A hash's tag: one byte that isn't 0, which stands for a free place.
#[inline(always)]
pub(crate) const fn tag_of(hash: u64) -> u8 {
    let tag = hash as u8;
    if tag == 0 { 1 } else { tag }
}

#[cfg(test)]
mod tests;
