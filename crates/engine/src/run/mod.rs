//! Runs: an engine between the queues of a port, or on its single stream.
//!
//! Each core runs the same loop ([`run_cores`]) over a [`Feed`].

mod cores;
mod feed;
mod handle;
pub(crate) mod instance;
mod mail;
mod memory;
mod offload;
mod pipeline;
mod quiet;
mod replica;
mod running;
mod sequence;
mod sequenced;
mod succession;
mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use nf::{Function, NetworkFunction, Report};
use packet::{Nanos, Seq};
use port::{Card, HEAD_BYTES, Opened, Port, PortError, Queue, ReceiveLosses, Stream, Transmit, TransmitCounts, Work};

pub use self::cores::{CoreRun, run_cores};
use self::feed::OwnQueue;
pub use self::feed::{Feed, resolve};
pub use self::handle::{Control, CoreProgress};
use self::instance::{
    EngineInstance, Inspect, private_instance, sharded_instance, shared_instance, transacted_instance,
};
pub use self::mail::Mail;
pub use self::memory::{MemoryMax, memory_max};
pub use self::pipeline::{Piped, run_pipeline};
use self::replica::{ReplicaFeed, SequencedQueue};
pub use self::running::{Beginning, Running, start, start_from};
pub use self::sequence::{SequencedTotal, sequence};
pub use self::sequenced::run_sequenced;
pub use self::succession::Look;
use self::succession::Request;
use self::turns::Turns;
use crate::affinity::cpus;
use crate::counters::Counters;
use crate::error::{EngineError, Failure};
use crate::history::link::LinkEnd;
use crate::history::recovery::Tally;
use crate::kind::EngineKind;
use crate::offload::{Offload, OffloadCounts};
use crate::options::{Cuts, Options};
use crate::placement::transacted::Transactions;
use crate::placement::{Placement, SavedFlow};
use crate::steer::dispatch::Dispatcher;
use crate::work::any_worker::AnyWorker;
use crate::work::worker::Worker;

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The counters of all cores. Every flow that was opened has ended or is alive.
    pub counters: Counters,
    /// The counters of each core. Flows are counted at the core that owns them, and as expired only once they were reclaimed.
    pub by_core: Vec<Counters>,
    /// The most flows at one time.
    pub flows_high_water: usize,
    /// The flows alive at the end.
    pub flows_alive: usize,
    /// The memory of all flow tables, in bytes.
    pub memory_bytes: usize,
    /// The time of the last packet.
    pub last: Nanos,
    /// Wall time from the first receive to the last transmit.
    pub elapsed: Duration,
    /// The function's report.
    pub report: Option<Report>,
    /// How often state moved between cores.
    pub moved: u64,
    /// The elephants at the end: packet sets that `hybrid` replicates.
    pub elephants: usize,
    /// The fewest and the most cores in use, and the cores in use at the end, if the engine adapts them to the load.
    pub cores_in_use: Option<[usize; 3]>,
    /// Losses on the link and their recovery, if the run had a link.
    pub recovery: Option<Recovery>,
    /// Counts of the card ahead of the function, if there was one.
    pub offload: Option<OffloadCounts>,
    /// The transactions, if packet sets share state by them.
    pub transactions: Option<Transactions>,
    /// True if the run was told to stop before its input ended.
    pub interrupted: bool,
    /// What ended the run early. Packets forwarded before that are in the output.
    pub failure: Option<EngineError>,
    /// Packets that the port lost before its queues.
    pub lost: ReceiveLosses,
    /// Packets sent, and packets lost in transmit; `None` if the port doesn't count them.
    pub sent: Option<TransmitCounts>,
}

/// Losses on the link and their recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Packets lost, and records recovered from each core, summed over all cores.
    pub tally: Tally,
    /// The cores that were fenced.
    pub fenced: Vec<usize>,
}

/// Runs a function under an engine over a port. The output of a stream is in input order, and is always finished.
///
/// # Errors
/// [`EngineError::Refused`] if the engine can't run the function; the port's error if the port can't be opened. Later errors are in
/// [`Outcome::failure`].
pub fn run<N: Function>(
    nf: Arc<N>,
    kind: EngineKind,
    cores: usize,
    options: &Options,
    port: &mut dyn Port,
    control: &Control,
) -> Result<Outcome, EngineError> {
    run_with_mail(nf, kind, cores, options, port, control, &Mail::new(cores), Restored::default())
}

