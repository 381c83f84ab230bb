//! Flow tables that one core owns.

use flow::index::AnyIndex;
use flow::{Ageing, Plan, Slot, Table};
use nf::{Effects, Flow, KeyOf, NetworkFunction, Sizing};
use packet::{Decided, Family, FlowKey, Host6, Key, Nanos, Taken};

use crate::placement::lifecycle::{End, Ending, FlowStore, Ledger, Lifecycle, Opening, Runner};
use crate::placement::tables::{Sources, Tables};
use crate::placement::{BURST, FlowState, Lane, SavedFlow};

/// The flow tables of a core, one for each address family, with the core's flow counters.
pub(crate) struct OwnedTables<N: NetworkFunction> {
    pub(crate) v4: OwnedTable<<KeyOf<N> as FlowKey>::V4, N::Flow>,
    pub(crate) v6: OwnedTable<<KeyOf<N> as FlowKey>::V6, N::Flow>,
    pub(crate) ledger: Ledger,
}

/// The flows of one address family.
pub(crate) struct OwnedTable<K, V> {
    pub(crate) table: Table<K, V, AnyIndex>,
    /// Where the source of each flow is counted, if sources are limited; indexed by the flow's slot.
    origins: Box<[u32]>,
}

/// A flow on its way from one table to another.
pub(crate) struct MovingFlow<N: NetworkFunction> {
    flow: N::Flow,
    deadline: Nanos,
    assured: bool,
    /// The source that opened it, if sources are limited. Its packets come from both ends, so they don't tell.
    source: Option<Host6>,
}

impl<N: NetworkFunction> Clone for MovingFlow<N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N: NetworkFunction> Copy for MovingFlow<N> {}

impl<N: NetworkFunction> OwnedTables<N> {
    /// Empty tables for `sizing` flows. Capacity 0 for functions without flows.
    pub(crate) fn new(sizing: Sizing, seed: u64, options: Tables) -> Self {
        let (flows, flows_v6) = if N::Flow::STORED { (sizing.flows, sizing.flows_v6) } else { (0, 0) };
        Self {
            v4: OwnedTable::new(flows, seed, options),
            v6: OwnedTable::new(flows_v6, seed, options),
            ledger: Ledger::new(options, flows + flows_v6, seed),
        }
    }

    /// Iterates over the flows alive at `now`, in no particular order.
    pub(crate) fn flows(&self, now: Nanos) -> impl Iterator<Item = FlowState<N>> + '_ {
        let v4 = self.v4.table.iter().map(|(key, flow, deadline)| FlowState {
            key: KeyOf::<N>::from_v4(*key),
            flow: *flow,
            deadline,
        });
        let v6 = self.v6.table.iter().map(|(key, flow, deadline)| FlowState {
            key: KeyOf::<N>::from_v6(*key),
            flow: *flow,
            deadline,
        });
        v4.chain(v6).filter(move |state| state.deadline > now)
    }

    /// The flows with a deadline after `now`, to be saved.
    pub(crate) fn saved(&self, now: Nanos, seed: u64) -> Vec<SavedFlow<N>> {
        let is_assured = |key: &KeyOf<N>| match key.family() {
            Family::V4(key) => self.v4.is_protected(&key, key.hash(seed)),
            Family::V6(key) => self.v6.is_protected(&key, key.hash(seed)),
        };
        let saved = |FlowState { key, flow, deadline }: FlowState<N>| {
            let assured = is_assured(&key);
            SavedFlow { key, flow, deadline, assured }
        };
        self.flows(now).map(saved).collect()
    }

    /// Puts in a saved flow, and counts it as opened. Returns false if there is no room.
    pub(crate) fn restore(&mut self, saved: &SavedFlow<N>, hash: u64, now: Nanos) -> bool {
        let SavedFlow { key, flow, deadline, assured } = *saved;
        let Self { v4, v6, ledger } = self;
        let carried = MovingFlow::<N> { flow, deadline, assured, source: None };
        ledger.counters.opened += 1;
        let evicted = ledger.counters.evicted;
        // A table may have more places than it has room.
        match key.family() {
            Family::V4(key) if v4.table.len() < v4.table.capacity() => v4.put_in(key, hash, &carried, now, ledger),
            Family::V6(key) if v6.table.len() < v6.table.capacity() => v6.put_in(key, hash, &carried, now, ledger),
            Family::V4(_) | Family::V6(_) => ledger.counters.evicted += 1,
        }
        ledger.counters.evicted == evicted
    }

    /// The number of table entries: flows alive, and expired flows that were not reclaimed yet.
    pub(crate) fn entries(&self) -> usize {
        self.v4.table.len() + self.v6.table.len()
    }

    /// The most flows at one time.
    pub(crate) fn high_water(&self) -> usize {
        self.v4.table.high_water() + self.v6.table.high_water()
    }

    /// The memory of the tables, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let sources = self.ledger.sources.as_ref().map_or(0, Sources::memory_bytes);
        self.v4.memory_bytes() + self.v6.memory_bytes() + sources
    }
}

