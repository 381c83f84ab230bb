//! Fast memory: prefetches, huge pages, memory reserved at start and allocated at first use, and pools of memory to lend.
//!
//! ```
//! use millrace_locality::loan::Pool;
//!
//! let pool = Pool::new(2, 4096);
//! let loan = pool.lend().expect("the pool has two blocks");
//! drop(loan); // it returns to the pool
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod loan;
pub mod pages;
pub mod prefetch;

/// Bytes of a cache line.
pub const CACHE_LINE: usize = 64;
