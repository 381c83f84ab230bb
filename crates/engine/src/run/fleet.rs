//! A fleet: the workers of one engine with the dispatcher in front of them, and the state that they leave behind.

use std::sync::Arc;

use nf::{Entries, Fingerprint, FlowList, Function, NetworkFunction, Report, local_report};
use packet::Nanos;

use crate::counters::{Counters, FlowCounters};
use crate::kind::EngineKind;
use crate::options::Options;
use crate::placement::private::Private;
use crate::placement::replay_order::ReplayOrder;
use crate::placement::sharded::{Layout, Sharded};
use crate::placement::shared::Shared;
use crate::placement::transacted::{Transacted, Transactions};
use crate::placement::{FlowState, Placement};
use crate::steer::dispatch::Dispatcher;
use crate::work::worker::Worker;

/// The workers of one engine, and what steers packets to them.
pub struct Fleet<N: NetworkFunction, P> {
    /// The engine.
    pub kind: EngineKind,
    /// The function.
    pub nf: Arc<N>,
    /// One worker for each core.
    pub workers: Vec<Worker<N, P>>,
    /// Where their packets come from.
    pub dispatcher: Dispatcher<N>,
}

/// A fleet whose cores own their state: `sequential`, `rss`, `scr`.
pub type PrivateFleet<N> = Fleet<N, Private<N>>;

/// A fleet whose cores share one table: `shared`.
pub type SharedFleet<N> = Fleet<N, Shared<N>>;

/// A fleet whose packet sets share state in transactional memory: `transactional`.
pub type TransactedFleet<N> = Fleet<N, Transacted<N>>;

/// A fleet whose shards change cores: `rss++`, `hybrid`.
pub type ShardedFleet<N> = Fleet<N, Sharded<N>>;

/// The fleet of an engine whose cores own their state.
///
/// # Panics
/// For an engine whose cores don't own their state for good, and for no cores.
#[must_use]
pub fn private_fleet<N: NetworkFunction>(
    kind: EngineKind,
    nf: Arc<N>,
    cores: usize,
    options: &Options,
) -> PrivateFleet<N> {
    assert!(cores > 0, "a fleet has at least one core");
    let owns = match kind {
        EngineKind::Sequential | EngineKind::Rss | EngineKind::Scr => true,
        // Where packet sets share nothing, there is nothing to have transactions on.
        EngineKind::Transactional => !N::DESCRIPTION.sharing.is_any(),
        EngineKind::Shared | EngineKind::RssPlusPlus | EngineKind::Hybrid => false,
    };
    assert!(owns, "the cores of {kind} own no state for good");
    let sizing = options.sizing(&*nf);
    let place = || Private::with_options(&*nf, sizing, options.seed, options.tables);
    let workers = (0..cores).map(|_| Worker::new(Arc::clone(&nf), place())).collect();
    Fleet { kind, workers, dispatcher: dispatcher(&nf, kind, cores, options), nf }
}

fn dispatcher<N: NetworkFunction>(nf: &Arc<N>, kind: EngineKind, cores: usize, options: &Options) -> Dispatcher<N> {
    Dispatcher::new(Arc::clone(nf), kind, cores, options)
}

/// The fleet of an engine whose shards change cores.
///
/// # Panics
/// For another engine, and for no cores.
#[must_use]
pub fn sharded_fleet<N: NetworkFunction>(
    kind: EngineKind,
    nf: Arc<N>,
    cores: usize,
    options: &Options,
) -> ShardedFleet<N> {
    assert!(cores > 0, "a fleet has at least one core");
    assert!(kind.moves_state(), "{kind} moves no state");
    let dispatcher = dispatcher(&nf, kind, cores, options);
    let plan = Layout { replicated: kind == EngineKind::Hybrid, sizing: options.sizing(&*nf), seed: options.seed };
    let places = Sharded::cores(&*nf, dispatcher.table(), cores, plan, options.tables);
    let workers = places.into_iter().map(|place| Worker::new(Arc::clone(&nf), place)).collect();
    Fleet { kind, workers, dispatcher, nf }
}

/// The fleet of `shared`.
///
/// # Panics
/// For no cores.
#[must_use]
pub fn shared_fleet<N: NetworkFunction>(nf: Arc<N>, cores: usize, options: &Options) -> SharedFleet<N> {
    assert!(cores > 0, "a fleet has at least one core");
    let handles = Shared::handles(&*nf, cores, options.sizing(&*nf), options.seed, options.tables);
    let workers = handles.into_iter().map(|place| Worker::new(Arc::clone(&nf), place)).collect();
    let kind = EngineKind::Shared;
    Fleet { kind, workers, dispatcher: dispatcher(&nf, kind, cores, options), nf }
}