/// State of an earlier run, with which a run begins.
struct Restored<N: NetworkFunction> {
    flows: Vec<SavedFlow<N>>,
    shared: Option<Vec<u64>>,
    time: Nanos,
    successor: Option<Arc<N>>,
}

impl<N: NetworkFunction> Default for Restored<N> {
    fn default() -> Self {
        Self { flows: Vec::new(), shared: None, time: Nanos(0), successor: None }
    }
}

/// The same, for a run that answers questions by `mail` and begins with this state.
#[expect(clippy::too_many_arguments, reason = "each is what a run is made of")]
fn run_with_mail<N: Function>(
    nf: Arc<N>,
    kind: EngineKind,
    cores: usize,
    options: &Options,
    port: &mut dyn Port,
    control: &Control,
    mail: &Mail<N>,
    restored: Restored<N>,
) -> Result<Outcome, EngineError> {
    kind.accepts(&nf.description(), cores).map_err(EngineError::Refused)?;
    options.tables.accepts(&*nf).map_err(EngineError::Refused)?;
    if options.offload.is_some() {
        Offload::accepts(kind, &*nf, &options.tables).map_err(EngineError::Refused)?;
    }
    if kind == EngineKind::Pipeline {
        options.cuts.accepts(cores).map_err(EngineError::Refused)?;
    }
    if let Some(link) = &options.link {
        link.accepts(kind, cores).map_err(EngineError::Refused)?;
    }
    match kind {
        EngineKind::Transactional if options.sharing(&*nf).is_any() => {
            drive_from(&mut transacted_instance(nf, cores, options), restored, options, port, control, mail)
        }
        EngineKind::Sequential
        | EngineKind::Rss
        | EngineKind::Transactional
        | EngineKind::Scr
        | EngineKind::Pipeline => {
            drive_from(&mut private_instance(kind, nf, cores, options), restored, options, port, control, mail)
        }
        EngineKind::RssPlusPlus | EngineKind::Hybrid => {
            drive_from(&mut sharded_instance(kind, nf, cores, options), restored, options, port, control, mail)
        }
        EngineKind::Shared => {
            drive_from(&mut shared_instance(nf, cores, options), restored, options, port, control, mail)
        }
    }
}

/// Drives an instance that begins with this state.
fn drive_from<N: NetworkFunction, P: Placement<N>>(
    instance: &mut EngineInstance<N, P>,
    restored: Restored<N>,
    options: &Options,
    port: &mut dyn Port,
    control: &Control,
    mail: &Mail<N>,
) -> Result<Outcome, EngineError>
where
    EngineInstance<N, P>: Inspect<N>,
{
    let nf = Arc::clone(&instance.nf);
    let Restored { flows, shared, time, successor } = restored;
    if shared.is_some_and(|words| !instance.restore_shared(&nf, &words, time)) {
        return Err(EngineError::Refused("what packet sets shared in the earlier run makes no sense".into()));
    }
    instance.restore(&nf, &flows, time);
    successor.into_iter().for_each(|nf| instance.succeed(nf));
    drive(instance, options, port, control, mail)
}

