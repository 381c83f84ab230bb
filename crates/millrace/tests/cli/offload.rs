//! `millrace run --offload` and `advise --offload` as a user types them: over captures and on interfaces, output and counters are those without
//! a card; what can't have one is refused with the reason.

use std::fs;
use std::path::Path;

use millrace::port::pcap::Reader;
use serde_json::Value;

use super::folder::Folder;
#[cfg(target_os = "linux")]
use super::live::{LONG, Row, carry, sum};

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

#[cfg(target_os = "linux")]
#[test]
fn real_hosts_talk_through_offloaded_connections() {
    let Some(row) = Row::new("offload") else { return };
    // The kernel delivers what a driver's program redirects only to an end with this.
    for (host, end) in [(&row.inside, "h0"), (&row.outside, "h1")] {
        host.feed("ethtool", &["-K", end, "gro", "on"], "").expect("veth has it");
    }
    let folder = Folder::empty();
    fs::write(folder.path("inside.toml"), "inside = [\"10.9.0.1/32\"]\n").unwrap();
    for how in ["--xdp native", "--xdp generic", "--cores 2 --engine rss", "--cores 2 --engine rss --xdp generic"] {
        let run = row.run(&folder, &format!("firewall --config inside.toml --offload 64 --offload-threshold 4 {how}"));
        for port in 0..3 {
            let server = format!("10.9.0.2:{}", 5101 + port);
            carry(&row.inside, &row.outside, &server, LONG).unwrap_or_else(|error| panic!("{how}: {error}"));
            let stats = run.ask("stats");
            let (received, sent) = (sum(&stats, "received"), sum(&stats, "forwarded") + sum(&stats, "dropped"));
            assert_eq!(received, sent, "{how}: {stats}");
        }
        let flows = run.ask("flows --where tcp");
        assert!(flows["all"].as_u64() >= Some(3), "{how}: {flows}");
        let summary = run.stop();
        let offloaded = adds_up(&summary);
        eprintln!("{how}: {offloaded} {}", summary);
        assert!(offloaded > 0, "{how}: {summary}");
        let received = summary["packets"]["received"].as_u64().unwrap();
        assert!(received >= of_interfaces(&summary, "to_function") + offloaded - 8, "{how}: {summary}");
    }
}
