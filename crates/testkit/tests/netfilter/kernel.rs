//! The kernel's netfilter as a router in network namespaces.
//!
//! ```text
//! inside [in0] --- [rin] router [rout] --- [out0] outside
//! ```
//!
//! Packets are sent on `in0` and `out0` as frames. After each packet follows a sentinel that always passes, in order on the same path. A
//! packet that has not come out before the sentinel was dropped, so no timeout is needed.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use millrace_testkit::netns::{Namespace, Wire, command};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::CpuSet;

use crate::craft;
use crate::player::Router;
use crate::script::{HOSTS, Scenario, Side};

const INSIDE_MAC: &str = "02:00:00:00:01:02";
const OUTSIDE_MAC: &str = "02:00:00:00:02:02";
/// RFC 3692's first protocol number for experiments.
const SENTINEL: u8 = 253;

/// Maximum delay, less than any scenario's margin between a wait and a timeout.
const LATE: Duration = Duration::from_millis(150);

pub(crate) struct Kernel {
    wires: [Wire; 2],
    router_macs: [[u8; 6]; 2],
    sentinels: u32,
    began: Instant,
    late: bool,
    /// Settings to restore, with their old values.
    restore: Vec<(String, String)>,
    router: Namespace,
    _ends: [Namespace; 2],
}

impl Kernel {
    /// Creates the namespaces with names that end in `label`, and runs `nft` with the arguments `ruleset`.
    pub(crate) fn new(label: &str, ruleset: &[&str]) -> io::Result<Self> {
        stay_on_one_cpu()?;
        let router = Namespace::new(&format!("{label}-router"))?;
        let inside = Namespace::new(&format!("{label}-in"))?;
        let outside = Namespace::new(&format!("{label}-out"))?;
        inside.link("in0", &router, "rin")?;
        outside.link("out0", &router, "rout")?;
        inside.ip(&["link", "set", "in0", "address", INSIDE_MAC])?;
        outside.ip(&["link", "set", "out0", "address", OUTSIDE_MAC])?;
        address(&router)?;
        router.enter(|| -> io::Result<()> {
            for (key, value) in [
                ("ipv4/ip_forward", "1"),
                ("ipv6/conf/all/forwarding", "1"),
                ("ipv4/conf/all/rp_filter", "0"),
                ("ipv4/conf/rin/rp_filter", "0"),
                ("ipv4/conf/rout/rp_filter", "0"),
                ("ipv4/conf/rin/send_redirects", "0"),
                ("ipv4/conf/all/send_redirects", "0"),
                ("ipv4/conf/all/accept_local", "1"),
            ] {
                std::fs::write(format!("/proc/sys/net/{key}"), value)?;
            }
            Ok(())
        })?;
        router.run("nft", ruleset)?;
        let wires = [inside.enter(|| Wire::open("in0"))?, outside.enter(|| Wire::open("out0"))?];
        let router_macs =
            router.enter(|| [Wire::open("rin"), Wire::open("rout")].map(|wire| wire.map(|wire| wire.mac())));
        let [rin, rout] = router_macs;
        let (router_macs, began) = ([rin?, rout?], Instant::now());
        Ok(Self {
            wires,
            router_macs,
            sentinels: 0,
            began,
            late: false,
            restore: vec![],
            router,
            _ends: [inside, outside],
        })
    }

    /// Makes the router answer every packet with an error, without a flow label of its own.
    pub(crate) fn answer_all(&self) -> io::Result<()> {
        self.router.enter(|| {
            for (key, value) in [
                ("ipv4/icmp_ratelimit", "0"),
                ("ipv4/icmp_ratemask", "0"),
                ("ipv6/icmp/ratelimit", "0"),
                ("ipv6/auto_flowlabels", "0"),
            ] {
                std::fs::write(format!("/proc/sys/net/{key}"), value)?;
            }
            Ok(())
        })
    }

    /// Returns true if a packet of the scenario was too late for a test of timeouts, because the machine was busy.
    pub(crate) const fn was_late(&self) -> bool {
        self.late
    }

    fn set(&self, key: &str, value: &str) -> io::Result<String> {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{key}");
        self.router.enter(|| {
            let before = std::fs::read_to_string(&path)?;
            std::fs::write(&path, value)?;
            Ok(before.trim().to_owned())
        })
    }

