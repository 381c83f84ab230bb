//! The dispatcher: in place of a card or a sequencer, it gives each core its packets and, for replicas, the history. Packets come numbered.

use std::any::Any;
use std::mem::{replace, take};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use nf::{KeyOf, Meta, NetworkFunction, PacketSet};
use packet::{Nanos, Seq};
use port::{Batch, Packet};

use crate::history::carrier::{Shape, Unpack};
use crate::history::link::Histories;
use crate::history::log::{Block, Boundary, OwnedRecord, Record, TraceHistory};
use crate::history::moves::{Elephant, Move, What};
use crate::kind::EngineKind;
use crate::options::Options;
use crate::placement::BURST;
use crate::steer::balance::{Balancer, Migration};
use crate::steer::classify::{Classified, Classifier, places};
use crate::steer::core_batch::CoreBatch;
use crate::steer::elephants::{Change, Elephants, Tracked};
use crate::steer::steering::{NO_SET, Steering};

/// Splits batches among cores.
pub struct Dispatcher<N: NetworkFunction> {
    nf: Arc<N>,
    /// The hash seed.
    seed: u64,
    /// The current steering. The router keeps the initial one.
    steering: Steering,
    router: Arc<Router<N>>,
    cores: usize,
    adaptive: Option<Box<Adaptive<N::Meta>>>,
    /// Blocks that cores may still be reading. A block that no core holds is used again.
    blocks: Vec<Arc<Block<N::Meta>>>,
    /// Buffers for the classification of a batch.
    found: ClassifiedBatch<N::Meta>,
    /// Unpacks sequenced packets and replaces everything else.
    unpack: Option<Unpack<N>>,
}

/// Adapts steering to the load (`rss++`, `hybrid`).
struct Adaptive<M> {
    balancer: Balancer,
    elephants: Option<Elephants<M>>,
    /// Packets until the epoch ends.
    until_epoch_end: u64,
    epoch: u64,
    frozen: bool,
    /// The packets a second of one core, if the number of cores in use is adapted.
    core_pps: Option<u64>,
    /// The first packet of the epoch, and its time.
    since: (Seq, Nanos),
    /// The fewest and the most cores that were in use.
    in_use: [usize; 2],
    /// The number of moves decided so far.
    moved: u64,
    migrations: Vec<Migration>,
    changes: Vec<Change<M>>,
    table: Vec<u16>,
}

/// Where a packet goes.
#[derive(Clone, Copy)]
struct Route {
    core: usize,
    bucket: u16,
    /// True if all replicas need its record.
    recorded: bool,
}

impl<N: NetworkFunction> Dispatcher<N> {
    /// The dispatcher of an engine.
    #[must_use]
    pub fn new(nf: Arc<N>, kind: EngineKind, cores: usize, options: &Options) -> Self {
        let Options { epoch, replay_percent, seed, core_pps, .. } = *options;
        // A single core has one table, in which packet sets may share anything.
        let buckets = if cores == 1 { 1 } else { options.buckets };
        let steering = match kind {
            EngineKind::Sequential => Steering::One(0),
            EngineKind::Shared | EngineKind::Pipeline if cores == 1 => Steering::One(0),
            EngineKind::Pipeline => Steering::ways(options.cuts.ahead(), cores, buckets),
            EngineKind::Scr | EngineKind::Shared => Steering::RoundRobin { cores },
            // Packets without packet sets may go to any core: no state depends on it.
            EngineKind::Transactional if nf.packet_set() == PacketSet::None => Steering::RoundRobin { cores },
            EngineKind::Rss | EngineKind::RssPlusPlus | EngineKind::Transactional | EngineKind::Hybrid => {
                Steering::rss(cores, buckets)
            }
        };
        let elephants = kind == EngineKind::Hybrid && cores > 1;
        let adaptive = (kind.moves_state() && cores > 1).then(|| {
            Box::new(Adaptive {
                balancer: Balancer::new(cores, buckets),
                elephants: elephants.then(|| Elephants::new(cores, buckets, epoch, replay_percent)),
                until_epoch_end: epoch,
                epoch,
                frozen: false,
                core_pps,
                since: (Seq(0), Nanos(0)),
                in_use: [cores; 2],
                moved: 0,
                migrations: Vec::with_capacity(buckets),
                changes: Vec::with_capacity(buckets),
                table: Vec::with_capacity(buckets),
            })
        });
        let replicate = kind == EngineKind::Scr && cores > 1;
        let classifier = || Classifier::new(Arc::clone(&nf), seed, steering.buckets());
        let classification = match steering {
            _ if replicate || elephants => Classification::Metadata(classifier()),
            Steering::Hash(_) => Classification::Buckets(classifier()),
            Steering::One(_) | Steering::RoundRobin { .. } => Classification::None,
        };
        Self {
            router: Arc::new(Router { classification, steering: steering.clone(), replicate }),
            nf,
            seed,
            steering,
            cores,
            adaptive,
            blocks: Vec::new(),
            found: ClassifiedBatch::default(),
            unpack: None,
        }
    }

