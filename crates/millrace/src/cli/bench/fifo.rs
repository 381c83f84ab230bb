//! `millrace bench fifo`: the queue between two stages beside others, on two cores.

mod contenders;
mod peers;
mod race;

use lab::{Calibration, Spread, Work};
use serde_json::{Value, json};

use super::json::spread;
use super::options::nanoseconds;
use super::timed_so_far;
use crate::cli::engines::{command, processor};
use crate::cli::failure::Failed;
use crate::cli::signals;
use crate::cli::traffic::Counter;
use crate::print::number::{self, count, counted, time};
use crate::print::output::{print, print_json};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};
use contenders::Contender;
use race::Race;

/// Why there are readings.
const ROUNDS: &str = "there is at least one round";

/// Number of items that each queue has room for.
const SLOTS: usize = 1_024;

/// Compare the queue between two stages (millrace-fifo) with other queues, on two cores
///
/// One thread pushes numbered items, another takes them and checks their sum; each has a core of its own. In each round all queues take turns,
/// with items of 8 bytes and of 16.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace bench fifo
  millrace bench fifo --work 0,20ns,200ns --rounds 21 --json")]
pub(super) struct Args {
    /// Number of times that each case runs; figures are medians over these rounds
    #[arg(long, default_value_t = 9, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Items of one case in a round
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse_positive)]
    items: u64,
    /// Times that the consumer computes for each item, separated by commas: 0,50ns
    #[arg(long, value_delimiter = ',', default_value = "0,50ns", value_name = "LIST", value_parser = nanoseconds)]
    work: Vec<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let &[producer, consumer, ..] = engine::cpus().as_slice() else {
        return Err(Failed::usage(
            "`bench fifo` needs two cores, one for each end of a queue, and this process may use only one",
        ));
    };
    signals::exit_on_interrupt("nothing was timed");
    let calibration = Calibration::here();
    let mut works = args.work.clone();
    works.sort_unstable_by(f64::total_cmp);
    works.dedup();
    let cpus = [producer, consumer];
    let races = works.into_iter().map(|ns| Race { cpus, items: args.items, work: calibration.work(ns) });
    let timed = timed(&races.collect::<Vec<_>>(), usize::from(args.rounds), args.json)?;
    if args.json { print_json(&json(args, &timed)) } else { print(&text(args, &timed, Style::stdout())) }
}

/// Items of a reading for [`descriptor_ns`].
const DESCRIPTORS: u64 = 200_000;

/// Nanoseconds for an item of 16 bytes to pass through millrace-fifo, between two cores without work; `None` on a machine with one core.
pub(in crate::cli) fn descriptor_ns(rounds: usize) -> Result<Option<Spread>, Failed> {
    let &[producer, consumer, ..] = engine::cpus().as_slice() else { return Ok(None) };
    let race = Race { cpus: [producer, consumer], items: DESCRIPTORS, work: Work::NONE };
    let read = |_| contenders::run::<[u64; 2]>(Contender::Fifo, &race);
    let readings = (0..rounds).map(read).collect::<Result<Vec<f64>, Failed>>()?;
    Ok(Spread::of(&readings))
}

/// Results of a queue in one case.
struct Row {
    queue: Contender,
    item_bytes: usize,
    work: Work,
    ns_per_item: Spread,
}

/// Results of all rounds.
struct Timed {
    rows: Vec<Row>,
    /// How long a cache line takes to the other core and back, read once a round.
    round_trip_ns: Spread,
}

