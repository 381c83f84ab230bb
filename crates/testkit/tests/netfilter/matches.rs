//! Matches of iptables that need no state, compared with the kernel's: which rules count a packet in PREROUTING.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use functions::rules::bytes::ByteTests;
use functions::rules::router::{Paths, Router};
use functions::rules::sets::SetContents;
use functions::rules::test::{Environment, Test};
use functions::rules::view::{NO_INTERFACE, View};
use iptables::{Family, Options, Rule, Sets, parse};
use millrace_testkit::netns::{Namespace, Wire, missing};
use packet::{Checksum, Fragment, Headers, LinkType, Nanos, Network, Transport};
use synth::Rng;

const ROUTER: &str = r#"
[[interface]]
name = "r0"
port = 0
addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]
[[interface]]
name = "r1"
port = 1
addresses = ["198.51.100.7/28", "2001:db8:2::1/64"]
[[route]]
to = "10.0.0.0/8"
via = "192.0.2.254"
interface = "r0"
[[route]]
to = "10.9.0.0/16"
kind = "blackhole"
[[route]]
to = "11.0.0.0/8"
via = "198.51.100.1"
interface = "r1"
[[route]]
to = "2001:db8:3::/48"
via = "2001:db8:1::9"
interface = "r0"
[[route]]
to = "2001:db8:4::/48"
kind = "prohibit"
"#;

/// What each rule tests, of both families.
const BOTH: &str = "
-p tcp --dport 80
-p tcp ! --dport 80
-p tcp --sport 1000:2000 --dport 22:80
-p tcp --syn
-p tcp ! --syn
-p tcp --tcp-flags ALL SYN,ACK
-p tcp --tcp-flags SYN,FIN,RST NONE
-p tcp --tcp-option 2
-p tcp ! --tcp-option 5
-p tcp --tcp-option 8
-p tcp -m multiport --dports 22,80:90
-p tcp -m multiport ! --ports 80
-p udp -m multiport --sports 1000:1500,53
-p udp --dport 53
-p udp ! --sport 1000:1500
-p tcp -m tcpmss --mss 1000:1460
-p tcp -m tcpmss ! --mss 1000:1460
-p tcp -m ecn --ecn-tcp-ece
-p tcp -m ecn ! --ecn-tcp-cwr
-m ecn --ecn-ip-ect 1
-m ecn ! --ecn-ip-ect 0
-m length --length 60:200
-m length ! --length 40
-m dscp --dscp 46
-m dscp ! --dscp 0
-m tos --tos 0x10/0x1c
-m mark --mark 0
-m mark ! --mark 0/0xf
-m pkttype --pkt-type unicast
-m pkttype --pkt-type multicast
-m pkttype ! --pkt-type broadcast
-m mac --mac-source 02:00:5e:01:02:03
-m mac ! --mac-source 02:00:5e:01:02:03
-m rpfilter
-m rpfilter --loose
-m rpfilter --invert
-m rpfilter --accept-local
-m addrtype --src-type LOCAL
-m addrtype --dst-type LOCAL
-m addrtype --dst-type UNICAST
-m addrtype --dst-type MULTICAST
-m addrtype ! --dst-type UNICAST
-m addrtype --dst-type LOCAL --limit-iface-in
-m addrtype --dst-type ANYCAST
-m addrtype --dst-type UNREACHABLE
-m addrtype --src-type UNICAST --dst-type UNICAST,LOCAL
-m physdev --physdev-is-in
-m physdev ! --physdev-is-in
-m string --algo bm --string abca
-m string --algo kmp --string ABCA --icase
-m string --algo bm --string abca --to 60
-m string --algo bm --string abca --from 62
-m string --algo kmp ! --hex-string |616263|
-m u32 --u32 0>>28=4
-m u32 --u32 0&0xffff=0:100
-m u32 --u32 40=0:0x7fffffff
-m u32 ! --u32 0>>22&0x3c@0>>16=1000:1500
-m u32 --u32 6&0xff=6&&32=0:0x7fffffff
-p sctp --dport 80
-p sctp --chunk-types any DATA
-p sctp --chunk-types all DATA,SACK
-p sctp --chunk-types only DATA:be,SACK
-p sctp ! --chunk-types only DATA
-p dccp --dport 80
-p dccp --dccp-types REQUEST,DATA
-p dccp ! --dccp-types REQUEST
-p esp -m esp --espspi 0:1000
-p esp -m esp ! --espspi 0:1000
-p ipcomp -m ipcomp --ipcompspi 0:1000
-m time --weekdays Mon,Tue,Wed,Thu,Fri,Sat,Sun
-m time --datestop 2001-01-01
-m comment --comment all
";

