//! Benchmark of the look-up of a packet in a long chain of `rules`: `cargo bench -p millrace-functions --bench classify`. Prints the
//! minimum of several runs in nanoseconds a look-up, where the last rule matches and where any rule does, with the number of rules that are
//! compared; the time that it takes to build the classifier; and its memory.
#![allow(clippy::print_stdout, missing_docs)]

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use millrace_functions::rules::lookup::{LookUp, Method};
use millrace_functions::rules::view::{NO_INTERFACE, View};
use packet::{Fragment, Nanos, protocol};

const RUNS: usize = 5;
const PACKETS: usize = 4_096;

fn main() {
    let only: Option<u32> = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let lengths = |all: &[u32]| all.iter().copied().filter(|rules| only.is_none_or(|only| only == *rules)).collect();
    let lengths: [Vec<u32>; 3] = [
        lengths(&[10, 20, 30, 50, 100, 300, 1_000, 2_000, 4_000, 10_000, 100_000]),
        lengths(&[1_000, 4_000, 10_000, 100_000]),
        lengths(&[1_000, 4_000, 10_000, 100_000]),
    ];
    for (kind, lengths) in [Kind::Site, Kind::Prefixes, Kind::Ranges].into_iter().zip(lengths) {
        println!("{kind:?}");
        println!("rules   | method      | last rule, ns (compared) | any rule, ns (compared) | build, ms | KiB");
        lengths.into_iter().for_each(|rules| measure(kind, rules));
    }
}

fn measure(kind: Kind, rules: u32) {
    let mut random = Random(rules.into());
    let mut chain = Chain::new(kind, rules, &mut random);
    let began = Instant::now();
    let mut look_up = LookUp::new(&chain.text).expect("the rules are right");
    println!("{rules:>7} | read and compiled in {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
    let last: Vec<View> = (0..PACKETS).map(|_| chain.rules[chain.rules.len() - 1].view(&mut random)).collect();
    chain.rules.pop();
    let any: Vec<View> = (0..PACKETS).map(|_| random.pick(&chain.rules).view(&mut random)).collect();
    for method in [Method::Linear, Method::BitVectors, Method::TupleSpace] {
        if method == Method::BitVectors && rules > 4_096 {
            continue;
        }
        let build = (0..RUNS).map(|_| {
            let began = Instant::now();
            look_up.rebuild(method);
            began.elapsed()
        });
        let build = build.min().unwrap_or_default().as_secs_f64() * 1e3;
        let is_last = |view: &View| look_up.first_match(view).0 == Some(rules - 1);
        assert!(last.iter().take(64).all(is_last), "the last rule matches");
        let [last, any] = [&last, &any].map(|views| {
            let compared: u32 = views.iter().take(256).map(|view| look_up.first_match(view).1).sum();
            let ns = (0..RUNS).map(|_| run(&look_up, views)).fold(f64::INFINITY, f64::min);
            format!("{ns:.1} ({:.1})", f64::from(compared) / 256.0)
        });
        let parts = look_up.parts().map_or(String::new(), |[tables, rest, vectors]| {
            format!(" ({tables} tables, {rest} rules in {vectors} bit vectors)")
        });
        let (name, kib) = (format!("{method:?}"), look_up.bytes() / 1024);
        println!("{rules:>7} | {name:<11} | {last:<24} | {any:<23} | {build:9.3} | {kib}{parts}");
    }
}

/// Nanoseconds a look-up.
fn run(look_up: &LookUp, views: &[View]) -> f64 {
    let (began, mut count) = (Instant::now(), 0_u64);
    loop {
        for views in views.chunks(64) {
            views.iter().for_each(|view| _ = black_box(look_up.first_match(view)));
            count += views.len() as u64;
            let spent = began.elapsed();
            if spent > Duration::from_millis(30) {
                return spent.as_nanos() as f64 / count as f64;
            }
        }
    }
}

/// Kinds of rules.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Hosts and networks from /24 on, most with a service.
    Site,
    /// Rules with networks of all lengths from /8 on.
    Prefixes,
    /// Ranges of source and destination ports alone.
    Ranges,
}

/// A chain as iptables-save prints it.
struct Chain {
    text: String,
    rules: Vec<Rule>,
}

/// A rule: addresses with the lengths of their prefixes, protocol, first and last source and destination port.
#[derive(Clone, Copy)]
struct Rule {
    src: (u32, u32),
    dst: (u32, u32),
    protocol: u8,
    src_ports: (u16, u16),
    ports: (u16, u16),
}

const ANY: (u16, u16) = (0, u16::MAX);

