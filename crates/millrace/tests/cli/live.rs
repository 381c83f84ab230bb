//! Functions on live interfaces: real hosts talk through a run in a network namespace of its own.
//!
//! ```text
//! inside [h0] --- [inside0] wall [outside0] --- [h1] outside
//! ```
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStderr, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::netns::{Namespace, Wire, missing};
use testkit::row::{bound, eventually, numbered};

use crate::counters::hold_accounts;
use crate::folder::Folder;

/// How long anything may take. The machine may be busy.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// How long something that must not come is waited for.
const SHORT: Duration = Duration::from_millis(300);

/// Engines that a firewall takes, on one core and on two.
const ENGINES: [&str; 8] = [
    "--engine sequential",
    "--engine rss --cores 2",
    "--engine rss++ --cores 2",
    "--engine shared --cores 2",
    "--engine transactional --cores 2",
    "--engine scr --cores 2",
    "--engine scr --cores 2 --sequencer xdp",
    "--engine pipeline --cores 2",
];

/// Two hosts and what stands between them.
pub(crate) struct Row {
    pub(crate) inside: Namespace,
    pub(crate) wall: Namespace,
    pub(crate) outside: Namespace,
}

impl Row {
    /// `None`, with a line that says why, where there can be no namespaces.
    pub(crate) fn new(label: &str) -> Option<Self> {
        Self::with_mtu(label, 1500)
    }

    /// The same with wires that carry packets of this many bytes.
    fn with_mtu(label: &str, mtu: u32) -> Option<Self> {
        if let Some(missing) = missing(&["ip", "ethtool"]) {
            eprintln!("SKIPPED (needs root / ip / ethtool: no {missing}): runs on live interfaces");
            return None;
        }
        let make = |side: &str| Namespace::new(&format!("{label}-{side}")).expect("root may");
        let row = Self { inside: make("i"), wall: make("w"), outside: make("o") };
        for (near, host, far, address) in
            [("inside0", &row.inside, "h0", "10.9.0.1/24"), ("outside0", &row.outside, "h1", "10.9.0.2/24")]
        {
            row.wall.lay_wire(near, host, far, mtu).expect("the wire is laid");
            host.ip(&["addr", "add", address, "dev", far]).expect("the end is there");
        }
        Some(row)
    }

    /// Gives both hosts an address of IPv6 too: fd09::1 inside and fd09::2 outside.
    pub(crate) fn address_v6(&self) {
        for (host, far, address) in [(&self.inside, "h0", "fd09::1/64"), (&self.outside, "h1", "fd09::2/64")] {
            host.ip(&["addr", "add", address, "dev", far, "nodad"]).expect("the end is there");
        }
    }

    /// Gives the hosts addresses outside of the network that a translator hides: it is 192.0.2.100, and the outside host 192.0.2.2.
    pub(crate) fn address_for_nat(&self) {
        // The inside host answers the question for the translator's address, for it has none that could.
        self.inside.ip(&["addr", "add", "192.0.2.100/24", "dev", "h0"]).expect("the end is there");
        let route = ["route", "replace", "192.0.2.0/24", "dev", "h0", "src", "10.9.0.1"];
        self.inside.ip(&route).expect("the end is there");
        self.outside.ip(&["addr", "add", "192.0.2.2/24", "dev", "h1"]).expect("the end is there");
    }

    /// Raw sockets at both hosts, inside and outside.
    pub(crate) fn wires(&self) -> [Wire; 2] {
        let open = |host: &Namespace, end: &str| host.enter(|| Wire::open(end)).expect("the end is there");
        [open(&self.inside, "h0"), open(&self.outside, "h1")]
    }

