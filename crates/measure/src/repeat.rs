//! Rounds of a function under `transactional`, for as long as somebody who watches from outside wants more of them.

use std::sync::Arc;
use std::time::Duration;

use engine::{EngineInstance, EngineKind, Inspect, Placement, private_instance, transacted_instance};
use nf::Function;
use port::Trace;

use crate::bench::BenchError;
use crate::profile::ProfilePlan;
use crate::replay::replay_queues;

/// What rounds came to.
#[derive(Clone, Debug, Default)]
pub struct Repeated {
    /// How many there were.
    pub rounds: u64,
    /// Packets, over all rounds and cores.
    pub packets: u64,
    /// How long they took, each as long as its slowest core.
    pub elapsed: Duration,
}

/// Runs a function over a trace under `transactional` without recording, as [`profile`](crate::profile()) does, in rounds of the
/// plan's packets. Ahead of each, `more` is told what there was so far, and says whether there is another; how many the plan
/// has doesn't matter.
///
/// # Errors
/// When the engine can't run it, there are too few processors, or the trace can't be replayed.
pub fn repeat<N: Function>(
    nf: &Arc<N>,
    trace: &Arc<Trace>,
    plan: &ProfilePlan,
    more: &mut dyn FnMut(&Repeated) -> bool,
) -> Result<Repeated, BenchError> {
    plan.accepts(&**nf)?;
    if N::DESCRIPTION.sharing.is_any() {
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
    mut fleet: EngineInstance<N, P>,
    trace: &Arc<Trace>,
    plan: &ProfilePlan,
    more: &mut dyn FnMut(&Repeated) -> bool,
) -> Result<Repeated, BenchError>
where
    EngineInstance<N, P>: Inspect<N>,
{
    let mut replay = plan.replay(&mut fleet.dispatcher, trace);
    let mut repeated = Repeated::default();
    while more(&repeated) {
        let cores = replay_queues(&mut fleet.workers, replay.queues(plan.cores), None)?;
        repeated.rounds += 1;
        repeated.packets = cores.iter().map(|core| core.counters.received).sum();
        repeated.elapsed += cores.iter().map(|core| core.elapsed).max().unwrap_or_default();
    }
    Ok(repeated)
}
