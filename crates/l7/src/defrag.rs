//! IP defragmentation: gathers the fragments of a datagram into one packet.
//!
//! [`Defragmenter`] is the store of fragments. [`Defragmented`] puts one in front of each queue of a port: an engine then sees whole
//! datagrams, and what it forwards leaves as fragments again.
//!
//! **A datagram** is what has the same source, destination, identification and protocol (IPv4), or the same source, destination and
//! identification (IPv6), on links of one type. It is whole when all bytes up to the end of its last fragment have come. The packet that is
//! handed on has
//!
//! * the link header and the IP header of the fragment at offset 0, with the length of the whole, no fragment field or fragment header, and
//!   the checksum made anew,
//! * "congestion experienced" if any fragment had it (RFC 3168, section 5.3),
//! * the number, time, interface and bucket of the packet that completed it.
//!
//! **On transmit** such a packet is cut again where it was cut before. All fragments have the header as the function left it; later IPv4
//! fragments have no-operations in place of options that are not copied. A packet that is no longer that datagram (another length or
//! identification: an answer, or a frame that the function built) leaves whole. Of a datagram that the function drops, nothing leaves.
//!
//! **Reasons** for dropping fragments are in [`Discard`]. Most of them end the datagram: all its fragments are dropped for that reason.
//! Fragments that come later begin another datagram, which never becomes whole.
//!
//! **Overlaps** are resolved by [`Policy`]. IPv6 datagrams with an overlap are always dropped (RFC 5722); so are those of IPv4 under
//! [`Policy::Linux`]. A fragment whose bytes all came before, in one run of fragments that came in order, is a duplicate there, whatever its
//! bytes.
//!
//! **Memory** is fixed at the start, by [`Limits`]. A fragment that finds no room is dropped. What is stored stays: so many senders of first
//! fragments can fill the store until these time out. [`Limits::source_datagrams`] keeps a single host from that.
//!
//! **Time** is packet time. A datagram ends when its timeout after its first fragment has passed, at the next fragment of any datagram.
//!
//! Where Linux differs, under [`Policy::Linux`]: it cuts an IPv4 fragment that is not the last to a multiple of eight bytes, and takes it
//! (here [`Discard::Unaligned`]); it gives a datagram up when 64 other fragments of the same source have come in between; it refuses by
//! memory alone, which it counts with overhead.

mod cut;
mod follow;
mod piece;
mod store;
mod wrap;

use packet::Nanos;
use port::{Packet, Trace};

pub use cut::cut;
pub use follow::{Followed, follow};
pub use store::{Defragmenter, Taken};
pub use wrap::{Defragmented, DefragmentedQueue, Totals, gathering};

/// Which bytes win where fragments of an IPv4 datagram overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// None: the datagram is dropped, as by Linux 6.18. Duplicates are ignored.
    #[default]
    Linux,
    /// Those that came first.
    First,
    /// Those that came last.
    Last,
    /// Those of the fragment that begins earlier; of two that begin together, the first.
    Bsd,
    /// Those of the fragment that begins later; of two that begin together, the last.
    BsdRight,
    /// The first, unless a later one begins before it and ends behind it.
    Windows,
    /// The first, unless a later one begins before it and doesn't end before it.
    Solaris,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Linux, Self::First, Self::Last, Self::Bsd, Self::BsdRight, Self::Windows, Self::Solaris];

    /// The policy's name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::First => "first",
            Self::Last => "last",
            Self::Bsd => "bsd",
            Self::BsdRight => "bsd-right",
            Self::Windows => "windows",
            Self::Solaris => "solaris",
        }
    }

    /// The policy with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// True if bytes from `old.0` to `old.1` stay where a fragment from `new.0` to `new.1` overlaps them.
    const fn keeps(self, old: (u32, u32), new: (u32, u32)) -> bool {
        match self {
            Self::Linux | Self::First => true,
            Self::Last => false,
            Self::Bsd => old.0 <= new.0,
            Self::BsdRight => old.0 > new.0,
            Self::Windows => !(new.0 < old.0 && new.1 > old.1),
            Self::Solaris => !(new.0 < old.0 && new.1 >= old.1),
        }
    }
}

/// Sizes of the store, for each [`Defragmenter`]. The memory is reserved at the start: about `bytes`, 24 for each of `fragments`, and 250
/// for each of `datagrams`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of fragments, in blocks of 512. Up to 1 GiB.
    pub bytes: usize,
    /// Fragments.
    pub fragments: usize,
    /// Datagrams at a time.
    pub datagrams: usize,
    /// Datagrams at a time from one source address.
    pub source_datagrams: usize,
    /// Fragments of a datagram.
    pub datagram_fragments: usize,
    /// How long after its first fragment an IPv4 datagram is given up.
    pub timeout_v4: Nanos,
    /// The same for IPv6.
    pub timeout_v6: Nanos,
}

impl Limits {
    /// The most memory that a [`Defragmenter`] with these limits takes, in bytes.
    #[must_use]
    pub fn memory_max(&self) -> usize {
        store::memory_max(self)
    }
}

