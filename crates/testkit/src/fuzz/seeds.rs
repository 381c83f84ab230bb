//! Seeds of the fuzzers: a few small inputs for each target.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::{env, fs, process};

use engine::carrier::Outer;
use functions::{conntrack, ddos, firewall, heavy_hitter, nat, policer, port_knock};
use nf::{Description, NetworkFunction};
use packet::{LinkType, Nanos, TcpFlags};
use port::pcap::{Container, Writer};

pub use super::functions::encode;
use crate::Build;
use crate::Frames;
use crate::carrier;

/// Writes the seeds of all targets, each to a folder with the target's name.
///
/// # Errors
/// If a file can't be written.
pub fn write(folder: &Path) -> io::Result<()> {
    let targets = [
        ("parse", frames()),
        ("functions", conversations()),
        ("config", configs()),
        ("capture", captures()?),
        ("carrier", sequenced()),
        ("rss", packet_sets()),
        ("cases", case_files()),
        ("efsm", programs()),
        ("iptables", rule_sets()),
        ("defrag", fragments()),
        ("identify", sessions()),
        ("stream", segments()),
        ("split", divided()),
    ];
    for (target, seeds) in targets {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number:02}")), seed)?;
        }
    }
    Ok(())
}

/// Programs of stages, each with a few packets.
fn programs() -> Vec<Vec<u8>> {
    let all = [
        "ports wan=0 lan=2\nstage restore\n  key biflow ip.src ip.dst l4.src l4.dst\n  states new=0 open=1\n\
         on new in=lan ip.dst=10.0.0.0/24 : state open idle 20s; r0 = ip.src; ip.src = 1.0.0.1; l4.src = 7; out wan\n\
         on open in!=lan eth.src!=02:00:00:00:00:01 : ip.dst = r0; out lan\n  on * ip.src=2001:db8::/32 : drop\n",
        "stage a\n  key ip.src\n  on * r0<3 : state 1 idle 5s -> 2 hard 1m; r0 = r0 + 1; out across # c\n  on 2 : r1 = ip.dst; drop\n",
        "ports a=1\nmeta m = bits 0..7\nstage s\n  global g = 7\n  on * in=a l4.src=2/0xff : m = g % 3; g = max(g, len); goto t\n\
         stage t\n  lookup l4.src m\n  update l4.dst m\n  contexts 9\n  preset 1, 2 : state = 3; r0 = 0x10\n\
         on 3 : state = state + 1; r0 = ewma(r0, len, 2); l4.dst = r0; out back\n  on * : out 1\n",
    ];
    let packets: Vec<u8> = (0..96_u8).map(|at| at.wrapping_mul(37)).collect();
    all.iter().map(|text| [text.as_bytes(), &[0], &packets].concat()).collect()
}

