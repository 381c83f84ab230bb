//! Tables that several cores share, by the designs that the literature compares.
//!
//! Beside them stands the table that needs no sharing: a [`Table`](crate::Table) for each core.

mod adding;
mod bucket;
mod entries;
mod epoch_reclaim;
mod exclusive;
mod guard;
mod mutex;
mod optimistic;
mod path;
mod signposts;
mod spin;
mod striped;
mod sync;

use packet::{Key, Nanos};

pub use adding::{Adding, Sum};
pub use entries::{Entries, RemovedFlow, StripeGuard};
pub use epoch_reclaim::{EpochMember, Epochs};
pub use guard::{Fate, Guard, GuardedEntry, Locking, StepPermit};
pub use mutex::Locked;
pub use optimistic::Optimistic;
pub use striped::Striped;
#[cfg(loom)]
pub use sync::Fault;

/// Flows by key for many cores at once, bounded in number, with deadlines in packet time.
///
/// Each operation takes effect at one instant between its call and its return. A burst of packets is best taken stage by
/// stage: [`hash`](Self::hash) and [`prefetch`](Self::prefetch), then [`prefetch_entry`](Self::prefetch_entry), then the
/// operation itself. `hash` is the key's in all functions that take one.
///
/// Expiry is logical: a flow whose deadline is at or before `now` is not there for whoever asks. Cores may hold packets of
/// different times; a flow that is dead to one may make room for another although it lives for a core that lags behind.
pub trait SharedTable<K: Key, V: Copy>: Send + Sync + Sized + 'static {
    /// An empty table for about `capacity` flows; `seed` keys the hash.
    ///
    /// # Panics
    /// When the capacity needs 2^31 places or more, and when memory runs out.
    #[must_use]
    fn new(capacity: usize, seed: u64) -> Self;

    /// The key's hash in this table.
    #[must_use]
    fn hash(&self, key: &K) -> u64;

    /// Brings near what an operation reads first, as far as that can be told without a lock.
    fn prefetch(&self, hash: u64);

    /// Brings near the entries that an operation probably reads. What [`prefetch`](Self::prefetch) asked for should be near
    /// by now.
    fn prefetch_entry(&self, hash: u64);

    /// A copy of the flow's value.
    #[must_use]
    fn get(&self, key: &K, hash: u64, now: Nanos) -> Option<V>;

    /// Changes the flow's value and deadline; what `change` returns. It is called once at most, while others wait for the
    /// flow: it should be short, and must not use the table.
    fn update<T>(&self, key: &K, hash: u64, now: Nanos, change: impl FnOnce(&mut V, &mut Nanos) -> T) -> Option<T>;

    /// Adds a flow, unless there is one of this key or no room. A deadline of zero is the first nanosecond.
    fn insert(&self, key: K, hash: u64, value: V, deadline: Nanos, now: Nanos) -> Insertion;

    /// Takes a flow out; its value.
    fn remove(&self, key: &K, hash: u64, now: Nanos) -> Option<V>;

    /// Does one bounded unit of the work of ageing; how many dead flows it took away. `hash` says where, in tables that have
    /// parts: a packet's hash ages what its operation has brought near already, and numbers that are spread evenly age all.
    fn reclaim(&self, hash: u64, now: Nanos) -> usize;

    /// How many flows there are, dead ones among them that nobody has taken away. It may walk the whole table, and is a
    /// guess while others write.
    #[must_use]
    fn len(&self) -> usize;

    /// Whether there are none.
    #[must_use]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most flows that there can be.
    #[must_use]
    fn capacity(&self) -> usize;

    /// What the table takes, in bytes.
    #[must_use]
    fn memory_bytes(&self) -> usize;
}

/// What became of a new flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It is in.
    Added,
    /// There is a flow of its key, which stays as it is.
    Present,
    /// There is no room for it.
    Full,
}