    /// Replaces the function by one with the same packet set. No core holds the router.
    pub(crate) fn succeed(&mut self, nf: Arc<N>) {
        let Router { classification, steering, replicate } = &*self.router;
        let classifier = || Classifier::new(Arc::clone(&nf), self.seed, steering.buckets());
        let classification = match classification {
            Classification::None => Classification::None,
            Classification::Buckets(_) => Classification::Buckets(classifier()),
            Classification::Metadata(_) => Classification::Metadata(classifier()),
        };
        self.router = Arc::new(Router { classification, steering: steering.clone(), replicate: *replicate });
        self.nf = nf;
    }

    /// The same for sequenced packets, which carry the history. `recovery` is true if cores copy missing records from each other.
    #[must_use]
    pub(crate) fn unpacking(self, shape: Shape, recovery: bool) -> Self {
        let unpack = Some(Unpack::new(&self.nf, shape, self.seed, recovery));
        // Packets are parsed after they are unpacked.
        let router = Router { classification: Classification::None, steering: Steering::One(0), replicate: true };
        Self { unpack, router: Arc::new(router), ..self }
    }

    /// Where cores find lost records. Blocks stay valid as long as a core needs them; history carried by a capture's packets is gone with
    /// their buffer.
    pub(crate) const fn histories(&self) -> Histories {
        if self.unpack.is_some() { Histories::Copied } else { Histories::InMemory }
    }

    /// The core of each bucket. Empty if there are no buckets.
    #[must_use]
    pub fn table(&self) -> &[u16] {
        match &self.steering {
            Steering::Hash(rss) => rss.table(),
            Steering::One(_) | Steering::RoundRobin { .. } => &[],
        }
    }

    /// The core and the bucket of a packet set before the first packet. The core is `None` where packets of a set come to all cores.
    pub(crate) fn place_of(&self, key: &KeyOf<N>) -> (Option<usize>, u16) {
        match &self.steering {
            Steering::One(core) => (Some(*core), 0),
            Steering::RoundRobin { .. } => (None, 0),
            Steering::Hash(rss) => {
                let bucket = rss.buckets().bucket(key);
                (Some(usize::from(rss.table()[usize::from(bucket)])), bucket)
            }
        }
    }

    /// The number of elephants.
    #[must_use]
    pub fn elephants(&self) -> usize {
        self.replicated().map_or(0, <[_]>::len)
    }

