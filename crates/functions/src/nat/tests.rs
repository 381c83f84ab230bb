//! A translator driven by hand: packets in, verdicts out, time by the second.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::string::ToString;
use std::vec::Vec;

use memory::{Local, LocalTx};
use nf::{Context, NetworkFunction, PortId, Reason, Verdict};
use packet::{
    Embedded, Endpoint, FiveTuple, Fragment, Headers, Icmp, Ipv4, LinkType, Nanos, Network, Rewrite, Seq, Tcp,
    TcpFlags, TcpOptions, Transport, Vlans, protocol,
};

use super::*;
use crate::testing::report_at;

pub(super) const SYN: TcpFlags = TcpFlags::SYN;
pub(super) const ACK: TcpFlags = TcpFlags::ACK;
pub(super) const FIN: TcpFlags = TcpFlags::FIN.with(ACK);
pub(super) const RST: TcpFlags = TcpFlags::RST;

/// A translator, its state, and the time of the next packet.
pub(super) struct Driver {
    pub(super) nat: Nat,
    state: State<Local>,
    pub(super) now: Nanos,
    seq: Seq,
}

impl Driver {
    pub(super) fn new(config: &str) -> Self {
        let nat = Nat::new(toml::from_str(config).unwrap());
        Self { state: nat.shared(&Local::default()), nat, now: Nanos::from_secs(1_700_000_000), seq: Seq(0) }
    }

    /// Lets another configuration take over.
    fn reload(&mut self, config: &str) -> Result<(), String> {
        let nat = Nat::new(toml::from_str(config).unwrap()).succeed(&self.nat)?;
        nat.adopt(&self.nat, &mut self.state, &Local::default());
        self.nat = nat;
        Ok(())
    }

    pub(super) fn wait(&mut self, secs: u64) {
        self.now = self.now + Nanos::from_secs(secs);
    }

    pub(super) fn send(&mut self, packet: Headers) -> Verdict {
        self.seq = self.seq.next();
        let Some(meta) = self.nat.meta(&packet, &[]) else { return self.nat.other(&packet) };
        let mut cx = Context::<Nat, Local>::new(&self.state, LocalTx::default(), self.now, self.seq);
        let Ok(verdict) = self.nat.packet(&mut cx, &mut (), &meta);
        verdict
    }

    /// Sends a packet from inside. Returns its external endpoint.
    fn out(&mut self, packet: Headers) -> SocketAddrV4 {
        match self.send(packet) {
            Verdict::Rewrite { port: PortId::ACROSS, rewrite: Rewrite { src: Some(external), dst: None, .. } } => {
                v4(external)
            }
            other => panic!("not translated from inside: {other:?}"),
        }
    }

    /// Sends a packet from outside. Returns the inside endpoint that it reaches.
    fn back(&mut self, packet: Headers) -> SocketAddrV4 {
        match self.send(packet) {
            Verdict::Rewrite { port: PortId::ACROSS, rewrite: Rewrite { src: None, dst: Some(internal), .. } } => {
                v4(internal)
            }
            other => panic!("not translated from outside: {other:?}"),
        }
    }

    pub(super) fn fingerprint(&self) -> u64 {
        nf::local_fingerprint(&self.nat, &self.state).value()
    }
}

pub(super) fn at(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

pub(super) fn v4(endpoint: Endpoint) -> SocketAddrV4 {
    at(&endpoint.to_string())
}

fn ip(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, transport: Transport) -> Headers {
    Headers {
        link: LinkType::RawIp,
        interface: 0,
        macs: None,
        vlans: Vlans::default(),
        ethertype: 0x0800,
        network: Network::V4(Ipv4 { src, dst, ttl: 64, tos: 0, id: 0, total_len: 64, header_len: 20 }),
        protocol,
        fragment: Fragment::Whole,
        transport,
        tunnel: None,
        network_offset: 0,
        transport_offset: 20,
        payload_offset: 28,
        payload_len: 0,
        wire_len: 64,
    }
}

pub(super) fn udp(src: SocketAddrV4, dst: SocketAddrV4) -> Headers {
    let transport = Transport::Udp { src_port: src.port(), dst_port: dst.port() };
    ip(*src.ip(), *dst.ip(), protocol::UDP, transport)
}

pub(super) fn tcp(src: SocketAddrV4, dst: SocketAddrV4, flags: TcpFlags) -> Headers {
    let (src_port, dst_port) = (src.port(), dst.port());
    let options = TcpOptions::default();
    let tcp = Tcp { src_port, dst_port, seq: 0, ack: 0, flags, window: 0, options };
    ip(*src.ip(), *dst.ip(), protocol::TCP, Transport::Tcp(tcp))
}

pub(super) fn echo(src: Ipv4Addr, dst: Ipv4Addr, identifier: u16, is_request: bool) -> Headers {
    let icmp = Icmp { kind: if is_request { 8 } else { 0 }, code: 0, identifier: Some(identifier), embedded: None };
    ip(src, dst, protocol::ICMP, Transport::Icmp(icmp))
}

/// "Port unreachable" from `src` to `dst` about a packet from `quoted.0` to `quoted.1`.
pub(super) fn error(src: Ipv4Addr, dst: Ipv4Addr, quoted: (SocketAddrV4, SocketAddrV4), protocol: u8) -> Headers {
    let (from, to) = quoted;
    let embedded = Embedded {
        tuple: FiveTuple::v4(*from.ip(), *to.ip(), from.port(), to.port(), protocol),
        network_offset: 28,
        transport_offset: 48,
    };
    let icmp = Icmp { kind: 3, code: 3, identifier: None, embedded: Some(embedded) };
    ip(src, dst, protocol::ICMP, Transport::Icmp(icmp))
}

fn reason(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Drop(reason) => reason.name(Nat::DESCRIPTION.drop_reasons),
        other => panic!("not dropped: {other:?}"),
    }
}

