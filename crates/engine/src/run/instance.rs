//! An engine instance: the workers of one engine, their dispatcher, and the state that they leave behind.

use std::sync::Arc;

use nf::{Entries, Fingerprint, FlowList, Function, NetworkFunction, PacketCounts, Report, Sizing, local_report};
use packet::Nanos;
use port::{Card, SimulatedCard};

use crate::counters::{Counters, FlowCounters};
use crate::kind::EngineKind;
use crate::offload::{Offload, OffloadCounts};
use crate::options::{Cuts, Options};
use crate::placement::private::Private;
use crate::placement::replay_order::ReplayOrder;
use crate::placement::sharded::{Layout, Sharded};
use crate::placement::shared::Shared;
use crate::placement::transacted::{Transacted, Transactions};
use crate::placement::{FlowState, Placement, SavedFlow, hash_of};
use crate::steer::dispatch::Dispatcher;
use crate::work::worker::Worker;

/// One engine, ready to run: its workers, and the dispatcher that steers packets to them.
pub struct EngineInstance<N: NetworkFunction, P> {
    /// The engine.
    pub kind: EngineKind,
    /// The function.
    pub nf: Arc<N>,
    /// One worker for each core.
    pub workers: Vec<Worker<N, P>>,
    /// Steers packets to the workers.
    pub dispatcher: Dispatcher<N>,
    /// Where `pipeline` cuts a packet's path.
    pub(crate) cuts: Cuts,
}

/// An instance with private state on each core: `sequential`, `rss`, `scr`, `pipeline`.
pub type PrivateInstance<N> = EngineInstance<N, Private<N>>;

/// An instance with one table for all cores: `shared`.
pub type SharedInstance<N> = EngineInstance<N, Shared<N>>;

/// An instance with shared state in transactional memory: `transactional`.
pub type TransactedInstance<N> = EngineInstance<N, Transacted<N>>;

/// An instance with shards that move between cores: `rss++`, `hybrid`.
pub type ShardedInstance<N> = EngineInstance<N, Sharded<N>>;

/// Builds `sequential`, `rss`, `scr`, `pipeline`, or `transactional` for a function whose packet sets share nothing.
///
/// # Panics
/// If `kind` is another engine, or `cores` is 0.
#[must_use]
pub fn private_instance<N: NetworkFunction>(
    kind: EngineKind,
    nf: Arc<N>,
    cores: usize,
    options: &Options,
) -> PrivateInstance<N> {
    assert!(cores > 0, "an engine has at least one core");
    let owns = match kind {
        EngineKind::Sequential | EngineKind::Rss | EngineKind::Scr | EngineKind::Pipeline => true,
        // If packet sets share nothing, there is nothing to run transactions on.
        EngineKind::Transactional => !options.sharing(&*nf).is_any(),
        EngineKind::Shared | EngineKind::RssPlusPlus | EngineKind::Hybrid => false,
    };
    assert!(owns, "{kind} has no private state");
    let sizing = options.sizing(&*nf);
    // A core that only reads and steers has no flows.
    let idle = cores - kind.stepping(cores, options.cuts);
    let none = Sizing { flows: 0, flows_v6: 0 };
    let place =
        |core| Private::with_options(&*nf, if core < idle { none } else { sizing }, options.seed, options.tables);
    let workers = (0..cores).map(|core| Worker::new(Arc::clone(&nf), place(core))).collect();
    EngineInstance { kind, workers, dispatcher: dispatcher(&nf, kind, cores, options), cuts: options.cuts, nf }
}

fn dispatcher<N: NetworkFunction>(nf: &Arc<N>, kind: EngineKind, cores: usize, options: &Options) -> Dispatcher<N> {
    Dispatcher::new(Arc::clone(nf), kind, cores, options)
}

/// Builds `rss++` or `hybrid`.
///
/// # Panics
/// If `kind` is another engine, or `cores` is 0.
#[must_use]
pub fn sharded_instance<N: NetworkFunction>(
    kind: EngineKind,
    nf: Arc<N>,
    cores: usize,
    options: &Options,
) -> ShardedInstance<N> {
    assert!(cores > 0, "an engine has at least one core");
    assert!(kind.moves_state(), "{kind} moves no state");
    let dispatcher = dispatcher(&nf, kind, cores, options);
    let plan = Layout { replicated: kind == EngineKind::Hybrid, sizing: options.sizing(&*nf), seed: options.seed };
    let places = Sharded::cores(&*nf, dispatcher.table(), cores, plan, options.tables);
    let workers = places.into_iter().map(|place| Worker::new(Arc::clone(&nf), place)).collect();
    EngineInstance { kind, workers, dispatcher, cuts: options.cuts, nf }
}

