//! `millrace bench`: throughput under each engine, and where it comes from.

mod suite;

use std::ops::RangeInclusive;
use std::sync::Arc;

use engine::{EngineKind, Options};
use measure::{Basis, Bench, BenchPlan, Row, Spread, Work};
use nf::Description;
use port::{HugePages, Trace};
use serde_json::{Value, json};

use super::engines::{self, Choice};
use super::failure::Failed;
use super::traffic::{Counter, Source};
use super::upkeep::Upkeep;
use super::{Configuration, entry, refuse_too_much};
use crate::catalogue::{Catalogue, Program};
use crate::print::number::{self, counted, span};
use crate::print::output::{print, print_json};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// Measure a function's throughput under each engine
///
/// The traffic lies in memory and is replayed over and over; all engines take turns in one run. More cores than the
/// machine has are never timed: their rows are modelled, and say so.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace bench ddos --in a.pcap --cores 1-2
  millrace bench policer --synth uniform --flows 1M --packets 2M --engines rss,scr
  millrace bench suite")]
pub(super) struct Args {
    /// The function (`millrace functions` lists them), or `suite` for the table of targets
    #[arg(value_name = "FUNCTION")]
    function: String,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    configuration: Configuration,
    /// The engines, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "LIST", value_parser = engines::choice())]
    engines: Vec<Choice>,
    /// How many cores each runs on: 2, 1-2, or all
    #[arg(long, default_value = "all", value_name = "RANGE", value_parser = engines::core_range)]
    cores: RangeInclusive<usize>,
    /// How often each case runs; the medians are of these
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// How many packets a case has in a round, at least one pass over the traffic
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse)]
    round_packets: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    upkeep: Upkeep,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    if args.function == "suite" {
        args.source.refuse("suite makes its own traffic")?;
        return suite::perform(args, catalogue);
    }
    let entry = entry(catalogue, &args.function)?;
    let program = entry.load(&args.configuration.settings()?)?;
    let traffic = args.source.load(args.json)?;
    let plan = BenchPlan {
        engines: engines::chosen(&args.engines),
        cores: args.cores.clone().collect(),
        rounds: usize::from(args.rounds),
        packets: args.round_packets,
        options: Options { tables: args.upkeep.tables(&*program)?, ..Options::default() },
        with_bare: false,
        dispatch: Work::NONE,
        loss_free: None,
        model_to: 0,
    };
    refuse_too_much(&*program, tables(&plan))?;
    let bench = timed(&*program, &traffic.trace, &plan, args.json)?;
    if let ([], Some((.., reason))) = (bench.rows.as_slice(), bench.refused.first()) {
        return Err(Failed::usage(format_args!("nothing can be measured: {reason}")));
    }
    if args.json {
        print_json(&json(entry.description(), &traffic.name, &traffic.trace, &bench))
    } else {
        print(&text(entry.description(), &traffic.name, &traffic.trace, &bench))
    }
}

/// How many cores' tables lie in memory at once: engines take turns, and replicas are as many as cores.
fn tables(plan: &BenchPlan) -> usize {
    let of = |engine: &EngineKind| match engine {
        EngineKind::Sequential => 1,
        EngineKind::Shared => plan.cores.len(),
        EngineKind::Rss | EngineKind::Scr => plan.cores.iter().sum(),
    };
    plan.engines.iter().map(of).sum()
}

/// Measures behind a progress bar.
fn timed(program: &dyn Program, trace: &Arc<Trace>, plan: &BenchPlan, quiet: bool) -> Result<Bench, Failed> {
    let (done, of) = (Counter::default(), Counter::default());
    let (shown, total) = (done.clone(), of.clone());
    let packets = plan.packets.max(trace.len() as u64);
    let sample = move || Sample { done: shown.get(), total: Some(total.get().max(1)), packets: shown.get() * packets };
    let _progress = Progress::watch(quiet, "bench", sample);
    let bench = program.bench(trace, plan, &mut |runs, all| {
        done.set(runs);
        of.set(all);
    })?;
    Ok(bench)
}

