//! The metadata of a packet: the header fields that rules test, and what the packet does to its connection.

use core::net::{Ipv4Addr, Ipv6Addr};

use nf::{Meta, RecordReader, RecordWriter};
use packet::{FiveTuple, Fragment, Headers, Host, Nanos, Network, Transport};

use super::tuple::Tuple;
use super::view::{NO_INTERFACE, View};
use crate::tracking::{Event, Observation, QUERY_KINDS, Unobserved};

/// The metadata of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesMeta {
    /// The packet's own addresses, ports and protocol. ICMP queries have their identifier in place of both ports.
    pub(super) tuple: Tuple,
    pub(super) role: Role,
    /// What [`ByteTests`](super::bytes::ByteTests) found.
    pub(super) bytes: u64,
    pub(super) len: u16,
    pub(super) mss: u16,
    /// The number of the input port.
    pub(super) port: u16,
    pub(super) ttl: u8,
    pub(super) tos: u8,
    pub(super) tcp_flags: u8,
    pub(super) icmp: [u8; 2],
    pub(super) marks: Marks,
}

/// What a packet is to the connection tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A packet that can belong to a connection.
    Event(Event),
    /// An ICMP error about a packet from the error's destination to this host.
    Error {
        /// The address that the quoted packet was for.
        to: [u64; 2],
        /// Its ports, source first.
        ports: [u16; 2],
        protocol: u8,
    },
    /// A packet that belongs to no connection, and can't begin one.
    Invalid,
    /// The tracker leaves it alone: neighbour discovery and the like, and all packets if nothing is tracked.
    Untracked,
}

/// Facts about a packet, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(u8);

impl Marks {
    pub(super) const V6: u8 = 1;
    pub(super) const TRANSPORT: u8 = 2;
    pub(super) const FIRST_FRAGMENT: u8 = 4;
    pub(super) const LATER_FRAGMENT: u8 = 8;
    /// The key of the packet set is the two addresses alone.
    pub(super) const BY_HOSTS: u8 = 16;
    /// A checksum is wrong.
    pub(super) const GARBLED: u8 = 32;
    const ALL: u8 = 63;

    pub(super) const fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

impl RulesMeta {
    /// The metadata of an IP packet; `None` for others. `tracks` says whether the tracker sees it, `bytes` what tests of its bytes found,
    /// `is_intact` whether its checksums are right.
    #[inline(always)]
    pub(super) fn of(headers: &Headers, tracks: bool, is_intact: bool, bytes: u64) -> Option<Self> {
        let (ports, mss, tcp_flags, icmp) = match &headers.transport {
            Transport::Tcp(tcp) => ([tcp.src_port, tcp.dst_port], tcp.options.mss.unwrap_or(0), tcp.flags.0, [0; 2]),
            Transport::Udp { src_port, dst_port } | Transport::Sctp { src_port, dst_port } => {
                ([*src_port, *dst_port], 0, 0, [0; 2])
            }
            Transport::Icmp(icmp) => ([icmp.identifier.unwrap_or(0); 2], 0, 0, [icmp.kind, icmp.code]),
            Transport::None => ([0; 2], 0, 0, [0; 2]),
        };
        let (src, dst, ttl, tos, len, mut marks) = match &headers.network {
            Network::V4(ip) => (ip.src.to_bits().into(), ip.dst.to_bits().into(), ip.ttl, ip.tos, ip.total_len, 0),
            Network::V6(ip) => {
                let len = ip.payload_len.saturating_add(40);
                (ip.src.to_bits(), ip.dst.to_bits(), ip.hop_limit, ip.traffic_class, len, Marks::V6)
            }
            Network::None | Network::Unreadable | Network::Arp => return None,
        };
        if !matches!(headers.transport, Transport::None) {
            marks |= Marks::TRANSPORT;
        }
        marks |= match headers.fragment {
            Fragment::Whole => 0,
            Fragment::First => Marks::FIRST_FRAGMENT,
            Fragment::Later => Marks::LATER_FRAGMENT,
        };
        if !is_intact {
            marks |= Marks::GARBLED;
        }
        let role = match () {
            () if !tracks => {
                marks |= Marks::BY_HOSTS;
                Role::Untracked
            }
            () if !is_intact => Role::Invalid,
            () => Role::of(headers),
        };
        let tuple = Tuple { src, dst, ports, protocol: headers.protocol };
        let (port, marks) = (headers.interface, Marks(marks));
        Some(Self { tuple, role, bytes, len, mss, port, ttl, tos, tcp_flags, icmp, marks })
    }

