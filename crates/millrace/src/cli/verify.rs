//! `millrace verify` compares every engine with `sequential`.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::builder::ArgPredicate;
use engine::{EngineKind, Guarantee, Options};
use lab::conformance::{Mismatch, Plan, Verified};
use nf::Description;
use port::Trace;
use port::pcap::Writer;
use serde_json::{Value, json};

use super::defragment::DefragmentOption;
use super::engines::{self, Choice, Cores};
use super::failure::{Failed, OUTCOME};
use super::steering_options::SteeringOptions;
use super::table_options::{GuardOption, TableOptions};
use super::traffic::Source;
use super::{Configuration, files, signals};
use crate::print::number::{count, counted};
use crate::print::output::{note, print, print_json};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};
use catalogue::{Catalogue, Program};

/// Check that every engine gives the same outcome as the sequential program
///
/// Runs the function over a capture under each engine and on each number of cores, with several random schedules and with real threads.
/// Compares verdicts, rewritten bytes and final state with `sequential`, as far as the engine's guarantee says. If an engine differs:
/// exit code 1, and the smallest prefix of the capture that shows the difference.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace verify heavy-hitter --in a.pcap
  millrace verify nat --in a.pcap --engines scr,shared --cores 1-8 --seeds 20")]
pub(super) struct Args {
    /// Name of the function (`millrace functions` lists them)
    #[arg(
        value_name = "FUNCTION",
        required = false,
        required_unless_present = "chain",
        default_value_if("chain", ArgPredicate::IsPresent, "chain")
    )]
    function: String,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    configuration: Configuration,
    /// Engines, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "LIST", value_parser = engines::choice())]
    engines: Vec<Choice>,
    /// Numbers of cores to run each engine on: 4, 1-8, or 2,5
    #[arg(long, default_value = "1-4", value_name = "LIST", value_parser = engines::core_list)]
    cores: Cores,
    /// Number of random schedules (20), or a range of their seeds (7-7)
    #[arg(long, default_value = "5", value_name = "NUMBER", value_parser = seeds)]
    seeds: Range<u64>,
    /// Run only random schedules, no real threads. Every run can then be repeated from its seed
    #[arg(long)]
    no_threads: bool,
    /// If an engine differs, write the smallest prefix that shows it to this file
    #[arg(long, value_name = "FILE")]
    save_prefix: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    defragment: DefragmentOption,
    #[command(flatten)]
    table_options: TableOptions,
    #[command(flatten)]
    guard_option: GuardOption,
    #[command(flatten)]
    steering_options: SteeringOptions,
}

/// One engine's result.
struct Row {
    engine: EngineKind,
    verified: Verified,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    let entry = args.configuration.entry(catalogue, &args.function)?;
    let program = entry.load(&args.configuration.settings()?)?;
    let description = program.description();
    if let Some(path) = &args.save_prefix {
        files::refuse_output(path, None)?;
    }
    signals::exit_on_interrupt("nothing was verified; the traffic was still being read");
    let traffic = args.source.load(args.json)?;
    let traffic = args.defragment.renumbered(program.wants_whole_datagrams(), traffic, args.json);
    let mut options =
        Options { tables: args.table_options.guarded_tables(&args.guard_option, &*program)?, ..Options::default() };
    args.steering_options.set(&engines::chosen(&args.engines), args.cores.most(), &mut options)?;
    let rows = rows(args, &*program, &options, &traffic.trace);
    if let [Row { verified, .. }, ..] = rows.as_slice()
        && rows.iter().all(|row| row.verified.runs == 0)
        && let Some((.., reason)) = verified.refused.first()
    {
        return Err(Failed::usage(format_args!("nothing can be verified: {reason}")));
    }
    if rows.iter().all(|row| row.verified.runs == 0) {
        let why = "sequential runs only on one core, and no other engine was chosen";
        return Err(Failed::usage(format_args!("nothing was verified: {why}")));
    }
    let failed = rows.iter().find_map(|row| row.verified.mismatch.as_ref());
    let saved = match (failed, &args.save_prefix) {
        (Some(mismatch), Some(path)) => {
            save(&traffic.trace, mismatch.prefix, path)?;
            Some(path.as_path())
        }
        (Some(_) | None, _) => None,
    };
    if args.json {
        print_json(&json(args, &description, &traffic.name, &traffic.trace, &rows, saved))?;
    } else {
        print(&text(args, &description, &traffic.name, &traffic.trace, &rows))?;
        if let Some(mismatch) = failed {
            note(&explain(args, mismatch, saved));
        }
    }
    if failed.is_some() { Err(Failed::Said(OUTCOME)) } else { Ok(()) }
}

