//! Software that others wrote reads what the exporter sends: nfcapd with nfdump, and tshark. The counts of flows are compared with tshark's
//! reading of the same captures.
#![allow(clippy::print_stderr)]

mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use millrace_ipfix::{
    Destination, EncoderOptions, ExportCounts, Exporter, ExporterOptions, FlowRecord, Meter, MeterOptions, Tap,
    TimeUnit,
};
use packet::Nanos;
use port::Trace;
use port::pcap::Reader;
use synth::Build;

/// Small captures of real traffic: TCP and UDP; fragments and SCTP; ICMP and ICMPv6; TCP over IPv6.
const CAPTURES: &[&str] = &[
    "real/ppp__pt__example.pcap",
    "real/ppp__ex__ip-frag.pcap.zst",
    "l3/zeek__communityid__icmp.pcap",
    "l3/zeek__communityid__icmp6.pcap",
    "l3/zeek__communityid__ipv6.pcap",
];

/// A bound on waiting for another process, which no test that passes comes near.
const PATIENCE: Duration = Duration::from_secs(60);

/// The captures that are there, or a line that says why there are none.
fn captures(of: &str, programs: &[&str]) -> Vec<(PathBuf, Trace)> {
    let missing = programs.iter().find(|program| !exists(program));
    if let Some(program) = missing {
        // In one piece, as other tests print at the same time.
        let line = format!("SKIPPED (needs {program}): {of}\n");
        eprint!("{line}");
        return Vec::new();
    }
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("MILLRACE_TRACES").map_or(beside, PathBuf::from);
    if !folder.join("MANIFEST.tsv").is_file() {
        let line = format!("SKIPPED (no ../shared/traces): {of}\n");
        eprint!("{line}");
        return Vec::new();
    }
    let load = |name: &&str| {
        let path = folder.join(name);
        let mut reader = Reader::open(&path).expect("the capture is whole");
        (path, Trace::load(&mut reader, usize::MAX).expect("the capture is whole"))
    };
    CAPTURES.iter().map(load).collect()
}

fn exists(program: &str) -> bool {
    let out = Command::new(program).arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status();
    !out.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn output(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).env("TZ", "UTC").args(arguments).output().expect("it is installed");
    assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("it is text")
}

/// Both endpoints and the protocol, the lower endpoint first.
type Key = (SocketAddr, SocketAddr, u8);
/// Packets and bytes from the lower endpoint, and from the higher one; the TCP flags of both.
type Sums = ([u64; 2], [u64; 2], u8);

/// Counts of flows by key, whatever the records were cut into.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flows(BTreeMap<Key, Sums>);

impl Flows {
    fn add(&mut self, source: SocketAddr, destination: SocketAddr, protocol: u8, counts: [[u64; 2]; 2], flags: u8) {
        let is_in_order = source <= destination;
        let (low, high) = if is_in_order { (source, destination) } else { (destination, source) };
        let sums = self.0.entry((low, high, protocol)).or_default();
        for (number, [packets, octets]) in counts.into_iter().enumerate() {
            let side = if is_in_order { number } else { 1 - number };
            sums.0[side] += packets;
            sums.1[side] += octets;
        }
        sums.2 |= flags;
    }
}

