//! Configurations of functions whose packet sets share state that take over from each other while packets flow: `nat` and `load-balancer`.

use std::net::IpAddr;
use std::sync::Arc;

use engine::EngineKind;
use functions::load_balancer::LoadBalancer;
use functions::nat::Nat;
use nf::{Function, Verdict};
use packet::{Nanos, TcpFlags};
use port::Trace;
use testkit::{Build, Driver, Frames};

use super::reload::{configured, run};

const MILLISECOND: u64 = 1_000_000;

/// Engines that decide packet by packet as one core does, if packet sets share state.
pub(crate) const EXACT: [(EngineKind, usize); 9] = [
    (EngineKind::Sequential, 1),
    (EngineKind::Rss, 1),
    (EngineKind::RssPlusPlus, 1),
    (EngineKind::Hybrid, 1),
    (EngineKind::Pipeline, 1),
    (EngineKind::Scr, 2),
    (EngineKind::Scr, 3),
    (EngineKind::Shared, 1),
    (EngineKind::Transactional, 1),
];

/// Addresses and ports of a frame over IPv4, each as 6 bytes.
pub(crate) fn ends(bytes: &[u8]) -> [Vec<u8>; 2] {
    [(26, 34), (30, 36)].map(|(address, port)| [&bytes[address..address + 4], &bytes[port..port + 2]].concat())
}

/// The ends after a verdict that forwards the frame.
pub(crate) fn ends_after(bytes: &[u8], verdict: &Verdict) -> [Vec<u8>; 2] {
    let mut ends = ends(bytes);
    if let Verdict::Rewrite { rewrite, .. } = verdict {
        for (end, new) in ends.iter_mut().zip([rewrite.src, rewrite.dst]) {
            let Some(new) = new else { continue };
            let IpAddr::V4(address) = new.address else { panic!("all are IPv4") };
            *end = [&address.octets()[..], &new.port.to_be_bytes()].concat();
        }
    }
    ends
}

/// Compares a run with the sequential driver, which changes its configuration before the same packets. Returns how many packets were
/// rewritten.
fn check<N: Function + Clone>(way: (EngineKind, usize), both: &[N; 2], trace: &Arc<Trace>, reloads: u64) -> usize {
    let (firsts, came, outcome) = run(way, both, trace, reloads);
    assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{way:?}");
    assert_eq!(outcome.counters.received, trace.len() as u64, "{way:?}: no packet is lost");
    let mut driver = Driver::new(both[0].clone());
    let mut changes = firsts.iter().zip(1..).peekable();
    let mut rewritten = 0;
    for (packet, bytes) in trace.iter() {
        while let Some((_, number)) = changes.next_if(|(first, _)| **first <= packet.seq) {
            driver.reload(both[number % 2].clone()).expect("it can take over");
        }
        let verdict = driver.frame(packet.time, packet.link, bytes);
        match (came.get(&packet.seq), &verdict) {
            (None, Verdict::Drop(_)) => {}
            (Some(sent), Verdict::Forward(_) | Verdict::Rewrite { .. }) => {
                let expected = ends_after(bytes, &verdict);
                assert_eq!(ends(sent), expected, "{way:?}: packet {}: {verdict:?}", packet.seq);
                rewritten += usize::from(expected != ends(bytes));
            }
            (sent, verdict) => panic!("{way:?}: packet {}: {sent:?}, but {verdict:?} in sequence", packet.seq),
        }
    }
    assert_eq!(outcome.report, driver.report(), "{way:?}");
    rewritten
}

