//! The application classifier over any cutting, order and repetition of the same bytes, at any ports; and a banned application among others
//! under every engine.

use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::Catalogued;
use functions::app_classifier::AppClassifier;
use functions::streams::Streams;
use lab::conformance::{Plan, verify};
use nf::{Cell, Verdict};
use packet::{Nanos, TcpFlags};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::{Build, Driver, Frames};

const SECOND: u64 = 1_000_000_000;
const SYN_ACK: TcpFlags = TcpFlags(0x12);

fn configured(text: &str) -> Streams<AppClassifier> {
    Catalogued::from_config(toml::from_str(text).expect("the test's own configuration"))
}

/// A first message of TLS 1.2 with the name of a server.
const HELLO: &[u8] = &[
    0x16, 3, 1, 0, 66, 1, 0, 0, 62, 3, 3, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 0, 0, 2, 0xc0, 0x2f, 1, 0, 0, 19, 0, 0, 0, 15, 0, 13, 0, 0, 10, b'e', b'x', b'a', b'm', b'p',
    b'l', b'e', b'.', b'd', b'e',
];

/// What both sides of a session say, and its application by the specifications of the protocols.
const TALKS: &[(&str, &[u8], &[u8])] = &[
    ("http", b"GET /index.html HTTP/1.1\r\nHost: example.de\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("ssh", b"SSH-2.0-OpenSSH_9.7\r\n", b"SSH-2.0-OpenSSH_9.6\r\n"),
    ("smtp", b"EHLO there.example\r\nQUIT\r\n", b"220 mail.example ESMTP\r\n250 mail.example\r\n221 bye\r\n"),
    ("pop3", b"USER me\r\nPASS secret\r\n", b"+OK POP3 ready\r\n+OK\r\n+OK logged in\r\n"),
    ("tls", HELLO, b""),
    ("unknown", b"nothing that anyone says, but at some length", b"and no answer that anyone gives, at some length"),
];

/// Cuts a text into pieces, some of which are said twice.
fn pieces(len: usize) -> impl Strategy<Value = Vec<(usize, usize)>> {
    (vec(any::<Index>(), 0..12), vec((any::<Index>(), 1..40_usize), 0..6)).prop_map(move |(cuts, again)| {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(len + 1)).chain([len]).collect();
        ends.sort_unstable();
        let begins = [0].into_iter().chain(ends.iter().copied());
        let mut pieces: Vec<_> = begins.zip(ends.iter().copied()).collect();
        pieces.extend(
            again.into_iter().map(|(at, more)| (at.index(len + 1), more)).map(|(at, more)| (at, len.min(at + more))),
        );
        pieces.retain(|(at, end)| at < end);
        pieces
    })
}

fn talk() -> impl Strategy<Value = (usize, [Vec<(usize, usize)>; 2])> {
    (0..TALKS.len()).prop_flat_map(|number| {
        let (_, one, other) = TALKS[number];
        (Just(number), [pieces(one.len()).prop_shuffle_all(), pieces(other.len()).prop_shuffle_all()])
    })
}

/// Shuffles what a strategy makes.
trait Shuffled: Strategy<Value = Vec<(usize, usize)>> + Sized + 'static {
    fn prop_shuffle_all(self) -> BoxedStrategy<Vec<(usize, usize)>> {
        self.prop_flat_map(|pieces| Just(pieces).prop_shuffle()).boxed()
    }
}

