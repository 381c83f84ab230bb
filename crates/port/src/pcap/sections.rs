//! pcapng (draft-ietf-opsawg-pcapng): sections of blocks, each section with its byte order and interfaces.

use packet::LinkType;

use super::beside::{self, INTERFACE_STATISTICS, Of, What};
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
pub(super) const OPTION_TIME_OFFSET: u16 = 14;
/// Options of an interface's statistics.
pub(super) const START_TIME: u16 = 2;
pub(super) const END_TIME: u16 = 3;
/// An option of a packet.
const OPTION_HASH: u16 = 3;

/// Type and length, and the length once more at the end.
const BLOCK_FRAME_BYTES: usize = 12;
pub(super) const INTERFACES_MAX: usize = 1 << 16;

/// A pcapng capture that is being read.
#[derive(Debug)]
pub(super) struct Sections {
    pub(super) byte_order: ByteOrder,
    pub(super) count: u32,
    pub(super) interfaces: Vec<Interface>,
    readers: Vec<InterfaceReader>,
    /// The number of the section's first interface.
    first: usize,
}

/// Properties of an interface that its packets need.
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
                    return Some(Walked::fault(*at, Fault::Block("its byte-order magic is wrong")));
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
            ENHANCED_PACKET => self.enhanced::<BIG>(block, at, clock, packets)?,
            SECTION_HEADER => return self.section::<BIG>(block, clock),
            INTERFACE_DESCRIPTION => return self.interface::<BIG>(block),
            SIMPLE_PACKET => self.simple::<BIG>(block, at, clock, packets)?,
            PACKET_OBSOLETE => self.obsolete::<BIG>(block, at, clock, packets)?,
            _ => {
                if clock.notes.wanted {
                    self.note_block::<BIG>(kind, block, clock);
                }
                return Ok(());
            }
        };
        if clock.notes.wanted && kind != SIMPLE_PACKET {
            note_packet::<BIG>(block, &packet, clock);
        }
        packets.push(packet);
        Ok(())
    }

    /// Notes a block that is not a packet.
    #[cold]
    fn note_block<const BIG: bool>(&self, kind: u32, block: &[u8], clock: &mut Clock) {
        let body = &block[8..block.len() - 4];
        let at = clock.packets();
        if kind != INTERFACE_STATISTICS {
            if let Some(body) = beside::copied::<BIG>(kind, body) {
                clock.notes.add(at, What::Block(kind, body));
            }
            return;
        }
        let Some((head, rest)) = body.split_first_chunk::<12>() else { return };
        let index = self.first + u32_at::<BIG>(head, 0) as usize;
        let Some(interface) = self.readers.get(index) else { return };
        let nanos = |high: u32, low: u32| match interface.scale.nanos(u64::from(high) << 32 | u64::from(low)) {
            Ok(nanos) | Err(nanos) => nanos,
        };
        let mut options = beside::options::<BIG>(Of::Statistics, rest);
        for (code, value) in &mut options {
            if let (START_TIME | END_TIME, Some(halves)) = (*code, value.first_chunk::<8>()) {
                let nanos = nanos(u32_at::<false>(halves, 0), u32_at::<false>(halves, 4));
                *value = [((nanos >> 32) as u32).to_le_bytes(), (nanos as u32).to_le_bytes()].concat();
            }
        }
        let time = nanos(u32_at::<BIG>(head, 4), u32_at::<BIG>(head, 8));
        clock.notes.add(at, What::Statistics { interface: index as u16, time, options });
    }

    #[inline]
    fn enhanced<const BIG: bool>(
        &self,
        block: &[u8],
        at: usize,
        clock: &mut Clock,
        packets: &mut [Packet],
    ) -> Result<Packet, Fault> {
        let Some(head) = block.first_chunk::<28>() else { return Err(SHORT) };
        self.stamped::<BIG>(head, u32_at::<BIG>(head, 8), block.len(), at, clock, packets)
    }

    /// The obsolete packet block: like the enhanced one, but with a 16-bit interface before a count of drops.
    fn obsolete<const BIG: bool>(
        &self,
        block: &[u8],
        at: usize,
        clock: &mut Clock,
        packets: &mut [Packet],
    ) -> Result<Packet, Fault> {
        let Some(head) = block.first_chunk::<28>() else { return Err(SHORT) };
        self.stamped::<BIG>(head, u32::from(u16_at::<BIG>(head, 8)), block.len(), at, clock, packets)
    }

    #[inline]
    fn stamped<const BIG: bool>(
        &self,
        head: &[u8; 28],
        id: u32,
        block_len: usize,
        at: usize,
        clock: &mut Clock,
        packets: &mut [Packet],
    ) -> Result<Packet, Fault> {
        let index = self.first + id as usize;
        let Some(interface) = self.readers.get(index) else { return Err(Fault::UnknownInterface(id)) };
        let len = u32_at::<BIG>(head, 20);
        if len as usize + 28 + 4 > block_len {
            return Err(Fault::Block("its packet is longer than itself"));
        }
        let stamp = u64::from(u32_at::<BIG>(head, 12)) << 32 | u64::from(u32_at::<BIG>(head, 16));
        let (seq, time) = match interface.scale.nanos(stamp) {
            Ok(nanos) => clock.next(nanos, packets),
            Err(early) => clock.next_early(early, packets),
        };
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
    fn simple<const BIG: bool>(
        &self,
        block: &[u8],
        at: usize,
        clock: &mut Clock,
        packets: &mut [Packet],
    ) -> Result<Packet, Fault> {
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
        let (seq, time) = clock.next_unstamped(packets);
        let interface_index = self.first as u16;
        let (offset, link, fate) = ((at + 12) as u32, interface.link, Fate::Pending);
        Ok(Packet { seq, time, offset, len, wire_len, interface: interface_index, link, bucket: 0, fate })
    }

    #[cold]
    fn section<const BIG: bool>(&mut self, block: &[u8], clock: &mut Clock) -> Result<(), Fault> {
        if block.len() < SECTION_HEADER_BYTES {
            return Err(SHORT);
        }
        let version = (u16_at::<BIG>(block, 12), u16_at::<BIG>(block, 14));
        if version.0 != 1 {
            return Err(Fault::Version(version.0, version.1));
        }
        self.count = self.count.saturating_add(1);
        self.first = self.interfaces.len();
        if clock.notes.wanted && self.count == 1 {
            let options = beside::written_options::<BIG>(Of::Section, &block[24..block.len() - 4]);
            clock.notes.add(clock.packets(), What::Section(options));
        }
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
            facts: Vec::new(),
            section: self.count.saturating_sub(1),
        };
        let mut rest = &block[16..block.len() - 4];
        let beyond = |()| Fault::Block("an option extends beyond its end");
        while let Some((code, value, behind)) = beside::option::<BIG>(rest).map_err(beyond)? {
            match (code, value) {
                (OPTION_NAME, name) => interface.name = Some(String::from_utf8_lossy(name).into_owned()),
                (OPTION_RESOLUTION, &[byte, ..]) => interface.resolution = Resolution::from_option(byte),
                (OPTION_TIME_OFFSET, &[..]) if value.len() == 8 => {
                    let (high, low) = if BIG { (0, 4) } else { (4, 0) };
                    let secs = u64::from(u32_at::<BIG>(value, high)) << 32 | u64::from(u32_at::<BIG>(value, low));
                    interface.time_offset_secs = secs as i64;
                }
                _ => interface.facts.push((code, beside::value::<BIG>(Of::Interface, code, value))),
            }
            rest = behind;
        }
        let scale = Scale::new(interface.resolution, interface.time_offset_secs);
        self.readers.push(InterfaceReader { link: interface.link, scale });
        self.interfaces.push(interface);
        Ok(())
    }
}

