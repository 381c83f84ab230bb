//! A hierarchical timing wheel (Varghese, Lauck: SOSP '87, scheme 7) over packet time, with occupancy bitmaps: a jump of the clock costs
//! the same whether it is a millisecond or years.
//!
//! An entry lies at the lowest level whose range reaches its tick, counted from the wheel's own tick. In large tables the lowest level
//! reaches over two minutes, so ordinary timeouts never move down a level. The levels above serve small tables and clocks that jump. When a
//! deadline moves, only the entry's deadline is written, as long as the entry's list comes up in time. The list usually comes up too early;
//! then the entry is armed again.
//!
//! The lists are unrolled: chains of cache-line blocks of slot numbers. So the entries that come up next are known without reading the
//! entries before them, and can be prefetched.

use alloc::boxed::Box;
use alloc::vec;

use packet::{Key, Nanos};

use crate::blocks::{Blocks, LOOSE, List};
use crate::memory::Filling;
use crate::slab::Slab;

/// The resolution of ageing, some 17 ms. Entries are reclaimed in the order of their deadlines rounded up to this.
pub const TICK: Nanos = Nanos(1 << TICK_BITS);

const TICK_BITS: u32 = 24;
/// A tick that was rounded up may need one bit more; it then lies after the end of time.
const TIME_BITS: u32 = u64::BITS - TICK_BITS;
/// The lowest level reaches 137 seconds; in small tables 17, since the lists take memory too. Moving entries down from a higher level
/// delays what is due meanwhile, which matters little in a small table.
const LOW_BITS: u32 = 13;
const LOW_BITS_SMALL: u32 = 10;
/// Tables with fewer entries than this are small.
const SMALL: usize = 4096;
/// Each higher level reaches 512 times as far.
const HIGH_BITS: u32 = 9;
const LEVELS: u32 = 4;
/// An entry is armed at most this far ahead, and armed again then if its deadline is later. So a deadline that moves earlier is one store,
/// like one that moves later, as long as it stays behind this horizon. That holds for most, and two checks a minute of each long-lived flow
/// are cheap. Timeouts up to the horizon cost no extra check. Half a minute is the shortest timeout of ordinary TCP connections, and the
/// first timeout of most other protocols.
pub(crate) const HORIZON: Nanos = Nanos::from_secs(30);
/// Lists advanced to and entries checked in one unit of work. An entry is checked once at each level that it comes down through (usually
/// one), and twice a minute while it lives. So one unit a packet keeps up with one new flow a packet. With fewer packets the checks come
/// later; each counts from the present then.
const STEPS_MAX: usize = 4;
/// How many blocks ahead entries are prefetched. A whole block is prefetched at once, so that the translations of its addresses, the
/// largest part of the cost, overlap.
const AHEAD: usize = 2;

/// The timing wheel.
#[repr(C)]
pub(crate) struct Wheel {
    /// Nothing is due before this time. It may be too early but never too late.
    due: u64,
    /// All ticks before this one are done.
    tick: u64,
    /// The list above the lowest level that has come up and is being moved to lower levels (cascading).
    spreading: Option<u32>,
    low_bits: u32,
    /// The block that is being worked on, and whether [`has_begun`](Self::has_begun) hasn't reported it yet.
    begun: u32,
    is_new: bool,
    /// The occupancy bitmap: a bit for each list that isn't empty.
    occupied: Box<[u64]>,
    lists: Box<[List]>,
    blocks: Blocks,
}

/// A level's lists.
#[derive(Clone, Copy)]
struct Level {
    /// The number of the level's first list.
    first: usize,
    /// How many lists, as a power of two.
    bits: u32,
    /// How many ticks a list covers, as a power of two.
    low: u32,
}

impl Level {
    /// The list for interval number `stretch`, counted from the beginning of time.
    #[inline]
    const fn list(self, stretch: u64) -> usize {
        self.first + (stretch & ((1 << self.bits) - 1)) as usize
    }
}

