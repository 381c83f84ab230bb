//! How flow tables are kept, as commands take it.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::Tables;
use flow::index::IndexKind;
use flow::{Ageing, EntryGuard, Eviction};

use super::failure::Failed;
use crate::print::number;
use catalogue::Program;

/// How flow tables are kept: nothing of that can be chosen for nat, which has tables of its own.
#[derive(clap::Args)]
#[command(next_help_heading = "Flow tables")]
pub(super) struct TableOptions {
    /// The table that finds flows: a matter of speed, unless it is full and where flows lie says who goes (all but wheel; lru, random; tagged)
    #[arg(long, value_name = "TABLE", default_value = IndexKind::default().name(), value_parser = table())]
    table: IndexKind,
    /// Who finds the flows whose time is over: a timing wheel, a hand going round, the next flow to come by (lazy), nobody
    #[arg(long, value_name = "WHO", default_value = Ageing::default().name(), value_parser = ageing())]
    ageing: Ageing,
    /// Which flow goes when the table is full: about the oldest never answered (under tagged any), the least recently used nearby, a
    /// random one, none
    #[arg(long, value_name = "WHICH", default_value = Eviction::default().name(), value_parser = eviction())]
    eviction: Eviction,
    /// Turn new flows away once the table is so full, ever more of them up to 100 %
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    early_drop: Option<u8>,
    /// Let a source have so many flows at once, on each core of rss and in each stripe of shared
    #[arg(long, value_name = "FLOWS", value_parser = flows)]
    per_source: Option<u32>,
    /// What keeps the cores of shared apart on a flow: a lock, or, for functions that only count, one atomic operation a packet
    #[arg(long, value_name = "HOW", default_value = EntryGuard::default().name(), value_parser = guard())]
    guard: EntryGuard,
}

impl TableOptions {
    /// The arguments that keep flows so again, each behind a blank, as far as they aren't what nobody has to say.
    pub(super) fn again(&self) -> String {
        let Self { table, ageing, eviction, early_drop, per_source, guard } = self;
        let given = [
            (*table != IndexKind::default()).then(|| format!(" --table {}", table.name())),
            (*ageing != Ageing::default()).then(|| format!(" --ageing {}", ageing.name())),
            (*eviction != Eviction::default()).then(|| format!(" --eviction {}", eviction.name())),
            early_drop.map(|percent| format!(" --early-drop {percent}")),
            per_source.map(|flows| format!(" --per-source {flows}")),
            (*guard != EntryGuard::default()).then(|| format!(" --guard {}", guard.name())),
        ];
        given.into_iter().flatten().collect()
    }

    /// How the function's flows are kept.
    ///
    /// # Errors
    /// When they can't be kept so.
    pub(super) fn tables(&self, program: &dyn Program) -> Result<Tables, Failed> {
        let tables = Tables {
            index: self.table,
            ageing: self.ageing,
            eviction: self.eviction,
            early_drop_percent: self.early_drop,
            per_source: self.per_source,
            guard: self.guard,
        };
        program.accepts(&tables).map_err(Failed::usage)?;
        Ok(tables)
    }
}

/// Reads a number of flows.
fn flows(text: &str) -> Result<u32, String> {
    let number = number::parse(text)?;
    u32::try_from(number)
        .ok()
        .filter(|flows| *flows > 0)
        .ok_or_else(|| format!("write a number from 1 to {}", u32::MAX))
}

fn table() -> impl TypedValueParser<Value = IndexKind> {
    by_name(&IndexKind::ALL, IndexKind::name)
}

fn ageing() -> impl TypedValueParser<Value = Ageing> {
    by_name(&Ageing::ALL, Ageing::name)
}

fn eviction() -> impl TypedValueParser<Value = Eviction> {
    by_name(&Eviction::ALL, Eviction::name)
}

fn guard() -> impl TypedValueParser<Value = EntryGuard> {
    by_name(&EntryGuard::ALL, EntryGuard::name)
}

/// Reads one of `all` by its name.
fn by_name<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|one| name(*one)))
        .map(move |given| *all.iter().find(|one| name(**one) == given).expect("the parser lets names through alone"))
}
