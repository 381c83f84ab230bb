//! What parsing costs: `cargo bench -p millrace-packet`.
//!
//! Packets lie one behind the other in memory and are parsed in bursts of 32 into an array, as an engine does it.
//! Contenders take turns; the median and the smallest of all rounds are printed, in nanoseconds a packet.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use etherparse::{LaxNetSlice, LaxSlicedPacket, PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice};
use millrace_packet::toeplitz::{MICROSOFT_KEY, Toeplitz};
use millrace_packet::{FiveTuple, FlowKey, Headers, Key, LinkType, Malformed, parse, parse_ordinary};

const BURST: usize = 32;
const PACKETS: usize = 4096;
const ROUNDS: usize = 401;

fn main() {
    println!("size of Headers: {} bytes", size_of::<Headers>());
    for (name, frames) in [("64-byte TCP", minimal()), ("SYN with options", openings()), ("mixed", mixed())] {
        let frames = Frames::new(&frames);
        let mut headers = vec![Err(Malformed::LinkTruncated); BURST];
        let (mut looked, mut fields_lax, mut fields_sliced) = (vec![None; BURST], vec![None; BURST], vec![None; BURST]);
        compare(
            name,
            &mut [
                ("parse, all of it", &mut || {
                    frames.each_burst(&mut headers, |slot, frame| *slot = parse(LinkType::Ethernet, frame, 0, 0));
                }),
                ("the five-tuple by a look", &mut || {
                    frames.each_burst(&mut looked, |slot, frame| *slot = five_tuple(frame));
                }),
                ("etherparse LaxSlicedPacket", &mut || {
                    frames.each_burst(&mut fields_lax, |slot, frame| *slot = lax(frame));
                }),
                ("etherparse SlicedPacket", &mut || {
                    frames.each_burst(&mut fields_sliced, |slot, frame| *slot = sliced(frame));
                }),
            ],
        );
    }
    let frames = Frames::new(&minimal());
    let parsed: Vec<_> =
        frames.iter().filter_map(|frame| Some((parse(LinkType::Ethernet, frame, 0, 0).ok()?, frame))).collect();
    compare(
        "64-byte TCP",
        &mut [("Headers::checksums_hold", &mut || {
            for (headers, frame) in &parsed {
                black_box(headers.checksums_hold(frame));
            }
        })],
    );
    let tuples: Vec<_> =
        frames.iter().filter_map(|frame| parse(LinkType::Ethernet, frame, 0, 0).ok()?.five_tuple()).collect();
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
    compare(
        "hashes of IPv4 five-tuples",
        &mut [
            ("Toeplitz", &mut || {
                for tuple in &tuples {
                    let mut input = [0; 36];
                    let len = tuple.rss_input(&mut input);
                    black_box(toeplitz.hash(&input[..len]));
                }
            }),
            ("Key::hash", &mut || {
                for tuple in &tuples {
                    if let millrace_packet::Family::V4(key) = tuple.family() {
                        black_box(key.hash(7));
                    }
                }
            }),
        ],
    );
}

/// Runs the contenders in turn and prints what a packet costs each.
fn compare(title: &str, contenders: &mut [(&str, &mut dyn FnMut())]) {
    let mut times = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, run), times) in contenders.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..2 {
                run();
            }
            times.push(start.elapsed().as_nanos() as f64 / (2 * PACKETS) as f64);
        }
    }
    for ((name, _), times) in contenders.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{title:28} {name:28} {:6.1} ns (least {:.1})", times[ROUNDS / 2], times[0]);
    }
}

/// Frames in one stretch of memory.
struct Frames {
    memory: Vec<u8>,
    ends: Vec<(u32, u32)>,
}

impl Frames {
    fn new(frames: &[Vec<u8>]) -> Self {
        let mut memory = Vec::new();
        let mut ends = Vec::new();
        for frame in frames.iter().cycle().take(PACKETS) {
            let start = memory.len() as u32;
            memory.extend_from_slice(frame);
            ends.push((start, memory.len() as u32));
        }
        Self { memory, ends }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().map(|&(start, end)| &self.memory[start as usize..end as usize])
    }

    /// Parses all frames, a burst at a time.
    #[inline(always)]
    fn each_burst<'a, T>(&'a self, burst: &mut [T], parse: impl Fn(&mut T, &'a [u8])) {
        for frames in self.ends.chunks_exact(BURST) {
            for (slot, &(start, end)) in burst.iter_mut().zip(frames) {
                parse(slot, &self.memory[start as usize..end as usize]);
            }
            black_box(&mut *burst);
        }
    }
}

#[inline(always)]
fn five_tuple(frame: &[u8]) -> Option<FiveTuple> {
    match parse_ordinary(LinkType::Ethernet, frame, 0, 0, Headers::five_tuple) {
        Some(tuple) => tuple,
        None => parse(LinkType::Ethernet, frame, 0, 0).ok()?.five_tuple(),
    }
}

