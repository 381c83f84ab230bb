//! The `millrace` command for any catalogue, so that an author's own functions get every subcommand.

mod advise;
mod bench;
mod captures;
mod check;
mod completions;
mod control;
mod ctl;
mod defragment;
mod demo;
mod doctor;
mod dropped;
mod efsm;
pub(crate) mod engines;
mod explain;
pub(crate) mod failure;
mod fallback;
mod files;
mod filter;
mod first;
mod flame;
mod flows;
mod folder;
mod functions;
mod identify;
mod inspect;
mod link;
mod live;
mod man;
pub(crate) mod memory;
mod new;
mod observers;
pub(crate) mod offload;
mod pipeline_options;
mod profile;
mod reorder;
mod restart;
mod rss;
mod rules;
mod run;
mod sequence;
mod service;
mod signals;
mod split;
mod stalled;
mod steering_options;
mod store;
mod streams;
mod synth;
mod table_options;
mod tables;
mod test;
mod top;
mod traffic;
mod trial;
mod verify;

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use engine::EngineKind;

use crate::cli::failure::{EXIT_CODES, Failed};
use crate::print::number::bytes;
use crate::print::output::{Level, note, print, print_as_it_is};
use crate::print::style::Style;
use catalogue::config::{Settings, nearest};
use catalogue::{Catalogue, CatalogueEntry, Program};

#[derive(Parser)]
#[command(
    name = "millrace",
    version,
    about = "Stateful packet processing on many cores: one program, any parallel engine, the same outcome",
    after_help = "Start with:  millrace demo",
    after_long_help = EXIT_CODES,
    propagate_version = true
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
    /// Print only results and errors: no progress, no notes
    #[arg(long, short, global = true, conflicts_with = "verbose", help_heading = "Output")]
    quiet: bool,
    /// Also print what was chosen by default, such as the engine and the seed
    #[arg(long, short, global = true, help_heading = "Output")]
    verbose: bool,
}

#[derive(Subcommand)]
enum Task {
    Demo(demo::Args),
    Functions(functions::Args),
    Run(Box<run::Args>),
    Ctl(ctl::Args),
    Top(top::Args),
    Explain(explain::Args),
    Doctor(doctor::Args),
    Check(check::Args),
    Sequence(sequence::Args),
    Split(split::Args),
    Store(store::Args),
    Verify(verify::Args),
    Test(test::Args),
    Bench(bench::Args),
    Advise(advise::Args),
    Profile(profile::Args),
    Tables(tables::Args),
    Rss(rss::Args),
    Rules(rules::Args),
    Synth(synth::Args),
    Inspect(inspect::Args),
    Flows(flows::Args),
    Streams(streams::Args),
    Identify(identify::Args),
    Efsm(efsm::Args),
    New(new::Args),
    /// Print a completion script for a shell
    #[command(after_help = "Example:  millrace completions bash > ~/.local/share/bash-completion/completions/millrace")]
    Completions {
        /// The shell that reads the script
        shell: Shell,
    },
    Man(man::Args),
}

/// Runs the command of the program arguments, with the functions of `catalogue`. Returns the exit code.
#[must_use]
pub fn main(catalogue: &Catalogue) -> ExitCode {
    let matches = match command(catalogue).try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return wrong_arguments(&error),
    };
    let result = match Cli::from_arg_matches(&matches) {
        Ok(cli) => {
            match (cli.quiet, cli.verbose) {
                (true, _) => Level::Quiet.set(),
                (false, true) => Level::Verbose.set(),
                (false, false) => {}
            }
            perform(cli.task, catalogue)
        }
        Err(error) => return wrong_arguments(&error),
    };
    match result.map_err(Failed::into_parts) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, error)) => {
            if let Some(error) = error {
                note(&format!("{} {error}\n", Style::stderr().bad("error:")));
            }
            code
        }
    }
}

