//! A transaction: what it has read, what it has locked, and what it has to put back should it fail.
//!
//! The memory is one of versioned locks, one for each object, taken when it is first written to (TinySTM: Felber, Fetzer,
//! Riegel, PPoPP '08). Values are written in place and the old ones kept; a reader that meets a lock, or a version that is
//! younger than its own snapshot, sees it at once and extends the snapshot or gives up, so no handler ever sees a mix.

use alloc::vec::Vec;
use core::panic::Location;

use super::access_list::{AccessList, SpareHeap};
use super::cause::{Collision, OPERATIONS, Operation};
use super::sites::{Site, SiteCache};
use super::stm::{CoreHandle, Stm};
use super::sync::{AtomicU64, Ordering, Pause, broken, fence};
use super::{CommitPosition, Conflict};

/// An object's versioned lock: twice the version of what is in the object, or, while a core writes to it, an odd number that
/// tells which.
pub(crate) struct Lock {
    word: AtomicU64,
    /// Where the source wrote to the object last, and to what in it, if that is being recorded: 32 bits of each.
    writer: AtomicU64,
}

impl Default for Lock {
    fn default() -> Self {
        Self { word: AtomicU64::new(0), writer: AtomicU64::new(0) }
    }
}

impl Lock {
    /// A look that belongs to no transaction; `None` when the object changed meanwhile.
    #[inline]
    pub(crate) fn read_outside<T>(&self, read: impl Fn(ObjectView<'_>) -> T) -> Option<T> {
        // ORDERING: Acquire, Acquire and Relaxed, as in `Tx::load`.
        let seen = self.word.load(Ordering::Acquire);
        let value = read(ObjectView { lock: self, seen });
        fence(Ordering::Acquire);
        (seen & 1 == 0 && self.word.load(Ordering::Relaxed) == seen).then_some(value)
    }
}

/// Who uses an object, and for what. Two words, so that it stays in registers until someone asks.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    location: &'static Location<'static>,
    /// The operation's number, and in the lower half what in the object it is after: equal for the same thing, seldom for others.
    what: u64,
}

impl Access {
    #[inline(always)]
    #[track_caller]
    pub(crate) fn new(operation: Operation, about: u32) -> Self {
        Self { location: Location::caller(), what: (operation as u64) << 32 | u64::from(about) }
    }

    /// The same for another part of what the operation does.
    #[inline(always)]
    pub(crate) const fn on(self, operation: Operation) -> Self {
        Self { what: (operation as u64) << 32 | self.what & u32::MAX as u64, ..self }
    }

    /// The same, after something else in the object.
    #[inline(always)]
    pub(crate) const fn after(self, about: u32) -> Self {
        Self { what: self.what & !(u32::MAX as u64) | about as u64, ..self }
    }

    const fn about(self) -> u32 {
        self.what as u32
    }

    const fn site(self) -> Site {
        Site { location: self.location, operation: OPERATIONS[(self.what >> 32) as usize] }
    }
}

/// A look at an object's words, perhaps in the middle of a change.
#[derive(Clone, Copy)]
pub(crate) struct ObjectView<'l> {
    lock: &'l Lock,
    seen: u64,
}

impl ObjectView<'_> {
    /// Whether the words have changed since, so that what is read is of no use.
    #[inline(always)]
    pub(crate) fn has_changed(self) -> bool {
        // ORDERING: Acquire, so that a word that is read after this is no older than the answer.
        self.lock.word.load(Ordering::Acquire) != self.seen
    }
}

/// How often a core looks again at an object that another one holds, before it gives up.
const LOCK_RETRIES: u32 = if cfg!(loom) { 1 } else { 5 };

/// How often a step fails at most: then it gets a turn, in which it can't.
pub const ABORTS_MAX: u32 = if cfg!(loom) { 1 } else { 8 };

/// Room for so many notes of a kind at the start: more than a burst of any function that ships makes.
const LIST_CAPACITY: usize = 4096;

/// What a core keeps of its transactions from one to the next: room, no contents.
pub(crate) struct Buffers {
    reads: SpareHeap<Lock>,
    locked: SpareHeap<Lock>,
    undo: SpareHeap<AtomicU64>,
    site_cache: SiteCache,
    /// Where each of `reads` was read, if that is being recorded.
    read_at: Vec<Access>,
    /// Whether objects are to remember who wrote them.
    pub(crate) recording: bool,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            reads: Vec::with_capacity(LIST_CAPACITY),
            locked: Vec::with_capacity(LIST_CAPACITY),
            undo: Vec::with_capacity(LIST_CAPACITY),
            site_cache: SiteCache::default(),
            read_at: Vec::new(),
            recording: false,
        }
    }
}

