//! State that packet sets share, in memory that cores change by transactions (`transactional`); what a packet set has of its own
//! is sharded, as `rss` does it.
//!
//! A packet's step is one transaction, and so is the end of a flow whose deadline has passed. Handlers work on a copy of the
//! flow, and tables change once a transaction has committed, so one that fails leaves nothing behind.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use flow::index::AnyIndex;
use flow::{Ageing, Entry, Hint, Plan, Slot, Table};
use memory::Transactional;
use memory::transactional::{Collision, Place, Session};
use nf::{
    Context, Effects, Fingerprint, Flow, Function, Meta, NetworkFunction, Opened, Reason, Report, Sizing, Step,
    Verdict, whole_report,
};
use packet::{Family, FlowKey, Key, Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::BURST;
use crate::placement::private::{AGE_UNITS, RECLAIM_PER_PACKET, chance};
use crate::placement::tables::{Refusal, Sources, Tables};
use crate::placement::{FlowState, KeyOf, Lane, Placement, records_are_of_all};

/// A core's handle on the state that all cores share, and its shard of the rest.
pub struct Transacted<N: Function> {
    v4: Flows<<KeyOf<N> as FlowKey>::V4, N::Flow>,
    v6: Flows<<KeyOf<N> as FlowKey>::V6, N::Flow>,
    rest: Rest<N>,
}

struct Flows<K, V> {
    table: Table<K, V, AnyIndex>,
    origins: Box<[u32]>,
}

/// All but the tables, so that a table and the rest can be borrowed at once.
struct Rest<N: Function> {
    common: Arc<Common<N>>,
    own: Own,
    seed: u64,
    tables: Tables,
    sources: Option<Sources>,
    counters: FlowCounters,
    /// How many packets the next transaction takes, where packet sets have no state of their own.
    batch: usize,
    verdicts: Box<[Verdict; BURST]>,
}

/// A core's way to transactions.
struct Own {
    session: Session,
    tally: Transactions,
    order: Order,
}

/// What all cores share.
struct Common<N: Function> {
    memory: Transactional,
    shared: N::Shared<Transactional>,
}

/// What became of transactions.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    /// Those that committed.
    pub committed: u64,
    /// Those that failed and were run again.
    pub aborted: u64,
    /// Those of the committed that had to be given a turn in which nothing else went on.
    pub turns: u64,
    /// Who was in whose way, where that was [recorded](Transacted::profile).
    pub collisions: HashMap<Collision, u64>,
}

/// Whether the order of transactions matters, beyond that there is one.
enum Order {
    Any,
    /// It is written down.
    Recorded(Vec<Place>),
    /// It is this.
    Given(Arc<ReplayOrder>),
}

/// An order of transactions, by their cores, for a run that is to repeat another.
pub struct ReplayOrder {
    cores: Vec<u16>,
    at: AtomicUsize,
    /// The thread of each core that has waited, to be woken when its turn comes.
    waiting: Vec<Mutex<Option<Thread>>>,
}

impl Transactions {
    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.turns += other.turns;
        for (collision, count) in &other.collisions {
            *self.collisions.entry(*collision).or_default() += count;
        }
    }
}

