//! The worker loop. It handles bursts in three stages: intake (parse, hash, prefetch), step (in order), emit (carry out the verdicts).
//! Between the last two stages, verdicts are plain values.

use std::ops::Range;
use std::sync::Arc;

use nf::{Flow, NetworkFunction, Reason, Verdict};
use packet::{Nanos, Seq};
use port::{Batch, BatchMemory, Packet, Sides};

use crate::counters::Counters;
use crate::error::FailedPacket;
use crate::history::log::Log;
use crate::history::moves::Moves;
use crate::placement::{BURST, Placement};
use crate::work::behind_card::BehindCard;
use crate::work::emit::Emitter;
use crate::work::intake::{Intake, Lanes};
use crate::work::replay::Deferred;

/// One core's worker, over its placement of the state. Aligned so that two workers never share a cache line: each writes to itself with
/// every packet.
#[repr(align(128))]
pub struct Worker<N: NetworkFunction, P> {
    pub(super) nf: Arc<N>,
    pub(super) by_ports: bool,
    pub(super) place: P,
    /// [`Placement::fits_l2`], as of the last log.
    pub(super) fits_l2: bool,
    /// The hash seed.
    pub(super) seed: u64,
    pub(super) emitter: Emitter,
    pub(super) lanes: Box<Lanes<N::Meta>>,
    pub(super) deferred: Deferred,
    /// The card ahead, if there is one.
    pub(super) behind_card: Option<Box<BehindCard>>,
    /// The next packet whose history record is read.
    next: Seq,
    /// The packet that the function is processing; a panic report names it.
    pub(super) position: Seq,
}

impl<N: NetworkFunction, P: Placement<N>> Worker<N, P> {
    /// A worker that has processed nothing yet.
    #[must_use]
    pub fn new(nf: Arc<N>, place: P) -> Self {
        Self {
            by_ports: nf.drops_fragments(),
            nf,
            seed: place.seed(),
            fits_l2: place.fits_l2(),
            place,
            emitter: Emitter::new::<N>(),
            lanes: Box::new(Lanes::new()),
            deferred: Deferred::new(),
            behind_card: None,
            next: Seq(0),
            position: Seq(0),
        }
    }

    /// Gives all workers of an engine the function `nf`, which succeeds `old`.
    pub(crate) fn succeed(workers: Vec<Self>, nf: &Arc<N>, old: &N) -> Vec<Self> {
        let part = |Self { place, fits_l2, seed, emitter, lanes, deferred, behind_card, next, position, .. }: Self| {
            (place, (fits_l2, seed, emitter, lanes, deferred, behind_card, next, position))
        };
        let (places, parts): (Vec<P>, Vec<_>) = workers.into_iter().map(part).unzip();
        let by_ports = nf.drops_fragments();
        let whole = |(place, (fits_l2, seed, emitter, lanes, deferred, behind_card, next, position))| Self {
            nf: Arc::clone(nf),
            by_ports,
            place,
            fits_l2,
            seed,
            emitter,
            lanes,
            deferred,
            behind_card,
            next,
            position,
        };
        P::succeed(places, nf, old).into_iter().zip(parts).map(whole).collect()
    }

    /// The state of this core.
    pub const fn place(&self) -> &P {
        &self.place
    }

    pub(crate) const fn place_mut(&mut self) -> &mut P {
        &mut self.place
    }

