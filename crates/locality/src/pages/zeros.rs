//! Arrays of values that start as zeros, and slots that are empty when zero.

use alloc::boxed::Box;
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::{MaybeUninit, needs_drop};
use core::ops::Deref;
use core::ptr::NonNull;
use core::slice;

use super::{Filling, Zeroed};
use crate::CACHE_LINE;

/// Types for which all-zero bytes are a valid value.
///
/// # Safety
/// They must be.
pub unsafe trait Zero {}

// SAFETY: a number of zero bytes is 0.
unsafe impl Zero for u32 {}
// SAFETY: as above.
unsafe impl Zero for u64 {}
// SAFETY: a cell lies in memory as its content does.
unsafe impl<T: Zero> Zero for Cell<T> {}
// SAFETY: all elements are zero bytes then.
unsafe impl<T: Zero, const N: usize> Zero for [T; N] {}
// SAFETY: both are zero bytes then.
unsafe impl<A: Zero, B: Zero> Zero for (A, B) {}
// SAFETY: a slot of zero bytes has the tag of an empty one, and whatever is in its place then is no value.
unsafe impl<T> Zero for Slot<T> {}

/// An array of fixed length in reserved memory, all zeros at first.
pub struct Zeros<T> {
    first: NonNull<T>,
    count: usize,
    /// Boxed, so that the heads of several arrays share few cache lines.
    memory: Box<Zeroed>,
    values: PhantomData<T>,
}

// SAFETY: the array owns its values, as a vector would.
unsafe impl<T: Send> Send for Zeros<T> {}
// SAFETY: a shared array hands out shared references only.
unsafe impl<T: Sync> Sync for Zeros<T> {}

impl<T: Zero> Zeros<T> {
    /// An array of `count` zeros, which will be written in the order of `filling`.
    ///
    /// # Panics
    /// The size overflows an address, or memory runs out.
    #[must_use]
    pub fn new(count: usize, filling: Filling) -> Self {
        const { assert!(!needs_drop::<T>() && align_of::<T>() <= CACHE_LINE, "values are plain data") };
        let bytes = count.checked_mul(size_of::<T>()).expect("an array is smaller than the address space");
        let memory = Box::new(Zeroed::new(bytes, filling));
        Self { first: memory.base().cast(), count, memory, values: PhantomData }
    }

    /// See [`Zeroed::collapse`].
    pub fn collapse(&self, piece: usize) -> bool {
        self.memory.collapse(piece)
    }
}

impl<T: Zero> Deref for Zeros<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the memory has room for so many values and is aligned for them; it came as zeros, which are values, and was written
        // through these references alone.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// A slot of a table: empty (all zeros), or a value with a number.
#[repr(C)]
pub struct Slot<T> {
    /// 0 for an empty slot, which has no value.
    tag: Cell<u32>,
    number: Cell<u32>,
    value: Cell<MaybeUninit<T>>,
}

impl<T: Copy> Slot<T> {
    /// The number and value in the slot, if any.
    #[inline(always)]
    pub fn get(&self) -> Option<(u32, T)> {
        // SAFETY: only `set` sets the tag, and it has set the value before.
        (self.tag.get() != 0).then(|| (self.number.get(), unsafe { self.value.get().assume_init() }))
    }

    /// Stores a number and a value.
    #[inline(always)]
    pub fn set(&self, number: u32, value: T) {
        self.value.set(MaybeUninit::new(value));
        self.number.set(number);
        self.tag.set(1);
    }

    /// Empties the slot.
    #[inline(always)]
    pub fn clear(&self) {
        self.tag.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_begin_as_zeros() {
        for count in [0, 1, 1000, if cfg!(miri) { 5000 } else { 300_000 }] {
            let array = Zeros::<(Cell<u64>, [Cell<u32>; 3])>::new(count, Filling::Scattered);
            assert_eq!(array.len(), count);
            for node in array.iter() {
                assert_eq!((node.0.replace(1), node.1[2].replace(7)), (0, 0));
            }
            assert!(array.iter().all(|node| (node.0.get(), node.1[1].get(), node.1[2].get()) == (1, 0, 7)));
        }
    }

    #[test]
    fn slots_begin_empty_and_hold_what_is_put_in() {
        let slots = Zeros::<Slot<(u16, bool)>>::new(100, Filling::Scattered);
        assert!(slots.iter().all(|slot| slot.get().is_none()));
        slots[7].set(0, (1, true));
        slots[8].set(9, (2, false));
        assert_eq!(
            (slots[7].get(), slots[8].get(), slots[9].get()),
            (Some((0, (1, true))), Some((9, (2, false))), None)
        );
        slots[7].clear();
        assert_eq!((slots[7].get(), slots[8].get()), (None, Some((9, (2, false)))));
    }
}
