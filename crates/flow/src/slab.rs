//! A slab of entries: an array of slots with a free list. An entry never moves.
//!
//! Key, value and deadline of an entry lie together, and the entries lie close together.

use core::marker::PhantomData;

use locality::{CACHE_LINE, prefetch};
use packet::{Key, Nanos};

use crate::memory::{Filling, Region};
use crate::wheel::HORIZON;

/// A slot's contents. In a free slot the number of the next free slot lies behind the word.
#[repr(C)]
pub(crate) struct Hot<K, V> {
    /// [`VACANT`], or the deadline: one comparison with the time shows whether there is a live flow.
    word: u64,
    key: K,
    value: V,
}

/// All slot numbers are below this.
const END: u32 = 1 << 31;

/// The word of a free slot. It is 0, so zeroed memory is all free slots.
const VACANT: u64 = 0;

/// The deadline, or 1 ns for a deadline of 0, which would mean a free slot.
#[inline(always)]
pub(crate) const fn nonzero_deadline(deadline: Nanos) -> Nanos {
    if deadline.0 == VACANT { Nanos(1) } else { deadline }
}

/// Slots numbered from 0, some in use and the others free.
pub(crate) struct Slab<K, V> {
    region: Region,
    slots: u32,
    /// No entry from here on has been in use.
    used: u32,
    /// The first free slot below `used`, or [`END`]. Unused under indexes that assign slots.
    free: u32,
    len: u32,
    high_water: u32,
    entries: PhantomData<(K, V)>,
}

// SAFETY: the slab owns its entries, as a vector would.
unsafe impl<K: Send, V: Send> Send for Slab<K, V> {}
// SAFETY: a shared slab hands out shared references only.
unsafe impl<K: Sync, V: Sync> Sync for Slab<K, V> {}

impl<K: Key, V: Copy> Slab<K, V> {
    const HOT: usize = size_of::<Hot<K, V>>();
    /// Bytes from one slot to the next: room for the word and the next free slot's number at least.
    const STRIDE: usize = if Self::HOT < 16 { 16 } else { Self::HOT };
    /// True if some entries span more cache lines than others do.
    const CROSSES: bool = !Self::STRIDE.is_multiple_of(CACHE_LINE) && !CACHE_LINE.is_multiple_of(Self::STRIDE);

