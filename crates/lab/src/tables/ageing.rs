//! Tables whose flows come and go: every packet opens a flow, and as many flows expire.

use std::time::{Duration, Instant};

use flow::{Ageing, Eviction, Hint, Index, Plan, Slot, Table};
use packet::{FiveTuple4, Nanos};

use super::keys::{BURST, FRESH, Random, made_up};
use super::meter::{Bursts, Meter, Singles, Tail, Whole};
use super::subject::{RECLAIM_PER_PACKET, State, seed_of};
use super::{Op, Run, Stopped, TableKind, TablesPlan, Traffic, Visit};
use crate::spread::Spread;

/// Result of one table.
#[derive(Clone, Debug)]
pub struct Expiring {
    /// The table.
    pub table: TableKind,
    /// How expired flows are found.
    pub ageing: Ageing,
    /// Places in use when the table is full, in percent.
    pub load_percent: usize,
    /// Nanoseconds a packet.
    pub ns: Spread,
    /// New flows that found the table full because expired flows had not been found yet, in percent. They evicted the oldest flow, which
    /// had expired unless it counts in `early_percent`.
    pub evicted_percent: f64,
    /// New flows that evicted a live flow, in percent.
    pub early_percent: f64,
    /// New flows that did not fit, in percent.
    pub refused_percent: f64,
    /// Times of a packet within a burst: the burst's time divided by its packets.
    pub bursts: Option<Tail>,
    /// Times of a packet that is processed alone.
    pub singles: Option<Tail>,
}

/// Extra places, as a fraction of the flows (1/SLACK), that give ageing some time.
const SLACK: usize = 32;

/// A table with ageing, and the packets for it.
pub(super) struct Aged<I> {
    pub(super) table: Table<FiveTuple4, State, I>,
    ageing: Ageing,
    pub(super) counts: Counts,
}

/// What happened to flows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) opened: u64,
    pub(super) expired: u64,
    pub(super) evicted: u64,
    pub(super) early: u64,
    pub(super) refused: u64,
}

impl<I: Index> Aged<I> {
    pub(super) fn new(plan: Plan<I::Choice>) -> Self {
        Self { table: Table::planned(plan), ageing: plan.ageing, counts: Counts::default() }
    }

    pub(super) fn put(&mut self, key: FiveTuple4, deadline: Nanos, now: Nanos) {
        let hash = self.table.hash(&key);
        if self.table.insert(key, hash, State::default(), deadline, now).is_none() {
            self.counts.refused += 1;
        }
    }

    fn take(&mut self, key: &FiveTuple4) {
        if let Some(slot) = self.table.find(key, self.table.hash(key)) {
            self.table.remove(slot);
        }
    }

    /// Sends packets `pace` apart, each of which opens a flow. Flows are numbered from `first` and live for `life`.
    #[inline(never)]
    pub(super) fn open<M: Meter>(
        &mut self,
        first: u64,
        packets: u64,
        time: impl Fn(u64) -> Nanos,
        life: Nanos,
        meter: &mut M,
    ) {
        let mut at = 0;
        while at < packets {
            let len = M::BURST.min((packets - at) as usize);
            let mut burst = [(made_up(0), 0); BURST];
            for (index, (key, _)) in burst[..len].iter_mut().enumerate() {
                *key = made_up(first + at + index as u64);
            }
            meter.begin();
            let mut hints = [Hint::NOWHERE; BURST];
            for (key, hash) in &mut burst[..len] {
                *hash = self.table.hash(key);
                self.table.prefetch(*hash);
            }
            for (hint, (_, hash)) in hints.iter_mut().zip(&burst[..len]) {
                *hint = self.table.prefetch_entry(*hash);
            }
            for ((index, (key, hash)), hint) in burst[..len].iter().enumerate().zip(hints) {
                self.packet(key, *hash, hint, time(at + index as u64), life);
            }
            meter.end(len);
            at += len as u64;
        }
    }

    /// Processes one packet as an engine does.
    #[inline(always)]
    fn packet(&mut self, key: &FiveTuple4, hash: u64, hint: Hint, now: Nanos, life: Nanos) {
        for _ in 0..RECLAIM_PER_PACKET {
            let Some(slot) = self.table.reclaim(now) else { break };
            self.expire(slot);
        }
        if let Some(mut entry) = self.table.entry_at_hint(key, hint, now) {
            let _ = entry.move_deadline(now + life);
            return;
        }
        if let Some(slot) = self.table.find(key, hash) {
            self.expire(slot);
        }
        if self.ageing == Ageing::Lazy
            && let Some(slot) = self.table.expired_near(hash, now)
        {
            self.expire(slot);
        }
        if self.table.is_full()
            && let Some(slot) = self.table.overdue(now).or_else(|| self.table.victim(Eviction::OldestUnprotected, hash))
        {
            self.counts.evicted += 1;
            self.counts.early += u64::from(self.table.deadline(slot) > now);
            self.table.remove(slot);
        }
        match self.table.insert(*key, hash, State::default(), now + life, now) {
            Some(_) => self.counts.opened += 1,
            None => self.counts.refused += 1,
        }
    }

