//! A live view of a run in the terminal.
//!
//! [`run`] asks for a sample of the run once a second and draws rates, verdicts, drops by reason, the load of each core, flows, transactions,
//! latency and interfaces. The terminal is restored however it ends. Where there is no terminal, [`line()`] makes a line of text of each
//! sample.
#![forbid(unsafe_code)]

mod line;
mod number;
mod rates;
mod run;
mod screen;
mod terminal;
mod view;

pub use line::line;
pub use run::{Closed, Options, TopError, run};
pub use screen::draw;
pub use view::View;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
