//! Runs rule sets of iptables as a router does: tables and chains in the kernel's order, connection tracking, rewriting of addresses.
//! Meaning and choices: `docs/rules.md` of this crate.
//!
//! Where no rule rewrites addresses, the connections are the flows of the engine, by the five-tuple of both directions. Where one does, a
//! connection has two tuples that differ, and all connections are in tables that packet sets share.

pub mod bytes;
mod classify;
mod compile;
mod config;
mod connections;
mod flow;
#[doc(hidden)]
pub mod lookup;
mod machine;
mod meta;
mod nat;
mod ranges;
pub mod router;
pub mod sets;
mod shortcut;
mod stateful;
pub mod test;
pub mod trace;
mod track;
mod tuple;
pub mod view;
mod walk;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use iptables::{Counters, Hook, RuleSet, TableKind};
use memory::Memory;
use nf::{
    Context, Count, Description, Fates, Fingerprint, FlowList, Kept, NetworkFunction, Opened, PacketCounts, PacketSet,
    Reason, Reply, Report, Sharing, Sizing, Speed, Step, Verdict, grouped,
};
use packet::{Headers, Nanos, Network, Rewrite};

use crate::list::Catalogued;
use crate::tracking::{Connection, Observation, Outcome};

use self::config::{Compiled, KEYS, Place};
use self::connections::{Added, Connections, Found, Stored, join_groups, leave_groups};
use self::flow::{First, FlowEntry, Memo};
use self::machine::Machine;
use self::meta::{Role, RulesMeta};
use self::shortcut::{End, Trail};
use self::stateful::{Moment, RuleState};
use self::trace::{Silent, Trace};
use self::track::{Entry, State as Seen, Status, Tally, Track};
use self::tuple::Tuple;
use self::walk::{Fate, TUPLE_TAKEN, Walk};

pub use self::compile::Refusal;
pub use self::config::{Config, Hindrance};

/// The `rules` function.
#[derive(Clone, Debug)]
pub struct Rules<T: Trace = Silent> {
    compiled: Arc<Compiled>,
    trace: T,
}

/// The state that packet sets share.
pub struct State<M: Memory> {
    /// The state of the matches, by family: IPv4, IPv6.
    rules: [RuleState<M>; 2],
    connections: Option<Connections<M>>,
}

/// The outcome of the tracker for a packet, before the rules.
struct Tracked {
    state: Seen,
    is_reply: bool,
    is_new: bool,
    tuples: Option<[Tuple; 2]>,
}

impl Rules {
    /// Creates the function from its configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { compiled: Arc::clone(config.compiled()), trace: Silent }
    }
}

impl<T: Trace> Rules<T> {
    /// Returns the function with these rules that reports each step of a packet to `trace`.
    #[must_use]
    pub fn traced<U: Trace>(&self, trace: U) -> Rules<U> {
        Rules { compiled: Arc::clone(&self.compiled), trace }
    }

    /// The rule sets of IPv4 and IPv6 with the counters of a run. `totals` are the counts of the function's counters, by number.
    #[must_use]
    pub fn counted(&self, totals: &[Count]) -> [Option<RuleSet>; 2] {
        [false, true].map(|is_v6| {
            let mut rules = self.compiled.sets[usize::from(is_v6)].clone()?;
            let first = self.first_counter(is_v6);
            let count = |number: usize| {
                let Count { packets, bytes } = totals.get(first + number).copied().unwrap_or_default();
                Counters { packets, bytes }
            };
            let policies = rules.rule_count();
            let (mut rule, mut policy) = (0, 0);
            for chain in rules.tables.iter_mut().flat_map(|table| &mut table.chains) {
                for one in &mut chain.rules {
                    one.counters = count(rule);
                    rule += 1;
                }
                if chain.base.is_some() {
                    chain.counters = count(policies + policy);
                    policy += 1;
                }
            }
            Some(rules)
        })
    }

    /// The rule sets of IPv4 and IPv6.
    #[must_use]
    pub fn sets(&self) -> &[Option<RuleSet>; 2] {
        &self.compiled.sets
    }

    /// The name of a router's interface.
    #[must_use]
    pub fn interface(&self, number: view::InterfaceNumber) -> &str {
        self.compiled.environment.paths.name(number)
    }

    /// The lines that were left out because Millrace can't read or run them, each with its place and the reason.
    #[must_use]
    pub fn skipped(&self) -> &[String] {
        &self.compiled.skipped
    }

