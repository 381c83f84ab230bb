//! After start, the data path allocates nothing: a counting allocator watches each function under each engine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Cursor;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use millrace::engine::{
    Control, CoreBatch, EngineInstance, EngineKind, Options, Placement, Tables, private_instance, run,
    sharded_instance, shared_instance, transacted_instance,
};
use millrace::flow::EntryGuard;
use millrace::functions::{Catalogued, Visitor, ddos, each};
use millrace::l7::defrag::{DefragmentedQueue, Limits, Policy};
use millrace::nf::Function;
use millrace::port::pcap::Reader;
use millrace::port::{
    Batch, Fate, Loops, Opened, Packet, Port, PortError, Receive, Received, Renumber, Replay, Stream, Trace, Transmit,
};
use millrace::prelude::*;
use millrace::synth::{Build, Params, Profile, Synth};

/// Counts what the system's allocator is asked for.
struct Counting;

thread_local! {
    static BY_THREAD: Cell<u64> = const { Cell::new(0) };
}
static IN_ALL: AtomicU64 = AtomicU64::new(0);

fn count() {
    // A thread that is being torn down has no counter any more; what it does then is no data path.
    let _ = BY_THREAD.try_with(|count| count.set(count.get() + 1));
    // ORDERING: Relaxed. A number that is read once all threads have been joined.
    IN_ALL.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the system allocator's own.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Loops over the trace until every buffer has its size.
const WARM: u64 = 2;
/// Loops that are watched.
const WATCHED: u64 = 3;

/// Tables that fill up on the traces, so that eviction and orphans are watched too.
const FLOWS_MAX: usize = 4_096;

fn traces() -> Vec<(&'static str, Arc<Trace>)> {
    let mut reader = Reader::from_read(Cursor::new(millrace::DEMO_CAPTURE), "demo").unwrap();
    let demo = Trace::load(&mut reader, usize::MAX).unwrap();
    let params = Params { packets: 20_000, flows: Some(6_000), ipv6_percent: 20, ..Params::default() };
    let mut synth = Synth::new(Profile::Uniform, &params).unwrap();
    let mut flood = Trace::new();
    let template = demo.packets()[0];
    let mut seq = 0;
    let link = synth.link();
    while let Some((time, bytes)) = synth.next_frame() {
        let wire_len = bytes.len() as u32;
        flood.push(Packet { seq: Seq(seq), time, wire_len, link, ..template }, bytes);
        seq += 1;
    }
    vec![("demo", Arc::new(demo)), ("more flows than room", Arc::new(flood))]
}

/// Takes an instance through the trace, batch by batch, all cores on this thread, as the pump would; returns what was
/// allocated once every buffer had its size.
fn watch<N: Function, P: Placement<N>>(mut instance: EngineInstance<N, P>, trace: &Arc<Trace>) -> u64 {
    let mut replay =
        Replay::new(Arc::clone(trace)).looped(Loops::Times(WARM + WATCHED)).renumbered(Renumber::default());
    let mut queue = replay.queues(1).remove(0);
    let mut batch = Batch::default();
    let mut shares: Vec<CoreBatch<N::Meta>> = instance.workers.iter().map(|_| CoreBatch::default()).collect();
    let (mut packets, mut allocated) = (0, 0);
    while queue.receive(&mut batch).unwrap() != Received::End {
        let before = BY_THREAD.get();
        instance.dispatcher.split(&batch, &mut shares);
        // On one thread a core can't wait for another: all let go before anyone takes.
        for (worker, share) in instance.workers.iter_mut().zip(&shares) {
            share.block.iter().for_each(|block| worker.release(&block.moves()));
        }
        for (worker, share) in instance.workers.iter_mut().zip(&mut shares) {
            share.block.iter().for_each(|block| worker.acquire(&block.moves()));
            let mut batch = std::mem::take(&mut share.batch);
            share.process(worker, &mut batch);
            share.batch = batch;
            share.block = None;
        }
        packets += batch.len() as u64;
        if packets > WARM * trace.len() as u64 {
            allocated += BY_THREAD.get() - before;
        }
        queue.transmit(&mut batch).unwrap();
    }
    assert_eq!(packets, (WARM + WATCHED) * trace.len() as u64);
    allocated
}

fn all_engines<N: Function>(build: impl Fn() -> N) {
    let options = Options { flows_max: Some(FLOWS_MAX), pin: false, ..Options::default() };
    let name = N::DESCRIPTION.name;
    for (traffic, trace) in &traces() {
        for kind in EngineKind::ALL {
            for cores in [1, 3] {
                if kind.accepts(&N::DESCRIPTION, cores).is_err() {
                    continue;
                }
                let nf = Arc::new(build());
                let allocated = match kind {
                    EngineKind::Shared => watch(shared_instance(nf, cores, &options), trace),
                    EngineKind::Transactional if N::DESCRIPTION.sharing.is_any() => {
                        watch(transacted_instance(nf, cores, &options), trace)
                    }
                    EngineKind::Sequential
                    | EngineKind::Rss
                    | EngineKind::Transactional
                    | EngineKind::Scr
                    | EngineKind::Pipeline => watch(private_instance(kind, nf, cores, &options), trace),
                    EngineKind::RssPlusPlus | EngineKind::Hybrid => {
                        watch(sharded_instance(kind, nf, cores, &options), trace)
                    }
                };
                assert_eq!(allocated, 0, "{name} under {kind} on {cores} cores over {traffic}");
            }
        }
        if N::Speed::ADDS {
            let atomic = Tables { guard: EntryGuard::Atomic, ..Tables::default() };
            let options = Options { tables: atomic, ..options };
            let allocated = watch(shared_instance(Arc::new(build()), 3, &options), trace);
            assert_eq!(allocated, 0, "{name} under shared by atomic operations over {traffic}");
        }
    }
}

/// Each function of the list, on as many threads as there are processors.
#[test]
fn functions_allocate_nothing() {
    struct All(Vec<fn()>);
    impl Visitor for All {
        fn visit<N: Catalogued>(&mut self) {
            self.0.push(|| all_engines(|| N::from_config(toml::from_str(N::SMALL).unwrap())));
        }
    }
    let mut all = All(Vec::new());
    each(&mut all);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            // ORDERING: Relaxed. Each takes another number, in whatever order.
            scope.spawn(|| {
                while let Some(one) = all.0.get(next.fetch_add(1, Ordering::Relaxed)) {
                    one();
                }
            });
        }
    });
    assert!(all.0.len() >= 18, "{} functions", all.0.len());
}

