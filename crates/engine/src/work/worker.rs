//! The one worker loop: look at all, hash and ask for what leads to their entries, ask for the entries of all, step all.

use std::mem::replace;
use std::ops::Range;
use std::sync::Arc;

use flow::Hint;
use locality::prefetch;
use nf::{Flow, Meta, NetworkFunction, Reason, Verdict};
use packet::{Nanos, Seq};
use port::{Batch, Fate, Packet, Sides};

use crate::counters::Counters;
use crate::error::FailedPacket;
use crate::history::log::{Log, OwnedRecord, Record, Stretch, prefetch_ahead};
use crate::history::moves::Moves;
use crate::placement::{BURST, Lane, Placement, Ticket, hash_of};
use crate::steer::classify::classify;
use crate::work::settle::{settle, settle_unwritten};

/// One core's share of the work, over its placement of the state. Aligned so that no two workers share a line: each writes
/// its own with every packet.
#[repr(align(128))]
pub struct Worker<N: NetworkFunction, P> {
    nf: Arc<N>,
    by_ports: bool,
    place: P,
    /// See [`Placement::is_near`]; as it was at the last log.
    near: bool,
    /// What hashes are keyed by.
    seed: u64,
    counters: Counters,
    lanes: Box<Lanes<N::Meta>>,
    /// The packet whose history record comes next.
    next: Seq,
    /// The packet that the function is at, for the report of a panic.
    position: Seq,
    /// Room for a packet that is made anew.
    scratch: Vec<u8>,
    /// The port's interfaces: "across" and "back" become their numbers. `None` leaves a verdict's port as it is.
    sides: Option<Sides>,
}

/// The steps that wait for their burst to be full. Aligned for the same reason as their worker.
#[repr(align(128))]
struct Lanes<M> {
    len: usize,
    waiting: [Waiting<M>; BURST],
    /// The verdict of a packet that takes no step.
    settled: Verdict,
    /// The packets of a burst that take none and are written to, by their place in the batch: they are seen to once all have been
    /// looked at.
    stepless: Vec<(usize, Verdict)>,
    /// Those without a record in a log that has its own packets' records, which are looked at later, by their place in the batch.
    passed: Vec<u32>,
    /// Where there may be packets that are this core's alone: how many of them are left for later, and the place ahead of which none is.
    left: usize,
    decided: usize,
}

/// A step that waits.
#[derive(Clone, Copy)]
struct Waiting<M> {
    /// What its packet contributes: built here and never moved.
    meta: Option<M>,
    ticket: Ticket,
    /// The packet's place in the batch. A record of the history has no packet here.
    index: u32,
}

/// An IP packet at its longest, and a link header: what there is room for from the start where packets are made anew.
const FRAME_MAX: usize = 65_535 + 64;

impl<M: Copy> Waiting<M> {
    const NONE: Self = Self {
        meta: None,
        ticket: Ticket { hash: 0, seq: Seq(0), now: Nanos(0), hint: Hint::NOWHERE, bucket: 0, replayed: false },
        index: 0,
    };

    /// The step, as placements see it.
    #[inline(always)]
    fn lane(&self) -> Lane<'_, M> {
        Lane { meta: self.meta(), ticket: &self.ticket }
    }

    /// What the packet of a lane in use contributes.
    #[inline(always)]
    fn meta(&self) -> &M {
        let Some(meta) = &self.meta else { unreachable!("a lane waits with what its packet contributes") };
        meta
    }
}

impl<N: NetworkFunction, P: Placement<N>> Worker<N, P> {
    /// A worker with nothing done yet.
    #[must_use]
    pub fn new(nf: Arc<N>, place: P) -> Self {
        Self {
            by_ports: nf.packet_set().has_ports(),
            nf,
            seed: place.seed(),
            near: place.is_near(),
            place,
            counters: Counters::default(),
            lanes: Box::new(Lanes {
                len: 0,
                waiting: [Waiting::NONE; BURST],
                settled: Verdict::forward(),
                stepless: Vec::with_capacity(BURST),
                passed: Vec::with_capacity(BURST),
                left: 0,
                decided: 0,
            }),
            next: Seq(0),
            position: Seq(0),
            sides: None,
            scratch: Vec::with_capacity(N::GROWTH.map_or(0, |growth| FRAME_MAX + growth as usize)),
        }
    }

    /// The state that this core's steps go by.
    pub const fn place(&self) -> &P {
        &self.place
    }

