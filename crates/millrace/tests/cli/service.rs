//! Runs on interfaces as services: metrics, a page, exported flows, rights, logs, and flows that outlive a restart.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::folder::Folder;
use crate::live::{LONG, Row, carry, sum};

/// What a server in the namespace answers to a GET, or its first kilobytes if the answer has no end.
fn get(row: &Row, port: u16, path: &str) -> String {
    let mut stream = row.wall.enter(|| TcpStream::connect(("127.0.0.1", port))).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("it is not 0");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut part) {
        answer.extend_from_slice(&part[..len]);
        // A stream of events doesn't end.
        if path == "/events" && answer.windows(9).any(|window| window == b"\ndata: {\"") {
            break;
        }
    }
    String::from_utf8(answer).expect("it is text")
}

/// The sum of a metric over its labels.
fn metric(text: &str, name: &str) -> u64 {
    let values = text.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next());
    values.map(|value| value.parse::<f64>().expect("a number") as u64).sum()
}

#[test]
fn a_run_is_a_service() {
    let Some(row) = Row::new("svc") else { return };
    row.wall.ip(&["link", "set", "lo", "up"]).expect("it is there");
    let folder = Folder::empty();
    let options =
        "--metrics=127.0.0.1:9478 --page 127.0.0.1:9479 --ipfix flows.ipfix --log json --dropped drops.pcapng";
    let run = row.run(&folder, &format!("firewall --set inside=[\"10.9.0.1/32\"] {options}"));
    carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).expect("inside may");
    carry(&row.outside, &row.inside, "10.9.0.1:5001", Duration::from_millis(300)).expect_err("outside may not");

    // A sample each second; within it, counters add up.
    let begun = Instant::now();
    let metrics = loop {
        let metrics = get(&row, 9478, "/metrics");
        if metric(&metrics, "millrace_packets_received_total{") > 100 {
            break metrics;
        }
        assert!(begun.elapsed() < LONG, "{metrics}");
    };
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    let of = |name: &str| metric(&metrics, &format!("millrace_packets_{name}_total{{"));
    assert_eq!(of("received"), of("forwarded") + of("replied") + of("dropped"), "{metrics}");
    assert!(
        metrics.contains("millrace_interface_packets_total{interface=\"inside0\",counter=\"to-function\"}"),
        "{metrics}"
    );
    assert_eq!(metric(&metrics, "millrace_interface_up{"), 2, "{metrics}");
    let seconds = metrics.lines().find_map(|line| line.strip_prefix("millrace_latency_seconds_sum "));
    assert!(seconds.is_some_and(|seconds| seconds.parse::<f64>().expect("a number") > 0.0), "{metrics}");
    assert!(get(&row, 9478, "/").starts_with("HTTP/1.1 404"), "the page is elsewhere");
    let page = get(&row, 9479, "/");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("EventSource") && page.ends_with("</html>\n"), "{page}");
    assert!(get(&row, 9479, "/events").contains("\"function\":\"firewall\""));

    // It has the rights of a run on interfaces, and no more.
    let status = fs::read_to_string(format!("/proc/{}/status", run.id())).expect("it runs");
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux says so").trim();
    let kept = u64::from_str_radix(line("CapEff:"), 16).expect("a mask");
    let most = [12, 13, 14, 38, 39].iter().fold(0, |mask, bit| mask | 1_u64 << bit);
    assert!(kept & !most == 0 && kept & 1 << 12 != 0, "{status}");
    assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), ("1", "2"), "{status}");

    let stats = run.ask("stats");
    assert!(stats["latency"]["packets"].as_u64() > Some(0) && stats["flows_max"].as_u64() > Some(0), "{stats}");
    let idle: u64 = sum(&stats, "idle_ns");
    assert!(
        idle > 0 && idle / 1_000_000 <= stats["uptime_ms"].as_u64().unwrap(),
        "it waited most of the time: {stats}"
    );

    // Without a terminal, `top` prints lines.
    let mut top = folder.command("top --control wall.sock").stdout(Stdio::piped()).spawn().expect("it is there");
    let mut first = String::new();
    BufReader::new(top.stdout.take().expect("it is piped")).read_line(&mut first).expect("it is text");
    // It may have noticed already that nobody reads.
    let _ = top.kill();
    let _ = top.wait();
    assert!(first.contains("received") && first.contains("load"), "{first}");

    let (summary, said) = run.stop_and_listen();
    assert!(said.lines().any(|line| line.starts_with('{') && line.contains("inside0")), "{said}");
    assert!(said.contains("IPFIX: "), "{said}");
    let exported = folder.bytes("flows.ipfix");
    // The version of IPFIX in messages is 10.
    assert!(exported.len() > 100 && exported[..2] == [0, 10], "{} bytes", exported.len());
    assert!(summary["packets"]["dropped"].as_u64() > Some(0), "{summary}");
    let drops = String::from_utf8_lossy(&folder.bytes("drops.pcapng")).into_owned();
    assert!(drops.contains("not-allowed"), "each dropped packet has its reason");
}

