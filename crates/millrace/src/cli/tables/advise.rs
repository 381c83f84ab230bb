//! `millrace tables advise` recommends a flow table for a capture.

use std::sync::Arc;

use flow::index::{AnyIndex, IndexKind};
use flow::{Ageing, Eviction, Plan, Table};
use functions::tracking::Connection;
use packet::{FiveTuple4, FiveTuple6, Key, Nanos};
use serde_json::{Value, json};

use super::capture::{self, Extent};
use super::census::Census;
use crate::cli::failure::Failed;
use crate::cli::{captures, signals};
use crate::print::number::{self, bytes, count, percent};
use crate::print::output::{print, print_json};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// Recommend a flow table for a capture: index, number of entries, ageing and eviction
///
/// Replays the capture in packet time through a table with one idle timeout. Counts how many flows arrive, how many are alive at once,
/// and how many are ever answered. Sizes are for the entries of a connection tracker.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace tables advise --in a.pcap --memory 512M
  millrace tables advise --in a.pcap --memory 64M --idle-timeout 30 --json")]
pub(super) struct Args {
    #[command(flatten)]
    input: captures::Input,
    /// Memory that the tables may use, in bytes: 64M, 1.5G
    #[arg(long, default_value = "1G", value_name = "BYTES", value_parser = number::parse)]
    memory: u64,
    /// Idle timeout in seconds: a flow expires after this time without a packet
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    idle_timeout: u64,
    /// Maximum number of packets to take
    #[arg(long, default_value = "100M", value_name = "NUMBER", value_parser = number::parse)]
    packets: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Facts about the capture.
struct Facts {
    name: String,
    /// The arguments that name the packets.
    again: String,
    packets: u64,
    seconds: f64,
    flows: u64,
    unanswered: u64,
    /// Flows alive at once, of IPv4 and IPv6.
    alive: [u64; 2],
    alive_unanswered: f64,
    /// Flows that would be alive at once in the long run, if the capture is too short to show it.
    expected: Option<f64>,
    per_second: f64,
    busiest_second: u64,
    mean_life: f64,
    timeout: u64,
    largest: u64,
    tenth: u64,
    uncounted: u64,
}

/// A recommendation, with its reason.
struct Choice {
    what: &'static str,
    chosen: String,
    why: String,
}

struct Advice {
    facts: Facts,
    memory: u64,
    kind: IndexKind,
    ageing: Ageing,
    eviction: Eviction,
    /// Recommended entries, and entries that the capture needs, for IPv4 and IPv6.
    entries: [u64; 2],
    wanted: [u64; 2],
    bytes: [u64; 2],
    choices: Vec<Choice>,
    warnings: Vec<String>,
}

/// Extra entries beyond the maximum of flows alive at once, in percent.
const HEADROOM: u64 = 25;
/// Minimum size of a table.
const ENTRIES_MIN: u64 = 1_024;

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let stop = Arc::default();
    signals::stop_on_interrupt(&stop);
    let mut census = Census::new();
    let timeout = Nanos::from_secs(args.idle_timeout);
    let extent = capture::read(&args.input.captures, args.packets, args.json, &stop, |seen| census.see(seen, timeout))?;
    census.finish();
    let name = args.input.captures.name();
    if census.flows.opened == 0 {
        return Err(Failed::input(format_args!("{name} has no flows: none of its packets has a five-tuple")));
    }
    let advice =
        Advice::on(Facts::of([name, args.input.captures.again()], &extent, &census, args.idle_timeout), args.memory)?;
    if args.json { print_json(&advice.json()) } else { print(&advice.text(Style::stdout())) }
}