    pub(crate) const fn place_mut(&mut self) -> &mut P {
        &mut self.place
    }

    /// What this core did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { flows: self.place.flow_counters(), ..self.counters.clone() }
    }

    /// Names the interfaces of the port. From now on a packet that goes "across" or "back" gets the number of its interface.
    pub const fn face(&mut self, sides: Sides) {
        self.sides = Some(sides);
    }

    /// The core's packet counters so far. Those of flows stay at 0, as they would have to be gathered from tables.
    pub const fn tally(&self) -> &Counters {
        &self.counters
    }

    /// Ends flows whose deadline has passed by `now`, the port's time, a bounded number at once; `true` when there are more. No packet has
    /// come behind `last`. Replicas have to be told the same behind the same packet.
    pub fn age(&mut self, now: Nanos, last: Seq) -> bool {
        self.place.age(&self.nf, now, last)
    }

    /// The packet that the function was last at.
    #[must_use]
    pub const fn position(&self) -> Seq {
        self.position
    }

    /// The packet whose history record this core reads next.
    #[must_use]
    pub const fn next(&self) -> Seq {
        self.next
    }

    /// Decides every packet of the batch.
    #[inline(never)]
    pub fn process(&mut self, batch: &mut Batch) {
        self.counters.receive(batch);
        self.decide(batch);
    }

    #[inline]
    fn decide(&mut self, batch: &mut Batch) {
        let mut begin = 0;
        batch.prefetch(0..BURST);
        while begin < batch.len() {
            let end = batch.len().min(begin + BURST);
            batch.prefetch(end..end + BURST);
            self.intake_burst(batch, begin..end);
            self.flush(batch);
            begin = end;
        }
    }

    /// Decides every packet of the batch, after replaying from `log` what came ahead of it and went to other cores; then
    /// replays on to `end`, the number behind the last record to read.
    ///
    /// # Panics
    /// When another core has failed that this one would have had to wait for; and when there is something to replay under a placement
    /// that [never does](Placement::REPLAYS).
    #[inline(never)]
    pub fn process_with(&mut self, batch: &mut Batch, log: &mut Log<'_, N::Meta>, end: Seq) {
        self.counters.receive(batch);
        if log.is_silent_until(end) {
            self.decide(batch);
        } else {
            assert!(P::REPLAYS, "this state is no replica");
            self.replay(batch, log, end);
        }
        self.next = end;
    }

    /// Lets go of what leaves this core; see [`Placement::release`]. All that came before has been processed.
    pub fn release(&mut self, moves: &Moves<'_, N::Meta>) {
        self.place.release(moves);
    }

    /// Whether all that comes to this core was released.
    #[must_use]
    pub fn is_ready(&self, moves: &Moves<'_, N::Meta>) -> bool {
        self.place.is_ready(moves)
    }

    /// Takes what comes to this core, and was [released](Self::release) by others.
    pub fn acquire(&mut self, moves: &Moves<'_, N::Meta>) {
        self.place.acquire(moves);
    }

    /// Lets go of what leaves this core, waits for what comes, and takes it; `false` when another core has failed.
    #[must_use]
    pub fn hand_over(&mut self, moves: &Moves<'_, N::Meta>) -> bool {
        self.place.release(moves);
        let came = self.place.wait(moves);
        if came {
            self.place.acquire(moves);
        }
        came
    }

    /// This core has failed: nobody is to wait for it.
    pub fn fail(&mut self) {
        self.place.fail();
    }

    /// Counts a packet that never got here, or came in vain.
    pub(crate) fn drop_unseen(&mut self, packet: &Packet, reason: Reason) {
        self.counters.received += 1;
        self.counters.received_bytes += u64::from(packet.wire_len);
        self.counters.count(&Verdict::Drop(reason));
    }

    /// Takes the packet that the function was at, unchanged as far as it is still undecided.
    #[must_use]
    pub fn failed_packet(&self, batch: &Batch) -> Option<FailedPacket> {
        let index = batch.packets().iter().position(|packet| packet.seq == self.position)?;
        let packet = batch.packets()[index];
        let bytes = batch.bytes(index).to_vec();
        Some(FailedPacket { time: packet.time, link: packet.link, wire_len: packet.wire_len, bytes })
    }

    /// Has the packets wait that take a step; nobody waits yet, and there is room for all.
    #[inline(always)]
    fn intake_burst(&mut self, batch: &mut Batch, range: Range<usize>) {
        let Self { nf, by_ports, seed, place, lanes, counters, position, scratch, sides, .. } = self;
        let sides = *sides;
        let intake = Intake { nf: &**nf, by_ports: *by_ports, seed: *seed, place: &*place };
        let Lanes { len, waiting, settled, stepless, .. } = &mut **lanes;
        let mut count = 0;
        for (index, (packet, bytes)) in range.clone().zip(batch.frames(range)) {
            if P::MIXED && packet.bucket == Packet::SPRAYED {
                continue;
            }
            *position = packet.seq;
            if intake.admit(&mut waiting[count], settled, packet, bytes, index) {
                count += 1;
                continue;
            }
            counters.count_unread(packet);
            match settle_unwritten(sides, counters, packet, settled) {
                Some(fate) => packet.fate = fate,
                None => stepless.push((index, *settled)),
            }
        }
        *len = count;
        for (index, verdict) in stepless.drain(..) {
            *position = batch.packets()[index].seq;
            settle(intake.nf, sides, scratch, counters, batch, index, &verdict);
        }
    }

    /// Steps through a log in which packets of the batch have their records among the others: what sequenced them has parsed them.
    /// A packet without a record takes no step, or one that no record has a part in; those are looked at together.
    #[inline(never)]
    fn replay(&mut self, batch: &mut Batch, log: &mut Log<'_, N::Meta>, end: Seq) {
        let end = batch.packets().last().map_or(end, |last| end.max(last.seq.next()));
        self.near = self.place.is_near();
        (self.lanes.left, self.lanes.decided) = (0, 0);
        let mut own = 0;
        loop {
            let bound = log.bound(end);
            loop {
                let Self { nf, place, near, .. } = &*self;
                let ask = |record: &Record<N::Meta>| place.prefetch(nf, &record.meta, record.hash, Packet::SPRAYED);
                let stretch = if *near { log.stretch(bound, BURST, |_| ()) } else { log.stretch(bound, BURST, ask) };
                let Some(stretch) = stretch else { break };
                let folds = N::FOLDS && has_runs(stretch.records) && are_apart(&batch.packets()[own..]);
                own = if folds {
                    self.take::<true>(batch, own, stretch)
                } else {
                    self.take::<false>(batch, own, stretch)
                };
                if P::MIXED && self.lanes.left >= BURST {
                    self.decide_passed(batch, own, log);
                }
            }
            let come = batch.packets()[own..].partition_point(|packet| packet.seq < bound);
            (own..own + come).for_each(|index| self.pass_over(batch, index));
            own += come;
            // Some may be of what leaves this core.
            self.decide_passed(batch, own, log);
            match log.limit(end) {
                Err(moves) => assert!(self.hand_over(&moves), "another core has failed"),
                Ok(_) => break,
            }
        }
    }

    /// Takes the steps of consecutive records, some of which are of packets of the batch, from the `own`th on; the packet that comes
    /// after them. Where the law of folding holds, it `FOLDS` runs.
    #[inline(never)]
    fn take<const FOLDS: bool>(&mut self, batch: &mut Batch, mut own: usize, stretch: Stretch<'_, N::Meta>) -> usize {
        let Stretch { records, first, later } = stretch;
        let mut hints = [Hint::NOWHERE; BURST];
        let Self { nf, place, near, .. } = &*self;
        let place = place.recorded();
        if *near {
            hint::<_, FOLDS>(&mut hints, records, |meta, hash| place.locate(nf, meta, hash, Packet::SPRAYED));
        } else {
            hint::<_, FOLDS>(&mut hints, records, |meta, hash| place.prefetch_entry(nf, meta, hash, Packet::SPRAYED));
        }
        let hints = &hints[..records.len()];
        let (mut at, before) = (0, own);
        let mut passed = 0;
        loop {
            let Self { nf, place, counters, position, scratch, sides, .. } = self;
            let sides = *sides;
            let (nf, place) = (&**nf, place.recorded_mut());
            let ticket_of = |record: &Record<N::Meta>, seq: Seq, at: usize, replayed: bool| Ticket {
                hash: record.hash,
                seq,
                now: record.time + later,
                hint: hints[at],
                bucket: Packet::SPRAYED,
                replayed,
            };
            // Until a packet comes that no record is about: what is looked up here is looked up for all ahead of it.
            let is_done = loop {
                // As in the first pass. Only such a packet is left over from an earlier one.
                let next = batch.packets().get(own).map_or(Some(u64::MAX), |packet| packet.seq.0.checked_sub(first));
                let Some(next) = next else { break false };
                while let Some(record) = records.get(at)
                    && record.seq.0 < next
                {
                    let seq = Seq(record.seq.0 + first);
                    *position = seq;
                    let ticket = ticket_of(record, seq, at, true);
                    if FOLDS
                        && let [_, one, _, third, ..] = &records[at..]
                        && third.seq.0 < next
                        && one.hash == record.hash
                        && let alike = alike(&records[at..], next)
                        && alike > 1
                    {
                        let again =
                            records[at..][1..alike].iter().map(|one| (Seq(one.seq.0 + first), one.time + later));
                        let lane = Lane { meta: &record.meta, ticket: &ticket };
                        lane.spill_to_memory(|lane| catch_up(place, nf, lane, again, position));
                        at += alike;
                        continue;
                    }
                    place.step(
                        nf,
                        Lane { meta: &record.meta, ticket: &ticket },
                        #[inline(always)]
                        |_| (),
                    );
                    at += 1;
                }
                let Some(record) = records.get(at) else { break true };
                if record.seq.0 > next {
                    break false;
                }
                let seq = Seq(record.seq.0 + first);
                *position = seq;
                let ticket = ticket_of(record, seq, at, false);
                place.step(
                    nf,
                    Lane { meta: &record.meta, ticket: &ticket },
                    #[inline(always)]
                    |verdict| settle(nf, sides, scratch, counters, batch, own, verdict),
                );
                at += 1;
                own += 1;
            };
            if is_done {
                break;
            }
            self.pass_over(batch, own);
            (own, passed) = (own + 1, passed + 1);
        }
        self.place.rest();
        // All but those of its own packets.
        self.counters.replayed += (records.len() + passed + before - own) as u64;
        own
    }

    /// Decides the undecided packets ahead of the one that the function panicked at. There are three kinds: packets that were left for
    /// later, packets that waited for their burst to be looked at, and packets whose transaction the panic has undone.
    pub(crate) fn decide_left(&mut self, batch: &mut Batch) {
        let until = batch.packets().partition_point(|packet| packet.seq < self.position);
        let is_left = |packet: &Packet| packet.fate == Fate::Pending && !(P::MIXED && packet.bucket == Packet::SPRAYED);
        self.lanes.passed.clear();
        let mut at = 0;
        while at < until {
            while at < until && self.lanes.passed.len() < BURST {
                if is_left(&batch.packets()[at]) {
                    self.lanes.passed.push(at as u32);
                }
                at += 1;
            }
            self.look_at_passed(batch);
        }
    }

    /// Decides the packets ahead of the `until`th that were passed over: by the records that this core is handed of them, if the log has
    /// any, and else by looking at them.
    fn decide_passed(&mut self, batch: &mut Batch, until: usize, log: &mut Log<'_, N::Meta>) {
        if !P::MIXED {
            if !self.lanes.passed.is_empty() {
                self.look_at_passed(batch);
            }
            return;
        }
        if replace(&mut self.lanes.left, 0) == 0 {
            self.lanes.decided = until;
            return;
        }
        while self.lanes.decided < until {
            if log.has_owned() {
                self.step_owned(batch, until, log);
                self.look_at_passed(batch);
            } else {
                let end = until.min(self.lanes.decided + BURST);
                let begin = replace(&mut self.lanes.decided, end);
                self.intake_burst(batch, begin..end);
                self.flush(batch);
            }
        }
    }

    /// Leaves a packet without a record for later: it has no part in the order of those with one.
    #[inline]
    fn pass_over(&mut self, batch: &mut Batch, index: usize) {
        if P::MIXED {
            self.lanes.left += 1;
            return;
        }
        if let Some(header) = batch.bytes(index).first() {
            prefetch::closest(header);
        }
        self.lanes.passed.push(index as u32);
        if self.lanes.passed.len() == BURST {
            self.look_at_passed(batch);
        }
    }

    /// Decides the packets that were passed over and have no record at all.
    #[inline(never)]
    fn look_at_passed(&mut self, batch: &mut Batch) {
        let Self { nf, by_ports, seed, place, lanes, counters, position, scratch, sides, .. } = self;
        let sides = *sides;
        let intake = Intake { nf: &**nf, by_ports: *by_ports, seed: *seed, place: &*place };
        let Lanes { len, waiting, settled, passed, .. } = &mut **lanes;
        *len = 0;
        for index in passed.drain(..) {
            let index = index as usize;
            let (packet, bytes) = batch.packet(index);
            *position = packet.seq;
            if intake.admit(&mut waiting[*len], settled, packet, bytes, index) {
                *len += 1;
            } else {
                counters.count_unread(packet);
                settle(intake.nf, sides, scratch, counters, batch, index, settled);
            }
        }
        if *len > 0 {
            self.flush(batch);
        }
    }

    /// Takes the steps of a burst of the packets ahead of the `until`th that this core alone takes the steps of and is handed the records
    /// of. Those without a record, which take no step, are passed over.
    #[inline(never)]
    fn step_owned(&mut self, batch: &mut Batch, until: usize, log: &mut Log<'_, N::Meta>) {
        let Self { nf, place, lanes, counters, position, scratch, sides, .. } = self;
        let sides = *sides;
        let nf = &**nf;
        let Lanes { passed, decided, .. } = &mut **lanes;
        let packets = &batch.packets()[..until];
        let mut at = *decided;
        let is_replicated = |packet: &Packet| packet.bucket == Packet::SPRAYED;
        at += packets[at..].iter().take_while(|packet| is_replicated(packet)).count();
        let Some(next) = packets.get(at) else {
            *decided = at;
            return;
        };
        let ask = |record: &OwnedRecord<N::Meta>| {
            place.prefetch(nf, &record.meta, record.hash, record.bucket);
            prefetch_ahead(record);
        };
        let (owned, first) = log.owned(next.seq, BURST, ask);
        let end = log.owned_end();
        let mut indices = [0; BURST];
        let mut count = 0;
        while let Some(packet) = packets.get(at)
            && count < BURST
        {
            if !is_replicated(packet) {
                match owned.get(count) {
                    Some(record) if record.seq.0 + first == packet.seq.0 => {
                        indices[count] = at as u32;
                        count += 1;
                    }
                    // A packet never came.
                    Some(record) if record.seq.0 + first < packet.seq.0 => break,
                    _ if packet.seq >= end || passed.len() == BURST => break,
                    _ => passed.push(at as u32),
                }
            }
            at += 1;
        }
        *decided = at;
        log.took_owned(count);
        let (owned, indices) = (&owned[..count], &indices[..count]);
        let mut hints = [Hint::NOWHERE; BURST];
        for (record, hint) in owned.iter().zip(&mut hints) {
            *hint = place.prefetch_entry(nf, &record.meta, record.hash, record.bucket);
        }
        for ((record, index), hint) in owned.iter().zip(indices).zip(hints) {
            let index = *index as usize;
            let Packet { seq, time: now, .. } = batch.packets()[index];
            *position = seq;
            let ticket = Ticket { hash: record.hash, seq, now, hint, bucket: record.bucket, replayed: false };
            place.step(
                nf,
                Lane { meta: &record.meta, ticket: &ticket },
                #[inline(always)]
                |verdict| settle(nf, sides, scratch, counters, batch, index, verdict),
            );
        }
        place.rest();
    }

    /// Takes the steps that wait. Each stage is a loop of its own: its iterations are short and independent, so that the
    /// processor has several of them under way at once.
    #[inline(never)]
    fn flush(&mut self, batch: &mut Batch) {
        let Self { nf, place, lanes, counters, position, scratch, sides, .. } = self;
        let sides = *sides;
        let nf = &**nf;
        let Lanes { len, waiting, .. } = &mut **lanes;
        let waiting = &mut waiting[..*len];
        for lane in waiting.iter_mut() {
            lane.ticket.hint = place.prefetch_entry(nf, lane.meta(), lane.ticket.hash, lane.ticket.bucket);
        }
        if P::BATCHES && !N::Flow::STORED {
            let waiting = &*waiting;
            let lane = |at: usize| {
                *position = waiting[at].ticket.seq;
                waiting[at].lane()
            };
            place.steps(nf, waiting.len(), lane, |at, verdict| {
                settle(nf, sides, scratch, counters, batch, waiting[at].index as usize, verdict);
            });
            *len = 0;
            return;
        }
        for waiting in waiting.iter() {
            *position = waiting.ticket.seq;
            place.step(
                nf,
                waiting.lane(),
                #[inline(always)]
                |verdict| settle(nf, sides, scratch, counters, batch, waiting.index as usize, verdict),
            );
        }
        place.rest();
        *len = 0;
    }
}

