//! The buffer of first bytes against naive reassembly over segments in any order, against what tshark makes of real captures,
//! and under every engine.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::flow_buffer::FlowBuffer;
use lab::conformance::{Plan, verify};
use nf::Verdict;
use packet::{Nanos, TcpFlags};
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::{FlowBufferModel, compare};
use testkit::{Build, Driver, Frames, captures};

const SECOND: u64 = 1_000_000_000;

fn configured(text: &str) -> FlowBuffer {
    FlowBuffer::new(toml::from_str(text).expect("the test's own configuration"))
}

/// The sides of all sessions, and what each says first.
fn heads(driver: &Driver<FlowBuffer>) -> Vec<((IpAddr, u16), Vec<u8>)> {
    let sides = driver.flows().into_iter().flat_map(|(key, session, ..)| {
        let heads = session.heads().map(<[u8]>::to_vec);
        [key.source(), key.destination()].map(|end| (end.address, end.port)).into_iter().zip(heads)
    });
    sides.filter(|(_, head)| !head.is_empty()).collect()
}

/// Few sessions whose sides send pieces of a text of their own in any order, some of them changed; and control segments. Now and
/// then one has another number: of another connection, or a stray one.
fn trace() -> impl Strategy<Value = Frames> {
    let gap =
        prop_oneof![12 => Just(0), 1 => (1..4_u64, 0..3_u64).prop_map(|(secs, around)| secs * SECOND + around - 1)];
    let piece = (0..90_u32, 0..80_usize, 0..12_u8);
    let numbers = (prop_oneof![4 => Just(0), 1 => Just(1_u32)], prop_oneof![4 => Just(0), 1 => Just(1_u32)], 0..8_u32);
    let packet = (0..2_u8, any::<bool>(), 0..24_u8, piece, numbers);
    (vec((gap, packet), 1..100), any::<bool>(), any::<u32>()).prop_map(|(packets, v6, start)| {
        let mut frames = Frames::default();
        let mut now = 17 * SECOND;
        for (gap, (host, back, kind, (at, len, change), (own, other, far))) in packets {
            now += gap;
            let name = |net: &str, port| {
                if v6 { format!("[2001:db8:{net}::{host}]:{port}") } else { format!("10.0.{net}.{host}:{port}") }
            };
            let (client, server) = (name("1", 4_000 + u16::from(host)), name("2", 80 + u16::from(host)));
            let (from, to) = if back { (server, client) } else { (client, server) };
            let of =
                |back: bool, which: u32| start.wrapping_add(u32::from(back) << 30).wrapping_add(which * 30_000_000);
            let first = of(back, own);
            let ack = of(!back, other).wrapping_sub(3).wrapping_add([0, 0, 0, 0, 1, 50, 65_535, 65_536][far as usize]);
            let mut payload: Vec<u8> =
                (at..at + len as u32).map(|place| b'a' + ((place + u32::from(back)) % 26) as u8).collect();
            if change == 0
                && let Some(byte) = payload.last_mut()
            {
                *byte = b'!';
            }
            let packet = Build::tcp(&*from, &*to).seq(first.wrapping_add(1 + at).wrapping_sub(4)).ack(ack);
            let packet = match kind {
                0 | 1 => Build::tcp(&*from, &*to).seq(first.wrapping_sub(4)).flags(TcpFlags::SYN),
                2 => packet.flags(TcpFlags::FIN).data(&payload),
                3 if change < 4 => packet.flags(TcpFlags::RST),
                4 => Build::udp(&*from, &*to).data(&payload),
                5..=7 => Build::tcp(&*from, &*to).seq(first.wrapping_sub(4)).flags(TcpFlags::SYN).ack(ack),
                8 => Build::tcp(&*from, &*to).seq(first.wrapping_sub(4)).flags(TcpFlags::SYN).data(&payload),
                9..=11 => Build::tcp(&*from, &*to).seq(first.wrapping_sub(3)).ack(ack),
                12 => Build::tcp(&*from, &*to).seq(first.wrapping_sub(3)).flags(TcpFlags::RST),
                _ => packet.data(&payload),
            };
            frames.build(Nanos(now), &packet);
        }
        frames
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_naive_reassembly(
        frames in trace(),
        bytes in prop_oneof![1..=64_usize, Just(64)],
        banned in any::<bool>(),
        strict in any::<bool>(),
        idle in 1..4_u64,
    ) {
        let pattern = &b"abcdef"[..bytes.min(6)];
        let patterns: &[&[u8]] = if banned { &[pattern] } else { &[] };
        let list: Vec<&str> = patterns.iter().map(|pattern| str::from_utf8(pattern).expect("it is text")).collect();
        let text = format!("bytes = {bytes}\npatterns = {list:?}\ndrop_contradictions = {strict}\nidle_timeout = {idle}");
        let mut driver = Driver::new(configured(&text));
        let mut model = FlowBufferModel::new(bytes, patterns, strict, idle);
        compare(&mut driver, &mut model, &frames).map_err(|disagreement| TestCaseError::fail(disagreement.to_string()))?;
        let expected: HashMap<_, _> = model.heads().into_iter().map(|((_, side), head)| (side, head)).collect();
        for (side, head) in heads(&driver) {
            prop_assert_eq!(expected.get(&side), Some(&head));
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
        let mut driver = Driver::new(configured("idle_timeout = 86400"));
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
        frames.build(now(0), &Build::tcp(&*client, server).flags(TcpFlags::SYN).seq(7));
        for (step, at) in [12, 0, 18, 6].into_iter().enumerate() {
            let end = text.len().min(at + 6 + if at == 18 { 9 } else { 0 });
            frames.build(now(1 + step as u64), &Build::tcp(&*client, server).seq(8 + at as u32).data(&text[at..end]));
        }
        frames.build(now(5), &Build::tcp(server, &*client).seq(90).data(b"HTTP/1.1 200 OK\r\n"));
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
    for room in ["flows = 256", "flows = 8"] {
        let verified = verify(&Arc::new(configured(&format!("{BANNED}{room}"))), &trace, &plan, &mut |_, _| ());
        assert_eq!(verified.mismatch, None, "{room}");
        assert!(verified.refused.is_empty(), "nothing is shared");
    }
}
