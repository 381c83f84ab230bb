//! A session: its connection, both streams, and the function's state.

use nf::{Flow, PacketCounts, Reason, Reply, Verdict};
use packet::{FiveTuple, Nanos};
use stream::{Deviation, End, Event as Heard, Gap, Kept, Segment, Side, Taken};

use super::hearing::{Hearing, Said, Sentence, Tallies, Wishes};
use super::keeper::Keeper;
use super::{Direction, Pools, Portion, StreamFunction, Streams};
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
    /// The function has closed it.
    is_closed: bool,
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
        self.is_closed = false;
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

    /// The five-tuple as the opener sent it. `key` is the symmetric one.
    pub(super) const fn as_opened(&self, key: FiveTuple) -> FiveTuple {
        if self.connection.opener_first() { key } else { key.reversed() }
    }
}

impl<F: StreamFunction> Streams<F> {
    /// Hears a valid packet of a session.
    #[inline(never)]
    pub(super) fn listen(
        &self,
        pools: &Pools,
        counts: Option<&PacketCounts>,
        now: Nanos,
        flow: &mut Conversation<F::Flow>,
        meta: &Portion,
        frame: &[u8],
    ) {
        let mut cx = Hearing::new(now, counts);
        cx.wishes = Wishes { enough: flow.deaf, sentence: flow.sentence };
        let from = flow.connection.direction(&meta.observation);
        match &meta.observation.event {
            Event::Tcp(segment) => {
                let Conversation { sides, own, kept, .. } = flow;
                let other = opposite(from);
                let mut keeper = Keeper::new(&pools.kept, kept);
                if segment.has_ack() {
                    let hear = &mut |heard: Heard<'_>| self.tell(&mut cx, own, &mut keeper, other, heard);
                    sides[other as usize].acknowledged(segment.ack(), &pools.early, hear);
                }
                let (payload, missing) = meta.payload(frame);
                let (syn, fin) = match segment.event() {
                    tcp::Event::Syn | tcp::Event::SynAck => (true, false),
                    tcp::Event::Fin => (false, true),
                    tcp::Event::Ack => (false, false),
                    tcp::Event::Rst | tcp::Event::Nothing => {
                        self.obey(pools, flow, cx.wishes);
                        return self.close_if_over(pools, counts, now, flow);
                    }
                };
                let is_heard = !meta.is_empty() || syn || fin;
                if is_heard && !cx.wishes.enough[from as usize] {
                    let segment = Segment { seq: segment.seq(), payload, missing, syn, fin };
                    let hear = &mut |heard: Heard<'_>| self.tell(&mut cx, own, &mut keeper, from, heard);
                    let taken = sides[from as usize].segment(&segment, &pools.early, self.policy, &self.limits, hear);
                    match taken {
                        Taken::InOrder | Taken::Ignored => {}
                        Taken::Early => cx.tally(Tallies::EARLY, meta.len()),
                        Taken::Repeated => cx.tally(Tallies::REPEATED, meta.len()),
                    }
                }
                self.obey(pools, flow, cx.wishes);
                if fin || flow.connection.is_over() {
                    self.close_if_over(pools, counts, now, flow);
                }
            }
            Event::Udp if !cx.wishes.enough[from as usize] => {
                let (payload, _) = meta.payload(frame);
                self.function.hear(&mut cx, &mut flow.own, Said::Datagram(from, payload));
                if cx.wishes.sentence == Sentence::Reset {
                    cx.wishes.sentence = Sentence::Drop(0);
                }
                self.obey(pools, flow, cx.wishes);
            }
            _ => {}
        }
    }