/// Parses and hashes packets, and prefetches for their steps.
struct Intake<'a, N, P> {
    nf: &'a N,
    by_ports: bool,
    seed: u64,
    place: &'a P,
}

impl<N: NetworkFunction, P: Placement<N>> Intake<'_, N, P> {
    /// Fills the lane for a packet that takes a step. Any other leaves its verdict in `settled`.
    #[inline(always)]
    fn admit(
        &self,
        lane: &mut Waiting<N::Meta>,
        settled: &mut Verdict,
        packet: &Packet,
        bytes: &[u8],
        index: usize,
    ) -> bool {
        let Packet { seq, time, bucket, .. } = *packet;
        if !classify(self.nf, self.by_ports, packet, bytes, &mut lane.meta, settled) {
            return false;
        }
        let hash = hash_of::<N>(&lane.meta().key(), self.seed);
        if N::Flow::STORED {
            lane.ticket.hash = hash;
        }
        self.place.prefetch(self.nf, lane.meta(), hash, bucket);
        lane.ticket.bucket = bucket;
        lane.ticket.seq = seq;
        lane.ticket.now = time;
        lane.ticket.replayed = false;
        lane.index = index as u32;
        true
    }
}

/// Takes down where the state of each record is likely to be; where it `FOLDS`, records of one packet set in a row are looked up once. With
/// each, a later record is asked for.
#[inline(always)]
fn hint<M, const FOLDS: bool>(
    hints: &mut [Hint; BURST],
    records: &[Record<M>],
    mut look_up: impl FnMut(&M, u64) -> Hint,
) {
    assert!(records.len() <= BURST, "a stretch is no longer than a burst");
    let mut last = None;
    for (at, record) in records.iter().enumerate() {
        let hint = match last {
            Some((hash, hint)) if FOLDS && hash == record.hash => hint,
            _ => look_up(&record.meta, record.hash),
        };
        hints[at] = hint;
        prefetch_ahead(record);
        last = Some((record.hash, hint));
    }
}

