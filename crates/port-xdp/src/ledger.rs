//! The ledger of frames: where each frame of a core's memory is, so that none leaks and none is used twice.
//!
//! A frame that is free is held as a [`Frame`], which can't be copied. Whoever hands it to the kernel or to a batch gives the token away;
//! the ledger then has one byte that says where the frame is, and gives the token back once. A frame may be lent and sent at the same
//! time, as a packet in place is: it is free again when the loan is over *and* the kernel has completed it, in either order, on any thread.
//!
//! A transition that doesn't fit the frame's state is a fault. It is counted and gives no token.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A free frame, by its number.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is forgotten leaks"]
pub(crate) struct Frame(u32);

impl Frame {
    pub(crate) const fn number(&self) -> u32 {
        self.0
    }
}

/// Where each frame is.
pub(crate) struct Ledger {
    states: Box<[AtomicU8]>,
    faults: AtomicU64,
}

/// The frame lies in a batch.
const LENT: u8 = 1;
/// The frame is in a transmit or completion ring.
const SENDING: u8 = 2;
/// The frame is in a fill or receive ring.
const FILLED: u8 = 4;
/// The frame is held as a token.
const FREE: u8 = 8;
/// Above these bits stands the interface whose ring has the frame.
const INTERFACE: u32 = 4;
const PLACES: u8 = LENT | SENDING | FILLED | FREE;

const fn filled(interface: usize) -> u8 {
    FILLED | (interface as u8) << INTERFACE
}

const fn sending(interface: usize) -> u8 {
    SENDING | (interface as u8) << INTERFACE
}

impl Ledger {
    /// A ledger of `frames` frames, and their tokens.
    pub(crate) fn new(frames: u32) -> (Self, Vec<Frame>) {
        let states = (0..frames).map(|_| AtomicU8::new(FREE)).collect();
        (Self { states, faults: AtomicU64::new(0) }, (0..frames).rev().map(Frame).collect())
    }

    /// Changes the state of a frame of which only the caller disposes. False, and a fault, if it was another.
    #[inline]
    fn change(&self, number: u32, from: u8, to: u8) -> bool {
        let Some(state) = self.states.get(number as usize) else { return self.fault() };
        // ORDERING: Relaxed. A frame passes between threads with its token, or with its batch, and those are passed on by locks and by
        // Release and Acquire (`Core::back`). Only the last step of a frame both lent and sent has two threads (`clear`).
        if state.load(Ordering::Relaxed) != from {
            return self.fault();
        }
        state.store(to, Ordering::Relaxed);
        true
    }

    #[cold]
    fn fault(&self) -> bool {
        self.count_faults(1);
        false
    }

    /// Counts descriptors that the kernel found invalid.
    pub(crate) fn count_faults(&self, count: u64) {
        // ORDERING: Relaxed. A count to look at; pairs with `balance`.
        self.faults.fetch_add(count, Ordering::Relaxed);
    }

    /// A free frame goes into an interface's fill ring.
    #[inline]
    pub(crate) fn fill(&self, frame: Frame, interface: usize) -> u32 {
        self.change(frame.0, FREE, filled(interface));
        frame.0
    }

    /// The kernel has put a packet in a filled frame, which is then lent.
    #[inline]
    pub(crate) fn lend(&self, number: u32, interface: usize) -> bool {
        self.change(number, filled(interface), LENT)
    }

    /// The kernel has given a filled frame back, and nobody needs what it put there.
    pub(crate) fn unfill(&self, number: u32, interface: usize) -> Option<Frame> {
        self.change(number, filled(interface), FREE).then_some(Frame(number))
    }

    /// A frame that the kernel has filled at one interface goes into the transmit ring of another.
    pub(crate) fn forward(&self, number: u32, from: usize, to: usize) -> bool {
        self.change(number, filled(from), sending(to))
    }

    /// A lent frame goes into an interface's transmit ring as it is. False, and no fault, if it is there already.
    #[inline]
    pub(crate) fn send_lent(&self, number: u32, interface: usize) -> bool {
        let Some(state) = self.states.get(number as usize) else { return self.fault() };
        // ORDERING: Relaxed, as in `change`: who has the batch holds the loan, so that no other thread ends it meanwhile.
        let is_lent = state.load(Ordering::Relaxed) & PLACES == LENT;
        if is_lent {
            state.store(LENT | sending(interface), Ordering::Relaxed);
        }
        is_lent
    }

