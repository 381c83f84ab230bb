//! State that one core owns: the whole of it (`sequential`), a shard (`rss`), a replica (`scr`).

use core::convert::Infallible;
use core::hint::cold_path;

use flow::index::{AnyIndex, IndexKind};
use flow::{Ageing, Entry, Hint, Plan, Slot, Table};
use memory::{Local, LocalTx};
use nf::{Context, Effects, Flow, Meta, NetworkFunction, Opened, Reason, Sizing, Verdict};
use packet::{Family, FlowKey, Host6, Key, Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::tables::{Refusal, Sources, Tables};
use crate::placement::{FlowState, KeyOf, Lane, Placement, records_are_of_all};

/// How many ended flows a packet takes away besides its own work. Two keep up with any rate of arrivals, since a packet
/// opens at most one flow and re-arms at most one timer.
pub(crate) const RECLAIM_PER_PACKET: usize = 2;
/// Units of ageing that an idle core does in one table before it looks for packets again.
pub(crate) const AGE_UNITS: usize = 256;

/// State that one core owns.
pub struct Private<N: NetworkFunction> {
    seed: u64,
    v4: Flows<<KeyOf<N> as FlowKey>::V4, N::Flow>,
    v6: Flows<<KeyOf<N> as FlowKey>::V6, N::Flow>,
    rest: Rest<N>,
}

/// The flows of one family.
struct Flows<K, V> {
    table: Table<K, V, AnyIndex>,
    /// Where the source of each flow is counted, if sources are limited; by the flow's slot.
    origins: Box<[u32]>,
}

/// All but the tables, so that a table and the rest can be borrowed at once.
struct Rest<N: NetworkFunction> {
    shared: N::Shared<Local>,
    counters: FlowCounters,
    tables: Tables,
    sources: Option<Sources>,
}

impl<N: NetworkFunction> Private<N> {
    /// Empty state with tables for `sizing` flows, kept as tables are by default; none at all for a function whose packet
    /// sets have no state.
    #[must_use]
    pub fn new(nf: &N, sizing: Sizing, seed: u64) -> Self {
        Self::kept(nf, sizing, seed, Tables::default())
    }
}

impl<N: NetworkFunction> Private<N> {
    /// Empty state with tables for `sizing` flows, kept as told.
    #[must_use]
    pub fn kept(nf: &N, sizing: Sizing, seed: u64, tables: Tables) -> Self {
        let (flows, flows_v6) = if N::Flow::STORED { (sizing.flows, sizing.flows_v6) } else { (0, 0) };
        let plan = |capacity| Plan { index: tables.index, capacity, load_percent: None, ageing: tables.ageing, seed };
        let limited = tables.per_source.is_some();
        let sources = tables.per_source.map(|most| Sources::new(most, flows + flows_v6, seed));
        let rest = Rest { shared: nf.shared(&Local::keyed(seed)), counters: FlowCounters::default(), tables, sources };
        Self { seed, v4: Flows::new(plan(flows), limited), v6: Flows::new(plan(flows_v6), limited), rest }
    }

    /// The shared state.
    #[must_use]
    pub const fn shared(&self) -> &N::Shared<Local> {
        &self.rest.shared
    }

    /// The flows whose deadline is later than `now`, in no particular order.
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

    /// The entries of the tables: flows alive, and flows past their deadline that were not reclaimed yet.
    pub(crate) fn entries(&self) -> usize {
        self.v4.table.len() + self.v6.table.len()
    }

    /// The most flows that there ever were at once.
    #[must_use]
    pub fn high_water(&self) -> usize {
        self.v4.table.high_water() + self.v6.table.high_water()
    }

    /// The memory of the tables, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.v4.table.memory_bytes() + self.v6.table.memory_bytes()
    }

    /// Brings the packet set's entry near, or, where tables are `NEAR` already, as near as it gets.
    #[inline(always)]
    fn hint<const NEAR: bool>(&self, nf: &N, meta: &N::Meta, hash: u64) -> Hint {
        nf.prefetch_entry(&self.rest.shared, meta);
        if !N::Flow::STORED {
            return Hint::default();
        }
        match (meta.key().family(), N::SELECTIVE) {
            (Family::V4(_), false) => self.v4.table.prefetch_entry_as::<false, NEAR>(hash),
            (Family::V6(_), false) => self.v6.table.prefetch_entry_as::<false, NEAR>(hash),
            (Family::V4(_), true) => self.v4.table.prefetch_entry_as::<true, NEAR>(hash),
            (Family::V6(_), true) => self.v6.table.prefetch_entry_as::<true, NEAR>(hash),
        }
    }

    /// Takes a packet set's state out, to be put in elsewhere: no end of the flow.
    pub(crate) fn carry_off(&mut self, key: &KeyOf<N>, hash: u64) -> Option<Carried<N>> {
        match key.family() {
            Family::V4(key) => self.v4.carry_off(&key, hash, &mut self.rest),
            Family::V6(key) => self.v6.carry_off(&key, hash, &mut self.rest),
        }
    }

    /// Puts a packet set's state in that was taken out elsewhere. Where there is no room its flow ends here, as one that was
    /// evicted.
    pub(crate) fn carry_in(&mut self, key: &KeyOf<N>, hash: u64, carried: &Carried<N>, now: Nanos) {
        match key.family() {
            Family::V4(key) => self.v4.carry_in(key, hash, carried, now, &mut self.rest),
            Family::V6(key) => self.v6.carry_in(key, hash, carried, now, &mut self.rest),
        }
    }
}

