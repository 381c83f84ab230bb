//! A run's handle: whoever has a copy can look at the run while it goes, and stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::counters::Counters;

/// The outside's hold on a run. Copies are of the same run.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Set to end the run: what was received is finished, nothing more is taken.
    pub stop: Arc<AtomicBool>,
    cores: Arc<OnceLock<Box<[Published]>>>,
    /// What was counted by whoever has no cores to count by.
    packets: Arc<AtomicU64>,
}

/// What a core has done so far, as the run publishes it once a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreProgress {
    /// Packets that came in.
    pub received: u64,
    /// Their bytes on the wire.
    pub received_bytes: u64,
    /// Packets that went out.
    pub forwarded: u64,
    /// Packets that were answered.
    pub replied: u64,
    /// Packets that ended here.
    pub dropped: u64,
    /// History records that were replayed.
    pub replayed: u64,
}

/// One core's figures. Written by that core alone, and apart from what other cores write.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Published {
    words: [AtomicU64; 6],
}

impl Published {
    /// Publishes what the core has counted so far.
    pub(crate) fn publish(&self, counters: &Counters) {
        let Counters { received, received_bytes, forwarded, replied, replayed, .. } = *counters;
        // What was received and neither went out nor was answered was dropped: in between batches nothing is undecided.
        let dropped = received - forwarded - replied;
        for (word, value) in self.words.iter().zip([received, received_bytes, forwarded, replied, dropped, replayed]) {
            // ORDERING: Relaxed. Each is a figure by itself; pairs with the loads in `read`.
            word.store(value, Ordering::Relaxed);
        }
    }

    fn read(&self) -> CoreProgress {
        // ORDERING: Relaxed, as in `publish`. Figures of two batches may mix.
        let [received, received_bytes, forwarded, replied, dropped, replayed] =
            std::array::from_fn(|word| self.words[word].load(Ordering::Relaxed));
        CoreProgress { received, received_bytes, forwarded, replied, dropped, replayed }
    }
}

impl Control {
    /// Ends the run: what was received is finished, nothing more is taken.
    pub fn stop(&self) {
        // ORDERING: Relaxed. The flag carries no data; it is seen soon enough.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the run was told to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        // ORDERING: Relaxed, as in `stop`.
        self.stop.load(Ordering::Relaxed)
    }

    /// What each core has done so far; empty before the run has begun.
    #[must_use]
    pub fn cores(&self) -> Vec<CoreProgress> {
        self.cores.get().map_or_else(Vec::new, |cores| cores.iter().map(Published::read).collect())
    }

    /// How many packets have been taken in so far.
    #[must_use]
    pub fn packets(&self) -> u64 {
        // ORDERING: Relaxed. A number to look at; pairs with the additions in `count`.
        let counted = self.packets.load(Ordering::Relaxed);
        counted + self.cores().iter().map(|core| core.received).sum::<u64>()
    }

    /// Counts packets where no cores do.
    pub(crate) fn count(&self, packets: u64) {
        // ORDERING: Relaxed. A number to look at.
        self.packets.fetch_add(packets, Ordering::Relaxed);
    }

    /// Where so many cores publish. One handle is for one run at a time; a later one goes on with the first's places.
    pub(crate) fn publishers(&self, cores: usize) -> &[Published] {
        let published = self.cores.get_or_init(|| (0..cores).map(|_| Published::default()).collect());
        &published[..cores.min(published.len())]
    }
}
