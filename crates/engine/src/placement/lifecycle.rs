//! The life of a flow: how it is opened, turned away, and ended.
//!
//! All of it is written here, once. A placement says where flows lie (a [`FlowStore`]) and how handlers run (a [`Runner`]). Handlers run
//! first, on copies; the store changes once they have succeeded. So a transaction that fails, or a handler that panics, leaves no half
//! of a step behind.

use core::convert::Infallible;

use flow::{Ageing, Slot};
use memory::{Local, LocalTx, Memory};
use nf::{Context, Effects, Meta, NetworkFunction, Opened, Reason, Step, Verdict};
use packet::{Key, Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::tables::{Refusal, Sources, Tables};
use crate::placement::{Lane, Ticket};

/// How many ended flows a packet takes away besides its own work. Two keep up with any rate of arrivals, since a packet
/// opens at most one flow and re-arms at most one timer.
pub(crate) const RECLAIM_PER_PACKET: usize = 2;
/// Units of ageing that an idle core does in one table before it looks for packets again.
pub(crate) const AGE_UNITS: usize = 256;

/// How a flow ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Expired,
    Closed,
    Evicted,
}

/// What a core, or a stripe, counts about flows, and the options that it keeps them by.
pub(crate) struct Ledger {
    pub(crate) options: Tables,
    pub(crate) counters: FlowCounters,
    /// How many flows each source has, where that is limited.
    pub(crate) sources: Option<Sources>,
}

impl Ledger {
    /// A ledger for at most so many flows.
    pub(crate) fn new(options: Tables, flows: usize, seed: u64) -> Self {
        let sources = options.per_source.map(|most| Sources::new(most, flows, seed));
        Self { options, counters: FlowCounters::default(), sources }
    }

    fn count(&mut self, how: End) {
        match how {
            End::Expired => self.counters.expired += 1,
            End::Closed => self.counters.closed += 1,
            End::Evicted => self.counters.evicted += 1,
        }
    }

    fn count_refused(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Full => self.counters.orphaned += 1,
            Refusal::Early => self.counters.early_dropped += 1,
            Refusal::Source => self.counters.limited += 1,
        }
    }

    /// Gives back a place that a source was counted for.
    fn leave(&mut self, origin: Option<u32>) {
        if let (Some(origin), Some(sources)) = (origin, &mut self.sources) {
            sources.leave(origin);
        }
    }
}

/// A flow that is about to end.
#[derive(Clone, Copy)]
pub(crate) struct Ending<V> {
    pub(crate) slot: Slot,
    pub(crate) flow: V,
    pub(crate) deadline: Nanos,
    /// When its last step was, where cores share flows and hold packets of different ages; 0 elsewhere.
    pub(crate) last: Nanos,
}

/// A flow that is about to be stored.
#[derive(Clone, Copy)]
pub(crate) struct Opening<V> {
    pub(crate) flow: V,
    pub(crate) deadline: Nanos,
    pub(crate) assured: bool,
}

/// Flows of one family that nobody else opens or ends at the moment.
pub(crate) trait FlowStore<V: Copy> {
    /// What names a flow.
    type Key: Key;

    fn len(&self) -> usize;
    fn capacity(&self) -> usize;
    fn is_full(&self) -> bool;
    fn ledger(&mut self) -> &mut Ledger;

    /// Where the source of the slot's flow is counted. Asked for where sources are limited.
    fn origin(&mut self, slot: Slot) -> &mut u32;

    /// Does one bounded unit of ageing: a flow whose deadline has passed by `now`, if one came to light.
    fn reclaim(&mut self, now: Nanos) -> Option<Ending<V>>;

    /// Whether [`reclaim`](Self::reclaim) may find more by `now`.
    fn is_due(&self, now: Nanos) -> bool;

    /// A flow whose deadline has passed, among those that lie where a new one with this hash would.
    fn dead_near(&mut self, hash: u64, now: Nanos) -> Option<Ending<V>>;

    /// The flow that makes room for one with this hash in a full table, if one may.
    fn victim(&mut self, hash: u64, now: Nanos) -> Option<Ending<V>>;

    /// Removes a flow that has ended, if it is still there.
    fn remove(&mut self, slot: Slot);

    /// Stores a flow; `None` when there is no place for it.
    fn insert(&mut self, key: Self::Key, hash: u64, opening: Opening<V>, now: Nanos) -> Option<Slot>;

    /// The packet's step is decided, and nothing of it can be seen by other cores yet.
    fn decided(&mut self, _seq: Seq, _now: Nanos) {}
}

