//! Formats the result of a run.

use std::path::Path;
use std::time::Duration;

use daemon::Latency;
use engine::{Counters, EngineKind, Outcome, Recovery, Tables, Transactions};
use l7::defrag::{Counts, Policy};
use nf::{Cell, Description, Report};
use packet::{LinkType, Nanos};
use port::ReorderCounts;
use port_xdp::{Balance, InterfaceCounts};
use serde_json::{Map, Value, json};

use super::dropped::{self, Dropped};
use super::fragments::{json as fragments_json, not_listed, told};
use super::number::{bytes, count, counted, percent, rate, span};
use super::ports::Ports;
use super::reorder;
use super::split::{Counted as SplitCounts, json as split_json, text as split_text};
use super::style::Style;
use super::table::{Align, Sheet, Tone};
use crate::cli::memory::Bound;
use crate::cli::offload;

/// Notes on the capture's clock.
pub(crate) fn clock(steps_back: u64, stamps_not_believed: u64) -> String {
    let mut out = String::new();
    if steps_back > 0 {
        let steps = counted(steps_back, "time", "times");
        out += &format!("  the capture's clock stepped back {steps}; packet time did not\n");
    }
    if stamps_not_believed > 0 {
        let stamps = counted(stamps_not_believed, "time stamp lies", "time stamps lie");
        out += &format!("  {stamps} far from the neighbours and ignored; these packets got a neighbour's time\n");
    }
    out
}

/// A run that has ended.
pub(crate) struct Run<'a> {
    pub(crate) description: &'a Description,
    pub(crate) kind: EngineKind,
    pub(crate) cores: usize,
    pub(crate) seed: u64,
    /// Options of flow tables; `None` for a function without flow tables.
    pub(crate) tables: Option<&'a Tables>,
    pub(crate) input: String,
    pub(crate) output: Option<&'a Path>,
    pub(crate) clock_steps_back: u64,
    pub(crate) stamps_not_believed: u64,
    /// The ports that the captures lack.
    pub(crate) ports: Ports,
    /// Unsupported link types, as far as they are known.
    pub(crate) unread_links: Vec<LinkType>,
    /// How fragments were gathered, and their counts, if they were.
    pub(crate) fragments: Option<(Policy, Counts)>,
    /// Counts of payloads, if packets were split.
    pub(crate) split: Option<SplitCounts>,
    /// Delay of held packets, and their counts, if any were held.
    pub(crate) reordered: Option<(Nanos, ReorderCounts)>,
    /// The most memory that sessions may take, for a function over streams.
    pub(crate) bound: Option<Bound>,
    /// Sources of dropped packets, if requested; and the file of `--dropped`.
    pub(crate) dropped: Option<Vec<Dropped>>,
    pub(crate) dropped_file: Option<&'a Path>,
    /// A note of the function, if the configuration is probably a mistake.
    pub(crate) remark: Option<String>,
    /// Counters of live interfaces.
    pub(crate) live: Option<Live>,
    /// Times from receive to transmit, if they were measured.
    pub(crate) latency: Option<Latency>,
    pub(crate) outcome: &'a Outcome,
}

/// Counters of live interfaces.
pub(crate) enum Live {
    /// By AF_XDP: for each interface, and for each core where its frames are.
    Xdp { interfaces: Vec<InterfaceCounts>, balances: Vec<Balance> },
    /// By AF_PACKET: for each interface.
    Packet(Vec<port_packet::InterfaceCounts>),
}

