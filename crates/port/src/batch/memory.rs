//! The memory that packets of a batch lie in: the batch's own, and what a port lends.

use std::slice;
use std::sync::Arc;

use locality::loan::{Loan, Parts};
use memmap2::Mmap;

use super::Packet;

/// Memory of a port, or of a block that several batches share. Offsets in it come before offsets in the batch's own memory.
#[derive(Debug)]
pub(super) enum Lent {
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
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Shared { len, .. } => *len,
            Self::Buffers(loan) => loan.len(),
        }
    }

    /// All of them, to read packets' parts.
    #[inline(always)]
    pub(super) fn parts(&self) -> Parts<'_> {
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
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Shared { memory, start, len } => memory.bytes().map(|bytes| &bytes[*start..][..*len]),
            Self::Buffers(_) => None,
        }
    }
}

/// Lends a part of a block.
pub(super) fn relend(lent: &mut Option<Lent>, block: &Arc<Block>, start: usize, len: usize) {
    if let Some(Lent::Shared { memory, start: own_start, len: own_len }) = lent
        && Arc::ptr_eq(memory, block)
    {
        // The usual case. Changing a reference count would write to a cache line that other cores write, too.
        (*own_start, *own_len) = (start, len);
    } else {
        *lent = Some(Lent::Shared { memory: Arc::clone(block), start, len });
    }
}

/// Some packets of a batch, each with its bytes. The location of the bytes is resolved once for all of them.
#[derive(Debug)]
pub struct Frames<'a> {
    pub(super) packets: slice::IterMut<'a, Packet>,
    pub(super) memory: BatchMemory<'a>,
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
    pub(super) fn new(lent: Option<&'a Lent>, own: &'a [u8]) -> Self {
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
