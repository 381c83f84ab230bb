//! `millrace rules`: rule sets of iptables.

mod diff;
mod explain;
mod machine;
mod outcome;
mod router;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use catalogue::config::Settings;
use clap::{Subcommand, ValueEnum};
use functions::rules::{Config, Hindrance, Rules};
use iptables::{Error, Errors, Family, OTHER_FAMILY, Options, RuleSet, Sets, guess_family, parse};
use nf::NetworkFunction;
use serde_json::{Value, json};

use super::configuration;
use super::failure::{Failed, OUTCOME};
use super::files::{is_standard, read_standard};
use crate::print::number::{count, counted};
use crate::print::output::{note, print, print_as_it_is, print_json};
use crate::print::style::Style;

/// Check, explain and compare rule sets of iptables
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iptables-save | millrace rules check -
  millrace rules check rules.v4 --sets ipset.save
  millrace rules router > router.toml
  millrace run rules --rules rules.v4 --router router.toml --in a.pcap --out b.pcap
  millrace rules explain rules.v4 --router router.toml --in a.pcap --packet 17
  millrace rules diff old.v4 new.v4 --router router.toml --in a.pcap")]
pub(super) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Check(CheckArgs),
    Explain(explain::Args),
    Diff(diff::Args),
    Router(router::Args),
}

/// Check that Millrace can read a rule set of iptables
///
/// Takes what `iptables-save` and `ip6tables-save` print, what `iptables-restore` takes, and plain command lines as in a shell script.
/// Prints each line that iptables, the kernel or Millrace refuses, with the reason (exit code 1). For a rule set that can be read, prints
/// its tables, what it uses, and which engines run it. `docs/iptables.md` says what is accepted.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iptables-save | millrace rules check -
  millrace rules check rules.v6 --skip-unsupported
  millrace rules check firewall.sh --print > rules.v4
  millrace rules check rules.v4 --sets ipset.save --router router.toml
  millrace rules check rules.v4 --sets ipset.save --json")]
