//! The metadata of a packet of a session: [`Portion`].

use nf::{Meta, RecordReader, RecordWriter};
use packet::{FiveTuple, Headers, Host};

use crate::tracking::{Event, Observation, tcp};

/// The metadata of a packet: what the tracker needs, and where the payload lies in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// For the tracker.
    pub(crate) observation: Observation,
    /// Where the payload begins in the frame.
    offset: u16,
    /// Payload on the wire, in bytes.
    len: u32,
}

impl Portion {
    /// The metadata of a TCP segment or a UDP datagram; `None` for other packets.
    #[inline(always)]
    pub(crate) fn of(headers: &Headers, _frame: &[u8]) -> Option<Self> {
        let observation = Observation::of(headers)?;
        let (offset, len) = (headers.payload_offset, headers.payload_len);
        matches!(observation.event, Event::Tcp(_) | Event::Udp).then_some(Self { observation, offset, len })
    }

    /// What was captured of the payload, and the number of bytes that were not.
    #[inline]
    pub(crate) fn payload<'a>(&self, frame: &'a [u8]) -> (&'a [u8], u32) {
        let start = usize::from(self.offset);
        let end = frame.len().min(start + self.len as usize);
        let captured = frame.get(start..end).unwrap_or_default();
        (captured, self.len - captured.len() as u32)
    }

    /// The five-tuple of the packet as it was sent.
    #[inline]
    pub(crate) const fn tuple(&self) -> FiveTuple {
        self.observation.tuple()
    }

    /// True if it is a segment of TCP.
    #[inline]
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        matches!(self.observation.event, Event::Tcp(_))
    }

    /// True if it is a segment in the midst of a connection.
    pub(super) const fn is_midstream(&self) -> bool {
        match &self.observation.event {
            Event::Tcp(segment) => !matches!(segment.event(), tcp::Event::Syn | tcp::Event::SynAck),
            _ => false,
        }
    }

    /// The packet on the wire, in bytes: headers and payload, without padding behind them.
    #[inline]
    #[must_use]
    pub const fn wire_len(&self) -> u32 {
        self.len.saturating_add(self.offset as u32)
    }

    /// Payload on the wire, in bytes.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// True if there is no payload.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Meta for Portion {
    type Key = FiveTuple;

    const TELLS_SOURCE: bool = true;

    /// That of the tracker; offset and length of the payload.
    const RECORD_BYTES: usize = Observation::RECORD_BYTES + 2 + 4;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.observation.key
    }

    fn source(&self) -> Option<Host> {
        self.observation.source()
    }

    fn write(&self, record: &mut [u8]) {
        let (seen, payload) = record.split_at_mut(Observation::RECORD_BYTES);
        self.observation.write(seen);
        RecordWriter::new(payload).u16(self.offset).u32(self.len).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        let (seen, payload) = record.split_at_checked(Observation::RECORD_BYTES)?;
        let observation = Observation::read(seen)?;
        let mut fields = RecordReader::new(payload);
        let (offset, len) = (fields.u16()?, fields.u32()?);
        fields.end()?;
        matches!(observation.event, Event::Tcp(_) | Event::Udp).then_some(Self { observation, offset, len })
    }
}
