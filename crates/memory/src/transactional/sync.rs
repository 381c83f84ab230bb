//! Everything that one core sees of another goes through here, so that a model checker (`--cfg loom`) can take its place: the
//! code that it checks is the code that ships.

#[cfg(loom)]
pub use self::checked::Fault;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Spins this often, twice as long each time, before it lets another thread have the processor.
#[cfg(not(loom))]
const SPINS: u32 = 6;

/// What a core does while it waits for another one.
#[derive(Debug, Default)]
pub(crate) struct Pause(u32);

impl Pause {
    /// Waits a little, and longer each time. Whoever is waited for may have lost its processor.
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

    /// How often it waited.
    pub(crate) const fn count(&self) -> u32 {
        self.0
    }
}

/// Nothing is broken in what ships.
#[cfg(not(loom))]
macro_rules! broken {
    ($fault:ident) => {
        false
    };
}

/// Whether a test has broken this.
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

    /// What a test may break, one at a time, to see that the check notices.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// A writer's words may be seen before its lock.
        EarlyWords,
        /// A reader doesn't look at the version again.
        Unchecked,
        /// What was read isn't looked at again when a transaction commits.
        Unvalidated,
        /// A snapshot is taken to hold at any later version.
        Unextended,
        /// What was undone has the version that it had before.
        SameVersion,
        /// Who has a turn doesn't lock what it reads.
        UnlockedIrrevocable,
    }

    thread_local! {
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    impl Fault {
        /// Breaks this from now on, on this thread, or nothing any more.
        pub fn inject(fault: Option<Self>) {
            FAULT.set(fault);
        }

        pub(crate) fn is_injected(self) -> bool {
            FAULT.get() == Some(self)
        }
    }
}
