//! Measures the extra time of replicas that outgrow a shared cache: each replica has the whole state, but the last-level cache is shared.
//!
//! More replicas than cores can't run together. Instead, one core accesses a state that is `k` times as large, which fills the shared
//! cache in the same way. The private cache of a core doesn't depend on the number of replicas, so accesses that it serves are
//! subtracted.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use locality::{CACHE_LINE, pages, prefetch};

/// Cache lines that a step accesses: one in the index, one for the flow.
pub(crate) const LINES: u64 = 2;
/// Lines prefetched at a time: one burst.
const BURST: usize = 32;
/// Accesses in a reading.
const REACHES: usize = 1 << 19;
const READINGS: usize = 3;
/// Above this size no cache can hold the state.
const BYTES_MAX: u64 = 512 << 20;
/// Size of the private cache if the machine doesn't report it.
const OWN_BYTES: u64 = 512 << 10;

/// A line of state.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u64; CACHE_LINE / 8]);

/// Extra time of a step, by the number of replicas with the same state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spill {
    /// Bytes of the state that packets access.
    pub bytes: u64,
    /// Numbers of replicas, and the extra nanoseconds of a step of each.
    points: Vec<(usize, f64)>,
}

impl Spill {
    /// Measures a state of `flows` flows with up to `most` replicas.
    pub(crate) fn measure(flows: u64, most: usize) -> Self {
        let bytes = flows * LINES * CACHE_LINE as u64;
        let Caches { own, shared } = Caches::here();
        // A state that fits into private caches doesn't affect other cores.
        if bytes <= own || most < 2 {
            return Self { bytes, points: Vec::new() };
        }
        let near = reach_ns(own / 2);
        // Time of an access that the private cache doesn't serve, in a state of this size.
        let beyond = |bytes: u64| {
            let served = own as f64 / bytes as f64;
            ((reach_ns(bytes) - served * near) / (1.0 - served)).max(near)
        };
        let alone = beyond(bytes);
        let replicas = std::iter::successors(Some(2), |replicas| Some(replicas * 2));
        let longer = |replicas: usize| {
            let all = bytes * replicas as u64;
            let missed = 1.0 - own as f64 / bytes as f64;
            // All replicas together still fit.
            if all <= shared { 0.0 } else { LINES as f64 * missed * (beyond(all) - alone).max(0.0) }
        };
        let replicas = replicas.take_while(|replicas| *replicas < most * 2);
        Self { bytes, points: replicas.map(|replicas| (replicas, longer(replicas))).collect() }
    }

    /// Extra nanoseconds of a step with this number of replicas.
    #[must_use]
    pub fn ns(&self, replicas: usize) -> f64 {
        let mut before = (1, 0.0);
        for &(count, ns) in &self.points {
            if replicas <= count {
                let part = (replicas.saturating_sub(before.0)) as f64 / (count - before.0) as f64;
                return before.1 + (ns - before.1) * part;
            }
            before = (count, ns);
        }
        before.1
    }
}

/// Nanoseconds for a random line of `bytes` bytes, prefetched one burst ahead: the minimum of several readings.
fn reach_ns(bytes: u64) -> f64 {
    let lines = (bytes.min(BYTES_MAX) as usize / CACHE_LINE).max(BURST);
    let mut region = pages::boxed((0..lines).map(|line| Line([line as u64; CACHE_LINE / 8])));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut places = [0; BURST];
    let reading = |_| {
        let start = Instant::now();
        for _ in 0..REACHES / BURST {
            for place in &mut places {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *place = ((u128::from(state) * lines as u128) >> 64) as usize;
                prefetch::start(&region[*place]);
            }
            for place in places {
                region[place].0[0] = region[place].0[0].wrapping_add(1);
            }
        }
        black_box(&mut region);
        start.elapsed().as_secs_f64() * 1e9 / REACHES as f64
    };
    (0..READINGS).map(reading).fold(f64::INFINITY, f64::min)
}

/// Sizes of the largest private cache of a core, and of the largest shared cache, in bytes.
pub(crate) struct Caches {
    pub(crate) own: u64,
    shared: u64,
}

impl Caches {
    /// As the machine reports them.
    pub(crate) fn here() -> Self {
        let of = |index: usize| {
            let about =
                |what: &str| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}")).ok();
            let data = about("type").is_some_and(|kind| kind.trim() != "Instruction");
            let own = about("shared_cpu_list").is_some_and(|cpus| cpus.trim() == "0");
            let size = about("size").and_then(|size| kibibytes(size.trim()));
            size.filter(|_| data).map(|size| (own, size))
        };
        let all: Vec<(bool, u64)> = (0..8).filter_map(of).collect();
        let largest = |mine: bool| all.iter().filter(|(own, _)| *own == mine).map(|(_, size)| *size).max();
        Self { own: largest(true).unwrap_or(OWN_BYTES), shared: largest(false).unwrap_or(0) }
    }
}

/// Reads `1024K` as bytes.
fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix('K')?.parse::<u64>().ok().map(|number| number << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_what_was_measured_lie_straight_lines() {
        let spill = Spill { bytes: 1 << 24, points: vec![(2, 4.0), (4, 10.0)] };
        let all: Vec<f64> = (0..=5).map(|replicas| spill.ns(replicas)).collect();
        assert_eq!(all, [0.0, 0.0, 4.0, 7.0, 10.0, 10.0]);
        assert_eq!(Spill::default().ns(16), 0.0);
    }

    #[test]
    fn a_small_state_costs_nobody_anything() {
        assert_eq!(Spill::measure(100, 16), Spill { bytes: 100 * 128, points: vec![] });
        assert_eq!(kibibytes("1024K"), Some(1 << 20));
    }

    #[test]
    fn what_is_measured_reaches_to_the_most_replicas() {
        // Larger than any core's own cache, and together than any that is shared.
        let spill = Spill::measure(1 << 20, 3);
        assert_eq!(spill.points.iter().map(|(replicas, _)| *replicas).collect::<Vec<_>>(), [2, 4]);
        assert!(spill.points.iter().all(|(_, ns)| (0.0..10_000.0).contains(ns)), "{spill:?}");
        assert!(Spill::measure(1 << 20, 1).points.is_empty());
    }
}
