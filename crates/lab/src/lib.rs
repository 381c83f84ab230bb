//! Measures a network function under each engine: throughput with its spread, cost model, memory, start-up time, loss-free rate.
//!
//! *Measured* rows have one thread for each core, each on its own processor. *Modelled* rows run each core's share alone, one after the
//! other, and are always labelled so; they show the rate if cores did not affect each other. A *loss-free* rate is found by offering load
//! to receive rings. All cores must run at once for that, so modelled rows have none. A gauge between bursts detects rounds that other
//! programs disturbed ([`Rounds`]). [`Driver`] is a naive sequential engine, and [`conformance`] compares every engine with the
//! sequential run.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use millrace_lab::{LossFreePlan, search};
//! use port::Offered;
//!
//! // A function that loses no packet up to 5 Mpps.
//! let plan = LossFreePlan { resolution_mpps: 0.1, ..LossFreePlan::default() };
//! let trial = |mpps: f64| {
//!     let lost = if mpps > 5.0 { 500 } else { 0 };
//!     Ok::<_, Infallible>(Offered { offered: 1_000, received: 1_000 - lost, lost })
//! };
//! let found = search(&plan, 8.0, trial).unwrap();
//! assert!((4.9..=5.0).contains(&found.mpps));
//! ```
#![forbid(unsafe_code)]

mod advise;
mod bare;
mod bench;
pub mod conformance;
pub mod cuts;
mod delay;
mod driver;
mod forward_all;
mod gauge;
mod loss_free;
mod lossy;
mod model;
pub mod path;
mod piped;
mod profile;
mod remote;
mod repeat;
mod replay;
mod rounds;
mod sequencer;
mod spill;
mod spread;
mod steered;
mod sweep;
pub mod tables;
pub mod targets;
mod work;

pub use advise::{Advice, Bound, Forecast, Question, TIE_PERCENT, Wire, Workload, advise};
pub use bench::{Basis, Bench, BenchError, BenchPlan, Contention, Row, bench};
pub use delay::{Delay, DelayPlan};
pub use driver::Driver;
pub use loss_free::{Found, LossFree, LossFreePlan, search};
pub use lossy::{LossPlan, LossRow, lossy};
pub use model::{Beside, CostModel, Prediction};
pub use profile::{CauseAborts, CoreLoad, LOAD, LineAborts, Loaded, Profile, ProfilePlan, profile};
pub use remote::Remote;
pub use repeat::{Repeated, repeat};
pub use replay::{ReplayPlan, replay_queues, replay_workers};
pub use rounds::Rounds;
pub use sequencer::Sequencing;
pub use spill::Spill;
pub use spread::Spread;
pub use sweep::{SweepPoint, sweep};
pub use work::{Calibration, MOST_NS, Work};
