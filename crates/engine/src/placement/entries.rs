//! State in one table that all cores share, guarded entry by entry (`shared`, for functions whose packet sets share nothing).
//!
//! A step on a known flow touches only the flow's entry, under the entry's guard: a lock, or (`adding.rs`) one atomic operation. It works
//! on a copy. Some effects need more than the entry: an end, an earlier deadline, the first `assure`, a full sum. Then the copy is thrown
//! away and the step runs again under the lock of the stripe, where flows come and go. That is safe because handlers only change what they
//! are handed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flow::index::AnyIndex;
use flow::shared::{Entries, Fate, Guard, GuardedEntry, Locking, StepPermit, StripeGuard};
use flow::{Ageing, Hint, Plan, Slot};
use memory::{Local, LocalTx};
use nf::{
    Context, Effects, FlowList, KeyOf, Meta, NetworkFunction, PacketCounts, Report, Sizing, Verdict, local_fingerprint,
    local_report,
};
use packet::{Family, FlowKey, Key, Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::lifecycle::{
    AGE_UNITS, End, Ending, FlowStore, Ledger, Lifecycle, OnLocal, Opening, RECLAIM_PER_PACKET, always,
    expire_if_closed,
};
use crate::placement::shared::{Part, Whole};
use crate::placement::striped::Commit;
use crate::placement::tables::{Sources, Tables};
use crate::placement::{FlowState, Lane, Placement, SavedFlow, Ticket, records_are_of_all};

/// A core's handle on the shared entries, guarded by `G`.
pub(crate) struct ByEntry<N: NetworkFunction, G: Guarding> {
    common: Arc<Common<N, G>>,
    pass: G::Permit,
    /// Packet sets share nothing, so each core may have its own empty shared state.
    shared: N::Shared<Local>,
    counts: PacketCounts,
    core: usize,
    /// Steps until this core ages the next stripe.
    until_round: u32,
    /// The stripe that this core ages next.
    next_stripe: usize,
}

/// How a step works on an entry with this guard.
pub(crate) trait Guarding: Guard {
    /// A pass for each core, and the epochs that the tables need for them.
    fn passes(cores: usize) -> (Vec<Self::Permit>, Self::Epochs);

    /// Takes the step on a flow that is alive at `now`. Returns `None`, without any effect, if the step needs the stripe's lock. Otherwise
    /// it calls `decided` with the verdict, or returns the flow as the packet found it; the caller then repeats the step on that copy for
    /// its verdict.
    fn step<K: Key, N: NetworkFunction>(
        step: &Stepping<'_, N, Self>,
        entry: &mut GuardedEntry<K, N::Flow, Self::Sum>,
        now: Nanos,
        decided: &mut Option<impl FnOnce(&Verdict)>,
    ) -> Option<Option<N::Flow>>;

    /// Folds the steps that were added to the entry into its value.
    fn fold_sum_in<K: Key, N: NetworkFunction>(nf: &N, entry: &mut GuardedEntry<K, N::Flow, Self::Sum>);
}

impl Guarding for Locking {
    fn passes(cores: usize) -> (Vec<()>, ()) {
        (vec![(); cores], ())
    }

    /// Calls `decided` under the lock: a verdict is large, and returning it would copy it.
    #[inline(always)]
    fn step<K: Key, N: NetworkFunction>(
        step: &Stepping<'_, N, Self>,
        entry: &mut GuardedEntry<K, N::Flow>,
        now: Nanos,
        decided: &mut Option<impl FnOnce(&Verdict)>,
    ) -> Option<Option<N::Flow>> {
        let mut flow = entry.value;
        let (verdict, Effects { deadline, close, assured }) = step.packet(&mut flow, now);
        let granted =
            !close && (entry.protected || !assured) && deadline.is_none_or(|deadline| entry.postpone(deadline));
        if !granted {
            return None;
        }
        (entry.value, entry.now) = (flow, now);
        step.moment.count();
        decided.take().into_iter().for_each(|decided| decided(&verdict));
        Some(None)
    }

    #[inline(always)]
    fn fold_sum_in<K: Key, N: NetworkFunction>(_: &N, _: &mut GuardedEntry<K, N::Flow>) {}
}

struct Common<N: NetworkFunction, G: Guarding> {
    v4: FlowEntries<<KeyOf<N> as FlowKey>::V4, N::Flow, G>,
    v6: FlowEntries<<KeyOf<N> as FlowKey>::V6, N::Flow, G>,
    seed: u64,
    recording: AtomicBool,
    next_step: AtomicU64,
    /// The steps that each core has recorded.
    records: Box<[Mutex<Vec<Recorded>>]>,
}

/// A step with its number in the order of all steps.
type Recorded = (u64, Commit);

type FlowEntries<K, V, G> = Entries<K, V, AnyIndex, StripeState, G>;
type HeldStripe<'a, K, V, G> = StripeGuard<'a, K, V, AnyIndex, StripeState, G>;

/// The state of a stripe besides its entries.
struct StripeState {
    /// The time at which a flow last came or went here. None may come at an earlier time.
    now: Nanos,
    ledger: Ledger,
    /// Where the source of each flow is counted, if sources are limited; indexed by the flow's slot.
    origins: Box<[u32]>,
}

/// How many steps a core takes before it ages the next stripe. Steps on known flows in between don't touch their stripe.
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
            next_step: AtomicU64::new(0),
            records: (0..cores).map(|_| Mutex::default()).collect(),
        });
        let stripes = common.v4.stripes() + common.v6.stripes();
        let handle = |(core, pass)| Self {
            common: Arc::clone(&common),
            pass,
            shared: nf.shared(&Local::keyed(seed)),
            counts: PacketCounts::attempting(nf.counters()),
            core,
            until_round: ROUND,
            // Cores start at different stripes, so they don't meet on their rounds.
            next_stripe: core * stripes / cores,
        };
        passes.into_iter().enumerate().map(handle).collect()
    }

    /// All steps, by time, in an order in which a sequential run has the same outcome. The steps of one packet set keep the order of its
    /// entry, and their times never go back. Different packet sets share nothing, so any order between them will do.
    fn commits(&self) -> Vec<Commit> {
        let mut steps: Vec<_> = self.common.records.iter().flat_map(|record| lock(record).clone()).collect();
        steps.sort_unstable_by_key(|(number, commit)| (commit.now, *number));
        steps.into_iter().map(|(_, commit)| commit).collect()
    }

    /// Fits the state to `nf`, which succeeds `old`.
    pub(crate) fn adopt(&mut self, nf: &N, old: &N) {
        nf.adopt(old, &mut self.shared, &Local::keyed(self.common.seed));
        self.counts = PacketCounts::attempting(nf.counters());
    }

    /// Ages one stripe, for as many units as the packets since the last time have earned.
    #[cold]
    fn go_round(&mut self, nf: &N, now: Nanos, seq: Seq) {
        self.until_round = ROUND;
        self.pass.leave();
        self.age_next(nf, now, seq, ROUND as usize * RECLAIM_PER_PACKET);
    }

    /// Ages the next stripe, for at most `units` units. Returns true if more is to be done there.
    fn age_next(&mut self, nf: &N, now: Nanos, seq: Seq, units: usize) -> bool {
        let Common { v4, v6, .. } = &*self.common;
        let at = self.next_stripe;
        self.next_stripe = (at + 1) % (v4.stripes() + v6.stripes());
        let moment = self.moment(nf, now, seq);
        match at.checked_sub(v4.stripes()) {
            None => v4.nth_stripe(at, |stripe| moment.reclaim(stripe, units)),
            Some(at) => v6.nth_stripe(at, |stripe| moment.reclaim(stripe, units)),
        }
    }

    /// Takes the step under the lock of the stripe.
    #[inline(never)]
    fn on_stripe(&mut self, nf: &N, lane: Lane<'_, N::Meta>) -> Verdict {
        // A core that waits for a stripe must not hold back the reuse of memory.
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
        Moment { nf, now, seq, common: &self.common, shared: &self.shared, counts: &self.counts, core: self.core }
    }
}

