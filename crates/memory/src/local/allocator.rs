//! A bounded pool of indices with deadlines, in a core's own memory, on a hierarchical timing wheel ([`Wheel`]).

use alloc::vec::Vec;
use core::cell::Cell;
use core::convert::Infallible;

use locality::pages::{Filling, Zeros};
use packet::Nanos;

use super::{Local, LocalTx};
use crate::wheel::{FREE, Field32, Field64, LEVELS, LISTS, Wheel};
use crate::{Allocator, PoolOrder};

/// A pool in local memory, 24 bytes an index. The index that was freed first is allocated first.
///
/// [`expire`](Allocator::expire) frees an index in the tick after its deadline, in the order of those ticks. A deadline that has already
/// passed when it is set counts from then.
pub struct LocalAllocator {
    /// A node for each index, then one for each list: the list's end and beginning.
    nodes: Zeros<Node>,
    capacity: u32,
    occupied: [Cell<u64>; LEVELS],
    position: Cell<u64>,
    cascading: Cell<u32>,
    quiet_until: Cell<u64>,
}

/// A deadline, then [`NEXT`], [`PREV`] and [`LIST`]. Zeros mean an index on the free list, between its neighbours by number, so nothing has
/// to be written before an index is used.
type Node = (Cell<u64>, [Cell<u32>; 3]);

/// The next node's number, minus the number behind this node's.
const NEXT: usize = 0;
/// The previous node's number, minus the number before this node's.
const PREV: usize = 1;
/// The list that the node is in.
const LIST: usize = 2;

const _: () = assert!(FREE == 0, "zeros are on the list of the free");

impl LocalAllocator {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity =
            u32::try_from(capacity + LISTS).map(|nodes| nodes - LISTS as u32).expect("a pool's indices fit 32 bits");
        let pool = Self {
            nodes: Zeros::new(capacity as usize + LISTS, Filling::InOrder),
            capacity,
            occupied: [const { Cell::new(0) }; LEVELS],
            position: Cell::new(0),
            cascading: Cell::new(FREE),
            quiet_until: Cell::new(u64::MAX),
        };
        let mut numbers = PoolNumbers(&pool);
        for list in 0..LISTS as u32 {
            let end = numbers.end(list);
            numbers.set_field32(Field32::Next(end), end);
            numbers.set_field32(Field32::Prev(end), end);
        }
        if capacity > 0 {
            let end = numbers.end(FREE);
            numbers.set_field32(Field32::Next(end), 0);
            numbers.set_field32(Field32::Prev(end), capacity - 1);
            numbers.set_field32(Field32::Prev(0), end);
        }
        pool
    }

    /// A pool's memory in bytes.
    pub(crate) const fn bytes(capacity: usize) -> u64 {
        (capacity + LISTS) as u64 * size_of::<Node>() as u64
    }

    fn take(&self, index: u32, deadline: Nanos) {
        PoolNumbers(self).unlink(index);
        self.nodes[index as usize].0.set(deadline.0);
        PoolNumbers(self).arm(index, deadline.0);
    }

    #[cold]
    fn rearm(&self, index: u32, deadline: Nanos) {
        PoolNumbers(self).unlink(index);
        PoolNumbers(self).arm(index, deadline.0);
    }

    #[inline(never)]
    fn advance(&self, now: Nanos) -> Option<usize> {
        let Ok(index) = PoolNumbers(self).advance(now.0);
        index
    }

    #[inline]
    fn in_use(&self, index: usize) -> bool {
        assert!(index < self.capacity as usize, "index {index} is outside a pool of {}", self.capacity);
        self.nodes[index].1[LIST].get() != FREE
    }
}

/// The fields of the pool, for its wheel.
struct PoolNumbers<'a>(&'a LocalAllocator);

