//! Prefetches: loads memory into a cache in advance, so that latencies overlap.
//!
//! A plain load also overlaps with others, but it blocks the instructions after it when the processor runs out of buffers, after a few
//! packets. Prefetches work over a whole burst.

use crate::CACHE_LINE;

/// Prefetches the cache line at `address` into the second-level cache. Never faults, whatever the address. Does nothing on processors
/// without a known instruction.
///
/// It doesn't use the first-level cache: a line from memory would occupy one of its few miss buffers, and when all are in use, later
/// loads and prefetches wait.
#[inline(always)]
pub fn address(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and faults on nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = address;
}

/// Prefetches the cache line at `address` into the first-level cache, for data that is read in order and soon.
#[inline(always)]
pub fn closest(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = address;
}

/// Prefetches the cache line at `address` for writing, from any core that has it.
#[inline(always)]
pub fn to_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing that a program sees and faults on nothing. All 64-bit processors take the instruction; to those
    // that don't know it it does nothing.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = address;
}

/// Prefetches the cache lines of element `at` of a list for writing; `first` is its first element.
#[inline(always)]
pub fn place_to_write<T>(first: *const T, at: usize) {
    let place = first.wrapping_add(at).cast::<u8>();
    for byte in (0..size_of::<T>()).step_by(CACHE_LINE) {
        to_write(place.wrapping_add(byte));
    }
}

/// Prefetches the first cache line of a value.
#[inline(always)]
pub fn start<T>(value: &T) {
    address((&raw const *value).cast());
}

/// Prefetches all cache lines of a value.
#[inline(always)]
pub fn all<T: ?Sized>(value: &T) {
    bytes(core::ptr::from_ref(value).cast(), size_of_val(value));
}

/// Prefetches this many bytes.
#[inline(always)]
pub fn bytes(first: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(CACHE_LINE) {
        address(first.wrapping_add(at));
    }
    // What doesn't begin with a line may end in one more.
    if bytes > 0 && !first.addr().is_multiple_of(CACHE_LINE) {
        address(first.wrapping_add(bytes - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_may_be_asked_for() {
        for at in [0, 1, 4095, usize::MAX] {
            address(core::ptr::without_provenance(at));
            closest(core::ptr::without_provenance(at));
            to_write(core::ptr::without_provenance(at));
        }
        start(&7u8);
        place_to_write(core::ptr::without_provenance::<[u64; 20]>(1 << 40), 7);
        all(&[0u32; 100][1..]);
        all::<[u64]>(&[]);
    }
}