/// The fleet of `transactional`, for functions whose packet sets share state.
///
/// # Panics
/// For no cores.
#[must_use]
pub fn transacted_fleet<N: Function>(nf: Arc<N>, cores: usize, options: &Options) -> TransactedFleet<N> {
    assert!(cores > 0, "a fleet has at least one core");
    let mut handles = Transacted::handles(&*nf, cores, options.sizing(&*nf), options.seed, options.tables);
    if options.profile {
        handles.iter_mut().for_each(Transacted::profile);
    }
    let workers = handles.into_iter().map(|place| Worker::new(Arc::clone(&nf), place)).collect();
    let kind = EngineKind::Transactional;
    Fleet { kind, workers, dispatcher: dispatcher(&nf, kind, cores, options), nf }
}

/// What a fleet leaves behind, whatever its placement.
pub trait Inspect<N: NetworkFunction> {
    /// The flows alive at `now`, each once, in no particular order, as they are found. `scr`: those of one replica.
    fn each_flow(&self, now: Nanos) -> Box<dyn Iterator<Item = FlowState<N>> + '_>;

    /// [The same](Self::each_flow), collected.
    fn flows(&self, now: Nanos) -> Vec<FlowState<N>> {
        self.each_flow(now).collect()
    }

    /// The entries of the tables, each once: flows alive, and flows past their deadline that were not reclaimed yet.
    fn entries(&self) -> usize;

    /// What happened to flows, each counted once.
    fn flow_counters(&self) -> FlowCounters;

    /// The most flows that there ever were at once, added up over shards.
    fn high_water(&self) -> usize;

    /// The memory of all tables, in bytes.
    fn memory_bytes(&self) -> usize;

    /// What the function reports at `now`.
    fn function_report(&mut self, nf: &N, now: Nanos) -> Option<Report>;

    /// What became of each core's transactions, where there can be any.
    fn transactions_by_core(&self) -> Option<Vec<Transactions>> {
        None
    }

    /// What became of transactions, where there can be any.
    fn transactions(&self) -> Option<Transactions> {
        let mut total = Transactions::default();
        self.transactions_by_core()?.iter().for_each(|core| total.add(core));
        Some(total)
    }
}

impl<N: NetworkFunction> PrivateFleet<N> {
    /// The states that make up the whole: every shard, but one replica of `scr`. Replicas that live on what their packets
    /// carry stand where their last packet stood, so it is the first of those that came furthest.
    fn parts(&self) -> impl Iterator<Item = &Private<N>> {
        let furthest = self.workers.iter().rev().max_by_key(|worker| worker.next()).map(std::slice::from_ref);
        let parts = if self.kind == EngineKind::Scr { furthest.unwrap_or_default() } else { &self.workers };
        parts.iter().map(Worker::place)
    }
}

impl<N: NetworkFunction> Inspect<N> for PrivateFleet<N> {
    fn function_report(&mut self, nf: &N, now: Nanos) -> Option<Report> {
        let this = &*self;
        let entries = || all_entries(this);
        local_report(nf, &FlowList::new(&entries, now), self.parts().next()?.shared())
    }

    fn each_flow(&self, now: Nanos) -> Box<dyn Iterator<Item = FlowState<N>> + '_> {
        Box::new(self.parts().flat_map(move |part| part.flows(now)))
    }

    fn entries(&self) -> usize {
        self.parts().map(Private::entries).sum()
    }

    fn flow_counters(&self) -> FlowCounters {
        sum(self.parts().map(Placement::flow_counters))
    }

    fn high_water(&self) -> usize {
        self.parts().map(Private::high_water).sum()
    }

    fn memory_bytes(&self) -> usize {
        self.workers.iter().map(|worker| worker.place().memory_bytes()).sum()
    }
}

impl<N: NetworkFunction> ShardedFleet<N> {
    /// Gives the empty shards to cores as the dispatcher's table says now, before anything has run.
    pub fn settle(&mut self) {
        let mut places: Vec<_> = self.workers.iter_mut().map(Worker::place_mut).collect();
        Sharded::deal(&mut places, self.dispatcher.table());
    }

    /// Every shard, and one replica of the elephants.
    fn parts(&self) -> impl Iterator<Item = &Private<N>> {
        let replica = self.workers.first().and_then(|worker| worker.place().replica());
        self.workers.iter().flat_map(|worker| worker.place().shards()).chain(replica)
    }
}

impl<N: NetworkFunction> Inspect<N> for ShardedFleet<N> {
    fn function_report(&mut self, nf: &N, now: Nanos) -> Option<Report> {
        let this = &*self;
        let entries = || all_entries(this);
        local_report(nf, &FlowList::new(&entries, now), self.parts().next()?.shared())
    }

    fn each_flow(&self, now: Nanos) -> Box<dyn Iterator<Item = FlowState<N>> + '_> {
        Box::new(self.parts().flat_map(move |part| part.flows(now)))
    }

    fn entries(&self) -> usize {
        self.parts().map(Private::entries).sum()
    }

    fn flow_counters(&self) -> FlowCounters {
        sum(self.parts().map(Placement::flow_counters))
    }

    fn high_water(&self) -> usize {
        self.parts().map(Private::high_water).sum()
    }

    fn memory_bytes(&self) -> usize {
        let of = |place: &Sharded<N>| place.shards().chain(place.replica()).map(Private::memory_bytes).sum::<usize>();
        self.workers.iter().map(|worker| of(worker.place())).sum()
    }
}

