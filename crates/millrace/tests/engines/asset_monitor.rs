//! The asset monitor against its model over random sessions, against who grants connections in real captures by tshark, and
//! under every engine.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use engine::{EngineKind, Options};
use functions::asset_monitor::{AssetMonitor, systems};
use functions::identify::{DatagramState, Side, Signatures, look};
use lab::conformance::{Plan, verify};
use packet::{Headers, Nanos, TcpFlags, Transport};
use port::Trace;
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::{AssetMonitorModel, compare};
use testkit::{Build, Driver, Frames, captures};

const SECOND: u64 = 1_000_000_000;
const SYN_ACK: TcpFlags = TcpFlags(0x12);

fn configured(text: &str) -> AssetMonitor {
    AssetMonitor::new(toml::from_str(text).expect("the test's own configuration"))
}

fn system(headers: &Headers) -> &'static str {
    let Transport::Tcp(tcp) = headers.transport else { return "unknown" };
    systems::of(headers, &tcp).map_or("unknown", |(system, _)| system.name())
}

fn service(headers: &Headers, payload: &[u8]) -> Option<&'static str> {
    let found = look(&SIGNATURES, &mut DatagramState::default(), headers, payload, Side::Responder)?;
    Some(SIGNATURES.name(found))
}

static SIGNATURES: LazyLock<Arc<Signatures>> = LazyLock::new(Signatures::shared);

