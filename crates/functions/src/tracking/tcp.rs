//! The TCP state machine of RFC 9293 as a device in the middle sees it: states and window checks of the Linux tracker
//! (kernel 6), after van Rooij's "Real Stateful TCP Packet Filtering in IP Filter" (SANE 2000).
//!
//! The tracker believes a segment only where it fits what both sides have sent so far. It lets through what it can't
//! judge (and learns from the answer), and calls invalid what no receiver would take.

mod segment;
mod state;

use core::hint::{cold_path, select_unpredictable};
use core::mem::replace;

use packet::Nanos;
pub(super) use segment::Head;
pub use segment::{Event, Segment};
pub use state::State;
use state::{Next, ordinarily, transition};

use super::{Cause, Direction, Outcome, TcpRules};

/// What the tracker knows of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracker {
    windows: [Window; 2],
    last: Last,
    state: State,
    retransmissions: u8,
    status: u8,
}

/// How far one side's data and acknowledgements have come, and what else is known of it. All numbers are of the side's own sequence space, except
/// `max_ack`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    /// Behind the last byte that the side has sent.
    end: u32,
    /// As far as the other side has allowed it to send.
    max_end: u32,
    /// The largest window that the side has offered; 0 until its first segment.
    max_win: u32,
    /// The highest acknowledgement number that the side has sent.
    max_ack: u32,
    marks: Marks,
}

/// The rest.
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
    /// The side's windows are guesses, for the connection was picked up half-way: be liberal.
    const LIBERAL: u8 = 0x08;
    /// `max_ack` counts.
    const MAX_ACK_SET: u8 = 0x10;
    /// The side has sent data that the other hasn't acknowledged.
    const UNACKNOWLEDGED: u8 = 0x80;

    const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The last segment that was looked at. Segments that are let through without being believed are kept here until the
/// answer tells whether the two sides are further than we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    head: Head,
    /// Of an unbelieved SYN: scale and flags as in [`Marks`]; of the connection: `SIMULTANEOUS`, `CHALLENGE`.
    marks: Marks,
}

/// Both sides sent SYN.
const SIMULTANEOUS: u8 = 0x20;
/// A SYN in `LastAck` may bring a challenge ACK (RFC 5961), which must not be taken for the last ACK.
const CHALLENGE: u8 = 0x40;

/// The other side has sent something.
const SEEN_REPLY: u8 = 0x01;
/// Data can flow both ways: the connection is worth its place in a full table.
const ASSURED: u8 = 0x02;
/// The deadline is further away than the timeout of a connection in doubt. The bit that [`Marks`] have for data which isn't acknowledged:
/// while there is some, it is not.
pub(super) const LONG: u8 = Marks::UNACKNOWLEDGED;
/// The connection is established, assured and answered, and of both sides window and acknowledgements are known: what
/// [`Tracker::flow`] need not ask one by one.
const OPEN: u8 = 0x04;

/// Acknowledgements may lag this far behind what has been sent, at least.
const ACK_WINDOW_MIN: u32 = 66_000;

impl Tracker {
    /// The state for a connection's first segment, which is then to be given to [`step`](Self::step).
    ///
    /// # Errors
    /// When a connection can't begin with it.
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

