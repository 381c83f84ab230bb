//! A session: its connection, both streams, and the function's state.

use memory::Memory;
use nf::{Context, Flow, NetworkFunction, PacketCounts, PortId, Reason, Reply, Step, Verdict};
use packet::{FiveTuple, Nanos};
use stream::{Again, Deviation, End, Event as Heard, Gap, Kept, Pools, Segment, Side, Taken};

use super::hearing::{Hearing, Said, Sentence, Tallies, Wishes};
use super::keeper::Keeper;
use super::{Access, Common, Direction, Portion, SharedStreamFunction, Streams};
use crate::tracking::{Cause, Connection, Event, Rules, tcp};

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conversation<F> {
    pub(super) connection: Connection,
    /// By direction.
    sides: [Side; 2],
    /// Their beginnings, by direction.
    kept: [Kept; 2],
    /// The function's state.
    pub own: F,
    /// By direction: nothing more is wanted.
    deaf: [bool; 2],
    sentence: Sentence,
    way: Option<Way>,
    /// The function has closed it.
    is_closed: bool,
}

/// The port that the function chose for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    from: Direction,
    /// The sequence number behind the packet's bytes.
    end: u32,
    port: PortId,
}

impl<F: Flow> Flow for Conversation<F> {}

impl<F: Flow> Conversation<F> {
    /// Opens a session with its first packet.
    ///
    /// # Errors
    /// Why the packet can't open one.
    pub(super) fn open(meta: &Portion, rules: &Rules, now: Nanos, own: impl FnOnce() -> F) -> Result<Self, Cause> {
        let connection = Connection::open(&meta.observation, rules, now)?;
        let (sides, kept) = ([Side::default(); 2], [Kept::default(); 2]);
        Ok(Self {
            connection,
            sides,
            kept,
            own: own(),
            deaf: [false; 2],
            sentence: Sentence::Forward,
            way: None,
            is_closed: false,
        })
    }

    /// Begins another session between the same ports.
    pub(super) fn begin_anew(&mut self, own: F) {
        self.sides = [Side::default(); 2];
        self.kept = [Kept::default(); 2];
        self.own = own;
        self.deaf = [false; 2];
        self.sentence = Sentence::Forward;
        self.way = None;
        self.is_closed = false;
    }

    /// The context of a call about it.
    const fn hearing<'a>(&self, now: Nanos, counts: Option<&'a PacketCounts>) -> Hearing<'a> {
        let mut cx = Hearing::new(now, counts);
        (cx.wishes.enough, cx.wishes.sentence) = (self.deaf, self.sentence);
        cx
    }

    /// True if the function wants to hear more of it.
    #[inline]
    pub(super) const fn listens(&self) -> bool {
        !(self.is_closed || self.deaf[0] && self.deaf[1])
    }

    /// True if the function has closed it.
    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// True if the packet is a further segment of a connection of which only one side was ever seen.
    pub(super) fn is_one_sided(&self, meta: &Portion) -> bool {
        let is_segment = match &meta.observation.event {
            Event::Tcp(segment) => matches!(segment.event(), tcp::Event::Ack | tcp::Event::Fin),
            _ => false,
        };
        let from = self.connection.direction(&meta.observation);
        is_segment && !self.connection.answered() && from == Direction::Original
    }

    /// The verdict on its packets.
    #[inline]
    pub(super) const fn verdict(&self) -> Verdict {
        match self.sentence {
            Sentence::Forward => Verdict::forward(),
            Sentence::Drop(reason) => Verdict::Drop(Reason::own(reason)),
            Sentence::Reset => Verdict::Reply(Reply::TcpReset),
        }
    }

    /// True if it has bytes in the pools.
    pub(super) fn is_in_pools(&self) -> bool {
        self.sides.iter().any(Side::waits) || self.kept.iter().any(|kept| !kept.is_empty())
    }

    /// True if the step of a packet may change the pools, even before the function has heard anything.
    pub(super) fn uses_pools(&self, meta: &Portion, frame: &[u8]) -> bool {
        let is_direct = || match segment(meta, frame) {
            Some(segment) => self.sides[self.connection.direction(&meta.observation) as usize].is_direct(&segment),
            None => true,
        };
        self.is_in_pools() || !is_direct()
    }

    /// The port by which bytes went that come again in this segment.
    fn way_of(&self, from: Direction, segment: &Segment<'_>) -> Option<PortId> {
        let way = self.way.filter(|way| way.from == from)?;
        let start = segment.seq.wrapping_add(u32::from(segment.syn));
        let ahead = way.end.wrapping_sub(start);
        (ahead > 0 && ahead as usize <= segment.payload.len()).then_some(way.port)
    }

    /// The five-tuple as the opener sent it. `key` is the symmetric one.
    #[must_use]
    pub const fn as_opened(&self, key: FiveTuple) -> FiveTuple {
        if self.connection.opener_first() { key } else { key.reversed() }
    }
}

