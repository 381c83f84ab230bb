//! Predicts the throughput of every engine on a given traffic, and recommends an engine and a number of cores.
//!
//! The cost of a packet is measured ([`crate::bench`]). The load of each core is counted: every engine's own dispatcher runs over the
//! trace. The prediction combines both. A core needs `t` for each of its own packets and `c2 + r` for each record that it replays. The
//! busiest core limits the rate. Replicas that outgrow a cache need extra time for each step ([`Spill`]). For `shared`, the cost of
//! contention is measured on two cores ([`Contention`]). A link, if there is one, also limits the rate, because packets carry their
//! history over it.

use std::collections::HashMap;
use std::sync::Arc;

use engine::carrier::{Outer, Shape};
use engine::{Dispatcher, EngineKind, Options};
use nf::{Function, Meta};
use port::Trace;

use crate::bench::{BenchError, BenchPlan, Contention, bench};
use crate::model::CostModel;
use crate::spill::Spill;
use crate::steered::Steered;

/// Input of [`advise`].
#[derive(Clone, Debug)]
pub struct Question {
    /// The maximum number of cores to consider.
    pub cores: usize,
    /// Cost of receiving, parsing and sending a packet on the port that is meant, in nanoseconds; `None` for the cost measured here.
    pub dispatch_ns: Option<f64>,
    /// The link over which packets reach the cores, after a sequencer if there is one; `None` if no link limits the rate.
    pub wire: Option<Wire>,
    /// How costs are measured: rounds, packets in each round, options of the engines.
    pub plan: BenchPlan,
}

/// An Ethernet link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Bits a second.
    pub bits_per_s: u64,
}

impl Wire {
    /// Mean time of a packet of this size on the link, in nanoseconds, including preamble, check sequence and gap.
    fn ns(self, bytes: f64) -> f64 {
        (bytes.max(MIN_FRAME) + AROUND_FRAME) * 8e9 / self.bits_per_s as f64
    }
}

/// Bytes of the shortest frame of Ethernet, without its check sequence.
const MIN_FRAME: f64 = 60.0;
/// Bytes of preamble, check sequence and the gap between frames.
const AROUND_FRAME: f64 = 24.0;

/// The bottleneck of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The work of the busiest core.
    Work,
    /// Waiting for state that another core uses.
    Turns,
    /// The link.
    Wire,
}

/// Result of [`advise`].
#[derive(Clone, Debug)]
pub struct Advice {
    /// The measured costs, with the dispatch cost of the question if given.
    pub model: CostModel,
    /// Smallest and largest cost of any round, relative to the median.
    pub spread: [f64; 2],
    /// Predictions, ordered by engine, then by number of cores.
    pub forecasts: Vec<Forecast>,
    /// Engines without a prediction, with the reason: they don't support the function on the maximum number of cores, or can't be
    /// predicted.
    pub refused: Vec<(EngineKind, String)>,
    /// Index of the best forecast. Among forecasts within [`TIE_PERCENT`] it is the simplest engine on the fewest cores.
    pub best: usize,
    /// Share of the packets that belong to the heaviest packet set.
    pub heaviest: f64,
    /// Dispatch costs, in nanoseconds, at which another engine becomes the best on the same number of cores: the next one above today's
    /// cost and the next one below.
    pub turning: Vec<(f64, EngineKind)>,
    /// Number of packets examined.
    pub packets: usize,
    /// Cost of replaying a record, in percent of a packet's cost; a run of `hybrid` should use it.
    pub replay_percent: u32,
    /// Cost of replicas that outgrow a shared cache.
    pub spill: Spill,
    /// Cost of contention under `shared`, if it was measured.
    pub contention: Option<Contention>,
    /// The link, if one was given.
    pub wire: Option<Wire>,
    /// Mean size of a packet on the wire, in bytes.
    pub mean_bytes: f64,
}

/// Predicted throughput of one engine on some cores.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The engine.
    pub engine: EngineKind,
    /// The cores.
    pub cores: usize,
    /// Millions of packets a second.
    pub mpps: f64,
    /// The same with the smallest and with the largest measured costs.
    pub mpps_range: [f64; 2],
    /// What limits the rate.
    pub bound: Bound,
    /// Nanoseconds that each step takes longer because of the other replicas.
    pub spill_ns: f64,
    /// Mean number of history bytes in a packet on the link.
    pub carried: f64,
    /// How the packets were spread over the cores.
    pub load: Workload,
}