impl PoolNumbers<'_> {
    /// The cell of the number, and what is subtracted from the number in it.
    #[inline(always)]
    fn at(&self, at: Field32) -> (&Cell<u32>, u32) {
        match at {
            Field32::Next(node) => (&self.0.nodes[node as usize].1[NEXT], node.wrapping_add(1)),
            Field32::Prev(node) => (&self.0.nodes[node as usize].1[PREV], node.wrapping_sub(1)),
            Field32::List(node) => (&self.0.nodes[node as usize].1[LIST], 0),
            Field32::Cascading => (&self.0.cascading, 0),
        }
    }

    #[inline]
    fn of(&self, at: Field64) -> &Cell<u64> {
        match at {
            Field64::Occupied(level) => &self.0.occupied[level],
            Field64::Position => &self.0.position,
            Field64::QuietUntil => &self.0.quiet_until,
        }
    }
}

impl Wheel for PoolNumbers<'_> {
    type Fault = Infallible;

    #[inline]
    fn field32(&self, at: Field32) -> u32 {
        let (cell, less) = self.at(at);
        cell.get().wrapping_add(less)
    }

    #[inline]
    fn set_field32(&mut self, at: Field32, number: u32) {
        let (cell, less) = self.at(at);
        cell.set(number.wrapping_sub(less));
    }

    #[inline]
    fn field64(&self, at: Field64) -> u64 {
        self.of(at).get()
    }

    #[inline]
    fn set_field64(&mut self, at: Field64, number: u64) {
        self.of(at).set(number);
    }

    #[inline]
    fn deadline(&mut self, index: u32) -> Result<u64, Infallible> {
        Ok(self.0.nodes[index as usize].0.get())
    }

    #[inline]
    fn end(&self, list: u32) -> u32 {
        self.0.capacity + list
    }
}

impl Allocator<Local> for LocalAllocator {
    #[inline]
    fn capacity(&self) -> usize {
        self.capacity as usize
    }

    fn allocate<'a>(&'a self, _: &mut LocalTx<'a>, deadline: Nanos) -> Result<Option<usize>, Infallible> {
        let first = PoolNumbers(self).first(FREE);
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
        Ok(self.in_use(index).then(|| Nanos(self.nodes[index].0.get())))
    }

    #[inline]
    fn refresh<'a>(&'a self, _: &mut LocalTx<'a>, index: usize, deadline: Nanos) -> Result<(), Infallible> {
        if self.in_use(index) {
            let earlier = self.nodes[index].0.replace(deadline.0) > deadline.0;
            if earlier {
                self.rearm(index as u32, deadline);
            }
        }
        Ok(())
    }

    fn free<'a>(&'a self, _: &mut LocalTx<'a>, index: usize) -> Result<(), Infallible> {
        if self.in_use(index) {
            PoolNumbers(self).unlink(index as u32);
            PoolNumbers(self).push(index as u32, FREE);
        }
        Ok(())
    }

    #[inline]
    fn expire<'a>(&'a self, _: &mut LocalTx<'a>, now: Nanos) -> Result<Option<usize>, Infallible> {
        if now.0 < self.quiet_until.get() {
            return Ok(None);
        }
        Ok(self.advance(now))
    }

    fn order<'a>(&'a self, tx: &mut LocalTx<'a>) -> Result<PoolOrder, Infallible> {
        let (numbers, mut free, mut armed) = (PoolNumbers(self), Vec::new(), Vec::new());
        numbers.members(FREE, &mut free);
        numbers.armed(&mut armed);
        let mut in_use = Vec::with_capacity(armed.len());
        for index in armed {
            in_use.extend(self.deadline(tx, index as usize)?.map(|deadline| (index as usize, deadline)));
        }
        Ok(PoolOrder { in_use, free: free.into_iter().map(|index| index as usize).collect() })
    }

    fn begin_at<'a>(&'a self, _: &mut LocalTx<'a>, now: Nanos) -> Result<(), Infallible> {
        PoolNumbers(self).begin_at(now.0);
        Ok(())
    }
}

#[cfg(test)]
#[path = "allocator_tests.rs"]
mod tests;
