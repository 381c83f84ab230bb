//! The engine of shared state where it is hardest: few flows and many threads, time that jumps past every deadline, tables
//! that are full. What it did must be a sequential run over its witness.

use std::sync::Arc;

use engine::{EngineKind, Inspect, Options, shared_instance};
use flow::{Ageing, EntryGuard, Eviction};
use functions::{conntrack, ddos, heavy_hitter, policer, port_knock};
use lab::conformance::{Plan, Verified, verify};
use memory::{Memory, Vector};
use nf::{
    Context, Description, Flow, Function, NetworkFunction, Opened, PacketSet, Plain, Reason, Sharing, Sizing, Speed,
    Step, Verdict,
};
use packet::{Headers, Host, Nanos};
use port::{Batch, Trace};
use serde::de::DeserializeOwned;
use synth::{FlowTransport, Params, Profile};
use testkit::Synth;

fn config<C: DeserializeOwned>(text: &str) -> C {
    toml::from_str(text).expect("the test's own configuration")
}

/// So many flows; at a packet a second and timeouts of one, each look finds somebody dead.
fn traffic(flows: u64, rate_pps: u64) -> Trace {
    let params = Params {
        packets: 3_000.max(8 * flows),
        rate_pps,
        flows: Some(flows),
        hosts: Some(flows.div_ceil(4)),
        transport: Some(FlowTransport::Tcp),
        ipv6_percent: 20,
        ..Params::default()
    };
    Synth::new(Profile::Uniform, &params).expect("the parameters are in range").trace()
}

fn plan(threads: bool) -> Plan {
    Plan { engines: vec![EngineKind::Shared], cores: 2..=8, seeds: 0..3, threads, options: Options::default() }
}

fn hold<N: Function + Clone>(nf: &N) {
    hold_guarded(nf, EntryGuard::Lock);
    if N::Speed::ADDS {
        hold_guarded(nf, EntryGuard::Atomic);
    }
}

fn hold_guarded<N: Function + Clone>(nf: &N, guard: EntryGuard) {
    let mut plan = plan(true);
    plan.options.tables.guard = guard;
    // At a million a second there are more packets of a flow than a sum holds.
    for (flows, rate) in [(1, 1_000), (1, 1_000_000), (3, 1), (40, 2), (400, 100_000)] {
        let trace = traffic(flows, rate);
        let verified = verify(&Arc::new(nf.clone()), &trace, &plan, &mut |_, _| ());
        let name = N::DESCRIPTION.name;
        assert_eq!(verified.mismatch, None, "{name} over {flows} flows at {rate} a second, {guard:?}");
        assert!(!verified.was_full, "what is full is not compared");
    }
}

#[test]
fn few_flows_and_many_threads_have_a_witness() {
    hold(&ddos::Ddos::new(&config("threshold = 20\nidle_timeout = 1")));
    hold(&ddos::Ddos::new(&config("threshold = 20\nwindow = 0\nidle_timeout = 1")));
    hold(&heavy_hitter::HeavyHitter::new(&config("heavy_bytes = 5000\nidle_timeout = 1")));
    hold(&policer::Policer::new(&config("rate = \"8kbit\"\nburst = 2000\nidle_timeout = 1")));
    hold(&port_knock::PortKnock::new(&config("ports = [443, 80]\nknock_timeout = 1\nidle_timeout = 1")));
    hold(&conntrack::Conntrack::new(conntrack::Config::default()));
}

/// The trace over and over on cores in turn, under every policy, in a table for far fewer flows than it has.
#[test]
fn a_full_table_keeps_its_bounds_and_its_books() {
    keeps_its_books(&conntrack::Conntrack::new(conntrack::Config::default()), EntryGuard::Lock);
    keeps_its_books(&heavy_hitter::HeavyHitter::new(&config("heavy_bytes = 2000")), EntryGuard::Atomic);
}

