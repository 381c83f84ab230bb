//! What the kernel takes to forward a packet by rules of iptables, in nanoseconds: `cargo bench -p millrace-testkit --bench kernel_rules`, as
//! root. Takes a minute at most. `docs/results/rules.md` has a run of it beside Millrace's figures.
//!
//! ```text
//! sender [w0] --- [eth0] router [eth1] --- [w1] receiver
//! ```
//!
//! The wires are pairs of veth, so the kernel forwards a packet on the sender's CPU before the sender's system call returns. Each row has a
//! router in a namespace of its own; rows are measured in turn, for several rounds. A figure counts only if the far end's counter says that
//! all packets came out, and the CPU's counter that they were forwarded on it.
#![allow(clippy::print_stdout, clippy::print_stderr, missing_docs)]

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use millrace_testkit::netns::{Interface, KernelRouter, flush_conntrack, missing};
use packet::{Mac, TcpFlags};
use synth::Build;

const CONNECTIONS: usize = 10_000;
/// Packets of a round, and new connections of a round.
const PACKETS: usize = 20_000;
const ROUNDS: usize = 7;
/// No round begins later than this.
const LATEST: Duration = Duration::from_secs(45);
/// Bytes of a frame, without its checksum of four.
const FRAME: usize = 60;

const SETTINGS: [(&str, &str); 3] =
    [("ipv4/ip_forward", "1"), ("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/default/rp_filter", "0")];

/// An address that no interface has: frames to it are dropped at once.
const NOBODY: Mac = Mac([2, 0, 0, 0, 9, 9]);

fn main() {
    if let Some(missing) = missing(&["ip", "ethtool"]) {
        println!("not measured; missing: {missing}");
        return;
    }
    let mut rows = match rows() {
        Ok(rows) => rows,
        Err(error) => return println!("not measured: {error}"),
    };
    // Other programs then take less of the CPU. It can't be had everywhere, and is no condition.
    let _ = rustix::process::setpriority_process(None, -20);
    let traffic = Traffic::new();
    let began = Instant::now();
    let mut rounds = 0;
    while rounds < ROUNDS && began.elapsed() < LATEST {
        for row in &mut rows {
            let measured = row.measure(&traffic);
            row.rounds.push(measured.unwrap_or_else(|error| Err(error.to_string())));
        }
        rounds += 1;
    }
    print_table(&rows, rounds);
}

/// What is sent, and what must come of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Packets that the router drops at once.
    Sender,
    /// Packets of connections that nobody tracks.
    Untracked,
    /// Packets of established connections.
    Established,
    /// Packets of established connections whose source is translated.
    Translated,
    /// The first packets of connections.
    New,
}

/// A row of the table: a router with rules.
struct Row {
    name: String,
    kind: Kind,
    router: KernelRouter,
    /// Nanoseconds a packet, or why there is no figure.
    rounds: Vec<Result<f64, String>>,
}

/// The rows. The thread is on one CPU from then on.
fn rows() -> io::Result<Vec<Row>> {
    let mut rows = vec![
        Row::new("the sender alone", Kind::Sender, None)?,
        Row::new("no rules, no tracking", Kind::Untracked, None)?,
    ];
    for tool in ["iptables-legacy", "iptables-nft"] {
        let restore = format!("{tool}-restore");
        if missing(&[&restore]).is_some() {
            println!("{restore} is missing");
            continue;
        }
        let mut add = |name: &str, kind: Kind, rules: &str| -> io::Result<()> {
            rows.push(Row::new(&format!("{tool}: {name}"), kind, Some((&restore, rules)))?);
            Ok(())
        };
        add("10 rules", Kind::Established, &chain(10))?;
        add("100 rules", Kind::Established, &chain(100))?;
        add("1,000 rules", Kind::Established, &chain(1_000))?;
        add("SNAT", Kind::Translated, SNAT)?;
        add("10 rules, each packet a new connection", Kind::New, &chain(10))?;
        add("SNAT, each packet a new connection", Kind::New, SNAT)?;
    }
    Ok(rows)
}

const SNAT: &str = "*nat\n-A POSTROUTING -o eth1 -j SNAT --to-source 192.0.2.1\nCOMMIT\n";

/// A chain of so many rules, of which the first asks the tracker and only the last matches.
fn chain(rules: usize) -> String {
    let mut text = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate INVALID -j DROP\n".to_owned();
    for nth in 0..rules - 2 {
        let (net, port) = (format!("172.{}.{}.0/24", 16 + nth / 256, nth % 256), 1_000 + nth);
        text += &format!("-A FORWARD -s {net} -p tcp -m tcp --dport {port} -j DROP\n");
    }
    text + "-A FORWARD -p tcp -j ACCEPT\nCOMMIT\n"
}

