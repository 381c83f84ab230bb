//! State that all cores share, each entry under a lock of its own (`shared`, for functions whose packet sets share nothing).
//!
//! A step on a known flow locks its entry and nothing else. It works on a copy: a step that asks for what the entry alone
//! can't grant (an end, an earlier deadline, a first answer) is thrown away and taken again under the lock of the stripe,
//! where flows come and go. Nothing has happened by then, for handlers have no effect but on what they are handed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flow::index::AnyIndex;
use flow::shared::{Entries, Entry, Fate, Held};
use flow::{Ageing, Hint, Plan, Slot};
use memory::{Local, LocalTx};
use nf::{Context, Effects, Meta, NetworkFunction, Opened, Reason, Sizing, Verdict};
use packet::{Family, FlowKey, Key, Nanos};

use crate::counters::FlowCounters;
use crate::fleet::FlowState;
use crate::placement::{KeyOf, Lane, Placement, Ticket};
use crate::private::{RECLAIM_PER_PACKET, always, chance};
use crate::striped::Commit;
use crate::tables::{Refusal, Sources, Tables};

/// A core's handle on entries that all cores share.
pub(crate) struct EntryLocked<N: NetworkFunction> {
    common: Arc<Common<N>>,
    /// Packet sets share nothing, so each core may have a nothing of its own.
    shared: N::Shared<Local>,
    core: usize,
    /// Steps until this core ages the next stripe.
    until_round: u32,
    /// The stripe that it ages next.
    hand: usize,
}

struct Common<N: NetworkFunction> {
    v4: Flows<<KeyOf<N> as FlowKey>::V4, N::Flow>,
    v6: Flows<<KeyOf<N> as FlowKey>::V6, N::Flow>,
    seed: u64,
    tables: Tables,
    recording: AtomicBool,
    ticket: AtomicU64,
    /// What each core has recorded.
    records: Box<[Mutex<Vec<Recorded>>]>,
}

/// A step with the number that tells its place among all.
type Recorded = (u64, Commit);

type Flows<K, V> = Entries<K, V, AnyIndex, Own>;
type Stripe<'a, K, V> = Held<'a, K, V, AnyIndex, Own>;

/// What goes with a stripe.
struct Own {
    /// Flows came or went here at this time, so none may come at an earlier one.
    now: Nanos,
    counters: FlowCounters,
    sources: Option<Sources>,
    /// Where the source of each flow is counted, if sources are limited; by the flow's slot.
    origins: Box<[u32]>,
}

/// How many steps a core takes until it ages a stripe. In between, known flows are stepped on without a look at the stripe.
const ROUND: u32 = 32;

impl<N: NetworkFunction> EntryLocked<N> {
    /// Handles for `cores` cores on one table of `sizing` flows.
    pub(crate) fn handles(nf: &N, cores: usize, sizing: Sizing, seed: u64, tables: Tables) -> Vec<Self> {
        let common = Arc::new(Common {
            v4: flows(sizing.flows, seed, tables),
            v6: flows(sizing.flows_v6, seed, tables),
            seed,
            tables,
            recording: AtomicBool::new(false),
            ticket: AtomicU64::new(0),
            records: (0..cores).map(|_| Mutex::default()).collect(),
        });
        let stripes = common.v4.stripes() + common.v6.stripes();
        let handle = |core| Self {
            common: Arc::clone(&common),
            shared: nf.shared(&Local::keyed(seed)),
            core,
            until_round: ROUND,
            // Cores begin apart, so that they don't meet on their rounds.
            hand: core * stripes / cores,
        };
        (0..cores).map(handle).collect()
    }

    /// From now on the steps' order is kept. It grows with every step, and all cores draw its numbers from one place: for
    /// verification alone.
    pub(crate) fn record(&self) {
        // ORDERING: Relaxed. Set before the cores start; starting a thread orders it.
        self.common.recording.store(true, Ordering::Relaxed);
    }

    /// An order of all steps, by time, in which a sequential run takes them alike. A packet set's steps are in the order
    /// in which its entry saw them, and their times never go back; different packet sets share nothing, so between them any
    /// order serves.
    pub(crate) fn commits(&self) -> Vec<Commit> {
        let mut steps: Vec<_> = self.common.records.iter().flat_map(|record| lock(record).clone()).collect();
        steps.sort_unstable_by_key(|(ticket, commit)| (commit.now, *ticket));
        steps.into_iter().map(|(_, commit)| commit).collect()
    }

