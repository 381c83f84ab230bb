//! The parser against tshark, and rewrites against checksums, over the shared captures: a sample of every folder, or
//! everything under MILLRACE_DEEP=1.
#![allow(clippy::print_stdout)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Frame, checksums, frames, has_surplus, is_deep, traces, write_pcap};
use millrace_packet::{
    Endpoint, Fragment, Headers, ICMP_ERROR_MAX, Icmp, IcmpError, LinkType, Malformed, Network, Rewrite, Tcp, TcpFlags,
    Transport, TunnelKind, icmp_error, protocol, tcp_reset,
};

const FOLDERS: [&str; 9] = ["fmt", "l2tun", "l3", "tcp", "malformed", "attack", "rules", "real", "apps"];

/// What tshark is asked for, in this order. Of a field that occurs more than once, the first: the outermost.
const FIELDS: [&str; 38] = [
    "frame.number",
    "frame.protocols",
    "eth.src",
    "eth.dst",
    "_ws.expert.message",
    "ieee8021ad.id",
    "vlan.id",
    "ip.src",
    "ip.dst",
    "ip.proto",
    "ip.ttl",
    "ip.id",
    "ip.dsfield",
    "ip.flags.mf",
    "ip.frag_offset",
    "ip.hdr_len",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.hlim",
    "ipv6.tclass",
    "ipv6.fraghdr.offset",
    "ipv6.fraghdr.more",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.window_size_value",
    "tcp.options.wscale.shift",
    "tcp.options.mss_val",
    "tcp.len",
    "udp.length",
    "udp.srcport",
    "udp.dstport",
    "icmp.type",
    "icmp.ident",
    "icmpv6.type",
    "sctp.srcport",
];

#[test]
fn agrees_with_tshark() {
    let Some(root) = traces() else {
        println!("SKIPPED (no ../shared/traces)");
        return;
    };
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("SKIPPED (no tshark)");
        return;
    }
    assert!(root.is_dir());
    let frames = if is_deep() { everything() } else { frames(&FOLDERS, 60) };
    let mut by_link: BTreeMap<u16, Vec<&Frame>> = BTreeMap::new();
    for frame in &frames {
        if !matches!(LinkType::from_number(frame.link), LinkType::Other(_)) {
            by_link.entry(frame.link).or_default().push(frame);
        }
    }
    let mut tally = Tally::default();
    let configuration = configuration();
    for (link, frames) in by_link {
        for chunk in frames.chunks(100_000) {
            compare_all(link, chunk, &configuration, &mut tally);
        }
    }
    std::fs::remove_dir_all(configuration).expect("our own folder");
    tally.print();
    assert!(tally.agreed > 5_000, "{} frames agree", tally.agreed);
    assert!(tally.unexplained.is_empty(), "{} unexplained:\n{}", tally.unexplained.len(), tally.sample());
}

fn everything() -> Vec<Frame> {
    let mut all = frames(&FOLDERS, usize::MAX);
    all.extend(frames(&["mix"], usize::MAX));
    all
}

#[derive(Default)]
struct Tally {
    agreed: usize,
    explained: BTreeMap<&'static str, (usize, String)>,
    unexplained: Vec<String>,
}

impl Tally {
    fn print(&self) {
        println!("{} frames agree with tshark", self.agreed);
        for (reason, (count, example)) in &self.explained {
            println!("{count:7} differ: {reason} (as {example})");
        }
    }

    fn sample(&self) -> String {
        self.unexplained.iter().take(400).cloned().collect::<Vec<_>>().join("\n")
    }
}

/// What tshark says of a frame.
struct Said<'a>(Vec<&'a str>);

impl<'a> Said<'a> {
    /// A field of the outermost header that has it.
    fn of(&self, field: &str) -> &'a str {
        self.all(field).split('^').next().unwrap_or("")
    }

    fn all(&self, field: &str) -> &'a str {
        let index = FIELDS.iter().position(|name| *name == field).expect("one of the fields");
        self.0.get(index).copied().unwrap_or("")
    }

    fn number(&self, field: &str) -> Option<u64> {
        let text = self.of(field);
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None if text == "True" => Some(1),
            None if text == "False" => Some(0),
            None => text.parse().ok(),
        }
    }

    /// Whether tshark, too, has found that the frame contradicts itself.
    fn is_malformed(&self) -> bool {
        const WORDS: [&str; 7] =
            ["malformed", "goes past end", "exceeds", "bogus", "invalid", "bad length", "must be exactly"];
        let message = self.all("_ws.expert.message").to_lowercase();
        WORDS.iter().any(|word| message.contains(word))
    }

    /// Where a protocol stands among those that were found, outermost first.
    fn place(&self, what: &str) -> Option<usize> {
        self.of("frame.protocols").split(':').position(|protocol| protocol == what)
    }
}