/// Few hosts that open sessions with each other, and speak.
fn trace() -> impl Strategy<Value = Frames> {
    let gap = prop_oneof![
        8 => Just(0),
        2 => (1..4_u64, 0..3_u64).prop_map(|(secs, around)| secs * SECOND + around - 1),
    ];
    let packet = (0..3_u8, 0..2_u16, any::<bool>(), 0..10_u8, 0..4_u8);
    (vec((gap, packet), 1..150), any::<bool>()).prop_map(|(packets, v6)| {
        let mut frames = Frames::default();
        let mut now = 17 * SECOND;
        for (gap, (host, port, back, kind, look)) in packets {
            now += gap;
            let name = |n: u8, port: u16| {
                if v6 { format!("[2001:db8::{n}]:{port}") } else { format!("10.0.0.{n}:{port}") }
            };
            let (client, server) = (name(host, 4_000), name((host + 1) % 3, 22 + port));
            let (from, to) = if back { (server, client) } else { (client, server) };
            let words: &[u8] = match look {
                0 => b"SSH-2.0-x\r\n",
                1 => b"HTTP/1.1 200 OK\r\n",
                2 => b"anything",
                _ => b"",
            };
            let opens = |build: Build| match look {
                0 => build.ttl(57).window(29_200).mss(1_460).sack_permitted().window_scale(7),
                1 => build.ttl(120).window(8_192).mss(1_460).sack_permitted(),
                2 => build.ttl(64).window(65_535).mss(1_460).window_scale(6).sack_permitted(),
                _ => build.ttl(250).window(4_128).mss(536),
            };
            frames.build(
                Nanos(now),
                &match kind {
                    0 | 1 => opens(Build::tcp(&*from, &*to).flags(TcpFlags::SYN)),
                    2 | 3 => opens(Build::tcp(&*from, &*to).flags(SYN_ACK)),
                    4..7 => Build::tcp(&*from, &*to).data(words),
                    _ => Build::udp(&*from, &*to).data(words),
                },
            );
        }
        frames
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_model(frames in trace(), refresh in 1..3_u64, asset in 3..6_u64, idle in 1..8_u64) {
        let text = format!(
            "refresh_interval = {refresh}\nasset_timeout = {asset}\nidle_timeout = {idle}\nhosts = 64\nservices = 64"
        );
        let mut driver = Driver::new(configured(&text));
        let mut model = AssetMonitorModel::new(system, service, refresh, asset, idle);
        compare(&mut driver, &mut model, &frames).map_err(|disagreement| TestCaseError::fail(disagreement.to_string()))?;
        for (key, session, ..) in driver.flows() {
            let (low, high) = (key.source(), key.destination());
            let known = model.session(&(low.address, low.port, high.address, high.port, key.protocol()));
            let known = known.expect("it is of the same packets");
            let (assets, server) = session.told();
            let server = server.map(|(server, service)| (server, driver.function().service_name(service)));
            for (asset, host) in assets.iter().zip(&known.hosts) {
                let asset = asset.map(|asset| {
                    (asset.told.system.name(), asset.told.evidence, asset.services, asset.first.0, asset.last.0)
                });
                prop_assert_eq!(asset, host.map(|host| (host.system, host.evidence, host.services, host.first, host.last)));
            }
            let expected = known.server.map(|side| (side as u8, known.service.unwrap_or("unknown")));
            prop_assert_eq!(server, expected, "{}", key);
        }
    }
}

/// Of these captures, by `tshark -Y "tcp.flags.syn==1 && tcp.flags.ack==1" -T fields -e ip.src -e ipv6.src -e tcp.srcport` (4.0.17),
/// sorted, without repetitions: how many places grant connections.
const GRANTING: &[(&str, usize)] = &[
    ("real/markofu__NetworkForensics__puzzle1.pcap", 4),
    ("apps/ndpi__ftp.pcap", 3),
    ("apps/ndpi__mysql.pcapng", 2),
    ("apps/ndpi__android.pcap", 9),
    ("apps/ndpi__whatsapp_login_call.pcap", 4),
];

fn shared(capture: &str) -> Option<Trace> {
    captures::read(&captures::shared()?.join(capture))
}

#[test]
#[allow(clippy::print_stderr)]
fn services_are_where_tshark_sees_connections_granted() {
    for (capture, granting) in GRANTING {
        let Some(trace) = shared(capture) else {
            eprintln!("SKIPPED (no ../shared/traces/{capture})");
            continue;
        };
        let mut driver = Driver::new(configured("idle_timeout = 315360000\nasset_timeout = 315360000"));
        driver.run_trace(&trace);
        let mut places = BTreeSet::new();
        for (key, session, ..) in driver.flows().iter().filter(|(key, ..)| key.protocol() == 6) {
            if let (_, Some((server, _))) = session.told() {
                places.insert(if server == 0 { key.source() } else { key.destination() });
            }
        }
        assert_eq!(places.len(), *granting, "{capture}");
    }
}

/// Telephones of both kinds, both of which ask with windows of 65535.
#[test]
#[allow(clippy::print_stderr)]
fn an_android_is_no_iphone() {
    for (capture, host, system) in [
        ("apps/ndpi__android.pcap", "192.168.2.16", "Linux"),
        ("apps/ndpi__iphone.pcap", "192.168.2.17", "macOS or BSD"),
    ] {
        let Some(trace) = shared(capture) else {
            eprintln!("SKIPPED (no ../shared/traces/{capture})");
            continue;
        };
        let mut driver = Driver::new(configured("idle_timeout = 315360000\nasset_timeout = 315360000\ntop = 10000"));
        driver.run_trace(&trace);
        let report = driver.report().expect("it has a report");
        let row = report.rows.iter().find(|row| row[0] == host).expect("it is there");
        assert_eq!(row[1], system, "{capture}");
    }
}

/// Clients of two systems at three services, some of which answer otherwise than at first.
pub(crate) fn office() -> Frames {
    let mut frames = Frames::default();
    for round in 0..3_u64 {
        for number in 0..30_u64 {
            let now = Nanos(SECOND + round * 2 * SECOND + number * SECOND / 50);
            let (client, server) = (format!("10.1.0.{number}:{}", 4_000 + round), format!("192.0.2.{}:22", number % 3));
            let syn = Build::tcp(&*client, &*server).flags(TcpFlags::SYN).mss(1_460).sack_permitted();
            let syn =
                if number % 2 == 0 { syn.ttl(64).window(29_200).window_scale(7) } else { syn.ttl(128).window(8_192) };
            frames.build(now, &syn);
            frames.build(now, &Build::tcp(&*server, &*client).flags(SYN_ACK).ttl(64).window(28_960).mss(1_460));
            frames.build(now, &Build::tcp(&*server, &*client).data(b"SSH-2.0-x\r\n"));
        }
    }
    frames
}

#[test]
fn an_office_is_known_after_a_few_sessions() {
    let mut driver = Driver::new(configured(""));
    driver.run(&office());
    let report = driver.report().expect("it has a report");
    let of = |system: &str| report.rows.iter().filter(|row| row[1] == system).count();
    assert_eq!((of("Linux"), of("Windows")), (15 + 3, 15));
    assert_eq!(report.rows.iter().filter(|row| row[5] == "22/tcp ssh" && row[4] == "1").count(), 3);
}

#[test]
fn every_engine_knows_it() {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..2,
        threads: true,
        options: Options::default(),
    };
    let trace = office().trace();
    let fast = "refresh_interval = 1\nasset_timeout = 2\nidle_timeout = 3\n";
    for text in ["hosts = 256\nservices = 64\nflows = 256", "hosts = 64\nservices = 64\nflows = 24"] {
        let verified = verify(&Arc::new(configured(&format!("{fast}{text}"))), &trace, &plan, &mut |_, _| ());
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
