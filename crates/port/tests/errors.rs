//! What is broken is told: which file, where in it, what to do; and what is whole is delivered first.

mod shared;

use std::fs;
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use millrace_port::pcap::{Compression, Error, Fault, Reader};
use millrace_port::{Batch, Received};
use packet::LinkType;
use shared::read_all;

/// A classic pcap, little-endian, microseconds: header fields after the magic are the usual ones.
fn pcap(records: &[(u32, u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for (secs, micros, wire_len, bytes) in records {
        for word in [*secs, *micros, bytes.len() as u32, *wire_len] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(bytes);
    }
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = (12 + padded) as u32;
    let mut block = [kind.to_le_bytes(), len.to_le_bytes()].concat();
    block.extend_from_slice(body);
    block.resize(8 + padded, 0);
    block.extend_from_slice(&len.to_le_bytes());
    block
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]))
}

fn interface(link: u32, snaplen: u32, options: &[u8]) -> Vec<u8> {
    block(1, &[words(&[link, snaplen]), options.to_vec()].concat())
}

fn enhanced(id: u32, stamp: u64, bytes: &[u8]) -> Vec<u8> {
    let len = bytes.len() as u32;
    block(6, &[words(&[id, (stamp >> 32) as u32, stamp as u32, len, len]), bytes.to_vec()].concat())
}

fn open(bytes: impl Into<Vec<u8>>) -> Result<Reader, Error> {
    Reader::from_read(Cursor::new(bytes.into()), "some.pcap")
}

