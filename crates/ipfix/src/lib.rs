//! IPFIX (RFC 7011, RFC 7012) of the flows among a port's packets, both directions in one record (RFC 5103).
//!
//! [`Meter`] is the metering process: it counts packets into flows in a bounded cache, and hands over a [`FlowRecord`] when a flow ends.
//! [`Exporter`] is the exporting process: a thread that sends records to a collector by UDP or TCP, or writes a file (RFC 5655). [`Tap`] is
//! both for one queue of a port. [`Encoder`] makes messages alone, without input or output.
//!
//! A tap never waits. Records that the exporter can't take are counted as lost.
#![forbid(unsafe_code)]

mod element;
mod encoder;
mod error;
mod exporter;
mod meter;
mod record;
mod tap;

pub use element::TimeUnit;
pub use encoder::{Content, Encoder, EncoderOptions, Message, Statistics};
pub use error::IpfixError;
pub use exporter::{Destination, ExportCounts, Exporter, ExporterOptions, RecordSender};
pub use meter::{Meter, MeterCounts, MeterOptions};
pub use record::{Direction, EndReason, FlowRecord, Side};
pub use tap::Tap;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
