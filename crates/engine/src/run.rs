//! Runs: a fleet between a port's queues. One queue and several cores need a pump, which splits and merges batches and
//! keeps the output in input order; a queue for each core needs nothing.

use std::any::Any;
use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use nf::{Function, NetworkFunction, Report};
use packet::{Nanos, Seq};
use port::{Batch, Fate, Queue, Received};

use crate::affinity::{cpus, pin};
use crate::any_worker::AnyWorker;
use crate::counters::Counters;
use crate::dispatch::{Dispatcher, Parcel};
use crate::error::{EngineError, Failure};
use crate::fleet::{
    Fleet, Options, Remains, any_private_fleet, any_sharded_fleet, private_fleet, sharded_fleet, shared_fleet,
    transacted_fleet,
};
use crate::history::{Log, Script};
use crate::kind::EngineKind;
use crate::link::LinkEnd;
use crate::placement::Placement;
use crate::recovery::Tally;
use crate::transacted::Transactions;
use crate::worker::Worker;

/// The outside's hold on a run.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Set to end the run: what was received is finished, nothing more is taken.
    pub stop: Arc<AtomicBool>,
    /// How many packets have been taken in so far.
    pub packets: Arc<AtomicU64>,
}

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
}

/// What loss on the link and its recovery came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Packets lost, records recovered and from whom, of all cores together.
    pub tally: Tally,
    /// The cores that the others went on without.
    pub fenced: Vec<usize>,
}

/// Runs a function under an engine over one queue. The output is in input order, and is finished whatever happens.
///
/// # Errors
/// [`EngineError::Refused`] when the engine can't run the function. What goes wrong later is [`Outcome::failure`].
pub fn run<N: Function>(
    nf: Arc<N>,
    kind: EngineKind,
    cores: usize,
    options: &Options,
    queue: &mut dyn Queue,
    control: &Control,
) -> Result<Outcome, EngineError> {
    kind.accepts(&N::DESCRIPTION, cores).map_err(EngineError::Refused)?;
    options.tables.accepts(&*nf).map_err(EngineError::Refused)?;
    if let Some(link) = &options.link {
        link.accepts(kind, cores).map_err(EngineError::Refused)?;
    }
    Ok(match (kind, options.chooses_index()) {
        (EngineKind::Transactional, _) if N::DESCRIPTION.sharing.is_any() => {
            drive(&mut transacted_fleet(nf, cores, options), options, queue, control)
        }
        (EngineKind::Sequential | EngineKind::Rss | EngineKind::Transactional | EngineKind::Scr, false) => {
            drive(&mut private_fleet(kind, nf, cores, options), options, queue, control)
        }
        (EngineKind::Sequential | EngineKind::Rss | EngineKind::Transactional | EngineKind::Scr, true) => {
            drive(&mut any_private_fleet(kind, nf, cores, options), options, queue, control)
        }
        (EngineKind::RssPlusPlus | EngineKind::Hybrid, false) => {
            drive(&mut sharded_fleet(kind, nf, cores, options), options, queue, control)
        }
        (EngineKind::RssPlusPlus | EngineKind::Hybrid, true) => {
            drive(&mut any_sharded_fleet(kind, nf, cores, options), options, queue, control)
        }
        (EngineKind::Shared, _) => drive(&mut shared_fleet(nf, cores, options), options, queue, control),
    })
}

/// What one core did over a queue of its own.
#[derive(Clone, Debug)]
pub struct CoreRun {
    /// What it did.
    pub counters: Counters,
    /// From the common start to its last packet.
    pub elapsed: Duration,
}

/// What cores know of a trace that is replayed to each by a queue of its own.
#[derive(Debug)]
pub struct Course<'a, M> {
    /// What a sequencer would hand out over one pass.
    pub script: &'a Script<M>,
    /// Packets in a pass.
    pub packets: usize,
    /// How much later each pass is.
    pub span: Nanos,
    /// The number behind the last packet of all.
    pub end: Seq,
    /// Which core the first of the workers is.
    pub first: usize,
}

