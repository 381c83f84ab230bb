//! A core's work: take packets in, take their steps, carry the verdicts out.
//!
//! [`worker`] is the one loop, over any placement of the state. [`intake`] is its first stage, [`emit`] its last; between them the
//! placement takes the steps. [`replay`] is the loop where a log of other cores' packets comes with the batch. [`any_worker`] is the
//! worker without its placement's type.

pub(crate) mod any_worker;
pub(crate) mod emit;
mod intake;
mod replay;
pub(crate) mod worker;
