//! A replica behind a sequencer: it gets its own packets from its queue, and the history of all packets from the port.

use std::sync::Arc;
use std::time::Duration;

use nf::{NetworkFunction, Reason, Verdict};
use packet::{Malformed, Nanos, Seq};
use port::{Batch, HEAD_BYTES, History, Mark, Packet, PortError, Queue, Received, Sequenced};

use super::feed::{Feed, received};
use super::quiet::Quiet;
use crate::error::EngineError;
use crate::history::log::{Block, Log, Record};
use crate::placement::hash_of;
use crate::steer::classify::classify;
use crate::work::any_worker::AnyWorker;

/// A core's queue and history, from the start of a run to its end.
pub(crate) struct SequencedQueue<'a> {
    queue: Box<dyn Queue + 'a>,
    history: Box<dyn History + 'a>,
    core: usize,
    /// True after an error of the queue: it gives no more packets.
    broken: bool,
    /// True if the output is complete.
    completed: bool,
    /// When state aged without a packet.
    aged: Option<Nanos>,
}

impl<'a> SequencedQueue<'a> {
    pub(crate) fn new(core: usize, Sequenced { queue, history }: Sequenced<'a>) -> Self {
        Self { queue, history, core, broken: false, completed: false, aged: None }
    }

    /// Completes the output, once.
    pub(crate) fn complete(&mut self) -> Result<(), PortError> {
        if std::mem::replace(&mut self.completed, true) { Ok(()) } else { self.queue.finish() }
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        &*self.queue
    }
}

/// The feed of one core. What it reads in the history becomes records, each core for itself, as in the programs of the paper.
pub(super) struct ReplicaFeed<'q, 'a, N: NetworkFunction> {
    nf: Arc<N>,
    by_ports: bool,
    source: &'q mut SequencedQueue<'a>,
    block: Block<N::Meta>,
    /// Numbers of the packets in the block that only look as if they took no step.
    cut: Vec<Seq>,
    /// True once the core has come to a stop.
    ended: bool,
    /// True if the worker decides nothing more.
    failed: bool,
}

impl<'q, 'a, N: NetworkFunction> ReplicaFeed<'q, 'a, N> {
    pub(super) fn new(nf: Arc<N>, source: &'q mut SequencedQueue<'a>) -> Self {
        let by_ports = nf.drops_fragments();
        Self { nf, by_ports, source, block: Block::default(), cut: Vec::new(), ended: false, failed: false }
    }

    /// Drops the core's own packets whose headers are longer than what the history has of them: to the other replicas they are malformed.
    fn drop_cut(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) {
        let Self { nf, by_ports, block, cut, .. } = self;
        cut.clear();
        let (mut records, mut meta, mut verdict) = (block.records.iter().peekable(), None, Verdict::forward());
        for index in 0..batch.len() {
            let (packet, bytes) = batch.packet(index);
            while records.next_if(|record| record.seq < packet.seq).is_some() {}
            let has_record = records.peek().is_some_and(|record| record.seq == packet.seq);
            if !has_record
                && bytes.len() > HEAD_BYTES
                && classify(&**nf, *by_ports, packet, bytes, &mut meta, &mut verdict)
            {
                cut.push(packet.seq);
                worker.drop_unseen(packet, Reason::malformed(Malformed::IpTruncated));
            }
        }
        if !cut.is_empty() {
            batch.retain(|packet| !cut.contains(&packet.seq));
        }
    }
}

impl<N: NetworkFunction> Feed<N> for ReplicaFeed<'_, '_, N> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, EngineError> {
        let SequencedQueue { queue, history, broken, .. } = &mut *self.source;
        if self.ended || *broken {
            batch.clear();
            return Ok(Received::End);
        }
        let mut come = received(&mut **queue, batch).inspect_err(|_| *broken = true)?;
        if self.failed {
            // The others go on, and need the room that this core has not read.
            self.ended = history.read(&mut |_, _| ()).mark == Some(Mark::Stop);
        } else if come == Received::Idle && history.has_more() {
            come = Received::Packets;
        }
        *broken = come == Received::End;
        Ok(come)
    }

    fn process(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError> {
        let seed = worker.seed();
        let Self { nf, by_ports, source, block, .. } = self;
        block.records.clear();
        let (mut meta, mut verdict) = (None, Verdict::forward());
        let past = source.history.read(&mut |packet: &Packet, head: &[u8]| {
            if classify(&**nf, *by_ports, packet, head, &mut meta, &mut verdict)
                && let Some(meta) = meta
            {
                let hash = hash_of::<N>(&nf::Meta::key(&meta), seed);
                block.records.push(Record { seq: packet.seq, time: packet.time, hash, meta });
            }
        });
        (block.first, block.end) = (block.end, past.end);
        self.drop_cut(worker, batch);
        worker.process_with(batch, &mut Log::of_block(&self.block), past.end);
        match past.mark {
            Some(Mark::Quiet(now)) => {
                Quiet { now, last: Seq(past.end.0.saturating_sub(1)) }.age(worker);
                self.source.aged = Some(now);
            }
            Some(Mark::Stop) => self.ended = true,
            None => {}
        }
        Ok(())
    }

    fn transmit(&mut self, batch: &mut Batch) -> Result<(), EngineError> {
        Ok(self.source.queue.transmit(batch)?)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), EngineError> {
        self.source.queue.flush()?;
        match self.source.queue.wait(at_most) {
            Err(PortError::Down(_)) => Ok(()),
            result => Ok(result?),
        }
    }

    /// One core says for all that no packet comes, by a mark, so that all replicas age at the same place.
    fn idle(&mut self, _: &mut dyn AnyWorker<N>, last: Nanos) -> bool {
        let SequencedQueue { queue, history, core: 0, aged, .. } = &mut *self.source else { return false };
        let Some(now) = queue.now().map(|now| now.max(last)) else { return false };
        let is_due = Quiet::is_due(now, *aged);
        if is_due {
            history.mark(Mark::Quiet(now));
        }
        is_due
    }

    fn aged(&self) -> Option<Nanos> {
        self.source.aged
    }

    fn close(&mut self) {
        // Who has come to a stop needs no other one, at which the cores would stop again when they go on.
        if !self.ended {
            self.source.history.mark(Mark::Stop);
        }
    }

    fn fail(&mut self) {
        self.failed = true;
    }

    fn finish(&mut self, _: &mut dyn AnyWorker<N>, _: &mut Batch) -> Result<(), EngineError> {
        Ok(self.source.complete()?)
    }
}
