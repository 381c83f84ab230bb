//! The buffer of first bytes: over any cutting, order and repetition of the same bytes; against a naive model where copies differ; against
//! what tshark makes of real captures; and under every engine.

use std::net::IpAddr;
use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::Catalogued;
use functions::flow_buffer::{FlowBuffer, Session};
use functions::streams::Streams;
use lab::conformance::{Plan, verify};
use nf::{Reason, Verdict};
use packet::{FiveTuple, Nanos, TcpFlags};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::{Build, Driver, Frames, captures};

const SECOND: u64 = 1_000_000_000;
const SYN: TcpFlags = TcpFlags::SYN;
const SYN_ACK: TcpFlags = SYN.with(TcpFlags::ACK);
const PATTERN: Verdict = Verdict::Drop(Reason::own(0));
const CONTRADICTION: Verdict = Verdict::Drop(Reason::own(1));

fn configured(text: &str) -> Streams<FlowBuffer> {
    Catalogued::from_config(toml::from_str(text).expect("the test's own configuration"))
}

/// All sessions, the opener's end first.
fn sessions(driver: &Driver<Streams<FlowBuffer>>) -> Vec<(FiveTuple, Session)> {
    driver.flows().into_iter().map(|(key, flow, ..)| (flow.as_opened(key), flow.own)).collect()
}

/// The sides of all sessions, and what each says first.
fn heads(driver: &Driver<Streams<FlowBuffer>>) -> Vec<((IpAddr, u16), Vec<u8>)> {
    let sides = sessions(driver).into_iter().flat_map(|(tuple, session)| {
        let heads = session.heads().map(<[u8]>::to_vec);
        [tuple.source(), tuple.destination()].map(|end| (end.address, end.port)).into_iter().zip(heads)
    });
    sides.filter(|(_, head)| !head.is_empty()).collect()
}

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "192.0.2.1:80";

/// A connection whose sides begin at these numbers.
struct Talk {
    frames: Frames,
    starts: [u32; 2],
    now: u64,
}

impl Talk {
    fn new(starts: [u32; 2]) -> Self {
        let mut talk = Self { frames: Frames::default(), starts, now: SECOND };
        let [client, server] = starts;
        talk.push(&Build::tcp(CLIENT, SERVER).flags(SYN).seq(client.wrapping_sub(1)));
        talk.push(&Build::tcp(SERVER, CLIENT).flags(SYN_ACK).seq(server.wrapping_sub(1)).ack(client));
        talk.push(&Build::tcp(CLIENT, SERVER).seq(client).ack(server));
        talk
    }

    fn push(&mut self, packet: &Build) {
        self.now += 1000;
        self.frames.build(Nanos(self.now), packet);
    }

    /// A side says bytes at an offset. It acknowledges nothing, so that no gap is given up.
    fn say(&mut self, side: usize, at: usize, bytes: &[u8]) {
        let (from, to) = if side == 0 { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let seq = self.starts[side].wrapping_add(at as u32);
        self.push(&Build::tcp(from, to).seq(seq).ack(self.starts[1 - side]).data(bytes));
    }
}

/// What a side says, and pieces of it that are sent in any order: all of it, and some of it again.
fn said() -> impl Strategy<Value = (Vec<u8>, Vec<(usize, usize)>)> {
    let word = prop_oneof![
        Just("GET / HTTP/1.1\r\n"),
        Just("GET "),
        Just("GE"),
        Just("\u{16}\u{3}\u{1}"),
        Just("EHLO there\r\n"),
        Just(""),
    ];
    let rest = vec(any::<u8>(), 0..120);
    (word, rest, vec(any::<Index>(), 0..8), vec((any::<Index>(), 1..40_usize), 0..6))
        .prop_map(|(word, rest, cuts, again)| {
            let text = [word.as_bytes(), &rest].concat();
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).chain([text.len()]).collect();
            ends.sort_unstable();
            let mut pieces = Vec::new();
            let mut at = 0;
            for end in ends {
                pieces.push((at, end));
                at = end;
            }
            pieces.extend(again.into_iter().map(|(at, len)| {
                let at = at.index(text.len() + 1);
                (at, text.len().min(at + len))
            }));
            pieces.retain(|(at, end)| at < end);
            (text, pieces)
        })
        .prop_flat_map(|(text, pieces)| (Just(text), Just(pieces).prop_shuffle()))
}

const PATTERNS: [&[u8]; 3] = [b"GET /", b"GET ", b"\x16\x03"];
const LISTED: &str = "patterns = [\"GET /\", \"GET \", \"hex:16 03\"]\n";

