//! Profiles a function's transactions: which lines of source conflict, for which cause, and how even the load is.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use engine::{Dispatcher, EngineInstance, EngineKind, Inspect, Options, Placement, Transactions, cpus};
use engine::{private_instance, transacted_instance};
use memory::transactional::{Cause, Collision, Operation};
use nf::{Function, Meta};
use port::{DESCRIPTORS, Depth, Load, Loops, Offered, Renumber, Replay, Trace};

use crate::bench::BenchError;
use crate::replay::replay_queues;
use crate::spread::Spread;
use crate::steered::Steered;

/// What to profile, and how.
#[derive(Clone, Debug)]
pub struct ProfilePlan {
    /// Number of cores, at most as many as the machine has.
    pub cores: usize,
    /// Number of rounds with recording; as many without alternate with them.
    pub rounds: usize,
    /// Packets of a round, over all cores; at least one pass over the trace.
    pub packets: u64,
    /// Give hosts other addresses in each pass, so that flows end and new ones begin.
    pub churn: bool,
    /// Options of the engine.
    pub options: Options,
}

impl ProfilePlan {
    /// Rounds of the trace as this dispatcher steers it. Each round continues where the one before ended.
    pub(crate) fn replay<N: Function>(&self, dispatcher: &mut Dispatcher<N>, trace: &Arc<Trace>) -> Replay {
        let loops = self.packets.div_ceil(trace.len().max(1) as u64).max(1);
        let steered = Steered::pass(dispatcher, trace);
        let replay = Replay::new(Arc::clone(trace)).looped(Loops::Times(loops));
        let replay = replay.steered(steered.cores).bucketed(steered.buckets).continued();
        if self.churn { replay.renumbered(Renumber::default()) } else { replay }
    }

    /// Refuses functions and numbers of cores that can't be profiled.
    pub(crate) fn accepts<N: Function>(&self, nf: &N) -> Result<(), BenchError> {
        let accepted = EngineKind::Transactional.accepts(&nf.description(), self.cores);
        accepted.and_then(|()| self.options.tables.accepts(nf)).map_err(BenchError::Refused)?;
        let have = cpus().len();
        if self.cores > have {
            let cores = self.cores;
            return Err(BenchError::Refused(format!(
                "a profile on {cores} cores needs as many processors, because conflicts can't be modelled; there are {have}"
            )));
        }
        Ok(())
    }
}

/// Result of a profile.
#[derive(Clone, Debug)]
pub struct Profile {
    /// True if packet sets share state. Otherwise there are no transactions.
    pub shares: bool,
    /// Rate without recording, in millions of packets a second.
    pub mpps: Spread,
    /// Rate with recording. All other figures are from these rounds.
    pub mpps_recorded: Spread,
    /// Counters of transactions, over all rounds with recording.
    pub transactions: Transactions,
    /// What each core did, over all rounds with recording.
    pub cores: Vec<CoreLoad>,
    /// Packets that were forwarded or replied to, over all rounds with recording.
    pub passed: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Number of packet sets.
    pub packet_sets: usize,
    /// The busiest packet sets with their packets in one pass, the busiest first.
    pub busiest: Vec<(String, u64)>,
    /// Packets in one pass.
    pub packets: usize,
    /// Queue lengths under load, measured at the end.
    pub loaded: Loaded,
}

/// Queue lengths when packets arrive at a given rate, whether or not a core is ready.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Offered rate in millions of packets a second: [`LOAD`] of the throughput.
    pub mpps: f64,
    /// Descriptors of each ring.
    pub descriptors: usize,
    /// For each core: its packets, and how many waited.
    pub queues: Vec<(Offered, Depth)>,
}

/// Share of the throughput that is offered to measure queue lengths.
pub const LOAD: f64 = 0.9;
/// Duration of that load before it counts.
const WARM_UP: Duration = Duration::from_millis(20);
/// Duration of that load while it counts.
const OFFERED: Duration = Duration::from_millis(200);

/// Work of one core.
#[derive(Clone, Debug, Default)]
pub struct CoreLoad {
    /// Packets.
    pub packets: u64,
    /// Time from the common start to its last packet, summed over rounds.
    pub busy: Duration,
    /// Transactions that committed.
    pub committed: u64,
    /// Attempts that failed.
    pub aborted: u64,
}

