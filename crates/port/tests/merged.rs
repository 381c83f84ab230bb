//! Captures read as one, and parts of them, against lists that are sorted and filtered.

mod shared;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;

use millrace_port::pcap::{Capture, Choice, Reader, Writer};
use millrace_port::{Batch, Fate, Packet, Received};
use shared::read_all;

/// A packet as it is told of: time, interface's name, bytes, and the comment, if it has one.
type Told = (u64, String, Vec<u8>, Option<String>);

/// Writes a pcapng of raw IP packets by the interfaces of these names, which count nanoseconds; some packets have a comment.
fn write(path: &Path, packets: &[Told]) {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let padded = |bytes: &[u8]| [bytes, &vec![0; bytes.len().next_multiple_of(4) - bytes.len()]].concat();
    let option = |code: u32, value: &[u8]| [words(&[code | (value.len() as u32) << 16]), padded(value)].concat();
    let block = |kind: u32, body: Vec<u8>| {
        let len = 12 + body.len() as u32;
        [words(&[kind, len]), body, words(&[len])].concat()
    };
    let mut file = block(0x0a0d_0d0a, words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    let mut names: Vec<&str> = Vec::new();
    for (time, name, bytes, comment) in packets {
        let interface = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name);
            let options = [option(2, name.as_bytes()), option(9, &[9]), words(&[0])].concat();
            file.extend(block(1, [words(&[101, 99]), options].concat()));
            names.len() - 1
        });
        let len = bytes.len() as u32;
        let head = words(&[interface as u32, (time >> 32) as u32, *time as u32, len, len]);
        let options = comment.iter().flat_map(|text| [option(1, text.as_bytes()), words(&[0])].concat()).collect();
        file.extend(block(6, [head, padded(bytes), options].concat()));
    }
    fs::write(path, file).expect("room");
}

fn send(capture: &mut Capture, fate: Fate) {
    let mut stream = capture.stream();
    let mut batch = Batch::default();
    let mut next = 0;
    while stream.input.receive(&mut batch).expect("a whole capture") != Received::End {
        for packet in batch.packets_mut() {
            assert_eq!(packet.seq.0, next, "numbered without gaps");
            (packet.fate, next) = (fate, next + 1);
        }
        stream.output.transmit(&mut batch).expect("room");
    }
    stream.output.finish().expect("room");
}

/// The packets of a capture with their comments.
fn reported(path: &Path) -> Vec<Told> {
    let reader = Reader::open(path).expect("a capture");
    let read = read_all(reader);
    let names: Vec<String> = {
        let mut reader = Reader::open(path).expect("a capture");
        let mut batch = Batch::default();
        while reader.read(&mut batch).expect("whole") != Received::End {}
        reader.interfaces().iter().map(|interface| interface.name.clone().unwrap_or_default()).collect()
    };
    let comments = comments(&fs::read(path).expect("a file"));
    assert_eq!(comments.len(), read.packets.len());
    let packets = read.packets.into_iter().zip(comments);
    packets
        .map(|((packet, bytes), comment)| {
            (
                packet.time.0,
                names[usize::from(packet.interface)].clone(),
                bytes,
                comment.filter(|text| !text.is_empty()),
            )
        })
        .collect()
}

/// The comment of each packet of a little-endian pcapng.
fn comments(file: &[u8]) -> Vec<Option<String>> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes(file[at..at + 2].try_into().expect("two bytes")));
    let (mut at, mut comments) = (0, Vec::new());
    while at < file.len() {
        let (kind, len) = (word(at), word(at + 4));
        if kind == 6 {
            let mut option = at + 28 + word(at + 20).next_multiple_of(4);
            let mut comment = None;
            while option < at + len - 4 && half(option) != 0 {
                if half(option) == 1 {
                    let text = &file[option + 4..option + 4 + half(option + 2)];
                    comment = Some(String::from_utf8(text.to_vec()).expect("text"));
                }
                option += 4 + half(option + 2).next_multiple_of(4);
            }
            comments.push(comment);
        }
        at += len;
    }
    comments
}

