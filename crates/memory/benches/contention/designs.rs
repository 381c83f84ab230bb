//! Alternative designs: buffered writes (TL2: Dice, Shalev, Shavit, DISC '06) and several versions (after MV-RLU: Kim et al., ASPLOS '19),
//! as far as an array of numbers needs them. Neither has irrevocable transactions, causes or the other structures, and the second never
//! reclaims a version. These cost time, so both look better here than they would be.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// An element on a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Line {
    /// Twice the version, or odd while it is locked. With several versions: the newest copy, or 0.
    lock: AtomicU64,
    value: AtomicU64,
}

/// A value on a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Apart(AtomicU64);

fn lines(len: usize) -> Box<[Line]> {
    (0..len).map(|_| Line::default()).collect()
}

/// A transaction failed.
pub(crate) struct Failed;

/// An array whose writers buffer their writes until they commit (TL2).
pub(crate) struct Buffered {
    lines: Box<[Line]>,
    clock: Apart,
}

/// One core's buffers.
#[derive(Default)]
pub(crate) struct Buffer {
    snapshot: u64,
    reads: Vec<(usize, u64)>,
    writes: Vec<(usize, u64)>,
    /// A filter of the elements in `writes`.
    filter: u64,
}

const fn bit(at: usize) -> u64 {
    1 << (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

impl Buffered {
    pub(crate) fn new(len: usize) -> Self {
        Self { lines: lines(len), clock: Apart::default() }
    }

    pub(crate) fn begin(&self, buffer: &mut Buffer) {
        buffer.reads.clear();
        buffer.writes.clear();
        buffer.filter = 0;
        // ORDERING: Acquire, here and below, as in the memory that ships (`log.rs`).
        buffer.snapshot = self.clock.0.load(Ordering::Acquire);
    }

    pub(crate) fn read(&self, buffer: &mut Buffer, at: usize) -> Result<u64, Failed> {
        if buffer.filter & bit(at) != 0
            && let Some((_, value)) = buffer.writes.iter().rev().find(|(other, _)| *other == at)
        {
            return Ok(*value);
        }
        let line = &self.lines[at];
        let seen = line.lock.load(Ordering::Acquire);
        let value = line.value.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if seen & 1 == 1 || line.lock.load(Ordering::Relaxed) != seen {
            return Err(Failed);
        }
        buffer.reads.push((at, seen));
        if seen >> 1 > buffer.snapshot {
            let now = self.clock.0.load(Ordering::Acquire);
            self.is_valid(buffer, None).then_some(()).ok_or(Failed)?;
            buffer.snapshot = now;
        }
        Ok(value)
    }

    pub(crate) fn write(&self, buffer: &mut Buffer, at: usize, value: u64) {
        if buffer.filter & bit(at) != 0
            && let Some((_, known)) = buffer.writes.iter_mut().rev().find(|(other, _)| *other == at)
        {
            *known = value;
            return;
        }
        buffer.filter |= bit(at);
        buffer.writes.push((at, value));
    }

    /// Validates the read set. The words of elements that this core has locked are in `held`.
    fn is_valid(&self, buffer: &Buffer, held: Option<&[u64]>) -> bool {
        buffer.reads.iter().all(|&(at, seen)| {
            let word = self.lines[at].lock.load(Ordering::Acquire);
            let own = || {
                let mine = buffer.writes.iter().position(|(other, _)| *other == at);
                held.zip(mine).is_some_and(|(held, mine)| held[mine] == seen)
            };
            word == seen || own()
        })
    }

    pub(crate) fn commit(&self, buffer: &Buffer, held: &mut Vec<u64>) -> Result<(), Failed> {
        if buffer.writes.is_empty() {
            return Ok(());
        }
        held.clear();
        for &(at, _) in &buffer.writes {
            let lock = &self.lines[at].lock;
            let seen = lock.load(Ordering::Relaxed);
            let taken =
                seen & 1 == 0 && lock.compare_exchange(seen, seen | 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if !taken {
                self.let_go(buffer, held);
                return Err(Failed);
            }
            held.push(seen);
        }
        fence(Ordering::Release);
        let version = self.clock.0.fetch_add(1, Ordering::AcqRel) + 1;
        if version != buffer.snapshot + 1 && !self.is_valid(buffer, Some(held)) {
            self.let_go(buffer, held);
            return Err(Failed);
        }
        for &(at, value) in &buffer.writes {
            self.lines[at].value.store(value, Ordering::Relaxed);
            self.lines[at].lock.store(version << 1, Ordering::Release);
        }
        Ok(())
    }

    /// Nothing was written: the old versions remain.
    fn let_go(&self, buffer: &Buffer, held: &[u64]) {
        for (&(at, _), seen) in buffer.writes.iter().zip(held) {
            self.lines[at].lock.store(*seen, Ordering::Release);
        }
    }

    pub(crate) fn sum(&self) -> u64 {
        self.lines.iter().map(|line| line.value.load(Ordering::Relaxed)).sum()
    }
}

/// An array whose writers make copies, so that readers find the versions of their start (multi-versioning).
pub(crate) struct Versions {
    lines: Box<[Line]>,
    clock: Apart,
    /// The copies of all cores, in one part for each core. Copy 0 is unused.
    copies: Box<[Copy]>,
    each: usize,
}

/// A version of an element.
#[derive(Default)]
struct Copy {
    /// Its commit time; [`PENDING`] before the commit.
    time: AtomicU64,
    value: AtomicU64,
    older: AtomicU64,
}

const PENDING: u64 = u64::MAX;
/// The transaction is committing: it has drawn its commit time or is about to.
const COMMITTING: u64 = u64::MAX - 1;

/// One core's part of the copies.
pub(crate) struct Writer {
    now: u64,
    /// The first copy of this transaction, and the next free one.
    first: usize,
    next: usize,
    elements: Vec<usize>,
}

impl Versions {
    /// An array for `cores` cores, each with at most `each` copies in all.
    pub(crate) fn new(len: usize, cores: usize, each: usize) -> Self {
        let copies: Box<[Copy]> = (0..=cores * each).map(|_| Copy::default()).collect();
        // Touches all pages now, so that page faults aren't measured.
        copies.iter().for_each(|copy| copy.time.store(PENDING, Ordering::Relaxed));
        Self { lines: lines(len), clock: Apart::default(), copies, each }
    }

    pub(crate) fn writer(&self, core: usize) -> Writer {
        let first = 1 + core * self.each;
        Writer { now: 0, first, next: first, elements: Vec::new() }
    }

    pub(crate) fn begin(&self, writer: &mut Writer) {
        writer.now = self.clock.0.load(Ordering::Acquire);
        writer.first = writer.next;
        writer.elements.clear();
    }

    /// The newest version at the start of the transaction, or its own.
    pub(crate) fn read(&self, writer: &Writer, at: usize) -> u64 {
        let mut copy = self.lines[at].lock.load(Ordering::Acquire) as usize;
        loop {
            let Copy { time, value, older } = &self.copies[copy];
            if copy == 0 {
                return self.lines[at].value.load(Ordering::Relaxed);
            }
            let mut made = time.load(Ordering::Acquire);
            while made == COMMITTING {
                std::hint::spin_loop();
                made = time.load(Ordering::Acquire);
            }
            if (writer.first..writer.next).contains(&copy) || made <= writer.now {
                return value.load(Ordering::Relaxed);
            }
            copy = older.load(Ordering::Relaxed) as usize;
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer, at: usize, number: u64) -> Result<(), Failed> {
        let head = &self.lines[at].lock;
        let seen = head.load(Ordering::Acquire);
        if (writer.first..writer.next).contains(&(seen as usize)) {
            self.copies[seen as usize].value.store(number, Ordering::Relaxed);
            return Ok(());
        }
        // A version that is newer than this transaction, or not committed yet, is a conflict.
        if seen != 0 && self.copies[seen as usize].time.load(Ordering::Acquire) > writer.now {
            return Err(Failed);
        }
        let copy = &self.copies[writer.next];
        copy.value.store(number, Ordering::Relaxed);
        copy.older.store(seen, Ordering::Relaxed);
        head.compare_exchange(seen, writer.next as u64, Ordering::AcqRel, Ordering::Relaxed).map_err(|_| Failed)?;
        writer.elements.push(at);
        writer.next += 1;
        Ok(())
    }

    pub(crate) fn commit(&self, writer: &Writer) {
        if writer.first == writer.next {
            return;
        }
        // A transaction that begins after this time finds pending copies, and waits for their commit times.
        let copies = &self.copies[writer.first..writer.next];
        copies.iter().for_each(|copy| copy.time.store(COMMITTING, Ordering::Release));
        let time = self.clock.0.fetch_add(1, Ordering::AcqRel) + 1;
        copies.iter().for_each(|copy| copy.time.store(time, Ordering::Release));
    }

    /// Removes the copies, newest first.
    pub(crate) fn abort(&self, writer: &mut Writer) {
        for (at, copy) in writer.elements.drain(..).rev().zip((writer.first..writer.next).rev()) {
            let older = self.copies[copy].older.load(Ordering::Relaxed);
            self.lines[at].lock.store(older, Ordering::Release);
        }
        // Other cores may still read them, so they are not reused.
        writer.first = writer.next;
    }

    pub(crate) fn sum(&self) -> u64 {
        let newest = |line: &Line| match line.lock.load(Ordering::Relaxed) as usize {
            0 => line.value.load(Ordering::Relaxed),
            copy => self.copies[copy].value.load(Ordering::Relaxed),
        };
        self.lines.iter().map(newest).sum()
    }
}
