//! The attack detector under every engine over a flood among ordinary traffic, with tables that hold all flows and tables that
//! do not.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::anti_ddos::AntiDdos;
use lab::conformance::{Plan, verify};
use nf::Verdict;
use packet::{Nanos, TcpFlags};
use port::Trace;
use synth::{FlowTransport, Params, Profile};
use testkit::{Build, Driver, Frames, Synth};

fn configured(text: &str) -> AntiDdos {
    AntiDdos::new(&toml::from_str(text).expect("the test's own configuration"))
}

/// Clients of a server that send again when nothing comes back, then a flood of as many sources as packets, then clients again.
fn flood(clients: u32, attackers: u32) -> Frames {
    let mut frames = Frames::default();
    let client = |number: u32| format!("10.1.{}.{}:40000", number / 250, 1 + number % 250);
    let mut now = Nanos::from_secs(100);
    let mut talk = |frames: &mut Frames, clients: std::ops::Range<u32>| {
        for number in clients {
            for flags in [TcpFlags::SYN, TcpFlags::SYN, TcpFlags::ACK] {
                now = now + Nanos::from_millis(1);
                frames.build(now, &Build::tcp(&*client(number), "192.0.2.1:80").flags(flags));
            }
        }
        now
    };
    talk(&mut frames, 0..clients);
    let start = talk(&mut frames, clients..2 * clients);
    for number in 0..attackers {
        let source = format!("172.{}.{}.{}:1024", 16 + number / 65_536, number / 256 % 256, number % 256);
        let time = start + Nanos::from_micros(u64::from(number) * 100);
        frames.build(time, &Build::tcp(&*source, "192.0.2.1:80").flags(TcpFlags::SYN));
        if number % 100 == 99 {
            let late = format!("10.2.0.{}:40000", number / 100);
            (0..2).for_each(|_| frames.build(time, &Build::tcp(&*late, "192.0.2.1:80").flags(TcpFlags::SYN)));
        }
    }
    frames
}

#[test]
fn a_flood_is_dropped_and_clients_get_through() {
    let frames = flood(50, 2_000);
    let mut driver = Driver::new(configured("minimum = 20"));
    let verdicts = driver.run(&frames);
    let mut of_each: HashMap<_, Vec<bool>> = HashMap::new();
    for ((_, bytes), verdict) in frames.iter().zip(verdicts) {
        let headers = packet::parse(frames.link(), bytes, bytes.len() as u32, 0).expect("it is whole");
        of_each.entry(headers.source().expect("it is IP")).or_default().push(verdict == Verdict::FORWARD);
    }
    let attackers: Vec<_> = of_each.values().filter(|fates| fates.len() == 1).collect();
    let through = attackers.iter().filter(|fates| fates[0]).count();
    // Four for each of a hundred flows of clients, and for each of the four who have come meanwhile.
    assert_eq!((attackers.len(), through), (2_000, 416));
    let shut_out = of_each.values().filter(|fates| fates.len() > 1 && !fates[1..].iter().all(|passed| *passed)).count();
    assert_eq!(shut_out, 0, "whoever sends again passes");
}

fn hold(trace: &Trace, text: &str) -> bool {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..2,
        threads: true,
        options: Options::default(),
    };
    let verified = verify(&Arc::new(configured(text)), trace, &plan, &mut |_, _| ());
    assert_eq!(verified.mismatch, None, "{text}");
    for (engine, cores, _) in verified.refused {
        assert!(
            cores > 1
                && matches!(
                    engine,
                    EngineKind::Rss | EngineKind::RssPlusPlus | EngineKind::Hybrid | EngineKind::Pipeline
                )
        );
    }
    verified.was_full
}

#[test]
fn every_engine_finds_the_flood() {
    let trace = flood(20, 600).trace();
    assert!(!hold(&trace, "minimum = 20\nflows = 4096"));
    hold(&trace, "minimum = 20\nflows = 4096\nstaleness_us = 5000");
    assert!(hold(&trace, "minimum = 20\nflows = 64"), "flows were pushed out");
}

#[test]
fn every_engine_forgets_alike() {
    let params = Params {
        packets: 1_500,
        rate_pps: 200,
        transport: Some(FlowTransport::Tcp),
        ipv6_percent: 30,
        ..Params::default()
    };
    for profile in [Profile::UniversityDc, Profile::SynFlood] {
        let trace = Synth::new(profile, &params).expect("the parameters are in range").trace();
        hold(&trace, "minimum = 3\nidle_timeout = 1\nthreshold = 0.5");
    }
}