impl<N: NetworkFunction> Inspect<N> for SharedFleet<N> {
    fn function_report(&mut self, nf: &N, now: Nanos) -> Option<Report> {
        // Collected first: the report is made under the lock of what packet sets share.
        let all: Vec<_> = all_entries(&*self).collect();
        let entries = || -> Entries<'_, N> { Box::new(all.iter().copied()) };
        self.workers[0].place().whole().report(nf, &FlowList::new(&entries, now))
    }

    fn each_flow(&self, now: Nanos) -> Box<dyn Iterator<Item = FlowState<N>> + '_> {
        Box::new(self.workers[0].place().whole().flows(&self.nf, now).into_iter())
    }

    fn entries(&self) -> usize {
        self.workers[0].place().whole().entries()
    }

    fn flow_counters(&self) -> FlowCounters {
        self.workers[0].place().whole().all_flow_counters()
    }

    fn high_water(&self) -> usize {
        self.workers[0].place().whole().high_water()
    }

    fn memory_bytes(&self) -> usize {
        self.workers[0].place().whole().memory_bytes()
    }
}

impl<N: Function> Inspect<N> for TransactedFleet<N> {
    fn function_report(&mut self, nf: &N, now: Nanos) -> Option<Report> {
        let all: Vec<_> = all_entries(&*self).collect();
        let entries = || -> Entries<'_, N> { Box::new(all.iter().copied()) };
        self.workers[0].place_mut().report(nf, &FlowList::new(&entries, now), now)
    }

    fn each_flow(&self, now: Nanos) -> Box<dyn Iterator<Item = FlowState<N>> + '_> {
        Box::new(self.workers.iter().flat_map(move |worker| worker.place().flows(now)))
    }

    fn entries(&self) -> usize {
        self.workers.iter().map(|worker| worker.place().entries()).sum()
    }

    fn flow_counters(&self) -> FlowCounters {
        sum(self.workers.iter().map(|worker| worker.place().flow_counters()))
    }

    fn high_water(&self) -> usize {
        self.workers.iter().map(|worker| worker.place().high_water()).sum()
    }

    fn memory_bytes(&self) -> usize {
        self.workers.iter().map(|worker| worker.place().memory_bytes()).sum()
    }

    fn transactions_by_core(&self) -> Option<Vec<Transactions>> {
        Some(self.workers.iter().map(|worker| worker.place().transactions().clone()).collect())
    }
}

impl<N: Function> TransactedFleet<N> {
    /// From now on the order of transactions is kept: for verification alone.
    pub fn record(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.place_mut().record());
    }

    /// The fleet is to run its transactions in the order of another that was [recorded](Self::record), over the same packets.
    pub fn repeat(&mut self, other: &Self) {
        let order = ReplayOrder::of(other.workers.iter().map(|worker| worker.place().places()));
        self.workers.iter_mut().for_each(|worker| worker.place_mut().repeat(&order));
    }

    /// The digest of what all packet sets share.
    pub fn fingerprint(&mut self) -> Fingerprint {
        let nf = Arc::clone(&self.nf);
        self.workers[0].place_mut().fingerprint(&nf)
    }
}

impl<N: NetworkFunction, P: Placement<N>> Fleet<N, P>
where
    Self: Inspect<N>,
{
    /// What happened to packets on all cores together, and to flows.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut total = Counters::default();
        for worker in &self.workers {
            total.add(&worker.counters());
        }
        Counters { flows: self.flow_counters(), ..total }
    }

    /// What happened to flows until `now`. Expiry is logical: a flow past its deadline has expired, whether or not its entry
    /// was reclaimed. So every flow that was opened has ended or is alive.
    #[must_use]
    pub fn flow_counters_at(&self, now: Nanos) -> FlowCounters {
        self.flow_counters_with(self.each_flow(now).count())
    }

    /// Counts what happened to flows until a time at which `alive` of them are alive.
    pub(crate) fn flow_counters_with(&self, alive: usize) -> FlowCounters {
        let counters = self.flow_counters();
        let lapsed = self.entries() - alive;
        FlowCounters { expired: counters.expired + lapsed as u64, ..counters }
    }

    /// What the function reports at `now`.
    #[must_use]
    pub fn report(&mut self, now: Nanos) -> Option<Report> {
        let nf = Arc::clone(&self.nf);
        self.function_report(&nf, now)
    }
}

/// All entries of a fleet's tables, alive or not.
fn all_entries<'a, N: NetworkFunction>(fleet: &'a impl Inspect<N>) -> Entries<'a, N> {
    Box::new(fleet.each_flow(Nanos(0)).map(|FlowState { key, flow, deadline }| (key, flow, deadline)))
}

fn sum(counters: impl Iterator<Item = FlowCounters>) -> FlowCounters {
    counters.fold(FlowCounters::default(), |mut total, part| {
        total.add(&part);
        total
    })
}
