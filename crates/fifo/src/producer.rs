//! The end that pushes.

use core::mem::MaybeUninit;
use core::slice;

use crate::Fifo;
use crate::line::Items;
use crate::sync::{Arc, Ordering, broken};

/// The end of a [`Fifo`] that pushes. It collects items in a buffer of its own and hands them over a line at a time. Dropping it hands over
/// what it has collected.
pub struct Producer<T: Copy + Send> {
    fifo: Arc<Fifo<T>>,
    /// Items that are not handed over. There are some only while `line` is free, so handing over can't fail.
    buffer: Items<T>,
    /// Number of items in the buffer: always less than a line's worth between calls.
    collected: usize,
    /// Number of the line to fill next.
    line: usize,
    now_ns: u64,
    /// The time when the first item of the buffer was pushed.
    since_ns: u64,
    timeout_ns: u64,
}

impl<T: Copy + Send> Producer<T> {
    pub(crate) const fn new(fifo: Arc<Fifo<T>>, timeout_ns: u64) -> Self {
        Self { fifo, buffer: Items::new(), collected: 0, line: 0, now_ns: 0, since_ns: 0, timeout_ns }
    }

    /// Appends an item. It reaches the consumer when its line is full, when the line times out ([`tick`](Self::tick)), at the next
    /// [`flush`](Self::flush), or when the producer is dropped.
    ///
    /// # Errors
    /// The queue is full: the item comes back.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.collected == 0 {
            if !self.has_line() {
                return Err(item);
            }
            self.since_ns = self.now_ns;
        }
        self.buffer.places_mut()[self.collected] = MaybeUninit::new(item);
        self.collected += 1;
        if self.collected == Items::<T>::COUNT {
            self.hand_over();
        }
        Ok(())
    }

    /// Appends items in order while there is room. Returns how many.
    #[inline]
    pub fn push_slice(&mut self, items: &[T]) -> usize {
        let mut pushed = 0;
        while pushed < items.len() && (self.collected > 0 || self.has_line()) {
            let rest = &items[pushed..];
            let count = rest.len().min(Items::<T>::COUNT - self.collected);
            // SAFETY: the same memory, seen as what may be initialised.
            let next = unsafe { slice::from_raw_parts(rest.as_ptr().cast::<MaybeUninit<T>>(), count) };
            if count == Items::<T>::COUNT {
                // SAFETY: the line was seen to be free, and the items are initialised, as many as fit.
                unsafe { self.fifo.lines[self.line].fill_whole(next) };
                self.line = self.fifo.after(self.line);
            } else {
                if self.collected == 0 {
                    self.since_ns = self.now_ns;
                }
                self.buffer.places_mut()[self.collected..][..count].copy_from_slice(next);
                self.collected += count;
                if self.collected == Items::<T>::COUNT {
                    self.hand_over();
                }
            }
            pushed += count;
        }
        pushed
    }

    /// Hands over the items that were collected, even if they don't fill a line.
    #[inline]
    pub fn flush(&mut self) {
        if self.collected > 0 {
            self.hand_over();
        }
    }

    /// Tells the time in nanoseconds, by any clock: packet time, or one that the caller polls. A partial line leaves once its oldest item is
    /// as old as the timeout. An item's age counts from the last tick before it was pushed, so a line never leaves late by the ticks. If the
    /// time steps back, ages count from there.
    #[inline]
    pub fn tick(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.since_ns = self.since_ns.min(now_ns);
        if self.collected > 0 && now_ns - self.since_ns >= self.timeout_ns {
            self.hand_over();
        }
    }

    /// True if the consumer was dropped, so nobody receives what is pushed.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        // ORDERING: Relaxed. Nothing is read on the strength of it.
        self.fifo.consumer_gone.load(Ordering::Relaxed)
    }

    /// Number of items that fit if all lines are full. Each partial line that leaves takes the room of a full one.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.fifo.capacity()
    }

    /// True if the next line is free.
    #[inline(always)]
    fn has_line(&self) -> bool {
        self.fifo.lines[self.line].filled() == 0
    }

    /// Hands over what was collected: at least one item.
    #[inline(always)]
    fn hand_over(&mut self) {
        // SAFETY: the line was free when the first item was collected, and only this producer fills it. So many items were written.
        unsafe { self.fifo.lines[self.line].fill(&self.buffer.places()[..self.collected]) };
        self.line = self.fifo.after(self.line);
        self.collected = 0;
    }
}

impl<T: Copy + Send> Drop for Producer<T> {
    fn drop(&mut self) {
        if !broken!(EarlyGone) {
            self.flush();
        }
        // ORDERING: Release pairs with the Acquire in `Consumer::is_finished`: who sees this sees every line that was handed over.
        let order = if broken!(UnorderedGone) { Ordering::Relaxed } else { Ordering::Release };
        self.fifo.producer_gone.store(true, order);
        if broken!(EarlyGone) {
            self.flush();
        }
    }
}
