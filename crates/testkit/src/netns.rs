//! Network namespaces, and the wires between them: what a test needs to hold something against the kernel's own stack.
//!
//! Every namespace has a name with this process's number in it, and goes when its value is dropped, also on a panic.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// A network namespace of our own.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes the namespace `mr-PID-LABEL`, with its loopback up.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn new(label: &str) -> io::Result<Self> {
        let name = format!("mr-{}-{label}", std::process::id());
        command("ip", &["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// The name that `ip netns` knows it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` here.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn ip(&self, arguments: &[&str]) -> io::Result<String> {
        command("ip", &[&["-n", &self.name], arguments].concat())
    }

    /// Runs a program here to its end.
    ///
    /// # Errors
    /// What the program says.
    pub fn run(&self, program: &str, arguments: &[&str]) -> io::Result<String> {
        command("ip", &[&["netns", "exec", &self.name, program], arguments].concat())
    }

    /// Calls `f` on a thread of its own that lives here: sockets that it opens stay here, and `/proc/sys/net` is ours.
    ///
    /// # Panics
    /// When `f` does, or the namespace can't be entered.
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

    /// Links this namespace's interface `name` with `peer_name` in `peer`: a wire without offloads, both ends up, that
    /// speaks of its own accord neither IPv6 nor ARP.
    ///
    /// # Errors
    /// What `ip` or `ethtool` says.
    pub fn link(&self, name: &str, peer: &Self, peer_name: &str) -> io::Result<()> {
        command(
            "ip",
            &["link", "add", name, "netns", &self.name, "type", "veth", "peer", peer_name, "netns", &peer.name],
        )?;
        for (namespace, interface) in [(self, name), (peer, peer_name)] {
            namespace.ip(&["link", "set", interface, "addrgenmode", "none"])?;
            namespace.run(
                "ethtool",
                &["-K", interface, "tx", "off", "rx", "off", "gro", "off", "gso", "off", "tso", "off"],
            )?;
            namespace.ip(&["link", "set", interface, "arp", "off", "up"])?;
        }
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Interfaces go with their namespace, and a veth's other end with it.
        let _ = command("ip", &["netns", "del", &self.name]);
    }
}

/// One end of a wire: sends and receives whole frames.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
    mac: [u8; 6],
}

impl Wire {
    /// Opens the interface, which must be in the calling thread's namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(interface: &str) -> io::Result<Self> {
        let all = Protocol::from_raw(std::num::NonZeroU32::new(u32::from(ETH_P_ALL.to_be())).expect("not zero"));
        let socket = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(all),
        )?;
        let index = name_to_index(&socket, interface)?;
        rustix::net::bind(&socket, &LinkAddress::new(index))?;
        Ok(Self { socket, mac: mac_of(interface)? })
    }

    /// This end's Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let sent = rustix::net::send(&self.socket, frame, SendFlags::empty())?;
        if sent == frame.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Takes the next frame that the other end sent, if one is there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take(&self) -> io::Result<Option<Vec<u8>>> {
        let mut frame = vec![0; 65_536];
        loop {
            match rustix::net::recv(&self.socket, &mut frame[..], RecvFlags::empty()) {
                // A packet socket also hears what it says itself.
                Ok((_, len)) if len >= 12 && frame[6..12] == self.mac => {}
                Ok((_, len)) => {
                    frame.truncate(len);
                    return Ok(Some(frame));
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::NETDOWN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until one of `wires` has something to take, at most until `end`. Whether one has.
    ///
    /// # Errors
    /// What the kernel says.
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

/// What is missing to make namespaces and to set them up, if anything: root, or a program.
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
    // Containers may have root and the programs, yet not the right. Tests that run at once each probe for themselves.
    let probe = format!("probe-{:?}", thread::current().id());
    Namespace::new(&probe.replace(['(', ')'], ""))
        .err()
        .map(|error| format!("the right to make network namespaces: {error}"))
}

/// Runs a program to its end.
///
/// # Errors
/// When it can't be started, or exits with another code than 0: then with what it wrote to standard error.
pub fn command(program: &str, arguments: &[&str]) -> io::Result<String> {
    let out = with_sbin(program).args(arguments).output()?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&out.stderr);
    Err(io::Error::other(format!("{program} {}: {}", arguments.join(" "), complaint.trim())))
}

/// The programs of an administrator are not on everyone's path.
fn with_sbin(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
    command
}

const ETH_P_ALL: u16 = 3;

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
    const fn new(index: u32) -> Self {
        Self {
            family: AddressFamily::PACKET.as_raw(),
            protocol: ETH_P_ALL.to_be(),
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

/// The interface's Ethernet address, by `ip`: `/sys` shows the namespace that it was mounted in, not this thread's.
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
