//! Figure 2 of the paper, packet by packet as section 3.2 tells it. The rows and addresses that are expected here are also what an
//! independent interpreter of the language gave for the same packets.
#![allow(missing_docs)]

use std::net::Ipv4Addr;

use millrace_efsm::{Layers, Machine, MemoryStore, Outcome, Packet, parse, print};
use packet::Nanos;

const FIGURE_2: &str = include_str!("../../../testdata/efsm/figure-2.efsm");

const INTERNET: u16 = 0;
const DMZ: u16 = 1;
const LAN: u16 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

fn packet(port: u16, proto: u8, src: (&str, u16), dst: (&str, u16)) -> Packet {
    let address = |text: &str| text.parse::<Ipv4Addr>().expect("an address").to_ipv6_mapped().to_bits();
    Packet {
        port,
        proto,
        src: address(src.0),
        dst: address(dst.0),
        src_port: src.1,
        dst_port: dst.1,
        layers: if proto == ICMP { Layers::IP.with(Layers::ICMP) } else { Layers::IP.with(Layers::PORTS) },
        ..Packet::default()
    }
}

/// A program with its contexts, and a way to see what it does.
struct Router {
    machine: Machine,
    store: MemoryStore,
    now: Nanos,
}

impl Router {
    fn new(text: &str) -> Self {
        let machine = Machine::compile(text).unwrap_or_else(|errors| panic!("{}", errors[0]));
        Self { store: MemoryStore::new(&machine), machine, now: Nanos(0) }
    }

    /// What becomes of a packet, in words: its way through the rows, where it leaves, and its end points then.
    fn send(&mut self, port: u16, proto: u8, src: (&str, u16), dst: (&str, u16)) -> String {
        let mut packet = packet(port, proto, src, dst);
        self.store.path.clear();
        let Ok(outcome) = self.machine.run(&mut packet, self.now, &mut self.store);
        let name = |row: usize| {
            let stage = self.machine.stages.iter().rev().find(|stage| stage.first_row <= row).expect("a stage has it");
            format!("{}#{}", stage.name, row - stage.first_row)
        };
        let path: Vec<_> = self.store.path.iter().map(|row| name(*row)).collect();
        let end = |address: u128, port| format!("{}:{port}", std::net::Ipv6Addr::from_bits(address).to_canonical());
        let (src, dst) = (end(packet.src, packet.src_port), end(packet.dst, packet.dst_port));
        match outcome {
            Outcome::Out(port) => {
                format!("{} to {}: {src} > {dst}", path.join(" "), self.machine.ports[usize::from(port)].0)
            }
            Outcome::Copied(..) | Outcome::Made(..) => unreachable!("no row does that"),
            Outcome::Dropped => format!("{} dropped", path.join(" ")),
            Outcome::Missed(_) => format!("{} missed", path.join(" ")),
            Outcome::Keyless(_) => format!("{} keyless", path.join(" ")),
        }
    }
}

#[test]
fn the_dmz_only_answers() {
    let mut router = Router::new(FIGURE_2);
    let (dmz, lan) = (("8.0.0.5", 678), ("10.0.0.2", 123));
    assert_eq!(router.send(DMZ, TCP, dmz, lan), "track#0 forward#0 dropped");
    assert_eq!(router.send(LAN, TCP, lan, dmz), "track#3 forward#2 to dmz: 10.0.0.2:123 > 8.0.0.5:678");
    assert_eq!(router.send(DMZ, TCP, dmz, lan), "track#6 forward#1 to lan: 8.0.0.5:678 > 10.0.0.2:123");
    assert_eq!(router.send(LAN, TCP, lan, dmz), "track#6 forward#2 to dmz: 10.0.0.2:123 > 8.0.0.5:678");
}

/// The first server first: `est = g0` reads the value before `g0 = g0 + 1`.
#[test]
fn servers_take_turns_and_clients_stay() {
    let mut router = Router::new(FIGURE_2);
    let service = ("1.0.0.1", 80);
    for (at, host) in ["2.0.0.7", "2.0.0.8", "2.0.0.9", "2.0.0.10"].into_iter().enumerate() {
        let expected = format!("track#7 translate#{} forward#3 to lan: {host}:678 > 10.0.0.{}:80", at % 2, 2 + at % 2);
        assert_eq!(router.send(INTERNET, TCP, (host, 678), service), expected);
    }
    let again = router.send(INTERNET, TCP, ("2.0.0.7", 678), service);
    assert_eq!(again, "track#8 translate#2 forward#3 to lan: 2.0.0.7:678 > 10.0.0.2:80");
    let answer = router.send(LAN, TCP, ("10.0.0.2", 80), ("2.0.0.7", 678));
    assert_eq!(answer, "track#9 forward#4 to internet: 1.0.0.1:80 > 2.0.0.7:678");
    let answer = router.send(LAN, TCP, ("10.0.0.3", 80), ("2.0.0.7", 678));
    assert_eq!(answer, "track#10 forward#5 to internet: 1.0.0.1:80 > 2.0.0.7:678");
}

