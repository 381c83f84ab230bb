//! Asking for memory ahead of time, so that its latencies overlap.
//!
//! A load in the place of a prefetch overlaps with others too, but holds up all that comes behind it once the processor has no
//! room left for what isn't done: after a few packets, where a prefetch reaches over a whole burst.

use crate::CACHE_LINE;

/// Brings the cache line at `address` near: to the second-level cache, from which a load takes it while others go on. Never faults,
/// whatever the address; nothing where the processor has no such instruction that is known here.
///
/// Not to the first level: a line that comes from memory would occupy one of the few places for misses there for as long as that takes, and
/// once all are taken the loads and prefetches behind wait.
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

/// Brings the cache line at `address` as near as it gets, for what is read in order and soon.
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

/// Takes the cache line at `address` from whichever core has it, to be written to here.
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

/// Takes the cache lines of the value at place `at` of a list, which begins at `first`, from whichever core has them.
#[inline(always)]
pub fn place_to_write<T>(first: *const T, at: usize) {
    let place = first.wrapping_add(at).cast::<u8>();
    for byte in (0..size_of::<T>()).step_by(CACHE_LINE) {
        to_write(place.wrapping_add(byte));
    }
}

/// Brings the cache line near where the value begins.
#[inline(always)]
pub fn start<T>(value: &T) {
    address((&raw const *value).cast());
}

/// Brings all of the value near.
#[inline(always)]
pub fn all<T: ?Sized>(value: &T) {
    bytes(core::ptr::from_ref(value).cast(), size_of_val(value));
}

/// Brings so many bytes near.
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
