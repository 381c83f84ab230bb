//! The state that all packet sets share: vectors, maps, index pools and distributed objects, in one of several memories.
//!
//! A network function is generic over its [`Memory`] and is written once. Every access takes its transaction and may fail with the memory's
//! conflict, so the author writes `?` and nothing else. Under [`Local`], where each core has its own copy, the conflict is
//! [`Infallible`](core::convert::Infallible) and the `?` compiles to nothing. Under
//! [`Transactional`], a conflict aborts the transaction, and the engine runs the step again.
//!
//! An access borrows the structure for as long as the transaction lives, so a transaction can keep references to what it reads and writes.
//!
//! ```
//! use millrace_memory::{Local, LocalTx, Map, Memory, Transactional};
//! use packet::{Host, Host4};
//!
//! /// Counts the visits of a host. It runs in any memory.
//! fn visit<'a, M: Memory>(visits: &'a M::Map<Host4, u64>, tx: &mut M::Tx<'a>, host: Host4) -> Result<u64, M::Conflict> {
//!     let count = visits.get(tx, &host)?.unwrap_or(0) + 1;
//!     visits.insert(tx, host, count)?;
//!     Ok(count)
//! }
//!
//! let Host::V4(host) = Host::v4([10, 0, 0, 1].into()) else { unreachable!() };
//!
//! // A core's own copy: nothing can fail.
//! let visits = Local::keyed(1).map(100);
//! let Ok(count) = visit::<Local>(&visits, &mut LocalTx::default(), host);
//! assert_eq!(count, 1);
//!
//! // Memory that two cores share. Here one of them commits a transaction.
//! let memory = Transactional::new(2, 1);
//! let visits = memory.map(100);
//! let mut handles = memory.core_handles();
//! let mut log = handles[0].log(&memory);
//! let mut tx = log.begin();
//! assert_eq!(visit::<Transactional>(&visits, &mut tx, host).expect("no other core runs"), 1);
//! tx.commit().expect("no other core runs");
//! ```
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate self as millrace_memory;

mod local;
#[cfg(test)]
#[path = "../tests/locked/mod.rs"]
mod locked;
pub mod transactional;
mod weighed;
mod wheel;

use alloc::vec::Vec;

pub use local::{Local, LocalAllocator, LocalDistributed, LocalMap, LocalTx, LocalVector};
use packet::{Key, Nanos, Words};
pub use transactional::Transactional;
pub use weighed::{Absent, Weighed};

/// Plain data that shared structures hold. It converts to words, so that cores can share it word by word; use [`packet::words!`] to
/// implement that.
pub trait Value: Words + Send + Sync + 'static {}
impl<T: Words + Send + Sync + 'static> Value for T {}

/// The key of a [`Map`].
pub trait Name: Key + Words {}
impl<K: Key + Words> Name for K {}

/// A part of a [`Distributed`] object. Each core has one; all of them merged are the whole.
pub trait Portion: Value {
    /// Adds another core's portion. The result must not depend on the order of merging.
    fn merge(&mut self, other: &Self);
}

/// A memory that shared state can live in.
pub trait Memory: Sized + Send + Sync + 'static {
    /// The reason why an access failed. The engine undoes the step and runs it again.
    type Conflict: core::fmt::Debug;
    /// The transaction of one step. It begins before the handler and commits after it.
    type Tx<'a>;
    /// An array of fixed length.
    type Vector<T: Value>: Vector<T, Self>;
    /// A bounded map.
    type Map<K: Name, V: Value>: Map<K, V, Self>;
    /// A bounded pool of indices with ageing.
    type Allocator: Allocator<Self>;
    /// An object that is changed often, and read seldom or with some staleness.
    type Distributed<T: Portion>: Distributed<T, Self>;

    /// Takes the transaction to another place, for a part of the step that has its own view of shared state. It must be put back before
    /// anything is accessed here again.
    fn take<'a>(tx: &mut Self::Tx<'a>) -> Self::Tx<'a>;

    /// Makes the transaction irrevocable: from here on it can't fail, so the step may change what lies in no memory. By default nothing has
    /// to be done, since steps run once.
    ///
    /// # Errors
    /// If the transaction has accessed shared state before. The step then runs again, irrevocably from the start.
    fn irrevocable(_tx: &mut Self::Tx<'_>) -> Result<(), Self::Conflict> {
        Ok(())
    }

    /// Makes an array of `len` elements, all `initial`.
    fn vector<T: Value>(&self, len: usize, initial: T) -> Self::Vector<T>;

    /// Makes an empty map for up to `capacity` pairs.
    fn map<K: Name, V: Value>(&self, capacity: usize) -> Self::Map<K, V>;

    /// Makes a pool of the indices `0..capacity`, all free.
    ///
    /// # Panics
    /// If `capacity` does not fit 32 bits.
    fn allocator(&self, capacity: usize) -> Self::Allocator;

    /// Makes an object whose portions are all `empty`. A read may miss changes that other cores made within `staleness`.
    fn distributed<T: Portion>(&self, empty: T, staleness: Nanos) -> Self::Distributed<T>;
}

