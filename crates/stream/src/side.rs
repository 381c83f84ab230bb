//! One side of a TCP connection: [`Side`].

use crate::policy::{Policy, Span};
use crate::pool::{BLOCK_BYTES, Block, Blocks, NONE, Pool};

/// A segment that one side sent. The caller has checked that it belongs to the connection.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The sequence number in its header.
    pub seq: u32,
    /// What was captured of its payload.
    pub payload: &'a [u8],
    /// The number of payload bytes behind these that were not captured.
    pub missing: u32,
    /// True if it has the SYN flag. Its payload then begins one number later.
    pub syn: bool,
    /// True if it has the FIN flag.
    pub fin: bool,
}

/// An event in a stream. The callback returns true to hear more, false if the rest of the stream is not wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The next bytes.
    Data(&'a [u8]),
    /// Bytes that are missing here.
    Gap(Gap),
    /// The next bytes came in two copies that differ.
    Deviation(Deviation),
    /// Bytes that came before.
    Again(Again<'a>),
    /// The side has said all; nothing new follows.
    End,
}

/// Bytes before the next one, sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again<'a> {
    /// The offset of the first one in the stream.
    pub offset: u64,
    /// This copy of them. The stream has the first copy, or a gap.
    pub bytes: &'a [u8],
}

/// Bytes that are missing in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// How many.
    pub len: u32,
    /// Why they are not waited for any longer.
    pub end: End,
}

/// Why a gap is not waited for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The receiver has acknowledged bytes behind it.
    Acknowledged,
    /// The segment was captured in part.
    NotCaptured,
    /// The side has too many early bytes or segments: [`Limits`].
    Limit,
    /// The budget of all pools is spent.
    OutOfMemory,
    /// The connection has ended.
    Ended,
}

/// Two copies of bytes that differ, as the first deviation of a segment from what came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// The distance from the next byte of the stream, in bytes.
    pub ahead: u32,
    /// The length of the overlap, in bytes.
    pub len: u32,
    /// True if the second copy counts.
    pub takes_new: bool,
}

/// Bounds for the early segments of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of payload.
    pub early_bytes: u32,
    /// Blocks of the pool; a segment takes at least one.
    pub early_blocks: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self { early_bytes: 1 << 20, early_blocks: 1024 }
    }
}

/// The fate of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was in order, at least in part, or has no payload.
    InOrder,
    /// It came early and was stored.
    Early,
    /// All of its payload came before.
    Repeated,
    /// The stream has ended or is not wanted, or the segment is far from it.
    Ignored,
}

/// The state of one side's stream. Two states are equal if the same was heard and the same amount waits, whichever blocks it is in.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Bytes so far, with those of gaps.
    offset: u64,
    /// The sequence number of the next byte.
    next: u32,
    /// The sequence number behind the last byte, if `FIN` is set.
    fin: u32,
    /// The first and the last block of early bytes, ordered by sequence number, without overlaps.
    first: u32,
    last: u32,
    early_bytes: u32,
    early_blocks: u16,
    flags: u8,
}

/// `next` is known.
const KNOWN: u8 = 1;
/// A FIN has come.
const FIN: u8 = 2;
/// [`Event::End`] was told.
const ENDED: u8 = 4;
/// The rest is not wanted.
const DEAF: u8 = 8;

/// Sequence numbers further ahead than this are not from this stream: the largest window (RFC 7323, section 2.3).
const AHEAD_MAX: u32 = 1 << 30;

impl Default for Side {
    fn default() -> Self {
        let (first, last) = (NONE, NONE);
        Self { offset: 0, next: 0, fin: 0, first, last, early_bytes: 0, early_blocks: 0, flags: 0 }
    }
}

impl PartialEq for Side {
    fn eq(&self, other: &Self) -> bool {
        let what = |side: &Self| (side.offset, side.next, side.fin, side.early_bytes, side.early_blocks, side.flags);
        what(self) == what(other)
    }
}

impl Eq for Side {}

/// True if sequence number `a` is after `b`.
const fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

impl Side {
    /// The bytes so far, with those of gaps: the offset of the next byte in the stream.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The sequence number of the next byte, if one is known.
    #[must_use]
    pub const fn next(&self) -> Option<u32> {
        if self.flags & KNOWN == 0 { None } else { Some(self.next) }
    }

