//! Chains, held to their functions one behind another: each function has a driver of its own, and gets the packets that the one before has
//! let pass, as it has rewritten them.

use functions::Catalogued;
use functions::chain::{AnyFunction, LongChain, Make};
use millrace_testkit::{Build, Driver, Rng};
use nf::{NetworkFunction, PortId, Verdict};
use packet::{Endpoint, Headers, LinkType, Nanos, TcpFlags, Transport, parse, protocol};

/// A function under its own driver.
trait Behind {
    /// Its verdict on a packet, with the reason's name.
    fn step(&mut self, time: Nanos, bytes: &[u8], interface: u16) -> (Verdict, Option<&'static str>);
}

impl<N: NetworkFunction> Behind for Driver<N> {
    fn step(&mut self, time: Nanos, bytes: &[u8], interface: u16) -> (Verdict, Option<&'static str>) {
        let headers = parse(LinkType::Ethernet, bytes, bytes.len() as u32, interface);
        let verdict = self.packet(time, headers.as_ref(), bytes);
        (verdict, named(verdict, N::DESCRIPTION.drop_reasons))
    }
}

fn named(verdict: Verdict, own: &[&'static str]) -> Option<&'static str> {
    match verdict {
        Verdict::Drop(reason) => Some(reason.name(own)),
        _ => None,
    }
}

/// Makes functions from text: for the chain, or with a driver for each.
struct FromText<'t>(&'t str);

impl Make for FromText<'_> {
    type Error = String;

    fn make<N: Catalogued>(&mut self) -> Result<N, String> {
        toml::from_str::<N::Config>(self.0).map(N::from_config).map_err(|error| error.to_string())
    }
}

/// What becomes of a packet: the reason that drops it by its function, or what goes out.
#[derive(Debug, PartialEq)]
enum Fate {
    Dropped(String),
    Replied(nf::Reply),
    Sent(PortId, Vec<u8>),
}

/// Functions with small tables and low limits, so that each of them drops, forgets or rewrites something. `anti-ddos` drops nothing: which
/// flows it counts depends on when those past their deadline end, and the driver ends them all at once.
const FUNCTIONS: [(&str, &str); 17] = [
    ("firewall", "flows = 4096\nflows_v6 = 512\nreject = true"),
    ("firewall", "flows = 4096\nflows_v6 = 512\n[[allow]]\nproto = \"udp\""),
    ("nat", "mappings = 2048\nsessions = 2048"),
    ("nat", "mappings = 2048\nsessions = 2048\nports = \"1024-1055\""),
    ("conntrack", "flows = 4096\nflows_v6 = 512"),
    ("policer", "flows = 4096\nflows_v6 = 512\nrate = 1000\nburst = 400\nidle_timeout = 1"),
    ("policer", "flows = 4096\nflows_v6 = 512\nrate = 1000\nburst = 400\nidle_timeout = 1\nicmp_errors = \"quoted\""),
    ("policer", "flows = 4096\nflows_v6 = 512\nrate = 2000\nburst = 900\nper = \"source\""),
    ("policer", "flows = 4096\nflows_v6 = 512\nrate = 2000\nburst = 900\nper = \"destination\""),
    ("ddos", "flows = 4096\nflows_v6 = 512\nthreshold = 20"),
    ("syn-limit", "flows = 4096\nflows_v6 = 512\nrate = 2"),
    ("heavy-hitter", "flows = 4096\nflows_v6 = 512\nicmp_errors = \"quoted\""),
    ("heavy-hitter", "flows = 4096\nflows_v6 = 512\nidle_timeout = 2"),
    ("port-knock", "flows = 4096\nflows_v6 = 512"),
    (
        "load-balancer",
        "flows = 4096\nflows_v6 = 512\nservices = [{ address = \"198.51.100.1:80\", backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"] }]",
    ),
    ("anti-ddos", "flows = 4096\nflows_v6 = 512"),
    ("bridge", ""),
];

/// A chain beside its functions, each under a driver of its own.
struct Beside {
    chain: Driver<LongChain>,
    apart: Vec<(String, Box<dyn Behind>)>,
    backwards: bool,
}

struct Boxed<'t>(FromText<'t>);

impl Boxed<'_> {
    fn make(&mut self, name: &str) -> Box<dyn Behind> {
        fn boxed<N: Catalogued>(text: &mut FromText<'_>) -> Box<dyn Behind> {
            Box::new(Driver::new(text.make::<N>().expect("the test's own configuration")))
        }
        let text = &mut self.0;
        match name {
            "firewall" => boxed::<functions::firewall::Firewall>(text),
            "nat" => boxed::<functions::nat::Nat>(text),
            "conntrack" => boxed::<functions::conntrack::Conntrack>(text),
            "policer" => boxed::<functions::policer::Policer>(text),
            "ddos" => boxed::<functions::ddos::Ddos>(text),
            "syn-limit" => boxed::<functions::syn_limit::SynLimit>(text),
            "heavy-hitter" => boxed::<functions::heavy_hitter::HeavyHitter>(text),
            "port-knock" => boxed::<functions::port_knock::PortKnock>(text),
            "load-balancer" => boxed::<functions::load_balancer::LoadBalancer>(text),
            "anti-ddos" => boxed::<functions::anti_ddos::AntiDdos>(text),
            "bridge" => boxed::<functions::bridge::Bridge>(text),
            _ => panic!("{name} is not in the list"),
        }
    }
}

