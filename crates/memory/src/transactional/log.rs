//! A transaction: its read set, its locks and its undo log.
//!
//! The algorithm is that of TinySTM (Felber, Fetzer, Riegel, PPoPP '08): a versioned lock for each object, locked at the first write
//! (encounter-time locking), writes in place with an undo log, and a global version clock. A reader that meets a locked object retries a
//! few times and then aborts. A reader that meets a version newer than its snapshot validates its read set and extends the snapshot, or
//! aborts. So no handler sees an inconsistent state.
//!
//! After repeated aborts a step runs as an irrevocable transaction (Welc, Saha, Adl-Tabatabai, SPAA '08): one at a time, it locks all that
//! it reads, and new transactions wait for it. A step can ask for that itself, before it changes what no transaction can undo.

use alloc::vec::Vec;
use core::panic::Location;

use super::access_list::{AccessList, SpareHeap};
use super::cause::{Collision, OPERATIONS, Operation};
use super::sites::{Site, SiteCache};
use super::stm::{CoreHandle, Stm};
use super::sync::{AtomicU64, Ordering, Pause, broken, fence};
use super::{CommitPosition, Conflict};

/// An object's versioned lock: twice the object's version, or, while a core writes to it, an odd number that names the core.
pub(crate) struct Lock {
    word: AtomicU64,
    /// The site of the last write and the part of the object written, 32 bits each, if that is recorded.
    writer: AtomicU64,
}

impl Default for Lock {
    fn default() -> Self {
        Self { word: AtomicU64::new(0), writer: AtomicU64::new(0) }
    }
}

impl Lock {
    /// Reads the object outside any transaction; `None` if it changed meanwhile.
    #[inline]
    pub(crate) fn read_outside<T>(&self, read: impl Fn(ObjectView<'_>) -> T) -> Option<T> {
        // ORDERING: Acquire, Acquire and Relaxed, as in `Tx::load`.
        let seen = self.word.load(Ordering::Acquire);
        let value = read(ObjectView { lock: self, seen });
        fence(Ordering::Acquire);
        (seen & 1 == 0 && self.word.load(Ordering::Relaxed) == seen).then_some(value)
    }
}

/// An access to an object: where in the source, and for what. Two words, so that it stays in registers.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    location: &'static Location<'static>,
    /// The operation's number, and in the lower half the part of the object that is accessed: equal for equal parts, seldom equal for
    /// others.
    what: u64,
}

impl Access {
    #[inline(always)]
    #[track_caller]
    pub(crate) fn new(operation: Operation, about: u32) -> Self {
        Self { location: Location::caller(), what: (operation as u64) << 32 | u64::from(about) }
    }

    /// The same access by another operation.
    #[inline(always)]
    pub(crate) const fn on(self, operation: Operation) -> Self {
        Self { what: (operation as u64) << 32 | self.what & u32::MAX as u64, ..self }
    }

    /// The same access to another part of the object.
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

/// A read of an object's words, perhaps while a writer changes them.
#[derive(Clone, Copy)]
pub(crate) struct ObjectView<'l> {
    lock: &'l Lock,
    seen: u64,
}

impl ObjectView<'_> {
    /// True if the object has changed since, so the words read are invalid.
    #[inline(always)]
    pub(crate) fn has_changed(self) -> bool {
        // ORDERING: Acquire, so that words read after this are no older than the answer.
        self.lock.word.load(Ordering::Acquire) != self.seen
    }
}

/// How often a core retries an object that another core has locked before it aborts.
const LOCK_RETRIES: u32 = if cfg!(loom) { 1 } else { 5 };

/// The most times that a step aborts. After that it runs as an irrevocable transaction.
pub const ABORTS_MAX: u32 = if cfg!(loom) { 1 } else { 8 };

/// The initial capacity of each list: more than a burst of any shipped function needs.
const LIST_CAPACITY: usize = 4096;

