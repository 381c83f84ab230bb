//! A link whose packets were sequenced beforehand, as a card would have done it: each brings its history along, and what a core
//! spends is its own.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use locality::prefetch;
use nf::{Meta, NetworkFunction, Reason};
use packet::{Nanos, Seq};
use port::{Batch, Queue, Received};

use super::{LinkEnd, record_of, run_of, words_of, write};
use crate::affinity::pin;
use crate::any_worker::AnyWorker;
use crate::error::EngineError;
use crate::fleet::Options;
use crate::history::{Event, Log, Record};
use crate::placement::Placement;
use crate::recovery::{Apply, Fenced, Tally};
use crate::run::{CoreRun, Course, processors};
use crate::worker::Worker;

/// What the packets of a trace carry that is replayed over and over: the words of each packet's own record and of those before.
#[derive(Debug)]
pub struct Presequenced {
    /// One pass, behind the end of the one before. Times are those of a pass that begins with the trace's own.
    words: Vec<u64>,
    /// The words of a record.
    width: usize,
    cores: usize,
    packets: usize,
    span: Nanos,
}

impl Presequenced {
    /// What packets carry to so many cores.
    ///
    /// # Panics
    /// When the passes of the trace don't begin with the same core: its packets have to be a multiple of the cores.
    #[must_use]
    pub fn of<M: Meta>(course: &Course<'_, M>, cores: usize) -> Self {
        let Course { script, packets, span, .. } = course;
        assert!(*packets >= cores && packets.is_multiple_of(cores), "every pass goes round the cores");
        let (width, before) = (words_of::<M>(), cores - 1);
        let mut words = vec![0; (before + packets) * width];
        for record in &script.records {
            let start = (before + record.seq.0 as usize) * width;
            write(record, &mut words[start..start + width]);
        }
        let end = words.len() - before * width;
        words.copy_within(end.., 0);
        Self { words, width, cores, packets: *packets, span: *span }
    }

    /// What `count` packets of a core carry, from `first` on, all in one pass: oldest first. The first packets of all carry less, as
    /// there is no more.
    #[inline]
    fn of_packets(&self, first: Seq, count: usize, lap: u64) -> &[u64] {
        let index = (first.0 - lap * self.packets as u64) as usize;
        let missing = (self.cores - 1).saturating_sub(first.0 as usize);
        &self.words[(index + missing) * self.width..(index + count * self.cores) * self.width]
    }

    /// Asks for what the packets of a core carry that come next, of which there are about `count`, from `next` on: a card lays it where
    /// packets lie, which ports ask for ahead of time.
    #[inline]
    fn prefetch(&self, next: Seq, count: usize, lap: u64) {
        let start = (next.0 - lap * self.packets as u64) as usize * self.width;
        let end = self.words.len().min(start + count * self.cores * self.width);
        prefetch::all(&self.words[start.min(end)..end]);
    }

    fn lap(&self, seq: Seq) -> u64 {
        seq.0 / self.packets as u64
    }
}

/// Takes the records that a core's own packets brought from the replay, and the others from what recovery says.
struct Replayed<'a, 'b, N: NetworkFunction> {
    log: &'a mut Log<'b, N::Meta>,
    carried: &'a Presequenced,
    records: &'a mut Vec<Record<N::Meta>>,
    seed: u64,
}

impl<N: NetworkFunction> Replayed<'_, '_, N> {
    /// Leaves out what the core never got.
    fn skip_to(&mut self, end: Seq) {
        while self.log.before(end, usize::MAX).is_some() {}
    }
}

