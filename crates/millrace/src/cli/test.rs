//! `millrace test`: functions held to case files, and every engine to the same packets.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use case::{Case, Cases, Difference};
use engine::Options;
use measure::conformance::{Mismatch, Plan};
use serde_json::{Value, json};

use super::engines::{self, Choice, Cores};
use super::failure::{Failed, OUTCOME};
use super::{configuration, entry, signals};
use crate::print::number::counted;
use crate::print::output::{note, print, print_json};
use crate::print::style::Style;
use catalogue::cases::{self, Differs, Held};
use catalogue::{Catalogue, Entry};

/// Hold functions to case files: what is to become of each packet
///
/// A case file says in words which packets come in, and what is to become of each. The function is run from its beginning for each
/// case, packet by packet; then every engine that takes it is held against that run, by random schedules and by real threads, on
/// each number of cores. If anything differs: exit code 1, the line of the file, and what became of the packet.
#[derive(clap::Args)]
#[command(after_help = SHORT, after_long_help = LANGUAGE)]
pub(super) struct Args {
    /// Case files, in TOML
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The engines, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "LIST", value_parser = engines::choice())]
    engines: Vec<Choice>,
    /// How many cores each runs on: 4, 1-8, or 2,5
    #[arg(long, default_value = "1-4", value_name = "LIST", value_parser = engines::core_list)]
    cores: Cores,
    /// How many random schedules each
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A case file as the help has it, whose lines are at most 98 columns wide: longer ones are broken.
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

`millrace test --help` says how packets are written."
);

