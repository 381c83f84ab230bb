//! The packets that travel together through an engine.

use std::mem;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use locality::loan::{Loan, Parts};
use locality::prefetch;
use memmap2::Mmap;
use packet::{LinkType, Nanos, Seq};

use crate::pcap::{Interfaces, Restamped};

/// Packets in arrival order, with the memory that their bytes lie in.
///
/// A port copies bytes into the batch's own memory, or lends them. What is lent to be read stays as it is: a packet that is written
/// to is copied first. What is [lent to be written to](Self::lend_buffers) is changed where it lies, as long as no other batch is lent
/// the same.
#[derive(Debug, Default)]
pub struct Batch {
    memory: Vec<u8>,
    packets: Vec<Packet>,
    lent: Option<Lent>,
    /// How much memory there was before packets were replaced by longer ones, which lie behind it.
    filled: Option<usize>,
    origin: Origin,
}

/// What the writer of a capture needs to know of the capture that packets come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    /// The interfaces that were described so far, by number; `None` where packets come from elsewhere.
    pub(crate) interfaces: Option<Arc<Interfaces>>,
    /// The packets whose time is not that of their stamp, in the order of their numbers.
    pub(crate) restamped: Vec<Restamped>,
}

/// Bytes that lie with a port, or in a block that several batches share. Offsets within them come ahead of those in the batch's own
/// memory.
#[derive(Debug)]
enum Lent {
    /// To be read: part of a block.
    Shared { memory: Arc<Block>, start: usize, len: usize },
    /// To be written to as well, by this batch alone.
    Buffers(Loan),
}

/// Memory that batches can be lent.
#[derive(Debug)]
pub enum Block {
    /// A mapping.
    Mapped(Mmap),
    /// What a port has filled.
    Filled(Vec<u8>),
    /// A port's buffers, which go back once no batch is lent the block any more.
    Buffers(Loan),
}

impl Block {
    /// Its bytes; `None` where not all of them may be read.
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

/// Some packets of a batch, each with its bytes: where those lie is found out once for all.
#[derive(Debug)]
pub struct Frames<'a> {
    packets: slice::IterMut<'a, Packet>,
    memory: Memory<'a>,
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

/// What the offsets of a batch's packets count in.
#[derive(Clone, Copy, Debug)]
struct Memory<'a> {
    lent: Parts<'a>,
    own: &'a [u8],
}

impl<'a> Memory<'a> {
    #[inline(always)]
    fn new(lent: Option<&'a Lent>, own: &'a [u8]) -> Self {
        let lent = match lent {
            Some(lent) => lent.parts(),
            None => Parts::from(&[][..]),
        };
        Self { lent, own }
    }

    #[inline(always)]
    fn bytes(self, packet: &Packet) -> &'a [u8] {
        let (start, len) = (packet.offset as usize, packet.len as usize);
        match start.checked_sub(self.lent.len()) {
            None => self.lent.part(start, len),
            Some(start) => &self.own[start..][..len],
        }
    }
}

/// One packet of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Its number in arrival order.
    pub seq: Seq,
    /// When it arrived. Never before the packet ahead of it.
    pub time: Nanos,
    /// Where its bytes begin in the batch's memory.
    pub offset: u32,
    /// How many bytes of it there are.
    pub len: u32,
    /// How many bytes it had on the wire; at least `len`.
    pub wire_len: u32,
    /// The interface that it came in by.
    pub interface: u16,
    /// How its bytes begin.
    pub link: LinkType,
    /// The entry of the indirection table that it was steered by, as a card tells its receive-side scaling hash; 0 where
    /// nobody steered it, [`SPRAYED`](Self::SPRAYED) where its hash decided nothing.
    pub bucket: u16,
    /// What becomes of it.
    pub fate: Fate,
}

impl Packet {
    /// The bucket of a packet that was sprayed.
    pub const SPRAYED: u16 = u16::MAX;
}

/// Another core had the batch last, and gives up a cache line in the time that about so many packets take.
const PUSH_AHEAD: usize = 12;

