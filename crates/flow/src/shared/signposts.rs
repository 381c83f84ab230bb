//! A hint index: from a hash to the slot where its flow probably lies. It is read without a lock and written under the lock of the hash's
//! stripe. A signpost proves nothing: a reader compares the key of the entry, and takes the stripe's lock if there is no signpost or the
//! key differs. So no memory ordering between a signpost and its entry is needed.

use crate::index::{scale, upper};
use crate::shared::sync::{AtomicU64, AtomicWords, Ordering};
use locality::prefetch;

/// How many signposts a bucket has: a cache line of them.
const WIDTH: usize = 8;
/// How many signposts there are for each slot. At three, one flow in many thousands finds no room in its two buckets. Such a flow has no
/// signpost, and each of its packets takes the lock.
const SPARE: usize = 3;

/// The signposts of a table, in equal parts: one for each stripe.
///
/// Each is the lower half of the hash above the slot's number plus 1, or 0. Two flows of one bucket with equal halves, one pair in 2^28 or
/// so, hide each other's signposts, which does no harm.
pub(super) struct Signposts {
    words: AtomicWords,
    /// The number of buckets in each part.
    buckets: usize,
}

impl Signposts {
    /// No signposts, with room for `slots` slots in each part.
    pub(super) fn new(parts: usize, slots: usize) -> Self {
        let buckets = (slots * SPARE).div_ceil(WIDTH).max(1);
        Self { words: AtomicWords::zeroed(parts * buckets * WIDTH), buckets }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Prefetches the signposts of this hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, part: usize, hash: u64) {
        prefetch::address(self.bucket(part, hash, 0).as_ptr().cast());
    }

    /// The slot where the flow of this hash probably lies.
    #[inline(always)]
    pub(super) fn find(&self, part: usize, hash: u64) -> Option<u32> {
        let here = find_in(self.bucket(part, hash, 0), hash);
        if here.is_some() { here } else { self.find_behind(part, hash) }
    }

    /// The same in the second bucket.
    #[cold]
    fn find_behind(&self, part: usize, hash: u64) -> Option<u32> {
        find_in(self.bucket(part, hash, 1), hash)
    }

    /// Adds a signpost if there is room. The caller holds the stripe's lock.
    #[inline]
    pub(super) fn set(&self, part: usize, hash: u64, slot: u32) {
        let free = |word: &&AtomicU64| load(word) == 0;
        let first = self.bucket(part, hash, 0).iter().find(free);
        if let Some(word) = first.or_else(|| self.bucket(part, hash, 1).iter().find(free)) {
            store(word, signpost(hash, slot));
        }
    }

    /// Removes a signpost if there is one. The caller holds the stripe's lock.
    #[inline]
    pub(super) fn clear(&self, part: usize, hash: u64, slot: u32) {
        if let Some(word) = self.leading(part, hash, slot) {
            store(word, 0);
        }
    }

    /// Changes the slot of a signpost if there is one. The caller holds the stripe's lock.
    #[inline]
    pub(super) fn redirect(&self, part: usize, hash: u64, from: u32, to: u32) {
        if let Some(word) = self.leading(part, hash, from) {
            store(word, signpost(hash, to));
        }
    }

    /// The signpost from this hash to this slot.
    fn leading(&self, part: usize, hash: u64, to: u32) -> Option<&AtomicU64> {
        let same = |word: &&AtomicU64| load(word) == signpost(hash, to);
        let first = self.bucket(part, hash, 0).iter().find(same);
        first.or_else(|| self.bucket(part, hash, 1).iter().find(same))
    }

    /// The bucket of the hash, or the next one.
    #[inline(always)]
    fn bucket(&self, part: usize, hash: u64, behind: usize) -> &[AtomicU64] {
        let first = scale(upper(hash), self.buckets) + behind;
        let at = part * self.buckets + if first < self.buckets { first } else { 0 };
        &self.words[at * WIDTH..][..WIDTH]
    }
}

#[inline(always)]
fn find_in(bucket: &[AtomicU64], hash: u64) -> Option<u32> {
    let mut found = 0;
    for word in bucket {
        let word = load(word);
        // Compares all eight: that is faster than an unpredictable branch. If two match, the slot comes out wrong, which does no harm.
        found |= if (word >> 32) as u32 == hash as u32 { word as u32 } else { 0 };
    }
    found.checked_sub(1)
}

#[inline(always)]
const fn signpost(hash: u64, slot: u32) -> u64 {
    hash << 32 | (slot as u64 + 1)
}

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    // ORDERING: Relaxed. A guess, which is checked under the entry's or the stripe's lock.
    word.load(Ordering::Relaxed)
}

#[inline(always)]
fn store(word: &AtomicU64, content: u64) {
    // ORDERING: Relaxed. The stripe's lock admits one writer at a time; readers take the word for a guess.
    word.store(content, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A hash of good bits.
    fn hash(number: u64) -> u64 {
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn hardly_any_flow_does_without() {
        const SLOTS: u32 = if cfg!(miri) { 100 } else { 50_000 };
        let posts = Signposts::new(2, SLOTS as usize);
        let all = || (0..SLOTS).map(|slot| (hash(slot.into()), slot));
        all().for_each(|(hash, slot)| posts.set(1, hash, slot));
        let found = all().filter(|(hash, slot)| posts.find(1, *hash) == Some(*slot)).count();
        assert!(found >= SLOTS as usize - SLOTS as usize / 5_000, "{found} of {SLOTS} have a signpost");
        assert!(all().all(|(hash, _)| posts.find(0, hash).is_none()), "the other part has none");
        all().for_each(|(hash, slot)| posts.clear(1, hash, slot));
        assert!(all().all(|(hash, _)| posts.find(1, hash).is_none()));
        assert!(posts.words.iter().all(|word| load(word) == 0));
    }

    #[test]
    fn what_finds_no_room_does_without() {
        let posts = Signposts::new(1, 1);
        // One bucket, which is its own neighbour.
        (0..9).for_each(|slot| posts.set(0, u64::from(slot), slot));
        assert_eq!(posts.find(0, 7), Some(7));
        assert_eq!(posts.find(0, 8), None);
        posts.clear(0, 8, 8);
        posts.clear(0, 7, 7);
        posts.set(0, 8, 8);
        assert_eq!((posts.find(0, 7), posts.find(0, 8)), (None, Some(8)));
    }

    #[test]
    fn slot_0_under_hash_0_has_a_signpost() {
        let posts = Signposts::new(1, 4);
        assert_eq!(posts.find(0, 0), None);
        posts.set(0, 0, 0);
        assert_eq!(posts.find(0, 0), Some(0));
    }
}
