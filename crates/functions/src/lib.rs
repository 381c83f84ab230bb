//! The catalogue of network functions, one file each.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod config;
pub mod nat;
