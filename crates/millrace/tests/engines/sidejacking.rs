//! The sidejacking detector against its model over random traces of few clients and cookies; over real requests, and the same sent
//! by another client; and under every engine.
#![allow(clippy::print_stdout)]

use std::net::Ipv4Addr;
use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::sidejacking::Sidejacking;
use lab::conformance::{Plan, verify};
use nf::Verdict;
use packet::{Nanos, Seq, TcpFlags};
use port::{Packet, Trace};
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::{SidejackingModel, compare};
use testkit::{Build, Driver, Frames, captures};

use crate::conformance::read;

const SECOND: u64 = 1_000_000_000;

fn configured(text: &str) -> Sidejacking {
    Sidejacking::new(toml::from_str(text).expect("the test's own configuration"))
}

const HOSTS: [&str; 4] = ["Host: a.example\r\n", "HOST:A.example:80\r\n", "Host: b.example\r\n", ""];
const AGENTS: [&str; 3] = ["User-Agent: one\r\n", "User-Agent: other\r\n", ""];
const COOKIES: [&str; 8] = [
    "Cookie: sid=0123456789\r\n",
    "cookie: lang=en; SID=0123456789; x\r\n",
    "Cookie: lang=0123456789\r\nCookie: sid=abcdefgh\r\n",
    "Cookie: sid=short; PHPSESSID2=0123456789\r\n",
    "Cookie: =0123456789; sid\r\n",
    "Cookie: sid=0123456789\r\n",
    "Cookie: sid=0123456789\r\n",
    "",
];

fn request((host, agent, cookie): (usize, usize, usize)) -> String {
    format!("GET /x HTTP/1.1\r\n{}{}{}Accept: all\r\n\r\n", HOSTS[host], AGENTS[agent], COOKIES[cookie])
}

