//! Measures the cost of loss recovery, and of loss, for replicas (figure 10b of state-compute replication): recovery on and off, at
//! several loss rates, in one run.
//!
//! Packets are sequenced in advance and carry their history, as they do after a network card that sequences. Without recovery, replicas
//! diverge after the first loss; those figures only serve as a comparison.

use std::sync::Arc;
use std::time::Duration;

use engine::recovery::{Patience, Tally};
use engine::{
    AnyWorker, EngineKind, Histories, Link, LinkEnd, Options, PrivateInstance, TraceHistory, cpus, private_instance,
};
use nf::{Function, Reason};
use port::{Loops, Replay, Trace};

use crate::bench::BenchError;
use crate::gauge::{Gauged, Shown};
use crate::replay::{ReplayPlan, replay_workers};
use crate::rounds::{Contender, Reading, Readings, Rounds, Rules, take_turns};
use crate::spread::Spread;
use crate::steered::Steered;
use crate::work::{Dispatched, Work};

/// What to measure.
#[derive(Clone, Debug)]
pub struct LossPlan {
    /// Loss rates of the link, in packets per million. Each is measured with recovery on and off.
    pub loss_ppm: Vec<u32>,
    /// Number of cores, at least 2.
    pub cores: usize,
    /// Number of times that each case runs, alternating with the others.
    pub rounds: usize,
    /// Count only undisturbed rounds, as [`BenchPlan::undisturbed`](crate::BenchPlan::undisturbed).
    pub undisturbed: bool,
    /// Packets of a case in each round, over all its cores; at least one pass over the trace.
    pub packets: u64,
    /// Options of the engine.
    pub options: Options,
    /// Extra work for each packet that a core receives.
    pub dispatch: Work,
}

/// Throughput of replicas behind one link.
#[derive(Clone, Debug)]
pub struct LossRow {
    /// Loss rate of the link, in packets per million.
    pub loss_ppm: u32,
    /// True if lost records are recovered from other cores' logs.
    pub recovery: bool,
    /// Packets that arrived, in millions a second, over all cores.
    pub mpps: Spread,
    /// Rate as a share of the rate without loss and without recovery in the same round; in the median round if not all rounds count.
    pub of_best: Spread,
    /// The rounds that ran and those that the figures are of.
    pub rounds: Rounds,
    /// Packets lost on the link, over all rounds and the warm-up.
    pub lost: u64,
    /// Counters of the recovery.
    pub tally: Tally,
}

/// Own packets by which one core may be ahead of another before it waits for room in its log. Small enough that the log stays in the
/// second-level cache. The paper's log has 1,024 records.
const WINDOW: usize = 2048;
/// How long a core waits for another core.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures replicas behind links that lose packets. Calls `progress` with the number of runs done and the total. The first two rows lose
/// nothing: without recovery, then with it.
///
/// # Errors
/// The machine has too few processors (waiting cores can't be modelled), or the trace can't be replayed.
pub fn lossy<N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    plan: &LossPlan,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<LossRow>, BenchError> {
    let refuse = |reason: String| Err(BenchError::Refused(reason));
    if plan.cores < 2 || plan.cores > cpus().len() {
        let have = cpus().len();
        return refuse(format!(
            "loss recovery needs at least 2 cores that run at the same time: {} can't be measured on {have}",
            plan.cores
        ));
    }
    if let Err(reason) = EngineKind::Scr.accepts(&nf.description(), plan.cores) {
        return refuse(reason);
    }
    if trace.len() < plan.cores {
        return refuse(format!("{} packets are too few for {} cores", trace.len(), plan.cores));
    }
    let trace = whole_turns(trace, plan.cores);
    let mut rates = plan.loss_ppm.clone();
    rates.push(0);
    rates.sort_unstable();
    rates.dedup();
    let mut cases = Vec::new();
    for &loss_ppm in &rates {
        for recovery in [false, true] {
            cases.push(Replicas::new(nf, &trace, plan, loss_ppm, recovery)?);
        }
    }
    let total = (cases.len() * plan.rounds) as u64;
    let rules = Rules { rounds: plan.rounds, undisturbed: plan.undisturbed };
    let mut contenders: Vec<_> = cases.iter_mut().map(|case| case as &mut dyn Contender).collect();
    take_turns(&mut contenders, rules, |done| progress(done, total))?;
    let best = cases[0].readings.counted();
    Ok(cases.into_iter().map(|case| case.row(&best, plan.undisturbed)).collect())
}

/// The longest prefix that fills whole rounds over the cores, so that every pass starts with the same core.
fn whole_turns(trace: &Arc<Trace>, cores: usize) -> Arc<Trace> {
    let len = trace.len() - trace.len() % cores;
    if len == trace.len() { Arc::clone(trace) } else { Arc::new(trace.prefix(len)) }
}

/// Replicas with their link and their trace, ready for rounds.
struct Replicas<N: Function> {
    instance: PrivateInstance<N>,
    ends: Vec<LinkEnd<N::Meta>>,
    link: Link,
    replay: Replay,
    history: TraceHistory<N::Meta>,
    dispatch: Work,
    readings: Readings,
}

