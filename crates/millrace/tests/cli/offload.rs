//! `millrace run --offload` and `advise --offload` as a user types them: over captures and on interfaces, output and counters are those without
//! a card; what can't have one is refused with the reason.

use std::fs;
#[cfg(target_os = "linux")]
use std::io::{Read, Write};
#[cfg(target_os = "linux")]
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
#[cfg(target_os = "linux")]
use std::thread;
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

use millrace::port::pcap::Reader;
use serde_json::Value;
#[cfg(target_os = "linux")]
use {
    millrace::packet::Endpoint,
    testkit::netns::Wire,
    testkit::row::bound,
    testkit::{Build, Rng, Traffic},
};

use super::folder::Folder;
#[cfg(target_os = "linux")]
use super::{
    counters::hold_accounts,
    live::{LONG, Row, carry, sum},
};

/// Checks that a run behind a card comes to the result of a run without one: the output to the byte, and every counter. Returns the packets that the card took.
fn same(folder: &Folder, function: &str, input: &str, engine: &str, card: &str) -> u64 {
    let plain = folder.json(&format!("run {function} --in {input} --out one.pcap --json {engine}"));
    let run = folder.json(&format!("run {function} --in {input} --out other.pcap --json {engine} {card}"));
    assert!(
        folder.bytes("one.pcap") == folder.bytes("other.pcap"),
        "{function} over {input} with {card}: another output"
    );
    for part in ["packets", "flows", "report", "unread", "clock_steps_back", "error"] {
        assert_eq!(run[part], plain[part], "{function} over {input} with {card}: {part}");
    }
    assert_eq!(plain["offload"], Value::Null);
    let of = |name: &str| run["offload"][name].as_u64().unwrap();
    let back = of("back_for_packet") + of("back_ended") + of("evicted") + of("recalled");
    assert_eq!(of("inserted"), back, "all that went in came back");
    of("packets")
}

#[test]
fn output_and_counters_are_those_without_a_card() {
    let folder = Folder::new();
    for function in ["firewall", "conntrack"] {
        let cards = [
            ("", "--offload 4096 --offload-threshold 4"),
            ("--cores 2 --engine rss", "--offload 2 --offload-threshold 1"),
            ("", "--offload 100 --offload-threshold 3 --offload-rate 10 --card-insertions 50"),
        ];
        for (engine, card) in cards {
            assert!(
                same(&folder, function, "demo.pcap.zst", engine, card) > 0,
                "{function} {card}: the card took nothing"
            );
        }
    }
}

#[test]
fn so_are_those_of_real_captures() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let Ok(manifest) = fs::read_to_string(captures.join("MANIFEST.tsv")) else {
        eprintln!("SKIPPED (no ../shared/traces)");
        return;
    };
    let folder = Folder::new();
    let (mut held, mut taken) = (0, 0);
    let whole = |line: &&str| !line.contains("file_damaged");
    for (index, line) in manifest.lines().skip(1).filter(whole).step_by(7).enumerate() {
        let path = captures.join(line.split('\t').next().unwrap());
        if fs::metadata(&path).is_ok_and(|file| file.len() > 2_000_000) || Reader::open(&path).is_err() {
            continue;
        }
        let input = path.to_str().unwrap();
        if folder.run(&format!("inspect {input}")).0 != 0
            || folder.run(&format!("run conntrack --in {input} --out x.pcap")).0 != 0
        {
            continue;
        }
        let function = ["conntrack", "firewall --set loose=true"][index % 2];
        taken += same(&folder, function, input, "", "--offload 64 --offload-threshold 2");
        held += 1;
    }
    assert!(held > 5 && taken > 100, "{held} captures, {taken} packets");
}

