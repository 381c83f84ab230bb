//! Shared state in transactional memory (`transactional`). Flows are in private shards, as under `rss`.
//!
//! A packet's step is one transaction. So is the end of an expired flow. Handlers work on a copy of the flow, and tables change after the
//! transaction has committed, so a failed transaction changes nothing.

use std::collections::HashMap;
use std::sync::Arc;

use flow::{EntryMut, Hint, Slot};
use memory::Transactional;
use memory::transactional::{Collision, CommitPosition, CoreHandle};
use nf::{
    Context, Effects, Fingerprint, Flow, Function, Kept, Meta, NetworkFunction, Opened, PacketCounts, Report, Sizing,
    Speed, Step, Verdict,
};
use packet::{Family, FlowKey, Key, Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::lifecycle::{AGE_UNITS, End, Ledger, Lifecycle, RECLAIM_PER_PACKET, Runner, expire_if_closed};
use crate::placement::owned::{Owned, OwnedTable, OwnedTables};
use crate::placement::replay_order::ReplayOrder;
use crate::placement::tables::Tables;
use crate::placement::{BURST, FlowState, Lane, Placement, SavedFlow, records_are_of_all, saved_behind};

/// A core's handle on the shared state, and its shard of the flows.
pub struct Transacted<N: Function> {
    tables: OwnedTables<N>,
    common: Arc<Common<N>>,
    transactor: Transactor,
    seed: u64,
    /// How many packets the next transaction takes, for functions without flows.
    batch: usize,
    verdicts: Box<[Verdict; BURST]>,
}

/// Runs a core's transactions and counts them.
struct Transactor {
    handle: CoreHandle,
    tally: Transactions,
    order: Order,
    counts: PacketCounts,
}

/// The state that all cores share.
struct Common<N: Function> {
    memory: Transactional,
    shared: N::Shared<Transactional>,
}

/// How many transactions committed and failed, and why.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    /// Transactions that committed.
    pub committed: u64,
    /// Attempts that failed and ran again.
    pub aborted: u64,
    /// Committed transactions that had to run alone, while no other was active.
    pub ran_alone: u64,
    /// The conflicting operations, with counts, if they are [recorded](Transacted::profile).
    pub collisions: HashMap<Collision, u64>,
}

/// How transactions are ordered.
enum Order {
    Any,
    /// In any order, which is recorded.
    Recorded(Vec<CommitPosition>),
    /// In this order.
    Given(Arc<ReplayOrder>),
}

impl Transactions {
    /// Adds the counts of another core.
    pub fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.ran_alone += other.ran_alone;
        for (collision, count) in &other.collisions {
            *self.collisions.entry(*collision).or_default() += count;
        }
    }
}

impl<N: Function> Transacted<N> {
    /// Handles for `cores` cores, each with tables for `sizing` flows.
    pub(crate) fn handles(nf: &N, cores: usize, sizing: Sizing, seed: u64, tables: Tables) -> Vec<Self> {
        let memory = Transactional::new(cores, seed);
        let core_handles = memory.core_handles();
        let common = Arc::new(Common { shared: nf.shared(&memory), memory });
        let of = |handle| Self {
            tables: OwnedTables::new(sizing, seed, tables),
            common: Arc::clone(&common),
            transactor: Transactor {
                handle,
                tally: Transactions::default(),
                order: Order::Any,
                counts: PacketCounts::attempting(nf.counters()),
            },
            seed,
            batch: BURST,
            verdicts: Box::new([Verdict::forward(); BURST]),
        };
        core_handles.into_iter().map(of).collect()
    }

    /// Records the order of transactions from now on, one packet each. The record grows with every step, so it is for verification only.
    pub fn record(&mut self) {
        self.transactor.order = Order::Recorded(Vec::new());
    }

    /// The places of this core's transactions in the order of all, in the core's own order. Empty unless [recorded](Self::record).
    pub(crate) fn places(&self) -> &[CommitPosition] {
        match &self.transactor.order {
            Order::Recorded(places) => places,
            Order::Any | Order::Given(_) => &[],
        }
    }

