//! Functions over streams: an author hears what both sides of a session say, in order, and never sees a segment.
//!
//! [`StreamFunction`] is what an author writes. [`Streams`] makes a [`NetworkFunction`] of it: it tracks connections with the product's one
//! tracker ([`tracking`](crate::tracking)), reassembles TCP with the crate `stream`, and hands over UDP datagrams as they come. The
//! smallest function of this kind is [`stream_match`](crate::stream_match); behaviour and settings: `docs/streams.md`. If sessions share
//! state, the author writes a [`SharedStreamFunction`].

mod config;
mod conversation;
mod hearing;
mod holding;
mod keeper;
mod meta;
mod parts;
mod shared;

use alloc::sync::Arc;
use core::fmt::Debug;

use memory::Memory;
use nf::{
    Context, Description, Fingerprint, Flow, FlowList, NetworkFunction, Opened, PacketCounts, PacketSet, Plain, Reason,
    Report, Sizing, Stages, Step, Verdict,
};
use packet::{FiveTuple, Headers, Nanos, Network};
pub use stream::{Deviation, End, Gap};
use stream::{Limits, Policy, Pools, Storage};

pub use self::config::{STREAM_KEYS, StreamConfig, StreamKeys};
pub use self::conversation::Conversation;
pub use self::hearing::{Beginning, Hearing, Said, Tallies};
pub use self::meta::Portion;
pub use self::shared::{Access, SharedStreamFunction};
pub use crate::tracking::Direction;
use crate::tracking::{Cause, Outcome, Rules};

/// A function over streams: a sequential program that hears what the sides of a session say.
///
/// For each session, [`open`](Self::open) makes its state; [`hear`](Self::hear) is called for everything that happens in it;
/// [`close`](Self::close) is called once at its end, which may be the end of the run. What a function must not do is what a
/// [`NetworkFunction`] must not: depend on anything but its arguments.
pub trait StreamFunction: Clone + Debug + Send + Sync + 'static {
    /// The state of a session, as plain data.
    type Flow: Flow;

    /// The name, summary, configuration keys and drop reasons. [`sharing`](Description::sharing) is [`Streams`](nf::Sharing::Streams), and
    /// the keys have [`STREAM_KEYS`] among them.
    const DESCRIPTION: Description;

    /// How many bytes of the beginning of each side are kept, at most [`BEGINNING_MAX`], while the function listens to that side.
    /// [`Hearing::beginnings`] has them.
    const KEEPS: usize = 0;

    /// How many bytes of a side can be held at a time, at most [`HELD_MAX`], by [`Hearing::hold`]. A function holds bytes or keeps
    /// beginnings, not both.
    const HOLDS: usize = 0;

    /// False if the function hears nothing at all: then no stream is reassembled.
    const LISTENS: bool = true;

    /// True if the function hears datagrams of UDP. If false, it has no sessions of UDP, and their packets are forwarded.
    const HEARS_UDP: bool = true;

    /// True if [`report`](Self::report) also gets sessions that were closed, while they are in the table.
    const REPORTS_CLOSED: bool = false;

    /// True if the function may drop packets as it is configured. Then packets that find no room, and frames that cannot be read, are
    /// dropped, since they must not be a way around it.
    fn drops(&self) -> bool {
        !Self::DESCRIPTION.drop_reasons.is_empty()
    }

    /// The number of counters that [`Hearing::count`] may name.
    fn counters(&self) -> usize {
        0
    }

    /// Opens a session.
    fn open(&self, session: &Session) -> Self::Flow;

    /// Takes note of a packet of a session, valid or not, heard or not, before anything in it is heard. `cx` can count, and nothing else.
    fn packet(&self, _cx: &Hearing<'_>, _flow: &mut Self::Flow, _packet: &Portion) {}

    /// Hears bytes of TCP that a side sent before, from this offset in its stream on. They may differ from those that were heard there, or
    /// be those of a gap.
    fn hear_again(&self, _cx: &mut Hearing<'_>, _flow: &mut Self::Flow, _from: Direction, _offset: u64, _bytes: &[u8]) {
    }

    /// Hears what happens in a session.
    fn hear(&self, cx: &mut Hearing<'_>, flow: &mut Self::Flow, said: Said<'_>);

    /// Ends a session. Nothing more is heard of it.
    fn close(&self, _cx: &mut Hearing<'_>, _flow: &mut Self::Flow) {}

    /// The report at the end of a run, from the sessions that were not closed yet, as if they ended now, and from what was counted.
    fn report(
        &self,
        _sessions: &mut dyn Iterator<Item = (FiveTuple, Self::Flow)>,
        _tallies: &Tallies<'_>,
    ) -> Option<Report> {
        None
    }
}

/// The most bytes of each side's beginning that can be kept.
pub const BEGINNING_MAX: usize = 4096;

/// The most bytes of a side that can be held.
pub const HELD_MAX: usize = 8192;

/// The memory of the sessions of one table, and what its sessions share.
#[derive(Debug)]
pub struct Common<S> {
    pools: Arc<Pools>,
    shared: S,
}

/// A session as it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The five-tuple as the first packet has it: its source is the opener, unless the session was picked up midstream.
    pub tuple: FiveTuple,
    /// The time of the first packet.
    pub began: Nanos,
    /// True if its beginning was not seen, so that what is told first may be the rest of something.
    pub midstream: bool,
}