impl ReplayOrder {
    /// The order in which the transactions of `cores` stand, which have been [recorded](Transacted::record).
    pub fn of<'a, N: Function>(cores: impl IntoIterator<Item = &'a Transacted<N>>) -> Arc<Self> {
        let (mut all, mut waiting): (Vec<(Place, usize, usize)>, _) = (Vec::new(), Vec::new());
        for (core, handle) in cores.into_iter().enumerate() {
            waiting.push(Mutex::default());
            if let Order::Recorded(places) = &handle.rest.own.order {
                all.extend(places.iter().enumerate().map(|(nth, place)| (*place, core, nth)));
            }
        }
        all.sort_unstable();
        let cores: Vec<u16> = all.into_iter().map(|(_, core, _)| core as u16).collect();
        Arc::new(Self { cores, at: AtomicUsize::new(0), waiting })
    }

    /// Waits until it is this core's turn.
    ///
    /// # Panics
    /// When nothing happens for long: then the run is not the one that was recorded.
    fn wait(&self, core: usize) {
        for _ in 0..YIELDS {
            if self.is_turn(core) {
                return;
            }
            thread::yield_now();
        }
        *self.waiter(core) = Some(thread::current());
        let (mut last, mut waited) = (self.place(), Duration::ZERO);
        while !self.is_turn(core) {
            // A process that was suspended has waited for one look, not for all that time.
            thread::park_timeout(LOOK);
            waited = if self.place() == last { waited + LOOK } else { Duration::ZERO };
            last = self.place();
            assert!(waited < STALLED, "core {core} waits for a turn that never comes, behind {last}");
        }
    }

    /// Whether it is this core's turn, or nobody's any more.
    fn is_turn(&self, core: usize) -> bool {
        self.cores.get(self.place()).is_none_or(|&next| usize::from(next) == core)
    }

    fn place(&self) -> usize {
        // ORDERING: Acquire, with the release in `pass`: all that came before is seen.
        self.at.load(Ordering::Acquire)
    }

    fn pass(&self) {
        // ORDERING: Release, with `place`. Who begins to wait now and has not left its name yet looks at the place behind the lock that it leaves
        // its name under, and so sees this.
        let next = self.at.fetch_add(1, Ordering::Release) + 1;
        match self.cores.get(next) {
            Some(&core) => self.wake(usize::from(core)),
            None => (0..self.waiting.len()).for_each(|core| self.wake(core)),
        }
    }

    fn wake(&self, core: usize) {
        if let Some(thread) = &*self.waiter(core) {
            thread.unpark();
        }
    }

    fn waiter(&self, core: usize) -> MutexGuard<'_, Option<Thread>> {
        self.waiting[core].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a core looks whether its turn has come before it sleeps.
const YIELDS: usize = 16;
/// How long a run that repeats another may stand still.
const STALLED: Duration = Duration::from_secs(20);
/// How long a core sleeps at most.
const LOOK: Duration = Duration::from_millis(100);

/// How a flow ended.
#[derive(Clone, Copy)]
enum End {
    Expired,
    Closed,
    Evicted,
}

/// What is to become of a new flow, as far as its table is concerned.
#[derive(Clone, Copy)]
enum Admission {
    Refused(Refusal),
    /// There is room, perhaps once this flow is gone.
    Room(Option<Slot>),
}

/// What a new packet set's step has decided.
enum Outset<F> {
    Refused(Verdict),
    Orphaned(Verdict),
    Kept { flow: F, verdict: Verdict, opened: Effects, effects: Effects },
}

impl<N: Function> Transacted<N> {
    /// Handles for `cores` cores, each with tables for `sizing` flows.
    pub(crate) fn handles(nf: &N, cores: usize, sizing: Sizing, seed: u64, tables: Tables) -> Vec<Self> {
        let memory = Transactional::new(cores, seed);
        let sessions = memory.sessions();
        let common = Arc::new(Common { shared: nf.shared(&memory), memory });
        let (flows, flows_v6) = if N::Flow::STORED { (sizing.flows, sizing.flows_v6) } else { (0, 0) };
        let handle = |session| Self {
            v4: Flows::new(flows, seed, tables),
            v6: Flows::new(flows_v6, seed, tables),
            rest: Rest {
                common: Arc::clone(&common),
                own: Own { session, tally: Transactions::default(), order: Order::Any },
                seed,
                tables,
                sources: tables.per_source.map(|most| Sources::new(most, flows + flows_v6, seed)),
                counters: FlowCounters::default(),
                batch: BURST,
                verdicts: Box::new([Verdict::forward(); BURST]),
            },
        };
        sessions.into_iter().map(handle).collect()
    }

    /// From now on the order of transactions is kept, one packet each. It grows with every step: for verification alone.
    pub fn record(&mut self) {
        self.rest.own.order = Order::Recorded(Vec::new());
    }

    /// From now on transactions are in this order. The cores have to be given the packets that they had when it was recorded.
    pub fn repeat(&mut self, baton: &Arc<ReplayOrder>) {
        self.rest.own.order = Order::Given(Arc::clone(baton));
    }

    /// From now on it is kept who was in whose way.
    pub fn profile(&mut self) {
        self.rest.own.session.record(true);
    }

    /// What became of this core's transactions.
    pub const fn transactions(&self) -> &Transactions {
        &self.rest.own.tally
    }

    /// The digest of what all packet sets share.
    pub fn fingerprint(&mut self, nf: &N) -> Fingerprint {
        let Rest { common, own, .. } = &mut self.rest;
        own.transact(common, Nanos(0), Seq(0), |cx| {
            let mut fingerprint = Fingerprint::default();
            nf.fingerprint(cx.shared, &mut cx.tx, &mut fingerprint)?;
            Ok(fingerprint)
        })
    }

