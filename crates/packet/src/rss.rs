//! Reads the header fields that receive-side scaling hashes, without parsing the rest.

use crate::headers::protocol;
use crate::link::LinkType;
use crate::parse::{FRAGMENT_BITS, IPV4, IPV6, array, be16, be32};

/// The fields of a packet that a card hashes, each folded into one word in network byte order: of an IPv6 address the exclusive or of
/// its four words, which is all that the [symmetric hash](crate::toeplitz::SymmetricToeplitz) depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RssFields {
    /// The source address.
    pub src: [u8; 4],
    /// The destination address.
    pub dst: [u8; 4],
    /// Source port, destination port.
    pub ports: [u8; 4],
}

impl RssFields {
    /// Reads the fields of an Ethernet frame with TCP or UDP over IPv4 without options or IPv6 without extension headers, whole and
    /// untagged. `None` for all else, which has to be parsed. Nothing else of the packet is checked: it may turn out malformed.
    #[inline(always)]
    #[must_use]
    pub fn read(link: LinkType, bytes: &[u8]) -> Option<Self> {
        if link != LinkType::Ethernet {
            return None;
        }
        let head: &[u8; V4_HEAD] = bytes.first_chunk()?;
        // EtherType, version and header length; the type of service doesn't count.
        if be32(head, 12) & !0xff != V4_START || be16(head, 20) & FRAGMENT_BITS != 0 {
            return Self::read_v6(bytes);
        }
        has_ports(head[23]).then_some(Self { src: word(head, 26), dst: word(head, 30), ports: word(head, 34) })
    }

    #[inline(never)]
    fn read_v6(bytes: &[u8]) -> Option<Self> {
        let head: &[u8; V6_HEAD] = bytes.first_chunk()?;
        if be16(head, 12) != IPV6 || head[14] >> 4 != 6 || !has_ports(head[20]) {
            return None;
        }
        let address = |at| {
            let words = array::<16>(bytes, at)?.as_chunks::<4>().0;
            Some(words.iter().fold([0; 4], |folded, word| xor(folded, *word)))
        };
        Some(Self { src: address(22)?, dst: address(38)?, ports: *array(bytes, 54)? })
    }

    /// The fields of which the `mask` has all bits.
    #[inline(always)]
    #[must_use]
    pub const fn masked(self, mask: Self) -> Self {
        Self { src: and(self.src, mask.src), dst: and(self.dst, mask.dst), ports: and(self.ports, mask.ports) }
    }

    /// The exclusive or of all: what the [symmetric hash](crate::toeplitz::SymmetricToeplitz::hash) takes.
    #[inline(always)]
    #[must_use]
    pub const fn folded(self) -> u32 {
        u32::from_be_bytes(xor(xor(self.src, self.dst), self.ports))
    }
}

/// Link header, IP header and ports.
const V4_HEAD: usize = 14 + 20 + 4;
const V6_HEAD: usize = 14 + 40 + 4;

/// How IPv4 without options begins behind the Ethernet addresses.
const V4_START: u32 = (IPV4 as u32) << 16 | 0x4500;

#[inline(always)]
const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP)
}

#[inline(always)]
const fn word<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

#[inline(always)]
const fn xor(a: [u8; 4], b: [u8; 4]) -> [u8; 4] {
    (u32::from_ne_bytes(a) ^ u32::from_ne_bytes(b)).to_ne_bytes()
}

#[inline(always)]
const fn and(a: [u8; 4], b: [u8; 4]) -> [u8; 4] {
    (u32::from_ne_bytes(a) & u32::from_ne_bytes(b)).to_ne_bytes()
}