    /// How often state moved between cores.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.adaptive.as_ref().map_or(0, |adaptive| adaptive.moved)
    }

    /// The fewest and the most cores that were in use, and the cores in use now, if the engine adapts them to the load.
    #[must_use]
    pub fn cores_in_use(&self) -> Option<[usize; 3]> {
        let adaptive = self.adaptive.as_ref().filter(|adaptive| adaptive.core_pps.is_some())?;
        let [least, most] = adaptive.in_use;
        // A core without a bucket gets no packets, unless elephants are sprayed.
        let reach = if adaptive.elephants.is_some() { usize::MAX } else { self.table().len() };
        Some([least, most, adaptive.balancer.active()].map(|cores| cores.min(reach)))
    }

    /// Stops all moves from now on.
    pub fn freeze(&mut self) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.frozen = true;
        }
    }

    /// The router that can split batches on any core and in any order. `None` if steering depends on earlier packets.
    pub(crate) fn router(&self) -> Option<Arc<Router<N>>> {
        (self.adaptive.is_none() && self.unpack.is_none()).then(|| Arc::clone(&self.router))
    }

    /// The router that classifies packets ahead of [`deal`](Self::deal), on any core.
    pub(crate) fn any_router(&self) -> Arc<Router<N>> {
        Arc::clone(&self.router)
    }

    /// Puts each packet of `batch` into its core's share: borrowed if the batch's bytes are shared, else copied. Empties the shares first.
    pub fn split(&mut self, batch: &Batch, shares: &mut [CoreBatch<N::Meta>]) {
        let mut found = take(&mut self.found);
        match self.router() {
            Some(router) => {
                let mut block = router.replicate.then(|| self.free_block());
                router.deal(batch, shares, block.as_mut(), &mut found, &mut 0);
                self.blocks.extend(block);
            }
            None => {
                self.router.look(batch, &mut found, &mut 0);
                self.deal(batch, &found, shares);
            }
        }
        self.found = found;
    }

    /// Puts each packet of `batch` into its core's share, by its classification. Batches must come in order.
    pub(crate) fn deal(&mut self, batch: &Batch, found: &ClassifiedBatch<N::Meta>, shares: &mut [CoreBatch<N::Meta>]) {
        clear::<N>(batch, shares);
        if let Some(unpack) = &mut self.unpack {
            return unpack.split(batch, shares);
        }
        let mut block = self.free_block();
        let Some(inner) = Arc::get_mut(&mut block) else { unreachable!("nobody else holds a free block") };
        begin(inner, batch);
        if let Some(first) = batch.packets().first() {
            self.decide(first, &mut inner.moves);
        }
        if self.router.classification.is_metadata() {
            let route = |seq: u64, classified: &Classified<N::Meta>| self.route(seq, classified);
            hand_out(batch, 0, &found.classified[..batch.len()], shares, Some(&mut inner.records), route);
        } else {
            let (Some(adaptive), Steering::Hash(rss)) = (&mut self.adaptive, &self.steering) else {
                unreachable!("what follows nothing is dealt by a router")
            };
            adaptive.until_epoch_end = adaptive.until_epoch_end.saturating_sub(batch.len() as u64);
            let buckets = &found.buckets[..batch.len()];
            let sets = buckets.iter().filter(|bucket| **bucket != NO_SET);
            sets.for_each(|bucket| adaptive.balancer.count(*bucket));
            spread(batch, 0, buckets, shares, |seq, bucket| rss.steer(seq, bucket));
        }
        for share in shares.iter_mut() {
            share.block = Some(Arc::clone(&block));
        }
        self.blocks.push(block);
    }

    /// Steers the next packets of a trace that is replayed without a dispatcher. Adds the core and the bucket of each packet, and the
    /// records and moves to `history`.
    pub fn assign(
        &mut self,
        batch: &Batch,
        cores: &mut Vec<u16>,
        buckets: &mut Vec<u16>,
        history: &mut TraceHistory<N::Meta>,
    ) {
        if let Some(first) = batch.packets().first().filter(|first| first.seq > Seq(0)) {
            let mut moves = Vec::new();
            self.decide(first, &mut moves);
            if !moves.is_empty() {
                history.boundaries.push(Boundary { seq: first.seq, time: first.time, moves });
            }
        }
        if self.replicated().is_some() {
            history.owned.resize_with(self.cores, Vec::new);
        }
        let mut found = take(&mut self.found);
        self.router.look(batch, &mut found, &mut 0);
        for (index, packet) in batch.packets().iter().enumerate() {
            if !self.router.classification.is_metadata() {
                let (core, bucket) = self.steer(packet.seq.0, found.buckets.get(index).copied().unwrap_or(NO_SET));
                cores.push(core as u16);
                buckets.push(bucket);
                continue;
            }
            let classified = &found.classified[index];
            let route = self.route(packet.seq.0, classified);
            cores.push(route.core as u16);
            buckets.push(route.bucket);
            if route.recorded {
                history.records.extend(record_of(packet, classified));
            } else if let (Some(owned), Some(meta)) = (history.owned.get_mut(route.core), classified.meta) {
                owned.push(OwnedRecord { seq: packet.seq, hash: classified.hash, bucket: route.bucket, meta });
            }
        }
        self.found = found;
    }

    /// The moves from the current steering back to `start`, for a trace that is replayed in a loop.
    #[must_use]
    pub fn back_to(&mut self, start: &SteeringSnapshot<N::Meta>) -> Vec<Move<N::Meta>> {
        let now = self.snapshot();
        let gone = |from: &SteeringSnapshot<N::Meta>, to: &SteeringSnapshot<N::Meta>| -> Vec<Elephant<N::Meta>> {
            let missing =
                |one: &&Elephant<N::Meta>| !to.replicated.iter().any(|other| other.meta.key() == one.meta.key());
            let owned = |one: &Elephant<N::Meta>| Elephant { owner: now.table[usize::from(one.bucket)], ..*one };
            from.replicated.iter().filter(missing).map(owned).collect()
        };
        let demote = gone(&now, start).into_iter().map(What::Demote);
        let promote = gone(start, &now).into_iter().map(What::Promote);
        let buckets = now.table.iter().zip(&start.table).enumerate().filter(|(_, (from, to))| from != to);
        let buckets = buckets.map(|(bucket, (from, to))| What::Bucket { bucket: bucket as u16, from: *from, to: *to });
        let moves: Vec<_> = demote.chain(promote).chain(buckets).collect();
        let first = self.moved();
        moves.into_iter().zip(first..).map(|(what, number)| Move { number, what }).collect()
    }

    /// The current table and elephants.
    #[must_use]
    pub fn snapshot(&self) -> SteeringSnapshot<N::Meta> {
        let table = self.table().to_vec();
        let replicated = self.replicated().unwrap_or_default();
        SteeringSnapshot { replicated: replicated.iter().map(|one| elephant(one, &table)).collect(), table }
    }

    /// Restores the table, to replay what [`assign`](Self::assign) returned from the beginning.
    pub fn restore(&mut self, snapshot: &SteeringSnapshot<N::Meta>) {
        if let Some(rss) = self.steering.rss_table() {
            for (bucket, core) in snapshot.table.iter().enumerate() {
                rss.assign(bucket as u16, *core);
            }
        }
    }

    fn replicated(&self) -> Option<&[Tracked<N::Meta>]> {
        Some(self.adaptive.as_ref()?.elephants.as_ref()?.replicated())
    }

    /// The core and the bucket of a packet, if steering only depends on its bucket.
    fn steer(&mut self, seq: u64, bucket: u16) -> (usize, u16) {
        let set = (bucket != NO_SET).then_some(bucket);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.until_epoch_end = adaptive.until_epoch_end.saturating_sub(1);
            set.into_iter().for_each(|bucket| adaptive.balancer.count(bucket));
        }
        self.steering.steer(seq, set)
    }

    /// Chooses the route of a classified packet. Inlined: a route returned from a call would be stored in pieces and read at once, which
    /// stalls.
    #[inline(always)]
    fn route(&mut self, seq: u64, classified: &Classified<N::Meta>) -> Route {
        let Classified { meta, hash, bucket } = classified;
        let (hash, bucket) = (*hash, *bucket);
        let (core, bucket) = self.steering.steer(seq, meta.is_some().then_some(bucket));
        let route = Route { core, bucket, recorded: self.router.replicate };
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.until_epoch_end = adaptive.until_epoch_end.saturating_sub(1);
            let Some(meta) = meta else { return route };
            if let Some(elephants) = &mut adaptive.elephants {
                if elephants.count(&meta.key(), hash) {
                    let (core, bucket) = ((seq % adaptive.balancer.active() as u64) as usize, Packet::SPRAYED);
                    return Route { core, bucket, recorded: true };
                }
                elephants.count_unreplicated(seq, meta, hash, bucket);
            }
            adaptive.balancer.count(bucket);
        }
        route
    }

    /// At the end of an epoch, decides which state moves before packet `next`.
    fn decide(&mut self, next: &Packet, moves: &mut Vec<Move<N::Meta>>) {
        let (Some(adaptive), Some(rss)) = (&mut self.adaptive, self.steering.rss_table()) else { return };
        if next.seq == Seq(0) {
            adaptive.since = (next.seq, next.time);
        }
        if adaptive.until_epoch_end > 0 || adaptive.frozen {
            return;
        }
        adaptive.scale(next);
        rss.use_cores(adaptive.balancer.active());
        let Adaptive { balancer, elephants, until_epoch_end, epoch, moved, migrations, changes, table, .. } =
            &mut **adaptive;
        *until_epoch_end = *epoch;
        let mut add = |what| {
            moves.push(Move { number: *moved, what });
            *moved += 1;
        };
        let active = balancer.active();
        let expected = balancer.end_epoch();
        table.clear();
        table.extend_from_slice(rss.table());
        if let Some(elephants) = elephants {
            elephants.end_epoch(expected, active, changes);
            for change in changes.drain(..) {
                add(match change {
                    Change::Promote(one) => What::Promote(elephant(&one, table)),
                    Change::Demote(one) => What::Demote(elephant(&one, table)),
                });
            }
        }
        balancer.rebalance(table, 0, migrations);
        for &Migration { bucket, from, to } in &*migrations {
            rss.assign(bucket, to);
            add(What::Bucket { bucket, from, to });
        }
    }

    fn free_block(&mut self) -> Arc<Block<N::Meta>> {
        let free = self.blocks.iter_mut().position(|block| Arc::get_mut(block).is_some());
        let mut block = free.map_or_else(Arc::default, |index| self.blocks.swap_remove(index));
        let inner = Arc::get_mut(&mut block).expect("nobody else holds a free block");
        inner.moves.clear();
        if let Some(adaptive) = &self.adaptive {
            // A core that is no longer in use gives up all its buckets.
            inner.moves.reserve(MOVES + if adaptive.core_pps.is_some() { self.table().len() } else { 0 });
        }
        block
    }
}

