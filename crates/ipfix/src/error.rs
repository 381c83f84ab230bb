//! Errors of set-up. The data path has none.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of the exporter: what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum IpfixError {
    /// The messages would be too short for a template, or longer than the length field.
    #[error("IPFIX messages of {0} bytes: give a length from 512 to 65535")]
    MessageLength(usize),
    /// There is no socket for this collector.
    #[error("IPFIX to {collector}: no UDP socket: {source}; give an address that this machine has a route to")]
    Socket {
        /// The collector's address.
        collector: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The file can't be created.
    #[error("IPFIX file {}: {source}; name a file that can be written", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The exporter's thread can't be started.
    #[error("IPFIX: no thread for the exporter: {0}; raise the limit on threads")]
    Thread(io::Error),
}