/// Runs workers, each over a queue of its own, from a common start until every queue has ended, and on to the course's end.
///
/// # Errors
/// The first port's error.
///
/// # Panics
/// When there are not as many queues as workers, or when the function panics.
pub fn run_queues<N: NetworkFunction, P: Placement<N>>(
    workers: &mut [Worker<N, P>],
    queues: Vec<Box<dyn Queue>>,
    course: Option<&Course<'_, N::Meta>>,
    options: &Options,
) -> Result<Vec<CoreRun>, EngineError> {
    run_workers(workers.iter_mut().map(|worker| worker as &mut dyn AnyWorker<N>).collect(), queues, course, options)
}

/// The same for workers whose placement is not known.
///
/// # Errors
/// As [`run_queues`].
///
/// # Panics
/// As [`run_queues`] does.
pub fn run_workers<N: NetworkFunction>(
    workers: Vec<&mut dyn AnyWorker<N>>,
    queues: Vec<Box<dyn Queue>>,
    course: Option<&Course<'_, N::Meta>>,
    options: &Options,
) -> Result<Vec<CoreRun>, EngineError> {
    assert_eq!(queues.len(), workers.len(), "one queue for each core");
    let barrier = Barrier::new(queues.len());
    let cpus = processors(options, queues.len());
    thread::scope(|scope| {
        let cores: Vec<_> = workers
            .into_iter()
            .zip(queues)
            .enumerate()
            .map(|(core, (worker, queue))| {
                let (barrier, cpu) = (&barrier, cpus.get(core).copied());
                scope.spawn(move || {
                    cpu.map(pin);
                    barrier.wait();
                    poll(core, worker, queue, course)
                })
            })
            .collect();
        cores.into_iter().map(|core| core.join().expect("a function that panics ends the measurement")).collect()
    })
}

fn poll<'a, N: NetworkFunction>(
    core: usize,
    worker: &mut dyn AnyWorker<N>,
    mut queue: Box<dyn Queue>,
    course: Option<&Course<'a, N::Meta>>,
) -> Result<CoreRun, EngineError> {
    let mut batch = Batch::default();
    let log_of = |course: &Course<'a, N::Meta>| {
        let log = Log::of_loop(course.script, course.packets, course.span, worker.next());
        log.with_mice(course.script.mice_of(course.first + core), worker.next())
    };
    let mut log = course.map(log_of);
    let start = Instant::now();
    loop {
        match queue.receive(&mut batch)? {
            Received::Packets => {}
            Received::Idle => continue,
            Received::End => break,
        }
        match (&mut log, batch.packets().last()) {
            (Some(log), Some(last)) => {
                let end = last.seq.next();
                worker.process_with(&mut batch, log, end);
            }
            (Some(_), None) | (None, _) => worker.process(&mut batch),
        }
        queue.transmit(&mut batch)?;
    }
    if let (Some(log), Some(course)) = (&mut log, course) {
        batch.clear();
        worker.process_with(&mut batch, log, course.end);
    }
    queue.finish()?;
    // Taken here: to gather counters from many tables is no packet's work.
    let elapsed = start.elapsed();
    Ok(CoreRun { counters: worker.counters(), elapsed })
}

/// How many batches may be under way at once: one being read, one being worked on, one being written, one to spare.
const FLIGHTS: usize = 4;
/// Packets of a batch at most where a link may lose some: logs have to hold what is under way.
const LINK_BATCH: usize = 4096;

