//! The tunnel detector against its model over random traces around its window; over real captures of tunnels and of ordinary
//! resolving; and under every engine.
#![allow(clippy::print_stdout)]

use std::net::IpAddr;
use std::sync::Arc;

use engine::{Control, EngineKind, Options, run};
use functions::dns_tunnel::DnsTunnel;
use lab::conformance::{Plan, verify};
use nf::{NetworkFunction, Report, Verdict};
use packet::Nanos;
use port::MemoryQueue;
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::{DnsTunnelModel, compare};
use testkit::{Build, Driver, Frames, captures};

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

/// Few clients, answers from few addresses, and packets mostly to these.
fn trace() -> impl Strategy<Value = Frames> {
    let gap = prop_oneof![
        8 => Just(0),
        2 => (1..4_u64).prop_map(|halves| halves * SECOND / 2),
        2 => (1..7_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ];
    let packet = (0..12_u8, (1..4_u8, any::<bool>(), 0..12_u32), vec(0..14_u8, 0..11), any::<(usize, u8)>());
    vec((gap, packet), 1..200).prop_map(|packets| {
        let mut frames = Frames::default();
        let mut now = 17 * SECOND;
        for (gap, (kind, (number, v6, name), reported, (at, byte))) in packets {
            now += gap;
            let (client, resolver) = (client(number, v6), if v6 { "[2001:db8::53]:53" } else { "192.0.2.53:53" });
            let addresses: Vec<_> = reported.iter().map(|number| address(*number)).collect();
            let to = reported.first().map_or(address(3), |number| address(*number));
            let own = if to.is_ipv6() == v6 { to.to_string() } else { String::from(resolver) };
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
             block = {block:?}\nanswers = 256\nclients = 8"
        );
        let mut model = DnsTunnelModel::new(threshold, window, idle, counts, block);
        compare(&mut Driver::new(configured(&text)), &mut model, &frames)
            .map_err(|disagreement| TestCaseError::fail(disagreement.to_string()))?;
    }
}

/// A user who talks to nearly all whom DNS names; a tunnel of text, and one of made-up addresses.
fn tunnels_and_a_user() -> Frames {
    let mut frames = Frames::default();
    let resolver = "192.0.2.53:53";
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
    }
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
    assert_eq!(found, ["10.0.0.66", "10.0.0.67"], "{report:#?}");
    assert_eq!(report.rows.len(), 3);
    assert_eq!(report.rows[2][0], "10.0.0.7");

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
    // Room for all, and for too few answers and clients.
    for text in [
        "block = \"all\"\nanswers = 512\nclients = 16",
        "block = \"dns\"\nwindow = 5\nidle_timeout = 9\nanswers = 8\nclients = 2\nthreshold = 4",
    ] {
        let verified = verify(&Arc::new(configured(text)), &trace, &plan, &mut |_, _| ());
        assert_eq!(verified.mismatch, None, "{text}");
        for (engine, cores, _) in verified.refused {
            assert!(
                cores > 1
                    && matches!(
                        engine,
                        EngineKind::Rss | EngineKind::RssPlusPlus | EngineKind::Hybrid | EngineKind::Pipeline
                    )
            );
        }
    }
}

/// Where a client's packets meet on one core, or all cores see all, what is told doesn't depend on the order of the cores' steps.
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
                // Cores take turns, and a use may overtake its answer.
                assert!(report.title.contains("(1,200 answers, "), "{}", report.title);
                continue;
            }
            assert_eq!(Some(&report), reported.as_ref(), "{kind} on {cores} cores");
            if let Some(transactions) = outcome.transactions {
                let committed = transactions.committed;
                // Steps of a burst go together, and the report's is not among them.
                assert!(2 * committed <= trace.len() as u64, "{committed} transactions for {} packets", trace.len());
            }
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
