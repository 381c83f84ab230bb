//! Packets for the hardware sequencer: whole conversations, every header that the parser knows, frames from one byte to jumbo size, and
//! broken ones.

use std::path::{Path, PathBuf};
use std::{env, fs};

use packet::{LinkType, Nanos, TcpFlags};
use port::pcap::Reader;
use port::{Packet, Trace};

use crate::Build;
use crate::Frames;
use crate::Rng;
use synth::{Params, Profile, Synth};

/// Maximum length of a jumbo frame.
const JUMBO: usize = 9_216;

/// The kind of packets in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Packets that the hardware parses: Ethernet with an EtherType, no extension headers, no ICMP errors.
    Plain,
    /// All packets.
    Any,
}

/// Generates packets of a kind from a seed; times never decrease.
///
/// Captures are included if they are found: beside the repository, or in the folder `MILLRACE_TRACES`.
#[must_use]
pub fn packets(kind: Kind, seed: u64) -> Trace {
    let mut corpus = Corpus { rng: Rng::new(seed), trace: Trace::new(), now: Nanos::from_secs(1) };
    corpus.conversations();
    corpus.headers(kind);
    corpus.lengths(kind);
    if kind == Kind::Any {
        corpus.captures();
        corpus.broken();
    }
    corpus.trace
}

struct Corpus {
    rng: Rng,
    trace: Trace,
    now: Nanos,
}

impl Corpus {
    /// Adds a packet some nanoseconds after the last, from some interface.
    fn push(&mut self, link: LinkType, bytes: &[u8], cut: u32) {
        if bytes.is_empty() {
            return;
        }
        self.now = self.now + Nanos(self.rng.below(1 << 20));
        let packet = Frames::descriptor(link, self.trace.len(), self.now, bytes);
        let interface = if self.rng.chance(0.5) { 0 } else { self.rng.below(4) as u16 };
        self.trace.push(Packet { interface, wire_len: packet.wire_len + cut, ..packet }, bytes);
    }

    fn frame(&mut self, build: &Build) {
        self.push(LinkType::Ethernet, &build.bytes(), 0);
    }

    /// Adds realistic conversations of both address families.
    fn conversations(&mut self) {
        let params = Params { seed: self.rng.bits(), packets: 700, ipv6_percent: 30, ..Params::default() };
        let synth = Synth::new(Profile::UniversityDc, &params).expect("these parameters make sense");
        for (packet, bytes) in synth.trace().iter() {
            self.push(packet.link, bytes, 0);
        }
    }

    /// Adds frames with every kind of header and random values.
    fn headers(&mut self, kind: Kind) {
        for round in 0..12_u32 {
            let port = 1_024 + self.rng.below(60_000) as u16;
            let ends = [
                (format!("10.0.0.{}:{port}", 1 + round), "192.0.2.1:443".to_owned()),
                ("192.0.2.1:443".to_owned(), format!("203.0.113.1:{port}")),
                (format!("10.1.2.{round}:{port}"), "203.0.113.1:9000".to_owned()),
                (format!("[2001:db8::{round}]:{port}"), "[2001:db8:1::b]:53".to_owned()),
                (format!("[2001:db8::b]:{port}"), "[2001:db8::b]:7".to_owned()),
                (format!("198.51.100.7:{port}"), "198.51.100.7:8000".to_owned()),
            ];
            for (a, b) in &ends {
                self.segments(a, b);
                self.datagrams(a, b);
            }
            if kind == Kind::Any {
                for (a, b) in &ends {
                    self.odd(a, b);
                }
            }
        }
    }

