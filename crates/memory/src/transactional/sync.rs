//! Everything that one core sees of another goes through here, so that a model checker (`--cfg loom`) can take its place: the
//! code that it checks is the code that ships.

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
        self.0 += 1;
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
