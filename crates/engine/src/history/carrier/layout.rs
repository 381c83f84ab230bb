//! The carrier's layout and its parser, which turns any bytes into a [`Carried`] or a [`CarrierError`].

use nf::{Meta, NetworkFunction};
use packet::{LinkType, Nanos, Seq};
use port::{Fate, Packet};

use super::error::CarrierError;

/// The version of the layout.
pub(super) const VERSION: u8 = 1;
/// Length of the outer Ethernet header, in bytes.
pub const ETHERNET_BYTES: usize = 14;
/// The EtherType of the outer Ethernet header: the first of IEEE 802's for local experiments.
pub const ETHERTYPE: u16 = 0x88b5;
/// The link type of sequenced packets without an outer header: `USER0`, the first of those free for users.
pub const LINK: LinkType = LinkType::Other(147);
/// Length of the trailer, in bytes.
pub const TRAILER_BYTES: usize = 32;
/// Length of a row's time, in bytes.
pub const TIME_BYTES: usize = 8;
/// The bit of a row's time that says that the packet takes a step.
pub const TAKES_STEP: u64 = 1 << 63;

/// The destination address of the outer header, locally administered, without the core's number.
const TO_CORE: [u8; 4] = [0x02, 0x4d, 0x52, 0x00];
const FROM_SEQUENCER: [u8; 6] = [0x02, 0x4d, 0x52, 0xff, 0x00, 0x00];

/// The header in front of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// No header.
    None,
    /// An Ethernet header that names the core, for a sequencer that is not on the card itself.
    Ethernet,
}

impl Outer {
    /// The outer header on this link; `None` if sequenced packets don't have this link type.
    #[must_use]
    pub fn of(link: LinkType) -> Option<Self> {
        match link {
            LinkType::Ethernet => Some(Self::Ethernet),
            LINK => Some(Self::None),
            _ => None,
        }
    }

    /// The link type of sequenced packets with this header.
    #[must_use]
    pub const fn link(self) -> LinkType {
        match self {
            Self::None => LINK,
            Self::Ethernet => LinkType::Ethernet,
        }
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Ethernet => ETHERNET_BYTES,
        }
    }

    /// True for no header.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The number and length of the rows. Both ends must use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    rows: u16,
    row_bytes: u16,
}

impl Shape {
    /// The shape for `cores` cores that run the function.
    ///
    /// # Panics
    /// If there are fewer than two cores or more than 65,536, or if a record is too long for a row.
    #[must_use]
    pub const fn of<N: NetworkFunction>(cores: usize) -> Self {
        assert!(cores >= 2 && cores <= 1 << 16, "a sequencer serves 2 to 65,536 cores");
        let row_bytes = TIME_BYTES + N::Meta::RECORD_BYTES;
        assert!(row_bytes <= u16::MAX as usize, "a row has at most 65,535 bytes");
        Self { rows: (cores - 1) as u16, row_bytes: row_bytes as u16 }
    }

    /// A shape with `rows` rows of `row_bytes` bytes. `None` for no rows, or for rows too short for a time.
    #[must_use]
    pub const fn new(rows: u16, row_bytes: u16) -> Option<Self> {
        if rows > 0 && row_bytes as usize >= TIME_BYTES { Some(Self { rows, row_bytes }) } else { None }
    }

    /// The number of rows: one fewer than cores.
    #[must_use]
    pub const fn rows(self) -> u16 {
        self.rows
    }

    /// The length of a row in bytes.
    #[must_use]
    pub const fn row_bytes(self) -> u16 {
        self.row_bytes
    }

    /// The number of cores.
    #[must_use]
    pub const fn cores(self) -> usize {
        self.rows as usize + 1
    }

    /// The length of all rows in bytes.
    #[must_use]
    pub const fn rows_bytes(self) -> usize {
        self.rows as usize * self.row_bytes as usize
    }

    /// Bytes that the history adds to each packet.
    #[must_use]
    pub const fn overhead(self, outer: Outer) -> usize {
        outer.len() + self.rows_bytes() + TRAILER_BYTES
    }

    /// Guesses the shape of a sequenced packet, from the bytes after its outer header: a trailer must lie where its own fields say.
    #[must_use]
    pub fn find(bytes: &[u8]) -> Option<Self> {
        (0..bytes.len().saturating_sub(TRAILER_BYTES - 1)).find_map(|at| {
            let trailer = Trailer::read(bytes[at..].first_chunk()?);
            let shape = trailer.shape().filter(|shape| shape.rows_bytes() == at)?;
            let known = trailer.version == VERSION && trailer.flags == 0;
            (known && u64::from(trailer.index) == trailer.seq % u64::from(shape.rows)).then_some(shape)
        })
    }
}

