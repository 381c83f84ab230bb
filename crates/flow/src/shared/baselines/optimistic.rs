//! Optimistic concurrent cuckoo hashing: readers never write, and retry if a writer interfered (MemC3: Fan, Andersen, Kaminsky, NSDI '13;
//! CuckooSwitch: Zhou et al., CoNEXT '13). Each bucket has a seqlock. Displacement follows the shortest path, one entry at a time under two
//! locks (libcuckoo: Li et al., EuroSys '14). A filter spares most misses the second bucket (cuckoo++: Le Scouarnec, ANCS '18).
//!
//! With displacement, two buckets of eight fill to 95 %; without, insertions fail from about 70 % on. It costs nothing until both buckets
//! are full, and the search for a path takes no lock.
//!
//! An operation that needs both buckets of an entry locks both, the lower one first, so writers don't deadlock. An entry moves under both
//! locks, so a reader can miss it only if a version changed.

use core::marker::PhantomData;

use packet::{Key, Nanos, Words};

use crate::index::{scale, tag_of, upper};
use crate::shared::baselines::bucket::{Bucket, BucketGuard};
use crate::shared::baselines::path::{Move, Path};
use crate::shared::sync::{AtomicWords, Pause, broken};
use crate::shared::{Insertion, SharedTable};

/// The load factor in percent at the table's capacity.
const LOAD_PERCENT: usize = 90;
/// How often an insertion retries after others took the place that it had freed.
const TRIES: usize = 8;

/// A concurrent cuckoo hash table with buckets of `WIDTH` places. Entries lie in the buckets, so a hit reads the bucket's head and the
/// entry.
///
/// Keys and values are stored as [`Words`]. A core that waits for a writer spins. A writer locks a bucket for one operation.
pub struct Optimistic<K, V, const WIDTH: usize = 8> {
    words: AtomicWords,
    count: usize,
    seed: u64,
    entries: PhantomData<fn() -> (K, V)>,
}

/// The first bucket and the tag of a hash.
#[derive(Clone, Copy)]
struct Home {
    first: usize,
    tag: u8,
}

/// Both buckets of an entry, locked; one if they are the same.
struct BucketPair<'a, K, V, const WIDTH: usize> {
    first: BucketGuard<'a, K, V, WIDTH>,
    second: Option<BucketGuard<'a, K, V, WIDTH>>,
}

impl<K: Key + Words, V: Words, const WIDTH: usize> Optimistic<K, V, WIDTH> {
    /// An empty table of so many buckets, or one more. The number is odd, so that for any tag exactly one bucket is its own second one.
    /// `seed` is the hash seed.
    ///
    /// # Panics
    /// If that is 2^31 places or more, and if memory runs out.
    #[must_use]
    pub fn with_buckets(buckets: usize, seed: u64) -> Self {
        let count = buckets | 1;
        assert!(count < (1 << 31) / WIDTH, "a table has fewer than 2^31 places");
        Self { words: AtomicWords::zeroed(count * Bucket::<K, V, WIDTH>::STRIDE), count, seed, entries: PhantomData }
    }

    /// An empty table for `capacity` flows at the given load.
    ///
    /// # Panics
    /// As [`with_buckets`](Self::with_buckets) does, and when the load is not between 1 and 100.
    #[must_use]
    pub fn with_load(capacity: usize, load_percent: usize, seed: u64) -> Self {
        assert!((1..=100).contains(&load_percent), "a load is between 1 and 100 %");
        Self::with_buckets((capacity * 100).div_ceil(load_percent).div_ceil(WIDTH), seed)
    }

    /// The bucket comes from the upper half of the hash, the tag from the lowest byte.
    #[inline(always)]
    const fn home(&self, hash: u64) -> Home {
        Home { first: scale(upper(hash), self.count), tag: tag_of(hash) }
    }

    /// The other bucket of a key with this tag that may be in `bucket`; its own inverse.
    #[inline(always)]
    pub(super) const fn other(&self, bucket: usize, tag: u8) -> usize {
        let sum = scale((tag as u32).wrapping_mul(0x9e37_79b1), self.count);
        if sum >= bucket { sum - bucket } else { sum + self.count - bucket }
    }

