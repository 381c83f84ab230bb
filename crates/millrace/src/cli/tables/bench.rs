//! `millrace tables bench` measures every flow table at every load.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use flow::Ageing;
use lab::tables::{
    Captured, Clock, MADE_UP_PROTOCOL, OWN_BYTES, Op, Resident, Skew, TableKind, TablesBench, TablesPlan, Traffic,
    bench_tables,
};
use packet::{FiveTuple, Nanos};

use super::{capture, json, report, text};
use crate::cli::captures::Captures;
use crate::cli::engines::{Cores, core_list, processor};
use crate::cli::failure::{Failed, INTERRUPTED};
use crate::cli::folder::Folder;
use crate::cli::traffic::Counter;
use crate::cli::{available_bytes, signals};
use crate::print::number::{self, bytes, count};
use crate::print::output::{json_text, note, print, print_json, remark};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;

/// Measure every flow table side by side, on generated flows or on the flows of a capture
///
/// In each round all tables take turns, so that a drift of the machine affects all of them. The baseline is the hash map of Rust's
/// standard library. With captures, the table holds the capture's flows and is looked up in the order of the packets. A load is the share
/// of places in use when all entries are in. Numbers of cores that the machine doesn't have are never timed; their rows are computed and
/// labelled modelled.
#[derive(clap::Args)]
#[command(after_help = "Operations (--ops):
  lookup        look up flows that are in the table, in bursts of 32
  miss          look up flows that are not in the table
  insert        fill the last 5 % of the places
  mixed         90 % of the packets find their flow, the others open or end one
  expire        each packet opens a flow, and as many flows expire, with each --ageing
  burst-expiry  a million flows expire in the same millisecond: time of the slowest packet

Examples:
  millrace tables bench --entries 4M --load 0.5,0.75,0.9,0.95,0.99 --cores 1-2 --report out/
  millrace tables bench --in a.pcap --ops lookup,expire --tables cuckoo++,tagged
  millrace tables bench --zipf 1.0 --entries 100k --json")]
pub(super) struct Args {
    /// Number of flows in a full table
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse)]
    entries: u64,
    /// Loads: shares of the places that are in use, each from 0.01 to 1, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "0.5,0.75,0.9,0.95,0.99", value_name = "LIST", value_parser = load)]
    load: Vec<usize>,
    /// Operations, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "LIST", value_parser = names(Op::ALL.map(Op::name)))]
    ops: Vec<String>,
    /// Tables, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "LIST", value_parser = names(TableKind::ALL.map(TableKind::name)))]
    tables: Vec<String>,
    /// How expired flows are found, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "LIST", value_parser = names(Ageing::ALL.map(Ageing::name)))]
    ageing: Vec<String>,
    #[command(flatten)]
    captures: Captures,
    /// With captures: maximum number of packets to take [default: 10M]
    #[arg(long, value_name = "NUMBER", value_parser = number::parse)]
    packets: Option<u64>,
    /// Generate flows with Zipf popularity: the n-th flow is looked up in proportion to 1 / n^EXPONENT [default: all flows equally often]
    #[arg(long, value_name = "EXPONENT", conflicts_with_all = ["captures", "inputs"], value_parser = exponent)]
    zipf: Option<f64>,
    /// Numbers of cores for which throughput is shown: 2, 1-2, 1,4, or all
    #[arg(long, default_value = "all", value_name = "LIST", value_parser = core_list)]
    cores: Cores,
    /// Number of times that each case runs; figures are medians over these rounds
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Packets of one case in a round
    #[arg(long, default_value = "500k", value_name = "NUMBER", value_parser = number::parse)]
    round_packets: u64,
    /// Lifetime of flows in `expire`, in seconds of packet time. Flows that live longer than half a minute are also looked up on the way
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    lifetime: u32,
    /// Write a page with plots (index.html) and all figures (tables.json) into this folder
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Everything that is printed.
pub(super) struct Measured {
    pub(super) bench: TablesBench,
    pub(super) plan: TablesPlan,
    pub(super) clock: Clock,
    pub(super) entries: usize,
    /// Source of the flows, as text.
    pub(super) source: String,
    /// The command line to repeat it.
    pub(super) again: String,
    /// The processor, as in `/proc/cpuinfo`.
    pub(super) processor: String,
}

impl Measured {
    /// Rows of `op`, by table, then load. The baseline has one load; its row is from the round of [`TablesPlan::scaling_load`].
    pub(super) fn rows(&self, op: Op) -> Vec<&Resident> {
        let held = self.plan.scaling_load();
        let of = move |kind: TableKind| {
            let rows = self.bench.resident.iter().filter(move |row| row.op == op && row.table == kind);
            rows.filter(move |row| kind.is_ours() || row.turn_percent == held)
        };
        TableKind::ALL.into_iter().flat_map(of).collect()
    }

    /// Operations with [`rows`](Self::rows).
    pub(super) fn resident_ops(&self) -> Vec<Op> {
        Op::ALL.into_iter().filter(|op| !self.rows(*op).is_empty()).collect()
    }

