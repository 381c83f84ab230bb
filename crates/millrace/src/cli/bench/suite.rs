//! `millrace bench suite`: the table of targets, with generated uniform traffic of 64-byte packets on one core. A target is a multiple of
//! the bare loop's time in the same rounds, so that it means the same on any processor (decision 0023).

mod sharing;

use engine::{EngineKind, Options, Tables};
use lab::targets::{Against, SCALING, SEQUENCED, TARGETS, Target};
use lab::{Bench, BenchPlan, Rounds, Work};
use serde_json::{Value, json};
use synth::{FlowTransport, FrameLen, Params, Profile};

use super::json::{rounds, sequencing, spread};
use super::text::{self, sequencer};
use super::{Args, timed};
use crate::cli::engines::machine_cores;
use crate::cli::failure::Failed;
use crate::cli::traffic::synthesised;
use crate::print::number::{count, counted};
use crate::print::output::{print, print_json};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};
use catalogue::Catalogue;
use catalogue::config::Settings;
use sharing::Sharing;

/// Packets of a trace, unless its flows need more. So few that the trace stays in the last-level cache, where a network card puts
/// received packets.
const TRACE_PACKETS: u64 = 200_000;

const ONE_PROCESSOR: &str =
    "\ntwo cores: not measured, because this machine has one processor (scaling, shared, transactional)\n";

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    let style = Style::stdout();
    let mut lines = Vec::new();
    let columns = [
        ("function", Align::Left),
        ("flows", Align::Right),
        ("ns/packet", Align::Right),
        ("from - to", Align::Right),
        ("bare loop", Align::Right),
        ("times", Align::Right),
        ("target", Align::Right),
        ("", Align::Left),
        ("Mpps", Align::Right),
        (if args.undisturbed { "undisturbed" } else { "" }, Align::Left),
        ("bytes/flow", Align::Right),
        ("start-up", Align::Right),
    ];
    let mut sheet = Sheet::new(style, &columns);
    let mut all = Rounds::default();
    for target in &TARGETS {
        let Some(bench) = measured(args, catalogue, target)? else { continue };
        let (Some(row), Some(bare)) = (bench.rows.first(), &bench.bare_ns) else { continue };
        let ns = &row.ns_per_packet_per_core;
        let against = Against { ns: ns.median, bare_ns: bare.median, target: target.times };
        sheet.toned([
            (target.function, Tone::Bold),
            (&count(target.flows), Tone::Plain),
            (&format!("{:.1}", ns.median), Tone::Plain),
            (&format!("{:.1} - {:.1}", ns.min, ns.max), Tone::Dim),
            (&format!("{:.1}", bare.median), Tone::Plain),
            (&format!("{:.2}", against.times()), Tone::Plain),
            (&format!("{:.1}", against.target), Tone::Plain),
            (against.word(), if against.is_met() { Tone::Good } else { Tone::Bad }),
            (&format!("{:.1}", row.mpps.median), Tone::Plain),
            (&text::rounds(row.rounds).unwrap_or_default(), Tone::Dim),
            (&bench.bytes_per_flow.map_or_else(String::new, |bytes| format!("{bytes:.0}")), Tone::Plain),
            (&format!("{:.0} ms", bench.startup.as_secs_f64() * 1e3), Tone::Plain),
        ]);
        all = all.and(row.rounds);
        lines.push(json!({
            "function": target.function, "flows": target.flows, "ns_per_packet": spread(ns), "bare_loop_ns": spread(bare),
            "times_bare_loop": against.times(), "target_times_bare_loop": against.target, "met": against.is_met(),
            "mpps": spread(&row.mpps), "rounds": rounds(row.rounds), "bytes_per_flow": bench.bytes_per_flow,
            "startup_s": bench.startup.as_secs_f64(),
        }));
    }
    let has_two = machine_cores() >= 2;
    let scaling = if has_two { scaling(args, catalogue)? } else { None };
    let sharing = has_two.then(|| Sharing::measure(args, catalogue)).transpose()?;
    if args.json {
        let (scaling, sharing) = (scaling.map(|scaling| scaling.json), sharing.as_ref().map(Sharing::json));
        return print_json(&json!({ "one_core": lines, "two_cores": scaling, "sharing": sharing }));
    }
    let head = format!(
        "{}: 64-byte packets from memory, one core, medians of {} {}\n\n",
        style.bold("suite"),
        args.rounds,
        if args.undisturbed { "undisturbed rounds" } else { "rounds" }
    );
    let mut out = head + &sheet.lines(0);
    out += "\nbare loop: ns per packet of a loop that checks one header, counts by source in one table and swaps the \
         MAC addresses; on the same packets, in the same rounds. A target is a multiple of this time.\n";
    if let Some(note) = text::disturbance(all) {
        out += &format!("\n{}\n", style.dim(note));
    }
    if let Some(scaling) = scaling {
        out += &scaling.text;
    }
    out += &sharing.map_or_else(|| ONE_PROCESSOR.to_owned(), |sharing| sharing.text(style));
    print(&out)
}

