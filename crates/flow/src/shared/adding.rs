//! Entries for functions whose steps only add. One atomic word holds the number of steps since the entry's value was written, their sum,
//! and the time of the last one. A step is one compare-and-exchange of that word. The rest of the entry doesn't change until the entry is
//! removed.
//!
//! To decide on an entry, the holder of the stripe's lock closes the word first. Steps that come meanwhile fail and take the stripe's lock.
//! A changed entry moves to another place. The old place is reused by epoch-based reclamation ([`epoch_reclaim`](super::epoch_reclaim)):
//! only after all bursts in which a core may have found it. So no core reads an entry while it is written, and no exchange meets another
//! flow's word.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem;
use core::mem::MaybeUninit;

use packet::{Key, Nanos};

use crate::shared::epoch_reclaim::{EpochMember, Epochs};
use crate::shared::guard::{EntryCell, EntryOutcome, Fate, Guard, GuardedEntry, SlotPlaces};
use crate::shared::sync::{AtomicU64, Ordering, Pause, broken};

/// The guard for functions that only add: each step is one atomic operation.
#[derive(Clone, Copy, Debug)]
pub struct Adding;

impl Guard for Adding {
    type Sum = Sum;
    type Cell<K: Key, V: Copy + Send + Sync + 'static> = AddingCell<K, V>;
    type Places = FreeRing;
    type Epochs = Arc<Epochs>;
    type Permit = EpochMember;
}

/// What steps have added to an entry since its value was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The number of steps.
    pub count: u32,
    /// The sum of their amounts.
    pub amount: u64,
}

// The word, from the top bit: the closed flag, the time from writing the entry to the last step, the count and the amount. A step that
// doesn't fit has the entry written anew. With packets of 1,500 bytes the amount overflows first, after 1,398 packets.
const COUNT: u32 = 21;
const SINCE: u32 = COUNT + 11;
const CLOSED: u64 = 1 << 63;
/// Open, but nothing can be added: the entry's deadline is too close to the end of time.
const SEALED: u64 = CLOSED - (1 << SINCE);

/// The word for an entry whose last step came `since` after it was written; `None` if that doesn't fit.
#[inline(always)]
fn word(since: Nanos, sum: Sum) -> Option<u64> {
    let Sum { count, amount } = sum;
    let fits = since.0 < SEALED >> SINCE && count < 1 << (SINCE - COUNT) && amount < 1 << COUNT;
    fits.then_some(since.0 << SINCE | u64::from(count) << COUNT | amount)
}

#[inline(always)]
const fn since(word: u64) -> Nanos {
    Nanos(word >> SINCE)
}

#[inline(always)]
const fn sum(word: u64) -> Sum {
    Sum { count: (word >> COUNT) as u32 & ((1 << (SINCE - COUNT)) - 1), amount: word & ((1 << COUNT) - 1) }
}

impl<K, V> GuardedEntry<K, V, Sum> {
    /// Adds a step of this amount at `now` with this deadline. It returns `false` and changes nothing unless the deadline is as far ahead
    /// of `now` as at the last step.
    #[inline(always)]
    #[must_use]
    pub fn add(&mut self, amount: u64, now: Nanos, deadline: Nanos) -> bool {
        let ahead = self.deadline.0 - self.now.0;
        let as_before = deadline.0.wrapping_sub(now.0) == ahead && now >= self.now;
        if as_before {
            self.sum.count += 1;
            self.sum.amount += amount;
            (self.now, self.deadline) = (now, deadline);
        }
        as_before
    }
}

/// A place for an entry, on a cache line of its own.
#[repr(align(64))]
pub struct AddingCell<K, V> {
    /// The word. Closed while there is no entry.
    word: AtomicU64,
    body: crate::shared::sync::UnsafeCell<MaybeUninit<EntryBody<K, V>>>,
}

/// The part of an entry that doesn't change.
#[derive(Clone, Copy)]
struct EntryBody<K, V> {
    key: K,
    value: V,
    written: Nanos,
    deadline: Nanos,
    protected: bool,
}

