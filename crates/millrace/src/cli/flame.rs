//! A flame graph of processor time by line of a function, and the same as text.

mod fold;
mod known;
mod name;

use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fold::{Folded, fold};
use lab::ProfilePlan;
use port::Trace;
use port::pcap::{Error, Fault, Target, same_file};
use sampler::{Sampler, Samples, has_lines};
use serde_json::{Value, json};

use super::failure::Failed;
use super::files::is_standard;
use super::traffic::{Counter, Source};
use crate::print::flame::{Bar, Flame, Part};
use crate::print::number::{count, counted, percent};
use crate::print::output::remark;
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};
use catalogue::{Code, Program};

/// Output files for processor time by line.
#[derive(clap::Args)]
pub(super) struct Options {
    /// Draw a flame graph of processor time, by line of the function, to this SVG file; - means standard output
    #[arg(long, value_name = "FILE")]
    flame: Option<PathBuf>,
    /// Write the sampled stacks to this file in folded format, which other flame graph tools read; - means standard output
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
}

/// Number of samples that is enough: the share of a line with a tenth of the time is then precise to one percent.
const ENOUGH: u64 = 3000;
/// Maximum time to get that many samples.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum packets of a round, so that sampling stops soon after there are enough.
const ROUND_PACKETS: u64 = 1 << 20;
/// Number of lines in the text.
const LINES: usize = 10;

impl Options {
    fn outputs(&self) -> impl Iterator<Item = &Path> {
        [&self.flame, &self.folded].into_iter().flatten().map(PathBuf::as_path)
    }

    /// True if an output is requested.
    pub(super) fn is_wanted(&self) -> bool {
        self.outputs().next().is_some()
    }

    /// True if standard output is one of the outputs.
    pub(super) fn takes_output(&self) -> bool {
        self.outputs().any(is_standard)
    }

    /// Refuses, before any work, a program without line tables, and outputs that can't be written or would destroy a file.
    pub(super) fn check(
        &self,
        program: &dyn Program,
        function: &str,
        source: &Source,
        config: Option<&Path>,
    ) -> Result<(), Failed> {
        if !self.is_wanted() {
            return Ok(());
        }
        if let (Some(one), Some(other)) = (&self.flame, &self.folded)
            && (one == other || same_file(one, other))
        {
            return Err(Failed::usage(format_args!("--flame and --folded can't both be {}", one.display())));
        }
        if self.flame.as_deref().is_some_and(is_standard) && stdout().is_terminal() {
            return Err(Failed::usage(
                "refusing to write an SVG picture to the terminal; redirect standard output to a file or a program",
            ));
        }
        for output in self.outputs() {
            source.captures.refuse_output(output)?;
            if config.is_some_and(|config| same_file(config, output)) {
                let name = output.display();
                return Err(Failed::usage(format_args!("{name} is also the configuration; write to another file")));
            }
            // Pipes and devices can be opened only once. A file is created to see whether that works.
            if std::fs::metadata(output).map_or(true, |found| found.is_file() || found.is_dir()) {
                drop(Target::create(output).map_err(|fault| at(output, fault))?);
            }
        }
        if !has_lines(program.code().address) {
            let flag = if self.flame.is_some() { "--flame" } else { "--folded" };
            return Err(Failed::usage(format_args!(
                "{flag} needs line tables, and this program was built without them. To build and run with them:\n  \
                 cargo run --profile profiling -- profile {function} ... {flag} FILE"
            )));
        }
        Ok(())
    }

    /// Writes the requested outputs.
    pub(super) fn write(&self, cycles: &Cycles, quiet: bool) -> Result<(), Failed> {
        if let Some(path) = &self.flame {
            write(path, &cycles.flame().svg())?;
            if !quiet && !is_standard(path) {
                remark(&format!("the flame graph is in {}\n", path.display()));
            }
        }
        match &self.folded {
            Some(path) => write(path, &cycles.folded.text()),
            None => Ok(()),
        }
    }
}

