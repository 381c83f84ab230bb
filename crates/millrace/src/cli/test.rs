//! `millrace test` checks functions against case files, and every engine against the same packets.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use case::{Case, Cases, Difference};
use engine::Options;
use lab::conformance::{Mismatch, Plan};
use serde_json::{Value, json};

use super::engines::{self, Choice, Cores};
use super::failure::{Failed, OUTCOME};
use super::{configuration, entry, signals};
use crate::print::number::counted;
use crate::print::output::{note, print, print_json};
use crate::print::style::Style;
use catalogue::cases::{self, CaseDifference, CaseResult};
use catalogue::{Catalogue, CatalogueEntry};

/// Check functions against case files, which say what happens to each packet
///
/// A case file lists the packets that come in, and the expected outcome of each. Each case starts with fresh state and runs packet by
/// packet. Every engine that supports the function is then compared with that run, with random schedules and real threads, on each number
/// of cores. If anything differs: exit code 1, with the line of the file and the actual outcome of the packet.
#[derive(clap::Args)]
#[command(after_help = SHORT, after_long_help = LANGUAGE)]
pub(super) struct Args {
    /// Case files, in TOML
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Engines, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "LIST", value_parser = engines::choice())]
    engines: Vec<Choice>,
    /// Numbers of cores to run each engine on: 4, 1-8, or 2,5
    #[arg(long, default_value = "1-4", value_name = "LIST", value_parser = engines::core_list)]
    cores: Cores,
    /// Number of random schedules for each case, engine and number of cores
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An example of a case file in the help. Lines longer than 98 columns would be wrapped.
macro_rules! example {
    () => {
        "\
A case file:

  function = \"nat\"

  [[case]]
  name = \"an inside host reaches out, and is answered\"
  config.external = [\"203.0.113.1\"]
  packets = '''
  0s     tcp 10.0.0.5:5000 > 192.0.2.7:80 S       -> forward tcp 203.0.113.1:5000 > 192.0.2.7:80
  +20ms  tcp 192.0.2.7:80 > 203.0.113.1:5000 S.   -> forward tcp 192.0.2.7:80 > 10.0.0.5:5000
  +1s    udp 192.0.2.7:53 > 203.0.113.1:53        -> drop no-mapping
  '''
"
    };
}

const SHORT: &str = concat!(
    example!(),
    "
Example:  millrace test testdata/nf/nat.toml

`millrace test --help` explains how to write packets."
);

const LANGUAGE: &str = concat!(
    example!(),
    "
A line of `packets`:

  TIME [xCOUNT [every SPAN]] [on INTERFACE] PACKET [-> OUTCOME]     # comment

  TIME, SPAN  20ms, 1.5s; units ns, us, ms, s, min, h. A time counts from the start of the case.
              With + it counts from the packet before (the last one if that line has a COUNT).
              Without `every`, all COUNT packets have the same time
  INTERFACE   number of the input interface [default: 0]; a function with two sides has 0 and 1
  OUTCOME     forward           unchanged, to the other port
              forward PACKET    rewritten: the given fields change, all others stay the same, and
                                checksums are right
              forward back ...  to the input port; `forward by 2 ...` to port 2
              reply PACKET      answered; fields that aren't given may have any value
              drop REASON       dropped for this reason (`millrace functions NAME` lists them)
              Without an OUTCOME, any outcome is accepted.

  PACKET      [eth MAC > MAC] [vlan NUMBER]... and one of

    tcp ADDRESS:PORT > ADDRESS:PORT [FLAGS] [seq N] [ack N] [window N] [mss N] [wscale N] [sack]
         FLAGS as in tcpdump: S, S., ., P., F., R, or `none` [default: .]
    udp ADDRESS:PORT > ADDRESS:PORT
    icmp ADDRESS > ADDRESS echo-request|echo-reply|type N [code N] [id N] [seq N]
         [quoting (PACKET)]
    ip ADDRESS > ADDRESS proto N
         any protocol; also later fragments, which have no ports
    arp  a request
    hex DIGITS
         a whole Ethernet frame

  All IP packets may also have [ttl N] [tos N] [ip-id N] [fragment OFFSET[+]] (+ means that more
  fragments follow), and a payload: [len N | \"TEXT\" | hex DIGITS]. Escapes in TEXT are
  \\r \\n \\t \\\" \\\\ \\x0a. The bytes of `len` count up from 0.

  Defaults: from 02:00:00:00:00:01 to 02:00:00:00:00:02, ttl 64, window 65535, other numbers 0,
  no payload. If the outgoing packet is of another kind than the incoming one (for example, out
  of a tunnel), fields that aren't given may have any value.

A case may also have

  config      the function's configuration: config.ports = \"1024-2047\", or a table. A [config]
              before the first case is for all cases
  report      rows of the function's report at the last packet's time, in order:
              [[\"10.0.0.1\", 3]]; text as it is printed
  title       title of that report

Example:  millrace test testdata/nf/nat.toml"
);

/// Results of a file.
struct Tested {
    file: String,
    function: String,
    cases: Vec<CaseResult>,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    signals::exit_on_interrupt("not all cases were run");
    // Read all files first, so that an error in the last is reported before the first runs.
    let files = args.files.iter().map(|path| read(path, catalogue)).collect::<Result<Vec<_>, _>>()?;
    let plan = |cores| Plan {
        engines: engines::chosen(&args.engines),
        cores,
        seeds: 0..args.seeds,
        threads: true,
        options: Options::default(),
    };
    let plans: Vec<Plan> = args.cores.ranges().into_iter().map(plan).collect();
    let mut tested = Vec::new();
    for (file, entry, cases) in files {
        let checked = |case: &Case| cases::check_case_all(entry, &file, case, &plans).map_err(Failed::usage);
        let results = cases.cases.iter().map(checked).collect::<Result<Vec<_>, _>>()?;
        let tested_file = Tested { file, function: cases.function, cases: results };
        if !args.json {
            print(&text(&tested_file))?;
        }
        tested.push(tested_file);
    }
    let wrong = tested.iter().flat_map(|tested| &tested.cases).filter(|result| !result.is_right()).count();
    if args.json {
        print_json(&json(&tested, wrong == 0))?;
    } else {
        let all: usize = tested.iter().map(|tested| tested.cases.len()).sum();
        let all = counted(all as u64, "case", "cases");
        let packets: usize = tested.iter().flat_map(|tested| &tested.cases).map(|result| result.packets).sum();
        match wrong {
            0 => {
                let packets = counted(packets as u64, "packet", "packets");
                print(&format!("{all} of {packets}: {}\n", Style::stdout().good("all as expected")))?;
            }
            wrong => note(&format!("{} {wrong} of {all} differ\n", Style::stderr().bad("error:"))),
        }
    }
    if wrong == 0 { Ok(()) } else { Err(Failed::Said(OUTCOME)) }
}

fn read<'c>(path: &Path, catalogue: &'c Catalogue) -> Result<(String, &'c CatalogueEntry, Cases), Failed> {
    let name = path.display().to_string();
    let cases =
        Cases::read(&configuration(path)?).map_err(|error| Failed::usage(format_args!("{}", error.of(&name))))?;
    let entry = entry(catalogue, &cases.function).map_err(|failed| match failed {
        Failed::Usage(error) => Failed::usage(format_args!("{name}: {error}")),
        other => other,
    })?;
    let mut names = HashSet::new();
    if let Some(twice) = cases.cases.iter().find(|case| !names.insert(&case.name)) {
        return Err(Failed::usage(format_args!("{name}: two cases have the name \"{}\"", twice.name)));
    }
    Ok((name, entry, cases))
}

/// Maximum number of differences shown for a case.
const SHOWN_MAX: usize = 10;

fn text(tested: &Tested) -> String {
    let style = Style::stdout();
    let mut out = format!("{} by {}\n", style.bold(&tested.function), tested.file);
    for result in &tested.cases {
        let word = if result.is_right() { style.good("ok") } else { style.bad("WRONG") };
        let packets = counted(result.packets as u64, "packet", "packets");
        let engines = match result.engines.len() {
            0 => "compared with no engine: none of the chosen engines supports it on that many cores".to_owned(),
            engines => {
                let runs = counted(result.runs, "run", "runs");
                format!("{}, {runs}", counted(engines as u64, "engine", "engines"))
            }
        };
        let _ = writeln!(out, "  {word} {} {}", result.name, style.dim(format!("({packets}; {engines})")));
        for CaseDifference { line, nth: (nth, of), difference } in result.differences.iter().take(SHOWN_MAX) {
            let Difference { expected, got } = difference;
            let which = if *of > 1 { format!("{nth} of {of}: ") } else { String::new() };
            let place = format!("{}:{line}: {which}", tested.file);
            let _ = writeln!(
                out,
                "    {place}expected {expected}\n    {}     got {got}",
                " ".repeat(place.chars().count())
            );
        }
        if result.differences.len() > SHOWN_MAX {
            let _ = writeln!(out, "    and {} more", result.differences.len() - SHOWN_MAX);
        }
        if let Some(Mismatch { engine, cores, seed, seq, expected, got, .. }) = &result.mismatch {
            let how = seed.map_or("by real threads".to_owned(), |seed| format!("by schedule {seed}"));
            let what = seq.map_or("the final state".to_owned(), |seq| format!("packet {}", seq.0));
            let cores = counted(*cores as u64, "core", "cores");
            let _ = writeln!(
                out,
                "    {engine} on {cores} differs from sequential, {how}: {what}: expected {expected}, got {got}"
            );
        }
    }
    out.push('\n');
    out
}

fn json(tested: &[Tested], right: bool) -> Value {
    let of_case = |result: &CaseResult| {
        let differences: Vec<Value> = result
            .differences
            .iter()
            .map(|CaseDifference { line, nth, difference: Difference { expected, got } }| {
                json!({ "line": line, "nth": nth.0, "of": nth.1, "expected": expected, "got": got })
            })
            .collect();
        let mismatch = result.mismatch.as_ref().map(|mismatch| {
            json!({
                "engine": mismatch.engine.name(), "cores": mismatch.cores, "seed": mismatch.seed.map(|seed| seed.to_string()),
                "packet": mismatch.seq.map(|seq| seq.0), "expected": mismatch.expected, "got": mismatch.got,
            })
        });
        json!({
            "name": result.name, "packets": result.packets, "right": result.is_right(), "differences": differences,
            "engines": result.engines.iter().map(|engine| engine.name()).collect::<Vec<_>>(), "runs": result.runs, "mismatch": mismatch,
        })
    };
    let files: Vec<Value> = tested
        .iter()
        .map(|tested| {
            let cases: Vec<Value> = tested.cases.iter().map(of_case).collect();
            json!({ "file": tested.file, "function": tested.function, "cases": cases })
        })
        .collect();
    json!({ "right": right, "files": files })
}
