//! History: which earlier packets a core replays ahead of its own, and how it comes to know them.
//!
//! [`log`] is a core's place in the stream of records and of [moves](moves). Records lie in memory that all cores see, or come over a [`link`]
//! that loses packets, with [`recovery`] of what was lost, or travel ahead of each packet ([`carrier`]).

pub mod carrier;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod moves;
pub mod recovery;
