//! Capture files: pcap and pcapng, read and written as they stream by.
//!
//! [`Reader`] and [`Writer`] know the files, [`Capture`] is the port made of them.

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

pub(crate) use clock::Raised;
pub use error::{Error, Fault};
pub use format::{ByteOrder, Compression, Container, Format, Interface, Interfaces, Resolution};
pub use reader::{BLOCK_BYTES, Reader};
pub use source::Progress;
pub use target::{Target, same_file};
pub use writer::Writer;

use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use packet::Nanos;

use crate::batch::{Batch, Fate, Packet};
use crate::error::PortError;
use crate::queue::{Opened, Port, Receive, Received, Stream, Transmit, TransmitCounts};

/// The port of a capture that is read and, where there is a writer, of one that takes what goes out. It opens a stream: a file has
/// one order.
#[derive(Debug)]
pub struct Capture {
    reader: Reader,
    writer: Option<Writer>,
    /// Whether a packet's interface is the port that it goes out by.
    by_ports: bool,
    /// Whether packets name interfaces otherwise than the capture does.
    renamed: bool,
}

impl Capture {
    /// Reads from `reader` and writes to `writer`; without one, what goes out is counted and gone.
    #[must_use]
    pub const fn new(reader: Reader, writer: Option<Writer>) -> Self {
        Self { reader, writer, by_ports: false, renamed: false }
    }

    /// From now on a packet that goes out by a port which is the number of an interface has that interface in the output. Others keep the
    /// one that they came in by.
    pub const fn write_ports(&mut self) {
        self.by_ports = true;
    }

    /// From now on packets that go out name interfaces as [`Renamed`] says, not as the capture does.
    pub const fn rename(&mut self) {
        self.renamed = true;
    }

    /// Refuses packets of several link types where the output holds one, as [`Writer::refuse_mixed_links`] does.
    ///
    /// # Errors
    /// [`Fault::MixedLinks`].
    pub fn refuse_mixed_links(&self) -> Result<(), Error> {
        self.writer.as_ref().map_or(Ok(()), |writer| writer.refuse_mixed_links(self.reader.path()))
    }

    /// The capture that is read.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Opens the stream.
    pub fn stream(&mut self) -> Stream<'_> {
        let Self { reader, writer, by_ports, renamed } = self;
        let latest = Latest::default();
        let input = Box::new(Input { reader, latest: latest.clone() });
        let latest = (!*renamed).then_some(latest);
        let output = Output { writer: writer.as_mut(), by_ports: *by_ports, latest, counts: TransmitCounts::default() };
        Stream { input, ordered: output.writer.is_some(), output: Box::new(output) }
    }
}

impl Port for Capture {
    fn open(&mut self, _cores: usize) -> Result<Opened<'_>, PortError> {
        Ok(Opened::Stream(self.stream()))
    }
}

/// The interfaces that were described by the end of what was read: those behind the last packet are written, too.
#[derive(Clone, Debug, Default)]
struct Latest(Arc<Mutex<Option<Arc<Interfaces>>>>);

impl Latest {
    fn set(&self, batch: &Batch) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.clone_from(&batch.origin().interfaces);
    }

    fn get(&self) -> Option<Arc<Interfaces>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Input<'a> {
    reader: &'a mut Reader,
    latest: Latest,
}

impl Receive for Input<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        if !self.reader.is_ready() {
            batch.clear();
            return Ok(Received::Idle);
        }
        let received = self.reader.read(batch);
        self.latest.set(batch);
        Ok(received?)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        Ok(self.reader.wait(at_most)?)
    }
}

struct Output<'a> {
    writer: Option<&'a mut Writer>,
    by_ports: bool,
    latest: Option<Latest>,
    counts: TransmitCounts,
}

