//! Every shared capture against its row in the manifest, which two other parsers agreed on.

mod shared;

use millrace_port::pcap::{ByteOrder, Container, Format, Reader, Resolution};
use shared::{Row, manifest, read_all};

#[test]
fn every_capture_is_as_its_row_says() {
    let rows = manifest();
    let wrong: Vec<String> =
        rows.iter().filter_map(|row| check(row).err().map(|why| format!("{}: {why}", row.name))).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// The manifest's own parser missed steps in these fuzzed captures; tshark counts as many as we do.
const TSHARK_STEPS_BACK: [(&str, u64); 2] =
    [("malformed/tcpdump__babel_update_oobr.pcap", 39), ("malformed/tcpdump__bgp_vpn_rt-oobr.pcap", 5)];

fn check(row: &Row) -> Result<(), String> {
    let read = read_all(Reader::open(&row.path).map_err(|error| error.to_string())?);
    let mut wrong = Vec::new();
    let mut hold = |what: &str, have: String, want: String| {
        if have != want {
            wrong.push(format!("{what} {have}, not {want}"));
        }
    };
    hold("packets", read.packets.len().to_string(), row.packets.to_string());
    let steps_back = TSHARK_STEPS_BACK.iter().find(|(name, _)| *name == row.name).map(|(_, steps)| *steps);
    hold("ts_backwards", read.steps_back.to_string(), steps_back.unwrap_or(row.feature("ts_backwards")).to_string());
    let truncated = read.packets.iter().filter(|(packet, _)| packet.len < packet.wire_len).count() as u64;
    hold("truncated", truncated.to_string(), row.feature("truncated").to_string());
    let format = read.format;
    hold("interfaces", format.interfaces.len().to_string(), row.feature("ifaces").max(1).to_string());
    hold("sections", format.sections.to_string(), row.feature("sections").max(1).to_string());
    // The row tells one byte order for the file; sections may differ in theirs.
    if format.sections == 1 {
        hold("format", name_of(&format), row.format.clone());
    }
    let damaged = row.features.split(' ').any(|feature| feature == "file_damaged");
    hold("damaged", read.error.is_some().to_string(), damaged.to_string());
    for (index, pair) in read.packets.windows(2).enumerate() {
        if pair[0].0.time > pair[1].0.time || pair[0].0.seq.next() != pair[1].0.seq {
            return Err(format!("packet {index}: time or number does not rise"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

fn name_of(format: &Format) -> String {
    let container = match (format.container, format.interfaces[0].resolution) {
        (Container::PcapNg, _) => "pcapng",
        (Container::Pcap, Resolution::NANOS) => "pcap-ns",
        (Container::Pcap, _) => "pcap-us",
    };
    let order = match (format.container, format.byte_order) {
        (Container::PcapNg, ByteOrder::Little) => "",
        (Container::Pcap, ByteOrder::Little) => "-le",
        (_, ByteOrder::Big) => "-be",
    };
    format!("{container}{order}")
}