    /// Starts a run between the hosts, and waits until it answers.
    pub(crate) fn run<'a>(&self, folder: &'a Folder, line: &str) -> Run<'a> {
        self.run_on(folder, line, &["inside0", "outside0"])
    }

    fn run_on<'a>(&self, folder: &'a Folder, line: &str, interfaces: &[&str]) -> Run<'a> {
        let named: Vec<String> = interfaces.iter().map(|name| format!("--interface {name}")).collect();
        let line = format!("run {line} {} --control=wall.sock --json", named.join(" "));
        let mut command = folder.command(&line);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.wall.enter(|| command.spawn()).expect("the program is there");
        let said = Arc::<Mutex<String>>::default();
        let listening = listen(child.stderr.take().expect("it is piped"), Arc::clone(&said));
        let mut run = Run { folder, child: Some(child), said, listening: Some(listening) };
        let begun = Instant::now();
        while folder.run("ctl --control wall.sock stats").0 != 0 {
            let has_ended = run.child.as_mut().expect("it runs").try_wait().expect("it is ours").is_some();
            assert!(!has_ended, "{line}: {}", run.all_said());
            assert!(begun.elapsed() < LONG, "{line}: it never answers");
        }
        run
    }
}

/// A run between the hosts.
pub(crate) struct Run<'a> {
    folder: &'a Folder,
    child: Option<Child>,
    said: Arc<Mutex<String>>,
    listening: Option<JoinHandle<()>>,
}

/// Gathers the lines that a run writes to standard error.
fn listen(from: ChildStderr, said: Arc<Mutex<String>>) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            *said.lock().expect("nobody panics with it") += &(line + "\n");
        }
    })
}

impl Run<'_> {
    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }

    /// What it has said, to its end.
    fn all_said(&mut self) -> String {
        self.listening.take().expect("it is asked once").join().expect("it doesn't panic");
        self.said()
    }

    pub(crate) fn ask(&self, question: &str) -> Value {
        self.folder.json(&format!("ctl --control wall.sock --json {question}"))
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Ends the run; its summary.
    pub(crate) fn stop(self) -> Value {
        self.stop_and_listen().0
    }

    /// Ends the run; its summary, and what it said meanwhile.
    pub(crate) fn stop_and_listen(self) -> (Value, String) {
        let (code, summary, said) = self.end();
        assert_eq!(code, 0, "{said}");
        (summary, said)
    }

    /// Ends the run, however it ends: its exit code, its summary, and what it said meanwhile.
    pub(crate) fn end(mut self) -> (i32, Value, String) {
        self.folder.stdout("ctl --control wall.sock stop");
        let output = self.child.take().expect("it runs").wait_with_output().expect("it is ours");
        let said = self.all_said();
        let summary = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        (output.status.code().expect("it ends by itself"), summary, said)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A test that fails leaves no run behind.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Carries bytes from a client to a server and back. Returns an error if the client can't connect in time.
pub(crate) fn carry(from: &Namespace, to: &Namespace, server: &str, within: Duration) -> std::io::Result<()> {
    carry_by(from, to, (server, server), within)
}

/// The same with a server that clients know by another address than its own.
fn carry_by(
    from: &Namespace,
    to: &Namespace,
    (server, known_as): (&str, &str),
    within: Duration,
) -> std::io::Result<()> {
    let sent: Vec<u8> = (0..600_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 11) as u8).collect();
    let listener = to.enter(|| bound(|| TcpListener::bind(server)));
    let known_as: SocketAddr = known_as.parse().expect("it is an address");
    let mut client = from.enter(|| TcpStream::connect_timeout(&known_as, within))?;
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client has connected");
        stream.set_read_timeout(Some(LONG)).expect("it is not 0");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("the client sends all");
        stream.write_all(&got).expect("the client reads");
    });
    client.set_read_timeout(Some(LONG)).expect("it is not 0");
    client.write_all(&sent).and_then(|()| client.shutdown(Shutdown::Write)).expect("the server reads");
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("the server answers");
    echo.join().expect("the server doesn't panic");
    assert!(got == sent, "the content is the same at both ends");
    Ok(())
}