    /// Runs transactions in this order from now on. Each core must get the same packets as in the recorded run.
    pub fn repeat(&mut self, order: &Arc<ReplayOrder>) {
        self.transactor.order = Order::Given(Arc::clone(order));
    }

    /// Records conflicting operations from now on.
    pub fn profile(&mut self) {
        self.transactor.handle.record(true);
    }

    /// The counts of this core's transactions.
    pub const fn transactions(&self) -> &Transactions {
        &self.transactor.tally
    }

    /// The fingerprint of the state that packet sets share.
    pub fn fingerprint(&mut self, nf: &N) -> Fingerprint {
        let Self { common, transactor, .. } = self;
        transactor.transact(common, Nanos(0), Seq(0), &[], |cx| {
            let mut fingerprint = Fingerprint::default();
            nf.fingerprint(cx.shared, &mut cx.tx, &mut fingerprint)?;
            Ok(fingerprint)
        })
    }

    /// What this core has counted, if the function counts.
    pub(crate) const fn packet_counts(&self) -> &PacketCounts {
        &self.transactor.counts
    }

    /// The function's report at `now` on `flows`, the flows of all cores, and `total`, what they have counted. Other cores must be idle. This transaction is neither recorded
    /// nor counted.
    pub(crate) fn report(
        &mut self,
        nf: &N,
        flows: &nf::FlowList<'_, N>,
        total: PacketCounts,
        now: Nanos,
    ) -> Option<Report> {
        let counts = std::mem::replace(&mut self.transactor.counts, total);
        let report = self.aside(now, |cx| nf.report(cx, flows));
        self.transactor.counts = counts;
        report
    }

    /// Runs a transaction that is neither recorded nor counted. Other cores must be idle.
    fn aside<T>(
        &mut self,
        now: Nanos,
        body: impl for<'a> FnMut(&mut Context<'a, N, Transactional>) -> Step<T, Transactional>,
    ) -> T {
        let Self { common, transactor, .. } = self;
        let (order, tally) = (std::mem::replace(&mut transactor.order, Order::Any), transactor.tally.clone());
        let outcome = transactor.transact(common, now, Seq(0), &[], body);
        (transactor.order, transactor.tally) = (order, tally);
        outcome
    }

    /// Returns the state that packet sets share at `now`, as words. Other cores must be idle.
    pub(crate) fn saved_shared(&mut self, nf: &N, now: Nanos) -> Vec<u64> {
        self.aside(now, |cx| {
            let mut words = Vec::new();
            nf.keep(cx.shared, &mut cx.tx, &mut Kept::writing(&mut words, now))?;
            Ok(words)
        })
    }

    /// Reads what packet sets share, for all cores. False if the words make no sense.
    pub(crate) fn restore_shared(&mut self, nf: &N, words: &[u64], now: Nanos) -> bool {
        self.aside(now, |cx| {
            let mut kept = Kept::reading(words, now);
            nf.keep(cx.shared, &mut cx.tx, &mut kept)?;
            Ok(kept.is_whole())
        })
    }

    /// Iterates over the flows of this shard that are alive at `now`, in no particular order.
    pub fn flows(&self, now: Nanos) -> impl Iterator<Item = FlowState<N>> + '_ {
        self.tables.flows(now)
    }

    pub(crate) fn entries(&self) -> usize {
        self.tables.entries()
    }

    pub(crate) fn high_water(&self) -> usize {
        self.tables.high_water()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.tables.memory_bytes()
    }
}

impl<N: Function> Placement<N> for Transacted<N> {
    const BATCHES: bool = true;

    records_are_of_all!();

