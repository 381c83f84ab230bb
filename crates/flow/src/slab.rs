//! The entries themselves, at places that never change.
//!
//! What a packet reads and writes (key, value, deadline) is kept together and within one cache line where it fits; the
//! links of the lists follow in the entry's padding if there is room, and else live in an array of their own.

use core::marker::PhantomData;
use core::ptr::NonNull;

use packet::{Key, Nanos};

use crate::chain::{END, Links};
use crate::memory::{CACHE_LINE, Region, prefetch};

/// What a packet needs of an entry.
pub(crate) struct Hot<K, V> {
    /// The deadline; [`LATEST`] for none. The top bit says whether the flow is assured, so that asking costs no other
    /// cache line.
    word: u64,
    key: K,
    value: V,
}

const ASSURED: u64 = 1 << 63;
/// The deadline's part of the word.
const DEADLINE: u64 = ASSURED - 1;
/// The latest deadline that can be told, in the year 2262: it stands for [`Nanos::NEVER`].
const LATEST: u64 = DEADLINE - 1;
/// The word of an entry that is not in use. Being assured and later than all deadlines, it makes a stale slot's `assure`
/// do nothing and its `touch` end in a check.
const VACANT: u64 = u64::MAX;

/// Entries numbered from 0, some in use and the others on a free list.
pub(crate) struct Slab<K, V> {
    region: Region,
    hot: NonNull<u8>,
    links: NonNull<u8>,
    capacity: u32,
    /// Entries below this have been in use: their memory holds a key and a value.
    used: u32,
    /// The first of the free entries below `used`, or [`END`].
    free: u32,
    len: u32,
    entries: PhantomData<(K, V)>,
}

// SAFETY: the slab owns its entries, as a vector would.
unsafe impl<K: Send, V: Send> Send for Slab<K, V> {}
// SAFETY: a shared slab hands out shared references only.
unsafe impl<K: Sync, V: Sync> Sync for Slab<K, V> {}

impl<K: Key, V: Copy> Slab<K, V> {
    const HOT: usize = size_of::<Hot<K, V>>();
    /// A power of two up to a cache line, so that no entry crosses one; half lines above.
    const STRIDE: usize = {
        assert!(align_of::<Hot<K, V>>() <= CACHE_LINE / 2, "keys and values are aligned to half a cache line at most");
        if Self::HOT <= CACHE_LINE {
            Self::HOT.next_power_of_two()
        } else {
            (Self::HOT + size_of::<Links>()).next_multiple_of(CACHE_LINE / 2)
        }
    };
    const LINKS_INSIDE: bool = Self::STRIDE - Self::HOT >= size_of::<Links>();
    const LINKS_STRIDE: usize = if Self::LINKS_INSIDE { Self::STRIDE } else { size_of::<Links>() };

