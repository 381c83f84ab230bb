//! Keeps the first bytes that each side of a TCP session sends, in order, and drops sessions by them (after Abacus: Go et al.,
//! NDSS '14; NFork, table 6). Behaviour and choices: `docs/flow-buffer.md`.

mod config;
mod side;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;

use nf::{Description, Flow, Report, Sharing, grouped};
use packet::FiveTuple;

pub use self::config::Config;
pub use self::side::{HEAD_MAX, Side};
use crate::list::Catalogued;
use crate::streams::{Direction, Hearing, Portion, Said, StreamFunction, Streams, Tallies};
use crate::top::heaviest;

/// The `flow-buffer` function.
#[derive(Clone, Debug)]
pub struct FlowBuffer {
    config: Config,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// By direction.
    sides: [Side; 2],
    /// Bytes of payload of both sides, retransmissions included.
    payload: u64,
    /// Number of times that a side sent other bytes than before.
    contradictions: u32,
    /// Number of the pattern that a side begins with, counted from 1.
    pattern: u8,
    /// It was counted as a session, and as one whose beginnings are complete.
    is_counted: bool,
    is_whole: bool,
}

impl Flow for Session {}

impl Session {
    /// The first bytes of both sides, the opener's first.
    #[must_use]
    pub fn heads(&self) -> [&[u8]; 2] {
        [self.sides[0].head(), self.sides[1].head()]
    }

    /// The text of the pattern that a side begins with, as the configuration has it.
    #[must_use]
    pub fn pattern<'a>(&self, function: &'a FlowBuffer) -> Option<&'a str> {
        (self.pattern > 0).then(|| function.config.name(self.pattern))
    }
}

/// Numbers of the drop reasons.
const PATTERN: u8 = 0;
const CONTRADICTION: u8 = 1;

/// The counters of sessions, and of those whose beginnings are complete.
const SESSIONS: usize = 0;
const WHOLE: usize = 1;

impl FlowBuffer {
    /// Creates the function from its configuration.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self { config }
    }

    /// Counts that a side sent other bytes than before, and drops the packet if it must not.
    fn contradict(&self, cx: &mut Hearing<'_>, session: &mut Session) {
        session.contradictions = session.contradictions.saturating_add(1);
        if self.config.drops_contradictions() {
            cx.drop_packet(CONTRADICTION);
        }
    }

    /// Formats the first 32 bytes as text, others than printable ASCII as dots.
    fn legible(head: &[u8]) -> String {
        head.iter().take(32).map(|byte| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' }).collect()
    }

    /// FNV-1a of 64 bits, to find equal beginnings.
    fn digest(head: &[u8]) -> String {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        if head.is_empty() {
            String::from("-")
        } else {
            format!("{:016x}", head.iter().fold(0xcbf2_9ce4_8422_2325, step))
        }
    }
}

impl StreamFunction for FlowBuffer {
    type Flow = Session;

    const HEARS_UDP: bool = false;
    const REPORTS_CLOSED: bool = true;

    const DESCRIPTION: Description = Description {
        name: "flow-buffer",
        summary: "keeps the first bytes that each side of a TCP session sends, in order, and drops sessions that begin with a listed pattern",
        state: "up to 64 bytes of each side, payload, contradictions",
        sharing: Sharing::Streams,
        keys: &config::KEYS,
        drop_reasons: &["pattern", "contradiction"],
        recipes: &[],
    };

    fn drops(&self) -> bool {
        !self.config.drops_nothing()
    }

    fn counters(&self) -> usize {
        WHOLE + 1
    }

    fn open(&self, _: &crate::streams::Session) -> Session {
        Session::default()
    }

    fn packet(&self, cx: &Hearing<'_>, session: &mut Session, packet: &Portion) {
        if !session.is_counted {
            session.is_counted = true;
            cx.count(SESSIONS, 0);
        }
        session.payload += u64::from(packet.len());
    }

    fn hear_again(&self, cx: &mut Hearing<'_>, session: &mut Session, from: Direction, offset: u64, bytes: &[u8]) {
        if session.sides[from as usize].contradicts(offset, bytes) {
            self.contradict(cx, session);
        }
    }

    fn hear(&self, cx: &mut Hearing<'_>, session: &mut Session, said: Said<'_>) {
        let side = &mut session.sides[said.direction() as usize];
        match said {
            Said::Data(_, bytes) => {
                if side.add(bytes, self.config.head_len()) && session.pattern == 0 {
                    session.pattern = self.config.matching(side.head());
                    if session.pattern > 0 && self.config.blocks() {
                        cx.drop(PATTERN);
                    }
                }
            }
            Said::Gap(_, gap) => side.skip(gap.len),
            Said::End(_) => side.end(),
            Said::Deviation(_, deviation) => {
                if side.is_early(deviation.ahead, self.config.head_len()) {
                    self.contradict(cx, session);
                }
            }
            Said::Datagram(..) => {}
        }
        if !session.is_whole && session.sides.iter().all(|side| side.is_whole(self.config.head_len())) {
            session.is_whole = true;
            cx.count(WHOLE, 0);
        }
    }

    fn report(
        &self,
        sessions: &mut dyn Iterator<Item = (FiveTuple, Session)>,
        tallies: &Tallies<'_>,
    ) -> Option<Report> {
        // Sessions with a pattern first, then those with contradictions, then by payload.
        let weight = |session: &Session| {
            let rank = if session.pattern > 0 { 2 } else { u64::from(session.contradictions > 0) };
            rank << 62 | session.payload.min((1 << 62) - 1)
        };
        let heaviest = heaviest(sessions, self.config.top(), weight);
        let row = |(tuple, session): (FiveTuple, Session)| {
            let [first, second] = session.heads();
            vec![
                tuple.to_string().into(),
                session.payload.into(),
                session.pattern(self).unwrap_or("-").into(),
                session.contradictions.into(),
                Self::legible(first).into(),
                Self::digest(first).into(),
                Self::legible(second).into(),
                Self::digest(second).into(),
            ]
        };
        Some(Report {
            title: format!(
                "first bytes of {} TCP sessions, {} of them complete",
                grouped(tallies.own(SESSIONS).packets),
                grouped(tallies.own(WHOLE).packets)
            ),
            columns: vec![
                "session",
                "payload",
                "pattern",
                "contradictions",
                "first side",
                "digest",
                "second side",
                "digest",
            ],
            rows: heaviest.into_iter().map(row).collect(),
        })
    }
}

impl Catalogued for Streams<FlowBuffer> {
    type Config = Config;

    const CRAMPED: &'static str = r#"
bytes = 9
patterns = ["hex:00", "GET "]
drop_contradictions = true
streams = { flows = 64, flows_v6 = 64 }
"#;
    const SMALL: &'static str = r#"
patterns = ["GET /", "hex:16 03"]
drop_contradictions = true
streams = { flows = 1000, flows_v6 = 1000 }
"#;

    fn from_config(config: Config) -> Self {
        let streams = config.streams();
        Self::new(FlowBuffer::new(config), &streams)
    }
}

#[cfg(test)]
mod tests;
