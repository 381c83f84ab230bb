//! A hierarchical timing wheel (Varghese, Lauck: SOSP '87, scheme 7) over packet time, with occupancy bitmaps, so that a
//! jump of the clock costs the same whether it is of a millisecond or of years.
//!
//! Five levels of 1024 lists cover all of time. An entry lies at the level of the highest digit (of ten bits) in which
//! its tick differs from the wheel's own, so each list belongs to one stretch of time only, and the first list that is
//! occupied, from the lowest level up, is the next one that is due. Deadlines that move later are only noted in the
//! entry: its list comes up early then, and the entry is armed anew.

use alloc::boxed::Box;

use packet::{Key, Nanos};

use crate::chain::{self, LOOSE, List};
use crate::slab::Slab;

/// How exact the ageing is: an entry is reclaimed in the order of its deadline rounded up to this, about a millisecond.
pub const TICK: Nanos = Nanos(1 << TICK_BITS);

const TICK_BITS: u32 = 20;
/// So many that timeouts of minutes mostly come down one level and those of days two, for each is a cache miss.
const LEVEL_BITS: u32 = 10;
const LEVEL_LEN: usize = 1 << LEVEL_BITS;
/// Deadlines have 63 bits at most, ticks 44.
const LEVELS: usize = 5;
/// Lists advanced to and entries looked at in one unit of work. An entry is looked at once for each level that it comes
/// down, at most five times and mostly two, so one unit a packet keeps up with one new flow a packet.
const STEPS_MAX: usize = 4;

/// The wheel: its own tick, and who is due when.
pub(crate) struct Wheel {
    /// Nothing is due before this point; it may be too early but never too late.
    due: u64,
    /// Every tick before this one has been dealt with.
    tick: u64,
    /// The list above the lowest level that has come up and is being spread over the levels below it.
    spreading: Option<u32>,
    /// A bit for each list that may have a node.
    occupied: [[u64; LEVEL_LEN / 64]; LEVELS],
    lists: Box<[List]>,
}

