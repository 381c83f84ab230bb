//! One TCP connection as the Linux tracker handles it (`nf_conntrack_proto_tcp.c`, kernel 6), with its names: the table, the cases that the
//! table can't decide, the window, the timeout. Resets follow RFC 5961.

use packet::{Headers, Tcp, TcpFlags};

use super::{Settings, Timeouts};

/// The side that sent a segment: 0 the opener, 1 the other side.
type SideIndex = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    None,
    SynSent,
    SynRecv,
    Established,
    FinWait,
    CloseWait,
    LastAck,
    TimeWait,
    Close,
    SynSent2,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SynSent => "syn-sent",
            Self::SynRecv => "syn-recv",
            Self::Established => "established",
            Self::FinWait => "fin-wait",
            Self::CloseWait => "close-wait",
            Self::LastAck => "last-ack",
            Self::TimeWait => "time-wait",
            Self::Close => "close",
            Self::SynSent2 => "syn-sent2",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Syn,
    SynAck,
    Fin,
    Ack,
    Rst,
}

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    To(State),
    /// Forwarded and not believed.
    Ignore,
    Invalid,
}

const IV: Next = Next::Invalid;
const IG: Next = Next::Ignore;
const SS: Next = Next::To(State::SynSent);
const SR: Next = Next::To(State::SynRecv);
const ES: Next = Next::To(State::Established);
const FW: Next = Next::To(State::FinWait);
const CW: Next = Next::To(State::CloseWait);
const LA: Next = Next::To(State::LastAck);
const TW: Next = Next::To(State::TimeWait);
const CL: Next = Next::To(State::Close);
const S2: Next = Next::To(State::SynSent2);

/// The kernel's `tcp_conntracks`: by sender, by kind in the order of [`Kind`], by state in the order of [`State`].
const TABLE: [[[Next; 10]; 5]; 2] = [
    [
        [SS, SS, IG, IG, IG, IG, IG, SS, SS, S2],
        [IV, IV, SR, IV, IV, IV, IV, IV, IV, SR],
        [IV, IV, FW, FW, LA, LA, LA, TW, CL, IV],
        [ES, IV, ES, ES, CW, CW, TW, TW, CL, IV],
        [IV, CL, CL, CL, CL, CL, CL, CL, CL, CL],
    ],
    [
        [IV, S2, IV, IV, IV, IV, IV, SS, IV, S2],
        [IV, SR, IG, IG, IG, IG, IG, IG, IG, SR],
        [IV, IV, FW, FW, LA, LA, LA, TW, CL, IV],
        [IV, IG, SR, ES, CW, CW, TW, TW, CL, IG],
        [IV, CL, CL, CL, CL, CL, CL, CL, CL, CL],
    ],
];

/// Minimum distance that an acknowledgement may lag behind.
const LAG: u32 = 66_000;

/// What the tracker believes of one side.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// Sequence number after the last byte that it has sent.
    end: u32,
    /// Sequence number after the last byte that it may send.
    limit: u32,
    /// The largest window that it has offered; 0 before its first segment.
    window_max: u32,
    /// The highest acknowledgement that it has sent.
    highest_ack: Option<u32>,
    options: Options,
    liberal: bool,
    /// It was the first to send FIN.
    closed_first: bool,
    /// It has sent data that is not acknowledged yet.
    unacknowledged: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Options {
    scale: Option<u8>,
    /// It accepts selective acknowledgements.
    sack: bool,
}

impl Options {
    fn of(tcp: &Tcp) -> Self {
        Self { scale: tcp.options.window_scale, sack: tcp.options.sack_permitted }
    }

    fn shift(self) -> u8 {
        self.scale.unwrap_or(0)
    }
}

/// The state of the last segments. Each field is written when the kernel writes it.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    kind: Option<Kind>,
    sender_index: SideIndex,
    seq: u32,
    ack: u32,
    end: u32,
    window: u16,
    /// Options of an unbelieved SYN of the opener.
    options: Options,
    /// The answer to such a SYN may be a challenge, and not the last ACK.
    challenge: bool,
}

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    sides: [Side; 2],
    last: Last,
    retransmissions: u64,
    simultaneous: bool,
    /// The other side has sent something.
    pub(crate) answered: bool,
    pub(crate) assured: bool,
    /// The idle timeout that was last set, in seconds.
    idle: u64,
}

