//! `millrace sequence` and `millrace run --sequenced` as a user types them: over captures in files and pipes, the outcome is
//! the one of `run` over the original; and what is wrong with a sequenced capture is told.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use millrace::engine::Link;
use millrace::packet::{Nanos, Seq};
use millrace::port::pcap::{Interface, Reader, Writer};
use millrace::port::{Batch, Packet, Received, Trace};
use serde_json::Value;

use super::commands::{functions, replicates};
use super::folder::Folder;

/// A packet of a capture: time, interface, link, length on the wire, bytes.
type Told = (Nanos, Option<String>, String, u32, Vec<u8>);

/// Reads the packets of a capture.
fn reported(path: &Path) -> Vec<Told> {
    let mut reader = Reader::open(path).unwrap();
    let (mut batch, mut all) = (Batch::default(), Vec::new());
    while reader.read(&mut batch).unwrap() != Received::End {
        for (packet, bytes) in batch.each(0..batch.len()) {
            let name = reader.interfaces()[usize::from(packet.interface)].name.clone();
            all.push((packet.time, name, packet.link.to_string(), packet.wire_len, bytes.to_vec()));
        }
    }
    all
}

/// Whether sequencing and running comes to what running alone does: the output to the byte, and every counter.
fn same(folder: &Folder, function: &str, input: &str, ending: &str, cores: usize, ethernet: &str) {
    let [seq, one, other] = ["seq", "one", "other"].map(|name| format!("{name}.{ending}"));
    folder.stdout(&format!(
        "sequence --in {input} --out {seq} --function {function} --cores {cores} --carrier piggyback --ethernet {ethernet}"
    ));
    let plain = folder.json(&format!("run {function} --in {input} --out {one} --json"));
    let run =
        folder.json(&format!("run {function} --sequenced --in {seq} --cores {cores} --out {other} --json --seed 7"));
    // What stands beside the packets of a pcapng doesn't go by way of a sequencer.
    let equal = match ending {
        "pcapng" => reported(&folder.path(&one)) == reported(&folder.path(&other)),
        _ => folder.bytes(&one) == folder.bytes(&other),
    };
    assert!(equal, "{function} over {input} on {cores} cores: another output");
    for part in ["packets", "flows", "report", "unread", "clock_steps_back", "error"] {
        assert_eq!(run[part], plain[part], "{function} over {input} on {cores} cores: {part}");
    }
    assert_eq!((run["engine"].as_str(), run["by_core"].as_array().unwrap().len()), (Some("scr"), cores));
    let replayed: u64 = run["by_core"].as_array().unwrap().iter().map(|core| core["replayed"].as_u64().unwrap()).sum();
    let received = run["packets"]["received"].as_u64().unwrap();
    assert!(replayed <= received * (cores as u64 - 1));
}

#[test]
fn the_outcome_is_that_of_the_original() {
    let folder = Folder::new();
    for (index, function) in functions().into_iter().filter(|function| replicates(function)).enumerate() {
        same(&folder, function, "demo.pcap.zst", "pcap", 2 + index, if index % 2 == 0 { "on" } else { "off" });
    }
    same(&folder, "conntrack", "demo.pcap.zst", "pcap.zst", 7, "on");
    same(&folder, "firewall", "demo.pcap.zst", "pcapng.gz", 3, "off");
}

/// Captures of every kind: several interfaces and link types, clocks that step back, packets cut short, no Ethernet.
#[test]
fn the_outcome_is_that_of_real_captures() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let Ok(manifest) = fs::read_to_string(captures.join("MANIFEST.tsv")) else {
        eprintln!("SKIPPED (no ../shared/traces)");
        return;
    };
    let folder = Folder::new();
    let functions: Vec<&str> = functions().into_iter().filter(|function| replicates(function)).collect();
    let mut held = 0;
    let lines = manifest.lines().skip(1);
    let wanted = |line: &&str| {
        let odd = ["ifaces=2", "ifaces=3", "ts_backwards=", "truncated="].iter().any(|feature| line.contains(feature));
        odd && !line.contains("file_damaged")
    };
    for (index, line) in lines.filter(wanted).step_by(9).enumerate() {
        let name = line.split('\t').next().unwrap();
        let path = captures.join(name);
        if fs::metadata(&path).is_ok_and(|file| file.len() > 200_000) || Reader::open(&path).is_err() {
            continue;
        }
        let ending = if name.contains("pcapng") || line.contains("pcapng") { "pcapng" } else { "pcap" };
        let input = path.to_str().unwrap();
        if folder.run(&format!("inspect {input}")).0 != 0 {
            continue;
        }
        same(
            &folder,
            functions[index % functions.len()],
            input,
            ending,
            2 + index % 6,
            if index % 3 == 0 { "off" } else { "on" },
        );
        held += 1;
    }
    assert!(held > 5, "{held} captures");
}

