//! The load balancer against its model over random traces around all timeouts; and a service one of whose backends fails and comes
//! back, under every engine.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{EngineKind, Options};
use functions::load_balancer::LoadBalancer;
use lab::conformance::{Plan, verify};
use nf::Verdict;
use packet::{Endpoint, LinkType, Nanos, TcpFlags};
use port::Trace;
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::model::LoadBalancerModel;
use testkit::{At, Build, Driver, Frames};

const SECOND: u64 = 1_000_000_000;
const SERVICE: &str = "192.0.2.1:80";
const BACKENDS: [&str; 3] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:8080"];
/// The last are of no stack.
const FLAGS: [TcpFlags; 10] = [
    TcpFlags::SYN,
    TcpFlags::SYN,
    TcpFlags::ACK,
    TcpFlags::ACK,
    TcpFlags(0x11),
    TcpFlags::RST,
    TcpFlags(0x14),
    TcpFlags(0x12),
    TcpFlags(0x12),
    TcpFlags(0x03),
];

fn configured(text: &str) -> LoadBalancer {
    let text = format!("table_size = 307\n{text}\n[[services]]\naddress = \"{SERVICE}\"\nbackends = {BACKENDS:?}\n");
    LoadBalancer::new(toml::from_str(&text).expect("the test's own configuration"))
}

fn client(number: u64) -> String {
    format!("198.51.100.{}:{}", 1 + number % 200, 1_024 + number / 200)
}

/// Numbers that fit each other, some of them, and one that fits none.
const NUMBERS: [u32; 7] = [100, 101, 102, 500, 501, 502, 900_000_000];

/// Who sends to whom: a client to the service or to a backend itself, a backend to a client, or someone to someone else.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let numbers = [0..NUMBERS.len(), 0..NUMBERS.len()];
    (0..24_u8, 0..4_u64, 0..3_usize, 0..FLAGS.len(), numbers).prop_map(|(kind, number, backend, flags, numbers)| {
        let client = client(number);
        let build = match kind {
            0..11 => Build::tcp(&*client, SERVICE),
            11..19 => Build::tcp(BACKENDS[backend], &*client),
            19..23 => Build::tcp(&*client, BACKENDS[backend]),
            _ => Build::tcp(&*client, "192.0.2.1:81"),
        };
        let [seq, ack] = numbers.map(|at| NUMBERS[at]);
        // The flags come last, for a number that acknowledges sets one.
        build.seq(seq).ack(ack).flags(FLAGS[flags]).bytes()
    })
}

/// The segments of a connection as stacks make it, by the name that the client knows the backend by. Every other one is the client's, and
/// so is the last.
fn segments(client: &str, to: &str, backend: &str, begin: u32) -> [Vec<u8>; 7] {
    let of_client =
        |flags, seq: u32, ack: u32| Build::tcp(client, to).flags(flags).seq(begin + seq).ack(90_000 + ack).bytes();
    let of_backend =
        |flags, seq: u32, ack: u32| Build::tcp(backend, client).flags(flags).seq(90_000 + seq).ack(begin + ack).bytes();
    let (ack, syn_ack, fin) = (TcpFlags::ACK, TcpFlags(0x12), TcpFlags(0x11));
    [
        // Nothing to acknowledge yet.
        Build::tcp(client, to).flags(TcpFlags::SYN).seq(begin).bytes(),
        of_backend(syn_ack, 0, 1),
        of_client(ack, 1, 1),
        of_backend(ack, 1, 1),
        of_client(fin, 1, 1),
        of_backend(fin, 1, 2),
        of_client(ack, 2, 2),
    ]
}

/// A connection up to one of its segments.
fn conversation() -> impl Strategy<Value = Vec<Vec<u8>>> {
    (0..4_u64, 0..3_usize, any::<bool>(), 1..8_usize, 0..3_u32).prop_map(|(number, backend, direct, len, start)| {
        let to = if direct { BACKENDS[backend] } else { SERVICE };
        segments(&client(number), to, BACKENDS[backend], 10_000 * (start + 1))[..len].to_vec()
    })
}