#[test]
fn hosts_inside_are_translated() {
    let mut router = Router::new(FIGURE_2);
    let server = ("2.0.0.1", 678);
    assert_eq!(
        router.send(LAN, TCP, ("10.0.0.4", 123), server),
        "track#11 free#0 restore#0 translate#3 forward#6 to internet: 1.0.0.1:2001 > 2.0.0.1:678"
    );
    assert_eq!(
        router.send(INTERNET, TCP, server, ("1.0.0.1", 2001)),
        "track#13 restore#1 forward#3 to lan: 2.0.0.1:678 > 10.0.0.4:123"
    );
    assert_eq!(
        router.send(LAN, UDP, ("10.0.0.5", 123), ("2.0.0.1", 53)),
        "track#11 free#0 restore#0 translate#3 forward#6 to internet: 1.0.0.1:2002 > 2.0.0.1:53"
    );
    // A ping has no ports here, so it lacks a field of the first key.
    assert_eq!(router.send(LAN, ICMP, ("10.0.0.5", 0), ("2.0.0.1", 0)), " keyless");
}

/// The defect of the figure: the host inside is remembered by the server's end point alone.
#[test]
fn two_hosts_at_one_server_are_confused() {
    let mut router = Router::new(FIGURE_2);
    let server = ("2.0.0.1", 678);
    router.send(LAN, TCP, ("10.0.0.4", 123), server);
    router.send(LAN, TCP, ("10.0.0.5", 123), server);
    // Both answers, and one to a port that was never given out, reach the second host.
    for port in [2001, 2002, 9999] {
        let answer = router.send(INTERNET, TCP, server, ("1.0.0.1", port));
        assert_eq!(answer, "track#13 restore#1 forward#3 to lan: 2.0.0.1:678 > 10.0.0.5:123");
    }
}

#[test]
fn silence_ends_what_was_learnt() {
    let mut router = Router::new(FIGURE_2);
    let (dmz, lan) = (("8.0.0.5", 678), ("10.0.0.2", 123));
    router.send(DMZ, TCP, dmz, lan);
    router.send(LAN, TCP, lan, dmz);
    router.now = Nanos::from_secs(19);
    assert_eq!(router.send(DMZ, TCP, dmz, lan), "track#6 forward#1 to lan: 8.0.0.5:678 > 10.0.0.2:123");
    router.now = Nanos::from_secs(38);
    assert_eq!(router.send(DMZ, TCP, dmz, lan), "track#6 forward#1 to lan: 8.0.0.5:678 > 10.0.0.2:123");
    router.now = Nanos::from_secs(58);
    assert_eq!(router.send(DMZ, TCP, dmz, lan), "track#0 forward#0 dropped");
}

#[test]
fn the_file_is_in_normal_form() {
    let lines = parse(FIGURE_2).expect("the file parses");
    let printed = print(&lines);
    assert_eq!(Machine::compile(&printed).expect("still a program").rows, 29);
    assert_eq!(print(&parse(&printed).expect("printed text parses")), printed);
    assert!(printed == FIGURE_2, "run `millrace efsm fmt` on it:\n{printed}");
}

/// The mended NAT keeps the two hosts apart, and lets nobody in by a port that was not given out, nor another server.
#[test]
fn the_mended_program_keeps_hosts_apart() {
    let mut router = Router::new(include_str!("../../../testdata/efsm/figure-2-mended.efsm"));
    let server = ("2.0.0.1", 678);
    for (host, port) in [("10.0.0.4", 2001), ("10.0.0.5", 2002)] {
        let sent = router.send(LAN, TCP, (host, 123), server);
        assert!(sent.ends_with(&format!("to internet: 1.0.0.1:{port} > 2.0.0.1:678")), "{sent}");
    }
    for (host, port) in [("10.0.0.4", 2001), ("10.0.0.5", 2002)] {
        let answer = router.send(INTERNET, TCP, server, ("1.0.0.1", port));
        assert!(answer.ends_with(&format!("to lan: 2.0.0.1:678 > {host}:123")), "{answer}");
    }
    assert_eq!(router.send(INTERNET, TCP, server, ("1.0.0.1", 9999)), "track#13 missed");
    assert_eq!(router.send(INTERNET, TCP, ("2.0.0.9", 678), ("1.0.0.1", 2001)), "track#13 missed");
    // Balancer and firewall are as before.
    let balanced = router.send(INTERNET, TCP, ("2.0.0.7", 678), ("1.0.0.1", 80));
    assert!(balanced.ends_with("to lan: 2.0.0.7:678 > 10.0.0.2:80"), "{balanced}");
    assert!(router.send(DMZ, TCP, ("8.0.0.5", 678), ("10.0.0.2", 123)).ends_with("dropped"));
}
