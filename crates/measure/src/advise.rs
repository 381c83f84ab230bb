//! Which engine, and on how many cores: what each is predicted to carry on a given traffic, and what the answer hangs on.
//!
//! What a packet costs is measured ([`crate::bench`]); how steering would spread the packets is counted by running every
//! engine's own dispatcher over the trace. The prediction is arithmetic on both: a core's work is its own packets at `t`
//! each and the records that it replays at `c2` each, and the busiest core's work is what a packet takes.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{Dispatcher, EngineKind, Options};
use nf::{Function, Meta};
use port::Trace;

use crate::bench::{BenchError, BenchPlan, bench};
use crate::model::CostModel;
use crate::steered::Steered;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The most cores that there are to use.
    pub cores: usize,
    /// What presenting a packet to the function costs on the port that is meant, in nanoseconds; `None` for what it costs here.
    pub dispatch_ns: Option<f64>,
    /// How the costs are measured: rounds, packets in each, how fleets are built.
    pub plan: BenchPlan,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The costs, with the dispatch that was asked for.
    pub model: CostModel,
    /// The least and the most that the costs were in any round, in relation to their medians.
    pub spread: [f64; 2],
    /// Every engine's prediction on each number of cores looked at, by engine, then cores.
    pub forecasts: Vec<Forecast>,
    /// Engines that can't take the function on the most cores, and why; `shared` among them, which isn't predicted.
    pub refused: Vec<(EngineKind, String)>,
    /// The best of the forecasts, by number. Of those within [`TIE_PERCENT`] the simplest engine on the fewest cores.
    pub best: usize,
    /// The share of the packets that the heaviest packet set brings.
    pub heaviest: f64,
    /// The dispatch cost from which on another engine would be the best on as many cores, and which; the least above today's
    /// and the most below it.
    pub turning: Vec<(f64, EngineKind)>,
    /// How many packets were looked at.
    pub packets: usize,
}

/// What an engine is predicted to carry.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The engine.
    pub engine: EngineKind,
    /// The cores.
    pub cores: usize,
    /// Millions of packets a second.
    pub mpps: f64,
    /// The same with the costs at their least and at their most.
    pub mpps_range: [f64; 2],
    /// How the packets were spread.
    pub load: Workload,
}

/// How an engine's steering spreads a traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Packets in all.
    pub packets: u64,
    /// Each core's own packets.
    pub own: Vec<u64>,
    /// The records that each core replays.
    pub replayed: Vec<u64>,
    /// Packet sets that are replicated, at the end.
    pub elephants: usize,
    /// How often state changed cores in the counted pass.
    pub moves: u64,
}

/// Predictions that differ by no more are as good as equal.
pub const TIE_PERCENT: f64 = 5.0;

impl Workload {
    /// Nanoseconds a packet that the busiest core works.
    fn ns(&self, model: &CostModel) -> f64 {
        let work = self
            .own
            .iter()
            .zip(&self.replayed)
            .map(|(own, replayed)| *own as f64 * model.t + *replayed as f64 * model.c2);
        work.fold(0.0, f64::max) / self.packets.max(1) as f64
    }

    /// The share of the packets that the core with the most of its own gets.
    #[must_use]
    pub fn busiest(&self) -> f64 {
        self.own.iter().copied().max().unwrap_or(0) as f64 / self.packets.max(1) as f64
    }

    /// The share of the packets that are recorded for others to replay.
    #[must_use]
    pub fn recorded(&self) -> f64 {
        let others = (self.own.len().max(2) - 1) as f64;
        self.replayed.iter().sum::<u64>() as f64 / others / self.packets.max(1) as f64
    }
}

