//! The TCP state machine of RFC 9293 as a device in the middle sees it: states and window checks of the Linux tracker
//! (kernel 6), after van Rooij's "Real Stateful TCP Packet Filtering in IP Filter" (SANE 2000).
//!
//! The tracker believes a segment only if it fits what both sides have sent so far. It forwards a segment that it can't judge, and
//! learns from the answer. A segment that no receiver would accept is invalid.

mod segment;
mod state;

use core::hint::{cold_path, select_unpredictable};
use core::mem::replace;

use packet::{Nanos, TcpSide, TcpWindows};
pub(super) use segment::Head;
pub use segment::{Event, Segment};
pub use state::State;
use state::{Next, ordinarily, transition};

use super::words::TRACKER_WORDS;
use super::{Cause, Direction, Outcome, TcpRules};

/// The state of one TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracker {
    windows: [Window; 2],
    last: Last,
    state: State,
    retransmissions: u8,
    status: u8,
}

/// The state of one side: progress of its data and acknowledgements, and its options. All numbers are in the side's own sequence space,
/// except `max_ack`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    /// Sequence number after the last byte that the side has sent.
    end: u32,
    /// Sequence number up to which the other side has allowed it to send.
    max_end: u32,
    /// The largest window that the side has offered; 0 until its first segment.
    max_win: u32,
    /// The highest acknowledgement number that the side has sent.
    max_ack: u32,
    marks: Marks,
}

impl Window {
    const fn side(&self) -> TcpSide {
        let Self { end, max_end, max_win, max_ack, marks } = *self;
        let unacknowledged = marks.has(Marks::UNACKNOWLEDGED);
        TcpSide { end, max_end, max_win, max_ack, scale: marks.scale, unacknowledged }
    }

    const fn set_side(&mut self, side: &TcpSide) {
        let TcpSide { end, max_end, max_win, max_ack, unacknowledged, .. } = *side;
        (self.end, self.max_end, self.max_win, self.max_ack) = (end, max_end, max_win, max_ack);
        let flag = if unacknowledged { Marks::UNACKNOWLEDGED } else { 0 };
        self.marks.flags = self.marks.flags & !Marks::UNACKNOWLEDGED | flag;
    }
}

/// Window scale and flags of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks {
    scale: u8,
    flags: u8,
}

impl Marks {
    /// The side's SYN offered a window scale.
    const WINDOW_SCALE: u8 = 0x01;
    /// The side's SYN allowed selective acknowledgements.
    const SACK: u8 = 0x02;
    /// The side sent the first FIN.
    const CLOSE_INIT: u8 = 0x04;
    /// The side's windows are guesses, because the connection was picked up midstream: be liberal.
    const LIBERAL: u8 = 0x08;
    /// `max_ack` is valid.
    const MAX_ACK_SET: u8 = 0x10;
    /// The side has sent data that the other hasn't acknowledged.
    const UNACKNOWLEDGED: u8 = 0x80;

    const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The last segment. A segment that was forwarded without being believed stays here until the answer shows if the two sides are ahead
/// of the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    head: Head,
    /// Scale and flags of an unbelieved SYN, as in [`Marks`]; `SIMULTANEOUS` and `CHALLENGE` of the connection.
    marks: Marks,
}

/// Both sides sent SYN.
const SIMULTANEOUS: u8 = 0x20;
/// A SYN in `LastAck` may cause a challenge ACK (RFC 5961), which is not the last ACK.
const CHALLENGE: u8 = 0x40;

/// The other side has sent something.
const SEEN_REPLY: u8 = 0x01;
/// Data can flow in both directions: the connection is not evicted from a full table.
const ASSURED: u8 = 0x02;
/// The idle timeout exceeds `idle_unacknowledged`. The same bit as [`Marks::UNACKNOWLEDGED`], which excludes it.
pub(super) const LONG: u8 = Marks::UNACKNOWLEDGED;
/// The connection is established, assured and answered, and window and acknowledgements of both sides are known. [`Tracker::flow`] tests
/// this one bit.
const OPEN: u8 = 0x04;

/// Minimum distance that acknowledgements may lag behind the data.
const ACK_WINDOW_MIN: u32 = 66_000;

