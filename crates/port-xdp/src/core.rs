//! The part that both halves of a core's queue share: the frames, their ledger, and free frames on their way from one half to the other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use locality::loan::Lender;

use crate::ledger::{Balance, Frame, Ledger};
use crate::umem::Umem;

/// A core's frames.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) umem: Umem,
    pub(crate) ledger: Ledger,
    /// Free frames that neither half holds.
    spare: Mutex<Vec<Frame>>,
    /// For each loan number: true once the loan is over.
    returned: Box<[AtomicBool]>,
    /// Free frames that the receiving half holds, for the balance.
    input_free: AtomicUsize,
}

/// Loans of a core at a time. An engine has a few batches for each core under way.
pub(crate) const LOANS: usize = 256;

/// Free frames that pass between the halves at a time.
pub(crate) const EXCHANGED: usize = 128;

impl Core {
    pub(crate) fn new(umem: Umem) -> Self {
        let frames = (umem.len() / umem.frame_len() as usize) as u32;
        let (ledger, free) = Ledger::new(frames);
        Self {
            umem,
            ledger,
            spare: Mutex::new(free),
            returned: (0..LOANS).map(|_| AtomicBool::new(false)).collect(),
            input_free: AtomicUsize::new(0),
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Frame>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves spare frames into `to`, at most `most`.
    pub(crate) fn take_spare(&self, most: usize, to: &mut Vec<Frame>) {
        let mut spare = self.spare();
        let rest = spare.len().saturating_sub(most);
        to.extend(spare.drain(rest..));
    }

    /// Takes frames in.
    pub(crate) fn give_spare(&self, frames: impl Iterator<Item = Frame>) {
        self.spare().extend(frames);
    }

    /// True, once, if the loan is over.
    pub(crate) fn is_returned(&self, loan: usize) -> bool {
        // ORDERING: Acquire pairs with Release in `back`: whoever had the memory is done with it.
        self.returned[loan].load(Ordering::Acquire) && {
            // ORDERING: Relaxed. The loan's number is used again by this thread alone.
            self.returned[loan].store(false, Ordering::Relaxed);
            true
        }
    }

    pub(crate) fn note_input_free(&self, frames: usize) {
        // ORDERING: Relaxed. A number to look at; pairs with `balance`.
        self.input_free.store(frames, Ordering::Relaxed);
    }

    /// How many frames are where. `output_free` are those that the transmitting half holds.
    pub(crate) fn balance(&self, output_free: usize) -> Balance {
        // ORDERING: Relaxed. As in `note_input_free`.
        let at_hand = self.spare().len() + self.input_free.load(Ordering::Relaxed) + output_free;
        Balance { at_hand, ..self.ledger.balance() }
    }
}

impl Lender for Core {
    fn back(&self, number: u64) {
        // ORDERING: Release pairs with Acquire in `is_returned`.
        self.returned[number as usize].store(true, Ordering::Release);
    }
}
