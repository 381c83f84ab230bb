use alloc::collections::BTreeSet;
use alloc::format;

use iptables::{Options, Sets, parse};
use packet::Nanos;

use super::samples::{icmp, later, tcp, udp};
use super::*;

const ROUTER: &str = r#"
[[interface]]
name = "lan0"
port = 0
addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]
[[interface]]
name = "wan"
port = 1
addresses = ["198.51.100.7/28"]
[[route]]
to = "default"
via = "198.51.100.1"
interface = "wan"
"#;

const SETS: &str = "create nets hash:net\nadd nets 10.0.0.0/8\nadd nets 10.1.0.0/16 nomatch\ncreate macs hash:mac\n\
                    add macs 02:00:00:00:00:01\ncreate moving hash:ip\ncreate all list:set\nadd all nets\nadd all macs\n";

fn environment(router: &str) -> Environment {
    let paths = Paths::new(&toml::from_str(router).expect("the text is well-formed")).expect("the router is right");
    let sets = Sets::parse(SETS, "sets").expect("the sets are well-formed");
    let sets = SetContents::new(&sets, &paths, &BTreeSet::from(["moving"])).expect("the sets fit");
    Environment { paths, sets }
}

fn compile(text: &str, environment: &Environment, bytes: &mut ByteTests) -> Result<Vec<Test>, NotHere> {
    let is_v6 = text.contains("v6") || text.contains("hl-") || text.contains("::");
    let family = if is_v6 { Family::V6 } else { Family::V4 };
    let table = if text.contains("rpfilter") { "-t raw -A PREROUTING" } else { "-A FORWARD" };
    let line = format!("{} {table} {text}", family.command());
    let parsed = parse(&line, &Options::default()).unwrap_or_else(|errors| panic!("{line}: {errors}"));
    let chains = &parsed.rules.tables[0].chains;
    let rule = &chains.iter().find(|chain| !chain.rules.is_empty()).expect("it is a rule").rules[0];
    let mut tests = Vec::new();
    for given in &rule.matches {
        tests.extend(Test::of(&given.value, family, environment, bytes)?);
    }
    Ok(tests)
}

/// True if the matches of a rule hold; its `-p`, `-s` and the like are not looked at.
fn holds(text: &str, view: View) -> bool {
    let environment = environment(ROUTER);
    let tests = compile(text, &environment, &mut ByteTests::default()).unwrap_or_else(|why| panic!("{text}: {why:?}"));
    tests.iter().all(|test| test.holds(&view, &environment))
}

const SRC: &str = "10.0.0.1";
const DST: &str = "192.0.2.1";

#[test]
fn a_test_is_small() {
    assert!(size_of::<Test>() <= 32, "{}", size_of::<Test>());
}

/// net/netfilter/xt_tcpudp.c.
#[test]
fn ports_and_flags() {
    let packet = tcp(SRC, DST);
    for (text, found) in [
        ("-p tcp --dport 80", true),
        ("-p tcp ! --dport 80", false),
        ("-p tcp --dport 81:90", false),
        ("-p tcp ! --dport 81:90 --sport 40000", true),
        ("-p tcp --sport 1:39999", false),
        ("-p tcp --tcp-flags SYN,ACK ACK", true),
        ("-p tcp --syn", false),
        ("-p tcp ! --syn", true),
        ("-p tcp ! --tcp-flags ALL ACK", false),
        ("-p tcp ! --dport 0:65535", false),
        ("-p udp --dport 90:70", false),
    ] {
        assert_eq!(holds(text, packet), found, "{text}");
    }
    assert!(holds("-p tcp --syn", View { tcp_flags: 0xc2, ..packet }), "ECN flags do not count");
    assert!(holds("-p udp --dport 80", udp(SRC, DST)) && holds("-p sctp --dport 80 --sport 40000", packet));
    for text in ["-p tcp --dport 80", "-p tcp ! --dport 80", "-p tcp -m tcp", "-p udp ! --sport 1"] {
        assert!(!holds(text, later(packet)), "{text} of a later fragment");
    }
}