fn measured(args: &Args, catalogue: &Catalogue, target: &Target) -> Result<Option<Bench>, Failed> {
    let Some(entry) = catalogue.get(target.function) else { return Ok(None) };
    let program = entry.load(&Settings::default())?;
    let Ok(tables) = args.table_options.tables(&*program) else { return Ok(None) };
    // A TCP conversation has at least six packets.
    let packets = (target.flows * if target.transport == FlowTransport::Tcp { 6 } else { 2 }).max(TRACE_PACKETS);
    let params = Params {
        packets,
        flows: Some(target.flows),
        frame_len: Some(FrameLen::Fixed(64)),
        transport: Some(target.transport),
        ..Params::default()
    };
    let trace = synthesised(Profile::Uniform, &params)?;
    let plan = plan(args, tables, vec![EngineKind::Sequential], vec![1]);
    let what = format!("{} ({})", target.function, counted(target.flows, "flow", "flows"));
    timed(&*program, &trace, &plan, &what, args.json).map(Some)
}

fn plan(args: &Args, tables: Tables, engines: Vec<EngineKind>, cores: Vec<usize>) -> BenchPlan {
    BenchPlan {
        engines,
        cores,
        rounds: usize::from(args.rounds),
        packets: args.round_packets,
        options: Options { tables, ..Options::default() },
        undisturbed: args.undisturbed,
        with_bare: true,
        dispatch: Work::NONE,
        loss_free: None,
        delay: None,
        model_to: 0,
        far_line_ns: None,
    }
}

/// Results on two cores.
struct Scaling {
    text: String,
    json: Value,
}