/// What a capture yields before its error.
fn until_error(bytes: impl Into<Vec<u8>>) -> (usize, Error) {
    let read = read_all(open(bytes).expect("a good beginning"));
    (read.packets.len(), read.error.expect("an error"))
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn files_that_cannot_be_opened() {
    let error = Reader::open("no/such/file.pcap").expect_err("there is none");
    assert!(matches!(error.fault, Fault::Open(_)));
    assert_eq!(
        error.to_string(),
        "no/such/file.pcap: can't be opened: No such file or directory (os error 2); check the path and its permissions"
    );
    let error = Reader::open(env!("CARGO_MANIFEST_DIR")).expect_err("a folder");
    assert!(matches!(error.fault, Fault::Directory));
}

#[test]
fn files_that_are_no_captures() {
    let of = |bytes: &[u8]| open(bytes).expect_err("no capture").to_string();
    assert_eq!(of(b""), "some.pcap: is empty, not a capture; give a pcap or pcapng file, plain or as .gz or .zst");
    assert!(of(b"\xa1").contains("begins with a1;"), "{}", of(b"\xa1"));
    assert!(of(b"GET / HTTP/1.1\r\n").contains("(text)"));
    assert!(of(b"BZh91AY&SY\x01\x02").contains("(bzip2; decompress it first)"));
    assert!(of(b"snoop\0\0\0\0\0\0\x02\0\0\0\x04").contains("editcap"));
    assert!(of(&[0; 100]).contains("00 00 00"));
    let mut modified = pcap(&[]);
    modified[..4].copy_from_slice(&0xa1b2_cd34u32.to_le_bytes());
    assert!(of(&modified).contains("Kuznetzov's modified pcap, which is not supported"), "{}", of(&modified));
    modified[..4].copy_from_slice(&0xa1b2_cd34u32.to_be_bytes());
    assert!(of(&modified).contains("Kuznetzov"));
    let mut version = pcap(&[]);
    version[4] = 7;
    assert!(of(&version).contains("version 7.4"));
    for cut in [&pcap(&[])[..20], &section()[..20]] {
        let error = open(cut).expect_err("cut");
        assert!(matches!(error.fault, Fault::Header(20)));
        assert!(
            error.to_string().ends_with(": ends 20 bytes into its header; it has no packet; copy the file again"),
            "{error}"
        );
    }
}

#[test]
fn odd_captures_that_are_fine() {
    let none = read_all(open(pcap(&[])).expect("a capture"));
    assert!(none.error.is_none() && none.packets.is_empty());
    // Claimed shorter on the wire than captured, beyond the snap length, of no length at all.
    let mut odd = pcap(&[(1, 2, 3, &[9; 60]), (1, 2, 70_000, &[8; 70_000]), (1, 3, 0, &[])]);
    odd[20] = 250;
    let read = read_all(open(odd).expect("a capture"));
    assert!(read.error.is_none());
    let lens: Vec<_> = read.packets.iter().map(|(packet, _)| (packet.len, packet.wire_len)).collect();
    assert_eq!(lens, [(60, 60), (70_000, 70_000), (0, 0)]);
    assert!(read.packets.iter().all(|(packet, _)| packet.link == LinkType::Other(250)));
    assert_eq!(read.packets[0].0.time.0, 1_000_002_000);
}

/// Up to version 2.2, and in 543.0, the length on the wire comes first; in 2.3 whichever is larger.
#[test]
fn lengths_of_old_versions_are_swapped() {
    // The lengths are of one packet of 40 bytes that had 60 on the wire, and of one of 30 that had 30.
    let file = |major: u16, minor: u16, swapped: bool| {
        let mut file = pcap(&[(1, 2, 60, &[9; 40]), (1, 3, 30, &[8; 30])]);
        file[4..8].copy_from_slice(&[major.to_le_bytes(), minor.to_le_bytes()].concat());
        if swapped {
            file[32..40].copy_from_slice(&words(&[60, 40]));
        }
        file
    };
    for (major, minor, swapped) in
        [(2, 0, true), (2, 2, true), (543, 0, true), (2, 3, true), (2, 3, false), (2, 4, false)]
    {
        let read = read_all(open(file(major, minor, swapped)).expect("a capture"));
        let lens: Vec<_> = read.packets.iter().map(|(packet, _)| (packet.len, packet.wire_len)).collect();
        assert_eq!(lens, [(40, 60), (30, 30)], "{major}.{minor}");
        assert!(read.error.is_none());
    }
    for (major, minor, swapped) in [(2, 2, false), (2, 4, true)] {
        assert!(read_all(open(file(major, minor, swapped)).expect("a capture")).error.is_some(), "{major}.{minor}");
    }
    assert!(matches!(open(file(543, 1, true)).expect_err("no such version").fault, Fault::Version(543, 1)));
}

#[test]
fn cut_in_a_record() {
    let whole = pcap(&[(1, 0, 60, &[1; 60]), (2, 0, 60, &[2; 60])]);
    let second = 24 + 76;
    for len in second + 1..whole.len() {
        let (packets, error) = until_error(&whole[..len]);
        assert_eq!((packets, error.packets, error.offset), (1, 1, second as u64));
        assert!(error.is_truncated());
        assert!(matches!(error.fault, Fault::Truncated(have) if have == (len - second) as u64));
    }
    let (_, error) = until_error(&whole[..second + 20]);
    assert_eq!(
        error.to_string(),
        "some.pcap: ends 20 bytes into a record (at byte 100, packet 2); the packets before it were read; copy the file \
         again or cut the rest off with `editcap`"
    );
    let ng = [section(), interface(1, 0, &[]), enhanced(0, 5, &[1; 61]), enhanced(0, 6, &[2; 61])].concat();
    let (packets, error) = until_error(&ng[..ng.len() - 1]);
    assert_eq!((packets, error.offset), (1, (ng.len() - 96) as u64));
    assert!(error.is_truncated());
}

#[test]
fn records_of_absurd_length() {
    let mut absurd = pcap(&[(1, 0, 60, &[1; 60]), (2, 0, 60, &[2; 60])]);
    absurd[24 + 76 + 8..][..4].copy_from_slice(&(65u32 << 20).to_le_bytes());
    let (packets, error) = until_error(absurd);
    assert_eq!((packets, error.offset), (1, 100));
    assert!(matches!(error.fault, Fault::RecordLength(len) if len == (65 << 20) + 16));
    let mut ng = [section(), interface(1, 0, &[])].concat();
    let begin = ng.len();
    ng.extend_from_slice(&words(&[6, u32::MAX - 3, 0, 0]));
    let (packets, error) = until_error(ng);
    assert_eq!((packets, error.offset), (0, begin as u64));
    assert!(matches!(error.fault, Fault::RecordLength(_)));
}

#[test]
fn long_records_pass_whatever_the_block() {
    let long = vec![7; 300_000];
    let file = pcap(&[(1, 0, 60, &[1; 60]), (2, 0, 300_000, &long), (3, 0, 60, &[3; 60])]);
    for block in [64, 100, 1 << 10, 128 << 10, 1 << 20] {
        let read = read_all(open(file.clone()).expect("a capture").with_block(block));
        assert!(read.error.is_none());
        assert_eq!(read.packets.iter().map(|(packet, _)| packet.len).collect::<Vec<_>>(), [60, 300_000, 60]);
        assert_eq!(read.packets[1].1, long);
    }
}

#[test]
fn blocks_that_contradict_themselves() {
    let begin = [section(), interface(1, 0, &[]), enhanced(0, 5, &[1; 60])].concat();
    let of = |bad: Vec<u8>| {
        let (packets, error) = until_error([begin.clone(), bad].concat());
        assert_eq!((packets, error.offset), (1, begin.len() as u64));
        error.fault.to_string()
    };
    let mut ends_differ = enhanced(0, 6, &[2; 60]);
    let last = ends_differ.len() - 4;
    ends_differ[last] ^= 4;
    assert!(of(ends_differ).contains("two ends differ"));
    let mut odd = enhanced(0, 6, &[2; 60]);
    odd[4] |= 1;
    assert!(of(odd).contains("multiple of 4"));
    assert!(of(words(&[77, 8, 8, 0])).contains("or less than 12"));
    assert!(of(block(6, &words(&[0, 0, 0]))).contains("too short"));
    assert!(of(block(6, &words(&[0, 0, 0, 100, 100, 0]))).contains("longer than itself"));
    assert!(of(block(3, &words(&[100, 0]))).contains("longer than itself"));
    assert!(of(enhanced(1, 6, &[])).contains("interface 1, which is not declared"));
    assert!(of(block(1, &words(&[1]))).contains("too short"));
    assert!(of(interface(1, 0, &words(&[0x00ff_0002]))).contains("option"));
    assert!(of(block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 2, 0, 0]))).contains("version 2.0"));
    assert!(of(block(0x0a0d_0d0a, &words(&[5, 1, 0, 0]))).contains("byte-order magic"));
    // A new section forgets the interfaces of the one before.
    let (packets, error) = until_error([begin.clone(), section(), enhanced(0, 6, &[])].concat());
    assert_eq!(packets, 1);
    assert!(matches!(error.fault, Fault::UnknownInterface(0)));
}

