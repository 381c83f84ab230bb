//! A small cache of the hashes of flows that expire soon: computed when their part of the index is prefetched, used when they are removed.

use alloc::boxed::Box;
use alloc::vec;

/// Places in the cache: a few times as many as entries wait at once.
const PLACES: usize = 128;
/// An empty place.
const NOBODY: u32 = u32::MAX;

/// A direct-mapped cache from slots to hashes. Removing a flow clears its place, so a hash never belongs to an earlier flow.
pub(crate) struct Hashes {
    slots: Box<[u32]>,
    hashes: Box<[u64]>,
}

impl Hashes {
    /// An empty cache. It has no places unless `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        let places = if wanted { PLACES } else { 0 };
        Self { slots: vec![NOBODY; places].into(), hashes: vec![0; places].into() }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(&*self.hashes)
    }

    /// Stores the hash of the flow at the slot.
    #[inline]
    pub(crate) fn note(&mut self, slot: u32, hash: u64) {
        let place = slot as usize % PLACES;
        if let (Some(known), Some(of)) = (self.slots.get_mut(place), self.hashes.get_mut(place)) {
            (*known, *of) = (slot, hash);
        }
    }

    /// The hash of the flow at the slot, if it is cached.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<u64> {
        let place = slot as usize % PLACES;
        (self.slots.get(place) == Some(&slot)).then(|| self.hashes[place])
    }

    /// Like [`get`](Self::get), and clears the place.
    #[inline]
    pub(crate) fn take(&mut self, slot: u32) -> Option<u64> {
        let hash = self.get(slot)?;
        self.slots[slot as usize % PLACES] = NOBODY;
        Some(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_known_until_it_is_taken_or_displaced() {
        let mut hashes = Hashes::new(true);
        assert_eq!(hashes.get(0), None);
        hashes.note(0, 7);
        hashes.note(5, 8);
        assert_eq!((hashes.get(0), hashes.get(5), hashes.get(PLACES as u32)), (Some(7), Some(8), None));
        hashes.note(PLACES as u32, 9);
        assert_eq!((hashes.get(0), hashes.take(PLACES as u32)), (None, Some(9)));
        assert_eq!((hashes.take(PLACES as u32), hashes.take(5), hashes.take(5)), (None, Some(8), None));
        let mut none = Hashes::new(false);
        none.note(3, 1);
        assert_eq!((none.get(3), none.take(3), none.bytes()), (None, None, 0));
    }
}
