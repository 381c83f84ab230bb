//! Bucketised cuckoo hashing, plain and cuckoo++: buckets of one cache line with twelve one-byte tags and twelve slot numbers.
//!
//! Each key has two buckets (Pagh, Rodler: ESA '01). All tags of a bucket are compared at once, and the second bucket is computed from the
//! first and the tag (MemC3: Fan, Andersen, Kaminsky, NSDI '13; DPDK's `rte_hash` does the same). A full bucket is relieved by moving
//! entries along the shortest path (Li et al., EuroSys '14). Cuckoo++ (Le Scouarnec, ANCS '18) adds a filter to each bucket: a look-up
//! reads the second bucket only if the first says that such a key was moved there.

use crate::index::{Index, scale, tag_of, upper};
use crate::memory::{Filling, Region};
use crate::tags::Tags;
use locality::{CACHE_LINE, prefetch};

/// Places in a bucket.
const WIDTH: usize = 12;
const PLACES: u32 = (1 << WIDTH) - 1;
/// How many buckets displacement looks at before it gives up. At the load of a full table it needs two or three.
const NODES_MAX: usize = 64;

/// A bucket. All zeros is empty.
#[repr(C, align(64))]
struct Bucket {
    /// Bytes 0 to 11 are the tags, 0 for a free place. The rest is the filter. Bytes 12 and 13: a bit for each place that holds a guest, a
    /// key whose first bucket is another one; above these bits the number of strays, keys of this first bucket that lie in their second.
    /// Bytes 14 and 15: a bit for each tag modulo 16 that a stray may have.
    head: Tags,
    slots: [u32; WIDTH],
}

const _: () = assert!(size_of::<Bucket>() == CACHE_LINE);

/// Where a hash leads: its first bucket and its tag.
#[derive(Clone, Copy)]
struct Home {
    bucket: usize,
    tag: u8,
}

/// The index. Without the filter (`NOTES`) a look-up that fails in the first bucket always reads the second.
pub struct Buckets<const NOTES: bool> {
    region: Region,
    count: usize,
}

/// Plain bucketised cuckoo hashing.
pub type Cuckoo = Buckets<false>;
/// Cuckoo hashing with a filter that spares a miss the second bucket (cuckoo++).
pub type CuckooPp = Buckets<true>;

impl<const NOTES: bool> Index for Buckets<NOTES> {
    type Choice = ();

    /// Low enough that few keys are in their second buckets; at 80 % inserting and removing a flow takes a tenth longer.
    fn load_percent((): ()) -> usize {
        66
    }

    /// A few buckets more than needed let small tables fill up too. The number is odd, so that for any tag exactly one bucket is its own
    /// second one.
    fn new((): (), places: usize) -> Self {
        let count = (places.div_ceil(WIDTH) + 4) | 1;
        Self { region: Region::zeroed(count * size_of::<Bucket>(), Filling::Scattered), count }
    }

    #[inline(always)]
    fn assigns(&self) -> bool {
        false
    }

    fn places(&self) -> usize {
        self.count * WIDTH
    }

    fn bytes(&self) -> usize {
        self.region.bytes()
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        let Home { bucket, tag } = self.home(hash);
        self.prefetch_bucket(bucket);
        if !NOTES {
            self.prefetch_bucket(self.other(bucket, tag));
        }
    }

    #[inline(always)]
    fn guess(&self, hash: u64, mut prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        let Home { bucket, tag } = self.home(hash);
        let first = self.bucket(bucket);
        let guess = first.guess(first.head.matches(tag) & PLACES, &mut prefetch_slot);
        if guess.is_some() {
            return guess;
        }
        if NOTES && !first.may_stray(tag) {
            self.prefetch_spare(bucket, tag);
            return None;
        }
        let second = self.bucket(self.other(bucket, tag));
        second.guess(second.head.matches(tag) & if NOTES { second.guests() } else { PLACES }, &mut prefetch_slot)
    }

