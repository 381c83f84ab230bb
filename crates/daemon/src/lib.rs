//! A run of a network function as a service: its control socket, its logs, its rights, notification of the service manager, its metrics
//! and its live page.
//!
//! [`ControlSocket`] listens on a Unix socket that only its owner can open. It reads one [`Request`] from each connection, a line of JSON,
//! and writes one [`Reply`]. Requests are bounded in bytes and in time. [`ask`] is the other end.
//!
//! [`Logs`] writes what `tracing` is told. [`Notifier`] tells systemd that the run is ready, reloads, ends, and still works. Once sockets and
//! files are there, and before other threads start, [`drop_rights`] and [`restrict_system_calls`] give up what the run no longer needs.
//!
//! [`HttpServer`] serves the newest sample of a run, which the run puts into [`Latest`]: metrics for Prometheus, and a page for people.
#![forbid(unsafe_code)]

mod client;
mod control;
mod error;
mod http;
mod line;
mod log;
mod message;
mod privileges;
mod seccomp;
mod service;

pub use client::ask;
pub use control::ControlSocket;
pub use error::DaemonError;
pub use http::{HttpServer, Latest, Routes, Serving};
pub use line::LINE_MAX;
pub use log::{Format, Logs};
pub use message::{
    Core, Dropped, FlowLine, Flows, Interface, Latency, Reply, Request, Stats, Table, TopFlow, Traced, TracedPacket,
    Transactions,
};
pub use privileges::{Capability, Rights, drop_rights};
pub use seccomp::restrict_system_calls;
pub use service::Notifier;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
