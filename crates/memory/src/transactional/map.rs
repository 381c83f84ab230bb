//! A bounded map of buckets, each an object: what is in different buckets never collides.
//!
//! A bucket's first pair lies on its line, further ones in nodes behind it. There are as many nodes as pairs fit, and every
//! pair holds one, wherever it lies: so the nodes that are free, which are shared out among the cores, are the room left.

use alloc::boxed::Box;
use core::marker::PhantomData;

use super::cause::Operation;
use super::log::{Access, ObjectView, Tx};
use super::object::{Objects, zeros};
use super::sync::AtomicU64;
use super::{Conflict, Transactional};
use crate::{Map, Name, Value};

/// A map in transactional memory: three lines for each two pairs that fit, and a node for each.
pub struct TxMap<K, V> {
    buckets: Objects,
    nodes: Box<[AtomicU64]>,
    /// Each core's share of the free nodes.
    rooms: Objects,
    seed: u64,
    of: PhantomData<(K, V)>,
}

/// A bucket's words: the first node behind it and the node of its own pair, each plus one, 0 being none; then the pair.
const CHAIN: usize = 0;
const OWN: usize = 1;
const PAIR: usize = 2;
/// A room's words: the first free node plus one, and how many there are.
const FIRST: usize = 0;
const COUNT: usize = 1;
/// How many nodes a core takes from another's share at most.
const STOLEN_MAX: u64 = 16;

/// Where a pair is in its bucket.
#[derive(Clone, Copy)]
enum At {
    Own,
    /// In this node, which the word before leads to.
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

    /// What a map takes, but for a line for each core.
    pub(crate) const fn bytes(capacity: usize) -> u64 {
        let nodes = capacity as u64 * (Self::STRIDE * size_of::<AtomicU64>()) as u64;
        nodes + Objects::bytes(capacity + capacity / 2 + 1, PAIR + K::COUNT + V::COUNT)
    }

    /// The key's bucket, and what tells it from others in a report.
    #[inline(always)]
    fn bucket(&self, key: &K) -> (usize, u32) {
        let hash = key.hash(self.seed);
        ((((hash >> 32) * self.buckets.len() as u64) >> 32) as usize, hash as u32 ^ (hash >> 32) as u32)
    }

    /// A word of a node, which is named by its number plus one.
    #[inline(always)]
    fn node(&self, node: u64, at: usize) -> &AtomicU64 {
        &self.nodes[(node as usize - 1) * Self::STRIDE + at]
    }

    #[inline(always)]
    fn is_at(&self, key: &[u64], word: impl Fn(usize) -> u64) -> bool {
        key.iter().enumerate().all(|(at, part)| word(at) == *part)
    }

    /// Where the key is in a bucket that may be changing.
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
            // A node that has gone elsewhere leads anywhere.
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

    /// Takes a free node, from another core's share if there is none in this core's.
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

    /// Takes some of the free nodes of the core that has most; `false` when no core has any.
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

    /// Gives a node to this core's share.
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
        // A key that isn't there is looked for without a lock.
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
