//! Tests of bytes that a [`View`](super::view::View) hasn't: each is evaluated once for a packet, as it came in.
//!
//! A captured frame may end before the packet did. Where a test needs a byte that was not captured, it does not hold. The kernel drops
//! some packets whose headers are cut off or wrong; here the test does not hold.

mod extensions;
mod search;
mod transport;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use iptables::matches::{Ah, Dccp, Frag, HeaderOptions, Ipv6Header, MacAddress, PacketType, Rt, SctpChunks, U32Test};
use iptables::{Condition, Interval};
use packet::{Fragment, Headers, Mac, Network};

use super::sets::mac_number;

pub use search::Text;

/// The tests of bytes of a rule set, at most 64.
#[derive(Clone, Debug, Default)]
pub struct ByteTests {
    tests: Vec<ByteTest>,
}

/// A test of bytes. Negation is a part of it where the kernel lets a test fail with and without `!`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByteTest {
    /// `mac`: the source address of the Ethernet header.
    Mac(Condition<MacAddress>),
    /// `pkttype`. Of frames without an Ethernet header all are unicast.
    PacketType(Condition<PacketType>),
    /// `set`: an Ethernet address is one of these, sorted.
    MacSet {
        /// The addresses as numbers.
        macs: Box<[u64]>,
        /// True for the source, false for the destination.
        is_source: bool,
    },
    /// `tcp --tcp-option`.
    TcpOption(Condition<u8>),
    /// `esp`.
    Esp(Option<Condition<Interval<u32>>>),
    /// `ah` of IPv4.
    Ah4(Option<Condition<Interval<u32>>>),
    /// `ah` of IPv6.
    Ah6(Ah),
    /// `ipcomp`. The kernel does not compare reserved bits.
    IpComp(Option<Condition<Interval<u32>>>),
    /// `sctp --chunk-types`.
    Chunks(Condition<SctpChunks>),
    /// `dccp`.
    Dccp(Dccp),
    /// `frag`. The kernel does not compare its length.
    Frag(Frag),
    /// `hbh`.
    HopByHop(HeaderOptions),
    /// `dst`.
    Destination(HeaderOptions),
    /// `rt`.
    Rt(Rt),
    /// `mh`.
    Mobility(Option<Condition<Interval<u8>>>),
    /// `ipv6header`.
    Extensions(Ipv6Header),
    /// `eui64`.
    Eui64,
    /// `u32`.
    Words(Vec<U32Test>),
    /// `string`.
    Text(Text),
}

const TESTS_MAX: usize = 64;

impl ByteTests {
    /// The number of a test. Equal tests have one number.
    ///
    /// # Errors
    /// There are 64 others.
    pub fn number_of(&mut self, test: ByteTest) -> Result<u8, String> {
        let at = self.tests.iter().position(|known| *known == test);
        match at {
            Some(at) => Ok(at as u8),
            None if self.tests.len() == TESTS_MAX => {
                Err(format!("the rules have more than {TESTS_MAX} different tests of bytes in packets"))
            }
            None => {
                self.tests.push(test);
                Ok(self.tests.len() as u8 - 1)
            }
        }
    }

    /// True if the rules have no such test.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tests.is_empty()
    }

    /// A bit for each test that holds. `frame` is the frame that `headers` were parsed from. Frames without IP have none.
    #[inline]
    #[must_use]
    pub fn evaluate(&self, headers: &Headers, frame: &[u8]) -> u64 {
        if self.tests.is_empty() { 0 } else { self.evaluate_all(headers, frame) }
    }

    #[inline(never)]
    fn evaluate_all(&self, headers: &Headers, frame: &[u8]) -> u64 {
        let Some(packet) = Packet::of(headers, frame) else { return 0 };
        let bits = self.tests.iter().enumerate().map(|(nth, test)| u64::from(test.holds(&packet)) << nth);
        bits.fold(0, |all, bit| all | bit)
    }
}

