//! `millrace advise`: which engine for this function on this traffic, and why.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::{EngineKind, Options};
use functions::rate::Rate;
use measure::{Advice, BenchPlan, Bound, Contention, Forecast, Question, TIE_PERCENT, Wire, Work};
use nf::Description;
use port::Trace;
use port::pcap::Reader;
use serde_json::{Value, json};

use super::bench::options::nanoseconds;
use super::bench::timed_so_far;
use super::engines;
use super::failure::Failed;
use super::traffic::{Counter, Source};
use super::upkeep::Upkeep;
use super::{Configuration, entry, files, refuse_too_much, signals};
use crate::catalogue::{Catalogue, Program};
use crate::print::number::{self, counted};
use crate::print::output::{print, print_json};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// Say which engine and how many cores suit a function on this traffic
///
/// Measures what a packet costs and what replaying a record costs, where there are two processors also what two cores cost each other
/// that share state or a cache, counts how every engine would spread these packets, and predicts from all that, within what
/// --link carries. Predictions are modelled, whatever the number of cores; `millrace bench` measures.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace advise conntrack --in a.pcap --cores 16
  millrace advise nat --in a.pcap --dispatch 104ns --cores 16
  millrace advise conntrack --in a.pcap --link 100Gbit --cores 16
  millrace advise ddos --synth single-flow --cores 8 --json")]
pub(super) struct Args {
    /// The function (`millrace functions` lists them)
    #[arg(value_name = "FUNCTION")]
    function: String,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    configuration: Configuration,
    /// The most cores that there would be to use, or all; they need not be here
    #[arg(long, default_value = "all", value_name = "N", value_parser = engines::cores)]
    cores: usize,
    /// What receiving and sending a packet costs on the port that is meant: 104ns. Otherwise it is what it costs here, from memory
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    dispatch: Option<f64>,
    /// The link to the cores, by which a sequencer ahead of it sends each packet with the history that it carries: 100Gbit.
    /// Otherwise packets come as fast as they can be taken, and histories by memory
    #[arg(long, value_name = "RATE")]
    link: Option<Rate>,
    /// How often costs are measured; the prediction is from the medians, its range from the least and the most
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// How many packets a measurement has in a round, at least one pass over the traffic
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse_positive)]
    round_packets: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    upkeep: Upkeep,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    let entry = entry(catalogue, &args.function)?;
    let program = entry.load(&args.configuration.settings()?)?;
    let options = Options { tables: args.upkeep.tables(&*program)?, ..Options::default() };
    // Costs are measured with a lone core, with eight replicas of which one runs, and with two cores that share.
    refuse_too_much(&*program, &[(EngineKind::Sequential, 1), (EngineKind::Scr, 8), (EngineKind::Shared, 2)])?;
    signals::exit_on_interrupt("nothing was timed yet");
    let traffic = args.source.load(args.json)?;
    let wire = args.link.map(|rate| Wire { bits_per_s: rate.bits() });
    let question = Question {
        dispatch_ns: args.dispatch,
        wire,
        ..question(args.cores, options, usize::from(args.rounds), args.round_packets)
    };
    let advice = asked(&*program, &traffic.trace, &question, "advise", args.json)?;
    if args.json {
        print_json(&json(entry.description(), &traffic.name, &advice))
    } else {
        print(&text(entry.description(), &traffic.name, &advice, args.dispatch.is_some()))
    }
}

/// Packets of a capture that [`chosen`] looks at.
const LOOK_PACKETS: usize = 100_000;
/// Rounds of its measurements: enough to tell engines apart that differ by more than a few percent.
const LOOK_ROUNDS: usize = 3;

/// What suits a capture's first packets.
pub(super) struct Chosen {
    pub(super) engine: EngineKind,
    pub(super) cores: usize,
    /// What `hybrid` is to go by.
    pub(super) replay_percent: u32,
    /// Why.
    pub(super) reason: String,
}

/// The engine and the number of cores, at most so many, that suit a capture's first packets.
pub(super) fn chosen(
    program: &dyn Program,
    input: &Path,
    cores: usize,
    options: Options,
    quiet: bool,
) -> Result<Chosen, Failed> {
    let is_file = std::fs::metadata(input).is_ok_and(|about| about.is_file());
    if files::is_standard(input) || !is_file {
        let name = files::shown(input);
        return Err(Failed::usage(format_args!(
            "--engine auto looks at the capture before it runs, and {} can be read only once; name an engine",
            name.display()
        )));
    }
    let mut trace = Trace::new();
    // What is wrong with the capture is told by the run.
    let _ = trace.fill(&mut Reader::open(input)?, LOOK_PACKETS);
    if trace.is_empty() {
        let (engine, cores, replay_percent) = (EngineKind::Sequential, 1, options.replay_percent);
        return Ok(Chosen { engine, cores, replay_percent, reason: "there are no packets".to_owned() });
    }
    let question = question(cores, options, LOOK_ROUNDS, LOOK_PACKETS as u64);
    let advice = asked(program, &Arc::new(trace), &question, "auto", quiet)?;
    let Forecast { engine, cores, .. } = advice.forecasts[advice.best];
    Ok(Chosen { engine, cores, replay_percent: advice.replay_percent, reason: reason(&advice) })
}