/// Engines whose outcome is that of some order of the packets: every packet is there, nothing fails, and what goes out `fits` the
/// configuration of its number, of its ends before and after.
fn check_in_some_order<N: Function + Clone>(
    both: &[N; 2],
    trace: &Arc<Trace>,
    fits: impl Fn(usize, &[Vec<u8>; 2], &[Vec<u8>; 2]) -> bool,
) {
    for way in [(EngineKind::Shared, 3), (EngineKind::Transactional, 2), (EngineKind::Transactional, 4)] {
        let (firsts, came, outcome) = run(way, both, trace, 60);
        assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{way:?}");
        assert!(firsts.is_sorted() && outcome.counters.received == trace.len() as u64, "{way:?}: no packet is lost");
        assert!(came.len() > trace.len() / 4, "{way:?}: {} went out", came.len());
        for (packet, bytes) in trace.iter() {
            let set = firsts.partition_point(|first| *first <= packet.seq) % 2;
            let fits = came.get(&packet.seq).is_none_or(|sent| fits(set, &ends(bytes), &ends(sent)));
            assert!(fits, "{way:?}: packet {} is of configuration {set}", packet.seq);
        }
    }
}

/// Clients that open connections to two services, and backends of which one resets all.
pub(crate) fn connections(packets: u64) -> Frames {
    let mut frames = Frames::default();
    let backends = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:8080", "10.0.0.4:80", "10.0.0.5:80"];
    for number in 0..packets {
        let round = number / 240;
        let client = format!("198.51.{}.{}:{}", number % 3, 1 + number % 40, 1_024 + round % 9 * 40 + number % 40);
        let service = if number % 7 < 5 { "192.0.2.1:80" } else { "192.0.2.2:80" };
        let begin = 1_000 * (round as u32 / 9 + 1);
        // Each backend answers clients of some rounds, as nobody knows here who was chosen.
        let nth = (number / 40 % 5) as usize;
        let of_backend =
            |flags, seq: u32| Build::tcp(backends[nth], &*client).flags(flags).seq(90_000 + seq).ack(begin + 1);
        let of_client = |flags, seq| {
            let build = Build::tcp(&*client, service).flags(flags).seq(begin + seq);
            // A number of the other side would make it an answer.
            if flags == TcpFlags::SYN { build } else { build.ack(90_001) }
        };
        let build = match number / 40 % 6 {
            0 => of_client(TcpFlags::SYN, 0),
            // They go on without an answer in some rounds only, as if it had taken another way. Not every backend gives one.
            4 | 5 if round % 3 > 0 => of_client(TcpFlags::SYN, 0),
            1..=3 if nth == 4 => of_backend(TcpFlags::RST.with(TcpFlags::ACK), 0),
            1 | 2 => of_backend(TcpFlags::SYN.with(TcpFlags::ACK), 0),
            3 => of_backend(TcpFlags::ACK, 1),
            4 => of_client(TcpFlags::ACK, 1),
            _ if number % 5 == 0 => of_client(TcpFlags::RST, 1),
            _ => of_client(TcpFlags::ACK, 1),
        };
        frames.build(Nanos((1_000 + number * 7) * MILLISECOND), &build);
    }
    frames
}

/// Two configurations. An attempt fails after so many seconds, or when it is reset.
pub(crate) fn balancers(answer_timeout: u32) -> [LoadBalancer; 2] {
    let common = format!(
        "flows = 8192\nflows_v6 = 64\ntable_size = 1009\ndown_after = 2\nanswer_timeout = {answer_timeout}\nretry_after = 5\n\
         transitory_timeout = 4\nidle_timeout = 20\n"
    );
    let service =
        |address: &str, backends: &[&str]| format!("[[services]]\naddress = \"{address}\"\nbackends = {backends:?}\n");
    let first = service("192.0.2.1:80", &["10.0.0.1:80", "10.0.0.2:80", "10.0.0.5:80"])
        + &service("192.0.2.2:80", &["10.0.0.3:8080"]);
    // In another order, with others, and with a backend that now belongs to the other service.
    let second = service("192.0.2.2:80", &["10.0.0.4:80", "10.0.0.1:80"])
        + &service("192.0.2.1:80", &["10.0.0.5:80", "10.0.0.3:8080", "10.0.0.2:80"]);
    let texts = [first, second].map(|services| common.clone() + &services);
    configured(texts.each_ref().map(|text| &**text))
}

