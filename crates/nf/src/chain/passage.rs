//! The metadata of a chain: [`Passage`].

use core::net::{IpAddr, Ipv4Addr};

use packet::{
    Embedded, FiveTuple, Fragment, Headers, Host, Icmp, Ipv4, Ipv6, LinkType, Mac, Network, OrdinaryHeaders, Tcp,
    TcpFlags, TcpOptions, Transport, Tunnel, TunnelKind, Vlans,
};

use crate::function::Meta;
use crate::record::{RecordReader, RecordWriter, TUPLE_BYTES};

/// The metadata of a packet for a [chain](crate::Chain): all of its headers, from which each function makes its own, and the key of the
/// entry that the functions share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    pub(super) key: FiveTuple,
    /// True if the packet goes from the second end of the key to the first.
    pub(super) is_reversed: bool,
    pub(super) headers: AllHeaders,
}

/// All headers of a packet. Those of an ordinary packet take little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllHeaders {
    Ordinary(OrdinaryHeaders),
    Other(Headers),
}

impl AllHeaders {
    #[inline(always)]
    pub(super) fn of(headers: &Headers) -> Self {
        match OrdinaryHeaders::of(headers) {
            Some(ordinary) => Self::Ordinary(ordinary),
            None => Self::Other(*headers),
        }
    }

    /// All of the headers.
    #[inline]
    pub(super) fn all(&self) -> Headers {
        match self {
            Self::Ordinary(ordinary) => ordinary.look(|headers| *headers),
            Self::Other(headers) => *headers,
        }
    }

    /// Number of the input interface.
    #[inline]
    pub(super) const fn interface(&self) -> u16 {
        match self {
            Self::Ordinary(ordinary) => ordinary.interface(),
            Self::Other(headers) => headers.interface,
        }
    }
}

/// Bytes of the longest transport header: an ICMP error with the packet that it quotes.
const TRANSPORT_BYTES: usize = 5 + TUPLE_BYTES + 4;
const HEADERS_BYTES: usize = 4 + 13 + 5 + 2 + (1 + 32 + 8) + 2 + (1 + TRANSPORT_BYTES) + 9 + 14;

impl Meta for Passage {
    type Key = FiveTuple;

    const TELLS_SOURCE: bool = true;
    const RECORD_BYTES: usize = TUPLE_BYTES + 1 + HEADERS_BYTES;

    #[inline]
    fn key(&self) -> FiveTuple {
        self.key
    }

    #[inline]
    fn source(&self) -> Option<Host> {
        match &self.headers {
            AllHeaders::Ordinary(ordinary) => ordinary.look(Headers::source),
            AllHeaders::Other(headers) => headers.source(),
        }
    }

    fn write(&self, record: &mut [u8]) {
        let headers = self.headers.all();
        let Headers { link, interface, macs, vlans, ethertype, network, protocol, fragment, transport, tunnel, .. } =
            headers;
        let to =
            RecordWriter::new(record).tuple(&self.key).u8(self.is_reversed.into()).u16(link.number()).u16(interface);
        let to = match macs {
            Some((source, destination)) => to.u8(1).bytes(source.0).bytes(destination.0),
            None => to.none::<13>(),
        };
        let to = to.u8(vlans.count).u16(vlans.ids[0]).u16(vlans.ids[1]).u16(ethertype);
        let to = write_network(to, network).u8(protocol).u8(fragment as u8);
        let to = write_transport(to, transport);
        let to = match tunnel {
            Some(tunnel) => {
                let to = to.u8(1 + tunnel.kind as u8).u32(tunnel.id);
                to.u16(tunnel.inner_link.number()).u16(tunnel.inner_offset)
            }
            None => to.none::<9>(),
        };
        let Headers { network_offset, transport_offset, payload_offset, payload_len, wire_len, .. } = headers;
        to.u16(network_offset).u16(transport_offset).u16(payload_offset).u32(payload_len).u32(wire_len).end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        let mut from = RecordReader::new(record);
        let key = from.tuple()?;
        let is_reversed = match from.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let (link, interface) = (read_link(&mut from)?, from.u16()?);
        let macs = match from.u8()? {
            0 => from.none::<12>().map(|()| None)?,
            1 => Some((Mac(from.bytes()?), Mac(from.bytes()?))),
            _ => return None,
        };
        let vlans = Vlans { count: from.u8()?, ids: [from.u16()?, from.u16()?] };
        let ethertype = from.u16()?;
        let network = read_network(&mut from)?;
        let protocol = from.u8()?;
        let fragment = match from.u8()? {
            0 => Fragment::Whole,
            1 => Fragment::First,
            2 => Fragment::Later,
            _ => return None,
        };
        let transport = read_transport(&mut from)?;
        let tunnel = match from.u8()? {
            0 => from.none::<8>().map(|()| None)?,
            kind => Some(Tunnel {
                kind: [TunnelKind::Gre, TunnelKind::Vxlan, TunnelKind::Geneve, TunnelKind::Ip]
                    .get(usize::from(kind) - 1)
                    .copied()?,
                id: from.u32()?,
                inner_link: read_link(&mut from)?,
                inner_offset: from.u16()?,
            }),
        };
        let headers = Headers {
            link,
            interface,
            macs,
            vlans,
            ethertype,
            network,
            protocol,
            fragment,
            transport,
            tunnel,
            network_offset: from.u16()?,
            transport_offset: from.u16()?,
            payload_offset: from.u16()?,
            payload_len: from.u32()?,
            wire_len: from.u32()?,
        };
        from.end()?;
        Some(Self { key, is_reversed, headers: AllHeaders::of(&headers) })
    }
}

