//! Walks over the records of a block of bytes; common to both formats.

use super::error::Fault;

/// Longest record that is read. The longest that capture tools write is 256 KiB.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 20;

/// Result of a walk over a block of bytes.
#[derive(Debug)]
pub(super) struct Walked {
    /// Start of the first record that was not taken.
    pub(super) at: usize,
    /// Why it was not taken.
    pub(super) stop: Stop,
}

/// Why a record was not taken.
#[derive(Debug)]
pub(super) enum Stop {
    /// It is incomplete: at least this many bytes of it are needed.
    Need(usize),
    /// It is damaged.
    Fault(Fault),
}

impl Walked {
    #[cold]
    pub(super) const fn need(at: usize, bytes: usize) -> Self {
        Self { at, stop: Stop::Need(bytes) }
    }

    #[cold]
    pub(super) const fn fault(at: usize, fault: Fault) -> Self {
        Self { at, stop: Stop::Fault(fault) }
    }
}

/// The 16-bit number at `at`.
#[inline]
pub(super) fn u16_at<const BIG: bool>(bytes: &[u8], at: usize) -> u16 {
    let number = [bytes[at], bytes[at + 1]];
    if BIG { u16::from_be_bytes(number) } else { u16::from_le_bytes(number) }
}

/// The 32-bit number at `at`.
#[inline]
pub(super) fn u32_at<const BIG: bool>(bytes: &[u8], at: usize) -> u32 {
    let number = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if BIG { u32::from_be_bytes(number) } else { u32::from_le_bytes(number) }
}
