//! The structures' traits fit a transactional memory: a handler written once with `?`, run by four threads at a time, does
//! what some serial order of its steps would have done. The memory says which order, and a replay in it must agree.

mod optimistic;

use std::sync::{Barrier, Mutex};

use memory::{Allocator, Local, LocalTx, Map, Memory, Vector};
use optimistic::{Optimistic, Place};
use packet::{Host, Host4, Key, Nanos};

const HOSTS: u32 = 24;
const PORTS: usize = 8;

/// The shape of a translator: hosts share a pool of ports, each pair is known from both sides.
struct Shared<M: Memory> {
    pool: M::Allocator,
    by_host: M::Map<Host4, u32>,
    owners: M::Vector<Option<(Host4, u32)>>,
    total: M::Vector<u64>,
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
    Owner(Option<(Host4, u32)>),
}

fn shared<M: Memory>(memory: &M) -> Shared<M> {
    Shared {
        pool: memory.allocator(PORTS),
        by_host: memory.map(PORTS),
        owners: memory.vector(PORTS, None),
        total: memory.vector(1, 0),
    }
}

/// What an author writes.
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
            let packets = s.owners.read(tx, port)?.map_or(1, |(_, packets)| packets + 1);
            let total = s.total.read(tx, 0)? + 1;
            s.owners.write(tx, port, Some((host, packets)))?;
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
    let (host, _) = s.owners.read(tx, port)?.expect("a port in use has an owner");
    s.owners.write(tx, port, None)?;
    assert_eq!(s.by_host.remove(tx, &host)?, Some(port as u32));
    Ok(())
}

/// The `count` inputs of one thread, drawn from its seed.
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

/// Runs one input until it commits.
fn run(memory: &Optimistic, shared: &Shared<Optimistic>, input: Input) -> (Place, Output) {
    loop {
        let mut tx = memory.begin();
        let output = step(shared, &mut tx, input);
        // Others get in between here, however few cores there are.
        std::thread::yield_now();
        let done = output.and_then(|output| Ok((tx.commit()?, output)));
        if let Ok(done) = done {
            return done;
        }
    }
}

#[test]
fn four_threads_do_what_one_would_have_done_in_the_order_of_commits() {
    let memory = Optimistic::default();
    let together = shared(&memory);
    let (log, start) = (Mutex::new(Vec::new()), Barrier::new(4));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (memory, together, log, start) = (&memory, &together, &log, &start);
            scope.spawn(move || {
                start.wait();
                for input in inputs(seed, 3000) {
                    let (place, output) = run(memory, together, input);
                    log.lock().unwrap().push((place, input, output));
                }
            });
        }
    });
    let mut log = log.into_inner().unwrap();
    log.sort_by_key(|&(place, ..)| place);

    let fresh = Optimistic::default();
    let alone = shared(&fresh);
    for (place, input, output) in log {
        assert_eq!(run(&fresh, &alone, input).1, output, "{input:?} at {place:?}");
    }
}

#[test]
fn a_step_that_read_what_another_wrote_meanwhile_does_not_commit() {
    let memory = Optimistic::default();
    let shared = shared(&memory);
    let (mut first, mut second) = (memory.begin(), memory.begin());
    let packet = Input::Packet(host(1), Nanos(1));
    let sent = Output::Sent { port: 0, packets: 1, total: 1 };
    assert_eq!(step(&shared, &mut first, packet).unwrap(), sent);
    assert_eq!(step(&shared, &mut second, packet).unwrap(), sent);
    let mut reader = memory.begin();
    assert_eq!(step(&shared, &mut reader, Input::Answer(0)).unwrap(), Output::Owner(None));
    let second = second.commit().unwrap();
    first.commit().unwrap_err();
    step(&shared, &mut memory.begin(), packet).unwrap();
    assert!(reader.commit().unwrap() < second, "a reader stands where it looked");
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
