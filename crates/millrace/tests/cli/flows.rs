//! `millrace flows` as a user types it: rows against what tshark reads, filters against tcpdump, parts of captures, several of them.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::folder::Folder;

fn rows(folder: &Folder, line: &str) -> Vec<Value> {
    let out = folder.stdout(&format!("flows {line} --format jsonl"));
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The standard output of another program; `None` where it isn't there.
fn other(program: &mut Command) -> Option<String> {
    let output = program.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

fn plain(folder: &Folder) {
    folder.stdout("run heavy-hitter demo.pcap.zst --out plain.pcap");
}

fn packets(rows: &[Value]) -> u64 {
    rows.iter().flat_map(|row| row["packets"].as_array().unwrap()).map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn sessions_have_the_packets_and_bytes_that_tshark_sees() {
    let folder = Folder::new();
    plain(&folder);
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(folder.path("plain.pcap")).args(["-Y", "tcp && !icmp && !icmpv6", "-T", "fields"]);
    for field in ["ip.src", "ipv6.src", "tcp.srcport", "ip.dst", "ipv6.dst", "tcp.dstport", "frame.len"] {
        tshark.args(["-e", field]);
    }
    let Some(seen) = other(&mut tshark) else {
        eprintln!("SKIPPED (no tshark)");
        return;
    };
    // By both ends in their order: packets and bytes.
    let mut expected: HashMap<[String; 2], (u64, u64)> = HashMap::new();
    let named = |ends: [String; 2]| {
        let mut ends = ends;
        ends.sort();
        ends
    };
    for line in seen.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let ends = [[0, 1, 2], [3, 4, 5]].map(|at| at.map(|at| fields[at]).concat());
        let of = expected.entry(named(ends)).or_default();
        *of = (of.0 + 1, of.1 + fields[6].parse::<u64>().unwrap());
    }
    let mut got: HashMap<[String; 2], (u64, u64)> = HashMap::new();
    let rows = rows(&folder, "demo.pcap.zst");
    for row in rows.iter().filter(|row| row["protocol"] == "tcp") {
        let end = |which: &str| format!("{}{}", row[which].as_str().unwrap(), row[format!("{which}_port")]);
        let sum = |what: &str| row[what].as_array().unwrap().iter().map(|one| one.as_u64().unwrap()).sum::<u64>();
        let of = got.entry(named([end("source"), end("destination")])).or_default();
        *of = (of.0 + sum("packets"), of.1 + sum("bytes"));
    }
    assert!(got.len() > 1_000 && got == expected, "{} sessions, tshark has {}", got.len(), expected.len());
    // By the demo's README: a scan of 1,000 ports, of which 998 were refused.
    let scan = rows.iter().filter(|row| row["source"] == "203.0.113.66" && row["state"] == "refused");
    assert_eq!(scan.count(), 998);
    let of = |what: &str, wanted: &str| rows.iter().filter(|row| row[what] == wanted).count();
    assert!(of("application", "tls") >= 56 && of("application", "dns") > 200);
}

#[test]
fn filters_take_what_tcpdump_takes() {
    let folder = Folder::new();
    plain(&folder);
    for expression in [
        "tcp",
        "udp or icmp",
        "tcp port 443 and net 192.168.10.0/24",
        "ip6 and not tcp",
        "src host 203.0.113.66 and tcp dst portrange 1-100",
        "dst net 198.51.100 and (port domain or port 80)",
        "host 192.168.10.80 or host 192.168.10.14 and udp",
        "greater 1000 and not (tcp port http or udp)",
        "src port 53 or 22",
        // Behind an extension header tcpdump sees no ICMPv6, and those reports have one.
        "ip proto 1 or (icmp6 and not host ff02::16)",
        "less 60 and ip",
    ] {
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.arg("-nr").arg(folder.path("plain.pcap")).arg(expression);
        let Some(seen) = other(&mut tcpdump) else {
            eprintln!("SKIPPED (no tcpdump)");
            return;
        };
        let mut flows = folder.command("flows demo.pcap.zst --format jsonl --filter");
        let out = other(flows.arg(expression)).unwrap();
        let rows: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(packets(&rows), seen.lines().count() as u64, "{expression}");
    }
}

#[test]
fn a_table_tells_what_it_leaves_out_and_csv_leaves_out_nothing() {
    let folder = Folder::new();
    let text = folder.stdout("flows demo.pcap.zst --top 5");
    assert!(text.contains("5 of ") && text.contains("`--top 0` shows all"), "{text}");
    assert!(text.contains("2026-") && text.contains("Z  "), "times are ISO: {text}");
    let csv = folder.stdout("flows demo.pcap.zst --format csv");
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns));
    let all = folder.stdout("flows demo.pcap.zst --top 0");
    assert_eq!(csv.lines().count() - 1, all.lines().filter(|line| line.contains("Z  ")).count());
    // The same twice, though they are kept in a map with a key of its own.
    assert_eq!(csv, folder.stdout("flows demo.pcap.zst --format csv"));
}

