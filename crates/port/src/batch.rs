//! A batch of packets: their descriptors, and the memory with their bytes.

use std::mem;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use locality::loan::{Loan, Parts};
use locality::prefetch;
use memmap2::Mmap;
use packet::{LinkType, Nanos, Seq};

use crate::gathered::Gathered;
use crate::pcap::{Interfaces, Restamped};

/// Packets in arrival order, and the memory that holds their bytes.
///
/// A port copies bytes into the batch's own memory, or lends its memory to the batch. Shared memory is read-only: a packet in it is
/// copied before it is written. [Lent buffers](Self::lend_buffers) are written in place, unless another batch has the same buffers.
#[derive(Debug, Default)]
pub struct Batch {
    memory: Vec<u8>,
    packets: Vec<Packet>,
    lent: Option<Lent>,
    /// Length of the memory before packets were replaced by longer ones, which are stored after it.
    filled: Option<usize>,
    origin: Origin,
    gathered: Gathered,
}

/// Facts about the capture that packets come from, for the writer of a capture.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    /// Interfaces declared so far, by number; `None` if packets come from elsewhere.
    pub(crate) interfaces: Option<Arc<Interfaces>>,
    /// Packets whose time differs from their stamp, ordered by number.
    pub(crate) restamped: Vec<Restamped>,
}

/// Memory of a port, or of a block that several batches share. Offsets in it come before offsets in the batch's own memory.
#[derive(Debug)]
enum Lent {
    /// Read-only: a part of a block.
    Shared { memory: Arc<Block>, start: usize, len: usize },
    /// Writable, and used by this batch only.
    Buffers(Loan),
}

/// Memory that can be lent to batches.
#[derive(Debug)]
pub enum Block {
    /// A memory mapping.
    Mapped(Mmap),
    /// Memory that a port has filled.
    Filled(Vec<u8>),
    /// Buffers of a port. They return to it when no batch uses the block any more.
    Buffers(Loan),
}

impl Block {
    /// All bytes; `None` if some of them must not be read.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Mapped(map) => Some(map),
            Self::Filled(bytes) => Some(bytes),
            Self::Buffers(_) => None,
        }
    }
}

impl Lent {
    #[inline(always)]
    fn len(&self) -> usize {
        match self {
            Self::Shared { len, .. } => *len,
            Self::Buffers(loan) => loan.len(),
        }
    }

    /// All of them, to read packets' parts.
    #[inline(always)]
    fn parts(&self) -> Parts<'_> {
        match self {
            Self::Shared { memory, start, len } => match &**memory {
                Block::Buffers(loan) => loan.parts(),
                Block::Mapped(map) => Parts::from(&map[*start..][..*len]),
                Block::Filled(bytes) => Parts::from(&bytes[*start..][..*len]),
            },
            Self::Buffers(loan) => loan.parts(),
        }
    }

    /// All of them, where what lies between packets may be read.
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Shared { memory, start, len } => memory.bytes().map(|bytes| &bytes[*start..][..*len]),
            Self::Buffers(_) => None,
        }
    }
}

/// Some packets of a batch, each with its bytes. The location of the bytes is resolved once for all of them.
#[derive(Debug)]
pub struct Frames<'a> {
    packets: slice::IterMut<'a, Packet>,
    memory: BatchMemory<'a>,
}

impl<'a> Iterator for Frames<'a> {
    type Item = (&'a mut Packet, &'a [u8]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let packet = self.packets.next()?;
        let bytes = self.memory.bytes(packet);
        Some((packet, bytes))
    }
}

/// The memory that the offsets of a batch's packets refer to.
#[derive(Clone, Copy, Debug)]
pub struct BatchMemory<'a> {
    lent: Parts<'a>,
    own: &'a [u8],
}

impl<'a> BatchMemory<'a> {
    #[inline(always)]
    fn new(lent: Option<&'a Lent>, own: &'a [u8]) -> Self {
        let lent = match lent {
            Some(lent) => lent.parts(),
            None => Parts::from(&[][..]),
        };
        Self { lent, own }
    }