/// Builds `shared`.
///
/// # Panics
/// If `cores` is 0.
#[must_use]
pub fn shared_instance<N: NetworkFunction>(nf: Arc<N>, cores: usize, options: &Options) -> SharedInstance<N> {
    assert!(cores > 0, "an engine has at least one core");
    let Options { seed, tables, .. } = *options;
    let handles = Shared::handles(&*nf, options.sharing(&*nf), cores, options.sizing(&*nf), seed, tables);
    let workers = handles.into_iter().map(|place| Worker::new(Arc::clone(&nf), place)).collect();
    let kind = EngineKind::Shared;
    EngineInstance { kind, workers, dispatcher: dispatcher(&nf, kind, cores, options), cuts: options.cuts, nf }
}

/// Builds `transactional`, for a function whose packet sets share state.
///
/// # Panics
/// If `cores` is 0.
#[must_use]
pub fn transacted_instance<N: Function>(nf: Arc<N>, cores: usize, options: &Options) -> TransactedInstance<N> {
    assert!(cores > 0, "an engine has at least one core");
    let mut handles = Transacted::handles(&*nf, cores, options.sizing(&*nf), options.seed, options.tables);
    if options.profile {
        handles.iter_mut().for_each(Transacted::profile);
    }
    let workers = handles.into_iter().map(|place| Worker::new(Arc::clone(&nf), place)).collect();
    let kind = EngineKind::Transactional;
    EngineInstance { kind, workers, dispatcher: dispatcher(&nf, kind, cores, options), cuts: options.cuts, nf }
}

/// Reads an instance's state, whatever its placement.
pub trait Inspect<N: NetworkFunction> {
    /// Iterates over the flows alive at `now`, each once, in no particular order. `scr`: the flows of one replica.
    fn each_flow(&self, now: Nanos) -> Box<dyn Iterator<Item = FlowState<N>> + '_>;

    /// [The same](Self::each_flow), collected.
    fn flows(&self, now: Nanos) -> Vec<FlowState<N>> {
        self.each_flow(now).collect()
    }

    /// The number of flows alive at `now`.
    fn alive(&self, now: Nanos) -> usize {
        self.each_flow(now).count()
    }

    /// The flows alive at `now`, to be saved. Where packet sets share state also those past their deadline that have not ended yet.
    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>>;

    /// Puts in flows of an earlier run as of `now`, before the first packet. They count as opened. Returns how many found room.
    fn restore(&mut self, nf: &N, flows: &[SavedFlow<N>], now: Nanos) -> usize;

    /// Returns the state that packet sets share at `now`, as words to be saved, for functions that [keep it](NetworkFunction::KEEPS).
    fn saved_shared(&mut self, nf: &N, now: Nanos) -> Vec<u64>;

    /// Reads what packet sets shared at `now` in an earlier run, before the first packet and before flows. False if the words make no sense.
    fn restore_shared(&mut self, nf: &N, words: &[u64], now: Nanos) -> bool;

    /// The number of table entries, each once: flows alive, and expired flows that were not reclaimed yet.
    fn entries(&self) -> usize;

    /// Counts flows by what happened to them, each once.
    fn flow_counters(&self) -> FlowCounters;

    /// The most flows at one time, summed over shards.
    fn high_water(&self) -> usize;

    /// What all cores have counted, if the function [counts](NetworkFunction::COUNTS): each packet once.
    fn packet_counts(&self) -> PacketCounts;

    /// All counters at `now`. A flow past its deadline counts as ended, whether or not the engine has ended it yet.
    fn packet_counts_at(&self, nf: &N, now: Nanos) -> PacketCounts;

    /// The memory of all tables, in bytes.
    fn memory_bytes(&self) -> usize;

    /// What the function reports at `now`.
    fn function_report(&mut self, nf: &N, now: Nanos) -> Option<Report>;

    /// Each core's transactions; `None` for an engine without transactions.
    fn transactions_by_core(&self) -> Option<Vec<Transactions>> {
        None
    }