impl Wheel {
    /// An empty wheel at time 0 for at most `entries` entries. Their numbers are below `slots` and come in the order of `filling`.
    pub(crate) fn new(entries: usize, slots: usize, filling: Filling) -> Self {
        let low_bits = if entries < SMALL { LOW_BITS_SMALL } else { LOW_BITS };
        let lists = (1 << low_bits) + (LEVELS as usize - 1) * (1 << HIGH_BITS);
        Self {
            due: u64::MAX,
            tick: 0,
            spreading: None,
            low_bits,
            begun: u32::MAX,
            is_new: false,
            occupied: vec![0; lists / 64].into(),
            lists: vec![List::EMPTY; lists].into(),
            blocks: Blocks::new(entries, slots, lists, filling),
        }
    }

    /// True if there may be work at `now`.
    #[inline(always)]
    pub(crate) const fn is_due(&self, now: Nanos) -> bool {
        now.0 >= self.due
    }

    /// For a table with another kind of ageing: work is always due. The wheel stays empty.
    pub(crate) const fn always_due(&mut self) {
        self.due = 0;
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.lists) + size_of_val(&*self.occupied) + self.blocks.bytes()
    }

    /// Moves the wheel's tick up to `now` if nothing is due before. Entries armed afterwards lie at a lower level.
    #[inline]
    pub(crate) fn follow(&mut self, now: Nanos) {
        if !self.is_due(now) {
            self.tick = self.tick.max(now.0 >> TICK_BITS);
        }
    }

    /// Puts an entry that is on no list on the list of its deadline, or on that of the [`HORIZON`] after `now` if that is earlier. If the
    /// result is the end of time, the entry stays off the lists.
    #[inline]
    pub(crate) fn arm(&mut self, entry: u32, deadline: Nanos, now: Nanos) {
        let horizon = now.max(Nanos(time_of(self.tick))) + HORIZON;
        if deadline.min(horizon) == Nanos::NEVER {
            return;
        }
        let tick = tick_of(deadline.min(horizon)).max(self.tick);
        let (list, up) = self.place_of(tick);
        self.due = self.due.min(time_of(up));
        self.occupied[list / 64] |= 1 << (list % 64);
        self.blocks.append(&mut self.lists[list], list as u32, entry);
    }

    /// The list for this tick, and the tick at which the list comes up.
    #[inline]
    fn place_of(&self, tick: u64) -> (usize, u64) {
        if tick - self.tick < 1 << self.low_bits {
            return (self.level(0).list(tick), tick);
        }
        for number in 1..LEVELS {
            let level = self.level(number);
            let (here, there) = (self.tick >> level.low, tick >> level.low);
            let last = here + (1 << level.bits) - 1;
            if there <= last || number == LEVELS - 1 {
                // Beyond the last level's range: the entry comes up with the last list and is placed again.
                let there = there.min(last);
                return (level.list(there), there << level.low);
            }
        }
        unreachable!("the last level takes all")
    }

    #[inline]
    const fn level(&self, number: u32) -> Level {
        if number == 0 {
            return Level { first: 0, bits: self.low_bits, low: 0 };
        }
        let above = number - 1;
        Level {
            first: (1 << self.low_bits) + ((above as usize) << HIGH_BITS),
            bits: HIGH_BITS,
            low: self.low_bits + above * HIGH_BITS,
        }
    }

    /// True if the entry's list comes up in time for this deadline. Then moving the deadline there is one store.
    #[inline]
    pub(crate) fn is_in_time(&self, entry: u32, deadline: Nanos) -> bool {
        let position = self.blocks.position(entry);
        position != LOOSE && self.comes_up(self.blocks.list_of(position)) <= tick_of(deadline)
    }

    /// The tick at which a list comes up that isn't empty.
    #[inline]
    const fn comes_up(&self, list: u16) -> u64 {
        let number = match (list as u32).checked_sub(1 << self.low_bits) {
            None => 0,
            Some(above) => 1 + (above >> HIGH_BITS),
        };
        let level = self.level(number);
        let here = self.tick >> level.low;
        let distance = (list as u64).wrapping_sub(level.first as u64).wrapping_sub(here) & ((1 << level.bits) - 1);
        (here + distance) << level.low
    }

    /// Takes an entry off its list, if it is on one.
    #[inline]
    pub(crate) fn disarm(&mut self, entry: u32) {
        let current = self.current();
        let list = if self.blocks.first(self.lists[current]) == Some(entry) {
            // Due entries leave this way; their positions need not be read.
            self.blocks.remove_first(&mut self.lists[current], entry);
            current
        } else {
            let position = self.blocks.position(entry);
            if position == LOOSE {
                return;
            }
            let list = self.blocks.list_of(position) as usize;
            self.blocks.remove(&mut self.lists[list], entry, position);
            list
        };
        if self.lists[list].is_empty() {
            self.occupied[list / 64] &= !(1 << (list % 64));
        }
    }

    /// Does one bounded unit of work. Returns an entry whose deadline is at or before `now`, if it found one. The entry stays on its list
    /// until [`disarm`](Self::disarm).
    pub(crate) fn work<K: Key, V: Copy>(&mut self, slab: &Slab<K, V>, now: Nanos) -> Option<u32> {
        for _ in 0..STEPS_MAX {
            let list = self.current();
            if let Some(entry) = self.blocks.first(self.lists[list]) {
                self.begin_block(slab, list);
                if self.ends(slab, entry) {
                    return Some(entry);
                }
                self.disarm(entry);
                self.arm(entry, slab.deadline(entry), now);
            } else if !self.advance(slab, now) {
                return None;
            }
        }
        None
    }

    /// Prefetches the entries [`AHEAD`] blocks behind the list's first block, once for each first block.
    #[inline]
    fn begin_block<K: Key, V: Copy>(&mut self, slab: &Slab<K, V>, list: usize) {
        let list = self.lists[list];
        if self.begun == list.head() {
            return;
        }
        (self.begun, self.is_new) = (list.head(), true);
        self.blocks.prefetch(list, AHEAD + 1);
        self.prefetch_entries(slab, list, AHEAD);
    }

    #[inline]
    fn prefetch_entries<K: Key, V: Copy>(&self, slab: &Slab<K, V>, list: List, behind: usize) {
        for entry in self.blocks.slots(list, behind) {
            slab.prefetch(*entry);
            self.blocks.prefetch_position(*entry);
        }
    }

    /// The first entry of the list that comes up next, if its deadline has passed.
    pub(crate) fn overdue<K: Key, V: Copy>(&self, slab: &Slab<K, V>, now: Nanos) -> Option<u32> {
        let lowest = self.level(0);
        let distance = self.first_occupied(lowest, self.tick)?;
        let entry = self.blocks.first(self.lists[lowest.list(self.tick + distance)])?;
        slab.is_dead(entry, now).then_some(entry)
    }

    /// Prefetches what [`disarm`](Self::disarm) of the entry reads first.
    #[inline]
    pub(crate) fn prefetch_position(&self, entry: u32) {
        self.blocks.prefetch_position(entry);
    }

    /// True if a new block was begun since the last call.
    #[inline]
    pub(crate) const fn has_begun(&mut self) -> bool {
        core::mem::replace(&mut self.is_new, false)
    }

    /// The entries of the block number `behind`, counted from the present one. Those of block 1 are in the cache when the present block has
    /// [begun](Self::has_begun).
    #[inline]
    pub(crate) fn coming(&self, behind: usize) -> &[u32] {
        self.blocks.slots(self.lists[self.current()], behind)
    }

    /// True if an entry that comes up is due, and is not to be armed again.
    #[inline]
    pub(crate) fn ends<K: Key, V: Copy>(&self, slab: &Slab<K, V>, entry: u32) -> bool {
        self.spreading.is_none() && tick_of(slab.deadline(entry)) <= self.tick
    }

    /// The list that is being worked on.
    #[inline]
    fn current(&self) -> usize {
        match self.spreading {
            Some(list) => list as usize,
            None => self.level(0).list(self.tick),
        }
    }

    /// Moves on to the next list that isn't empty; `false` if that isn't due at `now`.
    fn advance<K: Key, V: Copy>(&mut self, slab: &Slab<K, V>, now: Nanos) -> bool {
        self.spreading = None;
        let mut next: Option<(u64, u32, usize)> = None;
        for number in 0..LEVELS {
            let level = self.level(number);
            // Above the lowest level no entry is put into the interval that the wheel is in. That interval has entries only if it begins
            // here and has not been cascaded yet.
            let from = self.tick >> level.low;
            let Some(distance) = self.first_occupied(level, from) else { continue };
            let up = (from + distance) << level.low;
            // Of two lists that come up together the higher goes first: it may have entries for the lower one.
            if next.is_none_or(|(least, ..)| up <= least) {
                next = Some((up, number, level.list(from + distance)));
            }
        }
        let Some((up, number, list)) = next else {
            self.due = u64::MAX;
            return false;
        };
        self.due = time_of(up);
        if !self.is_due(now) {
            return false;
        }
        self.tick = up;
        self.spreading = (number > 0).then_some(list as u32);
        (0..AHEAD).for_each(|behind| self.prefetch_entries(slab, self.lists[list], behind));
        true
    }

    /// The distance from interval `from` to the level's next list that isn't empty.
    fn first_occupied(&self, level: Level, from: u64) -> Option<u64> {
        let words = &self.occupied[level.first / 64..][..(1 << level.bits) / 64];
        let start = level.list(from) - level.first;
        let found = first_set(words, start).or_else(|| first_set(words, 0))?;
        Some((found.wrapping_sub(start) & ((1 << level.bits) - 1)) as u64)
    }
}