/// The fields of a trailer.
pub(super) struct Trailer {
    pub(super) version: u8,
    pub(super) flags: u8,
    pub(super) rows: u16,
    pub(super) row_bytes: u16,
    pub(super) index: u16,
    pub(super) seq: u64,
    pub(super) time: u64,
    pub(super) interface: u16,
    pub(super) link: u16,
    pub(super) wire_len: u32,
}

impl Trailer {
    /// The trailer of a new packet.
    #[inline]
    pub(super) const fn of(packet: &Packet, seq: Seq, shape: Shape) -> Self {
        Self {
            version: VERSION,
            flags: 0,
            rows: shape.rows,
            row_bytes: shape.row_bytes,
            index: (seq.0 % shape.rows as u64) as u16,
            seq: seq.0,
            time: packet.time.0,
            interface: packet.interface,
            link: packet.link.number(),
            wire_len: packet.wire_len,
        }
    }

    #[inline]
    pub(super) fn bytes(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[0] = self.version;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.rows.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.row_bytes.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.index.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.seq.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.time.to_be_bytes());
        bytes[24..26].copy_from_slice(&self.interface.to_be_bytes());
        bytes[26..28].copy_from_slice(&self.link.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.wire_len.to_be_bytes());
        bytes
    }

    const fn shape(&self) -> Option<Shape> {
        Shape::new(self.rows, self.row_bytes)
    }

    #[inline]
    fn read(bytes: &[u8; TRAILER_BYTES]) -> Self {
        Self {
            version: bytes[0],
            flags: bytes[1],
            rows: u16_at(bytes, 2),
            row_bytes: u16_at(bytes, 4),
            index: u16_at(bytes, 6),
            seq: u64_at(bytes, 8),
            time: u64_at(bytes, 16),
            interface: u16_at(bytes, 24),
            link: u16_at(bytes, 26),
            wire_len: u32::from(u16_at(bytes, 28)) << 16 | u32::from(u16_at(bytes, 30)),
        }
    }
}

/// A parsed sequenced packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried<'a> {
    /// The packet's number.
    pub seq: Seq,
    /// The sequencer's time stamp.
    pub time: Nanos,
    /// The input interface.
    pub interface: u16,
    /// The packet's link type.
    pub link: LinkType,
    /// The length on the wire.
    pub wire_len: u32,
    /// The original packet.
    pub bytes: &'a [u8],
    /// The rows, in the order of the ring.
    pub rows: &'a [u8],
    /// The shape of the rows.
    pub shape: Shape,
}

impl<'a> Carried<'a> {
    /// The core that the packet is for.
    #[must_use]
    pub const fn core(&self) -> usize {
        (self.seq.0 % self.shape.cores() as u64) as usize
    }

    /// The number of packets whose rows it carries.
    #[must_use]
    pub fn depth(&self) -> u64 {
        self.seq.0.min(u64::from(self.shape.rows))
    }

    /// The original packet's descriptor, as a port would deliver it.
    #[must_use]
    pub const fn packet(&self) -> Packet {
        let Self { seq, time, wire_len, interface, link, .. } = *self;
        let (len, bucket, fate) = (self.bytes.len() as u32, Packet::SPRAYED, Fate::Pending);
        Packet { seq, time, offset: 0, len, wire_len, interface, link, bucket, fate }
    }

    /// The row of packet number `seq`, which must be one of the `N` before this.
    #[inline]
    #[must_use]
    pub fn row(&self, seq: Seq) -> &'a [u8] {
        let (index, len) = (seq.0 % u64::from(self.shape.rows), usize::from(self.shape.row_bytes));
        &self.rows[index as usize * len..][..len]
    }

    /// The written rows, the oldest first, each with its packet's number.
    pub fn history(&self) -> impl Iterator<Item = (Seq, &'a [u8])> + use<'a> {
        let carried = *self;
        (self.seq.0 - self.depth()..self.seq.0).map(move |seq| (Seq(seq), carried.row(Seq(seq))))
    }

    /// Checks the rows for what no sequencer writes, whatever its function.
    ///
    /// # Errors
    /// The first wrong row.
    pub fn check_rows(&self) -> Result<(), CarrierError> {
        let mut latest = 0;
        for (seq, row) in self.history() {
            let word = u64_at(row, 0);
            let time = word & !TAKES_STEP;
            if time < latest || time > self.time.0 {
                return Err(CarrierError::RowTime { of: seq });
            }
            latest = time;
            if word & TAKES_STEP == 0 && row[TIME_BYTES..].iter().any(|byte| *byte != 0) {
                return Err(CarrierError::RecordOfNothing { of: seq });
            }
        }
        let unwritten = self.rows.len() - self.depth() as usize * usize::from(self.shape.row_bytes);
        // Rows are written from the first on, so the unwritten ones are the last.
        match self.rows[self.rows.len() - unwritten..].iter().any(|byte| *byte != 0) {
            true => Err(CarrierError::EarlyRow { seq: self.seq }),
            false => Ok(()),
        }
    }
}

