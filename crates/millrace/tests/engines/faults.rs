//! Every function under every engine over traffic that has come to harm on the way in: packets lost, doubled, out of
//! order, damaged, cut, and a queue that stalls. `sequential` over what is left is what all are held against.

use std::sync::Arc;

use engine::{Control, EngineKind, Guarantee, Options, run};
use functions::{conntrack, ddos, firewall, heavy_hitter, nat, policer, port_knock};
use lab::conformance::{Plan, verify};
use nf::Function;
use packet::Seq;
use port::{Batch, Faults, FaultyPort, MemoryQueue, Opened, Outbox, Port, Receive, Received, Sent, Trace};
use serde::de::DeserializeOwned;
use synth::{FlowTransport, Params, Profile};
use testkit::Synth;

const PACKETS: u64 = 500;
const SEEDS: u64 = 3;
/// What the queue inside delivers at a time.
const BURST: usize = 32;

fn faults(seed: u64) -> Faults {
    Faults {
        seed,
        loss: 0.05,
        duplicate: 0.1,
        reorder: 0.1,
        reorder_window: 16,
        corrupt: 0.05,
        corrupt_bits_max: 4,
        truncate: 0.05,
        stall: 0.3,
        stall_calls: 3,
    }
}

/// Few hosts and connections that end, so that what is lost, doubled or early matters to the state.
fn traces() -> Vec<(&'static str, Arc<Trace>)> {
    let few = Params { packets: PACKETS, hosts: Some(4), flows: Some(40), ipv6_percent: 20, ..Params::default() };
    let tcp = Params { transport: Some(FlowTransport::Tcp), burst: 4.0, rate_pps: 2_000, ..few.clone() };
    let trace = |profile, params| Arc::new(Synth::new(profile, params).expect("it is possible").trace());
    vec![("university-dc", trace(Profile::UniversityDc, &tcp)), ("uniform", trace(Profile::Uniform, &few))]
}

/// A port in front of which the faults happen.
fn faulty(trace: &Arc<Trace>, seed: u64) -> FaultyPort<MemoryQueue> {
    FaultyPort::new(MemoryQueue::new(Arc::clone(trace), BURST), faults(seed))
}

/// What comes out of the faults.
fn harmed(trace: &Arc<Trace>, seed: u64) -> Trace {
    let (mut port, mut harmed, mut batch, mut stalls) = (faulty(trace, seed), Trace::new(), Batch::default(), 0);
    let Ok(Opened::Stream(mut queue)) = port.open(1) else { panic!("a faulty queue is a stream") };
    loop {
        match queue.receive(&mut batch).expect("memory is there") {
            Received::Packets => {
                let packets = batch.packets().iter().enumerate();
                packets.for_each(|(index, packet)| harmed.push(*packet, batch.bytes(index)));
            }
            Received::Idle => stalls += 1,
            Received::End => break,
        }
    }
    assert!(stalls > 0, "seed {seed}: the queue never stalled");
    harmed
}

/// All functions, with thresholds that the traces reach.
macro_rules! functions {
    ($each:ident, $($arguments:expr),*) => {
        $each(&ddos::Ddos::new(&config("threshold = 20\nidle_timeout = 1")), $($arguments),*);
        $each(&heavy_hitter::HeavyHitter::new(&config("idle_timeout = 1")), $($arguments),*);
        $each(&policer::Policer::new(&config("rate = \"64kbit\"\nburst = 3000\nidle_timeout = 1")), $($arguments),*);
        $each(&port_knock::PortKnock::new(&config("ports = [443, 80]\nknock_timeout = 1")), $($arguments),*);
        $each(&conntrack::Conntrack::new(config("")), $($arguments),*);
        $each(&firewall::Firewall::new(config("")), $($arguments),*);
        $each(&nat::Nat::new(config("mappings = 512\nsessions = 512")), $($arguments),*);
    };
}

fn config<C: DeserializeOwned>(text: &str) -> C {
    toml::from_str(text).expect("the test's own configuration")
}

