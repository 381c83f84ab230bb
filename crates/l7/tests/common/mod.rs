//! Fragments for tests.

#![allow(dead_code, reason = "each test uses some")]

use packet::{Checksum, LinkType, Nanos, Seq};
use port::{Fate, Packet};

/// A fragment to build.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) is_v6: bool,
    pub(crate) id: u16,
    /// In units of eight bytes.
    pub(crate) offset: u16,
    pub(crate) more: bool,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const PROTOCOL: u8 = 253;

impl Part {
    /// The frame, with an Ethernet header.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if self.is_v6 {
            frame.extend([0x86, 0xdd]);
            v6(&mut frame, self);
        } else {
            frame.extend([8, 0]);
            v4(&mut frame, self, [10, 0, 0, 1]);
        }
        frame
    }
}

/// An IPv4 fragment.
pub(crate) fn v4(frame: &mut Vec<u8>, part: &Part, src: [u8; 4]) {
    let at = frame.len();
    let len = 20 + part.payload.len() as u16;
    let field = part.offset | u16::from(part.more) << 13;
    frame.extend([0x45, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend(part.id.to_be_bytes());
    frame.extend(field.to_be_bytes());
    frame.extend([64, PROTOCOL, 0, 0]);
    frame.extend(src);
    frame.extend([10, 0, 0, 2]);
    let mut sum = Checksum::default();
    sum.add(&frame[at..]);
    let sum = sum.value();
    frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(&part.payload);
}

/// An IPv6 fragment, behind destination options.
fn v6(frame: &mut Vec<u8>, part: &Part) {
    let len = 8 + 8 + part.payload.len() as u16;
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([60, 64]);
    frame.extend([0xfd; 15]);
    frame.push(1);
    frame.extend([0xfd; 15]);
    frame.push(2);
    frame.extend([44, 0, 1, 4, 0, 0, 0, 0]);
    frame.extend([PROTOCOL, 0]);
    frame.extend((part.offset << 3 | u16::from(part.more)).to_be_bytes());
    frame.extend([0xab, 0xcd]);
    frame.extend(part.id.to_be_bytes());
    frame.extend(&part.payload);
}

/// A descriptor for a frame.
pub(crate) fn packet(number: u64, time: Nanos, frame: &[u8]) -> Packet {
    Packet {
        seq: Seq(number),
        time,
        offset: 0,
        len: frame.len() as u32,
        wire_len: frame.len() as u32,
        interface: 0,
        link: LinkType::Ethernet,
        bucket: 0,
        fate: Fate::Pending,
    }
}
