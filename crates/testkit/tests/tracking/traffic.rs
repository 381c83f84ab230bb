//! Random traffic of few hosts for trackers: mostly valid conversations, with errors in them.

use std::net::{IpAddr, SocketAddr};

use millrace_testkit::{Build, Rng};
use packet::{Headers, LinkType, Nanos, TcpFlags, protocol};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// A frame with its time and interface.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) time: Nanos,
    pub(crate) bytes: Vec<u8>,
    pub(crate) interface: u16,
}

impl Frame {
    pub(crate) fn parsed(&self) -> (Nanos, Headers) {
        let headers = packet::parse(LinkType::Ethernet, &self.bytes, self.bytes.len() as u32, self.interface);
        (self.time, headers.expect("it is well-formed"))
    }
}

/// The hosts, inside ones first (by the default of `firewall`).
const HOSTS: [&str; 4] = ["10.0.0.1", "10.0.0.2", "192.0.2.1", "198.51.100.1"];
const HOSTS_V6: [&str; 4] = ["fd00::1", "fd00::2", "2001:db8::1", "2001:db8::2"];
const PORTS: [u16; 3] = [22, 80, 40_000];

/// Generates a trace of `packets` packets of few connections. Gaps are around `timeouts`, in seconds.
pub(crate) fn trace(rng: &mut Rng, packets: usize, timeouts: &[u64]) -> Vec<Frame> {
    let talks = 1 + rng.below(3);
    let mut world = World::new(rng, talks);
    let mut now = 17 * SECOND;
    let frame = |_| {
        now += gap(rng, timeouts);
        world.frame(rng, now)
    };
    (0..packets).map(frame).collect()
}

/// Generates a trace of many connections, a packet every twenty milliseconds.
pub(crate) fn crowd(rng: &mut Rng, packets: usize) -> Vec<Frame> {
    let mut world = World::new(rng, 60);
    (0..packets).map(|number| world.frame(rng, number as u64 * SECOND / 50)).collect()
}

/// Returns a random time since the last packet: mostly zero or little; else about a timeout, often exact.
fn gap(rng: &mut Rng, timeouts: &[u64]) -> u64 {
    match rng.below(40) {
        0..24 => 0,
        24..32 => rng.below(SECOND),
        32..37 => rng.below(8) * SECOND / 2,
        37 => rng.below(5) * SECOND,
        38 if rng.chance(0.3) => rng.below(500_000) * SECOND,
        _ => pick(rng, timeouts) * SECOND + rng.below(3) - 1,
    }
}

struct World {
    talks: Vec<Talk>,
    /// Recent datagrams, for ICMP errors to quote.
    recent: Vec<(IpAddr, IpAddr, Vec<u8>)>,
}

impl World {
    fn new(rng: &mut Rng, talks: u64) -> Self {
        let v6 = rng.chance(0.2);
        let wildness = pick(rng, &[0.02, 0.1, 0.35]);
        let talks = (0..talks).map(|_| Talk::new(rng, v6, wildness)).collect();
        Self { talks, recent: Vec::new() }
    }

    fn frame(&mut self, rng: &mut Rng, now: u64) -> Frame {
        let (build, sender) = self.next(rng);
        let bytes = if rng.chance(0.01) { Build::arp() } else { build.bytes() };
        let interface = if rng.chance(0.9) { sender } else { rng.below(3) as u16 };
        Frame { time: Nanos(now), bytes, interface }
    }

    /// Generates a packet and its interface: 1 inside, 2 outside.
    fn next(&mut self, rng: &mut Rng) -> (Build, u16) {
        if rng.chance(0.08)
            && let Some((src, dst, quoted)) = some(rng, &self.recent)
        {
            return (error(rng, *src, *dst, quoted), 2);
        }
        let at = rng.below(self.talks.len() as u64) as usize;
        let talk = &mut self.talks[at];
        let (build, src, dst) = if rng.chance(0.75) { talk.tcp(rng) } else { talk.other(rng) };
        if self.recent.len() == 8 {
            self.recent.remove(0);
        }
        self.recent.push((src, dst, build.datagram()));
        let outside = |host: IpAddr| HOSTS[2..].iter().chain(&HOSTS_V6[2..]).any(|name| host == address(name));
        (build, if outside(src) { 2 } else { 1 })
    }
}

