//! The tunnel detector against its model over random traces around its window; over real captures of tunnels and of ordinary
//! resolving; and under every engine.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::mem::take;
use std::net::IpAddr;
use std::sync::Arc;

use engine::{Control, EngineKind, Options, run};
use functions::dns_tunnel::DnsTunnel;
use lab::conformance::{Plan, verify};
use nf::{NetworkFunction, Report, Verdict};
use packet::{Nanos, TcpFlags};
use port::MemoryQueue;
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::{DnsTunnelModel, compare};
use testkit::{Build, Driver, Frames, Rng, captures};

use crate::conformance::read;

const SECOND: u64 = 1_000_000_000;
const TXT: u16 = 16;

fn configured(text: &str) -> DnsTunnel {
    DnsTunnel::new(toml::from_str(text).expect("the test's own configuration"))
}

/// A response to a query for the name of this number, of this type: an alias, then the addresses, or text where there are none.
fn response(name: u32, asked: u16, addresses: &[IpAddr]) -> Vec<u8> {
    let answers = 1 + addresses.len().max(1) as u16;
    let mut message = vec![0, 7, 0x81, 0x80, 0, 1];
    message.extend(answers.to_be_bytes());
    message.extend([0, 0, 0, 0]);
    let host = if name.is_multiple_of(2) { "www" } else { "WwW" };
    message.extend(format!("\x03{host}\x07e{:06}\x03net\0", name / 2).into_bytes());
    message.extend(asked.to_be_bytes());
    message.extend([0, 1]);
    let mut record = |kind: u16, data: &[u8]| {
        message.extend([0xc0, 12]);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1, 0, 0, 1, 0]);
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(data);
    };
    record(5, b"\x03cdn\xc0\x10");
    for address in addresses {
        match address {
            IpAddr::V4(address) => record(1, &address.octets()),
            IpAddr::V6(address) => record(28, &address.octets()),
        }
    }
    if addresses.is_empty() {
        record(TXT, b"\x04data");
    }
    message
}

fn client(number: u8, v6: bool) -> String {
    if v6 { format!("[2001:db8:1::{number}]:4000") } else { format!("10.0.0.{number}:4000") }
}

/// Addresses of both families that are answered, one that nobody can use among them.
fn address(number: u8) -> IpAddr {
    let text = match number {
        0 => "0.0.0.0".into(),
        1..8 => format!("198.51.100.{number}"),
        _ => format!("2001:db8:2::{number}"),
    };
    text.parse().expect("it is an address")
}

/// A connection of a client to a resolver.
struct Connection {
    client: String,
    resolver: String,
    /// The sequence numbers that the client and the resolver send next.
    next: [u32; 2],
    /// What the resolver has said and not yet sent: sequence numbers and bytes.
    late: Vec<(u32, Vec<u8>)>,
}

impl Connection {
    /// Opens it. The resolver's sequence numbers wrap around soon.
    fn open(frames: &mut Frames, now: Nanos, client: &str, resolver: &str) -> Self {
        let (client, resolver) = (client.to_string(), resolver.to_string());
        let opened = Self { client, resolver, next: [1_000, u32::MAX - 60], late: Vec::new() };
        let [own, other] = opened.next.map(|next| next.wrapping_sub(1));
        frames.build(now, &Build::tcp(&*opened.client, &*opened.resolver).flags(TcpFlags::SYN).seq(own));
        let answer = opened.resolver(other).flags(TcpFlags::SYN.with(TcpFlags::ACK)).ack(opened.next[0]);
        frames.build(now, &answer);
        frames.build(now, &opened.client());
        opened
    }

    fn client(&self) -> Build {
        // All before the first byte that is late has come.
        let came = self.late.iter().map(|(seq, _)| self.next[1].wrapping_sub(*seq)).max().unwrap_or(0);
        Build::tcp(&*self.client, &*self.resolver).seq(self.next[0]).ack(self.next[1].wrapping_sub(came))
    }

    fn resolver(&self, seq: u32) -> Build {
        Build::tcp(&*self.resolver, &*self.client).seq(seq).ack(self.next[0])
    }