/// The shortest pattern that a text begins with.
fn pattern(text: &[u8], bytes: usize) -> Option<&'static [u8]> {
    let fits = PATTERNS.into_iter().filter(|pattern| pattern.len() <= bytes && text.starts_with(pattern));
    fits.min_by_key(|pattern| pattern.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn cutting_order_and_repetition_change_nothing(
        sides in [said(), said()],
        turns in vec(any::<bool>(), 0..40),
        starts in any::<[u32; 2]>(),
        bytes in prop_oneof![5..=64_usize, Just(64)],
        blocks in any::<bool>(),
    ) {
        let mut talk = Talk::new(starts);
        let mut pieces = sides.each_ref().map(|(_, pieces)| pieces.iter());
        for turn in turns.into_iter().chain([false; 30]).chain([true; 30]) {
            let side = usize::from(turn);
            if let Some((at, end)) = pieces[side].next() {
                talk.say(side, *at, &sides[side].0[*at..*end]);
            }
        }
        let text = format!("{LISTED}block = {blocks}\nbytes = {bytes}\ndrop_contradictions = true");
        let mut driver = Driver::new(configured(&text));
        let verdicts = driver.run(&talk.frames);
        let found = sides.each_ref().map(|(text, _)| pattern(text, bytes));
        let [(_, session)] = sessions(&driver)[..] else { panic!("one session") };
        let named = session.pattern(driver.function().function()).map(|name| name.replace("hex:16 03", "\u{16}\u{3}").into_bytes());
        if let Some(named) = &named {
            prop_assert!(found.contains(&Some(named)), "{named:?} of {found:?}");
        }
        let is_found = found.iter().any(Option::is_some);
        prop_assert_eq!(named.is_some(), is_found);
        let dropped = verdicts.iter().filter(|verdict| **verdict != Verdict::FORWARD).count();
        prop_assert!(verdicts.iter().all(|verdict| [Verdict::FORWARD, PATTERN].contains(verdict)));
        prop_assert_eq!(dropped > 0, is_found && blocks);
        // Once dropped, all are.
        prop_assert!(verdicts[verdicts.len() - dropped..].iter().all(|verdict| *verdict == PATTERN));
        for (head, (text, _)) in session.heads().iter().zip(&sides) {
            let whole = &text[..text.len().min(bytes)];
            let is_right = if dropped > 0 { whole.starts_with(head) } else { whole == *head };
            prop_assert!(is_right, "{:?} of {:?}", head, whole);
        }
    }

    /// The naive model keeps the first copy of each byte in a map.
    #[test]
    fn other_bytes_at_the_same_place_are_found(
        segments in vec((any::<bool>(), 0..64_usize, 1..30_usize, 0..4_u8), 1..40),
        starts in any::<[u32; 2]>(),
    ) {
        let mut talk = Talk::new(starts);
        let mut known = [[None; 64]; 2];
        let mut expected = vec![Verdict::FORWARD; 3];
        for (side, at, len, change) in segments {
            let side = usize::from(side);
            let mut said: Vec<u8> = (at..64.min(at + len)).map(|place| b'a' + (place % 26) as u8).collect();
            if let (0, Some(last)) = (change, said.last_mut()) {
                *last = b'!';
            }
            talk.say(side, at, &said);
            let mut differs = false;
            for (place, byte) in (at..).zip(&said) {
                differs |= known[side][place].get_or_insert(*byte) != byte;
            }
            expected.push(if differs { CONTRADICTION } else { Verdict::FORWARD });
        }
        let mut driver = Driver::new(configured("drop_contradictions = true"));
        prop_assert_eq!(driver.run(&talk.frames), expected);
        let [(_, session)] = sessions(&driver)[..] else { panic!("one session") };
        for (head, known) in session.heads().iter().zip(&known) {
            let told: Vec<u8> = known.iter().map_while(|byte| *byte).collect();
            prop_assert_eq!(*head, &told);
        }
    }
}

/// A forged SYN, SYN-ACK or reset with other sequence numbers doesn't hide data.
#[test]
fn strays_turn_no_pattern_off() {
    let from_client = || Build::tcp(CLIENT, SERVER);
    let from_server = || Build::tcp(SERVER, CLIENT);
    let strays = [
        from_client().flags(SYN).seq(7_000),
        from_server().flags(SYN_ACK).seq(8_000).ack(101),
        from_client().flags(TcpFlags::RST).seq(9),
    ];
    let handshake = [
        from_client().flags(SYN).seq(100),
        from_server().flags(SYN_ACK).seq(500).ack(101),
        from_client().seq(101).ack(501),
    ];
    for (number, stray) in strays.iter().enumerate() {
        // A reset of a connection that nobody has answered ends it: what follows is another one.
        for place in 0..=handshake.len() {
            let mut frames = Frames::default();
            let packets = handshake[..place].iter().chain([stray]).chain(&handshake[place..]);
            for (at, packet) in packets.enumerate() {
                frames.build(Nanos(SECOND + at as u64), packet);
            }
            for (at, (word, seq)) in [("EV", 101), ("IL", 103)].into_iter().enumerate() {
                let packet = from_client().seq(seq).ack(501).data(word.as_bytes());
                frames.build(Nanos(2 * SECOND + at as u64), &packet);
            }
            let mut driver = Driver::new(configured("patterns = [\"EVIL\"]"));
            let verdicts = driver.run(&frames);
            assert_eq!(verdicts[5], PATTERN, "stray {number} ahead of packet {place}: {verdicts:?}");
        }
    }
}

