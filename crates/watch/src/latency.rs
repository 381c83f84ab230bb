//! Times from receive to transmit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use packet::Seq;
use port::{Batch, Watch};

/// Times from receive to transmit, by queue: from when a core takes a burst out of the receive ring until it puts the packets into the
/// transmit ring. The wait in the rings isn't in it. Dropped packets are not measured.
#[derive(Debug)]
pub struct Latency {
    /// One burst of so many is measured.
    every: u32,
    queues: Box<[Queue]>,
}

#[derive(Debug)]
struct Queue {
    /// Bursts until the next one that is measured.
    skip: AtomicU32,
    /// True if a measured burst is under way.
    is_due: AtomicBool,
    times: Mutex<Times>,
}

/// Times of one queue.
#[derive(Debug)]
struct Times {
    /// Bursts under way.
    came: VecDeque<Burst>,
    histogram: Histogram<u64>,
    /// The sum of all times.
    sum: Duration,
}

/// The first and the last packet of a burst, and when it came.
#[derive(Debug)]
struct Burst {
    first: Seq,
    last: Seq,
    at: Instant,
}

/// Quantiles of times, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// Number of packets.
    pub packets: u64,
    /// Half of them took at most this long.
    pub p50: Duration,
    /// 99 % of them.
    pub p99: Duration,
    /// 99.9 % of them.
    pub p999: Duration,
    /// The slowest.
    pub worst: Duration,
    /// All together.
    pub sum: Duration,
}

/// Longer times count as this long.
const LONGEST: Duration = Duration::from_secs(60);
/// Significant digits: values are within 1 %.
const DIGITS: u8 = 2;

impl Latency {
    /// Times of `queues` queues. One burst of `every` is measured.
    ///
    /// # Panics
    /// `every` is 0.
    #[must_use]
    pub fn new(queues: usize, every: u32) -> Self {
        assert!(every > 0, "some bursts are measured");
        let queue = |_| Queue {
            skip: AtomicU32::new(0),
            is_due: AtomicBool::new(false),
            times: Mutex::new(Times { came: VecDeque::new(), histogram: empty(), sum: Duration::ZERO }),
        };
        Self { every, queues: (0..queues).map(queue).collect() }
    }

    /// The quantiles over all packets so far.
    #[must_use]
    pub fn quantiles(&self) -> Quantiles {
        let (mut all, mut sum) = (empty(), Duration::ZERO);
        for queue in &self.queues {
            let times = queue.times();
            // Both have the same bounds, so this can't fail.
            let _ = all.add(&times.histogram);
            sum += times.sum;
        }
        Quantiles::of(&all, sum)
    }
}

impl Quantiles {
    /// The quantiles of a histogram in nanoseconds, whose times have this sum.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>, sum: Duration) -> Self {
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        Self {
            packets: histogram.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            worst: Duration::from_nanos(histogram.max()),
            sum,
        }
    }
}

/// A histogram of nanoseconds.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, DIGITS).expect("the bounds are right")
}

impl Queue {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for Latency {
    fn received(&self, queue: usize, batch: &Batch) {
        let packets = batch.packets();
        let (Some(queue), Some(first), Some(last)) = (self.queues.get(queue), packets.first(), packets.last()) else {
            return;
        };
        // ORDERING: Relaxed. One core at a time receives, and an inexact number would do.
        let skip = queue.skip.load(Ordering::Relaxed);
        queue.skip.store(if skip == 0 { self.every - 1 } else { skip - 1 }, Ordering::Relaxed);
        if skip == 0 {
            let mut times = queue.times();
            times.came.push_back(Burst { first: first.seq, last: last.seq, at: Instant::now() });
            // ORDERING: Release, and under the lock. The core that transmits the burst sees it; pairs with the load in `decided`.
            queue.is_due.store(true, Ordering::Release);
        }
    }

    fn decided(&self, queue: usize, batch: &Batch) {
        let packets = batch.packets();
        let (Some(queue), Some(first), Some(last)) = (self.queues.get(queue), packets.first(), packets.last()) else {
            return;
        };
        // ORDERING: Acquire, as in `received`. A core reads only this flag with most bursts.
        if !queue.is_due.load(Ordering::Acquire) {
            return;
        }
        let now = Instant::now();
        let mut times = queue.times();
        let Times { came, histogram, sum } = &mut *times;
        while let Some(burst) = came.front() {
            if burst.first > last.seq {
                break;
            }
            let place = |seq: Seq| packets.partition_point(|packet| packet.seq < seq);
            let of_burst = &packets[place(burst.first)..place(burst.last.next())];
            let sent = of_burst.iter().filter(|packet| packet.fate.is_sent()).count();
            if sent > 0 && burst.last >= first.seq {
                let time = now.saturating_duration_since(burst.at).min(LONGEST);
                histogram.saturating_record_n((time.as_nanos() as u64).max(1), sent as u64);
                *sum += time * sent as u32;
            }
            if burst.last > last.seq {
                break;
            }
            came.pop_front();
        }
        // ORDERING: Relaxed. Under the lock, as the store in `received`.
        queue.is_due.store(!came.is_empty(), Ordering::Relaxed);
    }
}