// SAFETY: a body is written under the stripe's lock, while the word is closed and no core that may have found it open is still in its
// burst; the word's Release and Acquire order the write before every read. While the word is open, bodies are only read, by references that
// several threads may have, as keys and values are `Sync`.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for AddingCell<K, V> {}

impl<K: Copy, V: Copy> EntryBody<K, V> {
    /// The entry for an open word.
    fn whole(&self, word: u64) -> GuardedEntry<K, V, Sum> {
        self.entry(if word == SEALED { 0 } else { word })
    }

    /// The entry for a word that can be added to.
    #[inline(always)]
    fn entry(&self, word: u64) -> GuardedEntry<K, V, Sum> {
        let Self { key, value, written, deadline, protected } = *self;
        let since = since(word);
        let [now, deadline] = [written, deadline].map(|time| Nanos(time.0.wrapping_add(since.0)));
        GuardedEntry { key, deadline, now, value, sum: sum(word), protected }
    }
}

/// A closed entry. Dropping it, for example on a panic, opens the entry again.
struct ClosedCell<'a> {
    word: &'a AtomicU64,
    was: u64,
}

impl Drop for ClosedCell<'_> {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire in `step`. The body hasn't changed, but a step that sees the word open comes after the
        // decision.
        self.word.store(self.was, Ordering::Release);
    }
}

impl<K: Key, V: Copy + Send + Sync> AddingCell<K, V> {
    /// Closes the entry against steps. There must be an entry.
    fn close(&self) -> ClosedCell<'_> {
        let was = if broken!(Unclosed) {
            self.word.load(Ordering::Acquire)
        } else {
            // ORDERING: Acquire pairs with the Release of the steps' exchanges, so the steps come before the decision. Release: a core that
            // finds the word closed comes after it.
            self.word.swap(CLOSED, Ordering::AcqRel)
        };
        assert!(was & CLOSED == 0, "the table knows the entry");
        ClosedCell { word: &self.word, was }
    }
}

