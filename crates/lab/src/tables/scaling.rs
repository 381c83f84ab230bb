//! Throughput by number of cores.
//!
//! *Measured* rows have one thread for each core, each on its own processor, all at the same time. *Modelled* rows run each core's share
//! alone, one after the other; the slowest counts.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use engine::{cpus, pin};
use flow::Index;
use flow::index::IndexKind;
use flow::shared::SharedTable;
use flow::shared::baselines::{Locked, Optimistic, Striped};
use packet::{FiveTuple4, Nanos};

use super::keys::BURST;
use super::meter::Whole;
use super::mixed::MixedOp;
use super::resident::tracker;
use super::subject::{State, Subject, Tracker, count, seed_of};
use super::{Op, Run, Stopped, TableKind, TablesPlan, Traffic, Visit};
use crate::bench::Basis;
use crate::spread::Spread;

/// How cores share their flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each core has its own table, with the flows that a network card's hash gives it.
    Private,
    /// One table under a mutex; packets are distributed round robin.
    Mutex,
    /// One table in stripes, each under a spin lock.
    Spin,
    /// One table with versioned buckets; readers never write.
    Optimistic,
}

/// Throughput of tables on several cores. A shared table has the load that suits it.
#[derive(Clone, Debug)]
pub struct Scaling {
    /// The table.
    pub table: TableKind,
    /// How cores share their flows.
    pub sharing: Sharing,
    /// The operation.
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
    pub const ALL: [Self; 4] = [Self::Private, Self::Mutex, Self::Spin, Self::Optimistic];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Mutex => "mutex",
            Self::Spin => "spin locks",
            Self::Optimistic => "optimistic",
        }
    }
}

/// Tables on several cores.
trait ThreadGroup {
    /// One pass of every core over its share: number of packets, and the time of the slowest core.
    fn pass(&mut self, op: Op, packets: u64) -> (u64, Duration);
    fn basis(&self) -> Basis;
}

fn ops(plan: &TablesPlan) -> impl Iterator<Item = Op> + '_ {
    plan.ops.iter().copied().filter(|op| matches!(op, Op::Lookup | Op::Mixed))
}

/// Tables, kinds of sharing and numbers of cores to run. Contention can't be modelled from shares, so shared tables are measured or left
/// out. They are cuckoo++ tables, listed with that one.
fn cases(plan: &TablesPlan) -> Vec<(TableKind, Sharing, Vec<usize>)> {
    let processors = cpus().len().max(1);
    let real = || plan.cores.iter().copied().filter(|cores| *cores <= processors).collect::<Vec<_>>();
    let mut cases = Vec::new();
    for &table in plan.tables.iter().filter(|kind| kind.is_ours()) {
        for sharing in Sharing::ALL {
            match sharing {
                Sharing::Private => cases.push((table, sharing, plan.cores.clone())),
                Sharing::Mutex | Sharing::Spin | Sharing::Optimistic if table == SHARED => {
                    cases.push((table, sharing, real()));
                }
                Sharing::Mutex | Sharing::Spin | Sharing::Optimistic => {}
            }
        }
    }
    cases
}

/// The design of the shared tables.
const SHARED: TableKind = TableKind::Of(IndexKind::CuckooPp);

pub(super) fn passes(plan: &TablesPlan) -> u64 {
    let groups: usize = cases(plan).iter().map(|(.., cores)| cores.len()).sum();
    (groups * ops(plan).count() * plan.rounds) as u64
}

pub(super) fn measure(traffic: &Traffic, plan: &TablesPlan, run: &mut Run<'_>) -> Result<Vec<Scaling>, Stopped> {
    let mut rows = Vec::new();
    if plan.cores.is_empty() || ops(plan).next().is_none() {
        return Ok(rows);
    }
    // Shares are the same for each table. All numbers of cores of a table are in memory at once and take turns.
    let share = |cores: usize, core| at(core, cores, || traffic.share(core, cores));
    let shares: Vec<Vec<Traffic>> =
        plan.cores.iter().map(|&cores| (0..cores).map(|core| share(cores, core)).collect()).collect();
    for (table, sharing, cores) in cases(plan) {
        let shares = shares.iter().filter(|shares| cores.contains(&shares.len()));
        let group = |shares| group(table, sharing, shares, traffic, plan);
        let groups: Vec<Box<dyn ThreadGroup + '_>> = shares.filter_map(|shares: &Vec<Traffic>| group(shares)).collect();
        rows.extend(of_groups((table, sharing, &cores), groups, plan, run)?);
    }
    Ok(rows)
}

