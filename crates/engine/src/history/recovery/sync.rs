//! The primitives by which cores read each other's logs. With `--cfg loom` a model checker takes their place, so the checked code is the
//! shipped code.

#[cfg(not(loom))]
pub(super) use self::shipped::*;

#[cfg(loom)]
pub use self::checked::Fault;
#[cfg(loom)]
pub(super) use self::checked::*;

#[cfg(not(loom))]
mod shipped {
    use core::hint;
    pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
    use std::thread;

    /// The number of spins, each twice as long as the one before, until the core yields its processor.
    const SPINS: u32 = 6;

    /// What a core does while it waits for another one.
    #[derive(Default)]
    pub(crate) struct Pause(u32);

    impl Pause {
        /// Waits a little, longer each time. The other core may have lost its processor.
        #[cold]
        pub(crate) fn wait(&mut self) {
            if self.0 < SPINS {
                (0..1 << self.0).for_each(|_| hint::spin_loop());
                self.0 += 1;
            } else {
                thread::yield_now();
            }
        }
    }

    /// Does nothing outside the model checker.
    #[derive(Default)]
    pub(crate) struct Watch(());

    impl Watch {
        #[inline(always)]
        #[expect(clippy::unused_self, reason = "the model checker's has something to watch")]
        pub(crate) const fn read(&self) {}

        #[inline(always)]
        #[expect(clippy::unused_self, reason = "the model checker's has something to watch")]
        pub(crate) const fn write(&self) {}
    }

    /// Outside the model checker, nothing is broken.
    macro_rules! broken {
        ($fault:ident) => {
            false
        };
    }
    pub(crate) use broken;
}

#[cfg(loom)]
mod checked {
    use core::cell::Cell;
    use std::sync::{Mutex, PoisonError};

    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

    /// Yields in every iteration: only another thread can end the wait.
    #[derive(Default)]
    pub(crate) struct Pause;

    impl Pause {
        pub(crate) fn wait(&mut self) {
            loom::thread::yield_now();
        }
    }

    /// A cell beside a log entry, by which the checker sees whether reads and writes of the entry are ordered. Atomic words alone would not
    /// show it, because the checker never runs a load after a later store.
    ///
    /// The lock only satisfies the compiler, because logs are shared with real threads elsewhere. The checker doesn't know of it.
    pub(crate) struct Watch(Mutex<loom::cell::UnsafeCell<()>>);

    impl Default for Watch {
        fn default() -> Self {
            Self(Mutex::new(loom::cell::UnsafeCell::new(())))
        }
    }

    impl Watch {
        pub(crate) fn read(&self) {
            if WATCHED.get() {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).with(|_| ());
            }
        }

        pub(crate) fn write(&self) {
            if WATCHED.get() {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).with_mut(|_| ());
            }
        }
    }

    /// What a test can break, one fault at a time, to show that the check finds it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// A core's mark may be seen before the entries that it publishes.
        EarlyMark,
        /// Entries published by a mark may be read in their old state.
        StaleEntry,
        /// A core's progress may be seen before the core has finished its reads.
        EarlyProgress,
        /// A writer doesn't check how far the others are.
        NoRoom,
        /// A core publishes by a plain store, which undoes its fence.
        BlindMark,
        /// A core doesn't check whether it was fenced while it read.
        Unchecked,
        /// A writer that relies on a fence doesn't order the fence before its words.
        EarlyWords,
        /// A core applies records before the others can know that it received them.
        AppliesFirst,
    }

    thread_local! {
        // All threads of a model run on one thread of the system.
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
        static WATCHED: Cell<bool> = const { Cell::new(true) };
    }

    impl Fault {
        /// Injects a fault into the logs of this thread, or none.
        pub fn inject(fault: Option<Self>) {
            FAULT.set(fault);
        }

        /// Sets whether the checker watches for unordered reads and writes of an entry. They occur when cores are fenced: a fenced core may
        /// still read, and discards the result.
        pub fn watch(races: bool) {
            WATCHED.set(races);
        }

        /// True if the logs of this thread have this fault.
        pub(crate) fn is_injected(self) -> bool {
            FAULT.get() == Some(self)
        }
    }

    macro_rules! broken {
        ($fault:ident) => {
            $crate::history::recovery::sync::Fault::$fault.is_injected()
        };
    }
    pub(crate) use broken;
}
