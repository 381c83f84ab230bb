//! Rule sets that take over from each other while packets flow, under every engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use engine::{Control, EngineKind, Options, Outcome, Running, start};
use functions::Catalogued;
use functions::ddos::Ddos;
use functions::efsm::Efsm;
use functions::firewall::Firewall;
use functions::policer::Policer;
use functions::rules::{Config, Rules};
use nf::Function;
use packet::{Nanos, Seq};
use port::{Batch, MemoryQueue, Opened, Outbox, Port, PortError, Receive, Received, Stream, Trace};
use testkit::{Build, Driver, Frames};

const MILLISECOND: u64 = 1_000_000;

/// A stream that delivers no more packets than are released.
struct Gated {
    inner: MemoryQueue,
    released: Arc<AtomicU64>,
}

struct GatedInput<'a> {
    inner: Box<dyn Receive + 'a>,
    delivered: u64,
    released: Arc<AtomicU64>,
}

impl Port for Gated {
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        let Opened::Stream(Stream { input, output, order }) = self.inner.open(cores)? else {
            unreachable!("memory is one stream")
        };
        let input = Box::new(GatedInput { inner: input, delivered: 0, released: Arc::clone(&self.released) });
        Ok(Opened::Stream(Stream { input, output, order }))
    }
}

impl Receive for GatedInput<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        if self.delivered >= self.released.load(Ordering::Relaxed) {
            batch.clear();
            return Ok(Received::Idle);
        }
        let received = self.inner.receive(batch)?;
        self.delivered += batch.len() as u64;
        Ok(received)
    }

    fn wait(&mut self, _: Duration) -> Result<(), PortError> {
        thread::yield_now();
        Ok(())
    }

    fn now(&self) -> Option<Nanos> {
        self.inner.now()
    }
}

/// Datagrams of hosts and the answers to them, and strangers' datagrams.
pub(crate) fn traffic(packets: u64) -> Frames {
    let mut frames = Frames::default();
    for number in 0..packets {
        let round = number / 256;
        let host = format!("10.{}.0.{}:{}", 64 * (number % 4), 1 + number % 61, 1_024 + round % 50);
        let (server, stranger) = ("192.0.2.1:53", format!("203.0.113.{}:9", number % 19));
        let build = match (number / 61) % 3 {
            0 => Build::udp(&*host, server),
            1 => Build::udp(server, &*host),
            _ => Build::udp(&*stranger, &*host),
        };
        frames.build(Nanos((1_000 + number) * MILLISECOND), &build);
    }
    frames
}

/// Two rule sets. Each writes its own mark on what it forwards, in two places, and they let different hosts begin connections.
fn steady() -> [String; 2] {
    [(0x10, 10, 8), (0x08, 20, 9)].map(|(tos, ttl, bits)| {
        format!(
            "*mangle\n-A FORWARD -j TOS --set-tos {tos:#x}\n-A POSTROUTING -j TTL --ttl-set {ttl}\nCOMMIT\n*filter\n:FORWARD DROP [0:0]\n\
             -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A FORWARD -s 10.0.0.0/{bits} -j ACCEPT\nCOMMIT\n"
        )
    })
}

/// Rule sets that share state, and differ in what: the second has no rules about addresses and connections of its own.
fn sharing() -> [String; 2] {
    let [first, second] = steady();
    let rates = "-A FORWARD -m hashlimit --hashlimit-upto 20/second --hashlimit-burst 5 --hashlimit-mode srcip --hashlimit-name u -j ACCEPT";
    let first = first.replace(
        "-A FORWARD -s",
        &format!(
            "{rates}\n-A FORWARD -p udp -m connlimit --connlimit-above 9 --connlimit-mask 32 -j DROP\n-A FORWARD -s"
        ),
    ) + "*nat\n-A PREROUTING -d 192.0.2.1 -p udp -j DNAT --to-destination 198.51.100.7:53\nCOMMIT\n";
    [
        first,
        second
            .replace("-A FORWARD -s", &format!("{rates}\n-A FORWARD -m limit --limit 1/minute -j DROP\n-A FORWARD -s")),
    ]
}

fn rules(text: &str, least: &str) -> Rules {
    let table = toml::Table::from_iter([
        ("rules".into(), toml::Value::String(text.into())),
        ("connections".into(), toml::Value::String(least.into())),
        ("flows".into(), toml::Value::Integer(8192)),
        ("flows_v6".into(), toml::Value::Integer(64)),
    ]);
    let config: Config = toml::Value::Table(table).try_into().expect("the test's own rules");
    Rules::new(&config)
}