    /// The flows whose deadline is later than `now`.
    pub(crate) fn flows(&self, now: Nanos) -> Vec<FlowState<N>> {
        let mut flows = Vec::new();
        self.common.v4.each(|entry| {
            flows.push(FlowState {
                key: KeyOf::<N>::from_v4(*entry.key()),
                flow: entry.value,
                deadline: entry.deadline(),
            });
        });
        self.common.v6.each(|entry| {
            flows.push(FlowState {
                key: KeyOf::<N>::from_v6(*entry.key()),
                flow: entry.value,
                deadline: entry.deadline(),
            });
        });
        flows.retain(|state| state.deadline > now);
        flows
    }

    /// What this core has of shared state, which is nothing.
    pub(crate) const fn shared(&self) -> &N::Shared<Local> {
        &self.shared
    }

    /// What happened to flows, on all cores.
    pub(crate) fn all_flow_counters(&self) -> FlowCounters {
        let mut total = FlowCounters::default();
        let Common { v4, v6, .. } = &*self.common;
        (0..v4.stripes()).for_each(|at| v4.nth_stripe(at, |stripe| total.add(&stripe.own().counters)));
        (0..v6.stripes()).for_each(|at| v6.nth_stripe(at, |stripe| total.add(&stripe.own().counters)));
        total
    }

    /// The entries of the tables: flows alive, and flows past their deadline that were not reclaimed yet.
    pub(crate) fn entries(&self) -> usize {
        let mut entries = 0;
        self.common.v4.each(|_| entries += 1);
        self.common.v6.each(|_| entries += 1);
        entries
    }

    /// The most flows that there ever were at once, added up over stripes.
    pub(crate) fn high_water(&self) -> usize {
        self.common.v4.high_water() + self.common.v6.high_water()
    }

    /// The memory of the tables, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.common.v4.memory_bytes() + self.common.v6.memory_bytes()
    }

    /// Ages one stripe of either family, by as many units as the packets since the last time are worth.
    #[cold]
    fn age(&mut self, nf: &N, lane: Lane<'_, N::Meta>) {
        self.until_round = ROUND;
        let Common { v4, v6, .. } = &*self.common;
        let at = self.hand;
        self.hand = (at + 1) % (v4.stripes() + v6.stripes());
        let step = self.stepping(nf, lane);
        let units = ROUND as usize * RECLAIM_PER_PACKET;
        match at.checked_sub(v4.stripes()) {
            None => v4.nth_stripe(at, |stripe| step.reclaim(stripe, units)),
            Some(at) => v6.nth_stripe(at, |stripe| step.reclaim(stripe, units)),
        }
    }

    #[inline(always)]
    fn stepping<'a>(&'a self, nf: &'a N, lane: Lane<'a, N::Meta>) -> Stepping<'a, N> {
        Stepping { nf, lane, common: &self.common, shared: &self.shared, core: self.core }
    }
}

impl<N: NetworkFunction> Placement<N> for EntryLocked<N> {
    fn seed(&self) -> u64 {
        self.common.seed
    }

    #[inline]
    fn prefetch(&self, _: &N, meta: &N::Meta, hash: u64, _: u16) {
        match meta.key().family() {
            Family::V4(_) => self.common.v4.prefetch(hash),
            Family::V6(_) => self.common.v6.prefetch(hash),
        }
    }

    #[inline]
    fn prefetch_entry(&self, _: &N, meta: &N::Meta, hash: u64, _: u16) -> Hint {
        match meta.key().family() {
            Family::V4(_) => self.common.v4.prefetch_entry(hash),
            Family::V6(_) => self.common.v6.prefetch_entry(hash),
        }
    }

    #[inline]
    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict)) {
        self.until_round -= 1;
        if self.until_round == 0 {
            self.age(nf, lane);
        }
        let step = self.stepping(nf, lane);
        // What follows the verdict touches the packet alone, so no lock is held for it.
        settle(&match lane.meta.key().family() {
            Family::V4(key) => step.take(&self.common.v4, key),
            Family::V6(key) => step.take(&self.common.v6, key),
        });
    }

    /// All cores share the flows, so no core counts them as its own.
    fn flow_counters(&self) -> FlowCounters {
        FlowCounters::default()
    }
}

/// One packet's step.
struct Stepping<'a, N: NetworkFunction> {
    nf: &'a N,
    lane: Lane<'a, N::Meta>,
    common: &'a Common<N>,
    shared: &'a N::Shared<Local>,
    core: usize,
}

/// How a flow ended.
#[derive(Clone, Copy)]
enum End {
    Expired,
    Closed,
    Evicted,
}

