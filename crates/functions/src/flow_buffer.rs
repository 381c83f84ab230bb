//! Keeps the first bytes that each side of a TCP session sends, in order, and drops sessions by them (after Abacus: Go et al.,
//! NDSS '14; NFork, table 6). Behaviour and choices: `docs/flow-buffer.md`.

mod config;
mod segment;
mod side;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;

use memory::Memory;
use nf::{
    Context, Description, Flow, FlowList, NetworkFunction, Opened, PacketSet, Plain, Reason, Report, Sharing, Sizing,
    Step, Verdict, grouped,
};
use packet::{FiveTuple, Headers, Nanos, Network, TcpFlags, Transport};

pub use self::config::Config;
pub use self::segment::{HEAD_MAX, Segment};
pub use self::side::Side;
use crate::list::Catalogued;
use crate::top::heaviest;

/// The `flow-buffer` function.
#[derive(Clone, Debug)]
pub struct FlowBuffer {
    config: Config,
}

/// The state of a session. The side of the key's lower endpoint comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    sides: [Side; 2],
    /// Bytes of payload of both sides, retransmissions included.
    payload: u64,
    /// Number of segments that contradict earlier bytes.
    contradictions: u32,
    /// Number of the pattern that the session begins with, counted from 1; `former` is the one before the last idle timeout.
    pattern: u8,
    former: u8,
    /// Time of the last segment.
    heard: Nanos,
    /// A side has reset it.
    reset: bool,
    /// The last SYN-ACK with other sequence numbers, which would begin another connection, until it is answered.
    offer: Option<Offer>,
}

/// A SYN-ACK with other sequence numbers than the session's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offer {
    by_first: bool,
    /// Sequence numbers of the first byte of its sender, and of its receiver.
    start: u32,
    asked: u32,
}

/// A segment answers a SYN-ACK if both its numbers are at most this far beyond it: the answer itself may not have been captured. A random
/// segment does so once in 2^32.
const BEYOND: u32 = 1 << 16;

impl Offer {
    fn is_answered_by(&self, segment: &Segment) -> bool {
        self.by_first != segment.is_from_first()
            && segment.seq().wrapping_sub(self.asked) < BEYOND
            && segment.ack().is_some_and(|ack| ack.wrapping_sub(self.start) < BEYOND)
    }
}

impl Flow for Session {}

impl Session {
    /// The bytes of both sides from the first one on, up to the first gap.
    #[must_use]
    pub fn heads(&self) -> [&[u8]; 2] {
        [self.sides[0].head(), self.sides[1].head()]
    }

    /// The pattern that the report names, 0 for none.
    const fn listed(&self) -> u8 {
        if self.pattern > 0 { self.pattern } else { self.former }
    }

    /// Returns true if nothing more will be stored: both heads are complete.
    const fn is_whole(&self, len: usize) -> bool {
        self.reset || (self.sides[0].is_whole(len) && self.sides[1].is_whole(len))
    }

    /// Returns true if both sides have ended it.
    const fn is_over(&self) -> bool {
        self.reset || (self.sides[0].has_ended() && self.sides[1].has_ended())
    }

    /// An empty session for another connection between the same ports.
    fn anew(&self) -> Self {
        Self { former: self.former, heard: self.heard, ..Self::default() }
    }

    /// Index of the side that sent the segment, and of the other side.
    fn ends(segment: &Segment) -> (usize, usize) {
        let sender = usize::from(!segment.is_from_first());
        (sender, 1 - sender)
    }

    /// Follows the handshake, to find the sequence numbers by which both sides begin. Anybody can send a SYN or a SYN-ACK with other
    /// numbers; a new connection begins only when the receiver of a SYN-ACK answers it.
    fn shake_hands(&mut self, segment: &Segment) {
        let (sender, receiver) = Self::ends(segment);
        let is_syn = segment.has(TcpFlags::SYN);
        match segment.ack() {
            None if is_syn => {
                if self.is_over() && self.pattern == 0 {
                    *self = self.anew();
                }
                self.sides[sender].ask_again();
            }
            Some(asked) if is_syn => {
                let is_known = self.sides[receiver].may_be_answered_by(asked);
                if is_known {
                    self.sides[receiver].answer();
                }
                if !is_known || !self.sides[sender].may_begin_at(segment.seq()) {
                    self.offer = Some(Offer { by_first: segment.is_from_first(), start: segment.seq(), asked });
                }
            }
            _ => {
                if let Some(offer) = self.offer.filter(|offer| offer.is_answered_by(segment)) {
                    self.accept(offer, sender, receiver);
                }
            }
        }
    }

    /// Starts the connection of a SYN-ACK that `receiver` sent and `sender` answers. If `sender`'s SYN was known, its bytes stay.
    fn accept(&mut self, offer: Offer, sender: usize, receiver: usize) {
        self.offer = None;
        if self.pattern > 0 {
            return;
        }
        if !self.sides[sender].may_be_answered_by(offer.asked) {
            *self = self.anew();
            self.sides[sender] = Side::beginning_at(offer.asked);
        }
        self.sides[receiver] = Side::beginning_at(offer.start);
    }
}

