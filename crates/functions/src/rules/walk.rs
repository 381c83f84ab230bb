//! The way of a packet through hooks, tables and chains, as Linux routes it.

use core::num::NonZeroU16;

use iptables::targets::{ConnMarkAction, RejectWith, TcpMssChange, TtlStep};
use iptables::{Hook, Policy, TableKind};
use memory::{Map, Memory};
use nf::{PacketCounts, PortId, Reason, Reply, Step, Verdict};
use packet::{IcmpError, Rewrite, TcpFlags, protocol};

use super::State;
use super::classify::Classifier;
use super::connections::OthersOf;
use super::machine::{Action, Chain, Check, Machine, Part, Rule, Target, Way};
use super::meta::{Role, RulesMeta};
use super::nat::{Range, Side, choose};
use super::router::Route;
use super::shortcut::{End, Shortcut, Trail};
use super::stateful::{Answer, Moment, Named, RuleState, Stateful};
use super::test::Environment;
use super::trace::{Condition, Step as Traced, Trace};
use super::track::{Entry, State as Seen, Status, Track};
use super::tuple::{Tuple, address};
use super::view::{NO_INTERFACE, View};

/// The function's own drop reasons, in the order of the description.
pub(super) const RULE: Reason = Reason::own(0);
pub(super) const POLICY: Reason = Reason::own(1);
pub(super) const TO_ROUTER: Reason = Reason::own(2);
pub(super) const NO_ROUTE: Reason = Reason::own(3);
pub(super) const NO_ADDRESS: Reason = Reason::own(4);
pub(super) const TUPLE_TAKEN: Reason = Reason::own(5);
pub(super) const LIST_FULL: Reason = Reason::own(6);
pub(super) const NOT_IP: Reason = Reason::own(7);
pub(super) const UNKNOWN_PORT: Reason = Reason::own(8);

/// The end of a packet's way. It is small, so that it stays in registers: a reply is in [`Walk::reply`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    /// The packet leaves by the output interface.
    Out,
    /// The packet is for the router itself, and INPUT has let it in.
    Router,
    Drop(Reason),
    Reply,
}

/// The decision of a hook's chain.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ruling {
    Accept,
    Drop(Reason),
    Reply,
}

/// A packet on its way.
pub(super) struct Walk<'w, 'a, M: Memory, T> {
    pub(super) machine: &'w Machine,
    pub(super) environment: &'w Environment,
    pub(super) state: &'a State<M>,
    /// The state of this machine's matches.
    pub(super) rules: &'a RuleState<M>,
    pub(super) tx: &'w mut M::Tx<'a>,
    pub(super) counts: Option<&'a PacketCounts>,
    /// The number of the machine's first counter.
    pub(super) first_counter: usize,
    pub(super) moment: Moment,
    pub(super) meta: &'w RulesMeta,
    pub(super) view: View,
    pub(super) track: Track<'w>,
    /// A rule has said that the packet is not tracked.
    pub(super) is_untracked: bool,
    /// The upper limit of the maximum segment size.
    pub(super) mss: Option<NonZeroU16>,
    /// The answer to the packet.
    pub(super) reply: Reply,
    /// The hook whose chain runs.
    pub(super) hook: Hook,
    pub(super) trail: Trail,
    pub(super) trace: &'w T,
}

impl<M: Memory, T: Trace> Walk<'_, '_, M, T> {
    /// Takes the packet to the tracker.
    #[inline]
    pub(super) fn before_tracker(&mut self) -> Step<Option<Fate>, M> {
        self.pass(Part::Raw)
    }