impl<N: NetworkFunction, G: Guarding> Placement<N> for ByEntry<N, G> {
    records_are_of_all!();

    fn succeed(mut places: Vec<Self>, nf: &N, old: &N) -> Vec<Self> {
        places.iter_mut().for_each(|place| place.adopt(nf, old));
        places
    }

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
    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        self.until_round -= 1;
        if self.until_round == 0 {
            self.go_round(nf, lane.now, lane.seq);
        }
        self.pass.enter();
        let step = self.stepping(nf, lane);
        let mut decided = Some(decided);
        let known = match lane.meta.key().family() {
            Family::V4(key) => step.take(&self.common.v4, &self.pass, key, &mut decided),
            Family::V6(key) => step.take(&self.common.v6, &self.pass, key, &mut decided),
        };
        let Some(decided) = decided else { return };
        match known {
            Some((mut flow, now)) => {
                let (verdict, _) = step.packet(&mut flow, now);
                step.moment.count();
                decided(&verdict);
            }
            None => decided(&self.on_stripe(nf, lane)),
        }
    }

    #[inline]
    fn rest(&mut self) {
        self.pass.leave();
    }

    /// Every core ages all stripes, because another core may be busy with packets for long.
    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        self.pass.leave();
        let stripes = self.common.v4.stripes() + self.common.v6.stripes();
        (0..stripes).any(|_| self.age_next(nf, now, last, AGE_UNITS))
    }

    fn fail(&mut self) {
        self.pass.leave();
    }

    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        Whole::saved(self, nf, now)
    }

    fn restore(&mut self, nf: &N, saved: &SavedFlow<N>, hash: u64, _: u16, now: Nanos) -> bool {
        Whole::restore(self, nf, saved, hash, now)
    }

    /// Zero: all cores share the flows.
    fn flow_counters(&self) -> FlowCounters {
        FlowCounters::default()
    }
}