    /// A free frame goes into an interface's transmit ring.
    #[inline]
    pub(crate) fn send(&self, frame: Frame, interface: usize) -> u32 {
        self.change(frame.0, FREE, sending(interface));
        frame.0
    }

    /// The loan of a frame is over. Returns the frame if it isn't being sent.
    #[inline]
    pub(crate) fn end_loan(&self, number: u32) -> Option<Frame> {
        self.clear(number, LENT)
    }

    /// The kernel has sent a frame. Returns the frame if it isn't lent.
    #[inline]
    pub(crate) fn complete(&self, number: u32) -> Option<Frame> {
        self.clear(number, SENDING)
    }

    /// Takes a frame from one of the two places that it may be in at once. Returns it if that was the last one.
    #[inline]
    fn clear(&self, number: u32, place: u8) -> Option<Frame> {
        let Some(state) = self.states.get(number as usize) else {
            self.fault();
            return None;
        };
        // ORDERING: Acquire pairs with the Release of the other thread's `fetch_and`, if that took the frame from its other place.
        if state.load(Ordering::Acquire) & PLACES == place {
            // It is in no other place, and nobody can put it there: only who has it lent can send it.
            // ORDERING: Relaxed. The frame is the caller's now.
            state.store(FREE, Ordering::Relaxed);
            return Some(Frame(number));
        }
        // ORDERING: AcqRel pairs with itself on the other thread. The one that clears the second bit sees all that was done with the frame.
        let before = state.fetch_and(!place, Ordering::AcqRel);
        if before & place == 0 {
            self.fault();
            return None;
        }
        if before & PLACES != place {
            return None;
        }
        // ORDERING: Relaxed. As above.
        state.store(FREE, Ordering::Relaxed);
        Some(Frame(number))
    }

    /// Takes back all frames in the rings of an interface whose socket has been closed.
    pub(crate) fn reclaim(&self, interface: usize) -> Vec<Frame> {
        let reclaim = |number: u32| {
            // ORDERING: Acquire pairs with the Release of `clear`.
            let state = self.states[number as usize].load(Ordering::Acquire);
            let is_here = usize::from(state >> INTERFACE) == interface;
            match state & PLACES {
                FILLED if is_here => self.unfill(number, interface),
                // It may still be lent: then the end of the loan frees it.
                places if places & SENDING != 0 && is_here => self.complete(number),
                _ => None,
            }
        };
        (0..self.states.len() as u32).filter_map(reclaim).collect()
    }

    /// How many frames are where.
    pub(crate) fn balance(&self) -> Balance {
        // ORDERING: Relaxed. Counts to look at; exact once the queue has been dropped or stands still.
        let mut balance = Balance { faults: self.faults.load(Ordering::Relaxed), ..Balance::default() };
        balance.frames = self.states.len();
        for state in &self.states {
            let state = state.load(Ordering::Relaxed);
            match state & PLACES {
                FREE => balance.free += 1,
                FILLED => balance.filled += 1,
                LENT => balance.lent += 1,
                SENDING => balance.sending += 1,
                places if places == LENT | SENDING => balance.lent_and_sending += 1,
                _ => {}
            }
        }
        balance
    }
}

/// Frames of a core, counted by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// All frames.
    pub frames: usize,
    /// Free ones.
    pub free: usize,
    /// In fill and receive rings.
    pub filled: usize,
    /// In batches.
    pub lent: usize,
    /// In transmit and completion rings.
    pub sending: usize,
    /// In a batch and in a transmit or completion ring.
    pub lent_and_sending: usize,
    /// Free frames that the port can lay hands on: equal to `free` unless a frame has leaked. Exact while the queue stands still.
    pub at_hand: usize,
    /// Transitions that didn't fit a frame's state, and descriptors that the kernel found invalid: an error of the port or of the kernel.
    pub faults: u64,
}

impl Balance {
    /// True if every frame is somewhere, no free one has leaked, and no transition was wrong.
    #[must_use]
    pub const fn adds_up(&self) -> bool {
        let somewhere = self.free + self.filled + self.lent + self.sending + self.lent_and_sending;
        somewhere == self.frames && self.at_hand == self.free && self.faults == 0
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.balance().fmt(f)
    }
}

#[cfg(test)]
mod tests;
