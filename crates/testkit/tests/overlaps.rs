//! Overlapping TCP segments: the stream of the policy `linux` against what the running kernel hands to a socket.
//!
//! One difference is known. Where a segment follows directly behind another, the kernel may merge both, if their memory allows it. They then
//! count as one that begins with the first, and a later segment over the second alone begins later than that. The policy judges by the
//! segments as they were sent, as the literature does.
#![allow(clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use millrace_testkit::Build;
use millrace_testkit::netns::{Namespace, Wire, missing};
use packet::{Mac, TcpFlags};
use stream::{Budget, Event, Limits, Policy, Pool, Segment, Side};

/// Segments of a case: where each begins, from the first byte of the stream, and its bytes.
type Case = Vec<(u32, Vec<u8>)>;

#[test]
fn linux_is_what_the_running_kernel_does() {
    if let Some(missing) = missing(&["ip"]) {
        eprintln!("SKIPPED (needs root / ip: no {missing})");
        return;
    }
    let merged = ("6..8, 8..9, then 8..10".to_owned(), vec![(6, vec![b'a'; 2]), (8, vec![b'b']), (8, vec![b'c'; 2])]);
    let cases: Vec<(String, Case)> = pairs().chain([merged]).chain(literature()).collect();
    let mut wire = Kernel::new().unwrap_or_else(|error| panic!("the namespaces can't be set up: {error}"));
    let began = Instant::now();
    let mut wrong = Vec::new();
    let (mut ours_differ, count) = (0, cases.len());
    for (number, (name, case)) in cases.into_iter().enumerate() {
        let case = completed(case);
        let kernel = wire.hands_over(number as u16, &case).unwrap_or_else(|error| panic!("{name}: {error}"));
        let ours = told(Policy::Linux, &case);
        let is_known = MERGED.iter().any(|(known, text)| *known == name && text.as_bytes() == kernel);
        if ours != kernel && !is_known {
            wrong.push(format!("{name}: {} of ours, {} of the kernel", shown(&ours), shown(&kernel)));
        }
        ours_differ += usize::from(told(Policy::First, &case) != kernel);
    }
    eprintln!("{count} cases in {:.1?}; {ours_differ} are not as under the policy `first`", began.elapsed());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(ours_differ > 0, "the cases tell policies apart");
}

/// Cases in which the kernel may have merged segments, with what it then hands over.
const MERGED: [(&str, &str); 2] =
    [("6..8, 8..9, then 8..10", "0.....aabc"), ("OverlapLINUX", "0.0AAAJJBCCCLLLMMMFFFGGHHIQ")];

/// Every way in which a second segment can lie to a first one.
fn pairs() -> impl Iterator<Item = (String, Case)> {
    let ends = (2..14_u32).flat_map(|begin| (begin + 1..14).map(move |end| (begin, end)));
    ends.map(|(begin, end)| {
        let second = vec![b'b'; (end - begin) as usize];
        (format!("6..10, then {begin}..{end}"), vec![(6, vec![b'a'; 4]), (begin, second)])
    })
}

/// The cases of the literature, where the table is.
fn literature() -> impl Iterator<Item = (String, Case)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/l7/overlap_tcp.tsv");
    let table = fs::read_to_string(path).unwrap_or_else(|_| {
        eprintln!("SKIPPED (the table of overlap cases is not here): the cases of the literature");
        String::new()
    });
    let mut cases = BTreeMap::<String, Case>::new();
    for line in table.lines().skip(1).filter(|line| line.starts_with("LINUX\t")) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [_, case, _, at, payload, ..] = fields[..] else { panic!("{line}") };
        // One byte ahead of all holds everything back.
        cases.entry(case.to_owned()).or_default().push((at.parse::<u32>().unwrap() + 1, payload.as_bytes().to_vec()));
    }
    cases.into_iter()
}

/// The case with dots in its gaps, and the byte ahead of all at last.
fn completed(mut case: Case) -> Case {
    let end = case.iter().map(|(at, bytes)| at + bytes.len() as u32).max().unwrap_or(0);
    let covers = |at: u32| case.iter().any(|(begin, bytes)| (*begin..begin + bytes.len() as u32).contains(&at));
    let gaps: Vec<u32> = (1..end).filter(|at| !covers(*at)).collect();
    case.extend(gaps.into_iter().map(|at| (at, b".".to_vec())));
    case.push((0, b"0".to_vec()));
    case
}