#[test]
fn what_has_no_card_is_refused() {
    let folder = Folder::new();
    let refused = [
        ("run policer --in demo.pcap.zst --offload 10", "policer never says that a connection is decided"),
        ("run firewall --in demo.pcap.zst --offload 10 --engine scr --cores 2", "use sequential or rss"),
        ("run firewall --in demo.pcap.zst --offload 10 --per-source 5", "leave out --ageing"),
        ("run firewall --in demo.pcap.zst --offload 0", "from 1 to"),
        ("run firewall --in demo.pcap.zst --offload-threshold 3", "--offload"),
        ("run firewall --interface lo --offload 10", "an odd number of them"),
        ("run firewall --interface lo --interface x --offload 10 --xdp off", "leave --xdp off or --offload out"),
        ("run firewall --interface lo --interface x --offload 10 --observe", "nothing is sent"),
        ("run firewall --interface lo --interface x --offload 10 --card-insertions 9", "the simulated card"),
        ("run firewall --interface lo --interface x --offload 10 --ipfix f", "leave --ipfix"),
        ("run nat --interface lo --interface x --offload 10", "never says"),
        ("advise nat --in demo.pcap.zst --offload 10", "never says"),
    ];
    for (line, what) in refused {
        let (code, said) = folder.fails(line);
        assert_eq!(code, 2, "{line}: {said}");
        assert!(said.contains(what), "{line}: {said}");
    }
}

#[test]
fn advice_tells_gains_and_losses() {
    let folder = Folder::new();
    let ask = |more: &str| {
        folder.json(&format!(
            "advise conntrack --in demo.pcap.zst --cores 1 --rounds 1 --round-packets 10k --json {more}"
        ))
    };
    let loss = ask("--offload 64 --card-update 1ms");
    assert!(loss["offload"]["advice"].as_str().unwrap().contains("loss"), "{loss}");
    let gain = ask("--offload 4096 --card-update 0");
    assert!(gain["offload"]["advice"].as_str().unwrap().contains("times the throughput"), "{gain}");
    assert_eq!(gain["offload"]["by_threshold"].as_array().unwrap().len(), 9);
    assert_eq!(ask("")["offload"], Value::Null);
}

/// Sums a counter of the interfaces of a live run.
#[cfg(target_os = "linux")]
fn of_interfaces(summary: &Value, name: &str) -> u64 {
    let interfaces = summary["live"]["interfaces"].as_array().unwrap_or_else(|| panic!("{summary}"));
    interfaces.iter().map(|interface| interface[name].as_u64().unwrap()).sum()
}

/// Checks that the counters of a live run with offload add up. Returns the packets that the XDP program took.
#[cfg(target_os = "linux")]
fn adds_up(summary: &Value) -> u64 {
    let of = |name: &str| summary["offload"][name].as_u64().unwrap_or_else(|| panic!("{summary}"));
    let back = of("back_for_packet") + of("back_ended") + of("evicted") + of("recalled");
    assert_eq!(of("inserted"), back, "all that went in came back: {summary}");
    let offloaded = of_interfaces(summary, "offloaded");
    assert!(offloaded <= of("packets"), "the core takes some of a connection that was just put in: {summary}");
    offloaded
}

/// Two hosts whose ends receive what a driver's XDP program redirects to them: the kernel wants this of a veth pair.
#[cfg(target_os = "linux")]
fn hosts(label: &str) -> Option<Row> {
    let row = Row::new(label)?;
    for (host, end) in [(&row.inside, "h0"), (&row.outside, "h1")] {
        host.feed("ethtool", &["-K", end, "gro", "on"], "").expect("veth has it");
    }
    Some(row)
}

/// Ways to run on interfaces.
#[cfg(target_os = "linux")]
const WAYS: [&str; 4] =
    ["--xdp native", "--xdp generic", "--engine rss --cores 2", "--engine rss --cores 2 --xdp generic"];