impl Row {
    /// Makes the router; `rules` are the program that loads them, and their text.
    fn new(name: &str, kind: Kind, rules: Option<(&str, &str)>) -> io::Result<Self> {
        static LABELS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let label = LABELS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let interface = |name: &str, address| Interface { name: name.to_owned(), address, mtu: 1500 };
        let interfaces =
            [interface("eth0", Ipv4Addr::new(192, 168, 1, 1)), interface("eth1", Ipv4Addr::new(192, 0, 2, 1))];
        let mut router = KernelRouter::new(&format!("bench{label}"), &interfaces, &SETTINGS, &ip_lines())?;
        router.only_send()?;
        if let Some((restore, text)) = rules {
            router.namespace().feed(restore, &[], text)?;
        }
        Ok(Self { name: name.to_owned(), kind, router, rounds: Vec::new() })
    }

    /// Measures a round: nanoseconds a packet, or why they don't count.
    fn measure(&self, traffic: &Traffic) -> io::Result<Result<f64, String>> {
        let (router, sender) = (&self.router, self.kind == Kind::Sender);
        let frames: Vec<&[u8]> = match self.kind {
            Kind::Sender => &traffic.to_nobody,
            Kind::Untracked | Kind::Established | Kind::Translated => &traffic.established,
            Kind::New => &traffic.new,
        }
        .iter()
        .map(Vec::as_slice)
        .cycle()
        .take(PACKETS)
        .collect();
        if matches!(self.kind, Kind::Established | Kind::Translated) {
            traffic.establish(router, self.kind == Kind::Translated)?;
        }
        let arrived = || if sender { router.namespace().received("eth0") } else { router.left(1) };
        let cpu = rustix::thread::sched_getcpu();
        let (arrived_before, handled_before) = (arrived()?, handled(cpu)?);
        let began = Instant::now();
        for frame in frames {
            send(router, 0, frame)?;
        }
        let nanos = began.elapsed().as_nanos() as f64 / PACKETS as f64;
        let (came, handled) = (arrived()? - arrived_before, handled(cpu)? - handled_before);
        router.namespace().enter(flush_conntrack)?;
        // A packet that is forwarded is handled twice: by the router, and by the far end.
        let expected = if sender { PACKETS } else { 2 * PACKETS } as u64;
        Ok(if came != PACKETS as u64 {
            Err(format!("{came} of {PACKETS} packets came out"))
        } else if handled < expected || cpu != rustix::thread::sched_getcpu() {
            Err(format!("the sender's CPU handled packets {handled} times instead of {expected}"))
        } else {
            Ok(nanos)
        })
    }
}

/// Commands of `ip` for addresses, routes and neighbours. The next hops have the address of nobody, so the far ends drop what comes out.
fn ip_lines() -> Vec<String> {
    let nobody = NOBODY.0.map(|byte| format!("{byte:02x}")).join(":");
    let side = |interface: &str, net: &str, behind: &str| {
        [
            format!("addr add {net}.1/24 dev {interface}"),
            format!("neigh replace {net}.2 lladdr {nobody} dev {interface} nud permanent"),
            format!("route add {behind} via {net}.2 dev {interface}"),
        ]
    };
    [side("eth0", "192.168.1", "10.0.0.0/8"), side("eth1", "192.0.2", "198.51.100.0/24")].concat()
}

/// The frames of all rows.
struct Traffic {
    /// For each connection: a SYN, the answer from outside, the same to the translated source, and the acknowledgement.
    handshakes: Vec<[Vec<u8>; 4]>,
    /// A packet with data for each connection.
    established: Vec<Vec<u8>>,
    /// The same, for another host.
    to_nobody: Vec<Vec<u8>>,
    /// A SYN for each new connection.
    new: Vec<Vec<u8>>,
}

