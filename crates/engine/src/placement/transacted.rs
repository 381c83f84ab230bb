//! State that packet sets share, in memory that cores change by transactions (`transactional`); what a packet set has of its own
//! is sharded, as `rss` does it.
//!
//! A packet's step is one transaction, and so is the end of a flow whose deadline has passed. Handlers work on a copy of the
//! flow, and tables change once a transaction has committed, so one that fails leaves nothing behind.

use std::collections::HashMap;
use std::sync::Arc;

use flow::{EntryMut, Hint, Slot};
use memory::Transactional;
use memory::transactional::{Collision, CommitPosition, CoreHandle};
use nf::{
    Context, Effects, Fingerprint, Flow, Function, Meta, NetworkFunction, Opened, Report, Sizing, Speed, Step, Verdict,
};
use packet::{Family, FlowKey, Key, Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::lifecycle::{AGE_UNITS, End, Ledger, Lifecycle, RECLAIM_PER_PACKET, Runner, tell_end};
use crate::placement::owned::{Owned, OwnedTable, OwnedTables};
use crate::placement::replay_order::ReplayOrder;
use crate::placement::tables::Tables;
use crate::placement::{BURST, FlowState, Lane, Placement, records_are_of_all};

/// A core's handle on the state that all cores share, and its shard of the rest.
pub struct Transacted<N: Function> {
    tables: OwnedTables<N>,
    common: Arc<Common<N>>,
    own: Own,
    seed: u64,
    /// How many packets the next transaction takes, where packet sets have no state of their own.
    batch: usize,
    verdicts: Box<[Verdict; BURST]>,
}

/// A core's way to transactions.
struct Own {
    session: CoreHandle,
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
    Recorded(Vec<CommitPosition>),
    /// It is this.
    Given(Arc<ReplayOrder>),
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

impl<N: Function> Transacted<N> {
    /// Handles for `cores` cores, each with tables for `sizing` flows.
    pub(crate) fn handles(nf: &N, cores: usize, sizing: Sizing, seed: u64, tables: Tables) -> Vec<Self> {
        let memory = Transactional::new(cores, seed);
        let sessions = memory.core_handles();
        let common = Arc::new(Common { shared: nf.shared(&memory), memory });
        let handle = |session| Self {
            tables: OwnedTables::new(sizing, seed, tables),
            common: Arc::clone(&common),
            own: Own { session, tally: Transactions::default(), order: Order::Any },
            seed,
            batch: BURST,
            verdicts: Box::new([Verdict::forward(); BURST]),
        };
        sessions.into_iter().map(handle).collect()
    }

    /// From now on the order of transactions is kept, one packet each. It grows with every step: for verification alone.
    pub fn record(&mut self) {
        self.own.order = Order::Recorded(Vec::new());
    }

    /// The places of this core's transactions among all, in the order that it made them; none unless [recorded](Self::record).
    pub(crate) fn places(&self) -> &[CommitPosition] {
        match &self.own.order {
            Order::Recorded(places) => places,
            Order::Any | Order::Given(_) => &[],
        }
    }

    /// From now on transactions are in this order. The cores have to be given the packets that they had when it was recorded.
    pub fn repeat(&mut self, order: &Arc<ReplayOrder>) {
        self.own.order = Order::Given(Arc::clone(order));
    }

    /// From now on it is kept who was in whose way.
    pub fn profile(&mut self) {
        self.own.session.record(true);
    }

    /// What became of this core's transactions.
    pub const fn transactions(&self) -> &Transactions {
        &self.own.tally
    }

    /// The digest of what all packet sets share.
    pub fn fingerprint(&mut self, nf: &N) -> Fingerprint {
        let Self { common, own, .. } = self;
        own.transact(common, Nanos(0), Seq(0), |cx| {
            let mut fingerprint = Fingerprint::default();
            nf.fingerprint(cx.shared, &mut cx.tx, &mut fingerprint)?;
            Ok(fingerprint)
        })
    }

    /// What the function reports at `now` from these flows, which are those of all cores. Nobody else may be at it: what is recorded or
    /// counted of transactions knows nothing of this one.
    pub(crate) fn report(&mut self, nf: &N, flows: &nf::FlowList<'_, N>, now: Nanos) -> Option<Report> {
        let Self { common, own, .. } = self;
        let (order, tally) = (std::mem::replace(&mut own.order, Order::Any), own.tally.clone());
        let report = own.transact(common, now, Seq(0), |cx| nf.report(cx, flows));
        (own.order, own.tally) = (order, tally);
        report
    }

    /// The flows of this shard whose deadline is later than `now`.
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

    fn step(&mut self, nf: &N, lane: Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict)) {
        let Self { tables: OwnedTables { v4, v6, ledger }, common, own, .. } = self;
        match lane.meta.key().family() {
            _ if !N::Flow::STORED => {
                settle(&own.transact(common, lane.now, lane.seq, |cx| stateless(nf, cx, lane.meta)));
            }
            Family::V4(key) => Stepping { nf, flows: v4, ledger, common, own }.step(key, lane, settle),
            Family::V6(key) => Stepping { nf, flows: v6, ledger, common, own }.step(key, lane, settle),
        }
    }

    /// Several steps in a transaction, as long as those don't fail.
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
            if let Order::Given(order) = &own.order {
                order.wait(own.session.core());
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

    fn age(&mut self, nf: &N, now: Nanos, last: Seq) -> bool {
        let Self { tables: OwnedTables { v4, v6, ledger }, common, own, .. } = self;
        Stepping { nf, flows: v4, ledger, common, own }.lifecycle().reclaim(now, last, AGE_UNITS)
            || Stepping { nf, flows: v6, ledger, common, own }.lifecycle().reclaim(now, last, AGE_UNITS)
    }

    fn flow_counters(&self) -> FlowCounters {
        self.tables.ledger.counters
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
        if let Order::Given(order) = &self.order {
            order.wait(self.session.core());
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
    fn committed(&mut self, place: CommitPosition, aborts: u32, packets: usize) {
        self.tally.committed += 1;
        self.tally.turns += u64::from(aborts >= memory::transactional::ABORTS_MAX);
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
            && self.session.is_recording()
        {
            *self.tally.collisions.entry(collision).or_default() += 1;
        }
    }
}

/// The table of a packet's family, with what its step needs besides.
struct Stepping<'a, N: Function, K> {
    nf: &'a N,
    flows: &'a mut OwnedTable<K, N::Flow>,
    ledger: &'a mut Ledger,
    common: &'a Common<N>,
    own: &'a mut Own,
}

/// Runs handlers in transactions.
struct Transacting<'a, N: Function> {
    common: &'a Common<N>,
    own: &'a mut Own,
}

impl<N: Function> Runner<N> for Transacting<'_, N> {
    type Memory = Transactional;

    #[inline]
    fn run<T>(
        &mut self,
        now: Nanos,
        seq: Seq,
        body: impl for<'x> FnMut(&mut Context<'x, N, Transactional>) -> Step<T, Transactional>,
    ) -> T {
        self.own.transact(self.common, now, seq, body)
    }
}

