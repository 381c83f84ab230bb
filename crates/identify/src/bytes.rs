//! Reading the beginning of a stream so that every answer holds for all longer beginnings.
//!
//! A decoder reads by the methods of [`Bytes`] alone and passes their errors on by `?`. So it returns [`Stop::More`] exactly where it
//! wanted a byte that is not there yet, and with more bytes it takes the same way up to that place.

use crate::answer::{Confidence, Protocol};

/// Why a decoder found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It needs bytes that have not come.
    More,
    /// The bytes do not fit, whatever follows.
    No,
}

/// The outcome of a decoder, or of a step of one.
pub(crate) type Told<T> = Result<T, Stop>;

/// What a decoder found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) protocol: Protocol,
    pub(crate) confidence: Confidence,
}

impl Protocol {
    /// A finding without doubt.
    pub(crate) const fn certain(self) -> Found {
        Found { protocol: self, confidence: Confidence::Certain }
    }

    /// A finding with little doubt.
    pub(crate) const fn likely(self) -> Found {
        Found { protocol: self, confidence: Confidence::Likely }
    }

    /// A finding with much doubt.
    pub(crate) const fn guess(self) -> Found {
        Found { protocol: self, confidence: Confidence::Guess }
    }
}

/// Goes on if the condition holds.
pub(crate) fn ensure(condition: bool) -> Told<()> {
    if condition { Ok(()) } else { Err(Stop::No) }
}

/// Takes the first of two findings, and asks for the second only if the first is refused.
pub(crate) fn either<T>(first: Told<T>, second: impl FnOnce() -> Told<T>) -> Told<T> {
    match first {
        Err(Stop::No) => second(),
        told => told,
    }
}

/// The first bytes of one side, or a whole datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    bytes: &'a [u8],
    /// No byte follows.
    closed: bool,
}

impl<'a> Bytes<'a> {
    /// The beginning of a side. If `ended` no byte follows.
    pub(crate) const fn stream(bytes: &'a [u8], ended: bool) -> Self {
        Self { bytes, closed: ended }
    }

    /// A datagram.
    pub(crate) const fn datagram(bytes: &'a [u8]) -> Self {
        Self { bytes, closed: true }
    }

    /// The length of a datagram. Decoders of streams must not ask.
    pub(crate) const fn datagram_len(&self) -> usize {
        debug_assert!(self.closed);
        self.bytes.len()
    }

    /// Returns true if no byte follows.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns all bytes that are there. Decoders of streams must not ask.
    pub(crate) const fn whole(&self) -> &'a [u8] {
        self.bytes
    }

    /// What a reader gets who wants a byte behind the end.
    const fn end(&self) -> Stop {
        if self.closed { Stop::No } else { Stop::More }
    }

    /// Returns the bytes from an offset on, as a beginning of its own.
    pub(crate) fn from(&self, at: usize) -> Told<Self> {
        let bytes = self.bytes.get(at..).ok_or(self.end())?;
        Ok(Self { bytes, closed: self.closed })
    }

    /// Goes on if the end is exactly here.
    pub(crate) const fn ends_at(&self, at: usize) -> Told<()> {
        if self.bytes.len() > at || (self.closed && self.bytes.len() < at) {
            Err(Stop::No)
        } else if self.closed {
            Ok(())
        } else {
            Err(Stop::More)
        }
    }

    /// Returns `len` bytes at an offset.
    pub(crate) fn slice(&self, at: usize, len: usize) -> Told<&'a [u8]> {
        let end = at.checked_add(len).ok_or(Stop::No)?;
        self.bytes.get(at..end).ok_or(self.end())
    }

    /// Returns `N` bytes at an offset.
    #[inline]
    pub(crate) fn array<const N: usize>(&self, at: usize) -> Told<[u8; N]> {
        self.bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(self.end())
    }

    /// Returns the byte at an offset.
    #[inline]
    pub(crate) fn u8(&self, at: usize) -> Told<u8> {
        self.bytes.get(at).copied().ok_or(self.end())
    }

    /// Returns two bytes as a number, the highest first.
    #[inline]
    pub(crate) fn be16(&self, at: usize) -> Told<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    /// Returns three bytes as a number, the highest first.
    pub(crate) fn be24(&self, at: usize) -> Told<u32> {
        self.array(at).map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// Returns four bytes as a number, the highest first.
    #[inline]
    pub(crate) fn be32(&self, at: usize) -> Told<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// Returns two bytes as a number, the lowest first.
    pub(crate) fn le16(&self, at: usize) -> Told<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    /// Returns four bytes as a number, the lowest first.
    pub(crate) fn le32(&self, at: usize) -> Told<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    /// Goes on if these bytes lie at an offset. Refuses at the first byte that differs.
    pub(crate) fn has(&self, at: usize, expected: &[u8]) -> Told<()> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let len = rest.len().min(expected.len());
        ensure(rest[..len] == expected[..len])?;
        if len == expected.len() { Ok(()) } else { Err(self.end()) }
    }

    /// As [`has`](Self::has), ignoring the case of letters.
    pub(crate) fn has_word(&self, at: usize, expected: &[u8]) -> Told<()> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let len = rest.len().min(expected.len());
        ensure(rest[..len].eq_ignore_ascii_case(&expected[..len]))?;
        if len == expected.len() { Ok(()) } else { Err(self.end()) }
    }

    /// Returns the offset of the first such byte from `at` on, at most `max` bytes on.
    pub(crate) fn find(&self, at: usize, byte: u8, max: usize) -> Told<usize> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let near = &rest[..rest.len().min(max)];
        match near.iter().position(|other| *other == byte) {
            Some(offset) => Ok(at + offset),
            None if near.len() == max => Err(Stop::No),
            None => Err(self.end()),
        }
    }

    /// Returns the line at an offset, without its end, and the offset behind it. The line is text of at most `max` bytes.
    pub(crate) fn line(&self, at: usize, max: usize) -> Told<(&'a [u8], usize)> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let near = &rest[..rest.len().min(max)];
        for (offset, byte) in near.iter().enumerate() {
            match byte {
                b'\n' => {
                    let line = &near[..offset];
                    return Ok((line.strip_suffix(b"\r").unwrap_or(line), at + offset + 1));
                }
                0..=8 | 0xb | 0xc | 0xe..=0x1f | 0x7f => return Err(Stop::No),
                _ => {}
            }
        }
        if near.len() == max { Err(Stop::No) } else { Err(self.end()) }
    }
}

/// Returns true if `bytes` contains `word`, ignoring the case of letters.
pub(crate) fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

/// Returns true for printable ASCII alone.
pub(crate) fn is_printable(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
}
