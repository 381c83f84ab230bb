//! The kernel as a router in a namespace of its own, with a wire to each of its interfaces.
//!
//! ```text
//! router [eth0] --- [w0] far
//!        [eth1] --- [w1]
//! ```
//!
//! Packets are sent as frames on the far ends. After each packet follows a sentinel, in order on the same path: an ARP probe for the router's
//! address, which no rule sees and which the router always answers. A packet that has not come out before the answer was dropped, so no
//! timeout is needed.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;

use super::{Namespace, Wire};

/// An interface of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// One of its addresses, to which sentinels are sent.
    pub address: Ipv4Addr,
    /// Maximum transmission unit in bytes.
    pub mtu: u16,
}

/// A packet that left the router: the number of the interface, and the bytes from the IP header on.
pub type Sent = (usize, Vec<u8>);

/// A router in a namespace. It is deleted on drop.
#[derive(Debug)]
pub struct KernelRouter {
    wires: Vec<Wire>,
    addresses: Vec<Ipv4Addr>,
    sentinels: u32,
    router: Namespace,
    far: Namespace,
}

impl KernelRouter {
    /// The Ethernet address of the router's interface number `interface`.
    #[must_use]
    pub const fn mac(interface: usize) -> [u8; 6] {
        [2, 0, 0, 0, interface as u8 + 1, 1]
    }

    /// The Ethernet address of the far end of the wire at this interface.
    #[must_use]
    pub const fn far_mac(interface: usize) -> [u8; 6] {
        [2, 0, 0, 0, interface as u8 + 1, 2]
    }

    /// Creates the router. `settings` are files under `/proc/sys/net` and their values, written before there are interfaces. `lines` are
    /// commands of `ip` for addresses, routes and neighbours. No interface resolves addresses of neighbours: name all of them.
    ///
    /// # Errors
    /// The error of `ip` or `ethtool`, or of a setting.
    pub fn new(label: &str, interfaces: &[Interface], settings: &[(&str, &str)], lines: &[String]) -> io::Result<Self> {
        stay_on_one_cpu()?;
        let router = Namespace::new(&format!("{label}-router"))?;
        let far = Namespace::new(&format!("{label}-far"))?;
        router.enter(|| {
            settings.iter().try_for_each(|(key, value)| {
                let written = std::fs::write(format!("/proc/sys/net/{key}"), value);
                written.map_err(|error| io::Error::other(format!("net/{key}: {error}")))
            })
        })?;
        let (mut near_lines, mut far_lines) = (String::new(), String::new());
        for (nth, Interface { name, mtu, .. }) in interfaces.iter().enumerate() {
            let (near, other) = (text(Self::mac(nth)), text(Self::far_mac(nth)));
            near_lines += &format!(
                "link add {name} address {near} mtu {mtu} type veth peer name w{nth} address {other} netns {}\n\
                 link set {name} addrgenmode none up\n",
                far.name()
            );
            far_lines += &format!("link set w{nth} addrgenmode none arp off up\n");
        }
        router.feed("ip", &["-batch", "-"], &near_lines)?;
        far.feed("ip", &["-batch", "-"], &far_lines)?;
        for Interface { name, .. } in interfaces {
            let off = ["-K", name, "tx", "off", "rx", "off", "gro", "off", "gso", "off", "tso", "off"];
            router.feed("ethtool", &off, "")?;
        }
        router.feed("ip", &["-batch", "-"], &(lines.join("\n") + "\n"))?;
        let open = || (0..interfaces.len()).map(|nth| Wire::open(&format!("w{nth}"))).collect::<io::Result<_>>();
        let wires = far.enter(open)?;
        let addresses = interfaces.iter().map(|interface| interface.address).collect();
        Ok(Self { wires, addresses, sentinels: 0, router, far })
    }

