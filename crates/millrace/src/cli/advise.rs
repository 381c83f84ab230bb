//! `millrace advise` recommends an engine for a function on given traffic, with reasons.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::ArgPredicate;
use engine::{EngineKind, Options};
use functions::rate::Rate;
use lab::{Advice, BenchPlan, Bound, Contention, Forecast, Question, TIE_PERCENT, Wire, Work};
use nf::Description;
use port::Trace;
use port::pcap::Container;
use serde_json::{Value, json};

use self::pipeline::Pipelines;
use super::bench::options::nanoseconds;
use super::bench::{from_elsewhere, timed_so_far};
use super::captures::Captures;
use super::engines;
use super::failure::Failed;
use super::offload::{CardOptions, Gains};
use super::table_options::TableOptions;
use super::traffic::{Counter, Source};
use super::trial::{self, Trials, rate};
use super::{Configuration, files, refuse_too_much, signals};
use crate::print::number::{self, counted};
use crate::print::output::{print, print_json};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};
use catalogue::{Catalogue, Program};

mod pipeline;

/// Recommend an engine and a number of cores for a function on this traffic
///
/// First, `millrace run` is timed on this machine. Every engine runs over the capture's first packets, on up to as many cores as the
/// machine has. Reading and steering are included, and writing with --write. These figures are measured.
///
/// Second, rates are predicted for a port that brings each core its packets, as a network card does. The prediction uses the cost of a
/// packet and of replaying a record, the cost of sharing state or a cache line between two cores (if the machine has two), how each
/// engine would spread these packets, and the link of --link. For scr and hybrid it assumes a sequencer in front of the cores that costs
/// them nothing. These figures are always labelled modelled; `millrace bench` measures.
///
/// Third, each stage of a packet's path is timed on one core, and the rate of `pipeline` is predicted from that for each place where the path
/// can be cut and each number of ways. Figures on as many cores as the machine has are among the measured ones.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace advise conntrack --in a.pcap --cores 16
  millrace advise nat --in a.pcap --dispatch 104ns --cores 16
  millrace advise conntrack --in a.pcap --link 100Gbit --cores 16
  millrace advise identify --in a.pcap --cores 4
  millrace advise firewall --in a.pcap --offload 4096 --card-insertions 100k
  millrace advise ddos --synth single-flow --cores 8 --json")]
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
    /// Maximum number of cores to consider, or `all`. It may exceed what this machine has
    #[arg(long, default_value = "all", value_name = "N", value_parser = engines::cores)]
    cores: usize,
    /// Cost of receiving and sending one packet on the port you mean: 104ns [default: the cost measured here, from memory]
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    dispatch: Option<f64>,
    /// Extra time for a cache line of the history that another core used last, on more cores than this machine has: 12.5ns, as on a
    /// server with sixteen cores [default: measured between two cores here]
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    far_line: Option<f64>,
    /// Bit rate of the link from a sequencer to the cores: 100Gbit. Packets then share the link with the history that they carry
    /// [default: no limit, the history comes through memory]
    #[arg(long, value_name = "RATE")]
    link: Option<Rate>,
    /// Number of rounds in which costs are measured. Predictions use the medians; ranges use the minimum and the maximum
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Packets of one measurement in a round; at least one pass over the traffic
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse_positive)]
    round_packets: u64,
    /// Include writing the outgoing packets, in this format, when `millrace run` is timed
    #[arg(long, value_enum, value_name = "FORMAT")]
    write: Option<files::Format>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table_options: TableOptions,
    #[command(flatten)]
    card: CardOptions,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    let entry = args.configuration.entry(catalogue, &args.function)?;
    let program = entry.load(&args.configuration.settings()?)?;
    let description = program.description();
    let options = Options { tables: args.table_options.tables(&*program)?, ..Options::default() };
    args.card.refuse(&*program, &options.tables)?;
    // Costs are measured with one core, with one of eight replicas, and with two cores that share.
    refuse_too_much(&*program, &[(EngineKind::Sequential, 1), (EngineKind::Scr, 8), (EngineKind::Shared, 2)])?;
    signals::exit_on_interrupt("nothing was timed");
    let traffic = args.source.load(args.json)?;
    let wire = args.link.map(|rate| Wire { bits_per_s: rate.bits() });
    let mut question = question(args.cores, options, usize::from(args.rounds), args.round_packets);
    (question.dispatch_ns, question.wire, question.plan.far_line_ns) = (args.dispatch, wire, args.far_line);
    let advice = asked(&*program, &traffic.trace, &question, "advise", args.json)?;
    let input = &args.source.captures;
    // Trial runs read everything again, which a pipe doesn't allow.
    let again = again(&args.configuration, &args.table_options).ok();
    let here = match again.filter(|_| input.is_given() && input.pipe().is_none()) {
        Some(again) => {
            let (writes, format) = (args.write.is_some(), args.write.map(Container::from));
            let (cores, at_most, rounds) = (args.cores, SHOWN_TAKES, SHOWN_ROUNDS);
            let function = description.name;
            let plan = trial::Plan { function, again, input, writes, format, cores, packets: None, rounds, at_most };
            Some(trying(&description, &plan, "advise", args.json)?)
        }
        None => None,
    };
    let (cores, rounds, round_packets) = (args.cores, usize::from(args.rounds), args.round_packets);
    let plan = pipeline::Plan { cores, rounds, round_packets, options };
    let pipelines = Pipelines::measure(&*program, &traffic.trace, &plan, args.json)?;
    let gains = args.card.gains(&*program, &traffic.trace, &options, advice.model.t)?;
    let (here, pipelines) = (here.as_ref(), pipelines.as_ref());
    let answer =
        Answer { advice: &advice, here, pipelines, gains: gains.as_ref(), cores, given: args.dispatch.is_some() };
    if args.json {
        print_json(&json(&description, &traffic.name, &answer))
    } else {
        print(&text(&description, &traffic.name, &answer))
    }
}

