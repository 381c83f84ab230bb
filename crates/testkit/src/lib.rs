//! What tests of network functions and engines are made of: frames built layer by layer, traces synthesised from
//! published distributions, naive models, a naive engine to hold the others against, and network namespaces to hold
//! functions against the kernel in.
#![deny(unsafe_code)]

mod build;
#[cfg(feature = "checks")]
pub mod captures;
pub mod carrier;
pub mod case;
pub mod conformance;
mod driver;
mod frames;
#[cfg(feature = "checks")]
pub mod fuzz;
pub mod model;
pub mod netns;
mod rng;
#[cfg(feature = "checks")]
pub mod rtl;
pub mod synth;

pub use build::{At, Build};
pub use driver::{Driver, KeyOf};
pub use frames::Frames;
pub use rng::Rng;
pub use synth::Synth;