fn rows(args: &Args, program: &dyn Program, options: &Options, trace: &Trace) -> Vec<Row> {
    let engines = engines::chosen(&args.engines);
    let done = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
    let shown = Arc::clone(&done);
    let packets = trace.len() as u64;
    let number = engines.len() as u64;
    let sample = move || {
        // ORDERING: Relaxed. Numbers to look at; they pair with the stores below and order nothing.
        let [engine, done, of] = [0, 1, 2].map(|index: usize| shown[index].load(Ordering::Relaxed));
        let of = of.max(1);
        Sample { done: engine * of + done, total: Some(number * of), packets: (engine * of + done) * packets }
    };
    let doing = format!("comparing {} with sequential", counted(number, "engine", "engines"));
    let _progress = Progress::begin(args.json, "verify", &doing, sample);
    let mut rows = Vec::new();
    for (index, engine) in engines.into_iter().enumerate() {
        let mut verified = Verified::default();
        let ranges = args.cores.ranges();
        for range in &ranges {
            let plan = Plan {
                engines: vec![engine],
                cores: range.clone(),
                seeds: args.seeds.clone(),
                threads: !args.no_threads,
                options: *options,
            };
            let before = verified.runs;
            let more = program.verify(trace, &plan, &mut |runs, of| {
                let (runs, of) = (before + runs, before + of);
                signals::so_far(so_far(&rows, engine, runs, of));
                for (number, value) in done.iter().zip([index as u64, runs, of]) {
                    number.store(value, Ordering::Relaxed);
                }
            });
            verified = together(verified, more);
            if verified.mismatch.is_some() {
                break;
            }
        }
        rows.push(Row { engine, verified });
    }
    rows
}

/// Combines two verifications of an engine on different numbers of cores.
fn together(one: Verified, other: Verified) -> Verified {
    let Verified { runs, packets, refused, moves, was_full, mismatch } = other;
    Verified {
        runs: one.runs + runs,
        packets: one.packets + packets,
        refused: one.refused.into_iter().chain(refused).collect(),
        moves: one.moves + moves,
        was_full: one.was_full || was_full,
        mismatch: one.mismatch.or(mismatch),
    }
}

/// The message of an interrupt: engines that are done, and progress of the current one.
fn so_far(rows: &[Row], engine: EngineKind, runs: u64, of: u64) -> String {
    let mut out = String::new();
    for Row { engine, verified } in rows {
        let word = match (&verified.mismatch, verified.runs) {
            (Some(_), _) => "DIFFERS",
            (None, 0) => "refused",
            (None, _) => "equal",
        };
        out += &format!("{engine} {word}, ");
    }
    format!("{out}{engine} equal in {} of {} runs so far; not finished", count(runs), count(of))
}

fn text(args: &Args, description: &Description, name: &str, trace: &Trace, rows: &[Row]) -> String {
    let style = Style::stdout();
    let packets = counted(trace.len() as u64, "packet", "packets");
    let seeds = counted(args.seeds.end - args.seeds.start, "schedule", "schedules");
    let threads = if args.no_threads { "" } else { " and real threads" };
    let mut out = format!("{} over {name} ({packets}), by {seeds}{threads}\n\n", style.bold(description.name));
    let columns =
        [("engine", Align::Left), ("cores", Align::Left), ("runs", Align::Right), ("against sequential", Align::Left)];
    let mut sheet = Sheet::new(style, &columns);
    for Row { engine, verified } in rows.iter().filter(|row| row.verified.runs > 0) {
        let (word, tone) = match &verified.mismatch {
            None if verified.was_full && engine.guarantee(description.sharing) != Guarantee::Identical => {
                ("equal, but not compared where a flow table was full or refused flows".to_owned(), Tone::Bad)
            }
            None => (format!("equal: {}", engine.guarantee(description.sharing)), Tone::Good),
            Some(mismatch) => (format!("DIFFERS on {}", counted(mismatch.cores as u64, "core", "cores")), Tone::Bad),
        };
        let (cores, runs) = (taken(args, *engine, verified), count(verified.runs));
        sheet.toned([(engine.name(), Tone::Bold), (&cores, Tone::Plain), (&runs, Tone::Plain), (&word, tone)]);
    }
    out += &sheet.lines(0);
    for (engine, cores, reason) in rows.iter().filter_map(|row| row.verified.refused.first()) {
        let more = if *cores < args.cores.most() { " or more" } else { "" };
        out += &format!("\n{}: {reason}\n", style.warn(format!("{engine} on {cores}{more} refused")));
    }
    out
}

/// Numbers of cores that an engine supports; refusals are for larger ones.
fn taken(args: &Args, engine: EngineKind, verified: &Verified) -> String {
    match verified.refused.first() {
        _ if engine == EngineKind::Sequential => "1".to_owned(),
        Some((_, refused, _)) => args.cores.below(*refused).to_string(),
        None => args.cores.to_string(),
    }
}