pub(crate) fn sum(stats: &Value, of: &str) -> u64 {
    stats["cores"].as_array().expect("a list").iter().map(|core| core[of].as_u64().expect("a number")).sum()
}

/// Hosts inside open connections, hosts outside don't, under every engine; a new configuration turns that round, and connections go on.
#[test]
fn a_firewall_stands_between_real_hosts() {
    let Some(row) = Row::new("fw") else { return };
    let folder = Folder::empty();
    fs::write(folder.path("inside.toml"), "inside = [\"10.9.0.1/32\"]\n").unwrap();
    fs::write(folder.path("outside.toml"), "inside = [\"10.9.0.2/32\"]\n").unwrap();
    for engine in ENGINES {
        let run = row.run(&folder, &format!("firewall --config inside.toml {engine}"));
        carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).unwrap_or_else(|error| panic!("{engine}: {error}"));
        let refused = carry(&row.outside, &row.inside, "10.9.0.1:5001", SHORT).expect_err("it is closed");
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{engine}");
        let stats = run.ask("stats");
        assert!(sum(&stats, "dropped") > 0 && sum(&stats, "forwarded") > 100, "{engine}: {stats}");
        let flows = run.ask("flows --where tcp");
        assert!(flows["all"].as_u64() >= Some(1), "{engine}: {flows}");

        let told = folder.stdout("ctl --control wall.sock reload outside.toml");
        assert!(told.contains("get the new configuration"), "{engine}: {told}");
        let before = told.split(' ').find_map(|word| word.parse::<u64>().ok()).expect("it tells the number");
        let stats = run.ask("stats");
        let received = sum(&stats, "received");
        assert!(before <= received, "{engine}: only packets have numbers: {before} of {received}: {stats}");
        carry(&row.outside, &row.inside, "10.9.0.1:5002", LONG).unwrap_or_else(|error| panic!("{engine}: {error}"));
        let refused = carry(&row.inside, &row.outside, "10.9.0.2:5003", SHORT).expect_err("it is closed now");
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{engine}");

        if engine == ENGINES[0] {
            // A tap is blind where an XDP program takes the packets, and says so.
            let mut tap = folder.command("run conntrack --interface inside0 --observe --seconds 1 --control=none");
            let tap = row.wall.enter(|| tap.output()).expect("the program is there");
            let said = String::from_utf8_lossy(&tap.stderr).into_owned();
            assert!(tap.status.success() && said.contains("of another process has its packets first"), "{said}");
        }

        let summary = run.stop();
        assert!(summary["latency_ns"]["p50"].as_u64() > Some(0), "{engine}: {summary}");
        hold_accounts(&summary, engine);
        assert!(summary["packets"]["dropped"].as_u64() > Some(sum(&stats, "dropped")), "{engine}");
        // Nothing is left behind: another run can take the interfaces at once, and the wall is closed without one.
        let shown = row.wall.ip(&["link", "show", "dev", "inside0"]).expect("it is there");
        assert!(!shown.contains("xdp"), "{engine}: {shown}");
    }
}

/// Sends numbered datagrams from inside to outside while something goes on: each comes through once, in order, or under a sequencer that
/// leaves sending to the cores in the order of rounds. Returns how many.
pub(crate) fn datagrams_while(row: &Row, what: &str, meanwhile: impl FnOnce() + Send) -> u64 {
    let to = row.outside.enter(|| bound(|| UdpSocket::bind("10.9.0.2:6001")));
    let from = row.inside.enter(|| bound(|| UdpSocket::bind("10.9.0.1:6000")));
    to.set_read_timeout(Some(LONG)).expect("it is not 0");
    let mut number = 0_u64;
    thread::scope(|scope| {
        let going_on = scope.spawn(meanwhile);
        // In rounds of a few packets, so that no ring is ever full by the load alone.
        while !going_on.is_finished() || number == 0 {
            for ahead in 0..16 {
                from.send_to(&(number + ahead).to_le_bytes(), "10.9.0.2:6001").expect("it can be sent");
            }
            let next = |_| {
                let mut bytes = [0; 8];
                to.recv(&mut bytes).map(|_| u64::from_le_bytes(bytes))
            };
            let mut came: Vec<u64> = (0..16).map_while(|ahead| next(ahead).ok()).collect();
            if what.contains("--sequencer xdp") {
                came.sort_unstable();
            }
            assert!(
                came.iter().copied().eq(number..number + 16),
                "{what}: each once, in order from {number} on: {came:?}"
            );
            number += 16;
        }
        going_on.join().expect("it goes well");
    });
    number
}

