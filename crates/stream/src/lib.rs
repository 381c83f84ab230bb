//! TCP reassembly: what a side of a connection says, in order, from segments as they come.
//!
//! [`Side`] is the state of one side, plain data of 32 bytes. It gets [`Segment`]s and calls back with [`Event`]s: data in order, gaps,
//! deviations, the end. A segment that comes in order is handed over where it lies, without a copy. One that comes early is copied into
//! blocks of a [`Pool`] until what is before it has come. Pools take their memory from a [`Budget`] that is fixed at the start.
//!
//! **Where bytes overlap** that have not been handed over yet, [`Policy`] decides which copy counts, as the receiver would. If the copies
//! differ, that is a [deviation](Event::Deviation). Bytes that were handed over are not kept: a later copy of them is told as it is
//! ([`Event::Again`]), for callers that keep some.
//!
//! **A gap** is told, and never joined over: when the receiver has acknowledged bytes behind it ([`Side::acknowledged`]), when a limit is
//! reached, or at the end. It is decided by packets alone, never by a clock.
//!
//! ```
//! use millrace_stream::{Budget, Event, Limits, Policy, Pool, Segment, Side};
//!
//! let budget = Budget::new(1 << 20);
//! let pool = Pool::new(&budget);
//! let limits = Limits::default();
//! let mut side = Side::default();
//! let mut said = Vec::new();
//! let mut hear = |event: Event<'_>| {
//!     if let Event::Data(bytes) = event {
//!         said.extend_from_slice(bytes);
//!     }
//!     true
//! };
//! for (seq, payload) in [(1000, ""), (1007, "world"), (1001, "hello ")] {
//!     let segment = Segment { seq, payload: payload.as_bytes(), missing: 0, syn: seq == 1000, fin: false };
//!     side.segment(&segment, &pool, Policy::Linux, &limits, &mut hear);
//! }
//! assert_eq!(said, b"hello world");
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
extern crate std;

mod kept;
mod policy;
mod pool;
mod side;
mod storage;

pub use kept::Kept;
pub use policy::Policy;
pub use pool::{BLOCK_BYTES, Budget, Pool};
pub use side::{Again, Deviation, End, Event, Gap, Limits, Segment, Side, Taken};
pub use storage::{Pools, Storage};
