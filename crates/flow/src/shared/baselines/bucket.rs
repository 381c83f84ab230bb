//! Buckets under a seqlock (Lameter, 2005; in the memory model of C++ and Rust: Boehm, "Can seqlocks get along with programming language
//! memory models?", MSPC '12). The version is odd while a writer is inside. Readers write nothing: they read the words between two reads of
//! the version, and the result is valid if both reads gave the same even number.
//!
//! All words are atomics with Relaxed accesses. So a reader that overlaps with a writer reads inconsistent words, which it discards,
//! without a data race.

use core::marker::PhantomData;
use core::ops::Deref;

use locality::{CACHE_LINE, prefetch};
use packet::{Nanos, Words};

use crate::shared::sync::{AtomicU64, Ordering, Pause, broken, fence};
use crate::tags::equal_bytes;

/// The version: odd while a writer is inside; it grows by 2 with each writer that changed anything.
const VERSION: usize = 0;
/// The tags: a byte for each place, 0 if the place is free.
const TAGS: usize = 1;
/// Bits 0 to 7: the places that hold guests, entries whose first bucket is another one. Bits 16 to 31: the number of strays, entries of
/// this first bucket that lie in their second. Bits 32 to 63: a filter of the strays' tags modulo 32.
const STRAYS: usize = 2;
const HEAD: usize = 3;

const STRAY: u64 = 1 << 16;
const STRAY_COUNT: u64 = 0xffff * STRAY;
const FILTER: u32 = 32;

/// A bucket of `WIDTH` places. An entry is its deadline, its key and its value.
pub(super) struct Bucket<'a, K, V, const WIDTH: usize> {
    words: &'a [AtomicU64],
    entries: PhantomData<fn() -> (K, V)>,
}

impl<K, V, const WIDTH: usize> Clone for Bucket<'_, K, V, WIDTH> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V, const WIDTH: usize> Copy for Bucket<'_, K, V, WIDTH> {}

impl<'a, K: Words, V: Words, const WIDTH: usize> Bucket<'a, K, V, WIDTH> {
    const ENTRY: usize = 1 + K::COUNT + V::COUNT;
    /// Words from one bucket to the next: whole cache lines, except under the model checker, where every word counts.
    pub(super) const STRIDE: usize = {
        assert!(WIDTH >= 1 && WIDTH <= 8, "a bucket has 1 to 8 places");
        (HEAD + WIDTH * Self::ENTRY).next_multiple_of(if cfg!(loom) { 1 } else { CACHE_LINE / size_of::<u64>() })
    };
    const PLACES: u32 = (1 << WIDTH) - 1;

    /// Bucket number `at`.
    #[inline(always)]
    pub(super) fn of(words: &'a [AtomicU64], at: usize) -> Self {
        Self { words: &words[at * Self::STRIDE..][..Self::STRIDE], entries: PhantomData }
    }

    /// The version for a read; `None` while a writer is inside.
    #[inline(always)]
    pub(super) fn version(&self) -> Option<u64> {
        // ORDERING: Acquire pairs with the Release in `BucketGuard::drop`: the words are at least as new as this version.
        let version = self.words[VERSION].load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// True if all words read since [`version`](Self::version) belong to this version.
    #[inline(always)]
    pub(super) fn is_still(&self, version: u64) -> bool {
        if broken!(Unchecked) {
            return true;
        }
        if !broken!(LateWords) {
            // ORDERING: Acquire pairs with the Release fence in `lock`: if this core read a word of a writer, the load below sees that
            // writer's odd version or a later one.
            fence(Ordering::Acquire);
        }
        // ORDERING: Relaxed. The fence keeps it behind the words.
        self.words[VERSION].load(Ordering::Relaxed) == version
    }

    /// Locks the bucket against other writers. Readers retry if anything changes.
    #[inline]
    pub(super) fn lock(self) -> BucketGuard<'a, K, V, WIDTH> {
        let mut pause = Pause::default();
        let lock = &self.words[VERSION];
        loop {
            // ORDERING: Relaxed. Only a guess; the exchange decides.
            let version = lock.load(Ordering::Relaxed);
            // ORDERING: Acquire pairs with the Release in `BucketGuard::drop`, so this core sees the last writer's words. Relaxed on
            // failure: nothing is read then.
            let exchange = |odd| lock.compare_exchange_weak(version, odd, Ordering::Acquire, Ordering::Relaxed);
            if version.is_multiple_of(2) && exchange(version + 1).is_ok() {
                if !broken!(EarlyWords) {
                    // ORDERING: Release pairs with the Acquire fence in `is_still`: a reader that sees a word written from here on also
                    // sees the odd version.
                    fence(Ordering::Release);
                }
                return BucketGuard { bucket: self, version, is_changed: false };
            }
            pause.wait();
        }
    }