fn perform(task: Task, catalogue: &Catalogue) -> Result<(), Failed> {
    refuse_flawed(catalogue)?;
    match task {
        Task::Demo(args) => demo::perform(&args, catalogue),
        Task::Functions(args) => functions::perform(&args, catalogue),
        Task::Run(args) => run::perform(&args, catalogue),
        Task::Ctl(args) => ctl::perform(&args),
        Task::Top(args) => top::perform(&args),
        Task::Explain(args) => explain::perform(&args, catalogue),
        Task::Doctor(args) => doctor::perform(&args),
        Task::Check(args) => check::perform(&args, catalogue),
        Task::Sequence(args) => sequence::perform(&args, catalogue),
        Task::Split(args) => split::perform(&args),
        Task::Store(args) => store::perform(&args),
        Task::Verify(args) => verify::perform(&args, catalogue),
        Task::Test(args) => test::perform(&args, catalogue),
        Task::Bench(args) => bench::perform(&args, catalogue),
        Task::Advise(args) => advise::perform(&args, catalogue),
        Task::Profile(args) => profile::perform(&args, catalogue),
        Task::Tables(args) => tables::perform(&args),
        Task::Rss(args) => rss::perform(&args),
        Task::Rules(args) => rules::perform(&args),
        Task::Synth(args) => synth::perform(&args),
        Task::Inspect(args) => inspect::perform(&args),
        Task::Flows(args) => flows::perform(&args),
        Task::Streams(args) => streams::perform(&args),
        Task::Identify(args) => identify::perform(&args),
        Task::Efsm(args) => efsm::perform(&args, catalogue),
        Task::New(args) => new::perform(&args, catalogue),
        Task::Man(args) => man::perform(&args, command(catalogue)),
        Task::Completions { shell } => print_as_it_is(&completions::script(shell, command(catalogue), catalogue)),
    }
}

/// Refuses to start if one of the author's functions breaks the contract.
fn refuse_flawed(catalogue: &Catalogue) -> Result<(), Failed> {
    for entry in catalogue.added() {
        if let Some(flaw) = entry.flaw() {
            let name = entry.description().name;
            return Err(Failed::Outcome(anyhow::anyhow!("the function `{name}` can't be registered: {flaw}")));
        }
    }
    Ok(())
}

/// The command line with the catalogue's names, for error messages and completions.
fn command(catalogue: &Catalogue) -> Command {
    let mut names: Vec<&'static str> = catalogue.entries().iter().map(|entry| entry.description().name).collect();
    names.extend(catalogue.get(CHAIN).map(|_| CHAIN));
    let mut command = Cli::command();
    for task in ["functions", "run", "explain", "check", "sequence", "verify", "bench", "advise", "profile"] {
        if command.find_subcommand(task).is_some() {
            let names =
                if task == "bench" { [names.as_slice(), &["suite", "sweep", "fifo"]].concat() } else { names.clone() };
            command = command.mut_subcommand(task, |task| {
                let task = task.mut_arg("function", |function| {
                    function.value_parser(PossibleValuesParser::new(names)).hide_possible_values(true)
                });
                // A changed argument moves to the end, so move the capture, too; it stays after the function.
                let capture =
                    ["file", "captures"].into_iter().find(|id| task.get_arguments().any(|one| one.get_id() == id));
                match capture {
                    Some(id) => task.mut_arg(id, |capture| capture),
                    None => task,
                }
            });
        }
    }
    command
}

/// Prints help or version, or the error in the arguments. A closed output is ignored.
fn wrong_arguments(error: &clap::Error) -> ExitCode {
    let failed = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion).then(|| {
        let text = error.render();
        print(&if Style::stdout().colour { text.ansi().to_string() } else { text.to_string() })
    });
    match failed {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(failed)) => failed.into_parts().0,
        None => {
            let text = error.render();
            note(&if Style::stderr().colour { text.ansi().to_string() } else { text.to_string() });
            ExitCode::from(2)
        }
    }
}

/// The catalogue's entry of this name.
fn entry<'a>(catalogue: &'a Catalogue, name: &str) -> Result<&'a CatalogueEntry, Failed> {
    catalogue.get(name).ok_or_else(|| {
        let guess = nearest(name, catalogue.entries().iter().map(|entry| entry.description().name));
        let hint = guess.map_or(";".to_owned(), |guess| format!("; did you mean `{guess}`?"));
        Failed::usage(format_args!("there is no function `{name}`{hint} `millrace functions` lists them"))
    })
}

/// The function that `--chain` means.
const CHAIN: &str = "chain";

