//! Compares our table with DPDK's rte_hash and the standard library's map on one core: look-ups, insertions, new flows, memory.
//!
//! `cargo xtask bench tables`, which needs libdpdk. All contestants of a row are interleaved over several rounds, and each round begins
//! with another one. A cell is the median with the fastest and the slowest round. All do the same work and must give the same answers: find
//! the key's state and read its first word.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "dpdk/board.rs"]
mod board;
#[path = "dpdk/contestants.rs"]
mod contestants;
#[path = "dpdk/rte.rs"]
mod rte;
#[path = "dpdk/traffic.rs"]
mod traffic;

use std::process::ExitCode;
use std::time::Instant;

use millrace_flow::Ageing;
use packet::{FiveTuple4, Nanos};

use crate::board::{Board, Figure, huge_bytes, print_row};
use crate::contestants::{Aged, Flows, LIFETIME, RTE_HASHES, Size, State, ours, standard};
use crate::rte::{Dpdk, Read};
use crate::traffic::{Keys, Part, Random};

const HELP: &str = "\
cargo xtask bench tables [-- OPTIONS]
  --entries N   places in a table, with K or M for 2^10 or 2^20 (default 4M)
  --rounds N    rounds of each measurement (default 7)
  --only WORD   lookups, insertions, flows or memory
";

/// Look-ups in a round.
const QUERIES: usize = 1 << 21;

struct Options {
    places: usize,
    rounds: usize,
    only: Option<String>,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprint!("{wrong}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let dpdk = match Dpdk::start() {
        Ok(dpdk) => dpdk,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "{} against millrace-flow {}; {} places a table",
        Dpdk::version(),
        env!("CARGO_PKG_VERSION"),
        options.places
    );
    agree::<u64>(&dpdk);
    agree::<[u64; 3]>(&dpdk);
    println!("all tables agree on which keys are present, and on their state");
    let mut board = Board::new(ours::<u64>().iter().map(|(name, _)| *name).collect());
    state::<u64>(&dpdk, &options, &mut board);
    state::<[u64; 3]>(&dpdk, &options, &mut board);
    board.print();
    ExitCode::SUCCESS
}

fn options() -> Result<Option<Options>, String> {
    let mut options = Options { places: 4 << 20, rounds: 7, only: None };
    // Cargo passes `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().unwrap_or_default();
            let (digits, unit) = match text.strip_suffix(['K', 'M']) {
                Some(digits) => (digits, if text.ends_with('K') { 1 << 10 } else { 1 << 20 }),
                None => (text.as_str(), 1),
            };
            digits
                .parse::<usize>()
                .ok()
                .and_then(|number| number.checked_mul(unit))
                .ok_or(format!("{argument}: a number is missing"))
        };
        match argument.as_str() {
            "--entries" => options.places = number()?,
            "--rounds" => options.rounds = number()?,
            "--only" => options.only = arguments.next(),
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("{argument}: unknown")),
        }
    }
    if !(1 << 12..=1 << 28).contains(&options.places) || options.rounds == 0 {
        return Err("a table has from 4K to 256M places, and there is at least one round".into());
    }
    Ok(Some(options))
}

/// All rows, with states of one size.
fn state<V: State>(dpdk: &Dpdk, options: &Options, board: &mut Board) {
    let wanted = |part: &str| options.only.as_deref().is_none_or(|only| part.contains(only));
    if wanted("lookups") {
        lookups::<V>(dpdk, options, board);
    }
    if wanted("insertions") {
        insertions::<V>(dpdk, options, board);
    }
    if wanted("flows") {
        // At 10 M new flows a second a table fills within half a second, so flows are that short in one row; then flows of usual length.
        // Not below hundreds of ticks, the resolution of the wheel.
        let brief = Nanos((Size::new(options.places, 75).flows() * 100) as u64).max(Nanos(millrace_flow::TICK.0 * 256));
        for lifetime in [brief, LIFETIME] {
            new_flows::<V>(lifetime, options, board);
        }
    }
    if wanted("memory") {
        memory::<V>(dpdk, options, board);
    }
}

/// A contestant with its name.
type Named<'a> = (String, Box<dyn Flows + 'a>);
/// A contestant that isn't constructed yet.
type Maker<'a> = (String, Box<dyn Fn() -> Box<dyn Flows + 'a> + 'a>);

fn all<'a, V: State>(dpdk: &'a Dpdk, size: Size) -> Vec<Maker<'a>> {
    let mut all: Vec<Maker<'a>> = Vec::new();
    for (name, make) in ours::<V>() {
        all.push((name.into(), Box::new(move || make(size, Ageing::Wheel))));
    }
    for rte in RTE_HASHES {
        let make = move || -> Box<dyn Flows + 'a> { Box::new(rte.make(dpdk, size.places, size_of::<V>(), false)) };
        all.push((rte.name.into(), Box::new(make)));
    }
    all.push(("standard map, one by one".into(), Box::new(move || standard::<V>(size))));
    all
}

