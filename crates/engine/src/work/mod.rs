//! A core's work: take packets in, take their steps, carry out the verdicts.
//!
//! [`worker`] is the loop, over any placement. [`intake`] is its first stage, [`emit`] its last; between them the placement takes the
//! steps. [`replay`] is the loop for a batch that comes with a log of other cores' packets. [`any_worker`] is a worker without its
//! placement's type.

pub(crate) mod any_worker;
mod behind_card;
pub(crate) mod emit;
mod intake;
mod offloaded;
mod replay;
pub(crate) mod worker;
