use std::boxed::Box;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use nf::{NetworkFunction, Reason, Verdict};
use packet::{FiveTuple, Fragment, Headers, Ipv4, Network, Tcp, TcpFlags, Transport, protocol};
use proptest::prelude::*;

use super::*;
use crate::testing::report_of;
use crate::tracking::driver::*;

fn driver(config: &str) -> Driver<Conntrack> {
    Driver::new(Conntrack::new(toml::from_str(config).unwrap()))
}

/// Returns the name of the drop reason, if the packet was dropped.
fn cause(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Drop(reason) => Some(reason.name(Conntrack::DESCRIPTION.drop_reasons)),
        Verdict::Forward(_) | Verdict::Rewrite { .. } => None,
        Verdict::Reply(_) | Verdict::Copy { .. } | Verdict::Transform { .. } => panic!("a tracker passes or drops"),
    }
}

#[test]
fn sizes_stay_small() {
    assert_eq!(size_of::<crate::tracking::tcp::Segment>(), 20);
    // An IPv4 entry is 96 bytes long with it: two cache lines, wherever it begins.
    assert!(size_of::<Connection>() <= 68, "{}", size_of::<Connection>());
    assert!(size_of::<Observation>() <= 96, "{}", size_of::<Observation>());
    assert_eq!(size_of::<Outcome>(), 16);
}

#[test]
fn keys_are_those_of_the_configuration() {
    let mut text = String::new();
    for key in Conntrack::DESCRIPTION.keys {
        text += &format!("{} = {}\n", key.name, key.default);
    }
    assert_eq!(toml::from_str::<Config>(&text).unwrap(), Config::default());
    assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
    let error = toml::from_str::<Config>("loose = true\n[timeouts]\ntcp_close = 0").unwrap_err().to_string();
    assert!(error.contains("line 3, column 13"), "{error}");
    assert!(toml::from_str::<Config>("timeouts.sctp = 3").is_err());
}

/// One line of a scenario file.
struct Line<'a> {
    wait: f64,
    from_client: bool,
    headers: Headers,
    expected: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Self {
        let (packet, expected) = line.split_once("->").expect("an expectation");
        let mut words = packet.split_whitespace().peekable();
        let wait = words.next_if(|word| word.starts_with('+')).map_or(0.0, |word| word[1..].parse().unwrap());
        let from_client = match words.next() {
            Some(">") => true,
            Some("<") => false,
            other => panic!("{other:?} is no direction in {line:?}"),
        };
        let mut tcp_header = segment(flags(words.next().expect("flags")), 0, 0, 1000);
        let mut len = 0;
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, "0"));
            let value: u32 = value.parse().unwrap();
            match name {
                "seq" => tcp_header.seq = value,
                "ack" => tcp_header.ack = value,
                "len" => len = value,
                "win" => tcp_header.window = value as u16,
                "ws" => tcp_header.options.window_scale = Some(value as u8),
                "sackok" => tcp_header.options.sack_permitted = true,
                "sack" => tcp_header.options.sack_edge = Some(value),
                other => panic!("{other} in {line:?}"),
            }
        }
        let (client, server) = ((v4(1), 40_000), (v4(2), 80));
        let headers =
            if from_client { tcp(client, server, tcp_header, len) } else { tcp(server, client, tcp_header, len) };
        Self { wait, from_client, headers, expected: expected.split_whitespace().collect() }
    }
}

fn flags(text: &str) -> TcpFlags {
    let known = [
        ('F', TcpFlags::FIN),
        ('S', TcpFlags::SYN),
        ('R', TcpFlags::RST),
        ('P', TcpFlags::PSH),
        ('A', TcpFlags::ACK),
        ('U', TcpFlags::URG),
        ('E', TcpFlags::ECE),
        ('C', TcpFlags::CWR),
    ];
    let letters = if text == "none" { "" } else { text };
    letters.chars().fold(TcpFlags(0), |flags, letter| {
        flags.with(known.iter().find(|(known, _)| *known == letter).unwrap_or_else(|| panic!("flag {letter}")).1)
    })
}

/// Describes the outcome of a packet as a scenario does.
fn describe(verdict: Verdict, driver: &Driver<Conntrack>) -> Vec<String> {
    let mut words: Vec<String> = cause(verdict).map(|cause| format!("!{cause}")).into_iter().collect();
    match driver.only() {
        Some((entry, idle)) => {
            words.push(entry.flow.names().1.to_string());
            words.push(format!("{}", idle.round()));
            if entry.flow.assured() {
                words.push("assured".to_string());
            }
        }
        None => words.push("gone".to_string()),
    }
    words
}

