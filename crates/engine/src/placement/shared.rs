//! State in one table that all cores share (`shared`). If packet sets share nothing, each entry has a lock, or a step is one atomic
//! operation where that was chosen and steps add up. If packet sets share state, one lock guards everything.

use flow::shared::{Adding, Locking};
use flow::{EntryGuard, Hint};
use nf::{Flow, NetworkFunction, PacketCounts, Report, Sharing, Sizing, Speed, Verdict};
use packet::{Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::entries::ByEntry;
use crate::placement::striped::{Commit, Striped};
use crate::placement::tables::Tables;
use crate::placement::{FlowState, Lane, Placement, SavedFlow, records_are_of_all};

/// A core's handle on the shared state.
pub struct Shared<N: NetworkFunction>(SharedTables<N>);

enum SharedTables<N: NetworkFunction> {
    /// One atomic operation for each step ([`EntryGuard::Atomic`]).
    Sums(ByEntry<N, Adding>),
    /// A lock for each entry.
    Entries(ByEntry<N, Locking>),
    /// A lock for each stripe.
    Stripes(Striped<N>),
}

/// Reads and controls the whole shared state while no core steps.
pub(crate) trait Whole<N: NetworkFunction> {
    /// Records the order of steps from now on.
    fn record(&self);

    /// The independent parts of the state at `now`, as this core sees them.
    fn parts(&self, nf: &N, now: Nanos) -> Vec<Part<N>>;

    /// The fingerprint of the function's shared state, if each core has one of its own.
    fn own_fingerprint(&self, nf: &N) -> Option<u64>;

    /// The flows alive at `now`.
    fn flows(&self, nf: &N, now: Nanos) -> Vec<FlowState<N>>;

    /// The flows alive at `now`, to be saved.
    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>>;

    /// Puts in a saved flow. Returns false if there is no room.
    fn restore(&self, nf: &N, saved: &SavedFlow<N>, hash: u64, now: Nanos) -> bool;

    /// Returns the state that packet sets share at `now`, as words; no words if they share nothing.
    fn saved_shared(&self, _nf: &N, _now: Nanos) -> Vec<u64> {
        Vec::new()
    }

    /// Reads what packet sets share. False if the words make no sense.
    fn restore_shared(&self, _nf: &N, words: &[u64], _now: Nanos) -> bool {
        words.is_empty()
    }

    /// The number of flows alive at `now`.
    fn alive(&self, nf: &N, now: Nanos) -> usize {
        self.flows(nf, now).len()
    }

    /// Counts what the ends of flows past their deadline would, if the function counts that.
    fn count_lapsed(&self, _nf: &N, _now: Nanos, _counts: &PacketCounts) {}

    /// The function's report at `now` on the flows of all cores, and on `counts`, what they have counted.
    fn report(&self, nf: &N, now: Nanos, counts: &PacketCounts) -> Option<Report>;

    /// Adds what this core has counted. Over all cores, each packet is added once.
    fn add_counts(&self, total: &mut PacketCounts);

    /// The flow counters of all cores.
    fn all_flow_counters(&self) -> FlowCounters;

    /// The number of table entries: flows alive, and expired flows that were not reclaimed yet.
    fn entries(&self) -> usize;

    /// The most flows at one time, summed over stripes.
    fn high_water(&self) -> usize;

    /// The memory of the tables, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// A part of the state that shares nothing with other parts, and the steps that led to it.
#[derive(Debug)]
pub struct Part<N: NetworkFunction> {
    /// The steps, in an order in which a sequential run has the same outcome.
    pub commits: Vec<Commit>,
    /// The flows that are alive.
    pub flows: Vec<FlowState<N>>,
    /// The fingerprints of the function's shared state: one, or one for each core.
    pub shared: Vec<u64>,
}

impl<N: NetworkFunction> Shared<N> {
    /// Handles for `cores` cores on one table of `sizing` flows. `sharing` is the function's, or more than that.
    #[must_use]
    pub(crate) fn handles(
        nf: &N,
        sharing: Sharing,
        cores: usize,
        sizing: Sizing,
        seed: u64,
        tables: Tables,
    ) -> Vec<Self> {
        match (sharing, N::Flow::STORED) {
            (Sharing::Nothing, true) if N::Speed::ADDS && tables.guard == EntryGuard::Atomic => {
                let handles = ByEntry::handles(nf, cores, sizing, seed, tables);
                handles.into_iter().map(|handle| Self(SharedTables::Sums(handle))).collect()
            }
            (Sharing::Nothing, true) => {
                let handles = ByEntry::handles(nf, cores, sizing, seed, tables);
                handles.into_iter().map(|handle| Self(SharedTables::Entries(handle))).collect()
            }
            // Steps of functions over streams can't be taken on a copy and again.
            (Sharing::Shares(_) | Sharing::Streams | Sharing::StreamsShare(_), _) | (Sharing::Nothing, false) => {
                let handles = Striped::handles(nf, sharing, cores, sizing, seed, tables);
                handles.into_iter().map(|handle| Self(SharedTables::Stripes(handle))).collect()
            }
        }
    }

    /// Records the order of steps from now on. The record grows with every step, so it is for verification only.
    pub fn record(&self) {
        self.whole().record();
    }

    /// The independent parts of the state at `now`. `handles` are the handles of all cores.
    ///
    /// # Panics
    /// If there are no handles.
    pub fn parts<'a>(handles: impl IntoIterator<Item = &'a Self>, nf: &N, now: Nanos) -> Vec<Part<N>> {
        let mut handles = handles.into_iter();
        let mut parts = handles.next().expect("an engine has at least one core").whole().parts(nf, now);
        for part in &mut parts {
            part.shared.extend(handles.by_ref().filter_map(|handle| handle.whole().own_fingerprint(nf)));
        }
        parts
    }

    /// The whole state, for reading and control.
    pub(crate) fn whole(&self) -> &dyn Whole<N> {
        match &self.0 {
            SharedTables::Sums(entries) => entries,
            SharedTables::Entries(entries) => entries,
            SharedTables::Stripes(stripes) => stripes,
        }
    }
}

impl<N: NetworkFunction> Placement<N> for Shared<N> {
    records_are_of_all!();

    fn succeed(mut places: Vec<Self>, nf: &N, old: &N) -> Vec<Self> {
        for place in &mut places {
            match &mut place.0 {
                SharedTables::Sums(entries) => entries.adopt(nf, old),
                SharedTables::Entries(entries) => entries.adopt(nf, old),
                SharedTables::Stripes(stripes) => stripes.adopt(nf, old),
            }
        }
        places
    }

    fn seed(&self) -> u64 {
        match &self.0 {
            SharedTables::Sums(entries) => entries.seed(),
            SharedTables::Entries(entries) => entries.seed(),
            SharedTables::Stripes(stripes) => stripes.seed(),
        }
    }

    #[inline]
    fn prefetch(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) {
        match &self.0 {
            SharedTables::Sums(entries) => entries.prefetch(nf, meta, hash, bucket),
            SharedTables::Entries(entries) => entries.prefetch(nf, meta, hash, bucket),
            SharedTables::Stripes(stripes) => stripes.prefetch(nf, meta, hash, bucket),
        }
    }

    #[inline]
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) -> Hint {
        match &self.0 {
            SharedTables::Sums(entries) => entries.prefetch_entry(nf, meta, hash, bucket),
            SharedTables::Entries(entries) => entries.prefetch_entry(nf, meta, hash, bucket),
            SharedTables::Stripes(stripes) => stripes.prefetch_entry(nf, meta, hash, bucket),
        }
    }

    #[inline]
    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        match &mut self.0 {
            SharedTables::Entries(entries) => entries.step(nf, lane, decided),
            // Compiled only for functions that can be here.
            SharedTables::Sums(entries) if N::Speed::ADDS => entries.step(nf, lane, decided),
            SharedTables::Sums(_) => {}
            SharedTables::Stripes(stripes) => stripes.step(nf, lane, decided),
        }
    }

    #[inline]
    fn rest(&mut self) {
        if let SharedTables::Sums(entries) = &mut self.0 {
            entries.rest();
        }
    }

    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        match &mut self.0 {
            SharedTables::Sums(entries) => entries.age(nf, now, last),
            SharedTables::Entries(entries) => entries.age(nf, now, last),
            SharedTables::Stripes(stripes) => stripes.age(nf, now, last),
        }
    }

    fn fail(&mut self) {
        if let SharedTables::Sums(entries) = &mut self.0 {
            entries.fail();
        }
    }

    fn flow_counters(&self) -> FlowCounters {
        FlowCounters::default()
    }

    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        self.whole().saved(nf, now)
    }

    fn restore(&mut self, nf: &N, saved: &SavedFlow<N>, hash: u64, _: u16, now: Nanos) -> bool {
        self.whole().restore(nf, saved, hash, now)
    }

    fn common_flow_counters(&self) -> Option<FlowCounters> {
        Some(self.whole().all_flow_counters())
    }
}