    /// The captured bytes of one of the batch's packets.
    #[inline(always)]
    #[must_use]
    pub fn bytes(self, packet: &Packet) -> &'a [u8] {
        let (start, len) = (packet.offset as usize, packet.len as usize);
        match start.checked_sub(self.lent.len()) {
            None => self.lent.part(start, len),
            Some(start) => &self.own[start..][..len],
        }
    }
}

/// Descriptor of a packet in a batch.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Number in arrival order.
    pub seq: Seq,
    /// Arrival time; never before that of the previous packet.
    pub time: Nanos,
    /// Offset of its bytes in the batch's memory.
    pub offset: u32,
    /// Number of captured bytes.
    pub len: u32,
    /// Length on the wire in bytes, at least `len`.
    pub wire_len: u32,
    /// Number of the input interface.
    pub interface: u16,
    /// Link type: the header that its bytes begin with.
    pub link: LinkType,
    /// Entry of the indirection table that steered it; 0 if nothing steered it, [`SPRAYED`](Self::SPRAYED) if its hash was not used.
    pub bucket: u16,
    /// What the port does with it.
    pub fate: Fate,
}

impl Packet {
    /// Bucket of a packet that was sprayed.
    pub const SPRAYED: u16 = u16::MAX;
}

/// Number of packets to prefetch ahead: another core used the batch last, and fetching a cache line from it takes about the time of this
/// many packets.
const PUSH_AHEAD: usize = 12;

/// What a port does with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Not decided yet; the packet is not sent.
    #[default]
    Pending,
    /// Send it to this port.
    Transmit(u16),
    /// Send it to the first port, and a copy of it to the second.
    Both(u16, u16),
    /// Drop it. The number is the drop reason; only the engine's user knows its name.
    Drop(u8),
}

impl Fate {
    /// The ports that the packet is sent to, in order.
    pub fn ports(self) -> impl Iterator<Item = u16> {
        let (first, second) = match self {
            Self::Transmit(port) => (Some(port), None),
            Self::Both(port, copy) => (Some(port), Some(copy)),
            Self::Pending | Self::Drop(_) => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// True if the packet is sent.
    #[inline]
    #[must_use]
    pub const fn is_sent(self) -> bool {
        matches!(self, Self::Transmit(_) | Self::Both(..))
    }
}

impl Batch {
    /// An empty batch with room for `packets` packets of `bytes` bytes in all.
    #[must_use]
    pub fn with_capacity(packets: usize, bytes: usize) -> Self {
        Self { memory: Vec::with_capacity(bytes), packets: Vec::with_capacity(packets), ..Self::default() }
    }

    /// Number of packets.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Upper bound of the bytes of all packets.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.lent_len() + self.memory.len()
    }

    /// True if there are no packets.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Removes all packets and keeps the memory.
    pub fn clear(&mut self) {
        self.memory.clear();
        self.packets.clear();
        self.lent = None;
        self.filled = None;
        self.origin.restamped.clear();
        self.gathered.clear();
    }

    /// Removes the packets for which `keep` returns false; the others keep their order.
    pub fn retain(&mut self, keep: impl FnMut(&Packet) -> bool) {
        self.packets.retain(keep);
    }

    /// Keeps the first `len` packets.
    pub fn truncate(&mut self, len: usize) {
        self.packets.truncate(len);
    }

    /// Removes all packets without touching the memory, for ports that fill it in place.
    pub(crate) fn clear_packets(&mut self) {
        self.forget_longer();
        self.packets.clear();
    }

    fn forget_longer(&mut self) {
        if let Some(filled) = self.filled.take() {
            self.memory.truncate(filled);
        }
    }

    /// Packet descriptors.
    #[inline]
    #[must_use]
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// Packet descriptors, for setting their fates.
    #[inline]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// Packet descriptors, for setting their fates, and the memory that has their bytes.
    #[inline]
    pub fn apart(&mut self) -> (&mut [Packet], BatchMemory<'_>) {
        let memory = BatchMemory::new(self.lent.as_ref(), &self.memory);
        (&mut self.packets, memory)
    }

    /// Bytes of packet `index` of this batch.
    ///
    /// # Panics
    /// There is no such packet.
    #[inline]
    #[must_use]
    pub fn bytes(&self, index: usize) -> &[u8] {
        self.packet(index).1
    }

    /// Descriptor and bytes of packet `index` of this batch.
    ///
    /// # Panics
    /// There is no such packet.
    #[inline(always)]
    #[must_use]
    pub fn packet(&self, index: usize) -> (&Packet, &[u8]) {
        let packet = &self.packets[index];
        (packet, self.memory().bytes(packet))
    }

    /// Descriptors and bytes of these packets.
    ///
    /// # Panics
    /// There are no such packets.
    #[inline(always)]
    pub fn each(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = (&Packet, &[u8])> {
        let memory = self.memory();
        self.packets[range].iter().map(move |packet| (packet, memory.bytes(packet)))
    }

    /// Descriptors and bytes of these packets, for setting their fates.
    ///
    /// # Panics
    /// There are no such packets.
    #[inline(always)]
    #[must_use]
    pub fn frames(&mut self, range: Range<usize>) -> Frames<'_> {
        let memory = BatchMemory::new(self.lent.as_ref(), &self.memory);
        Frames { packets: self.packets[range].iter_mut(), memory }
    }

    #[inline(always)]
    fn memory(&self) -> BatchMemory<'_> {
        BatchMemory::new(self.lent.as_ref(), &self.memory)
    }

