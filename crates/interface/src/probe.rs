//! Questions to the kernel about interfaces, in the calling thread's network namespace.

use std::ffi::{CStr, c_int};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::error::InterfaceError;

/// The state of an interface: whether it passes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is up and has a carrier.
    Up,
    /// It is down, or the other end of its wire is.
    Down,
    /// No interface has the name, or another one has.
    Gone,
}

/// A socket to ask about interfaces. It belongs to the network namespace of the thread that made it.
#[derive(Debug)]
pub struct Probe(OwnedFd);

impl Probe {
    /// Makes the socket.
    ///
    /// # Errors
    /// The kernel's error, such as no free file descriptor.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(socket) }))
    }

    /// Returns the number of the interface with this name.
    ///
    /// # Errors
    /// [`InterfaceError::Unknown`] if there is none, with the names that there are.
    pub fn require(&self, name: &str) -> Result<u32, InterfaceError> {
        self.index(name).ok_or_else(|| InterfaceError::Unknown { interface: name.to_owned(), known: names() })
    }

    /// Returns the number of the interface with this name, if there is one.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<u32> {
        let mut request = named(name);
        self.ask(libc::SIOCGIFINDEX, &mut request).ok()?;
        // SAFETY: the kernel has filled in this member.
        Some(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
    }

    /// Returns whether the interface with this name and number passes packets.
    #[must_use]
    pub fn presence(&self, name: &str, index: u32) -> Presence {
        if self.index(name) != Some(index) {
            return Presence::Gone;
        }
        match self.flags(name) {
            Ok(flags) if flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0 => Presence::Up,
            Ok(_) => Presence::Down,
            Err(_) => Presence::Gone,
        }
    }

    /// Returns the flags of the interface with this name (`IFF_*`).
    ///
    /// # Errors
    /// The kernel's error, such as `ENODEV`.
    pub fn flags(&self, name: &str) -> io::Result<c_int> {
        let mut request = named(name);
        self.ask(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: the kernel has filled in this member.
        Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// Returns the MTU of the interface with this name.
    ///
    /// # Errors
    /// The kernel's error, such as `ENODEV`.
    pub fn mtu(&self, name: &str) -> io::Result<u32> {
        let mut request = named(name);
        self.ask(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the kernel has filled in this member.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    /// Returns the hardware type of the interface with this name (`ARPHRD_*`).
    ///
    /// # Errors
    /// The kernel's error, such as `ENODEV`.
    pub fn hardware(&self, name: &str) -> io::Result<u16> {
        let mut request = named(name);
        self.ask(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: the kernel has filled in this member.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
    }

    /// Returns the name of the interface with this number, if there is one.
    #[must_use]
    pub fn name(&self, index: u32) -> Option<String> {
        let mut request = named("");
        request.ifr_ifru.ifru_ifindex = index as c_int;
        self.ask(libc::SIOCGIFNAME, &mut request).ok()?;
        let name = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
        String::from_utf8(name).ok()
    }

    /// Puts a question about an interface to its driver, as `ethtool` does.
    ///
    /// # Errors
    /// The kernel's error, such as `EOPNOTSUPP`.
    ///
    /// # Safety
    /// What the kernel writes for the command lies within `T`.
    pub unsafe fn ask_driver<T>(&self, name: &str, question: &mut T) -> io::Result<()> {
        let mut request = named(name);
        request.ifr_ifru.ifru_data = ptr::from_mut(question).cast();
        self.ask(libc::SIOCETHTOOL, &mut request)
    }

    fn ask(&self, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: `request` is a whole `struct ifreq`, and what its data pointer leads to is as long as the command demands.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), what as _, ptr::from_mut(request)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

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

/// Returns the names of all interfaces.
#[must_use]
pub fn names() -> Vec<String> {
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
    fn the_loopback_is_known() {
        let probe = Probe::new().expect("a socket");
        let index = probe.require("lo").expect("every namespace has it");
        assert!(index > 0 && probe.mtu("lo").expect("it is there") >= 1500);
        assert_eq!(probe.hardware("lo").expect("it is there"), libc::ARPHRD_LOOPBACK);
        assert_eq!(probe.presence("lo", index + 1), Presence::Gone);
        assert_eq!(probe.name(index).as_deref(), Some("lo"));
        assert_eq!(probe.name(1 << 30), None);
    }

    #[test]
    fn an_unknown_interface_is_refused_with_the_names_that_there_are() {
        let probe = Probe::new().expect("a socket");
        for name in ["nosuch0", "a-name-that-is-far-too-long-for-an-interface"] {
            let error = probe.require(name).expect_err("there is none").to_string();
            assert!(error.contains(name) && error.contains("lo"), "{error}");
        }
    }
}
