//! Replay: a core takes the steps of history records, with its own packets in between.

use std::mem::replace;

use flow::Hint;
use locality::prefetch;
use nf::{NetworkFunction, Speed};
use packet::{Nanos, Seq};
use port::{Batch, Fate, Packet};

use crate::history::log::{Log, OwnedRecord, Record, Stretch, prefetch_ahead};
use crate::placement::{BURST, Lane, Placement, Ticket};
use crate::work::intake::{Intake, Lanes};
use crate::work::worker::Worker;

/// Packets of the batch that the log's order doesn't concern. They are decided later.
pub(crate) struct Deferred {
    /// Packets without a record, by index in the batch, if the log also has this core's own packets.
    packets: Vec<u32>,
    /// Under `hybrid`: how many packets that only this core steps are deferred.
    count: usize,
    /// No packet before this index in the batch is deferred.
    done_until: usize,
}

impl Deferred {
    pub(crate) fn new() -> Self {
        Self { packets: Vec::with_capacity(BURST), count: 0, done_until: 0 }
    }

    /// Starts a log.
    const fn begin(&mut self) {
        (self.count, self.done_until) = (0, 0);
    }
}

impl<N: NetworkFunction, P: Placement<N>> Worker<N, P> {
    /// Replays a log that also has records of this core's own packets, so they need not be parsed. A packet without a record takes no step,
    /// or a step that doesn't depend on the records; such packets are deferred and decided together.
    #[inline(never)]
    pub(super) fn replay(&mut self, batch: &mut Batch, log: &mut Log<'_, N::Meta>, end: Seq) {
        let end = batch.packets().last().map_or(end, |last| end.max(last.seq.next()));
        self.fits_l2 = self.place.fits_l2();
        self.deferred.begin();
        let mut own = 0;
        loop {
            let bound = log.bound(end);
            loop {
                let Self { nf, place, fits_l2, .. } = &*self;
                let ask = |record: &Record<N::Meta>| place.prefetch(nf, &record.meta, record.hash, Packet::SPRAYED);
                let stretch = if *fits_l2 { log.stretch(bound, BURST, |_| ()) } else { log.stretch(bound, BURST, ask) };
                let Some(stretch) = stretch else { break };
                let folds = N::Speed::FOLDS && has_runs(stretch.records) && are_apart(&batch.packets()[own..]);
                own = if folds {
                    self.take::<true>(batch, own, stretch)
                } else {
                    self.take::<false>(batch, own, stretch)
                };
                if P::MIXED && self.deferred.count >= BURST {
                    self.decide_deferred(batch, own, log);
                }
            }
            let come = batch.packets()[own..].partition_point(|packet| packet.seq < bound);
            (own..own + come).for_each(|index| self.defer(batch, index));
            own += come;
            // The moves may take state of deferred packets from this core.
            self.decide_deferred(batch, own, log);
            match log.limit(end) {
                Err(moves) => assert!(self.hand_over(&moves), "another core has failed"),
                Ok(_) => break,
            }
        }
    }

