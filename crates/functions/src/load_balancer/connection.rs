//! What a packet contributes, and what is remembered of a client's connection.

use nf::{Flow, Meta, RecordReader, RecordWriter, TUPLE_BYTES};
use packet::{FiveTuple, Headers, Host, Nanos, Transport, protocol};

use crate::tracking::tcp::{self, Segment, State};
use crate::tracking::{self, Event, Observation};

/// What a packet contributes: whose connection it belongs to, which way it goes, and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// What it does to the connection. The connection's name is from the client to the service, whichever way the packet goes.
    pub(super) seen: Observation,
    pub(super) service: u16,
    pub(super) kind: PacketKind,
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// From a client to the service's address.
    Request,
    /// From a backend to a client.
    Answer { backend: u16 },
    /// From a client to a backend's own address.
    Direct { backend: u16 },
}

impl Passing {
    /// The packet's contribution to the connection of this name; `None` where the packet is neither TCP nor UDP.
    #[inline]
    pub(super) fn new(headers: &Headers, key: FiveTuple, service: u16, kind: PacketKind) -> Option<Self> {
        let event = match &headers.transport {
            // Flags that go together in no segment: forwarded as the others, and believed by no connection.
            Transport::Tcp(tcp) => Segment::new(tcp, headers.payload_len).map_or(Event::Other, Event::Tcp),
            Transport::Udp { .. } => Event::Udp,
            Transport::None | Transport::Icmp(_) | Transport::Sctp { .. } => return None,
        };
        let from_first = !matches!(kind, PacketKind::Answer { .. });
        let seen = Observation { key, event: event.sent_by(from_first), from_first, interface: 0 };
        Some(Self { seen, service, kind })
    }

    pub(super) const fn segment(&self) -> Option<&Segment> {
        match &self.seen.event {
            Event::Tcp(segment) => Some(segment),
            Event::Udp | Event::Query(_) | Event::Reply(_) | Event::Error | Event::Other => None,
        }
    }

    /// Whether it is a UDP datagram.
    pub(super) const fn is_datagram(&self) -> bool {
        matches!(self.seen.event, Event::Udp)
    }

    /// What the segment says, if it is one.
    pub(super) fn says(&self) -> Option<tcp::Event> {
        self.segment().map(Segment::event)
    }

    /// The number behind the SYN, where the packet asks for a connection.
    pub(super) fn asks(&self) -> Option<u32> {
        let segment = self.segment().filter(|segment| segment.event() == tcp::Event::Syn)?;
        Some(segment.seq().wrapping_add(1))
    }
}

/// Where the event's number begins in a record's first byte, behind the way's.
const EVENT_SHIFT: u32 = 2;
const KIND: u8 = 3;

impl Meta for Passing {
    type Key = FiveTuple;

    const RECORD_BYTES: usize = 1 + 2 + 2 + TUPLE_BYTES + Event::RECORD_BYTES;
    const TELLS_SOURCE: bool = true;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.seen.key
    }

    /// The client, whose connection it is.
    fn source(&self) -> Option<Host> {
        Some(Host::from(self.seen.key.source().address))
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        let (kind, backend) = match self.kind {
            PacketKind::Request => (0, 0),
            PacketKind::Answer { backend } => (1, backend),
            PacketKind::Direct { backend } => (2, backend),
        };
        let fields = RecordWriter::new(record).u8(kind | self.seen.event.number() << EVENT_SHIFT);
        self.seen.event.write(fields.u16(self.service).u16(backend).tuple(&self.seen.key)).end();
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let (bits, service, backend, key) = (fields.u8()?, fields.u16()?, fields.u16()?, fields.tuple()?);
        let kind = match (bits & KIND, backend) {
            (0, 0) => PacketKind::Request,
            (1, backend) => PacketKind::Answer { backend },
            (2, backend) => PacketKind::Direct { backend },
            _ => return None,
        };
        let from_first = !matches!(kind, PacketKind::Answer { .. });
        let event = Event::read(bits >> EVENT_SHIFT, &mut fields)?.sent_by(from_first);
        fields.end()?;
        let makes_sense = match event {
            Event::Tcp(_) | Event::Other => key.protocol() == protocol::TCP,
            Event::Udp => key.protocol() == protocol::UDP,
            Event::Query(_) | Event::Reply(_) | Event::Error => false,
        };
        makes_sense.then_some(Self { seen: Observation { key, event, from_first, interface: 0 }, service, kind })
    }
}

