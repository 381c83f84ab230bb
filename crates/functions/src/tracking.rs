//! Connections of any protocol: what a packet contributes to one, and what it does to it. `conntrack` and `firewall`
//! decide by this.
//!
//! TCP follows the state machine in [`tcp`]; UDP and other protocols are conversations of two endpoints; ICMP queries
//! are known by their identifier; ICMP errors belong to the connection that they quote.

#[cfg(test)]
pub(crate) mod driver;
pub mod rules;
pub mod tcp;

use core::fmt;
use core::hint::cold_path;

use memory::Memory;
use nf::{Context, ENDS_BYTES, Flow, IPV6, Meta, NetworkFunction, RecordReader, RecordWriter, family_of};
use packet::{FiveTuple, Fragment, Headers, Host, Icmp, Nanos, Network, Transport, protocol};

pub use rules::{Rules, TcpRules, Timeouts};
use tcp::{Head, Segment, Tracker};

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    tracked: Tracked,
    /// Whether the opener is the first endpoint of the symmetric five-tuple.
    opener_first: bool,
}

/// What is known of a connection, by its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tracked {
    Tcp(Tracker),
    Udp(Conversation),
    Icmp(Queries),
    Other(Conversation),
}

/// A conversation of two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Conversation {
    /// When it began, in two halves so that the whole keeps an alignment of four.
    began: [u32; 2],
    answered: bool,
    assured: bool,
}

/// Which ICMP queries have been sent, a bit for each kind: by the opener, by the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queries {
    asked: [u8; 2],
    answered: bool,
}

/// What a packet contributes to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The connection: the symmetric five-tuple.
    pub key: FiveTuple,
    /// What the packet does.
    pub event: Event,
    /// Whether the first endpoint of `key` sent it.
    pub from_first: bool,
    /// The interface that it came in by.
    pub interface: u16,
}

/// What a packet does to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A TCP segment.
    Tcp(Segment),
    /// A UDP datagram.
    Udp,
    /// An ICMP query, by its kind.
    Query(u8),
    /// The reply to an ICMP query of that kind.
    Reply(u8),
    /// An ICMP error about a packet of the connection.
    Error,
    /// A packet of another protocol.
    Other,
}

/// Why a packet belongs to no connection, whatever connections there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unobserved {
    /// Surely neither IPv4 nor IPv6.
    NotIp,
    /// It may hold IP that is not found.
    Unreadable,
    /// A later fragment, which has no ports.
    Fragment,
    /// Neighbour discovery and multicast listening, which have no connections.
    Untracked,
    /// It can't be valid.
    Invalid(Cause),
}

/// Why a packet is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// It belongs to no connection, and none can begin with it.
    NoConnection,
    /// TCP flags that go together in no segment that a stack sends.
    InvalidFlags,
    /// A TCP segment that can't come in its connection's state.
    InvalidState,
    /// A TCP segment outside the windows.
    OutOfWindow,
    /// A TCP reset behind which there can't be the receiver's peer.
    InvalidRst,
    /// An ICMP error that quotes no packet of a known connection, or goes to another host than sent that.
    UnrelatedError,
    /// An ICMP reply that nobody asked for.
    UnaskedReply,
    /// An ICMP message that is neither query nor error.
    UnknownIcmp,
}

/// Which side of a connection sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// The side that sent the first packet.
    Original,
    /// The other side.
    Reply,
}

/// What a packet did to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is valid, and the connection may idle for this long from now on.
    Valid(Nanos),
    /// It passes; the connection keeps its deadline.
    Kept,
    /// It passes as an ICMP error about the connection, which keeps its deadline.
    Related,
    /// It passes, and the connection ends with it.
    Ends,
    /// The connection has ended, and this packet opens it anew: the caller decides whether it may, and then lets it
    /// [reopen](Connection::reopen).
    Reopens,
    /// It is invalid.
    Invalid(Cause),
    /// It is invalid, and casts so much doubt on the connection that it may idle only for this long.
    InvalidAndIdle(Cause, Nanos),
}

impl Flow for Connection {}

impl Meta for Observation {
    type Key = FiveTuple;

    const TELLS_SOURCE: bool = true;