    #[inline(always)]
    pub(super) fn bucket(&self, at: usize) -> Bucket<'_, K, V, WIDTH> {
        Bucket::of(&self.words, at)
    }

    /// Takes both locks, the lower bucket's first.
    fn lock_pair(&self, first: usize, second: usize) -> BucketPair<'_, K, V, WIDTH> {
        if first == second {
            return BucketPair { first: self.bucket(first).lock(), second: None };
        }
        let lower = self.bucket(first.min(second)).lock();
        let upper = self.bucket(first.max(second)).lock();
        let (first, second) = if first < second { (lower, upper) } else { (upper, lower) };
        BucketPair { first, second: Some(second) }
    }

    /// Reads the value of a flow that is alive, once; `None` if a writer interfered.
    #[inline(always)]
    fn look(&self, home: Home, key: &[u64], now: Nanos) -> Option<Option<V::Array>> {
        let Home { first, tag } = home;
        let bucket = self.bucket(first);
        let version = bucket.version()?;
        if let Some(place) = bucket.find(tag, key, u32::MAX) {
            let value = (bucket.deadline(place) > now).then(|| bucket.value(place));
            return bucket.is_still(version).then_some(value);
        }
        if !bucket.may_stray(tag) {
            return bucket.is_still(version).then_some(None);
        }
        let other = self.bucket(self.other(first, tag));
        let other_version = other.version()?;
        if let Some(place) = other.find(tag, key, other.guests()) {
            let value = (other.deadline(place) > now).then(|| other.value(place));
            return other.is_still(other_version).then_some(value);
        }
        // The flow may have moved from the second bucket to the first between the two reads.
        let still = other.is_still(other_version) && (broken!(HalfChecked) || bucket.is_still(version));
        still.then_some(None)
    }

    /// Runs `work` on the key's entry, expired or not, if there is one.
    #[inline]
    fn with_entry<T>(
        &self,
        home: Home,
        key: &[u64],
        work: impl FnOnce(FoundEntry<'_, '_, K, V, WIDTH>) -> T,
    ) -> Option<T> {
        let Home { first, tag } = home;
        {
            let mut bucket = self.bucket(first).lock();
            if let Some(place) = bucket.find(tag, key, u32::MAX) {
                return Some(work(FoundEntry { bucket: &mut bucket, place, home: None }));
            }
            if !bucket.may_stray(tag) {
                return None;
            }
        }
        let mut pair = self.lock_pair(first, self.other(first, tag));
        pair.locate(tag, key).map(work)
    }

    /// Adds a flow, or overwrites an expired one; `None` if both buckets are full.
    #[inline]
    fn try_insert(&self, home: Home, key: &[u64], value: &[u64], deadline: Nanos, now: Nanos) -> Option<Insertion> {
        let Home { first, tag } = home;
        {
            let mut bucket = self.bucket(first).lock();
            if let Some(place) = bucket.find(tag, key, u32::MAX) {
                return Some(FoundEntry { bucket: &mut bucket, place, home: None }.replace(value, deadline, now));
            }
            if let Some(place) = bucket.vacant()
                && !bucket.may_stray(tag)
            {
                bucket.put(place, tag, false, key, value, deadline);
                return Some(Insertion::Added);
            }
        }
        let mut pair = self.lock_pair(first, self.other(first, tag));
        if let Some(found) = pair.locate(tag, key) {
            return Some(found.replace(value, deadline, now));
        }
        if let Some(place) = pair.first.vacant() {
            pair.first.put(place, tag, false, key, value, deadline);
            return Some(Insertion::Added);
        }
        let second = pair.second.as_mut()?;
        let place = second.vacant()?;
        second.put(place, tag, true, key, value, deadline);
        pair.first.add_stray(tag);
        Some(Insertion::Added)
    }

    /// Frees a place in one of the two buckets; `false` if that is impossible. Others may take the place first.
    #[cold]
    fn make_room(&self, home: Home, now: Nanos) -> bool {
        let second = self.other(home.first, home.tag);
        self.clear_dead(home.first, now) + self.clear_dead(second, now) > 0 || self.displace(home.first, second)
    }

    /// Removes the expired flows of a bucket and returns how many.
    fn clear_dead(&self, at: usize, now: Nanos) -> usize {
        let bucket = self.bucket(at);
        let mut cleared = 0;
        for place in (0..WIDTH).filter(|place| bucket.taken() & 1 << place != 0 && bucket.deadline(*place) <= now) {
            let tag = bucket.tag(place);
            if tag == 0 {
                continue;
            }
            // The reads above took no lock, so check again.
            let BucketPair { first: mut held, second: mut other } = self.lock_pair(at, self.other(at, tag));
            if held.tag(place) == tag && held.deadline(place) <= now {
                if held.guests() & 1 << place != 0 {
                    let home = other.as_mut().expect("a guest's first bucket is another one");
                    home.remove_stray();
                }
                held.clear(place);
                cleared += 1;
            }
        }
        cleared
    }

    /// Frees a place in one of two full buckets by moving entries along the shortest path; `false` if there is no path. If others have
    /// changed the path meanwhile, the moves end early.
    fn displace(&self, first: usize, second: usize) -> bool {
        let Some(mut moves) = Path::search(self, first, second) else { return false };
        // If others made a move impossible, stop; the insertion tries again.
        let _ = moves.all(|step| self.relocate(step));
        true
    }

    /// Moves the entry at this place to its other bucket; `false` if its tag has changed or there is no free place.
    fn relocate(&self, Move { bucket, place, tag }: Move) -> bool {
        let (from, place) = (bucket as usize, place as usize);
        let BucketPair { first: mut source, second } = self.lock_pair(from, self.other(from, tag));
        let Some(mut target) = second else { return false };
        let Some(vacant) = target.vacant() else { return false };
        if source.tag(place) != tag {
            return false;
        }
        let was_guest = source.guests() & 1 << place != 0;
        target.copy(vacant, &source, place, !was_guest);
        source.clear(place);
        if was_guest {
            target.remove_stray();
        } else {
            source.add_stray(tag);
        }
        true
    }
}

