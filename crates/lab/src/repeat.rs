//! Runs rounds of a function under `transactional` for as long as the caller wants, for example while a sampler watches.

use std::sync::Arc;
use std::time::Duration;

use engine::{EngineInstance, EngineKind, Inspect, Placement, private_instance, transacted_instance};
use nf::Function;
use port::Trace;

use crate::bench::BenchError;
use crate::profile::ProfilePlan;
use crate::replay::replay_queues;

/// Totals of the rounds so far.
#[derive(Clone, Debug, Default)]
pub struct Repeated {
    /// Number of rounds.
    pub rounds: u64,
    /// Packets, over all rounds and cores.
    pub packets: u64,
    /// Sum over rounds of the time of the slowest core.
    pub elapsed: Duration,
}

/// Runs a function over a trace under `transactional` without recording, as [`profile`](crate::profile()) does, in rounds of the plan's
/// packets. Before each round, `more` gets the totals so far and returns whether to run another one. The plan's number of rounds is
/// ignored.
///
/// # Errors
/// The engine doesn't support the function, there are too few processors, or the trace can't be replayed.
pub fn repeat<N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    plan: &ProfilePlan,
    more: &mut dyn FnMut(&Repeated) -> bool,
) -> Result<Repeated, BenchError> {
    plan.accepts(&**nf)?;
    if nf.description().sharing.is_any() {
        rounds(transacted_instance(Arc::clone(nf), plan.cores, &plan.options), trace, plan, more)
    } else {
        rounds(
            private_instance(EngineKind::Transactional, Arc::clone(nf), plan.cores, &plan.options),
            trace,
            plan,
            more,
        )
    }
}

fn rounds<N: Function, P: Placement<N>>(
    mut instance: EngineInstance<N, P>,
    trace: &Arc<Trace>,
    plan: &ProfilePlan,
    more: &mut dyn FnMut(&Repeated) -> bool,
) -> Result<Repeated, BenchError>
where
    EngineInstance<N, P>: Inspect<N>,
{
    let mut replay = plan.replay(&mut instance.dispatcher, trace);
    let mut repeated = Repeated::default();
    while more(&repeated) {
        let cores = replay_queues(&mut instance.workers, replay.queues(plan.cores), None)?;
        repeated.rounds += 1;
        repeated.packets = cores.iter().map(|core| core.counters.received).sum();
        repeated.elapsed += cores.iter().map(|core| core.elapsed).max().unwrap_or_default();
    }
    Ok(repeated)
}