    #[inline(always)]
    fn guess_any(&self, hash: u64, mut prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        let Home { bucket, tag } = self.home(hash);
        let first = self.bucket(bucket);
        let mask = first.head.matches(tag) & PLACES;
        let strays = if NOTES { u32::from(first.strays()) } else { 1 };
        let others = mask & mask.wrapping_sub(1);
        if others | if mask == 0 { strays } else { 0 } != 0 {
            return self.guess_apart(hash, prefetch_slot);
        }
        // If no tag matches, the entry at the last place.
        let guess = first.slot(mask | 1 << (WIDTH - 1));
        prefetch_slot(guess);
        (mask != 0).then_some(guess)
    }

    #[inline(always)]
    fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let Home { bucket, tag } = self.home(hash);
        let first = self.bucket(bucket);
        let found = first.find(first.head.matches(tag) & PLACES, &mut is_it);
        if found.is_some() || NOTES && !first.may_stray(tag) {
            return found;
        }
        let second = self.bucket(self.other(bucket, tag));
        second.find(second.head.matches(tag) & if NOTES { second.guests() } else { PLACES }, &mut is_it)
    }

    #[inline]
    fn insert(&mut self, hash: u64, free: u32) -> Option<u32> {
        let Home { bucket, tag } = self.home(hash);
        if let Some(place) = self.bucket(bucket).vacant() {
            self.bucket_mut(bucket).put(place, tag, free, false);
            return Some(free);
        }
        self.insert_elsewhere(bucket, tag, free).then_some(free)
    }

    fn prefetch_removal(&self, hash: u64, slot: u32) {
        let Home { bucket, tag } = self.home(hash);
        if NOTES && self.bucket(bucket).place_of(tag, slot).is_none() {
            self.prefetch_bucket(self.other(bucket, tag));
        }
    }

    #[inline]
    fn remove(&mut self, hash: u64, slot: u32) -> bool {
        let Home { bucket, tag } = self.home(hash);
        if let Some(place) = self.bucket(bucket).place_of(tag, slot) {
            self.bucket_mut(bucket).clear(place);
            return true;
        }
        let second = self.other(bucket, tag);
        let Some(place) = self.bucket(second).place_of(tag, slot) else { return false };
        self.bucket_mut(second).clear(place);
        self.bucket_mut(bucket).remove_stray();
        true
    }

    fn collapse(&self, piece: usize) -> bool {
        self.region.collapse(piece)
    }

    fn neighbours(&self, hash: u64, mut see: impl FnMut(u32)) {
        let Home { bucket, tag } = self.home(hash);
        for bucket in [bucket, self.other(bucket, tag)] {
            let bucket = self.bucket(bucket);
            let mut mask = !bucket.head.matches(0) & PLACES;
            while mask != 0 {
                see(bucket.slot(mask));
                mask &= mask - 1;
            }
        }
    }
}

impl<const NOTES: bool> Buckets<NOTES> {
    #[inline(always)]
    fn prefetch_bucket(&self, bucket: usize) {
        prefetch::address(self.region.base().as_ptr().wrapping_add(bucket * size_of::<Bucket>()));
    }

    /// Prefetches the second bucket if the first is full: the hash is absent, so a new flow will be inserted. Not inlined, since that slows
    /// down look-ups of present keys.
    #[inline(never)]
    fn prefetch_spare(&self, bucket: usize, tag: u8) {
        if self.bucket(bucket).vacant().is_none() {
            self.prefetch_bucket(self.other(bucket, tag));
        }
    }

    /// The guess if several tags match, or if some keys of this home are in their second bucket.
    #[inline(never)]
    fn guess_apart(&self, hash: u64, prefetch_slot: impl FnMut(u32)) -> Option<u32> {
        self.guess(hash, prefetch_slot)
    }

