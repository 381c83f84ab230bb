//! State in shards that move between cores: one shard for each bucket of the indirection table (`rss++`), and on every core a replica of
//! the elephants, the few packet sets that are too heavy for one core (`hybrid`).
//!
//! Each bucket has tables of its own, so moving a bucket moves a pointer.

use std::sync::Arc;

use flow::Hint;
use nf::{Meta, NetworkFunction, Sizing, Verdict};
use packet::{Nanos, Seq};
use port::Packet;

use crate::counters::FlowCounters;
use crate::history::moves::{Move, Moves, What};
use crate::placement::exchange::{Cargo, Exchange};
use crate::placement::private::Private;
use crate::placement::striped::share;
use crate::placement::tables::Tables;
use crate::placement::{Lane, Placement, SavedFlow};
use crate::steer::elephants::REPLICATED_MAX;

/// A core's shards, and its replica of the elephants.
pub struct Sharded<N: NetworkFunction> {
    core: u16,
    cores: usize,
    seed: u64,
    /// The shards by bucket; `None` for buckets of other cores.
    shards: Vec<Option<Box<Private<N>>>>,
    /// The elephants; `None` under `rss++`.
    replica: Option<Box<Private<N>>>,
    exchange: Arc<Exchange<N>>,
}

/// The size and kind of the state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// True if cores have replicas of elephants.
    pub replicated: bool,
    /// The flows of all shards together.
    pub sizing: Sizing,
    /// The hash seed.
    pub seed: u64,
}

impl<N: NetworkFunction> Sharded<N> {
    /// Empty state for each core. `table` has the core of each bucket.
    pub(crate) fn cores(nf: &N, table: &[u16], cores: usize, layout: Layout, tables: Tables) -> Vec<Self> {
        let Layout { replicated, sizing, seed } = layout;
        let exchange = Arc::new(Exchange::new());
        let buckets = table.len();
        let each = Sizing { flows: share(sizing.flows, buckets), flows_v6: share(sizing.flows_v6, buckets) };
        let few = Sizing { flows: REPLICATED_MAX, flows_v6: if sizing.flows_v6 == 0 { 0 } else { REPLICATED_MAX } };
        let of = |core: usize| Self {
            core: core as u16,
            cores,
            seed,
            shards: table
                .iter()
                .map(|owner| {
                    (usize::from(*owner) == core).then(|| Private::with_options(nf, each, seed, tables).into())
                })
                .collect(),
            replica: replicated.then(|| Private::with_options(nf, few, seed, tables).into()),
            exchange: Arc::clone(&exchange),
        };
        (0..cores).map(of).collect()
    }

    /// The shards that this core has now.
    pub fn shards(&self) -> impl Iterator<Item = &Private<N>> {
        self.shards.iter().flatten().map(|shard| &**shard)
    }

    /// All shards and the replica.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Private<N>> {
        self.shards.iter_mut().flatten().chain(&mut self.replica).map(|part| &mut **part)
    }

    /// The replica of the elephants.
    #[must_use]
    pub fn replica(&self) -> Option<&Private<N>> {
        self.replica.as_deref()
    }

    /// Deals the empty shards to cores by `table`. Call it before anything has run.
    pub(crate) fn deal(all: &mut [&mut Self], table: &[u16]) {
        for (bucket, owner) in table.iter().enumerate() {
            let shard = all.iter_mut().find_map(|core| core.shards[bucket].take());
            all[usize::from(*owner)].shards[bucket] = shard;
        }
    }

    #[inline(always)]
    fn part(&self, bucket: u16) -> Option<&Private<N>> {
        let part = if bucket == Packet::SPRAYED { &self.replica } else { &self.shards[usize::from(bucket)] };
        part.as_deref()
    }

    #[inline(always)]
    fn of(&self, bucket: u16) -> &Private<N> {
        self.part(bucket).expect(OWNED)
    }
}

const OWNED: &str = "a core gets packets of its own buckets and of elephants";

impl<N: NetworkFunction> Placement<N> for Sharded<N> {
    const REPLAYS: bool = true;
    const MIXED: bool = true;

    type Replica = Private<N>;

    #[inline(always)]
    fn recorded(&self) -> &Private<N> {
        self.replica.as_deref().expect(OWNED)
    }

    #[inline(always)]
    fn recorded_mut(&mut self) -> &mut Private<N> {
        self.replica.as_deref_mut().expect(OWNED)
    }

    fn succeed(mut places: Vec<Self>, nf: &N, old: &N) -> Vec<Self> {
        let parts = places.iter_mut().flat_map(|place| place.shards.iter_mut().flatten().chain(&mut place.replica));
        parts.for_each(|part| part.adopt(nf, old));
        places
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    /// Does nothing for a shard that has not come to this core yet.
    #[inline(always)]
    fn prefetch(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) {
        if let Some(part) = self.part(bucket) {
            part.prefetch(nf, meta, hash, bucket);
        }
    }

    /// Asked for records, which are of elephants; their state is in the replica.
    fn fits_l2(&self) -> bool {
        self.replica().is_some_and(Placement::<N>::fits_l2)
    }

    #[inline(always)]
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) -> Hint {
        self.of(bucket).prefetch_entry(nf, meta, hash, bucket)
    }

