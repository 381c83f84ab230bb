//! State that one core owns: all of it (`sequential`), a shard (`rss`), a replica (`scr`).

use core::hint::cold_path;

use flow::{EntryMut, Hint, Slot};
use memory::{Local, LocalTx};
use nf::{
    Context, Effects, Flow, Kept, KeyOf, Meta, NetworkFunction, Opened, PacketCounts, Sizing, Speed, Verdict,
    local_conclusion,
};
use packet::{Decided, Family, FlowKey, Key, Nanos, Seq, Taken};

use crate::counters::FlowCounters;
use crate::placement::lifecycle::{AGE_UNITS, End, Ledger, Lifecycle, OnLocal, RECLAIM_PER_PACKET, always};
use crate::placement::owned::{MovingFlow, Owned, OwnedTable, OwnedTables};
use crate::placement::tables::Tables;
use crate::placement::{FlowState, Lane, Placement, SavedFlow, records_are_of_all, saved_behind};

/// State that one core owns.
pub struct Private<N: NetworkFunction> {
    seed: u64,
    tables: OwnedTables<N>,
    shared: N::Shared<Local>,
    counts: PacketCounts,
}

/// The table of a packet's address family, with what its step needs.
struct Stepping<'a, N: NetworkFunction, K> {
    nf: &'a N,
    flows: &'a mut OwnedTable<K, N::Flow>,
    ledger: &'a mut Ledger,
    shared: &'a N::Shared<Local>,
    /// Where the packet is counted; `None` for functions that don't count, and for replayed packets.
    counts: Option<&'a PacketCounts>,
}

impl<N: NetworkFunction> Private<N> {
    /// Empty state with tables for `sizing` flows and default options. No tables for functions without flows.
    #[must_use]
    pub fn new(nf: &N, sizing: Sizing, seed: u64) -> Self {
        Self::with_options(nf, sizing, seed, Tables::default())
    }

    /// Empty state with tables for `sizing` flows and these options.
    #[must_use]
    pub fn with_options(nf: &N, sizing: Sizing, seed: u64, options: Tables) -> Self {
        Self {
            seed,
            tables: OwnedTables::new(sizing, seed, options),
            shared: nf.shared(&Local::keyed(seed)),
            counts: PacketCounts::new(nf.counters()),
        }
    }

    /// The shared state.
    #[must_use]
    pub const fn shared(&self) -> &N::Shared<Local> {
        &self.shared
    }

    /// What this core has counted, if the function counts.
    #[must_use]
    pub const fn counts(&self) -> &PacketCounts {
        &self.counts
    }

    /// Returns the state that packet sets share at `now`, as words.
    pub(crate) fn saved_shared(&self, nf: &N, now: Nanos) -> Vec<u64> {
        let mut words = Vec::new();
        always(nf.keep(&self.shared, &mut LocalTx::default(), &mut Kept::writing(&mut words, now)));
        words
    }

    /// Reads what packet sets share. False if the words make no sense.
    pub(crate) fn restore_shared(&mut self, nf: &N, words: &[u64], now: Nanos) -> bool {
        let mut kept = Kept::reading(words, now);
        always(nf.keep(&self.shared, &mut LocalTx::default(), &mut kept));
        kept.is_whole()
    }

    /// Fits the state to `nf`, which succeeds `old`.
    pub(crate) fn adopt(&mut self, nf: &N, old: &N) {
        nf.adopt(old, &mut self.shared, &Local::keyed(self.seed));
        self.counts = PacketCounts::new(nf.counters());
    }

