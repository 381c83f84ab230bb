//! The parallel engines. An engine answers three questions and nothing else: which core gets a packet ([`Steering`]),
//! where the state lives that the step touches ([`Placement`]), and which earlier packets the core replays first
//! ([`Log`]). One [`Worker`] loop serves them all; a new strategy is a new answer, never a new loop.
//!
//! Nothing here names a network function or a concrete port.
#![forbid(unsafe_code)]

mod affinity;
pub mod carrier;
mod classify;
mod counters;
mod dispatch;
mod error;
mod fleet;
mod history;
mod kind;
mod placement;
mod private;
mod run;
mod steering;
mod striped;
mod tables;
mod worker;

pub use affinity::{cpus, pin};
pub use counters::{Counters, FlowCounters};
pub use dispatch::{Dispatcher, Parcel};
pub use error::{EngineError, FailedPacket, Failure};
pub use fleet::{
    Fleet, FlowState, Options, PrivateFleet, Remains, StripedFleet, any_private_fleet, private_fleet, striped_fleet,
};
pub use history::{Block, Log, Record};
pub use kind::{EngineKind, Guarantee};
pub use placement::{KeyOf, Lane, Placement};
pub use private::Private;
pub use run::{Control, CoreRun, Outcome, drive, run, run_queues};
pub use steering::Steering;
pub use striped::{Commit, Striped};
pub use tables::Tables;
pub use worker::{BURST, Worker};