/// Runs a fleet over one queue, as [`run`] does; the fleet's state stays to be looked at.
pub fn drive<N: NetworkFunction, P: Placement<N>>(
    fleet: &mut Fleet<N, P>,
    options: &Options,
    queue: &mut dyn Queue,
    control: &Control,
) -> Outcome
where
    Fleet<N, P>: Remains<N>,
{
    let start = Instant::now();
    let mut end = match fleet.workers.as_mut_slice() {
        [worker] => alone(worker, queue, control, options),
        workers => {
            let mut workers: Vec<_> = workers.iter_mut().map(|worker| worker as &mut dyn AnyWorker<N>).collect();
            pump(&mut workers, &mut fleet.dispatcher, queue, control, options)
        }
    };
    if let Err(error) = queue.finish() {
        end.failure.get_or_insert(error.into());
    }
    // Taken here: what follows walks the tables.
    let elapsed = start.elapsed();
    let counters = Counters { flows: fleet.flow_counters_at(end.last), ..fleet.counters() };
    let flows_alive = fleet.flows(end.last).len();
    let adds_up = counters.add_up() && counters.flows.opened == counters.flows.ended() + flows_alive as u64;
    debug_assert!(
        end.failure.is_some() || adds_up,
        "a packet or a flow is unaccounted for: {flows_alive} of {counters:?}"
    );
    Outcome {
        flows_high_water: fleet.high_water(),
        flows_alive,
        memory_bytes: fleet.memory_bytes(),
        report: fleet.report(end.last),
        moved: fleet.dispatcher.moved(),
        elephants: fleet.dispatcher.elephants(),
        cores_in_use: fleet.dispatcher.cores_in_use(),
        recovery: end.recovery,
        transactions: fleet.transactions(),
        by_core: fleet.workers.iter().map(Worker::counters).collect(),
        counters,
        last: end.last,
        elapsed,
        interrupted: end.interrupted,
        failure: end.failure,
    }
}

/// How the packets came to an end.
#[derive(Default)]
struct End {
    last: Nanos,
    interrupted: bool,
    failure: Option<EngineError>,
    recovery: Option<Recovery>,
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

    /// Adds what loss came to at a core.
    fn recover(&mut self, core: usize, at_core: Option<(Tally, bool)>) {
        let Some((tally, fenced)) = at_core else { return };
        let recovery = self.recovery.get_or_insert_default();
        recovery.tally.add(&tally);
        if fenced {
            recovery.fenced.push(core);
        }
    }

    /// Takes the next batch in; `false` when there is nothing more to take.
    fn take(&mut self, queue: &mut dyn Queue, batch: &mut Batch, control: &Control) -> bool {
        loop {
            // ORDERING: Relaxed. The flag carries no data; it is seen soon enough.
            if control.stop.load(Ordering::Relaxed) {
                self.interrupted = true;
                return false;
            }
            match queue.receive(batch) {
                Ok(Received::Packets) => break,
                Ok(Received::Idle) => thread::yield_now(),
                Ok(Received::End) => return false,
                Err(error) => {
                    self.fail(error.into());
                    return false;
                }
            }
        }
        if let Some(packet) = batch.packets().last() {
            self.last = packet.time;
        }
        // ORDERING: Relaxed. A number for a progress bar.
        control.packets.fetch_add(batch.len() as u64, Ordering::Relaxed);
        true
    }
}

/// One core, which reads, works and writes by itself.
fn alone<N: NetworkFunction>(
    worker: &mut dyn AnyWorker<N>,
    queue: &mut dyn Queue,
    control: &Control,
    options: &Options,
) -> End {
    let mut end = End::default();
    let mut batch = Batch::default();
    if let Some(&cpu) = processors(options, 1).first() {
        pin(cpu);
    }
    while end.failure.is_none() && end.take(queue, &mut batch, control) {
        if let Err(failure) = guarded(0, worker, &mut batch, |worker, batch| worker.process(batch)) {
            end.fail(EngineError::Panicked(Box::new(failure)));
        }
        if let Err(error) = queue.transmit(&mut batch) {
            end.fail(error.into());
        }
    }
    end
}

/// A batch that is under way, or a spare one.
struct Flight<M> {
    parcels: Vec<Parcel<M>>,
    /// Which cores' parcels are with their core.
    out: Vec<bool>,
}

impl<M> Flight<M> {
    fn new(cores: usize) -> Self {
        Self { parcels: (0..cores).map(|_| Parcel::default()).collect(), out: vec![false; cores] }
    }