fn group<'a>(
    table: TableKind,
    sharing: Sharing,
    shares: &'a [Traffic],
    traffic: &'a Traffic,
    plan: &'a TablesPlan,
) -> Option<Box<dyn ThreadGroup + 'a>> {
    let seed = seed_of(plan.seed);
    Some(match sharing {
        Sharing::Private => return table.visit(MakePrivate { shares, plan }),
        Sharing::Mutex => Box::new(Common::<Locked<FiveTuple4, State>>::new(shares, traffic, seed)),
        Sharing::Spin => Box::new(Common::<Striped<FiveTuple4, State>>::new(shares, traffic, seed)),
        Sharing::Optimistic => Box::new(Common::<Optimistic<FiveTuple4, State>>::new(shares, traffic, seed)),
    })
}

fn of_groups(
    (table, sharing, cores): (TableKind, Sharing, &[usize]),
    mut groups: Vec<Box<dyn ThreadGroup + '_>>,
    plan: &TablesPlan,
    run: &mut Run<'_>,
) -> Result<Vec<Scaling>, Stopped> {
    let mut rows = Vec::new();
    for op in ops(plan) {
        let mut rates = vec![Vec::new(); groups.len()];
        groups.iter_mut().for_each(|group| {
            group.pass(op, 1 << 16);
        });
        for _ in 0..plan.rounds {
            for (group, rates) in groups.iter_mut().zip(&mut rates) {
                let (packets, slowest) = group.pass(op, plan.round_packets);
                rates.push(packets as f64 / slowest.as_secs_f64().max(1e-9) / 1e6);
                run.pass()?;
            }
        }
        for ((group, rates), &cores) in groups.iter().zip(&rates).zip(cores) {
            let mops = Spread::of(rates).expect("a bench has rounds");
            rows.push(Scaling { table, sharing, op, cores, mops, basis: group.basis() });
        }
    }
    Ok(rows)
}

struct MakePrivate<'a> {
    shares: &'a [Traffic],
    plan: &'a TablesPlan,
}

