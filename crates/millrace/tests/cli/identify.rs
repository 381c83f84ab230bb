//! `millrace identify`: ports say nothing, files of signatures are checked.

use std::collections::BTreeMap;
use std::fs;

use millrace::packet::{LinkType, Nanos, Seq, TcpFlags};
use millrace::port::pcap::{Container, Writer};
use millrace::port::{Fate, Packet, Trace};
use millrace::synth::Build;
use serde_json::Value;

use super::folder::Folder;

/// What sessions say, and the application that they are.
const SAID: [(&str, &str, &str); 4] = [
    ("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "http"),
    ("SSH-2.0-OpenSSH_9.6\r\n", "SSH-2.0-OpenSSH_9.7\r\n", "ssh"),
    ("EHLO there\r\n", "220 mail.example.org ESMTP ready\r\n", "smtp"),
    ("what nobody knows, in clear", "nor this", "unknown"),
];

/// A capture in which each session speaks to this port, in segments of `cut` bytes.
fn write(folder: &Folder, name: &str, port: u16, cut: usize) {
    let mut trace = Trace::new();
    let mut push = |bytes: Vec<u8>| {
        let (len, number) = (bytes.len() as u32, trace.len() as u64);
        let packet = Packet {
            seq: Seq(number),
            time: Nanos::from_millis(1000 + number),
            offset: 0,
            len,
            wire_len: len,
            interface: 0,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        trace.push(packet, &bytes);
    };
    for (number, (client, server, _)) in SAID.iter().enumerate() {
        let (from, to) = (format!("10.0.0.{}:{}", number + 1, 40_000 + number), format!("192.0.2.1:{port}"));
        let [mut next, mut answer] = [1000_u32, 5000];
        let ack = TcpFlags::ACK;
        push(Build::tcp(from.as_str(), to.as_str()).flags(TcpFlags::SYN).seq(next - 1).bytes());
        push(Build::tcp(to.as_str(), from.as_str()).flags(TcpFlags::SYN.with(ack)).seq(answer - 1).ack(next).bytes());
        // A server that speaks first is heard first.
        let order: [(bool, &str); 2] = if server.starts_with("220") {
            [(false, server), (true, client)]
        } else {
            [(true, client), (false, server)]
        };
        for (is_client, text) in order {
            for part in text.as_bytes().chunks(cut) {
                let build = match is_client {
                    true => Build::tcp(from.as_str(), to.as_str()).seq(next).ack(answer),
                    false => Build::tcp(to.as_str(), from.as_str()).seq(answer).ack(next),
                };
                push(build.flags(ack).data(part).bytes());
                *if is_client { &mut next } else { &mut answer } += part.len() as u32;
            }
        }
    }
    let mut writer = Writer::create(folder.path(name), Some(Container::Pcap), None).unwrap();
    for (packet, bytes) in trace.iter() {
        writer.write(packet, bytes).unwrap();
    }
    writer.finish().unwrap();
}

/// The applications by source address.
fn told(folder: &Folder, line: &str) -> BTreeMap<String, String> {
    let rows = folder.stdout(&format!("identify {line} --format jsonl"));
    let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
    let application = |row: Value| row["application"].as_str().unwrap_or("unknown").to_owned();
    rows.map(|row| (row["source"].as_str().unwrap().to_owned(), application(row))).collect()
}

#[test]
fn ports_and_cuts_change_nothing() {
    let folder = Folder::empty();
    let expected: BTreeMap<_, _> =
        SAID.iter().enumerate().map(|(number, said)| (format!("10.0.0.{}", number + 1), said.2.to_owned())).collect();
    for port in [1, 22, 25, 53, 80, 443, 55_555] {
        for cut in [1, 3, 1000] {
            write(&folder, "said.pcap", port, cut);
            assert_eq!(told(&folder, "said.pcap"), expected, "port {port}, cut after {cut} bytes");
        }
    }
}

#[test]
fn own_signatures_are_read_and_checked() {
    let folder = Folder::empty();
    write(&folder, "said.pcap", 9, 1000);
    let own = "protocol nobody chat\nsource ours\ntcp initiator 90 certain what nobody knows\n";
    fs::write(folder.path("own.sig"), own).unwrap();
    assert_eq!(told(&folder, "said.pcap --signatures own.sig")["10.0.0.4"], "nobody");
    fs::write(folder.path("own.sig"), own.replace("certain", "surely")).unwrap();
    let (code, error) = folder.fails("identify said.pcap --signatures own.sig");
    assert_eq!(code, 2);
    assert!(error.contains("own.sig:3:"), "{error}");
    let (code, error) = folder.fails("identify");
    assert_eq!(code, 2);
    assert!(error.contains("--in a.pcap"), "{error}");
    let (code, error) = folder.fails("run identify --set drop=[\"htpp\"] --in said.pcap");
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("`htpp`"), "{error}");
}