    /// Iterates over the flows alive at `now`, in no particular order.
    pub fn flows(&self, now: Nanos) -> impl Iterator<Item = FlowState<N>> + '_ {
        self.tables.flows(now)
    }

    /// Iterates over all entries, each flow as the function's report at `now` sees it.
    pub(crate) fn concluded<'a>(&'a self, nf: &'a N, now: Nanos) -> impl Iterator<Item = FlowState<N>> + 'a {
        self.tables.flows(Nanos(0)).map(move |state| {
            let flow =
                if N::READS_FRAMES { local_conclusion(nf, &self.shared, &state.flow, now, None) } else { state.flow };
            FlowState { flow, ..state }
        })
    }

    /// Counts what the ends of flows past their deadline would, if the function counts that.
    pub(crate) fn count_lapsed(&self, nf: &N, now: Nanos, counts: &PacketCounts) {
        if N::READS_FRAMES {
            for FlowState { flow, .. } in self.tables.flows(Nanos(0)).filter(|state| state.deadline <= now) {
                let _ = local_conclusion(nf, &self.shared, &flow, now, Some(counts));
            }
        }
    }

    /// The number of table entries: flows alive, and expired flows that were not reclaimed yet.
    pub(crate) fn entries(&self) -> usize {
        self.tables.entries()
    }

    /// The most flows at one time.
    #[must_use]
    pub fn high_water(&self) -> usize {
        self.tables.high_water()
    }

    /// The memory of the tables, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.tables.memory_bytes()
    }

    /// Prefetches the flow's entry and returns its hint. With `NEAR` the tables fit the L2 cache.
    #[inline(always)]
    fn hint<const NEAR: bool>(&self, nf: &N, meta: &N::Meta, hash: u64) -> Hint {
        N::Speed::prefetch_entry(nf, &self.shared, meta);
        if !N::Flow::STORED {
            return Hint::default();
        }
        let OwnedTables { v4, v6, .. } = &self.tables;
        match (meta.key().family(), N::Speed::SELECTIVE) {
            (Family::V4(_), false) => v4.table.prefetch_entry_as::<false, NEAR>(hash),
            (Family::V6(_), false) => v6.table.prefetch_entry_as::<false, NEAR>(hash),
            (Family::V4(_), true) => v4.table.prefetch_entry_as::<true, NEAR>(hash),
            (Family::V6(_), true) => v6.table.prefetch_entry_as::<true, NEAR>(hash),
        }
    }

    /// Takes a flow out, to be put into another table. The flow doesn't end.
    pub(crate) fn take_out(&mut self, key: &KeyOf<N>, hash: u64) -> Option<MovingFlow<N>> {
        let OwnedTables { v4, v6, ledger } = &mut self.tables;
        match key.family() {
            Family::V4(key) => v4.take_out(&key, hash, ledger),
            Family::V6(key) => v6.take_out(&key, hash, ledger),
        }
    }

    /// Puts in a flow from another table. If there is no room, the flow ends here, as evicted.
    pub(crate) fn put_in(&mut self, key: &KeyOf<N>, hash: u64, carried: &MovingFlow<N>, now: Nanos) {
        let OwnedTables { v4, v6, ledger } = &mut self.tables;
        match key.family() {
            Family::V4(key) => v4.put_in(key, hash, carried, now, ledger),
            Family::V6(key) => v6.put_in(key, hash, carried, now, ledger),
        }
    }

    /// Takes the step of a function without flows.
    #[inline(always)]
    fn stateless(&self, nf: &N, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        let counts = counted::<N>(&self.counts, lane.replayed);
        let mut cx =
            Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq).counting(counts).reading(lane.frame);
        match always(nf.open(&mut cx, lane.meta)) {
            // Matched by reference: a move would copy the verdict.
            Opened::Flow(mut flow) => match &nf.packet(&mut cx, &mut flow, lane.meta) {
                Ok(verdict) => decided(verdict),
                Err(never) => match *never {},
            },
            Opened::Refused(verdict) => decided(&verdict),
        }
    }
}

impl<N: NetworkFunction> Placement<N> for Private<N> {
    const REPLAYS: bool = true;

    records_are_of_all!();

    fn succeed(mut places: Vec<Self>, nf: &N, old: &N) -> Vec<Self> {
        places.iter_mut().for_each(|place| place.adopt(nf, old));
        places
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    #[inline(always)]
    fn prefetch(&self, nf: &N, meta: &N::Meta, hash: u64, _: u16) {
        N::Speed::prefetch(nf, &self.shared, meta);
        if N::Flow::STORED {
            match meta.key().family() {
                Family::V4(_) => self.tables.v4.table.prefetch(hash),
                Family::V6(_) => self.tables.v6.table.prefetch(hash),
            }
        }
    }

    fn fits_l2(&self) -> bool {
        size_of::<N::Shared<Local>>() == 0 && self.tables.v4.table.fits_l2() && self.tables.v6.table.fits_l2()
    }

    #[inline(always)]
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64, _: u16) -> Hint {
        self.hint::<false>(nf, meta, hash)
    }

    #[inline(always)]
    fn locate(&self, nf: &N, meta: &N::Meta, hash: u64, _: u16) -> Hint {
        self.hint::<true>(nf, meta, hash)
    }

