//! Writable memory on loan: frames of a ring, or packet buffers of a pool.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicBool, Ordering};

/// The owner of lent memory.
pub trait Lender: Send + Sync {
    /// The loan with this number is over: its memory is not used any more.
    fn back(&self, number: u64);
}

/// Memory that has one holder until it is dropped. Only the requested parts are accessed; other owners' parts may lie between them.
pub struct Loan {
    start: NonNull<u8>,
    len: usize,
    number: u64,
    lender: Arc<dyn Lender>,
}

// SAFETY: it is the only way to the parts that are asked for, as `new` demands, and who lends it can be told from any thread.
unsafe impl Send for Loan {}
// SAFETY: through a shared reference the memory is only read.
unsafe impl Sync for Loan {}

impl Loan {
    /// Lends `memory`, with a number chosen by the lender.
    ///
    /// # Safety
    /// While the lender lives, the memory is mapped, readable and writable. While the loan lives, nobody else accesses the parts that its
    /// holder requests.
    #[must_use]
    pub unsafe fn new(memory: NonNull<[u8]>, number: u64, lender: Arc<dyn Lender>) -> Self {
        Self { start: memory.cast(), len: memory.len(), number, lender }
    }

    /// Length in bytes.
    #[inline(always)]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory, for reading parts of it.
    #[inline(always)]
    #[must_use]
    pub const fn parts(&self) -> Parts<'_> {
        Parts { start: self.start, len: self.len, lent: PhantomData }
    }

    /// A part of it, for writing.
    ///
    /// # Panics
    /// It exceeds the memory.
    #[inline]
    #[must_use]
    pub fn part_mut(&mut self, start: usize, len: usize) -> &mut [u8] {
        check(self.len, start, len);
        // SAFETY: the part lies within the memory, which is there as long as the lender, and by `new` nobody else touches it while
        // this loan is borrowed.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().add(start), len) }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lender.back(self.number);
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("len", &self.len).field("number", &self.number).finish_non_exhaustive()
    }
}

/// Memory of which parts are read; the rest is not accessed.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    start: NonNull<u8>,
    len: usize,
    lent: PhantomData<&'a [u8]>,
}

impl<'a> Parts<'a> {
    /// Number of bytes.
    #[inline(always)]
    #[must_use]
    pub const fn len(self) -> usize {
        self.len
    }

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Address of the byte at `at`, for a prefetch. It may lie outside the memory.
    #[inline(always)]
    #[must_use]
    pub const fn address(self, at: usize) -> *const u8 {
        self.start.as_ptr().wrapping_add(at)
    }

    /// A part of it.
    ///
    /// # Panics
    /// It exceeds the memory.
    #[inline(always)]
    #[must_use]
    pub fn part(self, start: usize, len: usize) -> &'a [u8] {
        check(self.len, start, len);
        // SAFETY: the part lies within what was borrowed: a slice, or a loan of which nobody else touches the parts that are asked for.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(start), len) }
    }
}

impl<'a> From<&'a [u8]> for Parts<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8]) -> Self {
        Self { start: NonNull::from(bytes).cast(), len: bytes.len(), lent: PhantomData }
    }
}

#[inline(always)]
fn check(of: usize, start: usize, len: usize) {
    assert!(start <= of && len <= of - start, "{len} bytes at offset {start} exceed the loan of {of} bytes");
}

/// Buffers of equal size that are lent one at a time.
pub struct Pool {
    memory: Box<[UnsafeCell<u8>]>,
    bytes: usize,
    /// True for each buffer that is lent.
    lent: Box<[AtomicBool]>,
}

// SAFETY: the memory is reached by loans alone, of which there is one at a time for each buffer (`lend`).
unsafe impl Sync for Pool {}

impl Pool {
    /// Creates `buffers` zeroed buffers of `bytes` bytes each.
    #[must_use]
    pub fn new(buffers: usize, bytes: usize) -> Arc<Self> {
        let memory = (0..buffers * bytes).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { memory, bytes, lent: (0..buffers).map(|_| AtomicBool::new(false)).collect() })
    }

    /// Lends a buffer, with the content that its last holder left; `None` if all are lent.
    #[must_use]
    pub fn lend(self: &Arc<Self>) -> Option<Loan> {
        // ORDERING: Acquire pairs with Release in `back`: whoever had the buffer is done with it.
        let number = self.lent.iter().position(|lent| !lent.swap(true, Ordering::Acquire))?;
        let start = self.memory[number * self.bytes..][..self.bytes].as_ptr();
        let memory =
            NonNull::slice_from_raw_parts(NonNull::new(start.cast_mut().cast()).expect("it is there"), self.bytes);
        // SAFETY: the loan keeps the pool and so its memory, which may be written to (`UnsafeCell`). Nobody else has this buffer until
        // the loan is back: its mark was not set, and now is.
        Some(unsafe { Loan::new(memory, number as u64, Arc::clone(self) as Arc<dyn Lender>) })
    }

    /// Number of buffers that are lent.
    #[must_use]
    pub fn lent(&self) -> usize {
        // ORDERING: Relaxed. A number to look at.
        self.lent.iter().filter(|lent| lent.load(Ordering::Relaxed)).count()
    }
}

impl Lender for Pool {
    fn back(&self, number: u64) {
        // ORDERING: Release pairs with Acquire in `lend`.
        self.lent[number as usize].store(false, Ordering::Release);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (buffers, lent) = (self.lent.len(), self.lent());
        f.debug_struct("Pool").field("buffers", &buffers).field("bytes", &self.bytes).field("lent", &lent).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_with_one_thread_at_a_time() {
        let pool = Pool::new(2, 64);
        // Joined one by one, which a sanitizer sees; the end of a scope it doesn't.
        let threads = [1u8, 2, 3].map(|own| {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || {
                for round in 0..if cfg!(miri) { 10 } else { 1000 } {
                    let Some(mut loan) = pool.lend() else {
                        std::thread::yield_now();
                        continue;
                    };
                    loan.part_mut(round % 32, 32).fill(own);
                    assert_eq!(loan.parts().part(round % 32, 32), [own; 32]);
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("it saw its own bytes"));
        assert_eq!(pool.lent(), 0);
        let both = [pool.lend(), pool.lend()];
        assert!(both.iter().flatten().all(|loan| loan.len() == 64) && pool.lend().is_none());
        assert_eq!(pool.lent(), 2);
        drop(both);
        assert_eq!(pool.lent(), 0);
    }

    #[test]
    fn the_end_of_a_loan_is_a_part_without_bytes() {
        let loan = Pool::new(1, 64).lend().expect("it has one");
        assert!(loan.parts().part(64, 0).is_empty());
    }

    #[test]
    #[should_panic(expected = "2 bytes at offset 63 exceed the loan of 64 bytes")]
    fn nothing_is_read_beyond_the_end() {
        let loan = Pool::new(1, 64).lend().expect("it has one");
        let _ = loan.parts().part(63, 2);
    }

    #[test]
    #[should_panic(expected = "exceed the loan of 64 bytes")]
    fn nothing_is_written_where_numbers_wrap() {
        let mut loan = Pool::new(1, 64).lend().expect("it has one");
        let _ = loan.part_mut(usize::MAX, 2);
    }
}