/// Runs an engine instance over a port, as [`run`] does. The instance keeps its state and can be inspected afterwards.
///
/// # Errors
/// As [`run`].
pub fn drive<N: NetworkFunction, P: Placement<N>>(
    instance: &mut EngineInstance<N, P>,
    options: &Options,
    port: &mut dyn Port,
    control: &Control,
    mail: &Mail<N>,
) -> Result<Outcome, EngineError>
where
    EngineInstance<N, P>: Inspect<N>,
{
    let cores = instance.workers.len();
    let sides = port.sides();
    let mut opened = port.open(cores)?;
    let cpus = processors(options.pin, cores);
    let start = Instant::now();
    instance.workers.iter_mut().for_each(|worker| worker.face(sides));
    if let Some(offload) = options.offload {
        instance.put_behind_cards(offload, cards(&mut opened, cores), options.seed);
    }
    let mut source = match opened {
        Opened::Stream(stream) if cores == 1 => Source::Queues(vec![OwnQueue::new(Box::new(stream))]),
        Opened::Stream(mut stream) => {
            let is_cut = instance.kind == EngineKind::Pipeline && instance.cuts != Cuts::Parse;
            let work = if is_cut { stream.input.take_work() } else { None };
            Source::Stream(stream, work)
        }
        Opened::Queues(queues) => {
            if queues.len() < cores {
                return Err(PortError::Queues { have: queues.len(), want: cores }.into());
            }
            if cores > 1 && !instance.kind.takes_queues() {
                return Err(EngineError::Refused(takes_no_queues(instance.kind)));
            }
            Source::Queues(queues.into_iter().map(OwnQueue::new).collect())
        }
        Opened::Sequenced(queues) => {
            takes_sequencer(instance.kind, &*instance.nf, options).map_err(EngineError::Refused)?;
            if queues.len() != cores {
                return Err(PortError::Queues { have: queues.len(), want: cores }.into());
            }
            Source::Sequenced(
                queues.into_iter().enumerate().map(|(core, queue)| SequencedQueue::new(core, queue)).collect(),
            )
        }
    };
    let mut end = End::default();
    loop {
        let workers = instance.workers.iter_mut().map(|worker| worker as &mut dyn AnyWorker<N>).collect();
        source = match source {
            Source::Queues(feeds) => Source::Queues(over_queues(workers, feeds, &cpus, control, mail, &mut end)),
            Source::Sequenced(queues) => {
                Source::Sequenced(over_sequenced(&instance.nf, workers, queues, &cpus, control, mail, &mut end))
            }
            Source::Stream(stream, mut work) if instance.kind == EngineKind::Pipeline => {
                let (dispatcher, cuts) = (&instance.dispatcher, instance.cuts);
                let piped = Piped { cuts, dispatcher, stream, work: work.as_mut(), cpus: &cpus };
                let (stream, runs, is_exhausted) = run_pipeline(workers, piped, control, mail);
                runs.into_iter().for_each(|run| end.add(run));
                end.paused &= !is_exhausted;
                Source::Stream(stream, work)
            }
            Source::Stream(stream, work) => {
                let dispatcher = &mut instance.dispatcher;
                let stream = over_stream(workers, dispatcher, stream, options, &cpus, control, mail, &mut end);
                Source::Stream(stream, work)
            }
        };
        let is_paused = std::mem::take(&mut end.paused) && end.failure.is_none();
        match mail.succession.take().filter(|_| is_paused) {
            None => break,
            Some(Request::Succeed(nf, answer)) => {
                if let (Source::Sequenced(_), Err(reason)) = (&source, takes_sequencer(instance.kind, &*nf, options)) {
                    end.fail(EngineError::Refused(reason));
                    break;
                }
                instance.succeed(nf);
                // The caller may have stopped waiting.
                let _ = answer.send(end.next);
            }
            Some(Request::Look(look)) => {
                let nf = Arc::clone(&instance.nf);
                look(instance, &nf, end.last);
            }
        }
    }
    if let Some(look) = mail.succession.take_at_end().filter(|_| end.failure.is_none()) {
        let nf = Arc::clone(&instance.nf);
        look(instance, &nf, end.last);
    }
    mail.close_all();
    source.finish(&mut end);
    // Measured here, because the lines below read all tables.
    let elapsed = start.elapsed();
    let flows_alive = instance.alive(end.last);
    let counters = Counters { flows: instance.flow_counters_with(flows_alive), ..instance.counters() };
    let adds_up = counters.add_up() && counters.flows.opened == counters.flows.ended() + flows_alive as u64;
    debug_assert!(
        end.failure.is_some() || adds_up,
        "a packet or a flow is unaccounted for: {flows_alive} of {counters:?}"
    );
    if let (Some(sent), None) = (end.sent, &end.failure) {
        debug_assert_eq!(
            counters.forwarded + counters.replied + counters.copied,
            sent.sent + sent.lost,
            "what was to go out was sent or lost in transmit"
        );
    }
    Ok(Outcome {
        flows_high_water: instance.high_water(),
        flows_alive,
        memory_bytes: instance.memory_bytes(),
        report: instance.report(end.last),
        moved: instance.dispatcher.moved(),
        elephants: instance.dispatcher.elephants(),
        cores_in_use: instance.dispatcher.cores_in_use(),
        recovery: end.recovery,
        offload: instance.offload_counts(),
        transactions: instance.transactions(),
        by_core: instance.workers.iter().map(Worker::counters).collect(),
        counters,
        last: end.last,
        elapsed,
        interrupted: end.interrupted,
        failure: end.failure,
        lost: end.lost,
        sent: end.sent,
    })
}

