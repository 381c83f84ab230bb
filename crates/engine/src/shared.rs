//! State that all cores share (`shared`): each entry under a lock of its own, or, where packet sets share state, all of it
//! under one.

use flow::Hint;
use nf::{Flow, NetworkFunction, Report, Sharing, Sizing, Verdict, local_fingerprint, local_report};
use packet::Nanos;

use crate::counters::FlowCounters;
use crate::entries::EntryLocked;
use crate::fleet::FlowState;
use crate::placement::{Lane, Placement};
use crate::private::Private;
use crate::striped::{Commit, Striped};
use crate::tables::Tables;

/// A core's handle on the state that all cores share.
pub struct Shared<N: NetworkFunction>(Way<N>);

enum Way<N: NetworkFunction> {
    /// A lock for each entry.
    Entries(EntryLocked<N>),
    /// A lock for each stripe.
    Stripes(Striped<N>),
}

/// A part of the state that nothing else shares, with the steps that made it so.
#[derive(Debug)]
pub struct Part<N: NetworkFunction> {
    /// An order in which a sequential run takes these steps alike.
    pub commits: Vec<Commit>,
    /// The flows that are alive.
    pub flows: Vec<FlowState<N>>,
    /// The fingerprint of what packet sets share, as each of those who keep it has it.
    pub shared: Vec<u64>,
}

impl<N: NetworkFunction> Shared<N> {
    /// Handles for `cores` cores on one table of `sizing` flows.
    #[must_use]
    pub(crate) fn handles(nf: &N, cores: usize, sizing: Sizing, seed: u64, tables: Tables) -> Vec<Self> {
        match (N::DESCRIPTION.sharing, N::Flow::STORED) {
            (Sharing::Nothing, true) => {
                let handles = EntryLocked::handles(nf, cores, sizing, seed, tables);
                handles.into_iter().map(|handle| Self(Way::Entries(handle))).collect()
            }
            (Sharing::Shares(_), _) | (Sharing::Nothing, false) => {
                let handles = Striped::handles(nf, cores, sizing, seed, tables);
                handles.into_iter().map(|handle| Self(Way::Stripes(handle))).collect()
            }
        }
    }

    /// From now on the order of the steps is kept. It grows with every step: for verification alone.
    pub fn record(&self) {
        match &self.0 {
            Way::Entries(entries) => entries.record(),
            Way::Stripes(stripes) => stripes.record(),
        }
    }

    /// The parts that state falls into, as `handles`, the cores' handles on it, have left them at `now`.
    ///
    /// # Panics
    /// When there are no handles.
    pub fn parts<'a>(handles: impl IntoIterator<Item = &'a Self>, nf: &N, now: Nanos) -> Vec<Part<N>> {
        let mut handles = handles.into_iter();
        let first = handles.next().expect("a fleet has at least one core");
        match &first.0 {
            Way::Entries(entries) => {
                let others = handles.filter_map(|handle| match &handle.0 {
                    Way::Entries(entries) => Some(entries),
                    Way::Stripes(_) => None,
                });
                let cores = std::iter::once(entries).chain(others);
                let shared = cores.map(|entries| local_fingerprint(nf, entries.shared()).value()).collect();
                vec![Part { commits: entries.commits(), flows: entries.flows(now), shared }]
            }
            Way::Stripes(stripes) => {
                let states = stripes.each(|part| {
                    (part.flows(now).collect(), vec![local_fingerprint(nf, Private::shared(part)).value()])
                });
                let commits = stripes.commits().into_iter();
                commits.zip(states).map(|(commits, (flows, shared))| Part { commits, flows, shared }).collect()
            }
        }
    }

    /// The flows alive at `now`.
    pub(crate) fn flows(&self, now: Nanos) -> Vec<FlowState<N>> {
        match &self.0 {
            Way::Entries(entries) => entries.flows(now),
            Way::Stripes(stripes) => {
                stripes.each(|part| part.flows(now).collect::<Vec<_>>()).into_iter().flatten().collect()
            }
        }
    }

    /// What the function has to tell at `now` of what packet sets share.
    pub(crate) fn report_shared(&self, nf: &N, now: Nanos) -> Option<Report> {
        match &self.0 {
            Way::Entries(entries) => local_report(nf, entries.shared(), now),
            Way::Stripes(stripes) => {
                stripes.each(|part| local_report(nf, Private::shared(part), now)).into_iter().flatten().next()
            }
        }
    }

    /// What happened to flows, on all cores.
    pub(crate) fn all_flow_counters(&self) -> FlowCounters {
        match &self.0 {
            Way::Entries(entries) => entries.all_flow_counters(),
            Way::Stripes(stripes) => {
                let mut total = FlowCounters::default();
                stripes.each(Placement::flow_counters).iter().for_each(|part| total.add(part));
                total
            }
        }
    }

    /// The entries of the tables: flows alive, and flows past their deadline that were not reclaimed yet.
    pub(crate) fn entries(&self) -> usize {
        match &self.0 {
            Way::Entries(entries) => entries.entries(),
            Way::Stripes(stripes) => stripes.each(Private::entries).into_iter().sum(),
        }
    }

    /// The most flows that there ever were at once, added up over stripes.
    pub(crate) fn high_water(&self) -> usize {
        match &self.0 {
            Way::Entries(entries) => entries.high_water(),
            Way::Stripes(stripes) => stripes.each(Private::high_water).into_iter().sum(),
        }
    }

    /// The memory of the tables, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.0 {
            Way::Entries(entries) => entries.memory_bytes(),
            Way::Stripes(stripes) => stripes.each(Private::memory_bytes).into_iter().sum(),
        }
    }
}

impl<N: NetworkFunction> Placement<N> for Shared<N> {
    fn seed(&self) -> u64 {
        match &self.0 {
            Way::Entries(entries) => entries.seed(),
            Way::Stripes(stripes) => stripes.seed(),
        }
    }

    #[inline]
    fn prefetch(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) {
        match &self.0 {
            Way::Entries(entries) => entries.prefetch(nf, meta, hash, bucket),
            Way::Stripes(stripes) => stripes.prefetch(nf, meta, hash, bucket),
        }
    }

    #[inline]
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) -> Hint {
        match &self.0 {
            Way::Entries(entries) => entries.prefetch_entry(nf, meta, hash, bucket),
            Way::Stripes(stripes) => stripes.prefetch_entry(nf, meta, hash, bucket),
        }
    }

    #[inline]
    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict)) {
        match &mut self.0 {
            Way::Entries(entries) => entries.step(nf, lane, settle),
            Way::Stripes(stripes) => stripes.step(nf, lane, settle),
        }
    }

    fn flow_counters(&self) -> FlowCounters {
        FlowCounters::default()
    }
}
