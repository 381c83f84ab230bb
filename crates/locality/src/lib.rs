//! What keeps memory quick to reach: huge pages, and asking ahead of time.
#![no_std]

extern crate alloc;

pub mod pages;
pub mod prefetch;

/// Bytes that come near together.
pub const CACHE_LINE: usize = 64;
