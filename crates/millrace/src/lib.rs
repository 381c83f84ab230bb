//! Millrace: a network function is written once, as a sequential program over packet sets, and runs on every core under
//! any of several parallel strategies with the outcome that the sequential program would have had.
//!
//! This crate is all that an author depends on. [`prelude`] has what a function is written with; [`engine`] runs it,
//! [`port`] reads and writes its packets, [`testkit`] checks that every engine agrees, and `cli` gives it the whole
//! `millrace` command: `run`, `verify`, `bench` and the rest, with its own name in the catalogue.
//!
//! `examples/own_function.rs` is a function of about twenty lines under every engine.
#![forbid(unsafe_code)]

#[cfg(feature = "cli")]
pub use catalogue::{self, cases, config};
pub use {engine, flow, functions, measure, memory, nf, packet, port, synth};

/// What tests of a function are made of: frames, traces, the naive engine, and the check that every engine agrees.
pub mod testkit {
    pub use measure::{Driver, conformance};
    pub use synth::{At, Build, Frames, Rng, Synth};
}

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
mod print;

/// What a network function is written with.
pub mod prelude {
    pub use memory::{Allocator, Distributed, Map, Memory, Portion, Vector};
    pub use nf::{
        ADDRESS_BYTES, ConfigKey, Context, Description, Fingerprint, Flow, FlowList, HOST_BYTES, Meta, NetworkFunction,
        Opened, PacketSet, Plain, PortId, Reason, Recipe, RecordReader, RecordWriter, Reply, Report, Sharing, Sizing,
        Speed, Step, Sum, TUPLE_BYTES, Transform, Verdict,
    };
    pub use packet::{
        Endpoint, FiveTuple, FlowKey, Fragment, Headers, Host, Mac, Nanos, Network, Rewrite, Seq, TcpFlags, Transport,
        protocol,
    };
}

/// The capture that ships with Millrace: twenty seconds at a router between an office, the servers that it uses and an
/// attacker. Zstandard-compressed pcap; `testdata/README.md` says what is in it.
pub const DEMO_CAPTURE: &[u8] = include_bytes!("../data/demo.pcap.zst");

/// The tutorial is compiled, and run, as it stands.
#[cfg(doctest)]
#[doc = include_str!("../data/write-a-function.md")]
pub struct Tutorial;
