//! Functions over streams: an author hears what both sides of a session say, in order, and never sees a segment.
//!
//! [`StreamFunction`] is what an author writes. [`Streams`] makes a [`NetworkFunction`] of it: it tracks connections with the product's one
//! tracker ([`tracking`](crate::tracking)), reassembles TCP with the crate `stream`, and hands over UDP datagrams as they come. The
//! smallest function of this kind is [`stream_match`](crate::stream_match); behaviour and settings: `docs/streams.md`.

mod config;
mod conversation;
mod hearing;
mod keeper;
mod meta;
mod parts;

use core::fmt::Debug;

use memory::Memory;
use nf::{
    Context, Description, Flow, FlowList, NetworkFunction, Opened, PacketCounts, PacketSet, Plain, Reason, Report,
    Sizing, Stages, Step, Verdict,
};
use packet::{FiveTuple, Headers, Nanos};
use stream::{Budget, Limits, Policy, Pool};
pub use stream::{Deviation, End, Gap};

pub use self::config::{STREAM_KEYS, StreamConfig, StreamKeys};
pub use self::conversation::Conversation;
pub use self::hearing::{Beginning, Hearing, Said, Tallies};
pub use self::meta::Portion;
use self::parts::Script;
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

    /// False if the function hears nothing at all: then no stream is reassembled.
    const LISTENS: bool = true;

    /// The number of counters that [`Hearing::count`] may name.
    fn counters(&self) -> usize {
        0
    }

    /// Opens a session.
    fn open(&self, session: &Session) -> Self::Flow;

    /// Hears what happens in a session.
    fn hear(&self, cx: &mut Hearing<'_>, flow: &mut Self::Flow, said: Said<'_>);

    /// Ends a session. Nothing more is heard of it.
    fn close(&self, _cx: &mut Hearing<'_>, _flow: &mut Self::Flow) {}

    /// The report at the end of a run, from the sessions that have not ended yet, as if they ended now, and from what was counted.
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

/// The memory of the sessions of one table. Two pools, since one of them is locked while the function hears early segments.
#[derive(Debug)]
pub struct Pools {
    early: Pool,
    kept: Pool,
}

/// A session as it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The five-tuple as the first packet has it: its source is the opener, unless the session was picked up midstream.
    pub tuple: FiveTuple,
    /// The time of the first packet.
    pub began: Nanos,
}

/// A [`StreamFunction`] as a [`NetworkFunction`].
#[derive(Clone, Debug)]
pub struct Streams<F> {
    function: F,
    rules: Rules,
    policy: Policy,
    limits: Limits,
    /// The memory for early segments of all tables. It counts blocks, and decides nothing while any are left.
    budget: Budget,
    sizing: Sizing,
}

impl<F: StreamFunction> Streams<F> {
    /// The function, with the settings of reassembly and tracking.
    #[must_use]
    pub fn new(function: F, config: &StreamConfig) -> Self {
        const { assert!(F::KEEPS <= BEGINNING_MAX, "a side's beginning is kept up to BEGINNING_MAX bytes") };
        Self {
            function,
            rules: config.rules(),
            policy: config.policy(),
            limits: config.limits(),
            budget: Budget::new(config.memory()),
            sizing: config.sizing(),
        }
    }

    /// The function over streams.
    #[must_use]
    pub const fn function(&self) -> &F {
        &self.function
    }

    /// The memory that early segments take at most, in bytes.
    #[must_use]
    pub fn memory_max(&self) -> usize {
        self.budget.bytes()
    }

    /// The same with another function.
    fn with<G>(&self, function: G) -> Streams<G> {
        let Self { rules, policy, limits, ref budget, sizing, .. } = *self;
        Streams { function, rules, policy, limits, budget: Budget::new(budget.bytes()), sizing }
    }

