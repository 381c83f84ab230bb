//! The metadata of a packet, and its wire form.

use core::net::Ipv4Addr;

use nf::{RecordReader, RecordWriter};
use packet::{FiveTuple, Icmp, TcpFlags, protocol};

use super::state::{Endpoint4, Protocol};

/// The metadata of a packet: its endpoints, its translation, and what it does to a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meta {
    pub(super) source: Endpoint4,
    pub(super) destination: Endpoint4,
    pub(super) translation: Translation,
    pub(super) content: Content,
}

/// How a packet passes the translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Translation {
    /// From inside to a remote host.
    Outward,
    /// From a remote host to an external address.
    Inward,
    /// From inside to an external address.
    Hairpin,
    /// An ICMP error that stays inside, about a packet that was on its way out and not translated yet.
    Within,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Content {
    Segment(TcpFlags),
    Datagram,
    /// An ICMP query, or the reply to one.
    Query {
        is_request: bool,
    },
    /// An ICMP error about a packet from `source` to `destination`.
    Error {
        source: Endpoint4,
        destination: Endpoint4,
        protocol: Protocol,
    },
}

impl nf::Meta for Meta {
    type Key = FiveTuple;

    /// Translation and content number in one byte; both endpoints; the flags of a segment, or both endpoints of a quoted packet.
    const RECORD_BYTES: usize = 1 + 2 * Endpoint4::RECORD_BYTES + QUOTED_BYTES;

    fn key(&self) -> FiveTuple {
        let protocol = match self.content {
            Content::Segment(_) => protocol::TCP,
            Content::Datagram => protocol::UDP,
            Content::Query { .. } | Content::Error { .. } => protocol::ICMP,
        };
        let [src, dst] = [self.source, self.destination].map(|endpoint| Ipv4Addr::from_bits(endpoint.address));
        FiveTuple::v4(src, dst, self.source.port, self.destination.port, protocol)
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        let bits = self.translation as u8 | self.content.number() << CONTENT_SHIFT;
        let fields = RecordWriter::new(record).u8(bits);
        let fields = self.destination.write(self.source.write(fields));
        match self.content {
            Content::Segment(flags) => fields.u8(flags.0).none::<{ QUOTED_BYTES - 1 }>().end(),
            Content::Datagram | Content::Query { .. } => fields.none::<QUOTED_BYTES>().end(),
            Content::Error { source, destination, .. } => destination.write(source.write(fields)).end(),
        }
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let bits = fields.u8()?;
        let translation = match bits & ((1 << CONTENT_SHIFT) - 1) {
            0 => Translation::Outward,
            1 => Translation::Inward,
            2 => Translation::Hairpin,
            _ => Translation::Within,
        };
        let (source, destination) = (Endpoint4::read(&mut fields)?, Endpoint4::read(&mut fields)?);
        let content = Content::read(bits >> CONTENT_SHIFT, &mut fields)?;
        fields.end()?;
        // A query has its identifier as both ports; an error has no ports.
        let makes_sense = match content {
            Content::Segment(_) | Content::Datagram => translation != Translation::Within,
            Content::Query { .. } => source.port == destination.port && translation != Translation::Within,
            Content::Error { .. } => source.port == 0 && destination.port == 0,
        };
        makes_sense.then_some(Self { source, destination, translation, content })
    }
}

/// Bit position of the content's number in a record's first byte. The translation is below it.
const CONTENT_SHIFT: u32 = 2;
/// Bytes of both endpoints of a packet that an error quotes.
const QUOTED_BYTES: usize = 2 * Endpoint4::RECORD_BYTES;

impl Content {
    const fn number(self) -> u8 {
        match self {
            Self::Segment(_) => 0,
            Self::Datagram => 1,
            Self::Query { is_request: false } => 2,
            Self::Query { is_request: true } => 3,
            Self::Error { protocol: Protocol::Tcp, .. } => 4,
            Self::Error { protocol: Protocol::Udp, .. } => 5,
            Self::Error { protocol: Protocol::Icmp, .. } => 6,
        }
    }

    /// Reads the content with this number from the rest of a record.
    fn read(number: u8, fields: &mut RecordReader<'_>) -> Option<Self> {
        let protocol = match number {
            0 => {
                let flags = TcpFlags(fields.u8()?);
                return fields.none::<{ QUOTED_BYTES - 1 }>().map(|()| Self::Segment(flags));
            }
            1 => return fields.none::<QUOTED_BYTES>().map(|()| Self::Datagram),
            2 | 3 => return fields.none::<QUOTED_BYTES>().map(|()| Self::Query { is_request: number == 3 }),
            4 => Protocol::Tcp,
            5 => Protocol::Udp,
            6 => Protocol::Icmp,
            _ => return None,
        };
        let (source, destination) = (Endpoint4::read(fields)?, Endpoint4::read(fields)?);
        Some(Self::Error { source, destination, protocol })
    }

    pub(super) fn of_icmp(icmp: &Icmp) -> Option<Self> {
        if icmp.identifier.is_some() {
            // Requests: echo, timestamp, information, address mask (RFC 792, RFC 950). The others are replies.
            return Some(Self::Query { is_request: matches!(icmp.kind, 8 | 13 | 15 | 17) });
        }
        // A redirect quotes a packet too, but it is no error: it would make the host bypass the translator.
        if !is_icmp_error(icmp.kind) {
            return None;
        }
        let FiveTuple::V4(_) = icmp.embedded?.tuple else { return None };
        let tuple = icmp.embedded?.tuple;
        let protocol = match tuple.protocol() {
            protocol::TCP => Protocol::Tcp,
            protocol::UDP => Protocol::Udp,
            protocol::ICMP => Protocol::Icmp,
            _ => return None,
        };
        let [source, destination] = [tuple.source(), tuple.destination()].map(|endpoint| match endpoint.address {
            core::net::IpAddr::V4(address) => Some(Endpoint4::new(address, endpoint.port)),
            core::net::IpAddr::V6(_) => None,
        });
        Some(Self::Error { source: source?, destination: destination?, protocol })
    }
}

/// Returns true for destination unreachable, source quench, time exceeded and parameter problem.
pub(super) fn is_icmp_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 11 | 12)
}
