//! What a function over streams hears, and what it can ask for.

use core::fmt;

use memory::Memory;
use nf::{Context, Count, NetworkFunction, PacketCounts, PortId};
use packet::Nanos;
use stream::{Deviation, Gap};

use super::{Direction, Portion};

/// An event in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// A side's next bytes (TCP).
    Data(Direction, &'a [u8]),
    /// A datagram of a side, as far as it was captured (UDP).
    Datagram(Direction, &'a [u8]),
    /// A side's next bytes are missing (TCP).
    Gap(Direction, Gap),
    /// A side's next bytes came in two copies that differ (TCP).
    Deviation(Direction, Deviation),
    /// A side has said all (TCP).
    End(Direction),
}

impl Said<'_> {
    /// The side that it is about.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        match self {
            Self::Data(direction, _)
            | Self::Datagram(direction, _)
            | Self::Gap(direction, _)
            | Self::Deviation(direction, _)
            | Self::End(direction) => *direction,
        }
    }
}

/// The context of a call: packet time, beginnings and counters, and the requests of the function.
pub struct Hearing<'a> {
    now: Nanos,
    counts: Option<&'a PacketCounts>,
    pub(super) wishes: Wishes,
    pub(super) beginnings: [Beginning<'a>; 2],
    /// How many of the bytes that are just told were told before.
    pub(super) held: usize,
    /// How many of the bytes that are just told are to be told again.
    pub(super) hold: usize,
    /// The port for this packet.
    pub(super) port: Option<PortId>,
}

/// The beginning of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beginning<'a> {
    /// Its first bytes, at most as many as the function [keeps](super::StreamFunction::KEEPS), with those that are just told.
    pub bytes: &'a [u8],
    /// True if no byte that follows these will be kept: the side has ended, bytes are missing, or there is no room.
    pub is_complete: bool,
}

/// The requests of a function for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wishes {
    /// By direction: nothing more is wanted.
    pub(super) enough: [bool; 2],
    pub(super) sentence: Sentence,
    /// This packet alone is dropped, for this reason of the function's.
    pub(super) refused: Option<u8>,
}

/// The fate of the packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sentence {
    Forward,
    Drop(u8),
    Reset,
}

impl Wishes {
    const NONE: Self = Self { enough: [false; 2], sentence: Sentence::Forward, refused: None };
}

impl Beginning<'_> {
    const NOTHING: Self = Self { bytes: &[], is_complete: false };
}

impl<'a> Hearing<'a> {
    pub(super) const fn new(now: Nanos, counts: Option<&'a PacketCounts>) -> Self {
        Self { now, counts, wishes: Wishes::NONE, beginnings: [Beginning::NOTHING; 2], held: 0, hold: 0, port: None }
    }

    /// Creates a context with the beginnings of both sides.
    pub(super) const fn seeing<'b>(&self, beginnings: [Beginning<'b>; 2]) -> Hearing<'b>
    where
        'a: 'b,
    {
        Hearing { beginnings, ..*self }
    }

    /// The packet's time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// The beginnings of both sides, by direction, if the function [keeps](super::StreamFunction::KEEPS) any.
    #[must_use]
    pub const fn beginnings(&self) -> &[Beginning<'a>; 2] {
        &self.beginnings
    }

    /// Says that nothing more of this side is wanted. What waits of it is let go.
    pub const fn enough(&mut self, direction: Direction) {
        self.wishes.enough[direction as usize] = true;
    }

    /// Says that nothing more of this session is wanted.
    pub const fn enough_of_both(&mut self) {
        self.wishes.enough = [true; 2];
    }

    /// How many of the bytes that are just told, from the first, were told before and [held](Self::hold).
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Holds the last `count` bytes of those that are just told: they are told again, with those that follow. It has to be less than the
    /// function [holds](super::StreamFunction::HOLDS), or none are held. At a gap and at the side's end, held bytes are let go.
    pub const fn hold(&mut self, count: usize) {
        self.hold = count;
    }

    /// Forwards this packet by a port, if it is of the side that is just heard. If its bytes come again, that packet goes by the same port.
    pub const fn forward_by(&mut self, port: PortId) {
        self.port = Some(port);
    }

    /// Drops this packet and all further ones of the session, for one of the function's own drop reasons, by its number.
    pub const fn drop(&mut self, reason: u8) {
        (self.wishes.enough, self.wishes.sentence) = ([true; 2], Sentence::Drop(reason));
    }

    /// Answers this packet and all further ones of the session with a TCP reset, and drops them. A session of UDP is dropped.
    pub const fn reset(&mut self) {
        (self.wishes.enough, self.wishes.sentence) = ([true; 2], Sentence::Reset);
    }

    /// Drops this packet alone, for one of the function's own drop reasons, by its number. The session goes on.
    pub const fn drop_packet(&mut self, reason: u8) {
        self.wishes.refused = Some(reason);
    }

    /// Counts one under one of the function's own counters, with a number of bytes.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn count(&self, number: usize, bytes: u32) {
        self.counts.into_iter().for_each(|counts| counts.count(Tallies::OWN + number, bytes));
    }

    /// Counts several under one of the function's own counters.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn count_all(&self, number: usize, count: Count) {
        self.counts.into_iter().for_each(|counts| counts.count_all(Tallies::OWN + number, count));
    }

    /// Counts one of the counters of reassembly.
    pub(super) fn tally(&self, counter: Counter, bytes: u32) {
        self.counts.into_iter().for_each(|counts| counts.count(counter.0, bytes));
    }
}

