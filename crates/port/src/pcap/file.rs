//! Reads one capture file block by block into the memory of a batch, and finds the packets in place.
//!
//! Packets are not copied; a descriptor points to where `read` put them. Only a record that crosses a block boundary is copied to the
//! next block. Memory is bounded by the block and the longest record. After the first block, nothing is allocated except for records
//! longer than a block. See `docs/decisions/0003-reading-captures.md`.

use std::fmt;
use std::io::{self, Read};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::beside::Beside;
use super::classic::{Classic, FILE_HEADER_BYTES, RECORD_HEADER_BYTES};
use super::clock::Clock;
use super::error::{Error, Fault};
use super::format::{Container, Format, Interface, Interfaces};
use super::sections::{self, SECTION_HEADER_BYTES, Sections};
use super::source::{FileProgress, Source};
use super::walk::{Stop, Walked};
use crate::batch::{Batch, Packet};
use crate::queue::Received;

/// Default number of bytes read at a time: enough for thousands of packets a call, few enough for a core's second-level cache.
pub const BLOCK_BYTES: usize = 128 << 10;

/// Reads a file, a pipe or any [`Read`].
pub(super) struct FileReader {
    path: PathBuf,
    source: Source,
    walker: Walker,
    clock: Clock,
    /// The interfaces declared so far, in the form that batches carry.
    described: Arc<Interfaces>,
    block_bytes: usize,
    /// Start of the record that the last block cut in two.
    carry: Vec<u8>,
    /// Bytes of `carry` that were parsed: packets with a time that is not known yet.
    walked: usize,
    /// Offset of the next record, in bytes from the start of the decompressed capture.
    carry_offset: u64,
    /// Error to return after the packets before it have been delivered.
    pending: Option<Error>,
    ended: bool,
}

/// Number of bytes that the error for a file that is no capture shows.
const SHOWN_BYTES: usize = 12;

#[derive(Debug)]
enum Walker {
    Classic(Classic),
    Sections(Sections),
}

