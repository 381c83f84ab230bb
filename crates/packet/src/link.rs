//! Link types, by the numbers that capture files carry.

use core::fmt;

/// How the first bytes of a frame are to be read (tcpdump's registry of link-layer header types).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LinkType {
    /// BSD loopback: four bytes of address family, in the byte order of the machine that captured.
    Null,
    /// Ethernet II, or IEEE 802.3.
    Ethernet,
    /// A bare IP packet; its version nibble says which.
    RawIp,
    /// OpenBSD loopback: as `Null`, in network byte order.
    Loop,
    /// Linux cooked capture.
    LinuxSll,
    /// Linux cooked capture, version 2.
    LinuxSll2,
    /// A bare IPv4 packet.
    Ipv4,
    /// A bare IPv6 packet.
    Ipv6,
    /// Any other link type: frames pass through unread and are counted as such.
    Other(u16),
}

impl LinkType {
    /// The link type with this number in a capture file.
    #[must_use]
    pub const fn from_number(number: u16) -> Self {
        match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            // 101 is the registry's number; 12 and 14 are the raw-IP DLT values that some writers leave in files.
            12 | 14 | 101 => Self::RawIp,
            108 => Self::Loop,
            113 => Self::LinuxSll,
            228 => Self::Ipv4,
            229 => Self::Ipv6,
            276 => Self::LinuxSll2,
            other => Self::Other(other),
        }
    }

    /// The number of this link type in a capture file.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Null => 0,
            Self::Ethernet => 1,
            Self::RawIp => 101,
            Self::Loop => 108,
            Self::LinuxSll => 113,
            Self::LinuxSll2 => 276,
            Self::Ipv4 => 228,
            Self::Ipv6 => 229,
            Self::Other(number) => number,
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null/loopback"),
            Self::Ethernet => f.write_str("Ethernet"),
            Self::RawIp => f.write_str("raw IP"),
            Self::Loop => f.write_str("OpenBSD loopback"),
            Self::LinuxSll => f.write_str("Linux cooked v1"),
            Self::LinuxSll2 => f.write_str("Linux cooked v2"),
            Self::Ipv4 => f.write_str("raw IPv4"),
            Self::Ipv6 => f.write_str("raw IPv6"),
            Self::Other(number) => write!(f, "link type {number}"),
        }
    }
}
