//! Throughput under each engine, all cases interleaved in one run.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{
    AnyWorker, CoreRun, EngineError, EngineInstance, EngineKind, Options, Placement, Private, ShardedInstance,
    TraceHistory, cpus, private_instance, sharded_instance, shared_instance, transacted_instance,
};
use nf::{Function, Sizing};
use port::{HugePages, Loops, Offered, Queue, Replay, Trace};

use crate::advise::predicted;
use crate::bare::Bare;
use crate::gauge::{Gauged, Shown};
use crate::loss_free::{Found, LossFree, LossFreePlan, search};
use crate::model::{CostModel, Prediction, replay_percent};
use crate::pass::Pass;
use crate::remote::Remote;
use crate::replay::{ReplayPlan, replay_workers};
use crate::rounds::{Contender, Reading, Readings, Rounds, Rules, take_turns};
use crate::sequencer::{Sequencers, Sequencing};
use crate::spread::Spread;
use crate::steered::Steered;
use crate::work::{Dispatched, Work};

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// The engines.
    pub engines: Vec<EngineKind>,
    /// How many cores each runs on.
    pub cores: Vec<usize>,
    /// How often each case runs, in turn with the others; the medians are of these.
    pub rounds: usize,
    /// Whether only rounds count in which nobody outside disturbed, as far as the gauge tells. There are up to twenty times as many, then.
    pub undisturbed: bool,
    /// How many packets a case has in each round, over all its cores; at least one pass over the trace.
    pub packets: u64,
    /// How the fleets are built.
    pub options: Options,
    /// Whether the bare loop runs in turn with the cases.
    pub with_bare: bool,
    /// Work added to each packet that a core receives, on top of what receiving it takes.
    pub dispatch: Work,
    /// Whether and how the loss-free rate of each case is searched for, as often as there are rounds.
    pub loss_free: Option<LossFreePlan>,
    /// How many cores figures are modelled to; 0 for none beyond those that are asked for.
    pub model_to: usize,
    /// What a cache line of the history takes longer, in nanoseconds, where another core had it last, on more cores than there are here;
    /// `None` for what it was measured to take between two of these.
    pub far_line_ns: Option<f64>,
}

impl BenchPlan {
    const fn rules(&self) -> Rules {
        Rules { rounds: self.rounds, undisturbed: self.undisturbed }
    }
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// As many threads as the row has cores, each on a processor of its own, at the same time.
    Measured,
    /// Each core's share alone, one after the other, the slowest counting, and what records of a history take longer that come from other
    /// cores' caches ([`Remote`]).
    Modelled,
}

/// One engine on some cores.
#[derive(Clone, Debug)]
pub struct Row {
    /// The engine.
    pub engine: EngineKind,
    /// The cores.
    pub cores: usize,
    /// Millions of packets a second, all cores together.
    pub mpps: Spread,
    /// Nanoseconds that a core spends on each of its own packets.
    pub ns_per_packet_per_core: Spread,
    /// Where the figures come from.
    pub basis: Basis,
    /// The rounds that ran and those that the figures are of.
    pub rounds: Rounds,
    /// The loss-free rate, if it was asked for, or why load can't be offered.
    pub loss_free: Option<Result<LossFree, String>>,
}

/// What a bench came to.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The rows, by engine, then cores.
    pub rows: Vec<Row>,
    /// Engines that can't take the function on so many cores, and why.
    pub refused: Vec<(EngineKind, usize, String)>,
    /// The cost model's parameters on this trace, measured in the same run.
    pub model: CostModel,
    /// What the model makes of replication on each number of cores to [`BenchPlan::model_to`], beside what was found there.
    pub predictions: Vec<Prediction>,
    /// The same of engines that shard, wherever something was found.
    pub sharded: Vec<Prediction>,
    /// The work that was added to each received packet; it is in all figures.
    pub dispatch: Work,
    /// Nanoseconds a packet of a bare loop that checks one header and counts in one table, in the same rounds: what the machine
    /// gave meanwhile. `None` unless asked for.
    pub bare_ns: Option<Spread>,
    /// What a sequencer in software keeps up with; `None` where replication isn't asked for or refused.
    pub sequencing: Option<Sequencing>,
    /// Bytes that an IPv4 flow takes when the table is full; `None` for a function that keeps no flows.
    pub bytes_per_flow: Option<f64>,
    /// How long the tables took to come up.
    pub startup: Duration,
    /// How much of the traces' memory lay on huge pages.
    pub huge_pages: HugePages,
    /// What replaying a record was found to cost of what a packet costs, in percent, by the number of cores: what `hybrid` went by.
    pub replays: Vec<(usize, u32)>,
}

