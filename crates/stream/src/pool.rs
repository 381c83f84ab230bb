//! Memory for segments that come early: [`Budget`], and [`Pool`]s of blocks.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;

use crate::policy::Span;

/// The payload that a block holds, in bytes: enough for a segment on Ethernet.
pub const BLOCK_BYTES: usize = 1512;

/// The number of no block.
pub(crate) const NONE: u32 = u32::MAX;

/// The memory that all pools of a run may use together.
///
/// Its address space is reserved when the first pool is made; memory is used when a block is first taken. A block that a pool gives back
/// is there for all pools, so all of them together never use more than this.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shares>);

#[derive(Debug)]
struct Shares {
    blocks: usize,
    spare: Mutex<Spare>,
}

/// Payloads of blocks that no pool uses.
#[derive(Debug, Default)]
struct Spare {
    /// Those that were never used, in one piece.
    fresh: BytesMut,
    /// Those that were given back.
    returned: Vec<BytesMut>,
    /// True once the memory is reserved.
    is_reserved: bool,
    /// The number of blocks that pools use.
    used: usize,
}

impl Budget {
    /// A budget of `bytes` of payload, rounded down to whole blocks.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Shares { blocks: bytes / BLOCK_BYTES, spare: Mutex::default() }))
    }

    /// The payload that all blocks hold, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.blocks * BLOCK_BYTES
    }

    /// The payload that the blocks in use hold, in bytes.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.lock().used * BLOCK_BYTES
    }

    /// The most memory that this many pools take, in bytes: the payload once, and a list of blocks for each pool.
    #[must_use]
    pub fn memory_max(&self, pools: usize) -> usize {
        self.bytes() + self.0.blocks * (size_of::<BytesMut>() + pools * size_of::<Block>())
    }
}

impl Shares {
    /// The spare blocks. The lock is held for a moment only.
    fn lock(&self) -> MutexGuard<'_, Spare> {
        // A panic elsewhere leaves the lists as consistent as they were.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self) {
        let spare = &mut self.lock();
        if !spare.is_reserved {
            spare.is_reserved = true;
            spare.fresh = BytesMut::zeroed(self.blocks * BLOCK_BYTES);
            spare.returned = Vec::with_capacity(self.blocks);
            // The first cut allocates what all pieces share, which the data path must not.
            if self.blocks > 0 {
                let first = spare.fresh.split_to(BLOCK_BYTES);
                spare.returned.push(first);
            }
        }
    }

    /// The payload of a block, or `None` if the budget is spent.
    fn take(&self) -> Option<BytesMut> {
        let spare = &mut self.lock();
        let data = match spare.returned.pop() {
            Some(data) => data,
            None if spare.fresh.is_empty() => return None,
            None => spare.fresh.split_to(BLOCK_BYTES),
        };
        spare.used += 1;
        Some(data)
    }

    fn give_back(&self, data: BytesMut) {
        let spare = &mut self.lock();
        spare.used -= 1;
        // There is room for all blocks that there are.
        spare.returned.push(data);
    }
}

/// Blocks for the early segments of the flows of one table. A flow that moves to another table must move with its pool.
#[derive(Debug)]
pub struct Pool(Mutex<Blocks>);

impl Pool {
    /// An empty pool, which may use all of the budget.
    #[must_use]
    pub fn new(budget: &Budget) -> Self {
        budget.0.reserve();
        let blocks = Vec::with_capacity(budget.0.blocks);
        Self(Mutex::new(Blocks { blocks, free: NONE, used: 0, budget: budget.clone() }))
    }

    /// The blocks. The lock is rarely contended: pools are few tables', and most segments need none.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Blocks> {
        // A panic elsewhere leaves the blocks as consistent as they were.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of blocks in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.lock().used
    }
}

/// The blocks of a pool.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// All blocks that were ever in use. Never grows beyond its capacity.
    blocks: Vec<Block>,
    /// The first free block; each names the next.
    free: u32,
    used: usize,
    budget: Budget,
}

/// Bytes of one segment that wait for what is before them.
#[derive(Debug)]
pub(crate) struct Block {
    /// The sequence number of the first byte.
    pub(crate) seq: u32,
    /// The segment that they came in.
    pub(crate) segment: Span,
    /// The block with the bytes that follow, or [`NONE`].
    pub(crate) next: u32,
    start: u16,
    len: u16,
    /// Its memory: [`BLOCK_BYTES`] bytes, or none while the block is free.
    data: BytesMut,
}

impl Block {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.data[usize::from(self.start)..][..usize::from(self.len)]
    }

    /// The sequence number behind the last byte.
    pub(crate) fn end(&self) -> u32 {
        self.seq.wrapping_add(u32::from(self.len))
    }

    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Removes the first `count` bytes.
    pub(crate) fn skip(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        self.start += count as u16;
        self.len -= count as u16;
        self.seq = self.seq.wrapping_add(count as u32);
    }

    /// Replaces the first bytes by `new`.
    pub(crate) fn overwrite(&mut self, new: &[u8]) {
        self.data[usize::from(self.start)..][..new.len()].copy_from_slice(new);
    }

    /// The number of bytes that can be added at the end.
    pub(crate) const fn room(&self) -> usize {
        BLOCK_BYTES - self.start as usize - self.len as usize
    }

    /// Adds bytes at the end, at most [`room`](Self::room).
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        let end = usize::from(self.start) + usize::from(self.len);
        self.data[end..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u16;
    }

    /// Keeps only the first `count` bytes.
    pub(crate) fn cut(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        self.len = count as u16;
    }
}

impl Blocks {
    pub(crate) fn get(&self, number: u32) -> &Block {
        &self.blocks[number as usize]
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Block {
        &mut self.blocks[number as usize]
    }

    /// A block with these bytes, at most [`BLOCK_BYTES`], or `None` if the budget is spent.
    pub(crate) fn take(&mut self, seq: u32, segment: Span, bytes: &[u8]) -> Option<u32> {
        let mut data = self.budget.0.take()?;
        data[..bytes.len()].copy_from_slice(bytes);
        self.used += 1;
        let taken = Block { seq, segment, next: NONE, start: 0, len: bytes.len() as u16, data };
        let number = self.free;
        if number == NONE {
            // There is room for all blocks of the budget.
            self.blocks.push(taken);
            return Some(self.blocks.len() as u32 - 1);
        }
        let block = &mut self.blocks[number as usize];
        self.free = block.next;
        *block = taken;
        Some(number)
    }

    /// Takes a block back and returns the one that followed it.
    pub(crate) fn free(&mut self, number: u32) -> u32 {
        let free = self.free;
        let block = self.get_mut(number);
        let data = mem::take(&mut block.data);
        let next = mem::replace(&mut block.next, free);
        self.free = number;
        self.used -= 1;
        self.budget.0.give_back(data);
        next
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for block in &mut self.blocks {
            if !block.data.is_empty() {
                self.budget.0.give_back(mem::take(&mut block.data));
            }
        }
    }
}