const V4: &str = "
-p icmp --icmp-type 8
-p icmp ! --icmp-type 3/1
-p icmp --icmp-type any
-m ttl --ttl-lt 64
-m ttl ! --ttl-eq 64
-m ttl --ttl-gt 63
-m iprange --src-range 10.0.0.5-10.128.0.0
-m iprange ! --dst-range 192.0.2.0-192.0.2.9
-p ah -m ah --ahspi 0:1000
-m addrtype --dst-type BROADCAST
-m addrtype --dst-type BLACKHOLE,PROHIBIT
";

const V6: &str = "
-p icmpv6 --icmpv6-type 128
-p icmpv6 ! --icmpv6-type 1/4
-m hl --hl-lt 64
-m hl ! --hl-eq 64
-m iprange --src-range 2001:db8:1::5-2001:db8:3::
-m ah --ahspi 0:1000
-m ah --ahlen 24 --ahres
-m frag --fragid 0:1000
-m frag --fragfirst
-m frag --fragmore --fragres
-m frag --fraglast --fraglen 7
-m hbh
-m hbh --hbh-len 8 --hbh-opts 5
-m hbh ! --hbh-len 8
-m dst --dst-opts 1:4
-m dst --dst-opts 1,1
-m rt --rt-type 0 --rt-segsleft 0
-m rt ! --rt-type 2
-m rt --rt-type 0 --rt-0-addrs 2001:db8::7,2001:db8::8
-m rt --rt-type 0 --rt-0-addrs 2001:db8::8 --rt-0-not-strict
-p ipv6-mh -m mh --mh-type 5:6
-m ipv6header --header prot
-m ipv6header --header dst,prot --soft
-m ipv6header ! --header frag,hop --soft
-m ipv6header ! --header prot
-m eui64
";

/// The beginning of each rule. Packets that the router sends to itself are not counted.
const RULE: [&str; 6] = ["-t", "raw", "-A", "PREROUTING", "-i", "r0"];

/// Frames of each family.
const FRAMES: usize = 200;

#[test]
fn matches_without_state_are_the_kernels() {
    for (family, own) in [(Family::V4, V4), (Family::V6, V6)] {
        let restore = format!("{}-legacy-restore", family.command());
        if let Some(missing) = missing(&["ip", "ethtool", &restore]) {
            eprintln!("SKIPPED (needs root / ip / ethtool / iptables: no {missing})");
            return;
        }
        let texts: Vec<&str> = BOTH.lines().chain(own.lines()).filter(|line| !line.is_empty()).collect();
        compare(family, &texts);
    }
}

/// Links interface number `nth` of both: a wire without offloads.
fn link(router: &Namespace, host: &Namespace, nth: &str) -> io::Result<()> {
    let (near, far) = (format!("r{nth}"), format!("h{nth}"));
    router.ip(&["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", host.name()])?;
    for (namespace, interface) in [(router, &near), (host, &far)] {
        namespace.ip(&["link", "set", interface, "addrgenmode", "none"])?;
        let off = ["-K", interface, "tx", "off", "rx", "off", "gro", "off", "gso", "off", "tso", "off"];
        namespace.run("ethtool", &off)?;
        namespace.ip(&["link", "set", interface, "arp", "off", "up"])?;
    }
    Ok(())
}