    /// What the function has to tell at `now` of flows and of what packet sets share. Nobody else may be at it: what is recorded or told of
    /// transactions knows nothing of this one.
    pub(crate) fn whole_report(&mut self, nf: &N, of_flows: Option<&Report>, now: Nanos) -> Option<Report> {
        let Rest { common, own, .. } = &mut self.rest;
        let (order, tally) = (std::mem::replace(&mut own.order, Order::Any), own.tally.clone());
        let report = own.transact(common, now, Seq(0), |cx| whole_report(nf, of_flows, cx.shared, &mut cx.tx, now));
        (own.order, own.tally) = (order, tally);
        report
    }

    /// The flows of this shard whose deadline is later than `now`.
    pub fn flows(&self, now: Nanos) -> impl Iterator<Item = FlowState<N>> + '_ {
        let v4 = self.v4.table.iter().map(|(key, flow, deadline)| FlowState {
            key: KeyOf::<N>::from_v4(*key),
            flow: *flow,
            deadline,
        });
        let v6 = self.v6.table.iter().map(|(key, flow, deadline)| FlowState {
            key: KeyOf::<N>::from_v6(*key),
            flow: *flow,
            deadline,
        });
        v4.chain(v6).filter(move |state| state.deadline > now)
    }

    pub(crate) fn entries(&self) -> usize {
        self.v4.table.len() + self.v6.table.len()
    }

    pub(crate) fn high_water(&self) -> usize {
        self.v4.table.high_water() + self.v6.table.high_water()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.v4.table.memory_bytes() + self.v6.table.memory_bytes()
    }
}

impl<K: Key, V: Copy + Send + 'static> Flows<K, V> {
    fn new(capacity: usize, seed: u64, tables: Tables) -> Self {
        let Tables { index, ageing, per_source, .. } = tables;
        let table = Table::planned(Plan { index, capacity, load_percent: None, ageing, seed });
        Self { origins: Sources::origins(table.slots(), per_source.is_some()), table }
    }
}

impl<N: Function> Placement<N> for Transacted<N> {
    const BATCHES: bool = true;

    records_are_of_all!();

    fn seed(&self) -> u64 {
        self.rest.seed
    }

    #[inline]
    fn prefetch(&self, nf: &N, meta: &N::Meta, hash: u64, _: u16) {
        nf.prefetch(&self.rest.common.shared, meta);
        if N::Flow::STORED {
            match meta.key().family() {
                Family::V4(_) => self.v4.table.prefetch(hash),
                Family::V6(_) => self.v6.table.prefetch(hash),
            }
        }
    }

    #[inline]
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64, _: u16) -> Hint {
        nf.prefetch_entry(&self.rest.common.shared, meta);
        if !N::Flow::STORED {
            return Hint::default();
        }
        match meta.key().family() {
            Family::V4(_) => self.v4.table.prefetch_entry(hash),
            Family::V6(_) => self.v6.table.prefetch_entry(hash),
        }
    }

    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict)) {
        match lane.meta.key().family() {
            _ if !N::Flow::STORED => {
                let Rest { common, own, .. } = &mut self.rest;
                settle(&own.transact(common, lane.now, lane.seq, |cx| stateless(nf, cx, lane.meta)));
            }
            Family::V4(key) => self.rest.step(&mut self.v4, nf, key, lane, settle),
            Family::V6(key) => self.rest.step(&mut self.v6, nf, key, lane, settle),
        }
    }

    fn steps<'l>(
        &mut self,
        nf: &N,
        count: usize,
        lane: impl FnMut(usize) -> Lane<'l, N::Meta>,
        settle: impl FnMut(usize, &Verdict),
    ) where
        N::Meta: 'l,
    {
        self.rest.steps(nf, count, lane, settle);
    }

    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        let Self { v4, v6, rest } = self;
        rest.age(v4, nf, now, last) || rest.age(v6, nf, now, last)
    }

    fn flow_counters(&self) -> FlowCounters {
        self.rest.counters
    }
}

/// The step of a function whose packet sets have no state of their own.
#[inline(always)]
fn stateless<N: NetworkFunction>(
    nf: &N,
    cx: &mut Context<'_, N, Transactional>,
    meta: &N::Meta,
) -> Step<Verdict, Transactional> {
    match nf.open(cx, meta)? {
        Opened::Flow(mut flow) => nf.packet(cx, &mut flow, meta),
        Opened::Refused(verdict) => Ok(verdict),
    }
}