    #[inline(always)]
    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        if !N::Flow::STORED {
            return self.stateless(nf, lane, decided);
        }
        let Self { tables: OwnedTables { v4, v6, ledger }, shared, counts, .. } = self;
        let counts = counted::<N>(counts, lane.replayed);
        match lane.meta.key().family() {
            Family::V4(key) => Stepping { nf, flows: v4, ledger, shared, counts }.step(key, lane, decided),
            Family::V6(key) => Stepping { nf, flows: v6, ledger, shared, counts }.step(key, lane, decided),
        }
    }

    fn fold(&mut self, nf: &N, last: Lane<'_, N::Meta>, count: u32, first: Nanos) -> bool {
        let Self { tables: OwnedTables { v4, v6, ledger }, shared, .. } = self;
        N::Flow::STORED
            && match last.meta.key().family() {
                Family::V4(key) => {
                    Stepping { nf, flows: v4, ledger, shared, counts: None }.fold(&key, last, count, first)
                }
                Family::V6(key) => {
                    Stepping { nf, flows: v6, ledger, shared, counts: None }.fold(&key, last, count, first)
                }
            }
    }

    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        let Self { tables: OwnedTables { v4, v6, ledger }, shared, counts, .. } = self;
        // What ends here is counted only by functions that are never replicated: all replicas come here.
        let counts = N::READS_FRAMES.then_some(&*counts);
        Stepping { nf, flows: v4, ledger, shared, counts }.lifecycle().reclaim(now, last, AGE_UNITS)
            || Stepping { nf, flows: v6, ledger, shared, counts }.lifecycle().reclaim(now, last, AGE_UNITS)
    }

    fn decided(&self, nf: &N, key: &KeyOf<N>, hash: u64, now: Nanos) -> Option<(Decided, Nanos)> {
        match key.family() {
            Family::V4(key) => self.tables.v4.decided(nf, &key, hash, now),
            Family::V6(key) => self.tables.v6.decided(nf, &key, hash, now),
        }
    }

    fn leave_to_card(&mut self, key: &KeyOf<N>, hash: u64) {
        match key.family() {
            Family::V4(key) => self.tables.v4.leave_to_card(&key, hash),
            Family::V6(key) => self.tables.v6.leave_to_card(&key, hash),
        }
    }

    fn take_back(&mut self, nf: &N, key: &KeyOf<N>, hash: u64, taken: &Taken) -> bool {
        match key.family() {
            Family::V4(key) => self.tables.v4.take_back(nf, &key, hash, taken),
            Family::V6(key) => self.tables.v6.take_back(nf, &key, hash, taken),
        }
    }

    fn has_room(&self) -> [bool; 2] {
        [self.tables.v4.has_room(), self.tables.v6.has_room()]
    }

    fn catch_up(&mut self, nf: &N, now: Nanos, last: Seq, units: usize) {
        let Self { tables: OwnedTables { v4, v6, ledger }, shared, .. } = self;
        Stepping { nf, flows: v4, ledger, shared, counts: None }.lifecycle().reclaim(now, last, units);
        Stepping { nf, flows: v6, ledger, shared, counts: None }.lifecycle().reclaim(now, last, units);
    }

    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        self.tables.saved(saved_behind(nf, now), self.seed)
    }

    fn restore(&mut self, nf: &N, saved: &SavedFlow<N>, hash: u64, _: u16, now: Nanos) -> bool {
        let is_kept = self.tables.restore(saved, hash, now);
        if !is_kept {
            let mut cx = Context::new(&self.shared, LocalTx::default(), now, Seq(0));
            always(nf.expire(&mut cx, &saved.flow));
        }
        is_kept
    }

    fn flow_counters(&self) -> FlowCounters {
        self.tables.ledger.counters
    }
}