/// The first tick that is not before the deadline.
#[inline]
fn tick_of(deadline: Nanos) -> u64 {
    deadline.0.div_ceil(TICK.0)
}

/// The time at which a tick begins; the end of time for ticks behind it.
#[inline]
const fn time_of(tick: u64) -> u64 {
    if tick >> TIME_BITS == 0 { tick << TICK_BITS } else { u64::MAX }
}

/// The first bit set at or after `from`.
#[inline]
fn first_set(words: &[u64], from: usize) -> Option<usize> {
    let mut word = words.get(from / 64)? & (u64::MAX << (from % 64));
    let mut at = from / 64;
    loop {
        if word != 0 {
            return Some(at * 64 + word.trailing_zeros() as usize);
        }
        at += 1;
        word = *words.get(at)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_found_across_words() {
        let mut words = [0; 16];
        (words[0], words[2]) = (1 << 63, 1);
        assert_eq!(first_set(&words, 0), Some(63));
        assert_eq!(first_set(&words, 63), Some(63));
        assert_eq!(first_set(&words, 64), Some(128));
        assert_eq!(first_set(&words, 128), Some(128));
        assert_eq!(first_set(&words, 129), None);
        assert_eq!(first_set(&words, 1023), None);
    }

    #[test]
    fn ticks_round_up() {
        assert_eq!(tick_of(Nanos(0)), 0);
        assert_eq!(tick_of(Nanos(1)), 1);
        assert_eq!(tick_of(TICK), 1);
        assert_eq!(tick_of(TICK + Nanos(1)), 2);
    }

    #[test]
    fn every_tick_has_a_list_that_comes_up_in_time() {
        for entries in [1, SMALL] {
            let mut wheel = Wheel::new(entries, entries, Filling::InOrder);
            for tick in [0, 1, 1023, 1024, 8191, 8192, 1 << 20, (1 << 30) + 7, (1 << 39) + 12_345] {
                wheel.tick = tick;
                for bits in 0..40 {
                    for distance in [(1 << bits) - 1, 1 << bits, (1 << bits) + 1] {
                        let (list, up) = wheel.place_of(tick + distance);
                        assert!(list < wheel.lists.len() && up <= tick + distance);
                        assert!(up > tick || distance == 0, "{tick} + {distance} comes up at {up}");
                        assert_eq!(wheel.comes_up(list as u16), up);
                    }
                }
            }
        }
    }
}
