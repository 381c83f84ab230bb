//! How a table's entries are kept from two cores that would step on one at once: each under a lock of its own, or, where
//! steps add up, by one atomic operation.

use core::fmt;

use packet::{Key, Nanos};

use crate::shared::spin::SpinLock;
use crate::shared::sync::broken;
use crate::slab::nonzero_deadline;

/// A way to guard entries.
pub trait Guard: Sized + Send + Sync + 'static {
    /// What steps have added to an entry since its value was written.
    type Sum: Copy + Default + fmt::Debug + Send + 'static;
    /// An entry's place in memory.
    type Cell<K: Key, V: Copy + Send + Sync + 'static>: EntryCell<K, V, Self::Sum>;
    /// Which places a stripe's slots have.
    type Places: SlotPlaces<Self::Epochs>;
    /// What the table knows of the cores that use it.
    type Epochs: Clone + Send + Sync + 'static;
    /// What a core shows to step on entries.
    type Permit: StepPermit<Self::Epochs> + Send + 'static;
}

/// What a packet reads and writes of a flow.
#[derive(Clone, Copy, Debug)]
pub struct GuardedEntry<K, V, S = ()> {
    pub(super) key: K,
    pub(super) deadline: Nanos,
    /// The time of the last step. Cores hold packets of different ages; a flow's state moves forward only.
    pub now: Nanos,
    /// The flow's value, without the sum.
    pub value: V,
    /// What steps have added to the value.
    pub sum: S,
    /// Whether the flow has been answered: it doesn't make room for others any more.
    pub protected: bool,
}

impl<K, V, S> GuardedEntry<K, V, S> {
    /// The flow.
    pub const fn key(&self) -> &K {
        &self.key
    }

    /// When the flow ends if nothing more comes.
    #[inline(always)]
    pub const fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Moves the flow's deadline. One of zero is the first nanosecond.
    #[inline(always)]
    pub const fn set_deadline(&mut self, deadline: Nanos) {
        self.deadline = nonzero_deadline(deadline);
    }

    /// Moves the flow's deadline later; `false`, and nothing done, when it would move earlier, which its stripe has to know.
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

/// Whether a flow stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does, and nothing of it was changed.
    Stays,
    /// It does, changed.
    Changes,
    /// It ends.
    Goes,
}

/// What became of an entry that was decided on.
pub enum EntryOutcome<K, V, S> {
    /// It is where it was, with this deadline, answered or not.
    Here(Nanos, bool),
    /// It has been taken out, changed, and goes to another place.
    Moves(GuardedEntry<K, V, S>),
    /// It has been taken out.
    Gone,
}

/// A place for an entry.
pub trait EntryCell<K, V, S>: Send + Sync {
    /// A place with nothing in it.
    fn empty() -> Self;

    /// Works on the entry if it is this key's; `None` if it isn't, and `Some(None)`, with nothing done, if `work` says so or asks
    /// for more than the guard can grant. `work` may be called again, on what the entry has become.
    fn step<T>(&self, key: &K, work: impl FnMut(&mut GuardedEntry<K, V, S>) -> Option<T>) -> Option<Option<T>>;

    /// Works on the entry, which has to be there, while nobody steps on it. The caller holds the stripe.
    fn decide<T>(&self, work: impl FnOnce(&mut GuardedEntry<K, V, S>) -> (T, Fate)) -> (T, EntryOutcome<K, V, S>);

    /// Puts an entry where there is none. The caller holds the stripe.
    fn put(&self, entry: GuardedEntry<K, V, S>);

    /// A copy of the entry, if there is one. The caller holds the stripe.
    fn copy(&self) -> Option<GuardedEntry<K, V, S>>;
}

/// The places of a stripe's slots.
pub trait SlotPlaces<B>: Send {
    /// How many places a stripe of so many slots has.
    fn count(slots: usize) -> usize;

    /// Those of so many slots, none of them used.
    fn new(slots: usize, epochs: &B) -> Self;

    /// Where the slot's entry is.
    fn of(&self, slot: usize) -> usize;

    /// A place for an entry of the slot.
    fn take(&mut self, slot: usize, epochs: &B) -> usize;

    /// The slot's entry has been taken out of its place.
    fn give(&mut self, slot: usize, epochs: &B);

    /// What is kept, in bytes.
    fn bytes(&self) -> usize {
        0
    }
}

/// What a core shows to step on entries.
pub trait StepPermit<B> {
    /// Whether it is one for the table that knows these cores, and the core may step now.
    fn admits(&self, epochs: &B) -> bool;

    /// From now on the core may step, until it [leaves](Self::leave).
    fn enter(&mut self);

    /// The core holds nothing of the table any more, and may wait for a stripe.
    fn leave(&mut self);
}

/// A lock for each entry. A core needs nothing to step, and a slot's place is its own.
#[derive(Clone, Copy, Debug)]
pub struct Locking;

impl Guard for Locking {
    type Sum = ();
    type Cell<K: Key, V: Copy + Send + Sync + 'static> = LockedCell<K, V>;
    type Places = ();
    type Epochs = ();
    type Permit = ();
}

/// A line of its own, so that no two locks share one.
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
