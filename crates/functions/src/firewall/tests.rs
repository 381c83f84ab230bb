use std::format;
use std::net::{IpAddr, Ipv4Addr};
use std::string::{String, ToString};

use nf::NetworkFunction;
use packet::{Fragment, Network, TcpFlags, Transport, protocol};

use super::*;
use crate::tracking::driver::*;

const SYN: TcpFlags = TcpFlags::SYN;
const SYN_ACK: TcpFlags = TcpFlags(0x12);
const ACK: TcpFlags = TcpFlags::ACK;
const FIN_ACK: TcpFlags = TcpFlags(0x11);
const RST: TcpFlags = TcpFlags::RST;

fn driver(config: &str) -> Driver<Firewall> {
    Driver::new(Firewall::new(toml::from_str(config).unwrap()))
}

/// `pass`, `reset`, or the reason of the drop.
fn fate(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Forward(_) | Verdict::Rewrite { .. } => "pass",
        Verdict::Copy { .. } | Verdict::Transform { .. } | Verdict::Reply(Reply::IcmpError(_)) => {
            panic!("a firewall makes no such frame")
        }
        Verdict::Reply(Reply::TcpReset) => "reset",
        Verdict::Drop(reason) => reason.name(Firewall::DESCRIPTION.drop_reasons),
    }
}

fn outside(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, last))
}

type End = (IpAddr, u16);

fn give(driver: &mut Driver<Firewall>, from: End, to: End, flags: TcpFlags, seq: u32, ack: u32) -> &'static str {
    fate(driver.give(&tcp(from, to, segment(flags, seq, ack, 1000), 0)))
}

/// A connection from open to both FINs acknowledged.
fn open_and_close(driver: &mut Driver<Firewall>, client: End, server: End) {
    for (from, to, flags, seq, ack) in [
        (client, server, SYN, 100, 0),
        (server, client, SYN_ACK, 500, 101),
        (client, server, ACK, 101, 501),
        (client, server, FIN_ACK, 101, 501),
        (server, client, FIN_ACK, 501, 102),
        (client, server, ACK, 102, 502),
    ] {
        assert_eq!(give(driver, from, to, flags, seq, ack), "pass", "{flags:?}");
    }
}

#[test]
fn keys_are_those_of_the_configuration() {
    let text: String =
        Firewall::DESCRIPTION.keys.iter().map(|key| format!("{} = {}\n", key.name, key.default)).collect();
    assert_eq!(toml::from_str::<Config>(&text).unwrap(), Config::default());
    assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
}

#[test]
fn errors_of_the_configuration_point_at_the_place() {
    for (text, at, says) in [
        ("allow = [{ proto = \"icmp\", port = 7 }]", "line 1, column 9", "icmp has no ports"),
        ("allow = [\n  { proto = \"tcp\", port = 0 },\n]", "line 2, column 27", "from 1 to 65535"),
        ("allow = [{ proto = \"tcp\", port = 70000 }]", "line 1, column 34", "70000"),
        ("allow = [{ proto = \"quic\" }]", "line 1", "unknown variant"),
        ("inside = [\"10.0.0.0/8\", \"10.0.0.1/8\"]", "line 1, column 25", "10.0.0.0/8"),
        ("non_ip = \"maybe\"", "line 1, column 10", "unknown variant"),
        ("allow = [{ proto = \"tcp\", port = \"90-80\" }]", "line 1, column 34", "write \"80-90\""),
        ("allow = [{ proto = \"tcp\", port = \"ssh\" }]", "line 1, column 34", "not a range of ports"),
        ("allow = [{ proto = \"tcp\", port = \"1-65536\" }]", "line 1, column 34", "not a range of ports"),
        ("allow = [{ proto = \"tcp\", from = \"10.0.0.1/8\" }]", "line 1, column 34", "10.0.0.0/8"),
        ("allow = [{ proto = \"tcp\", to = [] }]", "line 1, column 32", "omit the key"),
    ] {
        let error = toml::from_str::<Config>(text).unwrap_err().to_string();
        assert!(error.contains(at) && error.contains(says), "{text}: {error}");
    }
}

#[test]
fn inside_opens_and_outside_answers() {
    let mut driver = driver("");
    open_and_close(&mut driver, (v4(1), 40_000), (outside(1), 443));
    open_and_close(&mut driver, (v6(1), 40_000), ("2001:db8::1".parse().unwrap(), 443));
    assert_eq!(fate(driver.give(&udp((v4(1), 5000), (outside(1), 53)))), "pass");
    assert_eq!(fate(driver.give(&udp((outside(1), 53), (v4(1), 5000)))), "pass");
    assert_eq!(fate(driver.give(&icmp(v4(1), outside(1), 8, Some(1)))), "pass");
    assert_eq!(fate(driver.give(&icmp(outside(1), v4(1), 0, Some(1)))), "pass");
    open_and_close(&mut driver, (v4(1), 40_000), (v4(2), 80));
}

