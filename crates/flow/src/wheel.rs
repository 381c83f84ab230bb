//! A hierarchical timing wheel (Varghese, Lauck: SOSP '87, scheme 7) over packet time, with occupancy bitmaps, so that a
//! jump of the clock costs the same whether it is of a millisecond or of years.
//!
//! An entry lies at the lowest level whose circle reaches its tick, counted from the wheel's own. The lowest level reaches
//! over two minutes in large tables, so that timeouts never come down a level; the levels above serve small tables, and clocks
//! that jump. A deadline that moves is only noted in the entry while its list comes up in time for it: too early mostly, and
//! then the entry is armed anew.
//!
//! Lists are chains of blocks of slot numbers, a cache line each, and an entry knows its place in them. So the entries that
//! come next are known without reading those before, and can be brought near in time; links from entry to entry would be
//! followed at the memory's latency. What leaves early has its place taken by the last of its list.

use alloc::boxed::Box;
use alloc::vec;

use packet::{Key, Nanos};

use crate::blocks::{Blocks, LOOSE, List};
use crate::memory::Filling;
use crate::slab::Slab;

/// How exact the ageing is: an entry is reclaimed in the order of its deadline rounded up to this, some 17 milliseconds.
pub const TICK: Nanos = Nanos(1 << TICK_BITS);

const TICK_BITS: u32 = 24;
/// A tick that is rounded up has a bit more, and is behind all time.
const TIME_BITS: u32 = u64::BITS - TICK_BITS;
/// The lowest level's lists reach 137 seconds. Small tables get by with 17, for the lists take room too; what comes down from
/// above holds up what is due meanwhile, which matters little where there are few.
const LOW_BITS: u32 = 13;
const LOW_BITS_SMALL: u32 = 10;
/// Tables of fewer entries are small.
const SMALL: usize = 4096;
/// The levels above reach 512 times as far each.
const HIGH_BITS: u32 = 9;
const LEVELS: u32 = 4;
/// An entry is put no further ahead of the present than this, and looked at again then if its deadline is later. So a deadline that
/// moves earlier, yet stays behind this horizon, is a store like one that moves later: most do, and two looks a minute at each
/// flow that lasts is cheap. No timeout of up to that costs a look more for it. Half a minute is the shortest of the timeouts that
/// ordinary TCP connections come by, and that of most others' first packets.
pub(crate) const HORIZON: Nanos = Nanos::from_secs(30);
/// Lists advanced to and entries looked at in one unit of work. An entry is looked at once for each level that it comes
/// down, mostly one, and twice a minute while it lasts, so one unit a packet keeps up with one new flow a packet. Where there are too few
/// packets for all looks, rounds take longer than that, for each look counts from the present.
const STEPS_MAX: usize = 4;
/// How many blocks ahead of their turn entries are asked for: a block's at once, so that the translations of their addresses overlap, which
/// takes longer than all else about them.
const AHEAD: usize = 2;

/// The wheel: its own tick, and who is due when.
#[repr(C)]
pub(crate) struct Wheel {
    /// Nothing is due before this point; it may be too early but never too late.
    due: u64,
    /// Every tick before this one has been dealt with.
    tick: u64,
    /// The list above the lowest level that has come up and is being spread over the levels below it.
    spreading: Option<u32>,
    low_bits: u32,
    /// The block that is being dealt with, and whether nobody has [asked](Self::has_begun) since it was begun.
    begun: u32,
    is_new: bool,
    /// A bit for each list that has an entry.
    occupied: Box<[u64]>,
    lists: Box<[List]>,
    blocks: Blocks,
}

/// A level's lists.
#[derive(Clone, Copy)]
struct Level {
    /// The number of its first list.
    first: usize,
    /// How many lists, as a power of two.
    bits: u32,
    /// How many ticks each stands for, as a power of two.
    low: u32,
}

impl Level {
    /// The list of the stretch that is the `stretch`th since the beginning of time.
    #[inline]
    const fn list(self, stretch: u64) -> usize {
        self.first + (stretch & ((1 << self.bits) - 1)) as usize
    }
}

impl Wheel {
    /// An empty wheel at the beginning of time, for at most `entries`, each a number below `slots`; these come in the order of `filling`.
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

    /// Whether there may be work at `now`.
    #[inline(always)]
    pub(crate) const fn is_due(&self, now: Nanos) -> bool {
        now.0 >= self.due
    }

