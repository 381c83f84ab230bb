//! Options of offload: a card ahead of the function takes heavy connections. And what it would gain, by threshold.

use std::sync::Arc;
use std::thread;

use catalogue::Program;
use engine::{Control, EngineKind, Offload, OffloadCounts, Options, Outcome, Tables};
use port::{CardLimits, MemoryPort, Trace};
use serde_json::{Value, json};

use super::bench::options::nanoseconds;
use super::failure::Failed;
use super::trial::rate;
use crate::print::number::{self, count, counted, percent};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// A card ahead of the function.
#[derive(clap::Args)]
#[command(next_help_heading = "Offload")]
pub(super) struct OffloadOptions {
    /// Take the packets of up to so many heavy connections ahead of the function, once the function has decided about them: on interfaces by
    /// the XDP program, over captures by a simulated card. Verdicts and counters stay the same. For firewall and conntrack, under sequential
    /// and rss
    #[arg(long = "offload", value_name = "ENTRIES", value_parser = entries)]
    entries: Option<usize>,
    /// A connection is heavy after this many packets
    #[arg(long = "offload-threshold", value_name = "PACKETS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..), requires = "entries")]
    threshold: u32,
    /// It must have had these packets at this rate or a higher one, in packets a second [default: any rate]
    #[arg(long = "offload-rate", value_name = "NUMBER", value_parser = number::parse_positive, requires = "entries")]
    rate_min: Option<u64>,
    /// Connections that the simulated card takes in a second of packet time, at most [default: no limit]
    #[arg(long = "card-insertions", value_name = "NUMBER", value_parser = number::parse_positive, requires = "entries")]
    insertions: Option<u64>,
}

impl OffloadOptions {
    /// True if a card is wanted.
    pub(super) const fn is_given(&self) -> bool {
        self.entries.is_some()
    }

    /// Returns the number of entries; 0 without a card.
    pub(super) fn entries(&self) -> u32 {
        self.entries.map_or(0, |entries| entries as u32)
    }

    /// True if limits of the simulated card are given.
    pub(super) const fn has_card_limits(&self) -> bool {
        self.insertions.is_some()
    }

    /// Returns the engine's option; `None` without a card.
    ///
    /// # Errors
    /// The function, the engine or the tables can't do with a card.
    pub(super) fn offload(
        &self,
        program: &dyn Program,
        kind: EngineKind,
        tables: &Tables,
    ) -> Result<Option<Offload>, Failed> {
        let Some(entries) = self.entries else { return Ok(None) };
        program.takes_offload(kind, tables).map_err(Failed::usage)?;
        let card = CardLimits { entries, insertions: self.insertions, evict_one_in: 0 };
        Ok(Some(Offload { threshold: self.threshold, rate_min: self.rate_min.unwrap_or(0), card }))
    }
}

/// The most entries of a card.
const ENTRIES_MAX: u64 = 16 << 20;

fn entries(text: &str) -> Result<usize, String> {
    match number::parse(text)? {
        entries @ 1..=ENTRIES_MAX => Ok(entries as usize),
        _ => Err(format!("a card has from 1 to {} entries", count(ENTRIES_MAX))),
    }
}

/// Formats what the card did: the XDP program on interfaces, a simulated one over captures.
pub(crate) fn text(outcome: &Outcome, is_live: bool, style: Style) -> String {
    let Some(card) = &outcome.offload else { return String::new() };
    let counters = &outcome.counters;
    let OffloadCounts {
        packets,
        bytes,
        inserted,
        undecided,
        refused_full,
        refused_rate,
        refused_down,
        entries_max,
        ..
    } = card;
    let mut out = format!(
        "  {} took {} of the packets and {} of the bytes; {} put in, at most {} at a time\n",
        if is_live { "the XDP program" } else { "the simulated card" },
        percent(*packets, counters.received),
        percent(*bytes, counters.received_bytes),
        counted(*inserted, "connection", "connections"),
        count(*entries_max)
    );
    let parts = [
        (card.back_for_packet, "for a packet that the function had to see"),
        (card.back_ended, "at their timeout"),
        (card.evicted, "to make room"),
        (card.recalled, "when all were called back"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, why)| format!("{} {why}", count(*number)))
        .collect();
    if !parts.is_empty() {
        out += &format!("  they came back: {}\n", parts.join(", "));
    }
    let refused = [
        (*refused_full, "there was no entry free"),
        (*refused_down, "an interface was down"),
        (*refused_rate, "it had been given too many of late"),
        (*undecided, "the function had not decided"),
    ];
    let refused: Vec<String> = refused
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, why)| format!("{} as {why}", count(*number)))
        .collect();
    if !refused.is_empty() {
        out += &format!("  heavy and not put in, in times: {}\n", refused.join(", "));
    }
    if counters.flows.was_full() {
        let note = "a flow table was full: which flows made room may differ from a run without --offload";
        out += &format!("  {}\n", style.warn(note));
    }
    out
}

