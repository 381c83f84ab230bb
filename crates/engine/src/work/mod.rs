//! A core's work: look at packets, take their steps, carry the verdicts out.
//!
//! [`worker`] is the one loop, over any placement of the state; [`settle`] carries a verdict out; [`any_worker`] is the worker without its
//! placement's type.

pub(crate) mod any_worker;
pub(crate) mod settle;
pub(crate) mod worker;
