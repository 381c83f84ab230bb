//! A bounded hash map: linear probing at a load of one half at most, with deletion by shifting back (Knuth, vol. 3, 6.4, algorithm R).
//! There are no tombstones, so it doesn't degrade over time.

use core::cell::Cell;
use core::convert::Infallible;

use super::{Local, LocalTx};
use crate::{Map, Name, Value};
use locality::pages::{Filling, STEP, Slot, Zeros};
use locality::prefetch;

/// A map in local memory: two slots for each pair, 32 bytes a slot for a five-tuple and an index.
pub struct LocalMap<K, V> {
    /// Each pair with the top half of its key's hash, which gives its home.
    slots: Zeros<Slot<(V, K)>>,
    len: Cell<usize>,
    /// At this number of pairs the next part is put on a huge page.
    collapse_at: Cell<usize>,
    capacity: usize,
    /// The hash seed. It doesn't change any result.
    seed: u64,
}

impl<K: Name, V: Value> LocalMap<K, V> {
    pub(super) fn new(capacity: usize, seed: u64) -> Self {
        let slots = capacity.checked_mul(2).expect("a map's capacity fits the address space").max(1);
        assert!(u32::try_from(slots).is_ok(), "a map of {capacity} pairs is beyond 32 bits");
        let slots = Zeros::new(slots, Filling::Scattered);
        Self { slots, len: Cell::new(0), collapse_at: Cell::new(STEP), capacity, seed }
    }

    /// A map's memory in bytes.
    pub(crate) const fn bytes(capacity: usize) -> u64 {
        2 * capacity as u64 * size_of::<Slot<(V, K)>>() as u64
    }

    #[inline]
    fn hash(&self, key: &K) -> u32 {
        (key.hash(self.seed) >> 32) as u32
    }

    /// The slot where probing begins: the hash scaled to the number of slots (Lemire, "fastrange").
    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// The slot with the key, or the empty slot at the end of its probe. Probing ends, since half of all slots are empty; a map of capacity
    /// 0 has one slot, which stays empty.
    #[inline]
    fn find(&self, hash: u32, key: &K) -> (usize, Option<V>) {
        let mut at = self.home(hash);
        loop {
            match self.slots[at].get() {
                None => return (at, None),
                Some((other, (value, found))) if other == hash && found == *key => return (at, Some(value)),
                Some(_) => at = self.next(at),
            }
        }
    }

    /// Puts the next part on a huge page.
    #[cold]
    #[inline(never)]
    fn collapse_next(&self) {
        let at = self.collapse_at.get();
        self.collapse_at.set(if self.slots.collapse(at / STEP - 1) { at + STEP } else { usize::MAX });
    }

    /// Empties the slot and moves back the pairs that could no longer be found behind the hole.
    fn shift_back(&self, mut hole: usize) {
        let mut at = hole;
        loop {
            at = self.next(at);
            let Some((hash, pair)) = self.slots[at].get() else { break };
            // The pair may fill the hole unless its home lies behind the hole, in probing order up to `at`.
            let home = self.home(hash);
            let stays = if hole <= at { hole < home && home <= at } else { hole < home || home <= at };
            if !stays {
                self.slots[hole].set(hash, pair);
                hole = at;
            }
        }
        self.slots[hole].clear();
    }
}

impl<K: Name, V: Value> Map<K, V, Local> for LocalMap<K, V> {
    #[inline]
    fn get<'a>(&'a self, _: &mut LocalTx<'a>, key: &K) -> Result<Option<V>, Infallible> {
        if self.len.get() == 0 {
            return Ok(None);
        }
        Ok(self.find(self.hash(key), key).1)
    }

    fn insert<'a>(&'a self, _: &mut LocalTx<'a>, key: K, value: V) -> Result<bool, Infallible> {
        let hash = self.hash(&key);
        let (at, known) = self.find(hash, &key);
        if known.is_none() {
            if self.len.get() == self.capacity {
                return Ok(false);
            }
            self.len.set(self.len.get() + 1);
            if self.len.get() >= self.collapse_at.get() {
                self.collapse_next();
            }
        }
        self.slots[at].set(hash, (value, key));
        Ok(true)
    }

    fn remove<'a>(&'a self, _: &mut LocalTx<'a>, key: &K) -> Result<Option<V>, Infallible> {
        let (at, value) = self.find(self.hash(key), key);
        if value.is_some() {
            self.len.set(self.len.get() - 1);
            self.shift_back(at);
        }
        Ok(value)
    }

    #[inline]
    fn prefetch(&self, key: &K) {
        if self.len.get() == 0 {
            return;
        }
        if let Some(slot) = self.slots.get(self.home(self.hash(key))) {
            prefetch::all(slot);
        }
    }

    #[inline]
    fn hint(&self, key: &K) -> Option<V> {
        self.find(self.hash(key), key).1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::Memory;
    use packet::Key;

    /// A key whose hash takes few values, so that runs are long and wrap around the end.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Crowded(u16);

    packet::words! {
        Crowded: [1], key => [u64::from(key.0)], words => Self(words[0] as u16);
        Spread: [1], key => [u64::from(key.0)], words => Self(words[0] as u16);
    }

    impl Key for Crowded {
        fn hash(&self, _: u64) -> u64 {
            u64::from(self.0 % 5).wrapping_mul(0x3fff_ffff_ffff_ffff)
        }
    }

    /// As a real key hashes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Spread(u16);

    impl Key for Spread {
        fn hash(&self, seed: u64) -> u64 {
            (u64::from(self.0) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Get(u16),
        Insert(u16, u32),
        Remove(u16),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            (0u16..40).prop_map(Op::Get),
            (0u16..40, any::<u32>()).prop_map(|(key, value)| Op::Insert(key, value)),
            (0u16..40).prop_map(Op::Remove),
        ];
        proptest::collection::vec(op, 0..400)
    }

    fn agrees_with_hash_map<K: Name + core::hash::Hash>(capacity: usize, ops: &[Op], key: fn(u16) -> K) {
        let map: LocalMap<K, u32> = Local::default().map(capacity);
        let mut tx = LocalTx::default();
        let mut model = HashMap::new();
        for &op in ops {
            match op {
                Op::Get(k) => assert_eq!(map.get(&mut tx, &key(k)), Ok(model.get(&key(k)).copied())),
                Op::Insert(k, value) => {
                    let fits = model.contains_key(&key(k)) || model.len() < capacity;
                    assert_eq!(map.insert(&mut tx, key(k), value), Ok(fits));
                    if fits {
                        model.insert(key(k), value);
                    }
                }
                Op::Remove(k) => assert_eq!(map.remove(&mut tx, &key(k)), Ok(model.remove(&key(k)))),
            }
        }
        for k in 0..40 {
            assert_eq!(map.get(&mut tx, &key(k)), Ok(model.get(&key(k)).copied()));
        }
    }

    proptest! {
        #[test]
        fn is_a_bounded_hash_map(capacity in 0usize..32, ops in ops()) {
            agrees_with_hash_map(capacity, &ops, Spread);
            agrees_with_hash_map(capacity, &ops, Crowded);
        }
    }

    #[test]
    fn a_slot_for_a_five_tuple_takes_half_a_cache_line() {
        assert_eq!(size_of::<Slot<(u32, packet::FiveTuple4)>>(), 32);
    }
}
