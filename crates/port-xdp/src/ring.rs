//! The rings that a socket shares with the kernel: one side produces entries, the other consumes them.
//!
//! Indexes count up without end and wrap at 2^32; an entry's place is its index modulo the length. Each side keeps a copy of the other's
//! index and looks again only when the copy leaves it nothing to do. Layout: `linux/if_xdp.h`.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use interface::Area;

/// Where the parts of a ring lie in its mapping, as the kernel tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) entries: usize,
    /// Number of entries, a power of two.
    pub(crate) len: u32,
}

/// An entry of a receive or transmit ring: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) options: u32,
}

struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    len: u32,
    /// Keeps the memory mapped.
    _area: Arc<Area>,
}

// SAFETY: the pointers lead into the mapping that it holds. The indexes are atomics, and an entry is written by the producer alone until
// it is published, and read by the consumer alone until it is released.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn new(area: Arc<Area>, layout: Layout) -> Self {
        assert!(layout.len.is_power_of_two(), "the kernel takes powers of two");
        Self {
            producer: area.at(layout.producer, 1),
            consumer: area.at(layout.consumer, 1),
            flags: area.at(layout.flags, 1),
            entries: area.at(layout.entries, layout.len as usize),
            len: layout.len,
            _area: area,
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: it lies in the mapping (`new`), and both sides access it as an atomic.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        let flags = unsafe { self.flags.as_ref() };
        // ORDERING: Relaxed. The kernel sets the flag before it looks at the ring a last time, and the publishing side has a full barrier
        // between its store and this load (`Producer::publish`).
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the index is taken modulo the length, and all entries lie in the mapping.
        unsafe { self.entries.add((index & (self.len - 1)) as usize) }
    }
}

/// The side of a ring that puts entries in: fill and transmit rings.
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// The next entry to write.
    next: u32,
    /// How far entries are published.
    published: u32,
    /// The consumer's index when it was last looked at.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub(crate) fn new(area: Arc<Area>, layout: Layout) -> Self {
        let ring = Ring::new(area, layout);
        // ORDERING: Relaxed. Nobody has used the ring yet.
        let (next, consumed) = (ring.producer().load(Ordering::Relaxed), ring.consumer().load(Ordering::Relaxed));
        Self { ring, next, published: next, consumed }
    }

    /// Entries that can be written. Looks at the consumer's index if there are fewer than `wanted`.
    #[inline]
    pub(crate) fn room(&mut self, wanted: u32) -> u32 {
        let free = |consumed: u32| self.ring.len.saturating_sub(self.next.wrapping_sub(consumed));
        if free(self.consumed) < wanted {
            // ORDERING: Acquire pairs with the kernel's release of entries: it has read what is overwritten next.
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
        }
        self.ring.len.saturating_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Writes an entry; nobody sees it before [`publish`](Self::publish).
    ///
    /// # Panics
    /// There is no [room](Self::room).
    #[inline]
    pub(crate) fn push(&mut self, entry: T) {
        assert!(self.next.wrapping_sub(self.consumed) < self.ring.len, "who pushes has looked for room");
        // SAFETY: the entry lies in the mapping, and the consumer doesn't read it: it has released it, and it isn't published yet.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Shows all written entries to the consumer.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.next {
            // ORDERING: SeqCst, at least Release, pairs with the kernel's acquire of entries. The full barrier keeps the load of the
            // wake-up flag behind it, or both sides could miss each other.
            self.ring.producer().swap(self.next, Ordering::SeqCst);
            self.published = self.next;
        }
    }

    /// True if the consumer needs a system call to go on.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    /// Published entries that the consumer has not taken.
    pub(crate) fn waiting(&mut self) -> u32 {
        // ORDERING: Acquire, as in `room`.
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.published.wrapping_sub(self.consumed)
    }
}

