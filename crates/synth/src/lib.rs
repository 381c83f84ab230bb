//! Generates traffic: frames built layer by layer ([`Build`], [`Frames`]), and traces with published flow-size distributions ([`Synth`]).
//!
//! ```
//! use millrace_synth::{Params, Profile, Synth};
//!
//! let params = Params { packets: 1_000, flows: Some(50), ..Params::default() };
//! let synth = Synth::new(Profile::Uniform, &params).expect("the parameters fit together");
//! assert_eq!(synth.trace().len(), 1_000);
//! ```
#![forbid(unsafe_code)]

mod build;
mod frames;
mod rng;
mod trace;

pub use build::{At, Build, folded, sum};
pub use frames::Frames;
pub use rng::Rng;
pub use trace::{FlowTransport, FrameLen, Params, Profile, Synth, SynthError};