#[test]
fn backends_come_and_go_while_packets_flow() {
    let trace = Arc::new(connections(20_000).trace());
    // Engines notice a missing answer within milliseconds, and the driver at once: none goes missing here.
    let both = balancers(10_000);
    for way in EXACT {
        let rewritten = check(way, &both, &trace, 60);
        assert!(rewritten > 5_000, "{way:?}: {rewritten} were rewritten");
    }
    // The last bytes of the backends' addresses, by configuration and service.
    let backends: [[&[u8]; 2]; 2] = [[&[1, 2, 5], &[3]], [&[5, 3, 2], &[4, 1]]];
    check_in_some_order(&balancers(1), &trace, |set, [_, before], [_, after]| match before[..4] {
        [192, 0, 2, service @ (1 | 2)] => backends[set][usize::from(service) - 1].contains(&after[3]),
        _ => true,
    });
}

/// Datagrams and connections of inside hosts, the answers, and strangers.
pub(crate) fn translated(packets: u64) -> Frames {
    let mut frames = Frames::default();
    for number in 0..packets {
        let round = number / 200;
        let host = format!("10.0.0.{}:{}", 1 + number % 29, 2_000 + (number % 29 + round) % 60);
        let server = format!("198.51.100.{}:53", number % 3);
        let external = format!("203.0.113.{}:{}", 1 + number % 4, 1_990 + number % 90);
        let build = match number / 29 % 7 {
            0 | 1 => Build::udp(&*host, &*server),
            2 => Build::tcp(&*host, &*server).flags(TcpFlags::SYN),
            3 => Build::udp(&*server, &*external),
            4 => Build::tcp(&*server, &*external).flags(TcpFlags::SYN.with(TcpFlags::ACK)),
            5 => Build::udp(&*host, &*external),
            _ => Build::tcp(&*host, &*server).flags(TcpFlags::RST),
        };
        frames.build(Nanos((1_000 + number * 5) * MILLISECOND), &build);
    }
    frames
}

pub(crate) fn translators() -> Vec<[Nat; 2]> {
    let common = "mappings = 256\nsessions = 512\ntimeouts.udp = 4\ntimeouts.tcp_transitory = 3\nlist = 500\n";
    let pairs = [
        // Other ports, some of which both have.
        ["ports = \"2000-2039\"", "ports = \"2030-2061\"\nport_preservation = false"],
        // Other addresses, of which one stays.
        [
            "ports = \"2000-2030\"\nexternal = [\"203.0.113.1\", \"203.0.113.2\"]",
            "ports = \"2000-2030\"\nexternal = [\"203.0.113.2\", \"203.0.113.3\"]\npooling = \"arbitrary\"\nport_parity = false",
        ],
        // Fixed mappings, and other hosts.
        [
            "ports = \"2000-2060\"",
            "ports = \"2000-2060\"\ninside = [\"10.0.0.0/28\"]\nhairpinning = false\n\
             static = [{ external = \"203.0.113.4\", internal = \"10.0.0.4\" }]\n\
             forward = [{ external = \"203.0.113.1:2000-2010\", internal = \"10.0.0.8:2000-2010\", protocol = \"udp\" }]",
        ],
        [
            "filtering = \"address-dependent\"\nports = \"2000-2020\"",
            "filtering = \"address-dependent\"\nloose = false",
        ],
    ];
    let texts = pairs.map(|pair| pair.map(|text| common.to_owned() + text));
    texts.iter().map(|pair| configured(pair.each_ref().map(|text| &**text))).collect()
}

#[test]
fn pools_change_while_packets_flow() {
    let trace = Arc::new(translated(12_000).trace());
    for both in translators() {
        for way in EXACT {
            let rewritten = check(way, &both, &trace, 40);
            assert!(rewritten > 1_000, "{way:?}: {rewritten} were rewritten");
        }
        check_in_some_order(&both, &trace, |_, _, _| true);
    }
}
