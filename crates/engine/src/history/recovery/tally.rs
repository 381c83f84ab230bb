//! What loss and its recovery came to.

/// What loss and its recovery came to, at one core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets of this core that never came, as far as it was told that they had been sent.
    pub lost: u64,
    /// Records that came from another core's log, by that core.
    pub recovered: Vec<u64>,
    /// Records that no core ever received, and that therefore no core applied.
    pub nowhere: u64,
    /// How often this core waited for others to say whether they had a record.
    pub waits: u64,
    /// How often it waited for others to pass what it was about to write over.
    pub waits_for_room: u64,
    /// Cores that this one fenced.
    pub fenced: u64,
}

impl Tally {
    /// All records that came from other cores' logs.
    #[must_use]
    pub fn recovered_total(&self) -> u64 {
        self.recovered.iter().sum()
    }

    /// Adds another core's; records that reached nobody are the same for all, and counted once.
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
