//! The parallel engines. An engine answers three questions and nothing else: which core gets a packet ([`Steering`]),
//! where the state lives that the step touches ([`Placement`]), and which earlier packets the core replays first
//! ([`Log`]). One [`Worker`] loop serves them all; a new strategy is a new answer, never a new loop.
//!
//! Nothing here names a network function or a concrete port.
#![forbid(unsafe_code)]

mod affinity;
mod counters;
mod error;
mod history;
mod kind;
mod options;
mod placement;
mod run;
mod steer;
mod work;

pub use affinity::{cpus, pin};
pub use counters::{Counters, FlowCounters};
pub use error::{EngineError, FailedPacket, Failure};
pub use history::link::{Histories, Link, LinkEnd};
pub use history::log::{Block, Boundary, Event, Log, OwnedRecord, Record, Stretch, TraceHistory};
pub use history::moves::{Elephant, Move, Moves, What};
pub use history::{carrier, recovery};
pub use kind::{EngineKind, Guarantee};
pub use options::{EPOCH, Options};
pub use placement::private::Private;
pub use placement::replay_order::ReplayOrder;
pub use placement::sharded::Sharded;
pub use placement::shared::{Part, Shared};
pub use placement::striped::Commit;
pub use placement::tables::Tables;
pub use placement::transacted::{Transacted, Transactions};
pub use placement::{BURST, FlowState, Lane, Placement, Ticket, hash_of};
pub use run::instance::{
    EngineInstance, Inspect, PrivateInstance, ShardedInstance, SharedInstance, TransactedInstance, private_instance,
    sharded_instance, shared_instance, transacted_instance,
};
pub use run::{
    Control, CoreProgress, CoreRun, Feed, Mail, Outcome, Recovery, Running, SequencedTotal, drive, processors, resolve,
    run, run_cores, run_sequenced, sequence, start,
};
pub use steer::balance::{Balancer, Migration};
pub use steer::core_batch::CoreBatch;
pub use steer::dispatch::{Dispatcher, SteeringSnapshot};
pub use steer::steering::{BUCKETS, Steering};
pub use work::any_worker::AnyWorker;
pub use work::worker::Worker;
