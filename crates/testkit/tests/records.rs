//! The wire form of metadata: every packet's record reads back, and no other bytes are accepted. The fields by which a card would steer a
//! packet are those of its packet set.
#![allow(clippy::print_stderr)]

use std::fs;
use std::path::Path;

use functions::{Catalogued, Visitor, each};
use millrace_testkit::{Build, captures};
use nf::{Function, Meta};
use packet::toeplitz::SymmetricToeplitz;
use packet::{FlowKey, LinkType, RssFields, TcpFlags};
use port::pcap::Reader;
use port::{Batch, Received};
use proptest::collection::vec;
use proptest::prelude::*;

/// Creates the function with its test configuration.
fn small<N: Catalogued>() -> N {
    N::from_config(toml::from_str(N::SMALL).expect("it is a configuration"))
}

/// Writes the record of `meta`, and checks that it reads back and that every byte is written.
fn there_and_back<M: Meta>(meta: &M) -> Vec<u8> {
    let [mut record, mut other] = [vec![0; M::RECORD_BYTES], vec![0xff; M::RECORD_BYTES]];
    meta.write(&mut record);
    meta.write(&mut other);
    assert_eq!(record, other, "{meta:?} leaves bytes as they were");
    assert_eq!(M::read(&record), Some(*meta));
    assert_eq!(M::read(&record[..M::RECORD_BYTES - 1]), None, "a record cut short");
    record.push(0);
    assert_eq!(M::read(&record), None, "a record too long");
    record.pop();
    record
}

/// Checks that bytes that are read write back the same: each contribution has one record. Returns true if the bytes are a record.
fn canonical<M: Meta>(bytes: &[u8]) -> bool {
    let Some(meta) = M::read(bytes) else { return false };
    assert_eq!(there_and_back(&meta), bytes, "two records of {meta:?}");
    true
}

/// Checks that steering by a packet's fields gives the bucket of its packet set. Returns true if the fields can be read.
fn is_steered_alike<N: Function>(function: &N, link: LinkType, bytes: &[u8], meta: &N::Meta) -> bool {
    let (Some(mask), Some(fields)) = (function.packet_set().rss_mask(), RssFields::read(link, bytes)) else {
        return false;
    };
    let (fields, set) = (fields.masked(mask), meta.key().rss_fields());
    let hash = |fields: RssFields| TOEPLITZ.hash(fields.folded());
    let name = N::DESCRIPTION.name;
    assert_eq!(hash(fields), hash(set), "{name} steers {meta:?} otherwise than by its fields");
    true
}

static TOEPLITZ: SymmetricToeplitz = SymmetricToeplitz::new();

struct Bytes {
    function: &'static str,
    paper: &'static str,
    lines: Vec<String>,
}

impl Visitor for Bytes {
    fn visit<N: Catalogued>(&mut self) {
        self.function = N::DESCRIPTION.name;
        self.paper = match self.function {
            "ddos" => "4",
            "heavy-hitter" | "policer" => "18",
            "conntrack" => "30",
            "port-knock" => "8",
            _ => "-",
        };
        let (record, row) = (N::Meta::RECORD_BYTES, N::Meta::RECORD_BYTES + 8);
        self.lines.push(format!("| `{}` | {record} | {row} | {} |", self.function, self.paper));
    }
}

/// The decision's table agrees with the code.
#[test]
fn the_table_of_bytes_is_true() {
    let mut bytes = Bytes { function: "", paper: "", lines: Vec::new() };
    each(&mut bytes);
    let note = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/decisions/0008-carriers.md");
    let text = fs::read_to_string(note).expect("the decision is in docs/decisions");
    for line in &bytes.lines {
        assert!(text.lines().any(|row| row.starts_with(line.as_str())), "docs/decisions/0008-carriers.md lacks {line}");
    }
}

/// Visits each packet of a batch with each function.
struct Packets<'a> {
    batch: &'a Batch,
    records: u64,
    /// Number of packets with fields that a card could use.
    steered: u64,
}

impl Visitor for Packets<'_> {
    fn visit<N: Catalogued>(&mut self) {
        let function = &small::<N>();
        for index in 0..self.batch.len() {
            let (packet, bytes) = self.batch.packet(index);
            let parsed = packet::parse(packet.link, bytes, packet.wire_len, packet.interface);
            if let Some(meta) = parsed.ok().and_then(|headers| function.meta(&headers, bytes)) {
                there_and_back(&meta);
                self.records += 1;
                self.steered += u64::from(is_steered_alike(function, packet.link, bytes, &meta));
            }
        }
    }
}