/// Plays scenario files. Prints the first difference of each scenario.
fn play(file: &str) -> usize {
    let mut scenarios = 0;
    let mut wrong = Vec::new();
    let mut current: Option<(&str, Box<Driver<Conntrack>>)> = None;
    for line in file.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix('=') {
            let (name, config) = head.split_once('|').unwrap_or((head, ""));
            let config: String = config.split_whitespace().map(|pair| format!("{pair}\n")).collect();
            current = Some((name, Box::new(driver(&config))));
            scenarios += 1;
            continue;
        }
        let Some((name, driver)) = &mut current else { continue };
        let line_read = Line::parse(line);
        driver.wait(line_read.wait);
        let verdict = driver.give(&line_read.headers);
        let found = describe(verdict, driver);
        // The kernel gives no reason.
        let same =
            |(found, expected): (&String, &&str)| found == expected || *expected == "!" && found.starts_with('!');
        if found.len() != line_read.expected.len() || !found.iter().zip(&line_read.expected).all(same) {
            wrong.push(format!(
                "{name}: {line}\n    found {} (from client: {})",
                found.join(" "),
                line_read.from_client
            ));
            current = None;
        }
    }
    assert!(wrong.is_empty(), "{} of {scenarios} scenarios:\n{}", wrong.len(), wrong.join("\n"));
    scenarios
}

/// The kernel gave the same answers: `testdata/kernel_oracle.py check`.
#[test]
fn tcp_scenarios() {
    assert_eq!(play(include_str!("../../testdata/tcp.scenarios")), 58);
}

/// Random segments with the kernel's answers: `testdata/kernel_oracle.py random`.
#[test]
fn the_kernel_judges_alike() {
    assert_eq!(play(include_str!("../../testdata/tcp.kernel")), 300);
}

#[test]
fn udp_becomes_a_stream_after_two_seconds_both_ways() {
    let mut driver = driver("");
    let (client, server) = ((v4(1), 5000), (v4(2), 53));
    let expect = |driver: &Driver<Conntrack>, state: &str, idle: f64, assured: bool| {
        let (entry, secs_left) = driver.only().unwrap();
        assert_eq!((entry.flow.names(), secs_left, entry.assured), (("udp", state), idle, assured));
    };
    assert_eq!(cause(driver.give(&udp(client, server))), None);
    expect(&driver, "unanswered", 30.0, false);
    driver.wait(5.0);
    driver.give(&udp(client, server));
    expect(&driver, "unanswered", 30.0, false);
    driver.give(&udp(server, client));
    expect(&driver, "answered", 30.0, false);
    driver.give(&udp(client, server));
    expect(&driver, "stream", 120.0, true);

    // While young, thirty seconds to the nanosecond, however often it is answered.
    let mut driver = self::driver("");
    driver.give(&udp(client, server));
    driver.give(&udp(server, client));
    driver.wait(2.0);
    driver.give(&udp(server, client));
    expect(&driver, "answered", 30.0, false);
    driver.now.0 += 1;
    driver.give(&udp(server, client));
    expect(&driver, "stream", 120.0, true);
    driver.wait(120.0);
    driver.give(&udp(server, client));
    expect(&driver, "unanswered", 30.0, false);
}

#[test]
fn icmp_replies_must_be_asked_for() {
    for (a, b, request, reply) in [(v4(1), v4(2), 8, 0), (v4(1), v4(2), 13, 14), (v6(1), v6(2), 128, 129)] {
        let mut driver = driver("");
        assert_eq!(cause(driver.give(&icmp(b, a, reply, Some(7)))), Some("unasked-reply"));
        assert_eq!(cause(driver.give(&icmp(a, b, request, Some(7)))), None);
        assert_eq!(cause(driver.give(&icmp(b, a, reply, Some(8)))), Some("unasked-reply"));
        assert_eq!(cause(driver.give(&icmp(a, b, reply, Some(7)))), Some("unasked-reply"));
        assert_eq!(cause(driver.give(&icmp(b, a, reply, Some(7)))), None);
        assert_eq!(cause(driver.give(&icmp(b, a, reply, Some(7)))), None, "duplicates pass");
        assert_eq!(driver.only().unwrap().0.flow.names(), ("icmp", "answered"));
        // Both sides may send queries with one identifier.
        assert_eq!(cause(driver.give(&icmp(b, a, request, Some(7)))), None);
        assert_eq!(cause(driver.give(&icmp(a, b, reply, Some(7)))), None);
        driver.wait(30.0);
        assert_eq!(cause(driver.give(&icmp(b, a, reply, Some(7)))), Some("unasked-reply"));
    }
    // A reply of another kind.
    let mut driver = driver("");
    driver.give(&icmp(v4(1), v4(2), 8, Some(7)));
    assert_eq!(cause(driver.give(&icmp(v4(2), v4(1), 14, Some(7)))), Some("unasked-reply"));
}