impl<K: Key, V: Copy + Send + 'static> OwnedTable<K, V> {
    fn new(capacity: usize, seed: u64, options: Tables) -> Self {
        let Tables { index, ageing, per_source, .. } = options;
        let table = Table::planned(Plan { index, capacity, load_percent: None, ageing, seed });
        Self { origins: Sources::origins(table.slots(), per_source.is_some()), table }
    }

    fn is_protected(&self, key: &K, hash: u64) -> bool {
        self.table.find(key, hash).is_some_and(|slot| self.table.is_protected(slot))
    }

    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + size_of_val(&*self.origins)
    }

    /// Returns the function's decision about a flow that is alive at `now`, and the flow's deadline.
    pub(crate) fn decided<N: NetworkFunction<Flow = V>>(
        &self,
        nf: &N,
        key: &K,
        hash: u64,
        now: Nanos,
    ) -> Option<(Decided, Nanos)> {
        let slot = self.table.find(key, hash)?;
        let deadline = self.table.deadline(slot);
        // An unprotected flow may have to make room for another one.
        if deadline <= now || !self.table.is_protected(slot) {
            return None;
        }
        nf.decided(self.table.value(slot)).map(|decided| (decided, deadline))
    }

    /// Leaves the flow's deadline to a card.
    pub(crate) fn leave_to_card(&mut self, key: &K, hash: u64) {
        if let Some(slot) = self.table.find(key, hash) {
            self.table.touch(slot, Nanos::NEVER);
        }
    }

    /// Brings a flow up to date by what a card has taken of its packets. Returns false if there is no such flow.
    pub(crate) fn take_back<N: NetworkFunction<Flow = V>>(
        &mut self,
        nf: &N,
        key: &K,
        hash: u64,
        taken: &Taken,
    ) -> bool {
        let Some(slot) = self.table.find(key, hash) else { return false };
        nf.taken(self.table.value_mut(slot), taken);
        self.table.touch(slot, taken.deadline);
        true
    }

    /// True if an eighth of the table is free, and more than a burst needs.
    pub(crate) fn has_room(&self) -> bool {
        let capacity = self.table.capacity();
        capacity - self.table.len() >= (capacity / 8).max(2 * BURST)
    }

    /// Takes a flow out, to be put into another table. The flow doesn't end.
    pub(crate) fn take_out<N: NetworkFunction<Flow = V>>(
        &mut self,
        key: &K,
        hash: u64,
        ledger: &mut Ledger,
    ) -> Option<MovingFlow<N>> {
        let slot = self.table.find(key, hash)?;
        let (deadline, assured) = (self.table.deadline(slot), self.table.is_protected(slot));
        let source = ledger.sources.as_mut().and_then(|sources| {
            let origin = self.origins[slot.index()];
            let source = sources.source(origin);
            sources.leave(origin);
            source
        });
        Some(MovingFlow { flow: self.table.remove(slot), deadline, assured, source })
    }

    /// Puts in a flow from another table. If there is no room, the flow ends here, as evicted.
    pub(crate) fn put_in<N: NetworkFunction<Flow = V>>(
        &mut self,
        key: K,
        hash: u64,
        carried: &MovingFlow<N>,
        now: Nanos,
        ledger: &mut Ledger,
    ) {
        let MovingFlow { flow, deadline, assured, source } = *carried;
        let Some(slot) = self.table.insert(key, hash, flow, deadline, now) else {
            ledger.counters.evicted += 1;
            return;
        };
        if assured {
            self.table.protect(slot);
        }
        if let Some(sources) = &mut ledger.sources {
            self.origins[slot.index()] = sources.take_in(source);
        }
    }
}

