//! Capture files: pcap and pcapng, read and written as streams.
//!
//! [`Reader`] and [`Writer`] handle the files; [`Capture`] is the port made of them.

mod ahead;
mod beside;
mod classic;
mod clock;
mod decompress;
mod error;
mod file;
mod format;
mod merge;
mod reader;
mod sections;
mod selection;
mod source;
mod target;
mod walk;
mod writer;

pub(crate) use clock::Restamped;
pub use error::{Error, Fault};
pub use file::BLOCK_BYTES;
pub use format::{ByteOrder, Compression, Container, Format, Interface, Interfaces, Resolution};
pub use reader::Reader;
pub use selection::Choice;
pub use source::Progress;
pub use target::{Target, followed, same_file};
pub use writer::Writer;

use std::collections::VecDeque;
use std::iter;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use packet::Nanos;

use beside::{Beside, What};

use crate::batch::{Batch, Fate, Packet};
use crate::error::PortError;
use crate::queue::{Opened, Order, Port, Receive, Received, Stream, Transmit, TransmitCounts};

/// A port that reads a capture and, with a writer, writes the outgoing packets to another. It opens a stream, because a file has a single
/// order.
pub struct Capture {
    reader: Reader,
    writer: Option<Writer>,
    dropped: Option<Dropped>,
    /// True if a packet's output port is written as its interface.
    by_ports: bool,
    /// True if packets have other interface numbers than the capture.
    renamed: bool,
    misplaced: Misplaced,
}

/// The packets that were sent to a port which the written capture has no interface for. They are written with their input interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misplaced {
    /// Number of packets.
    pub packets: u64,
    /// The port of the first one.
    pub port: u16,
    /// True if others were sent to other such ports.
    pub is_several: bool,
}

impl Misplaced {
    #[cold]
    fn add(&mut self, port: u16) {
        if self.packets == 0 {
            self.port = port;
        }
        self.packets += 1;
        self.is_several |= self.port != port;
    }
}

impl Capture {
    /// Reads from `reader` and writes to `writer`. Without a writer, outgoing packets are counted and dropped.
    #[must_use]
    pub const fn new(reader: Reader, writer: Option<Writer>) -> Self {
        let misplaced = Misplaced { packets: 0, port: 0, is_several: false };
        Self { reader, writer, dropped: None, by_ports: false, renamed: false, misplaced }
    }

    /// Writes the output port of a packet as its interface, if the port is the number of an interface. Other packets keep their input
    /// interface.
    pub const fn write_ports(&mut self) {
        self.by_ports = true;
    }

    /// Writes outgoing packets with the interfaces of [`Renamed`] instead of the capture's.
    pub const fn rename(&mut self) {
        self.renamed = true;
    }

    /// Calls `tell` for every dropped packet, and writes the packet to `writer`, if there is one, with the returned text as its comment.
    pub fn show_dropped(
        &mut self,
        writer: Option<Writer>,
        tell: impl FnMut(u8, &Packet, &[u8]) -> &'static str + Send + 'static,
    ) {
        self.dropped = Some(Dropped { writer, tell: Box::new(tell) });
    }

    /// Refuses packets of several link types if the output format allows only one, as [`Writer::refuse_mixed_links`] does. Skipped if
    /// packets may be left out.
    ///
    /// # Errors
    /// [`Fault::MixedLinks`].
    pub fn refuse_mixed_links(&self) -> Result<(), Error> {
        match &self.writer {
            Some(writer) if !self.reader.is_part() => writer.refuse_mixed_links(self.reader.paths()),
            Some(_) | None => Ok(()),
        }
    }

    /// The capture that is read.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The packets so far that were sent to a port without an interface in the written capture, if [ports](Self::write_ports) are written.
    #[must_use]
    pub const fn misplaced(&self) -> &Misplaced {
        &self.misplaced
    }

    /// Opens the stream.
    pub fn stream(&mut self) -> Stream<'_> {
        let Self { reader, writer, dropped, by_ports, renamed, misplaced } = self;
        let (latest, notes) = (Latest::default(), Notes::default());
        if writer.is_some() && !*renamed {
            reader.take_notes();
        }
        let input = Box::new(Input { reader, latest: latest.clone(), notes: Arc::clone(&notes) });
        let latest = (!*renamed).then_some(latest);
        let counts = TransmitCounts::default();
        let order = match (&writer, &dropped) {
            (_, Some(_)) => Order::All,
            (Some(_), None) => Order::Sent,
            (None, None) => Order::Any,
        };
        let dropped = dropped.as_mut();
        let writer = writer.as_mut();
        let kept = KeptNotes::default();
        let output = Output { writer, dropped, by_ports: *by_ports, misplaced, latest, notes, kept, counts };
        Stream { input, order, output: Box::new(output) }
    }
}