/// Runs all rounds. Rows of a case lie together, in the order of [`Contender::ALL`].
fn timed(races: &[Race], rounds: usize, quiet: bool) -> Result<Timed, Failed> {
    let runs = [contenders::run::<u64>, contenders::run::<[u64; 2]>];
    let item_bytes = [size_of::<u64>(), size_of::<[u64; 2]>()];
    let mut cases = Vec::new();
    for (run, bytes) in runs.into_iter().zip(item_bytes) {
        for race in races {
            cases.extend(Contender::ALL.map(|queue| (queue, bytes, race, run, Vec::with_capacity(rounds))));
        }
    }
    let all = (cases.len() * rounds) as u64;
    let (done, items) = (Counter::default(), races.first().map_or(0, |race| race.items));
    let shown = done.clone();
    let sample = move || Sample { done: shown.get(), total: Some(all), packets: shown.get() * items };
    let doing = format!(
        "timing {} on two cores, in {}",
        counted(Contender::ALL.len() as u64, "queue", "queues"),
        counted(rounds as u64, "round", "rounds")
    );
    let _progress = Progress::begin(quiet, "bench", &doing, sample);
    let mut round_trips = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        round_trips.extend(races.first().map(|race| race::round_trip(race.cpus)));
        for (queue, _, race, run, readings) in &mut cases {
            readings.push(run(*queue, race)?);
            done.set(done.get() + 1);
            signals::so_far(timed_so_far(done.get(), all));
        }
    }
    let row = |(queue, item_bytes, race, _, readings): (Contender, usize, &Race, _, Vec<f64>)| {
        let ns_per_item = Spread::of(&readings).expect(ROUNDS);
        Row { queue, item_bytes, work: race.work, ns_per_item }
    };
    Ok(Timed { rows: cases.into_iter().map(row).collect(), round_trip_ns: Spread::of(&round_trips).expect(ROUNDS) })
}

fn text(args: &Args, timed: &Timed, style: Style) -> String {
    let mut out = format!(
        "{}: {} slots, two cores, {} items a round, medians of {}\n",
        style.bold("fifo"),
        count(SLOTS as u64),
        count(args.items),
        counted(u64::from(args.rounds), "round", "rounds")
    );
    for case in timed.rows.chunks(Contender::ALL.len()) {
        let Row { item_bytes, work, ns_per_item: first, .. } = &case[0];
        let work =
            if work.is_none() { "no work".to_owned() } else { format!("work of {} an item", time(work.takes_ns)) };
        out += &format!("\nitems of {item_bytes} bytes, {work}\n");
        let columns =
            [("queue", Align::Left), ("ns/item", Align::Right), ("from - to", Align::Right), ("times", Align::Right)];
        let mut sheet = Sheet::new(style, &columns);
        for row in case {
            let ns = &row.ns_per_item;
            sheet.toned([
                (row.queue.name(), if row.queue.is_ours() { Tone::Bold } else { Tone::Plain }),
                (&format!("{:.1}", ns.median), Tone::Good),
                (&format!("{:.1} - {:.1}", ns.min, ns.max), Tone::Dim),
                (&format!("{:.2}", ns.median / first.median), Tone::Plain),
            ]);
        }
        out += &sheet.lines(2);
    }
    let Spread { min, median, max } = timed.round_trip_ns;
    out += &format!("\na cache line goes there and back between the cores in {median:.0} ns ({min:.0} - {max:.0})\n");
    let note = "ns/item: between the first item taken and the last, with the work. times: as a multiple of the first row. A virtual \
         machine's cores may be two threads of one core, or move: compare figures of one run only";
    out + &format!("\n{}\n", style.dim(note))
}

fn json(args: &Args, timed: &Timed) -> Value {
    let row = |row: &Row| {
        json!({
            "queue": row.queue.name(), "item_bytes": row.item_bytes, "work_asked_ns": row.work.asked_ns,
            "work_takes_ns": row.work.takes_ns, "ns_per_item": spread(&row.ns_per_item),
        })
    };
    json!({
        "slots": SLOTS, "rounds": args.rounds, "items": args.items, "line_round_trip_ns": spread(&timed.round_trip_ns),
        "rows": timed.rows.iter().map(row).collect::<Vec<_>>(),
        "processor": processor(), "command": command(),
    })
}