fn explain(args: &Args, mismatch: &Mismatch, saved: Option<&Path>) -> String {
    let Mismatch { engine, cores, seed, prefix, seq, expected, got } = mismatch;
    let style = Style::stderr();
    let how = seed.map_or("by real threads".to_owned(), |seed| format!("by schedule {seed}"));
    let what = seq.map_or("the final state".to_owned(), |seq| format!("packet {}", count(seq.0)));
    let cores_word = counted(*cores as u64, "core", "cores");
    let mut out = format!("\n{} {engine} on {cores_word} differs from sequential, {how}\n", style.bad("error:"));
    out += &format!("  {what}: expected {expected}\n  {}  got {got}\n", " ".repeat(what.len() - 1));
    out += &format!("  the first {} of the capture show the difference", counted(*prefix as u64, "packet", "packets"));
    out += &match saved {
        Some(path) => format!(", and are in {}\n", path.display()),
        None => "; --save-prefix FILE saves them\n".to_owned(),
    };
    if let Some(seed) = seed {
        out += &format!(
            "  repeat: millrace verify {} {}{}{}{} --engines {engine} --cores {cores} --seeds {seed}-{seed} --no-threads\n",
            args.function,
            args.source.again(),
            args.configuration.again(),
            args.table_options.again() + &args.guard_option.again() + &args.defragment.again(),
            args.steering_options.again(*engine),
        );
    }
    out
}

/// Writes the first packets of a trace as a capture.
fn save(trace: &Trace, packets: usize, path: &Path) -> Result<(), Failed> {
    let mut writer = Writer::create(path, None, None)?;
    for (packet, bytes) in trace.iter().take(packets) {
        writer.write(packet, bytes)?;
    }
    Ok(writer.finish()?)
}

fn json(
    args: &Args,
    description: &Description,
    name: &str,
    trace: &Trace,
    rows: &[Row],
    saved: Option<&Path>,
) -> Value {
    let engines: Vec<Value> = rows
        .iter()
        .map(|Row { engine, verified }| {
            let refused: Vec<Value> =
                verified.refused.iter().map(|(_, cores, reason)| json!({ "cores": cores, "reason": reason })).collect();
            let mismatch = verified.mismatch.as_ref().map(|mismatch| {
                json!({
                    "cores": mismatch.cores, "seed": mismatch.seed.map(|seed| seed.to_string()), "prefix": mismatch.prefix,
                    "packet": mismatch.seq.map(|seq| seq.0), "expected": mismatch.expected, "got": mismatch.got,
                })
            });
            json!({
                "engine": engine.name(), "guarantee": engine.guarantee(description.sharing).to_string(), "runs": verified.runs,
                "packets": verified.packets, "equal": (verified.runs > 0).then_some(verified.mismatch.is_none()), "was_full": verified.was_full,
                "refused": refused, "mismatch": mismatch,
            })
        })
        .collect();
    json!({
        "function": description.name, "input": name, "packets": trace.len(),
        "cores": args.cores.to_vec(), "seeds": [args.seeds.start.to_string(), (args.seeds.end - 1).to_string()],
        "threads": !args.no_threads, "equal": rows.iter().all(|row| row.verified.mismatch.is_none()),
        "engines": engines, "saved_prefix": saved.map(|path| path.display().to_string()),
    })
}

/// Parses `20` as the first twenty seeds, `7-9` as these three.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = |_| format!("`{text}` is not a number of schedules: write 20, or 7-7 for one of them");
    match text.split_once('-') {
        None => match text.parse().map_err(wrong)? {
            0 => Err("at least one schedule".to_owned()),
            number => Ok(0..number),
        },
        Some((first, last)) => {
            let (first, last): (u64, u64) = (first.parse().map_err(wrong)?, last.parse().map_err(wrong)?);
            if first <= last && last < u64::MAX {
                Ok(first..last + 1)
            } else {
                Err("the first seed must not be larger than the last".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_tells_what_was_held() {
        let row = |engine, runs, mismatch| Row { engine, verified: Verified { runs, mismatch, ..Verified::default() } };
        let mismatch = Mismatch {
            engine: EngineKind::Scr,
            cores: 2,
            seed: None,
            prefix: 1,
            seq: None,
            expected: String::new(),
            got: String::new(),
        };
        let rows = [
            row(EngineKind::Sequential, 6, None),
            row(EngineKind::Rss, 0, None),
            row(EngineKind::Scr, 3, Some(mismatch)),
        ];
        assert_eq!(
            so_far(&rows, EngineKind::Shared, 1_200, 3_000),
            "sequential equal, rss refused, scr DIFFERS, shared equal in 1,200 of 3,000 runs so far; not finished"
        );
    }
}