    /// The tables that were measured, in the usual order.
    pub(super) fn tables(&self) -> Vec<TableKind> {
        TableKind::ALL.into_iter().filter(|kind| self.plan.tables.contains(kind)).collect()
    }

    /// For each table: the highest load at which 99.99 % of the flows fitted, and the bytes of an entry there as a multiple of the flow's
    /// own bytes.
    pub(super) fn densest(&self) -> Vec<(TableKind, f64, f64)> {
        let rows = self.resident_ops().first().map_or_else(Vec::new, |op| self.rows(*op));
        let full = |row: &&&Resident| row.inserted as f64 >= row.offered as f64 * 0.9999;
        let of = |kind: TableKind| {
            let some = rows.iter().filter(full).filter(|row| row.table == kind);
            let best = some.max_by(|one, other| one.load_percent.total_cmp(&other.load_percent))?;
            Some((kind, best.load_percent, best.bytes_per_entry / OWN_BYTES as f64))
        };
        self.tables().into_iter().filter_map(of).collect()
    }
}

/// Fewer entries are always in the caches; more need more than 32-bit slots.
const ENTRIES: RangeInclusive<u64> = 1_000..=1 << 28;
/// Default of --packets.
const PACKETS: u64 = 10_000_000;
/// Fixed seed, so that runs are comparable.
const SEED: u64 = 1;

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    if !ENTRIES.contains(&args.entries) {
        let (from, to) = (count(*ENTRIES.start()), count(*ENTRIES.end()));
        return Err(Failed::usage(format_args!("--entries takes {from} to {to}")));
    }
    if !(1 << 10..=1 << 32).contains(&args.round_packets) {
        return Err(Failed::usage("--round-packets takes 1,024 to 4,294,967,296"));
    }
    if !args.captures.is_given() && (args.packets.is_some() || args.captures.is_part()) {
        let part = "--packets, --filter, --from and --to need a capture";
        return Err(Failed::usage(format_args!("{part}; give one with --in, or omit them")));
    }
    let entries = args.entries as usize;
    let plan = args.plan();
    refuse_too_much(&plan, entries)?;
    let stop = Arc::default();
    signals::stop_on_interrupt(&stop);
    // Interrupts are handled from here on; a test waits for the folder before it sends one.
    let folder = args.report.as_deref().map(Folder::make).transpose()?;
    let (traffic, source) = match args.captures.is_given() {
        true => {
            let (captured, packets) = captured(&args.captures, args.packets(), args.json, &stop)?;
            let name = args.captures.name();
            let flows = captured.flows.len();
            let filled = match entries.cmp(&flows) {
                std::cmp::Ordering::Less => format!("the first {} of its IPv4 flows", count(entries as u64)),
                std::cmp::Ordering::Equal => "all of its IPv4 flows".to_owned(),
                std::cmp::Ordering::Greater => {
                    format!("its {} IPv4 flows, copied with other hosts until the table is full", count(flows as u64))
                }
            };
            let source = format!("{name}: {filled}, in the order of {} packets", count(packets));
            (Traffic::captured(&captured, entries, SEED), source)
        }
        false => match args.zipf {
            Some(exponent) => (
                Traffic::made_up(entries, Skew::Zipf(exponent), SEED),
                format!("generated flows, looked up by Zipf's law ({exponent})"),
            ),
            None => (
                Traffic::made_up(entries, Skew::Uniform, SEED),
                "generated flows, all looked up equally often".to_owned(),
            ),
        },
    };

    let (done, of) = (Counter::default(), Counter::default());
    let (shown, total, packets) = (done.clone(), of.clone(), args.round_packets);
    let sample = move || Sample { done: shown.get(), total: Some(total.get().max(1)), packets: shown.get() * packets };
    let doing = format!("timing {}", number::counted(plan.tables.len() as u64, "table", "tables"));
    let progress = Progress::begin(args.json, "tables", &doing, sample);
    let clock = Clock::here();
    let bench = bench_tables(
        &traffic,
        &plan,
        &mut |passes, all| {
            done.set(passes);
            of.set(all);
        },
        &stop,
    );
    drop(progress);

    let measured = Measured { bench, plan, clock, entries, source, again: args.again(), processor: processor() };
    let interrupted = measured.bench.interrupted;
    if args.json {
        print_json(&json::measured(&measured))?;
    } else {
        print(&text::measured(&measured, Style::stdout()))?;
    }
    if interrupted {
        let report = if folder.is_some() { "; no report was written" } else { "" };
        note(&format!("interrupted: only the complete parts are shown{report}\n"));
        return Err(Failed::Said(INTERRUPTED));
    }
    if let Some(folder) = folder {
        folder.write("tables.json", &json_text(&json::measured(&measured)))?;
        let page = folder.write("index.html", &report::page(&measured))?;
        if !args.json {
            remark(&format!("the report is in {}\n", page.display()));
        }
    }
    Ok(())
}

impl Args {
    fn packets(&self) -> u64 {
        self.packets.unwrap_or(PACKETS)
    }

