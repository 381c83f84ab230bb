//! The application classifier against its model over random sessions, around a classifier of the test's own; and a banned
//! application among others under every engine.

use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::app_classifier::{AppClassifier, Application, Classifier, Label, Payload};
use lab::conformance::{Plan, verify};
use nf::Verdict;
use packet::{Nanos, TcpFlags};
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::{AppClassifierModel, Told, compare};
use testkit::{Build, Driver, Frames};

const SECOND: u64 = 1_000_000_000;

/// Tells applications by the first byte.
#[derive(Clone, Copy, Debug, Default)]
struct ByFirst;

impl Classifier for ByFirst {
    const APPLICATIONS: &'static [Label] = &[
        Label { name: "red", evidence: 1 },
        Label { name: "green", evidence: 2 },
        Label { name: "blue", evidence: 3 },
    ];

    fn classify(&self, payload: &Payload<'_>) -> Option<Application> {
        match payload.u8(0)? {
            b'r' => Some(Application(0)),
            b'g' => Some(Application(1)),
            b'b' => Some(Application(2)),
            _ => None,
        }
    }
}

fn by_first(payload: &[u8]) -> Told {
    match payload[0] {
        b'r' => Some(("red", 1)),
        b'g' => Some(("green", 2)),
        b'b' => Some(("blue", 3)),
        _ => None,
    }
}

/// Few sessions, of which both sides say something or nothing.
fn trace() -> impl Strategy<Value = Frames> {
    let gap = prop_oneof![
        8 => Just(0),
        1 => Just(SECOND / 2),
        1 => (1..4_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ];
    let word = prop_oneof![1 => Just("r"), 3 => Just("g"), 4 => Just("b"), 4 => Just("x"), 2 => Just("")];
    let packet = (0..3_u8, any::<bool>(), 0..8_u8, word);
    (vec((gap, packet), 1..120), any::<bool>()).prop_map(|(packets, v6)| {
        let mut frames = Frames::default();
        let mut now = 17 * SECOND;
        for (gap, (host, back, kind, word)) in packets {
            now += gap;
            let name =
                |net: &str| if v6 { format!("[2001:db8:{net}::{host}]:80") } else { format!("10.0.{net}.{host}:80") };
            let (one, other) = if back { (name("2"), name("1")) } else { (name("1"), name("2")) };
            let packet = match kind {
                0..4 => Build::tcp(&*one, &*other).data(word.as_bytes()),
                4 => Build::tcp(&*one, &*other).flags(TcpFlags(0x12)),
                _ => Build::udp(&*one, &*other).data(word.as_bytes()),
            };
            frames.build(Nanos(now), &packet);
        }
        frames
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_model(
        frames in trace(),
        drop in proptest::sample::subsequence(vec!["red", "green", "blue", "unknown"], 0..=4),
        give_up in 1..6_usize,
        idle in 1..4_u64,
    ) {
        let text = format!("drop = {drop:?}\ngive_up = {give_up}\nidle_timeout = {idle}");
        let config = toml::from_str(&text).expect("the test's own configuration");
        let mut driver = Driver::new(AppClassifier::<ByFirst>::new(&config));
        compare(&mut driver, &mut AppClassifierModel::new(by_first, &drop, give_up, idle), &frames)
            .map_err(|disagreement| TestCaseError::fail(disagreement.to_string()))?;
    }
}

fn handshake(frames: &mut Frames, now: Nanos, client: &str, server: &str) {
    frames.build(now, &Build::tcp(client, server).flags(TcpFlags::SYN));
    frames.build(now, &Build::tcp(server, client).flags(TcpFlags(0x12)));
}

/// Sessions of four applications, all at port 443, packets of all of them in turns.
fn conversations() -> Frames {
    let mut frames = Frames::default();
    let hello = [&[0x16, 3, 1, 0, 0x2f, 1, 0, 0, 0x2b, 3, 3][..], &[7; 41]].concat();
    let words: [&[u8]; 4] = [&hello, b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n", b"what nobody knows"];
    for round in 0..12_u64 {
        for number in 0..40_usize {
            let now = Nanos(SECOND + round * SECOND / 10 + number as u64);
            let (client, server) = (format!("10.1.0.{number}:40000"), "192.0.2.1:443");
            match round {
                0 => handshake(&mut frames, now, &client, server),
                1 => frames.build(now, &Build::tcp(&*client, server).data(words[number % 4])),
                _ if round % 2 == 0 => frames.build(now, &Build::tcp(server, &*client).payload(700)),
                _ => frames.build(now, &Build::tcp(&*client, server).payload(9)),
            }
        }
    }
    frames
}

fn built_in(text: &str) -> AppClassifier {
    AppClassifier::new(&toml::from_str(text).expect("the test's own configuration"))
}

#[test]
fn a_banned_application_is_dropped_from_its_first_word_on() {
    let frames = conversations();
    let mut driver = Driver::new(built_in("drop = [\"ssh\"]"));
    let dropped = driver.run(&frames).into_iter().filter(|verdict| *verdict != Verdict::FORWARD).count();
    assert_eq!(dropped, 10 * 11, "ten sessions, from the second round of twelve on");
    let report = driver.report().expect("it has a report");
    let rows: Vec<_> = report.rows.iter().map(|row| &row[..3]).collect();
    assert_eq!(rows, ["http", "ssh", "tls", "unknown"].map(|name| [name, "10", "130"]));
}

#[test]
fn every_engine_drops_it() {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..2,
        threads: true,
        options: Options::default(),
    };
    let trace = conversations().trace();
    for text in ["drop = [\"ssh\", \"unknown\"]\ngive_up = 5\nflows = 256", "drop = [\"tls\"]\nflows = 16"] {
        let verified = verify(&Arc::new(built_in(text)), &trace, &plan, &mut |_, _| ());
        assert_eq!(verified.mismatch, None, "{text}");
        assert!(verified.refused.is_empty(), "nothing is shared");
    }
}
