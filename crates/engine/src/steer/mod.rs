//! Steering: which core gets a packet.
//!
//! [`dispatch`] does the work of a card or a sequencer. [`classify`] parses packets ahead of steering, [`steering`] chooses their cores,
//! and [`balance`] (`rss++`) and [`elephants`] (`hybrid`) adapt to the load.

pub(crate) mod balance;
pub(crate) mod classify;
pub(crate) mod core_batch;
pub(crate) mod dispatch;
pub(crate) mod elephants;
pub(crate) mod steering;
