//! `--reorder`: packets of a connection are brought together in front of functions.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use millrace::packet::{FiveTuple, parse};
use millrace::port::Trace;
use millrace::port::pcap::Reader;
use serde_json::Value;

use super::folder::{ENGINES, Folder};

fn read(path: &Path) -> Trace {
    Trace::load(&mut Reader::open(path).unwrap(), usize::MAX).unwrap()
}

/// Packets of each connection in order; packets without one are left out.
fn connections(trace: &Trace) -> HashMap<FiveTuple, Vec<Vec<u8>>> {
    let mut connections: HashMap<_, Vec<_>> = HashMap::new();
    for (packet, bytes) in trace.iter() {
        let headers = parse(packet.link, bytes, packet.wire_len, packet.interface);
        if let Some(tuple) = headers.ok().and_then(|headers| headers.five_tuple()) {
            connections.entry(tuple.symmetric().0).or_default().push(bytes.to_vec());
        }
    }
    connections
}

fn sorted(trace: &Trace) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = trace.iter().map(|(_, bytes)| bytes.to_vec()).collect();
    all.sort_unstable();
    all
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is a number"))
}

/// Captures that are not in the repository.
fn captures(names: &[&str]) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let paths = names.iter().map(|name| folder.join(name));
    paths
        .filter(|path| {
            path.exists() || {
                eprintln!("SKIPPED (no ../shared/traces): {}", path.display());
                false
            }
        })
        .collect()
}

#[test]
fn a_delay_of_zero_changes_nothing() {
    let folder = Folder::new();
    let run = "run conntrack --in demo.pcap.zst --seed 1 --json";
    let mut plain = folder.json(&format!("{run} --out plain.pcapng --dropped plain-dropped.pcapng"));
    for zero in ["0", "0us"] {
        let mut none = folder.json(&format!("{run} --reorder {zero} --out zero.pcapng --dropped zero-dropped.pcapng"));
        assert!(folder.bytes("plain.pcapng") == folder.bytes("zero.pcapng"));
        assert!(folder.bytes("plain-dropped.pcapng") == folder.bytes("zero-dropped.pcapng"));
        assert!(none["reordered"].is_null());
        for json in [&mut plain, &mut none] {
            json["made_by"] = Value::Null;
            for differs in ["elapsed_s", "mpps", "ns_per_packet", "output", "dropped_file"] {
                json[differs] = Value::Null;
            }
        }
        assert_eq!(plain, none);
    }
}

/// Verdicts are the same packet by packet, connections keep their order, and what was held has its account.
fn same_but_for_the_order(folder: &Folder, function: &str, input: &str, delay: &str) -> Value {
    let run = format!("run {function} --in {input} --seed 1 --json");
    let plain = folder.json(&format!("{run} --out plain.pcap --dropped plain-dropped.pcapng --format pcap"));
    let held =
        folder.json(&format!("{run} --reorder {delay} --out held.pcap --dropped held-dropped.pcapng --format pcap"));
    assert_eq!(plain["packets"], held["packets"], "{function} {input} {delay}");
    for (one, other) in [("plain.pcap", "held.pcap"), ("plain-dropped.pcapng", "held-dropped.pcapng")] {
        let [one, other] = [one, other].map(|name| read(&folder.path(name)));
        assert!(sorted(&one) == sorted(&other), "{function} {input} {delay}: other packets");
        assert!(connections(&one) == connections(&other), "{function} {input} {delay}: another order");
        assert!(other.packets().is_sorted_by_key(|packet| packet.time), "{function} {input} {delay}");
    }
    let counts = &held["reordered"];
    let sum = |of: &Value| of.as_object().unwrap().values().map(number).sum::<u64>();
    // Fragments may be gathered behind it.
    assert!(number(&counts["received"]) >= number(&held["packets"]["received"]));
    assert_eq!(sum(&counts["not_held"]) + sum(&counts["released"]), number(&counts["received"]), "{counts}");
    assert_eq!((number(&counts["held"]), number(&counts["left"])), (sum(&counts["released"]), 0));
    assert!(number(&counts["held_ns_max"]) <= number(&counts["delay_ns"]), "{counts}");
    counts.clone()
}

#[test]
fn verdicts_are_those_without_it() {
    let folder = Folder::new();
    let counts = same_but_for_the_order(&folder, "conntrack", "demo.pcap.zst", "100ms");
    assert!(number(&counts["held"]) > 0, "{counts}");
    assert!(number(&counts["runs_after"]) < number(&counts["runs_before"]), "{counts}");
    for capture in captures(&["real/ppp__pt__example.pcap", "mix/mix_apps_a.pcap.zst"]) {
        for (function, delay) in [("conntrack", "100us"), ("conntrack", "50ms"), ("identify", "1ms")] {
            same_but_for_the_order(&folder, function, capture.to_str().unwrap(), delay);
        }
    }
}

