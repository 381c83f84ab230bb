//! A shared table with a guard for each entry. A step on a known flow writes the entry's cache lines and no others. Adding, removing and
//! ageing flows take the lock of the flow's stripe.
//!
//! A core follows a [signpost](super::signposts) to a cell, locks the entry there and compares the key. If there is no signpost or the key
//! differs, it takes the stripe's lock, under which a [`Table`] finds every flow. A cell holds a key only while the stripe's table has that
//! key, so both ways find the same entry. The holder of an entry waits for nothing, and the holder of a stripe waits for entries only, so
//! there is no deadlock.
//!
//! A flow's deadline in the table is at most the deadline in its entry, as steps move the latter without telling the table. The table
//! learns the true deadline when it would expire or evict the flow.

use alloc::boxed::Box;

use locality::{pages, prefetch};
use packet::{Key, Nanos};

use crate::index::CuckooPp;
use crate::shared::guard::{EntryCell, EntryOutcome, Fate, Guard, GuardedEntry, Locking, SlotPlaces, StepPermit};
use crate::shared::signposts::Signposts;
use crate::shared::spin::SpinLock;
use crate::shared::{Insertion, SharedTable, share};
use crate::slab::nonzero_deadline;
use crate::{Eviction, Hint, Index, Plan, Slot, Table};

/// The most stripes: enough that two cores seldom meet, few enough that each holds a fair sample of the flows.
const STRIPES_MAX: usize = 256;
/// The fewest flows a stripe.
const STRIPE_FLOWS: usize = 64;
/// The first of the hash bits that number the stripe. The table inside uses the lowest byte and the upper half, and the signposts the upper
/// half.
const STRIPE_SHIFT: u32 = 16;
/// How often a search finds a flow with an outdated deadline before it gives up: more than there are flows in one neighbourhood.
const TRIES: usize = 64;
/// How many units of ageing [`SharedTable::insert`] may do if there is no room.
const RECLAIMS: usize = 8;

/// A shared flow table with a guard `G` for each entry. Each stripe also holds an `X` of the caller's, under the stripe's lock.
pub struct Entries<K: Key, V: Copy + Send + Sync + 'static, I = CuckooPp, X = (), G: Guard = Locking> {
    signposts: Signposts,
    cells: Box<[G::Cell<K, V>]>,
    stripes: Box<[Stripe<K, I, X, G>]>,
    epochs: G::Epochs,
    /// How many cells each stripe has.
    places: usize,
    seed: u64,
}

#[repr(align(128))]
struct Stripe<K, I, X, G: Guard>(SpinLock<StripeState<K, I, X, G>>);

/// The part of a stripe under its lock: which flows there are.
struct StripeState<K, I, X, G: Guard> {
    table: Table<K, (), I>,
    places: G::Places,
    own: X,
}

/// A removed flow and the slot that it had.
pub type RemovedFlow<K, V, G> = (Slot, GuardedEntry<K, V, <G as Guard>::Sum>);

/// A stripe whose lock this core holds.
pub struct StripeGuard<'a, K: Key, V: Copy + Send + Sync + 'static, I, X, G: Guard = Locking> {
    state: &'a mut StripeState<K, I, X, G>,
    signposts: &'a Signposts,
    cells: &'a [G::Cell<K, V>],
    epochs: &'a G::Epochs,
    part: usize,
}

