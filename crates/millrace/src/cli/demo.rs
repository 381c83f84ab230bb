//! `millrace demo` runs the shipped capture through the stateful firewall on every core, then under every engine.

use std::io::Cursor;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use case::Fared;
use engine::{Control, EngineKind, Guarantee, Options, Outcome};
use lab::conformance::{Plan, Verified};
use lab::{Basis, Bench, BenchPlan, Work};
use nf::{Description, Sharing};
use port::pcap::Reader;
use port::{MemoryQueue, Trace};
use serde_json::{Value, json};

use super::engines::{fitting, machine_cores};
use super::failure::{Failed, OUTCOME};
use super::signals;
use super::traffic::Counter;
use crate::DEMO_CAPTURE;
use crate::print::dropped::{self, Dropped, Sources};
use crate::print::number::{bytes, count, counted, percent};
use crate::print::outcome::packets;
use crate::print::output::{print, print_json};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};
use catalogue::config::Settings;
use catalogue::{Catalogue, Program};

/// Show Millrace at work: a real capture through a stateful firewall, on every core and under every engine
///
/// The capture is 20 seconds long. It was recorded at a router between an office, the servers it uses, and an attacker who scans and
/// floods. It is part of the program: the demo reads, writes and sends nothing.
#[derive(clap::Args)]
#[command(after_help = "Example:  millrace demo")]
pub(super) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The demo's function, and the addresses of the office.
const FUNCTION: &str = "firewall";
const INSIDE: &str = "inside=[\"192.168.10.0/24\", \"2001:db8:1::/64\"]";

/// The comparison of one engine with `sequential`.
struct EngineCheck {
    engine: EngineKind,
    cores: usize,
    verified: Verified,
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    signals::exit_on_interrupt("the demo had just started");
    // Each engine is compared once and timed once.
    let (steps, of) = (Counter::default(), 2 * EngineKind::ALL.len() as u64);
    let shown = steps.clone();
    let sample = move || Sample { done: shown.get(), total: Some(of), packets: 0 };
    let doing = "a capture through a firewall, under every engine; it takes a few seconds";
    let progress = Progress::begin(args.json, "demo", doing, sample);
    let lacks = || {
        Failed::usage(format!(
            "the demo needs the function `{FUNCTION}`, but this program was built without it (--features {FUNCTION})"
        ))
    };
    let entry = catalogue.get(FUNCTION).ok_or_else(lacks)?;
    let mut settings = Settings::default();
    settings.set(INSIDE)?;
    let program = entry.load(&settings)?;
    let mut reader = Reader::from_read(Cursor::new(DEMO_CAPTURE), "the demo's capture")?;
    let trace = Arc::new(Trace::load(&mut reader, usize::MAX)?);

    let cores = machine_cores().min(8);
    let kind = fitting(&program.description(), cores)?;
    let mut queue = MemoryQueue::new(Arc::clone(&trace), 256);
    let control = Control::default();
    let outcome =
        thread::scope(|scope| program.start(scope, kind, cores, options(&trace), &mut queue, &control).wait())?;
    if let Some(failure) = outcome.failure {
        return Err(failure.into());
    }
    let dropped = who(&*program, &trace)?;
    let together = cores.max(2);
    let mut checks: Vec<EngineCheck> = Vec::new();
    for engine in EngineKind::ALL {
        let (done, all) = (checks.len(), EngineKind::ALL.len());
        signals::so_far(format!("{done} of {all} engines were compared with sequential, and none was timed"));
        checks.push(check_engine(&*program, &trace, engine, together));
        steps.set(checks.len() as u64);
    }
    signals::so_far("all engines were compared with sequential; timing was not finished".to_owned());
    let plan = BenchPlan {
        engines: EngineKind::ALL.to_vec(),
        cores: if cores > 1 { vec![1, cores] } else { vec![1] },
        // The rates are only an impression; use `bench` to measure.
        rounds: 1,
        packets: 2 * trace.len() as u64,
        options: options(&trace),
        undisturbed: false,
        with_bare: false,
        dispatch: Work::NONE,
        loss_free: None,
        delay: None,
        model_to: 0,
        far_line_ns: None,
    };
    let bench = program.bench(&trace, &plan, &mut |runs, all| steps.set((of + of * runs / all.max(1)) / 2))?;
    drop(progress);