impl Transmit for Output<'_> {
    /// Writes the packets as they are now, with the time stamps that they had in the file.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let origin = batch.origin();
        if let Some(interfaces) = &origin.interfaces {
            writer.describe(interfaces);
        }
        let mut raised = origin.raised.as_slice();
        let mut run = Run::default();
        for (index, packet) in batch.packets().iter().enumerate() {
            let Fate::Transmit(port) = packet.fate else { continue };
            let time = if raised.is_empty() { packet.time } else { stamp(&mut raised, packet) };
            let interface = if self.by_ports && writer.knows(port) { port } else { packet.interface };
            let packet = Packet { time, interface, ..*packet };
            if let Some(record) = record(writer, batch, &packet) {
                if !run.extend(batch, &record) {
                    self.counts.sent += run.write(writer, batch)?;
                    run = Run { bytes: record, packets: 1 };
                }
                continue;
            }
            self.counts.sent += mem::take(&mut run).write(writer, batch)?;
            writer.write(&packet, batch.bytes(index))?;
            self.counts.sent += 1;
        }
        self.counts.sent += run.write(writer, batch)?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if let Some(writer) = &mut self.writer {
            writer.hand_over()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PortError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if let Some(interfaces) = self.latest.as_ref().and_then(Latest::get) {
            writer.describe(&interfaces);
        }
        writer.finish()?;
        Ok(())
    }

    fn sent(&self) -> Option<TransmitCounts> {
        self.writer.as_ref().map(|_| self.counts)
    }
}

/// Where a packet's whole record lies, as it is to be written: what was read and not changed has it ahead of its bytes.
#[inline]
fn record(writer: &Writer, batch: &Batch, packet: &Packet) -> Option<Range<usize>> {
    let header = writer.header(packet)?;
    let (begin, len) = (packet.offset as usize, packet.len as usize);
    let start = begin.checked_sub(header.len())?;
    let record = batch.stretch(start, begin + len)?;
    record.starts_with(&header).then_some(start..begin + len)
}

/// Records that lie one behind another in a batch, and are written together.
#[derive(Default)]
struct Run {
    bytes: Range<usize>,
    packets: u64,
}

impl Run {
    /// Adds a record, if it lies behind the others.
    #[inline]
    fn extend(&mut self, batch: &Batch, record: &Range<usize>) -> bool {
        let is_next =
            self.packets > 0 && self.bytes.end == record.start && batch.stretch(self.bytes.start, record.end).is_some();
        if is_next {
            (self.bytes.end, self.packets) = (record.end, self.packets + 1);
        }
        is_next
    }

    /// Writes them, and says how many packets they are.
    fn write(self, writer: &mut Writer, batch: &Batch) -> Result<u64, PortError> {
        if let Some(records) = batch.stretch(self.bytes.start, self.bytes.end).filter(|_| self.packets > 0) {
            writer.write_records(records, self.packets)?;
        }
        Ok(self.packets)
    }
}

/// The time stamp that a packet had in the file. Numbers rise from call to call; what lies below them is dropped from `raised`.
#[cold]
fn stamp(raised: &mut &[Raised], packet: &Packet) -> Nanos {
    let below = raised.partition_point(|one| one.seq < packet.seq);
    *raised = &raised[below..];
    match raised.first() {
        Some(one) if one.seq == packet.seq && one.time == packet.time => one.stamp,
        _ => packet.time,
    }
}

/// A capture whose packets name interfaces otherwise than the capture does, such as those that they had before they were sequenced.
/// What goes out of it goes by these.
pub struct Renamed {
    interfaces: Arc<Interfaces>,
}

impl Renamed {
    /// No interface is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self { interfaces: Arc::new(Interfaces::new()) }
    }

    /// From now on packets that go out name an interface by this number.
    pub fn describe(&mut self, number: u16, interface: Interface) {
        let mut interfaces = Interfaces::clone(&self.interfaces);
        let index = usize::from(number);
        if interfaces.len() <= index {
            interfaces.resize(index + 1, None);
        }
        interfaces[index] = Some(interface);
        self.interfaces = Arc::new(interfaces);
    }

    /// The interfaces of the capture that a batch was read from, where they have become more than are in `interfaces`.
    pub fn names(batch: &Batch, interfaces: &mut Vec<Interface>) {
        let described = batch.origin().interfaces.iter().flat_map(|all| all.iter().flatten());
        interfaces.extend(described.skip(interfaces.len()).cloned());
    }

    /// Has the batch's packets name these interfaces.
    pub fn name(&self, batch: &mut Batch) {
        batch.origin_mut().interfaces = Some(Arc::clone(&self.interfaces));
    }
}

impl Default for Renamed {
    fn default() -> Self {
        Self::new()
    }
}
