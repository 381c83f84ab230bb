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

/// What others are called that are met often, by tcpdump's registry.
const UNREAD: &[(u16, &str)] = &[
    (6, "Token Ring"),
    (8, "SLIP"),
    (9, "PPP"),
    (10, "FDDI"),
    (50, "PPP in HDLC"),
    (51, "PPPoE"),
    (104, "Cisco HDLC"),
    (105, "IEEE 802.11"),
    (107, "Frame Relay"),
    (117, "OpenBSD pflog"),
    (119, "IEEE 802.11 with Prism header"),
    (127, "IEEE 802.11 with radiotap header"),
    (143, "DOCSIS"),
    (163, "IEEE 802.11 with AVS header"),
    (187, "Bluetooth HCI"),
    (189, "USB of Linux"),
    (192, "PPI"),
    (195, "IEEE 802.15.4"),
    (201, "Bluetooth HCI with direction"),
    (220, "USB of Linux, mapped"),
    (227, "CAN"),
    (230, "IEEE 802.15.4 without checksum"),
    (239, "NFLOG"),
    (247, "InfiniBand"),
    (249, "USBPcap"),
    (251, "Bluetooth LE"),
    (253, "Netlink"),
];

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
            Self::Other(number) => match UNREAD.iter().find(|(known, _)| known == number) {
                Some((_, name)) => write!(f, "{name} (link type {number})"),
                None => write!(f, "link type {number}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn what_is_not_read_has_a_name_too() {
        assert_eq!(LinkType::from_number(127).to_string(), "IEEE 802.11 with radiotap header (link type 127)");
        assert_eq!(LinkType::from_number(147).to_string(), "link type 147");
        for (number, _) in UNREAD {
            assert_eq!(LinkType::from_number(*number), LinkType::Other(*number), "it is not read");
        }
        assert!(UNREAD.is_sorted_by(|(one, _), (next, _)| one < next), "each once");
    }
}
