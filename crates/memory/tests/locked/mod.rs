//! Memory that all cores share under one lock: a step takes the lock at its first access to shared state and holds it to its end.
//!
//! Steps never fail and never overlap. `Transactional` memory is compared with this. The order of the steps is the
//! order in which the operating system grants the lock.

use core::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use packet::Nanos;

use millrace_memory::{
    Allocator, Distributed, Local, LocalAllocator, LocalDistributed, LocalMap, LocalTx, LocalVector, Map, Memory, Name,
    Portion, Value, Vector,
};

/// A memory of local structures under one lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locked {
    lock: Arc<Mutex<()>>,
    local: Local,
}

/// A running step. It holds the lock from its first access until it is dropped.
#[derive(Debug)]
pub(crate) struct LockedTx<'a> {
    lock: &'a Mutex<()>,
    held: Option<MutexGuard<'a, ()>>,
}

/// A structure of a locked memory. Its own mutex is never contended, since its user holds the memory's lock; it satisfies the compiler.
pub(crate) struct Guarded<S>(Mutex<S>);

impl Locked {
    /// Memory with a hash seed for its maps, as in [`Local::keyed`].
    #[must_use]
    pub(crate) fn keyed(seed: u64) -> Self {
        Self { lock: Arc::default(), local: Local::keyed(seed) }
    }

    /// Begins a step. On one thread a step must end before the next begins.
    #[must_use]
    pub(crate) fn begin(&self) -> LockedTx<'_> {
        LockedTx { lock: &self.lock, held: None }
    }
}

impl LockedTx<'_> {
    /// Takes the lock unless the step holds it.
    #[inline]
    fn enter(&mut self) {
        if self.held.is_none() {
            // Ignores poisoning: a step that panicked leaves plain data, and its run is over.
            self.held = Some(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl<S> Guarded<S> {
    fn new(structure: S) -> Self {
        Self(Mutex::new(structure))
    }

    #[inline]
    fn get(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The structure, with the memory's lock held.
    #[inline]
    fn of(&self, tx: &mut LockedTx<'_>) -> MutexGuard<'_, S> {
        tx.enter();
        self.get()
    }
}

impl Memory for Locked {
    type Conflict = Infallible;
    type Tx<'a> = LockedTx<'a>;
    type Vector<T: Value> = Guarded<LocalVector<T>>;
    type Map<K: Name, V: Value> = Guarded<LocalMap<K, V>>;
    type Allocator = Guarded<LocalAllocator>;
    type Distributed<T: Portion> = Guarded<LocalDistributed<T>>;

    fn take<'a>(tx: &mut LockedTx<'a>) -> LockedTx<'a>
    where
        'a: 'a,
    {
        LockedTx { lock: tx.lock, held: tx.held.take() }
    }

    fn vector<T: Value>(&self, len: usize, initial: T) -> Self::Vector<T> {
        Guarded::new(self.local.vector(len, initial))
    }

    fn map<K: Name, V: Value>(&self, capacity: usize) -> Self::Map<K, V> {
        Guarded::new(self.local.map(capacity))
    }

    fn allocator(&self, capacity: usize) -> Self::Allocator {
        Guarded::new(self.local.allocator(capacity))
    }

    /// There is one portion, so no read is stale.
    fn distributed<T: Portion>(&self, empty: T, staleness: Nanos) -> Self::Distributed<T> {
        Guarded::new(self.local.distributed(empty, staleness))
    }
}

/// Forwards methods to the local structure, under the lock.
macro_rules! under_the_lock {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        #[inline]
        fn $name<'a>(&'a self, tx: &mut LockedTx<'a>, $($argument: $type),*) -> Result<$answer, Infallible> {
            self.of(tx).$name(&mut LocalTx::default(), $($argument),*)
        }
    )*};
}

impl<T: Value> Vector<T, Locked> for Guarded<LocalVector<T>> {
    fn len(&self) -> usize {
        self.get().len()
    }

    under_the_lock! {
        read(index: usize) -> T;
        write(index: usize, value: T) -> ();
    }
}

impl<K: Name, V: Value> Map<K, V, Locked> for Guarded<LocalMap<K, V>> {
    under_the_lock! {
        get(key: &K) -> Option<V>;
        insert(key: K, value: V) -> bool;
        remove(key: &K) -> Option<V>;
    }
}

impl Allocator<Locked> for Guarded<LocalAllocator> {
    fn capacity(&self) -> usize {
        self.get().capacity()
    }

    under_the_lock! {
        allocate(deadline: Nanos) -> Option<usize>;
        allocate_exact(index: usize, deadline: Nanos) -> bool;
        deadline(index: usize) -> Option<Nanos>;
        refresh(index: usize, deadline: Nanos) -> ();
        free(index: usize) -> ();
        expire(now: Nanos) -> Option<usize>;
    }
}

impl<T: Portion> Distributed<T, Locked> for Guarded<LocalDistributed<T>> {
    under_the_lock! {
        update(change: impl FnOnce(&mut T)) -> ();
        read(now: Nanos) -> T;
    }
}
