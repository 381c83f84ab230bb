//! The flow table.

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

/// Flows by key, bounded in number, with deadlines in packet time.
///
/// A packet's way through the table, best taken by a burst of packets stage by stage: [`hash`](Self::hash) and
/// [`prefetch`](Self::prefetch), then [`prefetch_entry`](Self::prefetch_entry), then [`entry_at_hint`](Self::entry_at_hint), and
/// where that doesn't know, [`find`](Self::find) and the accessors of the [`Slot`] that it found.
///
/// Expiry is the caller's: a flow whose deadline has passed is found like any other until it is removed, so the caller
/// compares [`deadline`](Self::deadline) with `now` at every look. [`reclaim`](Self::reclaim) brings up such flows that
/// nobody looks at, a bounded piece of work at a time.
///
/// Which index finds the flows is a matter of type, and of speed alone: the flows that are in are the same under each.
///
/// What every look reads comes first and takes two cache lines: an engine has a table for every bucket of its packets, and their heads
/// compete for the first-level cache.
#[repr(C, align(64))]
pub struct Table<K, V, I = CuckooPp> {
    index: I,
    slab: Slab<K, V>,
    /// How many flows have come so far, modulo 2^32.
    came: u32,
    capacity: u32,
    wheel: Wheel,
    hashes: Hashes,
    ageing: Ageing,
    /// The slot that the scan comes to next.
    scan_cursor: u32,
    /// With how many flows the index gets its next huge page.
    collapse_at: u32,
    candidates: EvictionCandidates,
    seed: u64,
}

/// How a table is laid out and kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan<C = ()> {
    /// Which design of index, where the table's type leaves that open.
    pub index: C,
    /// Flows that it holds at most.
    pub capacity: usize,
    /// How many of a hundred places are taken when it is full; `None` for what suits the index.
    pub load_percent: Option<usize>,
    /// Who finds the flows whose deadline has passed.
    pub ageing: Ageing,
    /// What keys the hash: where an attacker chooses the flows it must be secret.
    pub seed: u64,
}

/// How large what is used of a table's parts is at most, if it stays in the second-level cache beside all else that a core reads.
const L2_INDEX_BYTES: usize = 128 * 1024;
const L2_SLAB_BYTES: usize = 512 * 1024;

/// How often eviction looks where nobody lies.
const RANDOM_TRIES: usize = 64;
/// Slots that [`Ageing::Scan`] looks at in a call of [`Table::reclaim`].
pub const SCANNED: usize = 4;

/// A flow's place in its table. It stays valid, and the flow's own, until the flow is removed.
///
/// A slot kept longer names whatever flow has taken the place, or nothing, which is a panic to whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

/// What a packet reads and writes of a flow, found once.
pub struct EntryMut<'a, K, V> {
    hot: &'a mut Hot<K, V>,
    slot: Slot,
    /// The packet's time.
    present: Nanos,
    candidates: &'a EvictionCandidates,
}

impl<K, V> EntryMut<'_, K, V> {
    /// The flow's place.
    #[inline(always)]
    #[must_use]
    pub const fn slot(&self) -> Slot {
        self.slot
    }

    /// The flow's value, to be changed.
    #[inline(always)]
    #[must_use]
    pub const fn value_mut(&mut self) -> &mut V {
        self.hot.value_mut()
    }

    /// Whether the flow was [protected](Table::protect).
    #[inline(always)]
    #[must_use]
    pub fn is_protected(&self) -> bool {
        !self.candidates.contains(self.slot.0)
    }

    /// Moves the flow's deadline where that is a store: later, or to behind what the wheel looks ahead from the packet's time.
    /// `false`, and nothing done, where it isn't, which is [`Table::touch`]'s matter.
    #[inline(always)]
    #[must_use]
    pub fn move_deadline(&mut self, deadline: Nanos) -> bool {
        self.hot.move_deadline(deadline, self.present)
    }
}

/// Where a flow probably is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint(pub(crate) u32);

impl Hint {
    /// The hint that says nothing.
    pub const NOWHERE: Self = Self(u32::MAX);
    /// There is no such flow, as long as just so many have come; modulo 2^30. No slot's number is as large.
    #[inline(always)]
    const fn absent(came: u32) -> Self {
        Self((1 << 31) | (came % (1 << 30)))
    }
}

impl Default for Hint {
    fn default() -> Self {
        Self::NOWHERE
    }
}