/// By `tshark -q -z follow,tcp,raw,STREAM` (4.0.17): the capture, a side, how many of its first 64 bytes there are, and these by
/// FNV-1a.
const FOLLOWED: &[(&str, &str, u16, usize, u64)] = &[
    ("tcp/tcpflow__tests__test1-out-of-order.pcap", "74.125.19.104", 80, 64, 0xdf5772cfd6f373dd),
    ("tcp/ppp__ex__tcp-reassembly.pcap", "172.16.133.54", 64370, 64, 0xfa8f0eade4a2b680),
    ("tcp/ppp__ex__tcp-reassembly.pcap", "23.21.118.18", 80, 64, 0x50fa2d1ddd6c3cc8),
    ("tcp/sanders__tcp_dupack.pcapng", "195.81.202.68", 80, 64, 0x0231ae6baa93b788),
    ("tcp/ppp__pt__four_ipv6_http_streams.pcap", "2001:618:400::5199:cc70", 35995, 64, 0x074a27f5f99ee192),
    ("tcp/ppp__pt__four_ipv6_http_streams.pcap", "2001:618:1:8000::5", 80, 64, 0xbf0e16ee74e7d23c),
    ("tcp/ppp__pt__four_ipv6_http_streams.pcap", "2001:618:400::5199:cc70", 35997, 64, 0x0e76e96164956252),
    ("tcp/ppp__pt__four_ipv6_http_streams.pcap", "2001:618:1:8000::5", 80, 64, 0x19469b62d5b4e8f9),
    ("tcp/ppp__pt__four_ipv6_http_streams.pcap", "2001:618:400::5199:cc70", 35999, 64, 0xc196b881737ef41d),
    ("tcp/ppp__pt__four_ipv6_http_streams.pcap", "2001:618:1:8000::5", 80, 64, 0xe46eb63097dc01ee),
    ("tcp/ppp__pt__four_ipv6_http_streams.pcap", "2001:618:400::5199:cc70", 40426, 64, 0x1613c17b12ba4301),
    ("tcp/ppp__pt__four_ipv6_http_streams.pcap", "2001:638:902:1:202:b3ff:feee:5dc2", 80, 64, 0x46716f8ca9ceb500),
    ("tcp/sv__eve-overlap-payload-01__tcp-overlap.pcap", "1.1.1.1", 12345, 4, 0xb0fd977d71f8a358),
    ("tcp/arkime__wireshark-retrans.pcap", "172.17.96.143", 59221, 64, 0xd173d1c67b0d353c),
    ("tcp/arkime__wireshark-retrans.pcap", "172.17.96.77", 4000, 64, 0x27411ff1e8b66098),
    ("tcp/tcpflow__tests__bug3.pcap", "65.212.118.21", 80, 64, 0xe903fc1b31a4b0c4),
    ("tcp/sv__eve-payload-04-partial-overlap__tcp-overlap2.pcap", "1.1.1.1", 12345, 4, 0xb0fd977d71f8a358),
    ("tcp/sanders__weather_broken.pcapng", "172.16.16.154", 53904, 64, 0xe258db27adf2930c),
    ("tcp/sanders__weather_broken.pcapng", "38.102.136.125", 80, 64, 0x1f49e5b64934f4e0),
    ("tcp/ppp__pt__one_http_stream_rst.pcap", "10.3.65.35", 5068, 64, 0xd80dfa8131892fea),
    ("tcp/ppp__pt__one_http_stream_rst.pcap", "185.8.212.46", 80, 64, 0x3518892dd1e39fcb),
    ("tcp/tcpflow__tests__local.pcap", "127.0.0.1", 50103, 64, 0xaeee63522584cc3c),
    ("tcp/tcpflow__tests__local.pcap", "127.0.0.1", 6258, 64, 0x32b95d90be4bc28f),
    ("tcp/tcpflow__tests__local.pcap", "::1", 50266, 64, 0xb2f9368289491c0b),
    ("tcp/tcpflow__tests__local.pcap", "::1", 22, 64, 0xc95cbff76166cc97),
    ("tcp/tcpflow__tests__local.pcap", "::1", 50267, 64, 0x029e3e0792cfd69a),
    ("tcp/tcpflow__tests__local.pcap", "::1", 22, 64, 0xd8805ac5a400370c),
    ("tcp/sv__tcp-fastopen-03__tfo.pcap", "10.99.99.1", 55533, 64, 0xf505cea27be9afd8),
    ("tcp/sv__tcp-fastopen-03__tfo.pcap", "10.99.99.45", 80, 64, 0x614af1b83e69f833),
    ("tcp/sv__tcp-fastopen-03__tfo.pcap", "10.99.99.1", 55534, 64, 0x9550e94ba0a7d159),
    ("tcp/sv__tcp-fastopen-03__tfo.pcap", "10.99.99.45", 80, 64, 0x365457a93453858a),
];