/// Reads a link type that has this number alone: some have several in captures.
fn read_link(from: &mut RecordReader<'_>) -> Option<LinkType> {
    let number = from.u16()?;
    Some(LinkType::from_number(number)).filter(|link| link.number() == number)
}

const NONE: u8 = 0;

fn write_network(to: RecordWriter<'_>, network: Network) -> RecordWriter<'_> {
    match network {
        Network::None => to.none::<41>(),
        Network::Unreadable => to.u8(1).none::<40>(),
        Network::Arp => to.u8(2).none::<40>(),
        Network::V4(ip) => {
            let to = to.u8(3).address(ip.src.into()).address(ip.dst.into()).u8(ip.ttl).u8(ip.tos);
            to.u16(ip.id).u16(ip.total_len).u16(ip.header_len.into())
        }
        Network::V6(ip) => {
            let to = to.u8(4).address(ip.src.into()).address(ip.dst.into()).u8(ip.hop_limit).u8(ip.traffic_class);
            to.u16(0).u16(ip.payload_len).u16(ip.header_len)
        }
    }
}

fn read_network(from: &mut RecordReader<'_>) -> Option<Network> {
    let kind = from.u8()?;
    if kind < 3 {
        from.none::<40>()?;
        return Some([Network::None, Network::Unreadable, Network::Arp][usize::from(kind)]);
    }
    let (src, dst) = (from.address(kind == 4)?, from.address(kind == 4)?);
    let (ttl, tos, id, len, header_len) = (from.u8()?, from.u8()?, from.u16()?, from.u16()?, from.u16()?);
    match (kind, src, dst) {
        (3, IpAddr::V4(src), IpAddr::V4(dst)) => {
            Some(Network::V4(Ipv4 { src, dst, ttl, tos, id, total_len: len, header_len: header_len.try_into().ok()? }))
        }
        (4, IpAddr::V6(src), IpAddr::V6(dst)) if id == 0 => {
            Some(Network::V6(Ipv6 { src, dst, hop_limit: ttl, traffic_class: tos, payload_len: len, header_len }))
        }
        _ => None,
    }
}

const TCP: u8 = 1;
const UDP: u8 = 2;
const ICMP: u8 = 3;
const SCTP: u8 = 4;

/// The flag bits of TCP options, and of what an ICMP message has.
const FIRST: u8 = 1;
const SECOND: u8 = 2;
const THIRD: u8 = 4;
const FOURTH: u8 = 8;
const FIFTH: u8 = 16;

const fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

fn write_transport(to: RecordWriter<'_>, transport: Transport) -> RecordWriter<'_> {
    match transport {
        Transport::None => to.u8(NONE).none::<TRANSPORT_BYTES>(),
        Transport::Tcp(tcp) => {
            let to = to.u8(TCP).u16(tcp.src_port).u16(tcp.dst_port).u32(tcp.seq).u32(tcp.ack);
            let TcpOptions { window_scale, mss, sack_permitted, sack_first, sack_edge } = tcp.options;
            let flags = flag(window_scale.is_some(), FIRST)
                | flag(mss.is_some(), SECOND)
                | flag(sack_permitted, THIRD)
                | flag(sack_first, FOURTH)
                | flag(sack_edge.is_some(), FIFTH);
            let to = to.u8(tcp.flags.0).u16(tcp.window).u8(flags).u8(window_scale.unwrap_or(0));
            to.u16(mss.unwrap_or(0)).u32(sack_edge.unwrap_or(0)).none::<{ TRANSPORT_BYTES - 23 }>()
        }
        Transport::Udp { src_port, dst_port } => {
            to.u8(UDP).u16(src_port).u16(dst_port).none::<{ TRANSPORT_BYTES - 4 }>()
        }
        Transport::Sctp { src_port, dst_port } => {
            to.u8(SCTP).u16(src_port).u16(dst_port).none::<{ TRANSPORT_BYTES - 4 }>()
        }
        Transport::Icmp(icmp) => {
            let flags = flag(icmp.identifier.is_some(), FIRST) | flag(icmp.embedded.is_some(), SECOND);
            let to = to.u8(ICMP).u8(icmp.kind).u8(icmp.code).u8(flags).u16(icmp.identifier.unwrap_or(0));
            match icmp.embedded {
                Some(quoted) => to.tuple(&quoted.tuple).u16(quoted.network_offset).u16(quoted.transport_offset),
                None => to.none::<{ TUPLE_BYTES + 4 }>(),
            }
        }
    }
}

fn read_transport(from: &mut RecordReader<'_>) -> Option<Transport> {
    /// A value that is there by its flag, or else zero.
    fn given<T: Default + PartialEq>(flags: u8, flag: u8, value: T) -> Option<Option<T>> {
        match flags & flag {
            0 => (value == T::default()).then_some(None),
            _ => Some(Some(value)),
        }
    }
    Some(match from.u8()? {
        NONE => from.none::<TRANSPORT_BYTES>().map(|()| Transport::None)?,
        TCP => {
            let (src_port, dst_port, seq, ack) = (from.u16()?, from.u16()?, from.u32()?, from.u32()?);
            let (tcp_flags, window, flags) = (TcpFlags(from.u8()?), from.u16()?, from.u8()?);
            if flags > FIRST | SECOND | THIRD | FOURTH | FIFTH {
                return None;
            }
            let options = TcpOptions {
                window_scale: given(flags, FIRST, from.u8()?)?,
                mss: given(flags, SECOND, from.u16()?)?,
                sack_permitted: flags & THIRD != 0,
                sack_first: flags & FOURTH != 0,
                sack_edge: given(flags, FIFTH, from.u32()?)?,
            };
            from.none::<{ TRANSPORT_BYTES - 23 }>()?;
            Transport::Tcp(Tcp { src_port, dst_port, seq, ack, flags: tcp_flags, window, options })
        }
        kind @ (UDP | SCTP) => {
            let (src_port, dst_port) = (from.u16()?, from.u16()?);
            from.none::<{ TRANSPORT_BYTES - 4 }>()?;
            if kind == UDP { Transport::Udp { src_port, dst_port } } else { Transport::Sctp { src_port, dst_port } }
        }
        ICMP => {
            let (kind, code, flags) = (from.u8()?, from.u8()?, from.u8()?);
            if flags > FIRST | SECOND {
                return None;
            }
            let identifier = given(flags, FIRST, from.u16()?)?;
            let embedded = match flags & SECOND {
                0 => from.none::<{ TUPLE_BYTES + 4 }>().map(|()| None)?,
                _ => {
                    Some(Embedded { tuple: from.tuple()?, network_offset: from.u16()?, transport_offset: from.u16()? })
                }
            };
            Transport::Icmp(Icmp { kind, code, identifier, embedded })
        }
        _ => return None,
    })
}

/// The key of packets that have none.
pub(super) const NO_KEY: FiveTuple = FiveTuple::v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, 0, 0, 0);
