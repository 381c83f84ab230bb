//! The metadata of a TCP segment.

use nf::{RecordReader, RecordWriter};
use packet::{LastSegment, Tcp, TcpFlags};

use super::{Marks, after};

/// The metadata of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The fields that identify a retransmission.
    pub(in crate::tracking) head: Head,
    /// The highest right edge of the SACK blocks, or `ack` if none is beyond it.
    pub sack: u32,
}

/// The fields that identify a segment, together so that they are compared and stored as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tracking) struct Head {
    /// The sequence number.
    pub(super) seq: u32,
    /// The sequence number after the segment.
    pub(super) end: u32,
    /// The acknowledgement number.
    pub(super) ack: u32,
    /// The window as sent.
    pub(super) window: u16,
    /// The window scale in the low four bits, then `OFFERS_*`, `HAS_ACK` and `FROM_FIRST`.
    bits: u8,
    /// The kind of segment.
    pub(in crate::tracking) event: Event,
}

impl Head {
    /// The value before any segment, with the sender of this one.
    pub(super) const fn before(segment: &Segment) -> Self {
        let bits = segment.head.bits & FROM_FIRST;
        Self { seq: 0, end: 0, ack: 0, window: 0, bits, event: Event::Nothing }
    }

    /// Returns true if everything but the event is equal. Unlike `==` it has no branch, because the result is unpredictable.
    #[inline(always)]
    pub(super) const fn is_like(&self, other: &Self) -> bool {
        let numbers = (self.first_two() ^ other.first_two()) | (self.ack ^ other.ack) as u64;
        // Widened first, to avoid repeated conversions.
        let window = self.window as u64 ^ other.window as u64;
        let side = (self.bits as u64 ^ other.bits as u64) & FROM_FIRST as u64;
        numbers | window | side == 0
    }

    /// The fields by which a repetition is told.
    pub(super) const fn told(&self) -> LastSegment {
        let Self { seq, end, ack, window, bits, .. } = *self;
        LastSegment { seq, end, ack, window, from_first: bits & FROM_FIRST != 0 }
    }

    /// The value of a segment with ACK alone and no options of a SYN.
    pub(super) const fn of_ack(segment: &LastSegment) -> Self {
        let LastSegment { seq, end, ack, window, from_first } = *segment;
        let bits = HAS_ACK | if from_first { FROM_FIRST } else { 0 };
        Self { seq, end, ack, window, bits, event: Event::Ack }
    }

    /// The value as words.
    pub(super) fn to_words(self) -> [u64; 2] {
        let Self { window, bits, event, .. } = self;
        let rest = u64::from(window) << 32 | u64::from(bits) << 48 | (event as u64) << 56;
        [self.first_two(), u64::from(self.ack) | rest]
    }

    /// Converts back from words of [`Self::to_words`].
    pub(super) const fn from_words([first, second]: [u64; 2]) -> Self {
        let event = match (second >> 56) as u8 {
            0 => Event::Syn,
            1 => Event::SynAck,
            2 => Event::Fin,
            3 => Event::Ack,
            4 => Event::Rst,
            _ => Event::Nothing,
        };
        let (window, bits) = ((second >> 32) as u16, (second >> 48) as u8);
        Self { seq: first as u32, end: (first >> 32) as u32, ack: second as u32, window, bits, event }
    }

    #[inline(always)]
    const fn first_two(&self) -> u64 {
        self.seq as u64 | (self.end as u64) << 32
    }

    /// Returns true if the same side sent both.
    #[inline(always)]
    pub(super) const fn is_of_side(&self, other: &Self) -> bool {
        (self.bits ^ other.bits) & FROM_FIRST == 0
    }

    /// Copies event and sender of another segment. The numbers stay.
    #[inline(always)]
    pub(super) const fn take_event_of(&mut self, other: &Self) {
        self.event = other.event;
        self.bits = self.bits & !FROM_FIRST | other.bits & FROM_FIRST;
    }
}

/// The kind of segment, by its flags. Other combinations are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// SYN alone.
    Syn,
    /// SYN and ACK.
    SynAck,
    /// FIN and ACK.
    Fin,
    /// ACK, with or without data.
    Ack,
    /// RST, with or without ACK.
    Rst,
    /// Nothing: the connection has not seen a segment yet.
    Nothing,
}

const SCALE: u8 = 0x0f;
const OFFERS_SCALE: u8 = 0x10;
const OFFERS_SACK: u8 = 0x20;
const HAS_ACK: u8 = 0x40;
/// The connection's first endpoint sent it.
const FROM_FIRST: u8 = 0x80;

const ALL_BITS: u8 = SCALE | OFFERS_SCALE | OFFERS_SACK | HAS_ACK;

impl Segment {
    /// Bytes of the wire form.
    pub(crate) const RECORD_BYTES: usize = 4 * 4 + 2 + 1 + 1;

