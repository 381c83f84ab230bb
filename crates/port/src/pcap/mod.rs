//! Capture files: pcap and pcapng, read and written as they stream by.
//!
//! [`Reader`] and [`Writer`] know the files, [`Capture`] is the queue and [`Pcap`] the port made of them.

mod ahead;
mod classic;
mod clock;
mod decompress;
mod error;
mod format;
mod reader;
mod sections;
mod source;
mod target;
mod walk;
mod writer;

pub use error::{Error, Fault};
pub use format::{ByteOrder, Compression, Container, Format, Interface, Resolution};
pub use reader::{BLOCK_BYTES, Reader};
pub use source::Progress;
pub use target::{Target, same_file};
pub use writer::Writer;

use crate::batch::{Batch, Fate, Packet};
use crate::error::PortError;
use crate::queue::{Port, Queue, Received};

/// A capture that is read and, where there is a writer, one that takes what goes out.
#[derive(Debug)]
pub struct Capture {
    reader: Reader,
    writer: Option<Writer>,
    /// Whether packets go out by interfaces that the caller numbers.
    renumbered: bool,
    /// Whether a packet's interface is the port that it goes out by.
    by_ports: bool,
}

impl Capture {
    /// Reads from `reader` and writes to `writer`; without one, what goes out is gone.
    #[must_use]
    pub fn new(mut reader: Reader, writer: Option<Writer>) -> Self {
        if writer.is_some() {
            reader.keep_original_times();
        }
        Self { reader, writer, renumbered: false, by_ports: false }
    }

    /// From now on a packet that goes out by a port which is the number of an interface has that interface in the output. Others keep the
    /// one that they came in by.
    pub const fn write_ports(&mut self) {
        self.by_ports = true;
    }

    /// From now on packets that go out name interfaces by the caller's numbers, of which this is one.
    pub fn describe_as(&mut self, number: u16, interface: Interface) {
        let is_first = !std::mem::replace(&mut self.renumbered, true);
        if let Some(writer) = &mut self.writer {
            if is_first {
                writer.expect_link(interface.link);
            }
            writer.describe_as(number, interface);
        }
    }

    /// The capture that is read.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }
}

impl Queue for Capture {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        Ok(self.reader.read(batch)?)
    }

    /// Writes the packets as they are now, with the time stamps that they had in the file.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if !self.renumbered {
            writer.describe(self.reader.interfaces());
        }
        for (index, packet) in batch.packets().iter().enumerate() {
            // Asked for each packet, sent or not, so that what lies behind is forgotten.
            let time = self.reader.original_time(packet.seq, packet.time);
            match packet.fate {
                Fate::Transmit(port) => {
                    let interface = if self.by_ports && writer.knows(port) { port } else { packet.interface };
                    writer.write(&Packet { time, interface, ..*packet }, batch.bytes(index))?;
                }
                Fate::Pending | Fate::Drop => {}
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PortError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if !self.renumbered {
            // Those that were described behind the last packet, too.
            writer.describe(self.reader.interfaces());
        }
        writer.finish()?;
        Ok(())
    }
}

/// The port of a capture. It has one queue: a file has one order.
#[derive(Debug)]
pub struct Pcap {
    capture: Option<Capture>,
}

impl Pcap {
    /// Reads from `reader` and writes to `writer`; without one, what goes out is gone.
    #[must_use]
    pub fn new(reader: Reader, writer: Option<Writer>) -> Self {
        Self { capture: Some(Capture::new(reader, writer)) }
    }
}

impl Port for Pcap {
    /// Opens the one queue, once.
    fn open(&mut self, cores: usize) -> Result<Vec<Box<dyn Queue>>, PortError> {
        match self.capture.take() {
            Some(capture) if cores == 1 => Ok(vec![Box::new(capture)]),
            capture => {
                let have = usize::from(capture.is_some());
                self.capture = capture;
                Err(PortError::Queues { have, want: cores })
            }
        }
    }
}