/// A row that claims more than so many times what its cores carry one by one is wrong: something disturbed one of the two.
const TIMES_LINEAR_MAX: f64 = 1.15;

impl Bench {
    /// How many times the rate of as many single cores the row claims, where that can't be: the rate of one core is the best that was
    /// measured on one, or that of the cost model. `None` for a row that may well be true.
    #[must_use]
    pub fn implausible(&self, row: &Row) -> Option<f64> {
        let alone = self.rows.iter().filter(|row| row.cores == 1).map(|row| row.mpps.median);
        let one = alone.fold(1e3 / self.model.t, f64::max);
        let times = row.mpps.median / (one * row.cores as f64);
        (row.cores > 1 && times > TIMES_LINEAR_MAX).then_some(times)
    }
}

/// How a bench can fail.
pub type BenchError = EngineError;

/// Measures a function over a trace under each engine. `progress` is told how many runs are done, and of how many.
///
/// # Errors
/// When the trace can't be replayed.
pub fn bench<N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    plan: &BenchPlan,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Bench, BenchError> {
    let mut refused = Vec::new();
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    let mut replays = Vec::new();
    let remote = Remote::of_records::<N::Meta>(plan.far_line_ns);
    for &engine in &plan.engines {
        for &cores in &plan.cores {
            let plan = informed(nf, trace, engine, cores, plan, remote, &mut replays)?;
            match case(nf, trace, engine, cores, &plan)? {
                Ok(case) => cases.push(case),
                Err(reason) => refused.push((engine, cores, reason)),
            }
        }
    }
    // The model's parameters: dispatch alone, a lone core, and one core's share of two and of eight replicas.
    let pass = Arc::new(Pass);
    let mut dispatch = Fleets::new(private_instance(EngineKind::Sequential, pass, 1, &plan.options), trace, plan)?;
    let mut alone =
        Fleets::new(private_instance(EngineKind::Sequential, Arc::clone(nf), 1, &plan.options), trace, plan)?;
    let share_of = |replicas| {
        let fleet = private_instance(EngineKind::Scr, Arc::clone(nf), replicas, &plan.options);
        Ok::<_, BenchError>(Fleets::new(fleet, trace, plan)?.share())
    };
    let (mut of_two, mut of_eight) = (share_of(2)?, share_of(REPLICAS)?);
    let mut bare = plan.with_bare.then(|| Bare::new(trace, plan));
    let replicates =
        plan.engines.contains(&EngineKind::Scr) && EngineKind::Scr.accepts(&N::DESCRIPTION, REPLICAS).is_ok();
    let mut sequencers = replicates.then(|| Sequencers::new(nf, trace, REPLICAS, plan)).transpose()?;
    let searches = if plan.loss_free.is_some() { cases.len() } else { 0 };
    let mut contenders: Vec<&mut dyn Contender> = Vec::new();
    contenders.extend(bare.as_mut().map(|bare| bare as &mut dyn Contender));
    contenders.extend(sequencers.as_mut().map(|sequencers| sequencers as &mut dyn Contender));
    contenders.extend(cases.iter_mut().map(|case| case.as_mut().contender()));
    contenders.extend([&mut dispatch as &mut dyn Contender, &mut alone, &mut of_two, &mut of_eight]);
    let rounds = |contenders: usize| (contenders * plan.rounds) as u64;
    let beyond = beyond(plan, cpus().len());
    let engines = plan.engines.iter().filter(|engine| **engine != EngineKind::Sequential).count();
    let total = rounds(contenders.len() + searches + engines * beyond.len());
    let mut done = rounds(contenders.len());
    take_turns(&mut contenders, plan.rules(), |done| progress(done, total))?;
    drop(contenders);
    if let Some(loss_free) = &plan.loss_free {
        for _ in 0..plan.rounds {
            for case in &mut cases {
                progress(done, total);
                case.search(loss_free)?;
                done += 1;
            }
        }
    }
    let [t, with_one, with_records] = [&alone, &of_two, &of_eight].map(Fleets::own_ns);
    let model = CostModel::of(dispatch.own_ns(), t, with_one, with_records, REPLICAS as f64 - 1.0, remote);
    let (bytes_per_flow, startup) = tables(&**nf, &plan.options);
    let parts = [dispatch.huge_pages(), alone.huge_pages(), of_two.huge_pages(), of_eight.huge_pages()];
    let huge_pages = cases.iter().map(|case| case.huge_pages()).chain(parts).fold(HugePages::default(), |sum, one| {
        HugePages { bytes: sum.bytes + one.bytes, huge_bytes: sum.huge_bytes + one.huge_bytes }
    });
    let mut rows: Vec<Row> = cases.iter().map(|case| case.row(remote)).collect();
    drop((cases, dispatch, alone, of_two, of_eight));
    // One after the other, as the tables of so many cores don't fit into memory at once.
    for &engine in plan.engines.iter().filter(|engine| **engine != EngineKind::Sequential) {
        for &cores in &beyond {
            let plan = &*informed(nf, trace, engine, cores, plan, remote, &mut replays)?;
            match case(nf, trace, engine, cores, plan)? {
                Ok(mut case) => {
                    take_turns(&mut [case.contender()], plan.rules(), |more| progress(done + more, total))?;
                    done += rounds(1);
                    rows.push(case.row(remote));
                }
                Err(reason) => {
                    refused.push((engine, cores, reason));
                    break;
                }
            }
        }
    }
    progress(total, total);
    in_order(&mut rows, plan);
    let predictions = Prediction::all(&model, &rows, plan.model_to);
    let shards = |row: &&Row| {
        matches!(row.engine, EngineKind::Rss | EngineKind::RssPlusPlus | EngineKind::Hybrid) && plan.model_to > 0
    };
    let sharded = rows.iter().filter(shards);
    let sharded = sharded
        .map(|row| {
            let known = replays.iter().find(|(cores, _)| *cores == row.cores && row.engine == EngineKind::Hybrid);
            let replay_percent = known.map_or(plan.options.replay_percent, |(_, percent)| *percent);
            let options = Options { replay_percent, ..plan.options };
            let mpps = predicted(nf, trace, row.engine, row.cores, &options, &model);
            Prediction::of(row.engine, row.cores, mpps, Some(row))
        })
        .collect();
    let (bare_ns, dispatch) = (bare.and_then(|bare| bare.ns()), plan.dispatch);
    let sequencing = sequencers.map(Sequencers::result);
    Ok(Bench {
        rows,
        refused,
        model,
        predictions,
        sharded,
        dispatch,
        bare_ns,
        sequencing,
        bytes_per_flow,
        startup,
        huge_pages,
        replays,
    })
}