#[test]
fn a_run_becomes_another_user() {
    let Some(row) = Row::new("usr") else { return };
    let folder = Folder::empty();
    let run = row.run(&folder, "conntrack --engine rss --cores 2 --user 65534");
    carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).expect("it forwards");
    let status = fs::read_to_string(format!("/proc/{}/status", run.id())).expect("it runs");
    let user = status.lines().find(|line| line.starts_with("Uid:")).expect("Linux says so");
    assert_eq!(user.split_whitespace().skip(1).collect::<Vec<_>>(), ["65534"; 4], "{status}");
    run.stop();
    let (code, error) = folder.fails("run conntrack --interface lo --user nosuchuser");
    assert!(code == 2 && error.contains("nosuchuser"), "{error}");
    let (code, error) = folder.fails("run conntrack --in a.pcap --metrics");
    assert!(code == 2 && error.contains("--interface"), "{error}");
}

#[test]
fn a_log_tells_errors_and_warnings_from_the_rest() {
    let Some(row) = Row::new("log") else { return };
    let folder = Folder::empty();
    fs::create_dir(folder.path("state")).unwrap();
    let run = row.run(&folder, "conntrack --log json --snapshot state/flows");
    row.wall.ip(&["link", "set", "inside0", "down"]).expect("it is there");
    let begun = Instant::now();
    while !run.said().contains("\"WARN\"") {
        assert!(begun.elapsed() < LONG, "{}", run.said());
        run.ask("stats");
    }
    fs::remove_dir(folder.path("state")).unwrap();
    let (code, _, said) = run.end();
    assert_eq!(code, 3, "{said}");
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let of = |level: &str| -> Vec<&str> {
        let these = lines.iter().filter(|line| line["level"] == level);
        these.map(|line| line["message"].as_str().expect("each has one")).collect()
    };
    assert!(of("WARN").iter().all(|message| message.contains("inside0")), "{said}");
    assert!(matches!(&of("ERROR")[..], [one] if one.starts_with("state/flows: can't be written: ")), "{said}");
    assert!(of("INFO").iter().any(|message| message.contains("outside0")), "{said}");
}

/// A connection that is open goes on under another process and another engine, though the firewall lets nobody begin in the middle.
#[test]
fn a_restart_keeps_connections() {
    let Some(row) = Row::new("rst") else { return };
    let folder = Folder::empty();
    let firewall = "firewall --set inside=[\"10.9.0.1/32\"]";
    let run = row.run(&folder, &format!("{firewall} --engine rss --cores 2 --snapshot flows"));
    let listener = row.outside.enter(|| TcpListener::bind("10.9.0.2:5001")).expect("the address is there");
    let mut client = row.inside.enter(|| TcpStream::connect("10.9.0.2:5001")).expect("inside may");
    let (mut server, _) = listener.accept().expect("a client has connected");
    client.set_read_timeout(Some(LONG)).expect("it is not 0");
    let mut say = |number: u8| {
        server.write_all(&[number; 1000]).expect("it is open");
        let mut heard = [0; 1000];
        client.read_exact(&mut heard).map(|()| assert_eq!(heard, [number; 1000]))
    };
    say(1).expect("it is open");
    run.stop();
    let run = row.run(&folder, &format!("{firewall} --engine scr --cores 2 --restore flows"));
    say(2).expect("it is still open");
    assert!(run.ask("stats")["flows_opened"].as_u64() >= Some(1));
    run.stop();
}
