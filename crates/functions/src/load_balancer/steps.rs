//! The slow path of the step: everything but packets of an open connection.

use memory::Memory;
use nf::{Context, Step, Verdict};
use packet::{Nanos, protocol};

use super::connection::{Attempt, Connection, Name, PacketKind, Passing, bit, is_behind};
use super::{LoadBalancer, hash};
use crate::tracking::tcp::{self, State};
use crate::tracking::{self, Outcome};

/// The tracker's decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    /// It belongs to the connection, or may.
    Fits,
    /// It resets the connection.
    Resets,
    /// It is not believed, and has changed nothing.
    Doubt,
}

impl LoadBalancer {
    /// Creates the state of a connection that begins with this packet; `None` if none can. Then call [`follow`](Self::follow) with the
    /// same packet.
    pub(super) fn begin<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        meta: &Passing,
        backend: u16,
        name: Name,
    ) -> Option<Connection> {
        let key = &meta.seen.key;
        if key.protocol() == protocol::TCP && meta.segment().is_none() {
            return None;
        }
        let tracked = tracking::Connection::open(&meta.seen, &self.rules, cx.now()).ok()?;
        let asks = meta.asks();
        let waits = name == Name::Service && asks.is_some() && self.is_judged(key);
        cx.expire_after(self.config.fields.transitory_timeout.nanos());
        Some(Connection {
            tracked,
            backend,
            name,
            attempt: if waits { Attempt::Waiting } else { Attempt::None },
            asked: [asks.unwrap_or(0); 2],
            client: hash(key, 0) as u32,
            direct: 0,
            packets: [0; 2],
            since: cx.now(),
        })
    }

    /// Returns the verdict for a packet of the connection by this name, and counts it.
    #[inline(always)]
    pub(super) fn of_connection(&self, flow: &mut Connection, name: Name, meta: &Passing) -> Verdict {
        let from_backend = matches!(meta.kind, PacketKind::Answer { .. });
        let count = &mut flow.packets[usize::from(from_backend)];
        *count = count.saturating_add(1);
        match name {
            Name::Direct => Verdict::FORWARD,
            Name::Service if from_backend => self.to_client(meta.service),
            Name::Service => self.to_backend(flow.backend),
        }
    }

    /// The step of a packet off the fast path.
    #[inline(never)]
    pub(super) fn judge<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Passing,
    ) -> Step<Verdict, M> {
        self.miss(cx, flow)?;
        match meta.kind {
            PacketKind::Request if self.is_removed(flow.backend) => self.request_elsewhere(cx, flow, meta),
            PacketKind::Request if flow.name == Name::Service => self.request(cx, flow, meta),
            PacketKind::Request => self.request_beside(cx, flow, meta),
            PacketKind::Answer { backend } if backend == flow.backend => self.answer(cx, flow, meta),
            PacketKind::Direct { backend } if backend == flow.backend => self.direct(cx, flow, meta),
            PacketKind::Answer { backend } if flow.talks_directly_to(backend) => {
                self.extend(cx);
                Ok(Verdict::FORWARD)
            }
            PacketKind::Answer { .. } => Ok(self.to_client(meta.service)),
            PacketKind::Direct { backend } => {
                if matches!(meta.says(), Some(tcp::Event::Syn | tcp::Event::Ack)) || meta.is_datagram() {
                    flow.direct |= bit(backend);
                    self.extend(cx);
                }
                Ok(Verdict::FORWARD)
            }
        }
    }

    /// Handles a packet to the service from a client with a connection through it.
    fn request<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Passing,
    ) -> Step<Verdict, M> {
        let Some(service) = self.services.get(usize::from(meta.service)) else { return Ok(Verdict::FORWARD) };
        if let Some(asked) = meta.asks()
            && flow.state() != Some(State::None)
        {
            let is_new = asked != flow.asked[Name::Service as usize];
            // An unanswered connection may be moved; an answered one only if the SYN is new.
            let is_free = flow.attempt != Attempt::Waiting && (is_new || !flow.is_answered());
            let may_move = is_free && self.is_judged(&meta.seen.key);
            if flow.is_over() || (may_move && !self.is_up(cx, flow.backend.into())?) {
                let backend = self.choose(cx, service, &meta.seen.key, true)?;
                if flow.is_over() || backend != flow.backend {
                    self.replace(cx, flow, meta, backend, Name::Service)?;
                }
            }
            self.ask(cx, flow, meta, asked);
        }
        self.follow_unseen_answer(cx, flow, meta)?;
        let belief = self.follow(cx, flow, meta);
        // A client that continues has not sent a new SYN: that one was forged, or a duplicate.
        if belief != Belief::Doubt && meta.asks().is_none() && flow.state() != Some(State::SynSent) {
            flow.attempt = Attempt::None;
        }
        Ok(self.of_connection(flow, Name::Service, meta))
    }

    /// Handles a packet to the service from a client that is known to talk to a backend directly.
    fn request_beside<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Passing,
    ) -> Step<Verdict, M> {
        let Some(service) = self.services.get(usize::from(meta.service)) else { return Ok(Verdict::FORWARD) };
        let asks = meta.asks();
        let backend = self.choose(cx, service, &meta.seen.key, asks.is_some())?;
        if backend != flow.backend || flow.is_over() || meta.is_datagram() {
            if self.replace(cx, flow, meta, backend, Name::Service)? {
                self.follow(cx, flow, meta);
                return Ok(self.of_connection(flow, Name::Service, meta));
            }
        } else if let Some(asked) = asks {
            // The backend sees it as a segment of the other connection. Its answer decides.
            self.ask(cx, flow, meta, asked);
            self.follow(cx, flow, meta);
        }
        Ok(self.to_backend(backend))
    }

    /// Handles a packet to the service from a client whose backend was removed: it goes to another backend, as a new connection. That one
    /// resets what it doesn't know, so that the client need not wait.
    fn request_elsewhere<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Passing,
    ) -> Step<Verdict, M> {
        let Some(service) = self.services.get(usize::from(meta.service)) else { return Ok(Verdict::FORWARD) };
        let backend = self.choose(cx, service, &meta.seen.key, meta.asks().is_some())?;
        if !self.replace(cx, flow, meta, backend, Name::Service)? {
            return Ok(self.to_backend(backend));
        }
        self.follow(cx, flow, meta);
        Ok(self.of_connection(flow, Name::Service, meta))
    }

    /// Handles an answer of the connection's backend.
    fn answer<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Passing,
    ) -> Step<Verdict, M> {
        let (name, was_answered) = (flow.answered_name(meta), flow.is_answered());
        let belief = self.follow(cx, flow, meta);
        if belief == Belief::Doubt {
            return Ok(self.of_connection(flow, name, meta));
        }
        if flow.attempt != Attempt::None {
            let asked = flow.asked[Name::Service as usize];
            let refuses = !was_answered || meta.segment().is_some_and(|segment| is_behind(segment.ack(), asked));
            if belief == Belief::Resets && name == Name::Service && refuses {
                self.failed(cx, flow)?;
            } else {
                self.answered(cx, flow.backend)?;
            }
            flow.attempt = Attempt::None;
        }
        if name != flow.name && meta.says() == Some(tcp::Event::SynAck) {
            self.ended(cx, flow)?;
            flow.name = name;
            flow.packets = [0; 2];
        }
        Ok(self.of_connection(flow, name, meta))
    }

    /// Handles a packet to the connection's backend by its own address.
    fn direct<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Passing,
    ) -> Step<Verdict, M> {
        let is_fresh = flow.state() == Some(State::None);
        match (flow.name, meta.asks()) {
            (_, None) if meta.is_datagram() => {
                if flow.name == Name::Service {
                    self.replace(cx, flow, meta, flow.backend, Name::Direct)?;
                }
            }
            (_, Some(_)) if flow.is_over() => {
                self.replace(cx, flow, meta, flow.backend, Name::Direct)?;
            }
            (Name::Direct, Some(asked)) if !is_fresh => flow.asked[Name::Direct as usize] = asked,
            (Name::Direct, _) => {}
            (Name::Service, Some(asked)) => flow.asked[Name::Direct as usize] = asked,
            (Name::Service, None) => {
                // Not believed, unless the connection is over.
                if !(flow.is_over() && self.replace(cx, flow, meta, flow.backend, Name::Direct)?) {
                    return Ok(Verdict::FORWARD);
                }
            }
        }
        self.follow(cx, flow, meta);
        if flow.name == Name::Service {
            return Ok(Verdict::FORWARD);
        }
        Ok(self.of_connection(flow, Name::Direct, meta))
    }

    /// Records a SYN to the service: a new attempt, unless it is a retransmission or one is still open.
    fn ask<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &mut Connection, meta: &Passing, asked: u32) {
        let before = core::mem::replace(&mut flow.asked[Name::Service as usize], asked);
        if before != asked && flow.attempt != Attempt::Waiting && self.is_judged(&meta.seen.key) {
            flow.attempt = Attempt::Waiting;
            flow.since = cx.now();
        }
    }

    /// If a client continues although no answer was seen, the answer took another path: counts it as an answer.
    fn follow_unseen_answer<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Passing,
    ) -> Step<(), M> {
        let Some(segment) = meta.segment() else { return Ok(()) };
        let goes_on = segment.event() == tcp::Event::Ack
            && flow.state() == Some(State::SynSent)
            && is_behind(segment.seq(), flow.asked[Name::Service as usize]);
        if goes_on && let Ok(tracked) = tracking::Connection::open(&meta.seen, &self.rules, cx.now()) {
            flow.tracked = tracked;
            if flow.attempt != Attempt::None {
                flow.attempt = Attempt::None;
                self.answered(cx, flow.backend)?;
            }
            cx.assure();
        }
        Ok(())
    }

    /// Replaces the connection by one that begins with this packet. Returns false if none can.
    fn replace<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Connection,
        meta: &Passing,
        backend: u16,
        name: Name,
    ) -> Step<bool, M> {
        let Some(new) = self.begin(cx, meta, backend, name) else { return Ok(false) };
        self.ended(cx, flow)?;
        let mut direct = flow.direct;
        if flow.name == Name::Direct && !flow.is_over() && !self.is_removed(flow.backend) {
            direct |= bit(flow.backend);
        }
        *flow = Connection { direct: direct & !bit(backend), ..new };
        Ok(true)
    }

    /// Applies a packet to the tracked connection.
    fn follow<M: Memory>(&self, cx: &mut Context<'_, Self, M>, flow: &mut Connection, meta: &Passing) -> Belief {
        let outcome = match flow.tracked.flow_on(&meta.seen, &self.rules) {
            Some(idle) => Outcome::Valid(idle),
            None => flow.tracked.step(&meta.seen, &self.rules, cx.now()),
        };
        if flow.tracked.assured() {
            cx.assure();
        }
        let resets = meta.says() == Some(tcp::Event::Rst);
        match outcome {
            // A real receiver challenges a reset that misses the next byte (RFC 5961), so it ends nothing yet.
            Outcome::Valid(_) | Outcome::Kept if resets && !flow.is_over() => Belief::Doubt,
            Outcome::Valid(idle) => {
                cx.expire_after(self.idle(flow, idle));
                if resets { Belief::Resets } else { Belief::Fits }
            }
            Outcome::Ends => {
                if flow.direct == 0 {
                    cx.close();
                }
                Belief::Resets
            }
            Outcome::Kept | Outcome::Related => Belief::Fits,
            Outcome::Invalid(_) | Outcome::InvalidAndIdle(..) | Outcome::Reopens => Belief::Doubt,
        }
    }

    /// Returns the idle timeout of the flow, where the connection's is `idle`.
    fn idle(&self, flow: &Connection, idle: Nanos) -> Nanos {
        let fields = &self.config.fields;
        if flow.direct != 0 {
            return self.longest();
        }
        match (flow.name, flow.state()) {
            // The answer of a direct connection doesn't count for health, so there is no `answer_timeout`.
            (Name::Direct, Some(State::SynSent)) => fields.transitory_timeout.nanos(),
            (Name::Direct | Name::Service, _) => idle,
        }
    }

    /// Extends the flow for a packet of a further direct connection, by the longest timeout.
    fn extend<M: Memory>(&self, cx: &mut Context<'_, Self, M>) {
        cx.expire_after(self.longest());
    }

    fn longest(&self) -> Nanos {
        let fields = &self.config.fields;
        fields.idle_timeout.max(fields.transitory_timeout).nanos()
    }
}