    #[inline(always)]
    fn expire(&mut self, slot: Slot) {
        self.table.remove(slot);
        self.counts.expired += 1;
    }
}

/// A table in steady state: flows that are neighbours in time are not neighbours in memory.
struct Case<I> {
    kind: TableKind,
    load: usize,
    aged: Aged<I>,
    /// Number of the next flow.
    next: u64,
    pace: u64,
    /// How long it lives.
    life: Nanos,
    /// Of passes that count.
    before: Counts,
}

/// A case whose table's type is forgotten: called once a pass.
trait AnyCase {
    fn pass(&mut self, packets: u64) -> Duration;
    fn count_from_here(&mut self);
    fn row(&mut self, ns: Spread, packets: u64) -> Expiring;
}

pub(super) fn passes(plan: &TablesPlan) -> u64 {
    let cases = plan.tables.iter().filter(|kind| kind.is_ours()).count() * plan.ageings.len();
    let some = plan.ops.contains(&Op::Expire);
    if some { (plan.loads.len() * cases * (2 + plan.rounds)) as u64 } else { 0 }
}

pub(super) fn measure(
    traffic: &Traffic,
    plan: &TablesPlan,
    load: usize,
    run: &mut Run<'_>,
) -> Result<Vec<Expiring>, Stopped> {
    if !plan.ops.contains(&Op::Expire) {
        return Ok(Vec::new());
    }
    let mut cases: Vec<Box<dyn AnyCase>> = Vec::new();
    for &kind in &plan.tables {
        for &ageing in &plan.ageings {
            if let Some(mut case) = kind.visit(Make { kind, ageing, traffic, plan, load }) {
                case.pass(plan.round_packets);
                case.count_from_here();
                cases.push(case);
                run.pass()?;
            }
        }
    }
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..plan.rounds {
        for (case, times) in cases.iter_mut().zip(&mut times) {
            times.push(case.pass(plan.round_packets).as_nanos() as f64 / plan.round_packets as f64);
            run.pass()?;
        }
    }
    let mut rows = Vec::new();
    for (case, times) in cases.iter_mut().zip(&times) {
        rows.push(case.row(Spread::of(times).expect("a bench has rounds"), plan.round_packets));
        run.pass()?;
    }
    Ok(rows)
}

struct Make<'a> {
    kind: TableKind,
    ageing: Ageing,
    traffic: &'a Traffic,
    plan: &'a TablesPlan,
    load: usize,
}

impl Visit for Make<'_> {
    type Out = Box<dyn AnyCase>;

    fn visit<I: Index>(self, choice: I::Choice) -> Box<dyn AnyCase> {
        let Self { kind, ageing, traffic, plan, load } = self;
        let capacity = traffic.entries();
        let seed = seed_of(plan.seed);
        let mut aged = Aged::<I>::new(Plan { index: choice, capacity, load_percent: Some(load), ageing, seed });
        let alive = capacity - capacity / SLACK;
        let life = plan.lifetime;
        let pace = life.0 / alive.max(1) as u64 + 1;
        // Steady state: flows that expire together are not adjacent in memory. Insert all, remove them in random order, and insert them
        // again in order of time.
        let mut order: Vec<u64> = (0..alive as u64).collect();
        order.iter().for_each(|number| aged.put(made_up(FRESH + number), life, Nanos(0)));
        Random(plan.seed).shuffle(&mut order);
        order.iter().for_each(|number| aged.take(&made_up(FRESH + number)));
        for number in 0..alive as u64 {
            let now = Nanos(number * pace);
            aged.put(made_up(FRESH + number), now + life, now);
        }
        let before = aged.counts;
        Box::new(Case { kind, load, aged, next: alive as u64, pace, life, before })
    }
}

impl<I: Index> Case<I> {
    fn metered<M: Meter>(&mut self, packets: u64, meter: &mut M) {
        let (next, pace, life) = (self.next, self.pace, self.life);
        self.aged.open(FRESH + next, packets, |at| Nanos((next + at) * pace), life, meter);
        self.next += packets;
    }
}

impl<I: Index> AnyCase for Case<I> {
    fn pass(&mut self, packets: u64) -> Duration {
        let start = Instant::now();
        self.metered(packets, &mut Whole);
        start.elapsed()
    }

    fn count_from_here(&mut self) {
        self.before = self.aged.counts;
    }

    fn row(&mut self, ns: Spread, packets: u64) -> Expiring {
        let (now, before) = (self.aged.counts, self.before);
        let opened = (now.opened - before.opened + now.refused - before.refused).max(1) as f64;
        let percent = |of: fn(&Counts) -> u64| (of(&now) - of(&before)) as f64 * 100.0 / opened;
        let (mut bursts, mut singles) = (Bursts::new(), Singles::new());
        self.metered(packets, &mut bursts);
        self.metered(packets, &mut singles);
        Expiring {
            table: self.kind,
            ageing: self.aged.ageing,
            load_percent: self.load,
            ns,
            evicted_percent: percent(|counts| counts.evicted),
            early_percent: percent(|counts| counts.early),
            refused_percent: percent(|counts| counts.refused),
            bursts: bursts.0.tail(),
            singles: singles.0.tail(),
        }
    }
}
