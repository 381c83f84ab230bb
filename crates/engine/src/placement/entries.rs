//! State that all cores share, entry by entry (`shared`, for functions whose packet sets share nothing).
//!
//! A step on a known flow touches its entry and nothing else: under the entry's lock, or, where steps add up, by one atomic
//! operation. It works on a copy: a step that asks for what the entry alone can't grant (an end, an earlier deadline, a first
//! answer, more than a sum holds) is thrown away and taken again under the lock of the stripe, where flows come and go. Nothing
//! has happened by then, for handlers have no effect but on what they are handed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flow::index::AnyIndex;
use flow::shared::{Adding, Entries, EpochMember, Fate, Guard, GuardedEntry, Locking, StepPermit, StripeGuard};
use flow::{Ageing, Hint, Plan, Slot};
use memory::{Local, LocalTx};
use nf::{
    Context, Effects, KeyOf, Meta, NetworkFunction, Report, Sizing, Speed, Sum, Verdict, local_fingerprint,
    local_report,
};
use packet::{Family, FlowKey, Key, Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::lifecycle::{
    AGE_UNITS, End, Ending, FlowStore, Ledger, Lifecycle, OnLocal, Opening, RECLAIM_PER_PACKET, always, tell_end,
};
use crate::placement::shared::{Part, Whole};
use crate::placement::striped::Commit;
use crate::placement::tables::{Sources, Tables};
use crate::placement::{FlowState, Lane, Placement, Ticket, records_are_of_all};

/// A core's handle on entries that all cores share, guarded by `G`.
pub(crate) struct ByEntry<N: NetworkFunction, G: Guarding> {
    common: Arc<Common<N, G>>,
    pass: G::Permit,
    /// Packet sets share nothing, so each core may have a nothing of its own.
    shared: N::Shared<Local>,
    core: usize,
    /// Steps until this core ages the next stripe.
    until_round: u32,
    /// The stripe that it ages next.
    hand: usize,
}

/// How steps are taken on entries that are guarded so.
pub(crate) trait Guarding: Guard {
    /// What each of so many cores steps by, and what the tables know of all.
    fn passes(cores: usize) -> (Vec<Self::Permit>, Self::Epochs);

    /// The step on a flow that is alive at `now`; `None`, and nothing done, if the entry is not enough. It hands the verdict to
    /// `settle`, or says what state the packet found, from which the verdict follows.
    fn step<K: Key, N: NetworkFunction>(
        step: &Stepping<'_, N, Self>,
        entry: &mut GuardedEntry<K, N::Flow, Self::Sum>,
        now: Nanos,
        settle: &mut Option<impl FnOnce(&Verdict)>,
    ) -> Option<Option<N::Flow>>;

    /// Has the entry's value be all that there is.
    fn settle<K: Key, N: NetworkFunction>(nf: &N, entry: &mut GuardedEntry<K, N::Flow, Self::Sum>);
}

impl Guarding for Locking {
    fn passes(cores: usize) -> (Vec<()>, ()) {
        (vec![(); cores], ())
    }

    /// A verdict is large, so it is carried out here, under the lock, rather than handed on.
    #[inline(always)]
    fn step<K: Key, N: NetworkFunction>(
        step: &Stepping<'_, N, Self>,
        entry: &mut GuardedEntry<K, N::Flow>,
        now: Nanos,
        settle: &mut Option<impl FnOnce(&Verdict)>,
    ) -> Option<Option<N::Flow>> {
        let mut flow = entry.value;
        let (verdict, Effects { deadline, close, assured }) = step.packet(&mut flow, now);
        let granted =
            !close && (entry.protected || !assured) && deadline.is_none_or(|deadline| entry.postpone(deadline));
        if !granted {
            return None;
        }
        (entry.value, entry.now) = (flow, now);
        settle.take().into_iter().for_each(|settle| settle(&verdict));
        Some(None)
    }

    #[inline(always)]
    fn settle<K: Key, N: NetworkFunction>(_: &N, _: &mut GuardedEntry<K, N::Flow>) {}
}

impl Guarding for Adding {
    fn passes(cores: usize) -> (Vec<EpochMember>, Self::Epochs) {
        let members = EpochMember::all(cores);
        let epochs = Arc::clone(members.first().expect("there is at least one core").epochs());
        (members, epochs)
    }

    /// The operation may fail and the step be taken again. So the verdict is come to once more behind it, from what is small and at
    /// hand.
    #[inline(always)]
    fn step<K: Key, N: NetworkFunction>(
        step: &Stepping<'_, N, Self>,
        entry: &mut GuardedEntry<K, N::Flow, Self::Sum>,
        now: Nanos,
        _: &mut Option<impl FnOnce(&Verdict)>,
    ) -> Option<Option<N::Flow>> {
        let (nf, mut before) = (step.moment.nf, *entry);
        Self::settle(nf, &mut before);
        let mut after = before.value;
        let (_, Effects { deadline, close, assured }) = step.packet(&mut after, now);
        let granted = !close
            && (entry.protected || !assured)
            && entry.add(N::Speed::amount(step.lane.meta).into(), now, deadline?);
        // Of this only the answer is looked at, and by debug builds the outcome.
        let mut added = entry.value;
        let adds = granted && N::Speed::add(nf, &mut added, &sum(entry));
        debug_assert!(!adds || added == after, "steps add up");
        adds.then_some(Some(before.value))
    }

    #[inline(always)]
    fn settle<K: Key, N: NetworkFunction>(nf: &N, entry: &mut GuardedEntry<K, N::Flow, Self::Sum>) {
        if entry.sum.count > 0 {
            let sum = sum(entry);
            let adds = N::Speed::add(nf, &mut entry.value, &sum);
            debug_assert!(adds, "it was asked when the last of these steps was taken");
            entry.sum = flow::shared::Sum::default();
        }
    }
}

/// What has been added to an entry, as functions see it.
#[inline(always)]
const fn sum<K, V>(entry: &GuardedEntry<K, V, flow::shared::Sum>) -> Sum {
    Sum { count: entry.sum.count, amount: entry.sum.amount, last: entry.now }
}

struct Common<N: NetworkFunction, G: Guarding> {
    v4: Flows<<KeyOf<N> as FlowKey>::V4, N::Flow, G>,
    v6: Flows<<KeyOf<N> as FlowKey>::V6, N::Flow, G>,
    seed: u64,
    recording: AtomicBool,
    ticket: AtomicU64,
    /// What each core has recorded.
    records: Box<[Mutex<Vec<Recorded>>]>,
}

/// A step with the number that tells its place among all.
type Recorded = (u64, Commit);

type Flows<K, V, G> = Entries<K, V, AnyIndex, Own, G>;
type Stripe<'a, K, V, G> = StripeGuard<'a, K, V, AnyIndex, Own, G>;

/// What goes with a stripe.
struct Own {
    /// Flows came or went here at this time, so none may come at an earlier one.
    now: Nanos,
    ledger: Ledger,
    /// Where the source of each flow is counted, if sources are limited; by the flow's slot.
    origins: Box<[u32]>,
}

/// How many steps a core takes until it ages a stripe. In between, known flows are stepped on without a look at the stripe.
const ROUND: u32 = 32;

impl<N: NetworkFunction, G: Guarding> ByEntry<N, G> {
    /// Handles for `cores` cores on one table of `sizing` flows.
    pub(crate) fn handles(nf: &N, cores: usize, sizing: Sizing, seed: u64, tables: Tables) -> Vec<Self> {
        let (passes, epochs) = G::passes(cores);
        let common = Arc::new(Common {
            v4: flows(sizing.flows, seed, tables, epochs.clone()),
            v6: flows(sizing.flows_v6, seed, tables, epochs),
            seed,
            recording: AtomicBool::new(false),
            ticket: AtomicU64::new(0),
            records: (0..cores).map(|_| Mutex::default()).collect(),
        });
        let stripes = common.v4.stripes() + common.v6.stripes();
        let handle = |(core, pass)| Self {
            common: Arc::clone(&common),
            pass,
            shared: nf.shared(&Local::keyed(seed)),
            core,
            until_round: ROUND,
            // Cores begin apart, so that they don't meet on their rounds.
            hand: core * stripes / cores,
        };
        passes.into_iter().enumerate().map(handle).collect()
    }

    /// An order of all steps, by time, in which a sequential run takes them alike. A packet set's steps are in the order
    /// in which its entry saw them, and their times never go back; different packet sets share nothing, so between them any
    /// order serves.
    fn commits(&self) -> Vec<Commit> {
        let mut steps: Vec<_> = self.common.records.iter().flat_map(|record| lock(record).clone()).collect();
        steps.sort_unstable_by_key(|(ticket, commit)| (commit.now, *ticket));
        steps.into_iter().map(|(_, commit)| commit).collect()
    }

    /// Ages one stripe of either family, by as many units as the packets since the last time are worth.
    #[cold]
    fn go_round(&mut self, nf: &N, now: Nanos, seq: Seq) {
        self.until_round = ROUND;
        self.pass.leave();
        self.age_next(nf, now, seq, ROUND as usize * RECLAIM_PER_PACKET);
    }

    /// Ages the next stripe by so many units at most; `true` when there is more to do there.
    fn age_next(&mut self, nf: &N, now: Nanos, seq: Seq, units: usize) -> bool {
        let Common { v4, v6, .. } = &*self.common;
        let at = self.hand;
        self.hand = (at + 1) % (v4.stripes() + v6.stripes());
        let moment = self.moment(nf, now, seq);
        match at.checked_sub(v4.stripes()) {
            None => v4.nth_stripe(at, |stripe| moment.reclaim(stripe, units)),
            Some(at) => v6.nth_stripe(at, |stripe| moment.reclaim(stripe, units)),
        }
    }

    /// The step under the lock of the stripe.
    #[inline(never)]
    fn on_stripe(&mut self, nf: &N, lane: Lane<'_, N::Meta>) -> Verdict {
        // Who waits for a stripe is not in a burst.
        self.pass.leave();
        let step = self.stepping(nf, lane);
        match lane.meta.key().family() {
            Family::V4(key) => self.common.v4.stripe(lane.hash, |stripe| step.on_stripe(stripe, key)),
            Family::V6(key) => self.common.v6.stripe(lane.hash, |stripe| step.on_stripe(stripe, key)),
        }
    }

    #[inline(always)]
    fn stepping<'a>(&'a self, nf: &'a N, lane: Lane<'a, N::Meta>) -> Stepping<'a, N, G> {
        Stepping { lane, moment: self.moment(nf, lane.now, lane.seq) }
    }

    #[inline(always)]
    fn moment<'a>(&'a self, nf: &'a N, now: Nanos, seq: Seq) -> Moment<'a, N, G> {
        Moment { nf, now, seq, common: &self.common, shared: &self.shared, core: self.core }
    }
}

