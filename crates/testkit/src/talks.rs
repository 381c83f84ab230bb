//! Random conversations of TCP and UDP: [`Traffic`], for functions that track connections, and for what takes packets ahead of them.

use packet::{Endpoint, TcpFlags};
use synth::{Build, Rng};

/// Random conversations: mostly as real stacks have them, now and then not.
#[derive(Debug)]
pub struct Traffic {
    rng: Rng,
    talks: Vec<Talk>,
    strangers: bool,
}

impl Traffic {
    /// Up to 12 conversations between pairs of hosts, in random states. Some have strangers beside them, of which each packet is a new flow.
    #[must_use]
    pub fn new(mut rng: Rng) -> Self {
        let talks = (0..1 + rng.below(12)).map(|number| Talk::new(&mut rng, number)).collect();
        let strangers = rng.chance(0.4);
        Self { rng, talks, strangers }
    }

    /// The random numbers that packets are made of.
    pub const fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// The next frame, and the side that sends it: 0 or 1.
    pub fn frame(&mut self) -> (Vec<u8>, u16) {
        let Self { rng, talks, strangers } = self;
        if *strangers && rng.chance(0.2) {
            // New flows, of which each packet opens one.
            let host =
                Endpoint::new([10, 9, rng.below(256) as u8, rng.below(256) as u8].into(), rng.below(60_000) as u16);
            return (Build::udp(host, Endpoint::new([198, 51, 100, 1].into(), 53)).payload(20).bytes(), 0);
        }
        // One talks more than the others.
        let index = if rng.chance(0.5) { 0 } else { rng.below(talks.len() as u64) as usize };
        let side = rng.below(2) as usize;
        if rng.chance(0.003) {
            talks[index] = Talk::new(rng, index as u64);
        }
        let frame = talks[index].next(rng, side);
        (frame, side as u16)
    }
}

/// Two hosts that talk.
#[derive(Debug)]
struct Talk {
    ends: [Endpoint; 2],
    is_tcp: bool,
    /// The next sequence number of each side.
    next: [u32; 2],
    packets: u32,
}

impl Talk {
    fn new(rng: &mut Rng, number: u64) -> Self {
        let port = 4000 + number as u16 + 16 * rng.below(2) as u16;
        let ends = if rng.chance(0.2) {
            [Endpoint::new("fd00::1".parse().unwrap(), port), Endpoint::new("2001:db8::1".parse().unwrap(), 443)]
        } else {
            [Endpoint::new([10, 0, 0, 1].into(), port), Endpoint::new([9, 9, 9, number as u8].into(), 443)]
        };
        Self { ends, is_tcp: rng.chance(0.7), next: [rng.below(1 << 32) as u32, rng.below(1 << 32) as u32], packets: 0 }
    }

    fn next(&mut self, rng: &mut Rng, side: usize) -> Vec<u8> {
        let (from, to) = (self.ends[side], self.ends[1 - side]);
        self.packets += 1;
        if !self.is_tcp {
            let datagram = Build::udp(from, to).payload(rng.below(1200) as usize);
            return self.odd(rng, datagram, side);
        }
        let seq = self.next[side];
        let ack = self.next[1 - side];
        let mut build = Build::tcp(from, to).seq(seq).ack(ack).window(1 + rng.below(65_535) as u16);
        if self.packets < 4 {
            // The handshake, whoever's turn it is.
            let step = self.packets - 1;
            let (from, to) = if step == 1 { (self.ends[1], self.ends[0]) } else { (self.ends[0], self.ends[1]) };
            let [ours, theirs] = self.next;
            let scale = rng.below(5) as u8;
            return match step {
                0 => Build::tcp(from, to)
                    .flags(TcpFlags::SYN)
                    .seq(ours.wrapping_sub(1))
                    .sack_permitted()
                    .window_scale(scale),
                1 => Build::tcp(from, to)
                    .flags(TcpFlags::SYN.with(TcpFlags::ACK))
                    .seq(theirs.wrapping_sub(1))
                    .ack(ours)
                    .sack_permitted()
                    .window_scale(scale),
                _ => Build::tcp(from, to).flags(TcpFlags::ACK).seq(ours).ack(theirs),
            }
            .bytes();
        }
        let len = if rng.chance(0.3) { 0 } else { rng.below(1400) as u32 };
        let mut flags = TcpFlags::ACK;
        match rng.below(400) {
            0 => flags = flags.with(TcpFlags::FIN),
            1 => flags = TcpFlags::RST,
            2 => flags = TcpFlags::SYN,
            3 => flags = TcpFlags::SYN.with(TcpFlags::FIN),
            4 => build = build.window(0),
            5 => build = build.sack(&[(ack.wrapping_add(10), ack.wrapping_add(20))]),
            6 => build = build.seq(rng.below(1 << 32) as u32),
            7 => build = build.ack(rng.below(1 << 32) as u32),
            8..20 => build = build.seq(seq.wrapping_sub(rng.below(3000) as u32)),
            20..60 => build = build.ack(ack.wrapping_sub(rng.below(5000) as u32)),
            60..70 => build = build.seq(seq.wrapping_add(rng.below(100_000) as u32)),
            70..80 => flags = flags.with(TcpFlags::URG),
            80..200 => build = build.options(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]),
            200..300 => flags = flags.with(TcpFlags::PSH),
            _ => {}
        }
        build = build.flags(flags).payload(len as usize);
        // A packet that isn't counted here is sent again, or never was.
        if !rng.chance(0.02) {
            self.next[side] = seq.wrapping_add(len);
        }
        self.odd(rng, build, side)
    }

    /// The packet, or something else of the same connection.
    fn odd(&self, rng: &mut Rng, build: Build, side: usize) -> Vec<u8> {
        match rng.below(300) {
            0 => {
                let quoted = build.bytes();
                let is_v4 = self.ends[0].address.is_ipv4();
                let (router, kind) = if is_v4 { ("198.51.100.254", 3) } else { ("2001:db8::ff", 1) };
                let router: std::net::IpAddr = router.parse().unwrap();
                let quote = &quoted[14..quoted.len().min(14 + 64)];
                Build::icmp_error(router, self.ends[side].address, kind, 1, quote).bytes()
            }
            1 => build.fragment(0, true).bytes(),
            2 => build.fragment(80, false).bytes(),
            3 if self.ends[0].address.is_ipv4() => build.ip_options(&[1, 1, 1, 0]).bytes(),
            4 => build.vlan(7).bytes(),
            5 => {
                let whole = build.bytes();
                let len = rng.below(whole.len() as u64) as usize;
                whole[..len].to_vec()
            }
            _ => build.bytes(),
        }
    }
}
