//! The descriptor of a packet, and what a port does with it.

use packet::{LinkType, Nanos, Seq};

/// Descriptor of a packet in a batch.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Number in arrival order.
    pub seq: Seq,
    /// Arrival time; never before that of the previous packet.
    pub time: Nanos,
    /// Offset of its bytes in the batch's memory.
    pub offset: u32,
    /// Number of captured bytes.
    pub len: u32,
    /// Length on the wire in bytes, at least `len`.
    pub wire_len: u32,
    /// Number of the input interface.
    pub interface: u16,
    /// Link type: the header that its bytes begin with.
    pub link: LinkType,
    /// Entry of the indirection table that steered it; 0 if nothing steered it, [`SPRAYED`](Self::SPRAYED) if its hash was not used.
    pub bucket: u16,
    /// What the port does with it.
    pub fate: Fate,
}

impl Packet {
    /// Bucket of a packet that was sprayed.
    pub const SPRAYED: u16 = u16::MAX;
}

/// What a port does with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Not decided yet; the packet is not sent.
    #[default]
    Pending,
    /// Send it to this port.
    Transmit(u16),
    /// Send it to the first port, and a copy of it to the second.
    Both(u16, u16),
    /// Drop it. The number is the drop reason; only the engine's user knows its name.
    Drop(u8),
}

impl Fate {
    /// The ports that the packet is sent to, in order.
    pub fn ports(self) -> impl Iterator<Item = u16> {
        let (first, second) = match self {
            Self::Transmit(port) => (Some(port), None),
            Self::Both(port, copy) => (Some(port), Some(copy)),
            Self::Pending | Self::Drop(_) => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// True if the packet is sent.
    #[inline]
    #[must_use]
    pub const fn is_sent(self) -> bool {
        matches!(self, Self::Transmit(_) | Self::Both(..))
    }
}
