//! Guards of a shared table's entries, which keep two cores from changing one at once: a lock for each entry, or, for functions that only
//! add, one atomic operation.

use core::fmt;

use packet::{Key, Nanos};

use crate::shared::spin::SpinLock;
use crate::shared::sync::broken;
use crate::slab::nonzero_deadline;

/// A way to guard the entries of [`Entries`](super::Entries).
pub trait Guard: Sized + Send + Sync + 'static {
    /// What steps have added to an entry since its value was written.
    type Sum: Copy + Default + fmt::Debug + Send + 'static;
    /// The memory cell of an entry.
    type Cell<K: Key, V: Copy + Send + Sync + 'static>: EntryCell<K, V, Self::Sum>;
    /// The map from a stripe's slots to its cells.
    type Places: SlotPlaces<Self::Epochs>;
    /// The state of the cores that use the table: their reclamation epochs, if the guard needs any.
    type Epochs: Clone + Send + Sync + 'static;
    /// What a core needs to step on entries.
    type Permit: StepPermit<Self::Epochs> + Send + 'static;
}

/// A flow's entry in a shared table, as a step reads and writes it.
#[derive(Clone, Copy, Debug)]
pub struct GuardedEntry<K, V, S = ()> {
    pub(super) key: K,
    pub(super) deadline: Nanos,
    /// The time of the last step. Cores hold packets of different times; a flow's time never goes back.
    pub now: Nanos,
    /// The flow's value, without the sum.
    pub value: V,
    /// What steps have added to the value.
    pub sum: S,
    /// True if the flow is protected: [`Eviction::OldestUnprotected`](crate::Eviction::OldestUnprotected) doesn't evict it.
    pub protected: bool,
}

impl<K, V, S> GuardedEntry<K, V, S> {
    /// The flow's key.
    pub const fn key(&self) -> &K {
        &self.key
    }

    /// The time at which the flow expires.
    #[inline(always)]
    pub const fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Sets the flow's deadline. A deadline of 0 becomes 1 ns.
    #[inline(always)]
    pub const fn set_deadline(&mut self, deadline: Nanos) {
        self.deadline = nonzero_deadline(deadline);
    }

    /// Moves the flow's deadline later. It returns `false` and changes nothing if the deadline would become earlier, which only the stripe
    /// may do.
    #[inline(always)]
    #[must_use]
    pub fn postpone(&mut self, deadline: Nanos) -> bool {
        let deadline = nonzero_deadline(deadline);
        let is_later = deadline >= self.deadline;
        if is_later {
            self.deadline = deadline;
        }
        is_later
    }
}

/// What a decision makes of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays, unchanged.
    Stays,
    /// It stays, changed.
    Changes,
    /// It is removed.
    Goes,
}

/// The outcome of a decision on an entry.
pub enum EntryOutcome<K, V, S> {
    /// It is where it was, with this deadline, and protected or not.
    Here(Nanos, bool),
    /// It was changed and taken out of its cell, and needs another cell.
    Moves(GuardedEntry<K, V, S>),
    /// It was removed.
    Gone,
}

/// A memory cell for one entry, under a guard.
pub trait EntryCell<K, V, S>: Send + Sync {
    /// An empty cell.
    fn empty() -> Self;

    /// Runs `work` on the entry if it has this key; `None` if it hasn't. `Some(None)` means that nothing was done, because `work` returned
    /// `None` or changed more than the guard allows. `work` may be called again if the entry has changed meanwhile.
    fn step<T>(&self, key: &K, work: impl FnMut(&mut GuardedEntry<K, V, S>) -> Option<T>) -> Option<Option<T>>;

    /// Runs `work` on the entry while no core steps on it. There must be an entry. The caller holds the stripe's lock.
    fn decide<T>(&self, work: impl FnOnce(&mut GuardedEntry<K, V, S>) -> (T, Fate)) -> (T, EntryOutcome<K, V, S>);

    /// Puts an entry into an empty cell. The caller holds the stripe's lock.
    fn put(&self, entry: GuardedEntry<K, V, S>);