/// Checks that every contestant holds the keys that were inserted and not removed, and no others.
fn agree<V: State>(dpdk: &Dpdk) {
    let size = Size::new(1 << 16, 75);
    let flows = size.flows();
    let keys = Keys::of(0..2 * flows as u64);
    let gone = flows / 3;
    for (name, make) in all::<V>(dpdk, size) {
        let mut table = make();
        assert_eq!(table.insert(keys.part(0, flows)), flows, "{name}: there is room");
        assert_eq!(table.remove(keys.part(0, gone)), gone, "{name}: they were in");
        assert_eq!(table.churn(keys.part(gone, 2 * gone), keys.part(flows, flows + gone)), 2 * gone, "{name}: churn");
        let present = (2 * gone)..(flows + gone);
        for at in 0..2 * flows {
            let (hits, sum) = table.look(keys.part(at, at + 1));
            assert_eq!(hits == 1, present.contains(&at), "{name}: key {at}");
            assert!(hits == 0 || sum == at as u64 + 1 || name.contains("no state"), "{name}: the state of key {at}");
        }
        assert_eq!(table.look(keys.all()).0, present.len(), "{name}: the same in bursts");
    }
}

fn lookups<V: State>(dpdk: &Dpdk, options: &Options, board: &mut Board) {
    let size = Size::new(options.places, 75);
    let flows = size.flows();
    println!("\nlook-ups, {} bytes of state, {flows} flows (75 %): ns a look-up", size_of::<V>());
    let keys = Keys::of(0..flows as u64);
    let (mut tables, mut lie) = (Vec::new(), Vec::new());
    for (name, make) in all::<V>(dpdk, size) {
        let before = huge_bytes();
        let mut table = make();
        assert_eq!(table.insert(keys.all()), flows, "{name}: there is room");
        lie.push(100 * huge_bytes().saturating_sub(before) / table.bytes());
        tables.push((name, table));
    }
    let mut random = Random(7);
    let uniform = Keys::of((0..QUERIES).map(|_| random.below(flows) as u64));
    let skewed = Keys::of(random.zipf(flows, QUERIES));
    let absent = Keys::of((0..QUERIES).map(|_| (flows + random.below(flows)) as u64));
    drop(keys);
    let columns = [(uniform, QUERIES), (skewed, QUERIES), (absent, 0)];
    let mut figures = vec![Vec::new(); tables.len()];
    for (queries, hits) in &columns {
        let expected: u64 = if *hits == 0 { 0 } else { queries.all().words.iter().sum() };
        let times = race(options.rounds, tables.len(), |at| {
            let (name, table) = &mut tables[at];
            timed(QUERIES, || {
                let (found, sum) = table.look(queries.all());
                assert_eq!(found, *hits, "{name}: finds what is there");
                assert!(sum == expected || name.contains("no state"), "{name}: reads the states");
            })
        });
        for (figures, time) in figures.iter_mut().zip(times) {
            figures.push(time);
        }
    }
    print_row("", &["uniform", "Zipf 1.0", "absent, uniform", "on huge pages"]);
    for ((name, _), (figures, lie)) in tables.iter().zip(figures.iter().zip(&lie)) {
        let [uniform, skewed, absent] = figures[..] else { unreachable!("three columns") };
        let lie = format!("{} %", (*lie).min(100));
        print_row(name, &[&uniform.to_string(), &skewed.to_string(), &absent.to_string(), &lie]);
    }
    let ours = ours::<V>().len();
    let (same_work, map) = (&figures[ours..ours + RTE_HASHES.len()], &figures[figures.len() - 1]);
    for (column, what) in ["uniform", "Zipf 1.0"].iter().enumerate() {
        let fastest = fastest(
            same_work.iter().zip(RTE_HASHES).filter(|(_, rte)| rte.read != Read::Nothing).map(|(f, _)| f[column]),
        );
        let title = format!("{} B, hits, {what}: times the fastest rte_hash", size_of::<V>());
        board.at_least(&title, 1.3, figures[..ours].iter().map(|own| fastest / own[column].median));
        let title = format!("{} B, hits, {what}: times the standard map", size_of::<V>());
        board.at_least(&title, 2.0, figures[..ours].iter().map(|own| map[column].median / own[column].median));
    }
    let own = &figures[..ours];
    board.at_most(&format!("{} B, hits, uniform: ns", size_of::<V>()), 30.0, own.iter().map(|own| own[0].median));
    let title = format!("{} B, misses: times the cost of hits", size_of::<V>());
    board.at_most(&title, 1.0, own.iter().map(|own| own[2].median / own[0].median));
}