/// A TCP segment for reassembly; `None` for a packet of which nothing is heard.
fn segment<'a>(meta: &Portion, frame: &'a [u8]) -> Option<Segment<'a>> {
    let Event::Tcp(segment) = &meta.observation.event else { return None };
    let (syn, fin) = match segment.event() {
        tcp::Event::Syn | tcp::Event::SynAck => (true, false),
        tcp::Event::Fin => (false, true),
        tcp::Event::Ack => (false, false),
        tcp::Event::Rst | tcp::Event::Nothing => return None,
    };
    let (payload, missing) = meta.payload(frame);
    Some(Segment { seq: segment.seq(), payload, missing, syn, fin })
}

/// What a call of the function needs.
pub(super) struct Call<'c, 'x, 'a, 'k, F: SharedStreamFunction, M: Memory> {
    pub(super) cx: Hearing<'c>,
    pub(super) access: Access<'x, 'a, F, M>,
    pub(super) own: &'c mut F::Flow,
    pub(super) keeper: Keeper<'k>,
    /// A conflict on shared state: the step runs again.
    conflict: Option<M::Conflict>,
}

impl<F: SharedStreamFunction> Streams<F> {
    /// Hears a valid packet of a session. Returns the verdict on it.
    #[inline(never)]
    pub(super) fn listen<'a, N: NetworkFunction, M: Memory>(
        &self,
        cx: &mut Context<'a, N, M>,
        common: &'a Common<F::Shared<M>>,
        flow: &mut Conversation<F::Flow>,
        meta: &Portion,
    ) -> Step<Verdict, M> {
        let Common { pools, shared } = common;
        let (frame, from) = (cx.frame(), flow.connection.direction(&meta.observation));
        let heard = segment(meta, frame);
        if heard.is_some_and(|segment| segment.syn) && !flow.connection.is_begun_by(&meta.observation) {
            // A stray one tells of no bytes, neither of its sender's nor of the other side's.
            return Ok(flow.verdict());
        }
        let hearing = flow.hearing(cx.now(), cx.counts());
        let mut again = None;
        let Conversation { sides, own, kept, .. } = flow;
        let mut call = Call {
            cx: hearing,
            access: Access { shared, tx: &mut cx.tx },
            own,
            keeper: Keeper::new(&pools.kept, kept),
            conflict: None,
        };
        match &meta.observation.event {
            Event::Tcp(tcp) => {
                let other = opposite(from);
                if tcp.event() == tcp::Event::SynAck {
                    sides[other as usize].begin_at(tcp.ack());
                }
                if tcp.has_ack() {
                    let hear = &mut |heard: Heard<'_>| self.tell(&mut call, other, heard);
                    sides[other as usize].acknowledged(tcp.ack(), &pools.early, hear);
                    call.cx.port = None;
                }
                if let Some(segment) = heard
                    && (!meta.is_empty() || segment.syn || segment.fin)
                    && !call.cx.wishes.enough[from as usize]
                    && call.conflict.is_none()
                {
                    let hear = &mut |heard: Heard<'_>| self.tell(&mut call, from, heard);
                    let taken = sides[from as usize].segment(&segment, &pools.early, self.policy, &self.limits, hear);
                    match taken {
                        Taken::InOrder | Taken::Ignored => {}
                        Taken::Early => call.cx.tally(Tallies::EARLY, meta.len()),
                        Taken::Repeated => {
                            call.cx.tally(Tallies::REPEATED, meta.len());
                            again = Some(segment);
                        }
                    }
                }
            }
            Event::Udp if !call.cx.wishes.enough[from as usize] => {
                let (payload, _) = meta.payload(frame);
                self.function.hear(&mut call.cx, &mut call.access, call.own, Said::Datagram(from, payload))?;
                if call.cx.wishes.sentence == Sentence::Reset {
                    call.cx.wishes.sentence = Sentence::Drop(0);
                }
            }
            _ => {}
        }
        let Call { cx: Hearing { wishes, port, .. }, conflict, .. } = call;
        if let Some(conflict) = conflict {
            return Err(conflict);
        }
        obey(pools, flow, wishes);
        let port = match (port, heard) {
            (Some(port), Some(segment)) => {
                let len = segment.payload.len() as u32 + u32::from(segment.syn);
                flow.way = Some(Way { from, end: segment.seq.wrapping_add(len), port });
                Some(port)
            }
            (Some(port), None) => Some(port),
            (None, _) => again.and_then(|segment| flow.way_of(from, &segment)),
        };
        if meta.is_tcp() && flow.connection.is_over() {
            self.conclude_session(cx, common, flow)?;
        }
        Ok(match (flow.verdict(), wishes.refused, port) {
            (Verdict::Forward(_), Some(reason), _) => Verdict::Drop(Reason::own(reason)),
            (Verdict::Forward(_), None, Some(port)) => Verdict::Forward(port),
            (verdict, ..) => verdict,
        })
    }

    /// Tells the function what is heard of a stream. Returns false if it wants no more, or can't go on.
    fn tell<M: Memory>(&self, call: &mut Call<'_, '_, '_, '_, F, M>, from: Direction, heard: Heard<'_>) -> bool {
        let said = match heard {
            Heard::Data(bytes) => Said::Data(from, bytes),
            Heard::Gap(gap) => {
                let Gap { len, end } = gap;
                call.cx.tally(Tallies::GAPS, len);
                if matches!(end, End::Limit | End::OutOfMemory) {
                    call.cx.tally(Tallies::LIMITED, len);
                }
                Said::Gap(from, gap)
            }
            Heard::Deviation(deviation) => {
                let Deviation { len, .. } = deviation;
                call.cx.tally(Tallies::DEVIATIONS, len);
                Said::Deviation(from, deviation)
            }
            Heard::End => Said::End(from),
            Heard::Again(Again { offset, bytes }) => {
                self.function.hear_again(&mut call.cx, call.own, from, offset, bytes);
                return !call.cx.wishes.enough[from as usize];
            }
        };
        if call.cx.wishes.enough[from as usize] || call.conflict.is_some() {
            return false;
        }
        let Call { cx, access, own, keeper, .. } = call;
        let told = if F::HOLDS > 0 {
            self.tell_held(call, from, said)
        } else if F::KEEPS == 0 {
            self.function.hear(cx, access, own, said)
        } else {
            let bytes = match said {
                Said::Data(_, bytes) => bytes,
                Said::Gap(..) | Said::End(_) => {
                    keeper.close(from);
                    &[]
                }
                Said::Deviation(..) | Said::Datagram(..) => &[],
            };
            let mut told = Ok(());
            keeper.follow(from, bytes, F::KEEPS, |beginnings| {
                let mut inner = cx.seeing(beginnings);
                told = self.function.hear(&mut inner, access, own, said);
                cx.wishes = inner.wishes;
                !cx.wishes.enough[from as usize]
            });
            told
        };
        match told {
            Ok(()) => !call.cx.wishes.enough[from as usize],
            Err(conflict) => {
                call.conflict = Some(conflict);
                false
            }
        }
    }

    /// Ends the streams of a session, and closes it if that wasn't done.
    pub(super) fn conclude_session<'a, N: NetworkFunction, M: Memory>(
        &self,
        cx: &mut Context<'a, N, M>,
        common: &'a Common<F::Shared<M>>,
        flow: &mut Conversation<F::Flow>,
    ) -> Step<(), M> {
        if flow.is_closed || !F::LISTENS {
            return Ok(());
        }
        let Common { pools, shared } = common;
        let hearing = flow.hearing(cx.now(), cx.counts());
        let Conversation { sides, own, kept, .. } = flow;
        let call = Call {
            cx: hearing,
            access: Access { shared, tx: &mut cx.tx },
            own,
            keeper: Keeper::new(&pools.kept, kept),
            conflict: None,
        };
        flow.sentence = self.finish(call, sides, |side, mut hear| {
            side.end(&pools.early, &mut hear);
            side.let_go(&pools.early);
        })?;
        flow.kept.iter_mut().for_each(|kept| kept.let_go(&pools.kept));
        flow.is_closed = true;
        Ok(())
    }

    /// Closes a copy of a session as if it ended now; what waits stays where it is. It is heard, unless sessions share state.
    pub(super) fn look_ahead<M: Memory>(
        &self,
        cx: &mut Context<'_, Self, M>,
        flow: &mut Conversation<F::Flow>,
    ) -> Step<(), M> {
        if flow.is_closed {
            return Ok(());
        }
        let Common { pools, shared } = cx.shared;
        let hearing = flow.hearing(cx.now(), cx.counts());
        let Conversation { sides, own, kept, .. } = flow;
        let call = Call {
            cx: hearing,
            access: Access { shared, tx: &mut cx.tx },
            own,
            keeper: Keeper::looking_ahead(&pools.kept, kept),
            conflict: None,
        };
        self.finish(call, sides, |side, mut hear| {
            if !Self::SHARES {
                side.look_ahead(&pools.early, &mut hear);
            }
        })?;
        Ok(())
    }

    /// Tells the function what is left of both sides, by `end`, and closes the session. Returns the fate of its packets.
    fn finish<M: Memory>(
        &self,
        mut call: Call<'_, '_, '_, '_, F, M>,
        sides: &mut [Side; 2],
        mut end: impl FnMut(&mut Side, &mut dyn FnMut(Heard<'_>) -> bool),
    ) -> Step<Sentence, M> {
        for (side, from) in sides.iter_mut().zip(DIRECTIONS) {
            end(side, &mut |heard| self.tell(&mut call, from, heard));
            call.keeper.close(from);
        }
        if let Some(conflict) = call.conflict {
            return Err(conflict);
        }
        self.close(&mut call.cx, call.own, &call.keeper);
        call.cx.tally(Tallies::CLOSED, 0);
        Ok(call.cx.wishes.sentence)
    }

    /// Calls the function at the end of a session.
    fn close(&self, cx: &mut Hearing<'_>, own: &mut F::Flow, keeper: &Keeper<'_>) {
        if F::KEEPS == 0 {
            return self.function.close(cx, own);
        }
        keeper.beginnings(F::KEEPS, |beginnings| {
            let mut inner = cx.seeing(beginnings);
            self.function.close(&mut inner, own);
        });
    }
}

/// Does what the function asked for.
fn obey<F: Flow>(pools: &Pools, flow: &mut Conversation<F>, wishes: Wishes) {
    for (direction, enough) in wishes.enough.into_iter().enumerate() {
        if enough && !flow.deaf[direction] {
            flow.deaf[direction] = true;
            flow.sides[direction].let_go(&pools.early);
            flow.kept[direction].let_go(&pools.kept);
        }
    }
    flow.sentence = wishes.sentence;
}

const DIRECTIONS: [Direction; 2] = [Direction::Original, Direction::Reply];

const fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Original => Direction::Reply,
        Direction::Reply => Direction::Original,
    }
}
