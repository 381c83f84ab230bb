//! The run's loop: one for each core, over any feed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use nf::NetworkFunction;
use packet::{Nanos, Seq};
use port::{Batch, Received};

use super::feed::Feed;
use super::handle::{Control, Published};
use super::mail::Mail;
use crate::affinity::pin;
use crate::counters::Counters;
use crate::error::{EngineError, Failure};
use crate::work::any_worker::AnyWorker;

/// The outcome of one core.
#[derive(Debug)]
pub struct CoreRun {
    /// The core's counters.
    pub counters: Counters,
    /// From the common start to the core's last packet.
    pub elapsed: Duration,
    /// The time of the core's last packet, or a later time that the port reported.
    pub last: Nanos,
    /// The number after the core's last packet.
    pub next: Seq,
    /// True if the core was told to stop before its input ended.
    pub interrupted: bool,
    /// True if the core has stopped to go on with another configuration.
    pub(super) paused: bool,
    /// What went wrong on this core.
    pub failure: Option<EngineError>,
}

/// How long an idle core waits before it checks again for a stop or for mail.
const WAIT: Duration = Duration::from_millis(50);
/// The same, while cores that are to stop go on until all are ready.
const SHORT_WAIT: Duration = Duration::from_micros(20);

/// Runs workers, each on its feed, from a common start until every feed has ended. `cpus` has the processor of each core; it is empty if
/// threads aren't pinned.
///
/// # Panics
/// If there are not as many feeds as workers.
pub fn run_cores<N: NetworkFunction>(
    workers: Vec<&mut dyn AnyWorker<N>>,
    feeds: Vec<&mut dyn Feed<N>>,
    cpus: &[usize],
    control: &Control,
    mail: &Mail<N>,
) -> Vec<CoreRun> {
    assert_eq!(feeds.len(), workers.len(), "a feed for each core");
    let published = control.publishers(workers.len());
    mail.succession.begin();
    let cores = workers.len();
    let barrier = Barrier::new(cores);
    thread::scope(|scope| {
        let parts = workers.into_iter().zip(feeds).zip(published).enumerate();
        let threads: Vec<_> = parts
            .map(|(core, ((worker, feed), published))| {
                let (barrier, cpu) = (&barrier, cpus.get(core).copied());
                scope.spawn(move || {
                    cpu.map(pin);
                    barrier.wait();
                    let mut pause = Pause { mail, cores, is_ready: false };
                    let run = || serve(core, worker, feed, control, published, mail, &mut pause);
                    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
                        worker.fail();
                        feed.abandon();
                        resume_unwind(panic)
                    })
                })
            })
            .collect();
        threads.into_iter().map(|core| core.join().expect("a function's panic is caught where it is called")).collect()
    })
}

/// A core's part in stopping all cores for a request. A core that ends is ready.
struct Pause<'a, N: NetworkFunction> {
    mail: &'a Mail<N>,
    cores: usize,
    is_ready: bool,
}

impl<N: NetworkFunction> Pause<'_, N> {
    /// True if all cores have said that they are ready.
    fn are_ready(&mut self) -> bool {
        self.say_ready();
        self.mail.succession.are_ready(self.cores)
    }

    fn say_ready(&mut self) {
        if !std::mem::replace(&mut self.is_ready, true) {
            self.mail.succession.is_ready();
        }
    }
}

impl<N: NetworkFunction> Drop for Pause<'_, N> {
    fn drop(&mut self) {
        self.say_ready();
    }
}

