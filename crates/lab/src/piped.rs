//! The engine `pipeline` in a bench: its first core reads the packets from memory and steers them, as part of what is timed.

use std::sync::Arc;
use std::time::Duration;

use engine::{
    AnyWorker, Control, Dispatcher, EngineInstance, EngineKind, Mail, Options, Piped, private_instance, processors,
    run_pipeline,
};
use nf::Function;
use port::{
    Batch, Fate, HugePages, Loops, Order, PortError, Queue, Receive, Received, Replay, Stream, Trace, Transmit,
};

use crate::bench::{Basis, BenchError, BenchPlan, Case, Row};
use crate::delay::DelayPlan;
use crate::gauge::{Gauge, Gauged};
use crate::loss_free::LossFreePlan;
use crate::remote::Remote;
use crate::rounds::{Contender, Reading, Readings};
use crate::work::{Dispatched, Work};

/// Packets of a piece that the first core reads: about as many as a block of a capture has.
const PIECE: usize = 256;

/// A pipeline with its trace.
pub(crate) struct PipelineCase<N: Function> {
    workers: Vec<Box<dyn AnyWorker<N>>>,
    dispatcher: Dispatcher<N>,
    options: Options,
    replay: Replay,
    readings: Readings,
    dispatch: Work,
    /// True if a loss-free rate is wanted.
    wants_loss_free: bool,
    /// True if times from arrival to transmit are wanted.
    wants_delay: bool,
}

impl<N: Function> PipelineCase<N> {
    /// Places the trace in memory and runs it once to warm tables and caches.
    pub(crate) fn new(nf: Arc<N>, cores: usize, trace: &Arc<Trace>, plan: &BenchPlan) -> Result<Self, BenchError> {
        let options = plan.options;
        let EngineInstance { workers, dispatcher, .. } = private_instance(EngineKind::Pipeline, nf, cores, &options);
        let loops = plan.packets.div_ceil(trace.len().max(1) as u64).max(1);
        let replay = Replay::new(Arc::clone(trace)).looped(Loops::Times(loops)).continued().bursts_of(PIECE);
        let mut new = Self {
            workers: workers.into_iter().map(|worker| Box::new(worker) as Box<dyn AnyWorker<N>>).collect(),
            dispatcher,
            options,
            replay,
            readings: Readings::new(plan.undisturbed),
            dispatch: plan.dispatch,
            wants_loss_free: plan.loss_free.is_some(),
            wants_delay: plan.delay.is_some(),
        };
        new.round()?;
        new.readings.clear();
        Ok(new)
    }
}

impl<N: Function> Contender for PipelineCase<N> {
    fn round(&mut self) -> Result<(), BenchError> {
        let Self { workers, dispatcher, options, replay, readings, dispatch, .. } = self;
        let cores = workers.len();
        let received = |workers: &[Box<dyn AnyWorker<N>>]| -> u64 {
            workers.iter().map(|worker| worker.counters().received).sum()
        };
        let before = received(workers);
        let (queues, shown) = Gauged::wrap(replay.queues(1));
        let mut queues = Dispatched::wrap(queues, *dispatch);
        let input = Input(queues.remove(0));
        let stream = Stream { input: Box::new(input), output: Box::new(Sink::default()), order: Order::Sent };
        let piped = Piped { cuts: options.cuts, dispatcher, stream, work: None, cpus: &processors(true, cores) };
        let cores_of = workers.iter_mut().map(|worker| &mut **worker as &mut dyn AnyWorker<N>).collect();
        let (_, mut runs, _) = run_pipeline(cores_of, piped, &Control::default(), &Mail::new(cores));
        if let Some(failure) = runs.iter_mut().find_map(|run| run.failure.take()) {
            return Err(failure);
        }
        let packets = received(workers) - before;
        let elapsed: Vec<Duration> = runs.iter().map(|run| run.elapsed).collect();
        // The first core reads the gauge, while the ways wait for it. So its time is nobody's.
        let gauges: Vec<Gauge> = vec![shown[0].get(); cores];
        readings.push(Reading::of(packets, &elapsed, &gauges, cores));
        Ok(())
    }

    fn counted(&self) -> usize {
        self.readings.len()
    }
}

impl<N: Function> Case for PipelineCase<N> {
    fn contender(&mut self) -> &mut dyn Contender {
        self
    }

    fn search(&mut self, _: &LossFreePlan) -> Result<(), BenchError> {
        Ok(())
    }

    fn delay(&mut self, _: &DelayPlan) -> Result<(), BenchError> {
        Ok(())
    }

    fn row(&self, _: Remote) -> Row {
        Row {
            engine: EngineKind::Pipeline,
            cores: self.workers.len(),
            mpps: self.readings.spread(|reading| reading.mpps),
            ns_per_packet_per_core: self.readings.spread(|reading| reading.own_ns),
            basis: Basis::Measured,
            rounds: self.readings.rounds(),
            loss_free: self
                .wants_loss_free
                .then(|| Err("no loss-free rate for pipeline: load is offered to a ring for each core".into())),
            delays: self
                .wants_delay
                .then(|| Err("no latency for pipeline: load is offered to a ring for each core".into())),
        }
    }

    fn huge_pages(&self) -> HugePages {
        self.replay.huge_pages()
    }
}

/// The receiving half of a queue.
struct Input(Box<dyn Queue>);

impl Receive for Input {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        self.0.receive(batch)
    }
}

/// Takes packets back and counts those that would go out.
#[derive(Default)]
struct Sink {
    sent: u64,
}

impl Transmit for Sink {
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let sent = batch.packets().iter().filter(|packet| !matches!(packet.fate, Fate::Pending | Fate::Drop(_)));
        self.sent += sent.count() as u64;
        Ok(())
    }
}
