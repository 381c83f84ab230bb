//! Several captures as one, merged by time stamp.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use packet::{Nanos, Seq};

use super::beside::{Beside, What};
use super::classic::RECORD_HEADER_BYTES;
use super::clock::Restamped;
use super::error::{Error, Fault};
use super::file::{BLOCK_BYTES, FileReader};
use super::format::{ByteOrder, Container, Format, Interface, Interfaces};
use super::sections::INTERFACES_MAX;
use crate::batch::{Batch, Packet};
use crate::queue::Received;

/// A k-way merge of captures.
pub(super) struct Merge {
    files: Vec<FileReader>,
    heads: Vec<Head>,
    /// Time of the next packet of each file that has one, the earliest on top.
    next: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Files whose next packet has to be read.
    lacking: Vec<usize>,
    /// Number of the next packet.
    seq: u64,
    interfaces: Vec<Interface>,
    /// The interfaces in the form that batches carry.
    described: Arc<Interfaces>,
    notes: Vec<Beside>,
    /// Error to return after the packets before it.
    pending: Option<Error>,
    ended: bool,
}

/// Packets and notes of a file that were read and not taken yet.
#[derive(Default)]
struct Head {
    batch: Batch,
    next: usize,
    /// The merged number of each of its interfaces.
    numbers: Vec<u16>,
    notes: Vec<Beside>,
}

impl Merge {
    pub(super) fn new(files: Vec<FileReader>) -> Result<Self, Error> {
        let mut merge = Self {
            heads: files.iter().map(|_| Head::default()).collect(),
            lacking: (0..files.len()).collect(),
            files,
            next: BinaryHeap::new(),
            seq: 0,
            interfaces: Vec::new(),
            described: Arc::default(),
            notes: Vec::new(),
            pending: None,
            ended: false,
        };
        (0..merge.files.len()).try_for_each(|at| merge.describe(at))?;
        Ok(merge)
    }

    pub(super) fn files(&self) -> &[FileReader] {
        &self.files
    }

    pub(super) fn set_block(&mut self, bytes: usize) {
        self.files.iter_mut().for_each(|file| file.set_block(bytes));
    }