impl Facts {
    fn of([name, again]: [String; 2], extent: &Extent, census: &Census, timeout: u64) -> Self {
        let flows = &census.flows;
        let seconds = extent.last.since(extent.first).as_secs_f64();
        let per_second = if seconds > 0.0 { flows.opened as f64 / seconds } else { 0.0 };
        let mean_life = flows.mean_life();
        // Little's law: flows alive = arrival rate times mean lifetime.
        let steady = per_second * (mean_life + timeout as f64);
        let is_short = seconds < 2.0 * timeout as f64;
        Self {
            name,
            again,
            packets: extent.packets,
            seconds,
            flows: flows.opened,
            unanswered: flows.unanswered,
            alive: [census.peak.v4 as u64, census.peak.v6 as u64],
            alive_unanswered: census.peak.unanswered as f64 / census.peak.all.max(1) as f64,
            expected: (is_short && steady > census.peak.all as f64).then_some(steady),
            per_second,
            busiest_second: census.busiest_second(),
            mean_life,
            timeout,
            largest: flows.largest(),
            tenth: flows.tenth(),
            uncounted: census.v4.uncounted + census.v6.uncounted,
        }
    }

    /// Entries that each family needs.
    fn wanted(&self) -> [u64; 2] {
        let all: u64 = self.alive.iter().sum();
        let grown = self.expected.map_or(1.0, |expected| expected / all.max(1) as f64);
        self.alive.map(|alive| {
            if alive == 0 {
                0
            } else {
                round_up((alive as f64 * grown) as u64 * (100 + HEADROOM) / 100).max(ENTRIES_MIN)
            }
        })
    }
}

/// The next larger number with two significant digits.
fn round_up(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(1));
    number.div_ceil(unit) * unit
}

/// Bytes of an entry of each family, including its share of the whole table.
fn entry_bytes(kind: IndexKind) -> [f64; 2] {
    fn of<K: Key>(kind: IndexKind) -> f64 {
        // Sizes at which no page, prime or odd number is worth much; what doesn't grow cancels out. In smaller tables the wheel has a block for
        // each entry.
        const SMALL: usize = 1 << 15;
        let bytes = |capacity| {
            let plan = Plan { index: kind, capacity, ..Plan::default() };
            Table::<K, Connection, AnyIndex>::planned(plan).memory_bytes() as f64
        };
        (bytes(2 * SMALL) - bytes(SMALL)) / SMALL as f64
    }
    [of::<FiveTuple4>(kind), of::<FiveTuple6>(kind)]
}

/// Bytes of the tables of both families. Small tables are built and measured, because they need more than their entries; large ones are
/// computed. A family without entries has a table of one entry, as in `run`.
fn tables_bytes(kind: IndexKind, entries: [u64; 2]) -> [u64; 2] {
    const LARGE: f64 = 1e9;
    fn of<K: Key>(kind: IndexKind, entries: u64) -> u64 {
        let plan = Plan { index: kind, capacity: entries.max(1) as usize, ..Plan::default() };
        Table::<K, Connection, AnyIndex>::planned(plan).memory_bytes() as u64
    }
    let each = entry_bytes(kind);
    let reckoned = |family: usize| (entries[family] as f64 * each[family]) as u64;
    let small = |family: usize| (reckoned(family) as f64) < LARGE;
    [
        if small(0) { of::<FiveTuple4>(kind, entries[0]) } else { reckoned(0) },
        if small(1) { of::<FiveTuple6>(kind, entries[1]) } else { reckoned(1) },
    ]
}

fn total(entries: [u64; 2], each: [f64; 2]) -> f64 {
    entries[0] as f64 * each[0] + entries[1] as f64 * each[1]
}

/// Minimum entries of each family: a small table, or fewer if fewer are needed.
fn least(wanted: [u64; 2]) -> [u64; 2] {
    wanted.map(|wanted| wanted.min(ENTRIES_MIN))
}

/// Entries for each family: what is needed, if the memory holds it; else the minimum and an equal part of the rest. `None` if not even
/// the minimum fits.
fn shared_out(wanted: [u64; 2], each: [f64; 2], memory: u64) -> Option<[u64; 2]> {
    let least = least(wanted);
    let spare = memory as f64 - total(least, each);
    let beyond = [wanted[0] - least[0], wanted[1] - least[1]];
    let share = (spare / total(beyond, each).max(1.0)).min(1.0);
    let entries = |family: usize| least[family] + (beyond[family] as f64 * share) as u64;
    (spare >= 0.0).then(|| [entries(0), entries(1)])
}

