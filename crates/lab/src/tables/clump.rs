//! A mass expiry: many flows expire within one millisecond. Measures the effect on the packets after it.

use flow::{Ageing, Index, Plan, TICK};
use packet::Nanos;

use super::ageing::Aged;
use super::keys::{FRESH, made_up};
use super::meter::{Singles, Tail};
use super::subject::{PACE, Plain, seed_of};
use super::{Op, Run, Stopped, TableKind, TablesPlan, Traffic, Visit};
use crate::spread::Spread;

/// Times of packets around a mass expiry.
#[derive(Clone, Debug)]
pub struct Clump {
    /// The table.
    pub table: TableKind,
    /// How expired flows are found; `None` for the baseline, a map that is swept in a single step.
    pub ageing: Option<Ageing>,
    /// Number of flows that expire.
    pub flows: u64,
    /// Number of packets timed after that; each opens a flow.
    pub packets: u64,
    /// Times of such packets before the expiry: median round.
    pub quiet: Tail,
    /// Times after it: median round.
    pub after: Tail,
    /// Slowest packet before the expiry in each round, in nanoseconds.
    pub quiet_worst: Spread,
    /// Slowest packet after it in each round. Both include interruptions by the machine. A stall of the table occurs in every round, so
    /// the smallest value shows it best.
    pub after_worst: Spread,
    /// Number of packets after which all expired flows were removed, if they were.
    pub clean_after: Option<u64>,
}

/// Maximum number of flows that expire; smaller tables expire all their flows.
pub(super) const FLOWS_MAX: usize = 1_000_000;
/// Time at which the first of these flows expires.
const MOMENT: Nanos = Nanos::from_secs(60);
/// Lifetime of the flows that open around it.
const LIFE: Nanos = Nanos::from_secs(60);

/// One round of one case.
struct Round {
    quiet: Tail,
    after: Tail,
    clean_after: Option<u64>,
}

pub(super) fn passes(plan: &TablesPlan) -> u64 {
    if plan.ops.contains(&Op::Clump) { (cases(plan).count() * plan.rounds) as u64 } else { 0 }
}

fn cases(plan: &TablesPlan) -> impl Iterator<Item = (TableKind, Option<Ageing>)> + '_ {
    plan.tables.iter().flat_map(|&kind| {
        let ageings = if !kind.is_ours() { &[] } else { plan.ageings.as_slice() };
        let plain = (!kind.is_ours()).then_some((kind, None));
        ageings.iter().map(move |ageing| (kind, Some(*ageing))).chain(plain)
    })
}

pub(super) fn measure(traffic: &Traffic, plan: &TablesPlan, run: &mut Run<'_>) -> Result<Vec<Clump>, Stopped> {
    if !plan.ops.contains(&Op::Clump) {
        return Ok(Vec::new());
    }
    let flows = traffic.entries().min(FLOWS_MAX);
    let mut rounds: Vec<Vec<Round>> = cases(plan).map(|_| Vec::new()).collect();
    for _ in 0..plan.rounds {
        for ((kind, ageing), rounds) in cases(plan).zip(&mut rounds) {
            rounds.push(match ageing {
                Some(ageing) => {
                    kind.visit(Once { ageing, flows, seed: seed_of(plan.seed) }).expect("the baseline has no ageing")
                }
                None => swept(flows),
            });
            run.pass()?;
        }
    }
    let row = |((table, ageing), mut rounds): ((TableKind, Option<Ageing>), Vec<Round>)| {
        let worst =
            |of: fn(&Round) -> f64| Spread::of(&rounds.iter().map(of).collect::<Vec<_>>()).expect("a bench has rounds");
        let (quiet_worst, after_worst) = (worst(|round| round.quiet.max), worst(|round| round.after.max));
        rounds.sort_by(|one, other| one.after.max.total_cmp(&other.after.max));
        let Round { quiet, after, clean_after } = rounds[rounds.len() / 2];
        let packets = around(flows).1;
        Clump { table, ageing, flows: flows as u64, packets, quiet, after, quiet_worst, after_worst, clean_after }
    };
    Ok(cases(plan).zip(rounds).map(row).collect())
}

/// Number of packets before and after the expiry. A wheel needs a level or two to bring the flows down, then removes two for each packet,
/// so by then all are removed.
const fn around(flows: usize) -> (u64, u64) {
    (flows.div_ceil(8) as u64, flows as u64)
}

struct Once {
    ageing: Ageing,
    flows: usize,
    seed: u64,
}

impl Visit for Once {
    type Out = Round;

    fn visit<I: Index>(self, choice: I::Choice) -> Round {
        let Self { ageing, flows, seed } = self;
        let (before, behind) = around(flows);
        // Room for the flows that expire, for those before, and for an eighth of those after.
        let capacity = flows + 2 * before as usize;
        let mut aged = Aged::<I>::new(Plan { index: choice, capacity, load_percent: None, ageing, seed });
        for number in 0..flows as u64 {
            aged.put(made_up(FRESH + number), MOMENT + Nanos(number % 1_000_000), Nanos(0));
        }
        let (mut quiet, mut after) = (Singles::new(), Singles::new());
        let fresh = FRESH + flows as u64;
        let start = MOMENT - Nanos::from_secs(1);
        aged.open(fresh, before, |at| start + Nanos(at * PACE.0), LIFE, &mut quiet);
        // All deadlines have passed, even if a wheel rounds them up.
        let moment = MOMENT + Nanos::from_millis(2) + TICK;
        // In pieces, to see when the last expired flow was removed; this doesn't affect the removal.
        let (mut at, mut clean_after) = (0, None);
        let piece = (behind / 1024).max(1);
        while at < behind {
            let packets = piece.min(behind - at);
            aged.open(fresh + before + at, packets, |index| moment + Nanos((at + index) * PACE.0), LIFE, &mut after);
            at += packets;
            if clean_after.is_none() && aged.counts.expired + aged.counts.evicted >= flows as u64 {
                clean_after = Some(at);
            }
        }
        let tail = |meter: &Singles| meter.0.tail().expect("packets were timed");
        Round { quiet: tail(&quiet), after: tail(&after), clean_after }
    }
}

/// Time of the packet that triggers the sweep of a map.
fn swept(flows: usize) -> Round {
    use super::subject::Subject;
    let (before, behind) = around(flows);
    let mut plain = Plain::new(flows + 2 * before as usize);
    for number in 0..flows as u64 {
        plain.put(made_up(FRESH + number), MOMENT + Nanos(number % 1_000_000));
    }
    let keys: Vec<_> = (0..before.max(behind / 4)).map(|at| made_up(FRESH + flows as u64 + at)).collect();
    let (mut quiet, mut after) = (Singles::new(), Singles::new());
    plain.open(&keys[..before as usize / 2], &mut quiet);
    after.time(|| plain.sweep(MOMENT + Nanos::from_millis(2)));
    plain.open(&keys[before as usize / 2..], &mut after);
    let tail = |meter: &Singles| meter.0.tail().expect("packets were timed");
    Round { quiet: tail(&quiet), after: tail(&after), clean_after: Some(1) }
}
