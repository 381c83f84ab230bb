//! The loans of frames to batches, by number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use locality::loan::Lender;

use crate::core::Core;
use crate::ledger::Frame;

/// Loans of a receiving half at a time. An engine has a few batches for each core under way.
const LOANS: usize = 256;

/// Where the end of a loan is told, on any thread.
pub(crate) struct Returned {
    /// For each loan number: true once the loan is over.
    flags: Box<[AtomicBool]>,
    /// Keeps the frames mapped while any are lent.
    core: Arc<Core>,
}

impl Returned {
    /// True, once, if the loan is over.
    fn take(&self, loan: usize) -> bool {
        // ORDERING: Acquire pairs with Release in `back`: whoever had the memory is done with it.
        self.flags[loan].load(Ordering::Acquire) && {
            // ORDERING: Relaxed. The loan's number is used again by this thread alone.
            self.flags[loan].store(false, Ordering::Relaxed);
            true
        }
    }
}

impl Lender for Returned {
    fn back(&self, number: u64) {
        // ORDERING: Release pairs with Acquire in `take`.
        self.flags[number as usize].store(true, Ordering::Release);
    }
}

/// The frames of each loan that is under way. Only the receiving half uses it; that a loan is over it hears from [`Returned`].
pub(crate) struct Loans {
    frames: Vec<Vec<u32>>,
    vacant: Vec<usize>,
    outstanding: Vec<usize>,
    returned: Arc<Returned>,
}

impl Loans {
    /// Room for loans of up to `burst` frames of a core.
    pub(crate) fn new(core: Arc<Core>, burst: usize) -> Self {
        let flags = (0..LOANS).map(|_| AtomicBool::new(false)).collect();
        Self {
            frames: (0..LOANS).map(|_| Vec::with_capacity(burst)).collect(),
            vacant: (0..LOANS).rev().collect(),
            outstanding: Vec::with_capacity(LOANS),
            returned: Arc::new(Returned { flags, core }),
        }
    }

    /// Where the loans' ends are told.
    pub(crate) fn lender(&self) -> Arc<dyn Lender> {
        Arc::clone(&self.returned) as Arc<dyn Lender>
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
    pub(crate) fn collect(&mut self, free: &mut Vec<Frame>) {
        let Self { frames, vacant, outstanding, returned } = self;
        outstanding.retain(|loan| {
            let is_over = returned.take(*loan);
            if is_over {
                free.extend(frames[*loan].drain(..).filter_map(|number| returned.core.ledger.end_loan(number)));
                vacant.push(*loan);
            }
            !is_over
        });
    }
}
