//! Errors of AF_XDP ports.

use std::io;

use interface::InterfaceError;
use port::PortError;

/// A refusal to open an AF_XDP port: what failed, where, and what to type.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// There is no such interface, or the kernel refuses something about it.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// An option is out of range, or contradicts another.
    #[error("{0}")]
    Option(String),
    /// The kernel was built without AF_XDP.
    #[error("this kernel has no AF_XDP sockets; use one with CONFIG_XDP_SOCKETS=y, from Linux 5.11 on")]
    NoSockets,
    /// The kernel may not lock as much memory for this process.
    #[error(
        "{interface}: {bytes} bytes of packet memory exceed the limit of locked memory; type `ulimit -l unlimited`, run as root, or use \
         fewer frames"
    )]
    LockedMemory {
        /// The interface.
        interface: String,
        /// The memory of one core.
        bytes: usize,
    },
    /// The interface has another number of queues than there are sockets for it.
    #[error(
        "{interface} has {have} queue{}, but {want} socket{} wanted: a packet of a queue without a socket would be lost; {advice}",
        if *have == 1 { "" } else { "s" },
        if *want == 1 { " is" } else { "s are" }
    )]
    Queues {
        /// The interface.
        interface: String,
        /// Queues of the interface.
        have: u32,
        /// Sockets wanted, one for each core.
        want: u32,
        /// What to type.
        advice: String,
    },
    /// Another program is attached to the interface.
    #[error(
        "{interface} already has an XDP program, number {program}; remove it: ip link set dev {interface} xdp off, or end the process that holds it"
    )]
    Occupied {
        /// The interface.
        interface: String,
        /// The program's number in the kernel; 0 if the kernel doesn't tell.
        program: u32,
    },
    /// Another socket has the queue.
    #[error("queue {queue} of {interface} is held by another AF_XDP socket; `ss --xdp -p` names its process")]
    QueueHeld {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The driver can't run XDP programs.
    #[error("{interface}: its driver runs no XDP program: {source}; use generic mode{hint}")]
    NoNative {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
        /// What else may be in the way; empty, or it begins with a comma.
        hint: &'static str,
    },
    /// The driver can't receive without a copy.
    #[error("{interface}: its driver has no zero-copy for this queue: {source}; use copy mode")]
    NoZeroCopy {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Packets of the interface don't fit in a frame, and the kernel doesn't spread them over several.
    #[error(
        "{interface}: packets of MTU {mtu} don't fit in frames of {frame_len} bytes, and this kernel or driver spreads none over several \
         frames: {source}; type `ip link set dev {interface} mtu {holds}`, or use frames of 4096 bytes"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// Bytes of a frame.
        frame_len: u32,
        /// The largest MTU that fits.
        holds: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// An XDP program in the driver can't send packets out of the interface.
    #[error(
        "{interface}: the XDP program of a driver can't send packets out of it{reason}; use generic mode, or leave offload out. At a veth pair, \
         type `ethtool -K PEER gro on`, with PEER its other end"
    )]
    NoRedirect {
        /// The interface.
        interface: String,
        /// The kernel's answer; empty, or it begins with a colon.
        reason: String,
    },
    /// The kernel refused the XDP program.
    #[error("{interface}: the kernel refuses the XDP program: {source}{}{log}", if log.is_empty() { "" } else { "\n" })]
    Program {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
        /// The end of the verifier's log.
        log: String,
    },
    /// The program's file is damaged: an error of the build.
    #[error("the XDP program in this binary is damaged: {0}")]
    Damaged(String),
}

/// The capabilities of an AF_XDP port.
const CAPABILITIES: &str = "cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_ipc_lock";

impl XdpError {
    /// The kernel's refusal of `action`.
    pub(crate) fn system(interface: &str, action: &'static str, source: io::Error) -> Self {
        Self::Interface(InterfaceError::system(interface, action, CAPABILITIES, source))
    }
}

impl From<XdpError> for PortError {
    fn from(error: XdpError) -> Self {
        Self::Interface(Box::new(error))
    }
}
