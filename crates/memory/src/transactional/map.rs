//! A bounded hash map with separate chaining. Each bucket is an object, so accesses to different buckets never conflict.
//!
//! A bucket's first pair lies on its cache line, further ones in a chain of nodes. There are as many nodes as the capacity, and every pair
//! owns one, wherever it lies. So the free nodes, which are divided among the cores, are the remaining capacity.

use alloc::boxed::Box;
use core::marker::PhantomData;

use super::cause::Operation;
use super::log::{Access, ObjectView, Tx};
use super::object::{Objects, zeros};
use super::sync::AtomicU64;
use super::{Conflict, Transactional};
use crate::{Map, Name, Value};

/// A map in transactional memory: three cache lines for each two pairs, and a node for each pair.
pub struct TxMap<K, V> {
    buckets: Objects,
    nodes: Box<[AtomicU64]>,
    /// Each core's list of free nodes.
    rooms: Objects,
    seed: u64,
    of: PhantomData<(K, V)>,
}

/// The words of a bucket: its first chained node and the node that its own pair owns, each plus 1, or 0 for none; then the pair.
const CHAIN: usize = 0;
const OWN: usize = 1;
const PAIR: usize = 2;
/// The words of a core's free list: the first free node plus 1, and the number of nodes.
const FIRST: usize = 0;
const COUNT: usize = 1;
/// The most nodes that a core steals at once.
const STOLEN_MAX: u64 = 16;

/// Where a pair lies in its bucket.
#[derive(Clone, Copy)]
enum At {
    Own,
    /// In this node of the chain. The second field is the node before it; `None` if it is the first.
    Node(u64, Option<u64>),
}

impl<K: Name, V: Value> TxMap<K, V> {
    const STRIDE: usize = 1 + K::COUNT + V::COUNT;

    pub(super) fn new(capacity: usize, cores: usize, seed: u64) -> Self {
        assert!(u32::try_from(capacity).is_ok(), "a map of {capacity} pairs is beyond 32 bits");
        let (buckets, nodes) = (Objects::new(capacity + capacity / 2 + 1, PAIR + K::COUNT + V::COUNT), capacity);
        let map =
            Self { buckets, nodes: zeros(nodes * Self::STRIDE), rooms: Objects::new(cores, 2), seed, of: PhantomData };
        for core in 0..cores {
            let (from, to) = (nodes * core / cores, nodes * (core + 1) / cores);
            for node in from..to {
                let next = if node + 1 < to { node as u64 + 2 } else { 0 };
                map.nodes[node * Self::STRIDE].store(next, super::sync::Ordering::Relaxed);
            }
            let first = if from < to { from as u64 + 1 } else { 0 };
            map.rooms.init(core, 0, &[first, (to - from) as u64]);
        }
        map
    }

    /// A map's memory in bytes, except a cache line for each core.
    pub(crate) const fn bytes(capacity: usize) -> u64 {
        let nodes = capacity as u64 * (Self::STRIDE * size_of::<AtomicU64>()) as u64;
        nodes + Objects::bytes(capacity + capacity / 2 + 1, PAIR + K::COUNT + V::COUNT)
    }

    /// The key's bucket, and a number that identifies the key in a report.
    #[inline(always)]
    fn bucket(&self, key: &K) -> (usize, u32) {
        let hash = key.hash(self.seed);
        ((((hash >> 32) * self.buckets.len() as u64) >> 32) as usize, hash as u32 ^ (hash >> 32) as u32)
    }

    /// A word of the node with this number plus 1.
    #[inline(always)]
    fn node(&self, node: u64, at: usize) -> &AtomicU64 {
        &self.nodes[(node as usize - 1) * Self::STRIDE + at]
    }

    #[inline(always)]
    fn is_at(&self, key: &[u64], word: impl Fn(usize) -> u64) -> bool {
        key.iter().enumerate().all(|(at, part)| word(at) == *part)
    }

