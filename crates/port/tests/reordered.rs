//! Captures whose packets are reordered: what belongs to a packet stays with it.

use std::collections::HashMap;
use std::path::Path;

use millrace_port::pcap::{Capture, Container, Reader, Writer};
use millrace_port::{
    Batch, Fate, Opened, Packet, Port, Receive, Received, ReorderLimits, Reordered, Stream, Trace, Transmit,
};
use packet::{LinkType, Nanos, Seq};

const DELAY: u64 = 1_000;
const FLOWS: u64 = 5;

/// A UDP datagram of one of a few flows, whose identification is its number.
fn frame(number: u64) -> Vec<u8> {
    let source = [0x10, (number % FLOWS) as u8];
    let number = (number as u16).to_be_bytes();
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 29, number[0], number[1], 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([source[0], source[1], 0, 9, 0, 9, 0, 0, 1]);
    frame
}

/// The number in a frame.
fn number(frame: &[u8]) -> u64 {
    u64::from(u16::from_be_bytes([frame[18], frame[19]]))
}

/// Writes packets every 100 ns with their number as comment. The clock steps back by an hour in the middle. Returns the stamps.
fn write(path: &Path, packets: u64) -> Vec<u64> {
    let mut writer = Writer::create(path, Some(Container::PcapNg), None).expect("a file");
    let hour = 3_600 * 1_000_000_000;
    let stamp = |number: u64| 10 * hour + number * 100 - if number >= packets / 2 { hour } else { 0 };
    let mut stamps = Vec::new();
    for at in 0..packets {
        let bytes = frame(at);
        let packet = Packet {
            seq: Seq(at),
            time: Nanos(stamp(at)),
            offset: 0,
            len: bytes.len() as u32,
            wire_len: bytes.len() as u32,
            interface: 0,
            link: LinkType::Ethernet,
            bucket: 0,
            fate: Fate::Pending,
        };
        writer.write_with_comment(&packet, &bytes, &at.to_string()).expect("a file");
        stamps.push(stamp(at));
    }
    writer.finish().expect("a file");
    stamps
}

/// A packet of a little-endian pcapng: its stamp, its bytes and its comment.
fn packets(file: &[u8]) -> Vec<(u64, Vec<u8>, Option<String>)> {
    let u16_at = |at: usize| usize::from(u16::from_le_bytes(file[at..at + 2].try_into().expect("two bytes")));
    let u32_at = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut packets) = (0, Vec::new());
    while at < file.len() {
        let len = u32_at(at + 4) as usize;
        if u32_at(at) == 6 {
            let stamp = u64::from(u32_at(at + 12)) << 32 | u64::from(u32_at(at + 16));
            let captured = u32_at(at + 20) as usize;
            let bytes = file[at + 28..at + 28 + captured].to_vec();
            let mut option = at + 28 + captured.next_multiple_of(4);
            let mut comment = None;
            while option + 4 < at + len - 4 && u16_at(option) != 0 {
                if u16_at(option) == 1 {
                    let text = &file[option + 4..option + 4 + u16_at(option + 2)];
                    comment = Some(String::from_utf8(text.to_vec()).expect("text"));
                }
                option += 4 + u16_at(option + 2).next_multiple_of(4);
            }
            packets.push((stamp, bytes, comment));
        }
        at += len;
    }
    packets
}

/// Forwards all packets of a capture but every seventh to another one.
fn forward(input: &Path, output: &Path, delay: Nanos) {
    let reader = Reader::open(input).expect("a capture").with_block(4 << 10);
    let format = reader.format();
    let writer = Writer::create(output, Some(Container::PcapNg), Some(&format)).expect("a file");
    let mut port = Reordered::new(Capture::new(reader, Some(writer)), delay, ReorderLimits::default());
    let Opened::Stream(Stream { mut input, mut output, .. }) = port.open(1).expect("a file") else {
        panic!("a file is a stream")
    };
    send(&mut *input, &mut *output);
}

/// The same without reordering.
fn forward_plainly(input: &Path, output: &Path) {
    let reader = Reader::open(input).expect("a capture").with_block(4 << 10);
    let format = reader.format();
    let writer = Writer::create(output, Some(Container::PcapNg), Some(&format)).expect("a file");
    let mut capture = Capture::new(reader, Some(writer));
    let Stream { mut input, mut output, .. } = capture.stream();
    send(&mut *input, &mut *output);
}

fn send(input: &mut dyn Receive, output: &mut dyn Transmit) {
    let mut batch = Batch::default();
    while input.receive(&mut batch).expect("a whole capture") == Received::Packets {
        for index in 0..batch.len() {
            let is_dropped = number(batch.bytes(index)).is_multiple_of(7);
            batch.packets_mut()[index].fate = if is_dropped { Fate::Drop(0) } else { Fate::Transmit(0) };
        }
        output.transmit(&mut batch).expect("a file");
    }
    output.finish().expect("a file");
}

#[test]
fn comments_and_stamps_stay_with_their_packets() {
    let folder = std::env::temp_dir().join(format!("millrace-reordered-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let [input, plain, zero, held] = ["in", "plain", "zero", "held"].map(|name| folder.join(format!("{name}.pcapng")));
    let stamps = write(&input, 600);
    forward(&input, &held, Nanos(DELAY));
    forward(&input, &zero, Nanos(0));
    let out = packets(&std::fs::read(&held).expect("a file"));
    assert_eq!(out.len(), (0..600).filter(|number| number % 7 != 0).count());
    let (mut last, mut is_moved) = (HashMap::new(), false);
    for (place, (stamp, bytes, comment)) in out.iter().enumerate() {
        let number = number(bytes);
        assert_eq!(*bytes, frame(number));
        assert_eq!(*comment, Some(number.to_string()));
        let came = stamps[number as usize];
        // The writer's clock may count microseconds.
        let unit = if *stamp < came / 100 { 1_000 } else { 1 };
        assert!((came / unit..=(came + DELAY) / unit).contains(stamp), "{number} came at {came}, and has {stamp}");
        assert!(last.insert(number % FLOWS, number).is_none_or(|before| before < number));
        is_moved |= out[..place].iter().any(|(_, other, _)| self::number(other) > number);
    }
    assert!(is_moved, "this changes the order");
    // Without a delay the output is the same byte for byte.
    forward_plainly(&input, &plain);
    assert!(std::fs::read(&plain).expect("a file") == std::fs::read(&zero).expect("a file"));
    assert_eq!(
        Trace::load(&mut Reader::open(&zero).expect("a capture"), usize::MAX).expect("a capture").len(),
        out.len()
    );
    std::fs::remove_dir_all(&folder).expect("the folder is there");
}
