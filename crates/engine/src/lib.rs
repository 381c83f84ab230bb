//! The parallel engines: they run a network function on many cores.
//!
//! An engine answers three questions:
//!
//! | question | what answers it | room |
//! |---|---|---|
//! | Which core gets a packet? | steering ([`Steering`], [`Dispatcher`]) | `steer` |
//! | Where does the state live that a step reads and writes? | placement ([`Placement`]) | `placement` |
//! | Which earlier packets does a core replay first? | history ([`Log`], [`carrier`], [`recovery`]) | `history` |
//!
//! All engines share the rest: `work` is a core's loop over bursts ([`Worker`]), `run` has threads, ports and the run handle ([`run`],
//! [`start`]). A new engine is a new answer to one of the questions, never a new loop. [`EngineKind`] lists the engines, with their
//! guarantees. No engine names a function or a concrete port.
//!
//! This runs a function over three packets in memory, by state-compute replication on two cores:
//!
//! ```
//! use std::sync::Arc;
//!
//! use millrace_engine::{Control, EngineKind, Options, run};
//! use packet::{LinkType, Nanos, Seq};
//! use port::{Fate, MemoryQueue, Packet, Trace};
//!
//! # use memory::Memory;
//! # use nf::{Context, Description, Flow, NetworkFunction, Opened, PacketSet, Plain, Reason, Sharing, Sizing, Step, Verdict};
//! # use packet::{Headers, Host};
//! # struct FirstTwo;
//! # #[derive(Clone, Copy, Debug, PartialEq)]
//! # struct Seen(u32);
//! # impl Flow for Seen {}
//! # impl NetworkFunction for FirstTwo {
//! #     type Meta = Host;
//! #     type Flow = Seen;
//! #     type Shared<M: Memory> = ();
//! #     type Speed = Plain;
//! #     const DESCRIPTION: Description = Description {
//! #         name: "first-two",
//! #         summary: "drops what a source sends after its first two packets",
//! #         state: "the number of packets",
//! #         sharing: Sharing::Nothing,
//! #         keys: &[],
//! #         drop_reasons: &["after-two"],
//! #         recipes: &[],
//! #     };
//! #     fn packet_set(&self) -> PacketSet { PacketSet::Source }
//! #     fn sizing(&self) -> Sizing { Sizing { flows: 100, flows_v6: 100 } }
//! #     fn shared<M: Memory>(&self, _: &M) {}
//! #     fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> { headers.source() }
//! #     fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<Seen>, M> {
//! #         Ok(Opened::Flow(Seen(0)))
//! #     }
//! #     fn packet<M: Memory>(&self, _: &mut Context<'_, Self, M>, seen: &mut Seen, _: &Host) -> Step<Verdict, M> {
//! #         seen.0 += 1;
//! #         Ok(if seen.0 <= 2 { Verdict::FORWARD } else { Verdict::Drop(Reason::own(0)) })
//! #     }
//! # }
//! let mut trace = Trace::new();
//! for number in 0..3 {
//!     // IPv4 and UDP, from 10.0.0.1 to 192.0.2.1.
//!     let mut bytes = [0; 28];
//!     bytes[..10].copy_from_slice(&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
//!     bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1]);
//!     bytes[20..26].copy_from_slice(&[0, 53, 0, 53, 0, 8]);
//!     let packet = Packet {
//!         seq: Seq(number),
//!         time: Nanos(number * 1000),
//!         offset: 0,
//!         len: bytes.len() as u32,
//!         wire_len: bytes.len() as u32,
//!         interface: 0,
//!         link: LinkType::RawIp,
//!         bucket: 0,
//!         fate: Fate::Pending,
//!     };
//!     trace.push(packet, &bytes);
//! }
//!
//! // `FirstTwo` forwards the first two packets of each source.
//! let mut port = MemoryQueue::new(Arc::new(trace), 32);
//! let outcome =
//!     run(Arc::new(FirstTwo), EngineKind::Scr, 2, &Options::default(), &mut port, &Control::default()).expect("it can run");
//! assert_eq!((outcome.counters.forwarded, outcome.counters.dropped_total()), (2, 1));
//! assert_eq!(port.outbox().take().len(), 2);
//! ```
#![forbid(unsafe_code)]

mod affinity;
mod counters;
mod error;
mod history;
mod kind;
mod offload;
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
pub use offload::{Offload, OffloadCounts};
pub use options::{Cuts, EPOCH, Options};
pub use placement::private::Private;
pub use placement::replay_order::ReplayOrder;
pub use placement::sharded::Sharded;
pub use placement::shared::{Part, Shared};
pub use placement::striped::Commit;
pub use placement::tables::Tables;
pub use placement::transacted::{Transacted, Transactions};
pub use placement::{BURST, FlowState, Lane, Placement, SavedFlow, Ticket, hash_of};
pub use run::instance::{
    EngineInstance, Inspect, PrivateInstance, ShardedInstance, SharedInstance, TransactedInstance, private_instance,
    sharded_instance, shared_instance, transacted_instance,
};
pub use run::{
    Beginning, Control, CoreProgress, CoreRun, Feed, Look, Mail, MemoryMax, Outcome, Piped, Recovery, Running,
    SequencedTotal, drive, memory_max, processors, resolve, run, run_cores, run_pipeline, run_sequenced, sequence,
    start, start_from, takes_sequencer,
};
pub use steer::balance::{Balancer, Migration};
pub use steer::core_batch::CoreBatch;
pub use steer::dispatch::{Dispatcher, SteeringSnapshot};
pub use steer::steering::{BUCKETS, Steering};
pub use work::any_worker::AnyWorker;
pub use work::worker::Worker;