/// Sorts rows by engine, as these were asked for, and cores. A function of its own, as the sort would else be compiled for each that is measured.
fn in_order(rows: &mut [Row], plan: &BenchPlan) {
    rows.sort_by_key(|row| (plan.engines.iter().position(|engine| *engine == row.engine), row.cores));
}

/// What cores cost each other under `shared`, measured on two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contention {
    /// Nanoseconds of a packet on a core that has the state to itself.
    pub alone_ns: f64,
    /// Nanoseconds more where another core had the state last.
    pub transfer_ns: f64,
    /// Nanoseconds for a packet's turn at the state that the heaviest packet set has, or all have, with others waiting.
    pub turn_ns: f64,
}

impl Contention {
    /// Measures it on a trace, and the turns on the packets of it that wait for each other. `None` where there are no two cores
    /// to measure on.
    ///
    /// # Errors
    /// When a trace can't be replayed.
    pub(crate) fn measure<N: Function>(
        nf: &Arc<N>,
        trace: &Arc<Trace>,
        turns: &Arc<Trace>,
        plan: &BenchPlan,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<Self>, BenchError> {
        if cpus().len() < 2 || turns.is_empty() {
            return Ok(None);
        }
        let of = |trace| Fleets::new(shared_instance(Arc::clone(nf), 2, &plan.options), trace, plan);
        let mut cases = [of(trace)?.share(), of(trace)?, of(turns)?];
        for round in 0..plan.rounds {
            for (index, case) in cases.iter_mut().enumerate() {
                progress((round * 3 + index) as u64, (plan.rounds * 3) as u64);
                case.round()?;
            }
        }
        let [alone, together, hot] = &cases;
        let alone_ns = alone.own_ns();
        let turn_ns = if plan.rounds > 0 { hot.readings.spread(|reading| 1e3 / reading.mpps).median } else { 0.0 };
        // With two cores it is the other one every second time.
        let transfer_ns = ((together.own_ns() - alone_ns) * 2.0).max(0.0);
        Ok(Some(Self { alone_ns, transfer_ns, turn_ns }))
    }
}

/// The numbers of cores that shares are run for beyond those asked for, where the machine has too few: all to 4, the even
/// ones to 8, then every fourth and the last.
fn beyond(plan: &BenchPlan, machine: usize) -> Vec<usize> {
    let asked = plan.cores.iter().copied().max().unwrap_or(0).max(machine);
    let wanted = |cores: &usize| match *cores {
        ..=4 => true,
        5..=8 => cores.is_multiple_of(2) || *cores == plan.model_to,
        _ => cores.is_multiple_of(4) || *cores == plan.model_to,
    };
    (asked + 1..=plan.model_to).filter(wanted).collect()
}

/// How many replicas the history's cost is measured with.
const REPLICAS: usize = 8;
/// Rounds by which `hybrid` is told what replicating costs, before those that count.
const LOOKS: usize = 5;

/// The plan, with what replaying a record costs on so many cores for the engine that has to know: it decides from which point on
/// replicating pays.
fn informed<'a, N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    engine: EngineKind,
    cores: usize,
    plan: &'a BenchPlan,
    remote: Remote,
    replays: &mut Vec<(usize, u32)>,
) -> Result<Cow<'a, BenchPlan>, BenchError> {
    let replicates = EngineKind::Scr.accepts(&N::DESCRIPTION, cores).is_ok();
    if engine != EngineKind::Hybrid || cores < 2 || !replicates || engine.accepts(&N::DESCRIPTION, cores).is_err() {
        return Ok(Cow::Borrowed(plan));
    }
    let told = |replay_percent| BenchPlan { options: Options { replay_percent, ..plan.options }, ..plan.clone() };
    // Were a record as dear as a packet, nothing would be replicated.
    let unless = told(100);
    let sharded = sharded_instance(engine, Arc::clone(nf), cores, &unless.options);
    let mut sharded = sharded_case(sharded, trace, &unless, false)?.share();
    let replica = private_instance(EngineKind::Scr, Arc::clone(nf), cores, &plan.options);
    let mut replica = Fleets::new(replica, trace, plan)?.share();
    take_turns(&mut [&mut sharded, &mut replica], Rules { rounds: LOOKS, ..plan.rules() }, |_| ())?;
    // What a packet takes more of a replica's time, it and all others' records, than of a shard's. Of the fastest rounds, as these are few
    // and whoever disturbs makes some slower and none faster.
    let [sharded, replica] = [sharded, replica].map(|one| one.readings.spread(|reading| reading.own_ns).min);
    let replay_percent = replay_percent(sharded, (replica - sharded) / (cores - 1) as f64 + remote.ns(cores));
    replays.push((cores, replay_percent));
    Ok(Cow::Owned(told(replay_percent)))
}