/// The name of a function of a chain.
fn chained(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a name is missing beside a comma: write firewall,nat without spaces".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// Quotes a text as one word for a shell.
fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=./:,@%+".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Arguments for a function's configuration.
#[derive(clap::Args)]
struct Configuration {
    /// Functions to run as a chain, first to last, in place of FUNCTION: with one parse, and one look-up for all that have the same packet sets
    #[arg(long, value_name = "FUNCTION,...", value_delimiter = ',', value_parser = chained)]
    chain: Option<Vec<String>>,
    /// TOML file with the function's configuration (`millrace functions NAME` lists the keys)
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Program of stages for the function `efsm` (crates/functions/docs/efsm.md)
    #[arg(long, value_name = "FILE")]
    program: Option<std::path::PathBuf>,
    /// Rules of iptables for the function `rules`, as `iptables-save` prints them (crates/functions/docs/rules.md)
    #[arg(long, value_name = "FILE")]
    rules: Option<std::path::PathBuf>,
    /// Rules of ip6tables for the function `rules`
    #[arg(long, value_name = "FILE")]
    rules_v6: Option<std::path::PathBuf>,
    /// Sets that the rules name, as `ipset save` prints them
    #[arg(long, value_name = "FILE")]
    sets: Option<std::path::PathBuf>,
    /// TOML file with the router's interfaces and routes, as `millrace rules router` prints it
    #[arg(long, value_name = "FILE")]
    router: Option<std::path::PathBuf>,
    /// Leave out rules that iptables takes and Millrace can't read
    #[arg(long)]
    skip_unsupported: bool,
    /// Set one configuration key; overrides the file. May be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Configuration {
    /// The function of this name, or the chain.
    fn entry<'a>(&self, catalogue: &'a Catalogue, name: &str) -> Result<&'a CatalogueEntry, Failed> {
        match &self.chain {
            Some(_) if self.set.iter().any(|given| given.split('=').next() == Some("functions")) => {
                Err(Failed::usage("--set functions: --chain names the functions; leave one of both out"))
            }
            Some(_) if name != CHAIN => Err(Failed::usage(format_args!(
                "{name}: --chain names all functions, so no other one is named; a capture is given by --in"
            ))),
            _ => entry(catalogue, name),
        }
    }

    /// The functions of --chain as the value of a key.
    fn functions(&self) -> Option<String> {
        self.chain.as_ref().map(|names| format!("functions={names:?}"))
    }

    /// The files with their options.
    fn files(&self) -> impl Iterator<Item = (&'static str, &std::path::PathBuf)> {
        let files = [
            ("config", &self.config),
            ("program", &self.program),
            ("router", &self.router),
            ("sets", &self.sets),
            ("rules", &self.rules),
            ("rules-v6", &self.rules_v6),
        ];
        files.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?)))
    }

    /// Formats these arguments for a shell, each after a space, so that a command can be repeated.
    fn again(&self) -> String {
        let files = self.files().map(|(name, path)| format!(" --{name} {}", word(&path.display().to_string())));
        let skips = if self.skip_unsupported { " --skip-unsupported" } else { "" };
        let set = self.set.iter().map(|given| format!(" --set {}", word(given)));
        let chain = self.chain.iter().map(|names| format!(" --chain {}", word(&names.join(","))));
        chain.chain(files).chain([skips.to_owned()]).chain(set).collect()
    }

    /// The arguments for a child process.
    fn arguments(&self) -> Vec<OsString> {
        let files = self.files().flat_map(|(name, path)| [format!("--{name}").into(), path.into()]);
        let skips = self.skip_unsupported.then(|| "--skip-unsupported".into());
        let chain = self.chain.iter().flat_map(|names| ["--chain".into(), names.join(",").into()]);
        chain
            .chain(files)
            .chain(skips)
            .chain(self.set.iter().flat_map(|given| ["--set".into(), given.into()]))
            .collect()
    }

    /// A note of the function with the names of files in place of the keys of rules.
    fn named(&self, note: &str) -> String {
        let name = |note: String, key: &str, path: Option<&std::path::PathBuf>| match path {
            Some(path) => note.replace(&format!("left out: {key}:"), &format!("left out: {}:", path.display())),
            None => note,
        };
        name(name(note.to_owned(), "rules", self.rules.as_ref()), "rules_v6", self.rules_v6.as_ref())
    }

    fn settings(&self) -> Result<Settings, Failed> {
        self.settings_with(true)
    }

    /// The values with the text of another file for the key `rules` or `program`, in place of the one that was given.
    fn settings_with_text(&self, key: &str, name: String, text: String) -> Result<Settings, Failed> {
        let settings = match &self.config {
            Some(path) => Settings::from_file(path.display().to_string(), configuration(path)?),
            None => Settings::default(),
        };
        let mut settings = self.add_but(key, settings, true)?;
        settings.set_text(key, name, text);
        Ok(settings)
    }

    /// The file's values; with `given` also those of --set.
    fn settings_with(&self, given: bool) -> Result<Settings, Failed> {
        match &self.config {
            Some(path) => self.settings_on(path.display().to_string(), configuration(path)?, given),
            None => self.add_to(Settings::default(), given),
        }
    }

    /// The values of the text of another configuration file, with the other arguments as they are.
    fn settings_on(&self, name: String, text: String, given: bool) -> Result<Settings, Failed> {
        self.add_to(Settings::from_file(name, text), given)
    }

    /// Adds the other arguments.
    fn add_to(&self, settings: Settings, given: bool) -> Result<Settings, Failed> {
        self.add_but("", settings, given)
    }

    /// Adds the other arguments but the one for `key`.
    fn add_but(&self, left_out: &str, mut settings: Settings, given: bool) -> Result<Settings, Failed> {
        if let Some(path) = self.program.as_ref().filter(|_| left_out != "program") {
            let (name, text) = (files::shown(path).display().to_string(), configuration(path)?);
            if text.trim().is_empty() {
                return Err(Failed::usage(format_args!("{name}: there is no stage; the file is empty")));
            }
            settings.set_text("program", name, text);
        }
        // First what rules refer to, so that errors are named where they are.
        if let Some(path) = &self.router {
            settings.set_table("router", path.display().to_string(), configuration(path)?)?;
        }
        if self.skip_unsupported {
            settings.set("skip_unsupported=true")?;
        }
        for (key, path) in [("sets", &self.sets), ("rules", &self.rules), ("rules_v6", &self.rules_v6)] {
            if let Some(path) = path.as_ref().filter(|_| key != left_out) {
                settings.set_text(key, path.display().to_string(), rules::text(path)?);
            }
        }
        if let Some(functions) = self.functions() {
            settings.set(&functions)?;
        }
        for given in self.set.iter().filter(|_| given) {
            settings.set(given)?;
        }
        Ok(settings)
    }
}

