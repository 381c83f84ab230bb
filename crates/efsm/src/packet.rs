//! The fields of a packet that a program can name.

use core::net::{Ipv4Addr, Ipv6Addr};

use ::packet::{Endpoint, Fragment, Headers, Mac, Macs, Nanos, Network, Rewrite, Transport};

/// A packet as a program sees it: plain values. Addresses have 128 bits; IPv4 addresses are mapped (`::ffff:10.0.0.1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Source address.
    pub src: u128,
    /// Destination address.
    pub dst: u128,
    /// Source and destination Ethernet address.
    pub macs: [u64; 2],
    /// Length of the frame on the wire in bytes.
    pub len: u32,
    /// TCP sequence number.
    pub seq: u32,
    /// TCP acknowledgement number.
    pub ack: u32,
    /// Source port; of ICMP queries the identifier.
    pub src_port: u16,
    /// Destination port; of ICMP queries the identifier.
    pub dst_port: u16,
    /// TCP window.
    pub window: u16,
    /// EtherType.
    pub ethertype: u16,
    /// Identifier of the outer VLAN.
    pub vlan: u16,
    /// Input port.
    pub port: u16,
    /// Length of IP header and payload in bytes.
    pub ip_len: u16,
    /// Protocol.
    pub proto: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// TCP flags.
    pub flags: u8,
    /// ICMP type and code.
    pub icmp: [u8; 2],
    /// The layers that the packet has.
    pub layers: Layers,
}

/// A set of layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers(pub u8);

impl Layers {
    /// Every packet has the fields of no layer.
    pub const NONE: Self = Self(0);
    /// IPv4 or IPv6.
    pub const IP: Self = Self(1);
    /// Ports or an identifier.
    pub const PORTS: Self = Self(2);
    /// A TCP header.
    pub const TCP: Self = Self(4);
    /// An ICMP or ICMPv6 header.
    pub const ICMP: Self = Self(8);
    /// Ethernet addresses.
    pub const ETHERNET: Self = Self(16);
    /// A VLAN tag.
    pub const VLAN: Self = Self(32);
    /// Every layer.
    pub const ALL: Self = Self(63);

    /// True if all of `other` are here.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Packet {
    /// Reads the fields of a parsed packet.
    #[inline(always)]
    #[must_use]
    pub fn read(headers: &Headers) -> Self {
        let has = |layers: Layers, condition: bool| if condition { layers } else { Layers::NONE };
        let (src, dst, ttl, tos, ip_len, ip) = match headers.network {
            Network::V4(ip) => (v4(ip.src), v4(ip.dst), ip.ttl, ip.tos, ip.total_len, Layers::IP),
            Network::V6(ip) => {
                let len = ip.payload_len.saturating_add(40);
                (ip.src.to_bits(), ip.dst.to_bits(), ip.hop_limit, ip.traffic_class, len, Layers::IP)
            }
            Network::None | Network::Unreadable | Network::Arp => (0, 0, 0, 0, 0, Layers::NONE),
        };
        let has_transport = ip == Layers::IP && headers.fragment != Fragment::Later;
        let transport = if has_transport { headers.transport } else { Transport::None };
        let (src_port, dst_port) = if has_transport { headers.ports() } else { (0, 0) };
        let (flags, seq, ack, window) = match transport {
            Transport::Tcp(tcp) => (tcp.flags.0, tcp.seq, tcp.ack, tcp.window),
            _ => (0, 0, 0, 0),
        };
        let (icmp, transport) = match transport {
            Transport::None => ([0; 2], Layers::NONE),
            Transport::Udp { .. } | Transport::Sctp { .. } => ([0; 2], Layers::PORTS),
            Transport::Tcp(_) => ([0; 2], Layers::TCP.with(Layers::PORTS)),
            Transport::Icmp(icmp) => {
                ([icmp.kind, icmp.code], Layers::ICMP.with(has(Layers::PORTS, icmp.identifier.is_some())))
            }
        };
        let has_tag = headers.vlans.count > 0;
        let link = has(Layers::ETHERNET, headers.macs.is_some()).with(has(Layers::VLAN, has_tag));
        // All fields at once: fields that are written one by one and then copied in wider pieces stall the processor.
        Self {
            src,
            dst,
            macs: headers.macs.map_or([0; 2], |(src, dst)| [number(src), number(dst)]),
            len: headers.wire_len,
            seq,
            ack,
            src_port,
            dst_port,
            window,
            ethertype: headers.ethertype,
            vlan: if has_tag { headers.vlans.ids[0] } else { 0 },
            port: headers.interface,
            ip_len,
            proto: if ip == Layers::IP { headers.protocol } else { 0 },
            ttl,
            tos,
            flags,
            icmp,
            layers: link.with(ip).with(transport),
        }
    }

