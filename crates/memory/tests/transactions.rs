//! Runs a handler with `?` on four threads in transactional memory. The memory reports the serial order, and a replay in that order must
//! give the same results.
#![cfg(not(loom))]

mod locked;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use locked::Locked;
use millrace_memory::transactional::{ABORTS_MAX, CommitPosition, CoreHandle};
use millrace_memory::{Allocator, Local, LocalTx, Map, Memory, Transactional, Vector};
use packet::{Host, Host4, Key, Nanos};

const HOSTS: u32 = 24;
const PORTS: usize = 8;

/// State as in a NAT: hosts share a pool of ports, and each pair is known from both sides.
struct Shared<M: Memory> {
    pool: M::Allocator,
    by_host: M::Map<Host4, u32>,
    owners: M::Vector<Owner>,
    total: M::Vector<u64>,
}

/// The owner of a port and its packet count; 0 if it has no owner.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Owner {
    host: Host4,
    packets: u32,
}

packet::words! {
    Owner: [2], owner => [owner.host.to_words()[0], u64::from(owner.packets)],
        words => Self { host: Host4::from_words([words[0]]), packets: words[1] as u32 };
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Packet(Host4, Nanos),
    Hangup(Host4),
    Answer(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Output {
    Sent { port: u32, packets: u32, total: u64 },
    Exhausted,
    Gone(bool),
    Owner(Owner),
}

/// The owner of a free port.
fn nobody() -> Owner {
    Owner { host: host(0), packets: 0 }
}

fn shared<M: Memory>(memory: &M) -> Shared<M> {
    Shared {
        pool: memory.allocator(PORTS),
        by_host: memory.map(PORTS),
        owners: memory.vector(PORTS, nobody()),
        total: memory.vector(1, 0),
    }
}

/// The handler, as an author writes it.
fn step<'a, M: Memory>(s: &'a Shared<M>, tx: &mut M::Tx<'a>, input: Input) -> Result<Output, M::Conflict> {
    match input {
        Input::Packet(host, now) => {
            if let Some(index) = s.pool.expire(tx, now)? {
                release(s, tx, index)?;
            }
            let deadline = now + Nanos(40);
            let port = match s.by_host.get(tx, &host)? {
                Some(port) => port as usize,
                None => match s.pool.allocate(tx, deadline)? {
                    Some(port) => {
                        assert!(s.by_host.insert(tx, host, port as u32)?, "as many pairs as ports");
                        port
                    }
                    None => return Ok(Output::Exhausted),
                },
            };
            let packets = s.owners.read(tx, port)?.packets + 1;
            let total = s.total.read(tx, 0)? + 1;
            s.owners.write(tx, port, Owner { host, packets })?;
            s.total.write(tx, 0, total)?;
            s.pool.refresh(tx, port, deadline)?;
            Ok(Output::Sent { port: port as u32, packets, total })
        }
        Input::Hangup(host) => match s.by_host.get(tx, &host)? {
            Some(port) => {
                s.pool.free(tx, port as usize)?;
                release(s, tx, port as usize)?;
                Ok(Output::Gone(true))
            }
            None => Ok(Output::Gone(false)),
        },
        Input::Answer(port) => Ok(Output::Owner(s.owners.read(tx, port)?)),
    }
}

fn release<'a, M: Memory>(s: &'a Shared<M>, tx: &mut M::Tx<'a>, port: usize) -> Result<(), M::Conflict> {
    let Owner { host, packets } = s.owners.read(tx, port)?;
    assert_ne!(packets, 0, "a port in use has an owner");
    s.owners.write(tx, port, nobody())?;
    assert_eq!(s.by_host.remove(tx, &host)?, Some(port as u32));
    Ok(())
}

/// The inputs of one thread, drawn from its seed.
fn inputs(seed: u64, count: u64) -> impl Iterator<Item = Input> {
    (0..count).map(move |n| {
        let draw = host(n as u32).hash(seed);
        let host = host((draw >> 8) as u32 % HOSTS);
        match draw % 8 {
            0 => Input::Hangup(host),
            1 | 2 => Input::Answer((draw >> 8) as usize % PORTS),
            _ => Input::Packet(host, Nanos(n)),
        }
    })
}

fn host(number: u32) -> Host4 {
    match Host::v4(number.into()) {
        Host::V4(host) => host,
        Host::V6(_) => unreachable!("made from an IPv4 address"),
    }
}