    fn send(&mut self, inputs: &[SyncSender<Parcel<M>>]) {
        for ((input, parcel), out) in inputs.iter().zip(&mut self.parcels).zip(&mut self.out) {
            *out = true;
            assert!(input.send(mem::take(parcel)).is_ok(), "a worker serves until its input ends");
        }
    }

    fn put_back(&mut self, core: usize, parcel: Parcel<M>) {
        self.parcels[core] = parcel;
        self.out[core] = false;
    }

    fn is_back(&self) -> bool {
        !self.out.contains(&true)
    }
}

/// A parcel that comes back.
struct Returned<M> {
    core: usize,
    parcel: Parcel<M>,
    failure: Option<Failure>,
}

/// Several cores behind one queue.
fn pump<N: NetworkFunction>(
    workers: &mut [&mut dyn AnyWorker<N>],
    dispatcher: &mut Dispatcher<N>,
    queue: &mut dyn Queue,
    control: &Control,
    options: &Options,
) -> End {
    let cores = workers.len();
    let cpus = processors(options, cores);
    thread::scope(|scope| {
        let (back, returns) = sync_channel(FLIGHTS * cores);
        let histories = dispatcher.histories();
        let mut ends = options.link.map(|link| LinkEnd::ends(link, cores, FLIGHTS * LINK_BATCH, histories).into_iter());
        let (inputs, threads): (Vec<SyncSender<Parcel<N::Meta>>>, Vec<_>) = workers
            .iter_mut()
            .enumerate()
            .map(|(core, worker)| {
                let (input, parcels) = sync_channel(FLIGHTS);
                let (back, cpu) = (back.clone(), cpus.get(core).copied());
                let link = ends.as_mut().and_then(Iterator::next);
                let thread = scope.spawn(move || {
                    cpu.map(pin);
                    serve(core, &mut **worker, link, &parcels, &back)
                });
                (input, thread)
            })
            .unzip();
        let mut end = End::default();
        let mut batch = Batch::default();
        let mut merged = Batch::default();
        let mut heads = vec![0; cores];
        let mut spare: Vec<Flight<N::Meta>> = (0..FLIGHTS).map(|_| Flight::new(cores)).collect();
        let mut flights: VecDeque<Flight<N::Meta>> = VecDeque::with_capacity(FLIGHTS);
        let mut open = true;
        loop {
            while open && !spare.is_empty() {
                open = end.failure.is_none() && end.take(queue, &mut batch, control);
                if options.link.is_some() && batch.len() > LINK_BATCH {
                    open = false;
                    end.fail(EngineError::Refused(format!(
                        "the port delivers {} packets at a time, and a link that can lose some takes {LINK_BATCH}",
                        batch.len()
                    )));
                }
                if open && let Some(mut flight) = spare.pop() {
                    dispatcher.split(&batch, &mut flight.parcels);
                    flight.send(&inputs);
                    flights.push_back(flight);
                }
            }
            if flights.is_empty() {
                drop(inputs);
                for (core, thread) in threads.into_iter().enumerate() {
                    let at_core = thread.join().expect("a function's panic is caught where it is called");
                    end.recover(core, at_core);
                }
                return end;
            }
            let Returned { core, parcel, failure } = returns.recv().expect("a worker returns every parcel");
            if let Some(failure) = failure {
                end.fail(EngineError::Panicked(Box::new(failure)));
            }
            let flight = flights.iter_mut().find(|flight| flight.out[core]);
            flight.expect("a core returns its parcels in order").put_back(core, parcel);
            while flights.front().is_some_and(Flight::is_back) {
                let flight = flights.pop_front().expect("there is a front");
                merge(&flight.parcels, &mut heads, &mut merged);
                if let Err(error) = queue.transmit(&mut merged) {
                    end.fail(error.into());
                }
                spare.push(flight);
            }
        }
    })
}

