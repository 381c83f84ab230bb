//! Repeats a recorded order of transactions, one at a time (`verify` under `transactional`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use memory::transactional::CommitPosition;

/// The order in which cores commit their transactions, for a run that repeats another.
pub struct ReplayOrder {
    cores: Vec<u16>,
    at: AtomicUsize,
    /// The thread of each core that sleeps until it is next.
    waiting: Vec<Mutex<Option<Thread>>>,
}

impl ReplayOrder {
    /// Makes the order from the places of recorded transactions. `places` has the places of each core, in the core's own order.
    pub(crate) fn of<'a>(places: impl IntoIterator<Item = &'a [CommitPosition]>) -> Arc<Self> {
        let (mut all, mut waiting): (Vec<(CommitPosition, usize, usize)>, _) = (Vec::new(), Vec::new());
        for (core, places) in places.into_iter().enumerate() {
            waiting.push(Mutex::default());
            all.extend(places.iter().enumerate().map(|(nth, place)| (*place, core, nth)));
        }
        all.sort_unstable();
        let cores: Vec<u16> = all.into_iter().map(|(_, core, _)| core as u16).collect();
        Arc::new(Self { cores, at: AtomicUsize::new(0), waiting })
    }

    /// Waits until this core is next.
    ///
    /// # Panics
    /// If nothing happens for [`STALLED`]: then this run isn't the one that was recorded.
    pub(crate) fn wait(&self, core: usize) {
        for _ in 0..YIELDS {
            if self.is_next(core) {
                return;
            }
            thread::yield_now();
        }
        *self.waiter(core) = Some(thread::current());
        let (mut last, mut waited) = (self.place(), Duration::ZERO);
        while !self.is_next(core) {
            // A process that was suspended counts one look, not the whole time.
            thread::park_timeout(LOOK);
            waited = if self.place() == last { waited + LOOK } else { Duration::ZERO };
            last = self.place();
            assert!(waited < STALLED, "core {core} waits for a turn that never comes, behind {last}");
        }
    }

    /// True if this core is next, or the order has ended.
    fn is_next(&self, core: usize) -> bool {
        self.cores.get(self.place()).is_none_or(|&next| usize::from(next) == core)
    }

    fn place(&self) -> usize {
        // ORDERING: Acquire pairs with the Release in `pass`: all earlier transactions are visible.
        self.at.load(Ordering::Acquire)
    }

    /// Ends this core's transaction and wakes the next core.
    pub(crate) fn pass(&self) {
        // ORDERING: Release pairs with the Acquire in `place`. A core that starts to wait now registers its thread under a lock and then
        // reads the place, so it sees this addition.
        let next = self.at.fetch_add(1, Ordering::Release) + 1;
        match self.cores.get(next) {
            Some(&core) => self.wake(usize::from(core)),
            None => (0..self.waiting.len()).for_each(|core| self.wake(core)),
        }
    }

    fn wake(&self, core: usize) {
        if let Some(thread) = &*self.waiter(core) {
            thread.unpark();
        }
    }

    fn waiter(&self, core: usize) -> MutexGuard<'_, Option<Thread>> {
        self.waiting[core].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a core yields and checks whether it is next before it sleeps.
const YIELDS: usize = 16;
/// How long the run may make no progress.
const STALLED: Duration = Duration::from_secs(20);
/// How long a core sleeps at most before it looks again.
const LOOK: Duration = Duration::from_millis(100);
