//! Trial runs: times `millrace run` under every engine over a capture's first packets.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use engine::EngineKind;
use lab::TIE_PERCENT;
use nf::Description;
use port::pcap::Container;
use port::{Batch, Received};
use serde_json::{Value, json};

use super::captures::Captures;
use super::engines::machine_cores;
use super::failure::Failed;

/// Parameters of the trial runs.
pub(super) struct Plan<'a> {
    pub(super) function: &'a str,
    /// Arguments that configure the function and its tables.
    pub(super) again: Vec<OsString>,
    pub(super) input: &'a Captures,
    /// True if the run has an output; trial runs write to `/dev/null`. `format` is its format if it is not the input's.
    pub(super) writes: bool,
    pub(super) format: Option<Container>,
    /// Maximum number of cores; the machine's number is a limit, too.
    pub(super) cores: usize,
    /// Value of `--packets`.
    pub(super) packets: Option<u64>,
    pub(super) rounds: usize,
    /// Approximate time budget of all trial runs.
    pub(super) at_most: Duration,
}

/// Results of the trial runs.
pub(super) struct Trials {
    pub(super) rows: Vec<Trial>,
    /// Packets of each run.
    pub(super) packets: u64,
    /// True if these are all packets of the capture.
    pub(super) whole: bool,
    pub(super) took: Duration,
}

/// Result of one engine, in Mpps; extrapolated to the whole capture if the runs were shorter.
pub(super) struct Trial {
    pub(super) engine: EngineKind,
    pub(super) cores: usize,
    pub(super) median: f64,
    /// Minimum and maximum.
    pub(super) range: [f64; 2],
}

/// Packets of the first run by which their number is chosen.
const FIRST_PACKETS: u64 = 20_000;
/// Limits of the number of packets of a run.
const PACKETS_MIN: u64 = 2_000;
const PACKETS_MAX: u64 = 2_000_000;

/// Runs every engine that supports the function over the same packets, on one core and on several.
pub(super) fn run(
    description: &Description,
    plan: &Plan<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Trials, Failed> {
    let start = Instant::now();
    let candidates = candidates(description, plan.cores.min(machine_cores()));
    let runs = (candidates.len() * plan.rounds) as u64;
    let once = |engine, cores, packets| once(plan, engine, cores, packets);
    // The first run has a cold file cache and untouched memory, and a short run mostly opens flows. So runs get longer until one takes a
    // fair part of its time budget. Each is done twice, also over a third of the packets.
    let a_run = plan.at_most.div_f64(runs as f64 * 4.0 / 3.0);
    let mut packets = FIRST_PACKETS;
    loop {
        // The second time the file is in the system's cache, as it is for the runs that count.
        let (mut taken, mut took) = (0, Duration::MAX);
        for _ in 0..2 {
            let before = Instant::now();
            (taken, _) = once(EngineKind::Sequential, 1, packets)?;
            took = took.min(before.elapsed());
        }
        if taken < packets || took * 2 >= a_run || packets >= PACKETS_MAX {
            let fits = packets as f64 * a_run.as_secs_f64() / took.as_secs_f64().max(1e-9);
            packets = (fits as u64).clamp(PACKETS_MIN, PACKETS_MAX);
            break;
        }
        packets *= 3;
    }
    let limit = plan.packets.unwrap_or(u64::MAX);
    let packets = packets.min(limit);
    let all = length(plan.input, packets)?.min(limit as f64);
    let mut found: Vec<Vec<Timed>> = vec![Vec::new(); candidates.len()];
    let mut done = 0;
    for _ in 0..plan.rounds {
        for (times, (engine, cores)) in found.iter_mut().zip(&candidates) {
            let part = match all > packets as f64 {
                true => once(*engine, *cores, packets / 3)?,
                false => (0, Duration::ZERO),
            };
            times.push(Timed { part, whole: once(*engine, *cores, packets)? });
            done += 1;
            progress(done, runs);
        }
    }
    let row = |((engine, cores), times): ((EngineKind, usize), Vec<Timed>)| {
        let mut rates: Vec<f64> = times.iter().map(|timed| timed.mpps(all)).collect();
        rates.sort_by(f64::total_cmp);
        let range = [rates[0], rates[rates.len() - 1]];
        // Take the medians of both lengths separately: one disturbed run would spoil the difference of a round, but not of the medians.
        let typical = Timed {
            part: median(times.iter().map(|timed| timed.part)),
            whole: median(times.iter().map(|timed| timed.whole)),
        };
        Trial { engine, cores, median: typical.mpps(all).clamp(range[0], range[1]), range }
    };
    let rows = candidates.into_iter().zip(found).map(row).collect();
    let packets = packets.min(all as u64);
    Ok(Trials { rows, packets, whole: all <= packets as f64, took: start.elapsed() })
}

/// Two runs of an engine, over a third of the packets and over all: number of packets, and time.
#[derive(Clone, Copy, Debug)]
struct Timed {
    part: (u64, Duration),
    whole: (u64, Duration),
}

impl Timed {
    /// Mpps over a capture of `all` packets. The difference of the two runs gives the rate; the rest of the time is a start-up cost that
    /// comes once. The rate is at most twice the average one: more is noise.
    fn mpps(&self, all: f64) -> f64 {
        let [(part, short), (whole, long)] =
            [self.part, self.whole].map(|(count, time)| (count as f64, time.as_secs_f64()));
        let more = (long - short).max(long * (whole - part) / whole.max(1.0) / 2.0);
        let time = match all > whole && whole > part && part > 0.0 {
            true => long + more / (whole - part) * (all - whole),
            false => long * all.max(whole) / whole.max(1.0),
        };
        all.max(whole) / time.max(1e-9) / 1e6
    }
}

/// The median by time; of two the lower one, as whatever disturbs slows down.
fn median(runs: impl Iterator<Item = (u64, Duration)>) -> (u64, Duration) {
    let mut runs: Vec<(u64, Duration)> = runs.collect();
    runs.sort_by_key(|(_, time)| *time);
    runs[(runs.len() - 1) / 2]
}

/// Estimates the number of packets of a capture from the share of the file that its first packets take.
fn length(input: &Captures, packets: u64) -> Result<f64, Failed> {
    let mut reader = input.open()?;
    let progress = reader.progress();
    let (mut batch, mut seen) = (Batch::default(), 0);
    while seen < packets {
        // Errors in the capture are reported by the run.
        match reader.read(&mut batch) {
            Ok(Received::Packets | Received::Idle) => seen += batch.len() as u64,
            Ok(Received::End) | Err(_) => return Ok(seen as f64),
        }
    }
    let share = progress.total().map_or(1.0, |total| progress.consumed() as f64 / total.max(1) as f64);
    Ok(seen as f64 / share.clamp(1e-9, 1.0))
}

/// The engines and numbers of cores to try: one core, the maximum, and half of it.
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

/// Runs one engine over the first packets, in a process of its own: page faults of fresh memory are part of a run's time. Returns the
/// number of packets, and the time.
fn once(plan: &Plan<'_>, engine: EngineKind, cores: usize, packets: u64) -> Result<(u64, Duration), Failed> {
    let failed = |what: &dyn std::fmt::Display| Failed::input(format_args!("can't time an engine: {what}"));
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command.arg("run").arg(plan.function).args(plan.input.arguments()).args(&plan.again);
    command.args(["--engine", engine.name(), "--json", "--quiet"]);
    command.arg("--cores").arg(cores.to_string()).arg("--packets").arg(packets.to_string());
    if plan.writes {
        command.args(["--out", NOWHERE]);
        if let Some(format) = plan.format {
            command.args(["--format", if format == Container::Pcap { "pcap" } else { "pcapng" }]);
        }
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(&error))?;
    // Errors in the capture are reported by the run, after its figures.
    let reported: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| failed(&String::from_utf8_lossy(&output.stderr).trim_start_matches("error: ").trim()))?;
    let received = reported["packets"]["received"].as_u64().unwrap_or(0);
    Ok((received, Duration::from_secs_f64(reported["elapsed_s"].as_f64().unwrap_or(0.0).max(0.0))))
}

