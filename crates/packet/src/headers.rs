//! The parsed headers of a packet as one plain value: [`Headers`].

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::key::{Endpoint, FiveTuple, Host, HostPair};
use crate::link::LinkType;

/// Protocol numbers of the Internet Protocol (IANA).
pub mod protocol {
    #![allow(missing_docs)]
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const IPIP: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const GRE: u8 = 47;
    pub const ESP: u8 = 50;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const NO_NEXT: u8 = 59;
    pub const SCTP: u8 = 132;

    /// The protocol's name, as in configurations and case files; `None` if it has none here.
    #[must_use]
    pub const fn name(number: u8) -> Option<&'static str> {
        Some(match number {
            ICMP => "icmp",
            IGMP => "igmp",
            IPIP => "ipip",
            TCP => "tcp",
            UDP => "udp",
            IPV6 => "ipv6",
            GRE => "gre",
            ESP => "esp",
            AH => "ah",
            ICMPV6 => "icmpv6",
            SCTP => "sctp",
            _ => return None,
        })
    }
}

/// A parsed packet. Only [`parse`](crate::parse) creates it, so every offset is within the captured bytes, except `payload_offset` of a
/// TCP segment with options that the capture cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Link type of the frame.
    pub link: LinkType,
    /// Number of the input interface, as the port numbers them; 0 if there is only one.
    pub interface: u16,
    /// Ethernet addresses, source first. `None` on links that have none.
    pub macs: Option<(Mac, Mac)>,
    /// VLAN tags, outermost first.
    pub vlans: Vlans,
    /// EtherType after all tags. In IEEE 802.3 frames: the EtherType in SNAP, else the length. On links without EtherType: the EtherType
    /// that Ethernet would use, or 0.
    pub ethertype: u16,
    /// The network layer.
    pub network: Network,
    /// Transport protocol after all IPv6 extension headers ([`protocol`]); 0 without an IP layer. In a later fragment: the protocol in
    /// the fragment header, which may be an extension header.
    pub protocol: u8,
    /// True if the packet is a fragment, and which.
    pub fragment: Fragment,
    /// Transport layer. `None` for later fragments and for protocols that are not parsed.
    pub transport: Transport,
    /// The tunnel, if this packet is the outer packet of one.
    pub tunnel: Option<Tunnel>,
    /// Offset of the IP (or other network) header in the frame, in bytes.
    pub network_offset: u16,
    /// Offset of the transport header in the frame, in bytes.
    pub transport_offset: u16,
    /// Offset of the transport payload in the frame, in bytes.
    pub payload_offset: u16,
    /// Length of the transport payload on the wire in bytes, from the length fields of IP and UDP. The capture may have less.
    pub payload_len: u32,
    /// Length of the frame on the wire in bytes.
    pub wire_len: u32,
}

