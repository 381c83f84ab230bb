//! Measures throughput under each engine. All cases of a run are interleaved.

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
use crate::delay::{Delay, DelayPlan, Delays, timed};
use crate::forward_all::ForwardAll;
use crate::gauge::{Gauged, Shown};
use crate::loss_free::{Found, LossFree, LossFreePlan, search};
use crate::model::{CostModel, Prediction, replay_percent};
use crate::piped::PipelineCase;
use crate::remote::Remote;
use crate::replay::{ReplayPlan, replay_workers};
use crate::rounds::{Contender, Reading, Readings, Rounds, Rules, take_turns};
use crate::sequencer::{Sequencers, Sequencing};
use crate::spread::Spread;
use crate::steered::Steered;
use crate::work::{Dispatched, Work};

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// The engines.
    pub engines: Vec<EngineKind>,
    /// How many cores each runs on.
    pub cores: Vec<usize>,
    /// Number of times that each case runs, alternating with the others; figures are medians over these rounds.
    pub rounds: usize,
    /// Count only rounds that no other program disturbed, as the gauge detects. Up to 20 times as many rounds run then.
    pub undisturbed: bool,
    /// Packets of a case in each round, over all its cores; at least one pass over the trace.
    pub packets: u64,
    /// Options of the engines.
    pub options: Options,
    /// Also run the bare loop in each round.
    pub with_bare: bool,
    /// Extra work for each packet that a core receives.
    pub dispatch: Work,
    /// How to search for the loss-free rate of each case, once a round; `None` for no search.
    pub loss_free: Option<LossFreePlan>,
    /// How to measure times from arrival to transmit, once a round; `None` for none.
    pub delay: Option<DelayPlan>,
    /// Model up to this many cores; 0 for none beyond `cores`.
    pub model_to: usize,
    /// Extra nanoseconds for a cache line of the history that another core used last, on more cores than this machine has; `None` for the
    /// value measured between two cores here.
    pub far_line_ns: Option<f64>,
}

impl BenchPlan {
    const fn rules(&self) -> Rules {
        Rules { rounds: self.rounds, undisturbed: self.undisturbed }
    }
}

/// True if a figure is measured or modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// One thread for each core of the row, all at the same time, each on its own processor.
    Measured,
    /// Each core's share alone, one after the other; the slowest counts. Extra time for history records from other cores' caches
    /// ([`Remote`]) is added.
    Modelled,
}

/// Throughput of one engine on some cores.
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
    /// The rounds that ran, and how many of them count.
    pub rounds: Rounds,
    /// The loss-free rate, if it was requested, or why it can't be measured.
    pub loss_free: Option<Result<LossFree, String>>,
    /// Times from arrival to transmit at each load, if they were requested, or why they can't be measured.
    pub delays: Option<Result<Vec<Delay>, String>>,
}

/// Result of [`bench`].
#[derive(Clone, Debug)]
pub struct Bench {
    /// Rows, ordered by engine, then by number of cores.
    pub rows: Vec<Row>,
    /// Engines that don't support the function on this number of cores, with the reason.
    pub refused: Vec<(EngineKind, usize, String)>,
    /// The cost model's parameters on this trace, measured in the same run.
    pub model: CostModel,
    /// Modelled rates of `scr` on each number of cores up to [`BenchPlan::model_to`], with the measured rate where there is one.
    pub predictions: Vec<Prediction>,
    /// The same for engines that shard, on the numbers of cores that were measured.
    pub sharded: Vec<Prediction>,
    /// Work added to each received packet; all figures include it.
    pub dispatch: Work,
    /// Nanoseconds per packet of the bare loop in the same rounds; `None` unless requested.
    pub bare_ns: Option<Spread>,
    /// Rate of a software sequencer; `None` unless `scr` is measured.
    pub sequencing: Option<Sequencing>,
    /// Bytes for each IPv4 flow of a full table; `None` for a function without flows.
    pub bytes_per_flow: Option<f64>,
    /// Time to build the tables.
    pub startup: Duration,
    /// How much of the traces' memory was on huge pages.
    pub huge_pages: HugePages,
    /// Measured cost of replaying a record, in percent of a packet's cost, for each number of cores; `hybrid` used it.
    pub replays: Vec<(usize, u32)>,
}

