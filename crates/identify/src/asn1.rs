//! The basic encoding of ASN.1 (X.690).

use crate::bytes::{Bytes, Stop, Told, ensure};

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const INTEGER: u8 = 2;
pub(crate) const OCTETS: u8 = 4;
pub(crate) const ENUMERATED: u8 = 10;

/// An element: where its content begins, and where it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    pub(crate) tag: u8,
    pub(crate) at: usize,
    pub(crate) end: usize,
}

impl Element {
    pub(crate) const fn len(&self) -> usize {
        self.end - self.at
    }
}

/// Reads the head of the element at an offset.
pub(crate) fn element(bytes: &Bytes<'_>, at: usize) -> Told<Element> {
    let tag = bytes.u8(at)?;
    let (len, at) = match bytes.u8(at + 1)? {
        len @ 0..=0x7f => (usize::from(len), at + 2),
        0x81 => (usize::from(bytes.u8(at + 2)?), at + 3),
        0x82 => (usize::from(bytes.be16(at + 2)?), at + 4),
        0x83 => (bytes.be24(at + 2)? as usize, at + 5),
        0x84 => (bytes.be32(at + 2)? as usize, at + 6),
        _ => return Err(Stop::No),
    };
    ensure(len < 1 << 24)?;
    Ok(Element { tag, at, end: at + len })
}

/// As [`element`], which must have this tag.
pub(crate) fn tagged(bytes: &Bytes<'_>, at: usize, tag: u8) -> Told<Element> {
    ensure(bytes.u8(at)? == tag)?;
    element(bytes, at)
}

/// Reads a number of up to four bytes that is not negative.
pub(crate) fn integer(bytes: &Bytes<'_>, at: usize, tag: u8) -> Told<(u32, usize)> {
    let element = tagged(bytes, at, tag)?;
    ensure(matches!(element.len(), 1..=5))?;
    let content = bytes.slice(element.at, element.len())?;
    ensure(content[0] < 0x80)?;
    let number = content.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    Ok((u32::try_from(number).map_err(|_| Stop::No)?, element.end))
}