struct CheckArgs {
    /// File with the rules; - reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// 4 for iptables, 6 for ip6tables [default: by the commands, the file's name, or the addresses; else 4]
    #[arg(long, value_name = "FAMILY")]
    family: Option<Choice>,
    /// File with the sets that the rules name, as `ipset save` prints them [default: any set may be named]
    #[arg(long, value_name = "FILE")]
    sets: Option<PathBuf>,
    /// TOML file with the router's interfaces and routes: also check that Millrace can run the rules
    #[arg(long, value_name = "FILE")]
    router: Option<PathBuf>,
    /// Leave out rules that iptables takes and Millrace can't read, and list them
    #[arg(long)]
    skip_unsupported: bool,
    /// Print the rules as `iptables-save` does
    #[arg(long, conflicts_with = "json")]
    print: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Choice {
    /// iptables
    #[value(name = "4")]
    V4,
    /// ip6tables
    #[value(name = "6")]
    V6,
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    match &args.task {
        Task::Check(args) => check(args),
        Task::Explain(args) => explain::explain(args),
        Task::Diff(args) => diff::diff(args),
        Task::Router(args) => router::perform(args),
    }
}

fn check(args: &CheckArgs) -> Result<(), Failed> {
    let sets = match &args.sets {
        Some(path) => match Sets::parse(&text(path)?, &path.display().to_string()) {
            Ok(sets) => Some(sets),
            Err(errors) => return refused(&errors, path, args),
        },
        None => None,
    };
    let name = if is_standard(&args.file) { "-".to_owned() } else { args.file.display().to_string() };
    let given = text(&args.file)?;
    // As in a run, lines of the other family are left out, and listed.
    let family = match args.family {
        Some(Choice::V4) => Family::V4,
        Some(Choice::V6) => Family::V6,
        None => guess_family(&name, &given),
    };
    let (other, option) = if family == Family::V4 { ("--family 6", "--rules-v6") } else { ("--family 4", "--rules") };
    let for_other_family = format!("give {other}");
    let options = Options {
        name: &name,
        family: Some(family),
        for_other_family: &for_other_family,
        skip_unsupported: args.skip_unsupported,
        sets: sets.as_ref(),
        ..Options::default()
    };
    let parsed = match parse(&given, &options) {
        Ok(parsed) => parsed,
        Err(errors) => return refused(&errors, &args.file, args),
    };
    let needs_router = needs_router(args, &parsed.rules, &given)?;
    let runs = runs(args, &parsed.rules, given)?;
    if args.json {
        let mut json = as_json(&parsed.rules, sets.as_ref(), &parsed.skipped);
        json["shared"] =
            runs.as_ref().map_or(Value::Null, |rules| rules.hindrances().iter().map(hindrance_json).collect());
        json["needs_router"] = needs_router.into();
        return print_json(&json);
    }
    for skipped in &parsed.skipped {
        note(&format!("{skipped}\n"));
    }
    if parsed.skipped.iter().any(|skipped| skipped.feature == OTHER_FAMILY) {
        note(&format!("{other} checks the lines of the other family; a run takes them by {option} {name}\n"));
    }
    match args.print {
        true => print_as_it_is(&parsed.rules.to_string()),
        false => {
            let summary = summary(&name, &parsed.rules, sets.as_ref(), parsed.skipped.len());
            print(&format!("{summary}{}{}", engines(runs.as_ref()), without_router(&needs_router)))
        }
    }
}

/// The function that runs the rules, without --router on a machine with the interfaces that they name; `None` if they need sets that are
/// not given.
fn runs(args: &CheckArgs, rules: &RuleSet, given: String) -> Result<Option<Rules>, Failed> {
    let config = match &args.router {
        None => {
            let sets = args.sets.as_deref().map(text).transpose()?.unwrap_or_default();
            let config = Config::of_rules(&given, rules, &sets, args.skip_unsupported);
            config.map_err(|error| named(&error, &args.file))
        }
        Some(_) => configured(args, rules, given)?,
    };
    match config {
        Ok(config) => Ok(Some(Rules::new(&config))),
        Err(error) if args.sets.is_none() && error.lines().all(|line| line.contains("--sets")) => Ok(None),
        Err(error) => Err(Failed::Outcome(anyhow::anyhow!("the rules can be read, but not run\n{error}"))),
    }
}

/// The configuration with what the arguments give.
fn configured(args: &CheckArgs, rules: &RuleSet, given: String) -> Result<Result<Config, String>, Failed> {
    let mut settings = Settings::default();
    if let Some(path) = &args.router {
        settings.set_table("router", path.display().to_string(), configuration(path)?)?;
    }
    if args.skip_unsupported {
        settings.set("skip_unsupported=true")?;
    }
    if let Some(path) = &args.sets {
        settings.set_text("sets", path.display().to_string(), text(path)?);
    }
    let key = if rules.family == Family::V4 { "rules" } else { "rules_v6" };
    settings.set_text(key, args.file.display().to_string(), given);
    Ok(settings.read::<Config>(&<Rules>::DESCRIPTION).map_err(|error| error.to_string()))
}

/// Errors with the name of the file in place of the key.
fn named(error: &str, file: &Path) -> String {
    let name = |line: &str| match line.split_once(':') {
        Some(("rules" | "rules_v6", at)) => format!("{}:{at}", file.display()),
        _ => line.to_owned(),
    };
    error.lines().map(name).collect::<Vec<_>>().join("\n")
}

/// What can't be run without the router's configuration, a line each. Nothing if that is given.
fn needs_router(args: &CheckArgs, rules: &RuleSet, given: &str) -> Result<Vec<String>, Failed> {
    if args.router.is_some() || args.skip_unsupported {
        return Ok(Vec::new());
    }
    let Err(refused) = configured(args, rules, given.to_owned())? else { return Ok(Vec::new()) };
    let lines = named(&refused, &args.file);
    Ok(lines.lines().filter(|line| !line.contains("--sets")).map(ToOwned::to_owned).collect())
}

fn without_router(needs: &[String]) -> String {
    /// The most lines that are shown.
    const SHOWN: usize = 10;
    if needs.is_empty() {
        return String::new();
    }
    let mut out =
        "  to run the rules, give --router, the router's configuration; without it, these can't be run\n".to_owned();
    needs.iter().take(SHOWN).for_each(|line| out += &format!("    {line}\n"));
    if needs.len() > SHOWN {
        out += &format!("    {} more; --json lists all\n", count((needs.len() - SHOWN) as u64));
    }
    out
}

/// The engines that run the rules, and the rules because of which others don't.
fn engines(rules: Option<&Rules>) -> String {
    /// The most rules that are named.
    const SHOWN: usize = 10;
    let Some(rules) = rules else {
        return "  engines: give --sets, the sets that the rules name, to see which run it\n".to_owned();
    };
    let all = rules.hindrances();
    if all.is_empty() {
        return "  engines: all\n".to_owned();
    }
    let mut out = "  engines: sequential, shared, transactional, scr; packet sets share state, because of\n".to_owned();
    for hindrance in all.iter().take(SHOWN) {
        out += &format!("    line {}: {}: {}\n", hindrance.at.line, hindrance.what, hindrance.rule);
    }
    if all.len() > SHOWN {
        out += &format!("    {} more; --json lists all\n", count((all.len() - SHOWN) as u64));
    }
    out
}

fn hindrance_json(hindrance: &Hindrance) -> Value {
    json!({ "line": hindrance.at.line, "what": hindrance.what, "rule": hindrance.rule })
}

/// Prints what is refused of a file, by line.
fn refused(errors: &Errors, file: &Path, args: &CheckArgs) -> Result<(), Failed> {
    if args.json {
        let list: Vec<Value> = errors.errors.iter().map(error_json).collect();
        print_json(&json!({ "valid": false, "errors": list, "errors_left_out": errors.left_out }))?;
        return Err(Failed::Said(OUTCOME));
    }
    note(&format!("{errors}\n"));
    let count = errors.errors.len() + errors.left_out;
    let unsupported = errors.errors.iter().filter(|error| !error.feature.is_empty()).count();
    let hint = match unsupported {
        0 => "",
        _ if args.skip_unsupported => "",
        _ => "; --skip-unsupported leaves out what only Millrace refuses",
    };
    let errors = if count == 1 { "1 error".to_owned() } else { format!("{} errors", self::count(count as u64)) };
    Err(Failed::Outcome(anyhow::anyhow!("{}: {errors}{hint}", file.display())))
}

/// Reads a text file, or standard input. Two options that name standard input get the same text.
pub(super) fn text(path: &Path) -> Result<String, Failed> {
    /// A million entries of a set fit.
    const BYTES_MAX: u64 = 1 << 28;
    let name = path.display();
    let unread = |error: io::Error| Failed::input(format_args!("{name}: can't be read: {error}"));
    let mut bytes = Vec::new();
    match is_standard(path) {
        true => bytes.extend_from_slice(read_standard(BYTES_MAX).map_err(unread)?),
        false => {
            File::open(path).map_err(unread)?.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unread)?;
        }
    }
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Failed::usage(format_args!("{name} is larger than 256 MiB, so it is not a rule set")));
    }
    String::from_utf8(bytes).map_err(|_| Failed::usage(format_args!("{name} is not a text file in UTF-8")))
}