impl FileReader {
    /// Opens a capture file; `-` is standard input.
    ///
    /// # Errors
    /// The file can't be opened, or is not a capture.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let source = Source::open(path).map_err(|fault| opening(path, fault))?;
        Self::start(path.to_owned(), source)
    }

    /// Reads a capture from any reader; errors use `path` as its name.
    ///
    /// # Errors
    /// It can't be read, or is not a capture.
    pub(super) fn from_read(input: Box<dyn Read + Send>, path: &Path) -> Result<Self, Error> {
        let source = Source::new(input, None).map_err(|fault| opening(path, fault))?;
        Self::start(path.to_owned(), source)
    }

    fn start(path: PathBuf, mut source: Source) -> Result<Self, Error> {
        let mut carry = Vec::with_capacity(BLOCK_BYTES);
        let walker = identify(&mut source, &mut carry).map_err(|fault| opening(&path, fault))?;
        let mut carry_offset = 0;
        // A section header is read again by the walk, a file header is not.
        if let Walker::Classic(_) = walker {
            carry.clear();
            carry_offset = FILE_HEADER_BYTES as u64;
        }
        let (clock, block_bytes) = (Clock::default(), BLOCK_BYTES);
        let described = Arc::new(Interfaces::new());
        Ok(Self {
            path,
            source,
            walker,
            clock,
            described,
            block_bytes,
            carry,
            walked: 0,
            carry_offset,
            pending: None,
            ended: false,
        })
    }

    /// Sets the number of bytes read at a time.
    ///
    /// # Panics
    /// It is less than 64 or more than 1 GiB.
    pub(super) fn set_block(&mut self, bytes: usize) {
        assert!((64..=1 << 30).contains(&bytes), "a block has between 64 bytes and 1 GiB");
        self.block_bytes = bytes;
    }

    /// The file that is read.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Properties of the capture, as far as it has been read.
    pub(super) fn format(&self) -> Format {
        let (container, sections, byte_order) = match &self.walker {
            Walker::Classic(classic) => (Container::Pcap, 1, classic.byte_order),
            Walker::Sections(sections) => (Container::PcapNg, sections.count, sections.byte_order),
        };
        let (compression, interfaces) = (self.source.compression, self.interfaces().to_vec());
        Format { container, compression, byte_order, sections, interfaces }
    }

    /// The interfaces declared so far.
    pub(super) fn interfaces(&self) -> &[Interface] {
        match &self.walker {
            Walker::Classic(classic) => std::slice::from_ref(&classic.interface),
            Walker::Sections(sections) => &sections.interfaces,
        }
    }

    /// Number of packets with a time stamp before that of the previous packet. Packet times are made monotonic.
    pub(super) const fn clock_steps_back(&self) -> u64 {
        self.clock.steps_back()
    }

    /// Number of time stamps that were ignored; their packets have a neighbour's time. A stamp is ignored if it is far from its
    /// neighbours, or outside the range of [`Nanos`](packet::Nanos).
    pub(super) const fn stamps_not_believed(&self) -> u64 {
        self.clock.disbelieved()
    }

    /// Starts to keep [`notes`](Self::notes).
    pub(super) const fn take_notes(&mut self) {
        self.clock.notes.wanted = true;
    }

    /// Notes that were not taken yet.
    pub(super) const fn notes(&mut self) -> &mut Vec<Beside> {
        &mut self.clock.notes.taken
    }

    /// How far the file has been read.
    pub(super) fn progress(&self) -> FileProgress {
        self.source.progress.clone()
    }

    /// Fills the batch with the packets of the next block, replacing its content.
    ///
    /// # Errors
    /// The capture is damaged or can't be read further. All whole packets before that place are delivered first. The end follows an
    /// error.
    pub(super) fn read(&mut self, batch: &mut Batch) -> Result<Received, Error> {
        // The memory keeps its length and its old bytes, so that it need not be zeroed for each block.
        let (memory, packets) = batch.parts_mut();
        packets.clear();
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        if self.ended {
            return Ok(Received::End);
        }
        // The shortest record is a header of 16 bytes, so that no block makes the descriptors grow.
        packets.reserve(self.block_bytes / 16 + 1 + self.clock.pending());
        let received = self.fill(memory, packets);
        let origin = batch.origin_mut();
        self.clock.take_restamped(&mut origin.restamped);
        if self.described.len() != self.interfaces().len() {
            self.described = self.interfaces().iter().cloned().map(Some).collect::<Vec<_>>().into();
        }
        match &mut origin.interfaces {
            // Counting references would write to what other cores write to.
            Some(known) if Arc::ptr_eq(known, &self.described) => {}
            known => *known = Some(Arc::clone(&self.described)),
        }
        self.source.progress.set_clock_steps_back(self.clock.steps_back());
        received
    }

    /// True if [`read`](Self::read) would not wait: there are bytes, the end, or an error. The rest of a partial record may still need a
    /// wait. Always true for [`from_read`](Self::from_read).
    pub(super) fn is_ready(&mut self) -> bool {
        // The start of a record that is carried over gives no packet by itself.
        self.pending.is_some() || self.ended || self.source.is_ready()
    }

    /// Waits until the capture [is ready](Self::is_ready), for at most `at_most`. A signal may end the wait earlier, except for
    /// compressed files; a caller that handles signals should wait in short spans.
    ///
    /// # Errors
    /// The system can't wait for the file.
    pub(super) fn wait(&mut self, at_most: Duration) -> Result<(), Error> {
        if self.pending.is_some() || self.ended {
            return Ok(());
        }
        self.source.wait(at_most).map_err(|error| self.error(Fault::Read(error)))
    }

    fn fill(&mut self, memory: &mut Vec<u8>, packets: &mut Vec<Packet>) -> Result<Received, Error> {
        let mut block = Block::resume(memory, &mut self.carry, mem::take(&mut self.walked), self.block_bytes);
        self.clock.resume(packets);
        loop {
            let count = match self.source.read(block.room()) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    self.keep(&block, packets);
                    return Ok(Received::Idle);
                }
                Err(error) => {
                    let fault = self.source.fault(error);
                    return self.deliver(packets, fault);
                }
            };
            block.filled += count;
            let Walked { at, stop } = match &mut self.walker {
                Walker::Classic(classic) => classic.walk(block.bytes(), block.at, &mut self.clock, packets),
                Walker::Sections(sections) => sections.walk(block.bytes(), block.at, &mut self.clock, packets),
            };
            self.carry_offset += (at - block.at) as u64;
            block.at = at;
            match stop {
                Stop::Fault(fault) => return self.deliver(packets, fault),
                Stop::Need(_) if packets.len() > self.clock.pending() => {
                    self.keep(&block, packets);
                    return Ok(Received::Packets);
                }
                Stop::Need(_) if count == 0 && !packets.is_empty() => {
                    self.clock.accept_doubted(packets);
                    self.keep(&block, packets);
                    return Ok(Received::Packets);
                }
                Stop::Need(_) if count == 0 && block.left().is_empty() => {
                    self.ended = true;
                    return Ok(Received::End);
                }
                Stop::Need(_) if count == 0 => {
                    return self.deliver(packets, Fault::Truncated(block.left().len() as u64));
                }
                // Keep the partial record; deliver the packets before it without waiting for the rest.
                Stop::Need(_) if !self.source.is_ready() => {
                    self.keep(&block, packets);
                    return Ok(Received::Idle);
                }
                Stop::Need(bytes) => block.make_room(bytes, packets),
            }
        }
    }

    /// Keeps unparsed bytes, and packets without a known time, for the next block.
    fn keep(&mut self, block: &Block<'_>, packets: &mut Vec<Packet>) {
        let held = packets.len() - self.clock.pending();
        let start = block.start(&packets[held..]);
        self.clock.suspend(packets, start);
        self.walked = block.at - start;
        self.carry.extend_from_slice(&block.bytes()[start..]);
    }

    /// Ends the capture with an error, after the packets before it.
    #[cold]
    fn deliver(&mut self, packets: &mut [Packet], fault: Fault) -> Result<Received, Error> {
        self.ended = true;
        self.clock.accept_doubted(packets);
        let error = self.error(fault);
        if packets.is_empty() {
            return Err(error);
        }
        self.pending = Some(error);
        Ok(Received::Packets)
    }

    /// The error for a fault at the current position.
    fn error(&self, fault: Fault) -> Error {
        Error { path: self.path.clone(), offset: self.carry_offset, packets: self.clock.packets(), fault }
    }
}

