//! After start, the data path allocates nothing: a counting allocator watches each function under each engine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace::engine::{
    Control, CoreBatch, EngineKind, Fleet, Options, Placement, Tables, private_fleet, run, sharded_fleet, shared_fleet,
    transacted_fleet,
};
use millrace::flow::EntryGuard;
use millrace::functions::{
    anti_ddos, app_classifier, asset_monitor, bridge, dns_tunnel, flow_buffer, ipsec, load_balancer, port_scan,
    sidejacking, web_cache,
};
use millrace::functions::{conntrack, ddos, firewall, heavy_hitter, nat, policer, port_knock};
use millrace::nf::Function;
use millrace::port::pcap::Reader;
use millrace::port::{
    Batch, Loops, Opened, Packet, Port, PortError, Received, Renumber, Replay, Stream, Trace, Transmit,
};
use millrace::prelude::*;
use millrace::testkit::synth::{Params, Profile, Synth};

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

/// Takes a fleet through the trace, batch by batch, all cores on this thread, as the pump would; returns what was
/// allocated once every buffer had its size.
fn watch<N: Function, P: Placement<N>>(mut fleet: Fleet<N, P>, trace: &Arc<Trace>) -> u64 {
    let mut replay =
        Replay::new(Arc::clone(trace)).looped(Loops::Times(WARM + WATCHED)).renumbered(Renumber::default());
    let mut queue = replay.queues(1).remove(0);
    let mut batch = Batch::default();
    let mut shares: Vec<CoreBatch<N::Meta>> = fleet.workers.iter().map(|_| CoreBatch::default()).collect();
    let (mut packets, mut allocated) = (0, 0);
    while queue.receive(&mut batch).unwrap() != Received::End {
        let before = BY_THREAD.get();
        fleet.dispatcher.split(&batch, &mut shares);
        // On one thread a core can't wait for another: all let go before anyone takes.
        for (worker, share) in fleet.workers.iter_mut().zip(&shares) {
            share.block.iter().for_each(|block| worker.release(&block.moves()));
        }
        for (worker, share) in fleet.workers.iter_mut().zip(&mut shares) {
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
                    EngineKind::Shared => watch(shared_fleet(nf, cores, &options), trace),
                    EngineKind::Transactional if N::DESCRIPTION.sharing.is_any() => {
                        watch(transacted_fleet(nf, cores, &options), trace)
                    }
                    EngineKind::Sequential | EngineKind::Rss | EngineKind::Transactional | EngineKind::Scr => {
                        watch(private_fleet(kind, nf, cores, &options), trace)
                    }
                    EngineKind::RssPlusPlus | EngineKind::Hybrid => {
                        watch(sharded_fleet(kind, nf, cores, &options), trace)
                    }
                };
                assert_eq!(allocated, 0, "{name} under {kind} on {cores} cores over {traffic}");
            }
        }
        if N::ADDS {
            let atomic = Tables { guard: EntryGuard::Atomic, ..Tables::default() };
            let options = Options { tables: atomic, ..options };
            let allocated = watch(shared_fleet(Arc::new(build()), 3, &options), trace);
            assert_eq!(allocated, 0, "{name} under shared by atomic operations over {traffic}");
        }
    }
}

#[test]
fn ddos_allocates_nothing() {
    all_engines(|| ddos::Ddos::new(&ddos::Config::default()));
}

#[test]
fn heavy_hitter_allocates_nothing() {
    all_engines(|| heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()));
}

#[test]
fn policer_allocates_nothing() {
    all_engines(|| policer::Policer::new(&policer::Config::default()));
}

#[test]
fn port_knock_allocates_nothing() {
    all_engines(|| port_knock::PortKnock::new(&port_knock::Config::default()));
}

#[test]
fn conntrack_allocates_nothing() {
    all_engines(|| conntrack::Conntrack::new(conntrack::Config::default()));
}

#[test]
fn firewall_allocates_nothing() {
    all_engines(|| firewall::Firewall::new(firewall::Config::default()));
}

#[test]
fn nat_allocates_nothing() {
    all_engines(|| nat::Nat::new(nat::Config::default()));
}

#[test]
fn bridge_allocates_nothing() {
    all_engines(|| bridge::Bridge::new(&bridge::Config::default()));
}

#[test]
fn ipsec_allocates_nothing() {
    let tunnel = "[[tunnels]]\nlocal = \"192.0.2.1\"\npeer = \"10.0.0.1\"\ninside = [\"0.0.0.0/1\", \"::/0\"]\nbeyond = [\"128.0.0.0/1\", \"::/0\"]\n\
        spi_out = 4097\nkey_out = \"000102030405060708090a0b0c0d0e0f10111213\"\n\
        spi_in = 4098\nkey_in = \"ff0102030405060708090a0b0c0d0e0f10111213\"\n";
    all_engines(|| ipsec::Ipsec::new(toml::from_str(tunnel).unwrap()));
}

#[test]
fn anti_ddos_allocates_nothing() {
    all_engines(|| anti_ddos::AntiDdos::new(&anti_ddos::Config::default()));
}

#[test]
fn load_balancer_allocates_nothing() {
    all_engines(|| load_balancer::LoadBalancer::new(load_balancer::Config::default()));
}

#[test]
fn port_scan_allocates_nothing() {
    all_engines(|| port_scan::PortScan::new(port_scan::Config::default()));
}

#[test]
fn dns_tunnel_allocates_nothing() {
    all_engines(|| dns_tunnel::DnsTunnel::new(dns_tunnel::Config::default()));
}

#[test]
fn sidejacking_allocates_nothing() {
    all_engines(|| sidejacking::Sidejacking::new(sidejacking::Config::default()));
}

#[test]
fn web_cache_allocates_nothing() {
    all_engines(|| web_cache::WebCache::new(web_cache::Config::default()));
}

#[test]
fn app_classifier_allocates_nothing() {
    all_engines(|| <app_classifier::AppClassifier>::new(&app_classifier::Config::default()));
}

#[test]
fn flow_buffer_allocates_nothing() {
    all_engines(|| flow_buffer::FlowBuffer::new(flow_buffer::Config::default()));
}

#[test]
fn asset_monitor_allocates_nothing() {
    all_engines(|| asset_monitor::AssetMonitor::new(asset_monitor::Config::default()));
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
#[ignore = "counts for the whole process; run by the test below in a process of its own"]
fn runs_allocate_at_their_start_alone() {
    let (_, trace) = traces().swap_remove(1);
    let options = Options { flows_max: Some(FLOWS_MAX), pin: false, ..Options::default() };
    for (kind, cores) in
        [(EngineKind::Sequential, 1), (EngineKind::Rss, 2), (EngineKind::Scr, 2), (EngineKind::Shared, 2)]
    {
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