/// What is asked of [`measure::advise`].
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
        model_to: 0,
    };
    Question { cores, dispatch_ns: None, wire: None, plan }
}

/// Asks behind a progress bar.
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
        "measuring what {} cost, in {}",
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

fn text(description: &Description, name: &str, advice: &Advice, given: bool) -> String {
    let style = Style::stdout();
    let packets = counted(advice.packets as u64, "packet", "packets");
    let mut out = format!("{} on {name} ({packets})\n\n", style.bold(description.name));
    out += &table(advice, style).lines(0);
    out += &format!(
        "{}\n",
        style.dim("Mpps, modelled from the costs below and from how each engine spreads these packets")
    );
    for limit in limits(advice) {
        out += &format!("{}\n", style.dim(limit));
    }
    for (engine, reason) in &advice.refused {
        // What an engine says for itself begins with its name.
        let named = reason.starts_with(engine.name());
        out += &format!("{}\n", style.dim(if named { reason.clone() } else { format!("{engine}: {reason}") }));
    }
    out += &format!("\n{}\n", style.good(headline(advice)));
    out += &format!("  because {}\n", reason(advice));
    for turn in turns(advice) {
        out += &format!("  {turn}\n");
    }
    let model = &advice.model;
    out += &format!(
        "\nnanoseconds a packet: t = {:.1} ({:.1} dispatch{} + {:.1} step), c2 = {:.1} for each record of a history; replicas are spared s = {:.1}\n",
        model.t,
        model.d,
        if given { ", as given" } else { "" },
        model.c1,
        model.c2,
        model.s
    );
    out
}

/// Engines by cores.
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