/// Runs one input until it commits; returns how often it aborted.
fn run(
    handle: &mut CoreHandle,
    memory: &Transactional,
    shared: &Shared<Transactional>,
    input: Input,
) -> (CommitPosition, Output, u32) {
    for aborts in 0.. {
        let mut log = handle.log(memory);
        let mut tx = log.attempt(aborts);
        let output = step(shared, &mut tx, input);
        // Lets other threads run in between, even on few cores.
        std::thread::yield_now();
        if let Ok(output) = output
            && let Ok(place) = tx.commit()
        {
            return (place, output, aborts);
        }
    }
    unreachable!("an irrevocable transaction can't fail")
}

#[test]
fn four_threads_do_what_one_would_have_done_in_the_order_of_commits() {
    for recording in [false, true] {
        let memory = Transactional::new(4, 5);
        let together = shared(&memory);
        let start = Barrier::new(4);
        let mut log = std::thread::scope(|scope| {
            let (memory, together, start) = (&memory, &together, &start);
            let core = |mut handle: CoreHandle| {
                scope.spawn(move || {
                    handle.record(recording);
                    start.wait();
                    let mut log = Vec::new();
                    for (nth, input) in inputs(handle.core() as u64, 1500).enumerate() {
                        let (place, output, aborts) = run(&mut handle, memory, together, input);
                        log.push(((place, handle.core(), nth), input, output, aborts));
                    }
                    log
                })
            };
            let cores: Vec<_> = memory.core_handles().into_iter().map(core).collect();
            cores.into_iter().flat_map(|core| core.join().unwrap()).collect::<Vec<_>>()
        });
        log.sort_by_key(|&(order, ..)| order);
        assert!(log.iter().any(|&(.., aborts)| aborts > 0), "they met");
        assert!(log.iter().all(|&(.., aborts)| aborts <= ABORTS_MAX), "an irrevocable transaction can't fail");

        let fresh = Transactional::new(4, 5);
        let alone = shared(&fresh);
        let mut handles = fresh.core_handles();
        for (order, input, output, _) in log {
            let (_, again, aborts) = run(&mut handles[order.1], &fresh, &alone, input);
            assert_eq!((again, aborts), (output, 0), "{input:?} at {order:?}");
        }
    }
}

#[test]
fn cores_that_touch_different_objects_never_fail() {
    let memory = Transactional::new(4, 5);
    let counters = memory.vector(64, 0u64);
    let aborts: u32 = std::thread::scope(|scope| {
        let (memory, counters) = (&memory, &counters);
        let core = |mut handle: CoreHandle| {
            scope.spawn(move || {
                let mut aborts = 0;
                for n in 0..20_000 {
                    let index = handle.core() * 16 + n % 16;
                    let mut log = handle.log(memory);
                    let mut tx = log.begin();
                    let counted =
                        counters.read(&mut tx, index).and_then(|count| counters.write(&mut tx, index, count + 1));
                    aborts += u32::from(counted.is_err() || tx.commit().is_err());
                }
                aborts
            })
        };
        let cores: Vec<_> = memory.core_handles().into_iter().map(core).collect();
        cores.into_iter().map(|core| core.join().unwrap()).sum()
    });
    assert_eq!(aborts, 0);
}

#[test]
fn who_looks_at_everything_gets_its_turn_however_fast_others_write() {
    let memory = Transactional::new(3, 5);
    let cells = memory.vector(32, 0u64);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut handles = memory.core_handles().into_iter();
        let mut reader = handles.next().unwrap();
        let mut writers = Vec::new();
        for mut handle in handles {
            let (memory, cells, stop) = (&memory, &cells, &stop);
            writers.push(scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut log = handle.log(memory);
                    let mut tx = log.begin();
                    let both = cells.read(&mut tx, 0).and_then(|n| {
                        cells.write(&mut tx, 0, n + 1)?;
                        cells.write(&mut tx, 31, n + 1)
                    });
                    if both.is_ok() {
                        let _collided = tx.commit();
                    }
                }
            }));
        }
        // Ends the other threads even on a panic.
        let guard = Stop(&stop);
        let mut irrevocable = 0;
        // How many rounds this needs depends on the scheduler.
        for _ in 0..1000 {
            if irrevocable == 3 {
                break;
            }
            for aborts in 0.. {
                assert!(aborts <= ABORTS_MAX);
                let mut log = reader.log(&memory);
                let mut tx = log.attempt(aborts);
                let seen = (0..32).map(|at| {
                    // A worst-case schedule: the others run in the middle.
                    if at == 16 {
                        std::thread::yield_now();
                    }
                    cells.read(&mut tx, at)
                });
                let seen: Result<Vec<u64>, _> = seen.collect();
                if let Ok(seen) = seen
                    && tx.commit().is_ok()
                {
                    assert_eq!(seen[0], seen[31], "both or none");
                    irrevocable += u32::from(aborts == ABORTS_MAX);
                    break;
                }
            }
        }
        assert!(irrevocable > 0, "the schedule was bad enough to need irrevocable transactions");
        drop(guard);
        // The sanitizer recognises a join, but not the end of a scope.
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

