//! `millrace efsm` checks, formats, draws and runs programs of the extended-finite-state-machine stage.

mod graph;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use catalogue::Catalogue;
use clap::FromArgMatches;
use efsm::machine::Stage;
use efsm::{Machine, netfpga, parse, print as normal_form};
use engine::EngineKind;
use functions::efsm::Efsm;
use nf::NetworkFunction;
use serde_json::json;

use super::failure::{Failed, USAGE};
use super::files::shown;
use super::folder::replace;
use super::{Cli, command, perform as perform_task};
use crate::print::number::counted;
use crate::print::output::{print, print_as_it_is, print_json};
use crate::print::style::Style;

/// Check, format, draw or run a program of stages (Open Packet Processor)
///
/// A program is a list of stages; each has a table of rows, flow contexts with registers, and timeouts. crates/functions/docs/efsm.md explains the language.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace efsm check figure-2.efsm
  millrace efsm fmt --check *.efsm
  millrace efsm graph figure-2.efsm > figure-2.svg
  millrace efsm run figure-2.efsm --in a.pcap --out b.pcap")]
pub(super) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    /// Check a program, and say which engines take it
    #[command(after_help = "Example:  millrace efsm check figure-2.efsm --profile netfpga")]
    Check {
        /// The program; - means standard input
        program: PathBuf,
        /// Also say what would not fit in this hardware: the paper's prototype, by its table 1
        #[arg(long, value_enum)]
        profile: Option<Profile>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Rewrite programs in the normal form; with - from standard input to standard output
    #[command(after_help = "Example:  millrace efsm fmt figure-2.efsm")]
    Fmt {
        /// The programs
        #[arg(required = true)]
        programs: Vec<PathBuf>,
        /// Change nothing; fail if a program is not in normal form
        #[arg(long)]
        check: bool,
    },
    /// Draw a program's states and transitions as SVG, to standard output
    #[command(after_help = "Example:  millrace efsm graph figure-2.efsm > figure-2.svg")]
    Graph {
        /// The program; - means standard input
        program: PathBuf,
    },
    /// Run a program over a capture: the same as `millrace run efsm --program PROGRAM`, with the same options
    ///
    /// `--contexts` prints, at the end, the contexts that there are then instead of the rows with their counters.
    #[command(after_help = "Examples:
  millrace efsm run figure-2.efsm --in a.pcap --out b.pcap --cores 2 --engine scr
  millrace efsm run figure-2.efsm --in a.pcap --contexts")]
    Run {
        /// The program; - means standard input
        program: PathBuf,
        /// Options of `millrace run`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        options: Vec<OsString>,
    },
}

/// Hardware that a program may have to fit.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Profile {
    Netfpga,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    match &args.task {
        Task::Check { program, profile, json } => check(program, *profile, *json),
        Task::Fmt { programs, check } => format(programs, *check),
        Task::Graph { program } => {
            let (name, text) = read(program)?;
            print_as_it_is(&graph::svg(&compile(&name, &text)?, &text))
        }
        Task::Run { program, options } => run(program, options, catalogue),
    }
}

fn check(program: &Path, profile: Option<Profile>, as_json: bool) -> Result<(), Failed> {
    let (name, text) = read(program)?;
    let machine = match Machine::compile(&text) {
        Err(errors) if as_json => {
            let error = |error: &efsm::Error| json!({ "line": error.place.line, "column": error.place.column, "what": error.message });
            let errors: Vec<_> = errors.iter().map(error).collect();
            print_json(&json!({ "program": name, "valid": false, "errors": errors }))?;
            return Err(Failed::Said(USAGE));
        }
        compiled => compiled.map_err(|errors| refused(&name, &errors))?,
    };
    let misfits = profile.map_or_else(Vec::new, |Profile::Netfpga| netfpga(&machine));
    let function = Efsm::of(machine.clone());
    let (description, packet_set) = (function.description(), function.packet_set());
    let takes = |kind: &EngineKind| *kind != EngineKind::Sequential && kind.accepts(&description, 2).is_ok();
    let engines: Vec<&str> = EngineKind::ALL.iter().filter(|kind| takes(kind)).map(|kind| kind.name()).collect();
    let stages = machine.stages.len() as u64;
    if as_json {
        let stage = |stage: &Stage| {
            json!({
                "name": stage.name, "rows": stage.rows.len(), "contexts": stage.keys.as_ref().map(|_| stage.contexts),
                "register_words": stage.register_words,
            })
        };
        print_json(&json!({
            "program": name, "valid": true, "stages": machine.stages.iter().map(stage).collect::<Vec<_>>(),
            "packet_set": packet_set.to_string(), "engines": engines, "does_not_fit": misfits,
        }))?;
    } else {
        let style = Style::stdout();
        let mut out = format!("{}: {}\n", style.bold(&name), style.good("the program is valid"));
        let rows = counted(machine.rows as u64, "row", "rows");
        out += &format!("  {} with {rows}\n", counted(stages, "stage", "stages"));
        out += &format!("  packet set: {packet_set}\n  on several cores: {}\n", engines.join(", "));
        if let Some(what) = description.sharing.what() {
            out += &format!("  packet sets share {what}, which rss, rss++, hybrid and pipeline can't\n");
        }
        for misfit in &misfits {
            out += &format!("  does not fit: {misfit}\n");
        }
        print(&out)?;
    }
    if misfits.is_empty() { Ok(()) } else { Err(Failed::Said(super::failure::OUTCOME)) }
}

fn format(programs: &[PathBuf], check: bool) -> Result<(), Failed> {
    let mut differ = Vec::new();
    for program in programs {
        let (name, text) = read(program)?;
        let lines = parse(&text).map_err(|errors| refused(&name, &errors))?;
        let formatted = normal_form(&lines);
        if program.as_os_str() == "-" && !check {
            print_as_it_is(&formatted)?;
        } else if formatted != text && check {
            differ.push(name);
        } else if formatted != text {
            replace(program, &formatted)?;
        }
    }
    match differ.as_slice() {
        [] => Ok(()),
        names => {
            let list = names.join(", ");
            Err(Failed::Outcome(anyhow::anyhow!("not in normal form: {list}; `millrace efsm fmt` rewrites them")))
        }
    }
}

fn run(program: &Path, options: &[OsString], catalogue: &Catalogue) -> Result<(), Failed> {
    let words = ["millrace", "run", "efsm", "--program"].map(OsString::from).into_iter();
    // The function's configuration says what its report lists.
    let lists_contexts = |option: &OsString| option == "--contexts";
    let listing = options.iter().any(lists_contexts).then_some(["--set", "report=contexts"]);
    let listing = listing.into_iter().flatten().map(OsString::from);
    let options = options.iter().filter(|option| !lists_contexts(option)).cloned();
    let words = words.chain([program.into()]).chain(listing).chain(options);
    let matches = match command(catalogue).try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => error.exit(),
    };
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => perform_task(cli.task, catalogue),
        Err(error) => error.exit(),
    }
}

/// The program's name for messages, and its text.
fn read(program: &Path) -> Result<(String, String), Failed> {
    Ok((shown(program).display().to_string(), super::configuration(program)?))
}

fn compile(name: &str, text: &str) -> Result<Machine, Failed> {
    Machine::compile(text).map_err(|errors| refused(name, &errors))
}

fn refused(name: &str, errors: &[efsm::Error]) -> Failed {
    let lines: Vec<_> = errors.iter().take(20).map(|error| format!("{name}:{error}")).collect();
    let more = errors.len() - lines.len();
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    Failed::usage(lines.join("\n") + &more)
}