/// net/netfilter/xt_multiport.c.
#[test]
fn lists_of_ports() {
    for (text, found) in [
        ("--dports 22,80,443", true),
        ("--dports 22,443", false),
        ("! --dports 22,443", true),
        ("--dports 70:90", true),
        ("--sports 80", false),
        ("--sports 39999:40001,5", true),
        ("--ports 80", true),
        ("--ports 40000", true),
        ("! --ports 40000", false),
    ] {
        assert_eq!(holds(&format!("-p tcp -m multiport {text}"), tcp(SRC, DST)), found, "{text}");
    }
    assert!(!holds("-p tcp -m multiport ! --dports 22", later(tcp(SRC, DST))));
}

/// net/ipv4/netfilter/ip_tables.c and net/ipv6/netfilter/ip6_tables.c: only IPv4 has a type for any.
#[test]
fn icmp_types() {
    for (text, kind, code, found) in [
        ("--icmp-type echo-request", 8, 0, true),
        ("--icmp-type 3", 3, 9, true),
        ("--icmp-type 3/1", 3, 9, false),
        ("! --icmp-type 3/1", 3, 9, true),
        ("--icmp-type any", 77, 1, true),
        ("! --icmp-type any", 77, 1, false),
    ] {
        assert_eq!(holds(&format!("-p icmp {text}"), icmp(SRC, DST, kind, code)), found, "{text}");
    }
    let v6 = |kind, code| icmp("2001:db8::1", "2001:db8::2", kind, code);
    assert!(holds("-p icmpv6 --icmpv6-type 1/4", v6(1, 4)) && !holds("-p icmpv6 --icmpv6-type 1/4", v6(1, 3)));
    assert!(!holds("-p icmpv6 --icmpv6-type 255", v6(1, 3)) && holds("-p icmpv6 --icmpv6-type 255", v6(255, 3)));
    assert!(!holds("-p icmp ! --icmp-type 3", later(icmp(SRC, DST, 8, 0))));
}

#[test]
fn fields_of_the_ip_header() {
    let packet = View { ttl: 64, tos: 0xb9, len: 576, mark: 0x1234, ..tcp(SRC, DST) };
    for (text, found) in [
        ("-m ttl --ttl-eq 64", true),
        ("-m ttl ! --ttl-eq 64", false),
        ("-m ttl --ttl-lt 64", false),
        ("-m ttl --ttl-lt 65", true),
        ("-m ttl --ttl-gt 64", false),
        ("-m ttl --ttl-gt 63", true),
        ("-m ttl --ttl-lt 0", false),
        ("-m ttl --ttl-gt 255", false),
        ("-m length --length 500:576", true),
        ("-m length ! --length 576", false),
        ("-m length --length 577:", false),
        ("-m dscp --dscp-class EF", true),
        ("-m dscp ! --dscp 46", false),
        ("-m tos --tos 0xb9", true),
        ("-m tos --tos 0xb8/0xfc", true),
        ("-m tos ! --tos 0xb0/0xf0", false),
        ("-m ecn --ecn-ip-ect 1", true),
        ("-m ecn ! --ecn-ip-ect 1", false),
        ("-m ecn --ecn-ip-ect 2", false),
        ("-m mark --mark 0x1234", true),
        ("-m mark --mark 0x34/0xff", true),
        ("-m mark ! --mark 0x34/0xff", false),
        ("-m mark --mark 0x1/0xf", false),
        ("-m iprange --src-range 10.0.0.0-10.0.0.1", true),
        ("-m iprange --src-range 10.0.0.2-10.0.0.9", false),
        ("-m iprange ! --src-range 10.0.0.2-10.0.0.9 --dst-range 192.0.2.1", true),
        ("-m iprange ! --src-range 10.0.0.2-10.0.0.9 ! --dst-range 192.0.2.1", false),
        ("-m comment --comment any", true),
    ] {
        assert_eq!(holds(text, packet), found, "{text}");
    }
    let v6 = View { ttl: 7, ..tcp("2001:db8::5", "2001:db8::6") };
    assert!(holds("-m hl --hl-eq 7", v6) && !holds("-m hl --hl-gt 7", v6));
    assert!(holds("-m iprange --src-range 2001:db8::1-2001:db8::5", v6));
    assert!(!holds("-m iprange --dst-range 2001:db8::1-2001:db8::5", v6));
}

