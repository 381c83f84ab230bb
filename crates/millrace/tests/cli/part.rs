//! Parts of captures and several captures, under `run` and the commands that hold packets in memory: against what tcpdump and mergecap
//! make of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::folder::Folder;

/// Runs another program; false where it isn't there.
fn ran(folder: &Folder, program: &str, arguments: &[&str]) -> bool {
    let Ok(output) = Command::new(program).args(arguments).current_dir(folder.path(".")).output() else {
        eprintln!("SKIPPED (no {program})");
        return false;
    };
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    true
}

/// Returns a line for each packet, as `tshark` reads it, without its number.
fn packets(folder: &Folder, capture: &str) -> Vec<String> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(folder.path(capture)).args(["-T", "fields", "-t", "e"]);
    for field in
        ["frame.time_epoch", "frame.len", "frame.cap_len", "frame.interface_name", "frame.comment", "_ws.col.Info"]
    {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("tshark is among the packages that the check installs");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_run_takes_what_tcpdump_takes() {
    let folder = Folder::new();
    folder.stdout("run heavy-hitter demo.pcap.zst --out plain.pcap");
    let filter = "tcp port 443 or (udp and not port 53)";
    if !ran(&folder, "tcpdump", &["-nr", "plain.pcap", "-w", "expected.pcap", "--nano", filter]) {
        return;
    }
    // Every packet goes out, and as it came: the output is the part.
    for engine in ["sequential", "rss --cores 3", "scr --cores 2", "hybrid --cores 4"] {
        let line = format!(
            "run heavy-hitter demo.pcap.zst --engine {engine} --out part.pcap --flows part.csv --json --filter"
        );
        let output = folder.command(&line).arg(filter).output().unwrap();
        assert!(output.status.success(), "{engine}: {}", String::from_utf8_lossy(&output.stderr));
        let reported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = packets(&folder, "expected.pcap");
        assert!(expected.len() > 1_000 && packets(&folder, "part.pcap") == expected, "{engine}");
        assert_eq!(reported["packets"]["received"], expected.len(), "{engine}");
        // The sessions are those of the same part.
        let flows = folder.command("flows demo.pcap.zst --format csv --filter").arg(filter).output().unwrap();
        let sorted = |bytes: &[u8]| {
            let mut lines: Vec<String> = String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&folder.bytes("part.csv")), sorted(&flows.stdout), "{engine}");
    }
}

#[test]
fn captures_are_merged_as_mergecap_merges_them() {
    let folder = Folder::new();
    let inside = "inside=[\"192.168.10.0/24\",\"2001:db8:1::/64\"]";
    folder.stdout(&format!("run firewall demo.pcap.zst --set {inside} --out kept.pcapng --dropped dropped.pcapng"));
    folder.stdout("run ddos demo.pcap.zst --from +7 --to +9 --out some.pcap.zst");
    let merge = ["-w", "expected.pcapng", "kept.pcapng", "dropped.pcapng", "some.pcap.zst"];
    if !ran(&folder, "mergecap", &merge) {
        return;
    }
    // Of packets at one time either may come first.
    let sorted = |capture: &str| {
        let mut packets = packets(&folder, capture);
        assert!(packets.is_sorted_by_key(|packet| packet.split('\t').next().map(str::to_owned)), "{capture}: by time");
        packets.sort();
        packets
    };
    let expected = sorted("expected.pcapng");
    assert!(expected.iter().any(|packet| packet.contains("no-connection")), "comments are among them");
    for engine in ["sequential", "rss --cores 3", "scr --cores 2"] {
        folder.stdout(&format!(
            "run heavy-hitter kept.pcapng dropped.pcapng some.pcap.zst --engine {engine} --out merged.pcapng"
        ));
        assert!(sorted("merged.pcapng") == expected, "{engine}");
    }
    // In memory, too.
    let received = folder
        .json("verify ddos kept.pcapng --in dropped.pcapng -i some.pcap.zst --engines rss --cores 2 --seeds 1 --json");
    assert_eq!(received["packets"], expected.len());
    let advised = folder.json("tables advise kept.pcapng dropped.pcapng some.pcap.zst --json");
    assert_eq!(advised["capture"]["packets"], expected.len());
}