/// A run that is stopped in the midst of a load has an account of every packet that its programs handed on.
#[test]
fn a_stop_under_load_loses_no_account() {
    let Some(row) = Row::new("su") else { return };
    let folder = Folder::empty();
    for engine in ["--engine sequential", "--engine rss --cores 2", "--engine scr --cores 2 --sequencer xdp"] {
        let run = row.run(&folder, &format!("conntrack {engine}"));
        let [wire, _other] = row.wires();
        let stop = AtomicBool::new(false);
        let summary = thread::scope(|scope| {
            let stop = &stop;
            scope.spawn(move || {
                let end = Instant::now() + LONG;
                // ORDERING: Relaxed. A late look does no harm.
                for number in (0..).take_while(|_| !stop.load(Ordering::Relaxed) && Instant::now() < end) {
                    // What the wire doesn't take is not sent.
                    let _ = wire.send(&numbered(0, number, 100));
                }
            });
            eventually("it is at work", || sum(&run.ask("stats"), "received") > 5000);
            let summary = run.stop();
            // ORDERING: Relaxed. As above.
            stop.store(true, Ordering::Relaxed);
            summary
        });
        hold_accounts(&summary, engine);
    }
}

/// Rules that read payload are refused behind a sequencer, also while the run goes on: what they look for may not be in the history.
#[test]
fn rules_that_read_payload_do_not_come_in_by_a_reload() {
    let Some(row) = Row::new("rp") else { return };
    let folder = Folder::empty();
    let rules = |more: &str| format!("*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p udp {more} -j DROP\nCOMMIT\n");
    fs::write(folder.path("ports.v4"), rules("--dport 99")).unwrap();
    fs::write(folder.path("bytes.v4"), rules("-m string --string evil --algo bm")).unwrap();
    let run = row.run(&folder, "rules --rules ports.v4 --set checksums=false --engine scr --cores 2 --sequencer xdp");
    let (code, error) = folder.fails("ctl --control wall.sock reload bytes.v4");
    assert!(code == 2 && error.contains("the sequencer's history has only 224 bytes of each"), "{error}");
    assert!(folder.stdout("ctl --control wall.sock reload ports.v4").contains("get the new configuration"));
    run.stop();
}

/// A hundred configurations while datagrams flow: each comes through once, in order.
#[test]
fn a_reload_loses_no_packet() {
    let Some(row) = Row::new("rl") else { return };
    let folder = Folder::empty();
    fs::write(folder.path("fast.toml"), "rate = \"9Gbit\"\n").unwrap();
    fs::write(folder.path("faster.toml"), "rate = \"10Gbit\"\n").unwrap();
    let guarded = "[firewall]\ninside = [\"10.9.0.1/32\"]\n";
    fs::write(folder.path("chain-fast.toml"), format!("{guarded}[policer]\nrate = \"9Gbit\"\n")).unwrap();
    fs::write(folder.path("chain-faster.toml"), format!("{guarded}[policer]\nrate = \"10Gbit\"\n")).unwrap();
    let runs = [
        ("policer --config ", "--engine sequential"),
        ("policer --config ", "--engine rss --cores 2"),
        ("policer --config ", "--engine scr --cores 2"),
        ("policer --config ", "--engine scr --cores 2 --sequencer xdp"),
        ("--chain firewall,policer --config chain-", "--engine scr --cores 2"),
    ];
    for (line, engine) in runs {
        let run = row.run(&folder, &format!("{line}fast.toml {engine}"));
        let prefix = line.rsplit(' ').next().unwrap_or_default();
        datagrams_while(&row, engine, || {
            for number in 0..100 {
                let file = format!("{prefix}{}", ["faster.toml", "fast.toml"][number % 2]);
                folder.stdout(&format!("ctl --control wall.sock reload {file}"));
            }
        });
        let summary = run.stop();
        assert_eq!(summary["packets"]["dropped"], 0, "{engine}: {summary}");
        assert_eq!(summary["live"]["frames_add_up"], true, "{engine}");
    }
}