    /// Takes the packet from the tracker to the end of its way.
    #[inline]
    pub(super) fn behind_tracker(&mut self) -> Step<Fate, M> {
        if T::ON && self.machine.tracks {
            let state = match self.track.state {
                Seen::Invalid if self.meta.is_garbled() => "INVALID, a checksum is wrong",
                Seen::Invalid => "INVALID",
                Seen::New => "NEW",
                Seen::Related => "RELATED",
                Seen::Established => "ESTABLISHED",
                Seen::Untracked => "UNTRACKED",
            };
            self.trace.step(Traced::Tracked(state, self.track.is_reply), &self.view);
        }
        if let Some(fate) = self.pass(Part::Arrival)? {
            return Ok(fate);
        }
        if let Some(fate) = self.translate(Hook::Prerouting, Side::Destination)? {
            return Ok(fate);
        }
        let output = match self.route() {
            Ok(output) => output,
            Err(Route::Local | Route::Broadcast) => return self.reach_router(),
            Err(Route::Multicast) if self.is_all_hosts() => return self.reach_router(),
            Err(route) => return self.no_route(route),
        };
        if self.view.ttl <= 1 {
            if T::ON {
                self.trace.step(Traced::Expired, &self.view);
            }
            let kind = if self.view.is_v6 { 3 } else { 11 };
            return self.answer(kind, 0);
        }
        self.view.ttl -= 1;
        self.view.output = output;
        if T::ON {
            self.trace.step(Traced::Forwarded(output), &self.view);
        }
        if let Some(fate) = self.pass(Part::Forward)? {
            return Ok(fate);
        }
        if let Some(fate) = self.translate(Hook::Postrouting, Side::Source)? {
            return Ok(fate);
        }
        Ok(Fate::Out)
    }

    /// Goes through the tables in turn; a fate if one of them ends the way.
    #[inline]
    fn pass(&mut self, part: Part) -> Step<Option<Fate>, M> {
        for way in &self.machine.ways[part as usize] {
            match self.table(way)? {
                Ruling::Accept => {}
                Ruling::Drop(reason) => return Ok(Some(Fate::Drop(reason))),
                Ruling::Reply => return self.send().map(Some),
            }
        }
        Ok(None)
    }

    /// The interface that the packet leaves by.
    #[inline]
    fn route(&self) -> Result<u8, Route> {
        if self.environment.paths.is_empty() {
            return Ok(NO_INTERFACE);
        }
        match self.environment.paths.route(self.view.is_v6, self.view.dst) {
            Route::Interface(number) => Ok(number),
            other => Err(other),
        }
    }

    /// True for the group of all hosts, which a router belongs to.
    const fn is_all_hosts(&self) -> bool {
        match self.view.is_v6 {
            false => self.view.dst == 0xe000_0001,
            // Interface-local and link-local scope.
            true => matches!(self.view.dst >> 112, 0xff01 | 0xff02),
        }
    }

    fn reach_router(&mut self) -> Step<Fate, M> {
        if T::ON {
            self.trace.step(Traced::Local, &self.view);
        }
        if let Some(fate) = self.pass(Part::Input)? {
            return Ok(fate);
        }
        let fate = self.translate(Hook::Input, Side::Source)?;
        Ok(fate.unwrap_or(Fate::Router))
    }

    fn no_route(&mut self, route: Route) -> Step<Fate, M> {
        if T::ON {
            self.trace.step(Traced::NoRoute, &self.view);
        }
        let code = match (route, self.view.is_v6) {
            (Route::Multicast | Route::Blackhole | Route::Local | Route::Broadcast | Route::Interface(_), _) => {
                return Ok(Fate::Drop(NO_ROUTE));
            }
            (Route::None, _) => 0,
            (Route::Unreachable, false) => 1,
            (Route::Unreachable, true) => 0,
            (Route::Prohibit, false) => 13,
            (Route::Prohibit, true) => 1,
        };
        self.answer(if self.view.is_v6 { 1 } else { 3 }, code)
    }

    /// Answers by an ICMP error.
    fn answer(&mut self, kind: u8, code: u8) -> Step<Fate, M> {
        self.reply = self.icmp_error(kind, code);
        self.send()
    }

    /// Builds an ICMP error. Its source is the packet's destination if that is the router; else the router's address on the way back.
    fn icmp_error(&self, kind: u8, code: u8) -> Reply {
        let (View { src, dst, is_v6, ttl, .. }, paths) = (self.view, &self.environment.paths);
        let is_local = !paths.is_empty() && matches!(paths.route(is_v6, dst), Route::Local);
        let from = if is_local { Some(dst) } else { paths.source_toward(is_v6, src) };
        Reply::IcmpError(IcmpError { kind, code, from: from.map(|from| address(from, is_v6)), ttl: Some(ttl) })
    }