    /// The rules because of which packet sets share state. Engines that shard can't run a rule set that has any.
    #[must_use]
    pub fn hindrances(&self) -> &[Hindrance] {
        &self.compiled.hindrances
    }

    fn machine(&self, meta: &RulesMeta) -> &Machine {
        &self.compiled.machines[usize::from(meta.is_v6())]
    }

    fn first_counter(&self, is_v6: bool) -> usize {
        if is_v6 { self.compiled.machines[0].counters() } else { 0 }
    }

    #[inline(always)]
    fn moment<M: Memory>(&self, cx: &Context<'_, Self, M>, meta: &RulesMeta) -> Moment {
        Moment { now: cx.now(), random: if self.machine(meta).draws { cx.random() } else { 0 } }
    }

    #[inline(always)]
    fn walk<'w, 'a, M: Memory>(
        &'w self,
        shared: &'a State<M>,
        tx: &'w mut M::Tx<'a>,
        counts: Option<&'a PacketCounts>,
        moment: Moment,
        meta: &'w RulesMeta,
    ) -> Walk<'w, 'a, M, T> {
        let is_v6 = meta.is_v6();
        let environment = &self.compiled.environment;
        Walk {
            machine: self.machine(meta),
            environment,
            state: shared,
            rules: &shared.rules[usize::from(is_v6)],
            tx,
            counts,
            first_counter: self.first_counter(is_v6),
            moment,
            meta,
            view: meta.view(environment.paths.interface_of_port(meta.port), moment.now),
            track: Track::NONE,
            is_untracked: false,
            mss: None,
            reply: Reply::TcpReset,
            hook: Hook::Prerouting,
            trail: Trail::NEW,
            trace: &self.trace,
        }
    }

    /// Begins a connection. Returns the packet's state if it can't begin one.
    fn begin(&self, meta: &RulesMeta, observation: Option<&Observation>, now: Nanos) -> Result<Entry, Seen> {
        let Some(observation) = observation else {
            return Err(if meta.role == Role::Untracked { Seen::Untracked } else { Seen::Invalid });
        };
        let connection = Connection::open(observation, &self.compiled.tracking, now).map_err(|_| Seen::Invalid)?;
        let mut status = Status::default();
        if meta.is_v6() {
            status.set(Status::V6);
        }
        Ok(Entry { connection, mark: 0, status })
    }

