//! Errors of interfaces, whichever socket brings the packets.

use std::io;

/// A refusal that concerns an interface: what failed, where, and what to type.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is no such interface.
    #[error("there is no interface {interface}; this network namespace has: {}", known.join(", "))]
    Unknown {
        /// The name.
        interface: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The process lacks a capability.
    #[error(
        "{interface}: {action}: not permitted; run as root, or give the program its capabilities: setcap {capabilities}+ep FILE"
    )]
    Privilege {
        /// The interface.
        interface: String,
        /// The refused operation.
        action: &'static str,
        /// The capabilities that the port needs, separated by commas.
        capabilities: &'static str,
    },
    /// Any other refusal of the kernel.
    #[error("{interface}: {action}: {source}")]
    System {
        /// The interface.
        interface: String,
        /// The failed operation.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl InterfaceError {
    /// The kernel's refusal of `action`, by a port that needs these capabilities.
    #[must_use]
    pub fn system(interface: &str, action: &'static str, capabilities: &'static str, source: io::Error) -> Self {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Privilege { interface, action, capabilities },
            _ => Self::System { interface, action, source },
        }
    }
}