/// Measures sharding on uniform traffic, and replication on a single flow.
fn scaling(args: &Args, catalogue: &Catalogue) -> Result<Option<Scaling>, Failed> {
    let Some(entry) = catalogue.get("ddos") else { return Ok(None) };
    let program = entry.load(&Settings::default())?;
    let tables = args.table_options.tables(&*program)?;
    let params = |flows| Params {
        packets: TRACE_PACKETS,
        flows: Some(flows),
        frame_len: Some(FrameLen::Fixed(64)),
        ..Params::default()
    };
    let uniform = synthesised(Profile::Uniform, &params(10_000))?;
    let mut sharding = plan(args, tables, vec![EngineKind::Rss], vec![1, 2]);
    if args.undisturbed {
        // Two cores are rarely undisturbed for long.
        sharding.packets = sharding.packets.min(2 * TRACE_PACKETS);
    }
    let sharded = timed(&*program, &uniform, &sharding, "two cores", args.json)?;
    let single = synthesised(Profile::SingleFlow, &params(1))?;
    let replicating = plan(args, tables, vec![EngineKind::Rss, EngineKind::Scr], vec![1, 2]);
    let replicated = timed(&*program, &single, &replicating, "two cores on one flow", args.json)?;
    let row = |bench: &Bench, engine, cores| {
        let row = bench.rows.iter().find(|row| row.engine == engine && row.cores == cores);
        row.map_or((0.0, 0.0), |row| (row.mpps.median, row.mpps.max))
    };
    let median = |bench: &Bench, engine, cores| row(bench, engine, cores).0;
    let [(one, one_fastest), (two, two_fastest)] = [1, 2].map(|cores| row(&sharded, EngineKind::Rss, cores));
    let (rss, scr) = (median(&replicated, EngineKind::Rss, 2), median(&replicated, EngineKind::Scr, 2));
    let alone = median(&replicated, EngineKind::Scr, 1);
    let model = replicated.model;
    let (times, times_fastest) = (two / one.max(1e-9), two_fastest / one_fastest.max(1e-9));
    let style = Style::stdout();
    let word = |is_met| if is_met { style.good("met") } else { style.bad("missed") };
    let bare_ns = replicated.bare_ns.map(|bare| bare.median);
    let against = replicated.sequencing.as_ref().zip(bare_ns);
    let against = against.map(|(sequencing, bare_ns)| Against::of_rate(sequencing.log_mpps.median, bare_ns, SEQUENCED));
    let sequenced = replicated.sequencing.as_ref().zip(against).map_or_else(String::new, |(sequencing, against)| {
        format!("\n{}{}\n", sequencer(sequencing), of_bare_loop(against, &word(against.is_met())))
    });
    let word = word(times >= SCALING);
    let of_two = sharded.rows.iter().filter(|row| row.cores == 2).find_map(|row| text::rounds(row.rounds));
    let of_two = of_two.map_or_else(String::new, |rounds| format!("; two cores: {rounds}"));
    let text = format!(
        "\ntwo cores, ddos, measured\n  rss, uniform traffic  {one:.1} -> {two:.1} Mpps: {times:.2} times (target {SCALING}: {word}), {times_fastest:.2} in the fastest rounds{of_two}\n  a single flow         {alone:.1} Mpps on one core; on two cores {rss:.1} with rss, {scr:.1} with scr\n  \
         its cost model        t = {:.1} ns, d = {:.1}, c1 = {:.1}, c2 = {:.1}, s = {:.1}, r = {:.1}\n{sequenced}",
        model.t, model.d, model.c1, model.c2, model.s, model.r.here_ns
    );
    let json = json!({
        "rss_uniform_mpps": [one, two], "rss_uniform_times": times, "rss_uniform_times_fastest": times_fastest, "target_times": SCALING,
        "single_flow_mpps": { "one_core": alone, "rss": rss, "scr": scr },
        "software_sequencer": replicated.sequencing.as_ref().map(sequencing),
        "shared_log_target": against.map(|against| json!({
            "ns_per_packet": against.ns, "bare_loop_ns": against.bare_ns, "times_bare_loop": against.times(),
            "target_times_bare_loop": against.target, "met": against.is_met(),
        })),
        "model_ns": { "t": model.t, "d": model.d, "c1": model.c1, "c2": model.c2, "s": model.s, "r": model.r.here_ns, "r_beyond": model.r.beyond_ns },
    });
    Ok(Some(Scaling { text, json }))
}

/// Formats the time of the shared log relative to the bare loop; `word` says whether the target is met.
fn of_bare_loop(against: Against, word: &str) -> String {
    let Against { ns, bare_ns, target } = against;
    format!(
        "; with a shared log {ns:.1} ns per packet, {:.2} times the bare loop's {bare_ns:.1} (target {target}: {word})",
        against.times()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequencer_is_held_against_the_bare_loop() {
        let against = Against::of_rate(50.0, 5.0, 5.0);
        let expected = "; with a shared log 20.0 ns per packet, 4.00 times the bare loop's 5.0 (target 5: met)";
        assert_eq!(of_bare_loop(against, against.word()), expected);
    }
}