/// Takes the cards of a port out of its queues, one for each core. `None` if the port has none.
fn cards(opened: &mut Opened<'_>, cores: usize) -> Option<Vec<Box<dyn Card>>> {
    match opened {
        Opened::Stream(stream) => stream.input.take_cards(cores),
        Opened::Queues(queues) => {
            let each = queues.iter_mut().map(|queue| queue.take_cards(1));
            each.collect::<Option<Vec<_>>>().map(|cards| cards.into_iter().flatten().collect())
        }
        Opened::Sequenced(_) => None,
    }
}

/// Why an engine can't use a port that steers its packets itself.
fn takes_no_queues(kind: EngineKind) -> String {
    let steers = if kind == EngineKind::Pipeline { "on its first core" } else { "by what came before" };
    format!("{kind} steers packets {steers}, but this port steers its packets itself; use rss, transactional or shared")
}

/// Checks that a run can go over a port that numbers its packets and keeps a history ([`port::Opened::Sequenced`]).
///
/// # Errors
/// Why it can't, as a sentence.
pub fn takes_sequencer<N: NetworkFunction>(kind: EngineKind, nf: &N, options: &Options) -> Result<(), String> {
    if kind != EngineKind::Scr {
        return Err(format!("{kind} has no use for a history of all packets; only scr runs behind a sequencer"));
    }
    if nf.reads_payload() {
        return Err(format!(
            "{} reads more of packets than their headers, and the sequencer's history has only {HEAD_BYTES} bytes of each; let the engine \
             sequence",
            nf.description().name
        ));
    }
    if options.link.is_some() {
        return Err(
            "a link that loses packets is simulated where the engine sequences, not behind a port's sequencer".into()
        );
    }
    Ok(())
}

/// The queues or the stream of a run.
enum Source<'a> {
    /// A queue for each core.
    Queues(Vec<OwnQueue<'a>>),
    /// A queue for each core behind a sequencer.
    Sequenced(Vec<SequencedQueue<'a>>),
    /// A stream for all cores, and what another core than the reading one does with its packets first.
    Stream(Stream<'a>, Option<Work>),
}

impl Source<'_> {
    /// Completes the output and counts what the port has lost and sent.
    fn finish(mut self, end: &mut End) {
        let finished = match &mut self {
            Self::Queues(feeds) => feeds.iter_mut().try_for_each(OwnQueue::complete),
            Self::Sequenced(queues) => queues.iter_mut().try_for_each(SequencedQueue::complete),
            Self::Stream(stream, _) => stream.output.finish(),
        };
        if let Err(error) = finished {
            end.failure.get_or_insert(error.into());
        }
        match &self {
            Self::Queues(feeds) => feeds.iter().for_each(|feed| end.count(feed.queue())),
            Self::Sequenced(queues) => queues.iter().for_each(|queue| end.count(queue.queue())),
            Self::Stream(stream, _) => end.count(stream),
        }
    }
}

/// The end of a run, or of a part of it before another configuration.
#[derive(Default)]
struct End {
    last: Nanos,
    /// The number after the last packet.
    next: Seq,
    /// True if the cores have stopped to go on with another configuration.
    paused: bool,
    interrupted: bool,
    failure: Option<EngineError>,
    recovery: Option<Recovery>,
    lost: ReceiveLosses,
    sent: Option<TransmitCounts>,
}

impl End {
    /// Keeps the failure that is first in packet order. All replicas fail on the same packet; the one that has its bytes is preferred.
    fn fail(&mut self, error: EngineError) {
        let rank = |failure: &Failure| (failure.seq, failure.packet.is_none());
        let earlier = match (&self.failure, &error) {
            (Some(EngineError::Panicked(old)), EngineError::Panicked(new)) => rank(new) < rank(old),
            (Some(_), _) => false,
            (None, _) => true,
        };
        if earlier {
            self.failure = Some(error);
        }
    }

    /// Adds the outcome of a core.
    fn add(&mut self, run: CoreRun) {
        self.last = self.last.max(run.last);
        self.next = self.next.max(run.next);
        self.paused |= run.paused;
        self.interrupted |= run.interrupted;
        if let Some(failure) = run.failure {
            self.fail(failure);
        }
    }

    /// Adds the losses and recoveries of a core.
    fn recover(&mut self, core: usize, at_core: Option<&(Tally, bool)>) {
        let Some((tally, fenced)) = at_core else { return };
        let recovery = self.recovery.get_or_insert_default();
        recovery.tally.add(tally);
        if *fenced {
            recovery.fenced.push(core);
        }
    }

    /// Adds the counts of a queue, or of one half of a stream.
    fn count(&mut self, queue: &dyn Queue) {
        self.lost.add(&queue.lost());
        if let Some(sent) = queue.sent() {
            self.sent.get_or_insert_default().add(&sent);
        }
    }
}

/// Runs each core on a queue of its own.
fn over_queues<'a, N: NetworkFunction>(
    workers: Vec<&mut dyn AnyWorker<N>>,
    mut feeds: Vec<OwnQueue<'a>>,
    cpus: &[usize],
    control: &Control,
    mail: &Mail<N>,
    end: &mut End,
) -> Vec<OwnQueue<'a>> {
    feeds.iter_mut().for_each(OwnQueue::resume);
    let runs = run_cores(workers, feeds.iter_mut().map(|feed| feed as &mut dyn Feed<N>).collect(), cpus, control, mail);
    runs.into_iter().for_each(|run| end.add(run));
    feeds
}