/// net/netfilter/xt_ecn.c, net/netfilter/xt_tcpmss.c.
#[test]
fn congestion_flags_and_segment_sizes() {
    let with = |tcp_flags, mss| View { tcp_flags, mss, ..tcp(SRC, DST) };
    assert!(holds("-p tcp -m ecn --ecn-tcp-ece ! --ecn-tcp-cwr", with(0x52, 0)));
    assert!(!holds("-p tcp -m ecn --ecn-tcp-ece ! --ecn-tcp-cwr", with(0xd2, 0)));
    assert!(!holds("-p tcp -m ecn --ecn-tcp-cwr", later(with(0x80, 0))));
    for (mss, plain, negated) in [(1_460, true, false), (536, false, true), (0, false, true)] {
        assert_eq!(holds("-p tcp -m tcpmss --mss 1400:1500", with(2, mss)), plain, "{mss}");
        assert_eq!(holds("-p tcp -m tcpmss ! --mss 1400:1500", with(2, mss)), negated, "{mss}");
    }
}

#[test]
fn what_the_router_knows() {
    let packet = tcp("192.0.2.9", "198.51.100.7");
    for (text, found) in [
        ("-m addrtype --dst-type LOCAL", true),
        ("-m addrtype ! --dst-type LOCAL,BROADCAST", false),
        ("-m addrtype --src-type UNICAST --dst-type LOCAL", true),
        ("-m addrtype ! --src-type UNICAST --dst-type LOCAL", false),
        ("-m addrtype --dst-type LOCAL --limit-iface-in", false),
        ("-m addrtype --dst-type UNICAST --limit-iface-in", true),
        ("-m addrtype --dst-type LOCAL --limit-iface-out", true),
        ("-m rpfilter", true),
        ("-m rpfilter --invert", false),
        ("-m physdev --physdev-is-in", false),
        ("-m physdev ! --physdev-is-in ! --physdev-in eth+", true),
        ("-m physdev ! --physdev-is-bridged --physdev-out eth0", false),
    ] {
        assert_eq!(holds(text, packet), found, "{text}");
    }
    assert!(!holds("-m rpfilter --validmark", View { input: 1, ..packet }));
    assert!(holds("-m rpfilter --loose", View { input: 1, ..packet }));
}

#[test]
fn sets_that_nothing_changes() {
    let inside = tcp("10.0.0.1", DST);
    let except = tcp("10.1.0.1", DST);
    let look = |text: &str, view| holds(&format!("-m set --match-set {text}"), view);
    assert!(look("nets src", inside) && !look("nets src", except) && !look("nets dst", inside));
    assert!(holds("-m set ! --match-set nets src", except) && look("nets src --return-nomatch", except));
    assert!(look("all src", inside) && !look("all src", except) && look("all src", View { bytes: 1, ..except }));
    assert!(look("macs src", View { bytes: 1, ..except }) && !look("macs src", inside));
}

