//! The web cache against its model, ports and counts, over random exchanges; over real ones; and under every engine.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::web_cache::WebCache;
use lab::conformance::{Plan, verify};
use nf::{PortId, Report, Verdict};
use packet::{Nanos, TcpFlags};
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::WebCacheModel;
use testkit::{Build, Driver, Frames, captures};

use crate::conformance::read;

const SECOND: u64 = 1_000_000_000;

fn configured(text: &str) -> WebCache {
    WebCache::new(toml::from_str(text).expect("the test's own configuration"))
}

/// What was counted of these.
fn reported(report: &Report, names: &[&str]) -> Vec<u64> {
    let count = |name: &&str| report.rows.iter().find(|row| row[0] == *name).expect("it is told")[1].number();
    names.iter().map(|name| count(name).expect("it is a number")).collect()
}

const REQUESTS: [&str; 24] = [
    "Host: a\r\n",
    "Host: a\r\n",
    "Host: a\r\n",
    "Host: a\r\n",
    "Host: a\r\nHost: b\r\n",
    "Host: a\r\nX : y\r\n",
    "Host: a\r\n folded\r\n",
    "Host: a b\r\n",
    "Host: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
    "Host: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n",
    "Host: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n",
    "Host: a\r\nContent-Length: +3\r\n",
    "Host: a\r\n",
    "Host: a\r\n",
    "HOST: A:80\r\n",
    "Host: b\r\n",
    "Host: a\r\nCache-Control: no-cache\r\n",
    "Host: a\r\nCache-Control: max-age=0, x\r\n",
    "Host: a\r\nCache-Control: max-age=3\r\nPragma: no-cache\r\n",
    "Host: a\r\nPragma: no-cache\r\n",
    "Host: a\r\nAuthorization: Basic eA==\r\n",
    "Host: a\r\nCache-Control: no-store\r\n",
    "Host: a\r\nRange: bytes=0-9\r\n",
    "",
];
const RESPONSES: [&str; 19] = [
    "Cache-Control: max-age=4\r\nX : y\r\n",
    "Cache-Control: max-age=4\r\nTransfer-Encoding: chunked\r\n",
    "Cache-Control: max-age=4\r\nContent-Length: 2\r\n",
    "Cache-Control: max-age=4\r\n",
    "Cache-Control: max-age=2\r\n",
    "Cache-Control: public, max-age=3\r\n",
    "Cache-Control: max-age=1,,s-maxage=\"5\"\r\n",
    "Cache-Control: max-age=5\r\nAge: 2\r\n",
    "Cache-Control: MAX-AGE=many\r\n",
    "Cache-Control: private\r\ncache-control: max-age=9\r\n",
    "Cache-Control: max-age=9, no-store\r\n",
    "Cache-Control: no-cache, max-age=9\r\n",
    "Cache-Control: max-age=9\r\nVary: Accept\r\n",
    "Expires: Sun, 06 Nov 1994 08:49:37 GMT\r\nDate: Sun, 06 Nov 1994 08:49:33 GMT\r\n",
    "Expires: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    "Expires: 0\r\nDate: Sun, 06 Nov 1994 08:49:33 GMT\r\n",
    "Expires: 0\r\nCache-Control: max-age=3, must-revalidate\r\n",
    "",
    "Cache-Control: max-age=99999\r\n",
];
const METHODS: [&str; 8] = ["GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "DELETE"];
const STATUS: [&str; 8] =
    ["200 OK", "200 OK", "200 OK", "404 Not Found", "206 Part", "304 Not Modified", "100 Continue", "500 Oh"];

fn trace() -> impl Strategy<Value = Frames> {
    let gap = prop_oneof![
        8 => Just(0),
        3 => (1..4_u64).prop_map(|halves| halves * SECOND / 2),
        1 => (1..12_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ];
    let fields = (0..8_usize, 0..REQUESTS.len(), 0..RESPONSES.len());
    let cut = prop_oneof![9 => Just(999), 1 => 0..90_usize];
    let packet =
        (0..16_u8, (0..3_u16, any::<bool>(), 0..3_u8), fields, cut, prop_oneof![9 => Just(10_i32), 1 => -20..1_i32]);
    vec((gap, packet), 1..200).prop_map(|packets| {
        let mut frames = Frames::default();
        let (mut now, mut seq) = (17 * SECOND, u32::MAX - 1_000);
        for (number, (gap, (kind, (port, v6, path), (line, asks, says), cut, step))) in packets.into_iter().enumerate()
        {
            now += gap;
            seq = seq.wrapping_add_signed(step);
            let (client, server) = if v6 {
                (format!("[2001:db8::1]:{}", 4000 + port), "[2001:db8::80]:80")
            } else {
                (format!("10.0.0.1:{}", 4000 + port), "192.0.2.80:80")
            };
            let request = format!("{} /{path} HTTP/1.1\r\n{}Accept: x\r\n\r\n", METHODS[line], REQUESTS[asks]);
            let length = if number % 4 == 0 { String::new() } else { format!("Content-Length: {number}\r\n") };
            let response = format!("HTTP/1.1 {}\r\n{}{length}\r\n", STATUS[line], RESPONSES[says]);
            let [request, response] = [&request, &response].map(|text| &text.as_bytes()[..cut.min(text.len())]);
            let (asks, says) = (Build::tcp(&*client, server).seq(seq), Build::tcp(server, &*client).seq(seq));
            frames.build(
                Nanos(now),
                &match kind {
                    0..7 => asks.data(request),
                    7..12 => says.data(response),
                    12 => asks.flags([TcpFlags::SYN, TcpFlags::RST][usize::from(v6)]).data(request),
                    13 => says.flags(TcpFlags::FIN.with(TcpFlags::ACK)).data(if v6 { response } else { b"" }),
                    14 => {
                        if v6 {
                            says.data(request)
                        } else {
                            asks.data(response)
                        }
                    }
                    _ => {
                        if v6 {
                            says.data(b"body")
                        } else {
                            Build::udp(&*client, server).data(request)
                        }
                    }
                },
            );
        }
        frames
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_model(frames in trace(), longest in 1..9_u64, idle in 1..9_u64) {
        let text = format!("store_port = 3\nlongest = {longest}\nidle_timeout = {idle}\nresponses = 64");
        let (mut driver, mut model) = (Driver::new(configured(&text)), WebCacheModel::new(3, longest, idle));
        for (number, (now, bytes)) in frames.iter().enumerate() {
            let headers = packet::parse(frames.link(), bytes, bytes.len() as u32, 0).expect("it is whole");
            let got = driver.packet(now, Ok(&headers), bytes);
            prop_assert_eq!(got, model.verdict(now, &headers, headers.payload(bytes)), "packet {}", number);
        }
        let report = driver.report().expect("it has a report");
        prop_assert_eq!(reported(&report, &["hits", "misses", "bytes saved"]), model.counts());
    }
}

/// Browsers that come back to a few pages and now and then to others.
fn browsing(exchanges: u32) -> Frames {
    let mut frames = Frames::default();
    for number in 0..exchanges {
        let now = Nanos(100 * SECOND + u64::from(number) * SECOND / 20);
        let client = format!("10.0.0.{}:{}", number % 9, 4000 + number / 5 % 50);
        let page = if number % 3 == 0 { number } else { number * number % 13 };
        let request = format!("GET /{page} HTTP/1.1\r\nHost: news.example\r\n\r\n");
        let response =
            format!("HTTP/1.1 200 OK\r\nCache-Control: max-age={}\r\nContent-Length: 1000\r\n\r\n", 2 + page % 9);
        frames.build(now, &Build::tcp(&*client, "192.0.2.80:80").seq(number * 100).data(request.as_bytes()));
        let reply = Build::tcp("192.0.2.80:80", &*client).seq(number * 1_000).data(response.as_bytes());
        frames.build(now + Nanos::from_millis(9), &reply);
    }
    frames
}

#[test]
fn pages_that_many_want_are_answered_by_the_store() {
    let frames = browsing(1_000);
    let mut driver = Driver::new(configured("store_port = 7"));
    let verdicts = driver.run(&frames);
    let by_store = verdicts.iter().filter(|verdict| **verdict == Verdict::Forward(PortId(7))).count() as u64;
    let report = driver.report().expect("it has a report");
    let [hits, misses, bytes, kept] = reported(&report, &["hits", "misses", "bytes saved", "responses indexed"])[..]
    else {
        unreachable!("as many as asked for")
    };
    assert_eq!((hits, hits + misses, bytes, kept), (by_store, 1_000, hits * 1_000, 1_000), "{report:#?}");
    assert!(hits > 400, "{hits} hits");
}

#[test]
fn every_engine_knows_the_same() {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..3,
        threads: true,
        options: Options::default(),
    };
    let trace = browsing(1_000).trace();
    // Room for all, and for few.
    for text in ["store_port = 7\nresponses = 1024", "store_port = 7\nresponses = 8", "responses = 1\nidle_timeout = 1"]
    {
        let verified = verify(&Arc::new(configured(text)), &trace, &plan, &mut |_, _| ());
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

/// Real browsing, and the same again at once, an hour, a day and a year later. The figures are those of a script over the heads that
/// tshark sees. It puts together one request and one response a round that are split here: two misses more, and two stale.
#[test]
fn real_pages_are_kept_as_they_say() {
    let subject = captures::shared().and_then(|folder| read(&folder.join("apps/sanders__http_espn.pcapng")));
    let Some(subject) = subject else { return println!("SKIPPED (no ../shared/traces)") };
    for (later, hits) in [(0, 46), (3_600, 38), (86_400, 38), (365 * 86_400, 0)] {
        let mut driver = Driver::new(configured("longest = 315360000"));
        for round in [0, later] {
            for (packet, bytes) in subject.trace.iter() {
                let parsed = packet::parse(packet.link, bytes, packet.wire_len, 0);
                driver.packet(Nanos(packet.time.0 + round * SECOND), parsed.as_ref(), bytes);
            }
        }
        let report = driver.report().expect("it has a report");
        let names = ["hits", "misses", "split head", "responses indexed", "no lifetime", "no-cache", "vary", "stale"];
        assert_eq!(reported(&report, &names), [hits, 118 - hits, 4, 92, 6, 6, 14, 0], "{later} seconds later");
    }
}
