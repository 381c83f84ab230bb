//! Objects: words under a versioned lock, on cache lines of their own.

use alloc::boxed::Box;

use locality::{pages, prefetch};
use packet::Words;

use super::log::{Access, Lock, Tx};
use super::sync::AtomicU64;
use super::{Conflict, sync};

/// How many words fit on a cache line beside the lock.
pub(crate) const INLINE_WORDS: usize = 6;

/// A cache line with a lock and an object's first words, so that a small object costs one miss and shares its line with no other.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) lock: Lock,
    pub(crate) words: [AtomicU64; INLINE_WORDS],
}

/// So many zeroed words.
pub(crate) fn zeros(count: usize) -> Box<[AtomicU64]> {
    pages::boxed((0..count).map(|_| AtomicU64::new(0)))
}

/// Objects of some number of words each.
pub(crate) struct Objects {
    lines: Box<[Line]>,
    /// The words that don't fit on the lines.
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

    /// The bytes of so many objects.
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

    /// The present words of the value that begins at word `from`.
    #[inline(always)]
    pub(crate) fn peek<T: Words>(&self, object: usize, from: usize) -> T::Array {
        let mut words = T::ZEROS;
        for (at, word) in words.as_mut().iter_mut().enumerate() {
            *word = Tx::get(self.word(object, from + at));
        }
        words
    }

    /// Reads an object that consists of one value.
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

    /// Writes a value into a locked object.
    #[inline(always)]
    pub(crate) fn set<'a, T: Words>(&'a self, tx: &mut Tx<'a>, object: usize, from: usize, value: &T) {
        for (at, word) in value.to_words().as_ref().iter().enumerate() {
            tx.set(self.word(object, from + at), *word);
        }
    }

    /// Writes a value before the memory is shared.
    pub(crate) fn init<T: Words>(&self, object: usize, from: usize, value: &T) {
        for (at, word) in value.to_words().as_ref().iter().enumerate() {
            // ORDERING: Relaxed. The memory is handed to other threads after this.
            self.word(object, from + at).store(*word, sync::Ordering::Relaxed);
        }
    }

    /// Prefetches the object's first cache line.
    #[inline(always)]
    pub(crate) fn prefetch(&self, object: usize) {
        if let Some(line) = self.lines.get(object) {
            prefetch::start(line);
        }
    }
}
