//! Matches: what `-m NAME` and its options test.

mod header;
mod icmp;
mod ipv6;
mod place;
mod ports;
mod rates;
mod text;
mod time;
mod tracking;
mod u32;

use crate::extension::extensions;

pub use header::{
    Ah, Dscp, Ecn, Esp, Hl, IpComp, IpRange, Length, MacAddress, MacSource, PacketType, PktType, TcpMss, Tos, TosTest,
    Ttl, TtlTest,
};
pub use icmp::{Icmp, Icmp6, IcmpType};
pub use ipv6::{Dst, Eui64, ExtensionHeaders, Frag, FragPlace, Hbh, HeaderOptions, Ipv6Header, Mh, Rt};
pub(crate) use place::set_name;
pub use place::{AddrType, AddressTypes, Comment, LimitInterface, MarkTest, Physdev, RpFilter, SetTest, Sides};
pub use ports::{ChunkScope, Dccp, Multiport, MultiportSide, Sctp, SctpChunk, SctpChunks, Tcp, TcpFlagsTest, Udp};
pub use rates::{
    HashLimit, HashLimitKey, HashLimitRate, Limit, Quota, Rate, Recent, RecentAction, RecentSide, Statistic,
    StatisticMode,
};
pub use text::{SearchAlgorithm, StringMatch};
pub use time::Time;
pub use tracking::{
    ConnBytes, ConnBytesMode, ConnLimit, ConnMark, Conntrack, Direction, DirectionOrBoth, Helper, States, Status,
};
pub use u32::{U32, U32Operation, U32Test};

extensions! {
    /// A match of a rule.
    Match, MATCHES:
    /// Ports, flags and options of TCP.
    Tcp,
    /// Ports of UDP.
    Udp,
    /// Ports and chunks of SCTP.
    Sctp,
    /// Ports, types and options of DCCP.
    Dccp,
    /// Lists of ports.
    Multiport,
    /// ICMP type and code.
    Icmp,
    /// ICMPv6 type and code.
    Icmp6,
    /// Security parameter index of an authentication header.
    Ah,
    /// Security parameter index of an encapsulating security payload.
    Esp,
    /// Compression parameter index.
    IpComp,
    /// Time to live of IPv4.
    Ttl,
    /// Hop limit of IPv6.
    Hl,
    /// Length of the packet from its IP header on.
    Length,
    /// Differentiated services code point.
    Dscp,
    /// Type of service.
    Tos,
    /// Explicit congestion notification.
    Ecn,
    /// Maximum segment size in a SYN.
    TcpMss,
    /// Words of the packet.
    U32,
    /// Ranges of addresses.
    IpRange,
    /// Source address of the Ethernet header.
    MacSource,
    /// Unicast, broadcast or multicast, by the Ethernet header.
    PktType,
    /// Ports of a bridge.
    Physdev,
    /// Fragment header of IPv6.
    Frag,
    /// Hop-by-hop options of IPv6.
    Hbh,
    /// Destination options of IPv6.
    Dst,
    /// Routing header of IPv6.
    Rt,
    /// Mobility header of IPv6.
    Mh,
    /// The extension headers of a packet.
    Ipv6Header,
    /// An interface identifier made from the Ethernet address.
    Eui64,
    /// State, status and addresses of the tracked flow; `-m state` too.
    Conntrack,
    /// The mark of the tracked flow.
    ConnMark,
    /// Packets or bytes of the tracked flow.
    ConnBytes,
    /// Number of flows of a host or a network.
    ConnLimit,
    /// The helper of the tracked flow.
    Helper,
    /// A token bucket of the rule.
    Limit,
    /// Token buckets for each address or port.
    HashLimit,
    /// Addresses seen recently.
    Recent,
    /// Every so many packets, or a share of them.
    Statistic,
    /// A number of bytes, after which the rule no longer matches.
    Quota,
    /// Time of day, days and dates.
    Time,
    /// Bytes in the packet.
    StringMatch,
    /// A named set of addresses.
    SetTest,
    /// A comment, which always matches.
    Comment,
    /// Kinds of addresses: local, broadcast and so on.
    AddrType,
    /// The mark of the packet.
    MarkTest,
    /// True if the source is reached by the interface that the packet came in by.
    RpFilter,
}