fn compare(family: Family, texts: &[&str]) {
    let label = family.command();
    let (router, host) = (namespace(&format!("{label}-r")), namespace(&format!("{label}-h")));
    for nth in ["0", "1"] {
        let link = link(&router, &host, nth);
        link.unwrap_or_else(|error| panic!("the namespaces can't be linked: {error}"));
    }
    for line in [
        "addr add 192.0.2.1/24 dev r0",
        "addr add 198.51.100.7/28 dev r1",
        "-6 addr add 2001:db8:1::1/64 dev r0 nodad",
        "-6 addr add 2001:db8:2::1/64 dev r1 nodad",
        "route add 10.0.0.0/8 via 192.0.2.254",
        "route add blackhole 10.9.0.0/16",
        "route add 11.0.0.0/8 via 198.51.100.1",
        "-6 route add 2001:db8:3::/48 via 2001:db8:1::9 dev r0",
        "-6 route add prohibit 2001:db8:4::/48",
    ] {
        router.ip(&line.split(' ').collect::<Vec<_>>()).unwrap_or_else(|error| panic!("ip {line}: {error}"));
    }
    for (name, value) in [
        ("ipv4.conf.all.rp_filter", 0),
        ("ipv4.conf.r0.rp_filter", 0),
        ("ipv6.conf.all.forwarding", 1),
        ("ipv4.ip_forward", 1),
    ] {
        router
            .run("sysctl", &["-qw", &format!("net.{name}={value}")])
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let command = format!("{label}-legacy");
    let mut rules = Vec::new();
    for text in texts {
        let line = format!("{label} -t raw -A PREROUTING {}", quoted(text));
        let parsed = parse(&line, &Options::default());
        let parsed = parsed.unwrap_or_else(|errors| panic!("{line}: {errors}"));
        let table = &parsed.rules.tables[0];
        let rule = table.chain("PREROUTING").expect("it is a chain of the table").rules[0].clone();
        let words: Vec<&str> = text.split(' ').collect();
        let words = joined(&words);
        let given: Vec<&str> = RULE.into_iter().chain(words.iter().map(String::as_str)).collect();
        match router.run(&command, &given) {
            Ok(_) => rules.push((*text, rule)),
            Err(error) => eprintln!("{text}: this kernel has no such match: {error}"),
        }
    }
    assert!(rules.len() * 2 > texts.len(), "the kernel takes most rules");
    // What the router answers may come back to it.
    router.run(&command, &["-t", "raw", "-A", "OUTPUT", "-j", "DROP"]).expect("the rule is taken");
    router.run(&command, &RULE).expect("a rule that counts is taken");

    let paths = Paths::new(&toml::from_str::<Router>(ROUTER).expect("it is well-formed")).expect("it is right");
    let sets = SetContents::new(&Sets::default(), &paths, &BTreeSet::new()).expect("they are right");
    let environment = Environment { paths, sets };
    let mut bytes = ByteTests::default();
    let compiled: Vec<(&str, Rule, Vec<Test>)> = rules
        .into_iter()
        .map(|(text, rule)| {
            let compile = |given: &iptables::Located<iptables::Match>| {
                Test::of(&given.value, family, &environment, &mut bytes).unwrap_or_else(|why| panic!("{text}: {why:?}"))
            };
            let tests = rule.matches.iter().flat_map(compile).collect();
            (text, rule, tests)
        })
        .collect();

    let to = mac_of(&router);
    let wire = host.enter(|| Wire::open("h0").expect("the wire is there"));
    let mut rng = Rng::new(7);
    let mut before = counts(&router, &command);
    let (mut compared, mut dropped) = (0, 0);
    for _ in 0..FRAMES {
        let frame = frame(&mut rng, family, to);
        let Ok(headers) = packet::parse(LinkType::Ethernet, &frame, frame.len() as u32, 0) else { continue };
        wire.send(&frame).expect("the wire takes it");
        let deadline = Instant::now() + Duration::from_millis(20);
        let after = loop {
            let after = counts(&router, &command);
            let is_through = after.last() > before.last();
            if is_through || Instant::now() > deadline {
                break after;
            }
            sleep(Duration::from_millis(1));
        };
        if after.last() == before.last() {
            // The IP layer or a match has dropped it.
            dropped += 1;
            before = after;
            continue;
        }
        let view = View { bytes: bytes.evaluate(&headers, &frame), ..view_of(&headers) };
        for (nth, (text, rule, tests)) in compiled.iter().enumerate() {
            // The kernel takes the data of a later fragment for a TCP header here.
            let reads_data = text.contains("tcpmss") || text.contains("ecn-tcp");
            if reads_data && headers.fragment == Fragment::Later {
                continue;
            }
            let protocol =
                rule.protocol.as_ref().is_none_or(|wanted| wanted.holds(wanted.value.value == view.protocol));
            let ours = protocol && tests.iter().all(|test| test.holds(&view, &environment));
            let kernel = after[nth] > before[nth];
            assert_eq!(ours, kernel, "{label} {text}: the kernel says {kernel}\n{headers:?}\n{frame:02x?}");
        }
        compared += 1;
        before = after;
    }
    eprintln!("{label}: {} rules, {compared} packets compared, {dropped} dropped by the kernel", compiled.len());
    assert!(compared > FRAMES / 3, "{compared} of {FRAMES} packets reached the last rule");
}

fn namespace(label: &str) -> Namespace {
    Namespace::new(label).unwrap_or_else(|error| panic!("the namespace can't be made: {error}"))
}

/// The words of a rule for our parser.
fn quoted(text: &str) -> String {
    text.split(' ')
        .map(|word| if word.contains(['|', '&', '>']) { format!("\"{word}\"") } else { word.to_owned() })
        .collect::<Vec<_>>()
        .join(" ")
}

fn joined(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The packets that each rule of PREROUTING has counted.
fn counts(router: &Namespace, command: &str) -> Vec<u64> {
    let text = router.run(command, &["-t", "raw", "-v", "-S", "PREROUTING"]).expect("the rules are there");
    let rules = text.lines().filter(|line| line.starts_with("-A"));
    rules
        .map(|line| {
            let at = line.rfind("-c ").expect("rules are printed with counters");
            line[at + 3..].split(' ').next().and_then(|packets| packets.parse().ok()).expect("it is a number")
        })
        .collect()
}

fn mac_of(router: &Namespace) -> [u8; 6] {
    let text = router.run("cat", &["/sys/class/net/r0/address"]).expect("the interface is there");
    let mut bytes = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).expect("it is a byte"));
    [(); 6].map(|()| bytes.next().expect("it has six bytes"))
}

