//! State that one core owns: the whole of it (`sequential`), a shard (`rss`), a replica (`scr`).

use core::convert::Infallible;

use flow::{Entry, Hint, Slot, Table};
use memory::{Local, LocalTx};
use nf::{Context, Effects, Flow, Meta, NetworkFunction, Opened, Sizing, Verdict};
use packet::{Family, FlowKey, Key, Nanos};

use crate::counters::FlowCounters;
use crate::fleet::FlowState;
use crate::placement::{KeyOf, Lane, Placement};

/// How many ended flows a packet takes away besides its own work. Two keep up with any rate of arrivals, since a packet
/// opens at most one flow and re-arms at most one timer.
const RECLAIM_PER_PACKET: usize = 2;

/// State that one core owns.
pub struct Private<N: NetworkFunction> {
    v4: Table<<KeyOf<N> as FlowKey>::V4, N::Flow>,
    v6: Table<<KeyOf<N> as FlowKey>::V6, N::Flow>,
    rest: Rest<N>,
}

/// All but the tables, so that a table and the rest can be borrowed at once.
struct Rest<N: NetworkFunction> {
    shared: N::Shared<Local>,
    counters: FlowCounters,
}

impl<N: NetworkFunction> Private<N> {
    /// Empty state with tables for `sizing` flows; none at all for a function whose packet sets have no state.
    #[must_use]
    pub fn new(nf: &N, sizing: Sizing, seed: u64) -> Self {
        let (flows, flows_v6) = if N::Flow::STORED { (sizing.flows, sizing.flows_v6) } else { (0, 0) };
        Self {
            v4: Table::new(flows, seed),
            v6: Table::new(flows_v6, seed),
            rest: Rest { shared: nf.shared(&Local::keyed(seed)), counters: FlowCounters::default() },
        }
    }

    /// The shared state.
    #[must_use]
    pub const fn shared(&self) -> &N::Shared<Local> {
        &self.rest.shared
    }

    /// The flows whose deadline is later than `now`, in no particular order.
    pub fn flows(&self, now: Nanos) -> impl Iterator<Item = FlowState<N>> + '_ {
        let v4 = self.v4.iter().map(|(key, flow, deadline)| FlowState {
            key: KeyOf::<N>::from_v4(*key),
            flow: *flow,
            deadline,
        });
        let v6 = self.v6.iter().map(|(key, flow, deadline)| FlowState {
            key: KeyOf::<N>::from_v6(*key),
            flow: *flow,
            deadline,
        });
        v4.chain(v6).filter(move |state| state.deadline > now)
    }

    /// The most flows that there ever were at once.
    #[must_use]
    pub fn high_water(&self) -> usize {
        self.v4.high_water() + self.v6.high_water()
    }

    /// The memory of the tables, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.v4.memory_bytes() + self.v6.memory_bytes()
    }
}

impl<N: NetworkFunction> Placement<N> for Private<N> {
    #[inline]
    fn hash(&self, key: &KeyOf<N>) -> u64 {
        if !N::Flow::STORED {
            return 0;
        }
        match key.family() {
            Family::V4(key) => self.v4.hash(&key),
            Family::V6(key) => self.v6.hash(&key),
        }
    }

    #[inline]
    fn prefetch(&self, _: &N, meta: &N::Meta, hash: u64) {
        if N::Flow::STORED {
            match meta.key().family() {
                Family::V4(_) => self.v4.prefetch(hash),
                Family::V6(_) => self.v6.prefetch(hash),
            }
        }
    }

