//! The HTTP server: what it serves and refuses, that it is bounded, and that no client can stop it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use millrace_daemon::{Core, DaemonError, HttpServer, Latest, Routes, Serving, Stats};
use proptest::prelude::*;

const ALL: Routes = Routes { metrics: true, page: true };

fn serve(routes: Routes, latest: &Arc<Latest>) -> Serving {
    let server = HttpServer::bind("127.0.0.1:0".parse().expect("it is an address")).expect("there are ports");
    server.serve(routes, Arc::clone(latest)).expect("there are threads")
}

fn with_sample() -> Arc<Latest> {
    let latest = Arc::new(Latest::new());
    latest.set(sample(1));
    latest
}

fn sample(seconds: u64) -> Stats {
    let core = Core { received: 10 * seconds, forwarded: 10 * seconds, ..Core::default() };
    Stats { function: "nat".to_owned(), uptime_ms: 1000 * seconds, cores: vec![core], ..Stats::default() }
}

fn connect(addr: SocketAddr) -> TcpStream {
    TcpStream::connect(addr).expect("it listens")
}

/// Writes bytes and returns what comes back.
fn raw(addr: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(addr);
    // The other end may stop reading.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("answers are text")
}

/// The status, the head and the body of an answer to a request.
fn ask(addr: SocketAddr, line: &str) -> (u16, String, String) {
    split(&raw(addr, format!("{line} HTTP/1.1\r\nHost: {addr}\r\n\r\n").as_bytes()))
}

fn split(answer: &str) -> (u16, String, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest[..3].parse().ok());
    (status.unwrap_or_else(|| panic!("no status: {head}")), head.to_owned(), body.to_owned())
}

/// A stream of events that has begun.
fn stream(addr: SocketAddr) -> BufReader<TcpStream> {
    let mut client = connect(addr);
    client.write_all(format!("GET /events HTTP/1.1\r\nHost: {addr}\r\n\r\n").as_bytes()).expect("it reads");
    let mut events = BufReader::new(client);
    let mut line = String::new();
    events.read_line(&mut line).expect("it answers");
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    events
}

/// The next event of a stream: its lines.
fn event(events: &mut impl BufRead) -> String {
    let mut event = String::new();
    while !event.ends_with("\n\n") && !event.ends_with("\r\n\r\n") {
        let len = events.read_line(&mut event).expect("it goes on");
        assert!(len > 0, "the stream ended in {event:?}");
    }
    event
}

#[test]
fn what_is_served() {
    let serving = serve(ALL, &with_sample());
    for (path, kind, part) in [
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", "\nmillrace_packets_received_total{core=\"0\"} 10\n"),
        ("/metrics?a=b", "text/plain; version=0.0.4; charset=utf-8", "millrace_build_info"),
        ("/", "text/html; charset=utf-8", "<!doctype html>"),
    ] {
        let (status, head, body) = ask(serving.addr(), &format!("GET {path}"));
        assert_eq!(status, 200, "{path}");
        for field in [format!("Content-Type: {kind}"), format!("Content-Length: {}", body.len())] {
            assert!(head.contains(&format!("\r\n{field}\r\n")), "{path}: {field} in {head}");
        }
        assert!(head.ends_with("\r\nConnection: close"), "{head}");
        assert!(body.contains(part), "{path}: {body}");
        let (status, head, body) = ask(serving.addr(), &format!("HEAD {path}"));
        assert_eq!((status, body.as_str()), (200, ""), "{path}");
        assert!(head.contains("\r\nContent-Length: "), "{path}");
    }
    let (status, head, body) = ask(serving.addr(), "HEAD /events");
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("\r\nContent-Type: text/event-stream\r\n"));
}

