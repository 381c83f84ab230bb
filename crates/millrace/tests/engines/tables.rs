//! Flow tables kept in every way: the outcome is the one of the default, and under pressure each policy does what it says.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use engine::{Counters, EngineKind, Inspect, Options, Tables, private_instance};
use flow::index::IndexKind;
use flow::{Ageing, EntryGuard, Eviction};
use functions::{conntrack, ddos, firewall, heavy_hitter, policer, port_knock};
use lab::conformance::{Plan, verify};
use nf::{Function, Reason};
use packet::{Nanos, TcpFlags};
use port::{Batch, Trace};
use synth::{Params, Profile};
use testkit::{Build, Frames, Synth};

#[test]
fn every_table_and_every_ageing_gives_the_outcome_of_the_default() {
    for (profile, packets) in [(Profile::UniversityDc, 1_500), (Profile::SynFlood, 500), (Profile::Backbone, 1_000)] {
        let params = Params { packets, seed: 5, ipv6_percent: 20, ..Params::default() };
        let trace = Synth::new(profile, &params).expect("the parameters are fine").trace();
        for index in IndexKind::ALL {
            for ageing in Ageing::ALL {
                let tables = Tables { index, ageing, ..Tables::default() };
                one(&ddos::Ddos::new(&ddos::Config::default()), &trace, tables);
                one(&heavy_hitter::HeavyHitter::new(&heavy_hitter::Config::default()), &trace, tables);
                one(&policer::Policer::new(&policer::Config::default()), &trace, tables);
                one(&port_knock::PortKnock::new(&port_knock::Config::default()), &trace, tables);
                one(&conntrack::Conntrack::new(conntrack::Config::default()), &trace, tables);
                one(&firewall::Firewall::new(firewall::Config::default()), &trace, tables);
            }
        }
    }
}

fn one<N: Function + Clone>(nf: &N, trace: &Trace, tables: Tables) {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=3,
        seeds: 0..1,
        threads: false,
        options: Options { tables, ..Options::default() },
    };
    let verified = verify(&Arc::new(nf.clone()), trace, &plan, &mut |_, _| ());
    assert_eq!(verified.mismatch, None, "{} with {tables:?}", N::DESCRIPTION.name);
    assert!(verified.refused.is_empty() && verified.runs > 0);
}

/// Flows that the tracker of the flood has room for, and those of them that are established.
const ROOM: u32 = 600;
const ESTABLISHED: u32 = 400;
/// A hundred times the room.
const FLOOD: u32 = 100 * ROOM;

/// Connections that are open, then a flood of SYNs from everywhere with a segment of one of them now and then, then a segment
/// of each. The number of packets that belong to the connections.
fn flood() -> (Trace, u64) {
    let mut frames = Frames::default();
    let mut clock = 1_000_000_000_000;
    let mut legitimate = 0;
    let mut push = |build: Build| {
        clock += 10_000;
        frames.build(Nanos(clock), &build);
    };
    let client = |number: u32| SocketAddr::new(Ipv4Addr::from_bits(0x0a00_0000 | number).into(), 40_000);
    let server: SocketAddr = "192.0.2.1:443".parse().expect("it is an address");
    let segment = |number: u32| Build::tcp(client(number), server).seq(101).ack(301);
    for number in 0..ESTABLISHED {
        push(Build::tcp(client(number), server).flags(TcpFlags::SYN).seq(100));
        push(Build::tcp(server, client(number)).flags(TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0)).seq(300).ack(101));
        push(segment(number));
        legitimate += 3;
    }
    for number in 0..FLOOD {
        let source = SocketAddr::new(Ipv4Addr::from_bits(0xc612_0000 + number).into(), 1024 + (number % 60_000) as u16);
        push(Build::tcp(source, server).flags(TcpFlags::SYN).seq(number));
        if number % 50 == 0 {
            push(segment(number / 50 % ESTABLISHED));
            legitimate += 1;
        }
    }
    for number in 0..ESTABLISHED {
        push(segment(number));
        legitimate += 1;
    }
    (frames.trace(), legitimate)
}

/// What the tracker does with the trace: its counters, and how many of the flows at the end are of the clients in 10/8.
fn track(trace: &Trace, tables: Tables) -> (Counters, usize) {
    let config = toml::from_str(&format!("flows = {ROOM}\nloose = false")).expect("it is a configuration");
    let options = Options { tables, pin: false, ..Options::default() };
    let nf = Arc::new(conntrack::Conntrack::new(config));
    let mut instance = private_instance(EngineKind::Sequential, nf, 1, &options);
    let mut batch = Batch::default();
    let mut last = Nanos(0);
    for index in 0..trace.len() {
        batch.push(trace.packets()[index], trace.bytes(index));
        last = trace.packets()[index].time;
        if batch.len() == 32 || index + 1 == trace.len() {
            instance.workers[0].process(&mut batch);
            batch.clear();
        }
    }
    let inside = |address: std::net::IpAddr| matches!(address, std::net::IpAddr::V4(v4) if v4.octets()[0] == 10);
    let flows = instance.flows(last);
    let ends = |flow: &engine::FlowState<conntrack::Conntrack>| [flow.key.source(), flow.key.destination()];
    let kept = flows.iter().filter(|flow| ends(flow).iter().any(|end| inside(end.address))).count();
    let counters = instance.counters();
    assert!(counters.add_up());
    (counters, kept)
}

