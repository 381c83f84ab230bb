//! What a TCP segment contributes to its connection's state.

use nf::{RecordReader, RecordWriter};
use packet::{Tcp, TcpFlags};

use super::{Marks, after};

/// What a segment contributes to a connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The three that tell whether it is the same once more: together, so that they are compared and noted as one.
    pub(super) numbers: Numbers,
    /// The highest right edge of the selective acknowledgement blocks; `ack` where there is none beyond it.
    pub sack: u32,
    /// The window as sent.
    pub window: u16,
    /// What the segment says.
    pub event: Event,
    /// The window scale in the low four bits, then `OFFERS_*` and `HAS_ACK`.
    bits: u8,
}

/// A segment's sequence number, the one behind it, and its acknowledgement number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers(pub(super) [u32; 3]);

impl Numbers {
    /// Where they differ; 0 if they don't. Without a branch, unlike `==`: whether a side has sent something is what no processor foresees.
    #[inline(always)]
    pub(super) const fn differ_from(&self, others: &Self) -> u64 {
        (self.first_two() ^ others.first_two()) | (self.ack() ^ others.ack()) as u64
    }

    #[inline(always)]
    const fn first_two(&self) -> u64 {
        self.0[0] as u64 | (self.0[1] as u64) << 32
    }

    #[inline(always)]
    pub(super) const fn seq(&self) -> u32 {
        self.0[0]
    }

    #[inline(always)]
    pub(super) const fn end(&self) -> u32 {
        self.0[1]
    }

    #[inline(always)]
    pub(super) const fn ack(&self) -> u32 {
        self.0[2]
    }
}

/// What a segment says, by its flags. Other combinations are invalid.
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

const ALL_BITS: u8 = SCALE | OFFERS_SCALE | OFFERS_SACK | HAS_ACK;

impl Segment {
    /// Bytes of the wire form.
    pub(crate) const RECORD_BYTES: usize = 4 * 4 + 2 + 1 + 1;

    /// Adds the wire form to a record.
    pub(crate) fn write<'a>(&self, fields: RecordWriter<'a>) -> RecordWriter<'a> {
        let Self { numbers: Numbers([seq, end, ack]), sack, window, event, bits } = *self;
        fields.u32(seq).u32(end).u32(ack).u32(sack).u16(window).u8(event as u8).u8(bits)
    }

    /// Back from the wire form.
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
        makes_sense.then_some(Self { numbers: Numbers([seq, end, ack]), sack, window, event, bits })
    }

    /// What the header contributes, with `payload_len` bytes behind it; `None` when its flags go together in no segment
    /// that a stack sends.
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
        let numbers = Numbers([tcp.seq, tcp.seq.wrapping_add(counted), tcp.ack]);
        Some(Self { numbers, sack, window: tcp.window, event, bits })
    }

    /// The sequence number.
    #[inline(always)]
    #[must_use]
    pub const fn seq(&self) -> u32 {
        self.numbers.seq()
    }

    /// The sequence number behind the segment: SYN and FIN count as one each.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.numbers.end()
    }

    /// The acknowledgement number, as it stands in the header.
    #[inline(always)]
    #[must_use]
    pub const fn ack(&self) -> u32 {
        self.numbers.ack()
    }

    /// Whether the acknowledgement number counts.
    #[inline]
    pub(super) const fn has_ack(&self) -> bool {
        self.bits & HAS_ACK != 0
    }

    /// What a SYN offers, besides `flags`.
    pub(super) fn offer(&self, mut flags: u8) -> Marks {
        if self.bits & OFFERS_SCALE != 0 {
            flags |= Marks::WINDOW_SCALE;
        }
        if self.bits & OFFERS_SACK != 0 {
            flags |= Marks::SACK;
        }
        Marks { scale: self.bits & SCALE, flags }
    }
}

impl Event {
    /// What these flags say; `None` for combinations that no stack sends. PSH, ECE and CWR go with anything.
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