/// Two interfaces with names and snap lengths, the second of them first, the times stepping back.
#[test]
fn interfaces_keep_their_names_limits_and_times() {
    let folder = Folder::new();
    let mut reader = Reader::open(folder.path("demo.pcap.zst")).unwrap();
    let trace = Trace::load(&mut reader, 200).unwrap();
    let mut writer = Writer::create(folder.path("two.pcapng"), None, None).unwrap();
    let described = reader.interfaces()[0].clone();
    for (number, name, snaplen) in [(0, "inside", 0), (1, "outside", 1_600)] {
        writer.describe_as(number, Interface { name: Some(name.into()), snaplen, ..described.clone() });
    }
    for index in 0..200 {
        let packet = trace.packets()[index];
        let back = Nanos(if index % 5 == 4 { 900_001 } else { 0 });
        let interface = u16::from(index % 3 != 2);
        writer.write(&Packet { interface, time: packet.time - back, ..packet }, trace.bytes(index)).unwrap();
    }
    writer.finish().unwrap();
    for ethernet in ["on", "off"] {
        same(&folder, "firewall", "two.pcapng", "pcapng", 3, ethernet);
        let text = String::from_utf8_lossy(&folder.bytes("other.pcapng")).into_owned();
        assert!(text.contains("inside") && text.contains("outside"));
        let seq = Reader::open(folder.path("seq.pcapng")).unwrap();
        let grown = |mut seq: Reader| {
            while seq.read(&mut Batch::default()).unwrap() != Received::End {}
            seq.interfaces().iter().map(|interface| interface.snaplen).collect::<Vec<_>>()
        };
        let carried = 2 * 68 + 32 + if ethernet == "on" { 14 } else { 0 };
        // Without a link header in front the interfaces are others than the input's, so they come in the order of their packets.
        let by_packets = [1_600 + carried, 0];
        assert_eq!(grown(seq), if ethernet == "on" { [0, 1_600 + carried] } else { by_packets });
    }
}

#[test]
fn the_summary_tells_what_history_costs() {
    let folder = Folder::new();
    let seq = folder.json("sequence --in demo.pcap.zst --out seq.pcap --function conntrack --cores 7 --json");
    assert_eq!(
        (seq["packets"].as_u64(), seq["rows"].as_u64(), seq["record_bytes"].as_u64()),
        (Some(35_169), Some(6), Some(60))
    );
    assert_eq!(seq["bytes_carried"], 14 + 6 * 68 + 32);
    let number = |name: &str| seq[name].as_u64().unwrap();
    assert_eq!(number("bytes_after") - number("bytes_before"), 35_169 * (14 + 6 * 68 + 32));
    let share = (number("bytes_after") - number("bytes_before")) as f64 / number("bytes_after") as f64;
    assert!((seq["share_carried"].as_f64().unwrap() - share).abs() < 1e-9);
    assert_eq!(folder.json("inspect seq.pcap --json")["packets"], 35_169);
    let text = folder.stdout("sequence --in demo.pcap.zst --out seq.pcap --function ddos --cores 4 --ethernet off");
    for words in
        ["ddos for 4 cores, piggyback: 35,169 packets", "28.1 % of it is history", "107 B", "3 records of 17 bytes"]
    {
        assert!(text.contains(words), "{words} is missing in {text}");
    }
}

#[test]
fn both_ends_of_a_pipe() {
    let folder = Folder::new();
    folder.stdout("run ddos --in demo.pcap.zst --out one.pcap");
    let mut first = folder
        .command("sequence --in demo.pcap.zst --out - --function ddos --cores 3")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let second =
        folder.command("run ddos --sequenced --in - --cores 3 --out -").stdin(first.stdout.take().unwrap()).output();
    assert!(second.unwrap().stdout == folder.bytes("one.pcap"));
    assert!(first.wait().unwrap().success());
    // JSON moves over, as with `run`.
    let (code, stdout, stderr) = folder.run("sequence --in demo.pcap.zst --out - --function ddos --cores 3 --json");
    assert!(code == 0 && stdout.len() > 10_000_000 && serde_json::from_str::<Value>(&stderr).is_ok(), "{stderr}");
    for line in [
        "sequence --in demo.pcap.zst --out - --function ddos --cores 3",
        "run ddos --sequenced --in seq.pcap --cores 3 --out -",
    ] {
        folder.stdout("sequence --in demo.pcap.zst --out seq.pcap --function ddos --cores 3");
        let mut child = folder.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 24]).unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(141), 0), "{line}");
    }
}