/// net/netfilter/xt_time.c. 2026-03-01 was a Sunday.
#[test]
fn times_of_days() {
    let day = 20_513_u64;
    let at = |days: u64, hour: u64, minute: u64| View {
        time: Nanos::from_secs((day + days) * 86_400 + hour * 3_600 + minute * 60),
        ..tcp(SRC, DST)
    };
    for (text, view, found) in [
        ("--weekdays Sun", at(0, 5, 0), true),
        ("--weekdays Mon,Sat", at(0, 5, 0), false),
        ("! --weekdays Sun", at(1, 5, 0), true),
        ("--monthdays 1", at(0, 5, 0), true),
        ("--monthdays 1", at(31, 5, 0), true),
        ("--monthdays 28", at(365 * 2 - 1, 5, 0), true),
        ("--monthdays 29", at(365 * 2, 5, 0), true),
        ("! --monthdays 2", at(1, 5, 0), false),
        ("--timestart 08:00 --timestop 17:00", at(0, 8, 0), true),
        ("--timestart 08:00 --timestop 17:00", at(0, 17, 0), true),
        ("--timestart 08:00 --timestop 17:00", at(0, 17, 1), false),
        ("--timestart 22:00 --timestop 06:00", at(0, 23, 0), true),
        ("--timestart 22:00 --timestop 06:00", at(0, 6, 1), false),
        ("--timestart 22:00 --timestop 06:00 --weekdays Sun", at(1, 5, 0), false),
        ("--timestart 22:00 --timestop 06:00 --weekdays Sun --contiguous", at(1, 5, 0), true),
        ("--timestart 22:00 --timestop 06:00 --weekdays Sun --contiguous", at(0, 5, 0), false),
        ("--datestart 2026-03-01T05:00:00", at(0, 5, 0), true),
        ("--datestart 2026-03-01T05:00:01", at(0, 5, 0), false),
        ("--datestop 2026-03-01T05:00:00", at(0, 5, 1), false),
    ] {
        assert_eq!(holds(&format!("-m time {text}"), view), found, "{text} at {:?}", view.time);
    }
}

#[test]
fn equal_tests_of_bytes_have_one_number() {
    let environment = environment(ROUTER);
    let mut bytes = ByteTests::default();
    let numbers: Vec<u8> = [
        "-m mac --mac-source 02:00:00:00:00:01",
        "-m string --string a --algo bm",
        "-m string ! --string a --algo kmp",
        "-p tcp --tcp-option 5",
        "-m mac ! --mac-source 02:00:00:00:00:01",
    ]
    .into_iter()
    .filter_map(|text| {
        let tests = compile(text, &environment, &mut bytes).expect("the rule is right");
        tests.iter().find_map(|test| if let Test::Byte { number, .. } = test { Some(*number) } else { None })
    })
    .collect();
    assert_eq!(numbers, [0, 1, 1, 2, 3]);
    for nth in 0..60 {
        compile(&format!("-m string --string x{nth} --algo bm"), &environment, &mut bytes).expect("it fits");
    }
    let error = compile("-m string --string y --algo bm", &environment, &mut bytes).map(|_| ());
    let what = "the rules have more than 64 different tests of bytes in packets";
    assert_eq!(error, Err(NotHere::Refused(what.to_string())));
}

#[test]
fn what_can_not_be_decided_is_named() {
    let known = environment(ROUTER);
    let unknown = environment("");
    let why = |text: &str, environment: &Environment| compile(text, environment, &mut ByteTests::default()).map(|_| ());
    let refuses = |text: &str, environment: &Environment, part: &str| match why(text, environment) {
        Err(NotHere::Refused(what)) => assert!(what.contains(part), "{what}"),
        other => panic!("{text}: {other:?}"),
    };
    refuses("-m addrtype --dst-type LOCAL", &unknown, "addrtype: the addresses of the router are not known");
    refuses("-m rpfilter", &unknown, "rpfilter: the routes of the router are not known");
    refuses("-m set --match-set other src", &known, "there is no set `other`");
    refuses("-m time --timestart 08:00 --kerneltz", &known, "time: the zone of the kernel");
    for text in [
        "-m set --match-set moving src",
        "-m limit --limit 1/s",
        "-m conntrack --ctstate NEW",
        "-p tcp -m connlimit --connlimit-above 3",
        "-m recent --set",
        "-m statistic --mode random --probability 0.5",
    ] {
        assert_eq!(why(text, &known), Err(NotHere::State), "{text}");
    }
}
