//! Every design against a plain map of hashes, far beyond the load of a full table and back.

use std::collections::HashMap;
use std::vec::Vec;

use super::{AnyIndex, Index, IndexKind};

const PLACES: usize = if cfg!(miri) { 100 } else { 4000 };

fn mix(number: u64) -> u64 {
    let product = u128::from(number ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

/// Entries and their hashes. Free slots are reused last in, first out, as in the slab.
struct Model {
    index: AnyIndex,
    hashes: HashMap<u32, u64>,
    free: Vec<u32>,
}

impl Model {
    fn new(kind: IndexKind) -> Self {
        let index = AnyIndex::new(kind, PLACES);
        let free = (0..index.places() as u32).rev().collect();
        Self { index, hashes: HashMap::new(), free }
    }

    fn insert(&mut self, hash: u64) -> Option<u32> {
        let free = if self.index.assigns() { u32::MAX } else { *self.free.last()? };
        let slot = self.index.insert(hash, free)?;
        if !self.index.assigns() {
            assert_eq!(Some(slot), self.free.pop());
        }
        assert!((slot as usize) < self.index.places());
        assert_eq!(self.hashes.insert(slot, hash), None, "the slot was free");
        Some(slot)
    }

    fn remove(&mut self, slot: u32) {
        let hash = self.hashes.remove(&slot).expect("it is in");
        assert!(self.index.remove(hash, slot));
        assert!(!self.index.remove(hash, slot), "it is in once");
        self.free.push(slot);
    }

    fn check(&self) {
        for (slot, hash) in &self.hashes {
            assert_eq!(self.index.find(*hash, |other| other == *slot), Some(*slot));
            let mut shown = Vec::new();
            let guess = self.index.guess(*hash, |prefetch_slot| shown.push(prefetch_slot));
            assert!(guess.is_some_and(|guess| shown.contains(&guess)), "what is there is guessed somehow");
            let any = self.index.guess_any(*hash, |prefetch_slot| shown.push(prefetch_slot));
            assert!(any == guess && guess.is_some_and(|guess| shown.contains(&guess)));
        }
        for absent in 0..if cfg!(miri) { 10 } else { 1000 } {
            let hash = mix(u64::MAX - absent);
            assert_eq!(self.index.find(hash, |slot| self.hashes.get(&slot) == Some(&hash)), None);
            assert_eq!(self.index.guess(hash, |_| ()), self.index.guess_any(hash, |_| ()));
            self.index.neighbours(hash, |slot| assert!(self.hashes.contains_key(&slot)));
        }
    }
}

#[test]
fn filled_up_and_emptied_over_and_over() {
    for kind in IndexKind::ALL {
        let mut model = Model::new(kind);
        let mut number = 0;
        for round in 0..if cfg!(miri) { 2 } else { 4 } {
            let mut refused = 0;
            while refused < 3 {
                number += 1;
                refused += u32::from(model.insert(mix(number)).is_none());
            }
            let least = match kind {
                IndexKind::RobinHood | IndexKind::Hopscotch => 85,
                _ => 97,
            };
            assert!(model.hashes.len() * 100 > PLACES * least, "{kind}: only {} of {PLACES}", model.hashes.len());
            model.check();
            let mut slots: Vec<u32> = model.hashes.keys().copied().collect();
            slots.sort_unstable_by_key(|slot| mix(u64::from(*slot) << 8 | round));
            let keep = if round % 2 == 1 { 0 } else { slots.len() / 3 };
            for slot in slots.drain(keep..) {
                model.remove(slot);
            }
            model.check();
        }
        assert!(model.hashes.is_empty());
    }
}

/// At the load of a full table, entries come and go for long without a failed insertion.
#[test]
fn churn_at_full_load_refuses_nobody() {
    for kind in IndexKind::ALL {
        let mut model = Model::new(kind);
        let full = PLACES * AnyIndex::load_percent(kind) / 100;
        let mut order = std::collections::VecDeque::new();
        for number in 0..if cfg!(miri) { 200 } else { 60_000 } {
            if order.len() == full {
                let at = mix(number ^ 77) as usize % order.len();
                let slot = order.swap_remove_back(at).expect("there are so many");
                model.remove(slot);
            }
            order.push_back(model.insert(mix(number)).unwrap_or_else(|| panic!("{kind} refuses entry {number}")));
        }
        model.check();
    }
}

/// With any hashes no entry is lost. How many fit depends on the design.
#[test]
fn equal_hashes_end_in_a_refusal_or_fit() {
    for kind in IndexKind::ALL {
        let mut model = Model::new(kind);
        let slots: Vec<u32> = (0..100).map_while(|_| model.insert(7 << 32 | 7)).collect();
        assert!(slots.len() >= 24, "{kind}");
        model.check();
        for slot in slots {
            model.remove(slot);
        }
        assert_eq!(model.index.find(7 << 32 | 7, |_| true), None);
    }
}

#[test]
fn names_are_unlike() {
    for kind in IndexKind::ALL {
        assert_eq!(IndexKind::ALL.iter().filter(|other| other.name() == kind.name()).count(), 1);
    }
}
