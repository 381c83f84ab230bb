//! `millrace bench sweep`: a stateless program with growing compute time, under replication.

use std::sync::Arc;

use lab::{Basis, Bench, BenchPlan, Calibration, Rounds, Row, SweepPoint};
use port::Trace;
use synth::{FlowTransport, FrameLen, Params, Profile};

use super::text::{disturbance, label, of_all, rate};
use super::{Args, json, keep, report, watched};
use crate::cli::failure::Failed;
use crate::cli::folder::refuse_no_folder;
use crate::cli::traffic::synthesised;
use crate::print::number::{counted, time};
use crate::print::output::{print, print_json};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// Default compute times in nanoseconds, from 0 to several times the dispatch cost.
const COMPUTES: [f64; 7] = [0.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// Packets of the generated traffic: so few that they stay in the last-level cache.
const PACKETS: u64 = 200_000;

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    if let Some(folder) = &args.options.report {
        refuse_no_folder(folder)?;
    }
    let (name, trace) = traffic(args)?;
    let mut computes = if args.compute.is_empty() { COMPUTES.to_vec() } else { args.compute.clone() };
    computes.sort_unstable_by(f64::total_cmp);
    computes.dedup();
    let calibration = Calibration::here();
    let computes: Vec<_> = computes.into_iter().map(|ns| calibration.work(ns)).collect();
    let mut plan = args.plan(engine::Options::default());
    // The other numbers of cores are compared with one core.
    if !plan.cores.contains(&1) {
        plan.cores.insert(0, 1);
    }
    let doing = format!("timing scr at {}", counted(computes.len() as u64, "compute time", "compute times"));
    let points = watched(plan.packets.max(trace.len() as u64), &doing, args.json, |progress| {
        lab::sweep(&trace, &plan, &computes, progress)
    })?;
    if args.json {
        print_json(&json::swept(&name, &points))?;
    } else {
        print(&text(&name, &points, &plan, Style::stdout()))?;
    }
    match &args.options.report {
        Some(folder) => {
            let page = report::swept(&name, &points, args.rounds);
            keep(folder, &json::swept(&name, &points), &page, args.json)
        }
        None => Ok(()),
    }
}

/// The given traffic, or uniform packets of 64 bytes.
fn traffic(args: &Args) -> Result<(String, Arc<Trace>), Failed> {
    if args.source.is_given() {
        let traffic = args.source.load(args.json)?;
        return Ok((traffic.name, traffic.trace));
    }
    let params = Params {
        packets: PACKETS,
        flows: Some(10_000),
        frame_len: Some(FrameLen::Fixed(64)),
        transport: Some(FlowTransport::Udp),
        ..Params::default()
    };
    Ok(("uniform, 10,000 flows, 64-byte packets".to_owned(), synthesised(Profile::Uniform, &params)?))
}

/// The row of one core.
pub(super) fn one_core(bench: &Bench) -> Option<&Row> {
    bench.rows.iter().find(|row| row.cores == 1)
}

/// Rate relative to one core.
pub(super) fn times_one(row: &Row, bench: &Bench) -> String {
    one_core(bench).map_or_else(String::new, |one| format!("{:.2}", row.mpps.median / one.mpps.median))
}

fn text(name: &str, points: &[SweepPoint], plan: &BenchPlan, style: Style) -> String {
    let mut out = format!(
        "{} of a stateless program under scr, on {name}, medians of {}\n\n",
        style.bold("sweep"),
        counted(plan.rounds as u64, "round", "rounds")
    );
    let with_loss_free = plan.loss_free.is_some();
    let mut columns = vec![
        ("compute", Align::Right),
        ("cores", Align::Right),
        ("Mpps", Align::Right),
        ("from - to", Align::Right),
        ("times one", Align::Right),
        ("model", Align::Right),
    ];
    if with_loss_free {
        columns.push(("loss-free", Align::Right));
    }
    columns.push(("", Align::Left));
    let mut sheet = Sheet::new(style, &columns);
    for point in points {
        let bench = &point.bench;
        for (index, row) in bench.rows.iter().enumerate() {
            let compute = if index == 0 { time(point.compute.asked_ns) } else { String::new() };
            let mut cells = vec![
                (compute, Tone::Bold),
                (row.cores.to_string(), Tone::Plain),
                (format!("{:.2}", row.mpps.median), Tone::Good),
                (format!("{:.2} - {:.2}", row.mpps.min, row.mpps.max), Tone::Dim),
                (times_one(row, bench), Tone::Plain),
                (format!("{:.2}", bench.model.mpps(row.cores)), Tone::Dim),
            ];
            if with_loss_free {
                let found = row.loss_free.as_ref().and_then(|found| found.as_ref().ok());
                let rate = found.map_or_else(|| "-".to_owned(), |found| rate(found.mpps.median));
                cells.push((rate, Tone::Good));
            }
            let tone = if row.basis == Basis::Measured { Tone::Dim } else { Tone::Warn };
            cells.push((label(row, "modelled: each core's share alone", bench), tone));
            sheet.toned(cells);
        }
    }
    out += &sheet.lines(0);
    let all = points.iter().map(|point| of_all(&point.bench)).fold(Rounds::default(), Rounds::and);
    if let Some(note) = disturbance(all) {
        out += &format!("\n{}\n", style.dim(note));
    }
    let note = "model: k / (t - s + (k-1) (c2 + r)). Its parameters are measured at each compute time, on one core; \
         r, the extra time for a record from another core's cache, between two cores";
    out + &format!("\n{}\n", style.dim(note))
}
