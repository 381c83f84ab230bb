//! What a function yields under each engine: packets per second with their spread, the cost model's parameters, memory
//! and start-up.
//!
//! *Measured* rows come from as many threads as the row says, each on a processor of its own. *Modelled* rows come from
//! running each core's share alone, one after the other, and stand for what the cores would do if nothing between them
//! cost anything; they are labelled so wherever they go.
#![forbid(unsafe_code)]

mod bare;
mod bench;
mod model;
mod spread;
pub mod tables;

pub use bench::{Basis, Bench, BenchError, BenchPlan, Row, bench};
pub use model::CostModel;
pub use spread::Spread;
