//! The flows that may be evicted, and the next one: the CLOCK algorithm (Corbató, 1968) without its second chance.
//!
//! A clock hand goes round a bitmap with one bit for each slot. Above it, each level has one bit for each word of the level below that
//! isn't 0, so the next candidate is found in a few steps. A linked list in order of arrival would take 8 bytes a flow and touch two
//! neighbours' cache lines at every change.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use locality::pages;

pub(crate) struct EvictionCandidates {
    /// The flows that may be evicted, one bit a slot.
    lowest: Box<[u64]>,
    /// The levels above, lowest first. The highest has one word.
    above: Vec<Box<[u64]>>,
    /// The clock hand: the slot at which the search for the next candidate begins.
    clock_hand: u32,
    /// How far the hand moves when the flow at it is removed.
    stride: u32,
    slots: u32,
}

/// The order in which the clock hand visits the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SweepOrder {
    /// One slot after the other. A new flow takes the slot that was freed last, so it comes up a whole round later.
    Sequential,
    /// In steps of the golden ratio, for indexes that assign slots by hash. A sequential hand would free slots behind itself and none
    /// ahead.
    GoldenRatio,
}

/// The golden ratio as a fraction of 2^32.
const GOLDEN: u64 = 0x9e37_79b9;
/// After this many misses a hand in golden-ratio steps searches sequentially. A sequential search from anywhere makes gaps grow, since the
/// flow behind the largest gap is the most likely one to be evicted.
const MISSES_MAX: usize = 64;

impl EvictionCandidates {
    /// No candidates, with room for so many slots.
    pub(crate) fn new(slots: usize, order: SweepOrder) -> Self {
        let stride = match order {
            SweepOrder::Sequential => 1,
            SweepOrder::GoldenRatio => spread(slots as u32),
        };
        let level = |bits: usize| {
            let words: Box<[u64]> = vec![0; bits.div_ceil(64).max(1)].into();
            pages::advise(words.as_ptr().cast(), size_of_val(&*words));
            words
        };
        let lowest: Box<[u64]> = level(slots);
        let mut above: Vec<Box<[u64]>> = Vec::new();
        loop {
            let words = above.last().unwrap_or(&lowest).len();
            if words == 1 {
                return Self { lowest, above, clock_hand: 0, stride, slots: slots as u32 };
            }
            above.push(level(words));
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.lowest) + self.above.iter().map(|words| size_of_val(&**words)).sum::<usize>()
    }

    fn levels(&mut self) -> impl Iterator<Item = &mut [u64]> {
        core::iter::once(&mut *self.lowest).chain(self.above.iter_mut().map(|words| &mut **words))
    }

    /// Adds the flow at the slot.
    #[inline]
    pub(crate) fn insert(&mut self, slot: u32) {
        let mut at = slot as usize;
        for words in self.levels() {
            let word = &mut words[at / 64];
            let was_any = *word != 0;
            *word |= 1 << (at % 64);
            if was_any {
                return;
            }
            at /= 64;
        }
    }

