use core::net::Ipv4Addr;
use std::string::{String, ToString};
use std::vec::Vec;

use memory::{Local, LocalTx};
use packet::{FiveTuple, Seq};

use super::*;
use crate::http::Digest;
use crate::testing::report_at;

struct Bench {
    function: WebCache,
    state: Index<Local>,
    connection: Connection,
    now: Nanos,
    seq: u32,
}

const STORE: Verdict = Verdict::Forward(PortId(3));

fn tuple(from_client: bool) -> FiveTuple {
    let tuple = FiveTuple::v4([10, 0, 0, 1].into(), Ipv4Addr::new(192, 0, 2, 80), 4_000, 80, packet::protocol::TCP);
    if from_client { tuple } else { tuple.reversed() }
}

impl Bench {
    fn new(text: &str) -> Self {
        let function = WebCache::new(
            toml::from_str(&std::format!("store_port = 3\n{text}")).expect("the test's own configuration"),
        );
        let state = function.shared(&Local::default());
        Self { state, function, connection: Connection::default(), now: Nanos::from_secs(1_000), seq: u32::MAX - 500 }
    }

    fn wait(&mut self, secs: u64) {
        self.now = self.now + Nanos::from_secs(secs);
    }

    fn step(&mut self, from_client: bool, event: Event) -> Verdict {
        let mut cx = Context::new(&self.state, LocalTx::default(), self.now, Seq(0));
        let segment = Segment { tuple: tuple(from_client), event };
        let Ok(verdict) = self.function.packet(&mut cx, &mut self.connection, &segment);
        verdict
    }

    fn ask(&mut self, line: &str, fields: &str) -> Verdict {
        let text = std::format!("{line} HTTP/1.1\r\n{fields}\r\n");
        self.seq = self.seq.wrapping_add(100);
        let ask = message::ask(text.as_bytes()).expect("it is a request");
        self.step(true, Event::Ask(ask, self.seq))
    }

    fn reply(&mut self, status: &str, fields: &str) {
        let text = std::format!("HTTP/1.1 {status}\r\n{fields}\r\n");
        self.seq = self.seq.wrapping_add(100);
        if let Some(reply) = message::reply(text.as_bytes()) {
            assert_eq!(self.step(false, Event::Reply(reply, self.seq)), Verdict::FORWARD);
        }
    }

    /// Requests this and gets it, so that it is indexed or not.
    fn get(&mut self, path: &str, fields: &str) {
        self.ask(&std::format!("GET {path}"), "Host: a\r\n");
        self.reply("200 OK", fields);
    }

    fn is_kept(&self, path: &str) -> bool {
        let name = Digest::of("a", &[path.as_bytes()]);
        let Ok(known) = self.state.find(&mut LocalTx::default(), name, self.now);
        known.is_some()
    }

    /// Returns the counts with these names.
    fn told(&self, names: &[&str]) -> Vec<String> {
        let rows = report_at(&self.function, &[], &self.state, self.now).unwrap().rows;
        names.iter().map(|name| rows.iter().find(|row| row[0] == *name).expect("it is told")[1].to_string()).collect()
    }
}

#[test]
fn what_was_kept_answers_until_it_is_stale() {
    let mut bench = Bench::new("longest = 100");
    bench.get("/x", "Cache-Control: max-age=60\r\nContent-Length: 1234\r\n");
    bench.get("/long", "Cache-Control: max-age=99999999999999999999\r\n");
    assert_eq!(bench.ask("GET /x", "host: A:80\r\n"), STORE);
    assert_eq!(bench.ask("GET /y", "host: a\r\n"), Verdict::FORWARD);
    assert_eq!(bench.ask("GET /x", "host: b\r\n"), Verdict::FORWARD);
    bench.wait(59);
    assert_eq!(bench.ask("GET http://a/x", "Host: x\r\n"), STORE);
    bench.wait(1);
    assert_eq!(bench.ask("GET /x", "host: a\r\n"), Verdict::FORWARD);
    assert!(bench.is_kept("/long"));
    bench.wait(40);
    assert!(!bench.is_kept("/long"), "nothing is kept for longer than configured");
    assert_eq!(bench.told(&["hits", "misses", "bytes saved", "responses indexed"]), ["2", "5", "2,468", "2"]);
}

