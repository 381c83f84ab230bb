//! What is known of a packet's connection while the packet goes through the rules.

use iptables::matches::{
    ConnBytes, ConnBytesMode, Conntrack, Direction as Way, DirectionOrBoth, States, Status as Statuses,
};
use iptables::{Condition, Interval, Network};

use super::meta::{Role, RulesMeta};
use super::tuple::{Tuple, bits};
use crate::tracking::Connection;

/// A connection with what rules keep of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) connection: Connection,
    pub(super) mark: u32,
    pub(super) status: Status,
}

/// What few rules ask of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Packets by direction, and bytes, if rules ask for them.
    pub(super) packets: [u64; 2],
    pub(super) bytes: [u64; 2],
    /// The rules of `connlimit` that count the connection, a bit each.
    pub(super) limits: u64,
    /// The number of the rule set that [`Self::limits`] are of.
    pub(super) generation: u16,
}

impl Tally {
    /// The tally of a connection that no rule has seen yet.
    pub(super) const fn new(generation: u16) -> Self {
        Self { packets: [0; 2], bytes: [0; 2], limits: 0, generation }
    }

    /// Counts a packet.
    #[inline]
    pub(super) fn count(&mut self, is_reply: bool, bytes: u16) {
        self.packets[usize::from(is_reply)] += 1;
        self.bytes[usize::from(is_reply)] += u64::from(bytes);
    }

    /// Forgets what an earlier rule set than this one counted.
    #[inline]
    pub(super) const fn renew(&mut self, generation: u16) {
        if self.generation != generation {
            (self.limits, self.generation) = (0, generation);
        }
    }
}

/// Facts about a connection, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status(u8);

impl Status {
    /// The source is rewritten.
    pub(super) const SNAT: u8 = 1;
    /// The destination is rewritten.
    pub(super) const DNAT: u8 = 2;
    /// The addresses are of IPv6.
    pub(super) const V6: u8 = 4;

    pub(super) const fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    pub(super) const fn set(&mut self, bit: u8) {
        self.0 |= bit;
    }

    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    pub(super) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

/// The state of a packet, with the bits of [`States`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    Invalid,
    New,
    Related,
    Established,
    Untracked,
}

impl State {
    const fn states(self) -> States {
        match self {
            Self::Invalid => States::INVALID,
            Self::New => States::NEW,
            Self::Related => States::RELATED,
            Self::Established => States::ESTABLISHED,
            Self::Untracked => States::UNTRACKED,
        }
    }

    /// True if there is a connection.
    pub(super) const fn has_connection(self) -> bool {
        matches!(self, Self::New | Self::Related | Self::Established)
    }
}

/// The connection of a packet, as rules see it.
#[derive(Debug)]
pub(super) struct Track<'e> {
    pub(super) state: State,
    /// The packet goes against the connection's first one.
    pub(super) is_reply: bool,
    /// The connection is not in the table yet.
    pub(super) is_new: bool,
    /// The connection, if the state has one.
    pub(super) entry: Option<&'e mut Entry>,
    /// Its tally, if rules may ask for it.
    pub(super) tally: Option<&'e mut Tally>,
    /// Tuples of the connection's packets, original first, if they may differ from the packet's own.
    pub(super) tuples: Option<[Tuple; 2]>,
}

