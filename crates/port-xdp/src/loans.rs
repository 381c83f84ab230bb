//! The loans of frames to batches, by number.

use crate::core::{Core, LOANS};
use crate::ledger::Frame;

/// The frames of each loan that is under way. Only the receiving half uses it; that a loan is over it hears from [`Core`].
pub(crate) struct Loans {
    frames: Vec<Vec<u32>>,
    vacant: Vec<usize>,
    outstanding: Vec<usize>,
}

impl Loans {
    /// Room for loans of up to `burst` frames.
    pub(crate) fn new(burst: usize) -> Self {
        Self {
            frames: (0..LOANS).map(|_| Vec::with_capacity(burst)).collect(),
            vacant: (0..LOANS).rev().collect(),
            outstanding: Vec::with_capacity(LOANS),
        }
    }

    /// True if all loans are under way.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.vacant.is_empty()
    }

    /// Begins a loan without frames. Returns its number; `None` if all are under way.
    pub(crate) fn begin(&mut self) -> Option<usize> {
        let loan = self.vacant.pop()?;
        self.outstanding.push(loan);
        Some(loan)
    }

    /// Adds a frame that the ledger marks as lent.
    #[inline]
    pub(crate) fn add(&mut self, loan: usize, frame: u32) {
        self.frames[loan].push(frame);
    }

    /// Ends the loans that are over. Their frames that aren't being sent go to `free`.
    pub(crate) fn collect(&mut self, core: &Core, free: &mut Vec<Frame>) {
        let Self { frames, vacant, outstanding } = self;
        outstanding.retain(|loan| {
            let is_over = core.is_returned(*loan);
            if is_over {
                free.extend(frames[*loan].drain(..).filter_map(|number| core.ledger.end_loan(number)));
                vacant.push(*loan);
            }
            !is_over
        });
    }
}
