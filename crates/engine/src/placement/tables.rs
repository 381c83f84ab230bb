//! Table options: the index, ageing, eviction, limits.

use flow::index::IndexKind;
use flow::{Ageing, EntryGuard, Eviction, Plan, Slot, Table};
use nf::{Flow, Meta, NetworkFunction, Reason, Sharing, Speed};
use packet::{Host, Host6, Nanos};

/// Options of the flow tables. The defaults are those of [`Plan`] and [`Eviction`], without limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The index that finds flows.
    pub index: IndexKind,
    /// How expired flows are found.
    pub ageing: Ageing,
    /// Which flow is evicted when a table is full.
    pub eviction: Eviction,
    /// Early drop starts at this percentage of the capacity: 0 % of new flows are refused there, 100 % at a full table.
    pub early_drop_percent: Option<u8>,
    /// How many flows one source may have in a table at once.
    pub per_source: Option<u32>,
    /// What keeps cores apart on a shared entry.
    pub guard: EntryGuard,
}

/// Why a new flow is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The table is full.
    Full,
    /// Early drop: the table fills up.
    Early,
    /// The source has too many flows.
    Source,
}

impl Refusal {
    /// The drop reason for a packet that would be dropped for a full table.
    pub(crate) const fn reason(self) -> Reason {
        match self {
            Self::Full => Reason::TABLE_FULL,
            Self::Early => Reason::EARLY_DROP,
            Self::Source => Reason::SOURCE_LIMIT,
        }
    }
}

impl Tables {
    /// Checks that these options suit the function.
    ///
    /// # Errors
    /// The reason why not, as a sentence.
    pub fn accepts<N: NetworkFunction>(&self, nf: &N) -> Result<(), String> {
        let name = N::DESCRIPTION.name;
        if !N::Flow::STORED && *self != Self::default() {
            return Err(format!("{name} has no flow tables, so the options of flow tables can't be used with it"));
        }
        if self.guard == EntryGuard::Atomic {
            adds_up(name, N::Speed::ADDS, nf.description().sharing)?;
        }
        if self.per_source.is_some() && !N::Meta::TELLS_SOURCE {
            return Err(format!(
                "{name} doesn't tell the sources of its flows, so the flows of a source can't be limited"
            ));
        }
        Ok(())
    }

    /// Decides on an early drop. `chance` is a pseudo-random number; replicas compute it from data that they agree on.
    #[inline]
    pub(crate) fn drops_early(&self, len: usize, capacity: usize, chance: u32) -> bool {
        let Some(percent) = self.early_drop_percent else { return false };
        let start = capacity * usize::from(percent.min(100)) / 100;
        let (above, room) = ((len + 1).saturating_sub(start) as u64, (capacity - start) as u64);
        // Compares the used share of the room above the mark with a fraction of 2^32.
        above > 0 && u64::from(chance) * room < above << 32
    }
}

/// Checks that the function's steps can be atomic operations on entries. The error says why not.
fn adds_up(name: &str, adds: bool, sharing: Sharing) -> Result<(), String> {
    match sharing.what() {
        Some(what) => {
            Err(format!("packet sets of {name} share {what}, so one lock guards all its steps: leave --guard out"))
        }
        None if !adds => Err(format!(
            "a step of {name} is more than one atomic operation can do, so its entries have locks: leave --guard out"
        )),
        None => Ok(()),
    }
}

/// How many flows each source has in the tables of one core.
pub(crate) struct Sources {
    most: u32,
    /// Keyed by address; IPv4 is mapped into IPv6. Simple rather than fast: not every packet comes here.
    counts: Table<Host6, u32>,
}

/// The origin of a flow without a source.
const NOBODY: u32 = u32::MAX;

impl Sources {
    /// Counts sources for at most `flows` flows.
    pub(crate) fn new(most: u32, flows: usize, seed: u64) -> Self {
        let plan = Plan { capacity: flows, ageing: Ageing::None, seed, ..Plan::default() };
        Self { most, counts: Table::planned(plan) }
    }