    /// Tells the function what is heard of a stream. Returns false if it wants no more.
    fn tell(
        &self,
        cx: &mut Hearing<'_>,
        own: &mut F::Flow,
        keeper: &mut Keeper<'_>,
        from: Direction,
        heard: Heard<'_>,
    ) -> bool {
        let said = match heard {
            Heard::Data(bytes) => Said::Data(from, bytes),
            Heard::Gap(gap) => {
                let Gap { len, end } = gap;
                cx.tally(Tallies::GAPS, len);
                if matches!(end, End::Limit | End::OutOfMemory) {
                    cx.tally(Tallies::LIMITED, len);
                }
                Said::Gap(from, gap)
            }
            Heard::Deviation(deviation) => {
                let Deviation { len, .. } = deviation;
                cx.tally(Tallies::DEVIATIONS, len);
                Said::Deviation(from, deviation)
            }
            Heard::End => Said::End(from),
        };
        if cx.wishes.enough[from as usize] {
            return false;
        }
        if F::KEEPS == 0 {
            self.function.hear(cx, own, said);
            return !cx.wishes.enough[from as usize];
        }
        let bytes = match said {
            Said::Data(_, bytes) => bytes,
            Said::Gap(..) | Said::End(_) => {
                keeper.close(from);
                &[]
            }
            Said::Deviation(..) | Said::Datagram(..) => &[],
        };
        keeper.follow(from, bytes, F::KEEPS, |beginnings| {
            let mut inner = cx.seeing(beginnings);
            self.function.hear(&mut inner, own, said);
            cx.wishes = inner.wishes;
            !cx.wishes.enough[from as usize]
        });
        !cx.wishes.enough[from as usize]
    }

    /// Does what the function asked for.
    fn obey(&self, pools: &Pools, flow: &mut Conversation<F::Flow>, wishes: Wishes) {
        for (direction, enough) in wishes.enough.into_iter().enumerate() {
            if enough && !flow.deaf[direction] {
                flow.deaf[direction] = true;
                flow.sides[direction].let_go(&pools.early);
                flow.kept[direction].let_go(&pools.kept);
            }
        }
        flow.sentence = wishes.sentence;
    }

    fn close_if_over(
        &self,
        pools: &Pools,
        counts: Option<&PacketCounts>,
        now: Nanos,
        flow: &mut Conversation<F::Flow>,
    ) {
        if flow.connection.is_over() {
            self.conclude_session(pools, counts, now, flow);
        }
    }

    /// Ends the streams of a session, and closes it if that wasn't done.
    pub(super) fn conclude_session(
        &self,
        pools: &Pools,
        counts: Option<&PacketCounts>,
        now: Nanos,
        flow: &mut Conversation<F::Flow>,
    ) {
        if flow.is_closed || !F::LISTENS {
            return;
        }
        let mut cx = Hearing::new(now, counts);
        cx.wishes = Wishes { enough: flow.deaf, sentence: flow.sentence };
        let Conversation { sides, own, kept, .. } = flow;
        let mut keeper = Keeper::new(&pools.kept, kept);
        for (side, from) in sides.iter_mut().zip(DIRECTIONS) {
            side.end(&pools.early, &mut |heard: Heard<'_>| self.tell(&mut cx, own, &mut keeper, from, heard));
            side.let_go(&pools.early);
            keeper.close(from);
        }
        self.close(&mut cx, own, &keeper);
        kept.iter_mut().for_each(|kept| kept.let_go(&pools.kept));
        cx.tally(Tallies::CLOSED, 0);
        (flow.is_closed, flow.sentence) = (true, cx.wishes.sentence);
    }

    /// Closes a copy of a session as if it ended now; what waits stays where it is.
    pub(super) fn look_ahead(
        &self,
        pools: &Pools,
        counts: Option<&PacketCounts>,
        now: Nanos,
        flow: &mut Conversation<F::Flow>,
    ) {
        if flow.is_closed {
            return;
        }
        let mut cx = Hearing::new(now, counts);
        cx.wishes = Wishes { enough: flow.deaf, sentence: flow.sentence };
        let Conversation { sides, own, kept, .. } = flow;
        let mut keeper = Keeper::looking_ahead(&pools.kept, kept);
        for (side, from) in sides.iter().zip(DIRECTIONS) {
            side.look_ahead(&pools.early, &mut |heard: Heard<'_>| self.tell(&mut cx, own, &mut keeper, from, heard));
            keeper.close(from);
        }
        self.close(&mut cx, own, &keeper);
        cx.tally(Tallies::CLOSED, 0);
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

const DIRECTIONS: [Direction; 2] = [Direction::Original, Direction::Reply];

const fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Original => Direction::Reply,
        Direction::Reply => Direction::Original,
    }
}