const A: &str = "10.0.0.5:5000";
const B: &str = "10.0.0.6:5000";
const FAR: &str = "198.51.100.7:53";

#[test]
fn a_mapping_does_not_depend_on_whom_is_sent_to() {
    let mut nat = Driver::new("filtering = \"address-and-port-dependent\"");
    let first = nat.out(udp(at(A), at(FAR)));
    assert_eq!(first, at("203.0.113.1:5000"), "the port is kept, for it is free");
    for far in ["198.51.100.7:54", "192.0.2.1:1", "8.8.8.8:53"] {
        assert_eq!(nat.out(udp(at(A), at(far))), first);
    }
    let second = nat.out(udp(at(B), at(FAR)));
    assert_ne!(second, first, "no two inside endpoints share an external one");
    assert_eq!(nat.back(udp(at(FAR), first)), at(A));
    assert_eq!(nat.back(udp(at(FAR), second)), at(B));
}

#[test]
fn protocols_have_ports_of_their_own() {
    let mut nat = Driver::new("");
    let external = nat.out(udp(at(A), at(FAR)));
    assert_eq!(nat.out(tcp(at(B), at(FAR), SYN)), external);
    assert_eq!(nat.out(echo(*at(A).ip(), *at(FAR).ip(), 5000, true)), external);
    assert_eq!(nat.back(tcp(at(FAR), external, SYN.with(ACK))), at(B));
}

#[test]
fn udp_keeps_parity_and_others_keep_their_port_if_they_can() {
    let mut nat = Driver::new("ports = \"3000-3009\"\nport_preservation = false");
    for port in [5000, 5001, 5002, 7003] {
        let inside = SocketAddrV4::new(*at(A).ip(), port);
        let external = nat.out(udp(inside, at(FAR)));
        assert_eq!(external.port() % 2, port % 2);
    }
    let mut nat = Driver::new("");
    for (inside, port) in [("10.0.0.5:6001", 6001), ("10.0.0.5:80", 1024), ("10.0.0.6:6001", 1025)] {
        assert_eq!(nat.out(tcp(at(inside), at(FAR), SYN)).port(), port);
    }
}

#[test]
fn filtering_lets_in_whom_it_says() {
    let same_host = at("198.51.100.7:9999");
    let stranger = at("192.0.2.1:53");
    for (filtering, from_host, from_stranger) in [
        ("endpoint-independent", None, None),
        ("address-dependent", None, Some("filtered")),
        ("address-and-port-dependent", Some("filtered"), Some("filtered")),
    ] {
        let mut nat = Driver::new(&std::format!("filtering = \"{filtering}\""));
        let external = nat.out(udp(at(A), at(FAR)));
        assert_eq!(nat.out(tcp(at(A), at(FAR), SYN)), external);
        assert_eq!(nat.back(udp(at(FAR), external)), at(A));
        for (remote, refused) in [(same_host, from_host), (stranger, from_stranger)] {
            for packet in [udp(remote, external), tcp(remote, external, SYN)] {
                match refused {
                    None => assert_eq!(nat.back(packet), at(A), "{filtering}"),
                    Some(why) => assert_eq!(reason(nat.send(packet)), why, "{filtering}"),
                }
            }
        }
        let unmapped = SocketAddrV4::new(*external.ip(), 4000);
        assert_eq!(reason(nat.send(udp(at(FAR), unmapped))), "no-mapping");
    }
}

#[test]
fn outbound_packets_keep_a_udp_session_alive_to_the_nanosecond() {
    for inbound_refresh in [false, true] {
        let mut nat = Driver::new(&std::format!("inbound_refresh = {inbound_refresh}"));
        let external = nat.out(udp(at(A), at(FAR)));
        nat.wait(200);
        assert_eq!(nat.out(udp(at(A), at("192.0.2.1:9"))), external);
        nat.now = nat.now + Nanos::from_secs(300) - Nanos(1);
        assert_eq!(nat.back(udp(at(FAR), external)), at(A));
        nat.now = nat.now + Nanos(1);
        if inbound_refresh {
            assert_eq!(nat.back(udp(at(FAR), external)), at(A));
        } else {
            assert_eq!(reason(nat.send(udp(at(FAR), external))), "no-mapping");
        }
    }
}

#[test]
fn tcp_sessions_live_by_their_phase() {
    let mut nat = Driver::new("filtering = \"address-and-port-dependent\"");
    let external = nat.out(tcp(at(A), at(FAR), SYN));
    nat.wait(239);
    nat.back(tcp(at(FAR), external, SYN.with(ACK)));
    nat.wait(239);
    nat.out(tcp(at(A), at(FAR), ACK));
    nat.wait(7439);
    nat.back(tcp(at(FAR), external, ACK));
    nat.wait(7439);
    nat.out(tcp(at(A), at(FAR), FIN));
    nat.wait(7439);
    nat.back(tcp(at(FAR), external, FIN));
    nat.wait(239);
    nat.out(tcp(at(A), at(FAR), ACK));
    nat.wait(240);
    assert!(["filtered", "no-mapping"].contains(&reason(nat.send(tcp(at(FAR), external, FIN)))));
    nat.wait(1);
    assert_eq!(reason(nat.send(tcp(at(FAR), external, FIN))), "no-mapping");
    assert_eq!(reason(nat.send(tcp(at(A), at(FAR), RST))), "tcp-not-syn");
}