/// The side of a ring that takes entries out: receive and completion rings.
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// The next entry to read.
    next: u32,
    /// How far entries were given back.
    released: u32,
    /// The producer's index when it was last looked at.
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    pub(crate) fn new(area: Arc<Area>, layout: Layout) -> Self {
        let ring = Ring::new(area, layout);
        // ORDERING: Relaxed. Nobody has used the ring yet.
        let next = ring.consumer().load(Ordering::Relaxed);
        Self { ring, next, released: next, produced: next }
    }

    /// Entries that can be read, at most the ring's length. Looks at the producer's index if there are none.
    #[inline]
    pub(crate) fn available(&mut self) -> u32 {
        if self.produced == self.next {
            // ORDERING: Acquire pairs with the kernel's publishing: entries and packets are written.
            self.produced = self.ring.producer().load(Ordering::Acquire);
        }
        self.produced.wrapping_sub(self.next).min(self.ring.len)
    }

    /// Entries that nobody has read, at most the ring's length. Always looks at the producer's index.
    pub(crate) fn unread(&mut self) -> u32 {
        // ORDERING: Acquire, as in `available`.
        self.produced = self.ring.producer().load(Ordering::Acquire);
        self.available()
    }

    /// Reads the next entry, if there is one.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.available() == 0 {
            return None;
        }
        // SAFETY: the entry lies in the mapping, and was published; the producer doesn't write it before it is released.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the entries that were read back to the producer.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.released != self.next {
            // ORDERING: Release pairs with the kernel's look at free entries: they have been read.
            self.ring.consumer().store(self.next, Ordering::Release);
            self.released = self.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LAYOUT: Layout = Layout { producer: 0, consumer: 64, flags: 128, entries: 192, len: 8 };

    fn ring(start: u32) -> (Producer<Descriptor>, Consumer<Descriptor>, Arc<Area>) {
        let area = Arc::new(Area::anonymous(4096).expect("a page"));
        for index in [LAYOUT.producer, LAYOUT.consumer] {
            // SAFETY: it lies in the area, and nobody else uses it yet.
            unsafe { area.at::<u32>(index, 1).write(start) };
        }
        (Producer::new(Arc::clone(&area), LAYOUT), Consumer::new(Arc::clone(&area), LAYOUT), area)
    }

    fn numbered(number: u64) -> Descriptor {
        Descriptor { address: number, len: number as u32, options: 1 }
    }

    #[test]
    fn entries_come_in_order_and_are_seen_once_published() {
        // The indexes wrap within the test.
        let (mut producer, mut consumer, _) = ring(u32::MAX - 2);
        assert_eq!(producer.room(1), 8);
        (0..8).for_each(|number| producer.push(numbered(number)));
        assert_eq!((producer.room(1), consumer.available()), (0, 0));
        producer.publish();
        assert_eq!((consumer.available(), producer.waiting()), (8, 8));
        assert_eq!((0..5).map(|_| consumer.pop().expect("it is there").address).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(producer.room(1), 0, "entries that were read are not yet given back");
        consumer.release();
        assert_eq!((producer.room(1), producer.waiting()), (5, 3));
        producer.push(numbered(8));
        producer.publish();
        assert_eq!((consumer.available(), consumer.unread()), (3, 4), "one came since the last look");
        assert_eq!((0..4).map(|_| consumer.pop().expect("it is there").address).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert_eq!(consumer.pop(), None);
    }

    #[test]
    fn two_threads_pass_every_entry_once() {
        let (mut producer, mut consumer, _) = ring(u32::MAX - 1000);
        let entries = 5000;
        let sender = thread::spawn(move || {
            let mut sent = 0;
            while sent < entries {
                let room = u64::from(producer.room(3)).min(entries - sent);
                (sent..sent + room).for_each(|number| producer.push(numbered(number)));
                producer.publish();
                sent += room;
                thread::yield_now();
            }
        });
        let mut expected = 0;
        while expected < entries {
            while let Some(entry) = consumer.pop() {
                assert_eq!(entry, numbered(expected));
                expected += 1;
            }
            consumer.release();
            thread::yield_now();
        }
        sender.join().expect("it sent all");
    }

    #[test]
    #[should_panic(expected = "looked for room")]
    fn a_full_ring_takes_nothing() {
        let (mut producer, _, _area) = ring(0);
        (0..9).for_each(|number| producer.push(numbered(number)));
    }

    #[test]
    fn a_producer_that_is_out_of_its_mind_gives_no_more_than_the_ring_holds() {
        let (_, mut consumer, area) = ring(0);
        // SAFETY: it lies in the area; the test has one thread.
        unsafe { area.at::<u32>(LAYOUT.producer, 1).write(1 << 20) };
        assert_eq!(consumer.available(), 8);
    }
}