/// Builds an ICMP error about a packet from `src` to `dst`, mostly sent to `src`.
fn error(rng: &mut Rng, src: IpAddr, dst: IpAddr, quoted: &[u8]) -> Build {
    let cut = if rng.chance(0.9) { quoted.len().min(48) } else { quoted.len().min(24) };
    let to = if rng.chance(0.8) { src } else { dst };
    let kind = match src {
        IpAddr::V4(_) => pick(rng, &[3, 3, 11, 12, 4, 5]),
        IpAddr::V6(_) => pick(rng, &[1, 2, 3, 4]),
    };
    let router = if src.is_ipv4() { address("203.0.113.9") } else { address("2001:db8:9::9") };
    let from = if rng.chance(0.5) { dst } else { router };
    Build::icmp_error(from, to, kind, 0, &quoted[..cut])
}

/// A connection of two hosts, and its next segment.
struct Talk {
    ends: [SocketAddr; 2],
    next: [u32; 2],
    stage: u8,
    wildness: f64,
    scales: bool,
    sacks: bool,
    sent: Vec<(Build, usize)>,
}

impl Talk {
    fn new(rng: &mut Rng, v6: bool, wildness: f64) -> Self {
        let hosts = if v6 { HOSTS_V6 } else { HOSTS };
        let end = |rng: &mut Rng| SocketAddr::new(address(pick(rng, &hosts)), pick(rng, &PORTS));
        let client = SocketAddr::new(address(hosts[rng.below(2) as usize]), 40_000);
        let server = SocketAddr::new(address(hosts[2]), pick(rng, &PORTS));
        let ends = match rng.below(10) {
            0..6 => [client, server],
            6..8 => [server, client],
            _ => [end(rng), end(rng)],
        };
        let stage = if rng.chance(0.15) { 3 } else { 0 };
        let mut talk = Self {
            ends,
            next: [0; 2],
            stage,
            wildness,
            scales: rng.chance(0.4),
            sacks: rng.chance(0.5),
            sent: Vec::new(),
        };
        talk.renumber(rng);
        talk
    }

    fn renumber(&mut self, rng: &mut Rng) {
        for next in &mut self.next {
            *next = pick(rng, &[1000, 5000, 100_000, u32::MAX - 500, 0x7fff_ff00, 0]);
            if rng.chance(0.6) {
                *next = rng.bits() as u32;
            }
        }
    }

    fn tcp(&mut self, rng: &mut Rng) -> (Build, IpAddr, IpAddr) {
        if rng.chance(0.12)
            && let Some((build, side)) = if rng.chance(0.5) { self.sent.last() } else { some(rng, &self.sent) }
        {
            return (build.clone(), self.ends[*side].ip(), self.ends[1 - *side].ip());
        }
        if self.stage >= 3 && rng.chance(0.04) {
            self.stage = 0;
            if rng.chance(0.5) {
                self.renumber(rng);
            }
            if rng.chance(0.2) {
                self.ends.reverse();
                self.next.reverse();
                self.sent.clear();
            }
        }
        let (side, flags) = self.kind(rng);
        let has = |flag| flags & flag != 0;
        let (syn, fin) = (has(SYN), has(FIN));
        let moved = self.shift(rng);
        let mut seq = self.next[side].wrapping_add(moved);
        if has(RST) && rng.chance(0.2) {
            seq = 0;
        }
        let len = if has(PSH) || (syn && rng.chance(0.03)) { pick(rng, &[1, 100, 1000, 1400]) } else { 0 };
        let mut build = Build::tcp(self.ends[side], self.ends[1 - side]).seq(seq).payload(len);
        if has(ACK) || rng.chance(0.1) {
            build = build.ack(self.next[1 - side].wrapping_add(self.shift(rng)));
        }
        if has(RST) && rng.chance(0.1) {
            build = build.ack(0);
        }
        build = build.flags(TcpFlags(flags)).window(if rng.chance(0.7) {
            1000
        } else {
            pick(rng, &[0, 1, 200, 4000, 65_535])
        });
        if syn && self.scales && rng.chance(0.9) {
            build = build.window_scale(pick(rng, &[0, 2, 7, 14]));
        }
        if syn && self.sacks && rng.chance(0.9) {
            build = build.sack_permitted();
        }
        if !syn && self.sacks && rng.chance(0.3) {
            let right = self.next[1 - side].wrapping_add(self.shift(rng));
            build = build.sack(&[(right.wrapping_sub(1), right)]);
        }
        if moved == 0 && seq != 0 || rng.chance(0.3) {
            self.next[side] = seq.wrapping_add(len as u32 + u32::from(syn) + u32::from(fin));
        }
        if self.sent.len() == 6 {
            self.sent.remove(0);
        }
        self.sent.push((build.clone(), side));
        (build, self.ends[side].ip(), self.ends[1 - side].ip())
    }

