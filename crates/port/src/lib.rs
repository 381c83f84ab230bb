//! Packets in and packets out: the [`Queue`] trait, the [`Batch`] that travels through it, and the ports that need no
//! privilege.
//!
//! A [`Port`] opens one queue for each core. A queue fills a batch with packets in arrival order, their time made
//! monotonic; the engine decides each packet's [`Fate`]; the queue carries the fates out. A port is called once a burst,
//! so it stands behind a trait object; nothing else on the path does.

#![forbid(unsafe_code)]

mod batch;
mod error;
mod faulty;
mod memory;
pub mod pcap;
mod queue;
mod replay;

pub use batch::{Batch, Block, Fate, Frames, Packet};
pub use error::PortError;
pub use faulty::{Faults, Faulty, FaultyPort};
pub use memory::{MemoryPort, MemoryQueue, Outbox, Sent, Trace};
pub use queue::{
    Opened, Order, Port, Queue, Receive, ReceiveLosses, Received, Sides, Stream, Transmit, TransmitCounts,
};
pub use replay::{BURST, DESCRIPTORS, Depth, HugePages, Load, Loops, Offered, Renumber, Replay};
