//! Runs: an engine between a port's queues, or on a port's one stream.
//!
//! There is one loop ([`run_cores`]), which each core goes round; a [`Feed`] is what it works on.

mod cores;
mod feed;
mod handle;
pub(crate) mod instance;
mod mail;
mod running;
mod sequence;
mod sequenced;
mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use nf::{Function, NetworkFunction, Report};
use packet::Nanos;
use port::{Opened, Port, PortError, Queue, ReceiveLosses, Stream, Transmit, TransmitCounts};

pub use self::cores::{CoreRun, run_cores};
use self::feed::OwnQueue;
pub use self::feed::{Feed, resolve};
pub use self::handle::{Control, CoreProgress};
use self::instance::{
    EngineInstance, Inspect, private_instance, sharded_instance, shared_instance, transacted_instance,
};
pub use self::mail::Mail;
pub use self::running::{Running, start};
pub use self::sequence::{SequencedTotal, sequence};
pub use self::sequenced::run_sequenced;
use self::turns::Turns;
use crate::affinity::cpus;
use crate::counters::Counters;
use crate::error::{EngineError, Failure};
use crate::history::link::LinkEnd;
use crate::history::recovery::Tally;
use crate::kind::EngineKind;
use crate::options::Options;
use crate::placement::Placement;
use crate::placement::transacted::Transactions;
use crate::steer::dispatch::Dispatcher;
use crate::work::any_worker::AnyWorker;
use crate::work::worker::Worker;

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// What happened to packets and flows: every flow that was opened has ended or is alive.
    pub counters: Counters,
    /// The same by core; flows are counted where a core owns them, and as expired once they were reclaimed.
    pub by_core: Vec<Counters>,
    /// The most flows that there ever were at once.
    pub flows_high_water: usize,
    /// The flows alive at the end.
    pub flows_alive: usize,
    /// The memory of all flow tables, in bytes.
    pub memory_bytes: usize,
    /// The time of the last packet.
    pub last: Nanos,
    /// Wall time from the first receive to the last transmit.
    pub elapsed: Duration,
    /// What the function has to tell.
    pub report: Option<Report>,
    /// How often state changed cores.
    pub moved: u64,
    /// Packet sets that are replicated by themselves at the end.
    pub elephants: usize,
    /// The fewest and the most cores that were in use, and how many were at the end, where that followed the load.
    pub cores_in_use: Option<[usize; 3]>,
    /// What loss on the link and its recovery came to, where there was a link to lose anything.
    pub recovery: Option<Recovery>,
    /// What became of transactions, where packet sets share state by them.
    pub transactions: Option<Transactions>,
    /// Whether the run was told to stop before its input ended.
    pub interrupted: bool,
    /// What ended the run early. All that was forwarded before is in the output.
    pub failure: Option<EngineError>,
    /// Packets that the port lost ahead of its queues.
    pub lost: ReceiveLosses,
    /// What became of the packets that were forwarded or answered; `None` where the port doesn't count.
    pub sent: Option<TransmitCounts>,
}

/// What loss on the link and its recovery came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Packets lost, records recovered and from whom, of all cores together.
    pub tally: Tally,
    /// The cores that the others went on without.
    pub fenced: Vec<usize>,
}

/// Runs a function under an engine over a port. The output of a stream is in input order, and is finished whatever happens.
///
/// # Errors
/// [`EngineError::Refused`] when the engine can't run the function, and why the port can't be opened. What goes wrong later is
/// [`Outcome::failure`].
pub fn run<N: Function>(
    nf: Arc<N>,
    kind: EngineKind,
    cores: usize,
    options: &Options,
    port: &mut dyn Port,
    control: &Control,
) -> Result<Outcome, EngineError> {
    run_asked(nf, kind, cores, options, port, control, &Mail::new(cores))
}

/// The same for a run whose cores can be asked.
fn run_asked<N: Function>(
    nf: Arc<N>,
    kind: EngineKind,
    cores: usize,
    options: &Options,
    port: &mut dyn Port,
    control: &Control,
    mail: &Mail<N>,
) -> Result<Outcome, EngineError> {
    kind.accepts(&N::DESCRIPTION, cores).map_err(EngineError::Refused)?;
    options.tables.accepts(&*nf).map_err(EngineError::Refused)?;
    if let Some(link) = &options.link {
        link.accepts(kind, cores).map_err(EngineError::Refused)?;
    }
    match kind {
        EngineKind::Transactional if N::DESCRIPTION.sharing.is_any() => {
            drive(&mut transacted_instance(nf, cores, options), options, port, control, mail)
        }
        EngineKind::Sequential | EngineKind::Rss | EngineKind::Transactional | EngineKind::Scr => {
            drive(&mut private_instance(kind, nf, cores, options), options, port, control, mail)
        }
        EngineKind::RssPlusPlus | EngineKind::Hybrid => {
            drive(&mut sharded_instance(kind, nf, cores, options), options, port, control, mail)
        }
        EngineKind::Shared => drive(&mut shared_instance(nf, cores, options), options, port, control, mail),
    }
}