    /// A copy of the entry, if there is one. The caller holds the stripe's lock.
    fn copy(&self) -> Option<GuardedEntry<K, V, S>>;
}

/// The map from a stripe's slots to its cells.
pub trait SlotPlaces<B>: Send {
    /// How many cells a stripe of so many slots has.
    fn count(slots: usize) -> usize;

    /// The map for so many slots, all empty.
    fn new(slots: usize, epochs: &B) -> Self;

    /// The cell of the slot's entry.
    fn of(&self, slot: usize) -> usize;

    /// Takes a free cell for the slot's entry.
    fn take(&mut self, slot: usize, epochs: &B) -> usize;

    /// Gives back the cell of the slot's entry, which has been taken out.
    fn give(&mut self, slot: usize, epochs: &B);

    /// Its memory in bytes.
    fn bytes(&self) -> usize {
        0
    }
}

/// A core's permit to step on entries. Under [`Adding`](super::Adding) it marks the core's bursts for epoch-based reclamation.
pub trait StepPermit<B> {
    /// True if the core may step now, on the table with these epochs.
    fn admits(&self, epochs: &B) -> bool;

    /// Begins a burst: the core may step until it [leaves](Self::leave).
    fn enter(&mut self);

    /// Ends the burst: the core holds no references into the table, and may wait for a stripe.
    fn leave(&mut self);
}

/// The guard with a spin lock for each entry. A core needs no permit, and each slot has its own cell.
#[derive(Clone, Copy, Debug)]
pub struct Locking;

impl Guard for Locking {
    type Sum = ();
    type Cell<K: Key, V: Copy + Send + Sync + 'static> = LockedCell<K, V>;
    type Places = ();
    type Epochs = ();
    type Permit = ();
}

/// An entry under a lock, on a cache line of its own.
#[repr(align(64))]
pub struct LockedCell<K, V>(SpinLock<Option<GuardedEntry<K, V>>>);

impl<K: Key, V: Copy + Send + Sync> EntryCell<K, V, ()> for LockedCell<K, V> {
    fn empty() -> Self {
        Self(SpinLock::new(None))
    }

    #[inline(always)]
    fn step<T>(&self, key: &K, mut work: impl FnMut(&mut GuardedEntry<K, V>) -> Option<T>) -> Option<Option<T>> {
        self.0.with(|entry| entry.as_mut().filter(|entry| broken!(Trusting) || entry.key == *key).map(&mut work))
    }

    fn decide<T>(&self, work: impl FnOnce(&mut GuardedEntry<K, V>) -> (T, Fate)) -> (T, EntryOutcome<K, V, ()>) {
        self.0.with(|place| {
            let entry = place.as_mut().expect("the table knows the entry");
            let (result, fate) = work(entry);
            let decided = match fate {
                Fate::Stays | Fate::Changes => EntryOutcome::Here(entry.deadline, entry.protected),
                Fate::Goes => {
                    *place = None;
                    EntryOutcome::Gone
                }
            };
            (result, decided)
        })
    }

    fn put(&self, entry: GuardedEntry<K, V>) {
        self.0.with(|place| {
            debug_assert!(place.is_none(), "a free slot's entry is empty");
            *place = Some(entry);
        });
    }

    fn copy(&self) -> Option<GuardedEntry<K, V>> {
        self.0.with(|place| *place)
    }
}

impl SlotPlaces<()> for () {
    fn count(slots: usize) -> usize {
        slots
    }

    fn new(_: usize, (): &()) -> Self {}

    #[inline(always)]
    fn of(&self, slot: usize) -> usize {
        slot
    }

    #[inline(always)]
    fn take(&mut self, slot: usize, (): &()) -> usize {
        slot
    }

    #[inline(always)]
    fn give(&mut self, _: usize, (): &()) {}
}

impl StepPermit<()> for () {
    #[inline(always)]
    fn admits(&self, (): &()) -> bool {
        true
    }

    #[inline(always)]
    fn enter(&mut self) {}

    #[inline(always)]
    fn leave(&mut self) {}
}
