//! The one worker loop: parse all, hash all, prefetch all, step all, settle all.

use std::sync::Arc;

use flow::Hint;
use nf::{Meta, NetworkFunction, PortId, Reason, Reply, Verdict};
use packet::{Headers, Malformed, Nanos, Seq};
use port::{Batch, Fate, Packet};

use crate::classify::{Class, classify};
use crate::counters::Counters;
use crate::error::FailedPacket;
use crate::history::{Log, Record};
use crate::placement::{Lane, Placement};

/// How many steps are looked ahead: enough for the memory's latencies to overlap, few enough for the first-level cache.
pub const BURST: usize = 32;

/// One core's share of the work, over its placement of the state. Aligned so that no two workers share a line: each writes
/// its own with every packet.
#[repr(align(128))]
pub struct Worker<N: NetworkFunction, P> {
    nf: Arc<N>,
    by_ports: bool,
    place: P,
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
    waiting: [Waiting; BURST],
    /// What the lanes' packets contribute, by lane: built here and never moved.
    metas: [Option<M>; BURST],
    /// What the lanes' frames were parsed to, by lane: likewise.
    parsed: [Result<Headers, Malformed>; BURST],
}

/// A step that waits.
#[derive(Clone, Copy, Default)]
struct Waiting {
    hash: u64,
    hint: Hint,
    seq: Seq,
    now: Nanos,
    /// The packet's place in the batch; `None` for a record of the history, which has no packet here.
    index: Option<u32>,
}

impl<N: NetworkFunction, P: Placement<N>> Worker<N, P> {
    /// A worker with nothing done yet.
    #[must_use]
    pub fn new(nf: Arc<N>, place: P) -> Self {
        Self {
            by_ports: nf.packet_set().has_ports(),
            nf,
            place,
            counters: Counters::default(),
            lanes: Box::new(Lanes {
                len: 0,
                waiting: [Waiting::default(); BURST],
                metas: [None; BURST],
                parsed: [Err(Malformed::LinkTruncated); BURST],
            }),
            next: Seq(0),
            position: Seq(0),
        }
    }