impl<K: Key, V: Copy + Send + Sync + 'static, I: Index, X: Send, G: Guard> Entries<K, V, I, X, G> {
    /// An empty table cut into so many stripes. `own` makes the caller's part of a stripe, for so many slots. Each stripe has room for more
    /// than its share, as hashes don't spread evenly. `epochs` are those of the cores that will use the table.
    ///
    /// # Panics
    /// As [`Table::planned`] does, and if the number is not a power of two up to 2^12.
    #[must_use]
    pub fn cut(plan: Plan<I::Choice>, stripes: usize, mut own: impl FnMut(usize) -> X, epochs: G::Epochs) -> Self {
        assert!(stripes.is_power_of_two() && stripes <= 1 << 12, "the number of stripes is a power of two up to 2^12");
        let capacity = share(plan.capacity, stripes);
        let stripes: Box<[_]> = (0..stripes)
            .map(|_| {
                let table = Table::planned(Plan { capacity, ..plan });
                let (own, places) = (own(table.slots()), G::Places::new(table.slots(), &epochs));
                Stripe(SpinLock::new(StripeState { table, places, own }))
            })
            .collect();
        let slots = stripes[0].0.with(|state| state.table.slots());
        let places = G::Places::count(slots);
        let cells = pages::boxed((0..places * stripes.len()).map(|_| G::Cell::empty()));
        assert!(cells.len() < u32::MAX as usize, "a table has fewer than 2^32 places");
        let signposts = Signposts::new(stripes.len(), slots);
        Self { signposts, cells, stripes, epochs, places, seed: plan.seed }
    }

    /// The number of stripes that suits so many flows.
    #[must_use]
    pub const fn stripes_for(flows: usize) -> usize {
        let fair = flows / STRIPE_FLOWS;
        let bounded = if fair < STRIPES_MAX { fair } else { STRIPES_MAX };
        bounded.next_power_of_two()
    }

    /// The number of stripes.
    #[must_use]
    pub const fn stripes(&self) -> usize {
        self.stripes.len()
    }

    /// Prefetches the flow's signpost.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.signposts.prefetch(self.part(hash), hash);
    }

    /// Prefetches the entry to which the hash probably leads, and returns a hint for [`step`](Self::step). Call
    /// [`prefetch`](Self::prefetch) some time before.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) -> Hint {
        let Some(at) = self.find(hash) else { return Hint::NOWHERE };
        if let Some(cell) = self.cells.get(at as usize) {
            let cell: *const u8 = core::ptr::from_ref(cell).cast();
            (0..size_of::<G::Cell<K, V>>()).step_by(64).for_each(|offset| prefetch::address(cell.wrapping_add(offset)));
        }
        Hint(at)
    }

    /// Runs `work` on the key's entry without the stripe's lock and returns its result. `None` means that the entry wasn't found this way,
    /// or that the guard doesn't allow the change; it proves nothing, so call [`stripe`](Self::stripe) then. `work` must not make the
    /// deadline earlier nor protect the flow, and if it returns `None` it must have changed nothing.
    ///
    /// # Panics
    /// If the core may not step: it has not [entered](StepPermit::enter), or its permit is for another table.
    #[inline(always)]
    pub fn step<T>(
        &self,
        permit: &G::Permit,
        key: &K,
        hash: u64,
        hint: Hint,
        mut work: impl FnMut(&mut GuardedEntry<K, V, G::Sum>) -> Option<T>,
    ) -> Option<T> {
        assert!(permit.admits(&self.epochs), "a core enters before it steps");
        let mut at = hint.0;
        loop {
            // One call site, so that `work` is inlined here.
            if let Some(cell) = self.cells.get(at as usize)
                && let Some(result) = cell.step(key, &mut work)
            {
                return result;
            }
            // The hint may be out of date.
            if at != hint.0 {
                return None;
            }
            at = self.find(hash).filter(|at| *at != hint.0)?;
        }
    }

    /// Runs `work` on the hash's stripe with its lock held. It deadlocks if `work` uses the table otherwise. A core must
    /// [leave](StepPermit::leave) its burst before.
    pub fn stripe<T>(&self, hash: u64, work: impl FnOnce(&mut StripeGuard<'_, K, V, I, X, G>) -> T) -> T {
        self.nth_stripe(self.part(hash), work)
    }

    /// Like [`stripe`](Self::stripe), for the stripe of this number.
    ///
    /// # Panics
    /// If there is no such stripe.
    pub fn nth_stripe<T>(&self, part: usize, work: impl FnOnce(&mut StripeGuard<'_, K, V, I, X, G>) -> T) -> T {
        let Self { signposts, epochs, .. } = self;
        let cells = &self.cells[part * self.places..][..self.places];
        self.stripes[part].0.with(|state| work(&mut StripeGuard { state, signposts, cells, epochs, part }))
    }

    /// Visits a copy of every flow, stripe by stripe, with the stripe's lock held.
    pub fn each(&self, mut visit: impl FnMut(GuardedEntry<K, V, G::Sum>)) {
        for part in 0..self.stripes.len() {
            self.nth_stripe(part, |stripe| stripe.cells.iter().filter_map(EntryCell::copy).for_each(&mut visit));
        }
    }

    /// The number of flows.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.0.with(|state| state.table.len())).sum()
    }

    /// The most flows that each stripe ever had, added up.
    #[must_use]
    pub fn high_water(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.0.with(|state| state.table.high_water())).sum()
    }

    /// The table's memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let inside = |stripe: &Stripe<K, I, X, G>| {
            stripe
                .0
                .with(|StripeState { table, places, .. }| table.memory_bytes() - size_of_val(table) + places.bytes())
        };
        let stripes = size_of_val(&*self.stripes) + self.stripes.iter().map(inside).sum::<usize>();
        size_of::<Self>() + stripes + size_of_val(&*self.cells) + self.signposts.bytes()
    }

    #[inline(always)]
    const fn part(&self, hash: u64) -> usize {
        (hash >> STRIPE_SHIFT) as usize & (self.stripes.len() - 1)
    }

    /// The cell that the hash's signpost names, counted over all stripes.
    #[inline(always)]
    fn find(&self, hash: u64) -> Option<u32> {
        let part = self.part(hash);
        let place = self.signposts.find(part, hash)?;
        Some((part * self.places) as u32 + place)
    }
}