/// A line of the function's source, with the attempts that failed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineAborts {
    /// File and line; "commit" for conflicts found at commit that can't be attributed to a line.
    pub line: String,
    /// The operation on that line.
    pub operation: Option<Operation>,
    /// How many attempts failed.
    pub aborts: u64,
}

/// A cause, with the attempts that failed because of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CauseAborts {
    /// The cause.
    pub cause: Cause,
    /// How many attempts failed of it.
    pub aborts: u64,
    /// The pair of lines with most of these failures.
    pub pair: [Option<String>; 2],
    /// The operations on these lines.
    pub operations: [Option<Operation>; 2],
}

impl Profile {
    /// Failed attempts by source line, most first.
    #[must_use]
    pub fn lines(&self) -> Vec<LineAborts> {
        let mut lines: HashMap<(String, Option<Operation>), u64> = HashMap::new();
        for (collision, count) in &self.transactions.collisions {
            let (line, operation) = place(collision.mine);
            *lines.entry((line.unwrap_or_else(|| "commit".to_owned()), operation)).or_default() += count;
        }
        let lines = lines.into_iter().map(|((line, operation), aborts)| LineAborts { line, operation, aborts });
        let mut lines: Vec<_> = lines.collect();
        lines.sort_by(|one, other| other.aborts.cmp(&one.aborts).then_with(|| one.line.cmp(&other.line)));
        lines
    }

    /// Failed attempts by cause, most first.
    #[must_use]
    pub fn causes(&self) -> Vec<CauseAborts> {
        let mut causes: HashMap<Cause, (u64, u64, Option<Collision>)> = HashMap::new();
        for (collision, &count) in &self.transactions.collisions {
            let (total, most, pair) = causes.entry(collision.cause()).or_default();
            *total += count;
            if count > *most {
                (*most, *pair) = (count, Some(*collision));
            }
        }
        let causes = causes.into_iter().map(|(cause, (aborts, _, pair))| {
            let [mine, other] = pair.map_or([None; 2], |pair| [pair.mine, pair.other]).map(place);
            CauseAborts { cause, aborts, pair: [mine.0, other.0], operations: [mine.1, other.1] }
        });
        let mut causes: Vec<_> = causes.collect();
        causes.sort_by_key(|cause| (std::cmp::Reverse(cause.aborts), cause.cause));
        causes
    }

    /// Packets of the busiest core, divided by the mean.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        let total: u64 = self.cores.iter().map(|core| core.packets).sum();
        let most = self.cores.iter().map(|core| core.packets).max().unwrap_or(0);
        most as f64 * self.cores.len() as f64 / total.max(1) as f64
    }
}

fn place(site: Option<memory::transactional::Site>) -> (Option<String>, Option<Operation>) {
    let Some(site) = site else { return (None, None) };
    (Some(format!("{}:{}", site.location.file(), site.location.line())), Some(site.operation))
}

/// Number of busiest packet sets in the result.
const BUSIEST: usize = 5;

/// Profiles a function over a trace under `transactional`. Calls `progress` with the number of runs done and the total.
///
/// # Errors
/// The engine doesn't support the function, there are too few processors, or the trace can't be replayed.
pub fn profile<N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    plan: &ProfilePlan,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Profile, BenchError> {
    plan.accepts(&**nf)?;
    let (packet_sets, busiest) = busiest(nf, trace, &plan.options);
    let found = if nf.description().sharing.is_any() {
        let instance = |profile| transacted_instance(Arc::clone(nf), plan.cores, &Options { profile, ..plan.options });
        rounds([instance(false), instance(true)], trace, plan, progress)?
    } else {
        let instance = || private_instance(EngineKind::Transactional, Arc::clone(nf), plan.cores, &plan.options);
        rounds([instance(), instance()], trace, plan, progress)?
    };
    let Found { mpps, transactions, cores, passed, dropped, loaded } = found;
    let [mpps, mpps_recorded] = mpps.map(|figures| Spread::of(&figures).expect("a profile has rounds"));
    let shares = nf.description().sharing.is_any();
    let packets = trace.len();
    Ok(Profile {
        shares,
        mpps,
        mpps_recorded,
        transactions,
        cores,
        passed,
        dropped,
        packet_sets,
        busiest,
        packets,
        loaded,
    })
}

struct Found {
    mpps: [Vec<f64>; 2],
    transactions: Transactions,
    cores: Vec<CoreLoad>,
    passed: u64,
    dropped: u64,
    loaded: Loaded,
}

