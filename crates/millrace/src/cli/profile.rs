//! `millrace profile` explains why a function's transactions fail, where in its source, and what helps.

use std::sync::Arc;

use clap::builder::ArgPredicate;
use engine::{EngineKind, Options};
use lab::{Loaded, Profile, ProfilePlan};
use nf::{Description, Recipe};
use port::Trace;
use serde_json::{Value, json};

use super::bench::timed_so_far as timed;
use super::engines;
use super::failure::Failed;
use super::flame::{self, Cycles};
use super::table_options::TableOptions;
use super::traffic::{Counter, Source};
use super::{Configuration, refuse_too_much, signals};
use crate::print::number::{self, count, counted};
use crate::print::output::{json_text, note, print};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};
use catalogue::{Catalogue, CatalogueEntry, Program};

/// Explain why a function's transactions fail, where in its source, and what helps
///
/// Runs the function under the engine `transactional` from memory, alternately with and without recording. Each failed attempt is counted
/// and attributed to a line of the function's source, to the conflicting step, and to a cause. Each cause has a recipe. With --set the
/// function runs first with the file's values (or the defaults), then with the given values, and both are shown.
///
/// With --flame it then runs again, with the given values, and samples the call stacks of its workers. The output shows where processor
/// time goes: in lines of the function, in what these lines call, and in the engine. This needs no privilege, but a build with line
/// tables: `cargo build --profile profiling`. A crate written by `millrace new` has this profile in its Cargo.toml: inherits = "release",
/// debug = "line-tables-only".
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace profile nat --in a.pcap --cores 2
  millrace profile nat --in a.pcap --cores 2 --set port_preservation=false
  millrace profile nat --synth university-dc --json
  cargo run --profile profiling -- profile nat --in a.pcap --cores 2 --flame nat.svg")]
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
    /// Number of cores to use, or `all`
    #[arg(long, default_value = "all", value_name = "N", value_parser = engines::cores)]
    cores: usize,
    /// Number of runs with recording, and as many without; figures are medians
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Packets of one run; at least one pass over the traffic
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse_positive)]
    round_packets: u64,
    /// Use other host addresses in each pass over the traffic, so that flows end and new ones begin
    #[arg(long)]
    churn: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flame: flame::Options,
    #[command(flatten)]
    table_options: TableOptions,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    let entry = args.configuration.entry(catalogue, &args.function)?;
    // Report wrong values before traffic is read.
    let ways: Vec<bool> = if args.configuration.set.is_empty() { vec![false] } else { vec![false, true] };
    for with_sets in &ways {
        entry.load(&args.configuration.settings_with(*with_sets)?)?;
    }
    let program = entry.load(&args.configuration.settings()?)?;
    let config = args.configuration.config.as_deref();
    args.flame.check(&*program, entry.description().name, &args.source, config)?;
    signals::exit_on_interrupt("nothing was timed");
    let traffic = args.source.load(args.json)?;
    let profiles: Vec<Profile> =
        ways.iter().map(|with_sets| profiled(args, entry, *with_sets, &traffic.trace)).collect::<Result<_, _>>()?;
    let Some(last) = profiles.last() else { unreachable!("it runs at least one way") };
    let recipes = program.recipes();
    let cycles = args.flame.is_wanted().then(|| {
        let values = args.configuration.set.iter().map(String::as_str);
        let on = [traffic.name.as_str()].into_iter().chain(values).collect::<Vec<_>>().join(", ");
        let names = [entry.description().name, &on];
        flame::sample(&*program, &traffic.trace, &plan(args, &*program)?, names, args.json)
    });
    let cycles = cycles.transpose()?;
    if args.json {
        let all: Vec<Value> = profiles.iter().map(|profile| json(profile, recipes)).collect();
        let sets = &args.configuration.set;
        let mut value = json!({
            "function": entry.description().name, "traffic": traffic.name, "cores": args.cores, "set": sets, "profiles": all,
        });
        if let Some(cycles) = &cycles {
            [value["cycles"], value["samples"]] = cycles.json().into();
        }
        return said(args, &json_text(&value), cycles.as_ref());
    }
    let style = if args.flame.takes_output() { Style::stderr() } else { Style::stdout() };
    let packets = counted(last.packets as u64, "packet", "packets");
    let cores = counted(args.cores as u64, "core", "cores");
    let name = style.bold(entry.description().name);
    let mut out = format!("{name} under transactional on {cores}, {} ({packets})\n\n", traffic.name);
    if let [before, after] = profiles.as_slice() {
        out += &beside(before, after, &args.configuration.set, style);
        out += &format!("\n{}\n\n", style.bold("With these values"));
    }
    out += &text(entry.description(), last, recipes, &args.configuration.set, style);
    out += &cycles.as_ref().map(|cycles| cycles.text(style)).unwrap_or_default();
    said(args, &out, cycles.as_ref())
}