/// The output: the model's forecasts, and the trial runs on this machine.
struct Answer<'a> {
    advice: &'a Advice,
    here: Option<&'a Trials>,
    pipelines: Option<&'a Pipelines>,
    /// With `--offload`.
    gains: Option<&'a Gains>,
    /// Value of `--cores`.
    cores: usize,
    /// True with `--dispatch`.
    given: bool,
}

/// Time budget of `--engine auto`.
const AUTO_TAKES: Duration = Duration::from_millis(500);
/// Rounds of `--engine auto`.
const AUTO_ROUNDS: usize = 2;
/// Time budget of the trial runs that `advise` shows.
const SHOWN_TAKES: Duration = Duration::from_secs(3);
const SHOWN_ROUNDS: usize = 5;

/// Trial runs for `--engine auto`, on at most as many cores as the machine has.
pub(super) fn tried(
    description: &Description,
    again: Vec<OsString>,
    input: &Captures,
    output: Option<&Path>,
    format: Option<Container>,
    (cores, packets): (usize, Option<u64>),
    quiet: bool,
) -> Result<Trials, Failed> {
    if let Some(pipe) = input.pipe() {
        let name = files::shown(pipe);
        return Err(Failed::usage(format_args!(
            "--engine auto reads the capture twice, but {} can be read only once; name an engine",
            name.display()
        )));
    }
    let (writes, rounds, at_most) = (output.is_some(), AUTO_ROUNDS, AUTO_TAKES);
    let format = format.or_else(|| output.and_then(Container::named));
    let function = description.name;
    let plan = trial::Plan { function, again, input, writes, format, cores, packets, rounds, at_most };
    trying(description, &plan, "auto", quiet)
}

/// Does the trial runs and shows a progress bar.
fn trying(description: &Description, plan: &trial::Plan<'_>, what: &str, quiet: bool) -> Result<Trials, Failed> {
    let (done, of) = (Counter::default(), Counter::default());
    let (shown, total) = (done.clone(), of.clone());
    let sample = move || Sample { done: shown.get(), total: Some(total.get().max(1)), packets: 0 };
    let _progress = Progress::begin(quiet, what, "running each engine over the capture's first packets", sample);
    trial::run(description, plan, &mut |runs, all| {
        done.set(runs);
        of.set(all);
    })
}

