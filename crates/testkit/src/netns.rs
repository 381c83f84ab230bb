//! Network namespaces and virtual wires between them, for comparisons with the kernel's network stack.
//!
//! The name of a namespace contains the process number. A namespace is deleted on drop, also after a panic.
#![allow(unsafe_code)]

mod netfilter;
mod router;

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

pub use netfilter::{PacketLog, flush_conntrack};
pub use router::{Interface, KernelRouter, Sent};

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates the namespace `mr-PID-LABEL`, with its loopback up.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn new(label: &str) -> io::Result<Self> {
        let name = format!("mr-{}-{label}", std::process::id());
        command("ip", &["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// The name in `ip netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` in the namespace.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn ip(&self, arguments: &[&str]) -> io::Result<String> {
        command("ip", &[&["-n", &self.name], arguments].concat())
    }

    /// Runs a program in the namespace to its end.
    ///
    /// # Errors
    /// The error of the program.
    pub fn run(&self, program: &str, arguments: &[&str]) -> io::Result<String> {
        command("ip", &[&["netns", "exec", &self.name, program], arguments].concat())
    }

    /// Lays a wire (a veth pair) from `near` in this namespace to `far` in another, brings both ends up, and turns off their checksum
    /// offload, with which TCP would carry no checksums. The ends send nothing of their own as long as they have no address.
    ///
    /// # Errors
    /// The error of `ip` or `ethtool`.
    pub fn lay_wire(&self, near: &str, other: &Self, far: &str, mtu: u32) -> io::Result<()> {
        let mtu = mtu.to_string();
        let pair = ["type", "veth", "peer", "name", far, "mtu", &mtu, "netns", other.name()];
        self.ip(&[&["link", "add", near, "mtu", &mtu], &pair[..]].concat())?;
        for (namespace, end) in [(self, near), (other, far)] {
            namespace.feed("ethtool", &["-K", end, "tx", "off"], "")?;
            namespace.ip(&["link", "set", end, "addrgenmode", "none", "up"])?;
        }
        Ok(())
    }

    /// Runs a program in the namespace to its end, with `input` as its standard input. Its `/sys` is that of the caller.
    ///
    /// # Errors
    /// The error of the program.
    pub fn feed(&self, program: &str, arguments: &[&str], input: &str) -> io::Result<String> {
        self.enter(|| {
            let mut command = with_sbin(program);
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn()?;
            let written = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
            let out = outcome(program, arguments, child.wait_with_output()?)?;
            written.map(|()| out)
        })
    }

    /// Returns how many packets an interface of the namespace has received.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such interface.
    pub fn received(&self, interface: &str) -> io::Result<u64> {
        let text = self.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?;
        let mut lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'));
        let packets = lines.next().and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        packets.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Calls `f` on a new thread inside the namespace: its sockets belong to the namespace, and so does its `/proc/sys/net`.
    ///
    /// # Panics
    /// If `f` panics, or the namespace can't be entered.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            let file = File::open(format!("/run/netns/{}", self.name)).expect("the namespace was made by us");
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind)
                .expect("root may enter it");
            f()
        };
        thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Interfaces are deleted with their namespace, and so is a veth's other end.
        let _ = command("ip", &["netns", "del", &self.name]);
    }
}

/// One end of a wire: sends and receives whole frames.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
    mac: [u8; 6],
    /// Room for the longest frame.
    buffer: RefCell<Vec<u8>>,
}