impl Traffic {
    fn new() -> Self {
        let inside = |frame: Build| frame.macs(Mac(KernelRouter::far_mac(0)), Mac(KernelRouter::mac(0)));
        let outside = |frame: Build| frame.macs(Mac(KernelRouter::far_mac(1)), Mac(KernelRouter::mac(1)));
        let syn_ack = TcpFlags::SYN.with(TcpFlags::ACK);
        let handshake = |nth: usize| {
            let (client, server) = ends(nth);
            let translated = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), client.port()));
            let answer = |to| outside(Build::tcp(server, to).flags(syn_ack).seq(2_000).ack(1_001)).bytes();
            [
                inside(Build::tcp(client, server).flags(TcpFlags::SYN).seq(1_000)).bytes(),
                answer(client),
                answer(translated),
                inside(Build::tcp(client, server).seq(1_001).ack(2_001)).bytes(),
            ]
        };
        let data = |nth: usize| {
            let (client, server) = ends(nth);
            inside(Build::tcp(client, server).seq(1_001).ack(2_001)).frame_len(FRAME)
        };
        let new = |nth: usize| {
            let (client, server) = ends(CONNECTIONS + nth);
            inside(Build::tcp(client, server).flags(TcpFlags::SYN).seq(1_000)).pad_to(FRAME).bytes()
        };
        Self {
            handshakes: (0..CONNECTIONS).map(handshake).collect(),
            established: (0..CONNECTIONS).map(|nth| data(nth).bytes()).collect(),
            to_nobody: (0..CONNECTIONS)
                .map(|nth| data(nth).macs(Mac(KernelRouter::far_mac(0)), NOBODY).bytes())
                .collect(),
            new: (0..PACKETS).map(new).collect(),
        }
    }

    /// Opens all connections, in both directions.
    fn establish(&self, router: &KernelRouter, is_translated: bool) -> io::Result<()> {
        for [syn, plain, translated, ack] in &self.handshakes {
            send(router, 0, syn)?;
            send(router, 1, if is_translated { translated } else { plain })?;
            send(router, 0, ack)?;
        }
        let table = router.namespace().enter(|| fs::read_to_string("/proc/thread-self/net/nf_conntrack"));
        // Some kernels don't have the list. Then the row has no such check.
        let open = table.map_or(CONNECTIONS, |text| text.lines().filter(|line| line.contains("[ASSURED]")).count());
        if open == CONNECTIONS { Ok(()) } else { Err(io::Error::other(format!("{open} of the connections are open"))) }
    }
}

/// The ends of a connection. Each has another client's port, so a translation keeps it.
fn ends(nth: usize) -> (SocketAddr, SocketAddr) {
    let client = Ipv4Addr::new(10, 1, (nth / 250) as u8, (nth % 250 + 1) as u8);
    let server = Ipv4Addr::new(198, 51, 100, (nth * 7919 % 250 + 1) as u8);
    ((client, 10_000 + nth as u16).into(), (server, 443).into())
}

/// Sends a frame, and waits if the kernel still has too many.
fn send(router: &KernelRouter, to: usize, frame: &[u8]) -> io::Result<()> {
    loop {
        match router.send(to, frame) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            outcome => return outcome,
        }
    }
}

/// How many packets the kernel has taken from the queue of a CPU: the first column of its line.
fn handled(cpu: usize) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/net/softnet_stat")?;
    let line = text.lines().enumerate().find_map(|(nth, line)| {
        let columns: Vec<_> = line.split_whitespace().map(|word| u64::from_str_radix(word, 16)).collect();
        // Newer kernels print the CPU, as those that are off have no line.
        let number = columns.get(12).and_then(|number| number.clone().ok()).unwrap_or(nth as u64);
        (number == cpu as u64).then(|| columns.first()?.clone().ok())?
    });
    line.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn print_table(rows: &[Row], rounds: usize) {
    println!(
        "{PACKETS} packets a row and round, {CONNECTIONS} connections, frames of 64 bytes with checksum; {rounds} rounds\n"
    );
    println!("| ns a packet: median (lowest to highest) | all | without the sender |\n| --- | ---: | ---: |");
    let sender = figures(&rows[0]).map_or(0.0, |figures| figures[1]);
    for row in rows {
        match figures(row) {
            Ok([low, median, high]) => {
                let rest = if row.kind == Kind::Sender { "-".to_owned() } else { format!("{:.0}", median - sender) };
                let failed = row.rounds.iter().filter(|round| round.is_err()).count();
                let note = if failed == 0 { String::new() } else { format!("; {failed} rounds don't count") };
                println!("| {} | {median:.0} ({low:.0} to {high:.0}){note} | {rest} |", row.name);
            }
            Err(why) => println!("| {} | {why} | - |", row.name),
        }
    }
}

/// The lowest, median and highest of the rounds that count; or why none does.
fn figures(row: &Row) -> Result<[f64; 3], String> {
    let mut nanos: Vec<f64> = row.rounds.iter().filter_map(|round| round.as_ref().ok().copied()).collect();
    nanos.sort_by(f64::total_cmp);
    match (nanos.as_slice(), row.rounds.first()) {
        ([], Some(Err(why))) => Err(why.clone()),
        ([], _) => Err("not measured".to_owned()),
        (sorted, _) => Ok([sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]]),
    }
}
