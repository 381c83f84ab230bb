//! A batch of packets: their descriptors, and the memory with their bytes.

mod descriptor;
mod memory;

use std::mem;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use locality::loan::Loan;
use locality::prefetch;
use packet::{Nanos, Seq};

use crate::gathered::Gathered;
use crate::pcap::{Interfaces, Restamped};

use memory::{Lent, relend};

pub use descriptor::{Fate, Packet};
pub use memory::{BatchMemory, Block, Frames};

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
    /// Changes of their order.
    pub(crate) reordered: ReorderedNumbers,
}

/// Numbers that packets have in their capture, where the capture's order was changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReorderedNumbers {
    /// Packets with another number: the number that they have, which rises, and the one in the capture.
    pub(crate) numbers: Vec<(Seq, Seq)>,
    /// The lowest number in the capture of those packets that come behind this batch; `None` if all before the last one have come.
    pub(crate) held_from: Option<Seq>,
}

impl ReorderedNumbers {
    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
        self.held_from = None;
    }

    /// True if the packets of a batch are in the order of the capture, and none that was before them comes behind.
    pub(crate) const fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.held_from.is_none()
    }

    /// The number of a packet in its capture.
    pub(crate) fn in_capture(&self, seq: Seq) -> Seq {
        self.numbers.binary_search_by_key(&seq, |(seq, _)| *seq).map_or(seq, |at| self.numbers[at].1)
    }

    fn copy_from(&mut self, other: &Self) {
        self.numbers.clone_from(&other.numbers);
        self.held_from = other.held_from;
    }
}

/// Number of packets to prefetch ahead: another core used the batch last, and fetching a cache line from it takes about the time of this
/// many packets.
const PUSH_AHEAD: usize = 12;

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
        self.origin.reordered.clear();
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

    /// Adds a packet and copies its bytes, which come in parts; sets `packet.offset`. They lie behind all others until the batch is filled
    /// again.
    ///
    /// # Panics
    /// The batch's memory would exceed 4 GiB.
    pub(crate) fn push_parts<'a>(&mut self, packet: Packet, parts: impl Iterator<Item = &'a [u8]>) {
        let end = self.memory.len();
        self.filled.get_or_insert(end);
        parts.for_each(|part| self.memory.extend_from_slice(part));
        let offset = u32::try_from(self.lent_len() + end).expect("a batch is far below 4 GiB");
        self.packets.push(Packet { offset, ..packet });
    }

    /// Adds a packet whose bytes lie in the batch's memory already.
    #[inline]
    pub(crate) fn push_in_place(&mut self, packet: Packet) {
        self.packets.push(packet);
    }

    /// Exchanges all descriptors, and leaves the memory.
    pub(crate) const fn swap_packets(&mut self, packets: &mut Vec<Packet>) {
        mem::swap(&mut self.packets, packets);
    }

    /// Bytes in the batch's memory that a descriptor refers to.
    #[inline]
    pub(crate) fn bytes_of(&self, packet: &Packet) -> &[u8] {
        self.memory().bytes(packet)
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
        self.origin.reordered.clear();
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
        self.origin.reordered.copy_from(&other.origin.reordered);
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

#[cfg(test)]
mod tests;
