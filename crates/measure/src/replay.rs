//! Replays without a dispatcher: each core has a queue of its own, as from a card, and what a sequencer or a balancer would tell it
//! is laid down beforehand.

use std::time::Duration;

use engine::{
    AnyWorker, Control, CoreRun, EngineError, Feed, LinkEnd, Log, Mail, Placement, TraceHistory, Worker, processors,
    run_cores,
};
use nf::NetworkFunction;
use packet::{Nanos, Seq};
use port::{Batch, Queue, Received};

/// What cores know of a trace that is replayed to each by a queue of its own.
#[derive(Debug)]
pub struct ReplayPlan<'a, M> {
    /// What a sequencer would hand out over one pass.
    pub script: &'a TraceHistory<M>,
    /// Packets in a pass.
    pub packets: usize,
    /// How much later each pass is.
    pub span: Nanos,
    /// The number behind the last packet of all.
    pub end: Seq,
    /// Which core the first of the workers is.
    pub first: usize,
}

impl<'a, M: nf::Meta> ReplayPlan<'a, M> {
    /// What a core goes by that has come to packet `next`.
    fn log(&self, core: usize, next: Seq) -> Log<'a, M> {
        let log = Log::of_loop(self.script, self.packets, self.span, next);
        log.with_owned(self.script.owned_of(self.first + core), next)
    }
}

/// A core's queue, with the plan and the link that it is behind, if there are any.
struct Replayed<'a, N: NetworkFunction> {
    core: usize,
    queue: Box<dyn Queue + 'a>,
    plan: Option<&'a ReplayPlan<'a, N::Meta>>,
    /// Begun with the first batch.
    log: Option<Log<'a, N::Meta>>,
    link: Option<&'a mut LinkEnd<N::Meta>>,
    closed: bool,
}

impl<N: NetworkFunction> Feed<N> for Replayed<'_, N> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, EngineError> {
        if self.closed { Ok(Received::End) } else { Ok(self.queue.receive(batch)?) }
    }

    fn process(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError> {
        let (Some(plan), Some(last)) = (self.plan, batch.packets().last()) else {
            worker.process(batch);
            return Ok(());
        };
        let end = last.seq.next();
        let log = self.log.get_or_insert_with(|| plan.log(self.core, worker.next()));
        match &mut self.link {
            None => worker.process_with(batch, log, end),
            Some(link) => {
                let fenced = |fenced: engine::recovery::Fenced| EngineError::Refused(fenced.to_string());
                link.process_replayed(worker, batch, log).map_err(fenced)?;
            }
        }
        Ok(())
    }

    fn transmit(&mut self, batch: &mut Batch) -> Result<(), EngineError> {
        Ok(self.queue.transmit(batch)?)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), EngineError> {
        Ok(self.queue.wait(at_most)?)
    }

    fn close(&mut self) {
        self.closed = true;
    }

    /// Goes on to the plan's end; behind a link, what the last packets would have brought is left to the next run with the same ends.
    fn finish(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError> {
        if let (Some(plan), None) = (self.plan, &self.link) {
            let log = self.log.get_or_insert_with(|| plan.log(self.core, worker.next()));
            worker.process_with(batch, log, plan.end);
        }
        Ok(self.queue.finish()?)
    }
}

/// Runs workers, each over a queue of its own, from a common start until every queue has ended, and on to the plan's end. Each is
/// pinned to a processor, where there are as many: what is measured needs it for itself.
///
/// # Errors
/// The first failure: a port's, or the function's panic.
///
/// # Panics
/// When there are not as many queues as workers.
pub fn replay_queues<N: NetworkFunction, P: Placement<N>>(
    workers: &mut [Worker<N, P>],
    queues: Vec<Box<dyn Queue>>,
    plan: Option<&ReplayPlan<'_, N::Meta>>,
) -> Result<Vec<CoreRun>, EngineError> {
    let workers = workers.iter_mut().map(|worker| worker as &mut dyn AnyWorker<N>).collect();
    replay_workers(workers, queues, plan, None)
}

/// The same for workers whose placement is not known, and behind `links` if there are any.
///
/// # Errors
/// As [`replay_queues`]; that a core stalled and was fenced.
///
/// # Panics
/// As [`replay_queues`] does, and when there are not as many links.
pub fn replay_workers<N: NetworkFunction>(
    workers: Vec<&mut dyn AnyWorker<N>>,
    queues: Vec<Box<dyn Queue>>,
    plan: Option<&ReplayPlan<'_, N::Meta>>,
    links: Option<&mut [LinkEnd<N::Meta>]>,
) -> Result<Vec<CoreRun>, EngineError> {
    let cores = workers.len();
    assert_eq!(queues.len(), cores, "one queue for each core");
    let mut links: Vec<_> = links.map_or_else(Vec::new, |links| links.iter_mut().map(Some).collect());
    assert!(links.is_empty() || links.len() == cores, "one link for each core");
    links.resize_with(cores, || None);
    let feeds = queues.into_iter().zip(links).enumerate();
    let mut feeds: Vec<Replayed<'_, N>> =
        feeds.map(|(core, (queue, link))| Replayed { core, queue, plan, log: None, link, closed: false }).collect();
    let feeds = feeds.iter_mut().map(|feed| feed as &mut dyn Feed<N>).collect();
    let cpus = processors(true, cores);
    let mut runs = run_cores(workers, feeds, &cpus, &Control::default(), &Mail::new(cores));
    match runs.iter_mut().find_map(|run| run.failure.take()) {
        Some(failure) => Err(failure),
        None => Ok(runs),
    }
}
