//! The life cycle of flows: opening, refusing, ending.
//!
//! All placements share this code. A placement supplies a [`FlowStore`], where flows lie, and a [`Runner`], which runs handlers. Handlers
//! run first, on copies; the store changes after they have succeeded. So a failed transaction or a panicking handler leaves no half-done
//! step.

use core::convert::Infallible;

use flow::{Ageing, Slot};
use memory::{Local, LocalTx, Memory};
use nf::{Context, Effects, Meta, NetworkFunction, Opened, PacketCounts, Reason, Speed, Step, Verdict};
use packet::{Key, Nanos, Seq};

use crate::counters::FlowCounters;
use crate::placement::tables::{Refusal, Sources, Tables};
use crate::placement::{Lane, Ticket};

/// How many units of ageing a packet's step does besides its own work. Two keep up with any arrival rate, because a packet opens at most
/// one flow and re-arms at most one timer.
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

/// The flow counters of a core or a stripe, with its table options.
pub(crate) struct Ledger {
    pub(crate) options: Tables,
    pub(crate) counters: FlowCounters,
    /// How many flows each source has, if that is limited.
    pub(crate) sources: Option<Sources>,
}

impl Ledger {
    /// A ledger for at most `flows` flows.
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

    /// Gives back the source's place at `origin`.
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
    /// The time of its last step, for tables that cores share: their packets differ in time. 0 otherwise.
    pub(crate) last: Nanos,
}

/// A flow that is about to be stored.
#[derive(Clone, Copy)]
pub(crate) struct Opening<V> {
    pub(crate) flow: V,
    pub(crate) deadline: Nanos,
    pub(crate) assured: bool,
}

/// The flows of one address family, while no other core opens or ends any of them.
pub(crate) trait FlowStore<V: Copy> {
    /// The table's key.
    type Key: Key;

    fn len(&self) -> usize;
    fn capacity(&self) -> usize;
    fn is_full(&self) -> bool;
    fn ledger(&mut self) -> &mut Ledger;

    /// The place where the source of the slot's flow is counted. Only called if sources are limited.
    fn origin(&mut self, slot: Slot) -> &mut u32;

    /// Does one bounded unit of ageing. Returns a flow whose deadline has passed by `now`, if it found one.
    fn reclaim(&mut self, now: Nanos) -> Option<Ending<V>>;

    /// True if [`reclaim`](Self::reclaim) may find more by `now`.
    fn is_due(&self, now: Nanos) -> bool;

    /// An expired flow in one of the places where a new flow with this hash could lie.
    fn dead_near(&mut self, hash: u64, now: Nanos) -> Option<Ending<V>>;

    /// The flow to evict from a full table for a new flow with this hash.
    fn victim(&mut self, hash: u64, now: Nanos) -> Option<Ending<V>>;

    /// Removes a flow that has ended, if it is still there.
    fn remove(&mut self, slot: Slot);

    /// Stores a flow. `None` if there is no place for it.
    fn insert(&mut self, key: Self::Key, hash: u64, opening: Opening<V>, now: Nanos) -> Option<Slot>;

    /// Called after the packet's verdict is known and before other cores can see any effect.
    fn decided(&mut self, _seq: Seq, _now: Nanos) {}
}

/// Runs handlers on one kind of memory.
pub(crate) trait Runner<N: NetworkFunction> {
    type Memory: Memory;

    /// Runs `body` as one step, and repeats it after a conflict with another core. `frame` has the packet's bytes.
    fn run<T>(
        &mut self,
        now: Nanos,
        seq: Seq,
        frame: &[u8],
        body: impl for<'x> FnMut(&mut Context<'x, N, Self::Memory>) -> Step<T, Self::Memory>,
    ) -> T;
}

/// Runs handlers on memory that one core owns.
pub(crate) struct OnLocal<'a, N: NetworkFunction> {
    pub(crate) shared: &'a N::Shared<Local>,
    pub(crate) counts: Option<&'a PacketCounts>,
}

impl<N: NetworkFunction> Runner<N> for OnLocal<'_, N> {
    type Memory = Local;

    #[inline]
    fn run<T>(
        &mut self,
        now: Nanos,
        seq: Seq,
        frame: &[u8],
        mut body: impl for<'x> FnMut(&mut Context<'x, N, Local>) -> Step<T, Local>,
    ) -> T {
        let Self { shared, counts } = *self;
        counts.into_iter().for_each(PacketCounts::discard);
        let outcome =
            always(body(&mut Context::new(shared, LocalTx::default(), now, seq).counting(counts).reading(frame)));
        counts.into_iter().for_each(PacketCounts::commit);
        outcome
    }
}

/// The flows of one address family, with the function and a way to run its handlers.
pub(crate) struct Lifecycle<'a, N, S, R> {
    pub(crate) nf: &'a N,
    pub(crate) store: S,
    pub(crate) runner: R,
}

/// Room for a new flow.
struct Room<V> {
    /// Where its source is counted, if sources are limited.
    origin: Option<u32>,
    /// The flow to evict for it.
    victim: Option<Ending<V>>,
}