/// A packet set's state on its way from one table to another.
pub(crate) struct Carried<N: NetworkFunction> {
    flow: N::Flow,
    deadline: Nanos,
    assured: bool,
    /// Who opened it, where sources are limited: its packets, which come from both ends, don't tell.
    source: Option<Host6>,
}

impl<N: NetworkFunction> Clone for Carried<N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N: NetworkFunction> Copy for Carried<N> {}

impl<K: Key, V: Copy + Send + 'static> Flows<K, V> {
    fn carry_off<N: NetworkFunction<Flow = V>>(
        &mut self,
        key: &K,
        hash: u64,
        rest: &mut Rest<N>,
    ) -> Option<Carried<N>> {
        let slot = self.table.find(key, hash)?;
        let (deadline, assured) = (self.table.deadline(slot), self.table.is_assured(slot));
        let source = rest.sources.as_mut().and_then(|sources| {
            let origin = self.origins[slot.index()];
            let source = sources.source(origin);
            sources.leave(origin);
            source
        });
        Some(Carried { flow: self.table.remove(slot), deadline, assured, source })
    }

    fn carry_in<N: NetworkFunction<Flow = V>>(
        &mut self,
        key: K,
        hash: u64,
        carried: &Carried<N>,
        now: Nanos,
        rest: &mut Rest<N>,
    ) {
        let Carried { flow, deadline, assured, source } = *carried;
        let Some(slot) = self.table.insert(key, hash, flow, deadline, now) else {
            rest.counters.evicted += 1;
            return;
        };
        if assured {
            self.table.assure(slot);
        }
        if let Some(sources) = &mut rest.sources {
            self.origins[slot.index()] = sources.take_in(source);
        }
    }
}

impl<K: Key, V: Copy + Send + 'static> Flows<K, V> {
    fn new(plan: Plan<IndexKind>, limited: bool) -> Self {
        let table = Table::planned(plan);
        Self { origins: Sources::origins(table.slots(), limited), table }
    }
}

impl<N: NetworkFunction> Placement<N> for Private<N> {
    const REPLAYS: bool = true;

    records_are_of_all!();

    fn seed(&self) -> u64 {
        self.seed
    }

    #[inline(always)]
    fn prefetch(&self, nf: &N, meta: &N::Meta, hash: u64, _: u16) {
        nf.prefetch(&self.rest.shared, meta);
        if N::Flow::STORED {
            match meta.key().family() {
                Family::V4(_) => self.v4.table.prefetch(hash),
                Family::V6(_) => self.v6.table.prefetch(hash),
            }
        }
    }

    fn is_near(&self) -> bool {
        size_of::<N::Shared<Local>>() == 0 && self.v4.table.is_near() && self.v6.table.is_near()
    }

