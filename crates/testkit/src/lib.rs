//! Packet builders, trace synthesis, naive models, the conformance runner, and namespaces to test against the kernel in.

pub mod netns;
//! What tests of network functions and engines are made of: frames built layer by layer, traces synthesised from
//! published distributions, naive models, and a naive engine to hold the others against.
#![forbid(unsafe_code)]

mod build;
mod driver;
mod frames;
pub mod model;
mod rng;

pub use build::{At, Build};
pub use driver::{Driver, KeyOf};
pub use frames::Frames;
pub use rng::Rng;