    /// Bytes of packet `index`, for rewriting. A packet in read-only memory is copied first.
    ///
    /// # Panics
    /// There is no such packet, or the batch's memory would exceed 4 GiB.
    #[inline]
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let packet = &self.packets[index];
        let (start, len) = (packet.offset as usize, packet.len as usize);
        let own = match &self.lent {
            None => start,
            Some(lent) if start >= lent.len() => start - lent.len(),
            Some(Lent::Shared { .. }) => self.copy(index),
            Some(Lent::Buffers(_)) => {
                let Some(Lent::Buffers(loan)) = &mut self.lent else { unreachable!("it has just been one") };
                return loan.part_mut(start, len);
            }
        };
        &mut self.memory[own..][..len]
    }

    /// Copies a lent packet to the batch's own memory, for writing. Returns its place there.
    #[inline(never)]
    fn copy(&mut self, index: usize) -> usize {
        let Some(lent) = &self.lent else { unreachable!("somebody lent the packet") };
        let packet = &mut self.packets[index];
        let start = self.memory.len();
        self.memory.extend_from_slice(lent.parts().part(packet.offset as usize, packet.len as usize));
        packet.offset = u32::try_from(lent.len() + start).expect("a batch is far below 4 GiB");
        start
    }

    /// Adds a packet and copies its bytes; sets `packet.offset` and `packet.len`.
    ///
    /// # Panics
    /// The batch's memory would exceed 4 GiB.
    pub fn push(&mut self, packet: Packet, bytes: &[u8]) {
        let offset = u32::try_from(self.lent_len() + self.memory.len()).expect("a batch is far below 4 GiB");
        self.memory.extend_from_slice(bytes);
        self.packets.push(Packet { offset, len: bytes.len() as u32, ..packet });
    }

    /// Moves the memory that only this batch uses into `block` and borrows it read-only from there, so that several batches can be
    /// [cleared beside](Self::clear_beside) this one. The batch takes over the block's old memory. Does nothing if all bytes are already
    /// in read-only memory.
    ///
    /// # Panics
    /// Another owner holds the block.
    pub fn share(&mut self, block: &mut Arc<Block>) {
        let (len, shared) = match self.lent.take() {
            lent @ Some(Lent::Shared { .. }) => {
                self.lent = lent;
                return;
            }
            Some(Lent::Buffers(loan)) => (loan.len(), Block::Buffers(loan)),
            None => {
                self.filled = None;
                (self.memory.len(), Block::Filled(mem::take(&mut self.memory)))
            }
        };
        let is_own = matches!(shared, Block::Filled(_));
        let unshared = Arc::get_mut(block).expect("nobody else holds the block");
        let old = mem::replace(unshared, shared);
        if let (Block::Filled(old), true) = (old, is_own) {
            self.memory = old;
        }
        self.lent = Some(Lent::Shared { memory: Arc::clone(block), start: 0, len });
    }

    /// Removes all packets, releases lent memory, and takes back the memory that was [shared](Self::share). Shared buffers return to
    /// their port if no other batch uses them.
    pub fn unshare(&mut self, block: &mut Arc<Block>) {
        self.packets.clear();
        self.lent = None;
        self.origin.restamped.clear();
        self.gathered.clear();
        match Arc::get_mut(block) {
            Some(Block::Filled(filled)) => mem::swap(&mut self.memory, filled),
            Some(buffers @ Block::Buffers(_)) => *buffers = Block::Filled(Vec::new()),
            Some(Block::Mapped(_)) | None => {}
        }
    }

    /// Time stamp of packet `index` in its capture file. It equals the packet's time, except for stamps that step back or were rejected
    /// as wrong. A stamp before the epoch is stored modulo 2^64.
    ///
    /// # Panics
    /// There is no such packet.
    #[must_use]
    pub fn stamp(&self, index: usize) -> Nanos {
        let packet = &self.packets[index];
        match self.origin.restamped.binary_search_by_key(&packet.seq, |one| one.seq) {
            Ok(at) if self.origin.restamped[at].time == packet.time => self.origin.restamped[at].stamp,
            Ok(_) | Err(_) => packet.time,
        }
    }

    pub(crate) const fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(crate) const fn origin_mut(&mut self) -> &mut Origin {
        &mut self.origin
    }

    /// Removes all packets and borrows the memory that is lent to `other`, for [`push_of`](Self::push_of). Reserves room for all packets
    /// of `other` and for copies of `room` bytes.
    pub fn clear_beside(&mut self, other: &Self, room: usize) {
        self.memory.clear();
        self.memory.reserve(room);
        self.packets.clear();
        self.packets.reserve(other.len());
        self.filled = None;
        self.come_with(other);
        match (&mut self.lent, &other.lent) {
            (own, Some(Lent::Shared { memory, start, len })) => relend(own, memory, *start, *len),
            // Memory that only the other batch uses is copied.
            (own, Some(Lent::Buffers(_)) | None) => *own = None,
        }
    }

    /// Marks the packets as coming from the same capture as those of `other`, for the writer.
    pub fn come_with(&mut self, other: &Self) {
        match (&self.origin.interfaces, &other.origin.interfaces) {
            // Changing a reference count would write to a cache line that other cores write, too.
            (Some(own), Some(others)) if Arc::ptr_eq(own, others) => {}
            (_, others) => self.origin.interfaces.clone_from(others),
        }
        self.origin.restamped.clone_from(&other.origin.restamped);
        self.gathered.copy_from(&other.gathered);
    }

    /// What a wrapper of a port remembers about the packets.
    #[inline]
    #[must_use]
    pub const fn gathered(&self) -> &Gathered {
        &self.gathered
    }

    /// What a wrapper of a port remembers about the packets, for writing.
    #[inline]
    pub const fn gathered_mut(&mut self) -> &mut Gathered {
        &mut self.gathered
    }

    /// Adds packet `index` of `other`, steered by `bucket`. Bytes in memory that both batches borrow, because one was [cleared
    /// beside](Self::clear_beside) the other or both beside a third, stay in place; other bytes are copied.
    ///
    /// # Panics
    /// There is no such packet, or the batch's memory would exceed 4 GiB.
    #[inline(always)]
    pub fn push_of(&mut self, other: &Self, index: usize, bucket: u16) {
        let packet = &other.packets[index];
        if (packet.offset as usize) < self.lent_len().min(other.lent_len()) {
            debug_assert_eq!(self.lent_len(), other.lent_len(), "both are lent the same");
            self.push_lent(packet, bucket);
        } else {
            self.push(Packet { bucket, ..*packet }, other.bytes(index));
        }
    }

    /// Replaces packet `at` by packet `index` of `other`, which was [cleared beside](Self::clear_beside) this batch. Bytes that both
    /// borrow stay in place; other bytes are copied.
    ///
    /// # Panics
    /// There is no such packet, or the batch's memory would exceed 4 GiB.
    #[inline(always)]
    pub fn put_back(&mut self, at: usize, other: &Self, index: usize) {
        let packet = &other.packets[index];
        if (packet.offset as usize) < self.lent_len().min(other.lent_len()) {
            self.packets[at] = *packet;
        } else {
            self.replace(at, other.bytes(index));
            self.packets[at] = Packet { offset: self.packets[at].offset, ..*packet };
        }
    }

    /// Adds a packet of another batch, steered by `bucket`. Its bytes stay in the memory that both batches borrow.
    #[inline(always)]
    pub fn push_lent(&mut self, packet: &Packet, bucket: u16) {
        debug_assert!((packet.offset as usize) < self.lent_len(), "it lies in what is lent");
        prefetch::place_to_write(self.packets.as_ptr(), self.packets.len() + PUSH_AHEAD);
        // Copy the descriptor directly and set the bucket afterwards: building it first would stall on the partial write, and a push by
        // value would go through the stack.
        self.packets.extend_from_slice(slice::from_ref(packet));
        if let Some(pushed) = self.packets.last_mut() {
            pushed.bucket = bucket;
        }
    }

    /// Prefetches the first bytes of these packets, if they exist and are in shared memory that another core has read.
    #[inline(always)]
    pub fn prefetch(&self, range: Range<usize>) {
        let Some(lent @ Lent::Shared { .. }) = &self.lent else { return };
        let parts = lent.parts();
        let packets = &self.packets[range.start.min(self.packets.len())..];
        for packet in &packets[..range.len().min(packets.len())] {
            prefetch::address(parts.address(packet.offset as usize));
        }
    }

    /// Length of the shared read-only memory. Packets with a smaller offset stay in place in batches beside this one.
    #[inline]
    #[must_use]
    pub fn shared_len(&self) -> usize {
        match &self.lent {
            Some(Lent::Shared { len, .. }) => *len,
            Some(Lent::Buffers(_)) | None => 0,
        }
    }

    /// Replaces packet `index` by a whole frame. A longer frame than before is stored after all others until the batch is filled again.
    ///
    /// # Panics
    /// There is no such packet, or the batch's memory would exceed 4 GiB.
    pub fn replace(&mut self, index: usize, frame: &[u8]) {
        let lent = self.lent_len();
        let packet = &mut self.packets[index];
        let start = packet.offset as usize;
        let fits = frame.len() <= packet.len as usize;
        match &mut self.lent {
            Some(Lent::Buffers(loan)) if fits && start < lent => {
                loan.part_mut(start, frame.len()).copy_from_slice(frame);
            }
            _ if fits && start >= lent => self.memory[start - lent..][..frame.len()].copy_from_slice(frame),
            _ => {
                let end = self.memory.len();
                self.filled.get_or_insert(end);
                self.memory.extend_from_slice(frame);
                packet.offset = u32::try_from(lent + end).expect("a batch is far below 4 GiB");
            }
        }
        packet.len = frame.len() as u32;
        packet.wire_len = frame.len() as u32;
    }

    /// The memory that offsets refer to, and the descriptors, for ports that fill them in place. Frames stored by
    /// [`replace`](Self::replace) and packets in lent memory are dropped.
    pub fn parts_mut(&mut self) -> (&mut Vec<u8>, &mut Vec<Packet>) {
        self.forget_longer();
        if self.lent.take().is_some() {
            self.packets.clear();
        }
        (&mut self.memory, &mut self.packets)
    }

    /// Lends `len` bytes of `memory` read-only until the batch is filled again. Returns the descriptors to fill, with offsets in these
    /// bytes. Reserves room for copies of `room` bytes.
    pub(crate) fn lend(&mut self, memory: &Arc<Block>, start: usize, len: usize, room: usize) -> &mut Vec<Packet> {
        self.filled = None;
        self.memory.clear();
        self.memory.reserve(room);
        relend(&mut self.lent, memory, start, len);
        &mut self.packets
    }

    /// Lends buffers for writing. Returns the descriptors to fill, with offsets in the buffers. The batch keeps the loan until it is
    /// cleared, lent to again, or dropped. Packets are rewritten in place; only a packet that outgrows its place, or that several cores
    /// [share](Self::share), is copied.
    pub fn lend_buffers(&mut self, loan: Loan) -> &mut Vec<Packet> {
        self.clear();
        self.lent = Some(Lent::Buffers(loan));
        &mut self.packets
    }

    /// True if packet `index` is in the lent buffers and was not copied.
    ///
    /// # Panics
    /// There is no such packet.
    #[must_use]
    pub fn is_in_place(&self, index: usize) -> bool {
        (self.packets[index].offset as usize) < self.lent_len()
    }

    /// True if most packets were copied since memory was lent.
    pub(crate) fn is_copied(&self) -> bool {
        self.lent.as_ref().is_none_or(|lent| self.memory.len() > lent.len() / 2)
    }

    /// Bytes between two offsets, if they are in one memory.
    #[inline]
    pub(crate) fn stretch(&self, start: usize, end: usize) -> Option<&[u8]> {
        match start.checked_sub(self.lent_len()) {
            None => self.lent.as_ref()?.bytes()?.get(start..end),
            Some(start) => self.memory.get(start..end - self.lent_len()),
        }
    }

    #[inline(always)]
    fn lent_len(&self) -> usize {
        self.lent.as_ref().map_or(0, Lent::len)
    }
}

