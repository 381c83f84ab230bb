//! What `millrace run` yields here: engines over one capture's first packets, by the way that a run takes, timed.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use engine::{Control, EngineKind, Options};
use measure::TIE_PERCENT;
use nf::Description;
use packet::Nanos;
use port::pcap::{Capture, Container, Reader, Writer};
use port::{Batch, Opened, Port, PortError, Receive, ReceiveLosses, Received, Stream};
use serde_json::{Value, json};

use super::engines::machine_cores;
use super::failure::Failed;
use crate::catalogue::Program;

/// How a trial is made.
pub(super) struct Plan<'a> {
    pub(super) input: &'a Path,
    /// Whether there is an output, and in which format, if not the input's: it is written to where nothing is kept.
    pub(super) writes: bool,
    pub(super) format: Option<Container>,
    /// The most cores; no more are tried than the machine has.
    pub(super) cores: usize,
    pub(super) rounds: usize,
    /// How long all of it may take, about.
    pub(super) at_most: Duration,
    pub(super) options: Options,
}

/// What was found.
pub(super) struct Trials {
    pub(super) rows: Vec<Trial>,
    /// The packets that each run took.
    pub(super) packets: u64,
    /// Whether these are all that the capture has.
    pub(super) whole: bool,
    pub(super) took: Duration,
}

/// One engine's part, in millions of packets a second.
pub(super) struct Trial {
    pub(super) engine: EngineKind,
    pub(super) cores: usize,
    pub(super) median: f64,
    /// The least and the most.
    pub(super) range: [f64; 2],
}

/// Packets of the first run by which their number is chosen.
const FIRST_PACKETS: u64 = 20_000;
/// Below so many nothing can be told, and beyond so many nothing more.
const PACKETS_MIN: u64 = 2_000;
const PACKETS_MAX: u64 = 2_000_000;

/// Runs each engine that takes the function, on one core or on several, over the same packets.
pub(super) fn run(
    program: &dyn Program,
    description: &Description,
    plan: &Plan<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Trials, Failed> {
    let start = Instant::now();
    let candidates = candidates(description, plan.cores.min(machine_cores()));
    let runs = (candidates.len() * plan.rounds) as u64;
    let once = |engine, cores, packets| once(program, plan, engine, cores, packets);
    // The first run finds the file in no cache and its memory untouched, and short ones open flows alone: so there are longer ones,
    // until one takes a fair part of what a run may take.
    let a_run = plan.at_most.div_f64(runs as f64);
    let mut packets = FIRST_PACKETS;
    loop {
        let before = Instant::now();
        let (taken, _) = once(EngineKind::Sequential, 1, packets)?;
        let took = before.elapsed();
        if taken < packets || took * 2 >= a_run || packets >= PACKETS_MAX {
            let fits = packets as f64 * a_run.as_secs_f64() / took.as_secs_f64().max(1e-9);
            packets = (fits as u64).clamp(PACKETS_MIN, PACKETS_MAX);
            break;
        }
        packets *= 3;
    }
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); candidates.len()];
    let (mut done, mut all) = (0, 0);
    for _ in 0..plan.rounds {
        for (rates, (engine, cores)) in found.iter_mut().zip(&candidates) {
            let (taken, elapsed) = once(*engine, *cores, packets)?;
            rates.push(taken as f64 / elapsed.as_secs_f64().max(1e-9) / 1e6);
            all = taken;
            done += 1;
            progress(done, runs);
        }
    }
    let row = |((engine, cores), mut rates): ((EngineKind, usize), Vec<f64>)| {
        rates.sort_by(f64::total_cmp);
        let range = [rates[0], rates[rates.len() - 1]];
        Trial { engine, cores, median: rates[rates.len() / 2], range }
    };
    let rows = candidates.into_iter().zip(found).map(row).collect();
    Ok(Trials { rows, packets: all, whole: all < packets, took: start.elapsed() })
}

/// One core, the most, and half of them: engines that take the function there.
fn candidates(description: &Description, most: usize) -> Vec<(EngineKind, usize)> {
    let mut out = vec![(EngineKind::Sequential, 1)];
    for cores in [most / 2, most].into_iter().filter(|cores| *cores > 1) {
        for engine in EngineKind::ALL.into_iter().filter(|engine| *engine != EngineKind::Sequential) {
            if engine.accepts(description, cores).is_ok() {
                out.push((engine, cores));
            }
        }
    }
    out
}