    /// Sends an answer through the chains of the router's own packets.
    #[cold]
    #[inline(never)]
    fn send(&mut self) -> Step<Fate, M> {
        self.trail.is_steady = false;
        let reply = self.reply;
        if !self.is_answerable(&reply) {
            return Ok(Fate::Reply);
        }
        if T::ON {
            self.trace.step(Traced::Answer, &self.view);
        }
        let View { src, dst, src_port, dst_port, is_v6, len, input, .. } = self.view;
        let output = match self.environment.paths.route(is_v6, src) {
            Route::Interface(number) => number,
            _ => input,
        };
        let header = if is_v6 { 40 } else { 20 };
        let mut view = View {
            src: dst,
            dst: src,
            bytes: 0,
            mark: 0,
            mss: 0,
            tcp_flags: 0,
            ttl: 64,
            fragment: packet::Fragment::Whole,
            has_transport: true,
            input: NO_INTERFACE,
            output,
            ..self.view
        };
        match reply {
            Reply::TcpReset => {
                let has_ack = self.view.tcp_flags & TcpFlags::ACK.0 != 0;
                view.tcp_flags = if has_ack { TcpFlags::RST.0 } else { TcpFlags::RST.with(TcpFlags::ACK).0 };
                (view.src_port, view.dst_port, view.tos, view.len) = (dst_port, src_port, 0, header + 20);
            }
            Reply::IcmpError(IcmpError { kind, code, from, .. }) => {
                let most = if is_v6 { 1280 } else { 576 };
                view.src = from.map_or(dst, super::tuple::bits);
                view.protocol = if is_v6 { protocol::ICMPV6 } else { protocol::ICMP };
                (view.icmp_kind, view.icmp_code, view.src_port, view.dst_port) = (kind, code, 0, 0);
                view.tos = if is_v6 { 0 } else { view.tos & 0x1e | 0xc0 };
                view.len = (header + 8 + len).min(most);
            }
        }
        let packet = (self.view, self.track.state);
        self.view = view;
        self.track.state = match self.track.state {
            Seen::New | Seen::Related | Seen::Established => Seen::Related,
            Seen::Invalid | Seen::Untracked if self.machine.tracks => Seen::Invalid,
            Seen::Invalid | Seen::Untracked => Seen::Untracked,
        };
        self.track.is_reply ^= true;
        let mut ruling = Ruling::Accept;
        for way in &self.machine.ways[Part::Answer as usize] {
            ruling = self.table(way)?;
            if ruling != Ruling::Accept {
                break;
            }
        }
        // A reset is the first packet of its connection to leave, so that the table is asked.
        if ruling == Ruling::Accept && reply == Reply::TcpReset && packet.1 == Seen::New && self.track.is_new {
            ruling = self.nat(Hook::Postrouting)?;
        }
        // An error about a connection that is rewritten is itself rewritten.
        if let Reply::IcmpError(error) = reply
            && self.machine.translates
            && self.track.rewrites()[0]
        {
            let from = Some(address(self.track.target(self.meta).src, is_v6));
            self.reply = Reply::IcmpError(IcmpError { from, ..error });
        }
        (self.view, self.track.state) = packet;
        self.track.is_reply ^= true;
        Ok(match ruling {
            Ruling::Accept => Fate::Reply,
            Ruling::Drop(reason) => Fate::Drop(reason),
            // An answer is not answered.
            Ruling::Reply => Fate::Drop(RULE),
        })
    }

    /// Returns false if no such answer can be built: to an error, a reset, a later fragment, or a packet from or to a group.
    fn is_answerable(&self, reply: &Reply) -> bool {
        let View { src, dst, is_v6, protocol: number, icmp_kind, tcp_flags, fragment, .. } = self.view;
        let is_host = |address: u128| match is_v6 {
            false => address != 0 && address >> 28 != 0xe && address != 0xffff_ffff,
            true => address != 0 && address >> 120 != 0xff,
        };
        let is_kind = match (reply, number) {
            (Reply::TcpReset, protocol::TCP) => tcp_flags & TcpFlags::RST.0 == 0,
            (Reply::TcpReset, _) => false,
            (Reply::IcmpError(_), protocol::ICMP) => matches!(icmp_kind, 0 | 8 | 13..=18),
            (Reply::IcmpError(_), protocol::ICMPV6) => icmp_kind >= 128 && icmp_kind != 137,
            (Reply::IcmpError(_), _) => true,
        };
        is_kind && fragment != packet::Fragment::Later && is_host(src) && is_host(dst)
    }

