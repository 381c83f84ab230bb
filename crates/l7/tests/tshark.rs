//! Datagrams of real captures against tshark: which packet completes one, and all of its bytes.
#![allow(clippy::print_stderr)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use millrace_l7::defrag::{Defragmenter, Limits, Policy, Taken};
use port::pcap::Reader;
use port::{Batch, Received};

/// Captures in `../shared/traces`, with how many datagrams they have at least. Fragments don't overlap there.
const CAPTURES: [(&str, usize); 6] = [
    ("l3/ppp__pt__ip4_fragments.pcap", 6),
    ("l3/ppp__pk__ipv6_opt_fragments.pcap", 1),
    ("l3/snabb__lwaftr__tcp-afteraftr-ipv6-2frags.pcap", 1),
    ("apps/ndpi__dns_fragmented.pcap", 6),
    ("l2tun/zeek__tunnels__gtp__gtp1_gn_normal_incl_fragmentation.pcap", 20),
    ("real/ppp__ex__ip-frag.pcap.zst", 1),
];

/// The payloads of gathered datagrams, by the number of the packet that completes them, from 1.
type Datagrams = BTreeMap<u64, Vec<u8>>;

fn ours(path: &Path) -> Datagrams {
    let mut reader = Reader::open(path).expect("it can be read");
    let (mut batch, mut store) = (Batch::default(), Defragmenter::new(Policy::Linux, Limits::default()));
    let mut datagrams = Datagrams::new();
    while reader.read(&mut batch).expect("it can be read") != Received::End {
        for (packet, bytes) in batch.each(0..batch.len()) {
            let Taken::Gathered(frame, words) = store.take(packet, bytes) else { continue };
            let headers = packet::parse_what_is_whole(packet.link, frame, frame.len() as u32, 0).expect("an IP packet");
            let len = match words[0] {
                4 => usize::from(headers.transport_offset),
                _ => usize::from(headers.network_offset) + usize::from(words[4]),
            };
            datagrams.insert(packet.seq.0 + 1, frame[len..].to_vec());
        }
    }
    datagrams
}

fn theirs(path: &Path) -> Option<Datagrams> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(path).args([
        "-o",
        "ip.defragment:TRUE",
        "-Y",
        "ip.reassembled.length or ipv6.reassembled.length",
    ]);
    tshark.args(["-T", "fields", "-e", "frame.number", "-e", "ip.reassembled.data", "-e", "ipv6.reassembled.data"]);
    let output = tshark.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("fields are text");
    let hex = |text: &str| -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
        (0..text.len() / 2).map(|at| digit(2 * at)).collect()
    };
    let datagram = |line: &str| {
        let [number, v4, v6] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        // A tunnel may have another datagram inside: the outer one comes first.
        let data = [v4, v6].into_iter().find(|data| !data.is_empty()).expect("one of the two");
        (number.parse().expect("a number"), hex(data.split(',').next().unwrap_or_default()))
    };
    Some(text.lines().map(datagram).collect())
}

#[test]
fn gathers_what_tshark_gathers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    for (name, at_least) in CAPTURES {
        let path = folder.join(name);
        if !path.exists() {
            eprintln!("SKIPPED (no ../shared/traces/{name})");
            continue;
        }
        let Some(theirs) = theirs(&path) else {
            eprintln!("SKIPPED (no tshark)");
            return;
        };
        let ours = ours(&path);
        assert!(ours.len() >= at_least, "{name}: {} datagrams", ours.len());
        let numbers = [&ours, &theirs].map(|datagrams| datagrams.keys().copied().collect::<Vec<_>>());
        assert_eq!(numbers[0], numbers[1], "{name}");
        assert!(ours == theirs, "{name}: other bytes");
    }
}
