//! Throughput against cores.
//!
//! *Measured* rows come from as many threads as the row says, each on a processor of its own, at the same time. *Modelled*
//! rows come from each core's share alone, one after the other, the slowest counting.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use engine::{cpus, pin};
use flow::Index;

use super::meter::Whole;
use super::resident::tracker;
use super::subject::{Subject, Tracker};
use super::{Op, Run, Stopped, TableKind, TablesPlan, Traffic, Visit};
use crate::bench::Basis;
use crate::spread::Spread;

/// How cores share their flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each has a table of its own, and the flows that a card's hash gives it.
    Private,
}

/// What tables did on several cores.
#[derive(Clone, Debug)]
pub struct Scaling {
    /// The table.
    pub table: TableKind,
    /// How cores share their flows.
    pub sharing: Sharing,
    /// What they did.
    pub op: Op,
    /// The cores.
    pub cores: usize,
    /// Millions of packets a second, all cores together.
    pub mops: Spread,
    /// Where the figures come from.
    pub basis: Basis,
}

impl Sharing {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::Private];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
        }
    }
}

/// Tables on so many cores.
trait Fleet {
    /// One pass of every core over its share: packets, and how long the slowest took.
    fn pass(&mut self, op: Op, packets: u64) -> (u64, Duration);
    fn basis(&self) -> Basis;
}

fn ops(plan: &TablesPlan) -> impl Iterator<Item = Op> + '_ {
    plan.ops.iter().copied().filter(|op| matches!(op, Op::Lookup | Op::Mixed))
}

fn tables(plan: &TablesPlan) -> impl Iterator<Item = TableKind> + '_ {
    plan.tables.iter().copied().filter(|kind| kind.is_ours())
}

pub(super) fn passes(plan: &TablesPlan) -> u64 {
    (tables(plan).count() * Sharing::ALL.len() * plan.cores.len() * ops(plan).count() * plan.rounds) as u64
}

pub(super) fn measure(traffic: &Traffic, plan: &TablesPlan, run: &mut Run<'_>) -> Result<Vec<Scaling>, Stopped> {
    let mut rows = Vec::new();
    if plan.cores.is_empty() || ops(plan).next().is_none() {
        return Ok(rows);
    }
    // Shares are the same for each table; every number of cores of a table lies in memory at once and takes turns.
    let share = |cores: usize, core| at(core, cores, || traffic.share(core, cores));
    let shares: Vec<Vec<Traffic>> =
        plan.cores.iter().map(|&cores| (0..cores).map(|core| share(cores, core)).collect()).collect();
    for table in tables(plan) {
        for sharing in Sharing::ALL {
            rows.extend(of_table(table, sharing, &shares, plan, run)?);
        }
    }
    Ok(rows)
}

fn of_table(
    table: TableKind,
    sharing: Sharing,
    shares: &[Vec<Traffic>],
    plan: &TablesPlan,
    run: &mut Run<'_>,
) -> Result<Vec<Scaling>, Stopped> {
    let fleet = |shares| match sharing {
        Sharing::Private => table.visit(MakePrivate { shares, plan }),
    };
    let mut fleets: Vec<Box<dyn Fleet + '_>> = shares.iter().filter_map(|shares| fleet(shares)).collect();
    let mut rows = Vec::new();
    for op in ops(plan) {
        let mut rates = vec![Vec::new(); fleets.len()];
        fleets.iter_mut().for_each(|fleet| {
            fleet.pass(op, 1 << 16);
        });
        for _ in 0..plan.rounds {
            for (fleet, rates) in fleets.iter_mut().zip(&mut rates) {
                let (packets, slowest) = fleet.pass(op, plan.round_packets);
                rates.push(packets as f64 / slowest.as_secs_f64().max(1e-9) / 1e6);
                run.pass()?;
            }
        }
        for ((fleet, rates), &cores) in fleets.iter().zip(&rates).zip(&plan.cores) {
            let mops = Spread::of(rates).expect("a bench has rounds");
            rows.push(Scaling { table, sharing, op, cores, mops, basis: fleet.basis() });
        }
    }
    Ok(rows)
}

