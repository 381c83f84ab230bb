//! Compares `conntrack` and `firewall` with naive models: verdicts, connections, states, deadlines and protection from eviction, over random
//! traffic, real captures and with a full table. The models are compared with the kernel's answers. `MILLRACE_DEEP=1` takes fifty times as
//! much random traffic, and every capture.
#![allow(clippy::print_stdout)]

mod captures;
mod full;
mod kernel;
mod traffic;

use std::collections::BTreeSet;

use functions::tracking::Connection;
use functions::{conntrack, firewall};
use millrace_testkit::model::{ConntrackModel, Fate, FirewallModel, Model, Tracked, compare_packet};
use millrace_testkit::{Build, Driver, Rng};
use nf::KeyOf;
use nf::NetworkFunction;
use packet::{FiveTuple, Headers, Nanos, Seq, TcpFlags};

use traffic::{Frame, pick, trace};

/// A model that lists its connections.
trait Tells: Model {
    fn connections(&self, now: Nanos) -> Vec<Tracked>;
}

impl Tells for ConntrackModel {
    fn connections(&self, now: Nanos) -> Vec<Tracked> {
        self.connections(now)
    }
}

impl Tells for FirewallModel {
    fn connections(&self, now: Nanos) -> Vec<Tracked> {
        self.connections(now)
    }
}

/// A packet and its time.
type Timed = (Nanos, Headers);

/// Runs both over the packets and compares the connections after every `every` packets. Returns the fates, or the first difference.
fn run<N>(function: N, model: &mut impl Tells, packets: &[Timed], every: usize) -> Result<Vec<Fate>, String>
where
    N: NetworkFunction<Flow = Connection>,
    KeyOf<N>: Into<FiveTuple>,
{
    let mut driver = Driver::new(function);
    let mut fates = Vec::with_capacity(packets.len());
    for (time, headers) in packets {
        let number = fates.len();
        let fate = compare_packet(&mut driver, model, Seq(number as u64), *time, headers, &[]);
        fates.push(fate.map_err(|disagreement| disagreement.to_string())?);
        if number % every != 0 && number + 1 != packets.len() {
            continue;
        }
        let (got, expected) = (told(&driver), model.connections(driver.now()));
        if got != expected {
            return Err(format!("behind packet {number} at {time}:\n  got {got:?}\n  the model has {expected:?}"));
        }
    }
    Ok(fates)
}

fn told<N>(driver: &Driver<N>) -> Vec<Tracked>
where
    N: NetworkFunction<Flow = Connection>,
    KeyOf<N>: Into<FiveTuple>,
{
    let tell = |(key, connection, deadline, keeps_place): (KeyOf<N>, Connection, Nanos, bool)| Tracked {
        keeps_place,
        ..tell(key.into(), &connection, deadline)
    };
    let mut told: Vec<Tracked> = driver.flows().into_iter().map(tell).collect();
    told.sort_unstable_by_key(|tracked| tracked.name);
    told
}

fn tell(key: FiveTuple, connection: &Connection, deadline: Nanos) -> Tracked {
    let (one, other) = (key.source(), key.destination());
    let name = (one.address, one.port, other.address, other.port, key.protocol());
    let state = connection.tcp().map(|_| connection.names().1);
    Tracked { name, state, deadline, assured: connection.assured(), keeps_place: connection.assured() }
}

fn run_conntrack(config: &str, packets: &[Timed], every: usize) -> Result<Vec<Fate>, String> {
    let function = conntrack::Conntrack::new(toml::from_str(config).expect("the test's own configuration"));
    run(function, &mut ConntrackModel::new(config), packets, every)
}

fn run_firewall(config: &str, packets: &[Timed], every: usize) -> Result<Vec<Fate>, String> {
    let function = firewall::Firewall::new(toml::from_str(config).expect("the test's own configuration"));
    run(function, &mut FirewallModel::new(config), packets, every)
}

type Run = fn(&str, &[Timed], usize) -> Result<Vec<Fate>, String>;

/// Removes packets while the difference remains, and reports the rest.
fn fail(run: Run, config: &str, mut packets: Vec<Timed>, what: &str) -> ! {
    let mut len = packets.len();
    while len > 0 {
        let mut at = 0;
        while at + len <= packets.len() {
            let fewer = [&packets[..at], &packets[at + len..]].concat();
            if run(config, &fewer, 1).is_err() { packets = fewer } else { at += len }
        }
        len /= 2;
    }
    let parting = run(config, &packets, 1).expect_err("they still part");
    let lines: Vec<String> = packets.iter().map(|(time, headers)| format!("{time} {headers:?}")).collect();
    panic!("{what}, configuration:\n{config}\n{}\n{parting}", lines.join("\n"));
}

const TIMEOUTS: [&str; 15] = [
    "tcp_syn_sent",
    "tcp_syn_recv",
    "tcp_established",
    "tcp_fin_wait",
    "tcp_close_wait",
    "tcp_last_ack",
    "tcp_time_wait",
    "tcp_close",
    "tcp_syn_sent2",
    "tcp_retransmitted",
    "tcp_unacknowledged",
    "udp",
    "udp_stream",
    "icmp",
    "other",
];

