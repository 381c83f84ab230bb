//! The dispatcher: it stands where a card or a sequencer would, numbers nothing itself, and hands each core its packets
//! and, for replicas, the history.

use std::mem::replace;
use std::sync::Arc;

use nf::{Meta, NetworkFunction, PacketSet, Verdict};
use packet::{Nanos, Seq};
use port::{Batch, Packet};

use crate::balance::{Balancer, Migration};
use crate::carrier::{Shape, Unpack};
use crate::classify::classify;
use crate::elephants::{Change, Elephants, Tracked};
use crate::fleet::Options;
use crate::history::{Block, Boundary, Mouse, Record, Script};
use crate::kind::EngineKind;
use crate::link::Histories;
use crate::moves::{Elephant, Move, What};
use crate::placement::hash_of;
use crate::steering::Steering;

/// What one core gets of one batch.
#[derive(Debug)]
pub struct Parcel<M> {
    /// The core's packets.
    pub batch: Batch,
    /// The records that replicas need of the batch, and what changes cores before it.
    pub block: Option<Arc<Block<M>>>,
    /// What those of the core's packets contribute whose steps no other core takes, if it is handed that.
    pub mice: Vec<Mouse<M>>,
}

impl<M> Default for Parcel<M> {
    fn default() -> Self {
        Self { batch: Batch::default(), block: None, mice: Vec::new() }
    }
}

/// Splits batches among cores.
pub struct Dispatcher<N: NetworkFunction> {
    nf: Arc<N>,
    by_ports: bool,
    /// What hashes are keyed by.
    seed: u64,
    steering: Steering,
    cores: usize,
    /// Whether every core needs every record.
    replicate: bool,
    adaptive: Option<Box<Adaptive<N::Meta>>>,
    /// Blocks that cores may still be reading; those that nobody holds any more are used again.
    blocks: Vec<Arc<Block<N::Meta>>>,
    /// What the packets of the batch at hand contribute. Worked out for all of them first: what was just built in pieces and is then
    /// copied whole has to be waited for.
    seen: Vec<Option<N::Meta>>,
    /// What takes the place of all this where packets come sequenced.
    unpack: Option<Unpack<N>>,
}

/// What makes steering follow the load.
struct Adaptive<M> {
    balancer: Balancer,
    elephants: Option<Elephants<M>>,
    /// Packets until the epoch ends.
    left: u64,
    epoch: u64,
    frozen: bool,
    /// What a core carries, where only as many are in use as that takes.
    core_pps: Option<u64>,
    /// The first packet of the epoch, and its time.
    since: (Seq, Nanos),
    /// The fewest and the most cores that were in use.
    in_use: [usize; 2],
    /// Moves that were ever decided.
    tickets: u64,
    migrations: Vec<Migration>,
    changes: Vec<Change<M>>,
    table: Vec<u16>,
}