impl<N: NetworkFunction, G: Guarding> Placement<N> for ByEntry<N, G> {
    records_are_of_all!();

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
            self.go_round(nf, lane.now, lane.seq);
        }
        self.pass.enter();
        let step = self.stepping(nf, lane);
        let mut settle = Some(settle);
        let known = match lane.meta.key().family() {
            Family::V4(key) => step.take(&self.common.v4, &self.pass, key, &mut settle),
            Family::V6(key) => step.take(&self.common.v6, &self.pass, key, &mut settle),
        };
        let Some(settle) = settle else { return };
        match known {
            Some((mut flow, now)) => settle(&step.packet(&mut flow, now).0),
            None => settle(&self.on_stripe(nf, lane)),
        }
    }

    #[inline]
    fn rest(&mut self) {
        self.pass.leave();
    }

    /// Every core ages all stripes: others may be long at their packets.
    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        self.pass.leave();
        let stripes = self.common.v4.stripes() + self.common.v6.stripes();
        (0..stripes).any(|_| self.age_next(nf, now, last, AGE_UNITS))
    }

    fn fail(&mut self) {
        self.pass.leave();
    }

    /// All cores share the flows, so no core counts them as its own.
    fn flow_counters(&self) -> FlowCounters {
        FlowCounters::default()
    }
}