impl Live {
    /// Where packets were lost, and what went past the function.
    fn told(&self, outcome: &Outcome, style: Style) -> String {
        let Outcome { lost, sent, .. } = outcome;
        let lose = |out: &mut String, number: u64, what: &str| {
            if number > 0 {
                let note = format!("{}: {what}", counted(number, "packet", "packets"));
                *out += &format!("  {}\n", style.warn(note));
            }
        };
        let past = |out: &mut String, interface: &str, parts: &[(u64, &str)]| {
            let parts = parts.iter().filter(|(number, _)| *number > 0);
            let parts: Vec<String> = parts.map(|(number, what)| format!("{} {what}", count(*number))).collect();
            if !parts.is_empty() {
                *out += &format!("  {interface}, past the function: {}\n", parts.join(", "));
            }
        };
        let mut out = String::new();
        lose(&mut out, lost.ring_full, "lost before the function, whose receive rings were full");
        lose(
            &mut out,
            sent.map_or(0, |sent| sent.lost),
            "lost in transmit, where the ring was full or the interface down",
        );
        match self {
            Self::Xdp { interfaces, balances } => {
                lose(&mut out, left_in_rings(interfaces, outcome), "left in the receive rings at the end");
                lose(&mut out, lost.unclaimed, "dropped at hardware queues that no core reads");
                lose(&mut out, lost.unsequenced, "dropped by the sequencer, whose history was full");
                for InterfaceCounts { interface, program, sent_across, lost_across, .. } in interfaces {
                    let what = format!("link traffic lost at {interface}, whose transmit ring was full");
                    lose(&mut out, *lost_across, &what);
                    let parts = [
                        (program.link_passed, "link traffic to the kernel"),
                        (program.management_passed, "to management ports of the kernel"),
                        (*sent_across, "link traffic out, from across"),
                    ];
                    past(&mut out, interface, &parts);
                }
                for (core, balance) in balances.iter().enumerate().filter(|(_, balance)| !balance.adds_up()) {
                    let note = format!("core {core} has lost frames, which is a bug in Millrace: {balance:?}");
                    out += &format!("  {}\n", style.warn(note));
                }
            }
            Self::Packet(interfaces) => {
                lose(&mut out, lost.unclaimed, "left in the receive rings at the end");
                for counts in interfaces {
                    let interface = &counts.interface;
                    lose(&mut out, counts.lost_across, &format!("link traffic from {interface} lost across"));
                    lose(&mut out, counts.cut, &format!("received at {interface} without their end"));
                    lose(
                        &mut out,
                        counts.too_long,
                        &format!("too long to be sent, as segments were joined near {interface}"),
                    );
                    past(&mut out, interface, &[(counts.across, "link traffic across")]);
                }
            }
        }
        out
    }

    fn json(&self, outcome: &Outcome) -> Value {
        match self {
            Self::Xdp { interfaces, balances } => {
                let in_rings = left_in_rings(interfaces, outcome);
                let interfaces = interfaces.iter().map(|counts| {
                    json!({
                        "interface": counts.interface,
                        "to_function": counts.program.redirected,
                        "offloaded": counts.program.offloaded,
                        "ring_full": counts.ring_full,
                        "unclaimed": counts.program.unclaimed,
                        "unsequenced": counts.program.history_full + counts.program.unstamped,
                        "link_to_kernel": counts.program.link_passed,
                        "management_to_kernel": counts.program.management_passed,
                        "link_across": counts.sent_across,
                        "link_across_lost": counts.lost_across,
                    })
                });
                json!({
                    "by": "xdp",
                    "left_in_rings": in_rings,
                    "interfaces": interfaces.collect::<Vec<_>>(),
                    "frames_add_up": balances.iter().all(Balance::adds_up),
                })
            }
            Self::Packet(interfaces) => {
                let interfaces = interfaces.iter().map(|counts| {
                    json!({
                        "interface": counts.interface,
                        "offered": counts.offered,
                        "received": counts.received,
                        "ring_full": counts.ring_full,
                        "unread": counts.unread,
                        "link_across": counts.across,
                        "link_across_lost": counts.lost_across,
                        "lack_checksum": counts.lack_checksum,
                        "cut": counts.cut,
                        "too_long": counts.too_long,
                    })
                });
                json!({ "by": "packet", "interfaces": interfaces.collect::<Vec<_>>() })
            }
        }
    }
}

/// Packets that nobody has read when the sockets were closed: interfaces count them, and the engine has looked before.
fn left_in_rings(interfaces: &[InterfaceCounts], outcome: &Outcome) -> u64 {
    interfaces.iter().map(|counts| counts.ring_full).sum::<u64>().saturating_sub(outcome.lost.ring_full)
}