/// Entries for each family that fit into the memory, and the bytes of their tables.
fn fitting(kind: IndexKind, wanted: [u64; 2], each: [f64; 2], memory: u64) -> Option<([u64; 2], [u64; 2])> {
    let attempt = |budget: u64| {
        let entries = shared_out(wanted, each, budget)?;
        let taken = tables_bytes(kind, entries);
        let sum = taken.iter().sum::<u64>();
        Some((entries, taken, sum))
    };
    let (mut low, mut high) = (total(least(wanted), each).ceil() as u64, memory);
    let mut best = attempt(low).filter(|(_, _, sum)| *sum <= memory)?;
    // What small tables take besides their entries doesn't grow evenly, so no one step leads there.
    let mut budget = memory;
    for _ in 0..16 {
        match attempt(budget) {
            Some(more) if more.2 <= memory => (best, low) = (more, budget),
            _ => high = budget,
        }
        if best.0 == wanted || best.2 >= memory / 100 * 97 {
            break;
        }
        budget = low + (high - low) / 2;
    }
    let (entries, taken, _) = best;
    Some((entries, taken))
}

impl Advice {
    fn on(facts: Facts, memory: u64) -> Result<Self, Failed> {
        let wanted = facts.wanted();
        let default = IndexKind::default();
        let each = entry_bytes(default);
        let fits = total(wanted, each) <= memory as f64;
        // The smallest is only worth its slower look-ups where the default doesn't hold everything.
        let smallest = IndexKind::ALL
            .into_iter()
            .min_by(|one, other| total(wanted, entry_bytes(*one)).total_cmp(&total(wanted, entry_bytes(*other))));
        let saves = |kind: &IndexKind| total(wanted, entry_bytes(*kind)) < total(wanted, each) * 0.99;
        let kind = smallest.filter(|kind| !fits && saves(kind)).unwrap_or(default);
        let chosen = entry_bytes(kind);
        let need = total(wanted, chosen);
        let Some((entries, each_bytes)) = fitting(kind, wanted, chosen, memory) else {
            let least = bytes(tables_bytes(kind, least(wanted)).iter().sum());
            return Err(Failed::usage(format_args!(
                "{} can't hold the tables; the smallest take {least}",
                bytes(memory)
            )));
        };
        let mut advice = Self {
            facts,
            memory,
            kind,
            ageing: Ageing::Wheel,
            eviction: Eviction::OldestUnprotected,
            entries,
            wanted,
            bytes: each_bytes,
            choices: Vec::new(),
            warnings: Vec::new(),
        };
        advice.choose_table(each, chosen);
        advice.choose_entries();
        advice.choose_ageing();
        advice.choose_eviction();
        advice.warn(need, chosen);
        Ok(advice)
    }

    fn choose(&mut self, what: &'static str, chosen: impl Into<String>, why: impl Into<String>) {
        self.choices.push(Choice { what, chosen: chosen.into(), why: why.into() });
    }

    fn choose_table(&mut self, default: [f64; 2], chosen: [f64; 2]) {
        let opening = percent(self.facts.flows, self.facts.packets);
        let why = if self.kind == IndexKind::default() {
            format!(
                "the default; {opening} of the packets open a flow, and it is fast at finding, missing, opening and \
                 ending flows"
            )
        } else {
            format!(
                "memory is limited, and it needs {:.1} bytes for an IPv4 flow; the default, {}, needs {:.1}",
                chosen[0],
                IndexKind::default(),
                default[0]
            )
        };
        self.choose("table", self.kind.name(), why);
    }