/// An entry in a locked bucket, and its first bucket if that is another one.
struct FoundEntry<'h, 'a, K, V, const WIDTH: usize> {
    bucket: &'h mut BucketGuard<'a, K, V, WIDTH>,
    place: usize,
    home: Option<&'h mut BucketGuard<'a, K, V, WIDTH>>,
}

impl<K: Words, V: Words, const WIDTH: usize> FoundEntry<'_, '_, K, V, WIDTH> {
    fn is_alive(&self, now: Nanos) -> bool {
        self.bucket.deadline(self.place) > now
    }

    /// Overwrites an expired flow of the same key.
    fn replace(self, value: &[u64], deadline: Nanos, now: Nanos) -> Insertion {
        if self.is_alive(now) {
            return Insertion::Present;
        }
        self.bucket.set(self.place, value, deadline);
        Insertion::Added
    }

    fn remove(self) {
        self.bucket.clear(self.place);
        if let Some(home) = self.home {
            home.remove_stray();
        }
    }
}

impl<'a, K: Words, V: Words, const WIDTH: usize> BucketPair<'a, K, V, WIDTH> {
    /// The key's entry in either bucket.
    fn locate(&mut self, tag: u8, key: &[u64]) -> Option<FoundEntry<'_, 'a, K, V, WIDTH>> {
        if let Some(place) = self.first.find(tag, key, u32::MAX) {
            return Some(FoundEntry { bucket: &mut self.first, place, home: None });
        }
        let second = self.second.as_mut()?;
        let place = second.find(tag, key, second.guests())?;
        Some(FoundEntry { bucket: second, place, home: Some(&mut self.first) })
    }
}

impl<K: Key + Words, V: Words + 'static, const WIDTH: usize> SharedTable<K, V> for Optimistic<K, V, WIDTH> {
    /// An empty table at a load of 90 %, at which hardly any insertion fails.
    fn new(capacity: usize, seed: u64) -> Self {
        Self::with_load(capacity, LOAD_PERCENT, seed)
    }

    #[inline]
    fn hash(&self, key: &K) -> u64 {
        key.hash(self.seed)
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        self.bucket(self.home(hash).first).prefetch();
    }

    #[inline]
    fn prefetch_entry(&self, hash: u64) {
        let Home { first, tag } = self.home(hash);
        let bucket = self.bucket(first);
        bucket.prefetch_entries(tag);
        if bucket.may_stray(tag) {
            self.bucket(self.other(first, tag)).prefetch();
        }
    }

    #[inline]
    fn get(&self, key: &K, hash: u64, now: Nanos) -> Option<V> {
        let (home, key) = (self.home(hash), key.to_words());
        let mut pause = Pause::default();
        loop {
            if let Some(value) = self.look(home, key.as_ref(), now) {
                return value.map(V::from_words);
            }
            pause.wait();
        }
    }

    #[inline]
    fn update<T>(&self, key: &K, hash: u64, now: Nanos, change: impl FnOnce(&mut V, &mut Nanos) -> T) -> Option<T> {
        let updated =
            self.with_entry(self.home(hash), key.to_words().as_ref(), |FoundEntry { bucket, place, .. }| {
                let mut deadline = bucket.deadline(place);
                if deadline <= now {
                    return None;
                }
                // A copy, so that a panic in `change` leaves the flow as it was.
                let mut value = V::from_words(bucket.value(place));
                let result = change(&mut value, &mut deadline);
                bucket.set(place, value.to_words().as_ref(), deadline);
                Some(result)
            });
        updated.flatten()
    }

    #[inline]
    fn insert(&self, key: K, hash: u64, value: V, deadline: Nanos, now: Nanos) -> Insertion {
        let (home, key, value) = (self.home(hash), key.to_words(), value.to_words());
        for _ in 0..TRIES {
            if let Some(insertion) = self.try_insert(home, key.as_ref(), value.as_ref(), deadline, now) {
                return insertion;
            }
            if !self.make_room(home, now) {
                return Insertion::Full;
            }
        }
        Insertion::Full
    }

    #[inline]
    fn remove(&self, key: &K, hash: u64, now: Nanos) -> Option<V> {
        let removed = self.with_entry(self.home(hash), key.to_words().as_ref(), |found| {
            let value = found.is_alive(now).then(|| V::from_words(found.bucket.value(found.place)));
            found.remove();
            value
        });
        removed.flatten()
    }

    /// Removes expired flows of the first bucket of `hash`.
    #[inline]
    fn reclaim(&self, hash: u64, now: Nanos) -> usize {
        self.clear_dead(self.home(hash).first, now)
    }

    fn len(&self) -> usize {
        (0..self.count).map(|at| self.bucket(at).taken().count_ones() as usize).sum()
    }

    fn capacity(&self) -> usize {
        self.count * WIDTH
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.words)
    }
}