#[test]
fn a_half_open_connection_and_one_that_was_reset_go_soon() {
    for last in [None, Some(RST)] {
        let mut nat = Driver::new("filtering = \"address-and-port-dependent\"");
        let external = nat.out(tcp(at(A), at(FAR), SYN));
        if let Some(flags) = last {
            nat.back(tcp(at(FAR), external, SYN.with(ACK)));
            nat.out(tcp(at(A), at(FAR), ACK));
            nat.back(tcp(at(FAR), external, flags));
        }
        nat.wait(240);
        assert_eq!(reason(nat.send(tcp(at(FAR), external, SYN.with(ACK)))), "filtered");
    }
}

#[test]
fn a_simultaneous_open_passes_any_filter() {
    let mut nat = Driver::new("filtering = \"address-and-port-dependent\"");
    let external = nat.out(tcp(at(A), at(FAR), SYN));
    nat.back(tcp(at(FAR), external, SYN));
    nat.out(tcp(at(A), at(FAR), SYN.with(ACK)));
    nat.back(tcp(at(FAR), external, SYN.with(ACK)));
    nat.wait(7439);
    assert_eq!(nat.back(tcp(at(FAR), external, ACK)), at(A));
}

#[test]
fn from_outside_only_a_syn_opens_a_connection() {
    let mut nat = Driver::new("");
    let external = nat.out(tcp(at(A), at(FAR), SYN));
    let stranger = at("192.0.2.1:4000");
    for flags in [ACK, RST, FIN, SYN.with(ACK)] {
        assert_eq!(reason(nat.send(tcp(stranger, external, flags))), "tcp-not-syn");
    }
    assert_eq!(nat.back(tcp(stranger, external, SYN)), at(A));
    assert_eq!(nat.out(tcp(at(A), stranger, SYN.with(ACK))), external);
    assert_eq!(nat.back(tcp(stranger, external, ACK)), at(A));
}

#[test]
fn a_connection_from_before_is_picked_up_from_inside_unless_told_not_to() {
    let mut nat = Driver::new("");
    let external = nat.out(tcp(at(A), at(FAR), ACK));
    nat.back(tcp(at(FAR), external, ACK));
    nat.wait(7439);
    assert_eq!(nat.back(tcp(at(FAR), external, ACK)), at(A));
    let mut nat = Driver::new("loose = false");
    assert_eq!(reason(nat.send(tcp(at(A), at(FAR), ACK))), "tcp-not-syn");
}

#[test]
fn hairpin_rewrites_both_ends_at_once() {
    for (open, answer) in [(udp as fn(_, _) -> _, udp as fn(_, _) -> _), (syn, syn_ack)] {
        let mut nat = Driver::new("");
        let b_outside = nat.out(open(at(B), at(FAR)));
        let Verdict::Rewrite { port: PortId::BACK, rewrite } = nat.send(open(at(A), b_outside)) else { panic!() };
        let a_outside = v4(rewrite.src.unwrap());
        assert_eq!(rewrite.dst.map(v4), Some(at(B)));
        assert_eq!(*a_outside.ip(), *b_outside.ip());
        let Verdict::Rewrite { rewrite, .. } = nat.send(answer(at(B), a_outside)) else { panic!() };
        assert_eq!((rewrite.src.map(v4), rewrite.dst.map(v4)), (Some(b_outside), Some(at(A))));
    }
    let mut nat = Driver::new("hairpinning = false");
    let b_outside = nat.out(udp(at(B), at(FAR)));
    assert_eq!(reason(nat.send(udp(at(A), b_outside))), "hairpin-refused");
}

fn syn(src: SocketAddrV4, dst: SocketAddrV4) -> Headers {
    tcp(src, dst, SYN)
}

fn syn_ack(src: SocketAddrV4, dst: SocketAddrV4) -> Headers {
    tcp(src, dst, SYN.with(ACK))
}

#[test]
fn queries_are_known_by_their_identifiers() {
    let mut nat = Driver::new("filtering = \"address-dependent\"");
    let (a, b, far) = (*at(A).ip(), *at(B).ip(), *at(FAR).ip());
    let (first, second) = (nat.out(echo(a, far, 7777, true)), nat.out(echo(b, far, 7777, true)));
    assert_eq!(first.port(), 7777);
    assert_ne!(second.port(), 7777);
    let external = *first.ip();
    assert_eq!(nat.back(echo(far, external, first.port(), false)), SocketAddrV4::new(a, 7777));
    assert_eq!(nat.back(echo(far, external, second.port(), false)), SocketAddrV4::new(b, 7777));
    assert_eq!(reason(nat.send(echo(Ipv4Addr::new(192, 0, 2, 1), external, 7777, false))), "filtered");
    assert_eq!(reason(nat.send(echo(a, external, 7777, true))), "hairpin-refused");
    assert_eq!(reason(nat.send(echo(a, far, 1234, false))), "no-mapping", "a reply to nothing opens nothing");
    nat.wait(60);
    assert_eq!(reason(nat.send(echo(far, external, 7777, false))), "filtered");
}

