//! Formats the result of a table bench for a terminal.

use lab::Basis;
use lab::tables::{Clump, Expiring, OWN_BYTES, Op, Resident, Scaling, TableKind, Tail};

use super::bench::Measured;
use super::json::{basis, mops};
use crate::print::number::{count, counted, time};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

pub(super) fn measured(measured: &Measured, style: Style) -> String {
    let Measured { bench, plan, clock, entries, source, processor, .. } = measured;
    let mut out = format!(
        "{} of {}: {source}\n{processor}, medians of {}, all tables of a load in turn\n",
        style.bold("tables"),
        counted(*entries as u64, "entry", "entries"),
        counted(plan.rounds as u64, "round", "rounds"),
    );
    for op in measured.resident_ops() {
        out += &heading(op.name(), op.summary(), style);
        out += &resident(op, measured, style);
    }
    if !bench.resident.is_empty() {
        let what = format!("Bytes per entry at each load; the flow itself (key, state and deadline) has {OWN_BYTES}.");
        out += &heading("memory", &what, style);
        out += &memory(measured, style);
    }
    if !bench.expiring.is_empty() {
        out += &heading(Op::Expire.name(), &format!("{} {}", Op::Expire.summary(), lifetime(measured)), style);
        out += &expiring(measured, style);
    }
    if let Some(first) = bench.clumps.first() {
        let what = format!(
            "{} expire in one millisecond; each packet opens a flow and is timed by itself. A stall of the table \
             occurs in every round, a stall of the machine only in some.",
            counted(first.flows, "flow", "flows")
        );
        out += &heading(Op::Clump.name(), &what, style);
        out += &clumps(&bench.clumps, style);
    }
    if !bench.scaling.is_empty() {
        let what = format!(
            "The flows are spread over the cores: each core has its own table ({} % full), or all share one table.",
            plan.scaling_load()
        );
        out += &heading("cores", &what, style);
        out += &scaling(&bench.scaling, style);
    }
    let cycles = clock.ghz.map_or_else(
        || "The clock rate is unknown, so no cycles are shown.".to_owned(),
        |ghz| format!("Cycles are nanoseconds times {ghz:.2} GHz, the clock rate in /proc/cpuinfo."),
    );
    let reading =
        format!("Reading the clock takes {:.0} ns, which each time of a single packet includes.", clock.reading_ns);
    out + &format!("\n{}\n", style.dim(format!("{cycles} {reading}")))
}

fn heading(name: &str, summary: &str, style: Style) -> String {
    format!("\n{}  {}\n\n", style.bold(name), style.dim(summary))
}

/// The name of a table, empty if it is the same as in the row before.
fn once(last: &mut Option<TableKind>, table: TableKind) -> &'static str {
    if last.replace(table) == Some(table) { "" } else { table.name() }
}

/// Rows sorted by table in the usual order; rows of one table keep their order.
fn by_table<T>(rows: &[T], table: impl Fn(&T) -> TableKind) -> Vec<&T> {
    let mut sorted: Vec<&T> = rows.iter().collect();
    sorted.sort_by_key(|row| TableKind::ALL.into_iter().position(|kind| kind == table(row)));
    sorted
}

/// A column for each load, with its name.
fn load_columns(measured: &Measured) -> Vec<(usize, String)> {
    measured.plan.loads.iter().map(|load| (*load, format!("{load} %"))).collect()
}

/// Figures of a table at each load; the baseline has its own load and is in no column.
fn at_loads<'a>(loads: &[(usize, String)], figure: impl Fn(usize) -> Option<String> + 'a) -> Vec<(String, Tone)> {
    loads.iter().map(|(load, _)| (figure(*load).unwrap_or_default(), Tone::Plain)).collect()
}