    #[inline(always)]
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64, _: u16) -> Hint {
        self.hint::<false>(nf, meta, hash)
    }

    #[inline(always)]
    fn locate(&self, nf: &N, meta: &N::Meta, hash: u64, _: u16) -> Hint {
        self.hint::<true>(nf, meta, hash)
    }

    #[inline(always)]
    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict)) {
        if !N::Flow::STORED {
            return self.rest.stateless(nf, lane, settle);
        }
        match lane.meta.key().family() {
            Family::V4(key) => self.rest.step(&mut self.v4, nf, key, lane, settle),
            Family::V6(key) => self.rest.step(&mut self.v6, nf, key, lane, settle),
        }
    }

    fn fold(&mut self, nf: &N, last: Lane<'_, N::Meta>, count: u32, first: Nanos) -> bool {
        N::Flow::STORED
            && match last.meta.key().family() {
                Family::V4(key) => self.rest.fold(&mut self.v4, nf, &key, last, count, first),
                Family::V6(key) => self.rest.fold(&mut self.v6, nf, &key, last, count, first),
            }
    }

    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        let Self { v4, v6, rest, .. } = self;
        rest.age(v4, nf, now, last) || rest.age(v6, nf, now, last)
    }

    fn flow_counters(&self) -> FlowCounters {
        self.rest.counters
    }
}

/// How a flow ended.
#[derive(Clone, Copy)]
enum End {
    Expired,
    Closed,
    Evicted,
}

