//! State in one table that all cores share, cut into stripes by hash, each with a lock (`shared`).
//!
//! A function whose packet sets share state gets a single stripe: one lock guards its whole step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flow::Hint;
use nf::{
    Entries, FlowList, NetworkFunction, PacketCounts, Report, Sharing, Sizing, Verdict, local_fingerprint, local_report,
};
use packet::{Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::private::Private;
use crate::placement::shared::{Part, Whole};
use crate::placement::tables::Tables;
use crate::placement::{FlowState, Lane, Placement, SavedFlow, Ticket, records_are_of_all};

/// A core's handle on the stripes.
pub(crate) struct Striped<N: NetworkFunction> {
    table: Arc<Stripes<N>>,
    /// True for one of the handles.
    is_first: bool,
}

/// A committed step, in the order of its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The packet.
    pub seq: Seq,
    /// The time of the step: the packet's time, or the stripe's if that was later.
    pub now: Nanos,
}

struct Stripes<N: NetworkFunction> {
    stripes: Vec<Mutex<Stripe<N>>>,
    mask: u64,
    /// The hash seed of the tables.
    seed: u64,
    recording: AtomicBool,
}

impl<N: NetworkFunction> Stripes<N> {
    /// The stripe of the flows with this hash.
    #[inline]
    const fn index(&self, hash: u64) -> usize {
        // The middle bits; the stripe's table uses the outer ones.
        ((hash >> 28) & self.mask) as usize
    }
}

/// Aligned so that two locks never share a cache line.
#[repr(align(128))]
struct Stripe<N: NetworkFunction> {
    state: Private<N>,
    /// Cores have packets of different times; the stripe's time never goes back.
    now: Nanos,
    commits: Vec<Commit>,
}

/// Enough stripes that two cores rarely meet, few enough that each holds a fair sample of the flows.
const STRIPES_MAX: usize = 256;

impl<N: NetworkFunction> Striped<N> {
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
        let count = if sharing.is_any() { 1 } else { (sizing.flows / 64).clamp(1, STRIPES_MAX).next_power_of_two() };
        let each = Sizing { flows: share(sizing.flows, count), flows_v6: share(sizing.flows_v6, count) };
        let stripe =
            || Stripe { state: Private::with_options(nf, each, seed, tables), now: Nanos(0), commits: Vec::new() };
        let table = Arc::new(Stripes {
            stripes: (0..count).map(|_| Mutex::new(stripe())).collect(),
            mask: count as u64 - 1,
            seed,
            recording: AtomicBool::new(false),
        });
        (0..cores).map(|core| Self { table: Arc::clone(&table), is_first: core == 0 }).collect()
    }

    /// Fits the state to `nf`, which succeeds `old`. All cores share the stripes, so the first handle does it.
    pub(crate) fn adopt(&self, nf: &N, old: &N) {
        if self.is_first {
            self.table.stripes.iter().for_each(|stripe| lock(stripe).state.adopt(nf, old));
        }
    }

    /// Calls `visit` with the state of each stripe.
    fn each<T>(&self, mut visit: impl FnMut(&Private<N>) -> T) -> Vec<T> {
        self.table.stripes.iter().map(|stripe| visit(&lock(stripe).state)).collect()
    }
}

impl<N: NetworkFunction> Whole<N> for Striped<N> {
    /// Each stripe records the order of its steps.
    fn record(&self) {
        // ORDERING: Relaxed. Set before the cores start; starting a thread orders it.
        self.table.recording.store(true, Ordering::Relaxed);
    }

    /// Stripes are independent, so their order doesn't matter.
    fn parts(&self, nf: &N, now: Nanos) -> Vec<Part<N>> {
        let part = |stripe: &Mutex<Stripe<N>>| {
            let Stripe { state, commits, .. } = &*lock(stripe);
            let shared = vec![local_fingerprint(nf, state.shared()).value()];
            Part { commits: commits.clone(), flows: state.flows(now).collect(), shared }
        };
        self.table.stripes.iter().map(part).collect()
    }

    fn own_fingerprint(&self, _: &N) -> Option<u64> {
        None
    }

