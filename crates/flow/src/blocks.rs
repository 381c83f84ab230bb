//! Lists of slots, as unrolled linked lists: chains of one-cache-line blocks from a pool.
//!
//! Each entry knows its position on its list and leaves in constant time: the first by moving the list's start, any other by moving the
//! last entry to its place.

use alloc::boxed::Box;
use alloc::vec;

use locality::prefetch;

use crate::memory::{Filling, Region};

/// Slots in a block.
const WIDTH: usize = 13;
/// How many positions a block has in the numbering of positions.
const POSITIONS: u32 = 16;
const NONE: u32 = u32::MAX;
/// The position of an entry that is on no list. It lies in a block that is never used. It is 0, so zeroed memory means no list.
pub(crate) const LOOSE: u32 = 0;

#[repr(C, align(64))]
struct Block {
    next: u32,
    prev: u32,
    /// Where the slots begin in the block, and how many there are: at least one.
    first: u8,
    len: u8,
    slots: [u32; WIDTH],
}

const _: () = assert!(size_of::<Block>() == 64 && WIDTH <= POSITIONS as usize);

/// A list's first and last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE };

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.head == NONE
    }

    /// The number of its first block. No other list has that block meanwhile.
    #[inline]
    pub(crate) const fn head(self) -> u32 {
        self.head
    }
}

/// The pool of blocks.
pub(crate) struct Blocks {
    region: Region,
    /// The list of each block. It lies apart from the blocks: it is read more often than they are, and takes fewer cache lines so.
    lists: Box<[u16]>,
    /// The position of each entry, or [`LOOSE`].
    positions: Region,
    entries: u32,
    count: u32,
    /// No block from here on has been in use.
    used: u32,
    /// The first of the free blocks below `used`.
    free: u32,
}

impl Blocks {
    /// A pool with enough blocks for `entries` entries on so many lists. Entry numbers are below `slots` and come in the order of
    /// `filling`. The first and last block of a list may hold one entry only.
    ///
    /// # Panics
    /// If there are more than some 3 billion entries, since positions have 32 bits.
    pub(crate) fn new(entries: usize, slots: usize, lists: usize, filling: Filling) -> Self {
        // One more block is never used; its positions mean "on no list".
        let count = (entries.div_ceil(WIDTH) + 2 * lists).min(entries) + 2;
        assert!(count < (NONE / POSITIONS) as usize && lists <= 1 << u16::BITS, "positions have 32 bits");
        let region = Region::zeroed(count * size_of::<Block>(), Filling::InOrder);
        let positions = Region::zeroed(slots * size_of::<u32>(), filling);
        Self {
            region,
            lists: vec![0; count].into(),
            positions,
            entries: slots as u32,
            count: count as u32,
            used: 1,
            free: NONE,
        }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.region.bytes() + self.positions.bytes() + size_of_val(&*self.lists)
    }

    /// The entry's position, or [`LOOSE`].
    #[inline]
    pub(crate) fn position(&self, entry: u32) -> u32 {
        if entry >= self.entries {
            return LOOSE;
        }
        // SAFETY: there is a position for each entry below `entries`, and zeros are one.
        unsafe { self.positions.base().cast::<u32>().add(entry as usize).read() }
    }

    #[inline]
    fn set_position(&mut self, entry: u32, position: u32) {
        assert!(entry < self.entries, "entries are numbered by their slots");
        // SAFETY: there is a position for each entry below `entries`, and `self` is borrowed uniquely.
        unsafe { self.positions.base().cast::<u32>().add(entry as usize).write(position) };
    }

    /// Prefetches the entry's position.
    #[inline]
    pub(crate) fn prefetch_position(&self, entry: u32) {
        prefetch::address(self.positions.base().as_ptr().wrapping_add(entry as usize * size_of::<u32>()));
    }

    /// The list of this position.
    #[inline]
    pub(crate) fn list_of(&self, position: u32) -> u16 {
        self.lists[(position / POSITIONS) as usize]
    }

    /// Appends an entry to the list with number `number`.
    #[inline]
    pub(crate) fn append(&mut self, list: &mut List, number: u32, entry: u32) {
        let mut at = list.tail;
        if at == NONE || self.is_filled(at) {
            at = self.take(number as u16, list.tail);
            match list.tail {
                NONE => list.head = at,
                tail => self.block_mut(tail).next = at,
            }
            list.tail = at;
        }
        let block = self.block_mut(at);
        let place = usize::from(block.first + block.len);
        block.slots[place] = entry;
        block.len += 1;
        self.set_position(entry, at * POSITIONS + place as u32);
    }

    /// Removes the list's first entry.
    #[inline]
    pub(crate) fn remove_first(&mut self, list: &mut List, entry: u32) {
        self.set_position(entry, LOOSE);
        let head = self.block_mut(list.head);
        head.first += 1;
        head.len -= 1;
        if head.len == 0 {
            let next = head.next;
            self.drop_head(list, next);
        }
    }

