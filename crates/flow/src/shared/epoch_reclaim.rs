//! Epoch-based reclamation (Fraser, "Practical lock-freedom", 2004): memory that one core has retired is reused only when no other core can
//! still be reading it.
//!
//! A core announces the current epoch at the start of a burst, and reads nothing before all cores can see that. Retired memory carries the
//! epoch in which it was retired. It is free once each core is outside a burst, or in one that began in a later epoch. No core waits for a
//! core outside a burst, and a core in a burst waits for none.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::shared::guard::StepPermit;
use crate::shared::sync::{AtomicU64, Ordering, broken, fence};

/// The reclamation epoch, and what each core of a table has announced.
pub struct Epochs {
    /// The current epoch, from 1 on.
    epoch: AtomicU64,
    cores: Box<[Announced]>,
}

/// The epoch in which the core's burst began, or 0 outside a burst. It has two cache lines of its own, since processors fetch lines in
/// pairs.
#[repr(align(128))]
struct Announced(AtomicU64);

/// A core that takes part in epoch-based reclamation. It is in a burst from [`enter`](StepPermit::enter) to [`leave`](StepPermit::leave).
pub struct EpochMember {
    epochs: Arc<Epochs>,
    core: usize,
    is_in: bool,
}

impl fmt::Debug for EpochMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochMember").field("core", &self.core).field("is_in", &self.is_in).finish_non_exhaustive()
    }
}

impl EpochMember {
    /// The members for so many cores, all outside a burst.
    #[must_use]
    pub fn all(cores: usize) -> Vec<Self> {
        let announced = (0..cores).map(|_| Announced(AtomicU64::new(0))).collect();
        let epochs = Arc::new(Epochs { epoch: AtomicU64::new(1), cores: announced });
        (0..cores).map(|core| Self { epochs: Arc::clone(&epochs), core, is_in: false }).collect()
    }

    /// The epochs of this core and the others.
    #[must_use]
    pub const fn epochs(&self) -> &Arc<Epochs> {
        &self.epochs
    }

    #[inline]
    fn announce(&mut self) {
        let Epochs { epoch, cores } = &*self.epochs;
        // ORDERING: Relaxed. An older epoch only keeps others waiting longer.
        let epoch = epoch.load(Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `Epochs::is_over`: this core's reads of earlier bursts are done.
        cores[self.core].0.store(epoch, Ordering::Release);
        if !broken!(LateEntry) {
            // ORDERING: SeqCst pairs with the fence in `Epochs::epoch`: of a core that begins a burst and one that has retired memory, at
            // least one sees the other's write. So a core whose announcement isn't seen finds the memory retired.
            fence(Ordering::SeqCst);
        }
        self.is_in = true;
    }
}

impl StepPermit<Arc<Epochs>> for EpochMember {
    #[inline(always)]
    fn admits(&self, epochs: &Arc<Epochs>) -> bool {
        self.is_in && Arc::ptr_eq(&self.epochs, epochs)
    }

    #[inline(always)]
    fn enter(&mut self) {
        if !self.is_in {
            self.announce();
        }
    }

    #[inline(always)]
    fn leave(&mut self) {
        if self.is_in {
            self.is_in = false;
            // ORDERING: Release, as in `announce`.
            self.epochs.cores[self.core].0.store(0, Ordering::Release);
        }
    }
}

impl Drop for EpochMember {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Epochs {
    /// The epoch for memory that has been retired by now.
    pub(super) fn epoch(&self) -> u64 {
        // ORDERING: SeqCst pairs with the fence in `EpochMember::announce`, see there. A core that has seen the retired memory read the
        // epoch before its own fence, so it has announced this epoch or an older one.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed. The fence above orders it.
        self.epoch.load(Ordering::Relaxed)
    }

    /// True if every burst is over that may have begun before memory was retired in `epoch`.
    pub(super) fn is_over(&self, epoch: u64) -> bool {
        if broken!(EarlyReuse) {
            return true;
        }
        // Advances the epoch, so that bursts that begin later differ from earlier ones. ORDERING: Relaxed. Nothing but the number is read.
        // If the exchange fails, another core has advanced the epoch.
        let _ = self.epoch.compare_exchange(epoch, epoch + 1, Ordering::Relaxed, Ordering::Relaxed);
        self.cores.iter().all(|Announced(core)| {
            // ORDERING: Acquire pairs with the Release in `EpochMember::announce` and `leave`: that core's reads are done.
            let began = core.load(Ordering::Acquire);
            began == 0 || began > epoch
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_away_is_free_when_all_bursts_of_then_are_over() {
        let mut members = EpochMember::all(2);
        let epochs = Arc::clone(members[0].epochs());
        let first = epochs.epoch();
        assert!(epochs.is_over(first), "nobody is in a burst");
        members[0].enter();
        let taken = epochs.epoch();
        assert!(!epochs.is_over(taken));
        members[1].enter();
        assert!(!epochs.is_over(taken), "the first is still in its burst");
        members[0].leave();
        assert!(epochs.is_over(taken), "the second began later");
        assert!(!epochs.is_over(epochs.epoch()), "but not later than now");
        // To enter again changes nothing.
        members[1].enter();
        assert!(!epochs.is_over(epochs.epoch()));
        drop(members);
        assert!(epochs.is_over(epochs.epoch()), "who is gone is in no burst");
    }

    #[test]
    fn a_pass_is_for_one_table() {
        let (mut one, other) = (EpochMember::all(1), EpochMember::all(1));
        assert!(!one[0].admits(one[0].epochs()));
        one[0].enter();
        assert!(one[0].admits(one[0].epochs()));
        assert!(!one[0].admits(other[0].epochs()));
    }
}