impl Chain {
    /// A chain of this many rules. The packets of the last one match no other one.
    fn new(kind: Kind, rules: u32, random: &mut Random) -> Self {
        let mut rules: Vec<Rule> = (1..rules).map(|_| Rule::random(kind, random)).collect();
        let (src, dst) = ((0xcb00_7100, 24), (0xc633_6400, 24));
        rules.push(Rule { src, dst, protocol: protocol::TCP, src_ports: ANY, ports: (443, 443) });
        let mut text = String::from("*filter\n:FORWARD DROP [0:0]\n");
        for rule in &rules {
            writeln!(text, "-A FORWARD {}", rule.text()).expect("a string has room");
        }
        text.push_str("COMMIT\n");
        Self { text, rules }
    }
}

impl Rule {
    /// A host or a network of a site, from a host or a network elsewhere; four of five with a service.
    fn random(kind: Kind, random: &mut Random) -> Self {
        if kind == Kind::Ranges {
            let mut range = |first: u32| (first as u16, (first + 1 + random.below(500)) as u16);
            let (src_ports, ports) = (range(1024), range(444));
            let shift = |(first, last): (u16, u16), by: u32| (first + by as u16, last + by as u16);
            let (src_ports, ports) = (shift(src_ports, random.below(60_000)), shift(ports, random.below(60_000)));
            return Self { src: (0, 0), dst: (0, 0), protocol: protocol::TCP, src_ports, ports };
        }
        let length = |random: &mut Random| match kind {
            Kind::Prefixes => 8 + random.below(25),
            Kind::Site | Kind::Ranges => *random.pick(&[24, 24, 25, 26, 27, 28, 29, 30, 32, 32, 32, 32]),
        };
        let src_bits = length(random);
        let dst_bits = length(random);
        let src = (0x0a00_0000 | random.below(1 << 20) << 4, if random.below(10) == 0 { 0 } else { src_bits });
        let dst = (0xac10_0000 | random.below(1 << 16) << 4, if random.below(10) == 0 { 0 } else { dst_bits });
        // A rule for all would leave those after it without packets.
        let src = if src.1 == 0 && dst.1 == 0 { (src.0, 32) } else { src };
        let port =
            *random.pick(&[22, 25, 53, 80, 110, 123, 143, 161, 389, 443, 445, 993, 3306, 3389, 5432, 8080, 8443]);
        let (protocol, ports) = match random.below(10) {
            0 => (0, (0, u16::MAX)),
            1 => (protocol::TCP, (0, u16::MAX)),
            2 => (protocol::TCP, (1024, 1024 + random.below(60_000) as u16)),
            3 | 4 => (protocol::UDP, (port, port)),
            _ => (protocol::TCP, (port, port)),
        };
        Self { src, dst, protocol, src_ports: ANY, ports }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (option, (address, bits)) in [("-s", self.src), ("-d", self.dst)] {
            if bits != 0 {
                let address = std::net::Ipv4Addr::from_bits(address);
                write!(text, "{option} {address}/{bits} ").expect("a string has room");
            }
        }
        if self.protocol != 0 {
            let name = if self.protocol == protocol::TCP { "tcp" } else { "udp" };
            write!(text, "-p {name} -m {name} ").expect("a string has room");
        }
        for (option, (first, last)) in [("--sport", self.src_ports), ("--dport", self.ports)] {
            if (first, last) != ANY {
                write!(text, "{option} {first}:{last} ").expect("a string has room");
            }
        }
        text + "-j ACCEPT"
    }

    /// A packet that the rule matches.
    fn view(&self, random: &mut Random) -> View {
        let mut host = |(address, bits): (u32, u32)| {
            let low = u32::MAX.checked_shr(bits).unwrap_or(0);
            u128::from(address & !low | random.next() as u32 & low)
        };
        let (src, dst) = (host(self.src), host(self.dst));
        let mut port = |(first, last): (u16, u16)| first + random.below(u32::from(last - first) + 1) as u16;
        let (src_port, dst_port) = (port(self.src_ports), port(self.ports));
        let protocol = if self.protocol == 0 { protocol::UDP } else { self.protocol };
        View {
            src,
            dst,
            bytes: 0,
            time: Nanos(0),
            mark: 0,
            src_port,
            dst_port,
            len: 40,
            mss: 0,
            is_v6: false,
            protocol,
            tcp_flags: 0x10,
            icmp_kind: 0,
            icmp_code: 0,
            ttl: 64,
            tos: 0,
            fragment: Fragment::Whole,
            has_transport: true,
            input: NO_INTERFACE,
            output: NO_INTERFACE,
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end)) as u32
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u32) as usize]
    }
}