/// One core's loop. Not inlined: profilers recognise a core's samples by this function.
#[inline(never)]
fn serve<N: NetworkFunction>(
    core: usize,
    worker: &mut dyn AnyWorker<N>,
    feed: &mut dyn Feed<N>,
    control: &Control,
    published: &Published,
    mail: &Mail<N>,
    pause: &mut Pause<'_, N>,
) -> CoreRun {
    let mut batch = Batch::default();
    let mut run = CoreRun {
        counters: Counters::default(),
        elapsed: Duration::ZERO,
        last: Nanos(0),
        next: Seq(0),
        interrupted: false,
        paused: false,
        failure: None,
    };
    let mut panicked = false;
    let start = Instant::now();
    loop {
        let stops = control.is_stopping();
        let is_due = mail.succession.is_due();
        if (stops || is_due && pause.are_ready()) && !(run.interrupted || run.paused) {
            (run.interrupted, run.paused) = (stops, !stops);
            feed.close();
        }
        if mail.has_come(core) && !panicked {
            worker.recall();
            mail.read(core, worker);
        }
        match feed.receive(&mut batch) {
            Ok(Received::Packets) => {}
            Ok(Received::Idle) => {
                let last = run.last;
                let aged = if panicked {
                    Ok(false)
                } else {
                    caught(core, worker, &mut batch, |worker, _| feed.idle(worker, last))
                };
                match aged {
                    // If there are more flows to end, look for packets first and don't wait.
                    Ok(true) => {}
                    Ok(false) => {
                        // A card may have taken packets meanwhile.
                        published.publish(worker.tally());
                        let begun = Instant::now();
                        run.keep(feed.wait(if is_due { SHORT_WAIT } else { WAIT }), feed);
                        published.add_idle(begun.elapsed());
                    }
                    Err(failure) => {
                        panicked = true;
                        run.panicked(failure, worker, feed);
                    }
                }
                continue;
            }
            Ok(Received::End) => {
                // Another core may have closed the common input for a request.
                run.paused |= !run.interrupted && mail.succession.is_due();
                break;
            }
            Err(error) => {
                run.keep(Err(error), feed);
                continue;
            }
        }
        if let Some(last) = batch.packets().last() {
            run.last = run.last.max(last.time);
            run.next = run.next.max(last.seq.next());
        }
        if !panicked {
            match guarded(core, worker, feed, &mut batch) {
                Ok(result) => run.keep(result, feed),
                Err(failure) => {
                    panicked = true;
                    run.panicked(failure, worker, feed);
                }
            }
        }
        let handed_on = feed.transmit(&mut batch);
        run.keep(handed_on, feed);
        published.publish(worker.tally());
    }
    batch.clear();
    if !panicked {
        worker.recall();
    }
    run.last = run.last.max(feed.aged().unwrap_or_default());
    if !run.paused {
        let finished = feed.finish(worker, &mut batch);
        run.keep(finished, feed);
        mail.close(core);
    }
    // Measured before the flow counters are summed up over tables, which is no packet's work.
    run.elapsed = start.elapsed();
    published.publish(worker.tally());
    run.counters = worker.counters();
    run
}

impl CoreRun {
    /// Handles a panic of the function: the worker decides nothing more.
    fn panicked<N: NetworkFunction>(
        &mut self,
        failure: Failure,
        worker: &mut dyn AnyWorker<N>,
        feed: &mut dyn Feed<N>,
    ) {
        self.keep(Err(EngineError::Panicked(Box::new(failure))), feed);
        worker.fail();
        feed.fail();
    }

    /// Keeps the first failure and stops the intake.
    fn keep<N: NetworkFunction>(&mut self, result: Result<(), EngineError>, feed: &mut dyn Feed<N>) {
        if let Err(error) = result {
            feed.close();
            self.failure.get_or_insert(error);
        }
    }
}

/// Processes a batch. A panic of the function becomes a failure that names its packet.
fn guarded<N: NetworkFunction>(
    core: usize,
    worker: &mut dyn AnyWorker<N>,
    feed: &mut dyn Feed<N>,
    batch: &mut Batch,
) -> Result<Result<(), EngineError>, Failure> {
    // After a panic, the worker is only used for its counters and for undecided packets before the panic, which don't depend on what it
    // left half done.
    let mut result = caught(core, worker, batch, |worker, batch| feed.process(worker, batch));
    if let Err(failure) = &mut result {
        // Deferred packets come first in packet order, and so does a panic on one of them.
        let earlier = caught(core, worker, batch, |worker, batch| worker.decide_unfinished(batch));
        if let Some(earlier) = earlier.err().filter(|earlier| earlier.seq < failure.seq) {
            *failure = earlier;
        }
    }
    result
}

fn caught<N: NetworkFunction, R>(
    core: usize,
    worker: &mut dyn AnyWorker<N>,
    batch: &mut Batch,
    process: impl FnOnce(&mut dyn AnyWorker<N>, &mut Batch) -> R,
) -> Result<R, Failure> {
    catch_unwind(AssertUnwindSafe(|| process(worker, batch))).map_err(|panic| Failure {
        core,
        seq: worker.position(),
        message: message(&*panic),
        packet: worker.failed_packet(batch),
    })
}

pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