/// A packet from its IP header on.
struct Packet<'a> {
    headers: &'a Headers,
    /// The captured bytes of the packet.
    bytes: &'a [u8],
    /// Its length on the wire.
    len: usize,
    is_v6: bool,
}

impl<'a> Packet<'a> {
    fn of(headers: &'a Headers, frame: &'a [u8]) -> Option<Self> {
        let (len, is_v6) = match headers.network {
            Network::V4(ip) => (usize::from(ip.total_len), false),
            Network::V6(ip) => (40 + usize::from(ip.payload_len), true),
            Network::None | Network::Unreadable | Network::Arp => return None,
        };
        let bytes = frame.get(usize::from(headers.network_offset)..)?;
        Some(Self { headers, bytes: &bytes[..bytes.len().min(len)], len, is_v6 })
    }

    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..)?.first_chunk().copied()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// Where the header of this protocol begins, if the packet has one and is no later fragment.
    fn transport(&self, protocol: u8) -> Option<usize> {
        let begins = self.headers.transport_offset.checked_sub(self.headers.network_offset)?;
        let has_it = self.headers.protocol == protocol && self.headers.fragment != Fragment::Later;
        has_it.then_some(begins.into())
    }
}

impl ByteTest {
    fn holds(&self, packet: &Packet<'_>) -> bool {
        let macs = packet.headers.macs;
        match self {
            Self::Mac(mac) => macs.is_some_and(|(src, _)| mac.holds(src.0 == mac.value.0)),
            Self::PacketType(kind) => kind.holds(kind.value == packet_type(macs)),
            Self::MacSet { macs: set, is_source } => macs.is_some_and(|(src, dst)| {
                let mac = mac_number(if *is_source { src } else { dst }.0);
                mac != 0 && set.binary_search(&mac).is_ok()
            }),
            Self::TcpOption(option) => transport::tcp_option(packet, *option),
            Self::Esp(spi) => transport::esp(packet, *spi),
            Self::Ah4(spi) => transport::ah(packet, *spi),
            Self::Ah6(ah) => extensions::ah(packet, ah),
            Self::IpComp(cpi) => transport::ipcomp(packet, *cpi),
            Self::Chunks(chunks) => transport::chunks(packet, chunks),
            Self::Dccp(dccp) => transport::dccp(packet, dccp),
            Self::Frag(frag) => extensions::frag(packet, frag),
            Self::HopByHop(options) => extensions::options(packet, extensions::HOP_BY_HOP, options),
            Self::Destination(options) => extensions::options(packet, extensions::DESTINATION, options),
            Self::Rt(rt) => extensions::routing(packet, rt),
            Self::Mobility(kind) => transport::mobility(packet, *kind),
            Self::Extensions(headers) => extensions::headers(packet, headers),
            Self::Eui64 => macs.is_some_and(|(src, _)| has_interface_identifier(packet, src)),
            Self::Words(tests) => search::words(packet, tests),
            Self::Text(text) => text.is_in(packet.bytes),
        }
    }
}

/// Which packets the frame's destination address is for. The router takes no frames for other hosts.
fn packet_type(macs: Option<(Mac, Mac)>) -> PacketType {
    match macs {
        Some((_, Mac([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]))) => PacketType::Broadcast,
        Some((_, Mac([first, ..]))) if first & 1 != 0 => PacketType::Multicast,
        Some(_) | None => PacketType::Unicast,
    }
}

/// net/ipv6/netfilter/ip6t_eui64.c: the last 64 bits of the source are made from its Ethernet address.
fn has_interface_identifier(packet: &Packet<'_>, Mac([a, b, c, d, e, f]): Mac) -> bool {
    packet.is_v6 && packet.array(16) == Some([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The range, or all values if there is none.
fn holds<T: PartialOrd>(condition: Option<Condition<Interval<T>>>, value: T) -> bool {
    condition.is_none_or(|condition| condition.holds(condition.value.contains(&value)))
}

#[cfg(test)]
mod tests;
