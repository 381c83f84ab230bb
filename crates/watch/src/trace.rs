//! Packets that an operator asks for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use port::{Batch, Packet, Watch};

/// Decides whether a packet is traced.
pub type Fits = Box<dyn Fn(&Packet, &[u8]) -> bool + Send>;

/// Packets that an operator asks for, as they came, with their fates. One request at a time; it ends by itself if nobody
/// [takes](Self::take) what was found.
#[derive(Default)]
pub struct Traces {
    /// True while packets are looked at.
    is_on: AtomicBool,
    request: Mutex<Option<Request>>,
}

struct Request {
    fits: Fits,
    most: usize,
    taken: Instant,
    /// Packets under way.
    came: Vec<Traced>,
    /// Packets with their fates.
    decided: Vec<Traced>,
    /// Packets that fit beyond `most`.
    left_out: u64,
}

/// Packets of a trace since the last look.
#[derive(Clone, Debug, Default)]
pub struct TracedPackets {
    /// Packets that fit.
    pub packets: Vec<Traced>,
    /// Number of further packets that fit, and were left out.
    pub left_out: u64,
}

/// A packet as it came, with its fate.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Its queue.
    pub queue: usize,
    /// Its descriptor, with the fate.
    pub packet: Packet,
    /// Its bytes as it came.
    pub bytes: Vec<u8>,
}

/// A request ends if nobody takes its packets for this time.
const PATIENCE: Duration = Duration::from_secs(5);

impl Traces {
    /// Looks for packets that fit, at most `most` between two calls of [`take`](Self::take). Replaces an earlier request.
    pub fn begin(&self, fits: Fits, most: usize) {
        let (came, decided) = (Vec::new(), Vec::new());
        *self.lock() = Some(Request { fits, most, taken: Instant::now(), came, decided, left_out: 0 });
        // ORDERING: Relaxed. The request is under a lock; pairs with the loads in `looking`.
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// The packets found since the last call; `None` if there is no request.
    pub fn take(&self) -> Option<TracedPackets> {
        let mut request = self.lock();
        let request = request.as_mut()?;
        request.taken = Instant::now();
        let (packets, left_out) = (std::mem::take(&mut request.decided), std::mem::take(&mut request.left_out));
        Some(TracedPackets { packets, left_out })
    }

    /// Ends the request.
    pub fn end(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Request>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request, if there is one.
    fn looking(&self) -> Option<MutexGuard<'_, Option<Request>>> {
        // ORDERING: Relaxed, as in `begin`. A core reads only this flag with each burst.
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let mut request = self.lock();
        if request.as_ref().is_some_and(|request| request.taken.elapsed() > PATIENCE) {
            *request = None;
            self.is_on.store(false, Ordering::Relaxed);
        }
        Some(request)
    }
}

impl Watch for Traces {
    fn received(&self, queue: usize, batch: &Batch) {
        let Some(mut request) = self.looking() else { return };
        let Some(Request { fits, most, came, decided, left_out, .. }) = &mut *request else { return };
        for (packet, bytes) in batch.each(0..batch.len()) {
            if !fits(packet, bytes) {
                continue;
            }
            if came.len() + decided.len() >= *most {
                *left_out += 1;
            } else {
                came.push(Traced { queue, packet: *packet, bytes: bytes.to_vec() });
            }
        }
    }

    fn decided(&self, queue: usize, batch: &Batch) {
        let Some(mut request) = self.looking() else { return };
        let Some(Request { came, decided, .. }) = &mut *request else { return };
        came.retain_mut(|traced| {
            let of_batch = traced.queue == queue;
            let at = batch.packets().binary_search_by_key(&traced.packet.seq, |packet| packet.seq);
            let Some(at) = at.ok().filter(|_| of_batch) else { return true };
            traced.packet.fate = batch.packets()[at].fate;
            decided.push(traced.clone());
            false
        });
    }
}

impl std::fmt::Debug for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Traces").field("is_on", &self.is_on).finish_non_exhaustive()
    }
}