    /// Decides on a packet off the fast path. The second value is true if the packet begins a new connection between the same ports.
    #[inline(never)]
    fn judge(&self, now: Nanos, flow: &mut Conversation<F::Flow>, meta: &Portion) -> (Result<Outcome, Cause>, bool) {
        let (connection, seen) = (&mut flow.connection, &meta.observation);
        if let Some(idle) = connection.flow_on(seen, &self.rules) {
            return (Ok(Outcome::Valid(idle)), false);
        }
        match connection.step(seen, &self.rules, now) {
            Outcome::Reopens => {
                let reopened = connection.reopen(seen, &self.rules, now);
                let is_new = reopened.is_ok();
                (reopened, is_new)
            }
            outcome => (Ok(outcome), false),
        }
    }
}

impl<F: StreamFunction> NetworkFunction for Streams<F> {
    type Meta = Portion;
    type Flow = Conversation<F::Flow>;
    type Shared<M: Memory> = Pools;
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

    /// Tracking alone, then with reassembly.
    fn stages<S: Stages>(&self, packets: usize, stages: &mut S) {
        let script = Script::new(packets);
        stages.stage("track", self.with(parts::Deaf(self.function.clone())));
        stages.rehearse(self.with(parts::Recorded::new(self.function.clone(), &script)));
        stages.stage("reassemble", self.with(parts::Scripted::new(self.function.clone(), &script)));
    }

    fn shared<M: Memory>(&self, _memory: &M) -> Pools {
        Pools { early: Pool::new(&self.budget), kept: Pool::new(&self.budget) }
    }

    #[inline(always)]
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<Portion> {
        Portion::of(headers, frame)
    }

    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &Portion) -> Step<Opened<Self::Flow>, M> {
        let session = Session { tuple: meta.observation.tuple(), began: cx.now() };
        Ok(match Conversation::open(meta, &self.rules, cx.now(), || self.function.open(&session)) {
            Ok(conversation) => Opened::Flow(conversation),
            Err(_) => {
                Tallies::INVALID.count(cx, meta);
                Opened::Refused(Verdict::forward())
            }
        })
    }

    #[inline(always)]
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Self::Flow,
        meta: &Portion,
    ) -> Step<Verdict, M> {
        if !flow.connection.flow(&meta.observation, &self.rules, cx) {
            let (judged, is_new) = self.judge(cx.now(), flow, meta);
            if is_new {
                self.conclude_session(cx.shared, cx.counts(), cx.now(), flow);
                let session = Session { tuple: meta.observation.tuple(), began: cx.now() };
                flow.begin_anew(self.function.open(&session));
            }
            let is_valid = judged.and_then(|outcome| outcome.carry_out(&flow.connection, cx)).is_ok();
            if !is_valid && flow.is_one_sided(meta) {
                // The other side's packets take another way. Nobody can say what is valid then.
                cx.expire_after(self.rules.tcp.idle_unacknowledged);
            } else if !is_valid {
                Tallies::INVALID.count(cx, meta);
                return Ok(flow.verdict());
            }
        }
        if F::LISTENS && flow.listens() {
            self.listen(cx.shared, cx.counts(), cx.now(), flow, meta, cx.frame());
        }
        Ok(flow.verdict())
    }

    fn expire<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &Self::Flow) -> Step<(), M> {
        let mut flow = *flow;
        self.conclude_session(cx.shared, cx.counts(), cx.now(), &mut flow);
        Ok(())
    }

    fn conclude<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &Self::Flow) -> Step<Self::Flow, M> {
        let mut flow = *flow;
        self.look_ahead(cx.shared, cx.counts(), cx.now(), &mut flow);
        Ok(flow)
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flows: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let empty = PacketCounts::default();
        let tallies = Tallies::new(cx.counts().unwrap_or(&empty));
        let alive = flows.alive().filter(|(_, flow)| !flow.is_closed());
        let mut sessions = alive.map(|(key, flow)| (flow.as_opened(key), flow.own));
        Ok(self.function.report(&mut sessions, &tallies))
    }

    /// Without room, a session isn't heard; its packets are dropped only if the function can drop some.
    fn orphan<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Portion) -> Step<Verdict, M> {
        let drops = !F::DESCRIPTION.drop_reasons.is_empty();
        Ok(if drops { Verdict::Drop(Reason::TABLE_FULL) } else { Verdict::forward() })
    }
}
