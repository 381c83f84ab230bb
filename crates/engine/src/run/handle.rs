//! The handle of a run: watch it and stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::counters::Counters;

/// A handle to watch and stop a run. Clones control the same run.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Set to end the run: packets received before are finished, and no more are taken.
    pub stop: Arc<AtomicBool>,
    cores: Arc<OnceLock<Box<[Published]>>>,
    /// Packets counted by a run without cores.
    packets: Arc<AtomicU64>,
    /// The core that others wait for, plus 1; 0 if they wait for none.
    stalled: Arc<AtomicUsize>,
}

/// A core's progress, published once a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreProgress {
    /// Packets received.
    pub received: u64,
    /// Their bytes on the wire.
    pub received_bytes: u64,
    /// Packets forwarded.
    pub forwarded: u64,
    /// Packets answered.
    pub replied: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// History records replayed.
    pub replayed: u64,
    /// Time without packets to work on.
    pub idle: Duration,
}

/// One core's published counters. Only that core writes them; they share no cache line with other cores' counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Published {
    words: [AtomicU64; 6],
    idle_ns: AtomicU64,
}

impl Published {
    /// Publishes the core's counters.
    pub(crate) fn publish(&self, counters: &Counters) {
        let Counters { received, received_bytes, forwarded, replied, replayed, .. } = *counters;
        // The rest was dropped: between two batches no packet is undecided.
        let dropped = received - forwarded - replied;
        for (word, value) in self.words.iter().zip([received, received_bytes, forwarded, replied, dropped, replayed]) {
            // ORDERING: Relaxed. Each counter stands alone; pairs with the loads in `read`.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The core was idle for so long.
    pub(crate) fn add_idle(&self, time: Duration) {
        let before = self.idle_ns.load(Ordering::Relaxed);
        // ORDERING: Relaxed, as in `publish`. Only this core writes it.
        self.idle_ns.store(before + time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn read(&self) -> CoreProgress {
        // ORDERING: Relaxed, as in `publish`. Counters of two batches may mix.
        let [received, received_bytes, forwarded, replied, dropped, replayed] =
            std::array::from_fn(|word| self.words[word].load(Ordering::Relaxed));
        let idle = Duration::from_nanos(self.idle_ns.load(Ordering::Relaxed));
        CoreProgress { received, received_bytes, forwarded, replied, dropped, replayed, idle }
    }
}

impl Control {
    /// Ends the run: packets received before are finished, and no more are taken.
    pub fn stop(&self) {
        // ORDERING: Relaxed. The flag carries no data, and a short delay doesn't matter.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True if the run was told to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        // ORDERING: Relaxed, as in `stop`.
        self.stop.load(Ordering::Relaxed)
    }

    /// The progress of each core. Empty before the run has begun.
    #[must_use]
    pub fn cores(&self) -> Vec<CoreProgress> {
        self.cores.get().map_or_else(Vec::new, |cores| cores.iter().map(Published::read).collect())
    }

    /// The packets received so far.
    #[must_use]
    pub fn packets(&self) -> u64 {
        // ORDERING: Relaxed. The number is for display; pairs with the additions in `count`.
        let counted = self.packets.load(Ordering::Relaxed);
        counted + self.cores().iter().map(|core| core.received).sum::<u64>()
    }

    /// The core of a pipeline that the others have waited for, for seconds; `None` while all go on.
    #[must_use]
    pub fn stalled(&self) -> Option<usize> {
        // ORDERING: Relaxed. The number is for display; pairs with the store in `stall`.
        self.stalled.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Names the core that others wait for.
    pub(crate) fn stall(&self, core: Option<usize>) {
        let core = core.map_or(0, |core| core + 1);
        // ORDERING: Relaxed, as in `stalled`. Stored only if it changes, since this is called for each piece.
        if self.stalled.load(Ordering::Relaxed) != core {
            self.stalled.store(core, Ordering::Relaxed);
        }
    }

    /// Counts packets of a run without cores.
    pub(crate) fn count(&self, packets: u64) {
        // ORDERING: Relaxed. The number is for display.
        self.packets.fetch_add(packets, Ordering::Relaxed);
    }

    /// The published counters of `cores` cores. A handle serves one run at a time; a later run uses the counters of the first.
    pub(crate) fn publishers(&self, cores: usize) -> &[Published] {
        let published = self.cores.get_or_init(|| (0..cores).map(|_| Published::default()).collect());
        &published[..cores.min(published.len())]
    }
}