#[test]
fn the_faults_are_there() {
    for (name, trace) in traces() {
        for seed in 0..SEEDS {
            let harmed = harmed(&trace, seed);
            // A packet that comes twice does so at once, and none of the others has both its time and its bytes.
            let all: Vec<_> = harmed.iter().map(|(packet, bytes)| (packet.time, bytes)).collect();
            let twice = all.windows(2).filter(|pair| pair[0] == pair[1]).count();
            assert!(twice > 10, "{name}: {twice} come twice");
            let lost = trace.len() + twice - harmed.len();
            assert!(lost > 10, "{name}: {lost} are lost");
            assert!(harmed.packets().iter().any(|packet| packet.len < packet.wire_len), "{name}: none is cut");
            let place = |bytes: &[u8]| trace.iter().position(|(_, other)| other == bytes);
            let damaged =
                |(packet, bytes): (&port::Packet, &[u8])| packet.len == packet.wire_len && place(bytes).is_none();
            assert!(harmed.iter().any(damaged), "{name}: none is damaged");
            let places: Vec<_> = harmed.iter().filter_map(|(_, bytes)| place(bytes)).collect();
            assert!(!places.is_sorted(), "{name}: none is overtaken");
            assert!(harmed.packets().iter().enumerate().all(|(number, packet)| packet.seq == Seq(number as u64)));
            assert!(harmed.packets().is_sorted_by_key(|packet| packet.time), "{name}: time runs backwards");
        }
    }
}

#[test]
fn engines_agree_over_what_faults_leave() {
    for (name, trace) in traces() {
        for seed in 0..SEEDS {
            functions!(agree, &harmed(&trace, seed), &format!("{name}, faults of seed {seed}"));
        }
    }
}

fn agree<N: Function + Clone>(function: &N, harmed: &Trace, what: &str) {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..1,
        threads: true,
        options: Options::default(),
    };
    let verified = verify(&Arc::new(function.clone()), harmed, &plan, &mut |_, _| ());
    assert_eq!(verified.mismatch, None, "{} over {what}", N::DESCRIPTION.name);
    assert!(!verified.was_full, "{} over {what}: not all was compared", N::DESCRIPTION.name);
}

/// The faults happen while the engine runs, and what it sends is what `sequential` sends.
#[test]
fn engines_send_the_same_behind_a_faulty_queue() {
    for (name, trace) in traces() {
        for seed in 0..SEEDS {
            functions!(live, &trace, seed, name);
        }
    }
}

fn live<N: Function + Clone>(function: &N, trace: &Arc<Trace>, seed: u64, name: &str) {
    let function = Arc::new(function.clone());
    let harmed = Arc::new(harmed(trace, seed));
    let behind_faults = |kind, cores| {
        let mut queue = faulty(trace, seed);
        let outbox = queue.inner().outbox();
        sent(&function, (kind, cores), &mut queue, &outbox, harmed.len())
    };
    let expected = behind_faults(EngineKind::Sequential, 1);
    let mut queue = MemoryQueue::new(Arc::clone(&harmed), 7);
    let outbox = queue.outbox();
    let from_memory = sent(&function, (EngineKind::Sequential, 1), &mut queue, &outbox, harmed.len());
    let about = N::DESCRIPTION.name;
    assert!(expected == from_memory, "{about} over {name}: a faulty queue is not what comes out of it");
    // Nobody knocks by UDP, and so nobody is let in.
    let (knocks, tcp) = (about == "port-knock", name == "university-dc");
    assert_eq!(expected.is_empty(), knocks && !tcp, "{about} over {name}");
    for kind in EngineKind::ALL {
        for cores in [1, 2, 3] {
            if kind.accepts(&N::DESCRIPTION, cores).is_err() {
                continue;
            }
            let sent = behind_faults(kind, cores);
            let what = format!("{} under {kind} on {cores} over {name}, faults of seed {seed}", N::DESCRIPTION.name);
            assert!(sent.is_sorted_by(|a, b| a.seq < b.seq), "{what}: the output is in input order");
            // On several cores `shared` takes the packets in an order of its own, which `verify` has it tell.
            if kind.guarantee(N::DESCRIPTION.sharing) != Guarantee::Serializable || cores == 1 {
                assert_eq!(sent.len(), expected.len(), "{what}");
                let differs = sent.iter().zip(&expected).find(|(sent, expected)| sent != expected);
                assert_eq!(differs, None, "{what}");
            }
        }
    }
}

/// What an engine sends that takes in `received` packets by a queue with this outbox.
fn sent<N: Function>(
    function: &Arc<N>,
    (kind, cores): (EngineKind, usize),
    port: &mut dyn Port,
    outbox: &Outbox,
    received: usize,
) -> Vec<Sent> {
    let options = Options { flows_max: Some(1 << 10), pin: false, ..Options::default() };
    let outcome = run(Arc::clone(function), kind, cores, &options, port, &Control::default()).expect("it is taken");
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    assert!(outcome.counters.add_up() && outcome.counters.received == received as u64, "{:?}", outcome.counters);
    assert!(!outcome.counters.flows.was_full(), "not all can be compared");
    outbox.take()
}