    /// Handles the first packet of a flow, or a packet without a connection.
    fn open_flow<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &RulesMeta) -> Step<Opened<FlowEntry>, M> {
        let (now, counts) = (cx.now(), cx.counts());
        let moment = self.moment(cx, meta);
        let mut begun = None;
        let mut tally = Tally::new(self.compiled.generation);
        let mut walk = self.walk(cx.shared, &mut cx.tx, counts, moment, meta);
        if let Some(fate) = walk.before_tracker()? {
            return Ok(Opened::Refused(walk.verdict(fate)));
        }
        let mut track = Track::NONE;
        if !walk.is_untracked {
            match self.begin(meta, meta.observation().as_ref(), now) {
                Ok(entry) => {
                    tally.count(false, meta.len);
                    let (entry, tally) = (Some(begun.insert(entry)), Some(&mut tally));
                    track = Track { state: Seen::New, is_reply: false, is_new: true, entry, tally, tuples: None };
                }
                Err(state) => track.state = state,
            }
        }
        walk.track = track;
        let fate = walk.behind_tracker()?;
        let verdict = walk.verdict(fate);
        let is_let_in = matches!(fate, Fate::Out | Fate::Router);
        Ok(match begun {
            Some(entry) if is_let_in => {
                let tally = self.machine(meta).accounts.then_some(&tally);
                Opened::Flow(FlowEntry { entry, memo: Memo::of_first(First::of(&verdict), tally) })
            }
            Some(_) | None => Opened::Refused(verdict),
        })
    }

    /// Handles a later packet of a flow.
    #[inline(always)]
    fn continue_flow<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut FlowEntry,
        meta: &RulesMeta,
    ) -> Step<Verdict, M> {
        let moment = self.moment(cx, meta);
        let counts = cx.counts();
        let mut view = None;
        // What the table raw has asked or marked may differ from packet to packet, too.
        let mut is_steady = true;
        if self.machine(meta).base(TableKind::Raw, Hook::Prerouting).is_some() {
            let mut walk = self.walk(cx.shared, &mut cx.tx, counts, moment, meta);
            if let Some(fate) = walk.before_tracker()? {
                return Ok(walk.verdict(fate));
            }
            if walk.is_untracked {
                let fate = walk.behind_tracker()?;
                return Ok(walk.verdict(fate));
            }
            (view, is_steady) = (Some(walk.view), walk.trail.is_steady);
        }
        let Some(observation) = meta.observation() else {
            // Packets without a connection have a flow's key at times.
            let state = if meta.role == Role::Untracked { Seen::Untracked } else { Seen::Invalid };
            let mut walk = self.walk(cx.shared, &mut cx.tx, counts, moment, meta);
            walk.track.state = state;
            if let Some(view) = view {
                walk.view = view;
            }
            let fate = walk.behind_tracker()?;
            return Ok(walk.verdict(fate));
        };
        let is_reply = flow.entry.connection.direction(&observation) as usize == 1;
        let was_answered = flow.entry.connection.answered();
        let (mut state, mut is_new) = (if is_reply || was_answered { Seen::Established } else { Seen::New }, false);
        let mut is_reply = is_reply;
        if !flow.entry.connection.flow(&observation, &self.compiled.tracking, cx) {
            match self.step_flow(cx, flow, &observation) {
                Stepped::Valid => {}
                Stepped::Related => (state, is_reply) = (Seen::Related, !is_reply),
                Stepped::Invalid => state = Seen::Invalid,
                Stepped::Reopened => (state, is_new, is_reply) = (Seen::New, true, false),
            }
        }
        let generation = self.compiled.generation;
        if let Some(shortcut) = flow.memo.shortcut(is_reply)
            && !T::ON
            && is_steady
            && !is_new
            && let Some(end) = shortcut.take(meta, state, generation, counts)
        {
            // Each returned in place: a copy of what was just written in parts would stall.
            match end {
                End::Out(port) => return Ok(Verdict::Rewrite { port, rewrite: Rewrite::ROUTED }),
                End::Drop(reason) => return Ok(Verdict::Drop(reason)),
            }
        }
        let mut walk = self.walk(cx.shared, &mut cx.tx, counts, moment, meta);
        if let Some(view) = view {
            walk.view = view;
        }
        let entry = state.has_connection().then_some(&mut flow.entry);
        let is_counted = matches!(state, Seen::New | Seen::Established);
        let mut tally = None;
        if self.machine(meta).accounts {
            let packet = is_counted.then_some((is_reply, meta.len));
            tally = Some(flow.memo.tally(packet)).filter(|_| state.has_connection());
        } else {
            flow.memo.drop_tally();
        }
        let tally = tally.as_mut();
        walk.track = Track { state, is_reply, is_new, entry, tally, tuples: None };
        let fate = walk.behind_tracker()?;
        if is_new && !matches!(fate, Fate::Out | Fate::Router) {
            let verdict = walk.verdict(fate);
            cx.close();
            return Ok(verdict);
        }
        if is_counted && is_steady && !is_new {
            flow.memo.note(is_reply, walk.shortcut(fate, generation));
        }
        Ok(walk.verdict(fate))
    }

    /// The tracker's step off the fast path.
    #[inline(never)]
    fn step_flow<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut FlowEntry,
        observation: &Observation,
    ) -> Stepped {
        let (rules, now) = (&self.compiled.tracking, cx.now());
        let connection = &mut flow.entry.connection;
        if let Some(idle) = connection.flow_on(observation, rules) {
            let _ = Outcome::Valid(idle).carry_out(connection, cx);
            return Stepped::Valid;
        }
        let mut outcome = connection.step(observation, rules, now);
        let mut stepped = if outcome == Outcome::Related { Stepped::Related } else { Stepped::Valid };
        if outcome == Outcome::Reopens {
            match connection.reopen(observation, rules, now) {
                Ok(reopened) => {
                    flow.entry.mark = 0;
                    flow.memo = Memo::NONE;
                    (outcome, stepped) = (reopened, Stepped::Reopened);
                }
                Err(cause) => outcome = Outcome::Invalid(cause),
            }
        }
        match outcome.carry_out(&flow.entry.connection, cx) {
            Ok(()) => stepped,
            Err(_) => Stepped::Invalid,
        }
    }

    /// Handles a packet whose connection is in the table that packet sets share.
    fn step_table<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &RulesMeta) -> Step<Verdict, M> {
        let (shared, now, counts) = (cx.shared, cx.now(), cx.counts());
        let moment = self.moment(cx, meta);
        let Some(connections) = &shared.connections else { return Ok(Verdict::Drop(Reason::TABLE_FULL)) };
        let is_v6 = meta.is_v6();
        let rules = &shared.rules[usize::from(is_v6)];
        connections.reclaim(&mut cx.tx, &shared.rules, now, self.compiled.limits_connections)?;

        let mut walk = self.walk(shared, &mut cx.tx, counts, moment, meta);
        if let Some(fate) = walk.before_tracker()? {
            return Ok(walk.verdict(fate));
        }
        if walk.is_untracked {
            let fate = walk.behind_tracker()?;
            return Ok(walk.verdict(fate));
        }
        let view = walk.view;

        let is_error = matches!(meta.role, Role::Error { .. });
        let mut observation = meta.observation();
        let mut found = None;
        for tuple in meta.table_tuples().filter(|_| observation.is_some()) {
            found = connections.find(&mut cx.tx, &shared.rules, &tuple, is_v6, now)?;
            if found.is_some() {
                break;
            }
        }
        let mut entry = None;
        let mut tally = Tally::new(self.compiled.generation);
        let mut outcome = None;
        let mut tracked = Tracked { state: Seen::Invalid, is_reply: false, is_new: false, tuples: None };
        if let (Some(known), Some(observed)) = (&found, &mut observation) {
            let Found { index, is_reply, stored } = *known;
            let kept = entry.insert(stored.entry);
            tally = stored.tally;
            *observed = observed.sent_by(is_reply != kept.connection.opener_first());
            tracked.is_reply = is_reply;
            tracked.tuples = Some(stored.tuples);
            let was_answered = kept.connection.answered();
            let stepped = match is_error {
                true => Outcome::Related,
                false => kept.connection.step(observed, &self.compiled.tracking, now),
            };
            tracked.state = match stepped {
                Outcome::Related => Seen::Related,
                Outcome::Invalid(_) | Outcome::InvalidAndIdle(..) => Seen::Invalid,
                _ if is_reply || was_answered => Seen::Established,
                _ => Seen::New,
            };
            outcome = Some(stepped);
            if stepped == Outcome::Reopens {
                connections.end(&mut cx.tx, &shared.rules, index, true)?;
                (found, entry, outcome) = (None, None, None);
                tally = Tally::new(self.compiled.generation);
                observation = meta.observation();
            }
        }
        if found.is_none() {
            match self.begin(meta, observation.as_ref(), now) {
                Ok(begun) => {
                    entry = Some(begun);
                    let tuples = meta.table_tuples().next().map(|tuple| [tuple, tuple.reversed()]);
                    tracked = Tracked { state: Seen::New, is_reply: false, is_new: true, tuples };
                }
                Err(state) => tracked = Tracked { state, is_reply: false, is_new: false, tuples: None },
            }
        }
        if self.machine(meta).accounts && matches!(tracked.state, Seen::New | Seen::Established) {
            tally.count(tracked.is_reply, meta.len);
        }

        let Tracked { state, is_reply, is_new, tuples } = tracked;
        let mut walk = self.walk(shared, &mut cx.tx, counts, moment, meta);
        walk.view = view;
        let carried = if state.has_connection() { entry.as_mut() } else { None };
        let counted = carried.is_some().then_some(&mut tally);
        walk.track = Track { state, is_reply, is_new, entry: carried, tally: counted, tuples };
        let fate = walk.behind_tracker()?;
        let verdict = walk.verdict(fate);
        let tuples = walk.track.tuples;

        let (Some(mut entry), Some(observed)) = (entry, observation) else { return Ok(verdict) };
        match found {
            Some(found) => {
                let idle = match outcome {
                    Some(Outcome::Valid(idle) | Outcome::InvalidAndIdle(_, idle)) => Some(idle),
                    Some(Outcome::Ends) => {
                        connections.end(&mut cx.tx, &shared.rules, found.index, true)?;
                        return Ok(verdict);
                    }
                    _ => None,
                };
                let joined = tally.limits & !found.stored.tally.limits;
                join_groups(&mut cx.tx, rules, joined, &found.stored.tuples)?;
                if tally.limits != 0 && entry.connection.is_over() {
                    leave_groups(&mut cx.tx, rules, tally.limits, &found.stored.tuples)?;
                    tally.limits = 0;
                }
                connections.update(&mut cx.tx, &found, (&entry, &tally), now, idle)?;
                Ok(verdict)
            }
            None if is_new && matches!(fate, Fate::Out | Fate::Router) => {
                let Outcome::Valid(idle) = entry.connection.step(&observed, &self.compiled.tracking, now) else {
                    return Ok(verdict);
                };
                let Some(tuples) = tuples else { return Ok(verdict) };
                match connections.add(&mut cx.tx, (entry, tally), tuples, (now, idle))? {
                    Added::Done => {
                        join_groups(&mut cx.tx, rules, tally.limits, &tuples)?;
                        Ok(verdict)
                    }
                    Added::Clash => Ok(Verdict::Drop(TUPLE_TAKEN)),
                    Added::Full => Ok(Verdict::Drop(Reason::TABLE_FULL)),
                }
            }
            None => Ok(verdict),
        }
    }
}