/// Runs two engines alternately over the trace. Counters of transactions and cores are from the second.
fn rounds<N: Function, P: Placement<N>>(
    setups: [EngineInstance<N, P>; 2],
    trace: &Arc<Trace>,
    plan: &ProfilePlan,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Found, BenchError>
where
    EngineInstance<N, P>: Inspect<N>,
{
    let mut found = Found {
        mpps: [Vec::new(), Vec::new()],
        transactions: Transactions::default(),
        cores: vec![CoreLoad::default(); plan.cores],
        passed: 0,
        dropped: 0,
        loaded: Loaded::default(),
    };
    let mut runs = setups.map(|mut instance| {
        let replay = plan.replay(&mut instance.dispatcher, trace);
        (instance, replay)
    });
    let total = 2 * plan.rounds as u64 + 1;
    for round in 0..plan.rounds as u64 {
        for (which, (instance, replay)) in runs.iter_mut().enumerate() {
            progress(2 * round + which as u64, total);
            let received = |instance: &EngineInstance<N, P>| -> Vec<u64> {
                instance.workers.iter().map(|worker| worker.counters().received).collect()
            };
            let before = received(instance);
            let queues = replay.queues(plan.cores);
            let cores = replay_queues(&mut instance.workers, queues, None)?;
            let packets: Vec<u64> =
                received(instance).iter().zip(before).map(|(after, before)| after - before).collect();
            let slowest = cores.iter().map(|core| core.elapsed).max().unwrap_or_default().as_secs_f64();
            found.mpps[which].push(packets.iter().sum::<u64>() as f64 / slowest.max(1e-9) / 1e6);
            if which == 1 {
                for (load, (core, packets)) in found.cores.iter_mut().zip(cores.iter().zip(packets)) {
                    load.busy += core.elapsed;
                    load.packets += packets;
                }
            }
        }
    }
    progress(total - 1, total);
    let [(plain, replay), (instance, _)] = &mut runs;
    found.loaded = loaded(plain, replay, plan, &found.mpps[0])?;
    progress(total, total);
    let counters = instance.counters();
    (found.passed, found.dropped) = (counters.forwarded + counters.replied, counters.dropped_total());
    if let Some(of_cores) = instance.transactions_by_core() {
        for (load, of_core) in found.cores.iter_mut().zip(of_cores) {
            (load.committed, load.aborted) = (of_core.committed, of_core.aborted);
            found.transactions.add(&of_core);
        }
    }
    Ok(found)
}

/// Offers [`LOAD`] of the median of `mpps` to an engine.
fn loaded<N: Function, P: Placement<N>>(
    instance: &mut EngineInstance<N, P>,
    replay: &mut Replay,
    plan: &ProfilePlan,
    mpps: &[f64],
) -> Result<Loaded, BenchError> {
    let mpps = LOAD * Spread::of(mpps).map_or(0.0, |spread| spread.median);
    if mpps <= 0.0 || !mpps.is_finite() {
        return Ok(Loaded::default());
    }
    let load = Load { rate_pps: mpps * 1e6, warm_up: WARM_UP, duration: OFFERED, descriptors: DESCRIPTORS };
    replay_queues(&mut instance.workers, replay.offer(plan.cores, load), None)?;
    let queues = replay.offered().into_iter().zip(replay.depths()).collect();
    Ok(Loaded { mpps, descriptors: DESCRIPTORS, queues })
}

/// Number of packet sets, and the busiest ones with their packets. The records of two replicas name all of them.
fn busiest<N: Function>(nf: &Arc<N>, trace: &Trace, options: &Options) -> (usize, Vec<(String, u64)>) {
    let history = Steered::pass(&mut Dispatcher::new(Arc::clone(nf), EngineKind::Scr, 2, options), trace).history;
    let mut counts: HashMap<_, u64> = HashMap::new();
    history.records.iter().for_each(|record| *counts.entry(record.meta.key()).or_default() += 1);
    (counts.len(), most(counts.into_iter().collect()))
}

/// The first [`BUSIEST`] by count.
fn most<K: Ord + Display>(mut counts: Vec<(K, u64)>) -> Vec<(String, u64)> {
    counts.sort_by(|(key, count), (other, others)| others.cmp(count).then_with(|| key.cmp(other)));
    counts.truncate(BUSIEST);
    counts.into_iter().map(|(key, count)| (key.to_string(), count)).collect()
}
