//! `run --dropped` and `run --sources`.

use std::collections::BTreeMap;
use std::io;
use std::process::Command;

use serde_json::json;

use super::folder::{ENGINES, Folder};

/// A firewall of which nearly half of the demo's packets are dropped for several reasons.
const FIREWALL: &str = "run firewall --in demo.pcap.zst --set inside=[\"192.168.10.0/24\",\"2001:db8:1::/64\"]";

/// The comments of a capture's packets, with how many have each; `None` without tshark.
fn comments(folder: &Folder, name: &str) -> Option<BTreeMap<String, u64>> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(folder.path(name)).args(["-T", "fields", "-e", "frame.comment"]);
    let Ok(output) = reported(&mut tshark) else {
        eprintln!("SKIPPED (no tshark)");
        return None;
    };
    let mut counts = BTreeMap::new();
    for line in output.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    Some(counts)
}

fn reported(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout).expect("comments are text"))
}

#[test]
fn each_dropped_packet_is_written_with_its_reason_under_every_engine() {
    let folder = Folder::new();
    let mut first = None;
    for (number, engine) in ENGINES.into_iter().enumerate() {
        let file = format!("d{number}.pcapng");
        let reported = folder.json(&format!("{FIREWALL} {engine} --dropped {file} --out o{number}.pcap --json"));
        assert_eq!(reported["dropped_file"], file);
        let drops: BTreeMap<String, u64> = serde_json::from_value(reported["packets"]["drops"].clone()).unwrap();
        assert!(drops.len() > 1 && reported["packets"]["forwarded"].as_u64() > Some(0), "{engine}: {drops:?}");
        let Some(comments) = comments(&folder, &file) else { return };
        assert_eq!(comments, drops, "{engine}");
        // Engines that keep the order of packets drop the same, and write it alike.
        let bytes = folder.bytes(&file);
        if number < 5 {
            assert_eq!(*first.get_or_insert_with(|| bytes.clone()), bytes, "{engine}");
        }
    }
    folder.stdout(&format!("{FIREWALL} --out plain.pcap"));
    assert_eq!(folder.bytes("plain.pcap"), folder.bytes("o0.pcap"), "what goes out is the same");
}

#[test]
fn sources_are_told_by_reason() {
    let folder = Folder::new();
    let text = folder.stdout(&format!("{FIREWALL} --sources"));
    let line = text.lines().find(|line| line.contains("not-allowed")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("from ") && line.contains("other"), "{line}");
    let reported = folder.json(&format!("{FIREWALL} --sources --cores 2 --json"));
    let sources = reported["dropped_sources"].as_array().unwrap();
    let packets: u64 = sources.iter().map(|reason| reason["packets"].as_u64().unwrap()).sum();
    assert_eq!(json!(packets), reported["packets"]["dropped"], "all of the demo's packets have a source");
    let quiet = folder.json(&format!("{FIREWALL} --json"));
    assert!(quiet["dropped_sources"].is_null() && quiet["dropped_file"].is_null());
}

#[test]
fn a_file_that_is_another_or_has_no_place_for_reasons_is_refused() {
    let folder = Folder::new();
    folder.stdout("sequence --in demo.pcap.zst --out in.pcapng --function ddos --cores 2");
    for (line, words) in [
        ("run ddos --in demo.pcap.zst --dropped d.pcap", "use .pcapng for --dropped"),
        ("run ddos --in demo.pcap.zst --dropped d.pcap.zst", "use .pcapng for --dropped"),
        ("run ddos --in demo.pcap.zst --dropped d.csv", "`.csv` is not a capture format"),
        ("run ddos --in demo.pcap.zst --dropped -", "--dropped needs a file"),
        ("run ddos --in in.pcapng --dropped in.pcapng", "is also the input in.pcapng"),
        ("run ddos --in demo.pcap.zst --out o.pcapng --dropped o.pcapng", "is also the output"),
        ("run ddos --in demo.pcap.zst --dropped no/d.pcapng", "no/d.pcapng"),
    ] {
        let (_, error) = folder.fails(line);
        assert!(error.contains(words), "{line}: {error}");
    }
    assert!(!folder.path("o.pcapng").exists() && !folder.path("d.pcap").exists());
}
