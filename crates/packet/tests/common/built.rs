//! Packets with right checksums, built by another crate.

use std::net::IpAddr;

use etherparse::PacketBuilder;
use millrace_packet::{Headers, LinkType, parse, protocol};
use proptest::prelude::*;

pub type Hosts = (IpAddr, IpAddr);

pub fn v4_hosts() -> impl Strategy<Value = Hosts> {
    any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into()))
}

pub fn v6_hosts() -> impl Strategy<Value = Hosts> {
    any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into()))
}

/// Two pairs of hosts of one family: a packet's, and what to rewrite them to.
pub fn hosts() -> impl Strategy<Value = (Hosts, Hosts)> {
    prop_oneof![(v4_hosts(), v4_hosts()), (v6_hosts(), v6_hosts())]
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Tcp,
    Udp,
    Ping,
    Sctp,
}

pub fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Tcp), Just(Kind::Udp), Just(Kind::Ping), Just(Kind::Sctp)]
}

/// An IP packet with right checksums.
pub fn packet((src, dst): Hosts, (src_port, dst_port): (u16, u16), kind: Kind, payload: &[u8]) -> Vec<u8> {
    let builder = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => PacketBuilder::ipv4(src.octets(), dst.octets(), 64),
        (IpAddr::V6(src), IpAddr::V6(dst)) => PacketBuilder::ipv6(src.octets(), dst.octets(), 64),
        _ => unreachable!("hosts are of one family"),
    };
    let mut out = Vec::new();
    match (kind, src) {
        (Kind::Tcp, _) => builder.tcp(src_port, dst_port, 1000, 64000).ack(77).write(&mut out, payload),
        (Kind::Udp, _) => builder.udp(src_port, dst_port).write(&mut out, payload),
        (Kind::Ping, IpAddr::V4(_)) => builder.icmpv4_echo_request(src_port, 1).write(&mut out, payload),
        (Kind::Ping, IpAddr::V6(_)) => builder.icmpv6_echo_request(src_port, 1).write(&mut out, payload),
        (Kind::Sctp, _) => {
            let mut message = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
            message.extend([1, 2, 3, 4, 0, 0, 0, 0]);
            message.extend(payload);
            let crc = super::crc32c(&message);
            message[8..12].copy_from_slice(&crc.to_le_bytes());
            builder.write(&mut out, protocol::SCTP.into(), &message)
        }
    }
    .expect("writing to memory");
    out
}

/// An ICMP error from `src` to `dst` that quotes this much of a packet.
pub fn error((src, dst): Hosts, quoted: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let builder = PacketBuilder::ipv4(src.octets(), dst.octets(), 64);
            builder.icmpv4_raw(3, 1, [0; 4]).write(&mut out, quoted)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let builder = PacketBuilder::ipv6(src.octets(), dst.octets(), 64);
            builder.icmpv6_raw(1, 4, [0; 4]).write(&mut out, quoted)
        }
        _ => unreachable!("hosts are of one family"),
    }
    .expect("writing to memory");
    out
}

pub fn read(bytes: &[u8]) -> Headers {
    parse(LinkType::RawIp, bytes, bytes.len() as u32, 0).expect("a well-formed packet")
}