/// A tap sees what hosts say to each other through the kernel, and changes nothing; it drops for itself alone.
#[test]
fn a_tap_changes_nothing() {
    let Some(row) = Row::new("tap") else { return };
    let folder = Folder::empty();
    // The kernel joins the two ends.
    for arguments in [
        &["link", "add", "joint", "type", "bridge"][..],
        &["link", "set", "inside0", "master", "joint"],
        &["link", "set", "outside0", "master", "joint"],
        &["link", "set", "joint", "up"],
    ] {
        if let Err(error) = row.wall.ip(arguments) {
            eprintln!("SKIPPED (this kernel makes no bridges: {error}): a tap between hosts");
            return;
        }
    }
    for engine in ["--engine sequential", "--engine rss --cores 2", "--engine rss --cores 2 --card-steers"] {
        let line = format!("firewall --set inside=[\"10.1.2.3/32\"] --observe {engine}");
        let run = row.run_on(&folder, &line, &["inside0"]);
        carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).unwrap_or_else(|error| panic!("{engine}: {error}"));
        // It is all there a moment later.
        let begun = Instant::now();
        while sum(&run.ask("stats"), "received") < 100 {
            assert!(begun.elapsed() < LONG, "{engine}");
        }
        let summary = run.stop();
        let number = |name: &str| summary["packets"][name].as_u64().expect("a number");
        assert!(number("dropped") > 100, "{engine}: {summary}");
        assert_eq!(number("received"), number("forwarded") + number("dropped"), "{engine}");
        assert_eq!((&summary["live"]["by"], &summary["sent"]), (&Value::from("packet"), &Value::Null), "{engine}");
    }
}

/// The same wall by AF_PACKET.
#[test]
fn a_firewall_stands_without_xdp() {
    let Some(row) = Row::new("np") else { return };
    let folder = Folder::empty();
    for engine in ["--engine sequential", "--engine scr --cores 2"] {
        let run = row.run(&folder, &format!("firewall --set inside=[\"10.9.0.1/32\"] --xdp off {engine}"));
        carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).unwrap_or_else(|error| panic!("{engine}: {error}"));
        let refused = carry(&row.outside, &row.inside, "10.9.0.1:5001", SHORT).expect_err("it is closed");
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{engine}");
        let summary = run.stop();
        let number = |name: &str| summary["packets"][name].as_u64().expect("a number");
        assert!(number("dropped") > 0 && number("forwarded") > 100, "{engine}: {summary}");
        assert_eq!(number("received"), number("forwarded") + number("dropped"), "{engine}");
    }
}

