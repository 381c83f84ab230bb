//! Connection tracking for any protocol: the metadata of a packet, and the state of a connection. `conntrack`, `firewall` and
//! `load-balancer` use it.
//!
//! TCP uses the state machine in [`tcp`]. UDP and other protocols are conversations of two endpoints. ICMP queries are identified by
//! their identifier. ICMP errors belong to the connection that they quote.

#[cfg(test)]
pub(crate) mod driver;
pub mod rules;
pub mod tcp;
mod words;

use core::fmt;
use core::hint::cold_path;

use memory::Memory;
use nf::{Context, ENDS_BYTES, Flow, IPV6, Meta, NetworkFunction, RecordReader, RecordWriter, family_of};
use packet::{Action, Decided, FiveTuple, Fragment, Headers, Host, Icmp, Nanos, Network, Taken, Transport, protocol};

pub use rules::{Rules, TcpRules, Timeouts};
use tcp::{Head, Segment, Tracker};

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    tracked: Tracked,
    /// The opener is the first endpoint of the symmetric five-tuple.
    opener_first: bool,
}

/// The state of a connection, by its protocol.
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
    /// When it began, in two halves, so that the struct has an alignment of four.
    began: [u32; 2],
    answered: bool,
    assured: bool,
}

/// The kinds of ICMP queries that were sent, one bit for each: by the opener, by the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queries {
    asked: [u8; 2],
    answered: bool,
}

/// The metadata of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The connection: the symmetric five-tuple.
    pub key: FiveTuple,
    /// What the packet does to the connection.
    pub event: Event,
    /// The first endpoint of `key` sent it.
    pub from_first: bool,
    /// The ingress interface.
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

/// Why a packet can't belong to any connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unobserved {
    /// Certainly neither IPv4 nor IPv6.
    NotIp,
    /// It may hold IP that the parser can't find.
    Unreadable,
    /// A later fragment, which has no ports.
    Fragment,
    /// Neighbour discovery and multicast listening, which have no connections.
    Untracked,
    /// It is invalid.
    Invalid(Cause),
}

/// Why a packet is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// It belongs to no connection, and none can begin with it.
    NoConnection,
    /// TCP flags that no stack sends together.
    InvalidFlags,
    /// A TCP segment that can't come in its connection's state.
    InvalidState,
    /// A TCP segment outside the windows.
    OutOfWindow,
    /// A TCP reset from before the next byte that its receiver expects.
    InvalidRst,
    /// An ICMP error that quotes no packet of a known connection, or goes to another host than the one that sent it.
    UnrelatedError,
    /// An ICMP reply without a query.
    UnaskedReply,
    /// An ICMP message that is neither query nor error.
    UnknownIcmp,
}

/// The side of a connection that sent a packet.
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
    /// It is valid; the connection's idle timeout from now on.
    Valid(Nanos),
    /// It is forwarded; the connection's deadline doesn't change.
    Kept,
    /// It is forwarded as an ICMP error about the connection. The connection's deadline doesn't change.
    Related,
    /// It is forwarded and ends the connection.
    Ends,
    /// The connection has ended, and this packet reopens it: the caller decides, and then calls [`reopen`](Connection::reopen).
    Reopens,
    /// It is invalid.
    Invalid(Cause),
    /// It is invalid, and reduces the connection's idle timeout to this.
    InvalidAndIdle(Cause, Nanos),
}

impl Flow for Connection {
    nf::in_words!();
}

impl Meta for Observation {
    type Key = FiveTuple;

    const TELLS_SOURCE: bool = true;

    /// Event number, address family and direction in one byte; the connection; the interface; the segment, or the kind of an ICMP query.
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
/// Bit position of the event's number in a record's first byte.
const EVENT_SHIFT: u32 = 2;
/// Number of kinds of ICMP queries.
pub(crate) const QUERY_KINDS: u8 = 4;

impl Event {
    /// Bytes of the wire form, without the [number](Self::number).
    pub(crate) const RECORD_BYTES: usize = Segment::RECORD_BYTES;

