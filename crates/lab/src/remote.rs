//! Measures the extra cost of history records that come from other cores' caches.
//!
//! Replicas read one log. A core that runs its share alone has the log's cache lines in its own cache or in the shared one. If `k` cores
//! run together, another core used each line last in `k - 1` of `k` cases. The extra time for a line, read in order and prefetched like a
//! log, gives the extra time for a record, which fills a part of a line. It is measured between two cores. For a machine with more cores,
//! it can be given.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use engine::{Record, cpus, pin};
use locality::{CACHE_LINE, pages, prefetch};

use crate::spill::Caches;
use crate::spread::Spread;

/// Lines of the region that moves between cores. They fit into the private cache of any core.
const LINES: usize = 2048;
/// Multiple of the private cache that is read to evict the region.
const TIMES_OWN: u64 = 4;
/// Lines that are prefetched ahead.
const AHEAD: usize = 128;
const READINGS: usize = 41;

/// Extra time for a history record whose cache line another core used last, in nanoseconds (`r` of the cost model).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Remote {
    /// Up to the number of cores of this machine: measured between two of them.
    pub here_ns: f64,
    /// For more cores: as given, else the measured time.
    pub beyond_ns: f64,
    /// Number of cores of this machine.
    pub here: usize,
}

impl Remote {
    /// For records that hold `M`. `line_ns` is the given extra time for a line on more cores than this machine has.
    pub(crate) fn of_records<M>(line_ns: Option<f64>) -> Self {
        let lines = size_of::<Record<M>>() as f64 / CACHE_LINE as f64;
        let here_ns = between_cores() * lines;
        Self { here_ns, beyond_ns: line_ns.map_or(here_ns, |ns| ns * lines), here: cpus().len() }
    }

    /// Extra time for a record on this number of cores, in nanoseconds.
    #[must_use]
    pub const fn ns(&self, cores: usize) -> f64 {
        match cores {
            ..=1 => 0.0,
            cores if cores > self.here => self.beyond_ns,
            _ => self.here_ns,
        }
    }
}

type Line = [AtomicU64; CACHE_LINE / 8];

/// Extra time for a cache line that another core wrote, compared with a line in the shared cache: median of several readings; 0 on a
/// machine with one core.
fn between_cores() -> f64 {
    let cpus = cpus();
    let (Some(&reader), Some(&writer)) = (cpus.first(), cpus.last()) else { return 0.0 };
    if reader == writer {
        return 0.0;
    }
    let stretch: Box<[Line]> = pages::boxed((0..LINES).map(|_| Line::default()));
    let others = (Caches::here().own * TIMES_OWN / CACHE_LINE as u64) as usize;
    let others: Box<[Line]> = pages::boxed((0..others).map(|_| Line::default()));
    // Readings that were asked of the writer and done, two for each: even while it is the reader's turn.
    let turn = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(writer);
            for reading in 0..READINGS {
                wait_for(&turn, 2 * reading + 1);
                write(&stretch);
                turn.store(2 * reading + 2, Ordering::Release);
            }
        });
        let reader = scope.spawn(|| {
            pin(reader);
            let longer = |reading| {
                write(&stretch);
                read_ns(&others);
                let shared = read_ns(&stretch);
                read_ns(&others);
                turn.store(2 * reading + 1, Ordering::Release);
                wait_for(&turn, 2 * reading + 2);
                read_ns(&stretch) - shared
            };
            (0..READINGS).map(longer).collect::<Vec<f64>>()
        });
        let readings = reader.join().unwrap_or_default();
        Spread::of(&readings).map_or(0.0, |spread| spread.median.max(0.0))
    })
}

fn wait_for(turn: &AtomicUsize, number: usize) {
    while turn.load(Ordering::Acquire) != number {
        spin_loop();
    }
}

fn write(lines: &[Line]) {
    for line in lines {
        line[0].store(line[0].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Nanoseconds for each line, read in order.
fn read_ns(lines: &[Line]) -> f64 {
    let start = Instant::now();
    let read = |line: &Line| {
        prefetch::address((&raw const *line).wrapping_add(AHEAD).cast());
        line[0].load(Ordering::Relaxed)
    };
    black_box(lines.iter().map(read).fold(0, |all, one| all ^ one));
    start.elapsed().as_secs_f64() * 1e9 / lines.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_takes_as_many_lines_as_it_has_bytes_for() {
        // Sequence number, time, hash and 40 bytes: one line.
        let given = Remote::of_records::<[u64; 5]>(Some(12.5));
        assert!((0.0..1e4).contains(&given.here_ns), "{given:?}");
        assert_eq!((given.beyond_ns, given.here), (12.5, cpus().len()));
        assert_eq!(Remote::of_records::<[u64; 13]>(Some(12.5)).beyond_ns, 25.0);
        let measured = Remote::of_records::<[u64; 5]>(None);
        assert_eq!(measured.here_ns, measured.beyond_ns);
    }

    #[test]
    fn one_core_has_it_all_to_itself() {
        let remote = Remote { here_ns: 2.0, beyond_ns: 12.5, here: 4 };
        assert_eq!([0, 1, 2, 4, 5, 16].map(|cores| remote.ns(cores)), [0.0, 0.0, 2.0, 2.0, 12.5, 12.5]);
    }
}
