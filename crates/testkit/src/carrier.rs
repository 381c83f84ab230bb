//! Compares the piggyback path with the plain one: a trace is sequenced, replicas run over the sequenced packets, and their outcome is
//! compared with that of `sequential` on the trace.

use std::sync::Arc;

use engine::carrier::{LateTime, Outer, Sequencer};
use engine::{Control, Counters, EngineError, EngineKind, Options, Outcome, Recovery, run, run_sequenced};
use nf::{Function, Report};
use packet::Nanos;
use port::{MemoryQueue, Packet, Sent, Trace};

/// The outcome of a run that must not depend on the path of its packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Came {
    /// The packets sent, in order.
    pub sent: Vec<Sent>,
    /// The counters, without replayed records.
    pub counters: Counters,
    /// The flows alive at the end.
    pub alive: usize,
    /// Maximum number of flows at a time.
    pub high_water: usize,
    /// The time of the last packet.
    pub last: Nanos,
    /// The function's report.
    pub report: Option<Report>,
    /// Recovery from loss, if packets may be missing.
    pub recovery: Option<Recovery>,
}

/// Packets delivered at a time: several for each core, often unequal numbers.
const BURST: usize = 13;

/// Returns the trace as a sequencer sends it to `cores` cores.
///
/// # Errors
/// The first packet with a time that the carrier can't encode.
///
/// # Panics
/// If `cores` is less than two.
pub fn sequenced<N: Function>(nf: &Arc<N>, trace: &Trace, cores: usize, outer: Outer) -> Result<Trace, LateTime> {
    let mut sequencer = Sequencer::new(Arc::clone(nf), cores, outer);
    let (mut frames, mut frame) = (Trace::new(), Vec::new());
    for (packet, bytes) in trace.iter() {
        sequencer.sequence(packet, bytes, &mut frame)?;
        let wire_len = packet.wire_len.saturating_add(sequencer.overhead() as u32);
        frames.push(Packet { link: outer.link(), wire_len, ..*packet }, &frame);
    }
    Ok(frames)
}

/// Runs `sequential` over the trace.
///
/// # Panics
/// If it refuses the function, or the function panics.
#[must_use]
pub fn plain<N: Function>(nf: &Arc<N>, trace: &Trace, options: &Options) -> Came {
    let mut queue = MemoryQueue::new(Arc::new(trace.clone()), BURST);
    let outcome = run(Arc::clone(nf), EngineKind::Sequential, 1, options, &mut queue, &Control::default());
    let outcome = outcome.expect("sequential takes every function");
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    came(&queue, outcome).0
}

/// Runs `cores` replicas over sequenced packets. Returns the outcome, and the error that ended the run early.
///
/// # Panics
/// If `cores` is less than two.
#[must_use]
pub fn replicas<N: Function>(
    nf: &Arc<N>,
    frames: &Trace,
    cores: usize,
    options: &Options,
) -> (Came, Option<EngineError>) {
    let mut queue = MemoryQueue::new(Arc::new(frames.clone()), BURST);
    let outcome = run_sequenced(Arc::clone(nf), cores, options, &mut queue, &Control::default());
    came(&queue, outcome.expect("replicas take every function"))
}

fn came(queue: &MemoryQueue, outcome: Outcome) -> (Came, Option<EngineError>) {
    let Outcome { counters, flows_alive, flows_high_water, last, report, recovery, failure, .. } = outcome;
    let came = Came {
        sent: queue.outbox().take(),
        counters: Counters { replayed: 0, ..counters },
        alive: flows_alive,
        high_water: flows_high_water,
        last,
        report,
        recovery,
    };
    (came, failure)
}
