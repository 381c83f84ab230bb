//! The bridge against its model, ports and all, over random traces of few stations that move; and under every engine over
//! traffic of two sides.

use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::bridge::Bridge;
use lab::conformance::{Plan, verify};
use nf::{PortId, Verdict};
use packet::{LinkType, Mac, Nanos};
use port::{Fate, Packet, Trace};
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::BridgeModel;
use testkit::{Build, Driver, Frames};

const SECOND: u64 = 1_000_000_000;

/// Stations, and what is no station.
const MACS: [Mac; 8] = [
    Mac([2, 0, 0, 0, 0, 1]),
    Mac([2, 0, 0, 0, 0, 2]),
    Mac([2, 0, 0, 0, 0, 3]),
    Mac([4, 0, 0, 0, 0, 1]),
    Mac([0xff; 6]),
    Mac([1, 0x80, 0xc2, 0, 0, 0x0e]),
    Mac([1, 0x80, 0xc2, 0, 0, 0x10]),
    Mac([0; 6]),
];

/// From which station to which, by which port, and how long behind the one before.
type Step = (usize, usize, u16, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![
        3 => Just(0),
        3 => (1..8_u64).prop_map(|halves| halves * SECOND / 2),
        2 => (1..6_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ];
    let source = prop_oneof![9 => 0..4_usize, 1 => 4..MACS.len()];
    vec((source, 0..MACS.len(), 0..3_u16, gap), 1..150)
}

fn frame(source: Mac, destination: Mac) -> Vec<u8> {
    Build::udp("10.0.0.1:1", "10.0.0.2:2").macs(source, destination).bytes()
}

fn bridge(text: &str) -> Bridge {
    Bridge::new(&toml::from_str(text).expect("the test's own configuration"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_model(steps in steps(), ageing in 2..5_u64, refresh in 0..4_u64) {
        let refresh = refresh.min(ageing - 1);
        let text = format!("stations = 8\nageing = {ageing}\nrefresh_interval = {refresh}");
        let (mut driver, mut model) = (Driver::new(bridge(&text)), BridgeModel::new(ageing, refresh));
        let mut now = Nanos(17 * SECOND);
        for (number, (source, destination, port, gap)) in steps.into_iter().enumerate() {
            now = now + Nanos(gap);
            let bytes = frame(MACS[source], MACS[destination]);
            let headers = packet::parse(LinkType::Ethernet, &bytes, bytes.len() as u32, port).expect("it is whole");
            let got = driver.packet(now, Ok(&headers), &bytes);
            prop_assert_eq!(got, model.verdict(now, &headers), "frame {}", number);
        }
    }
}

/// Stations on two sides, some of which change sides, so that all that can happen does.
pub(crate) fn traffic(packets: usize) -> Trace {
    let mut random = 7_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % below
    };
    let mut trace = Trace::new();
    for number in 0..packets {
        let station = |number: u64| Mac([2, 0, 0, 0, 0, number as u8]);
        let (source, destination) = (draw(40), draw(40));
        let bytes = frame(station(source), if draw(20) == 0 { Mac([0xff; 6]) } else { station(destination) });
        let side = (source % 2) as u16 ^ u16::from(draw(50) == 0);
        // A fifth of a second each, so that those who are drawn seldom are forgotten.
        let packet = Packet {
            seq: packet::Seq(number as u64),
            time: Nanos(17 * SECOND + number as u64 * SECOND / 5),
            offset: 0,
            len: bytes.len() as u32,
            wire_len: bytes.len() as u32,
            interface: side,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        trace.push(packet, &bytes);
    }
    trace
}

#[test]
fn every_engine_bridges_alike() {
    let trace = traffic(2_000);
    let verdicts = Driver::new(bridge("ageing = 12")).run_trace(&trace);
    for (what, count) in [
        ("sent on", verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Forward(PortId(0 | 1)))).count()),
        ("flooded", verdicts.iter().filter(|verdict| **verdict == Verdict::FORWARD).count()),
        ("kept back", verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Drop(_))).count()),
    ] {
        assert!(count > 300, "{count} frames were {what}");
    }
    // Room for all, for fewer than there are, and entries that are seldom written.
    for text in ["ageing = 12\nstations = 64", "ageing = 12\nstations = 9", "ageing = 12\nrefresh_interval = 5"] {
        let plan = Plan {
            engines: EngineKind::ALL.to_vec(),
            cores: 1..=4,
            seeds: 0..3,
            threads: true,
            options: Options::default(),
        };
        let verified = verify(&Arc::new(bridge(text)), &trace, &plan, &mut |_, _| ());
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
    }
}

#[test]
fn frames_without_stations_are_dropped() {
    let datagram = Build::udp("10.0.0.1:1", "10.0.0.2:2").datagram();
    let mut frames = Frames::new(LinkType::RawIp);
    frames.push(Nanos(SECOND), &datagram);
    let verdicts = Driver::new(bridge("")).run(&frames);
    assert_eq!(verdicts, [Verdict::Drop(nf::Reason::own(3))]);
}