fn view_of(headers: &Headers) -> View {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    };
    let (src, dst) = headers.addresses().expect("it is IP");
    let (len, ttl, tos) = match headers.network {
        Network::V4(ip) => (ip.total_len, ip.ttl, ip.tos),
        Network::V6(ip) => (ip.payload_len + 40, ip.hop_limit, ip.traffic_class),
        _ => panic!("it is IP"),
    };
    let (mut tcp_flags, mut mss, mut icmp) = (0, 0, (0, 0));
    match headers.transport {
        Transport::Tcp(tcp) => (tcp_flags, mss) = (tcp.flags.0, tcp.options.mss.unwrap_or(0)),
        Transport::Icmp(given) => icmp = (given.kind, given.code),
        Transport::Udp { .. } | Transport::Sctp { .. } | Transport::None => {}
    }
    let is_icmp = matches!(headers.transport, Transport::Icmp(_));
    let (src_port, dst_port) = if is_icmp { (0, 0) } else { headers.ports() };
    View {
        src: number(src),
        dst: number(dst),
        bytes: 0,
        // The present, nearly.
        time: Nanos::from_secs(1_780_000_000),
        mark: 0,
        src_port,
        dst_port,
        len,
        mss,
        is_v6: src.is_ipv6(),
        protocol: headers.protocol,
        tcp_flags,
        icmp_kind: icmp.0,
        icmp_code: icmp.1,
        ttl,
        tos,
        fragment: headers.fragment,
        has_transport: headers.transport != Transport::None,
        input: 0,
        output: NO_INTERFACE,
    }
}

/// One of the choices.
fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