    /// The changes that turn a packet with the fields of `before` into this one.
    #[inline]
    #[must_use]
    pub fn rewrite(&self, before: &Self) -> Rewrite {
        let endpoint = |address: u128, port, before: (u128, u16)| {
            let changes = (address, port) != before && self.layers.contains(Layers::IP);
            changes.then(|| Endpoint { address: Ipv6Addr::from_bits(address).to_canonical(), port })
        };
        Rewrite {
            src: endpoint(self.src, self.src_port, (before.src, before.src_port)),
            dst: endpoint(self.dst, self.dst_port, (before.dst, before.dst_port)),
            macs: (self.macs != before.macs).then(|| Macs::Set(mac(self.macs[0]), mac(self.macs[1]))),
            decrement_ttl: self.ttl != before.ttl,
            ..Rewrite::NONE
        }
    }
}

const fn v4(address: Ipv4Addr) -> u128 {
    address.to_ipv6_mapped().to_bits()
}

/// The value of an Ethernet address, as a number.
pub(crate) const fn number(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

const fn mac(number: u64) -> Mac {
    let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
    Mac([a, b, c, d, e, f])
}

/// A field of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `in`: the input port.
    In,
    /// `len`: the frame's length in bytes.
    Len,
    /// `eth.src`
    EthSrc,
    /// `eth.dst`
    EthDst,
    /// `eth.type`
    EthType,
    /// `vlan.id`: of the outer tag.
    VlanId,
    /// `ip.src`
    IpSrc,
    /// `ip.dst`
    IpDst,
    /// `ip.proto`
    IpProto,
    /// `ip.ttl`: time to live or hop limit.
    IpTtl,
    /// `ip.tos`: type of service or traffic class.
    IpTos,
    /// `ip.len`: header and payload in bytes.
    IpLen,
    /// `l4.src`: source port, or the identifier of an ICMP query.
    L4Src,
    /// `l4.dst`: destination port, or the identifier of an ICMP query.
    L4Dst,
    /// `tcp.flags`
    TcpFlags,
    /// `tcp.seq`
    TcpSeq,
    /// `tcp.ack`
    TcpAck,
    /// `tcp.window`
    TcpWindow,
    /// `icmp.type`
    IcmpType,
    /// `icmp.code`
    IcmpCode,
    /// `time.ms`: the packet's time in milliseconds.
    TimeMs,
    /// `time.us`: the packet's time in microseconds.
    TimeUs,
    /// `time.ns`: the packet's time in nanoseconds.
    TimeNs,
}

impl Field {
    /// All fields: name, width in bits, and the layers that a packet with this field has.
    pub const ALL: [(Self, &'static str, u32, Layers); 23] = [
        (Self::In, "in", 16, Layers::NONE),
        (Self::Len, "len", 32, Layers::NONE),
        (Self::EthSrc, "eth.src", 48, Layers::ETHERNET),
        (Self::EthDst, "eth.dst", 48, Layers::ETHERNET),
        (Self::EthType, "eth.type", 16, Layers::NONE),
        (Self::VlanId, "vlan.id", 12, Layers::VLAN),
        (Self::IpSrc, "ip.src", 128, Layers::IP),
        (Self::IpDst, "ip.dst", 128, Layers::IP),
        (Self::IpProto, "ip.proto", 8, Layers::IP),
        (Self::IpTtl, "ip.ttl", 8, Layers::IP),
        (Self::IpTos, "ip.tos", 8, Layers::IP),
        (Self::IpLen, "ip.len", 16, Layers::IP),
        (Self::L4Src, "l4.src", 16, Layers::PORTS),
        (Self::L4Dst, "l4.dst", 16, Layers::PORTS),
        (Self::TcpFlags, "tcp.flags", 8, Layers::TCP),
        (Self::TcpSeq, "tcp.seq", 32, Layers::TCP),
        (Self::TcpAck, "tcp.ack", 32, Layers::TCP),
        (Self::TcpWindow, "tcp.window", 16, Layers::TCP),
        (Self::IcmpType, "icmp.type", 8, Layers::ICMP),
        (Self::IcmpCode, "icmp.code", 8, Layers::ICMP),
        (Self::TimeMs, "time.ms", 64, Layers::NONE),
        (Self::TimeUs, "time.us", 64, Layers::NONE),
        (Self::TimeNs, "time.ns", 64, Layers::NONE),
    ];

    /// The field of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, ..)| *known == name).map(|(field, ..)| *field)
    }