    fn frame(&self, from: Side, packet: &[u8]) -> Vec<u8> {
        let mut frame = self.router_macs[from as usize].to_vec();
        frame.extend(self.wires[from as usize].mac());
        frame.extend(if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        frame.extend(packet);
        frame
    }

    /// Collects the packets that have come out. Returns true if the sentinel is among them.
    fn collect(&self, sentinel: &[u8], out: &mut Vec<(Side, Vec<u8>)>) -> io::Result<bool> {
        let mut sentinel_seen = false;
        for side in [Side::Inside, Side::Outside] {
            while let Some(frame) = self.wires[side as usize].take()? {
                let packet = &frame[14..];
                if packet[0] >> 4 == 4 && packet[9] == SENTINEL {
                    sentinel_seen |= packet[20..] == *sentinel;
                } else {
                    out.push((side, packet[..ip_len(packet)].to_vec()));
                }
            }
        }
        Ok(sentinel_seen)
    }
}

impl Router for Kernel {
    fn begin(&mut self, scenario: &Scenario) {
        self.router.enter(flush_conntrack).expect("root may flush its own namespace");
        for (key, value) in std::mem::take(&mut self.restore) {
            self.set(&key, &value).expect("it was so before");
        }
        for (key, value) in &scenario.settings {
            let before = self.set(key, &value.to_string()).unwrap_or_else(|error| panic!("{key}: {error}"));
            self.restore.push((key.clone(), before));
        }
        (self.began, self.late) = (Instant::now(), false);
    }

    fn inject(&mut self, from: Side, packet: &[u8], at_ms: u64) -> Vec<(Side, Vec<u8>)> {
        // The kernel's timeouts use the real clock, so a scenario has to wait.
        let due = self.began + Duration::from_millis(at_ms);
        while Instant::now() < due {
            std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
        }
        self.late |= due.elapsed() > LATE;
        self.sentinels += 1;
        let mark = self.sentinels.to_be_bytes().repeat(5);
        let (src, dst): (IpAddr, IpAddr) = ([192, 168, 10, 250].into(), [203, 0, 113, 250].into());
        let (src, dst) = if from == Side::Inside { (src, dst) } else { (dst, src) };
        let sentinel = craft::ip(src, dst, SENTINEL, &mark);
        let mut out = Vec::new();
        let wire = &self.wires[from as usize];
        wire.send(&self.frame(from, packet)).expect("the wire is up");
        wire.send(&self.frame(from, &sentinel)).expect("the wire is up");
        let end = Instant::now() + Duration::from_secs(5);
        let [inside, outside] = &self.wires;
        while !self.collect(&mark, &mut out).expect("the wire is up") {
            Wire::wait(&[inside, outside], end).expect("the wire is up");
            assert!(Instant::now() < end, "the sentinel behind a packet never came out: {packet:02x?}");
        }
        out
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

fn address(router: &Namespace) -> io::Result<()> {
    for line in [
        "addr add 192.168.10.1/24 dev rin",
        "addr add 198.51.100.1/24 dev rout",
        "addr add 2001:db8:1::1/64 dev rin nodad",
        "addr add 2001:db8:f::1/64 dev rout nodad",
        "neigh replace 198.51.100.2 dev rout nud permanent lladdr 02:00:00:00:02:02",
        "neigh replace 2001:db8:f::2 dev rout nud permanent lladdr 02:00:00:00:02:02",
        "neigh replace 192.168.10.250 dev rin nud permanent lladdr 02:00:00:00:01:02",
        "route add default via 198.51.100.2",
        "-6 route add default via 2001:db8:f::2",
    ] {
        router.ip(&line.split(' ').collect::<Vec<_>>())?;
    }
    for (_, host) in HOSTS {
        if host.starts_with("192.168.10.") || host.starts_with("2001:db8:1:") {
            router.ip(&["neigh", "replace", host, "dev", "rin", "nud", "permanent", "lladdr", INSIDE_MAC])?;
        }
    }
    command("ip", &["-V"]).map(drop)
}

/// Pins the thread to one CPU, so that packets stay in order.
fn stay_on_one_cpu() -> io::Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let Some(cpu) = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)) else { return Ok(()) };
    let mut one = CpuSet::new();
    one.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &one)?)
}

/// Deletes all tracked connections of this namespace: an `IPCTNL_MSG_CT_DELETE` without a connection.
fn flush_conntrack() -> io::Result<()> {
    const NETFILTER: u32 = 12;
    const DELETE: u16 = 1 << 8 | 2;
    const REQUEST_ACK: u16 = 1 | 4;
    let protocol = rustix::net::Protocol::from_raw(std::num::NonZeroU32::new(NETFILTER).expect("not zero"));
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol))?;
    let mut message = 20_u32.to_ne_bytes().to_vec();
    message.extend(DELETE.to_ne_bytes());
    message.extend(REQUEST_ACK.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 4]);
    rustix::net::sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 256];
    let (_, len) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    match answer.get(16..20).filter(|_| len >= 20) {
        Some([0, 0, 0, 0]) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(code.try_into().expect("four bytes")))),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