impl Headers {
    /// What was captured of the transport's payload. `bytes` is the frame that these headers were parsed from; of another one,
    /// nothing.
    #[inline(always)]
    #[must_use]
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let start = usize::from(self.payload_offset);
        let end = bytes.len().min(start + self.payload_len as usize);
        bytes.get(start..end).unwrap_or_default()
    }

    /// Source and destination address, if there is an IP layer.
    #[inline]
    #[must_use]
    pub const fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        match self.network {
            Network::V4(ip) => Some((IpAddr::V4(ip.src), IpAddr::V4(ip.dst))),
            Network::V6(ip) => Some((IpAddr::V6(ip.src), IpAddr::V6(ip.dst))),
            Network::None | Network::Unreadable | Network::Arp => None,
        }
    }

    /// Source and destination port. ICMP queries count their identifier as both; protocols without ports count 0.
    #[inline]
    #[must_use]
    pub const fn ports(&self) -> (u16, u16) {
        match self.transport {
            Transport::Tcp(tcp) => (tcp.src_port, tcp.dst_port),
            Transport::Udp { src_port, dst_port } | Transport::Sctp { src_port, dst_port } => (src_port, dst_port),
            Transport::Icmp(icmp) => match icmp.identifier {
                Some(identifier) => (identifier, identifier),
                None => (0, 0),
            },
            Transport::None => (0, 0),
        }
    }

    /// The packet's five-tuple as sent, if there is an IP layer.
    #[inline]
    #[must_use]
    pub fn five_tuple(&self) -> Option<FiveTuple> {
        let (src_port, dst_port) = self.ports();
        match self.network {
            Network::V4(ip) => Some(FiveTuple::v4(ip.src, ip.dst, src_port, dst_port, self.protocol)),
            Network::V6(ip) => Some(FiveTuple::v6(ip.src, ip.dst, src_port, dst_port, self.protocol)),
            Network::None | Network::Unreadable | Network::Arp => None,
        }
    }

    /// Source and destination address as a key, if there is an IP layer.
    #[inline]
    #[must_use]
    pub const fn host_pair(&self) -> Option<HostPair> {
        match self.network {
            Network::V4(ip) => Some(HostPair::v4(ip.src, ip.dst)),
            Network::V6(ip) => Some(HostPair::v6(ip.src, ip.dst)),
            Network::None | Network::Unreadable | Network::Arp => None,
        }
    }

    /// The source address as a key, if there is an IP layer.
    #[inline]
    #[must_use]
    pub const fn source(&self) -> Option<Host> {
        match self.network {
            Network::V4(ip) => Some(Host::v4(ip.src)),
            Network::V6(ip) => Some(Host::v6(ip.src)),
            Network::None | Network::Unreadable | Network::Arp => None,
        }
    }

    /// The destination address as a key, if there is an IP layer.
    #[inline]
    #[must_use]
    pub const fn destination(&self) -> Option<Host> {
        match self.network {
            Network::V4(ip) => Some(Host::v4(ip.dst)),
            Network::V6(ip) => Some(Host::v6(ip.dst)),
            Network::None | Network::Unreadable | Network::Arp => None,
        }
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Up to two VLAN tags (802.1Q, 802.1ad).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vlans {
    /// How many tags the frame carries; only the first two are kept.
    pub count: u8,
    /// The twelve-bit identifiers, outermost first; 0 where there is no tag.
    pub ids: [u16; 2],
}

/// The network layer of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Certainly neither IP nor ARP: a protocol that carries no IP, such as LLDP or spanning tree. The EtherType names it.
    None,
    /// Not parsed, and may be or contain IP: an unknown EtherType, data after MPLS labels that isn't whole IP, or an unsupported link
    /// type. A security function must not treat it as harmless.
    Unreadable,
    /// Address resolution.
    Arp,
    /// IPv4.
    V4(Ipv4),
    /// IPv6.
    V6(Ipv6),
}

/// An IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Time to live.
    pub ttl: u8,
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// The identification that fragments share.
    pub id: u16,
    /// Length of header and payload in bytes. If the header says 0 (segmentation offload): the length of the frame, up to 65,535.
    pub total_len: u16,
    /// Header with options, in bytes: 20 to 60.
    pub header_len: u8,
}

/// An IPv6 header, extension headers counted in `header_len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Everything behind the fixed header, in bytes.
    pub payload_len: u16,
    /// The fixed header and all extension headers, in bytes.
    pub header_len: u16,
}

/// A packet's place among the fragments of its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// A whole datagram.
    Whole,
    /// The first of several fragments: it has the transport header.
    First,
    /// A later fragment: it has no ports.
    Later,
}

/// The transport layer of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// No transport header here, or none that is read.
    None,
    /// TCP.
    Tcp(Tcp),
    /// UDP.
    Udp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
    },
    /// ICMP or ICMPv6, as [`Headers::protocol`] says.
    Icmp(Icmp),
    /// SCTP.
    Sctp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
    },
}

/// A TCP header with the options that connection tracking needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// The flag bits.
    pub flags: TcpFlags,
    /// The window as sent, unscaled.
    pub window: u16,
    /// The options.
    pub options: TcpOptions,
}