impl Beside {
    fn new(parts: &[(&str, &str)], backwards: bool) -> Self {
        let links = parts.iter().enumerate().map(|(number, (name, text))| {
            let link = AnyFunction::named(name, &mut FromText(text)).expect("the test's own configuration");
            (format!("{number}-{name}"), link.expect("it is in the list"))
        });
        let chain = LongChain::new(links, if backwards { &[1] } else { &[] }).expect("they can be a chain");
        let apart = parts
            .iter()
            .enumerate()
            .map(|(number, (name, text))| (format!("{number}-{name}"), Boxed(FromText(text)).make(name)));
        Self { chain: Driver::new(chain), apart: apart.collect(), backwards }
    }

    /// What the chain does with a packet, and what its functions do one behind another.
    fn step(&mut self, time: Nanos, bytes: &[u8], interface: u16) -> (Fate, Fate) {
        let headers = |bytes: &[u8]| parse(LinkType::Ethernet, bytes, bytes.len() as u32, interface);
        let own = self.chain.function().description().drop_reasons;
        let verdict = self.chain.packet(time, headers(bytes).as_ref(), bytes);
        let chained = match verdict {
            Verdict::Drop(reason) => Fate::Dropped(reason.name(own).to_owned()),
            Verdict::Reply(reply) => Fate::Replied(reply),
            verdict => sent(verdict, PortId::ACROSS, bytes.to_vec(), headers(bytes).ok()),
        };
        let mut way: Vec<&mut (String, Box<dyn Behind>)> = self.apart.iter_mut().collect();
        if self.backwards && interface == 1 {
            way.reverse();
        }
        let (mut port, mut bytes) = (PortId::ACROSS, bytes.to_vec());
        for (name, function) in way {
            match function.step(time, &bytes, interface) {
                (_, Some(reason)) => {
                    // Engines drop malformed packets themselves, and nobody's reason is that.
                    let whose = if headers(&bytes).is_err() { reason.to_owned() } else { format!("{name}:{reason}") };
                    return (chained, Fate::Dropped(whose));
                }
                (Verdict::Reply(reply), _) => return (chained, Fate::Replied(reply)),
                (verdict, _) => {
                    let now = headers(&bytes).ok();
                    let Fate::Sent(to, new) = sent(verdict, port, bytes, now) else { unreachable!("it was sent") };
                    (port, bytes) = (to, new);
                }
            }
        }
        (chained, Fate::Sent(port, bytes))
    }
}

/// The packet behind a verdict that sends it.
fn sent(verdict: Verdict, before: PortId, mut bytes: Vec<u8>, headers: Option<Headers>) -> Fate {
    let (port, rewrite) = match verdict {
        Verdict::Forward(port) => (port, None),
        Verdict::Rewrite { port, rewrite } => (port, Some(rewrite)),
        other => panic!("no function here does this: {other:?}"),
    };
    if let (Some(rewrite), Some(headers)) = (rewrite, headers) {
        rewrite.apply(&mut bytes, &headers);
    }
    Fate::Sent(if port == PortId::ACROSS { before } else { port }, bytes)
}

/// Makes packets of hosts that talk to each other across the chain: what went out is answered as it went out.
struct Traffic {
    rng: Rng,
    /// Packets that went out by the outer side.
    out: Vec<Vec<u8>>,
}

