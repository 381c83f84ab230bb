//! Facts about an interface that an AF_PACKET port needs: its number, its link type, whether it is on, and whether the kernel forwards.

use std::fs;

use interface::Probe;
use packet::LinkType;

use crate::error::PacketError;

/// Facts about an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) index: u32,
    pub(crate) link: LinkType,
    /// True unless it has been switched off.
    pub(crate) is_on: bool,
}

impl Facts {
    /// Asks for the facts about the interface with this name.
    pub(crate) fn of(probe: &Probe, name: &str) -> Result<Self, PacketError> {
        let index = probe.require(name)?;
        let system = |action| move |error| PacketError::system(name, action, error);
        let link = match probe.hardware(name).map_err(system("ask for the hardware type"))? {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => LinkType::Ethernet,
            // Tunnels: their frames have no header of their own.
            libc::ARPHRD_NONE | RAW_IP => LinkType::RawIp,
            hardware => return Err(PacketError::Link { interface: name.to_owned(), hardware }),
        };
        let flags = probe.flags(name).map_err(system("ask for its state"))?;
        Ok(Self { index, link, is_on: flags & libc::IFF_UP != 0 })
    }
}

/// Returns the setting that makes the kernel forward what arrives at this interface, if one does.
pub(crate) fn forwarding(name: &str) -> Option<String> {
    // The calling thread's namespace has its own settings there.
    ["ipv4", "ipv6"]
        .iter()
        .map(|version| format!("net/{version}/conf/{name}/forwarding"))
        .find(|setting| fs::read_to_string(format!("/proc/sys/{setting}")).is_ok_and(|value| value.trim() != "0"))
}

/// `ARPHRD_RAWIP` of `linux/if_arp.h`.
const RAW_IP: u16 = 519;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_ethernet_headers() {
        let probe = Probe::new().expect("a socket");
        let facts = Facts::of(&probe, "lo").expect("every namespace has it");
        assert!(facts.index > 0 && facts.link == LinkType::Ethernet, "{facts:?}");
    }
}
