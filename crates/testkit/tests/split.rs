//! Payload splitting around functions, held to the functions alone: with headers lost, twice and out of order on both ways, and payloads given
//! up. What comes out is what the function alone sends, byte for byte, but for packets whose header or payload was lost.

use std::collections::HashSet;

use functions::Catalogued;
use millrace_testkit::{Build, Driver, Rng};
use nf::{NetworkFunction, Verdict};
use packet::{Endpoint, LinkType, Nanos, TcpFlags, parse};
use split::{Joined, Options, Park, Secret, Split, Store, is_tagged};

const LINK: LinkType = LinkType::Ethernet;

/// A function under its own driver.
trait Behind {
    /// What it sends of a packet; `None` if it drops it.
    fn step(&mut self, time: Nanos, bytes: &[u8], wire_len: u32, interface: u16) -> Option<Vec<u8>>;
}

impl<N: NetworkFunction> Behind for Driver<N> {
    fn step(&mut self, time: Nanos, bytes: &[u8], wire_len: u32, interface: u16) -> Option<Vec<u8>> {
        let headers = parse(LINK, bytes, wire_len, interface);
        let rewrite = match self.packet(time, headers.as_ref(), bytes) {
            Verdict::Forward(_) => None,
            Verdict::Rewrite { rewrite, .. } => Some(rewrite),
            Verdict::Drop(_) | Verdict::Reply(_) => return None,
            other => panic!("no function here does this: {other:?}"),
        };
        let mut bytes = bytes.to_vec();
        if let (Some(rewrite), Ok(headers)) = (rewrite, headers) {
            rewrite.apply(&mut bytes, &headers);
        }
        Some(bytes)
    }
}

fn behind<N: Catalogued>(text: &str) -> Box<dyn Behind> {
    Box::new(Driver::new(N::from_config(toml::from_str(text).expect("the test's own configuration"))))
}

/// Makes a function, with a driver, from its configuration.
type Maker = fn(&str) -> Box<dyn Behind>;

/// Functions that look at headers, lengths of packets and rates.
const FUNCTIONS: [(Maker, &str); 6] = [
    (behind::<functions::firewall::Firewall>, "flows = 4096\nflows_v6 = 512"),
    (behind::<functions::nat::Nat>, "mappings = 2048\nsessions = 2048"),
    (behind::<functions::conntrack::Conntrack>, "flows = 4096\nflows_v6 = 512"),
    (behind::<functions::policer::Policer>, "flows = 4096\nflows_v6 = 512\nrate = 4000\nburst = 3000"),
    (behind::<functions::heavy_hitter::HeavyHitter>, "flows = 4096\nflows_v6 = 512"),
    (
        behind::<functions::load_balancer::LoadBalancer>,
        "flows = 4096\nflows_v6 = 512\nservices = [{ address = \"198.51.100.1:80\", backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"] }]",
    ),
];

/// A packet of hosts that talk to each other, and the interface that it comes by.
fn packet(rng: &mut Rng) -> (Vec<u8>, u16) {
    let v6 = rng.chance(0.2);
    let (inside, outside) = match v6 {
        true => (["fd00::1", "fd00::2"], ["2001:db8::1", "2001:db8::2"]),
        false => (["10.0.0.1", "10.0.0.2"], ["198.51.100.1", "203.0.113.1"]),
    };
    let mut host = |hosts: [&str; 2], ports: [u16; 2]| {
        let address = hosts[rng.below(2) as usize].parse().expect("an address");
        Endpoint::new(address, ports[rng.below(2) as usize])
    };
    let (from, to) = (host(inside, [4000, 4001]), host(outside, [80, 53]));
    let interface = u16::from(rng.chance(0.4));
    let (from, to) = if interface == 1 { (to, from) } else { (from, to) };
    let payload = rng.below(1_400) as usize;
    let build = match rng.below(10) {
        0..4 => Build::udp(from, to).payload(payload),
        4..8 => {
            let flags = [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::ACK, TcpFlags::RST][rng.below(4) as usize];
            Build::tcp(from, to).flags(flags).seq(rng.below(4_000) as u32).ack(100).payload(payload)
        }
        8 => Build::udp(from, to).payload(payload).fragment(0, true),
        _ => Build::udp(from, to).payload(payload).vlan(7),
    };
    (build.bytes(), interface)
}

