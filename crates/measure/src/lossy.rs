//! What it costs replicas to be ready for loss, and what loss costs them (figure 10b of state-compute replication): with
//! recovery on and off, at several rates, in one run.
//!
//! Packets were sequenced beforehand and carry their history, as behind a card. Without recovery replicas differ from the
//! first loss on, and the figures are there for comparison alone.

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
    /// How many packets of a million the link loses, one case each with recovery on and off.
    pub loss_ppm: Vec<u32>,
    /// The cores, two at least.
    pub cores: usize,
    /// How often each case runs, in turn with the others.
    pub rounds: usize,
    /// Whether only rounds count in which nobody outside disturbed, as [`BenchPlan::undisturbed`](crate::BenchPlan::undisturbed) has it.
    pub undisturbed: bool,
    /// How many packets a case has in each round, over all its cores; at least one pass over the trace.
    pub packets: u64,
    /// How the fleets are built.
    pub options: Options,
    /// Work added to each packet that a core receives.
    pub dispatch: Work,
}

/// Replicas behind one link.
#[derive(Clone, Debug)]
pub struct LossRow {
    /// How many packets of a million the link loses.
    pub loss_ppm: u32,
    /// Whether lost records are taken from others' logs.
    pub recovery: bool,
    /// Millions of packets a second that arrived, all cores together.
    pub mpps: Spread,
    /// The same as a share of what there was without loss and without recovery: in the same round, or in the middle one where not all count.
    pub of_best: Spread,
    /// The rounds that ran and those that the figures are of.
    pub rounds: Rounds,
    /// Packets that the link lost, over all rounds and the one that warmed up.
    pub lost: u64,
    /// What recovery came to meanwhile.
    pub tally: Tally,
}

/// Packets of its own by which one core may be ahead of another before it waits for room in its log: few enough for the
/// log to stay in the second-level cache. The paper's has 1,024 records.
const WINDOW: usize = 2048;
/// How long a core waits for another: a measurement goes on whatever the system does meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures replicas behind links that lose packets. `progress` is told how many runs are done, and of how many. The first
/// two rows lose nothing: without recovery, then with it.
///
/// # Errors
/// When there are not as many processors, which can't be modelled as cores wait for each other; or when the trace can't be
/// replayed.
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
            "loss recovery is between 2 cores at least, which run at the same time: {} can't be measured on {have}",
            plan.cores
        ));
    }
    if let Err(reason) = EngineKind::Scr.accepts(&N::DESCRIPTION, plan.cores) {
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

/// As many of the packets as go around the cores without a rest, so that every pass begins with the same core.
fn whole_turns(trace: &Arc<Trace>, cores: usize) -> Arc<Trace> {
    let len = trace.len() - trace.len() % cores;
    if len == trace.len() { Arc::clone(trace) } else { Arc::new(trace.prefix(len)) }
}

/// Replicas with their link and their trace, ready for rounds.
struct Replicas<N: Function> {
    fleet: PrivateInstance<N>,
    ends: Vec<LinkEnd<N::Meta>>,
    link: Link,
    replay: Replay,
    script: TraceHistory<N::Meta>,
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
        let mut fleet = private_instance(EngineKind::Scr, Arc::clone(nf), plan.cores, &plan.options);
        let Steered { cores, buckets, script } = Steered::pass(&mut fleet.dispatcher, trace);
        let loops = plan.packets.div_ceil(trace.len() as u64).max(1);
        let replay =
            Replay::new(Arc::clone(trace)).looped(Loops::Times(loops)).steered(cores).bucketed(buckets).continued();
        let link = Link { loss_ppm, recovery, seed: plan.options.seed, patience: Patience::Time(PATIENCE) };
        let ends = LinkEnd::ends(link, plan.cores, WINDOW * plan.cores, Histories::InMemory);
        let dispatch = plan.dispatch;
        let mut new = Self { fleet, ends, link, replay, script, dispatch, readings: Readings::new(plan.undisturbed) };
        new.round()?;
        new.readings.clear();
        Ok(new)
    }

    fn arrived(&self) -> u64 {
        let counters = self.fleet.workers.iter().map(|worker| worker.counters());
        counters.map(|counters| counters.received - counters.dropped[usize::from(Reason::LINK_LOSS.0)]).sum()
    }

    fn row(self, best: &[Reading], undisturbed: bool) -> LossRow {
        // Round by round, as they took turns; where some don't count, all are held against the middle one.
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
        let received: u64 = self.fleet.workers.iter().map(|worker| worker.counters().received).sum();
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
        let (queues, shown) = Gauged::wrap(self.replay.queues(self.fleet.workers.len()));
        let queues = Dispatched::wrap(queues, self.dispatch);
        let (packets, span, end) = (self.replay.trace().len(), self.replay.span(), self.replay.end());
        let plan = ReplayPlan { script: &self.script, packets, span, end, first: 0 };
        let Self { fleet, ends, .. } = self;
        let workers = fleet.workers.iter_mut().map(|worker| worker as &mut dyn AnyWorker<N>).collect();
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
    use crate::pass::Pass;

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
        let result = lossy(&Arc::new(Pass), &trace(401, 20), &plan(), &mut |done, total| last = (done, total));
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
            let refused = lossy(&Arc::new(Pass), &trace(400, 20), &LossPlan { cores, ..plan() }, &mut |_, _| {});
            assert!(matches!(refused, Err(BenchError::Refused(reason)) if reason.contains("can't be measured")));
        }
        let refused = lossy(&Arc::new(Pass), &trace(1, 1), &plan(), &mut |_, _| {});
        assert!(matches!(refused, Err(BenchError::Refused(_))));
    }
}