#[test]
fn errors_from_outside_reach_whoever_sent_the_packet() {
    let router = Ipv4Addr::new(192, 0, 2, 254);
    for (packet, number) in [(udp(at(A), at(FAR)), protocol::UDP), (tcp(at(A), at(FAR), SYN), protocol::TCP)] {
        let mut nat = Driver::new("filtering = \"address-and-port-dependent\"");
        let external = nat.out(packet);
        let about = error(router, *external.ip(), (external, at(FAR)), number);
        let before = nat.fingerprint();
        let expected =
            Rewrite { dst: Some(Endpoint::new((*at(A).ip()).into(), 5000)), embedded: true, ..Rewrite::NONE };
        assert_eq!(nat.send(about), Verdict::rewritten(expected));
        assert_eq!(nat.fingerprint(), before, "no session lives longer or shorter for it");
        let never_sent = error(router, *external.ip(), (external, at("192.0.2.1:1")), number);
        assert_eq!(reason(nat.send(never_sent)), "icmp-no-flow");
        let astray = error(router, Ipv4Addr::new(203, 0, 113, 1), (at("203.0.113.2:5000"), at(FAR)), number);
        assert_eq!(reason(nat.send(astray)), "icmp-no-flow");
        nat.wait(300);
        assert_eq!(reason(nat.send(about)), "icmp-no-flow");
    }
}

#[test]
fn errors_from_inside_show_the_external_endpoint_alone() {
    let mut nat = Driver::new("");
    let external = nat.out(udp(at(A), at(FAR)));
    nat.back(udp(at(FAR), external));
    let inside_router = Ipv4Addr::new(10, 9, 9, 9);
    for sender in [*at(A).ip(), inside_router] {
        let about = error(sender, *at(FAR).ip(), (at(FAR), at(A)), protocol::UDP);
        let expected = Rewrite {
            src: Some(Endpoint::new((*external.ip()).into(), external.port())),
            embedded: true,
            ..Rewrite::NONE
        };
        assert_eq!(nat.send(about), Verdict::rewritten(expected));
    }
    let unknown = error(*at(B).ip(), *at(FAR).ip(), (at(FAR), at(B)), protocol::UDP);
    assert_eq!(reason(nat.send(unknown)), "icmp-no-flow");
}

#[test]
fn errors_about_queries_and_about_hairpinned_packets_come_back() {
    let mut nat = Driver::new("");
    let far = *at(FAR).ip();
    let query = nat.out(echo(*at(A).ip(), far, 4321, true));
    let id = |address, id| SocketAddrV4::new(address, id);
    let quoted = (query, id(far, query.port()));
    let Verdict::Rewrite { rewrite, .. } = nat.send(error(far, *query.ip(), quoted, protocol::ICMP)) else { panic!() };
    assert_eq!(rewrite.dst.map(v4), Some(id(*at(A).ip(), 4321)));

    let b_outside = nat.out(udp(at(B), at(FAR)));
    let Verdict::Rewrite { rewrite, .. } = nat.send(udp(at(A), b_outside)) else { panic!() };
    let a_outside = v4(rewrite.src.unwrap());
    let about = error(*at(B).ip(), *a_outside.ip(), (a_outside, at(B)), protocol::UDP);
    let Verdict::Rewrite { port: PortId::BACK, rewrite } = nat.send(about) else { panic!() };
    assert_eq!((rewrite.src.map(v4), rewrite.dst.map(v4), rewrite.embedded), (Some(b_outside), Some(at(A)), true));
}

/// The quoted packet decides, even if the error's sender has a private address outside, or another address inside.
#[test]
fn errors_are_sided_by_what_they_quote() {
    let senders =
        [[10, 255, 0, 1], [192, 168, 77, 1], [100, 64, 0, 1], [192, 0, 2, 254], [203, 0, 113, 1]].map(Ipv4Addr::from);
    for sender in senders {
        let mut nat = Driver::new("");
        let external = nat.out(udp(at(A), at(FAR)));
        let inside = *at(A).ip();
        // From outside, about a packet that went out.
        let Verdict::Rewrite { port: PortId::ACROSS, rewrite } =
            nat.send(error(sender, *external.ip(), (external, at(FAR)), protocol::UDP))
        else {
            panic!("{sender}")
        };
        assert_eq!((rewrite.src, rewrite.dst.map(v4), rewrite.embedded), (None, Some(at(A)), true));
        // From inside, about a packet that came in: the inside address is not shown.
        let Verdict::Rewrite { port: PortId::ACROSS, rewrite } =
            nat.send(error(sender, *at(FAR).ip(), (at(FAR), at(A)), protocol::UDP))
        else {
            panic!("{sender}")
        };
        assert_eq!((rewrite.src.map(v4), rewrite.dst, rewrite.embedded), (Some(external), None, true));
        let unknown = error(sender, *at(FAR).ip(), (at(FAR), at(B)), protocol::UDP);
        assert_eq!(reason(nat.send(unknown)), "icmp-no-flow", "{sender}");
        // From inside, about a packet that a router dropped before the translation.
        let ahead = error(sender, inside, (at(A), at(FAR)), protocol::UDP);
        assert_eq!(nat.send(ahead), Verdict::FORWARD, "{sender}");
        let never_sent = nat.send(error(sender, inside, (at(A), at("198.51.100.7:54")), protocol::UDP));
        match sender.octets() {
            [10, ..] | [192, 168, ..] => assert_eq!(never_sent, Verdict::FORWARD, "inside to inside"),
            // Under endpoint-independent filtering one session stands for all peers of a mapping.
            _ => assert_eq!(never_sent, Verdict::FORWARD, "{sender}"),
        }
        let nobody = nat.send(error(sender, *at(B).ip(), (at(B), at(FAR)), protocol::UDP));
        match sender.octets() {
            [10, ..] | [192, 168, ..] => assert_eq!(nobody, Verdict::FORWARD, "inside to inside"),
            _ => assert_eq!(reason(nobody), "private-destination", "{sender}"),
        }
        // From outside, about a packet that hasn't come in yet.
        let outside = error(sender, *at(FAR).ip(), (at(FAR), external), protocol::UDP);
        assert_eq!(nat.send(outside), Verdict::FORWARD, "{sender}");
    }
}

