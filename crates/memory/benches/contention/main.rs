//! The cost of sharing an array: figure 6a of NFork. There are 10,000 elements. A step reads one, or reads and writes one, drawn uniformly
//! or by Zipf's law (0.99), on one core and on two, interleaved.
//!
//! `cargo bench -p millrace-memory --bench contention`; for some rows: `... -- transactional`
#![allow(clippy::print_stdout)]

mod designs;

#[path = "../../tests/locked/mod.rs"]
mod locked;

use std::sync::{Barrier, Mutex, RwLock};
use std::time::Instant;

use locked::Locked;
use millrace_memory::{Memory, Transactional, Vector};

use designs::{Buffer, Buffered, Failed, Versions};

const ELEMENTS: usize = 10_000;
const STEPS: usize = 400_000;
const ROUNDS: usize = 7;
/// Steps of a transaction in the batched rows.
const BATCH: usize = 32;

/// The element that each step uses.
fn draws(skew: f64, seed: u64) -> Vec<u32> {
    let weights: Vec<f64> = (1..=ELEMENTS).map(|rank| (rank as f64).powf(-skew)).collect();
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let edges: Vec<f64> = weights
        .iter()
        .map(|weight| {
            sum += weight / total;
            sum
        })
        .collect();
    let mut state = seed;
    let draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let point = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        edges.partition_point(|edge| *edge < point).min(ELEMENTS - 1) as u32
    };
    std::iter::repeat_with(draw).take(STEPS).collect()
}

/// Runs the steps on so many threads at once; returns nanoseconds for a step and core.
fn timed(cores: usize, skew: f64, core: &(dyn Fn(usize, &[u32]) + Sync)) -> f64 {
    let barrier = Barrier::new(cores + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|number| {
                let (barrier, draws) = (&barrier, draws(skew, 77 + number as u64));
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    core(number, &draws);
                    start.elapsed().as_nanos() as f64 / STEPS as f64
                })
            })
            .collect();
        barrier.wait();
        threads.into_iter().map(|thread| thread.join().expect("no core panics")).fold(0.0, f64::max)
    })
}

/// Transactions of `batch` steps.
fn transactional(cores: usize, skew: f64, writes: bool, batch: usize) -> f64 {
    let memory = Transactional::new(cores, 1);
    let array = memory.vector(ELEMENTS, 0u64);
    let handles: Vec<_> = memory.core_handles().into_iter().map(Mutex::new).collect();
    timed(cores, skew, &|core, draws| {
        let mut handle = handles[core].lock().expect("each core has its own");
        let (mut done, mut aborts, mut size) = (0, 0, batch);
        while done < draws.len() {
            let burst = &draws[done..(done + size).min(draws.len())];
            let mut log = handle.log(&memory);
            let mut tx = log.attempt(aborts);
            let step = |at: &u32| {
                let value = array.read(&mut tx, *at as usize)?;
                if writes { array.write(&mut tx, *at as usize, value + 1) } else { Ok(()) }
            };
            let whole = burst.iter().try_for_each(step);
            if whole.is_ok() && tx.commit().is_ok() {
                (done, aborts, size) = (done + burst.len(), 0, (size + 1).min(batch));
            } else {
                (aborts, size) = (aborts + 1, (burst.len() / 2).max(1));
            }
        }
    })
}

/// Transactions with buffered writes.
fn buffered(cores: usize, skew: f64, writes: bool, batch: usize) -> f64 {
    let array = Buffered::new(ELEMENTS);
    let taken = timed(cores, skew, &|_, draws| {
        let (mut buffer, mut held) = (Buffer::default(), Vec::new());
        in_bursts(draws, batch, |burst| {
            array.begin(&mut buffer);
            for at in burst {
                let value = array.read(&mut buffer, *at as usize)?;
                if writes {
                    array.write(&mut buffer, *at as usize, value + 1);
                }
            }
            array.commit(&buffer, &mut held)
        });
    });
    assert_eq!(array.sum(), if writes { (cores * STEPS) as u64 } else { 0 }, "no step is lost");
    taken
}

/// Transactions with several versions.
fn versions(cores: usize, skew: f64, writes: bool, batch: usize) -> f64 {
    // Aborted steps use up copies too: there is room for most steps to abort once.
    let array = Versions::new(ELEMENTS, cores, if writes { 4 * STEPS } else { 0 });
    let taken = timed(cores, skew, &|core, draws| {
        let mut writer = array.writer(core);
        in_bursts(draws, batch, |burst| {
            array.begin(&mut writer);
            for at in burst {
                let value = array.read(&writer, *at as usize);
                if writes && array.write(&mut writer, *at as usize, value + 1).is_err() {
                    array.abort(&mut writer);
                    return Err(Failed);
                }
                std::hint::black_box(value);
            }
            array.commit(&writer);
            Ok(())
        });
    });
    assert_eq!(array.sum(), if writes { (cores * STEPS) as u64 } else { 0 }, "no step is lost");
    taken
}