impl<N: NetworkFunction, G: Guarding> Whole<N> for ByEntry<N, G> {
    /// All cores draw the steps' numbers from one place.
    fn record(&self) {
        // ORDERING: Relaxed. Set before the cores start; starting a thread orders it.
        self.common.recording.store(true, Ordering::Relaxed);
    }

    fn parts(&self, nf: &N, now: Nanos) -> Vec<Part<N>> {
        let shared = self.own_fingerprint(nf).into_iter().collect();
        vec![Part { commits: self.commits(), flows: self.flows(nf, now), shared }]
    }

    fn own_fingerprint(&self, nf: &N) -> Option<u64> {
        Some(local_fingerprint(nf, &self.shared).value())
    }

    fn flows(&self, nf: &N, now: Nanos) -> Vec<FlowState<N>> {
        fn of<N: NetworkFunction, K: Key, G: Guarding>(
            flows: &Flows<K, N::Flow, G>,
            nf: &N,
            name: fn(K) -> KeyOf<N>,
        ) -> Vec<FlowState<N>> {
            let mut states = Vec::new();
            flows.each(|mut entry| {
                G::settle(nf, &mut entry);
                states.push(FlowState { key: name(*entry.key()), flow: entry.value, deadline: entry.deadline() });
            });
            states
        }
        let Common { v4, v6, .. } = &*self.common;
        let mut flows = of::<N, _, G>(v4, nf, KeyOf::<N>::from_v4);
        flows.extend(of::<N, _, G>(v6, nf, KeyOf::<N>::from_v6));
        flows.retain(|state| state.deadline > now);
        flows
    }

