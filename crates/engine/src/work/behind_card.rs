//! The card ahead of a core, and the connections that may become heavy.

use packet::{FiveTuple, Nanos};
use port::{Card, Returned};

use crate::counters::Counters;
use crate::offload::{Offload, OffloadCounts};

/// A core's card, and what leads to it.
pub(crate) struct BehindCard {
    pub(super) card: Box<dyn Card>,
    policy: Offload,
    /// Connections that may become heavy, by hash. Two of the same place compete.
    candidates: Box<[Candidate]>,
    /// Connections to be taken back before the steps of a burst.
    pub(super) back: Vec<(FiveTuple, Returned)>,
    names: Vec<FiveTuple>,
    pub(super) entries: u64,
    pub(super) counts: OffloadCounts,
    /// Time of the last count of packets that the card has taken and that never came to the core.
    counted: Nanos,
}

/// A connection that may become heavy.
#[derive(Clone, Copy, Default)]
struct Candidate {
    /// The hash of its key.
    hash: u64,
    packets: u32,
    since: Nanos,
    last: Nanos,
}

/// Reason for which connections come back.
#[derive(Clone, Copy)]
pub(super) enum Back {
    ForPacket,
    Ended,
    Evicted,
    Recalled,
}

/// Candidates for each entry of the card.
const CANDIDATES_PER_ENTRY: usize = 4;
/// Interval at which packets are counted that never came to the core.
const COUNTING: Nanos = Nanos::from_millis(100);

impl BehindCard {
    pub(crate) fn new(card: Box<dyn Card>, policy: Offload, entries: usize) -> Self {
        let candidates = (CANDIDATES_PER_ENTRY * entries).next_power_of_two().max(1024);
        Self {
            card,
            policy,
            candidates: vec![Candidate::default(); candidates].into(),
            back: Vec::with_capacity(2 * entries),
            names: Vec::with_capacity(2 * entries),
            entries: 0,
            counts: OffloadCounts::default(),
            counted: Nanos(0),
        }
    }

    pub(crate) const fn counts(&self) -> OffloadCounts {
        self.counts
    }

    /// Takes connections of `names` out of the card.
    fn remove_named(&mut self, why: Back) {
        let mut names = std::mem::take(&mut self.names);
        names.drain(..).for_each(|flow| self.remove(&flow, why));
        self.names = names;
    }

    pub(super) fn remove(&mut self, flow: &FiveTuple, why: Back) {
        let Some(returned) = self.card.remove(flow) else { return };
        let Returned { taken, ahead, .. } = &returned;
        self.entries -= 1;
        // Those that came to the core were counted when they came.
        self.counts.packets += ahead[0].0 + ahead[1].0;
        self.counts.bytes += ahead[0].1 + ahead[1].1;
        debug_assert!(ahead[0].0 + ahead[1].0 <= taken.count(), "what was ahead was taken");
        *match why {
            Back::ForPacket => &mut self.counts.back_for_packet,
            Back::Ended => &mut self.counts.back_ended,
            Back::Evicted => &mut self.counts.evicted,
            Back::Recalled => &mut self.counts.recalled,
        } += 1;
        self.back.push((*flow, returned));
    }

    /// Counts a packet that the function has forwarded. True if its connection is now to be put in.
    pub(super) fn is_heavy(&mut self, hash: u64, now: Nanos) -> bool {
        let Offload { threshold, rate_min, .. } = self.policy;
        let mask = self.candidates.len() - 1;
        // The low bits choose places in tables.
        let candidate = &mut self.candidates[(hash >> 32) as usize & mask];
        if candidate.hash != hash || candidate.packets == 0 {
            if candidate.packets > 1 && now.since(candidate.last) < Nanos::from_secs(1) {
                candidate.packets -= 1;
                return false;
            }
            *candidate = Candidate { hash, packets: 0, since: now, last: now };
        }
        candidate.packets += 1;
        candidate.last = now;
        if candidate.packets < threshold {
            return false;
        }
        let took = now.since(candidate.since);
        let is_fast = u128::from(took.0) * u128::from(rate_min) <= u128::from(candidate.packets) * 1_000_000_000;
        // If it can't be put in now, it is tried again after as many packets.
        candidate.packets = 0;
        is_fast
    }
}

impl BehindCard {
    /// Takes these connections out of the card.
    pub(super) fn recall(&mut self, which: impl Fn(&FiveTuple) -> bool) {
        self.card.all(&mut self.names);
        self.names.retain(which);
        self.remove_named(Back::Recalled);
    }

    /// Counts packets that the card has taken and that never came to the core, now and then, so that counters don't stand still while
    /// connections are in the card.
    pub(super) fn count(&mut self, now: Nanos, counters: &mut Counters) {
        if now.since(self.counted) < COUNTING {
            return;
        }
        self.counted = now;
        let Self { card, counts, .. } = self;
        card.count(&mut |actions, ahead| {
            counts.packets += ahead[0].0 + ahead[1].0;
            counts.bytes += ahead[0].1 + ahead[1].1;
            counters.count_ahead(actions, ahead);
        });
    }

    pub(super) fn recall_ended(&mut self, now: Nanos) {
        self.card.ended(now, &mut self.names);
        self.remove_named(Back::Ended);
    }
}
