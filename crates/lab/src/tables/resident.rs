//! Tables with a fixed set of flows: look-ups that hit and miss, the last insertions, and the mix of a connection tracker.

use std::time::{Duration, Instant};

use flow::{Ageing, Index, Plan};
use packet::FiveTuple4;

use super::meter::{Bursts, Meter, Singles, Tail, Whole};
use super::subject::{Plain, Subject, Tracker, seed_of};
use super::{Op, Run, Stopped, TableKind, TablesPlan, Traffic, Visit};
use crate::spread::Spread;

/// Result of one table at one load.
#[derive(Clone, Debug)]
pub struct Resident {
    /// The table.
    pub table: TableKind,
    /// The operation.
    pub op: Op,
    /// Places in use with all flows in, in percent.
    pub load_percent: f64,
    /// Load of the tables that it took turns with; differs if it has its own load.
    pub turn_percent: usize,
    /// Nanoseconds a packet.
    pub ns: Spread,
    /// Bytes for each flow that the table can hold.
    pub bytes_per_entry: f64,
    /// Flows that were inserted into the empty table.
    pub offered: u64,
    /// Those of them that fitted.
    pub inserted: u64,
    /// Share of the packets that found their flow, or room to insert it.
    pub hits: f64,
    /// Times of a packet within a burst: the burst's time divided by its packets.
    pub bursts: Option<Tail>,
    /// Times of a packet that is processed alone.
    pub singles: Option<Tail>,
}

/// Part of the places that [`Op::Insert`] fills, in percent.
const LAST: usize = 5;

/// A table, filled.
struct Case<S> {
    kind: TableKind,
    turn: usize,
    load_percent: f64,
    subject: S,
    /// Flows that fitted.
    inserted: u64,
    /// Where the next look-up continues in the list.
    at: usize,
}

/// What one pass came to.
#[derive(Clone, Copy, Default)]
struct PassCounts {
    elapsed: Duration,
    packets: u64,
    hits: u64,
}

/// A case whose table's type is forgotten: called once a pass.
trait AnyCase {
    fn pass(&mut self, op: Op, traffic: &Traffic, packets: u64) -> PassCounts;
    fn tails(&mut self, op: Op, traffic: &Traffic, packets: u64) -> (Option<Tail>, Option<Tail>);
    fn row(&self, op: Op, traffic: &Traffic, ns: Spread, hits: f64, tails: (Option<Tail>, Option<Tail>)) -> Resident;
}

pub(super) fn ops(plan: &TablesPlan) -> impl Iterator<Item = Op> + Clone + '_ {
    plan.ops.iter().copied().filter(|op| matches!(op, Op::Lookup | Op::Miss | Op::Insert | Op::Mixed))
}

pub(super) fn passes(plan: &TablesPlan) -> u64 {
    let ops = ops(plan).count();
    // One for filling, one for latencies.
    let of_a_table = if ops == 0 { 0 } else { 1 + ops * (plan.rounds + 1) };
    (plan.loads.len() * plan.tables.len() * of_a_table) as u64
}

pub(super) fn measure(
    traffic: &Traffic,
    plan: &TablesPlan,
    load: usize,
    run: &mut Run<'_>,
) -> Result<Vec<Resident>, Stopped> {
    if ops(plan).next().is_none() {
        return Ok(Vec::new());
    }
    let mut cases: Vec<Box<dyn AnyCase>> = Vec::new();
    for &kind in &plan.tables {
        cases.push(case(kind, traffic, plan, load));
        run.pass()?;
    }
    let mut rows = Vec::new();
    for op in ops(plan) {
        // The first pass warms the caches and touches the lists.
        for case in &mut cases {
            case.pass(op, traffic, plan.round_packets.min(1 << 16));
        }
        let mut passes: Vec<Vec<PassCounts>> = vec![Vec::new(); cases.len()];
        for _ in 0..plan.rounds {
            for (case, passes) in cases.iter_mut().zip(&mut passes) {
                passes.push(case.pass(op, traffic, plan.round_packets));
                run.pass()?;
            }
        }
        for (case, passes) in cases.iter_mut().zip(&passes) {
            let tails = case.tails(op, traffic, plan.round_packets);
            run.pass()?;
            let ns: Vec<f64> =
                passes.iter().map(|pass| pass.elapsed.as_nanos() as f64 / pass.packets.max(1) as f64).collect();
            let ns = Spread::of(&ns).expect("a bench has rounds");
            let all: u64 = passes.iter().map(|pass| pass.packets).sum();
            let hits = passes.iter().map(|pass| pass.hits).sum::<u64>() as f64 / all.max(1) as f64;
            rows.push(case.row(op, traffic, ns, hits, tails));
        }
    }
    Ok(rows)
}

