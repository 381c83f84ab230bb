//! An array whose elements are objects, each on a cache line of its own.

use core::marker::PhantomData;

use super::cause::Operation;
use super::log::{Access, Tx};
use super::object::Objects;
use super::{Conflict, Transactional};
use crate::{Value, Vector};

/// An array in transactional memory. An element of up to 48 bytes takes one cache line of 64 bytes.
pub struct TxVector<T> {
    elements: Objects,
    of: PhantomData<T>,
}

impl<T: Value> TxVector<T> {
    pub(super) fn new(len: usize, initial: &T) -> Self {
        let elements = Objects::new(len, T::COUNT);
        (0..len).for_each(|index| elements.init(index, 0, initial));
        Self { elements, of: PhantomData }
    }

    /// An array's memory in bytes.
    pub(crate) const fn bytes(len: usize) -> u64 {
        Objects::bytes(len, T::COUNT)
    }
}

impl<T: Value> Vector<T, Transactional> for TxVector<T> {
    fn len(&self) -> usize {
        self.elements.len()
    }

    // Always inlined: a result that crosses a call goes through memory word by word and is read back in other sizes.
    #[inline(always)]
    fn read<'a>(&'a self, tx: &mut Tx<'a>, index: usize) -> Result<T, Conflict> {
        self.elements.load(tx, index, Access::new(Operation::VectorRead, index as u32))
    }

    #[inline]
    fn write<'a>(&'a self, tx: &mut Tx<'a>, index: usize, value: T) -> Result<(), Conflict> {
        tx.lock(self.elements.lock(index), Access::new(Operation::VectorWrite, index as u32))?;
        self.elements.set(tx, index, 0, &value);
        Ok(())
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        self.elements.prefetch(index);
    }
}
