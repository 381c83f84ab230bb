//! What serves speed alone.

use memory::Memory;
use packet::Nanos;

use crate::context::Context;
use crate::function::{NetworkFunction, Step};

/// Shortcuts of a function `N`, which engines take where they pay. Each has a default, and a function is right without any of them:
/// `type Speed = Plain;`.
///
/// A function that has some says `type Speed = Self;` and implements this trait for itself.
pub trait Speed<N: NetworkFunction>: 'static {
    /// Whether equal contributions that follow each other can be taken at once, by [`fold`](Self::fold).
    const FOLDS: bool = false;

    /// Takes the same contribution `count` times, the first at `first` and the last now, without verdicts: it leaves what
    /// [`packet`](NetworkFunction::packet) would have made of the flow, one by one. `false`, and nothing done, where they have to be
    /// taken one by one after all. A replica that has missed a run of a flow's packets catches up so.
    ///
    /// The law, which [`FOLDS`](Self::FOLDS) claims and a property test has to show: whatever the times in between, the flow's
    /// state and the effects of the last step are the same, no step moves the deadline earlier, and none closes the flow.
    ///
    /// # Errors
    /// The memory's conflict, by `?`.
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

    /// Whether steps on a flow add up, by [`add`](Self::add): then cores that share the flow's state can each take one by a single
    /// atomic operation, without a lock.
    const ADDS: bool = false;

    /// What of a packet adds up: its length in bytes, say.
    fn amount(_meta: &N::Meta) -> u32 {
        0
    }

    /// Leaves what [`packet`](NetworkFunction::packet) would have made of the flow in as many steps, by contributions that come to this
    /// sum. `false`, and nothing done, where they have to be taken one by one.
    ///
    /// The law, which [`ADDS`](Self::ADDS) claims and a property test has to show: contributions of one packet set differ in their
    /// amounts alone, and where every beginning of a row of them is taken, whatever the times in between, the flow's state is the
    /// one that the row's steps would have left. And [`expire`](NetworkFunction::expire) does nothing.
    fn add(_nf: &N, _flow: &mut N::Flow, _sum: &Sum) -> bool {
        false
    }

    /// Whether the function remembers some of the packet sets that it sees and not the others, as one that [`refuses`](Self::refuses)
    /// does. Then nothing foretells whether a packet's flow is known, and engines look flows up without a guess at that.
    const SELECTIVE: bool = false;

    /// Whether [`open`](NetworkFunction::open) refuses this packet, whatever else is the case, and does nothing besides. Then a replica
    /// need not ask it. `false` is always right.
    fn refuses(_nf: &N, _meta: &N::Meta) -> bool {
        false
    }

    /// Prefetches what a packet's step reads first of shared state. Engines call it for a whole burst before they step, so that the
    /// memory's latencies overlap. It belongs to no step: what it sees may change.
    fn prefetch<M: Memory>(_nf: &N, _shared: &N::Shared<M>, _meta: &N::Meta) {}

    /// Prefetches what that leads to, once [`prefetch`](Self::prefetch) has had its time. It belongs to no step either.
    fn prefetch_entry<M: Memory>(_nf: &N, _shared: &N::Shared<M>, _meta: &N::Meta) {}
}

/// No shortcuts.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl<N: NetworkFunction> Speed<N> for Plain {}

/// What a row of contributions to one flow comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// How many there are.
    pub count: u32,
    /// Their [amounts](Speed::amount) together.
    pub amount: u64,
    /// When the last one came.
    pub last: Nanos,
}
