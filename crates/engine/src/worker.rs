//! The one worker loop: look at all, hash all, prefetch all, step all.

use std::sync::Arc;

use flow::Hint;
use nf::{Flow, Meta, NetworkFunction, PortId, Reason, Reply, Verdict};
use packet::{LinkType, Nanos, Rewrite, Seq};
use port::{Batch, Fate, Packet};

use crate::classify::classify;
use crate::counters::Counters;
use crate::error::FailedPacket;
use crate::history::{Event, Log, Stretch};
use crate::moves::Moves;
use crate::placement::{Lane, Placement, hash_of};

/// How many steps are looked ahead: enough for the memory's latencies to overlap, few enough for the first-level cache.
pub const BURST: usize = 32;

/// One core's share of the work, over its placement of the state. Aligned so that no two workers share a line: each writes
/// its own with every packet.
#[repr(align(128))]
pub struct Worker<N: NetworkFunction, P> {
    nf: Arc<N>,
    by_ports: bool,
    place: P,
    /// What hashes are keyed by.
    seed: u64,
    counters: Counters,
    lanes: Box<Lanes<N::Meta>>,
    /// The packet whose history record comes next.
    next: Seq,
    /// The packet that the function is at, for the report of a panic.
    position: Seq,
}

/// The steps that wait for their burst to be full. Aligned for the same reason as their worker.
#[repr(align(128))]
struct Lanes<M> {
    len: usize,
    waiting: [Waiting<M>; BURST],
    /// The verdict of a packet that takes no step.
    settled: Verdict,
}

/// A step that waits.
#[derive(Clone, Copy)]
struct Waiting<M> {
    /// What its packet contributes: built here and never moved.
    meta: Option<M>,
    hash: u64,
    hint: Hint,
    bucket: u16,
    /// The packet's place in the batch; [`NOT_HERE`] for a record of the history, which has no packet here.
    index: u32,
    seq: Seq,
    now: Nanos,
}

const NOT_HERE: u32 = u32::MAX;

