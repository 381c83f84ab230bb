//! The contestants behind a common interface: our table with each of its indexes, DPDK's rte_hash in the ways in which it is used, and the
//! standard library's map.

use std::collections::HashMap;

use millrace_flow::index::{CuckooPp, Index, Tagged};
use millrace_flow::{Ageing, Hint, Plan, Table};
use packet::{FiveTuple4, Nanos};

use crate::rte::{self, Dpdk, Read, RteHash};
use crate::traffic::Part;

/// Packets looked up together.
const BURST: usize = 32;
/// The lifetime of a flow: that of most UDP flows.
pub(crate) const LIFETIME: Nanos = Nanos::from_secs(60);

/// The state of a flow; all look-ups read its first word.
pub(crate) trait State: Copy + Send + 'static {
    fn of(word: u64) -> Self;
    fn word(&self) -> u64;
}

impl State for u64 {
    fn of(word: u64) -> Self {
        word
    }

    fn word(&self) -> u64 {
        *self
    }
}

impl State for [u64; 3] {
    fn of(word: u64) -> Self {
        [word, 0, 0]
    }

    fn word(&self) -> u64 {
        self[0]
    }
}

/// The size of a table.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) places: usize,
    /// The lifetime of a flow, if flows age.
    pub(crate) lifetime: Nanos,
    /// The load factor of the full table in percent.
    pub(crate) load: usize,
}

impl Size {
    /// So many places at this load, and flows that live for a minute.
    pub(crate) const fn new(places: usize, load: usize) -> Self {
        Self { places, load, lifetime: LIFETIME }
    }

    /// How many flows are in the table then.
    pub(crate) const fn flows(self) -> usize {
        self.places * self.load / 100
    }
}