/// A row with more than this multiple of the rate of its cores one by one is wrong: one of the two measurements was disturbed.
const TIMES_LINEAR_MAX: f64 = 1.15;

impl Bench {
    /// If the row is implausibly fast: its rate as a multiple of the rate of as many single cores. The rate of one core is the best
    /// measured rate on one core, or that of the cost model. `None` for a plausible row.
    #[must_use]
    pub fn implausible(&self, row: &Row) -> Option<f64> {
        let alone = self.rows.iter().filter(|row| row.cores == 1).map(|row| row.mpps.median);
        let one = alone.fold(1e3 / self.model.t, f64::max);
        let times = row.mpps.median / (one * row.cores as f64);
        (row.cores > 1 && times > TIMES_LINEAR_MAX).then_some(times)
    }
}

/// Why a bench failed.
pub type BenchError = EngineError;

/// Measures a function over a trace under each engine. Calls `progress` with the number of runs done and the total.
///
/// # Errors
/// The trace can't be replayed.
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
    // The model's parameters: dispatch only, one core, and one core's share of two and of eight replicas.
    let pass = Arc::new(ForwardAll);
    let mut dispatch = EngineCase::new(private_instance(EngineKind::Sequential, pass, 1, &plan.options), trace, plan)?;
    let mut alone =
        EngineCase::new(private_instance(EngineKind::Sequential, Arc::clone(nf), 1, &plan.options), trace, plan)?;
    let share_of = |replicas| {
        let instance = private_instance(EngineKind::Scr, Arc::clone(nf), replicas, &plan.options);
        Ok::<_, BenchError>(EngineCase::new(instance, trace, plan)?.share())
    };
    let (mut of_two, mut of_eight) = (share_of(2)?, share_of(REPLICAS)?);
    let mut bare = plan.with_bare.then(|| Bare::new(trace, plan));
    let replicates =
        plan.engines.contains(&EngineKind::Scr) && EngineKind::Scr.accepts(&nf.description(), REPLICAS).is_ok();
    let mut sequencers = replicates.then(|| Sequencers::new(nf, trace, REPLICAS, plan)).transpose()?;
    let wanted = usize::from(plan.loss_free.is_some()) + usize::from(plan.delay.is_some());
    let searches = wanted * cases.len();
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
    if let Some(delay) = &plan.delay {
        for _ in 0..plan.rounds {
            for case in &mut cases {
                progress(done, total);
                case.delay(delay)?;
                done += 1;
            }
        }
    }
    let [t, with_one, with_records] = [&alone, &of_two, &of_eight].map(EngineCase::own_ns);
    let model = CostModel::of(dispatch.own_ns(), t, with_one, with_records, REPLICAS as f64 - 1.0, remote);
    let (bytes_per_flow, startup) = tables(&**nf, &plan.options);
    let parts = [dispatch.huge_pages(), alone.huge_pages(), of_two.huge_pages(), of_eight.huge_pages()];
    let huge_pages = cases.iter().map(|case| case.huge_pages()).chain(parts).fold(HugePages::default(), |sum, one| {
        HugePages { bytes: sum.bytes + one.bytes, huge_bytes: sum.huge_bytes + one.huge_bytes }
    });
    let mut rows: Vec<Row> = cases.iter().map(|case| case.row(remote)).collect();
    drop((cases, dispatch, alone, of_two, of_eight));
    // One after the other, because the tables of that many cores don't fit into memory at once.
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

/// Sorts rows by engine, in the order of the plan, then by cores. A separate function, so that the sort is not compiled once for each
/// function measured.
fn in_order(rows: &mut [Row], plan: &BenchPlan) {
    rows.sort_by_key(|row| (plan.engines.iter().position(|engine| *engine == row.engine), row.cores));
}