impl Port for Capture {
    fn open(&mut self, _cores: usize) -> Result<Opened<'_>, PortError> {
        Ok(Opened::Stream(self.stream()))
    }
}

/// Consumer of dropped packets.
struct Dropped {
    writer: Option<Writer>,
    tell: Box<Tell>,
}

/// Returns the comment for a dropped packet. The first argument is the number of the drop reason.
type Tell = dyn FnMut(u8, &Packet, &[u8]) -> &'static str + Send;

impl Dropped {
    /// Consumes the dropped packets of a batch. They are written with the time stamps of the input file.
    fn take(&mut self, batch: &Batch) -> Result<(), Error> {
        let origin = batch.origin();
        if let (Some(writer), Some(interfaces)) = (&mut self.writer, &origin.interfaces) {
            writer.describe(interfaces);
        }
        let mut restamped = origin.restamped.as_slice();
        for (packet, bytes) in batch.each(0..batch.len()) {
            let Fate::Drop(reason) = packet.fate else { continue };
            let comment = (self.tell)(reason, packet, bytes);
            let Some(writer) = &mut self.writer else { continue };
            let time = if restamped.is_empty() { packet.time } else { stamp(&mut restamped, packet) };
            writer.write_with_comment(&Packet { time, ..*packet }, bytes, comment)?;
        }
        Ok(())
    }

    fn writer(&mut self) -> Option<&mut Writer> {
        self.writer.as_mut()
    }
}

/// The interfaces declared by the end of the input; those after the last packet are written, too.
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

/// Notes that were read and must still be written.
type Notes = Arc<Mutex<VecDeque<Beside>>>;

fn locked(notes: &Notes) -> MutexGuard<'_, VecDeque<Beside>> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the notes before the packet after number `seq`.
fn due(notes: &Notes, seq: u64) -> VecDeque<Beside> {
    let mut notes = locked(notes);
    let end = notes.partition_point(|note| note.at <= seq);
    notes.drain(..end).collect()
}

struct Input<'a> {
    reader: &'a mut Reader,
    latest: Latest,
    notes: Notes,
}

impl Receive for Input<'_> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        if !self.reader.is_ready() {
            batch.clear();
            return Ok(Received::Idle);
        }
        let received = self.reader.read(batch);
        self.latest.set(batch);
        if !self.reader.notes().is_empty() {
            locked(&self.notes).extend(self.reader.notes().drain(..));
        }
        Ok(received?)
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), PortError> {
        Ok(self.reader.wait(at_most)?)
    }
}

struct Output<'a> {
    writer: Option<&'a mut Writer>,
    dropped: Option<&'a mut Dropped>,
    by_ports: bool,
    misplaced: &'a mut Misplaced,
    latest: Option<Latest>,
    notes: Notes,
    /// Empty unless the order of packets was changed.
    kept: KeptNotes,
    counts: TransmitCounts,
}

/// Notes up to the last packet that was written, where packets before that one are still to come: a wrapper of the port
/// [changed](crate::Reordered) their order.
#[derive(Default)]
struct KeptNotes {
    /// Notes about packets.
    packets: VecDeque<Beside>,
    /// Notes about places between packets.
    places: VecDeque<Beside>,
}

impl KeptNotes {
    fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.places.is_empty()
    }

    /// Takes the notes up to the last packet of a batch by the capture's order.
    fn take(&mut self, notes: &Notes, batch: &Batch) {
        let reordered = &batch.origin().reordered;
        let sent = batch.packets().iter().filter(|packet| packet.fate.is_sent());
        let Some(last) = sent.map(|packet| reordered.in_capture(packet.seq)).max() else { return };
        for note in due(notes, last.0) {
            match note.what.is_of_packet() {
                true => self.packets.push_back(note),
                false => self.places.push_back(note),
            }
        }
    }

    /// Writes the notes about places before packet `seq` of the capture, and collects those about it.
    #[cold]
    fn write(&mut self, writer: &mut Writer, seq: u64) -> Result<Said, Error> {
        write_notes(writer, &mut self.places, seq)?;
        let first = self.packets.partition_point(|note| note.at < seq);
        let mut said = Said::default();
        for Beside { what, .. } in self.packets.range(first..).take_while(|note| note.at == seq) {
            match what {
                What::WireLen { given, reported } => said.wire_len = Some((*given, *reported)),
                What::Options(options) => said.options.clone_from(options),
                What::Section(_) | What::Block(..) | What::Statistics { .. } => {}
            }
        }
        Ok(said)
    }

    /// Forgets the notes about packets before number `seq`: they were written, or are never sent.
    fn forget(&mut self, seq: u64) {
        let end = self.packets.partition_point(|note| note.at < seq);
        self.packets.drain(..end);
    }
}