    /// The core's counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { flows: self.place.flow_counters(), ..self.emitter.counters.clone() }
    }

    /// Sets the port's interfaces. From now on, "across" and "back" in a verdict become an interface number.
    pub const fn face(&mut self, sides: Sides) {
        self.emitter.sides = Some(sides);
    }

    /// The core's packet counters so far. Flow counters stay 0 here, because tables would have to be summed up for them.
    pub const fn tally(&self) -> &Counters {
        &self.emitter.counters
    }

    /// Ends flows whose deadline has passed by `now`, the port's time: a bounded number for each call. Returns true if there are more.
    /// `last` is the last packet so far. Replicas must get the same calls behind the same packet.
    pub fn age(&mut self, now: Nanos, last: Seq) -> bool {
        if self.behind_card.is_some() {
            self.recall_ended(now);
        }
        self.place.age(&self.nf, now, last)
    }

    /// The packet that the function processed last.
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
        self.emitter.counters.receive(batch);
        self.decide(batch);
    }

    #[inline]
    fn decide(&mut self, batch: &mut Batch) {
        if let Some(behind) = self.behind_card.take() {
            return self.decide_behind(behind, batch);
        }
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

    /// Replays the records of `log` that come before each packet and decides the packets of the batch, in order. Then replays on to `end`,
    /// the number after the last record to read.
    ///
    /// # Panics
    /// If another core has failed that this core would have to wait for. If there is something to replay under a placement that [doesn't
    /// replay](Placement::REPLAYS).
    #[inline(never)]
    pub fn process_with(&mut self, batch: &mut Batch, log: &mut Log<'_, N::Meta>, end: Seq) {
        self.emitter.counters.receive(batch);
        if log.is_silent_until(end) {
            self.decide(batch);
        } else {
            assert!(P::REPLAYS, "this state is no replica");
            self.replay(batch, log, end);
        }
        self.next = end;
    }

    /// Releases the state that leaves this core: [`Placement::release`]. All earlier packets must have been processed.
    pub fn release(&mut self, moves: &Moves<'_, N::Meta>) {
        self.place.release(moves);
    }

    /// True if all state that comes to this core was released.
    #[must_use]
    pub fn is_ready(&self, moves: &Moves<'_, N::Meta>) -> bool {
        self.place.is_ready(moves)
    }

    /// Takes the state that comes to this core. Other cores have [released](Self::release) it.
    pub fn acquire(&mut self, moves: &Moves<'_, N::Meta>) {
        self.place.acquire(moves);
    }

    /// Releases the state that leaves, waits for the state that comes, and takes it. Returns false if another core has failed.
    #[must_use]
    pub fn hand_over(&mut self, moves: &Moves<'_, N::Meta>) -> bool {
        self.place.release(moves);
        let came = self.place.wait(moves);
        if came {
            self.place.acquire(moves);
        }
        came
    }

    /// This core has failed: the others must not wait for it.
    pub fn fail(&mut self) {
        self.place.fail();
    }

    /// Counts a packet as dropped that never reached this core, or came too late.
    pub(crate) fn drop_unseen(&mut self, packet: &Packet, reason: Reason) {
        self.emitter.counters.received += 1;
        self.emitter.counters.received_bytes += u64::from(packet.wire_len);
        self.emitter.counters.count(&Verdict::Drop(reason));
    }

    /// Copies the packet that the function was processing. An undecided packet is unchanged.
    #[must_use]
    pub fn failed_packet(&self, batch: &Batch) -> Option<FailedPacket> {
        let index = batch.packets().iter().position(|packet| packet.seq == self.position)?;
        let packet = batch.packets()[index];
        let bytes = batch.bytes(index).to_vec();
        Some(FailedPacket { time: packet.time, link: packet.link, wire_len: packet.wire_len, bytes })
    }

    /// Takes in packets of the batch: fills lanes for those that take a step, and decides the others. No lane is in use before, and there
    /// is room for all.
    #[inline(always)]
    pub(super) fn intake_burst(&mut self, batch: &mut Batch, range: Range<usize>) {
        let Self { nf, by_ports, seed, place, lanes, emitter, position, .. } = self;
        let intake = Intake { nf: &**nf, by_ports: *by_ports, seed: *seed, place: &*place };
        let Lanes { len, waiting, verdict } = &mut **lanes;
        let mut count = 0;
        for (index, (packet, bytes)) in range.clone().zip(batch.frames(range)) {
            if P::MIXED && packet.bucket == Packet::SPRAYED {
                continue;
            }
            *position = packet.seq;
            if intake.admit(&mut waiting[count], verdict, packet, bytes, index) {
                count += 1;
            } else {
                emitter.counters.count_unread(packet);
                emitter.decide(packet, index, verdict);
            }
        }
        *len = count;
    }

    /// Takes the steps of the burst and emits it. Each stage is a loop of its own with short, independent iterations, which the processor
    /// can overlap.
    #[inline(never)]
    pub(super) fn flush(&mut self, batch: &mut Batch) {
        let (packets, memory) = batch.apart();
        self.step_burst(packets, memory);
        self.emit(batch);
    }

    #[inline(always)]
    fn step_burst(&mut self, packets: &mut [Packet], memory: BatchMemory<'_>) {
        let Self { nf, place, lanes, emitter, position, .. } = self;
        let nf = &**nf;
        let Lanes { len, waiting, .. } = &mut **lanes;
        let waiting = &mut waiting[..std::mem::take(len)];
        for lane in waiting.iter_mut() {
            lane.ticket.hint = place.prefetch_entry(nf, lane.meta(), lane.ticket.hash, lane.ticket.bucket);
        }
        if P::BATCHES && !N::Flow::STORED {
            let waiting = &*waiting;
            let lane = |at: usize| {
                *position = waiting[at].ticket.seq;
                waiting[at].lane(&[])
            };
            place.steps(nf, waiting.len(), lane, |at, verdict| {
                let index = waiting[at].index as usize;
                emitter.decide(&mut packets[index], index, verdict);
            });
            return;
        }
        for waiting in waiting.iter() {
            *position = waiting.ticket.seq;
            let index = waiting.index as usize;
            let frame = if N::READS_FRAMES { memory.bytes(&packets[index]) } else { &[] };
            place.step(
                nf,
                waiting.lane(frame),
                #[inline(always)]
                |verdict| emitter.decide(&mut packets[index], index, verdict),
            );
        }
        place.rest();
    }

    /// Carries out the verdicts.
    #[inline(always)]
    pub(super) fn emit(&mut self, batch: &mut Batch) {
        let Self { nf, emitter, position, .. } = self;
        emitter.emit(&**nf, batch, position);
    }
}
