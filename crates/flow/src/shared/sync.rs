//! Synchronisation primitives of the shared tables: the standard ones, or those of the model checker loom under `--cfg loom`. So loom
//! checks the code that ships.

#[cfg(not(loom))]
pub(crate) use self::shipped::*;

#[cfg(loom)]
pub use self::checked::Fault;
#[cfg(loom)]
pub(crate) use self::checked::*;

#[cfg(not(loom))]
mod shipped {
    pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    use core::{cell, hint, ops, slice};
    pub(crate) use std::sync::{Mutex, PoisonError};
    use std::thread;

    use crate::memory::{Filling, Region};

    /// How often it spins, twice as long each time, before it yields the processor.
    const SPINS: u32 = 6;

    /// Back-off of a thread that waits for another.
    #[derive(Default)]
    pub(crate) struct Pause(u32);

    impl Pause {
        /// Waits, longer each time. In the end it yields, as the other thread may have lost its processor.
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

    /// A cell for shared data whose access is synchronised elsewhere.
    pub(crate) struct UnsafeCell<T>(cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(content: T) -> Self {
            Self(cell::UnsafeCell::new(content))
        }

        /// Passes the address of the contents, to read. The caller ensures that nobody writes meanwhile.
        #[inline(always)]
        pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        /// Passes the address of the contents, to write. The caller ensures that nobody else reads or writes meanwhile.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, look: impl FnOnce(*mut T) -> R) -> R {
            look(self.0.get())
        }
    }

    /// Atomic words, all of them 0.
    pub(crate) struct AtomicWords(Region);

    impl AtomicWords {
        pub(crate) fn zeroed(count: usize) -> Self {
            Self(Region::zeroed(count * size_of::<AtomicU64>(), Filling::Whole))
        }
    }

    impl ops::Deref for AtomicWords {
        type Target = [AtomicU64];

        #[inline(always)]
        fn deref(&self) -> &[AtomicU64] {
            let count = self.0.bytes() / size_of::<AtomicU64>();
            // SAFETY: the region is that long, aligned to a cache line and zeroed; zeros are atomic words, and nobody
            // reaches them but through this.
            unsafe { slice::from_raw_parts(self.0.base().cast::<AtomicU64>().as_ptr(), count) }
        }
    }

    /// Injected faults exist under the model checker only.
    macro_rules! broken {
        ($fault:ident) => {
            false
        };
    }
    pub(crate) use broken;
}

#[cfg(loom)]
mod checked {
    use alloc::boxed::Box;
    use core::{cell, ops};
    use std::thread_local;

    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use std::sync::PoisonError;

    /// Each round of a waiting loop yields to another thread, as only another thread can end the wait.
    #[derive(Default)]
    pub(crate) struct Pause;

    impl Pause {
        pub(crate) fn wait(&mut self) {
            loom::thread::yield_now();
        }
    }

    /// A cell whose accesses the model checker watches for races.
    pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(content: T) -> Self {
            Self(loom::cell::UnsafeCell::new(content))
        }

        pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            self.0.with(look)
        }

        pub(crate) fn with_mut<R>(&self, look: impl FnOnce(*mut T) -> R) -> R {
            self.0.with_mut(look)
        }
    }

    /// Atomic words, all of them 0.
    pub(crate) struct AtomicWords(Box<[AtomicU64]>);

    impl AtomicWords {
        pub(crate) fn zeroed(count: usize) -> Self {
            Self(locality::pages::boxed((0..count).map(|_| AtomicU64::new(0))))
        }
    }

    impl ops::Deref for AtomicWords {
        type Target = [AtomicU64];

        fn deref(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    /// Faults that a test injects, one at a time, to see that the model checker finds them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// A writer's words become visible before its odd version.
        EarlyWords,
        /// A writer's even version becomes visible before its words.
        EarlyVersion,
        /// A reader checks the version before it has read the words.
        LateWords,
        /// A reader doesn't check the version.
        Unchecked,
        /// A reader that found nothing in two buckets checks the second's version only.
        HalfChecked,
        /// A lock is released before the writes under it are visible.
        EarlyUnlock,
        /// A reader that follows a signpost doesn't compare the key.
        Trusting,
        /// A core's announcement of a burst becomes visible after its first reads.
        LateEntry,
        /// A place is reused without checking for bursts.
        EarlyReuse,
        /// A decision on an entry that cores add to doesn't close it.
        Unclosed,
    }

    thread_local! {
        // All threads of a model run on one thread of the system.
        static FAULT: cell::Cell<Option<Fault>> = const { cell::Cell::new(None) };
    }

    impl Fault {
        /// Injects this fault into the tables of this thread, or none.
        pub fn inject(fault: Option<Self>) {
            FAULT.set(fault);
        }

        /// True if the tables of this thread have this fault.
        pub(crate) fn is_injected(self) -> bool {
            FAULT.get() == Some(self)
        }
    }

    macro_rules! broken {
        ($fault:ident) => {
            $crate::shared::sync::Fault::$fault.is_injected()
        };
    }
    pub(crate) use broken;
}