/// An error that quotes no flow passes only if it can't show an inside address.
#[test]
fn errors_that_name_no_flow_show_nobody() {
    let mut nat = Driver::new("");
    nat.out(udp(at(A), at(FAR)));
    let [router, far] = [Ipv4Addr::new(100, 64, 0, 1), *at(FAR).ip()];
    let gre = |from: &str, to: &str| error(router, far, (at(from), at(to)), 47);
    assert_eq!(reason(nat.send(gre("198.51.100.7:0", "10.0.0.5:0"))), "icmp-no-flow");
    assert_eq!(nat.send(gre("198.51.100.7:0", "192.0.2.77:0")), Verdict::FORWARD);
    let mut short = error(router, far, (at(FAR), at(A)), protocol::UDP);
    let Transport::Icmp(icmp) = &mut short.transport else { unreachable!() };
    icmp.embedded = None;
    assert_eq!(reason(nat.send(short)), "icmp-no-flow");
    let unreadable = Headers { network: Network::Unreadable, transport: Transport::None, ..udp(at(A), at(FAR)) };
    assert_eq!(reason(nat.send(unreadable)), "unreadable");
}

#[test]
fn what_is_full_says_so_and_recovers_when_sessions_expire() {
    for (config, why) in [
        ("ports = \"5000-5000\"", "pool-exhausted"),
        ("mappings = 1", "mapping-table-full"),
        ("sessions = 1", "session-table-full"),
    ] {
        let mut nat = Driver::new(config);
        let first = nat.out(udp(at(A), at(FAR)));
        for _ in 0..3 {
            assert_eq!(reason(nat.send(udp(at(B), at(FAR)))), why);
        }
        assert_eq!(nat.out(udp(at(A), at(FAR))), first, "who is in stays in");
        nat.wait(301);
        nat.out(udp(at(B), at(FAR)));
        assert_eq!(reason(nat.send(udp(at(A), at(FAR)))), why);
    }
}

#[test]
fn a_paired_host_keeps_to_one_address_and_an_arbitrary_one_takes_what_is_left() {
    let two = "external = [\"203.0.113.0/31\"]\nports = \"5000-5003\"\nport_parity = false\n";
    let sent_by_one_host = |pooling: &str| {
        let mut nat = Driver::new(&std::format!("{two}pooling = \"{pooling}\""));
        let packets = (0..9).map(|n| udp(SocketAddrV4::new(*at(A).ip(), 7000 + n), at(FAR)));
        let verdicts: Vec<Verdict> = packets.map(|packet| nat.send(packet)).collect();
        let mut addresses: Vec<_> = verdicts
            .iter()
            .filter_map(|verdict| match verdict {
                Verdict::Rewrite { rewrite, .. } => Some(rewrite.src.unwrap().address),
                Verdict::Forward(_)
                | Verdict::Drop(_)
                | Verdict::Reply(_)
                | Verdict::Copy { .. }
                | Verdict::Transform { .. } => None,
            })
            .collect();
        let sent = addresses.len();
        addresses.sort();
        addresses.dedup();
        (sent, addresses.len())
    };
    assert_eq!(sent_by_one_host("paired"), (4, 1));
    assert_eq!(sent_by_one_host("arbitrary"), (8, 2));
}

#[test]
fn what_is_not_to_be_translated_passes_or_says_why_not() {
    let mut nat = Driver::new("");
    for untouched in [
        udp(at(A), at(B)),
        udp(at(FAR), at("192.0.2.1:9")),
        udp(at(A), at("224.0.0.251:5353")),
        udp(at(A), at("255.255.255.255:67")),
        Headers { network: Network::Arp, transport: Transport::None, ..udp(at(A), at(FAR)) },
    ] {
        assert_eq!(nat.send(untouched), Verdict::FORWARD);
    }
    assert_eq!(reason(nat.send(udp(at(FAR), at(A)))), "private-destination");
    let gre = ip(*at(A).ip(), *at(FAR).ip(), protocol::GRE, Transport::None);
    assert_eq!(reason(nat.send(gre)), "unsupported-protocol");
    assert_eq!(nat.send(Headers { fragment: Fragment::Later, ..gre }), Verdict::Drop(Reason::FRAGMENT));
    let redirect = Icmp { kind: 5, code: 0, identifier: None, embedded: None };
    let redirect = ip(*at(A).ip(), *at(FAR).ip(), protocol::ICMP, Transport::Icmp(redirect));
    assert_eq!(reason(nat.send(redirect)), "icmp-unsupported");
}

#[test]
fn a_mass_expiry_stalls_nobody_and_misleads_nobody() {
    let mut nat = Driver::new("");
    let ends: Vec<SocketAddrV4> = (0..5000).map(|n| SocketAddrV4::new(*at(A).ip(), 10_000 + n)).collect();
    let externals: Vec<SocketAddrV4> = ends.iter().map(|&end| nat.out(udp(end, at(FAR)))).collect();
    nat.wait(301);
    for external in externals {
        assert_eq!(reason(nat.send(udp(at(FAR), external))), "no-mapping");
    }
    for end in ends {
        nat.out(udp(end, at(FAR)));
    }
}