impl Wheel {
    /// An empty wheel at the beginning of time.
    pub(crate) fn new() -> Self {
        Self {
            due: u64::MAX,
            tick: 0,
            spreading: None,
            occupied: [[0; LEVEL_LEN / 64]; LEVELS],
            lists: (0..(LEVELS * LEVEL_LEN) as u32).map(List::empty).collect(),
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

    pub(crate) const fn bytes(&self) -> usize {
        self.lists.len() * size_of::<List>()
    }

    /// Moves the wheel's tick up to `now` if nothing lies between. Entries armed after that lie lower and come down less.
    #[inline]
    pub(crate) fn follow(&mut self, now: Nanos) {
        if !self.is_due(now) {
            self.tick = self.tick.max(now.0 >> TICK_BITS);
        }
    }

    /// Puts an entry that is on no list where its deadline says. One without a deadline stays out.
    #[inline]
    pub(crate) fn arm<K: Key, V: Copy>(&mut self, slab: &mut Slab<K, V>, node: u32) {
        let deadline = slab.deadline(node);
        if deadline == Nanos::NEVER {
            return;
        }
        let tick = tick_of(deadline).max(self.tick);
        // What falls into the list that is being spread queues up there, so as not to overtake those who came before.
        if let Some(list) = self.spreading {
            let low = LEVEL_BITS * (list / LEVEL_LEN as u32);
            if (tick ^ self.tick) >> low == 0 {
                return self.append(slab, list, node);
            }
        }
        self.place(slab, node, tick);
    }

    /// Puts an entry where its tick says, seen from the wheel's own.
    #[inline]
    fn place<K: Key, V: Copy>(&mut self, slab: &mut Slab<K, V>, node: u32, tick: u64) {
        // The level is that of the highest bit that differs; none differing is the lowest level too.
        let level = (63 - ((tick ^ self.tick) | 1).leading_zeros()) / LEVEL_BITS;
        let low = LEVEL_BITS * level;
        let position = (tick >> low) as usize % LEVEL_LEN;
        self.due = self.due.min(tick >> low << low << TICK_BITS);
        self.append(slab, level * LEVEL_LEN as u32 + position as u32, node);
    }

    #[inline]
    fn append<K: Key, V: Copy>(&mut self, slab: &mut Slab<K, V>, list: u32, node: u32) {
        let (level, position) = (list as usize / LEVEL_LEN, list as usize % LEVEL_LEN);
        self.occupied[level][position / 64] |= 1 << (position % 64);
        chain::append::<chain::Wheel, K, V>(slab, &mut self.lists, list, node);
    }

    /// Takes an entry out, if it is in.
    #[inline]
    pub(crate) fn disarm<K: Key, V: Copy>(&mut self, slab: &mut Slab<K, V>, node: u32) {
        if slab.links(node).wheel.prev == LOOSE {
            return;
        }
        if let Some(list) = chain::unlink::<chain::Wheel, K, V>(slab, &mut self.lists, node) {
            let (level, position) = (list as usize / LEVEL_LEN, list as usize % LEVEL_LEN);
            self.occupied[level][position / 64] &= !(1 << (position % 64));
        }
    }

    /// Does one bounded unit of work; an entry whose deadline is at or before `now` if that came to light. The entry
    /// stays where it is until it is disarmed.
    pub(crate) fn work<K: Key, V: Copy>(&mut self, slab: &mut Slab<K, V>, now: Nanos) -> Option<u32> {
        for _ in 0..STEPS_MAX {
            let list = self.spreading.unwrap_or((self.tick % LEVEL_LEN as u64) as u32);
            if let Some(node) = self.lists[list as usize].first() {
                if self.spreading.is_none() && tick_of(slab.deadline(node)) <= self.tick {
                    return Some(node);
                }
                if let Some(next) = chain::next::<chain::Wheel, K, V>(slab, node) {
                    slab.prefetch(next);
                    slab.prefetch_links(next);
                }
                self.disarm(slab, node);
                let deadline = slab.deadline(node);
                if deadline != Nanos::NEVER {
                    self.place(slab, node, tick_of(deadline).max(self.tick));
                }
            } else if !self.advance(slab, now) {
                return None;
            }
        }
        None
    }

    /// Goes on to the next list that has nodes; `false` if that is not due at `now`.
    fn advance<K: Key, V: Copy>(&mut self, slab: &Slab<K, V>, now: Nanos) -> bool {
        self.spreading = None;
        for level in 0..LEVELS {
            let low = LEVEL_BITS * level as u32;
            let here = (self.tick >> low) as usize % LEVEL_LEN;
            let Some(position) = first_set(&self.occupied[level], here) else { continue };
            let above = low + LEVEL_BITS;
            let tick = self.tick >> above << above | (position as u64) << low;
            let list = level * LEVEL_LEN + position;
            if let Some(node) = self.lists[list].first() {
                slab.prefetch(node);
                slab.prefetch_links(node);
            }
            self.due = tick << TICK_BITS;
            if self.is_due(now) {
                self.tick = tick;
                self.spreading = (level > 0).then_some(list as u32);
                return true;
            }
            return false;
        }
        self.due = u64::MAX;
        false
    }
}

/// The first tick that is not before the deadline.
#[inline]
fn tick_of(deadline: Nanos) -> u64 {
    deadline.0.div_ceil(TICK.0)
}

/// The first bit set from `from` on.
#[inline]
fn first_set(words: &[u64; LEVEL_LEN / 64], from: usize) -> Option<usize> {
    let mut word = words[from / 64] & (u64::MAX << (from % 64));
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
        let mut words = [0; LEVEL_LEN / 64];
        (words[0], words[2]) = (1 << 63, 1);
        assert_eq!(first_set(&words, 0), Some(63));
        assert_eq!(first_set(&words, 63), Some(63));
        assert_eq!(first_set(&words, 64), Some(128));
        assert_eq!(first_set(&words, 128), Some(128));
        assert_eq!(first_set(&words, 129), None);
        assert_eq!(first_set(&words, LEVEL_LEN - 1), None);
    }

    #[test]
    fn ticks_round_up() {
        assert_eq!(tick_of(Nanos(0)), 0);
        assert_eq!(tick_of(Nanos(1)), 1);
        assert_eq!(tick_of(TICK), 1);
        assert_eq!(tick_of(TICK + Nanos(1)), 2);
    }
}
