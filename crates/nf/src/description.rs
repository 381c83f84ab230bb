//! What a function says of itself: the catalogue prints it, engines decide by it.

use core::fmt;

use memory::transactional::Cause;
use packet::RssFields;

/// The header fields that name a packet set: packets that agree in them share a flow state and are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketSet {
    /// No packet set: all state is shared.
    None,
    /// Addresses, ports and protocol.
    FiveTuple,
    /// Addresses, ports and protocol, the same for both directions.
    SymmetricFiveTuple,
    /// The source address.
    Source,
    /// The address of the host that began an exchange: the source of what it sends, the destination of answers.
    Initiator,
    /// The destination address.
    Destination,
    /// Source and destination address.
    SourceDestination,
    /// The source Ethernet address.
    SourceMac,
    /// The tunnel that a packet goes into or comes out of, by direction.
    Tunnel,
    /// The connection that a packet belongs to on its client's side, the same for both directions, wherever its server is.
    Connection,
}

impl PacketSet {
    /// Whether ports are among the fields, which later fragments lack.
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

    /// Which of the fields that receive-side scaling reads name a packet set, as a mask; `None` where others do, or none.
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

/// Whether packet sets share state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each packet set has its own state and nothing else.
    Nothing,
    /// Packet sets share this, in words that complete "packet sets share ...".
    Shares(&'static str),
}

impl Sharing {
    /// Whether packet sets share anything.
    #[must_use]
    pub const fn is_any(self) -> bool {
        matches!(self, Self::Shares(_))
    }
}

/// A function's entry in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The name that commands know it by: lower case, words joined by hyphens.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// What it remembers of a packet set, in a line.
    pub state: &'static str,
    /// What packet sets share.
    pub sharing: Sharing,
    /// The keys of its configuration file.
    pub keys: &'static [ConfigKey],
    /// Its own reasons to drop a packet, as [`Reason::own`](crate::Reason::own) numbers them.
    pub drop_reasons: &'static [&'static str],
    /// What its configuration can do about transactions that fail.
    pub recipes: &'static [Recipe],
}

/// A key of a function's configuration file.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// The key, with a dot before each level.
    pub name: &'static str,
    /// The value when the file doesn't say, as it would stand in the file.
    pub default: &'static str,
    /// What it does, and its range and unit.
    pub help: &'static str,
}

/// What an operator can do, by a configuration key, when transactions fail for a cause.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// The cause.
    pub cause: Cause,
    /// The key.
    pub key: &'static str,
    /// How to change it, and what that gives up.
    pub help: &'static str,
}
