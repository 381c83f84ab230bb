//! What was measured, for a terminal.

use measure::Basis;
use measure::tables::{Clump, Expiring, OWN_BYTES, Op, Resident, Scaling, TableKind, Tail};

use super::bench::Measured;
use super::json::{basis, mops};
use crate::print::number::{count, counted};
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
    for op in Op::ALL {
        let rows: Vec<&Resident> = bench.resident.iter().filter(|row| row.op == op).collect();
        if !rows.is_empty() {
            out += &heading(op.name(), op.summary(), style);
            out += &resident(&rows, measured, style);
        }
    }
    if let Some(op) = bench.resident.first().map(|row| row.op) {
        out += &heading("memory", &format!("Bytes for each entry; a flow by itself has {OWN_BYTES}."), style);
        out += &memory(&bench.resident.iter().filter(|row| row.op == op).collect::<Vec<_>>(), style);
    }
    if !bench.expiring.is_empty() {
        out += &heading(Op::Expire.name(), Op::Expire.summary(), style);
        out += &expiring(&bench.expiring, style);
    }
    if let Some(first) = bench.clumps.first() {
        let what = format!(
            "{} expire within one millisecond; each packet opens one and is timed by itself.",
            counted(first.flows, "flow", "flows")
        );
        out += &heading(Op::Clump.name(), &what, style);
        out += &clumps(&bench.clumps, style);
    }
    if !bench.scaling.is_empty() {
        let what =
            format!("The flows spread over the cores, each with a table of its own, {} % full.", plan.scaling_load());
        out += &heading("cores", &what, style);
        out += &scaling(&bench.scaling, style);
    }
    let cycles = clock.ghz.map_or_else(
        || "The clock rate is unknown, so nothing is told in cycles.".to_owned(),
        |ghz| format!("Cycles are nanoseconds times the {ghz:.2} GHz that /proc/cpuinfo tells."),
    );
    let reading =
        format!("Reading the clock takes {:.0} ns, which is in each time of a single packet.", clock.reading_ns);
    out + &format!("\n{}\n", style.dim(format!("{cycles} {reading}")))
}

fn heading(name: &str, summary: &str, style: Style) -> String {
    format!("\n{}  {}\n\n", style.bold(name), style.dim(summary))
}

/// A column's cells name what changes from row to row alone.
fn once(last: &mut Option<TableKind>, table: TableKind) -> &'static str {
    if last.replace(table) == Some(table) { "" } else { table.name() }
}

/// Rows by table, in the usual order; those of one table as they are.
fn by_table<T>(rows: &[T], table: impl Fn(&T) -> TableKind) -> Vec<&T> {
    let mut sorted: Vec<&T> = rows.iter().collect();
    sorted.sort_by_key(|row| TableKind::ALL.into_iter().position(|kind| kind == table(row)));
    sorted
}

fn resident(rows: &[&Resident], measured: &Measured, style: Style) -> String {
    let columns = [
        ("table", Align::Left),
        ("full", Align::Right),
        ("Mops/s", Align::Right),
        ("ns", Align::Right),
        ("from - to", Align::Right),
        ("cycles", Align::Right),
        ("p99.9 in bursts", Align::Right),
        ("alone p50", Align::Right),
        ("p99.9", Align::Right),
        ("worst", Align::Right),
        ("", Align::Left),
    ];
    let mut sheet = Sheet::new(style, &columns);
    let mut last = None;
    for row in by_table(rows, |row| row.table) {
        let missing = match row.op {
            Op::Insert if row.hits < 1.0 => format!("{:.2} % found no room", (1.0 - row.hits) * 100.0),
            Op::Lookup | Op::Mixed if row.hits < 0.999 => format!("{:.2} % not found", (1.0 - row.hits) * 100.0),
            _ => String::new(),
        };
        let cycles =
            measured.clock.cycles(row.ns.median).map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.0}"));
        let alone = |of: fn(&Tail) -> f64| row.singles.as_ref().map_or_else(String::new, |tail| time(of(tail)));
        sheet.toned([
            (once(&mut last, row.table), Tone::Bold),
            (&format!("{:.0} %", row.load_percent), Tone::Plain),
            (&format!("{:.1}", mops(row.ns.median)), Tone::Good),
            (&format!("{:.1}", row.ns.median), Tone::Plain),
            (&format!("{:.1} - {:.1}", row.ns.min, row.ns.max), Tone::Dim),
            (&cycles, Tone::Plain),
            (&row.bursts.as_ref().map_or_else(String::new, |tail| time(tail.p999)), Tone::Plain),
            (&alone(|tail| tail.p50), Tone::Plain),
            (&alone(|tail| tail.p999), Tone::Plain),
            (&alone(|tail| tail.max), Tone::Dim),
            (&missing, Tone::Warn),
        ]);
    }
    sheet.lines(2)
}

