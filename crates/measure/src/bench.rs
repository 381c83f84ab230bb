//! Throughput under each engine, all cases interleaved in one run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{
    CoreRun, EngineError, EngineKind, Fleet, Options, Placement, Private, Record, any_private_fleet, cpus,
    private_fleet, run_queues, striped_fleet,
};
use nf::{Description, NetworkFunction, Opened, PacketSet, Sharing, Sizing, Step, Verdict};
use packet::{FiveTuple, Headers, Nanos};
use port::{Batch, HugePages, Loops, Port, Queue, Replay, Trace};

use crate::bare::Bare;
use crate::model::CostModel;
use crate::spread::Spread;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// The engines.
    pub engines: Vec<EngineKind>,
    /// How many cores each runs on.
    pub cores: Vec<usize>,
    /// How often each case runs, in turn with the others; the medians are of these.
    pub rounds: usize,
    /// How many packets a case has in each round, over all its cores; at least one pass over the trace.
    pub packets: u64,
    /// How the fleets are built.
    pub options: Options,
    /// Whether the bare loop runs in turn with the cases.
    pub with_bare: bool,
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// As many threads as the row has cores, each on a processor of its own, at the same time.
    Measured,
    /// Each core's share alone, one after the other, the slowest counting.
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
    /// Nanoseconds a packet of a bare loop that checks one header and counts in one table, in the same rounds: what the machine
    /// gave meanwhile. `None` unless asked for.
    pub bare_ns: Option<Spread>,
    /// Bytes that an IPv4 flow takes when the table is full; `None` for a function that keeps no flows.
    pub bytes_per_flow: Option<f64>,
    /// How long the tables took to come up.
    pub startup: Duration,
    /// How much of the traces' memory lay on huge pages.
    pub huge_pages: HugePages,
}

/// How a bench can fail.
pub type BenchError = EngineError;

/// Measures a function over a trace under each engine. `progress` is told how many runs are done, and of how many.
///
/// # Errors
/// When the trace can't be replayed.
pub fn bench<N: NetworkFunction>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    plan: &BenchPlan,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Bench, BenchError> {
    let mut refused = Vec::new();
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for &engine in &plan.engines {
        for &cores in &plan.cores {
            match case(nf, trace, engine, cores, plan)? {
                Ok(case) => cases.push(case),
                Err(reason) => refused.push((engine, cores, reason)),
            }
        }
    }
    // The model's parameters: dispatch alone, a lone core, and one core's share of eight replicas.
    let pass = Arc::new(Pass);
    let mut parts: Vec<Box<dyn Case>> = vec![
        Box::new(Fleets::new(private_fleet(EngineKind::Sequential, pass, 1, &plan.options), trace, plan)?),
        Box::new(Fleets::new(private_fleet(EngineKind::Sequential, Arc::clone(nf), 1, &plan.options), trace, plan)?),
        Box::new(
            Fleets::new(private_fleet(EngineKind::Scr, Arc::clone(nf), REPLICAS, &plan.options), trace, plan)?.share(),
        ),
    ];
    let total = ((cases.len() + parts.len()) * plan.rounds) as u64;
    let mut done = 0;
    let mut bare = plan.with_bare.then(|| Bare::new(trace));
    let mut bare_ns = Vec::new();
    for _ in 0..plan.rounds {
        bare_ns.extend(bare.as_mut().map(|bare| bare.round(plan.packets)));
        for case in cases.iter_mut().chain(&mut parts) {
            progress(done, total);
            case.round()?;
            done += 1;
        }
    }
    progress(total, total);
    let own: Vec<f64> = parts.iter().map(|part| median(part.readings())).collect();
    let (d, t, of_eight) = (own[0], own[1], own[2]);
    let model = CostModel { t, d, c1: t - d, c2: (of_eight - t) / (REPLICAS as f64 - 1.0) };
    let (bytes_per_flow, startup) = tables(&**nf, &plan.options);
    let huge_pages = cases.iter().chain(&parts).map(|case| case.huge_pages()).fold(HugePages::default(), |sum, one| {
        HugePages { bytes: sum.bytes + one.bytes, huge_bytes: sum.huge_bytes + one.huge_bytes }
    });
    let rows = cases.iter().map(|case| case.row()).collect();
    Ok(Bench { rows, refused, model, bare_ns: Spread::of(&bare_ns), bytes_per_flow, startup, huge_pages })
}

/// How many replicas the history's cost is measured with.
const REPLICAS: usize = 8;

fn median(readings: &[Reading]) -> f64 {
    let own: Vec<f64> = readings.iter().map(|reading| reading.own_ns).collect();
    Spread::of(&own).map_or(0.0, |spread| spread.median)
}

fn case<N: NetworkFunction>(
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
    Ok(Ok(match (engine, options.chooses_index()) {
        (EngineKind::Sequential | EngineKind::Rss | EngineKind::Scr, false) => {
            Box::new(Fleets::new(private_fleet(engine, nf, cores, options), trace, plan)?)
        }
        (EngineKind::Sequential | EngineKind::Rss | EngineKind::Scr, true) => {
            Box::new(Fleets::new(any_private_fleet(engine, nf, cores, options), trace, plan)?)
        }
        (EngineKind::Shared, _) if cores > cpus().len() => {
            let have = cpus().len();
            return Ok(Err(format!(
                "shared on {cores} cores can't be measured on {have}, and its contention can't be modelled from shares"
            )));
        }
        (EngineKind::Shared, _) => Box::new(Fleets::new(striped_fleet(nf, cores, options), trace, plan)?),
    }))
}