fn case<N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    engine: EngineKind,
    cores: usize,
    plan: &BenchPlan,
) -> Result<Result<Box<dyn Case>, String>, BenchError> {
    if let Err(reason) = engine.accepts(&N::DESCRIPTION, cores).and_then(|()| plan.options.tables.accepts(&**nf)) {
        return Ok(Err(reason));
    }
    let nf = Arc::clone(nf);
    let options = &plan.options;
    let contends =
        engine == EngineKind::Shared || engine == EngineKind::Transactional && N::DESCRIPTION.sharing.is_any();
    if contends && cores > cpus().len() {
        let have = cpus().len();
        return Ok(Err(format!(
            "{engine} on {cores} cores can't be measured on {have}, and its contention can't be modelled from shares"
        )));
    }
    Ok(Ok(match engine {
        EngineKind::Transactional if contends => {
            Box::new(Fleets::new(transacted_instance(nf, cores, options), trace, plan)?)
        }
        EngineKind::Sequential | EngineKind::Rss | EngineKind::Transactional | EngineKind::Scr => {
            Box::new(Fleets::new(private_instance(engine, nf, cores, options), trace, plan)?)
        }
        EngineKind::RssPlusPlus | EngineKind::Hybrid => {
            Box::new(sharded_case(sharded_instance(engine, nf, cores, options), trace, plan, cores <= cpus().len())?)
        }
        EngineKind::Shared => Box::new(Fleets::new(shared_instance(nf, cores, options), trace, plan)?),
    }))
}

/// A fleet whose state moves, once its steering has found its feet. Unless its cores run `together`, nothing moves any more: who has to
/// wait for another would wait for ever.
fn sharded_case<N: Function>(
    mut fleet: ShardedInstance<N>,
    trace: &Arc<Trace>,
    plan: &BenchPlan,
    together: bool,
) -> Result<Fleets<N>, BenchError> {
    let steered = Steered::settled(&mut fleet.dispatcher, trace, together);
    fleet.deal_shards();
    Fleets::steered(fleet, trace, plan, steered)
}