/// Lends a part of a block.
fn relend(lent: &mut Option<Lent>, block: &Arc<Block>, start: usize, len: usize) {
    if let Some(Lent::Shared { memory, start: own_start, len: own_len }) = lent
        && Arc::ptr_eq(memory, block)
    {
        // The usual case. Changing a reference count would write to a cache line that other cores write, too.
        (*own_start, *own_len) = (start, len);
    } else {
        *lent = Some(Lent::Shared { memory: Arc::clone(block), start, len });
    }
}

#[cfg(test)]
mod tests {
    use locality::loan::Pool;
    use memmap2::MmapMut;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const PACKET: Packet = Packet {
        seq: Seq(0),
        time: Nanos(0),
        offset: 0,
        len: 0,
        wire_len: 0,
        interface: 0,
        link: LinkType::Ethernet,
        bucket: 0,
        fate: Fate::Pending,
    };

    /// What is done to a batch; packets are taken modulo how many there are.
    #[derive(Clone, Debug)]
    enum Op {
        Write(usize, u8),
        Replace(usize, Vec<u8>),
        Push(Vec<u8>),
        Retain(usize),
        Truncate(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        let frame = || vec(any::<u8>(), 0..100);
        prop_oneof![
            (any::<usize>(), any::<u8>()).prop_map(|(at, with)| Op::Write(at, with)),
            (any::<usize>(), frame()).prop_map(|(at, frame)| Op::Replace(at, frame)),
            frame().prop_map(Op::Push),
            (2..5usize).prop_map(Op::Retain),
            (0..40usize).prop_map(Op::Truncate),
        ]
    }