/// What bears on the figures beside costs and spread.
fn limits(advice: &Advice) -> Vec<String> {
    let mut limits = Vec::new();
    let last = |engine: EngineKind| advice.forecasts.iter().rfind(|one| one.engine == engine);
    if let (Some(shared), Some(Contention { alone_ns, transfer_ns, turn_ns })) =
        (last(EngineKind::Shared), advice.contention)
    {
        let turns = if shared.bound == Bound::Turns { ", which is what bounds it" } else { "" };
        let transfer = match transfer_ns {
            ..0.05 => "no more that could be measured".to_owned(),
            _ => format!("{transfer_ns:.1} more"),
        };
        limits.push(format!(
            "shared: {alone_ns:.1} ns a packet on a core alone, {transfer} where another core had the state last, {turn_ns:.1} for \
             a turn at the state that most packets want{turns} (measured on two cores); never advised, as its packets come in an \
             order of their own"
        ));
    }
    if let Some(scr) = last(EngineKind::Scr).filter(|scr| scr.spill_ns > 0.05) {
        limits.push(format!(
            "scr: {} of state in each replica; {} outgrow the cache that they share, and a step takes {:.1} ns longer",
            number::bytes(advice.spill.bytes),
            counted(scr.cores as u64, "replica", "replicas"),
            scr.spill_ns
        ));
    }
    if let Some(wire) = advice.wire {
        let full = |one: &&Forecast| one.bound == Bound::Wire;
        let rate = number::bit_rate(wire.bits_per_s / 8, Duration::from_secs(1));
        let mut said = format!("link: {rate}, {:.0} bytes a packet", advice.mean_bytes);
        if let Some(scr) = last(EngineKind::Scr) {
            let on = counted(scr.cores as u64, "core", "cores");
            said += &format!(" and {:.0} of history under scr on {on}", scr.carried);
        }
        let filled: Vec<&str> =
            EngineKind::ALL.into_iter().filter_map(last).filter(full).map(|one| one.engine.name()).collect();
        said += &match filled.as_slice() {
            [] => "; no engine fills it".to_owned(),
            filled => format!("; full under {} on the most cores", filled.join(", ")),
        };
        limits.push(said);
    }
    limits
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Millions of packets a second, few of them with more digits.
fn rate(mpps: f64) -> String {
    match mpps {
        ..0.095 => format!("{mpps:.6}"),
        0.095..9.95 => format!("{mpps:.2}"),
        _ => format!("{mpps:.1}"),
    }
}

fn headline(advice: &Advice) -> String {
    let Forecast { engine, cores, mpps, mpps_range: [low, high], .. } = &advice.forecasts[advice.best];
    let on = counted(*cores as u64, "core", "cores");
    format!("take {engine} on {on}: {} Mpps predicted ({} to {})", rate(*mpps), rate(*low), rate(*high))
}

/// Why the best is the best, in words.
fn reason(advice: &Advice) -> String {
    let mut reason = reason_by_work(advice);
    if advice.forecasts[advice.best].bound == Bound::Wire {
        reason += "; the link carries no more";
    }
    reason
}

/// How many times its even share a core may have where packets are spread well.
const EVEN: f64 = 1.3;

/// The same as far as cores are concerned.
fn reason_by_work(advice: &Advice) -> String {
    let best = &advice.forecasts[advice.best];
    let rival =
        |engine: EngineKind| advice.forecasts.iter().find(|one| one.engine == engine && one.cores == best.cores);
    let (cores, heaviest) = (best.cores, share(advice.heaviest));
    let fair = share(1.0 / cores as f64);
    let plain = rival(EngineKind::Rss).map(|rss| share(rss.load.busiest()));
    let replay = format!("replaying a record costs {:.1} ns of a packet's {:.1}", advice.model.c2, advice.model.t);
    match best.engine {
        EngineKind::Sequential if advice.forecasts.len() == 1 => {
            "no other engine was to be had on these cores".to_owned()
        }
        EngineKind::Sequential => "more cores gain next to nothing here".to_owned(),
        EngineKind::Rss => {
            let busiest = best.load.busiest();
            let spread =
                format!("the busiest of {cores} cores gets {} of the packets, an even share is {fair}", share(busiest));
            match busiest * cores as f64 <= EVEN {
                true => format!("its hash spreads these packet sets well: {spread}"),
                false => format!("nothing else carries more, though {spread}; {replay}"),
            }
        }
        EngineKind::RssPlusPlus => format!(
            "moving buckets evens the load out: the busiest core gets {} of the packets, where plain rss leaves it {}",
            share(best.load.busiest()),
            plain.unwrap_or_default()
        ),
        EngineKind::Scr => {
            let shards = plain.map_or_else(
                || "packet sets share state, so they can't be sharded".to_owned(),
                |plain| match advice.heaviest * cores as f64 > 1.0 {
                    true => format!("one packet set alone brings {heaviest} of the packets, and rss would leave its busiest core {plain}"),
                    false => format!("rss would leave its busiest core {plain} of the packets, those that belong to no packet set among them"),
                },
            );
            format!("{shards}, while {replay}")
        }
        EngineKind::Hybrid => format!(
            "{} too heavy for a core ({} of the packets, the heaviest {heaviest}) and replicated, while all others are sharded; \
             {replay}",
            counted(best.load.elephants as u64, "packet set is", "packet sets are"),
            share(best.load.recorded())
        ),
        EngineKind::Shared | EngineKind::Transactional => "it was measured to be the fastest".to_owned(),
    }
}

/// What would change the answer.
fn turns(advice: &Advice) -> Vec<String> {
    let best = &advice.forecasts[advice.best];
    let on = counted(best.cores as u64, "core", "cores");
    let mut turns: Vec<String> = advice
        .turning
        .iter()
        .map(|(dispatch, engine)| {
            let side = if *dispatch > advice.model.d { "more" } else { "less" };
            format!("with a dispatch of {dispatch:.0} ns or {side}, {engine} would be the choice on {on}")
        })
        .collect();
    let fewer = advice.forecasts.iter().filter(|one| one.cores < best.cores && one.cores > 1).map(|one| one.cores);
    if let Some(cores) = fewer.max() {
        let there = advice.forecasts.iter().filter(|one| one.cores == cores && one.engine != EngineKind::Shared);
        let same = there.clone().find(|one| one.engine == best.engine).map_or(0.0, |one| one.mpps);
        let first = there.max_by(|a, b| a.mpps.total_cmp(&b.mpps));
        if let Some(there) = first.filter(|there| there.mpps > same * (1.0 + TIE_PERCENT / 100.0)) {
            turns.push(format!("on {cores} cores {} would lead with {:.1} Mpps", there.engine, there.mpps));
        }
    }
    if turns.is_empty() {
        turns.push(format!("no dispatch cost up to a microsecond more would change that on {on}; other traffic might"));
    }
    turns
}

fn json(description: &Description, name: &str, advice: &Advice) -> Value {
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
        "function": description.name, "input": name, "packets": advice.packets,
        "best": forecast(&advice.forecasts[advice.best]), "reason": reason(advice), "would_change": turns(advice),
        "forecasts": advice.forecasts.iter().map(forecast).collect::<Vec<_>>(),
        "refused": advice.refused.iter()
            .map(|(engine, reason)| json!({ "engine": engine.name(), "reason": reason })).collect::<Vec<_>>(),
        "heaviest_packet_set_share": advice.heaviest,
        "model_ns": { "t": model.t, "d": model.d, "c1": model.c1, "c2": model.c2, "s": model.s },
        "cost_range": advice.spread,
        "state_bytes": advice.spill.bytes,
        "contention_ns": advice.contention.map(|Contention { alone_ns, transfer_ns, turn_ns }| json!({
            "alone": alone_ns, "transfer": transfer_ns, "turn": turn_ns, "basis": "measured on two cores",
        })),
        "link": advice.wire.map(|wire| json!({ "bits_per_s": wire.bits_per_s, "mean_packet_bytes": advice.mean_bytes })),
    })
}