/// Arguments that configure the function and its tables in the same way.
///
/// # Errors
/// An argument names standard input, which trial runs can't read again.
pub(super) fn again(configuration: &Configuration, table_options: &TableOptions) -> Result<Vec<OsString>, Failed> {
    if let Some((option, _)) = configuration.files().find(|(_, path)| files::is_standard(path)) {
        return Err(Failed::usage(format_args!(
            "trial runs (`advise`, --engine auto) read --{option} again, but standard input can be read only once; give it as \
             a file"
        )));
    }
    let kept = table_options.again();
    let arguments = configuration.arguments().into_iter().chain(kept.split_whitespace().map(OsString::from)).collect();
    Ok(arguments)
}

/// Builds the input of [`lab::advise`].
fn question(cores: usize, options: Options, rounds: usize, packets: u64) -> Question {
    let plan = BenchPlan {
        engines: Vec::new(),
        cores: Vec::new(),
        rounds,
        packets,
        options,
        undisturbed: false,
        with_bare: false,
        dispatch: Work::NONE,
        loss_free: None,
        delay: None,
        model_to: 0,
        far_line_ns: None,
    };
    Question { cores, dispatch_ns: None, wire: None, plan }
}

/// Calls [`lab::advise`] and shows a progress bar.
fn asked(
    program: &dyn Program,
    trace: &Arc<Trace>,
    question: &Question,
    what: &str,
    quiet: bool,
) -> Result<Advice, Failed> {
    let (done, of) = (Counter::default(), Counter::default());
    let (shown, total) = (done.clone(), of.clone());
    let packets = question.plan.packets.max(trace.len() as u64);
    let sample = move || Sample { done: shown.get(), total: Some(total.get().max(1)), packets: shown.get() * packets };
    let doing = format!(
        "measuring the cost of {}, in {}",
        counted(trace.len() as u64, "packet", "packets"),
        counted(question.plan.rounds as u64, "round", "rounds")
    );
    let _progress = Progress::begin(quiet, what, &doing, sample);
    let advice = program.advise(trace, question, &mut |runs, all| {
        signals::so_far(timed_so_far(runs, all));
        done.set(runs);
        of.set(all);
    })?;
    Ok(advice)
}

fn text(description: &Description, name: &str, answer: &Answer<'_>) -> String {
    let Answer { advice, here, pipelines, gains, cores, given } = *answer;
    let style = Style::stdout();
    let packets = counted(advice.packets as u64, "packet", "packets");
    let mut out = format!("{} on {name} ({packets})\n\n", style.bold(description.name));
    if let Some(here) = here {
        out += &measured(here, style);
        out.push('\n');
    }
    // If this machine has all the cores, the measured trial runs are the recommendation.
    let is_here = here.is_some() && cores <= engines::machine_cores();
    out += &style.bold("with a port that brings each core its packets, as a network card does (Mpps, modelled)\n");
    out += &table(advice, style).lines(0);
    out += &format!(
        "{}\n",
        style.dim(
            "modelled from the costs below and from how each engine spreads these packets; for scr and hybrid a \
             sequencer in front of the cores is assumed, which costs them nothing"
        )
    );
    for limit in limits(advice) {
        out += &format!("{}\n", style.dim(limit));
    }
    for (engine, reason) in &advice.refused {
        // An engine's own reason begins with its name.
        let named = reason.starts_with(engine.name());
        out += &format!("{}\n", style.dim(if named { reason.clone() } else { format!("{engine}: {reason}") }));
    }
    out +=
        &format!("\n{}\n", if is_here { headline(advice, "there take") } else { style.good(headline(advice, "take")) });
    out += &format!("  because {}\n", reason(advice));
    for turn in turns(advice) {
        out += &format!("  {turn}\n");
    }
    let model = &advice.model;
    out += &format!(
        "\nnanoseconds per packet: t = {:.1} ({:.1} dispatch{} + {:.1} step), c2 = {:.1} for each history record, and \
         {}; replicas save s = {:.1}\n",
        model.t,
        model.d,
        if given { ", as given" } else { "" },
        model.c1,
        model.c2,
        from_elsewhere(model.r),
        model.s
    );
    if let Some(pipelines) = pipelines {
        out += &format!("\n{}", pipelines.text(here, style));
    }
    if let Some(gains) = gains {
        out += &format!("\n{}", gains.text(style));
    }
    out
}

