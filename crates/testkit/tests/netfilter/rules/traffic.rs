//! Makes packets that rules are about, and answers to those that come out.

use std::net::IpAddr;

use iptables::matches::MultiportSide;
use iptables::{Condition, Interval, Match, Network, Rule, RuleSet};
use millrace_testkit::Rng;

use super::case::{Answer, Rules, Step};
use super::layout::{Layout, last, masked, networks, usable};
use super::runner::Outcome;
use crate::craft::{self, End, ICMP, ICMPV6, Segment, TCP, UDP};

/// Most answers that wait to be sent.
const WAITING_MAX: usize = 200;

/// TCP flags of lone segments, the likely ones several times.
const FLAGS: [u8; 9] = [SYN, SYN, SYN, ACK, SYN | ACK, FIN | ACK, RST, 0, SYN | FIN];
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// A generator of packets for a rule set.
pub(crate) struct Traffic<'a> {
    rng: Rng,
    layout: &'a Layout,
    rules: Vec<&'a Rule>,
    hosts: Vec<IpAddr>,
    own: Vec<IpAddr>,
    ports: Vec<u16>,
    /// Protocols that rules name, other than TCP, UDP and ICMP.
    protocols: Vec<u8>,
    is_v4: bool,
    waiting: Vec<Step>,
}

/// What a packet must have for a rule to match, as far as it is easy to tell.
#[derive(Default)]
struct Wish {
    input: Option<usize>,
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    protocol: Option<u8>,
    src_port: Option<u16>,
    dst_port: Option<u16>,
    icmp: Option<(u8, u8)>,
}

