//! pcapng (draft-ietf-opsawg-pcapng): sections of blocks, each section with its byte order and interfaces.

use packet::LinkType;

use super::clock::Clock;
use super::error::Fault;
use super::format::{ByteOrder, Interface, Resolution, Scale};
use super::walk::{RECORD_BYTES_MAX, Walked, u16_at, u32_at};
use crate::batch::{Fate, Packet};

/// The shortest section header: enough to know the byte order and the version.
pub(super) const SECTION_HEADER_BYTES: usize = 28;
/// What a file begins with, in either byte order.
pub(super) const MAGIC: [u8; 4] = SECTION_HEADER.to_le_bytes();

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET_OBSOLETE: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;

/// Options of an interface description.
pub(super) const OPTION_NAME: u16 = 2;
pub(super) const OPTION_RESOLUTION: u16 = 9;
const OPTION_TIME_OFFSET: u16 = 14;

/// Type and length, and the length once more at the end.
const BLOCK_FRAME_BYTES: usize = 12;
const INTERFACES_MAX: usize = 1 << 16;

/// A pcapng capture, read up to somewhere.
#[derive(Debug)]
pub(super) struct Sections {
    pub(super) byte_order: ByteOrder,
    pub(super) count: u32,
    pub(super) interfaces: Vec<Interface>,
    readers: Vec<InterfaceReader>,
    /// The number of the section's first interface.
    first: usize,
}

/// What a packet needs of its interface.
#[derive(Clone, Copy, Debug)]
struct InterfaceReader {
    link: LinkType,
    scale: Scale,
}

impl Sections {
    pub(super) const fn new() -> Self {
        Self { byte_order: ByteOrder::Little, count: 0, interfaces: Vec::new(), readers: Vec::new(), first: 0 }
    }

    /// Takes all whole blocks of `bytes` from `at` on.
    pub(super) fn walk(&mut self, bytes: &[u8], mut at: usize, clock: &mut Clock, packets: &mut Vec<Packet>) -> Walked {
        loop {
            let walked = match self.byte_order {
                ByteOrder::Little => self.walk_as::<false>(bytes, &mut at, clock, packets),
                ByteOrder::Big => self.walk_as::<true>(bytes, &mut at, clock, packets),
            };
            // Without a reason to stop, the byte order has changed.
            if let Some(walked) = walked {
                return walked;
            }
        }
    }

    fn walk_as<const BIG: bool>(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        clock: &mut Clock,
        packets: &mut Vec<Packet>,
    ) -> Option<Walked> {
        loop {
            let rest = &bytes[*at..];
            let Some(head) = rest.first_chunk::<BLOCK_FRAME_BYTES>() else {
                return Some(Walked::need(*at, BLOCK_FRAME_BYTES));
            };
            let kind = u32_at::<BIG>(head, 0);
            if kind == SECTION_HEADER && byte_order(head) != Some(self.byte_order) {
                let Some(byte_order) = byte_order(head) else {
                    return Some(Walked::fault(*at, Fault::Block("its byte-order magic is none")));
                };
                self.byte_order = byte_order;
                return None;
            }
            let len = u32_at::<BIG>(head, 4) as usize;
            if len > rest.len() && len <= RECORD_BYTES_MAX && len.is_multiple_of(4) {
                return Some(Walked::need(*at, len));
            }
            if let Err(fault) = block_frame::<BIG>(rest, len) {
                return Some(Walked::fault(*at, fault));
            }
            if let Err(fault) = self.block::<BIG>(kind, &rest[..len], *at, clock, packets) {
                return Some(Walked::fault(*at, fault));
            }
            *at += len;
        }
    }

    #[inline]
    fn block<const BIG: bool>(
        &mut self,
        kind: u32,
        block: &[u8],
        at: usize,
        clock: &mut Clock,
        packets: &mut Vec<Packet>,
    ) -> Result<(), Fault> {
        let packet = match kind {
            ENHANCED_PACKET => self.enhanced::<BIG>(block, at, clock)?,
            SECTION_HEADER => return self.section::<BIG>(block),
            INTERFACE_DESCRIPTION => return self.interface::<BIG>(block),
            SIMPLE_PACKET => self.simple::<BIG>(block, at, clock)?,
            PACKET_OBSOLETE => self.obsolete::<BIG>(block, at, clock)?,
            _ => return Ok(()),
        };
        packets.push(packet);
        Ok(())
    }

    #[inline]
    fn enhanced<const BIG: bool>(&self, block: &[u8], at: usize, clock: &mut Clock) -> Result<Packet, Fault> {
        let Some(head) = block.first_chunk::<28>() else { return Err(SHORT) };
        self.stamped::<BIG>(head, u32_at::<BIG>(head, 8), block.len(), at, clock)
    }

    /// The packet block of old: as the enhanced one, its interface in 16 bits ahead of a count of drops.
    fn obsolete<const BIG: bool>(&self, block: &[u8], at: usize, clock: &mut Clock) -> Result<Packet, Fault> {
        let Some(head) = block.first_chunk::<28>() else { return Err(SHORT) };
        self.stamped::<BIG>(head, u32::from(u16_at::<BIG>(head, 8)), block.len(), at, clock)
    }