impl Session {
    /// The session that begins with this packet.
    const fn begun_by(meta: &Portion, began: Nanos) -> Self {
        Self { tuple: meta.observation.tuple(), began, midstream: meta.is_midstream() }
    }
}

impl<S> Common<S> {
    /// What the sessions share.
    pub(crate) const fn shared(&self) -> &S {
        &self.shared
    }
}

/// A [`StreamFunction`] or [`SharedStreamFunction`] as a [`NetworkFunction`].
#[derive(Clone, Debug)]
pub struct Streams<F> {
    function: F,
    rules: Rules,
    policy: Policy,
    limits: Limits,
    /// The memory for early segments and beginnings of all tables.
    storage: Storage,
    sizing: Sizing,
}

impl<F: SharedStreamFunction> Streams<F> {
    /// Sessions share state.
    const SHARES: bool = F::DESCRIPTION.sharing.is_any();

    /// The function, with the settings of reassembly and tracking.
    #[must_use]
    pub fn new(function: F, config: &StreamConfig) -> Self {
        const {
            assert!(F::KEEPS <= BEGINNING_MAX, "a side's beginning is kept up to BEGINNING_MAX bytes");
            assert!(F::HOLDS <= HELD_MAX, "bytes are held up to HELD_MAX");
            assert!(F::KEEPS == 0 || F::HOLDS == 0, "one pool has both beginnings and held bytes");
            assert!(F::KEEPS == 0 || !Self::SHARES, "beginnings are not kept in transactions");
        };
        Self {
            function,
            rules: config.rules(),
            policy: config.policy(),
            limits: config.limits(),
            storage: Storage::new(config.memory(), if F::KEEPS == 0 && F::HOLDS == 0 { 0 } else { config.memory() }),
            sizing: config.sizing(),
        }
    }

    /// The function over streams.
    #[must_use]
    pub const fn function(&self) -> &F {
        &self.function
    }

    /// The same with another function, and with pools of its own.
    fn with<G>(&self, function: G) -> Streams<G> {
        let Self { rules, policy, limits, ref storage, sizing, .. } = *self;
        Streams { function, rules, policy, limits, storage: storage.anew(), sizing }
    }

    /// Begins a session with its first packet. `None` if the packet can't begin one.
    ///
    /// This, [`step`](Self::step) and [`end`](Self::end) are for network functions of which only some packets are a stream's.
    #[inline]
    pub(crate) fn begin<N: NetworkFunction, M: Memory>(
        &self,
        cx: &Context<'_, N, M>,
        meta: &Portion,
    ) -> Option<Conversation<F::Flow>> {
        let session = Session::begun_by(meta, cx.now());
        let begun = Conversation::open(meta, &self.rules, cx.now(), || self.function.open(&session)).ok();
        if begun.is_none() {
            Tallies::INVALID.count(cx, meta);
        }
        begun
    }