#[test]
fn all_kinds_of_blocks() {
    let resolution = words(&[0x0001_0009, 0x89, 0]);
    let offset = words(&[0x0008_000e, 100, 0, 0x0006_0002, 0x3068_7465, 0x2e30, 0]);
    let file = [
        section(),
        block(0xbad, &[1; 33]),
        interface(1, 40, &[]),
        interface(101, 0, &resolution),
        enhanced(1, 512 * 7 + 256, &[1; 5]),
        block(3, &[words(&[99]), vec![2; 40]].concat()),
        block(2, &[words(&[1 | 9 << 16, 0, 512 * 8, 4, 44]), vec![3; 4]].concat()),
        section(),
        interface(113, 0, &offset),
        enhanced(0, 8_000_001, &[4; 6]),
    ]
    .concat();
    let read = read_all(open(file).expect("a capture"));
    assert!(read.error.is_none(), "{:?}", read.error);
    let have: Vec<_> = read
        .packets
        .iter()
        .map(|(packet, bytes)| (packet.time.0, packet.interface, packet.link.number(), packet.wire_len, bytes.clone()))
        .collect();
    let want = [
        (7_500_000_000, 1, 101, 5, vec![1; 5]),
        (7_500_000_000, 0, 1, 99, vec![2; 40]),
        (8_000_000_000, 1, 101, 44, vec![3; 4]),
        (108_000_001_000, 2, 113, 6, vec![4; 6]),
    ];
    assert_eq!(have, want);
    assert_eq!(read.format.sections, 2);
    assert_eq!(read.format.interfaces[2].name.as_deref(), Some("eth00."));
    assert_eq!(read.format.interfaces[2].time_offset_secs, 100);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory is there")
}

#[test]
fn compressed_streams_of_several_parts() {
    let file = pcap(&[(1, 0, 60, &[1; 60]), (2, 0, 60, &[2; 60])]);
    let (head, tail) = file.split_at(50);
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("memory is there");
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let parts = [
        ([gzip(head), gzip(tail)].concat(), Compression::Gzip),
        ([zstd(head), zstd(tail)].concat(), Compression::Zstd),
        ([skippable, zstd(&file)].concat(), Compression::Zstd),
    ];
    for (compressed, how) in parts {
        let read = read_all(open(compressed).expect("a capture"));
        assert!(read.error.is_none(), "{:?}", read.error);
        assert_eq!((read.packets.len(), read.format.compression), (2, Some(how)));
    }
    // Zeros behind the last member are padding, as gzip itself takes them, but not what lies behind them.
    let padded = [gzip(head), gzip(tail), vec![0; 700]].concat();
    for piece in [1, 7, 300_000] {
        let of = |bytes: &[u8]| {
            let input = Pieces { input: Cursor::new(bytes.to_vec()), piece };
            read_all(Reader::from_read(input, "padded").expect("a capture"))
        };
        let read = of(&padded);
        assert!(read.error.is_none() && read.packets.len() == 2, "{:?}", read.error);
        for behind in [gzip(tail), vec![7]] {
            let read = of(&[padded.clone(), behind].concat());
            assert!(read.packets.len() == 2, "{}", read.packets.len());
            assert!(read.error.is_some_and(|error| error.to_string().contains("after the zeros")));
        }
    }
}