    let equal = checks.iter().all(|check| check.verified.mismatch.is_none());
    let shown = Shown {
        description: entry.description(),
        trace: &trace,
        kind,
        cores,
        outcome: &outcome,
        dropped,
        checks,
        bench,
    };
    if args.json {
        print_json(&shown.json(equal))?;
    } else {
        print(&shown.text(equal, Style::stdout()))?;
    }
    if equal { Ok(()) } else { Err(Failed::Said(OUTCOME)) }
}

/// Small tables for this trace, so that the demo starts at once.
fn options(trace: &Trace) -> Options {
    Options { flows_max: Some(trace.len()), ..Options::default() }
}

/// Sources of dropped packets, by reason.
fn who(program: &dyn Program, trace: &Arc<Trace>) -> Result<Vec<Dropped>, Failed> {
    let mut sources = Sources::default();
    let mut queue = MemoryQueue::new(Arc::clone(trace), 256);
    program.explain(&mut queue, &mut |&Fared { packet, before, .. }, reason| {
        if let Some(reason) = reason {
            sources.add(reason, packet, before);
        }
    })?;
    Ok(sources.into_dropped())
}

/// Compares an engine with `sequential`, with random schedules and real threads.
fn check_engine(program: &dyn Program, trace: &Trace, engine: EngineKind, cores: usize) -> EngineCheck {
    let cores = if engine == EngineKind::Sequential { 1 } else { cores };
    let plan =
        Plan { engines: vec![engine], cores: cores..=cores, seeds: 0..2, threads: true, options: Options::default() };
    EngineCheck { engine, cores, verified: program.verify(trace, &plan, &mut |_, _| {}) }
}

/// Everything that the demo prints.
struct Shown<'a> {
    description: &'a Description,
    trace: &'a Trace,
    kind: EngineKind,
    cores: usize,
    outcome: &'a Outcome,
    dropped: Vec<Dropped>,
    checks: Vec<EngineCheck>,
    bench: Bench,
}