    /// Takes the steps of consecutive records, some of which are of this core's packets, from index `own` on. Returns the index of the next
    /// own packet. If `FOLDS`, runs of equal records are folded.
    #[inline(never)]
    fn take<const FOLDS: bool>(&mut self, batch: &mut Batch, mut own: usize, stretch: Stretch<'_, N::Meta>) -> usize {
        let Stretch { records, first, later } = stretch;
        let mut hints = [Hint::NOWHERE; BURST];
        let Self { nf, place, fits_l2, .. } = &*self;
        let place = place.recorded();
        if *fits_l2 {
            hint::<_, FOLDS>(&mut hints, records, |meta, hash| place.locate(nf, meta, hash, Packet::SPRAYED));
        } else {
            hint::<_, FOLDS>(&mut hints, records, |meta, hash| place.prefetch_entry(nf, meta, hash, Packet::SPRAYED));
        }
        let hints = &hints[..records.len()];
        let (mut at, before) = (0, own);
        let mut without_record = 0;
        loop {
            let Self { nf, place, emitter, position, .. } = self;
            let (nf, place) = (&**nf, place.recorded_mut());
            let ticket_of = |record: &Record<N::Meta>, seq: Seq, at: usize, replayed: bool| Ticket {
                hash: record.hash,
                seq,
                now: record.time + later,
                hint: hints[at],
                bucket: Packet::SPRAYED,
                replayed,
            };
            // Runs until a packet without a record comes. The variables above are computed once for all records before it.
            let is_done = loop {
                // Numbers as in the first pass over the trace. `None` only for a packet that is left from an earlier pass.
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
                        let repeats =
                            records[at..][1..alike].iter().map(|one| (Seq(one.seq.0 + first), one.time + later));
                        let lane = Lane { meta: &record.meta, ticket: &ticket, frame: &[] };
                        lane.spill_to_memory(|lane| catch_up(place, nf, lane, repeats, position));
                        at += alike;
                        continue;
                    }
                    place.step(
                        nf,
                        Lane { meta: &record.meta, ticket: &ticket, frame: &[] },
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
                    Lane { meta: &record.meta, ticket: &ticket, frame: &[] },
                    #[inline(always)]
                    |verdict| emitter.decide(&mut batch.packets_mut()[own], own, verdict),
                );
                at += 1;
                own += 1;
            };
            if is_done {
                break;
            }
            self.defer(batch, own);
            (own, without_record) = (own + 1, without_record + 1);
        }
        self.place.rest();
        self.emit(batch);
        // All records except those of own packets.
        self.emitter.counters.replayed += (records.len() + without_record + before - own) as u64;
        own
    }

    /// Decides the deferred packets before index `until`: by their own records, if the log has any, or else by parsing them.
    fn decide_deferred(&mut self, batch: &mut Batch, until: usize, log: &mut Log<'_, N::Meta>) {
        if !P::MIXED {
            if !self.deferred.packets.is_empty() {
                self.intake_deferred(batch);
            }
            return;
        }
        if replace(&mut self.deferred.count, 0) == 0 {
            self.deferred.done_until = until;
            return;
        }
        while self.deferred.done_until < until {
            if log.has_owned() {
                self.step_owned(batch, until, log);
                self.intake_deferred(batch);
            } else {
                let end = until.min(self.deferred.done_until + BURST);
                let begin = replace(&mut self.deferred.done_until, end);
                self.intake_burst(batch, begin..end);
                self.flush(batch);
            }
        }
    }

    /// Defers a packet without a record: the order of the records doesn't concern it.
    #[inline]
    fn defer(&mut self, batch: &mut Batch, index: usize) {
        if P::MIXED {
            self.deferred.count += 1;
            return;
        }
        if let Some(header) = batch.bytes(index).first() {
            prefetch::closest(header);
        }
        self.deferred.packets.push(index as u32);
        if self.deferred.packets.len() == BURST {
            self.intake_deferred(batch);
        }
    }

    /// Decides the deferred packets that have no record.
    #[inline(never)]
    pub(super) fn intake_deferred(&mut self, batch: &mut Batch) {
        let Self { nf, by_ports, seed, place, lanes, emitter, deferred, position, .. } = self;
        let intake = Intake { nf: &**nf, by_ports: *by_ports, seed: *seed, place: &*place };
        let Lanes { len, waiting, verdict } = &mut **lanes;
        *len = 0;
        for index in deferred.packets.drain(..) {
            let index = index as usize;
            let (packet, bytes) = batch.packet(index);
            *position = packet.seq;
            if intake.admit(&mut waiting[*len], verdict, packet, bytes, index) {
                *len += 1;
            } else {
                emitter.counters.count_unread(packet);
                emitter.decide(&mut batch.packets_mut()[index], index, verdict);
            }
        }
        self.flush(batch);
    }

    /// Takes the steps of a burst of packets before index `until`, by the records that only this core steps (`hybrid`). Packets without a
    /// record take no step and are deferred.
    #[inline(never)]
    fn step_owned(&mut self, batch: &mut Batch, until: usize, log: &mut Log<'_, N::Meta>) {
        let Self { nf, place, deferred, emitter, position, .. } = self;
        let nf = &**nf;
        let Deferred { packets: deferred, done_until, .. } = deferred;
        let packets = &batch.packets()[..until];
        let mut at = *done_until;
        let is_replicated = |packet: &Packet| packet.bucket == Packet::SPRAYED;
        at += packets[at..].iter().take_while(|packet| is_replicated(packet)).count();
        let Some(next) = packets.get(at) else {
            *done_until = at;
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
                    // The record's packet never came.
                    Some(record) if record.seq.0 + first < packet.seq.0 => break,
                    _ if packet.seq >= end || deferred.len() == BURST => break,
                    _ => deferred.push(at as u32),
                }
            }
            at += 1;
        }
        *done_until = at;
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
                Lane { meta: &record.meta, ticket: &ticket, frame: &[] },
                #[inline(always)]
                |verdict| emitter.decide(&mut batch.packets_mut()[index], index, verdict),
            );
        }
        place.rest();
        self.emit(batch);
    }

    /// Decides the undecided packets before the one at which the function panicked. There are four kinds: packets whose verdicts were not
    /// carried out yet, deferred packets, packets that were not taken in yet, and packets whose transaction the panic has undone.
    pub(crate) fn decide_unfinished(&mut self, batch: &mut Batch) {
        let until = batch.packets().partition_point(|packet| packet.seq < self.position);
        self.emit(batch);
        let is_unfinished =
            |packet: &Packet| packet.fate == Fate::Pending && !(P::MIXED && packet.bucket == Packet::SPRAYED);
        self.deferred.packets.clear();
        let mut at = 0;
        while at < until {
            while at < until && self.deferred.packets.len() < BURST {
                if is_unfinished(&batch.packets()[at]) {
                    self.deferred.packets.push(at as u32);
                }
                at += 1;
            }
            self.intake_deferred(batch);
        }
    }
}

