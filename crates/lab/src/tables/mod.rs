//! Measures flow tables side by side: every index of `flow`, filled to several loads, with the same keys.
//!
//! All tables of a load are in memory at once and take turns in each round, so that a drift of the machine affects all. Figures are
//! medians with their spread. Latencies are measured in separate passes, because reading a clock takes longer than a look-up.

mod ageing;
mod clump;
mod keys;
mod meter;
mod mixed;
mod resident;
mod scaling;
mod subject;

use std::sync::atomic::{AtomicBool, Ordering};

use flow::index::{AnyIndex, Chaining, Cuckoo, CuckooPp, Hopscotch, IndexKind, RobinHood, Tagged};
use flow::{Ageing, Index};
use packet::Nanos;

pub use ageing::Expiring;
pub use clump::Clump;
pub use keys::{Captured, MADE_UP_PROTOCOL, Skew, Traffic};
pub use meter::{Clock, Tail};
pub use resident::Resident;
pub use scaling::{Scaling, Sharing};
pub use subject::OWN_BYTES;

/// A table to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A table of `flow` with this index, known at compile time.
    Of(IndexKind),
    /// A table of `flow` with the default index, chosen at run time, as with `millrace run --table`.
    Chosen,
    /// The hash map of Rust's standard library, one key at a time: the baseline.
    Std,
}

/// Operations to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Look up flows that are in the table.
    Lookup,
    /// Look up flows that are not in the table.
    Miss,
    /// Insert the last 5 % of the flows.
    Insert,
    /// 90 % of the packets find their flow, count and move its deadline; the others open or end a flow.
    Mixed,
    /// Each packet opens a flow, and as many flows expire.
    Expire,
    /// A million flows expire in the same millisecond.
    Clump,
}

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct TablesPlan {
    /// The tables.
    pub tables: Vec<TableKind>,
    /// Places in use when all flows are in, in percent; the standard map has its own load.
    pub loads: Vec<usize>,
    /// The operations.
    pub ops: Vec<Op>,
    /// How expired flows are found, for [`Op::Expire`] and [`Op::Clump`].
    pub ageings: Vec<Ageing>,
    /// Numbers of cores for throughput rows; empty for no such rows.
    pub cores: Vec<usize>,
    /// Number of times that each case runs, alternating with the others.
    pub rounds: usize,
    /// Packets of a case in a round.
    pub round_packets: u64,
    /// Lifetime of flows in packet time, for [`Op::Expire`].
    pub lifetime: Nanos,
    /// Hash seed of the tables.
    pub seed: u64,
}

/// Result of [`bench_tables`].
#[derive(Clone, Debug, Default)]
pub struct TablesBench {
    /// Tables with a fixed set of flows, by load, then operation.
    pub resident: Vec<Resident>,
    /// Tables whose flows come and go.
    pub expiring: Vec<Expiring>,
    /// Tables with a mass expiry.
    pub clumps: Vec<Clump>,
    /// Throughput by number of cores.
    pub scaling: Vec<Scaling>,
    /// True if the bench was stopped. The parts that are present are complete.
    pub interrupted: bool,
}

impl TableKind {
    /// All of them, the baseline last.
    pub const ALL: [Self; IndexKind::ALL.len() + 2] = {
        let mut all = [Self::Std; IndexKind::ALL.len() + 2];
        let mut at = 0;
        while at < IndexKind::ALL.len() {
            all[at] = Self::Of(IndexKind::ALL[at]);
            at += 1;
        }
        all[at] = Self::Chosen;
        all
    };

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Of(kind) => kind.name(),
            Self::Chosen => "chosen",
            Self::Std => "std",
        }
    }

    /// True for tables of `flow`, which look up flows in bursts and age them.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        match self {
            Self::Of(_) | Self::Chosen => true,
            Self::Std => false,
        }
    }

    /// Calls `visitor` with the table's index type; the baseline has none.
    pub(crate) fn visit<V: Visit>(self, visitor: V) -> Option<V::Out> {
        Some(match self {
            Self::Of(IndexKind::Chaining) => visitor.visit::<Chaining>(()),
            Self::Of(IndexKind::Cuckoo) => visitor.visit::<Cuckoo>(()),
            Self::Of(IndexKind::CuckooPp) => visitor.visit::<CuckooPp>(()),
            Self::Of(IndexKind::RobinHood) => visitor.visit::<RobinHood>(()),
            Self::Of(IndexKind::Hopscotch) => visitor.visit::<Hopscotch>(()),
            Self::Of(IndexKind::Tagged) => visitor.visit::<Tagged>(()),
            Self::Chosen => visitor.visit::<AnyIndex>(IndexKind::default()),
            Self::Std => return None,
        })
    }

    /// Estimated bytes of a table for `entries` flows at this load, rather too high than too low.
    fn bytes(self, entries: usize, load: usize) -> u64 {
        let (entries, load) = (entries as u64, load as u64);
        let (entry, places) = (ENTRY_BYTES as u64, (entries * 100).div_ceil(load));
        match self {
            // Entries are stored at the places of their tags, so free places are as large as used ones.
            Self::Of(IndexKind::Tagged) => places * (entry + 2),
            Self::Of(_) | Self::Chosen => entries * (entry + 8) + places * 12,
            Self::Std => (entries * 8 / 7 + 1).next_power_of_two() * (OWN_BYTES as u64 + 1),
        }
    }
}