/// Formats the card's counts as JSON; null without a card.
pub(crate) fn json(outcome: &Outcome, is_live: bool) -> Value {
    let Some(card) = &outcome.offload else { return Value::Null };
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    json!({
        "card": if is_live { "xdp" } else { "simulated" },
        "packets": card.packets,
        "bytes": card.bytes,
        "packets_share": share(card.packets, outcome.counters.received),
        "bytes_share": share(card.bytes, outcome.counters.received_bytes),
        "inserted": card.inserted,
        "entries_max": card.entries_max,
        "undecided": card.undecided,
        "refused_full": card.refused_full,
        "refused_rate": card.refused_rate,
        "refused_down": card.refused_down,
        "back_for_packet": card.back_for_packet,
        "back_ended": card.back_ended,
        "evicted": card.evicted,
        "recalled": card.recalled,
    })
}

/// A card to be judged by `advise`.
#[derive(clap::Args)]
#[command(next_help_heading = "Offload")]
pub(super) struct CardOptions {
    /// Also tell what a card with so many entries ahead of the function would gain, by threshold
    #[arg(long = "offload", value_name = "ENTRIES", value_parser = entries)]
    entries: Option<usize>,
    /// Connections that the card takes in a second, at most [default: no limit]
    #[arg(long = "card-insertions", value_name = "NUMBER", value_parser = number::parse_positive, requires = "entries")]
    insertions: Option<u64>,
    /// Time of a core to put a connection in, or to take it back
    #[arg(long = "card-update", value_name = "TIME", default_value = "10us", value_parser = nanoseconds, requires = "entries")]
    update_ns: f64,
}

/// Gain of a card, by threshold.
pub(super) struct Gains {
    entries: usize,
    /// Nanoseconds a packet without a card.
    without_ns: f64,
    update_ns: f64,
    rows: Vec<Gain>,
}

struct Gain {
    threshold: u32,
    counts: OffloadCounts,
    packets: u64,
    modelled_ns: f64,
}

/// The thresholds of the table.
const THRESHOLDS: [u32; 9] = [1, 2, 4, 8, 16, 64, 256, 1024, 4096];
/// Packets of a burst.
const BURST: usize = 64;

impl CardOptions {
    /// Checks that the function can do with a card.
    ///
    /// # Errors
    /// It can't.
    pub(super) fn refuse(&self, program: &dyn Program, tables: &Tables) -> Result<(), Failed> {
        match self.entries {
            None => Ok(()),
            Some(_) => program.takes_offload(EngineKind::Sequential, tables).map_err(Failed::usage),
        }
    }

