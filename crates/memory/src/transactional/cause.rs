//! Why transactions fail: pairs of operations that conflict, the cause of each pair and a remedy (NFork, section 4.6 and tables 3 to 5), as
//! data.

use core::fmt;

use super::sites::Site;

/// An operation of a function on shared state, as far as causes distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// [`Vector::read`](crate::Vector::read).
    VectorRead,
    /// [`Vector::write`](crate::Vector::write).
    VectorWrite,
    /// [`Map::get`](crate::Map::get).
    MapGet,
    /// [`Map::insert`](crate::Map::insert).
    MapInsert,
    /// [`Map::remove`](crate::Map::remove).
    MapRemove,
    /// The part of [`Map::insert`](crate::Map::insert) and [`Map::remove`](crate::Map::remove) that takes capacity for a pair from this
    /// core's share, or gives it back.
    MapRoom,
    /// The same from another core's share.
    MapSteal,
    /// [`Allocator::allocate`](crate::Allocator::allocate) from this core's pool.
    Allocate,
    /// [`Allocator::allocate`](crate::Allocator::allocate) from another core's pool.
    AllocateSteal,
    /// [`Allocator::allocate_exact`](crate::Allocator::allocate_exact).
    AllocateExact,
    /// [`Allocator::deadline`](crate::Allocator::deadline).
    Deadline,
    /// [`Allocator::refresh`](crate::Allocator::refresh).
    Refresh,
    /// [`Allocator::free`](crate::Allocator::free).
    Free,
    /// [`Allocator::expire`](crate::Allocator::expire).
    Expire,
    /// [`Distributed::update`](crate::Distributed::update).
    Update,
    /// [`Distributed::read`](crate::Distributed::read).
    Merge,
}

/// All operations, each at its number.
pub(crate) const OPERATIONS: [Operation; 16] = [
    Operation::VectorRead,
    Operation::VectorWrite,
    Operation::MapGet,
    Operation::MapInsert,
    Operation::MapRemove,
    Operation::MapRoom,
    Operation::MapSteal,
    Operation::Allocate,
    Operation::AllocateSteal,
    Operation::AllocateExact,
    Operation::Deadline,
    Operation::Refresh,
    Operation::Free,
    Operation::Expire,
    Operation::Update,
    Operation::Merge,
];

const _: () = {
    let mut at = 0;
    while at < OPERATIONS.len() {
        assert!(OPERATIONS[at] as usize == at, "each operation is at its number");
        at += 1;
    }
};

/// A transaction failed because it conflicted with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Collision {
    /// The operation of the failed transaction, and where.
    pub mine: Option<Site>,
    /// The operation of the other transaction, and where; `None` if that was not recorded.
    pub other: Option<Site>,
    /// True if both used the same element, key or index, and not just the same object.
    pub same: bool,
}

/// Why two operations conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Both use one element of a vector, and one writes it.
    SameElement,
    /// Both use one key of a map, and one changes its value.
    SameKey,
    /// Two keys lie in one bucket of a map.
    SameBucket,
    /// A core's share of a map's capacity was used up, and it took from another core's.
    MapRoomExhausted,
    /// A core's pool was used up, and it took from another core's.
    PoolExhausted,
    /// Both use one index, and one takes it, frees it or moves its deadline.
    SameIndex,
    /// An index of another core's pool was allocated or freed.
    ForeignPool,
    /// One merges a distributed object while the other changes a portion of it.
    MergeDuringUpdate,
    /// The operation of the other transaction is not known.
    Unknown,
}

/// All causes.
pub const CAUSES: [Cause; 9] = [
    Cause::SameElement,
    Cause::SameKey,
    Cause::SameBucket,
    Cause::MapRoomExhausted,
    Cause::PoolExhausted,
    Cause::SameIndex,
    Cause::ForeignPool,
    Cause::MergeDuringUpdate,
    Cause::Unknown,
];

impl Cause {
    /// The cause's name, for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameElement => "same-element",
            Self::SameKey => "same-key",
            Self::SameBucket => "same-bucket",
            Self::MapRoomExhausted => "map-room-exhausted",
            Self::PoolExhausted => "pool-exhausted",
            Self::SameIndex => "same-index",
            Self::ForeignPool => "foreign-pool",
            Self::MergeDuringUpdate => "merge-during-update",
            Self::Unknown => "unknown",
        }
    }

    /// The cause in a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::SameElement => "two steps use one element of a vector, and one of them writes it",
            Self::SameKey => "two steps use one key of a map, and one of them changes what is under it",
            Self::SameBucket => "two keys lie in one bucket of a map",
            Self::MapRoomExhausted => "a core has used up its share of a map's room and takes of another core's",
            Self::PoolExhausted => "a core has used up its pool and takes from another core's",
            Self::SameIndex => "two steps use one index of a pool, and one of them takes, frees or refreshes it",
            Self::ForeignPool => "an index is taken or given back that belongs to another core's pool",
            Self::MergeDuringUpdate => "one step merges a distributed object while another changes its portion of it",
            Self::Unknown => "it isn't known what the other step did",
        }
    }

    /// A remedy for the author or operator.
    #[must_use]
    pub const fn recipe(self) -> &'static str {
        match self {
            Self::SameElement => "make the element a distributed object, or write it less often",
            Self::SameKey => "write the value less often (a refresh interval), or make it a distributed object",
            Self::SameBucket => "make the map larger",
            Self::MapRoomExhausted => "make the map larger than its pairs need",
            Self::PoolExhausted => "over-provision the pool",
            Self::SameIndex => "refresh less often (a refresh interval), or take any index in place of a given one",
            Self::ForeignPool => "take any index in place of a given one; give indices back on the core that took them",
            Self::MergeDuringUpdate => "allow the object to be read stale",
            Self::Unknown => "profile for longer",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl Collision {
    /// The cause of the conflict.
    #[must_use]
    pub fn cause(&self) -> Cause {
        use Operation::*;
        let operations = [self.mine, self.other].map(|site| site.map(|site| site.operation));
        let either = |wanted: Operation| operations.contains(&Some(wanted));
        let Some(first) = operations[0].or(operations[1]) else { return Cause::Unknown };
        match first {
            VectorRead | VectorWrite => Cause::SameElement,
            MapGet | MapInsert | MapRemove if self.same => Cause::SameKey,
            MapGet | MapInsert | MapRemove => Cause::SameBucket,
            MapRoom | MapSteal => Cause::MapRoomExhausted,
            _ if either(AllocateSteal) => Cause::PoolExhausted,
            Update | Merge => Cause::MergeDuringUpdate,
            Deadline | Refresh => Cause::SameIndex,
            _ if self.same => Cause::SameIndex,
            Allocate | AllocateSteal | AllocateExact | Free | Expire => Cause::ForeignPool,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::VectorRead => "vector read",
            Self::VectorWrite => "vector write",
            Self::MapGet => "map get",
            Self::MapInsert => "map insert",
            Self::MapRemove => "map remove",
            Self::MapRoom => "map room",
            Self::MapSteal => "map room of another core",
            Self::Allocate => "allocate",
            Self::AllocateSteal => "allocate from another core's pool",
            Self::AllocateExact => "allocate this index",
            Self::Deadline => "read a deadline",
            Self::Refresh => "refresh",
            Self::Free => "free",
            Self::Expire => "expire",
            Self::Update => "update",
            Self::Merge => "merge",
        })
    }
}