/// Random timeouts as configuration text, and in seconds.
fn timeouts(rng: &mut Rng) -> (String, Vec<u64>) {
    if rng.chance(0.4) {
        return (String::new(), vec![120, 60, 432_000, 30, 10, 300, 600]);
    }
    let longest = pick(rng, &[6, 6, 20, 400]);
    let secs: Vec<u64> = TIMEOUTS.iter().map(|_| 1 + rng.below(longest)).collect();
    let lines: Vec<String> = TIMEOUTS.iter().zip(&secs).map(|(key, secs)| format!("{key} = {secs}")).collect();
    (format!("[timeouts]\n{}\n", lines.join("\n")), secs)
}

/// Compares over random configurations and traces with `packets` packets in all. Returns the fates that occurred.
fn agree_on_random_traffic(run: Run, config: fn(&mut Rng) -> String, packets: usize) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    const EACH: usize = 200;
    let packets = if deep() { 50 * packets } else { packets };
    for seed in 0..(packets / EACH) as u64 {
        let mut rng = Rng::new(seed);
        let (timeouts, secs) = timeouts(&mut rng);
        let config = config(&mut rng) + &timeouts;
        let packets: Vec<Timed> = trace(&mut rng, EACH, &secs).iter().map(Frame::parsed).collect();
        match run(&config, &packets, 1) {
            Ok(fates) => seen.extend(fates.into_iter().map(|fate| match fate {
                Fate::Forward(_) | Fate::Transform(_) => "forward",
                Fate::Reply(_) => "reply",
                Fate::Drop(reason) => reason,
            })),
            Err(_) => fail(run, &config, packets, &format!("seed {seed}")),
        }
    }
    seen
}

fn deep() -> bool {
    std::env::var_os("MILLRACE_DEEP").is_some()
}

#[test]
fn conntrack_over_random_traffic() {
    let config = |rng: &mut Rng| {
        let mut flag = |name: &str, usual: bool, odd: f64| format!("{name} = {}\n", rng.chance(odd) != usual);
        let flags = flag("loose", true, 0.3) + &flag("liberal", false, 0.2) + &flag("ignore_invalid_rst", false, 0.2);
        let invalid = if rng.chance(0.2) { "invalid = \"forward\"\n" } else { "" };
        format!("{flags}{invalid}max_retransmissions = {}\n", pick(rng, &[1, 2, 3, 3, 5]))
    };
    let seen = agree_on_random_traffic(run_conntrack, config, 200_000);
    let mut expected: BTreeSet<&str> = conntrack::Conntrack::DESCRIPTION.drop_reasons.iter().copied().collect();
    expected.extend(["forward", "fragment"]);
    assert_eq!(seen, expected, "all that can become of a packet does");
}

#[test]
fn firewall_over_random_traffic() {
    let config = |rng: &mut Rng| {
        let mut lines = vec![format!("max_retransmissions = {}", pick(rng, &[1, 2, 3, 3, 5]))];
        let mut line = |often: f64, line: &str| {
            if rng.chance(often) {
                lines.push(String::from(line));
            }
        };
        line(0.3, "loose = true");
        line(0.4, "reject = true");
        line(0.3, "icmp_errors = false");
        line(0.2, "inside = [\"10.0.0.0/31\", \"2001:db8::/127\"]");
        line(0.2, "inside_interfaces = [1]");
        line(0.3, "non_ip = \"drop\"");
        let some = [
            "",
            "{ proto = \"tcp\", port = 22 }, { proto = \"udp\", port = 40000 }",
            "{ proto = \"tcp\" }, { proto = \"icmp\" }, { proto = \"sctp\", port = 80 }",
            "{ proto = \"udp\" }, { proto = \"sctp\" }",
        ];
        lines.push(format!("allow = [{}]\n", pick(rng, &some)));
        lines.join("\n")
    };
    let seen = agree_on_random_traffic(run_firewall, config, 200_000);
    let mut expected: BTreeSet<&str> = firewall::Firewall::DESCRIPTION.drop_reasons.iter().copied().collect();
    expected.extend(["forward", "fragment", "reply"]);
    assert_eq!(seen, expected, "all that can become of a packet does");
}

/// The kernel's counter is a byte that wraps around; ours must saturate.
#[test]
fn the_same_segment_more_often_than_a_byte_can_count() {
    let (client, server) = ("10.0.0.1:40000", "192.0.2.1:80");
    let mut builds = vec![
        Build::tcp(client, server).flags(TcpFlags::SYN).seq(1000),
        Build::tcp(server, client).flags(TcpFlags::SYN).seq(5000).ack(1001),
    ];
    builds.extend(vec![Build::tcp(client, server).seq(1001).ack(5001); 600]);
    let packets: Vec<Timed> = builds.iter().zip(1..).map(|(build, at)| (Nanos(at), build.headers())).collect();
    run_conntrack("max_retransmissions = 255", &packets, 1).unwrap_or_else(|parting| panic!("{parting}"));
    run_firewall("max_retransmissions = 255", &packets, 1).unwrap_or_else(|parting| panic!("{parting}"));
}