impl Own {
    /// Runs `body` as a transaction until it commits.
    #[inline]
    fn transact<N: Function, T>(
        &mut self,
        common: &Common<N>,
        now: Nanos,
        seq: Seq,
        mut body: impl for<'a> FnMut(&mut Context<'a, N, Transactional>) -> Step<T, Transactional>,
    ) -> T {
        if let Order::Given(baton) = &self.order {
            baton.wait(self.session.core());
        }
        for aborts in 0.. {
            let outcome = {
                let mut log = self.session.log(&common.memory);
                let mut cx = Context::new(&common.shared, log.attempt(aborts), now, seq);
                match body(&mut cx) {
                    Ok(value) => cx.tx.commit().map(|place| (value, place)),
                    Err(_) => Err(cx.tx.abort()),
                }
            };
            match outcome {
                Ok((value, place)) => {
                    self.committed(place, aborts, 1);
                    return value;
                }
                Err(collision) => self.failed(collision),
            }
        }
        unreachable!("a turn can't fail")
    }

    #[inline]
    fn committed(&mut self, place: Place, aborts: u32, packets: usize) {
        self.tally.committed += 1;
        self.tally.turns += u64::from(aborts >= memory::transactional::ABORTS_MAX);
        match &mut self.order {
            Order::Any => {}
            Order::Recorded(places) => places.extend((0..packets).map(|_| place)),
            Order::Given(baton) => baton.pass(),
        }
    }

    #[cold]
    fn failed(&mut self, collision: Option<Collision>) {
        self.tally.aborted += 1;
        if let Some(collision) = collision
            && self.session.is_recording()
        {
            *self.tally.collisions.entry(collision).or_default() += 1;
        }
    }
}