    /// For a table aged otherwise: work is due at all times. The wheel itself then stays empty.
    pub(crate) const fn always_due(&mut self) {
        self.due = 0;
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.lists) + size_of_val(&*self.occupied) + self.blocks.bytes()
    }

    /// Moves the wheel's tick up to `now` if nothing lies between. Entries armed after that lie lower and come down less.
    #[inline]
    pub(crate) fn follow(&mut self, now: Nanos) {
        if !self.is_due(now) {
            self.tick = self.tick.max(now.0 >> TICK_BITS);
        }
    }

    /// Puts an entry that is on no list where its deadline says, or at the [`HORIZON`] of `now` if that comes first. One that lives
    /// to the end of time stays out where that comes first.
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

    /// The list for entries of this tick, and the tick at which the list comes up.
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
                // What lies beyond the last circle comes up with its last list, and is placed anew.
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

    /// Whether the entry comes up in time for this deadline as it is: then moving its deadline there is a store.
    #[inline]
    pub(crate) fn is_in_time(&self, entry: u32, deadline: Nanos) -> bool {
        let position = self.blocks.position(entry);
        position != LOOSE && self.comes_up(self.blocks.list_of(position)) <= tick_of(deadline)
    }

    /// The tick at which a list that has entries comes up.
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

    /// Takes an entry out, if it is in.
    #[inline]
    pub(crate) fn disarm(&mut self, entry: u32) {
        let current = self.current();
        let list = if self.blocks.first(self.lists[current]) == Some(entry) {
            // Whoever is due goes so, and its position need not be asked for.
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

    /// Does one bounded unit of work; an entry whose deadline is at or before `now` if that came to light. The entry
    /// stays where it is until it is disarmed.
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

    /// Asks for what comes [`AHEAD`] blocks behind the one that the list begins with, once for each.
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

    /// The first entry of the list that comes up next, if its deadline is at or before `now`.
    pub(crate) fn overdue<K: Key, V: Copy>(&self, slab: &Slab<K, V>, now: Nanos) -> Option<u32> {
        let lowest = self.level(0);
        let distance = self.first_occupied(lowest, self.tick)?;
        let entry = self.blocks.first(self.lists[lowest.list(self.tick + distance)])?;
        slab.is_dead(entry, now).then_some(entry)
    }

    /// Brings near what taking the entry out needs first.
    #[inline]
    pub(crate) fn prefetch_position(&self, entry: u32) {
        self.blocks.prefetch_position(entry);
    }

    /// Whether a block has been begun since the last time that somebody asked.
    #[inline]
    pub(crate) const fn has_begun(&mut self) -> bool {
        core::mem::replace(&mut self.is_new, false)
    }

    /// The entries of the block that lies `behind` the present one. Those of the next block are near when that has
    /// [begun](Self::has_begun).
    #[inline]
    pub(crate) fn coming(&self, behind: usize) -> &[u32] {
        self.blocks.slots(self.lists[self.current()], behind)
    }

    /// Whether an entry that comes up is due then, and not to be armed anew.
    #[inline]
    pub(crate) fn ends<K: Key, V: Copy>(&self, slab: &Slab<K, V>, entry: u32) -> bool {
        self.spreading.is_none() && tick_of(slab.deadline(entry)) <= self.tick
    }

    /// The list that is being dealt with.
    #[inline]
    fn current(&self) -> usize {
        match self.spreading {
            Some(list) => list as usize,
            None => self.level(0).list(self.tick),
        }
    }

    /// Goes on to the next list that has entries; `false` if that is not due at `now`.
    fn advance<K: Key, V: Copy>(&mut self, slab: &Slab<K, V>, now: Nanos) -> bool {
        self.spreading = None;
        let mut next: Option<(u64, u32, usize)> = None;
        for number in 0..LEVELS {
            let level = self.level(number);
            // Above the lowest level nothing is ever put into the stretch that the wheel is in; it has entries only if it
            // begins here and is yet to be spread.
            let from = self.tick >> level.low;
            let Some(distance) = self.first_occupied(level, from) else { continue };
            let up = (from + distance) << level.low;
            // Of two that come up together the higher goes first, for it may have entries for the other.
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

    /// How many stretches behind `from` the level's first list lies that has entries.
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

/// When a tick begins; the end of time for those behind it.
#[inline]
const fn time_of(tick: u64) -> u64 {
    if tick >> TIME_BITS == 0 { tick << TICK_BITS } else { u64::MAX }
}

/// The first bit set from `from` on.
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