    /// The place in `mask` whose entry has this tag and key.
    #[inline(always)]
    pub(super) fn find(&self, tag: u8, key: &[u64], mask: u32) -> Option<usize> {
        let mut mask = equal_bytes(self.tags(), tag) & mask & Self::PLACES;
        while mask != 0 {
            let place = mask.trailing_zeros() as usize;
            let words = &self.entry(place)[1..=K::COUNT];
            if words.iter().zip(key).all(|(word, key)| load(word) == *key) {
                return Some(place);
            }
            mask &= mask - 1;
        }
        None
    }

    #[inline(always)]
    pub(super) fn deadline(&self, place: usize) -> Nanos {
        Nanos(load(&self.entry(place)[0]))
    }

    /// The words of the value. A reader must check the version before it makes a value of them.
    #[inline(always)]
    pub(super) fn value(&self, place: usize) -> V::Array {
        let mut value = V::ZEROS;
        for (to, from) in value.as_mut().iter_mut().zip(&self.entry(place)[1 + K::COUNT..]) {
            *to = load(from);
        }
        value
    }

    /// A free place.
    #[inline]
    pub(super) fn vacant(&self) -> Option<usize> {
        let mask = equal_bytes(self.tags(), 0) & Self::PLACES;
        (mask != 0).then_some(mask.trailing_zeros() as usize)
    }

    /// A bit mask of the places that are taken.
    #[inline]
    pub(super) fn taken(&self) -> u32 {
        !equal_bytes(self.tags(), 0) & Self::PLACES
    }

    /// The tag at the place; 0 if it is free.
    #[inline]
    pub(super) fn tag(&self, place: usize) -> u8 {
        (self.tags() >> (place * 8)) as u8
    }

    /// A bit mask of the places that hold guests.
    #[inline(always)]
    pub(super) fn guests(&self) -> u32 {
        load(&self.words[STRAYS]) as u32 & 0xff
    }

    /// True if a key with this tag and this first bucket may lie in its second. There are no false negatives.
    #[inline(always)]
    pub(super) fn may_stray(&self, tag: u8) -> bool {
        load(&self.words[STRAYS]) >> FILTER & 1 << (tag % 32) != 0
    }

    /// Prefetches the bucket's head.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        prefetch::address(self.words.as_ptr().cast());
    }

    /// Prefetches the entries with this tag.
    #[inline(always)]
    pub(super) fn prefetch_entries(&self, tag: u8) {
        let mut mask = equal_bytes(self.tags(), tag) & Self::PLACES;
        while mask != 0 {
            let entry = self.entry(mask.trailing_zeros() as usize).as_ptr_range();
            let mut line = entry.start.cast::<u8>();
            while line < entry.end.cast() {
                prefetch::address(line);
                line = line.wrapping_add(CACHE_LINE);
            }
            // An entry that isn't aligned may span one line more.
            prefetch::address(entry.end.cast::<u8>().wrapping_sub(1));
            mask &= mask - 1;
        }
    }

    #[inline(always)]
    fn tags(&self) -> u64 {
        load(&self.words[TAGS])
    }

    #[inline(always)]
    fn entry(&self, place: usize) -> &'a [AtomicU64] {
        &self.words[HEAD + place * Self::ENTRY..][..Self::ENTRY]
    }
}

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    // ORDERING: Relaxed. Readers are ordered by the Acquire load of the version before and the Acquire fence behind. Writers are ordered by
    // the exchange in `lock`. Guesses are checked under the lock.
    word.load(Ordering::Relaxed)
}

