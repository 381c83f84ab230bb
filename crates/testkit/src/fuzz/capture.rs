//! Check of capture files: any bytes are read to an end, independently of the block size, with memory bounded by the file's size; and
//! packets that are written read back equal.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, process};

use packet::{LinkType, Nanos};
use port::pcap::{BLOCK_BYTES, Capture, Compression, Container, Fault, Format, Reader, Writer};
use port::{Batch, Fate, Packet, Receive, Received, Transmit};

/// Maximum number of bytes stored of a capture, because a few bytes decompress to gigabytes.
const STORED_BYTES_MAX: usize = 1 << 22;

/// Reads the input as a capture file, writes its packets, and reads them back.
pub fn capture(bytes: &[u8]) {
    let Some(whole) = Content::read(bytes, BLOCK_BYTES, usize::MAX) else { return };
    let Some(pieces) = Content::read(bytes, 64, 61) else { return };
    assert_eq!(whole.end, pieces.end, "the end depends on the size of the blocks");
    assert_eq!(whole.packets, pieces.packets, "the packets depend on the size of the blocks");
    assert_eq!(whole.format, pieces.format);
    if let Some(format) = &whole.format {
        written(&whole.packets, format, Container::PcapNg);
        written(&whole.packets, format, Container::Pcap);
        copied(bytes, &whole.packets);
    }
}

/// The content of a capture.
struct Content {
    /// `None` if it could not be opened.
    format: Option<Format>,
    packets: Vec<OwnedPacket>,
    /// The error at the end, if any.
    end: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnedPacket {
    time: Nanos,
    wire_len: u32,
    interface: u16,
    link: LinkType,
    bytes: Vec<u8>,
}

impl Content {
    /// Reads a capture in pieces of at most `piece` bytes; `None` if it is too large to store.
    fn read(bytes: &[u8], block: usize, piece: usize) -> Option<Self> {
        let mut content = Self { format: None, packets: Vec::new(), end: None };
        let mut reader = match Reader::from_read(Pieces { input: Cursor::new(bytes.to_vec()), piece }, "input") {
            Ok(reader) => reader.with_block(block),
            Err(error) => return Some(Self { end: Some(error.to_string()), ..content }),
        };
        let (mut batch, mut kept_bytes) = (Batch::default(), 0);
        loop {
            match reader.read(&mut batch) {
                Ok(Received::Packets) => assert!(!batch.is_empty(), "packets were announced"),
                // A decompressor may be late.
                Ok(Received::Idle) => continue,
                Ok(Received::End) => break,
                Err(error) => {
                    content.end = Some(error.to_string());
                    break;
                }
            }
            for (index, packet) in batch.packets().iter().enumerate() {
                content.take(packet, batch.bytes(index));
                kept_bytes += batch.bytes(index).len() + size_of::<OwnedPacket>();
            }
            if kept_bytes > STORED_BYTES_MAX {
                return None;
            }
        }
        assert!(matches!(reader.read(&mut batch), Ok(Received::End)), "what ended has ended");
        let format = reader.format();
        if format.compression.is_none() {
            let bound = 2 * (block.max(BLOCK_BYTES) + bytes.len());
            assert!(batch.parts_mut().0.capacity() <= bound, "more memory than there are bytes for");
        }
        content.format = Some(format);
        Some(content)
    }