/// Says which engine to take for a function on this traffic. `progress` is told how much is done, and of how much.
///
/// # Errors
/// When the trace can't be replayed.
pub fn advise<N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    question: &Question,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Advice, BenchError> {
    let Question { cores, dispatch_ns, plan } = question;
    let plan = BenchPlan { engines: vec![EngineKind::Sequential], cores: vec![1], ..plan.clone() };
    let measured = bench(nf, trace, &plan, progress)?;
    let mut model = measured.model;
    if let Some(dispatch) = dispatch_ns {
        model.d = *dispatch;
        model.t = model.d + model.c1;
    }
    let ns = &measured.rows[0].ns_per_packet_per_core;
    let spread = [ns.min / ns.median, ns.max / ns.median];
    // What replicating costs here decides which packet sets are worth it.
    let percent = (100.0 * model.c2 / model.t).clamp(1.0, 100.0) as u32;
    let options = Options { replay_percent: percent, ..plan.options };
    let (mut forecasts, mut refused) = (Vec::new(), Vec::new());
    for engine in EngineKind::ALL {
        if engine == EngineKind::Shared {
            let why = "its contention can't be told from how packets are spread; `millrace bench` measures it";
            refused.push((engine, why.to_owned()));
            continue;
        }
        if engine == EngineKind::Transactional {
            let why = match N::DESCRIPTION.sharing.is_any() {
                true => {
                    "how often its transactions fail can't be told from how packets are spread; `millrace profile` measures it"
                }
                false => "packet sets share nothing here, so that it is `rss`",
            };
            refused.push((engine, why.to_owned()));
            continue;
        }
        let most = if engine == EngineKind::Sequential { 1 } else { *cores };
        if let Err(reason) = engine.accepts(&N::DESCRIPTION, most) {
            refused.push((engine, reason));
            continue;
        }
        for cores in steps(most).into_iter().filter(|cores| *cores > 1 || engine == EngineKind::Sequential) {
            let load = load(nf, trace, engine, cores, &options);
            forecasts.push(forecast(engine, cores, load, &model, spread));
        }
    }
    let best = best(&forecasts);
    let turning = turning(&forecasts, best, &model);
    let heaviest = heaviest(nf, trace, &options);
    Ok(Advice { model, spread, best, turning, forecasts, refused, heaviest, packets: trace.len() })
}

/// One, the powers of two, and the most.
fn steps(most: usize) -> Vec<usize> {
    let mut steps: Vec<usize> =
        std::iter::successors(Some(1), |cores| Some(cores * 2)).take_while(|cores| *cores < most).collect();
    steps.push(most);
    steps
}

fn forecast(engine: EngineKind, cores: usize, load: Workload, model: &CostModel, spread: [f64; 2]) -> Forecast {
    let mpps = 1e3 / load.ns(model);
    Forecast { engine, cores, mpps, mpps_range: [mpps / spread[1], mpps / spread[0]], load }
}

/// The best: the simplest engine, then the fewest cores, among those that are as good as the first.
fn best(forecasts: &[Forecast]) -> usize {
    let most = forecasts.iter().map(|forecast| forecast.mpps).fold(0.0, f64::max);
    let good = |forecast: &&(usize, &Forecast)| forecast.1.mpps >= most * (1.0 - TIE_PERCENT / 100.0);
    let rank = |(_, forecast): &(usize, &Forecast)| (forecast.cores, plainness(forecast.engine));
    let all: Vec<_> = forecasts.iter().enumerate().collect();
    all.iter().filter(good).min_by_key(|one| rank(one)).map_or(0, |(index, _)| *index)
}

/// How much there is to an engine.
fn plainness(engine: EngineKind) -> usize {
    let order = [EngineKind::Sequential, EngineKind::Rss, EngineKind::RssPlusPlus, EngineKind::Scr, EngineKind::Hybrid];
    order.iter().position(|other| *other == engine).unwrap_or(order.len())
}

/// At which dispatch costs another engine overtakes the best on as many cores.
fn turning(forecasts: &[Forecast], best: usize, model: &CostModel) -> Vec<(f64, EngineKind)> {
    let Some(chosen) = forecasts.get(best) else { return Vec::new() };
    let rivals: Vec<&Forecast> = forecasts.iter().filter(|other| other.cores == chosen.cores).collect();
    let leader = |dispatch: f64| {
        let model = CostModel { d: dispatch, t: dispatch + model.c1, ..*model };
        let ns = |forecast: &&&Forecast| forecast.load.ns(&model);
        let least = rivals.iter().map(|rival| rival.load.ns(&model)).fold(f64::INFINITY, f64::min);
        let tied = rivals.iter().filter(|rival| ns(rival) <= least * (1.0 + TIE_PERCENT / 100.0));
        tied.min_by_key(|rival| plainness(rival.engine)).map(|rival| rival.engine)
    };
    let change = |mut dispatches: Box<dyn Iterator<Item = f64>>| {
        dispatches.find_map(|dispatch| {
            leader(dispatch).filter(|engine| *engine != chosen.engine).map(|engine| (dispatch, engine))
        })
    };
    let up = change(Box::new((1..=200).map(|step| model.d + f64::from(step) * 5.0)));
    let down = change(Box::new((1..=50).map(|step| model.d * (1.0 - f64::from(step) / 50.0))));
    up.into_iter().chain(down).collect()
}