/// A capture that was made elsewhere is remarked on, by the most frequent drop reason.
#[test]
fn a_capture_from_elsewhere_is_remarked_on() {
    let nat = Nat::new(Config::default());
    let remark = |reason: Reason, count| {
        let mut dropped = [0; Reason::COUNT];
        dropped[usize::from(reason.0)] = count;
        nat.remark(&Fates { received: 2_000, dropped: &dropped })
    };
    let told = remark(Nat::PRIVATE_DESTINATION, 1_001).unwrap();
    assert!(told.starts_with("1,001 of 2,000 packets went from outside to inside addresses"), "{told}");
    let unasked = remark(Nat::NO_MAPPING, 2_000).unwrap();
    assert!(
        unasked.starts_with("2,000 of 2,000 packets came from outside to external endpoints without a mapping"),
        "{unasked}"
    );
    assert_eq!(remark(Nat::NO_MAPPING, 1_000), None);
    assert_eq!(remark(Nat::FILTERED, 2_000), None);
}

const FIXED: &str = "external = [\"203.0.113.1\"]\nports = \"1024-1031\"\n\
    filtering = \"address-and-port-dependent\"\n\
    static = [{ external = \"203.0.113.7\", internal = \"10.0.0.7\" }]\n\
    forward = [{ external = \"203.0.113.1:80\", internal = \"10.0.0.8:8080\", protocol = \"tcp\" },\n\
    { external = \"203.0.113.1:1024-1027\", internal = \"10.0.0.8:5000-5003\", protocol = \"udp\" }]";

#[test]
fn forwarded_ports_are_reached_by_anybody_and_answer_from_there() {
    let mut nat = Driver::new(FIXED);
    let (server, outside) = (at("10.0.0.8:8080"), at("203.0.113.1:80"));
    assert_eq!(nat.back(tcp(at(FAR), outside, SYN)), server);
    assert_eq!(nat.out(tcp(server, at(FAR), SYN.with(ACK))), outside);
    assert_eq!(nat.back(tcp(at(FAR), outside, ACK)), server);
    assert_eq!(nat.back(tcp(at("198.51.100.8:9"), outside, ACK)), server, "whatever it sends, for there is no state");
    assert_eq!(reason(nat.send(udp(at(FAR), outside))), "no-mapping", "only tcp is forwarded");
    assert_eq!(nat.out(tcp(server, at("192.0.2.1:443"), SYN)), outside, "what it opens itself comes from there, too");
    // Errors about it are translated.
    let quoted = (outside, at("192.0.2.1:443"));
    let verdict = nat.send(error(*at(FAR).ip(), *outside.ip(), quoted, protocol::TCP));
    assert!(matches!(verdict, Verdict::Rewrite { rewrite: Rewrite { dst: Some(_), .. }, .. }), "{verdict:?}");
    // A range, port by port, and after any silence.
    for behind in 0..4 {
        let end = |text: &str, port: u16| SocketAddrV4::new(text.parse().unwrap(), port + behind);
        nat.wait(1_000);
        assert_eq!(nat.back(udp(at(FAR), end("203.0.113.1", 1024))), end("10.0.0.8", 5000));
        assert_eq!(nat.out(udp(end("10.0.0.8", 5000), at(FAR))), end("203.0.113.1", 1024));
    }
    // At the external endpoint from inside, too.
    let hairpin = nat.send(tcp(at(A), outside, SYN));
    assert!(
        matches!(hairpin, Verdict::Rewrite { port: PortId::BACK, rewrite: Rewrite { dst: Some(dst), .. } } if v4(dst) == server),
        "{hairpin:?}"
    );
}

#[test]
fn forwarded_ports_are_given_to_nobody_else() {
    for text in ["", "\nport_preservation = false", "\nport_parity = false"] {
        let mut nat = Driver::new(&format!("{FIXED}{text}"));
        let mut given = Vec::new();
        for host in 10..30 {
            let verdict = nat.send(udp(at(&std::format!("10.0.1.{host}:{}", 1014 + host)), at(FAR)));
            if let Verdict::Rewrite { rewrite: Rewrite { src: Some(external), .. }, .. } = verdict {
                given.push(v4(external).port());
            } else {
                assert_eq!(reason(verdict), "pool-exhausted");
            }
        }
        given.sort_unstable();
        assert_eq!(given, [1028, 1029, 1030, 1031], "{text}");
        nat.wait(1_000);
        // The same again, after all have been freed.
        let reopened = (10..30).filter(|host| {
            let end = at(&std::format!("10.0.1.{host}:{}", 1014 + host));
            matches!(nat.send(udp(end, at(FAR))), Verdict::Rewrite { .. })
        });
        assert_eq!(reopened.count(), 4, "{text}");
    }
}

