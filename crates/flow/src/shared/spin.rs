//! A test-and-test-and-set spin lock with back-off (Rudolph, Segall: ISCA '84; Anderson, IEEE TPDS '90). A waiting core reads its cached
//! copy of the lock until it looks free, and only then writes.

use crate::shared::sync::{AtomicBool, Ordering, Pause, UnsafeCell, broken};

/// A value under a spin lock.
pub(super) struct SpinLock<T> {
    held: AtomicBool,
    content: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock reaches the content, so one thread uses it at a time. Sharing the lock sends the content between
// threads.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(super) fn new(content: T) -> Self {
        Self { held: AtomicBool::new(false), content: UnsafeCell::new(content) }
    }

    /// Runs `work` with the lock held. It deadlocks if `work` takes the same lock.
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
        // ORDERING: Acquire pairs with the Release in `Unlock::drop`, so this core sees what the last holder did. Relaxed on failure:
        // nothing is read then.
        let take = || self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // ORDERING: Relaxed. A hint whether to try; the exchange orders.
        while self.held.load(Ordering::Relaxed) || !take() {
            pause.wait();
        }
    }
}

/// Releases the lock, also on a panic.
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
