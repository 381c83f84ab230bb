//! Shared tables that `tables bench` compares with [`Entries`](super::Entries). No engine uses them.

mod bucket;
mod exclusive;
mod mutex;
mod optimistic;
mod path;
mod striped;

pub use mutex::Locked;
pub use optimistic::Optimistic;
pub use striped::Striped;