    #[cold]
    fn insert_elsewhere(&mut self, first: usize, tag: u8, slot: u32) -> bool {
        let second = self.other(first, tag);
        let (bucket, place) = match self.bucket(second).vacant() {
            Some(place) => (second, place),
            None => match self.make_room(first, second) {
                Some(room) => room,
                None => return false,
            },
        };
        self.bucket_mut(bucket).put(place, tag, slot, bucket != first);
        if bucket != first {
            self.bucket_mut(first).add_stray(tag);
        }
        true
    }

    /// Frees a place in one of the two full buckets, by moving entries to their other buckets along the shortest path.
    fn make_room(&mut self, first: usize, second: usize) -> Option<(usize, usize)> {
        let mut path = Path { nodes: [Node::default(); NODES_MAX], len: 0 };
        path.push(first, 0, 0);
        if second != first {
            path.push(second, 1, 0);
        }
        let mut at = 0;
        while at < path.len {
            let bucket = path.nodes[at].bucket;
            for place in 0..WIDTH {
                let target = self.other(bucket, self.bucket(bucket).head.0[place]);
                if target == bucket {
                    continue;
                }
                if let Some(vacant) = self.bucket(target).vacant() {
                    return Some(self.shift(&path, at, place, (target, vacant)));
                }
                path.push(target, at, place);
            }
            at += 1;
        }
        None
    }

    /// Moves the entry at `place` of node `at` to the vacant place, the parent's entry to the place that this frees, and so on. Returns the
    /// bucket and place that are free at the end.
    fn shift(&mut self, path: &Path, mut at: usize, mut place: usize, mut vacant: (usize, usize)) -> (usize, usize) {
        loop {
            let node = path.nodes[at];
            self.relocate((node.bucket, place), vacant);
            vacant = (node.bucket, place);
            if at == node.parent {
                return vacant;
            }
            (at, place) = (node.parent, node.place);
        }
    }

    /// Moves an entry from one of its buckets to the other.
    fn relocate(&mut self, from: (usize, usize), to: (usize, usize)) {
        let source = self.bucket_mut(from.0);
        let (tag, slot) = (source.head.0[from.1], source.slots[from.1]);
        let was_guest = source.guests() & 1 << from.1 != 0;
        source.clear(from.1);
        self.bucket_mut(to.0).put(to.1, tag, slot, !was_guest);
        if was_guest {
            self.bucket_mut(to.0).remove_stray();
        } else {
            self.bucket_mut(from.0).add_stray(tag);
        }
    }

    /// The bucket comes from the upper half of the hash, the tag from the lowest byte.
    #[inline(always)]
    const fn home(&self, hash: u64) -> Home {
        Home { bucket: scale(upper(hash), self.count), tag: tag_of(hash) }
    }

    /// The other bucket of a key with this tag that may be in `bucket`; its own inverse.
    #[inline(always)]
    const fn other(&self, bucket: usize, tag: u8) -> usize {
        // The sum of the two bucket numbers, modulo the number of buckets, depends on the tag alone.
        let sum = scale((tag as u32).wrapping_mul(0x9e37_79b1), self.count);
        if sum >= bucket { sum - bucket } else { sum + self.count - bucket }
    }

    /// Unchecked, since a bounds check here slows down every look-up (`cargo bench -p millrace-flow --bench table`).
    #[inline(always)]
    fn bucket(&self, at: usize) -> &Bucket {
        debug_assert!(at < self.count);
        // SAFETY: bucket numbers come from `scale` and `other` alone, which are below `count`; the region holds that
        // many buckets, and zeros are a bucket.
        unsafe { self.region.base().cast::<Bucket>().add(at).as_ref() }
    }

    #[inline(always)]
    fn bucket_mut(&mut self, at: usize) -> &mut Bucket {
        debug_assert!(at < self.count);
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { self.region.base().cast::<Bucket>().add(at).as_mut() }
    }
}

impl Bucket {
    /// The first entry at the places in `mask` that `is_it` accepts.
    #[inline(always)]
    fn find(&self, mut mask: u32, is_it: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        while mask != 0 {
            let slot = self.slot(mask);
            if is_it(slot) {
                return Some(slot);
            }
            mask &= mask - 1;
        }
        None
    }

