//! The scan detector against its model over random traces around its timeouts; and a scan among ordinary traffic under every
//! engine.

use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::port_scan::PortScan;
use lab::conformance::{Plan, verify};
use nf::Verdict;
use packet::{Nanos, TcpFlags};
use proptest::collection::vec;
use proptest::prelude::*;
use synth::{FlowTransport, Params, Profile};
use testkit::model::{PortScanModel, compare};
use testkit::{Build, Driver, Frames, Synth, captures};

const SECOND: u64 = 1_000_000_000;
const SYN_ACK: TcpFlags = TcpFlags(0x12);
const RST_ACK: TcpFlags = TcpFlags(0x14);

fn configured(text: &str) -> PortScan {
    PortScan::new(toml::from_str(text).expect("the test's own configuration"))
}

/// Few hosts that try many peers, and what the peers answer, mostly to what came before.
fn trace() -> impl Strategy<Value = Frames> {
    let gap = prop_oneof![
        6 => Just(0),
        3 => (1..4_u64).prop_map(|halves| halves * SECOND / 2),
        1 => (1..7_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ];
    let packet = (0..22_u8, 0..2_u8, (0..24_u8, 0..5_u8, any::<bool>()), any::<bool>());
    (vec((gap, packet), 1..250), any::<bool>()).prop_map(|(packets, v6)| {
        let mut frames = Frames::default();
        let mut now = 17 * SECOND;
        let mut last = (0, (0, 0, false));
        for (gap, (kind, host, peer, other)) in packets {
            now += gap;
            let (host, peer) = if other || kind < 9 { (host, peer) } else { last };
            last = (host, peer);
            let (peer, port, many) = peer;
            let name = |net: &str, n: u8, port: u16| {
                if v6 { format!("[2001:db8:{net}::{n}]:{port}") } else { format!("10.0.{net}.{n}:{port}") }
            };
            // Many peers, or many ports of few.
            let (peer, port) = if many { (peer % 3, 80 + u16::from(port)) } else { (peer, 80) };
            let (host, peer) = (name("1", host, 82), name("2", peer, port));
            frames.build(
                Nanos(now),
                &match kind {
                    0..9 => Build::tcp(&*host, &*peer).flags(TcpFlags::SYN),
                    9..11 => Build::tcp(&*peer, &*host).flags(SYN_ACK),
                    11..14 => Build::tcp(&*peer, &*host).flags(RST_ACK),
                    14 => Build::tcp(&*host, &*peer).data(b"more"),
                    15..18 => Build::tcp(&*host, &*peer).flags(TcpFlags::ACK),
                    18 => Build::tcp(&*host, &*peer).flags(TcpFlags(0)),
                    19 => Build::tcp(&*host, &*peer).flags(TcpFlags::FIN),
                    20 => Build::tcp(&*peer, &*host).flags(TcpFlags::RST),
                    _ => Build::udp(&*host, &*peer),
                },
            );
        }
        frames
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_model(
        frames in trace(),
        answer in 1..4_u64,
        idle in 2..6_u64,
        ports in 2..6_usize,
        within in 1..9_u64,
    ) {
        let text = format!(
            "answer_timeout = {answer}\nidle_timeout = {idle}\nports = {ports}\nports_within = {within}"
        );
        let mut driver = Driver::new(configured(&text));
        compare(&mut driver, &mut PortScanModel::new(answer, idle, ports, within), &frames)
            .map_err(|disagreement| TestCaseError::fail(disagreement.to_string()))?;
    }
}

/// A scanner that tries a thousand hosts of which one in twenty answers, and a user with as many contacts of which one in twenty
/// doesn't.
fn scan_among_users() -> Frames {
    let mut frames = Frames::default();
    for number in 0..1_000_u32 {
        let now = Nanos(100 * SECOND + u64::from(number) * SECOND / 20);
        for (host, answers) in [("198.51.100.66:4000", number % 20 == 0), ("198.51.100.7:4000", number % 20 != 0)] {
            let peer = format!("10.0.{}.{}:80", number / 250, number % 250);
            frames.build(now, &Build::tcp(host, &*peer).flags(TcpFlags::SYN));
            let later = now + Nanos::from_millis(1);
            match (answers, number % 2) {
                (true, _) => frames.build(later, &Build::tcp(&*peer, host).flags(SYN_ACK)),
                (false, 0) => frames.build(later, &Build::tcp(&*peer, host).flags(RST_ACK)),
                (false, _) => {}
            }
        }
    }
    frames
}

#[test]
fn a_scanner_is_found_after_few_contacts_and_nobody_else() {
    let frames = scan_among_users();
    let mut driver = Driver::new(configured(""));
    let mut dropped = std::collections::BTreeMap::<_, Vec<u64>>::new();
    for ((time, bytes), verdict) in frames.iter().zip(driver.run(&frames)) {
        if verdict != Verdict::FORWARD {
            let headers = packet::parse(frames.link(), bytes, bytes.len() as u32, 0).expect("it is whole");
            dropped.entry(headers.source().expect("it is IP").to_string()).or_default().push(time.0);
        }
    }
    let times = &dropped["198.51.100.66"];
    assert_eq!(dropped.len(), 1, "{:?}", dropped.keys());
    assert!(times[0] < 104 * SECOND && times.len() > 900, "{} packets dropped from {}", times.len(), times[0]);
    let report = driver.report().expect("it has a report");
    assert_eq!(report.rows.len(), 1);
    assert_eq!(report.rows[0][0], "198.51.100.66");
}

/// Captures of one nmap scan each.
const SCANS: &[&str] = &[
    "markofu__FIN_SCAN__FIN_SCAN.pcap",
    "markofu__FTP_BOUNCE_SCAN__FTP_BOUNCE_SCAN.pcap.zst",
    "markofu__NULL_SCAN__NULL_SCAN.pcap",
    "markofu__TCP_SYN_SCAN__TCP_SYN_SCAN.pcap",
    "markofu__VERSION_DETECTION_SCAN__version_scan.pcap",
    "markofu__WINDOW_SCAN__WINDOW_SCAN.pcap",
];

#[test]
#[allow(clippy::print_stderr)]
fn all_kinds_of_real_port_scans_are_found() {
    let Some(folder) = captures::shared() else {
        eprintln!("SKIPPED (no ../shared/traces)");
        return;
    };
    for capture in SCANS {
        let trace = captures::read(&folder.join("attack").join(capture)).expect("the capture can be read");
        let mut driver = Driver::new(configured(""));
        driver.run_trace(&trace);
        let report = driver.report().expect("it has a report");
        assert_eq!(report.rows.len(), 1, "{capture}: {:?}", report.rows);
    }
}

#[test]
fn every_engine_finds_it() {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..2,
        threads: true,
        options: Options::default(),
    };
    let params = Params {
        packets: 2_000,
        rate_pps: 500,
        transport: Some(FlowTransport::Tcp),
        hosts: Some(9),
        ..Params::default()
    };
    let synthesised = Synth::new(Profile::UniversityDc, &params).expect("the parameters are in range").trace();
    for trace in [scan_among_users().trace(), synthesised] {
        for text in ["", "answer_timeout = 1\nidle_timeout = 2"] {
            let verified = verify(&Arc::new(configured(text)), &trace, &plan, &mut |_, _| ());
            assert_eq!(verified.mismatch, None, "{text}");
            assert!(verified.refused.iter().all(|(engine, ..)| *engine == EngineKind::Sequential));
        }
    }
}