/// How an engine's steering spreads the traffic over the cores.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Number of packets.
    pub packets: u64,
    /// Each core's own packets.
    pub own: Vec<u64>,
    /// The records that each core replays.
    pub replayed: Vec<u64>,
    /// Own packets of each core that it need not parse, because it gets their records.
    pub spared: Vec<u64>,
    /// Number of packet sets that are replicated at the end.
    pub elephants: usize,
    /// Number of times that state moved between cores in the counted pass.
    pub moves: u64,
}

/// Lower bound of a packet's time, in nanoseconds: smaller results are noise.
const LEAST_NS: f64 = 0.1;

/// Predictions that differ by at most this many percent are considered equal.
pub const TIE_PERCENT: f64 = 5.0;

impl Workload {
    /// Nanoseconds a packet that the busiest core works, if each step takes so much longer.
    fn ns(&self, model: &CostModel, longer: f64) -> f64 {
        let record = model.record_ns(self.own.len());
        let cores = self.own.iter().zip(&self.replayed).zip(&self.spared);
        let work = cores.map(|((own, replayed), spared)| {
            let [own, replayed, spared] = [own, replayed, spared].map(|count| *count as f64);
            own * (model.t + longer) + replayed * (record + longer) - spared * model.s
        });
        (work.fold(0.0, f64::max) / self.packets.max(1) as f64).max(LEAST_NS)
    }

    /// Share of the packets on the core with the most own packets.
    #[must_use]
    pub fn busiest(&self) -> f64 {
        self.own.iter().copied().max().unwrap_or(0) as f64 / self.packets.max(1) as f64
    }

    /// Share of the packets that are recorded for other cores to replay.
    #[must_use]
    pub fn recorded(&self) -> f64 {
        let others = (self.own.len().max(2) - 1) as f64;
        self.replayed.iter().sum::<u64>() as f64 / others / self.packets.max(1) as f64
    }
}

/// Inputs of all predictions.
struct Costs {
    model: CostModel,
    /// Dispatch cost on this machine.
    dispatch_here: f64,
    spread: [f64; 2],
    spill: Spill,
    contention: Option<Contention>,
    /// Share of the packets that wait for each other under `shared`.
    turns: f64,
    wire: Option<Wire>,
    mean_bytes: f64,
}

impl Costs {
    /// Nanoseconds that an engine needs for a packet, without the link, and what limits it.
    fn ns(&self, engine: EngineKind, load: &Workload) -> (f64, Bound) {
        let cores = load.own.len();
        let Some(Contention { alone_ns, transfer_ns, turn_ns }) =
            self.contention.filter(|_| engine == EngineKind::Shared && cores > 1)
        else {
            let longer = if engine == EngineKind::Scr { self.spill.ns(cores) } else { 0.0 };
            return (load.ns(&self.model, longer), Bound::Work);
        };
        let elsewhere = (cores - 1) as f64 / cores as f64;
        let dispatch = self.model.d - self.dispatch_here;
        let work = ((alone_ns + dispatch + transfer_ns * elsewhere) * load.busiest()).max(LEAST_NS);
        let turn = turn_ns * self.turns;
        if turn > work { (turn, Bound::Turns) } else { (work, Bound::Work) }
    }

    fn forecast(&self, engine: EngineKind, cores: usize, load: Workload, carried: f64) -> Forecast {
        let (ns, bound) = self.ns(engine, &load);
        let on_wire = self.wire.map_or(0.0, |wire| wire.ns(self.mean_bytes + carried));
        let bound = if on_wire > ns { Bound::Wire } else { bound };
        let mpps = |ns: f64| 1e3 / ns.max(on_wire);
        let mpps_range = [mpps(ns * self.spread[1]), mpps(ns * self.spread[0])];
        let spill_ns = if engine == EngineKind::Scr { self.spill.ns(cores) } else { 0.0 };
        Forecast { engine, cores, mpps: mpps(ns), mpps_range, bound, spill_ns, carried, load }
    }
}