fn compare_all(link: u16, frames: &[&Frame], configuration: &Path, tally: &mut Tally) {
    let path = scratch(&format!("oracle-{link}"));
    write_pcap(&path, link, frames.iter().copied());
    let out = dissect(&path, configuration);
    for line in out.lines() {
        let said = Said(line.split('|').collect());
        let Some(number) = said.number("frame.number") else { continue };
        let frame = frames[number as usize - 1];
        match compare(frame, &said) {
            Outcome::Agrees => tally.agreed += 1,
            Outcome::Explained(reason) => {
                let example = || format!("{} {}", frame.file, frame.number);
                tally.explained.entry(reason).or_insert_with(|| (0, example())).0 += 1;
            }
            Outcome::Differs(what) => tally.unexplained.push(format!("{} {}: {what}", frame.file, frame.number)),
        }
    }
    std::fs::remove_file(path).expect("our own file");
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.pcap", std::process::id()))
}

/// Has the headers dissected and nothing above them; each packet for itself, so nothing is put together.
fn dissect(path: &Path, configuration: &Path) -> String {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(path).args([
        "-n",
        "-T",
        "fields",
        "-E",
        "separator=|",
        "-E",
        "occurrence=a",
        "-E",
        "aggregator=^",
    ]);
    for option in ["ip.defragment", "ipv6.defragment", "tcp.desegment_tcp_streams", "tcp.analyze_sequence_numbers"] {
        tshark.args(["-o", &format!("{option}:FALSE")]);
    }
    tshark.env("WIRESHARK_CONFIG_DIR", configuration);
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    let out = tshark.output().expect("tshark runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("fields are text")
}

/// A configuration that has every protocol disabled that isn't asked about: what is wrong with it is no business of ours.
fn configuration() -> PathBuf {
    const WANTED: [&str; 28] = [
        "eth",
        "ethertype",
        "vlan",
        "ieee8021ad",
        "sll",
        "null",
        "raw",
        "mpls",
        "pppoes",
        "ppp",
        "llc",
        "frame",
        "arp",
        "_ws.malformed",
        "_ws.short",
        "ip",
        "ipv6",
        "ipv6.hopopts",
        "ipv6.routing",
        "ipv6.fraghdr",
        "ipv6.dstopts",
        "ah",
        "tcp",
        "udp",
        "icmp",
        "icmpv6",
        "sctp",
        "gre",
    ];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wireshark-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let all = Command::new("tshark").args(["-G", "protocols"]).output().expect("tshark runs").stdout;
    let names = String::from_utf8_lossy(&all);
    let names = names.lines().filter_map(|line| line.split('\t').nth(2)).filter(|name| !WANTED.contains(name));
    let disabled: String = names.flat_map(|name| [name, "\n"]).collect();
    std::fs::write(folder.join("disabled_protos"), disabled).expect("a writable folder");
    folder
}

enum Outcome {
    Agrees,
    Explained(&'static str),
    Differs(String),
}

fn compare(frame: &Frame, said: &Said<'_>) -> Outcome {
    let headers = match frame.parse() {
        Ok(headers) => headers,
        Err(kind) => return malformed(kind, frame, said),
    };
    let mut differences = Differences { said, found: Vec::new() };
    differences.link(&headers);
    differences.network(&headers);
    differences.transport(&headers);
    if differences.found.is_empty() {
        return Outcome::Agrees;
    }
    if said.all("_ws.expert.message").contains("Malformed") && differences.found.iter().all(|one| one.contains("None"))
    {
        return Outcome::Explained("tshark stops at a malformed option in front of the transport header");
    }
    let (found, protocols) = (differences.found.join(", "), said.of("frame.protocols"));
    Outcome::Differs(format!("{found}; {protocols}; {headers:?}"))
}

fn malformed(kind: Malformed, frame: &Frame, said: &Said<'_>) -> Outcome {
    let is_cut = frame.bytes.len() < frame.wire_len as usize;
    let is_fragment = said.number("ip.flags.mf") == Some(1) || said.number("ipv6.fraghdr.more") == Some(1);
    match kind {
        _ if said.is_malformed() => Outcome::Agrees,
        Malformed::LinkTruncated | Malformed::IpTruncated | Malformed::TransportTruncated if is_cut => {
            Outcome::Explained("the snap length cuts a header, of which tshark shows the beginning")
        }
        Malformed::TransportTruncated if is_fragment => {
            Outcome::Explained("a first fragment ends inside its transport header, which tshark takes as normal")
        }
        Malformed::IpVersion if said.place("ip") < said.place("ipv6") && said.of("ip.src").is_empty() => {
            Outcome::Explained("IPv6 under the EtherType of IPv4: tshark goes by the version")
        }
        Malformed::IpVersion if said.of("ip.src").is_empty() && said.of("ipv6.src").is_empty() => Outcome::Agrees,
        Malformed::IpExtensions => Outcome::Explained("more than 16 extension headers"),
        _ => Outcome::Differs(format!(
            "{kind} {} {} {}",
            said.of("frame.protocols"),
            said.all("_ws.expert.message"),
            frame.bytes.len()
        )),
    }
}

/// The fields in which we and tshark differ.
struct Differences<'a> {
    said: &'a Said<'a>,
    found: Vec<String>,
}

impl Differences<'_> {
    fn text(&mut self, field: &str, ours: &str) {
        let theirs = self.said.of(field);
        if ours != theirs {
            self.found.push(format!("{field} {ours} not {theirs}"));
        }
    }

    fn number(&mut self, field: &str, ours: impl Into<u64>) {
        self.optional(field, Some(ours.into()));
    }

    fn optional(&mut self, field: &str, ours: Option<u64>) {
        self.both(field, ours, self.said.number(field));
    }

    fn both<T: PartialEq + std::fmt::Debug>(&mut self, field: &str, ours: T, theirs: T) {
        if ours != theirs {
            self.found.push(format!("{field} {ours:?} not {theirs:?}"));
        }
    }

    fn link(&mut self, headers: &Headers) {
        if let Some((src, dst)) = headers.macs {
            self.text("eth.src", &src.to_string());
            self.text("eth.dst", &dst.to_string());
        }
        let ours = (headers.vlans.count > 0).then(|| headers.vlans.ids[0].into());
        self.optional(if self.said.place("ieee8021ad").is_some() { "ieee8021ad.id" } else { "vlan.id" }, ours);
    }

    fn network(&mut self, headers: &Headers) {
        let said = self.said;
        match headers.network {
            Network::V4(ip) => {
                self.both("ip.src", Some(ip.src), said.of("ip.src").parse().ok());
                self.both("ip.dst", Some(ip.dst), said.of("ip.dst").parse().ok());
                self.number("ip.proto", headers.protocol);
                self.number("ip.ttl", ip.ttl);
                self.number("ip.id", ip.id);
                self.number("ip.dsfield", ip.tos);
                self.number("ip.hdr_len", ip.header_len);
                let theirs = fragment(said.number("ip.flags.mf"), said.number("ip.frag_offset"));
                self.both("fragment", headers.fragment, theirs);
            }
            Network::V6(ip) => {
                self.both("ipv6.src", Some(ip.src), said.of("ipv6.src").parse().ok());
                self.both("ipv6.dst", Some(ip.dst), said.of("ipv6.dst").parse().ok());
                self.number("ipv6.hlim", ip.hop_limit);
                self.number("ipv6.tclass", ip.traffic_class);
                let is_quoted = said.place("icmpv6").is_some_and(|icmp| Some(icmp) < said.place("ipv6.fraghdr"));
                let outer = |field: &str| said.number(field).filter(|_| !is_quoted);
                let theirs = fragment(outer("ipv6.fraghdr.more"), outer("ipv6.fraghdr.offset"));
                self.both("fragment", headers.fragment, theirs);
            }
            Network::None | Network::Unreadable | Network::Arp => {
                self.text("ip.src", "");
                self.text("ipv6.src", "");
            }
        }
    }

    fn transport(&mut self, headers: &Headers) {
        match headers.transport {
            Transport::Tcp(tcp) => {
                self.tcp(&tcp);
                // Of a fragment tshark doesn't say.
                if headers.fragment == Fragment::Whole {
                    self.number("tcp.len", headers.payload_len);
                }
            }
            Transport::Udp { src_port, dst_port } => {
                self.number("udp.srcport", src_port);
                self.number("udp.dstport", dst_port);
                // 0 is a jumbogram's, whose length is elsewhere.
                if headers.fragment == Fragment::Whole && self.said.number("udp.length") != Some(0) {
                    self.number("udp.length", headers.payload_len + 8);
                }
            }
            Transport::Icmp(icmp) if headers.protocol == protocol::ICMP => {
                self.number("icmp.type", icmp.kind);
                if matches!(icmp.kind, 0 | 8 | 13 | 14) {
                    self.optional("icmp.ident", icmp.identifier.map(u64::from));
                }
            }
            Transport::Icmp(icmp) => self.number("icmpv6.type", icmp.kind),
            Transport::Sctp { src_port, .. } => self.number("sctp.srcport", src_port),
            Transport::None => {}
        }
    }

    fn tcp(&mut self, tcp: &Tcp) {
        self.number("tcp.srcport", tcp.src_port);
        self.number("tcp.dstport", tcp.dst_port);
        self.number("tcp.seq_raw", tcp.seq);
        self.number("tcp.ack_raw", tcp.ack);
        self.both("tcp.flags", Some(tcp.flags.0.into()), self.said.number("tcp.flags").map(|flags| flags & 0xff));
        self.number("tcp.window_size_value", tcp.window);
        let is_syn = tcp.flags.contains(TcpFlags::SYN);
        let theirs = |field: &str| self.said.number(field).filter(|_| is_syn);
        let (scale, mss) = (theirs("tcp.options.wscale.shift"), theirs("tcp.options.mss_val"));
        self.both("window scale", tcp.options.window_scale.map(u64::from), scale.map(|shift| shift.min(14)));
        self.both("mss", tcp.options.mss.map(u64::from), mss);
    }
}