/// A frame to the router that is likely to meet the rules.
fn frame(rng: &mut Rng, family: Family, to: [u8; 6]) -> Vec<u8> {
    let (protocol, payload) = transport(rng, family);
    let ip = if family == Family::V4 { v4(rng, protocol, &payload) } else { v6(rng, protocol, payload) };
    let to = pick(rng, &[to, to, to, [0xff; 6], [0x33, 0x33, 0, 0, 0, 1]]);
    let from = pick(rng, &[[2, 0, 0x5e, 1, 2, 3], [2, 0, 0x5e, 1, 2, 4]]);
    let kind: [u8; 2] = if family == Family::V4 { [8, 0] } else { [0x86, 0xdd] };
    [&to[..], &from, &kind, &ip].concat()
}

fn transport(rng: &mut Rng, family: Family) -> (u8, Vec<u8>) {
    let data = pick(rng, &[&b""[..], b"abcabca", b"xxABCAyy", b"ababcabca ABCA", b"0123456789012345678901234567abca"]);
    let port = |rng: &mut Rng| pick(rng, &[22_u16, 80, 53, 1_000, 1_200, 2_001]).to_be_bytes();
    let ports = [port(rng), port(rng)].concat();
    match rng.below(9) {
        0..=2 => {
            let options: &[u8] = pick(
                rng,
                &[
                    &[][..],
                    &[2, 4, 5, 0xb4],
                    &[2, 4, 2, 0, 1, 1, 5, 2],
                    &[8, 10, 2, 4, 5, 0xb4, 0, 0, 0, 0, 1, 1],
                    &[3, 3, 7, 0],
                ],
            );
            // Options of a SYN alone are read, and those of other segments have no maximum size.
            let syn = pick(rng, &[0x02, 0x12, 0xc2, 0x42]);
            let flags =
                if options.first() == Some(&2) { syn } else { pick(rng, &[0x10, 0x18, 0x11, 0x04, 0x50, 0x90, syn]) };
            let mut header = [
                &ports[..],
                &[0, 0, 0, 1, 0, 0, 0, 2],
                &[((20 + options.len()) / 4 * 16) as u8, flags, 1, 0, 0, 0, 0, 0],
                options,
            ]
            .concat();
            header.extend_from_slice(data);
            (6, header)
        }
        3 => (17, [&ports[..], &(8 + data.len() as u16).to_be_bytes(), &[0, 0], data].concat()),
        4 => {
            let kind = if family == Family::V4 { pick(rng, &[8, 0, 3]) } else { pick(rng, &[128, 129, 1]) };
            let code = pick(rng, &[0, 1, 4]);
            let (protocol, kind) = if family == Family::V4 { (1, kind) } else { (58, kind) };
            (protocol, [&[kind, code, 0, 0, 0, 1, 0, 1][..], &[0; 20]].concat())
        }
        5 => {
            let data = [0, pick(rng, &[0, 3, 4]), 0, 7, 1, 2, 3, 0];
            let sack = [3, 0, 0, 4];
            let chunks = pick(rng, &[&data[..], &sack]);
            let more = pick(rng, &[&[][..], &sack, &[1, 0, 0, 4]]);
            (132, [&ports[..], &[0; 8], chunks, more].concat())
        }
        6 => (33, [&ports[..], &[5, 0, 0, 0, pick(rng, &[1, 5, 0x0f]), 0, 0, 1, 0, 0, 0, 9, 33, 3, 0, 0]].concat()),
        7 => (pick(rng, &[50, 108]), [&pick(rng, &[[0, 0, 1, 0], [1, 0, 0, 9], [6, 0, 9, 9]])[..], &[0; 12]].concat()),
        _ if family == Family::V4 => {
            (51, [&[17, 4, 0, 0, 0, 0, pick(rng, &[1, 9]), 0][..], &[0; 16], &ports, &[0, 8, 0, 0]].concat())
        }
        _ => (135, [59, 0, pick(rng, &[5, 7]), 0, 0, 0, 0, 0].to_vec()),
    }
}