impl Run<'_> {
    /// The summary as text.
    pub(crate) fn text(&self, style: Style) -> String {
        let Outcome { counters, elapsed, interrupted, .. } = self.outcome;
        let name = style.bold(self.description.name);
        let cores = counted(self.cores as u64, "core", "cores");
        let packets = counted(counters.received, "packet", "packets");
        let rate = style.bold(rate(counters.received, *elapsed));
        let mut out = format!("{name} under {} on {cores}: {packets} in {}, {rate}\n\n", self.kind, span(*elapsed));
        if *interrupted && self.live.is_none() {
            out += &style.warn("interrupted: only the packets read so far are counted\n\n");
        }
        out += &fates(counters, self.description, self.dropped.as_deref(), style);
        if let Some((_, counts)) = self.fragments.filter(|(_, counts)| counts.fragments > 0) {
            out += &format!("  {}\n", told(&counts));
            if let Some(note) = self.dropped.as_ref().and_then(|_| not_listed(&counts, self.dropped_file)) {
                out += &format!("  {}\n", style.warn(note));
            }
        }
        if let Some(split) = &self.split {
            out += &split_text(split, style);
        }
        for line in self.reordered.iter().flat_map(|(delay, counts)| reorder::told(*delay, counts)) {
            out += &format!("  {line}\n");
        }
        if let Some(live) = &self.live {
            out += &live.told(self.outcome, style);
        }
        if let Some(times) = &self.latency {
            out += &latency(times);
        }
        out += &self.flows(style);
        out += &offload::text(self.outcome, self.live.is_some(), style);
        if counters.unread > 0 {
            let packets = counted(counters.unread, "packet is", "packets are");
            let links: Vec<String> = self.unread_links.iter().map(ToString::to_string).collect();
            let links = if links.is_empty() { String::new() } else { format!(", {}", links.join(", ")) };
            let note =
                format!("{packets} of an unsupported link type{links}; the function could not see what they carry");
            out += &format!("  {}\n", style.warn(note));
        }
        if let Some(remark) = &self.remark {
            out += &format!("  {}\n", style.warn(remark));
        }
        for note in self.ports.told(&self.input, self.output) {
            out += &format!("  {}\n", style.warn(note));
        }
        out += &self.moves(style);
        if let Some(transactions) = &self.outcome.transactions {
            let Transactions { committed, aborted, ran_alone, .. } = transactions;
            let failed = counted(*aborted, "attempt", "attempts");
            out += &format!(
                "  {} committed; {failed} failed and ran again",
                counted(*committed, "transaction", "transactions")
            );
            out += &if *ran_alone > 0 { format!(", {} ran alone\n", count(*ran_alone)) } else { "\n".to_owned() };
        }
        let any_order = matches!(self.kind, EngineKind::Shared) || self.outcome.transactions.is_some();
        if any_order && self.cores > 1 {
            out += "  the order of packets depends on timing: another run may drop other packets\n";
        }
        out += &clock(self.clock_steps_back, self.stamps_not_believed);
        if let Some(report) = &self.outcome.report {
            out += &table(report, style);
        }
        out
    }

    /// Notes of the engine: moves of state, loss and recovery.
    fn moves(&self, style: Style) -> String {
        let Outcome { moved, elephants, cores_in_use, recovery, counters, .. } = self.outcome;
        let mut out = String::new();
        if self.kind.moves_state() && self.cores > 1 {
            let moved = counted(*moved, "time", "times");
            out += &format!("  state moved between cores {moved}");
            if self.kind == EngineKind::Hybrid {
                let sets = counted(*elephants as u64, "packet set is", "packet sets are");
                out += &format!("; {sets} replicated at the end; {} records were replayed", count(counters.replayed));
            }
            out += "\n";
        }
        if let Some([least, most, end]) = cores_in_use {
            out += &format!("  {least} to {most} cores were in use, {end} at the end\n");
        }
        let Some(Recovery { tally, fenced }) = recovery else { return out };
        let lost = counted(tally.lost, "packet", "packets");
        let records = counted(tally.recovered_total(), "record", "records");
        out += &format!("  {lost} lost on the link; cores recovered {records} from each other's logs");
        if tally.nowhere > 0 {
            out += &format!(", and {} lost by all", counted(tally.nowhere, "packet's record", "packets' records"));
        }
        out += &format!(" ({} for one another)\n", counted(tally.waits, "wait", "waits"));
        for core in fenced {
            let note = format!(
                "core {core} stalled for too long: the other cores continued without it, and its packets were dropped"
            );
            out += &format!("  {}\n", style.warn(note));
        }
        out
    }

    fn flows(&self, style: Style) -> String {
        let Outcome { counters, flows_alive, flows_high_water, .. } = self.outcome;
        let flows = &counters.flows;
        if flows.opened == 0 && !flows.was_full() {
            return String::new();
        }
        let mut parts = vec![format!("{} opened", count(flows.opened))];
        for (number, what) in [(flows.closed, "closed"), (flows.expired, "expired"), (flows.evicted, "evicted")] {
            if number > 0 {
                parts.push(format!("{} {what}", count(number)));
            }
        }
        parts.push(format!("{} alive at the end", count(*flows_alive as u64)));
        parts.push(format!("at most {} at once", count(*flows_high_water as u64)));
        let mut out = format!("  flows: {}\n", parts.join(", "));
        if flows.evicted + flows.orphaned > 0 {
            let evicted = counted(flows.evicted, "flow", "flows");
            let orphaned = counted(flows.orphaned, "packet", "packets");
            let note = format!("the flow table was full: {evicted} evicted, {orphaned} refused; raise `flows`");
            out += &format!("  {}\n", style.warn(note));
        }
        if flows.early_dropped > 0 {
            let packets = counted(flows.early_dropped, "packet", "packets");
            let note =
                format!("the flow table was filling up: {packets} that would have opened flows were dropped early");
            out += &format!("  {}\n", style.warn(note));
        }
        if flows.limited > 0 {
            let packets = counted(flows.limited, "packet", "packets");
            let note = format!("{packets} would have opened flows above the limit of their source");
            out += &format!("  {}\n", style.warn(note));
        }
        out
    }

    /// The summary as JSON.
    pub(crate) fn json(&self) -> Value {
        let Outcome {
            counters,
            by_core,
            flows_high_water,
            flows_alive,
            memory_bytes,
            elapsed,
            report,
            interrupted,
            failure,
            moved,
            elephants,
            cores_in_use,
            recovery,
            transactions,
            lost,
            sent,
            ..
        } = self.outcome;
        let secs = elapsed.as_secs_f64();
        let flows = &counters.flows;
        json!({
            "function": self.description.name,
            "engine": self.kind.name(),
            "cores": self.cores,
            "seed": self.seed.to_string(),
            "tables": self.tables.map(|tables| json!({
                "table": tables.index.name(), "ageing": tables.ageing.name(), "eviction": tables.eviction.name(),
                "early_drop_percent": tables.early_drop_percent, "per_source": tables.per_source,
                "guard": tables.guard.name(),
            })),
            "input": self.input,
            "output": self.output.map(|path| path.display().to_string()),
            "packets": packets(counters, self.description),
            "fragments": self.fragments.as_ref().map(|(policy, counts)| fragments_json(*policy, counts)),
            "split": self.split.as_ref().map(split_json),
            "reordered": self.reordered.as_ref().map(|(delay, counts)| reorder::json(*delay, counts)),
            "flows": {
                "opened": flows.opened, "closed": flows.closed, "expired": flows.expired, "evicted": flows.evicted,
                "orphaned": flows.orphaned, "early_dropped": flows.early_dropped, "limited": flows.limited, "alive": flows_alive, "high_water": flows_high_water,
                "was_full": flows.was_full(),
            },
            "by_core": by_core.iter().map(|core| json!({
                "received": core.received, "forwarded": core.forwarded, "replied": core.replied,
                "dropped": core.dropped_total(), "replayed": core.replayed,
            })).collect::<Vec<_>>(),
            "memory_bytes": memory_bytes,
            "memory_max": self.bound.as_ref().map(Bound::json),
            "elapsed_s": secs,
            "mpps": counters.received as f64 / secs.max(1e-9) / 1e6,
            "ns_per_packet": secs * 1e9 / counters.received.max(1) as f64,
            "state_moves": moved,
            "elephants": elephants,
            "cores_in_use": cores_in_use.map(|[least, most, end]| json!({ "least": least, "most": most, "end": end })),
            "recovery": recovery.as_ref().map(|Recovery { tally, fenced }| json!({
                "lost": tally.lost, "recovered": tally.recovered_total(), "recovered_from_core": tally.recovered,
                "nowhere": tally.nowhere, "waits": tally.waits, "waits_for_room": tally.waits_for_room, "fenced": fenced,
            })),
            "offload": offload::json(self.outcome, self.live.is_some()),
            "transactions": transactions.as_ref().map(|Transactions { committed, aborted, ran_alone, .. }| json!({
                "committed": committed, "aborted": aborted, "ran_alone": ran_alone,
            })),
            "clock_steps_back": self.clock_steps_back,
            "stamps_not_believed": self.stamps_not_believed,
            "ports": self.ports.json(),
            "unread": counters.unread,
            "unread_links": self.unread_links.iter().map(|link| link.number()).collect::<Vec<_>>(),
            "remark": self.remark,
            "dropped_file": self.dropped_file.map(|path| path.display().to_string()),
            "dropped_sources": self.dropped.as_ref().map(|dropped| dropped::json(dropped, self.description)),
            "report": report.as_ref().map(|Report { title, columns, rows }| {
                let rows: Vec<Vec<Value>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
                json!({ "title": title, "columns": columns, "rows": rows })
            }),
            "live": self.live.as_ref().map(|live| live.json(self.outcome)),
            "latency_ns": self.latency.map(|times| json!({
                "packets": times.packets, "p50": times.p50_ns, "p99": times.p99_ns, "p999": times.p999_ns, "worst": times.worst_ns,
            })),
            "lost": { "ring_full": lost.ring_full, "unclaimed": lost.unclaimed, "unsequenced": lost.unsequenced },
            "sent": sent.map(|sent| json!({ "sent": sent.sent, "lost": sent.lost })),
            "interrupted": interrupted,
            "error": failure.as_ref().map(ToString::to_string),
        })
    }
}

