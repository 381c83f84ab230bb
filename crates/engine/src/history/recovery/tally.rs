//! Counters of losses and their recovery.

/// The losses of one core and their recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets of this core that were sent and never came, as far as the core knows.
    pub lost: u64,
    /// Records copied from other cores' logs, by that core.
    pub recovered: Vec<u64>,
    /// Records that no core received, so no core applied.
    pub nowhere: u64,
    /// How often this core waited for others to say whether they had a record.
    pub waits: u64,
    /// How often this core waited for others before it overwrote an entry.
    pub waits_for_room: u64,
    /// Cores that this one fenced.
    pub fenced: u64,
}

impl Tally {
    /// All records copied from other cores' logs.
    #[must_use]
    pub fn recovered_total(&self) -> u64 {
        self.recovered.iter().sum()
    }

    /// Adds another core's counters. `nowhere` is the same at all cores, and counted once.
    pub fn add(&mut self, other: &Self) {
        let Self { lost, recovered, nowhere, waits, waits_for_room, fenced } = other;
        self.lost += lost;
        self.recovered.resize(self.recovered.len().max(recovered.len()), 0);
        for (mine, theirs) in self.recovered.iter_mut().zip(recovered) {
            *mine += theirs;
        }
        self.nowhere = self.nowhere.max(*nowhere);
        self.waits += waits;
        self.waits_for_room += waits_for_room;
        self.fenced += fenced;
    }
}