    #[inline]
    fn locate(&self, nf: &N, meta: &N::Meta, hash: u64, bucket: u16) -> Hint {
        self.of(bucket).locate(nf, meta, hash, bucket)
    }

    #[inline(always)]
    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        let sprayed = lane.bucket == Packet::SPRAYED;
        let part = if sprayed { &mut self.replica } else { &mut self.shards[usize::from(lane.bucket)] };
        part.as_deref_mut().expect(OWNED).step(nf, lane, decided);
    }

    fn fold(&mut self, nf: &N, last: Lane<'_, N::Meta>, count: u32, first: Nanos) -> bool {
        self.replica.as_deref_mut().is_some_and(|replica| replica.fold(nf, last, count, first))
    }

    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        // Replicas first, and equally far on all cores. How far shards get differs from core to core.
        let more = self.replica.as_deref_mut().is_some_and(|replica| replica.age(nf, now, last));
        self.shards.iter_mut().flatten().any(|shard| shard.age(nf, now, last)) | more
    }

    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        let replica = self.replica().filter(|_| self.core == 0);
        self.shards().chain(replica).flat_map(|part| part.saved(nf, now)).collect()
    }

    fn restore(&mut self, nf: &N, saved: &SavedFlow<N>, hash: u64, bucket: u16, now: Nanos) -> bool {
        self.shards[usize::from(bucket)].as_deref_mut().expect(OWNED).restore(nf, saved, hash, bucket, now)
    }

    /// The counters of the shards that are here now. Core 0 also counts the elephants.
    fn flow_counters(&self) -> FlowCounters {
        let mut total = FlowCounters::default();
        let replica = self.replica().filter(|_| self.core == 0);
        self.shards().chain(replica).for_each(|part| total.add(&part.flow_counters()));
        total
    }

    fn release(&mut self, moves: &Moves<'_, N::Meta>) {
        for Move { number, what } in moves.list {
            let name = (moves.lap, *number);
            match what {
                What::Bucket { bucket, from, .. } if *from == self.core => {
                    let shard = self.shards[usize::from(*bucket)].take().expect(OWNED);
                    self.exchange.park(name, Cargo::Shard(shard), 1);
                }
                // The owner takes the flow in like the others. If it put its own flow in first, replicas would age in different orders, and
                // an expired flow could be reclaimed in one replica and demoted in another.
                What::Promote(one) if one.owner == self.core => {
                    let shard = self.shards[usize::from(one.bucket)].as_mut().expect(OWNED);
                    let carried = shard.take_out(&one.meta.key(), one.hash);
                    self.exchange.park(name, Cargo::Flow(carried), self.cores);
                }
                What::Demote(one) => {
                    let key = one.meta.key();
                    let carried = self.replica.as_mut().and_then(|replica| replica.take_out(&key, one.hash));
                    if let (Some(carried), true) = (carried, one.owner == self.core) {
                        let shard = self.shards[usize::from(one.bucket)].as_mut().expect(OWNED);
                        shard.put_in(&key, one.hash, &carried, moves.time);
                    }
                }
                What::Bucket { .. } | What::Promote(_) => {}
            }
        }
    }

    fn is_ready(&self, moves: &Moves<'_, N::Meta>) -> bool {
        moves
            .list
            .iter()
            .filter(|one| comes(&one.what, self.core))
            .all(|one| self.exchange.holds((moves.lap, one.number)))
    }

    fn wait(&self, moves: &Moves<'_, N::Meta>) -> bool {
        self.exchange.wait(|| self.is_ready(moves))
    }

    fn acquire(&mut self, moves: &Moves<'_, N::Meta>) {
        for Move { number, what } in moves.list.iter().filter(|one| comes(&one.what, self.core)) {
            let name = (moves.lap, *number);
            match what {
                What::Bucket { bucket, .. } => self.shards[usize::from(*bucket)] = self.exchange.take_shard(name),
                What::Promote(one) => {
                    if let (Some(carried), Some(replica)) = (self.exchange.take_flow(name), &mut self.replica) {
                        replica.put_in(&one.meta.key(), one.hash, &carried, moves.time);
                    }
                }
                What::Demote(_) => {}
            }
        }
    }

    fn fail(&mut self) {
        self.exchange.fail();
    }
}

/// True if `core` has to take in state for this move, from another core or from itself.
fn comes<M>(what: &What<M>, core: u16) -> bool {
    match what {
        What::Bucket { to, .. } => *to == core,
        What::Promote(_) => true,
        What::Demote(_) => false,
    }
}
