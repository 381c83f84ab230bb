//! Targets: what `-j NAME` and its options do with a packet.

mod change;
mod nat;
mod report;
mod track;

use crate::extension::extensions;

pub use change::{
    Checksum, Classify, DscpChange, EcnChange, HlChange, MarkPacket, TcpMssChange, TcpOptStrip, TosChange, TtlChange,
    TtlStep,
};
pub use nat::{Dnat, Masquerade, NatAddresses, NatPorts, NetMap, Redirect, Snat};
pub use report::{Log, NfLog, NfLogLength, Reject, RejectWith, Tee, Trace};
pub use track::{ConnMarkAction, ConnMarkTarget, Ct, SetAction, SetTarget, Zone, ZoneDirection};

extensions! {
    /// A target of a rule, other than `ACCEPT`, `DROP`, `RETURN` and a chain.
    Action, ACTIONS:
    /// Answers with an error, and drops.
    Reject,
    /// Writes a line to the log.
    Log,
    /// Hands a copy to user space for logging.
    NfLog,
    /// Marks the packet for tracing through all rules.
    Trace,
    /// Sends a copy to another host.
    Tee,
    /// Rewrites the destination of a flow.
    Dnat,
    /// Rewrites the source of a flow.
    Snat,
    /// Rewrites the source of a flow to the address of the interface.
    Masquerade,
    /// Rewrites the destination of a flow to the router itself.
    Redirect,
    /// Rewrites the network part of an address.
    NetMap,
    /// Changes the packet's mark.
    MarkPacket,
    /// Changes the flow's mark, or copies it.
    ConnMarkTarget,
    /// Says how the packet is tracked.
    Ct,
    /// Adds to a set, or removes from it.
    SetTarget,
    /// Changes the maximum segment size in a SYN.
    TcpMssChange,
    /// Replaces options of TCP by padding.
    TcpOptStrip,
    /// Changes the time to live.
    TtlChange,
    /// Changes the hop limit.
    HlChange,
    /// Changes the differentiated services code point.
    DscpChange,
    /// Changes the type of service.
    TosChange,
    /// Clears the bits of explicit congestion notification in TCP.
    EcnChange,
    /// Sets the class for queueing.
    Classify,
    /// Fills in a checksum that was left to the card.
    Checksum,
}