/// Runs an engine instance over a port, as [`run`] does. The instance keeps its state, to be inspected afterwards.
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
    let opened = port.open(cores)?;
    let cpus = processors(options.pin, cores);
    let start = Instant::now();
    let mut workers: Vec<_> = instance.workers.iter_mut().map(|worker| worker as &mut dyn AnyWorker<N>).collect();
    workers.iter_mut().for_each(|worker| worker.face(sides));
    let end = match opened {
        Opened::Stream(stream) => match workers.as_mut_slice() {
            [_] => over_queues(workers, vec![Box::new(stream)], &cpus, control, mail),
            _ => over_stream(workers, &mut instance.dispatcher, stream, options, &cpus, control, mail),
        },
        Opened::Queues(queues) => {
            if queues.len() < cores {
                return Err(PortError::Queues { have: queues.len(), want: cores }.into());
            }
            if cores > 1 && !instance.kind.takes_queues() {
                return Err(EngineError::Refused(format!(
                    "{} hands each packet to a core by what it has seen before, and this port hands out packets itself; \
                     rss, transactional and shared take such a port",
                    instance.kind
                )));
            }
            over_queues(workers, queues, &cpus, control, mail)
        }
    };
    // Taken here: what follows walks the tables.
    let elapsed = start.elapsed();
    let flows_alive = instance.each_flow(end.last).count();
    let counters = Counters { flows: instance.flow_counters_with(flows_alive), ..instance.counters() };
    let adds_up = counters.add_up() && counters.flows.opened == counters.flows.ended() + flows_alive as u64;
    debug_assert!(
        end.failure.is_some() || adds_up,
        "a packet or a flow is unaccounted for: {flows_alive} of {counters:?}"
    );
    if let (Some(sent), None) = (end.sent, &end.failure) {
        debug_assert_eq!(
            counters.forwarded + counters.replied,
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

/// How the packets came to an end.
#[derive(Default)]
struct End {
    last: Nanos,
    interrupted: bool,
    failure: Option<EngineError>,
    recovery: Option<Recovery>,
    lost: ReceiveLosses,
    sent: Option<TransmitCounts>,
}

impl End {
    /// Keeps the failure that comes first in packet order. Replicas fail on the same packet, one of them with its bytes.
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

    /// Adds what a core came to.
    fn add(&mut self, run: CoreRun) {
        self.last = self.last.max(run.last);
        self.interrupted |= run.interrupted;
        if let Some(failure) = run.failure {
            self.fail(failure);
        }
    }

    /// Adds what loss came to at a core.
    fn recover(&mut self, core: usize, at_core: Option<&(Tally, bool)>) {
        let Some((tally, fenced)) = at_core else { return };
        let recovery = self.recovery.get_or_insert_default();
        recovery.tally.add(tally);
        if *fenced {
            recovery.fenced.push(core);
        }
    }

    /// Adds what a queue, or either half of a stream, says of its packets.
    fn count(&mut self, queue: &dyn Queue) {
        self.lost.add(&queue.lost());
        if let Some(sent) = queue.sent() {
            self.sent.get_or_insert_default().add(&sent);
        }
    }
}

/// Each core on a queue of its own.
fn over_queues<N: NetworkFunction>(
    workers: Vec<&mut dyn AnyWorker<N>>,
    queues: Vec<Box<dyn Queue + '_>>,
    cpus: &[usize],
    control: &Control,
    mail: &Mail<N>,
) -> End {
    let mut feeds: Vec<_> = queues.into_iter().map(OwnQueue::new).collect();
    let runs = run_cores(workers, feeds.iter_mut().map(|feed| feed as &mut dyn Feed<N>).collect(), cpus, control, mail);
    let mut end = End::default();
    runs.into_iter().for_each(|run| end.add(run));
    feeds.iter().for_each(|feed| end.count(feed.queue()));
    end
}

/// Packets of a batch at most where a link may lose some: logs have to hold what is under way.
const LINK_BATCH: usize = 4096;

/// All cores on one stream.
fn over_stream<'a, N: NetworkFunction>(
    workers: Vec<&mut dyn AnyWorker<N>>,
    dispatcher: &'a mut Dispatcher<N>,
    stream: Stream<'a>,
    options: &Options,
    cpus: &[usize],
    control: &Control,
    mail: &Mail<N>,
) -> End {
    let cores = workers.len();
    let histories = dispatcher.histories();
    let mut ends = options.link.map(|link| LinkEnd::ends(link, cores, LINK_BATCH, histories).into_iter());
    let turns = Turns::new(stream, dispatcher, cores, options.link.map(|_| LINK_BATCH));
    let seat = |core: usize| turns.seat(core, ends.as_mut().and_then(Iterator::next));
    let mut seats: Vec<_> = (0..cores).map(seat).collect();
    let runs = run_cores(workers, seats.iter_mut().map(|seat| seat as &mut dyn Feed<N>).collect(), cpus, control, mail);
    let mut end = End::default();
    runs.into_iter().for_each(|run| end.add(run));
    seats.iter().enumerate().for_each(|(core, seat)| end.recover(core, seat.recovery()));
    drop(seats);
    let mut stream = turns.into_stream();
    if let Err(error) = stream.output.finish() {
        end.failure.get_or_insert(error.into());
    }
    end.count(&stream);
    end
}

/// A processor for each core, or none where there are too few: threads that share a processor are not pinned.
#[must_use]
pub fn processors(pin: bool, cores: usize) -> Vec<usize> {
    let cpus = if pin { cpus() } else { Vec::new() };
    if cpus.len() >= cores { cpus } else { Vec::new() }
}