    /// What rules see of the packet when it comes in.
    #[inline(always)]
    pub(super) fn view(&self, input: u8, now: Nanos) -> View {
        let Self {
            tuple: Tuple { src, dst, ports, protocol }, bytes, len, mss, ttl, tos, tcp_flags, icmp, marks, ..
        } = *self;
        let has_ports = icmp == [0; 2] && protocol != packet::protocol::ICMP && protocol != packet::protocol::ICMPV6;
        let [src_port, dst_port] = if has_ports { ports } else { [0; 2] };
        View {
            src,
            dst,
            bytes,
            time: now,
            mark: 0,
            src_port,
            dst_port,
            len,
            mss,
            is_v6: marks.has(Marks::V6),
            protocol,
            tcp_flags,
            icmp_kind: icmp[0],
            icmp_code: icmp[1],
            ttl,
            tos,
            fragment: match marks {
                marks if marks.has(Marks::LATER_FRAGMENT) => Fragment::Later,
                marks if marks.has(Marks::FIRST_FRAGMENT) => Fragment::First,
                _ => Fragment::Whole,
            },
            has_transport: marks.has(Marks::TRANSPORT),
            input,
            output: NO_INTERFACE,
        }
    }

    /// The observation of the tracker: what the packet does, and whether the first end of the symmetric tuple sent it; for an error, the
    /// packet that it quotes. `None` for packets without a connection.
    #[inline(always)]
    pub(super) fn observation(&self) -> Option<Observation> {
        let event = match self.role {
            Role::Event(event) => event,
            Role::Error { .. } => Event::Error,
            Role::Invalid | Role::Untracked => return None,
        };
        let (key, from_first) = self.connection_tuple().five_tuple(self.is_v6()).symmetric();
        // Of a host's queries to itself the replies count as the other end's.
        let from_first = from_first && !(matches!(event, Event::Reply(_)) && key == key.reversed());
        Some(Observation { key, event: event.sent_by(from_first), from_first, interface: self.port })
    }

    /// The tuple of the connection's packet: the packet's own, or that of the packet that an error quotes.
    #[inline(always)]
    pub(super) fn connection_tuple(&self) -> Tuple {
        match self.role {
            Role::Error { to: [high, low], ports, protocol } => {
                Tuple { src: self.tuple.dst, dst: u128::from(high) << 64 | u128::from(low), ports, protocol }
            }
            Role::Event(_) | Role::Invalid | Role::Untracked => self.tuple,
        }
    }

    /// True for a whole packet of TCP, UDP or SCTP that the router can forward, so that nothing but the rules decides about it.
    #[inline(always)]
    pub(super) const fn takes_shortcuts(&self) -> bool {
        let all = self.marks.0 & (Marks::TRANSPORT | Marks::FIRST_FRAGMENT | Marks::LATER_FRAGMENT | Marks::GARBLED);
        all == Marks::TRANSPORT && !self.tuple.is_icmp() && self.ttl > 1
    }

    /// True if a checksum is wrong.
    pub(super) const fn is_garbled(&self) -> bool {
        self.marks.has(Marks::GARBLED)
    }

    /// The tuple by which a packet's connection is found in a table of connections, and its answers in turn. An error is looked up by the
    /// answer to the packet that it quotes, which goes the error's way; it doesn't tell the kind of a query that it quotes.
    pub(super) fn table_tuples(&self) -> impl Iterator<Item = Tuple> {
        let tuple = self.connection_tuple();
        let of_kind = move |kind: u16| Tuple { ports: [tuple.ports[0], kind], ..tuple };
        let (kinds, is_error) = match self.role {
            Role::Event(Event::Query(kind)) => (2 * u16::from(kind)..2 * u16::from(kind) + 1, false),
            Role::Event(Event::Reply(kind)) => (2 * u16::from(kind) + 1..2 * u16::from(kind) + 2, false),
            Role::Error { .. } if tuple.is_icmp() => (0..2 * u16::from(QUERY_KINDS), true),
            Role::Error { .. } => (0..1, true),
            Role::Event(_) | Role::Invalid | Role::Untracked => (0..1, false),
        };
        kinds.map(move |kind| match (tuple.is_icmp(), is_error) {
            (true, false) => of_kind(kind),
            (true, true) => of_kind(kind).reversed(),
            (false, false) => tuple,
            (false, true) => tuple.reversed(),
        })
    }

