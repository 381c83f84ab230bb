//! What the tests of a rule see of a packet, as it is at this point of its way.

use packet::{Fragment, Nanos};

/// The number of an interface among those of the router, in [`View::input`] and [`View::output`].
pub type InterfaceNumber = u8;

/// Stands for no interface.
pub const NO_INTERFACE: InterfaceNumber = 63;

/// A packet at one point of its way. An address of IPv4 is in the low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Source address.
    pub src: u128,
    /// Destination address.
    pub dst: u128,
    /// The sum of all bits of [`ByteTests`](super::bytes::ByteTests) that hold.
    pub bytes: u64,
    /// Time of the packet.
    pub time: Nanos,
    /// The packet's mark.
    pub mark: u32,
    /// Source port of TCP, UDP, SCTP and DCCP; else 0.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes from the IP header on.
    pub len: u16,
    /// Maximum segment size of a SYN that has the option; else 0.
    pub mss: u16,
    /// True for IPv6.
    pub is_v6: bool,
    /// The transport protocol.
    pub protocol: u8,
    /// Flags of TCP; else 0.
    pub tcp_flags: u8,
    /// ICMP type; else 0.
    pub icmp_kind: u8,
    /// ICMP code.
    pub icmp_code: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Place among the fragments. Later fragments have no transport header: its fields are 0, and no test of them holds.
    pub fragment: Fragment,
    /// True if the transport header was read: ports, flags, ICMP type and code.
    pub has_transport: bool,
    /// The interface that it came in by.
    pub input: InterfaceNumber,
    /// The interface that it leaves by.
    pub output: InterfaceNumber,
}