#[inline(always)]
fn store(word: &AtomicU64, content: u64) {
    // ORDERING: Relaxed. The store lies between the Release fence in `lock` and the Release store in `BucketGuard::drop`, which pair with
    // the reader's accesses.
    word.store(content, Ordering::Relaxed);
}

/// A bucket locked against other writers until this is dropped.
pub(super) struct BucketGuard<'a, K, V, const WIDTH: usize> {
    bucket: Bucket<'a, K, V, WIDTH>,
    /// The version before locking.
    version: u64,
    is_changed: bool,
}

impl<'a, K, V, const WIDTH: usize> Deref for BucketGuard<'a, K, V, WIDTH> {
    type Target = Bucket<'a, K, V, WIDTH>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.bucket
    }
}

impl<K, V, const WIDTH: usize> Drop for BucketGuard<'_, K, V, WIDTH> {
    /// An unchanged bucket gets its old version back, so that readers needn't retry.
    #[inline]
    fn drop(&mut self) {
        let version = if self.is_changed { self.version + 2 } else { self.version };
        let order = if broken!(EarlyVersion) { Ordering::Relaxed } else { Ordering::Release };
        // ORDERING: Release pairs with the Acquire in `version` and in `lock`: a core that sees this version sees the words.
        self.bucket.words[VERSION].store(version, order);
    }
}

impl<K: Words, V: Words, const WIDTH: usize> BucketGuard<'_, K, V, WIDTH> {
    /// Puts an entry at a free place.
    #[inline]
    pub(super) fn put(&mut self, place: usize, tag: u8, is_guest: bool, key: &[u64], value: &[u64], deadline: Nanos) {
        for (word, key) in self.entry(place)[1..].iter().zip(key) {
            store(word, *key);
        }
        self.set(place, value, deadline);
        self.set_head(place, tag, is_guest);
    }

    /// Sets the entry's value and deadline.
    #[inline]
    pub(super) fn set(&mut self, place: usize, value: &[u64], deadline: Nanos) {
        self.is_changed = true;
        let entry = self.entry(place);
        store(&entry[0], deadline.0);
        for (word, value) in entry[1 + K::COUNT..].iter().zip(value) {
            store(word, *value);
        }
    }

    /// Copies an entry of the other bucket to a free place.
    pub(super) fn copy(&mut self, place: usize, from: &Self, from_place: usize, is_guest: bool) {
        for (to, from) in self.entry(place).iter().zip(from.entry(from_place)) {
            store(to, load(from));
        }
        self.set_head(place, from.tag(from_place), is_guest);
    }

    /// Frees a place.
    #[inline]
    pub(super) fn clear(&mut self, place: usize) {
        self.set_head(place, 0, false);
    }

    fn set_head(&mut self, place: usize, tag: u8, is_guest: bool) {
        self.is_changed = true;
        let at = place * 8;
        store(&self.words[TAGS], self.tags() & !(0xff << at) | u64::from(tag) << at);
        let strays = load(&self.words[STRAYS]);
        let with = strays & !(1 << place) | u64::from(is_guest) << place;
        if with != strays {
            store(&self.words[STRAYS], with);
        }
    }

    /// Counts an entry of this tag that went to its second bucket.
    pub(super) fn add_stray(&mut self, tag: u8) {
        self.is_changed = true;
        let strays = load(&self.words[STRAYS]);
        debug_assert!(strays & STRAY_COUNT != STRAY_COUNT, "a bucket's strays fit in its 255 partners");
        store(&self.words[STRAYS], (strays + STRAY) | 1 << (u32::from(tag % 32) + FILTER));
    }

    /// Uncounts a stray. At 0 the filter is cleared.
    pub(super) fn remove_stray(&mut self) {
        self.is_changed = true;
        let strays = load(&self.words[STRAYS]);
        debug_assert!(strays & STRAY_COUNT != 0, "every stray was counted");
        let strays = strays - STRAY;
        let filter = u64::MAX << FILTER;
        store(&self.words[STRAYS], if strays & STRAY_COUNT == 0 { strays & !filter } else { strays });
    }
}
