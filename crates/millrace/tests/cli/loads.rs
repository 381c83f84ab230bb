//! Loads by programs that others wrote: iperf3, nginx with wrk, and curl talk through functions on AF_XDP.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use testkit::netns::{Namespace, missing};
use testkit::row::eventually;

use crate::counters::{Books, hold_accounts};
use crate::folder::Folder;
use crate::live::{LONG, Row};

const PROGRAMS: [&str; 4] = ["iperf3", "nginx", "wrk", "curl"];

/// Ports of the servers.
const IPERF: u16 = 5201;
const WEB: u16 = 8080;

/// Bytes of the file that curl fetches.
const FILE_LEN: u32 = 4_000_000;

#[test]
fn programs_of_others_talk_through_a_firewall() {
    let Some(row) = row("lf") else { return };
    let inside = "firewall --set inside=[\"10.9.0.1/32\",\"fd09::1/128\"]";
    load(&row, inside, ["--engine rss --cores 2", "--engine scr --cores 2"], ["10.9.0.2", "fd09::2"]);
}

#[test]
fn programs_of_others_talk_through_a_tracker() {
    let Some(row) = row("lc") else { return };
    load(&row, "conntrack", ["--engine rss++ --cores 2", "--engine pipeline --cores 2"], ["10.9.0.2", "fd09::2"]);
}

/// Faster than the load on the whole, with buckets that it overflows now and then.
#[test]
fn programs_of_others_talk_through_a_policer() {
    let Some(row) = row("lp") else { return };
    let line = "policer --set rate=\"300Mbit\" --set burst=200000";
    load(&row, line, ["--engine shared --cores 2", "--engine sequential"], ["10.9.0.2", "fd09::2"]);
}

#[test]
fn programs_of_others_talk_through_a_translator() {
    let Some(row) = row("ln") else { return };
    row.address_for_nat();
    let line = "nat --set inside=[\"10.9.0.0/24\"] --set external=[\"192.0.2.100\"]";
    // IPv6 passes as it is.
    load(
        &row,
        line,
        ["--engine transactional --cores 2", "--engine scr --cores 2 --sequencer xdp"],
        ["192.0.2.2", "fd09::2"],
    );
}

/// Packets from outside go backwards through the chain: translated first, so that the firewall knows them as answers.
#[test]
fn programs_of_others_talk_through_a_chain() {
    let Some(row) = row("lh") else { return };
    row.address_for_nat();
    let line = "--chain firewall,nat,policer --set backwards=[1] --set firewall.inside=[\"10.9.0.0/24\",\"fd09::1/128\"] \
                --set nat.inside=[\"10.9.0.0/24\"] --set nat.external=[\"192.0.2.100\"] --set policer.rate=\"9Gbit\" \
                --set policer.burst=10000000";
    load(&row, line, ["--engine transactional --cores 2", "--engine scr --cores 2"], ["192.0.2.2", "fd09::2"]);
}

/// The servers are known by the address of a service.
#[test]
fn programs_of_others_talk_through_a_load_balancer() {
    let Some(row) = row("lb") else { return };
    // The outside host answers the questions for the service's addresses.
    row.outside.ip(&["addr", "add", "10.9.0.50/24", "dev", "h1"]).expect("the end is there");
    row.outside.ip(&["addr", "add", "fd09::50/64", "dev", "h1", "nodad"]).expect("the end is there");
    let mut services = String::new();
    for (protocol, port) in [("tcp", IPERF), ("udp", IPERF), ("tcp", WEB)] {
        for (service, backend) in [("10.9.0.50", "10.9.0.2"), ("[fd09::50]", "[fd09::2]")] {
            services += &format!(
                "[[services]]\naddress = \"{service}:{port}\"\nprotocol = \"{protocol}\"\nbackends = [\"{backend}:{port}\"]\n"
            );
        }
    }
    let settings = tempfile::NamedTempFile::with_suffix(".toml").expect("a temporary file");
    fs::write(settings.path(), services).expect("it is ours");
    let line = format!("load-balancer --config {}", settings.path().display());
    load(&row, &line, ["--engine shared --cores 2", "--engine scr --cores 2"], ["10.9.0.50", "fd09::50"]);
}

