//! Packet and flow counters. Always: `received = forwarded + replied + sum of drops`. Copies go out besides.

use nf::{Reason, Verdict};
use packet::{Action, LinkType};
use port::{Ahead, Batch, Packet};

/// The packet counters of a core or a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Packets received.
    pub received: u64,
    /// Their bytes on the wire.
    pub received_bytes: u64,
    /// Packets forwarded.
    pub forwarded: u64,
    /// Packets answered.
    pub replied: u64,
    /// Copies of forwarded packets that went out besides them.
    pub copied: u64,
    /// Packets dropped, by [`Reason`].
    pub dropped: [u64; Reason::COUNT],
    /// Packets of an unknown link type. No function has looked at them, whatever their verdict.
    pub unread: u64,
    /// History records replayed.
    pub replayed: u64,
    /// The flow counters.
    pub flows: FlowCounters,
}

/// The flow counters of a table, a core or a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Flows opened.
    pub opened: u64,
    /// Flows that ended by their deadline.
    pub expired: u64,
    /// Flows that the function closed.
    pub closed: u64,
    /// Flows evicted to make room.
    pub evicted: u64,
    /// Packets whose flow found no room in a full table.
    pub orphaned: u64,
    /// Packets whose flow was refused by early drop.
    pub early_dropped: u64,
    /// Packets whose flow was refused because its source had too many.
    pub limited: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            received: 0,
            received_bytes: 0,
            forwarded: 0,
            replied: 0,
            copied: 0,
            dropped: [0; Reason::COUNT],
            unread: 0,
            replayed: 0,
            flows: FlowCounters::default(),
        }
    }
}

impl Counters {
    /// Counts received packets.
    #[inline]
    pub(crate) fn receive(&mut self, batch: &Batch) {
        self.received += batch.len() as u64;
        self.received_bytes += batch.packets().iter().map(|packet| u64::from(packet.wire_len)).sum::<u64>();
    }

    /// Counts a packet that no function saw, if its link type is unknown.
    #[inline]
    pub(crate) fn count_unread(&mut self, packet: &Packet) {
        self.unread += u64::from(matches!(packet.link, LinkType::Other(_)));
    }

    /// Counts a packet's verdict.
    #[inline]
    pub fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Forward(_) | Verdict::Rewrite { .. } | Verdict::Transform { .. } => self.forwarded += 1,
            Verdict::Copy { .. } => {
                self.forwarded += 1;
                self.copied += 1;
            }
            Verdict::Reply(_) => self.replied += 1,
            Verdict::Drop(reason) => self.dropped[usize::from(reason.0) % Reason::COUNT] += 1,
        }
    }

    /// Counts packets of both sides of a connection that a card has taken and that never came to the core.
    pub(crate) fn count_ahead(&mut self, actions: [Action; 2], ahead: Ahead) {
        for ((packets, bytes), action) in ahead.into_iter().zip(actions) {
            self.received += packets;
            self.received_bytes += bytes;
            match action {
                Action::Across => self.forwarded += packets,
                Action::Drop(reason) => self.dropped[usize::from(reason) % Reason::COUNT] += packets,
            }
        }
    }

    /// Packets dropped for any reason.
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

    /// True if every received packet is accounted for.
    #[must_use]
    pub fn add_up(&self) -> bool {
        self.received == self.forwarded + self.replied + self.dropped_total()
    }

    /// Adds another core's counters.
    pub fn add(&mut self, other: &Self) {
        let Self { received, received_bytes, forwarded, replied, copied, dropped, unread, replayed, flows } = other;
        self.received += received;
        self.received_bytes += received_bytes;
        self.forwarded += forwarded;
        self.replied += replied;
        self.copied += copied;
        self.unread += unread;
        self.replayed += replayed;
        for (mine, theirs) in self.dropped.iter_mut().zip(dropped) {
            *mine += theirs;
        }
        self.flows.add(flows);
    }
}

impl FlowCounters {
    /// Adds another table's counters.
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

    /// Flows that ended in any way.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.expired + self.closed + self.evicted
    }

    /// True if a flow was ever evicted, or refused for a full table or a limit.
    #[must_use]
    pub const fn was_full(&self) -> bool {
        self.evicted + self.orphaned + self.early_dropped + self.limited > 0
    }
}