    fn take(&mut self, packet: &Packet, bytes: &[u8]) {
        assert_eq!(packet.seq.0, self.packets.len() as u64, "packets are numbered from 0");
        assert!(self.packets.last().is_none_or(|last| last.time <= packet.time), "time runs backwards");
        assert!(packet.wire_len as usize >= bytes.len());
        let Packet { time, wire_len, interface, link, .. } = *packet;
        self.packets.push(OwnedPacket { time, wire_len, interface, link, bytes: bytes.to_vec() });
    }
}

/// Writes the packets to a file, compressed as the input was, and reads it back.
fn written(packets: &[OwnedPacket], format: &Format, container: Container) {
    let file = Scratch::new(match format.compression {
        None => "",
        Some(Compression::Gzip) => ".gz",
        Some(Compression::Zstd) => ".zst",
    });
    let mut writer = Writer::create(&file.0, Some(container), Some(format)).expect("the scratch file opens");
    let mut expected = Vec::new();
    for packet in packets {
        let OwnedPacket { time, wire_len, interface, link, ref bytes } = *packet;
        let descriptor = crate::Frames::descriptor(link, expected.len(), time, bytes);
        match writer.write(&Packet { wire_len, interface, ..descriptor }, bytes) {
            Ok(()) => expected.push(packet.clone()),
            Err(error) => {
                let refused = matches!(error.fault, Fault::MixedLinks(..) | Fault::LateTime);
                assert!(refused && container == Container::Pcap, "{error}");
            }
        }
    }
    writer.finish().expect("the scratch file is written");
    let bytes = fs::read(&file.0).expect("the scratch file is there");
    let back = Content::read(&bytes, BLOCK_BYTES, usize::MAX).expect("no more than was kept");
    assert_eq!(back.end, None, "what was written is whole");
    assert_eq!(back.format.as_ref().map(|format| format.container), Some(container));
    if container == Container::PcapNg {
        number_alike(&mut expected);
    } else {
        expected.iter_mut().for_each(|packet| packet.interface = 0);
    }
    assert_eq!(back.packets, expected, "what was written reads back");
}

/// Copies the capture with its metadata twice: the packets don't change, and the second copy equals the first.
fn copied(bytes: &[u8], packets: &[OwnedPacket]) {
    let copy = |bytes: &[u8]| {
        let file = Scratch::new("");
        let reader = Reader::from_read(Cursor::new(bytes.to_vec()), "input").expect("it was opened before");
        let writer = Writer::create(&file.0, Some(Container::PcapNg), Some(&reader.format()));
        let mut capture = Capture::new(reader, Some(writer.expect("the scratch file opens")));
        let (mut stream, mut batch) = (capture.stream(), Batch::default());
        loop {
            match stream.receive(&mut batch) {
                Ok(Received::End) | Err(_) => break,
                Ok(Received::Packets | Received::Idle) => {}
            }
            batch.packets_mut().iter_mut().for_each(|packet| packet.fate = Fate::Transmit(0));
            stream.transmit(&mut batch).expect("any packet can be written");
        }
        stream.finish().expect("the scratch file is written");
        fs::read(&file.0).expect("the scratch file is there")
    };
    let first = copy(bytes);
    let back = Content::read(&first, BLOCK_BYTES, usize::MAX).expect("no more than was kept");
    assert_eq!(back.end, None, "what was written is whole");
    let shape = |packets: &[OwnedPacket]| -> Vec<_> {
        packets.iter().map(|packet| (packet.wire_len, packet.link, packet.bytes.clone())).collect()
    };
    assert_eq!(shape(&back.packets), shape(packets), "what was copied reads back");
    assert!(copy(&first) == first, "a copy's copy is another");
}

/// Numbers interfaces by their first packets, as in the single section of a written pcapng.
fn number_alike(packets: &mut [OwnedPacket]) {
    let mut numbers = BTreeMap::new();
    for packet in packets {
        let next = numbers.len() as u16;
        packet.interface = *numbers.entry((packet.interface, packet.link)).or_insert(next);
    }
}

/// A reader that never gives more than `piece` bytes.
struct Pieces {
    input: Cursor<Vec<u8>>,
    piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.piece);
        self.input.read(&mut into[..len])
    }
}

/// A temporary file, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(ending: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // ORDERING: Relaxed, as only the count itself matters; pairs with other calls of this function.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(env::temp_dir().join(format!("millrace-fuzz-{}-{count}{ending}", process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it can't be removed, the system cleans up.
        let _ = fs::remove_file(&self.0);
    }
}
