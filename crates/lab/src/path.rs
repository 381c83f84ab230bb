//! What each stage of a packet's path takes on one core, on given traffic: from reading to the function's own work.
//!
//! Prefixes of the path run one after the other over the same capture: reading alone, reading and parsing, and so on up to the whole. What a
//! prefix takes more than the one before is its last stage's. No clock is read per packet. Times are the thread's processor time, so other
//! programs disturb little. Prefixes take turns in rounds, and every run of one begins with empty tables.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use engine::{CoreBatch, Cuts, Dispatcher, EngineKind, Options, hash_of, private_instance};
use nf::{Meta, NetworkFunction, Stages};
use port::{Batch, Receive, Received, Work};
use rustix::time::{ClockId, clock_gettime};

use crate::bench::BenchError;
use crate::spread::Spread;

/// What is measured, and how.
pub struct PathPlan<'a> {
    /// Opens the traffic from its beginning.
    pub open: &'a dyn Fn() -> Result<Box<dyn Receive>, BenchError>,
    /// The number of packets of the traffic.
    pub packets: usize,
    /// Gathers fragments, anew for each run; `None` if the function doesn't want that.
    pub gather: Option<&'a dyn Fn() -> Work>,
    /// Rounds, in each of which every prefix runs.
    pub rounds: usize,
    /// Packets of a prefix in a round; at least one pass over the traffic.
    pub round_packets: u64,
    /// Options of the engine.
    pub options: Options,
}

/// A stage and what it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// Nanoseconds a packet: the difference of the medians of two prefixes, and the smallest and largest difference of a round.
    pub ns: Spread,
}

/// What the stages of a path take.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// Nanoseconds a packet for finding its way by a look at its headers, and for handing it out: only where there are several ways.
    pub steer: Spread,
    /// The number of packets of the traffic.
    pub packets: usize,
}

/// The name of the first stage: reading packets from the capture.
pub const INPUT: &str = "input";
/// The name of the stage that gathers fragments.
pub const DEFRAGMENT: &str = "defragment";
/// The name of the stage that parses packets and hashes their keys.
pub const PARSE: &str = "parse";

