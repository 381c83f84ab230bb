//! `millrace run --offload` and `advise --offload` as a user types them: over captures, output and counters are those without a card; what can't
//! have one is refused with the reason.

use std::fs;
use std::path::Path;

use millrace::port::pcap::Reader;
use serde_json::Value;

use super::folder::Folder;

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
        ("run firewall --interface lo --offload 10", "leave it out with --interface"),
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