/// The buffers that a core keeps between transactions: capacity, no contents.
pub(crate) struct Buffers {
    reads: SpareHeap<Lock>,
    locked: SpareHeap<Lock>,
    undo: SpareHeap<AtomicU64>,
    site_cache: SiteCache,
    /// The access of each entry of `reads`, if that is recorded.
    read_at: Vec<Access>,
    /// True if objects record their writers.
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

/// The log of one transaction. Start with [`begin`](Self::begin).
pub struct Log<'a> {
    handle: &'a mut CoreHandle,
    /// A copy of the handle's, which outlives all transactions.
    stm: &'a Stm,
    mine: u64,
    state: State,
    /// The snapshot version: all reads are consistent at it.
    snapshot: u64,
    reads: AccessList<'a, Lock, 4>,
    locked: AccessList<'a, Lock, 3>,
    undo: AccessList<'a, AtomicU64, 4>,
    collision: Option<Collision>,
}

/// The state of a transaction.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// It hasn't accessed shared state yet.
    Outside,
    Inside,
    /// It is irrevocable: it locks all that it reads, and waits for locks. It can't fail, since other transactions wait for locks for a
    /// bounded time only, and new ones wait until it has ended.
    Irrevocable,
}

/// A running transaction. Dropping it aborts it.
pub struct Tx<'a>(
    /// `None` while [another place](Tx::take) has the transaction.
    Option<&'a mut Log<'a>>,
);

