//! The gauge: a short calculation between bursts that detects rounds disturbed by other programs.
//!
//! On a shared host, other guests may run on the same physical cores, invisible to this one. They take issue slots from the other
//! hardware thread of a core, and lower the clock rate. The gauge uses plain arithmetic without memory accesses. Its time, relative to
//! the shortest time seen, shows how much of the core was available, independent of the function under test. It does not see contention
//! for caches and memory.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use port::{Batch, PortError, Queue, Receive, Received, Transmit};

/// Iterations of one reading: some ten microseconds.
const TURNS: u64 = 8_192;
/// Bursts between two readings: a few milliseconds.
const BURSTS: u32 = 1_024;
/// A round is undisturbed if its readings take at most this multiple of the minimum.
const TOLERANCE: f64 = 1.05;

/// The smallest mean reading of any round in this process, by the number of cores that ran at once, because the clock rate may depend on
/// that.
static LEAST: Mutex<BTreeMap<usize, f64>> = Mutex::new(BTreeMap::new());

/// Readings on one core in one round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauge {
    /// Total time of the readings. It is not part of the measured time.
    pub(crate) spent: Duration,
    readings: u32,
}

impl Gauge {
    /// Takes a reading. Call it on the core to be checked.
    pub(crate) fn read(&mut self) {
        let start = Instant::now();
        black_box(arithmetic(black_box(1)));
        self.spent += start.elapsed();
        self.readings += 1;
    }

    #[cfg(test)]
    pub(crate) const fn of(readings: u32, spent: Duration) -> Self {
        Self { spent, readings }
    }

    /// Nanoseconds of a reading, on average; 0 of none.
    fn mean_ns(&self) -> f64 {
        self.spent.as_secs_f64() * 1e9 / f64::from(self.readings.max(1))
    }
}

/// Four independent chains of different operations, so that they run in parallel but can't be vectorised.
#[inline(never)]
fn arithmetic(seed: u64) -> u64 {
    let (mut a, mut b, mut c, mut d) = (seed, seed ^ 3, seed ^ 5, seed ^ 9);
    for turn in 0..TURNS {
        a = a.wrapping_add(turn) ^ 0x55;
        b = b.rotate_left(7).wrapping_sub(turn);
        c = ((c ^ turn) + 0x1001) & 0xffff_ffff;
        d = (d | 1) ^ (turn << 1);
    }
    a ^ b ^ c ^ d
}

/// Mean reading of a round, in nanoseconds: that of the busiest core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Strain {
    ns: f64,
    /// Number of cores that ran at once.
    together: usize,
}

impl Strain {
    /// From the gauges of cores that ran at once, or one after the other.
    pub(crate) fn of(gauges: &[Gauge], together: usize) -> Self {
        let mut least = LEAST.lock().unwrap_or_else(PoisonError::into_inner);
        let least = least.entry(together).or_insert(f64::INFINITY);
        let mut ns = 0.0;
        for gauge in gauges.iter().filter(|gauge| gauge.readings > 0) {
            *least = least.min(gauge.mean_ns());
            ns = gauge.mean_ns().max(ns);
        }
        Self { ns, together }
    }

    /// The readings as a multiple of the smallest so far.
    pub(crate) fn times_least(self) -> f64 {
        let least = LEAST.lock().unwrap_or_else(PoisonError::into_inner).get(&self.together).copied();
        least.filter(|least| least.is_finite()).map_or(1.0, |least| self.ns / least)
    }

    /// True if another program used the cores, as far as is known now.
    pub(crate) fn is_disturbed(self) -> bool {
        self.times_least() > TOLERANCE
    }
}

/// A queue with a gauge. The gauge is read before the first burst, after every [`BURSTS`] bursts, and after the last.
pub(crate) struct Gauged {
    queue: Box<dyn Queue>,
    gauge: Gauge,
    until: u32,
    shown: Shown,
}

/// Readings of a queue's gauge, available once the queue has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown(Arc<Mutex<Gauge>>);

impl Shown {
    pub(crate) fn get(&self) -> Gauge {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gauged {
    /// Adds a gauge to each queue.
    pub(crate) fn wrap(queues: Vec<Box<dyn Queue>>) -> (Vec<Box<dyn Queue>>, Vec<Shown>) {
        let wrap = |queue| {
            let shown = Shown::default();
            let gauged = Self { queue, gauge: Gauge::default(), until: 0, shown: shown.clone() };
            (Box::new(gauged) as Box<dyn Queue>, shown)
        };
        queues.into_iter().map(wrap).unzip()
    }
}

impl Receive for Gauged {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        if self.until == 0 {
            self.gauge.read();
            self.until = BURSTS;
        }
        self.until -= 1;
        let received = self.queue.receive(batch)?;
        if received == Received::End {
            self.gauge.read();
            *self.shown.0.lock().unwrap_or_else(PoisonError::into_inner) = self.gauge;
        }
        Ok(received)
    }

    port::forward_receive!(queue);
}

impl Transmit for Gauged {
    port::forward_transmit!(queue);
}

#[cfg(test)]
mod tests {
    use port::{Loops, Replay};

    use super::*;
    use crate::bench::tests::trace;

    fn gauge(readings: u32, spent_us: u64) -> Gauge {
        Gauge::of(readings, Duration::from_micros(spent_us))
    }

    /// Numbers of cores that no machine has, as all tests share what was least.
    #[test]
    fn a_round_is_held_against_the_least_of_as_many_cores() {
        let first = Strain::of(&[gauge(2, 40), gauge(4, 40)], 1_001);
        assert_eq!(first.times_least(), 2.0, "the busiest core counts, 20 us against the other's 10");
        assert!(first.is_disturbed());
        let quiet = Strain::of(&[gauge(1, 10), gauge(10, 104)], 1_001);
        assert!(!quiet.is_disturbed());
        assert!(Strain::of(&[gauge(10, 106)], 1_001).is_disturbed());
        let alone = Strain::of(&[gauge(1, 5)], 1_002);
        assert!(!alone.is_disturbed() && !quiet.is_disturbed(), "another number of cores is another matter");
        Strain::of(&[gauge(1, 9)], 1_001);
        assert!(quiet.is_disturbed(), "what was thought quiet no longer is");
    }

    #[test]
    fn what_was_not_read_says_nothing() {
        let none = Strain::of(&[Gauge::default()], 1_003);
        assert!(!none.is_disturbed() && none.times_least() == 1.0);
        Strain::of(&[gauge(1, 10)], 1_003);
        assert!(!none.is_disturbed());
    }

    #[test]
    fn a_queue_is_gauged_at_both_ends_and_between() {
        let mut replay = Replay::new(trace(400, 20)).looped(Loops::Times(1_000));
        let (mut queues, shown) = Gauged::wrap(replay.queues(1));
        let (mut batch, mut packets, mut bursts) = (Batch::default(), 0, 0u32);
        while queues[0].receive(&mut batch).expect("memory is there") == Received::Packets {
            packets += batch.len();
            bursts += 1;
        }
        assert_eq!(packets, 400_000);
        // The final, empty receive counts like the others.
        assert_eq!(shown[0].get().readings, 1 + (bursts + 1).div_ceil(BURSTS));
        assert!(shown[0].get().spent > Duration::ZERO);
    }
}
