//! History: the metadata of earlier packets, which a core replays before its own packet (state-compute replication), and the moves of state
//! in between.

use locality::{CACHE_LINE, prefetch};
use packet::{Nanos, Seq};

use crate::history::moves::{Move, Moves};

/// The history record of one packet. Packets that take no step have none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<M> {
    /// The packet's number.
    pub seq: Seq,
    /// The packet's time, stamped once for all cores.
    pub time: Nanos,
    /// The hash of its key, computed once for the tables of all replicas.
    pub hash: u64,
    /// The packet's metadata.
    pub meta: M,
}

/// The record of a packet that only its own core steps (`hybrid`). The core gets it so it need not parse the packet again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnedRecord<M> {
    /// The packet's number.
    pub seq: Seq,
    /// The hash of its key.
    pub hash: u64,
    /// The bucket that the packet was steered by.
    pub bucket: u16,
    /// The packet's metadata.
    pub meta: M,
}

/// What a sequencer hands to all cores at once: the records of consecutive packets, and the moves before them.
#[derive(Clone, Debug)]
pub struct Block<M> {
    /// The number of the first packet that the block covers.
    pub first: Seq,
    /// The number after the last packet that the block covers.
    pub end: Seq,
    /// The records, by number.
    pub records: Vec<Record<M>>,
    /// The moves before the first of these packets.
    pub moves: Vec<Move<M>>,
    /// The time of the moves: the first packet's time.
    pub time: Nanos,
    /// For cores that get history only with their own packets and recover missing records from each other: the words that the packets of
    /// the core's share carry. The block then has no records.
    pub carried: Option<Vec<u64>>,
}

impl<M> Default for Block<M> {
    fn default() -> Self {
        let (first, end, time) = (Seq(0), Seq(0), Nanos(0));
        Self { first, end, records: Vec::new(), moves: Vec::new(), time, carried: None }
    }
}

impl<M> Block<M> {
    /// The moves before the first packet.
    #[must_use]
    pub fn moves(&self) -> Moves<'_, M> {
        Moves { list: &self.moves, lap: 0, time: self.time }
    }
}

/// Moves of state at one packet of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Boundary<M> {
    /// The packet before which state moves, from 1. The trace's length stands for the end of each pass.
    pub seq: Seq,
    /// The time of the moves.
    pub time: Nanos,
    /// The moves.
    pub moves: Vec<Move<M>>,
}

/// All records and moves of one pass over a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceHistory<M> {
    /// The records, by number.
    pub records: Vec<Record<M>>,
    /// The boundaries, by number. The last one undoes all moves, if there were any.
    pub boundaries: Vec<Boundary<M>>,
    /// By core: the records that only this core steps, by number. Empty if cores parse their own packets.
    pub owned: Vec<Vec<OwnedRecord<M>>>,
}

impl<M> Default for TraceHistory<M> {
    fn default() -> Self {
        Self { records: Vec::new(), boundaries: Vec::new(), owned: Vec::new() }
    }
}

impl<M> TraceHistory<M> {
    /// True if there are no records and no moves.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.boundaries.is_empty() && self.owned.iter().all(Vec::is_empty)
    }

    /// The records that only this core steps.
    #[must_use]
    pub fn owned_of(&self, core: usize) -> &[OwnedRecord<M>] {
        self.owned.get(core).map_or(&[], Vec::as_slice)
    }
}

/// A core's position in the stream of records and moves. It takes each exactly once, in order.
///
/// A log over a whole trace starts again at its end. In each pass, times are later by the trace's span.
#[derive(Debug)]
pub struct Log<'a, M> {
    records: &'a [Record<M>],
    boundaries: &'a [Boundary<M>],
    owned: Owned<'a, M>,
    record: usize,
    /// Records before this index were shown for prefetching.
    prefetched: usize,
    boundary: usize,
    /// The number of completed passes over the records, and over the boundaries.
    laps: [u64; 2],
    /// What is added in this pass to the records' numbers, and to their times.
    first: u64,
    later: Nanos,
    packets: u64,
    span: Nanos,
}

/// The records that only this core steps, and the core's position among them.
#[derive(Debug)]
struct Owned<'a, M> {
    all: &'a [OwnedRecord<M>],
    next: usize,
    /// Records before this index were shown for prefetching.
    prefetched: usize,
    /// What is added in this pass to the packets' numbers.
    first: u64,
}