/// Output of trial runs.
const NOWHERE: &str = "/dev/null";

impl Trials {
    /// The engine to take: among those within [`TIE_PERCENT`] of the fastest the simplest, on the fewest cores. `shared` and
    /// `transactional` are left out, as they reorder packets.
    pub(super) fn best(&self) -> &Trial {
        let keeps_order = |row: &&Trial| !matches!(row.engine, EngineKind::Shared | EngineKind::Transactional);
        let rows: Vec<&Trial> = self.rows.iter().filter(keeps_order).collect();
        let most = rows.iter().map(|row| row.median).fold(0.0, f64::max);
        // They are ordered by cores, then by complexity of the engine.
        let good = rows.iter().find(|row| row.median >= most * (1.0 - TIE_PERCENT / 100.0));
        good.copied().unwrap_or(&self.rows[0])
    }

    /// The figures of the best engine and of the next two, in a sentence.
    pub(super) fn reason(&self) -> String {
        let best = self.best();
        let mut others: Vec<&Trial> = self.rows.iter().filter(|row| !std::ptr::eq(*row, best)).collect();
        others.sort_by(|a, b| b.median.total_cmp(&a.median));
        let reported = |row: &Trial| format!("{} on {} {}", row.engine, row.cores, rate(row.median));
        let over = match self.whole {
            true => "all packets".to_owned(),
            false => format!("the first {} packets and extrapolated", crate::print::number::count(self.packets)),
        };
        let others: Vec<String> = others.into_iter().take(2).map(reported).collect();
        let beside = if others.is_empty() { String::new() } else { format!(", {}", others.join(", ")) };
        format!("measured over {over}, in Mpps: {}{beside}", reported(best))
    }

    pub(super) fn json(&self) -> Value {
        let row = |row: &Trial| {
            json!({
                "engine": row.engine.name(), "cores": row.cores, "mpps": row.median, "mpps_range": row.range,
                "basis": if self.whole { "measured" } else { "extrapolated" },
            })
        };
        json!({
            "packets": self.packets, "whole": self.whole, "took_s": self.took.as_secs_f64(), "best": row(self.best()),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

/// A rate in millions of packets a second; small rates with more digits.
pub(super) fn rate(mpps: f64) -> String {
    match mpps {
        ..0.095 => format!("{mpps:.6}"),
        0.095..9.95 => format!("{mpps:.2}"),
        _ => format!("{mpps:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_once_is_not_multiplied() {
        let of = |packets: u64, millis: u64| (packets, Duration::from_millis(millis));
        let near = |got: f64, right: f64| assert!((got / right - 1.0).abs() < 1e-9, "{got} is not {right}");
        // 10 ms at the start, and 10 ms for each 10,000 packets.
        let timed = Timed { part: of(10_000, 20), whole: of(30_000, 40) };
        near(timed.mpps(1e6), 1.0 / 1.01);
        near(timed.mpps(30_000.0), 0.03 / 0.04);
        // A part that was disturbed doesn't make the rest free.
        let disturbed = Timed { part: of(10_000, 60), whole: of(30_000, 40) };
        assert!(disturbed.mpps(1e6) < 4.0 * 0.75, "{}", disturbed.mpps(1e6));
        // Of a capture that is all there, what it took.
        near(Timed { part: of(0, 0), whole: of(500, 1) }.mpps(500.0), 0.5);
    }
}