#[test]
fn every_engine_gives_the_same() {
    let folder = Folder::new();
    let mut first: Option<(Vec<u8>, Value)> = None;
    for engine in ENGINES {
        for again in 0..2 {
            let mut json =
                folder.json(&format!("run conntrack --in demo.pcap.zst --reorder 20ms --json {engine} --out out.pcap"));
            let out = (folder.bytes("out.pcap"), json["reordered"].take());
            assert!(number(&out.1["held"]) > 0);
            let first = first.get_or_insert_with(|| out.clone());
            // What `shared` decides depends on timing, with or without reordering.
            assert!(first.1 == out.1 && (first.0 == out.0 || engine.contains("shared")), "{engine}, {again}");
        }
    }
}

#[test]
fn fragments_are_gathered_behind_it() {
    let folder = Folder::empty();
    for capture in captures(&["apps/ndpi__dtls_certificate_fragments.pcap", "apps/ndpi__dns_fragmented.pcap"]) {
        let run = format!("run conntrack --in {} --defragment linux --json", capture.display());
        let plain = folder.json(&format!("{run} --out plain.pcap"));
        let held = folder.json(&format!("{run} --out held.pcap --reorder 100ms"));
        assert_eq!((&plain["packets"], &plain["fragments"]), (&held["packets"], &held["fragments"]));
        let [one, other] = ["plain.pcap", "held.pcap"].map(|name| read(&folder.path(name)));
        assert!(sorted(&one) == sorted(&other) && connections(&one) == connections(&other));
    }
}

#[test]
fn it_is_told_and_refused() {
    let folder = Folder::new();
    let text = folder.stdout("run conntrack --in demo.pcap.zst --reorder 50ms");
    for part in ["held for at most 50 ms: ", "released by ", "not held: ", "packets of a connection in a row: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, _, said) = folder.run("run ddos --in demo.pcap.zst --reorder 1ms");
    assert!(code == 0 && said.contains("(source address)") && said.contains("some verdicts may be others"), "{said}");
    let (code, _, said) = folder.run("run conntrack --in demo.pcap.zst --reorder 1ms");
    assert!(code == 0 && !said.contains("verdicts"), "{said}");
    for (line, part) in [
        ("run conntrack --in demo.pcap.zst --reorder 100", "write 100us or 1.5ms"),
        ("run conntrack --in demo.pcap.zst --reorder 2s", "is not a time from 0 to 1s"),
        ("run conntrack --in demo.pcap.zst --cores 2 --sequenced --reorder 1ms", "cannot be used with"),
        (
            "run conntrack --in demo.pcap.zst --engine scr --cores 2 --link-loss 1% --loss-recovery on --reorder 1ms",
            "omit --reorder",
        ),
        (
            "run conntrack --interface nowhere0 --engine scr --cores 2 --sequencer xdp --reorder 1ms",
            "leave --reorder out",
        ),
    ] {
        let (code, said) = folder.fails(line);
        assert!(code == 2 && said.contains(part), "{line}: {code}: {said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn hosts_talk_through_it() {
    use std::net::UdpSocket;
    use std::thread;
    use std::time::Duration;

    use super::live::{LONG, Row, carry, datagrams_while};

    let Some(row) = Row::new("reo") else { return };
    let folder = Folder::empty();
    fs::write(folder.path("inside.toml"), "inside = [\"10.9.0.1/32\"]\n").unwrap();
    for engine in ["--engine sequential", "--engine rss --cores 2", "--engine sequential --xdp off"] {
        let run = row.run(&folder, &format!("firewall --config inside.toml --reorder 200us {engine}"));
        carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).unwrap_or_else(|error| panic!("{engine}: {error}"));
        datagrams_while(&row, engine, || thread::sleep(Duration::from_millis(200)));
        // Two flows by turns: each stays in order.
        let to = row.outside.enter(|| UdpSocket::bind("10.9.0.2:6011")).unwrap();
        to.set_read_timeout(Some(LONG)).unwrap();
        let from = [6012, 6013].map(|port| row.inside.enter(|| UdpSocket::bind(("10.9.0.1", port))).unwrap());
        for round in 0..50_u8 {
            (0..8).for_each(|at| {
                from[at % 2].send_to(&[round, at as u8], "10.9.0.2:6011").unwrap();
            });
            let mut came: [Vec<[u8; 2]>; 2] = Default::default();
            for _ in 0..8 {
                let mut bytes = [0; 2];
                to.recv(&mut bytes).unwrap();
                came[usize::from(bytes[1] % 2)].push(bytes);
            }
            let expected = |flow: u8| (0..4_u8).map(|at| [round, 2 * at + flow]).collect::<Vec<_>>();
            assert_eq!(came, [expected(0), expected(1)], "{engine}");
        }
        let summary = run.stop();
        let counts = &summary["reordered"];
        let [held, bursts] = ["held", "bursts"].map(|name| number(&counts[name]));
        assert!(held >= bursts && bursts > 0, "{engine}: {counts}");
        assert!(number(&counts["released"]["delay"]) > 0, "{engine}: {counts}");
    }
}
