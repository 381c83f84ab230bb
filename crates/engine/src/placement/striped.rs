//! State that all cores share: one table cut into stripes by hash, each under its lock (`shared`).
//!
//! A function whose packet sets share state of their own gets a single stripe, so that its whole step is under one lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flow::Hint;
use nf::{NetworkFunction, Report, Sharing, Sizing, Verdict, local_fingerprint, local_report};
use packet::{Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::private::Private;
use crate::placement::shared::{Part, Whole};
use crate::placement::tables::Tables;
use crate::placement::{FlowState, Lane, Placement, Ticket, records_are_of_all};

/// A core's handle on the stripes that all cores share.
pub(crate) struct Striped<N: NetworkFunction> {
    table: Arc<Stripes<N>>,
}

/// A step in the order in which its stripe saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The packet.
    pub seq: Seq,
    /// The time that the step went by: the packet's, or a later one that the stripe had already seen.
    pub now: Nanos,
}

struct Stripes<N: NetworkFunction> {
    stripes: Vec<Mutex<Stripe<N>>>,
    mask: u64,
    /// What the stripes' tables are keyed by.
    seed: u64,
    recording: AtomicBool,
}

/// Aligned so that two locks never share a line.
#[repr(align(128))]
struct Stripe<N: NetworkFunction> {
    state: Private<N>,
    /// Cores hold packets of different ages; state moves forward only.
    now: Nanos,
    commits: Vec<Commit>,
}

/// Enough that two cores seldom meet, few enough that each holds a fair sample of the flows.
const STRIPES_MAX: usize = 256;

impl<N: NetworkFunction> Striped<N> {
    /// Handles for `cores` cores on one table of `sizing` flows.
    #[must_use]
    pub(crate) fn handles(nf: &N, cores: usize, sizing: Sizing, seed: u64, tables: Tables) -> Vec<Self> {
        let count = match N::DESCRIPTION.sharing {
            Sharing::Nothing => (sizing.flows / 64).clamp(1, STRIPES_MAX).next_power_of_two(),
            Sharing::Shares(_) => 1,
        };
        let each = Sizing { flows: share(sizing.flows, count), flows_v6: share(sizing.flows_v6, count) };
        let stripe =
            || Stripe { state: Private::with_options(nf, each, seed, tables), now: Nanos(0), commits: Vec::new() };
        let table = Arc::new(Stripes {
            stripes: (0..count).map(|_| Mutex::new(stripe())).collect(),
            mask: count as u64 - 1,
            seed,
            recording: AtomicBool::new(false),
        });
        (0..cores).map(|_| Self { table: Arc::clone(&table) }).collect()
    }

    /// Visits the state of each stripe.
    fn each<T>(&self, mut visit: impl FnMut(&Private<N>) -> T) -> Vec<T> {
        self.table.stripes.iter().map(|stripe| visit(&lock(stripe).state)).collect()
    }
}

impl<N: NetworkFunction> Whole<N> for Striped<N> {
    /// Each stripe keeps the order of its steps.
    fn record(&self) {
        // ORDERING: Relaxed. Set before the cores start; starting a thread orders it.
        self.table.recording.store(true, Ordering::Relaxed);
    }

    /// Stripes touch disjoint state, so any order of the stripes serves.
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

    fn report(&self, nf: &N, flows: &nf::FlowList<'_, N>) -> Option<Report> {
        // Where packet sets share state there is one stripe.
        self.table.stripes.first().and_then(|stripe| local_report(nf, flows, lock(stripe).state.shared()))
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

    fn seed(&self) -> u64 {
        self.table.seed
    }

    /// The lines of the lock's stripe can't be asked for without holding the lock.
    #[inline]
    fn prefetch(&self, _: &N, _: &N::Meta, _: u64, _: u16) {}

    #[inline]
    fn prefetch_entry(&self, _: &N, _: &N::Meta, _: u64, _: u16) -> Hint {
        Hint::default()
    }

    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        // The middle bits: the table inside goes by the outer ones.
        let index = ((lane.hash >> 28) & self.table.mask) as usize;
        let mut stripe = lock(&self.table.stripes[index]);
        let now = lane.now.max(stripe.now);
        stripe.now = now;
        // ORDERING: Relaxed, as in `record`.
        if self.table.recording.load(Ordering::Relaxed) {
            stripe.commits.push(Commit { seq: lane.seq, now });
        }
        let mut outcome = None;
        let ticket = Ticket { now, ..*lane.ticket };
        stripe.state.step(nf, Lane { ticket: &ticket, ..lane }, |verdict| outcome = Some(*verdict));
        // What follows touches the packet alone.
        drop(stripe);
        outcome.as_ref().map(decided);
    }

    /// Every core ages all stripes: others may be long at their packets.
    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        self.table.stripes.iter().any(|stripe| {
            let Stripe { state, now: latest, .. } = &mut *lock(stripe);
            *latest = now.max(*latest);
            state.age(nf, *latest, last)
        })
    }

    /// All cores share the stripes, so no core counts them as its own.
    fn flow_counters(&self) -> FlowCounters {
        FlowCounters::default()
    }
}

/// A stripe's part of `flows`, with room for the spread of a fair hash (eight standard deviations), never more than all.
pub(crate) fn share(flows: usize, stripes: usize) -> usize {
    let mean = flows.div_ceil(stripes);
    flows.min(mean + 8 * mean.isqrt() + 16)
}

/// A panic inside a step is reported by its own core; the others may finish what they hold.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
