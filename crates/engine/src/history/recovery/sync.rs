//! Everything that one core sees of another's log goes through here, so that a model checker (`--cfg loom`) can take its
//! place: the code that it checks is the code that ships.

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

    /// Spins this often, twice as long each time, before it lets another thread have the processor.
    const SPINS: u32 = 6;

    /// What a core does while it waits for another one.
    #[derive(Default)]
    pub(crate) struct Pause(u32);

    impl Pause {
        /// Waits a little, and longer each time. Whoever is waited for may have lost its processor.
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

    /// Nobody watches in what ships.
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

    /// Nothing is broken in what ships.
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

    /// Every turn of a loop that waits goes to another thread, for no other can end the wait.
    #[derive(Default)]
    pub(crate) struct Pause;

    impl Pause {
        pub(crate) fn wait(&mut self) {
            loom::thread::yield_now();
        }
    }

    /// A cell beside an entry of a log, for the checker to see whether its readers and its writer are in order. Atomic words
    /// alone would not tell: the checker runs no load behind a later store.
    ///
    /// The lock is for the compiler alone, to which logs are shared with real threads elsewhere; the checker doesn't know of it.
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

    /// What a test may break, one at a time, to see that the check notices.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// A core's watermark may be seen before what it publishes.
        EarlyMark,
        /// What a watermark publishes may be read as it was before.
        StaleEntry,
        /// A core's progress may be seen before it has read what it passed.
        EarlyProgress,
        /// A writer doesn't look how far the others are.
        NoRoom,
        /// A core publishes by a plain store and so undoes its fencing.
        BlindMark,
        /// A core doesn't ask whether it was fenced while it read.
        Unchecked,
        /// A writer that counts on a fence doesn't order it before its words.
        EarlyWords,
        /// A core applies what it received before the others can know.
        AppliesFirst,
    }

    thread_local! {
        // All threads of a model run on one of the system's.
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
        static WATCHED: Cell<bool> = const { Cell::new(true) };
    }

    impl Fault {
        /// From now on the logs of this thread have this fault, or none.
        pub fn inject(fault: Option<Self>) {
            FAULT.set(fault);
        }

        /// Whether the checker is to watch for reads and writes of an entry that are not in order. Where cores are fenced there
        /// are such: a fenced core may still be reading, and throws away what it read.
        pub fn watch(races: bool) {
            WATCHED.set(races);
        }

        /// Whether the logs of this thread have this fault.
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