fn fastest(figures: impl Iterator<Item = Figure>) -> f64 {
    figures.map(|figure| figure.median).fold(f64::INFINITY, f64::min)
}

/// From 85 to 90 % load, then at 90 %.
fn insertions<V: State>(dpdk: &Dpdk, options: &Options, board: &mut Board) {
    let size = Size::new(options.places, 90);
    let (flows, step) = (size.flows(), options.places * 5 / 100);
    println!("\ninsertions, {} bytes of state, to {flows} flows (90 %): ns a key", size_of::<V>());
    let keys = Keys::of(0..(flows + options.rounds * 2 * step) as u64);
    let mut tables: Vec<Named<'_>> = Vec::new();
    for ageing in [Ageing::None, Ageing::Wheel] {
        for (name, make) in ours::<V>() {
            tables.push((format!("{name}, ageing: {}", ageing.name()), make(size, ageing)));
        }
    }
    let rtes = RTE_HASHES.iter().filter(|rte| match rte.read {
        Read::Array => true,
        Read::Data => size_of::<V>() == 8,
        Read::Nothing => false,
    });
    for rte in rtes {
        tables.push((rte.name.into(), Box::new(rte.make(dpdk, size.places, size_of::<V>(), false))));
    }
    tables.push(("standard map".into(), standard::<V>(size)));
    for (name, table) in &mut tables {
        assert_eq!(table.insert(keys.part(0, flows)), flows, "{name}: there is room");
    }
    let mut rounds = vec![0; tables.len()];
    let mut churn = vec![Vec::new(); tables.len()];
    let inserts = race(options.rounds, tables.len(), |at| {
        let (name, table) = &mut tables[at];
        let oldest = rounds[at] * 2 * step;
        rounds[at] += 1;
        assert_eq!(table.remove(keys.part(oldest, oldest + step)), step, "{name}: they were in");
        let next = oldest + flows;
        let time = timed(step, || {
            assert_eq!(table.insert(keys.part(next, next + step)), step, "{name}: there is room");
        });
        let (old, new) = (keys.part(oldest + step, oldest + 2 * step), keys.part(next + step, next + 2 * step));
        churn[at].push(timed(step, || {
            assert_eq!(table.churn(old, new), 2 * step, "{name}: one goes, one comes");
        }));
        time
    });
    print_row("", &["85 to 90 %", "one out, one in"]);
    let churn: Vec<Figure> = churn.into_iter().map(Figure::of).collect();
    for (((name, _), insert), churn) in tables.iter().zip(&inserts).zip(&churn) {
        print_row(name, &[&insert.to_string(), &churn.to_string()]);
    }
    let ours = ours::<V>().len();
    for (what, figures) in [("insertions", &inserts), ("one out, one in", &churn)] {
        let fastest = fastest(figures[2 * ours..figures.len() - 1].iter().copied());
        for (start, ageing) in [(0, "no ageing"), (ours, "wheel")] {
            let title = format!("{} B, {what} at 90 %, {ageing}: times the fastest rte_hash", size_of::<V>());
            board.at_least(&title, 1.3, figures[start..start + ours].iter().map(|own| fastest / own.median));
        }
    }
}