    /// Where a batch's bytes lie.
    #[derive(Clone, Copy, Debug)]
    enum Lies {
        Own,
        /// Lent to be read, behind so many other bytes.
        Behind(usize),
        /// In buffers, with so many bytes between the packets.
        Buffers(usize),
    }

    fn lies() -> impl Strategy<Value = Lies> {
        prop_oneof![Just(Lies::Own), (0..100usize).prop_map(Lies::Behind), (0..100usize).prop_map(Lies::Buffers)]
    }

    /// Has the batch begin with these frames; what is lent to be read is put into `arenas`.
    fn fill(batch: &mut Batch, frames: &[Vec<u8>], lies: Lies, arenas: &mut Vec<Arc<Block>>, pool: &Arc<Pool>) {
        let (mut at, between, packets) = match lies {
            Lies::Own => {
                batch.clear();
                frames.iter().for_each(|frame| batch.push(PACKET, frame));
                return;
            }
            Lies::Behind(start) => {
                let bytes = frames.concat();
                let mut arena = MmapMut::map_anon(start + bytes.len() + 1).expect("memory is there");
                arena[start..start + bytes.len()].copy_from_slice(&bytes);
                let arena = Arc::new(Block::Mapped(arena.make_read_only().expect("memory is there")));
                arenas.push(Arc::clone(&arena));
                (0, 0, batch.lend(&arena, start, bytes.len(), 64))
            }
            Lies::Buffers(between) => {
                batch.clear();
                let mut loan = pool.lend().expect("it came back");
                let mut start = between;
                for frame in frames {
                    loan.part_mut(start, frame.len()).copy_from_slice(frame);
                    start += frame.len() + between;
                }
                (between, between, batch.lend_buffers(loan))
            }
        };
        packets.clear();
        for frame in frames {
            packets.push(Packet { offset: at as u32, len: frame.len() as u32, ..PACKET });
            at += frame.len() + between;
        }
    }