    fn flows(&self, _: &N, now: Nanos) -> Vec<FlowState<N>> {
        self.each(|state| state.flows(now).collect::<Vec<_>>()).into_iter().flatten().collect()
    }

    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        self.each(|state| state.saved(nf, now)).into_iter().flatten().collect()
    }

    fn restore(&self, nf: &N, saved: &SavedFlow<N>, hash: u64, now: Nanos) -> bool {
        lock(&self.table.stripes[self.table.index(hash)]).state.restore(nf, saved, hash, 0, now)
    }

    fn saved_shared(&self, nf: &N, now: Nanos) -> Vec<u64> {
        // If packet sets share state, there is only one stripe.
        self.table.stripes.first().map_or_else(Vec::new, |stripe| lock(stripe).state.saved_shared(nf, now))
    }

    fn restore_shared(&self, nf: &N, words: &[u64], now: Nanos) -> bool {
        self.table.stripes.iter().all(|stripe| lock(stripe).state.restore_shared(nf, words, now))
    }

    fn alive(&self, _: &N, now: Nanos) -> usize {
        self.each(|state| state.flows(now).count()).into_iter().sum()
    }

    fn count_lapsed(&self, nf: &N, now: Nanos, counts: &PacketCounts) {
        self.each(|state| state.count_lapsed(nf, now, counts));
    }

    /// Flows are read where they lie: copies would take as much memory again as the tables.
    fn report(&self, nf: &N, now: Nanos, counts: &PacketCounts) -> Option<Report> {
        let stripes: Vec<_> = self.table.stripes.iter().map(lock).collect();
        let entries = || -> Entries<'_, N> {
            let all = stripes.iter().flat_map(|stripe| stripe.state.concluded(nf, now));
            Box::new(all.map(|FlowState { key, flow, deadline }| (key, flow, deadline)))
        };
        // If packet sets share state, there is only one stripe.
        let shared = stripes.first()?.state.shared();
        local_report(nf, &FlowList::new(&entries, now), shared, counts)
    }

    /// All cores share the stripes, so the first handle adds them.
    fn add_counts(&self, total: &mut PacketCounts) {
        if self.is_first {
            self.each(|state| total.add(state.counts()));
        }
    }

    fn all_flow_counters(&self) -> FlowCounters {
        let mut total = FlowCounters::default();
        self.each(Placement::flow_counters).iter().for_each(|part| total.add(part));
        total
    }

    fn entries(&self) -> usize {
        self.each(Private::entries).into_iter().sum()
    }

    fn high_water(&self) -> usize {
        self.each(Private::high_water).into_iter().sum()
    }

    fn memory_bytes(&self) -> usize {
        self.each(Private::memory_bytes).into_iter().sum()
    }
}

impl<N: NetworkFunction> Placement<N> for Striped<N> {
    records_are_of_all!();

    fn succeed(mut places: Vec<Self>, nf: &N, old: &N) -> Vec<Self> {
        places.iter_mut().for_each(|place| place.adopt(nf, old));
        places
    }

    fn seed(&self) -> u64 {
        self.table.seed
    }

    /// Does nothing: a stripe's tables can't be read without its lock.
    #[inline]
    fn prefetch(&self, _: &N, _: &N::Meta, _: u64, _: u16) {}

    #[inline]
    fn prefetch_entry(&self, _: &N, _: &N::Meta, _: u64, _: u16) -> Hint {
        Hint::default()
    }

    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        let mut stripe = lock(&self.table.stripes[self.table.index(lane.hash)]);
        let now = lane.now.max(stripe.now);
        stripe.now = now;
        // ORDERING: Relaxed, as in `record`.
        if self.table.recording.load(Ordering::Relaxed) {
            stripe.commits.push(Commit { seq: lane.seq, now });
        }
        let ticket = Ticket { now, ..*lane.ticket };
        // Under the lock: `decided` only notes the packet's fate, and a verdict is large to copy.
        stripe.state.step(nf, Lane { ticket: &ticket, ..lane }, decided);
    }

    /// Every core ages all stripes, because another core may be busy with packets for long.
    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        self.table.stripes.iter().any(|stripe| {
            let Stripe { state, now: latest, .. } = &mut *lock(stripe);
            *latest = now.max(*latest);
            state.age(nf, *latest, last)
        })
    }

    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        Whole::saved(self, nf, now)
    }

    fn restore(&mut self, nf: &N, saved: &SavedFlow<N>, hash: u64, _: u16, now: Nanos) -> bool {
        Whole::restore(self, nf, saved, hash, now)
    }

    /// Zero: all cores share the stripes.
    fn flow_counters(&self) -> FlowCounters {
        FlowCounters::default()
    }
}

/// The capacity of one stripe: an equal part of `flows` plus eight standard deviations of a fair hash, at most all.
pub(crate) fn share(flows: usize, stripes: usize) -> usize {
    let mean = flows.div_ceil(stripes);
    flows.min(mean + 8 * mean.isqrt() + 16)
}

/// Takes the lock even if it is poisoned. The core whose step panicked reports that; the others finish their work.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