/// What is seen of a packet that was forwarded.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    tos: u8,
    ttl: u8,
    to: [u8; 4],
}

/// Runs the traffic, with `reloads` changes from one function to the other and back. Returns the number of each first packet, what was sent
/// by number, and the outcome.
pub(crate) fn run<N: Function + Clone>(
    (kind, cores): (EngineKind, usize),
    both: &[N; 2],
    trace: &Arc<Trace>,
    reloads: u64,
) -> (Vec<Seq>, BTreeMap<Seq, Vec<u8>>, Outcome) {
    let released = Arc::new(AtomicU64::new(0));
    let inner = MemoryQueue::new(Arc::clone(trace), 16);
    let outbox: Outbox = inner.outbox();
    let mut port = Gated { inner, released: Arc::clone(&released) };
    let options = Options { may_share: true, ..Options::default() };
    let step = trace.len() as u64 / (reloads + 1);
    let mut firsts = Vec::new();
    let outcome = thread::scope(|scope| {
        let running: Running<'_, N> =
            start(scope, Arc::new(both[0].clone()), kind, cores, options, &mut port, &Control::default());
        for number in 1..=reloads {
            released.store(number * step, Ordering::Relaxed);
            // At times while packets flow, at times when all are through.
            while number % 4 == 0 && running.control().packets() < number * step {
                thread::yield_now();
            }
            let first = running.reload(both[(number % 2) as usize].clone()).expect("it can take over");
            firsts.push(first.expect("the run goes on"));
        }
        released.store(u64::MAX, Ordering::Relaxed);
        running.wait().expect("it runs")
    });
    (firsts, outbox.take().into_iter().map(|sent| (sent.seq, sent.bytes)).collect(), outcome)
}

/// What is seen of a packet that was forwarded.
fn seen(bytes: &[u8]) -> Seen {
    Seen { tos: bytes[15], ttl: bytes[22], to: bytes[30..34].try_into().expect("four bytes") }
}

/// Compares a run with the sequential driver, which changes its rules before the same packets.
fn check(way: (EngineKind, usize), texts: &[String; 2], least: &str, trace: &Arc<Trace>, reloads: u64) {
    let both = [0, 1].map(|set| rules(&texts[set], least));
    let (firsts, came, outcome) = run(way, &both, trace, reloads);
    assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{way:?}");
    assert_eq!(outcome.counters.received, trace.len() as u64, "{way:?}: no packet is lost");
    assert!(firsts.is_sorted(), "{way:?}");
    let among = firsts.iter().filter(|first| first.0 > 0 && first.0 < trace.len() as u64).count();
    assert!(among * 10 > firsts.len() * 9, "{way:?}: only {among} of {} while packets flow", firsts.len());

    let mut driver = Driver::new(rules(&texts[0], least));
    let mut changes = firsts.iter().zip(1..).peekable();
    for (packet, bytes) in trace.iter() {
        while let Some((_, number)) = changes.next_if(|(first, _)| **first <= packet.seq) {
            driver.reload(rules(&texts[number % 2], least)).expect("it can take over");
        }
        let verdict = driver.frame(packet.time, packet.link, bytes);
        let set = firsts.partition_point(|first| *first <= packet.seq) % 2;
        match (came.get(&packet.seq), verdict) {
            (None, nf::Verdict::Drop(_)) => {}
            (Some(sent), nf::Verdict::Rewrite { rewrite, .. }) => {
                let seen = seen(sent);
                let marks = [(0x10, 10), (0x08, 20)][set];
                assert_eq!((seen.tos, seen.ttl), marks, "{way:?}: packet {} of one rule set", packet.seq);
                let to = rewrite.dst.map_or(bytes[30..34].to_vec(), |to| match to.address {
                    std::net::IpAddr::V4(to) => to.octets().to_vec(),
                    std::net::IpAddr::V6(_) => Vec::new(),
                });
                assert_eq!(seen.to[..], to[..], "{way:?}: packet {}", packet.seq);
            }
            (sent, verdict) => panic!("{way:?}: packet {}: {sent:?}, but {verdict:?} in sequence", packet.seq),
        }
    }
    assert_eq!(outcome.report, driver.report(), "{way:?}");
}