/// Where a transaction writes down what it does. It begins with [`begin`](Self::begin).
pub struct Log<'a> {
    handle: &'a mut CoreHandle,
    /// A copy of the session's, which outlives all transactions.
    stm: &'a Stm,
    mine: u64,
    state: State,
    /// The version up to which all that was read is consistent.
    snapshot: u64,
    reads: AccessList<'a, Lock, 4>,
    locked: AccessList<'a, Lock, 3>,
    undo: AccessList<'a, AtomicU64, 4>,
    collision: Option<Collision>,
}

/// How far a transaction is.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// It hasn't looked at shared state yet.
    Outside,
    Inside,
    /// It is a turn, which locks all that it looks at and waits for what others hold: nothing in it can fail. The others let go, for
    /// they don't wait for long, and stay away once they have seen that there is a turn.
    Irrevocable,
}

/// A transaction under way. One that is dropped has done nothing.
pub struct Tx<'a>(&'a mut Log<'a>);

impl CoreHandle {
    /// The log of one transaction on `memory`, to begin it with.
    ///
    /// # Panics
    /// When the memory is not the session's.
    #[inline]
    pub fn log<'a>(&'a mut self, memory: &'a super::Transactional) -> Log<'a> {
        assert!(core::ptr::eq(&raw const *self.stm, memory.stm()), "a handle is at its own memory");
        Log {
            stm: memory.stm(),
            mine: (self.core as u64 + 1) << 1 | 1,
            state: State::Outside,
            snapshot: 0,
            reads: AccessList::new(),
            locked: AccessList::new(),
            undo: AccessList::new(),
            collision: None,
            handle: self,
        }
    }
}

