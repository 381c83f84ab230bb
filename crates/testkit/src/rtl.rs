//! What the sequencer in hardware (`rtl/`) is held against: packets of every kind, and for each what must come out.
//!
//! [`corpus`] makes the packets, [`vectors`] writes what the bench in `rtl/bench` reads. The records are the software
//! sequencer's; which packets the hardware leaves to software is said here a second time, from bytes, in [`Unread`].

pub mod corpus;
mod unread;
pub mod vectors;

pub use unread::{Quotes, Unread};
