//! A flow table for one core.

use core::fmt;

use locality::CACHE_LINE;
use locality::pages::STEP;
use packet::{Key, Nanos};

use crate::eviction_candidates::{EvictionCandidates, SweepOrder};
use crate::hashes::Hashes;
use crate::index::{CuckooPp, Index};
use crate::memory::Filling;
use crate::policy::{Ageing, Eviction};
use crate::slab::{Hot, Slab, nonzero_deadline};
use crate::wheel::Wheel;

/// A bounded table of flows by key, each with a deadline in packet time. One core uses it.
///
/// Look packets up in bursts, one stage for the whole burst at a time: first [`hash`](Self::hash) and [`prefetch`](Self::prefetch), then
/// [`prefetch_entry`](Self::prefetch_entry), then [`entry_at_hint`](Self::entry_at_hint). If the hint doesn't lead to the flow, call
/// [`find`](Self::find) and the accessors that take a [`Slot`].
///
/// The caller decides on expiry. A flow is found until it is removed, even after its deadline, so the caller compares
/// [`deadline`](Self::deadline) with the time. [`reclaim`](Self::reclaim) finds expired flows, a bounded piece of work a call.
///
/// The type of the index changes the speed and nothing else: every index holds the same flows.
///
/// The fields that each look-up reads come first and take two cache lines. An engine has a table for each bucket of packets, and the heads
/// of these tables compete for the first-level cache.
#[repr(C, align(64))]
pub struct Table<K, V, I = CuckooPp> {
    index: I,
    slab: Slab<K, V>,
    /// How many flows were inserted so far, modulo 2^32.
    inserted: u32,
    capacity: u32,
    wheel: Wheel,
    hashes: Hashes,
    ageing: Ageing,
    /// The slot that [`Ageing::Scan`] looks at next.
    scan_cursor: u32,
    /// At this number of flows the next part of the index is put on a huge page.
    collapse_at: u32,
    candidates: EvictionCandidates,
    seed: u64,
}

/// The parameters of a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan<C = ()> {
    /// Which design of index, if the table's type leaves that open.
    pub index: C,
    /// The most flows that it holds.
    pub capacity: usize,
    /// The load factor of a full table in percent; `None` for the index's own default.
    pub load_percent: Option<usize>,
    /// How expired flows are found.
    pub ageing: Ageing,
    /// The hash seed. It must be secret if an attacker can choose the keys.
    pub seed: u64,
}

/// The largest index and slab that stay in the second-level cache beside the other data of a core.
const L2_INDEX_BYTES: usize = 128 * 1024;
const L2_SLAB_BYTES: usize = 512 * 1024;

/// How many random places eviction tries before it gives up.
const RANDOM_TRIES: usize = 64;
/// How many slots [`Ageing::Scan`] looks at in a call of [`Table::reclaim`].
pub const SCANNED: usize = 4;

/// The number of a flow's place in its table. It doesn't change until the flow is removed.
///
/// A slot that is used after that names the flow that has taken the place. If there is none, accessors panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

/// A mutable reference to a flow, for several accesses after one look-up.
pub struct EntryMut<'a, K, V> {
    hot: &'a mut Hot<K, V>,
    slot: Slot,
    /// The packet's time.
    present: Nanos,
    candidates: &'a EvictionCandidates,
}

impl<K, V> EntryMut<'_, K, V> {
    /// The flow's slot.
    #[inline(always)]
    #[must_use]
    pub const fn slot(&self) -> Slot {
        self.slot
    }

    /// The flow's value, mutable.
    #[inline(always)]
    #[must_use]
    pub const fn value_mut(&mut self) -> &mut V {
        self.hot.value_mut()
    }

    /// True if the flow is [protected](Table::protect).
    #[inline(always)]
    #[must_use]
    pub fn is_protected(&self) -> bool {
        !self.candidates.contains(self.slot.0)
    }

    /// Moves the flow's deadline if that takes one store: if the new deadline is later, or more than the timing wheel's horizon after the
    /// packet's time. Otherwise it returns `false` and changes nothing; call [`Table::touch`] then.
    #[inline(always)]
    #[must_use]
    pub fn move_deadline(&mut self, deadline: Nanos) -> bool {
        self.hot.move_deadline(deadline, self.present)
    }
}

/// A guess where a flow is, or that it is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint(pub(crate) u32);

