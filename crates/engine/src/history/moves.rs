//! What changes cores between two packets: plain data, as a dispatcher hands it out. Placements carry it out ([`crate::placement::exchange`]).

use packet::Nanos;

/// One thing that changes cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move<M> {
    /// Names the move, once in a lap.
    pub ticket: u64,
    /// What it is.
    pub what: What<M>,
}

/// What changes cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What<M> {
    /// All packet sets of a bucket, from its owner to another core.
    Bucket {
        /// The entry of the indirection table.
        bucket: u16,
        /// Who has it.
        from: u16,
        /// Who gets it.
        to: u16,
    },
    /// A packet set becomes an elephant: from the owner of its bucket to the replicas on all cores.
    Promote(Elephant<M>),
    /// It is one no more: from the replicas to the owner of its bucket.
    Demote(Elephant<M>),
}

/// A packet set that is replicated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elephant<M> {
    /// One of its packets' contributions, for its key.
    pub meta: M,
    /// The hash of its key.
    pub hash: u64,
    /// Its bucket.
    pub bucket: u16,
    /// The core that has its bucket.
    pub owner: u16,
}

/// What changes cores at one point.
#[derive(Clone, Copy, Debug)]
pub struct Moves<'a, M> {
    /// The moves, in the order in which they are to be released.
    pub list: &'a [Move<M>],
    /// How often the trace was begun again; with the ticket it names a move.
    pub lap: u64,
    /// When they take place.
    pub time: Nanos,
}