    /// All transactions; `None` for an engine without transactions.
    fn transactions(&self) -> Option<Transactions> {
        let mut total = Transactions::default();
        self.transactions_by_core()?.iter().for_each(|core| total.add(core));
        Some(total)
    }
}

impl<N: NetworkFunction, P: Placement<N>> EngineInstance<N, P> {
    /// Puts a card ahead of each core: that of the port, or its part of a simulated one.
    pub(super) fn put_behind_cards(&mut self, offload: Offload, cards: Option<Vec<Box<dyn Card>>>, seed: u64) {
        let limits = offload.part(self.workers.len());
        let mut cards = cards.unwrap_or_default().into_iter();
        for (core, worker) in self.workers.iter_mut().enumerate() {
            let simulated = || Box::new(SimulatedCard::new(limits, seed.wrapping_add(core as u64)));
            let card = cards.next().unwrap_or_else(|| simulated());
            worker.put_behind(card, offload, limits.entries);
        }
    }

    /// Sums the counts of the cards of all cores; `None` without cards.
    pub(super) fn offload_counts(&self) -> Option<OffloadCounts> {
        let mut by_core = self.workers.iter().filter_map(Worker::offload_counts);
        let mut all = by_core.next()?;
        by_core.for_each(|counts| all.add(&counts));
        Some(all)
    }
}

impl<N: NetworkFunction> ShardedInstance<N> {
    /// Deals the empty shards to cores by the dispatcher's current table. Call it before anything has run.
    pub fn deal_shards(&mut self) {
        let mut places: Vec<_> = self.workers.iter_mut().map(Worker::place_mut).collect();
        Sharded::deal(&mut places, self.dispatcher.table());
    }
}

/// A placement made of private tables.
trait InParts: Sized {
    /// The function.
    type Nf: NetworkFunction;

    /// The states that make up the whole: every shard, and one of the replicas of what is replicated.
    fn parts(instance: &EngineInstance<Self::Nf, Self>) -> impl Iterator<Item = &Private<Self::Nf>>;

    /// All tables of this core, replicas included.
    fn tables(&self) -> impl Iterator<Item = &Private<Self::Nf>>;

    /// All tables of this core, replicas included, to be changed.
    fn tables_mut(&mut self) -> impl Iterator<Item = &mut Private<Self::Nf>>;
}

impl<N: NetworkFunction> InParts for Private<N> {
    type Nf = N;

    /// A replica that only gets history with its own packets ends at its last packet, so `scr` takes the first of the replicas that got
    /// furthest.
    fn parts(instance: &PrivateInstance<N>) -> impl Iterator<Item = &Self> {
        let workers = &instance.workers;
        let furthest = workers.iter().rev().max_by_key(|worker| worker.next()).map(std::slice::from_ref);
        let idle = workers.len() - instance.kind.stepping(workers.len(), instance.cuts);
        let parts = if instance.kind == EngineKind::Scr { furthest.unwrap_or_default() } else { &workers[idle..] };
        parts.iter().map(Worker::place)
    }

    fn tables(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self)
    }

    fn tables_mut(&mut self) -> impl Iterator<Item = &mut Self> {
        std::iter::once(self)
    }
}

impl<N: NetworkFunction> InParts for Sharded<N> {
    type Nf = N;

    fn parts(instance: &ShardedInstance<N>) -> impl Iterator<Item = &Private<N>> {
        let replica = instance.workers.first().and_then(|worker| worker.place().replica());
        instance.workers.iter().flat_map(|worker| worker.place().shards()).chain(replica)
    }

    fn tables(&self) -> impl Iterator<Item = &Private<N>> {
        self.shards().chain(self.replica())
    }

    fn tables_mut(&mut self) -> impl Iterator<Item = &mut Private<N>> {
        self.all_mut()
    }
}