impl<M> Owned<'_, M> {
    const NONE: Self = Self { all: &[], next: 0, prefetched: 0, first: 0 };
}

/// How many records ahead a record is prefetched. A log is mostly larger than the L2 cache; this is far enough ahead for a load from
/// memory.
pub(crate) const AHEAD: usize = 128;

/// Consecutive records of one pass over a trace.
#[derive(Clone, Copy, Debug)]
pub struct Stretch<'a, M> {
    /// The records, as in the first pass.
    pub records: &'a [Record<M>],
    /// What is added to their numbers in this pass.
    pub first: u64,
    /// What is added to their times in this pass.
    pub later: Nanos,
}

impl<M: Copy> Stretch<'_, M> {
    /// The records with the numbers and times of this pass.
    pub fn iter(&self) -> impl Iterator<Item = Record<M>> + '_ {
        let of = |record: &Record<M>| Record {
            seq: Seq(record.seq.0 + self.first),
            time: record.time + self.later,
            ..*record
        };
        self.records.iter().map(of)
    }
}

/// What a core has to replay before its next packet.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a, M> {
    /// Records of earlier packets, at least one.
    Records(Stretch<'a, M>),
    /// Moves of state.
    Moves(Moves<'a, M>),
}

impl<'a, M: Copy> Log<'a, M> {
    /// The log of a block; it ends with the block. The caller does the block's moves.
    #[must_use]
    pub const fn of_block(block: &'a Block<M>) -> Self {
        let records = block.records.as_slice();
        Self {
            records,
            boundaries: &[],
            owned: Owned::NONE,
            record: 0,
            prefetched: 0,
            boundary: 0,
            laps: [0; 2],
            first: 0,
            later: Nanos(0),
            packets: 0,
            span: Nanos(0),
        }
    }

    /// The log of a trace of `packets` packets that is replayed in a loop, later by `span` in each pass. Starts before packet `next`.
    ///
    /// # Panics
    /// If `packets` is 0.
    #[must_use]
    pub fn of_loop(history: &'a TraceHistory<M>, packets: usize, span: Nanos, next: Seq) -> Self {
        let packets = packets as u64;
        let (lap, within) = (next.0 / packets, Seq(next.0 % packets));
        let TraceHistory { records, boundaries, .. } = history;
        let record = records.partition_point(|record| record.seq < within);
        let boundary = boundaries.partition_point(|boundary| boundary.seq <= within);
        let (first, later) = (0, Nanos(0));
        let (prefetched, owned) = (record, Owned::NONE);
        let laps = [lap; 2];
        let mut log =
            Self { records, boundaries, owned, record, prefetched, boundary, laps, first, later, packets, span };
        log.lap_records(lap);
        log
    }

    /// The same log with the records that only this core steps. `next` is the core's next packet.
    #[must_use]
    pub fn with_owned(self, all: &'a [OwnedRecord<M>], next: Seq) -> Self {
        let within = next.0.checked_rem(self.packets).unwrap_or(next.0);
        let first = next.0 - within;
        let next = all.partition_point(|record| record.seq.0 < within);
        Self { owned: Owned { all, next, prefetched: next, first }, ..self }
    }

    /// True if nothing is to be replayed before `end`.
    #[inline]
    pub(crate) fn is_silent_until(&mut self, end: Seq) -> bool {
        self.records.is_empty() && self.owned.all.is_empty() && !self.moves_by(end)
    }

    /// True if the log has records that only this core steps.
    #[inline]
    pub(crate) const fn has_owned(&self) -> bool {
        !self.owned.all.is_empty()
    }

    /// The rest of these records in the pass of packet `seq`, from that packet on, and what is added to their numbers in this pass. The
    /// caller takes at most `room` of them. Calls `ask` once for each of these and for as many after them, to prefetch their state.
    #[inline(always)]
    pub(crate) fn owned(
        &mut self,
        seq: Seq,
        room: usize,
        ask: impl FnMut(&OwnedRecord<M>),
    ) -> (&'a [OwnedRecord<M>], u64) {
        let Owned { all, next, prefetched, first } = &mut self.owned;
        if let Some(passes) = (seq.0 - *first).checked_div(self.packets).filter(|passes| *passes > 0) {
            (*next, *prefetched, *first) = (0, 0, *first + passes * self.packets);
        }
        // Skips the records of packets that never came.
        *next += all[*next..].iter().take_while(|record| record.seq.0 + *first < seq.0).count();
        let ahead = all.len().min(*next + 2 * room);
        all[(*prefetched).clamp(*next, ahead)..ahead].iter().for_each(ask);
        *prefetched = ahead;
        (&all[*next..], *first)
    }

    /// Marks `count` of these records as taken.
    #[inline]
    pub(crate) const fn took_owned(&mut self, count: usize) {
        self.owned.next += count;
    }

    /// The first packet after the pass of the last [`owned`](Self::owned).
    #[inline]
    pub(crate) fn owned_end(&self) -> Seq {
        Seq(if self.packets == 0 { u64::MAX } else { self.owned.first + self.packets })
    }

    /// The next records or moves before packet `until`, at most `room` records. At the same number, moves come before records.
    #[inline]
    pub fn before(&mut self, until: Seq, room: usize) -> Option<Event<'a, M>> {
        let mut until = until;
        if !self.boundaries.is_empty() {
            if let Some(moves) = self.moves_before(until) {
                return Some(Event::Moves(moves));
            }
            until = until.min(self.next_boundary());
        }
        if self.record == self.records.len() && !self.begin_again() {
            return None;
        }
        let Self { first, later, .. } = *self;
        let rest = &self.records[self.record..];
        let rest = &rest[..rest.len().min(room)];
        let count = rest.iter().take_while(|record| record.seq.0 + first < until.0).count();
        self.record += count;
        (count > 0).then_some(Event::Records(Stretch { records: &rest[..count], first, later }))
    }

    /// The end of the records before the next moves: `until`, or the next boundary if that is earlier. `Err` has the moves, if they are next.
    #[inline(always)]
    pub(crate) fn limit(&mut self, until: Seq) -> Result<Seq, Moves<'a, M>> {
        if self.boundaries.is_empty() {
            return Ok(until);
        }
        match self.moves_before(until) {
            Some(moves) => Err(moves),
            None => Ok(until.min(self.next_boundary())),
        }
    }

    /// True if moves come before packet `until`, after the records before them.
    #[inline(always)]
    pub(crate) fn moves_by(&mut self, until: Seq) -> bool {
        !self.boundaries.is_empty() && self.next_boundary() <= until
    }

    /// The end of the records before the next moves: `until`, or the next boundary if that is earlier.
    #[inline]
    pub(crate) fn bound(&mut self, until: Seq) -> Seq {
        if self.boundaries.is_empty() { until } else { until.min(self.next_boundary()) }
    }

    /// The next records before packet `limit`, at most `room`. Calls `ask` once for each record, up to `room` records ahead, to prefetch
    /// its state.
    #[inline(always)]
    pub(crate) fn stretch(
        &mut self,
        limit: Seq,
        room: usize,
        mut ask: impl FnMut(&Record<M>),
    ) -> Option<Stretch<'a, M>> {
        if self.record == self.records.len() && !self.begin_again() {
            return None;
        }
        let Self { records, record, first, later, .. } = *self;
        let rest = &records[record..];
        let mut count = rest.len().min(room);
        if rest[count - 1].seq.0 + first >= limit.0 {
            count = rest[..count].partition_point(|record| record.seq.0 + first < limit.0);
        }
        if count == 0 {
            return None;
        }
        let stretch = Stretch { records: &rest[..count], first, later };
        let ahead = records.len().min(record + count + room);
        let unasked = &records[self.prefetched.clamp(record, ahead)..ahead];
        unasked.iter().for_each(&mut ask);
        (self.record, self.prefetched) = (record + count, ahead);
        Some(stretch)
    }

    /// The number of the next record, if there is one.
    #[inline]
    fn peek(&mut self) -> Option<Seq> {
        if self.record == self.records.len() && !self.begin_again() {
            return None;
        }
        Some(Seq(self.records[self.record].seq.0 + self.first))
    }

    /// Starts a new pass. Returns false if the log has no records, or is a block's.
    fn begin_again(&mut self) -> bool {
        if self.packets == 0 || self.records.is_empty() {
            return false;
        }
        (self.record, self.prefetched) = (0, 0);
        self.lap_records(self.laps[0] + 1);
        true
    }

    fn lap_records(&mut self, lap: u64) {
        (self.laps[0], self.first, self.later) = (lap, lap * self.packets, self.later(lap));
    }

    #[inline]
    fn later(&self, lap: u64) -> Nanos {
        Nanos(self.span.0.saturating_mul(lap))
    }

    /// The packet before which the next moves happen. There must be boundaries.
    fn next_boundary(&mut self) -> Seq {
        if self.boundary == self.boundaries.len() {
            self.boundary = 0;
            self.laps[1] += 1;
        }
        Seq(self.boundaries[self.boundary].seq.0 + self.laps[1] * self.packets)
    }

    /// The next moves, if they are not behind packet `until` and no record comes before them.
    fn moves_before(&mut self, until: Seq) -> Option<Moves<'a, M>> {
        let at = self.next_boundary();
        if at > until || self.peek().is_some_and(|seq| seq < at) {
            return None;
        }
        let (lap, Boundary { time, moves, .. }) = (self.laps[1], &self.boundaries[self.boundary]);
        self.boundary += 1;
        Some(Moves { list: moves, lap, time: *time + self.later(lap) })
    }
}

