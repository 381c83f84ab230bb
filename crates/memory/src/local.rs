//! Memory that one core owns: plain structures, no synchronisation, no conflicts.

use core::convert::Infallible;
use core::marker::PhantomData;

use packet::{Key, Nanos};

use crate::{Allocator, Map, Memory, Value, Vector};

/// The memory of a core's own copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local;

/// The transaction that does nothing.
#[derive(Debug, Default)]
pub struct LocalTx<'a>(PhantomData<&'a ()>);

/// An array in local memory.
#[derive(Debug)]
pub struct LocalVector<T>(PhantomData<T>);
/// A map in local memory.
#[derive(Debug)]
pub struct LocalMap<K, V>(PhantomData<(K, V)>);
/// A pool in local memory.
#[derive(Debug)]
pub struct LocalAllocator;

impl Memory for Local {
    type Conflict = Infallible;
    type Tx<'a> = LocalTx<'a>;
    type Vector<T: Value> = LocalVector<T>;
    type Map<K: Key, V: Value> = LocalMap<K, V>;
    type Allocator = LocalAllocator;
    fn vector<T: Value>(&self, _: usize, _: T) -> LocalVector<T> { unimplemented!() }
    fn map<K: Key, V: Value>(&self, _: usize) -> LocalMap<K, V> { unimplemented!() }
    fn allocator(&self, _: usize) -> LocalAllocator { unimplemented!() }
}
impl<T: Value> Vector<T, Local> for LocalVector<T> {
    fn len(&self) -> usize { unimplemented!() }
    fn read(&self, _: &mut LocalTx<'_>, _: usize) -> Result<T, Infallible> { unimplemented!() }
    fn write(&self, _: &mut LocalTx<'_>, _: usize, _: T) -> Result<(), Infallible> { unimplemented!() }
}
impl<K: Key, V: Value> Map<K, V, Local> for LocalMap<K, V> {
    fn get(&self, _: &mut LocalTx<'_>, _: &K) -> Result<Option<V>, Infallible> { unimplemented!() }
    fn insert(&self, _: &mut LocalTx<'_>, _: K, _: V) -> Result<bool, Infallible> { unimplemented!() }
    fn remove(&self, _: &mut LocalTx<'_>, _: &K) -> Result<Option<V>, Infallible> { unimplemented!() }
}
impl Allocator<Local> for LocalAllocator {
    fn capacity(&self) -> usize { unimplemented!() }
    fn allocate(&self, _: &mut LocalTx<'_>, _: Nanos) -> Result<Option<usize>, Infallible> { unimplemented!() }
    fn allocate_exact(&self, _: &mut LocalTx<'_>, _: usize, _: Nanos) -> Result<bool, Infallible> { unimplemented!() }
    fn is_allocated(&self, _: &mut LocalTx<'_>, _: usize) -> Result<bool, Infallible> { unimplemented!() }
    fn refresh(&self, _: &mut LocalTx<'_>, _: usize, _: Nanos) -> Result<(), Infallible> { unimplemented!() }
    fn free(&self, _: &mut LocalTx<'_>, _: usize) -> Result<(), Infallible> { unimplemented!() }
    fn expire(&self, _: &mut LocalTx<'_>, _: Nanos) -> Result<Option<usize>, Infallible> { unimplemented!() }
}
