//! Where the state lives that all packet sets share: one set of structures, written against once, in several memories.
//!
//! A network function is generic over its [`Memory`]. Every access takes the transaction that it belongs to and may
//! fail with that memory's conflict; the author writes `?` and nothing else. Under [`Local`], where a core owns its copy,
//! the conflict is [`Infallible`](core::convert::Infallible) and the `?` compiles to nothing. A transactional memory carries an abort out of the
//! handler by the same `?`.
//!
//! Accesses borrow the structure for as long as the transaction lives, so that a transaction can hold what it has read and
//! is to write by reference.
#![forbid(unsafe_code)]

extern crate alloc;

mod local;
mod locked;
pub mod transactional;
mod weighed;
mod wheel;

pub use local::{Local, LocalAllocator, LocalDistributed, LocalMap, LocalTx, LocalVector};
pub use locked::{Guarded, Locked, LockedTx};
use packet::{Key, Nanos, Words};
pub use transactional::Transactional;
pub use weighed::{Absent, Weighed};

/// Plain data that shared structures hold. It says what words it is made of, so that cores can share it word by word:
/// [`packet::words!`] writes that down.
pub trait Value: Words + Send + Sync + 'static {}
impl<T: Words + Send + Sync + 'static> Value for T {}

/// What names a pair in a [`Map`].
pub trait Name: Key + Words {}
impl<K: Key + Words> Name for K {}

/// What a [`Distributed`] object is made of: each core has a portion, and all of them merged are the whole.
pub trait Portion: Value {
    /// Adds another core's portion. The order in which portions are added must not matter.
    fn merge(&mut self, other: &Self);
}

/// A memory that shared state can live in.
pub trait Memory: Sized + Send + Sync + 'static {
    /// Why an access can't be carried out now. The engine undoes the step and runs it again.
    type Conflict: core::fmt::Debug;
    /// One step's accesses, begun before the handler and committed after it.
    type Tx<'a>;
    /// An array of fixed length.
    type Vector<T: Value>: Vector<T, Self>;
    /// A bounded map.
    type Map<K: Name, V: Value>: Map<K, V, Self>;
    /// A bounded pool of indices with ageing.
    type Allocator: Allocator<Self>;
    /// An object that is changed often and read seldom, or not quite up to date.
    type Distributed<T: Portion>: Distributed<T, Self>;

    /// An array of `len` elements, all `initial`.
    fn vector<T: Value>(&self, len: usize, initial: T) -> Self::Vector<T>;

    /// An empty map that holds up to `capacity` pairs.
    fn map<K: Name, V: Value>(&self, capacity: usize) -> Self::Map<K, V>;

    /// A pool of the indices `0..capacity`, all free.
    ///
    /// # Panics
    /// When `capacity` does not fit 32 bits.
    fn allocator(&self, capacity: usize) -> Self::Allocator;

    /// An object whose portions are all `empty`. Reading it may miss what other cores changed within `staleness`.
    fn distributed<T: Portion>(&self, empty: T, staleness: Nanos) -> Self::Distributed<T>;
}

/// An array of fixed length, shared by all packet sets.
pub trait Vector<T: Value, M: Memory>: Send + 'static {
    /// How many elements there are.
    fn len(&self) -> usize;

    /// Whether there are none.
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

    /// Brings the element at `index` near, where the memory can. Belongs to no transaction and changes nothing.
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

    /// Puts `value` under `key`, in place of what was there; `false` when the map is full and `key` is new to it.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn insert<'a>(&'a self, tx: &mut M::Tx<'a>, key: K, value: V) -> Result<bool, M::Conflict>;

    /// Takes out what is under `key`.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn remove<'a>(&'a self, tx: &mut M::Tx<'a>, key: &K) -> Result<Option<V>, M::Conflict>;

    /// Brings near what a look-up of `key` reads first, where the memory can. Belongs to no transaction and changes nothing.
    fn prefetch(&self, _key: &K) {}

    /// What a look-up of `key` is likely to find, to bring near what it leads to. Belongs to no transaction, so it proves
    /// nothing; `None` where the memory can't tell.
    fn hint(&self, _key: &K) -> Option<V> {
        None
    }
}

/// A bounded pool of indices. Each index in use has a deadline; those past it are given back in deadline order, to the
/// resolution that the memory documents.
///
/// # Panics
/// All methods do when an index is not below [`Allocator::capacity`].
pub trait Allocator<M: Memory>: Send + 'static {
    /// How many indices there are in all.
    fn capacity(&self) -> usize;

    /// Takes any free index; `None` when all are in use.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn allocate<'a>(&'a self, tx: &mut M::Tx<'a>, deadline: Nanos) -> Result<Option<usize>, M::Conflict>;

    /// Takes this very index; `false` when it is in use.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn allocate_exact<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize, deadline: Nanos) -> Result<bool, M::Conflict>;

    /// The deadline of an index in use, whether or not it has passed; `None` when the index is free.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn deadline<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Result<Option<Nanos>, M::Conflict>;

    /// Whether the index is in use.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn is_allocated<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Result<bool, M::Conflict> {
        Ok(self.deadline(tx, index)?.is_some())
    }

    /// Moves the deadline of an index in use. That of a free one stays as it is: it has none.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn refresh<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize, deadline: Nanos) -> Result<(), M::Conflict>;

    /// Gives an index back. A free one stays free.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn free<'a>(&'a self, tx: &mut M::Tx<'a>, index: usize) -> Result<(), M::Conflict>;

    /// Frees and returns one index whose deadline is at or before `now`, if there is one. The work is bounded by a
    /// constant, so an index may have to wait for a later call.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn expire<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Result<Option<usize>, M::Conflict>;
}

/// An object of which each core keeps a portion: a change touches the core's own, a look merges all of them.
pub trait Distributed<T: Portion, M: Memory>: Send + 'static {
    /// Changes this core's portion. What it was before is not the whole, and not the same on every core: `change` may add to it
    /// and take away, and not decide by it.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn update<'a>(&'a self, tx: &mut M::Tx<'a>, change: impl FnOnce(&mut T)) -> Result<(), M::Conflict>;

    /// All portions merged, at `now` or as long before it as the object's staleness allows.
    ///
    /// # Errors
    /// The memory's conflict.
    #[track_caller]
    fn read<'a>(&'a self, tx: &mut M::Tx<'a>, now: Nanos) -> Result<T, M::Conflict>;
}