const FIRST: u32 = 0xffff_fff8;

/// What our reassembly hands over.
fn told(policy: Policy, case: &Case) -> Vec<u8> {
    let pool = Pool::new(&Budget::new(1 << 20));
    let (mut side, mut said) = (Side::default(), Vec::new());
    let mut hear = |event: Event<'_>| {
        if let Event::Data(bytes) = event {
            said.extend_from_slice(bytes);
        }
        true
    };
    let syn = Segment { seq: FIRST.wrapping_sub(1), payload: &[], missing: 0, syn: true, fin: false };
    side.segment(&syn, &pool, policy, &Limits::default(), &mut hear);
    for (at, payload) in case {
        let segment = Segment { seq: FIRST.wrapping_add(*at), payload, missing: 0, syn: false, fin: false };
        side.segment(&segment, &pool, policy, &Limits::default(), &mut hear);
    }
    said
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A namespace in which a server listens, and a wire to it.
struct Kernel {
    server: Namespace,
    _client: Namespace,
    wire: Wire,
    /// The Ethernet address of the server's end.
    mac: [u8; 6],
}

const SERVER: &str = "10.9.0.1:5000";

impl Kernel {
    fn new() -> io::Result<Self> {
        let (server, client) = (Namespace::new("overlap-s")?, Namespace::new("overlap-c")?);
        server.ip(&["link", "add", "here", "type", "veth", "peer", "name", "there", "netns", client.name()])?;
        client.ip(&["link", "set", "there", "up"])?;
        let wire = client.enter(|| Wire::open("there"))?;
        let mac = wire.mac().map(|byte| format!("{byte:02x}")).join(":");
        server.ip(&["addr", "add", "10.9.0.1/24", "dev", "here"])?;
        server.ip(&["link", "set", "here", "up"])?;
        server.ip(&["neigh", "replace", "10.9.0.2", "dev", "here", "nud", "permanent", "lladdr", &mac])?;
        let mac = server.enter(|| Wire::open("here"))?.mac();
        Ok(Self { server, _client: client, wire, mac })
    }

    /// Opens a connection, sends its segments, and returns what the socket gets.
    fn hands_over(&mut self, number: u16, case: &Case) -> io::Result<Vec<u8>> {
        let listener = self.server.enter(|| TcpListener::bind(SERVER))?;
        let client = format!("10.9.0.2:{}", 20_000 + number);
        let build = |flags: TcpFlags, seq: u32| {
            Build::tcp(client.as_str(), SERVER).macs(Mac(self.wire.mac()), Mac(self.mac)).flags(flags).seq(seq)
        };
        self.wire.send(&build(TcpFlags::SYN, FIRST.wrapping_sub(1)).mss(1460).bytes())?;
        let ack = self.answer(20_000 + number)?.wrapping_add(1);
        self.wire.send(&build(TcpFlags::ACK, FIRST).ack(ack).bytes())?;
        let mut socket = accept(&listener)?;
        for (at, bytes) in case {
            let segment = build(TcpFlags::ACK.with(TcpFlags::PSH), FIRST.wrapping_add(*at)).ack(ack).data(bytes);
            self.wire.send(&segment.bytes())?;
        }
        let len = case.iter().map(|(at, bytes)| *at as usize + bytes.len()).max().unwrap_or(0);
        read(&mut socket, len)
    }

    /// The sequence number of the kernel's answer to a SYN from this port.
    fn answer(&self, port: u16) -> io::Result<u32> {
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            while let Some(frame) = self.wire.take()? {
                let is_it = frame.len() >= 54
                    && frame[12..14] == [8, 0]
                    && frame[23] == 6
                    && frame[36..38] == port.to_be_bytes()
                    && frame[47] & 0x12 == 0x12;
                if is_it {
                    return Ok(u32::from_be_bytes([frame[38], frame[39], frame[40], frame[41]]));
                }
            }
            Wire::wait(&[&self.wire], end)?;
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// Accepts the connection, within three seconds.
fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let end = Instant::now() + Duration::from_secs(3);
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false)?;
                return Ok(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::yield_now();
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads so many bytes, or what comes within a second.
fn read(socket: &mut TcpStream, len: usize) -> io::Result<Vec<u8>> {
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut bytes = vec![0; len];
    let mut got = 0;
    while got < len {
        match socket.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(got);
    Ok(bytes)
}
