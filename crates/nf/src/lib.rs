//! The contract between a network function and the engines that run it.
//!
//! A network function is a deterministic step, `(state, metadata, time) -> verdict`, written as a sequential program. An engine runs it on
//! many cores. The function never sees a lock, an atomic, a thread, a clock or a retry.
//!
//! A function needs four types, one constant and six methods of [`NetworkFunction`]:
//!
//! | member | what it says |
//! |---|---|
//! | `Meta` | what a packet contributes to state (the metadata), with the key of its packet set |
//! | `Flow` | the state of one packet set |
//! | `Shared<M>` | the state that all packet sets share, or `()` |
//! | `Speed` | shortcuts for speed, or [`Plain`] |
//! | `DESCRIPTION` | name, summary, configuration keys, drop reasons |
//! | `packet_set` | the header fields of the key |
//! | `sizing` | the number of flows |
//! | `shared` | the initial shared state |
//! | `meta` | extracts the metadata of a packet |
//! | `open` | opens a flow for a packet set, or refuses it |
//! | `packet` | takes a packet's step: changes the flow, returns the verdict |
//!
//! The other members have defaults. A function with shared state also needs `fingerprint`, and mostly `expire`. `succeed` and `adopt` let it
//! take another configuration while it runs, `Flow::WORDS` and `keep` let its state outlive a run.
//!
//! This function forwards the first ten packets of each source and drops the rest, until the source has been quiet for a minute:
//!
//! ```
//! use memory::Memory;
//! use millrace_nf::{
//!     Context, Description, Flow, NetworkFunction, Opened, PacketSet, Plain, Reason, Sharing, Sizing, Step, Verdict,
//! };
//! use packet::{Headers, Host, Nanos};
//!
//! struct FirstTen;
//!
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! struct Seen(u32);
//! impl Flow for Seen {}
//!
//! impl NetworkFunction for FirstTen {
//!     type Meta = Host;
//!     type Flow = Seen;
//!     type Shared<M: Memory> = ();
//!     type Speed = Plain;
//!
//!     const DESCRIPTION: Description = Description {
//!         name: "first-ten",
//!         summary: "drops what a source sends after its first ten packets",
//!         state: "the number of packets",
//!         sharing: Sharing::Nothing,
//!         keys: &[],
//!         drop_reasons: &["after-ten"],
//!         recipes: &[],
//!     };
//!
//!     fn packet_set(&self) -> PacketSet { PacketSet::Source }
//!     fn sizing(&self) -> Sizing { Sizing { flows: 1000, flows_v6: 1000 } }
//!     fn shared<M: Memory>(&self, _: &M) {}
//!     fn meta(&self, headers: &Headers, _frame: &[u8]) -> Option<Host> { headers.source() }
//!
//!     fn open<M: Memory>(&self, _: &mut Context<'_, Self, M>, _: &Host) -> Step<Opened<Seen>, M> {
//!         Ok(Opened::Flow(Seen(0)))
//!     }
//!
//!     fn packet<M: Memory>(&self, cx: &mut Context<'_, Self, M>, seen: &mut Seen, _: &Host) -> Step<Verdict, M> {
//!         cx.expire_after(Nanos::from_secs(60));
//!         seen.0 = seen.0.saturating_add(1);
//!         Ok(if seen.0 <= 10 { Verdict::FORWARD } else { Verdict::Drop(Reason::own(0)) })
//!     }
//! }
//! ```
//!
//! `docs/write-a-function.md` shows a function with shared state and a configuration file.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod chain;
mod context;
mod counts;
mod description;
mod function;
mod kept;
mod record;
mod report;
mod speed;
mod transform;
mod verdict;

// For `in_words!` and `chain!`.
#[doc(hidden)]
pub use ::memory;
#[doc(hidden)]
pub use ::packet;
#[doc(hidden)]
pub use alloc::string::String;

pub use chain::{Chain, Entry, Link, Linked, Passage, Visit, VisitWith};
pub use context::{Context, Effects};
pub use counts::{Count, PacketCounts};
pub use description::{ConfigKey, Description, IcmpErrors, PacketSet, Recipe, Sharing};
pub use function::{
    Entries, Flow, FlowList, Function, KeyOf, Meta, NetworkFunction, Opened, Sizing, Stages, Step, local_conclusion,
    local_fingerprint, local_report,
};
pub use kept::Kept;
pub use record::{ADDRESS_BYTES, ENDS_BYTES, HOST_BYTES, IPV6, RecordReader, RecordWriter, TUPLE_BYTES, family_of};
pub use report::{Cell, Fingerprint, Report, counted, grouped};
pub use speed::{Plain, Speed, Sum};
pub use transform::{MakeFrame, Transform};
pub use verdict::{Fates, PortId, Reason, Reply, Verdict};