    fn plan(&self) -> TablesPlan {
        let chosen = |names: &[String], name: &str| names.iter().any(|chosen| chosen == name);
        // On request, one more row of the default index shows the cost of choosing it at run time.
        let by_all = |kind: &TableKind| *kind != TableKind::Chosen && chosen(&self.tables, "all");
        let mut loads = self.load.clone();
        loads.sort_unstable();
        loads.dedup();
        TablesPlan {
            tables: TableKind::ALL
                .into_iter()
                .filter(|kind| by_all(kind) || chosen(&self.tables, kind.name()))
                .collect(),
            loads,
            ops: Op::ALL.into_iter().filter(|op| chosen(&self.ops, "all") || chosen(&self.ops, op.name())).collect(),
            ageings: Ageing::ALL
                .into_iter()
                .filter(|ageing| chosen(&self.ageing, "all") || chosen(&self.ageing, ageing.name()))
                .collect(),
            cores: self.cores.to_vec(),
            rounds: usize::from(self.rounds),
            round_packets: self.round_packets,
            lifetime: Nanos::from_secs(u64::from(self.lifetime)),
            seed: SEED,
        }
    }

    /// The command line that measures the same again.
    fn again(&self) -> String {
        let mut line = format!("millrace tables bench --entries {}", self.entries);
        match (self.captures.is_given(), self.zipf) {
            (true, _) => line += &format!(" {} --packets {}", self.captures.again(), self.packets()),
            (false, Some(exponent)) => line += &format!(" --zipf {exponent}"),
            (false, None) => {}
        }
        let loads: Vec<String> = self.load.iter().map(|load| (*load as f64 / 100.0).to_string()).collect();
        line += &format!(" --load {} --ops {} --tables {}", loads.join(","), self.ops.join(","), self.tables.join(","));
        line += &format!(" --ageing {} --cores {}", self.ageing.join(","), self.cores);
        line + &format!(" --rounds {} --round-packets {} --lifetime {}", self.rounds, self.round_packets, self.lifetime)
    }
}

/// The IPv4 flows of a capture.
fn captured(
    captures: &Captures,
    packets_max: u64,
    quiet: bool,
    stop: &Arc<std::sync::atomic::AtomicBool>,
) -> Result<(Captured, u64), Failed> {
    let mut numbers = HashMap::new();
    let mut captured = Captured::default();
    let mut v6 = 0_u64;
    let full = u32::MAX as usize;
    capture::read(captures, packets_max, quiet, stop, |seen| match seen.flow {
        FiveTuple::V4(_) if seen.flow.protocol() == MADE_UP_PROTOCOL => {}
        FiveTuple::V4(flow) if captured.packets.len() < full => {
            let number = *numbers.entry(flow).or_insert_with(|| {
                captured.flows.push(flow);
                captured.flows.len() as u32 - 1
            });
            captured.packets.push(number);
        }
        FiveTuple::V4(_) => {}
        FiveTuple::V6(_) => v6 += 1,
    })?;
    if captured.flows.is_empty() {
        return Err(Failed::input(format_args!(
            "{} has no IPv4 flows, and tables are measured with IPv4 flows",
            captures.name()
        )));
    }
    if v6 > 0 && !quiet {
        let left = number::counted(v6, "packet", "packets");
        remark(&format!("{left} of IPv6 flows left out: tables are measured with IPv4 flows\n"));
    }
    let packets = captured.packets.len() as u64;
    Ok((captured, packets))
}

/// Refuses more memory than the machine has; otherwise the kernel would kill a process.
fn refuse_too_much(plan: &TablesPlan, entries: usize) -> Result<(), Failed> {
    let need = plan.bytes(entries);
    match available_bytes() {
        Some(have) if need > have / 10 * 9 => Err(Failed::usage(format_args!(
            "the tables in memory at once would need about {}, but only {} are free; use fewer --entries, or fewer \
             --tables, --ageing or --ops",
            bytes(need),
            bytes(have)
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Parses one of these names, or `all`.
fn names<const N: usize>(names: [&'static str; N]) -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new([&["all"], names.as_slice()].concat())
}

/// Parses `0.75` as 75 percent.
fn load(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is not a load: write the share of places in use, from 0.01 to 1: 0.75");
    let share: f64 = text.parse().map_err(|_| wrong())?;
    let percent = (share * 100.0).round();
    let whole = (share * 100.0 - percent).abs() < 1e-6;
    if whole && (1.0..=100.0).contains(&percent) { Ok(percent as usize) } else { Err(wrong()) }
}

fn exponent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(exponent) if (0.0..=10.0).contains(&exponent) => Ok(exponent),
        _ => Err("write a number from 0 to 10, such as 1.0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_shares() {
        for (text, percent) in [("0.5", 50), ("0.75", 75), ("1", 100), ("0.01", 1), ("0.29", 29), (".9", 90)] {
            assert_eq!(load(text), Ok(percent), "{text}");
        }
        for text in ["0", "1.01", "75", "0.755", "-0.5", "NaN", "half", ""] {
            assert!(load(text).is_err(), "{text}");
        }
    }
}
