//! Steering decisions of an engine's dispatcher over a trace, for replays without a dispatcher and for counting how packets are spread.

use std::mem::take;

use engine::{Boundary, Dispatcher, TraceHistory};
use locality::pages;
use nf::NetworkFunction;
use packet::Seq;
use port::{Batch, Packet, Trace};

/// Decisions of a dispatcher in one pass over a trace.
pub(crate) struct Steered<M> {
    /// Core of each packet.
    pub cores: Vec<u16>,
    /// Bucket of each packet.
    pub buckets: Vec<u16>,
    /// Records and moves for the cores.
    pub history: TraceHistory<M>,
}

/// Passes over the trace before steering is considered settled.
const SETTLING_PASSES: usize = 3;
/// Packets between two points at which state can move, as with batches of a run.
const STRETCH: usize = 256;

impl<M: nf::Meta> Steered<M> {
    /// One pass.
    pub(crate) fn pass<N: NetworkFunction<Meta = M>>(dispatcher: &mut Dispatcher<N>, trace: &Trace) -> Self {
        let (len, mut batch) = (trace.len(), Batch::default());
        let (cores, buckets) = (Vec::with_capacity(len), Vec::with_capacity(len));
        let mut steered = Self { cores, buckets, history: TraceHistory::default() };
        for start in (0..len).step_by(STRETCH) {
            batch.clear();
            for index in start..(start + STRETCH).min(len) {
                batch.push(Packet { seq: Seq(index as u64), ..trace.packets()[index] }, trace.bytes(index));
            }
            dispatcher.assign(&batch, &mut steered.cores, &mut steered.buckets, &mut steered.history);
        }
        let TraceHistory { records, owned, .. } = &mut steered.history;
        *records = pages::boxed(take(records).into_iter()).into_vec();
        for owned in owned {
            *owned = pages::boxed(take(owned).into_iter()).into_vec();
        }
        steered
    }

    /// A pass after steering has settled, which ends in the state it began with, so that it can run again and again. Unless the cores run
    /// `together`, one runs after the other; then no state can move, and steering stays fixed.
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
            steered.history.boundaries.push(Boundary { seq: Seq(trace.len() as u64), time: last.time, moves });
        }
        dispatcher.restore(&start);
        steered
    }
}
