//! Test vectors for the hardware sequencer (`rtl/`): packets of every kind, with the expected output for each.
//!
//! [`corpus`] makes the packets, the software sequencer gives the expected output, [`vectors`] writes both for the bench in `rtl/bench`, and
//! [`functions`] does so for every function. [`Unread`] decides independently, from the bytes, which packets the hardware leaves to
//! software.

pub mod corpus;
pub mod functions;
mod unread;
pub mod vectors;

pub use unread::{Quotes, Unread};