/// The flows of a capture as tshark reads it, without reassembly.
fn by_tshark(capture: &Path) -> Flows {
    let fields = [
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "ip.proto",
        "ipv6.nxt",
        "ip.len",
        "ipv6.plen",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
        "sctp.srcport",
        "sctp.dstport",
        "tcp.flags",
        "ip.frag_offset",
    ];
    let mut arguments = vec!["-r", capture.to_str().expect("it is text"), "-n", "-T", "fields"];
    arguments.extend(["-E", "separator=;", "-E", "occurrence=f"]);
    arguments.extend(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]);
    arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
    let mut flows = Flows::default();
    for line in output("tshark", &arguments).lines() {
        let values: Vec<&str> = line.split(';').collect();
        let number = |at: usize| values[at].parse::<u64>().ok();
        let [v4, v6] = [[0, 1], [2, 3]].map(|ends| ends.map(|at| values[at].parse::<IpAddr>().ok()));
        let (ends, protocol, octets) = match (v4, v6) {
            ([Some(source), Some(destination)], _) => ([source, destination], number(4), number(6)),
            (_, [Some(source), Some(destination)]) => ([source, destination], number(5), number(7).map(|len| len + 40)),
            _ => continue,
        };
        let protocol = protocol.expect("IP has a protocol") as u8;
        // What an ICMP error quotes has ports too.
        let ports = match protocol {
            6 => [8, 9],
            17 => [10, 11],
            132 => [12, 13],
            _ => [usize::MAX; 2],
        };
        let port = |at: usize| if at < values.len() { number(at).unwrap_or(0) as u16 } else { 0 };
        let [source, destination] = [0, 1].map(|end| SocketAddr::new(ends[end], port(ports[end])));
        let flags = match protocol {
            6 => u16::from_str_radix(values[14].trim_start_matches("0x"), 16).unwrap_or(0) as u8,
            _ => 0,
        };
        flows.add(source, destination, protocol, [[1, octets.expect("IP has a length")], [0; 2]], flags);
    }
    flows
}

/// Sends a capture's flows to the destination; returns the records.
fn export(trace: &Trace, destination: &Destination, options: ExporterOptions) -> (Vec<FlowRecord>, ExportCounts) {
    let exporter = Exporter::start(destination, options).expect("loopback is up");
    let sender = exporter.sender();
    let mut meter = Meter::new(MeterOptions { flows: 10_000, ..MeterOptions::default() });
    let mut records = Vec::new();
    let mut take = |record: &FlowRecord| {
        records.push(*record);
        sender.send(record);
    };
    for (packet, bytes) in trace.iter() {
        meter.packet(packet, bytes, &mut take);
    }
    meter.end_all(&mut take);
    let metered = meter.counts();
    let counts = exporter.finish();
    assert_eq!(metered.packets, trace.len() as u64);
    assert_eq!(metered.flows, counts.exported.flows + counts.lost.flows);
    assert_eq!(metered.packets, counts.exported.packets + counts.lost.packets + metered.ignored());
    assert_eq!(counts.lost.flows, 0, "the collector is there");
    (records, counts)
}

fn of_records(records: &[FlowRecord]) -> Flows {
    let mut flows = Flows::default();
    for record in records {
        let [source, destination] =
            [record.source, record.destination].map(|end| SocketAddr::new(end.address, end.port));
        let counts = [record.forward, record.reverse].map(|side| [side.packets, side.octets]);
        let flags = record.forward.tcp_flags | record.reverse.tcp_flags;
        flows.add(source, destination, record.protocol, counts, flags);
    }
    flows
}

#[test]
fn flows_are_those_that_tshark_counts() {
    for (path, trace) in captures("flows beside tshark", &["tshark"]) {
        let folder = tempfile::tempdir().expect("there is room");
        let file = Destination::File(folder.path().join("a.ipfix"));
        let (records, _) = export(&trace, &file, ExporterOptions::default());
        assert_eq!(of_records(&records), by_tshark(&path), "{}", path.display());
    }
}

/// A collector that is ended with the test.
struct Nfcapd {
    child: Child,
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Nfcapd {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let address = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port is free");
        let port = address.port().to_string();
        let mut command = Command::new("nfcapd");
        command.args(["-p", &port, "-b", "127.0.0.1", "-B", "4000000", "-t", "3600", "-w"]).arg(folder.path());
        let log = fs::File::create(folder.path().join("log")).expect("the folder is ours");
        let errors = log.try_clone().expect("the file is open");
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("it is installed");
        let collector = Self { child, folder, address };
        // The kernel lists the port once nfcapd has bound it.
        let bound = format!(":{:04X} 00000000:0000", address.port());
        let end = Instant::now() + PATIENCE;
        while !fs::read_to_string("/proc/net/udp").is_ok_and(|list| list.contains(&bound)) {
            assert!(Instant::now() < end, "nfcapd doesn't listen: {}", collector.log());
            thread::yield_now();
        }
        collector
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends the collector and returns the file that it has written.
    fn finish(&mut self) -> PathBuf {
        // The datagrams lie in its buffer, since loopback delivers at once. After a signal it reads no more, so the buffer must be empty.
        let queue = format!(":{:04X} 00000000:0000 07 00000000:00000000", self.address.port());
        let end = Instant::now() + PATIENCE;
        while !fs::read_to_string("/proc/net/udp").is_ok_and(|list| list.contains(&queue)) {
            assert!(Instant::now() < end, "nfcapd doesn't read: {}", self.log());
            thread::yield_now();
        }
        // A signal that comes just before it waits for datagrams is noticed only with the next one.
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(Instant::now() < end, "nfcapd doesn't end: {}", self.log());
            // Fails if it has ended meanwhile.
            let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).stderr(Stdio::null()).status();
            thread::yield_now();
        };
        assert!(status.success(), "{}", self.log());
        let files = fs::read_dir(self.folder.path()).expect("the folder is ours");
        let mut files = files.map(|file| file.expect("the folder is ours").path());
        let is_result =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"nfcapd.2"));
        files.find(is_result).unwrap_or_else(|| panic!("nfcapd has written nothing: {}", self.log()))
    }
}