/// Runs handlers on a kind of memory.
pub(crate) trait Runner<N: NetworkFunction> {
    type Memory: Memory;

    /// Runs `body` as one step, again from its beginning if it conflicted with another core's.
    fn run<T>(
        &mut self,
        now: Nanos,
        seq: Seq,
        body: impl for<'x> FnMut(&mut Context<'x, N, Self::Memory>) -> Step<T, Self::Memory>,
    ) -> T;
}

/// Runs handlers on memory that one core owns.
pub(crate) struct OnLocal<'a, N: NetworkFunction>(pub(crate) &'a N::Shared<Local>);

impl<N: NetworkFunction> Runner<N> for OnLocal<'_, N> {
    type Memory = Local;

    #[inline]
    fn run<T>(
        &mut self,
        now: Nanos,
        seq: Seq,
        mut body: impl for<'x> FnMut(&mut Context<'x, N, Local>) -> Step<T, Local>,
    ) -> T {
        always(body(&mut Context::new(self.0, LocalTx::default(), now, seq)))
    }
}

/// Flows of one family, and the handlers that are called when they come and go.
pub(crate) struct Lifecycle<'a, N, S, R> {
    pub(crate) nf: &'a N,
    pub(crate) store: S,
    pub(crate) runner: R,
}

/// A place for a new flow.
struct Room<V> {
    /// Where its source is counted, if sources are limited.
    origin: Option<u32>,
    /// Who has to go for it.
    victim: Option<Ending<V>>,
}

/// What the handlers have decided about a packet whose flow isn't known.
enum Decision<V> {
    /// The function opens no flow for it.
    Refused(Verdict),
    /// The flow isn't let in.
    Orphaned(Verdict, Refusal),
    /// The flow is opened, and the packet has been its first.
    Opened { verdict: Verdict, opening: Opening<V>, closed: bool },
    /// The flow that makes room has been stepped on at this later time: the packet can't be ahead of it.
    Later(Nanos),
}

impl<N: NetworkFunction, S: FlowStore<N::Flow>, R: Runner<N>> Lifecycle<'_, N, S, R> {
    /// Takes the step of a packet whose flow isn't known: opens it, making room for it if needed and allowed.
    pub(crate) fn open(&mut self, key: S::Key, lane: Lane<'_, N::Meta>) -> Verdict {
        let Ticket { hash, seq, mut now, .. } = *lane.ticket;
        if self.store.ledger().options.ageing == Ageing::Lazy {
            while let Some(dead) = self.store.dead_near(hash, now) {
                self.end(&dead, (now, seq), End::Expired);
            }
        }
        // Made once, when the function first opens the flow; kept if the step is run again.
        let mut room = None;
        let decision = loop {
            let Self { nf, store, runner } = self;
            let decision = runner.run(now, seq, |cx| {
                decide(*nf, cx, lane.meta, || room.get_or_insert_with(|| make_room(store, lane)), now)
            });
            match decision {
                Decision::Later(later) => now = later,
                decision => break decision,
            }
        };
        self.store.decided(seq, now);
        let room = room.and_then(Result::ok);
        let origin = room.as_ref().and_then(|room| room.origin);
        match decision {
            Decision::Opened { verdict, opening, closed } => {
                if let Some(victim) = room.and_then(|room| room.victim) {
                    let how = if victim.deadline <= now { End::Expired } else { End::Evicted };
                    self.forget(victim.slot, how);
                }
                self.store.ledger().counters.opened += 1;
                if closed {
                    self.store.ledger().leave(origin);
                    self.store.ledger().count(End::Closed);
                } else {
                    self.keep(key, hash, opening, origin, (now, seq));
                }
                verdict
            }
            Decision::Orphaned(verdict, refusal) => {
                self.store.ledger().count_refused(refusal);
                verdict
            }
            Decision::Refused(verdict) => {
                self.store.ledger().leave(origin);
                verdict
            }
            Decision::Later(_) => unreachable!("the step was run again at that time"),
        }
    }

    /// Stores a flow that was opened. Where dozens of keys have its hash there is no place for it after all: it was there for one
    /// packet, and ends as one that made room.
    fn keep(&mut self, key: S::Key, hash: u64, opening: Opening<N::Flow>, origin: Option<u32>, at: (Nanos, Seq)) {
        match self.store.insert(key, hash, opening, at.0) {
            Some(slot) => {
                if let Some(origin) = origin {
                    *self.store.origin(slot) = origin;
                }
            }
            None => {
                let Self { nf, store, runner } = self;
                runner.run(at.0, at.1, |cx| nf.expire(cx, &opening.flow));
                store.ledger().leave(origin);
                store.ledger().count(End::Evicted);
            }
        }
    }

    /// Ends a flow: tells the function in a step of its own, and removes it.
    #[inline(never)]
    pub(crate) fn end(&mut self, ending: &Ending<N::Flow>, (now, seq): (Nanos, Seq), how: End) {
        let Self { nf, runner, .. } = self;
        runner.run(now, seq, |cx| nf.expire(cx, &ending.flow));
        self.forget(ending.slot, how);
    }

    /// Removes a flow whose end the function was told.
    pub(crate) fn forget(&mut self, slot: Slot, how: End) {
        if self.store.ledger().sources.is_some() {
            let origin = *self.store.origin(slot);
            self.store.ledger().leave(Some(origin));
        }
        self.store.remove(slot);
        self.store.ledger().count(how);
    }

    /// Ends flows whose deadline has passed by `now`, by so many units of work at most; `true` when there was more to do, and some ended.
    pub(crate) fn reclaim(&mut self, now: Nanos, seq: Seq, units: usize) -> bool {
        let mut some = false;
        for _ in 0..units {
            match self.store.reclaim(now) {
                Some(ending) => {
                    self.end(&ending, (now, seq), End::Expired);
                    some = true;
                }
                None if self.store.is_due(now) => {}
                None => return false,
            }
        }
        some
    }
}

