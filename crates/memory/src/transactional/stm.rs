//! What all cores of a transactional memory share besides its objects: the clock, the seats, the turns.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::log::Buffers;
use super::sites::Sites;
use super::sync::{AtomicU64, Ordering, Pause, broken, fence};

/// On a line of its own: others are written by others.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// What all cores share.
pub(crate) struct Stm {
    /// How many transactions have written something: the version of what was written last.
    pub(crate) clock: Apart<AtomicU64>,
    /// How many cores are at or wait for a turn.
    turns: Apart<AtomicU64>,
    /// The ticket that has its turn now, and the next to be drawn.
    serving: Apart<AtomicU64>,
    next: AtomicU64,
    /// Whether a core is inside a transaction. Each core writes its own.
    seats: Box<[Apart<AtomicU64>]>,
    pub(crate) sites: Sites,
}

impl Stm {
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            clock: Apart(AtomicU64::new(0)),
            turns: Apart(AtomicU64::new(0)),
            serving: Apart(AtomicU64::new(0)),
            next: AtomicU64::new(0),
            seats: (0..cores).map(|_| Apart(AtomicU64::new(0))).collect(),
            sites: Sites::default(),
        }
    }

    pub(crate) fn cores(&self) -> usize {
        self.seats.len()
    }

    /// Enters a transaction; waits as long as others have turns.
    #[inline]
    pub(crate) fn enter(&self, core: usize) {
        let seat = &self.seats[core].0;
        // ORDERING: Release and Relaxed. The fence, with the one in `turn`, sees to it that either this core sees the turn, or
        // whoever takes it sees this core inside.
        seat.store(1, Ordering::Release);
        if !broken!(UnorderedEntry) {
            fence(Ordering::SeqCst);
        }
        if self.turns.0.load(Ordering::Acquire) != 0 {
            self.queue_up(seat);
        }
    }

    #[cold]
    fn queue_up(&self, seat: &AtomicU64) {
        let mut pause = Pause::default();
        loop {
            // ORDERING: Release. Nothing was done inside; what follows is another attempt.
            seat.store(0, Ordering::Release);
            // ORDERING: Relaxed. Looked at again, in order, below.
            while self.turns.0.load(Ordering::Relaxed) != 0 {
                pause.wait();
            }
            // ORDERING: as in `enter`; Acquire, so that what was done in the turn is seen.
            seat.store(1, Ordering::Release);
            fence(Ordering::SeqCst);
            if self.turns.0.load(Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    /// Leaves a transaction that was entered.
    #[inline]
    pub(crate) fn leave(&self, core: usize) {
        // ORDERING: Release. Whoever has a turn sees all that was done inside.
        self.seats[core].0.store(0, Ordering::Release);
    }

    /// Takes a turn: until [`end_turn`](Self::end_turn) no other core is inside a transaction. Turns are taken in the order in
    /// which they were asked for, and a core asks for one at a time, so the wait is bounded by the others' turns and by what
    /// they have begun.
    #[cold]
    pub(crate) fn turn(&self, core: usize) {
        // ORDERING: Relaxed, and the fence, as in `enter`.
        self.turns.0.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed. A number that nobody else draws.
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let mut pause = Pause::default();
        // ORDERING: Acquire, with `end_turn`: what the turn before did is seen.
        while self.serving.0.load(Ordering::Acquire) != ticket {
            pause.wait();
        }
        for (other, seat) in self.seats.iter().enumerate() {
            // ORDERING: Acquire, with `leave`: what the other did inside is seen.
            while other != core && !broken!(Impatient) && seat.0.load(Ordering::Acquire) != 0 {
                pause.wait();
            }
        }
    }

    /// Ends a turn.
    pub(crate) fn end_turn(&self) {
        // ORDERING: Release, with `turn`, `enter` and `queue_up`.
        self.serving.0.fetch_add(1, Ordering::Release);
        self.turns.0.fetch_sub(1, Ordering::Release);
    }
}

/// A core's place at a transactional memory. There is one for each core, and a core uses its own alone: aligned so that no two
/// share a line.
#[repr(align(128))]
pub struct Session {
    pub(crate) stm: Arc<Stm>,
    pub(crate) core: usize,
    pub(crate) buffers: Buffers,
    /// Where this core's commits stand: its next one is not before this.
    pub(crate) place: super::Place,
}

impl Session {
    /// The sessions of all cores.
    pub(crate) fn all(stm: &Arc<Stm>) -> Vec<Self> {
        let session =
            |core| Self { stm: Arc::clone(stm), core, buffers: Buffers::default(), place: super::Place::default() };
        (0..stm.cores()).map(session).collect()
    }

    /// The number of the core.
    #[must_use]
    pub const fn core(&self) -> usize {
        self.core
    }
}