#[test]
fn what_is_not_possible_is_said_in_a_sentence() {
    let folder = Folder::new();
    let (code, error) = folder.fails("run conntrack --interface nosuch0");
    assert!(code == 2 && error.contains("nosuch0"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --out out.pcap");
    assert!(code == 2 && error.contains("--out is for captures"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --in demo.pcap.zst");
    assert!(code == 2 && error.contains("cannot be used with"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --management tcp");
    assert!(code == 2 && error.contains("tcp:PORT"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --engine rss --cores 2 --sequencer xdp");
    assert!(code == 2 && error.contains("rss has no sequencer; take --engine scr"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --engine rss --cores 2 --sequencer engine");
    assert!(code == 2 && error.contains("rss has no sequencer"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --cores 2 --sequencer xdp --defragment linux");
    assert!(code == 2 && error.contains("--sequencer engine, or leave --defragment out"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --engine scr --cores 2 --loss-recovery on");
    assert!(code == 2 && error.contains("--loss-recovery are for captures"), "{error}");
    let (code, error) = folder.fails("run asset-monitor --interface lo --engine scr --cores 2 --sequencer xdp");
    assert!(code == 2 && error.contains("224 bytes of each; let the engine sequence"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --xdp off --engine scr --cores 2 --sequencer xdp");
    assert!(code == 2 && error.contains("--sequencer xdp is for XDP"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --cores 1 --sequencer xdp");
    assert!(code == 2 && error.contains("on one core"), "{error}");
    let (code, error) = folder.fails("run conntrack --seconds 1 --in demo.pcap.zst");
    assert!(code == 2 && error.contains("--interface"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --observe --xdp native");
    assert!(code == 2 && error.contains("cannot be used with"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --observe --on-panic open");
    assert!(code == 2 && error.contains("sends nothing"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --ipfix x --snapshot x");
    assert!(code == 2 && error.contains("x is also the file of --snapshot"), "{error}");
    let (code, error) = folder.fails("run conntrack --interface lo --dropped x.pcapng --snapshot ./x.pcapng");
    assert!(code == 2 && error.contains("is also the file of --snapshot"), "{error}");
    fs::write(folder.path("notes"), "to keep").unwrap();
    let (code, error) = folder.fails("run conntrack --interface lo --snapshot notes");
    assert!(code == 3 && error.contains("this file is no snapshot"), "{error}");
    assert_eq!(folder.bytes("notes"), b"to keep");
    let (code, error) = folder.fails("run conntrack --interface lo --restore none");
    assert!(code == 3 && error.contains("--if-exists"), "{error}");
    fs::write(folder.path("flows"), "").unwrap();
    let (code, error) = folder.fails("run conntrack --interface lo --restore flows --ipfix ./flows");
    assert!(code == 2 && error.contains("is also the file of --restore"), "{error}");
    let (code, error) = folder.fails("run conntrack");
    assert!(code == 2 && error.contains("--interface"), "{error}");
}

/// Sends datagrams and gets them back. All come, since one is sent after the other.
fn echo(from: &Namespace, to: &Namespace, server: &str, len: usize) {
    let socket = to.enter(|| UdpSocket::bind((server, 0))).expect("the address is there");
    let server = socket.local_addr().expect("it is bound");
    let any = if server.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let client = from.enter(|| UdpSocket::bind(any)).expect("it has addresses");
    [&socket, &client].into_iter().for_each(|one| one.set_read_timeout(Some(LONG)).expect("it is not 0"));
    client.connect(server).expect("there is a way");
    let mut room = vec![0; 65_536];
    for number in 0..20_u8 {
        let said: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(7) ^ number).collect();
        client.send(&said).expect("it is sent");
        let (heard, back) = socket.recv_from(&mut room).expect("it comes");
        assert!(room[..heard] == said, "datagram {number} of {len} bytes");
        socket.send_to(&room[..heard], back).expect("it is sent");
        let heard = client.recv(&mut room).expect("it comes back");
        assert!(room[..heard] == said, "the answer to datagram {number} of {len} bytes");
    }
}

/// Pings a host with so many bytes, until three answers have come.
fn ping(from: &Namespace, to: &str, len: u32) {
    let len = len.to_string();
    // Without -w it would wait for the last answer only twice as long as for the others.
    from.run("ping", &["-c", "3", "-i", "0.2", "-w", "20", "-s", &len, to]).expect("it answers three times");
}

/// TCP, UDP and ICMP of both IP versions, whole and in fragments.
#[test]
fn hosts_talk_by_any_protocol() {
    let Some(row) = Row::new("any") else { return };
    let folder = Folder::empty();
    row.address_v6();
    for line in [
        "firewall --set inside=[\"10.9.0.1/32\",\"fd09::1/128\"] --engine rss++ --cores 2",
        "conntrack --engine scr --cores 2",
        "policer --set rate=\"1Gbit\" --set burst=1000000 --engine rss --cores 2",
        "bridge --engine shared --cores 2",
    ] {
        // Functions that are keyed by ports get whole datagrams.
        let run = row.run(&folder, &format!("{line} --defragment linux"));
        for (host, server) in [("10.9.0.2", "10.9.0.2:5001"), ("fd09::2", "[fd09::2]:5001")] {
            carry(&row.inside, &row.outside, server, LONG).unwrap_or_else(|error| panic!("{line}: {error}"));
            echo(&row.inside, &row.outside, host, 1000);
            echo(&row.inside, &row.outside, host, 9000);
            ping(&row.inside, host, 56);
            ping(&row.inside, host, 4000);
        }
        let summary = run.stop();
        let number = |name: &str| summary["packets"][name].as_u64().expect("a number");
        assert_eq!(number("received"), number("forwarded") + number("replied") + number("dropped"), "{line}");
        assert_eq!(summary["live"]["frames_add_up"], true, "{line}: {summary}");
    }
}

/// Frames of 9,000 bytes are carried whole.
#[test]
fn jumbo_frames_are_carried() {
    let Some(row) = Row::with_mtu("jum", 9000) else { return };
    let folder = Folder::empty();
    let run = row.run(&folder, "conntrack --engine rss --cores 2");
    carry(&row.inside, &row.outside, "10.9.0.2:5001", LONG).expect("it forwards");
    echo(&row.inside, &row.outside, "10.9.0.2", 8900);
    ping(&row.inside, "10.9.0.2", 8900);
    let summary = run.stop();
    assert_eq!(summary["live"]["frames_add_up"], true, "{summary}");
}

/// A translator and a load balancer: hosts know each other by addresses that the function makes up.
#[test]
fn addresses_are_translated_between_hosts() {
    let Some(row) = Row::new("nat") else { return };
    let folder = Folder::empty();
    row.address_for_nat();
    for engine in ["--engine sequential", "--engine transactional --cores 2", "--engine scr --cores 2 --sequencer xdp"]
    {
        let line = format!("nat --set inside=[\"10.9.0.0/24\"] --set external=[\"192.0.2.100\"] {engine}");
        let run = row.run(&folder, &line);
        carry(&row.inside, &row.outside, "192.0.2.2:5001", LONG).unwrap_or_else(|error| panic!("{engine}: {error}"));
        echo(&row.inside, &row.outside, "192.0.2.2", 1000);
        ping(&row.inside, "192.0.2.2", 56);
        // Nobody outside saw an inside address.
        let report = run.ask("report");
        assert!(report["rows"].to_string().contains("192.0.2.100"), "{engine}: {report}");
        run.stop();
    }
    row.outside.ip(&["addr", "add", "10.9.0.50/24", "dev", "h1"]).expect("the end is there");
    fs::write(
        folder.path("lb.toml"),
        "services = [{ address = \"10.9.0.50:80\", protocol = \"tcp\", backends = [\"10.9.0.2:5001\"] }]\n",
    )
    .unwrap();
    for engine in ["--engine sequential", "--engine scr --cores 2", "--engine shared --cores 2"] {
        let run = row.run(&folder, &format!("load-balancer --config lb.toml {engine}"));
        carry_by(&row.inside, &row.outside, ("10.9.0.2:5001", "10.9.0.50:80"), LONG)
            .unwrap_or_else(|error| panic!("{engine}: {error}"));
        run.stop();
    }
}