/// Formats the trial runs and the engine to take.
fn measured(here: &Trials, style: Style) -> String {
    let over = match here.whole {
        true => "measured over all packets".to_owned(),
        false => format!("measured over the first {} packets, extrapolated to all", number::count(here.packets)),
    };
    let mut out = style.bold(format!("`millrace run` here ({over})\n"));
    let columns =
        [("engine", Align::Left), ("cores", Align::Right), ("Mpps", Align::Right), ("min to max", Align::Right)];
    let mut sheet = Sheet::new(style, &columns);
    let best = here.best();
    for row in &here.rows {
        let is_best = std::ptr::eq(row, best);
        let [least, most] = row.range;
        sheet.toned([
            (row.engine.name().to_owned(), if is_best { Tone::Good } else { Tone::Bold }),
            (row.cores.to_string(), Tone::Plain),
            (rate(row.median), Tone::Plain),
            (format!("{} to {}", rate(least), rate(most)), Tone::Dim),
        ]);
    }
    out += &sheet.lines(0);
    let on = counted(best.cores as u64, "core", "cores");
    out += &format!("\n{}\n", style.good(format!("take {} on {on}: {} Mpps", best.engine, rate(best.median))));
    out
}

/// Formats the forecasts: engines by cores.
fn table(advice: &Advice, style: Style) -> Sheet {
    let mut cores: Vec<usize> = advice.forecasts.iter().map(|forecast| forecast.cores).collect();
    cores.sort_unstable();
    cores.dedup();
    let heads: Vec<String> = cores.iter().map(ToString::to_string).collect();
    let mut columns = vec![("cores", Align::Left)];
    columns.extend(heads.iter().map(|head| (head.as_str(), Align::Right)));
    columns.extend([("busiest core", Align::Right), ("replicated", Align::Right)]);
    let mut sheet = Sheet::new(style, &columns);
    for engine in EngineKind::ALL {
        let of: Vec<&Forecast> = advice.forecasts.iter().filter(|forecast| forecast.engine == engine).collect();
        let Some(last) = of.last() else { continue };
        let cell = |cores: &usize| {
            of.iter().find(|forecast| forecast.cores == *cores).map_or_else(String::new, |one| rate(one.mpps))
        };
        let figures: Vec<String> = cores.iter().map(cell).collect();
        let (busiest, recorded) = (share(last.load.busiest()), share(last.load.recorded()));
        let best = advice.forecasts[advice.best].engine == engine;
        let mut row = vec![(engine.name(), if best { Tone::Good } else { Tone::Bold })];
        row.extend(figures.iter().map(|figure| (figure.as_str(), Tone::Plain)));
        row.extend([(busiest.as_str(), Tone::Dim), (recorded.as_str(), Tone::Dim)]);
        sheet.toned(row);
    }
    sheet
}