    /// What kind of event it is, which family and which direction; the connection; the interface; the segment, or the kind
    /// of an ICMP query.
    const RECORD_BYTES: usize = 1 + ENDS_BYTES + 2 + Segment::RECORD_BYTES;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.key
    }

    fn source(&self) -> Option<Host> {
        let sender = if self.from_first { self.key.source() } else { self.key.destination() };
        Some(Host::from(sender.address))
    }

    fn write(&self, record: &mut [u8]) {
        let direction = if self.from_first { FROM_FIRST } else { 0 };
        let bits = family_of(self.key.source().address) | direction | self.event.number() << EVENT_SHIFT;
        self.event.write(RecordWriter::new(record).u8(bits).ends(&self.key).u16(self.interface)).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let bits = fields.u8()?;
        let key = fields.ends(bits & IPV6 != 0)?;
        let interface = fields.u16()?;
        let from_first = bits & FROM_FIRST != 0;
        let event = Event::read(bits >> EVENT_SHIFT, &mut fields)?.sent_by(from_first);
        fields.end()?;
        let is_symmetric = key.symmetric().1;
        is_symmetric.then_some(Self { key, event, from_first, interface })
    }
}

/// In a record's first byte: the first endpoint sent the packet.
const FROM_FIRST: u8 = 2;
/// Where the event's number begins in a record's first byte.
const EVENT_SHIFT: u32 = 2;
/// The kinds of ICMP queries that are told apart.
const QUERY_KINDS: u8 = 4;

impl Event {
    /// Bytes of the wire form, the [number](Self::number) apart.
    pub(crate) const RECORD_BYTES: usize = Segment::RECORD_BYTES;

    /// Adds the wire form to a record, the [number](Self::number) apart.
    #[inline(always)]
    pub(crate) fn write<'a>(&self, fields: RecordWriter<'a>) -> RecordWriter<'a> {
        match self {
            Self::Tcp(segment) => segment.write(fields),
            Self::Query(kind) | Self::Reply(kind) => fields.u8(*kind).none::<{ Segment::RECORD_BYTES - 1 }>(),
            Self::Udp | Self::Error | Self::Other => fields.none::<{ Segment::RECORD_BYTES }>(),
        }
    }

    /// Whether it is a segment that acknowledges, with or without data. In one comparison, made without looking for another event first.
    #[inline(always)]
    const fn is_ack(&self) -> bool {
        matches!(self, Self::Tcp(Segment { head: Head { event: tcp::Event::Ack, .. }, .. }))
    }

    /// The same, sent by the connection's first endpoint or not, where it keeps that itself.
    #[inline(always)]
    pub(crate) fn sent_by(mut self, first: bool) -> Self {
        if let Self::Tcp(segment) = &mut self {
            *segment = segment.sent_by(first);
        }
        self
    }

    /// The number of the kind of event, below 8.
    pub(crate) const fn number(&self) -> u8 {
        match self {
            Self::Tcp(_) => 0,
            Self::Udp => 1,
            Self::Query(_) => 2,
            Self::Reply(_) => 3,
            Self::Error => 4,
            Self::Other => 5,
        }
    }

    /// The event of this number, with what follows of its record.
    pub(crate) fn read(number: u8, fields: &mut RecordReader<'_>) -> Option<Self> {
        let event = match number {
            0 => return Segment::read(fields).map(Self::Tcp),
            2 | 3 => {
                let kind = fields.u8().filter(|kind| *kind < QUERY_KINDS)?;
                fields.none::<{ Segment::RECORD_BYTES - 1 }>()?;
                return Some(if number == 2 { Self::Query(kind) } else { Self::Reply(kind) });
            }
            1 => Self::Udp,
            4 => Self::Error,
            5 => Self::Other,
            _ => return None,
        };
        fields.none::<{ Segment::RECORD_BYTES }>().map(|()| event)
    }
}

/// UDP both ways for longer than this is a stream.
const STREAM_AGE: Nanos = Nanos::from_secs(2);

impl Connection {
    /// The state for a connection's first packet, which is then to be given to [`step`](Self::step).
    ///
    /// # Errors
    /// Why no connection can begin with it.
    #[inline]
    pub fn open(observation: &Observation, rules: &Rules, now: Nanos) -> Result<Self, Cause> {
        let conversation = Conversation { began: halves(now), answered: false, assured: false };
        let tracked = match &observation.event {
            Event::Tcp(segment) => Tracked::Tcp(Tracker::open(segment, &rules.tcp)?),
            Event::Udp => Tracked::Udp(conversation),
            Event::Query(_) => Tracked::Icmp(Queries { asked: [0; 2], answered: false }),
            Event::Other => Tracked::Other(conversation),
            Event::Reply(_) => return Err(Cause::UnaskedReply),
            Event::Error => return Err(Cause::UnrelatedError),
        };
        Ok(Self { tracked, opener_first: observation.from_first })
    }

