//! Where the shared captures lie and what their manifest says of them.
#![allow(dead_code, reason = "each test uses its part")]
#![allow(unreachable_pub, missing_docs, reason = "a module of tests")]

use std::path::{Path, PathBuf};

use millrace_port::pcap::{Error, Format, Reader};
use millrace_port::{Batch, Packet, Received};

/// A capture's row in the manifest.
pub struct Row {
    pub path: PathBuf,
    pub name: String,
    pub category: String,
    pub packets: u64,
    pub format: String,
    pub features: String,
}

impl Row {
    /// The number of a feature such as `ifaces=3`; 0 where it is not told.
    pub fn feature(&self, name: &str) -> u64 {
        let value = self.features.split(' ').find_map(|feature| feature.strip_prefix(name)?.strip_prefix('='));
        value.map_or(0, |value| value.parse().expect("features count"))
    }
}

/// Whether all captures are to be compared, not a sample.
pub fn deep() -> bool {
    std::env::var_os("MILLRACE_DEEP").is_some_and(|value| value == "1")
}

/// The folder of the shared captures; says so when there is none.
#[allow(clippy::print_stderr)]
pub fn traces() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("MILLRACE_TRACES").map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED (no ../shared/traces)");
    None
}

/// The manifest's rows; none where there are no shared captures.
pub fn manifest() -> Vec<Row> {
    let Some(folder) = traces() else { return Vec::new() };
    let text = std::fs::read_to_string(folder.join("MANIFEST.tsv")).expect("the manifest lies beside the captures");
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().expect("a line of names").split('\t').collect();
    let column = |name| columns.iter().position(|column| *column == name).expect("a known column");
    let [file, category, packets, format, features] = ["file", "category", "packets", "format", "features"].map(column);
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            Row {
                path: folder.join(fields[file]),
                name: fields[file].to_owned(),
                category: fields[category].to_owned(),
                packets: fields[packets].parse().expect("a count"),
                format: fields[format].to_owned(),
                features: fields[features].to_owned(),
            }
        })
        .collect()
}

/// A capture read to its end.
pub struct Read {
    pub packets: Vec<(Packet, Vec<u8>)>,
    /// Their time stamps in the file.
    pub stamps: Vec<u64>,
    pub format: Format,
    pub steps_back: u64,
    pub disbelieved: u64,
    pub error: Option<Error>,
}

/// Reads a capture to its end or its first error.
pub fn read_all(mut reader: Reader) -> Read {
    let mut batch = Batch::default();
    let (mut packets, mut stamps) = (Vec::new(), Vec::new());
    let error = loop {
        match reader.read(&mut batch) {
            Ok(Received::Packets) => {
                packets
                    .extend(batch.packets().iter().enumerate().map(|(i, packet)| (*packet, batch.bytes(i).to_vec())));
                stamps.extend((0..batch.len()).map(|index| batch.stamp(index).0));
            }
            Ok(Received::Idle) => {}
            Ok(Received::End) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(reader.read(&mut batch), Ok(Received::End)), "an end stays one, an error is told once");
    let (format, steps_back, disbelieved) = (reader.format(), reader.clock_steps_back(), reader.stamps_not_believed());
    Read { packets, stamps, format, steps_back, disbelieved, error }
}
