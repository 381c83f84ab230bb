//! The port on real interfaces: veth pairs in network namespaces, with real kernel stacks or raw sockets at both ends.
//!
//! ```text
//! left [h0] --- [a0] middle [a1] --- [h1] right
//! ```
#![allow(clippy::print_stderr, clippy::print_stdout)]

mod bench;
mod doctor;
mod fates;
mod faults;
mod kill;
mod offload;
mod policies;
mod queues;
mod refusals;
mod sequencer;
mod stream;
mod tcp;
mod uniqueness;