    /// Follows a packet if it is a segment within the windows of an open TCP connection, as nearly all are, or a datagram of a
    /// UDP conversation, and asks the engine for what follows from it. `false`, and nothing has changed, where [`step`](Self::step)
    /// must judge.
    #[inline(always)]
    pub fn flow<N: NetworkFunction, M: Memory>(
        &mut self,
        observation: &Observation,
        rules: &Rules,
        cx: &mut Context<'_, N, M>,
    ) -> bool {
        let direction = self.direction(observation);
        // One question after the other: as a pair, both would be answered in full first.
        if observation.event.is_ack() {
            let (Event::Tcp(segment), Tracked::Tcp(tracker)) = (&observation.event, &mut self.tracked) else {
                return false;
            };
            let Some(idle) = tracker.flow(segment, direction, &rules.tcp) else { return false };
            // The packet that the connection was assured by has asked for its place.
            cx.expire_after(idle);
            return true;
        }
        let (Tracked::Udp(conversation), Event::Udp) = (&mut self.tracked, &observation.event) else { return false };
        let was_assured = conversation.assured;
        cx.expire_after(conversation.step_udp(direction, rules, cx.now()));
        if conversation.assured & !was_assured {
            cold_path();
            cx.assure();
        }
        true
    }

    /// The same for what opens and closes a TCP connection in the ordinary way, with [`flow`](Self::flow) most of all packets.
    #[inline(always)]
    pub fn flow_on(&mut self, observation: &Observation, rules: &Rules) -> Option<Nanos> {
        let direction = self.direction(observation);
        let Tracked::Tcp(tracker) = &mut self.tracked else { return None };
        let Event::Tcp(segment) = &observation.event else { return None };
        tracker.flow_on(segment, direction, &rules.tcp)
    }

    /// Judges a packet and follows it, also one that [`flow`](Self::flow) or [`flow_on`](Self::flow_on) would follow sooner.
    #[inline]
    pub fn step(&mut self, observation: &Observation, rules: &Rules, now: Nanos) -> Outcome {
        let direction = self.direction(observation);
        match (&mut self.tracked, &observation.event) {
            (Tracked::Tcp(tracker), Event::Tcp(segment)) => tracker.step(segment, direction, &rules.tcp),
            (_, Event::Error) => Outcome::Related,
            (Tracked::Udp(conversation), Event::Udp) => Outcome::Valid(conversation.step_udp(direction, rules, now)),
            (Tracked::Icmp(queries), Event::Query(kind)) => {
                queries.asked[direction as usize] |= 1 << (kind & 7);
                Outcome::Valid(rules.icmp)
            }
            (Tracked::Icmp(queries), Event::Reply(kind)) => {
                if queries.asked[direction as usize ^ 1] >> (kind & 7) & 1 == 0 {
                    return Outcome::Invalid(Cause::UnaskedReply);
                }
                queries.answered = true;
                Outcome::Valid(rules.icmp)
            }
            (Tracked::Other(conversation), Event::Other) => {
                conversation.answered |= direction == Direction::Reply;
                conversation.assured = conversation.answered;
                Outcome::Valid(rules.other)
            }
            // One protocol number, read as two transports: headers that can't be, but no reason to fall over.
            (_, Event::Tcp(_) | Event::Udp | Event::Query(_) | Event::Reply(_) | Event::Other) => {
                Outcome::Invalid(Cause::InvalidState)
            }
        }
    }

    /// Opens the connection anew with a packet of which [`step`](Self::step) said that it [reopens](Outcome::Reopens) it, and follows
    /// that.
    ///
    /// # Errors
    /// Why no connection can begin with it.
    #[inline(never)]
    pub fn reopen(&mut self, observation: &Observation, rules: &Rules, now: Nanos) -> Result<Outcome, Cause> {
        *self = Self::open(observation, rules, now)?;
        Ok(self.step(observation, rules, now))
    }

    /// Which side sent the packet.
    #[inline]
    #[must_use]
    pub const fn direction(&self, observation: &Observation) -> Direction {
        if observation.from_first == self.opener_first { Direction::Original } else { Direction::Reply }
    }

    /// Whether the opener is the first endpoint of the symmetric five-tuple.
    #[must_use]
    pub const fn opener_first(&self) -> bool {
        self.opener_first
    }

