//! A passive tap: it has what others see, and sends nothing.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrace_port_packet::{Options, Traffic};
use port::Fate;
use testkit::netns::missing;
use testkit::row::{LONG, Row, eventually, numbered};

use crate::bench::{Serves, received, tap};

type Frames = HashMap<Vec<u8>, usize>;

/// Packets that an interface has received and sent, as the kernel counts them.
fn interface(row: &Row, name: &str) -> (u64, u64) {
    let text = row.middle.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev")).expect("it is there");
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    let columns: Vec<u64> =
        line.expect("it is listed").split_whitespace().map(|column| column.parse().expect("a number")).collect();
    (columns[1], columns[9])
}

/// `tcpdump` on the left end in the middle, until it is told to end.
struct Tcpdump {
    child: Child,
    told: BufReader<std::process::ChildStderr>,
    file: String,
}

impl Tcpdump {
    fn start(row: &Row) -> Self {
        let file = format!("{}/tap-{}.pcap", std::env::temp_dir().display(), std::process::id());
        // Should the test fail meanwhile, it ends by itself.
        let exec = ["60", "ip", "netns", "exec", row.middle.name()];
        let dump = ["tcpdump", "-i", "a0", "-U", "-n", "-s", "0", "-B", "4096", "-w", &file, "-Z", "root"];
        let mut command = Command::new("timeout");
        command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
        let mut child = command.args(exec).args(dump).stderr(Stdio::piped()).spawn().expect("it is installed");
        let mut told = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(told.read_line(&mut line).expect("it says something") > 0, "tcpdump ended");
        }
        Self { child, told, file }
    }

    /// Ends it, and returns its frames.
    fn end(mut self) -> Frames {
        // SAFETY: it is our child, which has not been waited for, and which passes the signal on.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) }, 0);
        let mut rest = String::new();
        self.told.read_to_string(&mut rest).expect("it says what it has done");
        self.child.wait().expect("it ends");
        let frames = self.frames();
        std::fs::remove_file(&self.file).expect("it is ours");
        frames
    }

    /// The frames that it has written.
    fn frames(&self) -> Frames {
        let (bytes, mut frames) = (std::fs::read(&self.file).expect("it has written"), Frames::new());
        let mut rest = bytes.get(24..).unwrap_or_default();
        while let Some((header, behind)) = rest.split_first_chunk::<16>() {
            let len = u32::from_le_bytes(*header[8..].first_chunk().expect("a word")) as usize;
            let Some((frame, behind)) = behind.split_at_checked(len) else { break };
            *frames.entry(frame.to_vec()).or_default() += 1;
            rest = behind;
        }
        frames
    }
}