/// Prints the text unless standard output is used otherwise, and writes the other outputs.
fn said(args: &Args, words: &str, cycles: Option<&Cycles>) -> Result<(), Failed> {
    if args.flame.takes_output() {
        note(words)
    } else {
        print(words)?
    }
    cycles.map_or(Ok(()), |cycles| args.flame.write(cycles, args.json))
}

fn plan(args: &Args, program: &dyn Program) -> Result<ProfilePlan, Failed> {
    let options = Options { tables: args.table_options.tables(program)?, ..Options::default() };
    Ok(ProfilePlan {
        cores: args.cores,
        rounds: usize::from(args.rounds),
        packets: args.round_packets,
        churn: args.churn,
        options,
    })
}

/// Profiles and shows a progress bar.
fn profiled(args: &Args, entry: &CatalogueEntry, with_sets: bool, trace: &Arc<Trace>) -> Result<Profile, Failed> {
    let program = entry.load(&args.configuration.settings_with(with_sets)?)?;
    refuse_too_much(&*program, &[(EngineKind::Transactional, args.cores); 2])?;
    let plan = plan(args, &*program)?;
    let (done, of) = (Counter::default(), Counter::default());
    let (shown, total) = (done.clone(), of.clone());
    let packets = plan.packets.max(trace.len() as u64);
    let sample = move || Sample { done: shown.get(), total: Some(total.get().max(1)), packets: shown.get() * packets };
    let doing = format!("timing {} with recording and without", args.function);
    let _progress = Progress::begin(args.json, "profile", &doing, sample);
    Ok(program.profile(trace, &plan, &mut |runs, all| {
        signals::so_far(timed(runs, all));
        done.set(runs);
        of.set(all);
    })?)
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / of.max(1) as f64)
}

/// Slowdown by recording.
fn overhead(profile: &Profile) -> f64 {
    100.0 * (1.0 - profile.mpps_recorded.median / profile.mpps.median)
}

fn mpps(profile: &Profile) -> String {
    let spread = &profile.mpps;
    format!("{:.2} Mpps ({:.2} to {:.2})", spread.median, spread.min, spread.max)
}

/// A note if this run follows a recipe, as far as the command line shows.
fn tried(recipe: &Recipe, sets: &[String]) -> &'static str {
    let is_set = |key: &str| sets.iter().any(|set| set.split('=').next().is_some_and(|set| set.trim() == key));
    if recipe.key.split(", ").any(is_set) { " (set in this run)" } else { "" }
}