    /// Room for `capacity` entries.
    ///
    /// # Panics
    /// When that is more than 32 bits less two can number.
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity < END as usize, "a table holds fewer than 2^31 flows");
        let hot_bytes = (capacity * Self::STRIDE).next_multiple_of(align_of::<Links>());
        let links_bytes = if Self::LINKS_INSIDE { 0 } else { capacity * size_of::<Links>() };
        let region = Region::zeroed(hot_bytes + links_bytes);
        let hot = region.base();
        let offset = if capacity == 0 {
            0
        } else if Self::LINKS_INSIDE {
            Self::HOT
        } else {
            hot_bytes
        };
        // SAFETY: the offset lies within the region, or it is 0.
        let links = unsafe { hot.add(offset) };
        let capacity = capacity as u32;
        Self { region, hot, links, capacity, used: 0, free: END, len: 0, entries: PhantomData }
    }

    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The most entries that were in use at once: a fresh one is only taken when none is free.
    pub(crate) const fn used(&self) -> u32 {
        self.used
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.region.bytes()
    }

    /// The entry that the next [`take`](Self::take) takes; `None` when all are in use.
    #[inline]
    pub(crate) const fn vacant(&self) -> Option<u32> {
        if self.free != END {
            Some(self.free)
        } else if self.used < self.capacity {
            Some(self.used)
        } else {
            None
        }
    }

    /// Puts an unassured entry where [`vacant`](Self::vacant) said. It is on no list yet.
    #[inline]
    pub(crate) fn take(&mut self, key: K, value: V, deadline: Nanos) -> Option<u32> {
        let at = self.vacant()?;
        if at == self.free {
            self.free = self.links(at).wheel.next;
        } else {
            self.used += 1;
        }
        self.len += 1;
        let word = encode(deadline);
        // SAFETY: `at < used`, so the place lies within the region; the stride keeps it aligned.
        unsafe { self.place(at).write(Hot { word, key, value }) };
        *self.links_mut(at) = Links::LOOSE;
        Some(at)
    }

    /// Gives an entry back that is on no list any more.
    #[inline]
    pub(crate) fn give(&mut self, at: u32) {
        self.hot_mut(at).word = VACANT;
        let next = self.free;
        self.links_mut(at).wheel.next = next;
        self.free = at;
        self.len -= 1;
    }

    #[inline]
    pub(crate) fn is_live(&self, at: u32) -> bool {
        at < self.used && self.hot(at).word != VACANT
    }

    /// The entry at `at`, which may be any number, if it holds a flow of this key whose deadline is later than `now`. At
    /// the end of time a flow that has no deadline may be passed over.
    #[inline(always)]
    pub(crate) fn alive(&mut self, at: u32, key: &K, now: Nanos) -> Option<&mut Hot<K, V>> {
        if at >= self.used {
            return None;
        }
        let hot = self.hot_mut(at);
        let is_alive = hot.key == *key && hot.word & DEADLINE > now.0 && hot.word != VACANT;
        is_alive.then_some(hot)
    }

    #[inline]
    pub(crate) fn key(&self, at: u32) -> &K {
        &self.hot(at).key
    }

    #[inline]
    pub(crate) fn value(&self, at: u32) -> &V {
        &self.hot(at).value
    }

    #[inline]
    pub(crate) fn value_mut(&mut self, at: u32) -> &mut V {
        &mut self.hot_mut(at).value
    }

    #[inline]
    pub(crate) fn deadline(&self, at: u32) -> Nanos {
        let deadline = self.hot(at).word & DEADLINE;
        if deadline < LATEST { Nanos(deadline) } else { Nanos::NEVER }
    }

    /// Sets the deadline, unless it is earlier than the one that is set.
    #[inline]
    pub(crate) fn postpone(&mut self, at: u32, deadline: Nanos) -> bool {
        self.hot_mut(at).postpone(deadline)
    }

    /// Sets the deadline of an entry in use.
    pub(crate) fn set_deadline(&mut self, at: u32, deadline: Nanos) {
        let hot = self.hot_mut(at);
        hot.word = hot.word & ASSURED | encode(deadline);
    }

    #[inline]
    pub(crate) fn is_assured(&self, at: u32) -> bool {
        self.hot(at).word & ASSURED != 0
    }

    #[inline]
    pub(crate) fn set_assured(&mut self, at: u32) {
        self.hot_mut(at).word |= ASSURED;
    }

    #[inline]
    pub(crate) fn links(&self, at: u32) -> &Links {
        self.check(at);
        // SAFETY: checked to lie within the region, and written when the entry was first taken.
        unsafe { &*self.links_place(at) }
    }

    #[inline]
    pub(crate) fn links_mut(&mut self, at: u32) -> &mut Links {
        self.check(at);
        // SAFETY: as above, and `self` is borrowed uniquely. Zeroed memory is a value of `Links` too.
        unsafe { &mut *self.links_place(at) }
    }

    /// Brings what a packet needs of an entry near.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: u32) {
        let place = self.hot.as_ptr().wrapping_add(at as usize * Self::STRIDE);
        prefetch(place);
        // Entries of more than a line may begin in the middle of one, so the last byte says how far they reach.
        let mut line = CACHE_LINE;
        while line < Self::HOT {
            prefetch(place.wrapping_add(line));
            line += CACHE_LINE;
        }
    }

    /// Brings an entry's links near, if they are apart from the rest.
    #[inline(always)]
    pub(crate) fn prefetch_links(&self, at: u32) {
        if !Self::LINKS_INSIDE || Self::HOT > CACHE_LINE {
            prefetch(self.links.as_ptr().wrapping_add(at as usize * Self::LINKS_STRIDE));
        }
    }

    #[inline(always)]
    fn hot(&self, at: u32) -> &Hot<K, V> {
        self.check(at);
        // SAFETY: `at < used`, so a key and a value were written there; being `Copy`, they stay after removal.
        unsafe { &*self.place(at) }
    }

    /// What a packet needs of the entry.
    #[inline(always)]
    pub(crate) fn hot_mut(&mut self, at: u32) -> &mut Hot<K, V> {
        self.check(at);
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { &mut *self.place(at) }
    }

    /// Stops a slot of another table, as a slice stops an index past its end.
    #[inline(always)]
    fn check(&self, at: u32) {
        if at >= self.used {
            foreign_slot();
        }
    }

    #[inline(always)]
    fn place(&self, at: u32) -> *mut Hot<K, V> {
        self.hot.as_ptr().wrapping_add(at as usize * Self::STRIDE).cast()
    }

    #[inline(always)]
    fn links_place(&self, at: u32) -> *mut Links {
        self.links.as_ptr().wrapping_add(at as usize * Self::LINKS_STRIDE).cast()
    }
}