/// A line of times from receive to transmit.
pub(crate) fn latency(times: &Latency) -> String {
    let [p50, p99, p999, worst] =
        [times.p50_ns, times.p99_ns, times.p999_ns, times.worst_ns].map(|time| span(Duration::from_nanos(time)));
    format!("  from receive to transmit: p50 {p50}, p99 {p99}, p99.9 {p999}, worst {worst}\n")
}

/// What happened to the packets, one line for each outcome.
fn fates(counters: &Counters, description: &Description, who: Option<&[Dropped]>, style: Style) -> String {
    let all = counters.received;
    let mut columns = vec![("", Align::Left), ("", Align::Right), ("", Align::Right)];
    columns.extend(who.map(|_| ("", Align::Left)));
    let mut sheet = Sheet::new(style, &columns);
    sheet.row(["received", &count(all), &bytes(counters.received_bytes)]);
    sheet.toned([
        ("forwarded", Tone::Plain),
        (&count(counters.forwarded), Tone::Good),
        (&percent(counters.forwarded, all), Tone::Plain),
    ]);
    if counters.replied > 0 {
        sheet.row(["replied", &count(counters.replied), &percent(counters.replied, all)]);
    }
    if counters.copied > 0 {
        sheet.row(["copied", &count(counters.copied), "besides"]);
    }
    let dropped = counters.dropped_total();
    let tone = if dropped > 0 { Tone::Bad } else { Tone::Plain };
    sheet.toned([("dropped", Tone::Plain), (&count(dropped), tone), (&percent(dropped, all), Tone::Plain)]);
    for (reason, number) in counters.drops() {
        let name = format!("  {}", reason.name(description.drop_reasons));
        let sources = who.and_then(|who| who.iter().find(|dropped| dropped.reason == reason));
        let sources = sources.map_or_else(String::new, |dropped| dropped::from(&dropped.sources));
        let cells = [name, count(number), percent(number, all), sources];
        sheet.toned(cells.map(|cell| (cell, Tone::Dim)));
    }
    sheet.lines(2)
}