fn text(description: &Description, profile: &Profile, recipes: &[Recipe], sets: &[String], style: Style) -> String {
    let recording = match overhead(profile) {
        cost if cost > 0.0 => format!("{cost:.1} % less with recording on"),
        _ => "no less with recording on".to_owned(),
    };
    let mut out = format!("{}; {recording}\n", mpps(profile));
    let transactions = &profile.transactions;
    if !profile.shares {
        out += &format!(
            "packet sets share no state in {}: there are no transactions, so none can fail\n",
            description.name
        );
    } else {
        let attempts = transactions.committed + transactions.aborted;
        let failed = counted(transactions.aborted, "attempt", "attempts");
        out += &format!(
            "{} committed; {failed} failed ({}), {} had to run alone\n",
            counted(transactions.committed, "transaction", "transactions"),
            percent(transactions.aborted, attempts),
            count(transactions.ran_alone)
        );
    }
    if transactions.aborted > 0 {
        out += &format!("\n{}\n", style.bold("Failed attempts by line"));
        let columns = [("line", Align::Left), ("does", Align::Left), ("failed", Align::Right), ("", Align::Right)];
        let mut sheet = Sheet::new(style, &columns);
        for line in profile.lines() {
            let does = line.operation.map_or_else(|| "-".to_owned(), |operation| operation.to_string());
            sheet.row([line.line, does, count(line.aborts), percent(line.aborts, transactions.aborted)]);
        }
        out += &sheet.lines(2);
        out += &format!("\n{}\n", style.bold("Causes"));
        for (rank, cause) in profile.causes().iter().enumerate() {
            let share = percent(cause.aborts, transactions.aborted);
            out += &format!("  {}. {} ({share})\n", rank + 1, cause.cause);
            if let [Some(mine), Some(other)] = &cause.operations {
                let [at, by] = [0, 1].map(|which| cause.pair[which].as_deref().unwrap_or("?"));
                out += &format!("     {}\n", style.dim(format!("mostly {mine} at {at}, against {other} at {by}")));
            }
            out += &format!("     {} {}\n", style.good("recipe:"), cause.cause.recipe());
            for recipe in recipes.iter().filter(|recipe| recipe.cause == cause.cause) {
                out += &format!("             {}: {}{}\n", recipe.key, recipe.help, tried(recipe, sets));
            }
        }
    }
    out += &format!("\n{}\n", style.bold("Load, all rounds with recording together"));
    let columns = [
        ("core", Align::Right),
        ("packets", Align::Right),
        ("", Align::Right),
        ("busy", Align::Right),
        ("committed", Align::Right),
        ("failed", Align::Right),
    ];
    let mut sheet = Sheet::new(style, &columns);
    let total: u64 = profile.cores.iter().map(|core| core.packets).sum();
    for (number, core) in profile.cores.iter().enumerate() {
        sheet.row([
            number.to_string(),
            count(core.packets),
            percent(core.packets, total),
            format!("{:.0} ms", core.busy.as_secs_f64() * 1e3),
            count(core.committed),
            count(core.aborted),
        ]);
    }
    out += &sheet.lines(2);
    out += &format!("  the busiest core has {:.2} times the mean\n", profile.imbalance());
    out += &queues(&profile.loaded, style);
    let sets = count(profile.packet_sets as u64);
    out += &format!("\n{} of {sets}, in one pass\n", style.bold("Busiest packet sets"));
    let mut sheet = Sheet::new(style, &[("", Align::Left), ("", Align::Right), ("", Align::Right)]);
    for (set, packets) in &profile.busiest {
        sheet.row([set.clone(), count(*packets), percent(*packets, profile.packets as u64)]);
    }
    out += &sheet.lines(2);
    out
}

/// Loss from which on a note says that cores were delayed.
const HELD_UP_PERCENT: u64 = 2;

/// Queue lengths under load.
fn queues(loaded: &Loaded, style: Style) -> String {
    let share = 100.0 * lab::LOAD;
    let Loaded { mpps, descriptors, .. } = loaded;
    let title = format!("Queues of {descriptors} under load, {mpps:.2} Mpps: {share:.0} % of the throughput");
    let columns = ["core", "arrived", "lost", "waiting, mean", "median", "p99", "most"];
    let mut sheet = Sheet::new(style, &columns.map(|name| (name, Align::Right)));
    for (core, (offered, depth)) in loaded.queues.iter().enumerate() {
        sheet.row([
            core.to_string(),
            count(offered.offered),
            count(offered.lost),
            format!("{:.1}", depth.mean),
            depth.median.to_string(),
            depth.p99.to_string(),
            depth.max.to_string(),
        ]);
    }
    let lost: u64 = loaded.queues.iter().map(|(offered, _)| offered.lost).sum();
    let arrived: u64 = loaded.queues.iter().map(|(offered, _)| offered.offered).sum();
    // What the cores took all the time before they can take now, unless they are held up.
    let held_up = if lost * 100 > arrived * HELD_UP_PERCENT {
        "  they were higher before: cores were delayed, by other programs or by each other\n"
    } else {
        ""
    };
    format!("\n{}\n{}{held_up}", style.bold(&title), sheet.lines(2))
}