    /// Adds the wire form to a record.
    pub(crate) fn write<'a>(&self, fields: RecordWriter<'a>) -> RecordWriter<'a> {
        let Self { head: Head { seq, end, ack, window, bits, event }, sack } = *self;
        fields.u32(seq).u32(end).u32(ack).u32(sack).u16(window).u8(event as u8).u8(bits & ALL_BITS)
    }

    /// Reads the wire form. The sender is set by `sent_by`.
    pub(crate) fn read(fields: &mut RecordReader<'_>) -> Option<Self> {
        let [seq, end, ack, sack] = [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
        let window = fields.u16()?;
        let event = match fields.u8()? {
            0 => Event::Syn,
            1 => Event::SynAck,
            2 => Event::Fin,
            3 => Event::Ack,
            4 => Event::Rst,
            _ => return None,
        };
        let bits = fields.u8()?;
        let scale = bits & SCALE;
        let offers = bits & OFFERS_SCALE != 0 && scale <= 14 || scale == 0;
        let makes_sense = bits & !ALL_BITS == 0 && offers && (sack == ack || after(sack, ack));
        makes_sense.then_some(Self { head: Head { seq, end, ack, window, bits, event }, sack })
    }

    /// Sets whether the connection's first endpoint sent it.
    #[inline(always)]
    #[must_use]
    pub(crate) const fn sent_by(mut self, first: bool) -> Self {
        self.head.bits = self.head.bits & !FROM_FIRST | if first { FROM_FIRST } else { 0 };
        self
    }

    /// Extracts the metadata of a header with `payload_len` bytes of payload; `None` if no stack sends these flags together. The sender
    /// is set by `sent_by`.
    #[inline]
    #[must_use]
    pub fn new(tcp: &Tcp, payload_len: u32) -> Option<Self> {
        let event = Event::of(tcp.flags)?;
        let counted = payload_len
            .wrapping_add(u32::from(tcp.flags.contains(TcpFlags::SYN)))
            .wrapping_add(u32::from(tcp.flags.contains(TcpFlags::FIN)));
        let mut bits = if tcp.flags.contains(TcpFlags::ACK) { HAS_ACK } else { 0 };
        if let Some(scale) = tcp.options.window_scale {
            bits |= OFFERS_SCALE | scale.min(14);
        }
        if tcp.options.sack_permitted {
            bits |= OFFERS_SACK;
        }
        let sack = match tcp.options.sack_edge {
            Some(edge) if after(edge, tcp.ack) => edge,
            _ => tcp.ack,
        };
        let end = tcp.seq.wrapping_add(counted);
        Some(Self { head: Head { seq: tcp.seq, end, ack: tcp.ack, window: tcp.window, bits, event }, sack })
    }

    /// The kind of segment.
    #[inline(always)]
    #[must_use]
    pub const fn event(&self) -> Event {
        self.head.event
    }

    /// The window as sent.
    #[inline(always)]
    #[must_use]
    pub const fn window(&self) -> u16 {
        self.head.window
    }

    /// The sequence number.
    #[inline(always)]
    #[must_use]
    pub const fn seq(&self) -> u32 {
        self.head.seq
    }

    /// The sequence number after the segment; SYN and FIN count as one each.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.head.end
    }

    /// The acknowledgement number as in the header.
    #[inline(always)]
    #[must_use]
    pub const fn ack(&self) -> u32 {
        self.head.ack
    }

    /// Returns true if the ACK flag is set.
    #[inline]
    pub(crate) const fn has_ack(&self) -> bool {
        self.head.bits & HAS_ACK != 0
    }

    /// Returns the options that a SYN offers, added to `flags`.
    pub(super) fn offer(&self, mut flags: u8) -> Marks {
        let bits = self.head.bits;
        if bits & OFFERS_SCALE != 0 {
            flags |= Marks::WINDOW_SCALE;
        }
        if bits & OFFERS_SACK != 0 {
            flags |= Marks::SACK;
        }
        Marks { scale: bits & SCALE, flags }
    }
}

impl Event {
    /// Classifies flags; `None` for combinations that no stack sends. PSH, ECE and CWR are ignored.
    #[inline]
    #[must_use]
    pub const fn of(flags: TcpFlags) -> Option<Self> {
        BY_FLAGS[(flags.0 & 0x3f) as usize]
    }
}

const BY_FLAGS: [Option<Event>; 64] = {
    const FIN: usize = TcpFlags::FIN.0 as usize;
    const SYN: usize = TcpFlags::SYN.0 as usize;
    const RST: usize = TcpFlags::RST.0 as usize;
    const PSH: usize = TcpFlags::PSH.0 as usize;
    const ACK: usize = TcpFlags::ACK.0 as usize;
    const URG: usize = TcpFlags::URG.0 as usize;
    let mut table = [None; 64];
    let mut flags = 0;
    while flags < 64 {
        table[flags] = match flags & !PSH {
            f if f == SYN || f == SYN | URG => Some(Event::Syn),
            f if f == SYN | ACK => Some(Event::SynAck),
            f if f == FIN | ACK || f == FIN | ACK | URG => Some(Event::Fin),
            f if f == ACK || f == ACK | URG => Some(Event::Ack),
            f if f == RST || f == RST | ACK => Some(Event::Rst),
            _ => None,
        };
        flags += 1;
    }
    table
};
