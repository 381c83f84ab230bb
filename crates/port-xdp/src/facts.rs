//! Facts about an interface that an AF_XDP port needs: its number, its MTU and its queues.

use std::io;

use interface::{Probe, netlink};

use crate::error::XdpError;

/// Facts about an interface.
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

impl Facts {
    /// Asks for the facts about the interface with this name.
    pub(crate) fn of(probe: &Probe, name: &str) -> Result<Self, XdpError> {
        let index = probe.require(name)?;
        let system = |action| move |error| XdpError::system(name, action, error);
        let mtu = probe.mtu(name).map_err(system("ask for the MTU"))?;
        let queues = Queues::of(probe, name, index).map_err(system("ask for the number of queues"))?;
        Ok(Self { index, mtu, queues })
    }
}

impl Queues {
    /// Asks for the queues of an interface.
    pub(crate) fn of(probe: &Probe, name: &str, index: u32) -> io::Result<Self> {
        match Self::told(probe, name) {
            Some(queues) => Ok(queues),
            // The driver has no say; what the interface was made with is what it has.
            None => {
                let receive = netlink::link(index)?.receive_queues.max(1);
                Ok(Self { receive, most: 0, combined: false })
            }
        }
    }

    /// Asks the driver for its queues, as `ethtool -l` does.
    fn told(probe: &Probe, name: &str) -> Option<Self> {
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
        unsafe { probe.ask_driver(name, &mut channels) }.ok()?;
        let receive = channels.rx + channels.combined;
        let (combined, most) = (channels.max_combined > 0, channels.max_combined.max(channels.max_rx));
        (receive > 0).then_some(Self { receive, most, combined })
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_one_queue() {
        let probe = Probe::new().expect("a socket");
        let facts = Facts::of(&probe, "lo").expect("every namespace has it");
        assert!(facts.index > 0 && facts.mtu >= 1500 && facts.queues.receive == 1, "{facts:?}");
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