/// Runs the handlers for a packet whose flow isn't known. `room` is asked for once the function opens a flow.
fn decide<'r, N: NetworkFunction, M: Memory>(
    nf: &N,
    cx: &mut Context<'_, N, M>,
    meta: &N::Meta,
    room: impl FnOnce() -> &'r mut Result<Room<N::Flow>, Refusal>,
    now: Nanos,
) -> Step<Decision<N::Flow>, M> {
    let mut flow = match nf.open(cx, meta)? {
        Opened::Flow(flow) => flow,
        Opened::Refused(verdict) => return Ok(Decision::Refused(verdict)),
    };
    let opened = cx.next();
    match room() {
        Err(refusal) => {
            // What opening it took is given back, and the function decides.
            nf.expire(cx, &flow)?;
            cx.next();
            let verdict = match nf.orphan(cx, meta)? {
                Verdict::Drop(Reason::TABLE_FULL) => Verdict::Drop(refusal.reason()),
                verdict => verdict,
            };
            return Ok(Decision::Orphaned(verdict, *refusal));
        }
        Ok(Room { victim: Some(victim), .. }) if victim.last > now => return Ok(Decision::Later(victim.last)),
        Ok(Room { victim: Some(victim), .. }) => {
            nf.expire(cx, &victim.flow)?;
            cx.next();
        }
        Ok(Room { victim: None, .. }) => {}
    }
    let verdict = nf.packet(cx, &mut flow, meta)?;
    let effects = tell_end(nf, cx, &flow)?;
    let opening = Opening {
        flow,
        deadline: effects.deadline.or(opened.deadline).unwrap_or(Nanos::NEVER),
        assured: opened.assured | effects.assured,
    };
    Ok(Decision::Opened { verdict, opening, closed: effects.close })
}

/// What a flow's step asked for; if the flow's end is among it, the function is told in the same step.
#[inline(always)]
pub(crate) fn tell_end<N: NetworkFunction, M: Memory>(
    nf: &N,
    cx: &mut Context<'_, N, M>,
    flow: &N::Flow,
) -> Step<Effects, M> {
    let effects = cx.next();
    if effects.close {
        nf.expire(cx, flow)?;
    }
    Ok(effects)
}

/// Decides whether a new flow is let in, and who has to go for it.
fn make_room<V: Copy, S: FlowStore<V>, M: Meta>(store: &mut S, lane: Lane<'_, M>) -> Result<Room<V>, Refusal> {
    let (len, capacity, is_full) = (store.len(), store.capacity(), store.is_full());
    let Ledger { options, sources, .. } = store.ledger();
    if options.drops_early(len, capacity, chance(lane.hash, lane.seq)) {
        return Err(Refusal::Early);
    }
    let origin = sources.as_mut().map(|sources| sources.enter(lane.meta.source())).transpose()?;
    if !is_full {
        return Ok(Room { origin, victim: None });
    }
    match store.victim(lane.hash, lane.now) {
        None => {
            store.ledger().leave(origin);
            Err(Refusal::Full)
        }
        victim => Ok(Room { origin, victim }),
    }
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
const fn chance(hash: u64, seq: Seq) -> u32 {
    let mixed = (hash ^ seq.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}
