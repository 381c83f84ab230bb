//! Work that takes a known time: a chain of dependent multiplications.
//!
//! It reads no clock and touches no memory, so it costs a core only time, as a longer program or a slower driver would. The time of a
//! multiplication is measured once for each run.

use std::hint::black_box;
use std::time::Instant;

use port::{Batch, PortError, Queue, Receive, Received, Transmit};

use crate::spread::Spread;

/// Work of a known duration, done by [`run`](Self::run).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    multiplications: u32,
    /// Requested duration in nanoseconds.
    pub asked_ns: f64,
    /// Actual duration by the calibration, as close as possible to the requested one.
    pub takes_ns: f64,
}

/// Duration of chains on this machine: measured once, then valid for work of any duration.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Numbers of multiplications, and nanoseconds for each.
    points: Vec<(u32, f64)>,
}

/// Chain lengths that are timed. Short chains have extra costs that a line through long ones would miss.
const LENGTHS: [u32; 14] = [0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 512, 4096];
/// Multiplications of one reading: some 20 microseconds, few of which are interrupted.
const READING: u32 = 16_384;
const READINGS: usize = 15;

impl Calibration {
    /// Times chains of several lengths, in turn and repeatedly. Takes some milliseconds.
    #[must_use]
    pub fn here() -> Self {
        Self::by(|multiplications| {
            let runs = (READING / multiplications.max(8)).max(1);
            let start = Instant::now();
            let mut value = 1;
            for _ in 0..runs {
                value = chain(value, black_box(multiplications));
            }
            black_box(value);
            start.elapsed().as_secs_f64() * 1e9 / f64::from(runs)
        })
    }

    /// The same with the given reading: nanoseconds of one chain.
    pub(crate) fn by(mut read: impl FnMut(u32) -> f64) -> Self {
        let mut readings = vec![Vec::with_capacity(READINGS); LENGTHS.len()];
        for _ in 0..READINGS {
            for (length, readings) in LENGTHS.iter().zip(&mut readings) {
                readings.push(read(*length));
            }
        }
        let median = |readings: &Vec<f64>| Spread::of(readings).map_or(0.0, |spread| spread.median);
        let mut points: Vec<(u32, f64)> = LENGTHS.into_iter().zip(readings.iter().map(median)).collect();
        // A longer chain can't take less time; such readings were disturbed.
        for index in 1..points.len() {
            points[index].1 = points[index].1.max(points[index - 1].1);
        }
        Self { points }
    }

    /// Duration of a chain: interpolated between timed lengths, extrapolated after the last.
    fn takes(&self, multiplications: f64) -> f64 {
        let behind = self.points.iter().position(|(length, _)| f64::from(*length) >= multiplications);
        let index = behind.unwrap_or(self.points.len() - 1).max(1);
        let ((from, low), (to, high)) = (self.points[index - 1], self.points[index]);
        low + (multiplications - f64::from(from)) * (high - low) / f64::from(to - from)
    }

    /// Work with a duration as close as possible to `ns` nanoseconds; 0 is no work at all.
    ///
    /// # Panics
    /// `ns` is not within 0 to [`MOST_NS`].
    #[must_use]
    pub fn work(&self, ns: f64) -> Work {
        assert!((0.0..=MOST_NS).contains(&ns), "work takes from nothing to {MOST_NS} ns");
        let (mut least, mut most) = (0, 1 << 24);
        while least < most {
            let middle = (least + most) / 2;
            if self.takes(f64::from(middle)) < ns { least = middle + 1 } else { most = middle }
        }
        let off = |multiplications: u32| (self.takes(f64::from(multiplications)) - ns).abs();
        let multiplications = if least > 0 && off(least - 1) < off(least) { least - 1 } else { least };
        let takes_ns = if multiplications == 0 { 0.0 } else { self.takes(f64::from(multiplications)) };
        Work { multiplications, asked_ns: ns, takes_ns }
    }
}

/// The longest work: a millisecond.
pub const MOST_NS: f64 = 1e6;

impl Work {
    /// No work.
    pub const NONE: Self = Self { multiplications: 0, asked_ns: 0.0, takes_ns: 0.0 };

    /// True if there is no work.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.multiplications == 0
    }

    /// Does the work. It starts when `value` is known, so runs that pass each other their values don't overlap.
    #[inline]
    #[must_use]
    pub fn run(&self, value: u64) -> u64 {
        if self.is_none() { value } else { chain(value, self.multiplications) }
    }
}

/// Never inlined, so that the code that runs is the code that was calibrated.
#[inline(never)]
fn chain(mut value: u64, multiplications: u32) -> u64 {
    for _ in 0..multiplications {
        // Knuth's MMIX generator. Because of the addition, the compiler can't replace the chain by a power.
        value = value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    }
    value
}

