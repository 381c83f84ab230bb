//! The HTML pages of a bench and of a sweep.

use std::collections::BTreeSet;

use engine::EngineKind;
use lab::{Basis, Bench, Rounds, Row, Spread, SweepPoint, Work};
use maud::{Markup, html};

use super::text::{
    NOTHING_PASSED, added, beyond_machine, disturbance, label, left_out, nothing_passed, of_all, rate, rules, share,
};
use super::{Benched, sweep};
use crate::cli::engines::{command, machine_cores, processor};
use crate::print::number::{count, counted, time};
use crate::print::page;
use crate::print::plot::{Chart, Line, Point};

/// The page of a function under each engine.
pub(super) fn benched(benched: &Benched<'_>, rounds: u16) -> String {
    let Benched { description, name, trace, bench, loss_free } = benched;
    let title = format!("{} under each engine", description.name);
    let with_loss_free = loss_free.is_some();
    let body = html! {
        header {
            h1 { (title) }
            p.lead {
                (description.summary) ". Traffic: " (name) ", " (counted(trace.len() as u64, "packet", "packets")) ". Medians of "
                (counted(rounds.into(), "round", "rounds")) " in turn; the thin bars are the spread." (dispatch_note(bench.dispatch))
            }
        }
        section {
            h2 { "Throughput" }
            p { "All cores together. Solid points are measured. Hollow points and dashed lines are modelled from each core's
                 share, run alone." }
            div.pair {
                figure { (by_cores("Throughput, flat out", "Mpps", bench, |row| Some(row.mpps)).svg()) figcaption { "Maximum rate: packets
                    are always ready, and each core takes the next one as soon as it can." } }
                @if with_loss_free {
                    figure { (by_cores("Loss-free rate", "Mpps", bench, loss_free_rate).svg())
                             figcaption { "Loss-free: packets arrive at a given rate; measured rows only." } }
                }
            }
            (rows(bench, with_loss_free))
            @for reason in left_out(bench) { p { (sentence(reason)) } }
            @if let Some(note) = disturbance(of_all(bench)) { p { (sentence(&note)) } }
            @if let Some(note) = beyond_machine(bench, machine_cores()) { p { (sentence(&note)) } }
            @if nothing_passed(bench) { p.bad { (sentence(NOTHING_PASSED)) } }
        }
        (model(bench))
        section {
            h2 { "Each core" }
            p { "Nanoseconds that a core spends for each packet of its own, including the records it replays." }
            div.pair {
                figure { (by_cores("Time of a packet on its core", "ns a packet", bench, |row| Some(row.ns_per_packet_per_core)).svg()) }
                table.numbers {
                    thead { tr { th { "part of the time" } th { "ns" } } }
                    tbody {
                        tr { th { "d, dispatch: receive, parse, transmit" } td { (format!("{:.1}", bench.model.d)) } }
                        tr { th { "c1, the step for an own packet" } td { (format!("{:.1}", bench.model.c1)) } }
                        tr { th { "t, both" } td { b { (format!("{:.1}", bench.model.t)) } } }
                        tr { th { "c2, a record of the history" } td { (format!("{:.1}", bench.model.c2)) } }
                        tr { th { "r, extra time for a record that another core used last" } td { (format!("{:.1}", bench.model.r.here_ns)) } }
                        @if bench.model.r.beyond_ns != bench.model.r.here_ns {
                            tr { th { "r on more cores than this machine has, as given" } td { (format!("{:.1}", bench.model.r.beyond_ns)) } }
                        }
                        tr { th { "s, the part of t that a replica saves" } td { (format!("{:.1}", bench.model.s)) } }
                        tr { th { "instructions a cycle, L2 hits" } td.dim { "not available" } }
                    }
                }
            }
        }
        section {
            h2 { "How this was measured" }
            dl {
                dt { "Processor" } dd { (processor()) }
                @if let Some(plan) = loss_free { dt { "Loss-free" } dd { (sentence(&rules(plan))) } }
                @if let Some(each) = bench.bytes_per_flow {
                    dt { "Memory" } dd { (format!("{each:.0}")) " bytes a flow in a full table" }
                }
                dt { "Counters" } dd { "Hardware counters are not read, so instructions per cycle and cache hits are \
                     missing." }
                (ways(bench.dispatch))
            }
        }
    };
    page::whole(&title, &body)
}

/// The page of a stateless program with growing compute time.
pub(super) fn swept(name: &str, points: &[SweepPoint], rounds: u16) -> String {
    let title = "Replication of a longer and longer program";
    let dispatch = points.first().map_or(Work::NONE, |point| point.bench.dispatch);
    let all = points.iter().map(|point| of_all(&point.bench)).fold(Rounds::default(), Rounds::and);
    let absolute = by_compute("Throughput", "Mpps", points, |row, _| Some(row.mpps));
    let normal = by_compute("Against one core", "times one core", points, |row, bench| {
        let one = sweep::one_core(bench)?.mpps.median;
        let Spread { min, median, max } = row.mpps;
        Some(Spread { min: min / one, median: median / one, max: max / one })
    });
    let body = html! {
        header {
            h1 { (title) }
            p.lead {
                "A stateless program whose step takes a known time, under scr: the step runs for each packet and for each record of the
                 history. Traffic: " (name) ". Medians of " (counted(rounds.into(), "round", "rounds")) "; the thin bars are the spread."
                (dispatch_note(dispatch))
            }
        }
        section {
            h2 { "Throughput by compute time" }
            p { "Solid points are measured. Hollow points and dashed lines are modelled from each core's share, run alone." }
            div.pair { figure { (absolute.svg()) } figure { (normal.svg()) } }
            table.numbers {
                thead { tr {
                    th { "compute" } th { "takes, calibrated" } th { "cores" } th { "Mpps" } th { "from - to" } th { "times one core" }
                    th { "by the model" } th.left { "" }
                } }
                tbody { @for point in points { @for (index, row) in point.bench.rows.iter().enumerate() { (swept_row(point, row, index == 0)) } } }
            }
            @if let Some(note) = disturbance(all) { p { (sentence(&note)) } }
        }
        section {
            h2 { "How this was measured" }
            dl {
                dt { "Processor" } dd { (processor()) }
                dt { "Compute" }
                dd { "A chain of dependent multiplications without memory accesses, calibrated once for each run." }
                (ways(dispatch))
            }
        }
    };
    page::whole(title, &body)
}

fn dispatch_note(dispatch: Work) -> Markup {
    html! { @if !dispatch.is_none() { " " b { "All rows are " (added(dispatch)) "." } } }
}

/// Label of a row that is computed from shares; the page explains it.
const BY_SHARES: &str = "modelled by shares";

/// Explanations that all pages have.
fn ways(dispatch: Work) -> Markup {
    html! {
        dt { "Measured" } dd { "One thread for each core of the row, all at the same time, each on its own processor." }
        dt { "Modelled" }
        dd { "Cores beyond the machine's are never timed together: each core's share runs alone, one after the other, and the slowest
              counts, with r for each record; or k / (t - s + (k-1) (c2 + r)), where it says so. Such rows have no loss-free rate." }
        @if !dispatch.is_none() {
            dt { "Dispatch" }
            dd { "Each received packet costs a core " (time(dispatch.asked_ns)) " more (calibrated: "
                 (format!("{:.1}", dispatch.takes_ns)) " ns), in place of a driver. History records don't cost this." }
        }
        dt { "Again" } dd { code { (command()) } }
        dt { "Figures" } dd { "All figures are in bench.json next to this page." }
    }
}

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect::<String>() + ".")
}

/// An engine's colour, the same on every plot.
fn colour(engine: EngineKind) -> usize {
    let place = EngineKind::ALL.iter().position(|other| *other == engine).unwrap_or(0);
    // The oracle is grey, the others have the colours in turn.
    match engine {
        EngineKind::Sequential => 6,
        EngineKind::Pipeline => 8,
        EngineKind::Shared
        | EngineKind::Rss
        | EngineKind::RssPlusPlus
        | EngineKind::Transactional
        | EngineKind::Scr
        | EngineKind::Hybrid => place.saturating_sub(1),
    }
}

fn point(x: f64, spread: Spread, basis: Basis) -> Point {
    Point { x, y: spread.median, from: spread.min, to: spread.max, modelled: basis == Basis::Modelled }
}

/// True if a row is measured and plausible.
fn is_sound(row: &Row, bench: &Bench) -> bool {
    row.basis == Basis::Measured && bench.implausible(row).is_none()
}

/// The loss-free rate of a row; `None` if no rate passed.
fn loss_free_rate(row: &Row) -> Option<Spread> {
    row.loss_free.as_ref()?.as_ref().ok().map(|found| found.mpps).filter(|mpps| mpps.median > 0.0)
}

/// Numbers of cores with something to draw.
fn core_ticks(cores: impl Iterator<Item = usize>) -> Vec<f64> {
    let cores: BTreeSet<usize> = cores.collect();
    cores.into_iter().map(|cores| cores as f64).collect()
}

/// A plot of every engine by number of cores.
fn by_cores<'a>(title: &'a str, y_label: &'a str, bench: &Bench, figure: impl Fn(&Row) -> Option<Spread>) -> Chart<'a> {
    let line = |engine: EngineKind| {
        let of = bench.rows.iter().filter(|row| row.engine == engine);
        let points: Vec<Point> = of.filter_map(|row| Some(point(row.cores as f64, figure(row)?, row.basis))).collect();
        let name = engine.name().to_owned();
        (!points.is_empty()).then(|| Line { name, colour: colour(engine), points, level: None })
    };
    let drawn = bench.rows.iter().filter(|row| figure(row).is_some());
    Chart {
        title,
        x_label: "cores",
        y_label,
        ticks: core_ticks(drawn.map(|row| row.cores)),
        lines: EngineKind::ALL.into_iter().filter_map(line).collect(),
    }
}

fn rows(bench: &Bench, with_loss_free: bool) -> Markup {
    html! {
        table.numbers {
            thead { tr {
                th { "engine" } th { "cores" } th { "Mpps" } th { "from - to" } th { "ns/packet/core" }
                @if with_loss_free { th { "loss-free Mpps" } th { "from - to" } th { "lost" } th { "trials" } }
                th.left { "" }
            } }
            tbody {
                @for (index, row) in bench.rows.iter().enumerate() {
                    @let first = index == 0 || bench.rows[index - 1].engine != row.engine;
                    tr.first[first] {
                        th { @if first { (row.engine.name()) } }
                        td { (row.cores) }
                        td { b { (format!("{:.2}", row.mpps.median)) } }
                        td.dim { (format!("{:.2} - {:.2}", row.mpps.min, row.mpps.max)) }
                        td { (format!("{:.1}", row.ns_per_packet_per_core.median)) }
                        @if with_loss_free { (loss_free_cells(row)) }
                        td.left.why.bad[!is_sound(row, bench)].dim[is_sound(row, bench)] { (label(row, BY_SHARES, bench)) }
                    }
                }
            }
        }
    }
}

fn loss_free_cells(row: &Row) -> Markup {
    html! {
        @match &row.loss_free {
            Some(Ok(found)) => {
                td { b { (rate(found.mpps.median)) } }
                td.dim { (rate(found.mpps.min)) " - " (rate(found.mpps.max)) }
                td { (share(found.loss.median)) }
                td.dim { (count(found.trials as u64)) }
            }
            Some(Err(_)) | None => { td { "-" } td {} td {} td {} }
        }
    }
}

/// The curve of the model with the measured points.
fn model(bench: &Bench) -> Markup {
    let points = |of: &dyn Fn(&lab::Prediction) -> Option<Point>| bench.predictions.iter().filter_map(of).collect();
    let predicted: Vec<Point> = points(&|one| {
        let Spread { min, median, max } = Spread::of(&[one.mpps])?;
        Some(Point { x: one.cores as f64, y: median, from: min, to: max, modelled: true })
    });
    let found: Vec<Point> = points(&|one| {
        let beside = one.beside?;
        Some(point(one.cores as f64, Spread::of(&[beside.mpps])?, beside.basis))
    });
    let line = |name: &str, colour, points| Line { name: name.to_owned(), colour, points, level: None };
    let chart = Chart {
        title: "Replication: modelled and measured",
        x_label: "cores",
        y_label: "Mpps",
        ticks: core_ticks(bench.predictions.iter().map(|one| one.cores)),
        lines: vec![line("by the model", 7, predicted), line("scr, found", colour(EngineKind::Scr), found)],
    };
    html! {
        @if !bench.predictions.is_empty() {
            section {
                h2 { "The model compared with the measurement" }
                p { "Replication by k / (t - s + (k-1) (c2 + r)), its parameters measured in the same run on one core, r between two. The error is the
                     model's: positive if it is above the measurement." }
                div.pair {
                    figure { (chart.svg()) }
                    (predictions(&bench.predictions, false))
                }
                @if !bench.sharded.is_empty() {
                    p { "Engines that shard, by the busiest core's packets at t each." }
                    (predictions(&bench.sharded, true))
                }
            }
        }
    }
}

/// A table of predictions and measurements; `named`: with the names of the engines.
fn predictions(predictions: &[lab::Prediction], named: bool) -> Markup {
    html! {
        table.numbers {
            thead { tr {
                @if named { th.left { "engine" } }
                th { "cores" } th { "model, Mpps" } th { "found" } th { "error" } th.left { "" }
            } }
            tbody {
                @for one in predictions {
                    tr {
                        @if named { th.left { (one.engine.name()) } }
                        th { (one.cores) }
                        td { (format!("{:.2}", one.mpps)) }
                        @match one.beside {
                            Some(beside) => {
                                td { b { (format!("{:.2}", beside.mpps)) } }
                                td { (format!("{:+.1} %", beside.error_percent)) }
                                td.left.dim { "modelled beside " (match beside.basis {
                                    Basis::Measured => "measured",
                                    Basis::Modelled => "each core's share alone",
                                }) }
                            }
                            None => { td {} td {} td.left.bad { "modelled" } }
                        }
                    }
                }
            }
        }
    }
}

/// A plot of each number of cores by compute time.
fn by_compute<'a>(
    title: &'a str,
    y_label: &'a str,
    points: &[SweepPoint],
    figure: impl Fn(&Row, &Bench) -> Option<Spread>,
) -> Chart<'a> {
    let cores: BTreeSet<usize> = points.iter().flat_map(|point| point.bench.rows.iter().map(|row| row.cores)).collect();
    let line = |(index, cores): (usize, usize)| {
        let of = |swept: &SweepPoint| {
            let row = swept.bench.rows.iter().find(|row| row.cores == cores)?;
            Some(point(swept.compute.asked_ns, figure(row, &swept.bench)?, row.basis))
        };
        let points = points.iter().filter_map(of).collect();
        Line { name: counted(cores as u64, "core", "cores"), colour: index, points, level: None }
    };
    Chart {
        title,
        x_label: "compute time of a step, ns",
        y_label,
        ticks: points.iter().map(|point| point.compute.asked_ns).collect(),
        lines: cores.into_iter().enumerate().map(line).collect(),
    }
}

fn swept_row(point: &SweepPoint, row: &Row, first: bool) -> Markup {
    let bench = &point.bench;
    html! {
        tr.first[first] {
            th { @if first { (time(point.compute.asked_ns)) } }
            td.dim { @if first { (format!("{:.1} ns", point.compute.takes_ns)) } }
            td { (row.cores) }
            td { b { (format!("{:.2}", row.mpps.median)) } }
            td.dim { (format!("{:.2} - {:.2}", row.mpps.min, row.mpps.max)) }
            td { (sweep::times_one(row, bench)) }
            td { (format!("{:.2}", bench.model.mpps(row.cores))) }
            td.left.why.bad[!is_sound(row, bench)].dim[is_sound(row, bench)] { (label(row, BY_SHARES, bench)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_keep_their_colours_apart() {
        let colours: BTreeSet<usize> = EngineKind::ALL.into_iter().map(colour).collect();
        assert_eq!(colours.len(), EngineKind::ALL.len());
        assert_eq!(sentence("one word"), "One word.");
    }
}
