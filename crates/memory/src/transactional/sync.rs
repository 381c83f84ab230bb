//! Synchronisation primitives of the transactional memory: the standard ones, or those of the model checker loom under `--cfg loom`. So
//! loom checks the code that ships.

#[cfg(loom)]
pub use self::checked::Fault;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// How often it spins, twice as long each time, before it yields the processor.
#[cfg(not(loom))]
const SPINS: u32 = 6;

/// Back-off of a core that waits for another.
#[derive(Debug, Default)]
pub(crate) struct Pause(u32);

impl Pause {
    /// Waits, longer each time. In the end it yields, as the other thread may have lost its processor.
    #[cold]
    pub(crate) fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        if self.0 <= SPINS {
            (0..1 << self.0).for_each(|_| core::hint::spin_loop());
        } else {
            std::thread::yield_now();
        }
    }

    /// The number of waits.
    pub(crate) const fn count(&self) -> u32 {
        self.0
    }
}

/// Injected faults exist under the model checker only.
#[cfg(not(loom))]
macro_rules! broken {
    ($fault:ident) => {
        false
    };
}

/// True if a test has injected this fault.
#[cfg(loom)]
macro_rules! broken {
    ($fault:ident) => {
        $crate::transactional::Fault::$fault.is_injected()
    };
}
pub(crate) use broken;

#[cfg(loom)]
mod checked {
    use core::cell::Cell;
    use std::thread_local;

    /// Faults that a test injects, one at a time, to see that the model checker finds them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// A writer's words become visible before its lock.
        EarlyWords,
        /// A reader doesn't check the version again.
        Unchecked,
        /// The read set isn't validated at commit.
        Unvalidated,
        /// A snapshot is extended without validation.
        Unextended,
        /// An undone object gets its old version.
        SameVersion,
        /// An irrevocable transaction doesn't lock what it reads.
        UnlockedIrrevocable,
    }

    thread_local! {
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    impl Fault {
        /// Injects this fault on this thread, or none.
        pub fn inject(fault: Option<Self>) {
            FAULT.set(fault);
        }

        pub(crate) fn is_injected(self) -> bool {
            FAULT.get() == Some(self)
        }
    }
}
