#![doc = include_str!("../README.md")]

mod bpf;
mod clock;
mod common;
mod core;
mod device;
mod doctor;
mod error;
mod facts;
mod filter;
mod input;
mod ledger;
mod loans;
mod offload;
mod options;
mod outlets;
mod output;
mod port;
mod program;
mod ring;
mod sequencer;
mod socket;
mod umem;

pub use self::port::{Monitor, XdpPort};
pub use device::InterfaceCounts;
pub use doctor::{Examination, Finding, State, examine};
pub use error::XdpError;
pub use filter::{Filter, LinkPolicy, MANAGEMENT_MAX, ManagementPort, Protocol};
pub use ledger::Balance;
pub use options::{BusyPoll, Copying, Mode, Options, Spread};
pub use program::ProgramCounts;
