use std::string::{String, ToString};
use std::vec::Vec;

use memory::{Local, LocalTx};

use stream::{End, Gap};

use super::*;
use crate::http::Digest;
use crate::testing::{Asked, report_shared, tell};

struct Bench {
    function: WebCache,
    state: Index<Local>,
    connection: Connection,
    now: Nanos,
}

const STORE: Option<PortId> = Some(PortId(3));

impl Bench {
    fn new(text: &str) -> Self {
        let function = WebCache::new(
            &toml::from_str(&std::format!("store_port = 3\n{text}")).expect("the test's own configuration"),
        );
        let state = function.shared(&Local::default());
        Self { state, function, connection: Connection::default(), now: Nanos::from_secs(1_000) }
    }

    fn wait(&mut self, secs: u64) {
        self.now = self.now + Nanos::from_secs(secs);
    }

    fn tell(&mut self, said: Said<'_>) -> Asked {
        tell(&self.function, &self.state, self.now, &mut self.connection, said)
    }

    /// Returns the port by which the request goes.
    fn ask(&mut self, line: &str, fields: &str) -> Option<PortId> {
        let text = std::format!("{line} HTTP/1.1\r\n{fields}\r\n");
        let Asked { port, drops, holds } = self.tell(Said::Data(Direction::Original, text.as_bytes()));
        assert!(!drops && holds == 0);
        port
    }

    fn reply(&mut self, status: &str, fields: &str) {
        let length =
            if fields.contains("Length") || fields.contains("Transfer") { "" } else { "Content-Length: 0\r\n" };
        let text = std::format!("HTTP/1.1 {status}\r\n{fields}{length}\r\n");
        let asked = self.tell(Said::Data(Direction::Reply, text.as_bytes()));
        assert_eq!(asked, Asked { port: None, drops: false, holds: 0 });
        let length = fields.split("\r\n").find_map(|field| field.strip_prefix("Content-Length: "));
        let body = std::vec![b'x'; length.map_or(0, |length| length.parse().expect("a number"))];
        self.tell(Said::Data(Direction::Reply, &body));
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
        let rows = report_shared(&self.function, &self.state, self.now).unwrap().rows;
        names.iter().map(|name| rows.iter().find(|row| row[0] == *name).expect("it is told")[1].to_string()).collect()
    }
}

#[test]
fn what_was_kept_answers_until_it_is_stale() {
    let mut bench = Bench::new("longest = 100");
    bench.get("/x", "Cache-Control: max-age=60\r\nContent-Length: 1234\r\n");
    bench.get("/long", "Cache-Control: max-age=99999999999999999999\r\n");
    assert_eq!(bench.ask("GET /x", "host: A:80\r\n"), STORE);
    assert_eq!(bench.ask("GET /y", "host: a\r\n"), None);
    assert_eq!(bench.ask("GET /x", "host: b\r\n"), None);
    bench.wait(59);
    assert_eq!(bench.ask("GET http://a/x", "Host: x\r\n"), STORE);
    bench.wait(1);
    assert_eq!(bench.ask("GET /x", "host: a\r\n"), None);
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
        assert_eq!(bench.ask("GET /x", fields), None, "{fields:?}");
        bench.ask("GET /y", "Host: a\r\n");
        bench.reply("400 Bad Request", "Cache-Control: max-age=60\r\n");
        bench.reply("200 OK", "Cache-Control: max-age=60\r\n");
        assert!(bench.is_kept("/x") && !bench.is_kept("/y"), "{fields:?}");
        assert_eq!(bench.told(&["invalid", "no request"]), ["1", "2"], "{fields:?}");
    }
    for fields in ["Content-Length: 3\r\nContent-Length: 4\r\n", "X : y\r\n"] {
        let mut bench = Bench::new("");
        bench.get("/x", &std::format!("Cache-Control: max-age=60\r\n{fields}"));
        bench.get("/y", "Cache-Control: max-age=60\r\n");
        assert!(!bench.is_kept("/x") && !bench.is_kept("/y"), "nobody knows where the next response begins");
        assert_eq!(bench.told(&["invalid", "misses"]), ["1", "2"]);
    }
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
    bench.connection = Connection::default();
    bench.get("/9", "Cache-Control: max-age=60\r\n");
    assert!(bench.is_kept("/9"), "another connection");
    bench.reply("200 OK", "Cache-Control: max-age=60\r\n");
    assert_eq!(bench.told(&["no request"]), ["2"]);
}

#[test]
fn a_gap_or_an_end_within_a_head_is_told_and_what_is_behind_it_matches_no_request() {
    let gap = |len| Said::Gap(Direction::Original, Gap { len, end: End::Acknowledged });
    let begun = Said::Data(Direction::Original, b"GET /x HTTP/1.1\r\nHost: a\r\n");
    let mut bench = Bench::new("");
    assert_eq!(bench.tell(begun).holds, 26);
    bench.tell(gap(10));
    bench.get("/y", "Cache-Control: max-age=60\r\n");
    assert!(!bench.is_kept("/y"), "a request may be missing before it");
    assert_eq!(bench.told(&["incomplete head", "misses", "no request"]), ["1", "1", "1"]);
    // A gap in a body loses nothing.
    let mut bench = Bench::new("");
    bench.tell(Said::Data(Direction::Original, b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n01"));
    bench.tell(gap(10));
    bench.reply("200 OK", "");
    bench.get("/y", "Cache-Control: max-age=60\r\n");
    assert!(bench.is_kept("/y"));
    assert_eq!(bench.tell(begun).holds, 26);
    bench.tell(Said::End(Direction::Original));
    assert_eq!(bench.told(&["incomplete head"]), ["1"]);
}

#[test]
fn a_head_that_is_too_long_ends_its_side() {
    let mut bench = Bench::new("");
    let text = std::format!("GET /x HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(HELD_MAX));
    assert_eq!(bench.tell(Said::Data(Direction::Original, text.as_bytes())).holds, 0);
    bench.get("/y", "Cache-Control: max-age=60\r\n");
    assert!(!bench.is_kept("/y"));
    assert_eq!(bench.told(&["long head", "misses", "no request"]), ["1", "0", "1"]);
}

#[test]
fn a_response_to_head_has_no_body() {
    let mut bench = Bench::new("");
    bench.ask("HEAD /x", "Host: a\r\n");
    bench.ask("GET /y", "Host: a\r\n");
    let both = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nHTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\n";
    bench.tell(Said::Data(Direction::Reply, both));
    assert!(!bench.is_kept("/x") && bench.is_kept("/y"));
}

#[test]
fn servers_ask_nothing_and_clients_answer_nothing() {
    let mut bench = Bench::new("");
    bench.get("/x", "Cache-Control: max-age=60\r\n");
    let asked = bench.tell(Said::Data(Direction::Reply, b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(asked.port, None);
    bench.tell(Said::Data(Direction::Original, b"HTTP/1.1 200 OK\r\n\r\n"));
    assert_eq!(bench.told(&["hits", "misses", "no request"]), ["0", "1", "0"]);
    // A connection that is picked up at a response.
    let mut bench = Bench::new("");
    bench.tell(Said::Data(Direction::Original, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    bench.tell(Said::Data(Direction::Reply, b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(bench.told(&["misses", "no request"]), ["1", "1"]);
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