/// A queue that adds work for each received packet, in place of the cost of a real driver. History records are not received and cost
/// nothing extra.
pub(crate) struct Dispatched {
    queue: Box<dyn Queue>,
    work: Work,
    value: u64,
}

impl Dispatched {
    /// Returns the queues, with the work added if there is any.
    pub(crate) fn wrap(queues: Vec<Box<dyn Queue>>, work: Work) -> Vec<Box<dyn Queue>> {
        if work.is_none() {
            return queues;
        }
        queues.into_iter().map(|queue| Box::new(Self { queue, work, value: 1 }) as Box<dyn Queue>).collect()
    }
}

impl Receive for Dispatched {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        let received = self.queue.receive(batch)?;
        if received == Received::Packets {
            for _ in 0..batch.len() {
                self.value = self.work.run(self.value);
            }
            black_box(self.value);
        }
        Ok(received)
    }

    port::forward_receive!(queue);
}

impl Transmit for Dispatched {
    port::forward_transmit!(queue);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose chains take a start-up, and more once they are too long to foresee their end.
    fn made_up(multiplications: u32) -> f64 {
        let length = f64::from(multiplications);
        1.7 + 1.4 * length + if multiplications > 32 { 6.0 } else { 0.0 }
    }

    #[test]
    fn work_is_the_nearest_to_what_was_asked_for() {
        let calibration = Calibration::by(made_up);
        for ns in [5.0, 10.0, 24.0, 80.0, 104.0, 500.0, 12_345.0, MOST_NS] {
            let work = calibration.work(ns);
            let takes = made_up(work.multiplications);
            // Half a step, and a little where the line stands for a bend.
            assert!((takes - ns).abs() <= 0.71 || (40.0..80.0).contains(&ns), "{ns}: {work:?} takes {takes}");
            assert!((work.takes_ns - takes).abs() < 0.01, "{work:?}");
            assert!((work.takes_ns - ns).abs() <= 0.71, "{work:?}");
        }
        let none = calibration.work(0.0);
        assert!(none.is_none() && none.takes_ns == 0.0);
        assert_eq!(none.run(7), 7);
        assert!(!calibration.work(3.0).is_none());
    }

    #[test]
    fn what_disturbs_a_few_readings_is_no_matter() {
        let mut count = 0;
        let disturbed = Calibration::by(|multiplications| {
            count += 1;
            made_up(multiplications) + if count % 3 == 0 { 5_000.0 } else { 0.0 }
        });
        assert_eq!(disturbed.work(104.0), Calibration::by(made_up).work(104.0));
    }

    /// Counted, not timed: a run is as many multiplications as the calibration gave it.
    #[test]
    fn a_run_does_all_of_its_multiplications() {
        let step = |value: u64| value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let work = Calibration::by(made_up).work(104.0);
        assert_eq!(work.run(1), (0..work.multiplications).fold(1, |value, _| step(value)));
    }

    #[test]
    fn this_machine_can_be_calibrated() {
        let calibration = Calibration::here();
        assert!(calibration.points.is_sorted_by(|one, other| one.1 <= other.1));
        let (short, long) = (calibration.work(50.0), calibration.work(500.0));
        // A multiplication takes three cycles or four; no machine is faster than 10 GHz or slower than 0.1.
        assert!(short.multiplications > 0 && long.multiplications > 2 * short.multiplications, "{short:?} {long:?}");
        assert!(long.multiplications < 5_000, "{long:?}");
    }

    #[test]
    fn each_received_packet_is_worked_for() {
        use port::{Loops, Replay, Trace};
        let mut trace = Trace::new();
        for number in 0..50u64 {
            let (seq, time) = (packet::Seq(number), packet::Nanos(number));
            let link = packet::LinkType::Ethernet;
            let fate = port::Fate::Pending;
            trace.push(
                port::Packet { seq, time, offset: 0, len: 0, wire_len: 60, interface: 0, link, bucket: 0, fate },
                &[0; 60],
            );
        }
        let work = Work { multiplications: 3, asked_ns: 4.0, takes_ns: 4.0 };
        let mut replay = Replay::new(trace.into()).looped(Loops::Times(2));
        let queue = replay.queues(1).remove(0);
        let mut dispatched = Dispatched { queue, work, value: 1 };
        let mut batch = Batch::default();
        let mut packets = 0;
        while dispatched.receive(&mut batch).expect("memory is there") == Received::Packets {
            packets += batch.len();
        }
        assert_eq!(packets, 100);
        assert_eq!(dispatched.value, chain(1, 300));
    }
}
