//! Lock striping: one table cut into stripes by hash, each under its own spin lock (Herlihy, Shavit, "The Art of Multiprocessor
//! Programming", chapter 13; the table under spin locks in the HPSR '21 study).

use alloc::boxed::Box;

use locality::prefetch;
use packet::{Key, Nanos};

use crate::index::CuckooPp;
use crate::shared::baselines::exclusive::ExclusiveTable;
use crate::shared::spin::SpinLock;
use crate::shared::{Insertion, SharedTable, share};
use crate::{Index, Plan, Table};

/// The most stripes: enough that two cores seldom meet, few enough that each holds a fair sample of the flows.
const STRIPES_MAX: usize = 256;
/// The fewest flows a stripe, since each has a timing wheel of 40 KiB.
const STRIPE_FLOWS: usize = 512;
/// The first of the hash bits that number the stripe. The index inside uses the lowest byte and the upper half.
const STRIPE_SHIFT: u32 = 16;

/// A flow table under striped locks. Cores wait for each other only if their flows fall into the same stripe.
pub struct Striped<K, V, I = CuckooPp> {
    stripes: Box<[Stripe<K, V, I>]>,
    capacity: usize,
    memory_bytes: usize,
    seed: u64,
}

/// A stripe on two cache lines of its own, since processors fetch lines in pairs.
#[repr(align(128))]
struct Stripe<K, V, I>(SpinLock<ExclusiveTable<K, V, I>>);

impl<K: Key, V: Copy + Send + 'static, I: Index> Striped<K, V, I> {
    /// An empty table with a number of stripes that suits its capacity.
    ///
    /// # Panics
    /// As [`Table::planned`] does.
    #[must_use]
    pub fn planned(plan: Plan<I::Choice>) -> Self {
        Self::cut(plan, (plan.capacity / STRIPE_FLOWS).clamp(1, STRIPES_MAX).next_power_of_two())
    }

    /// An empty table cut into so many stripes. Each has room for more than its share, as hashes don't spread evenly.
    ///
    /// # Panics
    /// As [`Table::planned`] does, and if the number is not a power of two up to 2^16.
    #[must_use]
    pub fn cut(plan: Plan<I::Choice>, stripes: usize) -> Self {
        assert!(stripes.is_power_of_two() && stripes <= 1 << 16, "the number of stripes is a power of two up to 2^16");
        let share = share(plan.capacity, stripes);
        let stripe = || Stripe(SpinLock::new(ExclusiveTable(Table::planned(Plan { capacity: share, ..plan }))));
        let stripes: Box<[_]> = (0..stripes).map(|_| stripe()).collect();
        let inside = |stripe: &Stripe<K, V, I>| stripe.0.with(|table| table.0.memory_bytes() - size_of_val(&table.0));
        let memory_bytes = size_of::<Self>() + size_of_val(&*stripes) + stripes.iter().map(inside).sum::<usize>();
        Self { capacity: share * stripes.len(), memory_bytes, seed: plan.seed, stripes }
    }

    #[inline]
    fn stripe(&self, hash: u64) -> &SpinLock<ExclusiveTable<K, V, I>> {
        &self.stripes[(hash >> STRIPE_SHIFT) as usize & (self.stripes.len() - 1)].0
    }
}

impl<K: Key, V: Copy + Send + 'static, I: Index> SharedTable<K, V> for Striped<K, V, I> {
    fn new(capacity: usize, seed: u64) -> Self {
        Self::planned(Plan { capacity, seed, ..Plan::default() })
    }

    #[inline]
    fn hash(&self, key: &K) -> u64 {
        key.hash(self.seed)
    }

    /// Prefetches the lock; what it guards can't be prefetched without it.
    #[inline]
    fn prefetch(&self, hash: u64) {
        prefetch::address(core::ptr::from_ref(self.stripe(hash)).cast());
    }

    #[inline]
    fn prefetch_entry(&self, _: u64) {}

    #[inline]
    fn get(&self, key: &K, hash: u64, now: Nanos) -> Option<V> {
        self.stripe(hash).with(|table| table.get(key, hash, now))
    }

    #[inline]
    fn update<T>(&self, key: &K, hash: u64, now: Nanos, change: impl FnOnce(&mut V, &mut Nanos) -> T) -> Option<T> {
        self.stripe(hash).with(|table| table.update(key, hash, now, change))
    }

    #[inline]
    fn insert(&self, key: K, hash: u64, value: V, deadline: Nanos, now: Nanos) -> Insertion {
        self.stripe(hash).with(|table| table.insert(key, hash, value, deadline, now))
    }

    #[inline]
    fn remove(&self, key: &K, hash: u64, now: Nanos) -> Option<V> {
        self.stripe(hash).with(|table| table.remove(key, hash, now))
    }

    #[inline]
    fn reclaim(&self, hash: u64, now: Nanos) -> usize {
        self.stripe(hash).with(|table| table.reclaim(now))
    }

    fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.0.with(|table| table.0.len())).sum()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}
