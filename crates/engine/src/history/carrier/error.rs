//! Errors of sequenced packets and of their order.

use core::fmt;

use packet::{LinkType, Seq};

use super::layout::{ETHERTYPE, Shape, VERSION};

/// An error of one sequenced packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierError {
    /// Sequenced packets don't have this link type.
    Link(LinkType),
    /// The Ethernet header has another EtherType.
    EtherType(u16),
    /// The Ethernet addresses are not those of a sequencer and a core.
    Addresses,
    /// The packet ends before the original packet begins.
    Truncated {
        /// The packet's bytes.
        have: usize,
        /// Bytes in front of the original packet.
        need: usize,
    },
    /// It carries another number of rows, or rows of another length.
    Shape {
        /// The layout found.
        found: Shape,
        /// The layout expected.
        expected: Shape,
    },
    /// There is no trailer where it must be, nor anywhere else.
    NoTrailer {
        /// The layout expected.
        expected: Shape,
    },
    /// Another version of the layout.
    Version(u8),
    /// Flags that this version does not know.
    Flags(u8),
    /// The index of the oldest row contradicts the packet's number.
    Index {
        /// The index in the packet.
        index: u16,
        /// The packet.
        seq: Seq,
    },
    /// The outer header names another core than the packet's.
    Core {
        /// The core in the outer header.
        core: u16,
        /// The packet.
        seq: Seq,
    },
    /// The packet's time is beyond what a row can hold.
    Time {
        /// The packet.
        seq: Seq,
    },
    /// The packet's time is before that of the packet before.
    Falls {
        /// The packet.
        seq: Seq,
    },
    /// A row's time is before that of the row before, or after that of its packet.
    RowTime {
        /// The packet of the row.
        of: Seq,
    },
    /// A row has a record although its packet takes no step.
    RecordOfNothing {
        /// The packet of the row.
        of: Seq,
    },
    /// A row is written before there was a packet for it.
    EarlyRow {
        /// The packet that carries the row.
        seq: Seq,
    },
    /// A row differs from the record that the function makes of its packet.
    OtherRecord {
        /// The packet of the row.
        of: Seq,
        /// The function.
        function: &'static str,
    },
}

impl std::error::Error for CarrierError {}

impl fmt::Display for CarrierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SEQUENCE: &str = "make a sequenced capture with `millrace sequence`";
        match self {
            Self::Link(link) => write!(f, "it is no sequenced packet but one of {link}; {SEQUENCE}"),
            Self::EtherType(found) => {
                write!(
                    f,
                    "it is no sequenced packet: its EtherType is 0x{found:04x}, not 0x{ETHERTYPE:04x}; {SEQUENCE}"
                )
            }
            Self::Addresses => write!(
                f,
                "it is no sequenced packet: its Ethernet addresses are not a sequencer's and a core's; {SEQUENCE}"
            ),
            Self::Truncated { have, need } => write!(
                f,
                "it is cut short: it has {have} bytes, and {need} of history and trailer stand ahead of the original \
                 packet; capture it with a longer snap length"
            ),
            Self::Shape { found, expected } if found.row_bytes() == expected.row_bytes() => write!(
                f,
                "it was sequenced for {} cores, not for {}; give --cores {}",
                found.cores(),
                expected.cores(),
                found.cores()
            ),
            Self::Shape { found, expected } => write!(
                f,
                "it was sequenced for another function: its rows have {} bytes, not {} (and it is for {} cores); name \
                 the function that it was sequenced for",
                found.row_bytes(),
                expected.row_bytes(),
                found.cores()
            ),
            Self::NoTrailer { expected } => write!(
                f,
                "it is no sequenced packet: there is no trailer after {} rows of {} bytes; {SEQUENCE}",
                expected.rows(),
                expected.row_bytes()
            ),
            Self::Version(version) => write!(
                f,
                "its layout has version {version}, but this program reads version {VERSION}; sequence the original capture again"
            ),
            Self::Flags(flags) => {
                write!(f, "it has unknown flags (0x{flags:02x}): a later version made it, or it is damaged")
            }
            Self::Index { index, seq } => {
                write!(f, "it is damaged: number {seq} can't have its oldest record in row {index}")
            }
            Self::Core { core, seq } => write!(f, "it is damaged: number {seq} is not for core {core}"),
            Self::Time { seq } => write!(f, "it is damaged: number {seq} has a time after the year 2262"),
            Self::Falls { seq } => write!(f, "it is damaged: number {seq} is earlier than the packet before it"),
            Self::RowTime { of } => write!(f, "it is damaged: the record of number {of} has a time out of order"),
            Self::RecordOfNothing { of } => {
                write!(f, "it is damaged: number {of} takes no step, but has a record")
            }
            Self::EarlyRow { seq } => {
                write!(f, "it is damaged: number {seq} carries more records than there were packets before it")
            }
            Self::OtherRecord { of, function } => write!(
                f,
                "its record of number {of} is not what {function}, configured as here, makes of that packet: the capture \
                 was sequenced for another function or configuration, or that packet was changed or cut since; sequence \
                 the original capture again"
            ),
        }
    }
}

/// An error of a sequenced packet, or of its place among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// The packet itself is wrong.
    Packet {
        /// Its position in the input, from 0.
        place: u64,
        /// The error.
        error: CarrierError,
    },
    /// Packets are missing.
    Gap {
        /// The position of the packet after the gap.
        place: u64,
        /// The first missing packet.
        first: Seq,
        /// The packet after the gap.
        next: Seq,
    },
    /// More packets are missing than a link loses.
    WideGap {
        /// The position of the packet after the gap.
        place: u64,
        /// The first missing packet.
        first: Seq,
        /// The packet after the gap.
        next: Seq,
    },
    /// A packet comes after later ones.
    Reordered {
        /// The position of the packet that comes too early.
        place: u64,
        /// The packet expected there.
        late: Seq,
        /// The packet found there.
        early: Seq,
    },
    /// A packet comes a second time.
    Repeated {
        /// The position of the second copy.
        place: u64,
        /// The packet.
        seq: Seq,
    },
}

impl std::error::Error for OrderError {}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Positions count from 1, as in other errors of captures. Numbers are the sequencer's, from 0.
        match self {
            Self::Packet { place, error } => write!(f, "packet {}: {error}", place + 1),
            Self::Gap { place, first, next } => write!(
                f,
                "packet {}: {} missing ahead of number {next}; give --loss-recovery on, and cores copy the missing \
                 records from each other",
                place + 1,
                missing(*first, *next)
            ),
            Self::WideGap { place, first, next } => write!(
                f,
                "packet {}: {} missing ahead of number {next}, more than a link loses at one place: it is damaged, or packets \
                 were cut out; sequence the original capture again",
                place + 1,
                missing(*first, *next)
            ),
            Self::Reordered { place, late, early } => write!(
                f,
                "packet {}: number {early} comes ahead of number {late}; cores must get their packets in order: sort \
                 them (`reordercap`), or, if a number was damaged, sequence the original capture again",
                place + 1
            ),
            Self::Repeated { place, seq } => write!(
                f,
                "packet {}: number {seq} comes a second time; remove the copy (`editcap -d`), or sequence the original \
                 capture again",
                place + 1
            ),
        }
    }
}

/// The missing numbers from `first` up to `next`, with their verb.
fn missing(first: Seq, next: Seq) -> String {
    match next.0 - first.0 {
        1 => format!("number {first} is"),
        lost => format!("numbers {first} to {} ({lost} packets) are", next.0 - 1),
    }
}
