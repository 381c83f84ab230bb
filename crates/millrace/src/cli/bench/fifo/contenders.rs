//! The queues, and how each is driven.

use std::array::from_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use crossbeam_queue::ArrayQueue;
use ringbuf::HeapRb;
use ringbuf::traits::{Consumer as _, Producer as _, Split};

use super::SLOTS;
use super::peers::{FastForward, Lamport};
use super::race::{Item, Pops, Pushes, Race};
use crate::cli::failure::Failed;

/// Number of items of a chunk or a slice.
const CHUNK: usize = 32;

/// A queue, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    FifoLines,
    Fifo,
    RtrbChunks,
    Rtrb,
    Ringbuf,
    FastForward,
    Lamport,
    SyncChannel,
    Crossbeam,
}

impl Contender {
    pub(super) const ALL: [Self; 9] = [
        Self::FifoLines,
        Self::Fifo,
        Self::RtrbChunks,
        Self::Rtrb,
        Self::Ringbuf,
        Self::FastForward,
        Self::Lamport,
        Self::SyncChannel,
        Self::Crossbeam,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::FifoLines => "millrace-fifo, slices and lines",
            Self::Fifo => "millrace-fifo, push and pop",
            Self::RtrbChunks => "rtrb, chunks of 32",
            Self::Rtrb => "rtrb, push and pop",
            Self::Ringbuf => "ringbuf, push and pop",
            Self::FastForward => "FastForward",
            Self::Lamport => "Lamport",
            Self::SyncChannel => "std sync_channel",
            Self::Crossbeam => "crossbeam ArrayQueue",
        }
    }

    pub(super) const fn is_ours(self) -> bool {
        matches!(self, Self::FifoLines | Self::Fifo)
    }
}

/// Times a new queue of this kind. Returns nanoseconds an item.
pub(super) fn run<T: Item>(queue: Contender, race: &Race) -> Result<f64, Failed> {
    let name = queue.name();
    match queue {
        Contender::FifoLines => {
            let (producer, consumer) = fifo::Fifo::<T>::with_capacity(SLOTS);
            race.run(name, Slices(producer), Lines { end: consumer, left: 0, waited: 0 })
        }
        Contender::Fifo => {
            let (mut producer, mut consumer) = fifo::Fifo::<T>::with_capacity(SLOTS);
            race.run(name, Push::new(move |item| producer.push(item).is_ok()), Pop(move || consumer.pop()))
        }
        Contender::RtrbChunks => {
            let (producer, consumer) = rtrb::RingBuffer::<T>::new(SLOTS);
            race.run(name, Chunks(producer), Chunks(consumer))
        }
        Contender::Rtrb => {
            let (mut producer, mut consumer) = rtrb::RingBuffer::<T>::new(SLOTS);
            race.run(name, Push::new(move |item| producer.push(item).is_ok()), Pop(move || consumer.pop().ok()))
        }
        Contender::Ringbuf => {
            let (mut producer, mut consumer) = HeapRb::<T>::new(SLOTS).split();
            race.run(name, Push::new(move |item| producer.try_push(item).is_ok()), Pop(move || consumer.try_pop()))
        }
        Contender::FastForward => {
            let [mut producer, mut consumer] = FastForward::<T>::new(SLOTS);
            race.run(name, Push::new(move |item| producer.push(item)), Pop(move || consumer.pop()))
        }
        Contender::Lamport => {
            let queue = Lamport::<T>::new(SLOTS);
            let (producer, consumer) = (queue.clone(), queue);
            race.run(name, Push::new(move |item| producer.push(item)), Pop(move || consumer.pop()))
        }
        Contender::SyncChannel => {
            let (producer, consumer) = sync_channel::<T>(SLOTS);
            race.run(
                name,
                Push::new(move |item| producer.try_send(item).is_ok()),
                Pop(move || consumer.try_recv().ok()),
            )
        }
        Contender::Crossbeam => {
            let queue = Arc::new(ArrayQueue::<T>::new(SLOTS));
            let (producer, consumer) = (queue.clone(), queue);
            race.run(name, Push::new(move |item| producer.push(item).is_ok()), Pop(move || consumer.pop()))
        }
    }
}

