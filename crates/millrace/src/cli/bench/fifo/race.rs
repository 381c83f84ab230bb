//! A run of one queue: a thread at each end, each on a processor of its own.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use lab::Work;

use crate::cli::failure::Failed;

/// An item of a queue, made of its number.
pub(super) trait Item: Copy + Send + Sync + Default + 'static {
    /// A place in memory that two threads share.
    type Place: Default + Send + Sync;

    fn new(number: u64) -> Self;
    /// The number, calculated from all bytes.
    fn number(self) -> u64;
    /// Writes the item to a place; whoever loads it sees what was written before.
    fn store(self, place: &Self::Place);
    /// Reads the item of a place; `None` if the place was emptied last.
    fn load(place: &Self::Place) -> Option<Self>;
    /// Marks the place as empty.
    fn empty(place: &Self::Place);
}

impl Item for u64 {
    type Place = AtomicU64;

    fn new(number: u64) -> Self {
        number + 1
    }

    #[inline(always)]
    fn number(self) -> u64 {
        self - 1
    }

    #[inline(always)]
    fn store(self, place: &AtomicU64) {
        // ORDERING: Release pairs with the Acquire in `load`.
        place.store(self, Ordering::Release);
    }

    #[inline(always)]
    fn load(place: &AtomicU64) -> Option<Self> {
        // ORDERING: Acquire pairs with the Release in `store` and in `empty`.
        Some(place.load(Ordering::Acquire)).filter(|item| *item != 0)
    }

    #[inline(always)]
    fn empty(place: &AtomicU64) {
        // ORDERING: Release pairs with the Acquire in `load`.
        place.store(0, Ordering::Release);
    }
}

impl Item for [u64; 2] {
    type Place = [AtomicU64; 2];

    fn new(number: u64) -> Self {
        [number + 1, 2 * number + 1]
    }

    #[inline(always)]
    fn number(self) -> u64 {
        self[1].wrapping_sub(self[0])
    }

    #[inline(always)]
    fn store(self, place: &[AtomicU64; 2]) {
        // ORDERING: Relaxed. The word that says that the place is filled follows.
        place[1].store(self[1], Ordering::Relaxed);
        self[0].store(&place[0]);
    }

    #[inline(always)]
    fn load(place: &[AtomicU64; 2]) -> Option<Self> {
        // ORDERING: Relaxed, behind the Acquire of the first word.
        u64::load(&place[0]).map(|first| [first, place[1].load(Ordering::Relaxed)])
    }

    #[inline(always)]
    fn empty(place: &[AtomicU64; 2]) {
        u64::empty(&place[0]);
    }
}

/// The end of a queue that pushes.
pub(super) trait Pushes: Send {
    /// Pushes items with the numbers from `next` on, fewer than up to `end`. Returns how many; 0 if the queue is full.
    fn push(&mut self, next: u64, end: u64) -> u64;
}

/// The end of a queue that pops.
pub(super) trait Pops: Send {
    /// Takes items and passes their numbers. Returns how many; 0 if the queue is empty.
    fn pop(&mut self, each: impl FnMut(u64)) -> u64;
}

/// What is timed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Race {
    /// The processors of the producer and of the consumer.
    pub(super) cpus: [usize; 2],
    /// Number of items that are timed. An eighth as many come before, as a warm-up.
    pub(super) items: u64,
    /// What the consumer does for each item.
    pub(super) work: Work,
}

impl Race {
    /// Passes the items through a queue. Returns nanoseconds an item.
    pub(super) fn run(&self, queue: &str, mut producer: impl Pushes, mut consumer: impl Pops) -> Result<f64, Failed> {
        let warm_up = self.items / 8;
        let end = warm_up + self.items;
        let together = &Together::default();
        let [producing, consuming] = self.cpus;
        let (is_pinned, outcome) = thread::scope(|scope| {
            let first = scope.spawn(move || {
                let is_pinned = engine::pin(producing);
                together.wait();
                let mut next = 0;
                while next < end {
                    match producer.push(next, end) {
                        0 => spin_loop(),
                        pushed => next += pushed,
                    }
                }
                // What is collected in it leaves with it.
                drop(producer);
                is_pinned
            });
            let second = scope.spawn(move || {
                let is_pinned = engine::pin(consuming);
                together.wait();
                (
                    is_pinned,
                    if self.work.is_none() {
                        consume(&mut consumer, warm_up, end, |number, _| number)
                    } else {
                        consume(&mut consumer, warm_up, end, |number, value| self.work.run(value).wrapping_add(number))
                    },
                )
            });
            let (second_is_pinned, outcome) = second.join().expect("the consumer doesn't panic");
            (first.join().expect("the producer doesn't panic") && second_is_pinned, outcome)
        });
        if !is_pinned {
            return Err(Failed::usage(format_args!(
                "a thread can't be kept on one of the cores {producing} and {consuming}"
            )));
        }
        outcome.ok_or_else(|| {
            Failed::Outcome(anyhow::anyhow!("{queue}: the items that came out aren't those that went in"))
        })
    }
}

/// Takes items until `end` of them have come. Returns nanoseconds an item, behind the warm-up; `None` if the sum of their numbers is wrong.
fn consume(consumer: &mut impl Pops, warm_up: u64, end: u64, work: impl Fn(u64, u64) -> u64) -> Option<f64> {
    let (mut sum, mut value, mut taken) = (0_u64, 0_u64, 0);
    let mut until = |until: u64, taken: &mut u64| {
        while *taken < until {
            let popped = consumer.pop(|number| {
                sum = sum.wrapping_add(number);
                value = work(number, value);
            });
            match popped {
                0 => spin_loop(),
                popped => *taken += popped,
            }
        }
    };
    until(warm_up, &mut taken);
    let (start, first) = (Instant::now(), taken);
    until(end, &mut taken);
    let elapsed = start.elapsed();
    black_box(value);
    let expected = (u128::from(end) * u128::from(end - 1) / 2) as u64;
    (sum == expected && taken == end).then(|| elapsed.as_secs_f64() * 1e9 / (taken - first).max(1) as f64)
}

/// Number of round trips of a reading.
const TRIPS: u64 = 2_000;

/// Measures how long a cache line takes to another processor and back, in nanoseconds.
pub(super) fn round_trip(cpus: [usize; 2]) -> f64 {
    let (together, line) = (&Together::default(), &AtomicU64::new(0));
    let wait_for = |value| {
        // ORDERING: Acquire pairs with the Release of the other thread.
        while line.load(Ordering::Acquire) != value {
            spin_loop();
        }
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            engine::pin(cpus[1]);
            together.wait();
            for trip in 0..TRIPS {
                wait_for(2 * trip + 1);
                // ORDERING: Release pairs with the Acquire of the other thread.
                line.store(2 * trip + 2, Ordering::Release);
            }
        });
        let there_and_back = scope.spawn(move || {
            engine::pin(cpus[0]);
            together.wait();
            let start = Instant::now();
            for trip in 0..TRIPS {
                // ORDERING: as above.
                line.store(2 * trip + 1, Ordering::Release);
                wait_for(2 * trip + 2);
            }
            start.elapsed().as_secs_f64() * 1e9 / TRIPS as f64
        });
        there_and_back.join().expect("a thread that counts doesn't panic")
    })
}

/// Where two threads wait for each other, without sleeping.
#[derive(Default)]
struct Together(AtomicU32);

impl Together {
    fn wait(&self) {
        // ORDERING: Relaxed. Nothing is handed over here.
        self.0.fetch_add(1, Ordering::Relaxed);
        while self.0.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
    }
}