impl<N: NetworkFunction, G: Guarding> Whole<N> for ByEntry<N, G> {
    /// All cores number their steps with one counter.
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
        let state = |SavedFlow { key, flow, deadline, .. }| FlowState { key, flow, deadline };
        Whole::saved(self, nf, now).into_iter().map(state).collect()
    }

    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        let Common { v4, v6, .. } = &*self.common;
        let mut flows = saved::<N, _, G>(v4, nf, KeyOf::<N>::from_v4);
        flows.extend(saved::<N, _, G>(v6, nf, KeyOf::<N>::from_v6));
        flows.retain(|saved| saved.deadline > now);
        flows
    }

    fn restore(&self, nf: &N, saved: &SavedFlow<N>, hash: u64, now: Nanos) -> bool {
        let Common { v4, v6, .. } = &*self.common;
        let moment = self.moment(nf, now, Seq(0));
        match saved.key.family() {
            Family::V4(key) => v4.stripe(hash, |stripe| moment.restore(stripe, key, hash, saved)),
            Family::V6(key) => v6.stripe(hash, |stripe| moment.restore(stripe, key, hash, saved)),
        }
    }

    fn report(&self, nf: &N, now: Nanos, counts: &PacketCounts) -> Option<Report> {
        let all = self.flows(nf, Nanos(0)).into_iter();
        let all: Vec<_> = all.map(|FlowState { key, flow, deadline }| (key, flow, deadline)).collect();
        let entries = || -> nf::Entries<'_, N> { Box::new(all.iter().copied()) };
        local_report(nf, &FlowList::new(&entries, now), &self.shared, counts)
    }

    fn add_counts(&self, total: &mut PacketCounts) {
        total.add(&self.counts);
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

/// The step of one packet.
pub(crate) struct Stepping<'a, N: NetworkFunction, G: Guarding> {
    pub(super) lane: Lane<'a, N::Meta>,
    moment: Moment<'a, N, G>,
}

/// The circumstances of a step: the function, the time, the packet's number, and this core's memory.
struct Moment<'a, N: NetworkFunction, G: Guarding> {
    nf: &'a N,
    now: Nanos,
    seq: Seq,
    common: &'a Common<N, G>,
    shared: &'a N::Shared<Local>,
    counts: &'a PacketCounts,
    core: usize,
}

/// What became of a flow that its stripe knows.
enum KnownFlow<V> {
    Stays(Verdict),
    /// The function closed the flow, and `expire` was called. It is out of the table.
    Closed(Verdict),
    /// The flow had expired. It is out of the table; `expire` must still be called.
    Expired(Ending<V>),
}

/// A stripe whose lock is held, while flows are opened and ended in it.
struct LockedStripe<'s, 'a, K: Key, N: NetworkFunction, G: Guarding> {
    stripe: &'s mut HeldStripe<'a, K, N::Flow, G>,
    moment: &'s Moment<'s, N, G>,
}

