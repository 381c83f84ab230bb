//! Requests to a run as a whole, served between two packets: a new configuration takes over, or somebody looks at the state.
//!
//! Every core says when it is ready, and goes on until all are. Then all stop where they are, as at the end of the input, and nothing is
//! closed. While no core runs, the request is served. Then the cores go on with the next packet. So no packet sees two configurations,
//! whatever the engine, and none waits for a core that was idle.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use nf::NetworkFunction;
use packet::{Nanos, Seq};

use super::instance::Inspect;

/// Where a run finds requests to it as a whole.
pub(super) struct Succession<N: NetworkFunction> {
    /// True if there is a request. A core reads only this flag with each batch.
    is_due: AtomicBool,
    /// Number of cores that may stop: they have seen the request, or have ended.
    ready: AtomicUsize,
    waiting: Mutex<Waiting<N>>,
}

struct Waiting<N: NetworkFunction> {
    request: Option<Request<N>>,
    /// Looks at the state that the run leaves behind.
    at_end: Option<Look<N>>,
    /// True if the run takes no more.
    closed: bool,
}

/// A request to a run as a whole.
pub(super) enum Request<N: NetworkFunction> {
    /// Let another function succeed the run's own, and tell the number of the first packet that it decides.
    Succeed(Arc<N>, Sender<Seq>),
    /// Show the state, and the time of the last packet.
    Look(Look<N>),
}

/// Looks at the state of a run, at the time of its last packet.
pub type Look<N> = Box<dyn FnOnce(&mut dyn Inspect<N>, &N, Nanos) + Send>;

impl<N: NetworkFunction> Succession<N> {
    pub(super) const fn new() -> Self {
        let waiting = Mutex::new(Waiting { request: None, at_end: None, closed: false });
        Self { is_due: AtomicBool::new(false), ready: AtomicUsize::new(0), waiting }
    }

    /// True if the cores are to stop for a request.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        // ORDERING: Relaxed. The request itself is under a lock; pairs with the stores in `put` and `take`.
        self.is_due.load(Ordering::Relaxed)
    }

    /// The cores begin, or go on: none is ready.
    pub(super) fn begin(&self) {
        // ORDERING: Relaxed. The cores' threads start after this.
        self.ready.store(0, Ordering::Relaxed);
    }

    /// One core more may stop. Each core calls this once, at the latest when it ends.
    pub(super) fn is_ready(&self) {
        // ORDERING: Relaxed. The number orders nothing: the cores' threads end before a request is served.
        self.ready.fetch_add(1, Ordering::Relaxed);
    }

    /// True if all cores may stop.
    pub(super) fn are_ready(&self, cores: usize) -> bool {
        // ORDERING: Relaxed, as in `is_ready`.
        self.ready.load(Ordering::Relaxed) >= cores
    }

    /// Lets `nf` take over. Returns the number of the first packet that it decides, or `None` if the run has ended before. One caller at a
    /// time.
    pub(super) fn succeed(&self, nf: Arc<N>) -> Option<Seq> {
        let (answer, first) = channel();
        self.put(Request::Succeed(nf, answer));
        first.recv().ok()
    }

    /// Looks at the state while no core runs. Returns `None` if the run has ended before. One caller at a time.
    pub(super) fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&mut dyn Inspect<N>, &N, Nanos) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, seen) = channel();
        // The receiver is there as long as this call.
        self.put(Request::Look(Box::new(move |state, nf, now| drop(answer.send(look(state, nf, now))))));
        seen.recv().ok()
    }

    /// Looks at the state that the run leaves behind.
    pub(super) fn look_at_end(&self, look: Look<N>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).at_end = Some(look);
    }

    /// Takes the look at the end, if there is one.
    pub(super) fn take_at_end(&self) -> Option<Look<N>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).at_end.take()
    }

    /// Drops a request to a run that has ended, and so its sender.
    fn put(&self, request: Request<N>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.closed {
            waiting.request = Some(request);
            // ORDERING: Relaxed, as in `is_due`.
            self.is_due.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the request, if there is one.
    pub(super) fn take(&self) -> Option<Request<N>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // ORDERING: Relaxed, as in `is_due`.
        self.is_due.store(false, Ordering::Relaxed);
        waiting.request.take()
    }

    /// The run has ended: no request is served any more.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.closed = true;
        waiting.request = None;
        waiting.at_end = None;
    }
}