    /// Whether the connection has proved itself: when a table is full, it stays.
    #[inline]
    #[must_use]
    pub const fn assured(&self) -> bool {
        match &self.tracked {
            Tracked::Tcp(tracker) => tracker.assured(),
            Tracked::Udp(conversation) | Tracked::Other(conversation) => conversation.assured,
            Tracked::Icmp(_) => false,
        }
    }

    /// The protocol's name and the state's, for reports.
    #[must_use]
    pub const fn names(&self) -> (&'static str, &'static str) {
        match &self.tracked {
            Tracked::Tcp(tracker) => ("tcp", tracker.state().name()),
            Tracked::Udp(Conversation { assured: true, .. }) => ("udp", "stream"),
            Tracked::Udp(conversation) => ("udp", answered(conversation.answered)),
            Tracked::Icmp(queries) => ("icmp", answered(queries.answered)),
            Tracked::Other(conversation) => ("other", answered(conversation.answered)),
        }
    }

    /// The TCP tracker, if it is a TCP connection.
    #[must_use]
    pub const fn tcp(&self) -> Option<&Tracker> {
        match &self.tracked {
            Tracked::Tcp(tracker) => Some(tracker),
            Tracked::Udp(_) | Tracked::Icmp(_) | Tracked::Other(_) => None,
        }
    }
}

impl Outcome {
    /// Asks the engine for what follows from the outcome; the cause if the packet is invalid.
    ///
    /// # Errors
    /// The cause.
    #[inline]
    pub fn carry_out<N: NetworkFunction, M: Memory>(
        self,
        connection: &Connection,
        cx: &mut Context<'_, N, M>,
    ) -> Result<(), Cause> {
        if connection.assured() {
            cx.assure();
        }
        match self {
            Self::Valid(idle) => {
                cx.expire_after(idle);
                Ok(())
            }
            Self::Kept | Self::Related => Ok(()),
            Self::Ends => {
                cx.close();
                Ok(())
            }
            Self::Invalid(cause) => Err(cause),
            Self::InvalidAndIdle(cause, idle) => {
                cx.expire_after(idle);
                Err(cause)
            }
            // A segment that may not reopen the connection has no place in it.
            Self::Reopens => Err(Cause::InvalidState),
        }
    }
}

impl Conversation {
    #[inline]
    fn step_udp(&mut self, direction: Direction, rules: &Rules, now: Nanos) -> Nanos {
        let mut idle = rules.udp;
        // The first answer alone proves nothing: the timeout grows with what comes after it.
        if self.answered {
            let began = Nanos(u64::from(self.began[0]) << 32 | u64::from(self.began[1]));
            if now.since(began) > STREAM_AGE {
                idle = rules.udp_stream;
                self.assured = true;
            }
        }
        self.answered |= direction == Direction::Reply;
        idle
    }
}

impl Observation {
    /// What the packet contributes to a connection; `None` where [`Unobserved::of`] says why it belongs to none.
    // Built in place where it is inlined; copied at a third more cost where it isn't.
    #[inline(always)]
    #[must_use]
    pub fn of(headers: &Headers) -> Option<Self> {
        let (tuple, event) = match &headers.transport {
            Transport::Tcp(tcp) => {
                (tuple(headers, tcp.src_port, tcp.dst_port)?, Event::Tcp(Segment::new(tcp, headers.payload_len)?))
            }
            &Transport::Udp { src_port, dst_port } => (tuple(headers, src_port, dst_port)?, Event::Udp),
            Transport::Icmp(icmp) => match IcmpRole::of(headers, icmp) {
                IcmpRole::Query(kind) => (headers.five_tuple()?, Event::Query(kind)),
                IcmpRole::Reply(kind) => (headers.five_tuple()?, Event::Reply(kind)),
                IcmpRole::Error(tuple) => (tuple, Event::Error),
                IcmpRole::Unobserved(_) => return None,
            },
            &Transport::Sctp { src_port, dst_port } => (tuple(headers, src_port, dst_port)?, Event::Other),
            Transport::None if headers.fragment == Fragment::Later => return None,
            Transport::None => (tuple(headers, 0, 0)?, Event::Other),
        };
        let (key, from_first) = tuple.symmetric();
        let event = event.sent_by(from_first);
        Some(Self { key, event, from_first, interface: headers.interface })
    }

    /// The packet's five-tuple as sent; of an ICMP error, the quoted packet's.
    #[must_use]
    pub const fn tuple(&self) -> FiveTuple {
        if self.from_first { self.key } else { self.key.reversed() }
    }
}

