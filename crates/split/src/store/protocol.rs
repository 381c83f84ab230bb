//! Messages between a split and a store server: one UDP datagram each.
//!
//! A header of 24 bytes, all numbers big-endian: magic (4 bytes), version (1), kind (1), generation (2), session (8), slot (4), number (4).
//! A payload follows in `Put` and `Payload`.

/// Bytes of a message without payload.
pub(crate) const HEADER: usize = 24;

const MAGIC: [u8; 4] = *b"MrSt";
const VERSION: u8 = 1;

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To the server: keep `number` slots for this session.
    Hello,
    /// From the server: it does.
    Welcome,
    /// From the server: it has no room; `number` slots are free.
    Full,
    /// To the server: park this payload.
    Put,
    /// To the server: hand out a payload.
    Get,
    /// From the server: the payload.
    Payload,
    /// From the server: it doesn't have the payload.
    Empty,
    /// From the server: it doesn't know the session.
    Unknown,
    /// To the server: the session is over, and its memory is free.
    Bye,
}

const KINDS: [Kind; 9] = [
    Kind::Hello,
    Kind::Welcome,
    Kind::Full,
    Kind::Put,
    Kind::Get,
    Kind::Payload,
    Kind::Empty,
    Kind::Unknown,
    Kind::Bye,
];

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: Kind,
    pub(crate) generation: u16,
    pub(crate) session: u64,
    pub(crate) slot: u32,
    pub(crate) number: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// A message of a session, about nothing yet.
    pub(crate) const fn new(kind: Kind, session: u64) -> Self {
        Self { kind, generation: 0, session, slot: 0, number: 0, payload: &[] }
    }

    /// Writes the message into `out`, which is emptied first.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u8;
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, kind]);
        out.extend_from_slice(&self.generation.to_be_bytes());
        out.extend_from_slice(&self.session.to_be_bytes());
        out.extend_from_slice(&self.slot.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(self.payload);
    }

    /// Reads a datagram; `None` if it is no message.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk::<HEADER>()?;
        let [a, b, c, d, version, kind, rest @ ..] = header;
        let kind = *KINDS.get(usize::from(*kind))?;
        if [*a, *b, *c, *d] != MAGIC || *version != VERSION {
            return None;
        }
        let [g, h, session @ .., i, j, k, l, m, n, o, p] = *rest;
        Some(Self {
            kind,
            generation: u16::from_be_bytes([g, h]),
            session: u64::from_be_bytes(session),
            slot: u32::from_be_bytes([i, j, k, l]),
            number: u32::from_be_bytes([m, n, o, p]),
            payload,
        })
    }
}