/// The outcome of the handlers for a packet without a known flow.
enum Decision<V> {
    /// The function opens no flow.
    Refused(Verdict),
    /// The flow found no room.
    Orphaned(Verdict, Refusal),
    /// The flow is opened, and the packet was its first.
    Opened { verdict: Verdict, opening: Opening<V>, closed: bool },
    /// The flow to be evicted had a step at this later time. The packet's step must run again at that time.
    Later(Nanos),
}

impl<N: NetworkFunction, S: FlowStore<N::Flow>, R: Runner<N>> Lifecycle<'_, N, S, R> {
    /// Takes the step of a packet without a known flow: opens the flow, after evicting another if needed and allowed.
    pub(crate) fn open(&mut self, key: S::Key, lane: Lane<'_, N::Meta>) -> Verdict {
        let Ticket { hash, seq, mut now, .. } = *lane.ticket;
        if N::Speed::refuses(self.nf, lane.meta) {
            return self.refuse(lane);
        }
        if self.store.ledger().options.ageing == Ageing::Lazy {
            while let Some(dead) = self.store.dead_near(hash, now) {
                self.end(&dead, (now, seq), End::Expired);
            }
        }
        // Made once, when the function first opens the flow; reused if the step runs again.
        let mut room = None;
        // Written by the handlers rather than returned: it is large.
        let mut decision = Decision::Later(now);
        while let Decision::Later(time) = decision {
            now = time;
            let Self { nf, store, runner } = self;
            runner.run(now, seq, lane.frame, |cx| {
                decision = decide(*nf, cx, lane.meta, || room.get_or_insert_with(|| make_room(store, lane)), now)?;
                Ok(())
            });
        }
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

    /// Takes the step of a packet that the function refuses in any state, without any other effect.
    #[inline]
    fn refuse(&mut self, lane: Lane<'_, N::Meta>) -> Verdict {
        let Self { nf, runner, .. } = self;
        let mut verdict = Verdict::forward();
        runner.run(lane.now, lane.seq, lane.frame, |cx| {
            match &nf.open(cx, lane.meta)? {
                Opened::Refused(refused) => verdict.set(refused),
                Opened::Flow(_) => unreachable!("the function refuses this packet"),
            }
            Ok(())
        });
        self.store.decided(lane.seq, lane.now);
        verdict
    }

    /// Stores a new flow. If dozens of keys share its hash there may be no place: the flow then ends at once, as evicted.
    fn keep(&mut self, key: S::Key, hash: u64, opening: Opening<N::Flow>, origin: Option<u32>, at: (Nanos, Seq)) {
        match self.store.insert(key, hash, opening, at.0) {
            Some(slot) => {
                if let Some(origin) = origin {
                    *self.store.origin(slot) = origin;
                }
            }
            None => {
                let Self { nf, store, runner } = self;
                runner.run(at.0, at.1, &[], |cx| nf.expire(cx, &opening.flow));
                store.ledger().leave(origin);
                store.ledger().count(End::Evicted);
            }
        }
    }

    /// Ends a flow: calls `expire` in a step of its own, and removes the flow.
    #[inline(never)]
    pub(crate) fn end(&mut self, ending: &Ending<N::Flow>, (now, seq): (Nanos, Seq), how: End) {
        let Self { nf, runner, .. } = self;
        runner.run(now, seq, &[], |cx| nf.expire(cx, &ending.flow));
        self.forget(ending.slot, how);
    }

    /// Removes a flow after its `expire` was called.
    pub(crate) fn forget(&mut self, slot: Slot, how: End) {
        if self.store.ledger().sources.is_some() {
            let origin = *self.store.origin(slot);
            self.store.ledger().leave(Some(origin));
        }
        self.store.remove(slot);
        self.store.ledger().count(how);
    }

    /// Ends flows whose deadline has passed by `now`, within `units` units of work. Returns true if some ended and more work was left.
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

/// Runs the handlers for a packet without a known flow. Calls `room` once the function opens a flow.
#[inline(always)]
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
            // `expire` gives back what `open` took; then the function gives the verdict.
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
    let effects = expire_if_closed(nf, cx, &flow)?;
    let opening = Opening {
        flow,
        deadline: effects.deadline.or(opened.deadline).unwrap_or(Nanos::NEVER),
        assured: opened.assured | effects.assured,
    };
    Ok(Decision::Opened { verdict, opening, closed: effects.close })
}

/// The effects that a flow's step requested. If it closed the flow, `expire` is called in the same step.
#[inline(always)]
pub(crate) fn expire_if_closed<N: NetworkFunction, M: Memory>(
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

/// Decides whether a new flow is admitted, and which flow is evicted for it.
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

/// Unwraps a result of local memory, which has no conflicts.
#[inline]
pub(crate) fn always<T>(step: Result<T, Infallible>) -> T {
    match step {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

/// A pseudo-random number from data that all replicas agree on.
#[inline]
const fn chance(hash: u64, seq: Seq) -> u32 {
    let mixed = (hash ^ seq.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}
