//! The states of a TCP connection and their transition table.

use super::Event;
use crate::tracking::Direction;

/// A connection's state, with the names of the Linux tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Before the first segment.
    None,
    /// The opener has sent SYN.
    SynSent,
    /// SYN has been answered by SYN and ACK.
    SynRecv,
    /// Data flows.
    Established,
    /// One side has sent FIN.
    FinWait,
    /// That FIN has been acknowledged.
    CloseWait,
    /// Both sides have sent FIN.
    LastAck,
    /// Both FINs have been acknowledged.
    TimeWait,
    /// The connection was reset.
    Close,
    /// Both sides have sent SYN: a simultaneous open.
    SynSent2,
}

impl State {
    /// Number of states.
    pub const COUNT: usize = 10;

    /// All states, by number.
    pub(super) const ALL: [Self; Self::COUNT] = [
        Self::None,
        Self::SynSent,
        Self::SynRecv,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Close,
        Self::SynSent2,
    ];

    /// Returns true if the handshake is not over.
    #[must_use]
    pub const fn is_opening(self) -> bool {
        matches!(self, Self::None | Self::SynSent | Self::SynSent2 | Self::SynRecv)
    }

    /// The state's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
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

/// The transition for a segment that is not a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    To(State),
    /// Perhaps valid: forwarded, not believed.
    Ignore,
    Invalid,
}

#[inline]
pub(super) const fn transition(state: State, event: Event, direction: Direction) -> Next {
    match event {
        Event::Syn | Event::SynAck | Event::Fin | Event::Ack => {
            TRANSITIONS[state as usize][direction as usize][event as usize]
        }
        Event::Rst | Event::Nothing => Next::Invalid,
    }
}

/// Returns the next state for a FIN or an ACK in the usual cases; `None` for everything that needs the slow path.
#[inline(always)]
pub(super) const fn ordinarily(state: State, event: Event, direction: Direction) -> Option<State> {
    ORDINARY[state as usize][direction as usize][event as usize]
}

/// The usual cases of [`TRANSITIONS`], for one look-up. The last two entries of a side are padding.
const ORDINARY: [[[Option<State>; 8]; 2]; State::COUNT] = {
    let mut ordinary = [[[None; 8]; 2]; State::COUNT];
    let mut state = 0;
    while state < State::COUNT {
        let mut side = 0;
        while side < 2 {
            let events = [Event::Fin as usize, Event::Ack as usize];
            let mut at = 0;
            while at < events.len() {
                if let Next::To(next) = TRANSITIONS[state][side][events[at]] {
                    ordinary[state][side][events[at]] = Some(next);
                }
                at += 1;
            }
            side += 1;
        }
        state += 1;
    }
    ordinary
};

/// The transitions of each state: the opener's segments, then the other side's, each SYN, SYN+ACK, FIN, ACK.
#[rustfmt::skip]
const TRANSITIONS: [[[Next; 4]; 2]; State::COUNT] = {
    const XX: Next = Next::Invalid;
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
    [
        //   opener's          other side's
        [[SS, XX, XX, ES], [XX, XX, XX, XX]], // none
        [[SS, XX, XX, XX], [S2, SR, XX, IG]], // syn-sent
        [[IG, SR, FW, ES], [XX, IG, FW, SR]], // syn-recv
        [[IG, XX, FW, ES], [XX, IG, FW, ES]], // established
        [[IG, XX, LA, CW], [XX, IG, LA, CW]], // fin-wait
        [[IG, XX, LA, CW], [XX, IG, LA, CW]], // close-wait
        [[IG, XX, LA, TW], [XX, IG, LA, TW]], // last-ack
        [[SS, XX, TW, TW], [SS, IG, TW, TW]], // time-wait
        [[SS, XX, CL, CL], [XX, IG, CL, CL]], // close
        [[S2, SR, XX, XX], [S2, SR, XX, IG]], // syn-sent2
    ]
};
