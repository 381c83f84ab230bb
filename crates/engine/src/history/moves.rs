//! Moves of state between cores, as plain data. The dispatcher decides on them; placements carry them out ([`crate::placement::exchange`]).

use packet::Nanos;

/// A move of state between cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move<M> {
    /// The number of the move, unique in one pass over the trace.
    pub number: u64,
    /// The state that moves.
    pub what: What<M>,
}

/// The state of a move, and its cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What<M> {
    /// All packet sets of a bucket, from its owner to another core.
    Bucket {
        /// The entry of the indirection table.
        bucket: u16,
        /// The core that has the bucket.
        from: u16,
        /// The core that gets the bucket.
        to: u16,
    },
    /// A packet set becomes an elephant: from the owner of its bucket to the replicas on all cores.
    Promote(Elephant<M>),
    /// The packet set is no elephant any more: from the replicas to the owner of its bucket.
    Demote(Elephant<M>),
}

/// A replicated packet set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elephant<M> {
    /// The metadata of one of its packets, for its key.
    pub meta: M,
    /// The hash of its key.
    pub hash: u64,
    /// Its bucket.
    pub bucket: u16,
    /// The core that owns its bucket.
    pub owner: u16,
}

/// All moves at one boundary.
#[derive(Clone, Copy, Debug)]
pub struct Moves<'a, M> {
    /// The moves, in the order in which they are released.
    pub list: &'a [Move<M>],
    /// The number of completed passes over the trace. Together with the move's number it identifies a move.
    pub lap: u64,
    /// The packet time of the moves.
    pub time: Nanos,
}