/// Notes the options of a packet.
fn note_packet<const BIG: bool>(block: &[u8], packet: &Packet, clock: &mut Clock) {
    clock.notes.wire_len(packet.seq.0, packet.len, u32_at::<BIG>(block, 24));
    let behind = 28 + (packet.len as usize).next_multiple_of(4);
    let mut options = Vec::new();
    for (code, value) in beside::options::<BIG>(Of::Packet, block.get(behind..block.len() - 4).unwrap_or_default()) {
        // A hash is wrong after a rewrite.
        if code != OPTION_HASH {
            beside::put_option(&mut options, code, &value);
        }
    }
    if !options.is_empty() {
        clock.notes.add(packet.seq.0, What::Options(options));
    }
}

const SHORT: Fault = Fault::Block("it is too short for its type");

/// The byte order of a section header.
fn byte_order(head: &[u8; BLOCK_FRAME_BYTES]) -> Option<ByteOrder> {
    match (u32_at::<false>(head, 8), u32_at::<true>(head, 8)) {
        (BYTE_ORDER_MAGIC, _) => Some(ByteOrder::Little),
        (_, BYTE_ORDER_MAGIC) => Some(ByteOrder::Big),
        _ => None,
    }
}

/// Checks the length at the start of a block, and that it equals the one at its end.
#[inline]
fn block_frame<const BIG: bool>(rest: &[u8], len: usize) -> Result<(), Fault> {
    if len > RECORD_BYTES_MAX {
        return Err(Fault::RecordLength(len as u64));
    }
    if len < BLOCK_FRAME_BYTES || !len.is_multiple_of(4) {
        return Err(Fault::Block("its length is not a multiple of 4, or less than 12"));
    }
    if u32_at::<BIG>(rest, len - 4) as usize != len {
        return Err(Fault::Block("the lengths at its two ends differ"));
    }
    Ok(())
}
