//! The piggyback carrier: each packet travels behind the history that its core needs (figure 4a of state-compute replication, NSDI '25).
//!
//! A [`Sequencer`] writes the history and [`parse`] reads it. [`run_sequenced`](crate::run_sequenced) runs replicas that know of other
//! cores' packets by it alone.
//!
//! Version 1, every field in network byte order, N rows of R bytes:
//!
//! ```text
//! [outer Ethernet header, 14, optional] destination 02:4d:52:00:HH:LL (HHLL the core), source 02:4d:52:ff:00:00,
//!                                       EtherType 0x88b5
//! [row 0] .. [row N-1]                  the sequencer's ring as it stood before this packet; k cores need k-1 rows
//! [trailer, 32]                         version u8 = 1 | flags u8 = 0 | N u16 | R u16 | index u16 | number u64 |
//!                                       time u64 | interface u16 | link type u16 | length on the wire u32
//! [the packet]
//! ```
//!
//! A row is a time (nanoseconds in 63 bits) and the function's record ([`nf::Meta::write`]). The time's top bit says that the packet takes
//! a step; if not, the record is zero. A row that was never written is all zero. `index` is the row of the oldest record, which this
//! packet's own record overwrites next: the packet's number modulo N.

mod error;
mod layout;
mod queue;
mod ring;
mod sequencer;
mod unpack;

pub use error::{CarrierError, OrderError};
pub use layout::{
    Carried, ETHERNET_BYTES, ETHERTYPE, LINK, Outer, Shape, TAKES_STEP, TIME_BYTES, TRAILER_BYTES, parse,
};
pub use queue::{Gaps, Sequenced, SequencedPort};
pub use sequencer::{LateTime, Sequencer};
pub(crate) use unpack::Unpack;