fn fragment(more: Option<u64>, offset: Option<u64>) -> Fragment {
    match (more.unwrap_or(0), offset.unwrap_or(0)) {
        (0, 0) => Fragment::Whole,
        (_, 0) => Fragment::First,
        _ => Fragment::Later,
    }
}

/// Every packet of the captures whose checksums are right has right ones after a rewrite, inside tunnels too.
#[test]
fn rewritten_captures_keep_right_checksums() {
    if traces().is_none() {
        println!("SKIPPED (no ../shared/traces)");
        return;
    }
    let frames = if is_deep() { everything() } else { frames(&FOLDERS, 200) };
    let (mut looked, mut tunnels) = (0, 0);
    for mut frame in frames {
        let Ok(headers) = frame.parse() else { continue };
        let what = format!("{} {}", frame.file, frame.number);
        looked += rewrite(&mut frame.bytes, &headers, &what);
        if let (Some(Ok(inner)), Some(tunnel)) = (headers.inner(&frame.bytes), headers.tunnel) {
            assert!(tunnel.kind <= TunnelKind::Ip);
            tunnels += rewrite(&mut frame.bytes[usize::from(tunnel.inner_offset)..], &inner, &what);
        }
    }
    println!("{looked} packets and {tunnels} inside tunnels rewritten");
    assert!(looked > 5_000 && tunnels > 50);
}