fn memory(rows: &[&Resident], style: Style) -> String {
    let columns = [
        ("table", Align::Left),
        ("full", Align::Right),
        ("bytes an entry", Align::Right),
        ("times its own", Align::Right),
        ("found room", Align::Right),
    ];
    let mut sheet = Sheet::new(style, &columns);
    let mut last = None;
    for row in by_table(rows, |row| row.table) {
        let share = row.inserted as f64 / row.offered as f64;
        sheet.toned([
            (once(&mut last, row.table), Tone::Bold),
            (&format!("{:.0} %", row.load_percent), Tone::Plain),
            (&format!("{:.1}", row.bytes_per_entry), Tone::Plain),
            (&format!("{:.2}", row.bytes_per_entry / OWN_BYTES as f64), Tone::Plain),
            (&success(share), if share < 0.9999 { Tone::Warn } else { Tone::Plain }),
        ]);
    }
    sheet.lines(2)
}

/// A share of which the last thousandths matter; what isn't all is never told as all.
pub(super) fn success(share: f64) -> String {
    if share >= 1.0 { "all".to_owned() } else { format!("{:.3} %", (share * 1e5).floor() / 1e3) }
}

fn expiring(rows: &[Expiring], style: Style) -> String {
    let columns = [
        ("table", Align::Left),
        ("full", Align::Right),
        ("ageing", Align::Left),
        ("Mops/s", Align::Right),
        ("ns", Align::Right),
        ("from - to", Align::Right),
        ("against none", Align::Right),
        ("alone p99.9", Align::Right),
        ("worst", Align::Right),
        ("", Align::Left),
    ];
    let mut sheet = Sheet::new(style, &columns);
    let mut last = None;
    for row in by_table(rows, |row| row.table) {
        let against = against_none(row, rows).map_or_else(String::new, |percent| format!("{percent:+.0} %"));
        let alone = |of: fn(&Tail) -> f64| row.singles.as_ref().map_or_else(String::new, |tail| time(of(tail)));
        sheet.toned([
            (once(&mut last, row.table), Tone::Bold),
            (&format!("{} %", row.load_percent), Tone::Plain),
            (row.ageing.name(), Tone::Plain),
            (&format!("{:.1}", mops(row.ns.median)), Tone::Good),
            (&format!("{:.1}", row.ns.median), Tone::Plain),
            (&format!("{:.1} - {:.1}", row.ns.min, row.ns.max), Tone::Dim),
            (&against, Tone::Plain),
            (&alone(|tail| tail.p999), Tone::Plain),
            (&alone(|tail| tail.max), Tone::Dim),
            (&made_room(row), Tone::Warn),
        ]);
    }
    sheet.lines(2)
}

/// How much longer a packet took than with no ageing, in hundredths.
pub(super) fn against_none(row: &Expiring, rows: &[Expiring]) -> Option<f64> {
    let is_same = |other: &&Expiring| other.table == row.table && other.load_percent == row.load_percent;
    let none = rows.iter().filter(is_same).find(|other| other.ageing == flow::Ageing::None)?;
    (row.ageing != flow::Ageing::None).then(|| (row.ns.median / none.ns.median - 1.0) * 100.0)
}

/// Who had to go for new flows, if anyone did who was alive.
pub(super) fn made_room(row: &Expiring) -> String {
    let mut parts = Vec::new();
    if row.early_percent > 0.0 {
        parts.push(format!("{:.2} % took a living flow's place", row.early_percent));
    }
    if row.refused_percent > 0.0 {
        parts.push(format!("{:.2} % found no room", row.refused_percent));
    }
    parts.join(", ")
}

fn clumps(rows: &[Clump], style: Style) -> String {
    let columns = [
        ("table", Align::Left),
        ("ageing", Align::Left),
        ("worst packet", Align::Right),
        ("from - to", Align::Right),
        ("worst before", Align::Right),
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
        let is_stall = row.after_worst.median > 1e6;
        sheet.toned([
            (once(&mut last, row.table), Tone::Bold),
            (row.ageing.map_or("swept at once", flow::Ageing::name), Tone::Plain),
            (&time(row.after_worst.median), if is_stall { Tone::Bad } else { Tone::Good }),
            (&format!("{} - {}", time(row.after_worst.min), time(row.after_worst.max)), Tone::Dim),
            (&time(row.quiet_worst.median), Tone::Plain),
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
            Basis::Modelled => "modelled: each core's share alone, one after the other",
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

/// `31 ns`, `4.2 us`, `12 ms`.
pub(super) fn time(ns: f64) -> String {
    let (number, unit) = match ns {
        ..999.5 => (ns, "ns"),
        ..999_500.0 => (ns / 1e3, "us"),
        ..999_500_000.0 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    if number >= 9.95 || unit == "ns" { format!("{number:.0} {unit}") } else { format!("{number:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_shares_are_read_by_people() {
        for (ns, text) in
            [(31.2, "31 ns"), (4_240.0, "4.2 us"), (12_000_000.0, "12 ms"), (999.7, "1.0 us"), (2e9, "2.0 s")]
        {
            assert_eq!(time(ns), text);
        }
        assert_eq!(success(1.0), "all");
        assert_eq!(success(0.999_999_9), "99.999 %");
        assert_eq!(success(0.952_3), "95.230 %");
    }
}