impl Unobserved {
    /// Why [`Observation::of`] has nothing to say of the packet.
    #[must_use]
    pub fn of(headers: &Headers) -> Self {
        match headers.network {
            Network::None | Network::Arp => return Self::NotIp,
            Network::Unreadable => return Self::Unreadable,
            Network::V4(_) | Network::V6(_) => {}
        }
        match &headers.transport {
            Transport::Tcp(_) => Self::Invalid(Cause::InvalidFlags),
            Transport::Icmp(icmp) => match IcmpRole::of(headers, icmp) {
                IcmpRole::Unobserved(why) => why,
                IcmpRole::Query(_) | IcmpRole::Reply(_) | IcmpRole::Error(_) => Self::Untracked,
            },
            Transport::None if headers.fragment == Fragment::Later => Self::Fragment,
            Transport::None | Transport::Udp { .. } | Transport::Sctp { .. } => Self::Untracked,
        }
    }
}

/// What an ICMP message is to connections.
enum IcmpRole {
    Query(u8),
    Reply(u8),
    /// It quotes this packet.
    Error(FiveTuple),
    Unobserved(Unobserved),
}

impl IcmpRole {
    #[inline(never)]
    fn of(headers: &Headers, icmp: &Icmp) -> Self {
        const UNKNOWN: IcmpRole = IcmpRole::Unobserved(Unobserved::Invalid(Cause::UnknownIcmp));
        let named = icmp.identifier.is_some();
        if headers.protocol == protocol::ICMPV6 {
            return match icmp.kind {
                128 if named => Self::Query(0),
                129 if named => Self::Reply(0),
                139 if named => Self::Query(1),
                140 if named => Self::Reply(1),
                // Multicast listener discovery and neighbour discovery, redirects not among them.
                130..=136 | 143 => Self::Unobserved(Unobserved::Untracked),
                // Also those that nobody has assigned (RFC 4443, section 2.4, b).
                0..=127 => Self::error(headers, icmp),
                _ => UNKNOWN,
            };
        }
        match icmp.kind {
            8 if named => Self::Query(0),
            0 if named => Self::Reply(0),
            13 if named => Self::Query(1),
            14 if named => Self::Reply(1),
            15 if named => Self::Query(2),
            16 if named => Self::Reply(2),
            17 if named => Self::Query(3),
            18 if named => Self::Reply(3),
            3 | 4 | 5 | 11 | 12 => Self::error(headers, icmp),
            _ => UNKNOWN,
        }
    }

    /// An error is for the host that sent the quoted packet; one that goes elsewhere is forged or astray.
    fn error(headers: &Headers, icmp: &Icmp) -> Self {
        match (icmp.embedded, headers.addresses()) {
            (Some(embedded), Some((_, to))) if embedded.tuple.source().address == to => Self::Error(embedded.tuple),
            _ => Self::Unobserved(Unobserved::Invalid(Cause::UnrelatedError)),
        }
    }
}

impl Cause {
    /// Every cause, in order of its number.
    pub const ALL: [Self; 8] = [
        Self::NoConnection,
        Self::InvalidFlags,
        Self::InvalidState,
        Self::OutOfWindow,
        Self::InvalidRst,
        Self::UnrelatedError,
        Self::UnaskedReply,
        Self::UnknownIcmp,
    ];

    /// The names of all causes, in order of their numbers: functions number their drop reasons so.
    pub const NAMES: [&'static str; 8] = [
        "no-connection",
        "invalid-flags",
        "invalid-state",
        "out-of-window",
        "invalid-rst",
        "unrelated-error",
        "unasked-reply",
        "unknown-icmp",
    ];

    /// The cause's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The five-tuple of a packet whose ports are known.
#[inline]
fn tuple(headers: &Headers, src_port: u16, dst_port: u16) -> Option<FiveTuple> {
    match &headers.network {
        Network::V4(ip) => Some(FiveTuple::v4(ip.src, ip.dst, src_port, dst_port, headers.protocol)),
        Network::V6(ip) => Some(FiveTuple::v6(ip.src, ip.dst, src_port, dst_port, headers.protocol)),
        Network::None | Network::Unreadable | Network::Arp => None,
    }
}

const fn answered(answered: bool) -> &'static str {
    if answered { "answered" } else { "unanswered" }
}

const fn halves(time: Nanos) -> [u32; 2] {
    [(time.0 >> 32) as u32, time.0 as u32]
}
