//! What can be wrong with a sequenced packet, and with their order.

use core::fmt;

use packet::{LinkType, Seq};

use super::layout::{ETHERTYPE, Shape, VERSION};

/// What is wrong with one packet that should be a sequenced one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierError {
    /// No sequenced packet comes by such a link.
    Link(LinkType),
    /// The Ethernet header is of something else.
    EtherType(u16),
    /// The Ethernet addresses are not a sequencer's and a core's.
    Addresses,
    /// The packet ends ahead of the original one.
    Truncated {
        /// Bytes that there are.
        have: usize,
        /// Bytes that stand ahead of the original packet.
        need: usize,
    },
    /// It carries another number of rows, or other rows.
    Shape {
        /// What it carries.
        found: Shape,
        /// What was expected.
        expected: Shape,
    },
    /// There is no trailer where it must be, nor anywhere else.
    NoTrailer {
        /// What was expected.
        expected: Shape,
    },
    /// It is of another version of the layout.
    Version(u8),
    /// It has flags that this version does not know.
    Flags(u8),
    /// The index of the oldest row contradicts the packet's number.
    Index {
        /// The index told.
        index: u16,
        /// The packet.
        seq: Seq,
    },
    /// The outer header names a core that the packet isn't for.
    Core {
        /// The core named.
        core: u16,
        /// The packet.
        seq: Seq,
    },
    /// The packet's time is beyond what a row can tell.
    Time {
        /// The packet.
        seq: Seq,
    },
    /// The packet's time falls behind that of the packet before.
    Falls {
        /// The packet.
        seq: Seq,
    },
    /// A row's time falls behind the row's before, or is later than the packet that carries it.
    RowTime {
        /// The packet that the row is of.
        of: Seq,
    },
    /// A row has a record although its packet takes no step.
    RecordOfNothing {
        /// The packet that the row is of.
        of: Seq,
    },
    /// A row is written although there was no packet yet to write it.
    EarlyRow {
        /// The packet that carries it.
        seq: Seq,
    },
    /// A row is not what the function makes of its packet.
    OtherRecord {
        /// The packet that the row is of.
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
                "it is no sequenced packet: no trailer stands behind {} rows of {} bytes; {SEQUENCE}",
                expected.rows(),
                expected.row_bytes()
            ),
            Self::Version(version) => write!(
                f,
                "its layout is of version {version}, and {VERSION} is read; sequence the original capture again"
            ),
            Self::Flags(flags) => write!(
                f,
                "it has flags that are not known (0x{flags:02x}); it was made by a later version, or is damaged"
            ),
            Self::Index { index, seq } => {
                write!(f, "it is damaged: number {seq} can't have its oldest record in row {index}")
            }
            Self::Core { core, seq } => write!(f, "it is damaged: number {seq} is not for core {core}"),
            Self::Time { seq } => write!(f, "it is damaged: number {seq} comes later than the year 2262"),
            Self::Falls { seq } => write!(f, "it is damaged: number {seq} is earlier than the packet before it"),
            Self::RowTime { of } => write!(f, "it is damaged: the record of number {of} is out of its time"),
            Self::RecordOfNothing { of } => {
                write!(f, "it is damaged: number {of} takes no step, and yet there is a record of it")
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

/// What is wrong with a sequenced packet among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// The packet itself is no good.
    Packet {
        /// Its place, from 0.
        place: u64,
        /// What is wrong.
        error: CarrierError,
    },
    /// Packets are missing.
    Gap {
        /// The place of the packet behind the gap.
        place: u64,
        /// The first packet that is missing.
        first: Seq,
        /// The packet behind the gap.
        next: Seq,
    },
    /// More packets are missing than a link loses.
    WideGap {
        /// The place of the packet behind the gap.
        place: u64,
        /// The first packet that is missing.
        first: Seq,
        /// The packet behind the gap.
        next: Seq,
    },
    /// A packet comes behind later ones.
    Reordered {
        /// The place of the packet that comes too early.
        place: u64,
        /// The packet that should have been there.
        late: Seq,
        /// The packet that was.
        early: Seq,
    },
    /// A packet comes a second time.
    Again {
        /// The place of the second.
        place: u64,
        /// The packet.
        seq: Seq,
    },
}

impl std::error::Error for OrderError {}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Places count from 1, as other errors of captures do; numbers are the sequencer's, from 0.
        match self {
            Self::Packet { place, error } => write!(f, "packet {}: {error}", place + 1),
            Self::Gap { place, first, next } => write!(
                f,
                "packet {}: {} missing ahead of number {next}; give --loss-recovery on, so that cores take from each \
                 other what these carried",
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
            Self::Again { place, seq } => write!(
                f,
                "packet {}: number {seq} comes a second time; remove the copy (`editcap -d`), or sequence the original \
                 capture again",
                place + 1
            ),
        }
    }
}

/// The numbers from `first` to ahead of `next`, and the verb behind them.
fn missing(first: Seq, next: Seq) -> String {
    match next.0 - first.0 {
        1 => format!("number {first} is"),
        lost => format!("numbers {first} to {} ({lost} packets) are", next.0 - 1),
    }
}