/// The outcome of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is forwarded, with this idle timeout in seconds; `None` leaves the deadline.
    Passes(Option<u64>),
    /// It is forwarded and ends the connection.
    Ends,
    /// It would open a new connection in place of this one.
    Reopens,
    /// As [`Passes`](Self::Passes), but invalid.
    Invalid(&'static str, Option<u64>),
}

/// A segment.
#[derive(Clone, Copy)]
struct Segment<'a> {
    tcp: &'a Tcp,
    kind: Kind,
    /// Sequence number after the segment, with SYN and FIN.
    end: u32,
}

impl<'a> Segment<'a> {
    /// `None` for flags that no stack sends.
    fn new(tcp: &'a Tcp, payload_len: u32) -> Option<Self> {
        let has = |flag| tcp.flags.contains(flag);
        let (fin, syn, rst) = (has(TcpFlags::FIN), has(TcpFlags::SYN), has(TcpFlags::RST));
        let (ack, urg) = (has(TcpFlags::ACK), has(TcpFlags::URG));
        let kind = match (fin, syn, rst, ack, urg) {
            (false, true, false, false, _) => Kind::Syn,
            (false, true, false, true, false) => Kind::SynAck,
            (false, false, true, _, false) => Kind::Rst,
            (true, false, false, true, _) => Kind::Fin,
            (false, false, false, true, _) => Kind::Ack,
            _ => return None,
        };
        let len = payload_len.wrapping_add(u32::from(syn)).wrapping_add(u32::from(fin));
        Some(Self { tcp, kind, end: tcp.seq.wrapping_add(len) })
    }
}

/// Returns true if no stack sends the segment's flags together.
pub(crate) fn has_impossible_flags(tcp: &Tcp) -> bool {
    Segment::new(tcp, 0).is_none()
}