    fn succeed(places: Vec<Self>, nf: &N, old: &N) -> Vec<Self> {
        let mut all = None;
        let part = |Self { tables, common, transactor, seed, batch, verdicts }: Self| {
            // The handles but for one are given up, so that what they share has one owner.
            all = Some(common);
            (tables, transactor, seed, batch, verdicts)
        };
        let parts: Vec<_> = places.into_iter().map(part).collect();
        let Some(Common { memory, mut shared }) = all.and_then(Arc::into_inner) else {
            unreachable!("an engine has at least one core, and its handles are the only ones")
        };
        nf.adopt(old, &mut shared, &memory);
        let common = Arc::new(Common { memory, shared });
        let whole = |(tables, transactor, seed, batch, verdicts)| {
            let transactor = Transactor { counts: PacketCounts::attempting(nf.counters()), ..transactor };
            Self { tables, common: Arc::clone(&common), transactor, seed, batch, verdicts }
        };
        parts.into_iter().map(whole).collect()
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    #[inline]
    fn prefetch(&self, nf: &N, meta: &N::Meta, hash: u64, _: u16) {
        N::Speed::prefetch(nf, &self.common.shared, meta);
        if N::Flow::STORED {
            match meta.key().family() {
                Family::V4(_) => self.tables.v4.table.prefetch(hash),
                Family::V6(_) => self.tables.v6.table.prefetch(hash),
            }
        }
    }

    #[inline]
    fn prefetch_entry(&self, nf: &N, meta: &N::Meta, hash: u64, _: u16) -> Hint {
        N::Speed::prefetch_entry(nf, &self.common.shared, meta);
        if !N::Flow::STORED {
            return Hint::default();
        }
        match meta.key().family() {
            Family::V4(_) => self.tables.v4.table.prefetch_entry(hash),
            Family::V6(_) => self.tables.v6.table.prefetch_entry(hash),
        }
    }

    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        let Self { tables: OwnedTables { v4, v6, ledger }, common, transactor, .. } = self;
        match lane.meta.key().family() {
            _ if !N::Flow::STORED => {
                decided(
                    &transactor.transact(common, lane.now, lane.seq, lane.frame, |cx| stateless(nf, cx, lane.meta)),
                );
            }
            Family::V4(key) => Stepping { nf, flows: v4, ledger, common, transactor }.step(key, lane, decided),
            Family::V6(key) => Stepping { nf, flows: v6, ledger, common, transactor }.step(key, lane, decided),
        }
    }

    /// Takes several steps in one transaction, fewer after a conflict.
    #[inline(always)]
    fn steps<'l>(
        &mut self,
        nf: &N,
        count: usize,
        mut lane: impl FnMut(usize) -> Lane<'l, N::Meta>,
        mut decided: impl FnMut(usize, &Verdict),
    ) where
        N::Meta: 'l,
    {
        let Self { common, transactor, batch, verdicts, .. } = self;
        let (mut done, mut aborts) = (0, 0);
        while done < count {
            if let Order::Given(order) = &transactor.order {
                order.wait(transactor.handle.core());
            }
            let together = if let Order::Given(_) = transactor.order { 1 } else { (*batch).min(count - done) };
            let counts = N::COUNTS.then_some(&transactor.counts);
            counts.into_iter().for_each(PacketCounts::discard);
            let mut log = transactor.handle.log(&common.memory);
            let mut tx = log.attempt(aborts);
            let mut failed = false;
            for (at, verdict) in (done..).zip(&mut verdicts[..together]) {
                let lane = lane(at);
                let (meta, now, seq) = (lane.meta, lane.now, lane.seq);
                let mut cx = Context::new(&common.shared, tx, now, seq).counting(counts).reading(lane.frame);
                let outcome = stateless(nf, &mut cx, meta);
                tx = cx.tx;
                match &outcome {
                    Ok(outcome) => verdict.set(outcome),
                    Err(_) => {
                        failed = true;
                        break;
                    }
                }
            }
            let ran_alone = tx.is_irrevocable();
            let outcome = if failed { Err(tx.abort()) } else { tx.commit() };
            match outcome {
                Ok(place) => {
                    counts.into_iter().for_each(PacketCounts::commit);
                    transactor.committed(place, ran_alone, together);
                    (done..).zip(&verdicts[..together]).for_each(|(at, verdict)| decided(at, verdict));
                    done += together;
                    aborts = 0;
                    *batch = (*batch + 1).min(BURST);
                }
                Err(collision) => {
                    transactor.failed(collision);
                    aborts += 1;
                    *batch = (together / 2).max(1);
                }
            }
        }
    }

    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        let Self { tables: OwnedTables { v4, v6, ledger }, common, transactor, .. } = self;
        Stepping { nf, flows: v4, ledger, common, transactor }.lifecycle().reclaim(now, last, AGE_UNITS)
            || Stepping { nf, flows: v6, ledger, common, transactor }.lifecycle().reclaim(now, last, AGE_UNITS)
    }

    fn saved(&self, nf: &N, now: Nanos) -> Vec<SavedFlow<N>> {
        self.tables.saved(saved_behind(nf, now), self.seed)
    }

    fn restore(&mut self, nf: &N, saved: &SavedFlow<N>, hash: u64, _: u16, now: Nanos) -> bool {
        let is_kept = self.tables.restore(saved, hash, now);
        if !is_kept {
            self.aside(now, |cx| nf.expire(cx, &saved.flow));
        }
        is_kept
    }

    fn flow_counters(&self) -> FlowCounters {
        self.tables.ledger.counters
    }

    fn commits_and_aborts(&self) -> Option<(u64, u64)> {
        let Transactions { committed, aborted, .. } = self.transactions();
        Some((*committed, *aborted))
    }
}