fn captures() -> impl Strategy<Value = Vec<Vec<Told>>> {
    let name = prop_oneof![Just("inside"), Just("outside"), Just("tap")];
    let packet = (0..40u64, name, vec(any::<u8>(), 1..70), proptest::option::of("[a-z]{1,9}"));
    vec(vec(packet, 0..60), 1..5).prop_map(|captures| {
        let sorted = |mut packets: Vec<(u64, &'static str, Vec<u8>, Option<String>)>| {
            packets.sort_by_key(|packet| packet.0);
            // Steps below a second, which nobody doubts.
            let reported =
                |(time, name, bytes, comment): (u64, &str, _, _)| (time * 1_000_000, name.to_owned(), bytes, comment);
            packets.into_iter().map(reported).collect()
        };
        captures.into_iter().map(sorted).collect()
    })
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("merged");
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Captures merged by time, of which every so many packets are taken up to a number or a time, are what a sorted and filtered list
    /// is, whatever the size of blocks.
    #[test]
    fn several_are_one_and_parts_are_lists(
        captures in captures(),
        every in 1..4u64,
        most in prop_oneof![Just(u64::MAX), 0..60u64],
        until in prop_oneof![Just(u64::MAX), 0..40_000_000u64],
        block in prop_oneof![Just(64usize), Just(300), Just(128 << 10)],
    ) {
        let folder = folder();
        let paths: Vec<PathBuf> = (0..captures.len()).map(|at| folder.join(format!("{at}.pcapng"))).collect();
        captures.iter().zip(&paths).for_each(|(packets, path)| write(path, packets));
        let mut merged: Vec<Told> = captures.concat();
        merged.sort_by_key(|packet| packet.0);
        let mut number = 0;
        let takes = move |first: u8| {
            number += 1;
            number % every == 0 || first > 200
        };
        let mut by_list = takes;
        let part = merged.iter().take_while(|packet| packet.0 < until).filter(|packet| by_list(packet.2[0]));
        let expected: Vec<Told> = part.take(most as usize).cloned().collect();

        let mut by_reader = takes;
        let choose = move |packet: &Packet, bytes: &[u8]| match packet.time.0 {
            time if time >= until => Choice::End,
            _ if by_reader(bytes[0]) => Choice::Take,
            _ => Choice::Leave,
        };
        let reader = Reader::open_all(&paths).expect("captures").with_block(block).choosing(choose).limited(most);
        let output = folder.join("out.pcapng");
        let writer = Writer::create(&output, None, Some(&reader.format())).expect("an output");
        send(&mut Capture::new(reader, Some(writer)), Fate::Transmit(0));
        prop_assert_eq!(reported(&output), expected);

        // The same without a choice, which leaves what is read as it is.
        let reader = Reader::open_all(&paths).expect("captures").with_block(block).limited(most);
        let all: Vec<Told> = merged.into_iter().take(most as usize).collect();
        let writer = Writer::create(&output, None, Some(&reader.format())).expect("an output");
        send(&mut Capture::new(reader, Some(writer)), Fate::Transmit(0));
        prop_assert_eq!(reported(&output), all);
    }
}

#[test]
fn an_error_comes_behind_what_is_whole() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("merged-cut");
    fs::create_dir_all(&folder).expect("a folder");
    let packets =
        |from: u64| (from..from + 5).map(|at| (at * 2_000, "eth0".to_owned(), vec![at as u8; 40], None)).collect();
    let (one, other) = (folder.join("one.pcapng"), folder.join("other.pcapng"));
    let list: Vec<Told> = packets(0);
    write(&one, &list);
    write(&other, &packets(1));
    let whole = fs::read(&other).expect("a file");
    fs::write(&other, &whole[..whole.len() - 30]).expect("room");
    let mut reader = Reader::open_all(&[&one, &other]).expect("captures");
    let (mut batch, mut read) = (Batch::default(), 0);
    let error = loop {
        match reader.read(&mut batch) {
            Ok(Received::End) => panic!("a file is cut"),
            Ok(_) => read += batch.len(),
            Err(error) => break error,
        }
    };
    // Of the one file all, for its times come first; of the other what was whole.
    assert!(read >= 8 && error.path == other && error.packets == 4, "{read}: {error}");
    assert!(matches!(reader.read(&mut batch), Ok(Received::End)), "behind an error comes the end");
    assert_eq!(reader.interfaces().len(), 1, "they are described alike");
    let missing = Reader::open_all(&[&one, &folder.join("none.pcap")]).err().map(|error| error.path);
    assert_eq!(missing, Some(folder.join("none.pcap")));
}
