//! Objects: words under a lock, on lines of their own.

use alloc::boxed::Box;

use locality::{pages, prefetch};
use packet::Words;

use super::log::{Access, Lock, Tx};
use super::sync::AtomicU64;
use super::{Conflict, sync};

/// Words that fit on a line beside their lock.
pub(crate) const INLINE_WORDS: usize = 6;

/// A line: a lock and the first of its words, so that small objects cost one miss and share lines with nobody.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) lock: Lock,
    pub(crate) words: [AtomicU64; INLINE_WORDS],
}

/// As many zeros.
pub(crate) fn zeros(count: usize) -> Box<[AtomicU64]> {
    pages::boxed((0..count).map(|_| AtomicU64::new(0)))
}

/// Objects of some number of words each.
pub(crate) struct Objects {
    lines: Box<[Line]>,
    /// Words that don't fit on the lines.
    overflow: Box<[AtomicU64]>,
    overflow_each: usize,
}

impl Objects {
    pub(crate) fn new(count: usize, words: usize) -> Self {
        let overflow_each = words.saturating_sub(INLINE_WORDS);
        Self {
            lines: pages::boxed((0..count).map(|_| Line::default())),
            overflow: zeros(count * overflow_each),
            overflow_each,
        }
    }

    /// What so many take.
    pub(crate) const fn bytes(count: usize, words: usize) -> u64 {
        count as u64 * (size_of::<Line>() + words.saturating_sub(INLINE_WORDS) * size_of::<AtomicU64>()) as u64
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    #[inline(always)]
    pub(crate) fn lock(&self, object: usize) -> &Lock {
        &self.lines[object].lock
    }

    #[inline(always)]
    pub(crate) fn word(&self, object: usize, at: usize) -> &AtomicU64 {
        match at.checked_sub(INLINE_WORDS) {
            None => &self.lines[object].words[at],
            Some(at) => &self.overflow[object * self.overflow_each + at],
        }
    }

    /// The value whose words begin at `from`, as they are now.
    #[inline(always)]
    pub(crate) fn peek<T: Words>(&self, object: usize, from: usize) -> T::Array {
        let mut words = T::ZEROS;
        for (at, word) in words.as_mut().iter_mut().enumerate() {
            *word = Tx::get(self.word(object, from + at));
        }
        words
    }

    /// Reads an object that is nothing but a value.
    #[inline(always)]
    pub(crate) fn load<'a, T: Words>(&'a self, tx: &mut Tx<'a>, object: usize, access: Access) -> Result<T, Conflict> {
        tx.load(
            self.lock(object),
            access,
            #[inline(always)]
            move |_| self.peek::<T>(object, 0),
        )
        .map(T::from_words)
    }

    /// Writes a value into an object that is locked.
    #[inline(always)]
    pub(crate) fn set<'a, T: Words>(&'a self, tx: &mut Tx<'a>, object: usize, from: usize, value: &T) {
        for (at, word) in value.to_words().as_ref().iter().enumerate() {
            tx.set(self.word(object, from + at), *word);
        }
    }

    /// Writes a value before anyone else looks.
    pub(crate) fn init<T: Words>(&self, object: usize, from: usize, value: &T) {
        for (at, word) in value.to_words().as_ref().iter().enumerate() {
            // ORDERING: Relaxed. The memory is handed to other threads behind this.
            self.word(object, from + at).store(*word, sync::Ordering::Relaxed);
        }
    }

    /// Brings near where the object begins.
    #[inline(always)]
    pub(crate) fn prefetch(&self, object: usize) {
        if let Some(line) = self.lines.get(object) {
            prefetch::start(line);
        }
    }
}
