//! Repeats a recorded order of transactions, one at a time (`verify` under `transactional`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use memory::transactional::CommitPosition;

/// An order of transactions, by their cores, for a run that is to repeat another.
pub struct ReplayOrder {
    cores: Vec<u16>,
    at: AtomicUsize,
    /// The thread of each core that has waited, to be woken when its turn comes.
    waiting: Vec<Mutex<Option<Thread>>>,
}

impl ReplayOrder {
    /// The order of transactions that had these places, by core, each core's in the order that it made them.
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

    /// Waits until it is this core's turn.
    ///
    /// # Panics
    /// When nothing happens for long: then the run is not the one that was recorded.
    pub(crate) fn wait(&self, core: usize) {
        for _ in 0..YIELDS {
            if self.is_turn(core) {
                return;
            }
            thread::yield_now();
        }
        *self.waiter(core) = Some(thread::current());
        let (mut last, mut waited) = (self.place(), Duration::ZERO);
        while !self.is_turn(core) {
            // A process that was suspended has waited for one look, not for all that time.
            thread::park_timeout(LOOK);
            waited = if self.place() == last { waited + LOOK } else { Duration::ZERO };
            last = self.place();
            assert!(waited < STALLED, "core {core} waits for a turn that never comes, behind {last}");
        }
    }

    /// Whether it is this core's turn, or nobody's any more.
    fn is_turn(&self, core: usize) -> bool {
        self.cores.get(self.place()).is_none_or(|&next| usize::from(next) == core)
    }

    fn place(&self) -> usize {
        // ORDERING: Acquire, with the release in `pass`: all that came before is seen.
        self.at.load(Ordering::Acquire)
    }

    /// This core's transaction has committed: the next may go on.
    pub(crate) fn pass(&self) {
        // ORDERING: Release, with `place`. Who begins to wait now and has not left its name yet looks at the place behind the lock that it leaves
        // its name under, and so sees this.
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

/// How often a core looks whether its turn has come before it sleeps.
const YIELDS: usize = 16;
/// How long a run that repeats another may stand still.
const STALLED: Duration = Duration::from_secs(20);
/// How long a core sleeps at most.
const LOOK: Duration = Duration::from_millis(100);