/// Cost of sharing state under `shared`, measured on two cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contention {
    /// Nanoseconds for a packet on a core that has the state to itself.
    pub alone_ns: f64,
    /// Extra nanoseconds if another core used the state last.
    pub transfer_ns: f64,
    /// Nanoseconds for a packet to get the state of the heaviest packet set, or the state of all, while other cores wait.
    pub turn_ns: f64,
}

impl Contention {
    /// Measures contention on a trace; `turns` has the packets that wait for each other. `None` on a machine with one core.
    ///
    /// # Errors
    /// A trace can't be replayed.
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
        let of = |trace| EngineCase::new(shared_instance(Arc::clone(nf), 2, &plan.options), trace, plan);
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
        // On two cores, the other core used the state last every second time.
        let transfer_ns = ((together.own_ns() - alone_ns) * 2.0).max(0.0);
        Ok(Some(Self { alone_ns, transfer_ns, turn_ns }))
    }
}

/// Numbers of cores to model beyond the requested ones, where the machine has too few: all up to 4, even ones up to 8, then every fourth
/// and the last.
fn beyond(plan: &BenchPlan, machine: usize) -> Vec<usize> {
    let asked = plan.cores.iter().copied().max().unwrap_or(0).max(machine);
    let wanted = |cores: &usize| match *cores {
        ..=4 => true,
        5..=8 => cores.is_multiple_of(2) || *cores == plan.model_to,
        _ => cores.is_multiple_of(4) || *cores == plan.model_to,
    };
    (asked + 1..=plan.model_to).filter(wanted).collect()
}

/// Number of replicas for measuring the cost of the history.
const REPLICAS: usize = 8;
/// Rounds for measuring the replay cost that `hybrid` needs, before the rounds that count.
const LOOKS: usize = 5;

/// Returns the plan with the measured replay cost, for `hybrid`: it decides when replication pays.
fn informed<'a, N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    engine: EngineKind,
    cores: usize,
    plan: &'a BenchPlan,
    remote: Remote,
    replays: &mut Vec<(usize, u32)>,
) -> Result<Cow<'a, BenchPlan>, BenchError> {
    let replicates = EngineKind::Scr.accepts(&nf.description(), cores).is_ok();
    if engine != EngineKind::Hybrid || cores < 2 || !replicates || engine.accepts(&nf.description(), cores).is_err() {
        return Ok(Cow::Borrowed(plan));
    }
    let with_percent =
        |replay_percent| BenchPlan { options: Options { replay_percent, ..plan.options }, ..plan.clone() };
    // At 100 %, nothing is replicated.
    let unless = with_percent(100);
    let sharded = sharded_instance(engine, Arc::clone(nf), cores, &unless.options);
    let mut sharded = sharded_case(sharded, trace, &unless, false)?.share();
    let replica = private_instance(EngineKind::Scr, Arc::clone(nf), cores, &plan.options);
    let mut replica = EngineCase::new(replica, trace, plan)?.share();
    take_turns(&mut [&mut sharded, &mut replica], Rules { rounds: LOOKS, ..plan.rules() }, |_| ())?;
    // Extra time of a packet on a replica, including the records of other cores, compared with a shard. Use the fastest rounds, because
    // there are few and disturbances only make them slower.
    let [sharded, replica] = [sharded, replica].map(|one| one.readings.spread(|reading| reading.own_ns).min);
    let replay_percent = replay_percent(sharded, (replica - sharded) / (cores - 1) as f64 + remote.ns(cores));
    replays.push((cores, replay_percent));
    Ok(Cow::Owned(with_percent(replay_percent)))
}