impl<M> Adaptive<M> {
    /// Adapts the number of cores in use, by the epoch's packets and its length.
    fn scale(&mut self, next: &Packet) {
        let Some(pps) = self.core_pps else { return };
        let (first, start) = replace(&mut self.since, (next.seq, next.time));
        let packets = u128::from(next.seq.0 - first.0);
        // What one core can process in that time, in billionths of a packet.
        let carried = u128::from(next.time.0.saturating_sub(start.0)) * u128::from(pps);
        let work = (packets * 100 * 1_000_000_000).checked_div(carried).unwrap_or(u128::MAX);
        self.balancer.scale(u64::try_from(work).unwrap_or(u64::MAX));
        let [least, most] = &mut self.in_use;
        (*least, *most) = ((*least).min(self.balancer.active()), (*most).max(self.balancer.active()));
    }
}

/// How packets are classified before they are steered.
enum Classification<N> {
    /// Not at all: steering needs only their numbers.
    None,
    /// As a card does: only their buckets. The packet's core parses it.
    Buckets(Classifier<N>),
    /// Fully: other cores need their metadata too.
    Metadata(Classifier<N>),
}

impl<N> Classification<N> {
    const fn is_metadata(&self) -> bool {
        matches!(self, Self::Metadata(_))
    }
}

