//! Errors of AF_PACKET ports.

use std::io;

use port::PortError;

/// What an AF_PACKET port lacks: what failed, where, and what to type.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// There is no such interface.
    #[error("there is no interface {interface}; this network namespace has: {}", known.join(", "))]
    UnknownInterface {
        /// The name.
        interface: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// An option is out of range, or contradicts another.
    #[error("{0}")]
    Option(String),
    /// The process lacks a capability.
    #[error(
        "{interface}: {action}: not permitted; run as root, or give the program the capability CAP_NET_RAW: setcap cap_net_raw+ep FILE"
    )]
    Privilege {
        /// The interface.
        interface: String,
        /// The refused operation.
        action: &'static str,
    },
    /// The kernel was built without AF_PACKET.
    #[error("this kernel has no packet sockets; use one with CONFIG_PACKET=y or type `modprobe af_packet`")]
    NoSockets,
    /// The interface has been switched off.
    #[error("{interface} is down; type `ip link set dev {interface} up`")]
    Down {
        /// The interface.
        interface: String,
    },
    /// The interface's frames begin with a header that Millrace doesn't know.
    #[error(
        "{interface}: its frames are neither Ethernet nor bare IP packets (hardware type {hardware}); use another interface"
    )]
    Link {
        /// The interface.
        interface: String,
        /// The type, as in `linux/if_arp.h`.
        hardware: u16,
    },
    /// The kernel has no memory for a receive ring.
    #[error("{interface}: the kernel gives no {bytes} bytes for a receive ring: {source}; use fewer or smaller blocks")]
    Memory {
        /// The interface.
        interface: String,
        /// Bytes of a core's ring.
        bytes: usize,
        /// The kernel's answer.
        source: io::Error,
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

impl PacketError {
    /// The kernel's refusal of `action`.
    pub(crate) fn system(interface: &str, action: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Privilege { interface: interface.to_owned(), action },
            _ => Self::System { interface: interface.to_owned(), action, source },
        }
    }
}

impl From<PacketError> for PortError {
    fn from(error: PacketError) -> Self {
        Self::Interface(Box::new(error))
    }
}