#[test]
fn icmp_errors_belong_to_the_connection_that_they_quote() {
    for (a, b, router, kind) in [(v4(1), v4(2), v4(9), 3), (v6(1), v6(2), v6(9), 1), (v6(1), v6(2), v6(9), 2)] {
        let mut driver = driver("");
        let quoted = udp((a, 5000), (b, 53)).five_tuple().unwrap();
        assert_eq!(cause(driver.give(&icmp_error(router, a, kind, quoted))), Some("unrelated-error"));
        driver.give(&udp((a, 5000), (b, 53)));
        driver.wait(10.0);
        assert_eq!(cause(driver.give(&icmp_error(router, a, kind, quoted))), None);
        let (entry, secs_left) = driver.only().unwrap();
        assert_eq!((entry.flow.names(), secs_left), (("udp", "unanswered"), 20.0), "timers stay as they are");
        assert_eq!(cause(driver.give(&icmp_error(b, a, kind, quoted))), None, "from the host itself");
        assert_eq!(cause(driver.give(&icmp_error(a, b, kind, quoted.reversed()))), None, "about the other direction");
        assert_eq!(
            cause(driver.give(&icmp_error(router, b, kind, quoted))),
            Some("unrelated-error"),
            "to the wrong host"
        );
        let other = udp((a, 5001), (b, 53)).five_tuple().unwrap();
        assert_eq!(cause(driver.give(&icmp_error(router, a, kind, other))), Some("unrelated-error"));
    }
}

#[test]
fn what_has_no_connections_passes_untracked() {
    let mut driver = driver("");
    for kind in [130, 131, 132, 133, 134, 135, 136, 143] {
        assert_eq!(cause(driver.give(&icmp(v6(1), v6(2), kind, None))), None);
    }
    for kind in [137, 141, 200] {
        assert_eq!(cause(driver.give(&icmp(v6(1), v6(2), kind, None))), Some("unknown-icmp"));
    }
    for kind in [9, 10, 30] {
        assert_eq!(cause(driver.give(&icmp(v4(1), v4(2), kind, None))), Some("unknown-icmp"));
    }
    let arp = Headers { network: Network::Arp, ethertype: 0x0806, ..udp((v4(1), 1), (v4(2), 2)) };
    assert_eq!(cause(driver.give(&Headers { transport: Transport::None, ..arp })), None);
    let later = Headers { fragment: Fragment::Later, transport: Transport::None, ..udp((v4(1), 1), (v4(2), 2)) };
    assert_eq!(cause(driver.give(&later)), Some("fragment"));
    assert!(driver.flows.is_empty());
}

#[test]
fn other_protocols_are_conversations() {
    let mut driver = driver("");
    let (there, back) =
        (ip(v4(1), v4(2), protocol::GRE, Transport::None), ip(v4(2), v4(1), protocol::GRE, Transport::None));
    driver.give(&there);
    assert_eq!(driver.only().map(|(entry, secs_left)| (entry.flow.names().1, secs_left)), Some(("unanswered", 600.0)));
    driver.give(&back);
    let (entry, secs_left) = driver.only().unwrap();
    assert_eq!((entry.flow.names(), secs_left, entry.assured), (("other", "answered"), 600.0, true));
}

#[test]
fn a_pure_tracker_forwards_what_is_invalid() {
    let mut driver = driver("invalid = \"forward\"");
    let reset = tcp((v4(1), 1), (v4(2), 2), segment(TcpFlags::RST, 1, 0, 0), 0);
    assert_eq!(driver.give(&reset), Verdict::FORWARD);
    assert_eq!(driver.give(&icmp(v4(1), v4(2), 0, Some(1))), Verdict::FORWARD);
    assert_eq!(driver.give(&icmp(v4(1), v4(2), 9, None)), Verdict::FORWARD);
    assert!(driver.flows.is_empty());
}

