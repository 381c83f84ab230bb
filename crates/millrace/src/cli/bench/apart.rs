//! `bench --chain A,B,C --apart`: a chain beside its functions one behind another.

use catalogue::Program;
use catalogue::chain::parts;
use engine::EngineKind;
use lab::{BenchPlan, Spread};
use serde_json::json;

use super::json::spread;
use super::{Args, refuse_too_much, setups, timed};
use crate::cli::failure::Failed;
use crate::print::number::counted;
use crate::print::output::{print, print_json};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// A chain, or one of its functions.
struct Subject {
    name: String,
    program: Box<dyn Program>,
    /// Nanoseconds for a packet, in each round.
    ns: Vec<f64>,
    bytes_per_flow: f64,
}

/// Measures the chain and its functions in turns, on one core.
pub(super) fn perform(args: &Args, chain: Box<dyn Program>) -> Result<(), Failed> {
    let traffic = args.source.load(args.json)?;
    let traffic = args.defragment.renumbered(chain.wants_whole_datagrams(), traffic, args.json);
    let subject = |(name, program)| Subject { name, program, ns: Vec::new(), bytes_per_flow: 0.0 };
    let functions = parts(&args.configuration.settings()?)?;
    let mut subjects: Vec<Subject> = [("chain".to_owned(), chain)].into_iter().chain(functions).map(subject).collect();
    for round in 1..=args.rounds {
        for subject in &mut subjects {
            let Subject { name, program, ns, bytes_per_flow } = subject;
            let tables = args.table_options.guarded_tables(&args.guard_option, &**program)?;
            let plan = BenchPlan {
                engines: vec![EngineKind::Sequential],
                cores: vec![1],
                rounds: 1,
                ..args.plan(engine::Options { tables, ..engine::Options::default() })
            };
            refuse_too_much(&**program, &setups(&plan))?;
            let what = format!("{name}, round {round} of {}", args.rounds);
            let bench = timed(&**program, &traffic.trace, &plan, &what, args.json)?;
            ns.extend(bench.rows.first().map(|row| row.ns_per_packet_per_core.median));
            *bytes_per_flow = bench.bytes_per_flow.unwrap_or_default();
        }
    }
    let (chain, functions) = subjects.split_first().expect("the chain is one");
    // Ratios are of the same round.
    let (mut apart, mut ratios) = (Vec::new(), Vec::new());
    for (round, ns) in chain.ns.iter().enumerate() {
        let sum: f64 = functions.iter().filter_map(|function| function.ns.get(round)).sum();
        apart.push(sum);
        ratios.push(ns / sum.max(1e-9));
    }
    let (Some(apart), Some(ratio)) = (Spread::of(&apart), Spread::of(&ratios)) else {
        return Err(Failed::usage("nothing was measured"));
    };
    let look_ups: usize = functions.iter().map(|function| function.program.look_ups()).sum();
    let bytes: f64 = functions.iter().map(|function| function.bytes_per_flow).sum();
    let rows = subjects.iter().filter_map(|subject| {
        let spread = Spread::of(&subject.ns)?;
        Some((subject.name.as_str(), subject.program.look_ups(), spread, subject.bytes_per_flow))
    });
    let rows: Vec<_> = rows.chain([("apart", look_ups, apart, bytes)]).collect();
    if args.json {
        let row = |(name, look_ups, ns, bytes): &(&str, usize, Spread, f64)| json!({ "name": name, "look_ups": look_ups, "ns_per_packet": spread(ns), "bytes_per_flow": bytes });
        let rows: Vec<_> = rows.iter().map(row).collect();
        return print_json(&json!({
            "traffic": traffic.name, "packets": traffic.trace.len(), "rounds": args.rounds, "rows": rows,
            "chain_to_apart": spread(&ratio),
        }));
    }
    let style = Style::stdout();
    let columns = [
        ("", Align::Left),
        ("look-ups", Align::Right),
        ("ns/packet", Align::Right),
        ("from - to", Align::Right),
        ("bytes/flow", Align::Right),
    ];
    let mut sheet = Sheet::new(style, &columns);
    for (name, look_ups, ns, bytes) in rows {
        sheet.toned([
            (name, Tone::Bold),
            (&look_ups.to_string(), Tone::Plain),
            (&format!("{:.1}", ns.median), Tone::Plain),
            (&format!("{:.1} - {:.1}", ns.min, ns.max), Tone::Dim),
            (&format!("{bytes:.0}"), Tone::Plain),
        ]);
    }
    let packets = counted(traffic.trace.len() as u64, "packet", "packets");
    let head = format!(
        "{} beside its functions, on {} ({packets}), one core, {}\n\n",
        style.bold("chain"),
        traffic.name,
        counted(args.rounds.into(), "round", "rounds")
    );
    print(&format!(
        "{head}{}\nthe chain takes {:.2} of its functions apart ({:.2} to {:.2}); each function apart gets the traffic as it is, \
         also what a function ahead of it would drop or rewrite\nlook-ups: flow entries that are looked up for a packet, at most\n",
        sheet.lines(0),
        ratio.median,
        ratio.min,
        ratio.max
    ))
}