impl<N: NetworkFunction> Rest<N> {
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
            lane.spill_to_memory(|lane| self.end(flows, nf, slot, (lane.now, lane.seq), End::Expired));
        }
        let Some(entry) = flows.table.entry_near(&key, lane.hint, lane.now) else {
            let is_absent = flows.table.is_absent(lane.hint);
            if is_absent && (lane.replayed || N::SELECTIVE) && nf.refuses(lane.meta) {
                // Nobody asks for a replayed packet's verdict, and nothing else would come of it.
                return if lane.replayed { settle(&Verdict::forward()) } else { self.refuse(nf, lane, settle) };
            }
            return settle(&lane.spill_to_memory(|lane| self.step_apart(flows, nf, key, lane, is_absent)));
        };
        let (slot, effects) = self.packet(entry, nf, lane, settle);
        if let Some(effects) = effects {
            lane.spill_to_memory(|lane| self.take_effect(flows, nf, slot, lane, effects));
        }
    }

    /// The step where the packet set's flow is not where its hint says. A way of its own to the end, as whatever comes back to the others'
    /// way costs all of them.
    #[inline(never)]
    fn step_apart<K: Key>(
        &mut self,
        flows: &mut Flows<K, N::Flow>,
        nf: &N,
        key: K,
        lane: Lane<'_, N::Meta>,
        is_absent: bool,
    ) -> Verdict {
        let slot = if is_absent { None } else { self.alive(flows, nf, key, lane) };
        let Some(slot) = slot else {
            if lane.replayed && nf.refuses(lane.meta) {
                return Verdict::forward();
            }
            return self.open(flows, nf, key, lane);
        };
        self.step_at(flows, nf, slot, lane)
    }

    /// The step of a flow that is known to be at this slot.
    #[inline]
    fn step_at<K: Key>(
        &mut self,
        flows: &mut Flows<K, N::Flow>,
        nf: &N,
        slot: Slot,
        lane: Lane<'_, N::Meta>,
    ) -> Verdict {
        let mut decided = Verdict::forward();
        let (slot, effects) = self.packet(flows.table.entry(slot, lane.now), nf, lane, |verdict| decided = *verdict);
        if let Some(effects) = effects {
            self.take_effect(flows, nf, slot, lane, effects);
        }
        decided
    }

    /// Takes equal steps at once, if that comes to the same: nothing is to be reclaimed meanwhile, and the flow is alive even at the
    /// last of them without the others, so that it doesn't end in between.
    #[inline]
    fn fold<K: Key>(
        &mut self,
        flows: &mut Flows<K, N::Flow>,
        nf: &N,
        key: &K,
        last: Lane<'_, N::Meta>,
        count: u32,
        first: Nanos,
    ) -> bool {
        if flows.table.is_due(last.now) {
            return false;
        }
        let Some(mut entry) = flows.table.entry_near(key, last.hint, last.now) else { return false };
        let mut cx = Context::new(&self.shared, LocalTx::default(), last.now, last.seq);
        if !always(nf.run(&mut cx, entry.value_mut(), last.meta, count, first)) {
            return false;
        }
        let (slot, effects) = (entry.slot(), cx.effects());
        debug_assert!(!effects.close, "a run closes no flow");
        self.take_effect(flows, nf, slot, last, effects);
        true
    }

    /// Looks for the flow everywhere. Expiry is logical: past its deadline it is gone, whether or not its entry was
    /// reclaimed yet.
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
        self.end(flows, nf, slot, (lane.now, lane.seq), End::Expired);
        None
    }

    /// Gives the packet to its flow. What the step asks for and the entry alone can't grant is handed back.
    #[inline(always)]
    fn packet<K: Key>(
        &self,
        mut entry: Entry<'_, K, N::Flow>,
        nf: &N,
        lane: Lane<'_, N::Meta>,
        settle: impl FnOnce(&Verdict),
    ) -> (Slot, Option<Effects>) {
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        let decision = nf.packet(&mut cx, entry.value_mut(), lane.meta);
        let Effects { deadline, close, assured } = cx.effects();
        // Right behind the step, so that what the function asks for, or doesn't, on a way of its own the others aren't asked about.
        let ordinary = match deadline {
            Some(deadline) if !(close || assured && !entry.is_assured()) => Some(deadline),
            _ => None,
        };
        let Some(deadline) = ordinary else {
            cold_path();
            let verdict = always(decision);
            settle_apart(settle, &verdict);
            return (entry.slot(), Some(Effects { deadline, close, assured }));
        };
        match &decision {
            Ok(verdict) => settle(verdict),
            Err(never) => match *never {},
        }
        let moved = entry.move_deadline(deadline);
        // Put together anew, so that nobody else needs it in one piece.
        let effects = Effects { deadline: Some(deadline), close: false, assured: false };
        (entry.slot(), (!moved).then_some(effects))
    }

    /// Does what a step asked for and is not done with every packet.
    #[inline(never)]
    fn take_effect<K: Key>(
        &mut self,
        flows: &mut Flows<K, N::Flow>,
        nf: &N,
        slot: Slot,
        lane: Lane<'_, N::Meta>,
        effects: Effects,
    ) {
        if let Some(deadline) = effects.deadline {
            flows.table.touch(slot, deadline);
        }
        if effects.assured {
            flows.table.assure(slot);
        }
        if effects.close {
            self.end(flows, nf, slot, (lane.now, lane.seq), End::Closed);
        }
    }

    /// Hands on a packet that no flow is opened for. In place, so that of its verdict nothing is stored.
    #[inline(always)]
    fn refuse(&self, nf: &N, lane: Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict)) {
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        match &always(nf.open(&mut cx, lane.meta)) {
            Opened::Refused(verdict) => settle(verdict),
            Opened::Flow(_) => unreachable!("the function refuses this packet"),
        }
    }

    #[inline(never)]
    fn open<K: Key>(&mut self, flows: &mut Flows<K, N::Flow>, nf: &N, key: K, lane: Lane<'_, N::Meta>) -> Verdict {
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        let flow = match always(nf.open(&mut cx, lane.meta)) {
            Opened::Flow(flow) => flow,
            Opened::Refused(verdict) => return verdict,
        };
        let effects = cx.effects();
        let deadline = effects.deadline.unwrap_or(Nanos::NEVER);
        let slot = match self.admit(flows, nf, key, lane, flow, deadline) {
            Ok(slot) => slot,
            Err(refusal) => return self.orphan(nf, &flow, lane, refusal),
        };
        self.counters.opened += 1;
        if effects.assured {
            flows.table.assure(slot);
        }
        self.step_at(flows, nf, slot, lane)
    }

    /// Makes room for a new flow where that is needed and allowed, and puts it in.
    #[inline]
    fn admit<K: Key>(
        &mut self,
        flows: &mut Flows<K, N::Flow>,
        nf: &N,
        key: K,
        lane: Lane<'_, N::Meta>,
        flow: N::Flow,
        deadline: Nanos,
    ) -> Result<Slot, Refusal> {
        let Tables { eviction, ageing, .. } = self.tables;
        if ageing == Ageing::Lazy {
            while let Some(dead) = flows.table.dead_near(lane.hash, lane.now) {
                self.end(flows, nf, dead, (lane.now, lane.seq), End::Expired);
            }
        }
        if self.tables.drops_early(flows.table.len(), flows.table.capacity(), chance(lane.hash, lane.seq)) {
            return Err(Refusal::Early);
        }
        let origin = self.sources.as_mut().map(|sources| sources.enter(lane.meta.source())).transpose()?;
        if flows.table.is_full() {
            // Where nobody finds the dead they stay although they were answered: the nearest of them may go then.
            let dead = || flows.table.dead_near(lane.hash, lane.now).filter(|_| ageing != Ageing::Wheel);
            let victim = || flows.table.victim(eviction, lane.hash);
            if let Some(victim) = flows.table.overdue(lane.now).or_else(victim).or_else(dead) {
                let how = if flows.table.deadline(victim) <= lane.now { End::Expired } else { End::Evicted };
                self.end(flows, nf, victim, (lane.now, lane.seq), how);
            }
        }
        let slot = flows.table.insert(key, lane.hash, flow, deadline, lane.now);
        if let (Some(origin), Some(sources)) = (origin, &mut self.sources) {
            match slot {
                Some(slot) => flows.origins[slot.index()] = origin,
                None => sources.leave(origin),
            }
        }
        slot.ok_or(Refusal::Full)
    }

    /// The packet set isn't let in: what opening it took is given back, and the function decides.
    #[cold]
    fn orphan(&mut self, nf: &N, flow: &N::Flow, lane: Lane<'_, N::Meta>, refusal: Refusal) -> Verdict {
        match refusal {
            Refusal::Full => self.counters.orphaned += 1,
            Refusal::Early => self.counters.early_dropped += 1,
            Refusal::Source => self.counters.limited += 1,
        }
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        always(nf.expire(&mut cx, flow));
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        match always(nf.orphan(&mut cx, lane.meta)) {
            Verdict::Drop(Reason::TABLE_FULL) => Verdict::Drop(refusal.reason()),
            verdict => verdict,
        }
    }

    #[inline(never)]
    fn end<K: Key>(&mut self, flows: &mut Flows<K, N::Flow>, nf: &N, slot: Slot, (now, seq): (Nanos, Seq), how: End) {
        let flow = flows.table.remove(slot);
        if let Some(sources) = &mut self.sources {
            sources.leave(flows.origins[slot.index()]);
        }
        let mut cx = Context::new(&self.shared, LocalTx::default(), now, seq);
        always(nf.expire(&mut cx, &flow));
        match how {
            End::Expired => self.counters.expired += 1,
            End::Closed => self.counters.closed += 1,
            End::Evicted => self.counters.evicted += 1,
        }
    }

    /// Ends flows whose deadline has passed by `now`; `true` when there was more to do, and some ended.
    fn age<K: Key>(&mut self, flows: &mut Flows<K, N::Flow>, nf: &N, now: Nanos, last: Seq) -> bool {
        let mut some = false;
        for _ in 0..AGE_UNITS {
            match flows.table.reclaim(now) {
                Some(slot) => {
                    self.end(flows, nf, slot, (now, last), End::Expired);
                    some = true;
                }
                None if flows.table.is_due(now) => {}
                None => return false,
            }
        }
        some
    }

    /// The step of a function whose packet sets have no state of their own.
    #[inline(always)]
    fn stateless(&mut self, nf: &N, lane: Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict)) {
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        match always(nf.open(&mut cx, lane.meta)) {
            // Looked at where it was written: to hand it on would copy it.
            Opened::Flow(mut flow) => match &nf.packet(&mut cx, &mut flow, lane.meta) {
                Ok(verdict) => settle(verdict),
                Err(never) => match *never {},
            },
            Opened::Refused(verdict) => settle(&verdict),
        }
    }
}

/// A call, for verdicts on the rarer ways of a step.
#[inline(never)]
fn settle_apart(settle: impl FnOnce(&Verdict), verdict: &Verdict) {
    settle(verdict);
}

/// Local memory has no conflicts.
#[inline]
pub(crate) fn always<T>(step: Result<T, Infallible>) -> T {
    match step {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

/// A number as good as random that depends on what all replicas agree on.
#[inline]
pub(crate) const fn chance(hash: u64, seq: Seq) -> u32 {
    let mixed = (hash ^ seq.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests;