/// Writes the hint of each record. If `FOLDS`, successive records with one hash are looked up once. Also prefetches a later record for
/// each.
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

/// Guesses from a few records whether all are of one packet set. Only then is it worth looking for runs.
#[inline(always)]
fn has_runs<M>(records: &[Record<M>]) -> bool {
    let [first, .., last] = records else { return false };
    let is_like = |at: usize| records[at].hash == first.hash;
    last.hash == first.hash && is_like(records.len() / 4) && is_like(records.len() / 3) && is_like(records.len() / 2)
}

/// True if a core's own packets leave room for runs of four records between them.
#[inline(always)]
fn are_apart(own: &[Packet]) -> bool {
    own.array_windows().next().is_none_or(|[one, next]| next.seq.0 - one.seq.0 > 4)
}

/// The number of equal records at the start, before packet `next`.
#[inline(never)]
fn alike<M: PartialEq>(records: &[Record<M>], next: u64) -> usize {
    let Some((first, others)) = records.split_first() else { return 0 };
    let is_like = |other: &&Record<M>| other.hash == first.hash && other.meta == first.meta && other.seq.0 < next;
    1 + others.iter().take_while(is_like).count()
}

/// Takes the steps of a record and its repeats, at once if possible, else one by one. Not inlined, to keep the calling loop small.
#[inline(never)]
fn catch_up<N: NetworkFunction, P: Placement<N>>(
    place: &mut P,
    nf: &N,
    lane: Lane<'_, N::Meta>,
    repeats: impl DoubleEndedIterator<Item = (Seq, Nanos)> + ExactSizeIterator + Clone,
    position: &mut Seq,
) {
    let Some((seq, now)) = repeats.clone().next_back() else { return };
    let last = Ticket { seq, now, ..*lane.ticket };
    if place.fold(nf, Lane { ticket: &last, ..lane }, 1 + repeats.len() as u32, lane.now) {
        return;
    }
    place.step(nf, lane, |_| ());
    for (seq, now) in repeats {
        *position = seq;
        let ticket = Ticket { seq, now, ..*lane.ticket };
        place.step(nf, Lane { ticket: &ticket, ..lane }, |_| ());
    }
}
