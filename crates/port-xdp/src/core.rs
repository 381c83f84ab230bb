//! The part that both halves of a core's queue share: the frames, their ledger, and free frames on their way from one half to the other.
//! Cores that share a queue share this, too.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use crate::common::Common;
use crate::ledger::{Balance, Frame, Ledger};
use crate::umem::Umem;

/// A core's frames.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) umem: Umem,
    pub(crate) ledger: Ledger,
    /// Free frames that neither half holds.
    spare: Mutex<Vec<Frame>>,
    /// Free frames that receiving halves hold, for the balance.
    input_free: AtomicUsize,
    /// What the sockets on each interface have together, while there are any.
    commons: Box<[Mutex<Weak<Common>>]>,
}

/// Free frames that pass between the halves at a time.
pub(crate) const EXCHANGED: usize = 128;

impl Core {
    pub(crate) fn new(umem: Umem, interfaces: usize) -> Self {
        let frames = (umem.len() / umem.frame_len() as usize) as u32;
        let (ledger, free) = Ledger::new(frames);
        Self {
            umem,
            ledger,
            spare: Mutex::new(free),
            input_free: AtomicUsize::new(0),
            commons: (0..interfaces).map(|_| Mutex::default()).collect(),
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

    /// What the sockets on an interface have together. The lock is held while one is opened.
    pub(crate) fn common(&self, interface: usize) -> MutexGuard<'_, Weak<Common>> {
        self.commons[interface].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiving half holds this many free frames, and held `before` when it last said so.
    pub(crate) fn note_input_free(&self, before: usize, frames: usize) {
        // ORDERING: Relaxed. A number to look at; pairs with `balance`. It may wrap in between, and doesn't as a sum.
        self.input_free.fetch_add(frames.wrapping_sub(before), Ordering::Relaxed);
    }

    /// How many frames are where. `output_free` are those that the transmitting half holds.
    pub(crate) fn balance(&self, output_free: usize) -> Balance {
        // ORDERING: Relaxed. As in `note_input_free`.
        let at_hand = self.spare().len() + self.input_free.load(Ordering::Relaxed) + output_free;
        Balance { at_hand, ..self.ledger.balance() }
    }
}