#[test]
fn a_tap_sees_what_tcpdump_sees_and_sends_nothing() {
    let Some(row) = Row::new("tap", 1500) else { return };
    let absent = missing(&["ping", "tcpdump"]);
    if let Some(absent) = &absent {
        eprintln!("SKIPPED (no {absent}): comparison with tcpdump; packets are counted");
    }
    row.middle.ip(&["addr", "add", "10.9.0.2/24", "dev", "a0"]).expect("the end is there");
    row.left.ip(&["addr", "add", "10.9.0.1/24", "dev", "h0"]).expect("the end is there");
    let seen = Arc::new(Mutex::new(Frames::new()));
    let noted = Arc::clone(&seen);
    let before = interface(&row, "a0");
    // The verdict would send all of it back.
    let server = row.serve(tap("a0"), 1, move |_, _, bytes| {
        *noted.lock().expect("nobody panics").entry(bytes.to_vec()).or_default() += 1;
        Fate::Both(0, 0)
    });
    let dump = absent.is_none().then(|| Tcpdump::start(&row));
    if absent.is_none() {
        row.left.run("ping", &["-c", "20", "-i", "0.01", "-W", "5", "10.9.0.2"]).expect("the middle answers");
    }
    // An answer to each, from the machine of the tap.
    row.left.enter(|| {
        let socket = UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 1), 0)).expect("the address is there");
        socket.set_read_timeout(Some(LONG)).expect("a socket has a timeout");
        let echo = row.middle.enter(|| UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 2), 7)).expect("it is there"));
        echo.set_read_timeout(Some(LONG)).expect("a socket has a timeout");
        for number in 0..50_u8 {
            let mut buffer = [0; 100];
            socket.send_to(&[number; 80], (Ipv4Addr::new(10, 9, 0, 2), 7)).expect("it is sent");
            let (len, from) = echo.recv_from(&mut buffer).expect("it arrives");
            echo.send_to(&buffer[..len], from).expect("it is sent");
            assert_eq!(socket.recv(&mut buffer).expect("it arrives"), 80);
        }
    });
    eventually("the tap has all", || {
        let after = interface(&row, "a0");
        received(&server) == after.0 - before.0 + after.1 - before.1
    });
    let dumped = dump.map(|dump| {
        eventually("tcpdump has all", || dump.frames().values().sum::<usize>() as u64 == received(&server));
        dump.end()
    });
    let counts = server.monitor.counts().remove(0);
    let outcome = server.stop().remove(0);
    let after = interface(&row, "a0");
    // Requests and replies, and the question for the address.
    assert!(outcome.received >= 102, "{outcome:?}");
    assert_eq!(
        outcome.received,
        after.0 - before.0 + after.1 - before.1,
        "a packet that the tap sent would be one more"
    );
    assert_eq!((outcome.sent, counts.offered), (None, outcome.received));
    let seen = seen.lock().expect("nobody panics");
    assert!(after.1 - before.1 <= 20 + 50 + 2, "the machine itself answers, and nobody else");
    if let Some(dumped) = dumped {
        assert!(*seen == dumped, "the same packets, byte for byte");
    }
}

#[test]
fn a_tap_of_arriving_packets_does_not_see_what_is_sent() {
    let Some(row) = Row::new("arriving", 1500) else { return };
    for (cores, label) in [(1, "one socket"), (2, "a group of sockets")] {
        let options = Options { traffic: Traffic::Arriving, ..tap("a0") };
        let server = row.serve(options, cores, |_, _, bytes| {
            assert_eq!(bytes[35], 0, "it comes from the left");
            Fate::Drop(0)
        });
        let [left, _] = row.wires();
        let here = row.middle.enter(|| testkit::netns::Wire::open_to_send("a0")).expect("the end is there");
        for number in 0..100 {
            here.send(&numbered(1, number, 100)).expect("the wire takes it");
            left.send(&numbered(0, number, 100)).expect("the wire takes it");
        }
        eventually(label, || received(&server) == 100);
        assert_eq!(server.monitor.counts()[0].offered, 100);
        assert_eq!(server.stop().iter().map(|outcome| outcome.received).sum::<u64>(), 100);
    }
}

#[test]
fn packets_of_two_taps_come_in_the_order_of_their_times() {
    let Some(row) = Row::new("order", 1500) else { return };
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&order);
    let options = Options { block_timeout_ms: 20, ..Options::observe(["a0", "a1"]) };
    let server = row.serve(options, 1, move |_, packet, bytes| {
        let number = u64::from_be_bytes(*bytes[42..].first_chunk().expect("it is long enough"));
        noted.lock().expect("nobody panics").push((number, packet.interface));
        Fate::Drop(0)
    });
    let wires = row.wires();
    // A request at one interface and its reply at the other, which the tap of the second may hand over first.
    let end = Instant::now() + Duration::from_millis(300);
    let mut total = 0;
    while Instant::now() < end {
        let side = (total % 2) as usize;
        wires[side].send(&numbered(side, total, 100)).expect("the wire takes it");
        total += 1;
        if total.is_multiple_of(8) {
            std::thread::park_timeout(Duration::from_micros(500));
        }
    }
    eventually("all are received", || received(&server) == total);
    server.stop();
    let order = order.lock().expect("nobody panics");
    let wrong = order.iter().zip(0..).filter(|((number, _), place)| number != place).count();
    assert_eq!(wrong, 0, "of {total}");
}