impl<'a> Traffic<'a> {
    pub(crate) fn new(seed: u64, rules: &Rules, parsed: &'a RuleSet, layout: &'a Layout) -> Self {
        let mut rng = Rng::new(seed);
        let family = rules.family;
        let text = parsed.to_string() + &rules.sets;
        let own = layout.own(family);
        let mut hosts = Vec::new();
        for (address, len) in networks(&text, family) {
            let (first, _) = masked(address, len);
            let inside = random_in(&mut rng, first, last(first, len));
            hosts.extend([first, last(first, len), inside]);
        }
        let near = |nth: usize, host: u8| match family {
            iptables::Family::V4 => IpAddr::from([10, 200 + nth as u8, 0, host]),
            iptables::Family::V6 => IpAddr::from([0x2001, 0xdb8, 0xc8 + nth as u16, 0, 0, 0, 0, u16::from(host)]),
        };
        hosts.extend((0..layout.interfaces.len()).flat_map(|nth| [near(nth, 2), near(nth, 9)]));
        hosts.push(match family {
            iptables::Family::V4 => [203, 0, 113, 77].into(),
            iptables::Family::V6 => [0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 0x77].into(),
        });
        hosts.retain(|host| usable(*host) && !own.contains(host) && !layout.is_broadcast(*host));
        hosts.sort_unstable();
        hosts.dedup();
        let rules: Vec<&Rule> =
            parsed.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules).collect();
        let mut protocols: Vec<u8> =
            rules.iter().filter_map(|rule| rule.protocol.as_ref()).map(|protocol| protocol.value.value).collect();
        // Not those with a stack of their own in the kernel, and not extension headers of IPv6.
        protocols.retain(|protocol| !matches!(*protocol, 0 | 1 | 2 | 6 | 17 | 43 | 44 | 58 | 59 | 60 | 135 | 253));
        let mut ports = vec![22, 53, 80, 443];
        ports.extend(rules.iter().flat_map(|rule| ports_of(rule)).flat_map(|(range, _)| [range.first, range.last]));
        Self {
            rng,
            layout,
            rules,
            hosts,
            own,
            ports,
            protocols,
            is_v4: family == iptables::Family::V4,
            waiting: vec![],
        }
    }

    /// The next packet: an answer that waits, or another one.
    pub(crate) fn next(&mut self) -> Step {
        if !self.waiting.is_empty() && self.rng.chance(0.5) {
            let nth = self.rng.below(self.waiting.len() as u64) as usize;
            return self.waiting.swap_remove(nth);
        }
        let wish = if self.rng.chance(0.7) { self.wish() } else { Wish::default() };
        let src = wish.src.unwrap_or_else(|| pick(&mut self.rng, &self.hosts));
        let dst = match wish.dst {
            Some(dst) => dst,
            None if self.rng.chance(0.2) => pick(&mut self.rng, &self.own),
            None => pick(&mut self.rng, &self.hosts),
        };
        let route = self.layout.route(src);
        let any = self.rng.below(self.layout.interfaces.len() as u64) as usize;
        let from = match (route, wish.input) {
            (_, Some(input)) if self.rng.chance(0.3) => input,
            (Some(route), _) if self.rng.chance(0.95) => route,
            _ => any,
        };
        // Of a host's packets to itself the kernel finds the answer's tuple first.
        let dst = if src == dst { self.own[usize::from(self.own[0] == src)] } else { dst };
        let packet = self.packet(src, dst, &wish);
        let packet = if self.is_v4 && self.rng.chance(0.05) { self.first_fragment(from, packet) } else { packet };
        Step::Send { from, packet }
    }

    /// Cuts a datagram of UDP behind its header. The rest waits to be sent.
    fn first_fragment(&mut self, from: usize, mut packet: Vec<u8>) -> Vec<u8> {
        const HEADERS: usize = 28;
        if craft::view(&packet).protocol != UDP || packet.len() <= HEADERS {
            return packet;
        }
        packet[4..6].copy_from_slice(&(self.rng.bits() as u16).to_be_bytes());
        let [first, rest] = [(0, 8), (8, packet.len() - HEADERS)].map(|(at, len)| craft::fragment(&packet, at, len));
        let (sent, waits) = if self.rng.chance(0.8) { (first, rest) } else { (rest, first) };
        self.waiting.push(Step::Send { from, packet: waits });
        sent
    }

    /// Notes what a step brought out, to answer it later.
    pub(crate) fn answer(&mut self, to: usize, outcome: &Outcome) {
        let Some((_, packet)) = outcome.left.first().filter(|_| self.waiting.len() < WAITING_MAX) else { return };
        let seen = craft::view(packet);
        if seen.later_fragment || seen.quoted.is_some() {
            return;
        }
        let seq = self.rng.bits() as u32;
        let answer = match (seen.protocol, packet.get(seen.transport + 13)) {
            (TCP, Some(flags)) => {
                let segment = |flags, len| Some(Answer::Segment { flags, len, seq });
                match flags & (SYN | ACK | RST) {
                    SYN => segment(SYN | ACK, 0),
                    both if both == SYN | ACK => segment(ACK, 0),
                    ACK if self.rng.chance(0.6) => {
                        let flags = [ACK, PSH | ACK, PSH | ACK, FIN | ACK, RST];
                        segment(pick(&mut self.rng, &flags), self.rng.below(3) as usize)
                    }
                    _ => None,
                }
            }
            (ICMP | ICMPV6, _) => Some(Answer::Echo),
            _ => self.rng.chance(0.7).then_some(Answer::Datagram { len: 4 }),
        };
        if let Some(answer) = answer {
            let spoilt = matches!(seen.protocol, TCP | UDP | ICMP | ICMPV6) && self.rng.chance(0.01);
            let repeats = if self.rng.chance(0.05) { 2 } else { 1 };
            self.waiting.extend(std::iter::repeat_n(Step::Answer { to, answer, spoilt }, repeats));
        }
        if self.rng.chance(0.06) {
            let kinds: &[(u8, u8)] =
                if self.is_v4 { &[(3, 1), (3, 3), (3, 4), (11, 0)] } else { &[(1, 0), (1, 4), (2, 0), (3, 0)] };
            let (kind, code) = pick(&mut self.rng, kinds);
            let from = self.rng.chance(0.5).then(|| pick(&mut self.rng, &self.hosts));
            let answer = Answer::Error { kind, code, from, quote: 8 + self.rng.below(20) as usize };
            self.waiting.push(Step::Answer { to, answer, spoilt: false });
        }
    }

    /// What a rule, chosen at random, is about.
    fn wish(&mut self) -> Wish {
        if self.rules.is_empty() {
            return Wish::default();
        }
        let rule = pick(&mut self.rng, &self.rules);
        let mut wish = Wish::default();
        let positive = |network: &Condition<Network>| (!network.negated).then_some(network.value);
        let rng = &mut self.rng;
        wish.src = rule.source.as_deref().and_then(positive).map(|network| inside(rng, network));
        wish.dst = rule.destination.as_deref().and_then(positive).map(|network| inside(rng, network));
        wish.protocol = rule.protocol.as_deref().filter(|protocol| !protocol.negated).map(|protocol| protocol.value);
        wish.input = rule
            .input
            .as_deref()
            .filter(|input| !input.negated)
            .and_then(|input| self.layout.interfaces.iter().position(|laid| input.value.matches(&laid.name)));
        for (range, side) in ports_of(rule) {
            let port = if range.first > range.last { range.first } else { between(rng, range) };
            match side {
                MultiportSide::Source => wish.src_port = Some(port),
                MultiportSide::Destination | MultiportSide::Either => wish.dst_port = Some(port),
            }
        }
        for test in &rule.matches {
            let kind = match &**test {
                Match::Icmp(icmp) => icmp.kind,
                Match::Icmp6(icmp) => icmp.kind,
                Match::IpRange(ranges) => {
                    if let Some(range) = &ranges.source {
                        wish.src = Some(random_in(rng, range.value.first, range.value.last));
                    }
                    if let Some(range) = &ranges.destination {
                        wish.dst = Some(random_in(rng, range.value.first, range.value.last));
                    }
                    continue;
                }
                _ => continue,
            };
            if kind.value.kind != 255 {
                wish.icmp = Some((kind.value.kind, kind.value.codes.first));
            }
        }
        let known = |address: &IpAddr| usable(*address) && !self.layout.is_broadcast(*address);
        wish.src = wish.src.filter(|src| known(src) && !self.own.contains(src));
        wish.dst = wish.dst.filter(known);
        wish
    }

    fn packet(&mut self, src: IpAddr, dst: IpAddr, wish: &Wish) -> Vec<u8> {
        let icmp = if self.is_v4 { ICMP } else { ICMPV6 };
        let any = match self.rng.below(100) {
            0..55 => TCP,
            55..85 => UDP,
            85..96 => icmp,
            _ if self.protocols.is_empty() => UDP,
            _ => pick(&mut self.rng, &self.protocols),
        };
        let is_made =
            |protocol: &u8| matches!(*protocol, TCP | UDP) || *protocol == icmp || self.protocols.contains(protocol);
        let protocol = wish.protocol.filter(is_made).unwrap_or(any);
        let src_port = match (wish.src_port, self.rng.below(20)) {
            (Some(port), _) => port,
            (None, 0) => pick(&mut self.rng, &self.ports),
            (None, 1..6) => 40_000,
            (None, _) => 1024 + self.rng.below(64_000) as u16,
        };
        let dst_port = wish.dst_port.unwrap_or_else(|| pick(&mut self.rng, &self.ports));
        let (src, dst): (End, End) = ((src, src_port), (dst, dst_port));
        let mut packet = match protocol {
            TCP => {
                let segment = Segment {
                    flags: pick(&mut self.rng, &FLAGS),
                    seq: self.rng.bits() as u32,
                    ack: self.rng.bits() as u32,
                    window: 65_535,
                    ..Segment::default()
                };
                craft::tcp(src, dst, &segment, 0)
            }
            UDP => craft::udp(src, dst, 4),
            _ if protocol == icmp => self.icmp(src, dst, wish.icmp),
            other => craft::ip(src.0, dst.0, other, &[0; 12]),
        };
        let hops = if self.is_v4 { 8 } else { 7 };
        match self.rng.below(50) {
            0 => packet[hops] = 1,
            1 => packet[hops] = 2,
            2 | 3 if self.is_v4 => packet[1] = 0x10,
            _ => {}
        }
        craft::finish(&mut packet);
        if matches!(protocol, TCP | UDP) && self.rng.chance(0.015) {
            craft::spoil(&mut packet);
        }
        packet
    }

    fn icmp(&mut self, src: End, dst: End, wish: Option<(u8, u8)>) -> Vec<u8> {
        let usual: &[(u8, u8)] = if self.is_v4 {
            &[(8, 0), (8, 0), (8, 0), (0, 0), (3, 1), (3, 3), (11, 0)]
        } else {
            &[(128, 0), (128, 0), (128, 0), (129, 0), (1, 0), (1, 4), (3, 0)]
        };
        // Redirects, router advertisements and the like are for the stack of the router, not for its rules.
        let routed = |(kind, _): &(u8, u8)| match self.is_v4 {
            true => matches!(*kind, 0 | 3 | 4 | 8 | 11 | 12 | 13 | 14 | 17 | 18),
            false => matches!(*kind, 1..=4 | 128 | 129),
        };
        let (kind, code) = wish.filter(routed).unwrap_or_else(|| pick(&mut self.rng, usual));
        if matches!((self.is_v4, kind), (true, 3 | 4 | 11 | 12) | (false, 1..=4)) {
            let about = craft::udp((dst.0, 5353), (pick(&mut self.rng, &self.hosts), 53), 4);
            let about = if self.rng.chance(0.5) { craft::udp(dst, src, 4) } else { about };
            return craft::error(src.0, dst.0, (kind, code), 0, &about, 8);
        }
        // Queries of two hosts to each other with one identifier are two connections to the kernel, and one to us.
        let identifier = if src.0 < dst.0 { src.1 & !1 } else { src.1 | 1 };
        let mut packet = craft::query(src.0, dst.0, identifier, kind, 1);
        let at = craft::view(&packet).transport + 1;
        packet[at] = code;
        packet
    }
}