/// Counts how an engine's dispatcher spreads the trace.
fn load<N: Function>(nf: &Arc<N>, trace: &Trace, engine: EngineKind, cores: usize, options: &Options) -> Workload {
    let mut dispatcher = Dispatcher::new(Arc::clone(nf), engine, cores, options);
    // Settled, so that state which moves all the time shows by its moves.
    let Steered { cores: steered, script, .. } = if engine.moves_state() {
        Steered::settled(&mut dispatcher, trace, true)
    } else {
        Steered::pass(&mut dispatcher, trace)
    };
    let mut own = vec![0; cores];
    steered.iter().for_each(|core| own[usize::from(*core)] += 1);
    let mut replayed = vec![script.records.len() as u64; cores];
    for record in &script.records {
        replayed[usize::from(steered[record.seq.0 as usize])] -= 1;
    }
    let moves = script.boundaries.iter().map(|boundary| boundary.moves.len() as u64).sum();
    Workload { packets: trace.len() as u64, own, replayed, elephants: dispatcher.elephants(), moves }
}

/// The heaviest packet set's share. Two replicas' records name them all.
fn heaviest<N: Function>(nf: &Arc<N>, trace: &Trace, options: &Options) -> f64 {
    let script = Steered::pass(&mut Dispatcher::new(Arc::clone(nf), EngineKind::Scr, 2, options), trace).script;
    let mut counts = HashMap::new();
    for record in &script.records {
        *counts.entry(record.meta.key()).or_insert(0_u64) += 1;
    }
    counts.into_values().max().unwrap_or(0) as f64 / trace.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: CostModel = CostModel { t: 114.0, d: 104.0, c1: 10.0, c2: 15.0 };

    fn load(own: &[u64], replayed: &[u64]) -> Workload {
        Workload { packets: own.iter().sum(), own: own.to_vec(), replayed: replayed.to_vec(), elephants: 0, moves: 0 }
    }

    fn of(engine: EngineKind, cores: usize, load: Workload) -> Forecast {
        forecast(engine, cores, load, &MODEL, [0.9, 1.2])
    }

    #[test]
    fn replication_is_predicted_as_the_model_says() {
        let cores = 7;
        let forecast = of(EngineKind::Scr, cores, load(&[100; 7], &[600; 7]));
        assert!((forecast.mpps - MODEL.mpps(cores)).abs() < 1e-9);
        assert!(forecast.mpps_range[0] < forecast.mpps && forecast.mpps < forecast.mpps_range[1]);
    }

    #[test]
    fn the_busiest_core_is_what_counts() {
        let forecast = of(EngineKind::Rss, 4, load(&[700, 100, 100, 100], &[0; 4]));
        assert!((forecast.mpps - 1e3 / (0.7 * 114.0)).abs() < 1e-9);
        assert!((forecast.load.busiest() - 0.7).abs() < 1e-9);
    }

    #[test]
    fn of_equals_the_plainest_on_the_fewest_cores_is_best() {
        let even = |cores: usize| load(&vec![100; cores], &vec![0; cores]);
        let forecasts = [
            of(EngineKind::Sequential, 1, even(1)),
            of(EngineKind::Rss, 4, even(4)),
            of(EngineKind::RssPlusPlus, 4, even(4)),
            of(EngineKind::Rss, 2, even(2)),
        ];
        assert_eq!(best(&forecasts), 1);
    }

    #[test]
    fn dispatch_turns_the_answer() {
        // All packets in one flow: replication gains the more, the more dispatch costs; with none it gains nothing.
        let forecasts = [
            of(EngineKind::Rss, 8, load(&[800, 0, 0, 0, 0, 0, 0, 0], &[0; 8])),
            of(EngineKind::Scr, 8, load(&[100; 8], &[700; 8])),
        ];
        assert_eq!(best(&forecasts), 1);
        let turning = turning(&forecasts, 1, &MODEL);
        assert_eq!(turning.len(), 1, "{turning:?}");
        let (dispatch, engine) = turning[0];
        assert_eq!(engine, EngineKind::Rss);
        // 8 (d + 10) against d + 10 + 7 * 15, within the tie: d is about 5.
        assert!((2.0..9.0).contains(&dispatch), "{dispatch}");
    }

    #[test]
    fn numbers_of_cores_are_doubled_up_to_the_most() {
        assert_eq!(steps(1), [1]);
        assert_eq!(steps(2), [1, 2]);
        assert_eq!(steps(12), [1, 2, 4, 8, 12]);
        assert_eq!(steps(16), [1, 2, 4, 8, 16]);
    }
}
