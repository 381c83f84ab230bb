//! Flow tables that several cores share, by the designs of the literature.
//!
//! The alternative without sharing is a [`Table`](crate::Table) for each core.

mod adding;
pub mod baselines;
mod entries;
mod epoch_reclaim;
mod guard;
mod signposts;
mod spin;
mod sync;

use packet::{Key, Nanos};

pub use adding::{Adding, Sum};
pub use entries::{Entries, RemovedFlow, StripeGuard};
pub use epoch_reclaim::{EpochMember, Epochs};
pub use guard::{Fate, Guard, GuardedEntry, Locking, StepPermit};
#[cfg(loom)]
pub use sync::Fault;

/// A bounded table of flows that several cores use at once, with deadlines in packet time.
///
/// Each operation is linearizable: it takes effect at one instant between call and return. Look packets up in bursts, one stage for the
/// whole burst at a time: [`hash`](Self::hash) and [`prefetch`](Self::prefetch), then [`prefetch_entry`](Self::prefetch_entry), then the
/// operation. `hash` is always the key's hash.
///
/// A flow whose deadline is at or before `now` counts as absent. Cores may hold packets of different times. So one core may replace a flow
/// that has expired for it, although it is still alive for a core that lags behind.
pub trait SharedTable<K: Key, V: Copy>: Send + Sync + Sized + 'static {
    /// An empty table for about `capacity` flows; `seed` is the hash seed.
    ///
    /// # Panics
    /// If the capacity needs 2^31 places or more, and if memory runs out.
    #[must_use]
    fn new(capacity: usize, seed: u64) -> Self;

    /// The key's hash in this table.
    #[must_use]
    fn hash(&self, key: &K) -> u64;

    /// Prefetches what an operation reads first, as far as that is known without a lock.
    fn prefetch(&self, hash: u64);

    /// Prefetches the entries that an operation probably reads. Call [`prefetch`](Self::prefetch) some time before.
    fn prefetch_entry(&self, hash: u64);

    /// A copy of the flow's value.
    #[must_use]
    fn get(&self, key: &K, hash: u64, now: Nanos) -> Option<V>;

    /// Changes the flow's value and deadline and returns the result of `change`. `change` is called at most once, while other cores wait
    /// for the flow: it should be short, and must not use the table.
    fn update<T>(&self, key: &K, hash: u64, now: Nanos, change: impl FnOnce(&mut V, &mut Nanos) -> T) -> Option<T>;

    /// Adds a flow, unless its key is present or there is no room. A deadline of 0 becomes 1 ns.
    fn insert(&self, key: K, hash: u64, value: V, deadline: Nanos, now: Nanos) -> Insertion;

    /// Removes a flow and returns its value.
    fn remove(&self, key: &K, hash: u64, now: Nanos) -> Option<V>;

    /// Does one bounded unit of ageing and returns how many expired flows it removed. In tables of several parts `hash` chooses the part:
    /// with a packet's hash it is the part that the packet's operation has cached already. Hashes that are spread evenly age the whole
    /// table.
    fn reclaim(&self, hash: u64, now: Nanos) -> usize;

    /// The number of flows, including expired ones that are not removed yet. It may read the whole table, and is a guess while others
    /// write.
    #[must_use]
    fn len(&self) -> usize;

    /// True if there are no flows.
    #[must_use]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most flows that there can be.
    #[must_use]
    fn capacity(&self) -> usize;

    /// The table's memory in bytes.
    #[must_use]
    fn memory_bytes(&self) -> usize;
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The flow was added.
    Added,
    /// The key is present; its flow is unchanged.
    Present,
    /// There is no room.
    Full,
}

/// The capacity of a stripe: its share of the flows plus eight standard deviations, and at most all of them.
fn share(flows: usize, stripes: usize) -> usize {
    let mean = flows.div_ceil(stripes);
    flows.min(mean + 8 * mean.isqrt() + 16)
}
