//! The succession of functions in a run: a new configuration takes over between two packets.
//!
//! All cores stop where they are, as at the end of the input, and nothing is closed. While no core runs, the state is fitted to the new
//! function. Then the cores go on with the next packet. So no packet sees two configurations, whatever the engine, and none is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use packet::Seq;

/// Where a run finds the function that is to succeed its own.
pub(super) struct Succession<N> {
    /// True if there is one. A core reads only this flag with each batch.
    is_due: AtomicBool,
    waiting: Mutex<Waiting<N>>,
}

struct Waiting<N> {
    successor: Option<Successor<N>>,
    /// True if the run takes no more.
    closed: bool,
}

/// A function that is to succeed a run's own.
pub(super) struct Successor<N> {
    /// The function.
    pub(super) nf: Arc<N>,
    /// Gets the number of the first packet that the function decides.
    pub(super) answer: Sender<Seq>,
}

impl<N> Succession<N> {
    pub(super) const fn new() -> Self {
        Self { is_due: AtomicBool::new(false), waiting: Mutex::new(Waiting { successor: None, closed: false }) }
    }

    /// True if the cores are to stop for a successor.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        // ORDERING: Relaxed. The successor itself is under a lock; pairs with the stores in `request` and `take`.
        self.is_due.load(Ordering::Relaxed)
    }

    /// Lets `nf` take over. Returns the number of the first packet that it decides, or `None` if the run has ended before. One caller at a
    /// time.
    pub(super) fn request(&self, nf: Arc<N>) -> Option<Seq> {
        let (answer, first) = channel();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.closed {
                return None;
            }
            waiting.successor = Some(Successor { nf, answer });
            // ORDERING: Relaxed, as in `is_due`.
            self.is_due.store(true, Ordering::Relaxed);
        }
        first.recv().ok()
    }

    /// Takes the successor, if there is one.
    pub(super) fn take(&self) -> Option<Successor<N>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // ORDERING: Relaxed, as in `is_due`.
        self.is_due.store(false, Ordering::Relaxed);
        waiting.successor.take()
    }

    /// The run has ended: nothing takes over any more.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.closed = true;
        waiting.successor = None;
    }
}
