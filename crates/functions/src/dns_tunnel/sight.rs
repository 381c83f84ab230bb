//! The metadata of a packet: the client, and what it sends or is told.

use core::net::IpAddr;

use nf::{HOST_BYTES, Meta, RecordReader, RecordWriter};
use packet::Host;

use super::DNS;
use super::key::ByClient;
use super::message::ADDRESSES_MAX;
use super::state::Peers;
use crate::streams::Portion;

/// The metadata of a packet: the client, and what it sends or is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    pub(super) client: Host,
    pub(super) event: Event,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The client sends a packet to the peer with this name.
    Sends { peer: u32, is_query: bool },
    /// The client gets these addresses for a name.
    Told { name: u32, peers: Peers },
    /// The client gets an answer without an address.
    Nowhere { name: u32 },
    /// The client gets an unreadable message.
    Unreadable,
    /// A segment between the client and port 53, from either side.
    Segment(Portion),
}

impl Sight {
    /// A segment between a client and port 53; `None` if not exactly one of its ports is 53.
    #[inline]
    pub(super) fn of_segment(portion: Portion) -> Option<Self> {
        let client = ByClient::connection(portion.tuple())?.host();
        Some(Self { client, event: Event::Segment(portion) })
    }

    /// True if it is of DNS.
    pub(super) const fn is_dns(&self) -> bool {
        !matches!(self.event, Event::Sends { is_query: false, .. })
    }
}

/// The server's address, if the client sends this segment to port 53.
pub(super) fn server_of(portion: &Portion) -> Option<IpAddr> {
    let destination = portion.tuple().destination();
    (destination.port == DNS).then_some(destination.address)
}

/// Bytes behind the first one, if it is no segment.
const FIELDS: usize = HOST_BYTES + 4 + 1 + 4 * ADDRESSES_MAX;

/// In the first byte: the rest is the record of a segment's portion.
const SEGMENT: u8 = 6;

impl Meta for Sight {
    type Key = ByClient;

    const TELLS_SOURCE: bool = true;

    /// The kind of event in one byte; a segment, or client, name and peers.
    const RECORD_BYTES: usize = 1 + Portion::RECORD_BYTES;

    #[inline]
    fn key(&self) -> ByClient {
        match &self.event {
            Event::Segment(portion) => ByClient::connection(portion.tuple()),
            Event::Sends { .. } | Event::Told { .. } | Event::Nowhere { .. } | Event::Unreadable => None,
        }
        .unwrap_or_else(|| ByClient::client(self.client))
    }

    fn source(&self) -> Option<Host> {
        match &self.event {
            Event::Segment(portion) => portion.source(),
            Event::Sends { .. } => Some(self.client),
            Event::Told { .. } | Event::Nowhere { .. } | Event::Unreadable => None,
        }
    }

    fn write(&self, record: &mut [u8]) {
        let (kind, name, peers) = match &self.event {
            Event::Sends { peer, is_query } => {
                (1 + u8::from(*is_query), 0, Peers { names: [*peer, 0, 0, 0, 0, 0, 0, 0], crossed: 0 })
            }
            Event::Told { name, peers } => (3, *name, *peers),
            Event::Nowhere { name } => (4, *name, Peers::default()),
            Event::Unreadable => (5, 0, Peers::default()),
            Event::Segment(portion) => {
                record[0] = SEGMENT;
                return portion.write(&mut record[1..]);
            }
        };
        let fields = RecordWriter::new(record).u8(kind).host(&self.client).u32(name).u8(peers.crossed as u8);
        let fields = peers.names.into_iter().fold(fields, RecordWriter::u32);
        fields.none::<{ Self::RECORD_BYTES - 1 - FIELDS }>().end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        if let [SEGMENT, portion @ ..] = record {
            return Portion::read(portion).filter(Portion::is_tcp).and_then(Self::of_segment);
        }
        let mut fields = RecordReader::new(record);
        let (kind, client) = (fields.u8()?, fields.host()?);
        let (name, crossed) = (fields.u32()?, fields.u8()?);
        let mut peers = Peers { names: [0; ADDRESSES_MAX], crossed: crossed.into() };
        for peer in &mut peers.names {
            *peer = fields.u32()?;
        }
        fields.none::<{ Self::RECORD_BYTES - 1 - FIELDS }>()?;
        fields.end()?;
        let count = peers.each().count();
        if peers.names[count..].iter().any(|peer| *peer != 0) || u32::from(crossed) >> count != 0 {
            return None;
        }
        let event = match (kind, count) {
            (1 | 2, 1) if name == 0 && crossed == 0 => Event::Sends { peer: peers.names[0], is_query: kind == 2 },
            (3, 1..) => Event::Told { name, peers },
            (4, 0) => Event::Nowhere { name },
            (5, 0) if name == 0 => Event::Unreadable,
            _ => return None,
        };
        Some(Self { client, event })
    }
}