    pub(super) fn format(&self) -> Format {
        let formats: Vec<Format> = self.files.iter().map(FileReader::format).collect();
        let is_pcap = self.interfaces.len() <= 1 && formats.iter().all(|format| format.container == Container::Pcap);
        let compression = formats[0].compression;
        Format {
            container: if is_pcap { Container::Pcap } else { Container::PcapNg },
            compression: compression.filter(|_| formats.iter().all(|format| format.compression == compression)),
            byte_order: ByteOrder::Little,
            sections: 1,
            interfaces: self.interfaces.clone(),
        }
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(super) fn clock_steps_back(&self) -> u64 {
        self.files.iter().map(FileReader::clock_steps_back).sum()
    }

    pub(super) fn stamps_not_believed(&self) -> u64 {
        self.files.iter().map(FileReader::stamps_not_believed).sum()
    }

    pub(super) fn take_notes(&mut self) {
        self.files.iter_mut().for_each(FileReader::take_notes);
    }

    pub(super) const fn notes(&mut self) -> &mut Vec<Beside> {
        &mut self.notes
    }

    pub(super) fn read(&mut self, batch: &mut Batch) -> Result<Received, Error> {
        batch.clear();
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        // At most as many packets as a block of empty packets has.
        while !self.ended && batch.bytes_max() < BLOCK_BYTES && batch.len() < BLOCK_BYTES / RECORD_HEADER_BYTES {
            match self.fill(batch.is_empty()) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.ended = true;
                    self.pending = Some(error);
                    break;
                }
            }
            let Some(Reverse((_, at))) = self.next.pop() else {
                self.ended = true;
                break;
            };
            self.take(at, batch);
        }
        batch.origin_mut().interfaces = Some(Arc::clone(&self.described));
        if !batch.is_empty() {
            return Ok(Received::Packets);
        }
        match self.pending.take() {
            Some(error) => Err(error),
            None if self.ended => Ok(Received::End),
            None => Ok(Received::Idle),
        }
    }

    /// Reads more of the files without a next packet. Returns false if one of them has none yet; with `waits`, it waits for it.
    fn fill(&mut self, waits: bool) -> Result<bool, Error> {
        while let Some(at) = self.lacking.pop() {
            let (file, head) = (&mut self.files[at], &mut self.heads[at]);
            let is_asked = waits || file.is_ready();
            let received = if is_asked { file.read(&mut head.batch) } else { Ok(Received::Idle) };
            head.notes.append(file.notes());
            head.next = 0;
            match received? {
                Received::Packets => {
                    let time = head.batch.packets()[0].time;
                    self.describe(at)?;
                    self.next.push(Reverse((time, at)));
                }
                Received::Idle => {
                    self.lacking.push(at);
                    return Ok(false);
                }
                Received::End => {
                    self.describe(at)?;
                    self.note(at, u64::MAX);
                }
            }
        }
        Ok(true)
    }

    /// Moves the next packet of a file to the batch.
    fn take(&mut self, at: usize, batch: &mut Batch) {
        let seq = self.heads[at].batch.packets()[self.heads[at].next].seq;
        if self.heads[at].notes.first().is_some_and(|note| note.at <= seq.0) {
            self.note(at, seq.0);
        }
        let head = &mut self.heads[at];
        let (packet, bytes) = head.batch.packet(head.next);
        let (seq, time) = (Seq(self.seq), packet.time);
        let restamped = &head.batch.origin().restamped;
        if let Ok(index) = restamped.binary_search_by_key(&packet.seq, |one| one.seq) {
            let Restamped { stamp, .. } = restamped[index];
            batch.origin_mut().restamped.push(Restamped { seq, time, stamp });
        }
        batch.push(Packet { seq, interface: head.numbers[usize::from(packet.interface)], ..*packet }, bytes);
        self.seq += 1;
        head.next += 1;
        match head.batch.packets().get(head.next) {
            Some(packet) => self.next.push(Reverse((packet.time, at))),
            None => self.lacking.push(at),
        }
    }

    /// Passes on the notes of a file up to its packet `seq`, which is the next packet here.
    fn note(&mut self, at: usize, seq: u64) {
        let head = &mut self.heads[at];
        let due = head.notes.partition_point(|note| note.at <= seq);
        for Beside { at: of, what } in head.notes.drain(..due) {
            let what = match what {
                // The merged section has the options of the first capture.
                What::Section(_) if at > 0 => continue,
                _ if what.is_of_packet() && of != seq => continue,
                What::Statistics { interface, time, options } => match head.numbers.get(usize::from(interface)) {
                    Some(&interface) => What::Statistics { interface, time, options },
                    None => continue,
                },
                what => what,
            };
            self.notes.push(Beside { at: self.seq, what });
        }
    }

    /// Numbers the interfaces that a file has declared since.
    fn describe(&mut self, at: usize) -> Result<(), Error> {
        let (file, numbers) = (&self.files[at], &mut self.heads[at].numbers);
        if numbers.len() == file.interfaces().len() {
            return Ok(());
        }
        for interface in &file.interfaces()[numbers.len()..] {
            let interface = Interface { section: 0, ..interface.clone() };
            let known = self.interfaces.iter().position(|known| *known == interface);
            if known.is_none() && self.interfaces.len() == INTERFACES_MAX {
                let path = file.path().to_owned();
                return Err(Error { path, offset: 0, packets: 0, fault: Fault::TooManyInterfaces });
            }
            numbers.push(known.unwrap_or(self.interfaces.len()) as u16);
            if known.is_none() {
                self.interfaces.push(interface);
            }
        }
        self.described = Arc::new(self.interfaces.iter().cloned().map(Some).collect());
        Ok(())
    }

    pub(super) fn is_ready(&mut self) -> bool {
        let Self { files, lacking, .. } = self;
        self.pending.is_some() || self.ended || lacking.iter().all(|at| files[*at].is_ready())
    }

    pub(super) fn wait(&mut self, at_most: Duration) -> Result<(), Error> {
        let files = &mut self.files;
        match self.lacking.iter().find(|at| !files[**at].is_ready()) {
            Some(&at) if self.pending.is_none() && !self.ended => files[at].wait(at_most),
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Debug for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merge").field("files", &self.files).finish_non_exhaustive()
    }
}
