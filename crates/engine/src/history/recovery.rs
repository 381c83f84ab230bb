//! Loss recovery for state-compute replication (NSDI '25, section 3.4 and algorithm 1): replicas stay alike although packets
//! are lost between the sequencer and the cores.
//!
//! The sequencer sprays packets around `k` cores, packet `j` to core `j mod k`, with the records of packets `j-k+1` to `j`.
//! A core that lost a packet takes the records that it missed from the others' [`Logs`]. A record that reached any core is
//! applied by all, one that reached none is applied by none.
//!
//! Since record `i` reaches a core in exactly one packet, the one of its own among `i` to `i+k-1`, a log has an entry for each
//! packet of its core and not, as in the paper, for each record: a `k`th of the entries, each published as a whole. Its words are a copy
//! of what the packet carries, or where histories stay in memory that all cores see, none. How the
//! logs can be bounded, why nobody waits for ever, and how a stalled core is shut out: `docs/decisions/0009-loss-recovery.md`.

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
