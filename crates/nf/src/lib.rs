//! The contract between a network function and the engines that run it.
//!
//! A network function is a deterministic step, `(state, metadata, time) -> verdict`, written as a sequential program. It
//! names its packet sets, says what a packet contributes to state ([`NetworkFunction::meta`]), and handles the events of
//! a packet set: it opens, a packet comes, it expires. It never sees a lock, an atomic, a thread, a clock or a retry.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod context;
mod description;
mod function;
mod record;
mod report;
mod speed;
mod transform;
mod verdict;

pub use context::{Context, Effects};
pub use description::{ConfigKey, Description, PacketSet, Recipe, Sharing};
pub use function::{
    Entries, Flow, FlowList, Function, KeyOf, Meta, NetworkFunction, Opened, Sizing, Step, local_fingerprint,
    local_report,
};
pub use record::{ADDRESS_BYTES, ENDS_BYTES, HOST_BYTES, IPV6, RecordReader, RecordWriter, TUPLE_BYTES, family_of};
pub use report::{Cell, Fingerprint, Report, counted, grouped};
pub use speed::{Plain, Speed, Sum};
pub use transform::{MakeFrame, Transform};
pub use verdict::{Fates, PortId, Reason, Reply, Verdict};
