//! Synchronisation primitives of the queue: the standard ones, or those of the model checker loom under `--cfg loom`. So loom checks the
//! code that ships.

#[cfg(loom)]
pub use self::checked::Fault;
#[cfg(loom)]
pub(crate) use self::checked::*;
#[cfg(not(loom))]
pub(crate) use self::shipped::*;

#[cfg(not(loom))]
mod shipped {
    pub(crate) use alloc::sync::Arc;
    use core::cell;
    pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// A cell for shared data whose access is synchronised elsewhere.
    #[repr(transparent)]
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
    extern crate std;

    use core::cell::Cell;
    use std::thread_local;

    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// Faults that a test injects, one at a time, to see that the model checker finds them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// A line's header becomes visible before its items.
        UnorderedFill,
        /// A line goes back before its items are read.
        UnorderedRelease,
        /// The producer is said to be gone before its last line is handed over.
        EarlyGone,
        /// The consumer sees that the producer is gone before it sees the last line.
        UnorderedGone,
        /// The consumer looks at the line first, then whether the producer is gone.
        LineFirst,
    }

    thread_local! {
        // All threads of a model run on one thread of the system.
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    impl Fault {
        /// Injects this fault into the queues of this thread, or none.
        pub fn inject(fault: Option<Self>) {
            FAULT.set(fault);
        }

        /// True if the queues of this thread have this fault.
        pub(crate) fn is_injected(self) -> bool {
            FAULT.get() == Some(self)
        }
    }

    macro_rules! broken {
        ($fault:ident) => {
            $crate::sync::Fault::$fault.is_injected()
        };
    }
    pub(crate) use broken;
}