    #[inline]
    fn stamped<const BIG: bool>(
        &self,
        head: &[u8; 28],
        id: u32,
        block_len: usize,
        at: usize,
        clock: &mut Clock,
    ) -> Result<Packet, Fault> {
        let index = self.first + id as usize;
        let Some(interface) = self.readers.get(index) else { return Err(Fault::UnknownInterface(id)) };
        let len = u32_at::<BIG>(head, 20);
        if len as usize + 28 + 4 > block_len {
            return Err(Fault::Block("its packet is longer than itself"));
        }
        let stamp = u64::from(u32_at::<BIG>(head, 12)) << 32 | u64::from(u32_at::<BIG>(head, 16));
        let (seq, time) = clock.next(interface.scale.nanos(stamp));
        Ok(Packet {
            seq,
            time,
            offset: (at + 28) as u32,
            len,
            wire_len: u32_at::<BIG>(head, 24).max(len),
            interface: index as u16,
            link: interface.link,
            bucket: 0,
            fate: Fate::Pending,
        })
    }

    /// A packet without a time stamp, of the section's first interface.
    fn simple<const BIG: bool>(&self, block: &[u8], at: usize, clock: &mut Clock) -> Result<Packet, Fault> {
        let Some(head) = block.first_chunk::<12>().filter(|_| block.len() >= 16) else { return Err(SHORT) };
        let Some(interface) = self.readers.get(self.first) else { return Err(Fault::UnknownInterface(0)) };
        let wire_len = u32_at::<BIG>(head, 8);
        let snaplen = match self.interfaces[self.first].snaplen {
            0 => u32::MAX,
            snaplen => snaplen,
        };
        let len = wire_len.min(snaplen);
        if len as usize + 16 > block.len() {
            return Err(Fault::Block("its packet is longer than itself"));
        }
        let (seq, time) = clock.next_unstamped();
        let interface_index = self.first as u16;
        let (offset, link, fate) = ((at + 12) as u32, interface.link, Fate::Pending);
        Ok(Packet { seq, time, offset, len, wire_len, interface: interface_index, link, bucket: 0, fate })
    }

    #[cold]
    fn section<const BIG: bool>(&mut self, block: &[u8]) -> Result<(), Fault> {
        if block.len() < SECTION_HEADER_BYTES {
            return Err(SHORT);
        }
        let version = (u16_at::<BIG>(block, 12), u16_at::<BIG>(block, 14));
        if version.0 != 1 {
            return Err(Fault::Version(version.0, version.1));
        }
        self.count = self.count.saturating_add(1);
        self.first = self.interfaces.len();
        Ok(())
    }

    #[cold]
    fn interface<const BIG: bool>(&mut self, block: &[u8]) -> Result<(), Fault> {
        if block.len() < 20 {
            return Err(SHORT);
        }
        if self.interfaces.len() == INTERFACES_MAX {
            return Err(Fault::TooManyInterfaces);
        }
        let mut interface = Interface {
            name: None,
            link: LinkType::from_number(u16_at::<BIG>(block, 8)),
            snaplen: u32_at::<BIG>(block, 12),
            resolution: Resolution::MICROS,
            time_offset_secs: 0,
            section: self.count.saturating_sub(1),
        };
        let mut rest = &block[16..block.len() - 4];
        while let Some((code, value, behind)) = option::<BIG>(rest)? {
            match (code, value) {
                (OPTION_NAME, name) => interface.name = Some(String::from_utf8_lossy(name).into_owned()),
                (OPTION_RESOLUTION, &[byte, ..]) => interface.resolution = Resolution::from_option(byte),
                (OPTION_TIME_OFFSET, &[..]) if value.len() == 8 => {
                    let (high, low) = if BIG { (0, 4) } else { (4, 0) };
                    let secs = u64::from(u32_at::<BIG>(value, high)) << 32 | u64::from(u32_at::<BIG>(value, low));
                    interface.time_offset_secs = secs as i64;
                }
                _ => {}
            }
            rest = behind;
        }
        let scale = Scale::new(interface.resolution, interface.time_offset_secs);
        self.readers.push(InterfaceReader { link: interface.link, scale });
        self.interfaces.push(interface);
        Ok(())
    }
}

const SHORT: Fault = Fault::Block("it is too short for its type");

/// The byte order that a section header tells.
fn byte_order(head: &[u8; BLOCK_FRAME_BYTES]) -> Option<ByteOrder> {
    match (u32_at::<false>(head, 8), u32_at::<true>(head, 8)) {
        (BYTE_ORDER_MAGIC, _) => Some(ByteOrder::Little),
        (_, BYTE_ORDER_MAGIC) => Some(ByteOrder::Big),
        _ => None,
    }
}

/// Checks the length at a block's head, and against it the one at its end.
#[inline]
fn block_frame<const BIG: bool>(rest: &[u8], len: usize) -> Result<(), Fault> {
    if len > RECORD_BYTES_MAX {
        return Err(Fault::RecordLength(len as u64));
    }
    if len < BLOCK_FRAME_BYTES || !len.is_multiple_of(4) {
        return Err(Fault::Block("its length is not a multiple of 4 from 12 on"));
    }
    if u32_at::<BIG>(rest, len - 4) as usize != len {
        return Err(Fault::Block("the lengths at its two ends differ"));
    }
    Ok(())
}

/// An option's code and value, and what lies behind it.
type OptionAnd<'a> = (u16, &'a [u8], &'a [u8]);

/// The next option, until there is none.
fn option<const BIG: bool>(rest: &[u8]) -> Result<Option<OptionAnd<'_>>, Fault> {
    let Some((head, behind)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    let (code, len) = (u16_at::<BIG>(head, 0), usize::from(u16_at::<BIG>(head, 2)));
    if code == 0 {
        return Ok(None);
    }
    let Some(value) = behind.get(..len) else { return Err(Fault::Block("an option reaches beyond it")) };
    Ok(Some((code, value, behind.get(len.next_multiple_of(4)..).unwrap_or_default())))
}
