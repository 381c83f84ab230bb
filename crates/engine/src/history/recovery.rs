//! Loss recovery for state-compute replication (NSDI '25, section 3.4 and algorithm 1): replicas stay equal although packets are lost
//! between the sequencer and the cores.
//!
//! The sequencer sprays packets over `k` cores: packet `j` goes to core `j mod k`, with the records of packets `j-k+1` to `j`. A core that
//! lost a packet copies the missing records from the other cores' [`Logs`]. A record that reached any core is applied by all; a record that
//! reached none is applied by none.
//!
//! Record `i` reaches a core in exactly one packet, the core's own among `i` to `i+k-1`. So a log has an entry for each packet of its core,
//! not for each record as in the paper: a `k`th of the entries, each published as a whole. An entry copies the words that its packet
//! carries, or none if the history is in memory that all cores share. For how logs are bounded, why no core waits for ever, and how a
//! stalled core is fenced, see `docs/decisions/0009-loss-recovery.md`.

mod log;
mod member;
mod patience;
mod sync;
mod tally;

pub use log::{Logs, Shape};
pub use member::{Apply, Fenced, Member, Refusal, Words};
pub use patience::Patience;
#[cfg(loom)]
pub use sync::Fault;
pub use tally::Tally;