fn case(kind: TableKind, traffic: &Traffic, plan: &TablesPlan, load: usize) -> Box<dyn AnyCase> {
    struct Make<'a>(TableKind, &'a Traffic, &'a TablesPlan, usize);
    impl Visit for Make<'_> {
        type Out = Box<dyn AnyCase>;
        fn visit<I: Index>(self, choice: I::Choice) -> Box<dyn AnyCase> {
            let Self(kind, traffic, plan, load) = self;
            Box::new(Case::filled(
                kind,
                load,
                load as f64,
                tracker::<I>(choice, traffic.entries(), load, plan),
                traffic,
            ))
        }
    }
    kind.visit(Make(kind, traffic, plan, load)).unwrap_or_else(|| {
        let plain = Plain::new(traffic.entries());
        let own = plain.load_percent(traffic.entries());
        Box::new(Case::filled(kind, load, own, plain, traffic))
    })
}

/// An empty table in which `entries` flows fill `load` percent of the places.
pub(super) fn tracker<I: Index>(choice: I::Choice, entries: usize, load: usize, plan: &TablesPlan) -> Tracker<I> {
    Tracker::new(Plan {
        index: choice,
        capacity: entries,
        load_percent: Some(load),
        ageing: Ageing::Wheel,
        seed: seed_of(plan.seed),
    })
}

impl<S: Subject> Case<S> {
    fn filled(kind: TableKind, turn: usize, load_percent: f64, mut subject: S, traffic: &Traffic) -> Self {
        let inserted = subject.open(&traffic.flows, &mut Whole);
        Self { kind, turn, load_percent, subject, inserted, at: 0 }
    }

    /// Runs at least `packets` packets through the meter.
    fn metered<M: Meter>(&mut self, op: Op, traffic: &Traffic, packets: u64, meter: &mut M) -> PassCounts {
        match op {
            Op::Lookup => self.round(&traffic.queries, packets, |subject, keys| subject.look(keys, meter)),
            Op::Miss => self.round(&traffic.absent, packets, |subject, keys| subject.look(keys, meter)),
            Op::Insert => self.insert(traffic, packets, meter),
            Op::Mixed => self.mixed(traffic, packets, meter),
            Op::Expire | Op::Clump => PassCounts::default(),
        }
    }

    /// Continues cyclically through a list.
    fn round(
        &mut self,
        list: &[FiveTuple4],
        packets: u64,
        mut f: impl FnMut(&mut S, &[FiveTuple4]) -> u64,
    ) -> PassCounts {
        let mut pass = PassCounts::default();
        let start = Instant::now();
        while pass.packets < packets {
            self.at %= list.len();
            let piece = &list[self.at..];
            let piece = &piece[..piece.len().min((packets - pass.packets) as usize)];
            pass.hits += f(&mut self.subject, piece);
            pass.packets += piece.len() as u64;
            self.at += piece.len();
        }
        pass.elapsed = start.elapsed();
        pass
    }

    /// Removes the last flows, untimed, and inserts them again.
    fn insert<M: Meter>(&mut self, traffic: &Traffic, packets: u64, meter: &mut M) -> PassCounts {
        let last = (traffic.flows.len() as f64 * LAST as f64 / self.load_percent).ceil() as usize;
        let last = &traffic.flows[traffic.flows.len() - last.clamp(1, traffic.flows.len())..];
        let mut pass = PassCounts::default();
        while pass.packets < packets {
            self.subject.end(last);
            let start = Instant::now();
            pass.hits += self.subject.open(last, meter);
            pass.elapsed += start.elapsed();
            pass.packets += last.len() as u64;
        }
        pass
    }

    fn mixed<M: Meter>(&mut self, traffic: &Traffic, packets: u64, meter: &mut M) -> PassCounts {
        let mixed = &traffic.mixed;
        let mut pass = PassCounts::default();
        while pass.packets < packets {
            self.subject.end(&mixed.out);
            let start = Instant::now();
            let found = self.subject.act(&mixed.ops, meter);
            pass.elapsed += start.elapsed();
            // Openings and ends always succeed.
            pass.hits += found + mixed.ops.len() as u64 - mixed.looks;
            pass.packets += mixed.ops.len() as u64;
            self.subject.open(&mixed.back, &mut Whole);
        }
        pass
    }
}

impl<S: Subject> AnyCase for Case<S> {
    fn pass(&mut self, op: Op, traffic: &Traffic, packets: u64) -> PassCounts {
        self.metered(op, traffic, packets, &mut Whole)
    }

    fn tails(&mut self, op: Op, traffic: &Traffic, packets: u64) -> (Option<Tail>, Option<Tail>) {
        let (mut bursts, mut singles) = (Bursts::new(), Singles::new());
        self.metered(op, traffic, packets, &mut bursts);
        self.metered(op, traffic, packets, &mut singles);
        (bursts.0.tail(), singles.0.tail())
    }

    fn row(
        &self,
        op: Op,
        traffic: &Traffic,
        ns: Spread,
        hits: f64,
        (bursts, singles): (Option<Tail>, Option<Tail>),
    ) -> Resident {
        let entries = traffic.entries();
        Resident {
            table: self.kind,
            op,
            load_percent: self.load_percent,
            turn_percent: self.turn,
            ns,
            bytes_per_entry: self.subject.memory_bytes() as f64 / entries as f64,
            offered: entries as u64,
            inserted: self.inserted,
            hits,
            bursts,
            singles,
        }
    }
}
