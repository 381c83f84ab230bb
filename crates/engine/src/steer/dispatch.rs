//! The dispatcher: it stands where a card or a sequencer would, numbers nothing itself, and hands each core its packets
//! and, for replicas, the history.

use std::any::Any;
use std::mem::{replace, take};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use nf::{Meta, NetworkFunction, PacketSet};
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
    /// What hashes are keyed by.
    seed: u64,
    /// Steering as it is now; the router's stays as it was at first.
    steering: Steering,
    router: Arc<Router<N>>,
    cores: usize,
    adaptive: Option<Box<Adaptive<N::Meta>>>,
    /// Blocks that cores may still be reading; those that nobody holds any more are used again.
    blocks: Vec<Arc<Block<N::Meta>>>,
    /// Room for what is found out about the packets of a batch.
    found: Found<N::Meta>,
    /// What takes the place of all this where packets come sequenced.
    unpack: Option<Unpack<N>>,
}

/// What makes steering follow the load.
struct Adaptive<M> {
    balancer: Balancer,
    elephants: Option<Elephants<M>>,
    /// Packets until the epoch ends.
    until_epoch_end: u64,
    epoch: u64,
    frozen: bool,
    /// What a core carries, where only as many are in use as that takes.
    core_pps: Option<u64>,
    /// The first packet of the epoch, and its time.
    since: (Seq, Nanos),
    /// The fewest and the most cores that were in use.
    in_use: [usize; 2],
    /// Moves that were ever decided.
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
    /// Whether replicas need its record.
    recorded: bool,
}

impl<N: NetworkFunction> Dispatcher<N> {
    /// The dispatcher of an engine.
    #[must_use]
    pub fn new(nf: Arc<N>, kind: EngineKind, cores: usize, options: &Options) -> Self {
        let Options { epoch, replay_percent, seed, core_pps, .. } = *options;
        // One core has one table, which packet sets may share what they like in.
        let buckets = if cores == 1 { 1 } else { options.buckets };
        let steering = match kind {
            EngineKind::Sequential => Steering::One,
            EngineKind::Shared if cores == 1 => Steering::One,
            EngineKind::Scr | EngineKind::Shared => Steering::RoundRobin { cores },
            // Packets that belong to no packet set go to any core: no state depends on which.
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
        let sight = match steering {
            _ if replicate || elephants => Sight::Contributions(classifier()),
            Steering::Hash(_) => Sight::Buckets(classifier()),
            Steering::One | Steering::RoundRobin { .. } => Sight::Nothing,
        };
        Self {
            router: Arc::new(Router { sight, steering: steering.clone(), replicate }),
            nf,
            seed,
            steering,
            cores,
            adaptive,
            blocks: Vec::new(),
            found: Found::default(),
            unpack: None,
        }
    }

    /// The same for packets that a sequencer has been at, whose history is what they carry; with `recovery` for cores that
    /// take from each other what they miss.
    #[must_use]
    pub(crate) fn unpacking(self, shape: Shape, recovery: bool) -> Self {
        let unpack = Some(Unpack::new(&self.nf, shape, self.seed, recovery));
        // What arrives is looked at once it is unpacked.
        let router = Router { sight: Sight::Nothing, steering: Steering::One, replicate: true };
        Self { unpack, router: Arc::new(router), ..self }
    }

    /// Where histories are that cores recover from: blocks stay where they are while a core needs them, and what a capture's packets
    /// carry goes with their buffer.
    pub(crate) const fn histories(&self) -> Histories {
        if self.unpack.is_some() { Histories::Copied } else { Histories::Kept }
    }

    /// The core of each bucket, where there are buckets.
    #[must_use]
    pub fn table(&self) -> &[u16] {
        match &self.steering {
            Steering::Hash(rss) => rss.table(),
            Steering::One | Steering::RoundRobin { .. } => &[],
        }
    }

    /// How many packet sets are replicated by themselves now.
    #[must_use]
    pub fn elephants(&self) -> usize {
        self.replicated().map_or(0, <[_]>::len)
    }

    /// How often something changed cores.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.adaptive.as_ref().map_or(0, |adaptive| adaptive.moved)
    }

    /// The fewest and the most cores that were in use, and how many are now, where that follows the load.
    #[must_use]
    pub fn cores_in_use(&self) -> Option<[usize; 3]> {
        let adaptive = self.adaptive.as_ref().filter(|adaptive| adaptive.core_pps.is_some())?;
        let [least, most] = adaptive.in_use;
        // A core without a bucket gets nothing, unless packets are sprayed besides.
        let reach = if adaptive.elephants.is_some() { usize::MAX } else { self.table().len() };
        Some([least, most, adaptive.balancer.active()].map(|cores| cores.min(reach)))
    }