    /// A slab of `slots` slots, which are filled in the order of `filling`.
    ///
    /// # Panics
    /// If that is 2^31 or more.
    pub(crate) fn new(slots: usize, filling: Filling) -> Self {
        const { assert!(align_of::<Hot<K, V>>() <= CACHE_LINE, "keys and values are aligned to a cache line at most") };
        assert!(slots < END as usize, "a table has fewer than 2^31 places");
        let region = Region::zeroed(slots * Self::STRIDE, filling);
        let slots = slots as u32;
        Self { region, slots, used: 0, free: END, len: 0, high_water: 0, entries: PhantomData }
    }

    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) const fn slots(&self) -> u32 {
        self.slots
    }

    /// The most slots that were in use at once.
    pub(crate) const fn high_water(&self) -> u32 {
        self.high_water
    }

    /// No entry from here on has been in use.
    pub(crate) const fn used(&self) -> u32 {
        self.used
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.region.bytes()
    }

    /// The bytes of the cache lines of entries in use. `apart` says that the index assigned their slots, so they don't lie side by side.
    pub(crate) fn bytes_in_use(&self, apart: bool) -> usize {
        let each = if apart { Self::STRIDE + CACHE_LINE } else { Self::STRIDE };
        self.region.bytes().min(self.len as usize * each)
    }

    /// A free slot, for indexes that don't assign slots. If there is none, the number behind the last one.
    #[inline]
    pub(crate) const fn vacant(&self) -> u32 {
        if self.free != END { self.free } else { self.used }
    }

    /// Puts an entry at a free slot.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline]
    pub(crate) fn take(&mut self, at: u32, key: K, value: V, deadline: Nanos) {
        assert!(at < self.slots, "entries are put where the slab has room");
        if at == self.free {
            // SAFETY: the place lies within the region, as was just checked, and `give` left this there.
            self.free = unsafe { self.next_free(at).read_unaligned() };
            // The next free slot may have been freed long ago.
            self.prefetch(self.free);
        }
        self.used = self.used.max(at + 1);
        self.len += 1;
        self.high_water = self.high_water.max(self.len);
        let word = nonzero_deadline(deadline).0;
        // SAFETY: the place lies within the region, as was just checked; the stride keeps it aligned.
        unsafe { self.place(at).write(Hot { word, key, value }) };
    }

    /// Frees a slot. `listed` puts it on the free list.
    #[inline]
    pub(crate) fn give(&mut self, at: u32, listed: bool) {
        self.hot_mut(at).word = VACANT;
        if listed {
            // SAFETY: the place lies within the region, as an entry was in use there; nobody reads its key any more.
            unsafe { self.next_free(at).write_unaligned(self.free) };
            self.free = at;
        }
        self.len -= 1;
    }

    /// True if slot `at` is in use. `at` may be any number.
    #[inline(always)]
    pub(crate) fn is_live(&self, at: u32) -> bool {
        at < self.slots && self.word(at) != VACANT
    }

    /// True if slot `at` is in use and its deadline has passed. `at` may be any number. A flow without a deadline never expires.
    #[inline]
    pub(crate) fn is_dead(&self, at: u32, now: Nanos) -> bool {
        self.is_live(at) && self.deadline(at) <= now && self.deadline(at) != Nanos::NEVER
    }

    /// The entry at slot `at` if its key is `key` and its deadline is later than `now`. `at` may be any number.
    #[inline(always)]
    pub(crate) fn alive(&mut self, at: u32, key: &K, now: Nanos) -> Option<&mut Hot<K, V>> {
        if at >= self.slots || self.word(at) <= now.0 {
            return None;
        }
        // SAFETY: the place lies within the region and its word isn't `VACANT`, so the entry was written; `self` is borrowed
        // uniquely.
        let hot = unsafe { &mut *self.place(at) };
        (hot.key == *key).then_some(hot)
    }

    #[inline]
    pub(crate) fn key(&self, at: u32) -> &K {
        &self.hot(at).key
    }

    /// True if slot `at` is in use by this key. `at` may be any number.
    #[inline(always)]
    pub(crate) fn is_of(&self, at: u32, key: &K) -> bool {
        self.is_live(at) && self.hot(at).key == *key
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
        Nanos(self.hot(at).word)
    }

    /// Sets the deadline, unless it is earlier than the one that is set.
    #[inline]
    pub(crate) fn postpone(&mut self, at: u32, deadline: Nanos) -> bool {
        self.hot_mut(at).postpone(deadline)
    }

    pub(crate) fn set_deadline(&mut self, at: u32, deadline: Nanos) {
        self.hot_mut(at).word = nonzero_deadline(deadline).0;
    }

    /// Prefetches an entry.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: u32) {
        let place = self.place(at).cast::<u8>();
        let mut line = 0;
        while line < Self::HOT {
            prefetch::address(place.wrapping_add(line));
            line += CACHE_LINE;
        }
        if Self::CROSSES {
            prefetch::address(place.wrapping_add(Self::HOT - 1));
        }
    }

    #[inline(always)]
    fn hot(&self, at: u32) -> &Hot<K, V> {
        self.check_live(at);
        // SAFETY: the entry is in use, so it was written.
        unsafe { &*self.place(at) }
    }

    /// The entry at a slot in use.
    #[inline(always)]
    pub(crate) fn hot_mut(&mut self, at: u32) -> &mut Hot<K, V> {
        self.check_live(at);
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { &mut *self.place(at) }
    }

    /// The word of a slot, in use or not.
    #[inline(always)]
    fn word(&self, at: u32) -> u64 {
        debug_assert!(at < self.slots);
        // SAFETY: callers have compared `at` with `slots`; zeroed memory is a word.
        unsafe { (&raw const (*self.place(at)).word).read() }
    }

    /// Panics if there is no flow at the slot, as a slice does for an index past its end.
    #[inline(always)]
    pub(crate) fn check_live(&self, at: u32) {
        if !self.is_live(at) {
            stale_slot();
        }
    }

    #[inline(always)]
    fn place(&self, at: u32) -> *mut Hot<K, V> {
        self.region.base().as_ptr().wrapping_add(at as usize * Self::STRIDE).cast()
    }

    /// Where a free slot holds the number of the next free slot.
    #[inline(always)]
    fn next_free(&self, at: u32) -> *mut u32 {
        self.place(at).cast::<u8>().wrapping_add(size_of::<u64>()).cast()
    }
}

impl<K, V> Hot<K, V> {
    #[inline(always)]
    pub(crate) const fn value_mut(&mut self) -> &mut V {
        &mut self.value
    }