/// Writes a file completely or not at all.
fn write(path: &Path, text: &str) -> Result<(), Failed> {
    let mut target = Target::create(path).map_err(|fault| at(path, fault))?;
    target.write_all(text.as_bytes()).map_err(|error| at(path, Fault::from_write(error)))?;
    target.commit().map_err(|error| at(path, Fault::from_write(error)))
}

fn at(path: &Path, fault: Fault) -> Failed {
    Error { path: path.to_owned(), offset: 0, packets: 0, fault }.into()
}

/// Processor time by place.
pub(super) struct Cycles {
    folded: Folded,
    samples: Samples,
    /// What ran, on what.
    title: String,
    subtitle: String,
}

/// Samples a function's workers in separate rounds, so that sampling doesn't affect the figures of the profile. The first round is not
/// sampled: it opens all flows and touches all memory for the first time.
pub(super) fn sample(
    program: &dyn Program,
    trace: &Arc<Trace>,
    plan: &ProfilePlan,
    [function, on]: [&str; 2],
    quiet: bool,
) -> Result<Cycles, Failed> {
    let (taken, packets) = (Counter::default(), Counter::default());
    let (done, seen) = (taken.clone(), packets.clone());
    let progress =
        Progress::watch(quiet, "sample", move || Sample { done: done.get(), total: Some(ENOUGH), packets: seen.get() });
    let mut sampling: Option<(Sampler, Instant)> = None;
    let mut refused = None;
    let plan = ProfilePlan { packets: plan.packets.min(ROUND_PACKETS), ..plan.clone() };
    program.repeat(trace, &plan, &mut |so_far| {
        packets.set(so_far.packets);
        if so_far.rounds == 0 {
            return true;
        }
        if let Some((sampler, since)) = &sampling {
            taken.set(sampler.taken().min(ENOUGH));
            return sampler.taken() < ENOUGH && since.elapsed() < PATIENCE;
        }
        match Sampler::start() {
            Ok(sampler) => sampling = Some((sampler, Instant::now())),
            Err(error) => refused = Some(error),
        }
        refused.is_none()
    })?;
    drop(progress);
    let Some((sampler, _)) = sampling else {
        let error = refused.map(|error| format!(": {error}")).unwrap_or_default();
        return Err(Failed::input(format_args!("no samples can be taken{error}")));
    };
    let samples = sampler.stop();
    let Code { home, .. } = program.code();
    let folded = fold(&samples.stacks, home);
    if folded.total() == 0 {
        let others = counted(folded.elsewhere, "sample", "samples");
        return Err(Failed::input(format_args!(
            "no sample shows a worker, and {others} show other threads: the signal SIGPROF is blocked, or the workers \
             had almost nothing to do"
        )));
    }
    let cores = counted(plan.cores as u64, "core", "cores");
    Ok(Cycles {
        folded,
        samples,
        title: format!("{function}: processor time by line"),
        subtitle: format!("under transactional on {cores}, {on}"),
    })
}

impl Cycles {
    /// Samples per second of processor time.
    fn rate(&self) -> f64 {
        let all = self.folded.total() + self.folded.elsewhere + self.samples.lost;
        all as f64 / self.samples.cpu_time.as_secs_f64().max(1e-9)
    }

    /// Number of samples, and what was left out.
    fn basis(&self) -> String {
        let Samples { by_cpu, lost, .. } = &self.samples;
        let taken = counted(self.folded.total(), "sample", "samples");
        let mut basis = format!("{taken} of workers, {:.0} per second of processor time", self.rate());
        if self.folded.elsewhere > 0 {
            basis += &format!("; {} of other threads left out", count(self.folded.elsewhere));
        }
        if *lost > 0 {
            basis += &format!("; {} without room lost", count(*lost));
        }
        if by_cpu.len() <= BY_CPU_MAX {
            let on = by_cpu.iter().map(|(cpu, samples)| format!("{} on processor {cpu}", count(*samples)));
            basis += &format!("; {}", on.collect::<Vec<_>>().join(", "));
        }
        basis
    }

