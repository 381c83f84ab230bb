//! Errors of a run as a service.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of a run as a service: what failed, where, and what to do.
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
        /// The socket or file.
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
    /// The service manager has set a variable to what has no meaning.
    #[error("{name}={value}: this is {what}; start the run without that variable, or by systemd")]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The defect of the value.
        what: &'static str,
    },
    /// No such user.
    #[error("user `{0}`: /etc/passwd has no such user; name one that it has, or a number")]
    NoUser(String),
    /// The user is root, or in root's group.
    #[error("{0}: this user is root or in its group; name an unprivileged user")]
    PrivilegedUser(String),
    /// Only root can become another user.
    #[error("{0}: only root can become this user; start the run as root, or as that user")]
    NotRoot(String),
    /// The process has several threads already.
    #[error("rights can't be dropped in {0} threads, only before the second one starts; this is a bug in the caller")]
    Threads(usize),
    /// The system refuses to change the rights.
    #[error("rights can't be dropped: {action}: {source}")]
    Rights {
        /// The failed operation.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The system calls can't be restricted.
    #[error("system calls can't be restricted: {0}; a kernel without CONFIG_SECCOMP_FILTER can't do it")]
    Filter(String),
    /// Logs have begun already.
    #[error("logs have begun already in this process; this is a bug in the caller")]
    LogsBegun,
    /// The HTTP server can't listen.
    #[error("{addr}: can't serve HTTP there: {source}; name another address")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}