/// Whether these look like records of one packet set, in which there are runs to be looked for. In others the look costs more than the
/// few that it finds save.
#[inline(always)]
fn has_runs<M>(records: &[Record<M>]) -> bool {
    let [first, .., last] = records else { return false };
    let is_like = |at: usize| records[at].hash == first.hash;
    last.hash == first.hash && is_like(records.len() / 4) && is_like(records.len() / 3) && is_like(records.len() / 2)
}

/// Whether a core's own packets leave room for runs of four between them.
#[inline(always)]
fn are_apart(own: &[Packet]) -> bool {
    own.array_windows().next().is_none_or(|[one, next]| next.seq.0 - one.seq.0 > 4)
}

/// How many records from the first on contribute the same, ahead of packet `next`.
#[inline(never)]
fn alike<M: PartialEq>(records: &[Record<M>], next: u64) -> usize {
    let Some((first, others)) = records.split_first() else { return 0 };
    let is_like = |other: &&Record<M>| other.hash == first.hash && other.meta == first.meta && other.seq.0 < next;
    1 + others.iter().take_while(is_like).count()
}

/// Takes a record's step and those of the records behind it that contribute the same: at once if that is possible, else one by
/// one. A call, so that nothing of it weighs on the loops around it.
#[inline(never)]
fn catch_up<N: NetworkFunction, P: Placement<N>>(
    place: &mut P,
    nf: &N,
    lane: Lane<'_, N::Meta>,
    again: impl DoubleEndedIterator<Item = (Seq, Nanos)> + ExactSizeIterator + Clone,
    position: &mut Seq,
) {
    let Some((seq, now)) = again.clone().next_back() else { return };
    let last = Ticket { seq, now, ..*lane.ticket };
    if place.fold(nf, Lane { ticket: &last, ..lane }, 1 + again.len() as u32, lane.now) {
        return;
    }
    place.step(nf, lane, |_| ());
    for (seq, now) in again {
        *position = seq;
        let ticket = Ticket { seq, now, ..*lane.ticket };
        place.step(nf, Lane { ticket: &ticket, ..lane }, |_| ());
    }
}