impl<K, V> Hot<K, V> {
    #[inline(always)]
    pub(crate) const fn value_mut(&mut self) -> &mut V {
        &mut self.value
    }

    #[inline(always)]
    pub(crate) const fn is_assured(&self) -> bool {
        self.word & ASSURED != 0
    }

    /// Sets the deadline, unless it is earlier than the one that is set.
    #[inline(always)]
    pub(crate) fn postpone(&mut self, deadline: Nanos) -> bool {
        let deadline = encode(deadline);
        let is_later = deadline >= self.word & DEADLINE;
        if is_later {
            self.word = self.word & ASSURED | deadline;
        }
        is_later
    }
}

#[inline(always)]
fn encode(deadline: Nanos) -> u64 {
    deadline.0.min(LATEST)
}

#[cold]
#[inline(never)]
fn foreign_slot() -> ! {
    panic!("the slot is not of this table")
}

#[cfg(test)]
mod tests {
    use packet::{FiveTuple4, FiveTuple6, Host4};

    use super::*;

    /// Bytes of an entry, links included.
    const fn entry_bytes<K: Key, V: Copy>() -> usize {
        let links = if Slab::<K, V>::LINKS_INSIDE { 0 } else { size_of::<Links>() };
        Slab::<K, V>::STRIDE + links
    }

    #[test]
    fn entries_are_small_and_cross_no_line() {
        assert_eq!(entry_bytes::<Host4, u32>(), 16 + 16);
        assert_eq!(entry_bytes::<Host4, u64>(), 32 + 16);
        assert_eq!(entry_bytes::<Host4, [u64; 2]>(), 32 + 16);
        assert_eq!(entry_bytes::<FiveTuple4, [u64; 2]>(), 64);
        assert_eq!(entry_bytes::<FiveTuple4, [u64; 3]>(), 64);
        assert_eq!(entry_bytes::<FiveTuple4, [u64; 4]>(), 64 + 16);
        assert_eq!(entry_bytes::<FiveTuple6, [u64; 3]>(), 96);
    }

    #[test]
    fn entries_are_taken_and_given_back_in_turn() {
        let mut slab = Slab::<Host4, u64>::new(2);
        let key = key(7);
        assert_eq!(slab.take(key, 1, Nanos(5)), Some(0));
        assert_eq!(slab.take(key, 2, Nanos::NEVER), Some(1));
        assert_eq!(slab.take(key, 3, Nanos(5)), None);
        assert_eq!((slab.deadline(0), slab.deadline(1)), (Nanos(5), Nanos::NEVER));
        slab.give(0);
        assert!(!slab.is_live(0) && slab.is_live(1) && !slab.is_live(2));
        assert_eq!(slab.take(key, 4, Nanos(u64::MAX - 1)), Some(0));
        assert_eq!((*slab.value(0), slab.deadline(0)), (4, Nanos::NEVER));
        assert_eq!((slab.len(), slab.used()), (2, 2));
    }

    #[test]
    #[should_panic(expected = "not of this table")]
    fn a_slot_never_used_is_stopped() {
        let mut slab = Slab::<Host4, u64>::new(2);
        slab.take(key(7), 1, Nanos(5));
        slab.value(1);
    }

    fn key(address: u32) -> Host4 {
        match packet::Host::v4(core::net::Ipv4Addr::from_bits(address)) {
            packet::Host::V4(key) => key,
            packet::Host::V6(_) => unreachable!(),
        }
    }

    #[test]
    fn the_assured_bit_and_the_deadline_are_apart() {
        let mut slab = Slab::<Host4, u64>::new(1);
        slab.take(key(7), 1, Nanos(5));
        assert!(!slab.is_assured(0));
        assert!(slab.postpone(0, Nanos(9)));
        slab.set_assured(0);
        assert!(slab.is_assured(0) && slab.deadline(0) == Nanos(9));
        assert!(!slab.postpone(0, Nanos(8)));
        assert!(slab.postpone(0, Nanos::NEVER));
        assert!(slab.is_assured(0) && slab.deadline(0) == Nanos::NEVER);
        slab.set_deadline(0, Nanos(0));
        assert!(slab.is_assured(0) && slab.deadline(0) == Nanos(0));
        slab.give(0);
        assert!(!slab.is_live(0) && slab.alive(0, &key(7), Nanos(0)).is_none() && !slab.postpone(0, Nanos::NEVER));
    }
}
