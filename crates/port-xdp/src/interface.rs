//! Facts about a network interface, asked of the kernel in the calling thread's network namespace.

use std::ffi::{CStr, c_int};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::error::XdpError;
use crate::netlink;

/// What is known of an interface.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    pub(crate) queues: Queues,
}

/// The number of queues, and how it is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    /// Receive queues in use.
    pub(crate) receive: u32,
    /// Most queues that can be set; 0 if the number can't be changed.
    pub(crate) most: u32,
    /// True if queues receive and transmit, so that one number sets both.
    pub(crate) combined: bool,
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
    pub(crate) fn facts(&self, name: &str) -> Result<Facts, XdpError> {
        let Some(index) = self.index(name) else {
            return Err(XdpError::UnknownInterface { interface: name.to_owned(), known: names() });
        };
        let system = |action| move |error| XdpError::system(name, action, error);
        let mut request = named(name);
        self.ask(libc::SIOCGIFMTU, &mut request).map_err(system("ask for the MTU"))?;
        // SAFETY: the kernel has filled in this member.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu } as u32;
        let queues = self.queues(name, index).map_err(system("ask for the number of queues"))?;
        Ok(Facts { index, mtu, queues })
    }

    /// Returns the queues of an interface.
    pub(crate) fn queues(&self, name: &str, index: u32) -> io::Result<Queues> {
        match self.channels(name) {
            Some(queues) => Ok(queues),
            // The driver has no say; what the interface was made with is what it has.
            None => {
                let receive = netlink::link(index)?.receive_queues.max(1);
                Ok(Queues { receive, most: 0, combined: false })
            }
        }
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
        let Some(flags) = self.flags(name) else { return Presence::Gone };
        let is_up = flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0;
        if is_up { Presence::Up } else { Presence::Down }
    }

    /// Returns the flags of the interface with this name (`IFF_*`), if there is one.
    pub(crate) fn flags(&self, name: &str) -> Option<c_int> {
        let mut request = named(name);
        self.ask(libc::SIOCGIFFLAGS, &mut request).ok()?;
        // SAFETY: the kernel has filled in this member.
        Some(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// Returns the name of the interface with this number, if there is one.
    pub(crate) fn name(&self, index: u32) -> Option<String> {
        let mut request = named("");
        request.ifr_ifru.ifru_ifindex = index as c_int;
        self.ask(libc::SIOCGIFNAME, &mut request).ok()?;
        let name = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
        String::from_utf8(name).ok()
    }

    /// Puts a question about an interface to its driver, as `ethtool` does.
    ///
    /// # Safety
    /// What the kernel writes for the command lies within `T`.
    pub(crate) unsafe fn ask_driver<T>(&self, name: &str, question: &mut T) -> io::Result<()> {
        let mut request = named(name);
        request.ifr_ifru.ifru_data = ptr::from_mut(question).cast();
        self.ask(libc::SIOCETHTOOL, &mut request)
    }

    /// Asks the driver for its queues, as `ethtool -l` does.
    fn channels(&self, name: &str) -> Option<Queues> {
        const GET_CHANNELS: u32 = 0x3c;
        /// `struct ethtool_channels` of `linux/ethtool.h`.
        #[derive(Default)]
        #[repr(C)]
        struct Channels {
            command: u32,
            max_rx: u32,
            max_tx: u32,
            max_other: u32,
            max_combined: u32,
            rx: u32,
            tx: u32,
            other: u32,
            combined: u32,
        }
        let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
        // SAFETY: the command fills in the whole structure and no more.
        unsafe { self.ask_driver(name, &mut channels) }.ok()?;
        let receive = channels.rx + channels.combined;
        let (combined, most) = (channels.max_combined > 0, channels.max_combined.max(channels.max_rx));
        (receive > 0).then_some(Queues { receive, most, combined })
    }

    fn ask(&self, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: `request` is a whole `struct ifreq`, and what its data pointer leads to is as long as the command demands.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), what as _, ptr::from_mut(request)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Queues {
    /// Refuses an interface that has fewer or more queues than there are to be sockets.
    pub(crate) fn check(self, name: &str, want: u32, single: bool) -> Result<(), XdpError> {
        if self.receive == want {
            return Ok(());
        }
        let advice = self.advice(name, want, single);
        Err(XdpError::Queues { interface: name.to_owned(), have: self.receive, want, advice })
    }

    /// What to type so that an interface has as many queues as there are to be sockets.
    pub(crate) fn advice(self, name: &str, want: u32, single: bool) -> String {
        let set = match (self.most, self.combined) {
            (most, _) if most < want => String::new(),
            (_, true) => format!("type `ethtool -L {name} combined {want}`"),
            (_, false) => format!("type `ethtool -L {name} rx {want} tx {want}`"),
        };
        let cores = if single { String::new() } else { format!("use `--cores {}`", self.receive) };
        match (set.is_empty(), cores.is_empty()) {
            (false, false) => format!("{set}, or {cores}"),
            (false, true) => set,
            (true, false) if self.most > 0 => format!("it can have {} at most; {cores}", self.most),
            (true, false) => format!("their number can't be changed; {cores}"),
            (true, true) => "make it again with one queue".into(),
        }
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

/// The names of all interfaces.
pub(crate) fn names() -> Vec<String> {
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
        assert!(facts.index > 0 && facts.mtu >= 1500 && facts.queues.receive == 1, "{facts:?}");
        assert_eq!(probe.presence("lo", facts.index + 1), Presence::Gone);
        assert_eq!(probe.name(facts.index).as_deref(), Some("lo"));
        assert_eq!(probe.name(1 << 30), None);
    }

    #[test]
    fn an_unknown_interface_is_refused_with_the_names_that_there_are() {
        let probe = Probe::new().expect("a socket");
        for name in ["nosuch0", "a-name-that-is-far-too-long-for-an-interface"] {
            let error = probe.facts(name).expect_err("there is none").to_string();
            assert!(error.contains(name) && error.contains("lo"), "{error}");
        }
    }

    #[test]
    fn advice_depends_on_what_the_driver_can() {
        let queues = Queues { receive: 1, most: 8, combined: true };
        assert_eq!(queues.advice("a", 2, false), "type `ethtool -L a combined 2`, or use `--cores 1`");
        let veth = Queues { combined: false, ..queues };
        assert_eq!(veth.advice("a", 2, false), "type `ethtool -L a rx 2 tx 2`, or use `--cores 1`");
        assert_eq!(veth.advice("a", 9, false), "it can have 8 at most; use `--cores 1`");
        assert_eq!(Queues { most: 0, ..veth }.advice("a", 9, false), "their number can't be changed; use `--cores 1`");
        assert_eq!(Queues { receive: 4, ..queues }.advice("a", 1, true), "type `ethtool -L a combined 1`");
    }
}