#[test]
fn a_static_host_has_an_address_of_its_own_both_ways() {
    let mut nat = Driver::new(FIXED);
    let (inside, outside) = (at("10.0.0.7:5000"), at("203.0.113.7:5000"));
    assert_eq!(nat.back(udp(at(FAR), outside)), inside);
    assert_eq!(nat.out(udp(inside, at(FAR))), outside);
    assert_eq!(nat.out(tcp(at("10.0.0.7:22"), at(FAR), SYN)), at("203.0.113.7:22"), "ports stay, below 1024, too");
    assert_eq!(nat.back(tcp(at(FAR), at("203.0.113.7:80"), SYN)), at("10.0.0.7:80"));
    let ping = nat.send(echo(*at(FAR).ip(), *outside.ip(), 77, true));
    assert!(
        matches!(ping, Verdict::Rewrite { rewrite: Rewrite { dst: Some(dst), .. }, .. } if v4(dst) == at("10.0.0.7:77")),
        "{ping:?}"
    );
    assert_eq!(nat.out(echo(*inside.ip(), *at(FAR).ip(), 77, false)), at("203.0.113.7:77"));
    // A router outside tells the host of a packet that it sent, and one inside the stranger of a packet to the host.
    let told = nat.send(error(*at("192.0.2.1:0").ip(), *outside.ip(), (outside, at(FAR)), protocol::UDP));
    assert!(
        matches!(told, Verdict::Rewrite { rewrite: Rewrite { dst: Some(dst), .. }, .. } if v4(dst) == inside),
        "{told:?}"
    );
    let tells = nat.send(error(*inside.ip(), *at(FAR).ip(), (at(FAR), inside), protocol::UDP));
    assert!(
        matches!(tells, Verdict::Rewrite { rewrite: Rewrite { src: Some(src), .. }, .. } if v4(src) == outside),
        "{tells:?}"
    );
}

/// A query has one identifier: the `static` host takes that of the other end.
#[test]
fn a_static_host_is_pinged_from_inside() {
    let mut nat = Driver::new(FIXED);
    let (host, host_outside) = (at("10.0.0.7:0"), at("203.0.113.7:0"));
    let both = |verdict: Verdict| match verdict {
        Verdict::Rewrite { port: PortId::BACK, rewrite } => (v4(rewrite.src.unwrap()), v4(rewrite.dst.unwrap())),
        other => panic!("{other:?}"),
    };
    let (src, dst) = both(nat.send(echo(*at(A).ip(), *host_outside.ip(), 7777, true)));
    assert_eq!((*src.ip(), *dst.ip(), src.port()), (*at("203.0.113.1:0").ip(), *host.ip(), dst.port()));
    assert!((1024..=1031).contains(&src.port()), "an identifier of the pool: {src}");
    // The answer returns to the sender with the sender's identifier.
    let (from, to) = both(nat.send(echo(*host.ip(), *src.ip(), dst.port(), false)));
    assert_eq!((from, to), (SocketAddrV4::new(*host_outside.ip(), 7777), SocketAddrV4::new(*at(A).ip(), 7777)));
    assert_eq!(reason(nat.send(echo(*host.ip(), *src.ip(), 1, true))), "no-mapping");
    let mut nat = Driver::new(&format!("{FIXED}\nhairpinning = false"));
    assert_eq!(reason(nat.send(echo(*at(A).ip(), *host_outside.ip(), 7777, true))), "hairpin-refused");
}

/// A scan of a `static` address fills no table.
#[test]
fn fixed_mappings_keep_no_state() {
    let mut nat = Driver::new(FIXED);
    let before = nat.fingerprint();
    for port in 1..5_000 {
        nat.back(tcp(at(FAR), SocketAddrV4::new("203.0.113.7".parse().unwrap(), port), SYN));
        nat.out(udp(SocketAddrV4::new("10.0.0.7".parse().unwrap(), port), at(FAR)));
    }
    nat.back(tcp(at(FAR), at("203.0.113.1:80"), SYN));
    assert_eq!(nat.fingerprint(), before);
}

#[test]
fn mappings_are_listed_one_by_one() {
    let mut nat = Driver::new(&format!("{FIXED}\nlist = 5"));
    nat.out(udp(at("10.0.0.5:1030"), at(FAR)));
    nat.out(udp(at("10.0.0.5:1028"), at(FAR)));
    nat.out(tcp(at("10.0.0.5:1031"), at(FAR), SYN));
    let report = report_at(&nat.nat, &[], &nat.state, nat.now).unwrap();
    assert_eq!(report.title, "5 of 6 mappings; `--set list=` shows more");
    let row = |at: usize| report.rows[at].iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(row(0), ["any", "10.0.0.7", "203.0.113.7", "-", "fixed"]);
    assert_eq!(row(1), ["tcp", "10.0.0.8:8080", "203.0.113.1:80", "-", "fixed"]);
    assert_eq!(row(2), ["udp", "10.0.0.8:5000-5003", "203.0.113.1:1024-1027", "-", "fixed"]);
    assert_eq!(row(3), ["udp", "10.0.0.5:1028", "203.0.113.1:1028", "1", "300"]);
    assert_eq!(row(4), ["udp", "10.0.0.5:1030", "203.0.113.1:1030", "1", "300"]);
    nat.wait(300);
    let report = report_at(&nat.nat, &[], &nat.state, nat.now).unwrap();
    assert_eq!((&*report.title, report.rows.len()), ("mappings: 3", 3), "none is in use any more");
}

const SERVER: &str = "198.51.100.1:53";

/// The external endpoint that a datagram from this inside endpoint gets.
fn external_of(driver: &mut Driver, inside: &str) -> String {
    driver.out(udp(at(inside), at(SERVER))).to_string()
}

