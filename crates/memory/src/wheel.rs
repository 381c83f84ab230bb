//! A hierarchical timing wheel (Varghese and Lauck, SOSP '87, scheme 7) with eight levels of 64 lists and ticks of 2^20 ns. Its numbers lie
//! elsewhere: in a core's own cells, or in words that cores share.
//!
//! Putting a deadline off doesn't touch the wheel: the index stays on its list and is moved on when the old deadline comes up.

use alloc::vec::Vec;

/// Deadlines are rounded up to ticks of 2^20 ns, about a millisecond.
pub(crate) const TICK_BITS: u32 = 20;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Enough for every deadline: 8 * 6 + 20 bits is more than 64.
pub(crate) const LEVELS: usize = 8;
/// How many indices one call of [`Wheel::advance`] may move.
pub(crate) const WORK: usize = 8;
/// The lists: the free list, then one for each slot of each level.
pub(crate) const FREE: u32 = 0;
pub(crate) const LISTS: usize = 1 + LEVELS * SLOTS;

/// A 32-bit field. Nodes are indices, then the ends of lists; each is a member of a circular doubly linked list.
#[derive(Clone, Copy)]
pub(crate) enum Field32 {
    Next(u32),
    Prev(u32),
    List(u32),
    /// The list that is being cascaded to lower levels, if any. All of it is due before the entries of those levels.
    Cascading,
}

/// A 64-bit field.
#[derive(Clone, Copy)]
pub(crate) enum Field64 {
    /// A level's occupancy bitmap.
    Occupied(usize),
    /// The wheel's current tick. All entries are due then or later. An entry lies at the level of the highest group of six bits in which
    /// its tick differs from this one.
    Position,
    /// Nothing is due before this time, so most calls end at once.
    QuietUntil,
}

/// A timing wheel over fields that the implementor stores.
pub(crate) trait Wheel {
    /// The reason why a field can't be read now.
    type Fault;

    fn field32(&self, at: Field32) -> u32;
    fn set_field32(&mut self, at: Field32, number: u32);
    fn field64(&self, at: Field64) -> u64;
    fn set_field64(&mut self, at: Field64, number: u64);

    /// An index's deadline.
    fn deadline(&mut self, index: u32) -> Result<u64, Self::Fault>;

    /// The node that stands for a list. It is above all indices.
    fn end(&self, list: u32) -> u32;

    /// The first index of a list.
    #[inline]
    fn first(&self, list: u32) -> Option<u32> {
        let end = self.end(list);
        let first = self.field32(Field32::Next(end));
        (first != end).then_some(first)
    }

    /// Appends an index that is on no list.
    #[inline]
    fn push(&mut self, index: u32, list: u32) {
        let end = self.end(list);
        let last = self.field32(Field32::Prev(end));
        self.set_field32(Field32::Prev(index), last);
        self.set_field32(Field32::Next(index), end);
        self.set_field32(Field32::List(index), list);
        self.set_field32(Field32::Next(last), index);
        self.set_field32(Field32::Prev(end), index);
        if list != FREE {
            let (level, slot) = place(list);
            self.set_field64(Field64::Occupied(level), self.field64(Field64::Occupied(level)) | 1 << slot);
        }
    }

    /// Removes an index from its list.
    #[inline]
    fn unlink(&mut self, index: u32) {
        let (prev, next) = (self.field32(Field32::Prev(index)), self.field32(Field32::Next(index)));
        let list = self.field32(Field32::List(index));
        self.set_field32(Field32::Next(prev), next);
        self.set_field32(Field32::Prev(next), prev);
        if list != FREE && self.first(list).is_none() {
            let (level, slot) = place(list);
            self.set_field64(Field64::Occupied(level), self.field64(Field64::Occupied(level)) & !(1 << slot));
        }
    }