    /// Rewrites one side of the packet; for a connection's first packet the table says how.
    #[inline]
    fn translate(&mut self, hook: Hook, side: Side) -> Step<Option<Fate>, M> {
        if !self.machine.has_nat || !self.track.state.has_connection() || self.is_untracked {
            return Ok(None);
        }
        if self.track.is_new
            && self.track.state == Seen::New
            && let Some(fate) = self.first_of_connection(hook, side)?
        {
            return Ok(Some(fate));
        }
        if self.machine.translates && self.track.rewrites()[side as usize] {
            let target = self.track.target(self.meta);
            let is_error = matches!(self.meta.role, Role::Error { .. });
            let has_ports = target.has_ports() && !is_error;
            match side {
                Side::Source => {
                    self.view.src = target.src;
                    self.view.src_port = if has_ports { target.ports[0] } else { self.view.src_port };
                }
                Side::Destination => {
                    self.view.dst = target.dst;
                    self.view.dst_port = if has_ports { target.ports[1] } else { self.view.dst_port };
                }
            }
            if T::ON {
                self.trace.step(Traced::Rewritten, &self.view);
            }
        }
        Ok(None)
    }

    /// The `nat` table for the first packet of a connection.
    fn first_of_connection(&mut self, hook: Hook, side: Side) -> Step<Option<Fate>, M> {
        let before = self.track.tuples;
        match self.nat(hook)? {
            Ruling::Drop(reason) => return Ok(Some(Fate::Drop(reason))),
            Ruling::Reply => return Ok(Some(Fate::Reply)),
            Ruling::Accept => {}
        }
        // A source that no rule rewrites may still have to give way to another connection that looks the same outside.
        let is_bound = self.track.tuples != before;
        if side == Side::Source && !is_bound && self.machine.translates {
            self.bind(&Range::address(self.view.src), Side::Source)?;
        }
        Ok(None)
    }

    /// Binds the connection to new addresses and ports.
    fn bind(&mut self, range: &Range, side: Side) -> Step<(), M> {
        let Some(connections) = &self.state.connections else { return Ok(()) };
        let [original, reply] = self.track.tuples(self.meta);
        let current = reply.reversed();
        let mut others = OthersOf {
            connections,
            rules: &self.state.rules,
            tx: self.tx,
            is_v6: self.view.is_v6,
            now: self.moment.now,
        };
        let new = choose::<M>(current, range, side, self.view.is_v6, self.moment.random, &mut others)?;
        if new != current {
            self.track.tuples = Some([original, new.reversed()]);
            if let Some(entry) = self.track.entry.as_deref_mut() {
                entry.status.set(if side == Side::Source { Status::SNAT } else { Status::DNAT });
            }
        }
        Ok(())
    }

    /// Goes through the chain of the table `nat`.
    fn nat(&mut self, hook: Hook) -> Step<Ruling, M> {
        match self.machine.base(TableKind::Nat, hook) {
            Some(base) => self.table(&Way { table: TableKind::Nat, hook, base }),
            None => Ok(Ruling::Accept),
        }
    }

    /// Goes through the chain that a hook calls in a table.
    #[inline]
    fn table(&mut self, way: &Way) -> Step<Ruling, M> {
        let Way { table, hook, base } = *way;
        self.hook = hook;
        if T::ON {
            self.trace.step(Traced::Chain(table, hook), &self.view);
        }
        if let Some(ruling) = self.chain(base.chain)? {
            return Ok(ruling);
        }
        self.count(base.counter as usize);
        if T::ON {
            self.trace.step(Traced::Policy(base.policy), &self.view);
        }
        Ok(match base.policy {
            Policy::Accept => Ruling::Accept,
            Policy::Drop => Ruling::Drop(POLICY),
        })
    }

    #[inline]
    fn count(&mut self, number: usize) {
        let counter = self.first_counter + number;
        self.trail.pass(counter);
        if let Some(counts) = self.counts {
            counts.count(counter, self.view.len.into());
        }
    }

