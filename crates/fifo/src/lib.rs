//! A bounded lock-free queue between one producer and one consumer, which hands over one cache line at a time (Wang et al., "Practice of
//! Parallelizing Network Applications on Multi-core Architectures", section 3.1, with its timer for lines that are not full).
//!
//! The hot path:
//! 1. The producer collects items in a buffer of its own; when that holds a line's worth, it copies them into the next line and stores
//!    their number in that line's header.
//! 2. The consumer looks at the header of its next line: 0 means empty; otherwise it reads that many items and stores 0.
//! 3. No other word is shared, so a line changes cores once when it is filled and once when it is used again, whatever number of items it has.
//!
//! ```
//! use millrace_fifo::Fifo;
//!
//! let (mut producer, mut consumer) = Fifo::with_capacity(64);
//! assert_eq!(producer.push(7_u64), Ok(()));
//! assert_eq!(consumer.pop(), None, "the line is not full");
//! producer.flush();
//! assert_eq!(consumer.pop(), Some(7));
//! ```
#![no_std]

extern crate alloc;

mod consumer;
mod line;
mod producer;
mod sync;

use alloc::boxed::Box;

pub use consumer::{Chunk, Consumer};
pub use producer::Producer;
#[cfg(loom)]
pub use sync::Fault;

use line::{Items, Line};
use sync::{Arc, AtomicBool};

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// Time after which a partial line leaves unless another is given: 50 microseconds.
pub const DEFAULT_TIMEOUT_NS: u64 = 50_000;

/// Minimum number of lines, so that the producer fills one while the consumer reads another.
const LINES_MIN: usize = 2;

/// The lines, and which end is gone: shared by both ends.
pub struct Fifo<T: Copy + Send> {
    lines: Box<[Line<T>]>,
    producer_gone: AtomicBool,
    consumer_gone: AtomicBool,
}

// SAFETY: the lines are reached only through `Producer` and `Consumer`, of which there is one each. A line's header says which of the two
// owns its items, and ownership moves with a release and an acquire.
unsafe impl<T: Copy + Send> Sync for Fifo<T> {}

impl<T: Copy + Send> Fifo<T> {
    /// Number of items in a full line. An item that fills more than a cache line has a line of several cache lines to itself.
    pub const LINE_ITEMS: usize = Items::<T>::COUNT;

    /// The two ends of a queue with room for at least `items` items, when lines are full. A partial line leaves after
    /// [`DEFAULT_TIMEOUT_NS`].
    ///
    /// # Panics
    /// If the memory overflows the address space.
    #[must_use]
    pub fn with_capacity(items: usize) -> (Producer<T>, Consumer<T>) {
        Self::with_timeout(items, DEFAULT_TIMEOUT_NS)
    }

    /// Creates a queue with another timeout, in nanoseconds. With 0 a partial line leaves at the next [`Producer::tick`]; with [`u64::MAX`] never.
    ///
    /// # Panics
    /// If the memory overflows the address space.
    #[must_use]
    pub fn with_timeout(items: usize, timeout_ns: u64) -> (Producer<T>, Consumer<T>) {
        let lines = items.div_ceil(Self::LINE_ITEMS).max(LINES_MIN);
        let fifo = Arc::new(Self {
            lines: (0..lines).map(|_| Line::free()).collect(),
            producer_gone: AtomicBool::new(false),
            consumer_gone: AtomicBool::new(false),
        });
        (Producer::new(fifo.clone(), timeout_ns), Consumer::new(fifo))
    }

    /// Number of items that fit if all lines are full.
    fn capacity(&self) -> usize {
        self.lines.len() * Self::LINE_ITEMS
    }

    /// Number of the line after this one.
    #[inline(always)]
    fn after(&self, line: usize) -> usize {
        if line + 1 == self.lines.len() { 0 } else { line + 1 }
    }
}
