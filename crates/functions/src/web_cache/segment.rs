//! The metadata of a segment, and its wire form.

use nf::{ENDS_BYTES, IPV6, Meta, RecordReader, RecordWriter, family_of};
use packet::{FiveTuple, Host};

use super::message::{Ask, CacheAction, Keep, Reply, Uncacheable};
use crate::http::Digest;

/// The metadata of a segment: its connection, and the message that begins with it.
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
    /// A request, and the segment's sequence number, to find retransmissions.
    Ask(Ask, u32),
    Reply(Reply, u32),
}

/// Offset of a reason's number in the code byte.
const REASON: u8 = 16;
/// Flags in the code byte of a response: it is public, it succeeds.
const PUBLIC: u8 = 64;
const SUCCEEDS: u8 = 128;

impl Meta for Segment {
    type Key = FiveTuple;

    const RECORD_BYTES: usize = 1 + ENDS_BYTES + 4 + 1 + 8 + 4 + 8;
    const TELLS_SOURCE: bool = true;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.tuple.symmetric().0
    }

    fn source(&self) -> Option<Host> {
        Some(Host::from(self.tuple.source().address))
    }

    fn write(&self, record: &mut [u8]) {
        let (kind, seq, code, name, secs, length) = match self.event {
            Event::Data => (0, 0, 0, 0, 0, 0),
            Event::Syn => (1, 0, 0, 0, 0, 0),
            Event::Fin => (2, 0, 0, 0, 0, 0),
            Event::Reset => (3, 0, 0, 0, 0, 0),
            Event::Ask(Ask { name, what }, seq) => {
                let code = match what {
                    CacheAction::LookUp => 0,
                    CacheAction::Reload => 1,
                    CacheAction::Authorized => 2,
                    CacheAction::Unsafe => 3,
                    CacheAction::Bypass(why) => REASON + why as u8,
                };
                (4, seq, code, name.0, 0, 0)
            }
            Event::Reply(Reply { keep, is_public, succeeds, length }, seq) => {
                let (code, secs) = match keep {
                    Keep::For(secs) => (0, secs),
                    Keep::Not(why) => (REASON + why as u8, 0),
                };
                let flags = if is_public { PUBLIC } else { 0 } | if succeeds { SUCCEEDS } else { 0 };
                (5, seq, code | flags, 0, secs, length)
            }
        };
        let flags = kind << 1 | family_of(self.tuple.source().address);
        let fields = RecordWriter::new(record).u8(flags).ends(&self.tuple).u32(seq).u8(code);
        fields.u64(name).u32(secs).u64(length).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let flags = fields.u8()?;
        let tuple = fields.ends(flags & IPV6 == IPV6)?;
        let (seq, code) = (fields.u32()?, fields.u8()?);
        let (name, secs, length) = (Digest(fields.u64()?), fields.u32()?, fields.u64()?);
        fields.end()?;
        let reason = |code: u8| Uncacheable::ALL.get(usize::from(code.checked_sub(REASON)?)).copied();
        let event = match (flags >> 1, (seq, code, name.0, secs, length)) {
            (0, (0, 0, 0, 0, 0)) => Event::Data,
            (1, (0, 0, 0, 0, 0)) => Event::Syn,
            (2, (0, 0, 0, 0, 0)) => Event::Fin,
            (3, (0, 0, 0, 0, 0)) => Event::Reset,
            (4, (.., 0, 0)) => {
                let what = match code {
                    0 => CacheAction::LookUp,
                    1 => CacheAction::Reload,
                    2 => CacheAction::Authorized,
                    3 => CacheAction::Unsafe,
                    code => CacheAction::Bypass(reason(code)?),
                };
                Event::Ask(Ask { name, what }, seq)
            }
            (5, (_, _, 0, _, _)) => {
                let keep = match (code & !(PUBLIC | SUCCEEDS), secs) {
                    (0, 1..) => Keep::For(secs),
                    (code, 0) => Keep::Not(reason(code)?),
                    _ => return None,
                };
                let [is_public, succeeds] = [PUBLIC, SUCCEEDS].map(|flag| code & flag != 0);
                Event::Reply(Reply { keep, is_public, succeeds, length }, seq)
            }
            _ => return None,
        };
        (tuple.protocol() == packet::protocol::TCP).then_some(Self { tuple, event })
    }
}
