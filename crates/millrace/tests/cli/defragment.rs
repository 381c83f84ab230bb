//! `--defragment`: fragments are gathered in front of functions.

use millrace::l7::defrag::{Limits, Policy, gather};
use millrace::packet::{LinkType, Nanos, Rewrite, Seq};
use millrace::port::pcap::{Container, Reader, Writer};
use millrace::port::{Fate, Packet, Trace};
use millrace::synth::Build;
use serde_json::Value;

use super::folder::{ENGINES, Folder};

/// Rules that track connections, and see a datagram's length.
const RULES: &str = "*filter\n-A FORWARD -m conntrack --ctstate INVALID -j DROP\n-A FORWARD -m length --length 5000:6000 -j DROP\nCOMMIT\n";

/// Datagrams in fragments, of two families: some in order, some not; one is incomplete, one has an overlap. Whole packets are between them.
fn frames() -> Vec<Vec<u8>> {
    let datagram = |id: u16, len: usize, is_v6: bool| {
        let (a, b) = if is_v6 { ("[2001:db8::1]:5000", "[2001:db8::2]:53") } else { ("10.0.0.1:5000", "10.0.0.2:53") };
        Build::udp(a, b).id(id).payload(len).fragments(600)
    };
    let whole = |port: u16| Build::udp("10.0.0.1:5000", format!("10.0.0.3:{port}").as_str()).payload(20).bytes();
    let (mut frames, mut late) = (vec![whole(1)], datagram(2, 2_000, false));
    frames.extend(datagram(1, 3_000, false));
    frames.push(whole(2));
    late.swap(0, 2);
    let v6 = datagram(3, 1_500, true);
    frames.extend(late);
    frames.extend(v6);
    // Dropped by its length.
    frames.extend(datagram(4, 5_500, false));
    let mut incomplete = datagram(5, 1_500, false);
    incomplete.pop();
    frames.extend(incomplete);
    frames.push(whole(3));
    let (overlap, mut shifted) = (datagram(6, 1_500, false), datagram(6, 1_500, false).remove(1));
    frames.push(overlap[0].clone());
    // It begins eight bytes earlier.
    let field = u16::from_be_bytes([shifted[20], shifted[21]]) - 1;
    shifted[20..22].copy_from_slice(&field.to_be_bytes());
    frames.push(shifted);
    frames.push(whole(4));
    frames
}

