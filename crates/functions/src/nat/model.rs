//! A naive model of the translator: one map, linear search, times in whole seconds. The real one chooses the port, and the model checks
//! that the port was allowed.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::vec::Vec;

use nf::{PortId, Verdict};
use packet::{Endpoint, Headers, Rewrite, TcpFlags, protocol};
use proptest::prelude::*;

use super::tests::{ACK, Driver, FIN, RST, SYN, at, echo, error, tcp, udp, v4};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Filtering {
    Endpoint,
    Address,
    AddressAndPort,
}

/// Protocol number, inside endpoint, and the part of the remote endpoint that filtering uses.
type Name = (u8, SocketAddrV4, SocketAddrV4);

struct Session {
    external: SocketAddrV4,
    deadline: u64,
    /// The flags seen from inside and from outside since the connection opened, and the sides that reset it.
    seen: [u8; 2],
    reset: [bool; 2],
}

struct Model {
    filtering: Filtering,
    now: u64,
    sessions: HashMap<Name, Session>,
    /// True if the configuration has the mappings of `FIXED`.
    has_fixed: bool,
}

/// Mappings of the configuration that belong to the inside endpoints below: one host, and two ports of another.
const FIXED: &str = "static = [{ external = \"203.0.113.7\", internal = \"10.0.0.3\" }]\n\
    forward = [{ external = \"203.0.113.0:5003\", internal = \"10.0.0.2:5001\", protocol = \"tcp\" },\n\
    { external = \"203.0.113.1:5004-5005\", internal = \"10.0.0.2:5000-5001\", protocol = \"udp\" }]";

impl Model {
    fn scope(&self, number: u8, remote: SocketAddrV4) -> SocketAddrV4 {
        match self.filtering {
            _ if number == protocol::TCP => remote,
            Filtering::Endpoint => at("0.0.0.0:0"),
            Filtering::AddressAndPort if number == protocol::UDP => remote,
            Filtering::Address | Filtering::AddressAndPort => SocketAddrV4::new(*remote.ip(), 0),
        }
    }

    /// Lists the mappings of `FIXED` for the ports below: protocol, inside, external.
    fn fixed(&self) -> Vec<(u8, SocketAddrV4, SocketAddrV4)> {
        let mut all = std::vec![
            (protocol::TCP, at("10.0.0.2:5001"), at("203.0.113.0:5003")),
            (protocol::UDP, at("10.0.0.2:5000"), at("203.0.113.1:5004")),
            (protocol::UDP, at("10.0.0.2:5001"), at("203.0.113.1:5005")),
        ];
        for number in [protocol::TCP, protocol::UDP, protocol::ICMP] {
            let host = |port| (number, at(&std::format!("10.0.0.3:{port}")), at(&std::format!("203.0.113.7:{port}")));
            all.extend([5000, 5001].map(host));
        }
        all.retain(|_| self.has_fixed);
        all
    }

    fn fixed_external(&self, number: u8, inside: SocketAddrV4) -> Option<SocketAddrV4> {
        self.fixed().iter().find(|one| (one.0, one.1) == (number, inside)).map(|one| one.2)
    }

    fn fixed_inside(&self, number: u8, external: SocketAddrV4) -> Option<SocketAddrV4> {
        self.fixed().iter().find(|one| (one.0, one.2) == (number, external)).map(|one| one.1)
    }

    fn live(&self) -> impl Iterator<Item = (&Name, &Session)> {
        self.sessions.iter().filter(|(_, entry)| entry.deadline > self.now)
    }

    fn alive(&self, name: &Name) -> bool {
        self.sessions.get(name).is_some_and(|entry| entry.deadline > self.now)
    }

    /// Returns the current external endpoint of an inside endpoint.
    fn external(&self, number: u8, inside: SocketAddrV4) -> Option<SocketAddrV4> {
        let fixed = self.fixed_external(number, inside);
        fixed.or_else(|| self.mapped(number, inside))
    }

    fn mapped(&self, number: u8, inside: SocketAddrV4) -> Option<SocketAddrV4> {
        self.live().find(|((n, i, _), _)| (*n, *i) == (number, inside)).map(|(_, entry)| entry.external)
    }

    fn expect_out(&mut self, packet: &Packet, inside: SocketAddrV4, remote: SocketAddrV4) -> bool {
        let name = (packet.number(), inside, self.scope(packet.number(), remote));
        self.fixed_external(packet.number(), inside).is_some()
            || self.alive(&name)
            || match packet {
                Packet::Tcp(flags) => *flags == SYN || flags.0 & (SYN.0 | RST.0) == 0,
                Packet::Udp | Packet::Echo(true) => true,
                Packet::Echo(false) => false,
            }
    }