    /// Removes the flow at the slot, because it is protected or gone. The clock hand moves on if it stood there, or if the table is `full`
    /// and this was the next candidate.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32, full: bool) {
        if slot == self.clock_hand || full && self.first() == Some(slot) {
            self.clock_hand = self.next(slot);
        }
        let mut at = slot as usize;
        for words in self.levels() {
            let word = &mut words[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The next candidate. The call doesn't move the hand, since not every caller evicts the flow.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.from(self.clock_hand)
    }

    /// The candidate after this slot, as things are now.
    #[inline]
    pub(crate) fn behind(&self, slot: u32) -> Option<u32> {
        self.from(self.next(slot)).filter(|other| *other != slot)
    }

    #[inline]
    const fn next(&self, slot: u32) -> u32 {
        let next = slot + self.stride;
        if next < self.slots { next } else { next - self.slots }
    }

    /// The first candidate at or after the slot.
    #[inline]
    fn from(&self, slot: u32) -> Option<u32> {
        let mut slot = slot;
        if self.stride > 1 {
            for _ in 0..MISSES_MAX {
                if self.contains(slot) {
                    return Some(slot);
                }
                slot = self.next(slot);
            }
        }
        self.at_or_after(slot as usize).or_else(|| self.at_or_after(0)).map(|slot| slot as u32)
    }

    /// True if the flow at the slot is a candidate.
    #[inline(always)]
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.lowest.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    #[inline]
    fn at_or_after(&self, slot: usize) -> Option<usize> {
        let mut at = slot;
        for height in 0..=self.above.len() {
            let word = self.level(height).get(at / 64)? & (u64::MAX << (at % 64));
            if word != 0 {
                let found = at / 64 * 64 + word.trailing_zeros() as usize;
                return Some((0..height).rev().fold(found, |word, height| lowest(word, self.level(height))));
            }
            at = at / 64 + 1;
        }
        None
    }

    #[inline]
    fn level(&self, height: usize) -> &[u64] {
        height.checked_sub(1).map_or(&self.lowest, |above| &self.above[above])
    }
}

/// The first bit set in the word with this number, which isn't 0.
#[inline]
fn lowest(word: usize, words: &[u64]) -> usize {
    word * 64 + words[word].trailing_zeros() as usize
}

/// A stride of about the golden ratio, coprime to the number of slots, so that it visits all of them.
fn spread(slots: u32) -> u32 {
    let golden = ((u64::from(slots) * GOLDEN) >> 32) as u32;
    let divides_both = |stride: u32| {
        let (mut one, mut other) = (slots, stride);
        while other > 0 {
            (one, other) = (other, one % other);
        }
        one > 1
    };
    (golden.max(1)..).find(|stride| !divides_both(*stride)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Against a set: the next candidate from the hand on, over several levels and over slot counts that end with a word.
    #[test]
    fn the_hand_finds_whom_a_set_finds() {
        let large = if cfg!(miri) { 5000 } else { 300_000 };
        let cases = [1, 63, 64, 65, 4096, 4097, large]
            .into_iter()
            .flat_map(|slots| [(slots, SweepOrder::Sequential), (slots, SweepOrder::GoldenRatio)]);
        for (slots, order) in cases {
            let mut bits = EvictionCandidates::new(slots as usize, order);
            let stride = bits.stride;
            let on = |slot: u32| (slot + stride) % slots;
            let next = |set: &BTreeSet<u32>, from: u32| {
                let tries = if order == SweepOrder::Sequential { 0 } else { MISSES_MAX };
                let tried: Vec<_> = core::iter::successors(Some(from), |slot| Some(on(*slot))).take(tries).collect();
                let from = tried.last().map_or(from, |last| on(*last));
                let hit = tried.into_iter().find(|slot| set.contains(slot));
                hit.or_else(|| set.range(from..).chain(set.range(..from)).next().copied())
            };
            let (mut set, mut clock_hand) = (BTreeSet::new(), 0);
            let mut random = 7u64;
            for step in 0..if cfg!(miri) { 300 } else { 30_000 } {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                // Slots near each other for some time, so that they repeat.
                let slot = ((random >> 40) as u32 % 200 + step / 1000 * 9973) % slots;
                match random >> 33 & 3 {
                    0 | 1 if set.insert(slot) => {
                        bits.insert(slot);
                    }
                    2 if set.contains(&slot) => {
                        let full = random >> 35 & 1 == 0;
                        // The next candidate is removed as often as others.
                        let slot = next(&set, clock_hand).filter(|_| random >> 37 & 1 == 0).unwrap_or(slot);
                        let goes_on = slot == clock_hand || full && next(&set, clock_hand) == Some(slot);
                        clock_hand = if goes_on { on(slot) } else { clock_hand };
                        set.remove(&slot);
                        bits.remove(slot, full);
                    }
                    _ => {}
                }
                let first = next(&set, clock_hand);
                assert_eq!(bits.first(), first, "{slots} slots");
                if let Some(first) = first {
                    assert_eq!(bits.behind(first), next(&set, on(first)).filter(|other| *other != first));
                }
                assert_eq!(set.contains(&slot), bits.contains(slot));
            }
        }
    }

    #[test]
    fn a_hand_that_is_spread_comes_by_all_slots() {
        for slots in (2..300).chain([4096, 14 * 9973]) {
            let stride = u64::from(spread(slots));
            let met: BTreeSet<_> = (0..u64::from(slots)).map(|step| step * stride % u64::from(slots)).collect();
            assert_eq!(met.len(), slots as usize);
            assert!(slots < 300 || stride.abs_diff(u64::from(slots) * 618 / 1000) < u64::from(slots) / 100);
        }
    }

    #[test]
    fn of_no_slots_none_goes() {
        let none = EvictionCandidates::new(0, SweepOrder::Sequential);
        assert_eq!((none.first(), none.bytes()), (None, 8));
    }

    /// A flow in the slot of the last evicted one is evicted last.
    #[test]
    fn a_flood_goes_in_the_order_of_its_arrival() {
        let mut bits = EvictionCandidates::new(100, SweepOrder::Sequential);
        (0..100).for_each(|slot| bits.insert(slot));
        [3, 4, 70].iter().for_each(|answered| bits.remove(*answered, false));
        for round in 0..3 {
            for slot in (0..100).filter(|slot| ![3, 4, 70].contains(slot)) {
                assert_eq!(bits.first(), Some(slot), "round {round}");
                bits.remove(slot, true);
                bits.insert(slot);
            }
        }
    }
}
