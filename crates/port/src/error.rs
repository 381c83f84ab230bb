//! What can go wrong at a port.

use std::io;
use std::path::PathBuf;

use crate::pcap;

/// What can go wrong at a port: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A file can't be opened, read or written.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A capture can't be read or written.
    #[error(transparent)]
    Capture(#[from] pcap::Error),
    /// A capture does not fit a trace in memory.
    #[error("{}: the packets behind number {packets} do not fit the 4 GiB that a trace holds; ask for fewer", path.display())]
    TraceTooLarge {
        /// The capture.
        path: PathBuf,
        /// How many of its packets fit.
        packets: usize,
    },
    /// The port has fewer queues than cores were asked for.
    #[error("the port has {have} queues, {want} cores were asked for; use --cores {have} or fewer")]
    Queues {
        /// Queues that there are.
        have: usize,
        /// Queues that were asked for.
        want: usize,
    },
    /// The port is down for now; it may come up again.
    #[error("{0} is down")]
    Down(String),
    /// What came is not what was to come, or can't go out as it is to.
    #[error("{0}")]
    Unfit(Box<dyn std::error::Error + Send + Sync>),
}
