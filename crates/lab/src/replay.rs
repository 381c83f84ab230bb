//! Replays without a dispatcher. Each core has its own queue, as with a network card, and the decisions of a sequencer or balancer are
//! prepared in advance.

use std::time::Duration;

use engine::{
    AnyWorker, Control, CoreRun, EngineError, Feed, LinkEnd, Log, Mail, Placement, TraceHistory, Worker, processors,
    run_cores,
};
use nf::NetworkFunction;
use packet::{Nanos, Seq};
use port::{Batch, Queue, Received};

/// Steering decisions for a trace that is replayed to each core through its own queue.
#[derive(Debug)]
pub struct ReplayPlan<'a, M> {
    /// What a sequencer or balancer would send to the cores in one pass.
    pub history: &'a TraceHistory<M>,
    /// Packets in a pass.
    pub packets: usize,
    /// Time from the start of one pass to the start of the next.
    pub span: Nanos,
    /// Number after the last packet of all passes.
    pub end: Seq,
    /// Core number of the first worker.
    pub first: usize,
}

impl<'a, M: nf::Meta> ReplayPlan<'a, M> {
    /// The log for a core that has reached packet `next`.
    fn log(&self, core: usize, next: Seq) -> Log<'a, M> {
        let log = Log::of_loop(self.history, self.packets, self.span, next);
        log.with_owned(self.history.owned_of(self.first + core), next)
    }
}

/// A core's queue, with the plan and the link to the core, if there are any.
struct Replayed<'a, N: NetworkFunction> {
    core: usize,
    queue: Box<dyn Queue + 'a>,
    plan: Option<&'a ReplayPlan<'a, N::Meta>>,
    /// Created with the first batch.
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

    /// Continues to the plan's end. Behind a link, the last packets' history stays for the next run with the same link ends.
    fn finish(&mut self, worker: &mut dyn AnyWorker<N>, batch: &mut Batch) -> Result<(), EngineError> {
        if let (Some(plan), None) = (self.plan, &self.link) {
            let log = self.log.get_or_insert_with(|| plan.log(self.core, worker.next()));
            worker.process_with(batch, log, plan.end);
        }
        Ok(self.queue.finish()?)
    }
}

/// Runs workers, each over its own queue, from a common start until every queue has ended, then to the plan's end. Each worker is pinned
/// to its own processor if there are enough.
///
/// # Errors
/// The first failure: of a port, or a panic of the function.
///
/// # Panics
/// There are fewer or more queues than workers.
pub fn replay_queues<N: NetworkFunction, P: Placement<N>>(
    workers: &mut [Worker<N, P>],
    queues: Vec<Box<dyn Queue>>,
    plan: Option<&ReplayPlan<'_, N::Meta>>,
) -> Result<Vec<CoreRun>, EngineError> {
    let workers = workers.iter_mut().map(|worker| worker as &mut dyn AnyWorker<N>).collect();
    replay_workers(workers, queues, plan, None)
}

/// The same as [`replay_queues`] for workers of any placement, behind `links` if there are any.
///
/// # Errors
/// As [`replay_queues`]; a core stalled and was fenced.
///
/// # Panics
/// As [`replay_queues`]; the number of links differs from the number of workers.
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