    fn flame(&self) -> Flame {
        let parts = self.folded.parts();
        let stacks = self
            .folded
            .stacks
            .iter()
            .map(|(cells, samples)| (cells.iter().map(|cell| (cell.part, cell.name.as_str())).collect(), *samples));
        Flame {
            title: self.title.clone(),
            notes: vec![
                self.subtitle.clone(),
                self.basis(),
                "The width of a bar is its share of the samples. No bar is left out. Click a bar to zoom in; click \
                 the lowest bar to see all."
                    .to_owned(),
            ],
            legend: PARTS
                .iter()
                .map(|(part, meaning)| (*part, *meaning, parts.get(part).copied().unwrap_or(0)))
                .collect(),
            bars: Bar::of(stacks),
        }
    }

    /// The hottest lines, and all the rest.
    pub(super) fn text(&self, style: Style) -> String {
        let total = self.folded.total();
        let mut out = format!("\n{}\n  {}\n", style.bold("Processor time by line"), style.dim(self.basis()));
        let columns = [("line", Align::Left), ("in", Align::Left), ("samples", Align::Right), ("", Align::Right)];
        let mut sheet = Sheet::new(style, &columns);
        let lines = self.folded.hottest();
        let (shown, rest) = lines.split_at(lines.len().min(LINES));
        for (line, samples) in shown {
            sheet.row([line.place.clone(), line.function.clone(), count(*samples), percent(*samples, total)]);
        }
        let mut row = |[line, function]: [String; 2], samples: u64| {
            let cells = [line, function, count(samples), percent(samples, total)];
            sheet.toned(cells.map(|cell| (cell, Tone::Dim)));
        };
        if !rest.is_empty() {
            let samples = rest.iter().map(|(_, samples)| samples).sum();
            row([format!("{} more", counted(rest.len() as u64, "line", "lines")), String::new()], samples);
        }
        for (stage, samples) in self.folded.stages() {
            row(["outside".to_owned(), stage.to_owned()], samples);
        }
        out += &sheet.lines(2);
        let parts = self.folded.parts();
        let parts = PARTS
            .map(|(part, meaning)| format!("{meaning} {}", percent(parts.get(&part).copied().unwrap_or(0), total)));
        out + &format!("  {}\n", parts.join(", "))
    }

    /// The same as JSON.
    pub(super) fn json(&self) -> (Value, Value) {
        let lines = self
            .folded
            .hottest()
            .into_iter()
            .map(|(line, samples)| json!({ "line": line.place, "function": line.function, "samples": samples }));
        let outside =
            self.folded.stages().into_iter().map(|(stage, samples)| json!({ "stage": stage, "samples": samples }));
        let parts = self.folded.parts();
        let part = |part| parts.get(&part).copied().unwrap_or(0);
        let samples = json!({
            "total": self.folded.total(),
            "in_lines": self.folded.lines.values().sum::<u64>(),
            "outside": outside.collect::<Vec<_>>(),
            "own": part(Part::Own), "called": part(Part::Called), "engine": part(Part::Engine), "not_attributed": part(Part::Unknown),
            "other_threads": self.folded.elsewhere, "lost": self.samples.lost,
            "per_second": self.rate(), "cpu_time_s": self.samples.cpu_time.as_secs_f64(),
            "by_processor": self.samples.by_cpu.iter().map(|(cpu, samples)| {
                json!({ "processor": cpu, "samples": samples })
            }).collect::<Vec<_>>(),
        });
        (lines.collect(), samples)
    }
}

/// Names of the parts.
const PARTS: [(Part, &str); 4] = [
    (Part::Own, "the function's own lines"),
    (Part::Called, "what they call"),
    (Part::Engine, "the engine, and what it calls"),
    (Part::Unknown, "not attributed"),
];