#[test]
fn windows_of_long_range_mode_open() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("memory is there");
    encoder.window_log(30).and_then(|()| encoder.long_distance_matching(true)).expect("it has a long mode");
    encoder.write_all(&pcap(&[(1, 0, 60, &[1; 60])])).expect("memory is there");
    let read = read_all(open(encoder.finish().expect("memory is there")).expect("a capture"));
    assert!(read.error.is_none() && read.packets.len() == 1);
}

#[test]
fn damaged_compressed_streams() {
    // Bytes that do not compress, so that damage lies behind packets that come out.
    let noise: Vec<u8> = (0..400_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let records: Vec<_> = noise.chunks(1000).map(|bytes| (1, 0, 1000, bytes)).collect();
    let file = pcap(&records);
    for compressed in [gzip(&file), zstd::encode_all(&file[..], 3).expect("memory is there")] {
        let (packets, error) = until_error(&compressed[..compressed.len() * 3 / 4]);
        assert!(packets > 100 && error.is_truncated(), "{packets} {error}");
        assert!(matches!(error.fault, Fault::Compressed(..)), "{error}");
        assert_eq!(error.packets, packets as u64);
        let mut damaged = compressed.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 3000].fill(0xff);
        let read = read_all(open(damaged).expect("a good beginning"));
        assert!(read.error.is_some_and(|error| matches!(error.fault, Fault::Compressed(..)) && !error.is_truncated()));
    }
    let error = open(vec![0x1f, 0x8b, 8, 0]).expect_err("no more than a magic");
    assert!(matches!(error.fault, Fault::Compressed(Compression::Gzip, _)));
}

/// What a decoder gives that is asked for a byte and given a byte at a time, and so can keep nothing back.
fn byte_by_byte(mut decoder: impl Read) -> Vec<u8> {
    let (mut decoded, mut byte) = (Vec::new(), [0]);
    while matches!(decoder.read(&mut byte), Ok(1)) {
        decoded.push(byte[0]);
    }
    decoded
}

#[test]
fn packets_ahead_of_damage_are_delivered_whatever_the_reads() {
    // Text-like bytes, bytes that do not compress, and equal ones: Huffman codes, stored blocks and runs.
    let mut random = 1u32;
    let mut byte = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((random >> 16) % below) as u8
    };
    let packets: Vec<Vec<u8>> =
        (0..60).map(|number| (0..200).map(|_| byte([1, 7, 256][number / 8 % 3])).collect()).collect();
    let records: Vec<_> = packets.iter().map(|bytes| (1, 0, 200, &bytes[..])).collect();
    let file = pcap(&records);
    let zstd = |parts: &[&[u8]]| {
        // Each part a block, of a frame that tells its length and has a checksum.
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("memory is there");
        encoder.include_checksum(true).expect("it has checksums");
        encoder.set_pledged_src_size(Some(parts.concat().len() as u64)).expect("it tells lengths");
        parts.iter().for_each(|part| encoder.write_all(part).and_then(|()| encoder.flush()).expect("memory is there"));
        encoder.finish().expect("memory is there")
    };
    let (head, tail) = file.split_at(file.len() / 2);
    let files = [
        gzip(&file),
        [gzip(head), gzip(tail)].concat(),
        zstd(&[&file]),
        zstd(&file.chunks(1500).collect::<Vec<_>>()),
        [zstd(&[head]), zstd(&tail.chunks(500).collect::<Vec<_>>())].concat(),
    ];
    let mut ahead = 0;
    for (kind, whole) in files.iter().enumerate() {
        let step = if kind < 2 { 331 } else { 151 };
        let places = (0..whole.len()).step_by(step).chain(4..20).chain(whole.len() - 8..whole.len());
        let flipped = |at: usize| [&whole[..at], &[whole[at] ^ 0x55], &whole[at + 1..]].concat();
        for (at, damaged) in places.flat_map(|at| [(at, flipped(at)), (at, whole[..at].to_vec())]) {
            let one = io::BufReader::with_capacity(1, &damaged[..]);
            let decoded = match kind {
                0 | 1 => byte_by_byte(flate2::bufread::MultiGzDecoder::new(one)),
                _ => byte_by_byte(zstd::stream::read::Decoder::with_buffer(one).expect("memory is there")),
            };
            let reported = |read: &shared::Read| {
                let error = read.error.as_ref().map(|error| (error.offset, error.packets, error.to_string()));
                (read.packets.iter().map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>(), error)
            };
            let (expected, mut first) = (open(&decoded[..]).map(|reader| reported(&read_all(reader)).0), None);
            for (block, piece) in [(millrace_port::pcap::BLOCK_BYTES, usize::MAX), (64, 61), (4096, 1000), (64, 1)] {
                let input = Pieces { input: Cursor::new(damaged.clone()), piece };
                let (Ok(reader), Ok(expected)) = (Reader::from_read(input, "some.pcap"), &expected) else {
                    assert!(expected.is_err(), "{kind}: byte {at}: {} bytes were decoded", decoded.len());
                    continue;
                };
                let read = read_all(reader.with_block(block));
                let now = reported(&read);
                assert!(now.0 == *expected, "{kind}: byte {at}, blocks of {block}: {} packets", now.0.len());
                assert_eq!(first.get_or_insert_with(|| now.clone()).1, now.1, "{kind}: byte {at}, blocks of {block}");
                ahead += read.packets.len();
            }
        }
    }
    assert!(ahead > 1000, "{ahead}");
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

