//! `millrace bench FUNCTION --link-loss` measures the cost of loss between sequencer and replicas, and of loss recovery.

use engine::EngineKind;
use lab::{LossPlan, LossRow, Rounds};
use nf::Description;
use serde_json::{Value, json};

use super::json::{rounds, spread, work};
use super::text::{added, disturbance, share};
use super::{Args, refuse_too_much, watched};
use crate::cli::engines::{command, processor};
use crate::cli::failure::Failed;
use crate::print::number::{count, counted};
use crate::print::output::{print, print_json};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};
use catalogue::Program;

pub(super) fn perform(args: &Args, program: &dyn Program, description: &Description) -> Result<(), Failed> {
    let traffic = args.source.load(args.json)?;
    let tables = args.table_options.tables(program)?;
    let plan = LossPlan {
        loss_ppm: args.options.link_loss.clone(),
        cores: args.cores.most(),
        rounds: usize::from(args.rounds),
        undisturbed: args.undisturbed,
        packets: args.round_packets,
        options: engine::Options { tables, ..engine::Options::default() },
        dispatch: args.options.dispatch(),
    };
    // With recovery and without, at each rate and at none.
    refuse_too_much(program, &vec![(EngineKind::Scr, plan.cores); 2 * (plan.loss_ppm.len() + 1)])?;
    let doing = format!(
        "timing scr behind a link at {}",
        counted(plan.loss_ppm.len() as u64 + 1, "rate of loss", "rates of loss")
    );
    let rows = watched(plan.packets.max(traffic.trace.len() as u64), &doing, args.json, |progress| {
        program.bench_loss(&traffic.trace, &plan, progress)
    })?;
    if args.json {
        return print_json(&figures(description, &traffic.name, traffic.trace.len(), &plan, &rows));
    }
    print(&text(description, &traffic.name, &plan, &rows, Style::stdout()))
}

fn figures(description: &Description, name: &str, packets: usize, plan: &LossPlan, rows: &[LossRow]) -> Value {
    let row = |row: &LossRow| {
        json!({
            "engine": "scr", "cores": plan.cores, "link_loss_percent": percent(row.loss_ppm), "recovery": row.recovery,
            "mpps": spread(&row.mpps), "of_no_loss_no_recovery": spread(&row.of_best), "basis": "measured",
            "lost": row.lost, "recovered": row.tally.recovered_total(), "nowhere": row.tally.nowhere,
            "waits": row.tally.waits, "waits_for_room": row.tally.waits_for_room,
            "rounds": rounds(row.rounds),
        })
    };
    json!({
        "function": description.name, "input": name, "packets": packets, "dispatch_added": work(plan.dispatch),
        "link": rows.iter().map(row).collect::<Vec<_>>(), "processor": processor(), "command": command(),
    })
}

fn percent(loss_ppm: u32) -> f64 {
    f64::from(loss_ppm) / 1e4
}

fn text(description: &Description, name: &str, plan: &LossPlan, rows: &[LossRow], style: Style) -> String {
    let cores = counted(plan.cores as u64, "core", "cores");
    let rounds = counted(plan.rounds as u64, "round", "rounds");
    let mut out =
        format!("{} on {name}, scr on {cores}, medians of {rounds}, measured\n\n", style.bold(description.name));
    let columns = [
        ("loss", Align::Right),
        ("recovery", Align::Left),
        ("Mpps arrived", Align::Right),
        ("from - to", Align::Right),
        ("of no loss, off", Align::Right),
        ("recovered", Align::Right),
        ("lost by all", Align::Right),
        ("", Align::Left),
    ];
    let mut sheet = Sheet::new(style, &columns);
    for row in rows {
        let differ = !row.recovery && row.loss_ppm > 0;
        sheet.toned([
            (share(f64::from(row.loss_ppm) / 1e6), Tone::Plain),
            (if row.recovery { "on" } else { "off" }.to_owned(), Tone::Bold),
            (format!("{:.2}", row.mpps.median), Tone::Good),
            (format!("{:.2} - {:.2}", row.mpps.min, row.mpps.max), Tone::Dim),
            (format!("{:.1} %", row.of_best.median * 100.0), Tone::Plain),
            (count(row.tally.recovered_total()), Tone::Plain),
            (count(row.tally.nowhere), Tone::Plain),
            (if differ { "replicas differ" } else { "" }.to_owned(), Tone::Warn),
        ]);
    }
    out += &sheet.lines(0);
    let all = rows.iter().map(|row| row.rounds).fold(Rounds::default(), Rounds::and);
    if let Some(note) = disturbance(all) {
        out += &format!("{}\n", style.dim(note));
    }
    out += "\nPackets were sequenced in advance and carry their history, as they do after a network card that sequences.\n";
    if !plan.dispatch.is_none() {
        out += &format!("All figures are {}.\n", added(plan.dispatch));
    }
    out
}