/// The memory of a full table's flow, and how long a table takes to come up.
fn tables<N: NetworkFunction>(nf: &N, options: &Options) -> (Option<f64>, Duration) {
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

/// One round's figures.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Millions of packets a second, all cores together.
    mpps: f64,
    /// Nanoseconds that a core spends on each of its own packets.
    own_ns: f64,
}

/// A fleet with its trace, ready for rounds.
trait Case {
    fn round(&mut self) -> Result<(), BenchError>;
    fn readings(&self) -> &[Reading];
    fn row(&self) -> Row;
    fn huge_pages(&self) -> HugePages;
}

struct Fleets<N: NetworkFunction, P> {
    fleet: Fleet<N, P>,
    replay: Replay,
    records: Vec<Record<N::Meta>>,
    span: Nanos,
    options: Options,
    basis: Basis,
    /// Run core 0's share alone.
    only_first: bool,
    readings: Vec<Reading>,
}

impl<N: NetworkFunction, P: Placement<N>> Fleets<N, P> {
    /// Places the trace in memory, steered for the fleet, and runs it once to warm tables and caches.
    fn new(fleet: Fleet<N, P>, trace: &Arc<Trace>, plan: &BenchPlan) -> Result<Self, BenchError> {
        let cores = fleet.workers.len();
        let mut steered = Vec::with_capacity(trace.len());
        let mut records = Vec::new();
        let mut batch = Batch::default();
        for index in 0..trace.len() {
            batch.clear();
            batch.push(trace.packets()[index], trace.bytes(index));
            fleet.dispatcher.assign(&batch, &mut steered, &mut records);
        }
        if fleet.kind != EngineKind::Scr || cores == 1 {
            records = Vec::new();
        }
        let loops = plan.packets.div_ceil(trace.len().max(1) as u64).max(1);
        let replay = Replay::new(Arc::clone(trace)).looped(Loops::Times(loops)).steered(steered).continued();
        let basis = if cores <= cpus().len() { Basis::Measured } else { Basis::Modelled };
        let span = replay.span();
        let options = plan.options;
        let mut new = Self { fleet, replay, records, span, options, basis, only_first: false, readings: Vec::new() };
        new.round()?;
        new.readings.clear();
        Ok(new)
    }

    /// From now on core 0's share alone is run.
    fn share(mut self) -> Self {
        self.only_first = true;
        self
    }

    fn run(&mut self, queues: Vec<Box<dyn Queue>>) -> Result<Vec<CoreRun>, BenchError> {
        let log = (!self.records.is_empty()).then_some((self.records.as_slice(), self.span));
        if self.basis == Basis::Measured {
            return run_queues(&mut self.fleet.workers, queues, log, &self.options);
        }
        let mut runs = Vec::new();
        for (worker, queue) in self.fleet.workers.iter_mut().zip(queues) {
            if !self.only_first || runs.is_empty() {
                runs.extend(run_queues(std::slice::from_mut(worker), vec![queue], log, &self.options)?);
            }
        }
        Ok(runs)
    }
}

impl<N: NetworkFunction, P: Placement<N>> Case for Fleets<N, P> {
    fn round(&mut self) -> Result<(), BenchError> {
        let received =
            |fleet: &Fleet<N, P>| fleet.workers.iter().map(|worker| worker.counters().received).collect::<Vec<_>>();
        let before = received(&self.fleet);
        let queues = self.replay.open(self.fleet.workers.len())?;
        let runs = self.run(queues)?;
        let packets: Vec<u64> =
            received(&self.fleet).iter().zip(before).map(|(after, before)| after - before).collect();
        let slowest = runs.iter().map(|run| run.elapsed).max().unwrap_or_default().as_secs_f64();
        let busy: f64 = runs.iter().map(|run| run.elapsed.as_secs_f64()).sum();
        let total: u64 = packets.iter().sum();
        self.readings.push(Reading { mpps: total as f64 / slowest / 1e6, own_ns: busy * 1e9 / total as f64 });
        Ok(())
    }

    fn readings(&self) -> &[Reading] {
        &self.readings
    }

    fn row(&self) -> Row {
        let spread = |figure: fn(&Reading) -> f64| {
            let figures: Vec<f64> = self.readings.iter().map(figure).collect();
            Spread::of(&figures).expect("a bench has rounds")
        };
        Row {
            engine: self.fleet.kind,
            cores: self.fleet.workers.len(),
            mpps: spread(|reading| reading.mpps),
            ns_per_packet_per_core: spread(|reading| reading.own_ns),
            basis: self.basis,
        }
    }

    fn huge_pages(&self) -> HugePages {
        self.replay.huge_pages()
    }
}

/// The function that does nothing: what is left is dispatch.
struct Pass;

/// No packet contributes anything.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Never {}

impl nf::Meta for Never {
    type Key = FiveTuple;
    const RECORD_BYTES: usize = 0;
    fn key(&self) -> FiveTuple {
        match *self {}
    }
    fn write(&self, _: &mut [u8]) {
        match *self {}
    }
    fn read(_: &[u8]) -> Option<Self> {
        None
    }
}

impl NetworkFunction for Pass {
    type Meta = Never;
    type Flow = ();
    type Shared<M: memory::Memory> = ();

    const DESCRIPTION: Description = Description {
        name: "pass",
        summary: "forwards every packet",
        state: "none",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::None
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: memory::Memory>(&self, _: &M) {}

    fn meta(&self, _: &Headers) -> Option<Never> {
        None
    }

    fn open<M: memory::Memory>(&self, _: &mut nf::Context<'_, Self, M>, meta: &Never) -> Step<Opened<()>, M> {
        match *meta {}
    }

    fn packet<M: memory::Memory>(
        &self,
        _: &mut nf::Context<'_, Self, M>,
        (): &mut (),
        meta: &Never,
    ) -> Step<Verdict, M> {
        match *meta {}
    }
}
