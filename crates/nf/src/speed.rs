//! Optional shortcuts for speed. No function needs them.

use memory::Memory;
use packet::Nanos;

use crate::context::Context;
use crate::function::{NetworkFunction, Step};

/// Optional shortcuts of a function `N` that make engines faster. All have defaults: `type Speed = Plain;` is always correct.
///
/// To use some, write `type Speed = Self;` and implement this trait.
pub trait Speed<N: NetworkFunction>: 'static {
    /// True if a run of packets with equal metadata can be taken at once, by [`fold`](Self::fold).
    const FOLDS: bool = false;

    /// Takes `count` steps with equal metadata at once, the first at time `first`, the last at `cx.now()`. The flow must end up as after
    /// `count` calls of [`packet`](NetworkFunction::packet). Verdicts are not needed: a replica calls it to catch up with missed packets.
    /// Returns `false`, and changes nothing, if the steps must be taken one by one.
    ///
    /// `count` includes the first and the last of the steps. [`FOLDS`](Self::FOLDS) promises, and a property test must check
    /// (`testkit/tests/folds.rs`): the flow, and what the last step asks of its [`Context`], don't depend on when the steps between the
    /// first and the last happen; no step moves the deadline earlier; no step closes the flow.
    ///
    /// # Errors
    /// A conflict on shared state; pass it on with `?`.
    fn fold<M: Memory>(
        _nf: &N,
        _cx: &mut Context<'_, N, M>,
        _flow: &mut N::Flow,
        _meta: &N::Meta,
        _count: u32,
        _first: Nanos,
    ) -> Step<bool, M> {
        Ok(false)
    }

    /// True if steps on a flow add up, by [`add`](Self::add). Cores that share the flow can then take a step with one atomic operation,
    /// without a lock.
    const ADDS: bool = false;

    /// The amount of a packet that adds up, such as its length in bytes.
    fn amount(_meta: &N::Meta) -> u32 {
        0
    }

    /// Adds several steps to a flow at once. The flow must end up as after as many calls of [`packet`](NetworkFunction::packet). Returns
    /// `false`, and changes nothing, if the steps must be taken one by one.
    ///
    /// [`ADDS`](Self::ADDS) promises, and a property test must check (`testkit/tests/folds.rs`): the metadata of one packet set differ in
    /// their amounts only. Cores ask after each step whether the sum so far can be added; if the answer was yes each time, the flow is the
    /// same as after these steps, whatever their times. [`expire`](NetworkFunction::expire) does nothing.
    fn add(_nf: &N, _flow: &mut N::Flow, _sum: &Sum) -> bool {
        false
    }

    /// True if many packets belong to packet sets for which the function opens no flow. Engines predict, ahead of the step, whether a
    /// packet's flow is known; here they don't, as the prediction would often be wrong. It affects speed only.
    const SELECTIVE: bool = false;

    /// True if [`open`](NetworkFunction::open) refuses this packet in any state and has no other effect. Engines then skip what
    /// opening a flow needs, and a replica skips the call. Functions that [read frames](NetworkFunction::READS_FRAMES) have no replicas, so
    /// there `open` may change what packet sets share.
    /// `false` is always correct.
    fn refuses(_nf: &N, _meta: &N::Meta) -> bool {
        false
    }

    /// Prefetches the shared state that the packet's step reads first. Engines call it for a whole burst ahead of the steps. It is not part
    /// of a step: the state may change before the step.
    fn prefetch<M: Memory>(_nf: &N, _shared: &N::Shared<M>, _meta: &N::Meta) {}

    /// Prefetches the shared state that the first reads lead to, some time after [`prefetch`](Self::prefetch). It is not part of a step
    /// either.
    fn prefetch_entry<M: Memory>(_nf: &N, _shared: &N::Shared<M>, _meta: &N::Meta) {}
}

/// No shortcuts.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl<N: NetworkFunction> Speed<N> for Plain {}

/// The sum of several steps on one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The number of steps.
    pub count: u32,
    /// The sum of their [amounts](Speed::amount).
    pub amount: u64,
    /// The time of the last step.
    pub last: Nanos,
}
