//! A link for packets that were sequenced beforehand, as if by a card: each brings its history, and only the core's own work is measured.

use nf::{Meta, NetworkFunction, Reason};
use packet::Seq;
use port::Batch;

use super::{LinkEnd, run_of};
use crate::history::log::{Event, Log, Record};
use crate::history::recovery::{Apply, Fenced, Tally};
use crate::work::any_worker::AnyWorker;

/// Takes the records to apply from the replayed log: those of the core's own packets, and those that recovery found at other cores.
struct Replayed<'a, 'b, M> {
    log: &'a mut Log<'b, M>,
    records: &'a mut Vec<Record<M>>,
}

impl<M: Meta> Replayed<'_, '_, M> {
    /// Skips records that the core never got.
    fn skip_to(&mut self, end: Seq) {
        while self.log.before(end, usize::MAX).is_some() {}
    }
}

impl<M: Meta> Apply for Replayed<'_, '_, M> {
    fn record(&mut self, seq: Seq, words: Option<&[u64]>) {
        match words {
            Some(_) => {
                self.carried(seq, seq.next());
            }
            None => self.skip_to(seq.next()),
        }
    }

    fn carried(&mut self, first: Seq, end: Seq) -> bool {
        self.skip_to(first);
        while let Some(event) = self.log.before(end, usize::MAX) {
            match event {
                Event::Records(stretch) => self.records.extend(stretch.iter()),
                Event::Moves(_) => unreachable!("replicas' state changes no cores"),
            }
        }
        true
    }
}

impl<M: Meta> LinkEnd<M> {
    /// Decides the packets of the core's next batch that arrive, and removes the others. `log` has the history that packets carry, from
    /// this core's [next](crate::Worker::next) record on. Without recovery, the records of lost packets are never applied.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    pub fn process_replayed<N: NetworkFunction<Meta = M>>(
        &mut self,
        worker: &mut dyn AnyWorker<N>,
        batch: &mut Batch,
        log: &mut Log<'_, M>,
    ) -> Result<(), Fenced> {
        let Some(last) = batch.packets().last() else { return Ok(()) };
        let sent = last.seq.next();
        if self.link.loss_ppm > 0 {
            let link = self.link;
            batch.retain(|packet| {
                let lost = link.loses(packet.seq);
                if lost {
                    worker.drop_unseen(packet, Reason::LINK_LOSS);
                }
                !lost
            });
        }
        if self.link.recovery {
            self.with_recovery(worker, batch, log, sent)
        } else {
            self.without_recovery(worker, batch, log);
            Ok(())
        }
    }

    /// Applies the records that the core still misses at the end of the stream, and leaves.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    pub fn finish_replayed<N: NetworkFunction<Meta = M>>(
        self,
        worker: &mut dyn AnyWorker<N>,
        log: &mut Log<'_, M>,
        sent: Seq,
    ) -> (Tally, Result<(), Fenced>) {
        let Self { member, block: mut decided, mut arrived, .. } = self;
        decided.records.clear();
        let mut apply = Replayed { log, records: &mut decided.records };
        let outcome = member.finish_into(sent, &mut apply);
        arrived.clear();
        worker.process_with(&mut arrived, &mut Log::of_block(&decided), sent);
        outcome
    }

    #[inline]
    fn with_recovery<N: NetworkFunction<Meta = M>>(
        &mut self,
        worker: &mut dyn AnyWorker<N>,
        batch: &mut Batch,
        log: &mut Log<'_, M>,
        sent: Seq,
    ) -> Result<(), Fenced> {
        let Self { member, block: decided, .. } = self;
        decided.records.clear();
        let start = member.next();
        let cores = member.logs().shape().cores;
        let mut apply = Replayed { log: &mut *log, records: &mut decided.records };
        let mut result = Ok(());
        let mut rest = batch.packets();
        while let [first, ..] = rest {
            let (run, later) = rest.split_at(run_of(rest, cores));
            if member.receive_run(first.seq, run.len(), &[], &mut apply).is_err() {
                result = Err(Fenced);
                break;
            }
            rest = later;
        }
        if result.is_ok() {
            match member.pass(sent) {
                // Nothing is missing and nothing was applied yet, so the worker can read the replayed log itself.
                Ok(Some(end)) if apply.records.is_empty() => {
                    worker.process_with(batch, log, end);
                    return Ok(());
                }
                Ok(Some(end)) => {
                    apply.carried(start, end);
                }
                Ok(None) => result = member.advance_into(sent, &mut apply),
                Err(fenced) => result = Err(fenced),
            }
        }
        decided.end = member.next();
        let end = decided.end;
        batch.retain(|packet| {
            let decided = packet.seq < end;
            if !decided {
                worker.drop_unseen(packet, Reason::FENCED);
            }
            decided
        });
        worker.process_with(batch, &mut Log::of_block(decided), decided.end);
        result
    }

    /// Replays only the records of packets that arrived.
    fn without_recovery<N: NetworkFunction<Meta = M>>(
        &mut self,
        worker: &mut dyn AnyWorker<N>,
        batch: &mut Batch,
        log: &mut Log<'_, M>,
    ) {
        let [first, .., last] = batch.packets() else { return self.one(worker, batch, log) };
        let cores = self.member.logs().shape().cores as u64;
        let whole = (batch.len() as u64 - 1) * cores == last.seq.0 - first.seq.0
            && first.seq.0.saturating_sub(cores - 1) <= worker.next().0;
        if whole {
            worker.process_with(batch, log, last.seq.next());
        } else {
            self.one(worker, batch, log);
        }
    }

    /// Processes the batch packet by packet, with the history ahead of each.
    fn one<N: NetworkFunction<Meta = M>>(
        &mut self,
        worker: &mut dyn AnyWorker<N>,
        batch: &mut Batch,
        log: &mut Log<'_, M>,
    ) {
        let Self { member, block: decided, .. } = self;
        let before = member.logs().shape().cores as u64 - 1;
        decided.records.clear();
        decided.end = worker.next();
        let mut apply = Replayed { log, records: &mut decided.records };
        for packet in batch.packets() {
            let oldest = Seq(packet.seq.0.saturating_sub(before));
            apply.carried(oldest.max(decided.end), packet.seq.next());
            decided.end = packet.seq.next();
        }
        worker.process_with(batch, &mut Log::of_block(decided), decided.end);
    }
}