/// The memory of a full table's flow, and how long a table takes to come up.
fn tables<N: Function>(nf: &N, options: &Options) -> (Option<f64>, Duration) {
    let Sizing { flows, flows_v6 } = nf.sizing();
    let start = Instant::now();
    let whole = Private::new(nf, Sizing { flows, flows_v6 }, options.seed);
    let startup = start.elapsed();
    drop(whole);
    let v4 = Private::new(nf, Sizing { flows, flows_v6: 0 }, options.seed);
    let none = Private::new(nf, Sizing { flows: 0, flows_v6: 0 }, options.seed);
    let bytes = v4.memory_bytes().saturating_sub(none.memory_bytes());
    ((flows > 0 && bytes > 0).then(|| bytes as f64 / flows as f64), startup)
}

/// A fleet with its trace, ready for rounds.
trait Case: Contender {
    fn contender(&mut self) -> &mut dyn Contender;
    /// Looks for the loss-free rate once, from the rounds' rates on; not where load can't be offered.
    fn search(&mut self, plan: &LossFreePlan) -> Result<(), BenchError>;
    /// The row; a modelled one has what records take longer that come from elsewhere.
    fn row(&self, remote: Remote) -> Row;
    fn huge_pages(&self) -> HugePages;
}

/// Compiled once for a function, whatever the placement: what is measured, the workers' loop, is called once a batch.
struct Fleets<N: Function> {
    engine: EngineKind,
    workers: Vec<Box<dyn AnyWorker<N>>>,
    replay: Replay,
    script: TraceHistory<N::Meta>,
    basis: Basis,
    /// The core with the most packets.
    busiest: usize,
    /// Run that core's share alone.
    only_busiest: bool,
    readings: Readings,
    dispatch: Work,
    /// What searches for the loss-free rate found, if there are any.
    found: Option<Vec<Found>>,
}

impl<N: Function> Fleets<N> {
    /// Places the trace in memory, steered for the fleet, and runs it once to warm tables and caches.
    fn new<P: Placement<N> + 'static>(
        mut fleet: EngineInstance<N, P>,
        trace: &Arc<Trace>,
        plan: &BenchPlan,
    ) -> Result<Self, BenchError> {
        let steered = Steered::pass(&mut fleet.dispatcher, trace);
        Self::steered(fleet, trace, plan, steered)
    }

    fn steered<P: Placement<N> + 'static>(
        fleet: EngineInstance<N, P>,
        trace: &Arc<Trace>,
        plan: &BenchPlan,
        steered: Steered<N::Meta>,
    ) -> Result<Self, BenchError> {
        let workers = fleet.workers.into_iter().map(|worker| Box::new(worker) as Box<dyn AnyWorker<N>>).collect();
        Self::of(fleet.kind, workers, trace, plan, steered)
    }

    fn of(
        engine: EngineKind,
        workers: Vec<Box<dyn AnyWorker<N>>>,
        trace: &Arc<Trace>,
        plan: &BenchPlan,
        steered: Steered<N::Meta>,
    ) -> Result<Self, BenchError> {
        let Steered { cores: steered, buckets, script } = steered;
        let packets_of = |core: &usize| steered.iter().filter(|one| usize::from(**one) == *core).count();
        let busiest = (0..workers.len()).rev().max_by_key(packets_of).unwrap_or(0);
        let loops = plan.packets.div_ceil(trace.len().max(1) as u64).max(1);
        let replay =
            Replay::new(Arc::clone(trace)).looped(Loops::Times(loops)).steered(steered).bucketed(buckets).continued();
        let basis = if workers.len() <= cpus().len() { Basis::Measured } else { Basis::Modelled };
        let found = plan.loss_free.map(|_| Vec::new());
        let mut new = Self {
            engine,
            workers,
            replay,
            script,
            basis,
            busiest,
            only_busiest: false,
            readings: Readings::new(plan.undisturbed),
            dispatch: plan.dispatch,
            found,
        };
        new.round()?;
        new.readings.clear();
        Ok(new)
    }

    /// From now on the share of the core with the most packets is run alone.
    fn share(mut self) -> Self {
        self.only_busiest = true;
        self
    }

    /// Whether all workers run at the same time.
    fn is_at_once(&self) -> bool {
        self.basis == Basis::Measured && !self.only_busiest
    }

    /// Nanoseconds that a core spends on each of its own packets.
    fn own_ns(&self) -> f64 {
        self.readings.own_ns()
    }

    fn run(&mut self, queues: Vec<Box<dyn Queue>>) -> Result<Vec<CoreRun>, BenchError> {
        let queues = Dispatched::wrap(queues, self.dispatch);
        let (packets, span, end) = (self.replay.trace().len(), self.replay.span(), self.replay.end());
        let plan = |first| ReplayPlan { script: &self.script, packets, span, end, first };
        let has_plan = !self.script.is_empty();
        if self.is_at_once() {
            let workers = self.workers.iter_mut().map(|worker| &mut **worker as &mut dyn AnyWorker<N>).collect();
            return replay_workers(workers, queues, has_plan.then_some(&plan(0)), None);
        }
        let mut runs = Vec::new();
        for (core, (worker, queue)) in self.workers.iter_mut().zip(queues).enumerate() {
            if !self.only_busiest || core == self.busiest {
                let plan = plan(core);
                let plan = has_plan.then_some(&plan);
                runs.extend(replay_workers(vec![&mut **worker], vec![queue], plan, None)?);
            }
        }
        Ok(runs)
    }

    /// Offers load to all cores at once.
    fn trial(&mut self, plan: &LossFreePlan, mpps: f64) -> Result<Offered, BenchError> {
        let queues = self.replay.offer(self.workers.len(), plan.load(mpps));
        self.run(queues)?;
        Ok(self.replay.offered().into_iter().fold(Offered::default(), Offered::and))
    }
}

