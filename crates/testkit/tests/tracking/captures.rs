//! Comparison over real captures.

use std::fs;
use std::path::Path;

use millrace_testkit::captures;

use super::{Run, Timed, deep, fail, run_conntrack, run_firewall};

/// The folders of the captures: whole conversations, broken ones, other protocols.
const FOLDERS: [&str; 4] = ["real", "tcp", "l3", "attack"];

#[test]
fn shared_captures() {
    let Some(folder) = captures::shared() else {
        println!("SKIPPED (no ../shared/traces)");
        return;
    };
    let folders = if deep() { vec![folder] } else { FOLDERS.map(|name| folder.join(name)).to_vec() };
    let (mut taken, mut all) = (0, 0);
    for path in folders.iter().flat_map(|folder| captures::below(folder)) {
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

/// Reads the well-formed packets of a capture up to a defect.
fn read(path: &Path) -> Vec<Timed> {
    let Some(trace) = captures::read(path) else { return Vec::new() };
    let parsed = trace.iter().map(|(packet, bytes)| {
        let headers = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
        headers.map(|headers| (packet.time, headers))
    });
    parsed.flatten().collect()
}
