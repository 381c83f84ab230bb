//! Everything that one thread sees of another goes through here, so that a model checker (`--cfg loom`) can take its place:
//! the code that it checks is the code that ships.

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

    /// Spins this often, twice as long each time, before it lets another thread have the processor.
    const SPINS: u32 = 6;

    /// What a thread does while it waits for another one.
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

    /// A cell under a lock.
    pub(crate) struct UnsafeCell<T>(cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(content: T) -> Self {
            Self(cell::UnsafeCell::new(content))
        }

        /// What is in the cell, by its address. The caller sees to it that nobody writes meanwhile.
        #[inline(always)]
        pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        /// The same, to write. The caller sees to it that nobody else looks meanwhile.
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
    use alloc::boxed::Box;
    use core::{cell, ops};
    use std::thread_local;

    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use std::sync::PoisonError;

    /// Every turn of a loop that waits goes to another thread, for no other can end the wait.
    #[derive(Default)]
    pub(crate) struct Pause;

    impl Pause {
        pub(crate) fn wait(&mut self) {
            loom::thread::yield_now();
        }
    }

    /// A cell whose accesses the checker watches for races.
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

    /// What a test may break, one at a time, to see that the check notices.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// A writer's words may be seen before its odd version.
        EarlyWords,
        /// A writer's even version may be seen before its words.
        EarlyVersion,
        /// A reader looks at the version again before it has read the words.
        LateWords,
        /// A reader doesn't look at the version again.
        Unchecked,
        /// A reader that found nothing in two buckets looks again at the second's version alone.
        HalfChecked,
        /// A lock is given back before what was done under it is seen.
        EarlyUnlock,
        /// Who follows a signpost doesn't look whose entry it leads to.
        Trusting,
        /// A core's announcement that it is in a burst may be seen after it has begun.
        LateEntry,
        /// A place is used again without a look at who is in a burst.
        EarlyReuse,
        /// Who decides on an entry that cores add to doesn't keep them from it.
        Unclosed,
    }

    thread_local! {
        // All threads of a model run on one of the system's.
        static FAULT: cell::Cell<Option<Fault>> = const { cell::Cell::new(None) };
    }

    impl Fault {
        /// From now on the tables of this thread have this fault, or none.
        pub fn inject(fault: Option<Self>) {
            FAULT.set(fault);
        }

        /// Whether the tables of this thread have this fault.
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