impl Drop for Nfcapd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The fields of a record as nfdump prints them, of the direction from the source but for the counts back.
fn as_nfdump_prints(record: &FlowRecord) -> Vec<String> {
    let FlowRecord { source, destination, protocol, forward, reverse, .. } = record;
    let letters = "CEUAPRSF".chars().enumerate();
    let flags = letters.map(|(bit, letter)| if forward.tcp_flags << bit & 0x80 != 0 { letter } else { '.' }).collect();
    let clock = |time: Nanos| {
        let (millis, secs) = (time.0 / 1_000_000 % 1000, time.0 / 1_000_000_000);
        format!("{:02}:{:02}:{:02}.{millis:03}", secs / 3600 % 24, secs / 60 % 60, secs % 60)
    };
    let destination_port = match protocol {
        1 | 58 => forward.icmp.map_or_else(|| "0.0".to_owned(), |icmp| format!("{}.{}", icmp >> 8, icmp & 0xff)),
        _ => destination.port.to_string(),
    };
    vec![
        source.address.to_string(),
        source.port.to_string(),
        destination.address.to_string(),
        destination_port,
        protocol.to_string(),
        forward.packets.to_string(),
        forward.octets.to_string(),
        reverse.packets.to_string(),
        reverse.octets.to_string(),
        flags,
        clock(forward.first),
        clock(forward.last),
        forward.class.to_string(),
        forward.interface.to_string(),
        record.vlan.to_string(),
    ]
}

/// A value that nfdump prints. Of a time the clock alone.
fn without_date(value: &str) -> String {
    let value = value.trim();
    value.split_once(' ').map_or(value, |(_, clock)| clock).to_owned()
}

#[test]
fn nfdump_reads_the_flows_of_captures() {
    for (path, trace) in captures("flows through nfcapd and nfdump", &["nfcapd", "nfdump", "tshark"]) {
        // nfdump counts a sequence error for each options record that is followed by something else.
        for (statistics, sequence_errors) in [(false, 0), (true, 1)] {
            let mut collector = Nfcapd::start();
            let options = ExporterOptions { statistics, ..ExporterOptions::default() };
            let (records, _) = export(&trace, &Destination::Udp(collector.address), options);
            let file = collector.finish();
            let file = file.to_str().expect("it is text");
            let format = "fmt:%sa;%sp;%da;%dp;%pr;%ipkt;%ibyt;%opkt;%obyt;%flg;%ts;%te;%tos;%in;%svln";
            let text = output("nfdump", &["-r", file, "-q", "-6", "-N", "-o", format]);
            let lines = text.lines().filter(|line| !line.is_empty());
            let mut found: Vec<Vec<String>> = lines.map(|line| line.split(';').map(without_date).collect()).collect();
            let mut wanted: Vec<_> = records.iter().map(as_nfdump_prints).collect();
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted, "{}", path.display());
            assert_eq!(of_records(&records), by_tshark(&path));
            let sums = output("nfdump", &["-I", "-r", file]);
            let errors = format!("Sequence failures: {sequence_errors}\n");
            assert!(sums.contains(&errors) && collector.log().contains("Bad Packets: 0"), "{sums} {}", collector.log());
        }
    }
}