    /// Judges a segment and follows it, whatever it is: also one that [`flow`](Self::flow) would follow sooner.
    #[inline]
    pub fn step(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Outcome {
        let outcome = self.step_by_table(segment, direction, rules);
        if direction == Direction::Reply && matches!(outcome, Outcome::Valid(_) | Outcome::Kept) {
            self.status |= SEEN_REPLY;
        }
        self.mark_open();
        outcome
    }

    /// Notes whether the connection is [`OPEN`] now.
    #[inline(always)]
    const fn mark_open(&mut self) {
        let [one, other] = &self.windows;
        let is_known = (one.max_win != 0) & (other.max_win != 0);
        let is_acknowledged = self.windows[0].marks.flags & self.windows[1].marks.flags & Marks::MAX_ACK_SET != 0;
        let is_assured = self.status & (SEEN_REPLY | ASSURED) == SEEN_REPLY | ASSURED;
        let is_open = is_known & is_acknowledged & is_assured & matches!(self.state, State::Established);
        self.status = self.status & !OPEN | if is_open { OPEN } else { 0 };
    }

    /// Follows a segment if it is what nearly all are: data or an acknowledgement of an open connection, within the
    /// windows. How long the connection, which is [assured](Self::assured), may idle; `None`, and nothing has changed, where
    /// [`step`](Self::step) must judge.
    #[inline(always)]
    pub fn flow(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Option<Nanos> {
        let Head { seq, end, ack, window, event, .. } = segment.head;
        // Of what goes another way, closed windows, blocks beyond a gap and what comes once more are the most, and rare.
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
        // Read anew, so that registers need not hold meanwhile what was compared.
        let mut sides = self.sides(direction);
        sides.advance(&moved, true);
        self.set_sides(direction, &sides, true);

        // Whether an acknowledgement is owed changes with every few packets of every connection: no branch foresees it.
        // Both answers lie ready before it is known, for what it takes to know it is the longest way through a step.
        let flags = sides.sender.marks.flags | sides.receiver.marks.flags;
        self.status = OPEN | ASSURED | SEEN_REPLY | rules.long_if_open & !flags;
        let [idle, owed] = rules.idle[State::Established as usize];
        Some(select_unpredictable(flags & Marks::UNACKNOWLEDGED != 0, owed, idle))
    }

    /// The same for what opens and closes a connection in the ordinary way: an acknowledgement or a FIN in any state.
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

    /// The connection's state.
    #[inline]
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether data has been seen to flow both ways.
    #[inline]
    #[must_use]
    pub const fn assured(&self) -> bool {
        self.status & ASSURED != 0
    }

    /// Whether the side that didn't open the connection has sent anything.
    #[inline]
    #[must_use]
    pub const fn answered(&self) -> bool {
        self.status & SEEN_REPLY != 0
    }

    #[inline(always)]
    fn step_by_table(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Outcome {
        let old = self.state;
        if segment.head.event == Event::Rst {
            return self.reset(segment, direction, rules);
        }
        let new = match transition(old, segment.head.event, direction) {
            Next::Invalid => return Outcome::Invalid(Cause::InvalidState),
            Next::Ignore => return self.let_through(segment, direction, rules),
            // RFC 9293 3.6.1: a SYN may reopen a connection that has ended. One that we took to have ended without a FIN
            // or a reset from this side may still be alive.
            Next::To(State::SynSent) if matches!(old, State::TimeWait | State::Close) => {
                let closed = (self.windows[0].marks.flags | self.windows[1].marks.flags) & Marks::CLOSE_INIT != 0;
                let reset = self.last.head.is_of_side(&segment.head) && self.last.head.event == Event::Rst;
                return if closed || reset { Outcome::Reopens } else { self.let_through(segment, direction, rules) };
            }
            Next::To(State::TimeWait) if self.is_challenge(segment) => {
                self.last.marks.flags &= !CHALLENGE;
                return Outcome::Kept;
            }
            Next::To(State::SynSent2) => {
                self.last.marks.flags |= SIMULTANEOUS;
                State::SynSent2
            }
            // After a simultaneous open, each side acknowledges the other's SYN: this is the second time.
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

    /// An ACK in `LastAck` that answers a stray SYN (RFC 5961 4.2) rather than the FIN.
    fn is_challenge(&self, segment: &Segment) -> bool {
        self.state == State::LastAck
            && segment.head.event == Event::Ack
            && !self.last.head.is_of_side(&segment.head)
            && self.last.head.event == Event::Syn
            && self.last.marks.has(CHALLENGE)
    }

    /// Lets a segment through that may be wrong: we may hold a dead connection while the two sides open a new one. The
    /// answer will tell, so what matters of the segment is kept.
    #[inline(never)]
    fn let_through(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Outcome {
        let answers_let_through_syn = segment.head.event == Event::SynAck
            && self.last.head.event == Event::Syn
            && !self.last.head.is_of_side(&segment.head)
            && segment.ack() == self.last.head.end;
        if answers_let_through_syn {
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
        // The reset that answers a challenge ACK will carry what that ACK acknowledged.
        if self.state == State::SynSent && segment.head.event == Event::Ack && direction == Direction::Reply {
            self.last.head.ack = segment.ack();
        }
        Outcome::Kept
    }

    /// RFC 5961 3.2: a reset ends a connection only when it hits the next expected byte; a near miss brings a challenge
    /// ACK from a real receiver, so it may not end ours.
    #[inline(never)]
    fn reset(&mut self, segment: &Segment, direction: Direction, rules: &TcpRules) -> Outcome {
        let old = self.state;
        // Once a connection is closing, its addresses and ports may be in use anew, and what we know of it is stale.
        if matches!(old, State::FinWait | State::CloseWait | State::LastAck | State::TimeWait | State::Close) {
            return self.settle(segment, direction, old, State::Close, rules);
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
        // A reset that answers a SYN or ACK that we let through: the windows that we know say nothing about it.
        let answers_syn =
            self.answered() && self.last.head.event == Event::Syn && !self.last.head.is_of_side(&segment.head);
        let answers_ack = !self.assured() && self.last.head.event == Event::Ack;
        let answers_challenge = old == State::SynSent
            && self.last.head.event == Event::Ack
            && self.last.head.is_of_side(&segment.head) == (direction == Direction::Reply)
            && segment.seq() == self.last.head.ack;
        if ((answers_syn || answers_ack) && segment.ack() == self.last.head.end) || answers_challenge {
            return self.settle(segment, direction, old, new, rules);
        }
        self.follow_apart(segment, direction, old, new, rules)
    }

    /// Checks the windows, then moves on.
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

    /// Checks the windows, then moves on. Openings and closings come by here: a call the less is worth a twentieth of them.
    #[inline(always)]
    fn follow(&mut self, segment: &Segment, direction: Direction, old: State, new: State, rules: &TcpRules) -> Outcome {
        match self.check(segment, direction, rules) {
            Fit::In => self.settle(segment, direction, old, new, rules),
            Fit::Ignored => Outcome::Kept,
            Fit::Out => self.doubt(segment, rules),
        }
    }

    /// The connection has moved on: its state, and how long it may idle in it.
    fn settle(&mut self, segment: &Segment, direction: Direction, old: State, new: State, rules: &TcpRules) -> Outcome {
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
            // A repeated SYN must not keep an unanswered connection alive.
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

    /// How long the connection may idle in its state: less when one side gets no answer.
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

    /// A segment outside the windows. When both sides in turn close a connection that we disagree about, it won't live
    /// long, whatever we think of its sequence numbers.
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

    /// Whether the segment fits the windows; if so, they move.
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
            // The side has started anew, with a later sequence number.
            self.begin(segment, direction);
            if direction == Direction::Reply && !has_ack {
                return Fit::In;
            }
        }

        // Without an acknowledgement there is nothing to hold against it. Some stacks set ACK on resets and leave the number 0.
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

    /// What is known of both sides, by who sends.
    #[inline(always)]
    const fn sides(&self, direction: Direction) -> Sides {
        let (of_sender, of_receiver) = (direction as usize, direction as usize ^ 1);
        Sides { sender: self.windows[of_sender], receiver: self.windows[of_receiver] }
    }

    /// Puts back what [`Sides::advance`] moves; of an open connection, all that it moves within the windows.
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

    /// Notes an acknowledgement that fits, and whether it is the last segment once more.
    #[inline(always)]
    fn note(&mut self, segment: &Segment) {
        let is_like = self.last.head.is_like(&segment.head);
        self.retransmissions = if is_like { self.retransmissions.saturating_add(1) } else { 0 };
        self.last.head = segment.head;
    }

    /// A side's first SYN, or one that starts it anew.
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

    /// A side's first segment that we see, its SYN lost to us: take the windows from what it says.
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
            // Likely the answer to a keep-alive, which repeats the byte before the next.
            receiver.end = sack;
        }
    }

    /// Which bound the segment broke, and whether that is forgiven.
    #[cold]
    fn misfit(&mut self, seq: u32, end: u32, sack: u32, direction: Direction, rules: &TcpRules) -> Fit {
        let (of_sender, of_receiver) = (direction as usize, direction as usize ^ 1);
        let (sender, receiver) = (self.windows[of_sender], self.windows[of_receiver]);
        let liberal = rules.liberal || self.windows[of_sender].marks.has(Marks::LIBERAL);
        let ack_known = at_most(sack, receiver.end);
        let ack_recent = at_least(sack, receiver.end.wrapping_sub(sender.max_win.max(ACK_WINDOW_MIN)));
        let data_new = at_least(end, sender.end.wrapping_sub(receiver.max_win));

        let fit = if !at_most(seq, sender.max_end) {
            // Some stacks send a little more than the window that they were offered. The segment is not believed, yet
            // if the receiver takes it, its acknowledgement must not look like one of data never sent.
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
            // Old data or an old acknowledgement: harmless, and not worth a longer life.
            Fit::Ignored
        };
        if liberal { Fit::In } else { fit }
    }
}

/// Whether a segment holds to all four bounds, of which one is not asked whether it is known where the connection `is_open`. No branch
/// stands between them, for they hold nearly always.
#[inline(always)]
fn fits(seq: u32, end: u32, sack: u32, sender: &Window, receiver: &Window, is_open: bool) -> bool {
    at_most(seq, sender.max_end)
        & at_most(sack, receiver.end)
        & ((!is_open & (receiver.max_win == 0)) | at_least(end, sender.end.wrapping_sub(receiver.max_win)))
        & at_least(sack, receiver.end.wrapping_sub(sender.max_win.max(ACK_WINDOW_MIN)))
}

/// Whether a segment fits the windows.
enum Fit {
    In,
    /// It passes, and changes nothing.
    Ignored,
    Out,
}

/// A segment that fits, its numbers corrected where the header's don't count.
struct Moved {
    end: u32,
    ack: u32,
    sack: u32,
    window: u16,
    syn: bool,
    has_ack: bool,
}

/// What is known of both sides, taken out together: one side is not told from the other in memory, so that in place each store
/// to one would have to be waited for by the next load of the other.
struct Sides {
    sender: Window,
    receiver: Window,
}

impl Sides {
    /// The segment fits: moves both sides' windows. What is known of a connection that `is_open` is not asked.
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
            // More than the receiver allowed is rare.
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

    /// Whether either side has sent data that the other hasn't acknowledged.
    #[inline(always)]
    const fn are_unacknowledged(&self) -> bool {
        (self.sender.marks.flags | self.receiver.marks.flags) & Marks::UNACKNOWLEDGED != 0
    }
}

/// Whether sequence number `a` lies before `b` (RFC 9293 3.4).
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