#[test]
fn parts_of_captures_and_several_of_them_are_taken() {
    let folder = Folder::new();
    plain(&folder);
    let all = packets(&rows(&folder, "demo.pcap.zst"));
    let halves = ["--to +10", "--from +10"].map(|part| packets(&rows(&folder, &format!("demo.pcap.zst {part}"))));
    assert_eq!(halves.iter().sum::<u64>(), all);
    assert!(halves.iter().all(|half| *half > 0));
    assert_eq!(packets(&rows(&folder, "demo.pcap.zst --filter ip --packets 1k")), 1_000);
    let first = rows(&folder, "demo.pcap.zst --packets 1")[0]["first"].as_str().unwrap().to_owned();
    assert_eq!(packets(&rows(&folder, &format!("demo.pcap.zst --to {first}"))), 0, "times before it");
    assert!(packets(&rows(&folder, &format!("demo.pcap.zst --from {first} --to +20"))) > 30_000);
    let part = folder.json("inspect demo.pcap.zst --from +5 --to +15 --json");
    let flows = rows(&folder, "demo.pcap.zst --from +5 --to +15");
    let ip = part["packets"].as_u64().unwrap() - part["network"]["arp"].as_u64().unwrap();
    assert_eq!(ip, packets(&flows));
    let mut inspect = folder.command("inspect demo.pcap.zst --packets 7 --json --filter");
    let reported: Value = serde_json::from_str(&other(inspect.arg("tcp and port 80")).unwrap()).unwrap();
    assert_eq!((&reported["packets"], &reported["network"]["ipv4"]), (&7.into(), &7.into()));
    // Two captures of one time are read turn by turn, so a session is one with both directions.
    fs::create_dir(folder.path("parts")).unwrap();
    let drops = "run firewall plain.pcap --set inside=[\"192.168.10.0/24\",\"2001:db8:1::/64\"] \
                 --out parts/kept.pcap --dropped parts/dropped.pcapng";
    folder.stdout(drops);
    fs::write(folder.path("parts/notes.txt"), "no capture").unwrap();
    let sorted = |line: &str| {
        let mut rows: Vec<String> = rows(&folder, line).iter().map(ToString::to_string).collect();
        rows.sort();
        rows
    };
    assert_eq!(sorted("parts"), sorted("plain.pcap"));
    assert_eq!(sorted("parts/kept.pcap --in parts/dropped.pcapng"), sorted("plain.pcap"));
    for engine in ["sequential", "rss --cores 2", "scr --cores 3"] {
        let reported = folder.json(&format!("run ddos demo.pcap.zst --packets 1k --engine {engine} --json"));
        assert_eq!(reported["packets"]["received"], 1_000, "{engine}");
    }
    fs::copy(folder.path("plain.pcap"), folder.path("copy.pcap")).unwrap();
    let twice = packets(&rows(&folder, "plain.pcap copy.pcap"));
    assert_eq!(twice, 2 * all);
}

#[test]
fn slips_are_told_and_what_was_read_is_listed() {
    let folder = Folder::new();
    plain(&folder);
    fs::create_dir(folder.path("empty")).unwrap();
    for (line, words) in [
        ("flows", "CAPTURE"),
        ("flows missing.pcap", "missing.pcap"),
        ("flows empty", "no captures in this folder"),
        ("flows demo.pcap.zst --filter tpc", "--filter: `tpc` isn't known"),
        ("flows demo.pcap.zst --from noon", "write a time as 2026-11-27T08:00:00Z"),
        ("flows demo.pcap.zst --idle 0", "0 is not in 1"),
        ("flows demo.pcap.zst --format xml", "[possible values: text, csv, jsonl]"),
        ("flows - -", "standard input can be read only once"),
    ] {
        let (code, error) = folder.fails(line);
        assert!(error.contains(words), "{line}: {code}: {error}");
    }
    let whole = folder.bytes("plain.pcap");
    fs::write(folder.path("cut.pcap"), &whole[..whole.len() / 2]).unwrap();
    let (code, out, error) = folder.run("flows cut.pcap --format csv");
    assert!(code == 3 && error.contains("cut.pcap"), "{code}: {error}");
    assert!(out.iter().filter(|byte| **byte == b'\n').count() > 100, "rows ahead of the damage");
    assert_eq!(folder.stdout("flows demo.pcap.zst --filter sctp"), "no sessions\n");
}

#[test]
fn what_has_one_time_stamp_has_no_rate() {
    let folder = Folder::new();
    folder.stdout("synth --profile uniform --flows 2 --packets 3 --rate 1000000000 --out s.pcap");
    let reported = folder.stdout("inspect demo.pcap.zst");
    assert!(
        reported.contains("time       2026-11-21T21:04:41.689072Z to ") && reported.contains("on average"),
        "{reported}"
    );
    let mut one = folder.bytes("s.pcap");
    // Every record of these has 16 bytes ahead of its packet: seconds, fraction, and two lengths.
    let mut at = 24;
    while at < one.len() {
        one[at..at + 8].fill(1);
        let len = u32::from_le_bytes(one[at + 8..at + 12].try_into().unwrap());
        at += 16 + len as usize;
    }
    fs::write(folder.path("one.pcap"), one).unwrap();
    let reported = folder.stdout("inspect one.pcap");
    assert!(reported.contains("all packets have the same time stamp") && !reported.contains("pps"), "{reported}");
}