/// The classification of a batch: buckets or metadata.
pub(crate) struct ClassifiedBatch<M> {
    /// The buckets; [`NO_SET`] for packets without a packet set.
    buckets: Vec<u16>,
    /// The metadata. Computed for many packets before any is copied: a copy right after the fields were written would stall.
    classified: Vec<Classified<M>>,
}

impl<M> Default for ClassifiedBatch<M> {
    fn default() -> Self {
        Self { buckets: Vec::new(), classified: Vec::new() }
    }
}

/// Splits batches without looking at earlier packets, so any core can split any batch.
pub(crate) struct Router<N: NetworkFunction> {
    classification: Classification<N>,
    steering: Steering,
    /// True if every core needs every record.
    replicate: bool,
}

impl<N: NetworkFunction> Router<N> {
    /// True if every core needs every record.
    pub(crate) const fn replicates(&self) -> bool {
        self.replicate
    }

    /// Classifies all packets of a batch. `at` is the packet in work.
    pub(crate) fn look(&self, batch: &Batch, found: &mut ClassifiedBatch<N::Meta>, at: &mut usize) {
        let range = 0..batch.len();
        match &self.classification {
            Classification::None => {}
            Classification::Buckets(classifier) => {
                found.buckets.resize(batch.len(), NO_SET);
                classifier.place(batch, range, &mut found.buckets, at);
            }
            Classification::Metadata(classifier) => {
                classifier.classify(batch, range, places(&mut found.classified, batch.len()), at);
            }
        }
    }

