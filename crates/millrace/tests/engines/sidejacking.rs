//! The sidejacking detector against its model over random traces of few clients and cookies; over real requests, and the same sent
//! by another client; and under every engine.
#![allow(clippy::print_stdout)]

use std::net::Ipv4Addr;
use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::Catalogued;
use functions::sidejacking::Sidejacking;
use functions::streams::Streams;
use lab::conformance::{Plan, verify};
use nf::{Verdict, counted, grouped};
use packet::{Nanos, Seq};
use port::{Packet, Trace};
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::SidejackingModel;
use testkit::{Driver, captures};

use crate::conformance::read;
use crate::exchange::{Exchange, Says, Turn};

const SECOND: u64 = 1_000_000_000;

fn configured(text: &str) -> Streams<Sidejacking> {
    Streams::from_config(toml::from_str(text).expect("the test's own configuration"))
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

/// Few clients and few cookies, several requests at a time now and then.
fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let gap = prop_oneof![
        6 => Just(0),
        3 => (1..4_u64).prop_map(|halves| halves * SECOND / 2),
        1 => (1..12_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ];
    let fields = (0..HOSTS.len(), 0..AGENTS.len(), 0..COOKIES.len());
    let turn = (0..12_u8, (0..3_u8, 0..2_u16, any::<bool>()), vec(fields, 1..3));
    vec((gap, turn), 1..100).prop_map(|turns| {
        let mut now = 17 * SECOND;
        let turn = |(gap, (kind, (client, port, v6), requests)): (u64, (u8, _, Vec<_>))| {
            now += gap;
            let (client, server) = if v6 {
                (format!("[2001:db8::{client}]:{}", 4000 + port), "[2001:db8::80]:80")
            } else {
                (format!("10.0.0.{client}:{}", 4000 + port), "192.0.2.80:80")
            };
            let says = match kind {
                0 => Says::End,
                1..3 => Says::Responses(vec![String::from("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")]),
                _ => Says::Requests(requests.into_iter().map(request).collect()),
            };
            Turn { now: Nanos(now), client, server, says }
        };
        turns.into_iter().map(turn).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_model(
        turns in turns(),
        differs in prop_oneof![Just("address"), Just("agent"), Just("either"), Just("both")],
        block in any::<bool>(),
        (refresh, longer) in (0..3_u64, 1..7_u64),
    ) {
        let session = refresh + longer;
        let text = format!(
            "cookies = [\"sid\", \"PHPSESSID*\"]\ndiffers = {differs:?}\nblock = {block}\nsession_timeout = {session}\n\
             refresh_interval = {refresh}\nsessions = 64"
        );
        let mut model = SidejackingModel::new(differs, block, session, refresh);
        let mut driver = Driver::new(configured(&text));
        let Exchange { frames, told } = Exchange::whole(&turns);
        let mut last = 0;
        for ((now, bytes), told) in frames.iter().zip(told) {
            let headers = packet::parse(frames.link(), bytes, bytes.len() as u32, 0).expect("it is whole");
            let verdict = driver.packet(now, Ok(&headers), bytes);
            let Some((number, message)) = told else { continue };
            turns[last..number].iter().filter(|turn| matches!(turn.says, Says::End)).for_each(|turn| model.end(&turn.client));
            last = number;
            let Turn { client, server, says, .. } = &turns[number];
            if let Says::Requests(texts) = says {
                let address = headers.addresses().expect("it is IP").0;
                model.request(now, client, (address, server), &texts[message]);
            }
            prop_assert_eq!(verdict != Verdict::FORWARD, model.is_blocked(client), "turn {}", number);
        }
        let [requests, foreign] = model.counts();
        let title = driver.report().expect("it has a report").title;
        let counts = format!("({} with a session cookie, {} by other", counted(requests, "request", "requests"), grouped(foreign));
        prop_assert!(title.contains(&counts), "{} and not {}", title, counts);
    }

    /// However the bytes are cut, in whatever order the segments come, and as often as they come: all is counted alike.
    #[test]
    fn any_cutting_counts_the_same(turns in turns(), block in any::<bool>(), seed in any::<u64>()) {
        let counted = |exchange: &Exchange| {
            let text = format!("cookies = [\"sid\"]\nblock = {block}\nsession_timeout = 5\nsessions = 8");
            let mut driver = Driver::new(configured(&text));
            driver.run(&exchange.frames);
            let report = driver.report().expect("it has a report");
            (report.title, report.rows)
        };
        prop_assert_eq!(counted(&Exchange::cut(&turns, seed)), counted(&Exchange::whole(&turns)));
    }
}

/// Users, each with a session of their own; in the middle somebody takes over one in ten.
fn takeovers() -> Vec<Turn> {
    let mut turns = Vec::new();
    let ask = |user: u32| {
        let fields = format!("Host: shop.example\r\nUser-Agent: u\r\nCookie: JSESSIONID=session-{user:04}\r\n");
        Says::Requests(vec![format!("GET /cart HTTP/1.1\r\n{fields}\r\n")])
    };
    for number in 0..600_u32 {
        let now = Nanos(100 * SECOND + u64::from(number) * SECOND / 50);
        let user = number * 7 % 100;
        let is_stolen = number >= 300 && user % 10 == 0;
        let owner = format!("10.0.1.{user}:{}", 4000 + number);
        let thief = is_stolen.then(|| format!("10.0.2.66:{}", 4000 + number));
        for client in [Some(owner), thief].into_iter().flatten() {
            let turn = |says| Turn { now, client: client.clone(), server: "192.0.2.80:80", says };
            turns.push(turn(ask(user)));
            let answer = String::from("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            turns.push(turn(Says::Responses(vec![answer])));
        }
    }
    turns
}

#[test]
fn takeovers_are_found_and_blocked_and_nobody_else_is() {
    let Exchange { frames, told } = Exchange::whole(&takeovers());
    let mut driver = Driver::new(configured("block = true\ntop = 100"));
    let mut dropped = 0;
    for (((_, bytes), verdict), told) in frames.iter().zip(driver.run(&frames)).zip(told) {
        if told.is_none() {
            assert_eq!(verdict, Verdict::FORWARD, "a handshake");
            continue;
        }
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
    let turns = takeovers();
    let traces = [Exchange::whole(&turns), Exchange::cut(&turns, 1), Exchange::cut(&turns, 2)];
    for (text, exchange) in
        ["block = true\nsessions = 128", "block = true\nsessions = 9\nsession_timeout = 2\nrefresh_interval = 0"]
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
/// capture it sees 59, of which 13 are in heads whose rest was not captured.
#[test]
fn real_sessions_are_of_one_client_until_another_sends_the_same() {
    for (capture, client, requests) in [
        ("apps/ppp__pt__4KHttpRequests.pcap.zst", [10, 0, 0, 1], 46),
        ("apps/ndpi__http_ua_splitted_in_two_pkts.pcapng", [254, 125, 135, 128], 37),
        ("apps/ndpi__WebattackSQLinj.pcap", [172, 16, 0, 1], 9),
        ("apps/sanders__http_dvwa_sqlinjection.pcapng", [10, 2, 2, 101], 3),
    ] {
        let subject = captures::shared().and_then(|folder| read(&folder.join(capture)));
        let Some(subject) = subject else { return println!("SKIPPED (no ../shared/traces)") };
        // The last packet, an hour later: connections that miss bytes have ended by then.
        let (last, bytes) = subject.trace.iter().last().expect("there are packets");
        let late = Nanos(last.time.0 + 3_600 * SECOND);
        let reported = |trace: &Trace| {
            let mut driver = Driver::new(configured("session_timeout = 86400\ntop = 1000"));
            driver.run_trace(trace);
            driver.packet(late, packet::parse(last.link, bytes, last.wire_len, 0).as_ref(), bytes);
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
