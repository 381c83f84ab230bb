//! One table under one lock: coarse-grained synchronisation (Herlihy, Shavit, "The Art of Multiprocessor Programming", chapter 13). The
//! other shared tables are compared with it.
//!
//! The lock is the standard library's, which puts a core to sleep that waits long.

use locality::prefetch;
use packet::{Key, Nanos};

use crate::index::CuckooPp;
use crate::shared::baselines::exclusive::ExclusiveTable;
use crate::shared::sync::{Mutex, PoisonError};
use crate::shared::{Insertion, SharedTable};
use crate::{Index, Plan, Table};

/// A flow table under one mutex.
pub struct Locked<K, V, I = CuckooPp> {
    table: Mutex<ExclusiveTable<K, V, I>>,
    capacity: usize,
    memory_bytes: usize,
    seed: u64,
}

impl<K: Key, V: Copy + Send + 'static, I: Index> Locked<K, V, I> {
    /// An empty table with these parameters.
    ///
    /// # Panics
    /// As [`Table::planned`] does.
    #[must_use]
    pub fn planned(plan: Plan<I::Choice>) -> Self {
        let table = Table::planned(plan);
        let memory_bytes = size_of::<Self>() - size_of_val(&table) + table.memory_bytes();
        Self { capacity: table.capacity(), memory_bytes, seed: plan.seed, table: Mutex::new(ExclusiveTable(table)) }
    }

    /// Ignores poisoning: a panic inside an operation leaves the table consistent.
    #[inline]
    fn with<T>(&self, work: impl FnOnce(&mut ExclusiveTable<K, V, I>) -> T) -> T {
        work(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Key, V: Copy + Send + 'static, I: Index> SharedTable<K, V> for Locked<K, V, I> {
    fn new(capacity: usize, seed: u64) -> Self {
        Self::planned(Plan { capacity, seed, ..Plan::default() })
    }

    #[inline]
    fn hash(&self, key: &K) -> u64 {
        key.hash(self.seed)
    }

    /// Prefetches the lock; what it guards can't be prefetched without it.
    #[inline]
    fn prefetch(&self, _: u64) {
        prefetch::start(&self.table);
    }

    #[inline]
    fn prefetch_entry(&self, _: u64) {}

    #[inline]
    fn get(&self, key: &K, hash: u64, now: Nanos) -> Option<V> {
        self.with(|table| table.get(key, hash, now))
    }

    #[inline]
    fn update<T>(&self, key: &K, hash: u64, now: Nanos, change: impl FnOnce(&mut V, &mut Nanos) -> T) -> Option<T> {
        self.with(|table| table.update(key, hash, now, change))
    }

    #[inline]
    fn insert(&self, key: K, hash: u64, value: V, deadline: Nanos, now: Nanos) -> Insertion {
        self.with(|table| table.insert(key, hash, value, deadline, now))
    }

    #[inline]
    fn remove(&self, key: &K, hash: u64, now: Nanos) -> Option<V> {
        self.with(|table| table.remove(key, hash, now))
    }

    #[inline]
    fn reclaim(&self, _: u64, now: Nanos) -> usize {
        self.with(|table| table.reclaim(now))
    }

    fn len(&self) -> usize {
        self.with(|table| table.0.len())
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}
