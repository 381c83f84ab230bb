//! What the sequencer in hardware (`rtl/`) is held against: packets of every kind, and for each what must come out.
//!
//! [`corpus`] makes the packets, the software sequencer says what comes out, [`vectors`] writes it for the bench in
//! `rtl/bench`, [`functions`] does so for every function. Which packets the hardware leaves to software is said a second
//! time here, from their bytes, in [`Unread`].

pub mod corpus;
pub mod functions;
mod unread;
pub mod vectors;

pub use unread::{Quotes, Unread};
