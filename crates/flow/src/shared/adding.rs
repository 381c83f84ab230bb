//! Entries whose steps add up: a word tells how many steps there were since the entry's value was written, what they came to,
//! and when the last one was. A step is one exchange of that word. Everything else about an entry stays as it was written
//! until the entry is taken out.
//!
//! Whoever holds the stripe decides on an entry by closing the word first: steps that come meanwhile are not taken but ask for the
//! stripe. An entry that was changed goes to another place. Its old one is used again once every burst is over in which a core may
//! have found it ([`bursts`](super::epoch_reclaim)), so that nobody reads an entry while it is written, and nobody's exchange meets
//! another flow's word.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem;
use core::mem::MaybeUninit;

use packet::{Key, Nanos};

use crate::shared::epoch_reclaim::{EpochMember, Epochs};
use crate::shared::guard::{EntryCell, EntryOutcome, Fate, Guard, GuardedEntry, SlotPlaces};
use crate::shared::sync::{AtomicU64, Ordering, Pause, broken};

/// Steps that add up, each one atomic operation.
#[derive(Clone, Copy, Debug)]
pub struct Adding;

impl Guard for Adding {
    type Sum = Sum;
    type Cell<K: Key, V: Copy + Send + Sync + 'static> = AddingCell<K, V>;
    type Places = FreeRing;
    type Epochs = Arc<Epochs>;
    type Permit = EpochMember;
}

/// What steps have added to an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many there were.
    pub count: u32,
    /// What they came to.
    pub amount: u64,
}

// The word, from the top: whether the entry is closed, how long after the entry was written the last step was, and the sum. What
// doesn't fit any more has the entry written anew. A packet of 1,500 bytes each fills the amounts first, after 1,398 of them.
const COUNT: u32 = 21;
const SINCE: u32 = COUNT + 11;
const CLOSED: u64 = 1 << 63;
/// Open, and nothing can be added: the entry's deadline is too far off to be counted on from.
const SEALED: u64 = CLOSED - (1 << SINCE);

/// The word, of an entry whose last step was so long after it was written; `None` if that doesn't fit.
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
    /// Adds a step at `now` that comes to `amount` and asks for this deadline; `false`, and nothing done, unless the deadline is as
    /// far ahead as it was after the last step.
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

/// A place for an entry, on a line of its own.
#[repr(align(64))]
pub struct AddingCell<K, V> {
    /// Closed while there is no entry.
    word: AtomicU64,
    body: crate::shared::sync::UnsafeCell<MaybeUninit<EntryBody<K, V>>>,
}

/// What stays as it was written.
#[derive(Clone, Copy)]
struct EntryBody<K, V> {
    key: K,
    value: V,
    written: Nanos,
    deadline: Nanos,
    protected: bool,
}

// SAFETY: a body is written by whoever holds the stripe, while the word is closed and no core that may have found it open is
// still in its burst; the word's Release and Acquire order that before every read. While the word is open bodies are only
// read, by references that several threads may have as keys and values are `Sync`.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for AddingCell<K, V> {}

impl<K: Copy, V: Copy> EntryBody<K, V> {
    /// The entry, as a word that is open tells.
    fn whole(&self, word: u64) -> GuardedEntry<K, V, Sum> {
        self.entry(if word == SEALED { 0 } else { word })
    }

    /// The same, of a word that can be added to.
    #[inline(always)]
    fn entry(&self, word: u64) -> GuardedEntry<K, V, Sum> {
        let Self { key, value, written, deadline, protected } = *self;
        let since = since(word);
        let [now, deadline] = [written, deadline].map(|time| Nanos(time.0.wrapping_add(since.0)));
        GuardedEntry { key, deadline, now, value, sum: sum(word), protected }
    }
}

/// An entry that is kept closed, and opened again when work on it panics.
struct ClosedCell<'a> {
    word: &'a AtomicU64,
    was: u64,
}

impl Drop for ClosedCell<'_> {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire in `step`. Nothing of the body has changed, but a step that sees the word open
        // again comes behind what was decided.
        self.word.store(self.was, Ordering::Release);
    }
}

impl<K: Key, V: Copy + Send + Sync> AddingCell<K, V> {
    /// Keeps steps from the entry, which has to be there.
    fn close(&self) -> ClosedCell<'_> {
        let was = if broken!(Unclosed) {
            self.word.load(Ordering::Acquire)
        } else {
            // ORDERING: Acquire pairs with the Release of the steps' exchanges, so that what they did comes before what is
            // decided; Release has whoever finds the word closed come behind.
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

    /// The caller is in a burst.
    #[inline(always)]
    fn step<T>(&self, key: &K, mut work: impl FnMut(&mut GuardedEntry<K, V, Sum>) -> Option<T>) -> Option<Option<T>> {
        // ORDERING: Acquire pairs with the Release in `put`: an open word's body is seen.
        let mut is = self.word.load(Ordering::Acquire);
        loop {
            if is >= SEALED {
                return None;
            }
            let (own, entry) = self.body.with(|body| {
                // SAFETY: the word is open, so the body was written, and it stays so at least until this core's burst is over.
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
            // ORDERING: Release pairs with the Acquire in `close`, and with that of the steps behind this one: what they do comes
            // after what this one did. On failure Acquire, as above.
            match self.word.compare_exchange_weak(is, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Some(result)),
                Err(other) => is = other,
            }
        }
    }

    fn decide<T>(&self, work: impl FnOnce(&mut GuardedEntry<K, V, Sum>) -> (T, Fate)) -> (T, EntryOutcome<K, V, Sum>) {
        let closed = self.close();
        // SAFETY: the word was open, so the body was written; only who holds the stripe writes it.
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
            // SAFETY: the place was taken from the circle, so no core is in a burst in which it may have found it open, and the
            // stripe's lock keeps all others away.
            unsafe { (*body).write(EntryBody { key, value, written: now, deadline, protected }) };
        });
        // What is counted on from here doesn't come to where deadlines end.
        let counts = deadline + Nanos(1 << 32) != Nanos::NEVER;
        let open = word(Nanos(0), sum).filter(|_| counts).unwrap_or(SEALED);
        debug_assert!(open != SEALED || sum == Sum::default(), "what was added is in the value by now");
        // ORDERING: Release pairs with the Acquire in `step`: whoever sees the word open sees the body.
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

/// A stripe's places: those that are free lie in a circle, and the one that was freed first is used first.
pub struct FreeRing {
    /// Each slot's place.
    of: Box<[u32]>,
    free: Box<[u32]>,
    /// How many were taken and given back, ever.
    taken: u64,
    given: u64,
    /// Up to here they may be used.
    quiet: u64,
    /// Up to the first they may be once the bursts of the second are over.
    waiting: (u64, u64),
}

/// Places of which none is used, besides one for each slot: at least so many, and one for so many slots. The more, the less often a core
/// that needs a place has to wait for another's burst.
const SPARE_MIN: usize = if cfg!(loom) { 1 } else { 64 };
const SPARE_SHARE: usize = 8;

impl FreeRing {
    /// Waits until a place may be used.
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
        // Half of the spare places are asked for while there is another half.
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