/// What happened to the packets, as JSON.
pub(crate) fn packets(counters: &Counters, description: &Description) -> Value {
    let drops: Map<String, Value> = counters
        .drops()
        .map(|(reason, number)| (reason.name(description.drop_reasons).to_owned(), number.into()))
        .collect();
    json!({
        "received": counters.received, "received_bytes": counters.received_bytes, "forwarded": counters.forwarded,
        "replied": counters.replied, "copied": counters.copied, "dropped": counters.dropped_total(), "drops": drops,
    })
}

/// A cell of a report as JSON.
fn cell(cell: &Cell) -> Value {
    match cell {
        Cell::Text(text) => text.as_str().into(),
        Cell::Count(number) | Cell::Number(number) => (*number).into(),
    }
}

/// The function's report as a table.
pub(crate) fn table(report: &Report, style: Style) -> String {
    let Report { title, columns, rows } = report;
    if rows.is_empty() {
        return format!("\n{}: none\n", style.bold(title));
    }
    // A column of numbers is aligned right.
    let number = |column: usize| rows.iter().all(|row| row[column].number().is_some());
    let aligned = columns.iter().enumerate();
    let aligned: Vec<(&str, Align)> =
        aligned.map(|(index, name)| (*name, if number(index) { Align::Right } else { Align::Left })).collect();
    let mut sheet = Sheet::new(style, &aligned);
    for row in rows {
        sheet.row(row.iter().map(ToString::to_string));
    }
    format!("\n{}\n{}", style.bold(title), sheet.lines(2))
}
