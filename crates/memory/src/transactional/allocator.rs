//! A bounded pool of indices with deadlines, divided among the cores. Each core allocates and expires indices of its own pool, and steals
//! from the fullest pool when its own is used up.

use alloc::boxed::Box;
use alloc::vec::Vec;

use packet::Nanos;

use super::cause::Operation;
use super::log::{Access, Tx};
use super::object::{Objects, zeros};
use super::sync::{AtomicU64, Ordering};
use super::{Conflict, Transactional};
use crate::wheel::{FREE, Field32, Field64, LISTS, Wheel, tick_after};
use crate::{Allocator, PoolOrder};

/// A pool in transactional memory: a cache line for each index.
///
/// [`expire`](Allocator::expire) works as in the local pool, on the pool of the calling core.
pub struct TxAllocator {
    /// Deadline and state, under the index's lock; the list links, under the lock of the pool that the index belongs to.
    indices: Objects,
    /// Each core's timing wheel and its number of free indices.
    pools: Objects,
    /// The first and last index of each list of each pool.
    ends: Box<[AtomicU64]>,
}

/// The words of an index.
const DEADLINE: usize = 0;
/// Twice the pool's number, plus 1 if the index is in use.
const STATE: usize = 1;
const NEXT: usize = 2;
const PREV: usize = 3;
const LIST: usize = 4;
const INDEX_WORDS: usize = 5;

/// The words of a pool.
const POSITION: usize = 0;
const QUIET_UNTIL: usize = 1;
const CASCADING: usize = 2;
const FREE_COUNT: usize = 3;
const OCCUPIED: usize = 4;
const POOL_WORDS: usize = OCCUPIED + crate::wheel::LEVELS;

/// The most indices that a core steals at once.
const STOLEN_MAX: u64 = 16;

impl TxAllocator {
    pub(super) fn new(capacity: usize, cores: usize) -> Self {
        assert!(u32::try_from(capacity + LISTS).is_ok(), "a pool's indices fit 32 bits");
        let pool = Self {
            indices: Objects::new(capacity, INDEX_WORDS),
            pools: Objects::new(cores, POOL_WORDS),
            ends: zeros(cores * LISTS * 2),
        };
        // ORDERING: Relaxed. The memory is handed to other threads behind this.
        let set = |word: &AtomicU64, number: usize| word.store(number as u64, Ordering::Relaxed);
        for core in 0..cores {
            let (from, to) = (capacity * core / cores, capacity * (core + 1) / cores);
            for list in 0..LISTS {
                let at = (core * LISTS + list) * 2;
                let is_empty = list != FREE as usize || from == to;
                set(&pool.ends[at], if is_empty { capacity + list } else { from });
                set(&pool.ends[at + 1], if is_empty { capacity + list } else { to - 1 });
            }
            for index in from..to {
                pool.indices.word(index, DEADLINE).store(u64::MAX, Ordering::Relaxed);
                set(pool.indices.word(index, STATE), core << 1);
                set(pool.indices.word(index, NEXT), if index + 1 < to { index + 1 } else { capacity });
                set(pool.indices.word(index, PREV), if index > from { index - 1 } else { capacity });
            }
            pool.pools.word(core, QUIET_UNTIL).store(u64::MAX, Ordering::Relaxed);
            set(pool.pools.word(core, FREE_COUNT), to - from);
        }
        pool
    }

    /// A pool's memory in bytes, except the ends of each core's lists.
    pub(crate) const fn bytes(capacity: usize) -> u64 {
        Objects::bytes(capacity, INDEX_WORDS)
    }

    #[inline(always)]
    fn check(&self, index: usize) {
        assert!(index < self.indices.len(), "index {index} is outside a pool of {}", self.indices.len());
    }