#[test]
fn outside_opens_nothing() {
    let mut driver = driver("");
    let (inside_end, outside_end) = ((v4(1), 80), (outside(1), 40_000));
    assert_eq!(give(&mut driver, outside_end, inside_end, SYN, 100, 0), "not-allowed");
    for flags in [SYN_ACK, ACK, FIN_ACK, RST] {
        assert_eq!(give(&mut driver, outside_end, inside_end, flags, 100, 100), "no-connection");
    }
    assert_eq!(fate(driver.give(&udp(outside_end, inside_end))), "not-allowed");
    assert_eq!(fate(driver.give(&udp(outside_end, (outside(2), 53)))), "not-allowed", "not ours to carry");
    assert_eq!(fate(driver.give(&icmp(outside(1), v4(1), 8, Some(1)))), "not-allowed");
    assert_eq!(fate(driver.give(&icmp(outside(1), v4(1), 0, Some(1)))), "unasked-reply");
    assert_eq!(fate(driver.give(&ip(outside(1), v4(1), protocol::GRE, Transport::None))), "not-allowed");
    assert!(driver.flows.is_empty());
}

#[test]
fn an_answer_must_fit_the_question() {
    let mut driver = driver("");
    assert_eq!(give(&mut driver, (v4(1), 40_000), (outside(1), 443), SYN, 100, 0), "pass");
    assert_eq!(give(&mut driver, (outside(1), 443), (v4(1), 40_000), SYN_ACK, 500, 9000), "out-of-window");
    assert_eq!(give(&mut driver, (outside(1), 443), (v4(1), 40_001), SYN_ACK, 500, 101), "no-connection");
    assert_eq!(give(&mut driver, (outside(2), 443), (v4(1), 40_000), SYN_ACK, 500, 101), "no-connection");
    assert_eq!(give(&mut driver, (outside(1), 443), (v4(1), 40_000), SYN_ACK, 500, 101), "pass");
    assert_eq!(give(&mut driver, (outside(1), 443), (v4(1), 40_000), TcpFlags(0), 500, 101), "invalid-flags");
}

#[test]
fn outside_does_not_reopen_what_inside_has_closed() {
    let (inside_end, outside_end) = ((v4(1), 40_000), (outside(1), 443));
    let mut closed = driver("");
    open_and_close(&mut closed, inside_end, outside_end);
    assert_eq!(give(&mut closed, outside_end, inside_end, SYN, 90_000, 0), "not-allowed");
    assert_eq!(closed.only().unwrap().0.flow.names(), ("tcp", "time-wait"), "and the connection stays as it was");
    assert_eq!(give(&mut closed, inside_end, outside_end, SYN, 90_000, 0), "pass");
    assert_eq!(closed.only().unwrap().0.flow.names(), ("tcp", "syn-sent"));

    let mut served = driver("allow = [{ proto = \"tcp\", port = 40000 }]");
    open_and_close(&mut served, inside_end, outside_end);
    assert_eq!(give(&mut served, outside_end, inside_end, SYN, 90_000, 0), "pass");
}

#[test]
fn outside_does_not_ask_under_an_identifier_of_inside() {
    let mut driver = driver("");
    assert_eq!(fate(driver.give(&icmp(v4(1), outside(1), 8, Some(1)))), "pass");
    assert_eq!(fate(driver.give(&icmp(outside(1), v4(1), 8, Some(1)))), "not-allowed");
    assert_eq!(fate(driver.give(&icmp(v4(1), outside(1), 0, Some(1)))), "unasked-reply");
    assert_eq!(fate(driver.give(&icmp(outside(1), v4(1), 0, Some(1)))), "pass");
}

#[test]
fn services_may_be_used_from_outside() {
    let mut driver = driver(
        r#"allow = [{ proto = "tcp", port = 22 }, { proto = "udp", port = 53 }, { proto = "icmp" }, { proto = "sctp" }]"#,
    );
    open_and_close(&mut driver, (outside(1), 40_000), (v4(1), 22));
    assert_eq!(give(&mut driver, (outside(1), 40_000), (v4(1), 23), SYN, 1, 0), "not-allowed");
    assert_eq!(
        give(&mut driver, (outside(1), 22), (v4(1), 40_000), SYN, 1, 0),
        "not-allowed",
        "the port is the destination's"
    );
    assert_eq!(fate(driver.give(&udp((outside(1), 5000), (v4(1), 53)))), "pass");
    assert_eq!(fate(driver.give(&udp((outside(1), 5000), (v4(1), 22)))), "not-allowed");
    assert_eq!(fate(driver.give(&icmp(outside(1), v4(1), 8, Some(1)))), "pass");
    let sctp = |port| Transport::Sctp { src_port: 1, dst_port: port };
    assert_eq!(fate(driver.give(&ip(outside(1), v4(1), protocol::SCTP, sctp(9)))), "pass");
    assert_eq!(fate(driver.give(&ip(outside(1), v4(1), protocol::GRE, Transport::None))), "not-allowed");
    assert_eq!(
        give(&mut driver, (outside(1), 40_000), (outside(2), 22), SYN, 1, 0),
        "not-allowed",
        "served inside only"
    );
}

