//! `--engine pipeline`: its output, its options and what it refuses.

use millrace::packet::{LinkType, Nanos, Seq};
use millrace::port::pcap::{Container, Writer};
use millrace::port::{Fate, Packet};
use millrace::synth::Build;

use super::folder::Folder;

/// Writes datagrams of many flows in fragments. Each datagram's come in another order, and some among those of the next.
fn write_fragments(folder: &Folder, name: &str, datagrams: u16) {
    let mut frames = Vec::new();
    for id in 1..=datagrams {
        let (from, to) = (format!("10.0.{}.1:{}", id % 50, 1_000 + id), format!("10.1.0.{}:53", id % 200));
        let mut fragments =
            Build::udp(from.as_str(), to.as_str()).id(id).payload(1_400 + usize::from(id)).fragments(600);
        fragments.rotate_left(usize::from(id) % 3);
        let late = if id % 4 == 0 { fragments.pop() } else { None };
        frames.extend(fragments);
        frames.push(Build::udp(from.as_str(), to.as_str()).payload(20).bytes());
        if let Some(late) = late {
            frames.push(late);
        }
    }
    let mut writer = Writer::create(folder.path(name), Some(Container::Pcap), None).unwrap();
    for (number, frame) in (0..).zip(frames) {
        let (seq, time, len) = (Seq(number), Nanos::from_millis(number), frame.len() as u32);
        let (interface, link, bucket, fate) = (0, LinkType::Ethernet, 0, Fate::Pending);
        writer
            .write(&Packet { seq, time, offset: 0, len, wire_len: len, interface, link, bucket, fate }, &frame)
            .unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn a_pipeline_writes_what_sequential_writes() {
    let folder = Folder::new();
    for function in ["conntrack", "app-classifier", "stream-match --set patterns=[\"HTTP/1\"]"] {
        let line = format!("run {function} --in demo.pcap.zst --seed 1");
        folder.stdout(&format!("{line} --out sequential.pcap"));
        for cores in 1..=5 {
            let run = folder.json(&format!("{line} --engine pipeline --cores {cores} --out pipeline.pcap --json"));
            assert!(folder.bytes("pipeline.pcap") == folder.bytes("sequential.pcap"), "{function} on {cores} cores");
            let by_core = run["by_core"].as_array().unwrap();
            let received: Vec<u64> = by_core.iter().map(|core| core["received"].as_u64().unwrap()).collect();
            assert_eq!(received.iter().sum::<u64>(), run["packets"]["received"].as_u64().unwrap(), "{function}");
            assert!((received[0] == 0) == (cores > 1), "the first stage decides nothing: {received:?}");
            assert!(received[1..].iter().all(|packets| *packets > 0), "{function}: {received:?}");
        }
    }
}

#[test]
fn fragments_are_gathered_by_any_stage_alike() {
    let folder = Folder::new();
    write_fragments(&folder, "fragments.pcap", 300);
    for function in ["conntrack --defragment linux", "stream-match --set patterns=[\"HTTP/1\"]"] {
        let line = format!("run {function} --in fragments.pcap --seed 1 --json");
        let expected = folder.json(&format!("{line} --out sequential.pcap"));
        assert!(expected["fragments"]["gathered"].as_u64().unwrap() > 300, "{expected}");
        for shape in
            ["--cores 2", "--cores 2 --cut defragment", "--cores 4", "--cores 3 --stages 3", "--cores 5 --stages 3"]
        {
            let run = folder.json(&format!("{line} --engine pipeline {shape} --out pipeline.pcap"));
            assert!(folder.bytes("pipeline.pcap") == folder.bytes("sequential.pcap"), "{function} with {shape}");
            assert_eq!(run["fragments"], expected["fragments"], "{function} with {shape}");
            assert_eq!(run["packets"], expected["packets"], "{function} with {shape}");
        }
    }
}

#[test]
fn stages_and_ways_have_to_fit_the_cores() {
    let folder = Folder::new();
    let run = "run conntrack --in demo.pcap.zst --engine pipeline";
    for line in [
        format!("{run} --cores 3 --stages 2 --ways 2"),
        format!("{run} --cores 2 --ways 1"),
        format!("{run} --cores 4 --stages 2"),
        format!("{run} --cores 3 --stages 3 --ways 1"),
        format!("{run} --cores 5 --stages 3 --ways 3"),
        format!("{run} --cores 2 --stages 2 --cut defragment"),
        format!("{run} --cores 4 --cut parse"),
        run.to_owned(),
    ] {
        folder.stdout(&line);
    }
    for (line, hint) in [
        (format!("{run} --cores 3 --ways 3"), "3 ways need --cores 4, as one more core reads and steers"),
        (format!("{run} --ways 1"), "2 stages need --cores 2"),
        (format!("{run} --cores 3 --stages 4"), "a pipeline has 2 or 3 stages, not 4"),
        (format!("{run} --cores 3 --stages 1"), "a pipeline has 2 or 3 stages, not 1"),
        (format!("{run} --stages 2"), "2 stages need --cores 2 or more"),
        (format!("{run} --cores 2 --stages 3"), "3 stages need --cores 3 or more"),
        (format!("{run} --cores 4 --stages 3 --ways 3"), "3 ways need --cores 5, as two more cores read and steer"),
        (format!("{run} --cores 3 --cut defragment"), "has one way"),
        (format!("{run} --cores 3 --stages 3 --cut parse"), "three stages have both cuts"),
        ("run conntrack --in demo.pcap.zst --cut parse".to_owned(), "--cut is for pipeline"),
        (format!("{run} --cores 3 --ways 0"), "at least 1"),
        ("run conntrack --in demo.pcap.zst --engine rss --cores 3 --ways 2".to_owned(), "--ways is for pipeline"),
        ("run conntrack --in demo.pcap.zst --stages 2".to_owned(), "--stages is for pipeline"),
        ("run nat --in demo.pcap.zst --engine pipeline --cores 3".to_owned(), "pipeline can't run nat on 3 cores"),
    ] {
        let (code, _, error) = folder.run(&line);
        assert!(code == 2 && error.contains(hint), "{line}: {code}: {error}");
    }
}

#[test]
fn a_pipeline_is_verified() {
    let folder = Folder::new();
    let text = folder.stdout("verify conntrack --in demo.pcap.zst --engines pipeline --cores 1-4 --seeds 3");
    assert!(text.contains("pipeline") && text.contains("equal: identical per packet set"), "{text}");
}