/// The matches and targets of a rule set with the number of rules that use them.
fn features(rules: &RuleSet) -> BTreeMap<&str, usize> {
    let mut features = BTreeMap::new();
    for rule in rules.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules) {
        let mut names: BTreeSet<&str> = rule.matches.iter().map(|test| test.written_name()).collect();
        if let Some(iptables::Target::Do(action)) = rule.target.as_deref() {
            names.insert(action.written_name());
        }
        for name in names {
            *features.entry(name).or_default() += 1;
        }
    }
    features
}

fn summary(name: &str, rules: &RuleSet, sets: Option<&Sets>, skipped: usize) -> String {
    let style = Style::stdout();
    let plural =
        |number: usize, one: &str| format!("{} {one}{}", count(number as u64), if number == 1 { "" } else { "s" });
    let mut out = format!(
        "{}: {}\n  {}, {}",
        style.bold(name),
        style.good("the rule set can be read"),
        rules.family,
        plural(rules.rule_count(), "rule")
    );
    if skipped > 0 {
        out += &format!("; {} left out", plural(skipped, "line"));
    }
    out.push('\n');
    for table in &rules.tables {
        let number = table.chains.iter().map(|chain| chain.rules.len()).sum();
        out += &format!(
            "  table {:<9} {}, {}\n",
            table.kind.name(),
            plural(table.chains.len(), "chain"),
            plural(number, "rule")
        );
    }
    if is_wide(rules) {
        let most = match rules.tested_max() {
            u64::MAX => "more rules than 64 bits count".to_owned(),
            most => counted(most, "rule", "rules"),
        };
        let note = format!("a packet may be tested against {most}, as chains are jumped to again and again");
        out += &format!("  {}\n", style.warn(note));
    }
    if let Some(sets) = sets {
        let entries: usize = sets.sets.iter().map(|set| set.entries.len()).sum();
        let word = if entries == 1 { "entry" } else { "entries" };
        out += &format!("  {} with {} {word}\n", plural(sets.sets.len(), "set"), count(entries as u64));
    }
    let features = features(rules);
    if !features.is_empty() {
        let names: Vec<String> = features.iter().map(|(name, rules)| format!("{name} ({rules})")).collect();
        out += &format!("  uses: {}\n", names.join(", "));
    }
    out
}

