//! Placement: where the state lives that a step reads and writes.

use flow::Hint;
use nf::{Meta, NetworkFunction, Verdict};
use packet::{Nanos, Seq};

use crate::counters::FlowCounters;

/// A packet at its step.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a, M> {
    /// What the packet contributes.
    pub meta: &'a M,
    /// The hash of its packet set ([`Placement::hash`]).
    pub hash: u64,
    /// Where the packet set's entry is likely to be ([`Placement::prefetch_entry`]).
    pub hint: Hint,
    /// The packet's number.
    pub seq: Seq,
    /// The packet's time.
    pub now: Nanos,
}

/// The type of a function's packet set names.
pub type KeyOf<N> = <<N as NetworkFunction>::Meta as Meta>::Key;

/// Where the state lives that a step reads and writes. The worker hashes and prefetches a whole burst before it steps.
pub trait Placement<N: NetworkFunction>: Send {
    /// The hash that this placement's tables go by.
    fn hash(&self, key: &KeyOf<N>) -> u64;

    /// Brings near what leads to the packet set's state.
    fn prefetch(&self, nf: &N, meta: &N::Meta, hash: u64);

    /// Brings near the state itself, once what leads to it is near, and says where it is likely to be.
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64) -> Hint;

    /// Takes one step and hands its verdict to `settle`. A verdict is large: what decides it and what carries it out are
    /// compiled into one place, where most of its fields are known and none is stored.
    fn step(&mut self, nf: &N, lane: &Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict));

    /// What happened to flows here, where this placement belongs to one core.
    fn flow_counters(&self) -> FlowCounters;
}