impl CoreHandle {
    /// The log for one transaction on `memory`.
    ///
    /// # Panics
    /// If the handle is of another memory.
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
    /// Begins a transaction. It does nothing before the first access to shared state, so a step without one costs next to nothing.
    #[inline]
    pub fn begin(&'a mut self) -> Tx<'a> {
        Tx(Some(self))
    }

    /// Begins the next attempt after so many aborts. It is irrevocable from [`ABORTS_MAX`] on, or if the last attempt asked for that.
    #[inline]
    pub fn attempt(&'a mut self, aborts: u32) -> Tx<'a> {
        if aborts == 0 || (aborts < ABORTS_MAX && !self.handle.asks_irrevocable) {
            self.begin()
        } else {
            self.begin_irrevocable()
        }
    }

    /// Begins an irrevocable transaction, which can't fail. It waits for those of other cores.
    #[cold]
    pub fn begin_irrevocable(&'a mut self) -> Tx<'a> {
        self.enter_irrevocable();
        Tx(Some(self))
    }

    /// Enters as an irrevocable transaction. Nothing was accessed before.
    #[cold]
    fn enter_irrevocable(&mut self) {
        self.handle.asks_irrevocable = false;
        self.stm.begin_irrevocable();
        self.state = State::Irrevocable;
        // ORDERING: Acquire, as in `enter`.
        self.snapshot = self.stm.clock.0.load(Ordering::Acquire);
    }

    #[inline]
    fn enter(&mut self) {
        self.stm.wait_for_irrevocable();
        self.state = State::Inside;
        // ORDERING: Acquire, with the increment in `publish`: a core that made a version up to this one had locked its objects by then.
        self.snapshot = self.stm.clock.0.load(Ordering::Acquire);
    }

    /// Adds an object to the read set.
    #[inline(always)]
    fn add_read(&mut self, lock: &'a Lock, seen: u64, access: Access) {
        let buffers = &mut self.handle.buffers;
        self.reads.push(lock, seen, &mut buffers.reads);
        if buffers.recording {
            buffers.read_at.push(access);
        }
    }

    /// Extends the snapshot to the present clock; `false` if an object that was read has changed.
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

    /// Validates the read set: true if no other core has written to it. Objects that this core has locked were checked at locking.
    fn is_valid(&self) -> bool {
        self.reads.iter().all(|(lock, seen)| {
            // ORDERING: Acquire, so that the next lock isn't read before this one.
            let word = lock.word.load(Ordering::Acquire);
            word == seen || word == self.mine
        })
    }

    /// Records the conflicting transaction, as far as it is known.
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

    /// Clears the read set and gives its buffers back to the handle.
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

    /// Clears the lists of locks and writes. No object is locked any more.
    fn forget_writes(&mut self) {
        let buffers = &mut self.handle.buffers;
        self.locked.clear(&mut buffers.locked);
        self.undo.clear(&mut buffers.undo);
    }
}

impl<'a> Tx<'a> {
    /// Takes the transaction to another place. Put it back before it is used here again.
    #[inline(always)]
    pub(crate) const fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    #[inline(always)]
    fn log(&mut self) -> &mut Log<'a> {
        match &mut self.0 {
            Some(log) => log,
            None => elsewhere(),
        }
    }

    /// Reads an object. `read` may see words in the middle of a change; its result is discarded then. Its argument tells it when to give up
    /// early.
    #[inline(always)]
    pub(crate) fn load<T>(
        &mut self,
        lock: &'a Lock,
        access: Access,
        read: impl Fn(ObjectView<'_>) -> T,
    ) -> Result<T, Conflict> {
        let log = self.log();
        if log.state == State::Outside {
            log.enter();
        }
        if log.state == State::Inside {
            // ORDERING: Acquire, with the release of the lock: the words of this version are visible.
            let seen = lock.word.load(Ordering::Acquire);
            // The object isn't locked, and not newer than the snapshot.
            if seen & 1 == 0 && seen >> 1 <= log.snapshot {
                let value = read(ObjectView { lock, seen });
                // ORDERING: Acquire, with the fence in `lock_silently`: if `read` saw a word of the next writer, the load below sees its lock.
                fence(Ordering::Acquire);
                if lock.word.load(Ordering::Relaxed) == seen || broken!(Unchecked) {
                    log.add_read(lock, seen, access);
                    return Ok(value);
                }
            }
        }
        self.load_slowly(lock, access, read)
    }

    /// The slow path of [`load`](Self::load).
    #[inline(never)]
    fn load_slowly<T>(
        &mut self,
        lock: &'a Lock,
        access: Access,
        read: impl Fn(ObjectView<'_>) -> T,
    ) -> Result<T, Conflict> {
        if self.is_irrevocable() && !broken!(UnlockedIrrevocable) {
            return self.load_irrevocable(lock, access, read);
        }
        let log = self.log();
        let mut pause = Pause::default();
        loop {
            // ORDERING: Acquire, Acquire and Relaxed, as in `load`.
            let seen = lock.word.load(Ordering::Acquire);
            let is_mine = seen == log.mine;
            if seen & 1 == 0 || is_mine {
                // One call site, so that `read` is inlined and its result stays in registers.
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

    /// Locks an object that an irrevocable transaction reads.
    #[cold]
    #[inline(never)]
    fn load_irrevocable<T>(
        &mut self,
        lock: &'a Lock,
        access: Access,
        read: impl Fn(ObjectView<'_>) -> T,
    ) -> Result<T, Conflict> {
        self.lock_silently(lock, access).map(read)
    }

    /// Locks an object for writing until the transaction ends.
    #[inline]
    pub(crate) fn lock(&mut self, lock: &'a Lock, access: Access) -> Result<ObjectView<'a>, Conflict> {
        let view = self.lock_silently(lock, access)?;
        let log = self.log();
        let buffers = &mut log.handle.buffers;
        if buffers.recording {
            let number = buffers.site_cache.number(access.site(), &log.stm.sites);
            // ORDERING: Relaxed. A hint for a report.
            lock.writer.store(u64::from(number) << 32 | u64::from(access.about()), Ordering::Relaxed);
        }
        Ok(view)
    }

    /// Locks an object and records no writer.
    #[inline]
    fn lock_silently(&mut self, lock: &'a Lock, access: Access) -> Result<ObjectView<'a>, Conflict> {
        let log = self.log();
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
                // The version is newer than the snapshot: earlier reads of this object are out of date.
                if seen >> 1 > log.snapshot && !log.extend() {
                    return Err(log.collide(Some(lock), Some(access)));
                }
                // ORDERING: Acquire, with the release of the lock. The fence keeps later writes behind the lock.
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

    /// Reads a word of an object that is locked or being read.
    #[inline(always)]
    pub(crate) fn get(word: &AtomicU64) -> u64 {
        // ORDERING: Relaxed. Nobody else writes it.
        word.load(Ordering::Relaxed)
    }

    /// Writes a word of a locked object and logs the old value.
    #[inline(always)]
    pub(crate) fn set(&mut self, word: &'a AtomicU64, number: u64) {
        // ORDERING: Relaxed. Published by the release of the lock.
        let old = word.load(Ordering::Relaxed);
        if old != number {
            let log = self.log();
            log.undo.push(word, old, &mut log.handle.buffers.undo);
            word.store(number, Ordering::Relaxed);
        }
    }

    /// Makes the transaction irrevocable. If it has accessed shared state before, it fails, and the next [attempt](Log::attempt) is
    /// irrevocable from the start.
    pub(crate) fn make_irrevocable(&mut self) -> Result<(), Conflict> {
        let log = self.log();
        match log.state {
            State::Irrevocable => {}
            State::Outside => log.enter_irrevocable(),
            State::Inside => {
                log.handle.asks_irrevocable = true;
                return Err(Conflict(()));
            }
        }
        Ok(())
    }

    /// True if the transaction is irrevocable.
    #[inline]
    #[must_use]
    pub fn is_irrevocable(&self) -> bool {
        self.0.as_ref().is_some_and(|log| log.state == State::Irrevocable)
    }

    /// The core of the transaction.
    #[inline(always)]
    pub(crate) fn core(&self) -> usize {
        match &self.0 {
            Some(log) => log.handle.core,
            None => elsewhere(),
        }
    }

    /// Commits: all writes become visible together. Returns the transaction's position in the serial order.
    ///
    /// # Errors
    /// If other cores have changed what it read. The transaction is aborted then.
    #[inline(always)]
    pub fn commit(mut self) -> Result<CommitPosition, Option<Collision>> {
        let log = self.log();
        if !log.locked.is_empty() {
            return self.publish();
        }
        let place = &mut log.handle.place;
        if log.state != State::Outside {
            place.version = log.snapshot;
        }
        // A transaction that read nothing may stand anywhere; it is put behind this core's last one.
        place.reads_only = true;
        Ok(*place)
    }

    /// Commits a transaction that has written.
    #[inline(never)]
    fn publish(mut self) -> Result<CommitPosition, Option<Collision>> {
        let log = self.log();
        // ORDERING: AcqRel. Release: a core that starts at this version sees the locks. Acquire: of two commits the second sees the locks
        // of the first.
        let version = log.stm.clock.0.fetch_add(1, Ordering::AcqRel) + 1;
        if version != log.snapshot + 1 && !broken!(Unvalidated) && !log.is_valid() {
            log.collide_anywhere();
            return Err(self.abort());
        }
        for (lock, _) in log.locked.iter() {
            // ORDERING: Release. A core that sees the version sees the writes.
            lock.word.store(version << 1, Ordering::Release);
        }
        log.forget_writes();
        log.handle.place = CommitPosition { version, reads_only: false };
        Ok(log.handle.place)
    }

    /// Aborts: undoes all writes. Returns the conflict, if one was recorded.
    #[cold]
    pub fn abort(mut self) -> Option<Collision> {
        self.log().collision.take()
    }
}

#[cold]
#[inline(never)]
fn elsewhere() -> ! {
    panic!("the transaction was taken to another place and not put back")
}

impl Log<'_> {
    /// Records which transaction changed an object of the read set.
    #[cold]
    fn collide_anywhere(&mut self) {
        // ORDERING: Relaxed. A changed object stays changed or changes again.
        let changed = |(lock, seen): (&Lock, u64)| {
            let word = lock.word.load(Ordering::Relaxed);
            word != seen && word != self.mine
        };
        let Some((at, (lock, _))) = self.reads.iter().enumerate().find(|(_, read)| changed(*read)) else { return };
        let access = self.handle.buffers.read_at.get(at).copied();
        let _conflict = self.collide(Some(lock), access);
    }

    /// Undoes all writes and releases the locks.
    #[cold]
    fn roll_back(&mut self) {
        for (word, old) in self.undo.iter().rev() {
            // ORDERING: Relaxed. Published by the release of the lock.
            word.store(old, Ordering::Relaxed);
        }
        // The undone objects get a new version: a reader that saw the words in between must not find its old version again. ORDERING:
        // AcqRel, as in `publish`.
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
        let Some(log) = &mut self.0 else { return };
        if !log.locked.is_empty() {
            log.roll_back();
        }
        log.end();
    }
}
