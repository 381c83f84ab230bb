//! The HTML page of a table bench: one file without scripts or external content.

use flow::Ageing;
use flow::index::IndexKind;
use lab::tables::{Clump, Expiring, OWN_BYTES, Op, Resident, Scaling, Sharing, TableKind};
use lab::{Basis, Spread};
use maud::{Markup, html};

use super::bench::Measured;
use super::json::mops;
use super::text::{against_none, lifetime, made_room, success, times_one};
use crate::print::number::{count, counted, time};
use crate::print::page;
use crate::print::plot::{Chart, Line, Marks, Point, Shape, Strips};

/// The page.
pub(super) fn page(measured: &Measured) -> String {
    let Measured { bench, plan, clock, entries, source, again, processor } = measured;
    let resident = measured.resident_ops();
    let body = html! {
        header {
            h1 { "Flow tables side by side" }
            p.lead {
                (count(*entries as u64)) " entries: " (source) ". IPv4 five-tuples, 24 bytes of state. "
                "Medians of " (counted(plan.rounds as u64, "round", "rounds")) " in turn; the thin bars are the spread."
            }
        }
        (findings(measured))
        @for op in &resident { (of_op(*op, measured)) }
        @if let Some(op) = resident.first() { (memory(*op, measured)) }
        @if !bench.expiring.is_empty() { (expiry(measured)) }
        @if !bench.clumps.is_empty() { (clumps(&bench.clumps)) }
        @if !bench.scaling.is_empty() { (scaling(measured)) }
        section {
            h2 { "How this was measured" }
            dl {
                dt { "Processor" } dd { (processor) }
                dt { "Load" }
                dd { "The share of an index's places that are in use when all entries are in. The standard map has its own
                      load, drawn as a horizontal line." }
                dt { "Turns" }
                dd { "All tables of a load are in memory at once and take turns, so that a drift of the machine \
                     affects all." }
                dt { "Cycles" }
                dd {
                    @match clock.ghz {
                        Some(ghz) => { "Nanoseconds times the " (format!("{ghz:.2}")) " GHz, the clock rate in /proc/cpuinfo at the start." }
                        None => "Not shown: the clock rate is unknown.",
                    }
                }
                dt { "Latency" }
                dd {
                    "Measured in separate passes. In bursts: 1/32 of the burst's time for each packet. Alone: each packet is
                     timed by itself, without overlap; reading the clock takes " (format!("{:.0}", clock.reading_ns))
                    " ns and is included, as are interruptions by the machine."
                }
                dt { "Modelled" }
                dd { "More cores than the machine has are never timed: each core's share runs alone, one after the other, and
                      the slowest counts. Such points are hollow." }
                dt { "Again" } dd { code { (again) " --report FOLDER" } }
                dt { "Figures" } dd { "All figures are in tables.json next to this page." }
            }
        }
    };
    page::whole("Flow tables side by side", &body)
}

/// A table's colour, the same on every plot.
fn colour(kind: TableKind) -> usize {
    match kind {
        TableKind::Of(IndexKind::Chaining) => 4,
        TableKind::Of(IndexKind::Cuckoo) => 2,
        TableKind::Of(IndexKind::CuckooPp) => 0,
        TableKind::Of(IndexKind::RobinHood) => 3,
        TableKind::Of(IndexKind::Hopscotch) => 5,
        TableKind::Of(IndexKind::Tagged) => 1,
        TableKind::Chosen => 6,
        TableKind::Std => 7,
    }
}

/// The main results, in sentences.
fn findings(measured: &Measured) -> Markup {
    let bench = &measured.bench;
    let load = measured.plan.scaling_load();
    let mut lines = Vec::new();
    for op in [Op::Lookup, Op::Miss, Op::Insert, Op::Mixed] {
        let rows = measured.rows(op);
        let ours = rows.iter().filter(|row| row.table.is_ours() && row.turn_percent == load);
        let ours: Vec<_> = ours.map(|row| (row.table, row.ns)).collect();
        let Some(first) = first(&ours) else { continue };
        let plain = rows.iter().find(|row| row.table == TableKind::Std);
        let against = plain
            .map_or_else(String::new, |plain| format!(", {:.1} times the standard map", plain.ns.median / first.ns));
        lines.push((
            op.name(),
            format!("{} at {load} % load: {:.1} ns, {:.1} Mops/s{against}.", first.who, first.ns, mops(first.ns)),
        ));
    }
    let wheel = bench.expiring.iter().filter(|row| row.ageing == Ageing::Wheel && row.load_percent == load);
    let wheel: Vec<_> = wheel.collect();
    let times: Vec<_> = wheel.iter().map(|row| (row.table, row.ns)).collect();
    if let Some(first) = first(&times) {
        let best = wheel.iter().find(|row| row.ns.median == first.ns);
        let against = (best.and_then(|best| against_none(best, &bench.expiring)))
            .map_or_else(String::new, |percent| format!(", {percent:+.0} % against no ageing"));
        lines.push((
            Op::Expire.name(),
            format!("{} with the wheel: {:.1} M flows opened a second{against}.", first.who, mops(first.ns)),
        ));
    }
    let wheel = bench.clumps.iter().filter(|row| row.ageing == Some(Ageing::Wheel));
    if let Some(best) = wheel.min_by(|one, other| one.after_worst.min.total_cmp(&other.after_worst.min)) {
        lines.push((
            Op::Clump.name(),
            format!(
                "{} flows expire in one millisecond. With {} and the wheel, the slowest packet of the calmest round \
                 takes {}.",
                count(best.flows),
                best.table.name(),
                time(best.after_worst.min)
            ),
        ));
    }
    let dense = measured.densest().into_iter().filter(|(kind, ..)| kind.is_ours());
    if let Some((kind, load, times)) = dense.min_by(|one, other| one.2.total_cmp(&other.2)) {
        let entry =
            format!("{} is the smallest: {times:.2} times the flows' own bytes at {load:.0} % load", kind.name());
        lines.push(("memory", format!("{entry}, the highest measured at which 99.99 % of the flows find room.")));
    }
    html! {
        @if !lines.is_empty() {
            section.findings {
                table { tbody { @for (name, line) in lines { tr { th { (name) } td { (line) } } } } }
            }
        }
    }
}

/// The fastest table in one figure.
struct First {
    /// As text: `robin-hood leads`, or, if ranges overlap, `robin-hood and tagged are equally fast`.
    who: String,
    /// Its median in nanoseconds.
    ns: f64,
}

/// The table with the lowest median, and the tables with overlapping ranges, which are equally fast.
fn first(times: &[(TableKind, Spread)]) -> Option<First> {
    let (_, best) = times.iter().min_by(|one, other| one.1.median.total_cmp(&other.1.median))?;
    let mut level: Vec<_> = times.iter().filter(|(_, ns)| ns.min <= best.max).collect();
    level.sort_by(|one, other| one.1.median.total_cmp(&other.1.median));
    let names: Vec<&str> = level.iter().map(|(table, _)| table.name()).collect();
    let who = match names.as_slice() {
        [one] => format!("{one} leads"),
        [others @ .., last] => format!("{} and {last} are equally fast, as their ranges overlap,", others.join(", ")),
        [] => return None,
    };
    Some(First { who, ns: best.median })
}

/// Lines over the requested loads; the standard map has its own load and is left out.
fn lines(rows: &[&Resident], of: impl Fn(&Resident) -> (f64, f64, f64)) -> Vec<Line> {
    TableKind::ALL
        .into_iter()
        .filter_map(|kind| {
            let of_kind: Vec<&&Resident> = rows.iter().filter(|row| row.table == kind).collect();
            let first = of_kind.first()?;
            let (level, name) = if kind == TableKind::Std {
                (Some(of(first).0), format!("std ({:.0} % full)", first.load_percent))
            } else {
                (None, kind.name().to_owned())
            };
            let points = of_kind.iter().filter(|_| level.is_none()).map(|row| {
                let (y, from, to) = of(row);
                Point { x: row.load_percent, y, from, to, modelled: false }
            });
            Some(Line { name, colour: colour(kind), points: points.collect(), level })
        })
        .collect()
}

/// Label of the axis; it says how to convert nanoseconds to cycles.
fn y_label(measured: &Measured) -> String {
    measured
        .clock
        .ghz
        .map_or_else(|| "ns a packet".to_owned(), |ghz| format!("ns a packet (times {ghz:.2} for cycles)"))
}

fn of_op(op: Op, measured: &Measured) -> Markup {
    let rows = measured.rows(op);
    let ticks: Vec<f64> = measured.plan.loads.iter().map(|load| *load as f64).collect();
    let ns_label = y_label(measured);
    let chart =
        |title, y_label, lines| Chart { title, x_label: "load, % of the places", y_label, ticks: ticks.clone(), lines };
    let ns = chart("Time of a packet", &ns_label, lines(&rows, |row| (row.ns.median, row.ns.min, row.ns.max)));
    let rate = chart(
        "Throughput",
        "millions a second",
        lines(&rows, |row| (mops(row.ns.median), mops(row.ns.max), mops(row.ns.min))),
    );
    let load = measured.plan.scaling_load();
    let shown = |row: &&&Resident| row.turn_percent == load;
    let strips: Vec<Marks> = rows
        .iter()
        .filter(shown)
        .filter_map(|row| {
            let alone = row.singles?;
            let marks = vec![
                (row.bursts?.p50, Shape::Ring),
                (alone.p50, Shape::Dot),
                (alone.p99, Shape::Bar),
                (alone.p999, Shape::Bar),
                (alone.max, Shape::Diamond),
            ];
            Some(Marks { name: row.table.name().to_owned(), marks })
        })
        .collect();
    let tail = Strips {
        title: "Tail of the latency distribution",
        x_label: "time of a packet, logarithmic",
        legend: vec![
            (Shape::Ring, "median in bursts of 32"),
            (Shape::Dot, "median alone"),
            (Shape::Bar, "99 and 99.9 % alone"),
            (Shape::Diamond, "worst alone"),
        ],
        rows: strips,
    };
    html! {
        section {
            h2 { (op.name()) }
            p { (op.summary()) }
            div.pair { figure { (ns.svg()) } figure { (rate.svg()) } }
            figure.wide { (tail.svg()) figcaption { "Latency at " (load) " % load, the standard map at its own." } }
            (numbers(&rows, measured))
        }
    }
}

fn numbers(rows: &[&Resident], measured: &Measured) -> Markup {
    html! {
        table.numbers {
            thead { tr {
                th { "table" } th { "load" } th { "Mops/s" } th { "ns" } th { "from - to" } th { "cycles" }
                th { "p99 in bursts" } th { "p99.9" } th { "p50 alone" } th { "p99.9" } th { "worst" } th { "found" }
            } }
            tbody {
                @for kind in TableKind::ALL {
                    @for (index, row) in rows.iter().filter(|row| row.table == kind).enumerate() {
                        tr.first[index == 0] {
                            th { @if index == 0 { (kind.name()) } }
                            td { (format!("{:.0} %", row.load_percent)) }
                            td { b { (format!("{:.1}", mops(row.ns.median))) } }
                            td { (format!("{:.1}", row.ns.median)) }
                            td.dim { (format!("{:.1} - {:.1}", row.ns.min, row.ns.max)) }
                            td { (measured.clock.cycles(row.ns.median).map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.0}"))) }
                            td { (row.bursts.map_or_else(String::new, |tail| time(tail.p99))) }
                            td { (row.bursts.map_or_else(String::new, |tail| time(tail.p999))) }
                            td { (row.singles.map_or_else(String::new, |tail| time(tail.p50))) }
                            td { (row.singles.map_or_else(String::new, |tail| time(tail.p999))) }
                            td.dim { (row.singles.map_or_else(String::new, |tail| time(tail.max))) }
                            td { (if row.op == Op::Miss { "none".to_owned() } else { success(row.hits) }) }
                        }
                    }
                }
            }
        }
    }
}

fn memory(op: Op, measured: &Measured) -> Markup {
    let rows = measured.rows(op);
    let ticks: Vec<f64> = measured.plan.loads.iter().map(|load| *load as f64).collect();
    let bytes = |row: &Resident| (row.bytes_per_entry, row.bytes_per_entry, row.bytes_per_entry);
    let title = "Memory for each entry";
    let chart =
        Chart { title, x_label: "load, % of the places", y_label: "bytes an entry", ticks, lines: lines(&rows, bytes) };
    html! {
        section {
            h2 { "memory and room" }
            p {
                "A key, its 24 bytes of state and its deadline have " (OWN_BYTES) " bytes; the rest is index, lists and free
                 space. Room is the share of the flows that fit into an empty table."
            }
            div.pair {
                figure { (chart.svg()) }
                table.numbers {
                    thead { tr { th { "table" } th { "load" } th { "bytes" } th { "times own" } th { "found room" } } }
                    tbody {
                        @for kind in TableKind::ALL {
                            @for (index, row) in rows.iter().filter(|row| row.table == kind).enumerate() {
                                @let share = row.inserted as f64 / row.offered as f64;
                                tr.first[index == 0] {
                                    th { @if index == 0 { (kind.name()) } }
                                    td { (format!("{:.0} %", row.load_percent)) }
                                    td { (format!("{:.1}", row.bytes_per_entry)) }
                                    td { (format!("{:.2}", row.bytes_per_entry / OWN_BYTES as f64)) }
                                    td.bad[share < 0.9999] { (success(share)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn expiry(measured: &Measured) -> Markup {
    let rows = &measured.bench.expiring;
    let ticks: Vec<f64> = measured.plan.loads.iter().map(|load| *load as f64).collect();
    let y_label = y_label(measured);
    let chart = |ageing: Ageing| {
        let lines = TableKind::ALL.into_iter().filter_map(|kind| {
            let points: Vec<Point> = rows
                .iter()
                .filter(|row| row.table == kind && row.ageing == ageing)
                .map(|row| Point {
                    x: row.load_percent as f64,
                    y: row.ns.median,
                    from: row.ns.min,
                    to: row.ns.max,
                    modelled: false,
                })
                .collect();
            let name = kind.name().to_owned();
            (!points.is_empty()).then(|| Line { name, colour: colour(kind), points, level: None })
        });
        let title = format!("Ageing: {}", ageing.name());
        let chart = Chart {
            title: &title,
            x_label: "load, % of the places",
            y_label: &y_label,
            ticks: ticks.clone(),
            lines: lines.collect(),
        };
        html! { figure { (chart.svg()) figcaption { (title) } } }
    };
    html! {
        section {
            h2 { (Op::Expire.name()) }
            p { (Op::Expire.summary()) " " (lifetime(measured)) " Without ageing, roughly the oldest flow is evicted \
                 (any flow with tagged); the others are compared with that." }
            div.pair { @for ageing in &measured.plan.ageings { (chart(*ageing)) } }
            table.numbers {
                thead { tr {
                    th { "table" } th { "load" } th.left { "ageing" } th { "Mops/s" } th { "ns" } th { "from - to" } th { "against none" }
                    th { "p99.9 alone" } th { "worst" } th.left { "" }
                } }
                tbody {
                    @for kind in TableKind::ALL {
                        @for (index, row) in rows.iter().filter(|row| row.table == kind).enumerate() { (aged(row, rows, index == 0)) }
                    }
                }
            }
        }
    }
}

fn aged(row: &Expiring, rows: &[Expiring], first: bool) -> Markup {
    html! {
        tr.first[first] {
            th { @if first { (row.table.name()) } }
            td { (row.load_percent) " %" }
            td.left { (row.ageing.name()) }
            td { b { (format!("{:.1}", mops(row.ns.median))) } }
            td { (format!("{:.1}", row.ns.median)) }
            td.dim { (format!("{:.1} - {:.1}", row.ns.min, row.ns.max)) }
            td { (against_none(row, rows).map_or_else(String::new, |percent| format!("{percent:+.0} %"))) }
            td { (row.singles.map_or_else(String::new, |tail| time(tail.p999))) }
            td.dim { (row.singles.map_or_else(String::new, |tail| time(tail.max))) }
            td.left.bad { (made_room(row)) }
        }
    }
}

fn clumps(rows: &[Clump]) -> Markup {
    let name = |row: &Clump| format!("{}, {}", row.table.name(), row.ageing.map_or("swept", Ageing::name));
    let strips = rows.iter().map(|row| Marks {
        name: name(row),
        marks: vec![
            (row.after.p50, Shape::Dot),
            (row.after.p999, Shape::Bar),
            (row.quiet_worst.min, Shape::Ring),
            (row.after_worst.min, Shape::Diamond),
        ],
    });
    let chart = Strips {
        title: "Packets behind a mass expiry",
        x_label: "time of a packet, logarithmic",
        legend: vec![
            (Shape::Dot, "median"),
            (Shape::Bar, "99.9 %"),
            (Shape::Ring, "worst before"),
            (Shape::Diamond, "worst behind"),
        ],
        rows: strips.collect(),
    };
    html! {
        section {
            h2 { (Op::Clump.name()) }
            p {
                @if let Some(first) = rows.first() { (count(first.flows)) " flows expire in the same millisecond. " }
                "Each packet after that opens a flow and is timed by itself. A stall of the table occurs in every round, a stall of the
                 machine only in some. So the slowest packet of the calmest round is drawn, next to the slowest packet before the
                 expiry. For comparison, one map is swept in a single step."
            }
            figure.wide { (chart.svg()) }
            table.numbers {
                thead { tr {
                    th { "table" } th.left { "ageing" } th { "worst: calmest round" } th { "median, last" } th { "before that" } th { "p50" } th { "p99.9" }
                    th { "all gone after" }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            th { (row.table.name()) }
                            td.left { (row.ageing.map_or("swept at once", Ageing::name)) }
                            td { b { (time(row.after_worst.min)) } }
                            td.dim { (time(row.after_worst.median)) ", " (time(row.after_worst.max)) }
                            td { (time(row.quiet_worst.min)) }
                            td { (time(row.after.p50)) }
                            td { (time(row.after.p999)) }
                            td { (row.clean_after.map_or_else(|| "not in the run".to_owned(), |packets| format!("{} packets", count(packets)))) }
                        }
                    }
                }
            }
        }
    }
}

fn scaling(measured: &Measured) -> Markup {
    let rows = &measured.bench.scaling;
    let ops: Vec<Op> = Op::ALL.into_iter().filter(|op| rows.iter().any(|row| row.op == *op)).collect();
    let chart = |op: Op| {
        let lines = TableKind::ALL.into_iter().flat_map(|kind| {
            Sharing::ALL.into_iter().filter_map(move |sharing| {
                let points: Vec<Point> = rows
                    .iter()
                    .filter(|row| row.table == kind && row.op == op && row.sharing == sharing)
                    .map(|row| Point {
                        x: row.cores as f64,
                        y: row.mops.median,
                        from: row.mops.min,
                        to: row.mops.max,
                        modelled: row.basis == Basis::Modelled,
                    })
                    .collect();
                let (name, colour) = match sharing {
                    Sharing::Private => (kind.name(), colour(kind)),
                    Sharing::Mutex => (sharing.name(), 8),
                    Sharing::Spin => (sharing.name(), 9),
                    Sharing::Optimistic => (sharing.name(), 10),
                };
                let name = name.to_owned();
                (!points.is_empty()).then_some(Line { name, colour, points, level: None })
            })
        });
        let chart = Chart {
            title: op.name(),
            x_label: "cores",
            y_label: "millions a second, all cores",
            ticks: measured.plan.cores.iter().map(|cores| *cores as f64).collect(),
            lines: lines.collect(),
        };
        html! { figure { (chart.svg()) figcaption { (op.name()) } } }
    };
    let times = |row: &Scaling| times_one(row, rows).map_or_else(String::new, |times| format!("{times:.2}"));
    html! {
        section {
            h2 { "cores" }
            p {
                "A hash spreads the flows over the cores, as a network card does. Each core has its own table, "
                (measured.plan.scaling_load()) " % full. If all cores share one cuckoo++ table, they get packets \
                     round robin. Hollow points and dashed lines are modelled."
            }
            div.pair { @for op in &ops { (chart(*op)) } }
            table.numbers {
                thead { tr {
                    th { "table" } th.left { "op" } th.left { "shared" } th { "cores" } th { "Mops/s" } th { "from - to" } th { "times one" } th.left { "" }
                } }
                tbody {
                    @for row in rows {
                        tr {
                            th { (row.table.name()) }
                            td.left { (row.op.name()) }
                            td.left { (row.sharing.name()) }
                            td { (row.cores) }
                            td { b { (format!("{:.1}", row.mops.median)) } }
                            td.dim { (format!("{:.1} - {:.1}", row.mops.min, row.mops.max)) }
                            td { (times(row)) }
                            td.left.bad[row.basis == Basis::Modelled] { (super::json::basis(row.basis)) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_named_where_ranges_do_not_overlap() {
        let of = |index, min, median, max| (TableKind::Of(index), Spread { min, median, max });
        let robin = of(IndexKind::RobinHood, 10.0, 11.0, 12.0);
        let who = |times: &[(TableKind, Spread)]| first(times).unwrap().who;
        assert_eq!(who(&[of(IndexKind::Cuckoo, 12.5, 13.0, 19.0), robin]), "robin-hood leads");
        assert_eq!(
            who(&[of(IndexKind::Cuckoo, 11.5, 13.0, 19.0), robin, of(IndexKind::Tagged, 12.1, 14.0, 15.0)]),
            "robin-hood and cuckoo are equally fast, as their ranges overlap,"
        );
        assert!(first(&[]).is_none());
    }
}