    /// Checks and records the translation that the real one chose.
    fn sent_out(&mut self, packet: &Packet, inside: SocketAddrV4, remote: SocketAddrV4, external: SocketAddrV4) {
        let number = packet.number();
        if let Some(known) = self.external(number, inside) {
            assert_eq!(external, known, "mapping depends on the endpoint");
        }
        if self.fixed_external(number, inside).is_some() {
            return;
        }
        assert_eq!(self.fixed_inside(number, external), None, "{external} is somebody's");
        for ((n, other, _), entry) in self.live() {
            let shared = (*n, entry.external) == (number, external) && *other != inside;
            assert!(!shared, "{inside} and {other} share {external}");
        }
        if number == protocol::UDP {
            assert_eq!(external.port() % 2, inside.port() % 2, "parity of {inside}");
        }
        self.saw(packet, (number, inside, self.scope(number, remote)), external, 0);
    }

    /// Returns whom a packet from outside may reach: the inside endpoint if it must, and others that an expired mapping may still
    /// lead to.
    fn expect_in(&self, packet: &Packet, remote: SocketAddrV4, external: SocketAddrV4) -> Reach {
        let number = packet.number();
        if let Some(inside) = self.fixed_inside(number, external) {
            return Reach::Sure(inside);
        }
        let scope = self.scope(number, remote);
        let of_mapping = |(n, _, _): &Name, entry: &Session| (*n, entry.external) == (number, external);
        if let Some(((_, inside, _), _)) = self.live().find(|(n, e)| of_mapping(n, e) && n.2 == scope) {
            return Reach::Sure(*inside);
        }
        let opens = matches!(packet, Packet::Tcp(flags) if *flags == SYN);
        if !opens || self.filtering == Filtering::AddressAndPort {
            return Reach::Never;
        }
        let counts = |name: &Name, entry: &Session| {
            of_mapping(name, entry) && (self.filtering == Filtering::Endpoint || name.2.ip() == remote.ip())
        };
        let sure = self.live().find(|(name, entry)| counts(name, entry));
        let stale = self.sessions.iter().filter(|(name, entry)| counts(name, entry));
        match sure {
            Some(((_, inside, _), _)) => Reach::Sure(*inside),
            None => Reach::Perhaps(stale.map(|((_, inside, _), _)| *inside).collect()),
        }
    }

    fn came_in(&mut self, packet: &Packet, remote: SocketAddrV4, external: SocketAddrV4, inside: SocketAddrV4) {
        let name = (packet.number(), inside, self.scope(packet.number(), remote));
        if self.fixed_inside(packet.number(), external).is_none() {
            self.saw(packet, name, external, 1);
        }
    }

    fn saw(&mut self, packet: &Packet, name: Name, external: SocketAddrV4, side: usize) {
        let now = self.now;
        if !self.alive(&name) {
            let seen = match packet {
                Packet::Tcp(flags) if *flags != SYN => [SYN.0, SYN.0],
                Packet::Tcp(_) | Packet::Udp | Packet::Echo(_) => [0, 0],
            };
            self.sessions.insert(name, Session { external, deadline: 0, seen, reset: [false; 2] });
        }
        let entry = self.sessions.get_mut(&name).unwrap();
        match packet {
            Packet::Udp if side == 0 => entry.deadline = now + 300,
            Packet::Echo(_) if side == 0 => entry.deadline = now + 60,
            Packet::Udp | Packet::Echo(_) => {}
            Packet::Tcp(flags) => {
                let over = |entry: &Session| {
                    entry.reset.contains(&true) || entry.seen.iter().all(|seen| seen & TcpFlags::FIN.0 != 0)
                };
                if *flags == SYN && over(entry) {
                    (entry.seen, entry.reset) = ([0, 0], [false; 2]);
                }
                entry.reset[side] = flags.contains(RST);
                if !flags.contains(RST) {
                    entry.seen[side] |= flags.0;
                }
                let agreed = entry.seen.iter().all(|seen| seen & SYN.0 != 0 && seen & ACK.0 != 0);
                entry.deadline = now + if agreed && !over(entry) { 7440 } else { 240 };
            }
        }
    }
}

enum Reach {
    Sure(SocketAddrV4),
    Perhaps(Vec<SocketAddrV4>),
    Never,
}

#[derive(Clone, Copy, Debug)]
enum Packet {
    Tcp(TcpFlags),
    Udp,
    Echo(bool),
}

impl Packet {
    fn number(self) -> u8 {
        match self {
            Self::Tcp(_) => protocol::TCP,
            Self::Udp => protocol::UDP,
            Self::Echo(_) => protocol::ICMP,
        }
    }