#[test]
fn what_is_invalid_is_asked_for_nothing_and_its_connection_answers_nobody() {
    for fields in [
        "Host: a\r\nHost: b\r\n",
        "Host: a\r\nX : y\r\n",
        "Host: a\r\n folded\r\n",
        "Host: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let mut bench = Bench::new("");
        bench.get("/x", "Cache-Control: max-age=60\r\n");
        assert_eq!(bench.ask("GET /x", fields), Verdict::FORWARD, "{fields:?}");
        bench.ask("GET /y", "Host: a\r\n");
        bench.reply("400 Bad Request", "Cache-Control: max-age=60\r\n");
        bench.reply("200 OK", "Cache-Control: max-age=60\r\n");
        assert!(bench.is_kept("/x") && !bench.is_kept("/y"), "{fields:?}");
        assert_eq!(bench.told(&["invalid", "no request"]), ["1", "2"], "{fields:?}");
    }
    let mut bench = Bench::new("");
    bench.get("/x", "Cache-Control: max-age=60\r\nContent-Length: 3\r\nContent-Length: 4\r\n");
    bench.get("/y", "Cache-Control: max-age=60\r\nX : y\r\n");
    assert!(!bench.is_kept("/x") && !bench.is_kept("/y"));
    assert_eq!(bench.told(&["invalid"]), ["2"]);
}

