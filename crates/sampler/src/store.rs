//! Memory for samples, allocated in advance: a signal handler may neither allocate nor wait.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Maximum recorded depth of a stack. A worker's has about a dozen calls; inlined functions need no room.
pub(crate) const DEPTH: usize = 64;
/// Maximum number of samples.
const SLOTS: usize = 1 << 14;

/// Samples, each in a slot of its own.
pub(crate) struct Store {
    slots: Box<[Slot]>,
    taken: AtomicUsize,
    /// How many are being written at the moment.
    under_way: AtomicUsize,
    open: AtomicBool,
}

struct Slot {
    cpu: AtomicU32,
    len: AtomicUsize,
    whole: AtomicBool,
    addresses: [AtomicUsize; DEPTH],
}

/// A sample as it was noted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sample {
    /// Return addresses, from the innermost call outwards; the first is where the thread was.
    pub(crate) addresses: Vec<usize>,
    /// True if that is all of the stack.
    pub(crate) whole: bool,
}

impl Store {
    pub(crate) fn new() -> Self {
        let slot = || Slot {
            cpu: AtomicU32::new(0),
            len: AtomicUsize::new(0),
            whole: AtomicBool::new(false),
            addresses: [const { AtomicUsize::new(0) }; DEPTH],
        };
        Self {
            slots: (0..SLOTS).map(|_| slot()).collect(),
            taken: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            open: AtomicBool::new(false),
        }
    }

    /// Drops old samples and accepts new ones; `false` if it already accepts samples.
    pub(crate) fn open(&self) -> bool {
        // ORDERING: SeqCst, with `take`: who finds it open finds no sample of the time before.
        if self.open.load(Ordering::SeqCst) {
            return false;
        }
        self.taken.store(0, Ordering::SeqCst);
        !self.open.swap(true, Ordering::SeqCst)
    }

    /// Accepts no more samples, and waits for those being written.
    pub(crate) fn close(&self) {
        // ORDERING: SeqCst. Who is counted as under way after this has seen that it is closed.
        self.open.store(false, Ordering::SeqCst);
        while self.under_way.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }

    /// Records a sample, if samples are accepted and fit. `walk` calls its argument with the addresses of the stack until that returns
    /// false; it returns true if it reached the end of the stack.
    pub(crate) fn take(&self, cpu: u32, walk: impl FnOnce(&mut dyn FnMut(usize) -> bool) -> bool) {
        // ORDERING: SeqCst, before the look at `open`; see `close`.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        if self.open.load(Ordering::SeqCst) {
            // ORDERING: Relaxed. A slot is one sample's alone; what is in it is read after `close`.
            let number = self.taken.fetch_add(1, Ordering::Relaxed);
            if let Some(slot) = self.slots.get(number) {
                let mut len = 0;
                let ended = walk(&mut |address| {
                    let Some(place) = slot.addresses.get(len) else { return false };
                    place.store(address, Ordering::Relaxed);
                    len += 1;
                    true
                });
                slot.cpu.store(cpu, Ordering::Relaxed);
                slot.len.store(len, Ordering::Relaxed);
                slot.whole.store(ended, Ordering::Relaxed);
            }
        }
        // ORDERING: SeqCst, with the load in `close`: the slot is written.
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    /// How many samples were taken so far, those without room among them.
    pub(crate) fn taken(&self) -> usize {
        // ORDERING: Relaxed. A number to look at; pairs with `take`.
        self.taken.load(Ordering::Relaxed)
    }

    /// Those that there was no room for.
    pub(crate) fn lost(&self) -> usize {
        self.taken().saturating_sub(self.slots.len())
    }

    /// The samples with the processor that each was taken on. To be called when it is closed.
    pub(crate) fn samples(&self) -> impl Iterator<Item = (u32, Sample)> + '_ {
        // ORDERING: Relaxed. `close` has waited for what is read here.
        self.slots[..self.taken().min(self.slots.len())].iter().map(|slot| {
            let len = slot.len.load(Ordering::Relaxed);
            let addresses = slot.addresses[..len].iter().map(|address| address.load(Ordering::Relaxed)).collect();
            (slot.cpu.load(Ordering::Relaxed), Sample { addresses, whole: slot.whole.load(Ordering::Relaxed) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(store: &Store, addresses: &[usize]) {
        store.take(3, |note| addresses.iter().all(|address| note(*address)));
    }

    #[test]
    fn samples_come_out_as_they_went_in() {
        let store = Store::new();
        take(&store, &[9]);
        assert!(store.open() && !store.open(), "one at a time");
        take(&store, &[1, 2, 3]);
        take(&store, &[7; DEPTH + 1]);
        store.close();
        take(&store, &[9]);
        let samples: Vec<_> = store.samples().collect();
        assert_eq!(samples[0], (3, Sample { addresses: vec![1, 2, 3], whole: true }));
        assert_eq!(samples[1], (3, Sample { addresses: vec![7; DEPTH], whole: false }));
        assert_eq!((samples.len(), store.lost()), (2, 0));
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let store = Store::new();
        assert!(store.open());
        std::thread::scope(|scope| {
            for thread in 1..=4_usize {
                let store = &store;
                scope.spawn(move || (0..SLOTS / 2).for_each(|_| take(store, &[thread; 5])));
            }
        });
        store.close();
        assert_eq!((store.taken(), store.lost()), (2 * SLOTS, SLOTS));
        assert_eq!(store.samples().count(), SLOTS);
        for (_, sample) in store.samples() {
            assert_eq!(sample.addresses, [sample.addresses[0]; 5], "a slot is one sample's alone");
        }
    }
}
