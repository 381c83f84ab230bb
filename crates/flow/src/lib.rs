//! Bounded flow tables and the ageing of flows.
//!
//! [`Table`] is a slab of entries behind an [`Index`], with a timing wheel over packet time and a
//! hand that goes round the flows that nobody has answered. It is sized at the start; from then on it allocates
//! nothing and every operation takes bounded time.
#![no_std]

extern crate alloc;
// For the lock and the yielding of tables that are shared; the rest does without.
extern crate std;

mod blocks;
mod eviction_candidates;
mod hashes;
pub mod index;
mod memory;
mod policy;
pub mod shared;
mod slab;
mod table;
mod tags;

mod wheel;

pub use index::Index;
pub use policy::{Ageing, EntryGuard, Eviction};
pub use table::{EntryMut, Hint, Plan, SCANNED, Slot, Table};
pub use wheel::TICK;