    /// Removes the entry at this position. The list's last entry takes its place.
    #[inline]
    pub(crate) fn remove(&mut self, list: &mut List, entry: u32, position: u32) {
        let (at, place) = (position / POSITIONS, position % POSITIONS);
        if at == list.head && place == u32::from(self.block(at).first) {
            return self.remove_first(list, entry);
        }
        self.set_position(entry, LOOSE);
        let tail = list.tail;
        let block = self.block_mut(tail);
        block.len -= 1;
        let last_place = u32::from(block.first + block.len);
        let last = block.slots[last_place as usize];
        let (is_spent, prev) = (block.len == 0, block.prev);
        if tail * POSITIONS + last_place != position {
            self.block_mut(at).slots[place as usize] = last;
            self.set_position(last, position);
        }
        if is_spent {
            self.drop_tail(list, prev);
        }
    }

    /// The list's first entry.
    #[inline]
    pub(crate) fn first(&self, list: List) -> Option<u32> {
        self.slots(list, 0).first().copied()
    }

    /// The entries of the list's block number `behind`, counted from the first; empty if there is no such block.
    #[inline]
    pub(crate) fn slots(&self, list: List, behind: usize) -> &[u32] {
        match self.block_behind(list, behind) {
            None => &[],
            Some(block) => &block.slots[usize::from(block.first)..][..usize::from(block.len)],
        }
    }

    /// Prefetches the list's block number `behind`, counted from the first. The blocks before it should be in the cache.
    #[inline]
    pub(crate) fn prefetch(&self, list: List, behind: usize) {
        if let Some(block) = self.block_behind(list, behind) {
            prefetch::start(block);
        }
    }

    #[inline]
    fn block_behind(&self, list: List, behind: usize) -> Option<&Block> {
        let mut at = list.head;
        for _ in 0..behind {
            if at == NONE {
                return None;
            }
            at = self.block(at).next;
        }
        (at != NONE).then(|| self.block(at))
    }

    #[inline]
    fn is_filled(&self, at: u32) -> bool {
        let block = self.block(at);
        usize::from(block.first + block.len) == WIDTH
    }

    fn take(&mut self, list: u16, prev: u32) -> u32 {
        let at = if self.free == NONE {
            self.used += 1;
            self.used - 1
        } else {
            let at = self.free;
            self.free = self.block(at).next;
            at
        };
        self.lists[at as usize] = list;
        let block = self.block_mut(at);
        (block.next, block.prev, block.first, block.len) = (NONE, prev, 0, 0);
        at
    }

    fn give(&mut self, at: u32) {
        self.block_mut(at).next = self.free;
        self.free = at;
    }

    fn drop_head(&mut self, list: &mut List, next: u32) {
        self.give(list.head);
        if next == NONE {
            *list = List::EMPTY;
        } else {
            list.head = next;
            self.block_mut(next).prev = NONE;
        }
    }

    fn drop_tail(&mut self, list: &mut List, prev: u32) {
        self.give(list.tail);
        if prev == NONE {
            *list = List::EMPTY;
        } else {
            list.tail = prev;
            self.block_mut(prev).next = NONE;
        }
    }

    #[inline]
    fn block(&self, at: u32) -> &Block {
        assert!(at < self.count, "blocks are numbered from the pool");
        // SAFETY: the region holds `count` blocks, and zeros are a block.
        unsafe { self.region.base().cast::<Block>().add(at as usize).as_ref() }
    }

    #[inline]
    fn block_mut(&mut self, at: u32) -> &mut Block {
        assert!(at < self.count, "blocks are numbered from the pool");
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { self.region.base().cast::<Block>().add(at as usize).as_mut() }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Against vectors: entries come and go at random on three lists, first ones and others, and the pool suffices.
    #[test]
    fn lists_hold_what_was_appended_and_not_removed() {
        const ENTRIES: u32 = if cfg!(miri) { 60 } else { 400 };
        let mut blocks = Blocks::new(ENTRIES as usize, ENTRIES as usize, 3, Filling::InOrder);
        let mut lists = [List::EMPTY; 3];
        let mut model: [Vec<u32>; 3] = Default::default();
        let mut random = 1u64;
        for _ in 0..if cfg!(miri) { 300 } else { 100_000 } {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let (entry, list) = ((random >> 33) as u32 % ENTRIES, (random >> 60) as usize % 3);
            match model.iter().position(|list| list.contains(&entry)) {
                None => {
                    blocks.append(&mut lists[list], list as u32, entry);
                    model[list].push(entry);
                }
                Some(list) => {
                    // Every other time the first one goes.
                    let entry = if random >> 50 & 1 == 0 { model[list][0] } else { entry };
                    let position = blocks.position(entry);
                    assert_eq!(usize::from(blocks.list_of(position)), list);
                    blocks.remove(&mut lists[list], entry, position);
                    assert_eq!(blocks.position(entry), LOOSE);
                    let at = model[list].iter().position(|other| *other == entry).expect("it is there");
                    if at == 0 {
                        model[list].remove(0);
                    } else {
                        model[list].swap_remove(at);
                    }
                }
            }
            for (list, model) in lists.iter().zip(&model) {
                assert_eq!(list.is_empty(), model.is_empty());
                assert_eq!(blocks.first(*list), model.first().copied());
                let all = (0..).map(|behind| blocks.slots(*list, behind)).take_while(|slots| !slots.is_empty());
                assert_eq!(all.flatten().copied().collect::<Vec<u32>>(), *model);
            }
        }
    }
}
