#![doc = include_str!("../README.md")]

mod block;
mod device;
mod error;
mod facts;
mod input;
mod link;
mod options;
mod output;
mod port;
mod ring;
mod socket;
mod stamps;

pub use self::port::{Monitor, PacketPort};
pub use device::InterfaceCounts;
pub use error::PacketError;
pub use options::{LinkPolicy, Options, Role, Traffic};