/// Notes about one packet.
#[derive(Default)]
struct Said {
    options: Vec<u8>,
    /// Its corrected wire length, and the one in the file.
    wire_len: Option<(u32, u32)>,
}

/// Writes the notes before packet `seq`, and collects the notes about it. Notes about packets that aren't sent are dropped.
#[cold]
fn write_notes(writer: &mut Writer, notes: &mut VecDeque<Beside>, seq: u64) -> Result<Said, Error> {
    let mut said = Said::default();
    while let Some(Beside { at, what }) = notes.pop_front_if(|note| note.at <= seq) {
        match what {
            What::WireLen { given, reported } if at == seq => said.wire_len = Some((given, reported)),
            What::Options(options) if at == seq => said.options = options,
            What::WireLen { .. } | What::Options(_) => {}
            What::Section(options) => writer.section(options),
            What::Block(kind, body) => writer.block(kind, &body)?,
            What::Statistics { interface, time, options } => writer.statistics(interface, time, options)?,
        }
    }
    Ok(said)
}

impl Transmit for Output<'_> {
    /// Writes the packets with their current bytes and the time stamps of the input file.
    fn transmit(&mut self, batch: &mut Batch) -> Result<(), PortError> {
        if let Some(dropped) = &mut self.dropped {
            dropped.take(batch)?;
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let origin = batch.origin();
        if let Some(interfaces) = &origin.interfaces {
            writer.describe(interfaces);
        }
        let mut restamped = origin.restamped.as_slice();
        let mut run = Run::default();
        // Other cores may read meanwhile and must not wait for this write.
        let mut sent = batch.packets().iter().rev().filter(|packet| packet.fate.is_sent());
        let is_reordered = !origin.reordered.is_empty() || !self.kept.is_empty();
        let mut notes = VecDeque::new();
        if is_reordered {
            self.kept.take(&self.notes, batch);
        } else if let Some(last) = sent.next() {
            notes = due(&self.notes, last.seq.0);
        }
        let mut noted = notes.front().map_or(u64::MAX, |note| note.at);
        if is_reordered && !self.kept.is_empty() {
            noted = 0;
        }
        for (index, sent) in batch.packets().iter().enumerate() {
            let mut ports = sent.fate.ports();
            let Some(port) = ports.next() else { continue };
            let time = if restamped.is_empty() { sent.time } else { stamp(&mut restamped, sent) };
            let mut options = Vec::new();
            let mut wire_len = sent.wire_len;
            if sent.seq.0 >= noted {
                let said = if is_reordered {
                    self.kept.write(writer, origin.reordered.in_capture(sent.seq).0)?
                } else {
                    let said = write_notes(writer, &mut notes, sent.seq.0)?;
                    noted = notes.front().map_or(u64::MAX, |note| note.at);
                    said
                };
                options = said.options;
                wire_len = match said.wire_len {
                    Some((given, reported)) if given == wire_len => reported,
                    Some(_) | None => wire_len,
                };
            }
            for port in iter::once(port).chain(ports) {
                let interface = match self.by_ports && port != sent.interface {
                    true if writer.knows(port) => port,
                    true => {
                        self.misplaced.add(port);
                        sent.interface
                    }
                    false => sent.interface,
                };
                let packet = Packet { time, interface, wire_len, ..*sent };
                if let Some(record) = record(writer, batch, &packet) {
                    if !run.extend(batch, &record) {
                        self.counts.sent += run.write(writer, batch)?;
                        run = Run { bytes: record, packets: 1 };
                    }
                    continue;
                }
                self.counts.sent += mem::take(&mut run).write(writer, batch)?;
                writer.write_with(&packet, batch.bytes(index), &options)?;
                self.counts.sent += 1;
            }
        }
        self.counts.sent += run.write(writer, batch)?;
        if is_reordered {
            self.kept.forget(origin.reordered.held_from.map_or(u64::MAX, |seq| seq.0));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let writers = [self.writer.as_deref_mut(), self.dropped.as_mut().and_then(|dropped| dropped.writer())];
        for writer in writers.into_iter().flatten() {
            writer.hand_over()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PortError> {
        if let Some(writer) = self.dropped.as_mut().and_then(|dropped| dropped.writer()) {
            if let Some(interfaces) = self.latest.as_ref().and_then(Latest::get) {
                writer.describe(&interfaces);
            }
            writer.finish()?;
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if let Some(interfaces) = self.latest.as_ref().and_then(Latest::get) {
            writer.describe(&interfaces);
        }
        write_notes(writer, &mut self.kept.places, u64::MAX)?;
        write_notes(writer, &mut locked(&self.notes), u64::MAX)?;
        writer.finish()?;
        Ok(())
    }

    fn sent(&self) -> Option<TransmitCounts> {
        self.writer.as_ref().map(|_| self.counts)
    }
}

/// Position of the whole record of a packet in the batch, if it can be written unchanged: its header is still in front of its bytes.
#[inline]
fn record(writer: &Writer, batch: &Batch, packet: &Packet) -> Option<Range<usize>> {
    let header = writer.header(packet)?;
    let (begin, len) = (packet.offset as usize, packet.len as usize);
    let start = begin.checked_sub(header.len())?;
    let record = batch.stretch(start, begin + len)?;
    record.starts_with(&header).then_some(start..begin + len)
}

/// Adjacent records in a batch that are written together.
#[derive(Default)]
struct Run {
    bytes: Range<usize>,
    packets: u64,
}

impl Run {
    /// Adds a record if it is adjacent.
    #[inline]
    fn extend(&mut self, batch: &Batch, record: &Range<usize>) -> bool {
        let is_next =
            self.packets > 0 && self.bytes.end == record.start && batch.stretch(self.bytes.start, record.end).is_some();
        if is_next {
            (self.bytes.end, self.packets) = (record.end, self.packets + 1);
        }
        is_next
    }

    /// Writes them; returns the number of packets.
    fn write(self, writer: &mut Writer, batch: &Batch) -> Result<u64, PortError> {
        if let Some(records) = batch.stretch(self.bytes.start, self.bytes.end).filter(|_| self.packets > 0) {
            writer.write_records(records, self.packets)?;
        }
        Ok(self.packets)
    }
}

/// Time stamp of a packet in the file. Numbers rise from call to call; entries for lower numbers are removed from `restamped`.
#[cold]
fn stamp(restamped: &mut &[Restamped], packet: &Packet) -> Nanos {
    let below = restamped.partition_point(|one| one.seq < packet.seq);
    *restamped = &restamped[below..];
    match restamped.first() {
        Some(one) if one.seq == packet.seq && one.time == packet.time => one.stamp,
        _ => packet.time,
    }
}

/// Interface numbers that differ from those of the capture, for example the original ones of a sequenced capture. Outgoing packets are
/// written with them.
pub struct Renamed {
    interfaces: Arc<Interfaces>,
}

impl Renamed {
    /// No interfaces yet.
    #[must_use]
    pub fn new() -> Self {
        Self { interfaces: Arc::new(Interfaces::new()) }
    }

    /// Declares the interface with this number, for later packets.
    pub fn describe(&mut self, number: u16, interface: Interface) {
        let mut interfaces = Interfaces::clone(&self.interfaces);
        let index = usize::from(number);
        if interfaces.len() <= index {
            interfaces.resize(index + 1, None);
        }
        interfaces[index] = Some(interface);
        self.interfaces = Arc::new(interfaces);
    }

    /// Updates `interfaces` to those of the capture that the batch was read from, if there are more now.
    pub fn names(batch: &Batch, interfaces: &mut Vec<Interface>) {
        let described = batch.origin().interfaces.iter().flat_map(|all| all.iter().flatten());
        interfaces.extend(described.skip(interfaces.len()).cloned());
    }

    /// Makes the batch's packets refer to these interfaces.
    pub fn name(&self, batch: &mut Batch) {
        batch.origin_mut().interfaces = Some(Arc::clone(&self.interfaces));
    }
}

impl Default for Renamed {
    fn default() -> Self {
        Self::new()
    }
}
