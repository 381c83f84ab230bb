//! Progress of a receiving half, for the cards of the cores that it feeds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use packet::Nanos;

/// Progress of a receiving half.
#[derive(Debug)]
pub(crate) struct Progress {
    receives: AtomicU64,
    drained: AtomicU64,
    is_usable: AtomicBool,
}

impl Progress {
    pub(crate) const fn new() -> Self {
        Self { receives: AtomicU64::new(0), drained: AtomicU64::new(0), is_usable: AtomicBool::new(true) }
    }

    /// A receive begins: the packets of earlier ones have been decided and sent.
    pub(crate) fn begin(&self) {
        // ORDERING: Relaxed, here and below. Numbers by which a card chooses when it opens an entry; packets pass by the rings. Each pairs
        // with the look of the same name.
        self.receives.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of receives.
    pub(crate) fn receives(&self) -> u64 {
        self.receives.load(Ordering::Relaxed)
    }

    /// All packets that lay in the receive rings at this time have been decided and sent.
    pub(crate) fn has_drained(&self, time: Nanos) {
        self.drained.store(time.0, Ordering::Relaxed);
    }

    /// The time of which [`has_drained`](Self::has_drained) told last.
    pub(crate) fn drained(&self) -> Nanos {
        Nanos(self.drained.load(Ordering::Relaxed))
    }

    /// Says whether packets can go from one interface to the other now.
    pub(crate) fn set_usable(&self, is_usable: bool) {
        self.is_usable.store(is_usable, Ordering::Relaxed);
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.is_usable.load(Ordering::Relaxed)
    }
}
