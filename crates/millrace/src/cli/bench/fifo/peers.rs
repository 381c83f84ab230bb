//! Two queues of the literature, as plain as they were published, for items that are stored as atomic words.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::race::Item;

/// A value on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

fn places<T: Item>(slots: usize) -> Box<[T::Place]> {
    (0..slots).map(|_| T::Place::default()).collect()
}

/// Lamport's ring (1983): both ends read both positions at each operation.
pub(super) struct Lamport<T: Item> {
    places: Box<[T::Place]>,
    /// Number of items that were ever popped, and ever pushed.
    popped: Apart<AtomicUsize>,
    pushed: Apart<AtomicUsize>,
}

impl<T: Item> Lamport<T> {
    pub(super) fn new(slots: usize) -> Arc<Self> {
        assert!(slots.is_power_of_two());
        Arc::new(Self { places: places::<T>(slots), popped: Apart::default(), pushed: Apart::default() })
    }

    #[inline(always)]
    fn place(&self, number: usize) -> &T::Place {
        &self.places[number & (self.places.len() - 1)]
    }

    /// Only one thread pushes.
    #[inline(always)]
    pub(super) fn push(&self, item: T) -> bool {
        // ORDERING: Relaxed for its own position; Acquire pairs with the Release in `pop`.
        let pushed = self.pushed.0.load(Ordering::Relaxed);
        if pushed - self.popped.0.load(Ordering::Acquire) == self.places.len() {
            return false;
        }
        item.store(self.place(pushed));
        // ORDERING: Release pairs with the Acquire in `pop`.
        self.pushed.0.store(pushed + 1, Ordering::Release);
        true
    }

    /// Only one thread pops.
    #[inline(always)]
    pub(super) fn pop(&self) -> Option<T> {
        // ORDERING: Relaxed for its own position; Acquire pairs with the Release in `push`.
        let popped = self.popped.0.load(Ordering::Relaxed);
        if popped == self.pushed.0.load(Ordering::Acquire) {
            return None;
        }
        let item = T::load(self.place(popped));
        // ORDERING: Release pairs with the Acquire in `push`.
        self.popped.0.store(popped + 1, Ordering::Release);
        item
    }
}

/// The ends of FastForward (Giacomoni et al., PPoPP '08), without its temporal slipping: a place says by itself whether it is filled, and no
/// position is shared.
pub(super) struct FastForward<T: Item> {
    places: Arc<[T::Place]>,
    next: usize,
}

impl<T: Item> FastForward<T> {
    /// The end that pushes, and the end that pops.
    pub(super) fn new(slots: usize) -> [Self; 2] {
        let places: Arc<[T::Place]> = places::<T>(slots).into();
        [Self { places: places.clone(), next: 0 }, Self { places, next: 0 }]
    }

    #[inline(always)]
    fn step(&mut self) {
        self.next = if self.next + 1 == self.places.len() { 0 } else { self.next + 1 };
    }

    #[inline(always)]
    pub(super) fn push(&mut self, item: T) -> bool {
        let place = &self.places[self.next];
        if T::load(place).is_some() {
            return false;
        }
        item.store(place);
        self.step();
        true
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<T> {
        let place = &self.places[self.next];
        let item = T::load(place)?;
        T::empty(place);
        self.step();
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_first_in_first_out_and_refuse_when_full() {
        let lamport = Lamport::<[u64; 2]>::new(4);
        let [mut push, mut pop] = FastForward::<[u64; 2]>::new(4);
        for round in 0..5 {
            let numbers = round * 4..round * 4 + 4;
            assert!(numbers.clone().all(|number| lamport.push(Item::new(number)) && push.push(Item::new(number))));
            assert!(!lamport.push(Item::new(99)) && !push.push(Item::new(99)));
            for number in numbers {
                assert_eq!(
                    (lamport.pop().map(Item::number), pop.pop().map(Item::number)),
                    (Some(number), Some(number))
                );
            }
            assert!(lamport.pop().is_none() && pop.pop().is_none());
        }
    }
}