impl Shown<'_> {
    fn text(&self, equal: bool, style: Style) -> String {
        let counters = &self.outcome.counters;
        let cores = counted(self.cores as u64, "core", "cores");
        let seconds = Duration::from_nanos(self.trace.duration().0).as_secs_f64();
        let mut out = format!(
            "{}, recorded at an office's router: {}, {}\nthrough a stateful {} ({} on {cores}): inside hosts may open \
             connections, outside hosts may only answer\n\n",
            style.bold(format!("{seconds:.0} seconds")),
            counted(counters.received, "packet", "packets"),
            bytes(counters.received_bytes),
            style.bold(self.description.name),
            self.kind,
        );
        out += &self.fates(style);
        out += "\nThe scan and the flood are not allowed in. The attacked host's answers to them belong to no connection.\n";
        out += &format!("\n{}\n\n", style.bold("The same under every engine, from memory"));
        out += &self.engines(style);
        out += if equal {
            "\nThe function is one sequential program without any code for cores. Each engine spreads packets and state\n\
             over cores in its own way. All verdicts and all state were the same as on one core.\n"
        } else {
            "\nAn engine differs from the sequential program: that is a bug in Millrace. Please report it.\n"
        };
        out += &format!("\n{}\n", style.bold("Try next"));
        for (command, what) in [
            ("millrace functions", "other functions: NAT, connection tracking, policing, ..."),
            ("millrace inspect YOUR.pcap", "describe your own capture"),
            ("millrace run firewall --in YOUR.pcap --out ALLOWED.pcap", "send it through the firewall"),
            ("millrace verify firewall --in YOUR.pcap", "compare every engine with the sequential program"),
        ] {
            out += &format!("  {command:<56} {}\n", style.dim(what));
        }
        out += &format!("\n{}\n", style.bold("Repeat this run from the file"));
        out += &format!("  millrace run firewall --in testdata/demo.pcap.zst --set '{INSIDE}'\n");
        out
    }

    fn fates(&self, style: Style) -> String {
        let counters = &self.outcome.counters;
        let all = counters.received;
        let mut sheet =
            Sheet::new(style, &[("", Align::Left), ("", Align::Right), ("", Align::Right), ("", Align::Left)]);
        sheet.toned([
            ("forwarded", Tone::Bold),
            (&*count(counters.forwarded), Tone::Good),
            (&percent(counters.forwarded, all), Tone::Plain),
        ]);
        sheet.toned([
            ("dropped", Tone::Bold),
            (&*count(counters.dropped_total()), Tone::Bad),
            (&percent(counters.dropped_total(), all), Tone::Plain),
        ]);
        for Dropped { reason, packets, sources } in &self.dropped {
            let name = format!("  {}", reason.name(self.description.drop_reasons));
            sheet.toned([
                (&*name, Tone::Plain),
                (&count(*packets), Tone::Plain),
                (&percent(*packets, all), Tone::Plain),
                (&dropped::from(sources), Tone::Dim),
            ]);
        }
        sheet.lines(2)
    }

    fn engines(&self, style: Style) -> String {
        let alone = "Mpps on 1 core".to_owned();
        let together = format!("on {}", self.cores);
        let mut columns = vec![("engine", Align::Left), (&*alone, Align::Right)];
        if self.cores > 1 {
            columns.push((&together, Align::Right));
        }
        columns.push(("against sequential", Align::Left));
        let mut sheet = Sheet::new(style, &columns);
        for EngineCheck { engine, cores, verified } in &self.checks {
            let mut row = vec![(engine.name().to_owned(), Tone::Bold), (self.mpps(*engine, 1), Tone::Plain)];
            if self.cores > 1 {
                row.push((self.mpps(*engine, self.cores), Tone::Plain));
            }
            row.push(match (&verified.mismatch, verified.refused.first()) {
                (Some(_), _) => ("DIFFERS".to_owned(), Tone::Bad),
                (None, Some((_, _, reason))) => (reason.clone(), Tone::Warn),
                (None, None) if *engine == EngineKind::Sequential => ("the oracle".to_owned(), Tone::Dim),
                (None, None) => {
                    (format!("equal on {cores} cores, {}", how(*engine, self.description.sharing)), Tone::Good)
                }
            });
            sheet.toned(row);
        }
        sheet.lines(2)
    }

    /// The median rate, marked if it is modelled.
    fn mpps(&self, engine: EngineKind, cores: usize) -> String {
        let row = self.bench.rows.iter().find(|row| row.engine == engine && row.cores == cores);
        row.map_or("-".to_owned(), |row| {
            let mark = if row.basis == Basis::Modelled { " (modelled)" } else { "" };
            format!("{:.1}{mark}", row.mpps.median)
        })
    }

    fn json(&self, equal: bool) -> Value {
        let dropped = dropped::json(&self.dropped, self.description);
        let engines: Vec<Value> = self
            .checks
            .iter()
            .map(|EngineCheck { engine, cores, verified }| {
                let rates: Vec<Value> = self
                    .bench
                    .rows
                    .iter()
                    .filter(|row| row.engine == *engine)
                    .map(|row| {
                        let measured = row.basis == Basis::Measured;
                        json!({ "cores": row.cores, "mpps": row.mpps.median, "measured": measured })
                    })
                    .collect();
                json!({
                    "engine": engine.name(), "cores": cores, "runs": verified.runs,
                    "equal": verified.mismatch.is_none(), "guarantee": engine.guarantee(self.description.sharing).to_string(),
                    "refused": verified.refused.first().map(|(_, _, reason)| reason), "rates": rates,
                })
            })
            .collect();
        json!({
            "function": self.description.name, "engine": self.kind.name(), "cores": self.cores,
            "packets": packets(&self.outcome.counters, self.description), "dropped": dropped,
            "engines": engines, "equal": equal,
        })
    }
}

/// Extent of the comparison with `sequential`, in a few words.
const fn how(engine: EngineKind, sharing: Sharing) -> &'static str {
    match engine.guarantee(sharing) {
        Guarantee::Identical => "packet by packet",
        Guarantee::IdenticalPerPacketSet => "in every packet set",
        Guarantee::Serializable => "in the order of its steps",
    }
}