    /// Puts an index that is on no list on the list for its deadline, as seen from the current tick.
    #[inline]
    fn arm(&mut self, index: u32, deadline: u64) {
        let position = self.field64(Field64::Position);
        let due = tick_after(deadline).max(position);
        let differing = (due ^ position) | 1;
        let level = (differing.ilog2() / SLOT_BITS) as usize;
        let slot = (due >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        self.push(index, (1 + level * SLOTS + slot) as u32);
        let begins = (due >> (SLOT_BITS * level as u32)) << (SLOT_BITS * level as u32);
        let begins = begins.saturating_mul(1 << TICK_BITS);
        if begins < self.field64(Field64::QuietUntil) {
            self.set_field64(Field64::QuietUntil, begins);
        }
    }

    /// The next list that isn't empty, and its first tick. Lower levels come before higher ones, except for the list that is being
    /// cascaded.
    #[inline]
    fn soonest(&mut self) -> Option<(u32, u64)> {
        let cascading = self.field32(Field32::Cascading);
        if cascading != FREE {
            if self.first(cascading).is_some() {
                return Some((cascading, self.field64(Field64::Position)));
            }
            self.set_field32(Field32::Cascading, FREE);
        }
        let level = (0..LEVELS).find(|&level| self.field64(Field64::Occupied(level)) != 0)?;
        let slot = self.field64(Field64::Occupied(level)).trailing_zeros();
        let shift = SLOT_BITS * level as u32;
        let above = self.field64(Field64::Position) >> shift >> SLOT_BITS << SLOT_BITS;
        Some(((1 + level * SLOTS) as u32 + slot, (above + u64::from(slot)) << shift))
    }

    /// Appends the indices of a list, in order.
    fn members(&self, list: u32, all: &mut Vec<u32>) {
        let end = self.end(list);
        let mut node = self.field32(Field32::Next(end));
        while node != end {
            all.push(node);
            node = self.field32(Field32::Next(node));
        }
    }

    /// Appends the indices that are not free, in the order in which they come up.
    fn armed(&self, all: &mut Vec<u32>) {
        let cascading = self.field32(Field32::Cascading);
        if cascading != FREE {
            self.members(cascading, all);
        }
        for list in (1..LISTS as u32).filter(|list| *list != cascading) {
            self.members(list, all);
        }
    }

    /// Sets the time of a wheel that nothing was put on.
    fn begin_at(&mut self, now: u64) {
        let position = self.field64(Field64::Position);
        self.set_field64(Field64::Position, position.max(now >> TICK_BITS));
    }

    /// Moves or expires due indices in order, up to a fixed number. Returns an index that expired; it is on the free list then.
    fn advance(&mut self, now: u64) -> Result<Option<usize>, Self::Fault> {
        let now_tick = now >> TICK_BITS;
        self.set_field64(Field64::QuietUntil, 0);
        for _ in 0..WORK {
            let soonest = self.soonest();
            let Some((list, begins)) = soonest.filter(|&(_, begins)| begins <= now_tick) else {
                let next = soonest.map_or(u64::MAX, |(_, begins)| begins.saturating_mul(1 << TICK_BITS));
                self.set_field64(Field64::QuietUntil, next);
                let position = self.field64(Field64::Position);
                self.set_field64(Field64::Position, position.max(now_tick));
                return Ok(None);
            };
            let Some(index) = self.first(list) else { unreachable!("an occupied slot has a first index") };
            let deadline = self.deadline(index)?;
            self.set_field64(Field64::Position, begins);
            let (level, _) = place(list);
            self.set_field32(Field32::Cascading, if level > 0 { list } else { FREE });
            self.unlink(index);
            if level == 0 && tick_after(deadline) <= begins {
                self.push(index, FREE);
                return Ok(Some(index as usize));
            }
            self.arm(index, deadline);
        }
        Ok(None)
    }
}

/// The level and slot of a list of the wheel.
#[inline]
fn place(list: u32) -> (usize, usize) {
    let list = list as usize - 1;
    (list / SLOTS, list % SLOTS)
}

/// The first tick that begins at or after a time.
#[inline]
pub(crate) fn tick_after(point: u64) -> u64 {
    (point >> TICK_BITS) + u64::from(point.trailing_zeros() < TICK_BITS)
}
