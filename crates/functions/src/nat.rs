//! Network address and port translation for IPv4: endpoint-independent mapping after RFC 4787 (UDP), RFC 5382 (TCP) and
//! RFC 5508 (ICMP). What they leave open is settled in `docs/nat.md`.
//!
//! All state is shared, for a mapping belongs to every packet set that uses it.

mod config;
mod ports;
mod state;
mod tcp;
mod translate;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::net::Ipv4Addr;

use memory::Memory;
use memory::transactional::Cause;
use nf::{
    ConfigKey, Context, Description, Fingerprint, NetworkFunction, Opened, PacketSet, Reason, Recipe, RecordReader,
    RecordWriter, Sharing, Sizing, Step, Verdict,
};
use packet::{FiveTuple, Fragment, Headers, Icmp, Network, TcpFlags, Transport, protocol};

use self::config::is_unicast;
use self::state::{Endpoint4, Protocol};

pub use self::config::Config;
pub use self::state::State;

/// The translator.
#[derive(Clone, Debug)]
pub struct Nat {
    config: Config,
    inside: Box<[(u32, u32)]>,
    external: Box<[u32]>,
}

/// What a packet contributes: who sends to whom, and what it does to a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meta {
    source: Endpoint4,
    destination: Endpoint4,
    way: Way,
    content: Content,
}

/// Which way a packet goes through the translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From inside to a remote host.
    Outward,
    /// From a remote host to an external address.
    Inward,
    /// From inside to an external address.
    Hairpin,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Segment(TcpFlags),
    Datagram,
    /// An ICMP query, or the reply to one.
    Query {
        is_request: bool,
    },
    /// An ICMP error about a packet from `source` to `destination`.
    Error {
        source: Endpoint4,
        destination: Endpoint4,
        protocol: Protocol,
    },
}

impl Nat {
    /// The reasons of its own to drop a packet, in the order of the description.
    const POOL_EXHAUSTED: Reason = Reason::own(0);
    const MAPPINGS_FULL: Reason = Reason::own(1);
    const SESSIONS_FULL: Reason = Reason::own(2);
    const NO_MAPPING: Reason = Reason::own(3);
    const FILTERED: Reason = Reason::own(4);
    const TCP_NOT_SYN: Reason = Reason::own(5);
    const ICMP_NO_FLOW: Reason = Reason::own(6);
    const ICMP_UNSUPPORTED: Reason = Reason::own(7);
    const HAIRPIN_REFUSED: Reason = Reason::own(8);
    const UNSUPPORTED_PROTOCOL: Reason = Reason::own(9);
    const PRIVATE_DESTINATION: Reason = Reason::own(10);

    /// A translator with this configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { inside: config.inside(), external: config.external(), config }
    }

    /// Which way packets between these addresses are translated, or what becomes of them if they are not.
    #[inline]
    fn way(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Result<Way, Verdict> {
        let (source, destination) = (source.to_bits(), destination.to_bits());
        match (self.is_inside(source), self.is_external(destination)) {
            (false, true) => Ok(Way::Inward),
            (true, true) => Ok(Way::Hairpin),
            (true, false) if self.is_inside(destination) || !is_unicast(destination) => Err(Verdict::FORWARD),
            (true, false) => Ok(Way::Outward),
            // Outside, nobody is told an inside address: who uses one tries to get past the filter.
            (false, false) if self.is_inside(destination) => Err(Verdict::Drop(Self::PRIVATE_DESTINATION)),
            (false, false) => Err(Verdict::FORWARD),
        }
    }

    #[inline]
    fn is_inside(&self, address: u32) -> bool {
        self.inside.iter().any(|&(bits, mask)| address & mask == bits)
    }

    #[inline]
    fn is_external(&self, address: u32) -> bool {
        match *self.external {
            [only] => only == address,
            _ => self.external.binary_search(&address).is_ok(),
        }
    }
}

impl NetworkFunction for Nat {
    type Meta = Meta;
    type Flow = ();
    type Shared<M: Memory> = State<M>;

    const DESCRIPTION: Description = Description {
        name: "nat",
        summary: "translates inside addresses and ports to external ones, endpoint-independently (RFC 4787, 5382, 5508)",
        state: "nothing of its own",
        sharing: Sharing::Shares("one pool of external ports, and the maps of mappings and sessions"),
        keys: KEYS,
        drop_reasons: &[
            "pool-exhausted",
            "mapping-table-full",
            "session-table-full",
            "no-mapping",
            "filtered",
            "tcp-not-syn",
            "icmp-no-flow",
            "icmp-unsupported",
            "hairpin-refused",
            "unsupported-protocol",
            "private-destination",
        ],
    };

