//! The lists of decoders, and how the first byte chooses among them.

use core::ops::RangeInclusive;

use crate::bytes::{Bytes, Found, Told};

/// Decoders whose Yes leaves no doubt.
pub(crate) const STRONG: u8 = 90;
/// Decoders that want the other side's word first.
pub(crate) const NORMAL: u8 = 60;
/// Decoders that come last.
pub(crate) const WEAK: u8 = 30;

/// The side that a decoder of streams reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reads {
    /// What the initiator sends.
    Initiator(fn(&Bytes<'_>) -> Told<Found>),
    /// What the responder sends.
    Responder(fn(&Bytes<'_>) -> Told<Found>),
    /// Either side by itself.
    Either(fn(&Bytes<'_>) -> Told<Found>),
    /// Both sides: the initiator's bytes and the responder's. The first byte is the initiator's.
    Both(fn(&Bytes<'_>, &Bytes<'_>) -> Told<Found>),
    /// Both sides, the first byte is the responder's.
    BothByResponder(fn(&Bytes<'_>, &Bytes<'_>) -> Told<Found>),
}

/// First bytes of a decoder's messages.
pub(crate) type First = &'static [RangeInclusive<u8>];

/// Any first byte.
pub(crate) const ANY: First = &[0..=255];

/// A decoder of streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamDecoder {
    pub(crate) priority: u8,
    pub(crate) first: First,
    pub(crate) reads: Reads,
}

/// A decoder of single datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramDecoder {
    pub(crate) priority: u8,
    pub(crate) first: First,
    pub(crate) read: fn(&Bytes<'_>) -> Told<Found>,
    /// Number of datagrams of a session that must fit.
    pub(crate) repeats: u8,
}

/// For each first byte, the decoders that take it, as a set of bits.
pub(crate) fn by_first_byte<'a>(firsts: impl Iterator<Item = &'a First>) -> [u128; 256] {
    let mut table = [0; 256];
    for (number, first) in firsts.enumerate() {
        for byte in first.iter().flat_map(Clone::clone) {
            table[usize::from(byte)] |= 1 << number;
        }
    }
    table
}
