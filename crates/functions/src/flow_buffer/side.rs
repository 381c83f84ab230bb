//! One side of a session: its first bytes, reassembled from segments in any order.

use packet::TcpFlags;

use super::segment::{HEAD_MAX, Segment};

/// The state of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// One bit for each byte that is known.
    known: u64,
    bytes: [u8; HEAD_MAX],
    /// The sequence number of the first byte.
    start: u32,
    /// Sequence number after the SYN's payload.
    opened: u32,
    /// Sequence number after everything that it has sent.
    next: u32,
    /// Total number of bytes that the side sends, if known and not more than are stored.
    total: Option<u8>,
    /// It has sent a segment, so the sequence number of its first byte is known.
    begun: bool,
    /// The other side has acknowledged the SYN.
    answered: bool,
    ended: bool,
}

// A bit for each byte.
const _: () = assert!(HEAD_MAX == u64::BITS as usize);

impl Default for Side {
    fn default() -> Self {
        Self {
            known: 0,
            bytes: [0; HEAD_MAX],
            start: 0,
            opened: 0,
            next: 0,
            total: None,
            begun: false,
            answered: false,
            ended: false,
        }
    }
}

impl Side {
    /// Creates a side with this sequence number of its first byte.
    pub(super) fn beginning_at(start: u32) -> Self {
        Self { start, opened: start, next: start, begun: true, answered: true, ..Self::default() }
    }

    /// The bytes from the first one on, up to the first gap.
    #[inline]
    pub(super) fn head(&self) -> &[u8] {
        &self.bytes[..self.known.trailing_ones() as usize]
    }

    /// Returns true if all of the first `len` bytes are known, or all that the side sends.
    pub(super) const fn is_whole(&self, len: usize) -> bool {
        let wanted = match self.total {
            Some(total) if (total as usize) < len => total as usize,
            Some(_) | None => len,
        };
        self.known.trailing_ones() as usize >= wanted
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns true if its first byte has this number, or it has sent nothing yet.
    pub(super) const fn may_begin_at(&self, start: u32) -> bool {
        !self.begun || self.start == start
    }

    /// Returns true if `ack` acknowledges its SYN, or it has sent nothing yet.
    pub(super) const fn may_be_answered_by(&self, ack: u32) -> bool {
        !self.begun || ack.wrapping_sub(self.start) <= self.opened.wrapping_sub(self.start)
    }

    /// Notes that the other side acknowledged its SYN.
    pub(super) fn answer(&mut self) {
        self.answered |= self.begun;
    }

    /// Forgets its SYN, so that the next one counts as the first; unless it was answered, or bytes are known.
    pub(super) fn ask_again(&mut self) {
        if !self.answered && self.known == 0 {
            *self = Self::default();
        }
    }

    /// Returns true if a reset with this number is in sequence.
    pub(super) const fn may_reset_at(&self, seq: u32) -> bool {
        !self.begun || self.next == seq
    }

    /// Stores the part of a segment within the first `len` bytes. Known bytes stay. Returns true if the segment has other bytes there.
    pub(super) fn take(&mut self, segment: &Segment, len: usize) -> bool {
        if !self.begun {
            (self.begun, self.start) = (true, segment.seq());
            (self.opened, self.next) = (segment.end(), segment.seq());
        }
        let next = segment.end().wrapping_add(segment.has(TcpFlags::FIN).into());
        if next.wrapping_sub(self.next).cast_signed() > 0 {
            self.next = next;
        }
        // Sequence numbers wrap: a distance above half of the space is negative.
        let offset = i64::from(segment.seq().wrapping_sub(self.start).cast_signed());
        let mut contradicts = false;
        for (at, byte) in (offset..).zip(segment.bytes()) {
            let Some(at) = usize::try_from(at).ok().filter(|at| *at < len) else { continue };
            if self.known >> at & 1 == 1 {
                contradicts |= self.bytes[at] != *byte;
            } else {
                self.known |= 1 << at;
                self.bytes[at] = *byte;
            }
        }
        if segment.has(TcpFlags::FIN) {
            self.ended = true;
            let end = u8::try_from(offset + i64::from(segment.len())).ok().filter(|end| usize::from(*end) <= len);
            self.total = self.total.or(end);
        }
        contradicts
    }
}
