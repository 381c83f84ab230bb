//! A bounded pool of indices with ageing: a hierarchical timing wheel (Varghese and Lauck, SOSP '87, scheme 7) of eight
//! levels of 64 lists, on ticks of 2^20 ns. Putting a deadline off is one store: the index stays where it is in the wheel
//! and is moved on when its old turn comes.

use alloc::boxed::Box;
use core::cell::Cell;
use core::convert::Infallible;

use packet::Nanos;

use super::{Local, LocalTx};
use crate::Allocator;

/// Deadlines are rounded up to ticks of 2^20 ns, about a millisecond.
const TICK_BITS: u32 = 20;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Enough for every deadline: 8 * 6 + 20 bits is more than 64.
const LEVELS: usize = 8;
/// How many indices one call of `expire` may move before it gives up for now.
const WORK: usize = 8;
/// The lists: one of the free, then one for each slot of each level.
const FREE: u32 = 0;
const LISTS: usize = 1 + LEVELS * SLOTS;

/// A pool in local memory, 24 bytes an index. Indices are given out in the order in which they were given back.
///
/// [`expire`](Allocator::expire) frees an index in the tick after its deadline, and in the order of those ticks. Deadlines
/// that had passed already when they were set count from then.
pub struct LocalAllocator {
    /// One for each index, then one for each list: the list's end and beginning.
    nodes: Box<[Node]>,
    capacity: u32,
    /// Which slots of a level have anything in them.
    occupied: [Cell<u64>; LEVELS],
    /// The tick that the wheel stands at. Everything in use is due then or later, and lies at the level of the highest
    /// group of six bits in which its tick differs from this one.
    position: Cell<u64>,
    /// The list whose indices are being moved to lower levels, if any: all of it is due before what lies there.
    cascading: Cell<u32>,
    /// Nothing is due before this point, so that most calls of `expire` end at once.
    quiet_until: Cell<u64>,
}

/// A member of a circular, doubly linked list.
struct Node {
    deadline: Cell<u64>,
    next: Cell<u32>,
    prev: Cell<u32>,
    list: Cell<u32>,
}

impl LocalAllocator {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity =
            u32::try_from(capacity + LISTS).map(|nodes| nodes - LISTS as u32).expect("a pool's indices fit 32 bits");
        let node = |index: u32| Node {
            deadline: Cell::new(u64::MAX),
            next: Cell::new(index),
            prev: Cell::new(index),
            list: Cell::new(FREE),
        };
        let pool = Self {
            nodes: (0..capacity + LISTS as u32).map(node).collect(),
            capacity,
            occupied: [const { Cell::new(0) }; LEVELS],
            position: Cell::new(0),
            cascading: Cell::new(FREE),
            quiet_until: Cell::new(u64::MAX),
        };
        (0..capacity).for_each(|index| pool.push(index, FREE));
        pool
    }

    #[inline]
    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    /// The node that stands for a list.
    #[inline]
    fn end(&self, list: u32) -> u32 {
        self.capacity + list
    }

    /// The first of a list, if it has any.
    #[inline]
    fn first(&self, list: u32) -> Option<u32> {
        let first = self.node(self.end(list)).next.get();
        (first < self.capacity).then_some(first)
    }

    /// Appends an index that is in no list.
    fn push(&self, index: u32, list: u32) {
        let end = self.end(list);
        let last = self.node(end).prev.get();
        let node = self.node(index);
        node.prev.set(last);
        node.next.set(end);
        node.list.set(list);
        self.node(last).next.set(index);
        self.node(end).prev.set(index);
        if list != FREE {
            let (level, slot) = place(list);
            self.occupied[level].set(self.occupied[level].get() | 1 << slot);
        }
    }

    /// Takes an index out of its list.
    fn unlink(&self, index: u32) {
        let node = self.node(index);
        let (prev, next, list) = (node.prev.get(), node.next.get(), node.list.get());
        self.node(prev).next.set(next);
        self.node(next).prev.set(prev);
        if list != FREE && self.first(list).is_none() {
            let (level, slot) = place(list);
            self.occupied[level].set(self.occupied[level].get() & !(1 << slot));
        }
    }

    /// Puts an index that is in no list where its deadline says, seen from the wheel's position.
    fn arm(&self, index: u32) {
        let due = tick_after(self.node(index).deadline.get()).max(self.position.get());
        let differing = (due ^ self.position.get()) | 1;
        let level = (differing.ilog2() / SLOT_BITS) as usize;
        let slot = (due >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        self.push(index, (1 + level * SLOTS + slot) as u32);
        let begins = (due >> (SLOT_BITS * level as u32)) << (SLOT_BITS * level as u32);
        self.quiet_until.set(self.quiet_until.get().min(begins.saturating_mul(1 << TICK_BITS)));
    }

    /// The occupied slot that begins first: its list, and when. Lower levels come before higher ones, save for the list
    /// whose slot the wheel has just entered.
    fn soonest(&self) -> Option<(u32, u64)> {
        let cascading = self.cascading.get();
        if cascading != FREE {
            if self.first(cascading).is_some() {
                return Some((cascading, self.position.get()));
            }
            self.cascading.set(FREE);
        }
        let level = self.occupied.iter().position(|slots| slots.get() != 0)?;
        let slot = self.occupied[level].get().trailing_zeros();
        let shift = SLOT_BITS * level as u32;
        let above = self.position.get() >> shift >> SLOT_BITS << SLOT_BITS;
        Some(((1 + level * SLOTS) as u32 + slot, (above + u64::from(slot)) << shift))
    }

    /// The turn of what is due, in order, for a bounded number of moves.
    #[inline(never)]
    fn turn(&self, now_tick: u64) -> Option<usize> {
        self.quiet_until.set(0);
        for _ in 0..WORK {
            let Some((list, begins)) = self.soonest().filter(|&(_, begins)| begins <= now_tick) else {
                let next = self.soonest().map_or(u64::MAX, |(_, begins)| begins.saturating_mul(1 << TICK_BITS));
                self.quiet_until.set(next);
                self.position.set(self.position.get().max(now_tick));
                return None;
            };
            self.position.set(begins);
            let index = self.first(list).expect("an occupied slot has a first index");
            let (level, _) = place(list);
            self.cascading.set(if level > 0 { list } else { FREE });
            self.unlink(index);
            if level == 0 && tick_after(self.node(index).deadline.get()) <= begins {
                self.push(index, FREE);
                return Some(index as usize);
            }
            self.arm(index);
        }
        None
    }

    fn take(&self, index: u32, deadline: Nanos) {
        self.unlink(index);
        self.node(index).deadline.set(deadline.0);
        self.arm(index);
    }

    #[cold]
    fn rearm(&self, index: u32) {
        self.unlink(index);
        self.arm(index);
    }

    #[inline]
    fn in_use(&self, index: usize) -> bool {
        assert!(index < self.capacity as usize, "index {index} is outside a pool of {}", self.capacity);
        self.nodes[index].list.get() != FREE
    }
}