    const RECIPES: &'static [Recipe] = &[
        Recipe {
            cause: Cause::ForeignPool,
            key: "port_preservation",
            help: "false: a core takes any port of its own pool in place of the inside port, which others may hold",
        },
        Recipe {
            cause: Cause::SameIndex,
            key: "port_preservation",
            help: "false: hosts that use the same inside port don't ask for the same external one",
        },
        Recipe {
            cause: Cause::PoolExhausted,
            key: "external, ports, mappings, sessions",
            help: "more than are needed at once, so that no core runs out of its share",
        },
        Recipe {
            cause: Cause::MapRoomExhausted,
            key: "mappings, sessions",
            help: "more than are needed at once, so that no core runs out of its share",
        },
        Recipe {
            cause: Cause::SameBucket,
            key: "mappings, sessions",
            help: "more of them: their maps have half as many buckets again",
        },
    ];

    fn packet_set(&self) -> PacketSet {
        PacketSet::FiveTuple
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> State<M> {
        State::new(&self.config, memory)
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a State<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        shared.fingerprint(tx, fingerprint)
    }

    #[inline(always)]
    fn meta(&self, headers: &Headers, _payload: &[u8]) -> Option<Meta> {
        let Network::V4(ip) = headers.network else { return None };
        let (source, destination, content) = match headers.transport {
            Transport::Tcp(tcp) => (tcp.src_port, tcp.dst_port, Content::Segment(tcp.flags)),
            Transport::Udp { src_port, dst_port } => (src_port, dst_port, Content::Datagram),
            Transport::Icmp(icmp) if headers.protocol == protocol::ICMP => {
                let port = icmp.identifier.unwrap_or(0);
                (port, port, Content::of_icmp(&icmp)?)
            }
            Transport::Icmp(_) | Transport::Sctp { .. } | Transport::None => return None,
        };
        let way = self.way(ip.src, ip.dst).ok()?;
        let source = Endpoint4::new(ip.src, source);
        let destination = Endpoint4::new(ip.dst, destination);
        Some(Meta { source, destination, way, content })
    }

    #[inline(always)]
    fn other(&self, headers: &Headers) -> Verdict {
        let Network::V4(ip) = headers.network else { return Verdict::FORWARD };
        match self.way(ip.src, ip.dst) {
            Err(verdict) => verdict,
            Ok(_) if headers.fragment == Fragment::Later => Verdict::Drop(Reason::FRAGMENT),
            Ok(_) => Verdict::Drop(match headers.transport {
                Transport::Icmp(icmp) if is_icmp_error(icmp.kind) => Self::ICMP_NO_FLOW,
                Transport::Icmp(_) => Self::ICMP_UNSUPPORTED,
                _ => Self::UNSUPPORTED_PROTOCOL,
            }),
        }
    }

    #[inline]
    fn prefetch<M: Memory>(&self, shared: &State<M>, meta: &Meta) {
        self.look_ahead(shared, meta);
    }

    #[inline(always)]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Meta) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    #[inline(always)]
    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, (): &mut (), meta: &Meta) -> Step<Verdict, M> {
        let now = cx.now();
        cx.shared.reclaim(&mut cx.tx, now)?;
        self.translate(cx.shared, &mut cx.tx, now, meta)
    }
}

impl nf::Meta for Meta {
    type Key = FiveTuple;

    /// Which way and what kind of packet; both ends; the flags of a segment, or both ends of the packet that an error quotes.
    const RECORD_BYTES: usize = 1 + 2 * Endpoint4::RECORD_BYTES + QUOTED_BYTES;

    fn key(&self) -> FiveTuple {
        let protocol = match self.content {
            Content::Segment(_) => protocol::TCP,
            Content::Datagram => protocol::UDP,
            Content::Query { .. } | Content::Error { .. } => protocol::ICMP,
        };
        let [src, dst] = [self.source, self.destination].map(|endpoint| Ipv4Addr::from_bits(endpoint.address));
        FiveTuple::v4(src, dst, self.source.port, self.destination.port, protocol)
    }

    #[inline]
    fn write(&self, record: &mut [u8]) {
        let bits = self.way as u8 | self.content.number() << CONTENT_SHIFT;
        let fields = RecordWriter::new(record).u8(bits);
        let fields = self.destination.write(self.source.write(fields));
        match self.content {
            Content::Segment(flags) => fields.u8(flags.0).none::<{ QUOTED_BYTES - 1 }>().end(),
            Content::Datagram | Content::Query { .. } => fields.none::<QUOTED_BYTES>().end(),
            Content::Error { source, destination, .. } => destination.write(source.write(fields)).end(),
        }
    }

    #[inline]
    fn read(record: &[u8]) -> Option<Self> {
        let mut fields = RecordReader::new(record);
        let bits = fields.u8()?;
        let way = match bits & ((1 << CONTENT_SHIFT) - 1) {
            0 => Way::Outward,
            1 => Way::Inward,
            2 => Way::Hairpin,
            _ => return None,
        };
        let (source, destination) = (Endpoint4::read(&mut fields)?, Endpoint4::read(&mut fields)?);
        let content = Content::read(bits >> CONTENT_SHIFT, &mut fields)?;
        fields.end()?;
        // A query's identifier stands for both ports; an error has none.
        let makes_sense = match content {
            Content::Segment(_) | Content::Datagram => true,
            Content::Query { .. } => source.port == destination.port,
            Content::Error { .. } => source.port == 0 && destination.port == 0,
        };
        makes_sense.then_some(Self { source, destination, way, content })
    }
}