/// The ports that a rule tests, without those behind a `!`.
fn ports_of(rule: &Rule) -> Vec<(Interval<u16>, MultiportSide)> {
    let mut ports = Vec::new();
    for test in &rule.matches {
        let pair = match &**test {
            Match::Tcp(tcp) => [tcp.source, tcp.destination],
            Match::Udp(udp) => [udp.source, udp.destination],
            Match::Multiport(multiport) if !multiport.ports.negated => {
                ports.extend(multiport.ports.value.iter().map(|range| (*range, multiport.side)));
                continue;
            }
            _ => continue,
        };
        for (side, range) in [MultiportSide::Source, MultiportSide::Destination].into_iter().zip(pair) {
            ports.extend(range.filter(|range| !range.negated).map(|range| (range.value, side)));
        }
    }
    ports
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

fn between(rng: &mut Rng, range: Interval<u16>) -> u16 {
    match rng.below(3) {
        0 => range.first,
        1 => range.last,
        _ => range.first + rng.below(u64::from(range.last - range.first) + 1) as u16,
    }
}

/// An address of a network, which may have gaps in its mask.
fn inside(rng: &mut Rng, network: Network) -> IpAddr {
    match (network.address, network.mask) {
        (IpAddr::V4(address), IpAddr::V4(mask)) => {
            IpAddr::V4((address.to_bits() | rng.bits() as u32 & !mask.to_bits()).into())
        }
        (IpAddr::V6(address), IpAddr::V6(mask)) => {
            IpAddr::V6((address.to_bits() | u128::from(rng.bits()) & !mask.to_bits()).into())
        }
        (address, _) => address,
    }
}

/// An address of a range. It has at most 2^64 more addresses.
fn random_in(rng: &mut Rng, first: IpAddr, last: IpAddr) -> IpAddr {
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let span = u64::from(last.to_bits().saturating_sub(first.to_bits())) + 1;
            IpAddr::V4((first.to_bits() + rng.below(span) as u32).into())
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let span = last.to_bits().saturating_sub(first.to_bits()).min(u128::from(u64::MAX)) as u64;
            IpAddr::V6((first.to_bits() + u128::from(rng.below(span))).into())
        }
        (first, _) => first,
    }
}
