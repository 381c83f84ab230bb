//! Facts about an interface.

use std::io;

use interface::Probe;
use interface::netlink::{self, Link};

use super::ethtool;
use super::holders::{Holder, holders};
use super::machine::{Seen, why};
use super::namespaces;
use super::trial::{Trial, attempt};
use crate::error::XdpError;
use crate::facts::{Facts, Queues};

/// Facts about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    /// True if somebody has brought it up.
    pub(super) is_up: bool,
    /// True if there is a carrier.
    pub(super) is_running: bool,
    pub(super) is_ethernet: bool,
    pub(super) driver: Seen<String>,
    pub(super) mtu: u32,
    pub(super) queues: Queues,
    pub(super) attached: Option<Attached>,
    /// What the driver can do with XDP.
    pub(super) abilities: Seen<Abilities>,
    /// Names of the offloads that are on.
    pub(super) offloads: Seen<Vec<String>>,
    /// The other end, if the interface is one end of a veth pair.
    pub(super) peer: Option<Peer>,
    /// True if it takes packets to other addresses than its own.
    pub(super) is_promiscuous: bool,
    /// What came of opening it, if that was wanted and no program was in the way.
    pub(super) trial: Option<Trial>,
}

/// An XDP program that an interface has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attached {
    pub(super) program: u32,
    /// As `Link::place` says.
    pub(super) place: u8,
    pub(super) holders: Vec<Holder>,
}

/// Abilities of a driver with XDP: `enum netdev_xdp_act` of `linux/netdev.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Abilities(pub(super) u64);

impl Abilities {
    pub(super) const RUNS: u64 = 1;
    pub(super) const REDIRECTS: u64 = 1 << 1;
    pub(super) const ZERO_COPY: u64 = 1 << 3;
    pub(super) const FRAGS: u64 = 1 << 5;

    pub(super) const fn has(self, abilities: u64) -> bool {
        self.0 & abilities == abilities
    }
}

/// The other end of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) index: u32,
    /// The namespace's name in `ip netns`; `None` if it is this one, or has no name.
    pub(super) namespace: Option<String>,
    /// Its name and the offloads that are on, or why they can't be seen.
    pub(super) seen: Seen<(String, Vec<String>)>,
}

impl Interface {
    /// Asks the kernel, and tries the interface out if that is wanted.
    pub(super) fn look(probe: &Probe, name: &str, try_out: bool) -> Result<Self, XdpError> {
        let facts = Facts::of(probe, name)?;
        let flags = probe.flags(name).unwrap_or_default();
        let link =
            netlink::link(facts.index).map_err(|error| XdpError::system(name, "ask for the interface", error))?;
        let driver = ethtool::driver(probe, name).map_err(why);
        let attached = (link.program != 0).then(|| Attached {
            program: link.program,
            place: link.place,
            holders: holders(link.program),
        });
        let is_up = flags & libc::IFF_UP != 0;
        let may_try = try_out && attached.is_none() && is_up;
        Ok(Self {
            name: name.to_owned(),
            is_up,
            is_running: flags & libc::IFF_RUNNING != 0,
            // Packets of the loopback have Ethernet headers, too.
            is_ethernet: [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&link.hardware),
            peer: driver.as_ref().is_ok_and(|driver| driver == "veth").then(|| peer(probe, &link)),
            driver,
            mtu: facts.mtu,
            queues: facts.queues,
            attached,
            abilities: abilities(facts.index).map_err(why),
            offloads: ethtool::offloads(probe, name).map_err(why),
            is_promiscuous: link.promiscuity > 0 || flags & libc::IFF_PROMISC != 0,
            trial: may_try.then(|| attempt(name, facts.queues.receive)),
        })
    }
}

/// Looks at the other end of a veth pair, here or in a namespace with a name.
fn peer(probe: &Probe, link: &Link) -> Peer {
    let index = link.peer;
    let look = |probe: &Probe| {
        let name = probe.name(index)?;
        let offloads = ethtool::offloads(probe, &name).ok()?;
        Some((name, offloads))
    };
    match link.peer_namespace {
        None => Peer { index, namespace: None, seen: look(probe).ok_or_else(|| "it is gone".to_owned()) },
        Some(number) => match namespaces::within(number, || look(&Probe::new().ok()?)) {
            Some((namespace, seen)) => Peer { index, namespace: Some(namespace), seen: Ok(seen) },
            None => Peer { index, namespace: None, seen: Err("it is in another network namespace".to_owned()) },
        },
    }
}

/// Asks what the driver can do with XDP. Linux 6.3 is the first that tells.
fn abilities(index: u32) -> io::Result<Abilities> {
    const CONTROL: u16 = 0x10;
    const GET_FAMILY: u8 = 3;
    const FAMILY_NUMBER: u16 = 1;
    const FAMILY_NAME: u16 = 2;
    const GET_DEVICE: u8 = 1;
    const DEVICE_INDEX: u16 = 1;
    const DEVICE_ABILITIES: u16 = 3;
    /// `struct genlmsghdr`: command, version, and two bytes of padding.
    const HEADER_LEN: usize = 4;
    let ask = |family, command: u8, kind: u16, value: &[u8]| {
        let mut body = vec![command, 1, 0, 0];
        body.extend(((4 + value.len()) as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
        netlink::ask(libc::NETLINK_GENERIC, family, &body)
    };
    let find = |answer: &[u8], wanted: u16| {
        let mut fields = netlink::attributes(answer.get(HEADER_LEN..)?);
        fields.find(|(kind, _)| *kind == wanted).map(|(_, value)| value.to_vec())
    };
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let family = ask(CONTROL, GET_FAMILY, FAMILY_NAME, b"netdev\0")?;
    let family = find(&family, FAMILY_NUMBER).and_then(|value| netlink::half(&value, 0)).ok_or_else(missing)?;
    let device = ask(family, GET_DEVICE, DEVICE_INDEX, &index.to_ne_bytes())?;
    let value = find(&device, DEVICE_ABILITIES).ok_or_else(missing)?;
    Ok(Abilities(u64::from_ne_bytes(*value.first_chunk().ok_or_else(missing)?)))
}
