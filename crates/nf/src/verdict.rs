//! What becomes of a packet.

use packet::{Malformed, Rewrite};

/// What becomes of a packet. Rewrites are data: the engine carries them out on the bytes that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet goes out unchanged, by this port.
    Forward(PortId),
    /// The packet goes out changed. A variant of its own, so that deciding the others touches none of this.
    Rewrite {
        /// The port that it leaves by.
        port: PortId,
        /// What changes in it.
        rewrite: Rewrite,
    },
    /// Another packet goes out in its place, which the function makes of it outside of its step:
    /// [`NetworkFunction::TRANSFORM`](crate::NetworkFunction::TRANSFORM).
    Transform {
        /// The port that it leaves by.
        port: PortId,
        /// What to do, in the function's own numbering.
        work: u64,
    },
    /// The packet ends here, for a reason that is counted.
    Drop(Reason),
    /// The packet ends here, and an answer goes back by the port that it came from.
    Reply(Reply),
}

impl Verdict {
    /// The packet goes out unchanged, by the other port than it came in.
    pub const FORWARD: Self = Self::Forward(PortId::ACROSS);

    /// As [`FORWARD`](Self::FORWARD), made in place: a constant is copied in the size of the largest verdict, which costs a
    /// short step a tenth of its time.
    #[inline(always)]
    #[must_use]
    pub const fn forward() -> Self {
        Self::Forward(PortId::ACROSS)
    }

    /// Becomes `other`, of which no more is read than there is: a verdict was written just now, in pieces, and to copy it in the
    /// size of the largest means to wait until they have all arrived.
    #[inline(always)]
    pub const fn set(&mut self, other: &Self) {
        match other {
            Self::Forward(port) => *self = Self::Forward(*port),
            Self::Drop(reason) => *self = Self::Drop(*reason),
            Self::Rewrite { .. } | Self::Transform { .. } | Self::Reply(_) => *self = *other,
        }
    }

    /// The packet goes out changed, by the other port than it came in.
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
    /// The other of two ports; on a device with one port, that port.
    pub const ACROSS: Self = Self(u16::MAX);
    /// The port that the packet came in by.
    pub const BACK: Self = Self(u16::MAX - 1);
}

/// An answer that the engine makes out of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A TCP reset for the segment, as RFC 9293 section 3.10.7.1 has it.
    TcpReset,
}

/// What became of a run's packets, as far as a function's remark may depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Fates<'a> {
    /// Packets that came in.
    pub received: u64,
    /// Packets that were dropped, by [`Reason`].
    pub dropped: &'a [u64; Reason::COUNT],
}

impl Fates<'_> {
    /// Packets that were dropped for this reason.
    #[must_use]
    pub const fn dropped_for(&self, reason: Reason) -> u64 {
        self.dropped[reason.0 as usize]
    }
}

/// Why a packet was dropped. Numbers below [`Reason::OWN`] mean the same for all functions; those from it on are the
/// function's own, in the order of [`Description::drop_reasons`](crate::Description::drop_reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(pub u8);

impl Reason {
    /// The flow table is full and no flow can go.
    pub const TABLE_FULL: Self = Self(16);
    /// A later fragment, which carries no ports, at a function that needs them.
    pub const FRAGMENT: Self = Self(17);
    /// The function wanted the packet answered, and no answer can be made of it.
    pub const UNANSWERABLE: Self = Self(18);
    /// The flow table fills up, and the packet's flow is among those that are turned away before it is full.
    pub const EARLY_DROP: Self = Self(19);
    /// The source has as many flows as one source may have.
    pub const SOURCE_LIMIT: Self = Self(20);
    /// The packet was lost on its way from the sequencer to its core.
    pub const LINK_LOSS: Self = Self(21);
    /// The packet's core was taken for stalled, and the others went on without it.
    pub const FENCED: Self = Self(22);
    /// The packet may hold IP that the parser doesn't find ([`Network::Unreadable`](packet::Network::Unreadable)), at a function that
    /// lets nothing pass unseen.
    pub const UNREADABLE: Self = Self(23);
    /// The first of the function's own reasons.
    pub const OWN: u8 = 32;
    /// How many reasons there can be in all.
    pub const COUNT: usize = 64;

    /// The drop of a packet whose headers can't be trusted.
    #[inline]
    #[must_use]
    pub const fn malformed(kind: Malformed) -> Self {
        Self(kind as u8)
    }

    /// The function's own reason number `index`.
    ///
    /// # Panics
    /// When there is no room for so many.
    #[inline]
    #[must_use]
    pub const fn own(index: u8) -> Self {
        assert!((Self::OWN as usize + index as usize) < Self::COUNT);
        Self(Self::OWN + index)
    }

    /// The reason's name in reports, given the function's own reasons.
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