    /// From now on nothing changes cores.
    pub fn freeze(&mut self) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.frozen = true;
        }
    }

    /// What hands out batches on any core and in any order, where steering doesn't follow what came before.
    pub(crate) fn router(&self) -> Option<Arc<Router<N>>> {
        (self.adaptive.is_none() && self.unpack.is_none()).then(|| Arc::clone(&self.router))
    }

    /// What looks at packets ahead of [`deal`](Self::deal), on any core.
    pub(crate) fn any_router(&self) -> Arc<Router<N>> {
        Arc::clone(&self.router)
    }

    /// Hands each packet of `batch` to its core's share: lent where it was lent, else copied. The shares are emptied first.
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

    /// Hands each packet of `batch` to its core's share, by what was found out about it. Batches are dealt in their order.
    pub(crate) fn deal(&mut self, batch: &Batch, found: &Found<N::Meta>, shares: &mut [CoreBatch<N::Meta>]) {
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
        if self.router.sight.is_of_contributions() {
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

    /// What the dispatcher would do with the next packets of a trace that is replayed without one: the core and the bucket of
    /// each are added, and to the script what the cores have to know.
    pub fn assign(
        &mut self,
        batch: &Batch,
        cores: &mut Vec<u16>,
        buckets: &mut Vec<u16>,
        script: &mut TraceHistory<N::Meta>,
    ) {
        if let Some(first) = batch.packets().first().filter(|first| first.seq > Seq(0)) {
            let mut moves = Vec::new();
            self.decide(first, &mut moves);
            if !moves.is_empty() {
                script.boundaries.push(Boundary { seq: first.seq, time: first.time, moves });
            }
        }
        if self.replicated().is_some() {
            script.owned.resize_with(self.cores, Vec::new);
        }
        let mut found = take(&mut self.found);
        self.router.look(batch, &mut found, &mut 0);
        for (index, packet) in batch.packets().iter().enumerate() {
            if !self.router.sight.is_of_contributions() {
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
                script.records.extend(record_of(packet, classified));
            } else if let (Some(owned), Some(meta)) = (script.owned.get_mut(route.core), classified.meta) {
                owned.push(OwnedRecord { seq: packet.seq, hash: classified.hash, bucket: route.bucket, meta });
            }
        }
        self.found = found;
    }

    /// What leads from here back to where `start` stood: for a trace that is replayed over and over.
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

    /// Who has what now.
    #[must_use]
    pub fn snapshot(&self) -> SteeringSnapshot<N::Meta> {
        let table = self.table().to_vec();
        let replicated = self.replicated().unwrap_or_default();
        SteeringSnapshot { replicated: replicated.iter().map(|one| elephant(one, &table)).collect(), table }
    }

    /// Steers by this table from now on, for whoever replays what [`assign`](Self::assign) said from the beginning again.
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

    /// The core of a packet, and the bucket that it is told to go by, where steering goes by its bucket alone.
    fn steer(&mut self, seq: u64, bucket: u16) -> (usize, u16) {
        let set = (bucket != NO_SET).then_some(bucket);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.until_epoch_end = adaptive.until_epoch_end.saturating_sub(1);
            set.into_iter().for_each(|bucket| adaptive.balancer.count(bucket));
        }
        self.steering.steer(seq, set)
    }

    /// Inlined where the route is taken: one that crosses a call is stored in pieces and read at once, which has to wait for them.
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
                elephants.count_mouse(seq, meta, hash, bucket);
            }
            adaptive.balancer.count(bucket);
        }
        route
    }

    /// At the end of an epoch: what changes cores before the next packet.
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
            // A core that is no longer in use leaves all its buckets.
            inner.moves.reserve(MOVES + if adaptive.core_pps.is_some() { self.table().len() } else { 0 });
        }
        block
    }
}

impl<M> Adaptive<M> {
    /// Uses a core more or less, by what came since the epoch began and how long that took.
    fn scale(&mut self, next: &Packet) {
        let Some(pps) = self.core_pps else { return };
        let (first, start) = replace(&mut self.since, (next.seq, next.time));
        let packets = u128::from(next.seq.0 - first.0);
        // What one core carries meanwhile, in billionths of a packet.
        let carried = u128::from(next.time.0.saturating_sub(start.0)) * u128::from(pps);
        let work = (packets * 100 * 1_000_000_000).checked_div(carried).unwrap_or(u128::MAX);
        self.balancer.scale(u64::try_from(work).unwrap_or(u64::MAX));
        let [least, most] = &mut self.in_use;
        (*least, *most) = ((*least).min(self.balancer.active()), (*most).max(self.balancer.active()));
    }
}

/// The look that packets get ahead of their steering.
enum Sight<N> {
    /// None: steering goes by their numbers.
    Nothing,
    /// The look of a card: it finds their buckets. The core that gets a packet parses it.
    Buckets(Classifier<N>),
    /// The whole look: it finds their contributions, which other cores need besides their own.
    Contributions(Classifier<N>),
}