/// Takes the step of a function without flows.
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

impl Transactor {
    /// Runs `body` as a transaction until it commits.
    #[inline]
    fn transact<N: Function, T>(
        &mut self,
        common: &Common<N>,
        now: Nanos,
        seq: Seq,
        frame: &[u8],
        mut body: impl for<'a> FnMut(&mut Context<'a, N, Transactional>) -> Step<T, Transactional>,
    ) -> T {
        if let Order::Given(order) = &self.order {
            order.wait(self.handle.core());
        }
        for aborts in 0.. {
            let outcome = {
                let counts = N::COUNTS.then_some(&self.counts);
                counts.into_iter().for_each(PacketCounts::discard);
                let mut log = self.handle.log(&common.memory);
                let tx = log.attempt(aborts);
                let mut cx = Context::new(&common.shared, tx, now, seq).counting(counts).reading(frame);
                match body(&mut cx) {
                    Ok(value) => {
                        let ran_alone = cx.tx.is_irrevocable();
                        cx.tx.commit().map(|place| {
                            counts.into_iter().for_each(PacketCounts::commit);
                            (value, place, ran_alone)
                        })
                    }
                    Err(_) => Err(cx.tx.abort()),
                }
            };
            match outcome {
                Ok((value, place, ran_alone)) => {
                    self.committed(place, ran_alone, 1);
                    return value;
                }
                Err(collision) => self.failed(collision),
            }
        }
        unreachable!("a turn can't fail")
    }

    #[inline]
    fn committed(&mut self, place: CommitPosition, ran_alone: bool, packets: usize) {
        self.tally.committed += 1;
        self.tally.ran_alone += u64::from(ran_alone);
        match &mut self.order {
            Order::Any => {}
            Order::Recorded(places) => places.extend((0..packets).map(|_| place)),
            Order::Given(order) => order.pass(),
        }
    }

    #[cold]
    fn failed(&mut self, collision: Option<Collision>) {
        self.tally.aborted += 1;
        if let Some(collision) = collision
            && self.handle.is_recording()
        {
            *self.tally.collisions.entry(collision).or_default() += 1;
        }
    }
}

/// The table of a packet's address family, with what its step needs.
struct Stepping<'a, N: Function, K> {
    nf: &'a N,
    flows: &'a mut OwnedTable<K, N::Flow>,
    ledger: &'a mut Ledger,
    common: &'a Common<N>,
    transactor: &'a mut Transactor,
}

