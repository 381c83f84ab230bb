//! Addresses, ports and protocol as numbers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nf::{RecordReader, RecordWriter};
use packet::{Endpoint, FiveTuple, protocol};

/// Addresses, ports and protocol of a packet in one direction. An address of IPv4 is in the low 32 bits. ICMP queries have their
/// identifier as source port. As destination port they have the identifier too; in tables of connections, whose tuples tell kinds of
/// queries apart, twice the kind's number, plus one for a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tuple {
    pub(super) src: u128,
    pub(super) dst: u128,
    /// Source port first.
    pub(super) ports: [u16; 2],
    pub(super) protocol: u8,
}

impl Tuple {
    pub(super) const RECORD_BYTES: usize = 16 + 16 + 5;

    #[inline(always)]
    pub(super) fn of(tuple: &FiveTuple) -> Self {
        let (source, destination) = (tuple.source(), tuple.destination());
        Self {
            src: bits(source.address),
            dst: bits(destination.address),
            ports: [source.port, destination.port],
            protocol: tuple.protocol(),
        }
    }

    #[inline(always)]
    pub(super) const fn five_tuple(&self, is_v6: bool) -> FiveTuple {
        let [src, dst] = self.ports;
        match is_v6 {
            false => {
                let (from, to) = (Ipv4Addr::from_bits(self.src as u32), Ipv4Addr::from_bits(self.dst as u32));
                FiveTuple::v4(from, to, src, dst, self.protocol)
            }
            true => {
                let (from, to) = (Ipv6Addr::from_bits(self.src), Ipv6Addr::from_bits(self.dst));
                FiveTuple::v6(from, to, src, dst, self.protocol)
            }
        }
    }

    /// The tuple of packets in the other direction.
    #[inline(always)]
    pub(super) const fn reversed(&self) -> Self {
        let Self { src, dst, ports: [from, to], protocol } = *self;
        let ports = if self.is_icmp() { [from, to ^ 1] } else { [to, from] };
        Self { src: dst, dst: src, ports, protocol }
    }

    /// True for ICMP and ICMPv6.
    #[inline(always)]
    pub(super) const fn is_icmp(&self) -> bool {
        matches!(self.protocol, protocol::ICMP | protocol::ICMPV6)
    }

    /// The source as an endpoint.
    pub(super) fn source(&self, is_v6: bool) -> Endpoint {
        Endpoint::new(address(self.src, is_v6), self.ports[0])
    }

    /// The destination as an endpoint.
    pub(super) fn destination(&self, is_v6: bool) -> Endpoint {
        Endpoint::new(address(self.dst, is_v6), self.ports[usize::from(!self.is_icmp())])
    }

    pub(super) fn write<'a>(&self, fields: RecordWriter<'a>) -> RecordWriter<'a> {
        let Self { src, dst, ports: [from, to], protocol } = *self;
        fields.bytes(src.to_be_bytes()).bytes(dst.to_be_bytes()).u16(from).u16(to).u8(protocol)
    }

    pub(super) fn read(fields: &mut RecordReader<'_>) -> Option<Self> {
        Some(Self {
            src: u128::from_be_bytes(fields.bytes()?),
            dst: u128::from_be_bytes(fields.bytes()?),
            ports: [fields.u16()?, fields.u16()?],
            protocol: fields.u8()?,
        })
    }
}

/// An address as a number; IPv4 in the low 32 bits.
#[inline(always)]
pub(super) const fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits() as u128,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// An address from its number.
#[inline(always)]
pub(super) const fn address(bits: u128, is_v6: bool) -> IpAddr {
    match is_v6 {
        true => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        false => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
    }
}

packet::words! {
    Tuple: [5], tuple => {
        let Self { src, dst, ports: [from, to], protocol } = tuple;
        let rest = u64::from(from) << 32 | u64::from(to) << 16 | u64::from(protocol);
        [(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64, rest]
    }, words => {
        let [a, b, c, d, rest] = words;
        let address = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let ports = [(rest >> 32) as u16, (rest >> 16) as u16];
        Self { src: address(a, b), dst: address(c, d), ports, protocol: rest as u8 }
    };
}
