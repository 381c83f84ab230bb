//! The metadata of a segment, and its wire form.

use nf::{ENDS_BYTES, IPV6, Meta, RecordReader, RecordWriter, family_of};
use packet::{FiveTuple, Host};

use crate::http::Digest;

/// The metadata of a segment: its connection, and the session that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub(super) tuple: FiveTuple,
    pub(super) event: Event,
}

/// What a segment does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Data,
    Syn,
    Fin,
    Reset,
    /// A request with the cookie of this session, and the hash of its user agent.
    Request {
        session: Digest,
        agent: u32,
    },
}

impl Meta for Segment {
    type Key = FiveTuple;

    const RECORD_BYTES: usize = 1 + ENDS_BYTES + 12;
    const TELLS_SOURCE: bool = true;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.tuple.symmetric().0
    }

    fn source(&self) -> Option<Host> {
        Some(Host::from(self.tuple.source().address))
    }

    fn write(&self, record: &mut [u8]) {
        let (kind, session, agent) = match self.event {
            Event::Data => (0, 0, 0),
            Event::Syn => (1, 0, 0),
            Event::Fin => (2, 0, 0),
            Event::Reset => (3, 0, 0),
            Event::Request { session, agent } => (4, session.0, agent),
        };
        let flags = kind << 1 | family_of(self.tuple.source().address);
        RecordWriter::new(record).u8(flags).ends(&self.tuple).u64(session).u32(agent).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let flags = fields.u8()?;
        let tuple = fields.ends(flags & IPV6 == IPV6)?;
        let (session, agent) = (fields.u64()?, fields.u32()?);
        fields.end()?;
        let event = match (flags >> 1, session, agent) {
            (0, 0, 0) => Event::Data,
            (1, 0, 0) => Event::Syn,
            (2, 0, 0) => Event::Fin,
            (3, 0, 0) => Event::Reset,
            (4, ..) => Event::Request { session: Digest(session), agent },
            _ => return None,
        };
        (tuple.protocol() == packet::protocol::TCP).then_some(Self { tuple, event })
    }
}