/// Pushes items of type `T` one at a time.
struct Push<T, F>(F, PhantomData<T>);

impl<T: Item, F: FnMut(T) -> bool + Send> Push<T, F> {
    /// By a function that returns whether there was room.
    const fn new(push: F) -> Self {
        Self(push, PhantomData)
    }
}

impl<T: Item, F: FnMut(T) -> bool + Send> Pushes for Push<T, F> {
    #[inline(always)]
    fn push(&mut self, next: u64, _: u64) -> u64 {
        u64::from((self.0)(T::new(next)))
    }
}

/// Pops one item at a time.
struct Pop<F>(F);

impl<T: Item, F: FnMut() -> Option<T> + Send> Pops for Pop<F> {
    #[inline(always)]
    fn pop(&mut self, mut each: impl FnMut(u64)) -> u64 {
        let Some(item) = (self.0)() else { return 0 };
        each(item.number());
        1
    }
}

/// Pushes slices of [`CHUNK`] items.
struct Slices<T: Item>(fifo::Producer<T>);

impl<T: Item> Pushes for Slices<T> {
    #[inline(always)]
    fn push(&mut self, next: u64, end: u64) -> u64 {
        let items: [T; CHUNK] = from_fn(|at| T::new(next + at as u64));
        let count = (end - next).min(CHUNK as u64) as usize;
        self.0.push_slice(&items[..count]) as u64
    }
}

/// Takes lines, and waits for [`LINES`] of them before it does. After some turns it takes what there is.
struct Lines<T: Item> {
    end: fifo::Consumer<T>,
    /// Number of lines to take before it waits again.
    left: usize,
    /// Number of turns that it has waited.
    waited: usize,
}

/// Number of lines that are taken together.
const LINES: usize = 8;
/// Number of turns to wait for them.
const PATIENCE: usize = 64;

impl<T: Item> Pops for Lines<T> {
    #[inline(always)]
    fn pop(&mut self, mut each: impl FnMut(u64)) -> u64 {
        if self.left == 0 {
            if self.waited < PATIENCE && !self.end.has_lines(LINES) {
                self.waited += 1;
                return 0;
            }
            (self.left, self.waited) = (LINES, 0);
        }
        let Some(line) = self.end.chunk() else {
            self.left = 0;
            return 0;
        };
        self.left -= 1;
        line.iter().for_each(|item| each(item.number()));
        line.len() as u64
    }
}

/// An end of rtrb, used in chunks of [`CHUNK`] items, or of what is left at the end.
struct Chunks<E>(E);

impl<T: Item> Pushes for Chunks<rtrb::Producer<T>> {
    #[inline(always)]
    fn push(&mut self, next: u64, end: u64) -> u64 {
        let count = (end - next).min(CHUNK as u64);
        let Ok(chunk) = self.0.write_chunk_uninit(count as usize) else { return 0 };
        chunk.fill_from_iter((next..end).map(T::new)) as u64
    }
}

impl<T: Item> Pops for Chunks<rtrb::Consumer<T>> {
    #[inline(always)]
    fn pop(&mut self, mut each: impl FnMut(u64)) -> u64 {
        // Fewer than a chunk are left when the producer has ended.
        let count = match self.0.slots() {
            CHUNK.. => CHUNK,
            left if self.0.is_abandoned() => left,
            _ => 0,
        };
        let Ok(chunk) = self.0.read_chunk(count) else { return 0 };
        let (first, second) = chunk.as_slices();
        first.iter().chain(second).for_each(|item| each(item.number()));
        chunk.commit_all();
        count as u64
    }
}