impl fmt::Debug for FileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReader").field("path", &self.path).field("walker", &self.walker).finish_non_exhaustive()
    }
}

/// The batch's memory while it is filled: bytes before `at` were parsed, bytes after `filled` are stale.
struct Block<'a> {
    memory: &'a mut Vec<u8>,
    at: usize,
    filled: usize,
    limit: usize,
}

impl<'a> Block<'a> {
    /// Starts with the bytes carried over from the last block; the first `at` of them were parsed.
    fn resume(memory: &'a mut Vec<u8>, carry: &mut Vec<u8>, at: usize, block_bytes: usize) -> Self {
        let filled = carry.len();
        let limit = if filled < block_bytes / 2 { block_bytes } else { filled + block_bytes };
        let mut block = Self { memory, at, filled, limit };
        block.reach_limit();
        block.memory[..filled].copy_from_slice(carry);
        carry.clear();
        block
    }

    fn reach_limit(&mut self) {
        if self.memory.len() < self.limit {
            self.memory.resize(self.limit, 0);
        }
    }

    /// Where to read to; never empty.
    fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.filled..self.limit]
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[..self.filled]
    }

    /// The bytes that were not parsed yet.
    fn left(&self) -> &[u8] {
        &self.memory[self.at..self.filled]
    }

    /// Start of the bytes to keep if these packets are kept: the record of the first.
    fn start(&self, packets: &[Packet]) -> usize {
        packets.first().map_or(self.at, |packet| (packet.offset as usize).saturating_sub(RECORD_HEADER_BYTES))
    }

    /// Makes room for a record of `bytes` bytes, of which the first are read, after these packets. Memory is at most doubled, so that a
    /// damaged length needs no more memory than the file has bytes.
    fn make_room(&mut self, bytes: usize, packets: &mut [Packet]) {
        let start = self.start(packets);
        self.memory.copy_within(start..self.filled, 0);
        packets.iter_mut().for_each(|packet| packet.offset -= start as u32);
        (self.at, self.filled) = (self.at - start, self.filled - start);
        self.limit = self.limit.max((self.at + bytes).min(2 * self.limit));
        self.reach_limit();
    }
}

fn opening(path: &Path, fault: Fault) -> Error {
    Error { path: path.to_owned(), offset: 0, packets: 0, fault }
}

/// Detects the file format from the first bytes, which stay in `carry`.
fn identify(source: &mut Source, carry: &mut Vec<u8>) -> Result<Walker, Fault> {
    fill_up(source, carry, FILE_HEADER_BYTES)?;
    let Some(&magic) = carry.first_chunk::<4>() else { return Err(Fault::NotACapture(carry.clone())) };
    if magic == sections::MAGIC {
        fill_up(source, carry, SECTION_HEADER_BYTES)?;
        let whole = carry.len() == SECTION_HEADER_BYTES;
        return if whole { Ok(Walker::Sections(Sections::new())) } else { Err(Fault::Header(carry.len() as u64)) };
    }
    if !Classic::is_magic(magic) {
        carry.truncate(SHOWN_BYTES);
        return Err(Fault::NotACapture(carry.clone()));
    }
    match carry.first_chunk::<FILE_HEADER_BYTES>() {
        Some(header) => Ok(Walker::Classic(Classic::open(header)?)),
        None => Err(Fault::Header(carry.len() as u64)),
    }
}

/// Reads until there are `len` bytes, or the end.
fn fill_up(source: &mut Source, carry: &mut Vec<u8>, len: usize) -> Result<(), Fault> {
    let mut filled = carry.len();
    carry.resize(len, 0);
    while filled < len {
        match source.read(&mut carry[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(source.fault(error)),
        }
    }
    carry.truncate(filled);
    Ok(())
}