    /// The first entry at the places in `mask`. Calls `prefetch_slot` for all of them.
    #[inline(always)]
    fn guess(&self, mask: u32, prefetch_slot: &mut impl FnMut(u32)) -> Option<u32> {
        if mask == 0 {
            return None;
        }
        let guess = self.slot(mask);
        prefetch_slot(guess);
        let mut others = mask & (mask - 1);
        // With this bound compilers remove the loop if `prefetch_slot` does nothing.
        for _ in 1..WIDTH {
            if others == 0 {
                break;
            }
            prefetch_slot(self.slot(others));
            others &= others - 1;
        }
        Some(guess)
    }

    /// The entry at the first place in `mask`.
    #[inline(always)]
    fn slot(&self, mask: u32) -> u32 {
        debug_assert!(mask != 0 && mask <= PLACES);
        // SAFETY: callers mask by `PLACES` or by `guests`, which has no other bits, and test for 0.
        unsafe { *self.slots.get_unchecked(mask.trailing_zeros() as usize) }
    }

    /// A free place.
    #[inline]
    fn vacant(&self) -> Option<usize> {
        let mask = self.head.matches(0) & PLACES;
        (mask != 0).then_some(mask.trailing_zeros() as usize)
    }

    #[inline]
    fn place_of(&self, tag: u8, slot: u32) -> Option<usize> {
        let mut mask = self.head.matches(tag) & PLACES;
        while mask != 0 {
            if self.slot(mask) == slot {
                return Some(mask.trailing_zeros() as usize);
            }
            mask &= mask - 1;
        }
        None
    }

    fn put(&mut self, place: usize, tag: u8, slot: u32, is_guest: bool) {
        self.head.0[place] = tag;
        self.slots[place] = slot;
        self.set_guest(place, is_guest);
    }

    fn clear(&mut self, place: usize) {
        self.head.0[place] = 0;
        self.set_guest(place, false);
    }

    /// True if a key with this tag and this first bucket may be in its second.
    #[inline(always)]
    const fn may_stray(&self, tag: u8) -> bool {
        self.strays() >> (tag % 16) & 1 != 0
    }

    /// The filter of the tags of strays.
    #[inline(always)]
    const fn strays(&self) -> u16 {
        u16::from_le_bytes([self.head.0[14], self.head.0[15]])
    }

    /// Counts a key of this tag that went to its second bucket.
    fn add_stray(&mut self, tag: u8) {
        let filter = self.strays() | 1 << (tag % 16);
        self.head.0[14..].copy_from_slice(&filter.to_le_bytes());
        if self.head.0[13] < 0xf0 {
            self.head.0[13] += 0x10;
        }
    }

    /// Uncounts a key that left its second bucket. At 0 the filter is cleared. A count at its limit stays there.
    fn remove_stray(&mut self) {
        if self.head.0[13] < 0xf0 {
            self.head.0[13] -= 0x10;
            if self.head.0[13] < 0x10 {
                self.head.0[14..].fill(0);
            }
        }
    }

    /// The places of guests: keys whose first bucket is another one.
    #[inline(always)]
    const fn guests(&self) -> u32 {
        u16::from_le_bytes([self.head.0[12], self.head.0[13]]) as u32 & PLACES
    }

    fn set_guest(&mut self, place: usize, is_guest: bool) {
        let byte = &mut self.head.0[12 + place / 8];
        *byte = *byte & !(1 << (place % 8)) | u8::from(is_guest) << (place % 8);
    }
}

/// The buckets that displacement has visited, breadth first.
struct Path {
    nodes: [Node; NODES_MAX],
    len: usize,
}

/// A visited bucket, and the place in its parent whose entry could move here. Roots are their own parents.
#[derive(Clone, Copy, Default)]
struct Node {
    bucket: usize,
    parent: usize,
    place: usize,
}

