//! Memory that one core owns: plain structures without synchronisation or conflicts. All of it is reserved at the start; pages come at
//! their first use.

mod allocator;
mod map;

use core::cell::Cell;
use core::convert::Infallible;
use core::marker::PhantomData;

use locality::pages::Filled;
use packet::Nanos;

use crate::{Distributed, Memory, Name, Portion, Value, Vector};

pub use allocator::LocalAllocator;
pub use map::LocalMap;

/// The memory of a core's own copy. The default has hash seed 0, which anyone can guess: for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local {
    seed: u64,
}

impl Local {
    /// Memory with a hash seed for its maps. The seed must be secret if an attacker can choose the keys. It doesn't change any result.
    #[must_use]
    pub const fn keyed(seed: u64) -> Self {
        Self { seed }
    }
}

/// A transaction that does nothing.
#[derive(Debug, Default)]
pub struct LocalTx<'a>(PhantomData<&'a ()>);

impl Memory for Local {
    type Conflict = Infallible;
    type Tx<'a> = LocalTx<'a>;
    type Vector<T: Value> = LocalVector<T>;
    type Map<K: Name, V: Value> = LocalMap<K, V>;
    type Allocator = LocalAllocator;
    type Distributed<T: Portion> = LocalDistributed<T>;

    #[inline(always)]
    fn take<'a>(_: &mut LocalTx<'a>) -> LocalTx<'a>
    where
        'a: 'a, // as in the trait, where it is not seen to be bound
    {
        LocalTx::default()
    }

    fn vector<T: Value>(&self, len: usize, initial: T) -> LocalVector<T> {
        LocalVector { elements: Filled::new(len, initial) }
    }

    fn map<K: Name, V: Value>(&self, capacity: usize) -> LocalMap<K, V> {
        LocalMap::new(capacity, self.seed)
    }

    fn allocator(&self, capacity: usize) -> LocalAllocator {
        LocalAllocator::new(capacity)
    }

    fn distributed<T: Portion>(&self, empty: T, _: Nanos) -> LocalDistributed<T> {
        LocalDistributed(Cell::new(empty))
    }
}

/// An array in local memory.
pub struct LocalVector<T> {
    elements: Filled<T>,
}

impl<T: Value> Vector<T, Local> for LocalVector<T> {
    #[inline]
    fn len(&self) -> usize {
        self.elements.len()
    }

    #[inline]
    fn read<'a>(&'a self, _: &mut LocalTx<'a>, index: usize) -> Result<T, Infallible> {
        Ok(self.elements.get(index))
    }

    #[inline]
    fn write<'a>(&'a self, _: &mut LocalTx<'a>, index: usize, value: T) -> Result<(), Infallible> {
        self.elements.set(index, value);
        Ok(())
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        self.elements.prefetch(index);
    }
}

/// A distributed object of one portion, which is always up to date.
pub struct LocalDistributed<T>(Cell<T>);

impl<T: Portion> Distributed<T, Local> for LocalDistributed<T> {
    #[inline]
    fn update<'a>(&'a self, _: &mut LocalTx<'a>, change: impl FnOnce(&mut T)) -> Result<(), Infallible> {
        let mut portion = self.0.get();
        change(&mut portion);
        self.0.set(portion);
        Ok(())
    }

    #[inline]
    fn read<'a>(&'a self, _: &mut LocalTx<'a>, _: Nanos) -> Result<T, Infallible> {
        Ok(self.0.get())
    }
}