/// Recommends an engine and a number of cores for a function on this traffic. Calls `progress` with the work done and the total.
///
/// # Errors
/// The trace can't be replayed.
pub fn advise<N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    question: &Question,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Advice, BenchError> {
    let Question { cores, dispatch_ns, wire, plan } = question;
    let plan = BenchPlan { engines: vec![EngineKind::Sequential], cores: vec![1], ..plan.clone() };
    let measured = bench(nf, trace, &plan, progress)?;
    let mut model = measured.model;
    let dispatch_here = model.d;
    if let Some(dispatch) = dispatch_ns {
        model.d = *dispatch;
        model.t = model.d + model.c1;
    }
    let ns = &measured.rows[0].ns_per_packet_per_core;
    let spread = [ns.min / ns.median, ns.max / ns.median];
    // The measured cost of replication decides which packet sets `hybrid` replicates.
    let percent = model.replay_percent(*cores);
    let options = Options { replay_percent: percent, ..plan.options };
    let Sets { heaviest, flows, turns } = Sets::of(nf, trace, &options);
    let shares = *cores > 1 && EngineKind::Shared.accepts(&nf.description(), *cores).is_ok();
    let contention = match shares {
        true => Contention::measure(nf, trace, &Arc::new(turns), &plan, progress)?,
        false => None,
    };
    // If all packet sets share state, every packet waits for it.
    let turns = if nf.description().sharing.is_any() { 1.0 } else { heaviest };
    let replicates = EngineKind::Scr.accepts(&nf.description(), *cores).is_ok();
    let spill = Spill::measure(if replicates { flows } else { 0 }, *cores);
    let lens = trace.packets().iter().map(|packet| f64::from(packet.wire_len));
    let mean_bytes = lens.sum::<f64>() / trace.len().max(1) as f64;
    let costs = Costs { model, dispatch_here, spread, spill, contention, turns, wire: *wire, mean_bytes };
    let (mut forecasts, mut refused) = (Vec::new(), Vec::new());
    for engine in EngineKind::ALL {
        if let Some(why) = unpredicted(&**nf, engine, contention.is_some(), heaviest > 0.0, *cores) {
            refused.push((engine, why.to_owned()));
            continue;
        }
        let most = if engine == EngineKind::Sequential { 1 } else { *cores };
        if let Err(reason) = engine.accepts(&nf.description(), most) {
            refused.push((engine, reason));
            continue;
        }
        for cores in steps(most).into_iter().filter(|cores| *cores > 1 || engine == EngineKind::Sequential) {
            let load = load(nf, trace, engine, cores, &options);
            let carried = match (wire, engine, cores) {
                (Some(_), EngineKind::Scr, 2..) => Shape::of::<N>(cores).overhead(Outer::Ethernet) as f64,
                (Some(_), EngineKind::Hybrid, 2..) => {
                    Shape::of::<N>(cores).overhead(Outer::Ethernet) as f64 * load.recorded()
                }
                _ => 0.0,
            };
            forecasts.push(costs.forecast(engine, cores, load, carried));
        }
    }
    let best = best(&forecasts);
    let turning = turning(&forecasts, best, &costs);
    let Costs { model, spread, spill, contention, wire, mean_bytes, .. } = costs;
    let packets = trace.len();
    Ok(Advice {
        model,
        spread,
        best,
        turning,
        forecasts,
        refused,
        heaviest,
        packets,
        replay_percent: percent,
        spill,
        contention,
        wire,
        mean_bytes,
    })
}

/// Why there is no prediction for an engine that supports the function.
fn unpredicted<N: Function>(
    nf: &N,
    engine: EngineKind,
    contention: bool,
    steps: bool,
    cores: usize,
) -> Option<&'static str> {
    match engine {
        EngineKind::Shared if cores > 1 && !steps => Some("none of these packets has state to share"),
        EngineKind::Shared if cores > 1 && !contention => {
            Some("its cost of sharing is measured on two cores, and this machine has one")
        }
        EngineKind::Transactional if nf.description().sharing.is_any() => Some(
            "its rate of failed transactions can't be predicted from the spread of packets; `millrace profile` measures it",
        ),
        EngineKind::Transactional => Some("packet sets share no state, so it is the same as `rss`"),
        EngineKind::Pipeline if cores > 1 => Some(
            "one of its cores reads for all, so a port that brings each core its packets is not for it; a model of its stages is apart",
        ),
        _ => None,
    }
}

/// Rate of an engine on `cores` cores in millions of packets a second, predicted from the costs of one core.
pub(crate) fn predicted<N: Function>(
    nf: &Arc<N>,
    trace: &Trace,
    engine: EngineKind,
    cores: usize,
    options: &Options,
    model: &CostModel,
) -> f64 {
    1e3 / load(nf, trace, engine, cores, options).ns(model, 0.0)
}

/// 1, the powers of two below `most`, and `most`.
fn steps(most: usize) -> Vec<usize> {
    let mut steps: Vec<usize> =
        std::iter::successors(Some(1), |cores| Some(cores * 2)).take_while(|cores| *cores < most).collect();
    steps.push(most);
    steps
}