/// What becomes of a packet, as far as a port needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Nobody has decided yet: the packet does not go out.
    #[default]
    Pending,
    /// It goes out by this port.
    Transmit(u16),
    /// It does not go out. The number is the drop reason's, which only the engine's user can name.
    Drop(u8),
}

impl Batch {
    /// An empty batch with room for `packets` packets of `bytes` bytes together, which it will not grow beyond on its own.
    #[must_use]
    pub fn with_capacity(packets: usize, bytes: usize) -> Self {
        Self { memory: Vec::with_capacity(bytes), packets: Vec::with_capacity(packets), ..Self::default() }
    }

    /// How many packets there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// How many bytes the packets have together, at most.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.lent_len() + self.memory.len()
    }

    /// Whether there are no packets.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Takes all packets out and keeps the room.
    pub fn clear(&mut self) {
        self.memory.clear();
        self.packets.clear();
        self.lent = None;
        self.filled = None;
        self.origin.restamped.clear();
    }

    /// Takes out the packets that `keep` refuses; the others keep their order.
    pub fn retain(&mut self, keep: impl FnMut(&Packet) -> bool) {
        self.packets.retain(keep);
    }

    /// Takes out all packets behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.packets.truncate(len);
    }

    /// Takes all packets out and leaves the memory as it is, for ports that fill it in place.
    pub(crate) fn clear_packets(&mut self) {
        self.forget_longer();
        self.packets.clear();
    }

    fn forget_longer(&mut self) {
        if let Some(filled) = self.filled.take() {
            self.memory.truncate(filled);
        }
    }

    /// The packets' descriptors.
    #[inline]
    #[must_use]
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// The packets' descriptors, to decide their fates.
    #[inline]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// The bytes of packet number `index` of this batch.
    ///
    /// # Panics
    /// When there is no such packet.
    #[inline]
    #[must_use]
    pub fn bytes(&self, index: usize) -> &[u8] {
        self.packet(index).1
    }

    /// The descriptor and the bytes of packet number `index` of this batch.
    ///
    /// # Panics
    /// When there is no such packet.
    #[inline(always)]
    #[must_use]
    pub fn packet(&self, index: usize) -> (&Packet, &[u8]) {
        let packet = &self.packets[index];
        (packet, self.memory().bytes(packet))
    }

    /// The descriptors and the bytes of these packets of this batch.
    ///
    /// # Panics
    /// When there are no such packets.
    #[inline(always)]
    pub fn each(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = (&Packet, &[u8])> {
        let memory = self.memory();
        self.packets[range].iter().map(move |packet| (packet, memory.bytes(packet)))
    }

    /// The descriptors and the bytes of these packets of this batch, to decide their fates.
    ///
    /// # Panics
    /// When there are no such packets.
    #[inline(always)]
    #[must_use]
    pub fn frames(&mut self, range: Range<usize>) -> Frames<'_> {
        let memory = Memory::new(self.lent.as_ref(), &self.memory);
        Frames { packets: self.packets[range].iter_mut(), memory }
    }

    #[inline(always)]
    fn memory(&self) -> Memory<'_> {
        Memory::new(self.lent.as_ref(), &self.memory)
    }

    /// The bytes of packet number `index` of this batch, to rewrite them. Those that were lent to be read are copied first.
    ///
    /// # Panics
    /// When there is no such packet, or when the batch's memory would outgrow 4 GiB.
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

    /// Copies a packet that was lent, to be written to: where it lies then in the batch's own memory.
    #[inline(never)]
    fn copy(&mut self, index: usize) -> usize {
        let Some(lent) = &self.lent else { unreachable!("somebody lent the packet") };
        let packet = &mut self.packets[index];
        let start = self.memory.len();
        self.memory.extend_from_slice(lent.parts().part(packet.offset as usize, packet.len as usize));
        packet.offset = u32::try_from(lent.len() + start).expect("a batch is far below 4 GiB");
        start
    }

    /// Adds a packet whose bytes are copied in; `packet.offset` and `packet.len` are set from them.
    ///
    /// # Panics
    /// When the batch's memory would outgrow 4 GiB.
    pub fn push(&mut self, packet: Packet, bytes: &[u8]) {
        let offset = u32::try_from(self.lent_len() + self.memory.len()).expect("a batch is far below 4 GiB");
        self.memory.extend_from_slice(bytes);
        self.packets.push(Packet { offset, len: bytes.len() as u32, ..packet });
    }

    /// Puts into `block`, which nobody else may hold, what the packets' bytes lie in and is this batch's alone, and has it lent from
    /// there, to be read: several batches can then be [cleared beside](Self::clear_beside) this one. What the block held becomes the
    /// batch's own memory, to be filled again. Nothing changes where all bytes are lent to be read already.
    ///
    /// # Panics
    /// When somebody else holds the block.
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

    /// Takes all packets out and lets go of what was lent, and gets the memory back that was [shared](Self::share), as it is. Shared
    /// buffers go back to their port, if no other batch is lent them any more.
    pub fn unshare(&mut self, block: &mut Arc<Block>) {
        self.packets.clear();
        self.lent = None;
        self.origin.restamped.clear();
        match Arc::get_mut(block) {
            Some(Block::Filled(filled)) => mem::swap(&mut self.memory, filled),
            Some(buffers @ Block::Buffers(_)) => *buffers = Block::Filled(Vec::new()),
            Some(Block::Mapped(_)) | None => {}
        }
    }

    /// The time stamp that packet number `index` of this batch has in the capture that it was read from: its time, but for stamps that
    /// lie before the packet ahead or were not believed. One before the epoch is held modulo 2^64.
    ///
    /// # Panics
    /// When there is no such packet.
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

    /// Takes all packets out; what was lent to `other` is now lent to this batch too, for [`push_of`](Self::push_of). There is
    /// room for all packets of `other`, and for copies of `room` bytes together.
    pub fn clear_beside(&mut self, other: &Self, room: usize) {
        self.memory.clear();
        self.memory.reserve(room);
        self.packets.clear();
        self.packets.reserve(other.len());
        self.filled = None;
        self.come_with(other);
        match (&mut self.lent, &other.lent) {
            (own, Some(Lent::Shared { memory, start, len })) => relend(own, memory, *start, *len),
            // What is another's alone is copied.
            (own, Some(Lent::Buffers(_)) | None) => *own = None,
        }
    }

    /// From now on the packets come from where those of `other` come from: what a writer needs to know of that is taken over.
    pub fn come_with(&mut self, other: &Self) {
        match (&self.origin.interfaces, &other.origin.interfaces) {
            // Counting references would write to what other cores write to.
            (Some(own), Some(others)) if Arc::ptr_eq(own, others) => {}
            (_, others) => self.origin.interfaces.clone_from(others),
        }
        self.origin.restamped.clone_from(&other.origin.restamped);
    }

    /// Adds packet number `index` of `other`, steered by `bucket`. What was lent to both, as this batch was
    /// [cleared beside](Self::clear_beside) the other or both beside a third, stays where it lies; all else is copied.
    ///
    /// # Panics
    /// When there is no such packet, or when the batch's memory would outgrow 4 GiB.
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

    /// Replaces packet number `at` by packet number `index` of `other`, which was [cleared beside](Self::clear_beside) this batch. Bytes
    /// that are lent to both stay where they lie; others are copied.
    ///
    /// # Panics
    /// When there is no such packet, or when the batch's memory would outgrow 4 GiB.
    #[inline(always)]
    pub fn settle(&mut self, at: usize, other: &Self, index: usize) {
        let packet = &other.packets[index];
        if (packet.offset as usize) < self.lent_len().min(other.lent_len()) {
            self.packets[at] = *packet;
        } else {
            self.replace(at, other.bytes(index));
            self.packets[at] = Packet { offset: self.packets[at].offset, ..*packet };
        }
    }

    /// Adds a packet, steered by `bucket`, whose bytes stay where they are lent to this batch and to the other that it is of.
    #[inline(always)]
    pub fn push_lent(&mut self, packet: &Packet, bucket: u16) {
        debug_assert!((packet.offset as usize) < self.lent_len(), "it lies in what is lent");
        prefetch::place_to_write(self.packets.as_ptr(), self.packets.len() + PUSH_AHEAD);
        // Copied as it is, and straight from there: put together with its bucket first, the whole would have to wait for the part, and
        // what is pushed by value goes over the stack.
        self.packets.extend_from_slice(slice::from_ref(packet));
        if let Some(pushed) = self.packets.last_mut() {
            pushed.bucket = bucket;
        }
    }

    /// Brings near the beginnings of these packets, as far as there are so many and they lie where another core has read them to.
    #[inline(always)]
    pub fn prefetch(&self, range: Range<usize>) {
        let Some(lent @ Lent::Shared { .. }) = &self.lent else { return };
        let parts = lent.parts();
        let packets = &self.packets[range.start.min(self.packets.len())..];
        for packet in &packets[..range.len().min(packets.len())] {
            prefetch::address(parts.address(packet.offset as usize));
        }
    }

    /// How many bytes were lent to be read. Packets whose offset is within them stay where they are in batches beside this one.
    #[inline]
    #[must_use]
    pub fn shared_len(&self) -> usize {
        match &self.lent {
            Some(Lent::Shared { len, .. }) => *len,
            Some(Lent::Buffers(_)) | None => 0,
        }
    }

    /// Puts a whole frame in the place of packet number `index`. A longer one than was there lies behind all others until the batch
    /// is filled again.
    ///
    /// # Panics
    /// When there is no such packet, or when the batch's memory would outgrow 4 GiB.
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

    /// The memory that offsets count in, and the descriptors: for ports that fill it in place. What [`replace`](Self::replace) put
    /// behind the others is gone, and so are packets whose bytes were lent.
    pub fn parts_mut(&mut self) -> (&mut Vec<u8>, &mut Vec<Packet>) {
        self.forget_longer();
        if self.lent.take().is_some() {
            self.packets.clear();
        }
        (&mut self.memory, &mut self.packets)
    }

    /// The descriptors, for a port that fills them in anew: their offsets count in these `len` bytes of `memory`, which are lent
    /// until the batch is filled again. There is room for copies of `room` bytes together.
    pub(crate) fn lend(&mut self, memory: &Arc<Block>, start: usize, len: usize, room: usize) -> &mut Vec<Packet> {
        self.filled = None;
        self.memory.clear();
        self.memory.reserve(room);
        relend(&mut self.lent, memory, start, len);
        &mut self.packets
    }

    /// The descriptors, for a port that fills them in anew: their offsets count in the memory of this loan, which the batch has until
    /// it is cleared, lent to anew or dropped. Packets are rewritten where they lie; only what grows beyond its packet, and what
    /// several cores [share](Self::share), is copied.
    pub fn lend_buffers(&mut self, loan: Loan) -> &mut Vec<Packet> {
        self.clear();
        self.lent = Some(Lent::Buffers(loan));
        &mut self.packets
    }

    /// Whether packet number `index` lies in the buffers that were lent, or else was copied.
    ///
    /// # Panics
    /// When there is no such packet.
    #[must_use]
    pub fn is_in_place(&self, index: usize) -> bool {
        (self.packets[index].offset as usize) < self.lent_len()
    }

    /// Whether most packets were copied since the batch was lent to.
    pub(crate) fn is_copied(&self) -> bool {
        self.lent.as_ref().is_none_or(|lent| self.memory.len() > lent.len() / 2)
    }

    /// The bytes between two offsets, if they lie in one memory.
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
        // As it mostly is; counting references would write to what other cores write to.
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
                    batch.settle(at, &beside[at % 2], at / 2);
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
