//! The flows that nobody has answered, and which of them makes room first: a hand goes round their slots (Corbató's clock, without
//! its second chance).
//!
//! A bit for each slot, and above them levels with a bit for each word that has any, so that the next flow is found in a few
//! steps however many were answered. A list in the order of arrival would take 8 bytes a flow, two neighbours' cache lines with
//! every change, and would be followed at the memory's latency.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

pub(crate) struct Unanswered {
    /// The lowest first; the highest has one word.
    levels: Vec<Box<[u64]>>,
    /// The slot from which on the next to go is looked for.
    hand: u32,
}

impl Unanswered {
    /// None of so many slots.
    pub(crate) fn new(slots: usize) -> Self {
        let mut levels = Vec::new();
        let mut bits = slots;
        loop {
            let words = bits.div_ceil(64).max(1);
            levels.push(vec![0; words].into());
            if words == 1 {
                return Self { levels, hand: 0 };
            }
            bits = words;
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.levels.iter().map(|words| size_of_val(&**words)).sum()
    }

    /// A flow has come to the slot. Its turn is a whole round away if the hand stood here for the one before.
    #[inline]
    pub(crate) fn insert(&mut self, slot: u32) {
        if slot == self.hand {
            self.hand = slot + 1;
        }
        let mut at = slot as usize;
        for words in &mut self.levels {
            let word = &mut words[at / 64];
            let was_any = *word != 0;
            *word |= 1 << (at % 64);
            if was_any {
                return;
            }
            at /= 64;
        }
    }

    /// The flow at the slot is answered, or gone.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        let mut at = slot as usize;
        for words in &mut self.levels {
            let word = &mut words[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The one whose turn it is. The hand stays here, so it is the same one until that flow is answered or gone.
    #[inline]
    pub(crate) fn first(&mut self) -> Option<u32> {
        let slot = self.from(self.hand)?;
        self.hand = slot;
        Some(slot)
    }

    /// The one whose turn it is behind this one's.
    #[inline]
    pub(crate) fn behind(&self, slot: u32) -> Option<u32> {
        self.from(slot + 1).filter(|other| *other != slot)
    }

    /// The first one from the slot on, going round.
    #[inline]
    fn from(&self, slot: u32) -> Option<u32> {
        self.at_or_after(slot as usize).or_else(|| self.at_or_after(0)).map(|slot| slot as u32)
    }

    #[inline]
    fn at_or_after(&self, slot: usize) -> Option<usize> {
        let mut at = slot;
        for (height, words) in self.levels.iter().enumerate() {
            let word = words.get(at / 64)? & (u64::MAX << (at % 64));
            if word != 0 {
                let found = at / 64 * 64 + word.trailing_zeros() as usize;
                return Some(self.levels[..height].iter().rev().fold(found, |word, words| lowest(word, words)));
            }
            at = at / 64 + 1;
        }
        None
    }
}

/// The first bit of the word with this number, which has one.
#[inline]
fn lowest(word: usize, words: &[u64]) -> usize {
    word * 64 + words[word].trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Against a set: who comes next from the hand on, over slots of several levels and some that end with a word.
    #[test]
    fn the_hand_finds_whom_a_set_finds() {
        for slots in [1, 63, 64, 65, 4096, 4097, if cfg!(miri) { 5000 } else { 300_000 }] {
            let mut bits = Unanswered::new(slots as usize);
            let (mut set, mut hand) = (BTreeSet::new(), 0);
            let mut random = 7u64;
            for step in 0..if cfg!(miri) { 300 } else { 30_000 } {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                // Near each other for some time, so that slots are met again.
                let slot = ((random >> 40) as u32 % 200 + step / 1000 * 9973) % slots;
                match random >> 33 & 3 {
                    0 | 1 if set.insert(slot) => {
                        bits.insert(slot);
                        hand += u32::from(slot == hand);
                    }
                    2 if set.remove(&slot) => bits.remove(slot),
                    _ => {}
                }
                if random >> 36 & 1 == 0 {
                    let round = |from: u32| set.range(from..).chain(set.range(..from)).next().copied();
                    let first = round(hand);
                    hand = first.unwrap_or(hand);
                    assert_eq!((bits.first(), bits.first()), (first, first), "{slots} slots");
                    if let Some(first) = first {
                        assert_eq!(bits.behind(first), round(first + 1).filter(|other| *other != first));
                        assert_eq!(set.contains(&slot), bits.from(slot) == Some(slot));
                    }
                }
            }
        }
    }

    #[test]
    fn of_no_slots_none_goes() {
        let mut none = Unanswered::new(0);
        assert_eq!((none.first(), none.bytes()), (None, 8));
    }

    /// Whoever takes the place of the one that went is the last to go.
    #[test]
    fn a_flood_goes_in_the_order_of_its_arrival() {
        let mut bits = Unanswered::new(100);
        (0..100).for_each(|slot| bits.insert(slot));
        [3, 4, 70].iter().for_each(|answered| bits.remove(*answered));
        for round in 0..3 {
            for slot in (0..100).filter(|slot| ![3, 4, 70].contains(slot)) {
                assert_eq!(bits.first(), Some(slot), "round {round}");
                bits.remove(slot);
                bits.insert(slot);
            }
        }
    }
}