#[cfg(test)]
impl Hearing<'_> {
    /// A context for a call in a test.
    pub(crate) fn in_test(now: Nanos) -> Self {
        Self::new(now, None)
    }

    /// What the call has asked for.
    pub(crate) const fn asked(&self) -> crate::testing::Asked {
        let drops = matches!(self.wishes.sentence, Sentence::Drop(_));
        crate::testing::Asked { port: self.port, drops, holds: self.hold }
    }
}

impl fmt::Debug for Hearing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hearing").field("now", &self.now).field("wishes", &self.wishes).finish_non_exhaustive()
    }
}

/// A counter of reassembly.
#[derive(Clone, Copy, Debug)]
pub struct Counter(usize);

impl Counter {
    #[inline]
    pub(super) fn count<N: NetworkFunction, M: Memory>(self, cx: &Context<'_, N, M>, meta: &Portion) {
        cx.count(self.0, meta.len());
    }
}

/// The counters of reassembly and of the function.
#[derive(Clone, Copy, Debug)]
pub struct Tallies<'a>(&'a PacketCounts);

impl<'a> Tallies<'a> {
    /// Segments that came early, and their bytes.
    pub const EARLY: Counter = Counter(0);
    /// Segments whose payload had all come before.
    pub const REPEATED: Counter = Counter(1);
    /// Gaps, and their bytes.
    pub const GAPS: Counter = Counter(2);
    /// Gaps because of a limit: early segments of one side, or the memory of all.
    pub const LIMITED: Counter = Counter(3);
    /// Deviations, and the bytes of the overlaps.
    pub const DEVIATIONS: Counter = Counter(4);
    /// Segments and datagrams that belong to no valid session.
    pub const INVALID: Counter = Counter(5);
    /// Sessions that were closed.
    pub const CLOSED: Counter = Counter(6);

    /// The counters of reassembly with their names.
    pub const NAMES: [(Counter, &'static str); 7] = [
        (Self::EARLY, "early segments"),
        (Self::REPEATED, "repeated segments"),
        (Self::GAPS, "gaps"),
        (Self::LIMITED, "gaps by a limit"),
        (Self::DEVIATIONS, "deviations"),
        (Self::INVALID, "invalid segments"),
        (Self::CLOSED, "closed sessions"),
    ];

    pub(super) const OWN: usize = Self::NAMES.len();

    /// The counters of a run.
    #[must_use]
    pub const fn new(counts: &'a PacketCounts) -> Self {
        Self(counts)
    }

    /// The value of a counter of reassembly.
    #[must_use]
    pub fn of(&self, counter: Counter) -> Count {
        self.0.get(counter.0)
    }

    /// The value of the function's own counter of this number.
    #[must_use]
    pub fn own(&self, number: usize) -> Count {
        self.0.get(Self::OWN + number)
    }
}