    fn report(&self, nf: &N, flows: &nf::FlowList<'_, N>) -> Option<Report> {
        local_report(nf, flows, &self.shared)
    }

    fn all_flow_counters(&self) -> FlowCounters {
        let mut total = FlowCounters::default();
        let Common { v4, v6, .. } = &*self.common;
        (0..v4.stripes()).for_each(|at| v4.nth_stripe(at, |stripe| total.add(&stripe.own().ledger.counters)));
        (0..v6.stripes()).for_each(|at| v6.nth_stripe(at, |stripe| total.add(&stripe.own().ledger.counters)));
        total
    }

    fn entries(&self) -> usize {
        self.common.v4.flows() + self.common.v6.flows()
    }

    fn high_water(&self) -> usize {
        self.common.v4.high_water() + self.common.v6.high_water()
    }

    fn memory_bytes(&self) -> usize {
        self.common.v4.memory_bytes() + self.common.v6.memory_bytes()
    }
}

/// One packet's step.
pub(crate) struct Stepping<'a, N: NetworkFunction, G: Guarding> {
    lane: Lane<'a, N::Meta>,
    moment: Moment<'a, N, G>,
}

/// The moment at which something happens to flows, as handlers are told it: the time, the packet's number, and the core's memory.
struct Moment<'a, N: NetworkFunction, G: Guarding> {
    nf: &'a N,
    now: Nanos,
    seq: Seq,
    common: &'a Common<N, G>,
    shared: &'a N::Shared<Local>,
    core: usize,
}

/// What became of a flow that was known to its stripe.
enum Found<V> {
    Stays(Verdict),
    /// The function closed it and was told so; it is out of the table.
    Closed(Verdict),
    /// Its deadline had passed; it is out of the table, and the function is still to be told.
    Expired(Ending<V>),
}

/// A stripe whose lock is held, while flows are opened and ended in it.
struct LockedStripe<'s, 'a, K: Key, N: NetworkFunction, G: Guarding> {
    stripe: &'s mut Stripe<'a, K, N::Flow, G>,
    moment: &'s Moment<'s, N, G>,
}