/// A table of flows by key: the operations of all contestants.
pub(crate) trait Flows {
    /// Inserts keys after a look-up; most are absent. Returns how many found a place.
    fn insert(&mut self, keys: Part<'_>) -> usize;
    /// Removes keys; returns how many were present.
    fn remove(&mut self, keys: Part<'_>) -> usize;
    /// Removes an old key and inserts a new one, in turn; returns how many of these operations succeeded.
    fn churn(&mut self, old: Part<'_>, new: Part<'_>) -> usize;
    /// Looks keys up; returns how many are present, and the sum of their states' first words.
    fn look(&mut self, keys: Part<'_>) -> (usize, u64);
    /// The memory in bytes.
    fn bytes(&self) -> usize;
}

/// A table that ages.
pub(crate) trait Aged: Flows {
    /// Opens a new flow a packet. Flows expire at the rate at which they come; without ageing the oldest is evicted for the new one.
    /// Returns how many were evicted.
    fn open(&mut self, keys: Part<'_>) -> usize;
}

/// A contestant's name and constructor.
pub(crate) type Ours = (&'static str, fn(Size, Ageing) -> Box<dyn Aged>);

/// Our table with each index. Add a line for a new index.
pub(crate) fn ours<V: State>() -> Vec<Ours> {
    vec![("cuckoo++", Burst::<V, CuckooPp>::boxed), ("tagged", Burst::<V, Tagged>::boxed)]
}

/// The ways in which a DPDK program uses rte_hash.
pub(crate) const RTE_HASHES: [Rte; 5] = [
    Rte { name: "rte_hash crc, bulk, states[position]", jhash: false, key_len: 13, read: Read::Array },
    Rte { name: "rte_hash crc, bulk_data", jhash: false, key_len: 13, read: Read::Data },
    Rte { name: "rte_hash crc, bulk, key padded to 16", jhash: false, key_len: 16, read: Read::Array },
    Rte { name: "rte_hash jhash, bulk, states[position]", jhash: true, key_len: 13, read: Read::Array },
    Rte { name: "(rte_hash crc, bulk, no state read)", jhash: false, key_len: 13, read: Read::Nothing },
];

/// A way to use rte_hash.
#[derive(Clone, Copy)]
pub(crate) struct Rte {
    pub(crate) name: &'static str,
    pub(crate) jhash: bool,
    pub(crate) key_len: u32,
    pub(crate) read: Read,
}

impl Rte {
    /// An empty table with 8 places a bucket; the number of buckets is the next power of two.
    pub(crate) fn make<'a>(self, dpdk: &'a Dpdk, places: usize, state_bytes: usize, extendable: bool) -> RteHash<'a> {
        let Self { jhash, key_len, read, .. } = self;
        let (entries, state_bytes) = (places as u32, state_bytes as u32);
        RteHash::new(dpdk, rte::Plan { entries, key_len, state_bytes, read, jhash, extendable })
    }
}

/// The standard library's map with its own hasher.
pub(crate) fn standard<V: State>(size: Size) -> Box<dyn Flows> {
    Box::new(HashMap::<FiveTuple4, V>::with_capacity(size.flows()))
}

/// Our table, used burst by burst.
struct Burst<V, I> {
    table: Table<FiveTuple4, V, I>,
    now: Nanos,
    /// Packet time between two packets.
    pace: Nanos,
    lifetime: Nanos,
}

impl<V: State, I: Index> Burst<V, I> {
    fn boxed(size: Size, ageing: Ageing) -> Box<dyn Aged> {
        let Size { load, lifetime, .. } = size;
        let plan = Plan {
            index: I::Choice::default(),
            capacity: size.flows(),
            load_percent: Some(load),
            ageing,
            seed: 0x0005_eed0_f10e,
        };
        // A flow lives while 99 % of the table's flows come.
        let pace = Nanos(lifetime.0 / (size.flows() * 99 / 100).max(1) as u64);
        Box::new(Self { table: Table::planned(plan), now: Nanos(0), pace, lifetime })
    }

    #[inline(always)]
    fn hash(&self, burst: &[FiveTuple4]) -> [u64; BURST] {
        let mut hashes = [0; BURST];
        for (hash, key) in hashes.iter_mut().zip(burst) {
            *hash = self.table.hash(key);
            self.table.prefetch(*hash);
        }
        hashes
    }

    #[inline(always)]
    fn hints(&self, hashes: &[u64]) -> [Hint; BURST] {
        let mut hints = [Hint::NOWHERE; BURST];
        for (hint, hash) in hints.iter_mut().zip(hashes) {
            *hint = self.table.prefetch_entry(*hash);
        }
        hints
    }

    /// Advances the time by so little that all flows are removed before they expire: [`Aged::open`] measures expiry.
    #[inline(always)]
    fn pass(&mut self) {
        self.now = self.now + Nanos(self.pace.0 / 4);
        assert_eq!(self.table.reclaim(self.now), None, "nobody lives so long");
    }

    /// The work of an engine on a packet of an unknown flow.
    #[inline(always)]
    fn put(&mut self, key: &FiveTuple4, hash: u64, word: u64) -> bool {
        let deadline = self.now + self.lifetime;
        self.table.find(key, hash).is_none() && self.table.insert(*key, hash, V::of(word), deadline, self.now).is_some()
    }
}

impl<V: State, I: Index> Flows for Burst<V, I> {
    fn insert(&mut self, keys: Part<'_>) -> usize {
        let mut done = 0;
        for (burst, words) in keys.tuples.chunks(BURST).zip(keys.words.chunks(BURST)) {
            let hashes = self.hash(burst);
            for ((key, hash), word) in burst.iter().zip(hashes).zip(words) {
                self.pass();
                done += usize::from(self.put(key, hash, *word));
            }
        }
        done
    }

    fn remove(&mut self, keys: Part<'_>) -> usize {
        let mut done = 0;
        for burst in keys.tuples.chunks(BURST) {
            let hashes = self.hash(burst);
            self.hints(&hashes[..burst.len()]);
            for (key, hash) in burst.iter().zip(hashes) {
                if let Some(slot) = self.table.find(key, hash) {
                    self.table.remove(slot);
                    done += 1;
                }
            }
        }
        done
    }

    fn churn(&mut self, old: Part<'_>, new: Part<'_>) -> usize {
        let mut done = 0;
        let bursts = old.tuples.chunks(BURST).zip(new.tuples.chunks(BURST));
        for ((old, new), words) in bursts.zip(new.words.chunks(BURST)) {
            let (gone, come) = (self.hash(old), self.hash(new));
            self.hints(&gone[..old.len()]);
            for at in 0..old.len().min(new.len()) {
                if let Some(slot) = self.table.find(&old[at], gone[at]) {
                    self.table.remove(slot);
                    done += 1;
                }
                self.pass();
                done += usize::from(self.put(&new[at], come[at], words[at]));
            }
        }
        done
    }

    fn look(&mut self, keys: Part<'_>) -> (usize, u64) {
        let (mut hits, mut sum) = (0, 0u64);
        for burst in keys.tuples.chunks(BURST) {
            let hashes = self.hash(burst);
            let hints = self.hints(&hashes[..burst.len()]);
            for ((key, hash), hint) in burst.iter().zip(hashes).zip(hints) {
                let word = match self.table.entry_at_hint(key, hint, self.now) {
                    Some(mut entry) => Some(entry.value_mut().word()),
                    None => self.table.find(key, hash).map(|slot| self.table.value(slot).word()),
                };
                hits += usize::from(word.is_some());
                sum = sum.wrapping_add(word.unwrap_or(0));
            }
        }
        (hits, sum)
    }

    fn bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

impl<V: State, I: Index> Aged for Burst<V, I> {
    fn open(&mut self, keys: Part<'_>) -> usize {
        let mut evicted = 0;
        for (burst, words) in keys.tuples.chunks(BURST).zip(keys.words.chunks(BURST)) {
            let hashes = self.hash(burst);
            // No flow is due, but an engine doesn't know that before.
            self.hints(&hashes[..burst.len()]);
            for ((key, hash), word) in burst.iter().zip(hashes).zip(words) {
                self.now = self.now + self.pace;
                // At most two a packet, so that the work is bounded; that is enough to keep up.
                for _ in 0..2 {
                    let Some(slot) = self.table.reclaim(self.now) else { break };
                    self.table.remove(slot);
                }
                if self.table.is_full()
                    && let Some(slot) = self.table.oldest_unprotected()
                {
                    self.table.remove(slot);
                    evicted += 1;
                }
                let is_in = self.put(key, hash, *word);
                assert!(is_in, "a new flow finds the place that an old one left");
            }
        }
        evicted
    }
}

impl Flows for RteHash<'_> {
    fn insert(&mut self, keys: Part<'_>) -> usize {
        RteHash::insert(self, keys)
    }

    fn remove(&mut self, keys: Part<'_>) -> usize {
        RteHash::remove(self, keys)
    }

    fn churn(&mut self, old: Part<'_>, new: Part<'_>) -> usize {
        RteHash::churn(self, old, new)
    }

    fn look(&mut self, keys: Part<'_>) -> (usize, u64) {
        RteHash::look(self, keys)
    }

    fn bytes(&self) -> usize {
        RteHash::bytes(self)
    }
}

impl<V: State> Flows for HashMap<FiveTuple4, V> {
    fn insert(&mut self, keys: Part<'_>) -> usize {
        let pairs = keys.tuples.iter().zip(keys.words);
        pairs.filter(|(key, word)| HashMap::insert(self, **key, V::of(**word)).is_none()).count()
    }

    fn remove(&mut self, keys: Part<'_>) -> usize {
        keys.tuples.iter().filter(|key| HashMap::remove(self, key).is_some()).count()
    }

    fn churn(&mut self, old: Part<'_>, new: Part<'_>) -> usize {
        let mut done = 0;
        for ((old, new), word) in old.tuples.iter().zip(new.tuples).zip(new.words) {
            done += usize::from(HashMap::remove(self, old).is_some());
            done += usize::from(HashMap::insert(self, *new, V::of(*word)).is_none());
        }
        done
    }

    fn look(&mut self, keys: Part<'_>) -> (usize, u64) {
        let (mut hits, mut sum) = (0, 0u64);
        for state in keys.tuples.iter().filter_map(|key| self.get(key)) {
            hits += 1;
            sum = sum.wrapping_add(state.word());
        }
        (hits, sum)
    }

    /// Seven eighths of its places may be used; each has a control byte.
    fn bytes(&self) -> usize {
        self.capacity() * 8 / 7 * (size_of::<(FiveTuple4, V)>() + 1)
    }
}
