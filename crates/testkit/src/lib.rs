//! What Millrace's own tests are made of: naive models, the checks that fuzzing runs, and network namespaces to hold functions
//! against the kernel in. Frames and traces are from [`synth`].
#![deny(unsafe_code)]

#[cfg(feature = "checks")]
pub mod captures;
pub mod carrier;
#[cfg(feature = "checks")]
pub mod fuzz;
pub mod model;
pub mod netns;
#[cfg(feature = "checks")]
pub mod rtl;

pub use measure::Driver;
pub use synth::{At, Build, Frames, Rng, Synth};