    /// Puts each packet of a batch into its core's share, a burst at a time. Empties the shares first. `block` must be free; it gets the
    /// records that all cores need. `at` is the packet in work. If the function panics on it, the packets before it are in the shares.
    pub(crate) fn deal(
        &self,
        batch: &Batch,
        shares: &mut [CoreBatch<N::Meta>],
        mut block: Option<&mut Arc<Block<N::Meta>>>,
        found: &mut ClassifiedBatch<N::Meta>,
        at: &mut usize,
    ) -> Option<Panic> {
        clear::<N>(batch, shares);
        let mut inner = block.as_mut().and_then(|block| Arc::get_mut(block));
        if let Some(block) = &mut inner {
            begin(block, batch);
        }
        let mut panic = None;
        let mut begin = 0;
        while begin < batch.len() && panic.is_none() {
            let range = begin..batch.len().min(begin + BURST);
            begin = range.end;
            panic = match &self.classification {
                Classification::None => {
                    spread(batch, range.start, &[NO_SET; BURST][..range.len()], shares, |seq, _| {
                        self.steering.steer(seq, None)
                    });
                    None
                }
                Classification::Buckets(classifier) => {
                    let Steering::Hash(rss) = &self.steering else { unreachable!("only it goes by buckets") };
                    let mut found = [NO_SET; BURST];
                    let found = &mut found[..range.len()];
                    let panic = caught(&range, at, |at| classifier.place(batch, range.clone(), found, at));
                    let whole = panic.as_ref().map_or(range.len(), |_| *at - range.start);
                    spread(batch, range.start, &found[..whole], shares, |seq, bucket| rss.steer(seq, bucket));
                    panic
                }
                Classification::Metadata(classifier) => {
                    let found = places(&mut found.classified, range.len());
                    let panic = caught(&range, at, |at| classifier.classify(batch, range.clone(), found, at));
                    let whole = panic.as_ref().map_or(range.len(), |_| *at - range.start);
                    let records = inner.as_mut().map(|block| &mut block.records);
                    hand_out(batch, range.start, &found[..whole], shares, records, |seq, classified| {
                        let bucket = classified.meta.is_some().then_some(classified.bucket);
                        let (core, bucket) = self.steering.steer(seq, bucket);
                        Route { core, bucket, recorded: self.replicate }
                    });
                    panic
                }
            };
        }
        if let Some(block) = block {
            for share in shares.iter_mut() {
                share.block = Some(Arc::clone(block));
            }
        }
        panic
    }
}