    /// The router's namespace.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.router
    }

    /// Sends an IP packet to the interface number `from`. Returns the packets that left the router.
    ///
    /// # Errors
    /// The kernel's error; or [`io::ErrorKind::TimedOut`] if the router doesn't answer the sentinel in 5 seconds.
    pub fn inject(&mut self, from: usize, packet: &[u8]) -> io::Result<Vec<Sent>> {
        self.sentinels += 1;
        let [a, b, c, d] = self.sentinels.to_be_bytes();
        let prober = [2, 0xff, a, b, c, d];
        let wire = &self.wires[from];
        let mut frame = [Self::mac(from), wire.mac()].concat();
        let mut probe = [[0xff; 6], wire.mac()].concat();
        frame.extend(if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        frame.extend(packet);
        probe.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        probe.extend(prober);
        // A sender without an address, as in RFC 5227, so that the router doesn't learn it.
        probe.extend([0; 10]);
        probe.extend(self.addresses[from].octets());
        wire.send(&frame)?;
        wire.send(&probe)?;
        let mut sent = Vec::new();
        let end = Instant::now() + Duration::from_secs(5);
        while !self.collect(from, prober, &mut sent)? {
            Wire::wait(&[&self.wires[from]], end)?;
            if Instant::now() >= end {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the router does not answer the sentinel"));
            }
        }
        // What left by other wires came before the answer.
        for other in (0..self.wires.len()).filter(|other| *other != from) {
            self.collect(other, prober, &mut sent)?;
        }
        Ok(sent)
    }

    /// Makes the far ends send alone, for measurements: no frame is copied for them, so [`inject`](Self::inject) finds none.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn only_send(&mut self) -> io::Result<()> {
        let wires = self.wires.len();
        let open = || (0..wires).map(|nth| Wire::open_to_send(&format!("w{nth}"))).collect();
        self.wires = self.far.enter::<io::Result<_>>(open)?;
        Ok(())
    }

    /// Sends a frame to the interface number `to`, whatever becomes of it.
    ///
    /// # Errors
    /// The kernel's error, such as [`io::ErrorKind::WouldBlock`].
    pub fn send(&self, to: usize, frame: &[u8]) -> io::Result<()> {
        self.wires[to].send(frame)
    }

    /// Returns how many frames have left the router by the interface number `by`, as the far end counted them.
    ///
    /// # Errors
    /// The error of reading the counters.
    pub fn left(&self, by: usize) -> io::Result<u64> {
        self.far.received(&format!("w{by}"))
    }

    /// Collects the packets that have come out by a wire. Returns true if the sentinel's answer is among them.
    fn collect(&self, by: usize, prober: [u8; 6], sent: &mut Vec<Sent>) -> io::Result<bool> {
        let mut answered = false;
        while let Some(frame) = self.wires[by].take()? {
            match (&frame[12..14], &frame[14..]) {
                ([8, 6], arp) => answered |= arp.get(7) == Some(&2) && arp.get(18..24) == Some(&prober),
                ([0x08, 0x00], packet) => sent.push((by, packet[..ip_len(packet)].to_vec())),
                ([0x86, 0xdd], packet) if !is_own_control(packet) => sent.push((by, packet[..ip_len(packet)].to_vec())),
                _ => {}
            }
        }
        Ok(answered)
    }
}

/// True for neighbour discovery and group membership of IPv6, which the router sends by itself.
fn is_own_control(packet: &[u8]) -> bool {
    match packet[6] {
        58 => packet.get(40).is_some_and(|kind| (133..=137).contains(kind)),
        0 => packet.get(40) == Some(&58) && packet.get(48).is_some_and(|kind| matches!(kind, 130..=132 | 143)),
        _ => false,
    }
}

/// Returns a packet's length from its IP header, because short frames may be padded.
fn ip_len(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 {
        usize::from(u16::from_be_bytes([packet[2], packet[3]]))
    } else {
        40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]))
    }
}

/// Pins the thread to the CPU that it is on, so that packets stay in order.
fn stay_on_one_cpu() -> io::Result<()> {
    let mut one = CpuSet::new();
    one.set(rustix::thread::sched_getcpu());
    Ok(rustix::thread::sched_setaffinity(None, &one)?)
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