/// Writes frames as a capture, for tshark.
fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let word = |value: usize| (value as u32).to_le_bytes();
    let mut bytes = [word(0xa1b2_c3d4), [2, 0, 4, 0], word(0), word(0), word(65_535), word(1)].concat();
    for frame in frames {
        bytes.extend([word(0), word(0), word(frame.len()), word(frame.len())].concat());
        bytes.extend(frame);
    }
    fs::write(path, bytes).expect("the folder is ours");
}

/// The flows, and the number of options records, that tshark finds in frames that carry IPFIX.
fn through_tshark(frames: &[Vec<u8>], decode_as: &str) -> (Flows, usize) {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("ipfix.pcap");
    write_capture(&path, frames);
    let text = output("tshark", &["-r", path.to_str().expect("it is text"), "-n", "-d", decode_as, "-V"]);
    for word in ["alformed", "nknown", "No template", "Expert Info"] {
        // The capture begins in the middle of a connection, so TCP's scale is not known.
        let mut lines = text.lines().filter(|line| !line.contains("Window size scaling factor"));
        let line = lines.find(|line| line.contains(word));
        assert_eq!(line, None, "tshark understands every field");
    }
    let mut flows = Flows::default();
    let mut options = 0;
    // Each record begins with a line `Flow 1`.
    for record in text.split("\n        Flow ").skip(1) {
        let value = |name: &str, is_reverse: bool| {
            let mut lines = record.lines().map(str::trim);
            let line = lines.find(|line| line.starts_with(name) && line.contains("(Reverse ") == is_reverse)?;
            Some(line[name.len()..].split(" (Reverse ").next().unwrap_or_default().trim())
        };
        let number = |name, is_reverse| value(name, is_reverse).map_or(0, |text| text.parse().expect("a number"));
        if record.contains("FlowsExp: ") {
            options += 1;
            continue;
        }
        let end = |address, port| {
            let address = value(address, false).expect("records have addresses");
            SocketAddr::new(address.parse().expect("an address"), number(port, false) as u16)
        };
        let protocol =
            value("Protocol: ", false).and_then(|text| text.rsplit_once('(')?.1.strip_suffix(')')?.parse().ok());
        let counts = [false, true].map(|is_reverse| [number("Packets: ", is_reverse), number("Octets: ", is_reverse)]);
        let flags = [false, true].map(|is_reverse| {
            let text =
                value("TCP Flags: 0x", is_reverse).map_or("0", |text| text.split(',').next().unwrap_or_default());
            u8::from_str_radix(text.trim_start_matches('0'), 16).unwrap_or(0)
        });
        let [source, destination] = [end("SrcAddr: ", "SrcPort: "), end("DstAddr: ", "DstPort: ")];
        flows.add(source, destination, protocol.expect("records have protocols"), counts, flags[0] | flags[1]);
    }
    (flows, options)
}

#[test]
fn tshark_decodes_every_field_over_udp() {
    for (path, trace) in captures("IPFIX over UDP, decoded by tshark", &["tshark"]) {
        let collector = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let address = collector.local_addr().expect("it is bound");
        let (records, counts) = export(&trace, &Destination::Udp(address), ExporterOptions::default());
        let mut buffer = [0; 2000];
        // Loopback has delivered them all.
        collector.set_nonblocking(true).expect("it is a socket");
        let messages: Vec<_> =
            std::iter::from_fn(|| collector.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())).collect();
        assert_eq!(messages.len() as u64, counts.messages);
        assert!(messages.iter().all(|message| message.len() <= 1400));
        let frames: Vec<_> =
            messages.iter().map(|message| Build::udp("10.0.0.1:5000", "10.0.0.2:4739").data(message).bytes()).collect();
        let (flows, options) = through_tshark(&frames, "udp.port==4739,cflow");
        assert_eq!(flows, of_records(&records), "{}", path.display());
        assert_eq!(options, 2, "at the beginning and at the end");
    }
}

