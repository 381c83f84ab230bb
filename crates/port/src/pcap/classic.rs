//! Classic pcap (draft-ietf-opsawg-pcap): a file header of 24 bytes, then records of 16 bytes and a packet.

use packet::LinkType;

use super::beside::OPTION_FCS_LENGTH;
use super::clock::Clock;
use super::error::Fault;
use super::format::{ByteOrder, Interface, Resolution};
use super::walk::{RECORD_BYTES_MAX, Walked, u16_at, u32_at};
use crate::batch::{Fate, Packet};

/// Bytes of the file header.
pub(super) const FILE_HEADER_BYTES: usize = 24;
/// Bytes before each packet.
pub(super) const RECORD_HEADER_BYTES: usize = 16;
/// The magic number where time stamps count microseconds.
pub(super) const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
/// The magic number where time stamps count nanoseconds.
pub(super) const MAGIC_NANOS: u32 = 0xa1b2_3c4d;

/// Set if the word with the link type also has the length of frame check sequences.
pub(super) const FCS_IS_TOLD: u32 = 1 << 26;

/// Relatives of pcap whose records are laid out otherwise, by their magic numbers.
const VARIANTS: [(u32, &str); 4] = [
    (0xa1b2_cd34, "Kuznetzov's modified pcap"),
    (0xa1e2_cb12, "Navtel's modified pcap"),
    (0x1c00_01ac, "an IXIA capture (hardware)"),
    (0x1c00_01ab, "an IXIA capture (software)"),
];

/// A classic pcap, its file header read.
#[derive(Debug)]
pub(super) struct Classic {
    pub(super) byte_order: ByteOrder,
    pub(super) interface: Interface,
    fraction_nanos: u64,
    lengths: Lengths,
}

/// Order of the two lengths in a record; it depends on the version, as in libpcap's `sf-pcap.c`.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    /// The captured length comes first.
    Captured,
    /// The length on the wire comes first: up to version 2.2, and 543.0, which DG/UX wrote.
    Wire,
    /// The smaller is the captured length: programs have written version 2.3 in either order.
    Either,
}

impl Lengths {
    /// `None` for an unsupported version.
    const fn of_version(major: u16, minor: u16) -> Option<Self> {
        match (major, minor) {
            (2, ..3) | (543, 0) => Some(Self::Wire),
            (2, 3) => Some(Self::Either),
            (2, _) => Some(Self::Captured),
            _ => None,
        }
    }

    /// Captured length and length on the wire, from the two lengths of a record.
    #[inline]
    const fn of_record(self, first: u32, second: u32) -> (u32, u32) {
        match self {
            Self::Captured => (first, second),
            Self::Either if first <= second => (first, second),
            Self::Either | Self::Wire => (second, first),
        }
    }
}

impl Classic {
    /// True if a file with these first bytes is a classic pcap or a variant.
    pub(super) fn is_magic(first: [u8; 4]) -> bool {
        let known = |magic| {
            magic == MAGIC_MICROS || magic == MAGIC_NANOS || VARIANTS.iter().any(|(variant, _)| *variant == magic)
        };
        known(u32::from_le_bytes(first)) || known(u32::from_be_bytes(first))
    }

    /// Reads the file header.
    pub(super) fn open(header: &[u8; FILE_HEADER_BYTES]) -> Result<Self, Fault> {
        let magic = u32_at::<false>(header, 0);
        if [MAGIC_MICROS, MAGIC_NANOS].contains(&magic) {
            Self::open_as::<false>(header, magic)
        } else {
            Self::open_as::<true>(header, u32_at::<true>(header, 0))
        }
    }

    fn open_as<const BIG: bool>(header: &[u8; FILE_HEADER_BYTES], magic: u32) -> Result<Self, Fault> {
        let (resolution, fraction_nanos) = match magic {
            MAGIC_MICROS => (Resolution::MICROS, 1_000),
            MAGIC_NANOS => (Resolution::NANOS, 1),
            _ => {
                let is = |(variant, _): &&(u32, _)| [magic, magic.swap_bytes()].contains(variant);
                let name = VARIANTS.iter().find(is).map_or("a relative of pcap", |(_, name)| *name);
                return Err(Fault::Variant(name));
            }
        };
        let version = (u16_at::<BIG>(header, 4), u16_at::<BIG>(header, 6));
        let Some(lengths) = Lengths::of_version(version.0, version.1) else {
            return Err(Fault::Version(version.0, version.1));
        };
        let word = u32_at::<BIG>(header, 20);
        let link = LinkType::from_number(word as u16);
        // The upper bits are the length of frame check sequences, in units of two bytes.
        let fcs = (word & FCS_IS_TOLD != 0).then(|| (OPTION_FCS_LENGTH, vec![(word >> 28 << 1) as u8]));
        let facts = fcs.into_iter().collect();
        let snaplen = u32_at::<BIG>(header, 16);
        let interface = Interface { name: None, link, snaplen, resolution, time_offset_secs: 0, section: 0, facts };
        let byte_order = if BIG { ByteOrder::Big } else { ByteOrder::Little };
        Ok(Self { byte_order, interface, fraction_nanos, lengths })
    }

    /// Takes all whole records of `bytes` from `at` on.
    #[inline]
    pub(super) fn walk(&self, bytes: &[u8], at: usize, clock: &mut Clock, packets: &mut Vec<Packet>) -> Walked {
        match self.byte_order {
            ByteOrder::Little => self.walk_as::<false>(bytes, at, clock, packets),
            ByteOrder::Big => self.walk_as::<true>(bytes, at, clock, packets),
        }
    }

    fn walk_as<const BIG: bool>(
        &self,
        bytes: &[u8],
        mut at: usize,
        clock: &mut Clock,
        packets: &mut Vec<Packet>,
    ) -> Walked {
        loop {
            let rest = &bytes[at..];
            let Some(header) = rest.first_chunk::<RECORD_HEADER_BYTES>() else {
                return Walked::need(at, RECORD_HEADER_BYTES);
            };
            let (len, wire_len) = self.lengths.of_record(u32_at::<BIG>(header, 8), u32_at::<BIG>(header, 12));
            let record = RECORD_HEADER_BYTES + len as usize;
            if record > rest.len() {
                if record > RECORD_BYTES_MAX {
                    return Walked::fault(at, Fault::RecordLength(record as u64));
                }
                return Walked::need(at, record);
            }
            let (secs, fraction) = (u32_at::<BIG>(header, 0), u32_at::<BIG>(header, 4));
            let (seq, time) =
                clock.next(u64::from(secs) * 1_000_000_000 + u64::from(fraction) * self.fraction_nanos, packets);
            clock.notes.wire_len(seq.0, len, wire_len);
            packets.push(Packet {
                seq,
                time,
                offset: (at + RECORD_HEADER_BYTES) as u32,
                len,
                wire_len: wire_len.max(len),
                interface: 0,
                link: self.interface.link,
                bucket: 0,
                fate: Fate::Pending,
            });
            at += record;
        }
    }
}