/// True if a packet may be tested against many times as many rules as there are.
fn is_wide(rules: &RuleSet) -> bool {
    /// Rule sets whose chains are jumped to from a few places stay below.
    const TIMES: u64 = 10;
    const AT_LEAST: u64 = 1_000;
    rules.tested_max() > AT_LEAST.max(TIMES * rules.rule_count() as u64)
}

fn as_json(rules: &RuleSet, sets: Option<&Sets>, skipped: &[Error]) -> Value {
    let tables = rules.tables.iter().map(|table| {
        let chains = table.chains.iter().map(|chain| {
            let policy = chain.base.map(|(_, policy)| policy.name());
            json!({ "name": chain.name, "policy": policy, "rules": chain.rules.len() })
        });
        json!({ "name": table.kind.name(), "chains": chains.collect::<Vec<_>>() })
    });
    let sets = sets.map(|sets| {
        let set =
            |set: &iptables::Set| json!({ "name": set.name, "type": set.kind.name(), "entries": set.entries.len() });
        sets.sets.iter().map(set).collect::<Vec<_>>()
    });
    json!({
        "valid": true,
        "family": match rules.family { Family::V4 => 4, Family::V6 => 6 },
        "rules": rules.rule_count(),
        "rules_tested_max": rules.tested_max(),
        "tables": tables.collect::<Vec<_>>(),
        "features": features(rules),
        "sets": sets,
        "skipped": skipped.iter().map(error_json).collect::<Vec<_>>(),
    })
}

fn error_json(error: &Error) -> Value {
    json!({
        "file": error.name, "line": error.at.line, "column": error.at.column, "kind": error.kind.name(),
        "word": error.word, "what": error.what, "instead": error.instead,
        "feature": if error.feature.is_empty() { None } else { Some(&error.feature) },
    })
}