/// Index of the best forecast: the simplest engine, then the fewest cores, among those within the tie. `shared` is never recommended,
/// because it reorders packets.
fn best(forecasts: &[Forecast]) -> usize {
    let all: Vec<_> =
        forecasts.iter().enumerate().filter(|(_, forecast)| forecast.engine != EngineKind::Shared).collect();
    let most = all.iter().map(|(_, forecast)| forecast.mpps).fold(0.0, f64::max);
    let good = |forecast: &&(usize, &Forecast)| forecast.1.mpps >= most * (1.0 - TIE_PERCENT / 100.0);
    let rank = |(_, forecast): &(usize, &Forecast)| (forecast.cores, plainness(forecast.engine));
    all.iter().filter(good).min_by_key(|one| rank(one)).map_or(0, |(index, _)| *index)
}

/// Complexity of an engine; smaller is simpler.
fn plainness(engine: EngineKind) -> usize {
    let order = [EngineKind::Sequential, EngineKind::Rss, EngineKind::RssPlusPlus, EngineKind::Scr, EngineKind::Hybrid];
    order.iter().position(|other| *other == engine).unwrap_or(order.len())
}

/// Dispatch costs at which another engine overtakes the best one on the same number of cores.
fn turning(forecasts: &[Forecast], best: usize, costs: &Costs) -> Vec<(f64, EngineKind)> {
    let Some(chosen) = forecasts.get(best) else { return Vec::new() };
    let rival = |other: &&Forecast| other.cores == chosen.cores && other.engine != EngineKind::Shared;
    let rivals: Vec<&Forecast> = forecasts.iter().filter(rival).collect();
    let model = &costs.model;
    let leader = |dispatch: f64| {
        let model = CostModel { d: dispatch, t: dispatch + model.c1, ..*model };
        let ns = |forecast: &&&Forecast| {
            let on_wire = costs.wire.map_or(0.0, |wire| wire.ns(costs.mean_bytes + forecast.carried));
            forecast.load.ns(&model, forecast.spill_ns).max(on_wire)
        };
        let least = rivals.iter().map(|rival| ns(&rival)).fold(f64::INFINITY, f64::min);
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
    // Use settled steering, so that only state that keeps moving counts as moves.
    let Steered { cores: steered, history, .. } = if engine.moves_state() {
        Steered::settled(&mut dispatcher, trace, true)
    } else {
        Steered::pass(&mut dispatcher, trace)
    };
    let mut own = vec![0; cores];
    steered.iter().for_each(|core| own[usize::from(*core)] += 1);
    let mut spared: Vec<u64> = (0..cores).map(|core| history.owned_of(core).len() as u64).collect();
    let mut replayed = vec![history.records.len() as u64; cores];
    for record in &history.records {
        let core = usize::from(steered[record.seq.0 as usize]);
        replayed[core] -= 1;
        spared[core] += 1;
    }
    let moves = history.boundaries.iter().map(|boundary| boundary.moves.len() as u64).sum();
    Workload { packets: trace.len() as u64, own, replayed, spared, elephants: dispatcher.elephants(), moves }
}

/// The packet sets of a trace.
struct Sets {
    /// The share of the packets that the heaviest brings.
    heaviest: f64,
    /// How many there are.
    flows: u64,
    /// The packets that wait for each other where state is shared: the heaviest's, or all that take a step.
    turns: Trace,
}

impl Sets {
    /// Two replicas' records name them all.
    fn of<N: Function>(nf: &Arc<N>, trace: &Trace, options: &Options) -> Self {
        let history = Steered::pass(&mut Dispatcher::new(Arc::clone(nf), EngineKind::Scr, 2, options), trace).history;
        let mut counts = HashMap::new();
        for record in &history.records {
            *counts.entry(record.meta.key()).or_insert(0_u64) += 1;
        }
        // On a tie, take the first.
        let mut most: Option<(u64, _)> = None;
        for record in &history.records {
            let key = record.meta.key();
            if most.as_ref().is_none_or(|(count, _)| counts[&key] > *count) {
                most = Some((counts[&key], key));
            }
        }
        let waits =
            |key: &_| nf.description().sharing.is_any() || most.as_ref().is_some_and(|(_, heaviest)| key == heaviest);
        let mut turns = Trace::new();
        for record in history.records.iter().filter(|record| waits(&record.meta.key())) {
            let index = record.seq.0 as usize;
            turns.push(trace.packets()[index], trace.bytes(index));
        }
        let heaviest = most.map_or(0, |(count, _)| count) as f64 / trace.len().max(1) as f64;
        Self { heaviest, flows: counts.len() as u64, turns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Remote;

    const MODEL: CostModel = CostModel { t: 114.0, d: 104.0, c1: 10.0, c2: 15.0, s: 4.0, r: REMOTE };
    const REMOTE: Remote = Remote { here_ns: 1.0, beyond_ns: 2.0, here: 4 };

    /// What is replicated is sequenced.
    fn load(own: &[u64], replayed: &[u64]) -> Workload {
        let spared = if replayed.iter().any(|replayed| *replayed > 0) { own.to_vec() } else { vec![0; own.len()] };
        let (packets, own, replayed) = (own.iter().sum(), own.to_vec(), replayed.to_vec());
        Workload { packets, own, replayed, spared, elephants: 0, moves: 0 }
    }

    fn costs() -> Costs {
        Costs {
            model: MODEL,
            dispatch_here: 104.0,
            spread: [0.9, 1.2],
            spill: Spill::default(),
            contention: None,
            turns: 0.0,
            wire: None,
            mean_bytes: 60.0,
        }
    }

    fn of(engine: EngineKind, cores: usize, load: Workload) -> Forecast {
        costs().forecast(engine, cores, load, 0.0)
    }

    #[test]
    fn a_link_carries_no_more_than_its_bits() {
        let gigabit = Costs { wire: Some(Wire { bits_per_s: 1_000_000_000 }), ..costs() };
        let even = |carried: f64| gigabit.forecast(EngineKind::Scr, 4, load(&[100; 4], &[300; 4]), carried);
        // The well-known packet rate of gigabit Ethernet.
        assert!((even(0.0).mpps - 1.488).abs() < 0.001, "{:?}", even(0.0));
        assert_eq!(even(0.0).bound, Bound::Wire);
        assert!((even(84.0).mpps - 0.744).abs() < 0.001);
        let fast = Costs { wire: Some(Wire { bits_per_s: 100_000_000_000 }), ..costs() };
        let fast = fast.forecast(EngineKind::Scr, 4, load(&[100; 4], &[300; 4]), 84.0);
        assert!((fast.mpps - MODEL.mpps(4)).abs() < 1e-9 && fast.bound == Bound::Work);
    }

    #[test]
    fn shared_state_is_had_in_turns() {
        let contention = Some(Contention { alone_ns: 120.0, transfer_ns: 60.0, turn_ns: 90.0 });
        let all = |turns: f64, cores: usize| {
            let costs = Costs { contention, turns, ..costs() };
            costs.forecast(EngineKind::Shared, cores, load(&vec![100; cores], &vec![0; cores]), 0.0)
        };
        // Two cores: the other one used it last in half of the cases.
        assert!((all(0.1, 2).mpps - 1e3 * 2.0 / 150.0).abs() < 1e-9 && all(0.1, 2).bound == Bound::Work);
        assert!((all(0.1, 4).mpps - 1e3 * 4.0 / 165.0).abs() < 1e-9);
        // One flow: no cores help.
        assert!((all(1.0, 16).mpps - 1e3 / 90.0).abs() < 1e-9 && all(1.0, 16).bound == Bound::Turns);
        // It is never recommended.
        let forecasts = [of(EngineKind::Sequential, 1, load(&[100], &[0])), all(0.1, 4)];
        assert_eq!(best(&forecasts), 0);
    }

    #[test]
    fn replicas_that_outgrow_a_cache_take_longer() {
        let spill = Spill::measure(0, 1);
        assert_eq!(spill.ns(8), 0.0);
        let even = load(&[100; 4], &[300; 4]);
        let (now, longer) = (even.ns(&MODEL, 0.0), even.ns(&MODEL, 7.0));
        assert!((longer - now - 7.0).abs() < 1e-9, "a quarter of the packets, each with three records: four steps");
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
    fn what_is_handed_to_its_core_is_not_parsed_there() {
        let sharded = load(&[60, 40], &[0; 2]);
        let handed = Workload { spared: vec![50, 40], ..sharded.clone() };
        assert!((sharded.ns(&MODEL, 0.0) - handed.ns(&MODEL, 0.0) - 0.5 * MODEL.s).abs() < 1e-9);
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
        // All packets in one flow: replication gains more with a higher dispatch cost; without any it gains nothing.
        let forecasts = [
            of(EngineKind::Rss, 8, load(&[800, 0, 0, 0, 0, 0, 0, 0], &[0; 8])),
            of(EngineKind::Scr, 8, load(&[100; 8], &[700; 8])),
        ];
        assert_eq!(best(&forecasts), 1);
        let turning = turning(&forecasts, 1, &costs());
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