/// Bytes of a flow in the tables of `flow`, without the index: its entry, its position on the wheel, and its part of a wheel block.
const ENTRY_BYTES: usize = OWN_BYTES + 10;

/// An operation on an index whose type is selected by name.
pub(crate) trait Visit {
    type Out;
    fn visit<I: Index>(self, choice: I::Choice) -> Self::Out;
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Lookup, Self::Miss, Self::Insert, Self::Mixed, Self::Expire, Self::Clump];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Miss => "miss",
            Self::Insert => "insert",
            Self::Mixed => "mixed",
            Self::Expire => "expire",
            Self::Clump => "burst-expiry",
        }
    }

    /// Describes the operation in one sentence.
    #[must_use]
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Lookup => "Look-ups of flows that are in the table, in bursts of 32; in the standard map one by one.",
            Self::Miss => {
                "Look-ups of flows that are not in the table, in bursts of 32; in the standard map one by one."
            }
            Self::Insert => "The last 5 % of the places are filled: each flow is looked up, not found, and inserted.",
            Self::Mixed => {
                "90 % of the packets find their flow, count and move its deadline; the others open or end a flow."
            }
            Self::Expire => "Each packet opens a flow that is never answered, and as many flows expire.",
            Self::Clump => "All flows expire in the same millisecond, while packets keep opening new ones.",
        }
    }
}

impl TablesPlan {
    /// Estimated maximum memory of the tables in use at once, in bytes, for `entries` flows; rather too high.
    #[must_use]
    pub fn bytes(&self, entries: usize) -> u64 {
        let load = self.loads.iter().min().copied().unwrap_or(50).clamp(1, 100);
        let tables = |ours: bool| self.tables.iter().filter(move |kind| kind.is_ours() || !ours);
        let sum = |ours| tables(ours).map(|kind| kind.bytes(entries, load)).sum::<u64>();
        let largest = tables(true).map(|kind| kind.bytes(entries, load)).max().unwrap_or(0);
        let of = |op: &Op| match op {
            Op::Lookup | Op::Miss | Op::Insert | Op::Mixed => sum(false),
            Op::Expire => sum(true) * self.ageings.len() as u64,
            Op::Clump => clump::FLOWS_MAX.min(entries) as u64 * 4 * ENTRY_BYTES as u64,
        };
        let scaling = self.cores.len() as u64 * (largest + Traffic::bytes(entries));
        self.ops.iter().map(of).max().unwrap_or(0).max(scaling) + Traffic::bytes(entries)
    }

    /// Load for the throughput by cores: the requested load closest to 75 %.
    #[must_use]
    pub fn scaling_load(&self) -> usize {
        self.loads.iter().copied().min_by_key(|load| load.abs_diff(75)).unwrap_or(75)
    }
}

/// Measures tables filled with the flows of `traffic`. Calls `progress` with the number of passes done and the total. Once `stop` is set,
/// returns the complete parts.
pub fn bench_tables(
    traffic: &Traffic,
    plan: &TablesPlan,
    progress: &mut dyn FnMut(u64, u64),
    stop: &AtomicBool,
) -> TablesBench {
    let total = resident::passes(plan) + ageing::passes(plan) + clump::passes(plan) + scaling::passes(plan);
    let mut run = Run { progress, stop, done: 0, total };
    let mut bench = TablesBench::default();
    bench.interrupted = measure(traffic, plan, &mut run, &mut bench).is_err();
    bench
}

fn measure(traffic: &Traffic, plan: &TablesPlan, run: &mut Run<'_>, bench: &mut TablesBench) -> Result<(), Stopped> {
    for &load in &plan.loads {
        bench.resident.extend(resident::measure(traffic, plan, load, run)?);
    }
    for &load in &plan.loads {
        bench.expiring.extend(ageing::measure(traffic, plan, load, run)?);
    }
    bench.clumps = clump::measure(traffic, plan, run)?;
    bench.scaling = scaling::measure(traffic, plan, run)?;
    Ok(())
}

/// The bench was stopped.
struct Stopped;

/// Progress of the work, and whether it should stop.
struct Run<'a> {
    progress: &'a mut dyn FnMut(u64, u64),
    stop: &'a AtomicBool,
    done: u64,
    total: u64,
}

impl Run<'_> {
    /// Counts a finished pass.
    fn pass(&mut self) -> Result<(), Stopped> {
        self.done += 1;
        (self.progress)(self.done, self.total);
        // ORDERING: Relaxed. The flag carries no data; pairs with whoever sets it.
        if self.stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
