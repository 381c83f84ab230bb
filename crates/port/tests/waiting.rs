//! Captures that come through a pipe in parts: what is there is handed on, and nobody waits longer than asked.
#![allow(missing_docs, clippy::print_stderr)]

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use millrace_port::pcap::{Error, Reader};
use millrace_port::{Batch, Received};

const PACKETS: usize = 500;

/// A classic capture of empty records with as many bytes.
fn pcap() -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for number in 0..PACKETS as u32 {
        for word in [number, 0, 60, 60] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&[number as u8; 60]);
    }
    file
}

/// The file in two parts, each of which can be decoded without what follows.
fn parts(compression: &str) -> [Vec<u8>; 2] {
    let file = pcap();
    let (head, tail) = file.split_at(24 + PACKETS / 2 * 76 + 30);
    let gzip = |part: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(part).expect("memory is there");
        encoder.finish().expect("memory is there")
    };
    match compression {
        "gzip" => [gzip(head), gzip(tail)],
        "zstd" => [head, tail].map(|part| zstd::encode_all(part, 3).expect("memory is there")),
        _ => [head.to_vec(), tail.to_vec()],
    }
}

/// Reads until nothing comes any more for now, or ever: the packets, and whether it is the end.
fn read_on(reader: &mut Reader, batch: &mut Batch, until: usize) -> Result<(usize, bool), Error> {
    let mut packets = 0;
    while packets < until {
        match reader.read(batch)? {
            Received::Packets => packets += batch.len(),
            Received::Idle => {}
            Received::End => return Ok((packets, true)),
        }
    }
    Ok((packets, false))
}

#[test]
fn a_pipe_that_idles_is_told_from_one_that_has_packets() {
    for compression in ["none", "gzip", "zstd"] {
        let [head, tail] = parts(compression);
        let (input, mut output) = io::pipe().expect("a pipe");
        output.write_all(&head).expect("a pipe has room");
        let mut reader = Reader::open(format!("/dev/fd/{}", input.as_raw_fd())).expect("a capture");
        drop(input);
        let mut batch = Batch::default();
        let half = PACKETS / 2;
        assert_eq!(read_on(&mut reader, &mut batch, half).expect("a good file"), (half, false), "{compression}");

        // Part of a record is there, which gives no packet.
        while reader.is_ready() {
            assert_eq!(reader.read(&mut batch).expect("a good file"), Received::Idle, "{compression}");
        }
        reader.wait(Duration::from_millis(1)).expect("pipes can be waited for");
        assert!(!reader.is_ready(), "{compression}");
        assert_eq!(reader.read(&mut batch).expect("a good file"), Received::Idle, "{compression}");
        reader.wait(Duration::ZERO).expect("pipes can be waited for");

        output.write_all(&tail).expect("a pipe has room");
        while !reader.is_ready() {
            reader.wait(Duration::MAX).expect("pipes can be waited for");
        }
        assert_eq!(read_on(&mut reader, &mut batch, half).expect("a good file"), (half, false), "{compression}");
        drop(output);
        while !reader.is_ready() {
            reader.wait(Duration::MAX).expect("pipes can be waited for");
        }
        assert_eq!(read_on(&mut reader, &mut batch, 1).expect("a good file"), (0, true), "{compression}");
        assert!(reader.is_ready(), "an end stays one");
        reader.wait(Duration::MAX).expect("it doesn't wait");
    }
}

#[test]
fn files_and_readers_are_always_ready() {
    let file = tempfile();
    for mut reader in [
        Reader::open(&file.0).expect("a capture"),
        Reader::from_read(io::Cursor::new(pcap()), "memory").expect("a capture"),
        Reader::from_read(io::Cursor::new(parts("zstd").concat()), "memory.zst").expect("a capture"),
    ] {
        let mut batch = Batch::default();
        loop {
            assert!(reader.is_ready());
            reader.wait(Duration::MAX).expect("it doesn't wait");
            if reader.read(&mut batch).expect("a good file") == Received::End {
                break;
            }
        }
    }
}

/// A capture that is removed in the end.
struct Temporary(std::path::PathBuf);

fn tempfile() -> Temporary {
    let path = std::env::temp_dir().join(format!("millrace-waiting-{}.pcap", std::process::id()));
    std::fs::write(&path, pcap()).expect("there is room");
    Temporary(path)
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