    /// Runs the function behind a simulated card for each threshold. A packet takes `without_ns` without a card. `None` if no card is
    /// wanted.
    ///
    /// # Errors
    /// A run fails.
    pub(super) fn gains(
        &self,
        program: &dyn Program,
        trace: &Arc<Trace>,
        options: &Options,
        without_ns: f64,
    ) -> Result<Option<Gains>, Failed> {
        let Some(entries) = self.entries else { return Ok(None) };
        let update_ns = self.update_ns;
        let row = |threshold: u32| -> Result<Gain, Failed> {
            let card = CardLimits { entries, insertions: self.insertions, evict_one_in: 0 };
            let offload = Some(Offload { threshold, rate_min: 0, card });
            let mut port = MemoryPort::new(Arc::clone(trace), BURST);
            let control = Control::default();
            let outcome = thread::scope(|scope| {
                let options = Options { offload, ..*options };
                program.start(scope, EngineKind::Sequential, 1, options, &mut port, &control).wait()
            })?;
            let (counts, packets) = (outcome.offload.unwrap_or_default(), outcome.counters.received);
            let left = packets.saturating_sub(counts.packets) as f64;
            let updates = (counts.inserted + counts.back()) as f64;
            let modelled_ns = (left * without_ns + updates * update_ns) / packets.max(1) as f64;
            Ok(Gain { threshold, counts, packets, modelled_ns })
        };
        let rows = THRESHOLDS.into_iter().map(row).collect::<Result<Vec<Gain>, Failed>>()?;
        Ok(Some(Gains { entries, without_ns, update_ns, rows }))
    }
}

impl Gains {
    /// The threshold with the highest throughput.
    fn best(&self) -> Option<&Gain> {
        self.rows.iter().min_by(|one, other| one.modelled_ns.total_cmp(&other.modelled_ns))
    }

    /// Returns the advice as a sentence.
    fn advice(&self) -> String {
        let Some(best) = self.best() else { return String::new() };
        let gain = self.without_ns / best.modelled_ns;
        if best.counts.packets == 0 || gain < 1.01 {
            return format!(
                "offload would be a loss or no gain on this traffic at any threshold: an update of the card takes as long as {:.0} packets",
                self.update_ns / self.without_ns
            );
        }
        let losses = self.rows.iter().filter(|row| row.modelled_ns > self.without_ns && row.counts.packets > 0);
        let worst = losses.map(|row| row.threshold).max();
        let below =
            worst.map_or_else(String::new, |worst| format!("; up to a threshold of {worst} it would be a loss"));
        format!(
            "offload with a threshold of {} would give {gain:.2} times the throughput of a core{below}",
            best.threshold
        )
    }

    pub(super) fn text(&self, style: Style) -> String {
        let entries = count(self.entries as u64);
        let mut out = style.bold(format!("a card with {entries} entries ahead of one core (Mpps, modelled)\n"));
        let columns = [
            ("threshold", Align::Right),
            ("on the card", Align::Right),
            ("put in", Align::Right),
            ("refused", Align::Right),
            ("Mpps", Align::Right),
            ("of that without", Align::Right),
        ];
        let mut sheet = Sheet::new(style, &columns);
        sheet.row(["none", "0 %", "0", "0", &rate(1e3 / self.without_ns), "1.00"].map(str::to_owned));
        for row in &self.rows {
            let gain = self.without_ns / row.modelled_ns;
            sheet.toned([
                (row.threshold.to_string(), Tone::Plain),
                (percent(row.counts.packets, row.packets), Tone::Plain),
                (count(row.counts.inserted), Tone::Plain),
                (count(row.counts.refused_full + row.counts.refused_rate), Tone::Plain),
                (rate(1e3 / row.modelled_ns), Tone::Plain),
                (format!("{gain:.2}"), if gain < 1.0 { Tone::Bad } else { Tone::Plain }),
            ]);
        }
        out += &sheet.lines(0);
        out += &style.dim(format!(
            "what the card takes is simulated on these packets; the rate is modelled: {:.1} ns for each packet left, and {} for each \
             connection put in or taken back\n",
            self.without_ns,
            number::time(self.update_ns)
        ));
        out + &format!("\n{}\n", style.good(self.advice()))
    }

    pub(super) fn json(&self) -> Value {
        let row = |row: &Gain| {
            json!({
                "threshold": row.threshold, "packets_share": row.counts.packets as f64 / row.packets.max(1) as f64,
                "inserted": row.counts.inserted, "refused": row.counts.refused_full + row.counts.refused_rate,
                "mpps": 1e3 / row.modelled_ns, "basis": "modelled",
            })
        };
        json!({
            "entries": self.entries, "update_ns": self.update_ns, "mpps_without": 1e3 / self.without_ns, "advice": self.advice(),
            "by_threshold": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}