/// The order in which so many packets come out of a network that loses some, delivers some twice, and lets some overtake others.
fn through(rng: &mut Rng, count: usize) -> Vec<usize> {
    let mut places: Vec<(u64, usize)> = Vec::new();
    for number in 0..count {
        let copies = if rng.chance(0.05) { 0 } else { 1 + usize::from(rng.chance(0.05)) };
        for _ in 0..copies {
            let late = if rng.chance(0.1) { rng.below(30) } else { 0 };
            places.push((number as u64 + late, number));
        }
    }
    places.sort_unstable();
    places.into_iter().map(|(_, number)| number).collect()
}

#[test]
fn what_comes_out_is_what_the_function_alone_sends() {
    let (mut joined, mut dropped, mut given_up) = (0, 0, 0);
    for seed in 0..120 {
        let mut rng = Rng::new(seed);
        let (make, text) = FUNCTIONS[rng.below(FUNCTIONS.len() as u64) as usize];
        let (mut alone, mut behind) = (make(text), make(text));
        // With few slots payloads are given up before their header is back.
        let slots = [8, 64, 4_096][rng.below(3) as usize];
        let rounds = 1 + rng.below(2) as u8;
        let options =
            Options { keep: 64 + rng.below(100) as usize, slots, rounds, shorten: false, secret: Secret(seed) };
        let mut park = Park::new(options, Store::local(slots));
        let packets: Vec<_> = (0..400).map(|_| packet(&mut rng)).collect();
        let heads: Vec<(Vec<u8>, u32)> = packets
            .iter()
            .map(|(frame, _)| {
                let mut frame = frame.clone();
                let wire_len = frame.len() as u32;
                match park.split(LINK, wire_len, &mut frame) {
                    Split::Whole => (frame, wire_len),
                    Split::Head { len, tag } => ([&frame[..len], &tag].concat(), wire_len),
                }
            })
            .collect();
        // The function gets the same packets in the same order, whole and as headers.
        let (mut sent, mut came) = (Vec::new(), Vec::new());
        for (time, number) in through(&mut rng, packets.len()).into_iter().enumerate() {
            let now = Nanos(time as u64 * 50_000_000);
            let (frame, interface) = &packets[number];
            let (head, wire_len) = &heads[number];
            let whole = alone.step(now, frame, *wire_len, *interface);
            let back = behind.step(now, head, *wire_len, *interface);
            assert_eq!(whole.is_some(), back.is_some(), "seed {seed}: packet {number} has the same verdict");
            match whole.zip(back) {
                Some((whole, back)) => {
                    sent.push((number, whole));
                    came.push(back);
                }
                None => {
                    dropped += 1;
                    // It may have been sent before, or may come again.
                    if !is_tagged(head) || rng.chance(0.5) {
                        park.release(head);
                    }
                }
            }
        }
        let mut gone: HashSet<usize> = HashSet::new();
        for at in through(&mut rng, sent.len()) {
            let (number, whole) = &sent[at];
            let mut out = Vec::new();
            let before = park.counts();
            match park.join(LINK, &came[at], &mut out) {
                Joined::Plain => assert_eq!(&came[at], whole, "seed {seed}: packet {number}"),
                Joined::Whole => {
                    assert_eq!(&out, whole, "seed {seed}: packet {number}");
                    assert!(gone.insert(*number), "seed {seed}: packet {number} comes out once");
                    joined += 1;
                }
                Joined::Gone => {
                    let after = park.counts();
                    given_up += after.late - before.late;
                    assert_eq!((after.late + after.missed) - (before.late + before.missed), 1, "seed {seed}: told why");
                }
            }
        }
        let counts = park.counts();
        assert!(counts.balance() && counts.parked <= slots.into(), "seed {seed}: {counts:?}");
    }
    assert!(
        joined > 5_000 && dropped > 2_000 && given_up > 1_000,
        "{joined} joined, {dropped} dropped, {given_up} late"
    );
}
