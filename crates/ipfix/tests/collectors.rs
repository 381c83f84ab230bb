//! Software that others wrote reads what the exporter sends: nfcapd with nfdump, and tshark. The counts of flows are compared with tshark's
//! reading of the same captures.

mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use millrace_ipfix::{Destination, ExportCounts, Exporter, ExporterOptions, FlowRecord, Meter, MeterOptions, Tap};
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
        eprintln!("SKIPPED (needs {program}): {of}");
        return Vec::new();
    }
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("MILLRACE_TRACES").map_or(beside, PathBuf::from);
    if !folder.join("MANIFEST.tsv").is_file() {
        eprintln!("SKIPPED (no ../shared/traces): {of}");
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
    let out = Command::new(program).args(arguments).output().expect("it is installed");
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
        // The datagrams lie in its buffer, since loopback delivers at once; it reads on after the signal only if it is in the loop. So
        // the signal is sent once the buffer is empty.
        let queue = format!(":{:04X} 00000000:0000 07 00000000:00000000", self.address.port());
        let end = Instant::now() + PATIENCE;
        while !fs::read_to_string("/proc/net/udp").is_ok_and(|list| list.contains(&queue)) {
            assert!(Instant::now() < end, "nfcapd doesn't read: {}", self.log());
            thread::yield_now();
        }
        output("kill", &["-TERM", &self.child.id().to_string()]);
        assert!(self.child.wait().expect("it is our child").success(), "{}", self.log());
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

#[test]
fn nfdump_reads_the_flows_of_captures() {
    for (path, trace) in captures("flows through nfcapd and nfdump", &["nfcapd", "nfdump", "tshark"]) {
        let mut collector = Nfcapd::start();
        let (records, _) = export(&trace, &Destination::Udp(collector.address), ExporterOptions::default());
        let file = collector.finish();
        let file = file.to_str().expect("it is text");
        let format = "fmt:%sa;%sp;%da;%dp;%pr;%ipkt;%ibyt;%opkt;%obyt;%flg;%ts;%te;%tos;%in;%svln";
        let text = output("nfdump", &["-r", file, "-q", "-6", "-N", "-o", format]);
        println!("{text}");
        let info = output("nfdump", &["-I", "-r", file]);
        println!("{info} {}", collector.log());
        assert_eq!(of_records(&records), by_tshark(&path));
        assert_eq!(text.lines().count(), records.len());
    }
}