    /// The early bytes that wait.
    #[must_use]
    pub const fn early_bytes(&self) -> u32 {
        self.early_bytes
    }

    /// True if [`Event::End`] was told.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.flags & ENDED != 0
    }

    /// True if the rest is not wanted.
    #[must_use]
    pub const fn is_deaf(&self) -> bool {
        self.flags & DEAF != 0
    }

    /// True if early bytes wait, or a FIN for bytes before it.
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.first != NONE || self.flags & (FIN | ENDED | DEAF) == FIN
    }

    /// True if [taking](Self::segment) the segment changes no pool: it is the next one or all old, and nothing waits.
    #[must_use]
    pub fn is_direct(&self, segment: &Segment<'_>) -> bool {
        if self.flags & (ENDED | DEAF) != 0 {
            return true;
        }
        let seq = segment.seq.wrapping_add(u32::from(segment.syn));
        let is_next = self.flags & KNOWN == 0 || self.begins_anew(segment) || seq == self.next;
        let end = seq.wrapping_add(segment.payload.len() as u32).wrapping_add(segment.missing);
        !self.waits() && (is_next || (!segment.fin && !after(end, self.next)))
    }

    const fn begins_anew(&self, segment: &Segment<'_>) -> bool {
        segment.syn && self.offset == 0 && self.first == NONE
    }

    /// Takes a segment of this side. Bytes that come [again](Event::Again) are told even after the end.
    #[inline]
    pub fn segment(
        &mut self,
        segment: &Segment<'_>,
        pool: &Pool,
        policy: Policy,
        limits: &Limits,
        hear: &mut impl FnMut(Event<'_>) -> bool,
    ) -> Taken {
        let seq = segment.seq.wrapping_add(u32::from(segment.syn));
        if self.flags & (ENDED | DEAF) != 0 {
            if self.flags & DEAF == 0 && !self.hear_again(seq, segment.payload, hear) {
                self.flags |= DEAF;
            }
            return Taken::Ignored;
        }
        if self.flags & KNOWN == 0 || self.begins_anew(segment) {
            self.next = seq;
            self.flags |= KNOWN;
        }
        if seq != self.next || self.first != NONE || self.flags & FIN != 0 {
            return self.out_of_line(seq, segment, pool, policy, limits, hear);
        }
        if !segment.payload.is_empty() && !self.hand_over(segment.payload, hear) {
            self.flags |= DEAF;
            return Taken::InOrder;
        }
        if segment.missing > 0 || segment.fin {
            self.close(segment.missing, segment.fin, hear);
        }
        Taken::InOrder
    }

    /// Learns that its first byte has this number, from the SYN-ACK that answers its SYN. Nothing changes if bytes came already.
    pub const fn begin_at(&mut self, seq: u32) {
        if self.offset == 0 && self.first == NONE && self.flags & (FIN | DEAF) == 0 {
            self.next = seq;
            self.flags |= KNOWN;
        }
    }

    /// Learns that the other side has acknowledged all before `ack`: gaps before it are not waited for any longer.
    #[inline]
    pub fn acknowledged(&mut self, ack: u32, pool: &Pool, hear: &mut impl FnMut(Event<'_>) -> bool) {
        if self.first == NONE && self.flags & (FIN | ENDED | DEAF) != FIN {
            return;
        }
        let blocks = &mut pool.lock();
        let mut stream = Stream { side: self, blocks, hear };
        stream.skip_acknowledged(ack);
    }

    /// Ends the stream: what waits is told, with its gaps. Nothing is told if the rest is not wanted.
    pub fn end(&mut self, pool: &Pool, hear: &mut impl FnMut(Event<'_>) -> bool) {
        if self.flags & (ENDED | DEAF) != 0 || self.flags & KNOWN == 0 {
            return;
        }
        let blocks = &mut pool.lock();
        let mut stream = Stream { side: self, blocks, hear };
        stream.finish();
    }

    /// Tells what [`end`](Self::end) would, and changes nothing.
    pub fn look_ahead(&self, pool: &Pool, hear: &mut impl FnMut(Event<'_>) -> bool) {
        if self.flags & (ENDED | DEAF) != 0 || self.flags & KNOWN == 0 {
            return;
        }
        let blocks = pool.lock();
        let mut next = self.next;
        let behind = |seq: u32| self.flags & FIN != 0 && !after(self.fin, seq);
        let gap = |from: u32, until: u32| Event::Gap(Gap { len: until.wrapping_sub(from), end: End::Ended });
        let mut at = self.first;
        while at != NONE && !behind(blocks.get(at).seq) {
            let block = blocks.get(at);
            if block.seq != next && !hear(gap(next, block.seq)) {
                return;
            }
            let room = if behind(block.end()) { self.fin.wrapping_sub(block.seq) as usize } else { block.len() };
            if !hear(Event::Data(&block.bytes()[..room])) {
                return;
            }
            (next, at) = (block.seq.wrapping_add(room as u32), block.next);
        }
        if self.flags & FIN != 0 && (next == self.fin || hear(gap(next, self.fin))) {
            hear(Event::End);
        }
    }

    /// Lets the rest of the stream go: nothing more is told, and what waits is given back.
    pub fn let_go(&mut self, pool: &Pool) {
        self.flags |= DEAF;
        if self.first != NONE {
            self.free_all(&mut pool.lock());
        }
    }

    /// Handles what follows a segment in order, while nothing waits: bytes that were not captured, and the FIN.
    fn close(&mut self, missing: u32, fin: bool, hear: &mut impl FnMut(Event<'_>) -> bool) {
        if fin {
            self.fin = self.next.wrapping_add(missing);
            self.flags |= FIN;
        }
        if missing > 0 {
            self.next = self.next.wrapping_add(missing);
            self.offset += u64::from(missing);
            if !hear(Event::Gap(Gap { len: missing, end: End::NotCaptured })) {
                self.flags |= DEAF;
                return;
            }
        }
        if fin {
            self.flags |= ENDED;
            if !hear(Event::End) {
                self.flags |= DEAF;
            }
        }
    }

    /// Hands bytes over and moves on behind them.
    #[inline]
    fn hand_over(&mut self, bytes: &[u8], hear: &mut impl FnMut(Event<'_>) -> bool) -> bool {
        self.next = self.next.wrapping_add(bytes.len() as u32);
        self.offset += bytes.len() as u64;
        hear(Event::Data(bytes))
    }

    /// Tells the bytes of a segment that come before the next one. Bytes before the first that was heard belong to no offset.
    fn hear_again(&self, seq: u32, bytes: &[u8], hear: &mut impl FnMut(Event<'_>) -> bool) -> bool {
        let behind = u64::try_from(self.next.wrapping_sub(seq) as i32).unwrap_or_default();
        let unplaced = behind.saturating_sub(self.offset);
        let old = &bytes[..bytes.len().min(behind as usize)];
        let old = old.get(unplaced as usize..).unwrap_or_default();
        let offset = self.offset.saturating_sub(behind);
        old.is_empty() || hear(Event::Again(Again { offset, bytes: old }))
    }

    fn free_all(&mut self, blocks: &mut Blocks) {
        while self.first != NONE {
            self.free_first(blocks);
        }
    }

    /// Gives the first block back.
    fn free_first(&mut self, blocks: &mut Blocks) {
        self.early_bytes -= blocks.get(self.first).len() as u32;
        self.early_blocks -= 1;
        self.first = blocks.free(self.first);
        if self.first == NONE {
            self.last = NONE;
        }
    }

    /// Takes a segment that is not simply the next one.
    #[inline(never)]
    fn out_of_line(
        &mut self,
        seq: u32,
        segment: &Segment<'_>,
        pool: &Pool,
        policy: Policy,
        limits: &Limits,
        hear: &mut impl FnMut(Event<'_>) -> bool,
    ) -> Taken {
        let Segment { payload, missing, fin, .. } = *segment;
        let end = seq.wrapping_add(payload.len() as u32);
        let is_near = |seq: u32| seq.wrapping_sub(self.next.wrapping_sub(AHEAD_MAX)) < 2 * AHEAD_MAX;
        if !is_near(seq) || !is_near(end) {
            return Taken::Ignored;
        }
        let blocks = &mut pool.lock();
        let mut stream = Stream { side: self, blocks, hear };
        if fin && stream.side.flags & FIN == 0 {
            let fin = end.wrapping_add(missing);
            // A FIN before bytes that were handed over ends the stream here.
            stream.side.fin = if after(stream.side.next, fin) { stream.side.next } else { fin };
            stream.side.flags |= FIN;
        }
        let early = Early { seq, bytes: payload, span: Span { begin: seq, end }, policy, limits };
        let mut taken = stream.take(early);
        let is_here = stream.side.next == end && !payload.is_empty();
        if missing > 0 && is_here && stream.side.flags & DEAF == 0 {
            stream.skip_not_captured(end.wrapping_add(missing));
        }
        if payload.is_empty() && missing == 0 && stream.side.next == seq {
            taken = Taken::InOrder;
        }
        stream.end_if_complete();
        taken
    }
}

/// A segment, or what is left of it, that is not simply the next one.
#[derive(Clone, Copy)]
struct Early<'a> {
    seq: u32,
    bytes: &'a [u8],
    span: Span,
    policy: Policy,
    limits: &'a Limits,
}

impl<'a> Early<'a> {
    fn without(self, count: usize) -> Self {
        Self { seq: self.seq.wrapping_add(count as u32), bytes: &self.bytes[count..], ..self }
    }
}

/// A side while its blocks are locked.
struct Stream<'s, H> {
    side: &'s mut Side,
    blocks: &'s mut Blocks,
    hear: &'s mut H,
}

impl<H: FnMut(Event<'_>) -> bool> Stream<'_, H> {
    /// Takes the bytes of a segment: hands them over if they are next, stores them if they are early.
    fn take(&mut self, mut early: Early<'_>) -> Taken {
        if self.side.flags & FIN != 0 {
            // Nothing is behind a FIN.
            let room = self.side.fin.wrapping_sub(early.seq) as i32;
            early.bytes = &early.bytes[..early.bytes.len().min(room.max(0) as usize)];
        }
        if early.bytes.is_empty() {
            return Taken::Ignored;
        }
        if !self.side.hear_again(early.seq, early.bytes, self.hear) {
            self.let_go();
            return Taken::Ignored;
        }
        loop {
            let old = self.side.next.wrapping_sub(early.seq) as i32;
            if old >= early.bytes.len() as i32 {
                return Taken::Repeated;
            }
            if old >= 0 {
                self.take_next(early.without(old as usize));
                return Taken::InOrder;
            }
            let Err(why) = self.store(&mut early) else { return Taken::Early };
            // No room: what waits is handed over with its gap. If nothing waits, the segment itself is.
            let until = if self.side.first == NONE { early.seq } else { self.blocks.get(self.side.first).seq };
            self.skip(until, why);
            self.drain();
            if self.side.flags & DEAF != 0 {
                return Taken::Ignored;
            }
        }
    }

    /// Hands over bytes that are next, and early bytes that they overlap or lead to.
    fn take_next(&mut self, mut early: Early<'_>) {
        while !early.bytes.is_empty() && self.side.flags & DEAF == 0 {
            debug_assert_eq!(early.seq, self.side.next);
            let free = match self.side.first {
                NONE => early.bytes.len(),
                first => early.bytes.len().min(self.blocks.get(first).seq.wrapping_sub(early.seq) as usize),
            };
            if free > 0 {
                let bytes = &early.bytes[..free];
                self.hear_data(bytes);
                early = early.without(free);
                continue;
            }
            let block = self.blocks.get(self.side.first);
            let len = block.len();
            let overlap = len.min(early.bytes.len());
            let takes_new = early.policy.takes_new(block.segment, early.span);
            if block.bytes()[..overlap] != early.bytes[..overlap] {
                self.deviation(Deviation { ahead: 0, len: overlap as u32, takes_new });
                if self.side.flags & DEAF != 0 {
                    return;
                }
            }
            if takes_new {
                let bytes = &early.bytes[..overlap];
                self.hear_data(bytes);
                self.skip_in_first(overlap);
                early = early.without(overlap);
            } else {
                self.hear_first();
                early = early.without(len.min(early.bytes.len()));
            }
        }
        self.drain();
    }

    /// Stores early bytes between those that wait already. What is left of them is in `early` if there is no room.
    fn store(&mut self, early: &mut Early<'_>) -> Result<(), End> {
        let mut previous = NONE;
        let mut at = self.side.first;
        if self.side.last != NONE && !after(self.blocks.get(self.side.last).end(), early.seq) {
            (previous, at) = (self.side.last, NONE);
        }
        while !early.bytes.is_empty() {
            while at != NONE && !after(self.blocks.get(at).end(), early.seq) {
                (previous, at) = (at, self.blocks.get(at).next);
            }
            let free = match at {
                NONE => early.bytes.len(),
                at => {
                    let free = self.blocks.get(at).seq.wrapping_sub(early.seq) as i32;
                    early.bytes.len().min(free.max(0) as usize)
                }
            };
            if free > 0 {
                previous = self.store_between(previous, at, &early.bytes[..free.min(BLOCK_BYTES)], early)?;
                *early = early.without(free.min(BLOCK_BYTES));
                continue;
            }
            let block = self.blocks.get_mut(at);
            let skip = early.seq.wrapping_sub(block.seq) as usize;
            let overlap = (block.len() - skip).min(early.bytes.len());
            let takes_new = early.policy.takes_new(block.segment, early.span);
            let differs = block.bytes()[skip..][..overlap] != early.bytes[..overlap];
            let ahead = early.seq.wrapping_sub(self.side.next);
            if takes_new {
                self.replace(at, skip, overlap, early)?;
            }
            *early = early.without(overlap);
            if differs {
                self.deviation(Deviation { ahead, len: overlap as u32, takes_new });
                if self.side.flags & DEAF != 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Stores bytes between two blocks and returns their block.
    fn store_between(&mut self, previous: u32, at: u32, bytes: &[u8], early: &Early<'_>) -> Result<u32, End> {
        let Limits { early_bytes, early_blocks } = *early.limits;
        if self.side.early_blocks >= early_blocks || self.side.early_bytes + bytes.len() as u32 > early_bytes {
            return Err(End::Limit);
        }
        let block = self.blocks.take(early.seq, early.span, bytes).ok_or(End::OutOfMemory)?;
        self.link(previous, block, at);
        self.side.early_bytes += bytes.len() as u32;
        Ok(block)
    }

    /// Puts a block between two others.
    fn link(&mut self, previous: u32, block: u32, next: u32) {
        self.blocks.get_mut(block).next = next;
        match previous {
            NONE => self.side.first = block,
            previous => self.blocks.get_mut(previous).next = block,
        }
        if next == NONE {
            self.side.last = block;
        }
        self.side.early_blocks += 1;
    }

    /// Replaces `len` bytes of block `at`, from `skip` on, by those of a new segment. Each part becomes a block, since later overlaps are
    /// judged by the segment that bytes came in.
    fn replace(&mut self, at: u32, skip: usize, len: usize, early: &Early<'_>) -> Result<(), End> {
        let block: &Block = self.blocks.get(at);
        let (seq, end, segment, next) = (block.seq, block.len(), block.segment, block.next);
        let parts = u16::from(skip > 0) + u16::from(skip + len < end);
        if self.side.early_blocks + parts > early.limits.early_blocks {
            return Err(End::Limit);
        }
        let mut old = [0; BLOCK_BYTES];
        old[..end].copy_from_slice(block.bytes());
        let new = &early.bytes[..len];
        if skip + len < end {
            let tail = seq.wrapping_add((skip + len) as u32);
            let tail = self.blocks.take(tail, segment, &old[skip + len..end]).ok_or(End::OutOfMemory)?;
            self.blocks.get_mut(at).cut(skip + len);
            self.link(at, tail, next);
        }
        if skip > 0 {
            let middle = self.blocks.take(early.seq, early.span, new).ok_or(End::OutOfMemory)?;
            let next = self.blocks.get(at).next;
            self.blocks.get_mut(at).cut(skip);
            self.link(at, middle, next);
        } else {
            let block = self.blocks.get_mut(at);
            block.overwrite(new);
            block.segment = early.span;
        }
        Ok(())
    }

    fn hear_data(&mut self, bytes: &[u8]) {
        if !self.side.hand_over(bytes, self.hear) {
            self.let_go();
        }
    }

    /// Hands the first block over and gives it back.
    fn hear_first(&mut self) {
        let first = self.side.first;
        if first == NONE {
            return;
        }
        let wants_more = self.side.hand_over(self.blocks.get(first).bytes(), self.hear);
        self.side.free_first(self.blocks);
        if !wants_more {
            self.let_go();
        }
    }

    /// Removes bytes from the first block.
    fn skip_in_first(&mut self, count: usize) {
        let first = self.side.first;
        if first == NONE {
            return;
        }
        if self.blocks.get(first).len() == count {
            self.side.free_first(self.blocks);
        } else {
            self.blocks.get_mut(first).skip(count);
            self.side.early_bytes -= count as u32;
        }
    }

    fn deviation(&mut self, deviation: Deviation) {
        if self.side.flags & DEAF == 0 && !(self.hear)(Event::Deviation(deviation)) {
            self.let_go();
        }
    }

    /// Hands over all early bytes that are next.
    fn drain(&mut self) {
        while self.side.first != NONE && !after(self.blocks.get(self.side.first).seq, self.side.next) {
            let first = self.side.first;
            if self.side.flags & FIN != 0 {
                let room = self.side.fin.wrapping_sub(self.side.next) as i32;
                let len = self.blocks.get(first).len();
                if room <= 0 {
                    self.side.free_all(self.blocks);
                    break;
                }
                let kept = len.min(room as usize);
                self.blocks.get_mut(first).cut(kept);
                self.side.early_bytes -= (len - kept) as u32;
            }
            self.hear_first();
        }
        self.end_if_complete();
    }

    /// Tells a gap up to `until`.
    fn skip(&mut self, until: u32, end: End) {
        let mut len = until.wrapping_sub(self.side.next);
        if self.side.flags & FIN != 0 {
            len = len.min(self.side.fin.wrapping_sub(self.side.next));
        }
        if len == 0 {
            return;
        }
        self.side.next = self.side.next.wrapping_add(len);
        self.side.offset += u64::from(len);
        if !(self.hear)(Event::Gap(Gap { len, end })) {
            self.let_go();
        }
    }

    /// Tells what was not captured up to `until` as gaps, and the early bytes that lie there.
    fn skip_not_captured(&mut self, until: u32) {
        while after(until, self.side.next) && self.side.flags & DEAF == 0 {
            let before = self.side.next;
            let first = if self.side.first == NONE { until } else { self.blocks.get(self.side.first).seq };
            self.skip(if after(first, until) { until } else { first }, End::NotCaptured);
            self.drain();
            if self.side.next == before {
                // A FIN is here.
                return;
            }
        }
    }

    fn skip_acknowledged(&mut self, ack: u32) {
        while self.side.first != NONE && after(ack, self.blocks.get(self.side.first).seq) {
            self.skip(self.blocks.get(self.side.first).seq, End::Acknowledged);
            self.drain();
        }
        if self.side.flags & (FIN | ENDED | DEAF) == FIN && after(ack, self.side.fin) && self.side.first == NONE {
            self.skip(self.side.fin, End::Acknowledged);
            self.end_if_complete();
        }
    }

    fn finish(&mut self) {
        while self.side.first != NONE && self.side.flags & (ENDED | DEAF) == 0 {
            self.skip(self.blocks.get(self.side.first).seq, End::Ended);
            self.drain();
        }
        if self.side.flags & (FIN | ENDED | DEAF) == FIN {
            self.skip(self.side.fin, End::Ended);
            self.end_if_complete();
        }
        self.side.free_all(self.blocks);
    }

    /// Tells the end once all before the FIN was told.
    fn end_if_complete(&mut self) {
        if self.side.flags & (FIN | ENDED | DEAF) == FIN && !after(self.side.fin, self.side.next) {
            self.side.flags |= ENDED;
            self.side.free_all(self.blocks);
            if !(self.hear)(Event::End) {
                self.side.flags |= DEAF;
            }
        }
    }

    fn let_go(&mut self) {
        self.side.flags |= DEAF;
        self.side.free_all(self.blocks);
    }
}