/// Runs each replica on its queue behind a sequencer.
fn over_sequenced<'a, N: NetworkFunction>(
    nf: &Arc<N>,
    workers: Vec<&mut dyn AnyWorker<N>>,
    mut queues: Vec<SequencedQueue<'a>>,
    cpus: &[usize],
    control: &Control,
    mail: &Mail<N>,
    end: &mut End,
) -> Vec<SequencedQueue<'a>> {
    let mut feeds: Vec<_> = queues.iter_mut().map(|queue| ReplicaFeed::new(Arc::clone(nf), queue)).collect();
    let runs = run_cores(workers, feeds.iter_mut().map(|feed| feed as &mut dyn Feed<N>).collect(), cpus, control, mail);
    runs.into_iter().for_each(|run| end.add(run));
    drop(feeds);
    queues
}

/// The most packets of a batch on a lossy link: the logs must hold all packets under way.
const LINK_BATCH: usize = 4096;

/// Runs all cores on one stream.
#[expect(clippy::too_many_arguments, reason = "each is what a run is made of")]
fn over_stream<'a, N: NetworkFunction>(
    workers: Vec<&mut dyn AnyWorker<N>>,
    dispatcher: &mut Dispatcher<N>,
    stream: Stream<'a>,
    options: &Options,
    cpus: &[usize],
    control: &Control,
    mail: &Mail<N>,
    end: &mut End,
) -> Stream<'a> {
    let cores = workers.len();
    let histories = dispatcher.histories();
    let mut ends = options.link.map(|link| LinkEnd::ends(link, cores, LINK_BATCH, histories).into_iter());
    let turns = Turns::new(stream, dispatcher, cores, options.link.map(|_| LINK_BATCH));
    let feed = |core: usize| turns.feed(core, ends.as_mut().and_then(Iterator::next));
    let mut feeds: Vec<_> = (0..cores).map(feed).collect();
    let runs = run_cores(workers, feeds.iter_mut().map(|feed| feed as &mut dyn Feed<N>).collect(), cpus, control, mail);
    runs.into_iter().for_each(|run| end.add(run));
    feeds.iter().enumerate().for_each(|(core, feed)| end.recover(core, feed.recovery()));
    drop(feeds);
    end.paused &= !turns.is_exhausted();
    turns.into_stream()
}

/// A processor for each core. Empty if there are too few: threads that share a processor are not pinned.
#[must_use]
pub fn processors(pin: bool, cores: usize) -> Vec<usize> {
    let cpus = if pin { cpus() } else { Vec::new() };
    if cpus.len() >= cores { cpus } else { Vec::new() }
}