/// The conversations above are what they are taken for: they go to one backend and come from the service, and a SYN that nobody answers
/// counts against the backend, other than one that is answered.
#[test]
fn conversations_are_balanced_and_judged() {
    let headers = |bytes: &[u8]| packet::parse(LinkType::Ethernet, bytes, bytes.len() as u32, 0).expect("it is whole");
    for (number, is_answered) in (0..40).map(|number| (number, number % 2 == 0)) {
        let mut driver = Driver::new(configured("down_after = 1\nanswer_timeout = 2\nretry_after = 300"));
        let client = client(number);
        let syn = &segments(&client, SERVICE, BACKENDS[0], 10_000)[0];
        let chosen = tables_choice(&headers(syn));
        let backend = BACKENDS.iter().find(|backend| backend.endpoint() == chosen).expect("it is one of them");
        let len = if is_answered { 7 } else { 1 };
        for (at, bytes) in segments(&client, SERVICE, backend, 10_000)[..len].iter().enumerate() {
            let verdict = driver.packet(Nanos(17 * SECOND), Ok(&headers(bytes)), bytes);
            let Verdict::Rewrite { rewrite, .. } = verdict else { panic!("segment {at}: {verdict:?}") };
            let (src, dst) = if at % 2 == 0 { (None, Some(chosen)) } else { (Some(SERVICE.endpoint()), None) };
            assert_eq!((rewrite.src, rewrite.dst), (src, dst), "segment {at}");
        }
        let next = &segments(&client, SERVICE, backend, 900_000)[0];
        let verdict = driver.packet(Nanos(20 * SECOND), Ok(&headers(next)), next);
        let Verdict::Rewrite { rewrite, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!(rewrite.dst == Some(chosen), is_answered, "{number}: {rewrite:?}");
    }
}

/// Single packets, and pieces of conversations.
fn traffic() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    let alone = (gap(), packet()).prop_map(|(gap, bytes)| vec![(gap, bytes)]);
    let together =
        (vec(gap(), 7), conversation()).prop_map(|(gaps, segments)| gaps.into_iter().zip(segments).collect());
    vec(prop_oneof![3 => alone, 1 => together], 1..90).prop_map(|parts: Vec<Vec<(u64, Vec<u8>)>>| parts.concat())
}

fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0),
        4 => (1..4_u64).prop_map(|halves| halves * SECOND / 2),
        1 => (1..9_u64, 0..3_u64).prop_map(|(seconds, around)| seconds * SECOND + around - 1),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_model(packets in traffic(), down_after in 0..4_usize, retry in 1..6_u64) {
        let text = format!(
            "down_after = {down_after}\nanswer_timeout = 2\nretry_after = {retry}\ntransitory_timeout = 3\nidle_timeout = 6"
        );
        let mut driver = Driver::new(configured(&text));
        let backends = BACKENDS.map(At::endpoint);
        let mut model = LoadBalancerModel::new(SERVICE.endpoint(), &backends, down_after, [2, retry, 3, 6]);
        let mut now = Nanos(17 * SECOND);
        for (number, (gap, bytes)) in packets.into_iter().enumerate() {
            now = now + Nanos(gap);
            let headers = packet::parse(LinkType::Ethernet, &bytes, bytes.len() as u32, 0).expect("it is whole");
            let tables = tables_choice(&headers);
            let got = driver.packet(now, Ok(&headers), &bytes);
            if let Err(right) = model.check(now, &headers, tables, got) {
                return Err(TestCaseError::fail(format!("packet {number} at {now}: {got:?}, right is {right}")));
            }
        }
    }
}

/// The backend that a client has where backends are never down, or any for what isn't from a client.
fn tables_choice(headers: &packet::Headers) -> Endpoint {
    match Driver::new(configured("down_after = 0")).packet(Nanos(0), Ok(headers), &[]) {
        Verdict::Rewrite { rewrite, .. } => rewrite.dst.unwrap_or(SERVICE.endpoint()),
        Verdict::Forward(_)
        | Verdict::Drop(_)
        | Verdict::Reply(_)
        | Verdict::Copy { .. }
        | Verdict::Transform { .. } => SERVICE.endpoint(),
    }
}

/// The service for half a minute: a new connection every 20 ms, one of the backends silent from second 8 to 20.
struct Service {
    driver: Driver<LoadBalancer>,
    frames: Frames,
    /// Connections by the second in which they began, and by backend.
    begun: HashMap<(u64, Endpoint), u64>,
}

impl Service {
    fn new(text: &str) -> Self {
        Self { driver: Driver::new(configured(text)), frames: Frames::default(), begun: HashMap::new() }
    }

    fn send(&mut self, now: Nanos, build: &Build) -> Verdict {
        self.frames.build(now, build);
        self.driver.frame(now, LinkType::Ethernet, &build.bytes())
    }

