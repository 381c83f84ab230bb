//! How a table ages and what goes when it is full.

/// Who finds the flows whose deadline has passed. Expiry itself is logical and the same under each: a flow past its deadline
/// is dead to whoever looks, and what differs is when its place comes free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ageing {
    /// A hierarchical timing wheel: in the order of the deadlines, each within a [`TICK`](crate::TICK).
    #[default]
    Wheel,
    /// A hand that goes round the slots, [`SCANNED`](crate::SCANNED) a call: within a round, in the order of the slots.
    Scan,
    /// Nobody, until a new flow comes where the dead one lies.
    Lazy,
    /// Nobody at all: dead flows stay until their own packets come or until eviction takes them.
    None,
}

/// Which flow makes room when a table is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// About the oldest of those that nobody has answered, wherever it lies; none if all were answered. A
    /// [hand](crate::Table::oldest_unprotected) goes round the places.
    #[default]
    OldestUnanswered,
    /// Of those that lie where the new one would go, the one whose deadline comes first: with one timeout for all, the least
    /// recently used. Where nobody lies there, of those at a random place. It may be one that was answered.
    LeastRecent,
    /// Any of those that lie where a random key would go. It may be one that was answered.
    Random,
    /// None: the newcomer is the one that goes.
    None,
}

/// What keeps two cores from stepping on one entry of a shared table at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryGuard {
    /// A lock of its own.
    #[default]
    Lock,
    /// A step is one atomic operation; for functions whose steps add up.
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
    pub const ALL: [Self; 4] = [Self::OldestUnanswered, Self::LeastRecent, Self::Random, Self::None];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OldestUnanswered => "oldest",
            Self::LeastRecent => "lru",
            Self::Random => "random",
            Self::None => "none",
        }
    }
}
