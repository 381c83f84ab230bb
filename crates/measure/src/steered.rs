//! What an engine's dispatcher makes of a trace: for a replay that does without one, and to count how it spreads packets.

use std::mem::take;

use engine::{Boundary, Dispatcher, TraceHistory};
use locality::pages;
use nf::NetworkFunction;
use packet::Seq;
use port::{Batch, Packet, Trace};

/// What a dispatcher makes of one pass over a trace.
pub(crate) struct Steered<M> {
    /// The core of each packet.
    pub cores: Vec<u16>,
    /// The bucket of each.
    pub buckets: Vec<u16>,
    /// What cores have to know.
    pub script: TraceHistory<M>,
}

/// Passes over the trace in which steering finds its feet.
const SETTLING_PASSES: usize = 3;
/// Packets between two chances for state to change cores: as a pump's batches are.
const STRETCH: usize = 256;

impl<M: nf::Meta> Steered<M> {
    /// One pass.
    pub(crate) fn pass<N: NetworkFunction<Meta = M>>(dispatcher: &mut Dispatcher<N>, trace: &Trace) -> Self {
        let (len, mut batch) = (trace.len(), Batch::default());
        let (cores, buckets) = (Vec::with_capacity(len), Vec::with_capacity(len));
        let mut steered = Self { cores, buckets, script: TraceHistory::default() };
        for start in (0..len).step_by(STRETCH) {
            batch.clear();
            for index in start..(start + STRETCH).min(len) {
                batch.push(Packet { seq: Seq(index as u64), ..trace.packets()[index] }, trace.bytes(index));
            }
            dispatcher.assign(&batch, &mut steered.cores, &mut steered.buckets, &mut steered.script);
        }
        let TraceHistory { records, owned, .. } = &mut steered.script;
        *records = pages::boxed(take(records).into_iter()).into_vec();
        for owned in owned {
            *owned = pages::boxed(take(owned).into_iter()).into_vec();
        }
        steered
    }

    /// The pass that follows the load once that is known, and leads back to where it began, as it is to be run over and over.
    /// Unless cores are `together`, one runs after the other: then nothing can change cores, and steering stays as it has become.
    pub(crate) fn settled<N: NetworkFunction<Meta = M>>(
        dispatcher: &mut Dispatcher<N>,
        trace: &Trace,
        together: bool,
    ) -> Self {
        for _ in 0..SETTLING_PASSES {
            let _ = Self::pass(dispatcher, trace);
        }
        if !together {
            dispatcher.freeze();
        }
        let start = dispatcher.snapshot();
        let mut steered = Self::pass(dispatcher, trace);
        let moves = dispatcher.back_to(&start);
        if let (false, Some(last)) = (moves.is_empty(), trace.packets().last()) {
            steered.script.boundaries.push(Boundary { seq: Seq(trace.len() as u64), time: last.time, moves });
        }
        dispatcher.restore(&start);
        steered
    }
}