impl Connection {
    /// Returns the connection that this first packet would open, before it handles the packet.
    pub(crate) fn open(headers: &Headers, tcp: &Tcp, settings: &Settings) -> Result<Self, &'static str> {
        let segment = Segment::new(tcp, headers.payload_len).ok_or("invalid-flags")?;
        let window = u32::from(tcp.window).max(1);
        let mut sides = [Side::default(); 2];
        sides[0] = Side { end: segment.end, limit: segment.end, window_max: window, ..Side::default() };
        match segment.kind {
            Kind::Syn => sides[0].options = Options::of(tcp),
            Kind::Ack if settings.loose => {
                sides[0].limit = segment.end.wrapping_add(window);
                for side in &mut sides {
                    (side.liberal, side.options.sack) = (true, true);
                }
            }
            Kind::SynAck | Kind::Fin | Kind::Ack | Kind::Rst => return Err("no-connection"),
        }
        Ok(Self {
            state: State::None,
            sides,
            last: Last::default(),
            retransmissions: 0,
            simultaneous: false,
            answered: false,
            assured: false,
            idle: 0,
        })
    }

    /// Handles a segment.
    pub(crate) fn packet(
        &mut self,
        sender_index: SideIndex,
        headers: &Headers,
        tcp: &Tcp,
        settings: &Settings,
    ) -> Outcome {
        let outcome = match Segment::new(tcp, headers.payload_len) {
            Some(segment) => self.segment(sender_index, &segment, settings),
            None => Outcome::Invalid("invalid-flags", None),
        };
        if let Outcome::Passes(idle) = outcome {
            self.answered |= sender_index == 1;
            self.idle = idle.unwrap_or(self.idle);
        }
        if let Outcome::Invalid(_, Some(idle)) = outcome {
            self.idle = idle;
        }
        outcome
    }

    fn segment(&mut self, sender_index: SideIndex, segment: &Segment<'_>, settings: &Settings) -> Outcome {
        let mut old = self.state;
        let next = TABLE[sender_index][segment.kind as usize][old as usize];
        let mut skips_window = false;
        let new = match next {
            Next::Invalid => return Outcome::Invalid("invalid-state", None),
            Next::To(State::SynSent) if matches!(old, State::TimeWait | State::Close) => {
                let own_reset = self.last.sender_index == sender_index && self.last.kind == Some(Kind::Rst);
                if self.sides[0].closed_first || self.sides[1].closed_first || own_reset {
                    return Outcome::Reopens;
                }
                return self.ignore(sender_index, segment);
            }
            Next::Ignore => {
                let answers_syn = segment.kind == Kind::SynAck
                    && self.last.kind == Some(Kind::Syn)
                    && self.last.sender_index != sender_index
                    && segment.tcp.ack == self.last.end;
                if !answers_syn {
                    return self.ignore(sender_index, segment);
                }
                self.follow_ignored_syn();
                old = State::SynSent;
                State::SynRecv
            }
            Next::To(State::TimeWait) if self.is_challenge(sender_index, segment.kind) => {
                self.last.challenge = false;
                return Outcome::Passes(None);
            }
            Next::To(State::SynSent2) => {
                self.simultaneous = true;
                State::SynSent2
            }
            Next::To(State::SynRecv) if sender_index == 1 && segment.kind == Kind::Ack && self.simultaneous => {
                State::Established
            }
            Next::To(State::Close) if segment.kind == Kind::Rst => match self.reset(sender_index, segment, settings) {
                Some((new, believed)) => {
                    skips_window = believed;
                    new
                }
                None => return Outcome::Invalid("invalid-rst", None),
            },
            Next::To(new) => new,
        };
        if !skips_window {
            match self.window(sender_index, segment, settings) {
                Fit::Fits => {}
                Fit::Harmless => return Outcome::Passes(None),
                Fit::Invalid => {
                    return Outcome::Invalid("out-of-window", self.out_of_step(sender_index, segment.kind, settings));
                }
            }
        }
        self.believe(sender_index, segment.kind, old, new, settings)
    }

    /// Handles a SYN, SYN+ACK or ACK that shows that the tracker may be wrong.
    fn ignore(&mut self, sender_index: SideIndex, segment: &Segment<'_>) -> Outcome {
        let tcp = segment.tcp;
        self.last.kind = Some(segment.kind);
        self.last.sender_index = sender_index;
        self.last.seq = tcp.seq;
        self.last.end = segment.end;
        self.last.window = tcp.window;
        if segment.kind == Kind::Syn && sender_index == 0 {
            self.last.options = Options::of(tcp);
            self.last.challenge = self.state == State::LastAck;
            self.simultaneous = false;
        }
        if self.state == State::SynSent && segment.kind == Kind::Ack && sender_index == 1 {
            self.last.ack = tcp.ack;
        }
        Outcome::Passes(None)
    }

    /// Follows an unbelieved SYN that was answered: both sides are ahead of the tracker. If the connection was picked up midstream, the kernel
    /// stays liberal with the side that answers.
    fn follow_ignored_syn(&mut self) {
        let Last { sender_index, end, window, options, .. } = self.last;
        self.last.challenge = false;
        self.sides[sender_index] =
            Side { end, limit: end, window_max: u32::from(window).max(1), options, ..Side::default() };
        let answerer = &mut self.sides[1 - sender_index];
        *answerer = Side { liberal: answerer.liberal, ..Side::default() };
    }

    fn is_challenge(&self, sender_index: SideIndex, kind: Kind) -> bool {
        let answers = self.last.sender_index != sender_index && self.last.kind == Some(Kind::Syn);
        self.state == State::LastAck && kind == Kind::Ack && answers && self.last.challenge
    }

    /// Returns the state after a reset, and whether it is believed outside the window too; `None` if it is invalid.
    fn reset(&self, sender_index: SideIndex, segment: &Segment<'_>, settings: &Settings) -> Option<(State, bool)> {
        let (seq, ack) = (segment.tcp.seq, segment.tcp.ack);
        let closing = [State::FinWait, State::CloseWait, State::LastAck, State::TimeWait, State::Close];
        if closing.contains(&self.state) {
            return Some((State::Close, true));
        }
        let is_open = self.state == State::Established && self.assured;
        let mut new = State::Close;
        if let Some(expected) = self.sides[1 - sender_index].highest_ack
            && self.last.kind != Some(Kind::Syn)
        {
            if seq == 0 && !is_open {
                return Some((State::Close, false));
            }
            if before(seq, expected) && !settings.ignore_invalid_rst {
                return None;
            }
            let train =
                self.last.kind == Some(Kind::Ack) && self.last.sender_index == sender_index && seq == self.last.end;
            if !is_open || seq == expected || train {
                return Some((State::Close, false));
            }
            new = self.state;
        }
        let to_syn = self.answered && self.last.kind == Some(Kind::Syn) && self.last.sender_index != sender_index;
        let to_ack = !self.assured && self.last.kind == Some(Kind::Ack);
        if (to_syn || to_ack) && ack == self.last.end {
            return Some((new, true));
        }
        let to_challenge = self.state == State::SynSent
            && self.last.kind == Some(Kind::Ack)
            && self.last.sender_index == 1
            && seq == self.last.ack;
        Some((new, to_challenge))
    }

    /// The kernel's `tcp_in_window`.
    fn window(&mut self, sender_index: SideIndex, segment: &Segment<'_>, settings: &Settings) -> Fit {
        let (tcp, state) = (segment.tcp, self.state);
        let [first, second] = &mut self.sides;
        let (sender, receiver) = if sender_index == 0 { (first, second) } else { (second, first) };
        let has = |flag| tcp.flags.contains(flag);
        let (is_syn, has_ack, is_rst) = (has(TcpFlags::SYN), has(TcpFlags::ACK), has(TcpFlags::RST));

        let (mut seq, mut end) = (tcp.seq, segment.end);
        let (mut ack, mut sack) = (tcp.ack, tcp.ack);
        if receiver.options.sack
            && let Some(edge) = tcp.options.sack_edge
            && after(edge, sack)
        {
            sack = edge;
        }

        let is_new_syn = is_syn && after(end, sender.end) && matches!(state, State::SynSent | State::SynRecv);
        if sender.window_max == 0 && !is_syn {
            sender.end = end;
            sender.window_max = (u32::from(tcp.window) << sender.options.shift()).max(1);
            sender.limit = end.wrapping_add(sender.window_max);
            if receiver.window_max == 0 {
                (receiver.end, receiver.limit) = (sack, sack);
            } else if sack == receiver.end.wrapping_add(1) {
                receiver.end = sack;
            }
        } else if sender.window_max == 0 || is_new_syn {
            let first_time = sender.window_max == 0;
            sender.begin(receiver, tcp, end, sender_index);
            if !has_ack && (first_time || sender_index == 1) {
                return Fit::Fits;
            }
        }

        if !has_ack || (is_rst && ack == 0) {
            (ack, sack) = (receiver.end, receiver.end);
        }
        if is_rst && seq == 0 && state == State::SynSent {
            (seq, end) = (sender.end, sender.end);
        }

        let lag = sender.window_max.max(LAG);
        let lowest = sender.end.wrapping_sub(receiver.window_max).wrapping_sub(1);
        let is_recent = after(sack, receiver.end.wrapping_sub(lag).wrapping_sub(1));
        let is_sent = before(sack, receiver.end.wrapping_add(1));
        let forgives = sender.liberal || settings.liberal;
        let unless_forgiven = |fit| if forgives { Fit::Fits } else { fit };
        if !before(seq, sender.limit.wrapping_add(1)) {
            let overshot = end.wrapping_sub(sender.limit).wrapping_add(1);
            let is_new = receiver.window_max != 0 && after(end, lowest);
            if is_new && is_recent && is_sent && overshot <= receiver.window_max {
                sender.end = end;
                sender.unacknowledged = true;
                return unless_forgiven(Fit::Harmless);
            }
            return unless_forgiven(Fit::Invalid);
        }
        if !is_sent {
            return unless_forgiven(Fit::Invalid);
        }
        if receiver.window_max != 0 && !after(end, lowest) || !is_recent {
            return unless_forgiven(Fit::Harmless);
        }

        let window = if is_syn { u32::from(tcp.window) } else { u32::from(tcp.window) << sender.options.shift() };
        sender.window_max = sender.window_max.max(window.wrapping_add(sack.wrapping_sub(ack)));
        if after(end, sender.end) {
            sender.end = end;
            sender.unacknowledged = true;
        }
        if has_ack && sender.highest_ack.is_none_or(|highest| after(ack, highest)) {
            sender.highest_ack = Some(ack);
        }
        if receiver.window_max != 0 && after(end, sender.limit) {
            receiver.window_max = receiver.window_max.wrapping_add(end.wrapping_sub(sender.limit));
        }
        let offered = sack.wrapping_add(window);
        if after(offered, receiver.limit.wrapping_sub(1)) {
            receiver.limit = offered.wrapping_add(u32::from(window == 0));
        }
        if ack == receiver.end {
            receiver.unacknowledged = false;
        }
        if segment.kind == Kind::Ack {
            let Last {
                sender_index: last_way, seq: last_seq, ack: last_ack, end: last_end, window: last_window, ..
            } = self.last;
            if (last_way, last_seq, last_ack, last_end, last_window) == (sender_index, seq, ack, end, tcp.window) {
                self.retransmissions += 1;
            } else {
                self.retransmissions = 0;
                self.last = Last { sender_index, seq, ack, end, window: tcp.window, ..self.last };
            }
        }
        Fit::Fits
    }

    /// Returns the timeout after a FIN or reset outside the window. The page tests the timeout that was last set; the kernel tests the time
    /// that remains, which must be two minutes at least.
    fn out_of_step(&mut self, sender_index: SideIndex, kind: Kind, settings: &Settings) -> Option<u64> {
        if !self.assured || !matches!(kind, Kind::Fin | Kind::Rst) {
            return None;
        }
        if self.last.sender_index != sender_index && matches!(self.last.kind, Some(Kind::Fin | Kind::Rst)) {
            let less = settings.timeouts.tcp_unacknowledged;
            return (self.idle > less).then_some(less);
        }
        (self.last.kind, self.last.sender_index) = (Some(kind), sender_index);
        None
    }

    fn believe(&mut self, sender_index: SideIndex, kind: Kind, old: State, new: State, settings: &Settings) -> Outcome {
        (self.last.kind, self.last.sender_index) = (Some(kind), sender_index);
        self.state = new;
        if old != new && new == State::FinWait {
            self.sides[sender_index].closed_first = true;
        }
        let mut idle = self.idle(kind, settings);
        if !self.answered {
            if kind == Kind::Rst {
                return Outcome::Ends;
            }
            if kind == Kind::Syn && old == State::SynSent {
                return Outcome::Passes(None);
            }
            if new == State::Established {
                idle = idle.min(settings.timeouts.tcp_unacknowledged);
            }
        } else if matches!(old, State::SynRecv | State::Established) && new == State::Established {
            self.assured = true;
        }
        Outcome::Passes(Some(idle))
    }

    fn idle(&self, kind: Kind, settings: &Settings) -> u64 {
        let timeouts = &settings.timeouts;
        let full = of_state(timeouts, self.state);
        if self.retransmissions >= settings.max_retransmissions && full > timeouts.tcp_retransmitted {
            timeouts.tcp_retransmitted
        } else if kind == Kind::Rst {
            timeouts.tcp_close
        } else if self.sides.iter().any(|side| side.unacknowledged) && full > timeouts.tcp_unacknowledged {
            timeouts.tcp_unacknowledged
        } else if self.last.window == 0 && full > timeouts.tcp_retransmitted {
            timeouts.tcp_retransmitted
        } else {
            full
        }
    }
}

