//! A run of a network function as a service: its control socket, its metrics and its live page.
//!
//! [`ControlSocket`] listens on a Unix socket that only its owner can open. It reads one [`Request`] from each connection, a line of JSON,
//! and writes one [`Reply`]. Requests are bounded in bytes and in time. [`ask`] is the other end.
//!
//! [`HttpServer`] serves the newest sample of a run, which the run puts into [`Latest`]: metrics for Prometheus, and a page for people.
#![forbid(unsafe_code)]

mod client;
mod control;
mod error;
mod http;
mod line;
mod message;

pub use client::ask;
pub use control::ControlSocket;
pub use error::DaemonError;
pub use http::{HttpServer, Latest, Routes, Serving};
pub use line::LINE_MAX;
pub use message::{
    Core, Dropped, FlowLine, Flows, Interface, Latency, Reply, Request, Stats, Table, TopFlow, Transactions,
};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