/// What is remembered of a client's port: the connection that it has through the service, or else with a backend directly, and which
/// other backends it talks to directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The connection as its backend sees it, to which the client is the same by either name.
    pub(super) tracked: tracking::Connection,
    pub(super) backend: u16,
    /// By which name the client knows the backend.
    pub(super) name: Name,
    pub(super) attempt: Attempt,
    /// The number behind the last SYN to that backend, by the name that it was sent to.
    pub(super) asked: [u32; 2],
    /// A digest of the client's and the service's address.
    pub(super) client: u32,
    /// The other backends that the client talks to directly: bit `backend % 32` of each.
    pub(super) direct: u32,
    /// Packets of the connection: to the backend, and from it.
    pub(super) packets: [u32; 2],
    /// When the attempt was made.
    pub(super) since: Nanos,
}

impl Flow for Connection {}

/// The name by which a client knows a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Name {
    /// The service's address.
    Service,
    /// Its own.
    Direct,
}

impl Name {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Service => Self::Direct,
            Self::Direct => Self::Service,
        }
    }
}

/// A client's asking for a connection, as far as it tells whether the backend lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// None that is open: it was answered, or nobody can tell.
    None,
    /// The backend has yet to answer.
    Waiting,
    /// The backend hasn't answered in time, and that was counted.
    Missed,
}

/// How far behind the SYN an answer may acknowledge, or the client's next segment begin: data may have gone with it.
const BEHIND_SYN: u32 = 0xffff;

/// Whether `number` is what a segment behind the SYN carries, `asked` being the number behind that.
pub(super) const fn is_behind(number: u32, asked: u32) -> bool {
    number.wrapping_sub(asked) <= BEHIND_SYN
}

impl Connection {
    pub(super) fn state(&self) -> Option<State> {
        self.tracked.tcp().map(tcp::Tracker::state)
    }

    /// Whether both sides have closed it, or one has reset it: the next SYN begins anew. Of a connection whose answers take another way
    /// one side's end is all that there is to be seen.
    pub(super) fn is_over(&self) -> bool {
        match self.state() {
            Some(State::TimeWait | State::Close) => true,
            Some(State::FinWait | State::CloseWait | State::LastAck) => !self.is_answered(),
            Some(State::None | State::SynSent | State::SynRecv | State::Established | State::SynSent2) | None => false,
        }
    }

    /// Whether the backend has sent anything.
    pub(super) fn is_answered(&self) -> bool {
        self.tracked.tcp().is_none_or(tcp::Tracker::answered)
    }

    /// The name that an answer of the connection's backend goes out under: the connection's, unless it answers a SYN by the other
    /// name, which the connection knew nothing of.
    pub(super) fn answered_name(&self, meta: &Passing) -> Name {
        let Some(segment) = meta.segment() else { return self.name };
        let other = self.name.other();
        // Data may go with a SYN, so it is the SYN that lies next.
        let [own, others] = [self.name, other].map(|name| segment.ack().wrapping_sub(self.asked[name as usize]));
        match segment.event() {
            tcp::Event::SynAck | tcp::Event::Rst if others < own && others <= BEHIND_SYN => other,
            tcp::Event::Syn
            | tcp::Event::SynAck
            | tcp::Event::Fin
            | tcp::Event::Ack
            | tcp::Event::Rst
            | tcp::Event::Nothing => self.name,
        }
    }

    pub(super) const fn talks_directly_to(&self, backend: u16) -> bool {
        self.direct & bit(backend) != 0
    }
}

/// A backend's bit in [`Connection::direct`].
pub(super) const fn bit(backend: u16) -> u32 {
    1 << (backend % 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of the table with its key and deadline takes two cache lines.
    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Connection>() <= 104, "{}", size_of::<Connection>());
    }
}