impl<'a> Log<'a> {
    /// Begins. Nothing is done before the first look at shared state: a step that has none costs next to nothing.
    #[inline]
    pub fn begin(&'a mut self) -> Tx<'a> {
        Tx(self)
    }

    /// Begins once more after `aborts` that failed; from [`ABORTS_MAX`] on in a turn.
    #[inline]
    pub fn attempt(&'a mut self, aborts: u32) -> Tx<'a> {
        if aborts < ABORTS_MAX { self.begin() } else { self.begin_irrevocable() }
    }

    /// Begins in a turn, in which nothing fails. Waits for those of others.
    #[cold]
    pub fn begin_irrevocable(&'a mut self) -> Tx<'a> {
        self.stm.begin_irrevocable();
        self.state = State::Irrevocable;
        // ORDERING: Acquire, as in `enter`.
        self.snapshot = self.stm.clock.0.load(Ordering::Acquire);
        Tx(self)
    }

    #[inline]
    fn enter(&mut self) {
        self.stm.wait_for_irrevocable();
        self.state = State::Inside;
        // ORDERING: Acquire, with the increment in `commit`: whoever has a version up to this one had its locks by then.
        self.snapshot = self.stm.clock.0.load(Ordering::Acquire);
    }

    /// Notes that an object was read.
    #[inline(always)]
    fn add_read(&mut self, lock: &'a Lock, seen: u64, access: Access) {
        let buffers = &mut self.handle.buffers;
        self.reads.push(lock, seen, &mut buffers.reads);
        if buffers.recording {
            buffers.read_at.push(access);
        }
    }

    /// Whether all that was read is as it was, at the clock as it is now.
    #[cold]
    fn extend(&mut self) -> bool {
        // ORDERING: Acquire, as in `enter`.
        let now = self.stm.clock.0.load(Ordering::Acquire);
        let valid = broken!(Unextended) || self.is_valid();
        if valid {
            self.snapshot = now;
        }
        valid
    }

    /// Whether nobody wrote to what was read. What this core has locked was checked when it was.
    fn is_valid(&self) -> bool {
        self.reads.iter().all(|(lock, seen)| {
            // ORDERING: Acquire, so that the look at the next is not before this one.
            let word = lock.word.load(Ordering::Acquire);
            word == seen || word == self.mine
        })
    }

    /// Notes who is in the way, as far as that is known.
    #[cold]
    fn collide(&mut self, lock: Option<&Lock>, access: Option<Access>) -> Conflict {
        // ORDERING: Relaxed. A hint for a report.
        let writer = lock.map_or(0, |lock| lock.writer.load(Ordering::Relaxed));
        self.collision = Some(Collision {
            mine: access.map(|access| access.site()),
            other: self.stm.sites.site((writer >> 32) as u32),
            same: access.is_some_and(|access| access.about() == writer as u32),
        });
        Conflict(())
    }

    /// What was read is forgotten, and its room goes back to the session.
    #[inline]
    fn end(&mut self) {
        let buffers = &mut self.handle.buffers;
        buffers.read_at.clear();
        self.reads.clear(&mut buffers.reads);
        if self.state == State::Irrevocable {
            self.stm.end_irrevocable();
        }
        self.state = State::Outside;
    }

    /// What was written is forgotten: nothing is locked any more.
    fn forget_writes(&mut self) {
        let buffers = &mut self.handle.buffers;
        self.locked.clear(&mut buffers.locked);
        self.undo.clear(&mut buffers.undo);
    }
}

impl<'a> Tx<'a> {
    /// Reads an object. `read` may look at words in the middle of a change; what it makes of them then is thrown away. It is
    /// handed what tells it to end such a look.
    #[inline(always)]
    pub(crate) fn load<T>(
        &mut self,
        lock: &'a Lock,
        access: Access,
        read: impl Fn(ObjectView<'_>) -> T,
    ) -> Result<T, Conflict> {
        let log = &mut *self.0;
        if log.state == State::Outside {
            log.enter();
        }
        if log.state == State::Inside {
            // ORDERING: Acquire, with the release of the lock: the words that go with this version are seen.
            let seen = lock.word.load(Ordering::Acquire);
            // Nobody writes to it, and it is no younger than the snapshot.
            if seen & 1 == 0 && seen >> 1 <= log.snapshot {
                let value = read(ObjectView { lock, seen });
                // ORDERING: Acquire, with the fence in `lock`: had `read` seen a word of the next writer, this sees its lock.
                fence(Ordering::Acquire);
                if lock.word.load(Ordering::Relaxed) == seen || broken!(Unchecked) {
                    log.add_read(lock, seen, access);
                    return Ok(value);
                }
            }
        }
        self.load_slowly(lock, access, read)
    }

    /// The same where it isn't that simple.
    #[inline(never)]
    fn load_slowly<T>(
        &mut self,
        lock: &'a Lock,
        access: Access,
        read: impl Fn(ObjectView<'_>) -> T,
    ) -> Result<T, Conflict> {
        if self.0.state == State::Irrevocable && !broken!(UnlockedIrrevocable) {
            return self.load_irrevocable(lock, access, read);
        }
        let log = &mut *self.0;
        let mut pause = Pause::default();
        loop {
            // ORDERING: Acquire, Acquire and Relaxed, as in `load`.
            let seen = lock.word.load(Ordering::Acquire);
            let is_mine = seen == log.mine;
            if seen & 1 == 0 || is_mine {
                // In one place, so that it is inlined and what it gives stays in registers.
                let value = read(ObjectView { lock, seen });
                if is_mine {
                    return Ok(value);
                }
                fence(Ordering::Acquire);
                if lock.word.load(Ordering::Relaxed) == seen || broken!(Unchecked) {
                    log.add_read(lock, seen, access);
                    if seen >> 1 > log.snapshot && !log.extend() {
                        return Err(log.collide(Some(lock), Some(access)));
                    }
                    return Ok(value);
                }
            }
            if pause.count() == LOCK_RETRIES {
                return Err(log.collide(Some(lock), Some(access)));
            }
            pause.wait();
        }
    }

    /// In a turn what is read is locked as well.
    #[cold]
    #[inline(never)]
    fn load_irrevocable<T>(
        &mut self,
        lock: &'a Lock,
        access: Access,
        read: impl Fn(ObjectView<'_>) -> T,
    ) -> Result<T, Conflict> {
        self.take(lock, access).map(read)
    }

    /// Locks an object until the transaction ends, to write to it.
    #[inline]
    pub(crate) fn lock(&mut self, lock: &'a Lock, access: Access) -> Result<ObjectView<'a>, Conflict> {
        let view = self.take(lock, access)?;
        let log = &mut *self.0;
        let buffers = &mut log.handle.buffers;
        if buffers.recording {
            let number = buffers.site_cache.number(access.site(), &log.stm.sites);
            // ORDERING: Relaxed. A hint for a report.
            lock.writer.store(u64::from(number) << 32 | u64::from(access.about()), Ordering::Relaxed);
        }
        Ok(view)
    }

    /// The same, and nobody is told who it was.
    #[inline]
    fn take(&mut self, lock: &'a Lock, access: Access) -> Result<ObjectView<'a>, Conflict> {
        let log = &mut *self.0;
        if log.state == State::Outside {
            log.enter();
        }
        let mut pause = Pause::default();
        loop {
            // ORDERING: Relaxed. The exchange below decides.
            let seen = lock.word.load(Ordering::Relaxed);
            if seen == log.mine {
                break;
            }
            if seen & 1 == 0 {
                // A younger version than the snapshot: what was read of this object before, if anything, is out of date.
                if seen >> 1 > log.snapshot && !log.extend() {
                    return Err(log.collide(Some(lock), Some(access)));
                }
                // ORDERING: Acquire, with the release of the lock. The fence keeps the writes that follow behind the lock.
                let taken = lock.word.compare_exchange(seen, log.mine, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    if !broken!(EarlyWords) {
                        fence(Ordering::Release);
                    }
                    log.locked.push(lock, seen, &mut log.handle.buffers.locked);
                    break;
                }
            }
            if pause.count() >= LOCK_RETRIES && log.state != State::Irrevocable {
                return Err(log.collide(Some(lock), Some(access)));
            }
            pause.wait();
        }
        Ok(ObjectView { lock, seen: log.mine })
    }

    /// The number in a word of an object that is locked.
    #[inline(always)]
    pub(crate) fn get(word: &AtomicU64) -> u64 {
        // ORDERING: Relaxed. Nobody else writes it.
        word.load(Ordering::Relaxed)
    }

    /// Writes to a word of an object that is locked.
    #[inline(always)]
    pub(crate) fn set(&mut self, word: &'a AtomicU64, number: u64) {
        // ORDERING: Relaxed. Published by the release of the lock.
        let old = word.load(Ordering::Relaxed);
        if old != number {
            let log = &mut *self.0;
            log.undo.push(word, old, &mut log.handle.buffers.undo);
            word.store(number, Ordering::Relaxed);
        }
    }

    /// The core that the transaction runs on.
    #[inline(always)]
    pub(crate) fn core(&self) -> usize {
        self.0.handle.core
    }

    /// Makes all that was written seen, at once. Where the transaction stands among all.
    ///
    /// # Errors
    /// When others have changed what it read. Everything is as before then.
    #[inline(always)]
    pub fn commit(self) -> Result<CommitPosition, Option<Collision>> {
        let log = &mut *self.0;
        if !log.locked.is_empty() {
            return self.publish();
        }
        let place = &mut log.handle.place;
        if log.state != State::Outside {
            place.version = log.snapshot;
        }
        // One that saw nothing may stand anywhere: behind what this core did before.
        place.reads_only = true;
        Ok(*place)
    }

    /// Commits what has written.
    #[inline(never)]
    fn publish(self) -> Result<CommitPosition, Option<Collision>> {
        let log = &mut *self.0;
        // ORDERING: AcqRel. Release: whoever starts at this version sees the locks. Acquire: of two that commit, the
        // second sees the locks of the first.
        let version = log.stm.clock.0.fetch_add(1, Ordering::AcqRel) + 1;
        if version != log.snapshot + 1 && !broken!(Unvalidated) && !log.is_valid() {
            log.collide_anywhere();
            return Err(self.abort());
        }
        for (lock, _) in log.locked.iter() {
            // ORDERING: Release. What was written is seen by whoever sees the version.
            lock.word.store(version << 1, Ordering::Release);
        }
        log.forget_writes();
        log.handle.place = CommitPosition { version, reads_only: false };
        Ok(log.handle.place)
    }

    /// Undoes all that was written, and tells who was in the way, if anyone was.
    #[cold]
    pub fn abort(self) -> Option<Collision> {
        self.0.collision.take()
    }
}

impl Log<'_> {
    /// Notes who changed something that was read.
    #[cold]
    fn collide_anywhere(&mut self) {
        // ORDERING: Relaxed. What changed stays changed, or is written to again.
        let changed = |(lock, seen): (&Lock, u64)| {
            let word = lock.word.load(Ordering::Relaxed);
            word != seen && word != self.mine
        };
        let Some((at, (lock, _))) = self.reads.iter().enumerate().find(|(_, read)| changed(*read)) else { return };
        let access = self.handle.buffers.read_at.get(at).copied();
        let _conflict = self.collide(Some(lock), access);
    }

    /// Puts back what was written.
    #[cold]
    fn roll_back(&mut self) {
        for (word, old) in self.undo.iter().rev() {
            // ORDERING: Relaxed. Published by the release of the lock.
            word.store(old, Ordering::Relaxed);
        }
        // A version of its own: a reader that saw the words in between must not find the version that it began with.
        // ORDERING: AcqRel, as in `commit`.
        let version = self.stm.clock.0.fetch_add(1, Ordering::AcqRel) + 1;
        for (lock, before) in self.locked.iter() {
            let word = if broken!(SameVersion) { before } else { version << 1 };
            // ORDERING: Release, as in `commit`.
            lock.word.store(word, Ordering::Release);
        }
        self.forget_writes();
    }
}

impl Drop for Tx<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.0.locked.is_empty() {
            self.0.roll_back();
        }
        self.0.end();
    }
}