impl Wire {
    /// Opens the interface, which must be in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(interface: &str) -> io::Result<Self> {
        Self::bound(interface, ETH_P_ALL)
    }

    /// Opens the interface, which must be in the calling thread's namespace, to send alone: the kernel copies no frame for it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open_to_send(interface: &str) -> io::Result<Self> {
        Self::bound(interface, NO_PROTOCOL)
    }

    fn bound(interface: &str, protocol: u16) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            std::num::NonZeroU32::new(u32::from(protocol.to_be())).map(Protocol::from_raw),
        )?;
        // Room for a few thousand packets, beyond the limit for ordinary users: a full buffer loses packets without a word.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20)?;
        let index = name_to_index(&socket, interface)?;
        rustix::net::bind(&socket, &LinkAddress::new(index, protocol))?;
        Ok(Self { socket, mac: mac_of(interface)?, buffer: RefCell::new(vec![0; 65_536]) })
    }

    /// This end's Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let sent = rustix::net::send(&self.socket, frame, SendFlags::empty())?;
        if sent == frame.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Receives the next frame from the other end, if there is one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn take(&self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = self.buffer.borrow_mut();
        loop {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                // A packet socket also receives its own frames.
                Ok((_, len)) if len >= 12 && buffer[6..12] == self.mac => {}
                Ok((_, len)) => return Ok(Some(buffer[..len].to_vec())),
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::NETDOWN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until one of `wires` has a frame, at most until `end`. Returns true if one has.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn wait(wires: &[&Self], end: Instant) -> io::Result<bool> {
        let mut polled: Vec<PollFd<'_>> = wires.iter().map(|wire| PollFd::new(&wire.socket, PollFlags::IN)).collect();
        let remaining = end.saturating_duration_since(Instant::now());
        let remaining = Timespec { tv_sec: remaining.as_secs() as i64, tv_nsec: i64::from(remaining.subsec_nanos()) };
        match poll(&mut polled, Some(&remaining)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns what is missing for namespaces, if anything: root, or a program.
#[must_use]
pub fn missing(programs: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root".to_owned());
    }
    let absent: Vec<_> = programs
        .iter()
        .copied()
        .filter(|program| {
            let out = with_sbin(program).arg("--version").output();
            matches!(out, Err(error) if error.kind() == io::ErrorKind::NotFound)
        })
        .collect();
    if !absent.is_empty() {
        return Some(absent.join(", "));
    }
    // A container may have root and the programs, but not the capability. Concurrent tests probe separately.
    let probe = format!("probe-{:?}", thread::current().id());
    Namespace::new(&probe.replace(['(', ')'], ""))
        .err()
        .map(|error| format!("the right to make network namespaces: {error}"))
}

/// Runs a program to its end.
///
/// # Errors
/// If it can't be started; or its standard error, if its exit code is not 0.
pub fn command(program: &str, arguments: &[&str]) -> io::Result<String> {
    outcome(program, arguments, with_sbin(program).args(arguments).output()?)
}

/// Returns a program's standard output, or its standard error as an error.
fn outcome(program: &str, arguments: &[&str], out: std::process::Output) -> io::Result<String> {
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&out.stderr);
    Err(io::Error::other(format!("{program} {}: {}", arguments.join(" "), complaint.trim())))
}

/// Builds a command with the administrator's program folders in the path.
fn with_sbin(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
    command
}

const ETH_P_ALL: u16 = 3;
/// The protocol of a socket that receives nothing.
const NO_PROTOCOL: u16 = 0;

/// `struct sockaddr_ll` of packet(7).
#[repr(C)]
struct LinkAddress {
    family: u16,
    protocol: u16,
    index: i32,
    hardware: u16,
    kind: u8,
    address_len: u8,
    address: [u8; 8],
}

impl LinkAddress {
    const fn new(index: u32, protocol: u16) -> Self {
        Self {
            family: AddressFamily::PACKET.as_raw(),
            protocol: protocol.to_be(),
            index: index as i32,
            hardware: 0,
            kind: 0,
            address_len: 0,
            address: [0; 8],
        }
    }
}

// SAFETY: the pointer handed on is to a live value of `struct sockaddr_ll`'s layout, and the length is that value's.
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f(std::ptr::from_ref(self).cast(), size_of::<Self>() as SocketAddrLen)
    }
}

/// Returns the interface's Ethernet address by `ip`, because `/sys` shows the namespace in which it was mounted.
fn mac_of(interface: &str) -> io::Result<[u8; 6]> {
    let out = command("ip", &["-o", "link", "show", "dev", interface])?;
    let text = out.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).ok_or(io::ErrorKind::NotFound)?;
    let mut bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = bytes.next().and_then(Result::ok).ok_or(io::ErrorKind::InvalidData)?;
    }
    Ok(mac)
}