/// The rules of RFC 9111 for responses: indexed for 60 seconds and no longer, or counted by reason.
#[test]
fn responses_are_kept_as_they_say() {
    let dates = "Date: Sun, 06 Nov 1994 08:49:00 GMT\r\n";
    for (status, fields, why) in [
        ("200 OK", "Cache-Control: public, max-age=60\r\n", ""),
        ("404 Not Found", "Cache-Control: max-age=\"60\"\r\n", ""),
        ("200 OK", "cache-control: MAX-AGE=5\r\nCache-Control: s-maxage=60\r\n", ""),
        ("200 OK", "Cache-Control: max-age=100\r\nAge: 40\r\n", ""),
        ("200 OK", "Cache-Control: max-age=60, max-age=5\r\n", ""),
        ("200 OK", "Expires: Sun, 06 Nov 1994 08:50:00 GMT\r\nDATES", ""),
        ("200 OK", "Expires: Sun, 06 Nov 1994 08:50:10 GMT\r\nAge: 10\r\nDATES", ""),
        ("200 OK", "Cache-Control: max-age=60\r\nExpires: 0\r\nSet-Cookie: a=b\r\n", ""),
        ("200 OK", "", "no lifetime"),
        ("200 OK", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nDATES", "no lifetime"),
        ("200 OK", "Expires: Sun, 06 Nov 1994 08:50:00 GMT\r\n", "no lifetime"),
        ("200 OK", "Cache-Control: max-age=0\r\n", "stale"),
        ("200 OK", "Cache-Control: max-age=soon\r\n", "stale"),
        ("200 OK", "Cache-Control: max-age=60\r\nAge: 60\r\n", "stale"),
        ("200 OK", "Expires: 0\r\nDATES", "stale"),
        ("200 OK", "Expires: Sun, 06 Nov 1994 08:49:00 GMT\r\nDATES", "stale"),
        ("200 OK", "Cache-Control: max-age=60, no-store\r\n", "no-store"),
        ("200 OK", "Cache-Control: private, max-age=60\r\n", "private"),
        ("200 OK", "Cache-Control: no-cache=\"Set-Cookie\", max-age=60\r\n", "no-cache"),
        ("200 OK", "Cache-Control: max-age=60\r\nVary: Accept\r\n", "vary"),
        ("200 OK", "Cache-Control: max-age=60\r\nVary: *\r\n", "vary"),
        ("206 Partial Content", "Cache-Control: max-age=60\r\n", "status"),
        ("304 Not Modified", "Cache-Control: max-age=60\r\n", "status"),
        ("101 Switching Protocols", "Cache-Control: max-age=60\r\n", "status"),
    ] {
        let mut bench = Bench::new("");
        bench.ask("GET /x", "Host: a\r\n");
        bench.reply(status, &fields.replace("DATES", dates));
        assert_eq!(bench.is_kept("/x"), why.is_empty(), "{status}: {fields}");
        bench.wait(59);
        assert_eq!(bench.is_kept("/x"), why.is_empty(), "{status}: {fields}");
        bench.wait(1);
        assert!(!bench.is_kept("/x"), "{status}: {fields}");
        if !why.is_empty() {
            assert_eq!(bench.told(&[why, "responses indexed"]), ["1", "0"], "{status}: {fields}");
        }
    }
}

/// Which requests may be answered, and which responses may be indexed.
#[test]
fn requests_are_answered_as_they_ask() {
    for (line, fields, is_answered, is_kept, why) in [
        ("GET /x", "Host: a\r\n", true, true, ""),
        ("GET /x", "Host: a\r\nIf-None-Match: \"1\"\r\nCache-Control: max-age=9\r\n", true, true, ""),
        ("GET /x", "Host: a\r\nCache-Control: no-cache\r\n", false, true, ""),
        ("GET /x", "Host: a\r\nCache-Control: max-age=0\r\n", false, true, ""),
        ("GET /x", "Host: a\r\nPragma: no-cache\r\n", false, true, ""),
        ("GET /x", "Host: a\r\nPragma: no-cache\r\nCache-Control: max-age=9\r\n", true, true, ""),
        ("GET /x", "Host: a\r\nAuthorization: Basic eA==\r\n", false, false, "authorization"),
        ("GET /x", "Host: a\r\nCache-Control: no-store\r\n", false, false, "request: no-store"),
        ("GET /x", "Host: a\r\nRange: bytes=0-9\r\n", false, false, "range"),
        ("GET /x", "", false, false, "no host"),
        ("HEAD /x", "Host: a\r\n", false, false, "method"),
        ("POST /x", "Host: a\r\n", false, false, "method"),
    ] {
        let mut bench = Bench::new("");
        bench.ask(line, fields);
        bench.reply("200 OK", "Cache-Control: max-age=60\r\n");
        assert_eq!(bench.is_kept("/x"), is_kept, "{line} {fields}");
        let mut bench = Bench::new("");
        bench.get("/x", "Cache-Control: max-age=60\r\n");
        assert_eq!(bench.ask(line, fields) == STORE, is_answered, "{line} {fields}");
        if !why.is_empty() {
            assert_eq!(bench.told(&[why]), ["1"], "{line} {fields}");
        }
    }
    for allows in ["public, max-age=60", "s-maxage=60", "must-revalidate, max-age=60"] {
        let mut bench = Bench::new("");
        bench.ask("GET /x", "Host: a\r\nAuthorization: Basic eA==\r\n");
        bench.reply("200 OK", &std::format!("Cache-Control: {allows}\r\n"));
        assert!(bench.is_kept("/x"), "{allows}");
    }
    let cut = message::ask(b"GET /x HTTP/1.1\r\nHost: a\r\nAcc").unwrap();
    assert_eq!(cut.what, CacheAction::Bypass(Uncacheable::Split));
    let cut = message::reply(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nSet").unwrap();
    assert_eq!(cut.keep, Keep::Not(Uncacheable::Split));
}

#[test]
fn what_is_changed_is_forgotten() {
    for (method, status, is_kept) in [
        ("PUT", "204 No Content", false),
        ("POST", "302 Found", false),
        ("DELETE", "500 Oh", true),
        ("OPTIONS", "200 OK", true),
    ] {
        let mut bench = Bench::new("");
        bench.get("/x", "Cache-Control: max-age=60\r\n");
        bench.ask(&std::format!("{method} /x"), "Host: a\r\n");
        bench.reply("100 Continue", "");
        bench.reply(status, "");
        assert_eq!(bench.is_kept("/x"), is_kept, "{method} {status}");
        assert_eq!(bench.told(&["invalidated"]), [if is_kept { "0" } else { "1" }]);
    }
}

#[test]
fn responses_come_in_the_order_of_requests() {
    let mut bench = Bench::new("");
    for path in ["/1", "/2", "/3", "/4"] {
        bench.ask(&std::format!("GET {path}"), "Host: a\r\n");
    }
    bench.reply("200 OK", "Cache-Control: max-age=60\r\n");
    bench.reply("200 OK", "");
    bench.reply("200 OK", "Cache-Control: max-age=60\r\n");
    assert_eq!(["/1", "/2", "/3", "/4"].map(|path| bench.is_kept(path)), [true, false, true, false]);
    // One is still waiting; four more are too many.
    for path in ["/5", "/6", "/7", "/8"] {
        bench.ask(&std::format!("GET {path}"), "Host: a\r\n");
    }
    bench.reply("200 OK", "Cache-Control: max-age=60\r\n");
    assert!(!bench.is_kept("/4"));
    assert_eq!(bench.told(&["no request"]), ["1"]);
    bench.step(true, Event::Syn);
    bench.get("/9", "Cache-Control: max-age=60\r\n");
    assert!(bench.is_kept("/9"), "another connection");
    bench.reply("200 OK", "Cache-Control: max-age=60\r\n");
    assert_eq!(bench.told(&["no request"]), ["2"]);
}

#[test]
fn segments_that_come_again_count_once() {
    let mut bench = Bench::new("");
    bench.get("/x", "Cache-Control: max-age=60\r\nContent-Length: 7\r\n");
    let ask = message::ask(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let reply = message::reply(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\n").unwrap();
    let seq = bench.seq.wrapping_add(100);
    for _ in 0..3 {
        assert_eq!(bench.step(true, Event::Ask(ask, seq)), STORE, "it goes the way it went");
        assert_eq!(bench.step(false, Event::Ask(ask, seq)), Verdict::FORWARD, "servers ask nothing");
    }
    for _ in 0..3 {
        bench.step(false, Event::Reply(reply, seq));
        bench.step(true, Event::Reply(reply, seq.wrapping_add(1)));
    }
    assert_eq!(bench.told(&["hits", "bytes saved", "responses indexed", "no request"]), ["1", "7", "2", "0"]);
}

#[test]
fn the_index_is_bounded_and_what_is_stale_soonest_makes_room() {
    let mut bench = Bench::new("responses = 4");
    bench.get("/soon", "Cache-Control: max-age=10\r\n");
    for number in 0..100 {
        bench.get(&std::format!("/{number}"), "Cache-Control: max-age=60\r\n");
        assert!(bench.is_kept(&std::format!("/{number}")), "the newest is always kept");
    }
    let kept = (0..100).filter(|number| bench.is_kept(&std::format!("/{number}"))).count();
    assert_eq!((kept, bench.is_kept("/soon")), (4, false));
    assert_eq!(bench.told(&["evicted", "responses indexed", "without room"]), ["97", "101", "0"]);
    bench.wait(62);
    for _ in 0..4 {
        bench.get("/none", "");
    }
    bench.get("/one", "Cache-Control: max-age=60\r\n");
    assert_eq!(bench.told(&["evicted"]), ["97"], "what is stale has been taken away");
}
