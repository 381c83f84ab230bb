//! Steering: which core gets a packet.
//!
//! [`dispatch`] stands where a card or a sequencer would. It asks [`classify`] what packets contribute and [`steering`] for their cores, and follows
//! the load by [`balance`] (`rss++`) and [`elephants`] (`hybrid`).

pub(crate) mod balance;
pub(crate) mod classify;
pub(crate) mod core_batch;
pub(crate) mod dispatch;
pub(crate) mod elephants;
pub(crate) mod steering;
