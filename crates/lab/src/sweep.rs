//! Measures how replication scales as a program gets longer: a stateless program with a step of known time, on several cores (figure 9 of
//! state-compute replication).
//!
//! The step runs for each of a core's own packets and for each record of the history. One of `k` cores therefore computes `k` times as
//! long. Where that exceeds the dispatch cost, more cores gain nothing.

use std::sync::Arc;

use engine::EngineKind;
use memory::{Memory, Vector};
use nf::{Context, Description, NetworkFunction, Opened, PacketSet, Plain, Sharing, Sizing, Step, Verdict};
use packet::{Headers, Host};
use port::Trace;

use crate::bench::{Bench, BenchError, BenchPlan, bench};
use crate::work::Work;

/// Result of a bench at one compute time.
#[derive(Clone, Debug)]
pub struct SweepPoint {
    /// Work of a step.
    pub compute: Work,
    /// Result of the bench.
    pub bench: Bench,
}

/// Measures the program at each compute time under `scr`, whatever engines the plan has. `progress` is as for [`bench()`], over all
/// points.
///
/// # Errors
/// As [`bench()`].
pub fn sweep(
    trace: &Arc<Trace>,
    plan: &BenchPlan,
    computes: &[Work],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<SweepPoint>, BenchError> {
    let plan = BenchPlan { engines: vec![EngineKind::Scr], ..plan.clone() };
    let points = computes.len() as u64;
    let of = |(index, compute): (usize, &Work)| {
        let index = index as u64;
        let bench = bench(&Arc::new(Compute { work: *compute }), trace, &plan, &mut |done, total| {
            progress(index * total + done, points * total);
        })?;
        Ok(SweepPoint { compute: *compute, bench })
    };
    computes.iter().enumerate().map(of).collect()
}

/// The program: works for a fixed time, then forwards the packet.
struct Compute {
    work: Work,
}

impl NetworkFunction for Compute {
    type Meta = Host;
    type Flow = ();
    /// Result of the work of the last step, so that each step waits for the one before.
    type Shared<M: Memory> = M::Vector<u64>;
    type Speed = Plain;

    const DESCRIPTION: Description = Description {
        name: "compute",
        summary: "works for a fixed time on each packet, then forwards it",
        state: "none",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &[],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::Source
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: Memory>(&self, memory: &M) -> M::Vector<u64> {
        memory.vector(1, 1)
    }

    #[inline]
    fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> {
        headers.source()
    }

    #[inline]
    fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<()>, M> {
        Ok(Opened::Flow(()))
    }

    #[inline]
    fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, (): &mut (), _: &Host) -> Step<Verdict, M> {
        let handed = cx.shared.read(&mut cx.tx, 0)?;
        cx.shared.write(&mut cx.tx, 0, self.work.run(handed))?;
        Ok(Verdict::forward())
    }
}

#[cfg(test)]
mod tests;