    fn between(self, src: SocketAddrV4, dst: SocketAddrV4) -> Headers {
        match self {
            Self::Tcp(flags) => tcp(src, dst, flags),
            Self::Udp => udp(src, dst),
            Self::Echo(is_request) => echo(*src.ip(), *dst.ip(), src.port(), is_request),
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Out(Packet, u8, u8),
    /// To the last known external endpoint of an inside endpoint.
    In(Packet, u8, u8),
    /// To the external endpoint of an inside endpoint, from another one.
    Hairpin(u8, u8),
    ErrorIn(Packet, u8, u8),
    ErrorOut(Packet, u8, u8),
    Wait(u64),
}

fn inside(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new([10, 0, 0, 1 + number % 3].into(), 5000 + u16::from(number / 3 % 2))
}

fn remote(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new([198, 51, 100, 1 + number % 2].into(), 53 + u16::from(number / 2 % 2))
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let flags = proptest::sample::select(std::vec![SYN, SYN.with(ACK), ACK, ACK, FIN, RST]);
    let packet = || {
        prop_oneof![
            3 => flags.clone().prop_map(Packet::Tcp),
            2 => Just(Packet::Udp),
            1 => any::<bool>().prop_map(Packet::Echo),
        ]
    };
    let op = prop_oneof![
        5 => (packet(), 0u8..6, 0u8..4).prop_map(|(p, i, r)| Op::Out(p, i, r)),
        5 => (packet(), 0u8..6, 0u8..4).prop_map(|(p, i, r)| Op::In(p, i, r)),
        1 => (0u8..6, 0u8..6).prop_map(|(a, b)| Op::Hairpin(a, b)),
        1 => (packet(), 0u8..6, 0u8..4).prop_map(|(p, i, r)| Op::ErrorIn(p, i, r)),
        1 => (packet(), 0u8..6, 0u8..4).prop_map(|(p, i, r)| Op::ErrorOut(p, i, r)),
        2 => prop_oneof![0u64..100, Just(60), Just(240), Just(300), 0u64..8000].prop_map(Op::Wait),
    ];
    proptest::collection::vec(op, 1..150)
}

/// The real translator and the model side by side, and each inside endpoint's last external endpoint.
struct Pair {
    real: Driver,
    model: Model,
    last: HashMap<(u8, SocketAddrV4), SocketAddrV4>,
}

impl Pair {
    fn new(filtering: &str, has_fixed: bool) -> Self {
        let room = "external = [\"203.0.113.0/31\"]\nports = \"5000-5023\"\nmappings = 40\nsessions = 200";
        let fixed = if has_fixed { FIXED } else { "" };
        let config = std::format!("{room}\nfiltering = \"{filtering}\"\n{fixed}");
        let filtering = match filtering {
            "endpoint-independent" => Filtering::Endpoint,
            "address-dependent" => Filtering::Address,
            _ => Filtering::AddressAndPort,
        };
        let model = Model { filtering, now: 0, sessions: HashMap::new(), has_fixed };
        let last = model.fixed().iter().map(|(number, inside, external)| ((*number, *inside), *external)).collect();
        Self { real: Driver::new(&config), model, last }
    }

    fn step(&mut self, op: &Op) -> Option<Verdict> {
        match *op {
            Op::Wait(secs) => {
                self.real.wait(secs);
                self.model.now += secs;
                None
            }
            Op::Out(packet, i, r) => Some(self.out(packet, inside(i), remote(r))),
            Op::In(packet, i, r) => {
                let external = *self.last.get(&(packet.number(), inside(i)))?;
                Some(self.inward(packet, remote(r), external))
            }
            Op::Hairpin(a, b) => self.hairpin(inside(a), inside(b)),
            Op::ErrorIn(packet, i, r) => self.error_in(packet.number(), inside(i), remote(r)),
            Op::ErrorOut(packet, i, r) => Some(self.error_out(packet.number(), inside(i), remote(r))),
        }
    }

    fn out(&mut self, packet: Packet, inside: SocketAddrV4, remote: SocketAddrV4) -> Verdict {
        let expected = self.model.expect_out(&packet, inside, remote);
        let verdict = self.real.send(packet.between(inside, remote));
        match verdict {
            Verdict::Rewrite { port: PortId::ACROSS, rewrite: Rewrite { src: Some(src), dst: None, .. } } => {
                assert!(expected, "{packet:?} from {inside} went out");
                self.model.sent_out(&packet, inside, remote, v4(src));
                self.last.insert((packet.number(), inside), v4(src));
            }
            Verdict::Drop(_) => assert!(!expected, "{packet:?} from {inside} was dropped: {verdict:?}"),
            other => panic!("{other:?}"),
        }
        verdict
    }

    fn inward(&mut self, packet: Packet, remote: SocketAddrV4, external: SocketAddrV4) -> Verdict {
        let expected = self.model.expect_in(&packet, remote, external);
        let headers = match packet {
            Packet::Echo(is_request) => echo(*remote.ip(), *external.ip(), external.port(), is_request),
            Packet::Tcp(_) | Packet::Udp => packet.between(remote, external),
        };
        let verdict = self.real.send(headers);
        match (verdict, expected) {
            (Verdict::Rewrite { rewrite: Rewrite { src: None, dst: Some(dst), .. }, .. }, reach) => {
                match reach {
                    Reach::Sure(inside) => assert_eq!(v4(dst), inside),
                    Reach::Perhaps(all) => assert!(all.contains(&v4(dst)), "{packet:?} from {remote} reached {dst}"),
                    Reach::Never => panic!("{packet:?} from {remote} to {external} reached {dst}"),
                }
                self.model.came_in(&packet, remote, external, v4(dst));
            }
            (Verdict::Drop(_), Reach::Sure(inside)) => panic!("{packet:?} from {remote} didn't reach {inside}"),
            (Verdict::Drop(_), Reach::Perhaps(_) | Reach::Never) => {}
            (other, _) => panic!("{other:?}"),
        }
        verdict
    }

    /// Sends UDP from one inside endpoint to the other's external one; both are known outside.
    fn hairpin(&mut self, from: SocketAddrV4, to: SocketAddrV4) -> Option<Verdict> {
        let source = self.model.external(protocol::UDP, from)?;
        let destination = *self.last.get(&(protocol::UDP, to))?;
        self.model.sent_out(&Packet::Udp, from, destination, source);
        let expected = self.model.expect_in(&Packet::Udp, source, destination);
        let verdict = self.real.send(udp(from, destination));
        match (verdict, expected) {
            (Verdict::Rewrite { port: PortId::BACK, rewrite }, Reach::Sure(inside)) => {
                assert_eq!((rewrite.src.map(v4), rewrite.dst.map(v4)), (Some(source), Some(inside)));
            }
            (Verdict::Drop(_), Reach::Never) => {}
            (other, _) => panic!("{from} to {destination}: {other:?}"),
        }
        Some(verdict)
    }

    fn error_in(&mut self, number: u8, inside: SocketAddrV4, remote: SocketAddrV4) -> Option<Verdict> {
        let external = *self.last.get(&(number, inside))?;
        let scope = self.model.scope(number, remote);
        let owner = self.model.live().find(|((n, _, r), entry)| (*n, *r, entry.external) == (number, scope, external));
        let owner = self.model.fixed_inside(number, external).or(owner.map(|((_, inside, _), _)| *inside));
        let verdict = self.real.send(error([192, 0, 2, 1].into(), *external.ip(), (external, remote), number));
        let dst = owner.map(|owner| Endpoint::new((*owner.ip()).into(), owner.port()));
        check_error(verdict, owner.is_some(), Rewrite { dst, embedded: true, ..Rewrite::NONE });
        Some(verdict)
    }

    fn error_out(&mut self, number: u8, inside: SocketAddrV4, remote: SocketAddrV4) -> Verdict {
        let name = (number, inside, self.model.scope(number, remote));
        let mapped = self.model.alive(&name).then(|| self.model.sessions[&name].external);
        let external = self.model.fixed_external(number, inside).or(mapped);
        let verdict = self.real.send(error(*inside.ip(), *remote.ip(), (remote, inside), number));
        let src = external.map(|external| Endpoint::new((*external.ip()).into(), external.port()));
        check_error(verdict, external.is_some(), Rewrite { src, embedded: true, ..Rewrite::NONE });
        verdict
    }
}

fn check_error(verdict: Verdict, passes: bool, rewrite: Rewrite) {
    match verdict {
        Verdict::Drop(_) => assert!(!passes, "dropped an error about a live session"),
        other => {
            assert!(passes, "an error about no session passed");
            assert_eq!(other, Verdict::rewritten(rewrite));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn does_what_a_naive_translator_does(ops in ops(), filtering in 0usize..3, has_fixed in any::<bool>()) {
        let filtering = ["endpoint-independent", "address-dependent", "address-and-port-dependent"][filtering];
        let mut pair = Pair::new(filtering, has_fixed);
        let verdicts: Vec<Option<Verdict>> = ops.iter().map(|op| pair.step(op)).collect();
        let mut again = Pair::new(filtering, has_fixed);
        let repeated: Vec<Option<Verdict>> = ops.iter().map(|op| again.step(op)).collect();
        prop_assert_eq!(verdicts, repeated);
        prop_assert_eq!(pair.real.fingerprint(), again.real.fingerprint());
    }
}
