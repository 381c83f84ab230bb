//! The end that pops.

use core::ops::Deref;

use locality::prefetch;

use crate::Fifo;
use crate::sync::{Arc, Ordering, broken};

/// Number of lines to prefetch ahead of the one that is read, so that their ways from the producer's core overlap (docs/lab/fifo.md).
const AHEAD: usize = 8;

/// The end of a [`Fifo`] that pops.
pub struct Consumer<T: Copy + Send> {
    fifo: Arc<Fifo<T>>,
    /// Number of the line to read.
    line: usize,
    /// Number of its items that are popped.
    popped: usize,
    /// Number of its items, if it is known to be filled; else 0.
    filled: usize,
}

impl<T: Copy + Send> Consumer<T> {
    pub(crate) const fn new(fifo: Arc<Fifo<T>>) -> Self {
        Self { fifo, line: 0, popped: 0, filled: 0 }
    }

    /// Takes the oldest item. `None` if no line with items was handed over.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if !self.has_items() {
            return None;
        }
        let item = *self.left().first()?;
        self.popped += 1;
        if self.popped == self.filled {
            self.release();
        }
        Some(item)
    }

    /// Borrows the items of the oldest line that were not popped, at least one. Its drop takes them off the queue.
    #[inline]
    pub fn chunk(&mut self) -> Option<Chunk<'_, T>> {
        if self.has_items() { Some(Chunk { consumer: self }) } else { None }
    }

    /// True if no line with items was handed over.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.filled == 0 && self.fifo.lines[self.line].filled() == 0
    }

    /// True if at least so many lines with items were handed over. It looks at the last of them alone: a consumer that waits for several
    /// lines leaves those to the producer that it is just filling, and takes fewer turns with it.
    #[must_use]
    #[inline]
    pub fn has_lines(&self, lines: usize) -> bool {
        let all = &*self.fifo.lines;
        let Some(ahead) = lines.checked_sub(1) else { return true };
        if ahead >= all.len() {
            return false;
        }
        // Lines are handed over in order, so those before it have items, too.
        let last = self.line + ahead;
        let last = if last >= all.len() { last - all.len() } else { last };
        all[last].filled() > 0
    }

    /// True if the producer was dropped and all its items were taken, so no more will come.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        if broken!(LineFirst) && !self.is_empty() {
            return false;
        }
        // ORDERING: Acquire pairs with the Release of the producer's drop. The line is looked at afterwards, so none is missed.
        let is_gone = self.fifo.producer_gone.load(Ordering::Acquire);
        is_gone && (broken!(LineFirst) || self.is_empty())
    }

    /// Number of items that fit if all lines are full.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.fifo.capacity()
    }

    /// True if the line has items that were not popped.
    #[inline(always)]
    fn has_items(&mut self) -> bool {
        if self.filled == 0 {
            self.filled = self.fifo.lines[self.line].filled();
            if self.filled > 0 {
                self.prefetch();
            }
        }
        self.filled > 0
    }

    /// The items of the line that were not popped.
    #[inline(always)]
    fn left(&self) -> &[T] {
        if self.filled == 0 {
            return &[];
        }
        // SAFETY: this is the consumer, and the header said so many items. Only `release` hands the line back, and it borrows `self` anew.
        let items = unsafe { self.fifo.lines[self.line].items(self.filled) };
        &items[self.popped..]
    }

    /// Prefetches the line that will be read [`AHEAD`] lines later; none in a queue that is shorter.
    #[inline(always)]
    fn prefetch(&self) {
        let lines = &*self.fifo.lines;
        let ahead = self.line + AHEAD;
        let ahead = if ahead >= lines.len() { ahead - lines.len() } else { ahead };
        if let Some(line) = lines.get(ahead) {
            prefetch::closest((&raw const *line).cast());
        }
    }

    /// Hands the line back to the producer.
    #[inline(always)]
    fn release(&mut self) {
        self.fifo.lines[self.line].release();
        self.line = self.fifo.after(self.line);
        (self.popped, self.filled) = (0, 0);
    }
}

impl<T: Copy + Send> Drop for Consumer<T> {
    fn drop(&mut self) {
        // ORDERING: Relaxed, as in `Producer::is_abandoned`.
        self.fifo.consumer_gone.store(true, Ordering::Relaxed);
    }
}

/// Items of one line, borrowed from [`Consumer::chunk`]. The line goes back to the producer when the chunk is dropped.
pub struct Chunk<'a, T: Copy + Send> {
    consumer: &'a mut Consumer<T>,
}

impl<T: Copy + Send> Deref for Chunk<'_, T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        self.consumer.left()
    }
}

impl<T: Copy + Send> Drop for Chunk<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.consumer.release();
    }
}