impl Tracker {
    /// Creates the state for a connection's first segment. Then call [`step`](Self::step) with the same segment.
    ///
    /// # Errors
    /// If the segment can't open a connection.
    #[inline]
    pub fn open(segment: &Segment, rules: &TcpRules) -> Result<Self, Cause> {
        let window = u32::from(segment.window()).max(1);
        let marks = segment.offer(0);
        let mut opener = Window { end: segment.end(), max_end: segment.end(), max_win: window, max_ack: 0, marks };
        let mut answerer = Window::default();
        match segment.head.event {
            Event::Syn => {}
            Event::Ack if rules.loose => {
                opener.max_end = segment.end().wrapping_add(window);
                opener.marks = Marks { scale: 0, flags: Marks::SACK | Marks::LIBERAL };
                answerer.marks = opener.marks;
            }
            Event::Ack | Event::SynAck | Event::Fin | Event::Rst | Event::Nothing => return Err(Cause::NoConnection),
        }
        let last = Last { head: Head::before(segment), marks: Marks::default() };
        Ok(Self { windows: [opener, answerer], last, state: State::None, retransmissions: 0, status: 0 })
    }

    /// Handles any segment, including those that the faster [`flow`](Self::flow) handles.
    #[inline]
    pub fn step(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Outcome {
        let outcome = self.step_by_table(segment, direction, rules);
        if direction == Direction::Reply && matches!(outcome, Outcome::Valid(_) | Outcome::Kept) {
            self.status |= SEEN_REPLY;
        }
        self.mark_open();
        outcome
    }

    /// Updates the bit [`OPEN`].
    #[inline(always)]
    const fn mark_open(&mut self) {
        let [one, other] = &self.windows;
        let is_known = (one.max_win != 0) & (other.max_win != 0);
        let is_acknowledged = self.windows[0].marks.flags & self.windows[1].marks.flags & Marks::MAX_ACK_SET != 0;
        let is_assured = self.status & (SEEN_REPLY | ASSURED) == SEEN_REPLY | ASSURED;
        let is_open = is_known & is_acknowledged & is_assured & matches!(self.state, State::Established);
        self.status = self.status & !OPEN | if is_open { OPEN } else { 0 };
    }

    /// Fast path: handles data and acknowledgements of an open connection within the windows. Returns the idle timeout, or `None`
    /// without a change if [`step`](Self::step) must handle the segment.
    #[inline(always)]
    pub fn flow(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Option<Nanos> {
        let Head { seq, end, ack, window, event, .. } = segment.head;
        // The most frequent exceptions are closed windows, SACK blocks and retransmissions; all are rare.
        if (event != Event::Ack) | (self.status & OPEN == 0) | (window == 0) | (segment.sack != ack) {
            return None;
        }
        let sides = self.sides(direction);
        let moved = Moved { end, ack, sack: ack, window, syn: false, has_ack: true };
        let is_within = fits(seq, end, ack, &sides.sender, &sides.receiver, true) & !after(end, sides.sender.max_end);
        if !is_within || self.last.head.is_like(&segment.head) {
            return None;
        }
        self.last.head = segment.head;
        self.retransmissions = 0;
        // Loaded again to reduce register pressure.
        let mut sides = self.sides(direction);
        sides.advance(&moved, true);
        self.set_sides(direction, &sides, true);

        // Whether data is unacknowledged is unpredictable, so no branch. Both timeouts are loaded first, because the condition is on
        // the critical path.
        let flags = sides.sender.marks.flags | sides.receiver.marks.flags;
        self.status = OPEN | ASSURED | SEEN_REPLY | rules.long_if_open & !flags;
        let [idle, owed] = rules.idle[State::Established as usize];
        Some(select_unpredictable(flags & Marks::UNACKNOWLEDGED != 0, owed, idle))
    }

    /// Second fast path: handles an ACK or a FIN in any state, in the usual cases. Returns as [`flow`](Self::flow).
    #[inline(always)]
    pub fn flow_on(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Option<Nanos> {
        let (old, event) = (self.state, segment.head.event);
        let new = ordinarily(old, event, direction)?;
        if self.last.marks.has(SIMULTANEOUS | CHALLENGE) {
            return None;
        }
        let Head { seq, end, ack, window, .. } = segment.head;
        let mut sides = self.sides(direction);
        let sack = if sides.receiver.marks.has(Marks::SACK) { segment.sack } else { ack };
        if !((sides.sender.max_win != 0) & fits(seq, end, sack, &sides.sender, &sides.receiver, false)) {
            return None;
        }
        let moved = Moved { end, ack, sack, window, syn: false, has_ack: true };
        sides.advance(&moved, false);
        let closes = (new == State::FinWait) & (old != State::FinWait);
        sides.sender.marks.flags |= if closes { Marks::CLOSE_INIT } else { 0 };
        self.set_sides(direction, &sides, false);
        if event == Event::Ack {
            self.note(segment);
        }
        self.last.head.take_event_of(&segment.head);
        self.state = new;

        let is_unanswered = (new == State::Established) & !self.answered();
        let is_owed = sides.are_unacknowledged() | is_unanswered;
        let mut idle = rules.idle[new as usize][usize::from(is_owed)];
        if (self.retransmissions >= rules.retransmissions_max) | (self.last.head.window == 0) {
            idle = self.idle(event, rules);
            if is_unanswered {
                idle = idle.min(rules.idle_unacknowledged);
            }
        }
        let mut status = self.status & !LONG;
        if !is_unanswered && new == State::Established && matches!(old, State::SynRecv | State::Established) {
            status |= ASSURED;
        }
        status |= if direction == Direction::Reply { SEEN_REPLY } else { 0 };
        self.status = status | if idle > rules.idle_unacknowledged { LONG } else { 0 };
        self.mark_open();
        Some(idle)
    }

    /// Returns the windows that segments of an open connection are checked against, if [`flow`](Self::flow) would handle them; `None` in other states.
    pub(super) const fn windows(&self, opener_first: bool) -> Option<TcpWindows> {
        if self.status & OPEN == 0 {
            return None;
        }
        let [one, other] = [self.windows[0].side(), self.windows[1].side()];
        let sides = if opener_first { [one, other] } else { [other, one] };
        Some(TcpWindows { sides, last: self.last.head.told() })
    }

    /// Takes over the windows after segments that [`TcpWindows::take`] has taken, as [`flow`](Self::flow) would have.
    pub(super) fn set_windows(&mut self, windows: &TcpWindows, opener_first: bool, rules: &TcpRules) {
        let TcpWindows { sides: [first, second], last } = windows;
        let [one, other] = if opener_first { [first, second] } else { [second, first] };
        self.windows[0].set_side(one);
        self.windows[1].set_side(other);
        self.last.head = Head::of_ack(last);
        self.retransmissions = 0;
        let flags = self.windows[0].marks.flags | self.windows[1].marks.flags;
        self.status = OPEN | ASSURED | SEEN_REPLY | rules.long_if_open & !flags;
    }

    /// The connection's state.
    #[inline]
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns true if the connection is opening, and the side begins with this SYN or SYN-ACK. Others may be strays.
    #[must_use]
    pub fn is_begun_by(&self, segment: &Segment, direction: Direction) -> bool {
        self.state.is_opening() && self.windows[direction as usize].end == segment.end()
    }

    /// Returns true if data can flow in both directions.
    #[inline]
    #[must_use]
    pub const fn assured(&self) -> bool {
        self.status & ASSURED != 0
    }

    /// Returns true if the side that didn't open the connection has sent anything.
    #[inline]
    #[must_use]
    pub const fn answered(&self) -> bool {
        self.status & SEEN_REPLY != 0
    }

    /// The tracker as words, and its status.
    pub(super) fn to_words(self) -> ([u64; TRACKER_WORDS], u8) {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [one, other] = self.windows;
        let bytes = [
            one.marks.scale,
            one.marks.flags,
            other.marks.scale,
            other.marks.flags,
            self.last.marks.scale,
            self.last.marks.flags,
            self.state as u8,
            self.retransmissions,
        ];
        let [first, second] = self.last.head.to_words();
        let words = [
            pair(one.end, one.max_end),
            pair(one.max_win, one.max_ack),
            pair(other.end, other.max_end),
            pair(other.max_win, other.max_ack),
            u64::from_le_bytes(bytes),
            first,
            second,
        ];
        (words, self.status)
    }

    /// Converts back from words of [`Self::to_words`].
    pub(super) fn from_words(words: [u64; TRACKER_WORDS], status: u8) -> Self {
        let [a, b, c, d, bytes, first, second] = words;
        let [scale, flags, other_scale, other_flags, last_scale, last_flags, state, retransmissions] =
            bytes.to_le_bytes();
        let window = |ends: u64, numbers: u64, marks| Window {
            end: ends as u32,
            max_end: (ends >> 32) as u32,
            max_win: numbers as u32,
            max_ack: (numbers >> 32) as u32,
            marks,
        };
        let marks = Marks { scale: last_scale, flags: last_flags };
        Self {
            windows: [
                window(a, b, Marks { scale, flags }),
                window(c, d, Marks { scale: other_scale, flags: other_flags }),
            ],
            last: Last { head: Head::from_words([first, second]), marks },
            state: State::ALL.get(usize::from(state)).copied().unwrap_or(State::None),
            retransmissions,
            status,
        }
    }

    #[inline(always)]
    fn step_by_table(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Outcome {
        let old = self.state;
        if segment.head.event == Event::Rst {
            return self.reset(segment, direction, rules);
        }
        let new = match transition(old, segment.head.event, direction) {
            Next::Invalid => return Outcome::Invalid(Cause::InvalidState),
            Next::Ignore => return self.forward_unbelieved(segment, direction, rules),
            // RFC 9293 3.6.1: a SYN may reopen an ended connection. Without a FIN or a reset from this side the connection may still
            // be alive.
            Next::To(State::SynSent) if matches!(old, State::TimeWait | State::Close) => {
                let closed = (self.windows[0].marks.flags | self.windows[1].marks.flags) & Marks::CLOSE_INIT != 0;
                let reset = self.last.head.is_of_side(&segment.head) && self.last.head.event == Event::Rst;
                return if closed || reset {
                    Outcome::Reopens
                } else {
                    self.forward_unbelieved(segment, direction, rules)
                };
            }
            Next::To(State::TimeWait) if self.is_challenge(segment) => {
                self.last.marks.flags &= !CHALLENGE;
                return Outcome::Kept;
            }
            Next::To(State::SynSent2) => {
                self.last.marks.flags |= SIMULTANEOUS;
                State::SynSent2
            }
            // After a simultaneous open, each side acknowledges the other's SYN: this is the second ACK.
            Next::To(State::SynRecv)
                if direction == Direction::Reply
                    && segment.head.event == Event::Ack
                    && self.last.marks.has(SIMULTANEOUS) =>
            {
                State::Established
            }
            Next::To(new) => new,
        };
        self.follow(segment, direction, old, new, rules)
    }

    /// Returns true for an ACK in `LastAck` that answers a stray SYN (RFC 5961 4.2) and not the FIN.
    fn is_challenge(&self, segment: &Segment) -> bool {
        self.state == State::LastAck
            && segment.head.event == Event::Ack
            && !self.last.head.is_of_side(&segment.head)
            && self.last.head.event == Event::Syn
            && self.last.marks.has(CHALLENGE)
    }

    /// Forwards a segment without believing it: the tracker may hold a dead connection while the two sides open a new one. The segment is
    /// stored, because the answer will tell.
    #[inline(never)]
    fn forward_unbelieved(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Outcome {
        let answers_unbelieved_syn = segment.head.event == Event::SynAck
            && self.last.head.event == Event::Syn
            && !self.last.head.is_of_side(&segment.head)
            && segment.ack() == self.last.head.end;
        if answers_unbelieved_syn {
            let opener = direction as usize ^ 1;
            self.windows[opener].end = self.last.head.end;
            self.windows[opener].max_end = self.last.head.end;
            self.windows[opener].max_win = u32::from(self.last.head.window).max(1);
            self.last.marks.flags &= !CHALLENGE;
            self.windows[opener].marks = Marks {
                scale: self.last.marks.scale,
                flags: self.last.marks.flags & (Marks::WINDOW_SCALE | Marks::SACK),
            };
            let answerer = &mut self.windows[opener ^ 1];
            *answerer = Window { marks: answerer.marks, ..Window::default() };
            answerer.marks.flags &= Marks::LIBERAL;
            return self.follow_apart(segment, direction, State::SynSent, State::SynRecv, rules);
        }

        let ack = replace(&mut self.last.head, segment.head).ack;
        self.last.head.ack = ack;
        if segment.head.event == Event::Syn && direction == Direction::Original {
            self.last.marks = segment.offer(0);
            if self.state == State::LastAck {
                self.last.marks.flags |= CHALLENGE;
            }
        }
        // The reset that answers a challenge ACK will carry the number that the ACK acknowledged.
        if self.state == State::SynSent && segment.head.event == Event::Ack && direction == Direction::Reply {
            self.last.head.ack = segment.ack();
        }
        Outcome::Kept
    }

    /// Handles a reset. It ends a connection only if it has the next expected sequence number (RFC 5961 3.2). A near miss makes a real
    /// receiver send a challenge ACK, so it doesn't end the connection here.
    #[inline(never)]
    fn reset(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Outcome {
        let old = self.state;
        // Once a connection is closing, its five-tuple may be in use again, and the state here is stale.
        if matches!(old, State::FinWait | State::CloseWait | State::LastAck | State::TimeWait | State::Close) {
            return self.apply_transition(segment, direction, old, State::Close, rules);
        }
        let mut new = State::Close;
        let peer = direction as usize ^ 1;
        if self.windows[peer].marks.has(Marks::MAX_ACK_SET) && self.last.head.event != Event::Syn {
            let expected = self.windows[peer].max_ack;
            let established = old == State::Established && self.assured();
            let answers_unbelieved = segment.seq() == 0 && !established;
            if !answers_unbelieved {
                if before(segment.seq(), expected) && !rules.ignore_invalid_rst {
                    return Outcome::Invalid(Cause::InvalidRst);
                }
                let follows_its_data = self.last.head.event == Event::Ack
                    && self.last.head.is_of_side(&segment.head)
                    && segment.seq() == self.last.head.end;
                if established && segment.seq() != expected && !follows_its_data {
                    new = old;
                }
            }
            if new == State::Close {
                return self.follow_apart(segment, direction, old, new, rules);
            }
        }
        // A reset that answers an unbelieved SYN or ACK: the known windows don't apply to it.
        let answers_syn =
            self.answered() && self.last.head.event == Event::Syn && !self.last.head.is_of_side(&segment.head);
        let answers_ack = !self.assured() && self.last.head.event == Event::Ack;
        let answers_challenge = old == State::SynSent
            && self.last.head.event == Event::Ack
            && self.last.head.is_of_side(&segment.head) == (direction == Direction::Reply)
            && segment.seq() == self.last.head.ack;
        if ((answers_syn || answers_ack) && segment.ack() == self.last.head.end) || answers_challenge {
            return self.apply_transition(segment, direction, old, new, rules);
        }
        self.follow_apart(segment, direction, old, new, rules)
    }

    /// [`follow`](Self::follow) as a call, for rare segments.
    #[inline(never)]
    fn follow_apart(
        &mut self,
        segment: &Segment,
        direction: Direction,
        old: State,
        new: State,
        rules: &TcpRules,
    ) -> Outcome {
        self.follow(segment, direction, old, new, rules)
    }

    /// Checks the windows and applies the transition. Inlined for openings and closings.
    #[inline(always)]
    fn follow(&mut self, segment: &Segment, direction: Direction, old: State, new: State, rules: &TcpRules) -> Outcome {
        match self.check(segment, direction, rules) {
            Fit::In => self.apply_transition(segment, direction, old, new, rules),
            Fit::Ignored => Outcome::Kept,
            Fit::Out => self.doubt(segment, rules),
        }
    }

    /// Applies a transition: the new state and its idle timeout.
    fn apply_transition(
        &mut self,
        segment: &Segment,
        direction: Direction,
        old: State,
        new: State,
        rules: &TcpRules,
    ) -> Outcome {
        let event = segment.head.event;
        self.last.head.take_event_of(&segment.head);
        self.state = new;
        if new == State::FinWait && old != State::FinWait {
            self.windows[direction as usize].marks.flags |= Marks::CLOSE_INIT;
        }

        let mut idle = self.idle(event, rules);
        if !self.answered() {
            // A reset before any answer: there never was a connection.
            if event == Event::Rst {
                return Outcome::Ends;
            }
            // A retransmitted SYN must not extend an unanswered connection.
            if event == Event::Syn && old == State::SynSent {
                return Outcome::Kept;
            }
            if new == State::Established {
                idle = idle.min(rules.idle_unacknowledged);
            }
        } else if new == State::Established && matches!(old, State::SynRecv | State::Established) {
            self.status |= ASSURED;
        }
        let long = if idle > rules.idle_unacknowledged { LONG } else { 0 };
        self.status = self.status & !LONG | long;
        Outcome::Valid(idle)
    }

    /// Returns the idle timeout: shorter if a side gets no answer.
    #[inline(always)]
    fn idle(&self, event: Event, rules: &TcpRules) -> Nanos {
        let idle = rules.idle[self.state as usize][0];
        if self.retransmissions >= rules.retransmissions_max && idle > rules.idle_retransmitted {
            rules.idle_retransmitted
        } else if event == Event::Rst {
            rules.idle[State::Close as usize][0]
        } else if (self.windows[0].marks.flags | self.windows[1].marks.flags) & Marks::UNACKNOWLEDGED != 0
            && idle > rules.idle_unacknowledged
        {
            rules.idle_unacknowledged
        } else if self.last.head.window == 0 {
            idle.min(rules.idle_retransmitted)
        } else {
            idle
        }
    }

    /// Handles a segment outside the windows. If both sides in turn close the connection, it gets a shorter timeout, even though their
    /// sequence numbers don't fit.
    #[cold]
    fn doubt(&mut self, segment: &Segment, rules: &TcpRules) -> Outcome {
        if self.assured() && matches!(segment.head.event, Event::Fin | Event::Rst) {
            if !self.last.head.is_of_side(&segment.head) && matches!(self.last.head.event, Event::Fin | Event::Rst) {
                if self.status & LONG != 0 {
                    self.status &= !LONG;
                    return Outcome::InvalidAndIdle(Cause::OutOfWindow, rules.idle_unacknowledged);
                }
            } else {
                self.last.head.take_event_of(&segment.head);
            }
        }
        Outcome::Invalid(Cause::OutOfWindow)
    }

    /// Checks a segment against the windows, and advances them if it fits.
    fn check(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Fit {
        let event = segment.head.event;
        let (of_sender, of_receiver) = (direction as usize, direction as usize ^ 1);
        let Segment { head: Head { mut seq, mut end, mut ack, .. }, mut sack } = *segment;
        let syn = matches!(event, Event::Syn | Event::SynAck);
        let has_ack = segment.has_ack();
        if !self.windows[of_receiver].marks.has(Marks::SACK) {
            sack = ack;
        }

        if self.windows[of_sender].max_win == 0 {
            if syn {
                self.begin(segment, direction);
                if !has_ack {
                    return Fit::In;
                }
            } else {
                self.pick_up(segment, sack, direction);
            }
        } else if syn
            && after(end, self.windows[of_sender].end)
            && matches!(self.state, State::SynSent | State::SynRecv)
        {
            // The side restarted with a later sequence number.
            self.begin(segment, direction);
            if direction == Direction::Reply && !has_ack {
                return Fit::In;
            }
        }

        // Without an acknowledgement there is nothing to check. Some stacks set ACK on resets and leave the number 0.
        if !has_ack || (event == Event::Rst && ack == 0) {
            ack = self.windows[of_receiver].end;
            sack = ack;
        }
        if event == Event::Rst && seq == 0 && self.state == State::SynSent {
            seq = self.windows[of_sender].end;
            end = seq;
        }

        if !fits(seq, end, sack, &self.windows[of_sender], &self.windows[of_receiver], false) {
            return self.misfit(seq, end, sack, direction, rules);
        }
        let moved = Moved { end, ack, sack, window: segment.window(), syn, has_ack };
        let mut sides = self.sides(direction);
        sides.advance(&moved, false);
        self.set_sides(direction, &sides, false);
        if event == Event::Ack {
            self.note(segment);
        }
        Fit::In
    }

    /// Copies both sides out, sender first.
    #[inline(always)]
    const fn sides(&self, direction: Direction) -> Sides {
        let (of_sender, of_receiver) = (direction as usize, direction as usize ^ 1);
        Sides { sender: self.windows[of_sender], receiver: self.windows[of_receiver] }
    }

    /// Stores the fields that [`Sides::advance`] changes. For an open connection, only those that can change within the windows.
    #[inline(always)]
    const fn set_sides(&mut self, direction: Direction, sides: &Sides, is_open: bool) {
        let (of_sender, of_receiver) = (direction as usize, direction as usize ^ 1);
        let (sender, receiver) = (&sides.sender, &sides.receiver);
        self.windows[of_sender].end = sender.end;
        self.windows[of_sender].max_win = sender.max_win;
        self.windows[of_sender].max_ack = sender.max_ack;
        self.windows[of_receiver].max_end = receiver.max_end;
        if !is_open {
            self.windows[of_receiver].max_win = receiver.max_win;
        }
        self.windows[of_sender].marks.flags = sender.marks.flags;
        self.windows[of_receiver].marks.flags = receiver.marks.flags;
    }

    /// Stores an ACK that fits, and counts it if it repeats the last segment.
    #[inline(always)]
    fn note(&mut self, segment: &Segment) {
        let is_like = self.last.head.is_like(&segment.head);
        self.retransmissions = if is_like { self.retransmissions.saturating_add(1) } else { 0 };
        self.last.head = segment.head;
    }

    /// Initialises a side from its first SYN, or from one that restarts it.
    fn begin(&mut self, segment: &Segment, direction: Direction) {
        let sender = direction as usize;
        let window = &mut self.windows[sender];
        window.end = segment.end();
        window.max_end = segment.end();
        window.max_win = u32::from(segment.window()).max(1);
        self.windows[sender].marks = segment.offer(self.windows[sender].marks.flags & Marks::LIBERAL);
        // RFC 7323 2.2: windows are scaled only if both sides offered it.
        let both = self.windows[0].marks.flags & self.windows[1].marks.flags & Marks::WINDOW_SCALE != 0;
        if direction == Direction::Reply && !both {
            self.windows[0].marks.scale = 0;
            self.windows[1].marks.scale = 0;
        }
    }

    /// Initialises a side from its first segment that is seen, if its SYN was not seen.
    fn pick_up(&mut self, segment: &Segment, sack: u32, direction: Direction) {
        let sender = direction as usize;
        let window = (u32::from(segment.window()) << self.windows[sender].marks.scale).max(1);
        self.windows[sender].end = segment.end();
        self.windows[sender].max_win = window;
        self.windows[sender].max_end = segment.end().wrapping_add(window);
        let receiver = &mut self.windows[sender ^ 1];
        if receiver.max_win == 0 {
            receiver.end = sack;
            receiver.max_end = sack;
        } else if sack == receiver.end.wrapping_add(1) {
            // Probably the answer to a keep-alive, which repeats the byte before the next.
            receiver.end = sack;
        }
    }

    /// Decides on a segment that violates a window bound.
    #[cold]
    fn misfit(&mut self, seq: u32, end: u32, sack: u32, direction: Direction, rules: &TcpRules) -> Fit {
        let (of_sender, of_receiver) = (direction as usize, direction as usize ^ 1);
        let (sender, receiver) = (self.windows[of_sender], self.windows[of_receiver]);
        let liberal = rules.liberal || self.windows[of_sender].marks.has(Marks::LIBERAL);
        let ack_known = at_most(sack, receiver.end);
        let ack_recent = at_least(sack, receiver.end.wrapping_sub(sender.max_win.max(ACK_WINDOW_MIN)));
        let data_new = at_least(end, sender.end.wrapping_sub(receiver.max_win));

        let fit = if !at_most(seq, sender.max_end) {
            // Some stacks send a little more than the offered window. The segment is not believed, but its acknowledgement must not
            // look like one of data that was never sent.
            let overshoot = end.wrapping_sub(sender.max_end).wrapping_add(1);
            if receiver.max_win != 0 && data_new && ack_recent && ack_known && overshoot <= receiver.max_win {
                self.windows[of_sender].end = end;
                self.windows[of_sender].marks.flags |= Marks::UNACKNOWLEDGED;
                Fit::Ignored
            } else {
                Fit::Out
            }
        } else if !ack_known {
            Fit::Out
        } else {
            // Old data or an old acknowledgement: harmless, but doesn't extend the connection.
            Fit::Ignored
        };
        if liberal { Fit::In } else { fit }
    }
}

/// Returns true if a segment satisfies all four window bounds. If `is_open`, the receiver's window is known and not tested. Branch-free,
/// because the bounds nearly always hold.
#[inline(always)]
fn fits(seq: u32, end: u32, sack: u32, sender: &Window, receiver: &Window, is_open: bool) -> bool {
    at_most(seq, sender.max_end)
        & at_most(sack, receiver.end)
        & ((!is_open & (receiver.max_win == 0)) | at_least(end, sender.end.wrapping_sub(receiver.max_win)))
        & at_least(sack, receiver.end.wrapping_sub(sender.max_win.max(ACK_WINDOW_MIN)))
}

/// The result of a window check.
enum Fit {
    In,
    /// It is forwarded and changes nothing.
    Ignored,
    Out,
}

/// The numbers of a segment that fits, corrected where the header's are not valid.
struct Moved {
    end: u32,
    ack: u32,
    sack: u32,
    window: u16,
    syn: bool,
    has_ack: bool,
}

/// Copies of both sides' state, sender and receiver. In place, the compiler can't prove that the two don't alias, and each store to one
/// would delay the next load of the other.
struct Sides {
    sender: Window,
    receiver: Window,
}

impl Sides {
    /// Advances both sides' windows by a segment that fits. If `is_open`, known fields are not tested.
    #[inline(always)]
    fn advance(&mut self, moved: &Moved, is_open: bool) {
        let &Moved { end, ack, sack, .. } = moved;
        let scale = if moved.syn { 0 } else { self.sender.marks.scale };
        let window = u32::from(moved.window) << scale;

        let sender = &mut self.sender;
        sender.max_win = sender.max_win.max(window.wrapping_add(sack.wrapping_sub(ack)));
        let is_new = after(end, sender.end);
        sender.end = select_unpredictable(is_new, end, sender.end);
        sender.marks.flags |= if is_new { Marks::UNACKNOWLEDGED } else { 0 };
        if moved.has_ack {
            if !is_open && !sender.marks.has(Marks::MAX_ACK_SET) {
                sender.max_ack = ack;
                sender.marks.flags |= Marks::MAX_ACK_SET;
            }
            sender.max_ack = select_unpredictable(after(ack, sender.max_ack), ack, sender.max_ack);
        }

        let receiver = &mut self.receiver;
        if after(end, sender.max_end) {
            // Data beyond the receiver's window is rare.
            cold_path();
            if receiver.max_win != 0 {
                receiver.max_win = receiver.max_win.wrapping_add(end.wrapping_sub(sender.max_end));
            }
        }
        let allowed = sack.wrapping_add(window);
        if at_least(allowed, receiver.max_end) {
            // A closed window may still be probed with one byte.
            receiver.max_end = allowed.wrapping_add(u32::from(moved.window == 0));
        }
        self.receiver.marks.flags &= if ack == receiver.end { !Marks::UNACKNOWLEDGED } else { !0 };
    }

    /// Returns true if either side has sent data that the other hasn't acknowledged.
    #[inline(always)]
    const fn are_unacknowledged(&self) -> bool {
        (self.sender.marks.flags | self.receiver.marks.flags) & Marks::UNACKNOWLEDGED != 0
    }
}

/// Returns true if sequence number `a` is before `b` (RFC 9293 3.4).
#[inline]
const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[inline]
const fn after(a: u32, b: u32) -> bool {
    before(b, a)
}

#[inline]
const fn at_most(a: u32, b: u32) -> bool {
    before(a, b.wrapping_add(1))
}

#[inline]
const fn at_least(a: u32, b: u32) -> bool {
    after(a, b.wrapping_sub(1))
}

#[cfg(test)]
mod tests;