/// Calls `look`, which sets `at` to the packet in work, and catches a panic.
fn caught(range: &Range<usize>, at: &mut usize, look: impl FnOnce(&mut usize)) -> Option<Panic> {
    *at = range.start;
    catch_unwind(AssertUnwindSafe(|| look(at))).err()
}

/// The payload of a panic.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Empties shares. Each gets room for the whole batch, so none has to grow later.
fn clear<N: NetworkFunction>(batch: &Batch, shares: &mut [CoreBatch<N::Meta>]) {
    let bytes = batch.bytes_max();
    // New frames go behind the others, which keep their places.
    let anew = N::TRANSFORM.map_or(0, |transform| bytes + transform.growth as usize * batch.len());
    for share in shares {
        share.block = None;
        share.begin(batch.len());
        share.batch.clear_beside(batch, bytes + anew);
    }
}

/// Prepares a free block for the packets of a batch.
fn begin<M>(block: &mut Block<M>, batch: &Batch) {
    block.records.clear();
    block.moves.clear();
    if let (Some(first), Some(last)) = (batch.packets().first(), batch.packets().last()) {
        (block.time, block.first, block.end) = (first.time, first.seq, last.seq.next());
        block.records.reserve(batch.len());
    }
}

/// Puts classified packets, from index `first` on, into their cores' shares. Metadata go to the packet's core, or to the block if replicas
/// need them.
#[inline(always)]
fn hand_out<M: Copy>(
    batch: &Batch,
    first: usize,
    classified: &[Classified<M>],
    shares: &mut [CoreBatch<M>],
    mut records: Option<&mut Vec<Record<M>>>,
    mut route: impl FnMut(u64, &Classified<M>) -> Route,
) {
    for (index, (packet, classified)) in (first..).zip(batch.packets()[first..].iter().zip(classified)) {
        let route = route(packet.seq.0, classified);
        let share = &mut shares[route.core];
        share.batch.push_of(batch, index, route.bucket);
        if route.recorded {
            if let (Some(records), Some(record)) = (&mut records, record_of(packet, classified)) {
                records.push(record);
            }
        } else if let Some(meta) = &classified.meta {
            share.own(packet.seq, classified.hash, route.bucket, meta);
        }
    }
}

/// Puts packets, from index `first` on, into their cores' shares, by their buckets.
#[inline(always)]
fn spread<M>(
    batch: &Batch,
    first: usize,
    buckets: &[u16],
    shares: &mut [CoreBatch<M>],
    steer: impl Fn(u64, u16) -> (usize, u16),
) {
    let shared = batch.shared_len();
    for (index, (packet, bucket)) in (first..).zip(batch.packets()[first..].iter().zip(buckets)) {
        let (core, bucket) = steer(packet.seq.0, *bucket);
        let share = &mut shares[core].batch;
        if (packet.offset as usize) < shared {
            share.push_lent(packet, bucket);
        } else {
            share.push_of(batch, index, bucket);
        }
    }
}

/// How many moves a block has room for at first: all possible promotions and demotions, and the buckets that an uneven load moves.
const MOVES: usize = 64;

/// The core of each bucket, and the replicated packet sets.
#[derive(Clone, Debug)]
pub struct SteeringSnapshot<M> {
    table: Vec<u16>,
    replicated: Vec<Elephant<M>>,
}

fn elephant<M: Copy>(one: &Tracked<M>, table: &[u16]) -> Elephant<M> {
    let Tracked { meta, hash, bucket, .. } = *one;
    Elephant { meta, hash, bucket, owner: table[usize::from(bucket)] }
}

#[inline(always)]
fn record_of<M: Copy>(packet: &Packet, classified: &Classified<M>) -> Option<Record<M>> {
    let meta = classified.meta?;
    Some(Record { seq: packet.seq, time: packet.time, hash: classified.hash, meta })
}