/// The tracker's step for a packet of a flow.
enum Stepped {
    Valid,
    Related,
    Invalid,
    Reopened,
}

impl Catalogued for Rules {
    type Config = Config;

    const CRAMPED: &'static str = r#"
flows = 3
flows_v6 = 2
rules = """
*mangle
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j MARK --set-mark 0x7
-A POSTROUTING -m connmark --mark 0x1 -j TOS --set-tos 0x10
COMMIT
*filter
:FORWARD DROP [0:0]
:known - [0:0]
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j known
-A FORWARD -p tcp -m conntrack --ctstate NEW -m mark --mark 0x7 -j ACCEPT
-A FORWARD -p tcp -j REJECT --reject-with tcp-reset
-A FORWARD -p udp -m udp --dport 1024: -j REJECT
-A FORWARD -p udp -j ACCEPT
-A FORWARD -p icmp -m icmp --icmp-type echo-request -j ACCEPT
-A known -j CONNMARK --set-mark 0x1
-A known -j ACCEPT
COMMIT
"""
"#;

    /// Addresses that are rewritten, and state that packet sets share.
    const SMALL: &'static str = r#"
flows = 2048
flows_v6 = 512
rules = """
*raw
-A PREROUTING -p udp -m udp --dport 53 -j NOTRACK
COMMIT
*nat
-A PREROUTING -p tcp -m tcp --dport 80 -m statistic --mode nth --every 2 --packet 0 -j DNAT --to-destination 10.99.0.1:8080
-A POSTROUTING -p tcp -j SNAT --to-source 198.51.100.1-198.51.100.4
-A POSTROUTING -p udp -j SNAT --to-source 198.51.100.9:2000-2100
COMMIT
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -m recent --name seen --rcheck --seconds 5 --hitcount 20 -j DROP
-A FORWARD -m conntrack --ctstate NEW -m recent --name seen --set
-A FORWARD -p icmp -m limit --limit 10/second --limit-burst 5 -j ACCEPT
-A FORWARD -p icmp -j DROP
-A FORWARD -p tcp -m tcp --syn -m connlimit --connlimit-above 20 --connlimit-mask 24 -j REJECT --reject-with tcp-reset
-A FORWARD -p udp -m hashlimit --hashlimit-upto 50/second --hashlimit-burst 20 --hashlimit-mode srcip --hashlimit-name u -j ACCEPT
-A FORWARD -p udp -m udp ! --dport 53 -m quota --quota 100000 -j DROP
COMMIT
"""
"#;