fn case<N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    engine: EngineKind,
    cores: usize,
    plan: &BenchPlan,
) -> Result<Result<Box<dyn Case>, String>, BenchError> {
    if let Err(reason) = engine.accepts(&nf.description(), cores).and_then(|()| plan.options.tables.accepts(&**nf)) {
        return Ok(Err(reason));
    }
    let nf = Arc::clone(nf);
    if engine == EngineKind::Pipeline && cores > 1 {
        let have = cpus().len();
        if cores > have {
            return Ok(Err(format!(
                "{engine} on {cores} cores can't be measured on {have}, as its stages work at the same time; `millrace advise` models it"
            )));
        }
        return Ok(Ok(Box::new(PipelineCase::new(nf, cores, trace, plan)?)));
    }
    let options = &plan.options;
    let contends =
        engine == EngineKind::Shared || engine == EngineKind::Transactional && nf.description().sharing.is_any();
    if contends && cores > cpus().len() {
        let have = cpus().len();
        return Ok(Err(format!(
            "{engine} on {cores} cores can't be measured on {have}, and its contention can't be modelled"
        )));
    }
    Ok(Ok(match engine {
        EngineKind::Transactional if contends => {
            Box::new(EngineCase::new(transacted_instance(nf, cores, options), trace, plan)?)
        }
        EngineKind::Sequential
        | EngineKind::Rss
        | EngineKind::Transactional
        | EngineKind::Scr
        | EngineKind::Pipeline => Box::new(EngineCase::new(private_instance(engine, nf, cores, options), trace, plan)?),
        EngineKind::RssPlusPlus | EngineKind::Hybrid => {
            Box::new(sharded_case(sharded_instance(engine, nf, cores, options), trace, plan, cores <= cpus().len())?)
        }
        EngineKind::Shared => Box::new(EngineCase::new(shared_instance(nf, cores, options), trace, plan)?),
    }))
}

/// An engine whose state moves, after its steering has settled. Unless its cores run `together`, nothing moves any more: a core would
/// wait for ever.
fn sharded_case<N: Function>(
    mut instance: ShardedInstance<N>,
    trace: &Arc<Trace>,
    plan: &BenchPlan,
    together: bool,
) -> Result<EngineCase<N>, BenchError> {
    let steered = Steered::settled(&mut instance.dispatcher, trace, together);
    instance.deal_shards();
    EngineCase::steered(instance, trace, plan, steered)
}

/// Bytes for each flow of a full table, and the time to build a table.
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

/// An engine with its trace, ready for rounds.
pub(crate) trait Case: Contender {
    fn contender(&mut self) -> &mut dyn Contender;
    /// Searches once for the loss-free rate, starting from the rates of the rounds; does nothing for modelled cases.
    fn search(&mut self, plan: &LossFreePlan) -> Result<(), BenchError>;
    /// Measures times from arrival to transmit once at each load; does nothing for modelled cases.
    fn delay(&mut self, plan: &DelayPlan) -> Result<(), BenchError>;
    /// Returns the row. A modelled row includes the extra time for records from other cores' caches.
    fn row(&self, remote: Remote) -> Row;
    fn huge_pages(&self) -> HugePages;
}

/// An engine with its trace. It is compiled once for each function, whatever the placement; only the workers' loop is called once a
/// batch.
struct EngineCase<N: Function> {
    engine: EngineKind,
    workers: Vec<Box<dyn AnyWorker<N>>>,
    replay: Replay,
    history: TraceHistory<N::Meta>,
    basis: Basis,
    /// The core with the most packets.
    busiest: usize,
    /// Run only the busiest core's share.
    only_busiest: bool,
    readings: Readings,
    dispatch: Work,
    /// Results of the searches for the loss-free rate, if any.
    found: Option<Vec<Found>>,
    /// Times at each load, if they are measured.
    delays: Option<Vec<Delays>>,
}