/// What a function needs of a packet, from etherparse's view of it.
type Fields = Option<([u8; 4], [u8; 4], u8, u16, u16, u32, u32, u16)>;

#[inline(always)]
fn lax(frame: &[u8]) -> Fields {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let LaxNetSlice::Ipv4(ip) = packet.net? else { return None };
    let ip = ip.header();
    fields(ip.source(), ip.destination(), ip.protocol().0, packet.transport?)
}

#[inline(always)]
fn sliced(frame: &[u8]) -> Fields {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let etherparse::NetSlice::Ipv4(ip) = packet.net? else { return None };
    let ip = ip.header();
    fields(ip.source(), ip.destination(), ip.protocol().0, packet.transport?)
}

#[inline(always)]
fn fields(src: [u8; 4], dst: [u8; 4], protocol: u8, transport: TransportSlice<'_>) -> Fields {
    match transport {
        TransportSlice::Tcp(tcp) => Some((
            src,
            dst,
            protocol,
            tcp.source_port(),
            tcp.destination_port(),
            tcp.sequence_number(),
            tcp.acknowledgment_number(),
            tcp.window_size(),
        )),
        TransportSlice::Udp(udp) => Some((src, dst, protocol, udp.source_port(), udp.destination_port(), 0, 0, 0)),
        _ => None,
    }
}

fn ethernet() -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
}

fn minimal() -> Vec<Vec<u8>> {
    (0..PACKETS as u32)
        .map(|n| {
            let [_, _, high, low] = n.to_be_bytes();
            let mut frame = Vec::new();
            ethernet()
                .ipv4([10, 0, high, low], [192, 168, low, high], 64)
                .tcp(1024 + n as u16, 80, n, 1000)
                .ack(n)
                .write(&mut frame, &[])
                .expect("writing to memory");
            frame.resize(60, 0);
            frame
        })
        .collect()
}

/// First segments of connections, as Linux sends them.
fn openings() -> Vec<Vec<u8>> {
    (0..PACKETS as u32)
        .map(|n| {
            let [_, _, high, low] = n.to_be_bytes();
            let mut frame = Vec::new();
            let tcp =
                ethernet().ipv4([10, 0, high, low], [192, 168, low, high], 64).tcp(1024 + n as u16, 80, n, 1000).syn();
            tcp.options(&handshake(n)).expect("they fit").write(&mut frame, &[]).expect("writing to memory");
            frame
        })
        .collect()
}

const fn handshake(n: u32) -> [TcpOptionElement; 5] {
    [
        TcpOptionElement::MaximumSegmentSize(1460),
        TcpOptionElement::SelectiveAcknowledgementPermitted,
        TcpOptionElement::Timestamp(n, 0),
        TcpOptionElement::Noop,
        TcpOptionElement::WindowScale(7),
    ]
}

/// Half timestamped TCP, then UDP, handshakes with options, IPv6, VLAN and ICMP.
fn mixed() -> Vec<Vec<u8>> {
    let payload = [0; 20];
    (0..PACKETS as u32)
        .map(|n| {
            let [_, _, high, low] = n.to_be_bytes();
            let (src, dst) = ([10, 0, high, low], [192, 168, low, high]);
            let (src6, dst6) = ([high ^ 0x20; 16], [low | 1; 16]);
            let stamp = [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(n, n)];
            let mut frame = Vec::new();
            // A shuffle that repeats after 4096 packets only, so that branches can't be learned by heart.
            match n.wrapping_mul(0x9e37_79b9) >> 28 {
                0..8 => {
                    let tcp = ethernet().ipv4(src, dst, 64).tcp(1024, 80, n, 1000).ack(n);
                    tcp.options(&stamp).expect("they fit").write(&mut frame, &payload)
                }
                8..12 => ethernet().ipv4(src, dst, 64).udp(1024, 53).write(&mut frame, &payload),
                12 => {
                    let tcp = ethernet().ipv4(src, dst, 64).tcp(1024, 80, n, 1000).syn();
                    tcp.options(&handshake(n)).expect("they fit").write(&mut frame, &[])
                }
                13 => ethernet().ipv6(src6, dst6, 64).tcp(1024, 80, n, 1000).write(&mut frame, &payload),
                14 => {
                    let vlan = 7.try_into().expect("a VLAN identifier");
                    ethernet().single_vlan(vlan).ipv4(src, dst, 64).udp(1024, 53).write(&mut frame, &payload)
                }
                _ => ethernet().ipv4(src, dst, 64).icmpv4_echo_request(n as u16, 1).write(&mut frame, &payload),
            }
            .expect("writing to memory");
            frame
        })
        .collect()
}