#[test]
fn a_flood_of_a_hundred_times_the_room_ends_no_established_flow() {
    let (trace, legitimate) = flood();
    for index in IndexKind::ALL {
        for (ageing, early_drop_percent) in [(Ageing::Wheel, None), (Ageing::Lazy, None), (Ageing::Wheel, Some(80))] {
            let tables = Tables { index, ageing, early_drop_percent, ..Tables::default() };
            let (counters, kept) = track(&trace, tables);
            assert_eq!(kept, ESTABLISHED as usize, "{tables:?}");
            // Every packet of theirs passed; what was dropped are SYNs of the flood.
            let refused = counters.dropped_total();
            assert!(counters.forwarded >= legitimate && refused <= u64::from(FLOOD), "{tables:?}");
            match early_drop_percent {
                None => assert!(
                    counters.flows.evicted > 90 * u64::from(ROOM) && refused == 0,
                    "{tables:?} {:?}",
                    counters.flows
                ),
                Some(_) => {
                    assert_eq!(counters.flows.early_dropped, counters.dropped[usize::from(Reason::EARLY_DROP.0)]);
                    assert!(counters.flows.early_dropped > 90 * u64::from(ROOM), "{counters:?}");
                }
            }
        }
    }
}

/// What the other policies are for comparison with: they take from the established too.
#[test]
fn policies_that_ask_nobody_for_an_answer_lose_established_flows() {
    let (trace, legitimate) = flood();
    for eviction in [Eviction::Random, Eviction::LeastRecent] {
        let (counters, kept) = track(&trace, Tables { eviction, ..Tables::default() });
        assert!(counters.flows.evicted > 90 * u64::from(ROOM));
        match eviction {
            // Half-open connections have the shorter timeout, so they go first, but not where there are none nearby.
            Eviction::LeastRecent => {
                assert!(kept < ESTABLISHED as usize && kept > ESTABLISHED as usize / 2, "{kept} kept")
            }
            _ => assert!(kept < ESTABLISHED as usize / 10, "{kept} kept"),
        }
    }
    let (counters, kept) = track(&trace, Tables { eviction: Eviction::None, ..Tables::default() });
    assert_eq!((kept, counters.flows.evicted), (ESTABLISHED as usize, 0));
    assert_eq!(counters.forwarded, legitimate + u64::from(ROOM - ESTABLISHED));
    assert_eq!(counters.dropped[usize::from(Reason::TABLE_FULL.0)], u64::from(FLOOD + ESTABLISHED - ROOM));
}

#[test]
fn a_source_has_as_many_flows_as_it_may() {
    let mut frames = Frames::default();
    let mut clock = 1_000_000_000_000;
    let server: SocketAddr = "192.0.2.1:53".parse().expect("it is an address");
    let client = |host: u8, port: u16| SocketAddr::new(Ipv4Addr::new(10, 0, 0, host).into(), port);
    for port in 1024..1124 {
        for host in [1, 2, 2] {
            // Host 1 asks from a hundred ports, host 2 from five.
            let port = if host == 1 { port } else { 1024 + port % 5 };
            clock += 1_000_000;
            frames.build(Nanos(clock), &Build::udp(client(host, port), server).payload(10));
        }
    }
    // A minute later the old flows are over, and there is room again.
    clock += 200_000_000_000;
    for _ in 0..300 {
        frames.build(Nanos(clock), &Build::udp(client(3, 1024), server).payload(10));
    }
    for port in 2000..2020 {
        frames.build(Nanos(clock), &Build::udp(client(1, port), server).payload(10));
    }
    let trace = frames.trace();
    for index in IndexKind::ALL {
        for ageing in [Ageing::Wheel, Ageing::Scan] {
            let (counters, kept) = track(&trace, Tables { index, ageing, per_source: Some(10), ..Tables::default() });
            assert_eq!(counters.flows.opened, 10 + 5 + 1 + 10, "{index} {ageing:?}");
            assert_eq!(counters.flows.limited, 90 + 10);
            assert_eq!(counters.dropped[usize::from(Reason::SOURCE_LIMIT.0)], 90 + 10);
            assert_eq!(counters.forwarded, 620 - 100);
            assert_eq!(kept, 11);
        }
    }
}

#[test]
fn what_a_function_cannot_do_is_refused() {
    let nat = functions::nat::Nat::new(toml::from_str("").expect("it is a configuration"));
    let other = Tables { index: IndexKind::Tagged, ..Tables::default() };
    assert!(Tables::default().accepts(&nat).is_ok());
    assert!(other.accepts(&nat).is_err_and(|reason| reason.contains("nat")));
    let ddos = ddos::Ddos::new(&ddos::Config::default());
    assert!(other.accepts(&ddos).is_ok());
    let limited = Tables { per_source: Some(1), ..Tables::default() };
    assert!(limited.accepts(&ddos).is_err_and(|reason| reason.contains("ddos")));
    let atomic = Tables { guard: EntryGuard::Atomic, ..Tables::default() };
    assert!(atomic.accepts(&ddos).is_ok());
    let conntrack = conntrack::Conntrack::new(conntrack::Config::default());
    assert!(atomic.accepts(&conntrack).is_err_and(|reason| reason.contains("conntrack") && reason.contains("--guard")));
}