impl Traffic {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len() as u64) as usize]
    }

    fn flags(&mut self) -> TcpFlags {
        self.pick(&[
            TcpFlags::SYN,
            TcpFlags::SYN,
            TcpFlags::ACK,
            TcpFlags::ACK,
            TcpFlags::ACK.with(TcpFlags::PSH),
            TcpFlags::FIN.with(TcpFlags::ACK),
            TcpFlags::RST,
            TcpFlags::SYN.with(TcpFlags::ACK),
        ])
    }

    fn between(&mut self, from: Endpoint, to: Endpoint, number: u8) -> Build {
        match number {
            protocol::TCP => {
                let flags = self.flags();
                Build::tcp(from, to).flags(flags).seq(100).ack(100).payload(self.rng.below(60) as usize)
            }
            protocol::UDP => Build::udp(from, to).payload(self.rng.below(200) as usize),
            protocol::ICMP if self.rng.chance(0.5) => Build::echo(from, to, from.port, 1),
            protocol::ICMP => Build::echo_reply(from, to, from.port, 1),
            other => Build::ip(from, to, other).payload(20),
        }
    }

    /// The next packet, and the interface that it comes by.
    fn next(&mut self) -> (Vec<u8>, u16) {
        let v6 = self.rng.chance(0.05);
        let text = |v6: bool, v4: &str, six: &str| if v6 { six.parse().unwrap() } else { v4.parse().unwrap() };
        let inside =
            [text(v6, "10.0.0.1", "fd00::1"), text(v6, "10.0.0.2", "fd00::2"), text(v6, "192.168.7.9", "fd00::9")];
        let outside = [text(v6, "198.51.100.1", "2001:db8::1"), text(v6, "198.51.100.2", "2001:db8::2")];
        let (port, server) = (self.pick(&[4000, 4001, 4002, 5000]), self.pick(&[80, 53, 7001]));
        let from = Endpoint::new(self.pick(&inside), port);
        let to = Endpoint::new(self.pick(&outside), server);
        let number = self.pick(&[
            protocol::TCP,
            protocol::TCP,
            protocol::TCP,
            protocol::UDP,
            protocol::UDP,
            protocol::ICMP,
            protocol::GRE,
        ]);
        let number = if v6 && number == protocol::ICMP { protocol::UDP } else { number };
        match self.rng.below(100) {
            0..45 => (self.between(from, to, number).bytes(), 0),
            45..75 if !self.out.is_empty() => {
                let index = self.rng.below(self.out.len() as u64) as usize;
                let seen =
                    parse(LinkType::Ethernet, &self.out[index], self.out[index].len() as u32, 0).expect("it went out");
                let tuple = seen.five_tuple().expect("it is an IP packet");
                let number = if matches!(seen.transport, Transport::None) { protocol::GRE } else { tuple.protocol() };
                (self.between(tuple.destination(), tuple.source(), number).bytes(), 1)
            }
            75..85 if !self.out.is_empty() => {
                let index = self.rng.below(self.out.len() as u64) as usize;
                let quoted = &self.out[index];
                let seen = parse(LinkType::Ethernet, quoted, quoted.len() as u32, 0).expect("it went out");
                let (source, _) = seen.addresses().expect("it is an IP packet");
                let router: std::net::IpAddr =
                    if source.is_ipv4() { "198.51.100.254".parse().unwrap() } else { "2001:db8::ff".parse().unwrap() };
                let kind = if source.is_ipv4() { 3 } else { 1 };
                let quote = &quoted[14..quoted.len().min(14 + 64)];
                (Build::icmp_error(router, source, kind, 1, quote).bytes(), 1)
            }
            85..90 => {
                let to = Endpoint::new(self.pick(&[text(v6, "203.0.113.1", "fd00::1"), inside[0]]), port);
                (self.between(Endpoint::new(outside[0], server), to, number).bytes(), 1)
            }
            90..95 => {
                let (offset, more) = self.pick(&[(0, true), (80, true), (160, false)]);
                (Build::udp(from, to).payload(80).fragment(offset, more).bytes(), 0)
            }
            95..97 => (Build::arp(), 0),
            97 => (self.between(from, to, number).vlan(7).bytes(), 0),
            98 => {
                let whole = self.between(from, to, number).bytes();
                let len = self.rng.below(whole.len() as u64) as usize;
                (whole[..len].to_vec(), 0)
            }
            _ => (self.between(from, to, number).bytes(), 1),
        }
    }
}

/// Packet by packet, whatever the functions and their order.
#[test]
fn a_chain_does_what_its_functions_do_one_behind_another() {
    let rounds = if std::env::var_os("MILLRACE_DEEP").is_some() { 3_000 } else { 150 };
    let (mut dropped, mut rewritten) = (0, 0);
    for seed in 0..rounds {
        let mut rng = Rng::new(seed);
        let count = 1 + rng.below(5) as usize;
        let parts: Vec<_> = (0..count).map(|_| FUNCTIONS[rng.below(FUNCTIONS.len() as u64) as usize]).collect();
        let backwards = rng.chance(0.5);
        let mut beside = Beside::new(&parts, backwards);
        let mut traffic = Traffic { rng, out: Vec::new() };
        let mut now = Nanos(0);
        for number in 0..400 {
            let gap = traffic.pick(&[0, 1_000, 1_000_000, 1_000_000, 300_000_000, 3_000_000_000, 100_000_000_000]);
            now = now + Nanos(gap);
            let (bytes, interface) = traffic.next();
            let (chained, apart) = beside.step(now, &bytes, interface);
            let names: Vec<_> = parts.iter().map(|(name, _)| *name).collect();
            assert_eq!(
                chained,
                apart,
                "packet {number} of seed {seed}, at {now:?} by interface {interface}, backwards {backwards}: {names:?}; {:?}",
                parse(LinkType::Ethernet, &bytes, bytes.len() as u32, interface)
            );
            match chained {
                Fate::Sent(_, new) => {
                    rewritten += u64::from(new != bytes);
                    let is_ip = parse(LinkType::Ethernet, &new, new.len() as u32, 0)
                        .is_ok_and(|seen| seen.addresses().is_some());
                    if interface == 0 && is_ip {
                        traffic.out.push(new);
                    }
                }
                Fate::Dropped(_) => dropped += 1,
                Fate::Replied(_) => {}
            }
        }
    }
    assert!(dropped > 1_000 && rewritten > 1_000, "{dropped} dropped, {rewritten} rewritten");
}
