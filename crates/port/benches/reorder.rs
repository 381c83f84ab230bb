//! What reordering brings and takes, by delay: `cargo bench -p millrace-port --bench reorder`.
//!
//! Traffic is synthetic, 10 million packets a second: each train of eight packets is of a flow drawn at random, and its packets are 5 us
//! apart on average. MILLRACE_BENCH_FILE names captures beside that, separated by colons. For each delay: packets of a connection in a row,
//! nanoseconds a packet of the wrapper (receive with it, less receive without it), nanoseconds a packet of a look-up behind it (the entry
//! of the packet's flow, 128 bytes, read and written), and the time that packets were held for. Least of several rounds.
#![allow(missing_docs, clippy::print_stdout)]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use millrace_port::pcap::Reader;
use millrace_port::{Batch, Fate, MemoryQueue, Packet, Receive, Received, ReorderLimits, ReorderedQueue, Trace};
use packet::{LinkType, Nanos, Seq, parse};

const PACKETS: u64 = 500_000;
const TRAIN: u64 = 8;
const GAP_NS: u64 = 100;
const TRAIN_GAP_NS: u64 = 5_000;
const ROUNDS: usize = 5;
const BURST: usize = 256;

fn main() {
    println!("traffic                delay    in a row   wrapper ns   look-up ns   held: mean        p99");
    for flows in [1_000, 100_000, 1_000_000] {
        measure(&format!("{flows} flows"), &Arc::new(trains(flows)), flows);
    }
    let files = std::env::var("MILLRACE_BENCH_FILE").unwrap_or_default();
    for file in files.split(':').filter(|file| !file.is_empty()) {
        let mut reader = Reader::open(file).expect("a capture");
        let trace = Trace::load(&mut reader, PACKETS as usize).expect("a capture");
        let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy().into_owned();
        measure(&name, &Arc::new(trace), 1 << 16);
    }
}

fn measure(name: &str, trace: &Arc<Trace>, flows: usize) {
    for delay in [0, 10_000, 100_000, 1_000_000] {
        let mut table = vec![[0u64; 16]; flows.next_power_of_two()];
        let [mut bare, mut wrapped, mut look_up] = [f64::MAX; 3];
        let mut seen = Seen::default();
        for _ in 0..ROUNDS {
            let mut plain = MemoryQueue::new(Arc::clone(trace), BURST);
            let mut held =
                ReorderedQueue::new(MemoryQueue::new(Arc::clone(trace), BURST), Nanos(delay), ReorderLimits::default());
            let (receive, behind);
            if delay == 0 {
                (receive, behind, seen) = pass(&mut plain, trace, &mut table);
                wrapped = wrapped.min(receive);
            } else {
                let (without, ..) = pass(&mut plain, trace, &mut table);
                bare = bare.min(without);
                (receive, behind, seen) = pass(&mut held, trace, &mut table);
                wrapped = wrapped.min(receive);
            }
            look_up = look_up.min(behind);
        }
        let wrapper = if delay == 0 { 0.0 } else { wrapped - bare };
        seen.held.sort_unstable();
        let mean = seen.held.iter().sum::<u64>() as f64 / seen.held.len().max(1) as f64;
        let p99 = seen.held.get(seen.held.len() * 99 / 100).copied().unwrap_or(0);
        let row = trace.len() as f64 / seen.runs.max(1) as f64;
        println!(
            "{name:20} {:>6} us {row:10.2} {wrapper:12.1} {look_up:12.1} {:9.1} us {:7.1} us",
            delay / 1_000,
            mean / 1e3,
            p99 as f64 / 1e3
        );
    }
}

#[derive(Default)]
struct Seen {
    runs: u64,
    /// Time for which each packet was held, in nanoseconds.
    held: Vec<u64>,
}

/// Takes all packets. Returns nanoseconds a packet of the receive, and of the look-up behind it.
fn pass(queue: &mut impl Receive, trace: &Trace, table: &mut [[u64; 16]]) -> (f64, f64, Seen) {
    let (mut batch, mut seen, mut last) = (Batch::default(), Seen::default(), 0);
    let (mut receive, mut look_up, mut hashes) = (0, 0, Vec::new());
    // The sum of times is what packets were held for; the p99 needs each, by the number in the frame's order of arrival.
    let mut waiting: Vec<(u64, u64)> = Vec::new();
    loop {
        let begun = Instant::now();
        let received = queue.receive(&mut batch).expect("memory is there");
        receive += begun.elapsed().as_nanos();
        if received == Received::End {
            break;
        }
        hashes.clear();
        for (packet, bytes) in batch.each(0..batch.len()) {
            let headers = parse(packet.link, bytes, packet.wire_len, packet.interface);
            let tuple = headers.ok().and_then(|headers| headers.five_tuple());
            let hash = tuple.map_or(0, |tuple| {
                let ends = [tuple.symmetric().0.source(), tuple.symmetric().0.destination()];
                ends.iter().fold(u64::from(tuple.protocol()), |hash, end| {
                    let address = match end.address {
                        std::net::IpAddr::V4(address) => u128::from(address.to_bits()),
                        std::net::IpAddr::V6(address) => address.to_bits(),
                    };
                    (hash ^ address as u64 ^ (address >> 64) as u64 ^ u64::from(end.port) << 40)
                        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                        .rotate_left(29)
                })
            });
            hashes.push(hash);
            seen.runs += u64::from(hash != last || hash == 0);
            last = hash;
            waiting.push((stamp(bytes), packet.time.0));
        }
        let begun = Instant::now();
        for hash in &hashes {
            let at = *hash as usize & (table.len() - 1);
            let entry = &mut table[at];
            entry[0] += 1;
            entry[15] ^= entry[0];
            // The next look-up needs this one: a table's hit is not hidden by the next.
            black_box(entry[15]);
        }
        look_up += begun.elapsed().as_nanos();
    }
    let packets = trace.len().max(1) as f64;
    // Synthetic frames carry their time.
    seen.held =
        waiting.iter().filter(|(came, left)| came <= left && *came > 0).map(|(came, left)| left - came).collect();
    (receive as f64 / packets, look_up as f64 / packets, seen)
}

/// The time that a synthetic frame carries in its Ethernet addresses; 0 of others.
fn stamp(bytes: &[u8]) -> u64 {
    match bytes.get(..12) {
        Some(head) if head[..4] == [2, 0, 0, 0xbe] => head[4..].try_into().map_or(0, u64::from_be_bytes),
        Some(_) | None => 0,
    }
}

/// UDP in trains of a flow.
fn trains(flows: usize) -> Trace {
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    };
    let mut packets = Vec::new();
    for _ in 0..PACKETS / TRAIN {
        let (flow, mut time) = (next() % flows as u64, 1 + next() % (PACKETS * GAP_NS));
        for _ in 0..TRAIN {
            packets.push((time, flow));
            time += next() % (2 * TRAIN_GAP_NS);
        }
    }
    packets.sort_unstable();
    let mut trace = Trace::new();
    for (seq, (time, flow)) in packets.into_iter().enumerate() {
        let mut frame = vec![2, 0, 0, 0xbe];
        frame.extend(time.to_be_bytes());
        frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10]);
        frame.extend(&(flow as u32).to_be_bytes()[1..]);
        frame.extend([192, 0, 2, 1, 4, 0, 0, 53, 0, 26, 0, 0]);
        frame.resize(60, 0);
        let packet = Packet {
            seq: Seq(seq as u64),
            time: Nanos(time),
            offset: 0,
            len: 60,
            wire_len: 60,
            interface: 0,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        trace.push(packet, &frame);
    }
    trace
}