    fn segments(&mut self, a: &str, b: &str) {
        let (seq, ack) = (self.rng.bits() as u32, self.rng.bits() as u32);
        let payload = self.rng.below(300) as usize;
        let near = |count: u32| (ack.wrapping_add(count), ack.wrapping_add(count + 500));
        let shift = self.rng.below(17) as u8;
        let tcp = Build::tcp(a, b).seq(seq).ack(ack).window(self.rng.bits() as u16);
        let syn = tcp.clone().flags(TcpFlags::SYN).mss(1_460).sack_permitted().window_scale(shift);
        self.frame(&syn);
        self.frame(&syn.clone().flags(TcpFlags::SYN.with(TcpFlags::ACK)).vlan(7));
        self.frame(&tcp.clone().window_scale(3).sack_permitted());
        self.frame(&tcp.clone().payload(payload));
        self.frame(&tcp.clone().payload(payload).options(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]));
        let blocks = [near(1_000), near(0x9000_0000), near(3_000), near(2_000)];
        for count in 1..=4 {
            self.frame(&tcp.clone().sack(&blocks[..count]).service_vlan(3).vlan(4));
        }
        self.frame(&tcp.clone().sack(&[near(0x8000_0000)]).options(&[1, 1]).sack(&blocks[..1]));
        self.frame(&tcp.clone().options(&[3, 3, 99, 0, 3, 3]).flags(TcpFlags::SYN));
        self.frame(&tcp.clone().options(&[254, 2, 3, 2, 2, 4, 1, 1, 4, 3, 3, 1]).flags(TcpFlags::SYN));
        self.frame(&tcp.clone().options(&[5, 2, 5, 9, 1, 2, 3, 4, 5, 6, 7, 1]));
        self.frame(&tcp.clone().options(&[1, 1, 1, 2]));
        self.frame(&tcp.clone().options(&[8, 1, 0, 0]));
        self.frame(&tcp.clone().options(&[2, 9, 0, 0]));
        let flags = TcpFlags(self.rng.bits() as u8);
        self.frame(&tcp.clone().flags(flags).payload(payload));
        for flags in [TcpFlags::FIN.with(TcpFlags::ACK), TcpFlags::RST, TcpFlags::RST.with(TcpFlags::ACK)] {
            self.frame(&tcp.clone().flags(flags).payload(payload & 1));
        }
        // The longest options.
        let options: Vec<u8> =
            (0..40).map(|_| if self.rng.chance(0.5) { 1 } else { self.rng.below(7) as u8 }).collect();
        self.frame(&tcp.clone().options(&options));
        self.frame(&tcp.flags(TcpFlags::SYN).options(&options));
    }

    fn datagrams(&mut self, a: &str, b: &str) {
        let payload = self.rng.below(1_400) as usize;
        let identifier = self.rng.bits() as u16;
        self.frame(&Build::udp(a, b).payload(payload));
        self.frame(&Build::udp(a, b).payload(3).pad_to(60));
        self.frame(&Build::udp(a, b).payload(payload).vlan(1).service_vlan(2));
        self.frame(&Build::echo(a, b, identifier, 1).payload(payload % 64));
        self.frame(&Build::echo_reply(a, b, identifier, 1));
        self.frame(&Build::ip(a, b, 132).data(&[0, 7, 0, 9, 0, 0, 0, 1, 1, 2, 3, 4, 1, 0, 0, 4]));
        self.frame(&Build::ip(a, b, 50).payload(payload));
        if a.starts_with('[') {
            for kind in [130_u8, 133, 135, 139, 140, 143, 150] {
                self.frame(&Build::icmp(a, b, kind, 0, [0, 1, 2, 3]));
            }
        } else {
            for kind in [0_u8, 6, 8, 9, 13, 14, 15, 16, 17, 18, 30] {
                self.frame(&Build::icmp(a, b, kind, 0, [0, 1, 2, 3]));
            }
            self.frame(&Build::udp(a, b).ip_options(&[7, 7, 4, 0, 0, 0, 0, 0]).payload(payload));
            self.frame(&Build::tcp(a, b).ip_options(&[1; 40]).options(&[1; 40]).vlan(5).service_vlan(6).payload(9));
            for (offset, more) in [(0, true), (64, true), (64, false)] {
                self.frame(&Build::udp(a, b).fragment(offset, more).payload(32));
                self.frame(&Build::tcp(a, b).fragment(offset, more).payload(32));
            }
        }
        self.push(LinkType::Ethernet, &Build::arp(), 0);
    }

    /// Adds packets that the hardware leaves to software, and packets that only look like them.
    fn odd(&mut self, a: &str, b: &str) {
        let inside = if a.starts_with('[') { Build::udp(b, a) } else { Build::tcp(b, a).ip_options(&[1, 1, 1, 1]) };
        if a.starts_with('[') {
            for number in [0, 60, 43] {
                self.frame(&Build::udp(a, b).extension(number, &[1, 4, 0, 0, 0, 0]).payload(5));
            }
            self.frame(&Build::udp(a, b).fragment(64, false).payload(8));
            self.frame(&Build::tcp(a, b).fragment(0, true).payload(8));
            for kind in [1, 2, 3, 4, 100] {
                self.frame(&Build::icmp_error(a, b, kind, 0, &inside.datagram()));
            }
            self.frame(&Build::ip(a, b, 59));
        } else {
            for kind in [3, 4, 5, 11, 12] {
                self.frame(&Build::icmp_error(a, b, kind, 1, &inside.datagram()));
            }
            for flags in [0_u8, 0x80, 0x20, 0x10, 0xb0, 0x40] {
                let gre = [&[flags, 0, 8, 0, 0, 0, 0, 9][..self.rng.below(5) as usize + 4], &[]].concat();
                self.frame(&Build::ip(a, b, 47).data(&gre));
            }
        }
        self.frame(&Build::udp(a, b).vlan(1).vlan(2).vlan(3));
        let mut mpls = Build::udp(a, b).bytes();
        mpls[12..14].copy_from_slice(&[0x88, 0x47]);
        self.push(LinkType::Ethernet, &mpls, 0);
        mpls[12..14].copy_from_slice(&[0x88, 0x64]);
        self.push(LinkType::Ethernet, &mpls, 0);
        // IEEE 802.2: IP in SNAP, and spanning tree.
        for llc in [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &[0x42, 0x42, 3]] {
            let datagram = inside.datagram();
            let len = ((llc.len() + datagram.len()) as u16).to_be_bytes();
            self.push(LinkType::Ethernet, &[&[2; 12][..], &len, llc, &datagram].concat(), 0);
        }
        for link in [LinkType::RawIp, LinkType::LinuxSll, LinkType::Null, LinkType::Other(147)] {
            let bytes =
                Build::tcp(a, b).link(if link == LinkType::Other(147) { LinkType::RawIp } else { link }).bytes();
            self.push(link, &bytes, 0);
        }
    }

    /// Adds frames of every length around the bus's beats, the shortest and the longest.
    fn lengths(&mut self, kind: Kind) {
        for base in [64_usize, 128, 256, 384, 1_500, 1_536, JUMBO - 2] {
            for len in base - 3..=base + 2 {
                let mut bytes = Build::udp("10.0.0.1:1", "192.0.2.1:2").payload(len.saturating_sub(42)).bytes();
                bytes.truncate(len);
                self.push(LinkType::Ethernet, &bytes, 0);
            }
        }
        for len in (1..300).step_by(1 + self.rng.below(3) as usize) {
            let mut bytes: Vec<u8> = (0..len).map(|_| self.rng.bits() as u8).collect();
            if let (Kind::Plain, Some(high)) = (kind, bytes.get_mut(12)) {
                // A smaller value would be a length.
                *high |= 8;
            }
            self.push(LinkType::Ethernet, &bytes, 0);
        }
    }

    /// Adds the beginnings of small captures of every kind.
    fn captures(&mut self) {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let given = env::var_os("MILLRACE_TRACES").map(PathBuf::from);
        let folders = given.into_iter().chain([here.join("../../../shared/traces")]);
        let mut files = vec![here.join("../../testdata/demo.pcap.zst")];
        if let Some(folder) = folders.into_iter().find(|folder| folder.join("MANIFEST.tsv").is_file()) {
            for name in ["real", "tcp", "l3", "l2tun", "malformed", "attack"] {
                let mut found: Vec<_> =
                    fs::read_dir(folder.join(name)).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
                found.sort();
                files.extend(found.into_iter().take(25));
            }
        }
        for file in files {
            // A capture with a defect counts up to the defect.
            let Ok(mut reader) = Reader::open(&file) else { continue };
            let Ok(trace) = Trace::load(&mut reader, 40) else { continue };
            for (packet, bytes) in trace.iter() {
                let bytes = &bytes[..bytes.len().min(JUMBO)];
                self.push(packet.link, bytes, packet.wire_len.saturating_sub(bytes.len() as u32));
            }
        }
    }

    /// Adds frames of the trace with changed bytes and cut ends.
    fn broken(&mut self) {
        let sound = self.trace.clone();
        for _ in 0..1_500 {
            let index = self.rng.below(sound.len() as u64) as usize;
            let mut bytes = sound.bytes(index).to_vec();
            bytes.truncate(400);
            let mut cut = 0;
            if self.rng.chance(0.5) {
                let len = 1 + self.rng.below(bytes.len().min(150) as u64) as usize;
                if self.rng.chance(0.5) {
                    cut = (bytes.len() - len) as u32;
                }
                bytes.truncate(len);
            }
            for _ in 0..self.rng.below(4) {
                let at = self.rng.below(bytes.len().min(80) as u64) as usize;
                let bit = 1 << self.rng.below(8);
                bytes[at] ^= bit;
            }
            self.push(sound.packets()[index].link, &bytes, cut);
        }
    }
}