impl Side {
    /// Initialises the side from its first SYN, or another one.
    fn begin(&mut self, other: &mut Self, tcp: &Tcp, end: u32, sender_index: SideIndex) {
        (self.end, self.limit, self.window_max) = (end, end, u32::from(tcp.window).max(1));
        self.options = Options::of(tcp);
        (self.highest_ack, self.closed_first, self.unacknowledged) = (None, false, false);
        // Window scaling needs the option in both SYNs; that a side has offered it stays recorded.
        if sender_index == 1 && (self.options.scale.is_none() || other.options.scale.is_none()) {
            (self.options.scale, other.options.scale) =
                (self.options.scale.and(Some(0)), other.options.scale.and(Some(0)));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Fits,
    /// Forwarded without a change.
    Harmless,
    Invalid,
}

fn of_state(timeouts: &Timeouts, state: State) -> u64 {
    match state {
        State::None => unreachable!("every segment that passes leads somewhere"),
        State::SynSent => timeouts.tcp_syn_sent,
        State::SynRecv => timeouts.tcp_syn_recv,
        State::Established => timeouts.tcp_established,
        State::FinWait => timeouts.tcp_fin_wait,
        State::CloseWait => timeouts.tcp_close_wait,
        State::LastAck => timeouts.tcp_last_ack,
        State::TimeWait => timeouts.tcp_time_wait,
        State::Close => timeouts.tcp_close,
        State::SynSent2 => timeouts.tcp_syn_sent2,
    }
}

/// Returns true if one sequence number is before another, with wrap-around.
fn before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

fn after(one: u32, other: u32) -> bool {
    before(other, one)
}