    /// Whether an index is in use, its pool, and its deadline.
    #[inline(always)]
    fn state<'a>(&'a self, tx: &mut Tx<'a>, index: usize, access: Access) -> Result<(bool, usize, u64), Conflict> {
        let [deadline, state] = self.indices.load::<[u64; 2]>(tx, index, access)?;
        Ok((state & 1 == 1, (state >> 1) as usize, deadline))
    }

    #[inline(always)]
    fn lock_index<'a>(&'a self, tx: &mut Tx<'a>, index: usize, access: Access) -> Result<(), Conflict> {
        tx.lock(self.indices.lock(index), access.after(index as u32)).map(|_| ())
    }

    #[inline(always)]
    fn lock_pool<'a>(&'a self, tx: &mut Tx<'a>, pool: usize, access: Access) -> Result<(), Conflict> {
        tx.lock(self.pools.lock(pool), access).map(|_| ())
    }

    fn count<'a>(&'a self, tx: &mut Tx<'a>, pool: usize, change: i64) {
        let count = self.pools.word(pool, FREE_COUNT);
        tx.set(count, Tx::get(count).wrapping_add_signed(change));
    }

    /// Allocates a free index of a pool; both are locked.
    fn take<'a>(&'a self, tx: &mut Tx<'a>, pool: usize, index: usize, deadline: Nanos) {
        let mut wheel = PoolNumbers { tx, of: self, pool, operation: None };
        wheel.unlink(index as u32);
        wheel.arm(index as u32, deadline.0);
        self.count(tx, pool, -1);
        tx.set(self.indices.word(index, DEADLINE), deadline.0);
        tx.set(self.indices.word(index, STATE), (pool as u64) << 1 | 1);
    }

    /// Frees an expired index of this core's pool, if it finds one.
    #[inline(never)]
    fn advance<'a>(&'a self, tx: &mut Tx<'a>, now: Nanos, access: Access) -> Result<Option<usize>, Conflict> {
        let core = tx.core();
        self.lock_pool(tx, core, access)?;
        let index = PoolNumbers { tx, of: self, pool: core, operation: Some(access) }.advance(now.0)?;
        if let Some(index) = index {
            self.lock_index(tx, index, access)?;
            self.count(tx, core, 1);
            tx.set(self.indices.word(index, STATE), (core as u64) << 1);
        }
        Ok(index)
    }

    /// Steals some free indices of the fullest pool; `false` if no index is free.
    #[cold]
    fn steal<'a>(&'a self, tx: &mut Tx<'a>, core: usize, access: Access) -> Result<bool, Conflict> {
        let mut most = (0, core);
        for other in (0..self.pools.len()).filter(|&other| other != core) {
            let count = tx.load(self.pools.lock(other), access, |_| Tx::get(self.pools.word(other, FREE_COUNT)))?;
            most = most.max((count, other));
        }
        let (count, other) = most;
        if count == 0 {
            return Ok(false);
        }
        self.lock_pool(tx, other, access)?;
        for _ in 0..count.div_ceil(2).min(STOLEN_MAX) {
            let mut from = PoolNumbers { tx, of: self, pool: other, operation: None };
            let Some(index) = from.first(FREE) else { unreachable!("so many are free") };
            from.unlink(index);
            self.lock_index(tx, index as usize, access)?;
            tx.set(self.indices.word(index as usize, STATE), (core as u64) << 1);
            PoolNumbers { tx, of: self, pool: core, operation: None }.push(index, FREE);
            self.count(tx, other, -1);
            self.count(tx, core, 1);
        }
        Ok(true)
    }
}

/// The fields of a pool, for its wheel; the pool is locked.
struct PoolNumbers<'t, 'a> {
    tx: &'t mut Tx<'a>,
    of: &'a TxAllocator,
    pool: usize,
    /// The access that reads deadlines, if any does.
    operation: Option<Access>,
}

impl<'a> PoolNumbers<'_, 'a> {
    #[inline(always)]
    fn at(&self, at: Field32) -> &'a AtomicU64 {
        let (node, of_index, of_end) = match at {
            Field32::Next(node) => (node as usize, NEXT, 0),
            Field32::Prev(node) => (node as usize, PREV, 1),
            Field32::List(node) => (node as usize, LIST, 0),
            Field32::Cascading => return self.of.pools.word(self.pool, CASCADING),
        };
        match node.checked_sub(self.of.indices.len()) {
            None => self.of.indices.word(node, of_index),
            Some(list) => &self.of.ends[(self.pool * LISTS + list) * 2 + of_end],
        }
    }

    #[inline(always)]
    fn of(&self, at: Field64) -> &'a AtomicU64 {
        let at = match at {
            Field64::Occupied(level) => OCCUPIED + level,
            Field64::Position => POSITION,
            Field64::QuietUntil => QUIET_UNTIL,
        };
        self.of.pools.word(self.pool, at)
    }
}

impl Wheel for PoolNumbers<'_, '_> {
    type Fault = Conflict;

    #[inline]
    fn field32(&self, at: Field32) -> u32 {
        Tx::get(self.at(at)) as u32
    }

    #[inline]
    fn set_field32(&mut self, at: Field32, number: u32) {
        self.tx.set(self.at(at), u64::from(number));
    }

    #[inline]
    fn field64(&self, at: Field64) -> u64 {
        Tx::get(self.of(at))
    }

    #[inline]
    fn set_field64(&mut self, at: Field64, number: u64) {
        self.tx.set(self.of(at), number);
    }

    #[inline]
    fn deadline(&mut self, index: u32) -> Result<u64, Conflict> {
        let Some(access) = self.operation else {
            unreachable!("only `advance` reads deadlines, and it names the operation")
        };
        self.of.state(self.tx, index as usize, access.after(index)).map(|(_, _, deadline)| deadline)
    }

    #[inline]
    fn end(&self, list: u32) -> u32 {
        self.of.indices.len() as u32 + list
    }
}

impl Allocator<Transactional> for TxAllocator {
    fn capacity(&self) -> usize {
        self.indices.len()
    }