    /// Goes through a chain and those that it leads to; `None` at the end of it.
    fn chain(&mut self, chain: u32) -> Step<Option<Ruling>, M> {
        let machine = self.machine;
        let mut span = &machine.chains[chain as usize];
        let mut number = span.first;
        loop {
            let Some((found, target)) = self.next_match(span, number)? else { return Ok(None) };
            number = found + 1;
            let ruling = match target {
                Target::Next => None,
                Target::Accept => Some(Ruling::Accept),
                Target::Drop => Some(Ruling::Drop(RULE)),
                Target::Return => return Ok(None),
                Target::ListFull => Some(Ruling::Drop(LIST_FULL)),
                // No deeper than `DEPTH_MAX`: the compiler refuses that.
                Target::Jump(to) => self.chain(to)?,
                Target::Goto(to) => {
                    span = &machine.chains[to as usize];
                    number = span.first;
                    None
                }
                Target::Do(action) => self.act(&machine.actions[action as usize])?,
            };
            if ruling.is_some() {
                return Ok(ruling);
            }
        }
    }

    /// The first rule of a chain from this number on that the packet matches. It is counted.
    #[inline]
    fn next_match(&mut self, chain: &Chain, from: u32) -> Step<Option<(u32, Target)>, M> {
        match chain.classifier.as_deref().filter(|_| !T::ON) {
            None => self.first_match_of_all(from, chain.end),
            Some(classifier) => {
                let (view, first) = (self.view, chain.first);
                match classifier {
                    Classifier::BitVectors(vectors) => {
                        self.first_match(vectors.candidates(&view, from - first).map(|nth| first + nth))
                    }
                    Classifier::TupleSpace(space) => {
                        self.first_match(space.candidates(&view, from - first).map(|nth| first + nth))
                    }
                }
            }
        }
    }

    /// The first of these rules that the packet matches.
    #[inline]
    fn first_match(&mut self, numbers: impl Iterator<Item = u32>) -> Step<Option<(u32, Target)>, M> {
        let machine = self.machine;
        for number in numbers {
            match self.matches(number, &machine.rules[number as usize])? {
                // Nothing has changed, so the candidates are the same.
                None | Some(Target::Next) => {}
                Some(target) => return Ok(Some((number, target))),
            }
        }
        Ok(None)
    }

    /// The first rule from `from` to before `end` that the packet matches. Those that it doesn't are passed over in a loop without calls.
    #[inline]
    fn first_match_of_all(&mut self, from: u32, end: u32) -> Step<Option<(u32, Target)>, M> {
        let machine = self.machine;
        let mut number = from;
        while number < end {
            if !T::ON {
                let rest = &machine.rules[number as usize..end as usize];
                let Some(skipped) = rest.iter().position(|rule| rule.holds(&self.view, &machine.highs)) else { break };
                number += skipped as u32;
            }
            match self.matches(number, &machine.rules[number as usize])? {
                None | Some(Target::Next) => number += 1,
                Some(target) => return Ok(Some((number, target))),
            }
        }
        Ok(None)
    }

    /// The target of a rule if the packet matches it.
    #[inline]
    fn matches(&mut self, number: u32, rule: &Rule) -> Step<Option<Target>, M> {
        if !rule.holds(&self.view, &self.machine.highs) {
            if T::ON {
                self.trace.step(Traced::Rule(number as usize, Some(Condition::Header)), &self.view);
            }
            return Ok(None);
        }
        let (first, end) = rule.checks;
        for check in first..end {
            self.trail.is_steady &= self.machine.steady[check as usize];
            match self.check(&self.machine.checks[check as usize])? {
                Answer::Is(true) => {}
                Answer::Is(false) => {
                    if T::ON {
                        let failed = Condition::Match(self.machine.match_of_check[check as usize].into());
                        self.trace.step(Traced::Rule(number as usize, Some(failed)), &self.view);
                    }
                    return Ok(None);
                }
                // The kernel drops the packet without counting it.
                Answer::Full => return Ok(Some(Target::ListFull)),
            }
        }
        self.count(number as usize);
        if T::ON {
            self.trace.step(Traced::Rule(number as usize, None), &self.view);
        }
        Ok(Some(rule.target))
    }

