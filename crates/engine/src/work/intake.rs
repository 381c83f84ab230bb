//! The first stage of a core's work: parse packets, hash their keys, prefetch for their steps.

use flow::Hint;
use nf::{Flow, Meta, NetworkFunction, Verdict};
use packet::{Nanos, Seq};
use port::Packet;

use crate::placement::{BURST, Lane, Placement, Ticket, hash_of};
use crate::steer::classify::classify;

/// The lanes of a burst: packets whose steps are still to be taken. Aligned so that two workers never share a cache line.
#[repr(align(128))]
pub(crate) struct Lanes<M> {
    pub(crate) len: usize,
    pub(crate) waiting: [Waiting<M>; BURST],
    /// The verdict of a packet that takes no step.
    pub(crate) verdict: Verdict,
}

impl<M: Copy> Lanes<M> {
    pub(crate) const fn new() -> Self {
        Self { len: 0, waiting: [Waiting::NONE; BURST], verdict: Verdict::forward() }
    }
}

/// A packet that waits for its step.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<M> {
    /// The packet's metadata: written here once and never moved.
    meta: Option<M>,
    pub(crate) ticket: Ticket,
    /// The packet's index in the batch.
    pub(crate) index: u32,
}

impl<M: Copy> Waiting<M> {
    const NONE: Self = Self {
        meta: None,
        ticket: Ticket { hash: 0, seq: Seq(0), now: Nanos(0), hint: Hint::NOWHERE, bucket: 0, replayed: false },
        index: 0,
    };

    /// The step in the form that placements take.
    #[inline(always)]
    pub(crate) fn lane<'a>(&'a self, frame: &'a [u8]) -> Lane<'a, M> {
        Lane { meta: self.meta(), ticket: &self.ticket, frame }
    }

    /// The metadata of a lane in use.
    #[inline(always)]
    pub(crate) fn meta(&self) -> &M {
        let Some(meta) = &self.meta else { unreachable!("a lane in use has its metadata") };
        meta
    }
}

/// Parses packets, hashes their keys and prefetches their state.
pub(crate) struct Intake<'a, N, P> {
    pub(crate) nf: &'a N,
    pub(crate) by_ports: bool,
    pub(crate) seed: u64,
    pub(crate) place: &'a P,
}

impl<N: NetworkFunction, P: Placement<N>> Intake<'_, N, P> {
    /// Fills the lane for a packet that takes a step and returns true. Otherwise writes the packet's verdict.
    #[inline(always)]
    pub(crate) fn admit(
        &self,
        lane: &mut Waiting<N::Meta>,
        verdict: &mut Verdict,
        packet: &Packet,
        bytes: &[u8],
        index: usize,
    ) -> bool {
        let Packet { seq, time, bucket, .. } = *packet;
        if !classify(self.nf, self.by_ports, packet, bytes, &mut lane.meta, verdict) {
            return false;
        }
        let hash = hash_of::<N>(&lane.meta().key(), self.seed);
        if N::Flow::STORED {
            lane.ticket.hash = hash;
        }
        self.place.prefetch(self.nf, lane.meta(), hash, bucket);
        lane.ticket.bucket = bucket;
        lane.ticket.seq = seq;
        lane.ticket.now = time;
        lane.ticket.replayed = false;
        lane.index = index as u32;
        true
    }
}