    /// The memory that counts sources, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.counts.memory_bytes()
    }

    /// The origin of each flow, indexed by the flow's slot. Empty if sources aren't limited.
    pub(crate) fn origins(slots: usize, limited: bool) -> Box<[u32]> {
        vec![NOBODY; if limited { slots } else { 0 }].into()
    }

    /// Counts one more flow of the source, unless it has too many. Returns the origin for [`leave`](Self::leave).
    pub(crate) fn enter(&mut self, source: Option<Host>) -> Result<u32, Refusal> {
        let Some(source) = source else { return Ok(NOBODY) };
        let key = match source {
            Host::V4(host) => host.mapped(),
            Host::V6(host) => host,
        };
        let slot = self.place(key).ok_or(Refusal::Full)?;
        let count = self.counts.value_mut(slot);
        if *count >= self.most {
            return Err(Refusal::Source);
        }
        *count += 1;
        Ok(slot.index() as u32)
    }

    /// Counts a flow that moves here, even beyond the limit: it is no new flow, and replicas that take flows in different orders must have
    /// the same counts.
    pub(crate) fn take_in(&mut self, source: Option<Host6>) -> u32 {
        let Some(slot) = source.and_then(|source| self.place(source)) else { return NOBODY };
        *self.counts.value_mut(slot) += 1;
        slot.index() as u32
    }

    /// Finds the source's count, or starts one.
    fn place(&mut self, source: Host6) -> Option<Slot> {
        let hash = self.counts.hash(&source);
        match self.counts.find(&source, hash) {
            Some(slot) => Some(slot),
            // There are as many counts as flows, so only bad luck with hashes leaves no room.
            None => self.counts.insert(source, hash, 0, Nanos::NEVER, Nanos(0)),
        }
    }

    /// The source that is counted at `origin`.
    pub(crate) fn source(&self, origin: u32) -> Option<Host6> {
        (origin != NOBODY).then(|| *self.counts.key(self.counts.slot(origin as usize)))
    }

    /// Discounts a flow whose source was counted at `origin`.
    pub(crate) fn leave(&mut self, origin: u32) {
        if origin == NOBODY {
            return;
        }
        let slot = self.counts.slot(origin as usize);
        let count = self.counts.value_mut(slot);
        *count -= 1;
        if *count == 0 {
            self.counts.remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_drops_grow_from_none_to_all() {
        let tables = Tables { early_drop_percent: Some(50), ..Tables::default() };
        let share = |len| (0..1000u32).filter(|at| tables.drops_early(len, 100, at * (u32::MAX / 1000))).count();
        assert_eq!(share(49), 0);
        assert!((499..=501).contains(&share(74)), "half of the room above the mark is taken");
        assert_eq!(share(99), 1000);
        assert!((0..99).all(|len| share(len) <= share(len + 1)));
        let none = Tables::default();
        assert!(!none.drops_early(100, 100, 0));
        let at_full = Tables { early_drop_percent: Some(100), ..Tables::default() };
        assert!(!at_full.drops_early(98, 100, 0));
    }

    #[test]
    fn only_what_adds_up_and_shares_nothing_is_guarded_by_atomics() {
        assert_eq!(adds_up("count", true, Sharing::Nothing), Ok(()));
        assert!(
            adds_up("track", false, Sharing::Nothing).is_err_and(|why| why.contains("a step of track is more than"))
        );
        for adds in [false, true] {
            let why = adds_up("pool", adds, Sharing::Shares("one pool of ports"));
            assert!(why.is_err_and(|why| why.contains("packet sets of pool share one pool of ports, so")));
        }
    }

    #[test]
    fn sources_are_counted_and_forgotten() {
        let mut sources = Sources::new(2, 4, 1);
        let (a, b) = (Host::v4([192, 0, 2, 1].into()), Host::v4([192, 0, 2, 2].into()));
        let first = sources.enter(Some(a)).expect("it has none");
        assert_eq!(sources.enter(Some(a)), Ok(first));
        assert_eq!(sources.enter(Some(a)), Err(Refusal::Source));
        let other = sources.enter(Some(b)).expect("it has none");
        assert_ne!(other, first);
        assert_eq!(sources.enter(None), Ok(NOBODY));
        sources.leave(NOBODY);
        sources.leave(first);
        assert_eq!(sources.enter(Some(a)), Ok(first));
        sources.leave(first);
        sources.leave(first);
        assert_eq!(sources.counts.len(), 1);
    }

    #[test]
    fn a_flow_that_moves_is_counted_beyond_the_limit() {
        let mut sources = Sources::new(1, 4, 1);
        let host = Host::v4([192, 0, 2, 1].into());
        let first = sources.enter(Some(host)).expect("it has none");
        let source = sources.source(first);
        assert!(source.is_some() && sources.source(NOBODY).is_none());
        assert_eq!(sources.take_in(source), first);
        sources.leave(first);
        assert_eq!(sources.enter(Some(host)), Err(Refusal::Source), "one is left");
        sources.leave(first);
        assert_eq!(sources.enter(Some(host)), Ok(first));
        assert_eq!(sources.take_in(None), NOBODY);
    }
}