    #[inline]
    fn check(&mut self, check: &Check) -> Step<Answer, M> {
        Ok(Answer::Is(match check {
            Check::Plain(test) => test.holds(&self.view, self.environment),
            Check::State(states) => self.track.is_in(*states),
            Check::Conntrack(test) => self.track.passes(test, self.meta),
            Check::ConnMark(mark, negated) => {
                let marked = |entry: &Entry| (entry.mark & mark.mask == mark.value) != *negated;
                self.track.entry.as_deref().is_some_and(marked)
            }
            Check::ConnBytes(test) => self.track.counts(test),
            Check::Stateful(number) => return self.stateful(&self.machine.stateful[*number as usize]),
        }))
    }

    #[inline(never)]
    fn stateful(&mut self, stateful: &Stateful) -> Step<Answer, M> {
        match stateful {
            Stateful::ConnLimit { number, above, negated } => {
                let count = self.connections_in_group(*number)?;
                Ok(Answer::Is((count > u64::from(*above)) != *negated))
            }
            other => other.ask(self.rules, self.tx, &self.view, self.moment),
        }
    }

    /// Live connections of the packet's group, with its own. The connection is counted from now on, once it is let through.
    fn connections_in_group(&mut self, rule: u32) -> Step<u64, M> {
        let tuples = self.track.tuples(self.meta);
        let name = Named::group(rule, self.rules.group_address(rule, &tuples));
        let count = self.rules.groups.get(self.tx, &name)?.unwrap_or(0);
        let Some(tally) = self.track.tally.as_deref_mut() else { return Ok(count) };
        let bit = 1 << rule;
        let is_counted = tally.limits & bit != 0 && !self.track.is_new;
        tally.limits |= bit;
        Ok(count + u64::from(!is_counted))
    }

    /// Carries out an action; a ruling if it ends the chain.
    #[inline(never)]
    fn act(&mut self, action: &Action) -> Step<Option<Ruling>, M> {
        self.trail.is_steady &= action.is_steady();
        match action {
            // The kernel doesn't answer what may be garbled.
            Action::Reject(_) if self.meta.is_garbled() => return Ok(Some(Ruling::Drop(RULE))),
            Action::Reject(with) => {
                self.reply = match *with {
                    RejectWith::TcpReset => Reply::TcpReset,
                    RejectWith::Icmp(code) | RejectWith::Icmp6(code) => {
                        self.icmp_error(if self.view.is_v6 { 1 } else { 3 }, code)
                    }
                };
                return Ok(Some(Ruling::Reply));
            }
            Action::Dnat(range) => return self.rebind(range, Side::Destination),
            Action::Snat(range) => return self.rebind(range, Side::Source),
            Action::Masquerade(range) => {
                let from = match self.view.output {
                    NO_INTERFACE => None,
                    output => self.environment.paths.source_on(output, self.view.is_v6, self.view.dst),
                };
                return self.rebind_to(from, range, Side::Source);
            }
            Action::Redirect(range) => {
                let to = match self.view.input {
                    NO_INTERFACE => None,
                    input => self.environment.paths.first_address(input, self.view.is_v6),
                };
                return self.rebind_to(to, range, Side::Destination);
            }
            Action::NetMap(to, mask) => {
                let side = match self.hook {
                    Hook::Input | Hook::Postrouting => Side::Source,
                    Hook::Prerouting | Hook::Forward | Hook::Output => Side::Destination,
                };
                let own = if side == Side::Source { self.view.src } else { self.view.dst };
                return self.rebind(&Range::address(own & !mask | to), side);
            }
            Action::Mark(change) => self.view.mark = change.apply(self.view.mark),
            Action::ConnMark(action) => {
                let Some(entry) = self.track.entry.as_deref_mut() else { return Ok(None) };
                match *action {
                    ConnMarkAction::Set(change) => entry.mark = change.apply(entry.mark),
                    ConnMarkAction::Save { packet_mask, flow_mask } => {
                        entry.mark = entry.mark & !flow_mask ^ self.view.mark & packet_mask;
                    }
                    ConnMarkAction::Restore { packet_mask, flow_mask } => {
                        self.view.mark = self.view.mark & !packet_mask ^ entry.mark & flow_mask;
                    }
                }
            }
            Action::NotTracked => self.is_untracked = true,
            Action::Mss(change) => {
                let most = match *change {
                    TcpMssChange::Set(bytes) => bytes,
                    TcpMssChange::ClampToPathMtu => {
                        let paths = &self.environment.paths;
                        let mtu = paths.mtu(self.view.output).min(paths.mtu(self.view.input));
                        mtu.saturating_sub(if self.view.is_v6 { 60 } else { 40 })
                    }
                };
                if self.view.mss > most {
                    self.view.mss = most;
                    self.mss = NonZeroU16::new(most);
                }
            }
            Action::Ttl(step) => {
                self.view.ttl = match *step {
                    TtlStep::Set(value) => value,
                    TtlStep::Add(value) => self.view.ttl.saturating_add(value),
                    TtlStep::Subtract(value) => self.view.ttl.saturating_sub(value),
                };
            }
            Action::Tos { mask, value } => self.view.tos = self.view.tos & !mask ^ value,
            Action::Set(number) => {
                let change = &self.machine.stateful[*number as usize];
                change.change(self.rules, self.tx, &self.view, self.moment.now)?;
            }
            Action::Nothing => {}
        }
        Ok(None)
    }

