//! What a function yields under each engine: packets per second with their spread, the cost model's parameters, memory
//! and start-up.
//!
//! *Measured* rows come from as many threads as the row says, each on a processor of its own. *Modelled* rows come from
//! running each core's share alone, one after the other, and stand for what the cores would do if nothing between them
//! cost anything; they are labelled so wherever they go. *Loss-free* rates are searched for by offering load to receive
//! rings; that takes all cores at the same time, so no modelled row has one.
//!
//! A gauge is read between bursts, which tells rounds that somebody outside disturbed ([`Rounds`]).
#![forbid(unsafe_code)]

mod advise;
mod bare;
mod bench;
pub mod conformance;
mod driver;
mod gauge;
mod loss_free;
mod lossy;
mod model;
mod pass;
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
mod work;

pub use advise::{Advice, Bound, Forecast, Question, TIE_PERCENT, Wire, Workload, advise};
pub use bench::{Basis, Bench, BenchError, BenchPlan, Contention, Row, bench};
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