impl Hint {
    /// The hint that holds no guess.
    pub const NOWHERE: Self = Self(u32::MAX);
    /// The flow was absent when this many flows had been inserted, modulo 2^30. No slot has such a large number.
    #[inline(always)]
    const fn absent(inserted: u32) -> Self {
        Self((1 << 31) | (inserted % (1 << 30)))
    }
}

impl Default for Hint {
    fn default() -> Self {
        Self::NOWHERE
    }
}

impl Slot {
    /// The slot as a number below [`Table::slots`], for arrays that the caller keeps beside the table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl<K: Key, V: Copy + Send + 'static, I: Index> Table<K, V, I> {
    /// An empty table for `capacity` flows, with a timing wheel. Memory is reserved now and used as flows come. A table of capacity 0 is
    /// always full.
    ///
    /// `seed` is the hash seed. It must be secret if an attacker can choose the keys.
    ///
    /// # Panics
    /// If the capacity needs 2^31 places or more, and if memory runs out.
    #[must_use]
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self::planned(Plan { capacity, seed, ..Plan::default() })
    }

    /// An empty table with these parameters.
    ///
    /// # Panics
    /// As [`new`](Self::new) does, and if the load is not between 1 and 100.
    #[must_use]
    pub fn planned(plan: Plan<I::Choice>) -> Self {
        let Plan { index: choice, capacity, load_percent, ageing, seed } = plan;
        let load = load_percent.unwrap_or_else(|| I::load_percent(choice));
        assert!((1..=100).contains(&load), "a load is between 1 and 100 %");
        let index = I::new(choice, (capacity * 100).div_ceil(load));
        let slots = if index.assigns() { index.places() } else { capacity };
        let slots = if capacity == 0 { 0 } else { slots };
        let (aged, aged_slots) = if ageing == Ageing::Wheel { (capacity, slots) } else { (0, 0) };
        let (filling, order) = match index.assigns() {
            true => (Filling::Whole, SweepOrder::GoldenRatio),
            false => (Filling::InOrder, SweepOrder::Sequential),
        };
        let mut wheel = Wheel::new(aged, aged_slots, filling);
        if ageing == Ageing::Scan {
            wheel.always_due();
        }
        Self {
            slab: Slab::new(slots, filling),
            candidates: EvictionCandidates::new(slots, order),
            index,
            wheel,
            hashes: Hashes::new(ageing == Ageing::Wheel),
            ageing,
            inserted: 0,
            capacity: capacity as u32,
            scan_cursor: 0,
            collapse_at: STEP as u32,
            seed,
        }
    }

    /// The key's hash in this table, which the other functions take. Tables may have different seeds, so a hash is valid for one table
    /// only.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &K) -> u64 {
        key.hash(self.seed)
    }

    /// Prefetches the part of the index that a look-up of this hash reads first.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Prefetches the entry that [`find`](Self::find) will look at. Returns a hint for [`entry_at_hint`](Self::entry_at_hint). Call
    /// [`prefetch`](Self::prefetch) some time before.
    #[inline(always)]
    pub fn prefetch_entry(&self, hash: u64) -> Hint {
        self.prefetch_entry_as::<false, false>(hash)
    }

    /// Like [`prefetch_entry`](Self::prefetch_entry), in variants.
    ///
    /// Set `ANY` if a key is as likely to be absent as present. If most keys are present, this is slower. Set `FITS_L2` if the table [fits
    /// the second-level cache](Self::fits_l2): the hint is computed, but no entry is prefetched, since loads from that cache overlap
    /// anyway.
    #[inline(always)]
    pub fn prefetch_entry_as<const ANY: bool, const FITS_L2: bool>(&self, hash: u64) -> Hint {
        let prefetch_slot = |slot| {
            if !FITS_L2 {
                self.slab.prefetch(slot);
            }
        };
        let guess = if ANY { self.index.guess_any(hash, prefetch_slot) } else { self.index.guess(hash, prefetch_slot) };
        guess.map_or(Hint::absent(self.inserted), Hint)
    }

    /// True if the hint proves that its key is not in the table: no entry had the key's hash, and no flow was inserted since. The hint must
    /// be younger than 2^30 insertions.
    #[inline(always)]
    #[must_use]
    pub fn is_absent(&self, hint: Hint) -> bool {
        hint == Hint::absent(self.inserted)
    }

    /// The key's flow, if it is at the slot of the hint and its deadline is later than `now`. The hint may be out of date, so `None` proves
    /// nothing; use [`find`](Self::find) then.
    #[inline(always)]
    pub fn entry_at_hint(&mut self, key: &K, hint: Hint, now: Nanos) -> Option<EntryMut<'_, K, V>> {
        let hot = self.slab.alive(hint.0, key, now)?;
        Some(EntryMut { hot, slot: Slot(hint.0), present: now, candidates: &self.candidates })
    }

    /// The flow at the slot, for several accesses at the time `now`.
    #[inline(always)]
    pub fn entry(&mut self, slot: Slot, now: Nanos) -> EntryMut<'_, K, V> {
        EntryMut { hot: self.slab.hot_mut(slot.0), slot, present: now, candidates: &self.candidates }
    }

    /// The key's flow, whether or not its deadline has passed.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &K, hash: u64) -> Option<Slot> {
        self.index.find(hash, |slot| self.slab.is_of(slot, key)).map(Slot)
    }

    /// The flow's key.
    ///
    /// # Panics
    /// If there is no flow at the slot. All functions that take a slot panic then.
    #[inline]
    #[must_use]
    pub fn key(&self, slot: Slot) -> &K {
        self.slab.key(slot.0)
    }

    /// The flow's value.
    #[inline]
    #[must_use]
    pub fn value(&self, slot: Slot) -> &V {
        self.slab.value(slot.0)
    }

    /// The flow's value, mutable.
    #[inline]
    #[must_use]
    pub fn value_mut(&mut self, slot: Slot) -> &mut V {
        self.slab.value_mut(slot.0)
    }

    /// The packet time at which the flow expires.
    #[inline]
    #[must_use]
    pub fn deadline(&self, slot: Slot) -> Nanos {
        self.slab.deadline(slot.0)
    }

    /// True if the flow is [protected](Self::protect).
    #[inline]
    #[must_use]
    pub fn is_protected(&self, slot: Slot) -> bool {
        self.slab.check_live(slot.0);
        !self.candidates.contains(slot.0)
    }

    /// Adds a flow. Its key must not be in the table. Returns `None` if there is no room.
    ///
    /// `hash` is the key's hash and `now` the packet's time. The flow is not protected. A deadline of 0 becomes 1 ns.
    ///
    /// There is room unless [`is_full`](Self::is_full), except if dozens of keys have the same hash.
    #[inline]
    pub fn insert(&mut self, key: K, hash: u64, value: V, deadline: Nanos, now: Nanos) -> Option<Slot> {
        debug_assert_eq!(hash, self.hash(&key), "the hash is of another key or another table");
        debug_assert_eq!(self.find(&key, hash), None, "the key is in the table");
        if self.is_full() {
            return None;
        }
        let slot = self.index.insert(hash, self.slab.vacant())?;
        self.slab.take(slot, key, value, deadline);
        self.inserted = self.inserted.wrapping_add(1);
        if self.ageing == Ageing::Wheel {
            self.wheel.follow(now);
            self.wheel.arm(slot, nonzero_deadline(deadline), now);
        }
        self.candidates.insert(slot);
        if self.slab.high_water() >= self.collapse_at {
            self.collapse_next();
        }
        Some(Slot(slot))
    }

    /// Puts the next part of the index on a huge page.
    #[cold]
    #[inline(never)]
    fn collapse_next(&mut self) {
        let piece = self.collapse_at as usize / STEP - 1;
        self.collapse_at = if self.index.collapse(piece) { self.collapse_at + STEP as u32 } else { u32::MAX };
    }

    /// Removes a flow and returns its value.
    ///
    /// # Panics
    /// If there is no flow at the slot.
    #[inline]
    pub fn remove(&mut self, slot: Slot) -> V {
        let at = slot.0;
        let value = *self.slab.value(at);
        let hash = self.hashes.take(at).unwrap_or_else(|| self.slab.key(at).hash(self.seed));
        debug_assert_eq!(hash, self.hash(self.slab.key(at)), "a slot's hash is forgotten with its flow");
        let was_in = self.index.remove(hash, at);
        debug_assert!(was_in, "every flow is in the index");
        self.wheel.disarm(at);
        if self.candidates.contains(at) {
            self.candidates.remove(at, self.is_full());
        }
        self.slab.give(at, !self.index.assigns());
        value
    }

    /// Sets the flow's deadline. This is one store, except if the new deadline is before the time at which the wheel next looks at the
    /// flow; then the flow changes lists.
    #[inline]
    pub fn touch(&mut self, slot: Slot, deadline: Nanos) {
        if !self.slab.postpone(slot.0, deadline) {
            self.advance_deadline(slot.0, deadline);
        }
    }

    #[inline(never)]
    fn advance_deadline(&mut self, at: u32, deadline: Nanos) {
        self.slab.set_deadline(at, deadline);
        if self.ageing == Ageing::Wheel && !self.wheel.is_in_time(at, deadline) {
            self.wheel.disarm(at);
            // The packet's time isn't known here, so the horizon counts from the wheel's own tick, which is not later.
            self.wheel.arm(at, nonzero_deadline(deadline), Nanos(0));
        }
    }

    /// Protects the flow: it isn't evicted any more by [`Eviction::OldestUnprotected`]. A function calls this for a flow that has been
    /// answered.
    #[inline]
    pub fn protect(&mut self, slot: Slot) {
        if !self.is_protected(slot) {
            self.candidates.remove(slot.0, self.is_full());
        }
    }

    /// The next eviction candidate: roughly the oldest unprotected flow (CLOCK, without a second chance).
    ///
    /// A clock hand goes round the slots. In a flood each new flow takes the slot of the last evicted one, so the candidate is exactly the
    /// oldest. Under an index that [assigns slots](Index::assigns) it is any unprotected flow. This call doesn't move the hand; removing
    /// the flow does.
    #[inline]
    #[must_use]
    pub fn oldest_unprotected(&self) -> Option<Slot> {
        let slot = self.candidates.first()?;
        self.prefetch_followers(slot);
        Some(Slot(slot))
    }

    /// Does one bounded unit of ageing. Returns an expired flow if it found one; the caller then removes it. After `None` there may be more
    /// work.
    ///
    /// Flows come in the order of their deadlines, rounded up to a [`TICK`](crate::TICK), and never before their deadlines. The order
    /// within a tick is deterministic: it depends on the earlier operations only. While nothing is due, this is one comparison.
    #[inline]
    pub fn reclaim(&mut self, now: Nanos) -> Option<Slot> {
        if self.wheel.is_due(now) { self.reclaim_due(now) } else { None }
    }

    /// True if [`reclaim`](Self::reclaim) may have work at `now`. If not, it has none at any earlier time.
    #[inline]
    #[must_use]
    pub const fn is_due(&self, now: Nanos) -> bool {
        self.wheel.is_due(now)
    }

    #[inline(never)]
    fn reclaim_due(&mut self, now: Nanos) -> Option<Slot> {
        if self.ageing == Ageing::Scan {
            return self.scan(now);
        }
        let slot = self.wheel.work(&self.slab, now);
        if self.wheel.has_begun() {
            self.prefetch_removals();
        }
        slot.map(Slot)
    }

    /// Prefetches what the coming removals need. The entries of the next block were prefetched before; they give the part of the index to
    /// prefetch now. For the present block that part is here, and it may lead to a second one. A whole block is prefetched at once, so that
    /// address translations overlap.
    fn prefetch_removals(&mut self) {
        for &ending in self.wheel.coming(1) {
            if self.wheel.ends(&self.slab, ending) {
                let hash = self.slab.key(ending).hash(self.seed);
                self.index.prefetch(hash);
                self.hashes.note(ending, hash);
            }
        }
        for &ending in self.wheel.coming(0) {
            if let Some(hash) = self.hashes.get(ending) {
                self.index.prefetch_removal(hash, ending);
            }
        }
    }

    /// Looks at the next few of the slots that were ever used.
    fn scan(&mut self, now: Nanos) -> Option<Slot> {
        for _ in 0..SCANNED {
            let at = if self.scan_cursor < self.slab.used() { self.scan_cursor } else { 0 };
            self.scan_cursor = at + 1;
            if self.slab.is_dead(at, now) {
                return Some(Slot(at));
            }
        }
        None
    }

    /// An expired flow that [`reclaim`](Self::reclaim) hasn't reached yet, out of those that come up next. A full table evicts it before
    /// any other. `None` proves nothing.
    #[must_use]
    pub fn overdue(&self, now: Nanos) -> Option<Slot> {
        self.wheel.overdue(&self.slab, now).map(Slot)
    }

    /// An expired flow in the neighbourhood in which a new flow with this hash would lie. Lazy ageing removes it when a flow arrives.
    #[must_use]
    pub fn expired_near(&self, hash: u64, now: Nanos) -> Option<Slot> {
        let mut dead = None;
        self.index.neighbours(hash, |slot| {
            if dead.is_none() && self.slab.is_dead(slot, now) {
                dead = Some(Slot(slot));
            }
        });
        dead
    }

    /// The flow to evict for a new one with this hash; `None` if none may be evicted.
    #[must_use]
    pub fn victim(&self, eviction: Eviction, hash: u64) -> Option<Slot> {
        match eviction {
            Eviction::OldestUnprotected => self.oldest_unprotected(),
            Eviction::LeastRecent => {
                self.soonest_neighbour(hash).or_else(|| self.elsewhere(hash, Self::soonest_neighbour))
            }
            Eviction::Random => self.elsewhere(hash, Self::random_neighbour),
            Eviction::None => None,
        }
    }

    /// Searches random neighbourhoods for a flow. The table is full, so few tries are needed.
    fn elsewhere(&self, hash: u64, look: fn(&Self, u64) -> Option<Slot>) -> Option<Slot> {
        let mut random = hash ^ self.seed;
        (0..RANDOM_TRIES).find_map(|_| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            look(self, random ^ random >> 32)
        })
    }

    fn soonest_neighbour(&self, hash: u64) -> Option<Slot> {
        let mut soonest: Option<(Nanos, Slot)> = None;
        self.index.neighbours(hash, |slot| {
            if self.slab.is_live(slot) {
                let deadline = self.slab.deadline(slot);
                if soonest.is_none_or(|(least, _)| deadline < least) {
                    soonest = Some((deadline, Slot(slot)));
                }
            }
        });
        soonest.map(|(_, slot)| slot)
    }

    fn random_neighbour(&self, hash: u64) -> Option<Slot> {
        let mut count = 0;
        self.index.neighbours(hash, |_| count += 1);
        let chosen = (hash as u32).checked_rem(count)?;
        let (mut at, mut victim) = (0, None);
        self.index.neighbours(hash, |slot| {
            if at == chosen {
                victim = Some(Slot(slot));
            }
            at += 1;
        });
        victim
    }

    /// Prefetches for the next two evictions: the entry of the second flow, and the part of the index of the first, whose entry the
    /// previous call prefetched.
    #[inline]
    fn prefetch_followers(&self, slot: u32) {
        let Some(first) = self.candidates.behind(slot) else { return };
        self.index.prefetch(self.hash(self.slab.key(first)));
        let Some(second) = self.candidates.behind(first) else { return };
        self.slab.prefetch(second);
        self.wheel.prefetch_position(second);
    }

    /// How many flows lie in the neighbourhood of this hash.
    #[must_use]
    pub fn crowd(&self, hash: u64) -> usize {
        let mut count = 0;
        self.index.neighbours(hash, |_| count += 1);
        count
    }

    /// The slot with this number.
    ///
    /// # Panics
    /// If there is no flow at it.
    #[must_use]
    pub fn slot(&self, index: usize) -> Slot {
        let slot = Slot(u32::try_from(index).unwrap_or(u32::MAX));
        assert!(self.slab.is_live(slot.0), "there is no flow at the slot");
        slot
    }

    /// One more than the largest slot number, for arrays that the caller keeps beside the table.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slab.slots() as usize
    }

    /// The number of flows.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slab.len() as usize
    }

    /// True if there are no flows.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// The most flows that there can be.
    #[inline]
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// True if there are as many flows as there can be.
    #[inline]
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.slab.len() == self.capacity
    }

    /// The most flows that there ever were at once.
    #[must_use]
    pub const fn high_water(&self) -> usize {
        self.slab.high_water() as usize
    }

    /// The table's memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.slab.bytes()
            + self.index.bytes()
            + self.wheel.bytes()
            + self.candidates.bytes()
            + self.hashes.bytes()
    }

    /// True if the table is small enough, or has few enough flows now, to stay in the second-level cache. Then [`prefetch`](Self::prefetch)
    /// costs more than it saves.
    #[must_use]
    pub fn fits_l2(&self) -> bool {
        // In a larger index each flow may have a line of its own.
        let index = self.index.bytes().min(self.len() * CACHE_LINE);
        index <= L2_INDEX_BYTES && self.slab.bytes_in_use(self.index.assigns()) <= L2_SLAB_BYTES
    }

    /// All flows in slot order: key, value and deadline.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V, Nanos)> {
        let live = (0..self.slab.used()).filter(|at| self.slab.is_live(*at));
        live.map(|at| (self.slab.key(at), self.slab.value(at), self.slab.deadline(at)))
    }
}

impl<K: Key, V: Copy + Send + 'static, I: Index> fmt::Debug for Table<K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("len", &self.len()).field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}