impl<N: Function> Replicas<N> {
    fn new(
        nf: &Arc<N>,
        trace: &Arc<Trace>,
        plan: &LossPlan,
        loss_ppm: u32,
        recovery: bool,
    ) -> Result<Self, BenchError> {
        let mut instance = private_instance(EngineKind::Scr, Arc::clone(nf), plan.cores, &plan.options);
        let Steered { cores, buckets, history } = Steered::pass(&mut instance.dispatcher, trace);
        let loops = plan.packets.div_ceil(trace.len() as u64).max(1);
        let replay =
            Replay::new(Arc::clone(trace)).looped(Loops::Times(loops)).steered(cores).bucketed(buckets).continued();
        let link = Link { loss_ppm, recovery, seed: plan.options.seed, patience: Patience::Time(PATIENCE) };
        let ends = LinkEnd::ends(link, plan.cores, WINDOW * plan.cores, Histories::InMemory);
        let dispatch = plan.dispatch;
        let mut new =
            Self { instance, ends, link, replay, history, dispatch, readings: Readings::new(plan.undisturbed) };
        new.round()?;
        new.readings.clear();
        Ok(new)
    }

    fn arrived(&self) -> u64 {
        let counters = self.instance.workers.iter().map(|worker| worker.counters());
        counters.map(|counters| counters.received - counters.dropped[usize::from(Reason::LINK_LOSS.0)]).sum()
    }

    fn row(self, best: &[Reading], undisturbed: bool) -> LossRow {
        // Compare within each round, because cases take turns; if some rounds don't count, compare with the median.
        let middle =
            Spread::of(&best.iter().map(|best| best.mpps).collect::<Vec<_>>()).expect("there were rounds").median;
        let own = self.readings.counted();
        let of_best: Vec<f64> = if undisturbed {
            own.iter().map(|own| own.mpps / middle).collect()
        } else {
            own.iter().zip(best).map(|(own, best)| own.mpps / best.mpps).collect()
        };
        let mut tally = Tally::default();
        for end in &self.ends {
            tally.add(end.tally());
        }
        let received: u64 = self.instance.workers.iter().map(|worker| worker.counters().received).sum();
        LossRow {
            loss_ppm: self.link.loss_ppm,
            recovery: self.link.recovery,
            mpps: self.readings.spread(|reading| reading.mpps),
            of_best: Spread::of(&of_best).expect("there were rounds"),
            rounds: self.readings.rounds(),
            lost: received - self.arrived(),
            tally,
        }
    }
}

impl<N: Function> Contender for Replicas<N> {
    fn round(&mut self) -> Result<(), BenchError> {
        let before = self.arrived();
        let (queues, shown) = Gauged::wrap(self.replay.queues(self.instance.workers.len()));
        let queues = Dispatched::wrap(queues, self.dispatch);
        let (packets, span, end) = (self.replay.trace().len(), self.replay.span(), self.replay.end());
        let plan = ReplayPlan { history: &self.history, packets, span, end, first: 0 };
        let Self { instance, ends, .. } = self;
        let workers = instance.workers.iter_mut().map(|worker| worker as &mut dyn AnyWorker<N>).collect();
        let runs = replay_workers(workers, queues, Some(&plan), Some(ends))?;
        let elapsed: Vec<Duration> = runs.iter().map(|run| run.elapsed).collect();
        let gauges: Vec<_> = shown.iter().map(Shown::get).collect();
        self.readings.push(Reading::of(self.arrived() - before, &elapsed, &gauges, runs.len()));
        Ok(())
    }

    fn counted(&self) -> usize {
        self.readings.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::trace;
    use crate::forward_all::ForwardAll;

    fn plan() -> LossPlan {
        let options = Options { flows_max: Some(64), ..Options::default() };
        LossPlan {
            loss_ppm: vec![100_000],
            cores: 2,
            rounds: 2,
            undisturbed: false,
            packets: 800,
            options,
            dispatch: Work::NONE,
        }
    }

    #[test]
    fn what_is_lost_is_counted_and_what_recovery_found_is_told() {
        let mut last = (0, 0);
        let result = lossy(&Arc::new(ForwardAll), &trace(401, 20), &plan(), &mut |done, total| last = (done, total));
        if cpus().len() < 2 {
            assert!(matches!(result, Err(BenchError::Refused(_))));
            return;
        }
        let rows = result.expect("memory is there");
        assert_eq!(last, (8, 8));
        let cases: Vec<_> = rows.iter().map(|row| (row.loss_ppm, row.recovery)).collect();
        assert_eq!(cases, [(0, false), (0, true), (100_000, false), (100_000, true)]);
        for row in &rows {
            // Two rounds and one to warm up, each of two passes over 400 packets.
            let expected = if row.loss_ppm > 0 { 180..300 } else { 0..1 };
            assert!(expected.contains(&row.lost), "{row:?}");
            let recovered = row.tally.recovered_total() + row.tally.nowhere;
            assert!((recovered > 0) == (row.recovery && row.loss_ppm > 0), "{row:?}");
        }
        assert!((rows[0].of_best.median - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for cores in [1, cpus().len() + 1] {
            let refused = lossy(&Arc::new(ForwardAll), &trace(400, 20), &LossPlan { cores, ..plan() }, &mut |_, _| {});
            assert!(matches!(refused, Err(BenchError::Refused(reason)) if reason.contains("can't be measured")));
        }
        let refused = lossy(&Arc::new(ForwardAll), &trace(1, 1), &plan(), &mut |_, _| {});
        assert!(matches!(refused, Err(BenchError::Refused(_))));
    }
}
