//! What a packet costs to read, to write and to replay, in nanoseconds: `cargo bench -p millrace-port`.
//!
//! Each figure is the least of several rounds, the variants taken in turn. MILLRACE_BENCH_FILE names a further capture.
#![allow(missing_docs, clippy::print_stdout)]

use std::fs::{self, File};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use millrace_port::pcap::{Reader, Writer};
use millrace_port::{Batch, Fate, HugePages, Loops, Packet, Queue, Received, Renumber, Replay, Trace};
use packet::{LinkType, Nanos, Seq};

const PACKETS: u64 = 1_000_000;
const ROUNDS: usize = 25;

fn main() {
    let folder = std::env::temp_dir().join(format!("millrace-bench-{}", std::process::id()));
    let folder = folder.as_path();
    fs::create_dir_all(folder).expect("a folder for bench files");
    let mut files = vec![small_packets(&folder.join("small.pcap")), small_packets(&folder.join("small.pcapng"))];
    files.extend(mixed(&folder.join("mix_sfr_a.pcap")));
    files.extend(std::env::var_os("MILLRACE_BENCH_FILE").map(PathBuf::from));
    // An argument names the one part to run: `cargo bench -p millrace-port -- replay`.
    let part = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    if wanted("read") {
        files.iter().for_each(|file| read_blocks(file));
    }
    if wanted("write") {
        write(folder);
    }
    if wanted("replay") {
        replay();
    }
    for file in &files[..files.len().min(3)] {
        fs::remove_file(file).expect("a file that this bench made");
    }
}

/// Reading with blocks of several sizes, against a walk over a mapping.
fn read_blocks(path: &Path) {
    let sizes = [32, 64, 128, 256, 512, 1024];
    let mut best = [f64::MAX; 6];
    let (mut map_plain, mut map_ahead, mut one_batch) = (f64::MAX, f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        for (size, best) in sizes.iter().zip(&mut best) {
            *best = best.min(per_packet(|| read(path, size << 10, true)));
        }
        one_batch = one_batch.min(per_packet(|| read(path, 128 << 10, false)));
        if path.extension().is_some_and(|extension| extension == "pcap") {
            map_plain = map_plain.min(per_packet(|| mapped::<false>(path)));
            map_ahead = map_ahead.min(per_packet(|| mapped::<true>(path)));
        }
    }
    println!("{}", path.file_name().unwrap_or_default().to_string_lossy());
    for (size, best) in sizes.iter().zip(best) {
        println!("  read, blocks of {size:4} KiB, bytes touched {best:10.1} ns/packet");
    }
    println!("  read, blocks of  128 KiB, not touched   {one_batch:10.1} ns/packet");
    if map_plain < f64::MAX {
        println!("  mmap, bytes touched                     {map_plain:10.1} ns/packet");
        println!("  mmap, prefetched, bytes touched         {map_ahead:10.1} ns/packet");
    }
}

/// Nanoseconds for each of the packets that `run` says it had.
fn per_packet(run: impl FnOnce() -> u64) -> f64 {
    let start = Instant::now();
    let packets = run();
    start.elapsed().as_nanos() as f64 / packets.max(1) as f64
}

fn read(path: &Path, block: usize, touch: bool) -> u64 {
    let mut reader = Reader::open(path).expect("a capture").with_block(block);
    let mut batch = Batch::default();
    let (mut packets, mut sum) = (0, 0u64);
    while reader.read(&mut batch).expect("a whole capture") != Received::End {
        packets += batch.len() as u64;
        if touch {
            for index in 0..batch.len() {
                sum += u64::from(*batch.bytes(index).get(26).unwrap_or(&0));
            }
        }
    }
    black_box(sum);
    packets
}

/// The variant that is not shipped: a walk over a mapping of the file, its descriptors gathered in bursts of 32.
fn mapped<const AHEAD: bool>(path: &Path) -> u64 {
    let file = File::open(path).expect("a capture");
    // SAFETY: the file is this bench's own and nobody cuts it short meanwhile.
    let map = unsafe { memmap2::Mmap::map(&file) }.expect("a mapping");
    let (bytes, mut at, mut packets, mut sum) = (&map[..], 24, 0u64, 0u64);
    let mut burst = [(0usize, 0usize, 0u64); 32];
    while at + 16 <= bytes.len() {
        let mut count = 0;
        while count < burst.len() && at + 16 <= bytes.len() {
            if AHEAD {
                prefetch(bytes, at + 4096);
                prefetch(bytes, at + 4096 + 64);
            }
            let word = |offset: usize| u32::from_le_bytes(bytes[at + offset..][..4].try_into().expect("four bytes"));
            burst[count] = (at + 16, word(8) as usize, u64::from(word(0)) << 32 | u64::from(word(4)));
            at += 16 + burst[count].1;
            count += 1;
        }
        for (offset, len, _) in black_box(&burst[..count]) {
            sum += u64::from(*bytes[*offset..][..*len].get(26).unwrap_or(&0));
        }
        packets += count as u64;
    }
    black_box(sum);
    packets
}

fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed; nothing is accessed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(bytes.as_ptr().wrapping_add(at).cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}

fn write(folder: &Path) {
    let packet = packet(0);
    for name in ["/dev/null", "written.pcap", "written.pcapng", "written.pcap.zst", "written.pcap.gz"] {
        let path = folder.join(name);
        let mut best = f64::MAX;
        for _ in 0..3 {
            best = best.min(per_packet(|| {
                let mut writer = Writer::create(&path, None, None).expect("an output");
                for number in 0..PACKETS {
                    writer.write(&Packet { time: Nanos(number * 100), ..packet }, &bytes(number)).expect("room");
                }
                writer.finish().expect("room");
                PACKETS
            }));
        }
        println!("write {name:18} of 64-byte packets {best:18.1} ns/packet");
        if path.is_file() {
            fs::remove_file(&path).expect("a file that this bench made");
        }
    }
}

/// Receiving from memory, by size of trace and packet.
fn replay() {
    for (packets, len) in [(1_000, 64), (10_000, 64), (100_000, 64), (1_000_000, 64), (100_000, 590)] {
        let mut trace = Trace::new();
        for number in 0..packets {
            let mut frame = bytes(number).to_vec();
            frame.resize(len, 0);
            trace.push(Packet { wire_len: len as u32, ..packet(number) }, &frame);
        }
        let trace = Arc::new(trace);
        for renumber in [None, Some(Renumber::default())] {
            let loops = Loops::Times(16_000_000 / packets);
            let mut replay = Replay::new(Arc::clone(&trace)).looped(loops);
            if let Some(renumber) = renumber {
                replay = replay.renumbered(renumber);
            }
            let mut best = f64::MAX;
            for _ in 0..ROUNDS {
                let mut queue = replay.queues(1).remove(0);
                best = best.min(per_packet(|| receive(&mut *queue)));
            }
            let HugePages { bytes, huge_bytes } = replay.huge_pages();
            let how = if renumber.is_some() { "renumbered" } else { "as it is" };
            println!(
                "replay {packets:8} x {len:3} bytes, {how}: {best:6.1} ns/packet ({} of {} MiB on huge pages)",
                huge_bytes >> 20,
                bytes >> 20
            );
        }
    }
}

fn receive(queue: &mut dyn Queue) -> u64 {
    let mut batch = Batch::default();
    let (mut packets, mut sum) = (0, 0u64);
    while queue.receive(&mut batch).expect("memory is there") == Received::Packets {
        packets += batch.len() as u64;
        sum += batch.packets().iter().map(|packet| u64::from(packet.len)).sum::<u64>();
        sum += u64::from(batch.bytes(0)[0]);
    }
    black_box(sum);
    packets
}

fn packet(number: u64) -> Packet {
    let (seq, time) = (Seq(number), Nanos(number * 100));
    let fate = Fate::Transmit(0);
    Packet { seq, time, offset: 0, len: 64, wire_len: 64, interface: 0, bucket: 0, link: LinkType::Ethernet, fate }
}

/// A frame with an IPv4 and a UDP header, its addresses told by its number.
fn bytes(number: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17]);
    bytes[26..30].copy_from_slice(&(0x0a00_0000 | number as u32 & 0xffff).to_be_bytes());
    bytes[30..34].copy_from_slice(&[192, 0, 2, 1]);
    bytes[34..40].copy_from_slice(&[0x12, 0x34, 0, 53, 0, 30]);
    bytes
}

/// A capture of 64-byte packets.
fn small_packets(path: &Path) -> PathBuf {
    let mut writer = Writer::create(path, None, None).expect("an output");
    for number in 0..PACKETS {
        writer.write(&packet(number), &bytes(number)).expect("room");
    }
    writer.finish().expect("room");
    path.to_owned()
}

/// The shared capture of mixed packets, decompressed.
fn mixed(path: &Path) -> Option<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("MILLRACE_TRACES").map_or(shared, PathBuf::from);
    let mut reader = Reader::open(folder.join("mix/mix_sfr_a.pcap.zst")).ok()?;
    let mut writer = Writer::create(path, None, Some(&reader.format())).expect("an output");
    let mut batch = Batch::default();
    while reader.read(&mut batch).expect("a whole capture") != Received::End {
        for (index, packet) in batch.packets().iter().enumerate() {
            writer.write(packet, batch.bytes(index)).expect("room");
        }
    }
    writer.finish().expect("room");
    Some(path.to_owned())
}