#[test]
fn mappings_stay_when_addresses_and_ports_change() {
    let mut driver = Driver::new("external = [\"203.0.113.1\"]\nports = \"2000-2003\"\ntimeouts.udp = 100");
    assert_eq!(external_of(&mut driver, "10.0.0.1:2000"), "203.0.113.1:2000");
    driver.reload("external = [\"203.0.113.2\"]\nports = \"3000-3001\"\ntimeouts.udp = 100").unwrap();
    // Both ways, and for new sessions of the mapping.
    assert_eq!(external_of(&mut driver, "10.0.0.1:2000"), "203.0.113.1:2000");
    assert_eq!(driver.back(udp(at(SERVER), at("203.0.113.1:2000"))).to_string(), "10.0.0.1:2000");
    assert_eq!(external_of(&mut driver, "10.0.0.2:2000"), "203.0.113.2:3000");
    // Where nothing is mapped, the address is one like others.
    assert_eq!(driver.send(udp(at(SERVER), at("203.0.113.1:2001"))), Verdict::FORWARD);
    let to_former = driver.send(udp(at("10.0.0.1:2000"), at("203.0.113.1:9")));
    assert!(matches!(to_former, Verdict::Rewrite { port: PortId::ACROSS, .. }), "{to_former:?}");
    // The mapping ends, and comes back with a port of now.
    driver.wait(101);
    assert_eq!(external_of(&mut driver, "10.0.0.2:2000"), "203.0.113.2:3000");
    driver.wait(1);
    assert_eq!(driver.send(udp(at(SERVER), at("203.0.113.1:2000"))), Verdict::FORWARD);
    assert_eq!(external_of(&mut driver, "10.0.0.1:3001"), "203.0.113.2:3001");
}

#[test]
fn a_port_that_an_older_mapping_has_is_not_given_twice() {
    let mut driver = Driver::new("ports = \"2000-2003\"\ntimeouts.udp = 100");
    assert_eq!(external_of(&mut driver, "10.0.0.1:2002"), "203.0.113.1:2002");
    driver.reload("ports = \"2002-2005\"\ntimeouts.udp = 100").unwrap();
    driver.wait(50);
    assert_eq!(external_of(&mut driver, "10.0.0.2:2002"), "203.0.113.1:2004", "2002 is in use");
    let refused = driver.send(udp(at("10.0.0.3:2002"), at(SERVER)));
    assert_eq!(refused, Verdict::Drop(Nat::POOL_EXHAUSTED), "no other port is even");
    // It comes into the new pool when the mapping ends.
    driver.wait(51);
    assert_eq!(external_of(&mut driver, "10.0.0.2:2002"), "203.0.113.1:2004");
    assert_eq!(external_of(&mut driver, "10.0.0.3:2002"), "203.0.113.1:2002");
    // And back: the pools of before are not those of now.
    driver.reload("ports = \"2000-2003\"\ntimeouts.udp = 100").unwrap();
    assert_eq!(external_of(&mut driver, "10.0.0.4:2002"), "203.0.113.1:2000");
    let refused = driver.send(udp(at("10.0.0.5:2002"), at(SERVER)));
    assert_eq!(refused, Verdict::Drop(Nat::POOL_EXHAUSTED));
}

#[test]
fn sessions_go_before_fixed_mappings_that_come_later() {
    let base = "ports = \"2000-2999\"\ntimeouts.udp = 100\nfiltering = \"address-dependent\"\n";
    let forward = "forward = [{ external = \"203.0.113.1:2000\", internal = \"10.0.0.8:80\", protocol = \"udp\" }]\n\
         static = [{ external = \"203.0.113.7\", internal = \"10.0.0.7\" }]";
    let mut driver = Driver::new(base);
    assert_eq!(external_of(&mut driver, "10.0.0.1:2000"), "203.0.113.1:2000");
    assert_eq!(external_of(&mut driver, "10.0.0.7:2001"), "203.0.113.1:2001");
    driver.reload(&(base.to_string() + forward)).unwrap();
    assert_eq!(driver.back(udp(at(SERVER), at("203.0.113.1:2000"))).to_string(), "10.0.0.1:2000");
    assert_eq!(external_of(&mut driver, "10.0.0.7:2001"), "203.0.113.1:2001");
    // Others get what is fixed.
    assert_eq!(driver.back(udp(at("198.51.100.2:53"), at("203.0.113.1:2000"))).to_string(), "10.0.0.8:80");
    assert_eq!(external_of(&mut driver, "10.0.0.7:2003"), "203.0.113.7:2003");
    driver.wait(101);
    assert_eq!(driver.back(udp(at(SERVER), at("203.0.113.1:2000"))).to_string(), "10.0.0.8:80");
    assert_eq!(external_of(&mut driver, "10.0.0.7:2001"), "203.0.113.7:2001");
    assert_eq!(external_of(&mut driver, "10.0.0.1:2000"), "203.0.113.1:2002", "2000 is fixed");
    // A port that is no longer fixed is one of the pool again.
    driver.reload(base).unwrap();
    assert_eq!(external_of(&mut driver, "10.0.0.2:2000"), "203.0.113.1:2000");
}

#[test]
fn what_sessions_are_found_by_cannot_change() {
    let mut driver = Driver::new("mappings = 8\nsessions = 8");
    for (config, why) in [
        ("mappings = 8\nsessions = 8\nfiltering = \"address-dependent\"", "`filtering`"),
        ("mappings = 9\nsessions = 8", "keep their sizes"),
        ("mappings = 8\nsessions = 8\npool.overprovision = 1", "keep their sizes"),
    ] {
        let refused = driver.reload(config).unwrap_err();
        assert!(refused.contains(why), "{config}: {refused}");
    }
    // 203.0.113.1 and four times 256 addresses would be too many.
    for round in 0..6 {
        let all = std::format!("mappings = 8\nsessions = 8\nexternal = [\"100.64.{round}.0/24\"]");
        let outcome = driver.reload(&all);
        assert_eq!(outcome.is_err(), round >= 4, "{round}: {outcome:?}");
    }
}
