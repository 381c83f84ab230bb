//! The file that the bench of the sequencer in hardware reads: each packet as it goes in and as it must come out. The
//! layout stands in `rtl/bench/main.cpp`; numbers are little-endian.

use std::io::{self, Write};

use port::{Packet, Trace};

/// What a sequencer is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The function's number in `rtl/records.v`.
    pub function: u16,
    /// Rows of the ring.
    pub rows: u16,
    /// Bytes of a record, its time not among them.
    pub record_len: u16,
    /// Whether an outer Ethernet header stands in front.
    pub outer: bool,
}

/// What the hardware makes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// A record.
    Record(Vec<u8>),
    /// Nothing: the packet takes no step.
    Nothing,
    /// Nothing, for it can't be read here: software makes the record.
    Software,
}

/// What must come out for a packet.
#[derive(Clone, Debug)]
pub struct Truth {
    /// What the hardware makes of it.
    pub made: Made,
    /// What the software sequencer sends, where there is one for this record.
    pub frame: Option<Vec<u8>>,
}

/// How many packets there were of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets with a record.
    pub records: usize,
    /// Packets that take no step.
    pub nothing: usize,
    /// Packets left to software.
    pub software: usize,
}

/// In a row: the packet takes a step.
pub const STEP: u64 = 1 << 63;
/// In a row: the hardware couldn't read the packet.
pub const UNREAD: u64 = 1 << 62;

/// Writes the vectors of a trace, and says what they hold.
///
/// # Errors
/// What can't be written.
///
/// # Panics
/// When a record is not as long as the unit says, and when the software sequencer sends something else than the layout has
/// as it stands here, rows of packets apart that the hardware can't read.
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

/// The layout once more, as plainly as it can be put: figure 4a of state-compute replication, version 1.
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

    /// The software sequencer's packet as the hardware sends it: its rows of packets that the hardware can't read are
    /// marked, and so is the packet itself.
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

    /// Bit 0: the packet can't be read. Bit 1: one of those whose rows it carries couldn't.
    fn flags(&self, made: &Made) -> u8 {
        u8::from(*made == Made::Software) | u8::from(self.rows.iter().any(|row| is_unread(row))) << 1
    }

    /// The packet with the ring as it stands in front; its own record goes into the ring.
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