impl Path {
    fn push(&mut self, bucket: usize, parent: usize, place: usize) {
        if self.len < NODES_MAX {
            self.nodes[self.len] = Node { bucket, parent, place };
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::vec::Vec;

    use super::*;

    fn mix(number: u64) -> u64 {
        let product = u128::from(number ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        (product >> 64) as u64 ^ product as u64
    }

    impl CuckooPp {
        /// Every bucket's notes of guests and strays agree with where the keys are.
        fn check(&self, hashes: &HashMap<u32, u64>) {
            let mut strays = std::vec![0; self.count];
            let mut found = 0;
            for at in 0..self.count {
                let bucket = self.bucket(at);
                for place in (0..WIDTH).filter(|place| bucket.head.0[*place] != 0) {
                    found += 1;
                    let home = self.home(hashes[&bucket.slots[place]]);
                    assert_eq!(bucket.head.0[place], home.tag);
                    let is_guest = at != home.bucket;
                    assert_eq!(bucket.guests() >> place & 1 == 1, is_guest);
                    if is_guest {
                        assert_eq!(at, self.other(home.bucket, home.tag));
                        assert!(self.bucket(home.bucket).may_stray(home.tag));
                        strays[home.bucket] += 1;
                    }
                }
            }
            assert_eq!(found, hashes.len());
            for (at, strays) in strays.into_iter().enumerate() {
                let noted = usize::from(self.bucket(at).head.0[13] >> 4);
                // Once at its limit, a count stays there.
                assert!(noted == strays || noted == 15);
            }
        }
    }

    #[test]
    fn the_other_of_the_other_is_the_first() {
        for capacity in [0, 1, 100, if cfg!(miri) { 200 } else { 12_345 }] {
            let index = CuckooPp::new((), capacity * 3 / 2);
            for tag in (1..=255).step_by(if cfg!(miri) { 50 } else { 1 }) {
                let mut own = 0;
                for bucket in 0..index.count {
                    let other = index.other(bucket, tag);
                    assert!(other < index.count);
                    assert_eq!(index.other(other, tag), bucket);
                    own += usize::from(other == bucket);
                }
                assert_eq!(own, 1);
            }
        }
    }

    /// Far beyond the load of a full table, until nothing fits, then out again, over and over.
    #[test]
    fn displacement_loses_nobody_and_keeps_the_notes() {
        let capacity = if cfg!(miri) { 60 } else { 3000 };
        let mut index = CuckooPp::new((), capacity * 3 / 2);
        let mut hashes = HashMap::new();
        let mut order = Vec::new();
        for round in 0..4 {
            let mut slot = round * 1_000_000;
            while index.insert(mix(slot.into()), slot).is_some() {
                hashes.insert(slot, mix(slot.into()));
                order.push(slot);
                slot += 1;
            }
            assert!(hashes.len() * 100 > index.count * WIDTH * 97, "nearly every place is taken before one is missing");
            index.check(&hashes);
            for (slot, hash) in &hashes {
                assert_eq!(index.find(*hash, |other| other == *slot), Some(*slot));
            }
            let keep = if round == 3 { 0 } else { order.len() / 3 };
            for slot in order.drain(..order.len() - keep) {
                assert!(index.remove(hashes.remove(&slot).expect("it is in"), slot));
                assert!(!index.remove(mix(slot.into()), slot));
            }
            index.check(&hashes);
        }
        for at in 0..index.count {
            assert!(index.bucket(at).head.0[..12].iter().all(|tag| *tag == 0));
        }
    }

    #[test]
    fn equal_hashes_end_in_a_refusal() {
        let mut index = CuckooPp::new((), 1500);
        let fit = (0..100).take_while(|slot| index.insert(7 << 32 | 7, *slot).is_some()).count();
        assert_eq!(fit, 2 * WIDTH);
        for slot in 0..fit as u32 {
            assert_eq!(index.find(7 << 32 | 7, |other| other == slot), Some(slot));
            assert!(index.remove(7 << 32 | 7, slot));
        }
        assert_eq!(index.find(7 << 32 | 7, |_| true), None);
    }
}