/// Engines whose outcome for this traffic is the sequential one, packet by packet.
const EXACT: [(EngineKind, usize); 12] = [
    (EngineKind::Sequential, 1),
    (EngineKind::Rss, 2),
    (EngineKind::Rss, 1),
    (EngineKind::RssPlusPlus, 2),
    (EngineKind::Hybrid, 3),
    (EngineKind::Scr, 2),
    (EngineKind::Scr, 3),
    (EngineKind::Shared, 1),
    (EngineKind::Transactional, 2),
    (EngineKind::Pipeline, 1),
    (EngineKind::Pipeline, 2),
    (EngineKind::Pipeline, 4),
];

#[test]
fn a_thousand_rule_sets_take_over_while_packets_flow() {
    let trace = Arc::new(traffic(40_000).trace());
    check((EngineKind::Scr, 2), &steady(), "as needed", &trace, 1000);
    for way in EXACT {
        check(way, &steady(), "as needed", &trace, 100);
    }
}

#[test]
fn rules_that_share_state_take_over() {
    let trace = Arc::new(traffic(20_000).trace());
    for way in [
        (EngineKind::Sequential, 1),
        (EngineKind::Scr, 2),
        (EngineKind::Scr, 3),
        (EngineKind::Shared, 1),
        (EngineKind::Transactional, 1),
    ] {
        check(way, &sharing(), "rewritten", &trace, 100);
    }
    for way in [(EngineKind::Shared, 2), (EngineKind::Transactional, 3)] {
        let both = sharing().map(|text| rules(&text, "rewritten"));
        let (firsts, came, outcome) = run(way, &both, &trace, 200);
        assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{way:?}");
        assert_eq!(outcome.counters.received, trace.len() as u64, "{way:?}: no packet is lost");
        for (seq, sent) in came {
            let seen = seen(&sent);
            let set = firsts.partition_point(|first| *first <= seq) % 2;
            assert_eq!((seen.tos, seen.ttl), [(0x10, 10), (0x08, 20)][set], "{way:?}: packet {seq} of one rule set");
        }
    }
}

/// Compares what a run drops with the sequential driver, which changes its function before the same packets. Returns the number of packets
/// that went out.
fn drops_as_in_sequence<N: Function + Clone>(
    way: (EngineKind, usize),
    both: &[N; 2],
    trace: &Arc<Trace>,
    reloads: u64,
) -> usize {
    let (firsts, came, outcome) = run(way, both, trace, reloads);
    assert!(outcome.failure.is_none() && outcome.counters.add_up(), "{way:?}");
    let mut driver = Driver::new(both[0].clone());
    let mut changes = firsts.iter().zip(1..).peekable();
    for (packet, bytes) in trace.iter() {
        while let Some((_, number)) = changes.next_if(|(first, _)| **first <= packet.seq) {
            driver.reload(both[number % 2].clone()).expect("it can take over");
        }
        let is_dropped = matches!(driver.frame(packet.time, packet.link, bytes), nf::Verdict::Drop(_));
        assert_eq!(came.contains_key(&packet.seq), !is_dropped, "{way:?}: packet {}", packet.seq);
    }
    assert_eq!(outcome.report, driver.report(), "{way:?}");
    came.len()
}

/// Two configurations of a function.
pub(crate) fn configured<N: Catalogued>(texts: [&str; 2]) -> [N; 2] {
    texts.map(|text| N::from_config(toml::from_str(text).expect("the test's own configuration")))
}

/// Functions whose flows go on under any configuration.
#[test]
fn configurations_take_over_with_their_flows() {
    let trace = Arc::new(traffic(20_000).trace());
    let flows = "flows = 8192\nflows_v6 = 64\n";
    for way in EXACT {
        let firewalls = ["[\"10.0.0.0/9\"]", "[\"10.128.0.0/9\"]"].map(|hosts| format!("inside = {hosts}\n{flows}"));
        let sent =
            drops_as_in_sequence(way, &configured::<Firewall>(firewalls.each_ref().map(|text| &**text)), &trace, 20);
        assert!(sent > 1_000 && sent < trace.len(), "{way:?}: {sent} went out");
        let policers = [2_000, 20].map(|rate| format!("per = \"source\"\nrate = {rate}\nburst = 150\n{flows}"));
        let sent =
            drops_as_in_sequence(way, &configured::<Policer>(policers.each_ref().map(|text| &**text)), &trace, 20);
        assert!(sent > 1_000 && sent < trace.len(), "{way:?}: {sent} went out");
        let ddos = [40, 4].map(|most| format!("threshold = {most}\nwindow = 1\n{flows}"));
        let sent = drops_as_in_sequence(way, &configured::<Ddos>(ddos.each_ref().map(|text| &**text)), &trace, 20);
        assert!(sent > 1_000 && sent < trace.len(), "{way:?}: {sent} went out");
    }
}