/// Notes on what else limits the figures.
fn limits(advice: &Advice) -> Vec<String> {
    let mut limits = Vec::new();
    let last = |engine: EngineKind| advice.forecasts.iter().rfind(|one| one.engine == engine);
    if let (Some(shared), Some(Contention { alone_ns, transfer_ns, turn_ns })) =
        (last(EngineKind::Shared), advice.contention)
    {
        let turns = if shared.bound == Bound::Turns { ", which limits it" } else { "" };
        let transfer = match transfer_ns {
            ..0.05 => "no measurable extra time".to_owned(),
            _ => format!("{transfer_ns:.1} more"),
        };
        limits.push(format!(
            "shared: {alone_ns:.1} ns per packet on one core, {transfer} if another core used the state last, \
             {turn_ns:.1} to get the state that most packets need{turns} (measured on two cores); never recommended, \
             because its packets leave in another order"
        ));
    }
    if let Some(scr) = last(EngineKind::Scr).filter(|scr| scr.spill_ns > 0.05) {
        limits.push(format!(
            "scr: {} of state in each replica; {} don't fit the cache that they share, so a step takes {:.1} ns longer",
            number::bytes(advice.spill.bytes),
            counted(scr.cores as u64, "replica", "replicas"),
            scr.spill_ns
        ));
    }
    let r = advice.model.r;
    if let Some(scr) = last(EngineKind::Scr).filter(|scr| scr.cores > r.here && r.beyond_ns == r.here_ns) {
        limits.push(format!(
            "scr, hybrid: the forecast for {} assumes caches as close to each other as those of the {} here; \
             otherwise give --far-line",
            counted(scr.cores as u64, "core", "cores"),
            r.here
        ));
    }
    if let Some(wire) = advice.wire {
        let full = |one: &&Forecast| one.bound == Bound::Wire;
        let rate = number::bit_rate(wire.bits_per_s / 8, Duration::from_secs(1));
        let mut said = format!("link: {rate}, {:.0} bytes per packet", advice.mean_bytes);
        if let Some(scr) = last(EngineKind::Scr) {
            let on = counted(scr.cores as u64, "core", "cores");
            said += &format!(" and {:.0} of history with scr on {on}", scr.carried);
        }
        let filled: Vec<&str> =
            EngineKind::ALL.into_iter().filter_map(last).filter(full).map(|one| one.engine.name()).collect();
        said += &match filled.as_slice() {
            [] => "; no engine fills it".to_owned(),
            filled => format!("; full with {} on the largest number of cores", filled.join(", ")),
        };
        limits.push(said);
    }
    limits
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn headline(advice: &Advice, verb: &str) -> String {
    let Forecast { engine, cores, mpps, mpps_range: [low, high], .. } = &advice.forecasts[advice.best];
    let on = counted(*cores as u64, "core", "cores");
    format!("{verb} {engine} on {on}: {} Mpps modelled ({} to {})", rate(*mpps), rate(*low), rate(*high))
}

/// Explains why the best engine is best.
fn reason(advice: &Advice) -> String {
    let mut reason = reason_by_work(advice);
    if advice.forecasts[advice.best].bound == Bound::Wire {
        reason += "; the link carries no more";
    }
    reason
}

/// Packets are spread well if no core has more than this multiple of an even share.
const EVEN: f64 = 1.3;

/// The same, as far as the work of the cores is concerned.
fn reason_by_work(advice: &Advice) -> String {
    let best = &advice.forecasts[advice.best];
    let rival =
        |engine: EngineKind| advice.forecasts.iter().find(|one| one.engine == engine && one.cores == best.cores);
    let (cores, heaviest) = (best.cores, share(advice.heaviest));
    let fair = share(1.0 / cores as f64);
    let plain = rival(EngineKind::Rss).map(|rss| share(rss.load.busiest()));
    let replay =
        format!("replaying a record costs {:.1} ns of a packet's {:.1}", advice.model.record_ns(cores), advice.model.t);
    match best.engine {
        EngineKind::Sequential if advice.forecasts.len() == 1 => "no other engine can run on these cores".to_owned(),
        EngineKind::Sequential => "more cores gain almost nothing here".to_owned(),
        EngineKind::Rss => {
            let busiest = best.load.busiest();
            let spread =
                format!("the busiest of {cores} cores gets {} of the packets, an even share is {fair}", share(busiest));
            match busiest * cores as f64 <= EVEN {
                true => format!("its hash spreads these packet sets well: {spread}"),
                false => format!("no other engine is faster, although {spread}; {replay}"),
            }
        }
        EngineKind::RssPlusPlus => format!(
            "moving buckets balances the load: the busiest core gets {} of the packets, with plain rss {}",
            share(best.load.busiest()),
            plain.unwrap_or_default()
        ),
        EngineKind::Scr => {
            let shards = plain.map_or_else(
                || "packet sets share state, so they can't be sharded".to_owned(),
                |plain| match advice.heaviest * cores as f64 > 1.0 {
                    true => format!(
                        "one packet set has {heaviest} of the packets, and with rss the busiest core \
                         would get {plain}"
                    ),
                    false => format!(
                        "with rss the busiest core would get {plain} of the packets, including packets \
                         without a packet set"
                    ),
                },
            );
            format!("{shards}, while {replay}")
        }
        EngineKind::Hybrid if best.load.elephants == 0 => format!(
            "no packet set is too heavy for one core, and moving buckets balances the load: the busiest core gets {} \
             of the packets",
            share(best.load.busiest())
        ),
        EngineKind::Hybrid => format!(
            "{} too heavy for one core ({} of the packets, the heaviest {heaviest}) and therefore replicated; all \
             others are sharded; {replay}",
            counted(best.load.elephants as u64, "packet set is", "packet sets are"),
            share(best.load.recorded())
        ),
        EngineKind::Shared | EngineKind::Transactional | EngineKind::Pipeline => {
            "it was the fastest in the measurement".to_owned()
        }
    }
}

/// What would change the recommendation.
fn turns(advice: &Advice) -> Vec<String> {
    let best = &advice.forecasts[advice.best];
    let on = counted(best.cores as u64, "core", "cores");
    let mut turns: Vec<String> = advice
        .turning
        .iter()
        .map(|(dispatch, engine)| {
            let side = if *dispatch > advice.model.d { "more" } else { "less" };
            format!("with a dispatch cost of {dispatch:.0} ns or {side}, {engine} would be the choice on {on}")
        })
        .collect();
    let fewer = advice.forecasts.iter().filter(|one| one.cores < best.cores && one.cores > 1).map(|one| one.cores);
    if let Some(cores) = fewer.max() {
        let there = advice.forecasts.iter().filter(|one| one.cores == cores && one.engine != EngineKind::Shared);
        let same = there.clone().find(|one| one.engine == best.engine).map_or(0.0, |one| one.mpps);
        let first = there.max_by(|a, b| a.mpps.total_cmp(&b.mpps));
        if let Some(there) = first.filter(|there| there.mpps > same * (1.0 + TIE_PERCENT / 100.0)) {
            turns.push(format!("on {cores} cores {} would be fastest with {:.1} Mpps", there.engine, there.mpps));
        }
    }
    if turns.is_empty() {
        turns.push(format!("up to 1 us of extra dispatch cost would not change that on {on}; other traffic might"));
    }
    turns
}

fn json(description: &Description, name: &str, answer: &Answer<'_>) -> Value {
    let Answer { advice, here, pipelines, gains, .. } = *answer;
    let forecast = |one: &Forecast| {
        json!({
            "engine": one.engine.name(), "cores": one.cores, "mpps": one.mpps, "mpps_range": one.mpps_range,
            "busiest_core_share": one.load.busiest(), "replicated_share": one.load.recorded(),
            "elephants": one.load.elephants, "state_moves": one.load.moves, "basis": "modelled",
            "bound": match one.bound { Bound::Work => "work", Bound::Turns => "turns", Bound::Wire => "link" },
            "spill_ns": one.spill_ns, "history_bytes_a_packet": one.carried,
        })
    };
    let model = &advice.model;
    json!({
        "function": description.name, "input": name, "packets": advice.packets, "here": here.map(Trials::json),
        "forecasts_assume": "a port that brings each core its packets; for scr and hybrid a sequencer ahead of the cores that costs these nothing",
        "best": forecast(&advice.forecasts[advice.best]), "reason": reason(advice), "would_change": turns(advice),
        "forecasts": advice.forecasts.iter().map(forecast).collect::<Vec<_>>(),
        "refused": advice.refused.iter()
            .map(|(engine, reason)| json!({ "engine": engine.name(), "reason": reason })).collect::<Vec<_>>(),
        "heaviest_packet_set_share": advice.heaviest,
        "model_ns": { "t": model.t, "d": model.d, "c1": model.c1, "c2": model.c2, "s": model.s, "r": model.r.here_ns, "r_beyond": model.r.beyond_ns },
        "cost_range": advice.spread,
        "state_bytes": advice.spill.bytes,
        "contention_ns": advice.contention.map(|Contention { alone_ns, transfer_ns, turn_ns }| json!({
            "alone": alone_ns, "transfer": transfer_ns, "turn": turn_ns, "basis": "measured on two cores",
        })),
        "pipeline": pipelines.map(Pipelines::json),
        "offload": gains.map(Gains::json),
        "link": advice.wire.map(|wire| json!({ "bits_per_s": wire.bits_per_s, "mean_packet_bytes": advice.mean_bytes })),
    })
}
