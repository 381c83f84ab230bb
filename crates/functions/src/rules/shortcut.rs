//! Short cuts: what the rules say of a packet, said again for those that follow.
//!
//! While a packet goes through the rules, a [`Trail`] notes the counters that it passes, and whether all that was asked comes out the same
//! for every packet of this direction while the connection's state stays. If so, the flow keeps where the way ended, and later packets go there at
//! once and are counted on the way. A rule set that takes over makes all short cuts of the one before void.

use nf::{PacketCounts, PortId, Reason};

use super::meta::RulesMeta;
use super::track::State;

/// The most counters on a way that is kept: rules that match, and policies.
const COUNTERS: usize = 4;

/// What a packet's way through the rules depends on, and the counters on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trail {
    counters: [u32; COUNTERS],
    passed: usize,
    /// Nothing was asked or done so far that may differ for the next packet.
    pub(super) is_steady: bool,
}

/// The end of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Out(PortId),
    Drop(Reason),
}

/// The way of one direction's packets through the rules. Small, because every flow has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortcut {
    /// The counters on the way; behind the last one [`NONE`].
    counters: [u32; COUNTERS],
    /// The number of the port at the end, or of the reason of a drop.
    end: u16,
    drops: bool,
    /// The state of the packets.
    state: State,
    /// The number of the port that they come in by.
    port: u16,
    /// The number of the rule set.
    generation: u16,
}

const NONE: u32 = u32::MAX;

impl Trail {
    pub(super) const NEW: Self = Self { counters: [NONE; COUNTERS], passed: 0, is_steady: true };

    /// Notes a counter.
    #[inline]
    pub(super) fn pass(&mut self, counter: usize) {
        match self.counters.get_mut(self.passed) {
            Some(place) => (*place, self.passed) = (counter as u32, self.passed + 1),
            None => self.is_steady = false,
        }
    }

    /// The short cut to the end of this way, which the packet of `meta` has gone.
    #[inline]
    pub(super) fn shortcut(&self, meta: &RulesMeta, state: State, generation: u16, end: End) -> Option<Shortcut> {
        let keeps = self.is_steady && meta.takes_shortcuts();
        let (drops, end) = match end {
            End::Out(port) => (false, port.0),
            End::Drop(reason) => (true, reason.0.into()),
        };
        keeps.then_some(Shortcut { counters: self.counters, end, drops, state, port: meta.port, generation })
    }
}

impl Shortcut {
    /// Takes a packet the short way, if it may go there; returns where it ends.
    #[inline(always)]
    pub(super) fn take(
        &self,
        meta: &RulesMeta,
        state: State,
        generation: u16,
        counts: Option<&PacketCounts>,
    ) -> Option<End> {
        let is_its_way = (self.state == state) & (self.port == meta.port) & (self.generation == generation);
        if !is_its_way || !meta.takes_shortcuts() {
            return None;
        }
        if let Some(counts) = counts {
            for counter in self.counters {
                if counter == NONE {
                    break;
                }
                counts.count(counter as usize, meta.len.into());
            }
        }
        Some(if self.drops { End::Drop(Reason(self.end as u8)) } else { End::Out(PortId(self.end)) })
    }
}