/// Comparison of before and after.
fn beside(before: &Profile, after: &Profile, sets: &[String], style: Style) -> String {
    let with = sets.join(", ");
    let columns = [("", Align::Left), ("before", Align::Right), (with.as_str(), Align::Right)];
    let mut sheet = Sheet::new(style, &columns);
    let row = |name: &str, figure: &dyn Fn(&Profile) -> String| [name.to_owned(), figure(before), figure(after)];
    sheet.row(row("throughput", &mpps));
    sheet.row(row("dropped", &|profile| percent(profile.dropped, profile.dropped + profile.passed)));
    sheet.row(row("transactions", &|profile| count(profile.transactions.committed)));
    sheet.row(row("failed attempts", &|profile| count(profile.transactions.aborted)));
    let share = |profile: &Profile| {
        let transactions = &profile.transactions;
        percent(transactions.aborted, transactions.committed + transactions.aborted)
    };
    sheet.row(row("  of all", &share));
    sheet.row(row("ran alone", &|profile| count(profile.transactions.ran_alone)));
    let first = |profile: &Profile| {
        profile.causes().first().map_or_else(|| "none".to_owned(), |first| first.cause.name().to_owned())
    };
    sheet.toned(row("first cause", &first).map(|cell| (cell, Tone::Plain)));
    sheet.lines(0)
}

fn json(profile: &Profile, recipes: &[Recipe]) -> Value {
    let Profile { transactions, cores, .. } = profile;
    let spread = |spread: &lab::Spread| json!({ "median": spread.median, "min": spread.min, "max": spread.max });
    json!({
        "mpps": spread(&profile.mpps),
        "passed": profile.passed,
        "dropped": profile.dropped,
        "dropped_percent": 100.0 * profile.dropped as f64 / (profile.passed + profile.dropped).max(1) as f64,
        "mpps_recorded": spread(&profile.mpps_recorded),
        "recording_costs_percent": overhead(profile),
        "recorded": "every attempt that failed",
        "transactions": {
            "committed": transactions.committed, "aborted": transactions.aborted, "ran_alone": transactions.ran_alone,
            "aborted_percent": 100.0 * transactions.aborted as f64 / (transactions.committed + transactions.aborted).max(1) as f64,
        },
        "lines": profile.lines().iter().map(|line| json!({
            "line": line.line, "operation": line.operation.map(|operation| operation.to_string()), "aborts": line.aborts,
        })).collect::<Vec<_>>(),
        "causes": profile.causes().iter().map(|cause| {
            let keys = recipes.iter().filter(|recipe| recipe.cause == cause.cause);
            json!({
                "cause": cause.cause.name(), "words": cause.cause.words(), "aborts": cause.aborts,
                "pair": cause.pair, "operations": cause.operations.map(|one| one.map(|one| one.to_string())),
                "recipe": cause.cause.recipe(),
                "keys": keys.flat_map(|recipe| {
                    recipe.key.split(", ").map(|key| json!({ "key": key, "help": recipe.help }))
                }).collect::<Vec<_>>(),
            })
        }).collect::<Vec<_>>(),
        "cores": cores.iter().map(|core| json!({
            "packets": core.packets, "busy_s": core.busy.as_secs_f64(), "committed": core.committed, "aborted": core.aborted,
        })).collect::<Vec<_>>(),
        "imbalance": profile.imbalance(),
        "loaded": {
            "mpps": profile.loaded.mpps,
            "of_throughput": lab::LOAD,
            "descriptors": profile.loaded.descriptors,
            "queues": profile.loaded.queues.iter().map(|(offered, depth)| json!({
                "offered": offered.offered, "lost": offered.lost,
                "mean": depth.mean, "median": depth.median, "p99": depth.p99, "max": depth.max,
            })).collect::<Vec<_>>(),
        },
        "packet_sets": profile.packet_sets,
        "busiest": profile.busiest.iter().map(|(set, packets)| json!({ "packet_set": set, "packets": packets })).collect::<Vec<_>>(),
    })
}