fn text(description: &Description, name: &str, trace: &Trace, bench: &Bench) -> String {
    let style = Style::stdout();
    let packets = counted(trace.len() as u64, "packet", "packets");
    let mut out = format!("{} on {name} ({packets})\n\n", style.bold(description.name));
    out += &table(bench, style).lines(0);
    for (engine, _, reason) in &bench.refused {
        // On one core `sequential` says it all; that it takes no more is no news.
        if *engine != EngineKind::Sequential {
            out += &format!("{}\n", style.warn(reason));
        }
    }
    let model = &bench.model;
    out += &format!(
        "\nnanoseconds a packet: t = {:.1} ({:.1} dispatch + {:.1} step), {:.1} for each record of a history\n",
        model.t, model.d, model.c1, model.c2
    );
    out += &format!("scr by the model k / (t + (k-1) c2): {}\n", curve(bench));
    if let Some(each) = bench.bytes_per_flow {
        out += &format!("{each:.0} bytes a flow in a full table, which came up in {}\n", span(bench.startup));
    }
    if huge_share(bench) < 0.9 {
        let note = "the kernel gave too few huge pages for the traffic; expect a few nanoseconds more";
        out += &format!("{}\n", style.dim(note));
    }
    out
}

/// The rows, with how they came about.
pub(super) fn table(bench: &Bench, style: Style) -> Sheet {
    let columns = [
        ("engine", Align::Left),
        ("cores", Align::Right),
        ("Mpps", Align::Right),
        ("from - to", Align::Right),
        ("ns/packet/core", Align::Right),
        ("", Align::Left),
    ];
    let mut sheet = Sheet::new(style, &columns);
    for Row { engine, cores, mpps, ns_per_packet_per_core, basis, .. } in &bench.rows {
        sheet.toned([
            (engine.name(), Tone::Bold),
            (&cores.to_string(), Tone::Plain),
            (&format!("{:.2}", mpps.median), Tone::Good),
            (&format!("{:.2} - {:.2}", mpps.min, mpps.max), Tone::Dim),
            (&format!("{:.1}", ns_per_packet_per_core.median), Tone::Plain),
            (basis_name(*basis), if *basis == Basis::Measured { Tone::Dim } else { Tone::Warn }),
        ]);
    }
    sheet
}

const fn basis_name(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "measured",
        Basis::Modelled => "modelled: each core's share alone, one after the other",
    }
}

/// The model's curve, marked as such.
fn curve(bench: &Bench) -> String {
    let points = [1, 2, 4, 8].map(|cores| format!("{:.1} on {cores}", bench.model.mpps(cores)));
    format!("{} (modelled, Mpps)", points.join(", "))
}

/// How much of the traffic lay on huge pages.
fn huge_share(bench: &Bench) -> f64 {
    let HugePages { bytes, huge_bytes } = bench.huge_pages;
    huge_bytes as f64 / bytes.max(1) as f64
}

fn spread(spread: &Spread) -> Value {
    json!({ "min": spread.min, "median": spread.median, "max": spread.max })
}

fn json(description: &Description, name: &str, trace: &Trace, bench: &Bench) -> Value {
    let rows: Vec<Value> = bench
        .rows
        .iter()
        .map(|row| {
            json!({
                "engine": row.engine.name(), "cores": row.cores, "mpps": spread(&row.mpps),
                "ns_per_packet_per_core": spread(&row.ns_per_packet_per_core),
                "basis": if row.basis == Basis::Measured { "measured" } else { "modelled" },
            })
        })
        .collect();
    let refused: Vec<Value> = bench
        .refused
        .iter()
        .map(|(engine, cores, reason)| json!({ "engine": engine.name(), "cores": cores, "reason": reason }))
        .collect();
    let model = &bench.model;
    json!({
        "function": description.name, "input": name, "packets": trace.len(), "rows": rows, "refused": refused,
        "model_ns": { "t": model.t, "d": model.d, "c1": model.c1, "c2": model.c2 },
        "bytes_per_flow": bench.bytes_per_flow, "startup_s": bench.startup.as_secs_f64(), "huge_pages_share": huge_share(bench),
    })
}