    /// The client asks, and the resolver says these bytes in pieces of at most so many bytes, in any order, some of them twice. The last
    /// `late` pieces come with the next ones.
    fn say(&mut self, frames: &mut Frames, now: Nanos, bytes: &[u8], piece: usize, late: usize, rng: &mut Rng) {
        let question = b"\0\x02??";
        frames.build(now, &self.client().data(question));
        self.next[0] = self.next[0].wrapping_add(question.len() as u32);
        let mut pieces = take(&mut self.late);
        for part in bytes.chunks(piece) {
            pieces.push((self.next[1], part.to_vec()));
            self.next[1] = self.next[1].wrapping_add(part.len() as u32);
        }
        for at in (1..pieces.len()).rev() {
            pieces.swap(at, rng.below(at as u64 + 1) as usize);
        }
        self.late = pieces.split_off(pieces.len().saturating_sub(late));
        for (seq, part) in &pieces {
            for _ in 0..1 + u8::from(rng.chance(0.2)) {
                frames.build(now, &self.resolver(*seq).data(part));
            }
        }
        frames.build(now, &self.client());
    }

    fn close(&mut self, frames: &mut Frames, now: Nanos) {
        for (seq, part) in take(&mut self.late) {
            frames.build(now, &self.resolver(seq).data(&part));
        }
        let last = TcpFlags::FIN.with(TcpFlags::ACK);
        frames.build(now, &self.client().flags(last));
        self.next[0] = self.next[0].wrapping_add(1);
        frames.build(now, &self.resolver(self.next[1]).flags(last));
        self.next[1] = self.next[1].wrapping_add(1);
        frames.build(now, &self.client());
    }
}

/// Messages as they are over TCP.
fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
    messages.iter().flat_map(|message| [&(message.len() as u16).to_be_bytes(), message.as_slice()].concat()).collect()
}