/// A program that drops every fifth packet of two hosts.
pub(crate) fn program(global: &str) -> String {
    let counted = counted(global);
    format!(
        "stage count\n  key biflow ip.src ip.dst\n  {global}\n  states new=0 busy=1\n  on new : state busy idle 3s; r0 = 1; out 1\n  \
         on busy r0>=4 : {counted}r0 = 0; drop\n  on busy : r0 = r0 + 1; out 1\n"
    )
}

fn counted(global: &str) -> &'static str {
    if global.is_empty() { "" } else { "total = total + 1; " }
}

/// A program that drops every fifth packet of two hosts, and that program after edits: every third, and none of strangers.
pub(crate) fn programs(global: &str) -> [Efsm; 2] {
    let counted = counted(global);
    let text = program(global);
    let old = efsm::Program::read(&text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
    let stage = || "count".to_owned();
    let edits = [
        efsm::Edit::ReplaceRow { stage: stage(), at: 1, row: format!("on busy r0>=2 : {counted}r0 = 0; drop") },
        efsm::Edit::AddRow { stage: stage(), at: Some(0), row: "on * l4.src=9 : drop".into() },
    ];
    let new = old.edit(&edits).expect("the test's own edits");
    [old, new].map(|program| Efsm::of(program.machine().clone()))
}

#[test]
fn programs_of_stages_take_over_with_their_contexts() {
    let trace = Arc::new(traffic(20_000).trace());
    let shared =
        [(EngineKind::Sequential, 1), (EngineKind::Scr, 2), (EngineKind::Shared, 1), (EngineKind::Transactional, 1)];
    for (global, ways) in [("", &EXACT[..]), ("global total = 0", &shared[..])] {
        let both = programs(global);
        for way in ways {
            drops_as_in_sequence(*way, &both, &trace, 50);
        }
    }
    let [old, _] = programs("");
    let refused = |text: &str| {
        let program = efsm::Program::read(text).expect("it is a program");
        nf::NetworkFunction::succeed(Efsm::of(program.machine().clone()), &old).expect_err("it can't take over")
    };
    assert!(refused("stage other\n  on * : out 1\n").contains("no contexts"));
    let count = "stage count\n  key biflow ip.src ip.dst\n  states new=0 busy=2\n  on new : state busy idle 3s; r0 = 1; out 1\n";
    assert!(refused(count).contains("`count` has other numbers for states"));
    assert!(refused(&count.replace("biflow ", "")).contains("`count` has other keys"));
    assert!(refused(&count.replace("r0", "r3")).contains("`count` has other registers"));
}

#[test]
fn what_cannot_take_over_is_refused_with_the_reason() {
    let none = "*filter\n-A FORWARD -s 10.0.0.0/8 -j DROP\nCOMMIT\n";
    let limits = "*filter\n-A FORWARD -m limit --limit 1/sec -j ACCEPT\nCOMMIT\n";
    let [tracked, _] = steady();
    let [rewritten, _] = sharing();
    let refused = |way: (EngineKind, usize), may_share: bool, first: &str, second: Rules| {
        let trace = Arc::new(traffic(64).trace());
        let mut port = Gated { inner: MemoryQueue::new(trace, 16), released: Arc::default() };
        let control = Control::default();
        thread::scope(|scope| {
            let options = Options { may_share, ..Options::default() };
            let first = Arc::new(rules(first, "as needed"));
            let running = start(scope, first, way.0, way.1, options, &mut port, &control);
            let refused = running.reload(second).expect_err("it can't take over").to_string();
            running.stop();
            running.wait().expect("it runs");
            refused
        })
    };
    for (way, may_share, first, second, reason) in [
        ((EngineKind::Rss, 2), false, none, rules(&tracked, "as needed"), "begin with connections = \"tracked\""),
        (
            (EngineKind::Scr, 2),
            false,
            &tracked,
            rules(&rewritten, "as needed"),
            "begin with connections = \"rewritten\"",
        ),
        ((EngineKind::Rss, 2), false, none, rules(limits, "as needed"), "use transactional, scr or shared"),
        ((EngineKind::Shared, 2), false, none, rules(limits, "as needed"), "which they didn't when shared began"),
        ((EngineKind::Scr, 2), true, &tracked, Rules::new(&Config::default()), "can't change"),
    ] {
        let text = refused(way, may_share, first, second);
        assert!(text.contains(reason), "{way:?}: {text}");
    }
}
