//! Memory on huge pages, where the kernel gives them.
//!
//! What is large and looked at here and there costs a walk through the page tables at every look, on pages of 4 KiB: in a virtual
//! machine that is dearer than the look itself. The advice has to come before the memory is touched, for what is touched has its
//! pages.
//!
//! [`Zeroed`] is memory for tables, which may stay nearly empty: it begins on small pages, and lies on huge ones once it fills. [`Zeros`]
//! and [`Filled`] are arrays in it.

mod filled;
mod zeroed;
mod zeros;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use filled::Filled;
pub use zeroed::{Filling, HEAD, STEP, Zeroed};
pub use zeros::{Slot, Zero, Zeros};

/// Size of a huge page on x86-64 and most other processors.
pub const HUGE_PAGE: usize = 2 << 20;

/// An empty vector with room for `count` values, on huge pages if possible.
#[must_use]
pub fn with_capacity<T>(count: usize) -> Vec<T> {
    let room = Vec::<T>::with_capacity(count);
    advise(room.as_ptr().cast(), count * size_of::<T>());
    room
}

/// A boxed slice of the values, on huge pages if possible.
#[must_use]
pub fn boxed<T>(values: impl ExactSizeIterator<Item = T>) -> Box<[T]> {
    let mut room = with_capacity(values.len());
    room.extend(values);
    room.into_boxed_slice()
}

/// Advises the kernel to use huge pages for these `bytes` bytes from `first` on. Without free huge pages, small ones are used.
pub fn advise(first: *const u8, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if bytes >= HUGE_PAGE {
        // What the allocator has ahead of the first byte may lie on the same page. Where pages are larger than this, the kernel
        // refuses what doesn't begin with one.
        let before = first.addr() % 4096;
        let first = first.wrapping_sub(before).cast_mut().cast();
        // SAFETY: this advice changes no content, whoever owns it, and what isn't mapped is refused.
        let _ = unsafe { libc::madvise(first, before + bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(any(not(target_os = "linux"), miri))]
    let _ = (first, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_room_and_hold_what_they_get() {
        for count in [0, 1, 1000, HUGE_PAGE] {
            let room = with_capacity::<u64>(count);
            assert!(room.is_empty() && room.capacity() >= count);
            let values = boxed((0..count).map(|value| value as u64));
            assert!(values.iter().enumerate().all(|(at, value)| at as u64 == *value) && values.len() == count);
        }
        assert_eq!(boxed((0..5).map(|_| ())).len(), 5);
    }
}