    /// Takes the step of a packet of a session. It must come ahead of any access to shared state.
    #[inline(always)]
    pub(crate) fn step<'a, N: NetworkFunction, M: Memory>(
        &self,
        cx: &mut Context<'a, N, M>,
        common: &'a Common<F::Shared<M>>,
        flow: &mut Conversation<F::Flow>,
        meta: &Portion,
    ) -> Step<Verdict, M> {
        if Self::SHARES && flow.uses_pools(meta, cx.frame()) {
            M::irrevocable(&mut cx.tx)?;
        }
        let mut is_valid = flow.connection.flow(&meta.observation, &self.rules, cx);
        if !is_valid {
            let (judged, is_new) = self.judge(cx.now(), flow, meta);
            if is_new {
                self.conclude_session(cx, common, flow)?;
                let session = Session::begun_by(meta, cx.now());
                flow.begin_anew(self.function.open(&session));
            }
            is_valid = judged.and_then(|outcome| outcome.carry_out(&flow.connection, cx)).is_ok();
            if !is_valid && flow.is_one_sided(meta) {
                // The other side's packets take another way. Nobody can say what is valid then.
                cx.expire_after(self.rules.tcp.idle_unacknowledged);
                is_valid = true;
            }
        }
        self.function.packet(&Hearing::new(cx.now(), cx.counts()), &mut flow.own, meta);
        if !is_valid {
            Tallies::INVALID.count(cx, meta);
        } else if F::LISTENS && flow.listens() {
            return self.listen(cx, common, flow, meta);
        }
        Ok(flow.verdict())
    }

    /// Ends a session.
    pub(crate) fn end<'a, N: NetworkFunction, M: Memory>(
        &self,
        cx: &mut Context<'a, N, M>,
        common: &'a Common<F::Shared<M>>,
        flow: &Conversation<F::Flow>,
    ) -> Step<(), M> {
        let mut flow = *flow;
        if Self::SHARES && flow.is_in_pools() {
            M::irrevocable(&mut cx.tx)?;
        }
        self.conclude_session(cx, common, &mut flow)
    }

    /// Decides on a packet off the fast path. The second value is true if the packet begins a new connection between the same ports.
    #[inline(never)]
    fn judge(&self, now: Nanos, flow: &mut Conversation<F::Flow>, meta: &Portion) -> (Result<Outcome, Cause>, bool) {
        let (connection, seen) = (&mut flow.connection, &meta.observation);
        if let Some(idle) = connection.flow_on(seen, &self.rules) {
            return (Ok(Outcome::Valid(idle)), false);
        }
        let was_open = !connection.is_opening();
        match connection.step(seen, &self.rules, now) {
            // A SYN-ACK answered a SYN that seemed to be a stray: the end of the connection before was not seen.
            outcome @ Outcome::Valid(_) if was_open && connection.is_opening() => (Ok(outcome), true),
            Outcome::Reopens => {
                let reopened = connection.reopen(seen, &self.rules, now);
                let is_new = reopened.is_ok();
                (reopened, is_new)
            }
            outcome => (Ok(outcome), false),
        }
    }
}

impl<F: SharedStreamFunction> NetworkFunction for Streams<F> {
    type Meta = Portion;
    type Flow = Conversation<F::Flow>;
    type Shared<M: Memory> = Common<F::Shared<M>>;
    type Speed = Plain;

    const DESCRIPTION: Description = F::DESCRIPTION;
    const COUNTS: bool = true;

    fn counters(&self) -> usize {
        Tallies::OWN + self.function.counters()
    }

    fn packet_set(&self) -> PacketSet {
        PacketSet::SymmetricFiveTuple
    }

    fn wants_whole_datagrams(&self) -> bool {
        true
    }

    fn sizing(&self) -> Sizing {
        self.sizing
    }

    fn stages<S: Stages>(&self, packets: usize, stages: &mut S) {
        F::stages(self, packets, stages);
    }

    fn shared<M: Memory>(&self, memory: &M) -> Common<F::Shared<M>> {
        Common { pools: self.storage.pools(), shared: self.function.shared(memory) }
    }

    fn shared_bytes_max(&self, states: usize) -> usize {
        self.storage.memory_max(states)
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        common: &'a Common<F::Shared<M>>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        self.function.fingerprint(&common.shared, tx, fingerprint)
    }

    #[inline(always)]
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Portion> {
        Portion::of(headers, frame).filter(|portion| F::HEARS_UDP || portion.is_tcp())
    }

    #[inline(always)]
    fn other(&self, headers: &Headers) -> Verdict {
        // A host may read it, and hear what must be dropped.
        match headers.network {
            Network::Unreadable if self.function.drops() => Verdict::Drop(Reason::UNREADABLE),
            Network::Unreadable | Network::None | Network::Arp | Network::V4(_) | Network::V6(_) => Verdict::forward(),
        }
    }

    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Portion) -> Step<Opened<Self::Flow>, M> {
        Ok(match self.begin(cx, meta) {
            Some(conversation) => Opened::Flow(conversation),
            None => Opened::Refused(Verdict::forward()),
        })
    }

    #[inline(always)]
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Self::Flow,
        meta: &Portion,
    ) -> Step<Verdict, M> {
        self.step(cx, cx.shared, flow, meta)
    }

    fn expire<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &Self::Flow) -> Step<(), M> {
        self.end(cx, cx.shared, flow)
    }

    fn conclude<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &Self::Flow) -> Step<Self::Flow, M> {
        let mut flow = *flow;
        self.look_ahead(cx, &mut flow)?;
        Ok(flow)
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let empty = PacketCounts::default();
        let tallies = Tallies::new(cx.counts().unwrap_or(&empty));
        let alive = flows.alive().filter(|(_, flow)| F::REPORTS_CLOSED || !flow.is_closed());
        let mut sessions = alive.map(|(key, flow)| (flow.as_opened(key), flow.own));
        let now = cx.now();
        let mut access = Access { shared: &cx.shared.shared, tx: &mut cx.tx };
        self.function.report(now, &mut access, &mut sessions, &tallies)
    }

    fn orphan<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &Portion) -> Step<Verdict, M> {
        self.function.orphan(&mut Access { shared: &cx.shared.shared, tx: &mut cx.tx })
    }
}
