//! What a handler may see and do besides its arguments.

use memory::Memory;
use packet::{Nanos, Seq};

use crate::function::NetworkFunction;

/// What a handler may see and do besides its arguments: packet time, shared state, and the packet set's own timers.
///
/// Shared state is reached as `cx.shared.ports.read(&mut cx.tx, index)?`.
pub struct Context<'a, N: NetworkFunction, M: Memory> {
    /// The state that all packet sets share.
    pub shared: &'a N::Shared<M>,
    /// This step's transaction on it.
    pub tx: M::Tx<'a>,
    now: Nanos,
    seq: Seq,
    effects: Effects,
}

/// What a step asks of its own packet set, carried out by the engine once the step has committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// When the packet set expires if nothing more comes. `None` keeps the deadline that it has.
    pub deadline: Option<Nanos>,
    /// The packet set ends with this packet.
    pub close: bool,
    /// The packet set has been answered: it no longer makes room for others.
    pub assured: bool,
}

impl<'a, N: NetworkFunction, M: Memory> Context<'a, N, M> {
    /// The context of one step. For engines.
    #[inline]
    #[must_use]
    pub fn new(shared: &'a N::Shared<M>, tx: M::Tx<'a>, now: Nanos, seq: Seq) -> Self {
        Self { shared, tx, now, seq, effects: Effects::default() }
    }

    /// The packet's time. It never goes back.
    #[inline]
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// A number drawn by the packet's place in the order: the same in every engine and every run.
    #[must_use]
    pub const fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood: OOPSLA '14), one draw for each sequence number.
        let mut z = self.seq.0.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The packet set expires when it has been idle for this long from now on. Without a call it keeps its deadline; one
    /// that never had a call never expires.
    #[inline]
    pub fn expire_after(&mut self, idle: Nanos) {
        self.effects.deadline = Some(self.now + idle);
    }

    /// The packet set ends with this packet; [`NetworkFunction::expire`] is called for it.
    #[inline]
    pub fn close(&mut self) {
        self.effects.close = true;
    }

    /// The packet set has been answered (or has otherwise proved itself): when the table is full, it stays, and one that
    /// hasn't goes. Asked once, it holds for as long as the packet set is remembered.
    #[inline]
    pub fn assure(&mut self) {
        self.effects.assured = true;
    }

    /// What the step asked for. For engines.
    #[inline]
    #[must_use]
    pub const fn effects(&self) -> Effects {
        self.effects
    }

    /// What the handler asked for, and nothing asked for any more: the next handler of the same step has the context to itself.
    /// For engines.
    #[inline]
    pub const fn next(&mut self) -> Effects {
        core::mem::replace(&mut self.effects, Effects { deadline: None, close: false, assured: false })
    }
}