impl<N: NetworkFunction, K: Key> Stepping<'_, N, K> {
    /// The life cycle code for this table.
    #[inline]
    fn lifecycle(&mut self) -> Lifecycle<'_, N, Owned<'_, K, N::Flow>, OnLocal<'_, N>> {
        let Self { nf, flows, ledger, shared, counts } = self;
        Lifecycle { nf, store: Owned { flows, ledger }, runner: OnLocal { shared: *shared, counts: *counts } }
    }

    #[inline(always)]
    fn step(mut self, key: K, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        for _ in 0..RECLAIM_PER_PACKET {
            let Some(slot) = self.flows.table.reclaim(lane.now) else { break };
            lane.spill_to_memory(|lane| self.end(slot, lane, End::Expired));
        }
        let Some(entry) = self.flows.table.entry_at_hint(&key, lane.hint, lane.now) else {
            let is_absent = self.flows.table.is_absent(lane.hint);
            if is_absent && (lane.replayed || N::Speed::SELECTIVE) && N::Speed::refuses(self.nf, lane.meta) {
                // A replayed packet needs no verdict, and a refused one has no other effect.
                return if lane.replayed { decided(&Verdict::forward()) } else { self.refuse(lane, decided) };
            }
            return decided(&lane.spill_to_memory(|lane| self.step_slowly(key, lane, is_absent)));
        };
        let (slot, effects) = packet(self.nf, self.shared, self.counts, entry, lane, decided);
        if let Some(effects) = effects {
            lane.spill_to_memory(|lane| self.take_effect(slot, lane, effects));
        }
    }

    /// The slow path: the packet set's flow is not where its hint says. It never rejoins the fast path.
    #[inline(never)]
    fn step_slowly(&mut self, key: K, lane: Lane<'_, N::Meta>, is_absent: bool) -> Verdict {
        let slot = if is_absent { None } else { self.lifecycle().alive(&key, lane) };
        let Some(slot) = slot else {
            if lane.replayed && N::Speed::refuses(self.nf, lane.meta) {
                return Verdict::forward();
            }
            return self.lifecycle().open(key, lane);
        };
        let mut decided = Verdict::forward();
        let entry = self.flows.table.entry(slot, lane.now);
        let (slot, effects) = packet(self.nf, self.shared, self.counts, entry, lane, |verdict| decided = *verdict);
        if let Some(effects) = effects {
            self.take_effect(slot, lane, effects);
        }
        decided
    }

    /// Takes equal steps at once, if the outcome is the same: no flow is due to be reclaimed, and the flow would still be alive at the last
    /// step without the others, so it can't expire between two of them.
    #[inline]
    fn fold(mut self, key: &K, last: Lane<'_, N::Meta>, count: u32, first: Nanos) -> bool {
        if self.flows.table.is_due(last.now) {
            return false;
        }
        let Some(mut entry) = self.flows.table.entry_at_hint(key, last.hint, last.now) else { return false };
        let mut cx = Context::new(self.shared, LocalTx::default(), last.now, last.seq);
        if !always(N::Speed::fold(self.nf, &mut cx, entry.value_mut(), last.meta, count, first)) {
            return false;
        }
        let (slot, effects) = (entry.slot(), cx.effects());
        debug_assert!(!effects.close, "a run closes no flow");
        self.take_effect(slot, last, effects);
        true
    }

    /// Applies the effects of a step that are not needed for every packet.
    #[inline(never)]
    fn take_effect(&mut self, slot: Slot, lane: Lane<'_, N::Meta>, effects: Effects) {
        let mut lifecycle = self.lifecycle();
        lifecycle.store.apply(slot, effects);
        if effects.close {
            lifecycle.end_at(slot, lane, End::Closed);
        }
    }

    #[inline(never)]
    fn end(&mut self, slot: Slot, lane: Lane<'_, N::Meta>, how: End) {
        self.lifecycle().end_at(slot, lane, how);
    }

    /// Refuses a packet without opening a flow. Inlined, so the verdict is not stored.
    #[inline(always)]
    fn refuse(&self, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        let mut cx =
            Context::new(self.shared, LocalTx::default(), lane.now, lane.seq).counting(self.counts).reading(lane.frame);
        match &always(self.nf.open(&mut cx, lane.meta)) {
            Opened::Refused(verdict) => decided(verdict),
            Opened::Flow(_) => unreachable!("the function refuses this packet"),
        }
    }
}

/// Where a packet is counted; `None` for functions that don't count, and for replayed packets.
#[inline(always)]
fn counted<N: NetworkFunction>(counts: &PacketCounts, replayed: bool) -> Option<&PacketCounts> {
    (N::COUNTS && !replayed).then_some(counts)
}

/// Calls `packet` with the flow. Returns the effects that must still be applied.
#[inline(always)]
fn packet<N: NetworkFunction, K: Key>(
    nf: &N,
    shared: &N::Shared<Local>,
    counts: Option<&PacketCounts>,
    mut entry: EntryMut<'_, K, N::Flow>,
    lane: Lane<'_, N::Meta>,
    decided: impl FnOnce(&Verdict),
) -> (Slot, Option<Effects>) {
    let mut cx = Context::new(shared, LocalTx::default(), lane.now, lane.seq).counting(counts).reading(lane.frame);
    let decision = nf.packet(&mut cx, entry.value_mut(), lane.meta);
    let Effects { deadline, close, assured } = cx.effects();
    // Tested right after the handler: the common path then pays one branch for rare effects.
    let ordinary = match deadline {
        Some(deadline) if !(close || assured && !entry.is_protected()) => Some(deadline),
        _ => None,
    };
    let Some(deadline) = ordinary else {
        cold_path();
        let verdict = always(decision);
        call_rarely(decided, &verdict);
        return (entry.slot(), Some(Effects { deadline, close, assured }));
    };
    match &decision {
        Ok(verdict) => decided(verdict),
        Err(never) => match *never {},
    }
    let moved = entry.move_deadline(deadline);
    // Built anew, so no other code needs the original as a whole.
    let effects = Effects { deadline: Some(deadline), close: false, assured: false };
    (entry.slot(), (!moved).then_some(effects))
}

/// Keeps the verdict's effect out of line for rare paths of a step.
#[inline(never)]
fn call_rarely(decided: impl FnOnce(&Verdict), verdict: &Verdict) {
    decided(verdict);
}

#[cfg(test)]
mod tests;
