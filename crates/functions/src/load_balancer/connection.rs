//! The metadata of a packet, and the state of a client's connection.

use nf::{Flow, Meta, RecordReader, RecordWriter, TUPLE_BYTES};
use packet::{FiveTuple, Headers, Host, Nanos, Transport, protocol};

use crate::tracking::tcp::{self, Segment, State};
use crate::tracking::{self, Event, Observation};

/// The metadata of a packet: its connection, its kind, and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// What it does to the connection. The connection's key is from the client to the service, in both directions.
    pub(super) seen: Observation,
    pub(super) service: u16,
    pub(super) kind: PacketKind,
}

/// The kind of packet, by sender and receiver.
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
    /// Extracts the metadata of a packet of the connection with this key; `None` if it is neither TCP nor UDP.
    #[inline]
    pub(super) fn new(headers: &Headers, key: FiveTuple, service: u16, kind: PacketKind) -> Option<Self> {
        let event = match &headers.transport {
            // Impossible flags: forwarded, but no connection believes the segment.
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

    /// Returns true for a UDP datagram.
    pub(super) const fn is_datagram(&self) -> bool {
        matches!(self.seen.event, Event::Udp)
    }

    /// The kind of TCP segment, if it is one.
    pub(super) fn says(&self) -> Option<tcp::Event> {
        self.segment().map(Segment::event)
    }

    /// The sequence number after the SYN, if the packet is one.
    pub(super) fn asks(&self) -> Option<u32> {
        let segment = self.segment().filter(|segment| segment.event() == tcp::Event::Syn)?;
        Some(segment.seq().wrapping_add(1))
    }
}

/// Bit position of the event's number in a record's first byte. The kind is below it.
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

    /// The client.
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

/// The state of a client's port: its connection through the service, or else directly to a backend, and the other backends that it talks
/// to directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The connection as the backend sees it: the same five-tuple by either name.
    pub(super) tracked: tracking::Connection,
    pub(super) backend: u16,
    /// The name that the client uses for the backend.
    pub(super) name: Name,
    pub(super) attempt: Attempt,
    /// The sequence number after the last SYN to that backend, for each [`Name`].
    pub(super) asked: [u32; 2],
    /// A digest of the client's and the service's address.
    pub(super) client: u32,
    /// The other backends that the client talks to directly: bit `backend % 32` of each.
    pub(super) direct: u32,
    /// Packets of the connection: to the backend, and from it.
    pub(super) packets: [u32; 2],
    /// Time of the attempt.
    pub(super) since: Nanos,
}

impl Flow for Connection {
    nf::in_words!();
}

packet::words! {
    Connection: [13], connection => {
        let Connection { tracked, backend, name, attempt, asked, client, direct, packets, since } = connection;
        let two = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let mut words = [0; 13];
        words[..8].copy_from_slice(&tracked.to_words());
        words[8..12].copy_from_slice(&[
            u64::from(backend) << 16 | (name as u64) << 8 | attempt as u64,
            two(asked[0], asked[1]),
            two(client, direct),
            two(packets[0], packets[1]),
        ]);
        words[12] = since.0;
        words
    }, words => {
        let mut tracked = [0; 8];
        tracked.copy_from_slice(&words[..8]);
        let two = |word: u64| [(word >> 32) as u32, word as u32];
        let [client, direct] = two(words[10]);
        Self {
            tracked: tracking::Connection::from_words(tracked),
            backend: (words[8] >> 16) as u16,
            name: if words[8] >> 8 & 0xff == 0 { Name::Service } else { Name::Direct },
            attempt: match words[8] & 0xff {
                0 => Attempt::None,
                1 => Attempt::Waiting,
                _ => Attempt::Missed,
            },
            asked: two(words[9]),
            client,
            direct,
            packets: two(words[11]),
            since: Nanos(words[12]),
        }
    };
}

/// The address that a client uses for a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Name {
    /// The service's address.
    Service,
    /// The backend's own address.
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

/// The state of a client's connection attempt, for the backend's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// No open attempt: it was answered, or the answer is not visible.
    None,
    /// Waiting for the backend's answer.
    Waiting,
    /// Not answered in time; the failure was counted.
    Missed,
}

/// Maximum distance from the SYN at which an answer may acknowledge, or the client's next segment may begin: the SYN may carry data.
const BEHIND_SYN: u32 = 0xffff;

/// Returns true if `number` is close after `asked`, the number after the SYN.
pub(super) const fn is_behind(number: u32, asked: u32) -> bool {
    number.wrapping_sub(asked) <= BEHIND_SYN
}

impl Connection {
    pub(super) fn state(&self) -> Option<State> {
        self.tracked.tcp().map(tcp::Tracker::state)
    }

    /// Returns true if both sides have closed the connection, or one has reset it: the next SYN begins a new one. If answers take another
    /// path, the client's FIN is enough.
    pub(super) fn is_over(&self) -> bool {
        match self.state() {
            Some(State::TimeWait | State::Close) => true,
            Some(State::FinWait | State::CloseWait | State::LastAck) => !self.is_answered(),
            Some(State::None | State::SynSent | State::SynRecv | State::Established | State::SynSent2) | None => false,
        }
    }

    /// Returns true if the backend has sent anything.
    pub(super) fn is_answered(&self) -> bool {
        self.tracked.tcp().is_none_or(tcp::Tracker::answered)
    }

    /// The name that an answer of the backend gets: the connection's, unless it answers a SYN to the other name.
    pub(super) fn answered_name(&self, meta: &Passing) -> Name {
        let Some(segment) = meta.segment() else { return self.name };
        let other = self.name.other();
        // A SYN may carry data, so the nearest SYN counts.
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

    /// With key and deadline a flow takes two cache lines.
    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Connection>() <= 104, "{}", size_of::<Connection>());
    }
}