impl<K: Key, V: Copy + Send + Sync> EntryCell<K, V, Sum> for AddingCell<K, V> {
    fn empty() -> Self {
        Self { word: AtomicU64::new(CLOSED), body: crate::shared::sync::UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The caller has entered a burst.
    #[inline(always)]
    fn step<T>(&self, key: &K, mut work: impl FnMut(&mut GuardedEntry<K, V, Sum>) -> Option<T>) -> Option<Option<T>> {
        // ORDERING: Acquire pairs with the Release in `put`: the body of an open word is visible.
        let mut is = self.word.load(Ordering::Acquire);
        loop {
            if is >= SEALED {
                return None;
            }
            let (own, entry) = self.body.with(|body| {
                // SAFETY: the word is open, so the body was written, and it stays until this core's burst is over at least.
                let body = unsafe { (*body).assume_init_ref() };
                (body.key == *key || broken!(Trusting), body.entry(is))
            });
            if !own {
                return None;
            }
            let mut after = entry;
            let Some(result) = work(&mut after) else { return Some(None) };
            let written = Nanos(entry.now.0 - since(is).0);
            let Some(next) = word(after.now.since(written), after.sum) else { return Some(None) };
            // ORDERING: Release pairs with the Acquire in `close` and in later steps: what they do comes after this step. Acquire on
            // failure, as above.
            match self.word.compare_exchange_weak(is, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Some(result)),
                Err(other) => is = other,
            }
        }
    }

    fn decide<T>(&self, work: impl FnOnce(&mut GuardedEntry<K, V, Sum>) -> (T, Fate)) -> (T, EntryOutcome<K, V, Sum>) {
        let closed = self.close();
        // SAFETY: the word was open, so the body was written; only the holder of the stripe's lock writes it.
        let mut entry = self.body.with(|body| unsafe { (*body).assume_init_ref() }.whole(closed.was));
        let (result, fate) = work(&mut entry);
        let decided = match fate {
            Fate::Stays => {
                drop(closed);
                EntryOutcome::Here(entry.deadline, entry.protected)
            }
            Fate::Changes => {
                mem::forget(closed);
                EntryOutcome::Moves(entry)
            }
            Fate::Goes => {
                mem::forget(closed);
                EntryOutcome::Gone
            }
        };
        (result, decided)
    }

    fn put(&self, entry: GuardedEntry<K, V, Sum>) {
        let GuardedEntry { key, deadline, now, value, sum, protected } = entry;
        self.body.with_mut(|body| {
            // SAFETY: the place came from the ring of free places, so no core is in a burst in which it may have found it open. The
            // stripe's lock excludes all others.
            unsafe { (*body).write(EntryBody { key, value, written: now, deadline, protected }) };
        });
        // True if times counted from here stay before the end of time.
        let counts = deadline + Nanos(1 << 32) != Nanos::NEVER;
        let open = word(Nanos(0), sum).filter(|_| counts).unwrap_or(SEALED);
        debug_assert!(open != SEALED || sum == Sum::default(), "what was added is in the value by now");
        // ORDERING: Release pairs with the Acquire in `step`: a core that sees the word open sees the body.
        self.word.store(open, Ordering::Release);
    }

    fn copy(&self) -> Option<GuardedEntry<K, V, Sum>> {
        // ORDERING: Acquire, as in `step`.
        let is = self.word.load(Ordering::Acquire);
        // SAFETY: as in `decide`.
        let entry = || self.body.with(|body| unsafe { (*body).assume_init_ref() }.whole(is));
        (is & CLOSED == 0).then(entry)
    }
}

/// A stripe's places. The free ones form a ring, first freed, first reused.
pub struct FreeRing {
    /// The place of each slot.
    of: Box<[u32]>,
    free: Box<[u32]>,
    /// How many places were taken, and given back, in total.
    taken: u64,
    given: u64,
    /// Places given back before this count may be reused.
    quiet: u64,
    /// Places given back before the first number may be reused when all bursts of the epoch in the second are over.
    waiting: (u64, u64),
}

/// Spare places besides one for each slot: at least the first number, and one for this many slots. The more there are, the less often a
/// core that needs one waits for another core's burst.
const SPARE_MIN: usize = if cfg!(loom) { 1 } else { 64 };
const SPARE_SHARE: usize = 8;

impl FreeRing {
    /// Waits until a place may be reused.
    #[cold]
    fn wait(&mut self, epochs: &Epochs) {
        let mut pause = Pause::default();
        loop {
            if self.waiting.0 == self.quiet {
                self.waiting = (self.given, epochs.epoch());
            }
            if epochs.is_over(self.waiting.1) {
                self.quiet = self.waiting.0;
                if self.taken < self.quiet {
                    return;
                }
            }
            pause.wait();
        }
    }
}

impl SlotPlaces<Arc<Epochs>> for FreeRing {
    fn count(slots: usize) -> usize {
        slots + (slots / SPARE_SHARE).max(SPARE_MIN)
    }

    fn new(slots: usize, epochs: &Arc<Epochs>) -> Self {
        let free: Box<[u32]> = (0..Self::count(slots) as u32).collect();
        let given = free.len() as u64;
        let of = (0..slots).map(|_| u32::MAX).collect();
        Self { of, free, taken: 0, given, quiet: given, waiting: (given, epochs.epoch()) }
    }

    #[inline]
    fn of(&self, slot: usize) -> usize {
        self.of[slot] as usize
    }

    #[inline]
    fn take(&mut self, slot: usize, epochs: &Arc<Epochs>) -> usize {
        if self.taken == self.quiet {
            self.wait(epochs);
        }
        let place = self.free[(self.taken % self.free.len() as u64) as usize];
        self.taken += 1;
        self.of[slot] = place;
        place as usize
    }

    #[inline]
    fn give(&mut self, slot: usize, epochs: &Arc<Epochs>) {
        let at = (self.given % self.free.len() as u64) as usize;
        self.free[at] = mem::replace(&mut self.of[slot], u32::MAX);
        self.given += 1;
        // Starts waiting for half of the spare places while the other half is still usable.
        if self.waiting.0 == self.quiet
            && self.given - self.quiet >= (self.free.len() - self.of.len()).div_ceil(2) as u64
        {
            self.waiting = (self.given, epochs.epoch());
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.of) + size_of_val(&*self.free)
    }
}