    fn rebind(&mut self, range: &Range, side: Side) -> Step<Option<Ruling>, M> {
        self.bind(range, side)?;
        Ok(Some(Ruling::Accept))
    }

    /// Binds to an address of the router, if it has one there.
    fn rebind_to(&mut self, to: Option<u128>, range: &Range, side: Side) -> Step<Option<Ruling>, M> {
        match to {
            Some(to) => self.rebind(&Range { addresses: Some((to, to)), ..*range }, side),
            None => Ok(Some(Ruling::Drop(NO_ADDRESS))),
        }
    }

    /// The verdict for a fate. In place, because a copy of what was just written in parts would stall.
    #[inline(always)]
    pub(super) fn verdict(&self, fate: Fate) -> Verdict {
        match fate {
            Fate::Out if self.is_plain() => Verdict::Rewrite { port: self.port(), rewrite: Rewrite::ROUTED },
            Fate::Out => Verdict::Rewrite { port: self.port(), rewrite: self.rewrite() },
            Fate::Drop(reason) => Verdict::Drop(reason),
            Fate::Router => Verdict::Drop(TO_ROUTER),
            Fate::Reply => Verdict::Reply(self.reply),
        }
    }

    /// The short cut to this fate for the packets that follow, if they all go the same way.
    #[inline]
    pub(super) fn shortcut(&self, fate: Fate, generation: u16) -> Option<Shortcut> {
        let end = match fate {
            Fate::Out if self.is_plain() => End::Out(self.port()),
            Fate::Router => End::Drop(TO_ROUTER),
            Fate::Drop(reason) => End::Drop(reason),
            Fate::Out | Fate::Reply => return None,
        };
        self.trail.shortcut(self.meta, self.track.state, generation, end)
    }

    /// True if the packet leaves with another time to live, and otherwise as it came.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        let RulesMeta { ttl, tos, .. } = *self.meta;
        self.view.ttl == ttl.saturating_sub(1)
            && self.view.tos == tos
            && self.mss.is_none()
            && !(self.machine.translates && self.track.rewrites() != [false; 2])
    }

    #[inline]
    fn port(&self) -> PortId {
        match self.view.output {
            NO_INTERFACE => PortId::ACROSS,
            output => self.environment.paths.port_of(output).map_or(PortId::ACROSS, PortId),
        }
    }

    #[inline(never)]
    fn rewrite(&self) -> Rewrite {
        let RulesMeta { ttl, tos, .. } = *self.meta;
        let mut rewrite = Rewrite {
            decrement_ttl: true,
            ttl: (self.view.ttl != ttl.saturating_sub(1)).then_some(self.view.ttl),
            tos: (self.view.tos != tos).then_some(self.view.tos),
            mss_max: self.mss,
            ..Rewrite::NONE
        };
        if self.machine.translates && self.track.state.has_connection() {
            let [src, dst] = self.track.rewrites();
            if src || dst {
                let target: Tuple = self.track.target(self.meta);
                rewrite.src = src.then(|| target.source(self.view.is_v6));
                rewrite.dst = dst.then(|| target.destination(self.view.is_v6));
                rewrite.embedded = matches!(self.meta.role, Role::Error { .. });
            }
        }
        rewrite
    }
}