/// The level and slot of a list of the wheel.
fn place(list: u32) -> (usize, usize) {
    let list = list as usize - 1;
    (list / SLOTS, list % SLOTS)
}

/// The first tick that begins at or after a point.
fn tick_after(point: u64) -> u64 {
    (point >> TICK_BITS) + u64::from(point.trailing_zeros() < TICK_BITS)
}

impl Allocator<Local> for LocalAllocator {
    #[inline]
    fn capacity(&self) -> usize {
        self.capacity as usize
    }

    fn allocate<'a>(&'a self, _: &mut LocalTx<'a>, deadline: Nanos) -> Result<Option<usize>, Infallible> {
        let first = self.first(FREE);
        if let Some(index) = first {
            self.take(index, deadline);
        }
        Ok(first.map(|index| index as usize))
    }

    fn allocate_exact<'a>(&'a self, _: &mut LocalTx<'a>, index: usize, deadline: Nanos) -> Result<bool, Infallible> {
        let free = !self.in_use(index);
        if free {
            self.take(index as u32, deadline);
        }
        Ok(free)
    }

    #[inline]
    fn deadline<'a>(&'a self, _: &mut LocalTx<'a>, index: usize) -> Result<Option<Nanos>, Infallible> {
        Ok(self.in_use(index).then(|| Nanos(self.nodes[index].deadline.get())))
    }

    #[inline]
    fn refresh<'a>(&'a self, _: &mut LocalTx<'a>, index: usize, deadline: Nanos) -> Result<(), Infallible> {
        if self.in_use(index) {
            let earlier = self.nodes[index].deadline.replace(deadline.0) > deadline.0;
            if earlier {
                self.rearm(index as u32);
            }
        }
        Ok(())
    }

    fn free<'a>(&'a self, _: &mut LocalTx<'a>, index: usize) -> Result<(), Infallible> {
        if self.in_use(index) {
            self.unlink(index as u32);
            self.push(index as u32, FREE);
        }
        Ok(())
    }

    #[inline]
    fn expire<'a>(&'a self, _: &mut LocalTx<'a>, now: Nanos) -> Result<Option<usize>, Infallible> {
        if now.0 < self.quiet_until.get() {
            return Ok(None);
        }
        Ok(self.turn(now.0 >> TICK_BITS))
    }
}

#[cfg(test)]
#[path = "allocator_tests.rs"]
mod tests;