    const fn entry(self) -> (Self, &'static str, u32, Layers) {
        Self::ALL[self as usize]
    }

    /// The field's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().1
    }

    /// The field's width in bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.entry().2
    }

    /// The layers that a packet needs for this field.
    #[must_use]
    pub const fn layers(self) -> Layers {
        self.entry().3
    }

    /// True if an action can set the field.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::IpSrc | Self::IpDst | Self::L4Src | Self::L4Dst | Self::EthSrc | Self::EthDst)
    }

    /// The same field in the other direction; the field itself if it has none.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::IpSrc => Self::IpDst,
            Self::IpDst => Self::IpSrc,
            Self::L4Src => Self::L4Dst,
            Self::L4Dst => Self::L4Src,
            Self::EthSrc => Self::EthDst,
            Self::EthDst => Self::EthSrc,
            other => other,
        }
    }

    /// The field's value, if it is no time; 0 if the packet doesn't have it.
    #[inline]
    #[must_use]
    pub fn get(self, packet: &Packet) -> u128 {
        match self {
            Self::In => packet.port.into(),
            Self::Len => packet.len.into(),
            Self::EthSrc => packet.macs[0].into(),
            Self::EthDst => packet.macs[1].into(),
            Self::EthType => packet.ethertype.into(),
            Self::VlanId => packet.vlan.into(),
            Self::IpSrc => packet.src,
            Self::IpDst => packet.dst,
            Self::IpProto => packet.proto.into(),
            Self::IpTtl => packet.ttl.into(),
            Self::IpTos => packet.tos.into(),
            Self::IpLen => packet.ip_len.into(),
            Self::L4Src => packet.src_port.into(),
            Self::L4Dst => packet.dst_port.into(),
            Self::TcpFlags => packet.flags.into(),
            Self::TcpSeq => packet.seq.into(),
            Self::TcpAck => packet.ack.into(),
            Self::TcpWindow => packet.window.into(),
            Self::IcmpType => packet.icmp[0].into(),
            Self::IcmpCode => packet.icmp[1].into(),
            // A time is not the packet's alone: `at` gives it.
            Self::TimeMs | Self::TimeUs | Self::TimeNs => 0,
        }
    }

    /// The field's value at `now`; 0 if the packet doesn't have it.
    #[inline]
    #[must_use]
    pub fn at(self, packet: &Packet, now: Nanos) -> u128 {
        match self {
            Self::TimeMs => (now.0 / 1_000_000).into(),
            Self::TimeUs => (now.0 / 1_000).into(),
            Self::TimeNs => now.0.into(),
            _ => self.get(packet),
        }
    }

    /// True for a time.
    #[must_use]
    pub const fn is_time(self) -> bool {
        matches!(self, Self::TimeMs | Self::TimeUs | Self::TimeNs)
    }

    /// Sets a field that [can be set](Self::is_writable) to the lower bits of `value`. Other fields stay.
    #[inline]
    pub fn set(self, packet: &mut Packet, value: u128) {
        match self {
            Self::EthSrc => packet.macs[0] = value as u64 & 0xffff_ffff_ffff,
            Self::EthDst => packet.macs[1] = value as u64 & 0xffff_ffff_ffff,
            Self::IpSrc => packet.src = value,
            Self::IpDst => packet.dst = value,
            Self::L4Src => packet.src_port = value as u16,
            Self::L4Dst => packet.dst_port = value as u16,
            _ => debug_assert!(false, "{} can't be set", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_fields_is_in_their_order() {
        for (at, (field, name, ..)) in Field::ALL.into_iter().enumerate() {
            assert_eq!((field as usize, Field::of_name(name)), (at, Some(field)));
            assert_eq!(field.reversed().reversed(), field);
        }
    }
}