/// An array of fixed length, shared by all packet sets.
pub trait Vector<T: Value, M: Memory>: Send + 'static {
    /// The number of elements.
    fn len(&self) -> usize;

    /// True if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`.
    ///
    /// # Errors
    /// The memory's conflict.
    ///
    /// # Panics
    /// When `index` is not below [`Vector::len`].
    #[track_caller]
    fn read<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Result<T, M::Conflict>;

    /// Sets the element at `index`.
    ///
    /// # Errors
    /// The memory's conflict.
    ///
    /// # Panics
    /// When `index` is not below [`Vector::len`].
    #[track_caller]
    fn write<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize, value: T) -> Result<(), M::Conflict>;

    /// Prefetches the element at `index`, if the memory can. It belongs to no transaction and changes nothing.
    fn prefetch(&self, _index: usize) {}
}

/// A bounded map, shared by all packet sets.
pub trait Map<K: Name, V: Value, M: Memory>: Send + 'static {
    /// The value under `key`.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn get<'a>(&'a self, tx: &mut M::Tx<'a>, key: &K) -> Result<Option<V>, M::Conflict>;

    /// Sets the value of `key`; `false` if the map is full and `key` is new.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn insert<'a>(&'a self, tx: &mut M::Tx<'a>, key: K, value: V) -> Result<bool, M::Conflict>;

    /// Removes `key` and returns its value.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn remove<'a>(&'a self, tx: &mut M::Tx<'a>, key: &K) -> Result<Option<V>, M::Conflict>;

    /// Prefetches what a look-up of `key` reads first, if the memory can. It belongs to no transaction and changes nothing.
    fn prefetch(&self, _key: &K) {}

    /// The value that a look-up of `key` probably finds, for prefetching what it leads to. It belongs to no transaction, so it proves
    /// nothing; `None` if the memory can't tell.
    fn hint(&self, _key: &K) -> Option<V> {
        None
    }
}

/// A bounded pool of indices. Each index in use has a deadline. Expired indices are freed in deadline order, to the resolution that the
/// memory documents.
///
/// # Panics
/// All methods panic if an index is not below [`Allocator::capacity`].
pub trait Allocator<M: Memory>: Send + 'static {
    /// The number of indices, free and in use.
    fn capacity(&self) -> usize;

    /// Allocates any free index; `None` if all are in use.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn allocate<'a>(&'a self, tx: &mut M::Tx<'a>, deadline: Nanos) -> Result<Option<usize>, M::Conflict>;

    /// Allocates this index; `false` if it is in use.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn allocate_exact<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize, deadline: Nanos) -> Result<bool, M::Conflict>;

    /// The deadline of an index in use, even if it has passed; `None` if the index is free.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn deadline<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Result<Option<Nanos>, M::Conflict>;

    /// True if the index is in use.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn is_allocated<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Result<bool, M::Conflict> {
        Ok(self.deadline(tx, index)?.is_some())
    }

    /// Sets the deadline of an index in use. A free index stays as it is.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn refresh<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize, deadline: Nanos) -> Result<(), M::Conflict>;

    /// Frees an index. A free one stays free.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn free<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Result<(), M::Conflict>;

    /// Frees and returns one index whose deadline is at or before `now`, if it finds one. The work is bounded by a constant, so an expired
    /// index may have to wait for a later call.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn expire<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Result<Option<usize>, M::Conflict>;

    /// Returns the order of all indices. A memory that doesn't know it gives them by number.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn order<'a>(&'a self, tx: &mut M::Tx<'a>) -> Result<PoolOrder, M::Conflict> {
        let mut order = PoolOrder::default();
        for index in 0..self.capacity() {
            match self.deadline(tx, index)? {
                Some(deadline) => order.in_use.push((index, deadline)),
                None => order.free.push(index),
            }
        }
        Ok(order)
    }

    /// Sets the time of a pool that was never used. Deadlines that are set behind it then expire as if it had been in use until `now`.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn begin_at<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Result<(), M::Conflict> {
        self.expire(tx, now).map(drop)
    }
}

/// The indices of a pool, in the order in which it would give and expire them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolOrder {
    /// The indices in use with their deadlines, the first to expire first.
    pub in_use: Vec<(usize, Nanos)>,
    /// The free indices, the first to be allocated first.
    pub free: Vec<usize>,
}

/// An object of which each core keeps a portion: a change touches the core's own portion, a read merges all.
pub trait Distributed<T: Portion, M: Memory>: Send + 'static {
    /// Changes this core's portion. A portion is not the whole and differs from core to core, so `change` may add to it and subtract, but
    /// must not decide by it.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn update<'a>(&'a self, tx: &mut M::Tx<'a>, change: impl FnOnce(&mut T)) -> Result<(), M::Conflict>;

    /// All portions merged, as of `now` or up to the object's staleness before.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn read<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Result<T, M::Conflict>;
}
