//! The file of test vectors for the hardware sequencer's bench: each packet with its expected output. The layout is described in
//! `rtl/bench/main.cpp`; numbers are little-endian.

use std::io::{self, Write};

use port::{Packet, Trace};

/// The parameters of a hardware sequencer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The function's number in `rtl/records.v`.
    pub function: u16,
    /// Rows of the ring.
    pub rows: u16,
    /// Bytes of a record, without its time.
    pub record_len: u16,
    /// Packets have an outer Ethernet header.
    pub outer: bool,
}

/// The hardware's result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// A record.
    Record(Vec<u8>),
    /// Nothing: the packet takes no step.
    Nothing,
    /// Nothing, because the hardware can't parse the packet: software makes the record.
    Software,
}

/// The expected output for a packet.
#[derive(Clone, Debug)]
pub struct Truth {
    /// The hardware's result.
    pub made: Made,
    /// The software sequencer's packet, if it supports this record.
    pub frame: Option<Vec<u8>>,
}

/// Number of packets of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets with a record.
    pub records: usize,
    /// Packets that take no step.
    pub nothing: usize,
    /// Packets left to software.
    pub software: usize,
}

/// Bit of a row: the packet takes a step.
pub const STEP: u64 = 1 << 63;
/// Bit of a row: the hardware can't parse the packet.
pub const UNREAD: u64 = 1 << 62;

/// Writes the vectors of a trace. Returns the number of packets of each kind.
///
/// # Errors
/// If a vector can't be written.
///
/// # Panics
/// If a record doesn't have the unit's length, or if the software sequencer disagrees with the layout here, except for rows of packets that
/// the hardware can't parse.
pub fn write(
    out: &mut impl Write,
    unit: Unit,
    trace: &Trace,
    mut truth: impl FnMut(&Packet, &[u8]) -> Truth,
) -> io::Result<Counts> {
    let mut ring = Ring::new(unit);
    let mut counts = Counts::default();
    out.write_all(b"MRSV")?;
    for number in [unit.function, unit.rows, ring.row_len() as u16, u16::from(unit.outer)] {
        out.write_all(&number.to_le_bytes())?;
    }
    out.write_all(&(trace.len() as u32).to_le_bytes())?;
    for (packet, bytes) in trace.iter() {
        let Truth { made, frame } = truth(packet, bytes);
        let frame = frame.map(|frame| ring.marked(frame, &made));
        let expected = ring.carry(packet, bytes, &made);
        if let Some(frame) = frame {
            assert!(frame == expected, "packet {}: the software sequencer sends {frame:02x?}", packet.seq.0);
        }
        out.write_all(&packet.time.0.to_le_bytes())?;
        out.write_all(&packet.interface.to_le_bytes())?;
        out.write_all(&packet.link.number().to_le_bytes())?;
        for number in [packet.wire_len, bytes.len() as u32, expected.len() as u32] {
            out.write_all(&number.to_le_bytes())?;
        }
        out.write_all(&[u8::from(made == Made::Software), u8::from(matches!(made, Made::Record(_)))])?;
        out.write_all(bytes)?;
        out.write_all(&expected)?;
        match made {
            Made::Record(_) => counts.records += 1,
            Made::Nothing => counts.nothing += 1,
            Made::Software => counts.software += 1,
        }
    }
    Ok(counts)
}

/// A second, naive implementation of the layout: figure 4a of state-compute replication, version 1.
struct Ring {
    unit: Unit,
    rows: Vec<Vec<u8>>,
    seq: u64,
}

impl Ring {
    fn new(unit: Unit) -> Self {
        let row = vec![0; 8 + usize::from(unit.record_len)];
        Self { unit, rows: vec![row; usize::from(unit.rows)], seq: 0 }
    }

    fn row_len(&self) -> usize {
        self.rows[0].len()
    }

    /// Converts the software sequencer's packet to the hardware's: marks rows of packets that the hardware can't parse, and the packet
    /// itself.
    fn marked(&self, mut frame: Vec<u8>, made: &Made) -> Vec<u8> {
        let ahead = if self.unit.outer { 14 } else { 0 };
        for (place, row) in frame[ahead..].chunks_exact_mut(self.row_len()).zip(&self.rows) {
            if is_unread(row) {
                place.copy_from_slice(row);
            }
        }
        let trailer = ahead + self.rows.len() * self.row_len();
        frame[trailer + 1] = self.flags(made);
        frame
    }

    /// Bit 0: the packet can't be parsed. Bit 1: one of the packets in its rows can't.
    fn flags(&self, made: &Made) -> u8 {
        u8::from(*made == Made::Software) | u8::from(self.rows.iter().any(|row| is_unread(row))) << 1
    }

    /// Returns the packet with the current ring in front, and adds its record to the ring.
    fn carry(&mut self, packet: &Packet, bytes: &[u8], made: &Made) -> Vec<u8> {
        let index = (self.seq % u64::from(self.unit.rows)) as usize;
        let mut out = Vec::new();
        if self.unit.outer {
            let core = (self.seq % (u64::from(self.unit.rows) + 1)) as u16;
            out.extend_from_slice(&[0x02, 0x4d, 0x52, 0x00]);
            out.extend_from_slice(&core.to_be_bytes());
            out.extend_from_slice(&[0x02, 0x4d, 0x52, 0xff, 0x00, 0x00, 0x88, 0xb5]);
        }
        self.rows.iter().for_each(|row| out.extend_from_slice(row));
        out.extend_from_slice(&[1, self.flags(made)]);
        for number in [self.unit.rows, self.row_len() as u16, index as u16] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.extend_from_slice(&packet.time.0.to_be_bytes());
        out.extend_from_slice(&packet.interface.to_be_bytes());
        out.extend_from_slice(&packet.link.number().to_be_bytes());
        out.extend_from_slice(&packet.wire_len.to_be_bytes());
        out.extend_from_slice(bytes);

        let none = vec![0; usize::from(self.unit.record_len)];
        let (mark, record) = match made {
            Made::Record(record) => (STEP, record),
            Made::Nothing => (0, &none),
            Made::Software => (UNREAD, &none),
        };
        assert_eq!(record.len(), usize::from(self.unit.record_len), "all records of a function are of one length");
        self.rows[index] = [&(packet.time.0 | mark).to_be_bytes()[..], record].concat();
        self.seq += 1;
        out
    }
}

fn is_unread(row: &[u8]) -> bool {
    row[0] & (UNREAD >> 56) as u8 != 0
}