    fn choose_entries(&mut self) {
        let facts = &self.facts;
        for (family, name) in ["IPv4", "IPv6"].into_iter().enumerate() {
            if self.wanted[family] == 0 {
                continue;
            }
            let alive = count(facts.alive[family]);
            let why = match facts.expected {
                _ if self.entries[family] < self.wanted[family] => {
                    format!("the memory holds no more; the capture needs {}", count(self.wanted[family]))
                }
                Some(_) => format!(
                    "{alive} were alive at once, and at {:.0} new flows per second more would be alive before the \
                     first have been idle for {} s; plus {HEADROOM} %",
                    facts.per_second, facts.timeout
                ),
                None => format!("{alive} were alive at once; plus {HEADROOM} %"),
            };
            let chosen = format!(
                "{} for {name}: {} at {:.0} bytes",
                count(self.entries[family]),
                bytes(self.bytes[family]),
                self.bytes[family] as f64 / self.entries[family].max(1) as f64
            );
            self.choices.push(Choice { what: "entries", chosen, why });
        }
    }

    fn choose_ageing(&mut self) {
        let facts = &self.facts;
        let why = format!(
            "{} flows opened in the busiest second, and over time as many expire: the wheel finds each within {:.0} \
             ms of its expiry, at most two per packet, so that no packet waits for a mass expiry",
            count(facts.busiest_second),
            flow::TICK.as_secs_f64() * 1e3
        );
        self.choose("ageing", self.ageing.name(), why);
    }

    fn choose_eviction(&mut self) {
        let facts = &self.facts;
        let unanswered = percent(facts.unanswered, facts.flows);
        let short = self.entries != self.wanted;
        let (eviction, why) = if facts.unanswered == facts.flows {
            let why = "no flow is ever answered in this capture, so `oldest` can't distinguish flows; the least \
                 recently used flow nearby is evicted";
            (Eviction::LeastRecent, why.to_owned())
        } else if short && facts.unanswered * 20 < facts.flows {
            let why = format!("only {unanswered} of the flows are never answered, too few to evict");
            (Eviction::LeastRecent, why)
        } else {
            let why = format!(
                "{unanswered} of the flows are never answered, and only these are evicted; answered flows stay"
            );
            (Eviction::OldestUnprotected, why)
        };
        self.eviction = eviction;
        self.choose("eviction", eviction.name(), why);
        let all: u64 = self.entries.iter().sum();
        let spare = facts_spare(all, &self.facts);
        let full = match eviction {
            Eviction::OldestUnprotected => {
                "a new flow replaces roughly the oldest flow that was never answered; if all were answered, its \
                 packets are dropped as table-full"
            }
            Eviction::LeastRecent => {
                "a new flow replaces the least recently used flow among its own places, even if that was answered"
            }
            Eviction::Random => "a new flow replaces a random one",
            Eviction::None => "a new flow is refused, and its packets are dropped as table-full",
        };
        self.choose("when full", spare, full);
    }

    fn warn(&mut self, need: f64, each: [f64; 2]) {
        let facts = &self.facts;
        let mut warnings = Vec::new();
        if self.entries != self.wanted {
            let mut text = format!(
                "the capture needs {}, but {} hold {} of its flows",
                bytes(need as u64),
                bytes(self.memory),
                percent(self.entries.iter().sum(), self.wanted.iter().sum()),
            );
            let room = self.entries.iter().sum::<u64>() as f64 * 100.0 / (100 + HEADROOM) as f64;
            let timeout = room / facts.per_second.max(1e-9) - facts.mean_life;
            if facts.per_second > 0.0 && timeout >= 1.0 && timeout < facts.timeout as f64 {
                text += &format!("; with an idle timeout of {timeout:.0} s the flows alive would just fit");
            }
            warnings.push(text);
        }
        if facts.expected.is_some() {
            warnings.push(format!(
                "the capture lasts {:.1} s and the idle timeout is {} s, so the number of flows alive in the long run \
                 is an estimate from arrivals; use a longer capture to be sure",
                facts.seconds, facts.timeout
            ));
        }
        if facts.uncounted > 0 {
            warnings.push(format!(
                "more flows were alive than can be counted: {} packets are left out, so all numbers are too small",
                count(facts.uncounted)
            ));
        }
        if each[1] > 0.0 && self.wanted[1] == 0 {
            warnings.push("the capture has no IPv6, so no entries for it are recommended".to_owned());
        }
        self.warnings = warnings;
    }

