//! The parallel engines. An engine answers three questions and nothing else: which core gets a packet ([`Steering`]),
//! where the state lives that the step touches ([`Placement`]), and which earlier packets the core replays first
//! ([`Log`]). One [`Worker`] loop serves them all; a new strategy is a new answer, never a new loop.
//!
//! Nothing here names a network function or a concrete port.
#![forbid(unsafe_code)]

mod affinity;
mod any_worker;
mod balance;
pub mod carrier;
mod classify;
mod counters;
mod dispatch;
mod elephants;
mod entries;
mod error;
mod fleet;
mod history;
mod kind;
mod link;
mod moves;
mod placement;
mod private;
pub mod recovery;
mod run;
mod settle;
mod sharded;
mod shared;
mod steering;
mod striped;
mod tables;
mod transacted;
mod worker;

pub use affinity::{cpus, pin};
pub use any_worker::AnyWorker;
pub use balance::{Balancer, Migration};
pub use counters::{Counters, FlowCounters};
pub use dispatch::{CoreBatch, Dispatcher, EPOCH, Standing};
pub use error::{EngineError, FailedPacket, Failure};
pub use fleet::{
    Fleet, FlowState, Options, PrivateFleet, Remains, ShardedFleet, SharedFleet, TransactedFleet, any_private_fleet,
    any_sharded_fleet, private_fleet, sharded_fleet, shared_fleet, transacted_fleet,
};
pub use history::{Block, Boundary, Event, Log, OwnedRecord, Record, Script, Stretch};
pub use kind::{EngineKind, Guarantee};
pub use link::{Histories, Link, LinkEnd};
pub use moves::{Elephant, Move, Moves, What};
pub use placement::{KeyOf, Lane, Placement, Ticket, hash_of};
pub use private::Private;
pub use run::{
    Control, CoreProgress, CoreRun, Feed, Mail, Outcome, Recovery, Running, drive, processors, resolve, run, run_cores,
    start,
};
pub use sharded::Sharded;
pub use shared::{Part, Shared};
pub use steering::{BUCKETS, Steering};
pub use striped::Commit;
pub use tables::Tables;
pub use transacted::{Baton, Transacted, Transactions};
pub use worker::{BURST, Worker};
