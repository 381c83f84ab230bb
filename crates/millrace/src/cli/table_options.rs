//! Options of flow tables: index, ageing, eviction and limits.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use engine::Tables;
use flow::index::IndexKind;
use flow::{Ageing, EntryGuard, Eviction};

use super::failure::Failed;
use crate::print::number;
use catalogue::Program;

/// Options of flow tables. `nat` accepts only the defaults, because it has tables of its own.
#[derive(clap::Args)]
#[command(next_help_heading = "Flow tables")]
pub(super) struct TableOptions {
    /// Index that finds flows in a table. It only affects speed while no table is full.
    ///
    /// In a full table it can also decide which flow is evicted: with `tagged`, with --eviction lru or random, and with any --ageing but
    /// wheel.
    #[arg(long, value_name = "TABLE", default_value = IndexKind::default().name(), value_parser = table())]
    table: IndexKind,
    /// How expired flows are found
    #[arg(long, value_name = "WHO", default_value = Ageing::default().name(), value_parser = ageing())]
    ageing: Ageing,
    /// Which flow is removed when the table is full and a new flow arrives
    #[arg(long, value_name = "WHICH", default_value = Eviction::default().name(), value_parser = eviction())]
    eviction: Eviction,
    /// Refuse some new flows once the table is this full, in percent. The refused share grows to all new flows at 100 % [default: off]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    early_drop: Option<u8>,
    /// Maximum number of flows that one source may have at once. With rss the limit holds for each core, with shared for each stripe of
    /// the table [default: no limit]
    #[arg(long, value_name = "FLOWS", value_parser = flows)]
    per_source: Option<u32>,
}

/// How `shared` guards its flows: for comparisons, so only `bench` and `verify` have it.
#[derive(clap::Args)]
#[command(next_help_heading = "Flow tables")]
pub(super) struct GuardOption {
    /// How the cores of `shared` exclude each other on a flow
    #[arg(long, value_name = "HOW", default_value = EntryGuard::default().name(), value_parser = guard())]
    guard: EntryGuard,
}

impl GuardOption {
    /// Formats the option if it differs from its default, after a space.
    pub(super) fn again(&self) -> String {
        if self.guard == EntryGuard::default() { String::new() } else { format!(" --guard {}", self.guard.name()) }
    }
}

impl TableOptions {
    /// Formats the options that differ from the defaults, each after a space, so that a command can be repeated.
    pub(super) fn again(&self) -> String {
        let Self { table, ageing, eviction, early_drop, per_source } = self;
        let given = [
            (*table != IndexKind::default()).then(|| format!(" --table {}", table.name())),
            (*ageing != Ageing::default()).then(|| format!(" --ageing {}", ageing.name())),
            (*eviction != Eviction::default()).then(|| format!(" --eviction {}", eviction.name())),
            early_drop.map(|percent| format!(" --early-drop {percent}")),
            per_source.map(|flows| format!(" --per-source {flows}")),
        ];
        given.into_iter().flatten().collect()
    }

    /// Returns the configuration of the function's flow tables.
    ///
    /// # Errors
    /// The function doesn't support it.
    pub(super) fn tables(&self, program: &dyn Program) -> Result<Tables, Failed> {
        self.guarded(EntryGuard::default(), program)
    }

    /// Returns the same, with this guard of the flows of `shared`.
    ///
    /// # Errors
    /// The function doesn't support it.
    pub(super) fn guarded_tables(&self, option: &GuardOption, program: &dyn Program) -> Result<Tables, Failed> {
        self.guarded(option.guard, program)
    }

    fn guarded(&self, guard: EntryGuard, program: &dyn Program) -> Result<Tables, Failed> {
        let tables = Tables {
            index: self.table,
            ageing: self.ageing,
            eviction: self.eviction,
            early_drop_percent: self.early_drop,
            per_source: self.per_source,
            guard,
        };
        program.accepts(&tables).map_err(Failed::usage)?;
        Ok(tables)
    }
}

/// Parses a number of flows, at least 1.
fn flows(text: &str) -> Result<u32, String> {
    let number = number::parse(text)?;
    u32::try_from(number)
        .ok()
        .filter(|flows| *flows > 0)
        .ok_or_else(|| format!("write a number from 1 to {}", u32::MAX))
}

fn table() -> impl TypedValueParser<Value = IndexKind> {
    by_name(&IndexKind::ALL, IndexKind::name, |kind| match kind {
        IndexKind::Chaining => "Hash table with linked lists",
        IndexKind::Cuckoo => "Two buckets for each key",
        IndexKind::CuckooPp => "Two buckets for each key, with notes that spare most look-ups the second one",
        IndexKind::RobinHood => "Linear probing, ordered by distance",
        IndexKind::Hopscotch => "Linear probing within a neighbourhood",
        IndexKind::Tagged => "Chunks of one-byte tags, compared all at once",
    })
}

fn ageing() -> impl TypedValueParser<Value = Ageing> {
    by_name(&Ageing::ALL, Ageing::name, |ageing| match ageing {
        Ageing::Wheel => "Timing wheel, in order of expiry",
        Ageing::Scan => "Walk over all slots, a few at a time",
        Ageing::Lazy => "Only when a new flow needs the place of an expired one",
        Ageing::None => "Never: an expired flow stays until its own packets come or it is evicted",
    })
}

fn eviction() -> impl TypedValueParser<Value = Eviction> {
    by_name(&Eviction::ALL, Eviction::name, |eviction| match eviction {
        Eviction::OldestUnprotected => {
            "Roughly the oldest flow that was never answered (with --table tagged: any such flow)"
        }
        Eviction::LeastRecent => "The least recently used flow among those in the new flow's places",
        Eviction::Random => "A random flow",
        Eviction::None => "No flow: the new flow is refused",
    })
}

fn guard() -> impl TypedValueParser<Value = EntryGuard> {
    by_name(&EntryGuard::ALL, EntryGuard::name, |guard| match guard {
        EntryGuard::Lock => "One lock for each flow",
        EntryGuard::Atomic => "One atomic operation for each packet; only for functions that only count",
    })
}

/// Parses one of `all` by its name. `help` describes each value in the long help.
fn by_name<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
    help: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|one| PossibleValue::new(name(*one)).help(help(*one))))
        .map(move |given| *all.iter().find(|one| name(**one) == given).expect("the parser lets names through alone"))
}