/// Bursts as in the engine: one that aborts is halved, then they grow one by one.
fn in_bursts(draws: &[u32], batch: usize, mut transaction: impl FnMut(&[u32]) -> Result<(), Failed>) {
    let (mut done, mut size) = (0, batch);
    while done < draws.len() {
        let burst = &draws[done..(done + size).min(draws.len())];
        match transaction(burst) {
            Ok(()) => (done, size) = (done + burst.len(), (size + 1).min(batch)),
            Err(Failed) => size = (burst.len() / 2).max(1),
        }
    }
}

/// Steps under the lock of a locked memory, `batch` at a time.
fn locked(cores: usize, skew: f64, writes: bool, batch: usize) -> f64 {
    let memory = Locked::keyed(1);
    let array = memory.vector(ELEMENTS, 0u64);
    timed(cores, skew, &|_, draws| {
        for burst in draws.chunks(batch) {
            let mut tx = memory.begin();
            for at in burst {
                let Ok(value) = array.read(&mut tx, *at as usize);
                std::hint::black_box(value);
                if writes {
                    let Ok(()) = array.write(&mut tx, *at as usize, value + 1);
                }
            }
        }
    })
}

fn mutex(cores: usize, skew: f64, writes: bool) -> f64 {
    let array = Mutex::new(vec![0u64; ELEMENTS]);
    timed(cores, skew, &|_, draws| {
        for at in draws {
            let mut array = array.lock().expect("no core panics");
            std::hint::black_box(array[*at as usize]);
            array[*at as usize] += u64::from(writes);
        }
    })
}

fn rw_lock(cores: usize, skew: f64, writes: bool) -> f64 {
    let array = RwLock::new(vec![0u64; ELEMENTS]);
    timed(cores, skew, &|_, draws| {
        for at in draws {
            if writes {
                array.write().expect("no core panics")[*at as usize] += 1;
            } else {
                std::hint::black_box(array.read().expect("no core panics")[*at as usize]);
            }
        }
    })
}

fn sharded_map(cores: usize, skew: f64, writes: bool) -> f64 {
    let map: dashmap::DashMap<u32, u64> = (0..ELEMENTS as u32).map(|at| (at, 0)).collect();
    timed(cores, skew, &|_, draws| {
        for at in draws {
            if writes {
                *map.get_mut(at).expect("it is there") += 1;
            } else {
                std::hint::black_box(*map.get(at).expect("it is there"));
            }
        }
    })
}

fn stm_core(cores: usize, skew: f64, writes: bool) -> f64 {
    let array: Vec<_> = (0..ELEMENTS).map(|_| stm_core::TVar::new(0u64)).collect();
    timed(cores, skew, &|_, draws| {
        for at in draws {
            stm_core::atomically(|tx| {
                let value = array[*at as usize].read(tx)?;
                if writes { array[*at as usize].write(tx, value + 1) } else { Ok(()) }
            });
        }
    })
}

type Contestant = (&'static str, fn(usize, f64, bool) -> f64);

const CONTESTANTS: [Contestant; 12] = [
    ("transactional, 32 steps", |cores, skew, writes| transactional(cores, skew, writes, BATCH)),
    ("transactional, 1 step", |cores, skew, writes| transactional(cores, skew, writes, 1)),
    ("buffered, 32 steps", |cores, skew, writes| buffered(cores, skew, writes, BATCH)),
    ("buffered, 1 step", |cores, skew, writes| buffered(cores, skew, writes, 1)),
    ("versions, 32 steps", |cores, skew, writes| versions(cores, skew, writes, BATCH)),
    ("versions, 1 step", |cores, skew, writes| versions(cores, skew, writes, 1)),
    ("locked, 32 steps", |cores, skew, writes| locked(cores, skew, writes, BATCH)),
    ("locked, 1 step", |cores, skew, writes| locked(cores, skew, writes, 1)),
    ("one mutex", mutex),
    ("one RwLock", rw_lock),
    ("sharded map (dashmap)", sharded_map),
    ("stm-core", stm_core),
];

fn main() {
    // Cargo adds its own flags.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let contestants: Vec<Contestant> = CONTESTANTS.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!("million steps a second, all cores together: median of {ROUNDS} rounds, interleaved (least to most)\n");
    for (skew, writes) in [(0.0, false), (0.99, false), (0.0, true), (0.99, true)] {
        let what = if writes { "read and write" } else { "read" };
        println!("{what}, Zipf {skew}");
        let cores: Vec<usize> = [1, 2].into_iter().filter(|cores| *cores <= processors).collect();
        let mut figures = vec![vec![Vec::new(); cores.len()]; contestants.len()];
        for _ in 0..ROUNDS {
            for (which, (_, contestant)) in contestants.iter().enumerate() {
                for (at, &cores) in cores.iter().enumerate() {
                    figures[which][at].push(1e3 * cores as f64 / contestant(cores, skew, writes));
                }
            }
        }
        for ((name, _), figures) in contestants.iter().zip(&mut figures) {
            let shown: Vec<String> = cores
                .iter()
                .zip(figures.iter_mut())
                .map(|(cores, figures)| {
                    figures.sort_by(f64::total_cmp);
                    let (least, median, most) = (figures[0], figures[ROUNDS / 2], figures[ROUNDS - 1]);
                    format!("{cores}: {median:6.1} ({least:.1} to {most:.1})")
                })
                .collect();
            println!("  {name:24} {}", shown.join("   "));
        }
        println!();
    }
}