/// What tshark makes of rewritten packets: it calls no checksum bad that it didn't call bad before.
#[test]
fn tshark_finds_no_bad_checksum_after_a_rewrite() {
    if traces().is_none() || Command::new("tshark").arg("--version").output().is_err() {
        println!("SKIPPED (no ../shared/traces, or no tshark)");
        return;
    }
    let mut frames = frames(&["l3", "tcp", "l2tun"], if is_deep() { usize::MAX } else { 100 });
    frames.retain(|frame| frame.link == LinkType::Ethernet.number() && frame.bytes.len() >= frame.wire_len as usize);
    let before = badly_summed(&frames, &SUMMED);
    let mut rewritten = 0;
    for frame in &mut frames {
        if let Ok(headers) = frame.parse() {
            rewritten += rewrite(&mut frame.bytes, &headers, &frame.file);
        }
    }
    let after: Vec<usize> =
        badly_summed(&frames, &SUMMED).into_iter().filter(|index| !before.contains(index)).collect();
    let (explained, bad): (Vec<&Frame>, Vec<&Frame>) = after.iter().map(|index| &frames[*index]).partition(|frame| {
        // A home address option takes the source's place in the sum (RFC 6275), which a rewrite doesn't follow.
        matches!(frame.parse(), Ok(Headers { network: Network::V6(ip), .. }) if ip.header_len > 40)
    });
    println!("{rewritten} packets rewritten; {} with a home address option", explained.len());
    let names: Vec<String> = bad.iter().map(|frame| format!("{} {}", frame.file, frame.number)).collect();
    assert!(rewritten > 1_000 && names.is_empty(), "{} of {rewritten}: {names:?}", names.len());
}