/// Carries short messages to and fro on one connection, with pauses.
#[cfg(target_os = "linux")]
fn chat(row: &Row, server: &str) {
    let listener = row.outside.enter(|| bound(|| TcpListener::bind(server)));
    let address: SocketAddr = server.parse().expect("it is an address");
    let mut client = row.inside.enter(|| TcpStream::connect_timeout(&address, LONG)).expect("it is let in");
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client has connected");
        let mut message = [0; 100];
        while stream.read_exact(&mut message).is_ok() {
            stream.write_all(&message).expect("the client reads");
        }
    });
    client.set_read_timeout(Some(LONG)).expect("it is not 0");
    for round in 0..400_u32 {
        // Cores that share a queue take a connection that is alone to be idle after some 50 ms.
        if round.is_multiple_of(50) {
            thread::sleep(Duration::from_millis(120));
        }
        let message = [round as u8; 100];
        let mut answer = [0; 100];
        client.write_all(&message).and_then(|()| client.read_exact(&mut answer)).expect("the server answers");
        assert_eq!(answer, message);
    }
    drop(client);
    echo.join().expect("it doesn't panic");
}

/// Contents arrive whole through connections that come and go, and all is counted.
#[cfg(target_os = "linux")]
#[test]
fn real_hosts_talk_through_offloaded_connections() {
    let Some(row) = hosts("ol") else { return };
    let folder = Folder::empty();
    fs::write(folder.path("inside.toml"), "inside = [\"10.9.0.1/32\"]\n").expect("it can be written");
    for how in WAYS {
        let run = row
            .run(&folder, &format!("firewall --set inside=[\"10.9.0.1/32\"] --offload 64 --offload-threshold 4 {how}"));
        for port in 0..2 {
            let server = format!("10.9.0.2:{}", 5101 + port);
            carry(&row.inside, &row.outside, &server, LONG).unwrap_or_else(|error| panic!("{how}: {error}"));
        }
        thread::scope(|scope| {
            // At first somebody looks on, or gives the same configuration anew: all connections are called back each time.
            scope.spawn(|| {
                for _ in 0..3 {
                    let told = run.ask("stats");
                    let decided = sum(&told, "forwarded") + sum(&told, "dropped");
                    assert_eq!(sum(&told, "received"), decided, "{how}: {told}");
                    thread::sleep(Duration::from_millis(20));
                    folder.stdout("ctl --control wall.sock reload inside.toml");
                    thread::sleep(Duration::from_millis(20));
                }
            });
            chat(&row, "10.9.0.2:5110");
        });
        let flows = run.ask("flows --where tcp");
        assert!(flows["all"].as_u64() >= Some(3), "{how}: {flows}");
        let summary = run.stop();
        let offloaded = adds_up(&summary);
        eprintln!("{how}: the XDP program took {offloaded} packets: {}", summary["offload"]);
        assert!(offloaded > 100, "{how}: {summary}");
        hold_accounts(&summary, how);
    }
}

/// The outcome of a run between two raw sockets: the frames that came out, and its own accounts.
#[cfg(target_os = "linux")]
struct Made {
    /// For each frame all that came out for it: where, and the bytes.
    frames: Vec<Vec<(usize, Vec<u8>)>>,
    packets: Value,
    flows: Value,
    rows: Vec<(String, String)>,
    report: Value,
}