    /// Finds the key in a bucket that may be changing.
    #[inline(always)]
    fn find(&self, bucket: usize, key: &K, view: ObjectView<'_>) -> Option<At> {
        let words = key.to_words();
        let key = words.as_ref();
        let own = Tx::get(self.buckets.word(bucket, OWN));
        if own != 0 && self.is_at(key, |at| Tx::get(self.buckets.word(bucket, PAIR + at))) {
            return Some(At::Own);
        }
        let (mut before, mut node) = (None, Tx::get(self.buckets.word(bucket, CHAIN)));
        while node != 0 {
            if self.is_at(key, |at| Tx::get(self.node(node, 1 + at))) {
                return Some(At::Node(node, before));
            }
            before = Some(node);
            node = Tx::get(self.node(node, 0));
            // A node that has moved to another chain may lead anywhere.
            if view.has_changed() {
                return None;
            }
        }
        None
    }

    #[inline(always)]
    fn value(&self, bucket: usize, at: At) -> V::Array {
        let mut words = V::ZEROS;
        for (nth, word) in words.as_mut().iter_mut().enumerate() {
            *word = Tx::get(match at {
                At::Own => self.buckets.word(bucket, PAIR + K::COUNT + nth),
                At::Node(node, _) => self.node(node, 1 + K::COUNT + nth),
            });
        }
        words
    }

    #[inline(always)]
    fn look_up<'a>(&'a self, tx: &mut Tx<'a>, bucket: usize, key: &K, access: Access) -> Result<Option<V>, Conflict> {
        let words = tx.load(
            self.buckets.lock(bucket),
            access,
            #[inline(always)]
            move |view| self.find(bucket, key, view).map(|at| self.value(bucket, at)),
        )?;
        Ok(words.map(V::from_words))
    }

    /// Takes a free node from this core's list, or steals some from another core's.
    fn take_node<'a>(&'a self, tx: &mut Tx<'a>, access: Access) -> Result<Option<u64>, Conflict> {
        let core = tx.core();
        tx.lock(self.rooms.lock(core), access.on(Operation::MapRoom))?;
        if Tx::get(self.rooms.word(core, FIRST)) == 0 && !self.steal(tx, core, access.on(Operation::MapSteal))? {
            return Ok(None);
        }
        let node = Tx::get(self.rooms.word(core, FIRST));
        tx.set(self.rooms.word(core, FIRST), Tx::get(self.node(node, 0)));
        tx.set(self.rooms.word(core, COUNT), Tx::get(self.rooms.word(core, COUNT)) - 1);
        Ok(Some(node))
    }

    /// Steals some free nodes from the core that has the most; `false` if no core has any.
    #[cold]
    fn steal<'a>(&'a self, tx: &mut Tx<'a>, core: usize, access: Access) -> Result<bool, Conflict> {
        let mut most = (0, core);
        for other in (0..self.rooms.len()).filter(|&other| other != core) {
            let count = tx.load(self.rooms.lock(other), access, |_| Tx::get(self.rooms.word(other, COUNT)))?;
            most = most.max((count, other));
        }
        let (count, other) = most;
        if count == 0 {
            return Ok(false);
        }
        tx.lock(self.rooms.lock(other), access)?;
        let taken = count.div_ceil(2).min(STOLEN_MAX);
        let first = Tx::get(self.rooms.word(other, FIRST));
        let last = (1..taken).fold(first, |node, _| Tx::get(self.node(node, 0)));
        tx.set(self.rooms.word(other, FIRST), Tx::get(self.node(last, 0)));
        tx.set(self.rooms.word(other, COUNT), count - taken);
        tx.set(self.node(last, 0), 0);
        tx.set(self.rooms.word(core, FIRST), first);
        tx.set(self.rooms.word(core, COUNT), taken);
        Ok(true)
    }

    /// Puts a node on this core's free list.
    fn give_node<'a>(&'a self, tx: &mut Tx<'a>, node: u64, access: Access) -> Result<(), Conflict> {
        let core = tx.core();
        tx.lock(self.rooms.lock(core), access.on(Operation::MapRoom))?;
        tx.set(self.node(node, 0), Tx::get(self.rooms.word(core, FIRST)));
        tx.set(self.rooms.word(core, FIRST), node);
        tx.set(self.rooms.word(core, COUNT), Tx::get(self.rooms.word(core, COUNT)) + 1);
        Ok(())
    }

    #[inline(always)]
    fn set_value<'a>(&'a self, tx: &mut Tx<'a>, bucket: usize, at: At, value: &V) {
        for (nth, word) in value.to_words().as_ref().iter().enumerate() {
            let place = match at {
                At::Own => self.buckets.word(bucket, PAIR + K::COUNT + nth),
                At::Node(node, _) => self.node(node, 1 + K::COUNT + nth),
            };
            tx.set(place, *word);
        }
    }
}