/// Few clients, answers from few addresses over UDP and TCP, and packets mostly to these.
fn trace() -> impl Strategy<Value = Frames> {
    let gap = prop_oneof![
        8 => Just(0),
        2 => (1..4_u64).prop_map(|halves| halves * SECOND / 2),
        2 => (1..7_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ];
    let packet = (0..15_u8, (1..4_u8, any::<bool>(), 0..12_u32), vec(0..14_u8, 0..11), any::<(usize, u8)>());
    vec((gap, packet), 1..200).prop_map(|packets| {
        let mut frames = Frames::default();
        let (mut now, mut open, mut port) = (17 * SECOND, HashMap::new(), 20_000);
        for (gap, (kind, (number, v6, name), reported, (at, byte))) in packets {
            now += gap;
            let (client, resolver) = (client(number, v6), if v6 { "[2001:db8::53]:53" } else { "192.0.2.53:53" });
            let addresses: Vec<_> = reported.iter().map(|number| address(*number)).collect();
            let to = reported.first().map_or(address(3), |number| address(*number));
            let own = if to.is_ipv6() == v6 { to.to_string() } else { String::from(resolver) };
            if kind >= 12 {
                let connection = open.entry((number, v6)).or_insert_with(|| {
                    port += 1;
                    Connection::open(&mut frames, Nanos(now), &client.replace(":4000", &format!(":{port}")), resolver)
                });
                let mut said = vec![response(name, 1, &addresses), response(name + 1, TXT, &[])];
                said.truncate(1 + at % 2);
                if kind == 12 {
                    let at = at % said[0].len();
                    said[0][at] = byte;
                }
                let (piece, late) = (1 + usize::from(byte) % 90, at % 3);
                let rng = &mut Rng::new(at as u64);
                connection.say(&mut frames, Nanos(now), &framed(&said), piece, late, rng);
                if byte < 60 {
                    connection.close(&mut frames, Nanos(now));
                    open.remove(&(number, v6));
                }
                continue;
            }
            frames.build(
                Nanos(now),
                &match kind {
                    0..4 => Build::udp(resolver, &*client).data(&response(name, 1, &addresses)),
                    4 => Build::udp(resolver, &*client).data(&response(name, [TXT, 10, 12, 65, 1, 28][at % 6], &[])),
                    5 => {
                        let mut message = response(name, 28, &addresses);
                        let at = at % message.len();
                        message[at] = byte;
                        Build::udp(resolver, &*client).data(&message)
                    }
                    6 => Build::udp(&*client, resolver).data(b"asks"),
                    // The other family of the same host, or of another.
                    8 | 9 => {
                        Build::tcp(if to.is_ipv6() { "[2001:db8:1::1]:9" } else { "10.0.0.1:9" }, &*to.to_string())
                    }
                    7 => Build::ip(&*client.replace(":4000", ":0"), &*own, 47).data(b"other"),
                    _ => Build::tcp(&*client, &*own),
                },
            );
        }
        frames
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_model(
        frames in trace(),
        threshold in 1..6_usize,
        window in 1..5_u64,
        idle in 1..7_u64,
        counts in any::<bool>(),
        block in prop_oneof![Just("nothing"), Just("dns"), Just("all")],
    ) {
        let text = format!(
            "threshold = {threshold}\nwindow = {window}\nidle_timeout = {idle}\nwithout_address = {counts}\n\
             block = {block:?}\nanswers = 4096\nclients = 8\n[streams.timeouts]\ntcp_unacknowledged = 86400\n\
             tcp_retransmitted = 86400"
        );
        let mut model = DnsTunnelModel::new(threshold, window, idle, counts, block);
        compare(&mut Driver::new(configured(&text)), &mut model, &frames)
            .map_err(|disagreement| TestCaseError::fail(disagreement.to_string()))?;
    }
}

/// What is told and dropped after the same bytes of a resolver, cut into pieces of this length.
fn by_pieces(messages: &[Vec<u8>], piece: usize, seed: u64) -> (Option<Report>, Verdict) {
    let (mut frames, now) = (Frames::default(), Nanos(17 * SECOND));
    let rng = &mut Rng::new(seed);
    let mut connection = Connection::open(&mut frames, now, "10.0.0.1:4000", "192.0.2.53:53");
    connection.say(&mut frames, now, &framed(messages), piece, (seed % 3) as usize, rng);
    connection.close(&mut frames, now);
    frames.build(now, &Build::tcp("10.0.0.1:4001", "198.51.100.1:443"));
    // More early segments than one-byte pieces of all messages.
    let text = "threshold = 4\nblock = \"all\"\n[streams]\nearly_segments = 65535";
    let mut driver = Driver::new(configured(text));
    let verdicts = driver.run(&frames);
    (driver.report(), verdicts[verdicts.len() - 1])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// However a resolver's bytes are cut, in whatever order and how often they come: what is told and dropped is the same.
    #[test]
    fn any_cutting_tells_the_same(
        told in vec((0..12_u32, vec(0..14_u8, 0..9), any::<bool>()), 1..9),
        piece in prop_oneof![1..4_usize, 4..200_usize, 200..1400_usize],
        seed in any::<u64>(),
    ) {
        let messages: Vec<_> = told
            .iter()
            .map(|(name, numbers, is_text)| {
                let addresses: Vec<_> = numbers.iter().map(|number| address(*number)).collect();
                if *is_text { response(*name, TXT, &[]) } else { response(*name, 1, &addresses) }
            })
            .collect();
        prop_assert_eq!(by_pieces(&messages, piece, seed), by_pieces(&messages, 1400, 0));
    }
}

/// A user who talks to nearly all whom DNS names; a tunnel of text, one of made-up addresses, and one of text over TCP, in early, repeated
/// and split segments.
fn tunnels_and_a_user() -> Frames {
    let mut frames = Frames::default();
    let resolver = "192.0.2.53:53";
    let mut over_tcp = Connection::open(&mut frames, Nanos(99 * SECOND), "10.0.0.68:4000", resolver);
    let rng = &mut Rng::new(7);
    for number in 0..400_u32 {
        let now = Nanos(100 * SECOND + u64::from(number) * SECOND / 4);
        let server = format!("203.0.{}.{}", number / 200, 1 + number % 200);
        let of_server = [server.parse().expect("it is an address"), address(5)];
        frames.build(now, &Build::udp("10.0.0.7:4000", resolver).data(b"asks"));
        frames.build(now, &Build::udp(resolver, "10.0.0.7:4000").data(&response(4 * number, 1, &of_server)));
        if number % 20 != 0 {
            frames.build(now + Nanos::from_millis(5), &Build::tcp("10.0.0.7:4001", &*format!("{server}:443")));
        }
        frames.build(now, &Build::udp("10.0.0.66:4000", resolver).data(b"asks"));
        frames.build(now, &Build::udp(resolver, "10.0.0.66:4000").data(&response(4 * number, TXT, &[])));
        let made_up = [IpAddr::from(number.to_be_bytes().map(|byte| byte.wrapping_add(33)))];
        frames.build(now, &Build::udp(resolver, "10.0.0.67:4000").data(&response(4 * number, 1, &made_up)));
        over_tcp.say(&mut frames, now, &framed(&[response(4 * number, TXT, &[])]), 50, (number % 2) as usize, rng);
    }
    over_tcp.close(&mut frames, Nanos(201 * SECOND));
    frames
}

fn tunnels(report: &Report) -> Vec<String> {
    report.rows.iter().filter(|row| row[4] == "yes").map(|row| row[0].to_string()).collect()
}

#[test]
fn tunnels_are_found_and_a_user_is_not() {
    let frames = tunnels_and_a_user();
    let mut driver = Driver::new(configured("window = 60"));
    assert!(driver.run(&frames).iter().all(|verdict| *verdict == Verdict::FORWARD), "it only tells");
    let report = driver.report().expect("it has a report");
    let mut found = tunnels(&report);
    found.sort_unstable();
    assert_eq!(found, ["10.0.0.66", "10.0.0.67", "10.0.0.68"], "{report:#?}");
    assert_eq!(report.rows.len(), 4);
    assert_eq!(report.rows[3][0], "10.0.0.7");
    assert!(report.title.contains("(1,600 answers, 380 used; 0 messages unreadable, "), "{}", report.title);

    let dropped = |block: &str| {
        let mut driver = Driver::new(configured(&format!("window = 60\nblock = {block:?}")));
        let verdicts = driver.run(&frames);
        let of = |(time, bytes): (Nanos, &[u8]), verdict: &Verdict| {
            let headers = packet::parse(frames.link(), bytes, bytes.len() as u32, 0).expect("it is whole");
            (*verdict != Verdict::FORWARD).then(|| (headers.addresses().expect("it is IP"), time))
        };
        frames.iter().zip(&verdicts).filter_map(|(frame, verdict)| of(frame, verdict)).collect::<Vec<_>>()
    };
    let user: IpAddr = "10.0.0.7".parse().expect("it is an address");
    let found = dropped("dns");
    assert!(found.iter().all(|((src, dst), time)| *src != user && *dst != user && *time > Nanos(110 * SECOND)));
    assert!(found.len() > 1_000, "{} packets dropped", found.len());
}

#[test]
fn every_engine_finds_them() {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..3,
        threads: true,
        options: Options::default(),
    };
    let trace = tunnels_and_a_user().trace();
    // Room for all, and for too few answers and clients; sessions find no room, either.
    for text in [
        "block = \"all\"\nanswers = 512\nclients = 16",
        "block = \"dns\"\nwindow = 5\nidle_timeout = 9\nanswers = 8\nclients = 2\nthreshold = 4\nstreams.memory = 1",
    ] {
        let verified = verify(&Arc::new(configured(text)), &trace, &plan, &mut |_, _| ());
        assert_eq!(verified.mismatch, None, "{text}");
        for (engine, cores, _) in verified.refused {
            let shards = matches!(engine, EngineKind::Rss | EngineKind::RssPlusPlus | EngineKind::Pipeline);
            let replicates = matches!(engine, EngineKind::Scr | EngineKind::Hybrid);
            assert!(replicates || cores > 1 && shards, "{engine} on {cores} cores");
        }
    }
}

/// Where a client's packets meet on one core, what is told doesn't depend on the order of the cores' steps.
#[test]
fn every_engine_tells_the_same() {
    let frames = tunnels_and_a_user();
    let mut driver = Driver::new(configured("window = 60"));
    driver.run(&frames);
    let (reported, trace) = (driver.report(), Arc::new(frames.trace()));
    for kind in EngineKind::ALL {
        for cores in 1..=3 {
            if kind.accepts(&DnsTunnel::DESCRIPTION, cores).is_err() {
                continue;
            }
            let options = Options { pin: false, ..Options::default() };
            let mut port = MemoryQueue::new(Arc::clone(&trace), 32);
            let nf = Arc::new(configured("window = 60"));
            let outcome = run(nf, kind, cores, &options, &mut port, &Control::default()).expect("it takes it");
            let report = outcome.report.expect("it has a report");
            if kind == EngineKind::Shared && cores > 1 {
                // Cores take turns, so a use may overtake its answer, and an acknowledgement the bytes that it is for.
                let answers = report.title.split(['(', ' ']).find_map(|word| word.replace(',', "").parse::<u32>().ok());
                assert!(answers.is_some_and(|count| (1_200..=1_600).contains(&count)), "{}", report.title);
                continue;
            }
            assert_eq!(Some(&report), reported.as_ref(), "{kind} on {cores} cores");
        }
    }
}

fn over(capture: &str) -> Option<Report> {
    let subject = read(&captures::shared()?.join(capture))?;
    let mut driver = Driver::new(configured("top = 10000"));
    driver.run_trace(&subject.trace);
    driver.report()
}

/// iodine over NULL records, exfiltration over CNAME, TXT and MX, and commands over TXT.
#[test]
fn real_tunnels_are_found() {
    for (capture, client, orphans) in [
        ("apps/ndpi__dns-tunnel-iodine.pcap", "10.0.2.30", "212"),
        ("apps/ndpi__dns_exfiltration.pcap", "192.168.220.56", "150"),
        ("apps/sv__dns__bug-1158__input.pcap", "10.30.28.90", "80"),
    ] {
        let Some(report) = over(capture) else { return println!("SKIPPED (no ../shared/traces)") };
        assert_eq!(tunnels(&report), [client], "{capture}: {report:#?}");
        assert_eq!(report.rows[0][1], orphans, "{capture}: as many as tshark counts responses");
    }
}

/// Clients with so many answers over TCP, and addresses in them, as tshark has them: in all of these captures nothing else answers.
#[test]
fn real_answers_over_tcp_are_read() {
    let of = |capture: &str, client: &str, addresses: &[&str]| {
        let subject = read(&captures::shared()?.join(capture))?;
        let mut driver = Driver::new(configured("window = 3600"));
        driver.run_trace(&subject.trace);
        let before = driver.report()?;
        let mut frames = Frames::default();
        for address in addresses {
            frames.build(driver.now(), &Build::tcp(&*format!("{client}:4000"), &*format!("{address}:443")));
        }
        driver.run(&frames);
        Some((before, driver.report()?))
    };
    for (capture, client, addresses, told, used) in [
        ("apps/arkime__dns-tcp.pcap", "10.180.156.141", &["74.125.228.46", "205.188.100.58"][..], 2, 2),
        ("l2tun/tcpdump__dns_tcp.pcap", "192.168.1.11", &["198.199.88.104"], 1, 1),
        // The same bytes three times.
        ("apps/sv__dns-tcp-ts-gap__input.pcap", "10.16.1.11", &["207.47.131.223", "192.0.2.1"], 1, 1),
        // The capture begins with the answer.
        ("apps/sv__dns-reversed-tcp-1__dns.pcap", "10.16.1.11", &["216.197.242.244"], 1, 1),
        // Records of all types, and a key: no address.
        ("apps/zeek__dns__tkey.pcap", "192.168.1.106", &[], 1, 0),
        // Twenty names that there are not.
        ("apps/sv__dns__dns-tcp-multirequest-buffer__dns-tcp-multirequest-buffer.pcap", "10.16.1.11", &[], 0, 0),
    ] {
        let Some((before, after)) = of(capture, client, addresses) else {
            return println!("SKIPPED (no ../shared/traces)");
        };
        let title = |used: u64| {
            format!(
                "clients by unused DNS answers ({told} answers, {used} used; 0 messages unreadable, 0 answers without room)"
            )
        };
        assert_eq!((before.title, after.title), (title(0), title(used)), "{capture}");
        assert!(after.rows.iter().all(|row| row[0] == client), "{capture}: {:#?}", after.rows);
    }
}

/// Names are asked for by IPv4 and used by IPv6.
#[test]
fn a_host_of_both_families_is_no_tunnel() {
    let mut frames = Frames::default();
    for number in 0..200_u32 {
        let now = |ms: u64| Nanos(100 * SECOND + u64::from(number) * SECOND / 4 + ms * 1_000_000);
        let v6 = format!("2001:db8:99::{number:x}");
        for (ms, address) in [(0, format!("192.0.2.{number}")), (1, v6.clone())] {
            let message = response(2 * number, 1, &[address.parse().expect("it is an address")]);
            frames.build(now(ms), &Build::udp("10.0.0.53:53", "10.0.0.5:4000").data(&message));
        }
        frames.build(now(50), &Build::tcp("[2001:db8:1::5]:4001", &*format!("[{v6}]:443")));
    }
    let mut driver = Driver::new(configured(""));
    driver.run(&frames);
    let report = driver.report().expect("it has a report");
    assert_eq!(report.rows, [["10.0.0.5", "1", "400", "0", "no"]]);
}

/// Users, telephones and whole networks; none leaves half as many answers without use as make a tunnel.
#[test]
fn real_users_are_not() {
    for capture in [
        "real/ppp__pt__example.pcap",
        "mix/mix_apps_a.pcap.zst",
        "apps/ndpi__android.pcap",
        "apps/ndpi__iphone.pcap",
        "apps/ndpi__KakaoTalk_chat.pcap",
        "apps/sv__sip-method__sip.pcap",
        "apps/sv__tls__tls-subjectaltname__input.pcap",
    ] {
        let Some(report) = over(capture) else { return println!("SKIPPED (no ../shared/traces)") };
        assert_eq!(tunnels(&report), [""; 0], "{capture}: {report:#?}");
        let most = report.rows[0][1].number().expect("it is a number");
        let answers: u64 = report.rows.iter().map(|row| row[2].number().expect("it is a number")).sum();
        assert!(most < 25 && answers > 6, "{capture}: {report:#?}");
    }
}
