//! Packet input and output: the traits [`Port`] and [`Queue`], the [`Batch`] of packets that passes through them, and ports for captures,
//! memory and replay that need no privilege.
//!
//! A [`Port`] opens one queue for each core, or one stream that cores share. A queue fills a batch with packets in arrival order, with
//! monotonic times. The engine sets each packet's [`Fate`]. The queue then sends or drops the packets. A port is called once for each
//! burst, through a trait object.
//!
//! ```
//! use millrace_port::{Batch, Fate, MemoryQueue, Packet, Receive, Received, Trace, Transmit};
//! use packet::{LinkType, Nanos, Seq};
//!
//! let mut trace = Trace::new();
//! let packet = Packet {
//!     seq: Seq(0), time: Nanos(0), offset: 0, len: 0, wire_len: 60, interface: 0, link: LinkType::Ethernet, bucket: 0,
//!     fate: Fate::Pending,
//! };
//! trace.push(packet, &[0; 60]);
//! let mut queue = MemoryQueue::new(trace.into(), 32);
//! let mut batch = Batch::default();
//! assert_eq!(queue.receive(&mut batch)?, Received::Packets);
//! for packet in batch.packets_mut() {
//!     packet.fate = Fate::Transmit(1);
//! }
//! queue.transmit(&mut batch)?;
//! assert_eq!(queue.outbox().take()[0].port, 1);
//! # Ok::<(), millrace_port::PortError>(())
//! ```

#![forbid(unsafe_code)]

mod batch;
mod card;
mod error;
mod faulty;
mod gathered;
mod memory;
pub mod pcap;
mod queue;
mod reorder;
mod replay;
mod watched;

pub use batch::{Batch, BatchMemory, Block, Fate, Frames, Packet};
pub use card::{Ahead, Card, CardLimits, CardRefusal, Plain, Returned, SimulatedCard};
pub use error::PortError;
pub use faulty::{Faults, Faulty, FaultyPort};
pub use gathered::Gathered;
pub use memory::{MemoryPort, MemoryQueue, Outbox, Sent, Trace};
pub use queue::{
    HEAD_BYTES, Halves, History, Mark, Opened, Order, Past, Port, Queue, Receive, ReceiveLosses, Received, Sequenced,
    Sides, Stream, Transmit, TransmitCounts, Work,
};
pub use reorder::{Release, ReorderCounts, ReorderLimits, ReorderTotals, Reordered, ReorderedQueue, Unheld};
pub use replay::{Arrivals, BURST, DESCRIPTORS, Depth, HugePages, Load, Loops, Offered, Renumber, Replay};
pub use watched::{Watch, Watched};