impl<M> Waiting<M> {
    const NONE: Self =
        Self { meta: None, hash: 0, hint: Hint::NOWHERE, bucket: 0, index: NOT_HERE, seq: Seq(0), now: Nanos(0) };

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
            place,
            counters: Counters::default(),
            lanes: Box::new(Lanes { len: 0, waiting: [Waiting::NONE; BURST], settled: Verdict::forward() }),
            next: Seq(0),
            position: Seq(0),
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
        for index in 0..batch.len() {
            self.intake(batch, index);
        }
        self.flush(batch);
    }

    /// Decides every packet of the batch, after replaying from `log` what came ahead of it and went to other cores; then
    /// replays on to `end`, the number behind the last record to read.
    ///
    /// # Panics
    /// When another core has failed that this one would have had to wait for.
    #[inline(never)]
    pub fn process_with(&mut self, batch: &mut Batch, log: &mut Log<'_, N::Meta>, end: Seq) {
        self.counters.receive(batch);
        for index in 0..batch.len() {
            let seq = batch.packets()[index].seq;
            self.replay(batch, log, seq);
            log.skip(seq);
            self.intake(batch, index);
        }
        self.replay(batch, log, end);
        self.flush(batch);
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
    pub fn fail(&self) {
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

    #[inline(always)]
    fn intake(&mut self, batch: &mut Batch, index: usize) {
        let (packet, bytes) = batch.packet(index);
        let Packet { seq, time, bucket, .. } = *packet;
        self.position = seq;
        let Lanes { len, waiting, settled } = &mut *self.lanes;
        let lane = &mut waiting[*len];
        if !classify(&*self.nf, self.by_ports, packet, bytes, &mut lane.meta, settled) {
            self.counters.unread += u64::from(matches!(packet.link, LinkType::Other(_)));
            return settle(&mut self.counters, batch, index, settled);
        }
        if N::Flow::STORED {
            lane.hash = hash_of::<N>(&lane.meta().key(), self.seed);
        }
        lane.bucket = bucket;
        lane.index = index as u32;
        lane.seq = seq;
        lane.now = time;
        *len += 1;
        if *len == BURST {
            self.flush(batch);
        }
    }

    #[inline]
    fn replay(&mut self, batch: &mut Batch, log: &mut Log<'_, N::Meta>, until: Seq) {
        while let Some(event) = log.before(until, BURST - self.lanes.len) {
            let Stretch { records, first, later } = match event {
                Event::Records(stretch) => stretch,
                Event::Moves(moves) => {
                    self.flush(batch);
                    assert!(self.hand_over(&moves), "another core has failed");
                    continue;
                }
            };
            let Lanes { len, waiting, .. } = &mut *self.lanes;
            for (lane, record) in waiting[*len..].iter_mut().zip(records) {
                lane.meta = Some(record.meta);
                lane.hash = record.hash;
                lane.bucket = Packet::SPRAYED;
                lane.index = NOT_HERE;
                lane.seq = Seq(record.seq.0 + first);
                lane.now = record.time + later;
            }
            *len += records.len();
            if *len == BURST {
                self.flush(batch);
            }
        }
    }

    /// Takes the steps that wait. Each stage is a loop of its own: its iterations are short and independent, so that the
    /// processor has several of them under way at once.
    #[inline(never)]
    fn flush(&mut self, batch: &mut Batch) {
        let Self { nf, place, lanes, counters, position, .. } = self;
        let nf = &**nf;
        let Lanes { len, waiting, .. } = &mut **lanes;
        let waiting = &mut waiting[..*len];
        if N::Flow::STORED {
            for lane in waiting.iter() {
                place.prefetch(nf, lane.meta(), lane.hash, lane.bucket);
            }
        }
        for lane in waiting.iter_mut() {
            lane.hint = place.prefetch_entry(nf, lane.meta(), lane.hash, lane.bucket);
        }
        let mut next = 0;
        while let Some(lane) = waiting.get(next) {
            next += 1;
            let Waiting { hash, hint, bucket, seq, now, index, .. } = *lane;
            *position = seq;
            if N::FOLDS && index == NOT_HERE {
                let count = run(&waiting[next - 1..]);
                let last = &waiting[next + count - 2];
                let at = Lane { meta: last.meta(), hash, bucket, hint, seq: last.seq, now: last.now };
                if count > 1 && place.fold(nf, &at, count as u32, now) {
                    counters.replayed += count as u64;
                    next += count - 1;
                    continue;
                }
            }
            let lane = Lane { meta: lane.meta(), hash, bucket, hint, seq, now };
            place.step(
                nf,
                &lane,
                #[inline(always)]
                |verdict| match index {
                    NOT_HERE => counters.replayed += 1,
                    index => settle(counters, batch, index as usize, verdict),
                },
            );
        }
        *len = 0;
    }
}

/// How many records at the beginning contribute the same.
#[inline]
fn run<M: PartialEq>(waiting: &[Waiting<M>]) -> usize {
    let [first, rest @ ..] = waiting else { return 0 };
    let same = |other: &&Waiting<M>| other.hash == first.hash && other.index == NOT_HERE && other.meta == first.meta;
    1 + rest.iter().take_while(same).count()
}

/// Counts a verdict and carries it out on the packet. Always inlined: a verdict that crosses a call goes over memory.
#[inline(always)]
fn settle(counters: &mut Counters, batch: &mut Batch, index: usize, verdict: &Verdict) {
    let fate = match verdict {
        Verdict::Forward(port) => {
            counters.count(verdict);
            Fate::Transmit(port.0)
        }
        Verdict::Rewrite { port, rewrite } => {
            apply(batch, index, rewrite);
            counters.count(verdict);
            Fate::Transmit(port.0)
        }
        Verdict::Drop(_) => {
            counters.count(verdict);
            Fate::Drop
        }
        Verdict::Reply(reply) => answer(counters, batch, index, *reply),
    };
    batch.packets_mut()[index].fate = fate;
}

/// Rewrites the packet. Its headers are parsed anew: keeping them for the few verdicts that rewrite costs all packets more.
#[inline(never)]
fn apply(batch: &mut Batch, index: usize, rewrite: &Rewrite) {
    let Packet { link, wire_len, interface, .. } = batch.packets()[index];
    rewrite.apply_to_frame(link, batch.bytes_mut(index), wire_len, interface);
}

/// Turns the packet into its answer. What can't be answered (a reset, a segment cut short) is dropped and counted so.
#[cold]
fn answer(counters: &mut Counters, batch: &mut Batch, index: usize, reply: Reply) -> Fate {
    let Packet { link, wire_len, interface, .. } = batch.packets()[index];
    let bytes = batch.bytes_mut(index);
    let len = match (reply, packet::parse(link, bytes, wire_len, interface)) {
        (Reply::TcpReset, Ok(headers)) => packet::tcp_reset(bytes, &headers),
        (Reply::TcpReset, Err(_)) => None,
    };
    let Some(len) = len else {
        counters.count(&Verdict::Drop(Reason::UNANSWERABLE));
        return Fate::Drop;
    };
    let packet = &mut batch.packets_mut()[index];
    packet.len = len as u32;
    packet.wire_len = len as u32;
    counters.replied += 1;
    Fate::Transmit(PortId::BACK.0)
}