fn resident(op: Op, measured: &Measured, style: Style) -> String {
    let rows = measured.rows(op);
    let held = measured.plan.scaling_load();
    let loads = load_columns(measured);
    let mut columns = vec![("ns a packet", Align::Left)];
    columns.extend(loads.iter().map(|(_, name)| (name.as_str(), Align::Right)));
    let own = format!("at {held} %: Mops/s");
    columns.extend([
        (own.as_str(), Align::Right),
        ("ns from - to", Align::Right),
        ("cycles", Align::Right),
        ("p99.9 in bursts", Align::Right),
        ("alone p50", Align::Right),
        ("p99.9", Align::Right),
        ("worst", Align::Right),
        ("", Align::Left),
    ]);
    let mut sheet = Sheet::new(style, &columns);
    for table in measured.tables() {
        let of = |load: usize| rows.iter().find(|row| row.table == table && row.turn_percent == load);
        let Some(row) = of(held) else { continue };
        let figure = |load| of(load).filter(|row| row.table.is_ours()).map(|row| format!("{:.1}", row.ns.median));
        let mut cells = vec![(table.name().to_owned(), Tone::Bold)];
        cells.extend(at_loads(&loads, figure));
        let alone = |of: fn(&Tail) -> f64| row.singles.as_ref().map_or_else(String::new, |tail| time(of(tail)));
        let cycles =
            measured.clock.cycles(row.ns.median).map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.0}"));
        cells.extend([
            (format!("{:.1}", mops(row.ns.median)), Tone::Good),
            (format!("{:.1} - {:.1}", row.ns.min, row.ns.max), Tone::Dim),
            (cycles, Tone::Plain),
            (row.bursts.as_ref().map_or_else(String::new, |tail| time(tail.p999)), Tone::Plain),
            (alone(|tail| tail.p50), Tone::Plain),
            (alone(|tail| tail.p999), Tone::Plain),
            (alone(|tail| tail.max), Tone::Dim),
        ]);
        cells.push(if table.is_ours() {
            let worst =
                rows.iter().filter(|row| row.table == table).min_by(|one, other| one.hits.total_cmp(&other.hits));
            (worst.map_or_else(String::new, |row| missing(row)), Tone::Warn)
        } else {
            (format!("{:.0} % full", row.load_percent), Tone::Dim)
        });
        sheet.toned(cells);
    }
    sheet.lines(2)
}

/// A note on flows that did not fit.
fn missing(row: &Resident) -> String {
    let percent = few((1.0 - row.hits) * 100.0);
    match row.op {
        Op::Insert if row.hits < 1.0 => format!("{percent} did not fit at {} %", row.turn_percent),
        Op::Lookup if row.hits < 1.0 => format!("{percent} had not fitted at {} %", row.turn_percent),
        Op::Lookup | Op::Insert | Op::Miss | Op::Mixed | Op::Expire | Op::Clump => String::new(),
    }
}

/// A small percentage; only 0 is printed as 0.
fn few(percent: f64) -> String {
    if percent > 0.0 && percent < 0.01 { "< 0.01 %".to_owned() } else { format!("{percent:.2} %") }
}

/// Lifetime of the flows that expire.
pub(super) fn lifetime(measured: &Measured) -> String {
    format!("Flows live for {} s of packet time.", measured.plan.lifetime.0 / 1_000_000_000)
}

