//! Observers of the packets of a run, for its operators. Each is a [`Watch`](port::Watch) of a [`Watched`](port::Watched) port, is called
//! once for each burst, and costs little.
//!
//! * [`Latency`]: times from receive to transmit.
//! * [`TopFlows`]: the flows with the most bytes, by a sample of packets.
//! * [`DropSample`]: some dropped packets for each reason, in a capture.
//! * [`Traces`]: packets that an operator asks for, with their fates.
#![forbid(unsafe_code)]

mod drops;
mod latency;
mod top_flows;
mod trace;

pub use drops::{DropSample, Sampled};
pub use latency::{Latency, Quantiles};
pub use top_flows::{TopFlow, TopFlows};
pub use trace::{Fits, Traced, TracedPackets, Traces};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