const PATTERN: Reason = Reason::own(0);
const CONTRADICTION: Reason = Reason::own(1);

impl FlowBuffer {
    /// Creates the function from its configuration.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self { config }
    }

    /// Stores a segment. Returns true if it contradicts earlier bytes.
    fn take(&self, session: &mut Session, segment: &Segment) -> bool {
        session.shake_hands(segment);
        let (sender, _) = Session::ends(segment);
        session.payload += u64::from(segment.len());
        let side = &mut session.sides[sender];
        session.reset |= segment.has(TcpFlags::RST) && side.may_reset_at(segment.seq());
        let before = side.head().len();
        let contradicts = side.take(segment, self.config.head_len());
        session.contradictions = session.contradictions.saturating_add(contradicts.into());
        let head = session.sides[sender].head();
        if session.pattern == 0 && head.len() > before {
            session.pattern = self.config.matching(head);
        }
        contradicts
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

impl Catalogued for FlowBuffer {
    type Config = Config;

    const CRAMPED: &'static str = r#"
bytes = 9
patterns = ["hex:00", "GET "]
drop_contradictions = true
idle_timeout = 2
"#;
    const SMALL: &'static str = r#"
patterns = ["GET /", "hex:16 03"]
drop_contradictions = true
idle_timeout = 5
"#;

    fn from_config(config: Config) -> Self {
        Self::new(config)
    }
}

impl NetworkFunction for FlowBuffer {
    type Meta = Segment;
    type Flow = Session;
    type Shared<M: Memory> = ();
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "flow-buffer",
        summary: "keeps the first bytes that each side of a TCP session sends, in order, and drops sessions that begin with a listed pattern",
        state: "up to 64 bytes of each side and which of them are known, payload, contradictions",
        sharing: Sharing::Nothing,
        keys: config::KEYS,
        drop_reasons: &["pattern", "contradiction"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::SymmetricFiveTuple
    }

    fn sizing(&self) -> Sizing {
        self.config.sizing()
    }

    fn shared<M: Memory>(&self, _memory: &M) {}

    #[inline]
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Segment> {
        let Transport::Tcp(tcp) = headers.transport else { return None };
        Segment::new(headers.five_tuple()?, &tcp, headers.payload_len, headers.payload(frame), self.config.head_len())
    }

    #[inline(always)]
    fn other(&self, headers: &Headers) -> Verdict {
        // A host may read it as data that begins with a pattern.
        match headers.network {
            Network::Unreadable if !self.config.drops_nothing() => Verdict::Drop(Reason::UNREADABLE),
            Network::Unreadable | Network::None | Network::Arp | Network::V4(_) | Network::V6(_) => Verdict::FORWARD,
        }
    }

    #[inline]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Segment) -> Step<Opened<Session>, M> {
        Ok(Opened::Flow(Session::default()))
    }

    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        session: &mut Session,
        segment: &Segment,
    ) -> Step<Verdict, M> {
        let now = cx.now();
        if session.heard + self.config.idle() <= now {
            // After a silence it restarts, but stays in the report.
            *session = Session { former: session.listed(), ..Session::default() };
        }
        session.heard = now;
        let contradicts = self.take(session, segment);
        cx.expire_after(if session.listed() > 0 { self.config.remembered() } else { self.config.idle() });
        if session.sides.iter().all(|side| !side.head().is_empty()) || session.pattern > 0 {
            cx.assure();
        }
        Ok(if session.pattern > 0 && self.config.blocks() {
            Verdict::Drop(PATTERN)
        } else if contradicts && self.config.drops_contradictions() {
            Verdict::Drop(CONTRADICTION)
        } else {
            Verdict::forward()
        })
    }

    /// Without room, packets are forwarded only if the configuration drops nothing: a full table must not be a way around.
    fn orphan<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Segment) -> Step<Verdict, M> {
        Ok(if self.config.drops_nothing() { Verdict::forward() } else { Verdict::Drop(Reason::TABLE_FULL) })
    }

    fn report<M: Memory>(&self, _: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let (mut sessions, mut whole) = (0_u64, 0_u64);
        let mut counted = flows.alive().inspect(|(_, session)| {
            sessions += 1;
            whole += u64::from(session.is_whole(self.config.head_len()));
        });
        // Sessions with a pattern first, then those with contradictions, then by payload.
        let weight = |session: &Session| {
            let rank = if session.listed() > 0 { 2 } else { u64::from(session.contradictions > 0) };
            rank << 62 | session.payload.min((1 << 62) - 1)
        };
        let heaviest = heaviest(&mut counted, self.config.top(), weight);
        let row = |(tuple, session): (FiveTuple, Session)| {
            let [first, second] = session.heads();
            vec![
                tuple.to_string().into(),
                session.payload.into(),
                self.config.name(session.listed()).into(),
                session.contradictions.into(),
                Self::legible(first).into(),
                Self::digest(first).into(),
                Self::legible(second).into(),
                Self::digest(second).into(),
            ]
        };
        Ok(Some(Report {
            title: format!("first bytes of {} TCP sessions, {} of them complete", grouped(sessions), grouped(whole)),
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
        }))
    }
}

#[cfg(test)]
mod tests;