/// Two hosts with addresses of both IP versions, where the programs are installed.
fn row(label: &str) -> Option<Row> {
    let row = Row::new(label)?;
    if let Some(missing) = missing(&PROGRAMS) {
        eprintln!("SKIPPED (needs iperf3 / nginx / wrk / curl: no {missing}): loads by other programs");
        return None;
    }
    row.address_v6();
    Some(row)
}

/// Puts the load on a function under two engines: each program by IPv4 under one and by IPv6 under the other. `servers` are the addresses
/// that the inside host knows the outside host by.
fn load(row: &Row, line: &str, engines: [&str; 2], servers: [&str; 2]) {
    let folder = Folder::empty();
    let servers =
        servers.map(|address| if address.contains(':') { format!("[{address}]") } else { address.to_owned() });
    let _iperf = Served::iperf(&row.outside);
    let _nginx = Served::nginx(&row.outside, &folder);
    for (at, engine) in engines.into_iter().enumerate() {
        let (this, other) = (&servers[at], &servers[1 - at]);
        let run = row.run(&folder, &format!("{line} {engine}"));
        let books = Books::open(row, &run);
        let what = format!("{line} {engine}");
        streams(&row.inside, this, &what);
        datagrams(&row.inside, other, &what);
        web(&row.inside, this, &["Connection: keep-alive", "Connection: close"][at..=at], &what);
        fetch(&row.inside, other, &folder, &what);
        books.hold_received(row, &run, &what);
        let summary = run.stop();
        hold_accounts(&summary, &what);
        assert!(summary["packets"]["forwarded"].as_u64() > Some(5_000), "{what}: {summary}");
    }
}

/// Four TCP connections each way at once.
fn streams(from: &Namespace, to: &str, what: &str) {
    const SUMS: [&str; 2] = ["sum_received", "sum_received_bidir_reverse"];
    let told = iperf(from, to, &["--bidir", "-P", "4", "-n", "8M"], what);
    for sum in SUMS {
        let bytes = told["end"][sum]["bytes"].as_u64();
        assert!(bytes > Some(300_000), "{what}: {} {:?}", told["error"], SUMS.map(|sum| &told["end"][sum]["bytes"]));
    }
}

/// Datagrams each way, one direction after the other. Some may be lost where somebody has to wait, and are then counted there.
fn datagrams(from: &Namespace, to: &str, what: &str) {
    for direction in [&[][..], &["--reverse"]] {
        let arguments = [&["-u", "-b", "20M", "-l", "1200", "-n", "800K"], direction].concat();
        let told = iperf(from, to, &arguments, what);
        let sum = &told["end"]["sum"];
        let (all, lost) = (sum["packets"].as_u64().unwrap_or(0), sum["lost_packets"].as_u64().unwrap_or(0));
        assert!(all > 300 && lost < all, "{what}: {lost} of {all} datagrams are lost: {}", told["end"]);
    }
}

fn iperf(from: &Namespace, to: &str, arguments: &[&str], what: &str) -> Value {
    let (to, port) = (to.trim_matches(['[', ']']), IPERF.to_string());
    // It connects in time or not at all.
    let always = ["-c", to, "-p", &port, "-J", "--connect-timeout", "20000"];
    let mut told = Value::Null;
    // It gives up if its first datagram is lost, and its server is then busy for a while.
    eventually("iperf3 ends well", || {
        let answer = from.run("iperf3", &[&always, arguments].concat());
        told = answer.map_or(Value::Null, |answer| serde_json::from_str(&answer).expect("it is JSON"));
        let is_well = !told.is_null() && told["error"].is_null();
        if !is_well {
            eprintln!("{what}: iperf3 {arguments:?}: {}", told["error"]);
        }
        is_well
    });
    told
}