struct MakePrivate<'a> {
    shares: &'a [Traffic],
    plan: &'a TablesPlan,
}

impl<'a> Visit for MakePrivate<'a> {
    type Out = Box<dyn Fleet + 'a>;

    fn visit<I: Index>(self, choice: I::Choice) -> Self::Out {
        let Self { shares, plan } = self;
        let tables = shares.iter().enumerate().map(|(core, share)| {
            let table = at(core, shares.len(), || {
                let mut table = tracker::<I>(choice, share.entries(), plan.scaling_load(), plan);
                table.open(&share.flows, &mut Whole);
                table
            });
            (table, share)
        });
        Box::new(Private { tables: tables.collect() })
    }
}

/// Makes something on the processor that core number `core` of `cores` has: memory lies near who touches it first. Where
/// there are not so many processors, any does.
fn at<T: Send>(core: usize, cores: usize, make: impl FnOnce() -> T + Send) -> T {
    let cpus = cpus();
    if cores > cpus.len() {
        return make();
    }
    thread::scope(|scope| {
        let made = scope.spawn(|| {
            // Where the system refuses, the memory lies elsewhere.
            let _ = pin(cpus[core]);
            make()
        });
        made.join().expect("making a table doesn't panic")
    })
}

/// A table for each core.
struct Private<'a, I> {
    tables: Vec<(Tracker<I>, &'a Traffic)>,
}

impl<I: Index> Fleet for Private<'_, I> {
    fn pass(&mut self, op: Op, packets: u64) -> (u64, Duration) {
        let all: usize = self.tables.iter().map(|(_, share)| share.queries.len()).sum();
        let share = |own: &Traffic| (packets as f64 * own.queries.len() as f64 / all.max(1) as f64) as u64;
        let basis = self.basis();
        let tables = self.tables.iter_mut();
        let mut done = 0;
        let mut slowest = Duration::ZERO;
        if basis == Basis::Modelled {
            for (table, traffic) in tables {
                let (packets, elapsed) = own(table, traffic, op, share(traffic));
                done += packets;
                slowest = slowest.max(elapsed);
            }
            return (done, slowest);
        }
        let barrier = Barrier::new(tables.len());
        let barrier = &barrier;
        thread::scope(|scope| {
            let mut threads = Vec::with_capacity(tables.len());
            for ((table, traffic), cpu) in tables.zip(cpus()) {
                let (packets, traffic) = (share(traffic), *traffic);
                threads.push(scope.spawn(move || {
                    // Where the system refuses, it places the thread itself.
                    let _ = pin(cpu);
                    barrier.wait();
                    own(table, traffic, op, packets)
                }));
            }
            for thread in threads {
                let (packets, elapsed) = thread.join().expect("a table doesn't panic");
                done += packets;
                slowest = slowest.max(elapsed);
            }
        });
        (done, slowest)
    }

    fn basis(&self) -> Basis {
        if self.tables.len() <= cpus().len() { Basis::Measured } else { Basis::Modelled }
    }
}

/// At least `packets` packets of a core's own share.
fn own<I: Index>(table: &mut Tracker<I>, traffic: &Traffic, op: Op, packets: u64) -> (u64, Duration) {
    let (mut done, mut elapsed) = (0, Duration::ZERO);
    while done < packets {
        let left = (packets - done) as usize;
        if op == Op::Mixed {
            let script = &traffic.script;
            table.end(&script.out);
            let start = Instant::now();
            table.act(&script.acts, &mut Whole);
            elapsed += start.elapsed();
            table.open(&script.back, &mut Whole);
            done += script.acts.len() as u64;
        } else {
            let piece = &traffic.queries[..traffic.queries.len().min(left)];
            let start = Instant::now();
            table.look(piece, &mut Whole);
            elapsed += start.elapsed();
            done += piece.len() as u64;
        }
        if traffic.queries.is_empty() {
            break;
        }
    }
    (done, elapsed)
}