fn v4(rng: &mut Rng, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let src = pick(
        rng,
        &[
            [10, 0, 0, 7],
            [10, 9, 0, 1],
            [11, 0, 0, 1],
            [192, 0, 2, 9],
            [192, 0, 2, 1],
            [198, 51, 100, 7],
            [9, 9, 9, 9],
            [192, 0, 2, 255],
        ],
    );
    let dst = pick(
        rng,
        &[
            [192, 0, 2, 1],
            [198, 51, 100, 7],
            [10, 0, 0, 9],
            [224, 0, 0, 5],
            [192, 0, 2, 255],
            [255, 255, 255, 255],
            [10, 9, 1, 1],
            [9, 9, 9, 9],
            [198, 51, 100, 15],
        ],
    );
    let field: [u8; 2] = pick(rng, &[[0x40, 0], [0, 0], [0, 0], [0x20, 0], [0, 3]]);
    let len = (20 + payload.len() as u16).to_be_bytes();
    let tos = pick(rng, &[0, 0xb8, 0x11, 0x02, 0x13]);
    let mut ip = [
        &[0x45, tos, len[0], len[1], 0, 1, field[0], field[1], pick(rng, &[1, 63, 64, 255]), protocol, 0, 0][..],
        &src,
        &dst,
    ]
    .concat();
    let mut sum = Checksum::default();
    sum.add(&ip);
    ip[10..12].copy_from_slice(&sum.value().to_be_bytes());
    ip.extend_from_slice(payload);
    ip
}

fn v6(rng: &mut Rng, protocol: u8, payload: Vec<u8>) -> Vec<u8> {
    let net = |third: u8, last: [u8; 8]| [&[0x20, 1, 0xd, 0xb8, 0, third, 0, 0][..], &last].concat();
    let host = [0, 0, 0, 0, 0, 0, 0, 9];
    let sources = [
        net(1, host),
        net(1, [0, 0, 0x5e, 0xff, 0xfe, 1, 2, 3]),
        net(2, host),
        net(3, host),
        net(4, host),
        net(9, host),
        net(1, [0, 0, 0, 0, 0, 0, 0, 1]),
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9].to_vec(),
    ];
    let src = sources[rng.below(sources.len() as u64) as usize].clone();
    let goals = [
        net(1, host),
        net(1, [0, 0, 0, 0, 0, 0, 0, 1]),
        net(2, [0, 0, 0, 0, 0, 0, 0, 1]),
        net(1, [0; 8]),
        net(3, host),
        net(4, host),
        net(9, host),
        [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].to_vec(),
    ];
    let dst = goals[rng.below(goals.len() as u64) as usize].clone();
    let address = |last: u8| net(0, [0, 0, 0, 0, 0, 0, 0, last]);
    let (mut next, mut rest) = (protocol, payload);
    let mut wrap = |kind: u8, rest_of: Vec<u8>| {
        rest = [&[next][..], &rest_of, &rest].concat();
        next = kind;
    };
    // Headers from the inside outwards.
    if rng.below(4) == 0 {
        wrap(51, [&[4, 0, pick(rng, &[0, 1]), 0, 0, pick(rng, &[1, 9]), 0][..], &[0; 16]].concat());
    }
    if rng.below(3) == 0 {
        wrap(60, pick(rng, &[[0, 1, 4, 0, 0, 0, 0], [0, 1, 1, 0, 1, 1, 0]]).to_vec());
    }
    if rng.below(3) == 0 {
        let field: [u8; 2] = pick(rng, &[[0, 0], [0, 1], [0, 8], [0, 3], [1, 1]]);
        wrap(44, [0, field[0], field[1], 0, 0, pick(rng, &[1, 9]), 0].to_vec());
    }
    if rng.below(3) == 0 {
        let kind = pick(rng, &[0, 0, 2]);
        let addresses = [&address(7)[..], &address(8)].concat();
        wrap(43, [&[4, kind, pick(rng, &[0, 0, 1]), 0, 0, 0, 0][..], &addresses].concat());
    }
    if rng.below(4) == 0 {
        wrap(0, pick(rng, &[[0, 5, 2, 0, 0, 1, 0], [0, 1, 4, 0, 0, 0, 0]]).to_vec());
    }
    let len = (rest.len() as u16).to_be_bytes();
    let class = pick(rng, &[0, 0xb8_u8, 0x11, 0x02]);
    let head = [0x60 | class >> 4, class << 4, 0, 0, len[0], len[1], next, pick(rng, &[1, 63, 64, 255])];
    [&head[..], &src, &dst, &rest].concat()
}