impl<N: Function> Rest<N> {
    /// The steps of a burst, several in a transaction as long as those don't fail.
    #[inline(always)]
    fn steps<'l>(
        &mut self,
        nf: &N,
        count: usize,
        mut lane: impl FnMut(usize) -> Lane<'l, N::Meta>,
        mut settle: impl FnMut(usize, &Verdict),
    ) where
        N::Meta: 'l,
    {
        let Self { common, own, batch, verdicts, .. } = self;
        let (mut done, mut aborts) = (0, 0);
        while done < count {
            if let Order::Given(baton) = &own.order {
                baton.wait(own.session.core());
            }
            let together = if let Order::Given(_) = own.order { 1 } else { (*batch).min(count - done) };
            let mut log = own.session.log(&common.memory);
            let mut tx = log.attempt(aborts);
            let mut failed = false;
            for (at, verdict) in (done..).zip(&mut verdicts[..together]) {
                let lane = lane(at);
                let (meta, now, seq) = (lane.meta, lane.now, lane.seq);
                let mut cx = Context::new(&common.shared, tx, now, seq);
                let decided = stateless(nf, &mut cx, meta);
                tx = cx.tx;
                match &decided {
                    Ok(decided) => verdict.set(decided),
                    Err(_) => {
                        failed = true;
                        break;
                    }
                }
            }
            let outcome = if failed { Err(tx.abort()) } else { tx.commit() };
            match outcome {
                Ok(place) => {
                    own.committed(place, aborts, together);
                    (done..).zip(&verdicts[..together]).for_each(|(at, verdict)| settle(at, verdict));
                    done += together;
                    aborts = 0;
                    *batch = (*batch + 1).min(BURST);
                }
                Err(collision) => {
                    own.failed(collision);
                    aborts += 1;
                    *batch = (together / 2).max(1);
                }
            }
        }
    }

    #[inline(always)]
    fn step<K: Key>(
        &mut self,
        flows: &mut Flows<K, N::Flow>,
        nf: &N,
        key: K,
        lane: Lane<'_, N::Meta>,
        settle: impl FnOnce(&Verdict),
    ) {
        for _ in 0..RECLAIM_PER_PACKET {
            let Some(slot) = flows.table.reclaim(lane.now) else { break };
            self.end_alone(flows, nf, slot, lane.now, lane.seq);
        }
        let entry = match flows.table.entry_near(&key, lane.hint, lane.now) {
            Some(entry) => entry,
            None => match self.alive(flows, nf, key, lane) {
                Some(slot) => flows.table.entry(slot, lane.now),
                None => return settle(&self.unknown(flows, nf, key, lane)),
            },
        };
        let (slot, effects) = self.packet(entry, nf, lane, settle);
        if let Some(effects) = effects {
            self.take_effect(flows, slot, effects);
        }
    }

    /// The key's flow, where its hint didn't lead to it. One whose deadline has passed ends here.
    #[inline(never)]
    fn alive<K: Key>(
        &mut self,
        flows: &mut Flows<K, N::Flow>,
        nf: &N,
        key: K,
        lane: Lane<'_, N::Meta>,
    ) -> Option<Slot> {
        let slot = flows.table.find(&key, lane.hash)?;
        if flows.table.deadline(slot) > lane.now {
            return Some(slot);
        }
        self.end_alone(flows, nf, slot, lane.now, lane.seq);
        None
    }

    /// Gives the packet to its flow. What the step asks for and the entry alone can't grant is handed back; a flow's end has been told
    /// already.
    #[inline(always)]
    fn packet<K: Key>(
        &mut self,
        mut entry: Entry<'_, K, N::Flow>,
        nf: &N,
        lane: Lane<'_, N::Meta>,
        settle: impl FnOnce(&Verdict),
    ) -> (Slot, Option<Effects>) {
        let before = *entry.value_mut();
        // Set here rather than handed out: verdicts are large, and to copy one costs as much as a short step.
        let (mut flow, mut verdict, mut asked) = (before, Verdict::forward(), Effects::default());
        self.own.transact(&self.common, lane.now, lane.seq, |cx| {
            flow = before;
            match nf.packet(cx, &mut flow, lane.meta) {
                Ok(ref decided) => verdict.set(decided),
                Err(conflict) => return Err(conflict),
            }
            asked = close(nf, cx, &flow)?;
            Ok(())
        });
        *entry.value_mut() = flow;
        settle(&verdict);
        let Effects { deadline, close, assured } = asked;
        let moved = deadline.is_none_or(|deadline| entry.move_deadline(deadline));
        let granted = moved && !close && (!assured || entry.is_assured());
        (entry.slot(), (!granted).then_some(Effects { deadline, close, assured }))
    }

    /// Does to its table what a flow's step asked for and is not done with every packet.
    #[inline(never)]
    fn take_effect<K: Key>(&mut self, flows: &mut Flows<K, N::Flow>, slot: Slot, effects: Effects) {
        if let Some(deadline) = effects.deadline {
            flows.table.touch(slot, deadline);
        }
        if effects.assured {
            flows.table.assure(slot);
        }
        if effects.close {
            self.remove(flows, slot, End::Closed);
        }
    }

    #[inline(never)]
    fn unknown<K: Key>(&mut self, flows: &mut Flows<K, N::Flow>, nf: &N, key: K, lane: Lane<'_, N::Meta>) -> Verdict {
        if self.tables.ageing == Ageing::Lazy {
            while let Some(dead) = flows.table.dead_near(lane.hash, lane.now) {
                self.end_alone(flows, nf, dead, lane.now, lane.seq);
            }
        }
        let (admission, origin) = self.admission(flows, lane);
        let victim = match admission {
            Admission::Room(victim) => victim.map(|slot| (slot, *flows.table.value(slot))),
            Admission::Refused(_) => None,
        };
        let outset = self.own.transact(&self.common, lane.now, lane.seq, |cx| {
            let mut flow = match nf.open(cx, lane.meta)? {
                Opened::Flow(flow) => flow,
                Opened::Refused(verdict) => return Ok(Outset::Refused(verdict)),
            };
            let opened = cx.next();
            if let Admission::Refused(refusal) = admission {
                nf.expire(cx, &flow)?;
                let verdict = nf.orphan(cx, lane.meta)?;
                let is_full = matches!(verdict, Verdict::Drop(Reason::TABLE_FULL));
                return Ok(Outset::Orphaned(if is_full { Verdict::Drop(refusal.reason()) } else { verdict }));
            }
            if let Some((_, victim)) = &victim {
                nf.expire(cx, victim)?;
                cx.next();
            }
            let verdict = nf.packet(cx, &mut flow, lane.meta)?;
            let effects = close(nf, cx, &flow)?;
            Ok(Outset::Kept { flow, verdict, opened, effects })
        });
        let (kept, verdict) = match outset {
            Outset::Refused(verdict) => (None, verdict),
            Outset::Orphaned(verdict) => {
                if let Admission::Refused(refusal) = admission {
                    self.count(refusal);
                }
                (None, verdict)
            }
            Outset::Kept { flow, verdict, opened, effects } => (Some((flow, opened, effects)), verdict),
        };
        let Some((flow, opened, effects)) = kept else {
            self.leave(origin);
            return verdict;
        };
        if let Some((slot, _)) = victim {
            let how = if flows.table.deadline(slot) <= lane.now { End::Expired } else { End::Evicted };
            self.remove(flows, slot, how);
        }
        self.counters.opened += 1;
        let deadline = opened.deadline.unwrap_or(Nanos::NEVER);
        match flows.table.insert(key, lane.hash, flow, deadline, lane.now) {
            Some(slot) => {
                if let Some(origin) = origin {
                    flows.origins[slot.index()] = origin;
                }
                self.take_effect(flows, slot, Effects { assured: opened.assured | effects.assured, ..effects });
            }
            // The index has no place for it after all: it was there for one packet, and ends as one that made room.
            None => {
                self.leave(origin);
                if !effects.close {
                    self.own.transact(&self.common, lane.now, lane.seq, |cx| nf.expire(cx, &flow));
                }
                self.counters.evicted += 1;
            }
        }
        verdict
    }

    /// What becomes of a new flow, and where its source is counted if it gets in.
    fn admission<K: Key>(&mut self, flows: &Flows<K, N::Flow>, lane: Lane<'_, N::Meta>) -> (Admission, Option<u32>) {
        let Tables { eviction, ageing, .. } = self.tables;
        let table = &flows.table;
        if self.tables.drops_early(table.len(), table.capacity(), chance(lane.hash, lane.seq)) {
            return (Admission::Refused(Refusal::Early), None);
        }
        let origin = match self.sources.as_mut().map(|sources| sources.enter(lane.meta.source())).transpose() {
            Ok(origin) => origin,
            Err(refusal) => return (Admission::Refused(refusal), None),
        };
        if !table.is_full() {
            return (Admission::Room(None), origin);
        }
        let dead = || table.dead_near(lane.hash, lane.now).filter(|_| ageing != Ageing::Wheel);
        let victim = || table.victim(eviction, lane.hash);
        match table.overdue(lane.now).or_else(victim).or_else(dead) {
            Some(victim) => (Admission::Room(Some(victim)), origin),
            None => (Admission::Refused(Refusal::Full), origin),
        }
    }

    fn count(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Full => self.counters.orphaned += 1,
            Refusal::Early => self.counters.early_dropped += 1,
            Refusal::Source => self.counters.limited += 1,
        }
    }

    fn leave(&mut self, origin: Option<u32>) {
        if let (Some(origin), Some(sources)) = (origin, &mut self.sources) {
            sources.leave(origin);
        }
    }

    /// Ends flows whose deadline has passed by `now`; `true` when there was more to do, and some ended.
    fn age<K: Key>(&mut self, flows: &mut Flows<K, N::Flow>, nf: &N, now: Nanos, last: Seq) -> bool {
        let mut some = false;
        for _ in 0..AGE_UNITS {
            match flows.table.reclaim(now) {
                Some(slot) => {
                    self.end_alone(flows, nf, slot, now, last);
                    some = true;
                }
                None if flows.table.is_due(now) => {}
                None => return false,
            }
        }
        some
    }

    /// A flow's end, which is a transaction of its own.
    #[inline(never)]
    fn end_alone<K: Key>(&mut self, flows: &mut Flows<K, N::Flow>, nf: &N, slot: Slot, now: Nanos, seq: Seq) {
        let flow = *flows.table.value(slot);
        self.own.transact(&self.common, now, seq, |cx| nf.expire(cx, &flow));
        self.remove(flows, slot, End::Expired);
    }

    /// Takes a flow away whose end has been told.
    fn remove<K: Key>(&mut self, flows: &mut Flows<K, N::Flow>, slot: Slot, how: End) {
        if let Some(sources) = &mut self.sources {
            sources.leave(flows.origins[slot.index()]);
        }
        flows.table.remove(slot);
        match how {
            End::Expired => self.counters.expired += 1,
            End::Closed => self.counters.closed += 1,
            End::Evicted => self.counters.evicted += 1,
        }
    }
}

/// What a step asked for; the flow's end is told if that is among it.
#[inline(always)]
fn close<N: NetworkFunction>(
    nf: &N,
    cx: &mut Context<'_, N, Transactional>,
    flow: &N::Flow,
) -> Step<Effects, Transactional> {
    let effects = cx.next();
    if effects.close {
        nf.expire(cx, flow)?;
    }
    Ok(effects)
}