impl<S: Strategy<Value = Vec<(usize, usize)>> + 'static> Shuffled for S {}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn cutting_order_repetition_and_ports_change_nothing(
        (number, sides) in talk(),
        turns in vec(any::<bool>(), 0..40),
        starts in any::<[u32; 2]>(),
        ports in any::<[u16; 2]>(),
        drops in any::<bool>(),
    ) {
        let (application, ..) = TALKS[number];
        let texts = [TALKS[number].1, TALKS[number].2];
        let ends = [format!("10.0.0.1:{}", ports[0]), format!("192.0.2.1:{}", ports[1])];
        let mut frames = Frames::default();
        let mut push = |packet: &Build| frames.build(Nanos(SECOND), packet);
        let [client, server] = starts;
        push(&Build::tcp(&*ends[0], &*ends[1]).flags(TcpFlags::SYN).seq(client.wrapping_sub(1)));
        push(&Build::tcp(&*ends[1], &*ends[0]).flags(SYN_ACK).seq(server.wrapping_sub(1)).ack(client));
        let segment = |side: usize, at: usize| {
            let seq = starts[side].wrapping_add(at as u32);
            Build::tcp(&*ends[side], &*ends[1 - side]).seq(seq).ack(starts[1 - side])
        };
        push(&segment(0, 0));
        let mut pieces = sides.each_ref().map(|pieces| pieces.iter());
        for turn in turns.into_iter().chain([false; 40]).chain([true; 40]) {
            let side = usize::from(turn);
            if let Some((at, end)) = pieces[side].next() {
                push(&segment(side, *at).data(&texts[side][*at..*end]));
            }
        }
        // Both have finished, and each has all of the other's.
        for side in [0, 1] {
            let all = starts[1 - side].wrapping_add(texts[1 - side].len() as u32 + side as u32);
            push(&segment(side, texts[side].len()).flags(TcpFlags::FIN.with(TcpFlags::ACK)).ack(all));
        }
        push(&segment(0, texts[0].len() + 1).ack(server.wrapping_add(texts[1].len() as u32 + 1)));
        let text = if drops { format!("drop = [{application:?}]") } else { String::new() };
        let mut driver = Driver::new(configured(&text));
        let verdicts = driver.run(&frames);
        let bytes: usize = frames.iter().map(|(_, frame)| frame.len()).sum();
        let report = driver.report().expect("it has a report");
        let expected: Vec<Cell> =
            vec![application.into(), 1_u64.into(), (verdicts.len() as u64).into(), (bytes as u64).into()];
        prop_assert_eq!(&report.rows, &[expected]);
        let dropped = verdicts.iter().filter(|verdict| **verdict != Verdict::FORWARD).count();
        prop_assert_eq!(dropped > 0, drops);
        // Once dropped, all are.
        prop_assert!(verdicts[verdicts.len() - dropped..].iter().all(|verdict| *verdict != Verdict::FORWARD));
    }
}

/// Sessions of four applications, all at port 443, packets of all of them in turns. Each first message comes in two segments.
fn conversations() -> Frames {
    let mut frames = Frames::default();
    let words: [&[u8]; 4] = [HELLO, b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n", b"what nobody knows"];
    for round in 0..12_u32 {
        for number in 0..40_usize {
            let now = Nanos(SECOND + u64::from(round) * SECOND / 10 + number as u64);
            let (client, server) = (format!("10.1.0.{number}:40000"), "192.0.2.1:443");
            let word = words[number % 4];
            let said = 8 + word.len() as u32;
            let from_client = |seq: u32, ack: u32| Build::tcp(&*client, server).seq(seq).ack(ack);
            let from_server = |seq: u32, ack: u32| Build::tcp(server, &*client).seq(seq).ack(ack);
            let turns = round.saturating_sub(4);
            let (asked, answered) = (said + 9 * (turns / 2), 90 + 700 * turns.div_ceil(2));
            frames.build(
                now,
                &match round {
                    0 => Build::tcp(&*client, server).flags(TcpFlags::SYN).seq(7),
                    1 => Build::tcp(server, &*client).flags(SYN_ACK).seq(89).ack(8),
                    2 => from_client(8, 90).data(&word[..3]),
                    3 => from_client(11, 90).data(&word[3..]),
                    _ if round % 2 == 0 => from_server(answered, asked).payload(700),
                    _ => from_client(asked, answered).payload(9),
                },
            );
        }
    }
    frames
}

#[test]
fn a_banned_application_is_dropped_from_its_first_word_on() {
    let frames = conversations();
    let mut driver = Driver::new(configured("drop = [\"http\"]"));
    let dropped = driver.run(&frames).into_iter().filter(|verdict| *verdict != Verdict::FORWARD).count();
    assert_eq!(dropped, 10 * 9, "ten sessions, from the second piece on, which is the fourth packet of twelve");
    let report = driver.report().expect("it has a report");
    let rows: Vec<_> = report.rows.iter().map(|row| &row[..3]).collect();
    assert_eq!(rows, ["http", "ssh", "tls", "unknown"].map(|name| [name, "10", "120"]));
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
    for text in
        ["drop = [\"ssh\", \"unknown\"]\nstreams = { flows = 256 }", "drop = [\"tls\"]\nstreams = { flows = 16 }"]
    {
        let verified = verify(&Arc::new(configured(text)), &trace, &plan, &mut |_, _| ());
        assert_eq!(verified.mismatch, None, "{text}");
        let without_frames =
            |(engine, ..): &(EngineKind, usize, String)| matches!(engine, EngineKind::Scr | EngineKind::Hybrid);
        assert!(verified.refused.iter().all(without_frames), "{:?}", verified.refused);
    }
}