    /// Sets the deadline, unless it is earlier than the one that is set.
    #[inline(always)]
    const fn postpone(&mut self, deadline: Nanos) -> bool {
        let is_later = deadline.0 >= self.word;
        if is_later {
            self.word = deadline.0;
        }
        is_later
    }

    /// Sets the deadline, except if it becomes earlier and lies before the packet's time plus the horizon; then the timing wheel must know.
    /// Both tests are one branch, since some flows' deadlines go back and forth with every packet.
    #[inline(always)]
    pub(crate) fn move_deadline(&mut self, deadline: Nanos, present: Nanos) -> bool {
        let horizon = (present + HORIZON).0;
        let is_store = deadline.0 >= self.word.min(horizon);
        if is_store {
            self.word = deadline.0;
        }
        is_store
    }
}

#[cold]
#[inline(never)]
fn stale_slot() -> ! {
    panic!("there is no flow at the slot")
}

#[cfg(test)]
mod tests {
    use packet::{FiveTuple4, FiveTuple6, Host4};

    use super::*;

    #[test]
    fn entries_take_what_their_parts_take() {
        assert_eq!(Slab::<Host4, u32>::STRIDE, 16);
        assert_eq!(Slab::<Host4, u64>::STRIDE, 24);
        assert_eq!(Slab::<FiveTuple4, u64>::STRIDE, 32);
        assert_eq!(Slab::<FiveTuple4, [u64; 3]>::STRIDE, 48);
        assert_eq!(Slab::<FiveTuple4, [u64; 4]>::STRIDE, 56);
        assert_eq!(Slab::<FiveTuple6, [u64; 3]>::STRIDE, 72);
    }

    #[test]
    fn entries_are_taken_and_given_back_in_turn() {
        let mut slab = Slab::<Host4, u64>::new(2, Filling::InOrder);
        let key = key(7);
        assert_eq!(slab.vacant(), 0);
        slab.take(0, key, 1, Nanos(5));
        assert_eq!(slab.vacant(), 1);
        slab.take(1, key, 2, Nanos::NEVER);
        assert_eq!(slab.vacant(), 2);
        assert_eq!((slab.deadline(0), slab.deadline(1)), (Nanos(5), Nanos::NEVER));
        slab.give(0, true);
        assert!(!slab.is_live(0) && slab.is_live(1) && !slab.is_live(2));
        assert_eq!(slab.vacant(), 0);
        slab.take(0, key, 4, Nanos(u64::MAX - 1));
        assert_eq!((*slab.value(0), slab.deadline(0)), (4, Nanos(u64::MAX - 1)));
        assert_eq!((slab.len(), slab.used(), slab.high_water()), (2, 2, 2));
    }

    #[test]
    #[should_panic(expected = "no flow at the slot")]
    fn a_slot_never_used_is_stopped() {
        let mut slab = Slab::<Host4, u64>::new(2, Filling::InOrder);
        slab.take(0, key(7), 1, Nanos(5));
        slab.value(1);
    }

    fn key(address: u32) -> Host4 {
        match packet::Host::v4(core::net::Ipv4Addr::from_bits(address)) {
            packet::Host::V4(key) => key,
            packet::Host::V6(_) => unreachable!(),
        }
    }

    #[test]
    fn a_flow_lives_until_its_deadline() {
        let mut slab = Slab::<Host4, u64>::new(1, Filling::InOrder);
        slab.take(0, key(7), 1, Nanos(5));
        assert!(slab.postpone(0, Nanos(9)) && slab.deadline(0) == Nanos(9));
        assert!(!slab.postpone(0, Nanos(8)));
        assert!(slab.postpone(0, Nanos::NEVER) && slab.deadline(0) == Nanos::NEVER);
        assert!(slab.alive(0, &key(7), Nanos(u64::MAX - 1)).is_some() && !slab.is_dead(0, Nanos::NEVER));
        slab.set_deadline(0, Nanos(0));
        assert_eq!(slab.deadline(0), Nanos(1));
        assert!(slab.alive(0, &key(7), Nanos(0)).is_some());
        assert!(slab.is_dead(0, Nanos(1)) && slab.alive(0, &key(7), Nanos(1)).is_none());
        slab.give(0, true);
        assert!(!slab.is_live(0) && slab.alive(0, &key(7), Nanos(0)).is_none());
    }
}