    fn allocate<'a>(&'a self, tx: &mut Tx<'a>, deadline: Nanos) -> Result<Option<usize>, Conflict> {
        let access = Access::new(Operation::Allocate, u32::MAX);
        let core = tx.core();
        self.lock_pool(tx, core, access)?;
        let first = |tx: &mut Tx<'a>| PoolNumbers { tx, of: self, pool: core, operation: None }.first(FREE);
        let index = match first(tx) {
            Some(index) => index,
            None if !self.steal(tx, core, access.on(Operation::AllocateSteal))? => return Ok(None),
            None => first(tx).unwrap_or_else(|| unreachable!("something was stolen")),
        };
        self.lock_index(tx, index as usize, access)?;
        self.take(tx, core, index as usize, deadline);
        Ok(Some(index as usize))
    }

    fn allocate_exact<'a>(&'a self, tx: &mut Tx<'a>, index: usize, deadline: Nanos) -> Result<bool, Conflict> {
        self.check(index);
        let access = Access::new(Operation::AllocateExact, index as u32);
        let (in_use, pool, _) = self.state(tx, index, access)?;
        if in_use {
            return Ok(false);
        }
        self.lock_index(tx, index, access)?;
        self.lock_pool(tx, pool, access)?;
        self.take(tx, pool, index, deadline);
        Ok(true)
    }

    fn deadline<'a>(&'a self, tx: &mut Tx<'a>, index: usize) -> Result<Option<Nanos>, Conflict> {
        self.check(index);
        let (in_use, _, deadline) = self.state(tx, index, Access::new(Operation::Deadline, index as u32))?;
        Ok(in_use.then_some(Nanos(deadline)))
    }

    fn refresh<'a>(&'a self, tx: &mut Tx<'a>, index: usize, deadline: Nanos) -> Result<(), Conflict> {
        self.check(index);
        let access = Access::new(Operation::Refresh, index as u32);
        let (in_use, pool, old) = self.state(tx, index, access)?;
        if !in_use || old == deadline.0 {
            return Ok(());
        }
        self.lock_index(tx, index, access)?;
        tx.set(self.indices.word(index, DEADLINE), deadline.0);
        if deadline.0 < old {
            self.lock_pool(tx, pool, access)?;
            let mut wheel = PoolNumbers { tx, of: self, pool, operation: None };
            wheel.unlink(index as u32);
            wheel.arm(index as u32, deadline.0);
        }
        Ok(())
    }

    fn free<'a>(&'a self, tx: &mut Tx<'a>, index: usize) -> Result<(), Conflict> {
        self.check(index);
        let access = Access::new(Operation::Free, index as u32);
        let (in_use, pool, _) = self.state(tx, index, access)?;
        if !in_use {
            return Ok(());
        }
        self.lock_index(tx, index, access)?;
        self.lock_pool(tx, pool, access)?;
        let mut wheel = PoolNumbers { tx, of: self, pool, operation: None };
        wheel.unlink(index as u32);
        wheel.push(index as u32, FREE);
        self.count(tx, pool, 1);
        tx.set(self.indices.word(index, STATE), (pool as u64) << 1);
        Ok(())
    }

    #[inline(always)]
    fn expire<'a>(&'a self, tx: &mut Tx<'a>, now: Nanos) -> Result<Option<usize>, Conflict> {
        let access = Access::new(Operation::Expire, u32::MAX);
        let core = tx.core();
        let lock = self.pools.lock(core);
        let quiet_until = tx.load(lock, access, move |_| Tx::get(self.pools.word(core, QUIET_UNTIL)))?;
        if now.0 < quiet_until { Ok(None) } else { self.advance(tx, now, access) }
    }

    /// One core's indices after the other's; those in use by deadline.
    fn order<'a>(&'a self, tx: &mut Tx<'a>) -> Result<PoolOrder, Conflict> {
        let access = Access::new(Operation::Deadline, u32::MAX);
        let mut order = PoolOrder::default();
        for pool in 0..self.pools.len() {
            self.lock_pool(tx, pool, access)?;
            let (mut free, mut armed) = (Vec::new(), Vec::new());
            let numbers = PoolNumbers { tx, of: self, pool, operation: None };
            numbers.members(FREE, &mut free);
            numbers.armed(&mut armed);
            order.free.extend(free.into_iter().map(|index| index as usize));
            for index in armed {
                let (_, _, deadline) = self.state(tx, index as usize, access.after(index))?;
                order.in_use.push((index as usize, Nanos(deadline)));
            }
        }
        if self.pools.len() > 1 {
            order.in_use.sort_by_key(|(_, deadline)| tick_after(deadline.0));
        }
        Ok(order)
    }

    fn begin_at<'a>(&'a self, tx: &mut Tx<'a>, now: Nanos) -> Result<(), Conflict> {
        let access = Access::new(Operation::Expire, u32::MAX);
        for pool in 0..self.pools.len() {
            self.lock_pool(tx, pool, access)?;
            PoolNumbers { tx, of: self, pool, operation: None }.begin_at(now.0);
        }
        Ok(())
    }
}