fn write(folder: &Folder, name: &str) -> Trace {
    let mut trace = Trace::new();
    let mut writer = Writer::create(folder.path(name), Some(Container::Pcap), None).unwrap();
    for (number, frame) in (0..).zip(frames()) {
        let packet = Packet {
            seq: Seq(number),
            time: Nanos::from_millis(number),
            offset: 0,
            len: frame.len() as u32,
            wire_len: frame.len() as u32,
            interface: 0,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        writer.write(&packet, &frame).unwrap();
        trace.push(packet, &frame);
    }
    writer.finish().unwrap();
    trace
}

fn read(folder: &Folder, name: &str) -> Trace {
    Trace::load(&mut Reader::open(folder.path(name)).unwrap(), usize::MAX).unwrap()
}

fn bytes(trace: &Trace) -> Vec<Vec<u8>> {
    trace.iter().map(|(_, bytes)| bytes.to_vec()).collect()
}

#[test]
fn rules_that_track_see_whole_datagrams_under_every_engine() {
    let folder = Folder::empty();
    let trace = write(&folder, "in.pcap");
    std::fs::write(folder.path("rules.v4"), RULES).unwrap();
    let run = "run rules --rules rules.v4 --in in.pcap --json";
    let mut first = None;
    for (number, engine) in ENGINES.into_iter().enumerate() {
        let json = folder.json(&format!("{run} {engine} --out o{number}.pcap --dropped d{number}.pcapng"));
        let fragments = &json["fragments"];
        let number_of = |value: &Value| value.as_u64().unwrap();
        assert_eq!((&fragments["policy"], number_of(&fragments["datagrams"])), (&"linux".into(), 4), "{engine}");
        assert_eq!(number_of(&fragments["drops"]["overlap"]), 2, "{engine}");
        assert_eq!(number_of(&fragments["drops"]["incomplete"]), 2, "{engine}");
        assert_eq!(number_of(&fragments["received"]), number_of(&fragments["gathered"]) + 4, "{engine}");
        let packets = &json["packets"];
        assert_eq!((number_of(&packets["received"]), number_of(&packets["dropped"])), (8, 1), "{engine}");
        let all = number_of(&packets["received"]) - 4 + number_of(&fragments["received"]);
        assert_eq!(all, trace.len() as u64, "every packet is accounted for");
        let dropped = read(&folder, &format!("d{number}.pcapng"));
        assert_eq!(dropped.packets().iter().map(|packet| packet.wire_len).collect::<Vec<_>>(), [5_542], "{engine}");
        let out = bytes(&read(&folder, &format!("o{number}.pcap")));
        assert!(*first.get_or_insert_with(|| out.clone()) == out, "{engine}");
    }
    // What leaves are the fragments that came, by offset, where their datagrams were complete.
    let mut expected = frames();
    expected.swap(8, 10);
    let out = first.unwrap();
    // A router takes one off the time to live.
    let hop = Rewrite { decrement_ttl: true, ..Rewrite::NONE };
    for frame in &mut expected {
        let wire_len = frame.len() as u32;
        hop.apply_to_frame(LinkType::Ethernet, frame, wire_len, 0);
    }
    assert!(out[..12] == expected[..12], "other fragments leave than came");
    let (again, counts) = gather(&read(&folder, "o0.pcap"), Policy::Linux, Limits::default());
    assert_eq!((again.len(), counts.datagrams, counts.dropped_total()), (7, 3, 0));
}

#[test]
fn it_is_off_unless_wanted() {
    let folder = Folder::empty();
    let trace = write(&folder, "in.pcap");
    std::fs::write(folder.path("rules.v4"), RULES).unwrap();
    let off = folder.json("run rules --rules rules.v4 --in in.pcap --json --defragment off");
    assert!(off["fragments"].is_null() && off["packets"]["received"] == trace.len());
    let plain = folder.json("run conntrack --in in.pcap --json");
    assert!(plain["fragments"].is_null() && plain["packets"]["drops"]["fragment"].as_u64() > Some(10));
    let given = folder.json("run conntrack --in in.pcap --json --defragment first");
    assert_eq!(given["fragments"]["policy"], "first");
    assert_eq!(given["packets"]["dropped"], 0);
    let text = folder.stdout("run conntrack --in in.pcap --defragment linux");
    assert!(text.contains("gathered into 4 datagrams, 4 dropped (overlap 2, incomplete 2)"), "{text}");
    let (code, words) = folder.fails("run conntrack --in in.pcap --defragment windwos");
    assert!(code == 2 && words.contains("windows"), "{words}");
    let (code, words) = folder.fails("bench sweep --defragment linux");
    assert!(code == 2 && words.contains("omit --defragment"), "{words}");
}

#[test]
fn other_commands_gather_too() {
    let folder = Folder::empty();
    write(&folder, "in.pcap");
    std::fs::write(folder.path("rules.v4"), RULES).unwrap();
    let verified = folder.json("verify rules --rules rules.v4 --in in.pcap --seeds 1 --cores 2 --json");
    assert_eq!((&verified["equal"], &verified["packets"]), (&true.into(), &8.into()));
    let counters = folder.stdout("rules explain rules.v4 --in in.pcap");
    assert!(counters.lines().any(|line| line.contains("1     5528 DROP")), "{counters}");
    // The fragment that completes the first datagram is the seventh packet.
    let told = folder.stdout("rules explain rules.v4 --in in.pcap --packet 7");
    assert!(told.contains("forwarded"), "{told}");
    let (code, words) = folder.fails("rules explain rules.v4 --in in.pcap --packet 3");
    assert!(code == 2 && words.contains("--defragment off"), "{words}");
    assert!(words.contains("packet 7 completes its datagram: give that one"), "{words}");
    // Packets and datagrams are told apart.
    let (code, _, words) = folder.run("rules diff rules.v4 rules.v4 --in in.pcap");
    let counts = "31 packets in the capture, 8 to the function; 27 fragments: 23 gathered into 4 datagrams, 4 dropped";
    assert!(code == 0 && words.contains(counts), "{words}");
    for line in ["rules diff rules.v4 rules.v4 --in in.pcap --json", "rules explain rules.v4 --in in.pcap --json"] {
        let json = folder.json(line);
        assert_eq!((&json["packets"], &json["fragments"]["dropped"]), (&8.into(), &4.into()), "{line}");
    }
}

#[test]
fn dropped_fragments_are_told() {
    let folder = Folder::empty();
    write(&folder, "in.pcap");
    std::fs::write(folder.path("rules.v4"), RULES).unwrap();
    let text = folder.stdout("run rules --rules rules.v4 --in in.pcap --dropped dropped.pcapng");
    assert!(text.contains("4 dropped fragments are not in dropped.pcapng: they are dropped before"), "{text}");
    let text = folder.stdout("run rules --rules rules.v4 --in in.pcap --sources");
    assert!(text.contains("4 dropped fragments are not in the list of sources"), "{text}");
    assert!(!folder.stdout("run rules --rules rules.v4 --in in.pcap").contains("are not in"));
    // The two fragments of the datagram that is incomplete, and of the one with an overlap.
    let numbers = [(26, "incomplete"), (27, "incomplete"), (29, "overlap"), (30, "overlap")];
    for (number, reason) in numbers {
        let told = folder.stdout(&format!("rules explain rules.v4 --in in.pcap --packet {number}"));
        let words = format!("a fragment, dropped before the rules see it\nverdict: dropped ({reason}: ");
        assert!(told.contains(&words), "{told}");
    }
    let json = folder.json("rules explain rules.v4 --in in.pcap --packet 30 --json");
    assert_eq!((&json["verdict"], &json["seen"]), (&"dropped (overlap)".into(), &Value::Null));
}