impl<N: NetworkFunction> Stepping<'_, N> {
    #[inline(always)]
    fn take<K: Key>(&self, flows: &Flows<K, N::Flow>, key: K) -> Verdict {
        let Ticket { hash, hint, .. } = *self.lane.ticket;
        let stepped = flows.step(&key, hash, hint, |entry| self.on_known(entry));
        match stepped.flatten() {
            Some(verdict) => verdict,
            None => flows.stripe(hash, |stripe| self.on_stripe(stripe, key)),
        }
    }

    /// The step on a flow whose entry is locked; `None`, and nothing done, if that is not enough.
    #[inline(always)]
    fn on_known<K: Key>(&self, entry: &mut Entry<K, N::Flow>) -> Option<Verdict> {
        let now = self.lane.now.max(entry.now);
        if entry.deadline() <= now {
            return None;
        }
        let mut flow = entry.value;
        let (verdict, Effects { deadline, close, assured }) = self.packet(&mut flow, now);
        let granted = !close && (entry.assured || !assured) && deadline.is_none_or(|deadline| entry.postpone(deadline));
        if !granted {
            return None;
        }
        entry.value = flow;
        entry.now = now;
        self.commit(now);
        Some(verdict)
    }

    /// The step under the stripe's lock.
    #[inline(never)]
    fn on_stripe<K: Key>(&self, stripe: &mut Stripe<'_, K, N::Flow>, key: K) -> Verdict {
        self.reclaim(stripe, RECLAIM_PER_PACKET);
        let now = stripe.own().now;
        let Some(slot) = stripe.find(&key, self.lane.hash) else { return self.open(stripe, key) };
        let (outcome, last) = stripe.decide(slot, |entry| {
            let now = now.max(entry.now);
            if entry.deadline() <= now {
                return ((Err(entry.value), now), Fate::Goes);
            }
            let (verdict, fate) = self.first_or_later(entry, now);
            ((Ok((verdict, fate, entry.value)), now), fate)
        });
        stripe.own().now = last;
        match outcome {
            Ok((verdict, Fate::Stays, _)) => verdict,
            Ok((verdict, Fate::Goes, flow)) => {
                self.end(stripe, slot, &flow, End::Closed);
                verdict
            }
            Err(flow) => {
                self.end(stripe, slot, &flow, End::Expired);
                self.open(stripe, key)
            }
        }
    }

    fn open<K: Key>(&self, stripe: &mut Stripe<'_, K, N::Flow>, key: K) -> Verdict {
        let now = stripe.own().now;
        let mut cx = self.context(now);
        let flow = match always(self.nf.open(&mut cx, self.lane.meta)) {
            Opened::Flow(flow) => flow,
            Opened::Refused(verdict) => {
                self.commit(now);
                return verdict;
            }
        };
        let effects = cx.effects();
        let origin = match self.admit(stripe) {
            Ok(origin) => origin,
            Err(refusal) => return self.orphan(stripe, &flow, refusal),
        };
        // Making room may have moved the time on.
        let now = stripe.own().now;
        let deadline = effects.deadline.unwrap_or(Nanos::NEVER);
        let inserted = stripe.insert(key, self.lane.hash, (flow, deadline, now), |entry| {
            entry.assured = effects.assured;
            let (verdict, fate) = self.first_or_later(entry, now);
            ((verdict, fate, entry.value), fate)
        });
        let own = stripe.own();
        let Some((slot, (verdict, fate, flow))) = inserted else {
            if let (Some(origin), Some(sources)) = (origin, &mut own.sources) {
                sources.leave(origin);
            }
            return self.orphan(stripe, &flow, Refusal::Full);
        };
        own.counters.opened += 1;
        if let Some(origin) = origin {
            own.origins[slot.index()] = origin;
        }
        if fate == Fate::Goes {
            self.end(stripe, slot, &flow, End::Closed);
        }
        verdict
    }

    /// A step whose effects can all be granted, for the stripe is locked too.
    fn first_or_later<K: Key>(&self, entry: &mut Entry<K, N::Flow>, now: Nanos) -> (Verdict, Fate) {
        // A copy, so that a panic leaves the flow as it was.
        let mut flow = entry.value;
        let (verdict, effects) = self.packet(&mut flow, now);
        entry.value = flow;
        entry.now = now;
        if let Some(deadline) = effects.deadline {
            entry.set_deadline(deadline);
        }
        entry.assured |= effects.assured;
        self.commit(now);
        (verdict, if effects.close { Fate::Goes } else { Fate::Stays })
    }

    /// Makes room for a new flow where that is needed and allowed; where its source is counted.
    fn admit<K: Key>(&self, stripe: &mut Stripe<'_, K, N::Flow>) -> Result<Option<u32>, Refusal> {
        let Tables { eviction, ageing, .. } = self.common.tables;
        let Ticket { hash, seq, .. } = *self.lane.ticket;
        let now = stripe.own().now;
        if ageing == Ageing::Lazy {
            while let Some((slot, entry)) = stripe.bury_near(hash, now) {
                self.end(stripe, slot, &entry.value, End::Expired);
            }
        }
        if self.common.tables.drops_early(stripe.len(), stripe.capacity(), chance(hash, seq)) {
            return Err(Refusal::Early);
        }
        let sources = stripe.own().sources.as_mut();
        let origin = sources.map(|sources| sources.enter(self.lane.meta.source())).transpose()?;
        if stripe.is_full() {
            if let Some((slot, entry)) = stripe.evict(eviction, hash) {
                let how = if entry.deadline() <= now { End::Expired } else { End::Evicted };
                stripe.own().now = now.max(entry.now);
                self.end(stripe, slot, &entry.value, how);
            } else if ageing != Ageing::Wheel
                && let Some((slot, entry)) = stripe.bury_near(hash, now)
            {
                // Where nobody finds the dead they stay although they were answered: the nearest of them may go then.
                self.end(stripe, slot, &entry.value, End::Expired);
            }
        }
        Ok(origin)
    }

    /// Ends flows whose deadline has passed, by so many units of work at most.
    fn reclaim<K: Key>(&self, stripe: &mut Stripe<'_, K, N::Flow>, units: usize) {
        let own = stripe.own();
        own.now = own.now.max(self.lane.now);
        let now = own.now;
        for _ in 0..units {
            match stripe.reclaim(now) {
                Some((slot, entry)) => self.end(stripe, slot, &entry.value, End::Expired),
                None if stripe.is_due(now) => {}
                None => return,
            }
        }
    }

    /// The packet set isn't let in: what opening it took is given back, and the function decides.
    #[cold]
    fn orphan<K: Key>(&self, stripe: &mut Stripe<'_, K, N::Flow>, flow: &N::Flow, refusal: Refusal) -> Verdict {
        let Own { now, counters, .. } = stripe.own();
        match refusal {
            Refusal::Full => counters.orphaned += 1,
            Refusal::Early => counters.early_dropped += 1,
            Refusal::Source => counters.limited += 1,
        }
        self.commit(*now);
        always(self.nf.expire(&mut self.context(*now), flow));
        match always(self.nf.orphan(&mut self.context(*now), self.lane.meta)) {
            Verdict::Drop(Reason::TABLE_FULL) => Verdict::Drop(refusal.reason()),
            verdict => verdict,
        }
    }

    /// Does what there is to do for a flow that is gone already.
    fn end<K: Key>(&self, stripe: &mut Stripe<'_, K, N::Flow>, slot: Slot, flow: &N::Flow, how: End) {
        let Own { now, counters, sources, origins } = stripe.own();
        if let Some(sources) = sources {
            sources.leave(origins[slot.index()]);
        }
        always(self.nf.expire(&mut self.context(*now), flow));
        match how {
            End::Expired => counters.expired += 1,
            End::Closed => counters.closed += 1,
            End::Evicted => counters.evicted += 1,
        }
    }

    #[inline(always)]
    fn packet(&self, flow: &mut N::Flow, now: Nanos) -> (Verdict, Effects) {
        let mut cx = self.context(now);
        let verdict = always(self.nf.packet(&mut cx, flow, self.lane.meta));
        (verdict, cx.effects())
    }

    #[inline(always)]
    fn context(&self, now: Nanos) -> Context<'_, N, Local> {
        Context::new(self.shared, LocalTx::default(), now, self.lane.seq)
    }

    /// Notes the step's place, if that is asked for. The entry's lock is held, or the stripe's where there is no entry.
    #[inline(always)]
    fn commit(&self, now: Nanos) {
        // ORDERING: Relaxed, as in `record`.
        if self.common.recording.load(Ordering::Relaxed) {
            self.note(Commit { seq: self.lane.seq, now });
        }
    }

    #[cold]
    fn note(&self, commit: Commit) {
        // ORDERING: Relaxed. Steps on one entry are ordered by its lock, and so are the numbers that they draw.
        let ticket = self.common.ticket.fetch_add(1, Ordering::Relaxed);
        lock(&self.common.records[self.core]).push((ticket, commit));
    }
}

fn flows<K: Key, V: Copy + Send + 'static>(capacity: usize, seed: u64, tables: Tables) -> Flows<K, V> {
    let plan = Plan { index: tables.index, capacity, load_percent: None, ageing: tables.ageing, seed };
    Entries::cut(plan, Flows::<K, V>::stripes_for(capacity), |slots| Own {
        now: Nanos(0),
        counters: FlowCounters::default(),
        sources: tables.per_source.map(|most| Sources::new(most, slots, seed)),
        origins: Sources::origins(slots, tables.per_source.is_some()),
    })
}

/// A panic inside a step is reported by its own core; the others may finish what they hold.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
