//! A flow that has ended, or a part of one, as it is exported.

use packet::{Endpoint, Nanos};

/// A record of a flow: the packets between two endpoints in both directions, or a part of them if the flow lasts longer than the active
/// timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// The endpoint that `forward` packets come from. Its port is 0 if the protocol has none.
    pub source: Endpoint,
    /// The endpoint that `forward` packets go to.
    pub destination: Endpoint,
    /// The protocol number.
    pub protocol: u8,
    /// The outermost VLAN of the first packet; 0 if there is none.
    pub vlan: u16,
    /// How the source was chosen.
    pub direction: Direction,
    /// Reason of its end.
    pub reason: EndReason,
    /// Packets from source to destination; at least one.
    pub forward: Side,
    /// Packets from destination to source.
    pub reverse: Side,
}

impl FlowRecord {
    /// Packets in both directions.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.forward.packets + self.reverse.packets
    }

    /// Bytes in both directions.
    #[must_use]
    pub const fn octets(&self) -> u64 {
        self.forward.octets + self.reverse.octets
    }

    /// Time of the last packet.
    #[must_use]
    pub fn last(&self) -> Nanos {
        self.forward.last.max(self.reverse.last)
    }
}

/// The packets of a flow in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Time of the first packet; 0 if there is none.
    pub first: Nanos,
    /// Time of the last packet; 0 if there is none.
    pub last: Nanos,
    /// Number of packets.
    pub packets: u64,
    /// Bytes of IP headers and payload, without the link layer.
    pub octets: u64,
    /// Input interface of the first packet, as the port numbers them.
    pub interface: u16,
    /// ICMP type (upper byte) and code of the first packet. Later fragments have none.
    pub icmp: Option<u16>,
    /// All TCP flags seen.
    pub tcp_flags: u8,
    /// Type of service or traffic class of the first packet.
    pub class: u8,
}

/// Reason of a record's end (flowEndReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EndReason {
    /// No packet came for the idle timeout.
    Idle = 1,
    /// The flow lasts longer than the active timeout. It goes on in another record.
    Active = 2,
    /// TCP closed the connection.
    EndOfFlow = 3,
    /// The meter was told to end all flows.
    Forced = 4,
    /// The cache was full.
    LackOfResources = 5,
}

impl EndReason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Active, Self::EndOfFlow, Self::Forced, Self::LackOfResources];
}

/// Rule by which the source of a flow was chosen (biflowDirection).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Direction {
    /// The source is the sender of the first packet of a TCP connection that had begun before.
    Arbitrary = 0,
    /// The source opened the flow.
    Initiator = 1,
    /// The destination opened the flow.
    ReverseInitiator = 2,
}

impl Direction {
    /// The direction with source and destination exchanged.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::Arbitrary => Self::Arbitrary,
            Self::Initiator => Self::ReverseInitiator,
            Self::ReverseInitiator => Self::Initiator,
        }
    }
}