impl<K: Name, V: Value> Map<K, V, Transactional> for TxMap<K, V> {
    #[inline]
    fn get<'a>(&'a self, tx: &mut Tx<'a>, key: &K) -> Result<Option<V>, Conflict> {
        let (bucket, about) = self.bucket(key);
        self.look_up(tx, bucket, key, Access::new(Operation::MapGet, about))
    }

    fn insert<'a>(&'a self, tx: &mut Tx<'a>, key: K, value: V) -> Result<bool, Conflict> {
        let (bucket, about) = self.bucket(&key);
        let access = Access::new(Operation::MapInsert, about);
        let view = tx.lock(self.buckets.lock(bucket), access)?;
        let at = match self.find(bucket, &key, view) {
            Some(at) => at,
            None => {
                let Some(node) = self.take_node(tx, access)? else { return Ok(false) };
                let words = key.to_words();
                if Tx::get(self.buckets.word(bucket, OWN)) == 0 {
                    tx.set(self.buckets.word(bucket, OWN), node);
                    self.buckets.set(tx, bucket, PAIR, &key);
                    At::Own
                } else {
                    for (nth, word) in words.as_ref().iter().enumerate() {
                        tx.set(self.node(node, 1 + nth), *word);
                    }
                    tx.set(self.node(node, 0), Tx::get(self.buckets.word(bucket, CHAIN)));
                    tx.set(self.buckets.word(bucket, CHAIN), node);
                    At::Node(node, None)
                }
            }
        };
        self.set_value(tx, bucket, at, &value);
        Ok(true)
    }

    fn remove<'a>(&'a self, tx: &mut Tx<'a>, key: &K) -> Result<Option<V>, Conflict> {
        let (bucket, about) = self.bucket(key);
        let access = Access::new(Operation::MapRemove, about);
        // An absent key is looked up without a lock.
        let Some(value) = self.look_up(tx, bucket, key, access)? else { return Ok(None) };
        let view = tx.lock(self.buckets.lock(bucket), access)?;
        let node = match self.find(bucket, key, view) {
            Some(At::Own) => {
                let node = Tx::get(self.buckets.word(bucket, OWN));
                tx.set(self.buckets.word(bucket, OWN), 0);
                node
            }
            Some(At::Node(node, before)) => {
                let place = before.map_or(self.buckets.word(bucket, CHAIN), |before| self.node(before, 0));
                tx.set(place, Tx::get(self.node(node, 0)));
                node
            }
            None => unreachable!("what was read holds at the version that was locked"),
        };
        self.give_node(tx, node, access)?;
        Ok(Some(value))
    }

    #[inline]
    fn prefetch(&self, key: &K) {
        self.buckets.prefetch(self.bucket(key).0);
    }

    #[inline]
    fn hint(&self, key: &K) -> Option<V> {
        let (bucket, _) = self.bucket(key);
        let lock = self.buckets.lock(bucket);
        let found = lock.read_outside(|view| self.find(bucket, key, view).map(|at| self.value(bucket, at)));
        found.flatten().map(V::from_words)
    }
}