fn memory(measured: &Measured, style: Style) -> String {
    let rows = measured.resident_ops().first().map_or_else(Vec::new, |op| measured.rows(*op));
    let loads = load_columns(measured);
    let mut columns = vec![("bytes per entry", Align::Left)];
    columns.extend(loads.iter().map(|(_, name)| (name.as_str(), Align::Right)));
    columns.extend([
        ("99.99 % find room up to", Align::Right),
        ("times its own there", Align::Right),
        ("", Align::Left),
    ]);
    let mut sheet = Sheet::new(style, &columns);
    let densest = measured.densest();
    for table in measured.tables() {
        let of = |load: usize| rows.iter().find(|row| row.table == table && row.turn_percent == load);
        let figure = |load| of(load).filter(|_| table.is_ours()).map(|row| format!("{:.1}", row.bytes_per_entry));
        let mut cells = vec![(table.name().to_owned(), Tone::Bold)];
        cells.extend(at_loads(&loads, figure));
        match densest.iter().find(|(kind, ..)| *kind == table) {
            Some((_, load, times)) => {
                cells.extend([(format!("{load:.0} %"), Tone::Plain), (format!("{times:.2}"), Tone::Good)]);
            }
            None => cells.extend([("none of these".to_owned(), Tone::Warn), (String::new(), Tone::Plain)]),
        }
        let least = rows.iter().rfind(|row| row.table == table && row.inserted < row.offered);
        cells.push(if table.is_ours() {
            let share = |row: &&Resident| success(row.inserted as f64 / row.offered as f64);
            (least.map_or_else(String::new, |row| format!("{} at {} %", share(row), row.turn_percent)), Tone::Dim)
        } else {
            let own = rows.iter().find(|row| row.table == table);
            (own.map_or_else(String::new, |row| format!("{:.1} bytes", row.bytes_per_entry)), Tone::Dim)
        });
        sheet.toned(cells);
    }
    sheet.lines(2)
}

/// A share near 1; only a full share is printed as such.
pub(super) fn success(share: f64) -> String {
    if share >= 1.0 { "all".to_owned() } else { format!("{:.3} %", (share * 1e5).floor() / 1e3) }
}

fn expiring(measured: &Measured, style: Style) -> String {
    let rows = &measured.bench.expiring;
    let held = measured.plan.scaling_load();
    let loads = load_columns(measured);
    let mut columns = vec![("ns a packet", Align::Left), ("ageing", Align::Left)];
    columns.extend(loads.iter().map(|(_, name)| (name.as_str(), Align::Right)));
    let own = format!("at {held} %: Mops/s");
    columns.extend([
        (own.as_str(), Align::Right),
        ("ns from - to", Align::Right),
        ("against none", Align::Right),
        ("alone p99.9", Align::Right),
        ("worst", Align::Right),
        ("", Align::Left),
    ]);
    let mut sheet = Sheet::new(style, &columns);
    let mut last = None;
    for table in measured.tables() {
        for &ageing in &measured.plan.ageings {
            let of = |load: usize| {
                let mut rows = rows.iter().filter(|row| row.table == table && row.ageing == ageing);
                rows.find(|row| row.load_percent == load)
            };
            let Some(row) = of(held) else { continue };
            let mut cells =
                vec![(once(&mut last, table).to_owned(), Tone::Bold), (ageing.name().to_owned(), Tone::Plain)];
            cells.extend(at_loads(&loads, |load| of(load).map(|row| format!("{:.1}", row.ns.median))));
            let against = against_none(row, rows).map_or_else(String::new, |percent| format!("{percent:+.0} %"));
            let alone = |of: fn(&Tail) -> f64| row.singles.as_ref().map_or_else(String::new, |tail| time(of(tail)));
            cells.extend([
                (format!("{:.1}", mops(row.ns.median)), Tone::Good),
                (format!("{:.1} - {:.1}", row.ns.min, row.ns.max), Tone::Dim),
                (against, Tone::Plain),
                (alone(|tail| tail.p999), Tone::Plain),
                (alone(|tail| tail.max), Tone::Dim),
                (made_room(row), Tone::Warn),
            ]);
            sheet.toned(cells);
        }
    }
    sheet.lines(2)
}

/// Extra time of a packet compared with no ageing, in percent.
pub(super) fn against_none(row: &Expiring, rows: &[Expiring]) -> Option<f64> {
    let is_same = |other: &&Expiring| other.table == row.table && other.load_percent == row.load_percent;
    let none = rows.iter().filter(is_same).find(|other| other.ageing == flow::Ageing::None)?;
    (row.ageing != flow::Ageing::None).then(|| (row.ns.median / none.ns.median - 1.0) * 100.0)
}