    fn from_config(config: Config) -> Self {
        Self::new(&config)
    }
}

impl<T: Trace> NetworkFunction for Rules<T> {
    type Meta = RulesMeta;
    type Flow = FlowEntry;
    type Shared<M: Memory> = State<M>;
    type Speed = Self;

    const DESCRIPTION: Description = Description {
        name: "rules",
        summary: "runs rule sets of iptables and ip6tables as a router does, with connection tracking and NAT",
        state: "the connection: its TCP state and windows, its mark, its counters",
        sharing: Sharing::Shares("connections with rewritten addresses, rates and lists, as the rules say"),
        keys: &KEYS,
        drop_reasons: &[
            "rule",
            "policy",
            "to-router",
            "no-route",
            "no-address",
            "tuple-taken",
            "list-full",
            "not-ip",
            "unknown-port",
        ],
        recipes: &[],
    };

    const COUNTS: bool = true;

    fn counters(&self) -> usize {
        self.compiled.machines.iter().map(Machine::counters).sum()
    }

    fn description(&self) -> Description {
        let sharing = match self.compiled.place {
            Place::Table(what) | Place::Flow(Some(what)) | Place::Nowhere(Some(what)) => Sharing::Shares(what),
            Place::Flow(None) | Place::Nowhere(None) => Sharing::Nothing,
        };
        Description { sharing, ..Self::DESCRIPTION }
    }

