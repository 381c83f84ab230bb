//! What all cores of a transactional memory share besides its objects: the clock and the turns.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::log::Buffers;
use super::sites::Sites;
use super::sync::{AtomicU64, Ordering, Pause};

/// On a line of its own: others are written by others.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// What all cores share.
pub(crate) struct Stm {
    /// How many transactions have written something: the version of what was written last.
    pub(crate) clock: Apart<AtomicU64>,
    /// How many cores are at or wait for a turn. Every transaction looks at it, and it is seldom written.
    irrevocable: Apart<AtomicU64>,
    /// The ticket that has its turn now, and the next to be drawn.
    serving: Apart<AtomicU64>,
    next: AtomicU64,
    cores: usize,
    pub(crate) sites: Sites,
}

impl Stm {
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            clock: Apart(AtomicU64::new(0)),
            irrevocable: Apart(AtomicU64::new(0)),
            serving: Apart(AtomicU64::new(0)),
            next: AtomicU64::new(0),
            cores,
            sites: Sites::default(),
        }
    }

    pub(crate) const fn cores(&self) -> usize {
        self.cores
    }

    /// Waits as long as others have turns. Whoever misses one gets in its way for one transaction more: the turn waits for it.
    #[inline]
    pub(crate) fn wait_for_irrevocable(&self) {
        let mut pause = Pause::default();
        // ORDERING: Relaxed. What turns do is ordered by the objects' locks; this only keeps out of their way.
        while self.irrevocable.0.load(Ordering::Relaxed) != 0 {
            pause.wait();
        }
    }

    /// Takes a turn, which lasts until [`end_irrevocable`](Self::end_irrevocable). Turns are taken in the order in which they were asked for,
    /// and a core asks for one at a time, so the wait is bounded by the others' turns.
    #[cold]
    pub(crate) fn begin_irrevocable(&self) {
        // ORDERING: Relaxed, as in `wait_for_irrevocable`.
        self.irrevocable.0.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Relaxed. A number that nobody else draws.
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let mut pause = Pause::default();
        // ORDERING: Acquire, with `end_irrevocable`: what the turn before did is done.
        while self.serving.0.load(Ordering::Acquire) != ticket {
            pause.wait();
        }
    }

    /// Ends a turn.
    pub(crate) fn end_irrevocable(&self) {
        // ORDERING: Release, with `begin_irrevocable`.
        self.serving.0.fetch_add(1, Ordering::Release);
        // ORDERING: Relaxed, as in `wait_for_irrevocable`.
        self.irrevocable.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A core's place at a transactional memory. There is one for each core, and a core uses its own alone: aligned so that no two
/// share a line.
#[repr(align(128))]
pub struct CoreHandle {
    pub(crate) stm: Arc<Stm>,
    pub(crate) core: usize,
    pub(crate) buffers: Buffers,
    /// Where this core's commits stand: its next one is not before this.
    pub(crate) place: super::CommitPosition,
}

impl CoreHandle {
    /// The sessions of all cores.
    pub(crate) fn all(stm: &Arc<Stm>) -> Vec<Self> {
        let handle = |core| Self {
            stm: Arc::clone(stm),
            core,
            buffers: Buffers::default(),
            place: super::CommitPosition::default(),
        };
        (0..stm.cores()).map(handle).collect()
    }

    /// The number of the core.
    #[must_use]
    pub const fn core(&self) -> usize {
        self.core
    }
}
