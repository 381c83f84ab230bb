//! Real captures.

use std::fs;
use std::path::{Path, PathBuf};

use port::pcap::Reader;
use port::{Batch, Received};

use super::{Run, Timed, deep, fail, run_conntrack, run_firewall};

/// The folders of which the captures are taken: whole conversations, broken ones, other protocols.
const FOLDERS: [&str; 4] = ["real", "tcp", "l3", "attack"];

#[test]
fn shared_captures() {
    let Some(folder) = shared_traces() else {
        println!("SKIPPED (no ../shared/traces)");
        return;
    };
    let folders = if deep() { vec![folder] } else { FOLDERS.map(|name| folder.join(name)).to_vec() };
    let (mut taken, mut all) = (0, 0);
    for path in folders.iter().flat_map(|folder| captures(folder)) {
        if !deep() && fs::metadata(&path).is_ok_and(|file| file.len() > 500_000) {
            continue;
        }
        let packets = read(&path);
        for (run, config) in [
            (run_conntrack as Run, ""),
            (run_conntrack, "loose = false\nmax_retransmissions = 1"),
            (run_firewall, ""),
            (
                run_firewall,
                "loose = true\nreject = true\nallow = [{ proto = \"tcp\", port = 80 }, { proto = \"icmp\" }]",
            ),
        ] {
            if run(config, &packets, 500).is_err() {
                fail(run, config, packets, &path.display().to_string());
            }
        }
        taken += 1;
        all += packets.len();
    }
    println!("{taken} captures with {all} packets agree");
    assert!(taken > 10, "hardly any capture could be read");
}

/// A capture's packets that are well-formed; those ahead of a defect count.
fn read(path: &Path) -> Vec<Timed> {
    let mut packets = Vec::new();
    let Ok(mut reader) = Reader::open(path) else { return packets };
    let mut batch = Batch::default();
    while matches!(reader.read(&mut batch), Ok(Received::Packets)) {
        for (index, packet) in batch.packets().iter().enumerate() {
            let parsed = packet::parse(packet.link, batch.bytes(index), packet.wire_len, packet.interface);
            packets.extend(parsed.map(|headers| (packet.time, headers)));
        }
    }
    packets
}

fn shared_traces() -> Option<PathBuf> {
    let given = std::env::var_os("MILLRACE_TRACES").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    given.into_iter().chain([beside]).find(|folder| folder.join("MANIFEST.tsv").is_file())
}

/// Every capture below the folder, in order of its name.
fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.to_string_lossy();
        if path.is_dir() {
            found.extend(captures(&path));
        } else if [".pcap", ".pcapng", ".cap", ".pcap.zst", ".pcapng.zst"].iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
    found.sort();
    found
}
