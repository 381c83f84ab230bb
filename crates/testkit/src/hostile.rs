//! Hostile traffic: attacks on flow tables, reassembly and defragmentation, with honest sessions in between.
//!
//! The same attack, size and seed give the same packets. `cargo run -p millrace-testkit --features checks --example hostile` writes them to
//! a capture.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use packet::{LinkType, Nanos, Seq, TcpFlags};
use port::pcap::{Container, Error, Writer};
use port::{Fate, Packet};
use synth::{Build, Rng};

/// An attack. Its size is the number of what it has very many of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// A SYN from each of so many sources.
    SynFlood,
    /// So many fragments, of datagrams that never become whole: half of them begin one, half of them lengthen a few.
    EndlessFragments,
    /// So many sessions that miss one byte, with data behind it.
    OpenGaps,
    /// So many segments of one byte, of twenty sessions, each ten out of order.
    OneByte,
    /// So many segments of twenty sessions that overlap at random, with other bytes each.
    Overlaps,
}

/// Packets of an attack, and the number of honest sessions among them.
#[derive(Clone, Copy, Debug)]
pub struct Hostile {
    /// What is attacked.
    pub attack: Attack,
    /// How many there are of it.
    pub size: u64,
    /// Honest sessions, which begin and end during the attack.
    pub honest: u64,
    /// The seed of addresses, bytes and orders.
    pub seed: u64,
}

/// The bytes that each honest session says in its last segment, and no packet of an attack has.
pub const NEEDLE: &str = "needle-in-a-haystack";

/// The segments of an honest session.
const STEPS: u64 = 8;

impl Attack {
    /// All attacks.
    pub const ALL: [Self; 5] = [Self::SynFlood, Self::EndlessFragments, Self::OpenGaps, Self::OneByte, Self::Overlaps];

    /// The attack's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynFlood => "syn-flood",
            Self::EndlessFragments => "endless-fragments",
            Self::OpenGaps => "open-gaps",
            Self::OneByte => "one-byte",
            Self::Overlaps => "overlaps",
        }
    }

    /// The attack of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attack| attack.name() == name)
    }
}

/// A side of a TCP session, for its packets.
#[derive(Clone, Copy)]
struct Ends {
    from: SocketAddr,
    to: SocketAddr,
}

impl Ends {
    fn build(self, flags: TcpFlags, seq: u32, ack: u32, data: &[u8]) -> Vec<u8> {
        let build = Build::tcp(self.from, self.to).flags(flags).seq(seq).data(data);
        if flags == TcpFlags::SYN { build.bytes() } else { build.ack(ack).bytes() }
    }

    const fn back(self) -> Self {
        Self { from: self.to, to: self.from }
    }

    /// One of the three packets that open a session whose sides begin at 1000 and 5000.
    fn opening(self, step: u64) -> Vec<u8> {
        match step {
            0 => self.build(TcpFlags::SYN, 999, 0, b""),
            1 => self.back().build(TcpFlags::SYN.with(TcpFlags::ACK), 4999, 1000, b""),
            _ => self.build(TcpFlags::ACK, 1000, 5000, b""),
        }
    }
}

const fn at(address: u32, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(address)), port)
}

impl Hostile {
    /// Calls `each` with all packets in turn, a microsecond apart.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn packets<E>(&self, mut each: impl FnMut(&Packet, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut number = 0;
        let mut push = |bytes: &[u8]| {
            let len = bytes.len() as u32;
            let packet = Packet {
                seq: Seq(number),
                time: Nanos(1_000_000_000 + number * 1_000),
                offset: 0,
                len,
                wire_len: len,
                interface: 0,
                link: LinkType::Ethernet,
                bucket: 0,
                fate: Fate::Pending,
            };
            number += 1;
            each(&packet, bytes)
        };
        let mut rng = Rng::new(self.seed);
        let mut honest = self.schedule().into_iter().peekable();
        for index in 0..self.size {
            while let Some((_, session, step)) = honest.next_if(|(when, ..)| *when <= index) {
                push(&segment(session, step))?;
            }
            match self.attack {
                Attack::SynFlood => push(&syn(index, &mut rng))?,
                Attack::EndlessFragments => push(&fragment(index, &mut rng))?,
                Attack::OpenGaps => open_gap(index).iter().try_for_each(|bytes| push(bytes))?,
                Attack::OneByte => one_byte(index).iter().try_for_each(|bytes| push(bytes))?,
                Attack::Overlaps => overlap(index, &mut rng).iter().try_for_each(|bytes| push(bytes))?,
            }
        }
        honest.try_for_each(|(_, session, step)| push(&segment(session, step)))
    }

    /// Writes the packets to a capture. Returns their number.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, path: &Path) -> io::Result<u64> {
        let told = |error: Error| io::Error::other(error.to_string());
        let mut writer = Writer::create(path, Some(Container::Pcap), None).map_err(told)?;
        let mut count = 0;
        self.packets(|packet, bytes| {
            count += 1;
            writer.write(packet, bytes).map_err(told)
        })?;
        writer.finish().map_err(told)?;
        Ok(count)
    }

    /// When each honest session sends each of its segments: ahead of this part of the attack. They begin in its first half, and each lasts as
    /// long.
    fn schedule(&self) -> Vec<(u64, u64, u64)> {
        let steps = (0..self.honest).flat_map(|session| (0..STEPS).map(move |step| (session, step)));
        let when = |session: u64, step: u64| {
            session * self.size / (2 * self.honest.max(1)) + step * self.size / (2 * (STEPS - 1))
        };
        let mut all: Vec<_> = steps.map(|(session, step)| (when(session, step), session, step)).collect();
        all.sort_unstable();
        all
    }
}