/// Reads a configuration file, or standard input. A device or a capture given by mistake is a wrong configuration, not an unreadable file.
fn configuration(path: &std::path::Path) -> Result<String, Failed> {
    const BYTES_MAX: u64 = 1 << 20;
    let shown = files::shown(path);
    let name = shown.display();
    let unread = |error: io::Error| Failed::input(format_args!("{name}: can't be read: {error}"));
    let mut bytes = Vec::new();
    match files::is_standard(path) {
        true => bytes.extend_from_slice(files::read_standard(BYTES_MAX).map_err(unread)?),
        false => {
            let file = std::fs::File::open(path).map_err(unread)?;
            file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unread)?;
        }
    }
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Failed::usage(format_args!("{name} is larger than 1 MiB, so it is not a configuration")));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failed::usage(format_args!("{name} is not a text file, so it is not a configuration")))
}

/// Refuses engines that don't fit into memory all at once; otherwise the kernel would kill a process, or the allocation would abort.
fn refuse_too_much(program: &dyn Program, setups: &[(EngineKind, usize)]) -> Result<(), Failed> {
    /// Slightly more than an entry has besides key and state, with its share of the index.
    const BESIDES: usize = 64;
    let sizing = program.sizing();
    let flows = (sizing.flows + sizing.flows_v6) as u64 * (program.flow_bytes() + BESIDES) as u64;
    let mut need = (0_u64, 0_u64);
    for (engine, cores) in setups {
        let shared = program.weigh(*cores);
        need.0 = need.0.saturating_add(flows.saturating_mul(engine.tables(*cores) as u64));
        need.1 = need.1.saturating_add(match engine {
            EngineKind::Transactional => shared.transactional(),
            EngineKind::Scr => shared.local().saturating_mul(*cores as u64),
            EngineKind::Sequential
            | EngineKind::Shared
            | EngineKind::Rss
            | EngineKind::RssPlusPlus
            | EngineKind::Hybrid
            | EngineKind::Pipeline => shared.local(),
        });
    }
    let (tables, shared) = need;
    let Some(have) = available_bytes().filter(|have| tables.saturating_add(shared) > have / 10 * 9) else {
        return Ok(());
    };
    let what = match (tables, shared) {
        (0, shared) => format!("shared state would take about {}", bytes(shared)),
        (tables, 0) => format!("the tables of all cores would take about {}", bytes(tables)),
        (tables, shared) => {
            format!("the tables of all cores would take about {}, and shared state {}", bytes(tables), bytes(shared))
        }
    };
    Err(Failed::usage(format_args!(
        "{what}, but only {} are free; use fewer cores, or smaller tables with --set (`millrace functions NAME` lists \
         the keys)",
        bytes(have)
    )))
}

/// Available memory, as the kernel reports it.
fn available_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn words_come_back_from_a_shell() {
        assert_eq!(word("a/b-1.pcap"), "a/b-1.pcap");
        assert_eq!(word("a b's.pcap"), "'a b'\\''s.pcap'");
        assert_eq!(word(""), "''");
    }
}