#[test]
fn what_is_chosen_is_run_everywhere() {
    let folder = Folder::new();
    folder.stdout("run ddos demo.pcap.zst --from +3 --to +6 --out part.pcap");
    let of = |line: &str| folder.json(&format!("{line} --json"));
    let plain = of("inspect part.pcap")["packets"].clone();
    assert!(plain.as_u64().unwrap() > 1_000);
    let part = "demo.pcap.zst --from +3 --to +6";
    assert_eq!(of(&format!("inspect {part}"))["packets"], plain);
    assert_eq!(of(&format!("verify ddos {part} --engines rss --cores 2 --seeds 1"))["packets"], plain);
    assert_eq!(of(&format!("tables advise {part}"))["capture"]["packets"], plain);
    assert_eq!(of(&format!("sequence --function ddos --cores 2 --out s.pcap {part}"))["packets"], plain);
    assert_eq!(of("sequence --function ddos --cores 2 --out s.pcap demo.pcap.zst --packets 70")["packets"], 70);
    assert_eq!(of(&format!("run ddos {part} --engine auto --cores 2"))["packets"]["received"], plain);
}

#[test]
fn slips_are_told_ahead_of_all() {
    let folder = Folder::new();
    fs::create_dir(folder.path("empty")).unwrap();
    fs::copy(folder.path("demo.pcap.zst"), folder.path("copy.pcap.zst")).unwrap();
    for (line, words) in [
        ("run ddos demo.pcap.zst ./demo.pcap.zst", "every packet would be read twice"),
        ("run ddos demo.pcap.zst --flows flows.txt", "the file of --flows must end in .csv or .jsonl"),
        ("run ddos demo.pcap.zst --flows -", "the file of --flows must end in .csv or .jsonl"),
        ("run ddos demo.pcap.zst --flows nowhere/flows.csv", "nowhere/flows.csv: can't be created"),
        ("run ddos demo.pcap.zst copy.pcap.zst --out copy.pcap.zst", "is also the input copy.pcap.zst"),
        ("run ddos empty", "no captures in this folder"),
        ("run ddos --in demo.pcap.zst missing.pcap", "missing.pcap: can't be opened"),
        ("run ddos missing.pcap --engine auto --cores 2", "missing.pcap: can't be opened"),
        ("run ddos demo.pcap.zst --sequenced --cores 2 --filter tcp", "cannot be used with"),
        ("run ddos demo.pcap.zst --sequenced --cores 2 --flows f.csv", "cannot be used with"),
        ("run ddos demo.pcap.zst --filter tpc", "--filter: `tpc` isn't known"),
        ("verify ddos demo.pcap.zst --filter sctp", "--filter, --from and --to select no packet of "),
        ("verify ddos --synth uniform --from +1", "need a capture"),
        ("tables bench --filter tcp", "need a capture"),
    ] {
        let (code, error) = folder.fails(line);
        assert!(error.contains(words) && (code == 2 || code == 3), "{line}: {code}: {error}");
    }
    let (code, out, error) = folder.run("run ddos demo.pcap.zst --from +1000");
    assert!(code == 0 && error.contains("select no packet of demo.pcap.zst") && !out.is_empty(), "{code}: {error}");
    let left = |name: &str| Path::new(&folder.path(name)).exists();
    assert!(!left("flows.txt") && !left("f.csv"));
    // Nothing of what was read is lost by damage behind it.
    let whole = folder.bytes("demo.pcap.zst");
    fs::write(folder.path("cut.pcap.zst"), &whole[..whole.len() / 2]).unwrap();
    let (code, error) = folder.fails("run ddos cut.pcap.zst copy.pcap.zst --out out.pcap --flows flows.csv");
    assert!(code == 3 && error.contains("cut.pcap.zst"), "{code}: {error}");
    assert!(left("out.pcap") && left("flows.csv"), "what came ahead of the damage");
}