/// Sends random conversations through a run, one frame at a time. Behind each goes a datagram of a stream that is never offloaded, by which
/// the end of the frame's own output is known. Returns what came of it, and the packets that the XDP program took.
#[cfg(target_os = "linux")]
fn converse(row: &Row, folder: &Folder, line: &str, seed: u64) -> (Made, u64) {
    const FRAMES: usize = 1500;
    let wires = row.wires();
    let run = row.run(folder, line);
    let mut traffic = Traffic::new(Rng::new(seed));
    let marker = |side: usize, number: usize| {
        let ends = [Endpoint::new([10, 9, 7, side as u8].into(), 9), Endpoint::new([10, 9, 8, side as u8].into(), 9)];
        Build::udp(ends[0], ends[1]).data(format!("marker {number}").as_bytes()).bytes()
    };
    let mut frames = Vec::new();
    for number in 0..FRAMES {
        if number == FRAMES / 4 {
            // From then on there are UDP streams: the tracker waits for two seconds.
            thread::sleep(Duration::from_millis(2100));
        }
        if number.is_multiple_of(100) {
            thread::sleep(Duration::from_millis(30));
        }
        let (frame, side) = traffic.frame();
        let (side, mark) = (usize::from(side), marker(usize::from(side), number));
        // Shorter ones are none on Ethernet.
        if frame.len() < 14 {
            continue;
        }
        wires[side].send(&frame).and_then(|()| wires[side].send(&mark)).expect("the wire takes it");
        let (mut came, mut is_through) = (Vec::new(), false);
        let end = Instant::now() + LONG;
        while !is_through {
            assert!(
                Wire::wait(&[&wires[0], &wires[1]], end).expect("both are there"),
                "{line}: frame {number} is lost"
            );
            for (at, wire) in wires.iter().enumerate() {
                while let Some(bytes) = wire.take().expect("it is there") {
                    match bytes == mark {
                        true => is_through = true,
                        false => came.push((at, bytes)),
                    }
                }
            }
        }
        frames.push(came);
    }
    let told = run.ask("flows --top 10000");
    let row_of = |row: &Value| {
        let (key, state) = (row["key"].as_str().unwrap(), row["state"].as_str().unwrap());
        // When a UDP stream began is another time in each run.
        let state = match (state.find("began: ["), state.find("], ")) {
            (Some(start), Some(end)) if start < end => format!("{}{}", &state[..start], &state[end..]),
            _ => state.to_owned(),
        };
        (key.to_owned(), state)
    };
    let mut rows: Vec<_> = told["rows"].as_array().unwrap_or_else(|| panic!("{told}")).iter().map(row_of).collect();
    rows.sort();
    let summary = run.stop();
    let offloaded = if summary["offload"].is_null() { 0 } else { adds_up(&summary) };
    hold_accounts(&summary, line);
    let part = |name: &str| summary[name].clone();
    (Made { frames, packets: part("packets"), flows: part("flows"), rows, report: part("report") }, offloaded)
}

/// Random conversations, also with segments that no window covers, ends, fragments, errors and tunnels: each frame has the fate and the bytes that
/// it has without offload, and so have the counters, the flows and the report.
#[cfg(target_os = "linux")]
#[test]
fn frames_flows_and_counters_are_those_without_offload() {
    let Some(row) = hosts("oc") else { return };
    let folder = Folder::empty();
    let firewall = "firewall --set inside=[\"10.0.0.0/8\",\"fd00::/16\"] --set loose=true";
    for (seed, how) in WAYS.iter().enumerate() {
        let function = ["conntrack", firewall][seed % 2];
        let (plain, _) = converse(&row, &folder, &format!("{function} --seed 7 {how}"), seed as u64);
        let line = format!("{function} --seed 7 {how} --offload 8 --offload-threshold 2");
        let (with, offloaded) = converse(&row, &folder, &line, seed as u64);
        for (number, (one, other)) in plain.frames.iter().zip(&with.frames).enumerate() {
            assert_eq!(one, other, "{line}: frame {number}");
        }
        assert_eq!(plain.frames.len(), with.frames.len(), "{line}");
        for (one, other) in plain.rows.iter().zip(&with.rows) {
            assert_eq!(one, other, "{line}");
        }
        assert_eq!(plain.rows.len(), with.rows.len(), "{line}");
        assert_eq!((plain.packets, plain.flows), (with.packets, with.flows), "{line}");
        assert_eq!(plain.report, with.report, "{line}");
        eprintln!("{line}: the XDP program took {offloaded} packets");
        assert!(offloaded > 100, "{line}: the XDP program took {offloaded} packets");
    }
}

/// A driver that can't send what a program redirects is refused in words, before a packet could be lost.
#[cfg(target_os = "linux")]
#[test]
fn a_driver_that_cannot_redirect_is_refused() {
    let Some(row) = Row::new("od") else { return };
    let folder = Folder::empty();
    let line = "run firewall --interface inside0 --interface outside0 --offload 8 --xdp native";
    let output = row.wall.enter(|| folder.command(line).output()).expect("the program is there");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("ethtool -K PEER gro on"), "{said}");
}