    #[inline(always)]
    pub(super) const fn is_v6(&self) -> bool {
        self.marks.has(Marks::V6)
    }
}

impl Role {
    #[inline(always)]
    fn of(headers: &Headers) -> Self {
        match Observation::of(headers) {
            Some(Observation { event: Event::Error, key, from_first, .. }) => {
                let quoted = if from_first { key } else { key.reversed() };
                let Tuple { dst, ports, protocol, .. } = Tuple::of(&quoted);
                Self::Error { to: [(dst >> 64) as u64, dst as u64], ports, protocol }
            }
            // Who sent it follows from the tuple.
            Some(Observation { event, .. }) => Self::Event(event.sent_by(false)),
            None => match Unobserved::of(headers) {
                Unobserved::Untracked => Self::Untracked,
                Unobserved::NotIp | Unobserved::Unreadable | Unobserved::Fragment | Unobserved::Invalid(_) => {
                    Self::Invalid
                }
            },
        }
    }
}

impl Meta for RulesMeta {
    type Key = FiveTuple;

    const TELLS_SOURCE: bool = true;

    const RECORD_BYTES: usize = Tuple::RECORD_BYTES + 8 + 3 * 2 + 6 + 1 + ROLE_BYTES;

    #[inline]
    fn key(&self) -> FiveTuple {
        if self.marks.has(Marks::BY_HOSTS) {
            let Tuple { src, dst, .. } = self.tuple;
            return Tuple { src, dst, ports: [0; 2], protocol: 0 }.five_tuple(self.is_v6());
        }
        self.connection_tuple().five_tuple(self.is_v6()).symmetric().0
    }

    fn source(&self) -> Option<Host> {
        Some(match self.is_v6() {
            true => Host::v6(Ipv6Addr::from_bits(self.tuple.src)),
            false => Host::v4(Ipv4Addr::from_bits(self.tuple.src as u32)),
        })
    }

    fn write(&self, record: &mut [u8]) {
        let Self { tuple, role, bytes, len, mss, port, ttl, tos, tcp_flags, icmp, marks } = self;
        let mut fields = tuple.write(RecordWriter::new(record)).u64(*bytes).u16(*len).u16(*mss).u16(*port);
        fields = fields.u8(*ttl).u8(*tos).u8(*tcp_flags).bytes(*icmp).u8(marks.0);
        match role {
            Role::Event(event) => {
                event.write(fields.u8(event.number())).none::<{ ROLE_BYTES - 1 - Event::RECORD_BYTES }>()
            }
            Role::Error { to: [high, low], ports: [src, dst], protocol } => {
                let fields = fields.u8(ERROR).u64(*high).u64(*low).u16(*src).u16(*dst).u8(*protocol);
                fields.none::<{ ROLE_BYTES - 22 }>()
            }
            Role::Invalid => fields.u8(INVALID).none::<{ ROLE_BYTES - 1 }>(),
            Role::Untracked => fields.u8(UNTRACKED).none::<{ ROLE_BYTES - 1 }>(),
        }
        .u8(0)
        .end();
    }

    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let tuple = Tuple::read(&mut fields)?;
        let (bytes, len, mss, port) = (fields.u64()?, fields.u16()?, fields.u16()?, fields.u16()?);
        let (ttl, tos, tcp_flags, icmp) = (fields.u8()?, fields.u8()?, fields.u8()?, fields.bytes()?);
        let marks = fields.u8().filter(|marks| marks & !Marks::ALL == 0).map(Marks)?;
        let is_v6 = marks.has(Marks::V6);
        if !is_v6 && (tuple.src.max(tuple.dst) > u128::from(u32::MAX)) {
            return None;
        }
        let role = match fields.u8()? {
            ERROR => {
                let (to, ports) = ([fields.u64()?, fields.u64()?], [fields.u16()?, fields.u16()?]);
                if !is_v6 && (to[0] != 0 || to[1] > u64::from(u32::MAX)) {
                    return None;
                }
                let protocol = fields.u8()?;
                fields.none::<{ ROLE_BYTES - 22 }>()?;
                Role::Error { to, ports, protocol }
            }
            INVALID => fields.none::<{ ROLE_BYTES - 1 }>().map(|()| Role::Invalid)?,
            UNTRACKED => fields.none::<{ ROLE_BYTES - 1 }>().map(|()| Role::Untracked)?,
            number => {
                let event = Event::read(number, &mut fields).filter(|event| *event != Event::Error)?;
                fields.none::<{ ROLE_BYTES - 1 - Event::RECORD_BYTES }>()?;
                Role::Event(event)
            }
        };
        fields.none::<1>()?;
        fields.end()?;
        Some(Self { tuple, role, bytes, len, mss, port, ttl, tos, tcp_flags, icmp, marks })
    }
}

/// Bytes of a role in a record: its number, and the longest of its contents.
const ROLE_BYTES: usize = 22;
const ERROR: u8 = 8;
const INVALID: u8 = 9;
const UNTRACKED: u8 = 10;
const _: () = assert!(Event::RECORD_BYTES < ROLE_BYTES);