/// Parses a sequenced packet that came by `link`. The rows are not checked: see [`Carried::check_rows`]. Padding after the packet's length
/// on the wire is left off.
///
/// # Errors
/// Why it is no sequenced packet of this shape.
#[inline]
pub fn parse(link: LinkType, bytes: &[u8], shape: Shape) -> Result<Carried<'_>, CarrierError> {
    let outer = Outer::of(link).ok_or(CarrierError::Link(link))?;
    let need = shape.overhead(outer);
    let core = core_named(outer, bytes)?;
    let behind = bytes.get(outer.len()..).unwrap_or_default();
    let Some((rows, trailer, packet)) = split(behind, shape) else {
        // It may be a whole packet of another shape.
        return Err(match Shape::find(behind) {
            Some(found) => CarrierError::Shape { found, expected: shape },
            None => CarrierError::Truncated { have: bytes.len(), need },
        });
    };
    let trailer = Trailer::read(trailer);
    if trailer.shape() != Some(shape) || trailer.version != VERSION || trailer.flags != 0 {
        return Err(other(behind, shape, &trailer));
    }
    let Trailer { index, seq, time, interface, link, wire_len, .. } = trailer;
    if u64::from(index) != seq % u64::from(shape.rows) {
        return Err(CarrierError::Index { index, seq: Seq(seq) });
    }
    if time & TAKES_STEP != 0 {
        return Err(CarrierError::Time { seq: Seq(seq) });
    }
    let packet = &packet[..packet.len().min(wire_len as usize)];
    let (seq, time, link) = (Seq(seq), Nanos(time), LinkType::from_number(link));
    let carried = Carried { seq, time, interface, link, wire_len, bytes: packet, rows, shape };
    match core {
        Some(core) if usize::from(core) != carried.core() => Err(CarrierError::Core { core, seq }),
        Some(_) | None => Ok(carried),
    }
}

/// Why a trailer differs from the expected one.
#[cold]
fn other(behind: &[u8], shape: Shape, trailer: &Trailer) -> CarrierError {
    match (Shape::find(behind), trailer.shape() == Some(shape)) {
        (Some(found), _) if found != shape => CarrierError::Shape { found, expected: shape },
        (_, true) if trailer.version != VERSION => CarrierError::Version(trailer.version),
        (_, true) => CarrierError::Flags(trailer.flags),
        (_, false) => CarrierError::NoTrailer { expected: shape },
    }
}

/// Checks the outer header and returns the core that it names. A packet that ends in it is found truncated later.
#[inline]
fn core_named(outer: Outer, bytes: &[u8]) -> Result<Option<u16>, CarrierError> {
    let header = match outer {
        Outer::None => return Ok(None),
        Outer::Ethernet => bytes.first_chunk::<ETHERNET_BYTES>(),
    };
    let Some(header) = header else { return Ok(None) };
    let ethertype = u16_at(header, 12);
    if ethertype != ETHERTYPE {
        return Err(CarrierError::EtherType(ethertype));
    }
    if header[..4] != TO_CORE || header[6..12] != FROM_SEQUENCER {
        return Err(CarrierError::Addresses);
    }
    Ok(Some(u16_at(header, 4)))
}

/// Splits the bytes into rows, trailer, packet.
#[inline]
fn split(behind: &[u8], shape: Shape) -> Option<(&[u8], &[u8; TRAILER_BYTES], &[u8])> {
    let (rows, behind) = behind.split_at_checked(shape.rows_bytes())?;
    let (trailer, packet) = behind.split_first_chunk()?;
    Some((rows, trailer, packet))
}

/// The outer header of a packet for this core.
#[inline]
pub(super) fn ethernet(core: usize) -> [u8; ETHERNET_BYTES] {
    let mut header = [0; ETHERNET_BYTES];
    header[..4].copy_from_slice(&TO_CORE);
    header[4..6].copy_from_slice(&(core as u16).to_be_bytes());
    header[6..12].copy_from_slice(&FROM_SEQUENCER);
    header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
    header
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}