fn keeps_its_books<N: Function + Clone>(nf: &N, guard: EntryGuard) {
    let trace = traffic(2_000, 100_000);
    for eviction in Eviction::ALL {
        for ageing in Ageing::ALL {
            let mut options = Options { flows_max: Some(64), pin: false, ..Options::default() };
            (options.tables.eviction, options.tables.ageing, options.tables.guard) = (eviction, ageing, guard);
            let mut instance = shared_instance(Arc::new(nf.clone()), 3, &options);
            let mut batch = Batch::default();
            for (index, (packet, bytes)) in trace.iter().enumerate() {
                batch.push(*packet, bytes);
                if batch.len() == 50 {
                    instance.workers[index % 3].process(&mut batch);
                    batch.clear();
                }
            }
            let counters = instance.counters();
            let flows = counters.flows;
            assert!(counters.add_up() && flows.was_full(), "{eviction:?} {ageing:?}: {counters:?}");
            assert_eq!(flows.evicted > 0, eviction != Eviction::None, "{eviction:?} {ageing:?}: {flows:?}");
            let known = flows.opened - flows.expired - flows.closed - flows.evicted;
            let alive = instance.flows(Nanos(0)).len() as u64;
            assert_eq!(alive, known, "{eviction:?} {ageing:?}: {flows:?}");
            assert!(instance.high_water() <= 2 * 64, "{eviction:?} {ageing:?}");
        }
    }
}

/// Known flows alone, all of which end at once: nobody who comes later waits for a table to be swept.
#[test]
fn a_table_of_known_flows_ages() {
    EntryGuard::ALL.into_iter().for_each(ages);
}

fn ages(guard: EntryGuard) {
    let trace = traffic(1_000, 1_000_000);
    let nf = Arc::new(heavy_hitter::HeavyHitter::new(&config("idle_timeout = 1")));
    let mut options = Options { flows_max: Some(4_096), pin: false, ..Options::default() };
    options.tables.guard = guard;
    let mut instance = shared_instance(nf, 2, &options);
    let mut batch = Batch::default();
    trace.iter().for_each(|(packet, bytes)| batch.push(*packet, bytes));
    instance.workers[0].process(&mut batch);
    let before = instance.counters().flows;
    assert!(before.opened > 500 && before.expired == 0, "{before:?}");
    // One flow goes on, an hour later: the others are taken away while it does.
    let (packet, bytes) = trace.iter().next().expect("there are packets");
    batch.clear();
    for number in 0..20_000 {
        batch.push(port::Packet { time: packet.time + Nanos::from_secs(3_600) + Nanos(number), ..*packet }, bytes);
    }
    instance.workers[1].process(&mut batch);
    let after = instance.counters().flows;
    assert_eq!((after.opened, after.expired), (before.opened + 1, before.opened), "{after:?}");
}

/// Lets three packets through in all, whoever sends them, and claims that sources share nothing.
#[derive(Clone)]
struct Liar;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen;

impl Flow for Seen {}

impl NetworkFunction for Liar {
    type Meta = Host;
    type Flow = Seen;
    type Shared<M: Memory> = M::Vector<u64>;
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "liar",
        summary: "counts all packets together",
        state: "that the source was seen",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &["enough"],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 1_000, flows_v6: 1_000 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> M::Vector<u64> {
        memory.vector(1, 0)
    }

    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> {
        headers.source()
    }

    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<Seen>, M> {
        Ok(Opened::Flow(Seen))
    }

    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &mut Seen, _: &Host) -> Step<Verdict, M> {
        let seen = cx.shared.read(&mut cx.tx, 0)?;
        cx.shared.write(&mut cx.tx, 0, seen + 1)?;
        Ok(if seen < 3 { Verdict::FORWARD } else { Verdict::Drop(Reason::own(0)) })
    }
}

#[test]
fn hidden_sharing_has_no_witness() {
    let check = |trace: &Trace| -> Verified { verify(&Arc::new(Liar), trace, &plan(false), &mut |_, _| ()) };
    let trace = traffic(40, 1_000);
    let mismatch = check(&trace).mismatch.expect("cores count by themselves");
    assert_eq!((mismatch.engine, mismatch.cores), (EngineKind::Shared, 2));
    assert_eq!(check(&trace.prefix(mismatch.prefix - 1)).mismatch, None);
}