impl<N: NetworkFunction, P: InParts<Nf = N> + Placement<N>> Inspect<N> for EngineInstance<N, P> {
    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        P::parts(self).flat_map(|part| part.saved(nf, now)).collect()
    }

    fn restore(&mut self, nf: &N, flows: &[SavedFlow<N>], now: Nanos) -> usize {
        self.restore_each(nf, flows, now)
    }

    /// Where packet sets share state there is one part, or one replica of each core.
    fn saved_shared(&mut self, nf: &N, now: Nanos) -> Vec<u64> {
        P::parts(self).next().map_or_else(Vec::new, |part| part.saved_shared(nf, now))
    }

    fn restore_shared(&mut self, nf: &N, words: &[u64], now: Nanos) -> bool {
        let places = self.workers.iter_mut().map(Worker::place_mut);
        places.flat_map(P::tables_mut).all(|table| table.restore_shared(nf, words, now))
    }

    fn function_report(&mut self, nf: &N, now: Nanos) -> Option<Report> {
        let this = &*self;
        let entries = || -> Entries<'_, N> {
            let all = P::parts(this).flat_map(|part| part.concluded(nf, now));
            Box::new(all.map(|FlowState { key, flow, deadline }| (key, flow, deadline)))
        };
        local_report(
            nf,
            &FlowList::new(&entries, now),
            P::parts(this).next()?.shared(),
            &this.packet_counts_at(nf, now),
        )
    }

    fn each_flow(&self, now: Nanos) -> Box<dyn Iterator<Item = FlowState<N>> + '_> {
        Box::new(P::parts(self).flat_map(move |part| part.flows(now)))
    }

    fn entries(&self) -> usize {
        P::parts(self).map(Private::entries).sum()
    }

    fn flow_counters(&self) -> FlowCounters {
        sum(P::parts(self).map(Placement::flow_counters))
    }

    fn high_water(&self) -> usize {
        P::parts(self).map(Private::high_water).sum()
    }

    /// Of all replicas, as each counts its own packets only.
    fn packet_counts(&self) -> PacketCounts {
        let mut total = PacketCounts::new(self.nf.counters());
        let tables = self.workers.iter().flat_map(|worker| worker.place().tables());
        tables.for_each(|table| total.add(table.counts()));
        total
    }

    fn packet_counts_at(&self, nf: &N, now: Nanos) -> PacketCounts {
        let total = self.packet_counts();
        P::parts(self).for_each(|part| part.count_lapsed(nf, now, &total));
        total
    }

    fn memory_bytes(&self) -> usize {
        self.workers.iter().flat_map(|worker| worker.place().tables()).map(Private::memory_bytes).sum()
    }
}

impl<N: NetworkFunction> Inspect<N> for SharedInstance<N> {
    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        self.workers[0].place().saved(nf, now)
    }

    fn restore(&mut self, nf: &N, flows: &[SavedFlow<N>], now: Nanos) -> usize {
        self.restore_each(nf, flows, now)
    }

    fn saved_shared(&mut self, nf: &N, now: Nanos) -> Vec<u64> {
        self.workers[0].place().whole().saved_shared(nf, now)
    }

    fn restore_shared(&mut self, nf: &N, words: &[u64], now: Nanos) -> bool {
        self.workers[0].place().whole().restore_shared(nf, words, now)
    }

    fn function_report(&mut self, nf: &N, now: Nanos) -> Option<Report> {
        self.workers[0].place().whole().report(nf, now, &self.packet_counts_at(nf, now))
    }

    fn alive(&self, now: Nanos) -> usize {
        self.workers[0].place().whole().alive(&self.nf, now)
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

    fn packet_counts(&self) -> PacketCounts {
        let mut total = PacketCounts::new(self.nf.counters());
        self.workers.iter().for_each(|worker| worker.place().whole().add_counts(&mut total));
        total
    }

    fn packet_counts_at(&self, nf: &N, now: Nanos) -> PacketCounts {
        let total = self.packet_counts();
        self.workers[0].place().whole().count_lapsed(nf, now, &total);
        total
    }

    fn memory_bytes(&self) -> usize {
        self.workers[0].place().whole().memory_bytes()
    }
}

