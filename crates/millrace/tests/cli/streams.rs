//! `millrace streams`: what sides say, against tshark.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::folder::Folder;

/// Captures of `../shared/traces/tcp` whose streams have neither gaps nor copies that differ, out of order or not.
const CAPTURES: [&str; 8] = [
    "wireshark__challenge01_ooo_stream.pcapng",
    "sv__http-async-cli__input.pcap",
    "sv__bug-8629-async-oneside__input.pcap",
    "sv__tcp-fastopen-03__tfo.pcap",
    "tcpflow__tests__test1-out-of-order.pcap",
    "zeek__tcp__retransmit-timeout.pcapng",
    "zeek__tcp__fin_retransmission.pcap",
    "ppp__pt__four_ipv6_http_streams.pcap",
];

fn traces() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/tcp");
    folder.is_dir().then_some(folder)
}

/// What each end said in each session between the same two ends, by the text `address port`.
type Said = BTreeMap<[String; 2], Vec<HashMap<String, Vec<u8>>>>;

fn ours(folder: &Folder, capture: &Path) -> Said {
    let out = folder.path("said");
    let _ = fs::remove_dir_all(&out);
    folder.stdout(&format!("streams --in {} --out said --format jsonl", capture.display()));
    let index = fs::read_to_string(out.join("index.jsonl")).unwrap();
    let mut rows: Vec<Value> = index.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rows.sort_by_key(|row| row["stream"].as_u64());
    let mut said = Said::new();
    for row in rows {
        let end = |side: &str| format!("{} {}", row[side].as_str().unwrap(), row[format!("{side}_port")]);
        let text = |side: &str| match &row[format!("{side}_file")] {
            Value::String(file) => fs::read(out.join(file)).unwrap(),
            _ => Vec::new(),
        };
        let sides = ["client", "server"].map(|side| (end(side), text(side)));
        let mut ends = sides.each_ref().map(|(end, _)| end.clone());
        ends.sort();
        said.entry(ends).or_default().push(sides.into_iter().collect());
    }
    said
}

fn tshark(arguments: &[&str], capture: &Path) -> Option<String> {
    let output = Command::new("tshark").args(["-n", "-r"]).arg(capture).args(arguments).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn theirs(capture: &Path) -> Option<Said> {
    let fields = ["tcp.stream", "ip.src", "ipv6.src", "tcp.srcport", "ip.dst", "ipv6.dst", "tcp.dstport"];
    let mut arguments = vec!["-Y", "tcp and not icmp and not icmpv6", "-T", "fields", "-E", "occurrence=l"];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    let mut streams = BTreeMap::new();
    for line in tshark(&arguments, capture)?.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [stream, v4, v6, port, to_v4, to_v6, to_port] = fields[..] else { panic!("{line}") };
        let ends = [format!("{v4}{v6} {port}"), format!("{to_v4}{to_v6} {to_port}")];
        streams.entry(stream.parse::<u32>().unwrap()).or_insert(ends);
    }
    let mut said = Said::new();
    for (stream, ends) in streams {
        let follow = format!("follow,tcp,raw,{stream}");
        let text = tshark(&["-q", "-z", &follow], capture)?;
        let mut bytes = [Vec::new(), Vec::new()];
        let mut first = String::new();
        for line in text.lines() {
            if let Some(end) = line.strip_prefix("Node 0: ") {
                let (address, port) = end.rsplit_once(':').unwrap();
                first = format!("{} {port}", address.trim_matches(['[', ']']));
            }
            let hex = line.trim_start();
            if !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                bytes[usize::from(line.starts_with('\t'))].extend((0..hex.len()).step_by(2).map(pair));
            }
        }
        let other = ends.iter().find(|end| **end != first).unwrap().clone();
        let [one, two] = bytes;
        let mut ends = ends;
        ends.sort();
        said.entry(ends).or_default().push(HashMap::from([(first, one), (other, two)]));
    }
    Some(said)
}

#[test]
fn sides_say_what_tshark_says() {
    let Some(traces) = traces() else {
        eprintln!("SKIPPED (the shared captures are not here): streams against tshark");
        return;
    };
    let folder = Folder::new();
    let mut bytes = 0;
    for capture in CAPTURES {
        let capture = traces.join(capture);
        let Some(theirs) = theirs(&capture) else {
            eprintln!("SKIPPED (tshark is not installed): streams against tshark");
            return;
        };
        let ours = ours(&folder, &capture);
        for (ends, sessions) in theirs {
            let nothing = Vec::new();
            let mine = ours.get(&ends).unwrap_or(&nothing);
            for (session, said) in sessions.iter().enumerate() {
                for (end, said) in said {
                    let heard = mine.get(session).and_then(|mine| mine.get(end)).cloned().unwrap_or_default();
                    let name = capture.file_name().unwrap_or_default().display();
                    assert!(heard == *said, "{name}: {end} said {} bytes, heard {}", said.len(), heard.len());
                    bytes += said.len();
                }
            }
        }
    }
    assert!(bytes > 1_500_000, "{bytes} bytes compared");
}

#[test]
fn a_folder_that_is_not_empty_is_left_alone() {
    let folder = Folder::new();
    folder.stdout("streams --in demo.pcap.zst --out said --packets 500");
    let (code, error) = folder.fails("streams --in demo.pcap.zst --out said");
    assert_eq!(code, 2);
    assert!(error.contains("said: is not empty; give another folder"), "{error}");
    let (code, error) = folder.fails("streams --in demo.pcap.zst --follow 'tcp prt 80'");
    assert_eq!(code, 2);
    assert!(error.contains("--follow"), "{error}");
}