/// A second of requests by eight connections, each with this header.
fn web(from: &Namespace, to: &str, headers: &[&str], what: &str) {
    for header in headers {
        let url = format!("http://{to}:{WEB}/small");
        let arguments = ["-t", "1", "-c", "8", "-d", "1s", "--timeout", "20s", "-H", header, &url];
        let told = from.run("wrk", &arguments).unwrap_or_else(|error| panic!("{what}: {error}"));
        let requests = told.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse::<u64>().ok());
        assert!(requests > Some(50) && !told.contains("Non-2xx"), "{what}: {header}: {told}");
        assert!(!told.contains("Socket errors"), "{what}: {header}: {told}");
    }
}

/// Fetches a file, whose hash is the same at both ends.
fn fetch(from: &Namespace, to: &str, folder: &Folder, what: &str) {
    let (url, got) = (format!("http://{to}:{WEB}/file"), folder.path("got"));
    let got = got.to_str().expect("it is text");
    let arguments = ["--silent", "--show-error", "--fail", "--globoff", "--max-time", "30", "--output", got, &url];
    from.run("curl", &arguments).unwrap_or_else(|error| panic!("{what}: {error}"));
    let hash = |path: &str| {
        let told = testkit::netns::command("sha256sum", &[path]).expect("it is installed");
        told.split_whitespace().next().expect("a hash").to_owned()
    };
    let served = folder.path("files/file");
    assert_eq!(hash(got), hash(served.to_str().expect("it is text")), "{what}");
    fs::remove_file(got).expect("it was written");
}

/// A server in a namespace. It is ended on drop.
struct Served(Child);

impl Served {
    fn iperf(at: &Namespace) -> Self {
        let port = IPERF.to_string();
        Self::begin(at, Command::new("iperf3").args(["-s", "-p", &port]), &[IPERF])
    }

    /// Serves a small file and a large one.
    fn nginx(at: &Namespace, folder: &Folder) -> Self {
        fs::create_dir(folder.path("files")).expect("it is ours");
        let content: Vec<u8> = (0..FILE_LEN).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 13) as u8).collect();
        fs::write(folder.path("files/file"), content).expect("it is ours");
        fs::write(folder.path("files/small"), [b'm'; 700]).expect("it is ours");
        let root = folder.root().display();
        let settings = format!(
            "daemon off; master_process off; pid {root}/nginx.pid; error_log {root}/nginx.log;
             events {{ worker_connections 256; }}
             http {{
                 access_log off;
                 keepalive_requests 1000000;
                 server {{ listen {WEB} reuseport; listen [::]:{WEB} reuseport; root {root}/files; }}
             }}"
        );
        fs::write(folder.path("nginx.conf"), settings).expect("it is ours");
        let (prefix, settings) = (folder.root(), folder.path("nginx.conf"));
        let mut command = Command::new("nginx");
        command.arg("-p").arg(prefix).arg("-e").arg(folder.path("nginx.log")).arg("-c").arg(settings);
        Self::begin(at, &mut command, &[WEB])
    }

    /// Starts a server, and waits until it listens at the ports.
    fn begin(at: &Namespace, command: &mut Command, ports: &[u16]) -> Self {
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        command.env("PATH", path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut served = Self(at.enter(|| command.spawn()).expect("the program is there"));
        let begun = Instant::now();
        while !ports.iter().all(|port| listens(at, *port)) {
            assert!(served.0.try_wait().expect("it is ours").is_none(), "{command:?} has ended");
            assert!(begun.elapsed() < LONG, "{command:?} never listens");
            std::thread::yield_now();
        }
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// True if a TCP server listens at the port in the namespace, by either IP version.
fn listens(at: &Namespace, port: u16) -> bool {
    let (port, listening) = (format!(":{port:04X}"), "0A");
    at.enter(|| {
        ["tcp", "tcp6"].into_iter().any(|table| {
            let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
            text.lines().any(|line| {
                let mut words = line.split_whitespace().skip(1);
                words.next().is_some_and(|local| local.ends_with(&port)) && words.nth(1) == Some(listening)
            })
        })
    })
}
