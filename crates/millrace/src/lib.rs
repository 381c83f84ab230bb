//! Millrace runs stateful network functions on many cores. A function is written once, as a sequential program over packet sets. Any of
//! several parallel engines runs it with the same outcome as the sequential program.
//!
//! Authors of functions need only this crate. [`prelude`] has the types for writing a function, [`engine`] runs it, [`port`] reads and
//! writes packets, and [`testkit`] checks that every engine agrees. `cli` makes a `millrace` command with the author's functions in its
//! catalogue, with all subcommands: `run`, `verify`, `bench` and so on. `examples/own_function.rs` is a function of about twenty lines
//! under every engine.
#![forbid(unsafe_code)]

#[cfg(feature = "cli")]
pub use catalogue::{self, cases, config};
#[cfg(feature = "cli")]
pub use iptables;
pub use {efsm, engine, flow, functions, l7, lab, memory, nf, packet, port, synth};

/// Tools for testing a function: frames, traces, the naive engine, and the check that every engine agrees.
pub mod testkit {
    pub use lab::{Driver, conformance};
    pub use synth::{At, Build, Frames, Rng, Synth};
}

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
mod print;

/// The types for writing a network function.
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

/// The capture of the demo: 20 seconds at a router between an office, the servers it uses, and an attacker. Zstandard-compressed pcap;
/// `testdata/README.md` describes it.
pub const DEMO_CAPTURE: &[u8] = include_bytes!("../data/demo.pcap.zst");

/// The tutorial, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../data/write-a-function.md")]
pub struct Tutorial;