impl<N: Function> Contender for Fleets<N> {
    fn round(&mut self) -> Result<(), BenchError> {
        let received = |workers: &[Box<dyn AnyWorker<N>>]| -> u64 {
            workers.iter().map(|worker| worker.counters().received).sum()
        };
        let before = received(&self.workers);
        let (queues, shown) = Gauged::wrap(self.replay.queues(self.workers.len()));
        let runs = self.run(queues)?;
        let packets = received(&self.workers) - before;
        let elapsed: Vec<Duration> = runs.iter().map(|run| run.elapsed).collect();
        let ran = if self.only_busiest { self.busiest..self.busiest + 1 } else { 0..runs.len() };
        let gauges: Vec<_> = shown[ran].iter().map(Shown::get).collect();
        let together = if self.is_at_once() { runs.len() } else { 1 };
        self.readings.push(Reading::of(packets, &elapsed, &gauges, together));
        Ok(())
    }

    fn counted(&self) -> usize {
        self.readings.len()
    }
}

impl<N: Function> Case for Fleets<N> {
    fn contender(&mut self) -> &mut dyn Contender {
        self
    }

    fn search(&mut self, plan: &LossFreePlan) -> Result<(), BenchError> {
        if self.basis == Basis::Modelled {
            return Ok(());
        }
        let fastest = self.readings.spread(|reading| reading.mpps).max;
        // A tenth more than it ever carried, besides what may be lost.
        let high = fastest * 1.1 / (1.0 - plan.threshold.min(0.9));
        let found = search(plan, high, |mpps| self.trial(plan, mpps))?;
        self.found.get_or_insert_default().push(found);
        Ok(())
    }

    fn row(&self, remote: Remote) -> Row {
        let cores = self.workers.len();
        // All cores read all records, each of which another had last but for one time in so many as there are cores.
        let elsewhere_ns = match self.basis {
            Basis::Measured => 0.0,
            Basis::Modelled => self.script.records.len() as f64 * remote.ns(cores) * (1.0 - 1.0 / cores as f64),
        };
        let longer = elsewhere_ns / self.replay.trace().len().max(1) as f64;
        Row {
            engine: self.engine,
            cores,
            mpps: self.readings.spread(|reading| 1e3 / (1e3 / reading.mpps + longer)),
            ns_per_packet_per_core: self.readings.spread(|reading| reading.own_ns + longer * cores as f64),
            basis: self.basis,
            rounds: self.readings.rounds(),
            loss_free: self.found.as_ref().map(|found| {
                let reason = || {
                    let (cores, have) = (self.workers.len(), cpus().len());
                    format!("{cores} cores can't be offered load on {have}: they don't run at the same time")
                };
                LossFree::of(found).ok_or_else(reason)
            }),
        }
    }

    fn huge_pages(&self) -> HugePages {
        self.replay.huge_pages()
    }
}

#[cfg(test)]
pub(crate) mod tests;
