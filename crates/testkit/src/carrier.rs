//! The piggyback path held against the plain one: a trace is sequenced, replicas run over what came of it, and all that they
//! do is compared with what `sequential` does with the trace itself.

use std::sync::Arc;

use engine::carrier::{LateTime, Outer, Sequencer};
use engine::{Control, Counters, EngineError, EngineKind, Options, Outcome, Recovery, run, run_sequenced};
use nf::{Function, Report};
use packet::Nanos;
use port::{MemoryQueue, Packet, Sent, Trace};

/// What a run came to, as far as the path that its packets took must not tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Came {
    /// What was sent, in order.
    pub sent: Vec<Sent>,
    /// What happened to packets and flows; replayed records are left out.
    pub counters: Counters,
    /// The flows alive at the end.
    pub alive: usize,
    /// The most flows that there were at once.
    pub high_water: usize,
    /// The time of the last packet.
    pub last: Nanos,
    /// What the function has to tell.
    pub report: Option<Report>,
    /// What loss came to, where packets may be missing.
    pub recovery: Option<Recovery>,
}

/// Packets that are delivered at a time: several for each core, and often not as many for each.
const BURST: usize = 13;

/// The trace as a sequencer sends it to so many cores.
///
/// # Errors
/// The first packet whose time a carrier can't tell.
///
/// # Panics
/// For fewer than two cores.
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

/// What `sequential` does with the trace.
///
/// # Panics
/// When it doesn't take the function, or the function panics.
#[must_use]
pub fn plain<N: Function>(nf: &Arc<N>, trace: &Trace, options: &Options) -> Came {
    let mut queue = MemoryQueue::new(Arc::new(trace.clone()), BURST);
    let outcome = run(Arc::clone(nf), EngineKind::Sequential, 1, options, &mut queue, &Control::default());
    let outcome = outcome.expect("sequential takes every function");
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    came(&queue, outcome).0
}

/// What so many replicas do with sequenced packets, and what ended that early.
///
/// # Panics
/// For fewer than two cores.
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