    proptest! {
        /// A batch is a list of frames, whoever's memory they lie in, and what was lent stays as it is.
        #[test]
        fn a_batch_does_as_a_list_does(
            rounds in vec((vec(vec(any::<u8>(), 0..80), 0..20), lies(), vec(op(), 0..30)), 1..4),
        ) {
            let pool = Pool::new(1, 4096);
            let mut block = Arc::new(Block::Filled(Vec::new()));
            let mut batch = Batch::default();
            let mut beside = [Batch::default(), Batch::default()];
            let mut arenas = Vec::new();
            for (frames, lies, ops) in rounds {
                fill(&mut batch, &frames, lies, &mut arenas, &pool);
                prop_assert_eq!(pool.lent(), usize::from(matches!(lies, Lies::Buffers(_))));
                let before: Vec<Vec<u8>> = arenas.iter().flat_map(|arena| arena.bytes()).map(<[u8]>::to_vec).collect();
                let mut naive = frames;
                for op in ops {
                    match op {
                        Op::Write(at, with) if !naive.is_empty() => {
                            let at = at % naive.len();
                            naive[at].fill(with);
                            let was_in_place = batch.is_in_place(at);
                            batch.bytes_mut(at).fill(with);
                            prop_assert_eq!(batch.is_in_place(at), was_in_place && matches!(lies, Lies::Buffers(_)));
                        }
                        Op::Replace(at, frame) if !naive.is_empty() => {
                            let at = at % naive.len();
                            batch.replace(at, &frame);
                            naive[at] = frame;
                        }
                        Op::Write(..) | Op::Replace(..) => {}
                        Op::Push(frame) => {
                            batch.push(PACKET, &frame);
                            naive.push(frame);
                        }
                        Op::Retain(every) => {
                            let (mut one, mut other) = (0, 0);
                            batch.retain(|_| { one += 1; one % every != 0 });
                            naive.retain(|_| { other += 1; other % every != 0 });
                        }
                        Op::Truncate(len) => {
                            batch.truncate(len);
                            naive.truncate(len);
                        }
                    }
                    prop_assert_eq!(batch.len(), naive.len());
                    for (at, frame) in naive.iter().enumerate() {
                        prop_assert_eq!(batch.bytes(at), frame);
                    }
                }
                // Split into two, which are then written to.
                batch.share(&mut block);
                beside.iter_mut().for_each(|part| part.clear_beside(&batch, 0));
                for at in 0..naive.len() {
                    beside[at % 2].push_of(&batch, at, 7);
                }
                for (at, frame) in naive.iter().enumerate() {
                    let part = &mut beside[at % 2];
                    prop_assert_eq!((part.bytes(at / 2), part.packets()[at / 2].bucket), (&frame[..], 7));
                    part.bytes_mut(at / 2).fill(!frame.first().copied().unwrap_or_default());
                }
                // And gathered again: what lies apart from all that was lent is copied.
                let (mut apart, mut gathered) = (Batch::default(), Batch::default());
                gathered.clear_beside(&batch, 0);
                for at in 0..naive.len() {
                    apart.push_of(&batch, at, 0);
                    gathered.push_of(&batch, at, 0);
                    gathered.push_of(&apart, at, 0);
                }
                for (at, frame) in naive.iter().enumerate() {
                    prop_assert_eq!(batch.bytes(at), frame);
                    prop_assert_eq!([gathered.bytes(2 * at), gathered.bytes(2 * at + 1)], [frame, frame]);
                }
                gathered.clear();
                // Settled where they were read.
                for (at, frame) in naive.iter().enumerate() {
                    batch.put_back(at, &beside[at % 2], at / 2);
                    let written = vec![!frame.first().copied().unwrap_or_default(); frame.len()];
                    prop_assert_eq!((batch.bytes(at), batch.packets()[at].bucket), (&written[..], 7));
                }
                batch.unshare(&mut block);
                beside.iter_mut().for_each(Batch::clear);
                batch.unshare(&mut block);
                prop_assert_eq!(pool.lent(), 0);
                for (arena, before) in arenas.iter().zip(before) {
                    prop_assert_eq!(arena.bytes(), Some(&before[..]));
                }
            }
        }
    }
}
