//! Flow tables side by side: every index of `flow`, filled to several loads, under the same keys.
//!
//! All tables of a load lie in memory together and take turns, round by round, so that what drifts drifts for all; figures
//! are medians with their spread. Latencies come from passes of their own, for reading a clock takes longer than a look-up.

mod ageing;
mod clump;
mod keys;
mod meter;
mod resident;
mod scaling;
mod script;
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

/// A table to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// `flow`'s, with this index, which is in its type.
    Of(IndexKind),
    /// `flow`'s default one, asking at each call which index it has, as `millrace run --table` does.
    Chosen,
    /// The standard library's map, key by key: the baseline.
    Std,
}

/// What tables are made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Look-ups of flows that are in.
    Lookup,
    /// Look-ups of flows that are not.
    Miss,
    /// The last twentieth of the flows is put in.
    Insert,
    /// Nine of ten packets find their flow, count and postpone its end; the others open or end one.
    Mixed,
    /// Each packet opens a flow, and as many expire.
    Expire,
    /// A million flows expire in the same millisecond.
    Clump,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct TablesPlan {
    /// The tables.
    pub tables: Vec<TableKind>,
    /// How many of a hundred places are taken when all flows are in; the standard map has a load of its own.
    pub loads: Vec<usize>,
    /// What they are made to do.
    pub ops: Vec<Op>,
    /// Who finds the flows whose deadline has passed, for [`Op::Expire`] and [`Op::Clump`].
    pub ageings: Vec<Ageing>,
    /// How many cores throughput is told for; none for no such rows.
    pub cores: Vec<usize>,
    /// How often each case runs, in turn with the others.
    pub rounds: usize,
    /// How many packets a case has in a round.
    pub round_packets: u64,
    /// How long flows live, by packet time, for [`Op::Expire`].
    pub lifetime: Nanos,
    /// What keys the tables' hashes.
    pub seed: u64,
}

/// What a bench of tables came to.
#[derive(Clone, Debug, Default)]
pub struct TablesBench {
    /// Tables that hold what they hold, by load, then what they do.
    pub resident: Vec<Resident>,
    /// Tables whose flows come and go.
    pub expiring: Vec<Expiring>,
    /// Tables whose flows go all at once.
    pub clumps: Vec<Clump>,
    /// Throughput against cores.
    pub scaling: Vec<Scaling>,
    /// Whether it was stopped: what is there is whole, and something is missing.
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

    /// Whether it is one of `flow`'s tables, which look flows up by bursts and age them.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        match self {
            Self::Of(_) | Self::Chosen => true,
            Self::Std => false,
        }
    }

    /// Hands the table's index to `visitor`; the baseline has none.
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

    /// About what a table for `entries` flows takes at this load, in bytes; rather too much than too little.
    fn bytes(self, entries: usize, load: usize) -> u64 {
        let (entries, load) = (entries as u64, load as u64);
        let (entry, places) = (ENTRY_BYTES as u64, (entries * 100).div_ceil(load));
        match self {
            // Entries lie where their tags do, so free places are as large as taken ones.
            Self::Of(IndexKind::Tagged) => places * (entry + 2),
            Self::Of(_) | Self::Chosen => entries * (entry + 8) + places * 12,
            Self::Std => (entries * 8 / 7 + 1).next_power_of_two() * (OWN_BYTES as u64 + 1),
        }
    }
}

/// What a flow takes in `flow`'s tables beside the index: its entry, its position on the wheel and its part of a block there.
const ENTRY_BYTES: usize = OWN_BYTES + 10;

/// What is done with an index whose type only its name tells.
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

    /// What a table does under it, in a sentence.
    #[must_use]
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Lookup => "Look-ups of flows that are in the table, in bursts of 32; the standard map key by key.",
            Self::Miss => "Look-ups of flows that are not in the table, in bursts of 32; the standard map key by key.",
            Self::Insert => {
                "The last five of a hundred places are filled: each flow is looked for, not found, and put in."
            }
            Self::Mixed => {
                "Nine of ten packets find their flow, count, and postpone its end; every tenth opens or ends one."
            }
            Self::Expire => "Each packet opens a flow that nobody answers, and as many expire.",
            Self::Clump => "All flows expire within the same millisecond, while packets go on opening new ones.",
        }
    }
}

impl TablesPlan {
    /// The most memory that tables take at once, in bytes, for `entries` flows: an estimate that is rather too high.
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

    /// The load at which throughput is told against cores: of those asked for the one next to three quarters.
    #[must_use]
    pub fn scaling_load(&self) -> usize {
        self.loads.iter().copied().min_by_key(|load| load.abs_diff(75)).unwrap_or(75)
    }
}

/// Measures tables filled with the flows of `traffic`. `progress` is told how many passes are done, and of how many; once
/// `stop` is set, what is complete is returned.
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

/// It was asked to stop.
struct Stopped;

/// How far the work is, and whether it goes on.
struct Run<'a> {
    progress: &'a mut dyn FnMut(u64, u64),
    stop: &'a AtomicBool,
    done: u64,
    total: u64,
}

impl Run<'_> {
    /// A pass is done.
    fn pass(&mut self) -> Result<(), Stopped> {
        self.done += 1;
        (self.progress)(self.done, self.total);
        // ORDERING: Relaxed. The flag carries no data; pairs with whoever sets it.
        if self.stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