impl<N: NetworkFunction, G: Guarding> Stepping<'_, N, G> {
    /// The step without the stripe's lock. Where it was taken and its verdict is still to be settled: the state that the packet found,
    /// and the time that the step went by.
    #[inline(always)]
    fn take<K: Key>(
        &self,
        flows: &Flows<K, N::Flow, G>,
        pass: &G::Permit,
        key: K,
        settle: &mut Option<impl FnOnce(&Verdict)>,
    ) -> Option<(N::Flow, Nanos)> {
        let Ticket { hash, hint, .. } = *self.lane.ticket;
        let (flow, now, number) = flows.step(pass, &key, hash, hint, |entry| {
            let now = self.lane.now.max(entry.now);
            if entry.deadline() <= now {
                return None;
            }
            let flow = G::step(self, entry, now, settle)?;
            // Whoever steps on this entry behind this step draws a higher one.
            Some((flow, now, self.moment.draw()))
        })?;
        if let Some(number) = number {
            self.moment.note(number, now);
        }
        flow.map(|flow| (flow, now))
    }

    /// The step under the stripe's lock.
    #[inline(never)]
    fn on_stripe<K: Key>(&self, stripe: &mut Stripe<'_, K, N::Flow, G>, key: K) -> Verdict {
        self.moment.reclaim(stripe, RECLAIM_PER_PACKET);
        let now = stripe.own().now;
        let found = stripe.find(&key, self.lane.hash).map(|slot| (slot, self.decide(stripe, slot, now)));
        let ticket = Ticket { now: stripe.own().now, ..*self.lane.ticket };
        let lane = Lane { ticket: &ticket, ..self.lane };
        let mut lifecycle = self.moment.lifecycle(stripe);
        match found {
            Some((_, Found::Stays(verdict))) => verdict,
            Some((slot, Found::Closed(verdict))) => {
                lifecycle.forget(slot, End::Closed);
                verdict
            }
            Some((_, Found::Expired(ending))) => {
                lifecycle.end(&ending, (lane.now, lane.seq), End::Expired);
                lifecycle.open(key, lane)
            }
            None => lifecycle.open(key, lane),
        }
    }

    /// Takes the step on a flow that is known to its stripe, if it is alive. All effects can be granted, for the stripe is locked too.
    fn decide<K: Key>(&self, stripe: &mut Stripe<'_, K, N::Flow, G>, slot: Slot, now: Nanos) -> Found<N::Flow> {
        let (found, last) = stripe.decide(slot, |entry| {
            G::settle(self.moment.nf, entry);
            let now = now.max(entry.now);
            if entry.deadline() <= now {
                return ((Found::Expired(ending(slot, entry)), now), Fate::Goes);
            }
            // A copy, so that a panic leaves the flow as it was.
            let mut flow = entry.value;
            let mut cx = self.moment.context(now);
            let verdict = always(self.moment.nf.packet(&mut cx, &mut flow, self.lane.meta));
            let effects = always(tell_end(self.moment.nf, &mut cx, &flow));
            (entry.value, entry.now) = (flow, now);
            if let Some(deadline) = effects.deadline {
                entry.set_deadline(deadline);
            }
            entry.protected |= effects.assured;
            self.moment.commit(now);
            match effects.close {
                true => ((Found::Closed(verdict), now), Fate::Goes),
                false => ((Found::Stays(verdict), now), Fate::Changes),
            }
        });
        stripe.own().now = last;
        found
    }

    #[inline(always)]
    fn packet(&self, flow: &mut N::Flow, now: Nanos) -> (Verdict, Effects) {
        let mut cx = self.moment.context(now);
        let verdict = always(self.moment.nf.packet(&mut cx, flow, self.lane.meta));
        (verdict, cx.effects())
    }
}

impl<N: NetworkFunction, G: Guarding> Moment<'_, N, G> {
    /// Ends flows whose deadline has passed, by so many units of work at most; `true` when there was more, and some ended.
    fn reclaim<K: Key>(&self, stripe: &mut Stripe<'_, K, N::Flow, G>, units: usize) -> bool {
        let own = stripe.own();
        own.now = own.now.max(self.now);
        let now = own.now;
        self.lifecycle(stripe).reclaim(now, self.seq, units)
    }

    /// What opens and ends flows in a stripe whose lock is held.
    fn lifecycle<'s, 'a, K: Key>(
        &'s self,
        stripe: &'s mut Stripe<'a, K, N::Flow, G>,
    ) -> Lifecycle<'s, N, LockedStripe<'s, 'a, K, N, G>, OnLocal<'s, N>> {
        Lifecycle { nf: self.nf, store: LockedStripe { stripe, moment: self }, runner: OnLocal(self.shared) }
    }

    #[inline(always)]
    fn context(&self, now: Nanos) -> Context<'_, N, Local> {
        Context::new(self.shared, LocalTx::default(), now, self.seq)
    }

    /// Notes the step's place, if that is asked for. The stripe's lock is held.
    fn commit(&self, now: Nanos) {
        if let Some(number) = self.draw() {
            self.note(number, now);
        }
    }

    /// The step's number among all, if that is asked for. Drawn between the last look at the entry and the change to it, so that steps on
    /// one entry have theirs in order.
    #[inline(always)]
    fn draw(&self) -> Option<u64> {
        // ORDERING: Relaxed, as in `record`.
        let asked = self.common.recording.load(Ordering::Relaxed);
        // ORDERING: Relaxed. Steps on one entry are ordered by its guard, and so are the numbers that they draw.
        asked.then(|| self.common.ticket.fetch_add(1, Ordering::Relaxed))
    }

    #[cold]
    fn note(&self, number: u64, now: Nanos) {
        lock(&self.common.records[self.core]).push((number, Commit { seq: self.seq, now }));
    }
}

