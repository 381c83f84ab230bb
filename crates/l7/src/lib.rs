//! Streams made of packets. For now: IP defragmentation, in [`defrag`].

#![forbid(unsafe_code)]

pub mod defrag;