/// What tshark makes of ICMP errors and resets: it finds no bad checksum.
#[test]
fn tshark_reads_replies() {
    if traces().is_none() || Command::new("tshark").arg("--version").output().is_err() {
        println!("SKIPPED (no ../shared/traces, or no tshark)");
        return;
    }
    let mut frames = frames(&["l3", "tcp", "l2tun"], if is_deep() { usize::MAX } else { 100 });
    frames.retain(|frame| frame.link == LinkType::Ethernet.number());
    let before = badly_summed(&frames, &SUMMED);
    let (mut errors, mut resets) = (Vec::new(), Vec::new());
    for (_, frame) in frames.iter().enumerate().filter(|(index, _)| !before.contains(index)) {
        let Ok(headers) = frame.parse() else { continue };
        let kind = if matches!(headers.network, Network::V4(_)) { 3 } else { 1 };
        let mut bytes = vec![0; usize::from(headers.network_offset) + ICMP_ERROR_MAX];
        if let Some(len) =
            icmp_error(&frame.bytes, &headers, IcmpError { kind, code: 1, from: None, ttl: Some(9) }, &mut bytes)
        {
            bytes.truncate(len);
            errors.push(Frame { wire_len: len as u32, bytes, ..frame.clone() });
        }
        let mut bytes = frame.bytes.clone();
        if let Some(len) = tcp_reset(&mut bytes, &headers) {
            bytes.truncate(len);
            resets.push(Frame { wire_len: len as u32, bytes, ..frame.clone() });
        }
    }
    // A quoted segment may be cut, and tshark looks at its checksum all the same.
    for (replies, protocols) in [(errors, &["ip", "icmp", "icmpv6"][..]), (resets, &SUMMED)] {
        let bad = badly_summed(&replies, protocols);
        let names: Vec<String> =
            bad.iter().map(|index| format!("{} {}", replies[*index].file, replies[*index].number)).collect();
        println!("{} replies", replies.len());
        assert!(replies.len() > 1_000 && names.is_empty(), "{} of {}: {names:?}", names.len(), replies.len());
    }
}

/// The protocols whose checksums tshark looks at.
const SUMMED: [&str; 6] = ["ip", "tcp", "udp", "icmp", "icmpv6", "sctp"];

/// The frames that have a checksum of these protocols which tshark calls bad, by index.
fn badly_summed(frames: &[Frame], protocols: &[&str]) -> BTreeSet<usize> {
    let path = scratch("rewritten");
    write_pcap(&path, LinkType::Ethernet.number(), frames.iter());
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&path).args(["-n", "-T", "fields", "-e", "frame.number"]);
    for protocol in ["ip", "tcp", "udp"] {
        tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    for option in ["ip.defragment", "ipv6.defragment", "tcp.desegment_tcp_streams"] {
        tshark.args(["-o", &format!("{option}:FALSE")]);
    }
    let bad: Vec<String> = protocols.iter().map(|protocol| format!("{protocol}.checksum.status==0")).collect();
    let out = tshark.arg("-Y").arg(bad.join(" || ")).output().expect("tshark runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    std::fs::remove_file(path).expect("our own file");
    let numbers = String::from_utf8(out.stdout).expect("numbers are text");
    numbers.lines().filter_map(|line| line.parse::<usize>().ok()?.checked_sub(1)).collect()
}

fn rewrite(bytes: &mut [u8], headers: &Headers, what: &str) -> usize {
    let before = checksums(bytes, headers);
    if let Some(is_right) = before.transport.filter(|_| !has_surplus(headers)) {
        assert_eq!(headers.checksums_hold(bytes), is_right && before.ip != Some(false), "{what}: {before:?}");
    }
    let Some((src, _)) = headers.addresses() else { return 0 };
    let (new_src, new_dst) = if src.is_ipv4() {
        ([203, 0, 113, 7].into(), [198, 18, 5, 9].into())
    } else {
        ([0xfd; 16].into(), [0x2e; 16].into())
    };
    let rewrite = Rewrite {
        src: Some(Endpoint::new(new_src, 40_001)),
        dst: Some(Endpoint::new(new_dst, 40_001)),
        embedded: true,
        decrement_ttl: true,
        tos: Some(0xb8),
        mss_max: NonZeroU16::new(1_000),
        ..Rewrite::NONE
    };
    rewrite.apply(bytes, headers);
    let mut after = checksums(bytes, headers);
    if let Transport::Icmp(Icmp { embedded: Some(quoted), .. }) = headers.transport
        && quoted.tuple.protocol() == protocol::SCTP
    {
        // The CRC of a quoted packet is left as it is.
        after.quoted_transport = before.quoted_transport;
    }
    assert!(before == after || !before.all_right(), "{what}: {before:?} {after:?}");
    1
}