    /// The arguments of `run` for the recommended table.
    fn settings(&self) -> String {
        let Self { kind, ageing, eviction, .. } = self;
        let mut settings = format!("--table {kind} --ageing {} --eviction {}", ageing.name(), eviction.name());
        // A family that didn't come takes no memory, whatever its room.
        for (key, entries) in ["flows", "flows_v6"].into_iter().zip(self.entries).filter(|(_, entries)| *entries > 0) {
            settings += &format!(" --set {key}={entries}");
        }
        settings
    }

    fn text(&self, style: Style) -> String {
        let facts = &self.facts;
        let mut out = format!(
            "{}, for a connection tracker with an idle timeout of {} s\n\n",
            style.bold(&facts.name),
            facts.timeout
        );
        let mut sheet = Sheet::new(style, &[("", Align::Left), ("", Align::Left)]);
        let mut line = |name: &str, text: String| sheet.toned([(name, Tone::Dim), (&*text, Tone::Plain)]);
        line("packets", format!("{} in {:.1} s", count(facts.packets), facts.seconds));
        line(
            "flows",
            format!("{}, of {:.1} packets on average", count(facts.flows), facts.packets as f64 / facts.flows as f64),
        );
        line(
            "alive at once",
            format!(
                "at most {} IPv4, {} IPv6; {:.0} % not answered by then",
                count(facts.alive[0]),
                count(facts.alive[1]),
                facts.alive_unanswered * 100.0
            ),
        );
        if let Some(expected) = facts.expected {
            line("in the long run", format!("about {}, estimated from the rate of arrivals", count(expected as u64)));
        }
        line("new flows", format!("{:.1} a second, {} in the busiest", facts.per_second, count(facts.busiest_second)));
        line("never answered", percent(facts.unanswered, facts.flows));
        line(
            "skew",
            format!(
                "largest flow {}, largest tenth {} of the packets",
                percent(facts.largest, facts.packets),
                percent(facts.tenth, facts.packets)
            ),
        );
        out += &sheet.lines(2);
        out += &format!("\n{}\n\n", style.bold(format!("Advice, for {}", bytes(self.memory))));
        let mut sheet = Sheet::new(style, &[("", Align::Left), ("", Align::Left), ("", Align::Left)]);
        for Choice { what, chosen, why } in &self.choices {
            sheet.toned([(*what, Tone::Dim), (chosen, Tone::Bold), (why, Tone::Plain)]);
        }
        out += &sheet.lines(2);
        if !self.warnings.is_empty() {
            out.push('\n');
        }
        for warning in &self.warnings {
            out += &format!("  {} {warning}\n", style.warn("note:"));
        }
        out + &format!("\n  millrace run conntrack {} {}\n", facts.again, self.settings())
    }

    fn json(&self) -> Value {
        let facts = &self.facts;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let choices: Vec<Value> = self
            .choices
            .iter()
            .map(|Choice { what, chosen, why }| json!({ "what": what, "chosen": chosen, "why": why }))
            .collect();
        let family =
            |at: usize| json!({ "wanted": self.wanted[at], "entries": self.entries[at], "bytes": self.bytes[at] });
        json!({
            "file": facts.name, "memory": self.memory, "idle_timeout_s": facts.timeout,
            "capture": {
                "packets": facts.packets, "duration_s": facts.seconds, "flows": facts.flows,
                "alive_at_once": { "ipv4": facts.alive[0], "ipv6": facts.alive[1] },
                "alive_unanswered_share": facts.alive_unanswered,
                "alive_in_the_long_run": facts.expected, "flows_per_second": facts.per_second,
                "flows_in_the_busiest_second": facts.busiest_second, "mean_life_s": facts.mean_life,
                "unanswered_share": share(facts.unanswered, facts.flows),
                "largest_flow_share": share(facts.largest, facts.packets),
                "largest_tenth_share": share(facts.tenth, facts.packets),
                "packets_of_uncounted_flows": facts.uncounted,
            },
            "table": self.kind.name(), "ageing": self.ageing.name(), "eviction": self.eviction.name(),
            "ipv4": family(0), "ipv6": family(1), "fits": self.entries == self.wanted,
            "arguments": self.settings(), "choices": choices, "warnings": self.warnings,
        })
    }
}