    #[inline]
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64) -> Hint {
        nf.prefetch(&self.rest.shared, meta);
        if !N::Flow::STORED {
            return Hint::default();
        }
        match meta.key().family() {
            Family::V4(_) => self.v4.prefetch_entry(hash),
            Family::V6(_) => self.v6.prefetch_entry(hash),
        }
    }

    #[inline(always)]
    fn step(&mut self, nf: &N, lane: &Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict)) {
        if !N::Flow::STORED {
            return self.rest.stateless(nf, lane, settle);
        }
        match lane.meta.key().family() {
            Family::V4(key) => self.rest.step(&mut self.v4, nf, key, lane, settle),
            Family::V6(key) => self.rest.step(&mut self.v6, nf, key, lane, settle),
        }
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
        table: &mut Table<K, N::Flow>,
        nf: &N,
        key: K,
        lane: &Lane<'_, N::Meta>,
        settle: impl FnOnce(&Verdict),
    ) {
        for _ in 0..RECLAIM_PER_PACKET {
            let Some(slot) = table.reclaim(lane.now) else { break };
            self.end(table, nf, slot, lane, End::Expired);
        }
        let entry = match table.entry_near(&key, lane.hint, lane.now) {
            Some(entry) => entry,
            None => match self.alive(table, nf, &key, lane) {
                Some(slot) => table.entry(slot),
                None => return settle(&self.open(table, nf, key, lane)),
            },
        };
        let (slot, effects) = self.packet(entry, nf, lane, settle);
        if let Some(effects) = effects {
            self.take_effect(table, nf, slot, lane, effects);
        }
    }

    /// Looks for the flow everywhere. Expiry is logical: past its deadline it is gone, whether or not its entry was
    /// reclaimed yet.
    #[inline(never)]
    fn alive<K: Key>(
        &mut self,
        table: &mut Table<K, N::Flow>,
        nf: &N,
        key: &K,
        lane: &Lane<'_, N::Meta>,
    ) -> Option<Slot> {
        let slot = table.find(key, lane.hash)?;
        if table.deadline(slot) > lane.now {
            return Some(slot);
        }
        self.end(table, nf, slot, lane, End::Expired);
        None
    }

    /// Gives the packet to its flow. What the step asks for and the entry alone can't grant is handed back.
    #[inline(always)]
    fn packet<K: Key>(
        &self,
        mut entry: Entry<'_, K, N::Flow>,
        nf: &N,
        lane: &Lane<'_, N::Meta>,
        settle: impl FnOnce(&Verdict),
    ) -> (Slot, Option<Effects>) {
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        let decision = nf.packet(&mut cx, entry.value_mut(), lane.meta);
        let effects = cx.effects();
        match &decision {
            Ok(verdict) => settle(verdict),
            Err(never) => match *never {},
        }
        let postponed = effects.deadline.is_none_or(|deadline| entry.postpone(deadline));
        let granted = postponed && !effects.close && (!effects.assured || entry.is_assured());
        (entry.slot(), (!granted).then_some(effects))
    }

    /// Does what a step asked for and is not done with every packet.
    #[inline(never)]
    fn take_effect<K: Key>(
        &mut self,
        table: &mut Table<K, N::Flow>,
        nf: &N,
        slot: Slot,
        lane: &Lane<'_, N::Meta>,
        effects: Effects,
    ) {
        if let Some(deadline) = effects.deadline {
            table.touch(slot, deadline);
        }
        if effects.assured {
            table.assure(slot);
        }
        if effects.close {
            self.end(table, nf, slot, lane, End::Closed);
        }
    }

    #[inline(never)]
    fn open<K: Key>(&mut self, table: &mut Table<K, N::Flow>, nf: &N, key: K, lane: &Lane<'_, N::Meta>) -> Verdict {
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        let flow = match always(nf.open(&mut cx, lane.meta)) {
            Opened::Flow(flow) => flow,
            Opened::Refused(verdict) => return verdict,
        };
        let effects = cx.effects();
        let deadline = effects.deadline.unwrap_or(Nanos::NEVER);
        if table.is_full()
            && let Some(victim) = table.oldest_unassured()
        {
            self.end(table, nf, victim, lane, End::Evicted);
        }
        let Some(slot) = table.insert(key, lane.hash, flow, deadline, lane.now) else {
            return self.orphan(nf, &flow, lane);
        };
        self.counters.opened += 1;
        if effects.assured {
            table.assure(slot);
        }
        let mut decided = Verdict::forward();
        let (slot, effects) = self.packet(table.entry(slot), nf, lane, |verdict| decided = *verdict);
        if let Some(effects) = effects {
            self.take_effect(table, nf, slot, lane, effects);
        }
        decided
    }

    /// The packet set found no room: what opening it took is given back, and the function decides.
    #[cold]
    fn orphan(&mut self, nf: &N, flow: &N::Flow, lane: &Lane<'_, N::Meta>) -> Verdict {
        self.counters.orphaned += 1;
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        always(nf.expire(&mut cx, flow));
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        always(nf.orphan(&mut cx, lane.meta))
    }

    #[inline(never)]
    fn end<K: Key>(&mut self, table: &mut Table<K, N::Flow>, nf: &N, slot: Slot, lane: &Lane<'_, N::Meta>, how: End) {
        let flow = table.remove(slot);
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        always(nf.expire(&mut cx, &flow));
        match how {
            End::Expired => self.counters.expired += 1,
            End::Closed => self.counters.closed += 1,
            End::Evicted => self.counters.evicted += 1,
        }
    }

    /// The step of a function whose packet sets have no state of their own.
    #[inline(always)]
    fn stateless(&mut self, nf: &N, lane: &Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict)) {
        let mut cx = Context::new(&self.shared, LocalTx::default(), lane.now, lane.seq);
        match always(nf.open(&mut cx, lane.meta)) {
            Opened::Flow(mut flow) => settle(&always(nf.packet(&mut cx, &mut flow, lane.meta))),
            Opened::Refused(verdict) => settle(&verdict),
        }
    }
}

/// Local memory has no conflicts.
#[inline]
fn always<T>(step: Result<T, Infallible>) -> T {
    match step {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