impl<N: NetworkFunction> Apply for Replayed<'_, '_, N> {
    fn record(&mut self, seq: Seq, words: Option<&[u64]>) {
        self.skip_to(seq.next());
        if let Some(record) = words.and_then(|words| record_of::<N>(seq, words, self.seed)) {
            let later = Nanos(self.carried.span.0.saturating_mul(self.carried.lap(seq)));
            self.records.push(Record { time: record.time + later, ..record });
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
    /// Decides those packets of the core's next batch that arrive, and leaves nothing else in it. `log` has the records of the
    /// replay, from this core's [next](Worker::next) on, and `carried` the same as packets bring it. Without recovery the core
    /// never hears of what it lost.
    ///
    /// # Errors
    /// As [`process`](Self::process) does.
    pub fn process_replayed<N: NetworkFunction<Meta = M>>(
        &mut self,
        worker: &mut dyn AnyWorker<N>,
        batch: &mut Batch,
        log: &mut Log<'_, M>,
        carried: &Presequenced,
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
            self.recovering(worker, batch, log, carried, sent)
        } else {
            self.forgetting(worker, batch, log, carried);
            Ok(())
        }
    }

    /// Applies what the core's last packets would have brought at the end of the stream, and leaves.
    ///
    /// # Errors
    /// As [`process`](Self::process) does.
    pub fn finish_replayed<N: NetworkFunction<Meta = M>>(
        self,
        worker: &mut dyn AnyWorker<N>,
        log: &mut Log<'_, M>,
        carried: &Presequenced,
        sent: Seq,
    ) -> (Tally, Result<(), Fenced>) {
        let Self { member, block: mut decided, mut arrived, .. } = self;
        decided.records.clear();
        let seed = worker.seed();
        let mut apply = Replayed::<N> { log, carried, records: &mut decided.records, seed };
        let outcome = member.finish_into(sent, &mut apply);
        arrived.clear();
        worker.process_with(&mut arrived, &mut Log::of_block(&decided), sent);
        outcome
    }

    #[inline]
    fn recovering<N: NetworkFunction<Meta = M>>(
        &mut self,
        worker: &mut dyn AnyWorker<N>,
        batch: &mut Batch,
        log: &mut Log<'_, M>,
        carried: &Presequenced,
        sent: Seq,
    ) -> Result<(), Fenced> {
        let Self { member, block: decided, .. } = self;
        decided.records.clear();
        let start = member.next();
        let seed = worker.seed();
        let mut apply = Replayed::<N> { log: &mut *log, carried, records: &mut decided.records, seed };
        let mut lap = batch.packets().first().map_or(0, |packet| carried.lap(packet.seq));
        let mut result = Ok(());
        let mut rest = batch.packets();
        while let [first, .., last] | [first @ last] = rest {
            let first = first.seq;
            let mut end = (lap + 1) * carried.packets as u64;
            if first.0 >= end {
                lap += 1;
                end += carried.packets as u64;
            }
            let all = last.seq.0 < end;
            let of_lap = if all { rest.len() } else { rest.partition_point(|packet| packet.seq.0 < end) };
            let (run, later) = rest.split_at(run_of(&rest[..of_lap], carried.cores));
            rest = later;
            if member.receive_run(first, run.len(), carried.of_packets(first, run.len(), lap), &mut apply).is_err() {
                result = Err(Fenced);
                break;
            }
        }
        carried.prefetch(sent, batch.len(), lap);
        if result.is_ok() {
            match member.pass(sent) {
                // Nothing is missing and nothing was applied yet: the replay's own records will do.
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

    /// Replays what the packets that came bring along, and nothing else.
    fn forgetting<N: NetworkFunction<Meta = M>>(
        &mut self,
        worker: &mut dyn AnyWorker<N>,
        batch: &mut Batch,
        log: &mut Log<'_, M>,
        carried: &Presequenced,
    ) {
        let [first, .., last] = batch.packets() else { return self.one(worker, batch, log, carried) };
        let cores = carried.cores as u64;
        let whole = (batch.len() as u64 - 1) * cores == last.seq.0 - first.seq.0
            && first.seq.0.saturating_sub(cores - 1) <= worker.next().0;
        if whole {
            worker.process_with(batch, log, last.seq.next());
        } else {
            self.one(worker, batch, log, carried);
        }
    }

    /// The same packet by packet.
    fn one<N: NetworkFunction<Meta = M>>(
        &mut self,
        worker: &mut dyn AnyWorker<N>,
        batch: &mut Batch,
        log: &mut Log<'_, M>,
        carried: &Presequenced,
    ) {
        let decided = &mut self.block;
        decided.records.clear();
        decided.end = worker.next();
        let mut apply = Replayed::<N> { log, carried, records: &mut decided.records, seed: worker.seed() };
        for packet in batch.packets() {
            let oldest = Seq(packet.seq.0.saturating_sub(carried.cores as u64 - 1));
            apply.carried(oldest.max(decided.end), packet.seq.next());
            decided.end = packet.seq.next();
        }
        worker.process_with(batch, &mut Log::of_block(decided), decided.end);
    }
}

/// Runs workers, each over a queue and a link of its own, from a common start until every queue has ended. What is undecided
/// then, the last packets' records, is left to the next run with the same ends.
///
/// # Errors
/// The first port's error, or that a core stalled and was fenced.
///
/// # Panics
/// When there are not as many queues and ends as workers, or when the function panics.
pub fn run_replayed<N: NetworkFunction, P: Placement<N>>(
    workers: &mut [Worker<N, P>],
    queues: Vec<Box<dyn Queue>>,
    ends: &mut [LinkEnd<N::Meta>],
    course: &Course<'_, N::Meta>,
    carried: &Presequenced,
    options: &Options,
) -> Result<Vec<CoreRun>, EngineError> {
    assert!(queues.len() == workers.len() && ends.len() == workers.len(), "a queue and an end for each core");
    let barrier = Barrier::new(queues.len());
    let cpus = processors(options, queues.len());
    thread::scope(|scope| {
        let cores = workers.iter_mut().zip(queues).zip(ends).enumerate();
        let cores: Vec<_> = cores
            .map(|(core, ((worker, queue), end))| {
                let (barrier, cpu) = (&barrier, cpus.get(core).copied());
                scope.spawn(move || {
                    cpu.map(pin);
                    barrier.wait();
                    poll(worker, queue, end, course, carried)
                })
            })
            .collect();
        cores.into_iter().map(|core| core.join().expect("a function that panics ends the measurement")).collect()
    })
}

fn poll<N: NetworkFunction>(
    worker: &mut dyn AnyWorker<N>,
    mut queue: Box<dyn Queue>,
    link: &mut LinkEnd<N::Meta>,
    course: &Course<'_, N::Meta>,
    carried: &Presequenced,
) -> Result<CoreRun, EngineError> {
    let mut batch = Batch::default();
    let mut log = Log::of_loop(course.script, course.packets, course.span, worker.next());
    let start = Instant::now();
    loop {
        match queue.receive(&mut batch)? {
            Received::Packets => {}
            Received::Idle => continue,
            Received::End => break,
        }
        let fenced = |fenced: Fenced| EngineError::Refused(fenced.to_string());
        link.process_replayed(worker, &mut batch, &mut log, carried).map_err(fenced)?;
        queue.transmit(&mut batch)?;
    }
    queue.finish()?;
    Ok(CoreRun { counters: worker.counters(), elapsed: start.elapsed() })
}