/// Bytes and timeouts of Linux. The longest datagram in fragments for the smallest MTU of IPv4 (68 bytes) has 1,366.
impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 4 << 20,
            fragments: 8_192,
            datagrams: 4_096,
            source_datagrams: 1_024,
            datagram_fragments: 1_366,
            timeout_v4: Nanos::from_secs(30),
            timeout_v6: Nanos::from_secs(60),
        }
    }
}

/// Why a fragment was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Discard {
    /// Its datagram has overlapping fragments, and the policy takes none.
    Overlap,
    /// Its bytes had come before. The datagram goes on.
    Duplicate,
    /// It is not the last of its datagram, and its length is no multiple of eight bytes.
    Unaligned,
    /// It has no bytes.
    Empty,
    /// The datagram would be longer than 65,535 bytes.
    TooLong,
    /// Two fragments end the datagram at different places, or one goes past its end.
    End,
    /// Some fragments of the datagram may be marked for congestion, others not (RFC 3168, section 5.3).
    Ecn,
    /// The capture has only a part of it. The datagram goes on.
    Cut,
    /// The store is full. The datagram goes on.
    NoRoom,
    /// Too many datagrams of its source are incomplete.
    SourceLimit,
    /// The datagram has too many fragments.
    TooMany,
    /// The rest of its datagram did not come in time.
    Timeout,
    /// The rest of its datagram had not come when the input ended.
    Incomplete,
}

impl Discard {
    /// All reasons, in order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Overlap,
        Self::Duplicate,
        Self::Unaligned,
        Self::Empty,
        Self::TooLong,
        Self::End,
        Self::Ecn,
        Self::Cut,
        Self::NoRoom,
        Self::SourceLimit,
        Self::TooMany,
        Self::Timeout,
        Self::Incomplete,
    ];

    /// The reason in a few words, for a user who asks about one fragment.
    #[must_use]
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Overlap => "fragments of its datagram overlap, and the policy takes none of them",
            Self::Duplicate => "its bytes had come before",
            Self::Unaligned => "a fragment of its datagram that is not the last has a length that is no multiple of 8",
            Self::Empty => "a fragment of its datagram has no bytes",
            Self::TooLong => "its datagram would be longer than 65,535 bytes",
            Self::End => "two fragments end its datagram at different places, or one goes past its end",
            Self::Ecn => "some fragments of its datagram may be marked for congestion, others not",
            Self::Cut => "the capture has only a part of it",
            Self::NoRoom => "the store of fragments is full",
            Self::SourceLimit => "too many datagrams of its source are incomplete",
            Self::TooMany => "its datagram has too many fragments",
            Self::Timeout => "the rest of its datagram did not come in time",
            Self::Incomplete => "the rest of its datagram is not in the capture",
        }
    }

    /// The reason's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::Duplicate => "duplicate",
            Self::Unaligned => "unaligned",
            Self::Empty => "empty",
            Self::TooLong => "too-long",
            Self::End => "end",
            Self::Ecn => "ecn",
            Self::Cut => "cut",
            Self::NoRoom => "no-room",
            Self::SourceLimit => "source-limit",
            Self::TooMany => "too-many",
            Self::Timeout => "timeout",
            Self::Incomplete => "incomplete",
        }
    }
}

/// Gathers the fragments of a trace. Packets keep their numbers; a datagram has that of the fragment that completed it.
#[must_use]
pub fn gather(trace: &Trace, policy: Policy, limits: Limits) -> (Trace, Counts) {
    let (mut store, mut gathered) = (Defragmenter::new(policy, limits), Trace::new());
    for (packet, bytes) in trace.iter() {
        match store.take(packet, bytes) {
            Taken::Whole => gathered.push(*packet, bytes),
            Taken::Held(_) => {}
            Taken::Gathered(frame, _) => {
                gathered.push(Packet { wire_len: frame.len() as u32, ..*packet }, frame);
            }
        }
    }
    store.end();
    (gathered, *store.counts())
}

/// Counts of fragments. At the end of the input, `fragments` is the sum of `gathered` and of the dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Fragments received.
    pub fragments: u64,
    /// Fragments whose datagrams became whole.
    pub gathered: u64,
    /// Datagrams that became whole: packets that were handed on in place of their fragments.
    pub datagrams: u64,
    /// Fragments dropped, by the number of [`Discard`].
    pub dropped: [u64; Discard::ALL.len()],
}

impl Counts {
    /// Fragments dropped for this reason.
    #[must_use]
    pub const fn dropped_for(&self, reason: Discard) -> u64 {
        self.dropped[reason as usize]
    }

    /// Fragments dropped for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn drops(&self) -> impl Iterator<Item = (Discard, u64)> + '_ {
        Discard::ALL.into_iter().map(|reason| (reason, self.dropped_for(reason))).filter(|(_, count)| *count > 0)
    }

    /// Adds another store's.
    pub fn add(&mut self, other: &Self) {
        let Self { fragments, gathered, datagrams, dropped } = other;
        self.fragments += fragments;
        self.gathered += gathered;
        self.datagrams += datagrams;
        for (mine, theirs) in self.dropped.iter_mut().zip(dropped) {
            *mine += theirs;
        }
    }
}