impl<N: NetworkFunction, G: Guarding> Stepping<'_, N, G> {
    /// Takes the step without the stripe's lock. Returns the flow as the packet found it and the time of the step, if `decided` was not
    /// called yet.
    #[inline(always)]
    fn take<K: Key>(
        &self,
        flows: &FlowEntries<K, N::Flow, G>,
        pass: &G::Permit,
        key: K,
        decided: &mut Option<impl FnOnce(&Verdict)>,
    ) -> Option<(N::Flow, Nanos)> {
        let Ticket { hash, hint, .. } = *self.lane.ticket;
        let (flow, now, number) = flows.step(pass, &key, hash, hint, |entry| {
            let now = self.lane.now.max(entry.now);
            if entry.deadline() <= now {
                return None;
            }
            let flow = G::step(self, entry, now, decided)?;
            // A later step on this entry gets a higher number.
            Some((flow, now, self.moment.draw()))
        })?;
        if let Some(number) = number {
            self.moment.note(number, now);
        }
        flow.map(|flow| (flow, now))
    }

    /// Takes the step under the stripe's lock.
    #[inline(never)]
    fn on_stripe<K: Key>(&self, stripe: &mut HeldStripe<'_, K, N::Flow, G>, key: K) -> Verdict {
        self.moment.reclaim(stripe, RECLAIM_PER_PACKET);
        let now = stripe.own().now;
        let found = stripe.find(&key, self.lane.hash).map(|slot| (slot, self.decide(stripe, slot, now)));
        let ticket = Ticket { now: stripe.own().now, ..*self.lane.ticket };
        let lane = Lane { ticket: &ticket, ..self.lane };
        let mut lifecycle = self.moment.lifecycle(stripe);
        match found {
            Some((_, KnownFlow::Stays(verdict))) => verdict,
            Some((slot, KnownFlow::Closed(verdict))) => {
                lifecycle.forget(slot, End::Closed);
                verdict
            }
            Some((_, KnownFlow::Expired(ending))) => {
                lifecycle.end(&ending, (lane.now, lane.seq), End::Expired);
                lifecycle.open(key, lane)
            }
            None => lifecycle.open(key, lane),
        }
    }

    /// Takes the step on a flow that the stripe knows, if it is alive. The stripe is locked, so all effects are possible.
    fn decide<K: Key>(&self, stripe: &mut HeldStripe<'_, K, N::Flow, G>, slot: Slot, now: Nanos) -> KnownFlow<N::Flow> {
        let (found, last) = stripe.decide(slot, |entry| {
            G::fold_sum_in(self.moment.nf, entry);
            let now = now.max(entry.now);
            if entry.deadline() <= now {
                return ((KnownFlow::Expired(ending(slot, entry)), now), Fate::Goes);
            }
            // A copy: after a panic the flow is unchanged.
            let mut flow = entry.value;
            let mut cx = self.moment.context(now);
            let verdict = always(self.moment.nf.packet(&mut cx, &mut flow, self.lane.meta));
            let effects = always(expire_if_closed(self.moment.nf, &mut cx, &flow));
            (entry.value, entry.now) = (flow, now);
            if let Some(deadline) = effects.deadline {
                entry.set_deadline(deadline);
            }
            entry.protected |= effects.assured;
            self.moment.commit(now);
            self.moment.count();
            match effects.close {
                true => ((KnownFlow::Closed(verdict), now), Fate::Goes),
                false => ((KnownFlow::Stays(verdict), now), Fate::Changes),
            }
        });
        stripe.own().now = last;
        found
    }

    /// The function, which the guard asks how steps add up.
    pub(super) const fn nf(&self) -> &N {
        self.moment.nf
    }

    #[inline(always)]
    pub(super) fn packet(&self, flow: &mut N::Flow, now: Nanos) -> (Verdict, Effects) {
        let mut cx = self.moment.context(now);
        let verdict = always(self.moment.nf.packet(&mut cx, flow, self.lane.meta));
        (verdict, cx.effects())
    }
}