const LANGUAGE: &str = concat!(
    example!(),
    "
A line of `packets`:

  TIME [xCOUNT [every SPAN]] [on INTERFACE] PACKET [-> OUTCOME]     # comment

  TIME, SPAN  20ms, 1.5s, with ns, us, ms, s, min or h. A time counts from the beginning of the
              case, with + from the packet before, the last of them. Without `every` all of COUNT
              packets come at once
  INTERFACE   its number, 0 where none is told; a function with two sides has 0 and 1
  OUTCOME     forward           as it came in, by the other port
              forward PACKET    changed: what is said changes, the rest must stay, and checksums
                                must be right
              forward back ...  by the port that it came in by; `forward by 2 ...` by that one
              reply PACKET      answered; flags, numbers and the rest that isn't said may be
                                anything
              drop REASON       dropped for this reason (`millrace functions NAME` lists them)
              Where none is told it may be any.

  PACKET      [eth MAC > MAC] [vlan NUMBER]... and one of

    tcp ADDRESS:PORT > ADDRESS:PORT [FLAGS] [seq N] [ack N] [window N] [mss N] [wscale N] [sack]
         FLAGS as tcpdump has them: S, S., ., P., F., R, or none; by default .
    udp ADDRESS:PORT > ADDRESS:PORT
    icmp ADDRESS > ADDRESS echo-request|echo-reply|type N [code N] [id N] [seq N]
         [quoting (PACKET)]
    ip ADDRESS > ADDRESS proto N
         of any protocol, and later fragments, which have no ports
    arp  a request
    hex DIGITS
         a whole Ethernet frame

  and for all IP, [ttl N] [tos N] [ip-id N] [fragment OFFSET[+]], where + is: more follow, and
  [len N | \"TEXT\" | hex DIGITS], the payload. Escapes in TEXT are \\r \\n \\t \\\" \\\\ \\x0a;
  `len` bytes count up from 0.

  Where nothing is told: from 02:00:00:00:00:01 to 02:00:00:00:00:02, ttl 64, window 65535, other
  numbers 0, no payload. Where another kind of packet goes out than came in (out of a tunnel,
  say), what isn't said of it may be anything.

Besides `name` and `packets` a case has

  config      the function's configuration: config.ports = \"1024-2047\", or a table; for all
              cases it may stand ahead of them, as [config]
  report      the rows that it reports at the last packet's time, in their order:
              [[\"10.0.0.1\", 3]]; texts as they are shown
  title       the title of that

Example:  millrace test testdata/nf/nat.toml"
);

/// A file and how it went.
struct Tested {
    file: String,
    function: String,
    cases: Vec<Held>,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    signals::exit_on_interrupt("not all cases were run");
    // All files are read first: a slip in the last is told before the first is run.
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
        let held = |case: &Case| cases::hold_all(entry, &file, case, &plans).map_err(Failed::usage);
        let held = cases.cases.iter().map(held).collect::<Result<Vec<_>, _>>()?;
        let tested_file = Tested { file, function: cases.function, cases: held };
        if !args.json {
            print(&text(&tested_file))?;
        }
        tested.push(tested_file);
    }
    let wrong = tested.iter().flat_map(|tested| &tested.cases).filter(|held| !held.is_right()).count();
    if args.json {
        print_json(&json(&tested, wrong == 0))?;
    } else {
        let all: usize = tested.iter().map(|tested| tested.cases.len()).sum();
        let all = counted(all as u64, "case", "cases");
        let packets: usize = tested.iter().flat_map(|tested| &tested.cases).map(|held| held.packets).sum();
        match wrong {
            0 => {
                let packets = counted(packets as u64, "packet", "packets");
                print(&format!("{all} of {packets}: {}\n", Style::stdout().good("as the files say")))?;
            }
            wrong => note(&format!("{} {wrong} of {all} came out otherwise\n", Style::stderr().bad("error:"))),
        }
    }
    if wrong == 0 { Ok(()) } else { Err(Failed::Said(OUTCOME)) }
}

fn read<'c>(path: &Path, catalogue: &'c Catalogue) -> Result<(String, &'c Entry, Cases), Failed> {
    let name = path.display().to_string();
    let cases =
        Cases::read(&configuration(path)?).map_err(|error| Failed::usage(format_args!("{}", error.of(&name))))?;
    let entry = entry(catalogue, &cases.function).map_err(|failed| match failed {
        Failed::Usage(error) => Failed::usage(format_args!("{name}: {error}")),
        other => other,
    })?;
    let mut names = HashSet::new();
    if let Some(twice) = cases.cases.iter().find(|case| !names.insert(&case.name)) {
        return Err(Failed::usage(format_args!("{name}: two cases are called \"{}\"", twice.name)));
    }
    Ok((name, entry, cases))
}

/// Differences that are shown of one case.
const SHOWN_MAX: usize = 10;

fn text(tested: &Tested) -> String {
    let style = Style::stdout();
    let mut out = format!("{} by {}\n", style.bold(&tested.function), tested.file);
    for held in &tested.cases {
        let word = if held.is_right() { style.good("ok") } else { style.bad("WRONG") };
        let packets = counted(held.packets as u64, "packet", "packets");
        let engines = match held.engines.len() {
            0 => "held against no engine, for none of them takes it on so many cores".to_owned(),
            engines => {
                let runs = counted(held.runs, "run", "runs");
                format!("{}, {runs}", counted(engines as u64, "engine", "engines"))
            }
        };
        let _ = writeln!(out, "  {word} {} {}", held.name, style.dim(format!("({packets}; {engines})")));
        for Differs { line, nth: (nth, of), difference } in held.differences.iter().take(SHOWN_MAX) {
            let Difference { expected, got } = difference;
            let which = if *of > 1 { format!("{nth} of {of}: ") } else { String::new() };
            let place = format!("{}:{line}: {which}", tested.file);
            let _ = writeln!(
                out,
                "    {place}expected {expected}\n    {}     got {got}",
                " ".repeat(place.chars().count())
            );
        }
        if held.differences.len() > SHOWN_MAX {
            let _ = writeln!(out, "    and {} more", held.differences.len() - SHOWN_MAX);
        }
        if let Some(Mismatch { engine, cores, seed, seq, expected, got, .. }) = &held.mismatch {
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
    let of_case = |held: &Held| {
        let differences: Vec<Value> = held
            .differences
            .iter()
            .map(|Differs { line, nth, difference: Difference { expected, got } }| {
                json!({ "line": line, "nth": nth.0, "of": nth.1, "expected": expected, "got": got })
            })
            .collect();
        let mismatch = held.mismatch.as_ref().map(|mismatch| {
            json!({
                "engine": mismatch.engine.name(), "cores": mismatch.cores, "seed": mismatch.seed.map(|seed| seed.to_string()),
                "packet": mismatch.seq.map(|seq| seq.0), "expected": mismatch.expected, "got": mismatch.got,
            })
        });
        json!({
            "name": held.name, "packets": held.packets, "right": held.is_right(), "differences": differences,
            "engines": held.engines.iter().map(|engine| engine.name()).collect::<Vec<_>>(), "runs": held.runs, "mismatch": mismatch,
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