#[test]
fn the_report_counts_by_protocol_and_state() {
    let mut driver = driver("");
    for port in 1..=3 {
        driver.give(&tcp((v4(1), port), (v4(2), 80), segment(TcpFlags::SYN, 1, 0, 100), 0));
    }
    driver.give(&udp((v4(1), 5), (v4(2), 53)));
    let report = report_of(&driver.function, driver.flows()).unwrap();
    assert_eq!(report.title, "4 connections by protocol and state");
    assert_eq!(report.rows, [["tcp", "syn-sent", "3", "0"], ["udp", "unanswered", "1", "0"]]);
}

/// Segments with close numbers, so that many of them fit.
fn any_headers() -> impl Strategy<Value = Headers> {
    let number = prop_oneof![Just(0_u32), Just(u32::MAX), 0_u32..3000, any::<u32>()];
    let tcp_header = (any::<u8>(), number.clone(), number.clone(), any::<u16>(), any::<[u8; 4]>(), 0_u32..70_000);
    let ends = (1_u8..3, 1_u8..3, 1_u16..3);
    (0_u8..8, tcp_header, ends, any::<u8>(), number).prop_map(
        |(what, (flags, seq, ack, window, bits, len), ends, kind, edge)| {
            let (a, b) = ((v4(ends.0), ends.2), (v4(ends.1), ends.2));
            let mut tcp_header = Tcp { seq, ack, window, ..segment(TcpFlags(flags), seq, ack, window) };
            if bits[0] & 1 != 0 {
                tcp_header.options.window_scale = Some(bits[1] & 15);
            }
            tcp_header.options.sack_permitted = bits[0] & 2 != 0;
            tcp_header.options.sack_edge = (bits[0] & 4 != 0).then_some(edge);
            // Most segments have plausible flags.
            if bits[0] & 0x30 != 0 {
                tcp_header.flags = [TcpFlags::SYN, TcpFlags(0x12), TcpFlags(0x10), TcpFlags(0x11), TcpFlags(0x04)]
                    [usize::from(bits[2] % 5)];
            }
            match what {
                0 => udp(a, b),
                1 => icmp(a.0, b.0, kind, (kind & 1 == 0).then_some(ends.2)),
                2 => icmp_error(a.0, b.0, kind, udp(b, a).five_tuple().unwrap()),
                3 => ip(a.0, b.0, kind, Transport::None),
                _ => tcp(a, b, tcp_header, len),
            }
        },
    )
}

proptest! {
    /// The driver also asserts that every flow has a deadline.
    #[test]
    fn any_packets_in_any_order_are_judged(packets in proptest::collection::vec((any_headers(), 0_u32..200), 1..60), loose: bool, liberal: bool) {
        let mut driver = driver(&format!("loose = {loose}\nliberal = {liberal}"));
        for (headers, secs) in packets {
            driver.wait(f64::from(secs / 20));
            let verdict = driver.give(&headers);
            prop_assert!(!matches!(verdict, Verdict::Reply(_)));
            if let Verdict::Drop(Reason(number)) = verdict {
                prop_assert!(usize::from(number - Reason::OWN) < Cause::ALL.len());
            }
        }
    }

    /// A connection is the same whichever side's address is the smaller.
    #[test]
    fn addresses_decide_nothing(packets in proptest::collection::vec(any_headers(), 1..40)) {
        let (mut one, mut other) = (driver(""), driver(""));
        for headers in packets {
            // The mirror image of 10.0.0.1 and 10.0.0.2 is 10.0.0.2 and 10.0.0.1.
            prop_assert_eq!(one.give(&headers), other.give(&mirrored(&headers)));
        }
    }
}

fn mirrored(headers: &Headers) -> Headers {
    let flip = |address: std::net::Ipv4Addr| std::net::Ipv4Addr::from_bits(address.to_bits() ^ 3);
    let mut headers = *headers;
    if let Network::V4(Ipv4 { src, dst, .. }) = &mut headers.network {
        (*src, *dst) = (flip(*src), flip(*dst));
    }
    if let Transport::Icmp(icmp) = &mut headers.transport
        && let Some(embedded) = &mut icmp.embedded
    {
        let (mut source, mut destination) = embedded.endpoints();
        for end in [&mut source, &mut destination] {
            if let std::net::IpAddr::V4(address) = &mut end.address {
                *address = flip(*address);
            }
        }
        embedded.tuple = FiveTuple::between(source, destination, embedded.tuple.protocol()).unwrap();
    }
    headers
}