impl<K: Key, V: Copy + Send + Sync + 'static, I: Index, X, G: Guard> StripeGuard<'_, K, V, I, X, G> {
    /// The caller's part of the stripe.
    pub const fn own(&mut self) -> &mut X {
        &mut self.state.own
    }

    /// The key's flow, whether or not its deadline has passed.
    #[must_use]
    pub fn find(&self, key: &K, hash: u64) -> Option<Slot> {
        self.state.table.find(key, hash)
    }

    /// Runs `work` on a flow while no core steps on it, and removes the flow if `work` says so.
    ///
    /// # Panics
    /// If there is no flow at the slot.
    pub fn decide<T>(&mut self, slot: Slot, work: impl FnOnce(&mut GuardedEntry<K, V, G::Sum>) -> (T, Fate)) -> T {
        let place = self.state.places.of(slot.index());
        let (result, decided) = self.cells[place].decide(work);
        let (deadline, protected) = match decided {
            EntryOutcome::Here(deadline, protected) => (deadline, protected),
            EntryOutcome::Moves(entry) => {
                let StripeState { table, places, .. } = &mut *self.state;
                places.give(slot.index(), self.epochs);
                let to = places.take(slot.index(), self.epochs);
                self.cells[to].put(entry);
                self.signposts.redirect(self.part, table.hash(&entry.key), place as u32, to as u32);
                (entry.deadline, entry.protected)
            }
            EntryOutcome::Gone => {
                let StripeState { table, places, .. } = &mut *self.state;
                let hash = table.hash(table.key(slot));
                table.remove(slot);
                places.give(slot.index(), self.epochs);
                self.signposts.clear(self.part, hash, place as u32);
                return result;
            }
        };
        self.update_table(slot, deadline, protected);
        result
    }

    /// Adds a flow whose key is not in the table, with a last step at `now`; `None` if there is no room.
    pub fn insert(
        &mut self,
        key: K,
        hash: u64,
        (value, deadline, now): (V, Nanos, Nanos),
        protected: bool,
    ) -> Option<Slot> {
        let slot = self.state.table.insert(key, hash, (), deadline, now)?;
        let entry =
            GuardedEntry { key, deadline: nonzero_deadline(deadline), now, value, sum: G::Sum::default(), protected };
        let place = self.state.places.take(slot.index(), self.epochs);
        self.cells[place].put(entry);
        self.signposts.set(self.part, hash, place as u32);
        if protected {
            self.state.table.protect(slot);
        }
        Some(slot)
    }