#[test]
fn interfaces_decide_where_there_are_any() {
    let mut driver = driver("inside_interfaces = [0, 2]\nallow = [{ proto = \"udp\", port = 53 }]");
    let from = |interface, headers| Headers { interface, ..headers };
    assert_eq!(fate(driver.give(&from(1, udp((v4(1), 1), (outside(1), 2))))), "not-allowed", "a forged source");
    assert_eq!(fate(driver.give(&from(1, udp((outside(1), 1), (v4(1), 53))))), "pass");
    assert_eq!(fate(driver.give(&from(2, udp((outside(3), 1), (outside(1), 2))))), "pass");
    assert_eq!(fate(driver.give(&from(1, udp((outside(1), 2), (outside(3), 1))))), "pass", "the answer");
}

#[test]
fn refusals_are_told_when_asked_to() {
    let mut driver = driver("reject = true");
    let (inside_end, outside_end) = ((v4(1), 80), (outside(1), 40_000));
    for (flags, expected) in
        [(SYN, "reset"), (SYN_ACK, "reset"), (ACK, "reset"), (FIN_ACK, "reset"), (RST, "no-connection")]
    {
        assert_eq!(give(&mut driver, outside_end, inside_end, flags, 1, 1), expected);
    }
    assert_eq!(give(&mut driver, outside_end, inside_end, TcpFlags(0x03), 1, 1), "invalid-flags");
    assert_eq!(fate(driver.give(&udp(outside_end, inside_end))), "not-allowed");
}

#[test]
fn icmp_errors_pass_when_related_and_wanted() {
    for (config, expected) in [("", "pass"), ("icmp_errors = false", "icmp-error")] {
        let mut driver = driver(config);
        let query = udp((v4(1), 5000), (outside(1), 53));
        let error = icmp_error(outside(9), v4(1), 3, query.five_tuple().unwrap());
        assert_eq!(fate(driver.give(&error)), "unrelated-error");
        driver.give(&query);
        assert_eq!(fate(driver.give(&error)), expected);
        assert_eq!(driver.only().unwrap().1, 30.0);
    }
}

#[test]
fn connections_are_picked_up_half_way_by_inside_alone() {
    let (inside_end, outside_end) = ((v4(1), 40_000), (outside(1), 443));
    assert_eq!(give(&mut driver(""), inside_end, outside_end, ACK, 1, 1), "no-connection");
    let mut loose = driver("loose = true");
    assert_eq!(give(&mut loose, outside_end, inside_end, ACK, 1, 1), "not-allowed");
    assert_eq!(give(&mut loose, inside_end, outside_end, ACK, 1, 1), "pass");
    assert_eq!(give(&mut loose, outside_end, inside_end, ACK, 1, 1), "pass");
}

#[test]
fn services_are_for_some_at_some_ports() {
    let config = r#"allow = [
        { proto = "tcp", port = "8000-8100", from = "203.0.113.0/28", to = ["10.0.0.1", "10.0.0.3"] },
        { proto = "udp", from = ["203.0.113.99", "2001:db8::/32"] },
    ]"#;
    let mut driver = driver(config);
    for (from, to, port, expected) in [
        (outside(1), v4(1), 8000, "pass"),
        (outside(1), v4(3), 8100, "pass"),
        (outside(1), v4(1), 8101, "not-allowed"),
        (outside(1), v4(1), 7999, "not-allowed"),
        (outside(1), v4(2), 8000, "not-allowed"),
        (outside(16), v4(1), 8000, "not-allowed"),
    ] {
        assert_eq!(give(&mut driver, (from, 1000 + port), (to, port), SYN, 1, 0), expected, "{from} {to} {port}");
    }
    for (from, expected) in [(outside(99), "pass"), (outside(98), "not-allowed")] {
        assert_eq!(fate(driver.give(&udp((from, 1), (v4(9), 2)))), expected);
    }
}

#[test]
fn what_is_not_a_connection() {
    for (config, expected) in [("", "pass"), ("non_ip = \"drop\"", "non-ip")] {
        let mut driver = driver(config);
        let some = udp((outside(1), 1), (v4(1), 2));
        let arp = Headers { network: Network::Arp, transport: Transport::None, ..some };
        assert_eq!(fate(driver.give(&arp)), expected);
        let other = Headers { network: Network::None, transport: Transport::None, ..some };
        assert_eq!(fate(driver.give(&other)), expected);
        let unreadable = Headers { network: Network::Unreadable, ..other };
        assert_eq!(fate(driver.give(&unreadable)), "unreadable");
        let later = Headers { fragment: Fragment::Later, transport: Transport::None, ..some };
        assert_eq!(fate(driver.give(&later)), "fragment");
        assert_eq!(fate(driver.give(&icmp("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap(), 135, None))), "pass");
        assert_eq!(fate(driver.give(&icmp(outside(1), v4(1), 9, None))), "unknown-icmp");
    }
}
