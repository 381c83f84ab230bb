//! What keeps memory quick to reach: huge pages, and asking ahead of time. And memory that is reserved at the start, and comes when it
//! is first touched. And memory that somebody lends.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod loan;
pub mod pages;
pub mod prefetch;

/// Bytes that come near together.
pub const CACHE_LINE: usize = 64;