/// The flag bits of a TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// ECN echo.
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced.
    pub const CWR: Self = Self(0x80);

    /// True if all bits of `other` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// TCP options that connection tracking needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Window scale, at most 14 (RFC 7323). Only SYN segments carry it.
    pub window_scale: Option<u8>,
    /// Maximum segment size. Only SYN segments carry it.
    pub mss: Option<u16>,
    /// True if selective acknowledgement is offered. Only SYN segments carry it.
    pub sack_permitted: bool,
    /// True if that option comes before the window scale. Operating systems differ in their order.
    pub sack_first: bool,
    /// Highest right edge of the selective acknowledgement blocks, relative to the acknowledgement number.
    pub sack_edge: Option<u32>,
}

/// An ICMP or ICMPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// The type.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// The identifier, on queries and their replies (echo, timestamp, information, address mask).
    pub identifier: Option<u16>,
    /// What an error message is about.
    pub embedded: Option<Embedded>,
}

/// The packet that an ICMP error quotes, in its original direction: its source is the host that the error is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// The quoted packet's five-tuple.
    pub tuple: FiveTuple,
    /// Where the quoted IP header begins, in bytes from the start of the frame.
    pub network_offset: u16,
    /// Where the quoted transport header begins, in bytes from the start of the frame.
    pub transport_offset: u16,
}

impl Embedded {
    /// Source and destination of the quoted packet.
    #[must_use]
    pub fn endpoints(&self) -> (Endpoint, Endpoint) {
        (self.tuple.source(), self.tuple.destination())
    }
}

/// A tunnel with this packet as its outer packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The encapsulation.
    pub kind: TunnelKind,
    /// Network identifier (VXLAN, Geneve) or key (GRE); 0 where there is none.
    pub id: u32,
    /// Link type of the inner packet.
    pub inner_link: LinkType,
    /// Offset of the inner packet in the outer frame, in bytes.
    pub inner_offset: u16,
}

/// Supported encapsulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TunnelKind {
    /// Generic routing encapsulation (RFC 2784, RFC 2890).
    Gre,
    /// VXLAN (RFC 7348), UDP port 4789.
    Vxlan,
    /// Geneve (RFC 8926), UDP port 6081.
    Geneve,
    /// IPv4 or IPv6 directly in IP (RFC 2003, RFC 4213, RFC 2473).
    Ip,
}

/// Why a packet's headers can't be trusted. A truncated capture and an inconsistent header are different kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Malformed {
    /// The frame ends inside its link header.
    LinkTruncated,
    /// The frame ends inside its IP header or an extension header.
    IpTruncated,
    /// The IP version is not 4 or 6, or not what the link header says.
    IpVersion,
    /// The IPv4 header length is under 20 bytes or more than the total length.
    IpHeaderLength,
    /// The IP length is more than the frame had on the wire.
    IpLength,
    /// The chain of IPv6 extension headers is too long.
    IpExtensions,
    /// The packet, or what was captured of it, ends inside its transport header.
    TransportTruncated,
    /// The length in the transport header is inconsistent. Invalid TCP flags (SYN with FIN or RST, or none) and TCP options that run past
    /// the header are *not* malformed.
    TransportLength,
}

impl Malformed {
    /// Every kind, in order of its number.
    pub const ALL: [Self; 8] = [
        Self::LinkTruncated,
        Self::IpTruncated,
        Self::IpVersion,
        Self::IpHeaderLength,
        Self::IpLength,
        Self::IpExtensions,
        Self::TransportTruncated,
        Self::TransportLength,
    ];

    /// The kind's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LinkTruncated => "link-truncated",
            Self::IpTruncated => "ip-truncated",
            Self::IpVersion => "ip-version",
            Self::IpHeaderLength => "ip-header-length",
            Self::IpLength => "ip-length",
            Self::IpExtensions => "ip-extensions",
            Self::TransportTruncated => "transport-truncated",
            Self::TransportLength => "transport-length",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