/// Maximum number of processors listed in the text.
const BY_CPU_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sampler::{Frame, Stack};

    use super::*;

    fn frame(function: &str, file: &str, line: u32) -> Frame {
        Frame { function: function.into(), file: Some(format!("/w/crates/{file}")), line: Some(line) }
    }

    /// Twelve lines of nat, hit 1, 2, ... 12 times, ten samples of the worker's loop, and three of another thread.
    fn cycles() -> Cycles {
        let stack = |inner: Option<Frame>| Stack {
            frames: [frame("serve", "engine/src/run/cores.rs", 1), frame("steps", "engine/src/transacted.rs", 2)]
                .into_iter()
                .chain(inner)
                .collect(),
            whole: true,
        };
        let mut stacks: Vec<(Stack, u64)> = (1..=12)
            .map(|line| (stack(Some(frame("packet", "functions/src/nat.rs", line))), u64::from(line)))
            .collect();
        stacks.push((stack(None), 10));
        stacks.push((Stack { frames: vec![frame("main", "millrace/src/main.rs", 9)], whole: true }, 3));
        let by_cpu = BTreeMap::from([(0, 51), (1, 40)]);
        let folded = fold(&stacks, "functions");
        let samples = Samples { stacks, by_cpu, lost: 0, cpu_time: Duration::from_millis(364) };
        Cycles { folded, samples, title: "nat: time".into(), subtitle: "on 2 cores, a.pcap".into() }
    }

    #[test]
    fn words_tell_ten_lines_and_all_the_rest() {
        let text = cycles().text(Style { colour: false });
        let rows = text.lines().map(|line| line.split_whitespace().rev().collect::<Vec<_>>());
        let rows = rows.filter(|row| row.first() == Some(&"%"));
        let samples: Vec<u64> = rows.filter_map(|row| row[2].parse().ok()).collect();
        assert_eq!(samples, [12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 3, 10], "{text}");
        let basis = "88 samples of workers, 250 per second of processor time; 3 of other threads left out; 51 on \
             processor 0, 40 on processor 1";
        assert!(text.contains(basis), "{text}");
        for row in ["nat.rs:12", "2 lines more", "outside", "the function's own lines 88.6 %, what they call 0.0 %"] {
            assert!(text.contains(row), "{row}: {text}");
        }
    }

    #[test]
    fn programs_read_totals_that_agree() {
        let (lines, samples) = cycles().json();
        let sum =
            |rows: &Value| rows.as_array().unwrap().iter().map(|row| row["samples"].as_u64().unwrap()).sum::<u64>();
        assert_eq!(lines[0], json!({ "line": "nat.rs:12", "function": "packet", "samples": 12 }));
        assert_eq!((sum(&lines), sum(&samples["outside"])), (78, 10));
        assert_eq!((&samples["total"], &samples["in_lines"]), (&json!(88), &json!(78)));
        let parts: u64 =
            ["own", "called", "engine", "not_attributed"].iter().map(|part| samples[part].as_u64().unwrap()).sum();
        assert_eq!(parts, 88);
        assert_eq!((sum(&samples["by_processor"]), &samples["other_threads"]), (91, &json!(3)));
    }

    #[test]
    fn the_picture_has_the_lines_and_what_it_goes_by() {
        let svg = cycles().flame().svg();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
        for text in [
            "nat: time",
            "on 2 cores, a.pcap",
            "nat.rs:12 packet: 12 samples, 13.6 %",
            "take steps: 88 samples, 100.0 %",
        ] {
            assert!(texts.contains(&text), "{text}: {texts:?}");
        }
        for text in ["the function's own lines 88.6 %", "not attributed 0.0 %"] {
            assert!(texts.contains(&text), "{text}: {texts:?}");
        }
    }
}
