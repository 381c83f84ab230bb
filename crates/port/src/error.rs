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
    /// The port has fewer queues than cores were asked for.
    #[error("the port has {have} queues, {want} cores were asked for; use --cores {have} or fewer")]
    Queues {
        /// Queues that there are.
        have: usize,
        /// Queues that were asked for.
        want: usize,
    },
}