impl<N: Function> EngineCase<N> {
    /// Places the trace in memory, steers it, and runs it once to warm tables and caches.
    fn new<P: Placement<N> + 'static>(
        mut instance: EngineInstance<N, P>,
        trace: &Arc<Trace>,
        plan: &BenchPlan,
    ) -> Result<Self, BenchError> {
        let steered = Steered::pass(&mut instance.dispatcher, trace);
        Self::steered(instance, trace, plan, steered)
    }

    fn steered<P: Placement<N> + 'static>(
        instance: EngineInstance<N, P>,
        trace: &Arc<Trace>,
        plan: &BenchPlan,
        steered: Steered<N::Meta>,
    ) -> Result<Self, BenchError> {
        let workers = instance.workers.into_iter().map(|worker| Box::new(worker) as Box<dyn AnyWorker<N>>).collect();
        Self::of(instance.kind, workers, trace, plan, steered)
    }

    fn of(
        engine: EngineKind,
        workers: Vec<Box<dyn AnyWorker<N>>>,
        trace: &Arc<Trace>,
        plan: &BenchPlan,
        steered: Steered<N::Meta>,
    ) -> Result<Self, BenchError> {
        let Steered { cores: steered, buckets, history } = steered;
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
            history,
            basis,
            busiest,
            only_busiest: false,
            readings: Readings::new(plan.undisturbed),
            dispatch: plan.dispatch,
            found,
            delays: plan.delay.as_ref().map(|_| Vec::new()),
        };
        new.round()?;
        new.readings.clear();
        Ok(new)
    }

    /// Switches to running only the share of the core with the most packets.
    fn share(mut self) -> Self {
        self.only_busiest = true;
        self
    }

    /// True if all workers run at the same time.
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
        let plan = |first| ReplayPlan { history: &self.history, packets, span, end, first };
        let has_plan = !self.history.is_empty();
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

impl<N: Function> Contender for EngineCase<N> {
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

impl<N: Function> Case for EngineCase<N> {
    fn contender(&mut self) -> &mut dyn Contender {
        self
    }

    fn search(&mut self, plan: &LossFreePlan) -> Result<(), BenchError> {
        if self.basis == Basis::Modelled {
            return Ok(());
        }
        let fastest = self.readings.spread(|reading| reading.mpps).max;
        // 10 % above the highest rate so far, plus the loss that is allowed.
        let high = fastest * 1.1 / (1.0 - plan.threshold.min(0.9));
        let found = search(plan, high, |mpps| self.trial(plan, mpps))?;
        self.found.get_or_insert_default().push(found);
        Ok(())
    }

    fn delay(&mut self, plan: &DelayPlan) -> Result<(), BenchError> {
        if self.basis == Basis::Modelled {
            return Ok(());
        }
        let throughput = self.readings.spread(|reading| reading.mpps).median;
        let mut all = self.delays.take().unwrap_or_default();
        if all.is_empty() {
            all = plan.loads.iter().map(|load| Delays::new(*load)).collect();
        }
        for delays in &mut all {
            delays.mpps = throughput * delays.load;
            let queues = self.replay.offer(self.workers.len(), plan.load(delays.mpps));
            let Some(arrivals) = self.replay.arrivals() else { continue };
            let (queues, times) = timed(queues, &arrivals);
            self.run(queues)?;
            delays.add(&times);
            let offered = self.replay.offered().into_iter().fold(Offered::default(), Offered::and);
            delays.offered += offered.offered;
            delays.lost += offered.lost;
        }
        self.delays = Some(all);
        Ok(())
    }

    fn row(&self, remote: Remote) -> Row {
        let cores = self.workers.len();
        // All cores read all records; another core used each last in k - 1 of k cases.
        let elsewhere_ns = match self.basis {
            Basis::Measured => 0.0,
            Basis::Modelled => self.history.records.len() as f64 * remote.ns(cores) * (1.0 - 1.0 / cores as f64),
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
                    format!("no loss-free rate for {cores} cores on {have}: they don't run at the same time")
                };
                LossFree::of(found).ok_or_else(reason)
            }),
            delays: self.delays.as_ref().map(|delays| match delays.is_empty() {
                false => Ok(delays.iter().map(Delays::result).collect()),
                true => Err(format!(
                    "no latency for {} cores on {}: they don't run at the same time",
                    self.workers.len(),
                    cpus().len()
                )),
            }),
        }
    }

    fn huge_pages(&self) -> HugePages {
        self.replay.huge_pages()
    }
}

#[cfg(test)]
pub(crate) mod tests;