    /// The state that this core's steps go by.
    pub const fn place(&self) -> &P {
        &self.place
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
    pub fn process(&mut self, batch: &mut Batch) {
        for index in 0..batch.len() {
            self.intake(batch, index);
        }
        self.flush(batch);
    }

    /// Decides every packet of the batch, after replaying from `log` what came ahead of it and went to other cores; then
    /// replays on to `end`, the number behind the last record to read.
    pub fn process_with(&mut self, batch: &mut Batch, log: &mut Log<'_, N::Meta>, end: Seq) {
        for index in 0..batch.len() {
            let seq = batch.packets()[index].seq;
            self.replay(batch, log, seq);
            // The packet's own record: it is at hand itself.
            let _ = log.read();
            self.next = seq.next();
            self.intake(batch, index);
        }
        self.replay(batch, log, end);
        self.flush(batch);
    }

    /// Takes the packet that the function was at, unchanged as far as it is still undecided.
    #[must_use]
    pub fn failed_packet(&self, batch: &Batch) -> Option<FailedPacket> {
        let index = batch.packets().iter().position(|packet| packet.seq == self.position)?;
        let packet = batch.packets()[index];
        let bytes = batch.bytes(index).to_vec();
        Some(FailedPacket { time: packet.time, link: packet.link, wire_len: packet.wire_len, bytes })
    }

    #[inline]
    fn intake(&mut self, batch: &mut Batch, index: usize) {
        let (&Packet { seq, time, wire_len, interface, link, .. }, bytes) = batch.packet(index);
        self.position = seq;
        self.counters.received += 1;
        self.counters.received_bytes += u64::from(wire_len);
        let Lanes { len, metas, parsed, .. } = &mut *self.lanes;
        let parsed = &mut parsed[*len];
        packet::parse_into(parsed, link, bytes, wire_len, interface);
        match classify(&*self.nf, self.by_ports, parsed, &mut metas[*len]) {
            Class::Step => self.wait(batch, seq, time, Some(index as u32)),
            Class::Settled(verdict) => settle(&mut self.counters, batch, index, parsed, &verdict),
        }
    }

    #[inline]
    fn replay(&mut self, batch: &mut Batch, log: &mut Log<'_, N::Meta>, until: Seq) {
        while self.next < until {
            let seq = self.next;
            self.next = seq.next();
            let slot = &mut self.lanes.metas[self.lanes.len];
            let Record { time, meta } = log.read();
            *slot = meta;
            if slot.is_some() {
                self.wait(batch, seq, time, None);
            }
        }
    }

    /// Lets the step in the next lane's slot wait until the burst is full.
    #[inline]
    fn wait(&mut self, batch: &mut Batch, seq: Seq, now: Nanos, index: Option<u32>) {
        let Lanes { len, waiting, .. } = &mut *self.lanes;
        waiting[*len] = Waiting { hash: 0, hint: Hint::default(), seq, now, index };
        *len += 1;
        if *len == BURST {
            self.flush(batch);
        }
    }

    /// Takes the steps that wait. Each stage is a loop of its own: its iterations are short and independent, so that the
    /// processor has several of them under way at once.
    fn flush(&mut self, batch: &mut Batch) {
        let Self { nf, place, lanes, .. } = self;
        let Lanes { len, waiting, metas, parsed } = &mut **lanes;
        let waiting = &mut waiting[..*len];
        for (lane, meta) in waiting.iter_mut().zip(metas.iter().flatten()) {
            lane.hash = place.hash(&meta.key());
            place.prefetch(nf, meta, lane.hash);
        }
        for (lane, meta) in waiting.iter_mut().zip(metas.iter().flatten()) {
            lane.hint = place.prefetch_entry(nf, meta, lane.hash);
        }
        for ((lane, meta), parsed) in waiting.iter().zip(metas.iter()).zip(parsed.iter()) {
            let Some(meta) = meta else { unreachable!("a lane waits with what its packet contributes") };
            let Waiting { hash, hint, seq, now, index } = *lane;
            self.position = seq;
            match (&place.step(nf, &Lane { meta, hash, hint, seq, now }), index) {
                (Ok(verdict), Some(index)) => settle(&mut self.counters, batch, index as usize, parsed, verdict),
                (Ok(_), None) => self.counters.replayed += 1,
                (Err(never), _) => match *never {},
            }
        }
        *len = 0;
    }
}

/// Counts a verdict and carries it out on the packet. Always inlined: a verdict that crosses a call goes over memory.
#[inline(always)]
fn settle(
    counters: &mut Counters,
    batch: &mut Batch,
    index: usize,
    parsed: &Result<Headers, Malformed>,
    verdict: &Verdict,
) {
    let fate = match verdict {
        Verdict::Forward { port, rewrite } => {
            if !rewrite.is_none()
                && let Ok(headers) = parsed
            {
                rewrite.apply(batch.bytes_mut(index), headers);
            }
            counters.forwarded += 1;
            Fate::Transmit(port.0)
        }
        Verdict::Drop(_) => {
            counters.count(verdict);
            Fate::Drop
        }
        Verdict::Reply(reply) => answer(counters, batch, index, parsed, *reply),
    };
    batch.packets_mut()[index].fate = fate;
}

/// Turns the packet into its answer. What can't be answered (a reset, a segment cut short) is dropped and counted so.
#[cold]
fn answer(
    counters: &mut Counters,
    batch: &mut Batch,
    index: usize,
    parsed: &Result<Headers, Malformed>,
    reply: Reply,
) -> Fate {
    let len = match (reply, parsed) {
        (Reply::TcpReset, Ok(headers)) => packet::tcp_reset(batch.bytes_mut(index), headers),
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