/// How far the table is from being full, in words.
fn facts_spare(entries: u64, facts: &Facts) -> String {
    let alive = facts.expected.unwrap_or_else(|| facts.alive.iter().sum::<u64>() as f64).max(1.0);
    let times = entries as f64 / alive;
    if times >= 1.0 { format!("at {times:.1} times today's flows") } else { "at all times".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            name: "a.pcap".to_owned(),
            again: "--in a.pcap".to_owned(),
            packets: 10_000_000,
            seconds: 600.0,
            flows: 1_000_000,
            unanswered: 300_000,
            alive: [100_000, 5_000],
            alive_unanswered: 0.4,
            expected: None,
            per_second: 1_666.0,
            busiest_second: 3_000,
            mean_life: 3.0,
            timeout: 60,
            largest: 1_000,
            tenth: 6_000_000,
            uncounted: 0,
        }
    }

    #[test]
    fn what_fits_is_the_default_with_room_to_spare() {
        let advice = Advice::on(facts(), 1 << 30).unwrap();
        assert_eq!(advice.kind, IndexKind::default());
        assert_eq!(advice.entries, [130_000, 6_300]);
        assert_eq!(advice.eviction, Eviction::OldestUnprotected);
        assert!(advice.warnings.is_empty(), "{:?}", advice.warnings);
        assert!(advice.bytes.iter().all(|bytes| *bytes > 0));
    }

    #[test]
    fn what_does_not_fit_is_told_and_filled_as_far_as_it_goes() {
        let memory = 2_000_000;
        let advice = Advice::on(facts(), memory).unwrap();
        assert!(advice.entries[0] < advice.wanted[0] && advice.bytes.iter().sum::<u64>() <= memory);
        assert!(advice.bytes.iter().sum::<u64>() > memory * 9 / 10, "{:?}", advice.bytes);
        assert!(advice.warnings[0].contains("idle timeout of"), "{:?}", advice.warnings);
        assert!(Advice::on(facts(), 1_000).is_err());
    }

    #[test]
    fn who_makes_room_hangs_on_who_is_answered() {
        let one_way = Facts { unanswered: 1_000_000, ..facts() };
        assert_eq!(Advice::on(one_way, 1 << 30).unwrap().eviction, Eviction::LeastRecent);
        let answered = Facts { unanswered: 1_000, ..facts() };
        assert_eq!(Advice::on(answered, 2_000_000).unwrap().eviction, Eviction::LeastRecent);
        let answered = Facts { unanswered: 1_000, ..facts() };
        assert_eq!(Advice::on(answered, 1 << 30).unwrap().eviction, Eviction::OldestUnprotected);
    }

    #[test]
    fn a_short_capture_is_carried_on() {
        let short = Facts { seconds: 20.0, expected: Some(210_000.0), ..facts() };
        let advice = Advice::on(short, 1 << 30).unwrap();
        assert_eq!(advice.entries, [250_000, 13_000]);
        assert!(advice.warnings[0].contains("lasts 20.0 s"));
    }

    #[test]
    fn numbers_are_rounded_up_to_two_digits() {
        for (number, rounded) in
            [(1, 1), (99, 99), (101, 110), (125_000, 130_000), (130_000, 130_000), (1_234_567, 1_300_000)]
        {
            assert_eq!(round_up(number), rounded);
        }
    }
}