    /// Adds the wire form to a record, without the [number](Self::number).
    #[inline(always)]
    pub(crate) fn write<'a>(&self, fields: RecordWriter<'a>) -> RecordWriter<'a> {
        match self {
            Self::Tcp(segment) => segment.write(fields),
            Self::Query(kind) | Self::Reply(kind) => fields.u8(*kind).none::<{ Segment::RECORD_BYTES - 1 }>(),
            Self::Udp | Self::Error | Self::Other => fields.none::<{ Segment::RECORD_BYTES }>(),
        }
    }

    /// Returns true for a TCP segment with ACK alone, with or without data. Compiles to one comparison.
    #[inline(always)]
    const fn is_ack(&self) -> bool {
        matches!(self, Self::Tcp(Segment { head: Head { event: tcp::Event::Ack, .. }, .. }))
    }

    /// Sets whether the connection's first endpoint sent it. Only TCP segments store that.
    #[inline(always)]
    pub(crate) fn sent_by(mut self, first: bool) -> Self {
        if let Self::Tcp(segment) = &mut self {
            *segment = segment.sent_by(first);
        }
        self
    }

    /// The number of the event, below 8.
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

    /// Reads the event with this number from the rest of a record.
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

/// Age from which UDP in both directions is a stream.
const STREAM_AGE: Nanos = Nanos::from_secs(2);

impl Connection {
    /// Creates the state for a connection's first packet. Then call [`step`](Self::step) with the same packet.
    ///
    /// # Errors
    /// Why the packet can't open a connection.
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

    /// Fast path: handles a segment within the windows of an open TCP connection, or a datagram of a UDP conversation, and sets the
    /// deadline. Returns false without a change if [`step`](Self::step) must handle the packet.
    #[inline(always)]
    pub fn flow<N: NetworkFunction, M: Memory>(
        &mut self,
        observation: &Observation,
        rules: &Rules,
        cx: &mut Context<'_, N, M>,
    ) -> bool {
        let direction = self.direction(observation);
        // Two tests in sequence: matched as a pair, both would be evaluated in full.
        if observation.event.is_ack() {
            let (Event::Tcp(segment), Tracked::Tcp(tracker)) = (&observation.event, &mut self.tracked) else {
                return false;
            };
            let Some(idle) = tracker.flow(segment, direction, &rules.tcp) else { return false };
            // The connection was protected from eviction when it became assured.
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

    /// Second fast path: handles segments that open and close a TCP connection in the usual way. Returns the idle timeout, or `None`
    /// without a change if [`step`](Self::step) must handle the packet.
    #[inline(always)]
    pub fn flow_on(&mut self, observation: &Observation, rules: &Rules) -> Option<Nanos> {
        let direction = self.direction(observation);
        let Tracked::Tcp(tracker) = &mut self.tracked else { return None };
        let Event::Tcp(segment) = &observation.event else { return None };
        tracker.flow_on(segment, direction, &rules.tcp)
    }

    /// Handles any packet, including those that the faster [`flow`](Self::flow) and [`flow_on`](Self::flow_on) handle.
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
            // One protocol number with two transports: impossible headers, but no reason to panic.
            (_, Event::Tcp(_) | Event::Udp | Event::Query(_) | Event::Reply(_) | Event::Other) => {
                Outcome::Invalid(Cause::InvalidState)
            }
        }
    }

    /// Reopens the connection with a packet for which [`step`](Self::step) returned [`Outcome::Reopens`], and handles that packet.
    ///
    /// # Errors
    /// Why the packet can't open a connection.
    #[inline(never)]
    pub fn reopen(&mut self, observation: &Observation, rules: &Rules, now: Nanos) -> Result<Outcome, Cause> {
        *self = Self::open(observation, rules, now)?;
        Ok(self.step(observation, rules, now))
    }

    /// Decides the connection's coming packets, if none of them can change more than [`taken`](Self::taken) brings back: those of
    /// an open TCP connection within its windows, and those of a UDP stream. `None` for other connections.
    #[must_use]
    pub fn decided(&self, rules: &Rules) -> Option<Decided> {
        let (idle, tcp) = match &self.tracked {
            Tracked::Tcp(tracker) => {
                (rules.tcp.idle[tcp::State::Established as usize], Some(tracker.windows(self.opener_first)?))
            }
            Tracked::Udp(Conversation { answered: true, assured: true, .. }) => ([rules.udp_stream; 2], None),
            Tracked::Udp(_) | Tracked::Icmp(_) | Tracked::Other(_) => return None,
        };
        Some(Decided { actions: [Action::Across; 2], idle, bytes_max: u64::MAX, tcp })
    }

    /// Handles packets that were taken since the connection was [decided](Self::decided).
    pub fn taken(&mut self, taken: &Taken, rules: &Rules) {
        if let (Tracked::Tcp(tracker), Some(windows), 1..) = (&mut self.tracked, &taken.tcp, taken.count()) {
            tracker.set_windows(windows, self.opener_first, &rules.tcp);
        }
    }

    /// Returns the side that sent the packet.
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