/// Runs handlers in transactions.
struct Transacting<'a, N: Function> {
    common: &'a Common<N>,
    transactor: &'a mut Transactor,
}

impl<N: Function> Runner<N> for Transacting<'_, N> {
    type Memory = Transactional;

    #[inline]
    fn run<T>(
        &mut self,
        now: Nanos,
        seq: Seq,
        frame: &[u8],
        body: impl for<'x> FnMut(&mut Context<'x, N, Transactional>) -> Step<T, Transactional>,
    ) -> T {
        self.transactor.transact(self.common, now, seq, frame, body)
    }
}

impl<N: Function, K: Key> Stepping<'_, N, K> {
    /// The life cycle code for this table.
    #[inline]
    fn lifecycle(&mut self) -> Lifecycle<'_, N, Owned<'_, K, N::Flow>, Transacting<'_, N>> {
        let Self { nf, flows, ledger, common, transactor } = self;
        Lifecycle { nf, store: Owned { flows, ledger }, runner: Transacting { common, transactor } }
    }

    #[inline(always)]
    fn step(mut self, key: K, lane: Lane<'_, N::Meta>, decided: impl FnOnce(&Verdict)) {
        for _ in 0..RECLAIM_PER_PACKET {
            let Some(slot) = self.flows.table.reclaim(lane.now) else { break };
            self.lifecycle().end_at(slot, lane, End::Expired);
        }
        // Looks at the hint first, then in the whole table.
        let slot = match self.flows.table.entry_at_hint(&key, lane.hint, lane.now) {
            Some(entry) => entry.slot(),
            None => match self.lifecycle().alive(&key, lane) {
                Some(slot) => slot,
                None => return decided(&self.open(key, lane)),
            },
        };
        let entry = self.flows.table.entry(slot, lane.now);
        if let Some(effects) = packet(self.nf, self.common, self.transactor, entry, lane, decided) {
            self.take_effect(slot, effects);
        }
    }

    #[inline(never)]
    fn open(&mut self, key: K, lane: Lane<'_, N::Meta>) -> Verdict {
        self.lifecycle().open(key, lane)
    }

    /// Applies the effects of a step that are not needed for every packet. If the flow ended, `expire` was called already.
    #[inline(never)]
    fn take_effect(&mut self, slot: Slot, effects: Effects) {
        let mut lifecycle = self.lifecycle();
        lifecycle.store.apply(slot, effects);
        if effects.close {
            lifecycle.forget(slot, End::Closed);
        }
    }
}

/// Calls `packet` with the flow. Returns the effects that must still be applied; if the flow ended, `expire` was called already.
#[inline(always)]
fn packet<N: Function, K: Key>(
    nf: &N,
    common: &Common<N>,
    transactor: &mut Transactor,
    mut entry: EntryMut<'_, K, N::Flow>,
    lane: Lane<'_, N::Meta>,
    decided: impl FnOnce(&Verdict),
) -> Option<Effects> {
    let before = *entry.value_mut();
    // Set here rather than returned: a verdict is large, and a copy costs as much as a short step.
    let (mut flow, mut verdict, mut asked) = (before, Verdict::forward(), Effects::default());
    transactor.transact(common, lane.now, lane.seq, lane.frame, |cx| {
        flow = before;
        match nf.packet(cx, &mut flow, lane.meta) {
            Ok(ref outcome) => verdict.set(outcome),
            Err(conflict) => return Err(conflict),
        }
        asked = expire_if_closed(nf, cx, &flow)?;
        Ok(())
    });
    *entry.value_mut() = flow;
    decided(&verdict);
    let Effects { deadline, close, assured } = asked;
    let moved = deadline.is_none_or(|deadline| entry.move_deadline(deadline));
    let granted = moved && !close && (!assured || entry.is_protected());
    (!granted).then_some(Effects { deadline, close, assured })
}
