//! Errors of AF_PACKET ports.

use std::io;

use interface::InterfaceError;
use port::PortError;

/// A refusal to open an AF_PACKET port: what failed, where, and what to type.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// There is no such interface, or the kernel refuses something about it.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// An option is out of range, or contradicts another.
    #[error("{0}")]
    Option(String),
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
}

/// The capability of an AF_PACKET port.
const CAPABILITIES: &str = "cap_net_raw";

impl PacketError {
    /// The kernel's refusal of `action`.
    pub(crate) fn system(interface: &str, action: &'static str, source: io::Error) -> Self {
        Self::Interface(InterfaceError::system(interface, action, CAPABILITIES, source))
    }
}

impl From<PacketError> for PortError {
    fn from(error: PacketError) -> Self {
        Self::Interface(Box::new(error))
    }
}