    fn packet_set(&self) -> PacketSet {
        match self.compiled.place {
            Place::Flow(_) | Place::Table(_) => PacketSet::SymmetricFiveTuple,
            Place::Nowhere(_) => PacketSet::SourceDestination,
        }
    }

    fn growth(&self) -> u32 {
        packet::ICMP_ERROR_GROWTH
    }

    /// For checksums, and for matches on bytes.
    fn reads_payload(&self) -> bool {
        let machines = &self.compiled.machines;
        self.compiled.checksums || machines.iter().any(|machine| !machine.bytes.is_empty())
    }

    fn sizing(&self) -> Sizing {
        match self.compiled.place {
            Place::Flow(_) => Sizing { flows: self.compiled.flows, flows_v6: self.compiled.flows_v6 },
            Place::Table(_) | Place::Nowhere(_) => Sizing { flows: 1, flows_v6: 1 },
        }
    }

    fn shared<M: Memory>(&self, memory: &M) -> State<M> {
        let (flows, flows_v6) = (self.compiled.flows, self.compiled.flows_v6);
        let is_table = matches!(self.compiled.place, Place::Table(_));
        let rules = [0, 1].map(|family| {
            let connections = if is_table { [flows, flows_v6][family] } else { 0 };
            RuleState::new(&self.compiled.shapes[family], connections, self.compiled.generation, memory)
        });
        let connections = is_table.then(|| Connections::new(memory, flows, flows_v6, Stored::blank()));
        State { rules, connections }
    }