#[test]
fn a_packet_whose_checksum_the_card_would_fill_in_is_counted() {
    let Some(row) = Row::new("sums", 1500) else { return };
    row.left.run("ethtool", &["-K", "h0", "tx", "on"]).expect("a veth has offloads");
    row.middle.ip(&["addr", "add", "10.9.0.2/24", "dev", "a0"]).expect("the end is there");
    row.left.ip(&["addr", "add", "10.9.0.1/24", "dev", "h0"]).expect("the end is there");
    let server = row.serve(Options { traffic: Traffic::Arriving, ..tap("a0") }, 1, |_, _, _| Fate::Drop(0));
    row.left.enter(|| {
        let socket = UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 1), 0)).expect("the address is there");
        for _ in 0..10 {
            socket.send_to(&[1; 80], (Ipv4Addr::new(10, 9, 0, 2), 7)).expect("it is sent");
        }
    });
    eventually("they are counted", || server.monitor.counts()[0].lack_checksum == 10);
    server.stop();
}

#[test]
fn times_are_the_kernels_and_promiscuous_mode_ends_with_the_port() {
    let Some(row) = Row::new("times", 1500) else { return };
    let promiscuity = || {
        let told = row.middle.ip(&["-d", "link", "show", "dev", "a0"]).expect("the end is there");
        let number = told.split_whitespace().skip_while(|word| *word != "promiscuity").nth(1).map(str::to_owned);
        number.expect("every interface has one")
    };
    let real = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_nanos() as u64;
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&times);
    let server = row.serve(tap("a0"), 2, move |_, packet, _| {
        noted.lock().expect("nobody panics").push(packet.time.0);
        Fate::Drop(0)
    });
    assert_eq!(promiscuity(), "1", "however many cores there are");
    let [left, _] = row.wires();
    let before = real();
    left.send(&numbered(0, 1, 100)).expect("the wire takes it");
    let after = real();
    eventually("it is received", || received(&server) == 1);
    server.stop();
    assert_eq!(promiscuity(), "0");
    let time = times.lock().expect("nobody panics")[0];
    // A veth delivers within the call that sends, or right after it.
    assert!((before..after + LONG.as_nanos() as u64).contains(&time), "{before} {time} {after}");
}

#[test]
fn fragments_come_as_they_are_or_gathered() {
    let Some(row) = Row::new("fragments", 1500) else { return };
    row.left.ip(&["addr", "add", "10.9.0.1/24", "dev", "h0"]).expect("the end is there");
    let neighbour = ["neigh", "add", "10.9.0.2", "lladdr", "02:00:00:00:09:02", "dev", "h0"];
    row.left.ip(&neighbour).expect("the end is there");
    for (defragment, expected) in [(false, &[1514, 1514, 1082][..]), (true, &[4042])] {
        let lengths = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&lengths);
        let options = Options { traffic: Traffic::Arriving, defragment, ..tap("a0") };
        let server = row.serve(options, 2, move |_, _, bytes| {
            noted.lock().expect("nobody panics").push(bytes.len());
            Fate::Drop(0)
        });
        row.left.enter(|| {
            let socket = UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 1), 0)).expect("the address is there");
            socket.send_to(&[7; 4000], (Ipv4Addr::new(10, 9, 0, 2), 7)).expect("it is sent");
        });
        eventually("it is received", || received(&server) == expected.len() as u64);
        let outcomes = server.stop();
        assert!(outcomes.iter().any(|outcome| outcome.received == 0), "all come to one core: {outcomes:?}");
        assert_eq!(*lengths.lock().expect("nobody panics"), expected);
    }
}
