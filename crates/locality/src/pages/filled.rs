//! An array that starts as copies of one value. The copies are written only when they are needed.

use alloc::boxed::Box;
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::needs_drop;
use core::ptr::NonNull;

use super::{Filling, Zeroed};
use crate::{CACHE_LINE, prefetch};

/// Bytes of copies that are written together, if values are set in order of their indices.
const PAGE: usize = 4096;

/// An array of fixed length in reserved memory, for one thread. Fill it from the first value on: setting a value writes all copies before
/// it.
pub struct Filled<T> {
    first: NonNull<T>,
    /// Number of values written.
    written: Cell<usize>,
    count: usize,
    /// The initial value, and the memory. Boxed, so that the part that every access reads is small.
    rest: Box<(T, Zeroed)>,
    values: PhantomData<Cell<T>>,
}

// SAFETY: the array owns its values, as a vector would.
unsafe impl<T: Send> Send for Filled<T> {}

impl<T: Copy> Filled<T> {
    /// An array of `count` copies of `initial`.
    ///
    /// # Panics
    /// The size overflows an address, or memory runs out.
    #[must_use]
    pub fn new(count: usize, initial: T) -> Self {
        const { assert!(!needs_drop::<T>() && align_of::<T>() <= CACHE_LINE, "values are plain data") };
        let bytes = count.checked_mul(size_of::<T>()).expect("an array is smaller than the address space");
        let memory = Zeroed::new(bytes, Filling::InOrder);
        let first = memory.base().cast();
        Self { first, written: Cell::new(0), count, rest: Box::new((initial, memory)), values: PhantomData }
    }

    /// Number of values.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True if there are none.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// `index` is not below [`len`](Self::len).
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        if index < self.written.get() {
            // SAFETY: there is room for the value, aligned, and it is written. Nobody has a reference to it.
            return unsafe { self.place(index).read() };
        }
        self.check(index);
        self.rest.0
    }

    /// Sets the value at `index`.
    ///
    /// # Panics
    /// `index` is not below [`len`](Self::len).
    #[inline]
    #[track_caller]
    pub fn set(&self, index: usize, value: T) {
        if index >= self.written.get() {
            self.check(index);
            self.write_to(index);
        }
        // SAFETY: there is room for the value, aligned, and it is written. Nobody has a reference to it.
        unsafe { self.place(index).write(value) };
    }

    /// Prefetches the value at `index`, if there is one.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if index < self.count {
            prefetch::bytes(self.place(index).cast(), size_of::<T>());
        }
    }

    #[inline]
    fn place(&self, index: usize) -> *mut T {
        self.first.as_ptr().wrapping_add(index)
    }

    #[inline]
    #[track_caller]
    fn check(&self, index: usize) {
        assert!(index < self.count, "index {index} is outside an array of {}", self.count);
    }

    /// Writes the missing copies up to `index`, and about a page more.
    #[cold]
    #[inline(never)]
    fn write_to(&self, index: usize) {
        let end = self.count.min(index + 1 + PAGE / size_of::<T>().max(1));
        for at in self.written.get()..end {
            // SAFETY: there is room for the value, aligned. Nobody has a reference to it.
            unsafe { self.place(at).write(self.rest.0) };
        }
        self.written.set(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::HUGE_PAGE;

    #[test]
    fn values_are_the_first_one_until_they_are_set() {
        for count in [1, 127, 128, 129, if cfg!(miri) { 5000 } else { HUGE_PAGE }] {
            let array = Filled::new(count, (7u64, 8u8));
            assert_eq!((array.len(), array.get(count - 1)), (count, (7, 8)));
            let is_set = |at: usize| at.is_multiple_of(61) && at < count / 2;
            (0..count).filter(|at| is_set(*at)).for_each(|at| array.set(at, (1, 2)));
            assert!((0..count).all(|at| array.get(at) == if is_set(at) { (1, 2) } else { (7, 8) }));
            array.set(count - 1, (3, 4));
            assert_eq!(array.get(count - 1), (3, 4));
            (0..=count).for_each(|at| array.prefetch(at));
        }
        assert!(Filled::new(0, 1u8).is_empty());
        let empty = Filled::new(5, ());
        empty.set(4, ());
        assert_eq!((empty.get(4), Filled::new(3, [1u64; 1000]).get(2)[999]), ((), 1));
    }

    #[test]
    #[should_panic(expected = "index 3 is outside an array of 3")]
    fn nothing_is_read_behind_the_end() {
        Filled::new(3, 1).get(3);
    }

    #[test]
    #[should_panic(expected = "index 3 is outside an array of 3")]
    fn nothing_is_written_behind_the_end() {
        Filled::new(3, 1).set(3, 1);
    }
}
