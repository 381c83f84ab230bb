//! Memory for segments that come early: [`Budget`], and [`Pool`]s of blocks.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::policy::Span;

/// The payload that a block holds, in bytes: enough for a segment on Ethernet.
pub const BLOCK_BYTES: usize = 1512;

/// The number of no block.
pub(crate) const NONE: u32 = u32::MAX;

/// The memory that all pools of a run may use together.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shares>);

#[derive(Debug)]
struct Shares {
    blocks: usize,
    used: AtomicUsize,
}

impl Budget {
    /// A budget of `bytes`, rounded down to whole blocks.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Shares { blocks: bytes / size_of::<Block>(), used: AtomicUsize::new(0) }))
    }

    /// The bytes of all blocks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.blocks * size_of::<Block>()
    }

    /// The bytes of the blocks in use.
    #[must_use]
    pub fn used(&self) -> usize {
        // ORDERING: Relaxed. A statistic.
        self.0.used.load(Ordering::Relaxed) * size_of::<Block>()
    }

    fn take(&self) -> bool {
        // ORDERING: Relaxed. Only the count matters; a block's content is its pool's.
        let taken = self
            .0
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| (used < self.0.blocks).then_some(used + 1));
        taken.is_ok()
    }

    fn give_back(&self, blocks: usize) {
        // ORDERING: Relaxed, as in `take`.
        self.0.used.fetch_sub(blocks, Ordering::Relaxed);
    }
}

/// Blocks for the early segments of the flows of one table. A flow that moves to another table must move with its pool.
///
/// Its address space is reserved when it is made; memory is used when a block is first taken.
#[derive(Debug)]
pub struct Pool(Mutex<Blocks>);

impl Pool {
    /// An empty pool, which may use all of the budget.
    #[must_use]
    pub fn new(budget: &Budget) -> Self {
        let blocks = Vec::with_capacity(budget.0.blocks);
        Self(Mutex::new(Blocks { blocks, free: NONE, used: 0, budget: budget.clone() }))
    }

    /// The blocks. The lock is never contended where each core has its own pool.
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
    data: [u8; BLOCK_BYTES],
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
        if !self.budget.take() {
            return None;
        }
        self.used += 1;
        let number = self.free;
        if number == NONE {
            let mut data = [0; BLOCK_BYTES];
            data[..bytes.len()].copy_from_slice(bytes);
            self.blocks.push(Block { seq, segment, next: NONE, start: 0, len: bytes.len() as u16, data });
            return Some(self.blocks.len() as u32 - 1);
        }
        let block = &mut self.blocks[number as usize];
        self.free = block.next;
        block.data[..bytes.len()].copy_from_slice(bytes);
        (block.seq, block.segment, block.next) = (seq, segment, NONE);
        (block.start, block.len) = (0, bytes.len() as u16);
        Some(number)
    }

    /// Takes a block back and returns the one that followed it.
    pub(crate) fn free(&mut self, number: u32) -> u32 {
        let free = self.free;
        let next = core::mem::replace(&mut self.get_mut(number).next, free);
        self.free = number;
        self.used -= 1;
        self.budget.give_back(1);
        next
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.budget.give_back(self.used);
    }
}
