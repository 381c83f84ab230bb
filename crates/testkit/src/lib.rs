//! Helpers of Millrace's own tests: naive models, fuzz checks, and network namespaces to compare functions with the kernel. Frames and
//! traces are from [`synth`].
#![deny(unsafe_code)]

#[cfg(feature = "checks")]
pub mod captures;
pub mod carrier;
#[cfg(feature = "checks")]
pub mod fuzz;
#[cfg(feature = "checks")]
pub mod hostile;
pub mod model;
pub mod netns;
pub mod row;
#[cfg(feature = "checks")]
pub mod rtl;
mod talks;

pub use lab::Driver;
pub use synth::{At, Build, Frames, Rng, Synth};
pub use talks::Traffic;
