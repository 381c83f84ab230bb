//! Traffic made up: frames built layer by layer ([`Build`], [`Frames`]), and traces synthesised from published distributions
//! ([`Synth`]).
#![forbid(unsafe_code)]

mod build;
mod frames;
mod rng;
mod trace;

pub use build::{At, Build, folded, sum};
pub use frames::Frames;
pub use rng::Rng;
pub use trace::{Carrier, FrameLen, Params, Profile, Synth, SynthError};
