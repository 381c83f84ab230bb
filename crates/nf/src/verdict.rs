//! Verdicts, output ports and drop reasons.

use packet::{Endpoint, IcmpError, Macs, Malformed, Rewrite};

/// The verdict on a packet. Rewrites are data; the engine applies them to the bytes after the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward the packet unchanged, by this port.
    Forward(PortId),
    /// Rewrite the packet and forward it.
    Rewrite {
        /// The output port.
        port: PortId,
        /// The changes.
        rewrite: Rewrite,
    },
    /// Rewrite the packet, forward it, and send a copy of it by a second port. Not all of a [`Rewrite`], so that a verdict stays small.
    Copy {
        /// The output port.
        port: PortId,
        /// The output port of the copy.
        copy: PortId,
        /// [`Rewrite::src`]
        src: Option<Endpoint>,
        /// [`Rewrite::dst`]
        dst: Option<Endpoint>,
        /// [`Rewrite::macs`]
        macs: Option<Macs>,
    },
    /// Build a new frame outside of the step and forward it: [`NetworkFunction::TRANSFORM`](crate::NetworkFunction::TRANSFORM).
    Transform {
        /// The output port.
        port: PortId,
        /// What to build, in the function's own numbering.
        work: u64,
    },
    /// Drop the packet, for a reason that is counted.
    Drop(Reason),
    /// Drop the packet and send an answer back by its input port.
    Reply(Reply),
}

// A cache line: engines keep a burst's verdicts.
const _: () = assert!(size_of::<Verdict>() <= 64);

impl Verdict {
    /// Forwards the packet unchanged, by the opposite port ([`PortId::ACROSS`]).
    pub const FORWARD: Self = Self::Forward(PortId::ACROSS);

    /// The same as [`FORWARD`](Self::FORWARD), built in place. A constant would be copied in the size of the largest variant.
    #[inline(always)]
    #[must_use]
    pub const fn forward() -> Self {
        Self::Forward(PortId::ACROSS)
    }

    /// Copies `other`, but reads only the fields of its variant. `other` was just written field by field; a copy of the whole size would
    /// stall until all these writes have finished.
    #[inline(always)]
    pub const fn set(&mut self, other: &Self) {
        match other {
            Self::Forward(port) => *self = Self::Forward(*port),
            Self::Drop(reason) => *self = Self::Drop(*reason),
            Self::Rewrite { .. } | Self::Copy { .. } | Self::Transform { .. } | Self::Reply(_) => *self = *other,
        }
    }

    /// Rewrites the packet and forwards it by the opposite port.
    #[inline]
    #[must_use]
    pub const fn rewritten(rewrite: Rewrite) -> Self {
        Self::Rewrite { port: PortId::ACROSS, rewrite }
    }
}

/// An output port, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

impl PortId {
    /// The opposite one of two ports. On a device with one port, that port.
    pub const ACROSS: Self = Self(u16::MAX);
    /// The packet's input port.
    pub const BACK: Self = Self(u16::MAX - 1);
}

/// An answer that the engine builds from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A TCP reset for the segment (RFC 9293 section 3.10.7.1), built by [`packet::tcp_reset`].
    TcpReset,
    /// An ICMP or ICMPv6 error about the packet, such as "port unreachable", built by [`packet::icmp_error`]. The answer may be
    /// [`ICMP_ERROR_GROWTH`](packet::ICMP_ERROR_GROWTH) bytes longer than the packet: return that from
    /// [`NetworkFunction::growth`](crate::NetworkFunction::growth).
    IcmpError(IcmpError),
}

/// The packet counts that a function's [remark](crate::NetworkFunction::remark) may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Fates<'a> {
    /// Packets received.
    pub received: u64,
    /// Packets dropped, by [`Reason`].
    pub dropped: &'a [u64; Reason::COUNT],
}

impl Fates<'_> {
    /// Packets dropped for this reason.
    #[must_use]
    pub const fn dropped_for(&self, reason: Reason) -> u64 {
        self.dropped[reason.0 as usize]
    }
}

/// A drop reason. Numbers below [`Reason::OWN`] mean the same for all functions. Numbers from there on are the function's own, in the order
/// of [`Description::drop_reasons`](crate::Description::drop_reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(pub u8);

impl Reason {
    /// The flow table is full and no flow can be evicted.
    pub const TABLE_FULL: Self = Self(16);
    /// A later fragment, which carries no ports, at a function that needs ports.
    pub const FRAGMENT: Self = Self(17);
    /// The function wanted to answer the packet, but no answer can be built from it.
    pub const UNANSWERABLE: Self = Self(18);
    /// The flow table fills up, and this new flow was refused before it is full.
    pub const EARLY_DROP: Self = Self(19);
    /// The source already has as many flows as one source may have.
    pub const SOURCE_LIMIT: Self = Self(20);
    /// The packet was lost between the sequencer and its core.
    pub const LINK_LOSS: Self = Self(21);
    /// The packet's core was fenced: it had stalled, and the other cores went on without it.
    pub const FENCED: Self = Self(22);
    /// The packet may carry IP that the parser can't find ([`Network::Unreadable`](packet::Network::Unreadable)), at a function that
    /// forwards nothing unchecked.
    pub const UNREADABLE: Self = Self(23);
    /// The first of the function's own reasons.
    pub const OWN: u8 = 32;
    /// The number of possible reasons.
    pub const COUNT: usize = 128;

    /// The reason for a packet with malformed headers.
    #[inline]
    #[must_use]
    pub const fn malformed(kind: Malformed) -> Self {
        Self(kind as u8)
    }

    /// The function's own reason number `index`.
    ///
    /// # Panics
    /// If `index` is too large.
    #[inline]
    #[must_use]
    pub const fn own(index: u8) -> Self {
        assert!((Self::OWN as usize + index as usize) < Self::COUNT);
        Self(Self::OWN + index)
    }

    /// The reason's name in reports. `own` is the function's list of own reasons.
    #[must_use]
    pub fn name(self, own: &[&'static str]) -> &'static str {
        match self {
            Self::TABLE_FULL => "table-full",
            Self::FRAGMENT => "fragment",
            Self::UNANSWERABLE => "unanswerable",
            Self::EARLY_DROP => "early-drop",
            Self::SOURCE_LIMIT => "source-limit",
            Self::LINK_LOSS => "link-loss",
            Self::FENCED => "fenced",
            Self::UNREADABLE => "unreadable",
            Self(number) if number >= Self::OWN => {
                own.get(usize::from(number - Self::OWN)).copied().unwrap_or("unnamed")
            }
            Self(number) => Malformed::ALL.get(usize::from(number)).map_or("unnamed", |kind| kind.name()),
        }
    }
}