/// Sessions stay in the table.
const LASTING: &str = "streams.timeouts = { tcp_syn_sent = 86400, tcp_syn_recv = 86400, tcp_established = 86400, \
    tcp_fin_wait = 86400, tcp_close_wait = 86400, tcp_last_ack = 86400, tcp_time_wait = 86400, tcp_close = 86400, \
    tcp_retransmitted = 86400, tcp_unacknowledged = 86400 }";

#[test]
#[allow(clippy::print_stderr)]
fn real_sessions_begin_as_tshark_has_them() {
    let Some(folder) = captures::shared() else {
        eprintln!("SKIPPED (no ../shared/traces)");
        return;
    };
    let digest = |head: &[u8]| {
        head.iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    };
    for (capture, address, port, len, expected) in FOLLOWED {
        let trace = captures::read(&folder.join(capture)).expect("the capture can be read");
        let mut driver = Driver::new(configured(LASTING));
        driver.run_trace(&trace);
        let side = (address.parse().expect("an address"), *port);
        // A server is a side of several sessions.
        let heads: Vec<_> = heads(&driver).into_iter().filter(|(end, _)| *end == side).map(|(_, head)| head).collect();
        let is_there = heads.iter().any(|head| (head.len(), digest(head)) == (*len, *expected));
        assert!(is_there, "{capture}, {address} port {port}: {heads:?}");
    }
}

/// Sessions of which every third begins with what is banned, cut into segments that come in another order.
fn shuffled() -> Frames {
    let mut frames = Frames::default();
    for number in 0..30_u64 {
        let (client, server) = (format!("10.1.0.{number}:40000"), "192.0.2.1:80");
        let text: &[u8] =
            if number % 3 == 0 { b"GET /banned HTTP/1.1\r\n\r\n" } else { b"GET /allowed HTTP/1.1\r\n\r\n" };
        let now = |step: u64| Nanos(SECOND + step * SECOND / 10 + number);
        frames.build(now(0), &Build::tcp(&*client, server).flags(SYN).seq(7));
        frames.build(Nanos(now(0).0 + 40), &Build::tcp(server, &*client).flags(SYN_ACK).seq(89).ack(8));
        for (step, at) in [12, 0, 18, 6].into_iter().enumerate() {
            let end = text.len().min(at + 6 + if at == 18 { 9 } else { 0 });
            frames.build(
                now(1 + step as u64),
                &Build::tcp(&*client, server).seq(8 + at as u32).ack(90).data(&text[at..end]),
            );
        }
        frames.build(
            now(5),
            &Build::tcp(server, &*client).seq(90).ack(8 + text.len() as u32).data(b"HTTP/1.1 200 OK\r\n"),
        );
    }
    let sorted = {
        let mut all: Vec<_> = frames.iter().map(|(time, bytes)| (time, bytes.to_vec())).collect();
        all.sort_by_key(|(time, _)| *time);
        all
    };
    let mut frames = Frames::default();
    sorted.iter().for_each(|(time, bytes)| frames.push(*time, bytes));
    frames
}

const BANNED: &str = "patterns = [\"GET /banned\"]\n";

#[test]
fn what_begins_as_listed_is_dropped_in_whatever_order_it_comes() {
    let frames = shuffled();
    let mut driver = Driver::new(configured(BANNED));
    let dropped = driver.run(&frames).into_iter().filter(|verdict| *verdict != Verdict::FORWARD).count();
    assert_eq!(dropped, 10 * 2, "the segment that fills the gap, and the answer");
    let report = driver.report().expect("it has a report");
    assert!(report.title.starts_with("first bytes of 30 TCP sessions"), "{}", report.title);
    assert!(report.rows.iter().all(|row| row[2] == "GET /banned"), "those that were looked for come first");
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
    let trace = shuffled().trace();
    for room in ["streams = { flows = 256 }", "streams = { flows = 8 }"] {
        let verified = verify(&Arc::new(configured(&format!("{BANNED}{room}"))), &trace, &plan, &mut |_, _| ());
        assert_eq!(verified.mismatch, None, "{room}");
        let without_frames =
            |(engine, ..): &(EngineKind, usize, String)| matches!(engine, EngineKind::Scr | EngineKind::Hybrid);
        assert!(verified.refused.iter().all(without_frames), "{:?}", verified.refused);
    }
}