/// A segment of an honest session: a request in two segments, an answer, and the needle.
fn segment(session: u64, step: u64) -> Vec<u8> {
    const REQUEST: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: honest.example\r\n\r\n";
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nyes\n";
    let (cut, len, answer) = (9, REQUEST.len() as u32, ANSWER.len() as u32);
    let ends = Ends { from: at(0x0a01_0000 + session as u32, 40_000), to: at(0xc000_0201, 8_080) };
    let ack = TcpFlags::ACK;
    match step {
        0..=2 => ends.opening(step),
        3 => ends.build(ack, 1000, 5000, &REQUEST[..cut]),
        4 => ends.build(ack, 1000 + cut as u32, 5000, &REQUEST[cut..]),
        5 => ends.back().build(ack, 5000, 1000 + len, ANSWER),
        6 => ends.build(ack, 1000 + len, 5000 + answer, NEEDLE.as_bytes()),
        _ => ends.back().build(ack, 5000 + answer, 1000 + len + NEEDLE.len() as u32, b""),
    }
}

fn syn(index: u64, rng: &mut Rng) -> Vec<u8> {
    let ends = Ends { from: at(0x1400_0000 + index as u32, rng.bits() as u16 | 1), to: at(0xc000_0201, 8_080) };
    ends.build(TcpFlags::SYN, rng.bits() as u32, 0, b"")
}

fn fragment(index: u64, rng: &mut Rng) -> Vec<u8> {
    let of = |source: u32, id: u16, offset: u16| {
        Build::udp(at(source, 7_000), at(0xc000_0201, 7_000)).id(id).payload(512).fragment(offset, true).bytes()
    };
    match index % 2 {
        0 => of(0x1400_0000 + index as u32, rng.bits() as u16, 0),
        // Behind the largest offset, a datagram begins anew.
        _ => of(0x1500_0000 + (index % 16) as u32, (index >> 11) as u16, (index / 16 % 120) as u16 * 520),
    }
}

fn open_gap(index: u64) -> Vec<Vec<u8>> {
    let ends = Ends { from: at(0x1400_0000 + index as u32, 40_000), to: at(0xc000_0201, 8_080) };
    let waiting = ends.build(TcpFlags::ACK, 1001, 5000, b"what nobody can hear yet");
    (0..3).map(|step| ends.opening(step)).chain([waiting]).collect()
}

/// The session of a segment, and how many it had before.
const fn among_twenty(index: u64) -> (Ends, u32) {
    let ends = Ends { from: at(0x1400_0000 + (index % 20) as u32, 40_000), to: at(0xc000_0201, 8_080) };
    (ends, (index / 20) as u32)
}

fn one_byte(index: u64) -> Vec<Vec<u8>> {
    let (ends, count) = among_twenty(index);
    // Each ten in reverse.
    let place = count / 10 * 10 + 9 - count % 10;
    let acknowledged = if count.is_multiple_of(10) { 1000 + count } else { 1000 };
    let text = b"POST /upload HTTP/1.1\r\nHost: hostile.example\r\n\r\n";
    let byte = text.get(place as usize).copied().unwrap_or(b'x');
    let opening = (0..3).filter(|_| count == 0).map(|step| ends.opening(step));
    let answer = (acknowledged > 1000).then(|| ends.back().build(TcpFlags::ACK, 5000, acknowledged, b""));
    opening.chain(answer).chain([ends.build(TcpFlags::ACK, 1000 + place, 5000, &[byte])]).collect()
}

fn overlap(index: u64, rng: &mut Rng) -> Vec<Vec<u8>> {
    let (ends, count) = among_twenty(index);
    let front = 1000 + count * 40;
    let (seq, len) = (front + rng.below(2_000) as u32, 1 + rng.below(600) as usize);
    let data: Vec<u8> = (0..len).map(|_| b'a' + rng.below(26) as u8).collect();
    let opening = (0..3).filter(|_| count == 0).map(|step| ends.opening(step));
    // The receiver acknowledges far behind what is sent, so that much waits.
    let acknowledged = 1000 + count.saturating_sub(50) * 40;
    let answer = (count % 20 == 19).then(|| ends.back().build(TcpFlags::ACK, 5000, acknowledged, b""));
    opening.chain(answer).chain([ends.build(TcpFlags::ACK, seq, 5000, &data)]).collect()
}