/// How new flows got their places, other than by ageing.
pub(super) fn made_room(row: &Expiring) -> String {
    let mut parts = Vec::new();
    if row.evicted_percent > 0.0 {
        parts.push(format!("{} evicted a flow", few(row.evicted_percent)));
    }
    if row.early_percent > 0.0 {
        parts.push(format!("{} evicted a live flow", few(row.early_percent)));
    }
    if row.refused_percent > 0.0 {
        parts.push(format!("{} did not fit", few(row.refused_percent)));
    }
    parts.join(", ")
}

fn clumps(rows: &[Clump], style: Style) -> String {
    let columns = [
        ("table", Align::Left),
        ("ageing", Align::Left),
        ("worst packet: calmest round", Align::Right),
        ("median, last", Align::Right),
        ("before that", Align::Right),
        ("p50", Align::Right),
        ("p99.9", Align::Right),
        ("all gone after", Align::Right),
    ];
    let mut sheet = Sheet::new(style, &columns);
    let mut last = None;
    for row in by_table(rows, |row| row.table) {
        let gone = row
            .clean_after
            .map_or_else(|| "not within the run".to_owned(), |packets| counted(packets, "packet", "packets"));
        let is_stall = row.after_worst.min > 1e6;
        sheet.toned([
            (once(&mut last, row.table), Tone::Bold),
            (row.ageing.map_or("swept at once", flow::Ageing::name), Tone::Plain),
            (&time(row.after_worst.min), if is_stall { Tone::Bad } else { Tone::Good }),
            (&format!("{}, {}", time(row.after_worst.median), time(row.after_worst.max)), Tone::Dim),
            (&time(row.quiet_worst.min), Tone::Plain),
            (&time(row.after.p50), Tone::Plain),
            (&time(row.after.p999), Tone::Plain),
            (&gone, Tone::Dim),
        ]);
    }
    sheet.lines(2)
}

fn scaling(rows: &[Scaling], style: Style) -> String {
    let columns = [
        ("table", Align::Left),
        ("op", Align::Left),
        ("shared", Align::Left),
        ("cores", Align::Right),
        ("Mops/s", Align::Right),
        ("from - to", Align::Right),
        ("times one", Align::Right),
        ("", Align::Left),
    ];
    let mut sheet = Sheet::new(style, &columns);
    let mut last = None;
    for row in by_table(rows, |row| row.table) {
        let times = times_one(row, rows).map_or_else(String::new, |times| format!("{times:.2}"));
        let tone = if row.basis == Basis::Measured { Tone::Dim } else { Tone::Warn };
        let how = match row.basis {
            Basis::Measured => basis(row.basis),
            Basis::Modelled => "modelled: each core's share runs alone, one after the other",
        };
        sheet.toned([
            (once(&mut last, row.table), Tone::Bold),
            (row.op.name(), Tone::Plain),
            (row.sharing.name(), Tone::Plain),
            (&count(row.cores as u64), Tone::Plain),
            (&format!("{:.1}", row.mops.median), Tone::Good),
            (&format!("{:.1} - {:.1}", row.mops.min, row.mops.max), Tone::Dim),
            (&times, Tone::Plain),
            (how, tone),
        ]);
    }
    sheet.lines(2)
}

/// The throughput as a multiple of one core's, if that was measured.
pub(super) fn times_one(row: &Scaling, rows: &[Scaling]) -> Option<f64> {
    let is_one = |other: &&Scaling| {
        other.table == row.table && other.op == row.op && other.sharing == row.sharing && other.cores == 1
    };
    Some(row.mops.median / rows.iter().find(is_one)?.mops.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_by_people() {
        assert_eq!(success(1.0), "all");
        assert_eq!(success(0.999_999_9), "99.999 %");
        assert_eq!(success(0.952_3), "95.230 %");
    }
}
