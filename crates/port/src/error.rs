//! Errors of ports.

use std::io;
use std::path::PathBuf;

use crate::pcap;

/// An error of a port: what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A file can't be opened, read or written.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The failed operation.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A capture can't be read or written.
    #[error(transparent)]
    Capture(#[from] pcap::Error),
    /// A capture is too large for a trace in memory.
    #[error("{}: a trace holds 4 GiB, and the packets after number {packets} don't fit; take fewer packets", path.display())]
    TraceTooLarge {
        /// The capture.
        path: PathBuf,
        /// How many of its packets fit.
        packets: usize,
    },
    /// The port has fewer queues than there are cores.
    #[error("the port has {have} queues for {want} cores; use --cores {have} or fewer")]
    Queues {
        /// Number of queues.
        have: usize,
        /// Number of cores.
        want: usize,
    },
    /// The port is down for now; it may come up again.
    #[error("{0} is down")]
    Down(String),
    /// A network interface can't be opened, or fails.
    #[error(transparent)]
    Interface(Box<dyn std::error::Error + Send + Sync>),
    /// A packet is invalid for this input or output.
    #[error("{0}")]
    Unfit(Box<dyn std::error::Error + Send + Sync>),
}