    /// Chooses sender and flags: mostly the next step of a handshake, then data and acknowledgements, then the end.
    fn kind(&mut self, rng: &mut Rng) -> (usize, u8) {
        if self.stage < 3 && !rng.chance(self.wildness) {
            self.stage += 1;
            return match self.stage {
                1 => (0, SYN),
                // A simultaneous open.
                2 if rng.chance(0.1) => (1, SYN),
                2 => (1, SYN | ACK),
                _ if rng.chance(0.1) => (rng.below(2) as usize, SYN | ACK),
                _ => (0, ACK),
            };
        }
        let side = rng.below(2) as usize;
        let flags = if !rng.chance(self.wildness) {
            pick(rng, &[ACK, ACK, ACK, ACK, PSH | ACK, PSH | ACK, PSH | ACK, FIN | ACK])
        } else {
            let kinds =
                [SYN, SYN, SYN | ACK, SYN | ACK, RST, RST, RST | ACK, RST | ACK, FIN | ACK, FIN | ACK, ACK, FIN];
            if rng.chance(0.95) { pick(rng, &kinds) } else { rng.bits() as u8 }
        };
        let ornate = if rng.chance(0.03) { pick(rng, &[ECE, CWR, URG, PSH]) } else { 0 };
        (side, flags | ornate)
    }

    /// Returns a random deviation of a sequence number.
    fn shift(&self, rng: &mut Rng) -> u32 {
        if !rng.chance(self.wildness * 1.5) {
            return 0;
        }
        let near = [1, -1, 2, -100, 100, 300, -999, -1000, -1001, 999, 1000, 1001, -1500, 2000];
        let far = [-65_999, -66_000, -66_001, -66_002, 66_000, -70_000, 70_000, 1 << 20, i32::MAX, i32::MIN];
        let shift = if rng.chance(0.85) { pick(rng, &near) } else { pick(rng, &far) };
        if rng.chance(0.05) { rng.bits() as u32 } else { shift as u32 }
    }

    /// Generates a packet that isn't TCP.
    fn other(&self, rng: &mut Rng) -> (Build, IpAddr, IpAddr) {
        let side = rng.below(2) as usize;
        let (src, dst) = (self.ends[side], self.ends[1 - side]);
        let (from, to) = (src.ip(), dst.ip());
        let number = rng.below(2) as u16;
        let build = match rng.below(16) {
            0..6 => Build::udp(src, dst).payload(number.into()),
            6 | 7 => Build::echo(from, to, number, 1),
            8 | 9 => Build::echo_reply(from, to, number, 1),
            10 => Build::icmp(from, to, pick(rng, &[13, 14, 15, 16, 17, 18]), 0, [0, number as u8, 0, 1]),
            11 => Build::icmp(from, to, pick(rng, &[6, 9, 10, 40, 130, 135, 137, 143, 200]), 0, [0; 4]),
            12 => Build::ip(from, to, protocol::ESP).payload(9),
            13 => Build::ip(from, to, protocol::SCTP).data(&sctp(src.port(), dst.port())),
            14 => Build::tcp(src, dst).payload(16).fragment(if rng.chance(0.5) { 0 } else { 64 }, true),
            _ => Build::udp(src, dst).payload(16).fragment(if rng.chance(0.5) { 0 } else { 64 }, true),
        };
        (build, from, to)
    }
}

fn sctp(src_port: u16, dst_port: u16) -> Vec<u8> {
    let mut bytes = src_port.to_be_bytes().to_vec();
    bytes.extend(dst_port.to_be_bytes());
    bytes.extend([0; 8]);
    bytes
}

const FIN: u8 = TcpFlags::FIN.0;
const SYN: u8 = TcpFlags::SYN.0;
const RST: u8 = TcpFlags::RST.0;
const PSH: u8 = TcpFlags::PSH.0;
const ACK: u8 = TcpFlags::ACK.0;
const URG: u8 = TcpFlags::URG.0;
const ECE: u8 = TcpFlags::ECE.0;
const CWR: u8 = TcpFlags::CWR.0;

fn address(text: &str) -> IpAddr {
    text.parse().expect("it is an address")
}

pub(crate) fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn some<'a, T>(rng: &mut Rng, of: &'a [T]) -> Option<&'a T> {
    of.get(rng.below(of.len() as u64) as usize)
}