impl<N: Function> Inspect<N> for TransactedInstance<N> {
    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        self.workers.iter().flat_map(|worker| worker.place().saved(nf, now)).collect()
    }

    fn restore(&mut self, nf: &N, flows: &[SavedFlow<N>], now: Nanos) -> usize {
        self.restore_each(nf, flows, now)
    }

    fn saved_shared(&mut self, nf: &N, now: Nanos) -> Vec<u64> {
        self.workers[0].place_mut().saved_shared(nf, now)
    }

    fn restore_shared(&mut self, nf: &N, words: &[u64], now: Nanos) -> bool {
        self.workers[0].place_mut().restore_shared(nf, words, now)
    }

    fn function_report(&mut self, nf: &N, now: Nanos) -> Option<Report> {
        let all: Vec<_> = all_entries(&*self).collect();
        let entries = || -> Entries<'_, N> { Box::new(all.iter().copied()) };
        let total = self.packet_counts();
        self.workers[0].place_mut().report(nf, &FlowList::new(&entries, now), total, now)
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

    fn packet_counts(&self) -> PacketCounts {
        let mut total = PacketCounts::new(self.nf.counters());
        self.workers.iter().for_each(|worker| total.add(worker.place().packet_counts()));
        total
    }

    /// Functions that count ends of flows share nothing, so they are not here.
    fn packet_counts_at(&self, _: &N, _: Nanos) -> PacketCounts {
        self.packet_counts()
    }

    fn memory_bytes(&self) -> usize {
        self.workers.iter().map(|worker| worker.place().memory_bytes()).sum()
    }

    fn transactions_by_core(&self) -> Option<Vec<Transactions>> {
        Some(self.workers.iter().map(|worker| worker.place().transactions().clone()).collect())
    }
}

impl<N: Function> TransactedInstance<N> {
    /// Records the order of transactions from now on. For verification only.
    pub fn record(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.place_mut().record());
    }

    /// Runs transactions in the order that `other` [recorded](Self::record). Both must get the same packets.
    pub fn repeat(&mut self, other: &Self) {
        let order = ReplayOrder::of(other.workers.iter().map(|worker| worker.place().places()));
        self.workers.iter_mut().for_each(|worker| worker.place_mut().repeat(&order));
    }

    /// The fingerprint of the state that packet sets share.
    pub fn fingerprint(&mut self) -> Fingerprint {
        let nf = Arc::clone(&self.nf);
        self.workers[0].place_mut().fingerprint(&nf)
    }
}

impl<N: NetworkFunction, P: Placement<N>> EngineInstance<N, P> {
    /// Puts each flow where its packets will come: at one core, at all of them as replicas, or in the table that all share.
    fn restore_each(&mut self, nf: &N, flows: &[SavedFlow<N>], now: Nanos) -> usize {
        let seed = self.workers.first().map_or(0, |worker| worker.place().seed());
        let mut kept = 0;
        for saved in flows {
            let hash = hash_of::<N>(&saved.key, seed);
            let is_kept = match self.dispatcher.place_of(&saved.key) {
                (Some(core), bucket) => self.workers[core].place_mut().restore(nf, saved, hash, bucket, now),
                (None, _) if self.kind == EngineKind::Scr => {
                    let replicas = self.workers.iter_mut();
                    // All replicas have the same flows, and so the same room.
                    replicas
                        .map(|worker| worker.place_mut().restore(nf, saved, hash, 0, now))
                        .fold(true, |all, one| all & one)
                }
                (None, _) => self.workers[0].place_mut().restore(nf, saved, hash, 0, now),
            };
            kept += usize::from(is_kept);
        }
        kept
    }

    /// Replaces the function by `nf`, which [succeeds](NetworkFunction::succeed) it. Flows stay.
    pub(crate) fn succeed(&mut self, nf: Arc<N>) {
        let workers = std::mem::take(&mut self.workers);
        self.workers = Worker::succeed(workers, &nf, &self.nf);
        self.dispatcher.succeed(Arc::clone(&nf));
        self.nf = nf;
    }
}

impl<N: NetworkFunction, P: Placement<N>> EngineInstance<N, P>
where
    Self: Inspect<N>,
{
    /// The counters of all cores together.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut total = Counters::default();
        for worker in &self.workers {
            total.add(&worker.counters());
        }
        Counters { flows: self.flow_counters(), ..total }
    }

    /// Counts flows until `now`. A flow past its deadline has expired, even if its entry was not reclaimed yet. So every flow that was
    /// opened has ended or is alive.
    #[must_use]
    pub fn flow_counters_at(&self, now: Nanos) -> FlowCounters {
        self.flow_counters_with(self.alive(now))
    }

    /// Counts flows until a time at which `alive` of them are alive.
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

/// All entries of an instance's tables, alive or not.
fn all_entries<'a, N: NetworkFunction>(instance: &'a impl Inspect<N>) -> Entries<'a, N> {
    Box::new(instance.each_flow(Nanos(0)).map(|FlowState { key, flow, deadline }| (key, flow, deadline)))
}

fn sum(counters: impl Iterator<Item = FlowCounters>) -> FlowCounters {
    counters.fold(FlowCounters::default(), |mut total, part| {
        total.add(&part);
        total
    })
}