#[test]
fn every_packet_of_the_shared_captures_comes_back() {
    let Some(folder) = captures::shared() else {
        eprintln!("SKIPPED (no ../shared/traces)");
        return;
    };
    let manifest = fs::read_to_string(folder.join("MANIFEST.tsv")).expect("the manifest lies beside the captures");
    let mut batch = Batch::default();
    let (mut captures, mut records, mut steered) = (0, 0, 0);
    for name in manifest.lines().skip(1).filter_map(|line| line.split('\t').next()) {
        let Ok(mut reader) = Reader::open(folder.join(name)) else { continue };
        captures += 1;
        // Packets before a defect count.
        while let Ok(received) = reader.read(&mut batch) {
            if received == Received::End {
                break;
            }
            let mut packets = Packets { batch: &batch, records: 0, steered: 0 };
            each(&mut packets);
            records += packets.records;
            steered += packets.steered;
        }
    }
    assert!(captures > 100 && records > 100_000, "{captures} captures, {records} records");
    assert!(steered > records / 2, "{steered} of {records} by their fields");
}

/// Bytes enough for the record of any function.
const LONGEST: usize = 160;

/// Reads bytes as a record of each function.
struct Read<'a> {
    bytes: &'a [u8],
    taken: u32,
}

impl Visitor for Read<'_> {
    fn visit<N: Catalogued>(&mut self) {
        self.taken += u32::from(canonical::<N::Meta>(&self.bytes[..N::Meta::RECORD_BYTES]));
    }
}

/// Changes a byte of the record of each function's packet, and reads it.
struct Changed<'a> {
    frame: &'a [u8],
    at: usize,
    byte: u8,
}

impl Visitor for Changed<'_> {
    fn visit<N: Catalogued>(&mut self) {
        let function = &small::<N>();
        let headers = packet::parse(LinkType::Ethernet, self.frame, self.frame.len() as u32, 3);
        let Some(meta) = headers.ok().and_then(|headers| function.meta(&headers, self.frame)) else {
            return;
        };
        is_steered_alike(function, LinkType::Ethernet, self.frame, &meta);
        let mut record = there_and_back(&meta);
        let at = self.at % record.len();
        record[at] ^= self.byte;
        canonical::<N::Meta>(&record);
    }
}

fn address() -> impl Strategy<Value = (String, String)> {
    let v4 = |n: u8, port: u16| format!("10.{n}.3.4:{port}");
    let v6 = |n: u8, port: u16| format!("[2001:db8::{n:x}:1]:{port}");
    (any::<bool>(), any::<[u8; 2]>(), any::<[u16; 2]>())
        .prop_map(move |(is_v6, [a, b], [c, d])| if is_v6 { (v6(a, c), v6(b, d)) } else { (v4(a, c), v4(b, d)) })
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    (address(), 0..6_u8, any::<[u32; 2]>(), any::<u8>(), any::<u16>(), 0..60_usize).prop_map(
        |((from, to), kind, [seq, ack], flags, number, payload)| {
            let (a, b) = (from.as_str(), to.as_str());
            let tcp = Build::tcp(a, b).flags(TcpFlags(flags)).seq(seq).ack(ack).payload(payload);
            match kind {
                0 => tcp.window_scale(number as u8 % 16).mss(number),
                1 => tcp.sack(&[(ack.wrapping_add(9), ack.wrapping_add(u32::from(number)))]),
                2 => Build::udp(a, b).payload(payload),
                3 => Build::echo(a, b, number, 1),
                4 => Build::echo_reply(a, b, number, 1),
                _ if a.starts_with('[') => Build::icmp_error(b, a, 1, 4, &Build::udp(a, b).payload(9).datagram()),
                _ => Build::icmp_error(b, a, 3, 1, &Build::tcp(a, b).datagram()),
            }
            .bytes()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn built_packets_come_back(frame in frame(), at in 0..64_usize, byte in 1..=255_u8) {
        each(&mut Changed { frame: &frame, at, byte });
    }

    /// Few bits, so that many of these are records.
    #[test]
    fn what_is_read_is_written_alike(bytes in vec(prop_oneof![Just(0_u8), 0..8_u8, any::<u8>()], LONGEST)) {
        let mut read = Read { bytes: &bytes, taken: 0 };
        each(&mut read);
    }
}

/// Some random bytes are read as records, so the property above is not vacuous.
#[test]
fn zeros_are_a_record_of_some() {
    let mut read = Read { bytes: &[0; LONGEST], taken: 0 };
    each(&mut read);
    assert!((4..=20).contains(&read.taken), "{} functions take zeros", read.taken);
}