    fn fingerprint<'a, M: Memory>(
        &self,
        shared: &'a State<M>,
        tx: &mut M::Tx<'a>,
        fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        for rules in &shared.rules {
            rules.fingerprint(tx, fingerprint)?;
        }
        match &shared.connections {
            Some(connections) => connections.fingerprint(tx, fingerprint),
            None => Ok(()),
        }
    }

    fn succeed(self, old: &Self) -> Result<Self, String> {
        let compiled = self.compiled.succeed(&old.compiled)?;
        Ok(Self { compiled: Arc::new(compiled), ..self })
    }

    const KEEPS: bool = true;

    fn keep<'a, M: Memory>(&self, shared: &'a State<M>, tx: &mut M::Tx<'a>, kept: &mut Kept<'_>) -> Step<(), M> {
        for rules in &shared.rules {
            rules.keep(tx, kept)?;
        }
        match &shared.connections {
            Some(connections) => connections.keep(tx, &shared.rules, kept),
            None => Ok(()),
        }
    }

    fn inherited(&self) -> Vec<u64> {
        self.compiled.inherited()
    }

    fn inherit(&self, words: &[u64]) -> Option<Self> {
        Some(Self { compiled: Arc::new(self.compiled.inherit(words)?), trace: self.trace.clone() })
    }

    fn adopt<M: Memory>(&self, old: &Self, shared: &mut State<M>, memory: &M) {
        let Compiled { shapes, generation, flows, flows_v6, .. } = &*self.compiled;
        let is_table = shared.connections.is_some();
        for (family, rules) in shared.rules.iter_mut().enumerate() {
            let connections = if is_table { [*flows, *flows_v6][family] } else { 0 };
            rules.adopt(&shapes[family], &old.compiled.shapes[family], connections, *generation, memory);
        }
    }

    #[inline]
    fn meta(&self, headers: &Headers, frame: &[u8]) -> Option<RulesMeta> {
        if !self.compiled.environment.paths.takes(headers.interface) {
            return None;
        }
        let machine = &self.compiled.machines[usize::from(matches!(headers.network, Network::V6(_)))];
        let tracks = self.compiled.tracks;
        let is_intact = !self.compiled.checksums || headers.checksums_hold(frame);
        RulesMeta::of(headers, tracks, is_intact, machine.bytes.evaluate(headers, frame))
    }

    fn other(&self, headers: &Headers) -> Verdict {
        match headers.network {
            _ if !self.compiled.environment.paths.takes(headers.interface) => Verdict::Drop(walk::UNKNOWN_PORT),
            Network::Unreadable => Verdict::Drop(Reason::UNREADABLE),
            // Address resolution and the like stay on their link, unless the box stands in the middle of one.
            _ if !self.compiled.environment.paths.is_empty() => Verdict::Drop(walk::NOT_IP),
            _ => Verdict::FORWARD,
        }
    }

    #[inline]
    fn open<M: Memory>(&self, cx: &mut Context<'_, Self, M>, meta: &RulesMeta) -> Step<Opened<FlowEntry>, M> {
        match self.compiled.place {
            Place::Table(_) => self.step_table(cx, meta).map(Opened::Refused),
            Place::Flow(_) | Place::Nowhere(_) => self.open_flow(cx, meta),
        }
    }

    #[inline]
    fn packet<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut FlowEntry,
        meta: &RulesMeta,
    ) -> Step<Verdict, M> {
        let Some(verdict) = flow.memo.take_first() else { return self.continue_flow(cx, flow, meta) };
        // The rules have let the packet in: now the connection is there.
        if let Some(observation) = meta.observation() {
            let outcome = flow.entry.connection.step(&observation, &self.compiled.tracking, cx.now());
            let _ = outcome.carry_out(&flow.entry.connection, cx);
        }
        Ok(verdict)
    }

    fn report<M: Memory>(&self, cx: &mut Context<'_, Self, M>, _: &FlowList<'_, Self>) -> Step<Option<Report>, M> {
        let totals = cx.counts().map(PacketCounts::totals).unwrap_or_default();
        let mut rows = Vec::new();
        for rules in self.counted(&totals).iter().flatten() {
            for table in &rules.tables {
                for chain in &table.chains {
                    let mut row = |number: String, counters: Counters, text: String| {
                        let Counters { packets, bytes } = counters;
                        let name = format!("{} {}", table.kind.name(), chain.name);
                        rows.push(vec![name.into(), number.into(), packets.into(), bytes.into(), text.into()]);
                    };
                    for (nth, rule) in chain.rules.iter().enumerate() {
                        row((nth + 1).to_string(), rule.counters, rule.to_string().trim_start().to_string());
                    }
                    if let Some((_, policy)) = chain.base {
                        row(String::new(), chain.counters, format!("policy {}", policy.name()));
                    }
                }
            }
        }
        let columns = vec!["chain", "rule", "packets", "bytes", "text"];
        Ok(Some(Report { title: "rules".into(), columns, rows }))
    }

    /// The kernel gathers fragments in front of its connection tracking.
    fn wants_whole_datagrams(&self) -> bool {
        self.compiled.tracks
    }

    fn ports(&self) -> Vec<u16> {
        self.compiled.environment.paths.ports()
    }

    fn remark(&self, fates: &Fates<'_>) -> Option<String> {
        if self.compiled.sets.iter().all(Option::is_none) {
            return Some("rules runs without rules, so it forwards everything: give them with --rules FILE".into());
        }
        let mut remarks = Vec::new();
        if let [first, others @ ..] = &self.compiled.skipped[..] {
            let more = match others.len() {
                0 => String::new(),
                more => format!(", and {} more", grouped(more as u64)),
            };
            remarks.push(format!("left out: {first}{more}"));
        }
        let unknown = fates.dropped_for(walk::UNKNOWN_PORT);
        if unknown > 0 {
            remarks.push(format!(
                "{} of {} packets came in by ports that no interface of the router's configuration has, and were dropped: \
                 give an interface of --router each port that packets come by; `millrace inspect` lists the capture's",
                grouped(unknown),
                grouped(fates.received)
            ));
        }
        let local = fates.dropped_for(walk::TO_ROUTER);
        if local > fates.received / 2 {
            remarks.push(format!(
                "{} of {} packets were for the router itself, where their way ends: check the router's addresses",
                grouped(local),
                grouped(fates.received)
            ));
        }
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }
}

impl<T: Trace> Speed<Self> for Rules<T> {
    #[inline]
    fn prefetch<M: Memory>(_: &Self, shared: &State<M>, meta: &RulesMeta) {
        if let (Some(connections), Some(tuple)) = (&shared.connections, meta.table_tuples().next()) {
            connections.prefetch(&tuple, meta.is_v6());
        }
    }
}