/// A new flow a packet: with the wheel flows expire, without it the oldest is evicted.
fn new_flows<V: State>(lifetime: Nanos, options: &Options, board: &mut Board) {
    let size = Size { lifetime, ..Size::new(options.places, 75) };
    let (flows, bytes) = (size.flows(), size_of::<V>());
    let step = flows / 8;
    let seconds = lifetime.0 as f64 / 1e9;
    println!(
        "\nnew flows, one a packet, as many going, {bytes} bytes of state, {flows} flows (75 %) of {seconds:.1} s: ns a flow"
    );
    let keys = Keys::of(0..(flows + (options.rounds + 1) * step) as u64);
    let mut random = Random(11);
    let mut tables: Vec<(String, Ageing, Box<dyn Aged>)> = Vec::new();
    for ageing in [Ageing::Wheel, Ageing::None] {
        for (name, make) in ours::<V>() {
            tables.push((format!("{name}, ageing: {}", ageing.name()), ageing, make(size, ageing)));
        }
    }
    // As in a table after a while: flows that came together don't lie together.
    let order = Keys::of(random.order(flows));
    for (_, _, table) in &mut tables {
        table.insert(keys.part(0, flows));
        table.remove(order.all());
        table.open(keys.part(0, flows + step));
    }
    drop(order);
    let mut next = vec![flows + step; tables.len()];
    // The wheel may be busy with cascading while the table fills; then the oldest flow is evicted.
    let mut evicted = vec![0; tables.len()];
    let times = race(options.rounds, tables.len(), |at| {
        let (_, _, table) = &mut tables[at];
        let part: Part<'_> = keys.part(next[at], next[at] + step);
        next[at] += step;
        timed(step, || evicted[at] += table.open(part))
    });
    print_row("", &["ns a flow", "M flows a second", "evicted"]);
    for (((name, ageing, _), time), evicted) in tables.iter().zip(&times).zip(evicted) {
        let percent = 100 * evicted / (step * options.rounds);
        assert!(percent == 100 || *ageing != Ageing::None, "{name}: flows leave by eviction alone");
        print_row(name, &[&time.to_string(), &format!("{:.1}", 1e3 / time.median), &format!("{percent} %")]);
    }
    let (wheel, none) = times.split_at(times.len() / 2);
    let title = format!("{bytes} B, new flows of {seconds:.1} s, wheel: M a second");
    board.at_least(&title, 10.0, wheel.iter().map(|time| 1e3 / time.median));
    let extra = wheel.iter().zip(none).map(|(wheel, none)| (wheel.median / none.median - 1.0) * 100.0);
    board.at_most(&format!("{bytes} B, new flows of {seconds:.1} s: what the wheel adds, %"), 15.0, extra);
}

/// Bytes a flow at the highest load at which at most one insertion in ten thousand fails.
fn memory<V: State>(dpdk: &Dpdk, options: &Options, board: &mut Board) {
    let (entry, alone) = (size_of::<FiveTuple4>() + size_of::<V>() + size_of::<Nanos>(), 13 + size_of::<V>());
    println!(
        "\nmemory at the highest load with 99.99 % of the insertions done; an entry, with its key as it is kept and its deadline: {entry} bytes; \
         key and state alone: {alone}"
    );
    print_row("", &["highest load, %", "bytes a flow", "times an entry", "times key and state"]);
    let keys = Keys::of(0..options.places as u64);
    let row = |name: &str, flows: usize, bytes: usize| {
        let a_flow = bytes as f64 / flows as f64;
        let load = 100.0 * flows as f64 / options.places as f64;
        let times = a_flow / entry as f64;
        let cells = [
            format!("{load:.2}"),
            format!("{a_flow:.1}"),
            format!("{times:.2}"),
            format!("{:.2}", a_flow / alone as f64),
        ];
        print_row(name, &cells.each_ref().map(String::as_str));
        times
    };
    let mut figures = Vec::new();
    for (name, make) in ours::<V>() {
        let (flows, bytes) = (1..=100)
            .rev()
            .find_map(|load| {
                let size = Size::new(options.places, load);
                let mut table = make(size, Ageing::Wheel);
                let done = table.insert(keys.part(0, size.flows()));
                (done as f64 >= size.flows() as f64 * 0.9999).then_some((done, table.bytes()))
            })
            .expect("an almost empty table takes everything");
        figures.push(row(name, flows, bytes));
    }
    for extendable in [false, true] {
        for rte in [RTE_HASHES[0], RTE_HASHES[1]] {
            let name = format!("{}{}", rte.name, if extendable { ", extendable" } else { "" });
            let mut table = rte.make(dpdk, options.places, size_of::<V>(), extendable);
            let (mut done, mut tried) = (0, 0);
            while tried < options.places {
                let to = (tried + 1024).min(options.places);
                let more = table.insert(keys.part(tried, to));
                if ((done + more) as f64) < to as f64 * 0.9999 {
                    break;
                }
                (done, tried) = (done + more, to);
            }
            row(&name, done, table.bytes());
        }
    }
    let mut map = standard::<V>(Size::new(options.places, 87));
    let done = map.insert(keys.part(0, options.places * 87 / 100));
    row("standard map", done, map.bytes());
    board.at_most(&format!("{} B, memory: times an entry's own bytes", size_of::<V>()), 1.35, figures.into_iter());
}

/// Nanoseconds an operation.
fn timed(pieces: usize, work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e9 / pieces as f64
}

/// Runs every contestant once a round; each round begins with another one.
fn race(rounds: usize, contestants: usize, mut run: impl FnMut(usize) -> f64) -> Vec<Figure> {
    let mut times = vec![Vec::new(); contestants];
    for round in 0..rounds {
        for turn in 0..contestants {
            let at = (turn + round) % contestants;
            times[at].push(run(at));
        }
    }
    times.into_iter().map(Figure::of).collect()
}
