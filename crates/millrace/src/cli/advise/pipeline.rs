//! The part of `advise` about the engine `pipeline`: what each stage takes on this traffic, and the rate for each cut.

use std::fs::{self, DirBuilder, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path as FilePath;
use std::{env, process};

use catalogue::Program;
use engine::{Cuts, EngineKind, Options};
use l7::defrag::{Limits, Policy, gathering};
use lab::cuts::{Between, Forked, best, forked};
use lab::path::{Path, PathPlan};
use lab::{BenchError, Spread};
use port::pcap::{Reader, Writer};
use port::{Batch, PortError, Receive, Received, Trace, Work};
use serde_json::{Value, json};

use super::super::bench::fifo::descriptor_ns;
use super::super::bench::json::spread;
use super::super::bench::timed_so_far;
use super::super::failure::Failed;
use super::super::signals;
use super::super::traffic::Counter;
use super::super::trial::{Trials, rate};
use crate::print::number::counted;
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// The most packets that the stages are measured with.
const PACKETS_MAX: usize = 250_000;

/// What was measured and predicted.
pub(super) struct Pipelines {
    path: Path,
    /// Nanoseconds to pass a descriptor between two cores; `None` on a machine with one.
    fifo_ns: Option<Spread>,
    all: Vec<Forked>,
    /// Index of the best that `run` has, on as many cores as were asked for.
    best: Option<usize>,
    cores: usize,
}

/// How the stages are measured.
pub(super) struct Plan {
    pub(super) cores: usize,
    pub(super) rounds: usize,
    pub(super) round_packets: u64,
    pub(super) options: Options,
}

impl Pipelines {
    /// Measures the stages of a function and the queue, and predicts the rate of each cut. `None` if there is no pipeline on so many cores, or
    /// the engine doesn't take the function.
    pub(super) fn measure(
        program: &dyn Program,
        trace: &Trace,
        plan: &Plan,
        quiet: bool,
    ) -> Result<Option<Self>, Failed> {
        let Plan { cores, rounds, round_packets, options } = *plan;
        if cores < 2 || EngineKind::Pipeline.accepts(&program.description(), cores).is_err() {
            return Ok(None);
        }
        let packets = trace.len().min(PACKETS_MAX);
        let (done, of) = (Counter::default(), Counter::default());
        let (shown, total) = (done.clone(), of.clone());
        let sample = move || Sample { done: shown.get(), total: Some(total.get().max(1)), packets: 0 };
        let doing = format!(
            "measuring each stage over {}, in {}",
            counted(packets as u64, "packet", "packets"),
            counted(rounds as u64, "round", "rounds")
        );
        let _progress = Progress::begin(quiet, "advise", &doing, sample);
        let copy = Unnamed::of(trace, packets)?;
        let open = || copy.open();
        let gather: &dyn Fn() -> Work = &|| gathering(Policy::default(), Limits::default());
        let gather = program.wants_whole_datagrams().then_some(gather);
        let options = Options { flows_max: Some(packets.max(16)), ..options };
        let plan = PathPlan { open: &open, packets, gather, rounds, round_packets, options };
        let path = program.path(&plan, &mut |runs, all| {
            signals::so_far(timed_so_far(runs, all));
            done.set(runs);
            of.set(all);
        })?;
        let fifo_ns = descriptor_ns(rounds)?;
        let between = Between { fifo_ns: fifo_ns.map_or(0.0, |spread| spread.median), steer_ns: path.steer.median };
        let all = forked(&path, &between, cores);
        let best = best(&all, cores);
        Ok(Some(Self { path, fifo_ns, all, best, cores }))
    }

    pub(super) fn text(&self, here: Option<&Trials>, style: Style) -> String {
        let Self { path, fifo_ns, .. } = self;
        let mut out = style.bold(format!(
            "pipeline: what each stage takes on one core (ns a packet, measured over {})\n",
            counted(path.packets as u64, "packet", "packets")
        ));
        let columns = [("stage", Align::Left), ("ns", Align::Right), ("from - to", Align::Right), ("", Align::Left)];
        let mut sheet = Sheet::new(style, &columns);
        let mut row = |name: &str, ns: &Spread, what: &str| {
            let range = format!("{:.1} - {:.1}", ns.min, ns.max);
            sheet.toned([
                (name, Tone::Bold),
                (&format!("{:.1}", ns.median), Tone::Plain),
                (&range, Tone::Dim),
                (what, Tone::Dim),
            ]);
        };
        path.stages.iter().for_each(|stage| row(stage.name, &stage.ns, ""));
        row("steer", &path.steer, "where several ways get packets that are not parsed yet");
        if let Some(fifo_ns) = fifo_ns {
            row("queue", fifo_ns, "a descriptor of 16 bytes, on two cores");
        }
        out += &sheet.lines(0);
        let cuts = "\npipeline: the rate for each cut, max(ahead, behind / ways) + queue (Mpps, modelled)\n";
        out += &style.bold(cuts);
        out += &self.table(style).lines(0);
        if fifo_ns.is_none() {
            out += &format!("{}\n", style.dim("the queue is not measured on one core, and counts as nothing"));
        }
        if let Some(measured) = here.and_then(|here| measured(here, &self.all, self.cores)) {
            out += &format!("{}\n", style.dim(measured));
        }
        if let Some(best) = self.best.map(|best| &self.all[best]) {
            let of_one = 1e3 / path.total_ns().max(0.1);
            out += &format!(
                "\nof pipelines on {} take {}: {} Mpps modelled, {} on one core; {}\n",
                counted(self.cores as u64, "core", "cores"),
                style.good(options(best)),
                rate(best.mpps()),
                rate(of_one),
                limit(best, path)
            );
        }
        out
    }

    /// Cuts by ways.
    fn table(&self, style: Style) -> Sheet {
        let ways = columns(self.cores - 1);
        let heads: Vec<String> = ways.iter().map(|ways| counted(*ways as u64, "way", "ways")).collect();
        let mut columns = vec![("cut before", Align::Left), ("ahead ns", Align::Right), ("behind ns", Align::Right)];
        columns.extend(heads.iter().map(|head| (head.as_str(), Align::Right)));
        columns.push(("run has it", Align::Left));
        let mut sheet = Sheet::new(style, &columns);
        let mut cuts: Vec<&[usize]> = self.all.iter().map(|one| one.at.as_slice()).collect();
        cuts.dedup();
        for at in cuts {
            let of: Vec<&Forked> = self.all.iter().filter(|one| one.at == at).collect();
            let Some(widest) = of.last() else { continue };
            let ahead: Vec<String> = widest.ahead_ns.iter().map(|ns| format!("{ns:.1}")).collect();
            let cell = |ways: &usize| {
                let one = self.all.iter().enumerate().find(|(_, one)| one.at == at && one.ways == *ways);
                one.map_or((String::new(), Tone::Plain), |(index, one)| {
                    let is_best = self.best == Some(index);
                    (rate(one.mpps()) + if is_best { " *" } else { "" }, if is_best { Tone::Good } else { Tone::Plain })
                })
            };
            let mut row = vec![
                (self.names(at), Tone::Bold),
                (ahead.join(", "), Tone::Plain),
                (format!("{:.1}", widest.way_ns), Tone::Plain),
            ];
            row.extend(ways.iter().map(cell));
            let has = match of.iter().filter(|one| one.cuts.is_some()).count() {
                0 => "no".to_owned(),
                some if some == of.len() => options_of(widest.cuts),
                _ => format!("one way, {}", options_of(of[0].cuts)),
            };
            row.push((has, Tone::Dim));
            sheet.toned(row);
        }
        sheet
    }

    /// The names of the stages that cores begin with.
    fn names(&self, at: &[usize]) -> String {
        let names: Vec<&str> = at.iter().map(|at| self.path.stages[*at].name).collect();
        names.join(", ")
    }

    pub(super) fn json(&self) -> Value {
        let stage = |name: &str, ns: &Spread| json!({ "stage": name, "ns": spread(ns), "basis": "measured" });
        let one = |one: &Forked| {
            json!({
                "cut_before": one.at.iter().map(|at| self.path.stages[*at].name).collect::<Vec<_>>(),
                "ways": one.ways, "cores": one.cores(), "ahead_ns": one.ahead_ns, "behind_ns": one.way_ns, "ns": one.ns,
                "mpps": one.mpps(), "basis": "modelled", "bound": if one.is_bound_ahead() { "ahead" } else { "ways" },
                "options": one.cuts.map(|_| options(one)),
            })
        };
        json!({
            "packets": self.path.packets,
            "stages": self.path.stages.iter().map(|one| stage(one.name, &one.ns)).collect::<Vec<_>>(),
            "steer": stage("steer", &self.path.steer),
            "queue_ns": self.fifo_ns.as_ref().map(spread),
            "one_core_ns": self.path.total_ns(),
            "cuts": self.all.iter().map(one).collect::<Vec<_>>(),
            "best": self.best.map(|best| one(&self.all[best])),
        })
    }
}

/// The options of `run` for a pipeline.
fn options(one: &Forked) -> String {
    format!("--engine pipeline --cores {} {} --ways {}", one.cores(), options_of(one.cuts), one.ways)
}

fn options_of(cuts: Option<Cuts>) -> String {
    match cuts {
        Some(Cuts::Parse) => "--stages 2",
        Some(Cuts::Defragment) => "--stages 2 --cut defragment",
        Some(Cuts::Both) => "--stages 3",
        None => "",
    }
    .to_owned()
}

/// What limits a pipeline.
fn limit(one: &Forked, path: &Path) -> String {
    let begins = one.at.first().map_or("", |at| path.stages[*at].name);
    match one.is_bound_ahead() {
        true => format!("the cores ahead of {begins} limit it, so more ways don't help"),
        false => format!("the ways limit it, and {} would do more", counted(one.ways as u64 + 1, "way", "ways")),
    }
}

/// The measured rate of the pipeline on the most cores that were tried, beside the modelled one.
fn measured(here: &Trials, all: &[Forked], cores: usize) -> Option<String> {
    let row = here.rows.iter().rfind(|row| row.engine == EngineKind::Pipeline && row.cores <= cores)?;
    let modelled = all.iter().find(|one| one.cuts == Some(Cuts::Parse) && one.cores() == row.cores)?;
    Some(format!(
        "measured above on {}: {} Mpps, where the model has {}; `run` also starts up, and puts the packets in order again",
        counted(row.cores as u64, "core", "cores"),
        rate(row.median),
        rate(modelled.mpps())
    ))
}

/// Numbers of ways to show: all up to six, then the most.
fn columns(most: usize) -> Vec<usize> {
    let mut ways: Vec<usize> = (1..=most.min(6)).collect();
    if most > 6 {
        ways.push(most);
    }
    ways
}

/// A capture of the traffic without compression, in a file that has no name any more, so nothing is left behind whatever happens.
struct Unnamed(File);

impl Unnamed {
    fn of(trace: &Trace, packets: usize) -> Result<Self, Failed> {
        // A folder of its own, which nobody else can have made before.
        let folder = env::temp_dir().join(format!("millrace-advise-{}", process::id()));
        let failed = |error: std::io::Error| {
            Failed::output(&std::io::Error::new(error.kind(), format!("{}: {error}", folder.display())))
        };
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let file = folder.join("traffic.pcapng");
        let written = Self::write(trace, packets, &file);
        let opened = File::open(&file);
        fs::remove_dir_all(&folder).map_err(failed)?;
        written?;
        Ok(Self(opened.map_err(failed)?))
    }

    fn write(trace: &Trace, packets: usize, file: &FilePath) -> Result<(), Failed> {
        let mut writer = Writer::create(file, None, None)?;
        for (packet, bytes) in trace.iter().take(packets) {
            writer.write(packet, bytes)?;
        }
        Ok(writer.finish()?)
    }

    /// Reads it from the beginning.
    fn open(&self) -> Result<Box<dyn Receive>, BenchError> {
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        Ok(Box::new(Input(Reader::open(path).map_err(PortError::from)?)))
    }
}

/// Reads a capture.
struct Input(Reader);

impl Receive for Input {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        Ok(self.0.read(batch)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_numbers_of_ways_are_shown() {
        assert_eq!(columns(1), [1]);
        assert_eq!(columns(6), [1, 2, 3, 4, 5, 6]);
        assert_eq!(columns(15), [1, 2, 3, 4, 5, 6, 15]);
    }
}
