//! Facts about a network interface, asked of the kernel in the calling thread's network namespace.

use std::ffi::{CStr, c_int};
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use packet::LinkType;

use crate::error::PacketError;

/// What is known of an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) index: u32,
    pub(crate) link: LinkType,
    /// True unless it has been switched off.
    pub(crate) is_on: bool,
}

/// Whether an interface passes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It is up and has a carrier.
    Up,
    /// It is down, or the other end of its wire is.
    Down,
    /// No interface has the name, or another one has.
    Gone,
}

/// Asks for facts about interfaces. It belongs to the network namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct Probe(OwnedFd);

impl Probe {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(socket) }))
    }

    /// Returns the facts about an interface.
    pub(crate) fn facts(&self, name: &str) -> Result<Facts, PacketError> {
        let Some(index) = self.index(name) else {
            return Err(PacketError::UnknownInterface { interface: name.to_owned(), known: names() });
        };
        let mut request = named(name);
        self.ask(libc::SIOCGIFHWADDR, &mut request)
            .map_err(|error| PacketError::system(name, "ask for the hardware type", error))?;
        // SAFETY: the kernel has filled in this member.
        let hardware = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family;
        let link = match hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => LinkType::Ethernet,
            // Tunnels: their frames have no header of their own.
            libc::ARPHRD_NONE | RAW_IP => LinkType::RawIp,
            _ => return Err(PacketError::Link { interface: name.to_owned(), hardware }),
        };
        let flags = self.flags(name).map_err(|error| PacketError::system(name, "ask for its state", error))?;
        Ok(Facts { index, link, is_on: flags & libc::IFF_UP != 0 })
    }

    /// Returns the number of the interface with this name, if there is one.
    pub(crate) fn index(&self, name: &str) -> Option<u32> {
        let mut request = named(name);
        self.ask(libc::SIOCGIFINDEX, &mut request).ok()?;
        // SAFETY: the kernel has filled in this member.
        Some(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
    }

    /// Returns whether the interface with this name and number passes packets.
    pub(crate) fn presence(&self, name: &str, index: u32) -> Presence {
        if self.index(name) != Some(index) {
            return Presence::Gone;
        }
        match self.flags(name) {
            Ok(flags) if flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0 => Presence::Up,
            Ok(_) => Presence::Down,
            Err(_) => Presence::Gone,
        }
    }

    fn flags(&self, name: &str) -> io::Result<c_int> {
        let mut request = named(name);
        self.ask(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: the kernel has filled in this member.
        Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    fn ask(&self, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: `request` is a whole `struct ifreq`, and none of the questions has a data pointer.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), what as _, ptr::from_mut(request)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Which setting makes the kernel forward what arrives at this interface, if one does.
pub(crate) fn forwarding(name: &str) -> Option<String> {
    // The calling thread's namespace has its own settings there.
    ["ipv4", "ipv6"]
        .iter()
        .map(|version| format!("net/{version}/conf/{name}/forwarding"))
        .find(|setting| fs::read_to_string(format!("/proc/sys/{setting}")).is_ok_and(|value| value.trim() != "0"))
}

/// `ARPHRD_RAWIP` of `linux/if_arp.h`.
const RAW_IP: u16 = 519;

/// A request about the interface of this name. A name that is too long names none.
fn named(name: &str) -> libc::ifreq {
    // SAFETY: zeroes are a valid `struct ifreq`.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() < request.ifr_name.len() {
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
    }
    request
}

/// The names of all interfaces.
fn names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the list is the C library's until it is freed; it ends with an entry of number 0, and each name is a C string.
    unsafe {
        let first = libc::if_nameindex();
        if first.is_null() {
            return names;
        }
        let mut entry = first;
        while (*entry).if_index != 0 {
            names.push(CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        libc::if_freenameindex(first);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_facts() {
        let probe = Probe::new().expect("a socket");
        let facts = probe.facts("lo").expect("every namespace has it");
        assert!(facts.index > 0 && facts.link == LinkType::Ethernet, "{facts:?}");
        assert_eq!(probe.presence("lo", facts.index + 1), Presence::Gone);
    }

    #[test]
    fn an_unknown_interface_is_refused_with_the_names_that_there_are() {
        let probe = Probe::new().expect("a socket");
        for name in ["nosuch0", "a-name-that-is-far-too-long-for-an-interface"] {
            let error = probe.facts(name).expect_err("there is none").to_string();
            assert!(error.contains(name) && error.contains("lo"), "{error}");
        }
    }
}