impl<K: Key, N: NetworkFunction, G: Guarding> LockedStripe<'_, '_, K, N, G> {
    /// The end of a flow that has just been taken out, with all that steps have added to it.
    fn taken(&self, (slot, mut entry): (Slot, GuardedEntry<K, N::Flow, G::Sum>)) -> Ending<N::Flow> {
        G::settle(self.moment.nf, &mut entry);
        ending(slot, &entry)
    }
}

/// Takes a flow out once it is to go, as other cores could step on it otherwise.
impl<K: Key, N: NetworkFunction, G: Guarding> FlowStore<N::Flow> for LockedStripe<'_, '_, K, N, G> {
    type Key = K;

    fn len(&self) -> usize {
        self.stripe.len()
    }

    fn capacity(&self) -> usize {
        self.stripe.capacity()
    }

    fn is_full(&self) -> bool {
        self.stripe.is_full()
    }

    fn ledger(&mut self) -> &mut Ledger {
        &mut self.stripe.own().ledger
    }

    fn origin(&mut self, slot: Slot) -> &mut u32 {
        &mut self.stripe.own().origins[slot.index()]
    }

    fn reclaim(&mut self, now: Nanos) -> Option<Ending<N::Flow>> {
        self.stripe.reclaim(now).map(|taken| self.taken(taken))
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.stripe.is_due(now)
    }

    fn dead_near(&mut self, hash: u64, now: Nanos) -> Option<Ending<N::Flow>> {
        self.stripe.remove_expired_near(hash, now).map(|taken| self.taken(taken))
    }

    fn victim(&mut self, hash: u64, now: Nanos) -> Option<Ending<N::Flow>> {
        let Tables { eviction, ageing, .. } = self.ledger().options;
        if let Some(taken) = self.stripe.evict(eviction, hash) {
            let own = self.stripe.own();
            own.now = own.now.max(taken.1.now);
            return Some(self.taken(taken));
        }
        // Where nobody finds the dead they stay although they were answered: the nearest of them may go then.
        if ageing == Ageing::Wheel { None } else { self.dead_near(hash, now) }
    }

    /// It was taken out when it was found.
    fn remove(&mut self, _: Slot) {}

    fn insert(&mut self, key: K, hash: u64, opening: Opening<N::Flow>, now: Nanos) -> Option<Slot> {
        let Opening { flow, deadline, assured } = opening;
        self.stripe.insert(key, hash, (flow, deadline, now), assured)
    }

    fn decided(&mut self, seq: Seq, now: Nanos) {
        debug_assert_eq!(seq, self.moment.seq, "a moment is one packet's");
        self.moment.commit(now);
    }
}

fn ending<K, V: Copy, S>(slot: Slot, entry: &GuardedEntry<K, V, S>) -> Ending<V> {
    Ending { slot, flow: entry.value, deadline: entry.deadline(), last: entry.now }
}

fn flows<K: Key, V: Copy + Send + Sync + 'static, G: Guarding>(
    capacity: usize,
    seed: u64,
    tables: Tables,
    epochs: G::Epochs,
) -> Flows<K, V, G> {
    let plan = Plan { index: tables.index, capacity, load_percent: None, ageing: tables.ageing, seed };
    let own = |slots| Own {
        now: Nanos(0),
        ledger: Ledger::new(tables, slots, seed),
        origins: Sources::origins(slots, tables.per_source.is_some()),
    };
    Entries::cut(plan, Flows::<K, V, G>::stripes_for(capacity), own, epochs)
}

/// A panic inside a step is reported by its own core; the others may finish what they hold.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
