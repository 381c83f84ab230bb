//! Properties of a capture: container, byte order, time resolution, interfaces.

use std::fmt;

use packet::{LinkType, Nanos};

/// Properties of a capture, as far as it has been read: pcapng may declare interfaces anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The file format.
    pub container: Container,
    /// How the file is compressed, if it is.
    pub compression: Option<Compression>,
    /// The byte order of the capture, in pcapng that of the latest section.
    pub byte_order: ByteOrder,
    /// Sections so far; 1 in a classic pcap.
    pub sections: u32,
    /// Interfaces so far, of all sections, as [`Packet::interface`](crate::Packet::interface) numbers them.
    pub interfaces: Vec<Interface>,
}

/// The file formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// Classic pcap: one interface, one link type.
    Pcap,
    /// pcapng: sections and interfaces.
    PcapNg,
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
}

/// Byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

/// An interface of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, if the capture has it.
    pub name: Option<String>,
    /// Its link type.
    pub link: LinkType,
    /// Maximum number of captured bytes of a packet; 0 for no limit.
    pub snaplen: u32,
    /// Unit of its time stamps.
    pub resolution: Resolution,
    /// Seconds to add to its time stamps (already done in [`Packet::time`](crate::Packet::time)).
    pub time_offset_secs: i64,
    /// The section that declares it, from 0.
    pub section: u32,
    /// Its other options of pcapng by their codes, with little-endian numbers.
    pub facts: Vec<(u16, Vec<u8>)>,
}

/// Interfaces by number; `None` for numbers that were not declared.
pub type Interfaces = Vec<Option<Interface>>;

/// Unit of a time stamp: a negative power of ten or two, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Units of 10^-n s.
    Decimal(u8),
    /// Units of 2^-n s.
    Binary(u8),
}

impl Resolution {
    /// Microseconds.
    pub const MICROS: Self = Self::Decimal(6);
    /// Nanoseconds.
    pub const NANOS: Self = Self::Decimal(9);

    /// The value of pcapng's `if_tsresol`.
    pub(super) const fn from_option(byte: u8) -> Self {
        if byte & 0x80 == 0 { Self::Decimal(byte) } else { Self::Binary(byte & 0x7f) }
    }
}

/// How a time stamp becomes nanoseconds since the epoch; made of [`Resolution`] and offset, once for each interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    unit: Unit,
    offset_secs: i64,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Multiply(u64),
    Divide(u64),
    Shift(u8),
}

impl Scale {
    pub(super) const fn new(resolution: Resolution, offset_secs: i64) -> Self {
        let unit = match resolution {
            Resolution::Decimal(n @ 0..=9) => Unit::Multiply(10u64.pow(9 - n as u32)),
            Resolution::Decimal(n @ 10..=28) => Unit::Divide(10u64.pow(n as u32 - 9)),
            // 64 bits of a finer unit are less than a nanosecond.
            Resolution::Decimal(_) => Unit::Shift(127),
            Resolution::Binary(n) => Unit::Shift(n),
        };
        Self { unit, offset_secs }
    }

    /// Nanoseconds since the epoch; held at the end of what [`Nanos`] can tell. Before the epoch: how much, modulo 2^64.
    #[inline]
    pub(super) fn nanos(self, stamp: u64) -> Result<u64, u64> {
        if self.offset_secs != 0 {
            return self.shifted(stamp);
        }
        Ok(match self.unit {
            Unit::Multiply(factor) => stamp.saturating_mul(factor),
            Unit::Divide(divisor) => stamp / divisor,
            Unit::Shift(bits) => u64::try_from((u128::from(stamp) * 1_000_000_000) >> bits).unwrap_or(u64::MAX),
        })
    }

    #[cold]
    fn shifted(self, stamp: u64) -> Result<u64, u64> {
        let stamp = i128::from(stamp);
        let nanos = match self.unit {
            Unit::Multiply(factor) => stamp * i128::from(factor),
            Unit::Divide(divisor) => stamp / i128::from(divisor),
            Unit::Shift(bits) => (stamp * 1_000_000_000) >> bits,
        };
        let nanos = nanos + i128::from(self.offset_secs) * 1_000_000_000;
        if nanos < 0 { Err(nanos as u64) } else { Ok(u64::try_from(nanos).unwrap_or(Nanos::NEVER.0)) }
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcap => "pcap",
            Self::PcapNg => "pcapng",
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "Zstandard",
        })
    }
}

impl fmt::Display for ByteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Little => "little-endian",
            Self::Big => "big-endian",
        })
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decimal(0) => f.write_str("seconds"),
            Self::Decimal(3) => f.write_str("milliseconds"),
            Self::Decimal(6) => f.write_str("microseconds"),
            Self::Decimal(9) => f.write_str("nanoseconds"),
            Self::Decimal(n) => write!(f, "10^-{n} s"),
            Self::Binary(n) => write!(f, "2^-{n} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales() {
        let at = |resolution, stamp| Scale::new(resolution, 0).nanos(stamp).expect("no offset");
        assert_eq!(at(Resolution::Decimal(0), 3), 3_000_000_000);
        assert_eq!(at(Resolution::MICROS, 1_500_000), 1_500_000_000);
        assert_eq!(at(Resolution::NANOS, u64::MAX), u64::MAX);
        assert_eq!(at(Resolution::Decimal(12), 1_999_999), 1_999);
        assert_eq!(at(Resolution::Decimal(28), u64::MAX), 1);
        assert_eq!(at(Resolution::Decimal(127), u64::MAX), 0);
        assert_eq!(at(Resolution::from_option(0x80 | 10), 1536), 1_500_000_000);
        assert_eq!(at(Resolution::from_option(0x80 | 32), 1 << 31), 500_000_000);
        assert_eq!(at(Resolution::Binary(127), u64::MAX), 0);
        assert_eq!(at(Resolution::Binary(0), u64::MAX), u64::MAX);
    }

    #[test]
    fn offsets_hold_at_the_ends() {
        let at = |resolution, offset_secs, stamp| Scale::new(resolution, offset_secs).nanos(stamp);
        assert_eq!(at(Resolution::MICROS, -1, 1_500_000), Ok(500_000_000));
        assert_eq!(at(Resolution::MICROS, -2, 1_500_000), Err(500_000_000u64.wrapping_neg()));
        assert_eq!(at(Resolution::MICROS, i64::MAX, 1), Ok(u64::MAX));
        // In range only with its offset.
        assert_eq!(at(Resolution::Decimal(0), -20_000_000_000, 20_000_000_003), Ok(3_000_000_000));
        assert_eq!(at(Resolution::Decimal(12), -1, 1_000_000_007_000), Ok(7));
        assert_eq!(at(Resolution::Binary(10), -1, 1536), Ok(500_000_000));
    }
}