impl Track<'_> {
    /// Before the tracker, or where nothing is tracked.
    pub(super) const NONE: Self =
        Self { state: State::Untracked, is_reply: false, is_new: false, entry: None, tally: None, tuples: None };

    /// The tuples of the connection's packets, original first.
    pub(super) fn tuples(&self, meta: &RulesMeta) -> [Tuple; 2] {
        if let Some(tuples) = self.tuples {
            return tuples;
        }
        // An error goes against the packet that it quotes.
        let is_error = matches!(meta.role, Role::Error { .. });
        let tuple = meta.connection_tuple();
        let original = if self.is_reply == is_error { tuple } else { tuple.reversed() };
        [original, original.reversed()]
    }

    /// The tuple that packets of this direction leave with.
    pub(super) fn target(&self, meta: &RulesMeta) -> Tuple {
        self.tuples(meta)[usize::from(!self.is_reply)].reversed()
    }

    /// True if packets of this direction get another source, and another destination.
    pub(super) fn rewrites(&self) -> [bool; 2] {
        let Some(entry) = self.entry.as_deref() else { return [false; 2] };
        let (snat, dnat) = (entry.status.has(Status::SNAT), entry.status.has(Status::DNAT));
        if self.is_reply { [dnat, snat] } else { [snat, dnat] }
    }

    /// True if the packet's state is in a set of bits.
    #[inline(always)]
    pub(super) const fn is_in(&self, states: u8) -> bool {
        states >> self.state as u8 & 1 == 1
    }

    /// The test of `-m conntrack`.
    pub(super) fn passes(&self, test: &Conntrack, meta: &RulesMeta) -> bool {
        let entry = self.entry.as_deref();
        if let Some(states) = &test.states {
            let mut has = self.state.states();
            if let Some(entry) = entry {
                for (bit, state) in [(Status::SNAT, States::SNAT), (Status::DNAT, States::DNAT)] {
                    if entry.status.has(bit) {
                        has = has.union(state);
                    }
                }
            }
            if !states.holds(states.value.intersects(has)) {
                return false;
            }
        }
        let Some(entry) = entry else {
            // Without a connection only the state is compared.
            return test.states.is_some();
        };
        if let Some(way) = test.direction
            && self.is_reply != (way == Way::Reply)
        {
            return false;
        }
        let [original, reply] = self.tuples(meta);
        let network = |condition: &Option<Condition<Network>>, address: u128| {
            condition.as_ref().is_none_or(|condition| {
                condition.holds(bits(condition.value.mask) & address == bits(condition.value.address))
            })
        };
        let port = |condition: &Option<Condition<Interval<u16>>>, port: u16| {
            condition.as_ref().is_none_or(|condition| condition.holds(condition.value.contains(&port)))
        };
        let addresses = network(&test.original_source, original.src)
            && network(&test.original_destination, original.dst)
            && network(&test.reply_source, reply.src)
            && network(&test.reply_destination, reply.dst);
        let ports = port(&test.original_source_port, original.ports[0])
            && port(&test.original_destination_port, original.ports[1])
            && port(&test.reply_source_port, reply.ports[0])
            && port(&test.reply_destination_port, reply.ports[1]);
        let protocol =
            test.protocol.as_ref().is_none_or(|protocol| protocol.holds(protocol.value == original.protocol));
        addresses
            && ports
            && protocol
            && test.status.as_ref().is_none_or(|status| status.holds(self.has_status(entry, status.value)))
    }

    fn has_status(&self, entry: &Entry, wanted: Statuses) -> bool {
        let facts = [
            (Statuses::SEEN_REPLY, entry.connection.answered()),
            (Statuses::ASSURED, entry.connection.assured()),
            (Statuses::CONFIRMED, !self.is_new),
        ];
        let is_any = |(status, holds): (Statuses, bool)| holds && wanted.contains(status);
        // No bit is asked for with `NONE`, which nothing passes.
        facts.into_iter().any(is_any)
    }

    /// The test of `-m connbytes`.
    pub(super) fn counts(&self, test: &ConnBytes) -> bool {
        let Some(tally) = self.tally.as_deref() else { return false };
        let sum = |[original, reply]: [u64; 2]| match test.direction {
            DirectionOrBoth::Original => original,
            DirectionOrBoth::Reply => reply,
            DirectionOrBoth::Both => original + reply,
        };
        let (packets, bytes) = (sum(tally.packets), sum(tally.bytes));
        let value = match test.mode {
            ConnBytesMode::Packets => packets,
            ConnBytesMode::Bytes => bytes,
            ConnBytesMode::Average => bytes.checked_div(packets).unwrap_or(0),
        };
        test.count.holds(test.count.value.contains(&value))
    }
}