/// Runs one engine over the first packets: how many there were, and how long it took.
fn once(
    program: &dyn Program,
    plan: &Plan<'_>,
    engine: EngineKind,
    cores: usize,
    packets: u64,
) -> Result<(u64, Duration), Failed> {
    let reader = Reader::open(plan.input)?;
    let writer = match plan.writes {
        true => {
            let writer = Writer::create(NOWHERE, plan.format, Some(&reader.format()))?;
            Some(writer.growing(program.growth()))
        }
        false => None,
    };
    let mut port = First { capture: Capture::new(reader, writer), packets };
    let control = Control::default();
    let outcome = thread::scope(|scope| program.start(scope, engine, cores, plan.options, &mut port, &control).wait())?;
    Ok((outcome.counters.received, outcome.elapsed))
}

/// Where what is written is gone.
const NOWHERE: &str = "/dev/null";

/// A capture's first packets.
struct First {
    capture: Capture,
    packets: u64,
}

impl Port for First {
    fn open(&mut self, _cores: usize) -> Result<Opened<'_>, PortError> {
        let left = self.packets;
        let Stream { input, output, order } = self.capture.stream();
        Ok(Opened::Stream(Stream { input: Box::new(Limited { input, left }), output, order }))
    }
}

struct Limited<'a> {
    input: Box<dyn Receive + 'a>,
    left: u64,
}

impl Receive for Limited<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        if self.left == 0 {
            batch.clear();
            return Ok(Received::End);
        }
        let received = self.input.receive(batch)?;
        batch.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= batch.len() as u64;
        Ok(received)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        self.input.wait(at_most)
    }

    fn now(&self) -> Option<Nanos> {
        self.input.now()
    }

    fn lost(&self) -> ReceiveLosses {
        self.input.lost()
    }
}

impl Trials {
    /// The one to take: the plainest on the fewest cores among those that are as good as the fastest. What takes packets in an order
    /// of its own is for its user to want.
    pub(super) fn best(&self) -> &Trial {
        let keeps_order = |row: &&Trial| !matches!(row.engine, EngineKind::Shared | EngineKind::Transactional);
        let rows: Vec<&Trial> = self.rows.iter().filter(keeps_order).collect();
        let most = rows.iter().map(|row| row.median).fold(0.0, f64::max);
        // They are in the order of cores, and of how much there is to an engine.
        let good = rows.iter().find(|row| row.median >= most * (1.0 - TIE_PERCENT / 100.0));
        good.copied().unwrap_or(&self.rows[0])
    }

    /// Why, in words.
    pub(super) fn reason(&self) -> String {
        let best = self.best();
        let mut others: Vec<&Trial> = self.rows.iter().filter(|row| !std::ptr::eq(*row, best)).collect();
        others.sort_by(|a, b| b.median.total_cmp(&a.median));
        let told = |row: &Trial| format!("{} on {} {}", row.engine, row.cores, rate(row.median));
        let over = match self.whole {
            true => "all packets".to_owned(),
            false => format!("the first {} packets", crate::print::number::count(self.packets)),
        };
        let others: Vec<String> = others.into_iter().take(2).map(told).collect();
        let beside = if others.is_empty() { String::new() } else { format!(", {}", others.join(", ")) };
        format!("measured over {over}, in Mpps: {}{beside}", told(best))
    }

    pub(super) fn json(&self) -> Value {
        let row = |row: &Trial| {
            json!({
                "engine": row.engine.name(), "cores": row.cores, "mpps": row.median, "mpps_range": row.range,
                "basis": "measured",
            })
        };
        json!({
            "packets": self.packets, "whole": self.whole, "took_s": self.took.as_secs_f64(), "best": row(self.best()),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

/// Millions of packets a second, few of them with more digits.
pub(super) fn rate(mpps: f64) -> String {
    match mpps {
        ..0.095 => format!("{mpps:.6}"),
        0.095..9.95 => format!("{mpps:.2}"),
        _ => format!("{mpps:.1}"),
    }
}