/// A worker's thread: it returns every parcel, the failed one with what happened, later ones untouched. At the end, what
/// the link lost and recovery brought back, and whether the others went on without this core.
fn serve<N: NetworkFunction>(
    core: usize,
    worker: &mut dyn AnyWorker<N>,
    mut link: Option<LinkEnd<N::Meta>>,
    parcels: &Receiver<Parcel<N::Meta>>,
    back: &SyncSender<Returned<N::Meta>>,
) -> Option<(Tally, bool)> {
    let (mut failed, mut sent) = (false, Seq(0));
    for mut parcel in parcels {
        let mut failure = None;
        let block = parcel.block.take();
        // Another core's failure is told by itself.
        failed |= !failed && block.as_ref().is_some_and(|block| !worker.hand_over(&block.moves()));
        if !failed {
            sent = block.as_ref().map_or(sent, |block| block.end);
            let Parcel { batch, mice, .. } = &mut parcel;
            let result = guarded(core, worker, batch, |worker, batch| match (&block, &mut link) {
                // That the others went on without this core is told at the end; until then its packets are dropped and counted.
                (Some(block), Some(link)) => drop(link.process(worker, batch, block)),
                (Some(block), None) => {
                    worker.process_with(batch, &mut Log::of_block(block).with_mice(mice, block.first), block.end);
                }
                (None, _) => worker.process(batch),
            });
            failure = result.err();
            failed = failure.is_some();
        }
        if failed {
            worker.fail();
            // Its end leaves, so that nobody waits for it.
            link = None;
        }
        drop(block);
        if back.send(Returned { core, parcel, failure }).is_err() {
            return None;
        }
    }
    let (tally, outcome) = link?.finish(worker, sent);
    Some((tally, outcome.is_err()))
}

/// Processes a batch; a panic of the function becomes a failure that names its packet.
fn guarded<N: NetworkFunction>(
    core: usize,
    worker: &mut dyn AnyWorker<N>,
    batch: &mut Batch,
    process: impl FnOnce(&mut dyn AnyWorker<N>, &mut Batch),
) -> Result<(), Failure> {
    // After a panic the worker's state is used for nothing but its counters and what waits without a need of what was left half done.
    let mut result = caught(core, worker, batch, process);
    if let Err(failure) = &mut result {
        // What was left for later came ahead, and so does its panic.
        let earlier = caught(core, worker, batch, |worker, batch| worker.decide_left(batch));
        if let Some(earlier) = earlier.err().filter(|earlier| earlier.seq < failure.seq) {
            *failure = earlier;
        }
    }
    result
}

fn caught<N: NetworkFunction>(
    core: usize,
    worker: &mut dyn AnyWorker<N>,
    batch: &mut Batch,
    process: impl FnOnce(&mut dyn AnyWorker<N>, &mut Batch),
) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(|| process(worker, batch))).map_err(|panic| Failure {
        core,
        seq: worker.position(),
        message: message(&*panic),
        packet: worker.failed_packet(batch),
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// Puts the packets of all parcels that go out into one batch, in arrival order.
fn merge<M>(parcels: &[Parcel<M>], heads: &mut [usize], merged: &mut Batch) {
    merged.clear();
    heads.fill(0);
    loop {
        let next = parcels.iter().zip(&*heads).enumerate();
        let next = next.filter_map(|(core, (parcel, &head))| Some((parcel.batch.packets().get(head)?.seq, core))).min();
        let Some((_, core)) = next else { return };
        let index = heads[core];
        heads[core] += 1;
        let packet = parcels[core].batch.packets()[index];
        if let Fate::Transmit(_) = packet.fate {
            merged.push(packet, parcels[core].batch.bytes(index));
        }
    }
}

/// A processor for each core, or none where there are too few: threads that share a processor are not pinned.
pub(crate) fn processors(options: &Options, cores: usize) -> Vec<usize> {
    let cpus = if options.pin { cpus() } else { Vec::new() };
    if cpus.len() >= cores { cpus } else { Vec::new() }
}
