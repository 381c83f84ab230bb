//! What happened to the packets, and to the flows. `received = forwarded + replied + sum of drops`, always.

use nf::{Reason, Verdict};
use packet::LinkType;
use port::{Batch, Packet};

/// What happened to the packets of a core or of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came in.
    pub received: u64,
    /// Their bytes on the wire.
    pub received_bytes: u64,
    /// Packets that went out.
    pub forwarded: u64,
    /// Packets that were answered.
    pub replied: u64,
    /// Packets that ended here, by [`Reason`].
    pub dropped: [u64; Reason::COUNT],
    /// Packets of a link type that nobody here reads: whatever became of them, no function has looked at them.
    pub unread: u64,
    /// History records that were replayed.
    pub replayed: u64,
    /// What happened to flows.
    pub flows: FlowCounters,
}

/// What happened to flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Packet sets that were opened.
    pub opened: u64,
    /// Packet sets that ended by their deadline.
    pub expired: u64,
    /// Packet sets that their function closed.
    pub closed: u64,
    /// Packet sets that had to make room.
    pub evicted: u64,
    /// Packets whose packet set found no room.
    pub orphaned: u64,
    /// Packets whose packet set was turned away ahead of a full table.
    pub early_dropped: u64,
    /// Packets whose packet set was one too many of its source.
    pub limited: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            received: 0,
            received_bytes: 0,
            forwarded: 0,
            replied: 0,
            dropped: [0; Reason::COUNT],
            unread: 0,
            replayed: 0,
            flows: FlowCounters::default(),
        }
    }
}

impl Counters {
    /// Counts the packets that came in.
    #[inline]
    pub(crate) fn receive(&mut self, batch: &Batch) {
        self.received += batch.len() as u64;
        self.received_bytes += batch.packets().iter().map(|packet| u64::from(packet.wire_len)).sum::<u64>();
    }

    /// Counts a packet that no function was shown, if nobody here reads its link type.
    #[inline]
    pub(crate) fn count_unread(&mut self, packet: &Packet) {
        self.unread += u64::from(matches!(packet.link, LinkType::Other(_)));
    }

    /// Counts a packet's verdict.
    #[inline]
    pub fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Forward(_) | Verdict::Rewrite { .. } | Verdict::Transform { .. } => self.forwarded += 1,
            Verdict::Reply(_) => self.replied += 1,
            Verdict::Drop(reason) => self.dropped[usize::from(reason.0) % Reason::COUNT] += 1,
        }
    }

    /// How many packets were dropped, for whatever reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// The reasons that occurred, with their counts, by number.
    pub fn drops(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        self.dropped
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(number, count)| (Reason(number as u8), *count))
    }

    /// Whether every packet that came in is accounted for.
    #[must_use]
    pub fn add_up(&self) -> bool {
        self.received == self.forwarded + self.replied + self.dropped_total()
    }

    /// Adds another core's counts.
    pub fn add(&mut self, other: &Self) {
        let Self { received, received_bytes, forwarded, replied, dropped, unread, replayed, flows } = other;
        self.received += received;
        self.received_bytes += received_bytes;
        self.forwarded += forwarded;
        self.replied += replied;
        self.unread += unread;
        self.replayed += replayed;
        for (mine, theirs) in self.dropped.iter_mut().zip(dropped) {
            *mine += theirs;
        }
        self.flows.add(flows);
    }
}

impl FlowCounters {
    /// Adds another table's counts.
    pub fn add(&mut self, other: &Self) {
        let Self { opened, expired, closed, evicted, orphaned, early_dropped, limited } = other;
        self.opened += opened;
        self.expired += expired;
        self.closed += closed;
        self.evicted += evicted;
        self.orphaned += orphaned;
        self.early_dropped += early_dropped;
        self.limited += limited;
    }

    /// Packet sets that ended, in whatever way.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.expired + self.closed + self.evicted
    }

    /// Whether a table was ever too full for a packet set to stay or to come, or a limit kept one out.
    #[must_use]
    pub const fn was_full(&self) -> bool {
        self.evicted + self.orphaned + self.early_dropped + self.limited > 0
    }
}
