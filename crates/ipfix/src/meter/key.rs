//! The key of a flow in the cache, which is the same for both directions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::{Endpoint, Headers, Icmp, Key, Network, TcpFlags, Transport, hash_words, protocol};

/// The lower endpoint, the higher one, and the protocol. IPv4 addresses take the last word of their two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CacheKey {
    hosts: [[u64; 2]; 2],
    /// Ports of both, protocol, address family, and what distinguishes ICMP messages.
    rest: u64,
}

const V6: u64 = 1 << 16;

impl Key for CacheKey {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        let [[a, b], [c, d]] = self.hosts;
        hash_words([a, b, c, d, self.rest], seed)
    }
}

impl CacheKey {
    /// The two endpoints, the lower one first. ICMP has no ports.
    pub(super) fn endpoints(self) -> [Endpoint; 2] {
        let has_ports = has_ports(self.protocol());
        [0, 1].map(|side: usize| {
            let [high, low] = self.hosts[side];
            let address = if self.rest & V6 == 0 {
                IpAddr::V4(Ipv4Addr::from_bits(low as u32))
            } else {
                IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)))
            };
            let port = (self.rest >> (48 - 16 * side)) as u16;
            Endpoint::new(address, if has_ports { port } else { 0 })
        })
    }

    pub(super) const fn protocol(self) -> u8 {
        (self.rest >> 24) as u8
    }
}

/// True if packets of this protocol have ports.
pub(crate) const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP | protocol::SCTP)
}

/// The fields of a packet that the meter needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketFields {
    pub(super) key: CacheKey,
    /// The number of the source among the key's endpoints.
    pub(super) source: u8,
    pub(super) class: u8,
    pub(super) interface: u16,
    pub(super) vlan: u16,
    pub(super) octets: u32,
    /// Flags and sequence number.
    pub(super) tcp: Option<(TcpFlags, u32)>,
    /// ICMP type and code.
    pub(super) icmp: Option<u16>,
}

impl PacketFields {
    /// Reads a packet's headers; `None` if it is not IP.
    #[inline(always)]
    pub(super) fn of(headers: &Headers) -> Option<Self> {
        let (src, dst, class, octets, family) = match headers.network {
            Network::V4(ip) => {
                ([0, ip.src.to_bits().into()], [0, ip.dst.to_bits().into()], ip.tos, ip.total_len.into(), 0)
            }
            Network::V6(ip) => (halves(ip.src), halves(ip.dst), ip.traffic_class, 40 + u32::from(ip.payload_len), V6),
            Network::None | Network::Unreadable | Network::Arp => return None,
        };
        let (ports, tcp, message, icmp) = match headers.transport {
            Transport::Tcp(tcp) => ((tcp.src_port, tcp.dst_port), Some((tcp.flags, tcp.seq)), 0, None),
            Transport::Udp { src_port, dst_port } | Transport::Sctp { src_port, dst_port } => {
                ((src_port, dst_port), None, 0, None)
            }
            Transport::Icmp(icmp) => {
                let identifier = icmp.identifier.unwrap_or(0);
                let message = u16::from_be_bytes([icmp.kind, icmp.code]);
                ((identifier, identifier), None, exchange(&icmp, message), Some(message))
            }
            // A later fragment counts by addresses and protocol.
            Transport::None => ((0, 0), None, 0, None),
        };
        let is_in_order = (src, ports.0) <= (dst, ports.1);
        let (hosts, [low, high]) =
            if is_in_order { ([src, dst], [ports.0, ports.1]) } else { ([dst, src], [ports.1, ports.0]) };
        let rest = u64::from(low) << 48
            | u64::from(high) << 32
            | u64::from(headers.protocol) << 24
            | family
            | u64::from(message);
        Some(Self {
            key: CacheKey { hosts, rest },
            source: u8::from(!is_in_order),
            class,
            interface: headers.interface,
            vlan: headers.vlans.ids[0],
            octets,
            tcp,
            icmp,
        })
    }
}

/// What a question and its answer have in common: the question's type. Other messages have their type and code.
#[inline]
const fn exchange(icmp: &Icmp, message: u16) -> u16 {
    match (icmp.identifier, icmp.kind) {
        (None, _) => message,
        (Some(_), 0) => 8 << 8,
        (Some(_), 129) => 128 << 8,
        // Timestamp, information and address mask: 13 and 14, 15 and 16, 17 and 18.
        (Some(_), kind @ 13..=18) => (((kind - 1) | 1) as u16) << 8,
        (Some(_), 140) => 139 << 8,
        (Some(_), kind) => (kind as u16) << 8,
    }
}

#[inline]
const fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}