    /// Does one bounded unit of ageing. Returns the flow that it removed; after `None` there may be more work.
    pub fn reclaim(&mut self, now: Nanos) -> Option<RemovedFlow<K, V, G>> {
        let slot = self.state.table.reclaim(now)?;
        self.remove_expired(slot, now).map(|entry| (slot, entry))
    }

    /// True if [`reclaim`](Self::reclaim) may have more work.
    #[must_use]
    pub const fn is_due(&self, now: Nanos) -> bool {
        self.state.table.is_due(now)
    }

    /// Removes the flow if its deadline has passed.
    ///
    /// # Panics
    /// If there is no flow at the slot.
    pub fn remove_expired(&mut self, slot: Slot, now: Nanos) -> Option<GuardedEntry<K, V, G::Sum>> {
        self.decide(slot, |entry| if entry.deadline <= now { (Some(*entry), Fate::Goes) } else { (None, Fate::Stays) })
    }

    /// Removes an expired flow in the neighbourhood in which a new one with this hash would lie.
    pub fn remove_expired_near(&mut self, hash: u64, now: Nanos) -> Option<RemovedFlow<K, V, G>> {
        for _ in 0..TRIES {
            let slot = self.state.table.expired_near(hash, now)?;
            if let Some(entry) = self.remove_expired(slot, now) {
                return Some((slot, entry));
            }
        }
        None
    }

    /// Evicts a flow for a new one with this hash, if one may be evicted.
    pub fn evict(&mut self, eviction: Eviction, hash: u64) -> Option<RemovedFlow<K, V, G>> {
        for last in (0..TRIES).rev() {
            let slot = self.state.table.victim(eviction, hash)?;
            let table_deadline = self.state.table.deadline(slot);
            let decide = |entry: &mut GuardedEntry<K, V, G::Sum>| {
                // The table's deadline, by which it chose, may be out of date.
                if last > 0 && entry.deadline != table_deadline {
                    (None, Fate::Stays)
                } else {
                    (Some(*entry), Fate::Goes)
                }
            };
            if let Some(entry) = self.decide(slot, decide) {
                return Some((slot, entry));
            }
        }
        None
    }

    /// The number of flows in the stripe.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.state.table.len()
    }

    /// True if it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.state.table.is_empty()
    }

    /// The most flows that it can have.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.state.table.capacity()
    }

    /// True if it is full.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.state.table.is_full()
    }

    /// Updates the table's deadline and protection of a flow.
    fn update_table(&mut self, slot: Slot, deadline: Nanos, protected: bool) {
        self.state.table.touch(slot, deadline);
        if protected {
            self.state.table.protect(slot);
        }
    }
}