/// Streams, datagrams and signature files, each with its kind in front.
fn sessions() -> Vec<Vec<u8>> {
    let stream = |initiator: &[u8], responder: &[u8]| [&[0, initiator.len() as u8, 3], initiator, responder].concat();
    let datagram = |payload: &[u8]| [&[1, payload.len() as u8], payload].concat();
    let file = "# c\nprotocol mine test\nsource us\ntcp initiator 90 certain MINE[0-9]+\nudp either 50 guess len=4..9 size=be16@2+4 \\x01\\x02..\nmatch tcp initiator \"MINE1\"\nmiss udp responder 01 02*3 \"a\\r\\x41\"\n";
    vec![
        stream(b"GET /a HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", b"HTTP/1.1 101 a\r\n\r\n"),
        stream(b"EHLO a\r\nSTARTTLS\r\n", b"220 a ESMTP\r\n250-a\r\n250 STARTTLS\r\n220 go\r\n"),
        stream(b"\x05\x01\x00\x05\x01\x00\x01\x0a\0\0\x01\0\x50", b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0"),
        stream(b"a1 CAPABILITY\r\na2 STARTTLS\r\n", b"* OK IMAP4 ready\r\na1 OK\r\na2 OK go\r\n"),
        stream(&[&[22, 3, 1, 0, 60, 1, 0, 0, 56, 3, 3][..], &[7; 54]].concat(), b"\x16\x03\x03\x00\x04"),
        stream(b"\0\0\0\x08\x04\xd2\x16\x2f", b"S"),
        datagram(b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01"),
        datagram(&[&[0x80, 0, 0, 1, 0, 0, 0, 160, 0, 0, 0, 9][..], &[7; 20]].concat()),
        [&[2], file.as_bytes()].concat(),
    ]
}

/// Datagrams in fragments, in order and not, with copies and overlaps, for each policy and both limits.
fn fragments() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (number, (a, b)) in [(A4, B4), (A6, B6)].into_iter().enumerate() {
        let one = Build::udp(a, b).id(7).payload(150).fragments(if number == 0 { 68 } else { 96 });
        let other = Build::udp(b, a).id(8).payload(60).fragments(if number == 0 { 44 } else { 72 });
        let mut frames = Frames::default();
        for (index, frame) in one.iter().rev().chain(&other).enumerate() {
            frames.push(Nanos(1 << (20 + index)), frame);
        }
        frames.push(Nanos(1 << 40), &other[0]);
        all.push(frames);
        let mut overlaps = Frames::default();
        for (offset, more, len) in [(0, true, 24), (32, true, 16), (8, true, 32), (0, true, 24), (48, false, 9)] {
            overlaps.build(Nanos(1 << 20), &Build::udp(a, b).id(9).fragment(offset, more).payload(len));
        }
        all.push(overlaps);
    }
    let inputs = all.iter().map(encode).enumerate();
    inputs
        .flat_map(|(nth, input)| [nth as u8, nth as u8 | 0x80].map(|choice| [&[choice], &input[..]].concat()))
        .collect()
}

/// Segments and acknowledgments of one side: in order, in reverse, over each other, and with a gap that is acknowledged.
fn segments() -> Vec<Vec<u8>> {
    const LEN: u16 = 100;
    let segment = |kind: u8, at: u16, len: u16, other: u8| {
        let ([at, at_low], [len, len_low]) = (at.to_be_bytes(), len.to_be_bytes());
        [kind, at, at_low, len, len_low, other, 9]
    };
    let ahead = |order: &[u16]| {
        let all = order.iter().map(|number| segment(0, 1 + number * LEN, LEN + 30, (number % 2) as u8 * 8));
        [segment(1, 0, 0, 0)].into_iter().chain(all).chain([segment(2, 1 + 4 * LEN, 3, 0)]).flatten().collect()
    };
    let orders: [Vec<u8>; 3] = [ahead(&[0, 1, 2, 3]), ahead(&[3, 2, 1, 0]), ahead(&[2, 1, 2, 3, 1, 0])];
    let gap = [segment(1, 0, 0, 0), segment(0, 301, 2_000, 0), segment(4, 7_000, 50, 8), segment(0x80, 9_000, 0, 0)];
    let all = orders.into_iter().chain([gap.concat()]);
    all.enumerate()
        .map(|(nth, ops)| [&[nth as u8, 255, 11, 0, 255 * (nth as u8 & 1), 250], &ops[..]].concat())
        .collect()
}

/// Packets that are split, and headers that come back: in order, twice, changed, released, and after their payload was given up.
fn divided() -> Vec<Vec<u8>> {
    let frames = [
        Build::udp(A4, B4).payload(300).bytes(),
        Build::tcp(A4, B4).payload(700).bytes(),
        Build::udp(A6, B6).payload(200).bytes(),
        Build::tcp(A6, B6).vlan(5).payload(400).bytes(),
        Build::udp(A4, B4).payload(20).bytes(),
    ];
    let split = |frame: &Vec<u8>| {
        let [low, high] = (frame.len() as u16).to_le_bytes();
        [&[0, low, high], &frame[..]].concat()
    };
    let all: Vec<u8> = frames.iter().flat_map(split).collect();
    let back: Vec<u8> = (0..5).flat_map(|number| [2, number, 0]).collect();
    let odd = [3, 0, 40, 3, 1, 80, 4, 2, 0, 2, 2, 0, 2, 3, 0, 2, 3, 0];
    [[0, 7, 0, 0], [64, 1, 3, 1], [20, 15, 1, 2]]
        .into_iter()
        .flat_map(|options: [u8; 4]| {
            [[&options, &all[..], &back[..]].concat(), [&options, &all[..], &odd[..], &all[..], &back[..]].concat()]
        })
        .collect()
}

/// Rule sets, command lines and sets of addresses.
fn rule_sets() -> Vec<Vec<u8>> {
    let all = [
        "*nat\n:PREROUTING ACCEPT [1:2]\n:A - [0:0]\n[3:4] -A PREROUTING -i eth+ -p tcp -m tcp --dport 80:90 -j DNAT --to-destination 10.0.0.1-10.0.0.9:1-2/3\n-A A -j MASQUERADE --random\nCOMMIT\n",
        "*filter\n:A -\n-A INPUT ! -s 10.0.0.0/255.0.255.0,1/8 -m multiport --ports 1,2:3 -m limit --limit 5/min --limit-burst 9 -j A\n-I A 1 -m hashlimit --hashlimit-upto 10mb/s --hashlimit-mode srcip --hashlimit-name a -j LOG --log-prefix \"a \\\" b\"\n-R A 1 -m recent --update --seconds 3 -j REJECT\n-D A 1\nCOMMIT\n",
        "*mangle\n-A FORWARD -p icmp --icmp-type 3/1 -m time --timestart 1:2 --weekdays Mon -m u32 --u32 \"0>>22&0x3C@4=1:2,3&&6&0xFF=1\" -j MARK --set-mark 1/3\n-A FORWARD -m string --algo bm --hex-string \"a|00 ff|\" -m statistic --mode random --probability 0.3 -j TTL --ttl-dec 1\nCOMMIT\n",
        "#!/bin/sh\nsudo /sbin/iptables -t raw -A PREROUTING -m set --match-set a src,dst -j NOTRACK && iptables -N 'b c' \\\n ; ip6tables -P INPUT DROP\n",
        "ip6tables -A INPUT -p icmpv6 -m hl --hl-eq 255 -m frag --fragid 1:2 -m rt --rt-type 0 -m mh -d fe80::/10 -j REJECT --reject-with tcp-reset\n",
        "create a hash:ip,port family inet6 maxelem 9 timeout 3 counters comment\nadd a ::1,udp:53-60 timeout 1 packets 2 bytes 3 comment \"d e\"\ncreate b bitmap:ip range 10.0.0.0/24\nadd b 10.0.0.4-10.0.0.9\ncreate c list:set\nadd c b\ncreate d hash:net,iface\nadd d 0/0,physdev:x nomatch\ndel b 10.0.0.4-10.0.0.9\n",
    ];
    all.into_iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Case files, short ones with every kind of word.
fn case_files() -> Vec<Vec<u8>> {
    let case = |lines: &str| format!("function = \"a\"\n[[case]]\nname = \"b\"\npackets = '''\n{lines}\n'''\n");
    let all = [
        "0s udp 10.0.0.1:1 > 10.0.0.2:2 len 3 -> forward by 1 udp 10.0.0.1:9 > 10.0.0.2:2\n+1.5ms x3 every 1us on 1 arp # c\n1h hex 0102",
        "0s tcp [2001:db8::1]:1 > [2001:db8::2]:2 SFPU. seq 1 ack 2 window 3 mss 4 wscale 5 sack \"\\x0a\" -> reply tcp 10.0.0.1:1 > 10.0.0.2:2 R",
        "0s icmp 10.0.0.1 > 10.0.0.2 type 3 code 1 id 1 seq 2 quoting (udp 10.0.0.2:1 > 10.0.0.1:2) -> drop reason",
        "0s eth 02:00:00:00:00:01 > 02:00:00:00:00:02 vlan 3 ip 10.0.0.1 > 10.0.0.2 proto 50 ttl 1 tos 2 ip-id 3 fragment 8+ hex ff",
    ];
    let config = "function = \"a\"\n[[case]]\nname = \"b\"\nconfig.c = 1\nreport = [[\"d\"]]\npackets = '''0s arp'''\n";
    let files = all.into_iter().map(case).chain([config.to_owned()]);
    files.map(String::into_bytes).chain(frames()).collect()
}

/// Packet sets, in files and in lines.
fn packet_sets() -> Vec<Vec<u8>> {
    let all = [
        "types = [\"tcp4\", \"udp4\"]\n[vary]\nipv4 = 24\n[port.lan]\nfields = [\"src\"]\n[port.wan]\nfields = [\"dst\"]\n",
        "[port.0]\nfields = [\"five-tuple\"]\nsymmetric = true\nstate = \"a\"\nudp4 = [\"src\", \"sport\"]\n",
        "[port.bridge]\nfields = [\"smac\"]\n",
        "lan: src, wan: dst",
        "lan: src dst sport dport symmetric; wan: dst",
        "lan: sorc",
    ];
    all.map(|text| text.as_bytes().to_vec()).into()
}

const A4: &str = "10.0.0.1:40000";
const B4: &str = "192.0.2.1:80";
const A6: &str = "[2001:db8::a]:40000";
const B6: &str = "[2001:db8::b]:80";

/// One frame of every kind that the parser distinguishes.
fn frames() -> Vec<Vec<u8>> {
    let inside = Build::udp(A4, B4).payload(4);
    let vxlan = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &inside.bytes()].concat();
    let geneve = [&[0, 0, 0x65, 0x58, 0, 0, 5, 0][..], &inside.bytes()].concat();
    let gre = [&[0x20, 0, 8, 0, 0, 0, 0, 9][..], &inside.datagram()].concat();
    let mut all = vec![
        Build::tcp(A4, B4).flags(TcpFlags::SYN).mss(1460).sack_permitted().window_scale(7),
        Build::tcp(A4, B4).sack(&[(9, 20)]).payload(3).vlan(5),
        Build::tcp(A6, B6).service_vlan(3).vlan(4).payload(2),
        Build::udp(A4, B4).payload(9).pad_to(60),
        Build::udp(A4, B4).without_checksum().ip_options(&[7, 7, 4, 0, 0, 0, 0]),
        Build::udp(A6, B6).extension(0, &[1, 4]).extension(60, &[1, 4]),
        Build::tcp(A6, B6).extension(43, &[0, 1, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]),
        Build::udp(A4, B4).fragment(0, true).payload(32),
        Build::udp(A6, B6).fragment(64, false).payload(8),
        Build::echo(A4, B4, 7, 1),
        Build::echo_reply(A6, B6, 7, 1).payload(3),
        Build::icmp_error(B4, A4, 3, 1, &Build::tcp(A4, B4).datagram()),
        Build::icmp_error(B6, A6, 1, 4, &Build::udp(A6, B6).payload(4).datagram()),
        Build::ip(A4, B4, 132).data(&[0, 7, 0, 9, 0, 0, 0, 1, 1, 2, 3, 4, 1, 0, 0, 4]),
        Build::ip(A4, B4, 47).data(&gre),
        Build::ip(A4, B4, 4).data(&inside.datagram()),
        Build::udp(A4, "192.0.2.1:4789").data(&vxlan),
        Build::udp(A6, "[2001:db8::b]:6081").data(&geneve),
    ];
    for link in [LinkType::RawIp, LinkType::Null, LinkType::Loop, LinkType::LinuxSll, LinkType::LinuxSll2] {
        all.push(Build::tcp(A4, B4).link(link));
        all.push(Build::udp(A6, B6).link(link).payload(1));
    }
    let mut frames: Vec<_> = all.iter().map(Build::bytes).collect();
    frames.push(Build::arp());
    frames
}

/// Packets that take functions through their states.
fn conversations() -> Vec<Vec<u8>> {
    let second = |count: u64| Nanos(count << 30);
    let mut all = Vec::new();
    for (a, b) in [(A4, B4), (A6, B6)] {
        let mut tcp = Frames::default();
        tcp.build(second(1), &Build::tcp(a, b).flags(TcpFlags::SYN).seq(1).mss(1460).window_scale(7));
        tcp.build(second(1), &Build::tcp(b, a).flags(TcpFlags::SYN).seq(9).ack(2).window_scale(7));
        tcp.build(second(1), &Build::tcp(a, b).seq(2).ack(10).payload(40));
        tcp.build(second(2), &Build::tcp(b, a).seq(10).ack(42).payload(20));
        tcp.build(second(4), &Build::tcp(a, b).flags(TcpFlags::FIN).seq(42).ack(30));
        tcp.build(second(4), &Build::tcp(b, a).flags(TcpFlags::FIN).seq(30).ack(43));
        tcp.build(second(8), &Build::tcp(a, b).seq(43).ack(31));
        all.push(encode(&tcp));
        let mut udp = Frames::default();
        for number in 0..6 {
            udp.build(second(1 << number), &Build::udp(a, b).payload(16 * number));
            udp.build(second(1 << number), &Build::udp(b, a).payload(3));
        }
        udp.build(second(64), &Build::icmp_error(b, a, 3, 1, &Build::udp(a, b).payload(8).datagram()));
        all.push(encode(&udp));
    }
    let mut knocks = Frames::default();
    for port in ["192.0.2.1:7000", "192.0.2.1:8000", "192.0.2.1:9000", "192.0.2.1:22"] {
        knocks.build(second(1), &Build::tcp(A4, port).flags(TcpFlags::SYN));
    }
    knocks.build(second(2), &Build::echo(A4, B4, 7, 1));
    knocks.build(second(2), &Build::echo_reply(B4, A4, 7, 1));
    all.push(encode(&knocks));
    let mut translated = Frames::new(LinkType::RawIp);
    let raw = |build: Build| build.link(LinkType::RawIp);
    translated.build(second(1), &raw(Build::udp("10.0.0.1:4000", "192.0.2.9:53")));
    translated.build(second(1), &raw(Build::udp("192.0.2.9:53", "203.0.113.1:1024").payload(5)));
    translated.build(second(1), &raw(Build::tcp("10.0.0.2:5000", "203.0.113.1:1024").flags(TcpFlags::SYN)));
    translated.build(second(300), &raw(Build::tcp("10.0.0.2:5000", "192.0.2.9:80").flags(TcpFlags::RST)));
    all.push(encode(&translated));
    all.extend([resolving(), browsing()].iter().map(encode));
    all
}

/// DNS answers with and without addresses, and packets to some of the addresses.
fn resolving() -> Frames {
    let (client, resolver) = ("10.0.0.1:4000", "192.0.2.9:53");
    let message = |answers: u8, records: &[u8]| {
        let head = [0, 7, 0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0, 1, b'a', 3, b'n', b'e', b't', 0, 0, 1, 0, 1];
        [&head, records].concat()
    };
    let alias = [0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, b'b', 0xc0, 14];
    let address = |last: u8| [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, last];
    let mut frames = Frames::default();
    for last in 1..4 {
        let now = Nanos(u64::from(last) << 29);
        frames.build(now, &Build::udp(client, resolver).data(&message(0, &[])));
        let records = [&alias[..], &address(last), &address(last + 1)].concat();
        frames.build(now, &Build::udp(resolver, client).data(&message(3, &records)));
        frames.build(now, &Build::udp(resolver, client).data(&message(1, &alias)));
        frames.build(now, &Build::tcp(client, "192.0.2.2:80").flags(TcpFlags::SYN));
    }
    frames
}

/// Two clients with one cookie, and cacheable requests.
fn browsing() -> Frames {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: sid=01234567\r\nCache-Control: x\r\n\r\n";
    let response = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=9\r\nContent-Length: 7\r\n\r\nlonger ";
    let mut frames = Frames::default();
    for (number, client) in [A4, "10.0.0.2:40000", A4, "10.0.0.2:40000"].into_iter().enumerate() {
        let (now, seq) = (Nanos((number as u64 + 1) << 29), number as u32 * 100);
        frames.build(now, &Build::tcp(client, B4).seq(seq).data(request));
        frames.build(now, &Build::tcp(B4, client).seq(seq).data(response));
    }
    frames.build(Nanos(1 << 32), &Build::tcp(A4, B4).flags(TcpFlags::RST));
    frames
}

/// Packets to sequence, and sequenced packets.
fn sequenced() -> Vec<Vec<u8>> {
    let mut all: Vec<_> = conversations()
        .into_iter()
        .zip([[1, 2, 3, 0, 1], [0x82, 1, 20, 0, 0x80], [3, 4, 60, 1, 7], [0, 0, 14, 0, 0xff], [0x81, 3, 90, 0, 0x10]])
        .map(|(packets, head)| [&head[..], &packets].concat())
        .collect();
    let nf = Arc::new(ddos::Ddos::new(&ddos::Config::default()));
    let mut frames = Frames::default();
    for number in 0..5 {
        frames.build(Nanos(number), &Build::udp(A4, B4).payload(number as usize));
    }
    for (cores, outer) in [(2, Outer::None), (4, Outer::Ethernet)] {
        let trace = carrier::sequenced(&nf, &frames.trace(), cores, outer).expect("its times are early");
        all.extend(trace.iter().map(|(_, bytes)| bytes.to_vec()));
    }
    all
}

/// The defaults of every function, and values from its page.
fn configs() -> Vec<Vec<u8>> {
    let defaults = |description: Description| {
        let lines: Vec<_> = description.keys.iter().map(|key| format!("{} = {}\n", key.name, key.default)).collect();
        lines.concat().into_bytes()
    };
    let mut all = vec![
        defaults(firewall::Firewall::DESCRIPTION),
        defaults(nat::Nat::DESCRIPTION),
        defaults(conntrack::Conntrack::DESCRIPTION),
        defaults(policer::Policer::DESCRIPTION),
        defaults(ddos::Ddos::DESCRIPTION),
        defaults(heavy_hitter::HeavyHitter::DESCRIPTION),
        defaults(port_knock::PortKnock::DESCRIPTION),
    ];
    all.push(b"inside = [\"2001:db8::/32\", \"10.0.0.0/8\"]\n[[allow]]\nproto = \"tcp\"\nport = 22\n".to_vec());
    all.push(b"external = [\"198.51.100.0/30\"]\nports = \"1-65535\"\nfiltering = \"address-dependent\"\n".to_vec());
    all.push(b"rate = \"2.5Gbit\"\nburst = 1000000000\nper = \"source\"\n".to_vec());
    all.push(b"window = 0\nthreshold = 4294967295\ntop = 0\n[timeouts]\nudp = 30\n".to_vec());
    all
}

/// A short capture in both formats, plain and compressed.
fn captures() -> io::Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for (ending, container) in [
        ("pcap", Container::Pcap),
        ("pcap.gz", Container::Pcap),
        ("pcapng", Container::PcapNg),
        ("pcapng.zst", Container::PcapNg),
    ] {
        let path = env::temp_dir().join(format!("millrace-seed-{}.{ending}", process::id()));
        let mut writer = Writer::create(&path, Some(container), None).map_err(io::Error::other)?;
        for number in 0..3 {
            let bytes = Build::udp(A4, B4).payload(number).bytes();
            let time = Nanos(1_700_000_000_000_000_000 + number as u64);
            let packet = Frames::descriptor(LinkType::Ethernet, number, time, &bytes);
            writer.write(&packet, &bytes).map_err(io::Error::other)?;
        }
        writer.finish().map_err(io::Error::other)?;
        all.push(fs::read(&path)?);
        fs::remove_file(&path)?;
    }
    all.push(big_endian());
    Ok(all)
}

/// A pcapng with the other byte order, a simple packet, and its own time resolution.
fn big_endian() -> Vec<u8> {
    let mut out = Vec::new();
    let words: [u32; 7] = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX, 28];
    let interface: [u32; 8] = [1, 32, 0x0001_0000, 0, 0x0009_0001, 0x8a00_0000, 0, 32];
    let simple: [u32; 5] = [3, 20, 4, 0x4500_0014, 20];
    let enhanced: [u32; 9] = [6, 36, 0, 1, 0x8000_0000, 4, 60, 0x4500_0014, 36];
    for word in words.into_iter().chain(interface).chain(simple).chain(enhanced) {
        out.extend(word.to_be_bytes());
    }
    out
}