/// Prefetches the record [`AHEAD`] records later. One for each record, because many requests at once would wait for each other.
#[inline(always)]
pub(crate) fn prefetch_ahead<T>(record: *const T) {
    // The cache lines that begin in this record. The first line of a record often belongs to the record before.
    let last = record.wrapping_add(AHEAD + 1).cast::<u8>().wrapping_sub(1);
    for back in (0..size_of::<T>()).step_by(CACHE_LINE) {
        prefetch::address(last.wrapping_sub(back));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64) -> Record<u64> {
        Record { seq: Seq(seq), time: Nanos(seq * 10), hash: seq, meta: seq }
    }

    fn numbers(log: &mut Log<'_, u64>, until: u64) -> Vec<(&'static str, u64, u64)> {
        let mut met = Vec::new();
        while let Some(event) = log.before(Seq(until), 2) {
            match event {
                Event::Records(stretch) => {
                    assert!((1..=2).contains(&stretch.records.len()));
                    met.extend(stretch.iter().map(|one| ("record", one.seq.0, one.time.0)));
                }
                Event::Moves(moves) => met.push(("moves", moves.lap, moves.time.0)),
            }
        }
        met
    }

    /// Takes the next record before packet `until`.
    fn next(log: &mut Log<'_, u64>, until: u64) -> Option<u64> {
        log.stretch(Seq(until), 1, |_| ()).map(|stretch| stretch.records[0].meta)
    }

    #[test]
    fn a_loop_goes_around_in_numbers_and_in_time() {
        let boundary = |seq, time| Boundary { seq: Seq(seq), time: Nanos(time), moves: Vec::new() };
        let history = TraceHistory {
            records: vec![record(1), record(3)],
            boundaries: vec![boundary(2, 20), boundary(4, 40)],
            owned: Vec::new(),
        };
        let mut log = Log::of_loop(&history, 4, Nanos(100), Seq(0));
        assert_eq!(numbers(&mut log, 3), [("record", 1, 10), ("moves", 0, 20)]);
        assert_eq!(next(&mut log, 4), Some(3));
        assert_eq!(numbers(&mut log, 6), [("moves", 0, 40), ("record", 5, 110), ("moves", 1, 120)]);
        // A core that has come to packet 6 has taken everything before it.
        let mut log = Log::of_loop(&history, 4, Nanos(100), Seq(6));
        assert_eq!(numbers(&mut log, 8), [("record", 7, 130), ("moves", 1, 140)]);
        let mut log = Log::of_loop(&history, 4, Nanos(100), Seq(8));
        assert_eq!(numbers(&mut log, 9), []);
        assert_eq!(numbers(&mut log, 10), [("record", 9, 210), ("moves", 2, 220)]);
    }

    /// Takes records two by two, as replicas do, and notes which were shown for prefetching.
    fn by_twos(log: &mut Log<'_, u64>, until: u64, prefetched: &mut Vec<u64>) -> Vec<(&'static str, u64, u64)> {
        let mut met = Vec::new();
        loop {
            let bound = log.bound(Seq(until));
            while let Some(stretch) = log.stretch(bound, 2, |record| prefetched.push(record.meta)) {
                assert!((1..=2).contains(&stretch.records.len()));
                met.extend(stretch.iter().map(|one| ("record", one.seq.0, one.time.0)));
            }
            match log.limit(Seq(until)) {
                Err(moves) => met.push(("moves", moves.lap, moves.time.0)),
                Ok(_) => return met,
            }
        }
    }

    #[test]
    fn what_is_asked_for_ahead_comes_in_the_same_order() {
        let boundary = |seq| Boundary { seq: Seq(seq), time: Nanos(seq * 10), moves: Vec::new() };
        for records in 0..16u64 {
            for boundaries in [&[][..], &[4], &[1, 4], &[2, 3, 4]] {
                let records = (0..4).filter(|seq| records >> seq & 1 == 1).map(record).collect();
                let boundaries = boundaries.iter().copied().map(boundary).collect();
                let history = TraceHistory { records, boundaries, owned: Vec::new() };
                for step in 1..6 {
                    let mut logs = [0, 1].map(|_| Log::of_loop(&history, 4, Nanos(40), Seq(0)));
                    let mut prefetched = Vec::new();
                    for until in (step..20).step_by(step as usize) {
                        let [one, other] = &mut logs;
                        let met = numbers(one, until);
                        assert_eq!(by_twos(other, until, &mut prefetched), met, "{history:?} until {until}");
                        for log in &mut logs {
                            next(log, until + 1);
                        }
                    }
                    // Each record at most once in a pass, in order.
                    let passes = prefetched.chunk_by(|one, next| one < next).count();
                    assert!(passes <= 6, "{passes} passes: {prefetched:?}");
                }
            }
        }
    }

    /// Takes the core's own records for those of `packets` that have one, `room` at a time.
    fn own(log: &mut Log<'_, u64>, packets: &[u64], room: usize, prefetched: &mut Vec<u64>) -> Vec<u64> {
        let (mut at, mut met) = (0, Vec::new());
        while let Some(packet) = packets.get(at) {
            let (owned, first) = log.owned(Seq(*packet), room, |record| prefetched.push(record.hash));
            let is_of = |(record, packet): &(&OwnedRecord<u64>, &u64)| record.seq.0 + first == **packet;
            let count = owned.iter().zip(&packets[at..]).take(room).take_while(is_of).count();
            met.extend(owned[..count].iter().map(|record| record.seq.0 + first));
            assert!(log.owned_end() > Seq(*packet));
            log.took_owned(count);
            at += count.max(1);
        }
        met
    }

    #[test]
    fn what_a_core_is_handed_goes_around_with_its_packets() {
        let record = |seq| OwnedRecord { seq: Seq(seq), hash: seq, bucket: 3, meta: seq };
        let history =
            TraceHistory { owned: vec![Vec::new(), [1, 2, 4, 7].map(record).to_vec()], ..TraceHistory::default() };
        assert!(!history.is_empty() && history.owned_of(0).is_empty() && history.owned_of(2).is_empty());
        for room in 1..6 {
            let log = |next| Log::of_loop(&history, 10, Nanos(100), next).with_owned(history.owned_of(1), next);
            let mut prefetched = Vec::new();
            let mut from_start = log(Seq(0));
            assert!(from_start.has_owned() && !from_start.is_silent_until(Seq(1)));
            assert_eq!(own(&mut from_start, &[0, 1, 2, 4], room, &mut prefetched), [1, 2, 4]);
            assert_eq!(own(&mut from_start, &[7, 11, 12], room, &mut prefetched), [7, 11, 12]);
            // Each once in a pass.
            assert_eq!(prefetched.chunk_by(|one, next| one < next).count(), 2, "{prefetched:?}");
            // Packets that never come, even whole passes of them.
            assert_eq!(own(&mut from_start, &[17, 22, 47, 81], room, &mut Vec::new()), [17, 22, 47, 81]);
            assert_eq!(own(&mut log(Seq(5)), &[6, 7, 9, 11], room, &mut Vec::new()), [7, 11]);
            assert_eq!(own(&mut log(Seq(24)), &[24, 27, 31], room, &mut Vec::new()), [24, 27, 31]);
        }
    }

    #[test]
    fn a_block_ends() {
        let block = Block { records: vec![record(4), record(5)], ..Block::default() };
        let mut log = Log::of_block(&block);
        assert_eq!(next(&mut log, 4), None);
        assert_eq!(next(&mut log, 5), Some(4));
        assert_eq!(numbers(&mut log, 9), [("record", 5, 50)]);
        assert_eq!(numbers(&mut log, 9), []);
    }
}