/// One table, while its core opens and ends flows in it.
pub(crate) struct Owned<'a, K, V> {
    pub(crate) flows: &'a mut OwnedTable<K, V>,
    pub(crate) ledger: &'a mut Ledger,
}

impl<K: Key, V: Copy + Send + 'static> Owned<'_, K, V> {
    fn ending(&self, slot: Slot) -> Ending<V> {
        let OwnedTable { table, .. } = &*self.flows;
        Ending { slot, flow: *table.value(slot), deadline: table.deadline(slot), last: Nanos(0) }
    }

    /// Applies the effects of a flow's step to the table, except the flow's end.
    pub(crate) fn apply(&mut self, slot: Slot, effects: Effects) {
        if let Some(deadline) = effects.deadline {
            self.flows.table.touch(slot, deadline);
        }
        if effects.assured {
            self.flows.table.protect(slot);
        }
    }
}

/// Returns a flow that is to end without taking it out: it stays until [`remove`](FlowStore::remove).
impl<K: Key, V: Copy + Send + 'static> FlowStore<V> for Owned<'_, K, V> {
    type Key = K;

    fn len(&self) -> usize {
        self.flows.table.len()
    }

    fn capacity(&self) -> usize {
        self.flows.table.capacity()
    }

    fn is_full(&self) -> bool {
        self.flows.table.is_full()
    }

    fn ledger(&mut self) -> &mut Ledger {
        self.ledger
    }

    fn origin(&mut self, slot: Slot) -> &mut u32 {
        &mut self.flows.origins[slot.index()]
    }

    fn reclaim(&mut self, now: Nanos) -> Option<Ending<V>> {
        self.flows.table.reclaim(now).map(|slot| self.ending(slot))
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.flows.table.is_due(now)
    }

    fn dead_near(&mut self, hash: u64, now: Nanos) -> Option<Ending<V>> {
        self.flows.table.expired_near(hash, now).map(|slot| self.ending(slot))
    }

    fn victim(&mut self, hash: u64, now: Nanos) -> Option<Ending<V>> {
        let Tables { eviction, ageing, .. } = self.ledger.options;
        let OwnedTable { table, .. } = &*self.flows;
        let victim = table.overdue(now).or_else(|| table.victim(eviction, hash));
        // Without a timing wheel, expired flows stay in the table even if they are protected. The nearest of them may be evicted.
        let dead = || table.expired_near(hash, now).filter(|_| ageing != Ageing::Wheel);
        victim.or_else(dead).map(|slot| self.ending(slot))
    }

    fn remove(&mut self, slot: Slot) {
        self.flows.table.remove(slot);
    }

    fn insert(&mut self, key: K, hash: u64, opening: Opening<V>, now: Nanos) -> Option<Slot> {
        let Opening { flow, deadline, assured } = opening;
        let slot = self.flows.table.insert(key, hash, flow, deadline, now)?;
        if assured {
            self.flows.table.protect(slot);
        }
        Some(slot)
    }
}

impl<K: Key, N: NetworkFunction, R: Runner<N>> Lifecycle<'_, N, Owned<'_, K, N::Flow>, R> {
    /// Looks the packet's flow up in the whole table. A flow past its deadline counts as gone, whether or not it was reclaimed.
    #[inline(never)]
    pub(crate) fn alive(&mut self, key: &K, lane: Lane<'_, N::Meta>) -> Option<Slot> {
        let slot = self.store.flows.table.find(key, lane.hash)?;
        if self.store.flows.table.deadline(slot) > lane.now {
            return Some(slot);
        }
        let ending = self.store.ending(slot);
        self.end(&ending, (lane.now, lane.seq), End::Expired);
        None
    }

    /// Ends the flow at `slot`.
    pub(crate) fn end_at(&mut self, slot: Slot, lane: Lane<'_, N::Meta>, how: End) {
        let ending = self.store.ending(slot);
        self.end(&ending, (lane.now, lane.seq), how);
    }
}