impl<N: NetworkFunction, G: Guarding> Moment<'_, N, G> {
    /// Ends flows past their deadline, within `units` units of work. Returns true if some ended and more work was left.
    fn reclaim<K: Key>(&self, stripe: &mut HeldStripe<'_, K, N::Flow, G>, units: usize) -> bool {
        let own = stripe.own();
        own.now = own.now.max(self.now);
        let now = own.now;
        self.lifecycle(stripe).reclaim(now, self.seq, units)
    }

    /// The life cycle code for a stripe whose lock is held.
    fn lifecycle<'s, 'a, K: Key>(
        &'s self,
        stripe: &'s mut HeldStripe<'a, K, N::Flow, G>,
    ) -> Lifecycle<'s, N, LockedStripe<'s, 'a, K, N, G>, OnLocal<'s, N>> {
        Lifecycle {
            nf: self.nf,
            store: LockedStripe { stripe, moment: self },
            runner: OnLocal { shared: self.shared, counts: self.counting() },
        }
    }

    #[inline(always)]
    fn context(&self, now: Nanos) -> Context<'_, N, Local> {
        let counts = self.counting();
        counts.into_iter().for_each(PacketCounts::discard);
        Context::new(self.shared, LocalTx::default(), now, self.seq).counting(counts)
    }

    /// Where the packet is counted; `None` for functions that don't count.
    #[inline(always)]
    fn counting(&self) -> Option<&PacketCounts> {
        N::COUNTS.then_some(self.counts)
    }

    /// Puts in a saved flow before the first packet, and counts it as opened. Returns false if there is no room.
    fn restore<K: Key>(
        &self,
        stripe: &mut HeldStripe<'_, K, N::Flow, G>,
        key: K,
        hash: u64,
        saved: &SavedFlow<N>,
    ) -> bool {
        let SavedFlow { flow, deadline, assured, .. } = *saved;
        let mut store = LockedStripe { stripe, moment: self };
        store.ledger().counters.opened += 1;
        let is_kept =
            !store.is_full() && store.insert(key, hash, Opening { flow, deadline, assured }, self.now).is_some();
        store.ledger().counters.evicted += u64::from(!is_kept);
        is_kept
    }

    /// Counts what the step has counted, for it is not attempted again.
    #[inline(always)]
    fn count(&self) {
        self.counting().into_iter().for_each(PacketCounts::commit);
    }

    /// Records the step, if steps are recorded. The stripe's lock is held.
    fn commit(&self, now: Nanos) {
        if let Some(number) = self.draw() {
            self.note(number, now);
        }
    }

    /// Draws the step's number in the order of all steps, if steps are recorded. Drawn after the last read of the entry and before the
    /// change to it, so the steps on one entry are numbered in order.
    #[inline(always)]
    fn draw(&self) -> Option<u64> {
        // ORDERING: Relaxed, as in `record`.
        let asked = self.common.recording.load(Ordering::Relaxed);
        // ORDERING: Relaxed. The entry's guard orders the steps on it, and with them the numbers that they draw.
        asked.then(|| self.common.next_step.fetch_add(1, Ordering::Relaxed))
    }

    #[cold]
    fn note(&self, number: u64, now: Nanos) {
        lock(&self.common.records[self.core]).push((number, Commit { seq: self.seq, now }));
    }
}

impl<K: Key, N: NetworkFunction, G: Guarding> LockedStripe<'_, '_, K, N, G> {
    /// The end of a flow that was just taken out, including all steps that were added to it.
    fn taken(&self, (slot, mut entry): (Slot, GuardedEntry<K, N::Flow, G::Sum>)) -> Ending<N::Flow> {
        G::fold_sum_in(self.moment.nf, &mut entry);
        ending(slot, &entry)
    }
}

/// Takes a flow out of the table as soon as it is to end. Otherwise other cores could still step on it.
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
        // Without a timing wheel, expired flows stay in the table even if they are protected. The nearest of them may be evicted.
        if ageing == Ageing::Wheel { None } else { self.dead_near(hash, now) }
    }

    /// The flow was already taken out when it was found.
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

/// The flows of one table, to be saved.
fn saved<N: NetworkFunction, K: Key, G: Guarding>(
    flows: &FlowEntries<K, N::Flow, G>,
    nf: &N,
    name: fn(K) -> KeyOf<N>,
) -> Vec<SavedFlow<N>> {
    let mut all = Vec::new();
    flows.each(|mut entry| {
        G::fold_sum_in(nf, &mut entry);
        let (key, flow, deadline) = (name(*entry.key()), entry.value, entry.deadline());
        all.push(SavedFlow { key, flow, deadline, assured: entry.protected });
    });
    all
}

fn ending<K, V: Copy, S>(slot: Slot, entry: &GuardedEntry<K, V, S>) -> Ending<V> {
    Ending { slot, flow: entry.value, deadline: entry.deadline(), last: entry.now }
}

fn flows<K: Key, V: Copy + Send + Sync + 'static, G: Guarding>(
    capacity: usize,
    seed: u64,
    tables: Tables,
    epochs: G::Epochs,
) -> FlowEntries<K, V, G> {
    let plan = Plan { index: tables.index, capacity, load_percent: None, ageing: tables.ageing, seed };
    let own = |slots| StripeState {
        now: Nanos(0),
        ledger: Ledger::new(tables, slots, seed),
        origins: Sources::origins(slots, tables.per_source.is_some()),
    };
    Entries::cut(plan, FlowEntries::<K, V, G>::stripes_for(capacity), own, epochs)
}

/// Takes the lock even if it is poisoned. The core whose step panicked reports that; the others finish their work.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
