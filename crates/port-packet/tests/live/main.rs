//! The port on real interfaces: veth pairs in network namespaces, with real kernel stacks or raw sockets at both ends.
//!
//! ```text
//! left [h0] --- [a0] middle [a1] --- [h1] right
//! ```
#![allow(clippy::print_stderr, clippy::print_stdout)]

mod bench;
mod cores;
mod faults;
mod forwarding;
mod loans;
mod losses;
mod observing;
mod refusals;
mod tags;