/// Where the content's number begins in a record's first byte, behind the way's.
const CONTENT_SHIFT: u32 = 2;
/// Both ends of a packet that an error quotes.
const QUOTED_BYTES: usize = 2 * Endpoint4::RECORD_BYTES;

impl Content {
    const fn number(self) -> u8 {
        match self {
            Self::Segment(_) => 0,
            Self::Datagram => 1,
            Self::Query { is_request: false } => 2,
            Self::Query { is_request: true } => 3,
            Self::Error { protocol: Protocol::Tcp, .. } => 4,
            Self::Error { protocol: Protocol::Udp, .. } => 5,
            Self::Error { protocol: Protocol::Icmp, .. } => 6,
        }
    }

    /// The content of this number, with what follows of its record.
    fn read(number: u8, fields: &mut RecordReader<'_>) -> Option<Self> {
        let protocol = match number {
            0 => {
                let flags = TcpFlags(fields.u8()?);
                return fields.none::<{ QUOTED_BYTES - 1 }>().map(|()| Self::Segment(flags));
            }
            1 => return fields.none::<QUOTED_BYTES>().map(|()| Self::Datagram),
            2 | 3 => return fields.none::<QUOTED_BYTES>().map(|()| Self::Query { is_request: number == 3 }),
            4 => Protocol::Tcp,
            5 => Protocol::Udp,
            6 => Protocol::Icmp,
            _ => return None,
        };
        let (source, destination) = (Endpoint4::read(fields)?, Endpoint4::read(fields)?);
        Some(Self::Error { source, destination, protocol })
    }

    fn of_icmp(icmp: &Icmp) -> Option<Self> {
        if icmp.identifier.is_some() {
            // Echo, timestamp, information, address mask (RFC 792, RFC 950): the others are their replies.
            return Some(Self::Query { is_request: matches!(icmp.kind, 8 | 13 | 15 | 17) });
        }
        // A redirect quotes a packet too, yet it is no error: it would make the host send past the translation.
        if !is_icmp_error(icmp.kind) {
            return None;
        }
        let FiveTuple::V4(_) = icmp.embedded?.tuple else { return None };
        let tuple = icmp.embedded?.tuple;
        let protocol = match tuple.protocol() {
            protocol::TCP => Protocol::Tcp,
            protocol::UDP => Protocol::Udp,
            protocol::ICMP => Protocol::Icmp,
            _ => return None,
        };
        let [source, destination] = [tuple.source(), tuple.destination()].map(|endpoint| match endpoint.address {
            core::net::IpAddr::V4(address) => Some(Endpoint4::new(address, endpoint.port)),
            core::net::IpAddr::V6(_) => None,
        });
        Some(Self::Error { source: source?, destination: destination?, protocol })
    }
}

/// Destination unreachable, source quench, time exceeded, parameter problem.
fn is_icmp_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 11 | 12)
}

const fn config_key(name: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { name, default, help }
}

const KEYS: &[ConfigKey] = &[
    config_key(
        "inside",
        r#"["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]"#,
        "prefixes whose packets are translated",
    ),
    config_key("external", r#"["203.0.113.1"]"#, "external addresses or prefixes, up to 256 addresses"),
    config_key("ports", r#""1024-65535""#, "external ports, and identifiers of ICMP queries"),
    config_key("mapping", r#""endpoint-independent""#, "the one mapping there is"),
    config_key(
        "filtering",
        r#""endpoint-independent""#,
        "who may send in: that, \"address-dependent\" or \"address-and-port-dependent\"",
    ),
    config_key(
        "pooling",
        r#""paired""#,
        "whether a host keeps to one external address (\"paired\") or not (\"arbitrary\")",
    ),
    config_key("hairpinning", "true", "inside hosts reach each other by their external endpoints"),
    config_key("port_parity", "true", "an even UDP port becomes an even one, an odd one odd"),
    config_key("port_preservation", "true", "an inside port becomes the same external one if it is free"),
    config_key("inbound_refresh", "false", "packets from outside keep UDP and ICMP sessions alive, too"),
    config_key("loose", "true", "whether TCP connections may be picked up half-way, from inside"),
    config_key("mappings", "65536", "how many inside endpoints at a time"),
    config_key("sessions", "65536", "how many sessions at a time"),
    config_key("timeouts.udp", "300", "idle seconds of a UDP session; RFC 4787 asks for 120 or more"),
    config_key(
        "timeouts.tcp_established",
        "7440",
        "idle seconds of an open connection; RFC 5382 asks for 7440 or more",
    ),
    config_key(
        "timeouts.tcp_transitory",
        "240",
        "idle seconds of one that opens or closes; RFC 5382 asks for 240 or more",
    ),
    config_key("timeouts.icmp", "60", "idle seconds of an ICMP query; RFC 5508 asks for 60 or more"),
];
