//! The web cache against its model, ports and counts, over random exchanges; over real ones; and under every engine.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::Catalogued;
use functions::streams::Streams;
use functions::web_cache::WebCache;
use lab::conformance::{Plan, verify};
use nf::{PortId, Report, Verdict};
use packet::Nanos;
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::WebCacheModel;
use testkit::{Driver, captures};

use crate::conformance::read;
use crate::exchange::{Exchange, Says, Turn};

const SECOND: u64 = 1_000_000_000;

fn configured(text: &str) -> Streams<WebCache> {
    Streams::from_config(toml::from_str(text).expect("the test's own configuration"))
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
const METHODS: [&str; 8] = ["GET", "GET", "GET", "GET", "GET", "OPTIONS", "POST", "DELETE"];
const STATUS: [&str; 8] =
    ["200 OK", "200 OK", "200 OK", "404 Not Found", "206 Part", "304 Not Modified", "100 Continue", "500 Oh"];

/// Few connections, with requests and responses in any order, several at a time now and then.
fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let gap = prop_oneof![
        8 => Just(0),
        3 => (1..4_u64).prop_map(|halves| halves * SECOND / 2),
        1 => (1..12_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ];
    let fields = (0..METHODS.len(), 0..REQUESTS.len(), 0..RESPONSES.len());
    let message = (fields, 0..3_u8, 0..4_usize);
    let turn = (0..16_u8, (0..3_u16, any::<bool>()), vec(message, 1..3));
    vec((gap, turn), 1..120).prop_map(|turns| {
        let mut now = 17 * SECOND;
        let turn = |(gap, (kind, (port, v6), messages)): (u64, (u8, _, Vec<_>))| {
            now += gap;
            let (client, server) = if v6 {
                (format!("[2001:db8::1]:{}", 4000 + port), "[2001:db8::80]:80")
            } else {
                (format!("10.0.0.1:{}", 4000 + port), "192.0.2.80:80")
            };
            let request = |((line, asks, _), path, _): &((usize, usize, usize), u8, usize)| {
                let body = match (METHODS[*line], REQUESTS[*asks]) {
                    (_, fields) if fields.contains("Content-Length: 3\r\n") => "abc",
                    _ => "",
                };
                format!("{} /{path} HTTP/1.1\r\n{}Accept: x\r\n\r\n{body}", METHODS[*line], REQUESTS[*asks])
            };
            let response = |((line, _, says), _, len): &((usize, usize, usize), u8, usize)| {
                let (status, fields, body) = (STATUS[*line], RESPONSES[*says], "0123456789".repeat(*len));
                let has_body = !["304", "100"].contains(&&status[..3]);
                match (fields, len) {
                    (fields, _) if fields.contains("chunked") => {
                        let chunk = if *len > 0 && has_body {
                            format!("{:x};x\r\n{body}\r\n", body.len())
                        } else {
                            String::new()
                        };
                        let end = if has_body { "0\r\nX: y\r\n\r\n" } else { "" };
                        format!("HTTP/1.1 {status}\r\n{fields}\r\n{chunk}{end}")
                    }
                    (fields, _) if fields.contains("Content-Length: 2") => {
                        format!("HTTP/1.1 {status}\r\n{fields}\r\n{}", if has_body { "ab" } else { "" })
                    }
                    (fields, 3) => format!("HTTP/1.1 {status}\r\n{fields}\r\n"),
                    _ => {
                        let body = if has_body { &*body } else { "" };
                        format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", len * 10)
                    }
                }
            };
            let says = match kind {
                0 => Says::End,
                1..9 => Says::Requests(messages.iter().map(request).collect()),
                _ => Says::Responses(messages.iter().map(response).collect()),
            };
            Turn { now: Nanos(now), client, server, says }
        };
        turns.into_iter().map(turn).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_model(turns in turns(), longest in 1..9_u64) {
        let text = format!("store_port = 3\nlongest = {longest}\nresponses = 64");
        let (mut driver, mut model) = (Driver::new(configured(&text)), WebCacheModel::new(longest));
        let Exchange { frames, told } = Exchange::whole(&turns);
        let mut last = 0;
        for (number, ((now, bytes), told)) in frames.iter().zip(told).enumerate() {
            let headers = packet::parse(frames.link(), bytes, bytes.len() as u32, 0).expect("it is whole");
            let got = driver.packet(now, Ok(&headers), bytes);
            let Some((turn, message)) = told else {
                prop_assert_eq!(got, Verdict::FORWARD);
                continue;
            };
            turns[last..turn].iter().filter(|turn| matches!(turn.says, Says::End)).for_each(|turn| model.end(&turn.client));
            last = turn;
            let Turn { client, says, .. } = &turns[turn];
            let hits = match says {
                Says::Requests(texts) => model.request(now, client, &texts[message]),
                Says::Responses(texts) => {
                    model.response(now, client, &texts[message]);
                    false
                }
                Says::End => false,
            };
            prop_assert_eq!(got, if hits { Verdict::Forward(PortId(3)) } else { Verdict::FORWARD }, "packet {}", number);
        }
        let report = driver.report().expect("it has a report");
        prop_assert_eq!(reported(&report, &["hits", "misses", "bytes saved"]), model.counts());
    }

    /// However the bytes are cut, in whatever order the segments come, and as often as they come: all is counted alike.
    #[test]
    fn any_cutting_counts_the_same(turns in turns(), seed in any::<u64>()) {
        let counted = |exchange: &Exchange| {
            let mut driver = Driver::new(configured("store_port = 3\nresponses = 8"));
            driver.run(&exchange.frames);
            driver.report().expect("it has a report").rows
        };
        prop_assert_eq!(counted(&Exchange::cut(&turns, seed)), counted(&Exchange::whole(&turns)));
    }
}

/// Browsers that come back to a few pages and now and then to others.
fn browsing(exchanges: u32) -> Vec<Turn> {
    let mut turns = Vec::new();
    for number in 0..exchanges {
        let now = Nanos(100 * SECOND + u64::from(number) * SECOND / 20);
        let client = format!("10.0.0.{}:{}", number % 9, 4000 + number / 5 % 50);
        let page = if number % 3 == 0 { number } else { number * number % 13 };
        let request = format!("GET /{page} HTTP/1.1\r\nHost: news.example\r\n\r\n");
        let response = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age={}\r\nContent-Length: 1000\r\n\r\n{}",
            2 + page % 9,
            "x".repeat(1_000)
        );
        let turn = |now, says| Turn { now, client: client.clone(), server: "192.0.2.80:80", says };
        turns.push(turn(now, Says::Requests(vec![request])));
        turns.push(turn(now + Nanos::from_millis(9), Says::Responses(vec![response])));
    }
    turns
}

#[test]
fn pages_that_many_want_are_answered_by_the_store() {
    let frames = Exchange::whole(&browsing(1_000)).frames;
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
    let turns = browsing(600);
    let traces = [Exchange::whole(&turns), Exchange::cut(&turns, 1), Exchange::cut(&turns, 2)];
    // Room for all, and for few.
    for (text, exchange) in ["store_port = 7\nresponses = 1024", "store_port = 7\nresponses = 8", "responses = 1"]
        .into_iter()
        .flat_map(|text| traces.iter().map(move |exchange| (text, exchange)))
    {
        let verified = verify(&Arc::new(configured(text)), &exchange.frames.trace(), &plan, &mut |_, _| ());
        assert_eq!(verified.mismatch, None, "{text}");
        for (engine, cores, _) in verified.refused {
            let shards = matches!(engine, EngineKind::Rss | EngineKind::RssPlusPlus | EngineKind::Pipeline);
            assert!(cores > 1 && shards || matches!(engine, EngineKind::Scr | EngineKind::Hybrid), "{engine}");
        }
    }
}

/// Real browsing, and the same again at once, an hour, a day and a year later. The figures are those of a script over the heads that
/// tshark sees. One of its requests is behind a gap that the tracker doesn't follow.
#[test]
fn real_pages_are_kept_as_they_say() {
    let subject = captures::shared().and_then(|folder| read(&folder.join("apps/sanders__http_espn.pcapng")));
    let Some(subject) = subject else { return println!("SKIPPED (no ../shared/traces)") };
    for (later, hits) in [(0, 45), (3_600, 37), (86_400, 37), (365 * 86_400, 0)] {
        let mut driver = Driver::new(configured("longest = 315360000"));
        for (round, mark) in [(0, 0), (later, 0x80)] {
            for (packet, bytes) in subject.trace.iter() {
                let (mut bytes, parsed) = (bytes.to_vec(), packet::parse(packet.link, bytes, packet.wire_len, 0));
                // Of other hosts, since these are other connections.
                for at in parsed.iter().flat_map(|headers| [12, 16].map(|at| usize::from(headers.network_offset) + at))
                {
                    bytes[at] ^= mark;
                }
                let parsed = packet::parse(packet.link, &bytes, packet.wire_len, 0);
                driver.packet(Nanos(packet.time.0 + round * SECOND), parsed.as_ref(), &bytes);
            }
        }
        let report = driver.report().expect("it has a report");
        let names = ["hits", "misses", "no-store", "responses indexed", "no lifetime", "no-cache", "vary", "stale"];
        assert_eq!(reported(&report, &names), [hits, 120 - hits, 4, 90, 6, 6, 14, 0], "{later} seconds later");
    }
}
