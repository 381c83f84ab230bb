//! Offload: heavy connections about which the function has decided are taken by a card ahead of it.

use port::CardLimits;

/// Choice of the connections that go to a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// A connection is heavy after so many packets that the function has forwarded.
    pub threshold: u32,
    /// It must have had at least so many of them a second. 0: any rate.
    pub rate_min: u64,
    /// The card's limits. They are those of all cores together: each core has its part. A port with a card of its own has the number of
    /// entries alone.
    pub card: CardLimits,
}

/// Counts of a card: packets that it has taken, and connections that came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadCounts {
    /// Packets that the card has taken.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Connections that were put in.
    pub inserted: u64,
    /// Times that a connection was heavy, and the function had not decided about it.
    pub undecided: u64,
    /// Times that the card was full of connections with packets of late.
    pub refused_full: u64,
    /// Times that the card had been given too many connections of late.
    pub refused_rate: u64,
    /// Times that the card could take none, as an interface was down.
    pub refused_down: u64,
    /// Connections that came back because the function had to see one of their packets.
    pub back_for_packet: u64,
    /// Connections that came back because their deadline had passed, or the card couldn't go on with them.
    pub back_ended: u64,
    /// Connections that came back to make room for others.
    pub evicted: u64,
    /// Connections that came back because all were called back: a table was nearly full, somebody looked at the state, or the run ended.
    pub recalled: u64,
    /// The most connections in the card at one time, summed over cores.
    pub entries_max: u64,
}

impl OffloadCounts {
    /// Adds another core's.
    pub const fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.inserted += other.inserted;
        self.undecided += other.undecided;
        self.refused_full += other.refused_full;
        self.refused_rate += other.refused_rate;
        self.refused_down += other.refused_down;
        self.back_for_packet += other.back_for_packet;
        self.back_ended += other.back_ended;
        self.evicted += other.evicted;
        self.recalled += other.recalled;
        self.entries_max += other.entries_max;
    }

    /// Connections that came back.
    #[must_use]
    pub const fn back(&self) -> u64 {
        self.back_for_packet + self.back_ended + self.evicted + self.recalled
    }
}

impl Offload {
    /// A core's part of the card's limits.
    #[must_use]
    pub(crate) fn part(&self, cores: usize) -> CardLimits {
        let CardLimits { entries, insertions, evict_one_in } = self.card;
        CardLimits {
            entries: (entries / cores).max(1),
            insertions: insertions.map(|all| (all / cores as u64).max(1)),
            evict_one_in,
        }
    }
}