#[test]
fn tshark_decodes_every_field_over_tcp() {
    for (path, trace) in captures("IPFIX over TCP, decoded by tshark", &["tshark"]) {
        let collector = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = collector.local_addr().expect("it is bound");
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            let (mut stream, _) = collector.accept().expect("the exporter connects");
            stream.read_to_end(&mut bytes).expect("the exporter closes the connection");
            bytes
        });
        let (records, _) = export(&trace, &Destination::Tcp(address), ExporterOptions::default());
        let bytes = reader.join().expect("the reader doesn't panic");
        // Cut where messages aren't, as TCP may.
        let mut seq = 1;
        let segment = |part: &[u8]| {
            let frame = Build::tcp("10.0.0.1:5000", "10.0.0.2:4739").seq(seq).data(part).bytes();
            seq += part.len() as u32;
            frame
        };
        let frames: Vec<_> = bytes.chunks(1000).map(segment).collect();
        let (flows, options) = through_tshark(&frames, "tcp.port==4739,cflow");
        assert_eq!(flows, of_records(&records), "{}", path.display());
        assert_eq!(options, 2, "at the beginning and at the end");
    }
}

#[test]
fn tshark_reads_nanoseconds() {
    for (_, trace) in captures("times in nanoseconds, decoded by tshark", &["tshark"]).drain(..).take(1) {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("a.ipfix");
        let encoder = EncoderOptions { unit: TimeUnit::Nanoseconds, ..EncoderOptions::default() };
        let options = ExporterOptions { encoder, statistics: false, ..ExporterOptions::default() };
        let (records, _) = export(&trace, &Destination::File(path.clone()), options);
        let bytes = fs::read(&path).expect("it was written");
        let mut frames = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (message, others) = rest.split_at(u16::from_be_bytes([rest[2], rest[3]]).into());
            frames.push(Build::udp("10.0.0.1:5000", "10.0.0.2:4739").data(message).bytes());
            rest = others;
        }
        let capture = folder.path().join("ipfix.pcap");
        write_capture(&capture, &frames);
        let decode = ["-r", capture.to_str().expect("it is text"), "-d", "udp.port==4739,cflow", "-T", "fields"];
        let text = output("tshark", &[&decode[..], &["-e", "cflow.abstimestart", "-E", "aggregator=|"]].concat());
        let mut starts: Vec<u64> =
            text.split(['|', '\n']).filter_map(|time| time.split_once('.')?.1.get(..9)?.parse().ok()).collect();
        let sides = records.iter().flat_map(|record| [record.forward, record.reverse]).filter(|side| side.packets > 0);
        let mut wanted: Vec<u64> = sides.map(|side| side.first.0 % 1_000_000_000).collect();
        starts.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(starts, wanted, "all nine digits");
    }
}

/// A tap with a wrapper's calls: every packet is in a record or told to the collector as ignored.
#[test]
fn a_tap_exports_what_its_meter_counts() {
    for (path, trace) in captures("a tap over captures", &[]) {
        let folder = tempfile::tempdir().expect("there is room");
        let file = folder.path().join("a.ipfix");
        let exporter =
            Exporter::start(&Destination::File(file.clone()), ExporterOptions::default()).expect("it is ours");
        let mut tap = Tap::new(MeterOptions { flows: 10_000, ..MeterOptions::default() }, exporter.sender());
        for (packet, bytes) in trace.iter() {
            tap.packet(packet, bytes);
        }
        tap.poll(trace.packets()[trace.len() - 1].time);
        let metered = tap.finish(PATIENCE);
        let counts = exporter.finish();
        assert_eq!((metered.flows, metered.cached, counts.lost.flows), (counts.exported.flows, 0, 0));
        let mut decoder = common::Decoder::default();
        assert_eq!(decoder.messages(&fs::read(&file).expect("it was written"), 1), 0);
        assert_eq!(decoder.flows.len() as u64, metered.flows);
        let last = decoder.statistics.last().expect("the last message has them");
        assert_eq!(common::number(last, 0, 164), Some(metered.ignored()), "{}", path.display());
        let sum = |enterprise, element| -> u64 {
            decoder.flows.iter().filter_map(|fields| common::number(fields, enterprise, element)).sum()
        };
        assert_eq!(sum(0, 2) + sum(common::REVERSE, 2) + metered.ignored(), trace.len() as u64);
    }
}