impl<K: Key, V: Copy + Send + Sync + 'static, I: Index> SharedTable<K, V> for Entries<K, V, I> {
    fn new(capacity: usize, seed: u64) -> Self {
        Self::cut(Plan { capacity, seed, ..Plan::default() }, Self::stripes_for(capacity), |_| (), ())
    }

    #[inline]
    fn hash(&self, key: &K) -> u64 {
        key.hash(self.seed)
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        Self::prefetch(self, hash);
    }

    #[inline]
    fn prefetch_entry(&self, hash: u64) {
        Self::prefetch_entry(self, hash);
    }

    fn get(&self, key: &K, hash: u64, now: Nanos) -> Option<V> {
        self.update(key, hash, now, |value, _| *value)
    }

    fn update<T>(&self, key: &K, hash: u64, now: Nanos, change: impl FnOnce(&mut V, &mut Nanos) -> T) -> Option<T> {
        let mut change = Some(change);
        let mut work = |entry: &mut GuardedEntry<K, V>| {
            // Copies, so that a panic in `change` leaves the flow as it was.
            let (mut value, mut deadline) = (entry.value, entry.deadline);
            let result =
                (deadline > now).then(|| change.take().map(|change| change(&mut value, &mut deadline))).flatten();
            let is_earlier = deadline < entry.deadline;
            entry.value = value;
            entry.set_deadline(deadline);
            Some((result, is_earlier))
        };
        let stepped = self.step(&(), key, hash, Hint::NOWHERE, &mut work);
        if let Some((result, false)) = stepped {
            return result;
        }
        self.stripe(hash, |stripe| {
            let slot = stripe.find(key, hash);
            match stepped {
                Some((result, _)) => {
                    // The table learns of the earlier deadline.
                    slot.iter().for_each(|slot| stripe.decide(*slot, |_| ((), Fate::Stays)));
                    result
                }
                None => stripe.decide(slot?, |entry| (work(entry), Fate::Changes))?.0,
            }
        })
    }

    fn insert(&self, key: K, hash: u64, value: V, deadline: Nanos, now: Nanos) -> Insertion {
        self.stripe(hash, |stripe| {
            if let Some(slot) = stripe.find(&key, hash)
                && stripe.remove_expired(slot, now).is_none()
            {
                return Insertion::Present;
            }
            let insert = |stripe: &mut StripeGuard<'_, K, V, I, ()>| {
                stripe.insert(key, hash, (value, deadline, now), false).is_some()
            };
            let make_room = |stripe: &mut StripeGuard<'_, K, V, I, ()>| {
                stripe.remove_expired_near(hash, now).is_some() || (0..RECLAIMS).any(|_| stripe.reclaim(now).is_some())
            };
            let is_in = insert(stripe) || make_room(stripe) && insert(stripe);
            if is_in { Insertion::Added } else { Insertion::Full }
        })
    }

    fn remove(&self, key: &K, hash: u64, now: Nanos) -> Option<V> {
        self.stripe(hash, |stripe| {
            let slot = stripe.find(key, hash)?;
            stripe.decide(slot, |entry| ((entry.deadline > now).then_some(entry.value), Fate::Goes))
        })
    }

    fn reclaim(&self, hash: u64, now: Nanos) -> usize {
        self.stripe(hash, |stripe| usize::from(stripe.reclaim(now).is_some()))
    }

    fn len(&self) -> usize {
        (0..self.stripes.len()).map(|part| self.nth_stripe(part, |stripe| stripe.len())).sum()
    }

    fn capacity(&self) -> usize {
        (0..self.stripes.len()).map(|part| self.nth_stripe(part, |stripe| stripe.capacity())).sum()
    }

    fn memory_bytes(&self) -> usize {
        Self::memory_bytes(self)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use packet::{Host, Host4};

    use super::*;

    type Few<X = ()> = Entries<Host4, u64, CuckooPp, X>;

    fn host(number: u32) -> Host4 {
        match Host::v4(number.into()) {
            Host::V4(key) => key,
            Host::V6(_) => unreachable!("made of an IPv4 address"),
        }
    }

    /// A table of one stripe with flows 0, 1, .. of these deadlines.
    fn table(capacity: usize, deadlines: &[u64]) -> Few {
        let table = Few::cut(Plan { capacity, ..Plan::default() }, 1, |_| (), ());
        for (number, deadline) in (0..).zip(deadlines) {
            let key = host(number);
            let insertion = SharedTable::insert(&table, key, key.hash(0), number.into(), Nanos(*deadline), Nanos(0));
            assert_eq!(insertion, Insertion::Added);
        }
        table
    }

    fn postpone(table: &Few, number: u32, deadline: u64) -> bool {
        let key = host(number);
        let step = |entry: &mut GuardedEntry<Host4, u64>| Some(entry.postpone(Nanos(deadline)));
        table.step(&(), &key, key.hash(0), Hint::NOWHERE, step).expect("it has a signpost")
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_step_on_a_known_flow_needs_no_stripe() {
        let table = table(8, &[SECOND, SECOND]);
        // Whoever took the stripe's lock now would wait forever.
        table.stripe(0, |_| assert!(postpone(&table, 1, 2 * SECOND)));
        let hint = table.prefetch_entry(host(1).hash(0));
        table.stripe(0, |_| {
            let found = table.step(&(), &host(1), host(1).hash(0), hint, |entry| Some((entry.value, entry.deadline())));
            assert_eq!(found, Some((1, Nanos(2 * SECOND))));
            // A hint that leads to another's entry does no harm.
            assert_eq!(table.step(&(), &host(0), host(0).hash(0), hint, |entry| Some(entry.value)), Some(0));
            assert_eq!(table.step(&(), &host(7), host(7).hash(0), hint, |entry| Some(entry.value)), None);
        });
    }

    #[test]
    fn ageing_learns_that_a_flow_lives_on() {
        let table = table(8, &[SECOND, SECOND]);
        assert!(postpone(&table, 0, 10 * SECOND));
        assert!(!postpone(&table, 0, 9 * SECOND), "earlier is the stripe's matter");
        let reclaim = |now: u64| -> std::vec::Vec<u64> {
            table.stripe(0, |stripe| {
                (0..100).filter_map(|_| stripe.reclaim(Nanos(now))).map(|(_, entry)| entry.value).collect()
            })
        };
        assert_eq!(reclaim(2 * SECOND), [1]);
        assert_eq!(reclaim(9 * SECOND), []);
        assert_eq!(reclaim(11 * SECOND), [0]);
        assert!(table.is_empty());
    }

    #[test]
    fn eviction_goes_by_the_deadlines_that_are_true() {
        let table = table(3, &[SECOND, 2 * SECOND, 3 * SECOND]);
        assert!(postpone(&table, 0, 9 * SECOND) && postpone(&table, 1, 8 * SECOND));
        let crowd = |hash: &u64| table.stripe(0, |stripe| stripe.state.table.crowd(*hash));
        let hash = (9..10_000).map(|number| host(number).hash(0)).find(|hash| crowd(hash) == 3);
        let hash = hash.expect("somewhere all three are neighbours");
        let evicted = |eviction| table.stripe(0, |stripe| stripe.evict(eviction, hash).map(|(_, entry)| entry.value));
        assert_eq!(evicted(Eviction::None), None);
        // By what the table was told last it would be 0.
        assert_eq!(evicted(Eviction::LeastRecent), Some(2));
        assert_eq!(evicted(Eviction::OldestUnprotected), Some(0));
        assert_eq!(SharedTable::len(&table), 1);
    }

    #[test]
    fn an_end_is_at_one_instant_with_its_decision() {
        let table = table(4, &[SECOND]);
        let key = host(0);
        let value = table.stripe(key.hash(0), |stripe| {
            let slot = stripe.find(&key, key.hash(0)).expect("it is there");
            stripe.decide(slot, |entry| (entry.value, Fate::Goes))
        });
        assert_eq!(value, 0);
        assert_eq!(table.step(&(), &key, key.hash(0), Hint::NOWHERE, |_| Some(())), None);
        let again =
            table.stripe(key.hash(0), |stripe| stripe.insert(key, key.hash(0), (5, Nanos::NEVER, Nanos(3)), true));
        assert!(again.is_some(), "its place is free");
        let seen =
            table.step(&(), &key, key.hash(0), Hint::NOWHERE, |entry| Some((entry.value, entry.now, entry.protected)));
        assert_eq!(seen, Some((5, Nanos(3), true)));
    }

    #[test]
    fn each_stripe_has_what_the_caller_keeps_with_it() {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let plan = Plan { capacity: 1000, ..Plan::default() };
        // ORDERING: Relaxed. One thread counts.
        let table = Few::cut(plan, 4, |_| MADE.fetch_add(1, Ordering::Relaxed), ());
        assert_eq!(table.stripes(), 4);
        (0..4).for_each(|at| assert_eq!(table.nth_stripe(at, |stripe| *stripe.own()), at as u32));
    }
}
