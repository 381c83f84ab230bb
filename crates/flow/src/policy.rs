//! Policies of a table: ageing, eviction, and the guard of shared entries.

/// How a table finds expired flows. A flow is expired once its deadline has passed, whatever the policy; the policy decides when its place
/// becomes free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ageing {
    /// A hierarchical timing wheel. Flows expire in the order of their deadlines, within a [`TICK`](crate::TICK).
    #[default]
    Wheel,
    /// A scan over the slots, [`SCANNED`](crate::SCANNED) a call, in slot order.
    Scan,
    /// A new flow removes expired ones in its own neighbourhood. Nothing else does.
    Lazy,
    /// Nothing does. An expired flow stays until its own next packet or until it is evicted.
    None,
}

/// Which flow a full table evicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Roughly the oldest flow that is not protected, wherever it lies; none if all are protected. A [clock
    /// hand](crate::Table::oldest_unprotected) goes round the slots.
    #[default]
    OldestUnprotected,
    /// The flow in the new one's neighbourhood with the earliest deadline. If all flows have the same timeout, this is the least recently
    /// used. If that neighbourhood is empty, a random one is searched. Protected flows are evicted too.
    LeastRecent,
    /// A random flow of a random neighbourhood. Protected flows are evicted too.
    Random,
    /// None: the new flow is refused.
    None,
}

/// How a shared table keeps two cores from changing one entry at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryGuard {
    /// A lock for each entry.
    #[default]
    Lock,
    /// One atomic operation a step, for functions that only add.
    Atomic,
}

impl EntryGuard {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Lock, Self::Atomic];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Atomic => "atomic",
        }
    }
}

impl Ageing {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Wheel, Self::Scan, Self::Lazy, Self::None];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wheel => "wheel",
            Self::Scan => "scan",
            Self::Lazy => "lazy",
            Self::None => "none",
        }
    }
}

impl Eviction {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OldestUnprotected, Self::LeastRecent, Self::Random, Self::None];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OldestUnprotected => "oldest",
            Self::LeastRecent => "lru",
            Self::Random => "random",
            Self::None => "none",
        }
    }
}
