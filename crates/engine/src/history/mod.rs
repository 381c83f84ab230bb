//! History: which earlier packets a core replays before its own, and how the core gets their records.
//!
//! [`log`] is a core's position in the stream of records and [moves](moves). Records are in memory that all cores share; or they come over
//! a [`link`] that loses packets, with [`recovery`]; or they travel in front of each packet ([`carrier`]).

pub mod carrier;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod moves;
pub mod recovery;