impl Slot {
    /// The place as a number below [`Table::slots`], for arrays kept beside the table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl<K: Key, V: Copy + Send + 'static, I: Index> Table<K, V, I> {
    /// An empty table for `capacity` flows, aged by a timing wheel. Its memory is reserved now and comes as flows do. Of capacity 0 it is always full.
    ///
    /// `seed` keys the hash: where an attacker chooses the flows it must be secret.
    ///
    /// # Panics
    /// When the capacity needs 2^31 places or more, and when memory runs out.
    #[must_use]
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self::planned(Plan { capacity, seed, ..Plan::default() })
    }

    /// An empty table as planned.
    ///
    /// # Panics
    /// As [`new`](Self::new) does, and when the load is not between 1 and 100.
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
            came: 0,
            capacity: capacity as u32,
            scan_cursor: 0,
            collapse_at: STEP as u32,
            seed,
        }
    }

    /// The key's hash in this table, to be handed to the other functions. Each shard of a table may have a seed of its
    /// own; a hash made by one table means nothing to another.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &K) -> u64 {
        key.hash(self.seed)
    }

    /// Brings the part of the index near where the hash leads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Brings the entry near that [`find`](Self::find) will look at, and says which it is, for
    /// [`entry_at_hint`](Self::entry_at_hint). The index should be near by now.
    #[inline(always)]
    pub fn prefetch_entry(&self, hash: u64) -> Hint {
        self.prefetch_entry_as::<false, false>(hash)
    }

    /// The same for `ANY` keys, of which nothing foretells whether they are in the table; for those that mostly are it is slower. In a
    /// table that [is `FITS_L2`](Self::fits_l2) as a whole it says where the entry is and asks for nothing: what is looked for in the
    /// first-level cache ahead of time costs more there than loads that overlap with others.
    #[inline(always)]
    pub fn prefetch_entry_as<const ANY: bool, const FITS_L2: bool>(&self, hash: u64) -> Hint {
        let prefetch_slot = |slot| {
            if !FITS_L2 {
                self.slab.prefetch(slot);
            }
        };
        let guess = if ANY { self.index.guess_any(hash, prefetch_slot) } else { self.index.guess(hash, prefetch_slot) };
        guess.map_or(Hint::absent(self.came), Hint)
    }

    /// Whether the hint proves that its key is not in the table: nobody was under the key's hash, and nobody has come since. It must
    /// be younger than 2^30 flows.
    #[inline(always)]
    #[must_use]
    pub fn is_absent(&self, hint: Hint) -> bool {
        hint == Hint::absent(self.came)
    }

    /// The key's flow, if it is where the hint says, which may be out of date, and its deadline is later than `now`:
    /// mostly it is. `None` proves nothing; [`find`](Self::find) does.
    #[inline(always)]
    pub fn entry_at_hint(&mut self, key: &K, hint: Hint, now: Nanos) -> Option<EntryMut<'_, K, V>> {
        let hot = self.slab.alive(hint.0, key, now)?;
        Some(EntryMut { hot, slot: Slot(hint.0), present: now, candidates: &self.candidates })
    }

    /// The flow at the slot, for several accesses in a row at the time `now`.
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
    /// When there is no flow at the slot; so in all functions that take one.
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

    /// The flow's value, to be changed.
    #[inline]
    #[must_use]
    pub fn value_mut(&mut self, slot: Slot) -> &mut V {
        self.slab.value_mut(slot.0)
    }

    /// When the flow ends if nothing more comes.
    #[inline]
    #[must_use]
    pub fn deadline(&self, slot: Slot) -> Nanos {
        self.slab.deadline(slot.0)
    }

    /// Whether the flow was [protected](Self::protect).
    #[inline]
    #[must_use]
    pub fn is_protected(&self, slot: Slot) -> bool {
        self.slab.check_live(slot.0);
        !self.candidates.contains(slot.0)
    }

    /// Adds a flow whose key is not in the table; `None` when there is no room. `hash` is the key's, `now` the packet's
    /// time. The flow is not protected. The earliest deadline is the first nanosecond: one of zero is told as that.
    ///
    /// There is room while [`is_full`](Self::is_full) says no, unless dozens of keys have the same hash.
    #[inline]
    pub fn insert(&mut self, key: K, hash: u64, value: V, deadline: Nanos, now: Nanos) -> Option<Slot> {
        debug_assert_eq!(hash, self.hash(&key), "the hash is of another key or another table");
        debug_assert_eq!(self.find(&key, hash), None, "the key is in the table");
        if self.is_full() {
            return None;
        }
        let slot = self.index.insert(hash, self.slab.vacant())?;
        self.slab.take(slot, key, value, deadline);
        self.came = self.came.wrapping_add(1);
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

    /// Puts one more piece of the index on a huge page.
    #[cold]
    #[inline(never)]
    fn collapse_next(&mut self) {
        let piece = self.collapse_at as usize / STEP - 1;
        self.collapse_at = if self.index.collapse(piece) { self.collapse_at + STEP as u32 } else { u32::MAX };
    }

    /// Takes a flow out.
    ///
    /// # Panics
    /// When there is no flow at the slot any more.
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

    /// Moves the flow's deadline. Moving it later costs a store, and mostly so does moving it earlier; ahead of where the
    /// wheel would look at the flow costs two list operations.
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
            // No packet's time is at hand: the horizon counts from the wheel's own tick, which is no later.
            self.wheel.arm(at, nonzero_deadline(deadline), Nanos(0));
        }
    }

    /// The flow has been answered: it doesn't make room for others any more.
    #[inline]
    pub fn protect(&mut self, slot: Slot) {
        if !self.is_protected(slot) {
            self.candidates.remove(slot.0, self.is_full());
        }
    }

    /// The flow that makes room next, of those that nobody has answered: about the oldest of them. A hand goes round the
    /// slots, so while every new flow takes the place of the one that went, as in a flood, it is the oldest; a flow that came to a place that
    /// was left otherwise has its turn when the hand comes by. To ask changes nothing; the hand goes on once that flow is gone. Under an index that [says itself](Index::assigns) where flows lie it is any.
    #[inline]
    #[must_use]
    pub fn oldest_unprotected(&self) -> Option<Slot> {
        let slot = self.candidates.first()?;
        self.prefetch_followers(slot);
        Some(Slot(slot))
    }

    /// Does one bounded unit of the work of ageing; a flow whose deadline is at or before `now`, if one came to light,
    /// which the caller then removes. `None` may mean that there is more to do; another call goes on.
    ///
    /// Flows come in the order of their deadlines, rounded up to a [`TICK`](crate::TICK), and none comes before its
    /// deadline; those of one tick in an order that depends on nothing but what was done to the table before. While nothing is
    /// due this is one comparison.
    #[inline]
    pub fn reclaim(&mut self, now: Nanos) -> Option<Slot> {
        if self.wheel.is_due(now) { self.reclaim_due(now) } else { None }
    }

    /// Whether [`reclaim`](Self::reclaim) may have something to do by then. While it hasn't, it hasn't at any time before.
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

    /// Entries of the next block are near by now, and lead to the part of the index that their removal needs; of the present block's, that
    /// part is near, and may lead on. A block's at once, as their addresses have to be translated.
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

    /// Goes a few slots further round those that were ever used.
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

    /// A flow whose deadline has passed, though [`reclaim`](Self::reclaim) hasn't come to it, among those that come up next: who makes
    /// room ahead of all others. `None` proves nothing.
    #[must_use]
    pub fn overdue(&self, now: Nanos) -> Option<Slot> {
        self.wheel.overdue(&self.slab, now).map(Slot)
    }

    /// A flow whose deadline has passed among those that lie where a new one with this hash would go: what lazy deletion
    /// takes away on a new flow's arrival.
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

    /// The flow to remove when there is no room for one with this hash; `None` when none may go.
    #[must_use]
    pub fn victim(&self, eviction: Eviction, hash: u64) -> Option<Slot> {
        match eviction {
            Eviction::OldestUnanswered => self.oldest_unprotected(),
            Eviction::LeastRecent => {
                self.soonest_neighbour(hash).or_else(|| self.elsewhere(hash, Self::soonest_neighbour))
            }
            Eviction::Random => self.elsewhere(hash, Self::random_neighbour),
            Eviction::None => None,
        }
    }

    /// Looks in random places until somebody lies there; the table is full, so it doesn't take many.
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

    /// Brings near what removing the next two flows will need: the second's entry, and of the first, which
    /// the call before brought, the part of the index.
    #[inline]
    fn prefetch_followers(&self, slot: u32) {
        let Some(first) = self.candidates.behind(slot) else { return };
        self.index.prefetch(self.hash(self.slab.key(first)));
        let Some(second) = self.candidates.behind(first) else { return };
        self.slab.prefetch(second);
        self.wheel.prefetch_position(second);
    }

    /// How many flows lie where one with this hash would go.
    #[must_use]
    pub fn crowd(&self, hash: u64) -> usize {
        let mut count = 0;
        self.index.neighbours(hash, |_| count += 1);
        count
    }

    /// The slot of this number.
    ///
    /// # Panics
    /// When there is no flow at it.
    #[must_use]
    pub fn slot(&self, index: usize) -> Slot {
        let slot = Slot(u32::try_from(index).unwrap_or(u32::MAX));
        assert!(self.slab.is_live(slot.0), "there is no flow at the slot");
        slot
    }

    /// No slot's number is this large: for arrays kept beside the table.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slab.slots() as usize
    }

    /// How many flows there are.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slab.len() as usize
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// How many flows there can be.
    #[inline]
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Whether there are as many flows as there can be.
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

    /// What the table takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.slab.bytes()
            + self.index.bytes()
            + self.wheel.bytes()
            + self.candidates.bytes()
            + self.hashes.bytes()
    }

    /// Whether it is so small, or has so few flows now, that what they lie in stays in the second-level cache by itself: then
    /// [`prefetch`](Self::prefetch) costs more than it saves.
    #[must_use]
    pub fn fits_l2(&self) -> bool {
        // In an index that is larger, each flow may have a line of its own.
        let index = self.index.bytes().min(self.len() * CACHE_LINE);
        index <= L2_INDEX_BYTES && self.slab.bytes_in_use(self.index.assigns()) <= L2_SLAB_BYTES
    }

    /// All flows: key, value and deadline, in the order of their slots.
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