    fn run(mut self) -> Self {
        for number in 0..1_500_u64 {
            let now = Nanos(100 * SECOND + number * SECOND / 50);
            let client = client(number);
            let verdict = self.send(now, &Build::tcp(&*client, SERVICE).flags(TcpFlags::SYN));
            let Verdict::Rewrite { rewrite, .. } = verdict else { panic!("it goes to a backend") };
            let backend = rewrite.dst.expect("it goes to a backend");
            *self.begun.entry((number / 50, backend)).or_default() += 1;
            if backend == BACKENDS[1].endpoint() && (8..20).contains(&(number / 50)) {
                continue;
            }
            let syn_ack = self.send(now, &Build::tcp(backend, &*client).flags(TcpFlags(0x12)));
            assert!(matches!(syn_ack, Verdict::Rewrite { .. }), "{syn_ack:?}");
            for flags in [TcpFlags::ACK, TcpFlags::FIN].into_iter().take(1 + (number % 2) as usize) {
                let verdict = self.send(now, &Build::tcp(&*client, SERVICE).flags(flags));
                assert_eq!(verdict, Verdict::rewritten(rewrite), "the connection stays with its backend");
            }
        }
        self
    }

    fn begun(&self, seconds: std::ops::Range<u64>, backend: usize) -> u64 {
        let of = |second| self.begun.get(&(second, BACKENDS[backend].endpoint())).copied().unwrap_or(0);
        seconds.map(of).sum()
    }
}

#[test]
fn a_silent_backend_is_passed_by_until_it_is_back() {
    let service = Service::new("answer_timeout = 1\nretry_after = 2").run();
    let in_peace = service.begun(0..8, 1);
    assert!((90..180).contains(&in_peace), "{in_peace} of 400 are about a third");
    // Answers are missed a second later; then one connection in two seconds tries.
    let while_silent = service.begun(10..20, 1);
    assert!((3..=6).contains(&while_silent), "{while_silent} trials");
    for other in [0, 2] {
        let more = service.begun(10..20, other);
        assert!((200..300).contains(&more), "{more} of 500 are about a half");
    }
    let back = service.begun(23..30, 1);
    assert!((75..160).contains(&back), "{back} of 350 are about a third");
}

#[test]
fn every_engine_balances_alike() {
    let frames = Service::new("answer_timeout = 1\nretry_after = 2").run().frames;
    let trace = frames.trace().prefix(3_000);
    for text in [
        "answer_timeout = 1\nretry_after = 2",
        "answer_timeout = 1\nretry_after = 2\ntransitory_timeout = 2\nidle_timeout = 3",
        "answer_timeout = 1\ndown_after = 1\nflows = 32",
    ] {
        hold(&trace, text);
    }
}

fn hold(trace: &Trace, text: &str) {
    let plan = Plan {
        engines: EngineKind::ALL.to_vec(),
        cores: 1..=4,
        seeds: 0..3,
        threads: true,
        options: Options::default(),
    };
    let verified = verify(&Arc::new(configured(text)), trace, &plan, &mut |_, _| ());
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

/// A full table in which one flow is answered and ends, and a packet between that may open none: who makes room later must not hang on
/// whether an engine asks who would go before the function refuses or after.
#[test]
fn a_refused_newcomer_changes_nobodys_turn() {
    let text = "flows = 3\nflows_v6 = 3\n[[services]]\naddress = \"192.0.2.1:53\"\nprotocol = \"udp\"\nbackends = [\"10.0.0.1:53\"]";
    let function = LoadBalancer::new(toml::from_str(text).expect("the test's own configuration"));
    let client = |number: u64| format!("198.51.100.{number}:1000");
    let asks = |second: u64, number| (second, Build::udp(&*client(number), "192.0.2.1:53"));
    let answer = |second: u64, number| (second, Build::udp("10.0.0.1:53", &*client(number)));
    let packets =
        [asks(1, 1), asks(2, 2), asks(3, 3), answer(4, 2), asks(5, 4), answer(6, 7), asks(500, 3), asks(501, 4)];
    let later = [asks(910, 4), asks(911, 4), asks(912, 4), asks(913, 5), asks(914, 6)];
    let mut frames = Frames::default();
    for (second, build) in packets.into_iter().chain(later) {
        frames.build(Nanos(second * SECOND), &build);
    }
    let engines = [EngineKind::Sequential, EngineKind::Transactional, EngineKind::Shared, EngineKind::Scr].to_vec();
    let plan = Plan { engines, cores: 1..=2, seeds: 0..4, threads: false, options: Options::default() };
    let verified = verify(&Arc::new(function), &frames.trace(), &plan, &mut |_, _| ());
    assert_eq!(verified.mismatch, None);
}