/// A browser runs the page's own script and no other, and each answer has another nonce.
#[test]
fn the_page_allows_no_script_but_its_own() {
    let serving = serve(ALL, &with_sample());
    let nonces = [(), ()].map(|()| {
        let (_, head, body) = ask(serving.addr(), "GET /");
        assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; script-src 'nonce-"), "{head}");
        let nonce = body.split("<script nonce=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("it has one");
        assert_eq!(nonce.len(), 32);
        assert!(head.contains(&format!("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}';")), "{head}");
        assert!(!body.contains("{nonce}"));
        nonce.to_owned()
    });
    assert_ne!(nonces[0], nonces[1]);
}

#[test]
fn what_is_refused_is_told_so() {
    let latest = with_sample();
    let serving = serve(ALL, &latest);
    let addr = serving.addr();
    for (line, status, sentence) in [
        ("GET /nothing", 404, "There is no such page: this server has / and /metrics.\n"),
        ("GET //metrics", 404, "There is no such page: this server has / and /metrics.\n"),
        ("POST /metrics", 405, "Only GET and HEAD are served here.\n"),
        ("DELETE /", 405, "Only GET and HEAD are served here.\n"),
    ] {
        let (found, head, body) = ask(addr, line);
        assert_eq!((found, body.as_str()), (status, sentence), "{line}");
        assert_eq!(status == 405, head.contains("\r\nAllow: GET, HEAD\r\n"), "{line}");
    }
    let (status, _, body) = ask(addr, "HEAD /nothing");
    assert_eq!((status, body.as_str()), (404, ""));
    for (fields, status, part) in [
        ("Host: rebound.example\r\n", 421, "DNS rebinding"),
        ("Host: localhost.rebound.example:80\r\n", 421, "DNS rebinding"),
        ("", 400, "no Host"),
        ("Host: localhost\r\nHost: localhost\r\n", 400, "more than one Host"),
        (&format!("Host: localhost\r\nA: {}\r\n", "a".repeat(9 << 10)), 431, "longer than 8 KiB"),
        (&format!("Host: localhost\r\n{}", "A: a\r\n".repeat(100)), 431, "more than 64 header fields"),
    ] {
        let (found, _, body) = split(&raw(addr, format!("GET /metrics HTTP/1.1\r\n{fields}\r\n").as_bytes()));
        assert_eq!(found, status, "{fields}");
        assert!(body.contains(part), "{fields}: {body}");
    }
    let (status, _, _) = split(&raw(addr, b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n"));
    assert_eq!(status, 400, "a client of TLS");
    for (routes, path, status) in [
        (Routes { metrics: true, page: false }, "/", 404),
        (Routes { metrics: true, page: false }, "/events", 404),
        (Routes { metrics: true, page: false }, "/metrics", 200),
        (Routes { metrics: false, page: true }, "/metrics", 404),
        (Routes { metrics: false, page: true }, "/", 200),
        (Routes::default(), "/", 404),
    ] {
        let serving = serve(routes, &latest);
        assert_eq!(ask(serving.addr(), &format!("GET {path}")).0, status, "{routes:?} {path}");
    }
    let serving = serve(ALL, &Arc::new(Latest::new()));
    assert_eq!(ask(serving.addr(), "GET /metrics").0, 503, "there is no sample yet");
}

#[test]
fn an_address_that_is_taken() {
    let first = serve(ALL, &with_sample());
    let error = HttpServer::bind(first.addr()).expect_err("it is taken");
    assert!(matches!(&error, DaemonError::Listen { addr, .. } if *addr == first.addr()));
    assert!(error.to_string().ends_with("; name another address"), "{error}");
    // Once it has stopped the address is free, although clients were there.
    let addr = first.addr();
    ask(addr, "GET /metrics");
    drop(first);
    HttpServer::bind(addr).expect("it is free");
}

#[test]
fn each_sample_is_an_event() {
    let latest = Arc::new(Latest::new());
    let serving = serve(ALL, &latest);
    let mut early = stream(serving.addr());
    assert!(event(&mut early).contains("Content-Type: text/event-stream\r\n"));
    assert_eq!(event(&mut early), "retry: 2000\n\n");
    assert_eq!(event(&mut early), "event: history\ndata: []\n\n");
    for seconds in 1..4 {
        latest.set(sample(seconds));
        let text = event(&mut early);
        let json = text.strip_prefix("data: ").expect("it is a sample");
        assert_eq!(serde_json::from_str::<Stats>(json).expect("it is JSON"), sample(seconds));
    }
    // Who comes later has the last two minutes, and the newest sample at once.
    let mut late = stream(serving.addr());
    event(&mut late);
    event(&mut late);
    assert_eq!(
        event(&mut late),
        "event: history\ndata: [[1000,10,0,10,0,0],[2000,20,0,20,0,0],[3000,30,0,30,0,0]]\n\n"
    );
    assert!(event(&mut late).contains("\"uptime_ms\":3000"));
    // Both are told when the run ends, and then closed.
    drop(serving);
    for mut events in [early, late] {
        assert_eq!(event(&mut events), "event: end\ndata: the run has ended\n\n");
        assert_eq!(events.read(&mut [0]).expect("it closes"), 0);
    }
}

/// Clients that send nothing take all places, until their time is up.
#[test]
fn connections_are_bounded() {
    let serving = serve(ALL, &with_sample());
    let idle: Vec<TcpStream> = (0..32).map(|_| connect(serving.addr())).collect();
    let turned_away = raw(serving.addr(), b"");
    assert!(turned_away.starts_with("HTTP/1.1 503 "), "{turned_away}");
    assert!(turned_away.ends_with("\r\n\r\nThere are 32 connections already.\n"), "{turned_away}");
    for mut client in idle {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("it is text");
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    until(|| status(serving.addr(), "/metrics") == Some(200));
}

/// Viewers that don't read lose their places; until then scrapes have room.
#[test]
fn slow_viewers_are_let_go() {
    let latest = with_sample();
    let serving = serve(ALL, &latest);
    let viewers: Vec<_> = (0..24).map(|_| stream(serving.addr())).collect();
    let (status_of_another, _, body) = ask(serving.addr(), "GET /events");
    assert_eq!(status_of_another, 503);
    assert_eq!(body, "There are 24 viewers already: close another page and load this one again.\n");
    assert_eq!(ask(serving.addr(), "GET /metrics").0, 200);
    // More than the buffers of a connection hold. Nothing newer comes, as a viewer that wakes late would skip this.
    latest.set(Stats { function: "x".repeat(32 << 20), ..sample(2) });
    until(|| {
        let mut client = connect(serving.addr());
        client.write_all(format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", serving.addr()).as_bytes()).is_ok()
            && read_status(&mut client) == Some(200)
    });
    drop(viewers);
}

/// The status of an answer, or none if the connection broke, as it may where there is no room.
fn status(addr: SocketAddr, path: &str) -> Option<u16> {
    let mut client = connect(addr);
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n\r\n").as_bytes()).ok()?;
    read_status(&mut client)
}

fn read_status(client: &mut impl Read) -> Option<u16> {
    let mut head = [0; 12];
    client.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head[9..]).ok()?.parse().ok()
}

/// Tries until something holds. A test that fails here never ends.
fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

/// A server stops although clients wait, read or write nothing.
#[test]
fn it_stops_whatever_clients_do() {
    let latest = with_sample();
    let serving = serve(ALL, &latest);
    let idle: Vec<TcpStream> = (0..8).map(|_| connect(serving.addr())).collect();
    let mut half = connect(serving.addr());
    half.write_all(b"GET /metr").expect("it reads");
    let viewers: Vec<_> = (0..4).map(|_| stream(serving.addr())).collect();
    latest.set(Stats { function: "x".repeat(32 << 20), ..sample(2) });
    drop(serving);
    // All are closed.
    for mut client in idle.into_iter().chain([half]) {
        let _ = io::copy(&mut client, &mut io::sink());
    }
    for mut events in viewers {
        let _ = io::copy(&mut events, &mut io::sink());
    }
    // The samples serve another one.
    let serving = serve(ALL, &latest);
    assert_eq!(ask(serving.addr(), "HEAD /metrics").0, 200);
}

#[test]
fn noise_never_stops_it() {
    let serving = serve(ALL, &with_sample());
    let addr = serving.addr();
    let good = format!("GET /metrics HTTP/1.1\r\nHost: {addr}\r\nUser-Agent: test\r\n\r\n").into_bytes();
    let noise = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        // A request with a byte changed, or cut off.
        (any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(move |(at, byte, cuts)| {
            let mut request = good.clone();
            let at = at.index(request.len());
            if cuts {
                request.truncate(at)
            } else {
                request[at] = byte
            }
            request
        }),
    ];
    let config = ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(noise in noise)| {
        let mut stream = connect(addr);
        let _ = stream.write_all(&noise);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        // A client that went before its request was whole hears nothing.
        prop_assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{:?}", answer);
    });
    assert_eq!(ask(addr, "GET /metrics").0, 200);
}