/// Stops the other threads when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn four_threads_under_a_lock_do_what_one_does_in_the_order_of_the_lock() {
    let memory = Locked::keyed(5);
    let together = shared(&memory);
    let (start, order) = (Barrier::new(4), AtomicU64::new(0));
    let mut log = std::thread::scope(|scope| {
        let (memory, together, start, order) = (&memory, &together, &start, &order);
        let core = |core: u64| {
            scope.spawn(move || {
                start.wait();
                let taken = inputs(core, 1500).map(|input| {
                    let mut tx = memory.begin();
                    let Ok(output) = step(together, &mut tx, input);
                    // Lets other threads try to enter.
                    std::thread::yield_now();
                    // ORDERING: Relaxed. The lock is still held, so numbers are drawn in the order of steps.
                    let nth = order.fetch_add(1, Ordering::Relaxed);
                    drop(tx);
                    (nth, core, input, output)
                });
                taken.collect::<Vec<_>>()
            })
        };
        let cores: Vec<_> = (0..4).map(core).collect();
        cores.into_iter().flat_map(|core| core.join().unwrap()).collect::<Vec<_>>()
    });
    log.sort_by_key(|&(nth, ..)| nth);
    assert!(log.windows(2).any(|pair| pair[0].1 != pair[1].1), "the cores alternated");
    let alone = shared(&Local::keyed(5));
    for (nth, _, input, output) in log {
        assert_eq!(step::<Local>(&alone, &mut LocalTx::default(), input), Ok(output), "{input:?} at {nth}");
    }
}

#[test]
fn the_same_handler_runs_in_local_memory() {
    let local = shared(&Local::default());
    let counted = inputs(9, 5000).filter(|&input| {
        let Ok(output) = step::<Local>(&local, &mut LocalTx::default(), input);
        matches!(output, Output::Sent { .. })
    });
    let counted = counted.count() as u64;
    assert_eq!(local.total.read(&mut LocalTx::default(), 0), Ok(counted));
}

/// Steps that change something outside the memory, which no abort can undo: each does it once.
#[test]
fn irrevocable_steps_act_once() {
    const STEPS: u64 = 20_000;
    let memory = Transactional::new(4, 3);
    let (cells, outside) = (memory.vector(3, 0_u64), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (memory, cells, outside) = (&memory, &cells, &outside);
        let core = |(core, mut handle): (usize, CoreHandle)| {
            scope.spawn(move || {
                for number in 0..STEPS {
                    let (acts, early) = (number % 5 == core as u64, number % 2 == 0);
                    for aborts in 0.. {
                        let mut log = handle.log(memory);
                        let mut tx = log.attempt(aborts);
                        let step = |tx: &mut _| {
                            if acts && early {
                                Transactional::irrevocable(tx)?;
                            }
                            let count = cells.read(tx, (number % 3) as usize)?;
                            if acts {
                                Transactional::irrevocable(tx)?;
                                // ORDERING: Relaxed. Only the sum matters.
                                outside.fetch_add(1, Ordering::Relaxed);
                            }
                            cells.write(tx, (number % 3) as usize, count + u64::from(acts))
                        };
                        if step(&mut tx).is_ok() && tx.commit().is_ok() {
                            break;
                        }
                    }
                }
            })
        };
        let cores: Vec<_> = memory.core_handles().into_iter().enumerate().map(core).collect();
        cores.into_iter().for_each(|core| core.join().unwrap());
    });
    let mut handles = memory.core_handles();
    let mut log = handles[0].log(&memory);
    let mut tx = log.begin();
    let sum: u64 = (0..3).map(|cell| cells.read(&mut tx, cell).expect("nobody runs")).sum();
    assert_eq!((outside.into_inner(), sum), (STEPS / 5 * 4, STEPS / 5 * 4));
}