/// Where a packet goes.
struct Route<M> {
    meta: Option<M>,
    hash: u64,
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
        let elephants = || (kind == EngineKind::Hybrid).then(|| Elephants::new(cores, buckets, epoch, replay_percent));
        let adaptive = (kind.moves_state() && cores > 1).then(|| {
            Box::new(Adaptive {
                balancer: Balancer::new(cores, buckets),
                elephants: elephants(),
                left: epoch,
                epoch,
                frozen: false,
                core_pps,
                since: (Seq(0), Nanos(0)),
                in_use: [cores; 2],
                tickets: 0,
                migrations: Vec::with_capacity(buckets),
                changes: Vec::with_capacity(buckets),
                table: Vec::with_capacity(buckets),
            })
        });
        Self {
            by_ports: nf.packet_set().has_ports(),
            nf,
            seed,
            steering,
            cores,
            replicate: kind == EngineKind::Scr && cores > 1,
            adaptive,
            blocks: Vec::new(),
            seen: Vec::new(),
            unpack: None,
        }
    }

    /// The same for packets that a sequencer has been at, whose history is what they carry; with `recovery` for cores that
    /// take from each other what they miss.
    #[must_use]
    pub(crate) fn unpacking(self, shape: Shape, recovery: bool) -> Self {
        Self { unpack: Some(Unpack::new(&self.nf, shape, self.seed, recovery)), ..self }
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
        self.herd().map_or(0, <[_]>::len)
    }

    /// How often something changed cores.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.adaptive.as_ref().map_or(0, |adaptive| adaptive.tickets)
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

    /// Hands each packet of `batch` to its core's parcel: lent where it was lent, else copied. The parcels are emptied first.
    pub fn split(&mut self, batch: &Batch, parcels: &mut [Parcel<N::Meta>]) {
        let bytes: usize = batch.packets().iter().map(|packet| packet.len as usize).sum();
        // A packet that is made anew lies behind the others, which keep their places.
        let anew = N::GROWTH.map_or(0, |growth| bytes + growth as usize * batch.len());
        for parcel in parcels.iter_mut() {
            parcel.block = None;
            parcel.mice.clear();
            // Room for the whole batch, so that no later one, steered otherwise, makes a parcel grow.
            parcel.batch.clear_beside(batch, bytes + anew);
        }
        if let Some(unpack) = &mut self.unpack {
            return unpack.split(batch, parcels);
        }
        let mut block = (self.replicate || self.adaptive.is_some()).then(|| self.free_block());
        let mut inner = block.as_mut().and_then(Arc::get_mut);
        if let (Some(block), Some(first), Some(last)) = (&mut inner, batch.packets().first(), batch.packets().last()) {
            (block.time, block.first, block.end) = (first.time, first.seq, last.seq.next());
            block.has_own = true;
            self.decide(first, &mut block.moves);
            block.records.reserve(batch.len());
        }
        self.look(batch);
        let records = inner.map(|block| &mut block.records);
        if self.herd().is_some() {
            parcels.iter_mut().for_each(|parcel| parcel.mice.reserve(batch.len()));
            self.deal::<true>(batch, parcels, records);
        } else {
            self.deal::<false>(batch, parcels, records);
        }
        if let Some(block) = block {
            for parcel in parcels.iter_mut() {
                parcel.block = Some(Arc::clone(&block));
            }
            self.blocks.push(block);
        }
    }

    /// Hands out the packets that were looked at, and where cores need them records; where it tells elephants from mice, those to
    /// their own cores. A loop of its own for that: what is asked of each packet costs a sequencer's packets a tenth.
    #[inline(never)]
    fn deal<const TELLS: bool>(
        &mut self,
        batch: &Batch,
        parcels: &mut [Parcel<N::Meta>],
        mut records: Option<&mut Vec<Record<N::Meta>>>,
    ) {
        for (index, packet) in batch.packets().iter().enumerate() {
            let route = self.route(packet.seq.0, index);
            let parcel = &mut parcels[route.core];
            parcel.batch.push_of(batch, index, route.bucket);
            if let (Some(records), Some(record)) = (&mut records, record_of(packet, &route)) {
                records.push(record);
            }
            if TELLS && let Some(mouse) = mouse_of(packet, &route) {
                parcel.mice.push(mouse);
            }
        }
    }

    /// What the dispatcher would do with the next packets of a trace that is replayed without one: the core and the bucket of
    /// each are added, and to the script what the cores have to know.
    pub fn assign(
        &mut self,
        batch: &Batch,
        cores: &mut Vec<u16>,
        buckets: &mut Vec<u16>,
        script: &mut Script<N::Meta>,
    ) {
        if let Some(first) = batch.packets().first().filter(|first| first.seq > Seq(0)) {
            let mut moves = Vec::new();
            self.decide(first, &mut moves);
            if !moves.is_empty() {
                script.boundaries.push(Boundary { seq: first.seq, time: first.time, moves });
            }
        }
        script.has_own = true;
        if self.herd().is_some() {
            script.mice.resize_with(self.cores, Vec::new);
        }
        self.look(batch);
        for (index, packet) in batch.packets().iter().enumerate() {
            let route = self.route(packet.seq.0, index);
            cores.push(route.core as u16);
            buckets.push(route.bucket);
            script.records.extend(record_of(packet, &route));
            if let Some(mice) = script.mice.get_mut(route.core) {
                mice.extend(mouse_of(packet, &route));
            }
        }
    }

    /// What leads from here back to where `start` stood: for a trace that is replayed over and over.
    #[must_use]
    pub fn back_to(&mut self, start: &Standing<N::Meta>) -> Vec<Move<N::Meta>> {
        let now = self.standing();
        let gone = |from: &Standing<N::Meta>, to: &Standing<N::Meta>| -> Vec<Elephant<N::Meta>> {
            let missing = |one: &&Elephant<N::Meta>| !to.herd.iter().any(|other| other.meta.key() == one.meta.key());
            let owned = |one: &Elephant<N::Meta>| Elephant { owner: now.table[usize::from(one.bucket)], ..*one };
            from.herd.iter().filter(missing).map(owned).collect()
        };
        let demote = gone(&now, start).into_iter().map(What::Demote);
        let promote = gone(start, &now).into_iter().map(What::Promote);
        let buckets = now.table.iter().zip(&start.table).enumerate().filter(|(_, (from, to))| from != to);
        let buckets = buckets.map(|(bucket, (from, to))| What::Bucket { bucket: bucket as u16, from: *from, to: *to });
        let moves: Vec<_> = demote.chain(promote).chain(buckets).collect();
        let first = self.moved();
        moves.into_iter().zip(first..).map(|(what, ticket)| Move { ticket, what }).collect()
    }

    /// Who has what now.
    #[must_use]
    pub fn standing(&self) -> Standing<N::Meta> {
        let table = self.table().to_vec();
        let herd = self.herd().unwrap_or_default();
        Standing { herd: herd.iter().map(|one| elephant(one, &table)).collect(), table }
    }

    /// Steers by this table from now on, for whoever replays what [`assign`](Self::assign) said from the beginning again.
    pub fn stand(&mut self, standing: &Standing<N::Meta>) {
        if let Some(rss) = self.steering.rss_table() {
            for (bucket, core) in standing.table.iter().enumerate() {
                rss.assign(bucket as u16, *core);
            }
        }
    }

    fn herd(&self) -> Option<&[Tracked<N::Meta>]> {
        Some(self.adaptive.as_ref()?.elephants.as_ref()?.herd())
    }

    /// Inlined where the route is taken: one that crosses a call is stored in pieces and read at once, which has to wait for them.
    #[inline(always)]
    fn route(&mut self, seq: u64, index: usize) -> Route<N::Meta> {
        let meta = self.seen[index];
        let key = meta.map(|meta| meta.key());
        let (mut core, mut bucket) = self.steering.steer(seq, key.as_ref());
        let mut route = Route { meta, hash: 0, core, bucket, recorded: self.replicate };
        let Some((meta, key)) = meta.zip(key) else {
            if let Some(adaptive) = &mut self.adaptive {
                adaptive.left = adaptive.left.saturating_sub(1);
            }
            return route;
        };
        if self.replicate {
            route.hash = hash_of::<N>(&key, self.seed);
        }
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.left = adaptive.left.saturating_sub(1);
            if let Some(elephants) = &mut adaptive.elephants {
                route.hash = hash_of::<N>(&key, self.seed);
                if elephants.count(&key, route.hash) {
                    (core, bucket) = ((seq % adaptive.balancer.active() as u64) as usize, Packet::SPRAYED);
                    return Route { core, bucket, recorded: true, ..route };
                }
                elephants.count_mouse(&meta, route.hash, bucket);
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
        if adaptive.left > 0 || adaptive.frozen {
            return;
        }
        adaptive.scale(next);
        rss.use_cores(adaptive.balancer.active());
        let Adaptive { balancer, elephants, left, epoch, tickets, migrations, changes, table, .. } = &mut **adaptive;
        *left = *epoch;
        let mut add = |what| {
            moves.push(Move { ticket: *tickets, what });
            *tickets += 1;
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

    /// Works out what the packets of a batch contribute, where that decides anything.
    fn look(&mut self, batch: &Batch) {
        let Self { nf, by_ports, seen, .. } = self;
        seen.clear();
        seen.resize(batch.len(), None);
        if !self.replicate && !matches!(self.steering, Steering::Hash(_)) {
            return;
        }
        let mut verdict = Verdict::forward();
        for (index, meta) in seen.iter_mut().enumerate() {
            let (packet, bytes) = batch.packet(index);
            if !classify(&**nf, *by_ports, packet, bytes, meta, &mut verdict) {
                *meta = None;
            }
        }
    }

    fn free_block(&mut self) -> Arc<Block<N::Meta>> {
        let free = self.blocks.iter_mut().position(|block| Arc::get_mut(block).is_some());
        let mut block = free.map_or_else(Arc::default, |index| self.blocks.swap_remove(index));
        let inner = Arc::get_mut(&mut block).expect("nobody else holds a free block");
        inner.records.clear();
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

/// Moves at one boundary that a block has room for from the start: all promotions and demotions that there can be, and what buckets
/// an uneven load moves.
const MOVES: usize = 64;

/// Who has what.
#[derive(Clone, Debug)]
pub struct Standing<M> {
    table: Vec<u16>,
    herd: Vec<Elephant<M>>,
}

fn elephant<M: Copy>(one: &Tracked<M>, table: &[u16]) -> Elephant<M> {
    let Tracked { meta, hash, bucket, .. } = *one;
    Elephant { meta, hash, bucket, owner: table[usize::from(bucket)] }
}

#[inline(always)]
fn record_of<M: Copy>(packet: &Packet, route: &Route<M>) -> Option<Record<M>> {
    let meta = route.meta.filter(|_| route.recorded)?;
    Some(Record { seq: packet.seq, time: packet.time, hash: route.hash, meta })
}

/// Of a packet whose step no core takes but its own.
#[inline(always)]
fn mouse_of<M: Copy>(packet: &Packet, route: &Route<M>) -> Option<Mouse<M>> {
    let meta = route.meta.filter(|_| !route.recorded)?;
    Some(Mouse { seq: packet.seq, hash: route.hash, bucket: route.bucket, meta })
}

/// How many packets pass between two looks at the load.
pub const EPOCH: u64 = 16_384;

/// What replaying a record costs of what a packet costs, where nobody has measured it: between the paper's 14 % (table 4, with
/// its dispatch) and what our functions take from memory.
pub(crate) const REPLAY_PERCENT: u32 = 25;