impl Path {
    /// Measures the path of a function. Calls `progress` with the number of runs done and the total.
    ///
    /// # Errors
    /// The traffic can't be read.
    pub fn measure<N: NetworkFunction>(
        nf: &Arc<N>,
        plan: &PathPlan<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, BenchError> {
        let mut stages = Prefixes { plan, prefixes: vec![prefix(INPUT, |_: &mut Batch| ())], failed: None };
        let mut add = |name, prefix: Fresh| stages.prefixes.push(Prefix { name, fresh: prefix, gathers: true });
        if plan.gather.is_some() {
            add(DEFRAGMENT, Box::new(|| Box::new(|_: &mut Batch| ())));
        }
        let (parsed, seed) = (Arc::clone(nf), plan.options.seed);
        add(
            PARSE,
            Box::new(move || {
                let nf = Arc::clone(&parsed);
                Box::new(move |batch: &mut Batch| parse(&*nf, seed, batch))
            }),
        );
        nf.stages(plan.packets, &mut stages);
        let Prefixes { mut prefixes, failed, .. } = stages;
        failed.map_or(Ok(()), Err)?;
        prefixes.push(whole(nf.description().name, Arc::clone(nf), plan.options));
        let split = splitting(nf, &plan.options);
        let runs = prefixes.len() + 1;
        let mut figures: Vec<Vec<f64>> = vec![Vec::with_capacity(plan.rounds); runs];
        let mut done = 0;
        for _ in 0..plan.rounds.max(1) {
            for (prefix, figures) in prefixes.iter().chain([&split]).zip(&mut figures) {
                progress(done, (runs * plan.rounds.max(1)) as u64);
                figures.push(plan.time(prefix)?);
                done += 1;
            }
        }
        let names = prefixes.iter().map(|prefix| prefix.name);
        let split = figures.pop().unwrap_or_default();
        // Steering follows the gathering of fragments, or reading.
        let before = usize::from(plan.gather.is_some());
        let steer = difference(&split, &figures[before]);
        let stages = names.zip(stages_of(&figures)).map(|(name, ns)| Stage { name, ns }).collect();
        Ok(Self { stages, steer, packets: plan.packets })
    }

    /// Nanoseconds a packet for the whole path.
    #[must_use]
    pub fn total_ns(&self) -> f64 {
        self.stages.iter().map(|stage| stage.ns.median).sum()
    }
}

/// What each prefix takes more than the one before.
fn stages_of(figures: &[Vec<f64>]) -> Vec<Spread> {
    let zeros = vec![0.0; figures.first().map_or(0, Vec::len)];
    let before = std::iter::once(&zeros).chain(figures);
    figures.iter().zip(before).map(|(with, without)| difference(with, without)).collect()
}

/// The difference of the medians, at least 0, with the smallest and the largest difference of a round.
fn difference(with: &[f64], without: &[f64]) -> Spread {
    let median = |figures: &[f64]| Spread::of(figures).map_or(0.0, |spread| spread.median);
    let by_round: Vec<f64> = with.iter().zip(without).map(|(with, without)| with - without).collect();
    let Spread { min, max, .. } = Spread::of(&by_round).expect("there is at least one round");
    let median = (median(with) - median(without)).max(0.0);
    Spread { min: min.min(median), median, max: max.max(median) }
}

/// What a prefix does with a batch.
type Step = Box<dyn FnMut(&mut Batch)>;
/// Makes a step with empty tables.
type Fresh = Box<dyn Fn() -> Step>;

/// A prefix of the path.
struct Prefix {
    name: &'static str,
    fresh: Fresh,
    /// True if fragments are gathered first, where the plan says so.
    gathers: bool,
}

fn prefix(name: &'static str, step: fn(&mut Batch)) -> Prefix {
    Prefix { name, fresh: Box::new(move || Box::new(step)), gathers: false }
}

/// A function as the end of a path.
fn whole<N: NetworkFunction>(name: &'static str, nf: Arc<N>, options: Options) -> Prefix {
    let fresh = move || -> Step {
        let mut instance = private_instance(EngineKind::Sequential, Arc::clone(&nf), 1, &options);
        Box::new(move |batch: &mut Batch| instance.workers[0].process(batch))
    };
    Prefix { name, fresh: Box::new(fresh), gathers: true }
}

/// Steering to two ways, after fragments were gathered.
fn splitting<N: NetworkFunction>(nf: &Arc<N>, options: &Options) -> Prefix {
    const CORES: usize = 3;
    let (nf, options) = (Arc::clone(nf), Options { cuts: Cuts::Parse, ..*options });
    let fresh = move || -> Step {
        let mut dispatcher = Dispatcher::new(Arc::clone(&nf), EngineKind::Pipeline, CORES, &options);
        let mut shares: Vec<CoreBatch<N::Meta>> = (0..CORES).map(|_| CoreBatch::default()).collect();
        let mut memory = Arc::new(port::Block::Filled(Vec::new()));
        Box::new(move |batch: &mut Batch| {
            batch.share(&mut memory);
            dispatcher.split(batch, &mut shares);
            black_box(&shares);
            shares.iter_mut().for_each(|share| share.batch.clear());
            batch.unshare(&mut memory);
        })
    };
    Prefix { name: "steer", fresh: Box::new(fresh), gathers: true }
}

/// Parses the packets and hashes their keys.
fn parse<N: NetworkFunction>(nf: &N, seed: u64, batch: &mut Batch) {
    let mut all = 0_u64;
    for (packet, bytes) in batch.each(0..batch.len()) {
        let Ok(headers) = packet::parse(packet.link, bytes, packet.wire_len, packet.interface) else { continue };
        if let Some(meta) = nf.meta(&headers, bytes) {
            all ^= hash_of::<N>(&meta.key(), seed);
        }
    }
    black_box(all);
}

/// Collects the prefixes that a function shows.
struct Prefixes<'a, 'p> {
    plan: &'a PathPlan<'p>,
    prefixes: Vec<Prefix>,
    failed: Option<BenchError>,
}

impl Stages for Prefixes<'_, '_> {
    fn rehearse<N: NetworkFunction>(&mut self, nf: N) {
        let rehearsed = self.plan.pass(&whole("rehearsal", Arc::new(nf), self.plan.options));
        self.failed = self.failed.take().or(rehearsed.err());
    }

    fn stage<N: NetworkFunction>(&mut self, name: &'static str, nf: N) {
        self.prefixes.push(whole(name, Arc::new(nf), self.plan.options));
    }
}

impl PathPlan<'_> {
    /// Nanoseconds a packet of a prefix, over as many passes as a round has.
    fn time(&self, prefix: &Prefix) -> Result<f64, BenchError> {
        let passes = self.round_packets.div_ceil(self.packets.max(1) as u64).max(1);
        let mut spent = Duration::ZERO;
        for _ in 0..passes {
            spent += self.pass(prefix)?;
        }
        Ok(spent.as_secs_f64() * 1e9 / (passes * self.packets.max(1) as u64) as f64)
    }

    /// Runs a prefix over the traffic. Returns the processor time.
    fn pass(&self, prefix: &Prefix) -> Result<Duration, BenchError> {
        let mut input = (self.open)()?;
        let mut step = (prefix.fresh)();
        let mut gather = self.gather.filter(|_| prefix.gathers).map(|gather| gather());
        let mut batch = Batch::default();
        let start = processor_time();
        while input.receive(&mut batch)? != Received::End {
            if let Some(gather) = &mut gather {
                gather(&mut batch);
            }
            step(&mut batch);
        }
        Ok(processor_time().saturating_sub(start))
    }
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests;