/// A reader that gives a byte or a few at a time, with interruptions, then fails.
struct Troubled {
    bytes: Cursor<Vec<u8>>,
    calls: usize,
    end: Option<io::ErrorKind>,
}

impl Read for Troubled {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let room = into.len().min(self.calls % 17 + 1);
        match (self.bytes.read(&mut into[..room])?, self.end) {
            (0, Some(kind)) => Err(io::Error::from(kind)),
            (count, _) => Ok(count),
        }
    }
}

#[test]
fn pipes_that_trickle_and_break() {
    let records: Vec<(u32, u32, u32, &[u8])> = (0..200).map(|number| (number, 0, 90, &[5; 90][..])).collect();
    let file = pcap(&records);
    for end in [None, Some(io::ErrorKind::ConnectionReset)] {
        let input = Troubled { bytes: Cursor::new(file.clone()), calls: 0, end };
        let mut reader = Reader::from_read(input, "pipe").expect("a capture");
        let (mut batch, mut packets, mut idle) = (Batch::default(), 0, 0);
        let error = loop {
            match reader.read(&mut batch) {
                Ok(Received::Packets) => packets += batch.len(),
                Ok(Received::Idle) => idle += 1,
                Ok(Received::End) => break None,
                Err(error) => break Some(error),
            }
        };
        assert_eq!(packets, 200);
        assert!(idle > 0, "an interruption lets the caller look whether to stop");
        assert_eq!(error.map(|error| matches!(error.fault, Fault::Read(_))), end.map(|_| true));
    }
}

#[test]
fn progress_is_told() {
    let path = folder("progress").join("a.pcap");
    let file = pcap(&[(5, 0, 60, &[1; 60]), (4, 0, 60, &[1; 60])]);
    fs::write(&path, &file).expect("room");
    let reader = Reader::open(&path).expect("a capture");
    let progress = reader.progress();
    assert_eq!(progress.total(), Some(file.len() as u64));
    assert!(progress.consumed() < file.len() as u64);
    assert_eq!(read_all(reader).steps_back, 1);
    assert_eq!((progress.consumed(), progress.clock_steps_back()), (file.len() as u64, 1));
}

#[test]
fn a_file_that_shrinks_is_a_truncated_one() {
    let path = folder("shrinks").join("a.pcap");
    let records: Vec<(u32, u32, u32, &[u8])> = (0..10_000).map(|number| (number, 0, 90, &[5; 90][..])).collect();
    fs::write(&path, pcap(&records)).expect("room");
    let mut reader = Reader::open(&path).expect("a capture");
    let mut batch = Batch::default();
    assert!(matches!(reader.read(&mut batch), Ok(Received::Packets)));
    fs::File::options().write(true).open(&path).and_then(|file| file.set_len(300_000)).expect("a file of ours");
    let read = read_all(reader);
    assert!(read.error.is_some_and(|error| error.is_truncated()));
}
