//! Bounded hash tables for flows, with timeouts and eviction.
//!
//! [`Table`] maps a key to a flow. It keeps the entries in a slab and finds them through an [`Index`] (cuckoo hashing by default). A
//! hierarchical timing wheel over packet time finds expired flows, and a clock hand chooses which flow to evict from a full table. All
//! memory is reserved at the start. Later operations allocate nothing and take bounded time.
//!
//! [`shared`] has tables that several cores use at once.
//!
//! ```
//! use millrace_flow::Table;
//! use packet::{FiveTuple, FiveTuple4, Nanos};
//!
//! let mut table: Table<FiveTuple4, u64> = Table::new(1_000, 0x5eed);
//! let FiveTuple::V4(key) = FiveTuple::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 4321, 443, 6) else { unreachable!() };
//! let hash = table.hash(&key);
//!
//! let now = Nanos::from_secs(1);
//! let slot = table.insert(key, hash, 0, now + Nanos::from_secs(30), now).expect("the table is not full");
//! *table.value_mut(slot) += 1500;
//! assert_eq!(table.find(&key, hash), Some(slot));
//!
//! let later = Nanos::from_secs(60);
//! let expired = (0..100).find_map(|_| table.reclaim(later)).expect("the flow's deadline has passed");
//! assert_eq!(table.remove(expired), 1500);
//! assert!(table.is_empty());
//! ```
#![no_std]

extern crate alloc;
// For the locks of shared tables; everything else needs `alloc` only.
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
