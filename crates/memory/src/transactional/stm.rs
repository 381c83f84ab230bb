//! State that all cores of a transactional memory share besides its objects: the global version clock, and the queue of irrevocable
//! transactions.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::log::Buffers;
use super::sites::Sites;
use super::sync::{AtomicU64, Ordering, Pause};

/// A value on cache lines of its own, as cores write different ones.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// State that all cores share.
pub(crate) struct Stm {
    /// The global version clock: the number of transactions that have written.
    pub(crate) clock: Apart<AtomicU64>,
    /// How many cores run or wait for an irrevocable transaction. Every transaction reads it; it is written seldom.
    irrevocable: Apart<AtomicU64>,
    /// A ticket lock for irrevocable transactions: the ticket being served and the next one.
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

    /// Waits while there are irrevocable transactions. A transaction that overlooks one runs beside it; the irrevocable one waits for its
    /// locks.
    #[inline]
    pub(crate) fn wait_for_irrevocable(&self) {
        let mut pause = Pause::default();
        // ORDERING: Relaxed. The objects' locks order irrevocable transactions; this wait only reduces conflicts.
        while self.irrevocable.0.load(Ordering::Relaxed) != 0 {
            pause.wait();
        }
    }

    /// Waits for this core's irrevocable transaction, which lasts until [`end_irrevocable`](Self::end_irrevocable). They run in the order
    /// of the calls, and each core asks for one at a time, so the wait is bounded by the transactions of the other cores.
    #[cold]
    pub(crate) fn begin_irrevocable(&self) {
        // ORDERING: Relaxed, as in `wait_for_irrevocable`.
        self.irrevocable.0.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Relaxed. Each core draws another number.
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let mut pause = Pause::default();
        // ORDERING: Acquire, with `end_irrevocable`: the previous irrevocable transaction is done.
        while self.serving.0.load(Ordering::Acquire) != ticket {
            pause.wait();
        }
    }

    /// Ends this core's irrevocable transaction.
    pub(crate) fn end_irrevocable(&self) {
        // ORDERING: Release, with `begin_irrevocable`.
        self.serving.0.fetch_add(1, Ordering::Release);
        // ORDERING: Relaxed, as in `wait_for_irrevocable`.
        self.irrevocable.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A core's handle on a transactional memory. Each core has its own, aligned so that no two share a cache line.
#[repr(align(128))]
pub struct CoreHandle {
    pub(crate) stm: Arc<Stm>,
    pub(crate) core: usize,
    pub(crate) buffers: Buffers,
    /// The position of this core's last commit; its next one is not before it.
    pub(crate) place: super::CommitPosition,
    /// The last attempt failed because it has to be irrevocable.
    pub(crate) asks_irrevocable: bool,
}

impl CoreHandle {
    /// The handles of all cores.
    pub(crate) fn all(stm: &Arc<Stm>) -> Vec<Self> {
        let handle = |core| Self {
            stm: Arc::clone(stm),
            core,
            buffers: Buffers::default(),
            place: super::CommitPosition::default(),
            asks_irrevocable: false,
        };
        (0..stm.cores()).map(handle).collect()
    }

    /// The number of the core.
    #[must_use]
    pub const fn core(&self) -> usize {
        self.core
    }
}
