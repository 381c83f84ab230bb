//! The description of a function. The catalogue prints it; engines read how it names packet sets and what they share.

use core::fmt;

use memory::transactional::Cause;
use packet::RssFields;

/// The header fields that form a packet set's key. Packets with equal keys share a flow and keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketSet {
    /// No packet sets: all state is shared.
    None,
    /// Addresses, ports and protocol.
    FiveTuple,
    /// Addresses, ports and protocol, the same for both directions.
    SymmetricFiveTuple,
    /// The source address.
    Source,
    /// The address of the host that started the exchange: the source of its requests, the destination of the answers.
    Initiator,
    /// The destination address.
    Destination,
    /// Source and destination address.
    SourceDestination,
    /// The source Ethernet address.
    SourceMac,
    /// The tunnel that a packet enters or leaves, by direction.
    Tunnel,
    /// The connection as its client sees it, the same for both directions, whichever server was chosen for it.
    Connection,
}

impl PacketSet {
    /// True if ports are among the fields. Later fragments carry none.
    #[must_use]
    pub const fn has_ports(self) -> bool {
        match self {
            Self::FiveTuple | Self::SymmetricFiveTuple | Self::Connection => true,
            Self::None
            | Self::Source
            | Self::Initiator
            | Self::Destination
            | Self::SourceDestination
            | Self::SourceMac
            | Self::Tunnel => false,
        }
    }

    /// The RSS fields that form the key, as a mask. `None` if the key has other fields, or there are no packet sets.
    #[must_use]
    pub const fn rss_mask(self) -> Option<RssFields> {
        let [src, dst, ports] = match self {
            Self::FiveTuple | Self::SymmetricFiveTuple => [true, true, true],
            Self::Source => [true, false, false],
            Self::Destination => [false, true, false],
            Self::SourceDestination => [true, true, false],
            Self::None | Self::Initiator | Self::SourceMac | Self::Tunnel | Self::Connection => return None,
        };
        const fn all(counts: bool) -> [u8; 4] {
            if counts { [0xff; 4] } else { [0; 4] }
        }
        Some(RssFields { src: all(src), dst: all(dst), ports: all(ports) })
    }
}

impl fmt::Display for PacketSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::FiveTuple => "five-tuple",
            Self::SymmetricFiveTuple => "five-tuple, both directions",
            Self::Source => "source address",
            Self::Initiator => "initiator's address",
            Self::Destination => "destination address",
            Self::SourceDestination => "source and destination address",
            Self::SourceMac => "source Ethernet address",
            Self::Tunnel => "tunnel and direction",
            Self::Connection => "client's connection",
        })
    }
}

/// The packet set that an ICMP error belongs to, where packet sets are five-tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpErrors {
    /// The packet set of its own addresses.
    Own,
    /// The packet set of the packet that it quotes, in the direction in which the error goes.
    Quoted,
    /// No packet set: the function has no metadata for ICMP errors.
    None,
}

/// Whether packet sets share state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each packet set has its own state and nothing else.
    Nothing,
    /// Each packet set has its own state, and steps read the packets' bytes ([`Context::frame`](crate::Context::frame)). Replicas don't have
    /// these, so engines that replicate refuse the function.
    Streams,
    /// Packet sets share something. The text completes the sentence "packet sets share ...".
    Shares(&'static str),
    /// Packet sets share something, and steps read the packets' bytes, as for [`Streams`](Self::Streams).
    StreamsShare(&'static str),
}

impl Sharing {
    /// True if packet sets share anything.
    #[must_use]
    pub const fn is_any(self) -> bool {
        self.what().is_some()
    }

    /// What packet sets share, to complete the sentence "packet sets share ...".
    #[must_use]
    pub const fn what(self) -> Option<&'static str> {
        match self {
            Self::Nothing | Self::Streams => None,
            Self::Shares(what) | Self::StreamsShare(what) => Some(what),
        }
    }

    /// True if steps read the packets' bytes.
    #[must_use]
    pub const fn reads_frames(self) -> bool {
        match self {
            Self::Streams | Self::StreamsShare(_) => true,
            Self::Nothing | Self::Shares(_) => false,
        }
    }
}

/// What the catalogue says of a function.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The function's name in commands: lower case, words joined by hyphens.
    pub name: &'static str,
    /// What the function does, in one line.
    pub summary: &'static str,
    /// What the function remembers of a packet set, in one line.
    pub state: &'static str,
    /// What packet sets share.
    pub sharing: Sharing,
    /// The keys of the configuration file.
    pub keys: &'static [ConfigKey],
    /// The function's own drop reasons. [`Reason::own`](crate::Reason::own) takes an index into this list.
    pub drop_reasons: &'static [&'static str],
    /// How the configuration can reduce failing transactions.
    pub recipes: &'static [Recipe],
}

/// A key of a function's configuration file.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// The key, levels separated by dots.
    pub name: &'static str,
    /// The default value, written as in the file.
    pub default: &'static str,
    /// What the key does, its range and its unit.
    pub help: &'static str,
}

/// A configuration key that an operator can change when transactions fail for one cause.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// The cause.
    pub cause: Cause,
    /// The key.
    pub key: &'static str,
    /// How to change the key, and what that costs.
    pub help: &'static str,
}
