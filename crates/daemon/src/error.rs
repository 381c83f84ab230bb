//! Errors of the control socket and of the HTTP server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of the control socket or of the HTTP server: what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Another run listens there.
    #[error("{}: another run listens there; name another socket with --control=PATH", .0.display())]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{}: there is a file that is no socket; name another path with --control=PATH", .0.display())]
    NoSocket(PathBuf),
    /// Nobody listens there.
    #[error("{}: no run listens there; start one with `millrace run ... --control=PATH`, or name the socket of another with `millrace ctl --control PATH`", .0.display())]
    Nobody(PathBuf),
    /// The socket belongs to somebody else.
    #[error("{}: this socket belongs to another user; ask as that user, or as root", .0.display())]
    NotAllowed(PathBuf),
    /// The system refuses.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The failed operation.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The answer is not a reply of a run.
    #[error("{}: the answer is no reply of a run: {reason}", path.display())]
    NoReply {
        /// The socket.
        path: PathBuf,
        /// The error in it.
        reason: String,
    },
    /// The HTTP server can't listen.
    #[error("{addr}: can't serve HTTP there: {source}; name another address")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}
