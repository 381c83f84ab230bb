//! A test-and-test-and-set spin lock (Rudolph, Segall: ISCA '84): who waits reads its own copy of the line until the lock
//! looks free, and only then writes. With back-off it is what Anderson (IEEE TPDS '90) found to do best among the simple
//! ones.

use crate::shared::sync::{AtomicBool, Ordering, Pause, UnsafeCell, broken};

/// Something that one core at a time may use.
pub(super) struct SpinLock<T> {
    held: AtomicBool,
    content: UnsafeCell<T>,
}

// SAFETY: whoever reaches the content holds the lock, so it is used by one thread at a time; sharing the lock thus only ever
// sends the content from one thread to another.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(super) fn new(content: T) -> Self {
        Self { held: AtomicBool::new(false), content: UnsafeCell::new(content) }
    }

    /// Does the work while nobody else uses the content. Work that asks for the same lock waits forever.
    #[inline]
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.lock();
        let _unlock = Unlock(&self.held);
        // SAFETY: the lock is held until `_unlock` goes, after the work, so the reference is the only one.
        self.content.with_mut(|content| work(unsafe { &mut *content }))
    }

    #[inline]
    fn lock(&self) {
        let mut pause = Pause::default();
        // ORDERING: Acquire pairs with the Release in `Unlock::drop`: what the last holder did is seen. Relaxed on failure, for
        // nothing is read then.
        let take = || self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // ORDERING: Relaxed. A hint whether to try; the exchange orders.
        while self.held.load(Ordering::Relaxed) || !take() {
            pause.wait();
        }
    }
}

/// Gives the lock back, also when the work panics.
struct Unlock<'a>(&'a AtomicBool);

impl Drop for Unlock<'_> {
    #[inline]
    fn drop(&mut self) {
        let order = if broken!(EarlyUnlock) { Ordering::Relaxed } else { Ordering::Release };
        // ORDERING: Release pairs with the Acquire in `lock`.
        self.0.store(false, order);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_panic_gives_the_lock_back() {
        let lock = SpinLock::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            lock.with(|content| {
                *content = 2;
                panic!("expected");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(lock.with(|content| *content), 2);
    }
}