/// Takes packets of a capture in another order, by their places.
fn rearranged(folder: &Folder, from: &str, to: &str, order: impl Iterator<Item = usize>) {
    let mut reader = Reader::open(folder.path(from)).unwrap();
    let format = reader.format();
    let (mut batch, mut packets) = (Batch::default(), Vec::new());
    while reader.read(&mut batch).unwrap() != Received::End {
        packets.extend((0..batch.len()).map(|index| (batch.packets()[index], batch.bytes(index).to_vec())));
    }
    let mut writer = Writer::create(folder.path(to), None, Some(&format)).unwrap();
    for place in order {
        let (packet, bytes) = &packets[place];
        writer.write(packet, bytes).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn what_is_wrong_with_a_sequenced_capture_is_told() {
    let folder = Folder::new();
    folder.stdout("sequence --in demo.pcap.zst --out seq.pcap --function ddos --cores 4");
    rearranged(&folder, "seq.pcap", "gap.pcap", (0..2_000).filter(|place| !(1_000..1_003).contains(place)));
    rearranged(&folder, "seq.pcap", "late.pcap", 5..100);
    rearranged(&folder, "seq.pcap", "twice.pcap", (0..100).chain(99..200));
    rearranged(&folder, "seq.pcap", "swapped.pcap", (0..50).chain([51, 50]).chain(52..100));
    let whole = folder.bytes("seq.pcap");
    fs::write(folder.path("cut.pcap"), &whole[..whole.len() / 2 - 11]).unwrap();
    // The first packet's record, cut inside the history it carries: 24 of file header, 16 of record header.
    let mut short = [&whole[..24 + 16], &whole[24 + 16..24 + 16 + 50]].concat();
    short[32..36].copy_from_slice(&50_u32.to_le_bytes());
    fs::write(folder.path("short.pcap"), short).unwrap();
    for (input, cores, sent, words) in [
        (
            "gap.pcap",
            4,
            Some(1_000),
            "gap.pcap: packet 1001: numbers 1000 to 1002 (3 packets) are missing ahead of number 1003; give --loss-recovery on",
        ),
        ("late.pcap", 4, Some(0), "packet 1: numbers 0 to 4 (5 packets) are missing"),
        ("twice.pcap", 4, Some(100), "packet 101: number 99 comes a second time"),
        ("swapped.pcap", 4, Some(50), "packet 51: number 51 comes ahead of number 50"),
        ("cut.pcap", 4, None, "ends"),
        ("short.pcap", 4, Some(0), "packet 1: it is cut short: it has 50 bytes, and 121"),
        ("seq.pcap", 5, Some(0), "seq.pcap: packet 1: it was sequenced for 4 cores, not for 5; give --cores 4"),
        ("demo.pcap.zst", 4, Some(0), "demo.pcap.zst: packet 1: it is no sequenced packet"),
    ] {
        let (code, _, error) = folder.run(&format!("run ddos --sequenced --in {input} --cores {cores} --out out.pcap"));
        assert!(code == 3 && error.contains(words), "{input}: {code}: {error}");
        if let Some(sent) = sent {
            let seen = folder.json("inspect out.pcap --json");
            assert_eq!(seen["packets"].as_u64().unwrap_or(0), sent, "{input}: what was good is in the output");
        }
    }
    let (code, _, error) = folder.run("run conntrack --sequenced --in seq.pcap --cores 4");
    assert!(code == 3 && error.contains("another function") && error.contains("25 bytes, not 68"), "{error}");
    folder.stdout("sequence --in demo.pcap.zst --out seq.pcap --function policer --set per=\"source\" --cores 4");
    let (code, _, error) = folder.run("run policer --sequenced --in seq.pcap --cores 4");
    assert!(code == 3 && error.contains("policer, configured as here"), "{error}");
}

/// What is missing from a sequenced capture is recovered as from a link that loses the same packets.
#[test]
fn a_sequenced_capture_with_gaps_is_as_a_link_that_loses_packets() {
    let folder = Folder::new();
    let link = Link { loss_ppm: 50_000, seed: 11, ..Link::default() };
    for (function, cores) in [("conntrack", 4), ("ddos", 2), ("nat", 7)] {
        folder.stdout(&format!("sequence --in demo.pcap.zst --out seq.pcap --function {function} --cores {cores}"));
        let packets = folder.json("inspect seq.pcap --json")["packets"].as_u64().unwrap();
        let came = (0..packets).filter(|seq| !link.loses(Seq(*seq)));
        let last = came.clone().next_back().unwrap();
        rearranged(&folder, "seq.pcap", "gaps.pcap", came.map(|seq| seq as usize));
        let gaps = folder.json(&format!(
            "run {function} --sequenced --loss-recovery on --in gaps.pcap --cores {cores} --out a.pcap --json --seed 11"
        ));
        let lossy = folder.json(&format!(
            "run {function} --engine scr --loss-recovery on --link-loss 5% --in demo.pcap.zst --cores {cores} \
             --out b.pcap --json --seed 11"
        ));
        assert!(folder.bytes("a.pcap") == folder.bytes("b.pcap"), "{function}");
        assert_eq!(gaps["flows"], lossy["flows"], "{function}");
        // What was lost behind the last packet that came is not known of.
        let known = |run: &Value, key: &str| run["recovery"][key].as_u64().unwrap();
        assert_eq!(known(&gaps, "lost") + packets - 1 - last, known(&lossy, "lost"), "{function}");
        assert!(known(&gaps, "recovered") > 0, "{function}");
        let sum = |run: &Value| run["packets"]["forwarded"].as_u64().unwrap();
        assert_eq!(sum(&gaps), sum(&lossy), "{function}");
        let text =
            folder.stdout(&format!("run {function} --sequenced --loss-recovery on --in gaps.pcap --cores {cores}"));
        assert!(text.contains("packets lost on the link; cores recovered"), "{text}");
    }
}

#[test]
fn slips_are_answered_and_nothing_is_destroyed() {
    let folder = Folder::new();
    fs::write(folder.path("c.toml"), "").unwrap();
    let demo = folder.bytes("demo.pcap.zst");
    for (line, code, hint) in [
        ("sequence --in demo.pcap.zst --out s.pcap --function contrack --cores 7", 2, "'conntrack'"),
        ("sequence --in demo.pcap.zst --out s.pcap --function ddos", 2, "--cores"),
        ("sequence --in demo.pcap.zst --out s.pcap --function ddos --cores 1", 2, "two cores or more"),
        ("sequence --in demo.pcap.zst --out s.pcap --function ddos --cores 4 --carrier pigeon", 2, "piggyback"),
        ("sequence --in demo.pcap.zst --out s.pcap --function ddos --cores 4 --ethernet maybe", 2, "on, off"),
        ("sequence --in demo.pcap.zst --out s.pcap --function ddos --cores 4 --etherent on", 2, "'--ethernet'"),
        ("sequence --in demo.pcap.zst --out demo.pcap.zst --function ddos --cores 4", 2, "is also the input"),
        (
            "sequence --in demo.pcap.zst --out c.toml --config c.toml --function ddos --cores 4",
            2,
            "also the configuration",
        ),
        ("sequence --in demo.pcap.zst --out s.pcap --function ddos --cores 4 --set treshold=5", 2, "`threshold`"),
        ("sequence --in none.pcap --out s.pcap --function ddos --cores 4", 3, "none.pcap: can't be opened"),
        ("sequence --in demo.pcap.zst --out none/s.pcap --function ddos --cores 4", 3, "can't be created"),
        ("sequence --in demo.pcap.zst --out /dev/full --function ddos --cores 4", 3, "disk is full"),
        ("run ddos --sequenced --in demo.pcap.zst", 2, "two cores or more"),
        ("run ddos --sequenced --in demo.pcap.zst --cores 4 --engine rss", 2, "cannot be used with"),
    ] {
        let (is, _, error) = folder.run(line);
        assert!(is == code && error.contains(hint), "{line}: {is}: {error}");
        assert!(!folder.path("s.pcap").exists(), "{line}");
    }
    assert!(folder.bytes("demo.pcap.zst") == demo);
    let help = folder.stdout("sequence --help");
    assert!(help.contains("Examples") && help.contains("run conntrack --sequenced"), "{help}");
    for shell in ["bash", "fish"] {
        let script = folder.stdout(&format!("completions {shell}"));
        assert!(script.contains("sequence") && script.contains("ethernet"));
    }
}