    /// Returns true if the connection is assured: it is not evicted from a full table.
    #[inline]
    #[must_use]
    pub const fn assured(&self) -> bool {
        match &self.tracked {
            Tracked::Tcp(tracker) => tracker.assured(),
            Tracked::Udp(conversation) | Tracked::Other(conversation) => conversation.assured,
            Tracked::Icmp(_) => false,
        }
    }

    /// Returns true if the side that didn't open the connection has sent a valid packet.
    #[inline]
    #[must_use]
    pub const fn answered(&self) -> bool {
        match &self.tracked {
            Tracked::Tcp(tracker) => tracker.answered(),
            Tracked::Udp(conversation) | Tracked::Other(conversation) => conversation.answered,
            Tracked::Icmp(queries) => queries.answered,
        }
    }

    /// Returns true if it is a TCP connection whose handshake is not over.
    #[must_use]
    pub const fn is_opening(&self) -> bool {
        match &self.tracked {
            Tracked::Tcp(tracker) => tracker.state().is_opening(),
            Tracked::Udp(_) | Tracked::Icmp(_) | Tracked::Other(_) => false,
        }
    }

    /// Returns true if the packet is the SYN or SYN-ACK with which its sender begins this connection, as far as the tracker believes.
    #[must_use]
    pub fn is_begun_by(&self, observation: &Observation) -> bool {
        match (&self.tracked, &observation.event) {
            (Tracked::Tcp(tracker), Event::Tcp(segment)) => tracker.is_begun_by(segment, self.direction(observation)),
            _ => false,
        }
    }

    /// Returns true if it is a TCP connection that both sides have closed, or one has reset.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        match &self.tracked {
            Tracked::Tcp(tracker) => matches!(tracker.state(), tcp::State::TimeWait | tcp::State::Close),
            Tracked::Udp(_) | Tracked::Icmp(_) | Tracked::Other(_) => false,
        }
    }

    /// The names of the protocol and the state, for reports.
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

    /// The TCP tracker of a TCP connection.
    #[must_use]
    pub const fn tcp(&self) -> Option<&Tracker> {
        match &self.tracked {
            Tracked::Tcp(tracker) => Some(tracker),
            Tracked::Udp(_) | Tracked::Icmp(_) | Tracked::Other(_) => None,
        }
    }
}

impl Outcome {
    /// Applies the outcome to the flow: deadline, end, protection from eviction.
    ///
    /// # Errors
    /// The cause, if the packet is invalid.
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
            // A segment that may not reopen the connection is invalid in it.
            Self::Reopens => Err(Cause::InvalidState),
        }
    }
}

impl Conversation {
    #[inline]
    fn step_udp(&mut self, direction: Direction, rules: &Rules, now: Nanos) -> Nanos {
        let mut idle = rules.udp;
        // The first answer is not enough: the timeout grows with later packets.
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
    /// Extracts the metadata of a packet; `None` if it belongs to no connection, see [`Unobserved::of`].
    // Inlined so that it is built in place and not copied.
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

    /// Sets whether the first endpoint of `key` sent it.
    #[inline]
    #[must_use]
    pub(crate) fn sent_by(self, first: bool) -> Self {
        Self { event: self.event.sent_by(first), from_first: first, ..self }
    }

    /// The packet's five-tuple as sent; for an ICMP error, that of the quoted packet.
    #[must_use]
    pub const fn tuple(&self) -> FiveTuple {
        if self.from_first { self.key } else { self.key.reversed() }
    }
}

impl Unobserved {
    /// Returns why [`Observation::of`] returned `None`.
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

/// The role of an ICMP message for connections.
enum IcmpRole {
    Query(u8),
    Reply(u8),
    /// An error; the five-tuple of the quoted packet.
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
                // Multicast listener discovery and neighbour discovery, without redirects.
                130..=136 | 143 => Self::Unobserved(Unobserved::Untracked),
                // Unassigned ones too (RFC 4443, section 2.4, b).
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

    /// An error must go to the host that sent the quoted packet; another one is forged or misrouted.
    fn error(headers: &Headers, icmp: &Icmp) -> Self {
        match (icmp.embedded, headers.addresses()) {
            (Some(embedded), Some((_, to))) if embedded.tuple.source().address == to => Self::Error(embedded.tuple),
            _ => Self::Unobserved(Unobserved::Invalid(Cause::UnrelatedError)),
        }
    }
}

impl Cause {
    /// All causes, by number.
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

    /// The names of all causes, by number. Functions use these numbers for their drop reasons.
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

/// Builds a packet's five-tuple from its ports.
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