fn trace() -> impl Strategy<Value = Frames> {
    let gap = prop_oneof![
        6 => Just(0),
        3 => (1..4_u64).prop_map(|halves| halves * SECOND / 2),
        1 => (1..12_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ];
    let fields = (0..HOSTS.len(), 0..AGENTS.len(), 0..COOKIES.len());
    let packet = (0..12_u8, (0..3_u8, 0..2_u16, any::<bool>()), fields, prop_oneof![4 => Just(999), 1 => 0..120_usize]);
    vec((gap, packet), 1..150).prop_map(|packets| {
        let mut frames = Frames::default();
        let mut now = 17 * SECOND;
        for (gap, (kind, (client, port, v6), fields, len)) in packets {
            now += gap;
            let (client, server) = if v6 {
                (format!("[2001:db8::{client}]:{}", 4000 + port), "[2001:db8::80]:80")
            } else {
                (format!("10.0.0.{client}:{}", 4000 + port), "192.0.2.80:80")
            };
            let text = request(fields);
            let text = &text.as_bytes()[..len.min(text.len())];
            frames.build(
                Nanos(now),
                &match kind {
                    0 => Build::tcp(&*client, server).flags(TcpFlags::SYN),
                    1 => Build::tcp(&*client, server).flags(TcpFlags::RST).data(text),
                    2 => Build::tcp(server, &*client).flags(TcpFlags::FIN.with(TcpFlags::ACK)),
                    3 => Build::tcp(server, &*client).data(b"HTTP/1.1 200 OK\r\n\r\n"),
                    4 => Build::udp(&*client, server).data(text),
                    5 => Build::tcp(&*client, server).flags(TcpFlags::FIN.with(TcpFlags::ACK)).data(text),
                    _ => Build::tcp(&*client, server).data(text),
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
        differs in prop_oneof![Just("address"), Just("agent"), Just("either"), Just("both")],
        block in any::<bool>(),
        (refresh, longer, idle) in (0..3_u64, 1..7_u64, 1..9_u64),
    ) {
        let session = refresh + longer;
        let text = format!(
            "cookies = [\"sid\", \"PHPSESSID*\"]\ndiffers = {differs:?}\nblock = {block}\nsession_timeout = {session}\n\
             refresh_interval = {refresh}\nidle_timeout = {idle}\nsessions = 64"
        );
        let mut model = SidejackingModel::new(differs, block, session, refresh, idle);
        compare(&mut Driver::new(configured(&text)), &mut model, &frames)
            .map_err(|disagreement| TestCaseError::fail(disagreement.to_string()))?;
    }
}

/// Users, each with a session of their own; in the middle somebody takes over one in ten.
fn takeovers() -> Frames {
    let mut frames = Frames::default();
    let ask = |user: u32| {
        let fields = format!("Host: shop.example\r\nUser-Agent: u\r\nCookie: JSESSIONID=session-{user:04}\r\n");
        format!("GET /cart HTTP/1.1\r\n{fields}\r\n")
    };
    for number in 0..600_u32 {
        let now = Nanos(100 * SECOND + u64::from(number) * SECOND / 50);
        let user = number * 7 % 100;
        let client = format!("10.0.1.{user}:{}", 4000 + number);
        frames.build(now, &Build::tcp(&*client, "192.0.2.80:80").data(ask(user).as_bytes()));
        frames.build(now, &Build::tcp("192.0.2.80:80", &*client).data(b"HTTP/1.1 200 OK\r\n\r\n"));
        if number >= 300 && user % 10 == 0 {
            let thief = format!("10.0.2.66:{}", 4000 + number);
            frames.build(now, &Build::tcp(&*thief, "192.0.2.80:80").data(ask(user).as_bytes()));
            frames.build(now, &Build::tcp("192.0.2.80:80", &*thief).data(b"HTTP/1.1 200 OK\r\n\r\n"));
        }
    }
    frames
}

#[test]
fn takeovers_are_found_and_blocked_and_nobody_else_is() {
    let frames = takeovers();
    let mut driver = Driver::new(configured("block = true\ntop = 100"));
    let mut dropped = 0;
    for ((_, bytes), verdict) in frames.iter().zip(driver.run(&frames)) {
        let headers = packet::parse(frames.link(), bytes, bytes.len() as u32, 0).expect("it is whole");
        let (src, dst) = headers.addresses().expect("it is IP");
        let thief = std::net::IpAddr::from([10, 0, 2, 66]);
        assert_eq!(verdict != Verdict::FORWARD, src == thief || dst == thief, "{src} to {dst}");
        dropped += usize::from(verdict != Verdict::FORWARD);
    }
    let report = driver.report().expect("it has a report");
    assert_eq!((dropped, report.rows.len()), (60, 10), "{report:#?}");
    assert!(report.rows.iter().all(|row| row[2] == "10.0.2.66" && row[3] == "the same" && row[4] == "3"));
}

#[test]
fn every_engine_finds_them() {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..3,
        threads: true,
        options: Options::default(),
    };
    let trace = takeovers().trace();
    for text in
        ["block = true\nsessions = 128", "block = true\nsessions = 9\nsession_timeout = 2\nrefresh_interval = 0"]
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

/// Every packet, and the same once more as if another client had sent it or got it.
fn with_another(trace: &Trace, clients: Ipv4Addr) -> Trace {
    let mut both = Trace::new();
    for copy in 0..2_u8 {
        for (packet, bytes) in trace.iter() {
            let mut bytes = bytes.to_vec();
            let headers = packet::parse(packet.link, &bytes, packet.wire_len, packet.interface);
            if let Ok(headers) = headers
                && copy == 1
            {
                for at in [12, 16].map(|at| usize::from(headers.network_offset) + at) {
                    if bytes.get(at..at + 4) == Some(&clients.octets()) {
                        bytes[at] ^= 0x40;
                    }
                }
            }
            // Both have to use a session while it lasts.
            let time = Nanos(packet.time.0 + u64::from(copy));
            both.push(Packet { seq: Seq(both.len() as u64), time, ..*packet }, &bytes);
        }
    }
    both
}

/// Requests with a cookie of the usual names, by tshark: `-Y 'http.request && http.cookie' -T fields -e http.cookie`. In the first
/// capture it sees 59, of which 13 are in heads that go on in the next segment, cut within the cookie.
#[test]
fn real_sessions_are_of_one_client_until_another_sends_the_same() {
    for (capture, client, requests) in [
        ("apps/ppp__pt__4KHttpRequests.pcap.zst", [10, 0, 0, 1], 46),
        ("apps/ndpi__http_ua_splitted_in_two_pkts.pcapng", [254, 125, 135, 128], 30),
        ("apps/ndpi__WebattackSQLinj.pcap", [172, 16, 0, 1], 9),
        ("apps/sanders__http_dvwa_sqlinjection.pcapng", [10, 2, 2, 101], 3),
    ] {
        let subject = captures::shared().and_then(|folder| read(&folder.join(capture)));
        let Some(subject) = subject else { return println!("SKIPPED (no ../shared/traces)") };
        let reported = |trace: &Trace| {
            let mut driver = Driver::new(configured("session_timeout = 86400\ntop = 1000"));
            driver.run_trace(trace);
            driver.report().expect("it has a report")
        };
        let title = reported(&subject.trace).title;
        assert!(
            title.contains(&format!("({requests} requests with a session cookie, 0 by other clients")),
            "{capture}: {title}"
        );
        let report = reported(&with_another(&subject.trace, client.into()));
        let both = format!("({} requests with a session cookie, {requests} by other clients", 2 * requests);
        assert!(report.title.contains(&both), "{capture}: {}", report.title);
        let [owner, other] = [0, 0x40].map(|bits| {
            let [first, rest @ ..] = client;
            let [b, c, d]: [u8; 3] = rest;
            Ipv4Addr::new(first ^ bits, b, c, d).to_string()
        });
        assert!(!report.rows.is_empty() && report.rows.iter().all(|row| row[1] == *owner && row[2] == *other));
    }
}