impl<N: Function, K: Key> Stepping<'_, N, K> {
    /// What opens and ends flows in this table.
    #[inline]
    fn lifecycle(&mut self) -> Lifecycle<'_, N, Owned<'_, K, N::Flow>, Transacting<'_, N>> {
        let Self { nf, flows, ledger, common, own } = self;
        Lifecycle { nf, store: Owned { flows, ledger }, runner: Transacting { common, own } }
    }

    #[inline(always)]
    fn step(mut self, key: K, lane: Lane<'_, N::Meta>, settle: impl FnOnce(&Verdict)) {
        for _ in 0..RECLAIM_PER_PACKET {
            let Some(slot) = self.flows.table.reclaim(lane.now) else { break };
            self.lifecycle().end_at(slot, lane, End::Expired);
        }
        // Looked for where its hint says, then everywhere.
        let slot = match self.flows.table.entry_at_hint(&key, lane.hint, lane.now) {
            Some(entry) => entry.slot(),
            None => match self.lifecycle().alive(&key, lane) {
                Some(slot) => slot,
                None => return settle(&self.open(key, lane)),
            },
        };
        let entry = self.flows.table.entry(slot, lane.now);
        if let Some(effects) = packet(self.nf, self.common, self.own, entry, lane, settle) {
            self.take_effect(slot, effects);
        }
    }

    #[inline(never)]
    fn open(&mut self, key: K, lane: Lane<'_, N::Meta>) -> Verdict {
        self.lifecycle().open(key, lane)
    }

    /// Does to its table what a flow's step asked for and is not done with every packet. A flow's end has been told already.
    #[inline(never)]
    fn take_effect(&mut self, slot: Slot, effects: Effects) {
        let mut lifecycle = self.lifecycle();
        lifecycle.store.apply(slot, effects);
        if effects.close {
            lifecycle.forget(slot, End::Closed);
        }
    }
}

/// Gives the packet to its flow. What the step asks for and the entry alone can't grant is handed back; a flow's end has been told
/// already.
#[inline(always)]
fn packet<N: Function, K: Key>(
    nf: &N,
    common: &Common<N>,
    own: &mut Own,
    mut entry: EntryMut<'_, K, N::Flow>,
    lane: Lane<'_, N::Meta>,
    settle: impl FnOnce(&Verdict),
) -> Option<Effects> {
    let before = *entry.value_mut();
    // Set here rather than handed out: verdicts are large, and to copy one costs as much as a short step.
    let (mut flow, mut verdict, mut asked) = (before, Verdict::forward(), Effects::default());
    own.transact(common, lane.now, lane.seq, |cx| {
        flow = before;
        match nf.packet(cx, &mut flow, lane.meta) {
            Ok(ref decided) => verdict.set(decided),
            Err(conflict) => return Err(conflict),
        }
        asked = tell_end(nf, cx, &flow)?;
        Ok(())
    });
    *entry.value_mut() = flow;
    settle(&verdict);
    let Effects { deadline, close, assured } = asked;
    let moved = deadline.is_none_or(|deadline| entry.move_deadline(deadline));
    let granted = moved && !close && (!assured || entry.is_protected());
    (!granted).then_some(Effects { deadline, close, assured })
}