impl<N> Sight<N> {
    const fn is_of_contributions(&self) -> bool {
        matches!(self, Self::Contributions(_))
    }
}

/// The findings of that look about the packets of a batch: buckets or contributions.
pub(crate) struct Found<M> {
    /// Their buckets; [`NO_SET`] for those that belong to no packet set.
    buckets: Vec<u16>,
    /// The contributions. They are worked out for many of them first: what was just built in pieces and is then copied whole has to be waited
    /// for.
    classified: Vec<Classified<M>>,
}

impl<M> Default for Found<M> {
    fn default() -> Self {
        Self { buckets: Vec::new(), classified: Vec::new() }
    }
}

/// Hands out packets by what they are alone. Steering that follows nothing needs no order: any core hands out any batch.
pub(crate) struct Router<N: NetworkFunction> {
    sight: Sight<N>,
    steering: Steering,
    /// Whether every core needs every record.
    replicate: bool,
}

impl<N: NetworkFunction> Router<N> {
    /// Whether every core needs every record.
    pub(crate) const fn replicates(&self) -> bool {
        self.replicate
    }

    /// Looks at all packets of a batch, of which it is at number `at`.
    pub(crate) fn look(&self, batch: &Batch, found: &mut Found<N::Meta>, at: &mut usize) {
        let range = 0..batch.len();
        match &self.sight {
            Sight::Nothing => {}
            Sight::Buckets(classifier) => {
                found.buckets.resize(batch.len(), NO_SET);
                classifier.place(batch, range, &mut found.buckets, at);
            }
            Sight::Contributions(classifier) => {
                classifier.classify(batch, range, places(&mut found.classified, batch.len()), at);
            }
        }
    }

    /// Hands each packet of a batch to its core's share, a burst at a time. The shares are emptied first; `block` is free and gets
    /// what all cores need. It is at packet number `at`: where the function panics on that, those ahead of it are handed out.
    pub(crate) fn deal(
        &self,
        batch: &Batch,
        shares: &mut [CoreBatch<N::Meta>],
        mut block: Option<&mut Arc<Block<N::Meta>>>,
        found: &mut Found<N::Meta>,
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
            panic = match &self.sight {
                Sight::Nothing => {
                    spread(batch, range.start, &[NO_SET; BURST][..range.len()], shares, |seq, _| {
                        self.steering.steer(seq, None)
                    });
                    None
                }
                Sight::Buckets(classifier) => {
                    let Steering::Hash(rss) = &self.steering else { unreachable!("only it goes by buckets") };
                    let mut found = [NO_SET; BURST];
                    let found = &mut found[..range.len()];
                    let panic = caught(&range, at, |at| classifier.place(batch, range.clone(), found, at));
                    let whole = panic.as_ref().map_or(range.len(), |_| *at - range.start);
                    spread(batch, range.start, &found[..whole], shares, |seq, bucket| rss.steer(seq, bucket));
                    panic
                }
                Sight::Contributions(classifier) => {
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

/// Looks at packets, of which `look` tells at which it is.
fn caught(range: &Range<usize>, at: &mut usize, look: impl FnOnce(&mut usize)) -> Option<Panic> {
    *at = range.start;
    catch_unwind(AssertUnwindSafe(|| look(at))).err()
}

/// What a panic says.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Empties shares of a batch. Each has room for the whole of it, so that no later one, steered otherwise, makes it grow.
fn clear<N: NetworkFunction>(batch: &Batch, shares: &mut [CoreBatch<N::Meta>]) {
    let bytes = batch.bytes_max();
    // A packet that is made anew lies behind the others, which keep their places.
    let anew = N::TRANSFORM.map_or(0, |transform| bytes + transform.growth as usize * batch.len());
    for share in shares {
        share.block = None;
        share.begin(batch.len());
        share.batch.clear_beside(batch, bytes + anew);
    }
}

/// Has a free block be about the packets of a batch.
fn begin<M>(block: &mut Block<M>, batch: &Batch) {
    block.records.clear();
    block.moves.clear();
    if let (Some(first), Some(last)) = (batch.packets().first(), batch.packets().last()) {
        (block.time, block.first, block.end) = (first.time, first.seq, last.seq.next());
        block.records.reserve(batch.len());
    }
}

/// Hands out the packets of a batch from number `first` on, with what they contribute: to their cores alone, or to all where they are
/// replicated.
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

/// Hands out the packets of a batch from number `first` on by their buckets alone.
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

/// Moves at one boundary that a block has room for from the start: all promotions and demotions that there can be, and what buckets
/// an uneven load moves.
const MOVES: usize = 64;

/// Which core has which buckets, and which packet sets are replicated.
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
