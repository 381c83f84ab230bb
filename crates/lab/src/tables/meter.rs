//! Meters for passes: time nothing, each burst, or each packet by itself.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::keys::BURST;

/// What is timed within a pass.
pub(super) trait Meter {
    /// How many packets travel together.
    const BURST: usize;

    fn begin(&mut self);
    fn end(&mut self, packets: usize);
}

/// Times nothing, for throughput.
pub(super) struct Whole;

/// Times every burst and divides the time by its packets.
pub(super) struct Bursts(pub(super) Latency, Instant);

/// Times every packet by itself, without overlap.
pub(super) struct Singles(pub(super) Latency, Instant);

impl Bursts {
    pub(super) fn new() -> Self {
        Self(Latency::new(BURST as f64), Instant::now())
    }
}

impl Singles {
    pub(super) fn new() -> Self {
        Self(Latency::new(1.0), Instant::now())
    }

    /// Times one more packet or burst.
    pub(super) fn time(&mut self, work: impl FnOnce()) {
        self.begin();
        work();
        self.end(1);
    }
}

impl Meter for Whole {
    const BURST: usize = BURST;

    #[inline(always)]
    fn begin(&mut self) {}

    #[inline(always)]
    fn end(&mut self, _: usize) {}
}

impl Meter for Bursts {
    const BURST: usize = BURST;

    #[inline(always)]
    fn begin(&mut self) {
        self.1 = Instant::now();
    }

    #[inline(always)]
    fn end(&mut self, packets: usize) {
        // A partial burst would look too fast.
        if packets == BURST {
            self.0.record(self.1.elapsed());
        }
    }
}

impl Meter for Singles {
    const BURST: usize = 1;

    #[inline(always)]
    fn begin(&mut self) {
        self.1 = Instant::now();
    }

    #[inline(always)]
    fn end(&mut self, _: usize) {
        self.0.record(self.1.elapsed());
    }
}

/// A distribution of times.
pub(super) struct Latency {
    times: Histogram<u64>,
    /// Packets that share one measured time.
    packets: f64,
}

impl Latency {
    fn new(packets: f64) -> Self {
        // Up to a minute with three digits; longer times are clamped.
        let times = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order");
        Self { times, packets }
    }

    #[inline(always)]
    fn record(&mut self, time: Duration) {
        self.times.saturating_record(time.as_nanos() as u64);
    }

    pub(super) fn tail(&self) -> Option<Tail> {
        if self.times.is_empty() {
            return None;
        }
        let at = |quantile| self.times.value_at_quantile(quantile) as f64 / self.packets;
        Some(Tail { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) })
    }
}

/// Median and tail of a distribution, in nanoseconds per packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

/// Properties of the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Frequency in `/proc/cpuinfo` at the start, in GHz, for conversion to cycles. The conversion is wrong if the processor changes its
    /// frequency.
    pub ghz: Option<f64>,
    /// Cost of one reading, in nanoseconds. Times of single packets include one reading.
    pub reading_ns: f64,
}

impl Clock {
    /// The clock of this machine.
    #[must_use]
    pub fn here() -> Self {
        const READINGS: u32 = 10_000;
        let start = Instant::now();
        for _ in 0..READINGS {
            std::hint::black_box(Instant::now());
        }
        let reading_ns = start.elapsed().as_nanos() as f64 / f64::from(READINGS);
        Self { ghz: std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| frequency(&text)), reading_ns }
    }

    /// Converts nanoseconds to cycles.
    #[must_use]
    pub fn cycles(&self, ns: f64) -> Option<f64> {
        self.ghz.map(|ghz| ns * ghz)
    }
}

/// The first processor's frequency in GHz.
fn frequency(cpuinfo: &str) -> Option<f64> {
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu MHz"))?;
    let mhz: f64 = line.split_once(':')?.1.trim().parse().ok()?;
    (mhz > 0.0).then_some(mhz / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frequency_is_the_first_ones() {
        let text = "processor\t: 0\ncpu MHz\t\t: 2596.146\nprocessor\t: 1\ncpu MHz\t\t: 1000.0\n";
        assert_eq!(frequency(text), Some(2.596_146));
        assert_eq!(frequency("processor : 0\nBogoMIPS : 100\n"), None);
    }

    #[test]
    fn tails_are_of_packets() {
        let mut latency = Latency::new(32.0);
        assert_eq!(latency.tail(), None);
        (1..=1000).for_each(|time| latency.record(Duration::from_nanos(32 * time)));
        let tail = latency.tail().unwrap();
        for (value, expected) in [(tail.p50, 500.0), (tail.p99, 990.0), (tail.p999, 999.0), (tail.max, 1000.0)] {
            assert!((value - expected).abs() / expected < 0.002, "{value} is not {expected}");
        }
    }
}
