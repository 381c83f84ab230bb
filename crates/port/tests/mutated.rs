//! Captures with bytes changed, cut and put in: no panic, an end, memory no larger than the file gives reason for.

mod shared;

use std::io::{Cursor, Read};
use std::sync::OnceLock;

use millrace_port::pcap::{Capture, Container, Reader, Writer};
use millrace_port::{Batch, Fate, Packet, Receive, Received, Transmit};
use packet::{LinkType, Nanos, Seq};
use proptest::prelude::*;
use shared::{manifest, read_all};

const FILE_BYTES_MAX: u64 = 20_000;

/// Short captures of all kinds, and one that is made here, so that there is at least that.
fn seeds() -> &'static [Vec<u8>] {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let rows = manifest();
        let wanted = |category: &str, index: usize| category == "fmt" || index.is_multiple_of(25);
        let chosen = rows.iter().enumerate().filter(|(index, row)| wanted(&row.category, *index)).map(|(_, row)| row);
        let mut seeds: Vec<Vec<u8>> = chosen
            .filter(|row| row.path.metadata().is_ok_and(|metadata| metadata.len() < FILE_BYTES_MAX))
            .map(|row| std::fs::read(&row.path).expect("a capture"))
            .collect();
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutated.pcapng");
        let mut writer = Writer::create(&path, None, None).expect("an output");
        let (seq, time, link, fate) = (Seq(0), Nanos(0), LinkType::Null, Fate::Pending);
        let packet = |interface| Packet { seq, time, offset: 0, len: 0, wire_len: 9, interface, link, bucket: 0, fate };
        (0..50).for_each(|number| writer.write(&packet(number % 3), &[number as u8; 9]).expect("room"));
        writer.finish().expect("room");
        seeds.push(std::fs::read(&path).expect("a capture"));
        seeds
    })
}

/// A change of a file.
#[derive(Clone, Debug)]
enum Change {
    Byte(prop::sample::Index, u8),
    /// A word of a length's kind: large, small, off by a little.
    Word(prop::sample::Index, u32),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    let words = prop_oneof![any::<u32>(), 0u32..200, Just(u32::MAX), Just(64 << 20), Just((64 << 20) - 16)];
    prop_oneof![
        4 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        4 => (any::<prop::sample::Index>(), words).prop_map(|(at, word)| Change::Word(at, word)),
        1 => any::<prop::sample::Index>().prop_map(Change::Cut),
        1 => (any::<prop::sample::Index>(), 1usize..40).prop_map(|(at, len)| Change::Remove(at, len)),
        1 => (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
    ]
}

fn apply(file: &mut Vec<u8>, change: &Change) {
    if file.is_empty() {
        return;
    }
    let len = file.len();
    match change {
        Change::Byte(at, byte) => file[at.index(len)] = *byte,
        Change::Word(at, word) => {
            let at = at.index(len) & !3;
            file.iter_mut().skip(at).zip(word.to_le_bytes()).for_each(|(byte, new)| *byte = new);
        }
        Change::Cut(at) => file.truncate(at.index(len)),
        Change::Remove(at, count) => {
            let at = at.index(len);
            file.drain(at..len.min(at + count));
        }
        Change::Insert(at, bytes) => {
            let at = at.index(len);
            file.splice(at..at, bytes.iter().copied());
        }
    }
}

/// A reader that gives so many bytes at a time.
struct Pieces(Cursor<Vec<u8>>, usize);

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let room = into.len().min(self.1);
        self.0.read(&mut into[..room])
    }
}

/// Copies a capture to a pcapng, with all that stands beside its packets, as far as it is whole.
fn copy(file: &[u8]) -> Vec<u8> {
    let name = format!("copy-{}.pcapng", std::process::id());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let reader = Reader::from_read(Cursor::new(file.to_vec()), "mutated").expect("it opened before");
    let writer = Writer::create(&path, Some(Container::PcapNg), Some(&reader.format())).expect("an output");
    let mut capture = Capture::new(reader, Some(writer));
    let (mut stream, mut batch) = (capture.stream(), Batch::default());
    while !matches!(stream.receive(&mut batch), Ok(Received::End) | Err(_)) {
        batch.packets_mut().iter_mut().for_each(|packet| packet.fate = Fate::Transmit(0));
        stream.transmit(&mut batch).expect("room");
    }
    stream.finish().expect("room");
    let copy = std::fs::read(&path).expect("a file");
    std::fs::remove_file(&path).expect("a file of ours");
    copy
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if shared::deep() { 100_000 } else { 2_000 }, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_file(seed: prop::sample::Index, changes in prop::collection::vec(change(), 1..6), piece in 1usize..5_000) {
        let mut file = seed.get(seeds()).clone();
        changes.iter().for_each(|change| apply(&mut file, change));
        let len = file.len();
        let Ok(mut reader) = Reader::from_read(Cursor::new(file.clone()), "mutated") else { return Ok(()) };
        let mut batch = Batch::default();
        let mut packets = 0u64;
        let error = loop {
            match reader.read(&mut batch) {
                Ok(Received::Packets) => {
                    for index in 0..batch.len() {
                        let packet = batch.packets()[index];
                        prop_assert_eq!(batch.bytes(index).len(), packet.len as usize);
                        prop_assert!(packet.wire_len >= packet.len && packet.seq.0 == packets);
                        packets += 1;
                    }
                }
                Ok(Received::Idle) => {}
                Ok(Received::End) => break None,
                Err(error) => break Some(error),
            }
            prop_assert!(packets <= len as u64 / 16);
        };
        let (memory, _) = batch.parts_mut();
        prop_assert!(memory.capacity() <= 4 * len.max(millrace_port::pcap::BLOCK_BYTES), "{} of {len}", memory.capacity());
        // However the bytes come, they are the same capture.
        let pieces = Reader::from_read(Pieces(Cursor::new(file.clone()), piece), "pieces").expect("it opened before");
        let again = read_all(pieces.with_block(64));
        prop_assert_eq!(again.packets.len() as u64, packets);
        let place = |error: &millrace_port::pcap::Error| (error.offset, error.packets, error.fault.to_string());
        prop_assert_eq!(again.error.as_ref().map(place), error.as_ref().map(place));
        // A copy holds the same packets, and its copy is the same.
        let first = copy(&file);
        let back = read_all(Reader::from_read(Cursor::new(first.clone()), "copy").expect("a capture"));
        let shape = |read: &shared::Read| -> Vec<_> {
            read.packets.iter().map(|(packet, bytes)| (packet.wire_len, packet.link, bytes.clone())).collect()
        };
        prop_assert!(back.error.is_none(), "{:?}", back.error);
        prop_assert_eq!(shape(&back), shape(&again));
        prop_assert!(copy(&first) == first);
    }
}