/// A replay as one stream, which cores share.
struct OneStream(Replay);

struct Nowhere;

impl Transmit for Nowhere {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        assert!(batch.packets().is_sorted_by_key(|packet| packet.seq), "in order");
        Ok(())
    }
}

impl Port for OneStream {
    fn open(&mut self, _cores: usize) -> Result<Opened<'_>, PortError> {
        let input = self.0.queues(1).remove(0);
        Ok(Opened::Stream(Stream { input, output: Box::new(Nowhere), order: port::Order::Sent }))
    }
}

/// Whole runs, threads and all: what is allocated doesn't grow with the packets. By itself, as the counter
/// is everybody's: `cargo test --test allocations -- --ignored`.
#[test]
fn fragments_are_gathered_and_cut_without_allocating() {
    let mut trace = Trace::new();
    let template = traces()[0].1.packets()[0];
    let datagrams: Vec<_> = (0..200_u16)
        .map(|id| Build::udp("10.0.0.1:1", "10.0.0.2:2").id(id).payload(usize::from(id) * 40 + 900).fragments(576))
        .collect();
    // The fragments of 20 datagrams are mixed; the last fragment of every tenth is missing.
    for group in datagrams.chunks(20) {
        for nth in 0..20 {
            for (number, frame) in group.iter().enumerate().filter_map(|(at, all)| Some((at, all.get(nth)?))) {
                if number % 10 == 0 && nth + 1 == group[number].len() {
                    continue;
                }
                let (seq, time) = (Seq(trace.len() as u64), Nanos::from_millis(trace.len() as u64 * 10));
                trace.push(Packet { seq, time, wire_len: frame.len() as u32, ..template }, frame);
            }
        }
    }
    let trace = Arc::new(trace);
    let mut replay =
        Replay::new(Arc::clone(&trace)).looped(Loops::Times(WARM + WATCHED)).renumbered(Renumber::default());
    let mut queue = DefragmentedQueue::new(replay.queues(1).remove(0), Policy::Linux, Limits::default());
    let (mut batch, mut allocated) = (Batch::default(), 0);
    loop {
        let before = BY_THREAD.get();
        if queue.receive(&mut batch).unwrap() == Received::End {
            break;
        }
        batch.packets_mut().iter_mut().for_each(|packet| packet.fate = Fate::Transmit(0));
        queue.transmit(&mut batch).unwrap();
        if queue.counts().fragments > WARM * trace.len() as u64 {
            allocated += BY_THREAD.get() - before;
        }
    }
    let counts = queue.counts();
    assert_eq!(counts.fragments, (WARM + WATCHED) * trace.len() as u64);
    assert_eq!((counts.datagrams, allocated), ((WARM + WATCHED) * 180, 0), "{counts:?}");
}

#[test]
#[ignore = "counts for the whole process; run by the test below in a process of its own"]
fn runs_allocate_at_their_start_alone() {
    let (_, trace) = traces().swap_remove(1);
    let options = Options { flows_max: Some(FLOWS_MAX), pin: false, ..Options::default() };
    for (kind, cores) in [
        (EngineKind::Sequential, 1),
        (EngineKind::Rss, 2),
        (EngineKind::Scr, 2),
        (EngineKind::Shared, 2),
        (EngineKind::Pipeline, 3),
    ] {
        let allocated = |loops: u64| {
            let nf = Arc::new(ddos::Ddos::new(&ddos::Config::default()));
            let mut port = OneStream(Replay::new(Arc::clone(&trace)).looped(Loops::Times(loops)));
            // ORDERING: Relaxed, as in `count`; the run joins its threads.
            let before = IN_ALL.load(Ordering::Relaxed);
            let outcome = run(nf, kind, cores, &options, &mut port, &Control::default()).unwrap();
            assert_eq!(outcome.counters.received, loops * trace.len() as u64);
            IN_ALL.load(Ordering::Relaxed) - before
        };
        // Buffers grow to their sizes in an order that the scheduler picks, a few of them late.
        let (short, long) = (allocated(2), allocated(22));
        let batches = 20 * trace.len() as u64 / 32;
        assert!(long < short + batches / 100, "{kind}: {short} for two loops, {long} for twenty-two");
    }
}

#[test]
fn runs_allocate_nothing_by_the_packet() {
    let own = std::env::current_exe().unwrap();
    let arguments = ["--exact", "runs_allocate_at_their_start_alone", "--ignored", "--test-threads", "1"];
    let output = std::process::Command::new(own).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}