impl<'a> Visit for MakePrivate<'a> {
    type Out = Box<dyn ThreadGroup + 'a>;

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

/// Builds a value on the processor of core number `core` of `cores`, because memory is placed near the processor that touches it first.
/// With too few processors, any one is used.
fn at<T: Send>(core: usize, cores: usize, make: impl FnOnce() -> T + Send) -> T {
    let cpus = cpus();
    if cores > cpus.len() {
        return make();
    }
    thread::scope(|scope| {
        let made = scope.spawn(|| {
            // If the system refuses, the memory is placed elsewhere.
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

impl<I: Index> ThreadGroup for Private<'_, I> {
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
            let mixed = &traffic.mixed;
            table.end(&mixed.out);
            let start = Instant::now();
            table.act(&mixed.ops, &mut Whole);
            elapsed += start.elapsed();
            table.open(&mixed.back, &mut Whole);
            done += mixed.ops.len() as u64;
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

/// One table for all cores.
struct Common<'a, S> {
    table: S,
    /// Each core's bursts, in turn, and the flows that it opens and ends, so that no two cores open the same.
    cores: Vec<(Vec<FiveTuple4>, &'a Traffic)>,
}

/// Now, and when flows end: nothing expires while it is measured.
const NOW: Nanos = Nanos::from_secs(1);
const LATER: Nanos = Nanos::from_secs(24 * 3600);

impl<'a, S: SharedTable<FiveTuple4, State>> Common<'a, S> {
    fn new(shares: &'a [Traffic], traffic: &Traffic, seed: u64) -> Self {
        let table = S::new(traffic.entries(), seed);
        for key in &traffic.flows {
            table.insert(*key, table.hash(key), State::default(), LATER, NOW);
        }
        let turns = |core: usize| -> Vec<FiveTuple4> {
            traffic.queries.chunks(BURST).skip(core).step_by(shares.len()).flatten().copied().collect()
        };
        let cores = shares.iter().enumerate().map(|(core, share)| {
            let queries = at(core, shares.len(), || turns(core));
            (queries, share)
        });
        Self { table, cores: cores.collect() }
    }
}

impl<S: SharedTable<FiveTuple4, State>> ThreadGroup for Common<'_, S> {
    fn pass(&mut self, op: Op, packets: u64) -> (u64, Duration) {
        let each = packets / self.cores.len() as u64;
        let barrier = Barrier::new(self.cores.len());
        let (barrier, table) = (&barrier, &self.table);
        let mut done = 0;
        let mut slowest = Duration::ZERO;
        thread::scope(|scope| {
            let mut threads = Vec::with_capacity(self.cores.len());
            for ((queries, share), cpu) in self.cores.iter().zip(cpus()) {
                threads.push(scope.spawn(move || {
                    // Where the system refuses, it places the thread itself.
                    let _ = pin(cpu);
                    barrier.wait();
                    if op == Op::Mixed { mixed_ops(table, share, each) } else { looks(table, queries, each) }
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
        Basis::Measured
    }
}

/// The first two stages of a burst in a shared table.
#[inline(always)]
fn prefetch<'a, S: SharedTable<FiveTuple4, State>>(
    table: &S,
    keys: impl Iterator<Item = &'a FiveTuple4>,
) -> [u64; BURST] {
    let mut hashes = [0; BURST];
    let mut len = 0;
    for (hash, key) in hashes.iter_mut().zip(keys) {
        *hash = table.hash(key);
        table.prefetch(*hash);
        len += 1;
    }
    hashes[..len].iter().for_each(|hash| table.prefetch_entry(*hash));
    hashes
}

fn looks<S: SharedTable<FiveTuple4, State>>(table: &S, queries: &[FiveTuple4], packets: u64) -> (u64, Duration) {
    let (mut done, mut sum) = (0, 0_u64);
    let start = Instant::now();
    while done < packets && !queries.is_empty() {
        let piece = &queries[..queries.len().min((packets - done) as usize)];
        for burst in piece.chunks(BURST) {
            let hashes = prefetch(table, burst.iter());
            for (key, hash) in burst.iter().zip(hashes) {
                sum = sum.wrapping_add(table.get(key, hash, NOW).map_or(0, |state| state[0]));
            }
        }
        done += piece.len() as u64;
    }
    std::hint::black_box(sum);
    (done, start.elapsed())
}

fn mixed_ops<S: SharedTable<FiveTuple4, State>>(table: &S, share: &Traffic, packets: u64) -> (u64, Duration) {
    let mixed = &share.mixed;
    let end = |key: &FiveTuple4| {
        let _ = table.remove(key, table.hash(key), NOW);
    };
    let open = |key: &FiveTuple4| {
        table.insert(*key, table.hash(key), State::default(), LATER, NOW);
    };
    let (mut done, mut elapsed) = (0, Duration::ZERO);
    while done < packets && !mixed.ops.is_empty() {
        mixed.out.iter().for_each(end);
        let start = Instant::now();
        for burst in mixed.ops.chunks(BURST) {
            let hashes = prefetch(table, burst.iter().map(|(_, key)| key));
            for ((act, key), hash) in burst.iter().zip(hashes) {
                match act {
                    MixedOp::Look => {
                        let _ = table.update(key, hash, NOW, |state, deadline| {
                            count(state);
                            *deadline = LATER;
                        });
                    }
                    MixedOp::Open => {
                        table.insert(*key, hash, State::default(), LATER, NOW);
                    }
                    MixedOp::End => {
                        let _ = table.remove(key, hash, NOW);
                    }
                }
            }
        }
        elapsed += start.elapsed();
        mixed.back.iter().for_each(open);
        done += mixed.ops.len() as u64;
    }
    (done, elapsed)
}
